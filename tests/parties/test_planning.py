"""The division of a budget: alike for both schedules, and exact enough for any epsilon that delta allows."""

import math
import re

import pytest

from mechanisms.annealing import AnnealedPlan
from mechanisms.events import NOISE_KINDS
from parties.distaim.planning import make_plan, sampling_distance, security_bits
from parties.errors import ConfigError
from protocols.discrete import LARGEST_SECURITY, SECURITY_BITS
from protocols.measure import release_distance
from protocols.select_spec import SELECTION_DISTANCE
from tests.parties.support import make_config

# Marginals: 3 columns, and one in each of 4 rounds. A row changes one count of each.
RELEASED = 3 + 4


@pytest.mark.parametrize("noise", ["discrete-gaussian", "distributed"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 20.0, 30.0, 40.0, 55.0])
def test_security_bits_leave_nearly_all_of_delta(epsilon: float, noise: str) -> None:
    config = make_config({"run.epsilon": epsilon, "run.delta": 1e-9, "run.noise": noise})
    bits = security_bits(config, config.build_workload())
    distance = RELEASED * release_distance(noise, bits) + 4 * SELECTION_DISTANCE
    taken = (1 + math.exp(epsilon)) * distance
    assert taken <= 1e-9 / 1000
    assert taken == (1 + math.exp(epsilon)) * sampling_distance(config, config.build_workload())
    assert SECURITY_BITS <= bits <= LARGEST_SECURITY
    if bits > SECURITY_BITS:
        assert taken * 2**8 > 1e-9 / 4096
    make_plan(config, config.build_workload())


def test_security_bits_are_64_unless_more_are_needed() -> None:
    for noise in NOISE_KINDS:
        config = make_config({"run.noise": noise})
        assert security_bits(config, config.build_workload()) == SECURITY_BITS


def test_make_plan_refuses_an_epsilon_that_no_sampler_covers() -> None:
    """And does not trip over a number that no double holds."""
    for epsilon in (100.0, 1e4):
        config = make_config({"run.epsilon": epsilon, "run.delta": 1e-9})
        with pytest.raises(ConfigError, match="does not cover a statistical distance"):
            make_plan(config, config.build_workload())


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
        ({"run.delta": 1e-300}, "a run.delta of more than 1.2e-37"),
        ({"run.delta": 5e-324}, "a run.delta of more than 1.2e-37"),
    ],
)
def test_make_plan_says_which_key_to_change(changes: dict[str, object], expected: str) -> None:
    config = make_config(changes)
    with pytest.raises(ConfigError, match=re.escape(f"; expected {expected}")) as caught:
        make_plan(config, config.build_workload())
    assert str(caught.value).startswith("trial.toml: run: cannot be carried out")


def test_make_plan_takes_what_it_advises() -> None:
    rounds: dict[str, object] = {"run.epsilon": 0.012, "run.rounds": 1}
    noise: dict[str, object] = {"run.epsilon": 0.001, "run.noise": "box-muller"}
    for changes in (rounds, noise, {"run.delta": 1.3e-37}):
        config = make_config(changes)
        make_plan(config, config.build_workload())


def test_make_plan_follows_the_schedule() -> None:
    config = make_config({"run.schedule": "annealed", "run.rounds": None})
    workload = config.build_workload()
    plan = make_plan(config, workload)
    assert isinstance(plan, AnnealedPlan)
    assert plan.rounds == config.run.rounds == 16 * len(workload.one_way)
    # Nothing decided yet, as servers compare their plans when they meet.
    assert plan.sigma == make_plan(config, workload).sigma
