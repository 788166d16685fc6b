"""Sealing to a server's pinned key: only that server opens content of an owner that another server forwards.

``SealKey`` is a server's own key, whose public half (``SealTo``) the configuration pins; ``read_private`` reads any
private key's file. The boxes are those of `protocols.sealing`.

``encrypt_once`` and ``decrypt_once`` handle content of any size under a single-use key: AES-256-GCM in segments, each
with its number and a flag for the last one in its nonce, so that none can be left out, moved or added.

Secret: private keys and the content of boxes. Public: public keys, boxes, sizes. A key file is two PEM blocks
(PKCS #8), mode 0600.
"""

import errno
import os
import re
import stat
from pathlib import Path
from typing import Self

from cryptography.exceptions import InternalError, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from parties.foundation.errors import CertificateError, SealError
from protocols.sealing import OVERHEAD_BYTES as OVERHEAD_BYTES
from protocols.sealing import PUBLIC_BYTES as PUBLIC_BYTES
from protocols.sealing import BoxKey
from protocols.sealing import SealTo as SealTo

KEY_BYTES = 32
TAG_BYTES = 16
SEGMENT_BYTES = 1 << 30
"""AES-GCM takes less than 2^36 bytes in a call, the library less than 2^31."""
_MAX_PRIVATE_BYTES = 1 << 16
_PEM = re.compile(rb"-----BEGIN [A-Z ]+-----.+?-----END [A-Z ]+-----\s*", re.DOTALL)


def read_private(path: Path, what: str, expected: str) -> bytes:
    """Reads a private file of at most 64 KiB, without waiting for who writes it.

    Raises CertificateError if it is unreadable, no file but a pipe or device, too large, or readable for other users.

    The group may read a file of another user's: a program that writes it for this one, as Kubernetes does, has no other
    way than the group.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            found = os.fstat(file.fileno())
            plain = stat.S_ISREG(found.st_mode)
            data = file.read(_MAX_PRIVATE_BYTES + 1) if plain else b""
    except OSError as error:
        raise CertificateError(
            f"{path}: {what} cannot be read: {error.strerror or error}; expected {expected}"
        ) from error
    if not plain or len(data) > _MAX_PRIVATE_BYTES:
        raise CertificateError(
            f"{path}: {what} is no regular file of at most {_MAX_PRIVATE_BYTES} bytes; expected {expected}"
        )
    mode = found.st_mode & 0o777
    if mode & (0o077 if found.st_uid == os.geteuid() else 0o037):
        raise CertificateError(
            f"{path}: others may read it (mode {mode:o}); expected 600, as after: chmod 600 {path}"
        ) from PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    return data


def _without_waiting(path: str, flags: int) -> int:
    """Opens a file; a pipe that nobody writes to is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def sealed_size(size: int) -> int:
    """Returns the size of the result of ``encrypt_once`` for ``size`` bytes."""
    return size + TAG_BYTES * _segments(size)


def encrypt_once(key: bytes, content: bytes, context: bytes) -> bytes:
    """Encrypts ``content`` under the single-use ``key`` (32 bytes); decryption requires the same ``context``."""
    cipher, pieces, count = AESGCM(key), memoryview(content), _segments(len(content))
    if count == 1:
        return cipher.encrypt(_nonce(0, last=True), content, context)
    sealed = bytearray()
    for number in range(count):
        segment = pieces[number * SEGMENT_BYTES : (number + 1) * SEGMENT_BYTES]
        sealed += cipher.encrypt(_nonce(number, last=number == count - 1), segment, context)
    return bytes(sealed)


def decrypt_once(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Inverse of ``encrypt_once``. Raises SealError for another key or context, or altered segments."""
    cipher, pieces = AESGCM(key), memoryview(sealed)
    step = SEGMENT_BYTES + TAG_BYTES
    count = max(1, -(-len(sealed) // step))
    opened: list[bytes] = []
    try:
        for number in range(count):
            segment = pieces[number * step : (number + 1) * step]
            opened.append(
                cipher.decrypt(_nonce(number, last=number == count - 1), segment, context)
            )
    except (InvalidTag, ValueError) as error:
        raise SealError("does not open with the key it is said to have") from error
    return opened[0] if count == 1 else b"".join(opened)


def _segments(size: int) -> int:
    return max(1, -(-size // SEGMENT_BYTES))


def _nonce(number: int, *, last: bool) -> bytes:
    """Returns the 96-bit nonce: 1 if another segment follows, and the number. A key encrypts one content."""
    return bytes([not last]) + number.to_bytes(11, "big")


class SealKey(BoxKey):
    """A server's own key, stored in a file. Secret; its repr shows nothing."""

    __slots__ = ()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Loads the key from its file. Raises CertificateError if it is missing, no such key, or open to others."""
        data = read_private(path, "sealing key", "the file that `syncret certs card` made")
        try:
            keys = [serialization.load_pem_private_key(block, None) for block in _PEM.findall(data)]
        except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):
            keys = []
        match keys:
            case [MLKEM768PrivateKey() as mlkem, X25519PrivateKey() as x25519]:
                return cls(mlkem, x25519)
        raise CertificateError(
            f"{path}: not a sealing key; expected two PEM blocks, ML-KEM-768 and X25519"
        )

    def pem(self) -> bytes:
        """Returns the content of the key's file."""
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
        plain = serialization.NoEncryption()
        return b"".join(key.private_bytes(*form, plain) for key in (self._mlkem, self._x25519))
