"""Public description of tables with keys: one table of persons, and tables whose rows belong to them.

All values here are public. Raises ``DomainError`` for tables that do not fit one another.
Limits: two levels; a person is known by one column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mechanisms.column_parts import duplicates
from mechanisms.column_reading import check_keys, read_column, read_strings
from mechanisms.columns import Categorical, Column, Moment
from mechanisms.domain import IGNORE_KEY, Domain
from mechanisms.errors import DomainError
from mechanisms.keyed.summaries import Summary, check_summary
from mechanisms.numbers import Integer, Real
from mechanisms.provenance import Provenance
from mechanisms.table_keys import REQUIRED, Range, TableKey, optional_of, required_of

MOST_ROWS = 200
"""Largest number of rows of a person: each number is a cell of its own."""
LINKS = BY_ROWS, BY_TABLES = "rows", "tables"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_TABLE_NAME = TableKey(
    "text",
    "Name of the table: letters, digits, `-` and `_`, a letter first. With run.id it has at most 62 of them.",
    REQUIRED,
)
_KEY = TableKey("text", "Column by which a person is known; it has no [[table.column]].", REQUIRED)
_DESCRIBED = {
    **{
        name: TableKey("tables", f"Tables [[table.{name}]], as [[{name}]] of one table.")
        for name in ("column", "split", "constraint")
    },
    **{
        name: TableKey("table", f"Table [table.{name}], as [{name}] of one table.")
        for name in ("missing", "format")
    },
    "ignore": IGNORE_KEY,
}
PARENT_KEYS: Mapping[str, TableKey] = {
    "name": _TABLE_NAME,
    "key": _KEY,
    "linked": TableKey(
        "text",
        "Linkage of rows on shares: `rows` where a person may be at several owners, `tables` where each table is at "
        "owners of its own. Without the key each owner has all of its persons.",
        "",
        LINKS,
    ),
    **_DESCRIBED,
}
"""Keys of the ``[[table]]`` of persons."""
CHILD_KEYS: Mapping[str, TableKey] = {
    "name": _TABLE_NAME,
    "key": _KEY,
    "parent": TableKey("text", "Name of the table of persons.", REQUIRED),
    "rows": TableKey(
        "whole number",
        "Number of a person's rows that count; the guarantee covers so many.",
        REQUIRED,
        Range(1, MOST_ROWS),
    ),
    "most": TableKey(
        "whole number",
        f"Largest number of rows of a synthetic person, from `rows` to {MOST_ROWS}. Without the key it is `rows`.",
        "",
        Range(1, MOST_ROWS),
    ),
    "order": TableKey(
        "text", "Column, of dates or whole numbers, by which a person's rows follow one another."
    ),
    "constant": TableKey("list of texts", "Columns with one value in all rows of a person."),
    "copied": TableKey(
        "list of texts", "Columns with the value of the person's own column of the same name."
    ),
    "change": TableKey(
        "tables",
        "Tables [[table.change]]: columns that are modelled by their difference from the row before.",
    ),
    "summary": TableKey("tables", "Tables [[table.summary]]: summaries of a person's rows."),
    **_DESCRIBED,
    "column": TableKey(_DESCRIBED["column"].type, _DESCRIBED["column"].said, REQUIRED),
}
"""Keys of a ``[[table]]`` with rows of persons."""


@dataclass(frozen=True, slots=True)
class ParentTable:
    """The table of persons: one row for each, known by ``key``.

    ``domain`` describes its columns without the key. None: there is no such table, and the persons are those whose keys
    stand in the other tables. ``linked`` says that servers link rows by their key, on shares: "rows" where a person may
    be at several owners, "tables" where each table is at owners of its own; "" where each owner has all of its persons.

    Raises ``DomainError`` for another ``linked``.
    """

    name: str
    key: str
    domain: Domain | None = None
    linked: str = ""

    def __post_init__(self) -> None:
        if self.linked not in ("", *LINKS):
            raise DomainError(
                f'table {self.name!r}: linked = {self.linked!r}; expected "rows", where a person may be at several '
                'owners, or "tables", where each table is at owners of its own'
            )


@dataclass(frozen=True, slots=True)
class ChildTable:
    """A table with several rows of a person, who is known by ``key``.

    ``rows`` is the number of a person's rows that count: the privacy guarantee covers a person who has so many.
    ``most`` is the largest number of rows of a synthetic person. ``order`` is the column, of dates or whole numbers, by
    which a person's rows follow one another; without it, they do so as they stand in the table. ``constant`` columns
    have one value in all rows of a person, and ``copied`` ones that of the person's own column of the same name.
    ``changes`` describe, under a column's name, by how much its numbers (or its dates, in their unit) differ from those
    of the row before: such a column is modelled by its changes, and an order always is, with changes from 0.
    ``summaries`` of a person's rows are columns of the view of persons.
    ``said`` states where values of changes are from.
    """

    name: str
    key: str
    domain: Domain
    rows: int
    most: int
    order: str | None = None
    constant: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    changes: tuple[Integer | Real, ...] = ()
    summaries: tuple[Summary, ...] = ()
    said: tuple[Provenance, ...] = ()

    def __post_init__(self) -> None:
        where = f"table {self.name!r}"
        if not 1 <= self.rows <= MOST_ROWS or not self.rows <= self.most <= MOST_ROWS:
            raise DomainError(
                f"{where}: rows = {self.rows}, most = {self.most}; expected 1 <= rows <= most <= {MOST_ROWS}"
            )
        if self.rows == 1 < self.most and self.follows:
            raise DomainError(
                f"{where}: most = {self.most} beside rows = 1, with which no rows that follow one another count; "
                "expected most = 1, or rows from 2"
            )
        if self.key in self.domain.described_names:
            raise DomainError(
                f"{where}: the key {self.key!r} has a column; expected it without one"
            )
        named = (*self.constant, *self.copied, *(each.name for each in self.changes))
        for name in (*named, *([self.order] if self.order else [])):
            if name not in self.domain.names:
                raise DomainError(
                    f"{where}: no column {name!r}; the columns are {', '.join(self.domain.names)}"
                )
        fixed = {*self.constant, *self.copied}
        if twice := duplicates([*named, *([self.order] if self.order in fixed else [])]):
            raise DomainError(
                f"{where}: column {twice[0]!r} is said to be two of constant, copied, changing and the order; expected "
                "one of them"
            )
        for change in self.changes:
            self._check_change(where, change)
        self._check_order(where)
        if twice := duplicates([each.column for each in self.summaries]):
            raise DomainError(f"{where}: two summaries {twice[0]!r}; expected one, or another name")
        own = {name: self.column(name) for name in self.own}
        for summary in self.summaries:
            try:
                check_summary(summary, own, self.changing)
            except DomainError as error:
                raise DomainError(f"{where}: {error}") from error

    def _check_change(self, where: str, change: Integer | Real) -> None:
        column = self.domain.columns[self.domain.index(change.name)]
        if isinstance(column, Categorical):
            raise DomainError(
                f"{where}: change of {change.name!r}, which has categories; expected a column of numbers or dates"
            )
        whole = isinstance(column, Moment | Integer)
        if whole != isinstance(change, Integer) or change.marks or change.missing:
            kind = "integer" if whole else "real"
            raise DomainError(
                f'{where}: change of {change.name!r}; expected kind = "{kind}", as its column has, without marks and '
                "missing"
            )
        if change.name in self._related:
            raise DomainError(
                f"{where}: change of {change.name!r}, which is in a constraint; its values follow from the row before, "
                "so that no other rule can hold for them"
            )

    def _check_order(self, where: str) -> None:
        if self.order is None:
            return
        column = self.domain.columns[self.domain.index(self.order)]
        if not isinstance(column, Moment | Integer) or column.marks:
            raise DomainError(
                f"{where}: order = {self.order!r}; expected a column of dates or whole numbers, without marks"
            )
        if not any(each.name == self.order and each.low >= 0 for each in self.changes):
            raise DomainError(
                f"{where}: order = {self.order!r} stands without its change; expected [[table.change]] with name = "
                f'{self.order!r}, kind = "integer", low from 0 and high, in its unit'
            )

    @property
    def _related(self) -> set[str]:
        return {name for each in self.domain.constraints for name in each.needs}

    @property
    def changing(self) -> tuple[str, ...]:
        """Columns that may differ between rows of a person."""
        return tuple(name for name in self.own if name not in self.constant)

    @property
    def own(self) -> tuple[str, ...]:
        """Columns that are not copied from the person's own ones."""
        return tuple(name for name in self.domain.names if name not in self.copied)

    @property
    def modelled(self) -> tuple[str, ...]:
        """Changing columns whose values are modelled given the row before.

        Those with a change are not, but where a value may be missing or a mark.
        """
        by_change = {each.name for each in self.changes}
        return tuple(
            column.name
            for column in self.domain.columns
            if column.name in self.changing
            and (column.name not in by_change or _may_be_absent(column))
        )

    @property
    def levels(self) -> tuple[str, ...]:
        """Columns that are modelled by their change and by the cell that it leads to: all but the order."""
        return tuple(each.name for each in self.changes if each.name != self.order)

    @property
    def coarse(self) -> tuple[str, ...]:
        """Levels of which coarse cells are enough, since every value is the one before and a change."""
        return tuple(name for name in self.levels if name not in self.modelled)

    @property
    def follows(self) -> bool:
        """True if anything of a row is drawn given the row before; not where all columns are constant or copied."""
        return bool(self.modelled or self.changes)

    def column(self, name: str) -> Column:
        """Returns a column of the table."""
        return self.domain.columns[self.domain.index(name)]


