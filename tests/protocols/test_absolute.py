"""Grouped absolute error against NumPy, across block borders and group borders."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import absolute
from protocols.ring import R32
from tests.protocols.local import components, reconstruct, run_parties, share_of


def plain(x: np.ndarray, y: np.ndarray, sizes: np.ndarray) -> list[int]:
    distances = np.abs(64 * x.astype(np.int64) - y)
    return [int(group.sum()) % 2**32 for group in np.split(distances, np.cumsum(sizes)[:-1])]


def secure(x: np.ndarray, y: np.ndarray, sizes: np.ndarray, bits: int) -> list[int]:
    parts = components(R32, x)
    outcome = run_parties(
        lambda c: absolute.grouped_absolute_error(
            c, share_of(c, parts, R32), y.astype(np.uint32), sizes, fraction_bits=6, bits=bits
        )
    )
    return reconstruct(outcome.results).tolist()


@given(st.lists(st.integers(1, 90), min_size=1, max_size=12), st.integers(0, 1000))
def test_grouped_absolute_error_equals_plain(sizes: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    cells = sum(sizes)
    x, y = generator.integers(0, 5000, cells), generator.integers(0, 5000 * 64, cells)
    assert secure(x, y, np.array(sizes), 20) == plain(x, y, np.array(sizes))


@pytest.mark.parametrize("sizes", [[1000], [1] * 1000, [64, 1, 63, 128, 744], [300, 700]])
def test_grouped_absolute_error_equals_plain_across_blocks(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absolute, "BLOCK_CELLS", 64)
    generator = np.random.default_rng(1)
    x, y = generator.integers(0, 5000, 1000), generator.integers(0, 5000 * 64, 1000)
    assert secure(x, y, np.array(sizes), 20) == plain(x, y, np.array(sizes))


@given(st.integers(1, 10**8))
def test_block_cells_makes_one_block_or_as_many_of_one_size_for_each_party(cells: int) -> None:
    size = absolute.block_cells(cells)
    blocks = -(-cells // size)
    assert size % 64 == 0
    assert size <= 1.5 * absolute.BLOCK_CELLS + 64
    assert blocks == 1 or (blocks % 3 == 0 and cells > absolute.BLOCK_CELLS)
    # The last one lacks what the others were rounded up by.
    assert blocks == 1 or blocks * size - cells <= 64 * blocks


def test_grouped_absolute_error_holds_at_the_bound() -> None:
    largest = (1 << 19) - 1
    x = np.array([0, 0, (largest + 1) // 64 - 1, 5])
    y = np.array([largest, 0, 0, 5 * 64])
    sizes = np.array([2, 2])
    assert secure(x, y, sizes, 20) == plain(x, y, sizes)


def test_grouped_absolute_error_rejects_sizes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        secure(np.zeros(5, int), np.zeros(5, int), np.array([2, 2]), 20)
    with pytest.raises(ValueError, match="do not fit"):
        secure(np.zeros(5, int), np.zeros(5, int), np.array([5, 0]), 20)
    with pytest.raises(ValueError, match="7 bits have no sign"):
        secure(np.zeros(5, int), np.zeros(5, int), np.array([5]), 7)


@given(
    st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=80),
    st.integers(0, 9),
    st.integers(0, 100),
)
def test_the_sign_needs_no_bit_below_the_fraction(x: list[int], fraction: int, seed: int) -> None:
    # Whatever the counts are: a sum of distances from the next multiple of 2^bits.
    generator, bits = np.random.default_rng(seed), fraction + 2 + seed % 20
    counts, sizes = np.array(x, np.uint32), np.array([len(x)])
    answers = generator.integers(0, 1 << 32, len(x), dtype=np.uint32)
    parts = components(R32, counts)
    found = reconstruct(
        run_parties(
            lambda c: absolute.grouped_absolute_error(
                c, share_of(c, parts, R32), answers, sizes, fraction_bits=fraction, bits=bits
            )
        ).results
    )
    whole = 1 << bits
    d = ((counts.astype(object) << fraction) - answers.astype(object)) % whole
    assert int(found[0]) % whole == sum(min(int(v), whole - int(v)) for v in d) % whole
