"""MWEM: its budget, its choices, what it learns, and the noise it adds; events of Laplace noise."""

import asyncio
import math

import numpy as np
import pytest

from bench.papers.mwem.loop import MwemPlan, MwemResult, PlainMwem, mwem_plan, run_mwem
from mechanisms.accounting import Ledger, epsilon_from_rho, rho, rho_from_epsilon_delta
from mechanisms.domain import Categorical, Domain
from mechanisms.errors import BudgetExceeded, WorkloadError
from mechanisms.events import DiscreteLaplaceEvent, event_from_dict, event_to_dict
from mechanisms.exact_noise import discrete_laplace_noise
from mechanisms.metrics import table_answers, workload_error
from mechanisms.replacement import rho_of_replacing
from mechanisms.workload import Workload


def small_workload(size: int = 3, columns: str = "abcd") -> Workload:
    domain = Domain(tuple(Categorical(name, tuple(map(str, range(size)))) for name in columns))
    pairs = [(a, b) for a in columns for b in columns if a < b]
    return Workload(domain, tuple(pairs))


def rows(count: int = 3000) -> np.ndarray:
    rng = np.random.default_rng(1)
    first = rng.integers(3, size=count)
    return np.stack([first, first, rng.integers(3, size=count), 2 - first], axis=1).astype(np.int32)


def run(plan: MwemPlan, *, budget: float | None = None, seed: int = 0) -> MwemResult:
    workload, ledger = small_workload(), Ledger(plan.rho if budget is None else budget)
    random_bytes = np.random.default_rng(seed).bytes
    backend = PlainMwem(workload, plan, codes=rows(), ledger=ledger, random_bytes=random_bytes)
    result = asyncio.run(run_mwem(workload, plan, backend, max_rows=10_000))
    assert ledger.spent == pytest.approx(plan.rho)
    return result


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("rounds", [1, 10, 50])
def test_plan_spends_the_budget_and_no_more(epsilon: float, rounds: int) -> None:
    budget = rho_from_epsilon_delta(epsilon, 1e-5)
    plan = mwem_plan(budget, rounds)
    assert 0.999 * budget < plan.rho <= budget
    assert epsilon_from_rho(plan.rho, 1e-5) <= epsilon
    # Choices have what the measurements, rounded to a whole scale, leave: no less than their epsilon.
    assert plan.epsilon >= 0.99 / plan.scale


def test_mwem_learns_a_table() -> None:
    workload, result = small_workload(), run(mwem_plan(0.5, 12))
    answers = result.model.answers_q32(workload.candidates).astype(float)
    real = table_answers(workload, rows())
    # A uniform table is off by 0.89.
    assert workload_error(workload, real, answers) < 0.2
    # Columns a, b and d determine one another: their pairs are what is worst answered at first.
    pairs = {workload.candidates[i] for i in result.chosen}
    assert {("a", "b"), ("a", "d"), ("b", "d")} & pairs
    assert abs(result.total - 3000) < 100


def test_more_budget_is_better() -> None:
    workload, real = small_workload(), table_answers(small_workload(), rows())

    def error(budget: float) -> float:
        models = [run(mwem_plan(budget, 6), seed=seed).model for seed in range(3)]
        answers = [model.answers_q32(workload.candidates).astype(float) for model in models]
        return float(np.mean([workload_error(workload, real, a) for a in answers]))

    assert error(5.0) < error(0.0005)


def test_mwem_stops_where_the_ledger_refuses() -> None:
    plan = mwem_plan(0.5, 5)
    with pytest.raises(BudgetExceeded):
        run(plan, budget=plan.rho * 0.9)


def test_mwem_refuses_a_large_domain() -> None:
    workload = small_workload(50)
    backend = PlainMwem(
        small_workload(),
        mwem_plan(1.0, 1),
        codes=rows(),
        ledger=Ledger(1.0),
        random_bytes=np.random.default_rng(0).bytes,
    )
    with pytest.raises(WorkloadError, match="6250000 cells"):
        asyncio.run(run_mwem(workload, mwem_plan(1.0, 1), backend, max_rows=10))


def test_a_laplace_event_costs_half_its_epsilon_squared() -> None:
    event = DiscreteLaplaceEvent(4.0)
    assert rho(event) == pytest.approx(1 / 32)
    assert event_from_dict(event_to_dict(event)) == event
    # A replaced row leaves a cell and enters another: twice as far in L1.
    assert rho_of_replacing([event]) == pytest.approx(4 / 32)


@pytest.mark.parametrize("scale", [1, 7])
def test_laplace_noise_has_its_moments(scale: int) -> None:
    """Mean and variance of 40,000 samples, each within five deviations: false alarms are rarer than 10^-6."""
    z = discrete_laplace_noise(np.random.default_rng(2).bytes, scale, 40_000)
    q = math.exp(-1 / scale)
    variance = 2 * q / (1 - q) ** 2
    assert abs(z.mean()) < 5 * math.sqrt(variance / z.size)
    # A Laplace distribution's kurtosis is 6, a discrete one's with q near 0 larger by 1 / variance.
    assert abs(z.var() - variance) < 5 * variance * math.sqrt((5 + 1 / variance) / z.size)
    with pytest.raises(ValueError, match="scale = 0"):
        discrete_laplace_noise(np.random.default_rng(0).bytes, 0, 1)
