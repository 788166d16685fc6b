"""Digests of messages, for the transcripts of the two ends.

Digests are keyed BLAKE3. The key is one that the two ends of a link have in common, since a plain digest of a short
message could be inverted by trying all; the function resists collisions even for a party that knows the key, so that a
digest commits its writer to the message. Source: O'Connor, Aumasson, Neves, Wilcox-O'Hearn, BLAKE3 (2020).
"""

import hashlib

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

KEY_BYTES = 32
DIGEST_BYTES = 32
_DIGESTS = b"syncret-message-digests"


def digest_key(component_key: bytes) -> bytes:
    """Derives the key of the digests of a link's messages from the key that its two ends have in common."""
    return hashlib.blake2b(_DIGESTS, key=component_key, digest_size=32).digest()


def message_digest(key: bytes, payload: NDArray[np.uint8]) -> bytes:
    """Returns the 32-byte digest of ``payload`` (n,) under a key of 32 bytes. Raises ValueError for another key."""
    return blake3(payload.data, key=key).digest()
