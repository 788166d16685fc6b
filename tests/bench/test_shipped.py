"""Clusterings that come with the bench: the same on all machines, for their own rows alone."""

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from bench.datasets import RECIPES, Dataset
from bench.fetch import DatasetError
from bench.methods import ship as shipping
from bench.methods import shipped
from bench.methods.splits import owners_of
from mechanisms.domain import Domain

DOMAIN = Domain.from_dict(
    {"column": [{"name": name, "kind": "categorical", "categories": list("abc")} for name in "xy"]}
)


def table(rows: int = 300, *, seed: int = 0) -> Dataset:
    """Random rows of a made-up table."""
    codes = np.random.default_rng(seed).integers(0, 3, (rows, 2), dtype=np.int32)
    return Dataset("made-up", DOMAIN, codes, codes[:10], 1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    return tmp_path


def test_a_shipped_clustering_is_taken_as_it_is(folder: Path) -> None:
    owners = np.random.default_rng(1).integers(0, 100, 300).astype(np.int32)
    path = shipping.ship(table(), owners, clients=100, seed=0)
    found = owners_of(table(), "clustering", clients=100, seed=0)
    np.testing.assert_array_equal(found.owners, owners)
    assert found.note.endswith("as shipped")
    assert len(path.read_bytes()) < 300
    first = path.read_bytes()
    assert shipping.ship(table(), owners, clients=100, seed=0).read_bytes() == first
    assert len(json.loads((folder / "index.json").read_text())) == 1


def test_other_rows_clients_and_seeds_have_none(folder: Path) -> None:
    owners = np.zeros(300, np.int32)
    shipping.ship(table(), owners, clients=100, seed=0)
    of = shipped.shipped_owners
    assert of(table(seed=1), clients=100, seed=0) is None
    assert of(table(299), clients=100, seed=0) is None
    assert of(table(), clients=99, seed=0) is None
    assert of(table(), clients=100, seed=1) is None
    assert of(table(), clients=100, seed=0) is not None


def test_more_owners_than_a_byte_tells_apart_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="257 clients"):
        shipping.ship(table(), np.zeros(300, np.int32), clients=257, seed=0)


@pytest.mark.parametrize("how", ["other owners", "cut short", "no gzip", "gone"])
def test_a_damaged_file_is_named(folder: Path, how: str) -> None:
    path = shipping.ship(table(), np.zeros(300, np.int32), clients=100, seed=0)
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        others = {
            "other owners": gzip.compress(bytes([1] * 300)),
            "cut short": data[:-9],
            "no gzip": b"owners",
        }
        path.write_bytes(others[how])
    with pytest.raises(DatasetError, match=r"made-up-100-0\.gz"):
        shipped.shipped_owners(table(), clients=100, seed=0)


def test_what_is_shipped_is_whole() -> None:
    """Every file is in the index with its digest, for a published table, and every client has a row."""
    index = json.loads((shipped.FOLDER / "index.json").read_text())
    assert {path.stem for path in shipped.FOLDER.glob("*.gz")} == set(index)
    assert len(index) >= 4
    for name, said in index.items():
        dataset, clients, seed = name.rsplit("-", 2)
        assert dataset in RECIPES
        assert (int(clients), int(seed)) == (shipping.CLIENTS, shipping.SEED)
        data = gzip.decompress((shipped.FOLDER / f"{name}.gz").read_bytes())
        assert hashlib.sha256(data).hexdigest() == said["owners"]
        assert set(data) == set(range(int(clients)))
        assert len(said["rows"]) == 64
