"""MPyC's message exchanger on blocking TLS sockets: one connection for each direction, each owned by one thread.

Messages travel in parts (``frames``). The farewell's payload is the reason of an early end. OpenSSL releases the
interpreter lock and a TLS object must not be read and written by two threads at once, hence two connections. Each has a
keystream of its own: payloads, in the order in which their bytes are on the connection, are XORed with it, so that a
recorded connection stays secret when TLS's key agreement falls; headers are not, since sizes and labels show anyway.
Payloads are received into their arrays and decrypted there, piece by piece while they are in the cache; they are sent
through a buffer, since the sender may use a payload elsewhere. They are hashed in the same threads (``digests``).
Secret: payloads are shares; they are never logged.

Limits on the memory that a peer may make this party hold: of a message that is asked for, as many bytes as are due by
the receiver's word; of messages that are not asked for yet, ``MAX_BUFFERED_BYTES`` in all, empty ones counted as
``_HELD_BYTES`` each. A larger one waits in the connection until it is asked for. A deadline is for silence: it counts
from the wait for a message, and anew from each part of a message that has several.
"""

import asyncio
import queue
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from protocols import frames
from protocols._mpyc import MessageExchanger
from protocols.context import Payload
from protocols.digests import message_digest
from protocols.errors import ChannelError, PeerClosed, ProtocolViolation, ReceiveTimeout
from protocols.frames import HEADER, Message, frame_bytes
from protocols.keystream import SLACK_BYTES, Keystream
from protocols.round_trip import round_trip_s

FAREWELL = 0
MAX_BUFFERED_BYTES = 1 << 31
MAX_REASON_BYTES = 500
# Memory of a message that waits to be asked for, beside its payload.
_HELD_BYTES = 512
# With its header the beginning of a part fills a record of TLS; the rest goes in pieces that a near cache holds.
_FIRST = (1 << 14) - HEADER.size
_PIECE = 1 << 18
# Time for which a broken sending side leaves the last word to the receiving side, which may find a farewell.
_GRACE_S = 1.0
# Time for which a closed exchanger waits for its threads, which a shut socket wakes at once.
_JOIN_S = 2.0


class Received(NamedTuple):
    """A payload and its digest."""

    payload: Payload
    digest: bytes

    def __repr__(self) -> str:
        # asyncio's logs show the arguments of callbacks and the results of futures; a payload is secret.
        return f"Received({self.payload.size} bytes)"


@dataclass(slots=True, eq=False, repr=False)
class _Waiting:
    """A receiver that waits for a message of at most ``limit`` bytes; ``alarm`` is its deadline's timer."""

    future: "asyncio.Future[Received]"
    timeout_s: float
    limit: int
    alarm: asyncio.TimerHandle


class Owner(Protocol):
    """Interface of an exchanger's owner: the party's runtime."""

    def fail(self, error: Exception) -> None:
        """Ends all that waits for any peer: the peer is lost or broke the protocol."""


