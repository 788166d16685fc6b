"""Sums of products on a Dask cluster of this server's operator.

Each block of rows goes to one worker, the workers add up their products, and only the sums come back. Workers need
NumPy and nothing of this project: their functions travel with their code. Workers should have one BLAS thread for each
of their own threads, as Dask's workers do by default. Secret: operands and sums; see `parties.session.compute_pool`.
Known limits: the scheduler's address decides on TLS (tls://); workers short of memory spill to their disks, unless
Dask's configuration forbids it (distributed.worker.memory.spill).
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from distributed import Client, wait
from distributed.client import FutureCancelledError
from numpy.typing import NDArray

from parties.foundation.errors import ComputeError
from protocols.products import Pair

_CONNECT_S = 30
# Blocks in flight for each thread of the cluster: one in work, one waiting.
_BLOCKS_A_THREAD = 2

Bounds = Sequence[tuple[int, int, int, int]]


@asynccontextmanager
async def dask_products(address: str) -> AsyncIterator["DaskProducts"]:
    """Opens the cluster of the scheduler at ``address``. Raises ComputeError if it is unreachable or has no workers."""
    try:
        client = await Client(  # type: ignore[no-untyped-call]
            address, asynchronous=True, timeout=_CONNECT_S, set_as_default=False
        )
    except (OSError, TimeoutError) as error:
        raise ComputeError(
            f"no Dask scheduler answers at {address} within {_CONNECT_S} s (compute.dask): {error}"
        ) from error
    async with client:
        by_worker: Any = client.nthreads()
        threads = sum((await by_worker).values())
        if not threads:
            raise ComputeError(f"the Dask cluster at {address} has no workers (compute.dask)")
        yield DaskProducts(client, address, threads)


class DaskProducts:
    """Sums of products on the cluster of a Dask client."""

    def __init__(self, client: Any, address: str, threads: int) -> None:
        self.client = client
        self.address = address
        self.threads = threads
        self.sums_of, self.added = _worker_functions()

    def start(self, pairs: Sequence[Pair]) -> "DaskSums":
        """Returns sums of zero rows."""
        return DaskSums(self, pairs)


class DaskSums:
    """Sums at the workers, of 2 bytes a cell."""

    def __init__(self, products: DaskProducts, pairs: Sequence[Pair]) -> None:
        self._products = products
        self._bounds: Bounds = [
            (p.left.start, p.left.stop, p.right.start, p.right.stop) for p in pairs
        ]
        self._total: Any = None
        self._under_way: set[Any] = set()

    async def add(self, operand: NDArray[np.int16]) -> None:
        """Adds the products of a block of rows, (entries, rows)."""
        products, client = self._products, self._products.client
        while len(self._under_way) >= _BLOCKS_A_THREAD * products.threads:
            with client.as_current():
                waiting: Any = wait(self._under_way, return_when="FIRST_COMPLETED")  # type: ignore[no-untyped-call]
            self._under_way -= (await waiting).done
        # hash=False: keys by content would merge equal blocks, and hashing secrets has no use.
        block = await client.scatter(operand, hash=False)
        bounds = client.submit(products.sums_of, block, self._bounds, pure=False)
        self._under_way.add(bounds)
        before, self._total = self._total, bounds
        if before is not None:
            self._total = client.submit(products.added, before, bounds, pure=False)

    async def result(self) -> list[NDArray[np.uint16]]:
        """Returns the sums over all added rows, modulo 2^16, for each pair. Raises ComputeError for a failure."""
        shapes = [(b - a, d - c) for a, b, c, d in self._bounds]
        if self._total is None:
            return [np.zeros(shape, np.uint16) for shape in shapes]
        try:
            total = await self._total
        except (Exception, FutureCancelledError) as error:
            raise ComputeError(
                f"the Dask cluster at {self._products.address} failed: {type(error).__name__}: {error}"
            ) from error
        ends = np.cumsum([rows * columns for rows, columns in shapes])
        parts = np.split(total, ends[:-1])
        return [piece.reshape(shape) for piece, shape in zip(parts, shapes, strict=True)]


def _worker_functions() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns the workers' functions, which travel with their code: a worker need not have this package."""

    def sums_of(operand: Any, bounds: Any) -> Any:
        import numpy

        parts = []
        for first, last, start, stop in bounds:
            left = operand[first:last].astype(numpy.float64)
            right = operand[start:stop].astype(numpy.float64)
            sums = (left @ right.T).astype(numpy.int64).astype(numpy.uint16)
            parts.append(sums.reshape(-1))
        return numpy.concatenate(parts)

    def added(first: Any, second: Any) -> Any:
        return first + second

    return sums_of, added
