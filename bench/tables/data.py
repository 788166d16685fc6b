"""Three made-up data sets of persons and their rows, for `syncret bench tables`.

`clinic` has patients and their stays, `bank` accounts and their payments, and `panel` persons by quarters in one table.
Rows of a person hang together as people's do: constants, levels of a person's own, values that stay from row to row,
numbers of rows that depend on the person. A seed makes the same tables everywhere. All values here are public; nobody's
rows are in them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

CLINIC, BANK, PANEL = NAMES = ("clinic", "bank", "panel")
PERSONS: Final = 10_000
SEED: Final = 20_644
QUARTERS: Final = 8
Texts: TypeAlias = NDArray[np.str_]
Floats: TypeAlias = NDArray[np.float64]
Whole: TypeAlias = NDArray[np.int64]
Columns: TypeAlias = Mapping[str, NDArray[np.generic]]
Frames: TypeAlias = Mapping[str, pd.DataFrame]
"""Tables by name, all cells text."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Public facts about a data set's tables.

    ``own`` are the columns of a person, ``rows`` those of a row besides the ``order``. Without ``parent`` the own
    columns stand in the child's rows; of the others the child repeats ``repeated``. ``numbers`` are columns of numbers.
    The order is a number if it is not ``dated``.
    """

    name: str
    parent: str | None
    child: str
    key: str
    order: str
    own: tuple[str, ...]
    rows: tuple[str, ...]
    numbers: frozenset[str]
    repeated: tuple[str, ...] = ()
    dated: bool = True

    @property
    def in_child(self) -> tuple[str, ...]:
        """Own columns that stand in the child's rows."""
        return self.own if self.parent is None else self.repeated


SHAPES: Mapping[str, Shape] = {
    CLINIC: Shape(
        CLINIC,
        "patients",
        "stays",
        "patient_id",
        "admitted",
        ("sex", "birth_year", "region", "smoker"),
        ("ward", "diagnosis", "weight", "systolic", "days"),
        frozenset({"birth_year", "weight", "systolic", "days"}),
        repeated=("sex",),
    ),
    BANK: Shape(
        BANK,
        "accounts",
        "payments",
        "account_id",
        "date",
        ("type", "region", "opened", "limit"),
        ("amount", "category", "channel", "balance"),
        frozenset({"opened", "limit", "amount", "balance"}),
        repeated=("type",),
    ),
    PANEL: Shape(
        PANEL,
        None,
        "panel",
        "person_id",
        "quarter",
        ("sex", "education"),
        ("employment", "income", "hours"),
        frozenset({"income", "hours"}),
        dated=False,
    ),
}


def made_tables(name: str, persons: int = PERSONS, seed: int = SEED) -> Frames:
    """Makes the tables of a data set of ``NAMES``, their rows in no order."""
    rng = np.random.default_rng([seed, NAMES.index(name)])
    return _MAKERS[name](rng, persons)


def _clinic(rng: np.random.Generator, persons: int) -> Frames:
    male = rng.random(persons) < 0.47
    sex = np.where(male, "m", "f")
    age = np.clip(rng.normal(58, 18, persons), 18, 95).astype(int)
    region = rng.choice(
        ["north", "south", "east", "west", "centre"], persons, p=[0.3, 0.25, 0.2, 0.15, 0.1]
    )
    smokes = rng.random(persons) < 0.15 + 0.1 * male
    key = _keys("P", rng, persons)
    parents = {
        "patient_id": key,
        "sex": sex,
        "birth_year": 2024 - age,
        "region": region,
        "smoker": np.where(smokes, "yes", "no"),
    }
    number = np.minimum(rng.poisson(0.9 + 1.6 * (age > 65) + 0.8 * smokes), 7)
    weight = np.where(male, 84, 70) + rng.normal(0, 11, persons) + 0.05 * (age - 58)
    pressure = 118 + 0.35 * (age - 40) + rng.normal(0, 9, persons) + 4 * smokes
    wards = ["cardiology", "surgery", "oncology", "neurology", "internal", "gynaecology"]
    by_ward = _weights(
        persons, 0.1 + 0.3 * (age > 60), 0.25, 0.1 + 0.1 * smokes, 0.1, 0.3, 0.15 * ~male
    )
    codes = ["I10", "I50", "C34", "C50", "G20", "K35", "E11", "N39"]
    by_code = _weights(
        persons,
        3.0,
        2.0,
        0.5 + 2 * smokes,
        0.05 + 1.2 * ~male,
        0.5 + (age > 65),
        1.0,
        1 + 1.5 * (weight > 85),
        1.0,
    )
    day = rng.integers(0, 900, persons)
    ward, code = _chosen(rng, by_ward), _chosen(rng, by_code)
    parts = list[Columns]()
    for row in range(7):
        if row:
            grave = (code == 1) | (code == 2)
            day = day + 1 + (rng.exponential(140, persons) * np.where(grave, 0.5, 1)).astype(int)
            weight = weight + rng.normal(0, 0.9, persons) - 0.8 * (code == 2)
            ward = np.where(rng.random(persons) < 0.35, _chosen(rng, by_ward), ward)
            code = np.where(rng.random(persons) < 0.3, _chosen(rng, by_code), code)
        grave = (code == 1) | (code == 2)
        parts.append(
            {
                "patient_id": key,
                "sex": sex,
                "admitted": _dates("2019-01-01", day),
                "ward": np.take(wards, ward),
                "diagnosis": np.take(codes, code),
                "weight": _decimals(weight, 1),
                "systolic": np.rint(pressure + rng.normal(0, 6, persons)).astype(int),
                "days": 1 + rng.gamma(1.5, 2 + 2 * grave, persons).astype(int),
            }
        )
    return {
        "patients": _frame(parents),
        "stays": _rows(rng, parts, first=np.zeros(persons, int), end=number),
    }


