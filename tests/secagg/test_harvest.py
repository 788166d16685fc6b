"""An eavesdropper that records a whole session and later breaks X25519 has no client's vector, and not the sum.

It sees every message of every link, and has the private halves of all X25519 keys. The server besides has its own key,
and so the revealed shares. Each property has a control in which ML-KEM gives nothing: there the same attack opens what
it is after. Statistics are those of `tests.secagg.test_privacy`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import secagg.boxes
from secagg import errors, keys, shamir, wire
from secagg.boxes import Purpose, open_pair_secret, pair_mask_key, pair_secret
from secagg.client import SecAggClient
from secagg.errors import DecryptionFailed
from secagg.keys import KEM_CIPHERTEXT_BYTES, AgreementKey, HybridKey, Usage, derive, pair
from secagg.masks import Vector, add_mask, unpack
from secagg.parameters import Parameters
from secagg.server import SecAggServer, Stage
from secagg.simulation import policy_for, run_round
from secagg.wire import Kind
from tests.secagg.support import identities, rewritten, session, vectors
from tests.secagg.test_privacy import statistic

LENGTH, CLIENTS = 6000, 4


def without_kem(patch: pytest.MonkeyPatch) -> None:
    """The control: what ML-KEM encapsulates is no secret, as if keys were agreed on by X25519 alone."""
    fresh = keys.encapsulate

    def encapsulate(public: bytes, peer: int | None = None) -> tuple[bytes, bytes]:
        return bytes(32), fresh(public, peer)[1]

    patch.setattr(keys, "encapsulate", encapsulate)
    patch.setattr(HybridKey, "decapsulate", lambda *_: bytes(32))


class Eavesdropper:
    """All messages of one session by client and kind, and all X25519 private keys by public key."""

    def __init__(
        self, parameters: Parameters, values: list[Any], patch: pytest.MonkeyPatch
    ) -> None:
        self.parameters = parameters
        self.agreement: dict[bytes, AgreementKey] = {}
        self.messages: dict[tuple[int, Kind], bytes] = {}
        made = AgreementKey.__init__

        def broken(key: AgreementKey, secret: bytes) -> None:
            made(key, secret)
            self.agreement[key.public] = key

        patch.setattr(AgreementKey, "__init__", broken)

        def keep(client: int, message: bytes) -> list[bytes]:
            envelope = wire.open_envelope(message, 1 << 20)
            self.messages[client, envelope.kind] = envelope.body
            return [message]

        server: list[SecAggServer] = []
        started = SecAggServer.start

        def starting(self_: SecAggServer) -> Any:
            server.append(self_)
            self.server_public = self_._own_key.public
            return started(self_)

        patch.setattr(SecAggServer, "start", starting)
        run_round(parameters, values, tamper=keep)

    def keys_of(self, client: int) -> wire.PublicKeys:
        return wire.decode_keys(self.messages[client, Kind.ADVERTISE], signed=False)

    def opened(self, purpose: Purpose, box: bytes, mine: bytes, theirs: bytes) -> bytes | None:
        """A box under X25519's secret of two public keys, taking ML-KEM's to be nothing."""
        common = self.agreement[mine[:32]].agree(theirs)
        key = purpose.key(common, bytes(32))
        try:
            return keys.unseal(key, box[KEM_CIPHERTEXT_BYTES:], box[:KEM_CIPHERTEXT_BYTES], 0)
        except DecryptionFailed:
            return None

    def boxes(self, client: int) -> wire.Boxes:
        graph = self.parameters.graph
        neighbours = graph.neighbours(client)
        after = [v for v in neighbours if graph.first(client, v)]
        return wire.decode_shares(self.messages[client, Kind.SHARES], neighbours, after)[1]

    def seed(self, client: int) -> bytes | None:
        """b of one client, from the shares that it sealed to its neighbours."""
        own, found = self.keys_of(client).cipher, {}
        for v, box in self.boxes(client).shares.items():
            purpose = Purpose(self.parameters, Usage.SHARES, pair(client, v))
            both = self.opened(purpose, box, own, self.keys_of(v).cipher)
            if both is not None:
                found[v + 1] = both[:32]
        chosen = sorted(found)[: self.parameters.threshold]
        if len(chosen) < self.parameters.threshold:
            return None
        return shamir.combine(chosen, [found[point] for point in chosen])

    def revealed(self, client: int) -> bytes | None:
        """Bytes that one client revealed to the server."""
        body = self.messages[client, Kind.REVEAL]
        fresh, box = body[:32], body[32:]
        context = client.to_bytes(4, "big") + fresh + self.server_public[:32]
        purpose = Purpose(self.parameters, Usage.REVEALED, context)
        return self.opened(purpose, box, fresh, self.server_public)

    def pair_secret(self, client: int, other: int) -> bytes | None:
        maker, second = (client, other)
        if not self.parameters.graph.first(client, other):
            maker, second = other, client
        purpose = Purpose(self.parameters, Usage.SEALED_SECRET, pair(maker, second))
        box = self.boxes(maker).secrets[second]
        return self.opened(purpose, box, self.keys_of(maker).mask, self.keys_of(second).mask)

    def without_pair_masks(self, client: int) -> Vector:
        """One masked vector less all masks that X25519 alone, with what else was opened, accounts for."""
        parameters, own = self.parameters, self.keys_of(client).mask
        found = unpack(self.messages[client, Kind.MASKED], parameters.length, parameters.bits)
        for v in parameters.graph.neighbours(client):
            common = self.agreement[own[:32]].agree(self.keys_of(v).mask)
            secret = self.pair_secret(client, v) or bytes(32)
            context = pair(min(client, v), max(client, v))
            key = derive(common + secret, Usage.PAIR_MASK, parameters.digest, context)
            add_mask(found, key, negative=v > client)
        return found

    def bare(self, client: int, seed: bytes) -> Vector:
        """The vector of a client whose seed is known, as far as X25519 alone unmasks it."""
        found = self.without_pair_masks(client)
        add_mask(found, derive(seed, Usage.SELF_MASK, self.parameters.digest), negative=True)
        return found & found.dtype.type((1 << self.parameters.bits) - 1)


def listening(patch: pytest.MonkeyPatch, value: int = 1) -> tuple[Eavesdropper, dict[int, bytes]]:
    """A session of one-bit vectors that was listened to, and the seeds that its server recovered."""
    seeds: dict[int, bytes] = {}
    recovered = SecAggServer._recovered_seed

    def keep(server: SecAggServer, client: int) -> bytes:
        seeds[client] = recovered(server, client)
        return seeds[client]

    patch.setattr(SecAggServer, "_recovered_seed", keep)
    parameters = session(CLIENTS, length=LENGTH, high=1, min_survivors=CLIENTS)
    values = [np.full(LENGTH, value) for _ in range(CLIENTS)]
    return Eavesdropper(parameters, values, patch), seeds


def test_who_records_all_links_and_breaks_x25519_has_no_share_and_no_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ear, seeds = listening(monkeypatch)
    assert len(seeds) == CLIENTS
    assert len(ear.agreement) >= 2 * CLIENTS + 1
    for u in range(CLIENTS):
        # Its own mask stays on, so that not even the sum is there.
        assert ear.seed(u) is None
        assert ear.revealed(u) is None
        others = [v for v in range(CLIENTS) if v != u]
        assert [ear.pair_secret(u, v) for v in others] == [None] * len(others)


def test_who_records_all_links_has_everything_in_the_control(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_kem(monkeypatch)
    ear, seeds = listening(monkeypatch)
    for u in range(CLIENTS):
        seed = ear.seed(u)
        assert seed == seeds[u]
        assert ear.revealed(u) is not None
        assert set(ear.bare(u, seed).tolist()) == {1}


@pytest.mark.parametrize("value", [0, 1])
def test_server_that_breaks_x25519_later_has_a_uniform_vector(
    monkeypatch: pytest.MonkeyPatch, value: int
) -> None:
    """It knows every seed by design, and everybody's X25519 keys: the pair secrets are what is left."""
    ear, seeds = listening(monkeypatch, value)
    cells = 1 << ear.parameters.bits
    for u in range(CLIENTS):
        assert statistic(cells, ear.bare(u, seeds[u])) < 8


