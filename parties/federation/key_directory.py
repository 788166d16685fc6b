"""Directory of the participants' signed keys: identities of a sum's members by certificate, not by the server's word.

Malicious mode needs it. With a ``SignedClientKey`` (a card) a participant's certificate vouches for the Ed25519 key by
which this process of the participant signs SecAgg's messages. ``ClientKeyDirectory`` holds the verified cards, at a
participant or at the server; ``OwnClientKey`` is a participant's own side. A card is

    identity 32 | signature's size 2 | signature | certificate (DER)

The signature is by the certificate's key over "syncret flaim 1 identity" | digest of the configuration 32
| identity. A dishonest server cannot make a card for a participant of the run, unless the server controls the run's
authority; with flaim.client_keys in the configuration, not even then. An identity belongs to one process: its
signatures are of this run and of sessions that this process has seen, each session once. Secret: the identity's private
half. Public: cards.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from cryptography import x509

from parties.config import CertificateFiles, Config
from parties.foundation.errors import CertificateError, FederationProtocolError
from parties.identity.signing import Issuer
from parties.identity.tls import certificate_bytes, load_identity, signer
from protocols.mesh import key_hash
from secagg.keys import IDENTITY_BYTES, Identity
from secagg.parameters import roster_digest

MAX_CLIENT_KEY_BYTES = 3072
"""Maximum size of a card in bytes."""
CLIENT_KEYS_PER_MESSAGE = 256
_NUMBER_BYTES, _SIZE_BYTES = 4, 2
MAX_ROSTER_BYTES = CLIENT_KEYS_PER_MESSAGE * (_NUMBER_BYTES + _SIZE_BYTES + MAX_CLIENT_KEY_BYTES)
"""Maximum size of a ROSTER's body in bytes."""


@dataclass(frozen=True, slots=True)
class SignedClientKey:
    """A card: an identity key with its signature and certificate, in the format of the module's docstring."""

    identity: bytes
    signature: bytes
    certificate: bytes

    @classmethod
    def of(cls, identity: bytes, files: CertificateFiles, config: str) -> Self:
        """Returns a card of the public key ``identity`` for the run with the digest ``config``.

        Raises CertificateError.
        """
        return cls(
            identity, signer(files)(_identity_text(config, identity)), certificate_bytes(files)
        )

    def pack(self) -> bytes:
        """Returns the bytes on the wire."""
        size = len(self.signature).to_bytes(_SIZE_BYTES, "big")
        return self.identity + size + self.signature + self.certificate

    @classmethod
    def unpack(cls, data: bytes, peer: str) -> Self:
        """Inverse of ``pack``. Raises FederationProtocolError, naming ``peer``."""
        head = IDENTITY_BYTES + _SIZE_BYTES
        size = int.from_bytes(data[IDENTITY_BYTES:head], "big")
        if not head + size < len(data) <= MAX_CLIENT_KEY_BYTES:
            raise FederationProtocolError(peer, f"a client's card of {len(data)} bytes")
        return cls(data[:IDENTITY_BYTES], data[head : head + size], data[head + size :])


class ClientKeyDirectory:
    """The verified cards of one run's participants; errors name ``peer``, the sender of the cards."""

    def __init__(self, config: Config, issuer: Issuer, peer: str = "") -> None:
        section = config.require_federation()
        self._names, self._keys = section.clients, section.client_keys
        self._config = config.digest()
        self._issuer = issuer
        self.peer = peer
        self.cards: dict[int, SignedClientKey] = {}

    def learn(self, number: int, card: SignedClientKey) -> None:
        """Verifies the card of participant ``number`` and replaces an earlier one. Raises FederationProtocolError."""
        if self.cards.get(number) == card:
            return
        if not 0 <= number < len(self._names):
            raise FederationProtocolError(
                self.peer, f"shows a card of client {number}: there is none"
            )
        name = self._names[number]
        try:
            holder = self._issuer.signatory(card.certificate)
            if holder.name != name:
                raise CertificateError(f"the certificate is of {holder.name!r}")
            key = key_hash(x509.load_der_x509_certificate(card.certificate))
            if self._keys and key != self._keys[number]:
                raise CertificateError("its key is not the one in flaim.client_keys")
            holder.verify(card.signature, _identity_text(self._config, card.identity))
        except CertificateError as error:
            text = f"a card that is not one of client {name!r}: {error}"
            raise FederationProtocolError(self.peer, text) from error
        self.cards[number] = card

    def identities(self, members: Sequence[int]) -> list[bytes]:
        """Returns the public keys of ``members`` in order.

        Raises FederationProtocolError if a key is unknown or shared.
        """
        unknown = [self._names[number] for number in members if number not in self.cards]
        if unknown:
            raise FederationProtocolError(self.peer, f"has shown no card of {unknown[0]!r}")
        found = [self.cards[number].identity for number in members]
        if len(set(found)) != len(found):
            raise FederationProtocolError(self.peer, "shows two clients with one key")
        return found


