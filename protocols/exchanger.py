"""MPyC's message exchanger on blocking TLS sockets: one connection for each direction, each owned by one thread.

A frame is MPyC's: label (8 bytes, the program counter), payload size (4 bytes), payload. Label 0 is reserved for the
farewell, whose payload is the reason of an early end. OpenSSL releases the interpreter lock and a TLS object must
not be read and written by two threads at once, hence two connections. Payloads are sent from and received into
their arrays without a further copy, and hashed in the same threads (``digests``). Secret:
payloads are shares; they are never logged.

Known limits: a deadline counts from the wait for a message to its last byte; a peer may make this party hold up to
``MAX_BUFFERED_BYTES`` that it has not asked for yet, empty messages counted as ``_HELD_BYTES`` each.
"""

import asyncio
import queue
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from protocols._mpyc import MessageExchanger
from protocols.context import Payload
from protocols.digests import message_digest
from protocols.errors import ChannelError, PeerClosed, ProtocolViolation, ReceiveTimeout

HEADER = struct.Struct("<qI")
FAREWELL = 0
MAX_FRAME_BYTES = 1 << 28
MAX_BUFFERED_BYTES = 1 << 31
MAX_REASON_BYTES = 500
# What a message takes that waits to be asked for, beside its payload.
_HELD_BYTES = 512
# A payload below this size travels in one write with its header.
_SMALL = 1 << 14
# How long a broken sending side leaves the last word to the receiving side, which may find a farewell.
_GRACE_S = 1.0
# How long a closed exchanger waits for its threads, which a shut socket wakes at once.
_JOIN_S = 2.0


class Received(NamedTuple):
    """A payload and its digest."""

    payload: Payload
    digest: bytes

    def __repr__(self) -> str:
        # asyncio's logs show the arguments of callbacks and the results of futures; a payload is secret.
        return f"Received({self.payload.size} bytes)"


class Owner(Protocol):
    """Whom an exchanger works for: the party's runtime."""

    def fail(self, error: Exception) -> None:
        """The peer is lost or broke the protocol: nothing that waits for any peer can end well."""


