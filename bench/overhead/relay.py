"""A relay that counts: what TCP carries between a client and a server, without asking either of them.

Provides ``Relay`` and ``Counted``. Bytes are those of the stream: the application's payload, HTTP and TLS, handshake
and goodbye included; TCP's and IP's own headers are not. Public: sizes only, nothing is interpreted or kept.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from types import TracebackType

_CHUNK = 1 << 17


@dataclass(slots=True)
class Counted:
    """Bytes of the dialling side's connections: ``sent`` by it, ``received`` by it; ``connections`` is how many."""

    sent: int = 0
    received: int = 0
    connections: int = 0

    @property
    def total(self) -> int:
        """Both directions."""
        return self.sent + self.received


class Relay:
    """Listens on loopback and passes every connection on to ``port``; ``counted`` grows as bytes come."""

    def __init__(self, port: int) -> None:
        self.counted = Counted()
        self.port = 0
        self._target = port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Relay":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def settled(self) -> None:
        """Until every connection so far has ended at both sides."""
        while self._open:
            await asyncio.wait(set(self._open))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("connections are tasks")
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        self.counted.connections += 1
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            self._pass(reader, far_writer, outwards=True),
            self._pass(far_reader, writer, outwards=False),
        )
        for end in (writer, far_writer):
            with contextlib.suppress(OSError):
                end.close()
                await end.wait_closed()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, outwards: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                if outwards:
                    self.counted.sent += len(data)
                else:
                    self.counted.received += len(data)
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError):
            if writer.can_write_eof():
                writer.write_eof()
