"""The exact discrete Gaussian: tables in exact arithmetic, samples by chi-square against the exact probabilities.

Chi-square over magnitudes with sign, cells pooled to at least 20 expected samples, false-alarm rate 10^-5; with
60,000 samples a deviation wrong by 2 %, or a shift of 5 % of it, is caught. Controls: the same statistic on biased
samples has to reject.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from protocols import discrete
from protocols.context import Context
from protocols.discrete import AliasTable, Sampler, table_distance
from protocols.ring import R32
from tests import gaussian_vectors
from tests.protocols.local import reconstruct, run_parties

SIGMAS = [0.5, 1.0, 3.7, 20.889, 40.0, 150.0, 1000.0]
COUNT = 60_000


@cache
def samples(sigma: float, seed: int = 1, count: int = COUNT, security_bits: int = 64) -> np.ndarray:
    sampler = Sampler.of(sigma, security_bits)
    outcome = run_parties(lambda c: discrete.discrete_gaussian(c, count, sampler), seed=seed)
    return R32.decode(reconstruct(outcome.results)).astype(np.int64)


def chi_square(z: np.ndarray, sigma: float) -> float:
    """The p-value of the samples under the discrete Gaussian."""
    reach = math.ceil(6 * sigma) + 2
    grid = np.arange(-reach, reach + 1)
    exact = np.exp(-(grid**2) / (2 * sigma**2))
    exact /= exact.sum()
    # Pool neighbours until a cell expects at least 20, or 1/200 of all where the distribution is wide.
    wanted = max(20.0, z.size / 200)
    edges, expected, mass = [], [], 0.0
    for value, p in zip(grid, exact, strict=True):
        mass += p * z.size
        if mass >= wanted:
            edges.append(value + 0.5)
            expected.append(mass)
            mass = 0.0
    expected[-1] += mass
    observed = np.histogram(z, np.concatenate(([-np.inf], edges[:-1], [np.inf])))[0]
    expected_array = np.array(expected)
    return float(
        stats.chisquare(observed, expected_array * observed.sum() / expected_array.sum()).pvalue
    )


@pytest.mark.parametrize("sigma", SIGMAS)
def test_discrete_gaussian_matches_the_exact_probabilities(sigma: float) -> None:
    assert chi_square(samples(sigma), sigma) > 1e-5


@pytest.mark.parametrize(
    "bias",
    [
        lambda z: np.rint(z * 1.05),
        lambda z: z + 1,
        np.abs,
        lambda z: np.clip(z, -45, 45),
    ],
    ids=["scaled", "shifted", "unsigned", "cut"],
)
def test_chi_square_rejects_a_biased_sampler(bias: object) -> None:
    assert chi_square(bias(samples(20.889)), 20.889) < 1e-5  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.5, 20.889, 150.0])
def test_discrete_gaussian_matches_on_three_million_samples(sigma: float) -> None:
    z = np.concatenate([samples(sigma, seed, 300_000) for seed in range(10)])
    assert chi_square(z, sigma) > 1e-5


@pytest.mark.parametrize("security_bits", [40, 128])
@pytest.mark.parametrize("sigma", [0.5, 17.0, 300.0])
def test_discrete_gaussian_matches_the_exact_probabilities_at_another_security(
    sigma: float, security_bits: int
) -> None:
    assert chi_square(samples(sigma, 1, COUNT, security_bits), sigma) > 1e-5


@pytest.mark.parametrize("case", gaussian_vectors.cases("good"), ids=gaussian_vectors.by_sigma)
def test_alias_table_probabilities_are_those_of_the_vectors(case: dict[str, Any]) -> None:
    """Within the distance that the sampler states, and the file's 30 digits."""
    sampler, exact = (
        Sampler.of(float(Fraction(case["sigma"]))),
        gaussian_vectors.probabilities(case),
    )
    sampled = sampler.table.probabilities()
    sampled += [Fraction(0)] * (len(exact) - len(sampled))
    exact += [Fraction(0)] * (len(sampled) - len(exact))
    distance = sum(abs(p - q) for p, q in zip(sampled, exact, strict=True)) / 2
    assert distance <= Fraction(sampler.distance) + len(exact) * Fraction(1, 10**30)


