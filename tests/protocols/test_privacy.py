"""One party's received messages are uniform and tell nothing, for every protocol and every party.

The party's own keys and components stay fixed while the keys that it does not hold vary from run to run. Then every
bit that it receives has to be a fair coin, and no two of them may be correlated: a mask that is missing, known to
the receiver or used twice shows as a constant or as a correlation. Statistic: the number of ones of each bit in R
runs, and the agreements of each pair among at most 1,200 bits, each against 6.5 standard deviations; with 10^6
comparisons a false alarm is rarer than once in 10,000. With R = 64 a bit that is one in 91 % of the runs is
caught; the slow test has R = 800, and 62 %. The controls take a mask away and have to be rejected.
"""

from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from protocols import (
    absolute,
    base,
    boolean,
    bounded,
    box_muller,
    conversions,
    count_bits,
    derived,
    discrete,
    fixed,
    free,
    gumbel,
    laplace,
    link,
    lookup,
    measure,
    noise_kinds,
    random_bits,
    rows,
    shuffle,
    sort,
)
from protocols import select as select_module
from protocols.bitslice import from_bits, words_for
from protocols.context import Context
from protocols.keystream import Keystream
from protocols.link_plan import Linking
from protocols.products import NumpyProducts
from protocols.ring import BITS, R16, R32, R64, R128, Ring, RingArray
from protocols.row_plan import plan_counting
from protocols.shares import Share
from tests.protocols.local import components, reconstruct, run_parties, share_of
from tests.protocols.test_costs import spec_of
from tests.protocols.test_origins import Notes

RUNS = 64
MANY_RUNS = 800
LIMIT = 6.5
MAX_PAIRED_BITS = 1200

Protocol = Callable[[Context], Awaitable[object]]


def bits_received(program: Protocol, party: int, *, opened: int, runs: int = RUNS) -> np.ndarray:
    """Bits (runs, n) that ``party`` receives, without the ``opened`` last messages: they carry what all may know."""
    rows = []
    for variant in range(runs):
        messages = run_parties(program, variant=variant, known_to=party).received(party)
        rows.append(np.frombuffer(b"".join(messages[: len(messages) - opened]), np.uint8))
    return np.unpackbits(np.array(rows), axis=1)


def find_leak(bits: np.ndarray) -> str | None:
    """Describes a defect of the bits, or None."""
    runs = bits.shape[0]
    scores = np.abs(bits.sum(axis=0, dtype=np.int64) - runs / 2) / np.sqrt(runs / 4)
    if scores.max(initial=0) > LIMIT:
        return f"bit {scores.argmax()} of {scores.size} is biased by {scores.max():.1f} standard deviations"
    chosen = np.random.default_rng(1).permutation(bits.shape[1])[:MAX_PAIRED_BITS]
    signs = 1.0 - 2.0 * bits[:, chosen]
    correlation = np.abs(np.triu(signs.T @ signs, 1)) / np.sqrt(runs)
    if correlation.max(initial=0) > LIMIT:
        return f"two bits are correlated by {correlation.max():.1f} standard deviations"
    return None


def secret(ring: Ring, *values: int) -> list[RingArray]:
    return components(ring, np.array(values, dtype=object))


R32_PARTS = secret(R32, 5, -7, 0, 2**31 - 1)
R64_PARTS = secret(R64, 5, -7, 0, 2**60)
R128_PARTS = secret(R128, 5 << 40, 7, 0, 2**79)
BIT_PARTS = [part.reshape(3, 1) for part in secret(BITS, 1, 0, 2**64 - 1)]
BIT_PARTS[2] = BIT_PARTS[0] ^ BIT_PARTS[1] ^ np.array([[1], [0], [2**64 - 1]], dtype=np.uint64)
SPEC = spec_of([2, 1, 3])
TABLE = lookup.PublicTable.of([(1, 2), (3, 0), (5, 6), (7, 4)], 3)
COUNT_PARTS = secret(R32, 3, 0, 900, 17, 2, 1)
SCORE_PARTS = secret(R64, 5 << 40, 7, 0, -(2**60))
# Three sums of each of two owners, one of whom is out of bounds; two owners' cells.
SUM_PARTS = components(R32, np.array([[5, 7], [5, 8], [5, 7]]))
OWNED_PARTS = components(R32, np.array([[5, 0, 900], [1001, 0, -1]]))