def _may_be_absent(column: Column) -> bool:
    return column.missing or (not isinstance(column, Categorical) and bool(column.marks))


@dataclass(frozen=True)
class KeyedTables:
    """One table of persons and at least one with their rows."""

    parent: ParentTable
    children: tuple[ChildTable, ...]

    def __post_init__(self) -> None:
        names = [self.parent.name, *(child.name for child in self.children)]
        if not self.children:
            raise DomainError(
                f"table {self.parent.name!r} stands alone; expected a [[table]] whose parent it is, too"
            )
        if len(set(names)) < len(names):
            raise DomainError(f"tables are called {', '.join(names)}; expected different names")
        for name in names:
            if not _NAME.fullmatch(name):
                raise DomainError(
                    f"table {name!r}: expected a name of letters, digits, - and _, up to 64, that begins with a letter"
                )
        parent = self.parent.domain
        above = () if parent is None else parent.names
        for child in self.children:
            if unknown := [name for name in child.copied if name not in above]:
                raise DomainError(
                    f"table {child.name!r}: copied has {unknown[0]!r}, which {self.parent.name!r} lacks; expected one "
                    f"of {', '.join(above) or 'none'}"
                )
        if parent is not None and self.parent.key in parent.described_names:
            raise DomainError(
                f"table {self.parent.name!r}: the key {self.parent.key!r} has a column; expected it without one"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tables that are read and written."""
        parent = () if self.parent.domain is None else (self.parent.name,)
        return (*parent, *(child.name for child in self.children))

    @cached_property
    def by_name(self) -> Mapping[str, ParentTable | ChildTable]:
        """Tables by name."""
        found: dict[str, ParentTable | ChildTable] = {self.parent.name: self.parent}
        return found | {child.name: child for child in self.children}

    def domain_of(self, name: str) -> Domain:
        """Returns the domain of a table's columns without the key. Raises ``DomainError`` for a parent without any."""
        domain = self.by_name[name].domain
        if domain is None:
            raise DomainError(f"table {name!r} has no columns")
        return domain

    def to_dict(self) -> list[dict[str, object]]:
        """Returns the ``[[table]]`` tables of a configuration."""
        parent, tables = self.parent, list[dict[str, object]]()
        own = {} if parent.domain is None else _domain_dict(parent.domain, parent.key)
        linked = {"linked": parent.linked} if parent.linked else {}
        tables.append({"name": parent.name, "key": parent.key} | linked | own)
        for child in self.children:
            said: dict[str, object] = {
                "name": child.name,
                "parent": parent.name,
                "key": child.key,
                "rows": child.rows,
                "most": child.most,
            }
            said |= {"order": child.order} if child.order else {}
            said |= {"constant": list(child.constant)} if child.constant else {}
            said |= {"copied": list(child.copied)} if child.copied else {}
            said |= {"change": _change_dicts(child)} if child.changes else {}
            said |= {"summary": [s.to_dict() for s in child.summaries]} if child.summaries else {}
            tables.append(said | _domain_dict(child.domain, child.key))
        return tables

    @classmethod
    def from_list(cls, tables: object) -> KeyedTables:
        """Reads ``[[table]]``. Raises ``DomainError``."""
        if not isinstance(tables, Sequence) or not all(isinstance(t, Mapping) for t in tables):
            raise DomainError("table: expected [[table]], one for each table")
        parents = [table for table in tables if "parent" not in table]
        if len(parents) != 1:
            raise DomainError(
                f"{len(parents)} [[table]] stand without parent; expected one, the table of persons, and the others"
                " with its name as their parent"
            )
        parent = _parent(parents[0])
        children = tuple(_child(table, parent) for table in tables if "parent" in table)
        return cls(parent, children)


def _parent(table: Mapping[str, object]) -> ParentTable:
    name = _text(table, "name", "a [[table]]")
    where = f"table {name!r}"
    required, optional = required_of(PARENT_KEYS), optional_of(PARENT_KEYS)
    check_keys(where, table, required=required, optional=optional)
    key = _text(table, "key", where)
    domain = _domain(where, table, key) if "column" in table else None
    if domain is None and (about := [name for name in _DESCRIBED if name in table]):
        raise DomainError(
            f"{where}: {about[0]} stands without [[table.column]]; expected the columns that it is about, or neither, "
            "where persons are known by the keys of the other tables alone"
        )
    linked = _text(table, "linked", where) if "linked" in table else ""
    return ParentTable(name, key, domain, linked)


def _child(table: Mapping[str, object], parent: ParentTable) -> ChildTable:
    name = _text(table, "name", "a [[table]]")
    where = f"table {name!r}"
    required, optional = required_of(CHILD_KEYS), optional_of(CHILD_KEYS)
    check_keys(where, table, required=required, optional=optional)
    above = _text(table, "parent", where)
    if above != parent.name:
        raise DomainError(
            f"{where}: parent = {above!r}; expected {parent.name!r}, the table without a parent: there are two levels"
        )
    rows = _whole(table, "rows", where)
    changes, said = _changes(where, table)
    key = _text(table, "key", where)
    return ChildTable(
        name,
        key,
        _domain(where, table, key),
        rows,
        _whole(table, "most", where) if "most" in table else rows,
        _text(table, "order", where) if "order" in table else None,
        read_strings(where, table, "constant") if "constant" in table else (),
        read_strings(where, table, "copied") if "copied" in table else (),
        changes,
        tuple(Summary.from_dict(f"{where}, summary", s) for s in _listed(where, table, "summary")),
        said,
    )


def _listed(where: str, table: Mapping[str, object], key: str) -> Sequence[object]:
    tables = table.get(key, ())
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        raise DomainError(f"{where}: {key} is no array of tables; expected [[table.{key}]]")
    return tables


def _changes(
    where: str, child: Mapping[str, object]
) -> tuple[tuple[Integer | Real, ...], tuple[Provenance, ...]]:
    """Returns the changes of ``[[table.change]]``, and where their values are from."""
    found, said = list[Integer | Real](), list[Provenance]()
    for position, table in enumerate(_listed(where, child, "change")):
        try:
            column = read_column(position, table)
        except DomainError as error:
            raise DomainError(f"{where}: change, {error}") from error
        if not isinstance(column, Integer | Real):
            raise DomainError(
                f'{where}: change {position + 1}; expected kind = "integer" or "real"'
            )
        found.append(column)
        if isinstance(table, Mapping) and "from" in table:
            said += _change_said(where, column, table)
    return tuple(found), tuple(said)


def _change_said(
    where: str, change: Integer | Real, table: Mapping[str, object]
) -> tuple[Provenance, ...]:
    """Returns where the values of a change are from, as its ``from`` says it."""
    try:
        said = Provenance.read(change.name, table["from"], table)
        # A domain checks that it can be said of such a column.
        return Domain((change,), provenance=(said,)).provenance
    except DomainError as error:
        raise DomainError(f"{where}: change, {error}") from error


def _change_dicts(child: ChildTable) -> list[dict[str, object]]:
    """Returns the ``[[table.change]]`` tables of a configuration."""
    origins = {each.column: {"from": each.to_config()} for each in child.said}
    return [each.to_dict() | origins.get(each.name, {}) for each in child.changes]


def _domain(where: str, table: Mapping[str, object], key: str) -> Domain:
    """Returns the domain of a table, which ignores its key."""
    try:
        domain = Domain.from_dict({name: table[name] for name in _DESCRIBED if name in table})
        if key in domain.ignore or key in domain.described_names:
            return domain
        return replace(domain, ignore=(*domain.ignore, key))
    except DomainError as error:
        raise DomainError(f"{where}: {error}") from error


def _domain_dict(domain: Domain, key: str) -> dict[str, object]:
    document = domain.to_dict()
    if ignore := [name for name in domain.ignore if name != key]:
        return document | {"ignore": ignore}
    document.pop("ignore", None)
    return document


def _text(table: Mapping[str, object], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise DomainError(f"{where}: {key} = {value!r}; expected a text")
    return value


def _whole(table: Mapping[str, object], key: str, where: str) -> int:
    value = table[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise DomainError(f"{where}: {key} = {value!r}; expected a whole number")
    return value
