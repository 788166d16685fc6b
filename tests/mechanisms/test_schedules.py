"""Schedules: Lemma 4.1 for every variant, annealing, events over JSON, and the loop on an annealed plan."""

import json
import math
from collections.abc import Sequence
from dataclasses import fields
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.accounting import (
    DiscreteGaussianEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    Ledger,
    Schedule,
    SumOfDiscreteGaussiansEvent,
    check_budget,
    fixed_rounds_plan,
    rho,
)
from mechanisms.aim import AimResult, Estimate, Measurement, run_aim
from mechanisms.annealing import CENTRAL_ROUNDS, FEDERATED_ROUNDS, AnnealedPlan
from mechanisms.errors import BudgetExceeded
from mechanisms.events import (
    GRID_SLACK,
    NOISE_KINDS,
    event_from_dict,
    event_to_dict,
    measurement_event,
    noise_deviation,
)
from mechanisms.plaintext import PlaintextBackend
from mechanisms.workload import count_marginals, draw_workload
from tests.mechanisms.tables import domain_of, random_codes, random_stream

BUDGET = 0.03


def exact_cost(plan: Schedule) -> Fraction:
    return sum(
        (Fraction(rho(e)) for r in range(plan.rounds + 1) for e in plan.events(r)), Fraction(0)
    )


@pytest.mark.parametrize("noise", NOISE_KINDS)
@pytest.mark.parametrize(
    ("variant", "s", "measurements"),
    [
        ("aim", 1, 10 + 14),
        ("distaim", 1, 10 + 14),
        ("naive", 4, 10 * 4 + 14),
        ("oracle", 2, 10 * 2 + 14),
        ("private", 1, 10 * (1 + 14)),
        ("private", 4, 10 * (4 + 14)),
    ],
)
def test_fixed_rounds_plan_is_lemma_4_1_for_every_variant(
    variant: str, s: int, measurements: int, noise: str
) -> None:
    plan = fixed_rounds_plan(
        BUDGET,
        10,
        14,
        noise=noise,
        variant=variant,
        local_rounds=s,  # type: ignore[arg-type]
    )
    assert plan.sigma == pytest.approx(math.sqrt(measurements / (2 * 0.9 * BUDGET)), rel=1e-12)
    # The lemma's epsilon is what is charged; the grid's slack comes out of it.
    charged = math.sqrt(8 * 0.1 * BUDGET / (10 * s))
    assert plan.selection.epsilon == pytest.approx(charged, rel=1e-12)
    assert plan.epsilon == pytest.approx(charged - GRID_SLACK, rel=1e-12)
    events = [event for r in range(11) for event in plan.events(r)]
    assert events.count(plan.measurement) == measurements
    assert events.count(plan.selection) == 10 * s
    assert exact_cost(plan) <= Fraction(BUDGET)
    assert exact_cost(plan) == pytest.approx(BUDGET, rel=1e-12)


@given(
    st.floats(1e-4, 5),
    st.integers(1, 50),
    st.integers(1, 20),
    st.sampled_from(NOISE_KINDS),
    st.integers(1, 3),
)
def test_fixed_rounds_plan_never_costs_more_than_its_budget(
    budget: float, rounds: int, columns: int, noise: str, s: int
) -> None:
    """Not by the last bit: sums are exact rationals."""
    plan = fixed_rounds_plan(
        budget,
        rounds,
        columns,
        noise=noise,
        variant="private",
        local_rounds=s,  # type: ignore[arg-type]
    )
    assert exact_cost(plan) <= Fraction(budget)


def test_check_budget_grants_nothing_to_rounding() -> None:
    event = GaussianEvent(2.0)
    check_budget(0.5, [0.25, 0.125], [event])
    with pytest.raises(BudgetExceeded):
        check_budget(0.5, [0.25, math.nextafter(0.125, 1)], [event])
    # As doubles these add up to one exactly.
    assert math.fsum([1.0, 1e-17]) == 1.0
    with pytest.raises(BudgetExceeded):
        check_budget(1.0, [1.0, 1e-17], [])


@pytest.mark.parametrize(("variant", "s"), [("aim", 2), ("distaim", 3), ("other", 1), ("naive", 0)])
def test_fixed_rounds_plan_refuses_what_there_is_not(variant: str, s: int) -> None:
    with pytest.raises(ValueError, match=r"local_rounds|variant"):
        fixed_rounds_plan(1.0, 2, 2, variant=variant, local_rounds=s)  # type: ignore[arg-type]


