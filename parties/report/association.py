"""How strongly each two columns of a table go together: Cramér's V of their codes, corrected for its bias.

Provides ``associate`` and ``cramers_v``. Secret: the real table, in trials only; what is computed from it is not
private, and the report says so. Source: Bergsma, "A bias-correction for Cramér's V and Tschuprow's T", Journal of the
Korean Statistical Society 42 (2013). Limits: ordered codes count as unordered; of a long table only a part.
"""

import itertools

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Domain
from mechanisms.sampling import public_generator

MAX_ROWS = 100_000
"""Rows that are looked at; V is known to 0.01 by then."""


def associate(domain: Domain, codes: NDArray[np.int32]) -> NDArray[np.float64]:
    """Cramér's V of all pairs of columns, symmetric and 1 on the diagonal.

    Shapes: codes (rows, columns of the domain) -> (columns, columns).
    """
    if len(codes) > MAX_ROWS:
        chosen = public_generator(len(codes)).choice(len(codes), MAX_ROWS, replace=False)
        codes = codes[chosen]
    matrix = np.eye(len(domain.columns))
    for i, j in itertools.combinations(range(len(domain.columns)), 2):
        shape = domain.columns[i].size, domain.columns[j].size
        flat = codes[:, i].astype(np.int64) * shape[1] + codes[:, j]
        counts = np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)
        matrix[i, j] = matrix[j, i] = cramers_v(counts)
    return matrix


def cramers_v(counts: NDArray[np.int64]) -> float:
    """Between 0 and 1; 0 where a column has one value only. Shapes: counts (rows, columns), a contingency table."""
    # Values that do not occur are no degrees of freedom.
    counts = counts[counts.any(axis=1)][:, counts.any(axis=0)]
    total, (rows, columns) = counts.sum(), counts.shape
    if total < 2 or min(rows, columns) < 2:
        return 0.0
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / total
    phi2 = float((counts**2 / expected).sum() / total) - 1.0
    by_chance = (rows - 1) * (columns - 1) / (total - 1)
    smaller = min(n - (n - 1) ** 2 / (total - 1) for n in (rows, columns)) - 1
    if smaller <= 0:
        return 0.0
    return float(min(1.0, np.sqrt(max(0.0, phi2 - by_chance) / smaller)))