def _bank(rng: np.random.Generator, persons: int) -> Frames:
    kinds = ["private", "business", "student", "savings"]
    kind = rng.choice(4, persons, p=[0.55, 0.15, 0.2, 0.1])
    region = rng.choice(["city", "suburb", "town", "country"], persons, p=[0.4, 0.25, 0.2, 0.15])
    years = np.where(kind == 2, rng.gamma(1.5, 2, persons), rng.gamma(2.5, 4.5, persons))
    opened = np.maximum(2023 - years.astype(int), 1985)
    level = np.take([4.0, 6.0, 3.0, 5.0], kind) + 0.25 * (region == "city")
    level = level + rng.normal(0, 0.5, persons)
    limits = np.array([500, 1000, 2000, 5000, 10000, 20000])
    limit = limits[np.clip(np.rint(level - 3 + rng.normal(0, 0.7, persons)), 0, 5).astype(int)]
    key = _keys("A", rng, persons)
    parents = {
        "account_id": key,
        "type": np.take(kinds, kind),
        "region": region,
        "opened": opened,
        "limit": limit,
    }
    number = rng.poisson(np.take([3.0, 5.0, 2.5, 0.8], kind) + 0.5 * (opened < 2010))
    categories = ["groceries", "rent", "travel", "leisure", "supplies", "transfer"]
    by_category = _weights(
        persons,
        0.4 * (kind != 1) + 0.02,
        0.25 * (kind == 0) + 0.1,
        0.05 + 0.15 * (region == "city"),
        0.1 + 0.3 * (kind == 2),
        0.02 + 0.6 * (kind == 1),
        0.05 + 0.6 * (kind == 3),
    )
    channels = ["card", "online", "cash", "standing"]
    by_channel = _weights(
        persons,
        0.4,
        0.1 + 0.4 * (opened > 2014),
        0.05 + 0.3 * (opened <= 2005) + 0.1 * (region == "country"),
        0.15,
    )
    balance = np.exp(level + 2 + rng.normal(0, 0.6, persons))
    day = rng.integers(0, 300, persons)
    category, channel = _chosen(rng, by_category), _chosen(rng, by_channel)
    parts = list[Columns]()
    for row in range(10):
        if row:
            day = day + 1 + rng.gamma(1.2, np.take([14, 6, 20, 50], kind)).astype(int)
            category = np.where(rng.random(persons) < 0.5, _chosen(rng, by_category), category)
            channel = np.where(rng.random(persons) < 0.25, _chosen(rng, by_channel), channel)
        amount = np.exp(level + 0.8 * (category == 1) + rng.normal(0, 0.4, persons))
        income = np.exp(level + rng.normal(0, 0.5, persons))
        balance = np.maximum(balance + income - amount, 0)
        parts.append(
            {
                "account_id": key,
                "type": np.take(kinds, kind),
                "date": _dates("2023-01-01", day),
                "amount": _decimals(amount, 2),
                "category": np.take(categories, category),
                "channel": np.take(channels, channel),
                "balance": np.rint(balance).astype(int),
            }
        )
    number = np.minimum(number, 10)
    return {
        "accounts": _frame(parents),
        "payments": _rows(rng, parts, first=np.zeros(persons, int), end=number),
    }


