"""Three runtimes on real sockets: keys, counted bytes, and every fault of a wire or a peer ending in its own error.

All in one event loop; ``test_runtime_processes`` has the deaths that need a process.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence

import numpy as np
import pytest

from protocols.base import multiply, open_value
from protocols.context import Context, StepCost, root_path
from protocols.digests import digest_key
from protocols.errors import (
    CheckFailed,
    ConfigurationError,
    ConnectTimeout,
    PeerClosed,
    ProtocolViolation,
    ReceiveTimeout,
)
from protocols.frames import HEADER
from protocols.mesh import TlsFiles
from protocols.pairing import SEALED_BYTES, seal_key
from protocols.ring import R32, R64
from protocols.runtime import PartyRuntime
from protocols.sealing import BoxKey
from protocols.shares import Share
from tests.protocols.local import LocalMesh, LocalParty, components, share_of
from tests.protocols.lone_party import exchange_for_ever
from tests.protocols.network import (
    Link,
    Proxy,
    all_ended,
    connected,
    free_addresses,
    runtimes,
    seals_in,
)

pytestmark = pytest.mark.usefixtures("nothing_left")


# What three good parties have.


async def test_connect_gives_each_key_to_its_two_holders(tls: list[TlsFiles]) -> None:
    async with connected(tls) as parties:
        keys = [{c: parties[c].component_key(c)} for c in range(3)]
        for component in range(3):
            before = parties[(component - 1) % 3]
            assert before.component_key(component) == keys[component][component]
            with pytest.raises(ValueError, match="holds no component"):
                parties[(component + 1) % 3].component_key(component)
        secrets = [party.private_key() for party in parties]
        secrets += [key for one in keys for key in one.values()]
        assert len(set(secrets)) == 6
        assert {len(key) for key in secrets} == {16}
        assert not any(repr(key) in repr(party) for key in secrets for party in parties)


async def greeted(parties: Sequence[PartyRuntime]) -> list[BaseException | None]:
    """Results of the three parties' greetings; then they leave."""
    ended = await asyncio.gather(*(p.connect() for p in parties), return_exceptions=True)
    await asyncio.gather(*(p.close("the test is over") for p in parties))
    return ended


async def test_connect_ends_where_a_peer_shows_another_share_than_it_committed_to(
    tls: list[TlsFiles],
) -> None:
    """Party 2 would choose its key with party 0 after it has seen what party 0 shows."""
    parties = runtimes(tls, connect_timeout_s=2.0)
    reveal = parties[2].reveal

    def another(peer: int) -> bytes:
        coin, offer = parties[2]._coins[0], parties[2]._offers[0]
        info = coin._info(offer, 2, 0)
        return seal_key(offer, 0).seal(bytes(32), info) if peer == 0 else reveal(peer)

    parties[2].reveal = another  # type: ignore[method-assign]
    ended = await greeted(parties)
    assert isinstance(ended[0], ProtocolViolation)
    assert ended[0].pid == 2
    assert "did not show what it had committed to" in str(ended[0])


@pytest.mark.parametrize("how", ["for another party", "replayed", "altered", "cut short", "plain"])
async def test_connect_ends_where_a_sealed_share_is_not_for_this_greeting(
    tls: list[TlsFiles], how: str
) -> None:
    parties, earlier = runtimes(tls, connect_timeout_s=2.0), runtimes(tls)
    for before in earlier:
        for peer in {0, 1, 2} - {before.pid}:
            before.accept_hello(peer, earlier[peer].hello(before.pid))
    reveal = parties[2].reveal
    said = {
        "for another party": lambda: reveal(1),
        "replayed": lambda: earlier[2].reveal(0),
        "altered": lambda: bytes([reveal(0)[0] ^ 1]) + reveal(0)[1:],
        # What follows would be the first frame.
        "cut short": lambda: (whole := reveal(0))[:-1] + bytes([whole[-1] ^ 1]),
        "plain": lambda: parties[2]._coins[0].share.ljust(SEALED_BYTES),
    }[how]
    parties[2].reveal = lambda peer: said() if peer == 0 else reveal(peer)  # type: ignore[method-assign]
    ended = await greeted(parties)
    assert isinstance(ended[0], ProtocolViolation)
    assert ended[0].pid == 2
    assert "party 2 sent a sealed share for the pair's key that does not open" in str(ended[0])


