"""The division of a budget: alike for both schedules, and exact enough for any epsilon that delta allows."""

import math
import re
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.accounting import ZCDP, Ledger, Schedule, delta_from_rho
from mechanisms.annealing import AnnealedPlan
from mechanisms.composition import delta_of
from mechanisms.errors import BudgetExceeded
from mechanisms.events import NOISE_KINDS, Event, GaussianEvent
from mechanisms.scores import AIM, RULES
from mechanisms.units import row_budget
from parties.config import Config
from parties.foundation.errors import ConfigError
from parties.mpc.planning.budget import (
    _divided,
    distaim_release,
    make_plan,
    noise_kind,
    sampling_distance,
    security_bits,
    unit_budget,
)
from parties.session.study import Study
from protocols.discrete import LARGEST_SECURITY, SECURITY_BITS
from protocols.measure import release_distance
from protocols.select_spec import selection_distance
from tests.parties import support

NOISES = ["discrete-gaussian", "distributed", "box-muller"]


def make_config(changes: Mapping[str, object]) -> Config:
    """By the rule of the papers, unless ``changes`` say otherwise: all measurements alike."""
    return support.make_config({"run.rule": AIM, **changes})


def paid_for(plan: Schedule) -> tuple[int, int]:
    """Numbers of the cheapest measurements, and of the cheapest selections, that a ledger of the plan's budget pays."""
    measurement, selection = (_times(plan, event) for event in plan.cheapest)
    return measurement, selection


def _times(plan: Schedule, event: Event) -> int:
    ledger, low, high = Ledger(plan.rho, accountant=plan.accountant), 0, 1 << 14
    while high - low > 1:
        middle = (low + high) // 2
        try:
            ledger.require([event] * middle)
        except BudgetExceeded:
            high = middle
        else:
            low = middle
    assert high < 1 << 14
    return low


def rounded(config: Config, plan: Schedule) -> float:
    """The distance of a marginal's noise from the accountant's, for all rows of a unit."""
    run, rows = config.run, config.rows_of_unit
    largest = row_budget(plan.accountant.budget(run.epsilon, run.delta), rows)
    return rows * plan.accountant.distance(noise_kind(config), largest)


@pytest.mark.parametrize("noise", ["discrete-gaussian", "distributed"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 20.0, 30.0, 40.0, 55.0])
def test_security_bits_leave_nearly_all_of_delta(epsilon: float, noise: str) -> None:
    config = make_config({"run.epsilon": epsilon, "run.delta": 1e-9, "run.noise": noise})
    workload = config.build_workload()
    bits, plan = security_bits(Study(config, workload)), make_plan(Study(config, workload))
    marginals, choices = paid_for(plan)
    # 3 columns and 4 rounds; 0.9 of the budget is the measurements'. Distributed noise cannot be less from here on.
    assert marginals == (9 if (epsilon, noise) == (55.0, "distributed") else 7)
    assert choices >= 4
    distance = marginals * release_distance(noise, bits) + choices * selection_distance(
        len(workload.candidates)
    )
    taken = (1 + math.exp(epsilon)) * distance
    assert taken <= 1e-9 / 1000
    whole = distance + marginals * rounded(config, plan)
    assert whole == pytest.approx(sampling_distance(Study(config, workload)), rel=1e-12)
    assert (1 + math.exp(epsilon)) * whole <= 1e-9 / 100
    assert SECURITY_BITS <= bits <= LARGEST_SECURITY
    if bits > SECURITY_BITS:
        assert taken * 2**8 > 1e-9 / 4096


@pytest.mark.parametrize("noise", NOISES)
def test_sampling_distance_grows_with_the_rows_of_a_person(noise: str) -> None:
    """m rows move up to m cells of a marginal, and each has its own sample, or its own pair of them."""
    found = {}
    for rows in (1, 5, 100):
        unit = {"run.unit": "person", "run.rows_per_person": rows, "run.noise": noise}
        config = make_config({**unit, "run.epsilon": 2.0, "run.accountant": "zcdp"})
        assert config.rows_of_unit == rows
        workload = config.build_workload()
        assert security_bits(Study(config, workload)) == SECURITY_BITS
        distance = sampling_distance(Study(config, workload))
        assert distaim_release(Study(config, workload)).distance == distance
        found[rows] = distance
    assert found[1] == pytest.approx(7 * release_distance(noise), abs=0)
    assert found[5] == pytest.approx(5 * found[1], abs=0)
    assert found[100] == pytest.approx(100 * found[1], abs=0)


def test_more_rows_of_a_person_take_finer_samples_or_are_refused() -> None:
    unit = {"run.unit": "person", "run.rows_per_person": 1000, "run.delta": 1e-9}
    config = make_config({**unit, "run.epsilon": 12.0, "run.noise": "discrete-gaussian"})
    workload = config.build_workload()
    assert security_bits(Study(config, workload)) > SECURITY_BITS
    assert (1 + math.exp(12.0)) * sampling_distance(Study(config, workload)) < 1e-9 / 1000
    config = make_config({**unit, "run.epsilon": 12.0, "run.noise": "box-muller"})
    with pytest.raises(ConfigError, match=r"a run\.delta of more than"):
        make_plan(Study(config, workload))