# Three rows of two columns and a bit of presence: one that counts, one that is absent, one without a category.
PLAN = plan_counting((3, 6), ((0, 1),))
ROW_PARTS = [part.reshape(6, 1) for part in secret(BITS, *[0] * 6)]
ROW_PARTS[2] = ROW_PARTS[0] ^ ROW_PARTS[1] ^ np.array([[5], [4], [1], [5], [6], [5]], np.uint64)
HALVED_PARTS = secret(R16, 0, 2, 65408, 6)
PRODUCTS = NumpyProducts(1)
# Three rows of two words; and of two sources, sorted: two people, one of them in both.
LISTED_PARTS = secret(BITS, 1, 2, 0, 4, 2**64 - 1, 6)
LISTED_PARTS = [part.reshape(3, 2) for part in LISTED_PARTS]
LINKED = Linking((2, 1), (2, 1), (1, 1), 3)
SORTED_PARTS = [part.reshape(10, 1) for part in secret(BITS, 2, 4, 0, 0, 7, 7, 5, 2, 5, 4)]


async def deal(ctx: Context, dealer: int) -> Share:
    value = np.array([1, 2, 3], np.uint32) if ctx.pid == dealer else None
    return await base.share_input(ctx, R32, dealer, value, (3,))


async def measured(ctx: Context, kind: str) -> np.ndarray:
    x_sh = share_of(ctx, COUNT_PARTS, R32)
    return await measure.measure(ctx, x_sh, 2.0, 1000, measure.noise_of(kind))


async def moved(ctx: Context) -> Share:
    passes = shuffle.Passes.draw(ctx, 3)
    there = await shuffle.shuffle(ctx, share_of(ctx, LISTED_PARTS, BITS), passes)
    return there if ctx.verifier else await shuffle.unshuffle(ctx, there, passes)


async def verdicts(ctx: Context, parts: list[RingArray]) -> np.ndarray:
    checked = await bounded.check_totals(ctx, share_of(ctx, parts, R32), 1000)
    return await bounded.open_verdicts(ctx, checked, "passed")


async def errors_of_bits(ctx: Context) -> Share:
    x_sh = share_of(ctx, COUNT_PARTS, R32)
    groups = [x_sh[:2], x_sh[2:3], x_sh[3:]]
    kept = count_bits.CountBits.joined([await count_bits.count_bits(ctx, g, 12) for g in groups])
    return await absolute.grouped_error_of_bits(
        ctx, x_sh, kept, SPEC.answers, SPEC.sizes, fraction_bits=6, bits=18
    )


def checked(program: Protocol) -> Protocol:
    """In the forms that a verifier can check; of what it would do nothing is sent."""

    async def run(ctx: Context) -> object:
        ctx.verifier = Notes()
        return await program(ctx)

    return run


