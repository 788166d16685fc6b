"""Measurements with each kind of noise: what is opened, how the noise is distributed, what does not fit."""

import math

import numpy as np
import pytest

from protocols import discrete, measure, noise_kinds
from protocols.base import known
from protocols.box_muller import SAMPLE_BITS, radius_table
from protocols.context import Context
from protocols.ring import R32, R64
from protocols.shares import Share
from tests.protocols.local import components, reconstruct, run_parties, share_of
from tests.protocols.test_box_muller import reject_normal
from tests.protocols.test_discrete import chi_square

KINDS = {
    "discrete": measure.noise_of(noise_kinds.DISCRETE),
    "box_muller": measure.noise_of(noise_kinds.BOX_MULLER),
    "distributed": measure.noise_of(noise_kinds.DISTRIBUTED),
}


def measured(
    kind: str, values: list[int], sigma: float, max_rows: int, seed: int = 1
) -> np.ndarray:
    parts = components(R32, values)

    async def program(ctx: Context) -> np.ndarray:
        return await measure.measure(ctx, share_of(ctx, parts, R32), sigma, max_rows, KINDS[kind])

    outcome = run_parties(program, seed=seed)
    assert all(np.array_equal(result, outcome.results[0]) for result in outcome.results)
    for party in outcome.parties:
        assert [(o.what, o.count) for o in party.costs.openings] == [
            ("measure.counts", len(values))
        ]
    return outcome.results[0]


@pytest.mark.parametrize("sigma", [20.89, 1000.0])
@pytest.mark.parametrize("kind", KINDS)
def test_measure_adds_noise_of_the_given_deviation(kind: str, sigma: float) -> None:
    values = np.random.default_rng(1).integers(0, 5000, 20_000)
    noise = measured(kind, values.tolist(), sigma, 10_000) - values
    if kind == "box_muller":
        assert reject_normal(noise / sigma) == []
        assert np.array_equal(noise * 64, np.rint(noise * 64))
    else:
        total = sigma * math.sqrt(1.5 if kind == "distributed" else 1)
        assert chi_square(noise, total) > 1e-5
        assert chi_square(np.rint(noise * 1.1), total) < 1e-5


def test_measure_distributed_leaves_each_party_ignorant_of_two_thirds_of_the_noise() -> None:
    """Less what party 0 added, which it knows, noise of the full variance is left."""
    known: list[np.ndarray] = []
    original = measure.local_samples

    def recording(ctx: Context, count: int, sampler: discrete.Sampler) -> np.ndarray:
        drawn = original(ctx, count, sampler)
        if ctx.pid == 0:
            known.append(drawn)
        return drawn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "local_samples", recording)
        noise = measured("distributed", [0] * 20_000, 20.0, 10)
    assert chi_square(noise - known[0], 20.0) > 1e-5


@pytest.mark.parametrize("noise", noise_kinds.NOISES)
@pytest.mark.parametrize("security_bits", [64, 128])
def test_noise_of_checks_and_states_what_it_does(noise: str, security_bits: int) -> None:
    """The same sigmas are refused before as in the protocol, and a higher security is a smaller distance."""
    KINDS["with"] = measure.noise_of(noise, security_bits)
    try:
        values = [1, 2, 3]
        measure.check_measure(noise, 2.0, 10, security_bits=security_bits)
        assert measured("with", values, 2.0, 10).shape == (3,)
        with pytest.raises(ValueError, match="noise"):
            measure.check_measure(noise, 1e7, 10, security_bits=security_bits)
        with pytest.raises(ValueError, match="noise"):
            measured("with", values, 1e7, 10)
    finally:
        del KINDS["with"]
    distance = measure.release_distance(noise, security_bits)
    exact = noise != noise_kinds.BOX_MULLER
    assert (distance <= 2.0 ** (1 - security_bits)) == exact
    if exact:
        part = 2.0 / math.sqrt(2) if noise == noise_kinds.DISTRIBUTED else 2.0
        terms = 2 if noise == noise_kinds.DISTRIBUTED else 1
        assert terms * discrete.Sampler.of(part, security_bits).distance <= distance
        assert distance == terms * 2.0**-security_bits


