"""Sums over rows of products of a party's own numbers: the work of counting rows, without a message.

``LocalProducts`` is the interface that counting needs; ``NumpyProducts`` implements it on this machine. Numbers are of
16 bits with a sign, and sums are wanted modulo 2^16. Where an installation has the compiled ``_products``, they wrap as
they go. Elsewhere float64 matrix products are exact in any order of summation, since a product is at most 2^30 and a
sum of at most 2^23 of them at most 2^53. So every implementation has the same result to the bit. Secret: operands and
sums, which are this party's alone. Source: own.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

NUMPY = "numpy"

try:
    from protocols import _products as compiled
except ImportError:
    # No compiler was there when this was installed.
    KERNELS: tuple[str, ...] = (NUMPY,)
else:
    KERNELS = (*compiled.VARIANTS, NUMPY)
"""Ways of adding up products that this machine has: kinds of its processor, the fastest first, and NumPy's float64."""

T = TypeVar("T")

MAX_ROWS = 1 << 23
"""Number of rows up to which a sum is exact."""
_TILE_CELLS = 1 << 19


@dataclass(frozen=True, slots=True)
class Pair:
    """Rows of an operand to multiply: all of ``left`` with all of ``right``."""

    left: slice
    right: slice


class Sums(Protocol):
    """Interface of running sums, one for each pair (left, right)."""

    async def add(self, operand: NDArray[np.int16]) -> None:
        """Adds the products of a block of rows: (entries, rows), rows contiguous."""

    async def result(self) -> list[NDArray[np.uint16]]:
        """Returns the sums over all rows that were added, modulo 2^16, for each pair. Nothing is added afterwards."""


class LocalProducts(Protocol):
    """Interface of a calculator of sums of products."""

    def start(self, pairs: Sequence[Pair]) -> Sums:
        """Returns sums of zero rows."""


def sums_of(operand: NDArray[np.int16], left: slice, right: slice) -> NDArray[np.float64]:
    """Returns exact sums over rows for one pair; both operands have rows along the axis that is summed."""
    first = operand[left].astype(np.float64)
    return first @ (first if left == right else operand[right].astype(np.float64)).T


def low_bits(sums: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Returns whole numbers modulo 2^16."""
    return sums.astype(np.int64).astype(np.uint16)


class NumpyProducts:
    """Calculator on this machine: ``threads`` workers, each with matrix products of one thread, on tiles of pairs.

    So all cores are busy for any shapes. BLAS' own threads split one product, and come to a crawl where it is tall and
    thin: they are switched off while a sum is under way. ``kernel`` is one of ``KERNELS``. Use ``close`` at the end.
    """

    def __init__(self, threads: int | None = None, kernel: str = KERNELS[0]) -> None:
        # Servers have it, and a data owner's installation does not, which imports this file.
        from threadpoolctl import ThreadpoolController

        if kernel not in KERNELS:
            raise ValueError(f"kernel is {kernel!r}; expected one of {', '.join(KERNELS)}")
        self.threads, self.kernel = threads or usable_cores(), kernel
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="products")
        self._blas = ThreadpoolController()

    def start(self, pairs: Sequence[Pair]) -> "NumpySums":
        """Returns sums of zero rows."""
        return NumpySums(pairs, self)

    async def run(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Runs all jobs in the workers, the next one where a worker is ready."""
        waiting = iter(jobs)

        def work() -> None:
            # A generator may be asked by one thread at a time, a list's iterator by all.
            for job in waiting:
                job()

        loop = asyncio.get_running_loop()
        with self._blas.limit(limits=1, user_api="blas"):
            await asyncio.gather(
                *(loop.run_in_executor(self._pool, work) for _ in range(self.threads))
            )

    def close(self) -> None:
        """Ends the workers."""
        self._pool.shutdown(cancel_futures=True)


class NumpySums:
    """Sums added to tile by tile: of 2 bytes a cell where they are compiled, else in float64."""

    def __init__(self, pairs: Sequence[Pair], products: NumpyProducts) -> None:
        self._pairs = pairs
        self._products = products
        dtype = np.float64 if products.kernel == NUMPY else np.uint16
        self._sums = [np.zeros((_length(p.left), _length(p.right)), dtype) for p in pairs]
        self._one_at_a_time = asyncio.Lock()

    async def add(self, operand: NDArray[np.int16]) -> None:
        """Adds the products of a block of rows: (entries, rows), rows contiguous."""
        async with self._one_at_a_time:
            jobs = [
                partial(_add_tile, operand, pair, tile, sums, self._products.kernel)
                for pair, sums in zip(self._pairs, self._sums, strict=True)
                for tile in _tiles(*sums.shape)
            ]
            await self._products.run(jobs)

    async def result(self) -> list[NDArray[np.uint16]]:
        """Returns the sums over all rows that were added, modulo 2^16, for each pair."""
        if self._products.kernel == NUMPY:
            return [low_bits(sums) for sums in self._sums]
        return self._sums


def _add_tile(
    operand: NDArray[np.int16], pair: Pair, tile: slice, sums: NDArray[Any], kernel: str
) -> None:
    left = slice(pair.left.start + tile.start, pair.left.start + tile.stop)
    if kernel == NUMPY:
        sums[tile] += sums_of(operand, left, pair.right)
    else:
        compiled.add(operand[left], operand[pair.right], sums[tile], kernel)


def _tiles(rows: int, columns: int) -> list[slice]:
    """Splits a matrix's rows into parts of some 2^19 cells: enough for every worker, and large enough for BLAS."""
    step = max(1, _TILE_CELLS // max(columns, 1))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def _length(part: slice) -> int:
    return int(part.stop - part.start)


def usable_cores() -> int:
    """Returns the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