CHECKABLE = {
    "msb": checked(lambda c: boolean.msb(c, share_of(c, R32_PARTS, R32))),
    "errors_of_bits": checked(lambda c: errors_of_bits(c)),
    "words_to_ring": checked(
        lambda c: boolean.words_to_ring(c, share_of(c, BIT_PARTS, BITS), 64, R64)
    ),
    "lift_magnitude": checked(
        lambda c: boolean.lift_magnitude(c, share_of(c, R32_PARTS, R32), 18, R128)
    ),
    "truncate": checked(lambda c: fixed.truncate(c, share_of(c, R64_PARTS, R64).additive(c), 20)),
}
TAGGED = checked(lambda c: moved(c))
PROTOCOLS: dict[str, tuple[Protocol, int]] = {
    **{f"share_input-{d}": ((lambda c, d=d: deal(c, d)), 0) for d in range(3)},
    "multiply": (
        lambda c: base.multiply(c, share_of(c, R32_PARTS, R32), share_of(c, R32_PARTS, R32)),
        0,
    ),
    "inner_product": (
        lambda c: base.inner_product(c, share_of(c, R64_PARTS, R64), share_of(c, R64_PARTS, R64)),
        0,
    ),
    "and": (
        lambda c: base.multiply(c, share_of(c, BIT_PARTS, BITS), share_of(c, BIT_PARTS, BITS)),
        0,
    ),
    "msb": (lambda c: boolean.msb(c, share_of(c, R32_PARTS, R32)), 0),
    "msb-rotated": (lambda c: rotated(c, lambda r: boolean.msb(r, share_of(r, R32_PARTS, R32))), 0),
    "to_boolean": (lambda c: boolean.to_boolean(c, share_of(c, R32_PARTS, R32), 20), 0),
    "bits_to_ring": (lambda c: derived.bits_to_ring(c, share_of(c, BIT_PARTS, BITS), 64, R64), 0),
    "words_to_ring": (lambda c: boolean.words_to_ring(c, share_of(c, BIT_PARTS, BITS), 64, R64), 0),
    "lift_magnitude": (
        lambda c: boolean.lift_magnitude(c, share_of(c, R32_PARTS, R32), 18, R128),
        0,
    ),
    "prefix_or": (lambda c: boolean.prefix_or(c, share_of(c, BIT_PARTS, BITS)), 0),
    "bits_into_ring": (
        lambda c: free.bits_into_ring(c, share_of(c, BIT_PARTS, BITS), 64, R16),
        0,
    ),
    "random_bits": (lambda c: random_bits.random_bits(c, 64, R32), 0),
    "carry_save": (lambda c: free.carry_save(c, share_of(c, R32_PARTS, R32), 20, 20), 0),
    "lift_half": (lambda c: conversions.lift_half(c, share_of(c, HALVED_PARTS, R16)), 0),
    "count_rows": (
        lambda c: rows.count_rows(c, share_of(c, ROW_PARTS, BITS), 3, PLAN, products=PRODUCTS),
        0,
    ),
    "shuffle": (lambda c: moved(c), 0),
    # The two last messages are digests of what their receiver has.
    "shuffle with tags": (TAGGED, 2),
    "is_less": (
        lambda c: sort.is_less(
            c, share_of(c, LISTED_PARTS, BITS)[:2], share_of(c, LISTED_PARTS, BITS)[1:], 20
        ),
        0,
    ),
    "runs": (lambda c: link._joined(c, share_of(c, SORTED_PARTS, BITS), LINKED), 0),
    "truncate-64": (lambda c: fixed.truncate(c, share_of(c, R64_PARTS, R64).additive(c), 20), 0),
    "truncate-128": (lambda c: fixed.truncate(c, share_of(c, R128_PARTS, R128).additive(c), 20), 0),
    "absolute": (
        lambda c: absolute.grouped_absolute_error(
            c, share_of(c, COUNT_PARTS, R32), SPEC.answers, SPEC.sizes, fraction_bits=6, bits=18
        ),
        0,
    ),
    "count_bits": (lambda c: count_bits.count_bits(c, share_of(c, R32_PARTS, R32), 17), 0),
    "errors_of_bits": (lambda c: errors_of_bits(c), 0),
    **{f"{name} with a verifier": (program, 0) for name, program in CHECKABLE.items()},
    "check_totals": (lambda c: bounded.check_totals(c, share_of(c, SUM_PARTS, R32), 1000), 0),
    "check_cells": (lambda c: bounded.check_cells(c, share_of(c, OWNED_PARTS, R32), 1000), 0),
    "verdicts": (lambda c: verdicts(c, SUM_PARTS), 2),
    "gumbel": (lambda c: gumbel.gumbel(c, 3), 0),
    "largest": (lambda c: select_module._largest(c, share_of(c, SCORE_PARTS, R64), 62), 0),
    "marked": (lambda c: select_module._marked(c, share_of(c, SCORE_PARTS, R64), 62), 0),
    "select": (lambda c: select_module.select(c, share_of(c, COUNT_PARTS, R32), SPEC), 2),
    "one_hot": (lambda c: lookup.one_hot(c, share_of(c, BIT_PARTS, BITS)), 0),
    "look_up": (lambda c: lookup.look_up(c, TABLE, share_of(c, BIT_PARTS, BITS)), 0),
    "gaussian": (lambda c: box_muller.gaussian(c, 6), 0),
    "discrete_gaussian": (lambda c: discrete.discrete_gaussian(c, 6, discrete.Sampler.of(3.0)), 0),
    "discrete_laplace": (
        lambda c: laplace.discrete_laplace(c, 6, laplace.LaplaceSampler.of(3.0)),
        0,
    ),
    "discrete_gaussian-sum": (
        lambda c: discrete.discrete_gaussian(c, 6, discrete.Sampler.of(200.0)),
        0,
    ),
    "measure_box_muller": (lambda c: measured(c, noise_kinds.BOX_MULLER), 2),
    "measure_discrete": (lambda c: measured(c, noise_kinds.DISCRETE), 2),
    "measure_distributed": (lambda c: measured(c, noise_kinds.DISTRIBUTED), 2),
}


