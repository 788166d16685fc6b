"""Accuracy beside a yardstick: estimates are those of the report, and a trusted party is never worse than the run."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.domain import Categorical, Domain, Integer
from mechanisms.remaining_error import remaining_error
from mechanisms.workload import Workload
from parties.report.accuracy import _epsilons, _Pairs, report_figures
from parties.report.attacker import AttackerBound, attacker_of, attackers_of, budget_of
from parties.report.model import PairErrors
from tests.parties.test_report import example

DOMAIN = Domain((Categorical("sex", ("f", "m")), Integer("age", 0, 9), Integer("few", 0, 2)))
WORKLOAD = Workload(DOMAIN, (("sex", "age"), ("sex", "few"), ("age", "few")))
CODES = np.stack([np.arange(3000) % n for n in (2, 10, 3)], axis=1).astype(np.int32)
NOISE = {("sex", "age"): 9.0, ("sex", "few"): 4.0}
ROWS = 6012
"""Real rows of the example, of which the table's are half."""
EXPECTED = sum(
    remaining_error(
        np.bincount(CODES[:, 0] * n + CODES[:, i], minlength=2 * n) * (ROWS / 3000.0), sigma
    )
    / 4
    for i, n, sigma in ((1, 10, 9.0), (2, 3, 4.0))
)


def document(independent: float = 0.2, **privacy: Any) -> dict[str, Any]:
    """A report of a run that measured two of three pairs with NOISE."""
    pairs = [{"columns": list(pair), "independent": independent} for pair in NOISE]
    marginals = [{"columns": list(pair), "noise": NOISE.get(pair)} for pair in WORKLOAD.candidates]
    shuffling = {"expected": EXPECTED, "independent": independent, "each": pairs}
    quality = {"confidence": 0.95, "marginals": marginals, "shuffling": shuffling}
    return {**example().to_dict(), "quality": quality, **privacy}


def by_epsilon(report: dict[str, Any]) -> tuple[PairErrors, ...]:
    found = report_figures(report, WORKLOAD, CODES).accuracy
    assert found is not None
    assert found.run in found.by_epsilon
    return found.by_epsilon


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.integers(50, 5000),
    st.floats(0.5, 200.0),
)
def test_errors_of_all_pairs_at_once_are_those_of_each(
    sizes: list[int], rows: int, sigma: float
) -> None:
    counts = [np.full(size, rows / size) for size in sizes]
    noise = np.array([sigma * (i + 1) for i in range(len(sizes))])
    pairs = _Pairs(np.concatenate(counts), np.array(sizes), noise, np.zeros(len(sizes)))
    each = [remaining_error(of, s) / 2 for of, s in zip(counts, noise.tolist(), strict=True)]
    assert pairs.errors(noise).tolist() == pytest.approx(each, rel=0.01, abs=1e-4)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0.0, 0.5), min_size=1, max_size=6), st.floats(1e-4, 10.0))
def test_a_trusted_party_gains_from_budget_and_is_never_worse_than_shuffled_columns(
    independent: list[float], rho: float
) -> None:
    size = len(independent)
    pairs = _Pairs(
        np.full(10 * size, 100.0), np.full(size, 10), np.full(size, 10.0), np.array(independent)
    )
    least = pairs.trusted(rho)
    assert 0 <= least <= np.mean(independent) + 1e-12
    assert pairs.trusted(100 * rho) <= least + 1e-12
    # The same budget in equal parts is one of the splits that were tried.
    even = pairs.errors(np.full(size, (size / (2 * rho)) ** 0.5))
    if min(independent) > 0:
        assert least <= np.minimum(even, independent).mean() + 1e-12


def test_more_epsilon_leaves_less_error_and_the_run_is_on_its_own_curve() -> None:
    found = by_epsilon(document())
    epsilons = [one.epsilon for one in found]
    assert epsilons == [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
    for kind in ("table", "trusted"):
        errors = [getattr(one, kind) for one in found]
        assert errors == sorted(errors, reverse=True)
    assert all(one.trusted <= one.table for one in found)
    assert {one.independent for one in found} == {0.2}
    assert found[3].table == EXPECTED
    neighbours = found[2].table, found[4].table
    assert found[3].table == pytest.approx(np.sqrt(neighbours[0] * neighbours[1]), rel=0.1)


def test_there_is_no_yardstick_without_a_guarantee_or_a_measured_pair() -> None:
    for report in (
        {**document(), "private": False},
        {**document(), "quality": {"confidence": 0.95, "marginals": []}},
        example().to_dict(),
    ):
        assert report_figures(report, WORKLOAD, CODES).accuracy is None


@given(st.floats(1e-3, 1e3))
def test_epsilons_are_round_but_for_the_runs_own(epsilon: float) -> None:
    found = _epsilons(epsilon)
    assert epsilon in found
    assert found == sorted(found)
    assert all(epsilon / 10.01 <= e <= epsilon * 10.01 for e in found)
    assert all(f"{e:e}"[0] in "125" for e in found if e != epsilon)
    assert 6 <= len(found) <= 8


def test_the_bound_of_another_epsilon_is_of_its_whole_budget() -> None:
    report = document()
    bounds = attackers_of(report, [0.5, 1.0, 2.0])
    assert bounds[1] == attacker_of(report)
    found = [bound.found_at_most(0.01) for bound in bounds]
    assert found == sorted(found)
    gaussian = AttackerBound("gaussian", 0.036, 1.0, 1e-5)
    assert budget_of(gaussian, 1.0) == pytest.approx(0.036, rel=0.01)
