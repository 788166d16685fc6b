"""FLAIM's settings: the presets, what they refuse, what a run costs, and the noise of its sums."""

import math
import warnings
from fractions import Fraction

import pytest

from mechanisms.accounting import (
    DiscreteGaussianEvent,
    ExponentialEvent,
    SumOfDiscreteGaussiansEvent,
    rho,
    rho_from_epsilon_delta,
)
from mechanisms.flaim_settings import FLAIM_VARIANTS, FlaimSettings
from mechanisms.workload import draw_workload
from tests.mechanisms.tables import domain_of

RHO = rho_from_epsilon_delta(1.0, 1e-5)
COLUMNS = 14


def events(settings: FlaimSettings) -> list[object]:
    schedule = settings.schedule(COLUMNS)
    return [event for r in range(schedule.rounds + 1) for event in schedule.events(r)]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"variant": "other"}, "variant"),
        ({"participation": 0.0}, "participation"),
        ({"participation": 1.5}, "participation"),
        ({"participation": math.nan}, "participation"),
        ({"rounds": 0}, "rounds"),
        ({"local_rounds": 0}, "local_rounds"),
        ({"rho": 0.0}, "rho"),
        ({"measure_share": 1.0}, "measure_share"),
        ({"grouping": "pairs"}, "grouping"),
        ({"noise": "none"}, "noise"),
        ({"sizes": "private"}, "sizes"),
        ({"tau": "exact"}, "tau"),
        ({"min_participants": 2}, "min_participants"),
        ({"corrupt": 3}, "corrupt"),
        ({"corrupt": 0}, "corrupt"),
        ({"max_model_mb": 0.0}, "max_model_mb"),
        ({"iterations": 0}, "iterations"),
        ({"max_client_rows": 1 << 29}, "max_client_rows"),
        ({"noise": "distributed", "grouping": "query"}, "union"),
        ({"variant": "random", "tau": "proxy"}, "tau"),
        ({"variant": "naivebayes", "annealed": True}, "annealed"),
        ({"variant": "random", "combine": True}, "combine"),
        ({"variant": "pairs", "grouping": "query"}, "expected grouping = 'union'"),
        ({"variant": "pairs", "tau": "proxy"}, "tau"),
        ({"variant": "pairs", "annealed": True}, "annealed"),
        ({"speed": 1}, "speed"),
    ],
)
def test_preset_refuses_what_there_is_not(change: dict[str, object], named: str) -> None:
    values: dict[str, object] = {"variant": "naive", "rho": RHO, **change}
    with pytest.raises(ValueError, match=named):
        FlaimSettings.preset(values.pop("variant"), **values)  # type: ignore[arg-type]


def test_preset_is_the_papers_variant() -> None:
    naive, oracle, private = (
        FlaimSettings.preset(v, rho=RHO) for v in ("naive", "oracle", "private")
    )
    assert (naive.tau, naive.combine, naive.weighted) == ("none", False, False)
    assert (oracle.tau, oracle.combine, oracle.weighted) == ("oracle", False, True)
    assert (private.tau, private.combine, private.weighted) == ("proxy", True, True)


@pytest.mark.parametrize(
    ("tau", "combine", "each_round"),
    [
        ("none", False, False),
        ("oracle", False, False),
        ("proxy", False, True),
        ("none", True, True),
        ("oracle", True, True),
    ],
)
def test_preset_makes_the_ablations_of_figure_2(tau: str, combine: bool, each_round: bool) -> None:
    settings = FlaimSettings.preset("private", rho=RHO, tau=tau, combine=combine)
    assert settings.one_way_each_round is each_round
    measurements = sum(isinstance(event, DiscreteGaussianEvent) for event in events(settings))
    assert measurements == (10 * (1 + COLUMNS) if each_round else 10 + COLUMNS)


@pytest.mark.parametrize(
    ("variant", "s", "measurements", "selections"),
    [
        ("naive", 1, 10 + COLUMNS, 10),
        ("oracle", 1, 10 + COLUMNS, 10),
        ("private", 1, 10 * (1 + COLUMNS), 10),
        # Each client's s - 1 measurements of its own are charged: 2 s - 1 a round.
        ("naive", 3, 10 * 5 + COLUMNS, 30),
        ("private", 3, 10 * (5 + COLUMNS), 30),
        ("random", 1, 10 + COLUMNS, 0),
        ("random", 3, 30 + COLUMNS, 0),
        ("naivebayes", 1, 10 * COLUMNS, 0),
    ],
)
def test_schedule_divides_all_of_the_budget(
    variant: str, s: int, measurements: int, selections: int
) -> None:
    settings = FlaimSettings.preset(variant, rho=RHO, local_rounds=s)
    found = events(settings)
    gaussians = [e for e in found if isinstance(e, DiscreteGaussianEvent)]
    choices = [e for e in found if isinstance(e, ExponentialEvent)]
    assert (len(gaussians), len(choices)) == (measurements, selections)
    cost = sum(Fraction(rho(e)) for e in (*gaussians, *choices))
    assert cost <= Fraction(RHO)
    assert float(cost) == pytest.approx(RHO, rel=1e-12)
    share = 0.9 if selections else 1.0
    assert gaussians[0].sigma == pytest.approx(math.sqrt(measurements / (2 * share * RHO)))


