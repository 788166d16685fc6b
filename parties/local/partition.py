"""Splits of one table into the tables of K data owners, for trials and benchmarks.

`partition_rows` selects `iid`, `label_skew` or `clustering` by its name on the command line. Every row goes to exactly
one owner, and every owner gets at least one row if there are enough rows; otherwise some owners have an empty table,
which is valid.

Secret: nothing; this code runs where the whole table is available already. The randomness is public: one seed, one
split.

The embedding of `clustering` never depends on the installed packages, since two machines would then report different
errors for one command. The default, `svd_embedding`, needs NumPy only; the FLAIM paper's UMAP is selected by name
(`umap_embedding`, from the bench extra), and `Partition.note` names the used one.

Source: FLAIM paper, section 5 (clustering; Dirichlet label skew). Known limits: floating-point sums differ between
machines in the last bits, so a row between two clusters may go either way; UMAP differs between its versions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.sampling import PublicGenerator, public_generator

PARTITIONS = ("iid", "label-skew", "clustering")
"""Names for `partition_rows`."""

Embedding = Callable[[NDArray[np.int32], Sequence[int], int], NDArray[np.float64]]
"""Function from coded rows (rows, columns), the columns' sizes and a seed to points (rows, dimensions)."""

_BLOCK_ELEMENTS = 1 << 24
"""Largest intermediate array, in elements: 128 MB of 8-byte floats."""
_LLOYD_STEPS = 50


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Owner of each row: `owners` (rows,) holds a client index in [0, clients) for each row.

    Raises ValueError if an index is out of range or there is no client.
    """

    kind: str
    clients: int
    owners: NDArray[np.int32]
    note: str

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise ValueError(f"a partition needs at least one client, not {self.clients}")
        if self.owners.ndim != 1:
            raise ValueError(f"owners has shape {self.owners.shape}; one index per row is needed")
        if self.owners.size and (self.owners.min() < 0 or self.owners.max() >= self.clients):
            raise ValueError(f"an owner index is outside [0, {self.clients})")

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows per client, (clients,)."""
        return np.bincount(self.owners, minlength=self.clients).astype(np.int64)

    def rows_of(self, client: int) -> NDArray[np.int64]:
        """Returns the row numbers of one client, ascending. Raises ValueError for an index out of range."""
        if not 0 <= client < self.clients:
            raise ValueError(f"client {client} is outside [0, {self.clients})")
        return np.flatnonzero(self.owners == client).astype(np.int64)


def numbered_names(prefix: str, count: int) -> tuple[str, ...]:
    """Returns ``count`` names with a number of three digits at least, from PREFIX-000."""
    width = max(3, len(str(count - 1)))
    return tuple(f"{prefix}-{index:0{width}d}" for index in range(count))


def partition_rows(
    kind: str,
    codes: NDArray[np.int32],
    sizes: Sequence[int],
    *,
    clients: int,
    seed: int,
    label: int | None = None,
    beta: float = 0.1,
) -> Partition:
    """Returns the split called `kind` of coded rows (rows, columns); `label` is a column number, by default the last.

    Raises ValueError for an unknown kind, a label that is no column, or no rows.
    """
    if kind == "iid":
        return iid(len(codes), clients=clients, seed=seed)
    if kind == "label-skew":
        column = codes.shape[1] - 1 if label is None else label
        if not 0 <= column < codes.shape[1]:
            raise ValueError(f"label column {column} is outside [0, {codes.shape[1]})")
        return label_skew(codes[:, column], clients=clients, seed=seed, beta=beta)
    if kind == "clustering":
        return clustering(codes, sizes, clients=clients, seed=seed)
    raise ValueError(f"unknown partition {kind!r}; expected one of {', '.join(PARTITIONS)}")


def iid(rows: int, *, clients: int, seed: int) -> Partition:
    """Returns a random split into parts with sizes that differ by one at most.

    Raises ValueError for no rows.
    """
    _check_counts(rows, clients)
    order = public_generator(seed).permutation(rows)
    owners = np.empty(rows, dtype=np.int32)
    owners[order] = np.arange(rows) * clients // rows
    return Partition("iid", clients, owners, "random, of equal size")


def label_skew(
    labels: NDArray[np.int32], *, clients: int, seed: int, beta: float = 0.1
) -> Partition:
    """Gives clients shares of each class of `labels` (rows,), drawn from Dirichlet(beta, ..., beta).

    The smaller `beta`, the more a class is concentrated at few clients; beta -> infinity is the iid split. A client
    without a row takes one from the client that has most, if that has another one.

    Raises ValueError for no rows or a beta that is not positive or 1e300 and more.
    """
    _check_counts(len(labels), clients)
    # Above 1e300 NumPy's shares overflow.
    if not 0 < beta < 1e300:
        raise ValueError(f"beta is {beta}; expected a positive number below 1e300")
    rng = public_generator(seed)
    owners = np.empty(len(labels), dtype=np.int32)
    for value in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == value))
        shares = np.cumsum(rng.dirichlet(np.full(clients, beta)))
        # Row i of a class of n goes to the client whose share of [0, 1) holds (i + 1/2) / n.
        position = np.searchsorted(shares, (np.arange(len(rows)) + 0.5) / len(rows), side="right")
        owners[rows] = np.minimum(position, clients - 1)
    _give_everyone_a_row(owners, clients)
    return Partition(
        "label-skew", clients, owners, f"Dirichlet shares of each class, beta {beta:g}"
    )


