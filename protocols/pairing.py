"""Keys of a pair of parties, by a coin flip of both ends: neither can choose them, and both have to take part.

A ``Coin`` is one end's part with one peer. Its ``offer`` goes first: a commitment to its share, and the key that the
peer's share is sealed to. Its own share follows (``sealed``) after both offers are there; ``keys`` opens and checks the
peer's share and makes the pair's keys. Nothing of it is used twice. Messages are XORed with ``frames_stream``.

Each share is sealed to ML-KEM-768/X25519 for its sender, its receiver, the two identities, the session and both offers,
and opens nowhere else. The keys are bound to the same, that of the components also to the third party and to the
configuration: ends with different configurations have different keys, and can still tell one another the difference.
TLS around it carries identity and integrity; messages under these keys stay secret when TLS's key agreement falls.

Secret: shares and keys. Public: offers and boxes. Source: Blum's coin flipping by telephone (1981), with SHA-256 of 32
random bytes as the commitment, which hides them from a quantum computer too. Known limits: the end that goes second may
stop instead of revealing; the mesh then fails, and nothing was masked yet. Shares are fresh for each mesh, the pinned
sealing keys are not: an attacker who has recorded a mesh and breaks its TLS learns a pair's keys from the private
sealing keys of both its ends; those of one alone tell nothing. They are deleted at a run's end, and open the owners'
uploads as well.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from protocols.errors import ProtocolViolation
from protocols.keystream import KEY_BYTES, Keystream
from protocols.sealing import OVERHEAD_BYTES, PUBLIC_BYTES, BoxKey, SealTo

SHARE_BYTES = 32
COMMITMENT_BYTES = hashlib.sha256().digest_size
OFFER_BYTES = COMMITMENT_BYTES + PUBLIC_BYTES
SEALED_BYTES = SHARE_BYTES + OVERHEAD_BYTES
_COMMITMENT = b"syncret pairing commitment 1\n"
_BOX = b"syncret pairing sealed share 1\n"
_COMPONENT = b"syncret pairing key 2\n"
_FRAMES = b"syncret pairing frames 1\n"


@dataclass(frozen=True, slots=True, eq=False)
class Seals:
    """Keys that shares are sealed to: the three parties' pinned ones, and the private one of this party.

    Where the latter is deleted, after a run's end, ``own`` is a fresh one, which peers have to accept.
    """

    pinned: tuple[SealTo, SealTo, SealTo]
    own: BoxKey


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PairKeys:
    """Secret: the key of the ``component`` that a pair holds, and that of its ``frames``."""

    component: bytes
    frames: bytes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Coin:
    """Party ``pid``'s part in the keys with ``peer``.

    ``meeting`` is the text that both must have in common to connect, ``binding`` the rest that they must have in common
    to compute together; ``own`` opens the peer's boxes.
    """

    pid: int
    peer: int
    meeting: bytes
    binding: bytes
    own: BoxKey
    share: bytes = field(default_factory=lambda: secrets.token_bytes(SHARE_BYTES))

    def __repr__(self) -> str:
        return f"Coin(pid={self.pid}, peer={self.peer})"

    @property
    def offer(self) -> bytes:
        """First bytes to the peer: the commitment, and the public key."""
        return _commitment(self.pid, self.peer, self.share) + self.own.public.public

    def sealed(self, offer: bytes) -> bytes:
        """Returns the share for the peer that has made ``offer``. Raises ProtocolViolation if there is no key in it."""
        info = self._info(offer, self.pid, self.peer)
        return seal_key(offer, self.peer).seal(self.share, info)

    def keys(self, offer: bytes, box: bytes) -> PairKeys:
        """Returns the pair's keys, if the ``box`` has the share that the peer's ``offer`` committed to.

        Raises ProtocolViolation, naming the peer, for a box that does not open here and now, and for another share.
        """
        share = self._opened(offer, box)
        low, high = (self.share, share) if self.pid < self.peer else (share, self.share)
        greeting = self._greeting(offer)
        bound = greeting + hashlib.sha256(self.binding).digest()
        return PairKeys(
            component=_derived(low + high, _COMPONENT + bound),
            frames=_derived(low + high, _FRAMES + greeting),
        )

    def _opened(self, offer: bytes, box: bytes) -> bytes:
        """Returns the peer's share."""
        try:
            share = self.own.open(box, self._info(offer, self.peer, self.pid))
        except ValueError as error:
            raise ProtocolViolation(
                f"party {self.peer} sent a sealed share for the pair's key that does not open: altered, sealed to "
                "another key, or for another greeting",
                self.peer,
            ) from error
        expected, said = _commitment(self.peer, self.pid, share), offer[:COMMITMENT_BYTES]
        if len(share) != SHARE_BYTES or not hmac.compare_digest(expected, said):
            raise ProtocolViolation(
                f"party {self.peer} did not show what it had committed to for the pair's key",
                self.peer,
            )
        return share

    def _info(self, offer: bytes, sender: int, receiver: int) -> bytes:
        return _BOX + bytes((sender, receiver)) + self._greeting(offer)

    def _greeting(self, offer: bytes) -> bytes:
        """Returns a digest of all that the two have sent and agreed on before the shares, the same at both ends."""
        mine = self.offer
        low, high = (mine, offer) if self.pid < self.peer else (offer, mine)
        pair = bytes(sorted((self.pid, self.peer)))
        return pair + hashlib.sha256(self.meeting).digest() + hashlib.sha256(low + high).digest()


def seal_key(offer: bytes, peer: int) -> SealTo:
    """Returns the key that ``peer`` offers to seal to. Raises ProtocolViolation."""
    try:
        return SealTo(offer[COMMITMENT_BYTES:])
    except ValueError as error:
        raise ProtocolViolation(f"party {peer}'s sealing key {error}", peer) from error


def frames_stream(key: bytes, sender: int, receiver: int) -> Keystream:
    """Returns the keystream of all messages from ``sender`` to ``receiver``, of the pair's ``key`` for frames."""
    return Keystream(key, bytes((sender, receiver)))


def _derived(shares: bytes, context: bytes) -> bytes:
    return hashlib.blake2b(context, key=shares, digest_size=KEY_BYTES).digest()


def _commitment(sender: int, receiver: int, share: bytes) -> bytes:
    return hashlib.sha256(_COMMITMENT + bytes((sender, receiver)) + share).digest()
