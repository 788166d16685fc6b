"""Types of the written columns' values, and tables of text as tables of typed values.

A table's cells are text everywhere else (`mechanisms.table`); Parquet, Excel, a table schema and pandas need numbers,
truth values, days and moments.

The types are public; tables of text that are passed here are synthetic.
Representation: a column of categories, or one that another implies, has the common type of all its values, each in one
spelling only (``7`` and never ``07``), so that every value reads back as it was written. Values in a spelling of their
own (``$1,234.56``, ``28.01.2022``) or with marks stay text, as in the owner's table.
Limits: a date coarser than a day (a month, a week) stays text, since typed tables have no such type.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mechanisms.columns import Categorical, Column, Implied, Moment
from mechanisms.constraints.derived import Derived
from mechanisms.date_patterns import Pattern
from mechanisms.domain import Domain
from mechanisms.moments import named_zone
from mechanisms.numbers import Integer, Real
from mechanisms.spelling import Numeral, Spelling, spelling_of
from mechanisms.written import decimals_of, parse_whole

if TYPE_CHECKING:
    import pandas as pd

TEXT, WHOLE, NUMBER, TRUTH, DAY, TIME = "text", "whole", "number", "truth", "day", "time"
ANY_DIGITS = -1
"""Places of numbers that have digits behind the decimal sign as they need."""
_TRUTHS = {"True": True, "False": False}
_WHOLE_DAYS = ("YYYY-MM-DD", "YYYYMMDD")


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type: ``kind`` is one of the words above, ``places`` a number's decimals, ``zone`` a time zone or ""."""

    kind: str
    places: int = 0
    zone: str = ""

    def value(self, written: str) -> object:
        """Returns a written value, not missing, as a value of the type. Raises ``ValueError`` for another type's."""
        if self.kind == WHOLE:
            return int(written)
        if self.kind == NUMBER:
            return float(written)
        if self.kind == TRUTH:
            return _TRUTHS[written]
        if self.kind == DAY:
            return datetime.date.fromisoformat(written)
        if self.kind == TIME:
            moment = datetime.datetime.fromisoformat(written)
            zone = named_zone(self.zone)
            return moment if zone is None else moment.astimezone(zone)
        return written


def value_types(domain: Domain) -> dict[str, ValueType]:
    """Returns the type of each written column by its name."""
    types = {name: _type_of(column) for name, column in domain.described.items()}
    types |= {split.column: ValueType(TEXT) for split in domain.splits}
    types |= {n: _type_of_all((g.no, g.yes)) for g in domain.one_hot for n in g.members}
    return {name: types[name] for name in domain.written_names}


def written_texts(domain: Domain) -> tuple[str, ...]:
    """Returns all text that a table may contain: names, categories, and implied values."""
    listed = [c.values for c in domain.columns if isinstance(c, Categorical)]
    listed += [tuple(value for _, value in column.values) for column in domain.implied]
    listed += [split.literals for split in domain.splits]
    listed += [(group.no, group.yes) for group in domain.one_hot]
    return (*domain.written_names, *(text for texts in listed for text in texts))


def number_columns(domain: Domain) -> dict[str, frozenset[str]]:
    """Returns the written columns of numbers that may have decimals, with the marks among them, which are none."""
    written = set(domain.written_names)
    columns: list[Column | Implied] = [*domain.columns, *domain.implied]
    found = {}
    for column in columns:
        marks = () if isinstance(column, Categorical | Implied) else column.marks
        kind = _type_of_numbers(column) if isinstance(column, Integer | Real) else _type_of(column)
        if column.name in written and kind.kind == NUMBER:
            found[column.name] = frozenset(marks)
    return found


def missing_columns(domain: Domain) -> frozenset[str]:
    """Returns the names of the written columns that may have missing values."""
    names = {column.name for column in domain.columns if column.missing}
    # A cell without any of the answers is written as a missing one.
    names |= {s.column for s in domain.splits if s.answers or not names.isdisjoint(s.parts)}
    names |= {n for group in domain.one_hot if group.column in names for n in group.members}
    # A derived column has no value where one of its parts has no number.
    marked = {c.name for c in domain.columns if not isinstance(c, Categorical) and c.marks}
    names |= {each.name for each in domain.derived if (names | marked).intersection(each.parts)}
    return frozenset(names | {column.name for column in domain.implied if column.source in names})


def absent_in(domain: Domain, name: str) -> frozenset[str]:
    """Returns the texts for a missing value in a written column; a category is a value in every spelling."""
    if name not in missing_columns(domain):
        return frozenset()
    listed = (c.values for c in domain.columns if isinstance(c, Categorical) and c.name == name)
    return frozenset(domain.missing_values[:1]).difference(*listed)


