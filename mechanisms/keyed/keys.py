"""Keys of tables that a draft finds: the column of each table by which its rows belong to persons.

A key may be called alike in all tables, as `patient_id`, or differ, as `id` of patients and `patient_id` of their
stays: then the values of one table's column stand in the other's. The tables are secret; names of columns and tables
are public, and errors have no other words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from mechanisms.draft import KNOWN_MISSING
from mechanisms.errors import DataError
from mechanisms.linked_draft import TableRead
from mechanisms.person_rows import find_person_key, named_as_key
from mechanisms.text_table import and_list

KNOWN_SHARE = 0.9
"""Share of a key's values that stand in the table of persons, from which a draft takes it: some rows may be strays."""
_MISSING = frozenset(KNOWN_MISSING)
_SAY = "say which column it is with --key, such as --key patients=id --key stays=patient_id"


def find_keys(tables: Mapping[str, TableRead], said: Mapping[str, str]) -> dict[str, str]:
    """Returns each table's key column; ``said`` are those that are known.

    Raises ``DataError`` for a table or a column that is not there, and if no key is found.
    """
    for name, column in said.items():
        if name not in tables:
            raise DataError(
                f"--key {name}={column}: there is no table {name}; the tables are {and_list(tables)}"
            )
        if column not in (found := tables[name].table.columns):
            raise DataError(
                f"{tables[name].where}: no column {column!r} for the key; the columns are {', '.join(found)}"
            )
    if len(said) == len(tables):
        return dict(said)
    if len(tables) == 1:
        return {name: _repeated(read) for name, read in tables.items()}
    alike = [] if said else _alike(tables)
    for key in alike:
        # Each table may have an `id` of its own rows, which is no key of persons.
        if not all(is_single(read.table.columns[key]) for read in tables.values()):
            return dict.fromkeys(tables, key)
    try:
        return _different(tables, said)
    except DataError:
        if not alike:
            raise
        return dict.fromkeys(tables, alike[0])


def is_single(values: Sequence[str]) -> bool:
    """Returns whether no value stands in two rows."""
    return len(set(values)) == len(values)


def _repeated(read: TableRead) -> str:
    found = find_person_key(read.table.columns, KNOWN_MISSING)
    if found is None:
        raise DataError(
            f"{read.where}: no column looks like a person's key with several rows each; expected one that is called"
            " so, such as patient_id, or --key with its name"
        )
    return found.column


def _alike(tables: Mapping[str, TableRead]) -> list[str]:
    """Returns the columns of all tables that are like keys, called so or of one row each in some table, best first."""
    first, *others = (read.table.columns for read in tables.values())
    common = [name for name in first if all(name in each for each in others)]
    keys = [
        name
        for name in common
        if any(named_as_key(name))
        or any(is_single(read.table.columns[name]) for read in tables.values())
    ]
    # Of several one that is called so, then the one with the most values: a date or a sex stands in all tables, too.
    return sorted(keys, key=lambda name: (*named_as_key(name), len(set(first[name]))), reverse=True)


def _different(tables: Mapping[str, TableRead], said: Mapping[str, str]) -> dict[str, str]:
    """Returns keys that are called differently: a column with one row of each person, and others with its values."""
    found = dict[tuple[bool, ...], list[dict[str, str]]]()
    for parent, read in tables.items():
        for name in _columns(read, said.get(parent)):
            persons = read.table.columns[name]
            if not is_single(persons) or set(persons) & _MISSING:
                continue
            others = {t: each for t, each in tables.items() if t != parent}
            keys = {
                t: _referring(each, said.get(t), set(persons), parent=parent, name=name)
                for t, each in others.items()
            }
            if all(keys.values()):
                whole = {parent: name} | {t: key for t, key in keys.items() if key is not None}
                found.setdefault(tuple(named_as_key(name)), []).append(whole)
    best = found[max(found)] if found else []
    if len(best) == 1:
        return best[0]
    several = "" if not best else f": {' or '.join(_shown(each) for each in best[:3])}"
    raise DataError(
        f"{and_list(tables)}: {'several keys' if best else 'no key'} of persons found{several}; {_SAY}"
    )


def _columns(read: TableRead, said: str | None) -> Iterable[str]:
    return read.table.columns if said is None else (said,)


def _referring(
    read: TableRead, said: str | None, persons: set[str], *, parent: str, name: str
) -> str | None:
    """Returns the column whose values are persons', the one whose name says so first; None if there is none."""
    found = list[tuple[tuple[bool, ...], str]]()
    for column in _columns(read, said):
        values = set(read.table.columns[column]) - _MISSING
        if said is None and is_single(read.table.columns[column]):
            continue
        if not values or len(values & persons) < KNOWN_SHARE * len(values):
            continue
        called = (column == name, _is_of(column, parent), *named_as_key(column))
        # Small numbers are in many columns: their name has to say that they are keys.
        if said is not None or any(called):
            found.append((called, column))
    best = [column for called, column in found if called == max(found)[0]]
    return best[0] if len(best) == 1 else None


def _is_of(column: str, parent: str) -> bool:
    """Returns whether a column is called after a table, as `patient` or `PatientNr` after `patients`."""
    plain = re.sub(r"[^a-z]", "", parent.lower())
    stem = plain[:-1] if plain.endswith("s") else plain
    return len(stem) > 1 and stem in re.sub(r"[^a-z]", "", column.lower())


def _shown(keys: Mapping[str, str]) -> str:
    return " ".join(f"{table}={column}" for table, column in keys.items())
