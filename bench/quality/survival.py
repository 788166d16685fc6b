"""Survival of an ugly table's columns: plain checks of each column, real against synthetic, and their score.

Provides `Check`, `survival` and `CHECKS`. Public: everything. A check looks at one column as it is written and has a
tolerance that is stated in its name or below; the score is the share of the checks that pass. The real table passes
all, and so does a table with each of its columns shuffled: pairs are the business of other measures. Cells are read
without our own reading of tables (`bench.quality.forms`).

Tolerances. Shares of what many rows have: two points, of heaps and endings five. Shares of what few rows have
(sentinels, far dates, typing errors): within half. Medians: a tenth; 99th percentiles: a quarter; the distance of
Kolmogorov: 0.05. Spellings: every cell. Codes: 99 of 100 cells are codes of the list.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.quality.forms import number_of
from bench.quality.ugly import (
    AREAS,
    CLINIC,
    DIAGNOSES,
    FAR,
    LIMIT,
    SENTINEL,
    SHOP,
    TARGETS,
    UNKNOWN,
)


@dataclass(frozen=True, slots=True)
class Check:
    """One check's name; `passed` is True if the synthetic table passed it."""

    name: str
    passed: bool


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A column: its cells as `texts`, and the finite `numbers` among them."""

    texts: tuple[str, ...]
    numbers: NDArray[np.float64]

    def share(self, holds: Callable[[str], bool]) -> float:
        """Returns the share of the cells for which `holds` is True."""
        return float(np.mean([holds(text) for text in self.texts]))


Test: TypeAlias = Callable[[Cells, Cells], bool]
"""Function of the real and the synthetic column."""


def _close(points: float, holds: Callable[[str], bool]) -> Test:
    return lambda real, drawn: abs(real.share(holds) - drawn.share(holds)) <= points / 100


def _half(holds: Callable[[str], bool]) -> Test:
    def test(real: Cells, drawn: Cells) -> bool:
        expected = real.share(holds)
        return expected / 2 <= drawn.share(holds) <= expected * 3 / 2

    return test


def _spelt(pattern: str, share: float = 1.0) -> Test:
    written = re.compile(pattern)
    return lambda _, drawn: drawn.share(lambda text: bool(written.fullmatch(text))) >= share


def _quantile(level: float, tolerance: float) -> Test:
    def test(real: Cells, drawn: Cells) -> bool:
        if not drawn.numbers.size:
            return False
        expected, found = (float(np.quantile(of.numbers, level)) for of in (real, drawn))
        return bool(abs(found - expected) <= tolerance * abs(expected))

    return test


def _kolmogorov(real: Cells, drawn: Cells) -> bool:
    """Returns True if the distribution functions are nowhere more than 0.05 apart."""
    if not drawn.numbers.size:
        return False
    points = np.concatenate([real.numbers, drawn.numbers])
    shares = [
        np.searchsorted(np.sort(of.numbers), points, side="right") / len(of.numbers)
        for of in (real, drawn)
    ]
    return bool(np.abs(shares[0] - shares[1]).max() <= 0.05)


def _years(year: Callable[[str], str], ignored: str = "") -> Test:
    """Returns a test: each year's share of the rows is within three points."""

    def test(real: Cells, drawn: Cells) -> bool:
        shares = [
            pd.Series([year(text) for text in of.texts if text != ignored]).value_counts(
                normalize=True
            )
            for of in (real, drawn)
        ]
        return bool(shares[0].sub(shares[1], fill_value=0).abs().max() <= 0.03)

    return test


def _listed(codes: Sequence[str]) -> Test:
    known = frozenset(codes)
    return lambda _, drawn: drawn.share(lambda text: text in known) >= 0.99


def _frequent(real: Cells, drawn: Cells) -> bool:
    """Returns True if the ten commonest values have their shares within two points."""
    shares = [pd.Series(of.texts).value_counts(normalize=True) for of in (real, drawn)]
    most = shares[0].head(10)
    return bool((most - shares[1].reindex(most.index).fillna(0)).abs().max() <= 0.02)


def _tail(real: Cells, drawn: Cells) -> bool:
    """Returns True if the values of fewer than a hundredth of the rows together have their share within five points."""
    counts = pd.Series(real.texts).value_counts(normalize=True)
    rare = frozenset(counts[counts < 0.01].index)
    return abs(real.share(rare.__contains__) - drawn.share(rare.__contains__)) <= 0.05


def _is(*texts: str) -> Callable[[str], bool]:
    return texts.__contains__


def _number(holds: Callable[[float], bool], text: str) -> bool:
    try:
        return holds(float(text))
    except ValueError:
        return False


def _where(holds: Callable[[float], bool]) -> Callable[[str], bool]:
    return partial(_number, holds)


_DAY = r"(0[1-9]|[12]\d|3[01])"
_MONTH = r"(0[1-9]|1[0-2])"
_MEDIAN, _TOP = ("median", _quantile(0.5, 0.1)), ("99th percentile", _quantile(0.99, 0.25))
_APART = ("distance of Kolmogorov", _kolmogorov)
_CODES = [("frequent codes", _frequent), ("rare codes", _tail)]


def _every_date(real: Cells, drawn: Cells) -> bool:
    """Returns True if every date is one of the calendar, marks as often as in the real column aside."""
    return len(drawn.texts) - len(drawn.numbers) <= 2 * (len(real.texts) - len(real.numbers))


