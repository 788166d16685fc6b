"""Scores in fixed point and the reference of the secure selection."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.accounting import Ledger, Plan, fixed_rounds_plan
from mechanisms.annealing import AnnealedPlan
from mechanisms.events import GRID_SLACK, ExponentialEvent
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.plaintext import PlaintextBackend
from mechanisms.scores import (
    EXPONENT_BITS,
    FLOOR_BITS,
    FRACTION_BITS,
    LOG2E_SCALED,
    MAX_CANDIDATES,
    SCORE_BITS,
    ScoreSpec,
    build_spec,
    plain_scores,
    select_index,
)
from mechanisms.workload import Workload, count_marginals, draw_workload
from tests.mechanisms.tables import domain_of, random_codes

DOMAIN = domain_of(2, 3, 4, 3)
WORKLOAD = draw_workload(DOMAIN, 2, 4, seed=1)
CANDIDATES = [i for i, weight in enumerate(WORKLOAD.weights) if weight]
NAT = 2**SCORE_BITS


def probabilities_q32(workload: Workload, seed: int) -> np.ndarray:
    answers = [
        np.random.default_rng(seed + i).dirichlet(np.ones(workload.domain.size(candidate)))
        for i, candidate in enumerate(workload.candidates)
    ]
    return np.rint(np.concatenate(answers) * (2**32 - 1)).astype(np.uint32)


def spec_of(answers: np.ndarray, *, epsilon: float = 0.05, total: int = 200) -> ScoreSpec:
    return build_spec(
        WORKLOAD, CANDIDATES, answers, total=total, sigma=20.0, epsilon=epsilon, max_rows=1000
    )


@given(st.integers(0, 10**6), st.integers(1, 400), st.floats(1e-3, 2.0))
def test_plain_scores_are_aims_scores_up_to_rounding(seed: int, rows: int, epsilon: float) -> None:
    answers = probabilities_q32(WORKLOAD, seed)
    spec = spec_of(answers, epsilon=epsilon, total=rows)
    expanded = WORKLOAD.expand(count_marginals(random_codes(DOMAIN, rows, seed), WORKLOAD))
    scores = plain_scores(WORKLOAD.gather(expanded, CANDIDATES), spec)
    delta = max(WORKLOAD.weights)
    for i, score in zip(CANDIDATES, scores, strict=True):
        cells = WORKLOAD.slice(i)
        model = answers[cells] / 2**32 * rows
        distance = np.abs(expanded[cells] - model).sum()
        noise = math.sqrt(2 / math.pi) * 20.0 * len(model)
        expected = epsilon * WORKLOAD.weights[i] * (distance - noise) / (2 * delta)
        # Answers are rounded by 2^-7 a cell, gains by 2^-22 of a nat for each row of distance.
        allowed = epsilon / 2 * len(model) * 2**-7 + (distance + noise + 1) * 2**-22
        assert abs(score / NAT - expected) <= allowed + 1e-6


@given(st.integers(0, 10**6), st.floats(1e-3, 2.0))
def test_plain_scores_move_by_half_epsilon_at_most_when_a_row_is_added(
    seed: int, epsilon: float
) -> None:
    spec = spec_of(probabilities_q32(WORKLOAD, seed), epsilon=epsilon)
    codes = random_codes(DOMAIN, 50, seed)

    def scores(rows: int) -> list[int]:
        expanded = WORKLOAD.expand(count_marginals(codes[:rows], WORKLOAD))
        return plain_scores(WORKLOAD.gather(expanded, CANDIDATES), spec)

    moved = [abs(a - b) for a, b in zip(scores(49), scores(50), strict=True)]
    assert max(moved) <= epsilon / 2 * NAT


def test_build_spec_has_known_integers() -> None:
    workload = Workload(domain_of(2, 3), (("c0", "c1"),))
    answers = np.array([2**31, 2**31, 0, 2**30, 2**32 - 1], np.uint32)
    answers = np.concatenate([answers, np.zeros(6, np.uint32)])
    spec = build_spec(
        workload, [0, 1, 2], answers, total=3, sigma=2.0, epsilon=0.5, max_rows=2**25 - 1
    )
    assert spec.candidates == (0, 1, 2)
    assert spec.sizes.tolist() == [2, 3, 6]
    assert spec.answers.tolist() == [96, 96, 0, 48, 192, *[0] * 6]
    # epsilon w / (2 Delta) 2^(28 - 6) with w = 1, 1, 2 and Delta = 2.
    assert spec.gains == (2**19, 2**19, 2**20)
    noise = math.sqrt(2 / math.pi) * 2.0 * 2**FRACTION_BITS
    assert spec.offsets == tuple(
        round(gain * noise * size) for gain, size in zip(spec.gains, (2, 3, 6), strict=True)
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"total": 0}, "total = 0"),
        ({"total": 1001}, "total = 1001"),
        ({"max_rows": 2**25}, "max_rows"),
        ({"candidates": []}, "positive weight"),
    ],
)
def test_build_spec_refuses_what_does_not_fit(change: dict[str, object], says: str) -> None:
    arguments: dict[str, object] = {
        "candidates": CANDIDATES,
        "answers_q32": probabilities_q32(WORKLOAD, 0),
        "total": 200,
        "sigma": 20.0,
        "epsilon": 0.1,
        "max_rows": 1000,
    }
    with pytest.raises(ValueError, match=says):
        build_spec(WORKLOAD, **{**arguments, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"candidates": (), "sizes": np.zeros(0, np.int64), "gains": (), "offsets": ()},
            "at least one",
        ),
        ({"gains": (1,)}, "at least one"),
        ({"sizes": np.array([3, 0])}, "one entry for each cell"),
        ({"sizes": np.array([2, 2])}, "one entry for each cell"),
        ({"answers": np.array([1, 2**31, 0], np.uint32)}, "2\\^31 or more"),
        ({"max_rows": 0}, "max_rows = 0"),
        ({"max_rows": 2**25}, "33554431 fits"),
    ],
)
def test_score_spec_is_checked_when_made(change: dict[str, object], says: str) -> None:
    arguments: dict[str, object] = {
        "candidates": (0, 1),
        "sizes": np.array([1, 2]),
        "answers": np.array([1, 2**31 - 1, 0], np.uint32),
        "gains": (1, 1),
        "offsets": (0, 0),
        "max_rows": 2**25 - 1,
    }
    ScoreSpec(**arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=says):
        ScoreSpec(**{**arguments, **change})  # type: ignore[arg-type]


def test_plain_scores_refuse_counts_of_other_candidates() -> None:
    spec = spec_of(probabilities_q32(WORKLOAD, 0))
    with pytest.raises(ValueError, match="counts of shape"):
        plain_scores(np.zeros(3, np.uint32), spec)


def share_of(scores: list[int], index: int, steps: int = 4096) -> float:
    """The share of evenly spaced 64-bit words that choose an index."""
    words = (step * (2**64 // steps) for step in range(steps))
    return sum(select_index(scores, word) == index for word in words) / steps


@pytest.mark.parametrize(
    "scores", [[0], [0, 0, 0], [3 * NAT, NAT, 2 * NAT + 5], [-(10**12), -(10**12) - NAT // 3]]
)
def test_select_index_chooses_by_the_exponential_mechanism(scores: list[int]) -> None:
    weights = np.exp([(t - max(scores)) / NAT for t in scores])
    for index, probability in enumerate(weights / weights.sum()):
        # An interval of words is hit exactly, up to one step at each end.
        assert share_of(scores, index) == pytest.approx(probability, abs=2 / 4096)


def test_select_index_never_gives_a_candidate_less_than_the_floor() -> None:
    scores = [0, 10**9 * NAT]
    # 2^-24 of the words choose the bad one, and the words just above choose the good one.
    assert select_index(scores, 0) == 0
    assert select_index(scores, 2**40 - 2**20) == 0
    assert select_index(scores, 2**40 + 2**20) == 1
    assert select_index(scores, 2**64 - 1) == 1


def test_select_index_reaches_both_ends() -> None:
    assert select_index([0] * 7, 0) == 0
    assert select_index([0] * 7, 2**64 - 1) == 6


def test_select_index_takes_the_first_sum_that_reaches_the_threshold() -> None:
    # u = (word + 1) / 2^64 is exactly one half, and the first of two equal weights reaches it.
    assert select_index([5, 5], 2**63 - 1) == 0
    assert select_index([5, 5], 2**63) == 1


def weight(below: int) -> Decimal:
    """The weight, to 100 digits, of a score so far ``below`` the best."""
    with localcontext() as context:
        context.prec = 100
        z = min(below * LOG2E_SCALED, FLOOR_BITS << EXPONENT_BITS)
        return Decimal(2) ** (-Decimal(z) / Decimal(2**EXPONENT_BITS))


def words_of(first: int, last: int, groups: int) -> tuple[int, int]:
    """Numbers of the 2^64 words that choose the first and the last of ``groups`` candidates.

    Both score so much below all between them, which are alike.
    """
    with localcontext() as context:
        context.prec = 100
        a, b = weight(first), weight(last)
        total = a + b + (groups - 2)
        return int(2**64 * a / total), 2**64 - int(2**64 * (a + (groups - 2)) / total)


def test_words_of_counts_the_words_of_select_index() -> None:
    rng = np.random.default_rng(2)
    for groups in (3, 4, 50):
        first, last = (int(low) for low in rng.integers(0, 20 * NAT, 2))
        scores = [-first, *[0] * (groups - 2), -last]
        of_first, of_last = words_of(first, last, groups)
        assert [select_index(scores, w) == 0 for w in (of_first - 1, of_first)] == [True, False]
        end = 2**64 - of_last
        assert [select_index(scores, w) == groups - 1 for w in (end - 1, end)] == [False, True]


def spread(groups: int, moved: int, low: int) -> Fraction:
    """The ratio of the first's and the last's ratios of probabilities over two tables, exactly, on the grid.

    From one table to the other the first's score rises by ``moved`` and the last's falls by as much.
    """
    one, other = words_of(low, low - moved, groups), words_of(low - moved, low, groups)
    return Fraction(other[0] * one[1], one[0] * other[1])


def logarithm(ratio: Fraction) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()


@pytest.mark.parametrize(("groups", "epsilon"), [(3, 2.0**-24), (161, 2.0**-16), (2**16, 0.02)])
def test_select_index_costs_more_than_its_epsilon_and_no_more_than_is_charged(
    groups: int, epsilon: float
) -> None:
    # A row moves a score by epsilon / 2: down to just above the floor, of which few words are left.
    moved = math.floor(epsilon / 2 * NAT)
    floor = math.floor(FLOOR_BITS * math.log(2) * NAT)
    found = [logarithm(spread(groups, moved, floor - step)) for step in range(400)]
    ideal = logarithm(Fraction(weight(floor - moved) / weight(floor)) ** 2)
    assert ideal <= Decimal(epsilon)
    # Exact probabilities on the grid: above the epsilon of the mechanism, below what is charged for it.
    assert max(found) > Decimal(epsilon)
    assert max(found) < Decimal(epsilon) + Decimal(GRID_SLACK)


def test_grid_slack_covers_the_coarsest_grid() -> None:
    # 2^64 words, weights of 2^-24 at least of the best among the most candidates there may be: four factors.
    eta = Fraction(2**FLOOR_BITS * MAX_CANDIDATES, 2**64)
    four = -4 * Decimal(1 - float(eta)).ln()
    assert four < Decimal(GRID_SLACK) < 4 * four


def test_every_schedule_charges_the_grid_of_the_choices_made_with_it() -> None:
    plans = [
        fixed_rounds_plan(0.1, 4, 3),
        AnnealedPlan(0.1, 3),
        *(
            FlaimSettings.preset(variant, rho=0.1, annealed=annealed).schedule(3)
            for variant, annealed in product(("naive", "private"), (False, True))
        ),
    ]
    for plan in plans:
        assert isinstance(plan.selection, ExponentialEvent)
        assert plan.selection.epsilon >= plan.epsilon + GRID_SLACK


async def test_backend_refuses_a_plan_that_does_not_charge_the_grid() -> None:
    exact = fixed_rounds_plan(0.1, 4, 4)
    free = Plan(0.1, 4, 4, sigma=exact.sigma, epsilon=exact.epsilon, selection_slack=0.0)
    codes = random_codes(DOMAIN, 50, 3)
    spec = spec_of(probabilities_q32(WORKLOAD, 0), epsilon=exact.epsilon)
    for plan, refused in ((exact, False), (free, True)):
        ledger = Ledger(0.1)
        backend = PlaintextBackend.pooled(
            WORKLOAD, plan, codes=codes, ledger=ledger, random_bytes=lambda n: bytes(n)
        )
        await backend.begin_round(0)
        if refused:
            with pytest.raises(ValueError, match="grid"):
                await backend.select(spec, plan.epsilon)
            assert not ledger.entries
        else:
            await backend.select(spec, plan.epsilon)


def test_select_index_refuses_more_candidates_than_the_slack_is_for() -> None:
    with pytest.raises(ValueError, match="at most 65536"):
        select_index([0] * (MAX_CANDIDATES + 1), 0)
    assert select_index([0] * MAX_CANDIDATES, 2**64 - 1) == MAX_CANDIDATES - 1


def test_log2e_is_rounded_down() -> None:
    assert LOG2E_SCALED == 1512775
    assert LOG2E_SCALED / 2**20 < math.log2(math.e) < (LOG2E_SCALED + 1) / 2**20


@pytest.mark.parametrize(("scores", "word"), [([], 0), ([1], -1), ([1], 2**64)])
def test_select_index_refuses_impossible_input(scores: list[int], word: int) -> None:
    with pytest.raises(ValueError, match="64 random bits"):
        select_index(scores, word)