def test_release_distance_covers_what_box_muller_cannot_reach() -> None:
    """The mass of the radii beyond the largest that comes out, exp(-R^2 / 2), is what a release is charged."""
    table = np.ldexp(np.array(radius_table(), np.float64), -SAMPLE_BITS)
    largest = max(float(np.polyval(row[::-1], -0.5)) for row in table)
    beyond = math.exp(-(largest**2) / 2)
    assert beyond == pytest.approx(measure.release_distance(noise_kinds.BOX_MULLER), rel=1e-5)


def test_noise_of_refuses_another_kind() -> None:
    with pytest.raises(ValueError, match="expected one of discrete-gaussian"):
        measure.noise_of("laplace")


@pytest.mark.parametrize("kind", KINDS)
def test_measure_differs_from_run_to_run(kind: str) -> None:
    first = measured(kind, [1, 2, 3] * 9, 3.0, 10, seed=1)
    assert not np.array_equal(first, measured(kind, [1, 2, 3] * 9, 3.0, 10, seed=2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("sigma", "max_rows"), [(0.0, 10), (-1.0, 10), (math.nan, 10), (1.0, 2**31), (1e7, 10)]
)
def test_measure_rejects_what_does_not_fit(kind: str, sigma: float, max_rows: int) -> None:
    with pytest.raises(ValueError, match=r"do not fit|noise within|noise is for"):
        measured(kind, [1], sigma, max_rows)


@pytest.mark.parametrize("noise", [noise_kinds.DISCRETE, noise_kinds.DISTRIBUTED])
def test_range_is_exact(noise: str) -> None:
    """The largest count with the largest noise is 2^31 - 1; one row more is refused, beforehand and in the protocol."""
    parts, sigma = (3, 2.0 / math.sqrt(2)) if noise == noise_kinds.DISTRIBUTED else (1, 2.0)
    most = 2**31 - 1 - parts * discrete.Sampler.of(sigma).largest
    measure.check_measure(noise, 2.0, most)
    run_parties(lambda c: measure.noise_of(noise).samples(c, 1, 2.0, most))
    with pytest.raises(ValueError, match="do not fit 32 bits"):
        measure.check_measure(noise, 2.0, most + 1)
    with pytest.raises(ValueError, match="do not fit 32 bits"):
        run_parties(lambda c: measure.noise_of(noise).samples(c, 1, 2.0, most + 1))


def test_box_muller_noise_rounds_sigma_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 7 and a sigma just above 100: rounded down, the noise would be 700 exactly and always."""
    seven = np.full(1000, 7 << SAMPLE_BITS, np.uint64)

    async def sevens(ctx: Context, count: int) -> Share:
        return known(ctx, R64, 0, seven if ctx.pid != 1 else None, (count,))

    monkeypatch.setattr(measure, "gaussian", sevens)
    outcome = run_parties(lambda c: measure.box_muller_noise(c, 1000, 100 + 2.0**-13, 10))
    noise = R32.decode(reconstruct(outcome.results)) - 700 * 64
    assert set(noise.tolist()) == {0, 1}
    # 7 * 2^-12 * 64 of them are rounded up: 109, with a standard deviation of 10.
    assert 60 < noise.sum() < 160


@pytest.mark.parametrize("kind", KINDS)
def test_noise_may_be_made_before_the_counts(kind: str) -> None:
    """Prepared noise takes the rounds of noise away from the measurement, and is noise all the same."""
    values = np.random.default_rng(1).integers(0, 5000, 20_000)
    parts = components(R32, values.tolist())

    async def program(ctx: Context) -> tuple[np.ndarray, int]:
        noise = KINDS[kind]
        ahead = await noise.samples(ctx.child(), values.size, 20.0, 10_000)
        with ctx.step("measure") as c:
            noisy = await measure.measure(
                c, share_of(c, parts, R32), 20.0, 10_000, noise, prepared=ahead
            )
        return noisy, c.cost.rounds

    noisy, rounds = run_parties(program, seed=3).results[0]
    assert rounds == 1
    if kind == "box_muller":
        assert reject_normal((noisy - values) / 20.0) == []
    else:
        total = 20.0 * math.sqrt(1.5 if kind == "distributed" else 1)
        assert chi_square(noisy - values, total) > 1e-5
