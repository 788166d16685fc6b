"""Sums over rows of products: exact, the same to the bit wherever they are computed, on all workers."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols import products
from protocols.products import KERNELS, NUMPY, LocalProducts, NumpyProducts, Pair

PAIRS = (
    Pair(slice(0, 3), slice(3, 40)),
    Pair(slice(10, 30), slice(10, 30)),
    Pair(slice(39, 40), slice(0, 1)),
)
SEVERAL = {kernel: NumpyProducts(3, kernel) for kernel in KERNELS}


def summed(
    backend: LocalProducts, blocks: Sequence[np.ndarray], pairs: Sequence[Pair] = PAIRS
) -> list[np.ndarray]:
    async def main() -> list[np.ndarray]:
        sums = backend.start(pairs)
        await asyncio.gather(*(sums.add(block) for block in blocks))
        return await sums.result()

    return asyncio.run(main())


def plain(blocks: Sequence[np.ndarray], pairs: Sequence[Pair] = PAIRS) -> list[np.ndarray]:
    """The control, in integers."""
    whole = np.concatenate(blocks, axis=1).astype(np.int64)
    return [(whole[pair.left] @ whole[pair.right].T % 2**16).astype(np.uint16) for pair in pairs]


def operands(*rows: int, seed: int = 1) -> list[np.ndarray]:
    """Numbers of 16 bits, half of them the smallest, whose products are the largest."""
    generator = np.random.default_rng(seed)
    blocks = [generator.integers(-(2**15), 2**15, (40, n), np.int16) for n in rows]
    return [np.where(block % 2 == 0, np.int16(-(2**15)), block) for block in blocks]


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=40)
@given(st.lists(st.integers(0, 70), min_size=1, max_size=4), st.integers(0, 99))
def test_numpy_products_equal_integers(kernel: str, rows: list[int], seed: int) -> None:
    blocks = operands(*rows, seed=seed)
    found = summed(SEVERAL[kernel], blocks)
    assert all(sums.dtype == np.uint16 for sums in found)
    assert all(map(np.array_equal, found, plain(blocks)))


@pytest.mark.parametrize("kernel", KERNELS)
def test_numpy_products_are_exact_for_as_many_rows_as_a_segment_has(kernel: str) -> None:
    block = np.full((2, 1 << 15), -(2**15), np.int16)
    block[1, 0] = 1
    found = summed(SEVERAL[kernel], [block], [Pair(slice(0, 1), slice(0, 2))])
    assert found[0].tolist() == [[0, (-(2**15) * (1 + -(2**15) * (2**15 - 1))) % 2**16]]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("tile", [1, 7, 1 << 19])
def test_numpy_products_do_not_depend_on_tiles(
    kernel: str, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "_TILE_CELLS", tile)
    blocks = operands(64, 30)
    assert all(map(np.array_equal, summed(SEVERAL[kernel], blocks), plain(blocks)))


def test_numpy_products_use_all_workers_and_one_thread_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "_TILE_CELLS", 1)
    backend, met = NumpyProducts(3, NUMPY), threading.Barrier(3, timeout=10)
    sums_of, blas, threads = products.sums_of, set[int](), set[str]()

    def meeting(*arguments: object) -> np.ndarray:
        if threading.current_thread().name not in threads:
            threads.add(threading.current_thread().name)
            met.wait()
        blas.update(
            library["num_threads"] for library in backend._blas.select(user_api="blas").info()
        )
        return sums_of(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(products, "sums_of", meeting)
    blocks = operands(10)
    assert all(map(np.array_equal, summed(backend, blocks), plain(blocks)))
    assert len(threads) == 3
    assert blas <= {1}
    backend.close()


def test_numpy_products_pass_on_what_a_worker_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> np.ndarray:
        raise MemoryError("no room")

    monkeypatch.setattr(products, "sums_of", failing)
    with pytest.raises(MemoryError, match="no room"):
        summed(SEVERAL[NUMPY], operands(10))


@pytest.mark.parametrize("kernel", KERNELS)
async def test_numpy_products_of_another_shape_are_refused(kernel: str) -> None:
    sums = SEVERAL[kernel].start([Pair(slice(0, 3), slice(3, 9))])
    with pytest.raises(ValueError, match=r"\(3, ?6\)"):
        await sums.add(np.zeros((8, 5), np.int16))


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kernel is 'sse'; expected one of .*numpy"):
        NumpyProducts(1, "sse")


def test_where_nothing_was_compiled_numpy_counts() -> None:
    code = (
        "import sys; sys.modules['protocols._products'] = None\n"
        "from protocols import products\n"
        "print(products.KERNELS, products.NumpyProducts(1).kernel)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "('numpy',) numpy\n"


def test_usable_cores_are_at_least_one() -> None:
    assert NumpyProducts().threads == products.usable_cores() >= 1
