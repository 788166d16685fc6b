"""Draft of tables with keys: the key, the table of persons, orders, gaps, constant columns, numbers of rows.

As in `mechanisms.draft`, everything was read from the tables and is for their owners' eyes until it is confirmed. The
tables are secret. Limits: an order is the first column of dates, or else one of whole numbers that differ in all rows
of each person.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mechanisms.column_values import number_of
from mechanisms.columns import Categorical, Moment, Ordered
from mechanisms.domain import Domain
from mechanisms.draft import Draft, draft_of
from mechanisms.draft_notes import RARE_ROWS
from mechanisms.errors import DataError, DomainError
from mechanisms.keyed.declared import MOST_ROWS, ChildTable, KeyedTables, ParentTable
from mechanisms.keyed.keys import find_keys, is_single
from mechanisms.linked_draft import TableRead
from mechanisms.numbers import Integer, Real
from mechanisms.provenance import TABLE, WHOLE, Provenance
from mechanisms.table import as_modelled
from mechanisms.text_table import TextTable, and_list

PERSONS = "persons"
"""Name of the table of persons where none was read."""
NEARLY_LEAST = 1.15
"""Noise for each step, over the least there is, up to which a draft lets more rows of a person count."""
PERSISTENT = 0.6
"""Spread of changes, over that of values, below which a draft models a column by its changes."""
_FEWEST = 10


@dataclass(frozen=True, slots=True)
class KeyedDraft:
    """Drafted ``tables``, with the draft of each by name, and ``notes`` on keys, orders and numbers of rows."""

    tables: KeyedTables
    drafts: Mapping[str, Draft]
    notes: tuple[str, ...]


def draft_tables(
    tables: Mapping[str, TableRead],
    *,
    keys: Mapping[str, str] | None = None,
    private_bins: bool = False,
) -> KeyedDraft:
    """Returns a description of tables, by name, whose rows belong to persons with a common key.

    ``keys`` are the key columns of tables where they are known. Raises ``DataError`` as ``draft_of``; for keys of no
    table or column; if no key, or more than one table of persons, is found.
    """
    keys = find_keys(tables, keys or {})
    parent = _parent(tables, keys)
    drafts, children, notes = dict[str, Draft](), list[ChildTable](), list[str]()
    order = sorted(tables, key=lambda name: name != parent)
    for name in order:
        read, key = tables[name], keys[name]
        kept = {c: values for c, values in read.table.columns.items() if c != key}
        if not kept:
            raise DataError(f"{read.where}: has no column besides {key!r}; expected some to model")
        table = replace(read.table, columns=kept)
        draft = draft_of(table, read.where, read.read_as, private_bins=private_bins)
        domain = replace(draft.domain, ignore=(*draft.domain.ignore, key))
        drafts[name] = replace(draft, domain=domain)
        if name != parent:
            shared = (
                {}
                if parent is None
                else _of_persons(tables[parent], drafts[parent].domain, keys[parent])
            )
            child, said = _child(name, key, read, domain=drafts[name].domain, persons=shared)
            if parent is not None:
                child = _with_copies(child, drafts[parent].domain)
            children.append(child)
            notes += said
    own = None if parent is None else drafts[parent].domain
    above = ParentTable(parent or PERSONS, keys[parent or order[0]], own)
    found = KeyedTables(above, tuple(children))
    return KeyedDraft(found, drafts, (*_key_notes(keys, parent), *notes))


def _parent(tables: Mapping[str, TableRead], keys: Mapping[str, str]) -> str | None:
    """Returns the table with one row of each person, None if there is none."""
    single = [name for name, read in tables.items() if is_single(read.table.columns[keys[name]])]
    called = " and ".join(repr(key) for key in dict.fromkeys(keys.values()))
    if len(single) == len(tables):
        raise DataError(
            f"{and_list(tables)}: each {called} stands once in every table; expected a table with several rows of a "
            "person. Tables of the same persons are linked with --source"
        )
    if len(single) > 1:
        raise DataError(
            f"{and_list(single)}: each {called} stands once in these tables; expected one table of persons: join them"
        )
    return single[0] if single else None


def _key_notes(keys: Mapping[str, str], parent: str | None) -> tuple[str, ...]:
    called = set(keys.values())
    key = ", ".join(called if len(called) == 1 else (f"{name}.{key}" for name, key in keys.items()))
    if parent is None:
        return (f"{key} is the key of persons, who have no table of their own",)
    return (f"{key} is the key of persons; {parent} has a row for each",)


def _of_persons(read: TableRead, domain: Domain, key: str) -> dict[str, dict[str, str]]:
    """Returns each column of the table of persons, by the person's key."""
    table = as_modelled(domain, read.table, read.where)
    return {
        name: dict(zip(table.columns[key], table.columns[name], strict=True))
        for name in domain.names
    }


