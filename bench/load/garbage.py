"""Garbage of hostile or broken owners, and the answers a server has to give: twelve kinds.

``KINDS`` has them by name; each sends once and returns the ending: the HTTP status, or ``NO_ANSWER``. No kind may earn
three receipts. All values here are public.
"""

import asyncio
import contextlib
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from bench.load.wire import Answer, Door, Line

NO_ANSWER = "none"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sendable:
    """A prepared upload: the owner's TLS context, and the head and content of its request."""

    context: ssl.SSLContext
    head: bytes
    content: bytes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sender:
    """A sender of garbage to ``door``: its ``own`` upload, and one of an ``other`` owner that the servers have.

    ``other_door`` is the server that took the other upload; ``stranger`` is the TLS context of a client of another
    authority; ``patience_s`` is how long, in seconds, a slow sender goes on.
    """

    door: Door
    own: Sendable
    other_door: Door
    other: Sendable
    stranger: ssl.SSLContext
    patience_s: float


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of garbage: its sender, and the expected endings."""

    send: Callable[[Sender], Awaitable[str]]
    expected: tuple[str, ...]


async def _ended(answering: Awaitable[Answer]) -> str:
    try:
        return str((await answering).status)
    except OSError:
        return NO_ANSWER


async def _put(door: Door, context: ssl.SSLContext, head: bytes, content: bytes) -> str:
    try:
        async with Line(door, context) as line:
            return await _ended(line.put(head, content))
    except OSError:
        return NO_ANSWER


async def _stranger(sender: Sender) -> str:
    """Sends with a certificate of another authority."""
    return await _put(sender.door, sender.stranger, sender.own.head, sender.own.content)


async def _replayed(sender: Sender) -> str:
    """Sends another owner's upload, signed by that owner, over this one's connection."""
    return await _put(sender.door, sender.own.context, sender.other.head, sender.other.content)


async def _again(sender: Sender) -> str:
    """Sends an owner's upload again that the servers have."""
    other = sender.other
    return await _put(sender.other_door, other.context, other.head, other.content)


async def _oversized(sender: Sender) -> str:
    """Announces a body of a gigabyte."""
    head = _with_length(sender.own, 1 << 30)
    return await _put(sender.door, sender.own.context, head, sender.own.content)


async def _altered(sender: Sender) -> str:
    """Sends a body of the right length, with other bytes than were signed."""
    content = secrets.token_bytes(len(sender.own.content))
    return await _put(sender.door, sender.own.context, sender.own.head, content)


async def _truncated(sender: Sender) -> str:
    """Sends half of the announced body, and then hangs up."""
    with contextlib.suppress(OSError):
        async with Line(sender.door, sender.own.context) as line:
            await line.say(sender.own.head)
            await line.answer()
            await line.say(sender.own.content[: len(sender.own.content) // 2])
    return NO_ANSWER


async def _slow(sender: Sender) -> str:
    """Sends a byte per second."""
    try:
        async with Line(sender.door, sender.own.context) as line:
            await line.say(sender.own.head)
            await line.answer()
            return await _trickled(line, sender)
    except OSError:
        return NO_ANSWER


async def _trickled(line: Line, sender: Sender) -> str:
    answering = asyncio.ensure_future(_ended(line.answer()))
    try:
        async with asyncio.timeout(sender.patience_s):
            for byte in sender.own.content:
                await line.say(bytes([byte]))
                if (await asyncio.wait([answering], timeout=1.0))[0]:
                    break
            return await answering
    except (TimeoutError, OSError):
        return NO_ANSWER
    finally:
        answering.cancel()


async def _silent(sender: Sender) -> str:
    """Opens a connection and sends nothing."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(sender.patience_s):
                await loop.sock_connect(connection, (sender.door.host, sender.door.port))
                while await loop.sock_recv(connection, 1 << 16):
                    pass
    return NO_ANSWER


async def _noise(sender: Sender) -> str:
    """Sends random bytes in place of HTTP."""
    try:
        async with Line(sender.door, sender.own.context) as line:
            await line.say(secrets.token_bytes(2000) + b"\r\n\r\n")
            return await _ended(line.answer())
    except OSError:
        return NO_ANSWER


async def _as_it_is(sender: Sender) -> str:
    """Sends the prepared upload, which is wrong in itself."""
    return await _put(sender.door, sender.own.context, sender.own.head, sender.own.content)


def _with_length(upload: Sendable, length: int) -> bytes:
    announced = f"Content-Length: {len(upload.content)}".encode()
    return upload.head.replace(announced, f"Content-Length: {length}".encode())


STRANGER, OTHER_STUDY, NO_BOX, ONE_BOX = (
    "wrong authority",
    "of another study",
    "sealed to other keys",
    "one box sealed to another key",
)
"""Kinds whose own uploads are wrong in themselves."""
KINDS: Mapping[str, Kind] = {
    STRANGER: Kind(_stranger, (NO_ANSWER,)),
    OTHER_STUDY: Kind(_as_it_is, ("422",)),
    NO_BOX: Kind(_as_it_is, ("422",)),
    ONE_BOX: Kind(_as_it_is, ("202",)),
    "another's upload": Kind(_replayed, ("403",)),
    "sent again": Kind(_again, ("200",)),
    "oversized": Kind(_oversized, ("413",)),
    "altered": Kind(_altered, ("400",)),
    "truncated": Kind(_truncated, (NO_ANSWER,)),
    "no HTTP": Kind(_noise, ("400", NO_ANSWER)),
    "slow": Kind(_slow, ("408", NO_ANSWER)),
    "silent": Kind(_silent, (NO_ANSWER,)),
}
