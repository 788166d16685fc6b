"""Finetuning, Ditto and IFCA beside MR-MTL: what they compute in special cases, and what they charge."""

import asyncio
import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest

from bench.papers.mtl.neighbours import (
    LOSS_BITS,
    DittoSilo,
    FinetuneSilo,
    IfcaSilo,
    choose,
    clusters_request,
    clusters_start,
    ifca_multiplier,
    run_ifca,
)
from mechanisms import rdp
from mechanisms.errors import BudgetExceeded, RequestRefused
from mechanisms.fixed_point import pack_arrays
from mechanisms.mr_mtl import MtlSettings, run_mtl
from mechanisms.mtl_silo import MtlSilo, SiloRows
from mechanisms.silos import InProcess
from tests.mechanisms.tables import random_stream

D = 3
SIZES = (40, 60, 80)
SLOPES = (0.9, 0.5, -0.3)
FEDAVG = MtlSettings(100, D, (math.inf,), rounds=6, batch=20, rate=0.1)
# Whole batches, and an epsilon of a million: all that is left is rounding.
STILL = dataclasses.replace(FEDAVG, batch=80, gradient_bits=18)
DELTA = 1e-3


def rows_of(number: int, *, slope: float | None = None) -> SiloRows:
    draw = np.random.default_rng(number)
    parts = []
    for count in (SIZES[number], 0, 10):
        x = draw.uniform(-1, 1, (count, D))
        weights = np.full(D, SLOPES[number] if slope is None else slope)
        parts.append((x, x @ weights + 0.1 * draw.standard_normal(count)))
    return SiloRows(*parts)


def plain_silos(settings: MtlSettings, epsilon: float = 6.0) -> list[MtlSilo]:
    return [
        MtlSilo(settings, rows_of(k), epsilon=epsilon, delta=DELTA, random_bytes=random_stream(k))
        for k in range(3)
    ]


def finetune_silos(
    settings: MtlSettings, together: int, epsilon: float = 6.0
) -> list[FinetuneSilo]:
    return [
        FinetuneSilo(
            settings,
            rows_of(k),
            together=together,
            epsilon=epsilon,
            delta=DELTA,
            random_bytes=random_stream(k),
        )
        for k in range(3)
    ]


def ditto_silo(settings: MtlSettings, k: int, pull: float, epsilon: float = 6.0) -> DittoSilo:
    multiplier = rdp.least_multiplier(
        lambda z: (
            2
            * settings.total_steps(SIZES[k])
            * rdp.sampled_gaussian(settings.sampling_rate(SIZES[k]), z)
        ),
        epsilon,
        DELTA,
    )
    return DittoSilo(
        settings,
        rows_of(k),
        pull=pull,
        epsilon=epsilon,
        delta=DELTA,
        random_bytes=random_stream(k),
        multiplier=multiplier,
    )


def ifca_silos(
    settings: MtlSettings,
    clusters: int,
    *,
    eta: float = 0.5,
    epsilon: float = 6.0,
    multipliers: Sequence[float | None] = (None, None, None),
) -> list[IfcaSilo]:
    return [
        IfcaSilo(
            settings,
            rows_of(k),
            clusters=clusters,
            choosing=4,
            eta=eta,
            epsilon=epsilon,
            delta=DELTA,
            random_bytes=random_stream(k),
            multiplier=multipliers[k],
        )
        for k in range(3)
    ]


def run(settings: MtlSettings, silos: Sequence[MtlSilo]) -> np.ndarray:
    return asyncio.run(run_mtl(settings, InProcess(silos))).mean


def descended(
    w: np.ndarray, rows: SiloRows, settings: MtlSettings, *, mean: np.ndarray, pull: float
) -> np.ndarray:
    """One step of gradient descent on all rows, each gradient clipped."""
    x, y = rows.train
    gradients = (x @ w - y)[:, None] * x + pull * (w - mean)
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    clipped = gradients / np.maximum(norms / settings.clip, 1)
    return np.asarray(w - settings.rate * clipped.mean(axis=0))


def test_finetuning_without_rounds_alone_is_fedavg() -> None:
    """With the same random bytes the two are equal to the last bit, and cost the same."""
    ours, theirs = finetune_silos(FEDAVG, FEDAVG.rounds), plain_silos(FEDAVG)
    assert np.array_equal(run(FEDAVG, ours), run(FEDAVG, theirs))
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(one.model, other.model)
        assert one.epsilon == other.epsilon
        assert one.steps == other.steps == FEDAVG.total_steps(one._size)


def test_finetuning_goes_on_alone_from_the_mean_of_fedavg() -> None:
    silos = finetune_silos(STILL, 4, epsilon=1e6)
    run(STILL, silos)
    mean = run(dataclasses.replace(STILL, rounds=4), plain_silos(STILL, epsilon=1e6))
    for k, silo in enumerate(silos):
        w = mean
        for _ in range(2):
            w = descended(w, rows_of(k), STILL, mean=mean, pull=0.0)
        assert silo.model == pytest.approx(w, abs=2e-3)
    assert np.abs(silos[0].model - silos[2].model).max() > 0.02


