"""Answers of a client's model: by its connected parts, and after it was brought to a measurement."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mechanisms.descent import Target
from mechanisms.domain import Clique
from mechanisms.flaim_answers import allowed_answers, candidate_totals, moved_answers
from mechanisms.model import Model
from mechanisms.pgm import fit_targets, tilt
from mechanisms.workload import draw_workload
from tests.mechanisms.tables import domain_of

DOMAIN = domain_of(3, 4, 2, 5, 3, 2)
WORKLOAD = draw_workload(DOMAIN, 3, None)
PAIRS = list(itertools.combinations(DOMAIN.names, 2))
SIZES = len(WORKLOAD.candidates)

cliques_of_models = st.lists(st.sampled_from(PAIRS), unique=True, max_size=4)
masks = st.lists(st.booleans(), min_size=SIZES, max_size=SIZES).map(lambda m: np.array(m, np.bool_))


def target(rng: np.random.Generator, clique: Clique) -> Target:
    sizes = DOMAIN.sizes(clique)
    return Target(rng.dirichlet(np.ones(int(np.prod(sizes)))).reshape(sizes), 1.0)


def model_of(cliques: list[Clique], rng: np.random.Generator) -> Model:
    every = [*cliques, *((name,) for name in DOMAIN.names)]
    return fit_targets(DOMAIN, {clique: target(rng, clique) for clique in every}, iterations=5)[0]


def plain(model: Model, allowed: NDArray[np.bool_]) -> NDArray[np.uint32]:
    answers = model.answers_q32(WORKLOAD.candidates)
    for i in np.flatnonzero(~allowed):
        answers[WORKLOAD.slice(i)] = 0
    return answers


def assert_same(found: NDArray[np.uint32], expected: NDArray[np.uint32]) -> None:
    """Up to the last bit of a double, which may turn a rounding: one unit of 2^-32."""
    assert found.dtype == np.uint32
    assert np.abs(found.astype(np.int64) - expected.astype(np.int64)).max(initial=0) <= 1


@settings(max_examples=40, deadline=None)
@given(cliques_of_models, masks, st.integers(0, 2**32))
def test_allowed_answers_are_the_models(
    cliques: list[Clique], allowed: NDArray[np.bool_], seed: int
) -> None:
    model = model_of(cliques, np.random.default_rng(seed))
    assert_same(allowed_answers(WORKLOAD, model, allowed), plain(model, allowed))


@settings(max_examples=40, deadline=None)
@given(cliques_of_models, st.integers(0, SIZES - 1), masks, st.integers(0, 2**32))
def test_moved_answers_are_those_of_the_moved_model(
    cliques: list[Clique], number: int, allowed: NDArray[np.bool_], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    model, clique = model_of(cliques, rng), WORKLOAD.candidates[number]
    moved = tilt(model, clique, target(rng, clique), iterations=20)
    answers = allowed_answers(WORKLOAD, model, allowed)
    before = (answers, candidate_totals(WORKLOAD, answers))
    found, totals = moved_answers(WORKLOAD, before, moved, clique, allowed)
    assert_same(found, plain(moved, allowed))
    assert (totals == candidate_totals(WORKLOAD, found)).all()
    # The next choice of another client starts from the answers before.
    assert (answers == allowed_answers(WORKLOAD, model, allowed)).all()


def test_moved_answers_leave_alone_what_is_not_connected() -> None:
    rng = np.random.default_rng(1)
    model = model_of([("c0", "c1"), ("c2", "c3")], rng)
    everything = np.ones(SIZES, np.bool_)
    answers = allowed_answers(WORKLOAD, model, everything)
    marked = np.full_like(answers, 7)
    moved = tilt(model, ("c1", "c4"), target(rng, ("c1", "c4")), iterations=20)
    totals = candidate_totals(WORKLOAD, answers)
    found, _ = moved_answers(WORKLOAD, (marked, totals), moved, ("c1", "c4"), everything)
    for i, clique in enumerate(WORKLOAD.candidates):
        kept = set(clique) <= {"c2", "c3", "c5"}
        assert (found[WORKLOAD.slice(i)] == 7).all() == kept, clique


def test_allowed_answers_cap_certainty_below_two_to_the_32() -> None:
    sure = [np.eye(1, n).reshape(n) for n in DOMAIN.shape]
    model = Model(DOMAIN, tuple((name,) for name in DOMAIN.names), (-1,) * 6, tuple(sure))
    answers = allowed_answers(WORKLOAD, model, np.ones(SIZES, np.bool_))
    assert set(answers.tolist()) == {0, 2**32 - 1}
    assert candidate_totals(WORKLOAD, answers).tolist() == pytest.approx([2**32 - 1] * SIZES)
