"""Boxes that one key opens: HPKE's single-shot encryption to a public key (RFC 9180), post-quantum and classical.

``BoxKey`` is a private key, ``SealTo`` its public half. The KEM is ML-KEM-768/X25519 (both have to be broken, now or
later), with HKDF-SHA256 and AES-256-GCM. ``info`` binds a box to its purpose: the box opens with the same ``info``
only. Secret: private keys, contents of boxes. Public: keys' public halves, boxes, sizes. Known limits: boxes do not
name their sealer; the connection has to.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

_SUITE = hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)
_MLKEM_BYTES, _X25519_BYTES = 1184, 32
PUBLIC_BYTES = _MLKEM_BYTES + _X25519_BYTES
OVERHEAD_BYTES = 1136
"""Bytes by which a box is larger than its content."""


@dataclass(frozen=True, slots=True)
class SealTo:
    """Public half of a key: 1,184 bytes of ML-KEM-768 and 32 of X25519. Raises ValueError on others."""

    public: bytes

    def __post_init__(self) -> None:
        if len(self.public) != PUBLIC_BYTES:
            raise ValueError(f"a key of {len(self.public)} bytes; expected {PUBLIC_BYTES}")
        self._key()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a key from base64, spaces and line ends left out. Raises ValueError."""
        try:
            return cls(base64.b64decode("".join(text.split()), validate=True))
        except binascii.Error as error:
            raise ValueError("is not base64") from error

    def __str__(self) -> str:
        return base64.b64encode(self.public).decode("ascii")

    def __repr__(self) -> str:
        return f"SealTo({str(self)[:12]}...)"

    def seal(self, content: bytes, info: bytes) -> bytes:
        """Returns a box with ``content``, ``OVERHEAD_BYTES`` larger, which opens with the same ``info`` only."""
        return _SUITE.encrypt(content, self._key(), info=info)

    def _key(self) -> hpke.MLKEM768X25519PublicKey:
        try:
            return hpke.MLKEM768X25519PublicKey(
                MLKEM768PublicKey.from_public_bytes(self.public[:_MLKEM_BYTES]),
                X25519PublicKey.from_public_bytes(self.public[_MLKEM_BYTES:]),
            )
        except ValueError as error:
            raise ValueError("is not a public key of ML-KEM-768 and X25519") from error


class BoxKey:
    """A private key. Secret; its repr shows nothing."""

    __slots__ = ("_mlkem", "_x25519")

    def __init__(self, mlkem: MLKEM768PrivateKey, x25519: X25519PrivateKey) -> None:
        self._mlkem = mlkem
        self._x25519 = x25519

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

    @classmethod
    def generate(cls) -> Self:
        """Returns a fresh key."""
        return cls(MLKEM768PrivateKey.generate(), X25519PrivateKey.generate())

    @property
    def public(self) -> SealTo:
        """Public half, that others seal to."""
        mlkem = self._mlkem.public_key().public_bytes_raw()
        return SealTo(mlkem + self._x25519.public_key().public_bytes_raw())

    def open(self, box: bytes, info: bytes) -> bytes:
        """Returns the content of a box. Raises ValueError unless it was sealed to this key with this ``info``."""
        try:
            return _SUITE.decrypt(
                box, hpke.MLKEM768X25519PrivateKey(self._mlkem, self._x25519), info=info
            )
        except (InvalidTag, ValueError) as error:
            raise ValueError(
                "a box does not open: sealed to another key, or for another purpose"
            ) from error
