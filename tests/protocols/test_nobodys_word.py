"""With a verifier in the context, nothing rests on one party's word, and results are those without one."""

from collections.abc import Awaitable, Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import (
    absolute,
    base,
    boolean,
    bounded,
    box_muller,
    count_bits,
    derived,
    discrete,
    fixed,
    gumbel,
    measure,
    rows,
)
from protocols import select as select_module
from protocols.bitslice import from_bits
from protocols.context import Context
from protocols.discrete import Sampler
from protocols.errors import CheckFailed
from protocols.products import Pair, low_bits, sums_of
from protocols.ring import BITS, R16, R32, R64, R128, Ring
from protocols.row_plan import plan_counting
from protocols.shares import Share, concatenate
from protocols.verify import ProductVerifier
from tests.protocols.deviating import deviate, flip
from tests.protocols.local import components, reconstruct, run_parties, share_of
from tests.protocols.test_box_muller import reject_normal
from tests.protocols.test_costs import spec_of
from tests.protocols.test_discrete import COUNT, chi_square
from tests.protocols.test_gumbel import p_value
from tests.protocols.test_origins import Notes

Program = Callable[[Context], Awaitable[Share]]

EDGES = [0, 1, -1, 2**15, -(2**15), 2**30, 2**31 - 1, -(2**31)]
CELLS = 150
GENERATOR = np.random.default_rng(4)
X32 = components(R32, np.concatenate((EDGES, GENERATOR.integers(-(2**31), 2**31, CELLS - 8))))
X64 = components(
    R64, GENERATOR.integers(-(2**62), 2**62, CELLS) >> GENERATOR.integers(0, 62, CELLS)
)
COUNTS = components(R32, GENERATOR.integers(0, 900, CELLS))
WORDS = components(BITS, GENERATOR.integers(0, 2**64, (9, 3), np.uint64))
ANSWERS = GENERATOR.integers(0, 900 * 64, CELLS).astype(np.uint32)
SIZES = np.array([50, 20, 80])
PLAN = plan_counting((3, 6, 5), ((0, 1), (1, 2)))
ROWS = components(BITS, GENERATOR.integers(0, 2**40, (PLAN.layout.bits, 1), np.uint64))


class InPlace:
    """``products.LocalProducts`` without threads."""

    def start(self, pairs: Sequence[Pair]) -> "InPlaceSums":
        return InPlaceSums(pairs)


class InPlaceSums:
    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs = pairs
        self._sums: list[np.ndarray] = [np.float64(0)] * len(pairs)

    async def add(self, operand: np.ndarray) -> None:
        for i, pair in enumerate(self._pairs):
            self._sums[i] = self._sums[i] + sums_of(operand, pair.left, pair.right)

    async def result(self) -> list[np.ndarray]:
        return [low_bits(sums) for sums in self._sums]


def verified(program: Program) -> Program:
    async def run(ctx: Context) -> Share:
        ctx.verifier = Notes()
        return await program(ctx)

    return run


async def both_kinds(ctx: Context, bits: int) -> Share:
    made = await count_bits.count_bits(ctx, share_of(ctx, X32, R32), bits)
    return concatenate(made.planes, made.pairs)


async def errors(ctx: Context) -> Share:
    return await absolute.grouped_absolute_error(
        ctx, share_of(ctx, COUNTS, R32), ANSWERS, SIZES, fraction_bits=6, bits=20
    )


async def errors_of_bits(ctx: Context) -> Share:
    x_sh = share_of(ctx, COUNTS, R32)
    kept = await select_module.keep_bits(ctx, x_sh, SIZES.tolist(), 14)
    return await absolute.grouped_error_of_bits(
        ctx,
        x_sh,
        count_bits.CountBits.joined(kept),
        ANSWERS,
        SIZES,
        fraction_bits=6,
        bits=20,
    )


