"""Clusterings of the published tables that come with the bench, so that all machines measure on the same clients.

UMAP's embedding, and with it the clusters, differs between versions and machines. ``partitions/`` has a file for each
table: the owner of each training row, one byte a row, gzipped. ``index.json`` has their digests and those of the rows
that they belong to. ``bench.methods.ship`` makes the files. All values here are public.
"""

import gzip
import hashlib
import json
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.datasets import Dataset
from bench.fetch import DatasetError

FOLDER = Path(__file__).parent / "partitions"
INDEX = "index.json"


def shipped_owners(dataset: Dataset, *, clients: int, seed: int) -> NDArray[np.int32] | None:
    """Returns the owner of each training row (rows,); None where no clustering of these rows is shipped.

    Raises DatasetError for a file that is not the one in the index.
    """
    said = index().get(name := name_of(dataset.name, clients, seed))
    if said is None or said["rows"] != rows_digest(dataset.train):
        return None
    path = FOLDER / f"{name}.gz"
    try:
        data = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path}: {error}; expected a file of this installation") from error
    if hashlib.sha256(data).hexdigest() != said["owners"]:
        raise DatasetError(f"{path}: is not the partition whose digest is in {INDEX}")
    return np.frombuffer(data, dtype=np.uint8).astype(np.int32)


def rows_digest(codes: NDArray[np.int32]) -> str:
    """Returns the hex SHA-256 of coded rows (rows, columns): of their shape and their codes, little-endian."""
    digest = hashlib.sha256(repr(codes.shape).encode())
    digest.update(np.ascontiguousarray(codes, dtype="<i4").tobytes())
    return digest.hexdigest()


def name_of(dataset: str, clients: int, seed: int) -> str:
    """Returns the name of a clustering's file, without its ending."""
    return f"{dataset}-{clients}-{seed}"


def index() -> dict[str, dict[str, str]]:
    """Returns the digests of rows and owners by name."""
    path = FOLDER / INDEX
    found: dict[str, dict[str, str]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found
