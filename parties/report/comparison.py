"""What a report's pictures show of a synthetic table, beside the real one where that is at hand.

Provides `compare_tables` and `code_labels`. Secret: the real table, in trials only; what is computed from it is not
differentially private, and the report says so.
"""

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Column, Domain
from mechanisms.metrics import query_errors, table_answers
from mechanisms.workload import Workload
from parties.report.association import associate
from parties.report.content import Associations, ColumnShares, QueryError, ReportPictures

MAX_PAIRED = 30
"""Columns whose pairs are drawn at most."""
MISSING_LABEL = "(missing)"


def compare_tables(
    workload: Workload, synthetic: NDArray[np.int32], real: NDArray[np.int32] | None = None
) -> ReportPictures:
    """Every column's shares, and every query's error where `real` is given; both tables are codes (rows, columns).

    Raises ValueError for a table without rows.
    """
    if not len(synthetic) or (real is not None and not len(real)):
        raise ValueError("a table without rows has no shares to compare")
    columns = tuple(
        ColumnShares(
            column.name,
            code_labels(column),
            _shares(synthetic[:, i], column.size),
            None if real is None else _shares(real[:, i], column.size),
        )
        for i, column in enumerate(workload.domain.columns)
    )
    pairs = _associations(workload.domain, synthetic, real)
    if real is None:
        return ReportPictures(columns=columns, associations=pairs)
    answers = table_answers(workload, real), table_answers(workload, synthetic)
    errors = zip(workload.queries, query_errors(workload, *answers).tolist(), strict=True)
    named = tuple(QueryError(query, error) for query, error in errors)
    return ReportPictures(named, columns, pairs)


def _associations(
    domain: Domain, synthetic: NDArray[np.int32], real: NDArray[np.int32] | None
) -> Associations:
    """Of all pairs, or of the MAX_PAIRED columns that go together most with another one."""
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
    """What each code of a column stands for: a category, the lower end of a bin, an atom, or missing."""
    return (*column.labels, MISSING_LABEL) if column.missing else column.labels


def _shares(codes: NDArray[np.int32], size: int) -> tuple[float, ...]:
    shares = np.bincount(codes, minlength=size) / len(codes)
    return tuple(float(share) for share in shares)
