"""Keys of one round: agreement, derivation, encryption of shares, signatures.

Provides ``AgreementKey`` (X25519), ``derive`` (HKDF-SHA256 with one named usage per purpose), ``seal`` and ``unseal``
(ChaCha20-Poly1305) and ``Identity`` (Ed25519). Every derived key is bound to the session's parameters by their digest
as HKDF's salt, to its usage, and to the ordered pair of clients. Secret: private keys, derived keys. Public: public
keys, signatures. Source: RFC 7748, 5869, 8439, 8032, all through `cryptography`.
"""

from collections.abc import Sequence
from enum import Enum

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secagg.errors import BadSignature, DecryptionFailed, ProtocolViolation

PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
TAG_BYTES = 16


class Usage(Enum):
    """What a derived key is for; no two usages ever share a key."""

    SHARES = b"syncret secagg 1 encrypted shares"
    PAIR_MASK = b"syncret secagg 1 pair mask"
    SELF_MASK = b"syncret secagg 1 self mask"
    SELF_COMMITMENT = b"syncret secagg 1 self commitment"
    GRAPH = b"syncret secagg 1 graph"


class AgreementKey:
    """One X25519 key pair; printing it shows the public half only."""

    __slots__ = ("_private", "_secret", "public")

    def __init__(self, secret: bytes) -> None:
        """From 32 uniform bytes, which stay the key's ``secret`` (X25519 itself clamps them)."""
        self._secret = secret
        self._private = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._private.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return f"AgreementKey(public={self.public.hex()[:16]})"

    def reveal(self) -> bytes:
        """The 32 secret bytes, to be shared among the neighbours."""
        return self._secret

    def agree(self, public: bytes, peer: int | None = None) -> bytes:
        """The 32 bytes in common with the owner of ``public``. Raises ProtocolViolation for a point of small order."""
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:
            raise ProtocolViolation("a public key no key agreement accepts", peer) from error


def derive(secret: bytes, usage: Usage, salt: bytes, context: bytes = b"") -> bytes:
    """32 bytes for one ``usage`` and ``context`` in the session whose parameters hash to ``salt``."""
    return HKDF(SHA256(), 32, salt, usage.value + context).derive(secret)


def pair(first: int, second: int) -> bytes:
    """An ordered pair of client ids as a context."""
    return first.to_bytes(4, "big") + second.to_bytes(4, "big")


def seal(key: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """``plaintext`` encrypted under a ``key`` that is used for this one message (so the nonce is zero)."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), plaintext, associated)


def unseal(key: bytes, ciphertext: bytes, associated: bytes, peer: int) -> bytes:
    """What ``seal`` encrypted. Raises DecryptionFailed, naming ``peer``."""
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), ciphertext, associated)
    except InvalidTag as error:
        raise DecryptionFailed(
            f"the shares from client {peer} do not decrypt; it or the server changed them", peer
        ) from error


class Identity:
    """A client's long-term signature key; printing it shows the public half only."""

    __slots__ = ("_private", "public")

    def __init__(self, secret: bytes) -> None:
        """From 32 uniform bytes."""
        self._private = Ed25519PrivateKey.from_private_bytes(secret)
        self.public = self._private.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return f"Identity(public={self.public.hex()[:16]})"

    def reveal(self) -> bytes:
        """The 32 secret bytes, to be kept between two processes of the client."""
        return self._private.private_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """64 bytes."""
        return self._private.sign(message)


def verify(roster: Sequence[bytes], client: int, signature: bytes, message: bytes) -> None:
    """Check that ``client`` of the ``roster`` signed ``message``. Raises BadSignature."""
    try:
        Ed25519PublicKey.from_public_bytes(roster[client]).verify(signature, message)
    except (InvalidSignature, ValueError) as error:
        raise BadSignature(
            f"not signed by client {client} as the roster knows it", client
        ) from error
