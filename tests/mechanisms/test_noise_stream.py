"""Many samples of an exact discrete Gaussian of large deviation.

Chi-square as in ``test_exact_noise``: 100,000 samples and a false-alarm rate of 1e-5 a test; the controls have a
deviation that is wrong by 3 %.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.noise_stream import DiscreteGaussianStream, is_below_exp
from tests.mechanisms.tables import random_stream
from tests.mechanisms.test_exact_noise import ALARM, COUNT, p_value


@pytest.mark.parametrize("sigma", [0.6, 3.7, 150.0, 20_480.3])
def test_draw_matches_the_exact_probabilities(sigma: float) -> None:
    z = DiscreteGaussianStream(sigma, random_stream(1)).draw(COUNT)
    assert p_value(z, sigma) > ALARM
    if sigma > 100:
        assert p_value(np.rint(1.03 * z), sigma) < ALARM


def test_draw_in_small_parts_is_the_same_distribution() -> None:
    stream = DiscreteGaussianStream(90.0, random_stream(2), block=7)
    z = np.concatenate([stream.draw(count) for count in (0, 1, 7, 30, 3, 500) * 185])
    assert p_value(z, 90.0) > ALARM
    # No sample is given out twice.
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 4.42 / math.sqrt(z.size)


@given(st.fractions(0, 40, max_denominator=1000), st.integers(-2, 1), st.integers(0, 2))
def test_is_below_exp_decides_as_the_exact_number_does_when_bits_agree(
    gamma: Fraction, off: int, further: int
) -> None:
    """A source that agrees with exp(-gamma) in its first words, and then lies just below or above it."""
    from decimal import Decimal, localcontext

    bits = 64 * (1 + further)
    with localcontext() as context:
        context.prec = 200
        scaled = (-Decimal(gamma.numerator) / gamma.denominator).exp() * (1 << bits)
        number = int(scaled) + off
        expected = number < scaled
    if not 0 <= number < 1 << bits:
        return
    words = [number >> 64 * (further - i) & (2**64 - 1) for i in range(1 + further)]
    # What follows is all ones or all zeros, whichever is nearer to the other side.
    rest = b"\x00" if expected else b"\xff"
    source = iter([word.to_bytes(8, "big") for word in words[1:]] + [rest * 8] * 60)
    if gamma == 0:
        assert is_below_exp(words[0], gamma, lambda n: next(source))
    elif off != 0 or not expected:
        assert is_below_exp(words[0], gamma, lambda n: next(source)) is (off < 0 or expected)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, 2.0**20])
def test_stream_rejects_a_sigma_out_of_range(sigma: float) -> None:
    with pytest.raises(ValueError, match="sigma"):
        DiscreteGaussianStream(sigma, random_stream(1))
