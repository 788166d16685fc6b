"""Every protocol's rounds and bytes are what its formula in ``protocols.costs`` says."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import numpy as np
import pytest

from protocols import (
    absolute,
    base,
    boolean,
    bounded,
    box_muller,
    conversions,
    costs,
    count_bits,
    derived,
    discrete,
    fixed,
    free,
    gumbel,
    laplace,
    lookup,
    measure,
    random_bits,
    rows,
    select,
)
from protocols.bitslice import words_for
from protocols.context import Context
from protocols.costs import Cost
from protocols.products import NumpyProducts
from protocols.ring import BITS, R16, R32, R64, R128, Ring
from protocols.row_plan import CountPlan, plan_counting
from protocols.select_spec import bounds
from protocols.shares import Share
from tests.protocols.local import run_parties

TABLE = lookup.PublicTable.of([(n, 3 * n) for n in range(256)], 20)


def shared(ctx: Context, ring: Ring, *shape: int) -> Share:
    return base.random(ctx, ring, shape)


def shared_bits(ctx: Context, cells: int) -> Share:
    """Bits that are all 1."""
    ones = np.ones(cells, np.uint64)
    return base.known(ctx, BITS, 0, None if ctx.pid == 1 else ones, (cells,))


async def measured(ctx: Context, cells: int, sigma: float, kind: str) -> np.ndarray:
    return await measure.measure(ctx, shared(ctx, R32, cells), sigma, 1000, measure.noise_of(kind))


def spec_of(sizes: list[int]) -> SimpleNamespace:
    cells = sum(sizes)
    return SimpleNamespace(
        sizes=np.array(sizes),
        # A candidate's answers add up to no more than its rows and cells.
        answers=np.full(cells, 640 if cells < 1000 else 1, np.uint32),
        gains=(1 << 20,) * len(sizes),
        offsets=(0,) * len(sizes),
        max_rows=1000,
    )


def select_cost(sizes: list[int]) -> Cost:
    return costs.select(sizes, *bounds(spec_of(sizes)))


PRODUCTS = NumpyProducts(1)
COUNTED = (
    plan_counting((1,), ((0,),)),
    plan_counting((3,), ((0,),)),
    plan_counting((4, 2), ((0, 1),)),
    plan_counting((5, 100, 7, 1000), ((0, 1, 2), (1, 3), (0, 2, 3))),
)


async def count_rows(ctx: Context, plan: CountPlan, count: int) -> Share:
    shared_rows = shared(ctx, BITS, plan.layout.bits, W(count))
    return await rows.count_rows(ctx, shared_rows, count, plan, products=PRODUCTS)


Program = Callable[[Context], Awaitable[object]]
W = words_for

CASES: list[tuple[str, Cost, Program]] = []


def case(name: str, cost: Cost, program: Program) -> None:
    CASES.append((name, cost, program))


for n in (1, 64, 100):
    for k in (2, 3, 23, 32):
        case(
            f"carry_out-{n}-{k}",
            costs.carry_out(n, k),
            lambda c, n=n, k=k: boolean.carry_out(
                c, shared(c, BITS, k, W(n)), shared(c, BITS, k, W(n))
            ),
        )
        case(
            f"add_carries-{n}-{k}",
            costs.add_carries(n, k),
            lambda c, n=n, k=k: boolean.add_carries(
                c, shared(c, BITS, k, W(n)), shared(c, BITS, k, W(n))
            ),
        )
        case(
            f"msb-{n}-{k}",
            costs.msb(n, k),
            lambda c, n=n, k=k: boolean.msb(c, shared(c, R32, n), k),
        )
        case(
            f"to_boolean-{n}-{k}",
            costs.to_boolean(n, k),
            lambda c, n=n, k=k: boolean.to_boolean(c, shared(c, R32, n), k),
        )
        case(
            f"and_all-{n}-{k}",
            costs.and_all(n, k),
            lambda c, n=n, k=k: boolean.and_all(c, shared(c, BITS, k, W(n))),
        )
        case(
            f"prefix_or-{n}-{k}",
            costs.prefix_or(n, k),
            lambda c, n=n, k=k: boolean.prefix_or(c, shared(c, BITS, k, W(n))),
        )
        case(
            f"words_to_ring-{n}-{k}",
            costs.words_to_ring(n, k, 8),
            lambda c, n=n, k=k: boolean.words_to_ring(c, shared(c, BITS, k, W(n)), n, R64),
        )
    case(
        f"bits_to_ring-{n}",
        costs.bits_to_ring(n, 8),
        lambda c, n=n: derived.bits_to_ring(c, shared(c, BITS, W(n)), n, R64),
    )
    for m in (n, n + 1023, n + 1024):
        case(
            f"lift_magnitude-{m}",
            costs.lift_magnitude(m, 24, 16),
            lambda c, m=m: boolean.lift_magnitude(c, shared(c, R32, m), 24, R128),
        )
    case(
        f"truncate-{n}",
        costs.truncate(n, 8, 20),
        lambda c, n=n: fixed.truncate(c, shared(c, R64, n).additive(c), 20),
    )
    case(
        f"powers-{n}",
        costs.powers(n, 7, 8, 20),
        lambda c, n=n: fixed.powers(c, shared(c, R64, n), 7, 20),
    )
    case(f"gumbel-{n}", costs.gumbel(n), lambda c, n=n: gumbel.gumbel(c, n))
    case(
        f"largest-{n}",
        costs.largest(n, 60),
        lambda c, n=n: select._largest(c, shared(c, R64, n), 60),
    )
    case(
        f"open_value-{n}",
        costs.open_value(n, 4),
        lambda c, n=n: base.open_value(c, shared(c, R32, n), "x"),
    )
    case(f"gaussian-{n}", costs.gaussian(n), lambda c, n=n: box_muller.gaussian(c, n))
    case(
        f"one_hot-{n}",
        costs.one_hot(n, 9),
        lambda c, n=n: lookup.one_hot(c, shared(c, BITS, 9, W(n))),
    )
    case(
        f"look_up-{n}",
        costs.look_up(n, 20, 9),
        lambda c, n=n: lookup.look_up(c, TABLE, shared(c, BITS, 9, W(n))),
    )
    case(
        f"measure_box_muller-{n}",
        costs.measure_box_muller(n),
        lambda c, n=n: measured(c, n, 3.0, measure.BOX_MULLER),
    )
    case(
        f"measure_distributed-{n}",
        costs.measure_distributed(n),
        lambda c, n=n: measured(c, n, 3.0, measure.DISTRIBUTED),
    )
    for sigma in (0.5, 20.0, 300.0):
        sampler = discrete.Sampler.of(sigma)
        case(
            f"measure_discrete-{n}-{sigma}",
            costs.measure_discrete(n, sampler),
            lambda c, n=n, sigma=sigma: measured(c, n, sigma, measure.DISCRETE),
        )
case(
    "discrete_gaussian-blocks",
    costs.discrete_gaussian(70_000, discrete.Sampler.of(20.0)),
    lambda c: discrete.discrete_gaussian(c, 70_000, discrete.Sampler.of(20.0)),
)
for n in (257, 300, 4100):
    case(
        f"largest-{n}",
        costs.largest(n, 60),
        lambda c, n=n: select._largest(c, shared(c, R64, n), 60),
    )
for scale in (0.5, 20.0):
    sampler = laplace.LaplaceSampler.of(scale)
    for n in (1, 70, 5000):
        case(
            f"discrete_laplace-{n}-{scale}",
            costs.discrete_laplace(n, sampler),
            lambda c, n=n, sampler=sampler: laplace.discrete_laplace(c, n, sampler),
        )
case("gaussian-blocks", costs.gaussian(70_000), lambda c: box_muller.gaussian(c, 70_000))
for owners, sums in ((0, 3), (1, 1), (1, 2), (70, 5), (100, 64)):
    case(
        f"check_totals-{owners}-{sums}",
        costs.check_totals(owners, sums),
        lambda c, n=owners, m=sums: bounded.check_totals(c, shared(c, R32, m, n), 1000),
    )
for owners, cells in ((1, 1), (3, 64), (70, 100), (2, 300_000)):
    case(
        f"check_cells-{owners}-{cells}",
        costs.check_cells(owners, cells),
        lambda c, n=owners, k=cells: bounded.check_cells(c, shared(c, R32, n, k), 1000),
    )
    case(
        f"in_range-{owners * cells}",
        costs.in_range(owners * cells),
        lambda c, n=owners * cells: bounded.in_range(c, shared(c, R32, n), 1000),
    )
case(
    "open_verdicts",
    costs.open_value(70, 8),
    lambda c: bounded.open_verdicts(c, shared_bits(c, 70), "x"),
)
for plan in COUNTED:
    for count in (0, 1, 100, 5000):
        case(
            f"count_rows-{plan.layout.sizes}-{count}",
            costs.count_rows(plan, count),
            lambda c, p=plan, n=count: count_rows(c, p, n),
        )
case(
    "count_rows-segments",
    costs.count_rows(COUNTED[1], 70_000),
    lambda c: count_rows(c, COUNTED[1], 70_000),
)
for n in (1, 64, 100):
    case(
        f"bits_into_ring-{n}",
        costs.bits_into_ring(n, 8),
        lambda c, n=n: free.bits_into_ring(c, shared(c, BITS, W(n)), n, R64),
    )
    case(
        f"random_bits-{n}",
        costs.random_bits(n, 4),
        lambda c, n=n: random_bits.random_bits(c, n, R32),
    )
    case(
        f"carry_save-{n}",
        costs.carry_save(n, 23),
        lambda c, n=n: free.carry_save(c, shared(c, R32, n), 23, 23),
    )
    case(
        f"lift_half-{n}",
        costs.lift_half(n),
        lambda c, n=n: conversions.lift_half(c, shared(c, R16, n)),
    )
for sizes in ([5], [1, 2, 3], [100_000, 70_000, 1, 200_000], list(range(1, 40))):
    case(
        f"select-{len(sizes)}-{sum(sizes)}",
        select_cost(sizes),
        lambda c, sizes=sizes: select.select(c, shared(c, R32, sum(sizes)), spec_of(sizes)),
    )
    case(
        f"grouped_absolute_error-{len(sizes)}-{sum(sizes)}",
        costs.grouped_absolute_error(sizes, 23),
        lambda c, sizes=sizes: absolute.grouped_absolute_error(
            c,
            shared(c, R32, sum(sizes)),
            spec_of(sizes).answers,
            np.array(sizes),
            fraction_bits=6,
            bits=23,
        ),
    )


for n, bits in ((1, 2), (100, 17), (600_000, 17)):
    case(
        f"count_bits-{n}-{bits}",
        costs.bits_of_counts(n, bits),
        lambda c, n=n, bits=bits: count_bits.count_bits(c, shared(c, R32, n), bits),
    )


def kept(ctx: Context, cells: int, bits: int) -> count_bits.CountBits:
    return count_bits.CountBits(
        shared(ctx, BITS, bits, W(cells)), shared(ctx, BITS, (bits - 1) // 2, W(cells))
    )


async def error_of_bits(ctx: Context, sizes: list[int], bits: int) -> Share:
    held = kept(ctx, sum(map(count_bits.whole_words, sizes)), bits - 6)
    x_sh = shared(ctx, R32, sum(sizes))
    answers, groups = spec_of(sizes).answers, np.array(sizes)
    return await absolute.grouped_error_of_bits(
        ctx, x_sh, held, answers, groups, fraction_bits=6, bits=bits
    )


for n, bits in ((1, 2), (100, 3), (100, 17), (64, 18)):
    case(
        f"below-{n}-{bits}",
        costs.below(n, bits),
        lambda c, n=n, bits=bits: count_bits.below(
            c, kept(c, n, bits), np.zeros(n, np.uint32), bits
        ),
    )
for sizes in ([5], [1, 2, 3], [100_000, 70_000, 1, 200_000], list(range(1, 40))):
    case(
        f"grouped_error_of_bits-{len(sizes)}-{sum(sizes)}",
        costs.grouped_error_of_bits(sizes, 23, 6),
        lambda c, sizes=sizes: error_of_bits(c, sizes, 23),
    )


@pytest.mark.parametrize(
    ("cost", "program"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_costs_match_the_counters(cost: Cost, program: Program) -> None:
    outcome = run_parties(program)
    assert outcome.rounds == cost.rounds
    assert tuple(outcome.sent_bytes) == cost.sent


@pytest.mark.parametrize("shift", [1, 2])
def test_costs_rotate_with_the_roles(shift: int) -> None:
    outcome = run_parties(lambda c: boolean.msb(c, shared(c, R32, 100), 23), rotate=shift)
    assert tuple(outcome.sent_bytes) == costs.msb(100, 23).rotated(shift).sent


def test_costs_meet_the_design_goals() -> None:
    error = costs.grouped_absolute_error([15_625] * 64, 23)
    assert error.rounds <= 10
    assert max(error.sent) < 6.5 * 1_000_000
    again = costs.grouped_error_of_bits([15_625] * 64, 23, 6)
    assert again.rounds == 5
    assert sum(again.sent) < 3 * 4.1 * 1_000_000
    sizes = [4000] * 250
    assert costs.select(sizes, 24, 41).rounds == 24
    assert sum(costs.select(sizes, 24, 41).sent) < 3 * 7.0 * 1_000_000
    assert costs.select(sizes, 24, 41, kept=True).rounds == 24
    assert max(costs.gaussian(32_768).sent) < 800 * 32_768
    assert (
        max(costs.discrete_gaussian(3 * 32_768, discrete.Sampler.of(20.89)).sent) < 100 * 3 * 32_768
    )


class _Trusting:
    """A verifier that is told everything and has nothing proved: the proofs have formulas of their own."""

    gates = 0

    def reshared(self, place: bytes, origins: object, masks_sh: Share, z_sh: Share) -> None:
        """See ``context.Verifier``."""
        self.gates += z_sh.size if z_sh.ring is BITS else 0

    def shown(self, *told: object) -> None:
        """See ``context.Verifier``."""

    async def settle(self, ctx: Context) -> None:
        """See ``context.Verifier``."""


VERIFIED: list[tuple[str, Callable[[], Cost], Program]] = [
    ("msb", lambda: costs.msb(100, 23), lambda c: boolean.msb(c, shared(c, R32, 100), 23)),
    (
        "to_boolean",
        lambda: costs.to_boolean(100, 32),
        lambda c: boolean.to_boolean(c, shared(c, R32, 100), 32),
    ),
    (
        "lift_magnitude",
        lambda: costs.lift_magnitude(65, 24, 16),
        lambda c: boolean.lift_magnitude(c, shared(c, R32, 65), 24, R128),
    ),
    (
        "words_to_ring",
        lambda: costs.words_to_ring(65, 8, 4),
        lambda c: boolean.words_to_ring(c, shared(c, BITS, 8, 2), 65, R32),
    ),
    (
        "bits_to_ring",
        lambda: costs.bits_to_ring(65, 4),
        lambda c: boolean.bits_to_ring(c, shared(c, BITS, 2), 65, R32),
    ),
    (
        "truncate",
        lambda: costs.truncate(65, 8, 20),
        lambda c: fixed.truncate(c, shared(c, R64, 65).additive(c), 20),
    ),
    ("gumbel", lambda: costs.gumbel(65), lambda c: gumbel.gumbel(c, 65)),
    (
        "check_totals",
        lambda: costs.check_totals(70, 5),
        lambda c: bounded.check_totals(c, shared(c, R32, 5, 70), 1000),
    ),
    (
        "check_cells",
        lambda: costs.check_cells(3, 100),
        lambda c: bounded.check_cells(c, shared(c, R32, 3, 100), 1000),
    ),
    (
        "select",
        lambda: select_cost([5, 70, 2]),
        lambda c: select.select(c, shared(c, R32, 77), spec_of([5, 70, 2])),
    ),
    (
        "count_bits",
        lambda: costs.bits_of_counts(100, 17),
        lambda c: count_bits.count_bits(c, shared(c, R32, 100), 17),
    ),
    (
        "grouped_error_of_bits",
        lambda: costs.grouped_error_of_bits([5, 70], 23, 6),
        lambda c: error_of_bits(c, [5, 70], 23),
    ),
    (
        "grouped_error_of_many_bits",
        lambda: costs.grouped_error_of_bits([5, 700, 1300, *[3] * 70], 23, 6),
        lambda c: error_of_bits(c, [5, 700, 1300, *[3] * 70], 23),
    ),
    (
        "measure_discrete",
        lambda: costs.measure_discrete(70, discrete.Sampler.of(20.0)),
        lambda c: measured(c, 70, 20.0, measure.DISCRETE),
    ),
    (
        "discrete_laplace",
        lambda: costs.discrete_laplace(70, laplace.LaplaceSampler.of(5.0)),
        lambda c: laplace.discrete_laplace(c, 70, laplace.LaplaceSampler.of(5.0)),
    ),
    (
        "measure_box_muller",
        lambda: costs.measure_box_muller(70),
        lambda c: measured(c, 70, 3.0, measure.BOX_MULLER),
    ),
    (
        "count_rows",
        lambda: costs.count_rows(COUNTED[3], 100),
        lambda c: count_rows(c, COUNTED[3], 100),
    ),
]


@pytest.mark.parametrize(
    ("name", "cost", "program"), VERIFIED, ids=[name for name, _, _ in VERIFIED]
)
def test_costs_with_a_verifier_match_the_counters(
    name: str, cost: Callable[[], Cost], program: Program
) -> None:
    async def verified(ctx: Context) -> int:
        ctx.verifier = verifier = _Trusting()
        await program(ctx)
        return verifier.gates

    outcome = run_parties(verified)
    with costs.with_verifier():
        wanted = cost()
    assert outcome.rounds == wanted.rounds
    assert tuple(outcome.sent_bytes) == wanted.sent
    assert outcome.results == [wanted.gates] * 3


@pytest.mark.parametrize("verified", [False, True])
@pytest.mark.parametrize("most", [2, 256, 257, 300, 1024, 1030, 2000])
def test_no_selection_among_fewer_sends_more_than_the_dearest(most: int, verified: bool) -> None:
    """An audit's limit for an interrupted selection; among 256 of 300 more is sent than among all of them."""
    with costs.with_verifier(verified):
        for cost in (
            lambda count: costs.select_choose(count, 41),
            lambda count: costs.select_scores([4] * count, 32, 4096),
        ):
            dearest = [cost(count).sent for count in costs.dearest_counts(most)]
            limit = [max(sent) for sent in zip(*dearest, strict=True)]
            for count in range(1, most + 1):
                assert all(a <= b for a, b in zip(cost(count).sent, limit, strict=True)), count
    assert sum(costs.select_choose(256, 41).sent) > sum(costs.select_choose(300, 41).sent)
