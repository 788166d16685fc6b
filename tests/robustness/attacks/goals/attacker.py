"""A deviating server: its messages, the values that it learns, and the moment at which it leaves.

``Attacker`` acts as an honest server; subclasses override parts of it. ``deviating`` makes the server of the current
task the attacker, and ``changed`` replaces a function for that server alone: the three servers share one process, and
the task tells them apart. All values here are public.
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
    """Raised when the deviating server leaves, by a kill or a stop of its operator."""


class Attacker:
    """A server that acts honestly; subclasses override what their goal needs.

    A ``turn`` other than 0 makes the model of an attacking lead another one.
    """

    turn = 0

    def says(self, step: StepCost, payload: bytes) -> bytes:
        """Returns the payload that both peers receive, and that the attacker goes on with, in place of ``payload``."""
        return payload

    def tells_next(self, step: StepCost, payload: bytes) -> bytes:
        """Returns the payload that the next server alone receives."""
        return payload

    def learns(self, step: StepCost, what: str, value: RingArray) -> None:
        """Receives an opened value before the attacker has sent its own component; may raise Left."""

    def sends(self, step: StepCost, payload: Payload) -> Payload | None:
        """Returns the payload of an own message just before it is sent; None drops the message."""
        return payload


_ATTACKER: ContextVar[Attacker | None] = ContextVar("attacker", default=None)


def is_deviating() -> bool:
    """Returns True in the task of the deviating server."""
    return _ATTACKER.get() is not None


@contextmanager
def deviating(attacker: Attacker | None) -> Iterator[None]:
    """Makes ``attacker`` the server of the current task; None stands for an honest server."""
    token = _ATTACKER.set(attacker)
    try:
        yield
    finally:
        _ATTACKER.reset(token)


def changed(owner: object, name: str, other: Callable[..., object]) -> Any:
    """Returns a patch: the deviating server calls ``other(original, *arguments)``, all others call the original."""
    honest = getattr(owner, name)

    def chosen(*arguments: object, **named: object) -> object:
        if is_deviating():
            return other(honest, *arguments, **named)
        return honest(*arguments, **named)

    return patch.object(owner, name, chosen)


@contextmanager
def hooked() -> Iterator[None]:
    """Installs the attacker's hooks for messages sent, broadcast and opened."""
    with ExitStack() as stack:
        for patched in (
            changed(Context, "exchange", _exchanged),
            changed(Context, "_post_public", _posted),
            changed(PartyRuntime, "post", _sent),
            # The attacker does not end its own run with an error about peers that heard its lie.
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
    """Replaces ``protocols.base.open_value``: the attacker's own component is sent last."""
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
