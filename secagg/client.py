"""One client of one round, without I/O and without a clock.

``SecAggClient.receive`` takes one message of the server and returns the answer to send. The five methods below it are
the client's column of the paper's figure:

    announcement -> _advertise    keys of this round, signed where identities are configured
    keys         -> _share_keys   shares of the own seed and mask key, encrypted to each neighbour, and pair secrets
    inbox        -> _mask         y = x + noise + F(b) + sum_{v > u} F(s_uv) - sum_{v < u} F(s_uv)
    survivors    -> _confirm      the list, signed; or, without identities, at once
    signatures   -> _reveal       one share per neighbour: of its seed if it survived, of its mask key if not; sealed

A client that sends no more messages has dropped out; that needs no call. Where a client's process lasts for one message
only, ``freeze`` and ``thaw`` carry it to the next. Secret: the vector, the keys and the seed, forgotten once the vector
is masked, and the neighbours' shares, forgotten once they are revealed or the round ends. Public: all messages (shares
are encrypted until revealed). Source: Bonawitz et al. 2017, figure 4; Bell et al. 2020, algorithm 2. Deviations: the
graph is not the server's word but a function of the announced seed; survivors are one bit per client for the whole
session, so that the request cannot name both secrets of a neighbour, and every client can count them; the seed is
committed to; the witnesses of a survivor list are the same for everybody, so that no two clients can be shown different
survivors; a damaged share is missing and does not stop its holder; keys are agreed on by X25519 and ML-KEM-768 together
(`secagg.boxes`), and revealed shares are sealed to the server.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from secagg import keys, shamir, wire
from secagg.boxes import (
    Purpose,
    open_box,
    open_pair_secret,
    pair_mask_key,
    pair_secret,
    seal_box,
    seal_pair_secret,
    seal_revealed,
)
from secagg.errors import (
    BothSecretsRequest,
    DecryptionFailed,
    DuplicateMessage,
    ForeignMessage,
    InconsistentSurvivors,
    MalformedMessage,
    ParameterError,
    ParametersRefused,
    PeerAborted,
    ProtocolViolation,
    SecondRequest,
    TooFewNeighbours,
    TooFewSurvivors,
    UnexpectedMessage,
)
from secagg.keys import HybridKey, Identity, Usage, derive, pair
from secagg.masks import add_mask, pack
from secagg.noise import NoiseKind, discrete_gaussian
from secagg.parameters import ClientPolicy, Parameters
from secagg.wire import Boxes, Envelope, Kind, PublicKeys, Revealed

Values = NDArray[np.integer]
_HALVES = 4
"""Number of halves of two hybrid keys, X25519's and ML-KEM's."""


class Awaits(Enum):
    """The message a client waits for; the order is the round's."""

    ANNOUNCE = Kind.ANNOUNCE
    KEYS = Kind.KEYS
    INBOX = Kind.INBOX
    SURVIVORS = Kind.SURVIVORS
    SIGNATURES = Kind.SIGNATURES
    FINISHED = Kind.FINISHED
    NOTHING = None


@dataclass(eq=False, repr=False, slots=True)
class _Secrets:
    """A client's secrets, known to no other, until its vector is masked.

    ``common``: by neighbour, X25519's part of the secrets behind both directions' encryption.
    """

    cipher_key: HybridKey
    mask_key: HybridKey
    seed: bytes
    common: dict[int, bytes] = field(default_factory=dict)