@pytest.mark.parametrize("other", [0, 2])
async def test_connect_refuses_a_peer_with_another_sealing_key(
    tls: list[TlsFiles], other: int
) -> None:
    """The third party is not there: where it is, it may come when both have left."""
    seals = [seals_in(files.ca.parent, pid) for pid, files in enumerate(tls)]
    seals[1] = dataclasses.replace(seals[1], own=BoxKey.generate())
    parties = runtimes(tls, seals=seals)
    ended = await greeted([parties[1], parties[other]])
    assert [type(each) for each in ended] == [ProtocolViolation] * 2
    assert "party 1 has another sealing key" in str(ended[1])


async def test_connect_puts_up_with_another_sealing_key_only_where_it_is_told_to(
    tls: list[TlsFiles],
) -> None:
    """As with a peer whose run is over: what is said is sealed to the key that it offers."""
    seals = [seals_in(files.ca.parent, pid) for pid, files in enumerate(tls)]
    seals[1] = dataclasses.replace(seals[1], own=BoxKey.generate())
    told: list[int] = []
    async with connected(tls, seals=seals, on_other_seal=lambda v: told.append(v.pid)) as parties:
        assert set(told) == {1}
        replies = await asyncio.gather(*(p.context().exchange(bytes([p.pid])) for p in parties))
        assert replies == [[b"\0", b"\1", b"\2"]] * 3


async def test_connect_makes_other_keys_for_another_configuration(tls: list[TlsFiles]) -> None:
    addresses = free_addresses()
    parties = [runtimes(tls, [addresses] * 3, binding=b)[i] for i, b in enumerate(["x", "x", "y"])]
    await asyncio.gather(*(party.connect() for party in parties))
    keys = {(p, c): parties[p].component_key(c) for p in range(3) for c in (p, (p + 1) % 3)}
    await asyncio.gather(*(party.close("the test is over") for party in parties))
    assert keys[0, 1] == keys[1, 1]
    assert keys[1, 2] != keys[2, 2]
    assert keys[2, 0] != keys[0, 0]


async def test_exchange_shows_peers_of_another_configuration_what_differs(
    tls: list[TlsFiles],
) -> None:
    """They have no common keys to compute with, and can still read one another."""
    addresses = free_addresses()
    parties = [runtimes(tls, [addresses] * 3, binding=b)[i] for i, b in enumerate("xxy")]
    await asyncio.gather(*(party.connect() for party in parties))
    said = await asyncio.gather(*(p.context().exchange(f"{p.pid}".encode()) for p in parties))
    await asyncio.gather(*(party.close("the test is over") for party in parties))
    assert said == [[b"0", b"1", b"2"]] * 3


def test_digest_key_differs_by_link_and_hides_the_links_key() -> None:
    """An auditor may learn digests; the third party, who has the two other components, must not try messages."""
    keys = [bytes([i] * 16) for i in range(3)]
    derived = [digest_key(key) for key in keys]
    assert len(set(derived)) == 3
    assert not any(key in other for key in keys for other in derived)


def test_sessions_share_neither_keystreams_nor_labels() -> None:
    """Even where their keys were the same."""
    party = LocalParty(LocalMesh(1), 0)
    contexts = [Context(party, root_path(session)) for session in ("first", "second")]
    assert len({int(ctx.private(R64, ())) for ctx in contexts}) == 2
    assert len({int(ctx.common(0, R64, ())) for ctx in contexts}) == 2
    assert len({ctx._next_label() for ctx in contexts}) == 2


