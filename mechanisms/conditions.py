"""Conditions on the columns of a domain: which values of each cell satisfy them.

``limits_of`` turns the tests of a condition into one ``Limit`` for each column: the share of each cell that satisfies
the tests, and the values that are written within it. Conditions on implied columns are ones on their sources.

All values here are public. A condition may cut a cell (``age >= 65`` where a cell has 60 to 69): its share is that of
the values that synthesis would draw there, and values are drawn from the part that satisfies the tests alone.
Semantics: a missing value satisfies ``is missing`` alone. A mark (``refused`` among numbers) satisfies what names it,
and ``!=`` and ``not in``. Dates are compared in their column's unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.columns import (
    Categorical,
    Column,
    Implied,
    Moment,
    Ordered,
    endless_cells,
    is_chosen,
)
from mechanisms.domain import Domain
from mechanisms.errors import ConditionError, DomainError
from mechanisms.question import Test, Where
from mechanisms.sampling import PublicGenerator
from mechanisms.text_table import shown
from mechanisms.value_parts import Range, ValueParts, number_before, write_numbers
from mechanisms.written import fraction_of, parse_number

Groups: TypeAlias = Mapping[int, tuple[str, ...]]
"""The values of each code of a column of categories."""
OF_A_PART = 0.25
"""Part of a cell's part whose rows may lie beyond its end: of a density that falls to zero, at most a quarter."""
_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """The part of one column that a condition leaves.

    ``shares`` (codes of the column,) is the share of each cell's values, as they are drawn, that satisfies the
    condition. ``doubts`` (codes,) is by how much a real cell's share may differ from it. ``within`` are the values that
    may be written: parts of cells of numbers, or categories by code. A ``loose`` condition cuts a cell without an end,
    and the share of that cell may be any.
    """

    column: Column
    shares: NDArray[np.float64]
    doubts: NDArray[np.float64]
    within: ValueParts | Groups
    loose: bool = False

    @property
    def cuts(self) -> bool:
        """True if some cell satisfies the condition in part."""
        return bool(((self.shares > 0) & (self.shares < 1)).any())

    def write(self, codes: NDArray[np.int32], generator: PublicGenerator) -> NDArray[np.object_]:
        """Returns a value for each code of a positive share but the missing one, all of which satisfy the condition."""
        if isinstance(self.column, Categorical):
            return self._write_categories(codes, generator)
        texts = np.empty(len(codes), object)
        if not isinstance(self.within, ValueParts):
            raise TypeError("numbers are written from parts of cells")
        numbers = codes < self.within.size
        drawn = self.within.draw(self.column, codes[numbers], generator)
        texts[numbers] = write_numbers(self.column, drawn)
        for i, mark in enumerate(self.column.marks, start=self.within.size):
            texts[codes == i] = mark
        return texts

    def _write_categories(
        self, codes: NDArray[np.int32], generator: PublicGenerator
    ) -> NDArray[np.object_]:
        if isinstance(self.within, ValueParts):
            raise TypeError("categories are written by their codes")
        texts = np.empty(len(codes), object)
        for code, values in self.within.items():
            of_code = np.flatnonzero(codes == code)
            if len(of_code):
                places = generator.integers(0, len(values), len(of_code))
                texts[of_code] = np.array(values, object)[places]
        return texts


def limits_of(domain: Domain, where: Where) -> dict[str, Limit]:
    """Returns the limit of each modelled column that ``where`` tests, by name.

    Raises ``ConditionError`` for a column or a value that the domain does not have, a comparison that the column's kind
    does not allow, or tests that no value of a column satisfies.
    """
    by_column: dict[str, list[Test]] = {}
    for test in where:
        test = _on_source(domain, test)
        by_column.setdefault(test.column, []).append(test)
    return {name: _limit(domain, name, tests) for name, tests in by_column.items()}


def evidence_of(limits: Mapping[str, Limit]) -> dict[str, NDArray[np.float64]]:
    """Returns the shares of all limits, by column."""
    return {name: limit.shares for name, limit in limits.items()}


def column_named(domain: Domain, name: str) -> Column:
    """Returns the modelled column of a name in a text. Raises ``ConditionError`` that names what there is."""
    if name in domain.names:
        return domain.columns[domain.index(name)]
    for split in domain.splits:
        if split.column == name:
            parts = ", ".join(map(repr, split.parts))
            raise ConditionError(
                f"column {name!r} has several values in a cell; expected one of its parts, {parts}"
            )
    for implied in domain.implied:
        if implied.name == name:
            raise ConditionError(
                f"column {name!r} follows from {implied.source!r}; expected that column, or =, != or in"
            )
    for derived in domain.derived:
        if derived.name == name:
            parts = ", ".join(map(repr, derived.parts))
            raise ConditionError(
                f"column {name!r} is computed from {parts}; conditions and questions are on those alone"
            )
    for group in domain.one_hot:
        if name in group.members:
            raise ConditionError(
                f"column {name!r} is one of a group; expected the column {group.column!r}, whose values are the names"
            )
    known = ", ".join((*domain.names, *(implied.name for implied in domain.implied)))
    raise ConditionError(f"no column {name!r}; the columns are {known}")


