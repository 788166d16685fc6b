"""Plans of counting: factors that hold every digit once, shared between queries, the same for everybody."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from protocols import costs, row_factors, row_plan
from protocols.row_factors import Split, choose_splits, entries, splits_of
from protocols.row_plan import SEGMENT_ROWS, CountPlan, Leaf, plan_counting

# Adult's published domain, and 64 of its triples.
ADULT = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
TRIPLES = tuple(itertools.combinations(range(14), 3))[::5][:64]
SIZES = st.lists(st.sampled_from([1, 2, 3, 4, 7, 8, 9, 100, 128, 1000]), min_size=1, max_size=8)


def one_hots(plan: CountPlan, code: list[int]) -> list[np.ndarray]:
    """The control: all nodes' one-hots of one row in the clear."""
    nodes = [np.ones(1, int)]
    for leaf in plan.leaves:
        bit = code[leaf.column] >> leaf.bit & 1
        nodes.append(np.array([1 - bit, bit]))
    for product in plan.products:
        nodes.append(np.outer(nodes[product.high], nodes[product.low]).reshape(-1)[: product.size])
    return nodes


@given(SIZES, st.integers(0, 2**32 - 1))
def test_plan_counting_puts_every_row_into_its_cell(sizes: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    count = int(generator.integers(1, 5))
    queries = tuple(
        tuple(int(c) for c in generator.permutation(len(sizes))[: generator.integers(1, 4)])
        for _ in range(count)
    )
    assume(all(math.prod(sizes[column] for column in query) < 200_000 for query in queries))
    plan = plan_counting(tuple(sizes), queries)
    code = [int(generator.choice([0, size - 1, generator.integers(size)])) for size in sizes]
    nodes = one_hots(plan, code)
    assert [node.size for node in nodes] == [plan.size(node) for node in range(len(nodes))]
    assert all(node.sum() == 1 for node in nodes)
    assert plan.cells == sum(math.prod(sizes[column] for column in query) for query in queries)
    for query, cells in zip(queries, plan.counts, strict=True):
        found = cells.arranged(np.outer(nodes[cells.left], nodes[cells.right]))
        shape = [sizes[column] for column in query]
        assert found.shape == (math.prod(shape),)
        assert np.flatnonzero(found) == np.ravel_multi_index([code[c] for c in query], shape)


@pytest.mark.parametrize("query", [(0, 2, 4), (2,), (9, 10, 11, 12), tuple(range(14))])
def test_splits_of_have_every_bit_of_a_query_once(query: tuple[int, ...]) -> None:
    splits = splits_of(ADULT, query)
    assert 1 <= len(splits) <= 128
    for split in splits:
        bits = [
            (digit.column, bit)
            for digit in (*split.left, *split.right)
            for bit in range(digit.low, digit.high)
        ]
        expected = {(c, bit) for c in query for bit in range((ADULT[c] - 1).bit_length())}
        assert len(bits) == len(set(bits))
        assert set(bits) == expected
    pairs = [entries(split.left) + entries(split.right) for split in splits]
    assert pairs == sorted(pairs)


def test_plan_of_columns_in_no_query_does_not_look_at_their_bits() -> None:
    plan = plan_counting((3, 1000, 4), ((0, 2),))
    assert plan.leaves == (Leaf(0, 0), Leaf(0, 1), Leaf(2, 0), Leaf(2, 1))
    assert plan.partial_columns == (0,)


def test_choose_splits_shares_factors() -> None:
    """Alone, each of these would take two factors of about 1,000 entries; together fewer than one and a half."""
    queries = [(a, b, c) for a, b in ((0, 1), (1, 2)) for c in (3, 4, 5)]
    sizes = (100,) * 6
    alone = sum(_entries(choose_splits(sizes, [query])) for query in queries)
    together = _entries(choose_splits(sizes, queries))
    assert alone > 6 * 1600
    assert together < 0.75 * alone


def _entries(splits: list[Split]) -> int:
    return sum(entries(f) for f in {f for split in splits for f in (split.left, split.right)})


def test_choose_splits_never_ends_worse_than_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    def total(splits: list[Split]) -> int:
        items = {f for split in splits for f in (split.left, split.right) if f}
        items |= {(digit,) for item in items for digit in item}
        weight = sum(row_factors.CELLS_PER_ENTRY * row_factors._weight(item) for item in items)
        return weight + sum(split.cells for split in splits)

    queries = TRIPLES[:24]
    chosen = total(choose_splits(ADULT, queries))
    assert chosen < total([splits_of(ADULT, query)[0] for query in queries])
    monkeypatch.setattr(row_factors._Search, "open_factors", lambda _: None)
    assert chosen <= total(choose_splits(ADULT, queries))


def test_plan_counting_is_the_same_each_time() -> None:
    first = plan_counting(ADULT, TRIPLES)
    plan_counting.cache_clear()
    assert plan_counting(ADULT, TRIPLES) == first


def test_plan_counting_meets_the_design_goals() -> None:
    """64 triples of Adult: at most 1.3 GB a server, linear in rows, blocks of some 50 MB."""
    plan = plan_counting(ADULT, TRIPLES)
    assert 2_000_000 < plan.cells <= plan.row_cells < 1.15 * plan.cells
    assert max(costs.count_rows(plan, 48_842).sent) < 1_300_000_000
    by_rows = [max(costs.count_rows(plan, rows).sent) for rows in (10_000, 100_000)]
    assert by_rows[1] < 10 * by_rows[0]
    held = sum(product.size for product in plan.products) * plan.block_rows * 4
    assert held < 50_000_000
    assert plan.block_rows % 64 == 0


def test_seconds_are_linear_in_rows_and_fewer_on_more_cores() -> None:
    plan = plan_counting(ADULT, TRIPLES)
    alone, spread = plan.seconds(48_842, 1), plan.seconds(48_842, 16)
    assert 5 < alone < 20
    assert alone / 16 < spread < 0.5 * alone
    assert plan.seconds(10**6, 1) == pytest.approx(20 * alone, rel=0.1)
    assert plan.seconds(0, 1) == 0


@pytest.mark.parametrize("rows", [0, 1, SEGMENT_ROWS, SEGMENT_ROWS + 1, 100_000])
def test_segments_and_blocks_have_every_row_once_and_begin_with_a_word(rows: int) -> None:
    plan = plan_counting(ADULT, TRIPLES)
    segments = list(plan.segments(rows))
    blocks = [block for segment in segments for block in plan.blocks(segment)]
    assert [row for block in blocks for row in block] == list(range(rows))
    assert all(block.start % 64 == 0 for block in (*segments, *blocks))
    assert all(2 * len(segment) < 1 << 16 for segment in segments)
    assert all(len(block) <= plan.block_rows for block in blocks)


def test_plan_counting_refuses_more_cells_than_there_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_plan, "MAX_CELLS", 99)
    with pytest.raises(ValueError, match="100 cells; at most 99"):
        plan_counting((10, 10), ((0, 1),))