@settings(max_examples=20, deadline=None)
@given(
    noise=st.sampled_from(NOISES),
    schedule=st.sampled_from(["fixed", "annealed"]),
    rule=st.sampled_from(RULES),
    rows=st.sampled_from([1, 2, 5, 100, 1000]),
    rounds=st.integers(1, 60),
    share=st.sampled_from([0.1, 0.5, 0.8, 0.9, 0.99]),
    epsilon=st.floats(0.2, 60.0),
    delta=st.sampled_from([1e-3, 1e-5, 1e-9, 1e-20, 1e-35]),
)
def test_what_is_left_of_delta_covers_all_that_a_ledger_can_pay_for(
    noise: str,
    schedule: str,
    rule: str,
    rows: int,
    rounds: int,
    share: float,
    epsilon: float,
    delta: float,
) -> None:
    changes: dict[str, object] = {
        "run.noise": noise,
        "run.schedule": schedule,
        "run.rule": rule,
        "run.rounds": rounds if schedule == "fixed" else None,
        "run.unit": "person",
        "run.rows_per_person": rows,
        "run.measure_share": share,
        "run.epsilon": epsilon,
        "run.delta": delta,
    }
    config = make_config(changes)
    workload = config.build_workload()
    try:
        bits, distance = (
            security_bits(Study(config, workload)),
            sampling_distance(Study(config, workload)),
        )
        budget = unit_budget(Study(config, workload))
        plan = _divided(Study(config, workload))
    except ValueError:
        with pytest.raises(ConfigError):
            make_plan(Study(config, workload))
        return
    marginals, choices = paid_for(plan)
    # Of the cheapest it is more than of all of a plan; of dear ones for single columns there are fewer.
    least = rounds if schedule == "fixed" else 1
    assert marginals >= len(workload.one_way) + least or plan.initial_sigma != plan.sigma
    taken = marginals * rows * release_distance(noise, bits) + choices * selection_distance(
        len(workload.candidates)
    )
    taken += marginals * rounded(config, plan)
    assert taken <= distance * (1 + 1e-12)
    spent = delta_from_rho(budget, epsilon)
    if plan.accountant != ZCDP:
        spent = delta_of([GaussianEvent(1.0, math.sqrt(2 * budget))], epsilon)
    assert spent + (1 + math.exp(epsilon)) * taken <= delta * (1 + 1e-9)


def test_security_bits_are_64_unless_more_are_needed() -> None:
    for noise in NOISE_KINDS:
        config = make_config({"run.noise": noise})
        assert security_bits(Study.of(config)) == SECURITY_BITS


def test_make_plan_refuses_an_epsilon_that_no_sampler_covers() -> None:
    """And does not trip over a number that no double holds."""
    for epsilon in (100.0, 1e4):
        config = make_config({"run.epsilon": epsilon, "run.delta": 1e-9})
        with pytest.raises(ConfigError, match="does not cover a statistical distance"):
            make_plan(Study.of(config))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"run.epsilon": 0.001}, 'a larger run.epsilon or run.noise = "box-muller"'),
        (
            {"run.epsilon": 0.012, "run.rounds": 1000},
            'a larger run.epsilon or fewer run.rounds or run.noise = "box-muller"',
        ),
        (
            {"run.epsilon": 0.001, "run.rounds": None, "run.schedule": "annealed"},
            'a larger run.epsilon or run.noise = "box-muller"',
        ),
        ({"run.epsilon": 1e-12, "run.noise": "box-muller"}, "a larger run.epsilon or fewer"),
        ({"run.epsilon": 60.0, "run.rounds": 1}, "a smaller run.epsilon or more run.rounds"),
        ({"run.epsilon": 80.0}, "a smaller run.epsilon or a larger run.delta"),
        ({"run.delta": 1e-300}, "a run.delta of more than 5.1e-37"),
        ({"run.delta": 5e-324}, "a run.delta of more than 5.1e-37"),
    ],
)
def test_make_plan_says_which_key_to_change(changes: dict[str, object], expected: str) -> None:
    config = make_config(changes)
    with pytest.raises(ConfigError, match=re.escape(f"; expected {expected}")) as caught:
        make_plan(Study.of(config))
    assert str(caught.value).startswith("trial.toml: run: cannot be carried out")


def test_make_plan_takes_what_it_advises() -> None:
    rounds: dict[str, object] = {"run.epsilon": 0.012, "run.rounds": 1}
    noise: dict[str, object] = {"run.epsilon": 0.001, "run.noise": "box-muller"}
    for changes in (rounds, noise, {"run.delta": 5.2e-37}):
        config = make_config(changes)
        make_plan(Study.of(config))


def test_make_plan_follows_the_schedule() -> None:
    config = make_config({"run.schedule": "annealed", "run.rounds": None})
    workload = config.build_workload()
    plan = make_plan(Study(config, workload))
    assert isinstance(plan, AnnealedPlan)
    assert plan.rounds == config.run.rounds == 16 * len(workload.one_way)
    # Nothing decided yet, as servers compare their plans when they meet.
    assert plan.sigma == make_plan(Study(config, workload)).sigma
