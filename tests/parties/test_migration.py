"""Stores and shared databases of older and newer versions: brought forward whole, or refused with words."""

import importlib
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from parties.foundation.errors import StoreError
from parties.foundation.version import STORE_VERSION, version
from parties.mpc.storage import incoming
from parties.mpc.storage.store import Store
from parties.storage.database import FILE, Database
from parties.storage.privacy_ledger import LEDGER, DurableLedger
from parties.storage.shared_database import SharedDatabase
from parties.storage.sqlite import lacks_columns
from tests.parties.support import make_submission
from tests.parties.test_store import put

CONFIG = "c0" * 32
KIND = b"TEST"
OLD = (
    "CREATE TABLE owner (name TEXT PRIMARY KEY) STRICT",
    "INSERT INTO owner VALUES ('north'), ('south')",
)
NEW = ("CREATE TABLE IF NOT EXISTS owner (name TEXT PRIMARY KEY, since TEXT NOT NULL) STRICT",)
FIRST_STORE = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE submission (
    client TEXT PRIMARY KEY, header TEXT NOT NULL, digest TEXT NOT NULL, body_digest TEXT NOT NULL,
    own_digest TEXT NOT NULL, next_digest TEXT NOT NULL, first_round INTEGER NOT NULL, size INTEGER NOT NULL,
    path TEXT NOT NULL, received_at REAL NOT NULL) STRICT;
CREATE TABLE ledger (entry INTEGER PRIMARY KEY, round INTEGER NOT NULL, step TEXT NOT NULL, event TEXT NOT NULL,
    rho REAL NOT NULL, charged_at REAL NOT NULL) STRICT;
INSERT INTO meta VALUES ('config_digest', 'c0');
"""
"""A store as version 0.1.0 made it, as far as it is looked at."""


def add_since(db: sqlite3.Connection) -> str | None:
    db.execute("ALTER TABLE owner ADD COLUMN since TEXT NOT NULL DEFAULT 'long ago'")
    return None


def shout(db: sqlite3.Connection) -> str | None:
    db.execute("UPDATE owner SET name = upper(name)")
    return None


STEPS = {1: add_since, 3: shout}


def set_version(path: Path, number: int, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)
        db.execute(f"PRAGMA user_version={number}")


def version_at(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def old_database(folder: Path) -> Path:
    Database(folder, CONFIG, []).close()
    set_version(folder / FILE, 1, *OLD)
    return folder


def test_a_new_database_has_its_version_and_takes_no_step(tmp_path: Path) -> None:
    Database(tmp_path, CONFIG, NEW, version=4, steps=STEPS).close()
    assert version_at(tmp_path / FILE) == 4


def test_an_older_database_is_brought_forward_step_by_step(tmp_path: Path) -> None:
    """Version 2 has no step of its own; what was made at version 1 has the contents and the tables of 4."""
    old_database(tmp_path)
    with Database(tmp_path, CONFIG, NEW, version=4, steps=STEPS) as database:
        assert database.rows("SELECT * FROM owner") == [
            ("NORTH", "long ago"),
            ("SOUTH", "long ago"),
        ]
    assert version_at(tmp_path / FILE) == 4
    # Not again.
    with Database(tmp_path, CONFIG, NEW, version=4, steps=STEPS) as database:
        assert len(database.rows("SELECT * FROM owner")) == 2


def test_a_step_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    old_database(tmp_path)
    steps = {**STEPS, 2: lambda db: "shares had another ring"}
    with pytest.raises(StoreError, match=r"older syncret \(its version is 2\).*shares had another"):
        Database(tmp_path, CONFIG, NEW, version=4, steps=steps)
    assert version_at(tmp_path / FILE) == 1
    Database(tmp_path, CONFIG, NEW, version=2, steps=STEPS).close()


def test_a_newer_database_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    Database(tmp_path, CONFIG, NEW, version=4).close()
    words = f"newer syncret: its version is 4; expected at most 3, that of syncret {version()}"
    with pytest.raises(StoreError, match=re.escape(words)):
        Database(tmp_path, CONFIG, NEW, version=3)
    assert version_at(tmp_path / FILE) == 4


def test_a_server_s_store_of_the_first_version_is_refused_with_words(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.executescript(FIRST_STORE)
    with pytest.raises(StoreError, match="owners' uploads had another form"):
        Store(tmp_path, CONFIG)
    with pytest.raises(StoreError, match="another form"):  # Nor is it half made over.
        Store(tmp_path, CONFIG)


def test_a_server_s_store_of_version_1_keeps_its_bodies_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, Store(tmp_path, CONFIG) as store:
        patch.setattr(incoming, "SMALL_BYTES", 0)
        put(store, make_submission("clinic-a"), b"shares of a", outgoing=(1, 2))
    set_version(tmp_path / FILE, 1, "DROP TABLE body")
    with Store(tmp_path, CONFIG) as store:
        put(store, make_submission("clinic-b"), b"shares of b")
        assert store.submissions.read("clinic-a") == b"shares of a"
        assert store.submissions.read("clinic-b") == b"shares of b"
        assert store.outbox.content("clinic-a") == b"sealed: shares of a"
    assert version_at(tmp_path / FILE) == STORE_VERSION


def test_a_server_s_store_from_before_versions_is_taken_over(tmp_path: Path) -> None:
    """Its tables are those of version 1."""
    with Store(tmp_path, CONFIG) as store:
        store.state.close_to_clients()
    set_version(tmp_path / FILE, 0)
    with Store(tmp_path, CONFIG) as store:
        assert store.state.closed_to_clients
    assert version_at(tmp_path / FILE) == STORE_VERSION


def test_a_ledger_from_before_versions_stays_spent(tmp_path: Path) -> None:
    """FLAIM's server and clients have one and no more; test_ledger has one of the first version."""
    Database(tmp_path, CONFIG, LEDGER).close()
    row = 'INSERT INTO ledger VALUES (1, 1, \'measure\', \'{"kind": "gaussian", "sigma": 1.0}\', 0.5, 0.0)'
    set_version(tmp_path / FILE, 0, row)
    with Database(tmp_path, CONFIG, LEDGER) as database:
        assert database.row("SELECT rho FROM ledger") == (0.5,)
        assert DurableLedger(database, 1.0) is not None
    assert version_at(tmp_path / FILE) == 1


