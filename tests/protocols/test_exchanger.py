"""Messages with one peer over real TLS: deadlines, the frame layer's own checks, farewells, and nothing left hanging.

The peer is the test itself: it holds the other ends of both connections and says what a peer might say.
"""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from blake3 import blake3

from protocols import exchanger as exchanger_module
from protocols import frames
from protocols.errors import ChannelError, PeerClosed, ProtocolViolation, ReceiveTimeout
from protocols.exchanger import FAREWELL, MAX_REASON_BYTES, PeerExchanger
from protocols.frames import HEADER, frame_bytes
from protocols.keystream import KEY_BYTES, Keystream
from protocols.mesh import TlsFiles
from protocols.pairing import frames_stream
from tests.protocols.network import ZeroStream, tls_pair
from tests.until import eventually

pytestmark = pytest.mark.usefixtures("nothing_left")

PEER = 2
DIGEST_KEY = b"k" * 32
SOON_S = 0.2
LONG_S = 10.0
ANY = 1 << 40


@dataclass
class Owner:
    """The part of a runtime that an exchanger needs: a receiver of the news that the peer is lost."""

    failures: list[Exception] = field(default_factory=list)
    exchanger: PeerExchanger | None = None

    def fail(self, error: Exception) -> None:
        self.failures.append(error)
        assert self.exchanger is not None
        self.exchanger.fail(error)


@dataclass
class Link:
    """An exchanger, its owner, what it reported as sent, and the peer's ends: ``says`` to it and ``hears`` from it."""

    exchanger: PeerExchanger
    owner: Owner
    sent: list[tuple[int, int, int, bytes]]
    says: ssl.SSLSocket
    hears: ssl.SSLSocket

    async def hear(self, size: int) -> bytes:
        """Exactly ``size`` bytes."""

        def read() -> bytes:
            data = b""
            while len(data) < size and (piece := self.hears.recv(size - len(data))):
                data += piece
            return data

        return await asyncio.wait_for(asyncio.to_thread(read), LONG_S)

    def cut(self) -> None:
        for connection in (self.says, self.hears):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


NO_STREAMS = (ZeroStream(bytes(KEY_BYTES), b"out"), ZeroStream(bytes(KEY_BYTES), b"in"))


def streams() -> tuple[Keystream, Keystream]:
    """Of what party 0 says to the peer, and hears from it."""
    return frames_stream(bytes(KEY_BYTES), 0, PEER), frames_stream(bytes(KEY_BYTES), PEER, 0)


@contextlib.asynccontextmanager
async def linked(
    tls: list[TlsFiles],
    recorder: Any = None,
    *,
    given: tuple[Keystream, Keystream] = NO_STREAMS,
) -> AsyncIterator[Link]:
    hears_from, says_to = tls_pair(tls[0], tls[PEER]), tls_pair(tls[PEER], tls[0])
    owner, sent = Owner(), []

    def record(*message: Any) -> None:
        sent.append(message)
        if recorder is not None:
            recorder()

    exchanger = PeerExchanger(
        owner,
        PEER,
        hears_from[0],
        says_to[1],
        streams=given,
        digest_key=DIGEST_KEY,
        sent=record,
    )
    owner.exchanger = exchanger
    try:
        yield Link(exchanger, owner, sent, says_to[0], hears_from[1])
    finally:
        exchanger.end()
        for connection in (hears_from[1], says_to[0]):
            connection.close()


def frame(label: int, payload: bytes) -> bytes:
    return HEADER.pack(label, len(payload)) + payload


