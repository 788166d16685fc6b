"""docs/mathematics.md: each figure of its examples is what the code computes, to the digits that the page has.

A figure stands before a comment with its name. So a figure that is changed, added or left out fails here, as does code
that computes another one.
"""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mechanisms.accounting import (
    Plan,
    fixed_rounds_plan,
    rho,
    rho_from_epsilon_delta,
)
from mechanisms.annealing import CENTRAL_ROUNDS, AnnealedPlan
from mechanisms.columns import Categorical
from mechanisms.descent import FIRST_STEP, SHORTEN, Target, evaluate, mirror_descent
from mechanisms.domain import Domain
from mechanisms.events import DiscreteGaussianEvent, ExponentialEvent, measurement_event
from mechanisms.gaussian_privacy import GaussianAccountant, gaussian_budget, gaussian_delta
from mechanisms.inference import JunctionTree
from mechanisms.remaining_error import remaining_error
from mechanisms.scores import ScoreSpec, plain_scores, score_gain, select_index
from mechanisms.units import row_budget
from parties.mpc.planning.budget import INITIAL_SHARE, TREE_SHARE
from protocols import base
from protocols.context import Context
from protocols.discrete import Sampler
from protocols.ring import R32
from protocols.select_spec import SELECTION_SLACK
from protocols.shares import Share, product
from tests.docs.guides import DOCS, ROOT
from tests.protocols.local import run_parties

PAGE = (DOCS / "mathematics.md").read_text(encoding="utf-8")
SHOWN = {name: text for text, name in re.findall(r"([\d.,]+)<!-- figure ([\w-]+) -->", PAGE)}
EPSILON, DELTA, COLUMNS, ROUNDS, ROWS, SIGMA = 1.0, 1e-5, 14, 10, 1000, 20.0
CHOICE, BESIDE = 0.05, 1 / 8


def budget() -> float:
    return rho_from_epsilon_delta(EPSILON, DELTA)


def gaussian() -> float:
    return gaussian_budget(EPSILON, DELTA)


def plan(rows: int = 1) -> Plan:
    return fixed_rounds_plan(row_budget(budget(), rows), ROUNDS, COLUMNS, noise="discrete-gaussian")


def annealed() -> AnnealedPlan:
    return AnnealedPlan(
        budget(),
        COLUMNS,
        noise="discrete-gaussian",
        initial_share=INITIAL_SHARE,
        tree_rounds=COLUMNS - 1,
        tree_share=TREE_SHARE,
    )


def course(schedule: AnnealedPlan, *, settles: bool) -> list[float]:
    """Deviations of all rounds, if the model settles after each of them, or never."""
    sigmas: list[float] = []
    while len(sigmas) < schedule.rounds:
        schedule.advance(len(sigmas) + 1, settled=settles and bool(sigmas))
        if len(sigmas) < schedule.rounds:
            sigmas.append(schedule.sigma)
    return sigmas


def favourite() -> float:
    """Share of the 64-bit words that choose the first of two candidates, by bisection."""
    scores = plain_scores(
        np.array([600, 540], np.uint32),
        ScoreSpec(
            (0, 1),
            np.array([1, 1], np.int64),
            np.zeros(2, np.uint32),
            (score_gain(CHOICE, 1, 1),) * 2,
            (0, 0),
            ROWS,
        ),
    )
    low, high = 0, 1 << 64
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if select_index(scores, middle) == 0 else (low, middle)
    return high / 2**64


def sampler() -> Sampler:
    return Sampler.of(SIGMA)


def terms() -> list[int]:
    """The three servers' terms of 5 x 3, before they are masked."""
    x, y = (R32.encode(np.array(parts)) for parts in ([10, 20, -25], [1, 4, -2]))
    found = []
    for pid in range(3):
        left, right = (Share(R32, pid, value[[pid]], value[[(pid + 1) % 3]]) for value in (x, y))
        without: Any = SimpleNamespace(verifier=None)
        (term,) = product(without, left, right).masked(R32.zeros((1,)))
        found.append(int(term))
    return found


def multiplied() -> int:
    """The same product by three parties, reshared and opened."""

    async def program(ctx: Context) -> int:
        x, y = (R32.encode(np.array(parts)) for parts in ([10, 20, -25], [1, 4, -2]))
        own, after = ctx.pid, (ctx.pid + 1) % 3
        x_sh, y_sh = (Share(R32, own, value[[own]], value[[after]]) for value in (x, y))
        return int((await base.open_value(ctx, await base.multiply(ctx, x_sh, y_sh), "z"))[0])

    (value,) = {*run_parties(program).results}
    return value


WEIGHT = (ROWS / SIGMA) ** 2
CLIQUE = ("a",)


def tree() -> JunctionTree:
    return JunctionTree(Domain((Categorical("a", ("x", "y")),)), [CLIQUE])


@cache
def step(factor: float) -> tuple[float, float, float]:
    """One step of ``factor`` / w from the uniform model: first marginal, fall of the loss, promised fall."""
    targets = {CLIQUE: Target(np.array([0.8, 0.2]), WEIGHT)}
    here = evaluate(tree(), targets, {CLIQUE: np.zeros(2)})
    there = evaluate(tree(), targets, {CLIQUE: -factor / WEIGHT * here.gradient[CLIQUE]})
    promised = float(here.gradient[CLIQUE] @ (here.answers[CLIQUE] - there.answers[CLIQUE]))
    return float(there.answers[CLIQUE][0]), here.loss - there.loss, promised


def error(*counts: float) -> float:
    return remaining_error(np.array(counts), SIGMA) * ROWS


