"""Truncation, powers of two and polynomials against exact arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import fixed
from protocols.context import Context
from protocols.ring import R64, R128, Ring
from tests.protocols.local import components, reconstruct, run_parties, share_of

F = 48


@pytest.mark.parametrize("ring", [R64, R128], ids=lambda ring: ring.name)
@given(data=st.data())
def test_truncate_rounds_down_or_up_and_no_further(ring: Ring, data: st.DataObject) -> None:
    shift = data.draw(st.integers(0, ring.bits - 3))
    bound = (1 << (ring.bits - 2)) - 1
    values = data.draw(st.lists(st.integers(-bound, bound), min_size=1, max_size=20))
    seed = data.draw(st.integers(1, 10_000))
    parts = components(ring, np.array(values, dtype=object), seed)
    outcome = run_parties(
        lambda c: fixed.truncate(c, share_of(c, parts, ring).additive(c), shift), seed=seed
    )
    for value, got in zip(values, ring.decode(reconstruct(outcome.results)), strict=True):
        assert int(got) - (value >> shift) in (0, 1)


def test_truncate_never_meets_the_large_error_event() -> None:
    """A million values near the bound: truncation by shares alone would be off by 2^44 for about half of them."""
    count = 1_000_000
    generator = np.random.default_rng(2)
    values = generator.integers(-(2**62) + 1, 2**62, count)
    parts = components(R64, values)
    outcome = run_parties(lambda c: fixed.truncate(c, share_of(c, parts, R64).additive(c), 20))
    error = R64.decode(reconstruct(outcome.results)) - (values >> 20)
    assert set(np.unique(error).tolist()) == {0, 1}


def test_truncate_rounding_is_unbiased() -> None:
    """Mean of 400,000 roundings of one value; the band is 5 standard errors: a false alarm once in 1.7 million."""
    count, shift, value = 400_000, 8, 77
    parts = components(R64, np.full(count, value))
    outcome = run_parties(lambda c: fixed.truncate(c, share_of(c, parts, R64).additive(c), shift))
    share_up = R64.decode(reconstruct(outcome.results)).mean()
    expected = value / 256
    assert abs(share_up - expected) < 5 * math.sqrt(expected * (1 - expected) / count)
    # Rounding to the nearest, or always down, is off by 0.3 and would be seen at once.
    assert abs(0 - expected) > 5 * math.sqrt(expected * (1 - expected) / count)


@pytest.mark.parametrize("shift", [-1, 62, 64])
def test_truncate_rejects_a_shift_that_leaves_nothing(shift: int) -> None:
    parts = components(R64, [1])
    with pytest.raises(ValueError, match="cannot truncate"):
        run_parties(lambda c: fixed.truncate(c, share_of(c, parts, R64).additive(c), shift))


@given(st.lists(st.floats(0, 40), min_size=1, max_size=20), st.integers(1, 1000))
def test_exp2_negative_is_within_its_error(exponents: list[float], seed: int) -> None:
    encoded = [math.floor(Fraction(z) * 2**F) for z in exponents]
    parts = components(R128, np.array(encoded, dtype=object), seed)
    outcome = run_parties(
        lambda c: fixed.exp2_negative(c, share_of(c, parts, R128), 80, F), seed=seed
    )
    for z, got in zip(encoded, R128.decode(reconstruct(outcome.results)), strict=True):
        exact = 2.0 ** -min(z / 2**F, 24)
        # 16 units of 2^-48 in all, whatever the size; at 2^-24 that is a relative error of 2^-20.
        assert abs(int(got) / 2**F - exact) <= 2**-50 + 16 * 2**-F


def test_exp2_negative_is_exact_at_whole_exponents_and_beyond_the_limit() -> None:
    values = [0, 1, 2, 8, 16, 23, 24, 25, 31, 32, 1000, 2**28]
    parts = components(R128, np.array([v << F for v in values], dtype=object))
    outcome = run_parties(lambda c: fixed.exp2_negative(c, share_of(c, parts, R128), 80, F))
    got = [int(v) for v in R128.decode(reconstruct(outcome.results))]
    for value, power in zip(values, got, strict=True):
        assert abs(power - (1 << (F - min(value, 24)))) <= 8


def test_powers_and_polynomial_match_floats() -> None:
    xs = np.linspace(-0.5, 0.5, 11)
    parts = components(R64, np.rint(xs * 2**26).astype(np.int64))
    coefficients = (0.5, -1.0, 0.25, 3.0)

    async def program(ctx: Context) -> tuple[object, object]:
        powers_sh = await fixed.powers(ctx, share_of(ctx, parts, R64), 5, 26)
        return powers_sh, fixed.polynomial(powers_sh, [round(c * 2**26) for c in coefficients], 26)

    outcome = run_parties(program)
    powers = R64.decode(reconstruct([r[0] for r in outcome.results])) / 2**26
    polynomial = R64.decode(reconstruct([r[1] for r in outcome.results])) / 2**52
    assert np.allclose(powers, [xs**k for k in range(1, 6)], atol=2**-24)
    assert np.allclose(polynomial, np.polyval(coefficients[::-1], xs), atol=2**-23)


def test_exp2_coefficients_are_accurate_to_47_bits() -> None:
    coefficients = fixed.exp2_coefficients(F)
    for x in (Fraction(k, 800) for k in range(101)):
        value = sum(c * x**k for k, c in enumerate(coefficients)) / 2**F
        assert abs(float(value - Fraction(2.0 ** -float(x)))) < 2**-47