def _limit(domain: Domain, name: str, tests: Sequence[Test]) -> Limit:
    column = column_named(domain, name)
    found = (
        _of_categories(column, tests)
        if isinstance(column, Categorical)
        else _of_numbers(column, tests)
    )
    if not (found.shares > 0).any():
        said = " and ".join(_test_text(test) for test in tests)
        allowed = column.allowed
        if not isinstance(column, Categorical) and is_chosen(column):
            # The bounds are those of a public grid: noisy counts say where values are written.
            parts = ValueParts.of(column)
            first, last = write_numbers(column, np.array([parts.first.min(), parts.last.max()]))
            allowed = f"a value from {first} to {last}, where noisy counts show rows"
        raise ConditionError(f"no value of column {name!r} satisfies {said}; expected {allowed}")
    return found


def _test_text(test: Test) -> str:
    if test.operator in ("in", "not in"):
        return f"{test.column} {test.operator} ({', '.join(test.values)})"
    if test.operator in ("missing", "present"):
        return f"{test.column} is {'not ' if test.operator == 'present' else ''}missing"
    return f"{test.column} {test.operator} {test.values[0]}"


def _of_categories(column: Categorical, tests: Sequence[Test]) -> Limit:
    members: dict[int, list[str]] = {}
    for value in column.values:
        code = column.code_of(value)
        if code is not None:
            members.setdefault(code, []).append(value)
    kept, missing = set(column.values), column.missing
    for test in tests:
        if test.operator in ("missing", "present"):
            kept = kept if test.operator == "present" else set()
            missing &= test.operator == "missing"
            continue
        missing = False
        if test.operator not in ("=", "!=", "in", "not in"):
            raise ConditionError(
                f"{_test_text(test)}: column {column.name!r} has categories, which have no order; expected =, != or in"
            )
        named = set(test.values)
        if unknown := [value for value in test.values if value not in column.values]:
            raise ConditionError(
                f"{_test_text(test)}: {shown(unknown[0])} is no value of column {column.name!r}; expected "
                f"{column.allowed}{_or_missing(column, unknown[0])}"
            )
        kept = kept & named if test.operator in ("=", "in") else kept - named
    groups = {code: tuple(v for v in values if v in kept) for code, values in members.items()}
    shares = np.array([len(groups[code]) / len(members[code]) for code in sorted(members)])
    # The real shares of a group's categories are not known at all.
    doubts = np.where((shares > 0) & (shares < 1), np.maximum(shares, 1 - shares), 0.0)
    if column.missing:
        shares, doubts = np.append(shares, float(missing)), np.append(doubts, 0.0)
    return Limit(column, shares, doubts, groups)


def _or_missing(column: Categorical, value: str) -> str:
    """Returns how a condition names missing values, for an error message on a blank ``value``."""
    return f"; or {column.name} is missing" if column.missing and not value.strip() else ""


def _of_numbers(column: Ordered, tests: Sequence[Test]) -> Limit:
    ranges: list[Range] = [(_LEAST, _MOST)]
    marks, missing = set(column.marks), column.missing
    for test in tests:
        if test.operator in ("missing", "present"):
            ranges, marks = (ranges, marks) if test.operator == "present" else ([], set())
            missing &= test.operator == "missing"
            continue
        missing = False
        of_test, of_marks = _satisfying(column, test)
        ranges, marks = _both(ranges, of_test), marks & of_marks
    whole = ValueParts.of(column)
    inside = whole.within(ranges)
    shares = np.clip(inside.cell_shares, 0.0, 1.0)
    shares[shares > 1 - 1e-12] = 1.0
    doubts = _doubts(whole, inside)
    loose = False
    if is_chosen(column):
        # Noisy counts say where values lie in such a cell: the real shares are not known at all.
        parted = (shares > 0) & (shares < 1)
        doubts = np.where(parted, np.maximum(shares, 1 - shares), 0.0)
        loose = any(_parts(ranges, column.cells.ranges[code]) for code in endless_cells(column))
    others = [float(mark in marks) for mark in column.marks] + [float(missing)] * column.missing
    return Limit(
        column, np.append(shares, others), np.append(doubts, np.zeros(len(others))), inside, loose
    )