async def test_runtime_carries_the_protocols(tls: list[TlsFiles]) -> None:
    x, y = components(R32, [3, 5, 7]), components(R32, [11, 13, 17], seed=8)

    async def work(party: PartyRuntime) -> object:
        ctx = party.context()
        z_sh = await multiply(ctx, share_of(ctx, x, R32), share_of(ctx, y, R32))
        return (await open_value(ctx, z_sh, "z")).tolist()

    async with connected(tls) as parties:
        results = await asyncio.gather(*(work(party) for party in parties))
    assert results == [[33, 65, 119]] * 3


@pytest.mark.parametrize("sizes", [[0], [1], [100, 0, 20_000], [1 << 20] * 3])
async def test_costs_are_what_the_sockets_carry(tls: list[TlsFiles], sizes: list[int]) -> None:
    """Frames are payloads and a header a message; nothing travels that no step has counted."""

    async def work(party: PartyRuntime) -> None:
        for number, size in enumerate(sizes):
            with party.context().step("exchange", round=number) as ctx:
                await ctx.exchange(bytes(size + party.pid))
        with party.context().step("broadcast") as ctx:
            await ctx.broadcast(1, bytes(1000) if party.pid == 1 else None)

    async with connected(tls) as parties:
        await asyncio.gather(*(work(party) for party in parties))
        for party in parties:
            peers = party._exchangers()
            steps = party.costs.steps
            messages = sum(step.messages for step in steps)
            assert messages == 2 * len(sizes) + (2 if party.pid == 1 else 0)
            expected = sum(2 * (size + party.pid) for size in sizes) + (
                2000 if party.pid == 1 else 0
            )
            assert sum(step.sent_bytes for step in steps) == expected
            assert sum(peer.nbytes_sent for peer in peers) == expected + HEADER.size * messages
            for peer in peers:
                other = parties[peer.peer_pid].parties[party.pid].protocol
                assert peer.nbytes_sent == other.nbytes_received
            received = len(sizes) * 2 + (0 if party.pid == 1 else 1)
            assert (
                sum(peer.nbytes_received for peer in peers)
                == sum(step.received_bytes for step in steps) + HEADER.size * received
            )
            assert [step.rounds for step in steps] == [1] * (len(sizes) + 1)


class CountingPipe:
    """Counts what a ``Proxy`` carries."""

    def __init__(self) -> None:
        self.bytes = 0

    async def __call__(self, data: bytes, link: Link) -> None:
        self.bytes += len(data)
        await link.send(data)


async def test_costs_leave_out_less_than_two_percent_of_the_wire(tls: list[TlsFiles]) -> None:
    """The overhead of TLS and the greeting, measured beneath TLS from party 0 to party 1."""
    pipe = CountingPipe()
    async with proxied(tls, pipe) as parties:
        await asyncio.gather(*(party.context().exchange(bytes(1 << 20)) for party in parties))
        counted = parties[0].parties[1].protocol.nbytes_sent
        assert counted == (1 << 20) + HEADER.size
        assert counted < pipe.bytes < 1.02 * counted


async def test_runtime_closes_in_peace_at_different_times(tls: list[TlsFiles]) -> None:
    async def work(party: PartyRuntime) -> None:
        await party.context().exchange(b"last")
        await asyncio.sleep(0.3 * party.pid)  # Sleeps: slow.

    async with connected(tls) as parties:
        assert await all_ended(parties, work, 5) == [None] * 3
        for party in parties:
            await party.close()  # Twice does no harm.


async def test_runtime_refuses_to_connect_twice(tls: list[TlsFiles]) -> None:
    """Its keys would mask two runs."""
    async with connected(tls) as parties:
        with pytest.raises(ValueError, match="connects once"):
            await parties[0].connect()
        assert parties[0].context() is parties[0].context()


async def test_runtime_refuses_what_unpickles(tls: list[TlsFiles]) -> None:
    party = runtimes(tls)[0]
    with pytest.raises(TypeError, match="unpickles"):
        party.transfer(1)
    with pytest.raises(TypeError, match="MPyC's own types"):
        party.output(1)