async def rotated(ctx: Context, program: Protocol) -> object:
    return await program(ctx.child(rotate=1))


@pytest.mark.parametrize("party", [0, 1, 2])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_view_is_uniform(name: str, party: int) -> None:
    program, opened = PROTOCOLS[name]
    assert find_leak(bits_received(program, party, opened=opened)) is None


@pytest.mark.slow
@pytest.mark.parametrize("party", [0, 1, 2])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_view_is_uniform_in_many_runs(name: str, party: int) -> None:
    program, opened = PROTOCOLS[name]
    assert find_leak(bits_received(program, party, opened=opened, runs=MANY_RUNS)) is None


@pytest.mark.parametrize("party", [0, 1, 2])
def test_random_is_known_to_nobody(party: int) -> None:
    """A party's own keys leave each of the values as it would be without them."""

    async def program(ctx: Context) -> Share:
        return base.random(ctx, R64, (1,))

    values = [
        reconstruct(run_parties(program, variant=v, known_to=party).results) for v in range(RUNS)
    ]
    assert find_leak(np.unpackbits(np.array(values).view(np.uint8), axis=1)) is None


async def noise_above_its_median(ctx: Context, count: int) -> Share:
    return await gumbel.gumbel(ctx, count) - round(-np.log(np.log(2)) * 2**28)


# Noise and choices, and how many different ones there are at least, by sample, in 40 runs.
UNKNOWN: dict[str, tuple[Protocol, float]] = {
    "discrete_gaussian": (lambda c: discrete.discrete_gaussian(c, 64, discrete.Sampler.of(3.0)), 5),
    "discrete_gaussian-sum": (
        lambda c: discrete.discrete_gaussian(c, 64, discrete.Sampler.of(200.0)),
        25,
    ),
    "discrete_laplace": (
        lambda c: laplace.discrete_laplace(c, 64, laplace.LaplaceSampler.of(3.0)),
        5,
    ),
    "gaussian": (lambda c: box_muller.gaussian(c, 64), 40),
    "gumbel": (lambda c: noise_above_its_median(c, 64), 40),
}


@pytest.mark.parametrize("party", [0, 1, 2])
@pytest.mark.parametrize("name", UNKNOWN)
def test_samples_are_known_to_nobody(name: str, party: int) -> None:
    """With a party's keys fixed, each sample still takes both signs evenly and many magnitudes.

    Positive ones by sample, as a chi-square statistic of 64 degrees of freedom; beyond 128 once in 10^5.
    """
    program, least = UNKNOWN[name]
    runs = 40
    rows = [
        reconstruct(run_parties(program, variant=v, known_to=party).results) for v in range(runs)
    ]
    z = np.array(rows)
    z = z.view(np.dtype(f"i{z.itemsize}"))
    positive, nonzero = (z > 0).sum(axis=0), np.maximum((z != 0).sum(axis=0), 1)
    assert float(((positive - nonzero / 2) ** 2 / (nonzero / 4)).sum()) < 128
    assert np.mean([len(set(column)) for column in np.abs(z).T]) >= least


@pytest.mark.parametrize("party", [0, 1, 2])
def test_choice_is_known_to_nobody_before_it_is_opened(party: int) -> None:
    """With a party's keys fixed, equal candidates are still all chosen: fewer than 4 of 6 once in 10^6."""
    spec = spec_of([1] * 6)
    parts = secret(R32, *[3] * 6)
    chosen = {
        run_parties(
            lambda c: select_module.select(c, share_of(c, parts, R32), spec),
            variant=v,
            known_to=party,
        ).results[party]
        for v in range(25)
    }
    assert len(chosen) >= 4


