"""Views of tables with keys: flat tables, each with a bounded number of rows of a person, that any method can run on.

``views_of`` returns their public descriptions, ``view_tables`` makes an owner's rows of them. There is one view of
persons: a row for each, with the number of its rows in each other table and the first of them. For each table of which
more than one row of a person counts there is a view of steps: two rows of a person that follow one another, beside the
person's own columns. A person is in one row of the first, and, if ``rows`` of a table count, in ``rows`` - 1 of the
second: these are the sensitivities. Columns are called by table and row, as in ``stays.before.ward``, so
that no two are called alike.

The owner's tables and views are secret; descriptions are public. Errors name rows, and no value of a key.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mechanisms.column_parts import LINEAR
from mechanisms.column_values import nearest_of, number_text, numbers_in
from mechanisms.columns import Categorical, Column, Moment
from mechanisms.constraints.checking import repaired
from mechanisms.constraints.conjunction import ColumnTest, sets_of
from mechanisms.constraints.declared import Never
from mechanisms.domain import Domain
from mechanisms.errors import DataError
from mechanisms.keyed.declared import BY_TABLES, ChildTable, KeyedTables, ParentTable
from mechanisms.keyed.summaries import (
    ANY,
    LAST,
    MEAN,
    NO,
    YES,
    Summary,
    opposite,
    summarised,
    summary_column,
)
from mechanisms.linking import OF_PERSONS, Key, linking_keys
from mechanisms.numbers import Integer, Real
from mechanisms.provenance import TABLE, WHOLE, Provenance
from mechanisms.table import as_modelled, encode
from mechanisms.text_table import TextTable

KEY = "key"
"""Column of a view by which a person's rows are known; it is ignored and in no model."""
NUMBER, FIRST, BEFORE, NOW, CHANGE = "number", "first", "before", "now", "change"
COARSE = 8
"""Most cells of a column of numbers or dates that others are drawn given."""
_Column = TypeVar("_Column", bound=Column)


@dataclass(frozen=True, slots=True)
class ViewSource:
    """Columns of a view that are at owners of their own, with the largest number of ``rows`` of a person there."""

    name: str
    columns: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class View:
    """A flat table: its ``domain``, and the largest number of ``rows`` of a person in it.

    ``target`` are the columns that are drawn given the others. ``sources`` are the tables of a view whose rows servers
    link; none if each owner makes whole rows.
    """

    name: str
    domain: Domain
    rows: int
    target: tuple[str, ...] = ()
    sources: tuple[ViewSource, ...] = ()

    @property
    def holds(self) -> str:
        """A row of the view in words."""
        return f"two rows of {self.name} that follow one another" if self.target else "a person"


def views_of(tables: KeyedTables) -> tuple[View, ...]:
    """Returns the view of persons, called by their table, and those of steps, each called by its table."""
    words = Words.of(tables)
    persons, rules = _own_columns(tables), list[Never]()
    # Rows that are linked by tables are of persons with rows in all of them.
    alone = tables.parent.domain is None and len(tables.children) == 1
    least = 1 if alone or tables.parent.linked == BY_TABLES else 0
    for child in tables.children:
        persons.append(_number(child, least=least))
        for name in child.own:
            first = _named(child.column(name), f"{child.name}.{FIRST}.{name}")
            persons.append(first if least else _or_none(first, words.none))
            rules += [] if least else _none_without_rows(child, first, words.none)
        for summary in child.summaries:
            column = coarse(summary_column(child.domain, summary, f"{child.name}.{summary.column}"))
            persons.append(column if least else _or_none(column, words.none))
            rules += [] if least else _none_without_rows(child, column, words.none)
            rules += _as_first_row(child, summary)
    domain = _view_domain(tables, persons, rules)
    name = tables.parent.name
    found = [View(name, domain, 1, (), _sources(tables, name, domain, rows=1))]
    for child in tables.children:
        if child.rows < 2 or not child.follows:
            continue
        columns = {column.name: column for column in child.domain.columns}
        given: list[Column] = [*_own_columns(tables), _number(child, least=2)]
        given += [_named(columns[n], f"{child.name}.{FIRST}.{n}") for n in child.constant]
        given += [_named(columns[n], f"{child.name}.{BEFORE}.{n}") for n in child.changing]
        given = list(map(coarse, given))
        drawn: list[Column] = [
            _named(columns[n], f"{child.name}.{NOW}.{n}") for n in child.modelled
        ]
        drawn += [coarse(_named(columns[n], f"{child.name}.{NOW}.{n}")) for n in child.coarse]
        for each in child.changes:
            column = _named(each, f"{child.name}.{CHANGE}.{each.name}")
            drawn.append(replace(column, missing=each.name in child.modelled))
        domain = _view_domain(tables, [*given, *drawn])
        target, rows = tuple(c.name for c in drawn), child.rows - 1
        sources = _sources(tables, child.name, domain, rows=rows)
        found.append(View(child.name, domain, rows, target, sources))
    return tuple(found)


