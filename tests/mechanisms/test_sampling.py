"""Sources of randomness and the Gaussian sampler.

The statistical test is a Kolmogorov-Smirnov test of 200,000 seeded samples at a false-alarm rate of
1e-4: it catches a distribution function that is wrong by 0.005 anywhere, such as a deviation wrong
by 2 %. Its control is such a deviation.
"""

import math

import numpy as np
import pytest
from scipy import stats

from mechanisms.sampling import (
    NOISE_BITS,
    gaussian_noise,
    public_generator,
    random_uint64,
    uniform_below,
)
from tests.mechanisms.tables import random_stream

SAMPLES = 200_000


def test_public_generator_repeats_when_seed_does() -> None:
    assert public_generator(5).random() == public_generator(5).random()


def test_random_uint64_takes_eight_bytes() -> None:
    assert random_uint64(lambda n: b"\x01" + b"\0" * (n - 1)) == 2**56
    assert random_uint64(lambda n: b"\xff" * n) == 2**64 - 1


@pytest.mark.parametrize("sigma", [1.0, 20.89])
def test_gaussian_noise_is_gaussian(sigma: float) -> None:
    samples = gaussian_noise(random_stream(1), sigma, SAMPLES)
    # Undo the grid, which the test would see at sigma = 1.
    spread = samples + (np.random.default_rng(2).random(SAMPLES) - 0.5) / 2**NOISE_BITS
    assert stats.kstest(spread, "norm", args=(0, sigma)).pvalue > 1e-4
    assert stats.kstest(spread * 1.02, "norm", args=(0, sigma)).pvalue < 1e-4


def test_gaussian_noise_pairs_are_independent() -> None:
    samples = gaussian_noise(random_stream(3), 10.0, SAMPLES)
    first, second = samples[: SAMPLES // 2], samples[SAMPLES // 2 :]
    # Both share their radius: squares would be correlated if the angle were not uniform.
    for left, right in ((first, second), (first**2, second**2)):
        correlation = np.corrcoef(left, right)[0, 1]
        assert abs(correlation) < 4 / math.sqrt(SAMPLES / 2)


def test_gaussian_noise_lies_on_the_grid() -> None:
    scaled = gaussian_noise(random_stream(4), 0.7, 1000) * 2**NOISE_BITS
    assert (scaled == np.rint(scaled)).all()


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_gaussian_noise_takes_sixteen_bytes_a_pair(count: int) -> None:
    taken: list[int] = []

    def source(n: int) -> bytes:
        taken.append(n)
        return b"\x80" * n

    assert gaussian_noise(source, 1.0, count).shape == (count,)
    assert sum(taken) == 16 * ((count + 1) // 2)


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_gaussian_noise_is_finite_when_bits_are_extreme(byte: bytes) -> None:
    samples = gaussian_noise(lambda n: byte * n, 1.0, 2)
    assert np.abs(samples).max() <= 8.6


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_gaussian_noise_refuses_useless_deviations(sigma: float) -> None:
    with pytest.raises(ValueError, match="sigma"):
        gaussian_noise(random_stream(5), sigma, 2)


def test_uniform_below_takes_every_bound_of_a_signed_number_and_no_other() -> None:
    source = random_stream(6)
    for bound in (1, 5, 2**63):
        drawn = uniform_below(source, bound, 100)
        assert (drawn >= 0).all()
        assert max(map(int, drawn)) < bound
    assert set(uniform_below(source, 5, 100)) == set(range(5))
    for bound in (0, 2**63 + 1):
        with pytest.raises(ValueError, match=f"bound = {bound}; expected 1 to"):
            uniform_below(source, bound, 1)