def typed_table(domain: Domain, frame: pd.DataFrame) -> pd.DataFrame:
    """Returns a synthetic table of text with columns of pandas' types and its missing values.

    Types: int64 or, if values may be missing, Int64; float64; bool or boolean; datetime64; str. Raises ``ValueError``
    for a table that is not the domain's.
    """
    # A schema, which needs the types alone, does without pandas.
    import pandas as pd

    types = value_types(domain)
    absent = {name: absent_in(domain, name) for name in types}
    typed = {name: typed_values(types[name], frame[name], absent[name]) for name in types}
    moments = [name for name in types if types[name].kind in (DAY, TIME)]
    table = pd.DataFrame(typed, dtype=object).astype(
        {
            name: _pandas_type(types[name], missing=bool(absent[name]))
            for name in types
            if name not in moments
        }
    )
    for name in moments:
        table[name] = pd.to_datetime(table[name])
    return table


def with_left_out(domain: Domain, typed: pd.DataFrame) -> pd.DataFrame:
    """Returns a typed table with all columns that the domain's tables have when written; left-out ones are None."""
    columns = {n: typed[n] if n in typed else [None] * len(typed) for n in domain.header}
    return type(typed)(columns, index=typed.index)


def as_types(table: pd.DataFrame, types: Mapping[str, object]) -> pd.DataFrame:
    """Returns a table with the pandas types of another one's columns, by name, where they can hold every value."""
    return type(table)(
        {name: _as_type(values, types.get(str(name))) for name, values in table.items()}
    )


def _as_type(values: pd.Series[Any], kind: Any) -> pd.Series[Any]:
    # Objects of other types than text would be this program's, not those of the other table.
    if kind is None or kind == values.dtype or (str(kind) == "object" and values.dtype != "str"):
        return values
    if hasattr(kind, "categories") and not values.dropna().isin(kind.categories).all():
        return values
    # A value that does not come back the same is not held: a category as a truth value, a half as a whole number.
    with contextlib.suppress(ValueError, TypeError):
        other = values.astype(kind)
        if other.astype(values.dtype).equals(values):
            return other
    return values


def typed_values(
    kind: ValueType, values: Iterable[str], absent: frozenset[str]
) -> list[object | None]:
    """Returns written values as values of a type, None for a missing one; each distinct one is read once."""
    known: dict[str, object | None] = dict.fromkeys(absent)
    return [
        known[value] if value in known else known.setdefault(value, kind.value(value))
        for value in values
    ]


def _pandas_type(kind: ValueType, *, missing: bool) -> str:
    return {
        WHOLE: "Int64" if missing else "int64",
        NUMBER: "float64",
        TRUTH: "boolean" if missing else "bool",
        TEXT: "str",
    }[kind.kind]


def _type_of(column: Column | Implied | Derived) -> ValueType:
    if isinstance(column, Derived):
        return _type_of(column.column)
    if not isinstance(column, Categorical | Implied) and column.marks:
        return ValueType(TEXT)
    if isinstance(column, Integer | Real):
        return _type_of_numbers(column)
    if isinstance(column, Moment):
        form = column.shape
        if isinstance(form, Pattern):
            return ValueType(TEXT)
        if form.time:
            return ValueType(TIME, zone=form.zone)
        return ValueType(DAY if form.date in _WHOLE_DAYS else TEXT)
    if isinstance(column, Implied):
        return _type_of_all([value for _, value in column.values])
    return _type_of_all(column.values)


def _type_of_numbers(column: Integer | Real) -> ValueType:
    """Returns the type of a column of numbers: a number if at most its decimals have a spelling of their own."""
    spelling = spelling_of(column.form) if column.form else None
    if spelling is not None and not spelling.bare and not _reads_as_number(spelling):
        return ValueType(TEXT)
    if isinstance(column, Integer):
        return (
            ValueType(NUMBER, spelling.least) if isinstance(spelling, Numeral) else ValueType(WHOLE)
        )
    return ValueType(NUMBER, column.places if column.digits is None else ANY_DIGITS)


def _reads_as_number(spelling: Spelling) -> bool:
    """Returns whether a spelling is of digits and powers of ten alone, as programs read them."""
    return isinstance(spelling, Numeral) and replace(spelling, power="").bare


def _type_of_all(values: Sequence[str]) -> ValueType:
    if all(value in _TRUTHS for value in values):
        return ValueType(TRUTH)
    if all(_is_whole(value) for value in values):
        return ValueType(WHOLE)
    places = [decimals_of(value) for value in values]
    if all(
        place is not None and str(float(v)) == v for v, place in zip(values, places, strict=True)
    ):
        return ValueType(NUMBER, max(place for place in places if place is not None))
    return ValueType(TEXT)


def _is_whole(value: str) -> bool:
    number = parse_whole(value)
    return number is not None and str(number) == value and -(2**63) <= number < 2**63