class PeerExchanger(MessageExchanger):  # type: ignore[misc]  # MPyC is untyped
    """Messages to and from one peer.

    ``send`` never waits; ``receive`` waits until its deadline. Once the peer is lost, every pending and later receive
    and send raises the same error, which names the peer. ``nbytes_sent`` and ``nbytes_received`` count frames, without
    the farewell and without the bytes that TLS adds. ``streams``, of the bytes to the peer and of those from it, serve
    these connections only. ``sent(peer, label, size, digest)`` is called in the writing thread after each message.
    """

    __slots__ = (
        "_buffer",
        "_digest_key",
        "_error",
        "_hearing",
        "_incoming",
        "_loop",
        "_outbox",
        "_outgoing",
        "_over",
        "_pending",
        "_reader",
        "_saying",
        "_sent",
        "_turn",
        "_unasked",
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
        streams: tuple[Keystream, Keystream],
        digest_key: bytes,
        sent: Callable[[int, int, int, bytes], None],
    ) -> None:
        super().__init__(runtime, peer_pid)
        self._digest_key = digest_key
        self._loop = asyncio.get_running_loop()
        self._outgoing = outgoing
        self._incoming = incoming
        self._saying, self._hearing = streams
        self._buffer = memoryview(bytearray(_PIECE + SLACK_BYTES))
        self._sent = sent
        self._outbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        # State that the reading thread checks before it takes a message in: under _turn's lock, with buffered_bytes.
        self._turn = threading.Condition()
        self._pending: dict[int, _Waiting] = {}
        self._unasked: dict[int, int] = {}
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
        """Queues a payload under label ``pc``; the array must not change afterwards."""
        if self._error is not None:
            raise self._error
        self.nbytes_sent += frame_bytes(payload.size)
        self._outbox.put(Message(pc, payload))

    async def receive(self, pc: int, timeout_s: float, limit: int) -> Received:
        """Returns the payload with label ``pc``, of at most ``limit`` bytes; waits through ``timeout_s`` of silence.

        A larger message ends as a violation before it is taken in; one that had arrived before is the caller's to
        judge.
        """
        arrived: Received | None = self.buffers.pop(pc, None)
        if arrived is not None:
            self._is_asked_for(pc)
            return arrived
        if self._unasked.get(pc, 0) > limit:
            self._lost(self._too_large(self._unasked[pc], limit))
        if self._error is not None:
            raise self._error
        future: asyncio.Future[Received] = self._loop.create_future()
        alarm = self._loop.call_later(timeout_s, self._late, pc)
        waiting = _Waiting(future, timeout_s, limit, alarm)
        with self._turn:
            self._pending[pc] = waiting
            self._turn.notify()
        try:
            return await future
        finally:
            waiting.alarm.cancel()
            with self._turn:
                self._pending.pop(pc, None)

    def fail(self, error: Exception) -> None:
        """Ends all pending and later receives with ``error``; the first error stays."""
        with self._turn:
            if self._error is None:
                self._error = error
            self._turn.notify()
        self._over.set()
        for waiting in self._pending.values():
            if not waiting.future.done():
                waiting.future.set_exception(self._error)

    async def farewell(self, reason: str, timeout_s: float) -> None:
        """Sends a farewell in at most ``timeout_s``; with an empty reason, also waits that long for the peer's."""
        text = np.frombuffer(reason.encode()[:MAX_REASON_BYTES], np.uint8)
        self._outbox.put(Message(FAREWELL, text))
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

    def round_trip_s(self) -> float | None:
        """Returns the time in seconds of a message to the peer and back, where the system knows it; from any thread."""
        return round_trip_s(self._outgoing)

    def end(self) -> None:
        """Ends the threads and closes the sockets."""
        self.fail(ChannelError("this party has left the mesh"))
        self._outbox.put(None)
        for connection in (self._outgoing, self._incoming):
            _shut(connection)
        for thread in (self._writer, self._reader):
            thread.join(_JOIN_S)
        for connection in (self._outgoing, self._incoming):
            connection.close()

    def _late(self, pc: int) -> None:
        waiting = self._pending.get(pc)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_exception(
                ReceiveTimeout(
                    f"no message from party {self.peer_pid} for {waiting.timeout_s:g} s where one was due",
                    self.peer_pid,
                )
            )

    def _heard(self) -> None:
        """Restarts the deadlines: a part of a longer message has come, so the peer is at work."""
        for pc, waiting in self._pending.items():
            waiting.alarm.cancel()
            waiting.alarm = self._loop.call_later(waiting.timeout_s, self._late, pc)

    def _deliver(self, label: int, received: Received) -> None:
        self.nbytes_received += frame_bytes(received.payload.size)
        waiting = self._pending.get(label)
        if waiting is not None and not waiting.future.done():
            self._is_asked_for(label)
            waiting.future.set_result(received)
            return
        if label in self.buffers:
            self._lost(
                ProtocolViolation(f"party {self.peer_pid} sent a message twice", self.peer_pid)
            )
            return
        self.buffers[label] = received

    def _is_asked_for(self, label: int) -> None:
        """Takes a message out of the count of those not asked for, if it was there."""
        with self._turn:
            size = self._unasked.pop(label, None)
            if size is not None:
                self.buffered_bytes -= size + _HELD_BYTES
                self._turn.notify()

    def _left(self, reason: str) -> None:
        """Handles the peer's farewell. At the end of the work it only ends receives that still wait for this peer."""
        text = f"party {self.peer_pid} has left" + (f": {reason}" if reason else "")
        error = PeerClosed(text, self.peer_pid)
        if reason:
            self._lost(error)
        else:
            self.fail(error)

    def _lost(self, error: Exception) -> None:
        """Ends all that waits for any peer; an error that a thread finds after the end is ignored."""
        if self._error is None:
            self.runtime.fail(error)

    # The threads' side.

    def _write(self) -> None:
        under_way: deque[Message] = deque()
        try:
            while self._take(under_way):
                message = under_way.popleft()
                if message.label == FAREWELL and not message.payload.size and under_way:
                    # The work is done: all that belongs to it goes first.
                    under_way.append(message)
                    continue
                self._write_part(message)
                if not message.whole:
                    under_way.append(message)
                elif message.label == FAREWELL:
                    return
                else:
                    digest = message_digest(self._digest_key, message.payload)
                    self._sent(self.peer_pid, message.label, message.payload.size, digest)
        except PeerClosed as problem:
            self._call(self._lost, problem)
        except (OSError, ValueError) as problem:
            self._call(self.runtime.fail, problem)  # The recorder's: the peer is not to blame.
        finally:
            self._call(self._written.set)

    def _take(self, under_way: deque[Message]) -> bool:
        """Adds queued messages to those ``under_way``, waiting where there is none; returns False at the end."""
        while not under_way or not self._outbox.empty():
            message = self._outbox.get()
            if message is None:
                return False
            under_way.append(message)
        return True

    def _write_part(self, message: Message) -> None:
        header, part = message.header, message.next_part().data
        try:
            self._outgoing.sendall(header + self._saying.over(part[:_FIRST]))
            for start in range(_FIRST, len(part), _PIECE):
                piece = part[start : start + _PIECE]
                self._outgoing.sendall(self._saying.over_into(piece, self._buffer))
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
        header, coming = memoryview(bytearray(HEADER.size)), dict[int, Message]()
        while True:
            self._fill(header)
            label, size = HEADER.unpack(header)
            message = coming.get(label) or self._begin(label, size)
            if message.payload.size != size:
                raise ProtocolViolation(
                    f"party {self.peer_pid} announced a message of {message.payload.size} bytes and went on with one "
                    f"of {size}",
                    self.peer_pid,
                )
            self._fill_part(message.next_part())
            if not message.whole:
                coming[label] = message
                self._call(self._heard)
                continue
            coming.pop(label, None)
            if label == FAREWELL:
                text = message.payload.tobytes().decode("utf-8", "replace")
                return "".join(character if character.isprintable() else "?" for character in text)
            digest = message_digest(self._digest_key, message.payload)
            self._call(self._deliver, label, Received(message.payload, digest))

    def _begin(self, label: int, size: int) -> Message:
        """Allocates a message that its first frame announces. Raises ProtocolViolation where it is too large.

        Blocks while the message is larger than the buffer's room and no receiver has asked for it.
        """
        with self._turn:
            limit = MAX_REASON_BYTES if label == FAREWELL else self._room(label, size)
            if size > limit:
                raise self._too_large(size, limit)
        # The system gives memory as it is written to: bytes that are announced and do not come take none.
        return Message(label, np.empty(size, dtype=np.uint8))

    def _too_large(self, size: int, limit: int) -> ProtocolViolation:
        return ProtocolViolation(
            f"party {self.peer_pid} announced a message of {size} bytes, at most {limit} are due",
            self.peer_pid,
        )

    def _room(self, label: int, size: int) -> int:
        """Returns the largest size a message may have: its due size, or the room left for messages not asked for."""
        while label not in self._pending:
            if self._error is not None:
                raise EOFError
            room = MAX_BUFFERED_BYTES - self.buffered_bytes - _HELD_BYTES
            if size <= room:
                self._unasked[label] = size
                self.buffered_bytes += size + _HELD_BYTES
                return size
            if size <= frames.PART_BYTES:
                raise ProtocolViolation(
                    f"party {self.peer_pid} sent more than was asked for", self.peer_pid
                )
            self._turn.wait()
        return self._pending[label].limit

    def _fill_part(self, part: Payload) -> None:
        for start in range(0, part.size, _PIECE):
            piece = part[start : start + _PIECE]
            self._fill(piece.data)
            self._hearing.add_to(piece)

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
    """Wakes a thread that is blocked on the connection."""
    try:
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        return  # Already closed by the peer.
