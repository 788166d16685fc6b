"""Origins of additive terms: a verifier hears the truth about every value, and without one nothing is kept."""

import gc
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from protocols import (
    absolute,
    base,
    boolean,
    bounded,
    conversions,
    count_bits,
    discrete,
    fixed,
    free,
    lookup,
    measure,
    noise_kinds,
    random_bits,
    rows,
)
from protocols import select as select_module
from protocols.context import Context, Payload
from protocols.products import NumpyProducts
from protocols.ring import BITS, R16, R32, R64, R128, Ring, RingArray
from protocols.row_plan import plan_counting
from protocols.shares import Additive, Origin, Origins, Share, Table, joined, product
from tests.protocols.local import LocalParty, components, reconstruct, run_parties, share_of

Program = Callable[[Context], Awaitable[object]]


@dataclass(eq=False)
class Notes:
    """A verifier that keeps all that it is told: origins and result by place, and how masked values were shown."""

    told: dict[bytes, tuple[Origins, Share]] = field(default_factory=dict)
    masks: list[Share] = field(default_factory=list)
    compared: list[tuple[bytes, bytes]] = field(default_factory=list)

    def reshared(self, place: bytes, origins: Origins, masks_sh: Share, z_sh: Share) -> None:
        self._keep(place, origins, z_sh)
        self.masks.append(masks_sh)

    def shown(self, place: bytes, held: Payload, received: Payload) -> None:
        self.compared.append((held.tobytes(), received.tobytes()))

    async def settle(self, ctx: Context) -> None:
        pass

    def _keep(self, place: bytes, origins: Origins, z_sh: Share) -> None:
        assert place not in self.told, "two values in one place"
        self.told[place] = origins, z_sh


def notes_of(program: Program, *, rotate: int = 0) -> list[Notes]:
    """Notes of the three parties' verifiers on a run."""
    notes = [Notes() for _ in range(3)]

    async def verified(ctx: Context) -> object:
        ctx.verifier = notes[(ctx.pid + rotate) % 3]
        return await program(ctx)

    run_parties(verified, rotate=rotate)
    assert notes[0].told.keys() == notes[1].told.keys() == notes[2].told.keys()
    return notes


def recomputed(ring: Ring, origins: tuple[Origins, ...]) -> RingArray:
    """The value that three parties' origins describe, from the values of the operands."""
    assert len({len(parts) for parts in origins}) == 1
    total: RingArray = ring.zeros(())
    for parties in zip(*origins, strict=True):
        value = reconstruct([origin.left for origin in parties])
        if isinstance(parties[0], Table):
            total = ring.add(total, of_table(ring, parties))
            continue
        if parties[0].right is not None:
            value = ring.mul(value, reconstruct([origin.right for origin in parties]))
        for step in parties[0].maps:
            value = step(ring, value)
        total = ring.add(total, value)
    return total


def of_table(ring: Ring, parties: tuple[Origin, ...]) -> RingArray:
    """Contribution of a table to a value of as many entries as it has, by row or summed: counted here from 0."""
    table = parties[0]
    assert isinstance(table, Table)
    left, right = (
        reconstruct([share for share in shares if share is not None])
        for shares in ([t.left for t in parties], [t.right for t in parties])
    )
    grid = (left[:, None] * right[None]).reshape(-1, left.shape[1])
    if table.doubled:
        grid = 2 * grid.sum(axis=1, dtype=np.uint16)
    found = ring.zeros((table.size, *grid.shape[1:]))
    found[table.start : table.start + len(grid)] = grid
    return found


def wrong(notes: list[Notes]) -> int:
    """In how many places the value is not the one that its origins describe."""
    count = 0
    for place in notes[0].told:
        origins, shares = zip(*(party.told[place] for party in notes), strict=True)
        expected, value = recomputed(shares[0].ring, origins), reconstruct(shares)
        assert expected.shape == value.shape
        count += not np.array_equal(expected, value)
    return count


SIZES = np.array([2, 30, 3, 17, 8, 1, 4, 40] * 3)
CELLS = int(SIZES.sum())
SPEC = SimpleNamespace(
    sizes=SIZES,
    answers=np.full(CELLS, 320, np.uint32),
    gains=(1 << 20,) * SIZES.size,
    offsets=tuple(range(SIZES.size)),
    max_rows=1000,
)
COUNTS = components(R32, np.arange(CELLS) % 13)
LARGE = components(R64, np.arange(-4, 5) * (1 << 40) + 12345)
WORDS = components(BITS, np.arange(15, dtype=np.uint64).reshape(5, 3) * 0x1234567)


PLAN = plan_counting((3, 6, 1, 40), ((0, 1), (1, 2, 3), (0, 3)))
ROWS = components(BITS, np.arange(36, dtype=np.uint64).reshape(12, 3) * 0x9E3779B97F4A7C15)
DOUBLED = components(R16, np.arange(70) * 2)
PRODUCTS = NumpyProducts(1)


def counts(ctx: Context) -> Share:
    return share_of(ctx, COUNTS, R32)


async def measured(ctx: Context, kind: str) -> object:
    return await measure.measure(ctx, counts(ctx)[:40], 2.0, 1000, measure.noise_of(kind))


async def errors_of_bits(ctx: Context) -> Share:
    x_sh, sizes = counts(ctx)[:100], np.array([64, 36])
    kept = await count_bits.count_bits(ctx, x_sh, 12)
    return await absolute.grouped_error_of_bits(
        ctx, x_sh, kept, SPEC.answers[:100], sizes, fraction_bits=6, bits=18
    )


