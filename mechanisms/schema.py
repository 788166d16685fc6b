"""A domain as a Table Schema (Frictionless Data), with which programs in many languages read and check tables.

All values here are public; a schema states of a synthetic table only facts of the public domain. Source: Table Schema
of the Frictionless Data Package standard, version 1; a field has its own ``missingValues`` (of version 2) if a category
is written like a missing value. Limits: implied values are described in words.
"""

from __future__ import annotations

from collections.abc import Mapping

from mechanisms.columns import Categorical, Column, Implied, Moment, written_range
from mechanisms.constraints.declared import OneHot
from mechanisms.constraints.derived import Derived
from mechanisms.date_patterns import Pattern
from mechanisms.domain import Domain
from mechanisms.moments import Form, moment_of
from mechanisms.numbers import Integer, Real
from mechanisms.origins import column_in_words, counted
from mechanisms.split_columns import SplitColumn
from mechanisms.typed import (
    DAY,
    NUMBER,
    TEXT,
    TIME,
    TRUTH,
    WHOLE,
    ValueType,
    absent_in,
    missing_columns,
    value_types,
)

LEFT_OUT = "left out of the study: empty in every row"
"""Description of a column that is written without values."""
_TYPES = {
    TEXT: "string",
    WHOLE: "integer",
    NUMBER: "number",
    TRUTH: "boolean",
    DAY: "date",
    TIME: "datetime",
}
_PATTERNS = (
    ("YYYY", "%Y"),
    ("MM:SS", "%M:%S"),
    ("HH:MM", "%H:%M"),
    ("MM", "%m"),
    ("DD", "%d"),
    ("HH", "%H"),
    ("SS", "%S"),
    (".ffffff", ".%f"),
    (".fff", ".%f"),
)


def table_schema(domain: Domain) -> dict[str, object]:
    """Returns the schema of tables drawn from a model over ``domain``: fields, constraints, missing values."""
    columns = domain.described
    types, optional = value_types(domain), missing_columns(domain)
    spellings = list(domain.missing_values[:1]) if optional else []
    splits = {split.column: split for split in domain.splits}
    groups = {name: group for group in domain.one_hot for name in group.members}
    fields = list[dict[str, object]]()
    for name in domain.header:
        if name not in types:
            fields.append({"name": name, "type": "string", "description": LEFT_OUT})
            continue
        if split := splits.get(name):
            fields.append(_split_field(domain, split, required=name not in optional))
            continue
        if group := groups.get(name):
            fields.append(_group_field(domain, name, group))
            continue
        field = _field(columns[name], types[name], required=name not in optional)
        if types[name].kind == NUMBER and domain.format.decimal != ".":
            field["decimalChar"] = domain.format.decimal
            if name in domain.format.thousands:
                field["groupChar"] = "."
        # A category that is written like a missing value is that category.
        if spellings and field["type"] == "string" and not absent_in(domain, name):
            field["missingValues"] = []
        if domain.provenance:
            field["provenance"] = column_in_words(domain, name)
        fields.append(field)
    schema: dict[str, object] = {"fields": fields, "missingValues": spellings}
    return schema | ({"provenance": counted(domain)} if domain.provenance else {})


def _split_field(domain: Domain, split: SplitColumn, *, required: bool) -> dict[str, object]:
    """Returns the field of a column that the domain models as several: text, described in words."""
    field: dict[str, object] = {"name": split.column, "type": "string"}
    field["description"] = split.allowed
    if required:
        field["constraints"] = {"required": True}
    if domain.provenance:
        said = dict.fromkeys(column_in_words(domain, part) for part in split.parts)
        field["provenance"] = "; ".join(said)
    return field


def _group_field(domain: Domain, name: str, group: OneHot) -> dict[str, object]:
    """Returns the field of a column of a one-hot group."""
    kind = value_types(domain)[name]
    field: dict[str, object] = {"name": name, "type": _TYPES[kind.kind]}
    field["description"] = f"one of {', '.join(group.members)}"
    required = {"required": True} if name not in missing_columns(domain) else {}
    field["constraints"] = required | {"enum": [kind.value(group.no), kind.value(group.yes)]}
    if kind.kind == TRUTH:
        field |= {"trueValues": ["True"], "falseValues": ["False"]}
    if domain.provenance:
        field["provenance"] = column_in_words(domain, group.column)
    return field


