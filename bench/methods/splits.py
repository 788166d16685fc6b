"""Owners of the training rows of a benchmark table. Clusterings are those shipped, or by UMAP here, computed once.

All values here are public; the tables are published and a seed makes the split.

UMAP takes minutes on the larger tables. Up to `FIT_ROWS` rows are embedded as the paper does, all together; of larger
tables that many rows, drawn from the seed, are embedded and the others placed beside them (UMAP's `transform`). The
embedding is kept in the cache folder under a digest of rows, seed and UMAP's version. Limits: UMAP differs between
versions and machines, so a split is that of the machine that made it; `Partition.note` describes it. The clusterings
that published figures need are shipped (`bench.methods.shipped`).
"""

import contextlib
import hashlib
import importlib.metadata
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.datasets import Dataset
from bench.extra import need
from bench.fetch import DatasetError, cache_folder
from bench.methods.shipped import shipped_owners
from parties.foundation.errors import StoreError
from parties.local.partition import (
    PARTITIONS,
    Partition,
    clustering,
    partition_rows,
    umap_embedding,
)
from parties.storage.files import atomic_replacement

NATURAL = "natural"
SPLITS = (*PARTITIONS, NATURAL)
"""Names that `owners_of` accepts; `natural` is for a table that has owners itself."""
FIT_ROWS = 100_000
_UMAP_NOTE = "k-means on the rows' UMAP embedding"


def owners_of(
    dataset: Dataset,
    partition: str,
    *,
    clients: int,
    beta: float = 0.1,
    seed: int = 0,
    progress: Callable[[str], None] = lambda line: None,
) -> Partition:
    """Returns the split called `partition` of the training rows.

    Raises DatasetError for an unknown split, or one that the table does not have; ImportError without UMAP.
    """
    if partition not in SPLITS:
        raise DatasetError(f"unknown partition {partition!r}; expected one of {', '.join(SPLITS)}")
    if (dataset.owners is not None) != (partition == NATURAL):
        expected = NATURAL if dataset.owners is not None else ", ".join(PARTITIONS)
        raise DatasetError(
            f"partition {partition!r} is not one of {dataset.name}; expected {expected}"
        )
    if dataset.owners is not None:
        count = int(dataset.owners.max()) + 1
        if clients != count:
            raise DatasetError(f"{dataset.name} has {count} clients, not {clients}")
        return Partition(NATURAL, clients, dataset.owners, "the owners that the table has")
    if partition == "label-skew" and dataset.label is None:
        raise DatasetError(f"{dataset.name} has no target column for a label-skew")
    codes, sizes = dataset.train, dataset.domain.shape
    try:
        if partition != "clustering":
            return partition_rows(
                partition, codes, sizes, clients=clients, seed=seed, label=dataset.label, beta=beta
            )
    except ValueError as error:
        raise DatasetError(f"{dataset.name}: {error}") from error
    owners = shipped_owners(dataset, clients=clients, seed=seed)
    if owners is not None:
        return Partition("clustering", clients, owners, f"{_UMAP_NOTE}, as shipped")
    return clustered(dataset, clients=clients, seed=seed, progress=progress)


def clustered(
    dataset: Dataset,
    *,
    clients: int,
    seed: int,
    progress: Callable[[str], None] = lambda line: None,
) -> Partition:
    """Returns the clustering of the training rows by UMAP on this machine. Raises as ``owners_of``."""
    codes, sizes = dataset.train, dataset.domain.shape
    points = _kept_embedding(codes, sizes, seed, progress)
    try:
        split = clustering(codes, sizes, clients=clients, seed=seed, embedding=lambda *_: points)
    except ValueError as error:
        raise DatasetError(f"{dataset.name}: {error}") from error
    note = _UMAP_NOTE
    if len(codes) > FIT_ROWS:
        note += f", fitted on {FIT_ROWS} of {len(codes)} rows"
    return Partition("clustering", clients, split.owners, note)


def embedded(
    dataset: Dataset, *, seed: int, progress: Callable[[str], None] = lambda line: None
) -> NDArray[np.float64]:
    """Returns UMAP's points (rows, 2) of the training rows, which `owners_of` clusters. Raises ImportError."""
    return _kept_embedding(dataset.train, dataset.domain.shape, seed, progress)


def _kept_embedding(
    codes: NDArray[np.int32],
    sizes: Sequence[int],
    seed: int,
    progress: Callable[[str], None],
) -> NDArray[np.float64]:
    need("umap", "the clustering partition")
    version = importlib.metadata.version("umap-learn")
    digest = hashlib.sha256(f"umap {version} seed {seed} fit {FIT_ROWS}\n".encode())
    digest.update(repr(codes.shape).encode() + np.ascontiguousarray(codes).tobytes())
    path = cache_folder() / "embeddings" / f"{digest.hexdigest()[:24]}.npy"
    if path.exists():
        with contextlib.suppress(OSError, ValueError):
            points: NDArray[np.float64] = np.load(path, allow_pickle=False)
            if points.shape == (len(codes), 2):
                return points
    progress(f"embedding {len(codes)} rows with UMAP, once; it takes minutes")
    points = _embedding(codes, sizes, seed)
    _keep(path, points)
    return points


def _embedding(codes: NDArray[np.int32], sizes: Sequence[int], seed: int) -> NDArray[np.float64]:
    with warnings.catch_warnings():
        # UMAP warns that a seed costs it its threads.
        warnings.simplefilter("ignore")
        if len(codes) <= FIT_ROWS:
            return umap_embedding(codes, sizes, seed)
        import umap

        order = np.random.default_rng(seed).permutation(len(codes))
        fitted, others = order[:FIT_ROWS], order[FIT_ROWS:]
        reducer = umap.UMAP(n_neighbors=15, min_dist=0.1, random_state=seed, n_jobs=1)
        points = np.empty((len(codes), 2))
        points[fitted] = reducer.fit_transform(codes[fitted].astype(np.float32))
        points[others] = reducer.transform(codes[others].astype(np.float32))
        return points


def _keep(path: Path, points: NDArray[np.float64]) -> None:
    """Writes a temporary file and renames it, so that no reader sees half of it. Skips a cache it cannot write."""
    with contextlib.suppress(OSError, StoreError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_replacement(path) as beside, beside.open("wb") as target:
            np.save(target, points, allow_pickle=False)