def test_a_shared_database_is_brought_forward_by_whoever_opens_it_first(tmp_path: Path) -> None:
    path = tmp_path / "shared.sqlite"
    SharedDatabase(path, KIND, OLD)
    for _ in range(2):
        shared = SharedDatabase(path, KIND, NEW, version=2, steps=STEPS)
        with shared.reading() as db:
            assert db.execute("SELECT since FROM owner").fetchall() == [("long ago",)] * 2
    with pytest.raises(StoreError, match="newer syncret: its version is 2; expected at most 1"):
        SharedDatabase(path, KIND, OLD)


def test_a_shared_database_gets_a_table_that_is_new_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "shared.sqlite"
    SharedDatabase(path, KIND, OLD)
    more = "CREATE TABLE IF NOT EXISTS returned (name TEXT PRIMARY KEY) STRICT"
    shared = SharedDatabase(path, KIND, (more,))
    with shared.transaction() as db:
        db.execute("INSERT INTO returned VALUES ('north')")
    assert version_at(path) == 1
    SharedDatabase(path, KIND, OLD)


def test_a_shared_database_gets_no_empty_table_for_one_that_it_has_lost(tmp_path: Path) -> None:
    path = tmp_path / "shared.sqlite"
    SharedDatabase(path, KIND, OLD)
    set_version(path, 1, "DROP TABLE owner")
    with (
        SharedDatabase(path, KIND, OLD).reading() as db,
        pytest.raises(sqlite3.OperationalError, match="no such table: owner"),
    ):
        db.execute("SELECT * FROM owner")


def test_lacks_is_of_a_table_that_is_there() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE owner (name TEXT)")
        assert lacks_columns(db, "owner", "name", "since")
        assert not lacks_columns(db, "owner", "name")
        assert not lacks_columns(db, "nobody", "name")


def test_the_table_of_versions_has_those_of_the_code() -> None:
    """README's only place for them, so that whoever raises one looks there."""
    readme = (Path(__file__).parents[2] / "parties" / "README.md").read_text()
    table = readme.split("## Versions")[1].split("\n\n")[2]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert len(rows) >= 12
    for _, where, now, _ in rows:
        module, name = where.strip("`").rsplit(".", 1)
        assert str(getattr(importlib.import_module(module), name)) == now, where
