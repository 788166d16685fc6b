"""Similarity of a synthetic table to a real one, column by column.

Nothing here is secret; the tables are public.

Source: Fed-TDA paper, its metrics: the mean Jensen-Shannon divergence over the discrete columns (the label is one) and
the mean Wasserstein distance over the numbers, scaled by the published table's bounds. Divergences are in bits, 0 to 1.
The paper does not print its logarithm, nor if its figure is the divergence or its square root, which SciPy's function
of that name returns: both are kept.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.papers.tda.tables import Rows, Table


class Similarity(NamedTuple):
    """Means over columns: `jsd` in bits, `jsd_root` of its square roots, `wasserstein` of scaled numbers."""

    jsd: float
    jsd_root: float
    wasserstein: float


def similarity(table: Table, synthetic: Rows) -> Similarity:
    """Compares `synthetic` rows with the training rows."""
    real = table.train
    pairs = [(real.codes[:, i], synthetic.codes[:, i], size) for i, size in enumerate(table.sizes)]
    pairs.append((real.labels, synthetic.labels, len(table.classes)))
    divergences = [
        divergence(np.bincount(a, minlength=size), np.bincount(b, minlength=size))
        for a, b, size in pairs
    ]
    scaled = zip(table.scaled(real).T, table.scaled(synthetic).T, strict=True)
    distances = [distance(a, b) for a, b in scaled]
    roots = np.sqrt(divergences)
    return Similarity(float(np.mean(divergences)), float(roots.mean()), float(np.mean(distances)))


def divergence(left: NDArray[np.generic], right: NDArray[np.generic]) -> float:
    """Returns the Jensen-Shannon divergence, in bits, of two histograms (cells,) with positive sums."""
    p, q = (h.astype(np.float64) / h.sum() for h in (left, right))
    middle = (p + q) / 2
    total = 0.0
    for one in (p, q):
        some = one > 0
        total += float((one[some] * np.log2(one[some] / middle[some])).sum()) / 2
    return max(total, 0.0)


def distance(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Returns the Wasserstein distance of order 1 of two samples (rows,): the area between their distributions."""
    points = np.sort(np.concatenate([left, right]))
    shares = [
        np.searchsorted(np.sort(one), points[:-1], side="right") / len(one) for one in (left, right)
    ]
    return float(np.abs(shares[0] - shares[1]) @ np.diff(points))
