"""Files encrypted to a passphrase or a public key, for backups of a server.

``EncryptingWriter`` writes and ``DecryptingReader`` reads a stream of any length, with a ``PassphraseWrapper`` or a
``PublicKeyWrapper`` (for a public key of `parties.crypto.hpke`):

    "syncret vault 1" | JSON on a line: key wrapping | segments

Segments are AES-256-GCM over a megabyte each, under a key of this file alone. Each one is bound to the first two lines,
and its nonce has its number and a flag for the last segment: none can be left out, moved, added or cut off. The key is
derived from the passphrase by scrypt, or sealed to the public key by HPKE.

Secret: the passphrase, the key, the content. Public: the size, up to the tags, and the kind of wrapping. Source: the
STREAM construction (Hoang, Reyhanitabar, Rogaway, Vizar, CRYPTO 2015); RFC 7914. Known limit: segments before a cut-off
are returned before the cut-off is detected; callers have to wait for the end.
"""

import base64
import io
import json
import secrets
from dataclasses import dataclass, field
from typing import IO, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from parties.crypto.hpke import SealKey, SealTo
from parties.foundation.errors import SealError
from parties.foundation.untrusted_text import parse_json

MAGIC = b"syncret vault 1\n"
SEGMENT_BYTES = 1 << 20
MIN_PASSPHRASE_LENGTH = 12
_TAG_BYTES, _KEY_BYTES, _SALT_BYTES = 16, 32, 16
_LONGEST_HEADER = 8192
_SCRYPT = {"n": 1 << 17, "r": 8, "p": 1}
"""Parameters of scrypt: 128 MB and half a second for each attempt."""
_MOST_SCRYPT = {"n": 1 << 20, "r": 16, "p": 4}
"""Upper bounds on the parameters in a header, which is untrusted."""
_INFO = b"syncret vault 1"
_PASSPHRASE, _KEY = "passphrase", "key"


class KeyWrapper(Protocol):
    """Method of wrapping a file's key: its part of the header, and the key from it."""

    def wrap(self) -> tuple[dict[str, object], bytes]:
        """Returns the header's values, and a fresh key."""

    def unwrap(self, header: dict[str, object]) -> bytes:
        """Returns the key. Raises SealError."""


@dataclass(frozen=True, slots=True)
class PassphraseWrapper:
    """Wraps by a passphrase of 12 characters at least. Raises ValueError for a shorter one."""

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.text) < MIN_PASSPHRASE_LENGTH:
            raise ValueError(
                f"the passphrase has {len(self.text)} characters; expected at least {MIN_PASSPHRASE_LENGTH}"
            )

    def wrap(self) -> tuple[dict[str, object], bytes]:
        """See ``KeyWrapper.wrap``."""
        salt = secrets.token_bytes(_SALT_BYTES)
        said = {"opens": _PASSPHRASE, "salt": base64.b64encode(salt).decode(), **_SCRYPT}
        return said, self._derive(salt, **_SCRYPT)

    def unwrap(self, header: dict[str, object]) -> bytes:
        """See ``KeyWrapper.unwrap``."""
        if header.get("opens") != _PASSPHRASE:
            raise SealError(
                "opens with a private key; expected --key, with the one it was made for"
            )
        match header:
            case {"salt": str() as salt, "n": int() as n, "r": int() as r, "p": int() as p}:
                asked = {"n": n, "r": r, "p": p}
                if all(0 < asked[name] <= most for name, most in _MOST_SCRYPT.items()):
                    try:
                        return self._derive(base64.b64decode(salt, validate=True), **asked)
                    except ValueError as error:
                        raise _damaged() from error
        raise _damaged()

    def _derive(self, salt: bytes, *, n: int, r: int, p: int) -> bytes:
        return Scrypt(salt=salt, length=_KEY_BYTES, n=n, r=r, p=p).derive(self.text.encode())


