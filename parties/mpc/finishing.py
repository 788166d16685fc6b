"""The end of a run: the lead writes, and all three servers exchange digests and traffic and confirm that they are done.

Public: everything here.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mechanisms.aim import AimResult, Estimator
from parties.foundation.untrusted_text import parse_json
from parties.mpc.estimation import (
    LEAD,
    keepalive_interval_s,
    receive_after_keepalives,
    send_keepalives,
)
from parties.mpc.replay.effects import Effects
from parties.mpc.steps import DONE
from parties.mpc.storage.store import Store
from parties.mpc.transcript_schema import PUBLISHED
from parties.session.result_digests import ResultDigests
from parties.session.study import Study
from protocols.context import Context
from protocols.echo import echo
from protocols.errors import CheckFailed, ProtocolViolation


@dataclass(frozen=True, slots=True)
class LeadDuties:
    """Additional duties of the lead: the estimator of a study's model, and the writer of model and rows."""

    estimator: Callable[[Study], Estimator]
    write: Callable[[AimResult, Study], ResultDigests]


async def written(
    ctx: Context,
    work: Coroutine[Any, Any, ResultDigests],
    effects: Effects,
    receive_s: float,
) -> bytes:
    """Last message of the lead, after its ``work`` of writing; the others hear meanwhile that it is alive."""
    write = asyncio.ensure_future(work)
    await send_keepalives(ctx, write, keepalive_interval_s(receive_s), effects)
    return DONE + effects.once(PUBLISHED.what, lambda: write.result().to_bytes())


async def publish(ctx: Context, message: bytes | None) -> ResultDigests:
    """Digests of the lead's files, which every server seals; ``message`` is the lead's last one, None at a follower.

    Raises ProtocolViolation if it is malformed, or was told differently to the two followers.
    """
    if message is None:
        message = await receive_after_keepalives(ctx)
    else:
        await ctx.broadcast(LEAD, message)
    await echo(ctx, {LEAD: message})
    try:
        return ResultDigests.from_bytes(message.removeprefix(DONE))
    except ValueError as error:
        raise ProtocolViolation(f"the lead ended otherwise: {error}", LEAD) from error


async def exchange_traffic(
    ctx: Context, store: Store, effects: Effects, sent_by_step: Callable[[], Mapping[str, int]]
) -> dict[str, object]:
    """Traffic of all three servers: bytes sent by step, bytes forwarded, participants' bytes. All sizes are public."""
    mine = effects.once_json("traffic", lambda: _own_traffic(store, sent_by_step()))
    return read_traffic(await ctx.exchange(json.dumps(mine).encode()))


def read_traffic(answers: Sequence[bytes]) -> dict[str, object]:
    """Combines the three servers' reports of their traffic. Raises CheckFailed for a malformed report."""
    try:
        replies = [parse_json(reply) for reply in answers]
        steps = {step: None for reply in replies for step in reply["sent"]}
        return {
            "sent_by_step": {
                step: [int(reply["sent"].get(step, 0)) for reply in replies] for step in steps
            },
            "client_bytes": {
                "clients": max(int(reply["clients"]) for reply in replies),
                "sent": sum(int(reply["from_clients"]) for reply in replies),
                "received": sum(int(reply["to_clients"]) for reply in replies),
            },
            "passed_on_bytes": [int(reply["passed_on"]) for reply in replies],
        }
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckFailed("a server told its traffic in a form that is not understood") from error


def _own_traffic(store: Store, sent_by_step: Mapping[str, int]) -> dict[str, object]:
    received, sent = store.traffic.total_bytes()
    return {
        "sent": sent_by_step,
        "passed_on": store.outbox.passed_on()[0],
        "clients": store.submissions.count(),
        "from_clients": received,
        "to_clients": sent,
    }


async def confirm_done(ctx: Context) -> None:
    """Returns when all three servers are done. Raises ProtocolViolation if a server says something else."""
    for pid, word in enumerate(await ctx.exchange(DONE)):
        if word != DONE:
            raise ProtocolViolation(f"party {pid} does not say that it is done", pid)