def _parts(ranges: Sequence[Range], cell: Range) -> bool:
    """Returns whether some numbers of a cell are in ``ranges``, which do not overlap, and some are not."""
    inside = sum(high - low + 1 for low, high in _both(ranges, [cell]))
    return 0 < inside < cell[1] - cell[0] + 1


def _doubts(whole: ValueParts, inside: ValueParts) -> NDArray[np.float64]:
    """Returns for each cell by how much its real share may differ from that of uniform values.

    In a part of which the share s satisfies the condition, a density that falls or rises in a straight line to zero
    would have between s^2 and 1 - (1 - s)^2: s (1 - s) to either side. Parts of a cell have about equal shares, since
    their ends are rounded: a condition between two of them is off by as much as a quantile is, ``OF_A_PART`` of one.
    """
    doubts = np.zeros(whole.size)
    rows = zip(whole.codes.tolist(), whole.first, whole.last, whole.shares, strict=True)
    for code, first, last, share in rows:
        of_part = (inside.codes == code) & (inside.first >= first) & (inside.last <= last)
        s = float(inside.shares[of_part].sum()) / share if share else 0.0
        doubts[code] += share * max(0.0, s * (1 - s))
    for code in np.flatnonzero(np.bincount(whole.codes, minlength=whole.size) > 1):
        parts = whole.shares[whole.codes == code]
        held = float(inside.shares[inside.codes == code].sum())
        if 1e-12 < held < float(parts.sum()) - 1e-12:
            doubts[code] += OF_A_PART * float(parts.max())
    doubts[doubts < 1e-12] = 0.0
    return doubts


def _satisfying(column: Ordered, test: Test) -> tuple[list[Range], set[str]]:
    """Returns the numbers and the marks that satisfy one test."""
    named = [value for value in test.values if value in column.marks]
    numbers = [_number(column, value, test) for value in test.values if value not in column.marks]
    if test.operator in ("=", "in"):
        points = sorted({int(n) for n in numbers if n.denominator == 1})
        return [(point, point) for point in points], set(named)
    if test.operator in ("!=", "not in"):
        points = sorted({int(n) for n in numbers if n.denominator == 1})
        ends = [_LEAST - 1, *points, _MOST + 1]
        between = [(before + 1, after - 1) for before, after in pairwise(ends)]
        return [(a, b) for a, b in between if a <= b], set(column.marks) - set(named)
    if named:
        raise ConditionError(
            f"{_test_text(test)}: {shown(named[0])} is no number of column {column.name!r}; expected =, != or in"
        )
    (number,) = numbers
    if test.operator == "<":
        return [(_LEAST, math.ceil(number) - 1)], set()
    if test.operator == "<=":
        return [(_LEAST, math.floor(number))], set()
    if test.operator == ">":
        return [(math.floor(number) + 1, _MOST)], set()
    return [(math.ceil(number), _MOST)], set()


def _number(column: Ordered, value: str, test: Test) -> Fraction:
    """Returns a value of a condition in the unit of the column's cells."""
    if isinstance(column, Moment):
        try:
            return Fraction(column.tick(value))
        except DomainError:
            wrong = f"{shown(value)} is no {column.kind} to the {column.unit}"
    else:
        for written in (column.plain(value) if column.form else value, value):
            if parse_number(written) is not None:
                return number_before(column, fraction_of(written))
        wrong = f"{shown(value)} is no number"
    raise ConditionError(
        f"{_test_text(test)}: {wrong} of column {column.name!r}; expected {column.allowed}"
    )


def _both(one: Iterable[Range], other: Iterable[Range]) -> list[Range]:
    """Returns the numbers that are in both of two lists of ranges, in order."""
    others = list(other)
    found = [(max(a, c), min(b, d)) for a, b in one for c, d in others]
    return sorted((low, high) for low, high in found if low <= high)


def _on_source(domain: Domain, test: Test) -> Test:
    """Returns a test of an implied column as one of its source; any other test as it is."""
    implied = next((column for column in domain.implied if column.name == test.column), None)
    if implied is None or test.column in domain.names:
        return test
    return Test(implied.source, "in", _source_values(implied, test))


def _source_values(implied: Implied, test: Test) -> tuple[str, ...]:
    if test.operator in ("missing", "present") or test.operator[0] in "<>":
        raise ConditionError(
            f"{_test_text(test)}: column {implied.name!r} follows from {implied.source!r}; expected =, != or in, or a "
            f"condition on {implied.source!r}"
        )
    known = {value for _, value in implied.values}
    if unknown := [value for value in test.values if value not in known]:
        raise ConditionError(
            f"{_test_text(test)}: {shown(unknown[0])} is no value of column {implied.name!r}"
        )
    wanted = set(test.values)
    if test.operator in ("!=", "not in"):
        wanted = known - wanted
    return tuple(key for key, value in implied.values if value in wanted)
