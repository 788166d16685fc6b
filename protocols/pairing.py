"""The key of a pair of parties, by a coin flip of both ends: neither can choose it, and both have to take part.

Provides ``Coin``, one end's part with one peer: ``commitment`` goes first, ``share`` after both commitments are there,
``key`` checks what came and makes the key. Nothing of it is used twice. The key is bound to the session, to all three
parties' identities and to the configuration, so that ends who mean different runs have different keys.

Secret: shares until they are sent to the peer, and the key. Public: commitments. Source: Blum's coin flipping by
telephone (1981), with SHA-256 of 32 random bytes as the commitment. Known limit: who goes second may stop instead of
revealing; the mesh then fails, and nothing was masked yet.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from protocols.errors import ProtocolViolation
from protocols.keystream import KEY_BYTES

SHARE_BYTES = 32
COMMITMENT_BYTES = hashlib.sha256().digest_size
_COMMITMENT = b"syncret pairing commitment 1\n"
_KEY = b"syncret pairing key 1\n"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Coin:
    """Party ``pid``'s part in the key with ``peer``; ``binding`` is what both have to agree on."""

    pid: int
    peer: int
    binding: bytes
    share: bytes = field(default_factory=lambda: secrets.token_bytes(SHARE_BYTES))

    def __repr__(self) -> str:
        return f"Coin(pid={self.pid}, peer={self.peer})"

    @property
    def commitment(self) -> bytes:
        """What the peer is told first."""
        return _commitment(self.pid, self.peer, self.share)

    def key(self, commitment: bytes, share: bytes) -> bytes:
        """The pair's key, when the peer has shown the ``share`` that it had committed to.

        Raises ProtocolViolation, naming the peer, where it shows another one, or this party's own back.
        """
        expected = _commitment(self.peer, self.pid, share)
        if len(share) != SHARE_BYTES or not hmac.compare_digest(expected, commitment):
            raise ProtocolViolation(
                f"party {self.peer} did not show what it had committed to for the pair's key",
                self.peer,
            )
        low, high = (self.share, share) if self.pid < self.peer else (share, self.share)
        pair = bytes(sorted((self.pid, self.peer)))
        return hashlib.blake2b(
            _KEY + pair + self.binding, key=low + high, digest_size=KEY_BYTES
        ).digest()


def _commitment(sender: int, receiver: int, share: bytes) -> bytes:
    return hashlib.sha256(_COMMITMENT + bytes((sender, receiver)) + share).digest()