@pytest.mark.parametrize(
    ("rounds", "participation", "turns"),
    [(10, 0.1, 1), (10, 0.19, 1), (10, 0.5, 5), (10, 1.0, 10), (1, 1.0, 1), (3, 0.1, 1)],
)
def test_pairs_divide_the_budget_over_the_turns_of_one_client(
    rounds: int, participation: float, turns: int
) -> None:
    settings = FlaimSettings.preset("pairs", rho=RHO, rounds=rounds, participation=participation)
    workload = draw_workload(domain_of(3, 4, 2, 5), 3, None)
    common = settings.common(workload)
    assert [len(workload.candidates[i]) for i in common] == [1] * 4 + [2] * 6
    assert (settings.turns, settings.chosen, settings.selects) == (turns, 0, False)
    schedule = settings.schedule(len(common))
    paid = [number for number in (0, *range(2, rounds + 1)) if not settings.is_paid(number)]
    assert len(paid) == turns
    cost = turns * len(common) * Fraction(rho(settings.sum_noise(schedule.sigma).event))
    assert cost <= Fraction(RHO)
    assert float(cost) == pytest.approx(RHO, rel=1e-12)
    assert schedule.sigma == pytest.approx(math.sqrt(turns * len(common) / (2 * RHO)))
    if turns < rounds:
        assert cost + cost / turns > Fraction(RHO)


def test_other_variants_measure_single_columns_of_everybody_in_rounds_that_all_pay_for() -> None:
    workload = draw_workload(domain_of(3, 4, 2, 5), 3, None)
    for variant in FLAIM_VARIANTS:
        settings = FlaimSettings.preset(variant, rho=RHO, participation=0.1)
        if variant != "pairs":
            assert settings.common(workload) == workload.one_way
            assert settings.turns == settings.rounds
            assert not settings.is_paid(settings.rounds)


@pytest.mark.parametrize("variant", [v for v in FLAIM_VARIANTS if v not in ("oracle", "random")])
def test_schedule_costs_what_autodp_says(variant: str) -> None:
    found = events(FlaimSettings.preset(variant, rho=RHO))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from autodp.mechanism_zoo import zCDP_Mechanism
        from autodp.transformer_zoo import Composition

        # autodp composes Renyi curves: of n Gaussians, and of choices as the zCDP mechanisms they are.
        sigmas = [e.sigma for e in found if isinstance(e, DiscreteGaussianEvent)]
        parts = [zCDP_Mechanism(1 / (2 * sigmas[0] ** 2), 0)]
        counts = [len(sigmas)]
        if choices := [e.epsilon for e in found if isinstance(e, ExponentialEvent)]:
            parts.append(zCDP_Mechanism(choices[0] ** 2 / 8, 0))
            counts.append(len(choices))
        composed = Composition()(parts, counts).get_approxDP(1e-5)
    # autodp looks for the best order on a grid, so that it may say a little more.
    assert composed == pytest.approx(1.0, rel=0.02)


def test_schedule_anneals_from_eight_rounds_a_column() -> None:
    schedule = FlaimSettings.preset("private", rho=RHO, annealed=True).schedule(COLUMNS)
    assert schedule.adaptive
    assert schedule.rounds == 8 * COLUMNS


@pytest.mark.parametrize("honest", [3, 10, 67])
@pytest.mark.parametrize("sigma", [0.7, 5.0, 20.89, 300.0])
def test_sum_noise_distributed_costs_no_more_than_one_gaussian(sigma: float, honest: int) -> None:
    settings = FlaimSettings.preset(
        "naive", rho=RHO, noise="distributed", min_participants=honest + 2, corrupt=2
    )
    noise = settings.sum_noise(sigma)
    assert isinstance(noise.event, SumOfDiscreteGaussiansEvent)
    assert rho(noise.event) <= rho(DiscreteGaussianEvent(sigma))
    assert (noise.event.parts, noise.event.sensitivity) == (honest, noise.scale)
    # A client's own noise is at least three units of the integers that are sent.
    assert noise.event.sigma >= 3
    assert noise.event.sigma**2 <= noise.variance
    assert noise.deviation(honest) >= sigma
    assert noise.deviation(honest) == pytest.approx(sigma, rel=1e-3)
    assert noise.deviation(4 * honest) == pytest.approx(2 * noise.deviation(honest))


def test_sum_noise_of_the_server_is_one_discrete_gaussian() -> None:
    noise = FlaimSettings.preset("naive", rho=RHO).sum_noise(20.0)
    assert noise.event == DiscreteGaussianEvent(20.0)
    assert (noise.scale, noise.variance, noise.deviation(7)) == (1, 0, 20.0)


def test_rounds_are_counted_from_one_and_end_with_the_last() -> None:
    pairs, naive = (FlaimSettings.preset(v, rho=RHO, rounds=2) for v in ("pairs", "naive"))
    # Pairs have no round 1: their first sums are the first round.
    assert [pairs.round_text(n) for n in (0, 2)] == ["round 1 of 2", "round 2 of 2"]
    assert naive.round_text(0) == "single columns before round 1 of 2"
    assert [naive.round_text(n) for n in (1, 2)] == ["round 1 of 2", "round 2 of 2"]


@pytest.mark.parametrize(
    ("variant", "iterations", "found"),
    [("pairs", 100, 25), ("pairs", 3, 1), ("private", 100, 100), ("naivebayes", 100, 0)],
)
def test_model_of_a_round_has_as_many_iterations_as_its_choice_needs(
    variant: str, iterations: int, found: int
) -> None:
    settings = FlaimSettings.preset(variant, rho=RHO, iterations=iterations)
    assert settings.round_iterations == found
