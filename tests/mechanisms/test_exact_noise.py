"""The exact discrete Gaussian and the kinds of noise built on it.

Chi-square against the exact probabilities, cells pooled to at least 20 expected samples; 100,000 samples
and a false-alarm rate of 1e-5 a test: a deviation wrong by 1.5 %, or a mean wrong by 3 % of it, is caught.
The controls are such samples, and OpenDP's discrete Gaussian has to pass the same test.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mechanisms import exact_noise
from mechanisms.events import NOISE_KINDS
from mechanisms.exact_noise import discrete_gaussian_noise
from mechanisms.plaintext import noise
from tests import gaussian_vectors
from tests.mechanisms.tables import random_stream

COUNT = 100_000
ALARM = 1e-5


def p_value(z: np.ndarray, sigma: float) -> float:
    """Of the chi-square test of whole numbers ``z`` against the discrete Gaussian of ``sigma``."""
    reach = math.ceil(8 * sigma) + 2
    grid = np.arange(-reach, reach + 1)
    exact = np.exp(-(grid**2) / (2 * sigma**2))
    exact /= exact.sum()
    # Cut the line where another share of the mass has come together: 200 cells at most.
    share = np.floor(np.cumsum(exact) * min(200, z.size / 20)).astype(np.int64)
    cell = np.unique(share, return_inverse=True)[1]
    expected = np.bincount(cell, weights=exact) * z.size
    observed = np.bincount(cell[np.clip(z, -reach, reach).astype(np.int64) + reach])
    observed = np.pad(observed, (0, expected.size - observed.size))
    # Numbers with a large probability leave small cells behind.
    small = expected < 20
    observed = np.append(observed[~small], observed[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    if expected[-1] < 20:
        observed[-2:], expected[-2:] = observed[-2:].sum() / 2, expected[-2:].sum() / 2
    return float(stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.7, 20.889, 150.0, 1000.0])
def test_discrete_gaussian_noise_matches_the_exact_probabilities(sigma: float) -> None:
    assert p_value(discrete_gaussian_noise(random_stream(1), sigma, COUNT), sigma) > ALARM


@pytest.mark.parametrize(
    "bias",
    [
        lambda z: np.rint(z * 1.015),
        lambda z: z + 1,
        np.abs,
        lambda z: np.clip(z, -45, 45),
    ],
    ids=["scaled", "shifted", "unsigned", "cut"],
)
def test_p_value_rejects_a_biased_sampler(bias: object) -> None:
    z = discrete_gaussian_noise(random_stream(1), 20.889, COUNT)
    assert p_value(bias(z), 20.889) < ALARM  # type: ignore[operator]


def test_p_value_accepts_an_independent_sampler() -> None:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    release = dp.m.make_gaussian(*space, scale=3.7)
    assert p_value(np.array(release([0] * 20_000)), 3.7) > ALARM


@pytest.mark.parametrize("sigma", [0.5, 20.889])
def test_discrete_gaussian_noise_neighbours_are_uncorrelated(sigma: float) -> None:
    z = discrete_gaussian_noise(random_stream(2), sigma, COUNT)
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 4.42 / math.sqrt(COUNT)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_discrete_gaussian_noise_has_the_asked_number_of_samples(count: int) -> None:
    assert discrete_gaussian_noise(random_stream(1), 2.0, count).shape == (count,)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, 2.0**20])
def test_discrete_gaussian_noise_rejects_a_sigma_out_of_range(sigma: float) -> None:
    with pytest.raises(ValueError, match="sigma"):
        discrete_gaussian_noise(random_stream(1), sigma, 1)


@pytest.mark.parametrize("case", gaussian_vectors.cases("good"), ids=gaussian_vectors.by_sigma)
def test_discrete_gaussian_noise_vectors_good(case: dict[str, Any]) -> None:
    sigma, known = Fraction(case["sigma"]), case["samples"]["mechanisms"]
    source = gaussian_vectors.stream(case["seed"])
    assert discrete_gaussian_noise(source, float(sigma), len(known)).tolist() == known
    # The controls: a deviation wrong by 5 %, and magnitudes without signs.
    exact = gaussian_vectors.probabilities(case)
    z = discrete_gaussian_noise(source, float(sigma), 20_000)
    wide = discrete_gaussian_noise(source, 1.05 * float(sigma), 20_000)
    assert gaussian_vectors.p_value(z, exact) > ALARM
    assert gaussian_vectors.p_value(wide, exact) < ALARM
    assert gaussian_vectors.p_value(np.abs(z), exact) < ALARM


@pytest.mark.parametrize(
    "case", gaussian_vectors.bad_cases("mechanisms"), ids=gaussian_vectors.by_name
)
def test_discrete_gaussian_noise_vectors_bad(case: dict[str, Any]) -> None:
    assert case["error"] == "ValueError"
    with pytest.raises(ValueError, match="sigma"):
        discrete_gaussian_noise(random_stream(1), float(Fraction(case["argument"])), 1)


@given(st.fractions(0, 1, max_denominator=50), st.integers(0, 30), st.booleans())
def test_bernoulli_decides_as_the_exact_number_does_when_bits_agree(
    p: Fraction, digits: int, below: bool
) -> None:
    """A source that agrees with p in its first words, and then lies just below or above it: only exact digits tell."""
    words = 1 + digits // 10
    number = min(p.numerator * 2 ** (64 * words) // p.denominator, 2 ** (64 * words) - 1)
    number += -1 if below else 1
    if not 0 <= number < 2 ** (64 * words):
        return
    stream = [number >> 64 * (words - 1 - i) & (2**64 - 1) for i in range(words)] + [0] * 4
    first = True

    def source(n: int) -> bytes:
        # The vector of coins is read in little endian, further digits in big endian.
        nonlocal first
        order, first = ("little" if first else "big"), False
        return stream.pop(0).to_bytes(8, order)  # type: ignore[arg-type]

    coin = exact_noise._ExpCoin(source, lambda k: p)
    shown = bool(coin._bernoulli(1, np.zeros(1, np.int64))[0])
    assert shown == (Fraction(number, 2 ** (64 * words)) < p)


@pytest.mark.parametrize(
    "gamma", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(2), Fraction(7, 2)]
)
def test_exp_coin_shows_one_with_its_probability(gamma: Fraction) -> None:
    """Binomial test of 50,000 coins at a false-alarm rate of 1e-5; the control is gamma + 1/10."""
    coin = exact_noise._ExpCoin(random_stream(3), lambda k: gamma + Fraction(k, 10))
    zeros, ones = (int(coin.toss(np.full(50_000, k)).sum()) for k in (0, 1))
    expected = math.exp(-gamma)
    assert stats.binomtest(zeros, 50_000, expected).pvalue > ALARM
    assert stats.binomtest(ones, 50_000, expected).pvalue < ALARM


def geometric_p_value(v: np.ndarray) -> float:
    """Of the chi-square test against P(v) = (1 - 1/e) e^-v, cells 0 .. 7 and the rest."""
    expected = np.append((1 - math.exp(-1)) * np.exp(-np.arange(8)), math.exp(-8)) * v.size
    return float(stats.chisquare(np.bincount(np.minimum(v, 8), minlength=9), expected).pvalue)


def test_laplace_wholes_are_geometric_far_out() -> None:
    """The tail of the noise, where the test of whole samples has too few: the control ends at 7."""
    v = exact_noise._Laplace(random_stream(5), 4)._geometric(COUNT)
    assert geometric_p_value(v) > ALARM
    assert geometric_p_value(np.minimum(v, 7)) < ALARM


@pytest.mark.parametrize("kind", NOISE_KINDS)
def test_noise_has_the_variance_of_its_kind(kind: str) -> None:
    """Variance of 100,000 samples within 4.42 standard errors; the kinds differ by half of it."""
    sigma = 10.0
    z = noise(random_stream(4), kind, sigma, COUNT)  # type: ignore[arg-type]
    assert z.shape == (COUNT,)
    assert z.dtype == np.float64
    variance = sigma**2 * (1.5 if kind == "distributed" else 1)
    assert abs(z.var() / variance - 1) < 4.42 * math.sqrt(2 / COUNT)
    if kind != "box-muller":
        assert p_value(z, math.sqrt(variance)) > ALARM
        assert p_value(z, math.sqrt(variance) * 1.05) < ALARM


def test_noise_rejects_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match="laplace"):
        noise(random_stream(1), "laplace", 1.0, 1)  # type: ignore[arg-type]