@dataclass(frozen=True, slots=True)
class PublicKeyWrapper:
    """Wraps to a public key; with ``key``, its private half, it unwraps, too."""

    to: SealTo
    key: SealKey | None = None

    def wrap(self) -> tuple[dict[str, object], bytes]:
        """See ``KeyWrapper.wrap``."""
        key = secrets.token_bytes(_KEY_BYTES)
        box = base64.b64encode(self.to.seal(key, _INFO)).decode()
        return {"opens": _KEY, "box": box}, key

    def unwrap(self, header: dict[str, object]) -> bytes:
        """See ``KeyWrapper.unwrap``."""
        if header.get("opens") != _KEY:
            raise SealError("opens with a passphrase; expected --passphrase-file, or none of both")
        if self.key is None:
            raise SealError("opens with a private key; expected --key")
        try:
            return self.key.open(base64.b64decode(str(header.get("box")), validate=True), _INFO)
        except ValueError as error:
            raise SealError(
                "does not open with this key; expected the one it was made for"
            ) from error


class EncryptingWriter(io.RawIOBase):
    """Binary stream that encrypts into ``file``; ``finish`` writes its end, without which the file does not decrypt."""

    def __init__(self, file: IO[bytes], opener: KeyWrapper) -> None:
        said, key = opener.wrap()
        self._header = MAGIC + json.dumps(said, sort_keys=True).encode() + b"\n"
        self._file = file
        self._cipher = AESGCM(key)
        self._pending = bytearray()
        self._number = 0
        file.write(self._header)

    def writable(self) -> bool:
        """Always true."""
        return True

    def write(self, data: object) -> int:
        """Encrypts ``data``; the last segment waits for ``finish``."""
        added = memoryview(data)  # type: ignore[arg-type]  # whatever has the buffer protocol
        self._pending += added
        while len(self._pending) > SEGMENT_BYTES:
            self._put(bytes(self._pending[:SEGMENT_BYTES]), last=False)
            del self._pending[:SEGMENT_BYTES]
        return added.nbytes

    def finish(self) -> None:
        """Writes the last segment."""
        self._put(bytes(self._pending), last=True)
        self._pending.clear()

    def _put(self, segment: bytes, *, last: bool) -> None:
        nonce = _nonce(self._number, last=last)
        self._file.write(self._cipher.encrypt(nonce, segment, self._header))
        self._number += 1


class DecryptingReader(io.RawIOBase):
    """Binary stream that decrypts ``file``. Raises SealError if the file is altered or cut off, or the key is wrong."""

    def __init__(self, file: IO[bytes], opener: KeyWrapper) -> None:
        self._header, said = read_header(file)
        self._file = file
        self._cipher = AESGCM(opener.unwrap(said))
        self._content = memoryview(b"")
        self._number = 0
        self._next = file.read(SEGMENT_BYTES + _TAG_BYTES)
        self._ended = False

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: object) -> int:
        """Decrypts as much as fits; returns 0 at the end, which is verified to be the file's own."""
        target = memoryview(buffer)  # type: ignore[arg-type]  # whatever has the buffer protocol
        while not self._content and not self._ended:
            self._content = memoryview(self._segment())
        size = min(len(target), len(self._content))
        target[:size] = self._content[:size]
        self._content = self._content[size:]
        return size

    def _segment(self) -> bytes:
        sealed, self._next = self._next, self._file.read(SEGMENT_BYTES + _TAG_BYTES)
        self._ended = not self._next
        nonce = _nonce(self._number, last=self._ended)
        self._number += 1
        try:
            return self._cipher.decrypt(nonce, sealed, self._header)
        except (InvalidTag, ValueError) as error:
            why = "the passphrase is another one, or the file" if self._number == 1 else "the file"
            raise SealError(f"does not open: {why} was altered or is cut off") from error


def read_header(file: IO[bytes]) -> tuple[bytes, dict[str, object]]:
    """Returns the first two lines, and the header's values on the key wrapping. Raises SealError for any other file."""
    if file.read(len(MAGIC)) != MAGIC:
        raise SealError("is no backup of this version; expected a file that `syncret backup` made")
    line = file.readline(_LONGEST_HEADER)
    try:
        said = parse_json(line)
    except ValueError as error:
        raise _damaged() from error
    if not isinstance(said, dict) or not line.endswith(b"\n"):
        raise _damaged()
    return MAGIC + line, said


def _damaged() -> SealError:
    return SealError("is damaged in its first lines; expected a file as `syncret backup` made it")


def _nonce(number: int, *, last: bool) -> bytes:
    """Returns the 96-bit nonce: 1 if another segment follows, and the number; a key encrypts one file."""
    return bytes([not last]) + number.to_bytes(11, "big")
