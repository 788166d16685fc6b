"""The loops of proofs of ANDs over all gates, in C; absent where nothing was compiled.

Parts are of records, in their order: (x, y, mask, z, added terms or None) of left, (x, y, mask) of right, each array of
as many words in one piece. Modulo p = 2^61 - 1. Raises ValueError for arrays with gaps and for other sizes.
"""

import numpy as np
from numpy.typing import NDArray

VARIANTS: tuple[str, ...]
"""Kinds of processors for which the loops are compiled and of which this is one, the fastest first.

Elsewhere it is empty, and none of the functions is there.
"""

Words = NDArray[np.uint64]
Parts = list[tuple[Words | None, ...]]

def count(left: Parts, right: Parts, words: int, found: NDArray[np.int64], variant: str, /) -> None:
    """Adds ``kernels.count_minus`` of the first ``words`` words to found (64, 64)."""

def multiply(
    left: Parts,
    right: Parts,
    quarter: int,
    left_tables: Words,
    right_tables: Words,
    found: Words,
    variant: str,
    /,
) -> None:
    """Adds ``kernels.sum_products`` to found (16, 16), with ``sign_tables.digit_tables`` (8, 256)."""

def fold(
    parts: Parts, left: bool, quarter: int, tables: Words, weights: Words, found: Words, /
) -> None:
    """Writes ``kernels.fold_sums`` to found (quarter,), with ``sign_tables.sign_tables`` (8, 256)."""
