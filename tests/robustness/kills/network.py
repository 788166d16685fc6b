"""The network between servers, with faults: connections that break, silence, and bytes that come late and in pieces.

``Network`` has relays on loopback in a thread of its own. TCP repairs lost and reordered packets, so that a server sees
them as delay; a connection that is lost with its packets is broken. A way that is down takes connections and passes
nothing on, as a firewall that drops packets does.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Collection, Coroutine, Mapping
from concurrent.futures import Future

_LATEST_S = 0.03
_CHUNK = 1 << 16
_DROP_S = 0.05
"""Seconds between two pieces on a way that drips."""


class Network:
    """Relays from ``ways``' ports to their target ports; ``with`` opens and closes them."""

    def __init__(self, ways: Mapping[int, int], seed: int) -> None:
        self._ways = ways
        self._draw = random.Random(seed)  # to be the same again
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._servers: list[asyncio.Server] = []
        self._lags = False
        self._drops: dict[int, int] = {}
        self._passes = {port: asyncio.Event() for port in ways}
        for passes in self._passes.values():
            passes.set()

    def __enter__(self) -> "Network":
        self._thread.start()
        for port, target in self._ways.items():
            self._do(self._listen(port, target)).result()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Breaks all current connections."""
        self._do(self._cut()).result()

    def lag(self) -> None:
        """Delays everything from now on, in pieces of any size."""
        self._lags = True

    def drip(self, ports: Collection[int], size: int) -> None:
        """Passes no more than ``size`` bytes at a time from now on, twenty times a second, on these ways."""
        self._drops |= dict.fromkeys(ports, size)

    def down(self, ports: Collection[int]) -> None:
        """Passes nothing on these ways, old connections and new ones, until ``up``."""
        for port in ports:
            self._loop.call_soon_threadsafe(self._passes[port].clear)

    def up(self, ports: Collection[int]) -> None:
        """Passes on again what comes, and what came meanwhile."""
        for port in ports:
            self._loop.call_soon_threadsafe(self._passes[port].set)

    def _do(self, what: Coroutine[object, object, None]) -> "Future[None]":
        return asyncio.run_coroutine_threadsafe(what, self._loop)

    async def _listen(self, port: int, target: int) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                await self._passes[port].wait()
                far = await asyncio.open_connection("127.0.0.1", target)
                self._writers |= {writer, far[1]}
                await asyncio.gather(
                    self._pass(reader, far[1], port), self._pass(far[0], writer, port)
                )
            writer.close()

        self._servers.append(await asyncio.start_server(accept, "127.0.0.1", port))

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(self._piece(port)):
                if self._lags:
                    await asyncio.sleep(self._draw.random() * _LATEST_S)
                if port in self._drops:
                    await asyncio.sleep(_DROP_S)
                await self._passes[port].wait()
                writer.write(data)
                await writer.drain()
        self._writers.discard(writer)
        writer.close()

    def _piece(self, port: int) -> int:
        """Returns the largest number of bytes to pass on at once."""
        if self._lags:
            return self._draw.randrange(1, 4096)
        return self._drops.get(port, _CHUNK)

    async def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        await self._cut()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
