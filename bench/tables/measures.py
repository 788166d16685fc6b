"""Measures of tables with keys beside the real ones, in values: what only tables of persons and their rows have.

All values here are public. A number falls between the deciles of the real column, other values into the twenty
commonest. Associations are Cramer's V without its bias, so that tables of different sizes are comparable.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.tables.data import Frames, Shape
from mechanisms.value_pairs import COMMON, commonest, decile_cells, decile_ends

Cells: TypeAlias = NDArray[np.int64]
Pairs: TypeAlias = Sequence[tuple[str, str]]
NUMBER, NEXT = "", "next "
"""Name of the number of a person's rows among columns, and the prefix of the next row's."""


@dataclass(frozen=True, slots=True, eq=False)
class Histories:
    """Persons and their rows, person by person.

    ``own`` are the persons' columns, ``rows`` those of the rows with their persons' columns, ``of`` each row's person,
    and ``time`` its order as a number. ``broken`` is the share of the persons with several rows who have two values in
    a column of their own, ``disorder`` that of the steps that led back, before rows were sorted, if they were.
    """

    own: pd.DataFrame
    rows: pd.DataFrame
    of: Cells
    time: NDArray[np.float64]
    broken: float
    disorder: float

    @classmethod
    def of_frames(cls, shape: Shape, frames: Frames) -> "Histories":
        """Makes histories of tables with keys."""
        rows = frames[shape.child]
        keys = rows[shape.key] if shape.parent is None else frames[shape.parent][shape.key]
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        of = rows[shape.key].map(places).to_numpy(np.int64)
        own = (
            rows.drop_duplicates(shape.key) if shape.parent is None else frames[shape.parent]
        ).reset_index(drop=True)[list(shape.own)]
        joined = own.iloc[of].reset_index(drop=True)
        for name in shape.in_child:
            joined[name] = rows[name].to_numpy()
        for name in (*shape.rows, shape.order):
            joined[name] = rows[name].to_numpy()
        return cls.of_rows(shape, own, joined, of=of)

    @classmethod
    def of_rows(
        cls, shape: Shape, own: pd.DataFrame, rows: pd.DataFrame, *, of: Cells
    ) -> "Histories":
        """Makes histories of ``rows`` with all columns, of the persons ``of``, and puts each person's in order."""
        time = times(rows[shape.order])
        by_person = np.argsort(of, kind="stable")
        before, after = _steps(of[by_person])
        back = time[by_person][after] < time[by_person][before]
        order = np.lexsort((time, of))
        rows, of, time = rows.iloc[order].reset_index(drop=True), of[order], time[order]
        differs = np.zeros(len(rows), np.bool_)
        for name in shape.own:
            differs |= rows[name].to_numpy() != own[name].to_numpy()[of]
        several = np.bincount(of, minlength=len(own)) > 1
        broken = np.bincount(of[differs], minlength=len(own)) > 0
        shares = (broken[several], back)
        return cls(own, rows, of, time, *(float(s.mean()) if s.size else 0.0 for s in shares))

    @property
    def numbers(self) -> Cells:
        """Number of each person's rows."""
        return np.bincount(self.of, minlength=len(self.own))

    @property
    def steps(self) -> tuple[Cells, Cells]:
        """Rows, and the next one of the same person."""
        return _steps(self.of)

    def halves(self, seed: int) -> tuple["Histories", "Histories"]:
        """Returns the histories of one half of the persons, drawn at random, and of the other."""
        half = np.random.default_rng(seed).permutation(len(self.own)) < len(self.own) // 2
        return self._only(half), self._only(~half)

    def _only(self, kept: NDArray[np.bool_]) -> "Histories":
        mine, places = kept[self.of], np.cumsum(kept) - 1
        own, rows = self.own[kept].reset_index(drop=True), self.rows[mine].reset_index(drop=True)
        of, time = places[self.of[mine]], self.time[mine]
        return Histories(own, rows, of, time, self.broken, 0.0)