def test_fixed_rounds_plan_pays_for_small_sums() -> None:
    """With parts below one a sum of two costs more than one Gaussian, so sigma is larger than Lemma 4.1's."""
    plan = fixed_rounds_plan(10.0, 4, 4, noise="distributed")
    single = fixed_rounds_plan(10.0, 4, 4, noise="discrete-gaussian")
    assert plan.sigma > single.sigma * 1.01
    assert exact_cost(plan) <= 10


def test_noise_deviation_of_distributed_noise_is_larger() -> None:
    plan = fixed_rounds_plan(BUDGET, 10, 14, noise="distributed")
    assert plan.noise_sigma == noise_deviation("distributed", plan.sigma)
    assert plan.noise_sigma**2 == pytest.approx(1.5 * plan.sigma**2)
    assert plan.measurement == SumOfDiscreteGaussiansEvent(plan.sigma / math.sqrt(2), 2)


EVENTS: Sequence[Event] = (
    GaussianEvent(0.1, 3.0),
    DiscreteGaussianEvent(1 / 3),
    SumOfDiscreteGaussiansEvent(0.7, 2, 3.0, 9),
    ExponentialEvent(1e-9),
)


@pytest.mark.parametrize("event", EVENTS)
def test_event_survives_json_exactly(event: Event) -> None:
    assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event
    with pytest.raises(AttributeError):
        setattr(event, fields(event)[0].name, 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "laplace"},
        {"kind": None},
        {"extra": 1},
        {"sigma": "1"},
        {"sigma": -1.0},
        {"sigma": 10**400},
        {"parts": 2.5},
        {"parts": True},
        {"sigma": 0.4},
    ],
)
def test_event_from_dict_rejects_anything_else(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"event|has to be"):
        event_from_dict({**event_to_dict(EVENTS[2]), **change})


def test_measurement_event_rejects_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match="one of discrete-gaussian"):
        measurement_event("laplace", 1.0)  # type: ignore[arg-type]


# Annealing

# How round 0 and a tree may have shares of their own.
DIVISIONS: list[dict[str, float]] = [
    {},
    {"initial_share": 0.2},
    {"initial_share": 0.2, "tree_rounds": 2, "tree_share": 0.25},
    {"tree_rounds": 4, "tree_share": 0.9},
]


def play(plan: AnnealedPlan, settled: Sequence[bool]) -> list[tuple[float, float]]:
    """Decide rounds with these answers, and then with the last one, until the plan is over."""
    found = []
    for round in range(1, plan.rounds + 1):
        plan.advance(round, settled=round > 1 and settled[min(round - 2, len(settled) - 1)])
        if plan.rounds < round:
            break
        found.append((plan.sigma, plan.epsilon))
        if round == plan.rounds:
            break
    return found


@pytest.mark.parametrize(("each", "rounds"), [(CENTRAL_ROUNDS, 80), (FEDERATED_ROUNDS, 40)])
def test_annealed_plan_without_settling_is_the_fixed_one(each: int, rounds: int) -> None:
    plan = AnnealedPlan(BUDGET, 5, rounds_per_column=each)
    fixed = fixed_rounds_plan(BUDGET, rounds, 5)
    parameters = play(plan, [False])
    assert len(parameters) == plan.rounds == rounds
    assert parameters[:-1] == [(fixed.sigma, fixed.epsilon)] * (rounds - 1)
    # Lemma 4.1 pays for the one-way marginals out of the measurements' share; the last round has its own.
    assert parameters[-1] == pytest.approx((fixed.sigma, fixed.epsilon), rel=0.1)
    assert exact_cost(plan) <= Fraction(BUDGET)
    assert exact_cost(plan) == pytest.approx(BUDGET, rel=1e-12)


@pytest.mark.parametrize("division", [*DIVISIONS[1:3], {"tree_rounds": 4, "tree_share": 0.25}])
def test_annealed_plan_divides_evenly_what_round_0_and_a_tree_leave(
    division: dict[str, float],
) -> None:
    plan = AnnealedPlan(BUDGET, 5, **division)  # type: ignore[arg-type]
    further = play(plan, [False])[int(division.get("tree_rounds", 0)) :]
    assert plan.rounds == 5 * CENTRAL_ROUNDS
    assert further[-1] == pytest.approx(further[0], rel=1e-6)


