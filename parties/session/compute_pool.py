"""Compute resources of one server for its own sums of products, as [compute] selects them.

``local_products`` computes on this machine's cores, on its GPU, or on the operator's own Dask cluster. The result is
the same to the bit, so the other servers need not agree to the choice. Secret: operands and sums, which go to that
cluster and nowhere else. The cluster belongs to this server as its disk does: two servers of a study on one cluster
would have put their shares together.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from parties.config import ALWAYS, NEVER, ComputeSection
from parties.foundation.errors import ComputeError
from protocols.products import LocalProducts, NumpyProducts
from protocols.products_gpu import gpu_products


@asynccontextmanager
async def local_products(compute: ComputeSection) -> AsyncIterator[LocalProducts]:
    """Opens the resource of [compute]: a named cluster, else an available and permitted GPU, else local cores.

    Raises ComputeError if a named cluster or GPU cannot be used.
    """
    if compute.dask:
        try:
            # Imported here: Dask is an extra, and slow to import.
            from parties.session.dask_cluster import dask_products
        except ModuleNotFoundError as error:
            raise ComputeError(
                f"compute.dask needs {error.name}: pip install 'syncret[compute]'"
            ) from error

        async with dask_products(compute.dask) as on_cluster:
            yield on_cluster
        return
    if (on_gpu := _on_gpu(compute)) is not None:
        yield on_gpu
        return
    here = NumpyProducts(compute.threads or None)
    try:
        yield here
    finally:
        here.close()


def _on_gpu(compute: ComputeSection) -> LocalProducts | None:
    if compute.gpu == NEVER:
        return None
    try:
        found = gpu_products()
    except ArithmeticError as error:
        raise ComputeError(str(error)) from error
    if found is None and compute.gpu == ALWAYS:
        raise ComputeError(
            f'compute.gpu is "{ALWAYS}", and CuPy finds no GPU here; expected one, or another value'
        )
    return found