@dataclass(frozen=True, slots=True)
class Figures:
    """Measures of synthetic tables beside real ones.

    ``broken`` and ``disorder`` are those of ``Histories``. ``points`` is the largest difference of the shares of
    persons with so many rows, in points, and ``number`` the total variation; ``number_by_own`` of pairs of a person's
    column and that number. ``gaps`` is the total variation of the times between rows, and ``ties`` the share of steps
    without any. ``own_pairs`` and ``step_pairs`` are mean total variations of pairs of a person's column and a row's,
    and of a row's column and one of the next row; ``own_v`` and ``step_v`` mean absolute differences of their
    associations. By column, for synthetic tables: ``spread``, the median of the standard deviations within persons,
    ``lag``, the correlation with the next row, and ``stay``, the share of next rows with the same value.
    """

    broken: float
    disorder: float
    points: float
    number: float
    number_by_own: float
    gaps: float
    ties: float
    own_pairs: float
    step_pairs: float
    own_v: float
    step_v: float
    spread: Mapping[str, float]
    lag: Mapping[str, float]
    stay: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Returns all figures, rounded."""
        values: dict[str, Any] = asdict(self)
        return {
            name: {k: round(v, 4) for k, v in value.items()}
            if isinstance(value, dict)
            else round(value, 5)
            for name, value in values.items()
        }


def figures(shape: Shape, real: Histories, drawn: Histories) -> Figures:
    """Measures ``drawn`` tables beside ``real`` ones."""
    cells, both = _Cells.of(shape, real), (real, drawn)
    most = int(real.numbers.max())
    numbers = [np.minimum(each.numbers, most) for each in both]
    counts = [_shares(each, most + 1) for each in numbers]
    gaps = [each.time[after] - each.time[before] for each in both for before, after in [each.steps]]
    ends = decile_ends(gaps[0])
    of_gaps = [_shares(decile_cells(ends, each), len(ends) + 2) for each in gaps]
    own = [
        cells.codes(each.own, shape.own) | {NUMBER: number}
        for each, number in zip(both, numbers, strict=True)
    ]
    rows = [cells.codes(each.rows, (*shape.own, *shape.rows)) for each in both]
    steps = [
        {name: of[before] for name, of in each.items()}
        | {f"{NEXT}{name}": of[after] for name, of in each.items()}
        for each, (before, after) in zip(rows, (each.steps for each in both), strict=True)
    ]
    sizes = cells.sizes | {NUMBER: most + 1}
    sizes |= {f"{NEXT}{name}": sizes[name] for name in shape.rows}
    own_pairs = list(itertools.product(shape.own, shape.rows))
    step_pairs = [(a, f"{NEXT}{b}") for a, b in itertools.product(shape.rows, repeat=2)]
    return Figures(
        broken=drawn.broken,
        disorder=drawn.disorder,
        points=100 * float(np.abs(counts[0] - counts[1]).max()),
        number=_distance(*counts),
        number_by_own=_pair_distance(own, [(name, NUMBER) for name in shape.own], sizes),
        gaps=_distance(*of_gaps),
        ties=_share(gaps[1] == 0),
        own_pairs=_pair_distance(rows, own_pairs, sizes),
        step_pairs=_pair_distance(steps, step_pairs, sizes),
        own_v=_association_distance(rows, own_pairs, sizes),
        step_v=_association_distance(steps, step_pairs, sizes),
        **within(shape, drawn),
    )


def within(shape: Shape, histories: Histories) -> dict[str, dict[str, float]]:
    """Returns ``spread``, ``lag`` and ``stay`` by column."""
    before, after = histories.steps
    spread, lag, stay = dict[str, float](), dict[str, float](), dict[str, float]()
    for name in shape.rows:
        column = histories.rows[name]
        if name in shape.numbers:
            numbers = _numbers(column)
            spread[name] = float(pd.Series(numbers).groupby(histories.of).std().median())
            lag[name] = _correlation(numbers[before], numbers[after])
        else:
            values = column.to_numpy()
            stay[name] = _share(values[before] == values[after])
    return {"spread": spread, "lag": lag, "stay": stay}


def association(one: Cells, other: Cells, sizes: tuple[int, int]) -> float:
    """Returns Cramer's V of two columns of cells, 0 to 1, corrected for its bias (Bergsma 2013)."""
    table = np.bincount(one * sizes[1] + other, minlength=sizes[0] * sizes[1]).reshape(sizes)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0].astype(np.float64)
    count, (rows, columns) = table.sum(), table.shape
    if min(rows, columns) < 2:
        return 0.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / count
    square = float(((table - expected) ** 2 / expected).sum()) / count
    square = max(0.0, square - (rows - 1) * (columns - 1) / (count - 1))
    least = min(size - (size - 1) ** 2 / (count - 1) for size in (rows, columns)) - 1
    return float(np.sqrt(square / least))


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Cells of all columns, by the real ones: the ends of numbers' deciles, and places of other values."""

    by_column: Mapping[str, NDArray[np.float64] | Mapping[str, int]]

    @classmethod
    def of(cls, shape: Shape, real: Histories) -> "_Cells":
        found = dict[str, NDArray[np.float64] | Mapping[str, int]]()
        for frame, names in ((real.own, shape.own), (real.rows, shape.rows)):
            for name in names:
                numbers = _numbers(frame[name]) if name in shape.numbers else None
                found[name] = commonest(frame[name]) if numbers is None else decile_ends(numbers)
        return cls(found)

    @property
    def sizes(self) -> dict[str, int]:
        return {
            name: COMMON + 1 if isinstance(of, Mapping) else len(of) + 2
            for name, of in self.by_column.items()
        }

    def codes(self, frame: pd.DataFrame, names: Iterable[str]) -> dict[str, Cells]:
        found = dict[str, Cells]()
        for name in names:
            of = self.by_column[name]
            found[name] = (
                frame[name].map(of).fillna(COMMON).to_numpy().astype(np.int64)
                if isinstance(of, Mapping)
                else decile_cells(of, _numbers(frame[name]))
            )
        return found


