"""Gumbel noise: the table in exact arithmetic, samples against the exact distribution, bounds of what it is worth.

Kolmogorov-Smirnov on 20,000 samples, false-alarm rate 10^-5: a shift by 8 % of a nat, or a scale that is wrong by 12 %,
is caught. The controls are these. The bounds of README section 3 are recomputed here from the table alone.
"""

from decimal import Decimal, localcontext
from functools import cache

import numpy as np
import pytest
from scipy import stats

from protocols import gumbel
from protocols.alias import alias, to_units
from protocols.ring import R64
from protocols.select_spec import (
    MAX_CANDIDATES,
    NOISE_HIGHEST,
    NOISE_LOWEST,
    NOISE_REACH,
    SAMPLE_DISTANCE,
    SELECTION_SLACK,
    selection_distance,
)
from tests.protocols.local import reconstruct, run_parties

COUNT = 20_000
ALARM = 1e-5
W = 2.0**-gumbel.STEP_BITS


@cache
def samples(seed: int = 1, count: int = COUNT) -> np.ndarray:
    """In nats."""
    outcome = run_parties(lambda c: gumbel.gumbel(c, count), seed=seed)
    return R64.decode(reconstruct(outcome.results)) / 2.0**28


def p_value(nats: np.ndarray) -> float:
    return float(stats.kstest(nats, "gumbel_r").pvalue)


def test_samples_have_gumbels_distribution() -> None:
    assert p_value(samples()) > ALARM


@pytest.mark.parametrize("biased", [lambda g: g + 0.08, lambda g: 1.12 * g, lambda g: -g])
def test_p_value_rejects_biased_samples(biased) -> None:
    assert p_value(biased(samples())) < ALARM


def test_samples_reach_into_the_tail_and_no_further_than_their_bounds() -> None:
    """Above 6 nats, 50 are expected among 20,000; the fractions below w are uniform."""
    found = samples()
    assert found.min() >= NOISE_LOWEST
    assert found.max() <= NOISE_LOWEST + NOISE_REACH / 2**28
    assert (
        stats.binomtest(int((found > 6).sum()), found.size, -np.expm1(-np.exp(-6))).pvalue > ALARM
    )
    # U + V modulo 1.
    assert stats.kstest(found / W % 1, "uniform").pvalue > ALARM


def test_tail_goes_on_by_nats(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every outcome in the tail, J is geometric: at least 1, 2 and 3 with e^-1, e^-2 and e^-3."""
    whole = gumbel.table()
    flags = 1 << gumbel.INDEX_BITS | 1 << gumbel.INDEX_BITS + gumbel.OUTCOME_BITS
    rows = [[flags << gumbel.COIN_BITS] * (1 << gumbel.INDEX_BITS - gumbel.LOW_BITS)]
    always = {name: getattr(whole, name) for name in whole.__slots__}
    always["words"] = gumbel.PublicTable.of(rows * (1 << gumbel.LOW_BITS), gumbel.WORD_BITS)
    monkeypatch.setattr(gumbel, "table", lambda: gumbel.GumbelTable(**always))
    outcome = run_parties(lambda c: gumbel.gumbel(c, 20_000))
    nats = R64.decode(reconstruct(outcome.results)) / 2.0**28 - NOISE_LOWEST
    for least in (1, 2, 3, 5):
        beyond = int((nats >= least).sum())
        assert stats.binomtest(beyond, nats.size, float(np.exp(-least))).pvalue > ALARM


def test_table_has_the_probabilities_of_its_weights() -> None:
    """Exact but for units of 2^-155: with the coins of the tail, 2^-141, and 2^-124 for the largest selection."""
    found = gumbel.table()
    weights, probabilities = gumbel._weights(), found.probabilities()
    assert len(probabilities) == len(weights) == found.outcomes
    assert sum(probabilities) == 1
    with localcontext() as context:
        context.prec = 60
        sampled = [Decimal(p.numerator) / Decimal(p.denominator) for p in probabilities]
        distance = sum(abs(p - q) for p, q in zip(sampled, weights, strict=True)) / 2
        # J is cut at 128, its coins are rounded down.
        distance += gumbel.TAIL_BITS * Decimal(2) ** -gumbel.COIN_BITS + Decimal(-128).exp()
        assert min(weights) > 0
        assert distance < Decimal(SAMPLE_DISTANCE)
    for candidates, least in ((2, -128), (8191, -128), (8192, -127), (MAX_CANDIDATES, -124)):
        assert candidates * SAMPLE_DISTANCE < selection_distance(candidates) == 2.0**least


@cache
def deviations() -> tuple[np.ndarray, np.ndarray]:
    """At points of the noise, ascending: how far, in nats, the exact sample of the same rank is."""
    with localcontext() as context:
        context.prec = 60
        weights, w = gumbel._weights(), Decimal(2) ** -gumbel.STEP_BITS
        ratio = (-w).exp()
        # Ten nats of the tail, in which the probabilities go on by e^-w each.
        rest = sum(weights[-gumbel.STEPS_A_NAT :])
        start = rest * (1 - ratio)
        tail = [start * ratio**k for k in range(10 * gumbel.STEPS_A_NAT)]
        weights = weights[: -gumbel.STEPS_A_NAT] + tail
        above, points, found = Decimal(1), [], []
        for number in range(1, len(weights)):
            above -= weights[number - 2] if number > 1 else 0
            for t in (Decimal(k) / 8 for k in range(8)):
                # More than number + t: what is left of the hat before, whose top is at number, and of this one's.
                survival = above - weights[number - 1] * (1 - (1 - t) ** 2 / 2)
                survival -= weights[number] * t * t / 2
                nats = w * (number + t) + NOISE_LOWEST
                exact = -(-(1 - survival).ln()).ln()
                points.append(float(nats))
                found.append(abs(float(exact - nats)))
        return np.array(points), np.array(found)


def test_noise_is_within_its_bounds_of_gumbels() -> None:
    points, found = deviations()
    for least, bound in ((-1.0, 2**-24.5), (-2.0, 2**-19.5), (-2.7, 2**-16.5)):
        assert found[points >= least].max() < bound


def relative_error() -> float:
    """Of a probability: the integral of README section 3, with what the places of U and V add."""
    points, found = deviations()
    lowest = np.exp(-points[0])
    z = np.linspace(0, lowest - 1e-3, 200_001)[1:]
    # The largest deviation of anything at or above -ln z: less that, samples are as exact or more.
    largest = np.maximum.accumulate(found[::-1])[::-1]
    at = np.maximum(np.searchsorted(points, -np.log(z), "right") - 1, 0)
    off = 2 * (largest[at] + 2**-24) + 2**-28
    return float(np.trapezoid(np.expm1(z * off) * np.exp(-z), z)) + 2 * np.exp(-lowest + 1e-2)


def test_relative_error_of_a_probability_is_within_what_is_charged() -> None:
    assert 2**-24 < relative_error() < 2**-21
    assert 4 * relative_error() < SELECTION_SLACK


def test_alias_holds_what_it_was_given() -> None:
    for seed in range(20):
        generator = np.random.default_rng(seed)
        weights = [Decimal(int(n)) for n in generator.integers(1, 1000, generator.integers(2, 33))]
        units = to_units(weights, 5 + 12)
        thresholds, first, second = alias(units, 5, 12)
        found = [0] * 32
        for threshold, one, other in zip(thresholds, first, second, strict=True):
            found[one] += threshold
            found[other] += (1 << 12) - threshold
        assert found[: len(units)] == units
        assert not any(found[len(units) :])
    assert NOISE_HIGHEST > 16
