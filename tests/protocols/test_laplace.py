"""The exact discrete Laplace distribution: coins in exact arithmetic, samples by chi-square against it.

Chi-square over signed values, the tails pooled to at least 20 expected samples, false-alarm rate 10^-5; with 40,000
samples a scale wrong by 3 %, or a shift of a tenth of it, is caught. Controls: the same statistic on biased samples.
"""

import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

from protocols import laplace
from protocols.laplace import LaplaceSampler
from protocols.ring import R32
from tests.protocols.local import reconstruct, run_parties

COUNT = 40_000


@cache
def samples(scale: float) -> np.ndarray:
    sampler = LaplaceSampler.of(scale)
    outcome = run_parties(lambda c: laplace.discrete_laplace(c, COUNT, sampler))
    return R32.decode(reconstruct(outcome.results)).astype(np.int64)


def p_value(z: np.ndarray, scale: float) -> float:
    q = math.exp(-1 / scale)
    # q^(r + 1) / (1 + q) is what lies above r.
    reach = max(0, int(scale * math.log(z.size / 40)))
    grid = np.arange(-reach, reach + 1)
    tail = q ** (reach + 1) / (1 + q)
    exact = np.concatenate(([tail], (1 - q) / (1 + q) * q ** np.abs(grid), [tail]))
    edges = np.concatenate(([-np.inf], np.arange(-reach, reach + 2) - 0.5, [np.inf]))
    observed = np.histogram(z, edges)[0]
    return float(stats.chisquare(observed, exact / exact.sum() * z.size).pvalue)


@pytest.mark.parametrize("scale", [0.4, 3.0, 20.0])
def test_discrete_laplace_matches_the_exact_probabilities(scale: float) -> None:
    assert p_value(samples(scale), scale) > 1e-5


@pytest.mark.parametrize(
    "bias",
    [lambda z: np.rint(z * 1.04), lambda z: z + 2, np.abs, lambda z: np.clip(z, -60, 60)],
    ids=["scaled", "shifted", "unsigned", "cut"],
)
def test_chi_square_rejects_a_biased_sampler(bias: object) -> None:
    assert p_value(bias(samples(20.0)), 20.0) < 1e-5  # type: ignore[operator]


@pytest.mark.parametrize(("scale", "security"), [(0.1, 64), (0.7, 16), (1.5, 64), (9.0, 40)])
def test_sampled_probabilities_are_within_the_distance_that_is_said(
    scale: float, security: int
) -> None:
    sampler = LaplaceSampler.of(scale, security)
    assert sampler.distance <= 2.0**-security
    sampled = [float(p) for p in sampler.probabilities()]
    q = math.exp(-1 / scale)
    exact = [(1 - q) * q**g for g in range(len(sampled))]
    apart = sum(abs(p - e) for p, e in zip(sampled, exact, strict=True)) / 2
    # Of one geometric number; floats add what they round.
    assert apart <= sampler.distance + 1e-12
    assert sum(sampler.probabilities()) == 1


@pytest.mark.parametrize("scale", [0.1, 1.0, 17.0, 333.3, 1e5])
@pytest.mark.parametrize("security", [16, 64, 128])
def test_every_scale_is_within_the_distance_asked_for(scale: float, security: int) -> None:
    assert 0 < LaplaceSampler.of(scale, security).distance <= 2.0**-security


def test_what_cannot_be_sampled_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0\.1 to 100000"):
        LaplaceSampler.of(0.01)
    with pytest.raises(ValueError, match="16 to 128"):
        LaplaceSampler.of(1.0, 8)
    with pytest.raises(ValueError, match="could leave 32 bits"):
        run_parties(lambda c: laplace.laplace_noise(c, 3, 20.0, (1 << 31) - 1000))


def test_nothing_is_sent_for_no_samples() -> None:
    outcome = run_parties(lambda c: laplace.discrete_laplace(c, 0, LaplaceSampler.of(2.0)))
    assert outcome.sent_bytes == [0, 0, 0]