def test_annealed_plan_halves_sigma_and_doubles_epsilon_when_settled() -> None:
    plan = AnnealedPlan(BUDGET, 5, selection_slack=2.0**-17)
    (s, e), *further = play(plan, [True, False, True])
    assert further[:3] == [(s / 2, 2 * e), (s / 2, 2 * e), (s / 4, 4 * e)]
    # Each step costs four times as much: few are left, and the last takes what there is.
    assert plan.rounds < 20
    assert exact_cost(plan) <= Fraction(BUDGET)
    assert exact_cost(plan) == pytest.approx(BUDGET, rel=1e-9)
    assert plan.spent_after(plan.rounds) == pytest.approx(BUDGET, rel=1e-9)
    last = plan.events(plan.rounds)
    shares = [rho(event) for event in last]
    assert shares[1] / sum(shares) == pytest.approx(0.9, rel=1e-6)


def _first_cost(plan: AnnealedPlan, kind: type[Event]) -> float:
    """Of an event of this kind in a first round that is not the last."""
    start = plan._events(plan._start)
    return next(rho(event) for event in start if type(event) is kind)


@given(
    st.lists(st.booleans(), min_size=1, max_size=12),
    st.sampled_from(NOISE_KINDS),
    st.floats(1e-3, 20),
    st.sampled_from(DIVISIONS),
)
def test_annealed_plan_spends_all_and_no_more(
    answers: list[bool], noise: str, budget: float, division: dict[str, float]
) -> None:
    plan = AnnealedPlan(budget, 3, noise=noise, rounds_per_column=8, **division)  # type: ignore[arg-type]
    ledger = Ledger(budget)
    rounds = len(play(plan, answers))
    for round in range(rounds + 1):
        ledger.require(plan.events(round))
        for event in plan.events(round):
            ledger.charge(round, "step", event)
    assert rounds == plan.rounds
    # Small sums of discrete Gaussians may not come in the size that is left.
    if noise != "distributed":
        assert ledger.spent == pytest.approx(budget, rel=1e-9)


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.floats(1e-3, 1))
def test_annealed_plan_ends_on_a_round_no_smaller_than_the_one_before(
    answers: list[bool], budget: float
) -> None:
    """A round is only taken when as much again is left, so that no scrap is left for the last."""
    plan = AnnealedPlan(budget, 3, rounds_per_column=8)
    rounds = len(play(plan, answers))
    before, last = (sum(rho(event) for event in plan.events(r)) for r in (rounds - 1, rounds))
    assert last >= before * (1 - 1e-8)
    # The finest there could have been is four times the one before, and twice that would be two rounds.
    assert last <= 8 * before * (1 + 1e-8)


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.sampled_from(DIVISIONS), st.data())
def test_annealed_plan_goes_on_where_its_history_ends(
    answers: list[bool], division: dict[str, float], data: st.DataObject
) -> None:
    whole = AnnealedPlan(BUDGET, 2, **division)  # type: ignore[arg-type]
    most = whole.rounds
    parameters = play(whole, answers)
    kept = data.draw(st.integers(0, len(parameters)))
    again = AnnealedPlan(BUDGET, 2, **division)  # type: ignore[arg-type]
    again.resume([sigma for sigma, _ in parameters[:kept]])
    for round in range(kept + 1, len(parameters) + 1):
        again.advance(round, settled=round > 1 and answers[min(round - 2, len(answers) - 1)])
        assert (again.sigma, again.epsilon) == parameters[round - 1]
    assert again.rounds in (whole.rounds, most)


def charges(plan: Schedule, rounds: int) -> list[float]:
    return [rho(event) for round in range(rounds + 1) for event in plan.events(round)]


@pytest.mark.parametrize(("initial", "done"), [(5, 0), (3, 0), (5, 2), (5, 6)])
def test_annealed_plan_does_not_divide_what_was_lost(initial: int, done: int) -> None:
    """Lost are a third of the budget and, in round 0, two measurements that were charged and are to come."""
    lost, answers = BUDGET / 3, [False, True, False]
    before = AnnealedPlan(BUDGET, 5)
    sigmas = [sigma for sigma, _ in play(before, answers)][:done]
    charged = [*charges(before, done)[5 - initial :], lost]
    plan = AnnealedPlan(BUDGET, 5)
    plan.write_off(charged, initial=initial, sigmas=sigmas)
    plan.resume(sigmas)
    for round in range(done + 1, 81):
        if round <= plan.rounds:
            plan.advance(round, settled=False)
    assert exact_cost(plan) <= Fraction(BUDGET) - Fraction(lost)
    assert exact_cost(plan) == pytest.approx(BUDGET - lost, rel=1e-9)
    assert plan.rounds < before.rounds or plan.rounds < 80


