"""Parser for the server name (SNI) in the first bytes of a TLS connection, which stay unread.

``ClientHello.look`` classifies the bytes so far: incomplete, a ClientHello with or without a name, or no TLS. Source:
RFC 8446, 4.1.2 (ClientHello), RFC 6066, 3 (server_name). All input is public and untrusted: every length is checked.
Known limit: a ClientHello that is spread over several records counts as none; clients of this project send less than
2 KB.
"""

import enum
from dataclasses import dataclass

MAX_HELLO_BYTES = 5 + 16_384
_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _HOST_NAME = 0, 0


class HelloStatus(enum.Enum):
    """Classification of the bytes received so far."""

    INCOMPLETE = "too little to tell"
    HELLO = "a ClientHello"
    OTHER = "something else than TLS"


@dataclass(frozen=True, slots=True)
class ClientHello:
    """Classification of ``data``, a connection's first bytes; ``name`` is the SNI of a ClientHello that has one."""

    seen: HelloStatus
    name: str | None = None

    @classmethod
    def look(cls, data: bytes) -> "ClientHello":
        """Classifies all bytes received so far."""
        if any(got != wanted for got, wanted in zip(data, (_HANDSHAKE, 3), strict=False)):
            return cls(HelloStatus.OTHER)
        if len(data) < 5:
            return cls(HelloStatus.INCOMPLETE)
        size = int.from_bytes(data[3:5], "big")
        if not 4 < size <= MAX_HELLO_BYTES - 5 or data[5:6] not in (b"", bytes([_CLIENT_HELLO])):
            return cls(HelloStatus.OTHER)
        if len(data) < 5 + size:
            return cls(HelloStatus.INCOMPLETE)
        try:
            return cls(HelloStatus.HELLO, _server_name(_ByteReader(data[5 : 5 + size])))
        except _Truncated:
            return cls(HelloStatus.OTHER)


class _Truncated(Exception):
    """A length exceeds the available bytes."""


class _ByteReader:
    """Reader for bytes, field by field."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __bool__(self) -> bool:
        return bool(self._data)

    def take(self, size: int) -> bytes:
        """Returns the next ``size`` bytes. Raises _Truncated."""
        if size > len(self._data):
            raise _Truncated
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def number(self, size: int) -> int:
        """Returns a number of ``size`` bytes. Raises _Truncated."""
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> "_ByteReader":
        """Returns a reader for a field that is preceded by its length in ``size`` bytes. Raises _Truncated."""
        return _ByteReader(self.take(self.number(size)))


def _server_name(message: _ByteReader) -> str | None:
    """Returns the SNI of a ClientHello message, None if it has none. Raises _Truncated."""
    message.take(1)
    body = message.vector(3)
    body.take(2 + 32)  # Version and random.
    body.vector(1)  # Session.
    body.vector(2)  # Cipher suites.
    body.vector(1)  # Compression.
    extensions = body.vector(2) if body else _ByteReader(b"")
    while extensions:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind != _SERVER_NAME:
            continue
        names = content.vector(2)
        while names:
            form, name = names.number(1), names.number(2)
            text = names.take(name)
            if form == _HOST_NAME:
                return text.decode("ascii", errors="replace").lower()
    return None
