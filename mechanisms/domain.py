"""The public description of a table: its columns, their kinds, and the codes their values map to.

Provides ``Categorical``, ``Integer`` and ``Real`` columns and ``Domain``, an ordered set of them.
Every value of a column is one of the codes 0 .. size-1; a column that allows missing values has one
code more, the last, for them.

Public: all of it. A domain has to be public knowledge and not read from private data
(``table.draft_domain`` marks what it read). Secret: nothing.

Representation: numeric columns are cut into ``bins`` bins of equal width between public bounds,
both included. An integer column with no more values than bins has one bin per value.

Source: FLAIM paper, section 5 (32 uniform bins). Limits: no dates, no hierarchies; a value outside
the bounds is an error and is not clipped.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from mechanisms.errors import DomainError

Clique: TypeAlias = tuple[str, ...]

DEFAULT_BINS = 32
DEFAULT_MISSING_VALUES = ("", "?")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Categorical:
    """A column whose values are listed.

    ``categories`` are the values as they are written in the table; code i is the i-th of them.
    Raises ``DomainError`` if there is none, or one is listed twice.
    """

    name: str
    categories: tuple[str, ...]
    missing: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not self.categories:
            raise DomainError(f"column {self.name!r}: categories is empty; list at least one value")
        if twice := _duplicates(self.categories):
            raise DomainError(
                f"column {self.name!r}: category {twice[0]!r} is listed more than once"
            )

    @property
    def size(self) -> int:
        """The number of codes, the missing one included."""
        return len(self.categories) + self.missing

    @property
    def allowed(self) -> str:
        """What a value may be, for an error message."""
        shown = ", ".join(repr(value) for value in self.categories[:8])
        more = len(self.categories) - 8
        return f"one of {shown}" + (f" or {more} more" if more > 0 else "")

    def code_of(self, value: str) -> int | None:
        """The code of a written value that is not missing, or None if it is not allowed."""
        try:
            return self.categories.index(value)
        except ValueError:
            return None

    def to_dict(self) -> dict[str, object]:
        """The ``[[column]]`` table of a configuration."""
        return {
            "name": self.name,
            "kind": "categorical",
            "categories": list(self.categories),
            "missing": self.missing,
        }


@dataclass(frozen=True, slots=True)
class Integer:
    """A column of whole numbers ``low`` .. ``high``, both included, in bins of equal width.

    Where the width is not whole, bins differ by one number at most.

    Raises ``DomainError`` if the bounds are out of order or beyond 64 bits, or there is no bin.
    """

    name: str
    low: int
    high: int
    bins: int = DEFAULT_BINS
    missing: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_bins(self.name, self.bins)
        if self.low > self.high:
            raise DomainError(f"column {self.name!r}: low = {self.low} is above high = {self.high}")
        if self.low < -(2**63) or self.high >= 2**63:
            raise DomainError(
                f"column {self.name!r}: low = {self.low}, high = {self.high}; 64 bits hold whole numbers"
            )

    @property
    def values(self) -> int:
        """How many whole numbers lie between the bounds."""
        return self.high - self.low + 1

    @property
    def used_bins(self) -> int:
        """The bins there are: never more than values."""
        return min(self.bins, self.values)

    @property
    def size(self) -> int:
        """The number of codes, the missing one included."""
        return self.used_bins + self.missing

    @property
    def allowed(self) -> str:
        """What a value may be, for an error message."""
        return f"a whole number from {self.low} to {self.high}"

    def code_of(self, value: str) -> int | None:
        """The code of a written value that is not missing, or None if it is not allowed."""
        number = parse_whole(value)
        if number is None or not self.low <= number <= self.high:
            return None
        return (number - self.low) * self.used_bins // self.values

    def bin_range(self, code: int) -> tuple[int, int]:
        """The smallest and the largest whole number with this code (not the missing one)."""
        first = -(-code * self.values // self.used_bins)
        after = -(-(code + 1) * self.values // self.used_bins)
        return self.low + first, self.low + after - 1

    def to_dict(self) -> dict[str, object]:
        """The ``[[column]]`` table of a configuration."""
        return {
            "name": self.name,
            "kind": "integer",
            "low": self.low,
            "high": self.high,
            "bins": self.bins,
            "missing": self.missing,
        }


@dataclass(frozen=True, slots=True)
class Real:
    """A column of numbers ``low`` .. ``high``, both included, in ``bins`` bins of equal width.

    Raises ``DomainError`` if the bounds are not finite or out of order, there is no bin, or bins cannot be
    told from one another in 15 digits.
    """

    name: str
    low: float
    high: float
    bins: int = DEFAULT_BINS
    missing: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_bins(self.name, self.bins)
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise DomainError(
                f"column {self.name!r}: low = {self.low}, high = {self.high};"
                " real bounds are finite and low is below high"
            )
        width = (self.high - self.low) / self.bins
        if (
            not 0 < width < math.inf
            or self.decimals > 15
            or max(-self.low, self.high) * 10**self.decimals >= 2**53
        ):
            raise DomainError(
                f"column {self.name!r}: bins of low = {self.low} .. high = {self.high} need more than"
                " 15 digits; use another unit or fewer bins"
            )

    @property
    def edges(self) -> tuple[float, ...]:
        """The bins + 1 edges; bin i is [edge i, edge i+1), the last one closed."""
        step = (self.high - self.low) / self.bins
        return (*(self.low + i * step for i in range(self.bins)), self.high)

    @property
    def decimals(self) -> int:
        """Decimals that tell about a hundred values of one bin apart."""
        width = (self.high - self.low) / self.bins
        return max(0, 2 - math.floor(math.log10(width)))

    @property
    def size(self) -> int:
        """The number of codes, the missing one included."""
        return self.bins + self.missing

    @property
    def allowed(self) -> str:
        """What a value may be, for an error message."""
        return f"a number from {self.low:g} to {self.high:g}"

    def code_of(self, value: str) -> int | None:
        """The code of a written value that is not missing, or None if it is not allowed."""
        number = parse_number(value)
        if number is None or not self.low <= number <= self.high:
            return None
        return min(bisect_right(self.edges, number) - 1, self.bins - 1)

    def bin_multiples(self, code: int) -> tuple[int, int]:
        """The smallest and the largest k for which k / 10^decimals has this code."""
        edges, unit = self.edges, 10**self.decimals
        last = _first_multiple(edges[code + 1], unit)
        # The last bin holds its upper edge, if that is a multiple.
        if code < self.bins - 1 or last / unit > self.high:
            last -= 1
        return _first_multiple(edges[code], unit), last

    def to_dict(self) -> dict[str, object]:
        """The ``[[column]]`` table of a configuration."""
        return {
            "name": self.name,
            "kind": "real",
            "low": self.low,
            "high": self.high,
            "bins": self.bins,
            "missing": self.missing,
        }


Column: TypeAlias = Categorical | Integer | Real


@dataclass(frozen=True, slots=True)
class Domain:
    """An ordered set of columns, and how a missing value is written.

    A value that a categorical column lists is that category even if ``missing_values`` holds it
    too. Raises ``DomainError`` without columns, or if two have the same name.
    """

    columns: tuple[Column, ...]
    missing_values: tuple[str, ...] = DEFAULT_MISSING_VALUES

    def __post_init__(self) -> None:
        if not self.columns:
            raise DomainError("the domain has no columns; describe at least one")
        if twice := _duplicates(self.names):
            raise DomainError(f"column {twice[0]!r} is described more than once; names are unique")
        if not self.missing_values and any(column.missing for column in self.columns):
            raise DomainError(
                "missing values are allowed but missing.values is empty; list how they are written"
            )

    @property
    def names(self) -> Clique:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of codes of each column, the missing one included."""
        return tuple(column.size for column in self.columns)

    def index(self, name: str) -> int:
        """The position of a column. Raises ``DomainError`` if there is none of that name."""
        try:
            return self.names.index(name)
        except ValueError:
            raise DomainError(
                f"no column {name!r}; the columns are {', '.join(self.names)}"
            ) from None

    def sizes(self, clique: Clique) -> tuple[int, ...]:
        """The number of codes of each column of ``clique``: the shape of its marginal."""
        return tuple(self.columns[self.index(name)].size for name in clique)

    def size(self, clique: Clique) -> int:
        """The number of cells of the marginal of ``clique``."""
        return math.prod(self.sizes(clique))

    def to_dict(self) -> dict[str, object]:
        """The ``[[column]]`` and ``[missing]`` tables of a configuration."""
        return {
            "column": [column.to_dict() for column in self.columns],
            "missing": {"values": list(self.missing_values)},
        }

    @classmethod
    def from_dict(cls, tables: Mapping[str, object]) -> Domain:
        """The domain of the ``[[column]]`` and (optional) ``[missing]`` tables of a configuration.

        Raises ``DomainError`` on an unknown key, a missing one, or a value of the wrong type.
        """
        _check_keys("the domain", tables, required={"column"}, optional={"missing"})
        columns = tables["column"]
        if not isinstance(columns, Sequence) or isinstance(columns, str):
            raise DomainError(
                "column: an array of tables is needed, one [[column]] for each column"
            )
        missing = tables.get("missing", {})
        if not isinstance(missing, Mapping):
            raise DomainError('missing: a table is needed, such as [missing] values = ["", "?"]')
        _check_keys("[missing]", missing, required=set(), optional={"values"})
        spellings = (
            _strings("[missing]", missing, "values")
            if "values" in missing
            else DEFAULT_MISSING_VALUES
        )
        return cls(
            tuple(_column_from_dict(i, column) for i, column in enumerate(columns)), spellings
        )

    def digest(self) -> str:
        """Hex SHA-256 of the canonical JSON of ``to_dict()``: the same on every machine."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def _column_from_dict(position: int, table: object) -> Column:
    where = f"column {position + 1}"
    if not isinstance(table, Mapping):
        raise DomainError(f"{where}: a table is needed, with name, kind and what the kind needs")
    if isinstance(table.get("name"), str):
        where = f"column {table['name']!r}"
    kind = table.get("kind")
    if kind == "categorical":
        _check_keys(where, table, required={"name", "kind", "categories"}, optional={"missing"})
        name, missing = _value(where, table, "name", str), _missing(where, table)
        return Categorical(name, _strings(where, table, "categories"), missing)
    if kind not in ("integer", "real"):
        raise DomainError(f'{where}: kind = {kind!r}; it is "categorical", "integer" or "real"')
    _check_keys(
        where, table, required={"name", "kind", "low", "high"}, optional={"bins", "missing"}
    )
    name, missing = _value(where, table, "name", str), _missing(where, table)
    bins = _value(where, table, "bins", int) if "bins" in table else DEFAULT_BINS
    if kind == "integer":
        return Integer(
            name, _value(where, table, "low", int), _value(where, table, "high", int), bins, missing
        )
    return Real(name, _number(where, table, "low"), _number(where, table, "high"), bins, missing)


def _check_keys(
    where: str, table: Mapping[str, object], *, required: set[str], optional: set[str]
) -> None:
    if unknown := sorted(set(table) - required - optional):
        known = ", ".join(sorted(required | optional))
        raise DomainError(f"{where}: unknown key {unknown[0]!r}; the keys are {known}")
    if absent := sorted(required - set(table)):
        raise DomainError(f"{where}: the key {absent[0]!r} is missing")


def _value(where: str, table: Mapping[str, object], key: str, kind: type[_T]) -> _T:
    value = table[key]
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise DomainError(f"{where}: {key} = {value!r}; a value of type {kind.__name__} is needed")
    return value


def _number(where: str, table: Mapping[str, object], key: str) -> float:
    value = table[key]
    try:
        return float(value) if type(value) is int else _value(where, table, key, float)
    except OverflowError:
        raise DomainError(f"{where}: {key} is more than a double holds") from None


def _missing(where: str, table: Mapping[str, object]) -> bool:
    return _value(where, table, "missing", bool) if "missing" in table else False


def _strings(where: str, table: Mapping[str, object], key: str) -> tuple[str, ...]:
    values = table[key]
    if (
        not isinstance(values, Sequence)
        or isinstance(values, str)
        or not all(isinstance(v, str) for v in values)
    ):
        raise DomainError(f"{where}: {key} has to be an array of strings, written as in the table")
    return tuple(values)


def _first_multiple(edge: float, unit: int) -> int:
    """The smallest k with k / unit >= edge, as doubles compare."""
    guess = math.floor(edge * unit) - 1
    return next(k for k in range(guess, guess + 4) if k / unit >= edge)


def _check_name(name: str) -> None:
    if not name:
        raise DomainError("a column has an empty name; give it the name of the table's header")


def _check_bins(name: str, bins: int) -> None:
    if bins < 1:
        raise DomainError(f"column {name!r}: bins = {bins}; at least 1 is needed")


def _duplicates(values: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


def parse_whole(value: str) -> int | None:
    """A whole number written as ``39``, ``-1`` or ``39.0``; None for anything else."""
    whole, point, fraction = value.strip().partition(".")
    if point and fraction.strip("0"):
        return None
    digits = whole[1:] if whole[:1] in ("+", "-") else whole
    # No column holds a number of a hundred digits, and Python refuses to read one of 4,301.
    return int(whole) if digits.isascii() and digits.isdigit() and len(digits) < 100 else None


def parse_number(value: str) -> float | None:
    """A finite number as tables have it; None for anything else, ``1_000`` and ``inf`` included."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and value.isascii() and "_" not in value else None
