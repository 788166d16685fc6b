"""Circuits on bit-sliced shares against integer arithmetic, over sizes and edge values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import boolean, derived
from protocols.bitslice import from_bits, from_planes, to_bits, to_planes
from protocols.context import Context
from protocols.ring import BITS, R32, R64, R128, Ring
from tests.protocols.local import components, reconstruct, run_parties, share_of

EDGES = [0, 1, -1, 2, -2, 2**30, -(2**30), 2**31 - 1, -(2**31)]
EDGE_COMPONENTS = [0, 1, 2**31, 2**32 - 1]


def bits_of(results: list, count: int) -> list[int]:
    return to_bits(reconstruct(results), count).tolist()


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=130), st.integers(0, 99))
def test_msb_is_the_sign(values: list[int], seed: int) -> None:
    parts = components(R32, np.array(values, dtype=np.int64), seed)
    outcome = run_parties(lambda c: boolean.msb(c, share_of(c, parts, R32)))
    assert bits_of(outcome.results, len(values)) == [int(v < 0) for v in values]


@pytest.mark.parametrize("ring", [R32, R64, R128], ids=lambda ring: ring.name)
@pytest.mark.parametrize("rotate", [0, 2])
def test_msb_is_the_sign_at_edges_in_every_ring(ring: Ring, rotate: int) -> None:
    half = 1 << (ring.bits - 1)
    values = [*EDGES, half - 1, -half]
    parts = components(ring, np.array(values, dtype=object))
    outcome = run_parties(lambda c: boolean.msb(c, share_of(c, parts, ring)), rotate=rotate)
    assert bits_of(outcome.results, len(values)) == [int(v < 0) for v in values]


def test_msb_holds_for_edge_components() -> None:
    """Components at the ends of the ring, where carries run through all planes."""
    grid = np.array(np.meshgrid(*[EDGE_COMPONENTS] * 3), dtype=np.uint32).reshape(3, -1)
    outcome = run_parties(lambda c: boolean.msb(c, share_of(c, grid, R32)))
    signs = (grid.astype(np.int64).sum(axis=0) >> 31) & 1
    assert bits_of(outcome.results, grid.shape[1]) == signs.tolist()


@given(st.integers(2, 31), st.data())
def test_msb_needs_only_the_bounded_planes(bits: int, data: st.DataObject) -> None:
    bound = 1 << (bits - 1)
    values = data.draw(st.lists(st.integers(-bound, bound - 1), min_size=1, max_size=70))
    parts = components(R32, np.array(values, dtype=np.int64))
    outcome = run_parties(lambda c: boolean.msb(c, share_of(c, parts, R32), bits))
    assert bits_of(outcome.results, len(values)) == [int(v < 0) for v in values]


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=70), st.integers(2, 64))
def test_to_boolean_decomposes(values: list[int], bits: int) -> None:
    parts = components(R64, np.array(values, dtype=np.uint64))
    outcome = run_parties(lambda c: boolean.to_boolean(c, share_of(c, parts, R64), bits))
    mask = (1 << bits) - 1
    assert from_planes(reconstruct(outcome.results), len(values)).tolist() == [
        v & mask for v in values
    ]


@pytest.mark.parametrize("ring", [R32, R64, R128], ids=lambda ring: ring.name)
@pytest.mark.parametrize("count", [1, 64, 65])
def test_bits_to_ring_keeps_bits(ring: Ring, count: int) -> None:
    bits = np.random.default_rng(1).integers(0, 2, (3, count), np.uint8)
    parts = xor_components(from_bits(bits))
    outcome = run_parties(lambda c: derived.bits_to_ring(c, share_of(c, parts, BITS), count, ring))
    assert reconstruct(outcome.results).tolist() == bits.tolist()


def xor_components(x: np.ndarray) -> list[np.ndarray]:
    a, b = np.random.default_rng(3).integers(0, 2**64, (2, *x.shape), np.uint64)
    return [a, b, x ^ a ^ b]


@given(st.integers(2, 62), st.data())
def test_words_to_ring_keeps_unsigned_values(bits: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=70))
    seed = data.draw(st.integers(1, 1000))
    parts = xor_components(to_planes(R64, np.array(values, dtype=np.uint64), bits))
    outcome = run_parties(
        lambda c: boolean.words_to_ring(c, share_of(c, parts, BITS), len(values), R64), seed=seed
    )
    assert reconstruct(outcome.results).tolist() == values


@pytest.mark.parametrize("times", [1, 120])
@pytest.mark.parametrize("bits", [2, 3, 17, 18, 25, 31, 32])
def test_lift_magnitude_is_the_distance_from_the_next_multiple(bits: int, times: int) -> None:
    """Of few values, by four groups of planes, and of more than 1,024, by groups of three."""
    size, half = 1 << bits, 1 << (bits - 1)
    edges = [0, 1, half - 1, half, half + 1, size - 1, size, size + half, (1 << 32) - 1]
    values = [value % (1 << 32) for value in edges] * times
    for seed in range(10 if times == 1 else 2):
        parts = components(R32, np.array(values, dtype=object), seed)
        outcome = run_parties(
            lambda c, parts=parts: boolean.lift_magnitude(c, share_of(c, parts, R32), bits, R128)
        )
        expected = [min(value % size, size - value % size) for value in values]
        assert [int(v) for v in reconstruct(outcome.results)] == expected


@pytest.mark.parametrize("shape", [(0,), (1,), (64,), (65,)])
def test_lift_magnitude_keeps_shapes(shape: tuple[int, ...]) -> None:
    parts = components(R32, np.full(shape, -5), 3)
    outcome = run_parties(lambda c: boolean.lift_magnitude(c, share_of(c, parts, R32), 10, R64))
    assert reconstruct(outcome.results).tolist() == np.full(shape, 5).tolist()


@pytest.mark.parametrize("planes", [1, 2, 3, 5, 8, 40])
def test_prefix_or_and_and_all_match_numpy(planes: int) -> None:
    bits = (np.random.default_rng(planes).random((planes, 100)) < 0.2).astype(np.uint8)
    parts = xor_components(from_bits(bits))

    async def program(ctx: Context) -> tuple[object, object, object]:
        x_bsh = share_of(ctx, parts, BITS)
        return (
            await boolean.prefix_or(ctx, x_bsh),
            await boolean.and_all(ctx, ~x_bsh),
            await boolean.or_all(ctx, x_bsh),
        )

    outcome = run_parties(program)
    prefix, none, some = (reconstruct([r[i] for r in outcome.results]) for i in range(3))
    assert np.array_equal(to_bits(prefix, 100), np.maximum.accumulate(bits))
    assert np.array_equal(to_bits(none, 100), 1 - bits.max(axis=0))
    assert np.array_equal(to_bits(some, 100), bits.max(axis=0))
