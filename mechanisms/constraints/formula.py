"""Formulas of derived columns: sums and differences of columns, and full years between two days.

``read_sum`` reads ``net + vat``, ``end - start``, ``100 - a - b``; names that are no single word stand in quotes.

Formulas are public. Values of an owner's table that are computed with are secret.
Semantics: exact decimal arithmetic in whole numbers. A sum with more decimals than its column is rounded to it, ties to
even. Dates are counted in units of their column: a difference of two of days is a number of days. Full years are those
of a birthday: somebody born on 29 February is a year older on 1 March. Without one of its parts there is no value.
Limits: all moments of a formula have one unit.
"""

from __future__ import annotations

import itertools
import re
from calendar import isleap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

import numpy as np

from mechanisms.columns import Column, Moment, Ordered
from mechanisms.constraints.values import (
    Numbers,
    check_exact,
    check_multiples,
    decimals_of_column,
    numbers_in,
    reach,
    writer_of,
)
from mechanisms.errors import DomainError
from mechanisms.moments import UNITS, moment_of, tick_of
from mechanisms.numbers import Integer

_TOKEN = re.compile(r"""\s*(?:([+-])|"([^"]+)"|'([^']+)'|(\d+(?:\.\d+)?)|([^\W\d]\w*))""")
_NAME = re.compile(r"[^\W\d]\w*")
_GOLDEN = 0.6180339887498949
Texts: TypeAlias = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Sum:
    """A constant, a decimal number, and columns that are added or taken off: pairs of 1 or -1 and a name."""

    terms: tuple[tuple[int, str], ...]
    constant: Decimal = Decimal(0)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the columns that a value follows from."""
        return tuple(name for _, name in self.terms)

    def __str__(self) -> str:
        said = [f"{'+' if sign > 0 else '-'} {quoted_name(name)}" for sign, name in self.terms]
        if self.constant:
            said.insert(0, f"{'+' if self.constant > 0 else '-'} {abs(self.constant):f}")
        return " ".join(said).removeprefix("+ ")

    def check(self, where: str, target: Column, columns: Mapping[str, Column]) -> None:
        """Raises ``DomainError`` for a sum that is no value of ``target``'s kind."""
        to = check_multiples(where, target)
        parts = [(sign, check_multiples(where, columns[name])) for sign, name in self.terms]
        moments = [(sign, part) for sign, part in parts if isinstance(part, Moment)]
        units = {part.unit for _, part in moments}
        left = sum(sign for sign, _ in moments)
        if isinstance(to, Moment):
            units |= {to.unit}
            if left != 1:
                raise DomainError(
                    f"{where} is a date, which the sum is not; expected a date and numbers, as in start + days"
                )
        elif left:
            raise DomainError(
                f"{where} is a number, which the sum is not; expected as many dates added as taken off, as in "
                "end - start"
            )
        if len(units) > 1:
            raise DomainError(
                f"{where}: its dates have the units {', '.join(sorted(units))}; expected one unit"
            )
        places = max([_decimals(self.constant), *(decimals_of_column(part) for _, part in parts)])
        if units and places:
            raise DomainError(
                f"{where}: a number with decimals is added to dates; expected whole units"
            )
        if isinstance(to, Moment):
            self._check_reach(where, to, parts)

    def _check_reach(self, where: str, to: Moment, parts: Sequence[tuple[int, Ordered]]) -> None:
        """Raises ``DomainError`` if a sum may be before the year 1 or after the year 9999."""
        ends = [sorted(sign * end for end in reach(part)) for sign, part in parts]
        write = writer_of(to)
        for side in (0, 1):
            total = int(self.constant) + sum(end[side] for end in ends)
            try:
                write(total)
            except (ValueError, OverflowError):
                raise DomainError(
                    f"{where}: {self} may lie outside of the years 1 to 9999; expected narrower bounds of its parts"
                ) from None

    def numbers(
        self,
        target: Ordered,
        columns: Mapping[str, Column],
        texts: Texts,
        *,
        missing: Sequence[str],
    ) -> Numbers:
        """Returns the sums of rows as numbers of ``target``."""
        parts = [(sign, check_exact("", columns[name]), name) for sign, name in self.terms]
        to = decimals_of_column(target)
        fine = max(
            [to, _decimals(self.constant), *(decimals_of_column(part) for _, part, _ in parts)]
        )
        rows = len(texts[self.terms[0][1]])
        total = np.full(rows, int(self.constant.scaleb(fine)), object)
        there = np.ones(rows, np.bool_)
        for sign, part, name in parts:
            read = numbers_in(part, texts[name], missing)
            total = total + read.values * (sign * 10 ** (fine - decimals_of_column(part)))
            there &= read.there
        if fine > to:
            total[:] = [_divided(number, 10 ** (fine - to)) for number in total.tolist()]
        return Numbers(total, there)