@pytest.mark.parametrize("party", [0, 1, 2])
def test_verdicts_are_all_that_a_view_tells_of_owners(party: int) -> None:
    """Honest owners of other tables leave the same opening, and a view in which each bit is a coin as before."""
    seen = set()
    for table in ([[0, 0], [0, 0]], [[1000, 3], [1000, 3]]):
        parts = components(R32, np.array(table))
        outcome = run_parties(lambda c, parts=parts: verdicts(c, parts))
        seen.add(tuple(outcome.parties[party].opened_values))
        # The two last messages are the opening's: the value masked by what the party holds, and its digest.
        bits = bits_received(lambda c, parts=parts: verdicts(c, parts), party, opened=2)
        assert find_leak(bits) is None
    assert len(seen) == 1


def test_view_of_some_party_is_never_empty() -> None:
    """A control of the test itself: each protocol sends something to somebody."""
    for name, (program, opened) in PROTOCOLS.items():
        assert any(
            bits_received(program, party, opened=opened, runs=1).size for party in range(3)
        ), name


def no_zero_share(ctx: Context, ring: Ring, shape: tuple[int, ...]) -> RingArray:
    return ring.zeros(shape)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (
            base,
            [
                *("multiply", "inner_product", "and", "msb", "bits_to_ring", "words_to_ring"),
                *("check_totals", "check_cells", "bits_into_ring", "lift_half", "count_rows"),
                *("is_less", "runs"),
            ],
        ),
        (fixed, ["truncate-64"]),
    ],
    ids=["reshare", "truncate"],
)
def test_view_without_the_zero_share_is_rejected(
    module: object, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug of a well-known library: products are sent as they are. Results stay right, the view gives it away."""
    monkeypatch.setattr(module, "zero", no_zero_share)
    for name in names:
        program, opened = PROTOCOLS[name]
        assert any(find_leak(bits_received(program, party, opened=opened)) for party in range(3)), (
            name
        )


def test_view_without_the_input_mask_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Context, "common", lambda self, component, ring, shape: ring.zeros(shape))
    for name in ("share_input-0", "share_input-1", "share_input-2"):
        assert any(
            find_leak(bits_received(PROTOCOLS[name][0], party, opened=0)) for party in range(3)
        ), name


def test_view_without_the_masks_that_are_drawn_in_place_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Context, "subtract_common", lambda self, component, ring, x: None)
    for name in ("msb", "absolute"):
        assert any(
            find_leak(bits_received(PROTOCOLS[name][0], party, opened=0)) for party in range(3)
        ), name


def test_view_of_a_shuffle_without_its_masks_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Permutations and keys of tags stay as they are; what is sent under no keystream shows."""
    original = Context.common

    def no_masks(self: Context, component: int, ring: Ring, shape: tuple[int, ...]) -> RingArray:
        if len(shape) == 2:
            return ring.zeros(shape)
        return original(self, component, ring, shape)

    monkeypatch.setattr(Context, "common", no_masks)
    for name in ("shuffle", "shuffle with tags"):
        program, opened = PROTOCOLS[name]
        assert any(find_leak(bits_received(program, party, opened=opened)) for party in range(3))


def test_view_without_the_private_mask_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Context, "private", lambda self, ring, shape: ring.zeros(shape))
    for name in ("truncate-64", "words_to_ring"):
        assert any(
            find_leak(bits_received(PROTOCOLS[name][0], party, opened=0)) for party in range(3)
        ), name


def test_view_with_a_mask_used_twice_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two children of a context that draw from one stream's beginning."""
    parts = components(BITS, from_bits(np.ones((2, 64), np.uint8)).ravel())
    assert words_for(64) == 1

    async def twice(ctx: Context) -> None:
        for child in (ctx.child(), ctx.child()):
            await base.reshare(child, share_of(ctx, parts, BITS).additive(child))

    assert all(find_leak(bits_received(twice, party, opened=0)) is None for party in range(3))
    original = Context._stream

    def same_stream(self: Context, component: int) -> Keystream:
        return original(Context(self._transport, b"always the same"), component)

    monkeypatch.setattr(Context, "_stream", same_stream)
    assert all(find_leak(bits_received(twice, party, opened=0)) for party in range(3))
