from fractions import Fraction
from math import ceil, isqrt, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secagg import noise
from secagg.errors import ParameterError
from secagg.noise import NoiseKind, SessionNoise, discrete_gaussian, distributed_noise, server_noise
from tests import gaussian_vectors
from tests.secagg.support import seeded


def exact_pmf(variance: float, reach: int) -> NDArray[np.float64]:
    """Probabilities of -reach to reach."""
    support = np.arange(-reach, reach + 1)
    weights = np.exp(-(support**2) / (2 * variance))
    return np.asarray(weights / weights.sum())


def goodness_of_fit(samples: NDArray[np.int64], variance: float) -> float:
    """Chi-squared over cells of 20 or more expected and the two tails; normalised to deviation 1."""
    reach = int(6 * sqrt(variance)) + 2
    expected = samples.size * exact_pmf(variance, reach)
    counts = np.bincount(np.clip(samples, -reach, reach) + reach, minlength=2 * reach + 1)
    inner = expected >= 20
    seen = np.append(counts[inner], counts[~inner].sum())
    wanted = np.append(expected[inner], expected[~inner].sum())
    statistic = float(((seen - wanted) ** 2 / np.maximum(wanted, 1e-9)).sum())
    return (statistic - inner.sum()) / sqrt(2 * inner.sum())


@pytest.mark.parametrize(
    "variance", [Fraction(1, 3), Fraction(1), Fraction(9, 4), Fraction(100), Fraction(12345, 7)]
)
def test_discrete_gaussian_fits_its_distribution(variance: Fraction) -> None:
    # 200,000 samples, seven deviations: a false alarm in less than 10^6 runs; seeded. The controls are off by two parts
    # in a hundred of the variance, and by one cell in a thousand moved from zero.
    samples = discrete_gaussian(variance, 200_000, random_bytes=seeded(f"fit {variance}"))
    assert samples.shape == (200_000,)
    assert goodness_of_fit(samples, float(variance)) < 7
    if variance >= 1:
        wide = discrete_gaussian(
            variance * Fraction(106, 100), 200_000, random_bytes=seeded(f"wide {variance}")
        )
        assert goodness_of_fit(wide, float(variance)) > 7


def test_discrete_gaussian_samples_are_independent_of_one_another() -> None:
    # Correlation of neighbours among 100,000: deviation 0.0032, six of them.
    samples = discrete_gaussian(Fraction(50), 100_000, random_bytes=seeded("serial"))
    first, second = samples[:-1], samples[1:]
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.019
    assert abs(samples.mean()) < 6 * sqrt(50 / 100_000)


def test_discrete_gaussian_handles_no_samples_and_refuses_bad_variances() -> None:
    assert discrete_gaussian(Fraction(2), 0, random_bytes=seeded("none")).size == 0
    for variance in (Fraction(0), Fraction(-1), Fraction((1 << 80) + 1)):
        with pytest.raises(ParameterError):
            discrete_gaussian(variance, 1, random_bytes=seeded("bad"))


@pytest.mark.parametrize("case", gaussian_vectors.cases("good"), ids=gaussian_vectors.by_sigma)
def test_discrete_gaussian_vectors_good(case: dict[str, Any]) -> None:
    variance, known = Fraction(case["sigma"]) ** 2, case["samples"]["secagg"]
    source = gaussian_vectors.stream(case["seed"])
    assert discrete_gaussian(variance, len(known), random_bytes=source).tolist() == known
    # The controls: a deviation wrong by 5 %, and magnitudes without signs.
    exact = gaussian_vectors.probabilities(case)
    z = discrete_gaussian(variance, 20_000, random_bytes=source)
    wide = discrete_gaussian(variance * Fraction(21, 20) ** 2, 20_000, random_bytes=source)
    assert gaussian_vectors.p_value(z, exact) > gaussian_vectors.ALARM
    assert gaussian_vectors.p_value(wide, exact) < gaussian_vectors.ALARM
    assert gaussian_vectors.p_value(np.abs(z), exact) < gaussian_vectors.ALARM


@pytest.mark.parametrize("case", gaussian_vectors.bad_cases("secagg"), ids=gaussian_vectors.by_name)
def test_discrete_gaussian_vectors_bad(case: dict[str, Any]) -> None:
    assert case["error"] == "ParameterError"
    with pytest.raises(ParameterError, match="variance"):
        discrete_gaussian(Fraction(case["argument"]), 1, random_bytes=seeded("bad"))


@given(
    exponent=st.fractions(0, 30, max_denominator=1 << 20),
    offset=st.integers(-3, 3),
)
@settings(max_examples=200)
def test_uniform_below_exp_decides_close_calls_as_more_digits_do(
    exponent: Fraction, offset: int
) -> None:
    # The prefix sits within three units of exp(-x); the bits that follow are all ones or all zeros.
    scaled = _exp_floor(exponent, 53)
    prefix = min(max(scaled + offset, 0), (1 << 53) - 1)
    for byte in (b"\0", b"\xff"):
        uniform = int.from_bytes(prefix.to_bytes(7, "big") + byte * 50, "big")
        truth = uniform < _exp_floor(exponent, 53 + 400)
        decided = noise._uniform_below_exp(prefix, exponent, lambda n, b=byte: b * n)  # type: ignore[misc]
        assert decided == truth


def _exp_floor(exponent: Fraction, bits: int) -> int:
    """floor(2^bits exp(-x)) by the Taylor series in exact fractions of x / 64, squared six times."""
    precision = bits + 120
    small = Fraction(exponent) / 64
    total, term, n = 0, 1 << precision, 0
    while term:
        total += term if n % 2 == 0 else -term
        n += 1
        term = term * small.numerator // (small.denominator * n)
    for _ in range(6):
        total = total * total >> precision
    return total >> (precision - bits)


def test_bernoulli_exp_takes_the_exact_path_on_a_tie() -> None:
    # A uniform whose 53 bits equal those of exp(-1): floats cannot decide.
    word = _exp_floor(Fraction(1), 53) << 11
    asked: list[int] = []

    def exact(index: int) -> Fraction:
        asked.append(index)
        return Fraction(1)

    for later, expected in ((b"\0", True), (b"\xff", False)):
        stream = iter([word.to_bytes(8, "little"), later * 8, later * 8, later * 8])
        found = noise._bernoulli_exp(np.ones(1), exact, lambda _, s=stream: next(s))  # type: ignore[misc]
        assert bool(found[0]) is expected
    assert asked == [0, 0]


@given(
    sigma=st.floats(0.5, 1e4),
    scale=st.integers(1, 1000),
    honest=st.integers(1, 1000),
)
def test_distributed_noise_never_has_less_variance_than_asked(
    sigma: float, scale: int, honest: int
) -> None:
    wanted = (Fraction(sigma) * scale) ** 2 / honest
    if wanted < Fraction(9, 4):
        scale = ceil(1.5 * sqrt(honest) / sigma)
        wanted = (Fraction(sigma) * scale) ** 2 / honest
    described = distributed_noise(sigma, scale, honest)
    assert wanted <= described.variance <= wanted + Fraction(1, 1024)
    assert described.margin(honest) >= 12 * isqrt(int(honest * described.variance))


def test_noise_refuses_what_cannot_be_accounted_for() -> None:
    with pytest.raises(ParameterError, match="larger scale"):
        distributed_noise(1.0, 1, 100)
    for sigma in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ParameterError):
            server_noise(sigma)
    for kind, variance in ((NoiseKind.NONE, Fraction(1)), (NoiseKind.SERVER, Fraction(0))):
        with pytest.raises(ParameterError):
            SessionNoise(kind, variance)