@pytest.mark.parametrize(("pid", "count"), [(3, 3), (-1, 3), (0, 2), (0, 4)])
async def test_runtime_refuses_other_numbers_of_parties(
    tls: list[TlsFiles], pid: int, count: int
) -> None:
    with pytest.raises(ConfigurationError, match="parties 0, 1 and 2"):
        PartyRuntime(
            pid,
            [("127.0.0.1", 7000)] * count,
            tls=tls[0],
            seals=seals_in(tls[0].ca.parent, 0),
            session="test",
        )


async def test_runtime_leaves_the_loop_as_it_was(tls: list[TlsFiles]) -> None:
    runtimes(tls)
    assert asyncio.get_running_loop().get_exception_handler() is None


async def test_connect_refuses_sessions_that_differ_late(tls: list[TlsFiles]) -> None:
    """Only beyond the 64th character."""
    addresses = free_addresses()
    parties = [
        PartyRuntime(
            pid,
            addresses,
            tls=tls[pid],
            seals=seals_in(tls[pid].ca.parent, pid),
            session="s" * 64 + f"/{pid}",
        )
        for pid in (0, 1)
    ]
    results = await asyncio.gather(*(party.connect() for party in parties), return_exceptions=True)
    assert [type(result) for result in results] == [ProtocolViolation] * 2


# Faults of the wire from party 0 to party 1. TLS turns forged bytes into a broken connection.

TIMEOUT_S = 0.6
AFTER = 30_000  # Bytes that pass before the fault: the greeting and a part of the first message.


class Fault:
    """A wire that works until ``AFTER`` bytes have passed, then does something once, or from then on."""

    def __init__(self) -> None:
        self.done = False

    async def __call__(self, data: bytes, link: Link) -> None:
        if link.seen + len(data) <= AFTER or self.done:
            await link.send(data)
        else:
            self.done = True
            await self.strike(data, link)

    async def strike(self, data: bytes, link: Link) -> None:
        raise NotImplementedError


class Drop(Fault):
    """Nothing passes any more, and nobody is told."""

    async def __call__(self, data: bytes, link: Link) -> None:
        if not self.done:
            await super().__call__(data, link)

    async def strike(self, data: bytes, link: Link) -> None:
        return


class Delay(Fault):
    async def strike(self, data: bytes, link: Link) -> None:
        await asyncio.sleep(TIMEOUT_S / 3)  # Sleeps: slow.
        await link.send(data)


class Stall(Fault):
    async def strike(self, data: bytes, link: Link) -> None:
        await asyncio.sleep(TIMEOUT_S * 2)  # Sleeps: slow.
        await link.send(data)


class Duplicate(Fault):
    async def strike(self, data: bytes, link: Link) -> None:
        await link.send(data + data)


class Truncate(Fault):
    async def strike(self, data: bytes, link: Link) -> None:
        await link.send(data[:100])
        link.writer.transport.abort()


class Finish(Fault):
    async def strike(self, data: bytes, link: Link) -> None:
        await link.send(data[:100])
        link.writer.close()


class Flip(Fault):
    """One bit, the first of a TLS record's ciphertext; in a record's header it might only make TLS wait for more."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0  # Where the next record begins, counted from the next byte.
        self.held = b""  # The beginning of a record's header.

    async def __call__(self, data: bytes, link: Link) -> None:
        data = bytearray(self.held + data)
        while self.ahead + 5 < len(data):
            body = self.ahead + 5
            if link.seen + body > AFTER and not self.done:
                self.done = True
                data[body] ^= 1
            self.ahead = body + int.from_bytes(data[body - 2 : body], "big")
        whole = min(self.ahead, len(data))
        self.ahead, self.held = self.ahead - whole, bytes(data[whole:])
        await link.send(bytes(data[:whole]))


class Replay(Fault):
    """The connection's first bytes once more, after the strike."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = b""

    async def __call__(self, data: bytes, link: Link) -> None:
        self.heard += data
        await super().__call__(data, link)

    async def strike(self, data: bytes, link: Link) -> None:
        await link.send(data + self.heard[:2000])