FIGURES: dict[str, Callable[[], float]] = {
    "measurement": lambda: rho(DiscreteGaussianEvent(SIGMA)),
    "zero": lambda: float(sampler().table.probabilities()[0]),
    "largest": lambda: sampler().largest,
    "distance": lambda: math.floor(-math.log2(sampler().distance)),
    "parts": lambda: rho(measurement_event("distributed", 1.0)),
    "choice": lambda: rho(ExponentialEvent(CHOICE)),
    "favourite": favourite,
    "slack": lambda: -math.log2(SELECTION_SLACK),
    "rho": budget,
    "row-rho": lambda: row_budget(budget(), 3),
    "gaussian-budget": gaussian,
    "gaussian-gain": lambda: gaussian() / budget(),
    "gaussian-noise": lambda: 100 * (1 - math.sqrt(budget() / gaussian())),
    "gaussian-measurement": lambda: GaussianAccountant(BESIDE).cost(DiscreteGaussianEvent(SIGMA)),
    "gaussian-choice": lambda: (
        GaussianAccountant(BESIDE).cost(ExponentialEvent(CHOICE)) / rho(ExponentialEvent(CHOICE))
    ),
    "sigma": lambda: plan().sigma,
    "epsilon": lambda: plan().epsilon,
    "person-sigma": lambda: plan(3).sigma,
    "thousand": lambda: len(
        course(AnnealedPlan(budget(), 1, rounds_per_column=1000), settles=True)
    ),
    "first-sigma": lambda: annealed().initial_sigma,
    "tree-rounds": lambda: annealed().tree_rounds,
    "tree-sigma": lambda: course(annealed(), settles=True)[0],
    "next-sigma": lambda: course(annealed(), settles=True)[COLUMNS - 1],
    "last-sigma": lambda: course(annealed(), settles=True)[-1],
    "settled-rounds": lambda: len(course(annealed(), settles=True)),
    "unsettled-rounds": lambda: len(course(annealed(), settles=False)),
    "raw-error": lambda: math.sqrt(2 / math.pi) * SIGMA * 100,
    "spread-error": lambda: error(*[10.0] * 100),
    "peak-error": lambda: error(1000.0, *[0.0] * 99),
    "z0": lambda: terms()[0],
    "z1": lambda: terms()[1],
    "z2": lambda: terms()[2],
    "product": multiplied,
    "weight": lambda: WEIGHT,
    "first-step": lambda: step(FIRST_STEP)[0],
    "first-fall": lambda: step(FIRST_STEP)[1],
    "first-promise": lambda: step(FIRST_STEP)[2],
    "second-step": lambda: step(FIRST_STEP * SHORTEN)[0],
    "second-fall": lambda: step(FIRST_STEP * SHORTEN)[1],
    "second-promise": lambda: step(FIRST_STEP * SHORTEN)[2],
}


def rounded(value: float, like: Decimal) -> Decimal:
    """The value to as many decimals as the figure has."""
    return Decimal(repr(float(value))).quantize(like)


def test_page_has_the_figures_that_are_computed() -> None:
    assert {*SHOWN} == {*FIGURES}
    assert len(SHOWN) == PAGE.count("<!-- figure ") == len(FIGURES)


@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_what_the_code_computes(name: str) -> None:
    shown = Decimal(SHOWN[name].replace(",", ""))
    assert rounded(FIGURES[name](), shown) == shown


def test_modules_of_the_page_exist_and_have_the_names_beside_them() -> None:
    named = {*re.findall(r"`((?:mechanisms|protocols|parties)/[\w/]+(?:\.py)?)`", PAGE)}
    assert len(named) > 15
    assert [path for path in named if not (ROOT / path).exists()] == []
    text = "".join((ROOT / path).read_text("utf-8") for path in named if path.endswith(".py"))
    text += (ROOT / "protocols" / "select_spec.py").read_text("utf-8")
    names = re.findall(r"`(\w+)`", PAGE)
    assert {"delta_left", "masked", "fixed_rounds_plan"} <= {*names}
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_figures_are_found_with_another_last_digit() -> None:
    """The control: a page whose last digit is off by one fails."""
    for name, text in SHOWN.items():
        shown = Decimal(text.replace(",", ""))
        off = shown + Decimal(1).scaleb(int(shown.as_tuple().exponent))
        assert rounded(FIGURES[name](), off) != off


def test_gaussian_curve_is_the_formula_of_the_page() -> None:
    mu = math.sqrt(2 * gaussian())

    def phi(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    delta = phi(mu / 2 - EPSILON / mu) - math.exp(EPSILON) * phi(-mu / 2 - EPSILON / mu)
    assert math.isclose(delta, DELTA, rel_tol=1e-3)
    assert math.isclose(gaussian_delta(gaussian(), EPSILON), delta, rel_tol=1e-3)


def test_lemma_of_the_page_gives_the_plan() -> None:
    share = Fraction(9, 10) * Fraction(budget())
    assert math.isclose(plan().sigma, math.sqrt((ROUNDS + COLUMNS) / (2 * share)), rel_tol=1e-9)
    choosing = math.sqrt(8 * 0.1 * budget() / ROUNDS)
    assert math.isclose(plan().epsilon, choosing, rel_tol=1e-4)
    assert annealed().rounds == CENTRAL_ROUNDS * COLUMNS


def test_second_step_of_the_example_counts() -> None:
    fitted, marginals = mirror_descent(
        tree(),
        {CLIQUE: Target(np.array([0.8, 0.2]), WEIGHT)},
        {CLIQUE: np.zeros(2)},
        iterations=2,
        on_iteration=lambda _done, _of: None,
    )
    assert np.allclose(fitted[CLIQUE], [0.6, -0.6])
    assert math.isclose(float(marginals[0][0]), step(FIRST_STEP * SHORTEN)[0])
