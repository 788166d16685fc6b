"""Reader of the ``[[column]]`` tables of a configuration: known keys, required keys, types.

All values here are public. Raises ``DomainError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import TypeVar

from mechanisms.column_keys import COLUMN_KEYS, DEFAULT_OTHER, DEFAULT_UNITS, IMPLIED
from mechanisms.column_parts import DEFAULT_BINS, LINEAR, PRIVATE
from mechanisms.columns import Categorical, Column, Implied, Moment
from mechanisms.date_patterns import form_of
from mechanisms.endings import read_endings
from mechanisms.errors import DomainError
from mechanisms.moments import DEFAULT_FORMS, UNITS
from mechanisms.numbers import Integer, Real
from mechanisms.private_bins import MAX_RESOLUTION, PrivateBins
from mechanisms.private_categories import PrivateCategories
from mechanisms.scale_free import largest_real, moment_bounds, whole_bounds
from mechanisms.table_keys import optional_of, required_of

_T = TypeVar("_T")
_MEASURED = frozenset({"coarse", "histogram", "deviation"})
_PRIVATE = _MEASURED | {"resolution"}
_BESIDE_VALUES = ("low", "high", "bins", "edges", "within", "atoms", "scale", "resolution")
"""Keys of bounds and bins, none of which stands beside values = "private"."""
_KEYS = {kind: frozenset(keys) for kind, keys in COLUMN_KEYS.items() if kind != IMPLIED}


def read_column(position: int, table: object) -> Column | Implied:
    """Returns the column that ``table`` describes, at ``position`` from 0."""
    where = f"column {position + 1}"
    if not isinstance(table, Mapping):
        raise DomainError(f"{where}: a table is needed, with name, kind and what the kind needs")
    if isinstance(table.get("name"), str):
        where = f"column {table['name']!r}"
    if "implied_by" in table:
        return _read_implied(where, table, position)
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in _KEYS:
        kinds = ", ".join(f'"{name}"' for name in _KEYS)
        raise DomainError(f"{where}: kind = {kind!r}; it is one of {kinds}")
    check_keys(where, table, required=set(), optional=_KEYS[kind])
    if "values" in table:
        required = {"name", "kind"} | ({"candidates"} if kind == "categorical" else set())
        _check_values(where, table, kind)
    elif kind == "categorical":
        required = {"name", "kind", "categories"}
    else:
        required = {"name", "kind"} | (set() if "edges" in table else {"low", "high"})
    # The key `from` (where the values are from) is read by `mechanisms.provenance`.
    check_keys(where, table, required=required, optional=_KEYS[kind] - required)
    if kind == "categorical":
        return _read_categorical(where, table)
    if kind in DEFAULT_UNITS:
        return _read_moment(where, table, kind)
    return _read_integer(where, table) if kind == "integer" else _read_real(where, table)


def check_keys(
    where: str,
    table: Mapping[str, object],
    *,
    required: set[str],
    optional: set[str] | frozenset[str],
) -> None:
    """Raises ``DomainError`` for an unknown key, or a missing required one."""
    if unknown := sorted(set(table) - required - optional):
        known = ", ".join(sorted(required | optional))
        raise DomainError(f"{where}: unknown key {unknown[0]!r}; the keys are {known}")
    if absent := sorted(required - set(table)):
        raise DomainError(f"{where}: the key {absent[0]!r} is missing")


def read_strings(where: str, table: Mapping[str, object], key: str) -> tuple[str, ...]:
    """Returns an array of strings. Raises ``DomainError`` for any other value."""
    values = table[key]
    if (
        not isinstance(values, Sequence)
        or isinstance(values, str)
        or not all(isinstance(v, str) for v in values)
    ):
        raise DomainError(f"{where}: {key} has to be an array of strings, written as in the table")
    return tuple(values)


def _read_categorical(where: str, table: Mapping[str, object]) -> Categorical:
    name, missing = _value(where, table, "name", str), _missing(where, table)
    prefix = _value(where, table, "prefix", int) if "prefix" in table else 0
    atoms = read_strings(where, table, "atoms") if "atoms" in table else ()
    other = _value(where, table, "other", str) if "other" in table else ""
    if "values" not in table:
        if beside := sorted((_MEASURED | {"candidates"}) & set(table)):
            raise DomainError(
                f'{where}: {beside[0]} stands without values = "{PRIVATE}"; expected it beside, or categories alone'
            )
        categories = read_strings(where, table, "categories")
        return Categorical(name, categories, missing, prefix, atoms, other)
    histogram = _array(where, table, "histogram", _whole)
    candidates, coarse = read_strings(where, table, "candidates"), _coarse(where, table)
    try:
        private = PrivateCategories(candidates, coarse, histogram, _deviation(where, table))
    except DomainError as error:
        raise DomainError(f"{where}: {error}") from None
    other = other or DEFAULT_OTHER
    return Categorical(name, private.categories, missing, other=other, private=private)


def _read_integer(where: str, table: Mapping[str, object]) -> Integer:
    edges = _array(where, table, "edges", _whole)
    if "values" in table:
        low, high = whole_bounds(_format(where, table))
    else:
        low, high = _bounds(where, table, edges, _whole)
    return Integer(
        _value(where, table, "name", str),
        low,
        high,
        _bins(where, table),
        _missing(where, table),
        edges,
        _scale(where, table),
        _array(where, table, "atoms", _whole),
        _private(where, table),
        _array(where, table, "within", _whole),
        _format(where, table),
        _marks(where, table),
        _endings(table),
    )


def _read_real(where: str, table: Mapping[str, object]) -> Real:
    edges = _array(where, table, "edges", _number)
    decimals = _value(where, table, "decimals", int) if "decimals" in table else None
    if "values" in table:
        high = largest_real(decimals or 0)
        low = -high
    else:
        low, high = _bounds(where, table, edges, _number)
    return Real(
        _value(where, table, "name", str),
        low,
        high,
        _bins(where, table),
        _missing(where, table),
        edges,
        _scale(where, table),
        _array(where, table, "atoms", _number),
        decimals,
        _private(where, table),
        _array(where, table, "within", _number),
        _format(where, table),
        _marks(where, table),
        _endings(table),
        _value(where, table, "digits", int) if "digits" in table else None,
    )


def _read_moment(where: str, table: Mapping[str, object], kind: str) -> Moment:
    edges = _array(where, table, "edges", _moment)
    unit = _value(where, table, "unit", str) if "unit" in table else DEFAULT_UNITS[kind]
    if "values" in table:
        low, high = _any_moments(where, kind, unit=unit, form=_format(where, table))
    else:
        low, high = _bounds(where, table, edges, _moment)
    return Moment(
        _value(where, table, "name", str),
        kind,
        low,
        high,
        unit,
        _bins(where, table),
        _missing(where, table),
        edges,
        _array(where, table, "atoms", _moment),
        _format(where, table),
        _array(where, table, "within", _moment),
        _marks(where, table),
        _private(where, table),
    )


def _check_values(where: str, table: Mapping[str, object], kind: str) -> None:
    """Raises ``DomainError`` for other ``values`` than private ones, or for bounds and bins beside them."""
    if table["values"] != PRIVATE:
        raise DomainError(
            f'{where}: values = {table["values"]!r}; expected values = "{PRIVATE}", with which the run finds bounds '
            "and bins, or the frequent ones of candidates, by noisy counts; or low and high, or categories"
        )
    if kind == "categorical":
        _check_candidates(where, table)
        return
    if beside := [key for key in _BESIDE_VALUES if key in table]:
        raise DomainError(
            f'{where}: values = "{PRIVATE}" stands beside {beside[0]}, which the run finds by noisy counts; expected '
            f'it alone, or bins = "{PRIVATE}" beside low and high that are public'
        )
    if kind == "real" and "decimals" not in table:
        raise DomainError(
            f'{where}: values = "{PRIVATE}" needs decimals, to which values are rounded; expected decimals = 2, say'
        )


def _check_candidates(where: str, table: Mapping[str, object]) -> None:
    """Raises ``DomainError`` for private categories without candidates, or beside listed ones."""
    if "candidates" not in table:
        raise DomainError(
            f'{where}: values = "{PRIVATE}" has no candidates; expected candidates = ["..."], all codes of a public '
            "list, or the name of a file with a code on each line: a run finds no value that nobody listed"
        )
    if beside := [key for key in ("categories", "prefix", "atoms") if key in table]:
        raise DomainError(
            f'{where}: values = "{PRIVATE}" stands beside {beside[0]}; expected candidates, of which the run keeps the '
            "frequent ones, or categories without values"
        )


def _any_moments(where: str, kind: str, *, unit: str, form: str) -> tuple[str, str]:
    """Returns bounds that any moment in this form keeps."""
    shape = form_of(form or DEFAULT_FORMS[kind])
    # Moment refuses unknown forms and units, with what is right.
    known = shape is not None and unit in UNITS
    bounds = moment_bounds(shape, kind, unit) if shape is not None and known else ("", "")
    if bounds is None:
        raise DomainError(
            f'{where}: format = {form!r} beside values = "{PRIVATE}"; no bounds are known that every such {kind} '
            f'keeps; expected low and high, with bins = "{PRIVATE}"'
        )
    return bounds


def _read_implied(where: str, table: Mapping[str, object], position: int) -> Implied:
    keys = COLUMN_KEYS[IMPLIED]
    check_keys(where, table, required=required_of(keys), optional=optional_of(keys))
    values = table["values"]
    if not isinstance(values, Mapping) or not all(
        isinstance(value, str | int | float) and not isinstance(value, bool)
        for value in values.values()
    ):
        raise DomainError(
            f"{where}: values is a table: each value of {table['implied_by']!r} and what follows from it"
        )
    pairs = tuple(sorted((str(key), str(value)) for key, value in values.items()))
    name, source = (_value(where, table, key, str) for key in ("name", "implied_by"))
    return Implied(name, source, pairs, position)


def _bounds(
    where: str,
    table: Mapping[str, object],
    edges: tuple[_T, ...],
    read: Callable[[str, str, object], _T],
) -> tuple[_T, _T]:
    """Returns low and high; given ``edges``, the first and the last of them."""
    if "edges" not in table:
        return read(where, "low", table["low"]), read(where, "high", table["high"])
    if beside := sorted({"low", "high", "bins"} & set(table)):
        raise DomainError(f"{where}: edges stand beside {beside[0]}; give edges alone")
    if len(edges) < 2:
        raise DomainError(f"{where}: edges are two or more, each above the one before")
    return edges[0], edges[-1]


def _array(
    where: str,
    table: Mapping[str, object],
    key: str,
    read: Callable[[str, str, object], _T],
) -> tuple[_T, ...]:
    values = table.get(key, ())
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise DomainError(f"{where}: {key} = {values!r}; an array is needed")
    return tuple(read(where, key, value) for value in values)


def _value(where: str, table: Mapping[str, object], key: str, kind: type[_T]) -> _T:
    return _typed(where, key, table[key], kind)


def _typed(where: str, key: str, value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise DomainError(f"{where}: {key} = {value!r}; a value of type {kind.__name__} is needed")
    return value


def _whole(where: str, key: str, value: object) -> int:
    return _typed(where, key, value, int)


def _number(where: str, key: str, value: object) -> float:
    try:
        return float(value) if type(value) is int else _typed(where, key, value, float)
    except OverflowError:
        raise DomainError(f"{where}: {key} is more than a double holds") from None


def _moment(where: str, key: str, value: object) -> str:
    """Returns a moment of a TOML file as text, whether it stands in quotes or not."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    return _typed(where, key, value, str)