def test_ditto_is_its_equations_where_noise_is_next_to_none() -> None:
    """Lambda 0 is local training; a pull draws the personal model to the mean, which is that of FedAvg."""
    local = dataclasses.replace(STILL, lambdas=(0.0,))
    alone = plain_silos(local, epsilon=1e6)
    run(local, alone)
    for pull in (0.0, 2.0):
        silos = [ditto_silo(STILL, k, pull, epsilon=1e6) for k in range(3)]
        mean = run(STILL, silos)
        rows, start = [rows_of(k) for k in range(3)], np.zeros(D)
        together, personal = start, [start] * 3
        for _ in range(STILL.rounds):
            personal = [
                descended(w, part, STILL, mean=together, pull=pull)
                for w, part in zip(personal, rows, strict=True)
            ]
            models = [descended(together, part, STILL, mean=together, pull=0.0) for part in rows]
            together = np.average(models, axis=0, weights=SIZES)
        assert mean == pytest.approx(together, abs=2e-3)
        for k, silo in enumerate(silos):
            assert silo.model == pytest.approx(personal[k], abs=2e-3)
            near = np.abs(silo.model - alone[k].model).max() < 2e-3
            assert near == (pull == 0)


def test_ditto_pays_for_twice_as_many_steps() -> None:
    silos = [ditto_silo(FEDAVG, k, 1.0) for k in range(3)]
    run(FEDAVG, silos)
    for silo, size in zip(silos, SIZES, strict=True):
        assert silo.steps == 2 * FEDAVG.total_steps(size)
        curve = silo.steps * rdp.sampled_gaussian(FEDAVG.sampling_rate(size), silo._step.z)
        assert 5.999 < rdp.epsilon_of(curve, DELTA) <= 6
        assert silo.epsilon <= 6
    # The control: the noise of FedAvg's steps does not pay for both models.
    cheap = DittoSilo(
        FEDAVG,
        rows_of(0),
        pull=1.0,
        epsilon=6.0,
        delta=DELTA,
        random_bytes=random_stream(0),
        multiplier=plain_silos(FEDAVG)[0]._step.z,
    )
    with pytest.raises(BudgetExceeded):
        run(FEDAVG, [cheap])


def test_ifca_with_one_cluster_is_fedavg() -> None:
    """With the same random bytes and noise the two are equal to the last bit, and nothing is paid for choices."""
    theirs = plain_silos(FEDAVG)
    multipliers = [
        ifca_multiplier(
            silo._q, steps=FEDAVG.total_steps(size), choices=0, eta=0.5, epsilon=6.0, delta=DELTA
        )
        for silo, size in zip(theirs, SIZES, strict=True)
    ]
    theirs = [
        MtlSilo(
            FEDAVG,
            rows_of(k),
            epsilon=6.0,
            delta=DELTA,
            random_bytes=random_stream(k),
            multiplier=multipliers[k],
        )
        for k in range(3)
    ]
    ours = ifca_silos(FEDAVG, 1)
    means = asyncio.run(run_ifca(FEDAVG, InProcess(ours), clusters_start(FEDAVG, 1, 1)))
    assert np.array_equal(means[0], run(FEDAVG, theirs))
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(one.model, other.model)
        assert one.epsilon == pytest.approx(rdp_epsilon(other), rel=1e-9)


def rdp_epsilon(silo: MtlSilo) -> float:
    return rdp.epsilon_of(silo.steps * rdp.sampled_gaussian(silo._q, silo._step.z), DELTA)


def test_ifca_spends_its_budget_on_steps_and_choices_together() -> None:
    silos = ifca_silos(FEDAVG, 3)
    assert all(silo.epsilon == 0 for silo in silos)
    asyncio.run(run_ifca(FEDAVG, InProcess(silos), clusters_start(FEDAVG, 3, 1)))
    for silo, size in zip(silos, SIZES, strict=True):
        q, z, steps = FEDAVG.sampling_rate(size), silo._step.z, FEDAVG.total_steps(size)
        # Four choices of eta = 1/2: at order a they add a / 8 to the steps' curve.
        curve = steps * rdp.sampled_gaussian(q, z) + np.array(rdp.ORDERS) / 8
        assert silo.epsilon == pytest.approx(rdp.epsilon_of(curve, DELTA), rel=1e-6)
        assert 5.999 < silo.epsilon <= 6
        assert rdp_epsilon(silo) < silo.epsilon - 0.1
    # The control: noise that pays for the steps alone is refused.
    cheap = ifca_multiplier(0.5, steps=12, choices=0, eta=0.5, epsilon=6.0, delta=DELTA)
    with pytest.raises(BudgetExceeded, match="4 choices"):
        ifca_silos(FEDAVG, 3, multipliers=(cheap, None, None))
    with pytest.raises(ValueError, match="no noise keeps"):
        ifca_silos(FEDAVG, 3, eta=40.0)


