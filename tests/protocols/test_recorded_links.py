"""Recorders of all links: who breaks TLS's key agreement later has every byte that was written into the connections.

The recorder here is given just that, greetings included. Each reshared value is the sum of three messages, one on each
link, so that payloads as they are make the rows' joint histogram; the control, without the keystreams of the frames,
shows that it does. Statistic of the uniformity test: the ones at each of a byte's eight places and the bytes' mean
over some 10^5 bytes a link, against 6.5 standard deviations; with nine comparisons a link a false alarm is rarer than
once in 10^8, and a place that is one in 51.2 % of the bytes is caught. Its control is the same without keystreams.
"""

import asyncio
import itertools
import ssl
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

from protocols import rows as counting
from protocols import runtime as runtime_module
from protocols.context import Context
from protocols.frames import HEADER, PART_BYTES
from protocols.mesh import TlsFiles, _preamble
from protocols.pairing import SEALED_BYTES
from protocols.products import NumpyProducts
from protocols.row_plan import CountPlan, plan_counting
from protocols.rows import SharedRows, _arranged, shared_rows
from protocols.runtime import PartyRuntime
from protocols.shares import Share
from tests.protocols.local import reconstruct
from tests.protocols.network import ZeroStream, connected

pytestmark = pytest.mark.usefixtures("nothing_left")

Links = dict[tuple[int, int], bytes]
Messages = dict[int, bytes]

SIZES, ROWS = (2, 3, 2, 4), 299
PLAN = plan_counting(SIZES, ((0, 1, 2, 3),))
LIMIT = 6.5