@dataclass(eq=False, slots=True)
class OwnClientKey:
    """A participant's own ``number``, signing key and card, the directory of the others' cards, and the past sessions.

    ``members`` are the members of the next sum, in order.
    """

    number: int
    identity: Identity = field(repr=False)
    card: SignedClientKey
    roster: ClientKeyDirectory
    members: tuple[int, ...] = ()
    sessions: set[bytes] = field(default_factory=set)

    @classmethod
    def make(
        cls,
        config: Config,
        files: CertificateFiles,
        *,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> Self:
        """Makes a fresh key. Raises CertificateError, or FederationProtocolError if the own card would be refused."""
        section = config.require_federation()
        identity = Identity(random_bytes(32))
        card = SignedClientKey.of(identity.public, files, config.digest())
        number = section.clients.index(load_identity(files).name)
        roster = ClientKeyDirectory(config, Issuer.load(files.ca), section.server)
        roster.learn(number, card)
        return cls(number, identity, card, roster)

    def freeze(self) -> dict[str, object]:
        """Returns the state as JSON, with the private key, for ``thaw`` in another process of this participant."""
        cards = {number: card.pack().hex() for number, card in self.roster.cards.items()}
        return {
            "identity": self.identity.reveal().hex(),
            "cards": [[number, card] for number, card in cards.items()],
            "members": list(self.members),
            "sessions": [session.hex() for session in self.sessions],
        }

    @classmethod
    def thaw(cls, config: Config, files: CertificateFiles, document: Mapping[str, Any]) -> Self:
        """Restores the state of ``freeze`` and verifies it again. Raises as ``make``."""
        own = cls.make(config, files, random_bytes=lambda _: bytes.fromhex(document["identity"]))
        for number, card in document["cards"]:
            if number != own.number:
                own.roster.learn(
                    number, SignedClientKey.unpack(bytes.fromhex(card), own.roster.peer)
                )
        own.members = tuple(document["members"])
        own.sessions = {bytes.fromhex(session) for session in document["sessions"]}
        return own

    def learn(self, body: bytes, peer: str) -> None:
        """Stores the cards of a ROSTER's body. Raises FederationProtocolError."""
        for number, card in unpack_client_keys(body, peer).items():
            if number == self.number:
                raise FederationProtocolError(peer, "shows this client a card of its own")
            self.roster.learn(number, card)

    def keys(self, clients: int, position: int, peer: str) -> list[bytes]:
        """Returns the roster of a sum over ``clients`` participants; this participant is at ``position``.

        Raises FederationProtocolError.
        """
        members = self.members
        if len(members) != clients or not (
            position < len(members) and members[position] == self.number
        ):
            raise FederationProtocolError(
                peer, f"asks for a sum over {clients} clients that it has not named"
            )
        return self.roster.identities(members)

    def once(self, session: bytes, peer: str) -> None:
        """Records the participation in ``session``. Raises FederationProtocolError if it was recorded before."""
        if session in self.sessions:
            raise FederationProtocolError(peer, "asks for the same sum of the same clients again")
        self.sessions.add(session)


def session_id(config: Config, request: bytes, roster: Sequence[bytes]) -> bytes:
    """Returns the session's id for ``request`` and ``roster``. Neither side can choose it.

    The id belongs to this sum of these processes alone. ``request`` is the encoded layout, or another encoding that
    identifies the sum within the run.
    """
    head = b"syncret flaim 1 session" + bytes.fromhex(config.digest()) + roster_digest(roster)
    return hashlib.sha256(head + request).digest()


def pack_client_keys(cards: Mapping[int, SignedClientKey]) -> list[bytes]:
    """Returns bodies of ROSTER: (number 4 | size 2 | card)*, at most 256 cards each."""
    numbers = sorted(cards)
    bodies = []
    for start in range(0, len(numbers), CLIENT_KEYS_PER_MESSAGE):
        chunks = []
        for number in numbers[start : start + CLIENT_KEYS_PER_MESSAGE]:
            card = cards[number].pack()
            chunks += [
                number.to_bytes(_NUMBER_BYTES, "big"),
                len(card).to_bytes(_SIZE_BYTES, "big"),
            ]
            chunks.append(card)
        bodies.append(b"".join(chunks))
    return bodies


def unpack_client_keys(body: bytes, peer: str) -> dict[int, SignedClientKey]:
    """Inverse of ``pack_client_keys`` for one body. Raises FederationProtocolError."""
    cards: dict[int, SignedClientKey] = {}
    offset, head = 0, _NUMBER_BYTES + _SIZE_BYTES
    while offset < len(body):
        number = int.from_bytes(body[offset : offset + _NUMBER_BYTES], "big")
        size = int.from_bytes(body[offset + _NUMBER_BYTES : offset + head], "big")
        end = offset + head + size
        if offset + head > len(body) or end > len(body) or number in cards:
            raise FederationProtocolError(peer, "a roster that breaks off, or has a client twice")
        cards[number] = SignedClientKey.unpack(body[offset + head : end], peer)
        offset = end
    return cards


def pack_members(members: Sequence[int]) -> bytes:
    """Returns a MEMBERS' body: numbers, ascending, 4 bytes each."""
    return b"".join(number.to_bytes(_NUMBER_BYTES, "big") for number in members)


def unpack_members(body: bytes, peer: str) -> tuple[int, ...]:
    """Inverse of ``pack_members``. Raises FederationProtocolError."""
    if len(body) % _NUMBER_BYTES:
        raise FederationProtocolError(peer, f"a list of members of {len(body)} bytes")
    members = tuple(
        int.from_bytes(body[i : i + _NUMBER_BYTES], "big")
        for i in range(0, len(body), _NUMBER_BYTES)
    )
    if sorted(set(members)) != list(members):
        raise FederationProtocolError(peer, "a list of members out of order, or with one twice")
    return members


def _identity_text(config: str, identity: bytes) -> bytes:
    return b"syncret flaim 1 identity" + bytes.fromhex(config) + identity
