"""Echo of public messages: the receivers compare digests of a message before any party uses it.

Without it, a party can send each of the two others something else, and both go on. Secret: nothing; digests are plain
SHA-256, of public messages alone. Source: the echo of reliable broadcast (Goldwasser and Lindell, 2005: secure
computation with abort). Known limit: of two parties whose words differ, the third cannot tell which one lies about the
other; the error names the author of the message, whose record of it the auditor compares.
"""

import hashlib
from collections.abc import Mapping

from protocols.context import Context
from protocols.errors import ProtocolViolation

DIGEST_BYTES = hashlib.sha256().digest_size


async def echo(ctx: Context, messages: Mapping[int, bytes]) -> None:
    """Sends both others the digests of public ``messages``, by their authors, and compares them with theirs.

    Shapes: the same authors at all three. An author's own message is the one it sent.
    Leaks: nothing; the messages are public.
    Rounds: 1.
    Communication: 32 bytes a message to each of the two others.
    Raises: ProtocolViolation, naming the author that sent two parties different messages, or the party whose digest of
        this party's own message is wrong; ChannelError.
    Source: Goldwasser and Lindell (2005).
    """
    authors = sorted(messages)
    mine = [hashlib.sha256(messages[author]).digest() for author in authors]
    replies = await ctx.exchange(b"".join(mine), max_bytes=DIGEST_BYTES * len(authors))
    for peer in (ctx.next_pid, ctx.prev_pid):
        reply = replies[peer]
        if len(reply) != DIGEST_BYTES * len(authors):
            raise ProtocolViolation(f"party {peer} echoed {len(reply)} bytes", peer)
        for number, author in enumerate(authors):
            heard = reply[DIGEST_BYTES * number : DIGEST_BYTES * (number + 1)]
            if heard != mine[number]:
                _differ(ctx, peer, author)


def _differ(ctx: Context, peer: int, author: int) -> None:
    step = f"in step {ctx.cost.step!r}"
    if author == ctx.pid:
        raise ProtocolViolation(
            f"party {peer} says it heard something else from this party {step}", peer
        )
    if author == peer:
        raise ProtocolViolation(
            f"party {peer} said something else {step} than it says it did", peer
        )
    raise ProtocolViolation(
        f"party {author} told this party and party {peer} different things {step}, or party {peer} says so",
        author,
    )