@pytest.mark.parametrize(
    ("sigma", "coin_bits"), [(0.5, 66), (20.889, 66), (53.0, 66), (0.5, 130), (37.0, 130)]
)
def test_alias_table_probabilities_are_within_the_distance(sigma: float, coin_bits: int) -> None:
    """Against exact rationals: Taylor series of exp with a remainder below 2^-200."""
    table = AliasTable.of(Fraction(sigma), coin_bits)
    sampled = table.probabilities()
    assert sum(sampled) == 1
    weights = [
        (1 if m == 0 else 2) * exact_exp(Fraction(-m * m) / (2 * table.sigma**2))
        for m in range(len(sampled) + 100)
    ]
    total = sum(weights)
    padded = [*sampled, *([Fraction(0)] * 100)]
    distance = sum(abs(p - w / total) for p, w in zip(padded, weights, strict=True)) / 2
    assert distance < Fraction(1, 2**coin_bits)
    assert float(distance) <= table_distance(table) <= float(distance) + 2.0 ** -(coin_bits + 14)


def exact_exp(x: Fraction) -> Fraction:
    """exp(x) for x <= 0, by repeated squaring of a Taylor polynomial; rounded to 2^-260 at each step."""
    halvings = max(0, math.ceil(-x)).bit_length() + 3
    small, term, total = x / 2**halvings, Fraction(1), Fraction(1)
    for n in range(1, 60):
        term = term * small / n
        total += term
    for _ in range(halvings):
        total = Fraction(round(total * total * 2**260), 2**260)
    return total


SWITCHES = {
    64: [0.3, 26.0, 26.01, 53.0, 53.01, 400.0, 400.1, 1500.0],
    96: [0.3, 21.4, 21.5, 43.7, 43.8, 184.9, 185.0, 693.0],
    128: [0.3, 18.6, 18.7, 38.0, 38.1, 106.1, 106.2, 398.0],
}


@pytest.mark.parametrize(
    ("security_bits", "sigma"), [(bits, sigma) for bits, row in SWITCHES.items() for sigma in row]
)
def test_sampler_is_within_its_distance_at_every_switch(security_bits: int, sigma: float) -> None:
    sampler = Sampler.of(sigma, security_bits)
    assert sampler.distance <= 2.0**-security_bits
    assert sigma <= sampler.sigma <= sigma * (1 + 1e-12)
    assert sampler.largest > 6 * sigma
    # Two tables, and a sum over z2 that depends on z by 2 exp(-2 pi^2 tau^2), tau = sigma1 / sqrt(1 + k^2).
    tables = (2 if sampler.factor else 1) * table_distance(sampler.table)
    tau = float(sampler.table.sigma) / math.sqrt(1 + sampler.factor**2)
    smoothing = 2 * math.exp(-2 * (math.pi * tau) ** 2) if sampler.factor else 0.0
    assert sampler.distance >= tables + smoothing


def test_sampler_distance_bounds_the_exact_one_of_a_sum() -> None:
    """At the roughest sum at 2^-64: all probabilities of z1 + k z2, to 60 digits, against the Gaussian's."""
    sampler = Sampler.of(390.87)
    table, k = sampler.table, sampler.factor
    units = [int(p * 2 ** (table.index_bits + table.coin_bits)) for p in table.probabilities()]
    signed = {s * m: u * (1 if m else 2) for m, u in enumerate(units) if u for s in (-1, 1)}
    sampled: dict[int, int] = {}
    for (a, p), (b, q) in product(signed.items(), signed.items()):
        sampled[a + k * b] = sampled.get(a + k * b, 0) + p * q
    with localcontext() as context:
        context.prec = 60
        variance = table.sigma**2 * (1 + k * k)
        scale = -Decimal(variance.denominator) / (2 * variance.numerator)
        reach = max(sampled)
        exact = {y: (scale * y * y).exp() for y in range(-reach, reach + 1)}
        total, mass = sum(exact.values()), Decimal(sum(sampled.values()))
        difference = sum(abs(sampled.get(y, 0) / mass - p / total) for y, p in exact.items())
    assert 2.0**-67 < float(difference) / 2 <= sampler.distance