def test_annealed_plan_ends_where_less_than_half_a_round_is_left() -> None:
    for share, rounds in ((0.4, 0), (0.6, 1)):
        plan = AnnealedPlan(BUDGET, 5)
        start = fixed_rounds_plan(BUDGET, 80, 5).events(1)
        left = share * sum(map(rho, start))
        plan.write_off([plan.spent_after(80) - plan.spent_after(0) - left], initial=0, sigmas=[])
        assert len(play(plan, [False])) == plan.rounds == rounds
        if rounds:
            cheapest = sum(map(rho, plan.cheapest))
            assert cheapest <= sum(map(rho, plan.events(1))) < sum(map(rho, start))


def test_annealed_plan_with_nothing_lost_goes_on_as_planned() -> None:
    """Not a bit is lost to the sum of what was charged."""
    whole = AnnealedPlan(BUDGET, 5, selection_slack=2.0**-17)
    parameters = play(whole, [False, True])
    again = AnnealedPlan(BUDGET, 5, selection_slack=2.0**-17)
    sigmas = [sigma for sigma, _ in parameters[:4]]
    again.write_off(charges(whole, 4), initial=5, sigmas=sigmas)
    again.resume(sigmas)
    for round in range(5, len(parameters) + 1):
        again.advance(round, settled=True)
        assert (again.sigma, again.epsilon) == parameters[round - 1]


@given(
    st.lists(st.booleans(), min_size=1, max_size=12),
    st.sampled_from(NOISE_KINDS),
    st.floats(1e-3, 100),
    st.floats(0, 1.0),
    st.floats(0.05, 0.95),
    st.sampled_from(DIVISIONS),
)
def test_annealed_plan_stays_within_its_reach(
    answers: list[bool],
    noise: str,
    budget: float,
    lost: float,
    share: float,
    division: dict[str, float],
) -> None:
    plan = AnnealedPlan(
        budget,
        3,
        noise=noise,  # type: ignore[arg-type]
        measure_share=share,
        rounds_per_column=8,
        **division,  # type: ignore[arg-type]
    )
    low, high = plan.reach
    plan.write_off([lost * budget], initial=0, sigmas=[])
    cheapest = {type(event): rho(event) for event in plan.cheapest}
    parameters = play(plan, answers)
    assert all(low <= sigma <= high for sigma, _ in parameters)
    assert low <= plan.initial_sigma <= high
    assert all(epsilon <= plan.sharpest for _, epsilon in parameters)
    for round in range(len(parameters) + 1):
        assert all(rho(e) >= cheapest[type(e)] * (1 - 1e-12) for e in plan.events(round))
    if division:
        return
    # A last round costs half as much as another one at least.
    assert all(cost >= 0.4 * _first_cost(plan, kind) for kind, cost in cheapest.items())
    # Bounds that say nothing would be no help.
    assert (
        high
        <= 1.5
        * AnnealedPlan(budget, 3, noise=noise, measure_share=share, rounds_per_column=8).sigma
    )  # type: ignore[arg-type]
    assert low >= 0.6 * min(
        1.0, AnnealedPlan(budget, 3, rounds_per_column=8, measure_share=share).sigma
    )


def test_annealed_plan_has_the_tree_first_and_its_share_of_what_round_0_leaves() -> None:
    plan = AnnealedPlan(BUDGET, 5, initial_share=0.2, tree_rounds=4, tree_share=0.25)
    parameters = play(plan, [True])
    tree, further = parameters[:4], parameters[4:]
    assert len({*tree}) == 1
    # The model that has settled makes rounds finer after the tree alone, and those begin anew.
    assert further[1] == (further[0][0] / 2, 2 * further[0][1])
    initial = sum(map(rho, plan.events(0)))
    assert initial == pytest.approx(0.2 * 0.9 * BUDGET, rel=1e-9)
    spent = sum(rho(event) for round in range(1, 5) for event in plan.events(round))
    assert spent == pytest.approx(0.25 * (BUDGET - initial), rel=1e-9)
    assert exact_cost(plan) <= Fraction(BUDGET)
    assert exact_cost(plan) == pytest.approx(BUDGET, rel=1e-9)


