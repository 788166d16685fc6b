"""What a report's pictures show of a synthetic table, beside the real one where that is at hand.

Provides `compare_tables` and `code_labels`. Secret: the real table, in trials only; what is computed from it is not
differentially private, and the report says so.
"""

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Column
from mechanisms.metrics import query_errors, table_answers
from mechanisms.workload import Workload
from parties.report.content import ColumnShares, QueryError, ReportPictures

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
    if real is None:
        return ReportPictures(columns=columns)
    answers = table_answers(workload, real), table_answers(workload, synthetic)
    errors = zip(workload.queries, query_errors(workload, *answers).tolist(), strict=True)
    return ReportPictures(tuple(QueryError(query, error) for query, error in errors), columns)


def code_labels(column: Column) -> tuple[str, ...]:
    """What each code of a column stands for: a category, the lower end of a bin, an atom, or missing."""
    return (*column.labels, MISSING_LABEL) if column.missing else column.labels


def _shares(codes: NDArray[np.int32], size: int) -> tuple[float, ...]:
    shares = np.bincount(codes, minlength=size) / len(codes)
    return tuple(float(share) for share in shares)