class PeerExchanger(MessageExchanger):  # type: ignore[misc]  # MPyC is untyped
    """Messages to and from one peer.

    ``send`` never waits; ``receive`` waits until its deadline. Once the peer is lost, every pending and later
    receive and send raises the same error, which names the peer. ``nbytes_sent`` and ``nbytes_received`` count
    frames, without the farewell and what TLS adds. ``sent(peer, label, size, digest)`` is called in the writing
    thread after each message.
    """

    __slots__ = (
        "_digest_key",
        "_error",
        "_incoming",
        "_loop",
        "_outbox",
        "_outgoing",
        "_over",
        "_pending",
        "_reader",
        "_sent",
        "_writer",
        "_written",
        "buffered_bytes",
        "nbytes_received",
    )

    def __init__(
        self,
        runtime: Owner,
        peer_pid: int,
        outgoing: ssl.SSLSocket,
        incoming: ssl.SSLSocket,
        *,
        digest_key: bytes,
        sent: Callable[[int, int, int, bytes], None],
    ) -> None:
        super().__init__(runtime, peer_pid)
        self._digest_key = digest_key
        self._loop = asyncio.get_running_loop()
        self._outgoing = outgoing
        self._incoming = incoming
        self._sent = sent
        self._outbox: queue.SimpleQueue[tuple[int, Payload] | None] = queue.SimpleQueue()
        self._pending: dict[int, asyncio.Future[Received]] = {}
        self._error: Exception | None = None
        self._over = asyncio.Event()
        self._written = asyncio.Event()
        self.buffered_bytes = 0
        self.nbytes_received = 0
        self._writer = _thread(f"mesh-write-{peer_pid}", self._write)
        self._reader = _thread(f"mesh-read-{peer_pid}", self._read)
        self._reader.start()
        self._writer.start()

    # The loop's side.

    def send(self, pc: int, payload: Payload) -> None:
        """Queue a payload under label ``pc``; the array must not change afterwards."""
        if self._error is not None:
            raise self._error
        if payload.size > MAX_FRAME_BYTES:
            raise ValueError(
                f"a message of {payload.size} bytes is too large; at most {MAX_FRAME_BYTES}"
            )
        self.nbytes_sent += HEADER.size + payload.size
        self._outbox.put((pc, payload))

    async def receive(self, pc: int, timeout_s: float) -> Received:
        """The payload with label ``pc``, awaited for at most ``timeout_s`` seconds."""
        arrived: Received | None = self.buffers.pop(pc, None)
        if arrived is not None:
            self.buffered_bytes -= arrived.payload.size + _HELD_BYTES
            return arrived
        if self._error is not None:
            raise self._error
        future: asyncio.Future[Received] = self._loop.create_future()
        self._pending[pc] = future
        alarm = self._loop.call_later(timeout_s, self._late, pc, timeout_s)
        try:
            return await future
        finally:
            alarm.cancel()
            self._pending.pop(pc, None)

    def fail(self, error: Exception) -> None:
        """End all pending and later receives with ``error``; the first error stays."""
        if self._error is None:
            self._error = error
        self._over.set()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(self._error)

    async def farewell(self, reason: str, timeout_s: float) -> None:
        """Say farewell in at most ``timeout_s``; with an empty reason, also wait that long for the peer's."""
        self._outbox.put((FAREWELL, np.frombuffer(reason.encode()[:MAX_REASON_BYTES], np.uint8)))
        self._outbox.put(None)
        try:
            async with asyncio.timeout(timeout_s):
                await self._written.wait()
                if not reason:
                    await self._over.wait()
        except TimeoutError:
            self._lost(
                ReceiveTimeout(
                    f"party {self.peer_pid} did not say farewell within {timeout_s:g} s",
                    self.peer_pid,
                )
            )

    def end(self) -> None:
        """End the threads and close the sockets."""
        self.fail(ChannelError("this party has left the mesh"))
        self._outbox.put(None)
        for connection in (self._outgoing, self._incoming):
            _shut(connection)
        for thread in (self._writer, self._reader):
            thread.join(_JOIN_S)
        for connection in (self._outgoing, self._incoming):
            connection.close()

    def _late(self, pc: int, timeout_s: float) -> None:
        future = self._pending.get(pc)
        if future is not None and not future.done():
            future.set_exception(
                ReceiveTimeout(
                    f"no message from party {self.peer_pid} for {timeout_s:g} s where one was due",
                    self.peer_pid,
                )
            )

    def _deliver(self, label: int, received: Received) -> None:
        self.nbytes_received += HEADER.size + received.payload.size
        future = self._pending.get(label)
        if future is not None and not future.done():
            future.set_result(received)
            return
        if label in self.buffers:
            self._lost(
                ProtocolViolation(f"party {self.peer_pid} sent a message twice", self.peer_pid)
            )
            return
        self.buffers[label] = received
        self.buffered_bytes += received.payload.size + _HELD_BYTES
        if self.buffered_bytes > MAX_BUFFERED_BYTES:
            self._lost(
                ProtocolViolation(
                    f"party {self.peer_pid} sent more than was asked for", self.peer_pid
                )
            )

    def _left(self, reason: str) -> None:
        """The peer's farewell. At the end of the work it only ends what still waits for this peer."""
        text = f"party {self.peer_pid} has left" + (f": {reason}" if reason else "")
        error = PeerClosed(text, self.peer_pid)
        if reason:
            self._lost(error)
        else:
            self.fail(error)

    def _lost(self, error: Exception) -> None:
        """Nothing that waits for any peer can end well. What a thread finds after the end is no news."""
        if self._error is None:
            self.runtime.fail(error)

    # The threads' side.

    def _write(self) -> None:
        try:
            while (item := self._outbox.get()) is not None:
                label, payload = item
                self._write_frame(label, payload)
                if label != FAREWELL:
                    digest = message_digest(self._digest_key, payload)
                    self._sent(self.peer_pid, label, payload.size, digest)
        except PeerClosed as problem:
            self._call(self._lost, problem)
        except (OSError, ValueError) as problem:
            self._call(self.runtime.fail, problem)  # The recorder's: the peer is not to blame.
        finally:
            self._call(self._written.set)

    def _write_frame(self, label: int, payload: Payload) -> None:
        header = HEADER.pack(label, payload.size)
        try:
            if payload.size < _SMALL:
                self._outgoing.sendall(header + payload.tobytes())
            else:
                self._outgoing.sendall(header)
                self._outgoing.sendall(payload.data)
        except OSError as problem:
            self._reader.join(_GRACE_S)
            raise self._broken(problem) from problem

    def _read(self) -> None:
        try:
            self._call(self._left, self._read_frames())
        except EOFError:
            self._call(
                self._lost,
                PeerClosed(f"party {self.peer_pid} closed the connection", self.peer_pid),
            )
        except (OSError, MemoryError) as problem:
            self._call(self._lost, self._broken(problem))
        except ProtocolViolation as problem:
            self._call(self._lost, problem)

    def _read_frames(self) -> str:
        header = memoryview(bytearray(HEADER.size))
        while True:
            self._fill(header)
            label, size = HEADER.unpack(header)
            limit = MAX_REASON_BYTES if label == FAREWELL else MAX_FRAME_BYTES
            if size > limit:
                raise ProtocolViolation(
                    f"party {self.peer_pid} announced a frame of {size} bytes, at most {limit}",
                    self.peer_pid,
                )
            payload = np.empty(size, dtype=np.uint8)
            self._fill(payload.data)
            if label == FAREWELL:
                text = payload.tobytes().decode("utf-8", "replace")
                return "".join(character if character.isprintable() else "?" for character in text)
            digest = message_digest(self._digest_key, payload)
            self._call(self._deliver, label, Received(payload, digest))

    def _fill(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            step = self._incoming.recv_into(view[done:])
            if step == 0:
                raise EOFError
            done += step

    def _broken(self, problem: Exception) -> PeerClosed:
        return PeerClosed(
            f"the connection with party {self.peer_pid} broke: {problem}", self.peer_pid
        )

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # The event loop has ended before this thread: nobody waits any more.


def _thread(name: str, target: Callable[[], None]) -> threading.Thread:
    return threading.Thread(target=target, name=name, daemon=True)


def _shut(connection: ssl.SSLSocket) -> None:
    """Wake a thread that is blocked on the connection."""
    try:
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        return  # Already closed by the peer.
