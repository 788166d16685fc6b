"""Counting rows in malicious mode: sums over rows are proved by combined rows, and a wrong count is found."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from protocols import base, costs, rows
from protocols.context import Context
from protocols.errors import CheckFailed
from protocols.products import NumpyProducts
from protocols.records import Record
from protocols.ring import BITS, R16, R32
from protocols.row_plan import CountPlan, plan_counting
from protocols.shares import Additive, Arranged, Origin, Share, Summed, product
from protocols.verify import ProductVerifier
from protocols.verify_grids import grids_of, is_grid
from protocols.verify_rings import RingProducts
from tests.protocols.deviating import deviate, flip
from tests.protocols.local import components, run_parties, share_of

# Columns whose digits do not fill them, one of one category, and a query of a single column.
PLAN = plan_counting((3, 6, 1, 40, 11), ((0, 1), (1, 2, 3), (0, 3), (3, 4), (4,)))
PRODUCTS = NumpyProducts(1)
ROWS = 150


def bits_of_rows(plan: CountPlan) -> np.ndarray:
    words = np.random.default_rng(5).integers(0, 1 << 64, (plan.layout.bits, 3), np.uint64)
    words[0, 0] |= np.uint64(0xFFFF)
    return words


PARTS = components(BITS, bits_of_rows(PLAN))


async def count(ctx: Context, *, verifier: bool = True) -> object:
    if verifier:
        ctx.verifier = ProductVerifier()
    rows_bsh = share_of(ctx, PARTS, BITS)
    counts = await rows.count_rows(ctx, rows_bsh, ROWS, PLAN, products=PRODUCTS)
    return await base.open_value(ctx, counts, "counts")


def test_counts_are_proved_and_what_they_are_without_a_verifier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In blocks of rows, too, which are parts of one grid."""
    plain = run_parties(partial(count, verifier=False)).results[0]
    assert plain.sum() > 0
    seen: list[tuple[int, int]] = []
    init = RingProducts.__init__

    def noting(self: RingProducts, *arguments: object) -> None:
        init(self, *arguments)  # type: ignore[arg-type]
        seen.append((self.scheme.ring.bits, self.in_grids))

    monkeypatch.setattr(RingProducts, "__init__", noting)
    for value in run_parties(count).results:
        assert np.array_equal(value, plain)
    # Two sums of two combined rows for each row and pattern, not one for each cell.
    assert 0 < max(terms for bits, terms in seen if bits == 16) < ROWS * PLAN.cells
    assert {terms for bits, terms in seen if bits == 32} == {0}


def messages(pid: int) -> list[int]:
    """The numbers of the messages in which the sums over rows go, of the proofs' and some of the others."""
    sent = [m for m in run_parties(count).mesh.sent if m.sender == pid]
    sums = [n for n, m in enumerate(sent) if len(m.payload) == 2 * PLAN.cells]
    assert sums
    last = len(sent) - 2
    return sorted({*sums, *range(0, last, 15), last - 1})


@pytest.mark.parametrize("pid", [0, 1, 2])
def test_a_changed_message_of_counting_ends_the_run_before_an_opening(pid: int) -> None:
    for number in messages(pid):
        seen = deviate(count, pid, number, flip)
        assert any(isinstance(error, CheckFailed) for error in seen.errors), number
        assert seen.opened == [0, 0], number


@pytest.mark.parametrize("blocks", [1, 3])
def test_settle_of_sums_over_rows_costs_what_its_formula_says(blocks: int) -> None:
    a, b, n = 3, 4, 10

    async def program(ctx: Context) -> int:
        ctx.verifier = ProductVerifier()
        whole = Additive.zeros(R16, (11,))
        for _ in range(blocks):
            x_sh, y_sh = base.random(ctx, R16, (a, 1, n)), base.random(ctx, R16, (1, b, n))
            # The last cell names no category.
            term = product(ctx, x_sh, y_sh).sum()._mapped(WITHOUT_LAST)
            whole = whole + term
        await base.reshare(ctx, whole)
        before = ctx.depth
        await ctx.verifier.settle(ctx)
        return ctx.depth - before

    outcome = run_parties(program)
    # Rows of two patterns: with four cells and with three.
    proof = costs.verify_rings(R16, 11, 0, in_grids=2 * 2 * blocks * n)
    cost = costs.settle(proof, flags=2 + 2 * blocks)
    assert outcome.results == [cost.rounds] * 3
    assert outcome.sent_bytes == [sent + 2 * 11 for sent in cost.sent]


WITHOUT_LAST = Arranged(lambda table: table.reshape(-1)[:-1])


def record_of(origins: tuple[Origin, ...], cells: int) -> Record:
    value = Share(R16, 0, R16.zeros((cells,)), R16.zeros((cells,)))
    return Record(origins, value, value)


def shares(*shape: int) -> Share:
    return Share(R16, 0, R16.zeros(shape), R16.zeros(shape))


def test_grids_are_sums_over_rows_in_z_2_16_alone() -> None:
    left, right = shares(2, 1, 9), shares(1, 3, 9)
    arranged = Arranged(lambda table: table.T.reshape(-1))
    assert is_grid(Origin(left, right, (Summed(-1), arranged)))
    assert not is_grid(Origin(left, right, (Summed(0), arranged)))
    assert not is_grid(Origin(left, None, (Summed(-1), arranged)))
    assert not is_grid(Origin(left, shares(1, 3, 1), (Summed(-1), arranged)))
    wide = Share(R32, 0, *(np.zeros((2, 1, 9), np.uint32) for _ in range(2)))
    assert not is_grid(Origin(wide, wide, (Summed(-1), arranged)))


def test_a_grid_whose_cells_count_twice_is_refused() -> None:
    twice = Arranged(lambda table: np.concatenate((table.reshape(-1), table.reshape(-1))))
    origin = Origin(shares(2, 1, 9), shares(1, 3, 9), (Summed(-1), twice))
    with pytest.raises(ValueError, match="several times"):
        grids_of(record_of((origin,), 12))


def test_a_wrong_count_is_found_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """One unit in a single cell, of one party's sums: at the first, the last and some cells between."""
    masked = Additive.masked
    for cell in (0, 7, PLAN.cells // 2, PLAN.cells - 1):
        turns = iter(range(10_000))

        def adding(
            self: Additive, mask: np.ndarray, cell: int = cell, turns: Iterator[int] = turns
        ) -> np.ndarray:
            own = masked(self, mask)
            # The first party that sends sums over rows changes one of them, in its own component, too.
            if self.ring is R16 and self.shape == (PLAN.cells,) and next(turns) == 0:
                own[cell] += np.uint16(1)
            return own

        monkeypatch.setattr(Additive, "masked", adding)
        with pytest.raises(CheckFailed):
            run_parties(count)


def test_products_of_one_hots_that_are_not_summed_over_rows_stay_products() -> None:
    """A control of the pattern: what is summed otherwise is proved as any other product."""

    async def program(ctx: Context) -> object:
        ctx.verifier = ProductVerifier()
        x_sh = base.known(ctx, R16, 0, np.arange(6, dtype=np.uint16).reshape(2, 1, 3), (2, 1, 3))
        table = product(ctx, x_sh, x_sh.reshape(1, 2, 3)).sum(axis=0)
        return await base.open_value(ctx, await base.reshare(ctx, table), "sums")

    x = np.arange(6).reshape(2, 3)
    expected = (x[:, None] * x[None]).sum(axis=0)
    assert np.array_equal(run_parties(program).results[0], expected)
