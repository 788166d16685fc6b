"""A data owner's request, written by hand as `parties.mpc.submission.delivery` sends it, byte for byte or altered.

``Line`` is a TLS connection to a server. A library for HTTP would refuse to send a hostile owner's requests, and costs
more than the servers that are measured. All values here are public.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

_END = b"\r\n\r\n"
_MOST = 1 << 17


@dataclass(frozen=True, slots=True)
class Door:
    """Address of a server for owners: ``name`` is the study's in the TLS greeting."""

    host: str
    port: int
    name: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Status of an HTTP answer and the JSON object in it."""

    status: int
    document: Mapping[str, object] = field(default_factory=dict)


class Line:
    """A connection to a server; ``async with`` opens it and drops it. All methods may raise OSError."""

    def __init__(self, door: Door, context: ssl.SSLContext) -> None:
        self._door = door
        self._context = context
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(
            self._door.host,
            self._door.port,
            ssl=self._context,
            server_hostname=self._door.name,
            limit=_MOST,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            # Waits for the other side's last bytes, so that no connection is left behind.
            await asyncio.wait_for(self._writer.wait_closed(), 1.0)

    async def say(self, data: bytes) -> None:
        """Sends the bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> Answer:
        """Returns the next answer. Raises ConnectionError if the connection ends before it is whole."""
        try:
            head = await self._reader.readuntil(_END)
            status = int(head.split(b" ", 2)[1])
            content = await self._reader.readexactly(_length(head))
            document = json.loads(content) if content else {}
        except (EOFError, ValueError, IndexError, asyncio.LimitOverrunError) as error:
            raise ConnectionError("no answer") from error
        return Answer(status, document if isinstance(document, dict) else {})

    async def put(self, head: bytes, content: bytes) -> Answer:
        """Sends an upload: its ``head``, and ``content`` when the server asks for it; returns the answer."""
        await self.say(head)
        answer = await self.answer()
        if answer.status != 100:
            return answer
        await self.say(content)
        return await self.answer()


def upload_head(path: str, headers: Mapping[str, str], length: int) -> bytes:
    """Returns the head of a PUT of ``length`` bytes that waits for the server's 100 Continue."""
    fields = {"Host": "syncret", **headers, "Content-Length": length, "Expect": "100-continue"}
    lines = [f"PUT {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode("ascii") + _END


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return min(int(value), _MOST)
    return 0
