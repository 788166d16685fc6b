"""Traces of the FLAIM authors' public code: numbers that it computes from the same input.

The numbers were printed by their code (revision 3e698da of its repository, counts in 64 bits) on the small input that
stands beside them; nothing here is drawn.
"""

import math

import numpy as np
import pytest

from bench.methods import authors_fit
from bench.methods.authors_fit import AuthorsFederatedEstimator, authors_descent
from bench.methods.flaim import flaim_settings
from bench.papers.utility.grid import as_theirs
from mechanisms.descent import Descent, Target, merge, mirror_descent
from mechanisms.domain import Clique
from mechanisms.events import GRID_SLACK
from mechanisms.flaim_answers import candidate_totals
from mechanisms.flaim_client import FlaimClient, true_answers
from mechanisms.flaim_messages import Brief
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.model import Model
from mechanisms.pgm import fit_targets
from mechanisms.scores import SCORE_BITS
from mechanisms.workload import Workload
from tests.mechanisms.tables import domain_of, random_stream

DOMAIN = domain_of(2, 3, 2)
A, B, C = DOMAIN.names
ROWS = 1000

Counted = tuple[Clique, list[float], float]
FIRST: list[Counted] = [
    ((A,), [640, 360], 30),
    ((B,), [-20, 700, 320], 30),
    ((C,), [550, 450], 30),
]
LATER: list[Counted] = [
    *FIRST,
    ((A, B), [10, 480, 140, -30, 220, 180], 40),
    ((B, C), [5, -15, 420, 260, 150, 180], 60),
    ((B,), [15, 665, 320], 20),
]
# Iterations of a call that goes on from the one before, its measurements, and their answers to (A, B) and (B, C).
CALLS = (
    (
        5,
        FIRST,
        (0.166664, 0.166672, 0.166668, 0.166661, 0.166669, 0.166665),
        (0.166663, 0.166662, 0.166671, 0.16667, 0.166667, 0.166666),
    ),
    (
        50,
        FIRST,
        (0.005786, 0.438835, 0.195379, 0.003255, 0.246845, 0.109901),
        (0.004972, 0.004068, 0.377124, 0.308556, 0.167904, 0.137376),
    ),
    (
        50,
        LATER,
        (0.004107, 0.478671, 0.151107, 0.000767, 0.197607, 0.16774),
        (0.00264, 0.002234, 0.406642, 0.269637, 0.142826, 0.176021),
    ),
    (
        500,
        LATER,
        (0.004823, 0.478919, 0.150201, 0.0, 0.197387, 0.168669),
        (0.003367, 0.001456, 0.41106, 0.265247, 0.137348, 0.181523),
    ),
)


def largest_difference(descent: Descent) -> float:
    """Largest difference from their answers after any of the calls."""
    start, worst = {}, 0.0
    for iterations, counted, *answers in CALLS:
        targets = merge(
            (q, Target(np.array(counts).reshape(DOMAIN.sizes(q)) / ROWS, (ROWS / noise) ** 2))
            for q, counts, noise in counted
        )
        model, start = fit_targets(
            DOMAIN, targets, iterations=iterations, start=start, descent=descent
        )
        for ours, theirs in zip(model.answers([(A, B), (B, C)]), answers, strict=True):
            worst = max(worst, float(np.abs(ours.reshape(-1) - theirs).max()))
    return worst


def test_a_fit_is_theirs_step_by_step() -> None:
    assert largest_difference(authors_descent(ROWS)) < 1e-6


def test_a_fit_by_other_steps_is_not_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert largest_difference(mirror_descent) > 0.01
    monkeypatch.setattr(authors_fit, "ENOUGH", 0.5 * 10**6)
    assert largest_difference(authors_descent(ROWS)) > 0.01


