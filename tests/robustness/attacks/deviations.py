"""Deviations of a party: changed messages, and computations with other numbers than the party holds.

``GENERIC`` lists deviations at one message of any protocol, ``STRUCTURED`` attacks with an aim, A to D. Party 0, which
knows x0 + x1, carries out the structured ones; some change a message that was found by trying. ``EQUIVOCATION`` sends
the second peer another payload than the first. All values here are public.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from unittest.mock import patch

import numpy as np

from protocols import absolute, boolean, count_bits, derived
from protocols.context import Context, Payload
from protocols.shares import Additive, Share
from protocols.steps import MEASURE_NOISE, SELECT_CHOOSE, SELECT_SCORES
from tests.robustness.attacks.mesh import Message, Program, Sent
from tests.robustness.attacks.programs import PROGRAMS, TABLE, choose


def _flipped(payload: Payload) -> Payload:
    """Returns the payload with its first bit flipped, for the receiver alone."""
    changed = payload.copy()
    changed[:1] ^= 1
    return changed


def _kept(payload: Payload) -> Payload:
    """Flips the last bit in place: the sender goes on with the changed value as well."""
    payload[-1:] ^= 1
    return payload


def _constant(payload: Payload) -> Payload:
    """Adds one to every 32-bit word in place: the sender goes on with the changed value as well."""
    if payload.size % 4 == 0:
        payload.view(np.uint32)[...] += np.uint32(1)
    return payload if payload.size % 4 == 0 else _kept(payload)


def _ones(payload: Payload) -> Payload:
    """Flips every bit in place: the sender goes on with the changed value as well."""
    payload ^= 0xFF
    return payload


def _zeros(payload: Payload) -> Payload:
    return np.zeros_like(payload)


def _nothing(payload: Payload) -> None:
    return None


CHANGES: Mapping[str, Callable[[Payload], Payload | None]] = {
    "flip": _flipped,
    "flip-kept": _kept,
    "constant": _constant,
    "ones": _ones,
    "zeros": _zeros,
    "silence": _nothing,
}
REPLAY, EQUIVOCATION, WRONG_OPENING = "replay", "equivocation", "wrong-opening"
GENERIC = (*CHANGES, REPLAY, EQUIVOCATION, WRONG_OPENING)


def applies(kind: str, sent: Sent) -> bool:
    """Returns True if the kind of change applies to a message: broadcasts and openings have changes of their own."""
    if kind == EQUIVOCATION:
        return sent.told_both
    return sent.opens if kind == WRONG_OPENING else sent.size > 0


@dataclass(slots=True)
class AtMessage:
    """A generic deviation at message ``number`` of a step; ``done`` is True once a message was changed."""

    kind: str
    step: str
    number: int
    done: bool = False
    _earlier: dict[int, Payload] = field(default_factory=dict)

    def __call__(self, message: Message) -> Payload | None:
        """See ``mesh.Deviation``."""
        before = message.payload.copy()
        if (message.sent.step, message.number) != (self.step, self.number):
            self._earlier[before.size] = before
            return message.payload
        if self.kind == REPLAY:
            # Replay: the previous message of the same size.
            sent: Payload | None = self._earlier.get(before.size, before)
        elif self.kind in (EQUIVOCATION, WRONG_OPENING):
            sent = _flipped(message.payload)
        else:
            sent = CHANGES[self.kind](message.payload)
        self.done = sent is None or not np.array_equal(sent, before)
        return sent


@dataclass(frozen=True, slots=True)
class Attack:
    """A structured attack: ``aim`` in words, the program, and the numbers that deviating party 0 computes with instead.

    An attack that changes a message has its ``step`` and the ``kind`` of change. ``wanted`` is the index whose opening
    means success, where that index is known.
    """

    aim: str
    program: Program
    other_numbers: Callable[[], AbstractContextManager[None]] | None = None
    step: str = ""
    kind: str = ""
    wanted: int | None = None


Operation = Callable[..., Awaitable[object]]


@contextmanager
def _with_other_counts(offsets: Sequence[int], product: Sequence[int]) -> Iterator[None]:
    """Gives party 0 other components 0 of the errors in the sign circuit, and in the product after it."""
    addends, leaves, signed = derived.addends, derived.carry_leaves, derived.signed

    async def other_addends(ctx: Context, x_sh: Share, bits: int, **how: bool) -> object:
        return await addends(ctx, _moved(ctx, x_sh, offsets), bits, **how)

    async def other_leaves(ctx: Context, x: derived.Summand, bits: int, *how: int) -> object:
        return await leaves(ctx, _moved_summand(ctx, x, offsets), bits, *how)

    async def other_signed(ctx: Context, v_bsh: Share, d: derived.Summand) -> Additive:
        return await signed(ctx, v_bsh, _moved_summand(ctx, d, product))

    with (
        patch.object(boolean, "addends", other_addends),
        patch.object(boolean, "carry_leaves", other_leaves),
        patch.object(count_bits, "addends", other_addends),
        patch.object(absolute, "signed", other_signed),
    ):
        yield


@contextmanager
def _with_another_comparison() -> Iterator[None]:
    """Gives party 0 another component 0 in the comparison of the noisy scores of candidates 0 and 1."""
    addends, leaves = derived.addends, derived.carry_leaves

    step = SELECT_CHOOSE.name

    async def other_addends(ctx: Context, x_sh: Share, bits: int, **how: bool) -> object:
        moved = _moved(ctx, x_sh, [1 << (bits - 1)], step=step)
        return await addends(ctx, moved, bits, **how)

    async def other_leaves(ctx: Context, x: derived.Summand, bits: int, *how: int) -> object:
        moved = _moved_summand(ctx, x, [1 << (bits - 1)], step=step)
        return await leaves(ctx, moved, bits, *how)

    with (
        patch.object(boolean, "addends", other_addends),
        patch.object(boolean, "carry_leaves", other_leaves),
    ):
        yield


def _moved(
    ctx: Context, x_sh: Share, offsets: Sequence[int], *, step: str = SELECT_SCORES.name
) -> Share:
    if ctx.pid != 0 or ctx.cost.step != step or not 0 < len(offsets) <= x_sh.size:
        return x_sh
    added = np.zeros(x_sh.size, object)
    added[: len(offsets)] = offsets
    ring = x_sh.ring
    encoded = ring.encode(added if ring.wide else added.astype(np.int64)).reshape(x_sh.shape)
    return Share(ring, x_sh.pid, ring.add(x_sh.own, encoded), x_sh.next)


def _moved_summand(
    ctx: Context, x: derived.Summand, offsets: Sequence[int], *, step: str = SELECT_SCORES.name
) -> derived.Summand:
    blank = x.ring.blank(x.mine.shape)
    moved = _moved(ctx, Share(x.ring, x.pid, x.mine, blank), offsets, step=step)
    return derived.Summand(x.ring, x.pid, moved.own)


_LARGE = 1 << 14


def threshold(count: int) -> Attack:
    """Returns attack A: the chosen index tells if the first count is at least ``count``.

    The error of candidate 0 becomes +-L + L, its sign that of 2^6 (x - count), and that of candidate 1 L / 2.
    """
    answer = 640
    # d + offset is 2^6 (x - count) in the first cell, and above 0 in all others.
    signs = [answer - 64 * count, *[_LARGE] * 4]
    sizes = [_LARGE, _LARGE, _LARGE // 2, 0, 0]
    return Attack(
        f"whether the first count is at least {count}",
        partial(choose, gain=1 << 21),
        partial(_with_other_counts, signs, sizes),
        # Candidate 0 if its error 0 is below 2 L; candidate 1, with error L / 2, if it is above 0.
        wanted=0 if TABLE[0] >= count else 1,
    )


STRUCTURED: Mapping[str, Attack] = {
    "A-below": threshold(int(TABLE[0]) + 1),
    "A-above": threshold(int(TABLE[0])),
    "B": Attack(
        "noise of another distribution", PROGRAMS["measure"], step=MEASURE_NOISE.name, kind="ones"
    ),
    "C-index": Attack(
        "a query of its choice", PROGRAMS["select"], step=SELECT_CHOOSE.name, kind="flip-kept"
    ),
    "C-counts": Attack(
        "shifted counts", PROGRAMS["measure"], step=MEASURE_NOISE.name, kind="constant"
    ),
    "D": Attack(
        "a comparison that comes out as it likes", PROGRAMS["select"], _with_another_comparison
    ),
}