class Drip(Fault):
    async def __call__(self, data: bytes, link: Link) -> None:
        for byte in data:
            await link.send(bytes([byte]))
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def proxied(
    tls: list[TlsFiles], wire: Callable[[bytes, Link], object], receiver_timeout_s: float = 5.0
) -> AsyncIterator[list[PartyRuntime]]:
    """Three parties; what party 0 sends to party 1 passes through ``wire``.

    Party 1's deadline is the shortest: with equal ones a party that waits for party 1 could be the first to complain.
    """
    addresses = free_addresses()
    async with Proxy(addresses[1], wire).serving() as front:
        views = [[addresses[0], front, addresses[2]], addresses, addresses]
        async with connected(tls, views, timeouts_s=(10.0, receiver_timeout_s, 10.0)) as parties:
            yield parties


async def six_exchanges(party: PartyRuntime) -> None:
    """A party may be one exchange ahead of a late peer: the fault is in the second or third."""
    for _ in range(6):
        replies = await party.context().exchange(bytes([party.pid]) * 20_000)
        assert replies == [bytes([pid]) * 20_000 for pid in range(3)]


@pytest.mark.parametrize(
    ("wire", "expected", "text"),
    [
        (Delay, None, ""),
        (Drop, ReceiveTimeout, "no message from party 0 for 0.6 s"),
        (Stall, ReceiveTimeout, "no message from party 0 for 0.6 s"),
        (Duplicate, PeerClosed, "the connection with party 0 broke"),
        (Replay, PeerClosed, "the connection with party 0 broke"),
        (Flip, PeerClosed, "bad record mac"),
        (Truncate, PeerClosed, "party 0"),
        (Finish, PeerClosed, "party 0 closed the connection"),
    ],
)
async def test_exchange_ends_in_its_own_error_at_all_parties_when_the_wire_fails(
    tls: list[TlsFiles], wire: type[Fault], expected: type[Exception] | None, text: str
) -> None:
    async with proxied(tls, wire(), TIMEOUT_S) as parties:
        errors = await all_ended(parties, six_exchanges, 9)
    if expected is None:
        assert errors == [None] * 3
        return
    assert type(errors[1]) is expected
    assert text in str(errors[1])
    assert errors[1].pid == 0  # type: ignore[union-attr]
    for error in (errors[0], errors[2]):
        assert isinstance(error, PeerClosed | ReceiveTimeout)


async def test_exchange_works_when_the_wire_drips(tls: list[TlsFiles]) -> None:
    async def work(party: PartyRuntime) -> None:
        for size in (0, 300, 3):
            assert len((await party.context().exchange(bytes(size)))[0]) == size

    async with proxied(tls, Drip()) as parties:
        assert await all_ended(parties, work, 20) == [None] * 3


# A peer that speaks valid TLS and says what it may not. Party 0 is that peer.


def label_of(ctx: Context) -> int:
    """The label of the next message of a context, left unused."""
    label = ctx._next_label()
    ctx._labels -= 1
    return label


def says(party: PartyRuntime, data: bytes) -> None:
    party.parties[1].protocol._outgoing.sendall(data)


@pytest.mark.parametrize(
    ("size", "error"), [(7, ProtocolViolation), (9, ProtocolViolation), (8, None)]
)
async def test_round_refuses_a_payload_of_another_size(
    tls: list[TlsFiles], size: int, error: type[Exception] | None
) -> None:
    async def work(party: PartyRuntime) -> None:
        ctx = party.context()
        if party.pid == 0:
            await ctx.round({1: np.zeros(size, np.uint8)}, {})
        elif party.pid == 1:
            await ctx.round({}, {0: 8})

    async with connected(tls) as parties:
        errors = await all_ended(parties, work, 5)
    assert (type(errors[1]) if errors[1] else None) is error
    if error:
        said = "sent 7 bytes" if size < 8 else "announced a message of 9 bytes, at most 8"
        assert f"party 0 {said}" in str(errors[1])


