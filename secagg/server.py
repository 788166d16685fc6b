"""The server of one round, without I/O and without a clock.

``SecAggServer.start`` returns the first messages, ``receive`` takes one message of one client, ``close_stage`` ends the
stage: clients that have not answered have dropped out. All three return the messages to send. A stage also closes by
itself when everybody has answered. The methods ``_open_...`` below are the server's column of the figure:

    ADVERTISE  collect keys            -> each client its neighbours' keys
    SHARES     collect sealed shares   -> each client the shares sealed to it
    MASKED     add up masked vectors   -> everybody left: the survivors
    SIGNATURE  collect signatures      -> each client the witnesses' signatures (signed sessions only)
    REVEAL     collect shares          -> recover, take the masks off, decode

Masked vectors are added up as they arrive and not kept. Secret from everybody else: recovered seeds and keys, which the
server learns by design: for each client one of the two, never both. Public: the sum, and the survivors. Source:
Bonawitz et al. 2017, figure 4; Bell et al. 2020, algorithm 2; see `secagg.client` for deviations.
"""

import secrets
from collections.abc import Callable, Sequence
from enum import IntEnum
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from secagg import keys, shamir, wire
from secagg.boxes import open_pair_secret, open_revealed, pair_mask_key, pair_secret
from secagg.client import signed_keys, signed_survivors
from secagg.errors import (
    DecryptionFailed,
    DuplicateMessage,
    ForeignMessage,
    LateMessage,
    MalformedMessage,
    ParameterError,
    ProtocolViolation,
    ReconstructionFailed,
    RoundAborted,
    TooFewShares,
    TooFewSurvivors,
    UnexpectedMessage,
)
from secagg.keys import AgreementKey, HybridKey, Usage, derive
from secagg.masks import Vector, add_mask, unpack, word
from secagg.noise import NoiseKind, discrete_gaussian
from secagg.parameters import Parameters, roster_digest
from secagg.wire import Boxes, Envelope, Kind, PublicKeys, Revealed

Outgoing = list[tuple[int, bytes]]


class Stage(IntEnum):
    """The server's stages, by the messages they collect; a client can drop out before it sends a stage's message."""

    ADVERTISE = Kind.ADVERTISE
    SHARES = Kind.SHARES
    MASKED = Kind.MASKED
    SIGNATURE = Kind.SIGNATURE
    REVEAL = Kind.REVEAL
    DONE = Kind.FINISHED
    ABORTED = Kind.ABORT


