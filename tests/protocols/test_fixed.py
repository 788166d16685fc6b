"""Truncation and polynomials against exact arithmetic."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import fixed
from protocols.context import Context
from protocols.ring import R64, R128, Ring
from tests.protocols.local import components, reconstruct, run_parties, share_of


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
