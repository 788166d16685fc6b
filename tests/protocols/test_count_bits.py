"""Kept bits of counts, comparisons with public numbers and errors made of them, against NumPy and the direct way."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import absolute, count_bits
from protocols.bitslice import from_planes, to_bits
from protocols.context import Context
from protocols.count_bits import CountBits
from protocols.ring import R32
from protocols.shares import Share
from tests.protocols.local import components, reconstruct, run_parties, share_of

EDGES = [0, 1, 2**16, 2**16 - 1, 2**17 - 1, 2**31, 2**32 - 1]
FRACTION = 6


def planes_of(x: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    parts = components(R32, x)
    outcome = run_parties(lambda c: count_bits.count_bits(c, share_of(c, parts, R32), bits))
    return tuple(
        reconstruct([getattr(result, name) for result in outcome.results])
        for name in ("planes", "pairs")
    )


@given(
    st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 2**32 - 1)), max_size=150),
    st.integers(1, 32),
)
def test_count_bits_are_the_bits_and_the_products_of_neighbours(
    values: list[int], bits: int
) -> None:
    x = np.array(values, np.uint32)
    planes, pairs = planes_of(x, bits)
    assert np.array_equal(from_planes(planes, x.size), x & np.uint32((1 << bits) - 1))
    assert pairs.shape[0] == (bits - 1) // 2
    for i, pair in enumerate(pairs):
        assert np.array_equal(pair, planes[2 * i] & planes[2 * i + 1])


def test_count_bits_are_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(1000, dtype=np.uint32) * 7919
    whole = planes_of(x, 17)
    monkeypatch.setattr(count_bits, "BLOCK_CELLS", 64)
    for before, after in zip(whole, planes_of(x, 17), strict=True):
        assert np.array_equal(before, after)


@given(
    st.integers(2, 20),
    st.integers(0, 3),
    st.lists(
        st.tuples(*[st.one_of(st.sampled_from(EDGES), st.integers(0, 2**32 - 1))] * 2), min_size=1
    ),
)
def test_below_is_the_sign_of_the_difference_modulo_a_power(
    bits: int, more: int, pairs: list[tuple[int, int]]
) -> None:
    x, y = np.array(pairs, np.uint32).T
    parts = components(R32, x)

    async def program(c: Context) -> Share:
        kept = await count_bits.count_bits(c, share_of(c, parts, R32), bits + more)
        return await count_bits.below(c, kept, y, bits)

    signs = to_bits(reconstruct(run_parties(program).results), x.size)
    assert np.array_equal(signs, (x - y) >> np.uint32(bits - 1) & np.uint32(1))


def test_below_rejects_what_does_not_fit() -> None:
    async def program(c: Context, y: np.ndarray, bits: int) -> object:
        kept = await count_bits.count_bits(c, share_of(c, components(R32, [1] * 5), R32), 8)
        return await count_bits.below(c, kept, y, bits)

    for cells, bits in ((65, 8), (5, 9), (5, 1)):
        with pytest.raises(ValueError, match="do not fit"):
            run_parties(partial(program, y=np.zeros(cells, np.uint32), bits=bits))


async def kept_by_group(c: Context, x_sh: Share, sizes: list[int], bits: int) -> CountBits:
    ends = np.cumsum(sizes)
    groups = [x_sh[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    return CountBits.joined([await count_bits.count_bits(c, group, bits) for group in groups])


def errors(x: np.ndarray, y: np.ndarray, sizes: list[int], bits: int) -> list[np.ndarray]:
    """By the direct way, and from kept bits, more of them than are needed."""
    parts, answers = components(R32, x), y.astype(np.uint32)

    async def program(c: Context) -> tuple[Share, Share]:
        x_sh = share_of(c, parts, R32)
        direct = await absolute.grouped_absolute_error(
            c, x_sh, answers, np.array(sizes), fraction_bits=FRACTION, bits=bits
        )
        kept = await kept_by_group(c, x_sh, sizes, bits - FRACTION + 2)
        return direct, await absolute.grouped_error_of_bits(
            c, x_sh, kept, answers, np.array(sizes), fraction_bits=FRACTION, bits=bits
        )

    direct, from_bits = zip(*run_parties(program).results, strict=True)
    return [reconstruct(direct), reconstruct(from_bits)]


@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=8), st.integers(10, 24), st.integers(0, 1000)
)
def test_grouped_error_of_bits_is_the_direct_one_to_the_bit(
    sizes: list[int], bits: int, seed: int
) -> None:
    """For any counts: half of them are those of no table."""
    generator = np.random.default_rng(seed)
    cells = sum(sizes)
    x = generator.integers(0, 2**32, cells) >> generator.choice([0, 22], cells)
    y = generator.integers(0, 1 << generator.integers(1, 30), cells)
    direct, from_bits = errors(x, y, sizes, bits)
    assert np.array_equal(direct, from_bits)


@pytest.mark.parametrize("sizes", [[1000], [1] * 40, [64, 1, 63, 128, 744]])
def test_grouped_error_of_bits_is_the_direct_one_across_blocks(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absolute, "BLOCK_CELLS", 64)
    generator = np.random.default_rng(1)
    x, y = generator.integers(0, 5000, sum(sizes)), generator.integers(0, 5000 * 64, sum(sizes))
    direct, from_bits = errors(x, y, sizes, 20)
    assert np.array_equal(direct, from_bits)


def test_grouped_error_of_bits_rejects_bits_of_other_groups() -> None:
    with pytest.raises(ValueError, match="words do not have"):
        run_parties(_with_bits_of_other_groups)


async def _with_bits_of_other_groups(c: Context) -> Share:
    x_sh = share_of(c, components(R32, [1] * 70), R32)
    kept = await count_bits.count_bits(c, x_sh, 12)
    answers, sizes = np.zeros(70, np.uint32), np.array([2, 2, 66])
    return await absolute.grouped_error_of_bits(
        c, x_sh, kept, answers, sizes, fraction_bits=6, bits=18
    )
