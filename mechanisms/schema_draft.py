"""A draft from a Table Schema (Frictionless Data), without any table: what a public schema says of its columns.

Listed values (``enum``) are categories. Numbers and dates with ``minimum`` and ``maximum`` have these bounds and
private bins, which a run finds from noisy counts; without, private values. Texts without listed values are left to be
listed. Keys and columns of unique values are ignored, and so are types that a domain does not have.

All values here are public, if the schema is. The draft says of each column that its values are from the schema.
Source: Table Schema of the Frictionless Data Package standard, version 1. Limits: ``pattern`` and formats of dates
other than ISO 8601 and ``strptime`` are not read; numbers have two decimals unless the bounds have more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from mechanisms.columns import Categorical, Column, Moment, Ordered
from mechanisms.domain import DEFAULT_MISSING_VALUES, Domain
from mechanisms.draft import Draft, Unlisted
from mechanisms.errors import DataError, DomainError
from mechanisms.numbers import Integer, Real
from mechanisms.private_bins import PrivateBins
from mechanisms.private_columns import without_values
from mechanisms.provenance import WHOLE, Provenance

_GAP = "..."
_DECIMALS = 2
_DATES = {
    "date": ("date", "day", "YYYY-MM-DD"),
    "datetime": ("datetime", "second", "YYYY-MM-DDTHH:MM:SS"),
    "yearmonth": ("date", "month", "YYYY-MM"),
}
"""Kind, unit and format of a domain's column, by the type of a field."""


def schema_draft(schema: Mapping[str, object], name: str) -> Draft:
    """Returns the draft of the columns of a schema that messages call ``name``.

    Raises ``DataError`` for a document that is no Table Schema, or one without a column that can be drafted.
    """
    fields = schema.get("fields")
    if not isinstance(fields, Sequence) or isinstance(fields, str) or not fields:
        raise DataError(
            f'{name}: has no fields; expected a Table Schema, as {{"fields": [{{"name": "age", "type": "integer"}}]}}'
        )
    missing = schema.get("missingValues", [""])
    spellings = tuple(map(str, missing)) if isinstance(missing, list) else DEFAULT_MISSING_VALUES
    keys = schema.get("primaryKey", ())
    keys = (keys,) if isinstance(keys, str) else tuple(keys) if isinstance(keys, list) else ()
    columns, unlisted, left_out = list[Column](), list[Unlisted](), list[str]()
    ignored = list[str]()
    for number, field in enumerate(fields, start=1):
        if not isinstance(field, Mapping) or not isinstance(field.get("name"), str):
            raise DataError(f"{name}: field {number} has no name; expected one, a text")
        said = field["name"]
        constraints = field.get("constraints", {})
        if not isinstance(constraints, Mapping):
            raise DataError(f"{name}: the constraints of {said!r} are no table of them")
        why = "it is a key" if said in keys or constraints.get("unique") else ""
        column = None if why else _column(name, field, constraints, spellings=spellings)
        if column is not None:
            columns.append(column)
            continue
        ignored.append(said)
        if not why and field.get("type", "string") == "string":
            template = {"name": said, "kind": "categorical", "categories": [_GAP]}
            unlisted.append(Unlisted(said, (("column", {**template, "from": f"public: {_GAP}"}),)))
        else:
            why = why or f"of type {field.get('type')!r}, which is not modelled"
            left_out.append(f"{said}: {why}")
    if not columns:
        raise DataError(
            f"{name}: has no column that can be drafted; expected numbers, dates, or texts with an enum"
        )
    source = _one_line(f"public: {name}")
    listed = [
        c for c in columns if isinstance(c, Categorical) or not (c.private and c.private.free)
    ]
    domain = Domain(
        tuple(columns),
        spellings if any(column.missing for column in columns) else spellings or ("",),
        ignore=tuple(ignored),
        provenance=tuple(Provenance(column.name, ((WHOLE, source),)) for column in listed),
    )
    return Draft(
        domain,
        (),
        tuple(left_out),
        "a Table Schema",
        private=True,
        unlisted=tuple(unlisted),
    )


def _column(
    schema: str,
    field: Mapping[str, object],
    constraints: Mapping[str, object],
    *,
    spellings: Sequence[str],
) -> Column | None:
    """Returns the column of a field; None if it has no listed values and no kind of a domain's.

    Raises ``DataError`` for bounds or values that are none.
    """
    name, kind = str(field["name"]), field.get("type", "string")
    # Without a spelling nothing can be missing.
    missing = not constraints.get("required", False) and bool(spellings)
    values = constraints.get("enum")
    bounds = constraints.get("minimum"), constraints.get("maximum")
    try:
        if isinstance(values, list) and values:
            listed = [_written(field, value) for value in values]
            return Categorical(name, tuple(dict.fromkeys(listed)), missing=missing)
        if kind == "boolean":
            both = [_written(field, value) for value in (False, True)]
            return Categorical(name, tuple(both), missing=missing)
        if kind == "integer":
            return _integer(name, bounds, missing=missing)
        if kind in ("number", "currency"):
            return _real(name, bounds, missing=missing)
        if kind in _DATES:
            return _moment(name, field, bounds, missing=missing)
    except (ArithmeticError, DomainError, ValueError) as error:
        raise DataError(f"{schema}: the field {name!r} cannot be drafted: {error}") from error
    return None


def _integer(name: str, bounds: tuple[object, object], *, missing: bool) -> Ordered:
    low, high = bounds
    if low is None or high is None:
        return without_values(Integer(name, 0, 1))
    return Integer(name, int(str(low)), int(str(high)), missing=missing, private=PrivateBins())


def _real(name: str, bounds: tuple[object, object], *, missing: bool) -> Ordered:
    numbers = [Decimal(str(bound)) for bound in bounds if bound is not None]
    exponents = [number.normalize().as_tuple().exponent for number in numbers]
    places = max([_DECIMALS, *(-exponent for exponent in exponents if isinstance(exponent, int))])
    if len(numbers) < 2:
        return without_values(Real(name, 0.0, 1.0, decimals=places))
    low, high = map(float, numbers)
    return Real(name, low, high, missing=missing, decimals=places, private=PrivateBins())


def _moment(
    name: str, field: Mapping[str, object], bounds: tuple[object, object], *, missing: bool
) -> Ordered:
    kind, unit, form = _DATES[str(field["type"])]
    pattern = field.get("format", "default")
    if isinstance(pattern, str) and "%" in pattern:
        form = pattern
    low, high = bounds
    if low is None or high is None:
        some = {"day": "2000-01-01", "month": "2000-01"}.get(unit, "2000-01-01T00:00:00")
        return without_values(Moment(name, kind, some, some, unit, form=form))
    return Moment(
        *(name, kind, str(low), str(high), unit), missing=missing, form=form, private=PrivateBins()
    )


def _written(field: Mapping[str, object], value: object) -> str:
    """Returns a listed value as tables have it: truths in the field's words."""
    if isinstance(value, bool):
        words = field.get("trueValues" if value else "falseValues")
        return str(words[0]) if isinstance(words, list) and words else str(value)
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"{value!r} is no text, number or truth value")


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:200]
