"""Kinds of columns: categories, numbers (`mechanisms.numbers`), dates and times, and implied columns.

Every value of a modelled column is one of the codes 0 .. size-1. A column that allows missing values has one more code
for them, the last.

All values here are public. Limits: no hierarchies but prefixes of one length; a value outside the domain is an error
and is not clipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms import moments
from mechanisms.cells import Cells, PartedCells, equal_starts
from mechanisms.column_parts import (
    DEFAULT_BINS,
    LINEAR,
    PRIVATE,
    cell_labels,
    check_atoms,
    check_bins,
    check_edges,
    check_marks,
    check_name,
    check_within,
    duplicates,
    mark_labels,
    numbers_dict,
    or_atoms,
    up_to,
    write_marked,
)
from mechanisms.date_patterns import Pattern, form_of
from mechanisms.errors import DomainError
from mechanisms.numbers import Integer, Real, fine_number_cells, parted_number_cells
from mechanisms.private_bins import MAX_RESOLUTION, PrivateBins, check_private
from mechanisms.private_categories import PrivateCategories
from mechanisms.sampling import PublicGenerator
from mechanisms.scale_free import calendar_cells, date_marks, moment_bounds

_SHOWN_CATEGORIES = 8


@dataclass(frozen=True, slots=True)
class Categorical:
    """A column with listed values.

    ``categories`` are the values as written in the table; code i is the i-th of them. With ``prefix``, categories that
    begin with the same ``prefix`` characters share a code and are drawn equally often; ``atoms`` are categories that
    keep a code of their own. Unlisted values share the last code, which is written as ``other``; without ``other`` they
    are refused. ``private`` categories are candidates until they have been measured, and afterwards those that were
    kept (`mechanisms.private_categories`).

    Raises ``DomainError`` if there is no category, one is listed twice, an atom is no category, or ``other`` is one.
    """

    name: str
    categories: tuple[str, ...]
    missing: bool = False
    prefix: int = 0
    atoms: tuple[str, ...] = ()
    other: str = ""
    private: PrivateCategories | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.private is not None:
            self._check_private(self.private)
        if not self.categories and self.private is None:
            raise DomainError(f"column {self.name!r}: categories is empty; list at least one value")
        if twice := duplicates(self.categories):
            raise DomainError(
                f"column {self.name!r}: category {twice[0]!r} is listed more than once"
            )
        if self.prefix < 0 or (self.atoms and not self.prefix):
            raise DomainError(
                f"column {self.name!r}: prefix = {self.prefix}; how many characters the categories are grouped by, and"
                " atoms are those that stand outside of all groups"
            )
        check_atoms(self.name, self.atoms)
        if unknown := sorted(set(self.atoms) - set(self.categories)):
            raise DomainError(f"column {self.name!r}: the atom {unknown[0]!r} is no category")
        if self.other and self.other in self.categories:
            raise DomainError(
                f"column {self.name!r}: other = {self.other!r} is a category; expected a word that stands for values "
                "that are not listed"
            )

    @property
    def kind(self) -> str:
        """Name of the kind in a configuration."""
        return "categorical"

    @property
    def alike(self) -> NDArray[np.int64]:
        """Number of listed values per code, without the missing code; 1 for the code of unlisted values."""
        if not self.prefix:
            return np.ones(len(self.labels), np.int64)
        ends = _groups(self).ends
        return np.append(ends[:, 1] - ends[:, 0] + 1, np.ones(len(self._others), np.int64))

    @property
    def values(self) -> tuple[str, ...]:
        """All values that are ever written into the column."""
        return (*self.categories, *self._others)

    @property
    def _others(self) -> tuple[str, ...]:
        return (self.other,) if self.other else ()

    @property
    def size(self) -> int:
        """Number of codes, including the missing one."""
        return len(self.labels) + self.missing

    @property
    def allowed(self) -> str:
        """Description of the allowed values, for an error message."""
        shown = ", ".join(repr(value) for value in self.categories[:_SHOWN_CATEGORIES])
        more = len(self.categories) - _SHOWN_CATEGORIES
        return f"one of {shown}" + (f" or {more} more" if more > 0 else "")

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of each code, without the missing one."""
        return (*_groups(self).labels, *self._others) if self.prefix else self.values

    def code_of(self, value: str) -> int | None:
        """Returns the code of a listed value or of ``other``; None for a value that is not listed."""
        if self.other and value == self.other:
            return len(self.labels) - 1
        return _groups(self).codes.get(value)

    def write(self, codes: NDArray[np.int32], generator: PublicGenerator) -> NDArray[np.object_]:
        """Returns a value for each code but the missing one, as the table would have it."""
        if not self.prefix:
            return np.array(self.values, object)[codes]
        groups = _groups(self)
        place = len(groups.sorted)
        ends = np.vstack([groups.ends, [[place, place]]])
        first, last = ends[:, 0][codes], ends[:, 1][codes]
        of_all = np.append(groups.sorted, self.other)
        return np.asarray(of_all[generator.integers(first, last, endpoint=True)], object)

    def to_dict(self) -> dict[str, object]:
        """Returns the ``[[column]]`` table of a configuration."""
        listed: dict[str, object] = {"categories": list(self.categories)}
        document: dict[str, object] = {
            "name": self.name,
            "kind": self.kind,
            **(listed if self.private is None else self.private.to_dict()),
            "missing": self.missing,
        }
        document |= {"prefix": self.prefix} if self.prefix else {}
        document |= {"atoms": list(self.atoms)} if self.atoms else {}
        return document | ({"other": self.other} if self.other else {})

    def _check_private(self, private: PrivateCategories) -> None:
        if not self.other or self.prefix:
            raise DomainError(
                f'column {self.name!r}: values = "{PRIVATE}" needs other, a word for the values that are not kept, and '
                "no prefix"
            )
        if self.other in private.candidates:
            raise DomainError(
                f"column {self.name!r}: other = {self.other!r} is a candidate; expected a word that stands for values "
                "that are not kept"
            )
        if self.categories != private.categories:
            raise DomainError(
                f"column {self.name!r}: its categories are not those that its private values have"
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """Codes of categories: ``sorted`` has the categories by code; ``ends`` the first and last place of each code."""

    labels: tuple[str, ...]
    codes: Mapping[str, int]
    sorted: NDArray[np.object_]
    ends: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Moment:
    """A column of dates or of dates with times, ``low`` .. ``high``, both included.

    ``unit`` is the resolution: finer values are rounded down to it, and whole units are drawn, each written as its
    first moment in ``form`` (`mechanisms.moments`, including time zones, and `mechanisms.date_patterns`). Bins have
    equal numbers of units (months and years differ in days), or lie between ``edges``. All moments are texts in the
    form or in any ISO 8601 spelling. ``marks`` are texts in the column that are no moments (``unknown``): each has a
    code of its own, behind those of the moments. With ``private`` bins a run measures fine cells first
    (`mechanisms.moments.calendar_starts`).

    Raises ``DomainError`` for an invalid moment, unit or form, bounds out of order, or no bin.
    """

    name: str
    kind: str
    low: str
    high: str
    unit: str
    bins: int = DEFAULT_BINS
    missing: bool = False
    edges: tuple[str, ...] = ()
    atoms: tuple[str, ...] = ()
    form: str = ""
    within: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    private: PrivateBins | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        check_bins(self.name, self.bins)
        form = self.shape
        if self.unit not in moments.UNITS or not _tells(form, self.unit):
            units = ", ".join(unit for unit in moments.UNITS if _tells(form, unit))
            raise DomainError(
                f"column {self.name!r}: unit = {self.unit!r}; values written {form} have one of {units}"
            )
        if self.tick(self.low) > self.tick(self.high):
            raise DomainError(f"column {self.name!r}: low = {self.low} is after high = {self.high}")
        if self.edges:
            check_edges(self.name, [self.tick(edge) for edge in self.edges])
            if (self.edges[0], self.edges[-1]) != (self.low, self.high):
                raise DomainError(
                    f"column {self.name!r}: low and high are the first and the last edge"
                )
        edges, within = ([self.tick(each) for each in of] for of in (self.edges, self.within))
        check_within(self.name, edges, within)
        check_atoms(self.name, [self.tick(atom) for atom in self.atoms])
        check_marks(self.name, self.marks, lambda mark: form.read(mark, self.unit))
        if self.private is not None:
            fine = len(_fine_moments(self).ranges)
            check_private(self.name, self.private, fine, edges=self.edges, atoms=self.atoms)

    @property
    def shape(self) -> moments.Form | Pattern:
        """Form in which values are written. Raises ``DomainError``."""
        written = self.form or moments.DEFAULT_FORMS[self.kind]
        form = form_of(written)
        if form is None or bool(form.time) != (self.kind == "datetime"):
            expected = moments.DEFAULT_FORMS[self.kind]
            raise DomainError(
                f"column {self.name!r}: format = {written!r}; a {self.kind} is written as in {expected}"
            )
        return form

    @property
    def cells(self) -> Cells:
        """Cells of the column, in units since the year 1."""
        return _moment_cells(self)

    @property
    def size(self) -> int:
        """Number of codes, including the missing one."""
        return len(self.cells.ranges) + len(self.marks) + self.missing

    @property
    def allowed(self) -> str:
        """Description of the allowed values, for an error message."""
        zone = " with a time zone" if self.shape.zone else ""
        atoms = or_atoms((*self.atoms, *self.marks))
        return f"a {self.kind}{zone} from {self.low} to {self.high}{atoms}, as in {self.shape}"

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of each code, without the missing one: the first unit of a bin, or "= " an atom; an open bin's last."""
        firsts = [self._written(first) for first, _ in self.cells.ranges]
        if has_open_ends(self):
            firsts[0] = up_to(self._written(self.cells.ranges[0][1]))
        return cell_labels(self.cells, firsts) + mark_labels(self.marks)

    def tick(self, moment: str) -> int:
        """Returns the number of the unit that a moment of the configuration lies in. Raises ``DomainError``."""
        read = self.shape.read(moment, self.unit)
        if read is None:
            raise DomainError(
                f"column {self.name!r}: {moment!r} is no {self.kind} to the {self.unit}, as in {self.shape}"
            )
        return moments.tick_of(read, self.unit)

    def code_of(self, value: str) -> int | None:
        """Returns the code of a written value that is not missing; None if it is not allowed."""
        if value in self.marks:
            return len(self.cells.ranges) + self.marks.index(value)
        moment = _form_of(self).read(value, self.unit)
        return None if moment is None else self.cells.code_of(moments.tick_of(moment, self.unit))

    def write(self, codes: NDArray[np.int32], generator: PublicGenerator) -> NDArray[np.object_]:
        """Returns for each code but the missing one a unit uniform in its cell, or a mark, as text."""

        def write(present: NDArray[np.int32]) -> NDArray[np.object_]:
            drawn = _drawn(self, present, generator).tolist()
            texts = {tick: self._written(tick) for tick in dict.fromkeys(drawn)}
            return np.array([texts[tick] for tick in drawn], object)

        return write_marked(self.marks, len(self.cells.ranges), codes, write)

    def to_dict(self) -> dict[str, object]:
        """Returns the ``[[column]]`` table of a configuration."""
        document = numbers_dict(
            self.name,
            self.kind,
            bounds=(self.low, self.high, self.bins),
            missing=self.missing,
            edges=self.edges,
            scale=LINEAR,
            atoms=self.atoms,
            within=self.within,
            marks=self.marks,
            private=self.private.to_dict() if self.private else None,
        ) | {"unit": self.unit}
        return document | ({"format": self.form} if self.form else {})

    def _written(self, tick: int) -> str:
        return _form_of(self).write(moments.moment_of(tick, self.unit))


@dataclass(frozen=True, slots=True)
class Implied:
    """A column that follows from another one, ``source``, by a public table; it is filled in rather than modelled.

    ``values`` are pairs of a value of the source and this column's value, both as written. A row without a source value
    has no value here either. ``position`` is the column's place among all columns, from 0.
    """

    name: str
    source: str
    values: tuple[tuple[str, str], ...]
    position: int

    def __post_init__(self) -> None:
        check_name(self.name)
        if twice := duplicates(key for key, _ in self.values):
            raise DomainError(f"column {self.name!r}: {twice[0]!r} has two values in its table")

    def to_dict(self) -> dict[str, object]:
        """Returns the ``[[column]]`` table of a configuration."""
        return {"name": self.name, "implied_by": self.source, "values": dict(self.values)}


Column: TypeAlias = Categorical | Integer | Real | Moment
Ordered: TypeAlias = Integer | Real | Moment
"""Kinds of columns whose values have an order; they may have private bins."""


def private_of(column: Column) -> PrivateBins | PrivateCategories | None:
    """Returns the private bins or categories of a column; None if it has none."""
    return column.private


def fine_cells(column: Ordered) -> Cells:
    """Returns the cells that a column with private bins has before they are measured."""
    return _fine_moments(column) if isinstance(column, Moment) else fine_number_cells(column)


@lru_cache(512)
def parted_cells(column: Ordered) -> PartedCells:
    """Returns the column's cells with the parts that ``within`` cuts them into."""
    if not isinstance(column, Moment):
        return parted_number_cells(column)
    edges = tuple(sorted({*column.edges, *column.within}, key=column.tick))
    return PartedCells.of(column.cells, replace(column, edges=edges, within=()).cells)


def has_open_ends(column: Ordered) -> bool:
    """Returns whether the bounds of private bins are those of a public grid, which no value has to come near."""
    if column.private is None:
        return False
    if column.private.free or not isinstance(column, Moment):
        return column.private.free
    return (column.low, column.high) == moment_bounds(column.shape, column.kind, column.unit)


def is_chosen(column: Ordered) -> bool:
    """Returns whether noisy counts chose the column's cells."""
    return column.private is not None and column.private.measured


def endless_cells(column: Ordered) -> frozenset[int]:
    """Returns the codes of the chosen cells that reach to an end of a public grid, which bounds nothing."""
    if not is_chosen(column) or not has_open_ends(column):
        return frozenset()
    return frozenset({0, len(column.cells.ranges) - 1})


def written_range(column: Ordered) -> tuple[int, int]:
    """Returns the smallest and the largest number that is ever written, in the unit of the column's cells.

    Measured private values are written within the fine cells that showed rows.
    """
    if column.private is not None and column.private.free and column.private.measured:
        return column.private.drawn_range(fine_cells(column))
    ranges = column.cells.ranges
    return ranges[0][0], max(last for _, last in ranges)


@lru_cache(512)
def _groups(column: Categorical) -> _Groups:
    apart, members = set(column.atoms), dict[str, list[str]]()
    for value in column.categories:
        whole = not column.prefix or value in apart or len(value) <= column.prefix
        members.setdefault(value if whole else f"{value[: column.prefix]}\u2026", []).append(value)
    lasts = np.cumsum([len(values) for values in members.values()]) - 1
    # Of private categories noise may have left none.
    firsts = np.append(0, lasts[:-1] + 1)[: len(lasts)]
    return _Groups(
        tuple(members),
        {value: code for code, values in enumerate(members.values()) for value in values},
        np.array([value for values in members.values() for value in values], object),
        np.column_stack([firsts, lasts]).astype(np.int64),
    )


@lru_cache(512)
def _fine_moments(column: Moment) -> Cells:
    low, high = column.tick(column.low), column.tick(column.high)
    if column.private is not None and column.private.free:
        fine = Cells.cut(calendar_cells(column.unit, low, high), high)
        return fine.marked(date_marks(column.unit))
    resolution = MAX_RESOLUTION if column.private is None else column.private.resolution
    return Cells.cut(moments.calendar_starts(column.unit, low, high, resolution), high)


def _drawn(
    column: Moment, codes: NDArray[np.int32], generator: PublicGenerator
) -> NDArray[np.int64]:
    """Returns a unit for each code: from a part of its cell, or from a fine cell if those were measured."""
    if column.within:
        return parted_cells(column).draw(codes, generator)
    if column.private is None or not column.private.measured:
        return column.cells.draw(codes, generator)
    return column.private.draw_within(_fine_moments(column), codes, generator)


@lru_cache(512)
def _moment_cells(column: Moment) -> Cells:
    if column.private is not None:
        return column.private.cells_of(_fine_moments(column))
    low, high = column.tick(column.low), column.tick(column.high)
    if column.edges:
        starts = [column.tick(edge) for edge in column.edges[:-1]]
    else:
        starts = equal_starts(low, high - low + 1, column.bins)
    return Cells.cut(starts, high, [column.tick(atom) for atom in column.atoms])


@lru_cache(512)
def _form_of(column: Moment) -> moments.Form | Pattern:
    return column.shape


def _tells(form: moments.Form | Pattern, unit: str) -> bool:
    """Returns whether values of this form can be resolved to a unit: weeks do not divide months."""
    if form.unit in ("week", "month") and "week" in (form.unit, unit):
        return unit == form.unit == "week"
    return moments.UNITS.index(unit) >= moments.UNITS.index(form.unit)