def test_sampler_sum_has_the_smoothing_that_its_distance_claims() -> None:
    """Given z = z1 + k z2 the weights of z2 sum to the same for every z, up to 2 exp(-2 pi^2 tau^2)."""
    sampler = Sampler.of(400.0)
    tau = float(sampler.table.sigma) ** 2 / sampler.sigma
    grid = np.arange(-60, 61, dtype=np.float64)
    sums = [math.fsum(np.exp(-((grid - mu) ** 2) / (2 * tau**2))) for mu in (0.0, 0.25, 0.5)]
    assert max(sums) / min(sums) - 1 < max(4.2 * math.exp(-2 * (math.pi * tau) ** 2), 1e-14)
    wrong = 0.4
    rough = [math.fsum(np.exp(-((grid - mu) ** 2) / (2 * wrong**2))) for mu in (0.0, 0.5)]
    assert max(rough) / min(rough) - 1 > 0.05


@pytest.mark.parametrize("sigma", [0.0, 0.2, 1501.0, math.nan])
def test_sampler_rejects_a_sigma_out_of_range(sigma: float) -> None:
    with pytest.raises(ValueError, match="exact noise within 2"):
        Sampler.of(sigma)


@pytest.mark.parametrize("security_bits", [15, 129])
def test_sampler_rejects_a_security_out_of_range(security_bits: int) -> None:
    with pytest.raises(ValueError, match="expected 16 to 128"):
        Sampler.of(3.0, security_bits)


@pytest.mark.parametrize("count", [0, 1, 63, 65])
@pytest.mark.parametrize("sigma", [3.0, 200.0])
def test_discrete_gaussian_has_the_asked_number_of_samples(count: int, sigma: float) -> None:
    assert samples(sigma, 1, count).shape == (count,)


def test_discrete_gaussian_uses_the_coins_highest_and_lowest_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A coin with its highest bit stuck gives another distribution; the statistic has to notice."""
    original = discrete.noise

    def stuck(ctx: Context, ring, shape):
        share = original(ctx, ring, shape)
        if shape[0] == 66:
            share.own[65] = 0
            share.next[65] = 0
        return share

    monkeypatch.setattr(discrete, "noise", stuck)
    assert chi_square(samples.__wrapped__(3.7), 3.7) < 1e-5


@pytest.mark.parametrize(
    ("sigma", "security_bits"),
    [(0.5, 64), (14.77, 64), (150.0, 64), (3.0, 40), (3.0, 62), (14.77, 128)],
)
def test_local_samples_match_the_exact_probabilities(sigma: float, security_bits: int) -> None:
    """Coins of 42, 64, 66 and 130 bits: one word, one exactly, two, three."""

    async def program(ctx: Context) -> np.ndarray:
        return discrete.local_samples(ctx, COUNT, Sampler.of(sigma, security_bits))

    drawn = run_parties(program).results
    for z in drawn:
        assert chi_square(z, sigma) > 1e-5
    assert not np.array_equal(drawn[0], drawn[1])


@pytest.mark.parametrize("security_bits", [40, 62, 64, 126, 128])
def test_local_samples_compare_the_coin_in_all_its_words(
    security_bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coins one below, at and one above the bucket's threshold: only the first gives the first magnitude."""
    table = Sampler.of(3.0, security_bits).table
    bucket = next(i for i, t in enumerate(table.thresholds) if 1 < t < (1 << table.coin_bits) - 1)
    coins = [table.thresholds[bucket] + step for step in (-1, 0, 1)]
    words = -(-table.coin_bits // 64)
    draws = np.array(
        [[bucket] * 3]
        + [[c >> 64 * i & (1 << 64) - 1 for c in coins] for i in reversed(range(words))],
        np.uint64,
    )
    # What lies above the coin's bits has to be ignored.
    if table.coin_bits % 64:
        draws[1] |= np.uint64(1 << 63)
    ctx = SimpleNamespace(private=lambda ring, shape: draws.copy())
    drawn = discrete._local_table(ctx, 3, table)  # type: ignore[arg-type]
    first, second = table.first[bucket], table.second[bucket]
    assert drawn.tolist() == [first, second, second]