@dataclass(frozen=True, slots=True)
class Years:
    """Full years since the date in the column ``since``, on the day ``on``: a column's name, or a date."""

    since: str
    on: str
    of_column: bool

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the columns that a value follows from."""
        return (self.since, self.on) if self.of_column else (self.since,)

    def __str__(self) -> str:
        return f"full years since {self.since} on {self.on}"

    def check(self, where: str, target: Column, columns: Mapping[str, Column]) -> None:
        """Raises ``DomainError`` unless years of days are written into whole numbers."""
        if not isinstance(target, Integer):
            raise DomainError(f"{where} has no whole numbers; expected a column of full years")
        for name in self.parts:
            column = columns[name]
            if not isinstance(column, Moment) or UNITS.index(column.unit) > UNITS.index("day"):
                raise DomainError(
                    f"{where}: column {name!r} has no days; expected dates to the day"
                )
        if not self.of_column and self._day(columns) is None:
            raise DomainError(
                f"{where}: on = {self.on!r} is no day and no column; expected a day as in 2024-12-31"
            )

    def _day(self, columns: Mapping[str, Column]) -> int | None:
        since = columns[self.since]
        if not isinstance(since, Moment):
            return None
        read = since.shape.read(self.on, "day")
        return None if read is None else tick_of(read, since.unit)

    def numbers(
        self,
        target: Ordered,
        columns: Mapping[str, Column],
        texts: Texts,
        *,
        missing: Sequence[str],
    ) -> Numbers:
        """Returns the full years of rows."""
        first = columns[self.since]
        born = numbers_in(check_exact(target.name, first), texts[self.since], missing)
        if self.of_column:
            last = columns[self.on]
            then = numbers_in(check_exact(target.name, last), texts[self.on], missing)
        else:
            last = first
            then = Numbers(
                np.full(len(born.values), self._day(columns) or 0, object),
                np.ones(len(born.values), np.bool_),
            )
        there = born.there & then.there
        units = [c.unit for c in (first, last) if isinstance(c, Moment)]
        pairs = list(zip(born.values.tolist(), then.values.tolist(), strict=True))
        known = {
            pair: _full_years(pair, units)
            for pair in dict.fromkeys(itertools.compress(pairs, there.tolist()))
        }
        years = np.empty(len(pairs), object)
        years[:] = [known.get(pair, 0) for pair in pairs]
        return Numbers(years, there)


@dataclass(frozen=True, slots=True)
class Born:
    """A day on which somebody is born who has ``age`` full years, a column, on the day in the column ``on``.

    All such days are spread evenly over the rows.
    """

    age: str
    on: str

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the columns that a value follows from."""
        return self.age, self.on

    def __str__(self) -> str:
        return f"a day {self.age} full years before {self.on}"

    def check(self, where: str, target: Column, columns: Mapping[str, Column]) -> None:
        """Raises ``DomainError`` unless whole years before a day are written into days."""
        age, on = columns[self.age], columns[self.on]
        if not isinstance(age, Integer):
            raise DomainError(
                f"{where}: column {self.age!r} has no whole numbers; expected full years"
            )
        for column in (target, on):
            if not isinstance(column, Moment) or column.unit != "day":
                raise DomainError(
                    f"{where}: column {column.name!r} has no days; expected dates to the day"
                )
            first = moment_of(reach(column)[0], "day").year
            if column is on and not 0 <= first - reach(age)[1] - 2 <= first - reach(age)[0] < 9998:
                raise DomainError(
                    f"{where}: {self} may lie outside of the years 1 to 9999; expected narrower bounds of its parts"
                )

    def numbers(
        self,
        target: Ordered,
        columns: Mapping[str, Column],
        texts: Texts,
        *,
        missing: Sequence[str],
    ) -> Numbers:
        """Returns a day for each row, by a sequence whose parts are as even as those of the golden ratio."""
        ages = numbers_in(check_exact(target.name, columns[self.age]), texts[self.age], missing)
        days = numbers_in(check_exact(target.name, columns[self.on]), texts[self.on], missing)
        pairs = list(zip(ages.values.tolist(), days.values.tolist(), strict=True))
        there = ages.there & days.there
        ends = {
            pair: (_years_before(pair[1], pair[0] + 1) + 1, _years_before(pair[1], pair[0]))
            for pair in dict.fromkeys(itertools.compress(pairs, there.tolist()))
        }
        found = np.zeros(len(pairs), object)
        for row in np.flatnonzero(there):
            first, last = ends[pairs[row]]
            found[row] = first + int((int(row) * _GOLDEN) % 1 * (last - first + 1))
        return Numbers(found, there)


