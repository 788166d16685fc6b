"""Sums in bits by groups against NumPy: any sizes of groups, numbers modulo 2^m, public weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import bit_sums, costs
from protocols.bitslice import from_planes, to_bits, to_planes
from protocols.context import Context
from protocols.ring import BITS, R32
from protocols.shares import Share
from tests.protocols.local import components, reconstruct, run_parties, share_of
from tests.protocols.test_origins import Notes

SIZES = st.lists(st.integers(1, 20), min_size=1, max_size=70)


def groups_of(sizes: list[int]) -> np.ndarray:
    return np.repeat(np.arange(len(sizes)), sizes)


@given(SIZES, st.integers(1, 24), st.integers(0, 999))
def test_sums_by_group_equal_plain(sizes: list[int], bits: int, seed: int) -> None:
    groups, generator = groups_of(sizes), np.random.default_rng(seed)
    x = generator.integers(0, 2**32, 64 * groups.size, np.uint64).astype(np.uint32)
    parts = components(BITS, to_planes(R32, x, bits), seed)

    async def program(ctx: Context) -> Share:
        pairs = await bit_sums.to_pairs(ctx, share_of(ctx, parts, BITS), groups, len(sizes))
        assert pairs.shape == (bits, 2, len(sizes))
        return await bit_sums.total(ctx, pairs)

    found = from_planes(reconstruct(run_parties(program).results), len(sizes))
    plain = np.bincount(np.repeat(groups, 64), x % (1 << bits), len(sizes)).astype(np.uint64)
    assert np.array_equal(found, plain % (1 << bits))


@given(SIZES, st.integers(1, 32), st.integers(0, 999))
def test_weighted_sums_of_bits_equal_plain(sizes: list[int], bits: int, seed: int) -> None:
    groups, generator = groups_of(sizes), np.random.default_rng(seed)
    v = generator.integers(0, 2**64, groups.size, np.uint64)
    weights = generator.integers(0, 2**32, 64 * groups.size, np.uint64).astype(np.uint32)
    parts, quads = components(BITS, v, seed), []

    async def program(ctx: Context) -> Share:
        columns, of_quad = await bit_sums.weighted(
            ctx, share_of(ctx, parts, BITS), weights, groups, bits
        )
        quads.append(of_quad)
        return columns

    planes = reconstruct(run_parties(program).results)
    assert planes.shape == (bits, sum(-(-size // 4) for size in sizes))
    found = from_planes(planes, 64 * planes.shape[1])
    sums = np.bincount(np.repeat(quads[0], 64), found, len(sizes)).astype(np.uint64)
    chosen = to_bits(v, v.size * 64) * weights.astype(np.uint64) % (1 << bits)
    plain = np.bincount(np.repeat(groups, 64), chosen, len(sizes)).astype(np.uint64)
    assert np.array_equal(sums % (1 << bits), plain % (1 << bits))


@pytest.mark.parametrize("sizes", [[1], [3, 1, 2], [40, 7, 1, 300]])
@pytest.mark.parametrize("bits", [2, 22])
def test_costs_of_sums_are_those_of_the_formulas(sizes: list[int], bits: int) -> None:
    groups = groups_of(sizes)

    async def tree(ctx: Context) -> Share:
        x_bsh = Share(BITS, ctx.pid, *(np.zeros((bits, groups.size), np.uint64) for _ in range(2)))
        return await bit_sums.to_pairs(ctx, x_bsh, groups, len(sizes))

    async def whole(ctx: Context) -> Share:
        columns = [np.zeros((bits, 4, len(sizes)), np.uint64) for _ in range(2)]
        return await bit_sums.total(ctx, Share(BITS, ctx.pid, *columns))

    async def quads(ctx: Context) -> object:
        v_bsh = Share(BITS, ctx.pid, *(np.zeros(groups.size, np.uint64) for _ in range(2)))
        weights = np.zeros(64 * groups.size, np.uint32)
        return await bit_sums.weighted(ctx, v_bsh, weights, groups, bits)

    for program, cost in (
        (tree, costs.to_pairs(sizes, bits)),
        (whole, costs.total(len(sizes), 4, bits)),
        (quads, costs.weighted(sizes)),
    ):
        outcome = run_parties(program)
        assert (outcome.rounds, tuple(outcome.sent_bytes)) == (cost.rounds, cost.sent)


def test_sums_are_made_of_products_that_can_be_proved() -> None:
    """One product to a bit, and no input of one party."""
    notes = [Notes() for _ in range(3)]
    x_parts = components(BITS, np.ones((5, 9), np.uint64))

    async def program(ctx: Context) -> Share:
        ctx.verifier = notes[ctx.pid]
        pairs = await bit_sums.to_pairs(ctx, share_of(ctx, x_parts, BITS), groups_of([9]), 1)
        return await bit_sums.total(ctx, pairs)

    assert reconstruct(run_parties(program).results).tolist() == [
        [9 * 31 >> i & 1] for i in range(5)
    ]
    for origins, _ in notes[0].told.values():
        assert sum(origin.right is not None for origin in origins) == 1