def _bins(where: str, table: Mapping[str, object]) -> int:
    if table.get("bins") == PRIVATE:
        return DEFAULT_BINS
    return _value(where, table, "bins", int) if "bins" in table else DEFAULT_BINS


def _private(where: str, table: Mapping[str, object]) -> PrivateBins | None:
    free = "values" in table
    if not free and table.get("bins") != PRIVATE:
        if beside := sorted(_PRIVATE & set(table)):
            raise DomainError(f'{where}: {beside[0]} stands without bins = "{PRIVATE}"')
        return None
    resolution = MAX_RESOLUTION
    if "resolution" in table:
        resolution = _value(where, table, "resolution", int)
    coarse, deviation = _coarse(where, table), _deviation(where, table)
    try:
        histogram = _array(where, table, "histogram", _whole)
        return PrivateBins(resolution, coarse, histogram, deviation, free)
    except DomainError as error:
        raise DomainError(f"{where}: {error}") from None


def _coarse(where: str, table: Mapping[str, object]) -> int:
    return _value(where, table, "coarse", int) if "coarse" in table else DEFAULT_BINS


def _deviation(where: str, table: Mapping[str, object]) -> float:
    return _number(where, "deviation", table["deviation"]) if "deviation" in table else 0.0


def _scale(where: str, table: Mapping[str, object]) -> str:
    return _value(where, table, "scale", str) if "scale" in table else LINEAR


def _format(where: str, table: Mapping[str, object]) -> str:
    return _value(where, table, "format", str) if "format" in table else ""


def _marks(where: str, table: Mapping[str, object]) -> tuple[str, ...]:
    return read_strings(where, table, "marks") if "marks" in table else ()


def _endings(table: Mapping[str, object]) -> tuple[tuple[str, float], ...]:
    return read_endings(str(table["name"]), table["endings"]) if "endings" in table else ()


def _missing(where: str, table: Mapping[str, object]) -> bool:
    return _value(where, table, "missing", bool) if "missing" in table else False
