"""Bits, carry-saved planes and halves against integers, whatever the components, by products of free sharings alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import base, conversions, derived, free
from protocols.bitslice import from_bits, from_planes, to_bits, words_for
from protocols.context import Context
from protocols.random_bits import random_bits
from protocols.ring import BITS, R16, R32, R64, R128, Ring
from protocols.shares import Share
from tests.protocols.local import components, reconstruct, run_parties, share_of

EDGES = [0, 1, 2, 3, 2**14 - 1, 2**14, 2**15 - 2, 2**15 - 1]


@pytest.mark.parametrize("ring", [R16, R32, R64], ids=lambda ring: ring.name)
@given(st.integers(0, 200), st.integers(0, 999))
def test_bits_into_ring_equals_plain(ring: Ring, count: int, seed: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 2, (3, count)).astype(np.uint8)
    parts = components(BITS, from_bits(bits), seed)

    async def program(ctx: Context) -> Share:
        return await free.bits_into_ring(ctx, share_of(ctx, parts, BITS), count, ring)

    assert np.array_equal(reconstruct(run_parties(program).results), bits)


@pytest.mark.parametrize("ring", [R16, R32, R64, R128], ids=lambda ring: ring.name)
@pytest.mark.parametrize("count", [0, 1, 64, 1000])
def test_random_bits_are_the_same_in_both_forms(ring: Ring, count: int) -> None:
    outcome = run_parties(lambda c: random_bits(c, count, ring), seed=count)
    planes, elements = zip(*outcome.results, strict=True)
    bits = to_bits(reconstruct(planes), count)
    assert elements[0].ring is ring
    assert planes[0].shape == (words_for(count),)
    assert np.array_equal(reconstruct(elements).astype(np.uint8), bits)
    assert count < 1000 or 400 < bits.sum() < 600


@given(st.lists(st.integers(0, 2**32 - 1), max_size=130), st.integers(1, 32), st.integers(0, 999))
def test_carry_save_is_two_numbers_that_add_up(values: list[int], bits: int, seed: int) -> None:
    x = np.array(values, np.uint32)
    parts = components(R32, x, seed)
    outcome = run_parties(lambda c: free.carry_save(c, share_of(c, parts, R32), bits, bits))
    parity, majority = (
        from_planes(reconstruct(planes), x.size) for planes in zip(*outcome.results, strict=True)
    )
    assert np.array_equal((parity + 2 * majority - x) % (1 << bits), np.zeros(x.size))


@given(
    st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 2**15 - 1)), max_size=150),
    st.integers(0, 999),
)
def test_lift_half_equals_plain(values: list[int], seed: int) -> None:
    x = np.array([*values, *EDGES], np.uint32)
    parts = components(R16, 2 * x, seed)
    outcome = run_parties(lambda c: conversions.lift_half(c, share_of(c, parts, R16)))
    assert outcome.results[0].ring is R32
    assert np.array_equal(reconstruct(outcome.results), x)


@pytest.mark.parametrize("wraps", [0, 1, 2])
def test_lift_half_takes_off_as_many_wraps_as_there_are(wraps: int) -> None:
    """Components that add up to t, to t + 2^16 and to t + 2^17, with odd and even ones among them."""
    t, each = 12_346, (12_346 + wraps * 2**16) // 3
    odd = each | 1
    parts = [np.array([part], np.uint16) for part in (odd, odd, t + wraps * 2**16 - 2 * odd)]
    assert sum(int(part[0]) for part in parts) == t + wraps * 2**16
    outcome = run_parties(lambda c: conversions.lift_half(c, share_of(c, parts, R16)))
    assert reconstruct(outcome.results).tolist() == [t // 2]


def test_conversions_have_no_input_of_one_party(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing rests on one party's word: what a party shares by itself, or derives alone, is never asked for."""

    async def refused(*_: object) -> Share:
        raise AssertionError("an input of one party")

    for module in (base, derived):
        monkeypatch.setattr(module, "share_input", refused)
    bits = components(BITS, from_bits(np.ones((2, 5), np.uint8)))
    halves = components(R16, np.array([2, 4]))

    async def program(ctx: Context) -> None:
        await free.bits_into_ring(ctx, share_of(ctx, bits, BITS), 5, R16)
        await conversions.lift_half(ctx, share_of(ctx, halves, R16))
        await random_bits(ctx, 5, R16)

    run_parties(program)
