"""Sums over rows of products of 16-bit numbers, in C; absent where nothing was compiled."""

import numpy as np
from numpy.typing import NDArray

VARIANTS: tuple[str, ...]
"""Kinds of processors for which the sums are compiled and of which this is one, the fastest first."""

def add(
    left: NDArray[np.int16], right: NDArray[np.int16], sums: NDArray[np.uint16], variant: str, /
) -> None:
    """Adds to sums (a, b) the products of left (a, rows) and right (b, rows), summed over rows, modulo 2^16.

    Any strides will do. Raises TypeError for other types or axes, ValueError for other shapes or an unknown variant,
    BufferError for sums that cannot be written.
    """
