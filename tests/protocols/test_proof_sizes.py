"""Sizes of proofs' messages: those of real checks pass, and a message that is larger or smaller does not."""

from functools import cache

import numpy as np
import pytest

from protocols import base, costs
from protocols.context import Context
from protocols.derived import bits_to_ring
from protocols.proof_sizes import CARRIES, FORMER_SIZES, SIZES, Told, most_gates, problem_of
from protocols.ring import BITS, R32, R64, R128
from protocols.verify import ProductVerifier
from protocols.verify_bits import blocks_for, folded_terms
from tests.protocols.local import run_parties
from tests.protocols.test_verify_tables import table_of

STEP = "test.verify"


async def gates(ctx: Context) -> None:
    x_bsh = base.random(ctx, BITS, (70, 40))
    await base.multiply(ctx, x_bsh, x_bsh)


async def few_gates(ctx: Context) -> None:
    x_bsh = base.random(ctx, BITS, (3,))
    await base.multiply(ctx, x_bsh, x_bsh)


async def rings(ctx: Context) -> None:
    for ring in (R32, R64, R128):
        x_sh = base.random(ctx, ring, (50,))
        await base.multiply(ctx, x_sh, x_sh)


async def ring_of_words(ctx: Context) -> None:
    x_sh = base.random(ctx, R64, (50,))
    await base.multiply(ctx, x_sh, x_sh)


async def both(ctx: Context) -> None:
    await gates(ctx)
    await bits_to_ring(ctx, base.random(ctx, BITS, (70, 1)), 70, R32)


async def tables(ctx: Context) -> None:
    await table_of(ctx, rows=37)


async def tables_and_rings(ctx: Context) -> None:
    await rings(ctx)
    await table_of(ctx, rows=5)


PROGRAMS = {
    "gates": gates,
    "few gates": few_gates,
    "rings": rings,
    "ring of words": ring_of_words,
    "both": both,
    "tables": tables,
    "tables and rings": tables_and_rings,
}


@cache
def sizes(name: str) -> tuple[Told, ...]:
    """Messages of the three parties in one check."""

    async def checked(ctx: Context) -> None:
        ctx.verifier = ProductVerifier()
        with ctx.step("test") as c:
            await PROGRAMS[name](c)
            await ctx.verifier.settle(c)

    sent = [m for m in run_parties(checked).mesh.sent if m.step == STEP]
    told = []
    for pid in range(3):
        before, following = (
            tuple(len(m.payload) for m in sent if (m.sender, m.receiver) == (pid, peer % 3))
            for peer in (pid - 1, pid + 1)
        )
        told.append(Told(before, following))
    return tuple(told)


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_of_a_check_are_those_of_the_formulas(name: str) -> None:
    assert problem_of(sizes(name)) is None


def test_sizes_of_elements_of_a_former_field_are_those_of_former_messages_alone() -> None:
    """Its elements had nine words, and its steps as many blocks as those of a field of four."""
    now, former = 4, 9
    last = {16 * now: 16 * former}
    told = []
    for each in sizes("ring of words"):
        matrices = {size: size // now * former for size in each.next if size in SIZES.matrices}
        assert last.keys() <= set(each.before)
        assert len(matrices) > 1
        told.append(
            Told(
                [last.get(size, size) for size in each.before],
                [matrices.get(size, size) for size in each.next],
            )
        )
    assert problem_of(told, FORMER_SIZES) is None
    assert problem_of(told) is not None
    assert problem_of(sizes("ring of words"), FORMER_SIZES) is not None


@pytest.mark.parametrize("words", [1, 24, 25, 384, 385, 2048, 2049, 24 * 4 * 16, 24 * 4 * 16 + 64])
def test_most_gates_are_as_many_as_were_proved_and_16_times_as_many_at_most(words: int) -> None:
    told = Told((), (96, *matrices(words), 1))
    assert words <= most_gates(told) <= max(24, 16 * (words + 64))
    assert most_gates(Told((), (96, *matrices(words)[:1], 1))) == 0
    assert most_gates(Told((), (96, 1))) == 0


def matrices(words: int) -> list[int]:
    """Bytes that a prover of so many words of gates sends: ``costs.verify_gates``, step by step."""
    sizes, count = [blocks_for(words), 16], folded_terms(words)
    while count > 24:
        sizes.append(16)
        count = -(-count // 16)
    found = [8 * (size * size - 1) for size in (*sizes, count + 1)]
    assert sum(found) + 32 == costs.verify_gates(words).sent[0]
    return found


@pytest.mark.parametrize("more", [-4, -1, 1, 8, 1000])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_message_of_another_size_is_found(name: str, more: int) -> None:
    """All but quotients, whose sizes go by how much was multiplied, and what other numbers of products would have."""
    told = sizes(name)
    for pid in range(3):
        for to_next in (False, True):
            said = list(told[pid].next if to_next else told[pid].before)
            for number, size in enumerate(said):
                inner, known = 0 < number < len(said) - 1, SIZES.matrices | CARRIES
                may_be = size not in known or size + more in known
                if to_next and inner and more % 4 == 0 and may_be:
                    continue
                changed = [*said[:number], size + more, *said[number + 1 :]]
                pair = (told[pid].before, changed) if to_next else (changed, told[pid].next)
                found = problem_of([Told(*pair) if p == pid else told[p] for p in range(3)])
                assert found is not None, (pid, to_next, number, size)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_message_more_or_less_is_found(name: str) -> None:
    told = sizes(name)
    for pid in range(3):
        for said in (told[pid].before, told[pid].next):
            for number in range(len(said)):
                for changed in (
                    [*said[:number], *said[number + 1 :]],
                    [*said[:number], *said[number:][:1], *said[number:]],
                ):
                    pair = (
                        (changed, told[pid].next)
                        if said is told[pid].before
                        else (told[pid].before, changed)
                    )
                    assert problem_of([Told(*pair) if p == pid else told[p] for p in range(3)])


def test_carries_are_no_matrices() -> None:
    assert not (SIZES.matrices | FORMER_SIZES.matrices) & CARRIES
    assert all(np.array(sorted(SIZES.matrices)) % 8 == 0)