def clustering(
    codes: NDArray[np.int32],
    sizes: Sequence[int],
    *,
    clients: int,
    seed: int,
    embedding: Embedding | None = None,
) -> Partition:
    """Gives similar rows to one client: k-means with one cluster per client on an embedding of the rows.

    `codes` is (rows, columns), `sizes` the number of codes of each column. `embedding` is `svd_embedding` by default.
    Raises ValueError for no rows.
    """
    _check_counts(len(codes), clients)
    embed = svd_embedding if embedding is None else embedding
    owners = _k_means(embed(codes, sizes, seed), clients=clients, seed=seed)
    _give_everyone_a_row(owners, clients)
    name = getattr(embed, "__name__", "given embedding").removesuffix("_embedding")
    return Partition("clustering", clients, owners, f"k-means on the rows' {name} embedding")


def svd_embedding(
    codes: NDArray[np.int32], sizes: Sequence[int], seed: int, *, dimensions: int = 8
) -> NDArray[np.float64]:
    """Principal components of the one-hot rows, (rows, at most `dimensions`).

    They are the eigenvectors of the one-hot columns' covariance, so memory stays at a block of rows. Linear, unlike
    UMAP: only pairwise dependence between columns has an effect. `seed` is not used.
    """
    del seed
    offsets = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
    width = int(sum(sizes))
    block_rows = max(1, _BLOCK_ELEMENTS // max(1, width))
    gram = np.zeros((width, width))
    for start in range(0, len(codes), block_rows):
        block = _one_hot(codes[start : start + block_rows], offsets, width)
        gram += block.T @ block
    mean = gram.diagonal() / max(1, len(codes))
    covariance = gram / max(1, len(codes)) - np.outer(mean, mean)
    axes = np.linalg.eigh(covariance)[1][:, ::-1][:, :dimensions]
    # A one-hot row times the axes is the sum of the axes' rows at its codes.
    return np.asarray(axes[codes + offsets].sum(axis=1) - mean @ axes, dtype=np.float64)


def umap_embedding(
    codes: NDArray[np.int32], sizes: Sequence[int], seed: int
) -> NDArray[np.float64]:
    """The FLAIM authors' choice: UMAP of the integer codes to (rows, 2), 15 neighbours, minimum distance 0.1.

    Raises ImportError, with the missing package, if the bench extra is not installed.
    """
    del sizes
    try:
        import umap
    except ImportError as error:
        message = (
            "the UMAP embedding needs the bench extra: pip install -c constraints.txt -e '.[bench]'"
        )
        raise ImportError(message) from error
    # One thread: UMAP is reproducible only then.
    reducer = umap.UMAP(n_neighbors=15, min_dist=0.1, random_state=seed, n_jobs=1)
    return np.asarray(reducer.fit_transform(codes.astype(np.float32)), dtype=np.float64)


def _check_counts(rows: int, clients: int) -> None:
    if clients < 1:
        raise ValueError(f"{clients} clients; expected at least one")
    if rows < 1:
        raise ValueError("a table without rows cannot be split")


def _one_hot(
    codes: NDArray[np.int32], offsets: NDArray[np.int64], width: int
) -> NDArray[np.float64]:
    hot = np.zeros((len(codes), width))
    np.put_along_axis(hot, codes + offsets, 1.0, axis=1)
    return hot


def _give_everyone_a_row(owners: NDArray[np.int32], clients: int) -> None:
    """Moves one row from the largest client to each client without one, in place, while the largest has two."""
    sizes = np.bincount(owners, minlength=clients)
    for client in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        if sizes[largest] < 2:
            return
        owners[np.flatnonzero(owners == largest)[0]] = client
        sizes[largest] -= 1
        sizes[client] += 1


def _k_means(points: NDArray[np.float64], *, clients: int, seed: int) -> NDArray[np.int32]:
    """Lloyd's algorithm from k-means++ centres; returns the cluster of each point. Clusters may be empty."""
    rng = public_generator(seed)
    centres = _spread_centres(points, clients, rng)
    owners = _nearest(points, centres)
    for _ in range(_LLOYD_STEPS):
        counts = np.bincount(owners, minlength=clients)
        sums = np.stack([np.bincount(owners, column, clients) for column in points.T], axis=1)
        filled = counts > 0
        centres[filled] = sums[filled] / counts[filled, None]
        moved = _nearest(points, centres)
        if np.array_equal(moved, owners):
            break
        owners = moved
    return owners


def _spread_centres(
    points: NDArray[np.float64], clients: int, rng: PublicGenerator
) -> NDArray[np.float64]:
    """k-means++: each further centre is a point drawn with probability proportional to its squared distance."""
    centres = np.empty((clients, points.shape[1]))
    centres[0] = points[rng.integers(len(points))]
    distance = np.full(len(points), np.inf)
    for i in range(1, clients):
        distance = np.minimum(distance, ((points - centres[i - 1]) ** 2).sum(axis=1))
        total = distance.sum()
        # All points coincide with a centre: any point will do.
        chance = distance / total if total > 0 else None
        centres[i] = points[rng.choice(len(points), p=chance)]
    return centres


def _nearest(points: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.int32]:
    owners = np.empty(len(points), dtype=np.int32)
    norms = (centres**2).sum(axis=1)
    block_rows = max(1, _BLOCK_ELEMENTS // len(centres))
    for start in range(0, len(points), block_rows):
        block = points[start : start + block_rows]
        owners[start : start + block_rows] = (norms - 2 * block @ centres.T).argmin(axis=1)
    return owners
