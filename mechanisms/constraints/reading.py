"""Reader of the ``[[constraint]]`` tables of a configuration: known keys, required keys, types.

All values here are public. Raises ``DomainError`` that names the constraint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation

from mechanisms.column_reading import check_keys, read_strings
from mechanisms.columns import Implied
from mechanisms.constraints.conjunction import read_tests
from mechanisms.constraints.declared import (
    REFUSE,
    VIOLATIONS,
    Constraint,
    Equals,
    Never,
    OneHot,
    Order,
    Shares,
    When,
)
from mechanisms.constraints.formula import Born, Years, read_sum
from mechanisms.errors import DomainError
from mechanisms.table_keys import REQUIRED, Range, TableKey, optional_of, required_of

_COMPUTED = TableKey("text", "Column that is computed.", REQUIRED)
_VIOLATIONS = TableKey(
    "text", "Treatment of an owner's rows that contradict it.", f'"{REFUSE}"', VIOLATIONS
)
CONSTRAINT_KEYS: Mapping[str, Mapping[str, TableKey]] = {
    "equals": {
        "equals": TableKey("text", "Columns and numbers with `+` and `-`.", REQUIRED),
        "column": _COMPUTED,
        "violations": _VIOLATIONS,
    },
    "years_since": {
        "years_since": TableKey("text", "Column of a date from which full years count.", REQUIRED),
        "column": _COMPUTED,
        "on": TableKey("date or text", "Day to which they count, or its column.", REQUIRED),
        "violations": _VIOLATIONS,
    },
    "born": {
        "born": TableKey("text", "Column of full years.", REQUIRED),
        "column": _COMPUTED,
        "on": TableKey("text", "Column of the day on which the years are counted.", REQUIRED),
        "violations": _VIOLATIONS,
    },
    "order": {
        "order": TableKey("list of texts", "Columns, none above the next one.", REQUIRED),
        "violations": _VIOLATIONS,
    },
    "never": {
        "never": TableKey("text", "Tests, joined by `and`, that no row satisfies.", REQUIRED),
        "violations": _VIOLATIONS,
    },
    "when": {
        "when": TableKey("text", "Tests, joined by `and`.", REQUIRED),
        "then": TableKey("text", "Tests that a row satisfies if it satisfies those.", REQUIRED),
        "violations": _VIOLATIONS,
    },
    "shares": {
        "shares": TableKey(
            "list of texts", "Columns of numbers with one sum; the last is computed.", REQUIRED
        ),
        "total": TableKey("number", "Their sum.", REQUIRED, Range(0, above=True)),
        "violations": _VIOLATIONS,
    },
    "one_hot": {
        "one_hot": TableKey("list of texts", "Columns of which one has `yes`.", REQUIRED),
        "column": TableKey("text", "Column of categories that is modelled instead.", REQUIRED),
        "yes": TableKey("text", "Text of the one column.", '"1"'),
        "no": TableKey("text", "Text of the other columns.", '"0"'),
        "none": TableKey("text", "Category of rows in which no column has `yes`."),
        "violations": _VIOLATIONS,
    },
    "follows": {
        "follows": TableKey("text", "Column that another one follows from.", REQUIRED),
        "column": TableKey("text", "Column that follows; it is filled in.", REQUIRED),
        "values": TableKey("table", "Value for each value of that column.", REQUIRED),
    },
}
"""Keys of each kind, which is told by its first key."""
_LISTS = frozenset({"order", "shares", "one_hot"})


def computed_columns(tables: Sequence[Mapping[str, object]]) -> frozenset[object]:
    """Returns the names of the columns that constraints compute, from ``[[constraint]]`` tables not checked yet."""
    names = [table.get("column") for table in tables if "one_hot" not in table]
    shares = [table.get("shares") for table in tables]
    names += [each[-1] for each in shares if isinstance(each, list) and each]
    return frozenset(name for name in names if isinstance(name, str))


def read_constraint(position: int, table: object, described: Sequence[str]) -> Constraint | Implied:
    """Returns the constraint that ``table`` declares, at ``position`` from 0; ``described`` names all columns."""
    where = f"[[constraint]] {position + 1}"
    if not isinstance(table, Mapping):
        raise DomainError(f"{where}: a table is needed, with one of {', '.join(CONSTRAINT_KEYS)}")
    kinds = [kind for kind in CONSTRAINT_KEYS if kind in table]
    if len(kinds) != 1:
        raise DomainError(
            f"{where}: has {' and '.join(kinds) or 'no kind'}; expected one of {', '.join(CONSTRAINT_KEYS)}"
        )
    kind = kinds[0]
    where = f"[[constraint]] {position + 1}, {kind} = {table[kind]!r}"
    keys = CONSTRAINT_KEYS[kind]
    check_keys(where, table, required=required_of(keys), optional=optional_of(keys))
    for key in set(table) - _LISTS - {"total", "values", "on", "violations"}:
        if not isinstance(table[key], str) or not (table[key] or key == "no"):
            raise DomainError(f"{where}: {key} = {table[key]!r}; a text is needed")
    violations = table.get("violations", REFUSE)
    if violations not in VIOLATIONS:
        raise DomainError(
            f"{where}: violations = {violations!r}; expected {' or '.join(map(repr, VIOLATIONS))}"
        )
    return _read(kind, where, table, violations=violations, described=described)


def _read(
    kind: str,
    where: str,
    table: Mapping[str, object],
    *,
    violations: str,
    described: Sequence[str],
) -> Constraint | Implied:
    def text(key: str, default: str = "") -> str:
        return str(table.get(key, default))

    if kind == "equals":
        return Equals(text("column"), read_sum(where, text("equals")), violations)
    if kind == "years_since":
        on = table["on"]
        day = on.isoformat() if isinstance(on, date) else str(on)
        return Equals(text("column"), Years(text("years_since"), day, day in described), violations)
    if kind == "born":
        return Equals(text("column"), Born(text("born"), text("on")), violations)
    if kind == "order":
        return Order(read_strings(where, table, "order"), violations)
    if kind == "never":
        return Never(text("never"), read_tests(where, text("never")), violations)
    if kind == "when":
        given, required = read_tests(where, text("when")), read_tests(where, text("then"))
        return When(text("when"), text("then"), given, required, violations)
    if kind == "shares":
        columns, total = read_strings(where, table, "shares"), _total(where, table)
        if not columns:
            raise DomainError(f"{where}: has no columns; expected those that sum to {total}")
        return Shares(columns, total, violations)
    if kind == "one_hot":
        members = read_strings(where, table, "one_hot")
        return OneHot(
            members, text("column"), text("yes", "1"), text("no", "0"), text("none"), violations
        )
    return _follows(where, table, described)


def _follows(where: str, table: Mapping[str, object], described: Sequence[str]) -> Implied:
    values, name = table["values"], str(table["column"])
    if not isinstance(values, Mapping) or not all(
        isinstance(value, str | int | float) and not isinstance(value, bool)
        for value in values.values()
    ):
        raise DomainError(
            f"{where}: values is a table: each value of {table['follows']!r} and what follows from it"
        )
    if name not in described:
        raise DomainError(f"{where}: no [[column]] describes {name!r}; expected one of {described}")
    pairs = tuple(sorted((str(key), str(value)) for key, value in values.items()))
    return Implied(name, str(table["follows"]), pairs, described.index(name))


def _total(where: str, table: Mapping[str, object]) -> str:
    total = table["total"]
    try:
        if isinstance(total, bool) or not isinstance(total, int | float):
            raise InvalidOperation
        number = Decimal(repr(total))
        if not number.is_finite() or number <= 0:
            raise InvalidOperation
    except InvalidOperation:
        raise DomainError(f"{where}: total = {total!r}; expected a number above 0") from None
    return f"{number.normalize():f}"