def source_tables(
    tables: KeyedTables, given: Mapping[str, TextTable], *, where: Mapping[str, str]
) -> dict[str, dict[str, TextTable]]:
    """Returns an owner's rows of each source of each view, by view and source, from one or more tables.

    Where tables are linked an owner may have one of them; otherwise all are needed. Raises ``DataError`` as
    ``view_tables``.
    """
    views = {view.name: view for view in views_of(tables)}
    if tables.parent.linked != BY_TABLES:
        rows = view_tables(tables, given, where=where)
        return {name: {s.name: rows[name] for s in view.sources} for name, view in views.items()}
    found: dict[str, dict[str, TextTable]] = {name: {} for name in views}
    for name, table in given.items():
        if name not in tables.names:
            raise DataError(f"table {name!r} is none of {', '.join(tables.names)}")
        rows = _part_rows(tables, name, table, where=where[name])
        for view in views.values():
            if any(source.name == name for source in view.sources):
                found[view.name][name] = rows.get(view.name, rows[tables.parent.name])
    return found


def _part_rows(
    tables: KeyedTables, name: str, given: TextTable, *, where: str
) -> dict[str, TextTable]:
    """Returns the rows, by view, that an owner of one table alone has of its columns."""
    parent = tables.parent
    if name == parent.name:
        read = {name: _Read.of(tables, name, given, where=where)}
        rows = _Rows(tables, read, _persons(tables, read), {}, Words.of(tables))
        return {name: rows.of_persons()}
    (child,) = (child for child in tables.children if child.name == name)
    # What is copied stands at the owners of the persons.
    ignore = (*child.domain.ignore, *child.copied)
    own = replace(child, domain=child.domain.only(child.own, ignore), copied=())
    alone = KeyedTables(ParentTable(parent.name, parent.key), (own,))
    return view_tables(alone, {name: given}, where={name: where}, words=Words.of(tables))


@dataclass(frozen=True, slots=True)
class Words:
    """Words in views that no column lists as a value: of a ``missing`` value, and of the first row where there is
    ``none``.
    """

    missing: str
    none: str

    @classmethod
    def of(cls, tables: KeyedTables) -> Words:
        """Returns the words of some tables."""
        listed = {
            value
            for table in tables.by_name.values()
            for column in (table.domain.columns if table.domain is not None else ())
            for value in (column.values if isinstance(column, Categorical) else column.marks)
        }
        missing, none = (_unlisted(word, listed) for word in ("missing", "none"))
        return cls(missing, none)


