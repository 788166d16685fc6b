"""Populations of an owner's budget: a table is charged to those whose tables it resembles, or as its owner says.

``TableIdentity`` identifies a table: by path, content and a keyed sketch (`parties.storage.table_sketch`).
``find_populations`` returns the populations that pay, by the first of these that says so:

1. the owner's explicit word (``OwnersWord``), which ``remember_word`` records beside what the table resembles;
2. content that is known;
3. the sketch: every population with a table of the same people pays;
4. the path, or a label (--called), if no other population may be that of the same people.

A table that is none of these makes a new population. It is refused where a population may be that of the same people
and nobody can tell: columns of the same names with other rows (another month's visits), too few rows, rows that are too
common, a population without a sketch that opens. A path and a label say nothing of people: where another population may
be theirs, the owner has to say so.

Secret: digests and sketches. Known limit: a word is trusted, and only recorded.
"""

import contextlib
import gzip
import hashlib
import os
import pwd
import re
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mechanisms.text_table import and_list
from parties.config.limits import check_name
from parties.foundation.errors import StoreError
from parties.foundation.times import iso_time
from parties.storage.files import disk_errors
from parties.storage.table_sketch import KeyedSketch, Likeness

POPULATION_TABLES = (
    """CREATE TABLE known (
    dataset TEXT NOT NULL, kind TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, value, dataset)) STRICT""",
    """CREATE TABLE IF NOT EXISTS sketch (
    entry INTEGER PRIMARY KEY, dataset TEXT NOT NULL, sealed BLOB NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS word (
    entry INTEGER PRIMARY KEY, dataset TEXT NOT NULL, run TEXT NOT NULL, new INTEGER NOT NULL, resembled TEXT NOT NULL,
    by TEXT NOT NULL, said_at REAL NOT NULL) STRICT""",
)
"""``known`` has paths and contents, ``sketch`` sealed sketches of tables, ``word`` what an owner said of a table.

Older files lack the last two, and get them when they are opened.
"""
_PATH, _CONTENT = "path", "content"
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_STEM = 56
_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class OwnersWord:
    """Explicit assignment of a table to ``population``, which is a ``new`` one or exists, by the person ``by``.

    Raises ConfigError for an invalid name.
    """

    population: str
    new: bool
    by: str

    def __post_init__(self) -> None:
        check_name(self.option, self.population)

    @property
    def option(self) -> str:
        """Option of the command line that says so."""
        return "--new-population" if self.new else "--population"


def owners_word(
    population: str | None, new_population: str | None, by: str | None = None
) -> OwnersWord | None:
    """Returns the word that was given, if any, by ``by`` or this user. Raises ConfigError for an invalid name."""
    name = population if new_population is None else new_population
    return None if name is None else OwnersWord(name, new_population is not None, by or this_user())