def array(payload: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(payload, np.uint8)


# Messages.


@pytest.mark.parametrize("size", [0, 1, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 3_000_000])
async def test_send_writes_one_frame_and_reports_its_digest(tls: list[TlsFiles], size: int) -> None:
    payload = np.random.default_rng(size).bytes(size)
    async with linked(tls) as link:
        link.exchanger.send(-5, array(payload))
        assert await link.hear(HEADER.size + size) == frame(-5, payload)
        await eventually(lambda: link.sent)
        assert link.sent == [(PEER, -5, size, blake3(payload, key=DIGEST_KEY).digest())]
        assert link.exchanger.nbytes_sent == HEADER.size + size


@pytest.mark.parametrize("size", [0, 1, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 3_000_000])
async def test_receive_returns_the_payload_and_its_digest(tls: list[TlsFiles], size: int) -> None:
    payload = np.random.default_rng(size).bytes(size)
    async with linked(tls) as link:
        waiting = asyncio.ensure_future(link.exchanger.receive(7, LONG_S, ANY))
        await asyncio.to_thread(link.says.sendall, frame(7, payload))
        received = await waiting
        assert received.payload.tobytes() == payload
        assert received.payload.flags.writeable
        assert received.digest == blake3(payload, key=DIGEST_KEY).digest()
        assert link.exchanger.nbytes_received == HEADER.size + size


async def test_receive_finds_messages_by_label_in_any_order(tls: list[TlsFiles]) -> None:
    async with linked(tls) as link:
        early = [
            asyncio.ensure_future(link.exchanger.receive(label, LONG_S, ANY)) for label in (3, 1)
        ]
        await asyncio.sleep(0)
        link.says.sendall(b"".join(frame(label, bytes([label])) for label in (1, 2, 3, 4)))
        assert [(await one).payload.tobytes() for one in early] == [b"\3", b"\1"]
        await eventually(lambda: len(link.exchanger.buffers) == 2)
        assert link.exchanger.buffered_bytes == 2 + 2 * exchanger_module._HELD_BYTES
        late = [await link.exchanger.receive(label, LONG_S, ANY) for label in (4, 2)]
        assert [one.payload.tobytes() for one in late] == [b"\4", b"\2"]
        assert link.exchanger.buffered_bytes == 0


async def test_receive_puts_frames_together_when_they_come_byte_by_byte(
    tls: list[TlsFiles],
) -> None:
    async with linked(tls) as link:

        def drip() -> None:
            for byte in frame(1, b"first") + frame(2, b"") + frame(3, b"third"):
                link.says.sendall(bytes([byte]))

        await asyncio.to_thread(drip)
        got = [
            (await link.exchanger.receive(label, LONG_S, ANY)).payload.tobytes()
            for label in (1, 2, 3)
        ]
        assert got == [b"first", b"", b"third"]


# Keystreams.

EDGES = [0, 1, 14, 15, 16, (1 << 14) - 17, (1 << 14) - 16, 1 << 14, (1 << 17) + 1, 3_000_000]


def shared(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A payload that whoever else has it must find as it was: it cannot be written to."""
    return array(np.random.default_rng(size).bytes(size))


async def test_send_covers_payloads_in_the_order_of_the_wire(tls: list[TlsFiles]) -> None:
    """Headers stay; the stream goes on from message to message, and a payload is left as it was."""
    payloads = [shared(size) for size in EDGES]
    theirs, _ = streams()
    async with linked(tls, given=streams()) as link:
        for label, payload in enumerate(payloads, 1):
            link.exchanger.send(label, payload)
        for label, payload in enumerate(payloads, 1):
            assert await link.hear(HEADER.size) == HEADER.pack(label, payload.size)
            heard = array(await link.hear(payload.size)).copy()
            assert payload.size < 16 or not np.array_equal(heard, payload)
            theirs.add_to(heard)
            assert np.array_equal(heard, payload)


async def test_receive_opens_payloads_in_the_order_of_the_wire(tls: list[TlsFiles]) -> None:
    _, theirs = streams()
    payloads = [shared(size) for size in EDGES]
    said = [
        HEADER.pack(label, payload.size) + theirs.over(payload.data)
        for label, payload in enumerate(payloads, 1)
    ]
    async with linked(tls, given=streams()) as link:
        saying = asyncio.ensure_future(asyncio.to_thread(link.says.sendall, b"".join(said)))
        for label, payload in reversed(list(enumerate(payloads, 1))):
            received = await link.exchanger.receive(label, LONG_S, ANY)
            assert np.array_equal(received.payload, payload)
            assert received.digest == blake3(payload.data, key=DIGEST_KEY).digest()
        await saying


async def test_send_and_receive_keep_to_the_wire_when_parts_of_messages_alternate(
    tls: list[TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "PART_BYTES", 1000)
    large = {1: shared(400_000), 2: shared(399_990)}
    theirs, mine = streams()
    async with linked(tls, given=streams()) as link:
        for label, payload in large.items():
            link.exchanger.send(label, payload)
        heard = await link.hear(sum(frame_bytes(payload.size) for payload in large.values()))
        labels, at, found = [], 0, dict[int, bytes]()
        again = b""
        while at < len(heard):
            label, size = HEADER.unpack_from(heard, at)
            begin = at + HEADER.size
            at = begin + min(1000, size - len(found.get(label, b"")))
            part = theirs.over(memoryview(heard[begin:at]))
            found[label] = found.get(label, b"") + part
            again += HEADER.pack(label, size) + mine.over(memoryview(part))
            labels.append(label)
        assert found == {label: payload.tobytes() for label, payload in large.items()}
        assert labels[:4] in ([1, 2, 1, 2], [1, 1, 2, 1])
        saying = asyncio.ensure_future(asyncio.to_thread(link.says.sendall, again))
        for label, payload in large.items():
            received = await link.exchanger.receive(label, LONG_S, ANY)
            assert np.array_equal(received.payload, payload)
        await saying


async def test_farewell_is_covered_like_any_message(tls: list[TlsFiles]) -> None:
    theirs, _ = streams()
    async with linked(tls, given=streams()) as link:
        await link.exchanger.farewell("full disk", LONG_S)
        heard = await link.hear(HEADER.size + len(b"full disk"))
        assert heard[: HEADER.size] == HEADER.pack(FAREWELL, len(b"full disk"))
        assert theirs.over(memoryview(heard[HEADER.size :])) == b"full disk"


# Deadlines.


async def test_receive_ends_at_its_deadline_and_names_the_peer(tls: list[TlsFiles]) -> None:
    async with linked(tls) as link:
        other = asyncio.ensure_future(link.exchanger.receive(2, LONG_S, ANY))
        started = time.monotonic()
        with pytest.raises(ReceiveTimeout, match=r"no message from party 2 for 0\.2 s") as caught:
            await link.exchanger.receive(1, SOON_S, ANY)
        assert SOON_S * 0.9 < time.monotonic() - started < SOON_S + 1
        assert caught.value.pid == PEER
        # The deadline of one message is not that of another.
        link.says.sendall(frame(2, b"late"))
        assert (await other).payload.tobytes() == b"late"
        assert link.owner.failures == []


async def test_receive_ends_at_its_deadline_when_a_frame_stays_half(tls: list[TlsFiles]) -> None:
    async with linked(tls) as link:
        link.says.sendall(frame(1, bytes(100))[:50])
        with pytest.raises(ReceiveTimeout):
            await link.exchanger.receive(1, SOON_S, ANY)


async def test_receive_forgets_the_message_when_it_is_cancelled(tls: list[TlsFiles]) -> None:
    async with linked(tls) as link:
        waiting = asyncio.ensure_future(link.exchanger.receive(1, LONG_S, ANY))
        await asyncio.sleep(0.01)  # Sleeps: head start.
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert link.exchanger._pending == {}


# What a peer may not say.


async def violation(link: Link, said: bytes, limit: int = ANY) -> ProtocolViolation:
    """Error of a pending receive after the peer has said something."""
    waiting = asyncio.ensure_future(link.exchanger.receive(99, LONG_S, limit))
    await asyncio.sleep(0)
    await asyncio.to_thread(link.says.sendall, said)
    with pytest.raises(ProtocolViolation) as caught:
        await waiting
    assert caught.value.pid == PEER
    assert link.owner.failures == [caught.value]
    with pytest.raises(ProtocolViolation):
        link.exchanger.send(1, array(b"x"))
    return caught.value


async def test_receive_reports_a_violation_when_more_is_announced_than_is_due(
    tls: list[TlsFiles],
) -> None:
    """Before anything of that size is kept."""
    async with linked(tls) as link:
        error = await violation(link, HEADER.pack(99, 101), limit=100)
        assert "announced a message of 101 bytes, at most 100 are due" in str(error)


async def test_receive_reports_a_violation_when_a_farewell_is_too_long(tls: list[TlsFiles]) -> None:
    async with linked(tls) as link:
        await violation(link, HEADER.pack(FAREWELL, MAX_REASON_BYTES + 1))


async def test_receive_reports_a_violation_when_a_label_is_used_twice(tls: list[TlsFiles]) -> None:
    async with linked(tls) as link:
        error = await violation(link, frame(5, b"one") + frame(5, b"two"))
        assert "twice" in str(error)


async def test_receive_reports_a_violation_when_the_peer_floods(
    tls: list[TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanger_module, "MAX_BUFFERED_BYTES", 10_000)
    async with linked(tls) as link:
        await violation(link, b"".join(frame(label, bytes(1000)) for label in range(1, 12)))


async def test_receive_reports_a_violation_when_the_peer_floods_with_empty_messages(
    tls: list[TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanger_module, "MAX_BUFFERED_BYTES", 10_000)
    async with linked(tls) as link:
        await violation(link, b"".join(frame(label, b"") for label in range(1, 50)))


# Messages in parts.


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> int:
    """Parts of 1000 bytes."""
    monkeypatch.setattr(frames, "PART_BYTES", 1000)
    return 1000


def in_parts(label: int, payload: bytes, part: int) -> list[bytes]:
    """The frames of a message."""
    header = HEADER.pack(label, len(payload))
    return [header + payload[at : at + part] for at in range(0, max(1, len(payload)), part)]


@pytest.mark.parametrize("size", [999, 1000, 1001, 2000, 5300])
async def test_send_and_receive_take_a_message_in_parts(
    tls: list[TlsFiles], small_parts: int, size: int
) -> None:
    payload = np.random.default_rng(size).bytes(size)
    expected = b"".join(in_parts(7, payload, small_parts))
    assert len(expected) == frame_bytes(size)
    async with linked(tls) as link:
        link.exchanger.send(7, array(payload))
        assert await link.hear(len(expected)) == expected
        waiting = asyncio.ensure_future(link.exchanger.receive(7, LONG_S, size))
        await asyncio.sleep(0)
        await asyncio.to_thread(link.says.sendall, expected)
        received = await waiting
        assert received.payload.tobytes() == payload
        # To whoever counts messages and compares digests it is one message.
        await eventually(lambda: link.sent)
        assert link.sent == [(PEER, 7, size, received.digest)]
        assert link.exchanger.nbytes_received == link.exchanger.nbytes_sent == frame_bytes(size)


async def test_send_lets_small_messages_pass_a_large_one(
    tls: list[TlsFiles], small_parts: int
) -> None:
    """The end of the work follows all of them; the reason of an early end does not wait for large ones."""
    large = np.random.default_rng(1).bytes(3_000_000)
    async with linked(tls) as link:
        link.exchanger.send(1, array(large))
        await asyncio.sleep(0.1)  # Sleeps: head start. The connection is full.
        link.exchanger.send(2, array(b"small"))
        leaving = asyncio.ensure_future(link.exchanger.farewell("full disk", LONG_S))
        heard: list[tuple[int, bytes]] = []
        while not heard or heard[-1][0] != FAREWELL:
            label, size = HEADER.unpack(await link.hear(HEADER.size))
            heard.append((label, await link.hear(min(small_parts, size))))
        await leaving
        assert heard[-1][1] == b"full disk"
        assert heard.count((2, b"small")) == 1
        assert len(heard) * small_parts < len(large) // 2
        assert [label for _, label, _, _ in link.sent] == [2]


async def test_farewell_follows_all_parts_when_the_work_is_done(
    tls: list[TlsFiles], small_parts: int
) -> None:
    async with linked(tls) as link:
        link.exchanger.send(1, array(bytes(2500)))
        leaving = asyncio.ensure_future(link.exchanger.farewell("", LONG_S))
        expected = b"".join(in_parts(1, bytes(2500), small_parts)) + frame(FAREWELL, b"")
        assert await link.hear(len(expected)) == expected
        link.says.sendall(frame(FAREWELL, b""))
        await asyncio.wait_for(leaving, LONG_S)


async def test_receive_puts_parts_of_several_messages_together(
    tls: list[TlsFiles], small_parts: int
) -> None:
    payloads = {label: np.random.default_rng(label).bytes(1500 * label) for label in (1, 2, 3)}
    pieces = [in_parts(label, payload, small_parts) for label, payload in payloads.items()]
    async with linked(tls) as link:
        for turn in range(5):
            for frames_of_one in pieces:
                link.says.sendall(b"".join(frames_of_one[turn : turn + 1]))
        for label, payload in payloads.items():
            received = await link.exchanger.receive(label, LONG_S, len(payload))
            assert received.payload.tobytes() == payload
        assert link.exchanger.buffered_bytes == 0


async def test_receive_counts_its_deadline_from_the_last_part(
    tls: list[TlsFiles], small_parts: int
) -> None:
    """A large message over a slow line takes longer than a silent peer is given."""
    pieces = in_parts(1, bytes(4500), small_parts)
    async with linked(tls) as link:
        waiting = asyncio.ensure_future(link.exchanger.receive(1, 2 * SOON_S, ANY))
        started = time.monotonic()
        for piece in pieces:
            await asyncio.sleep(SOON_S)
            link.says.sendall(piece)
        assert (await waiting).payload.size == 4500
        assert time.monotonic() - started > 4 * SOON_S


@pytest.mark.parametrize("heard", [1500, 2016, 2024, 2900])
async def test_receive_ends_when_the_rest_of_a_message_does_not_come(
    tls: list[TlsFiles], small_parts: int, heard: int
) -> None:
    """Within a part, between two, within a header: a silent peer is late, a lost one is lost."""
    said = b"".join(in_parts(1, bytes(4500), small_parts))[:heard]
    async with linked(tls) as link:
        link.says.sendall(said)
        with pytest.raises(ReceiveTimeout):
            await link.exchanger.receive(1, SOON_S, ANY)
        waiting = asyncio.ensure_future(link.exchanger.receive(1, LONG_S, ANY))
        await asyncio.sleep(0)
        link.cut()
        with pytest.raises(PeerClosed):
            await waiting


async def test_receive_ends_when_a_part_is_left_out(tls: list[TlsFiles], small_parts: int) -> None:
    """Later bytes are taken for the rest of the message; no message results, and nobody waits for ever."""
    pieces = in_parts(1, bytes(range(250)) * 10, small_parts)
    async with linked(tls) as link:
        waiting = asyncio.ensure_future(link.exchanger.receive(1, SOON_S, 2500))
        await asyncio.sleep(0)
        link.says.sendall(pieces[0] + pieces[2] + frame(4, bytes(range(250)) * 4))
        with pytest.raises((ReceiveTimeout, ProtocolViolation)):
            await waiting
        assert link.exchanger.buffers == {}


async def test_receive_reports_a_violation_when_a_message_changes_its_size(
    tls: list[TlsFiles], small_parts: int
) -> None:
    async with linked(tls) as link:
        said = in_parts(99, bytes(2500), small_parts)[0] + HEADER.pack(99, 2400)
        error = await violation(link, said)
        assert "announced a message of 2500 bytes and went on with one of 2400" in str(error)


async def test_receive_takes_in_what_is_larger_than_the_buffer_when_it_is_asked_for(
    tls: list[TlsFiles], small_parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it takes no memory here: it waits in the connection."""
    monkeypatch.setattr(exchanger_module, "MAX_BUFFERED_BYTES", 10_000)
    payload = np.random.default_rng(5).bytes(50_000)
    async with linked(tls) as link:
        link.says.sendall(b"".join(in_parts(5, payload, small_parts)) + frame(6, b"behind it"))
        await asyncio.sleep(0.1)  # Sleeps: quiet.
        assert (link.exchanger.buffered_bytes, link.exchanger.buffers) == (0, {})
        received = await link.exchanger.receive(5, LONG_S, len(payload))
        assert received.payload.tobytes() == payload
        assert (await link.exchanger.receive(6, LONG_S, ANY)).payload.tobytes() == b"behind it"


async def test_receive_reports_a_violation_when_what_is_under_way_is_larger_than_is_due(
    tls: list[TlsFiles],
) -> None:
    """It was announced before it was asked for, and may take its time."""
    async with linked(tls) as link:
        link.says.sendall(HEADER.pack(5, 1 << 25) + bytes(100))
        await eventually(lambda: link.exchanger.buffered_bytes)
        with pytest.raises(ProtocolViolation, match="33554432 bytes, at most 100 are due"):
            await link.exchanger.receive(5, LONG_S, 100)


async def test_receive_ends_when_what_nobody_asks_for_is_in_the_way(
    tls: list[TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that announces anything: nothing is kept for it, and who waits for something else is not kept waiting."""
    async with linked(tls) as link:
        link.says.sendall(HEADER.pack(5, 1 << 62))
        with pytest.raises(ReceiveTimeout):
            await link.exchanger.receive(1, SOON_S, ANY)
        assert link.exchanger.buffered_bytes == 0


def test_received_shows_no_payload() -> None:
    """asyncio puts arguments and results of what fails into its log."""
    received = exchanger_module.Received(array(bytes([123] * 5)), bytes([124] * 32))
    assert repr(received) == f"{received}" == "Received(5 bytes)"


# Lost peers.


@pytest.mark.parametrize("said", [b"", frame(1, bytes(100))[:5], frame(1, bytes(100))[:50]])
async def test_receive_names_the_peer_when_the_connection_ends(
    tls: list[TlsFiles], said: bytes
) -> None:
    """Between frames, in a header, in a payload. All that waits ends, and all that comes later."""
    async with linked(tls) as link:
        waiting = [asyncio.ensure_future(link.exchanger.receive(n, LONG_S, ANY)) for n in (1, 2)]
        await asyncio.sleep(0)
        link.says.sendall(said)
        link.cut()
        for one in waiting:
            with pytest.raises(PeerClosed, match="party 2 closed the connection") as caught:
                await one
            assert caught.value.pid == PEER
        with pytest.raises(PeerClosed):
            await link.exchanger.receive(3, LONG_S, ANY)
        with pytest.raises(PeerClosed):
            link.exchanger.send(3, array(b"x"))


async def test_receive_reports_a_broken_connection_when_a_record_is_forged(
    tls: list[TlsFiles],
) -> None:
    async with linked(tls) as link:
        record = b"\x17\x03\x03\x00\x20" + bytes(32)
        socket.socket.sendall(link.says, record)
        with pytest.raises(PeerClosed, match=r"with party 2 broke.*bad record mac"):
            await link.exchanger.receive(1, LONG_S, ANY)


async def test_receive_ends_when_only_the_sending_side_breaks(
    tls: list[TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection to the peer is reset, the one from it stays open and silent."""
    monkeypatch.setattr(exchanger_module, "_GRACE_S", 0.1)
    async with linked(tls) as link:
        waiting = asyncio.ensure_future(link.exchanger.receive(1, LONG_S, ANY))
        link.hears.close()
        link.exchanger.send(5, array(b"x"))
        with pytest.raises(PeerClosed, match="with party 2 broke"):
            await waiting


async def test_receive_tells_the_reason_when_the_peer_leaves_while_it_is_written_to(
    tls: list[TlsFiles],
) -> None:
    """The broken write is noticed first; the farewell, still on its way, is the better answer."""
    async with linked(tls) as link:
        waiting = asyncio.ensure_future(link.exchanger.receive(1, LONG_S, ANY))
        link.hears.close()
        link.exchanger.send(5, array(b"x"))
        await asyncio.sleep(0.1)  # Sleeps: head start.
        link.says.sendall(frame(FAREWELL, b"disk full"))
        with pytest.raises(PeerClosed, match="party 2 has left: disk full"):
            await waiting


async def test_receive_ends_with_the_reason_of_an_early_farewell(tls: list[TlsFiles]) -> None:
    async with linked(tls) as link:
        waiting = asyncio.ensure_future(link.exchanger.receive(1, LONG_S, ANY))
        link.says.sendall(frame(FAREWELL, "no space\non the disk\x1b[2J\xff".encode("latin-1")))
        with pytest.raises(PeerClosed) as caught:
            await waiting
        assert str(caught.value) == "party 2 has left: no space?on the disk?[2J\ufffd"
        assert link.owner.failures == [caught.value]


async def test_receive_still_has_what_came_before_the_farewell(tls: list[TlsFiles]) -> None:
    """A peer that is done may leave first; only what it never sent is an error."""
    async with linked(tls) as link:
        waiting = asyncio.ensure_future(link.exchanger.receive(2, LONG_S, ANY))
        await asyncio.sleep(0)
        link.says.sendall(frame(1, b"last") + frame(FAREWELL, b""))
        link.cut()
        with pytest.raises(PeerClosed, match=r"party 2 has left$"):
            await waiting
        assert (await link.exchanger.receive(1, LONG_S, ANY)).payload.tobytes() == b"last"
        assert link.owner.failures == []  # The work of the others goes on.


async def test_send_fails_the_owner_when_the_recorder_fails(tls: list[TlsFiles]) -> None:
    """A full disk under the transcript is not the peer's doing, and not silent either."""

    def full() -> None:
        raise OSError(28, "No space left on device")

    async with linked(tls, recorder=full) as link:
        waiting = asyncio.ensure_future(link.exchanger.receive(1, LONG_S, ANY))
        link.exchanger.send(5, array(b"x"))
        with pytest.raises(OSError, match="No space left"):
            await waiting


# The end.


async def test_farewell_follows_all_messages(tls: list[TlsFiles]) -> None:
    async with linked(tls) as link:
        payload = bytes(200_000)
        link.exchanger.send(1, array(payload))
        leaving = asyncio.ensure_future(link.exchanger.farewell("", LONG_S))
        expected = frame(1, payload) + frame(FAREWELL, b"")
        assert await link.hear(len(expected)) == expected
        await asyncio.sleep(0.05)  # Sleeps: quiet.
        assert not leaving.done()  # It waits for the peer's.
        link.says.sendall(frame(FAREWELL, b""))
        await asyncio.wait_for(leaving, LONG_S)
        assert link.owner.failures == []


async def test_farewell_cuts_a_long_reason_and_does_not_wait_for_an_answer(
    tls: list[TlsFiles],
) -> None:
    async with linked(tls) as link:
        await asyncio.wait_for(link.exchanger.farewell("é" * 1000, LONG_S), 2)
        assert await link.hear(HEADER.size + MAX_REASON_BYTES) == frame(
            FAREWELL, "é".encode() * (MAX_REASON_BYTES // 2)
        )


async def test_farewell_fails_the_owner_when_the_peer_says_none(tls: list[TlsFiles]) -> None:
    async with linked(tls) as link:
        started = time.monotonic()
        await link.exchanger.farewell("", SOON_S)
        assert time.monotonic() - started < SOON_S + 1
        assert [type(error) for error in link.owner.failures] == [ReceiveTimeout]
        assert "party 2 did not say farewell within 0.2 s" in str(link.owner.failures[0])


async def test_farewell_does_not_wait_for_a_peer_that_is_lost(tls: list[TlsFiles]) -> None:
    async with linked(tls) as link:
        link.cut()
        await eventually(lambda: link.owner.failures)
        started = time.monotonic()
        await link.exchanger.farewell("", LONG_S)
        assert time.monotonic() - started < 2


async def test_end_is_quick_when_the_peer_reads_nothing(tls: list[TlsFiles]) -> None:
    """The writer hangs in the socket, as it does with a stopped peer."""
    async with linked(tls) as link:
        link.exchanger.send(1, array(bytes(20_000_000)))
        link.exchanger.send(2, array(bytes(20_000_000)))
        await asyncio.sleep(0.1)  # Sleeps: head start.
        started = time.monotonic()
        await link.exchanger.farewell("stop", SOON_S)
        link.exchanger.end()
        assert time.monotonic() - started < SOON_S + 1
        assert link.sent == []


async def test_end_ends_what_still_waits(tls: list[TlsFiles]) -> None:
    async with linked(tls) as link:
        waiting = asyncio.ensure_future(link.exchanger.receive(1, LONG_S, ANY))
        await asyncio.sleep(0)
        link.exchanger.end()
        with pytest.raises(ChannelError, match="this party has left"):
            await waiting
        with pytest.raises(ChannelError):
            link.exchanger.send(1, array(b"x"))
        link.exchanger.end()  # Twice does no harm.
        assert link.exchanger._writer not in threading.enumerate()
        assert link.exchanger._reader not in threading.enumerate()
        await asyncio.sleep(0.05)  # Sleeps: quiet.
        assert link.owner.failures == []  # Its own shut sockets are no news.


async def test_end_leaves_no_error_unheard_when_nobody_waits(
    tls: list[TlsFiles], caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio logs exceptions of futures and callbacks that nobody has retrieved."""
    async with linked(tls) as link:
        waiting = asyncio.ensure_future(link.exchanger.receive(1, LONG_S, ANY))
        await asyncio.sleep(0)
        link.says.sendall(frame(5, b"") + frame(5, b""))
        await eventually(lambda: link.owner.failures)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert caplog.records == []
