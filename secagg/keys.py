"""Keys of one round: agreement, encapsulation, derivation, encryption of shares, signatures.

``HybridKey`` is X25519 and ML-KEM-768 from one secret, ``AgreementKey`` X25519 alone, ``derive`` HKDF-SHA256 with one
named usage per purpose, ``seal`` ChaCha20-Poly1305, ``Identity`` Ed25519. Every derived key is bound to the session's
parameters by their digest as HKDF's salt, to its usage, and to the ordered pair of clients. Secret: private keys,
shared and derived keys. Public: public keys, ciphertexts, signatures. Source: RFC 7748, 5869, 8439, 8032, FIPS 203, all
through `cryptography`.
"""

from collections.abc import Sequence
from enum import Enum

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secagg.errors import BadSignature, DecryptionFailed, ProtocolViolation

AGREEMENT_BYTES = 32
"""Bytes of an X25519 public key, and of a shared secret."""
KEM_PUBLIC_BYTES, KEM_CIPHERTEXT_BYTES = 1184, 1088
"""Bytes of an ML-KEM-768 public key, and of a ciphertext."""
PUBLIC_BYTES = AGREEMENT_BYTES + KEM_PUBLIC_BYTES
"""Bytes of a hybrid public key: X25519's, then ML-KEM's."""
_KEM_SEED_BYTES = 64
IDENTITY_BYTES, SIGNATURE_BYTES = 32, 64
"""Bytes of an Ed25519 public key, and of a signature."""
TAG_BYTES = 16


class Usage(Enum):
    """Purpose of a derived key; no two usages ever share a key."""

    AGREEMENT_KEY = b"syncret secagg 2 agreement key"
    KEM_KEY = b"syncret secagg 2 encapsulation key"
    SHARES = b"syncret secagg 2 encrypted shares"
    PAIR_SECRET = b"syncret secagg 2 pair secret"
    SEALED_SECRET = b"syncret secagg 2 encrypted pair secret"
    REVEALED = b"syncret secagg 2 encrypted revealed shares"
    PAIR_MASK = b"syncret secagg 2 pair mask"
    SELF_MASK = b"syncret secagg 2 self mask"
    SELF_COMMITMENT = b"syncret secagg 2 self commitment"
    GRAPH = b"syncret secagg 2 graph"


class AgreementKey:
    """One X25519 key pair; printing it shows the public half only."""

    __slots__ = ("_private", "public")

    def __init__(self, secret: bytes) -> None:
        """Makes a key from 32 uniform bytes (X25519 itself clamps them)."""
        self._private = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._private.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return f"AgreementKey(public={self.public.hex()[:16]})"

    def agree(self, public: bytes, peer: int | None = None) -> bytes:
        """Returns the 32 bytes in common with the owner of a hybrid ``public`` key, or of X25519's half of one.

        Raises ProtocolViolation for a point of small order.
        """
        try:
            theirs = X25519PublicKey.from_public_bytes(public[:AGREEMENT_BYTES])
            return self._private.exchange(theirs)
        except ValueError as error:
            raise ProtocolViolation("a public key no key agreement accepts", peer) from error


class HybridKey:
    """An X25519 and an ML-KEM-768 key pair from one secret; printing it shows the public half only.

    Both private keys are derived one way: an attacker who breaks X25519 and has its private key knows nothing of the
    secret, nor of the other key.
    """

    __slots__ = ("_agreement", "_kem", "_secret", "public")

    def __init__(self, secret: bytes) -> None:
        """Makes a key from 32 uniform bytes, which stay the key's ``secret``."""
        self._secret = secret
        self._agreement = AgreementKey(derive(secret, Usage.AGREEMENT_KEY, b""))
        seed = HKDF(SHA256(), _KEM_SEED_BYTES, b"", Usage.KEM_KEY.value).derive(secret)
        self._kem = MLKEM768PrivateKey.from_seed_bytes(seed)
        self.public = self._agreement.public + self._kem.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return f"HybridKey(public={self.public.hex()[:16]})"

    def reveal(self) -> bytes:
        """Returns the 32 secret bytes, to be shared among the neighbours."""
        return self._secret

    def agree(self, public: bytes, peer: int | None = None) -> bytes:
        """Returns the common bytes of ``AgreementKey.agree``."""
        return self._agreement.agree(public, peer)

    def decapsulate(self, ciphertext: bytes) -> bytes:
        """Returns the 32 bytes in ``ciphertext``; random ones where it was not made for this key."""
        return self._kem.decapsulate(ciphertext)


def encapsulate(public: bytes, peer: int | None = None) -> tuple[bytes, bytes]:
    """Returns 32 fresh bytes, and their ciphertext of 1,088 for the owner of the hybrid key ``public``.

    Raises ProtocolViolation where it is no key of ML-KEM's.
    """
    return _kem_public(public, peer).encapsulate()


def check_public(public: bytes, peer: int | None, probe: AgreementKey) -> None:
    """Raises ProtocolViolation for a hybrid key that no one can agree with (as ``probe`` does) or encapsulate to."""
    probe.agree(public, peer)
    _kem_public(public, peer)


def _kem_public(public: bytes, peer: int | None) -> MLKEM768PublicKey:
    try:
        return MLKEM768PublicKey.from_public_bytes(public[AGREEMENT_BYTES:])
    except ValueError as error:
        raise ProtocolViolation("a public key no encapsulation accepts", peer) from error


def halves(public: bytes) -> set[bytes]:
    """Returns X25519's and ML-KEM's part of a hybrid key."""
    return {public[:AGREEMENT_BYTES], public[AGREEMENT_BYTES:]}


def derive(secret: bytes, usage: Usage, salt: bytes, context: bytes = b"") -> bytes:
    """Derives 32 bytes for one ``usage`` and ``context`` in the session whose parameters hash to ``salt``."""
    return HKDF(SHA256(), 32, salt, usage.value + context).derive(secret)


def pair(first: int, second: int) -> bytes:
    """Returns an ordered pair of client ids as a context."""
    return first.to_bytes(4, "big") + second.to_bytes(4, "big")


def seal(key: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """Encrypts ``plaintext`` under a ``key`` that is used for this one message (so the nonce is zero)."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), plaintext, associated)


def unseal(key: bytes, ciphertext: bytes, associated: bytes, peer: int) -> bytes:
    """Returns the plaintext of ``seal``'s ciphertext. Raises DecryptionFailed, naming ``peer``."""
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
        """Makes a key from 32 uniform bytes."""
        self._private = Ed25519PrivateKey.from_private_bytes(secret)
        self.public = self._private.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return f"Identity(public={self.public.hex()[:16]})"

    def reveal(self) -> bytes:
        """Returns the 32 secret bytes, to be kept between two processes of the client."""
        return self._private.private_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Returns a signature of 64 bytes."""
        return self._private.sign(message)


def verify(roster: Sequence[bytes], client: int, signature: bytes, message: bytes) -> None:
    """Checks that ``client`` of the ``roster`` signed ``message``. Raises BadSignature."""
    try:
        Ed25519PublicKey.from_public_bytes(roster[client]).verify(signature, message)
    except (InvalidSignature, ValueError) as error:
        raise BadSignature(
            f"not signed by client {client} as the roster knows it", client
        ) from error