def this_user() -> str:
    """Returns this user's name at the operating system."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


@dataclass(frozen=True, slots=True)
class RecordedWord:
    """A recorded word: the ``run`` that it was for, what the table ``resembled``, and the time ``at``."""

    word: OwnersWord
    run: str
    resembled: str
    at: float

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        return {
            "said": f"{self.word.option} {self.word.population}",
            "run": self.run,
            "resembled": self.resembled,
            "by": self.word.by,
            "when": iso_time(self.at),
        }


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """Identity of a table: the ``name`` given by its owner, if any, its ``path``, and the digest of its ``content``.

    ``sketch`` is compared with those of other tables, and ``word`` the owner's explicit one. A trial's owners have a
    name only. Raises ConfigError for an invalid name.
    """

    name: str | None
    path: str | None = None
    content: str | None = field(default=None, repr=False)
    sketch: KeyedSketch | None = field(default=None, repr=False)
    word: OwnersWord | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name("--called", self.name)
        elif self.path is None and self.word is None and self.sketch is None:
            raise ValueError("a table has a name, a path or a sketch")

    @classmethod
    def of_file(
        cls,
        table: Path,
        name: str | None = None,
        *,
        word: OwnersWord | None = None,
    ) -> "TableIdentity":
        """Identifies the table in a file, compressed or not. Raises StoreError if it is unreadable."""
        digest = hashlib.sha256()
        with disk_errors(table, "read"), table.open("rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            with gzip.open(raw) if packed else contextlib.nullcontext(raw) as file:
                try:
                    while chunk := file.read(_CHUNK):
                        digest.update(chunk)
                except EOFError as error:
                    raise StoreError(table, "breaks off; expected a whole file") from error
        return cls(name, str(table.resolve()), digest.hexdigest(), None, word)

    @property
    def marks(self) -> list[tuple[str, str]]:
        """Path and content digest, by which the population is recognised."""
        marks = ((_PATH, self.path), (_CONTENT, self.content))
        return [(kind, value) for kind, value in marks if value is not None]

    @property
    def stem(self) -> str:
        """Name of a new population of this table: the given one, or that of its file."""
        given = self.word.population if self.word else self.name
        stem = Path(self.path or "").name.split(".")[0]
        return given or _UNFIT.sub("-", stem)[:_LONGEST_STEM].strip("-_") or "table"


def find_populations(db: sqlite3.Connection, source: TableIdentity, where: Path) -> list[str]:
    """Returns the names of the populations that pay for a table, none for a new population.

    Raises StoreError if nobody can tell, or the owner says what cannot be; the message has the options to give.
    """
    if source.word is not None:
        return _by_word(db, source, where=where)
    same, unsure = _resembled(db, source)
    if source.name is not None:
        return _by_label(db, source, same=same, unsure=unsure, where=where)
    if same:
        return same
    of_path = sorted(_by_mark(db, _PATH, source.path))
    if len(of_path) > 1:
        raise StoreError(
            where,
            f"knows {source.path} as a table of {_listed(of_path)}, by its place; expected --called with one of these "
            "populations, or --new-population NAME",
        )
    if not set(unsure) <= set(of_path):
        raise _cannot_tell(source, unsure, where=where, named=of_path)
    return of_path


def _by_word(db: sqlite3.Connection, source: TableIdentity, *, where: Path) -> list[str]:
    word = source.word
    if word is None:
        return []
    names = population_names(db)
    if not word.new:
        if word.population in names:
            return [word.population]
        known = ", ".join(names) or "none yet"
        raise StoreError(
            where,
            f"has no population {word.population!r}; expected one of: {known}; or --new-population",
        )
    if word.population not in names:
        return []
    if word.population in _resembled(db, source)[0]:
        # The same command again.
        return [word.population]
    raise StoreError(
        where,
        f"has a population {word.population!r} already; expected another name, or --population {word.population}",
    )


def _by_label(
    db: sqlite3.Connection,
    source: TableIdentity,
    *,
    same: list[str],
    unsure: list[str],
    where: Path,
) -> list[str]:
    name = source.name or ""
    if same and name not in same:
        raise StoreError(
            where,
            f"knows the content of {source.path or 'the table'} as population {_listed(same)}; expected that name, or "
            "none, after --called: the same people have one budget. If these are others, say --new-population, or "
            "--population with the name of theirs",
        )
    if same:
        return same
    known = [name] if name in population_names(db) else []
    if not set(unsure) <= set(known):
        raise _cannot_tell(source, unsure, where=where, named=known)
    return known


def _cannot_tell(
    source: TableIdentity, unsure: list[str], *, where: Path, named: list[str]
) -> StoreError:
    """Returns the refusal of a table that may be of ``unsure``, whatever its path or label has ``named``."""
    also = "".join(f", --population {name}, if they are of {name} alone" for name in named[:1])
    first = next(name for name in unsure if name not in named)
    return StoreError(
        where,
        f"cannot tell whether people in {source.path or 'the table'} are those of {_listed(unsure)}: it has columns "
        "of the same names and other rows, which may be of the same people at another time; or too few rows or too "
        "common ones "
        f"to compare; or no table of {_listed(unsure)} is there to compare with. Expected "
        f"--population {first}, if some may be, which then pays{also}; or --new-population NAME, if none is. What "
        "you say is recorded",
    )


def _resembled(db: sqlite3.Connection, source: TableIdentity) -> tuple[list[str], list[str]]:
    """Returns the populations that the table is of, and those of which it may be."""
    if of_content := _by_mark(db, _CONTENT, source.content):
        return sorted(of_content), []
    if source.sketch is None:
        return [], []
    same, unsure = [], []
    for name in population_names(db):
        found = [
            source.sketch.likeness(sealed)
            for (sealed,) in db.execute("SELECT sealed FROM sketch WHERE dataset = ?", (name,))
        ]
        if Likeness.SAME in found:
            same.append(name)
        elif {Likeness.UNSURE, Likeness.LATER} & set(found) or not found:
            unsure.append(name)
    return same, unsure


def remember_table(db: sqlite3.Connection, name: str, source: TableIdentity) -> None:
    """Records a table as one of the population ``name``."""
    new = True
    for kind, value in source.marks:
        found = db.execute("INSERT OR IGNORE INTO known VALUES (?, ?, ?)", (name, kind, value))
        new = found.rowcount > 0 if kind == _CONTENT else new
    if source.sketch is None or not new:
        return
    stored = db.execute("SELECT sealed FROM sketch WHERE dataset = ?", (name,))
    if not any(source.sketch.is_of(sealed) for (sealed,) in stored):
        db.execute("INSERT INTO sketch VALUES (NULL, ?, ?)", (name, source.sketch.seal()))


def resembled_text(db: sqlite3.Connection, source: TableIdentity) -> str:
    """Returns the populations that a table resembles, for the record of an owner's word; "" without one."""
    if source.word is None:
        return ""
    same, unsure = _resembled(db, source)
    return ", ".join([*same, *(f"perhaps {name}" for name in unsure)])


def remember_word(
    db: sqlite3.Connection, source: TableIdentity, *, run: str, resembled: str
) -> None:
    """Records the owner's word for a run, if there is one, and what the table resembled before."""
    if (word := source.word) is not None:
        values = (word.population, run, word.new, resembled, word.by, time.time())
        db.execute("INSERT INTO word VALUES (NULL, ?, ?, ?, ?, ?, ?)", values)


def words_of(db: sqlite3.Connection, name: str) -> Iterable[RecordedWord]:
    """Yields what was said of tables of a population."""
    query = "SELECT run, new, resembled, by, said_at FROM word WHERE dataset = ? ORDER BY entry"
    for run, new, resembled, by, at in db.execute(query, (name,)):
        yield RecordedWord(OwnersWord(name, bool(new), by), run, resembled, at)


def new_name(db: sqlite3.Connection, source: TableIdentity) -> str:
    """Returns a new population's name: that of its file, with a number if the name is taken."""
    name = base = source.stem
    names, number = set(population_names(db)), 1
    while name in names:
        number += 1
        name = f"{base}-{number}"
    return name


def population_names(db: sqlite3.Connection) -> list[str]:
    """Returns the names of all populations."""
    return [row[0] for row in db.execute("SELECT name FROM dataset ORDER BY name")]


def _by_mark(db: sqlite3.Connection, kind: str, value: str | None) -> set[str]:
    rows = db.execute("SELECT dataset FROM known WHERE kind = ? AND value = ?", (kind, value))
    return {row[0] for row in rows}


def _listed(names: Iterable[str]) -> str:
    return and_list(sorted(names))
