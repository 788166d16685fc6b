"""Candidates of a round: while the tree grows pairs that join, unless noise would drown them."""

import itertools

import numpy as np
import pytest

from mechanisms.annealing import AnnealedPlan
from mechanisms.choosing import (
    choice_spec,
    connected,
    drowned,
    joining,
    selectable,
    tree_rounds,
)
from mechanisms.errors import EstimationError
from mechanisms.scores import AIM, REMAINING_ERROR, ScoreSpec
from mechanisms.workload import Workload, draw_workload
from tests.mechanisms.tables import domain_of

PAIRS = draw_workload(domain_of(3, 4, 2, 5), 2, None)
NAMES = PAIRS.domain.names
EVERY = np.ones(len(PAIRS.candidates), bool)
FIRST = PAIRS.candidates.index(NAMES[:2])
EVEN = np.concatenate(
    [
        np.full(n, 2**32 // n - 1, np.uint32)
        for n in (PAIRS.domain.size(q) for q in PAIRS.candidates)
    ]
)


def spec(*, round: int, measured: tuple[int, ...] = (), total: int = 5000) -> ScoreSpec:
    plan = AnnealedPlan(0.5, 4, tree_rounds=3, tree_share=0.5)
    return choice_spec(
        PAIRS,
        plan,
        EVEN,
        EVERY,
        measured=measured,
        round=round,
        total=total,
        max_rows=10_000,
        rule=REMAINING_ERROR,
    )


def test_choice_spec_has_pairs_that_join_while_the_tree_grows() -> None:
    pairs = [i for i, q in enumerate(PAIRS.candidates) if len(q) == 2]
    assert list(spec(round=1).candidates) == pairs
    assert list(spec(round=2, measured=(0, FIRST)).candidates) == [i for i in pairs if i != FIRST]
    # One of two pairs that would join a third column to both is left once the other is measured.
    second = PAIRS.candidates.index((NAMES[1], NAMES[2]))
    closing = PAIRS.candidates.index((NAMES[0], NAMES[2]))
    assert closing not in spec(round=3, measured=(FIRST, second)).candidates


def test_choice_spec_has_all_candidates_after_the_tree_or_where_none_joins() -> None:
    every = selectable(PAIRS, EVERY)
    assert list(spec(round=4).candidates) == every
    joined = tuple(PAIRS.candidates.index(pair) for pair in itertools.pairwise(NAMES))
    assert list(spec(round=3, measured=joined).candidates) == every


def test_choice_spec_has_single_columns_where_noise_would_drown_every_pair() -> None:
    """Of 6 rows, in the tree and after it; a control: of 5,000 there are pairs alone in the tree."""
    for round in (1, 4):
        found = spec(round=round, total=6).candidates
        assert found
        assert all(len(PAIRS.candidates[i]) == 1 for i in found)
    assert all(len(PAIRS.candidates[i]) == 2 for i in spec(round=1).candidates)


def test_choice_spec_has_everything_where_noise_would_drown_all() -> None:
    """Of 2 rows: what is chosen is chance."""
    assert list(spec(round=4, total=2).candidates) == selectable(PAIRS, EVERY)


def test_choice_spec_of_columns_alone_has_the_one_measured_least_often() -> None:
    plan = AnnealedPlan(
        0.5, 4, initial_share=0.2, tree_rounds=3, tree_share=0.5, may_fall_back=True
    )
    plan.advance(1, settled=True)
    measured = [*PAIRS.one_way]
    for round in range(1, 6):
        found = choice_spec(
            PAIRS,
            plan,
            EVEN,
            EVERY,
            measured=measured,
            round=round,
            total=5000,
            max_rows=10_000,
            rule=REMAINING_ERROR,
        )
        measured += found.candidates
    assert measured == [*PAIRS.one_way, *PAIRS.one_way, PAIRS.one_way[0]]


def test_drowned_compares_what_noise_leaves_of_pairs_with_half_of_the_most() -> None:
    """Even counts far above the noise: sqrt(2/pi) sigma a cell is left, compared with the rows."""
    cells = [n for q, n in zip(PAIRS.candidates, sizes(PAIRS), strict=True) if len(q) == 2]
    rows = 100_000
    limit = rows * len(cells) / (np.sqrt(2 / np.pi) * sum(cells))
    for factor, expected in ((0.5, False), (0.9, False), (3.0, True)):
        assert drowned(PAIRS, EVEN, EVERY, total=rows, sigma=limit * factor) == expected
    # Of no pairs nothing is left to drown.
    alone = Workload(PAIRS.domain, tuple((name,) for name in NAMES))
    few = np.ones(len(alone.candidates), bool)
    answers = EVEN[: alone.cells]
    assert not drowned(alone, answers, few, total=1, sigma=1e6)


def sizes(workload: Workload) -> list[int]:
    return [workload.domain.size(q) for q in workload.candidates]


def test_selectable_refuses_to_choose_from_nothing() -> None:
    with pytest.raises(EstimationError, match="max_model_mb"):
        selectable(PAIRS, ~EVERY)
    apart = Workload(PAIRS.domain, (NAMES[:2],))
    # A column that no query contains is measured in round 0 alone.
    assert selectable(apart, np.ones(len(apart.candidates), bool)) == [0, 1, 4]


def test_joining_pairs_have_their_columns_in_different_parts() -> None:
    assert joining(PAIRS, range(len(PAIRS.candidates)), []) == [
        i for i, q in enumerate(PAIRS.candidates) if len(q) == 2
    ]
    parts = connected(PAIRS, [FIRST])
    assert parts[NAMES[0]] == parts[NAMES[1]] != parts[NAMES[2]] != parts[NAMES[3]]
    assert FIRST not in joining(PAIRS, range(len(PAIRS.candidates)), [FIRST])


def test_tree_rounds_are_those_that_join_all_that_pairs_can() -> None:
    assert tree_rounds(PAIRS) == 3
    assert tree_rounds(Workload(PAIRS.domain, (NAMES[:2], NAMES[2:]))) == 2
    assert tree_rounds(Workload(PAIRS.domain, (NAMES[:1],))) == 0
    # Triples have pairs in them.
    assert tree_rounds(Workload(PAIRS.domain, (NAMES[:3],))) == 2


def test_choice_spec_by_the_papers_rule_is_theirs_without_a_tree() -> None:
    plan = AnnealedPlan(0.5, 4)
    of = choice_spec(
        PAIRS, plan, EVEN, EVERY, measured=(), round=1, total=5000, max_rows=10_000, rule=AIM
    )
    assert list(of.candidates) == selectable(PAIRS, EVERY)
