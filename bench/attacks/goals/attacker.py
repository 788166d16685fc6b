"""A server that deviates: what it says, to whom, what it waits for, and when it leaves.

Provides ``Attacker``, which does as an honest server would, ``deviating``, within which a server is one, and
``changed``, a function that is another one for it. The three servers share a process: who of them is meant goes by the
task. Public.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

import numpy as np

from protocols import echo, measure, select
from protocols import sort as sorting
from protocols.context import MAX_PUBLIC_BYTES, Context, Payload, StepCost
from protocols.digests import DIGEST_BYTES
from protocols.ring import RingArray
from protocols.runtime import PartyRuntime
from protocols.shares import Share

P = ParamSpec("P")
R = TypeVar("R")


class Left(Exception):
    """The deviating server has left: it is killed, or its operator stops it."""


class Attacker:
    """A server that does as it should; what wants something overrides some of it.

    ``turn`` makes its model another one, where it leads.
    """

    turn = 0

    def says(self, step: StepCost, payload: bytes) -> bytes:
        """What it tells both others, and goes on with itself, in place of ``payload``."""
        return payload

    def tells_next(self, step: StepCost, payload: bytes) -> bytes:
        """What it tells the server after it, and nobody else."""
        return payload

    def learns(self, step: StepCost, what: str, value: RingArray) -> None:
        """What it opens before it has shown its own component: it may leave then."""

    def sends(self, step: StepCost, payload: Payload) -> Payload | None:
        """A message of its own, just before it goes; None where it does not."""
        return payload


_ATTACKER: ContextVar[Attacker | None] = ContextVar("attacker", default=None)


def is_deviating() -> bool:
    """Whether it is the deviating server that asks."""
    return _ATTACKER.get() is not None


@contextmanager
def deviating(attacker: Attacker | None) -> Iterator[None]:
    """The server of this task is ``attacker``; None for one that does as it should."""
    token = _ATTACKER.set(attacker)
    try:
        yield
    finally:
        _ATTACKER.reset(token)


def changed(owner: object, name: str, other: Callable[..., object]) -> Any:
    """A patch with which the deviating server does ``other(what was there, *arguments)``, and all others as ever."""
    honest = getattr(owner, name)

    def chosen(*arguments: object, **named: object) -> object:
        if is_deviating():
            return other(honest, *arguments, **named)
        return honest(*arguments, **named)

    return patch.object(owner, name, chosen)


@contextmanager
def hooked() -> Iterator[None]:
    """Whoever deviates within this is asked for what it says, sends and learns."""
    with ExitStack() as stack:
        for patched in (
            changed(Context, "exchange", _exchanged),
            changed(Context, "_post_public", _posted),
            changed(PartyRuntime, "post", _sent),
            # It does not leave first, with a complaint about who heard its lie.
            changed(echo, "_differ", lambda honest, *arguments: None),
            *(changed(module, "open_value", _rushed) for module in (select, measure, sorting)),
        ):
            stack.enter_context(patched)
        yield


def _attacker() -> Attacker:
    attacker = _ATTACKER.get()
    if attacker is None:
        raise RuntimeError("nobody deviates here")
    return attacker


def _exchanged(
    honest: Callable[..., Awaitable[list[bytes]]],
    ctx: Context,
    payload: bytes,
    *,
    max_bytes: int = MAX_PUBLIC_BYTES,
) -> Awaitable[list[bytes]]:
    return honest(ctx, _attacker().says(ctx.cost, payload), max_bytes=max_bytes)


def _posted(
    honest: Callable[..., None], ctx: Context, role: int, label: int, payload: bytes
) -> None:
    told = _attacker().tells_next(ctx.cost, payload) if role == ctx.next_pid else payload
    honest(ctx, role, label, told)


def _sent(
    honest: Callable[..., None],
    runtime: PartyRuntime,
    peer: int,
    label: int,
    payload: Payload,
    cost: StepCost,
) -> None:
    sent = _attacker().sends(cost, payload)
    if sent is not None:
        honest(runtime, peer, label, sent, cost)


async def _rushed(honest: object, ctx: Context, x_sh: Share, what: str) -> RingArray:
    """``protocols.base.open_value``, of whose messages its own go last."""
    if ctx.verifier is not None:
        await ctx.verifier.settle(ctx)
    ring, label, transport = x_sh.ring, ctx._next_label(), ctx._transport
    before, after = ctx._real(ctx.prev_pid), ctx._real(ctx.next_pid)
    wire = ring.to_wire(x_sh.own)
    missing = await transport.fetch(before, label, ctx.cost, wire.size)
    await transport.fetch(after, label, ctx.cost, DIGEST_BYTES)
    value = ring.add(ring.add(x_sh.own, x_sh.next), ring.from_wire(missing, x_sh.shape))
    _attacker().learns(ctx.cost, what, value)
    digest = hashlib.sha256(ring.to_wire(x_sh.next).data).digest()
    transport.post(after, label, wire, ctx.cost)
    transport.post(before, label, np.frombuffer(digest, np.uint8), ctx.cost)
    ctx.depth += 1
    ctx.record_opening(what, value, ring)
    return value