@pytest.mark.slow
async def test_round_carries_a_message_of_more_than_half_a_gigabyte(tls: list[TlsFiles]) -> None:
    """A model of 130 million cells; 1.3 GB of memory."""
    size = 4 * 130_000_000
    payload = np.arange(size // 4, dtype=np.uint32).view(np.uint8)

    async def work(party: PartyRuntime) -> None:
        ctx = party.context()
        if party.pid == 0:
            await ctx.round({1: payload}, {})
        elif party.pid == 1:
            received = await ctx.round({}, {0: size})
            assert np.array_equal(received[0], payload)
            assert (ctx.cost.received_bytes, ctx.depth) == (size, 1)

    async with connected(tls, timeout_s=30.0) as parties:
        assert await all_ended(parties, work, 120) == [None] * 3


async def test_exchange_ends_everywhere_when_a_peer_announces_too_much(tls: list[TlsFiles]) -> None:
    async def work(party: PartyRuntime) -> None:
        if party.pid == 0:
            says(party, HEADER.pack(label_of(party.context()), (1 << 28) + 1))
        await exchange_for_ever(party)

    async with connected(tls, timeout_s=30.0) as parties:
        errors = await all_ended(parties, work, 5)
    assert isinstance(errors[1], ProtocolViolation)
    assert errors[1].pid == 0
    for error in (errors[0], errors[2]):
        assert isinstance(error, PeerClosed)
    assert "party 1 has left: party 0 announced a message" in str(errors[2]) + str(errors[0])


async def test_close_reports_messages_that_were_not_due(tls: list[TlsFiles]) -> None:
    """A replayed message, whose label has had its time, and one that nobody ever asked for."""

    async def work(party: PartyRuntime) -> None:
        label = label_of(party.context())
        for said in (b"once", b"after which everyone has taken the first"):
            await party.context().exchange(said)
        if party.pid == 0:
            for again in (label, 12345):
                party.post(1, again, np.frombuffer(b"once", np.uint8), StepCost("replay", None))
        await party.context().exchange(b"the last")

    async with connected(tls) as parties:
        errors = await all_ended(parties, work, 5)
    assert isinstance(errors[1], ProtocolViolation)
    assert "party 0 sent 2 messages that were not due" in str(errors[1])
    assert errors[0] is errors[2] is None


async def test_open_value_finds_a_changed_byte(tls: list[TlsFiles]) -> None:
    """Under TLS only a party can change one; the digest of the other holder shows it."""
    parts = components(R32, [1, 2, 3])

    async def work(party: PartyRuntime) -> None:
        ctx = party.context()
        share = share_of(ctx, parts, R32)
        if party.pid == 0:
            share = Share(R32, 0, share.own ^ np.uint32(1), share.next)
        await open_value(ctx, share, "x")

    async with connected(tls) as parties:
        errors = await all_ended(parties, work, 5)
    assert isinstance(errors[1], CheckFailed)


# Peers that leave.


async def test_close_tells_the_reason_to_all_who_wait(tls: list[TlsFiles]) -> None:
    """Also to a party that waits for another one."""

    async def work(party: PartyRuntime) -> None:
        ctx = party.context()
        if party.pid == 2:
            await asyncio.sleep(0.1)  # Sleeps: head start.
            raise CheckFailed("the clients' digests differ")
        await ctx.round({}, {1 - party.pid: 8})

    async with connected(tls, timeout_s=30.0) as parties:
        errors = await all_ended(parties, work, 3)
    for error in errors[:2]:
        assert isinstance(error, PeerClosed)
        assert "has left: " in str(error)
        assert "the clients' digests differ" in str(error)


async def test_close_raises_when_a_peer_left_early(tls: list[TlsFiles]) -> None:
    """Party 0 has all it needs, but the run is not whole."""
    async with connected(tls) as parties:
        await parties[2].close("disk full")
        await parties[1].close("disk full elsewhere")
        with pytest.raises(PeerClosed, match="disk full"):
            await parties[0].close()


async def test_close_raises_at_its_deadline_when_a_peer_does_not_leave(tls: list[TlsFiles]) -> None:
    async with connected(tls, timeout_s=0.3) as parties:
        results = await asyncio.gather(
            parties[0].close(), parties[1].close(), return_exceptions=True
        )
        for result in results:
            assert isinstance(result, ReceiveTimeout | PeerClosed)
            assert result.pid in (0, 1, 2)


async def test_close_raises_when_the_recorder_fails_at_last(tls: list[TlsFiles]) -> None:
    """The last messages' records are lost, and nobody waits for anything any more."""

    class Full:
        def message(self, **_: object) -> None:
            raise OSError(28, "No space left on device")

        def opened(self, **_: object) -> None:
            raise NotImplementedError

    async def work(party: PartyRuntime) -> None:
        ctx = party.context()
        if party.pid == 0:
            await ctx.round({1: np.zeros(8, np.uint8)}, {})
        elif party.pid == 1:
            await ctx.round({}, {0: 8})
        await asyncio.sleep(0.1)  # Sleeps: quiet.

    async with connected(tls, recorders=[Full(), None, None]) as parties:
        errors = await all_ended(parties, work, 5)
    assert isinstance(errors[0], OSError)


async def test_async_with_tells_engine_errors_and_hides_others(tls: list[TlsFiles]) -> None:
    """An error of other code may quote somebody's data."""

    async def work(party: PartyRuntime, error: Exception | None) -> None:
        async with party:
            if error is not None:
                raise error
            await party.context().round({}, {2: 1})

    for error, told in [
        (CheckFailed("components differ"), "has left: components differ"),
        (ValueError("row 7: Ms Smith"), "has left: ValueError"),
        (TimeoutError(), "has left: TimeoutError"),
    ]:
        parties = runtimes(tls)
        results = await asyncio.gather(
            *(work(party, error if party.pid == 2 else None) for party in parties),
            return_exceptions=True,
        )
        assert results[2] is error
        for result in results[:2]:
            assert isinstance(result, PeerClosed)
            assert told in str(result)
            assert "Smith" not in str(result)


async def test_async_with_leaves_nothing_when_connect_fails(tls: list[TlsFiles]) -> None:
    with pytest.raises(ConnectTimeout):
        async with runtimes(tls, connect_timeout_s=0.2)[0]:
            raise AssertionError("connected to nobody")


# Cancellation, as by Ctrl-C.


@pytest.mark.parametrize("after_s", [0, 0.001, 0.03, 0.1, 0.3])
async def test_async_with_leaves_nothing_when_cancelled(
    tls: list[TlsFiles], after_s: float
) -> None:
    """While connecting or exchanging, whichever it comes to."""

    async def work(party: PartyRuntime) -> None:
        async with party:
            await exchange_for_ever(party)

    tasks = [asyncio.ensure_future(work(party)) for party in runtimes(tls, connect_timeout_s=1.0)]
    await asyncio.sleep(after_s)  # Sleeps: head start.
    tasks[0].cancel()
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
    assert isinstance(results[0], asyncio.CancelledError)
    for result in results[1:]:
        assert isinstance(result, PeerClosed | ConnectTimeout)
        assert "party 0" in str(result)


async def test_async_with_tells_the_peers_when_cancelled_in_a_receive(tls: list[TlsFiles]) -> None:
    async def work(party: PartyRuntime) -> None:
        async with party:
            await party.context().exchange(b"all are here")
            if party.pid == 0:
                asyncio.get_running_loop().call_later(0.05, tasks[0].cancel)
            await party.context().round({}, {(party.pid + 1) % 3: 1})

    tasks = [asyncio.ensure_future(work(party)) for party in runtimes(tls, timeout_s=30.0)]
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 3)
    assert isinstance(results[0], asyncio.CancelledError)
    for result in results[1:]:
        assert isinstance(result, PeerClosed)
        assert "party 0 has left: CancelledError" in str(result)


@pytest.mark.parametrize("steps", range(6))
async def test_close_leaves_nothing_when_it_is_cancelled_itself(
    tls: list[TlsFiles], steps: int
) -> None:
    """At each of its first steps."""
    async with connected(tls) as parties:
        closing = asyncio.ensure_future(parties[0].close())
        for _ in range(steps):
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        if steps > 0:  # Otherwise it has not begun.
            assert all(not peer._reader.is_alive() for peer in parties[0]._exchangers())
