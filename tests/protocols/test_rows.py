"""Counting on shares against counting in the clear, whatever the rows, and what a server may not learn of it."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import rows as counting
from protocols.context import Context
from protocols.products import NumpyProducts
from protocols.row_plan import CountPlan, plan_counting
from protocols.rows import SharedRows, shared_rows
from protocols.shares import Share
from tests.protocols.local import Outcome, reconstruct, run_parties

PRODUCTS = NumpyProducts(1)


def counted(
    sizes: Sequence[int], queries: Sequence[tuple[int, ...]], codes: np.ndarray, present: np.ndarray
) -> np.ndarray:
    """The control, in the clear: rows that are present and whose codes are all categories of columns in some query."""
    used = sorted({column for query in queries for column in query})
    valid = present & (codes[:, used] < np.array(sizes)[used]).all(axis=1)
    marginals = []
    for query in queries:
        shape = [sizes[column] for column in query]
        cells = np.ravel_multi_index(tuple(codes[valid][:, list(query)].T), shape)
        marginals.append(np.bincount(cells, minlength=int(np.prod(shape))))
    return np.concatenate(marginals)


def bodies_of(raw: np.ndarray, seed: int) -> list[np.ndarray]:
    """Three random components of a body."""
    generator = np.random.default_rng(seed)
    first, second = generator.integers(0, 256, (2, raw.size), np.uint8)
    return [first, second, raw ^ first ^ second]


def count(plan: CountPlan, owners: Sequence[tuple[int, np.ndarray]], seed: int = 5) -> Outcome:
    """Count the bodies of owners with these capacities."""
    parts = [(capacity, bodies_of(raw, seed + i)) for i, (capacity, raw) in enumerate(owners)]
    rows = sum(capacity for capacity, _ in owners)

    async def program(ctx: Context) -> Share:
        held = [SharedRows(n, c[ctx.pid], c[ctx.next_pid]) for n, c in parts]
        shared = shared_rows(ctx.pid, plan.layout, held)
        return await counting.count_rows(ctx, shared, rows, plan, products=PRODUCTS)

    return run_parties(program)


SIZES = (2, 1, 128, 1000, 3, 5)
QUERIES = ((0, 2), (1,), (2, 4), (0, 4, 5), (3,), (5, 1, 2))
TRICKY = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 100, 128, 1000])


@given(
    st.lists(TRICKY, min_size=1, max_size=4),
    st.lists(st.integers(0, 40), max_size=4),
    st.integers(0, 2**32 - 1),
)
def test_count_rows_equals_plain_counts_of_any_bits(
    sizes: list[int], capacities: list[int], seed: int
) -> None:
    """Bodies are random bits: codes that are categories or none, rows that are there or not."""
    generator = np.random.default_rng(seed)
    queries = tuple(
        tuple(int(c) for c in generator.permutation(len(sizes))[: generator.integers(1, 4)])
        for _ in range(3)
    )
    plan = plan_counting(tuple(sizes), queries)
    bodies = [
        (n, generator.integers(0, 256, plan.layout.body_size(n), np.uint8)) for n in capacities
    ]
    unpacked = [plan.layout.unpack(raw, n) for n, raw in bodies]
    codes = np.concatenate([np.zeros((0, len(sizes)), np.int64), *(codes for codes, _ in unpacked)])
    present = np.concatenate([np.zeros(0, bool), *(present for _, present in unpacked)])
    outcome = count(plan, bodies, seed % 1000)
    assert np.array_equal(reconstruct(outcome.results), counted(sizes, queries, codes, present))
    assert not any(party.opened_values for party in outcome.parties)


@pytest.mark.parametrize(("rows", "capacity"), [(0, 0), (0, 5), (64, 64), (200, 200), (150, 200)])
def test_count_rows_counts_tables_of_every_kind_of_column(rows: int, capacity: int) -> None:
    plan = plan_counting(SIZES, QUERIES)
    codes = np.random.default_rng(rows).integers(0, SIZES, (rows, 6)).astype(np.int32)
    outcome = count(plan, [(capacity, plan.layout.pack(codes, capacity))])
    expected = counted(SIZES, QUERIES, codes, np.ones(rows, bool))
    assert np.array_equal(reconstruct(outcome.results), expected)
    assert expected.sum() == rows * len(QUERIES)


def test_count_rows_counts_a_cell_that_all_rows_of_many_segments_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More rows than one segment has, in several blocks each: counts beyond what twice them holds in 16 bits."""
    plan = plan_counting((2, 3), ((0, 1),))
    codes = np.ones((70_000, 2), np.int32)
    outcome = count(plan, [(70_000, plan.layout.pack(codes, 70_000))])
    assert reconstruct(outcome.results).tolist() == [0, 0, 0, 0, 70_000, 0]