def _unlisted(word: str, listed: Collection[str]) -> str:
    """Returns a word, or if it is listed the first that is not of the word with numbers behind it."""
    numbered = (f"{word} {number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([word], numbered) if each not in listed)


def view_tables(
    tables: KeyedTables,
    given: Mapping[str, TextTable],
    *,
    where: Mapping[str, str],
    words: Words | None = None,
) -> dict[str, TextTable]:
    """Returns an owner's rows of each view, by name, from its tables as they were read.

    ``where`` names the tables in errors. ``words`` are those of the views if they are of more tables than these.
    Raises ``DataError`` for a table that is missing or does not fit its domain, a row without a key, two persons with
    one key, or a row whose person is in no row of the table of persons.
    """
    if missing := [name for name in tables.names if name not in given]:
        raise DataError(f"no table {missing[0]!r}; expected {', '.join(tables.names)}")
    if unknown := [name for name in given if name not in tables.names]:
        raise DataError(f"table {unknown[0]!r} is none of {', '.join(tables.names)}")
    read = {name: _Read.of(tables, name, given[name], where=where[name]) for name in tables.names}
    persons = _persons(tables, read)
    # With the row of a person that contradicts a constraint all its rows are left out.
    alone = tables.parent.domain is None
    left_out = frozenset[Key]() if alone else read[tables.parent.name].left_out
    sequences = {
        child.name: _sequences(
            child, read[child.name], persons, left_out=left_out, where=where[child.name]
        )
        for child in tables.children
    }
    rows = _Rows(tables, read, persons, sequences, words or Words.of(tables))
    found = {tables.parent.name: rows.persons()}
    found |= {
        child.name: rows.steps(child)
        for child in tables.children
        if child.rows > 1 and child.follows
    }
    return found


def _sources(
    tables: KeyedTables, name: str, domain: Domain, *, rows: int
) -> tuple[ViewSource, ...]:
    parent = tables.parent
    if parent.linked != BY_TABLES:
        return (ViewSource(name, domain.names, rows),) if parent.linked else ()
    of: dict[str, list[str]] = {}
    for column in domain.names:
        of.setdefault(column.partition(".")[0], []).append(column)
    return tuple(
        ViewSource(table, tuple(columns), 1 if table == parent.name else rows)
        for table, columns in of.items()
    )


def _own_columns(tables: KeyedTables) -> list[Column]:
    parent = tables.parent
    columns = () if parent.domain is None else parent.domain.columns
    return [_named(column, f"{parent.name}.{column.name}") for column in columns]


def _number(child: ChildTable, *, least: int) -> Categorical:
    numbers = map(str, range(least, max(child.most, least) + 1))
    return Categorical(f"{child.name}.{NUMBER}", tuple(numbers))


def _named(column: _Column, name: str) -> _Column:
    return replace(column, name=name)


def _or_none(column: Column, word: str) -> Column:
    """Returns a column with a cell for ``word``; one whose categories a run finds has its missing value for that."""
    if not isinstance(column, Categorical):
        return replace(column, marks=(*column.marks, word))
    if column.private is not None:
        return replace(column, missing=True)
    atoms = (*column.atoms, word) if column.prefix else ()
    return replace(column, categories=(*column.categories, word), atoms=atoms)


def _none_without_rows(child: ChildTable, column: Column, word: str) -> list[Never]:
    """Returns the rules that a person has no first row where there are no rows, and a first row elsewhere."""
    exact = not isinstance(column, Real) or column.decimals is not None
    if not exact or column.private is not None or '"' in column.name:
        return []
    number = f"{child.name}.{NUMBER}"
    found = list[Never]()
    for some, none in (("=", "!="), ("!=", "=")):
        tests = (ColumnTest(number, some, ("0",)), ColumnTest(column.name, none, (word,)))
        text = f'"{number}" {some} 0 and "{column.name}" {none} "{word}"'
        found.append(Never(text, tests))
    return found


def _as_first_row(child: ChildTable, summary: Summary) -> list[Never]:
    """Returns the rules that any row satisfies a condition if the first does, and only then where there is one."""
    if summary.kind != ANY:
        return []
    own = {name: child.column(name) for name in child.own}
    tests = summary.tests(own)
    column, number = f"{child.name}.{summary.column}", f"{child.name}.{NUMBER}"
    yes, no = (ColumnTest(column, "=", (value,)) for value in (YES, NO))
    one = ColumnTest(number, "=", ("1",))

    def first(test: ColumnTest) -> ColumnTest:
        return replace(test, column=f"{child.name}.{FIRST}.{test.column}")

    found = [_never(*map(first, tests), no)]
    # With most = 1 the number 1 stands for more rows, too.
    for other in map(opposite, tests) if child.most > 1 else ():
        (held,) = sets_of(summary.column, [other], own).values()
        found += [] if held.is_empty else [_never(one, yes, first(other))]
    return [rule for rule in found if rule is not None]


def _never(*tests: ColumnTest) -> Never | None:
    """Returns the rule that no row satisfies all tests; None where no text of it can be written."""
    if any(
        sign in text for test in tests for text in (test.column, *test.values) for sign in '"()'
    ):
        return None
    texts = (
        f'"{test.column}" {test.operator} ('
        + ", ".join(f'"{value}"' for value in test.values)
        + ")"
        if test.operator in ("in", "not in")
        else f'"{test.column}" {test.operator} "{test.values[0]}"'
        for test in tests
    )
    return Never(" and ".join(texts), tests)


def coarse(column: Column) -> Column:
    """Returns a column with at most ``COARSE`` cells of numbers or dates, for what others are drawn given.

    Its pairs with others have fewer cells, so that less noise is on them. Categories, and private cells, stay.
    """
    if isinstance(column, Categorical) or column.private is not None:
        return column
    if isinstance(column, Real) and column.decimals is None:
        return replace(column, bins=min(column.bins, COARSE)) if not column.edges else column
    ranges = sorted(column.cells.ranges)
    if len(ranges) <= COARSE:
        return column
    starts = [ranges[len(ranges) * part // COARSE][0] for part in range(COARSE)]
    ends = [*starts, ranges[-1][1]]
    if isinstance(column, Moment):
        dates = tuple(number_text(column, end) for end in ends)
        return replace(column, low=dates[0], high=dates[-1], edges=dates, atoms=(), within=())
    if isinstance(column, Integer):
        return replace(
            column,
            low=ends[0],
            high=ends[-1],
            edges=tuple(ends),
            scale=LINEAR,
            atoms=(),
            within=(),
            endings=(),
        )
    numbers = tuple(column.value_of(end) for end in ends)
    return replace(
        column,
        low=numbers[0],
        high=numbers[-1],
        edges=numbers,
        scale=LINEAR,
        atoms=(),
        within=(),
        endings=(),
        digits=None,
    )


def _view_domain(
    tables: KeyedTables, columns: Sequence[Column], rules: Sequence[Never] = ()
) -> Domain:
    said = {
        f"{name}.{each.column}": _whole_text(each)
        for name, table in tables.by_name.items()
        if table.domain is not None
        for each in table.domain.provenance
    }
    of_changes = {
        f"{child.name}.{CHANGE}.{each.column}": _whole_text(each)
        for child in tables.children
        for each in child.said
    }
    # A change that says nothing is from where its column is.
    origins = {
        column.name: of_changes.get(column.name) or said.get(_origin(column.name), "")
        for column in columns
    }
    return Domain(
        tuple(columns),
        (Words.of(tables).missing,),
        ignore=(KEY,),
        constraints=tuple(rules),
        provenance=tuple(Provenance(n, ((WHOLE, text),)) for n, text in origins.items() if text),
    )


def _whole_text(said: Provenance) -> str:
    """Returns one text for all values of a column: that they are from a table where any are."""
    texts = [text for _, text in said.said]
    return next((t for t in texts if t.partition(":")[0].strip() == TABLE), said.of(WHOLE))


def _origin(name: str) -> str:
    """Returns the table's column that a view's column has values of, as ``stays.ward`` for ``stays.before.ward``."""
    table, _, rest = name.partition(".")
    word, _, inner = rest.partition(".")
    return f"{table}.{inner if word in (FIRST, BEFORE, NOW, CHANGE, LAST, MEAN) else rest}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Read:
    """A table's modelled columns as text, None for a missing value, and the key of each row.

    ``left_out`` are the keys of rows that contradict a constraint to be repaired.
    """

    cells: Mapping[str, Sequence[str | None]]
    keys: tuple[Key, ...]
    table: TextTable
    left_out: frozenset[Key]

    @classmethod
    def of(cls, tables: KeyedTables, name: str, given: TextTable, *, where: str) -> _Read:
        domain, key = tables.domain_of(name), tables.by_name[name].key
        whole = as_modelled(domain, given, where)
        table, _ = repaired(domain, whole)
        keys = every = _keys_of(whole, key, domain, where=where)
        if len(table) < len(whole):
            keys = _keys_of(table, key, domain, where=where)
        encode(domain, table, source=where)
        cells = {
            column.name: cells_of(domain, column, table.columns[column.name])
            for column in domain.columns
        }
        return cls(cells, keys, table, frozenset(every) - frozenset(keys))


def _keys_of(table: TextTable, key: str, domain: Domain, *, where: str) -> tuple[Key, ...]:
    found = linking_keys(
        table,
        [key],
        source=where,
        missing=domain.missing_values,
        at_most=None,
        words=OF_PERSONS,
    )
    return found.keys


def cells_of(domain: Domain, column: Column, values: Sequence[str]) -> list[str | None]:
    """Returns a column's values, None for a missing one, and the column's word for others for unlisted ones."""
    known = {value: column.code_of(value) is not None for value in set(values)}
    absent = {value for value in domain.missing_values if column.missing and not known.get(value)}
    other = column.other if isinstance(column, Categorical) else ""
    found = (None if value in absent else value for value in values)
    return [other if other and v is not None and not known[v] else v for v in found]


def _persons(tables: KeyedTables, read: Mapping[str, _Read]) -> dict[Key, int | None]:
    """Returns the persons with their row in the table of persons; without such a table, in order of appearance."""
    parent = tables.parent
    if parent.domain is None:
        keys = (key for child in tables.children for key in read[child.name].keys)
        return dict.fromkeys(keys, None)
    own = read[parent.name]
    found: dict[Key, int | None] = {}
    for row, key in enumerate(own.keys):
        if key in found:
            first, unit = found[key] or 0, own.table.unit
            raise DataError(
                f"table {parent.name!r}, {unit}s {own.table.places[first]} and {own.table.places[row]}: the same "
                f"{parent.key!r}; expected one row of each person"
            )
        found[key] = row
    return found


def _sequences(
    child: ChildTable,
    read: _Read,
    persons: Mapping[Key, object],
    *,
    left_out: Collection[Key],
    where: str,
) -> dict[Key, list[int]]:
    """Returns the rows of each person, in their order."""
    found = defaultdict[Key, list[int]](list)
    for row, key in enumerate(read.keys):
        if key in left_out:
            continue
        if key not in persons:
            raise DataError(
                f"{where}, {read.table.unit} {read.table.places[row]}: its {child.key!r} is in no row of the table of "
                "persons; expected every person there, or rows of others left out"
            )
        found[key].append(row)
    if child.order is None:
        return found
    column = child.column(child.order)
    cells = read.cells[child.order]
    numbers = numbers_in(column, cells)
    ticks = [numbers[cell] for cell in cells]
    for rows in found.values():
        rows.sort(key=lambda row: (ticks[row] is None, ticks[row] or 0))
    return found


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Rows:
    """Rows of the views."""

    tables: KeyedTables
    read: Mapping[str, _Read]
    of: Mapping[Key, int | None]
    sequences: Mapping[str, Mapping[Key, list[int]]]
    words: Words

    def of_persons(self) -> TextTable:
        keys = list(self.of)
        return self._table(keys, self._of_persons(keys))

    def persons(self) -> TextTable:
        keys = list(self.of)
        columns = self._of_persons(keys)
        for child in self.tables.children:
            rows = self.sequences[child.name]
            columns |= self._number(child, keys)
            firsts = [rows[key][0] if rows.get(key) else None for key in keys]
            columns |= {
                f"{child.name}.{FIRST}.{name}": self._column(child.name, name, firsts)
                for name in child.own
            }
            columns |= {
                f"{child.name}.{summary.column}": self._summary(child, summary, keys)
                for summary in child.summaries
            }
        return self._table(keys, columns)

    def steps(self, child: ChildTable) -> TextTable:
        pairs = [
            (key, before, row)
            for key in self.of
            for before, row in _pairs(self.sequences[child.name].get(key, ()))
        ]
        keys = [key for key, _, _ in pairs]
        columns = self._of_persons(keys) | self._number(child, keys)
        before, after = [each for _, each, _ in pairs], [row for _, _, row in pairs]
        firsts = [self.sequences[child.name][key][0] for key in keys]
        of = {
            FIRST: (child.constant, firsts),
            BEFORE: (child.changing, before),
            NOW: ((*child.modelled, *child.coarse), after),
        }
        for word, (names, rows) in of.items():
            for name in names:
                columns[f"{child.name}.{word}.{name}"] = self._column(child.name, name, rows)
        for change in child.changes:
            name = f"{child.name}.{CHANGE}.{change.name}"
            columns[name] = self._changes(child, change, before, after=after)
        return self._table(keys, columns)

    def _of_persons(self, keys: Sequence[Key]) -> dict[str, list[str]]:
        parent = self.tables.parent
        if parent.domain is None:
            return {}
        rows = [self.of[key] for key in keys]
        return {
            f"{parent.name}.{name}": self._column(parent.name, name, rows)
            for name in parent.domain.names
        }

    def _number(self, child: ChildTable, keys: Sequence[Key]) -> dict[str, list[str]]:
        rows = self.sequences[child.name]
        return {
            f"{child.name}.{NUMBER}": [str(min(len(rows.get(key, ())), child.most)) for key in keys]
        }

    def _column(self, table: str, name: str, rows: Sequence[int | None]) -> list[str]:
        cells = self.read[table].cells[name]
        none = self._none(self.tables.domain_of(table).columns, name)
        found = (none if row is None else cells[row] for row in rows)
        return [self.words.missing if cell is None else cell for cell in found]

    def _none(self, columns: Sequence[Column], name: str) -> str:
        """Returns the word for no row: as `_or_none` has it, a missing value of categories that a run finds."""
        column = next(each for each in columns if each.name == name)
        private = isinstance(column, Categorical) and column.private is not None
        return self.words.missing if private else self.words.none

    def _summary(self, child: ChildTable, summary: Summary, keys: Sequence[Key]) -> list[str]:
        rows = self.sequences[child.name]
        some = [key for key in keys if rows.get(key)]
        cells = self.read[child.name].cells
        of = [rows[key] for key in some]
        values = dict(zip(some, summarised(child.domain, summary, cells, persons=of), strict=True))
        none = (
            self.words.none
            if summary.kind == ANY
            else self._none(child.domain.columns, summary.name)
        )
        found = (values[key] if rows.get(key) else none for key in keys)
        return [self.words.missing if value is None else value for value in found]

    def _changes(
        self,
        child: ChildTable,
        change: Integer | Real,
        before: Sequence[int],
        *,
        after: Sequence[int],
    ) -> list[str]:
        cells, column = self.read[child.name].cells[change.name], child.column(change.name)
        numbers, nearest = numbers_in(column, cells), nearest_of(change)
        found = list[str]()
        for first, second in zip(before, after, strict=True):
            start, end = numbers[cells[first]], numbers[cells[second]]
            if start is None or end is None:
                found.append(self.words.missing)
                continue
            # What is beyond the described changes is the nearest one.
            found.append(number_text(change, nearest(end - start)))
        return found

    def _table(self, keys: Sequence[Key], columns: Mapping[str, Sequence[str]]) -> TextTable:
        persons = {KEY: [key[0] for key in keys]}
        return TextTable(persons | dict(columns), range(1, len(keys) + 1), "row")


def _pairs(rows: Sequence[int]) -> list[tuple[int, int]]:
    return list(itertools.pairwise(rows))