def _child(
    name: str,
    key: str,
    read: TableRead,
    *,
    domain: Domain,
    persons: Mapping[str, Mapping[str, str]],
) -> tuple[ChildTable, tuple[str, ...]]:
    table = as_modelled(domain, read.table, read.where)
    rows = defaultdict[str, list[int]](list)
    for row, person in enumerate(table.columns[key]):
        rows[person].append(row)
    several = [own for own in rows.values() if len(own) > 1]
    order = _order(domain, table, several)
    counts = Counter(map(len, rows.values()))
    counted, most = _numbers(counts)
    copied = tuple(
        column
        for column in domain.names
        if column in persons
        and all(
            persons[column].get(person) == value
            for person, value in zip(table.columns[key], table.columns[column], strict=True)
        )
    )
    constant = _constant(domain, table, several, others={order, *copied})
    changes = _changes(domain, table, rows.values(), order=order, constant={*constant, *copied})
    said = tuple(Provenance(each.name, ((WHOLE, TABLE),)) for each in changes)
    child = ChildTable(
        name, key, domain, counted, most, order, constant, copied, changes, said=said
    )
    longer = sum(persons for number, persons in counts.items() if number > counted)
    notes = [
        f"{name}: persons have {min(counts)} to {max(counts)} rows; rows = {counted} of a person count, and "
        f"{longer:,} of {len(rows):,} persons have more, of whom steps are left out by a fixed rule",
        f"{name}: "
        + (
            "rows follow one another as they stand in the table"
            if order is None
            else f"rows follow one another by {order}"
        ),
    ]
    if copied:
        notes.append(f"{name}: the same as the person's own column: {and_list(copied)}")
    if constant:
        notes.append(f"{name}: never different between rows of a person: {and_list(constant)}")
    if others := [each.name for each in changes if each.name != order]:
        notes.append(f"{name}: modelled by their changes from row to row: {and_list(others)}")
    return child, tuple(notes)


def _with_copies(child: ChildTable, persons: Domain) -> ChildTable:
    """Returns a table whose copied columns are described as the persons' own, who may have no rows in it."""
    columns = tuple(
        persons.columns[persons.index(column.name)] if column.name in child.copied else column
        for column in child.domain.columns
    )
    return replace(child, domain=replace(child.domain, columns=columns))


def _order(domain: Domain, table: TextTable, several: Sequence[Sequence[int]]) -> str | None:
    related = {name for each in domain.constraints for name in each.needs}
    for column in domain.columns:
        values = table.columns[column.name]
        dates = isinstance(column, Moment) and not column.marks and column.name not in related
        if dates and any(len({values[row] for row in own}) > 1 for own in several):
            return column.name
    for column in domain.columns:
        values = table.columns[column.name]
        whole = isinstance(column, Integer) and not column.marks and not column.missing
        if (
            whole
            and several
            and all(len({values[row] for row in own}) == len(own) for own in several)
        ):
            return column.name
    return None


