"""Two made-up tables that are ugly on purpose, as people's tables are, for the checks of survival.

Provides `NAMES`, `TARGETS`, `MARKS`, `ugly_table` and the lists of codes; `bench.quality.forms` reads them. Public:
everything; nobody's rows are in them.

`ugly-clinic` has admissions (DD.MM.YYYY) and their months (YYYYMM), ends of treatments at midnight, some of them
9999-12-31, codes of diagnoses by the hundred, results below a limit (`<5`), a sentinel -99, weights in grams by
mistake, a skewed count of visits, times of day and a target. `ugly-shop` has costs of 0 in 60 % of the rows and else
with all their digits, amounts that heap at round numbers, incomes with a heavy tail, prices that end in .99 and .49,
bills as $1,234.56, changes as +1.5%, areas with leading zeros, marks of missing values, and a target. The columns of a
row follow one hidden number, so that pairs of columns mean something.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

CLINIC, SHOP = "ugly-clinic", "ugly-shop"
NAMES = (CLINIC, SHOP)
TARGETS: Mapping[str, str] = {CLINIC: "readmitted", SHOP: "returned"}
FAR: Final = "9999-12-31 00:00:00"
LIMIT, SENTINEL, UNKNOWN = "<5", "-99", "n/a"
MARKS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    CLINIC: {"closed": (FAR,), "crp": (LIMIT,), "pressure": (SENTINEL,)},
    SHOP: {"rating": (UNKNOWN,)},
}
"""Texts by table and column that stand for something else than a number or a moment."""
SEED: Final = 20_571
_FIRST, _DAYS = np.datetime64("2019-01-01"), 5 * 365
DIAGNOSES: tuple[str, ...] = tuple(
    f"{letter}{group:02d}.{part}"
    for letter in "IJKMEC"
    for group in range(10, 70, 6)
    for part in range(5)
)
"""Codes of diagnoses, 300, a few of them common."""
AREAS: tuple[str, ...] = tuple(f"0{1000 + 7 * i}" for i in range(60))

Floats = NDArray[np.float64]


def ugly_table(name: str, rows: int, seed: int = SEED) -> pd.DataFrame:
    """Makes a table of `NAMES` with all cells text, the same for the same seed."""
    rng = np.random.default_rng([seed, NAMES.index(name)])
    hidden = rng.normal(size=rows)
    columns = _clinic(rng, hidden) if name == CLINIC else _shop(rng, hidden)
    return pd.DataFrame(columns, dtype=str)


def _clinic(rng: np.random.Generator, hidden: Floats) -> dict[str, list[str]]:
    rows = len(hidden)
    # More admissions in later years, and of the ill in winter.
    days = (_DAYS * rng.beta(1.6, 1.0, rows)).astype(int)
    admitted = _FIRST + days.astype("timedelta64[D]")
    stay = 1 + np.floor(np.exp(1.2 + 0.7 * hidden + 0.4 * rng.normal(size=rows))).astype(int)
    closed = np.datetime_as_string(admitted + stay.astype("timedelta64[D]"), unit="D")
    codes = _ranked(rng, hidden, len(DIAGNOSES))
    crp = np.exp(2.6 + 0.9 * hidden + 0.7 * rng.normal(size=rows))
    pressure = np.rint(128 + 9 * hidden + 12 * rng.normal(size=rows)).astype(int)
    weight = 76 + 6 * hidden + 12 * rng.normal(size=rows)
    # A few weights are in grams.
    weight *= np.where(rng.random(rows) < 0.003, 1000.0, 1.0)
    visits = rng.geometric(1 / (1.3 + 1.2 * np.exp(0.6 * hidden)))
    minutes = np.clip(rng.normal(11 + 1.5 * hidden, 3.0, rows) * 60, 0, 1439).astype(int)
    day = np.datetime_as_string(admitted, unit="D")
    return {
        "admitted": [f"{each[8:]}.{each[5:7]}.{each[:4]}" for each in day],
        "period": [each[:4] + each[5:7] for each in day],
        "closed": _some(rng, 0.02, FAR, [f"{each} 00:00:00" for each in closed]),
        "diagnosis": [DIAGNOSES[code] for code in codes],
        "crp": [LIMIT if value < 5 else f"{value:.1f}" for value in crp],
        "pressure": _some(rng, 0.02, SENTINEL, [str(value) for value in pressure]),
        "weight": [f"{value:.1f}" for value in np.maximum(weight, 30.5)],
        "visits": [str(value) for value in visits],
        "arrived": [f"{value // 60:02d}:{value % 60:02d}" for value in minutes],
        TARGETS[CLINIC]: _yes(rng, 1.3 * hidden - 1.0),
    }


def _shop(rng: np.random.Generator, hidden: Floats) -> dict[str, list[str]]:
    rows = len(hidden)
    paid = hidden + rng.normal(size=rows) > 0.36
    cost = np.exp(4.0 + 0.8 * hidden + rng.normal(size=rows))
    amount = np.exp(6.5 + 0.6 * hidden + 0.5 * rng.normal(size=rows))
    # Two thirds of the amounts are round, as people say them: hundreds, and five hundreds above a thousand.
    step = np.where(rng.random(rows) < 0.65, np.where(amount < 1000, 100.0, 500.0), 1.0)
    income = np.exp(10.2 + 0.7 * hidden + 1.1 * rng.normal(size=rows))
    price = np.floor(np.exp(2.8 + 0.5 * hidden + 0.5 * rng.normal(size=rows))).astype(int)
    ends = np.where(rng.random(rows) < 0.7, "99", "49")
    bill = np.exp(6.8 + 0.6 * hidden + 0.8 * rng.normal(size=rows))
    change = 1.5 * hidden + 2.5 * rng.normal(size=rows)
    rating = np.clip(np.rint(70 + 9 * hidden + 8 * rng.normal(size=rows)), 0, 100).astype(int)
    areas = _ranked(rng, hidden, len(AREAS))
    said = _some(rng, 0.04, UNKNOWN, [str(value) for value in rating])
    return {
        "cost": [repr(float(x)) if some else "0" for x, some in zip(cost, paid, strict=True)],
        "amount": [str(int(value)) for value in np.maximum(np.rint(amount / step) * step, step)],
        "income": [f"{value:.2f}" for value in income],
        "price": [f"{value}.{end}" for value, end in zip(price, ends, strict=True)],
        "bill": [f"${value:,.2f}" for value in bill],
        "change": [f"{value:+.1f}%" for value in np.round(change, 1) + 0.0],
        "area": [AREAS[place] for place in areas],
        "rating": _some(rng, 0.08, "", said),
        TARGETS[SHOP]: _yes(rng, 1.2 * hidden - 0.8),
    }


def _ranked(rng: np.random.Generator, hidden: Floats, size: int) -> NDArray[np.int64]:
    """Returns ranks 0 .. size - 1 with a long tail, correlated with the hidden number."""
    ranks = np.exp(np.abs(1.4 * rng.normal(size=len(hidden)) + 0.9 * hidden + 1.4)) - 1
    # Neighbours by rank are no neighbours by code.
    places = np.minimum((2 * ranks).astype(np.int64), size - 1)
    return np.asarray(rng.permutation(size)[places], np.int64)


def _some(rng: np.random.Generator, share: float, mark: str, values: list[str]) -> list[str]:
    """Replaces a share of the values, chosen at random, by a mark."""
    chosen = rng.random(len(values)) < share
    return [mark if here else value for here, value in zip(chosen, values, strict=True)]


def _yes(rng: np.random.Generator, odds: Floats) -> list[str]:
    return ["yes" if here else "no" for here in rng.random(len(odds)) < 1 / (1 + np.exp(-odds))]
