"""The loops of proofs of ANDs over all gates, in C; absent where nothing was compiled.

Parts are of records, in their order: (x, y, mask, z, added terms or None) of left, (x, y, mask) of right, each array of
as many words in one piece. Modulo p = 2^61 - 1. Raises ValueError for arrays with gaps and for other sizes.
"""

import numpy as np
from numpy.typing import NDArray

RUNS_HERE: bool
"""True where this processor is of the kind that the loops are compiled for; else there are none of the functions."""

Words = NDArray[np.uint64]
Parts = list[tuple[Words | None, ...]]

def count(left: Parts, right: Parts, words: int, found: NDArray[np.int64], /) -> None:
    """Adds ``kernels.count_minus`` of the first ``words`` words to found (64, 64)."""

def multiply(
    left: Parts,
    right: Parts,
    quarter: int,
    left_tables: Words,
    right_tables: Words,
    found: Words,
    /,
) -> None:
    """Adds ``kernels.sum_products`` to found (16, 16), with ``sign_tables.digit_tables`` (8, 256)."""

def fold(
    parts: Parts, left: bool, quarter: int, tables: Words, weights: Words, found: Words, /
) -> None:
    """Writes ``kernels.fold_sums`` to found (quarter,), with ``sign_tables.sign_tables`` (8, 256)."""
