"""Sums over rows of products: exact, the same to the bit wherever they are computed, on all workers."""

import asyncio
import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import products
from protocols.products import LocalProducts, NumpyProducts, Pair

PAIRS = (
    Pair(slice(0, 3), slice(3, 40)),
    Pair(slice(10, 30), slice(10, 30)),
    Pair(slice(39, 40), slice(0, 1)),
)
SEVERAL = NumpyProducts(3)


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


@given(st.lists(st.integers(0, 70), min_size=1, max_size=4), st.integers(0, 99))
def test_numpy_products_equal_integers(rows: list[int], seed: int) -> None:
    blocks = operands(*rows, seed=seed)
    found = summed(SEVERAL, blocks)
    assert all(sums.dtype == np.uint16 for sums in found)
    assert all(map(np.array_equal, found, plain(blocks)))


def test_numpy_products_are_exact_for_as_many_rows_as_a_segment_has() -> None:
    block = np.full((2, 1 << 15), -(2**15), np.int16)
    block[1, 0] = 1
    found = summed(SEVERAL, [block], [Pair(slice(0, 1), slice(0, 2))])
    assert found[0].tolist() == [[0, (-(2**15) * (1 + -(2**15) * (2**15 - 1))) % 2**16]]


@pytest.mark.parametrize("tile", [1, 7, 1 << 19])
def test_numpy_products_do_not_depend_on_tiles(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_TILE_CELLS", tile)
    blocks = operands(64, 30)
    assert all(map(np.array_equal, summed(SEVERAL, blocks), plain(blocks)))


def test_numpy_products_use_all_workers_and_one_thread_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "_TILE_CELLS", 1)
    backend, met, threads = NumpyProducts(3), threading.Barrier(3, timeout=10), set[str]()
    sums_of, blas = products.sums_of, set[int]()

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
        summed(SEVERAL, operands(10))


def test_usable_cores_are_at_least_one() -> None:
    assert NumpyProducts().threads == products.usable_cores() >= 1
