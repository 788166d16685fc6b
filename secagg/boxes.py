"""Boxes that a session's members seal for one another, under X25519 and ML-KEM-768 together.

Three contents are sealed: shares and pair secrets between neighbours, and revealed shares for the server. A box is

    ML-KEM's ciphertext 1,088 | ChaCha20-Poly1305 of the content, the ciphertext associated: content + 16

under HKDF(X25519's secret | ML-KEM's secret): both have to be broken. X25519's halves are those of the signed keys, so
that a box also authenticates its sender: an attacker who cannot break X25519 while the session lasts forges none.

A pair's mask comes from X25519's secret of the pair and from the pair secret p, which the first of the two on the ring
derives from its mask secret r and seals to the other's mask key, which comes from the other's r. So if either of the
two drops out, its recovered r gives the server p: by derivation or from the box. Secret: contents, all keys. Public:
boxes.
"""

from dataclasses import dataclass

from secagg import keys
from secagg.errors import DecryptionFailed, MalformedMessage
from secagg.keys import (
    AGREEMENT_BYTES,
    KEM_CIPHERTEXT_BYTES,
    TAG_BYTES,
    AgreementKey,
    HybridKey,
    Usage,
    derive,
    pair,
)
from secagg.parameters import Parameters
from secagg.shamir import RandomBytes

BOX_OVERHEAD_BYTES = KEM_CIPHERTEXT_BYTES + TAG_BYTES
"""Bytes by which a box is larger than its content."""
REVEALED_OVERHEAD_BYTES = AGREEMENT_BYTES + BOX_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Purpose:
    """Session, usage and context of a box, which opens for the same alone."""

    parameters: Parameters
    usage: Usage
    context: bytes

    def key(self, common: bytes, shared: bytes) -> bytes:
        """Derives the key from X25519's and ML-KEM's shared secrets."""
        return derive(common + shared, self.usage, self.parameters.digest, self.context)


def seal_box(purpose: Purpose, content: bytes, common: bytes, public: bytes) -> bytes:
    """Returns a box for the owner of the hybrid key ``public``, with whom X25519 agrees on ``common``."""
    shared, ciphertext = keys.encapsulate(public)
    return ciphertext + keys.seal(purpose.key(common, shared), content, ciphertext)


def open_box(purpose: Purpose, box: bytes, common: bytes, own: HybridKey, peer: int) -> bytes:
    """Returns the content of a box that ``peer`` sealed to ``own``. Raises DecryptionFailed."""
    ciphertext, sealed = box[:KEM_CIPHERTEXT_BYTES], box[KEM_CIPHERTEXT_BYTES:]
    key = purpose.key(common, own.decapsulate(ciphertext))
    return keys.unseal(key, sealed, ciphertext, peer)


def pair_secret(parameters: Parameters, own: HybridKey, client: int, other: int) -> bytes:
    """Derives p of ``client`` and ``other`` from the mask key of ``client``, the first of the two."""
    context = pair(client, other)
    return derive(own.reveal(), Usage.PAIR_SECRET, parameters.digest, context)


def seal_pair_secret(
    parameters: Parameters, own: HybridKey, client: int, other: int, public: bytes
) -> bytes:
    """Returns p in a box for ``other``, whose mask key is ``public``."""
    secret = pair_secret(parameters, own, client, other)
    purpose = Purpose(parameters, Usage.SEALED_SECRET, pair(client, other))
    return seal_box(purpose, secret, own.agree(public, other), public)


def open_pair_secret(
    parameters: Parameters, own: HybridKey, client: int, other: int, public: bytes, box: bytes
) -> bytes:
    """Returns p that ``other``, whose mask key is ``public``, sealed to ``client``. Raises DecryptionFailed."""
    purpose = Purpose(parameters, Usage.SEALED_SECRET, pair(other, client))
    return open_box(purpose, box, own.agree(public, other), own, other)


def pair_mask_key(
    parameters: Parameters, own: HybridKey, client: int, other: int, public: bytes, secret: bytes
) -> bytes:
    """Derives s_uv: the key of the mask that ``client`` and ``other`` have in common, from either one's side.

    ``own`` and ``public`` are their mask keys, ``secret`` is p.
    """
    context = pair(min(client, other), max(client, other))
    return derive(own.agree(public, other) + secret, Usage.PAIR_MASK, parameters.digest, context)


def seal_revealed(
    parameters: Parameters, client: int, content: bytes, public: bytes, random_bytes: RandomBytes
) -> bytes:
    """Seals ``content`` for the server, whose key for this session is ``public``: a fresh X25519 key 32 | box."""
    fresh = AgreementKey(random_bytes(AGREEMENT_BYTES))
    purpose = _of_revealed(parameters, client, fresh.public, public)
    return fresh.public + seal_box(purpose, content, fresh.agree(public), public)


def open_revealed(parameters: Parameters, client: int, body: bytes, own: HybridKey) -> bytes:
    """Returns the content of ``seal_revealed``'s body. Raises MalformedMessage."""
    if len(body) < REVEALED_OVERHEAD_BYTES:
        raise MalformedMessage(
            f"revealed shares in {len(body)} bytes; expected at least {REVEALED_OVERHEAD_BYTES}"
        )
    fresh, box = body[:AGREEMENT_BYTES], body[AGREEMENT_BYTES:]
    purpose = _of_revealed(parameters, client, fresh, own.public)
    try:
        return open_box(purpose, box, own.agree(fresh, client), own, client)
    except DecryptionFailed as error:
        raise MalformedMessage(
            "revealed shares that were not sealed to this session's key"
        ) from error


def _of_revealed(parameters: Parameters, client: int, fresh: bytes, public: bytes) -> Purpose:
    context = client.to_bytes(4, "big") + fresh + public[:AGREEMENT_BYTES]
    return Purpose(parameters, Usage.REVEALED, context)