def _panel(rng: np.random.Generator, persons: int) -> Frames:
    female = rng.random(persons) < 0.51
    education = rng.choice(3, persons, p=[0.25, 0.5, 0.25])
    key = _keys("R", rng, persons)
    first = np.where(rng.random(persons) < 0.1, rng.integers(1, QUARTERS, persons), 0)
    ends = np.where(rng.random(persons) < 0.25, rng.integers(1, QUARTERS, persons), QUARTERS)
    last = np.maximum(first + 1, ends)
    wage = 7.4 + 0.35 * education - 0.1 * female + rng.normal(0, 0.35, persons)
    weekly = np.where(rng.random(persons) < 0.15 + 0.35 * female, 20.0, 39.0)
    weekly = weekly + rng.normal(0, 3, persons)
    state = _chosen(
        rng, _weights(persons, 0.6 + 0.12 * education, 0.15 - 0.05 * education, 0.15 + 0.1 * female)
    )
    states = ["employed", "unemployed", "inactive"]
    # Of rows to columns: who has work mostly keeps it, more so the educated.
    stay = 0.93 + 0.02 * education
    out = 1 - stay
    rows = list[Columns]()
    for quarter in range(QUARTERS):
        if quarter:
            by_state = np.stack(
                [
                    _weights(persons, stay, out * 0.6, out * 0.4),
                    _weights(persons, 0.25 + 0.05 * education, 0.65, 0.1),
                    _weights(persons, 0.05, 0.05, 0.9),
                ]
            )[state, np.arange(persons)]
            state = _chosen(rng, by_state)
            wage = wage + rng.normal(0.005, 0.03, persons)
        works = state == 0
        pay = np.exp(wage) * np.where(works, weekly / 39, np.where(state == 1, 0.45, 0.15))
        rows.append(
            {
                "person_id": key,
                "quarter": np.full(persons, quarter + 1),
                "sex": np.where(female, "f", "m"),
                "education": np.take(["low", "middle", "high"], education),
                "employment": np.take(states, state),
                "income": np.rint(pay * np.exp(rng.normal(0, 0.03, persons))).astype(int),
                "hours": np.where(
                    works, np.rint(np.maximum(weekly + rng.normal(0, 1, persons), 1)), 0
                ).astype(int),
            }
        )
    return {"panel": _rows(rng, rows, first=first, end=last)}


_MAKERS: Mapping[str, Callable[[np.random.Generator, int], Frames]] = {
    CLINIC: _clinic,
    BANK: _bank,
    PANEL: _panel,
}


def _keys(letter: str, rng: np.random.Generator, persons: int) -> Texts:
    return np.array([f"{letter}{100_000 + number}" for number in rng.permutation(persons)])


def _weights(persons: int, *parts: object) -> Floats:
    """Returns each person's chances (persons, parts), which sum to 1."""
    weights = np.stack([np.broadcast_to(np.asarray(p, float), persons) for p in parts], axis=1)
    shares: Floats = weights / weights.sum(axis=1, keepdims=True)
    return shares


def _chosen(rng: np.random.Generator, chances: Floats) -> Whole:
    """Draws a part for each person by its chances."""
    over = rng.random(len(chances))[:, None] > chances.cumsum(axis=1)
    places: Whole = np.minimum(over.sum(axis=1), chances.shape[1] - 1)
    return places


def _dates(start: str, days: Whole) -> Texts:
    return np.datetime_as_string(np.datetime64(start) + days.astype("timedelta64[D]"), unit="D")


def _decimals(numbers: Floats, places: int) -> Texts:
    return np.array([f"{number:.{places}f}" for number in numbers])


def _frame(columns: Columns) -> pd.DataFrame:
    return pd.DataFrame({name: values.astype(str) for name, values in columns.items()})


def _rows(
    rng: np.random.Generator, parts: Sequence[Columns], *, first: Whole, end: Whole
) -> pd.DataFrame:
    """Returns the rows of all persons, of each the parts from ``first`` to before ``end``, in no order."""
    frames = [
        _frame({name: values[(first <= part) & (part < end)] for name, values in columns.items()})
        for part, columns in enumerate(parts)
    ]
    every = pd.concat(frames, ignore_index=True)
    return every.iloc[rng.permutation(len(every))].reset_index(drop=True)
