"""Stores that an earlier tree left: servers, owners and operators of today open each, and find the same in it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from parties.foundation.errors import SealError, StoreError
from tests.golden.archives import unpack
from tests.golden.stores import ARCHIVE, VALUES, contents, in_json


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder has the archive's content, for this test alone."""
    return unpack(ARCHIVE, tmp_path / "stores")


def found(folder: Path) -> object:
    """The document has the values of all stores in ``folder``."""
    beside = folder.with_name("beside")
    beside.mkdir()
    return in_json(contents(folder, beside))


def test_stores_of_an_earlier_tree_have_the_values_that_it_put_there(folder: Path) -> None:
    values = found(folder)
    assert isinstance(values, dict)
    expected = json.loads(VALUES.read_text())
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        assert values[name] == value, name
    assert all(values[name]["same"] for name in ("locked", "passphrase"))


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("server-1/store/store.sqlite", "UPDATE ledger SET rho = rho * 2 WHERE entry = 1"),
        ("flaim-client/store.sqlite", "DELETE FROM ledger WHERE entry = 1"),
        ("budget.sqlite", "UPDATE release SET rho = 0.001 WHERE entry = 1"),
        ("register.sqlite", "DELETE FROM owner"),
        ("service.sqlite", "UPDATE studies SET state = 'failed'"),
    ],
)
def test_changed_row_of_a_store_is_told(folder: Path, file: str, statement: str) -> None:
    with closing(sqlite3.connect(folder / file)) as db, db:
        assert db.execute(statement).rowcount > 0
    assert found(folder) != json.loads(VALUES.read_text())


@pytest.mark.parametrize(
    "pattern", ["*.backup", "server-0/store/totals/*", "server-0/store/checkpoints/*"]
)
def test_changed_byte_of_a_store_is_refused(folder: Path, pattern: str) -> None:
    path = sorted(folder.glob(pattern))[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises((StoreError, SealError)):
        found(folder)


def test_archive_has_no_path_of_its_maker(folder: Path) -> None:
    for path in folder.rglob("*"):
        assert not path.is_file() or b"/tmp/" not in path.read_bytes(), path
