"""Axis below a column's bars: round values at the positions where they lie, and figures of the column in its units.

Bars stand side by side, one for each code, bar i from i - 1/2 to i + 1/2, however wide its bin is. A number lies within
the bar of its bin as far as it lies within the bin. Ticks are values that people count in: years, months, days, hours;
tens and thousands with separators. No value here is secret; claims follow from the released values, and what a trial
adds to them is marked where it is drawn.
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any

from mechanisms.column_bounds import value_cells
from mechanisms.column_values import number_of
from mechanisms.columns import Categorical, Column, Moment, Ordered, has_open_ends
from mechanisms.moments import moment_of
from parties.report.model import AxisTick, ErrorBar

MOST_TICKS = 6
_LETTERS = 40
"""Number of letters that fit below the bars."""
_BEYOND = 2.5
"""Number of letters that fit between the last bar and the edge."""
_MOST_VALUES = 400
_ENOUGH = 3
"""Number of ticks of equal steps from which on others are not looked for."""
_FEW = 10
MISSING_LABEL = "(missing)"
_FIRST = datetime(1, 1, 1)
_MONTH_STEPS = (12000, 6000, 2400, 1200, 600, 240, 120, 60, 24, 12, 6, 3, 1)
_DAY_STEPS = (14, 7, 2, 1)
_SECOND_STEPS = (43200, 21600, 10800, 3600, 1800, 900, 300, 60, 30, 15, 5, 1)
_QUANTILES = (("0.1", "10 %"), ("0.5", "median"), ("0.9", "90 %"))


@dataclass(frozen=True, slots=True)
class Axis:
    """Places of a column's numbers: the ends of its cells by code, in numbers or seconds since the year 1.

    ``closed`` is the range of numbers that has two ends.
    """

    column: Ordered
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    closed: tuple[float, float]

    @classmethod
    def of(cls, column: Ordered) -> Axis:
        """Returns the axis of a column of numbers or dates."""
        ranges = value_cells(column).ranges
        lows = tuple(_scaled(column, low) for low, _ in ranges)
        highs = tuple(_scaled(column, high) for _, high in ranges)
        first, last = (1, len(ranges) - 2) if has_open_ends(column) else (0, len(ranges) - 1)
        closed = (lows[first], highs[last]) if first <= last else (math.inf, -math.inf)
        return cls(column, lows, highs, closed)

    def at(self, number: float) -> float | None:
        """Returns the position of a number; None if no cell has it."""
        last = bisect_right(self.lows, number) - 1
        if last < 0:
            return None
        # An atom within a bin stands after the bin, whose upper part it does not have.
        for code in range(last, max(-1, last - 8), -1):
            low, high = self.lows[code], self.highs[code]
            if low == high == number:
                return float(code)
            if low < high:
                end = next((start for start in self.lows[code + 1 :] if start > high), high)
                if number <= end:
                    return code - 0.5 + (number - low) / (end - low)
        return None

    def of_value(self, value: object) -> float | None:
        """Returns the position of a value of report.json, a number or the text of a moment; None for no value."""
        if isinstance(value, str):
            value = number_of(self.column, value)
        return self.at(_scaled(self.column, value)) if isinstance(value, int | float) else None

    def ticks(self) -> tuple[AxisTick, ...]:
        """Returns the ticks: equal steps if enough of them fit, else whatever round values fit."""
        if not self.closed[0] < self.closed[1]:
            return tuple(self._single())
        best: list[float] = []
        for values in self._series():
            ticks = self._positioned(values)
            if len(ticks) > MOST_TICKS or not self._fits(ticks):
                break
            best = values
        found = self._positioned(best)
        if len(found) < _ENOUGH:
            found = max(found, self._crowded(best), key=len)
        return tuple(found or self._single())

    def _single(self) -> list[AxisTick]:
        """Returns the ticks of a column without room between its values: the values."""
        return self._positioned(self._that_fit([], self.lows))

    def _crowded(self, kept: Sequence[float]) -> list[AxisTick]:
        """Returns ticks of ever finer steps, each where it has room: for bins of very different widths."""
        values = list(itertools.chain.from_iterable(self._series()))
        if isinstance(self.column, Moment):
            inside = [value for value in kept if self._positioned([value])]
            return self._positioned(self._that_fit(inside, values))
        powers = [10.0**k for k in range(12, -4, -1) if self.closed[0] <= 10.0**k <= self.closed[1]]
        found = self._that_fit([], powers)
        for digits in ("125", "3"):
            found = self._that_fit(found, (v for v in values if _digits(v) in ("", *digits)))
        return self._positioned(found)

    def _that_fit(self, kept: Sequence[float], more: Iterable[float]) -> list[float]:
        """Returns the ``kept`` values, and those of ``more`` that have room between them, the first ones first."""
        found = list(kept)
        for value in more:
            tried = sorted({*found, value})
            ticks = self._positioned(tried)
            if len(ticks) == len(tried) <= MOST_TICKS and self._fits(ticks):
                found = tried
        return found

    def _positioned(self, values: Sequence[float]) -> list[AxisTick]:
        """Returns the ticks of ascending values, without those that no cell has or that the edge would cut."""
        texts = (
            _date_texts(values) if isinstance(self.column, Moment) else map(number_label, values)
        )
        found = ((self.at(value), text) for value, text in zip(values, texts, strict=True))
        letter = len(self.lows) / _LETTERS
        edge = len(self.lows) - 0.5 + _BEYOND * letter
        return [
            AxisTick(position, text)
            for position, text in found
            if position is not None and position + len(text) * letter / 2 <= edge
        ]

    def _fits(self, ticks: Sequence[AxisTick]) -> bool:
        """Returns whether the texts of ticks leave room for one another."""
        letter = len(self.lows) / _LETTERS
        halves = [(len(tick.text) + 1) * letter / 2 for tick in ticks]
        return all(
            other.position - one.position >= half + following
            for (one, half), (other, following) in itertools.pairwise(
                zip(ticks, halves, strict=True)
            )
        )

    def _series(self) -> Iterator[list[float]]:
        """Yields the values of ever smaller steps."""
        return self._dates() if isinstance(self.column, Moment) else self._numbers()

    def _numbers(self) -> Iterator[list[float]]:
        """Yields the multiples of ever smaller round steps within the closed range."""
        low, high = self.closed
        power = math.floor(math.log10(max(abs(low), abs(high))))
        for k in range(power + 1, power - 7, -1):
            for step in (10.0**k, 5 * 10.0 ** (k - 1), 2 * 10.0 ** (k - 1)):
                first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
                if last - first < _MOST_VALUES:
                    yield [float(f"{i * step:.12g}") for i in range(first, last + 1)]

    def _dates(self) -> Iterator[list[float]]:
        """Yields the beginnings of ever shorter spans of the calendar within the closed range."""
        low, high = (_FIRST + timedelta(seconds=end) for end in self.closed)
        for months in _MONTH_STEPS:
            yield [_seconds(moment) for moment in _months(low, high, months)]
        span = (high - low).total_seconds()
        for days in _DAY_STEPS:
            if span / 86400 / days < _MOST_VALUES:
                yield list(_multiples(self.closed, 86400.0 * days))
        for seconds in _SECOND_STEPS:
            if span / seconds < _MOST_VALUES:
                yield list(_multiples(self.closed, float(seconds)))


def column_axis(column: Column) -> Axis | None:
    """Returns the axis of a column; None for categories, and for a few numbers, each with a cell of its own."""
    if isinstance(column, Categorical):
        return None
    axis = Axis.of(column)
    few = len(axis.lows) <= _FEW and axis.lows == axis.highs
    return None if few else axis


def error_bars(
    column: Column, claim: Mapping[str, Any], summary: Mapping[str, Any]
) -> tuple[ErrorBar, ...]:
    """Returns a claim's intervals as bars: shares of categories, quantiles and mean of numbers by their position.

    ``summary`` has the synthetic table's own figures. True figures are there if the claim has them.
    """
    axis = column_axis(column)
    if axis is None:
        missing = {
            "value": MISSING_LABEL,
            **claim.get("missing", {}),
            "true": claim.get("true", {}).get("missing"),
        }
        return tuple(
            ErrorBar(
                str(item["value"]), item["low"], item["high"], item["synthetic"], item.get("true")
            )
            for item in (*claim.get("values", ()), *((missing,) if "missing" in claim else ()))
        )
    quantiles, true = claim.get("quantiles", {}), claim.get("true", {})
    made, real = summary.get("quantiles", {}), true.get("quantiles", {})
    figures = [
        (name, quantiles.get(key), made.get(key, {}).get("synthetic"), real.get(key))
        for key, name in _QUANTILES
    ]
    of_mean = summary.get("mean", {}).get("synthetic"), true.get("mean")
    figures.append(("mean", claim.get("mean"), *of_mean))
    found = []
    for name, interval, shown, there in figures:
        if interval is not None and not set(claim.get("open", {}).values()) & set(
            interval.values()
        ):
            low, high = axis.of_value(interval["low"]), axis.of_value(interval["high"])
            if low is not None and high is not None:
                ends = min(low, high), max(low, high)
                found.append(ErrorBar(name, *ends, axis.of_value(shown), axis.of_value(there)))
    return tuple(found)


def number_label(value: float) -> str:
    """Returns a number with separators between thousands, without needless digits."""
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e12:
        return f"{value:.3g}"
    return f"{round(value):,}" if float(value).is_integer() else f"{value:,.10g}"


def _scaled(column: Ordered, number: float) -> float:
    """Returns a number of a column, for a moment the seconds since the year 1."""
    if isinstance(column, Moment):
        return _seconds(moment_of(int(number), column.unit))
    return number


def _seconds(moment: datetime) -> float:
    return (moment - _FIRST).total_seconds()


def _multiples(closed: tuple[float, float], step: float) -> Iterator[float]:
    for i in range(math.ceil(closed[0] / step), math.floor(closed[1] / step) + 1):
        yield i * step


def _months(low: datetime, high: datetime, months: int) -> Iterator[datetime]:
    """Yields the first days of every so many months, counted from the year 0."""
    at = -(-(low.year * 12 + low.month - 1) // months) * months
    while at < high.year * 12 + high.month:
        year, month = divmod(at, 12)
        if 1 <= year <= 9999 and low <= (moment := datetime(year, month + 1, 1)) <= high:
            yield moment
        at += months


def _date_texts(values: Sequence[float]) -> list[str]:
    """Returns moments in words of the unit that tells them apart; the first says what the others leave out."""
    moments = [_FIRST + timedelta(seconds=value) for value in values]
    if any(m.hour or m.minute or m.second for m in moments):
        clock = "%H:%M:%S" if any(m.second for m in moments) else "%H:%M"
        day = next((f"{m.day} {m:%b} " for m in moments[:1]), "")
        return [
            (day if i == 0 else "") + f"{m:{clock}}" if m.time() != time.min else f"{m.day} {m:%b}"
            for i, m in enumerate(moments)
        ]
    if any(m.day != 1 for m in moments):
        return [f"{m.day} {m:%b}" + (f" {m.year}" if i == 0 else "") for i, m in enumerate(moments)]
    months = any(m.month != 1 for m in moments)
    return [f"{m:%b} {m.year}" if months else f"{m.year}" for m in moments]


def _digits(value: float) -> str:
    """Returns the digits of a number other than 0."""
    return re.sub(r"[^1-9]", "", number_label(value))