PROGRAMS: dict[str, Program] = {
    "multiply": lambda c: base.multiply(c, counts(c), counts(c)),
    "inner_product": lambda c: base.inner_product(c, counts(c), counts(c)),
    "carry_out": lambda c: boolean.carry_out(c, share_of(c, WORDS, BITS), share_of(c, WORDS, BITS)),
    "lift_magnitude": lambda c: boolean.lift_magnitude(c, counts(c), 18, R128),
    "check_totals": lambda c: bounded.check_totals(c, counts(c)[:60].reshape(4, 15), 100),
    "check_cells": lambda c: bounded.check_cells(c, counts(c)[:60].reshape(4, 15), 100),
    "random_bits": lambda c: random_bits.random_bits(c, 70, R32),
    "carry_save": lambda c: free.carry_save(c, counts(c), 20, 19),
    "lift_half": lambda c: conversions.lift_half(c, share_of(c, DOUBLED, R16)),
    "count_rows": lambda c: rows.count_rows(
        c, share_of(c, ROWS, BITS), 150, PLAN, products=PRODUCTS
    ),
    "errors_of_bits": lambda c: errors_of_bits(c),
    "one_hot": lambda c: lookup.one_hot(c, share_of(c, WORDS, BITS)),
    "truncate": lambda c: fixed.truncate(c, share_of(c, LARGE, R64).additive(c), 20),
    "discrete_gaussian": lambda c: discrete.discrete_gaussian(c, 70, discrete.Sampler.of(3.0)),
    "select": lambda c: select_module.select(c, counts(c), SPEC),
    "measure_box_muller": lambda c: measured(c, noise_kinds.BOX_MULLER),
}


@pytest.mark.parametrize("rotate", [0, 1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_origins_describe_every_value(
    name: str, rotate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several blocks, in rotated roles, end in one reshared value.
    monkeypatch.setattr(absolute, "BLOCK_CELLS", 64)
    notes = notes_of(PROGRAMS[name], rotate=rotate)
    assert notes[0].told
    assert wrong(notes) == 0


def test_origins_disagree_with_a_value_that_was_tampered_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: party 1 adds one to what it sends in a multiplication, and to its own component."""
    masked = Additive.masked
    calls = []

    def adding(self: Additive, mask: RingArray) -> RingArray:
        calls.append(self)
        own = masked(self, mask)
        return own + np.uint32(1) if len(calls) == 2 else own

    monkeypatch.setattr(Additive, "masked", adding)
    assert wrong(notes_of(PROGRAMS["multiply"])) == 1


def test_joined_and_padded_terms_say_where_their_operands_went() -> None:
    first, second = components(R32, [1, 2, 3]), components(R32, [40, 50], seed=8)

    async def program(ctx: Context) -> Share:
        x_sh, y_sh = share_of(ctx, first, R32), share_of(ctx, second, R32)
        both = joined(product(ctx, x_sh, x_sh), product(ctx, y_sh, y_sh))
        grouped = both.grouped(np.array([0, 2]))
        return await base.reshare(ctx, grouped.padded(1, 4) + Additive.zeros(R32, (4,)))

    assert wrong(notes_of(program)) == 0
    assert reconstruct(run_parties(program).results).tolist() == [0, 5, 9 + 1600 + 2500, 0]


def test_reshare_refuses_terms_of_unknown_origin_where_there_is_a_verifier() -> None:
    async def program(ctx: Context) -> Share:
        x_sh = counts(ctx)
        unknown = product(ctx, x_sh, x_sh)
        ctx.verifier = Notes()
        return await base.reshare(ctx, unknown + x_sh.additive(ctx))

    with pytest.raises(ValueError, match="nobody knows"):
        run_parties(program)


def test_terms_of_other_shapes_are_not_added() -> None:
    place = SimpleNamespace(verifier=None)
    x_sh = Share(R32, 0, *(np.zeros(3, np.uint32) for _ in range(2)))
    with pytest.raises(TypeError, match="combine"):
        x_sh.additive(place) + x_sh[:1].additive(place)


@pytest.mark.parametrize("verified", [False, True], ids=["semi-honest", "verified"])
def test_operands_are_kept_only_for_a_verifier_and_until_it_has_been_told(verified: bool) -> None:
    """A sum of a thousand products is one element; its operands go at once, or when a verifier has dealt with it."""

    class Forgetful(Notes):
        def _keep(self, place: bytes, origins: Origins, z_sh: Share) -> None:
            assert len(origins) == 1

    seen: list[tuple[bool, bool]] = []

    async def program(ctx: Context) -> Share:
        ctx.verifier = Forgetful() if verified else None
        x_sh = base.random(ctx, R64, (1000,))
        operand = weakref.ref(x_sh.own)
        sum_add = product(ctx, x_sh, x_sh).sum()
        del x_sh
        gc.collect()
        before = operand() is not None
        z_sh = await base.reshare(ctx, sum_add)
        del sum_add
        gc.collect()
        seen.append((before, operand() is not None))
        return z_sh

    run_parties(program)
    assert seen == [(verified, False)] * 3


def test_reshare_drops_the_terms_before_the_message_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing refers to the unmasked terms, nor to what they are made of, while a party waits."""
    terms: list[weakref.ref[RingArray]] = []
    fetch = LocalParty.fetch

    async def looking(self: LocalParty, *arguments: object) -> object:
        assert all(term() is None for term in terms[self.pid : self.pid + 1])
        return await fetch(self, *arguments)  # type: ignore[arg-type]

    async def program(ctx: Context) -> Share:
        x_sh = counts(ctx)
        z_add = product(ctx, x_sh, x_sh)
        terms.append(weakref.ref(z_add._term))
        handed = base.reshare(ctx, z_add)
        del z_add
        return await handed

    monkeypatch.setattr(LocalParty, "fetch", looking)
    run_parties(program)
    assert len(terms) == 3