def test_one_row_moves_all_of_a_choices_scores_up_by_its_bound_at_most() -> None:
    """A choice is eta-bounded-range by that: log ratios of both rows' probabilities lie within eta."""
    means = np.random.default_rng(1).normal(0, 2, (3, D))
    rows = rows_of(2)
    whole = ifca_silos(FEDAVG, 3)[2]._losses(means)
    spans = []
    for row in range(SIZES[2]):
        kept = np.arange(SIZES[2]) != row
        fewer = dataclasses.replace(rows, train=(rows.train[0][kept], rows.train[1][kept]))
        silo = IfcaSilo(
            FEDAVG,
            fewer,
            clusters=3,
            choosing=4,
            eta=0.5,
            epsilon=6.0,
            delta=DELTA,
            random_bytes=random_stream(0),
            multiplier=9.0,
        )
        moved = whole - silo._losses(means)
        assert moved.min() >= 0
        assert moved.max() <= 1 << LOSS_BITS
        spans.append(np.ptp(moved))
    assert max(spans) > (1 << LOSS_BITS) / 2


def test_choose_draws_by_the_exponential_mechanism() -> None:
    """Counts of 5,000 choices, seeded; chi-square is above 30 at two degrees with a chance of 3e-7."""
    losses = np.array([7, 9, 8]) << LOSS_BITS
    source = random_stream(11)
    counts = np.bincount([choose(losses, 0.7, source) for _ in range(5_000)], minlength=3)

    def off(eta: float) -> float:
        expected = np.exp(-eta * np.array([0, 2, 1]))
        expected *= counts.sum() / expected.sum()
        return float(((counts - expected) ** 2 / expected).sum())

    assert off(0.7) < 30
    assert min(off(0.35), off(1.4)) > 100


def test_ifca_silos_of_two_kinds_part_and_hide_their_choice() -> None:
    """Seeds are fixed. Zeros stand in the other clusters' parts of an answer."""
    settings = dataclasses.replace(STILL, rounds=12, rate=0.5)
    silos = ifca_silos(settings, 2, eta=50.0, epsilon=1e6)
    start = np.array([[0.5, 0.5, 0.5], [-0.5, -0.5, -0.5]])
    given = silos[2].answer(clusters_request(settings, 1, start)).reshape(2, D + 1)
    assert not given[0].any()
    assert given[1, -1] == SIZES[2]
    with pytest.raises(RequestRefused, match="round 1 after round 1"):
        silos[2].answer(clusters_request(settings, 1, start))
    silos = ifca_silos(settings, 2, eta=50.0, epsilon=1e6)
    means = asyncio.run(run_ifca(settings, InProcess(silos), start))
    assert [silo.cluster for silo in silos] == [0, 0, 1]
    assert np.array_equal(silos[2].model, means[1])
    assert means[0].mean() > 0.3 > means[1].mean()
    with pytest.raises(RequestRefused, match="beyond the bound"):
        silos[0].finish(pack_arrays(np.full((2, D), 9.0)))


def test_clusters_that_nobody_chose_keep_their_models() -> None:
    settings = dataclasses.replace(STILL, rounds=1)
    start = np.array([[0.5, 0.5, 0.5], [3.0, -3.0, 3.0]])
    means = asyncio.run(
        run_ifca(settings, InProcess(ifca_silos(settings, 2, eta=50.0, epsilon=1e6)[:1]), start)
    )
    assert np.array_equal(means[1], start[1])
    assert not np.array_equal(means[0], start[0])


def test_clusters_start_is_public_apart_and_of_unit_size() -> None:
    settings = dataclasses.replace(FEDAVG, features=900)
    start = clusters_start(settings, 3, 7)
    assert np.array_equal(start, clusters_start(settings, 3, 7))
    assert np.linalg.norm(start, axis=1) == pytest.approx(np.ones(3), rel=0.1)
    assert abs(np.corrcoef(start)[0, 1]) < 0.2


def test_known_models_of_fixed_seeds() -> None:
    """Models of the first silo; another order of random bytes or another step changes them."""
    finetuned = finetune_silos(FEDAVG, 3)
    run(FEDAVG, finetuned)
    personal = [ditto_silo(FEDAVG, k, 1.0) for k in range(3)]
    run(FEDAVG, personal)
    clustered = ifca_silos(FEDAVG, 2)
    asyncio.run(run_ifca(FEDAVG, InProcess(clustered), clusters_start(FEDAVG, 2, 1)))
    known = {
        "finetuning": [0.1083915, 0.0860527, 0.1936736],
        "ditto": [0.1508594, 0.10896, 0.231543],
        "ifca": [-0.0982717, 0.4583588, -0.4663086],
    }
    for name, silos in (("finetuning", finetuned), ("ditto", personal), ("ifca", clustered)):
        assert silos[0].model == pytest.approx(known[name], abs=1e-6), name  # type: ignore[attr-defined]
