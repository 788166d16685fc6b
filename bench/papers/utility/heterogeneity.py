"""Heterogeneity of the owners' tables.

The tables are secret, but a benchmark has all of them in one place.

Source: FLAIM paper, Table 5, in the definition of its authors' code: for each client the total variation distance (half
the L1 distance) between its normalised marginal and everybody's, averaged over marginals, all of one to three columns
there; then over the clients. 0 is a client that looks like all together, 1 one that shares no cell with the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Clique, Domain


@dataclass(frozen=True, slots=True)
class Heterogeneity:
    """Mean, standard deviation, least and greatest distance over the clients."""

    mean: float
    deviation: float
    least: float
    greatest: float


def all_marginals(domain: Domain, degree: int) -> list[Clique]:
    """Returns every set of one to `degree` columns: 469 of Adult's 14 columns for three."""
    sizes = range(1, degree + 1)
    return list(chain.from_iterable(combinations(domain.names, size) for size in sizes))


def heterogeneity(
    domain: Domain,
    marginals: Sequence[Clique],
    codes: NDArray[np.int32],
    owners: NDArray[np.int32],
) -> Heterogeneity:
    """Returns the heterogeneity of `codes` (rows, columns) among `owners` (rows,); clients without rows do not count.

    Raises ValueError without rows.
    """
    if not len(codes) or len(codes) != len(owners):
        raise ValueError(f"{len(codes)} rows and {len(owners)} owners; expected one owner per row")
    present, index = np.unique(owners, return_inverse=True)
    sizes = np.bincount(index).astype(np.float64)
    distance = np.zeros(len(present))
    for marginal in marginals:
        columns = [codes[:, domain.index(name)] for name in marginal]
        cells = np.ravel_multi_index(columns, domain.sizes(marginal))
        # Only cells that occur matter: at most one per row.
        occurring, cell = np.unique(cells, return_inverse=True)
        everybody = np.bincount(cell) / len(codes)
        pairs, counts = np.unique(index * len(occurring) + cell, return_counts=True)
        client, where = np.divmod(pairs, len(occurring))
        own = counts / sizes[client]
        # The distance is the sum of own - everybody where that is positive, on the client's cells.
        distance += np.bincount(
            client, np.maximum(own - everybody[where], 0.0), minlength=len(present)
        )
    each = distance / len(marginals)
    return Heterogeneity(
        float(each.mean()), float(each.std()), float(each.min()), float(each.max())
    )
