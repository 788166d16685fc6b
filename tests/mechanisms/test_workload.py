"""Workloads: closure, weights, layout, counting, and the linear expansion."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.errors import WorkloadError
from mechanisms.workload import Workload, count_marginals, draw_workload
from tests.mechanisms.tables import domain_of, random_codes

# Issue figures: the FLAIM authors' Adult, Magic and Credit domains under workload seed 123.
ADULT = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)


@pytest.mark.parametrize(
    ("sizes", "candidates", "cells"),
    [
        (ADULT, 161, 2_870_490),
        ((32,) * 10 + (2,), None, 1_683_394),
        ((32,) * 29 + (2,), None, 1_937_442),
    ],
)
def test_draw_workload_gives_published_cells_when_seed_is_123(
    sizes: tuple[int, ...], candidates: int | None, cells: int
) -> None:
    workload = draw_workload(domain_of(*sizes))
    assert len(workload.queries) == 64
    assert workload.cells == cells
    assert candidates in (None, len(workload.candidates))


def test_draw_workload_takes_all_when_count_is_none_or_large() -> None:
    domain = domain_of(2, 3, 4, 5)
    everything = draw_workload(domain, 2, None)
    assert everything.queries == tuple(itertools.combinations(domain.names, 2))
    assert draw_workload(domain, 2, 6) == everything
    assert len(draw_workload(domain, 2, 5).queries) == 5


@pytest.mark.parametrize(("degree", "count"), [(0, 1), (5, 1), (2, 0)])
def test_draw_workload_refuses_impossible_numbers(degree: int, count: int) -> None:
    with pytest.raises(WorkloadError):
        draw_workload(domain_of(2, 2, 2, 2), degree, count)


@pytest.mark.parametrize(
    ("columns", "degree", "count", "words"),
    [
        (41, 5, None, "has 749,398 queries, each of 5 of 41 columns; expected at most 65,536 sets"),
        (300, 3, 100_000, "has 100,000 queries, each of 3 of 300 columns"),
        (60, 30, 1, "has too many sets of columns to choose from; expected at most 65,536"),
        (41, 4, None, r"fewer queries \(workload.count\), or of fewer columns"),
        (300, 20, 1, r"draws from 8e\+30 sets of 20 of 300 columns; expected fewer than 2\^63"),
    ],
)
def test_draw_workload_refuses_too_many_candidates_before_it_lists_them(
    columns: int, degree: int, count: int | None, words: str
) -> None:
    with pytest.raises(WorkloadError, match=words):
        draw_workload(domain_of(*(2,) * columns), degree, count)


def test_draw_workload_draws_few_queries_out_of_very_many() -> None:
    """Without a list of the 75,287,520 combinations; which they are is the combinations' order."""
    domain = domain_of(*(2,) * 100)
    drawn = draw_workload(domain, 5, 3, seed=1)
    numbers = np.random.default_rng(1).choice(math.comb(100, 5), 3, replace=False)
    position = {name: i for i, name in enumerate(domain.names)}
    ranks = {
        sum(
            math.comb(100 - skipped - 1, 5 - taken - 1)
            for taken, name in enumerate(query)
            for skipped in range(position[query[taken - 1]] + 1 if taken else 0, position[name])
        )
        for query in drawn.queries
    }
    assert ranks == {int(number) for number in numbers}


@pytest.mark.parametrize("degree", [1, 2, 3, 6])
def test_draw_workload_takes_the_combinations_that_the_seed_names(degree: int) -> None:
    domain = domain_of(*(2,) * 7)
    everything = list(itertools.combinations(domain.names, degree))
    count = len(everything) - 1
    numbers = np.random.default_rng(5).choice(len(everything), count, replace=False)
    drawn = draw_workload(domain, degree, count, seed=5)
    assert set(drawn.queries) == {everything[number] for number in numbers}


def test_workload_closes_queries_downward() -> None:
    workload = Workload(domain_of(2, 3, 4, 5), (("c2", "c0"), ("c0",), ("c2", "c1")))
    assert workload.queries == (("c0",), ("c0", "c2"), ("c1", "c2"))
    assert workload.candidates == (
        ("c0",),
        ("c1",),
        ("c2",),
        ("c3",),
        ("c0", "c2"),
        ("c1", "c2"),
    )
    # w_q sums |q & r| over the three queries; no query has c3.
    assert workload.weights == (2, 1, 2, 0, 4, 3)
    # c3 has to be counted, too: AIM starts from every single column.
    assert workload.maximal == (("c3",), ("c0", "c2"), ("c1", "c2"))
    assert workload.offsets == (0, 2, 5, 9, 14, 22, 34)
    assert (workload.cells, workload.maximal_cells) == (34, 25)
    assert [workload.candidates[i] for i in workload.one_way] == [
        ("c0",),
        ("c1",),
        ("c2",),
        ("c3",),
    ]


