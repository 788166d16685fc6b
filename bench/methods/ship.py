"""The files of `bench.methods.shipped`: ``python -m bench.methods.ship adult magic`` makes these tables' anew, by UMAP.

All values here are public. Known limit: another machine makes other clusters, so that files are made once.
"""

import gzip
import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from bench.datasets import Dataset, load
from bench.methods import shipped
from bench.methods.splits import clustered

CLIENTS, SEED = 100, 0
"""Number of clients of the paper, and the seed of the clustering."""


def ship(dataset: Dataset, owners: NDArray[np.int32], *, clients: int, seed: int) -> Path:
    """Writes the file of a clustering and enters it into the index. Raises ValueError for more than 256 clients."""
    if clients > 256:
        raise ValueError(f"{clients} clients; a byte a row tells 256 apart")
    name, data = shipped.name_of(dataset.name, clients, seed), owners.astype(np.uint8).tobytes()
    shipped.FOLDER.mkdir(exist_ok=True)
    path = shipped.FOLDER / f"{name}.gz"
    path.write_bytes(gzip.compress(data, mtime=0))
    entries = shipped.index() | {
        name: {
            "rows": shipped.rows_digest(dataset.train),
            "owners": hashlib.sha256(data).hexdigest(),
            "by": f"umap-learn {importlib.metadata.version('umap-learn')}",
        }
    }
    text = json.dumps(dict(sorted(entries.items())), indent=1)
    (shipped.FOLDER / shipped.INDEX).write_text(f"{text}\n", "utf-8")
    return path


def main(names: Sequence[str]) -> None:
    """Makes the files of these tables."""
    for name in names:
        dataset = load(name)
        owners = clustered(dataset, clients=CLIENTS, seed=SEED).owners
        click.echo(ship(dataset, owners, clients=CLIENTS, seed=SEED))


if __name__ == "__main__":
    main(sys.argv[1:])