def _pair_distance(
    both: Sequence[Mapping[str, Cells]], pairs: Pairs, sizes: Mapping[str, int]
) -> float:
    """Returns the mean total variation of pairs of columns of two tables."""
    return float(
        np.mean(
            [
                _distance(*(_shares(of[a] * sizes[b] + of[b], sizes[a] * sizes[b]) for of in both))
                for a, b in pairs
            ]
        )
    )


def _association_distance(
    both: Sequence[Mapping[str, Cells]], pairs: Pairs, sizes: Mapping[str, int]
) -> float:
    """Returns the mean absolute difference of the associations of pairs of columns of two tables."""
    found = [[association(of[a], of[b], (sizes[a], sizes[b])) for of in both] for a, b in pairs]
    return float(np.mean([abs(real - drawn) for real, drawn in found]))


def _shares(cells: Cells, size: int) -> NDArray[np.float64]:
    return np.bincount(cells, minlength=size) / max(1, len(cells))


def _distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(np.abs(one - other).sum()) / 2


def _share(those: NDArray[np.bool_]) -> float:
    return float(those.mean()) if those.size else 0.0


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    if len(one) < 2 or not (one.std() and other.std()):
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def _numbers(values: "pd.Series[str]") -> NDArray[np.float64]:
    return pd.to_numeric(values, errors="coerce").to_numpy(np.float64)


def _steps(of: Cells) -> tuple[Cells, Cells]:
    before = np.flatnonzero(of[1:] == of[:-1])
    return before, before + 1


def times(values: "pd.Series[str]") -> NDArray[np.float64]:
    """Returns the numbers of an order, or its dates as days."""
    numbers = pd.to_numeric(values, errors="coerce")
    if numbers.notna().all():
        return numbers.to_numpy(np.float64)
    days = pd.to_datetime(values).to_numpy().astype("datetime64[D]")
    return days.astype(np.float64)