EXACT: dict[str, Program] = {
    "msb": lambda c: boolean.msb(c, share_of(c, X32, R32)),
    "msb-17": lambda c: boolean.msb(c, share_of(c, X32, R32), 17),
    "msb-64": lambda c: boolean.msb(c, share_of(c, X64, R64)),
    "to_boolean": lambda c: boolean.to_boolean(c, share_of(c, X32, R32), 32),
    "to_boolean-1": lambda c: boolean.to_boolean(c, share_of(c, X32, R32), 2),
    "lift_magnitude": lambda c: boolean.lift_magnitude(c, share_of(c, X32, R32), 18, R128),
    "lift_magnitude-32": lambda c: boolean.lift_magnitude(c, share_of(c, X32, R32), 32, R64),
    "bits_to_ring": lambda c: derived.bits_to_ring(c, share_of(c, WORDS, BITS), CELLS, R128),
    "words_to_ring": lambda c: boolean.words_to_ring(c, share_of(c, WORDS, BITS), CELLS, R32),
    "words_to_ring-128": lambda c: boolean.words_to_ring(c, share_of(c, WORDS, BITS), CELLS, R128),
    "count_bits": lambda c: both_kinds(c, 17),
    "count_bits-2": lambda c: both_kinds(c, 2),
    "grouped_absolute_error": errors,
    "grouped_error_of_bits": errors_of_bits,
    "count_rows": lambda c: rows.count_rows(
        c, share_of(c, ROWS, BITS), 40, PLAN, products=InPlace()
    ),
    "check_totals": lambda c: bounded.check_totals(
        c, share_of(c, COUNTS, R32)[:60].reshape(4, 15), 100
    ),
    "check_cells": lambda c: bounded.check_cells(c, share_of(c, COUNTS, R32).reshape(5, 30), 890),
    "largest": lambda c: select_module._largest(
        c, share_of(c, components(R64, np.arange(40) * 12345 % 977), R64), 30
    ),
}


def kept(name: str, value: np.ndarray) -> np.ndarray:
    """The part of a value that counts: of errors so many bits."""
    return value % 2**20 if name.startswith("grouped") else value


@pytest.mark.parametrize("rotate", [0, 1])
@pytest.mark.parametrize("name", EXACT)
def test_results_are_those_without_a_verifier(
    name: str, rotate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absolute, "BLOCK_CELLS", 64)
    plain = reconstruct(run_parties(EXACT[name], rotate=rotate).results)
    found = reconstruct(run_parties(verified(EXACT[name]), rotate=rotate).results)
    assert np.array_equal(*(kept(name, value) for value in (found, plain)))


@pytest.mark.parametrize("ring", [R64, R128], ids=lambda ring: ring.name)
@given(
    st.integers(1, 60),
    st.lists(
        st.one_of(
            st.sampled_from([0, 1, -1, 2**61, -(2**61)]), st.integers(-(2**62) + 1, 2**62 - 1)
        ),
        max_size=70,
    ),
    st.integers(0, 999),
)
def test_truncate_is_off_by_less_than_a_unit(
    ring: Ring, shift: int, values: list[int], seed: int
) -> None:
    scale = 1 if ring is R64 else 1 << 64
    x = np.array([value * scale for value in values], dtype=object)
    parts = components(ring, x, seed)

    async def program(ctx: Context) -> Share:
        return await fixed.truncate(ctx, share_of(ctx, parts, ring).additive(ctx), shift)

    found = ring.decode(reconstruct(run_parties(verified(program), seed=seed).results))
    for value, cut in zip(x, found, strict=True):
        assert int(value) >> shift <= int(cut) <= -(-int(value) >> shift)


def test_truncate_rounds_up_with_the_probability_of_the_fraction() -> None:
    """100,000 samples of x = 5/8 of a unit: a fraction off by 0.01 is caught, a false alarm one in 10^9."""
    parts = components(R64, np.full(100_000, 3 * 1024 + 640))

    async def program(ctx: Context) -> Share:
        return await fixed.truncate(ctx, share_of(ctx, parts, R64).additive(ctx), 10)

    found = reconstruct(run_parties(verified(program)).results)
    assert set(found.tolist()) == {3, 4}
    assert abs((found == 4).mean() - 0.625) < 6.2 * np.sqrt(0.625 * 0.375 / 100_000)