@pytest.mark.parametrize("tree", [{}, {"tree_rounds": 4, "tree_share": 0.25}], ids=["", "tree"])
@pytest.mark.parametrize("lost", [0.0, 0.3])
def test_annealed_plan_that_settles_at_once_measures_each_column_once_more(
    tree: dict[str, float], lost: float
) -> None:
    def begun() -> AnnealedPlan:
        return AnnealedPlan(BUDGET, 5, initial_share=0.2, may_fall_back=True, **tree)  # type: ignore[arg-type]

    plan = begun()
    (least, most), sharpest, cheapest = plan.reach, plan.sharpest, plan.cheapest
    plan.write_off([*map(rho, plan.events(0)), lost * BUDGET], initial=5, sigmas=[])
    assert not plan.columns_alone
    found = []
    while len(found) < plan.rounds:
        plan.advance(len(found) + 1, settled=True)
        found.append((plan.sigma, plan.epsilon))
        assert plan.columns_alone
        assert least <= plan.sigma <= most
        assert plan.epsilon <= sharpest
        assert rho(plan.measurement) >= rho(cheapest[0])
        assert rho(plan.selection) >= rho(cheapest[1])
    # What was lost is missing from the last rounds.
    assert len(found) == (3 if lost else 5)
    assert len({*found[: len(found) - 1]}) == 1
    assert exact_cost(plan) + Fraction(lost * BUDGET) <= Fraction(BUDGET)
    assert exact_cost(plan) == pytest.approx((1 - lost) * BUDGET, rel=1e-9)
    # Read off the sigmas after a restart.
    again = begun()
    again.resume([sigma for sigma, _ in found[:2]])
    assert again.columns_alone
    again.advance(3, settled=True)
    assert (again.sigma, again.epsilon) == found[0]


def test_annealed_plan_of_columns_alone_stays_one_if_its_first_round_is_the_last() -> None:
    """So much was lost that the first round takes all that is left."""
    plan = AnnealedPlan(BUDGET, 2, initial_share=0.2, may_fall_back=True)
    plan.write_off([*map(rho, plan.events(0)), 0.3 * BUDGET], initial=2, sigmas=[])
    plan.advance(1, settled=True)
    assert plan.rounds == 1
    assert plan.columns_alone


def test_annealed_plan_that_may_not_fall_back_never_measures_columns_alone() -> None:
    """The papers' plans, and FLAIM's."""
    plan = AnnealedPlan(BUDGET, 5)
    plan.advance(1, settled=True)
    assert not plan.columns_alone
    assert plan.sigma == AnnealedPlan(BUDGET, 5).sigma


@pytest.mark.parametrize("share", [0.05, 0.2, 0.6])
def test_fixed_rounds_plan_gives_round_0_its_share_of_what_is_for_measuring(share: float) -> None:
    plan = fixed_rounds_plan(BUDGET, 10, 5, initial_share=share)
    costs = [sum(rho(e) for e in plan.events(r) if e != plan.selection) for r in (0, 1)]
    assert costs[0] == pytest.approx(share * 0.9 * BUDGET, rel=1e-9)
    # Rounds divide what is left as they would divide the whole.
    assert 10 * costs[1] == pytest.approx(0.9 * (BUDGET - costs[0]), rel=1e-9)
    assert 10 * rho(plan.selection) == pytest.approx(0.1 * (BUDGET - costs[0]), rel=1e-9)
    assert exact_cost(plan) <= Fraction(BUDGET)


def test_plans_refuse_shares_out_of_range() -> None:
    for share in (0.0, 1.0):
        with pytest.raises(ValueError, match="initial_share"):
            fixed_rounds_plan(BUDGET, 10, 5, initial_share=share)
    with pytest.raises(ValueError, match="initial_share"):
        fixed_rounds_plan(BUDGET, 10, 5, variant="private", initial_share=0.2)
    with pytest.raises(ValueError, match="tree_share"):
        AnnealedPlan(BUDGET, 5, tree_rounds=2, tree_share=1.0)


@pytest.mark.parametrize("variant", ["random", "naivebayes"])
def test_annealed_plan_refuses_a_variant_that_selects_nothing(variant: str) -> None:
    with pytest.raises(ValueError, match="selects nothing"):
        AnnealedPlan(BUDGET, 2, variant=variant)  # type: ignore[arg-type]