_CHECKS: Mapping[str, Mapping[str, Sequence[tuple[str, Test]]]] = {
    CLINIC: {
        "admitted": [
            ("DD.MM.YYYY", _spelt(rf"{_DAY}\.{_MONTH}\.\d{{4}}")),
            ("no impossible date", _every_date),
            ("years", _years(lambda text: text[-4:])),
            _APART,
        ],
        "period": [
            ("YYYYMM, no impossible month", _spelt(rf"20\d\d{_MONTH}")),
            ("years", _years(lambda text: text[:4])),
            _APART,
        ],
        "closed": [
            ("midnight alone", _spelt(rf"\d{{4}}-{_MONTH}-{_DAY} 00:00:00")),
            ("9999-12-31", _half(_is(FAR))),
            ("no impossible date", _every_date),
            ("years", _years(lambda text: text[:4], FAR)),
        ],
        "diagnosis": [("codes of the list", _listed(DIAGNOSES)), *_CODES],
        "crp": [
            ("<5", _close(2, _is(LIMIT))),
            ("one decimal", _spelt(r"<5|\d+\.\d")),
            ("none below 5", lambda _, drawn: drawn.share(_where(lambda x: x < 5)) <= 0.005),
            _MEDIAN,
            _TOP,
            _APART,
        ],
        "pressure": [
            ("-99", _half(_is(SENTINEL))),
            (
                "nothing between -99 and 60",
                lambda _, of: of.share(_where(lambda x: -99 < x < 60)) == 0,
            ),
            _MEDIAN,
            _TOP,
            _APART,
        ],
        "weight": [
            ("grams by mistake", _half(_where(lambda x: x > 1000))),
            (
                "nothing between",
                lambda _, of: of.share(_where(lambda x: 200 < x < 20_000)) <= 0.002,
            ),
            _MEDIAN,
            _TOP,
            _APART,
        ],
        "visits": [
            ("whole, from 1", _spelt(r"[1-9]\d*")),
            ("1", _close(2, _is("1"))),
            ("commonest", _frequent),
            _TOP,
        ],
        "arrived": [("HH:MM", _spelt(r"([01]\d|2[0-3]):[0-5]\d")), _MEDIAN, _APART],
        TARGETS[CLINIC]: [("yes", _close(2, _is("yes"))), ("words", _spelt("yes|no"))],
    },
    SHOP: {
        "cost": [
            ("0", _close(2, _is("0"))),
            ("all digits", _spelt(r"0|\d+\.\d+|[\d.]+e-\d+")),
            _TOP,
            _APART,
        ],
        "amount": [
            ("whole", _spelt(r"\d+")),
            ("heap at hundreds", _close(5, _where(lambda x: x % 100 == 0))),
            ("heap at five hundreds", _close(5, _where(lambda x: x % 500 == 0))),
            ("commonest", _frequent),
            _MEDIAN,
            _TOP,
        ],
        "income": [("two decimals", _spelt(r"\d+\.\d\d")), _MEDIAN, _TOP, _APART],
        "price": [
            (".99", _close(5, lambda text: text.endswith(".99"))),
            (".99 or .49", _spelt(r"\d+\.[49]9", 0.99)),
            _MEDIAN,
            _APART,
        ],
        "bill": [("$1,234.56", _spelt(r"\$\d{1,3}(,\d{3})*\.\d\d")), _MEDIAN, _TOP, _APART],
        "change": [
            ("+1.5%", _spelt(r"[+-]\d+\.\d%")),
            ("below 0", _close(3, lambda text: text.startswith("-"))),
            _APART,
        ],
        "area": [
            ("codes of the list", _listed(AREAS)),
            ("leading zero", _spelt(r"0\d{4}", 0.99)),
            *_CODES,
        ],
        "rating": [
            ("missing", _close(2, _is("", UNKNOWN))),
            ("n/a", _half(_is(UNKNOWN))),
            ("whole, up to 100", _spelt(r"|n/a|\d\d?|100")),
            _MEDIAN,
            _APART,
        ],
        TARGETS[SHOP]: [("yes", _close(2, _is("yes"))), ("words", _spelt("yes|no"))],
    },
}
CHECKS: Mapping[str, tuple[str, ...]] = {
    table: tuple(f"{column}: {name}" for column, tests in of.items() for name, _ in tests)
    for table, of in _CHECKS.items()
}
"""Names of each table's checks."""


def survival(table: str, real: pd.DataFrame, drawn: pd.DataFrame) -> tuple[Check, ...]:
    """Runs all checks of an ugly table, in the order of `CHECKS`; none of another."""
    found = []
    for column, tests in _CHECKS.get(table, {}).items():
        # A missing column has lost everything.
        there = column in real and column in drawn
        cells = [_cells(table, column, of[column]) for of in (real, drawn)] if there else []
        found += [Check(f"{column}: {name}", there and test(*cells)) for name, test in tests]
    return tuple(found)


def _cells(table: str, column: str, cells: "pd.Series[str]") -> Cells:
    texts = tuple(cells.tolist())
    try:
        known = {text: number_of(table, column, text) for text in set(texts)}
    except KeyError:
        return Cells(texts, np.zeros(0))
    numbers = np.array([known[text] for text in texts], np.float64)
    return Cells(texts, numbers[np.isfinite(numbers)])
