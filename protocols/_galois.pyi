"""Sums and products of elements of GR(2^16, 47) for many rows, in C; absent where nothing was compiled.

Elements (terms, 47, rows) and sums may have any strides but along their last axis. Raises TypeError for other types or
axes, ValueError for other shapes, gaps, or an unknown variant, BufferError for sums that cannot be written.
"""

import numpy as np
from numpy.typing import NDArray

VARIANTS: tuple[str, ...]
"""Kinds of processors for which the loops are compiled and of which this is one, the fastest first."""

Elements = NDArray[np.uint16]

def multiply(x: Elements, y: Elements, sums: Elements, variant: str, /) -> None:
    """Adds to sums (47, rows) the products of x and y (terms, 47, rows), summed over terms."""

def scale(factor: Elements, x: Elements, sums: Elements, variant: str, /) -> None:
    """Adds to sums (terms, 47, rows) a factor (47,) of coefficients 0 and 1 times x (terms, 47, rows)."""

def weigh(weights: Elements, x: Elements, sums: Elements, variant: str, /) -> None:
    """Adds to sums (47, rows) the product of the matrices weights (47, n) and x (n, rows)."""
