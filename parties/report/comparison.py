"""Data of a report's pictures: shares, query errors and associations of the synthetic and, if at hand, the real table.

The association of two columns is Cramér's V of their codes, corrected for its bias.

Secret: the real table, in trials only. Values computed from it are not differentially private, and the report says so.
Source: Bergsma, "A bias-correction for Cramér's V and Tschuprow's T", Journal of the Korean Statistical Society 42
(2013). Limits: ordered codes count as unordered; only a sample of a long table is used.
"""

import itertools

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Column, Domain
from mechanisms.metrics import query_errors, table_answers
from mechanisms.sampling import public_generator
from mechanisms.workload import Workload
from parties.report.axes import MISSING_LABEL, column_axis
from parties.report.model import Associations, ColumnShares, QueryError, ReportFigures

MAX_ROWS = 100_000
"""Maximum number of sampled rows; they give V to 0.01."""


def associate(domain: Domain, codes: NDArray[np.int32]) -> NDArray[np.float64]:
    """Returns Cramér's V of all pairs of columns, symmetric and 1 on the diagonal.

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
    """Returns the bias-corrected Cramér's V, between 0 and 1; 0 if a column has one value only.

    Shapes: counts (rows, columns), a contingency table.
    """
    # Values that do not occur add no degrees of freedom.
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


MAX_PAIRED = 20
"""Maximum number of columns in the picture of pairs."""


def compare_tables(
    workload: Workload, synthetic: NDArray[np.int32], real: NDArray[np.int32] | None = None
) -> ReportFigures:
    """Returns every column's shares and the associations, and every query's error if ``real`` is given.

    Both tables are codes (rows, columns). Raises ValueError for a table without rows.
    """
    if not len(synthetic) or (real is not None and not len(real)):
        raise ValueError("a table without rows has no shares to compare")
    columns = tuple(
        ColumnShares(
            column.name,
            code_labels(column),
            _shares(synthetic[:, i], column.size),
            None if real is None else _shares(real[:, i], column.size),
            None if (axis := column_axis(column)) is None else axis.ticks(),
        )
        for i, column in enumerate(workload.domain.columns)
    )
    pairs = _associations(workload.domain, synthetic, real)
    if real is None:
        return ReportFigures(columns=columns, associations=pairs)
    answers = table_answers(workload, real), table_answers(workload, synthetic)
    errors = zip(workload.queries, query_errors(workload, *answers).tolist(), strict=True)
    named = tuple(QueryError(query, error) for query, error in errors)
    return ReportFigures(named, columns, pairs)


def _associations(
    domain: Domain, synthetic: NDArray[np.int32], real: NDArray[np.int32] | None
) -> Associations:
    """Returns the associations of all pairs, or of the MAX_PAIRED columns with the strongest associations."""
    made = associate(domain, synthetic)
    there = None if real is None else associate(domain, real)
    most = np.maximum(made, made if there is None else there) - np.eye(len(made))
    kept = np.sort(np.argsort(-most.max(axis=0), kind="stable")[:MAX_PAIRED])

    def rows(matrix: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
        return tuple(map(tuple, matrix[np.ix_(kept, kept)].tolist()))

    return Associations(
        tuple(domain.names[i] for i in kept),
        rows(made),
        None if there is None else rows(there),
        len(domain.names) - len(kept),
    )


def code_labels(column: Column) -> tuple[str, ...]:
    """Returns the meaning of each code of a column: a category, the lower end of a bin, an atom, or missing."""
    return (*column.labels, MISSING_LABEL) if column.missing else column.labels


def _shares(codes: NDArray[np.int32], size: int) -> tuple[float, ...]:
    shares = np.bincount(codes, minlength=size) / len(codes)
    return tuple(float(share) for share in shares)
