"""A delaying channel: ``python -m bench.relay ORDERS`` forwards TCP bytes as late as a slower network would.

ORDERS is JSON: ``rate_bits`` a second and ``delay_s`` of each host's outgoing link, and ``ways`` [source host, target
host, port to listen on, target's port], all on loopback. All connections of a host share its link: bytes leave one
after the other at its rate, and arrive after the delay. Prints "ready" when it listens; ends when killed. Known limits:
see ``networks``.
"""

import asyncio
import json
import selectors
import sys
from functools import partial

# Capacity of a link's queue, in seconds of its rate; a router's queue is of this order.
_QUEUE_S = 0.02
# Bytes that travel together: at most this many seconds of the rate, as a stand-in for packets.
_PIECE_S = 0.0005
_RETRY_S = 0.05


class Link:
    """Outgoing link of one host: one queue for all its connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rate_bits: float, delay_s: float) -> None:
        self._loop = loop
        self._bytes_s = rate_bits / 8
        self._delay_s = delay_s
        self._free_at = 0.0
        self.piece = max(1 << 11, int(self._bytes_s * _PIECE_S))

    def arrival(self, size: int) -> float:
        """Returns the arrival time of ``size`` bytes that are sent now, on the loop's clock."""
        self._free_at = max(self._free_at, self._loop.time()) + size / self._bytes_s
        return self._free_at + self._delay_s

    def backlog_s(self) -> float:
        """Returns the seconds of the queue beyond the link's capacity."""
        return self._free_at - self._loop.time() - _QUEUE_S


class End(asyncio.BufferedProtocol):
    """One end of a relayed connection: received bytes go over ``link`` to the ``other`` end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, link: Link) -> None:
        self._loop = loop
        self._link = link
        self._buffer = bytearray(link.piece)
        self.transport: asyncio.Transport | None = None
        self.other: End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # of asyncio's own making
        self.transport = transport
        if self.other is None:
            # The onward connection is missing yet: the accepting end waits for it.
            transport.pause_reading()

    def get_buffer(self, sizehint: int) -> bytearray:
        """Called by asyncio."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio with new bytes."""
        self._loop.call_at(self._link.arrival(nbytes), self._pass, bytes(self._buffer[:nbytes]))
        if (backlog := self._link.backlog_s()) > 0 and self.transport is not None:
            self.transport.pause_reading()
            self._loop.call_later(backlog, self.resume)

    def resume(self) -> None:
        """Resumes reading."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def _pass(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio; the other end learns of it after all bytes under way."""
        self._loop.call_at(self._link.arrival(0), self._end)

    def _end(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


async def _dial_on(loop: asyncio.AbstractEventLoop, near: End, far: End, port: int) -> None:
    """Connects onwards; waits for a host that does not listen yet, as long as the dialler waits."""
    far.other = near
    while near.transport is None or not near.transport.is_closing():
        try:
            await loop.create_connection(lambda: far, "127.0.0.1", port)
        except OSError:
            await asyncio.sleep(_RETRY_S)
        else:
            near.other = far
            near.resume()
            return


async def _serve(rate_bits: float, delay_s: float, ways: list[list[int]]) -> None:
    loop = asyncio.get_running_loop()
    links = [Link(loop, rate_bits, delay_s) for _ in range(3)]
    dialling: set[asyncio.Task[None]] = set()

    def accept(source: int, target: int, port: int) -> End:
        near, far = End(loop, links[source]), End(loop, links[target])
        task = loop.create_task(_dial_on(loop, near, far, port))
        dialling.add(task)
        task.add_done_callback(dialling.discard)
        return near

    for source, target, entry, port in ways:
        await loop.create_server(partial(accept, source, target, port), "127.0.0.1", entry)
    print("ready", flush=True)  # noqa: T201  # the parent waits for it
    await asyncio.Event().wait()


def main() -> None:
    """Relays until killed."""
    orders = json.loads(sys.argv[1])
    # The default selector rounds every wait up to a millisecond, which is a whole round trip of a LAN.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    loop.run_until_complete(_serve(orders["rate_bits"], orders["delay_s"], orders["ways"]))


if __name__ == "__main__":
    main()
