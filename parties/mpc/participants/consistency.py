"""Comparison of components: the two holders of each component of a submission must have the same one.

``compare_components`` returns an ``Accusation`` for each client that is to be excluded. Digests go round, each to the
next server, which holds the component as well. A server that finds a different digest than its own accuses the client
to both others; then both holders of that component show their digests, in all three transcripts.

The shown value is the digest under a key that only the two holders have (their common keystream): for the third server,
a plain digest of a component would be a test for guesses of the counts. The keyed digest still commits its writer: a
holder that gives the participant that key lets it see which of the two showed the digest of the component that it had
sent. Two holders that show the same digest contradict the accusation that one of them made before, and the run ends: no
server can drop a participant without showing a digest of its own.

Secret: digests of components, to the server that lacks the component. Public: accusations, and the shown digests.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parties.mpc.exclusion import Exclusion
from parties.mpc.records import StoredSubmission
from parties.mpc.steps import DIGEST_BYTES
from protocols.context import Context
from protocols.digests import KEY_BYTES, message_digest
from protocols.echo import echo
from protocols.errors import CheckFailed, ProtocolViolation
from protocols.ring import R32
from protocols.transcript import Value
from protocols.upload import check_component

DigestsByServer = Mapping[int, Mapping[int, str]]
"""Shown digests in hexadecimal, by component and holder."""


@dataclass(frozen=True, slots=True)
class Accusation:
    """A client whose component holders report a difference: by component, the digests that they show."""

    client: str
    shown: DigestsByServer

    @property
    def by(self) -> tuple[int, ...]:
        """Servers that accuse the client, each for its own component."""
        return tuple(sorted(self.shown))

    def to_dict(self) -> dict[str, Value]:
        """Form for a transcript."""
        return {
            "client": self.client,
            "shown": {
                str(component): {str(pid): digest for pid, digest in digests.items()}
                for component, digests in self.shown.items()
            },
        }


class _DisputedComponent(NamedTuple):
    """A component of client number ``client`` that differs between its own server and the server before."""

    client: int
    component: int

    @property
    def holders(self) -> tuple[int, int]:
        return (self.component - 1) % 3, self.component


async def compare_components(
    ctx: Context, batch: Sequence[StoredSubmission]
) -> tuple[Accusation, ...]:
    """Compares the components of a batch and returns the clients that are not to be counted.

    Leaks: the accusations; digests of accused components under a key of their two holders. Rounds: 5, with a disputed
    component 7. Communication: a digest a client, the accusations, and the shown digests, both echoed. Raises
    ChannelError, ProtocolViolation, also if a server tells the others different things.
    """
    found = await _disputed_components(ctx, batch)
    mine = dict.fromkeys(found, Exclusion.COMPONENTS_DIFFER)
    names = [stored.submission.client for stored in batch]
    replies = await ctx.exchange(json.dumps(mine).encode())
    await echo(ctx, dict(enumerate(replies)))
    said = [_accusations(reply, pid, names) for pid, reply in enumerate(replies)]
    disputed = [
        _DisputedComponent(number, pid)
        for number, client in enumerate(names)
        for pid in range(3)
        if client in said[pid]
    ]
    shown = await _reveal_digests(ctx, batch, disputed) if disputed else {}
    return tuple(Accusation(client, shown[client]) for client in names if client in shown)


async def _disputed_components(ctx: Context, batch: Sequence[StoredSubmission]) -> list[str]:
    """Clients whose own component here differs from the next component of the server before."""
    digests = b"".join(bytes.fromhex(stored.next_digest) for stored in batch)
    received = b""
    for sender in range(3):
        payload = digests if ctx.pid == sender else None
        answer = await ctx.transfer(sender, (sender + 1) % 3, payload)
        received = received if answer is None else answer
    if len(received) != len(digests):
        raise ProtocolViolation(
            f"party {ctx.prev_pid} compared another number of clients", ctx.prev_pid
        )
    differing = []
    for number, stored in enumerate(batch):
        claimed = received[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
        try:
            check_component(bytes.fromhex(stored.own_digest), claimed)
        except CheckFailed:
            differing.append(stored.submission.client)
    return differing


async def _reveal_digests(
    ctx: Context, batch: Sequence[StoredSubmission], disputed: Sequence[_DisputedComponent]
) -> dict[str, dict[int, dict[int, str]]]:
    """Digests that the holders of disputed components show, by client. Raises ProtocolViolation if two are equal."""
    mine = [_blinded(ctx, batch, item) if ctx.pid in item.holders else None for item in disputed]
    exchanged = await ctx.exchange(json.dumps(mine).encode())
    await echo(ctx, dict(enumerate(exchanged)))
    replies = [
        _digests(reply, pid, [pid in item.holders for item in disputed])
        for pid, reply in enumerate(exchanged)
    ]
    shown: dict[str, dict[int, dict[int, str]]] = {}
    for number, item in enumerate(disputed):
        client = batch[item.client].submission.client
        before, own = item.holders
        digests = {pid: str(replies[pid][number]) for pid in item.holders}
        if digests[before] == digests[own]:
            # A holder knows that the other holder is the liar; the third server cannot tell.
            liar = before if ctx.pid == own else own
            raise ProtocolViolation(
                f"parties {before} and {own} show the same component of {client!r}, of which party {own} said that "
                "they differ: one of the two has lied",
                liar,
            )
        shown.setdefault(client, {})[item.component] = digests
    return shown


def _blinded(ctx: Context, batch: Sequence[StoredSubmission], item: _DisputedComponent) -> str:
    """Digest of a disputed component under a fresh key of its two holders."""
    stored = batch[item.client]
    digest = stored.own_digest if item.component == ctx.pid else stored.next_digest
    key = ctx.common(item.component, R32, (KEY_BYTES // R32.itemsize,))
    payload = np.frombuffer(bytes.fromhex(digest), np.uint8)
    return message_digest(R32.to_wire(key).tobytes(), payload).hex()


def _accusations(reply: bytes, pid: int, clients: Sequence[str]) -> set[str]:
    """Clients of a batch that a server accuses. Raises ProtocolViolation for any reason but COMPONENTS_DIFFER."""
    try:
        said = {client: Exclusion(reason) for client, reason in json.loads(reply).items()}
    except (ValueError, AttributeError, RecursionError) as error:
        raise ProtocolViolation(f"party {pid} excludes clients for no reason", pid) from error
    if not (said.keys() <= set(clients) and set(said.values()) <= {Exclusion.COMPONENTS_DIFFER}):
        raise ProtocolViolation(f"party {pid} excludes clients that it cannot exclude here", pid)
    return set(said)


def _digests(reply: bytes, pid: int, held: Sequence[bool]) -> list[str | None]:
    """Digests that a server shows, one for each disputed component that it holds. Raises ProtocolViolation."""
    try:
        shown = [_digest(item) for item in json.loads(reply)]
    except (ValueError, TypeError, RecursionError):
        shown = []
    if [digest is not None for digest in shown] != list(held):
        raise ProtocolViolation(f"party {pid} does not show what it holds", pid)
    return shown


def _digest(item: object) -> str | None:
    if item is None or (isinstance(item, str) and len(bytes.fromhex(item)) == DIGEST_BYTES):
        return item
    raise ValueError("neither a digest nor null")