Formula: TypeAlias = Sum | Years | Born


def read_sum(where: str, text: str) -> Sum:
    """Returns a sum in words. Raises ``DomainError`` that shows where it cannot be read."""
    terms, constant = list[tuple[int, str]](), Decimal(0)
    at, sign = 0, 1
    expects = "a column"
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        word = found and next((g for g in found.groups() if g is not None), None)
        if not found or not word:
            raise _unread(where, text, at)
        signs, number = found.group(1), found.group(4)
        if signs:
            # A sign may open the sum; between two parts there is one.
            if expects == "a sign" or not (terms or constant or at):
                sign = 1 if signs == "+" else -1
                expects = "a column"
            else:
                raise _unread(where, text, at)
        elif expects != "a column":
            raise _unread(where, text, at)
        else:
            if number:
                constant += sign * Decimal(number)
            else:
                terms.append((sign, word))
            expects, sign = "a sign", 1
        at = found.end()
    if expects == "a column" or not terms:
        raise _unread(where, text, at)
    names = [name for _, name in terms]
    if len(set(names)) < len(names):
        raise DomainError(f"{where}: {text!r} has a column twice; expected each once")
    return Sum(tuple(terms), constant)


def quoted_name(name: str) -> str:
    """Returns a column's name as it stands in a formula or a condition."""
    if _NAME.fullmatch(name):
        return name
    return f'"{name}"' if '"' not in name else f"'{name}'"


def _unread(where: str, text: str, at: int) -> DomainError:
    rest = text[at:].strip()
    shown = f"from {rest[:30]!r} on" if rest else "at its end"
    return DomainError(
        f"{where}: {text!r} cannot be read {shown}; expected columns and numbers with + and -, as in net + vat or "
        '"end date" - start'
    )


def _decimals(constant: Decimal) -> int:
    exponent = constant.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _divided(number: int, by: int) -> int:
    """Returns a quotient rounded to a whole number, ties to even."""
    whole, rest = divmod(number, by)
    return whole + (2 * rest > by or (2 * rest == by and whole % 2))


def _years_before(day: int, years: int) -> int:
    """Returns the last day on which somebody is born who has so many full years on a day."""
    on = moment_of(day, "day")
    # On 29 February of no leap year: the day before.
    last = 28 if (on.month, on.day) == (2, 29) and not isleap(on.year - years) else on.day
    return tick_of(on.replace(year=on.year - years, day=last), "day")


def _full_years(pair: tuple[int, int], units: Sequence[str]) -> int:
    born, then = (moment_of(tick, unit) for tick, unit in zip(pair, units, strict=True))
    before = (then.month, then.day) < (born.month, born.day)
    return then.year - born.year - before