def _field(
    column: Column | Implied | Derived, kind: ValueType, *, required: bool
) -> dict[str, object]:
    if isinstance(column, Derived):
        return _derived_field(column, kind, required=required)
    field: dict[str, object] = {"name": column.name, "type": _TYPES[kind.kind]}
    constraints: dict[str, object] = {"required": True} if required else {}
    if not isinstance(column, Categorical | Implied) and _is_spelt(column, kind):
        field["description"] = _spelt(column)
    elif isinstance(column, Moment):
        field |= _moment_format(column.shape)
        field["description"] = f"to the {column.unit}"
        constraints |= _moment_bounds(column)
    elif isinstance(column, Integer | Real):
        places = column.places if isinstance(column, Real) else 0
        digits = column.digits if isinstance(column, Real) else None
        if places:
            field["description"] = f"{digits} digits" if digits else f"{places} decimals"
        constraints |= _number_bounds(column, kind)
    elif isinstance(column, Categorical):
        constraints["enum"] = [kind.value(value) for value in column.values]
    else:
        field["description"] = f"follows from {column.source}"
        constraints["enum"] = sorted({kind.value(value) for _, value in column.values}, key=str)
    if kind.kind == TRUTH:
        field |= {"trueValues": ["True"], "falseValues": ["False"]}
    return field | ({"constraints": constraints} if constraints else {})


def _derived_field(derived: Derived, kind: ValueType, *, required: bool) -> dict[str, object]:
    """Returns the field of a computed column, whose own bounds say nothing."""
    field: dict[str, object] = {"name": derived.name, "type": _TYPES[kind.kind]}
    column = derived.column
    if isinstance(column, Moment) and not _is_spelt(column, kind):
        field |= _moment_format(column.shape)
    field["description"] = f"is {derived.formula}"
    return field | ({"constraints": {"required": True}} if required else {})


def _is_spelt(column: Integer | Real | Moment, kind: ValueType) -> bool:
    """Returns whether values are texts that no pattern of the standard describes, with their bounds."""
    if isinstance(column, Moment):
        return bool(column.marks) or (
            isinstance(column.shape, Pattern) and not column.shape.is_strptime
        )
    return kind.kind == TEXT


def _spelt(column: Integer | Real | Moment) -> str:
    noun = {"integer": "whole number", "real": "number"}.get(column.kind, column.kind)
    said = f"a {noun}" + (f", as in {column.form}" if column.form else "")
    return said + (f"; or {', '.join(column.marks)}" if column.marks else "")


def _number_bounds(column: Integer | Real, kind: ValueType) -> Mapping[str, object]:
    """Returns the smallest and the largest number that is ever written."""
    plain = column.plain_of if isinstance(column, Real) else str
    low, high = (kind.value(plain(end)) for end in written_range(column))
    return {"minimum": low, "maximum": high}


def _moment_bounds(column: Moment) -> Mapping[str, object]:
    ends = written_range(column)
    low, high = (column.shape.write(moment_of(end, column.unit)) for end in ends)
    return {"minimum": low, "maximum": high}


def _moment_format(form: Form | Pattern) -> dict[str, object]:
    """Returns type and format of moments of this form; the standard has months, and no weeks."""
    if isinstance(form, Pattern):
        return {"type": "datetime" if form.time else "date", "format": form.strptime}
    if form.date == "YYYY-MM":
        return {"type": "yearmonth"}
    if form.date == "YYYY-Www":
        return {"type": "string"}
    written = f"{form.date}{form.separator}{form.time}"
    if written in ("YYYY-MM-DD", "YYYY-MM-DDTHH:MM:SS") and form.zone in ("", "Z"):
        return {"format": "default"}
    for letters, pattern in _PATTERNS:
        written = written.replace(letters, pattern)
    return {"format": written + ("%z" if form.zone else "")}