class SecAggServer:
    """One session; ``result`` and ``survivors`` are there once ``stage`` is DONE."""

    def __init__(
        self,
        parameters: Parameters,
        *,
        roster: Sequence[bytes] | None = None,
        random_bytes: shamir.RandomBytes = secrets.token_bytes,
    ) -> None:
        """Starts a session.

        ``roster``: everybody's public identity keys, for a signed session; ``random_bytes`` only serves the noise of
        `NoiseKind.SERVER`. Raises ParameterError where the roster is not the parameters' own.
        """
        if parameters.signed != (roster is not None) or (
            roster is not None
            and (
                len(roster) != parameters.clients
                or roster_digest(roster) != parameters.roster_digest
            )
        ):
            raise ParameterError("the roster is not the one of the session's parameters")
        self.parameters = parameters
        self.stage = Stage.ADVERTISE
        self.survivors: frozenset[int] = frozenset()
        self._roster = roster
        self._random_bytes = random_bytes
        self._expected = set(range(parameters.clients))
        self._answered: set[int] = set()
        self._gone: set[int] = set()
        self._keys: dict[int, PublicKeys] = {}
        self._seen: set[bytes] = set()
        self._probe = AgreementKey(secrets.token_bytes(32))
        self._commitments: dict[int, bytes] = {}
        self._key: HybridKey | None = HybridKey(secrets.token_bytes(32))
        self._sealed: dict[int, Boxes] = {}
        # Pair secrets that others sealed to each client that may drop out.
        self._secrets: dict[int, dict[int, bytes]] = {}
        self._holders: dict[int, list[int]] = {}
        self._signatures: dict[int, bytes] = {}
        self._revealed: dict[int, dict[int, Revealed]] = {}
        self._total: Vector = np.zeros(parameters.length, word(parameters.bits))
        self._scaled_sum: NDArray[np.int64] | None = None

    @property
    def waiting(self) -> frozenset[int]:
        """Clients whose answer to the present stage is still missing."""
        return frozenset(self._expected - self._answered - self._gone)

    @property
    def over(self) -> bool:
        """True if there is nothing more to receive."""
        return self.stage in (Stage.DONE, Stage.ABORTED)

    @property
    def scaled_result(self) -> NDArray[np.int64]:
        """scale * sum (x - low) over the survivors plus noise, int64 (length,). Raises ValueError before DONE."""
        if self._scaled_sum is None:
            raise ValueError("there is no sum yet")
        return self._scaled_sum

    @property
    def result(self) -> NDArray[np.float64]:
        """Sum over the survivors in the values' own units (length,); see ``exact_result``."""
        shift = len(self.survivors) * self.parameters.low
        return self.scaled_result / self.parameters.scale + shift

    @property
    def noise_deviation(self) -> float:
        """Deviation of the noise in ``result``, all survivors' together: more than asked for where more survived.

        Raises ValueError before DONE.
        """
        _ = self.scaled_result
        noise, scale = self.parameters.noise, self.parameters.scale
        parts = len(self.survivors) if noise.kind is NoiseKind.DISTRIBUTED else 1
        return sqrt(parts * noise.variance) / scale

    @property
    def exact_result(self) -> NDArray[np.int64]:
        """Sum over the survivors as integers (length,). Raises ValueError where the scale is not one."""
        if self.parameters.scale != 1:
            raise ValueError("sums of scaled values are fractions; take result")
        return self.scaled_result + len(self.survivors) * self.parameters.low

    def start(self) -> Outgoing:
        """Returns the announcement, for every client."""
        body = wire.encode_announcement(self.parameters, self._own_key.public)
        return [(u, self._pack(Kind.ANNOUNCE, u, body)) for u in range(self.parameters.clients)]

    def receive(self, client: int, message: bytes) -> Outgoing:
        """Takes ``message`` of ``client``, as the channel has identified it.

        Raises ProtocolViolation where it is not legal: the message is ignored, and the client can still answer the
        stage. Raises RoundAborted where the stage closes with this message and there can be no sum.
        """
        envelope = self._accept(client, message)
        try:
            self._take(client, envelope.body)
        except ProtocolViolation as error:
            error.peer, error.stage = client, self.stage.name.lower()
            raise
        self._answered.add(client)
        return [] if self.waiting else self.close_stage()

    def close_stage(self) -> Outgoing:
        """Closes the stage and goes on with the clients that answered.

        Raises RoundAborted where they are too few, or there is no sum; ``farewell`` then returns the messages to the
        clients.
        """
        outgoing: Outgoing = []
        try:
            while not self.over:
                outgoing += self._close()
                if self.waiting:
                    break
        except RoundAborted:
            self.stage = Stage.ABORTED
            self._forget()
            raise
        return outgoing

    def drop(self, client: int) -> Outgoing:
        """Marks ``client`` as gone, as its channel knows, and waits for it no longer. Its earlier messages count.

        Closes the stage, as ``close_stage`` does, where only this client was missing.
        """
        self._gone.add(client)
        return [] if self.waiting or self.over else self.close_stage()

    def farewell(self, reason: str) -> Outgoing:
        """Returns an ABORT for everybody who still took part; ends the round if it was not over."""
        if self.stage is not Stage.DONE:
            self.stage = Stage.ABORTED
            self._forget()
        body = wire.encode_reason(reason)
        return [(u, self._pack(Kind.ABORT, u, body)) for u in sorted(self._expected - self._gone)]

    def _accept(self, client: int, message: bytes) -> Envelope:
        stage = self.stage.name.lower()
        try:
            envelope = wire.open_envelope(message, wire.max_body(self.parameters))
        except MalformedMessage as error:
            error.peer, error.stage = client, stage
            raise
        if envelope.sender != client or envelope.recipient != wire.SERVER:
            raise ForeignMessage(
                f"a message from {envelope.sender} to {envelope.recipient} out of client {client}'s channel",
                client,
                stage,
            )
        if envelope.session != self.parameters.digest[:16]:
            raise ForeignMessage("a message of another session", client, stage)
        kind, present = int(envelope.kind), int(self.stage)
        if client not in self._expected:
            raise LateMessage(
                f"{envelope.kind.name} after a stage it did not answer", client, stage
            )
        if kind < present or (kind == present and client in self._answered):
            raise DuplicateMessage(f"{envelope.kind.name} again", client, stage)
        if kind != present:
            raise UnexpectedMessage(f"{envelope.kind.name} in stage {stage}", client, stage)
        return envelope

    def _take(self, client: int, body: bytes) -> None:
        """Checks and keeps one client's answer to the present stage."""
        parameters = self.parameters
        match self.stage:
            case Stage.ADVERTISE:
                self._keys[client] = self._checked_keys(client, body)
            case Stage.SHARES:
                holders, graph = self._holders[client], parameters.graph
                after = [v for v in holders if graph.first(client, v)]
                decoded = wire.decode_shares(body, holders, after)
                self._commitments[client], self._sealed[client] = decoded
            case Stage.MASKED:
                self._total += unpack(body, parameters.length, parameters.bits)
            case Stage.SIGNATURE:
                if self._roster is not None:
                    shown = wire.encode_survivors(self._flags())
                    keys.verify(
                        self._roster, client, body, signed_survivors(parameters, client, shown)
                    )
                self._signatures[client] = body
            case _:
                self._revealed[client] = self._checked_shares(client, body)

    def _close(self) -> Outgoing:
        minimum, stage = self.parameters.min_survivors, self.stage
        if (
            stage is not Stage.SIGNATURE
            and stage is not Stage.REVEAL
            and len(self._answered) < minimum
        ):
            raise TooFewSurvivors(
                f"{len(self._answered)} clients answered stage {stage.name.lower()}; expected at least {minimum}"
            )
        self._expected, self._answered = self._answered, set()
        match stage:
            case Stage.ADVERTISE:
                return self._open_shares()
            case Stage.SHARES:
                return self._open_masked()
            case Stage.MASKED:
                return self._open_survivors()
            case Stage.SIGNATURE:
                return self._open_signatures()
            case _:
                return self._finish()

    # The round

    def _open_shares(self) -> Outgoing:
        """Stage 1: sends each client the keys of its neighbours that advertised any."""
        self.stage = Stage.SHARES
        graph, present = self.parameters.graph, self._expected
        entries = {u: wire.encode_keys(key) for u, key in self._keys.items()}
        for u in present:
            self._holders[u] = [v for v in graph.neighbours(u) if v in present]
        return self._each(
            Kind.KEYS, lambda u: wire.encode_list({v: entries[v] for v in self._holders[u]})
        )

    def _open_masked(self) -> Outgoing:
        """Stage 2: sends each client that shared its keys the shares that others sealed to it."""
        self.stage = Stage.MASKED
        inboxes = {u: Boxes({}, {}) for u in self._expected}
        for u, sealed in self._sealed.items():
            for v in sealed.shares.keys() & inboxes.keys():
                inboxes[v].shares[u] = sealed.shares[v]
                if v in sealed.secrets:
                    inboxes[v].secrets[u] = sealed.secrets[v]
        self._holders = {u: sorted(inbox.shares) for u, inbox in inboxes.items()}
        self._secrets = {u: inbox.secrets for u, inbox in inboxes.items()}
        self._sealed = {}
        return self._each(Kind.INBOX, lambda u: wire.encode_inbox(inboxes[u]))

    def _open_survivors(self) -> Outgoing:
        """Stage 3: sends each survivor the list of survivors; one bit each."""
        self.survivors = frozenset(self._expected)
        self._secrets = {d: own for d, own in self._secrets.items() if d not in self.survivors}
        self.stage = Stage.SIGNATURE if self.parameters.signed else Stage.REVEAL
        body = wire.encode_survivors(self._flags())
        return self._each(Kind.SURVIVORS, lambda _: body)

    def _open_signatures(self) -> Outgoing:
        """Stage 4, signed sessions: sends each client that signed the witnesses' signatures."""
        self.stage = Stage.REVEAL
        signatures, witnesses = self._signatures, self.parameters.graph.witnesses
        signed = {v: signatures[v] for v in witnesses if v in signatures}
        if len(signed) < self.parameters.threshold:
            raise TooFewShares(
                f"{len(signed)} witnesses signed the survivors; expected at least {self.parameters.threshold}"
            )
        body = wire.encode_list(signed)
        return self._each(Kind.SIGNATURES, lambda _: body)

    def _finish(self) -> Outgoing:
        """Recovers one secret per client and takes the masks off.

        sum x = sum y - sum_{u survived} F(b_u) - sum_{u survived, v dropped} +-F(s_uv).
        """
        parameters = self.parameters
        dropped = [d for d in self._holders if d not in self.survivors]
        neighbours = {d: [u for u in self._holders[d] if u in self.survivors] for d in dropped}
        # Every secret is recovered before any mask is taken off: too few shares of one secret end the round.
        seeds = {u: self._recovered_seed(u) for u in self.survivors}
        lost = {d: self._recovered_key(d) for d in dropped if neighbours[d]}
        # Less F(b_u) of each survivor u.
        for seed in seeds.values():
            add_mask(self._total, derive(seed, Usage.SELF_MASK, parameters.digest), negative=True)
        for d, key in lost.items():
            for u in neighbours[d]:
                mask = self._lost_mask_key(d, key, u)
                # The survivor u added F(s_ud) where d > u, and subtracted it otherwise: the opposite takes it off.
                add_mask(self._total, mask, negative=d > u)
        if parameters.noise.kind is NoiseKind.SERVER:
            # In the ring, before the sum is looked at: a client may have sent any ring element, so that a wrap or a sum
            # out of range would reveal something of the others' part of it.
            noise = discrete_gaussian(
                parameters.noise.variance, self._total.size, random_bytes=self._random_bytes
            )
            self._total += noise.astype(self._total.dtype)
        self._scaled_sum = parameters.encoding.decode(self._total, len(self.survivors))
        self.stage = Stage.DONE
        self._forget()
        return self._each(Kind.FINISHED, lambda _: b"")

    # Pieces of the steps above; all local

    def _checked_keys(self, client: int, body: bytes) -> PublicKeys:
        public = wire.decode_keys(body, self.parameters.signed)
        # Keys that would make the neighbours leave are not passed on to them.
        offered = keys.halves(public.cipher) | keys.halves(public.mask)
        if len(offered) < 4 or offered & self._seen:
            raise ProtocolViolation("a public key that came before", client)
        for key in (public.cipher, public.mask):
            keys.check_public(key, client, self._probe)
        if self._roster is not None:
            message = signed_keys(self.parameters, client, public.cipher, public.mask)
            keys.verify(self._roster, client, public.signature, message)
        self._seen |= offered
        return public

    def _checked_shares(self, client: int, body: bytes) -> dict[int, Revealed]:
        neighbours = self._holders[client]
        content = open_revealed(self.parameters, client, body, self._own_key)
        revealed = wire.decode_revealed(content, neighbours)
        # Shares that arrived damaged may be missing.
        for v, share in revealed.items():
            if share.key == (v in self.survivors):
                raise MalformedMessage(f"the share for client {v} is of its other secret")
        return revealed

    def _recovered_seed(self, client: int) -> bytes:
        salt, commitment = self.parameters.digest, self._commitments[client]
        return self._recovered(
            client, lambda seed: derive(seed, Usage.SELF_COMMITMENT, salt) == commitment
        )

    def _recovered_key(self, client: int) -> HybridKey:
        public = self._keys[client].mask
        secret = self._recovered(client, lambda candidate: HybridKey(candidate).public == public)
        return HybridKey(secret)

    def _lost_mask_key(self, lost: int, key: HybridKey, other: int) -> bytes:
        """Returns s_uv of ``lost``, whose mask key was recovered, with the survivor ``other``."""
        parameters, public = self.parameters, self._keys[other].mask
        if parameters.graph.first(lost, other):
            secret = pair_secret(parameters, key, lost, other)
        else:
            box = self._secrets[lost][other]
            try:
                secret = open_pair_secret(parameters, key, lost, other, public, box)
            except DecryptionFailed as error:
                raise ReconstructionFailed(
                    f"the pair secret that client {other} sealed to client {lost} does not open"
                ) from error
        return pair_mask_key(parameters, key, lost, other, public, secret)

    @property
    def _own_key(self) -> HybridKey:
        if self._key is None:
            raise UnexpectedMessage("the session is over", None, self.stage.name.lower())
        return self._key

    def _recovered(self, client: int, fits: Callable[[bytes], bool]) -> bytes:
        """Returns the secret of ``client`` from t of its shares; if they do not fit, from the next t on the circle."""
        threshold = self.parameters.threshold
        holders = [v for v in self._holders[client] if client in self._revealed.get(v, {})]
        if len(holders) < threshold:
            raise TooFewShares(
                f"{len(holders)} shares of client {client}'s secret; expected at least {threshold}"
            )
        for first in range(len(holders) if len(holders) > threshold else 1):
            chosen = [*holders, *holders][first : first + threshold]
            shares = [self._revealed[v][client].share for v in chosen]
            try:
                secret = shamir.combine([v + 1 for v in chosen], shares)
            except ValueError:
                continue
            if fits(secret):
                return secret
        raise ReconstructionFailed(
            f"the shares of client {client}'s secret do not fit what it committed to"
        )

    def _flags(self) -> NDArray[np.bool_]:
        alive = np.zeros(self.parameters.clients, np.bool_)
        alive[sorted(self.survivors)] = True
        return alive

    def _each(self, kind: Kind, body: Callable[[int], bytes]) -> Outgoing:
        return [(u, self._pack(kind, u, body(u))) for u in sorted(self._expected - self._gone)]

    def _pack(self, kind: Kind, recipient: int, body: bytes) -> bytes:
        session = self.parameters.digest[:16]
        return wire.pack_envelope(Envelope(kind, wire.SERVER, recipient, session, body))

    def _forget(self) -> None:
        self._revealed, self._sealed, self._signatures = {}, {}, {}
        self._secrets, self._key = {}, None
        self._total = np.zeros(0, self._total.dtype)