def test_annealed_plan_refuses_what_does_not_follow() -> None:
    plan = AnnealedPlan(BUDGET, 2)
    with pytest.raises(ValueError, match="round 2 cannot be decided"):
        plan.advance(2, settled=False)
    with pytest.raises(ValueError, match="not decided yet"):
        plan.events(1)
    with pytest.raises(ValueError, match="another plan"):
        plan.resume([plan.sigma, 3 * plan.sigma, plan.sigma])


DOMAIN = domain_of(3, 4, 2)
WORKLOAD = draw_workload(DOMAIN, 2, None)
CODES = random_codes(DOMAIN, 3000, 1)


class Averaging:
    """Answers with the mean of what was measured: what is measured again moves the model by less than its noise."""

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        answers = np.zeros(WORKLOAD.cells, np.uint32)
        for index in range(len(WORKLOAD.candidates)):
            cells = WORKLOAD.slice(index)
            answers[cells] = 2**32 // (cells.stop - cells.start) - 1
        for index in {m.candidate for m in measurements}:
            noisy = [m.noisy for m in measurements if m.candidate == index]
            positive = np.maximum(np.mean(noisy, axis=0), 0.01)
            answers[WORKLOAD.slice(index)] = positive / positive.sum() * (2**32 - 1)
        return Estimate(np.ones(len(WORKLOAD.candidates), bool), answers)


def annealed() -> AnnealedPlan:
    return AnnealedPlan(0.5, 3, noise="discrete-gaussian", rounds_per_column=4)


async def run(plan: AnnealedPlan, history: Sequence[Measurement] = (), seed: int = 1) -> AimResult:
    of = PlaintextBackend(
        WORKLOAD,
        plan,
        arrivals={0: (1, count_marginals(CODES, WORKLOAD))},
        ledger=Ledger(plan.rho),
        random_bytes=random_stream(seed),
    )
    result = await run_aim(WORKLOAD, plan, of, Averaging(), max_rows=10_000, history=history)
    if not history:
        assert of.ledger.spent == pytest.approx(plan.rho, rel=1e-9)
    return result


async def test_run_aim_anneals_on_an_annealed_plan() -> None:
    plan = annealed()
    result = await run(plan)
    sigmas = [m.sigma for m in result.measurements]
    assert result.rounds_done == plan.rounds < 12
    assert sigmas[:4] == [plan.events(1)[1].sigma] * 4  # type: ignore[union-attr]
    # Every measurement goes on from the one before, or is half as noisy; the last takes the rest.
    steps = [later / earlier for earlier, later in pairwise(sigmas[3:-1])]
    assert set(steps) <= {1.0, 0.5}
    assert 0.5 in steps


@pytest.mark.parametrize("kept", [2, 3, 4, 5, 6, 7])
async def test_run_aim_goes_on_with_an_annealed_plan_as_if_never_interrupted(kept: int) -> None:
    whole = await run(annealed())
    again = annealed()
    result = await run(again, whole.measurements[:kept], seed=9)
    assert result.measurements[:kept] == whole.measurements[:kept]
    # What the history decides is decided as before: the first new round has the same noise.
    assert [m.sigma for m in result.measurements[: kept + 1]] == [
        m.sigma for m in whole.measurements[: kept + 1]
    ]
    assert exact_cost(again) <= Fraction(0.5)


@pytest.mark.parametrize("noise", NOISE_KINDS)
async def test_run_aim_charges_and_samples_the_plans_kind_of_noise(noise: str) -> None:
    """Central AIM is charged what the plan says, slack included, event by event, for the noise that it adds."""
    plan = fixed_rounds_plan(0.5, 3, 3, noise=noise, selection_slack=1e-3)  # type: ignore[arg-type]
    of = PlaintextBackend.pooled(
        WORKLOAD, plan, codes=CODES, ledger=Ledger(plan.rho), random_bytes=random_stream(1)
    )
    result = await run_aim(WORKLOAD, plan, of, Averaging(), max_rows=10_000)
    planned = [event for round in range(4) for event in plan.events(round)]
    assert [entry.event for entry in of.ledger.entries] == planned
    whole = [bool((m.noisy == np.rint(m.noisy)).all()) for m in result.measurements]
    assert all(whole) == (noise != "box-muller")