class SecAggClient:
    """Client ``client`` with its vector; see the module's docstring."""

    def __init__(
        self,
        client: int,
        values: Values | Callable[[], Values],
        policy: ClientPolicy,
        *,
        identity: Identity | None = None,
        roster: Sequence[bytes] | None = None,
        random_bytes: shamir.RandomBytes = secrets.token_bytes,
    ) -> None:
        """Checks and keeps the client's configuration.

        ``values`` are ``policy.length`` integers, or a function that returns them when they are needed. ``identity``
        and ``roster`` (everybody's public identity keys, by id) come together and make every key and survivor list
        signed. Raises ValueError where one is missing or the roster has another key for this client, ParameterError
        where the policy has no ring, ValueOutOfRange where given values leave the declared range.
        """
        if (identity is None) != (roster is None):
            raise ValueError("an identity and the roster come together, or neither")
        if identity and roster and not (client < len(roster) and roster[client] == identity.public):
            raise ValueError(f"the roster does not have this identity as client {client}")
        self.client = client
        self.awaits = Awaits.ANNOUNCE
        self._policy = policy
        self._values = values
        self._identity = identity
        self._roster = roster
        self._random_bytes = random_bytes
        self._parameters: Parameters | None = None
        self._server_key = b""
        self._answered: NDArray[np.bool_] | None = None
        self._public: dict[int, PublicKeys] = {}
        self._secrets: _Secrets | None = None
        # By neighbour that sent any: shares of its seed and of its mask key, None where they were damaged.
        self._shares: dict[int, tuple[bytes, bytes] | None] = {}

    def freeze(self) -> bytes:
        """Returns the client's state between two messages, for ``thaw`` in another process: secret, and good for once.

        A state that is thawed twice, to answer the same stage to two servers, gives up the client's protection.
        """
        own, answered = self._secrets, self._answered
        values = self._values() if callable(self._values) else self._values
        document = {
            "client": self.client,
            "awaits": self.awaits.name,
            "values": values.astype("<i8").tobytes().hex(),
            "parameters": None if self._parameters is None else self._parameters.to_bytes().hex(),
            "server_key": self._server_key.hex(),
            "answered": None if answered is None else wire.encode_survivors(answered).hex(),
            "public": [[v, key.cipher.hex(), key.mask.hex()] for v, key in self._public.items()],
            "secrets": None
            if own is None
            else [own.cipher_key.reveal().hex(), own.mask_key.reveal().hex(), own.seed.hex()],
            "shares": [
                [v, None if both is None else (both[0] + both[1]).hex()]
                for v, both in self._shares.items()
            ],
        }
        return json.dumps(document).encode()

    @classmethod
    def thaw(
        cls,
        data: bytes,
        policy: ClientPolicy,
        *,
        identity: Identity | None = None,
        roster: Sequence[bytes] | None = None,
        random_bytes: shamir.RandomBytes = secrets.token_bytes,
    ) -> "SecAggClient":
        """Returns the client of ``freeze``'s bytes, with the same other arguments; ``data`` is its own, and trusted."""
        document = json.loads(data)
        values = np.frombuffer(bytes.fromhex(document["values"]), "<i8")
        client = cls(
            document["client"],
            values,
            policy,
            identity=identity,
            roster=roster,
            random_bytes=random_bytes,
        )
        client.awaits = Awaits[document["awaits"]]
        if document["parameters"] is not None:
            client._parameters = Parameters.from_bytes(bytes.fromhex(document["parameters"]))
        client._server_key = bytes.fromhex(document["server_key"])
        if document["answered"] is not None:
            shown = bytes.fromhex(document["answered"])
            client._answered = wire.decode_survivors(shown, client._session.clients)
        client._public = {
            v: PublicKeys(bytes.fromhex(cipher), bytes.fromhex(mask), b"")
            for v, cipher, mask in document["public"]
        }
        client._shares = {
            v: None if both is None else (bytes.fromhex(both)[:32], bytes.fromhex(both)[32:])
            for v, both in document["shares"]
        }
        if document["secrets"] is not None:
            cipher, mask, seed = (bytes.fromhex(text) for text in document["secrets"])
            own = client._secrets = _Secrets(HybridKey(cipher), HybridKey(mask), seed)
            own.common = {v: own.cipher_key.agree(k.cipher, v) for v, k in client._public.items()}
        return client

    def __repr__(self) -> str:
        return f"SecAggClient({self.client}, awaits={self.awaits.name})"

    def receive(self, message: bytes) -> bytes | None:
        """Returns the answer to one ``message`` of the server; None where none is due.

        Raises MalformedMessage, ForeignMessage or UnexpectedMessage for messages that this stage does not await; they
        leave the client as it was. Any other ProtocolViolation or RoundAborted ends the client: it forgets its secrets
        and refuses everything that follows.
        """
        envelope = self._accept(message)
        try:
            return self._answer(envelope)
        except BaseException:
            self._end()
            raise

    def _accept(self, message: bytes) -> Envelope:
        """Checks the envelope against this client, session and stage."""
        stage = self.awaits.name.lower()
        try:
            envelope = wire.open_envelope(message, wire.max_body(self._parameters))
        except MalformedMessage as error:
            error.stage = stage
            raise
        known = None if self._parameters is None else self._parameters.digest[:16]
        if envelope.sender != wire.SERVER or envelope.recipient != self.client:
            way = f"from {envelope.sender} to {envelope.recipient}"
            raise ForeignMessage(f"a message {way} at client {self.client}", None, stage)
        if known is not None and envelope.session != known:
            raise ForeignMessage("a message of another session", None, stage)
        if envelope.kind is Kind.ABORT or envelope.kind == self.awaits.value:
            return envelope
        if envelope.kind is Kind.SURVIVORS and self._answered is not None:
            self._refuse_second(envelope)
        if self.awaits.value is not None and envelope.kind < self.awaits.value:
            raise DuplicateMessage(f"{envelope.kind.name} again", None, stage)
        raise UnexpectedMessage(f"{envelope.kind.name} while waiting for {stage}", None, stage)

    def _answer(self, envelope: Envelope) -> bytes | None:
        body = envelope.body
        match envelope.kind:
            case Kind.ANNOUNCE:
                return self._advertise(body)
            case Kind.KEYS:
                return self._share_keys(body)
            case Kind.INBOX:
                return self._mask(body)
            case Kind.SURVIVORS:
                return self._confirm(body)
            case Kind.SIGNATURES:
                return self._reveal(body)
            case Kind.FINISHED:
                self._end()
                return None
            case _:
                raise PeerAborted(f"the server ended the round: {wire.decode_reason(body)}")

    # The round

    def _advertise(self, body: bytes) -> bytes:
        """Stage 0: checks the announced parameters against the own policy; makes this round's two key pairs."""
        announced, server_key = wire.split_announcement(body)
        try:
            parameters = Parameters.from_bytes(announced)
        except ParameterError as error:
            raise ParametersRefused(f"unusable parameters: {error}", None, "announce") from error
        self._policy.check(parameters, self._roster)
        if self.client >= parameters.clients:
            raise ParametersRefused(
                f"{parameters.clients} clients without this one, {self.client}", None, "announce"
            )
        self._parameters, self._server_key = parameters, server_key
        self._secrets = own = _Secrets(
            HybridKey(self._random_bytes(32)),
            HybridKey(shamir.random_secret(self._random_bytes)),
            shamir.random_secret(self._random_bytes),
        )
        cipher, mask = own.cipher_key.public, own.mask_key.public
        signature = self._sign(signed_keys(parameters, self.client, cipher, mask))
        self.awaits = Awaits.KEYS
        return self._send(Kind.ADVERTISE, wire.encode_keys(PublicKeys(cipher, mask, signature)))

    def _share_keys(self, body: bytes) -> bytes:
        """Stage 1: checks the neighbours' keys; shares seed and mask key t-of-k, sealed to each holder.

        It also makes the pair secrets with those that come after this client on the ring.
        """
        parameters, own = self._session, self._own
        self._public = self._checked_keys(body)
        holders = sorted(self._public)
        if len(holders) < parameters.threshold:
            raise TooFewNeighbours(
                f"{len(holders)} neighbours advertised keys; expected at least {parameters.threshold}"
            )
        own.common = {v: own.cipher_key.agree(self._public[v].cipher, v) for v in holders}
        points = [holder + 1 for holder in holders]
        seed_shares, key_shares = (
            shamir.split(secret, parameters.threshold, points, random_bytes=self._random_bytes)
            for secret in (own.seed, own.mask_key.reveal())
        )
        boxes = Boxes({}, {})
        for v, seed_share, key_share in zip(holders, seed_shares, key_shares, strict=True):
            public, purpose = self._public[v], self._share_purpose(self.client, v)
            both = seed_share + key_share
            boxes.shares[v] = seal_box(purpose, both, own.common[v], public.cipher)
            if parameters.graph.first(self.client, v):
                boxes.secrets[v] = seal_pair_secret(
                    parameters, own.mask_key, self.client, v, public.mask
                )
        commitment = derive(own.seed, Usage.SELF_COMMITMENT, parameters.digest)
        self.awaits = Awaits.INBOX
        return self._send(Kind.SHARES, wire.encode_shares(commitment, boxes))

    def _mask(self, body: bytes) -> bytes:
        """Stage 2: opens the neighbours' shares; adds noise, the own mask, and one mask per neighbour that shared."""
        parameters, own = self._session, self._own
        graph, neighbours = parameters.graph, sorted(self._public)
        before = [v for v in neighbours if graph.first(v, self.client)]
        boxes = wire.decode_inbox(body, neighbours, before)
        if len(boxes.shares) < parameters.threshold:
            raise TooFewNeighbours(
                f"{len(boxes.shares)} neighbours shared their keys; expected at least {parameters.threshold}"
            )
        self._shares = {v: self._opened(v, ciphertext) for v, ciphertext in boxes.shares.items()}
        encoding = parameters.encoding
        y = encoding.encode(self._values() if callable(self._values) else self._values)
        if parameters.noise.kind is NoiseKind.DISTRIBUTED:
            y += discrete_gaussian(
                parameters.noise.variance, y.size, random_bytes=self._random_bytes
            ).astype(y.dtype)
        # y = x + noise + F(b_u) + sum_{v > u} F(s_uv) - sum_{v < u} F(s_uv).
        add_mask(y, derive(own.seed, Usage.SELF_MASK, parameters.digest))
        # Of each pair the lower id adds the common mask and the higher one takes it away: in the sum they cancel.
        for v in self._shares:
            add_mask(y, self._pair_mask_key(v, boxes.secrets.get(v)), negative=v < self.client)
        # The rest of the round uses the neighbours' shares and nothing of this client's own.
        self._forget_own()
        self.awaits = Awaits.SURVIVORS
        return self._send(Kind.MASKED, pack(y, encoding.bits))

    def _confirm(self, body: bytes) -> bytes:
        """Stage 3: checks the survivors, once and for all, and signs them; without identities reveals at once."""
        parameters = self._session
        alive = wire.decode_survivors(body, parameters.clients)
        self._check_survivors(alive)
        self._answered = alive
        if not parameters.signed:
            return self._reveal_shares(alive)
        self.awaits = Awaits.SIGNATURES
        return self._send(
            Kind.SIGNATURE, self._sign(signed_survivors(parameters, self.client, body))
        )

    def _reveal(self, body: bytes) -> bytes:
        """Stage 4: reveals only once t of the witnesses, the same for everybody, have signed the very same list."""
        parameters, alive = self._session, self._answered
        if alive is None or self._roster is None:
            raise UnexpectedMessage("signatures before a survivor list", None, "signatures")
        surviving = [v for v in parameters.graph.witnesses if alive[v]]
        signatures = wire.decode_list(body, keys.SIGNATURE_BYTES, surviving)
        if len(signatures) < parameters.threshold:
            raise InconsistentSurvivors(
                f"{len(signatures)} witnesses signed the survivors; expected at least {parameters.threshold}",
                None,
                "signatures",
            )
        shown = wire.encode_survivors(alive)
        for v, signature in signatures.items():
            keys.verify(self._roster, v, signature, signed_survivors(parameters, v, shown))
        return self._reveal_shares(alive)

    # Pieces of the steps above; all local

    def _checked_keys(self, body: bytes) -> dict[int, PublicKeys]:
        parameters = self._session
        size = 2 * keys.PUBLIC_BYTES + (keys.SIGNATURE_BYTES if parameters.signed else 0)
        entries = wire.decode_list(body, size, parameters.graph.neighbours(self.client))
        public = {v: wire.decode_keys(entry, parameters.signed) for v, entry in entries.items()}
        seen = keys.halves(self._own.cipher_key.public) | keys.halves(self._own.mask_key.public)
        for v, offered in public.items():
            if self._roster is not None:
                message = signed_keys(parameters, v, offered.cipher, offered.mask)
                keys.verify(self._roster, v, offered.signature, message)
            halves = keys.halves(offered.cipher) | keys.halves(offered.mask)
            if len(halves) < _HALVES or halves & seen:
                raise ProtocolViolation(f"a key of client {v} came before", v, "keys")
            seen |= halves
        return public

    def _opened(self, sender: int, ciphertext: bytes) -> tuple[bytes, bytes] | None:
        """Returns the shares that ``sender`` sealed to this client; None where they are damaged.

        Damaged shares are missing, and this client goes on: otherwise their sender could choose the dropouts, and cut
        the graph.
        """
        own, purpose = self._own, self._share_purpose(sender, self.client)
        try:
            both = open_box(purpose, ciphertext, own.common[sender], own.cipher_key, sender)
        except DecryptionFailed:
            return None
        return both[:32], both[32:]

    def _pair_mask_key(self, other: int, box: bytes | None) -> bytes:
        """Returns s_uv with neighbour ``other``, from the pair secret in its ``box``; None for an own secret.

        A box that does not open does not stop this client either, for the same reason. A random secret takes the place
        of the unknown one: the sum is spoilt, as the box's sealer could spoil it with its vector, and this client's
        vector is masked by more than the other one's X25519 key.
        """
        parameters, key, public = self._session, self._own.mask_key, self._public[other].mask
        try:
            secret = (
                pair_secret(parameters, key, self.client, other)
                if box is None
                else open_pair_secret(parameters, key, self.client, other, public, box)
            )
        except DecryptionFailed:
            secret = self._random_bytes(shamir.SECRET_BYTES)
        return pair_mask_key(parameters, key, self.client, other, public, secret)

    def _check_survivors(self, alive: NDArray[np.bool_]) -> None:
        parameters, count = self._session, int(alive.sum())
        if count < parameters.min_survivors:
            raise TooFewSurvivors(
                f"{count} survivors; expected at least {parameters.min_survivors}: nothing is revealed"
            )
        shares, graph = self._shares, parameters.graph
        stranger = [v for v in graph.neighbours(self.client) if alive[v] and v not in shares]
        if not alive[self.client] or stranger:
            raise InconsistentSurvivors(
                "the survivor list leaves out this client, or has neighbours that never shared their keys",
                None,
                "survivors",
            )
        if sum(bool(alive[v]) for v in shares) < parameters.threshold:
            raise TooFewNeighbours(
                f"fewer than {parameters.threshold} neighbours survived; nothing is revealed"
            )

    def _reveal_shares(self, alive: NDArray[np.bool_]) -> bytes:
        revealed = {
            v: Revealed(not alive[v], shares[0] if alive[v] else shares[1])
            for v, shares in self._shares.items()
            if shares is not None
        }
        content, server_key = wire.encode_revealed(revealed), self._server_key
        self._forget()
        self.awaits = Awaits.FINISHED
        box = seal_revealed(self._session, self.client, content, server_key, self._random_bytes)
        return self._send(Kind.REVEAL, box)

    def _refuse_second(self, envelope: Envelope) -> None:
        """Ends the client at a second request, for any secrets."""
        answered, parameters = self._answered_list, self._session
        self._end()
        if envelope.body == wire.encode_survivors(answered):
            raise SecondRequest(
                "the same survivors again; shares are revealed once", None, "survivors"
            )
        try:
            second = wire.decode_survivors(envelope.body, answered.size)
        except MalformedMessage:
            second = answered
        neighbours = parameters.graph.neighbours(self.client)
        changed = [v for v in neighbours if second[v] != answered[v]]
        if changed:
            raise BothSecretsRequest(
                f"a second list asks for the other secret of {len(changed)} neighbours, client {changed[0]} among them",
                None,
                "survivors",
            )
        raise SecondRequest("a second survivor list; shares are revealed once", None, "survivors")

    @property
    def _session(self) -> Parameters:
        if self._parameters is None:
            raise UnexpectedMessage("no session was announced", None, self.awaits.name.lower())
        return self._parameters

    @property
    def _answered_list(self) -> NDArray[np.bool_]:
        if self._answered is None:
            raise UnexpectedMessage("no survivors were shown", None, self.awaits.name.lower())
        return self._answered

    @property
    def _own(self) -> _Secrets:
        if self._secrets is None:
            raise UnexpectedMessage("the round is over here", None, self.awaits.name.lower())
        return self._secrets

    def _share_purpose(self, sender: int, holder: int) -> Purpose:
        """Returns the purpose of the box of shares from ``sender`` to ``holder``, one of which is this client."""
        return Purpose(self._session, Usage.SHARES, pair(sender, holder))

    def _sign(self, message: bytes) -> bytes:
        return b"" if self._identity is None else self._identity.sign(message)

    def _send(self, kind: Kind, body: bytes) -> bytes:
        session = self._session.digest[:16]
        return wire.pack_envelope(Envelope(kind, self.client, wire.SERVER, session, body))

    def _forget_own(self) -> None:
        self._secrets, self._public, self._values = None, {}, np.zeros(0, np.int64)

    def _forget(self) -> None:
        self._forget_own()
        self._shares = {}

    def _end(self) -> None:
        self._forget()
        self.awaits = Awaits.NOTHING


def signed_keys(parameters: Parameters, client: int, cipher: bytes, mask: bytes) -> bytes:
    """Returns the bytes that a client signs in stage 0."""
    head = b"syncret secagg 2 signed keys" + parameters.digest
    return head + client.to_bytes(4, "big") + cipher + mask


def signed_survivors(parameters: Parameters, client: int, survivors: bytes) -> bytes:
    """Returns the bytes that a client signs in stage 3."""
    head = b"syncret secagg 2 signed survivors" + parameters.digest
    return head + client.to_bytes(4, "big") + hashlib.sha256(survivors).digest()
