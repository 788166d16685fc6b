"""Means and covariances as one sum: the second moments of rows (1, X).

Provides ``moments`` (a silo's, of whole numbers or of real ones), ``MomentSum`` (what the server makes of their sum)
and ``correlation`` and ``positive`` (what rows can be drawn with).

With y = (1, X) the sum of y y^T has the number of rows, the sum of X and that of X X^T in one symmetric matrix, of
which the upper triangle is sent: 1 + l + l (l + 1) / 2 numbers. A row of norm R adds a matrix of Frobenius norm R^2.

Noise: entries off the diagonal stand in the matrix twice and in the triangle once. A row of the triangle with its
diagonal multiplied by 1 / sqrt(2) has the norm R^2 / sqrt(2), whatever the row: sum_i y_i^4 / 2 + sum_{i<j} y_i^2
y_j^2 = (sum y_i^2)^2 / 2. So that is what is sent where noise is added, rounded down for every row; and the noise is
symmetric. Where a row is longer than R it is made shorter, the 1 in it too, so that it counts for less than one row
in all sums alike.

Source: Fed-TDA, covariance. Erratum: its eq. 3 prints a sum over silos without their weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Below 1 / sqrt(2), by more than a double's rounding of the product does.
DIAGONAL = 0.70710678
_PART = 1 << 14
# A variance that is 1 but for noise is taken for no less.
_LEAST_VARIANCE = 0.25


def moments(rows: Floats, *, whole: bool) -> Floats:
    """The upper triangle (d (d + 1) / 2,), row by row, of sum y y^T over rows y (n, d).

    ``whole``: rows are whole numbers; the diagonal is multiplied by ``DIAGONAL`` and rounded down row by row, and all
    is exact as long as no sum reaches 2^53.
    """
    d = rows.shape[1]
    total, diagonal = np.zeros((d, d)), np.zeros(d)
    for start in range(0, len(rows), _PART):
        part = rows[start : start + _PART]
        total += part.T @ part
        if whole:
            diagonal += np.floor(part**2 * DIAGONAL).sum(axis=0)
    if whole:
        np.fill_diagonal(total, diagonal)
    return np.asarray(total[np.triu_indices(d)])


@dataclass(frozen=True, slots=True, eq=False)
class MomentSum:
    """What sums say of X: how many ``rows``, the ``mean`` (l,), the ``covariance`` (l, l), symmetric."""

    rows: float
    mean: Floats
    covariance: Floats

    @classmethod
    def of(cls, triangle: Floats, columns: int, *, diagonal: float = 1.0) -> MomentSum:
        """From a sum of ``moments``, in units of 1, of rows (1, X) with l = ``columns``; ``diagonal`` as sent."""
        matrix = np.zeros((columns + 1, columns + 1))
        matrix[np.triu_indices(columns + 1)] = triangle
        matrix += np.triu(matrix, 1).T
        np.fill_diagonal(matrix, np.diag(matrix) / diagonal)
        rows = max(float(matrix[0, 0]), 1.0)
        mean = matrix[0, 1:] / rows
        return cls(rows, mean, matrix[1:, 1:] / rows - np.outer(mean, mean))


def correlation(covariance: Floats, *, error: float) -> Floats:
    """A noisy covariance (l, l) with its diagonal brought to 1, which it is but for noise, and less of the rest.

    ``error``: the deviation of the noise in an entry off the diagonal. Entries are made smaller by the share of their
    squares that is noise, as expected (James and Stein's rule): where all of it may be, nothing is left of them.
    """
    scale = 1 / np.sqrt(np.maximum(np.diag(covariance), _LEAST_VARIANCE))
    off = covariance * np.outer(scale, scale)
    np.fill_diagonal(off, 0.0)
    energy = float((off**2).sum())
    noise = off.size * error**2
    kept = max(0.0, 1 - noise / energy) if energy else 0.0
    return np.asarray(np.eye(len(off)) + kept * off)


def positive(covariance: Floats, *, weights: Floats | None = None, floor: float = 1e-6) -> Floats:
    """The nearest matrix (l, l) in Frobenius norm to a symmetric one with no eigenvalue below ``floor``.

    ``weights`` (l,): how much more an entry of a column counts than others', both matrices multiplied by them.
    """
    root = np.ones(len(covariance)) if weights is None else np.sqrt(weights)
    values, vectors = np.linalg.eigh(covariance * np.outer(root, root))
    nearest = (vectors * np.maximum(values, floor)) @ vectors.T
    nearest /= np.outer(root, root)
    return np.asarray((nearest + nearest.T) / 2)
