"""Record of the tables that a run on one machine was made of, to which the maker of a bundle is held.

``record_tables`` writes a keyed sketch of each table (`parties.storage.table_sketch`) into the run's folder, sealed
with this user's key, so that the record says nothing to others who have the folder. ``check_recorded`` refuses a table
that is neither one of these nor of the same people. Secret: the tables. The record is in no bundle. Known limits: a run
whose user has no place for a key has no record, nor has one of an earlier version; whoever removes the record is not
asked.
"""

import base64
import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from parties.config import Config
from parties.foundation.errors import ConfigError, StoreError
from parties.session.owner import Table
from parties.storage.files import write_json
from parties.storage.table_sketch import KeyedSketch, Likeness, SketchKey, make_sketch
from parties.storage.user_paths import budget_path

RECORD = "tables.sealed"
"""Name of the record in a run's folder."""
NO_RECORD = (
    "the run's folder has no record of the table that it was made of which this user's keys open, so that the given "
    "table is its maker's word"
)


def record_tables(folder: Path, config: Config, tables: Table | Mapping[str, Table]) -> None:
    """Records the tables of a run of ``config`` in its ``folder``; leaves the record of an interrupted run.

    Raises DataError if a table cannot be read, StoreError if the folder cannot be written.
    """
    if (folder / RECORD).exists():
        return
    try:
        key = SketchKey.beside(budget_path())
    except (ConfigError, StoreError):
        return
    each = tables.items() if isinstance(tables, Mapping) else (("", tables),)
    sealed = [key.seal(make_sketch(t.as_written(), key, _person(config, name))) for name, t in each]
    document = {"tables": [base64.b64encode(one).decode("ascii") for one in sealed]}
    write_json(folder / RECORD, document, secret=True)


def check_recorded(folder: Path, config: Config, table: Table, *, budget: Path) -> str:
    """Verifies that ``table`` is one that the run in ``folder`` was made of; returns NO_RECORD if nobody can tell.

    Raises ConfigError for another table, DataError if it cannot be read, StoreError for a damaged record.
    """
    if not (recorded := _recorded(folder)):
        return NO_RECORD
    text, opened = table.as_written(), False
    for key in _keys(budget):
        there = [sealed for sealed in recorded if key.unseal(sealed) is not None]
        opened |= bool(there)
        for person in dict.fromkeys(_persons(config)) if there else ():
            sketch = KeyedSketch(key, make_sketch(text, key, person))
            if any(sketch.is_of(one) or sketch.likeness(one) is Likeness.SAME for one in there):
                return ""
    if opened:
        raise ConfigError(
            str(folder),
            "--data",
            f"{table.source.shown} is not the table that this run was made of, nor is it seen to be of the same "
            "people: its budget is that of others. Expected the table of the run; or --population or --new-population, "
            "whose budget pays by your word, which is recorded",
        )
    return NO_RECORD


def _recorded(folder: Path) -> list[bytes]:
    path = folder / RECORD
    if not path.exists():
        return []
    try:
        listed = json.loads(path.read_text(encoding="ascii"))["tables"]
        return [base64.b64decode(one, validate=True) for one in listed]
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise StoreError(path, "is damaged; expected what the run wrote") from error


def _keys(budget: Path) -> Sequence[SketchKey]:
    """Returns this user's keys that are there: of the budget at hand, and of the usual one."""
    found = list[SketchKey]()
    with contextlib.suppress(ConfigError):
        for path in dict.fromkeys((budget_path(), budget)):
            if (key := SketchKey.of_existing(path)) is not None:
                found.append(key)
    return found


def _persons(config: Config) -> list[tuple[str, ...]]:
    """Returns the columns that identify a person, for each table of a run."""
    names = [source.name for source in config.sources] or [""]
    return [_person(config, name) for name in names]


def _person(config: Config, source: str) -> tuple[str, ...]:
    for each in config.sources:
        if each.name == source:
            return tuple(each.key)
    return tuple(config.run.person or ())
