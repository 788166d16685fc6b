"""Sums over rows of products on a GPU, by CuPy: the same to the bit as on the processor, since both are exact.

CuPy is imported on demand, and never required. Secret: operands and sums, on a device of this party's own. Source:
`products`.
"""

import asyncio
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.products import Pair, low_bits

_TRIED_ROWS = 1 << 12


def gpu_products() -> "CupyProducts | None":
    """Returns a calculator of sums of products on this machine's GPU; None without CuPy or a GPU.

    Raises ArithmeticError for a GPU whose float64 products are not exact (some libraries emulate them).
    """
    try:
        cupy = importlib.import_module("cupy")
    except ImportError:
        return None
    try:
        if cupy.cuda.runtime.getDeviceCount() < 1:
            return None
    except cupy.cuda.runtime.CUDARuntimeError:
        return None
    products = CupyProducts(cupy)
    products.try_out()
    return products


class CupyProducts:
    """Calculator on a GPU, by the given module of CuPy."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def start(self, pairs: Sequence[Pair]) -> "CupySums":
        """Returns sums of zero rows."""
        return CupySums(self._cupy, pairs)

    def try_out(self) -> None:
        """Compares the largest possible products with integers. Raises ArithmeticError where they differ."""
        block = np.full((2, _TRIED_ROWS), -(1 << 15), np.int16)
        block[1] = np.arange(_TRIED_ROWS) - (1 << 15)
        sums = CupySums(self._cupy, [Pair(slice(0, 2), slice(0, 2))])
        sums.add_now(block)
        exact = block.astype(np.int64) @ block.T.astype(np.int64)
        if not np.array_equal(sums.exact()[0], exact):
            raise ArithmeticError(
                'this GPU\'s float64 products are not exact; count without it ([compute] gpu = "never")'
            )


class CupySums:
    """Sums in float64 on the device."""

    def __init__(self, cupy: Any, pairs: Sequence[Pair]) -> None:
        self._cupy = cupy
        self._pairs = pairs
        self._sums = [
            cupy.zeros((pair.left.stop - pair.left.start, pair.right.stop - pair.right.start))
            for pair in pairs
        ]
        self._one_at_a_time = asyncio.Lock()

    async def add(self, operand: NDArray[np.int16]) -> None:
        """Adds the products of a block of rows: (entries, rows)."""
        async with self._one_at_a_time:
            await asyncio.to_thread(self.add_now, operand)

    def add_now(self, operand: NDArray[np.int16]) -> None:
        """Adds as ``add``, at once."""
        numbers = self._cupy.asarray(operand).astype(self._cupy.float64)
        for pair, sums in zip(self._pairs, self._sums, strict=True):
            sums += numbers[pair.left] @ numbers[pair.right].T

    def exact(self) -> list[NDArray[np.float64]]:
        """Returns the sums, not reduced."""
        return [self._cupy.asnumpy(sums) for sums in self._sums]

    async def result(self) -> list[NDArray[np.uint16]]:
        """Returns the sums over all rows that were added, modulo 2^16, for each pair."""
        return [low_bits(sums) for sums in await asyncio.to_thread(self.exact)]