def _numbers(counts: Counter[int]) -> tuple[int, int]:
    """Returns the number of a person's rows that count, and that of a synthetic person at most.

    Noise grows with the rows that count, and the steps that are kept with it: the most rows are taken whose noise for
    each step is nearly the least.
    """
    kept, noise = 0, dict[int, float]()
    for counted in range(2, min(max(counts), MOST_ROWS) + 1):
        kept += sum(persons for number, persons in counts.items() if number >= counted)
        noise[counted] = (counted - 1) / kept
    least = min(noise.values(), default=0.0)
    counted = max((each for each, of in noise.items() if of <= NEARLY_LEAST * least), default=1)
    above, most = 0, max(counts)
    for number in sorted(counts, reverse=True):
        above += counts[number]
        most = number
        if above >= RARE_ROWS:
            break
    return counted, min(max(counted, most), MOST_ROWS)


def _constant(
    domain: Domain,
    table: TextTable,
    several: Sequence[Sequence[int]],
    *,
    others: Collection[str | None],
) -> tuple[str, ...]:
    if len(several) < _FEWEST:
        return ()
    related = {name for each in domain.constraints for name in each.needs}
    return tuple(
        name
        for name in domain.names
        if name not in others
        and name not in related
        and all(len({table.columns[name][row] for row in own}) == 1 for own in several)
    )


def _changes(
    domain: Domain,
    table: TextTable,
    persons: Iterable[Sequence[int]],
    *,
    order: str | None,
    constant: Collection[str],
) -> tuple[Integer | Real, ...]:
    """Returns the changes of the order, and of columns that change much less from row to row than they differ."""
    numbers = {
        column.name: [_number(column, value) for value in table.columns[column.name]]
        for column in domain.columns
        if not isinstance(column, Categorical) and column.name not in constant
    }
    related = {name for each in domain.constraints for name in each.needs}
    pairs = list[tuple[int, int]]()
    for own in persons:
        rows = list(own)
        if order is not None:
            ticks = numbers[order]
            rows.sort(key=lambda row: (ticks[row] is None, ticks[row] or 0))
        pairs += itertools.pairwise(rows)
    found = list[Integer | Real]()
    for column in domain.columns:
        known = numbers.get(column.name)
        if known is None or isinstance(column, Categorical) or column.name in related:
            continue
        steps = [
            end - start
            for before, after in pairs
            if (start := known[before]) is not None and (end := known[after]) is not None
        ]
        values = [number for number in known if number is not None]
        if column.name == order or _is_persistent(values, steps):
            found.append(_change(column, steps))
    return tuple(found)


def _number(column: Ordered, value: str) -> float | None:
    if value in column.marks:
        return None
    try:
        return number_of(column, value)
    except (DomainError, ValueError):
        return None


def _is_persistent(values: Sequence[float], steps: Sequence[float]) -> bool:
    """Returns whether half of the changes lie much closer together than half of the values."""
    if len(steps) < _FEWEST:
        return False
    low, high = np.quantile(values, [0.25, 0.75])
    least, most = np.quantile(steps, [0.25, 0.75])
    return bool(most - least < PERSISTENT * (high - low))


def _change(column: Ordered, steps: Sequence[float]) -> Integer | Real:
    places = 0 if isinstance(column, Moment | Integer) else column.decimals
    texts = [
        repr(step) if places is None else f"{round(step, places) + 0.0:.{places}f}"
        for step in steps
    ]
    if texts:
        where = TextTable({column.name: texts}, range(1, len(texts) + 1), "row")
        with contextlib.suppress(DataError):
            (drafted,) = draft_of(where, column.name, "rows").domain.columns
            if isinstance(drafted, Integer if places == 0 else Real) and not (
                drafted.marks or drafted.missing or drafted.form
            ):
                return drafted
    low, high = min(steps, default=0), max(steps, default=0)
    if places == 0:
        return Integer(column.name, int(low), int(high))
    return Real(column.name, low, high if high > low else low + 1, decimals=places)