def test_server_that_breaks_x25519_later_has_the_vector_in_the_control(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_kem(monkeypatch)
    ear, seeds = listening(monkeypatch)
    cells = 1 << ear.parameters.bits
    for u in range(CLIENTS):
        assert statistic(cells, ear.bare(u, seeds[u])) > 100
        assert set(ear.bare(u, seeds[u]).tolist()) == {1}


def test_private_x25519_key_says_nothing_of_the_secret_or_the_other_key() -> None:
    """Breaking X25519 gives the private key but for its clamped bits: the secret must not be it."""
    key = HybridKey(bytes(range(32)))
    private = key._agreement._private.private_bytes_raw()
    assert private != key.reveal()
    assert AgreementKey(key.reveal()).public != key.public[:32]
    assert HybridKey(private).public[32:] != key.public[32:]


def test_recovered_mask_key_opens_no_shares_that_were_sealed_to_its_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server has the mask secret of a dropout: with it, and X25519 broken, survivors' shares would be open."""
    ear, _ = listening(monkeypatch)
    parameters = ear.parameters
    clients = [
        SecAggClient(u, np.zeros(LENGTH, np.int64), policy_for(parameters)) for u in range(CLIENTS)
    ]
    server = SecAggServer(parameters)
    queue, sealed = server.start(), {}
    while not sealed:
        u, message = queue.pop(0)
        answer = clients[u].receive(message)
        assert answer is not None
        queue += server.receive(u, answer)
        if server.stage is Stage.MASKED:
            sealed = dict(queue)
    gone = clients[0]._own
    public = {v: server._keys[v].cipher for v in range(CLIENTS)}
    boxes = wire.decode_inbox(
        wire.open_envelope(sealed[0], 1 << 20).body,
        [1, 2, 3],
        [v for v in (1, 2, 3) if parameters.graph.first(v, 0)],
    )

    def opens(key: HybridKey, v: int) -> bool:
        common = gone.cipher_key.agree(public[v])
        purpose = Purpose(parameters, Usage.SHARES, pair(v, 0))
        try:
            secagg.boxes.open_box(purpose, boxes.shares[v], common, key, v)
        except DecryptionFailed:
            return False
        return True

    recovered = HybridKey(gone.mask_key.reveal())
    assert [opens(gone.cipher_key, v) for v in (1, 2, 3)] == [True] * 3
    assert [opens(recovered, v) for v in (1, 2, 3)] == [False] * 3


# Damaged encapsulations.

Damage = Callable[[wire.Boxes, int], None]
SENDER = 2


def damaged(
    damage: Damage, *, signed: bool = False, drops: dict[int, Stage] | None = None
) -> tuple[list[NDArray[np.int64]], Any]:
    """A round of six in which client 2 seals something else than it should, to the last of those that it may choose."""
    parameters = session(6, signed, threshold=4, min_survivors=5)
    graph, values = parameters.graph, vectors(parameters)
    neighbours = graph.neighbours(SENDER)
    after = [v for v in neighbours if graph.first(SENDER, v)]

    def spoil(client: int, message: bytes) -> list[bytes]:
        envelope = wire.open_envelope(message, 1 << 20)
        if client != SENDER or envelope.kind is not Kind.SHARES:
            return [message]
        commitment, boxes = wire.decode_shares(envelope.body, neighbours, after)
        damage(boxes, after[-1])
        return [rewritten(message, body=wire.encode_shares(commitment, boxes))]

    people = identities(6) if signed else None
    report = run_round(parameters, values, tamper=spoil, identities=people, drops=drops)
    return values, report


def flip(box: bytes, at: int) -> bytes:
    return box[:at] + bytes([box[at] ^ 1]) + box[at + 1 :]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("at", [0, 1000, KEM_CIPHERTEXT_BYTES, -1])
def test_share_whose_encapsulation_is_damaged_is_missing_and_the_sum_is_right(
    signed: bool, at: int
) -> None:
    def damage(boxes: wire.Boxes, v: int) -> None:
        boxes.shares[v] = flip(boxes.shares[v], at % len(boxes.shares[v]))

    values, report = damaged(damage, signed=signed)
    assert report.failures == {}
    assert np.array_equal(report.server.exact_result, np.sum(values, axis=0))


@pytest.mark.parametrize("which", ["shares", "secrets"])
@pytest.mark.parametrize("size", [-1, 1])
def test_box_of_another_size_is_a_violation_of_who_sends_it(which: str, size: int) -> None:
    def damage(boxes: wire.Boxes, v: int) -> None:
        box = getattr(boxes, which)[v]
        getattr(boxes, which)[v] = box[:size] if size < 0 else box + b"\0"

    values, report = damaged(damage)
    assert {u: type(e) for u, e in report.failures.items()} == {SENDER: errors.MalformedMessage}
    assert report.failures[SENDER].peer == SENDER
    assert report.server.survivors == frozenset(range(6)) - {SENDER}
    expected = np.sum([values[u] for u in sorted(report.server.survivors)], axis=0)
    assert np.array_equal(report.server.exact_result, expected)


@pytest.mark.parametrize("missing", [True, False])
def test_pair_secret_missing_or_too_many_is_a_violation(missing: bool) -> None:
    def damage(boxes: wire.Boxes, v: int) -> None:
        if missing:
            del boxes.secrets[v]
        else:
            other = next(u for u in boxes.shares if u not in boxes.secrets)
            boxes.secrets[other] = boxes.secrets[v]

    _, report = damaged(damage)
    assert {u: type(e) for u, e in report.failures.items()} == {SENDER: errors.MalformedMessage}


def swap(boxes: wire.Boxes, v: int) -> None:
    first = next(iter(boxes.secrets))
    assert first != v
    boxes.secrets[first], boxes.secrets[v] = boxes.secrets[v], boxes.secrets[first]


def bend(at: int) -> Damage:
    def damage(boxes: wire.Boxes, v: int) -> None:
        boxes.secrets[v] = flip(boxes.secrets[v], at % len(boxes.secrets[v]))

    return damage


DAMAGES = {"encapsulation": bend(0), "content": bend(-20), "tag": bend(-1), "swapped": swap}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_pair_secret_that_does_not_open_spoils_the_sum_and_sends_nobody_away(
    damage: Damage,
) -> None:
    """As its sender could by its vector. Its holder masks with a secret of its own: never with X25519's alone."""
    stand_ins: list[bytes] = []
    named: list[int | None] = []
    draw = SecAggClient._pair_mask_key

    def watch(self: SecAggClient, other: int, box: bytes | None) -> bytes:
        key = draw(self, other, box)
        own, public = self._own.mask_key, self._public[other].mask
        bare = [bytes(32), b""]
        if box is not None:
            try:
                open_pair_secret(self._session, own, self.client, other, public, box)
            except DecryptionFailed as error:
                named.append(error.peer)
                stand_ins.append(key)
                weak = [
                    pair_mask_key(self._session, own, self.client, other, public, b) for b in bare
                ]
                assert key not in weak
        return key

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecAggClient, "_pair_mask_key", watch)
        try:
            values, report = damaged(damage)
        except errors.SumOutOfRange:
            pass
        else:
            assert report.failures == {}
            assert report.server.survivors == frozenset(range(6))
            assert not np.array_equal(report.server.exact_result, np.sum(values, axis=0))
    assert len(stand_ins) == (2 if damage is swap else 1)
    assert len(set(stand_ins)) == len(stand_ins)
    assert set(named) == {SENDER}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_pair_secret_that_does_not_open_for_a_dropout_ends_the_round_with_its_sender_named(
    damage: Damage,
) -> None:
    graph = session(6, threshold=4, min_survivors=5).graph
    gone = [v for v in graph.neighbours(SENDER) if graph.first(SENDER, v)][-1]
    with pytest.raises(errors.ReconstructionFailed, match=f"client {SENDER} sealed"):
        damaged(damage, drops={gone: Stage.MASKED})


def test_pair_secret_is_one_from_either_side_and_another_for_every_pair() -> None:
    parameters = session(5)
    made = [HybridKey(bytes([u + 1]) * 32) for u in range(5)]
    found = {}
    for u in range(5):
        for v in parameters.graph.neighbours(u):
            if not parameters.graph.first(u, v):
                continue
            box = secagg.boxes.seal_pair_secret(parameters, made[u], u, v, made[v].public)
            opened = open_pair_secret(parameters, made[v], v, u, made[u].public, box)
            assert opened == pair_secret(parameters, made[u], u, v)
            found[u, v] = opened
    assert len(found) == len(set(found.values())) == 10


@pytest.mark.parametrize(("clients", "neighbours"), [(5, 4), (6, 5), (8, 4), (8, 5), (9, 8)])
def test_first_is_one_of_each_pair_and_everybody_half_as_often_as_it_has_neighbours(
    clients: int, neighbours: int
) -> None:
    graph = session(clients, neighbours=neighbours).graph
    for u in range(clients):
        others = graph.neighbours(u)
        assert all(graph.first(u, v) is not graph.first(v, u) for v in others)
        assert abs(2 * sum(graph.first(u, v) for v in others) - neighbours) <= neighbours % 2
