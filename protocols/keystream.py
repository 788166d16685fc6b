"""Keyed randomness: AES-128-CTR streams, one for every (key, context).

Secret: keys and streams. Two parties that hold the same key and draw in the same order get the same bytes without a
message. A stream's key is derived from the pair's key and the context's path by keyed BLAKE2b, so no (key, counter)
pair is ever used twice. Source: README section 1; Araki et al. (CCS 2016), section 2.3.
"""

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

KEY_BYTES = 16
_PERSON = b"syncret-stream-1"
_BLOCK = 16
SLACK_BYTES = _BLOCK - 1
"""Bytes of room that OpenSSL wants behind its output."""
# Few enough to stay in the nearest cache.
_ZEROS = memoryview(bytes(1 << 16))
_STEP = 1 << 20
"""Bytes of one call where nothing else has to stay in the cache."""


class Keystream:
    """The AES-128-CTR stream of ``key`` for the context ``path``; ``read`` goes on where the last call ended."""

    __slots__ = ("_encryptor",)

    def __init__(self, key: bytes, path: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a keystream key has {KEY_BYTES} bytes, not {len(key)}")
        derived = hashlib.blake2b(path, key=key, digest_size=KEY_BYTES, person=_PERSON).digest()
        self._encryptor = Cipher(algorithms.AES(derived), modes.CTR(bytes(_BLOCK))).encryptor()

    def __repr__(self) -> str:
        return "Keystream(...)"

    def read(self, size: int) -> NDArray[np.uint8]:
        """Returns the next ``size`` bytes of the stream, in a fresh writable array."""
        buffer = np.empty(size + SLACK_BYTES, dtype=np.uint8)
        view = buffer.data
        for start in range(0, size, len(_ZEROS)):
            step = min(len(_ZEROS), size - start)
            self._encryptor.update_into(_ZEROS[:step], view[start : start + step + SLACK_BYTES])
        return buffer[:size]

    def over(self, octets: memoryview) -> bytes:
        """Returns ``octets`` XOR the next bytes of the stream; for few."""
        return self._encryptor.update(octets)

    def over_into(self, octets: memoryview, room: memoryview) -> memoryview:
        """Writes ``octets`` XOR the stream to ``room``, which has ``SLACK_BYTES`` more; returns the filled part."""
        return room[: self._encryptor.update_into(octets, room)]

    def add_to(self, octets: NDArray[np.uint8]) -> None:
        """XORs the next bytes of the stream into ``octets`` (size,), contiguous: as ``read`` and XOR, in one pass."""
        view = octets.data
        # OpenSSL wants room behind its output, and leaves that as it is.
        whole = max(0, len(view) - SLACK_BYTES)
        for start in range(0, whole, _STEP):
            step = min(_STEP, whole - start)
            self._encryptor.update_into(
                view[start : start + step], view[start : start + step + SLACK_BYTES]
            )
        view[whole:] = self._encryptor.update(view[whole:])
