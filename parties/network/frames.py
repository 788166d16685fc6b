"""Frames of a SecAgg round on a TLS connection.

A frame is a message's size in 4 bytes, big-endian, and the message, one of `secagg.wire`. A size beyond the receiver's
limit ends the connection before the message is read; every receive has a deadline. Contents are not interpreted here.
Public: sizes and times. Known limit: one message at a time.
"""

import asyncio
import contextlib
import socket
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from weakref import WeakKeyDictionary

from parties.foundation.errors import FramePeerClosed, FrameTimeout, FrameTooLarge

SIZE_BYTES = 4
_PIECE_BYTES = 1 << 15
_READ_BYTES = 1 << 14
_write_locks: WeakKeyDictionary[asyncio.StreamWriter, asyncio.Lock] = WeakKeyDictionary()
_KEEPALIVE_PROBES = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""Silence before the first probe and interval between probes, in seconds, and number of probes."""


def limit_tls_reads() -> None:
    """Makes later TLS connections of this process read 16 KiB at a time, the size of a TLS record.

    asyncio has a buffer of 256 KiB for every connection, and OpenSSL keeps one as large as the largest single input:
    half a megabyte and more for each of thousands of clients. Records are decrypted one by one in any case.
    """
    SSLProtocol.max_size = _READ_BYTES


async def read_frame(
    reader: asyncio.StreamReader, peer: str, *, limit: int | Callable[[], int], timeout_s: float
) -> bytes:
    """Returns the next message of ``peer``, at most ``limit`` bytes; a function is called once the message has begun.

    Raises FrameTimeout, FramePeerClosed or FrameTooLarge; the connection is unusable afterwards.
    """
    try:
        async with asyncio.timeout(timeout_s):
            size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big")
            most = limit() if callable(limit) else limit
            if size > most:
                raise FrameTooLarge(peer, f"announced {size} bytes; expected at most {most}")
            return await reader.readexactly(size)
    except TimeoutError as error:
        raise FrameTimeout(peer, f"sent nothing within {timeout_s:g} s") from error
    except (asyncio.IncompleteReadError, OSError) as error:
        raise FramePeerClosed(peer, "closed the connection before the round was over") from error


async def write_frame(
    writer: asyncio.StreamWriter, message: bytes, peer: str, *, timeout_s: float
) -> None:
    """Sends one message and waits until the buffer has room again; messages of one writer stay in the order of calls.

    The message is written in pieces: TLS keeps a buffer as large as the largest write for the connection's lifetime,
    and a run sends models of many megabytes to thousands of clients. Raises FrameTimeout or FramePeerClosed.
    """
    # A view, since the same message may be sent to many peers at a time.
    rest = memoryview(message)
    try:
        async with asyncio.timeout(timeout_s), _write_locks.setdefault(writer, asyncio.Lock()):
            await _write(writer, len(message).to_bytes(SIZE_BYTES, "big") + rest[:_PIECE_BYTES])
            for start in range(_PIECE_BYTES, len(rest), _PIECE_BYTES):
                await _write(writer, rest[start : start + _PIECE_BYTES])
    except TimeoutError as error:
        raise FrameTimeout(peer, f"took nothing in within {timeout_s:g} s") from error
    except OSError as error:
        raise FramePeerClosed(peer, "closed the connection before the round was over") from error


async def _write(writer: asyncio.StreamWriter, data: bytes | memoryview) -> None:
    # A TLS connection that was closed twice has no transport, and asyncio's error for it is no OSError.
    if writer.is_closing():
        raise ConnectionResetError("the connection was closed on this side")
    writer.write(data)
    await writer.drain()


async def close_writer(writer: asyncio.StreamWriter, *, timeout_s: float = 2.0) -> None:
    """Closes the connection without waiting for a peer that does not answer."""
    writer.close()
    try:
        async with asyncio.timeout(timeout_s):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()
    except asyncio.CancelledError:
        writer.transport.abort()
        raise


def end_connection(connection: socket.socket) -> None:
    """Ends a connection that an asyncio transport holds; the transport sees the end and closes the descriptor.

    Closing the socket beneath its transport would free a descriptor that the event loop still watches, and that the
    process's next connection gets.
    """
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def enable_keepalive(writer: asyncio.StreamWriter) -> None:
    """Enables probes on a silent connection, so that a lost host is noticed between rounds."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE_PROBES:
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