def test_what_is_shown_on_the_way_is_uniform_and_the_same_for_all() -> None:
    """The masked values of truncations: bytes against 256 equal probabilities (chi-square, one false alarm in 10^6)."""
    from scipy import stats

    parts, notes = components(R64, np.full(20_000, 12345)), [Notes() for _ in range(3)]

    async def program(ctx: Context) -> Share:
        ctx.verifier = notes[ctx.pid]
        return await fixed.truncate(ctx, share_of(ctx, parts, R64).additive(ctx), 20)

    run_parties(program)
    for pid in range(3):
        ((_, received),) = notes[pid].compared
        ((held, _),) = notes[(pid + 1) % 3].compared
        assert held == received
        counts = np.bincount(np.frombuffer(received, np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-6


def test_gumbel_matches_its_distribution() -> None:
    """The test without a verifier, on as many samples: see ``test_gumbel``, which has its controls."""
    outcome = run_parties(verified(lambda c: gumbel.gumbel(c, 20_000)))
    assert p_value(R64.decode(reconstruct(outcome.results)) / 2.0**28) > 1e-5


@pytest.mark.parametrize("sigma", [3.0, 20.89, 200.0])
def test_discrete_gaussian_matches_the_exact_probabilities(sigma: float) -> None:
    """The test without a verifier, on as many samples: see ``test_discrete``, which has its controls."""
    sampler = Sampler.of(sigma)
    outcome = run_parties(verified(lambda c: discrete.discrete_gaussian(c, COUNT, sampler)))
    assert chi_square(R32.decode(reconstruct(outcome.results)), sigma) > 1e-5


def test_box_muller_is_standard_normal() -> None:
    """The tests without a verifier, on fewer samples: see ``test_box_muller``, which has their controls."""
    outcome = run_parties(verified(lambda c: box_muller.gaussian(c, 20_000)))
    z = R64.decode(reconstruct(outcome.results)) / 2.0**box_muller.SAMPLE_BITS
    assert reject_normal(z) == []


def test_select_chooses_as_without_a_verifier_where_scores_are_far_apart() -> None:
    spec = spec_of([3, 5, 40])
    parts = components(R32, np.where(np.arange(48) < 8, 10, 15))
    assert run_parties(
        verified(lambda c: select_module.select(c, share_of(c, parts, R32), spec))
    ).results == [2, 2, 2]


ALL: dict[str, Callable[[Context], Awaitable[object]]] = {
    **EXACT,
    "truncate": lambda c: fixed.truncate(c, share_of(c, X64, R64).additive(c), 20),
    "gumbel": lambda c: gumbel.gumbel(c, 6),
    "discrete_gaussian": lambda c: discrete.discrete_gaussian(c, 70, Sampler.of(3.0)),
    "box_muller": lambda c: box_muller.gaussian(c, 6),
    "select": lambda c: select_module.select(
        c, share_of(c, components(R32, np.arange(6)), R32), spec_of([2, 1, 3])
    ),
}


async def opened(ctx: Context, program: Callable[[Context], Awaitable[object]]) -> object:
    """The program's value, opened with everything proved."""
    ctx.verifier = ProductVerifier()
    value = await program(ctx)
    return await base.open_value(ctx, value, "value") if isinstance(value, Share) else value


@pytest.mark.parametrize("name", ALL)
def test_what_is_made_can_be_proved(name: str) -> None:
    outcome = run_parties(lambda c: opened(c, ALL[name]))
    if name in EXACT:
        plain = reconstruct(run_parties(EXACT[name]).results)
        assert np.array_equal(*(kept(name, value) for value in (outcome.results[0], plain)))


DEVIATIONS = ("words_to_ring", "lift_magnitude", "truncate", "count_rows")


@pytest.mark.parametrize("pid", [0, 1, 2])
@pytest.mark.parametrize("name", DEVIATIONS)
def test_every_message_that_is_changed_is_found_before_an_opening(name: str, pid: int) -> None:
    """The first bit of every third one of what a party sends to make the value; proofs have tests of their own."""
    plain = run_parties(verified(ALL[name]))
    count = sum(message.sender == pid for message in plain.mesh.sent)
    for number in range(pid, count, 3):
        seen = deviate(lambda c: opened(c, ALL[name]), pid, number, flip)
        assert any(isinstance(error, CheckFailed) for error in seen.errors), number
        assert seen.opened == [0, 0]


@pytest.mark.parametrize("name", ALL)
def test_no_party_shares_what_it_alone_knows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: object) -> Share:
        raise AssertionError("an input of one party")

    def own(*_: object) -> np.ndarray:
        raise AssertionError("randomness of one party")

    for module in (base, derived, measure):
        monkeypatch.setattr(module, "share_input", refused)
    for module in (base, derived):
        monkeypatch.setattr(module, "split_input", refused)
    monkeypatch.setattr(Context, "private", own)
    run_parties(verified(ALL[name]))


@pytest.mark.parametrize(
    "program",
    [
        lambda c: base.share_input(c, R32, 0, np.ones(1, np.uint32), (1,)),
        lambda c: base.split_input(c, R32, 0, np.ones(1, np.uint32), (1,)),
        lambda c: base.reveal_component(c, share_of(c, WORDS, BITS), 0),
        lambda c: measure.distributed_noise(c, 5, 3.0, 100),
    ],
    ids=["share_input", "split_input", "reveal_component", "distributed_noise"],
)
def test_what_cannot_be_checked_is_refused_where_there_is_a_verifier(program: Program) -> None:
    with pytest.raises(ValueError, match="cannot be checked"):
        run_parties(verified(program))


def test_reshare_from_is_an_input_that_a_verifier_is_told_of() -> None:
    """Of products of component 0 and component 1, which party 0 alone has both of."""
    left, right = (components(R32, [value, 2**31 + value]) for value in (7, 9))

    async def program(ctx: Context) -> Share:
        ctx.verifier = notes[ctx.pid]
        x = base.known(ctx, R32, 0, left[0] if ctx.pid != 1 else None, (2,))
        y = base.known(ctx, R32, 1, right[1] if ctx.pid != 2 else None, (2,))
        return await base.reshare_from(ctx, base.product(ctx, x, y), 0)

    notes = [Notes() for _ in range(3)]
    outcome = run_parties(program)
    assert np.array_equal(reconstruct(outcome.results), left[0] * right[1])
    assert outcome.sent_bytes == [8, 0, 0]
    # What each party has is its terms and the difference of its masks: what is proved of any product.
    for note, share in zip(notes, outcome.results, strict=True):
        ((origins, z_sh),) = note.told.values()
        (masks,) = note.masks
        x, y = origins[0].left, origins[0].right
        assert y is not None
        term = x.own * (y.own + y.next) + x.next * y.own
        assert np.array_equal(z_sh.own, term + masks.own - masks.next)
        assert np.array_equal(share.own, z_sh.own)


def test_weighted_bits_are_whole_numbers() -> None:
    numbers = np.random.default_rng(1).integers(0, 2, (12, 100)).astype(np.uint8)
    parts = components(BITS, from_bits(numbers))

    async def program(ctx: Context) -> Share:
        return await derived.weighted_bits(ctx, share_of(ctx, parts, BITS), 100, R16)

    plain = (numbers.astype(np.int64) << np.arange(12)[:, None]).sum(axis=0)
    for run in (program, verified(program)):
        assert np.array_equal(reconstruct(run_parties(run).results), plain)
