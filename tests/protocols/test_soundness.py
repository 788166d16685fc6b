"""Frequency of lies that pass a proof whose challenges come from small sets: as README section 7 says.

A party adds something to one element that it sends, and goes on as if it were right. The matrix that the two others
have of it in each step is then wrong in the one place that the claim decides; so with challenges from s numbers a step
passes the lie where alpha or beta is 0 there, with 1 - (1 - 1/s)^2, which is nearly all of the 2 / s of the derivation.
Real sets have 2^45 elements and more.

Statistic: how many of n = 150 proofs of a lie pass. It is off by more than 4.5 standard deviations once in 10^5.
Controls: the chance with a set of twice the size is rejected by the same count, and without a lie every proof passes.
"""

import math
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from protocols import base, verify_bits, verify_tables
from protocols.context import Context
from protocols.errors import CheckFailed
from protocols.galois import DEGREE, Elements
from protocols.keystream import Keystream
from protocols.mersenne import Field, Integers, Vector
from protocols.records import Record, Side, Structure, flags
from protocols.ring import BITS, R16, R32, RingArray
from protocols.shares import Additive, Entries, Share, outer_product, product
from protocols.verify_bits import Gates, prove_gates
from protocols.verify_rings import RingProducts, prove_ring_products
from protocols.verify_tables import RowTables, prove_tables
from tests.protocols.local import run_parties

PROOFS, HONEST, FAR = 150, 15, 4.5
LIAR = 0

Proof = Callable[[Context, int], Awaitable[None]]
"""Of a value to whose first element the liar adds a number."""


class _Remembering:
    """A context in which products remember what they are made of, and nobody has to be told."""

    verifier = object()


async def _reshared(ctx: Context, z_add: Additive, added: int) -> Record:
    """``base.reshare`` with a lie, and its record."""
    ring, shape = z_add.ring, z_add.shape
    masks_sh = base.random(ctx, ring, shape)
    own = z_add.masked(ring.sub(masks_sh.own, masks_sh.next))
    if ctx.pid == LIAR:
        own[:1] = ring.add(own[:1], ring.encode(added))
    wire = ring.to_wire(own)
    received = await ctx.round({ctx.prev_pid: wire}, {ctx.next_pid: wire.size})
    z_sh = Share(ring, ctx.pid, own, ring.from_wire(received[ctx.next_pid], shape))
    return Record(z_add.known_origins(), masks_sh, z_sh)


async def gates(ctx: Context, added: int) -> None:
    x_bsh, y_bsh = (base.random(ctx, BITS, (1,)) for _ in range(2))
    await prove_gates(
        ctx, Gates([await _reshared(ctx, product(_Remembering(), x_bsh, y_bsh), added)])
    )


async def ring_products(ctx: Context, added: int) -> None:
    x_sh, y_sh = (base.random(ctx, R32, (3,)) for _ in range(2))
    records = [await _reshared(ctx, product(_Remembering(), x_sh, y_sh), added)]
    known = flags(records, Side.OWN)
    await prove_ring_products(ctx, RingProducts(R32, records, Structure.of(records, known, known)))


async def tables(ctx: Context, added: int) -> None:
    x_sh, y_sh = (base.random(ctx, R16, (2, 1)) for _ in range(2))
    entries = Entries(1, 0), Entries(2, 0)
    term = outer_product(_Remembering(), x_sh, y_sh).of_table(entries, 0).padded(0, 4)
    await prove_tables(ctx, RowTables([await _reshared(ctx, term, added)]))


def passed(proof: Proof, added: int, proofs: int = PROOFS) -> int:
    """Number of proofs that nobody finds wrong."""

    async def program(ctx: Context) -> list[bool]:
        return [await _passes(proof(ctx.child(), added)) for _ in range(proofs)]

    return sum(map(all, zip(*run_parties(program).results, strict=True)))


async def _passes(proof: Awaitable[None]) -> bool:
    try:
        await proof
    except CheckFailed:
        return False
    return True


def is_by_chance(count: int, chance: float) -> bool:
    """Returns True if so many of all proofs may pass, each with this chance."""
    deviation = math.sqrt(PROOFS * chance * (1 - chance))
    return abs(count - PROOFS * chance) <= FAR * deviation


def check(proof: Proof, added: int, chance: float, of_twice_the_set: float) -> None:
    count = passed(proof, added)
    assert is_by_chance(count, chance)
    assert not is_by_chance(count, of_twice_the_set)
    assert passed(proof, 0, HONEST) == HONEST


def after(*chances: float) -> float:
    """Of passing one of several steps."""
    return 1 - math.prod(1 - chance for chance in chances)


def of_step(size: int) -> float:
    """Of passing a step, with challenges from so many numbers."""
    return after(1 / size, 1 / size)


def test_lie_of_a_gate_passes_the_first_step_as_often_as_derived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def small(stream: Keystream, field: Field, count: int) -> Integers:
        return stream.read(count).astype(object) % 4

    monkeypatch.setattr(verify_bits, "drawn_digits", small)
    check(gates, 1, of_step(4), of_step(8))


def test_lie_of_a_gate_passes_the_later_steps_as_often_as_derived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second and the last one, whose challenges are of the field."""

    def small(self: Field, read: Callable[[int], Vector], count: int) -> Integers:
        return (read(count)[:, 0] % 4).astype(object)

    monkeypatch.setattr(Field, "uniform", small)
    check(gates, 1, after(of_step(4), of_step(4)), after(of_step(8), of_step(8)))


def test_lie_of_a_ring_product_passes_two_sums_as_often_as_derived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Coefficients of 64 - 32 bits: of an error of 2^31 they leave one bit in each sum."""
    drawn = RingProducts.coefficients

    def short(self: RingProducts, stream: Keystream) -> list[RingArray]:
        return [row << np.uint64(32) for row in drawn(self, stream)]

    monkeypatch.setattr(RingProducts, "coefficients", short)
    check(ring_products, 1 << 31, 1 / 4, 1 / 16)


@pytest.mark.parametrize("added", [1, 1 << 15])
def test_lie_of_a_table_passes_as_often_as_derived(
    added: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any power of 2 in the lie: by its two weights, or by the factor that makes one row of two."""

    def small(stream: Keystream, count: int) -> Elements:
        found = np.zeros((DEGREE, count), np.uint16)
        found[:2] = stream.read(2 * count).reshape(2, count) & 1
        return found

    monkeypatch.setattr(verify_tables, "drawn", small)
    check(tables, added, after(of_step(4), 1 / 4), after(of_step(8), 1 / 8))
