"""Means and covariances as one sum: the second moments of rows (1, X).

``moments`` is a silo's part (of whole numbers or of real ones), ``MomentSum`` the server's; ``correlation`` and
``positive`` make the matrix that rows are drawn with.

With y = (1, X) the sum of y y^T has the number of rows, the sum of X and that of X X^T in one symmetric matrix, of
which the upper triangle is sent: 1 + l + l (l + 1) / 2 numbers. A row of norm R adds a matrix of Frobenius norm R^2.

Noise: entries off the diagonal stand in the matrix twice and in the triangle once. The triangle of a row, with its
diagonal multiplied by 1 / sqrt(2), has the norm R^2 / sqrt(2) for every row: sum_i y_i^4 / 2 + sum_{i<j} y_i^2 y_j^2 =
(sum y_i^2)^2 / 2. This is sent if noise is added, rounded down for every row; the noise is symmetric. A row longer than
R is shortened, including its 1, so that it counts for less than one row in all sums alike.

Source: Fed-TDA, covariance. Erratum: its eq. 3 prints a sum over silos without their weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Below 1 / sqrt(2), by more than the rounding of the product in doubles.
DIAGONAL = 0.70710678
_PART = 1 << 14
# A variance that is 1 except for noise is taken to be at least this.
_LEAST_VARIANCE = 0.25


def moments(rows: Floats, *, whole: bool) -> Floats:
    """Returns the upper triangle (d (d + 1) / 2,), row by row, of sum y y^T over rows y (n, d).

    With ``whole``, rows are whole numbers; the diagonal is multiplied by ``DIAGONAL`` and rounded down row by row, and
    all is exact as long as no sum reaches 2^53.
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
    """Estimates from sums over X: the number of ``rows``, the ``mean`` (l,), the ``covariance`` (l, l), symmetric."""

    rows: float
    mean: Floats
    covariance: Floats

    @classmethod
    def of(cls, triangle: Floats, columns: int, *, diagonal: float = 1.0) -> MomentSum:
        """Computes them from a sum of ``moments``, in units of 1, of rows (1, X) with l = ``columns``.

        ``diagonal`` is the factor of the diagonal as sent.
        """
        matrix = np.zeros((columns + 1, columns + 1))
        matrix[np.triu_indices(columns + 1)] = triangle
        matrix += np.triu(matrix, 1).T
        np.fill_diagonal(matrix, np.diag(matrix) / diagonal)
        rows = max(float(matrix[0, 0]), 1.0)
        mean = matrix[0, 1:] / rows
        # Cov(X) = E[X X^T] - E[X] E[X]^T.
        return cls(rows, mean, matrix[1:, 1:] / rows - np.outer(mean, mean))


def correlation(covariance: Floats, *, error: float) -> Floats:
    """Returns a noisy covariance (l, l) with its diagonal scaled to 1 and the other entries shrunk.

    The true diagonal is 1. ``error`` is the deviation of the noise in an entry off the diagonal. Entries are reduced by
    the share of their squares that is expected to be noise (James and Stein's rule), to zero if that may be all.
    """
    scale = 1 / np.sqrt(np.maximum(np.diag(covariance), _LEAST_VARIANCE))
    off = covariance * np.outer(scale, scale)
    np.fill_diagonal(off, 0.0)
    energy = float((off**2).sum())
    noise = off.size * error**2
    kept = max(0.0, 1 - noise / energy) if energy else 0.0
    return np.asarray(np.eye(len(off)) + kept * off)


def positive(covariance: Floats, *, weights: Floats | None = None, floor: float = 1e-6) -> Floats:
    """Returns the nearest matrix (l, l), in Frobenius norm, to a symmetric one with no eigenvalue below ``floor``.

    ``weights`` (l,) are the weights of columns in the norm: both matrices are multiplied by them.
    """
    root = np.ones(len(covariance)) if weights is None else np.sqrt(weights)
    values, vectors = np.linalg.eigh(covariance * np.outer(root, root))
    nearest = (vectors * np.maximum(values, floor)) @ vectors.T
    nearest /= np.outer(root, root)
    return np.asarray((nearest + nearest.T) / 2)