@pytest.mark.parametrize(
    ("queries", "says"),
    [
        ((), "no queries"),
        (((),), "query 1 is empty"),
        ((("c0",), ("c9",)), "query 2 names 'c9'"),
        ((("c0", "c0"),), "names a column twice"),
        ((("c0", "c1"), ("c1", "c0")), "given twice"),
    ],
)
def test_workload_refuses_queries_that_do_not_fit(
    queries: tuple[tuple[str, ...], ...], says: str
) -> None:
    with pytest.raises(WorkloadError, match=says):
        Workload(domain_of(2, 3), queries)


def test_workload_refuses_marginals_that_are_too_large() -> None:
    with pytest.raises(WorkloadError, match="limit"):
        Workload(domain_of(2**11, 2**10, 2**10), (("c0", "c1", "c2"),))


def test_digest_changes_when_queries_or_domain_do() -> None:
    digests = {
        Workload(domain_of(2, 3), (("c0", "c1"),)).digest(),
        Workload(domain_of(2, 3), (("c0",), ("c1",))).digest(),
        Workload(domain_of(2, 4), (("c0", "c1"),)).digest(),
    }
    assert len(digests) == 3
    same = Workload(domain_of(2, 3), (("c1",), ("c0",))).digest()
    assert same == Workload(domain_of(2, 3), (("c0",), ("c1",))).digest()


sizes_and_degree = st.lists(st.integers(1, 5), min_size=1, max_size=5).flatmap(
    lambda sizes: st.tuples(st.just(sizes), st.integers(1, len(sizes)))
)


@given(sizes_and_degree, st.integers(0, 40), st.integers(0, 2**32))
def test_expand_answers_all_candidates_when_counts_are_a_tables(
    shape: tuple[list[int], int], rows: int, seed: int
) -> None:
    sizes, degree = shape
    workload = draw_workload(domain_of(*sizes), degree, 4, seed=seed)
    codes = random_codes(workload.domain, rows, seed)
    expanded = workload.expand(count_marginals(codes, workload))
    assert expanded.dtype == np.uint32
    for i, candidate in enumerate(workload.candidates):
        expected = np.zeros(workload.domain.sizes(candidate), np.uint32)
        columns = [workload.domain.index(name) for name in candidate]
        np.add.at(expected, tuple(codes[:, columns].T), 1)
        assert (expanded[workload.slice(i)] == expected.reshape(-1)).all()


@given(sizes_and_degree, st.integers(0, 2**32))
def test_expand_is_linear_modulo_2_32_when_vectors_are_shares(
    shape: tuple[list[int], int], seed: int
) -> None:
    sizes, degree = shape
    workload = draw_workload(domain_of(*sizes), degree, 4, seed=seed)
    x = np.random.default_rng(seed).integers(0, 2**32, (3, workload.maximal_cells), np.uint32)
    parts = [workload.expand(part) for part in x]
    assert parts[0].dtype == np.uint32
    together = workload.expand(x.sum(axis=0, dtype=np.uint32))
    assert (sum(parts[1:], start=parts[0]) == together).all()


def test_expand_refuses_another_length() -> None:
    with pytest.raises(ValueError, match="count vector"):
        Workload(domain_of(2, 3), (("c0",),)).expand(np.zeros(6, np.uint32))


def test_gather_puts_candidates_one_after_the_other() -> None:
    workload = Workload(domain_of(2, 3), (("c0", "c1"),))
    expanded = np.arange(workload.cells, dtype=np.uint32)
    assert workload.gather(expanded, [2, 0]).tolist() == [5, 6, 7, 8, 9, 10, 0, 1]


def test_count_marginals_refuses_codes_outside_the_domain() -> None:
    workload = Workload(domain_of(2, 3), (("c0", "c1"),))
    for codes in ([[2, 0]], [[0, -1]], [[0]]):
        with pytest.raises(ValueError, match="code"):
            count_marginals(np.array(codes, np.int32), workload)


def test_a_query_with_a_target_counts_four_times() -> None:
    domain = domain_of(2, 3, 4)
    *_, c = domain.names
    plain, aimed = (draw_workload(domain, 2, None, targets=targets) for targets in ((), (c,)))
    assert plain.weights == (2, 2, 2, 4, 4, 4)
    # Of a: its query with b once and that with c four times; of c: both four times.
    assert aimed.weights == (5, 5, 8, 10, 13, 13)
    assert aimed.candidates == plain.candidates
    assert aimed.digest() != plain.digest()
    with pytest.raises(WorkloadError, match="target 'd' is no column; the columns are"):
        draw_workload(domain, 2, None, targets=("d",))