TABLE = [(0, 1, 0)] * 9 + [(0, 1, 1)] * 4 + [(1, 2, 0)] * 5 + [(1, 0, 1)] * 2
OTHERS = [(0, 1, 0)] * 20 + [(1, 1, 1)] * 30 + [(0, 2, 1)] * 25 + [(1, 0, 0)] * 5
WORKLOAD = Workload(DOMAIN, ((A, B), (B, C)))
CANDIDATES = [(A,), (B,), (C,), (A, B), (B, C)]
MODEL = Model(
    DOMAIN,
    ((A, B), (B, C)),
    (-1, 0),
    (
        np.array([[0.01, 0.45, 0.14], [0.04, 0.2, 0.16]]),
        np.array([[0.02, 0.03], [0.4, 0.25], [0.13, 0.17]]),
    ),
)
ONE_WAY = [[61, 44], [8, 70, 27], [50, 55]]
# Their exponents, epsilon 0.7 and sigma 2, of CANDIDATES; private filters the columns out.
EXPONENTS = {
    "naive": (-0.139013, -0.650372, 0.327654, 1.548885, 0.008885),
    "oracle": (-0.23284, -0.558519, -0.559506, -3.075558, -3.075558),
    "private": (None, None, None, 0.449442, -0.862224),
}


@pytest.mark.parametrize("method", EXPONENTS)
def test_a_clients_exponents_are_theirs(method: str) -> None:
    settings = FlaimSettings.preset(method, rho=5.0, sizes="public")
    codes = np.array(TABLE, np.int32)
    pooled = true_answers(WORKLOAD, np.array(TABLE + OTHERS, np.int32))
    client = FlaimClient(
        codes,
        WORKLOAD,
        settings,
        random_bytes=random_stream(0),
        oracle=pooled if method == "oracle" else None,
    )
    everything = np.ones(len(WORKLOAD.candidates), np.bool_)
    one_way = np.concatenate([np.array(counts) / sum(counts) for counts in ONE_WAY])
    brief = Brief(
        WORKLOAD, 1, 0.7, 2.0, 2.0, 0, everything, MODEL, one_way if method == "private" else None
    )
    asked = [
        WORKLOAD.candidates.index(q)
        for q, exponent in zip(CANDIDATES, EXPONENTS[method], strict=True)
        if exponent is not None
    ]
    totals = candidate_totals(WORKLOAD, brief.answers)
    found = [score / 2**SCORE_BITS for score in client._scores(brief, asked, brief.answers, totals)]
    expected = [exponent for exponent in EXPONENTS[method] if exponent is not None]
    # Distances are cut to 1/64 of a row.
    assert found == pytest.approx(expected, abs=0.7 / 60)


# Their deviation of a sum and epsilon of a choice: ten rounds, 14 columns, epsilon 1, delta 1e-5.
NOISE = {
    "naive": (20.888963347872906, 0.04944216435200997),
    "oracle": (20.888963347872906, 0.04944216435200997),
    "private": (52.22240836968226, 0.04944216435200997),
}


@pytest.mark.parametrize("method", NOISE)
def test_deviation_and_epsilon_of_a_choice_are_theirs(method: str) -> None:
    schedule = flaim_settings(as_theirs("adult", method, 1.0)).schedule(14)
    sigma, epsilon = NOISE[method]
    assert schedule.sigma == pytest.approx(sigma, rel=1e-6)
    assert schedule.epsilon + GRID_SLACK == pytest.approx(epsilon, rel=1e-9)


def test_a_chosen_query_weighs_by_its_own_noisy_sum_as_theirs() -> None:
    """Counts 5, 15, -2 at deviation 3: theirs stand for shares of 18 rows at a deviation of 3 / 18."""
    estimator = AuthorsFederatedEstimator(WORKLOAD, rows=ROWS, factor=None, max_model_mb=1.0)
    declared = 20
    target = estimator._of_own_sum(Target(np.array([5, 15, -2]) / declared, (declared / 3) ** 2))
    assert target.mean == pytest.approx(np.array([5, 15, -2]) / 18)
    assert isinstance(target.weight, float)
    assert 1 / math.sqrt(target.weight) == pytest.approx(3 / 18)