def patients() -> np.ndarray:
    """Rows of four columns that hang together."""
    generator = np.random.default_rng(36)
    first = generator.integers(0, 12, ROWS)
    columns = [first % 2, first // 4, generator.integers(0, 2, ROWS), first % 4]
    return np.stack(columns, axis=1).astype(np.int32)


def histogram(codes: np.ndarray) -> np.ndarray:
    """The joint counts of all columns, in the clear."""
    return np.bincount(np.ravel_multi_index(tuple(codes.T), SIZES), minlength=int(np.prod(SIZES)))


def zeros(key: bytes, sender: int, receiver: int) -> ZeroStream:
    """In the place of ``frames_stream``."""
    return ZeroStream(key, bytes((sender, receiver)))


class Recorder:
    """Every byte that is written into any TLS connection, by connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._written = defaultdict[ssl.SSLSocket, bytearray](bytearray)
        send = ssl.SSLSocket.send

        def recorded(connection: ssl.SSLSocket, data: memoryview, flags: int = 0) -> int:
            count = send(connection, data, flags)
            self._written[connection] += bytes(data[:count])
            return count

        monkeypatch.setattr(ssl.SSLSocket, "send", recorded)

    def links(self, parties: list[PartyRuntime]) -> Links:
        """Bytes that each party has sent to each other one, from its first byte."""
        return {
            (sender, receiver): bytes(
                self._written[parties[sender].parties[receiver].protocol._outgoing]
            )
            for sender, receiver in itertools.permutations(range(3), 2)
        }


async def counted(
    tls: list[TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> tuple[Links, list[PartyRuntime]]:
    """The links of three parties that count 299 patients' rows, which goes well; and the parties, which have left."""
    recorder = Recorder(monkeypatch)
    body = PLAN.layout.pack(patients(), ROWS)
    masks = np.random.default_rng(1).integers(0, 256, (2, body.size), np.uint8)
    parts = [*masks, body ^ masks[0] ^ masks[1]]

    async def work(party: PartyRuntime) -> Share:
        ctx: Context = party.context()
        held = [SharedRows(ROWS, parts[ctx.pid], parts[ctx.next_pid])]
        shared = shared_rows(ctx.pid, PLAN.layout, held)
        return await counting.count_rows(ctx, shared, ROWS, PLAN, products=NumpyProducts(1))

    async with connected(tls) as parties:
        shares = await asyncio.gather(*(work(party) for party in parties))
        await asyncio.gather(*(party.flush() for party in parties))
        links = recorder.links(parties)
    assert np.array_equal(reconstruct(shares), histogram(patients()))
    return links, parties


# The recorder's side.


def frames_of(
    said: bytes, parties: list[PartyRuntime], way: tuple[int, int]
) -> Iterator[tuple[int, bytes, bytes]]:
    """Label, header and payload of each frame behind a link's greeting."""
    sender, receiver = way
    at = len(_preamble("")) + parties[receiver].hello_size(sender) + SEALED_BYTES
    done = dict[int, int]()
    while at < len(said):
        label, size = HEADER.unpack_from(said, at)
        begin = at + HEADER.size
        at = begin + min(PART_BYTES, size - done.get(label, 0))
        done[label] = done.get(label, 0) + at - begin
        yield label, said[begin - HEADER.size : begin], said[begin:at]


def messages_of(links: Links, parties: list[PartyRuntime]) -> dict[tuple[int, int], Messages]:
    found = dict[tuple[int, int], Messages]()
    for way, said in links.items():
        found[way] = defaultdict(bytes)
        for label, _, payload in frames_of(said, parties, way):
            found[way][label] += payload
    return found


def sums(links: Links, parties: list[PartyRuntime]) -> Iterator[np.ndarray]:
    """Of each label that every party has sent to the one before it: the three payloads' sum modulo 2^16."""
    messages = messages_of(links, parties)
    ways = [messages[pid, (pid - 1) % 3] for pid in range(3)]
    for label in set.intersection(*(set(way) for way in ways)):
        payloads = [way[label] for way in ways]
        if len({len(payload) for payload in payloads}) == 1 and len(payloads[0]) % 2 == 0:
            yield sum(np.frombuffer(payload, "<u2") for payload in payloads).astype(np.uint16)


def rebuilt(links: Links, parties: list[PartyRuntime], plan: CountPlan) -> list[np.ndarray]:
    """Histograms that the recorder finds: what is twice the plan's tables (`protocols.doubled`), of all rows."""
    cells = sum(plan.size(count.left) * plan.size(count.right) for count in plan.counts)
    tables = [_arranged(plan, one) for one in sums(links, parties) if one.size == cells]
    return [table // 2 for table in tables if table.sum(dtype=np.uint64) == 2 * ROWS]


def unevenness(octets: bytes) -> float:
    """The largest deviation of a byte's eight places and of the mean, in standard deviations of uniform bytes."""
    values = np.frombuffer(octets, np.uint8)
    ones = np.unpackbits(values).reshape(-1, 8).sum(axis=0)
    places = np.abs(ones - values.size / 2) / np.sqrt(values.size / 4)
    mean = abs(values.mean() - 127.5) / np.sqrt((256**2 - 1) / 12 / values.size)
    return float(max(*places, mean))


async def test_recorder_of_all_links_cannot_rebuild_rows(
    tls: list[TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    links, parties = await counted(tls, monkeypatch)
    assert len(list(sums(links, parties))) >= 3
    assert rebuilt(links, parties, PLAN) == []


async def test_recorder_rebuilds_the_joint_histogram_where_frames_have_no_keystream(
    tls: list[TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the attack works on payloads as they are."""
    monkeypatch.setattr(runtime_module, "frames_stream", zeros)
    links, parties = await counted(tls, monkeypatch)
    found = rebuilt(links, parties, PLAN)
    assert any(np.array_equal(table, histogram(patients())) for table in found)


@pytest.mark.parametrize("covered", [True, False])
async def test_frames_are_uniform_with_keystreams_and_not_without(
    tls: list[TlsFiles], monkeypatch: pytest.MonkeyPatch, *, covered: bool
) -> None:
    """Payloads here would be told from random ones at a glance."""
    if not covered:
        monkeypatch.setattr(runtime_module, "frames_stream", zeros)
    recorder = Recorder(monkeypatch)
    async with connected(tls) as parties:
        for payload in (bytes(100_000), b"A" * 1000):
            await asyncio.gather(*(party.context().exchange(payload) for party in parties))
        await asyncio.gather(*(party.flush() for party in parties))
        links = recorder.links(parties)
    for way, said in links.items():
        payloads = b"".join(payload for _, _, payload in frames_of(said, parties, way))
        assert len(payloads) == 101_000
        assert (unevenness(payloads) < LIMIT) == covered


async def test_recorder_finds_no_share_of_a_key_in_the_greetings(
    tls: list[TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares make all keys of the pairs; they were there to be read within TLS, before they were sealed."""
    recorder = Recorder(monkeypatch)
    async with connected(tls) as parties:
        links = recorder.links(parties)
    for (sender, receiver), said in links.items():
        assert len(said) > SEALED_BYTES
        for other in range(3):
            if other != sender:
                assert parties[sender]._coins[other].share not in said
        assert (
            parties[receiver].component_key(receiver if receiver == (sender + 1) % 3 else sender)
            not in said
        )
