"""Every stage with every fault, both ways: each ends in its own error or in survival, and the sum stays exact."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

import secagg.client
from secagg import errors, wire
from secagg.client import Awaits, SecAggClient
from secagg.errors import SecAggError
from secagg.graph import Adversary, Graph, ThreatModel, choose
from secagg.masks import pack, unpack
from secagg.noise import server_noise
from secagg.parameters import ClientPolicy, Parameters, roster_digest
from secagg.server import SecAggServer, Stage
from secagg.simulation import policy_for, run_round
from secagg.wire import Kind
from tests.secagg.support import exact_sum, identities, rewritten, seeded, session, vectors

VICTIM, OTHER, CLIENTS = 2, 3, 8
KEYS_BYTES = 2 * (32 + 1184)
UP = [Kind.ADVERTISE, Kind.SHARES, Kind.MASKED, Kind.SIGNATURE, Kind.REVEAL]
DOWN = [Kind.ANNOUNCE, Kind.KEYS, Kind.INBOX, Kind.SURVIVORS, Kind.SIGNATURES, Kind.FINISHED]


@dataclass
class Network:
    """Delivers all messages in order; ``fault`` rewrites those of one kind to or from the victim."""

    parameters: Parameters
    fault_kind: Kind | None = None
    fault: Callable[["Network", bytes], list[bytes]] = lambda _, message: [message]
    label: str = "network"
    policy: ClientPolicy | None = None
    at_server: list[SecAggError] = field(default_factory=list)
    at_client: list[tuple[int, SecAggError]] = field(default_factory=list)
    late: list[bytes] = field(default_factory=list)
    seen: dict[tuple[int, Kind], bytes] = field(default_factory=dict)

    def run(self) -> "Network":
        people = identities(CLIENTS) if self.parameters.signed else None
        roster = None if people is None else [person.public for person in people]
        self.values = vectors(self.parameters)
        self.clients = [
            SecAggClient(
                u,
                self.values[u],
                self.policy or policy_for(self.parameters),
                identity=None if people is None else people[u],
                roster=roster,
                random_bytes=seeded(f"{self.label} {u}"),
            )
            for u in range(CLIENTS)
        ]
        self.server = SecAggServer(self.parameters, roster=roster)
        queue = [(u, m, True) for u, m in self.server.start()]
        for _ in range(2000):
            if queue:
                # The victim's come last, so that what is late is late.
                queue.sort(key=lambda item: item[0] == VICTIM)
                queue += self.deliver(*queue.pop(0))
                continue
            if not self.server.over:
                queue = [(u, m, True) for u, m in self.server.close_stage()]
            late, self.late = self.late, []
            for message in late:
                down = wire.open_envelope(message, 1 << 20).sender == wire.SERVER
                queue += self.hand_over(VICTIM, message, down)
            if self.server.over and not queue:
                return self
        raise AssertionError("the round does not end")

    def deliver(self, u: int, message: bytes, down: bool) -> list[tuple[int, bytes, bool]]:
        kind = wire.open_envelope(message, 1 << 20).kind
        arriving = [message]
        if u == VICTIM and kind is self.fault_kind:
            arriving = self.fault(self, message)
        self.seen[u, kind] = message
        answers = []
        for item in arriving:
            answers += self.hand_over(u, item, down)
        return answers

    def hand_over(self, u: int, message: bytes, down: bool) -> list[tuple[int, bytes, bool]]:
        try:
            if down:
                answer = self.clients[u].receive(message)
                return [] if answer is None else [(u, answer, False)]
            return [(v, m, True) for v, m in self.server.receive(u, message)]
        except SecAggError as error:
            if self.server.stage is Stage.ABORTED:
                raise
            if down:
                self.at_client.append((u, error))
            else:
                self.at_server.append(error)
            return []

    def check(
        self, *, victim_in: bool, client: type | None = None, server: type | None = None
    ) -> None:
        """The sum is exact over the right survivors, and exactly the expected errors were raised."""
        everybody = frozenset(range(CLIENTS))
        assert self.server.survivors == (everybody if victim_in else everybody - {VICTIM})
        expected = exact_sum(self.values, self.server.survivors)
        assert np.array_equal(self.server.exact_result, expected)
        assert [(u, type(e)) for u, e in self.at_client] == ([(VICTIM, client)] if client else [])
        assert [type(e) for e in self.at_server] == ([server] if server else [])


def parameters_for(signed: bool, **changes: bytes) -> Parameters:
    return session(CLIENTS, signed, neighbours=6, threshold=4, min_survivors=6, **changes)


def delay(network: Network, message: bytes) -> list[bytes]:
    network.late.append(message)
    return []


def flip(_: Network, message: bytes) -> list[bytes]:
    spoilt = bytearray(message)
    spoilt[len(spoilt) // 2] ^= 0x10
    return [bytes(spoilt)]


def foreign(network: Network, message: bytes) -> list[bytes]:
    """Another client's message in the victim's channel; then the right message."""
    kind = wire.open_envelope(message, 1 << 20).kind
    return [network.seen[OTHER, kind], message]


def other_session(network: Network, message: bytes) -> list[bytes]:
    """The same stage's message of an earlier session of the same people; then the right one."""
    kind = wire.open_envelope(message, 1 << 20).kind
    changed = {"session": bytes(32), "graph_seed": network.parameters.graph_seed}
    fields = {**vars(network.parameters), **changed}
    earlier = Parameters(
        **{k: v for k, v in fields.items() if k in Parameters.__dataclass_fields__}
    )
    return [Network(earlier, label="earlier").run().seen[VICTIM, kind], message]


def replay(network: Network, message: bytes) -> list[bytes]:
    """The victim's own message of the stage before; then the right one."""
    kind = wire.open_envelope(message, 1 << 20).kind
    order = UP if kind in UP else DOWN
    before = [k for k in order if k < kind and (VICTIM, k) in network.seen]
    return [network.seen[VICTIM, before[-1]], message]


FAULTS: dict[
    str, tuple[Callable[[Network, bytes], list[bytes]], type | None, type | None, bool]
] = {
    # name: what arrives, the server's error, the client's error, whether the victim can go on
    "drop": (lambda _, m: [], None, None, False),
    "delay": (delay, errors.LateMessage, None, False),
    "duplicate": (lambda _, m: [m, m], errors.DuplicateMessage, errors.DuplicateMessage, True),
    "replay": (replay, errors.DuplicateMessage, errors.DuplicateMessage, True),
    "other_session": (other_session, errors.ForeignMessage, errors.ForeignMessage, True),
    "foreign": (foreign, errors.ForeignMessage, errors.ForeignMessage, True),
    "flip": (flip, errors.MalformedMessage, errors.MalformedMessage, False),
    "truncate": (lambda _, m: [m[:-1]], errors.MalformedMessage, errors.MalformedMessage, False),
    "append": (lambda _, m: [m + b"\0"], errors.MalformedMessage, errors.MalformedMessage, False),
}


def cases(kinds: list[Kind]) -> list[tuple[bool, Kind, str]]:
    """All pairs of stage and fault; unsigned sessions have no signatures, and nothing precedes the first message."""
    return [
        (signed, kind, fault)
        for signed in (False, True)
        for kind in kinds
        for fault in FAULTS
        if (signed or kind not in (Kind.SIGNATURE, Kind.SIGNATURES))
        and not (fault == "replay" and kind is kinds[0])
    ]


@pytest.mark.parametrize(("signed", "kind", "fault"), cases(UP))
def test_server_meets_every_fault_at_every_stage(signed: bool, kind: Kind, fault: str) -> None:
    arriving, error, _, heals = FAULTS[fault]
    network = Network(parameters_for(signed), kind, arriving).run()
    network.check(victim_in=heals or kind > Kind.MASKED, server=error)
    assert all(e.peer == VICTIM and e.stage for e in network.at_server)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("signed", "kind", "fault"), cases(DOWN))
def test_client_meets_every_fault_at_every_stage(signed: bool, kind: Kind, fault: str) -> None:
    arriving, _, error, heals = FAULTS[fault]
    late: type | None = None
    if fault == "delay" and kind is not Kind.FINISHED:
        # The client answers after its stage: its answer is the late one.
        late = errors.LateMessage
    ends = False
    if fault == "duplicate" and kind is Kind.FINISHED:
        error = errors.UnexpectedMessage
    elif fault == "other_session" and kind is Kind.ANNOUNCE:
        # An announcement is what makes a session: the policy has the right one's id.
        error, heals, ends = errors.ParametersRefused, False, True
    elif (fault == "duplicate" and kind is Kind.SURVIVORS) or (
        fault == "replay" and kind > Kind.SURVIVORS and (kind is Kind.SIGNATURES or not signed)
    ):
        # Survivors once more end the client; what it had revealed by then counts.
        error, ends = errors.SecondRequest, True
    network = Network(parameters_for(signed), kind, arriving).run()
    if ends:
        # The right message that follows finds a client that has ended.
        assert [type(e) for _, e in network.at_client] == [error, errors.UnexpectedMessage]
        network.at_client.pop()
    network.check(victim_in=heals or kind >= Kind.SURVIVORS, client=error, server=late)
    if fault in ("flip", "truncate", "append"):
        # What cannot be read changes nothing.
        assert network.clients[VICTIM].awaits.value == kind


def bent(offset: int) -> Callable[[Network, bytes], list[bytes]]:
    """One byte of the body changed, with a right checksum: what the other end itself can do."""

    def fault(_: Network, message: bytes) -> list[bytes]:
        body = bytearray(wire.open_envelope(message, 1 << 20).body)
        body[offset] ^= 1
        return [rewritten(message, body=bytes(body))]

    return fault


@pytest.mark.parametrize(
    ("kind", "offset", "server", "clients", "victim_in"),
    [
        (Kind.ADVERTISE, 0, errors.BadSignature, [], False),
        (Kind.ADVERTISE, 40, errors.BadSignature, [], False),
        (Kind.ADVERTISE, 100, errors.BadSignature, [], False),
        # A damaged box of either part: its holder goes on without that share, and nobody drops out for it.
        (Kind.SHARES, 32 + 4 + 4, None, [], True),
        (Kind.SHARES, 32 + 4 + 4 + 1088, None, [], True),
        (Kind.SHARES, 32 + 3, errors.MalformedMessage, [], False),
        (Kind.SIGNATURE, 5, errors.BadSignature, [], True),
        # What is revealed is in a box: the fresh key, the encapsulation, the content.
        (Kind.REVEAL, 9, errors.MalformedMessage, [], True),
        (Kind.REVEAL, 32 + 9, errors.MalformedMessage, [], True),
        (Kind.REVEAL, 32 + 1088 + 9, errors.MalformedMessage, [], True),
        (Kind.ANNOUNCE, 60, None, [errors.ParametersRefused], False),
        (Kind.KEYS, 10, None, [errors.BadSignature], False),
        (Kind.KEYS, 7, None, [errors.MalformedMessage], False),
        (Kind.INBOX, 20, None, [], True),
        # Another list: the victim signs what it was shown, and the server sees that it is not what it sent.
        (Kind.SURVIVORS, 0, errors.BadSignature, [], True),
        (Kind.SIGNATURES, 20, None, [errors.BadSignature], True),
    ],
)
def test_round_survives_bodies_changed_by_a_peer(
    kind: Kind, offset: int, server: type | None, clients: list[type], victim_in: bool
) -> None:
    network = Network(parameters_for(True), kind, bent(offset)).run()
    assert (VICTIM in network.server.survivors) is victim_in
    expected = exact_sum(network.values, network.server.survivors)
    assert np.array_equal(network.server.exact_result, expected)
    assert [type(e) for e in network.at_server] == ([server] if server else [])
    assert [type(e) for _, e in network.at_client] == clients


def lying(
    patch: pytest.MonkeyPatch, liar: int, lie: Callable[[dict[int, wire.Revealed]], None]
) -> None:
    """A client that reveals something else, sealed as it has to be."""
    seal = secagg.client.seal_revealed

    def seal_other(parameters: Parameters, client: int, content: bytes, *rest: Any) -> bytes:
        if client == liar:
            shares = wire.decode_revealed(content, parameters.graph.neighbours(client))
            lie(shares)
            content = wire.encode_revealed(shares)
        return seal(parameters, client, content, *rest)

    patch.setattr(secagg.client, "seal_revealed", seal_other)


def test_server_refuses_a_share_of_the_other_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def swap(shares: dict[int, wire.Revealed]) -> None:
        first = next(iter(shares))
        shares[first] = replace(shares[first], key=not shares[first].key)

    lying(monkeypatch, VICTIM, swap)
    Network(parameters_for(True)).run().check(victim_in=True, server=errors.MalformedMessage)


@pytest.mark.parametrize("liar", range(CLIENTS))
def test_server_finds_good_shares_around_any_one_liar(
    monkeypatch: pytest.MonkeyPatch, liar: int
) -> None:
    # Five of seven: a run of five in the order of ids would always have the one in the middle.
    parameters = session(CLIENTS, threshold=5, min_survivors=6)
    values = vectors(parameters)

    def lie(shares: dict[int, wire.Revealed]) -> None:
        shares.update({v: wire.Revealed(share.key, bytes(32)) for v, share in shares.items()})

    lying(monkeypatch, liar, lie)
    report = run_round(parameters, values, drops={(liar + 1) % CLIENTS: Stage.MASKED})
    assert np.array_equal(report.server.exact_result, exact_sum(values, report.server.survivors))


def test_server_refuses_a_commitment_that_no_shares_fit() -> None:
    with pytest.raises(errors.ReconstructionFailed, match="client 2"):
        Network(parameters_for(True), Kind.SHARES, bent(3)).run()


def decoded_shares(graph: Graph, client: int, body: bytes) -> tuple[bytes, wire.Boxes]:
    """A SHARES' body of a session in which everybody advertised keys."""
    neighbours = graph.neighbours(client)
    return wire.decode_shares(body, neighbours, [v for v in neighbours if graph.first(client, v)])


@pytest.mark.parametrize("signed", [False, True])
def test_clients_that_send_damaged_shares_choose_nobody_who_drops_out(signed: bool) -> None:
    """Two of twenty spoil what they seal to their honest neighbours: all survive, and the sum is right."""
    parameters = session(20, signed, neighbours=8, threshold=5, min_survivors=18)
    values, graph, spoilers = vectors(parameters), parameters.graph, (0, 1)

    def spoil(client: int, message: bytes) -> list[bytes]:
        envelope = wire.open_envelope(message, 1 << 20)
        if client not in spoilers or envelope.kind is not Kind.SHARES:
            return [message]
        commitment, boxes = decoded_shares(graph, client, envelope.body)
        # Enough stay whole for the spoiler's own secret.
        for v in [v for v in boxes.shares if v not in spoilers][:3]:
            boxes.shares[v] = bytes(wire.CIPHERTEXT_BYTES)
        return [rewritten(message, body=wire.encode_shares(commitment, boxes))]

    people = identities(20) if signed else None
    report = run_round(parameters, values, tamper=spoil, identities=people)
    assert report.failures == {}
    assert report.server.survivors == frozenset(range(20))
    assert np.array_equal(report.server.exact_result, exact_sum(values, range(20)))


@pytest.mark.parametrize(
    "key",
    ["another's", "its own", "another's half", "its own half", "small order", "no ML-KEM key"],
)
def test_server_passes_on_no_key_that_would_make_neighbours_leave(key: str) -> None:
    parameters = session(6, threshold=3, min_survivors=5)
    values, first = vectors(parameters), {}

    def spoil(client: int, message: bytes) -> list[bytes]:
        envelope = wire.open_envelope(message, 1 << 20)
        if envelope.kind is not Kind.ADVERTISE:
            return [message]
        own = wire.decode_keys(envelope.body, signed=False)
        first.setdefault("keys", own)
        if client != 4:
            return [message]
        mask = {
            "another's": first["keys"].cipher,
            "its own": own.cipher,
            "another's half": own.mask[:32] + first["keys"].mask[32:],
            "its own half": own.cipher[:32] + own.mask[32:],
            "small order": bytes(32) + own.mask[32:],
            "no ML-KEM key": own.mask[:32] + b"\xff" * 1184,
        }[key]
        return [rewritten(message, body=wire.encode_keys(replace(own, mask=mask)))]

    report = run_round(parameters, values, tamper=spoil)
    assert report.server.survivors == frozenset({0, 1, 2, 3, 5})
    assert type(report.failures[4]) is errors.ProtocolViolation
    assert set(report.failures) == {4}
    assert np.array_equal(report.server.exact_result, exact_sum(values, report.server.survivors))


def outcome_with(element: int, *, noisy: bool, clients: int = 5) -> bool:
    """Returns True if there is a sum, though one client of the session sends a ring element of its own choice."""
    noise = {"noise": server_noise(20.0)} if noisy else {}
    parameters = session(clients, threshold=3, min_survivors=4, length=1, high=1000, **noise)
    honest = [np.array([value]) for value in (17, 40, 3, 90)]

    def send(client: int, message: bytes) -> list[bytes]:
        envelope = wire.open_envelope(message, 1 << 20)
        if client != 4 or envelope.kind is not Kind.MASKED:
            return [message]
        masked = unpack(envelope.body, 1, parameters.bits) + np.uint32(element % 2**32)
        return [rewritten(message, body=pack(masked, parameters.bits))]

    margin, span = parameters.encoding.margin, parameters.encoding.span
    element += span + margin
    try:
        run_round(parameters, [*honest, np.array([0])], tamper=send)
    except errors.SumOutOfRange:
        return False
    return True


def test_whether_a_sum_is_out_of_range_says_no_more_than_the_noisy_sum() -> None:
    """The honest sum is 150; a malicious client asks whether it is above 149."""
    assert not any(outcome_with(-149, noisy=False) for _ in range(5))
    assert all(outcome_with(-150, noisy=False) for _ in range(5))
    # With noise of deviation 20 the answer is a coin's: fewer than 6 or more than 34 of 40 once in 10^6 runs.
    for threshold in (149, 150):
        there = sum(outcome_with(-threshold, noisy=True) for _ in range(40))
        assert 6 <= there <= 34


def test_noise_of_the_server_has_room_in_the_ring() -> None:
    """A sum of 0 to 3 with noise of deviation 50: 1,000 samples, five deviations of their variance."""
    parameters = session(3, length=1000, high=1, min_survivors=3, noise=server_noise(50.0))
    report = run_round(parameters, [np.ones(1000, np.int64)] * 3)
    noise = report.server.scaled_result - 3
    assert abs(float((noise**2).mean()) / 2500 - 1) < 5 * (2 / 1000) ** 0.5


def answered(signed: bool) -> tuple[Network, SecAggClient, bytes]:
    """A client that has answered a survivor list, and that list."""
    kind = Kind.SIGNATURES if signed else Kind.FINISHED
    network = Network(parameters_for(signed), kind, lambda _, m: []).run()
    return network, network.clients[VICTIM], network.seen[VICTIM, Kind.SURVIVORS]


@pytest.mark.parametrize("signed", [False, True])
def test_client_refuses_to_give_both_secrets_of_a_neighbour(signed: bool) -> None:
    network, client, first = answered(signed)
    alive = wire.decode_survivors(wire.open_envelope(first, 999).body, CLIENTS)
    neighbour = network.parameters.graph.neighbours(VICTIM)[0]
    alive[neighbour] = False
    second = rewritten(first, body=wire.encode_survivors(alive))
    with pytest.raises(errors.BothSecretsRequest, match=f"client {neighbour} "):
        client.receive(second)
    assert client.awaits is Awaits.NOTHING
    # Not even the rest of the round works after that.
    with pytest.raises(errors.SecondRequest):
        client.receive(first)


@pytest.mark.parametrize("signed", [False, True])
def test_client_refuses_a_second_request_whatever_it_asks(signed: bool) -> None:
    network, client, first = answered(signed)
    stranger = next(
        v for v in range(CLIENTS) if v not in {VICTIM, *network.parameters.graph.neighbours(VICTIM)}
    )
    alive = wire.decode_survivors(wire.open_envelope(first, 999).body, CLIENTS)
    alive[stranger] = False
    with pytest.raises(errors.SecondRequest) as caught:
        client.receive(rewritten(first, body=wire.encode_survivors(alive)))
    assert type(caught.value) is errors.SecondRequest
    assert client.awaits is Awaits.NOTHING


def survivors_with(changes: dict[int, bool]) -> Callable[[Network, bytes], list[bytes]]:
    def fault(_: Network, message: bytes) -> list[bytes]:
        alive = wire.decode_survivors(wire.open_envelope(message, 999).body, CLIENTS)
        for client, value in changes.items():
            alive[client] = value
        return [rewritten(message, body=wire.encode_survivors(alive))]

    return fault


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({VICTIM: False}, errors.InconsistentSurvivors),
        (dict.fromkeys([0, 1, 3], False), errors.TooFewSurvivors),
    ],
)
@pytest.mark.parametrize("signed", [False, True])
def test_client_reveals_nothing_for_an_impossible_survivor_list(
    signed: bool, changes: dict[int, bool], error: type
) -> None:
    network = Network(parameters_for(signed), Kind.SURVIVORS, survivors_with(changes)).run()
    assert [(u, type(e)) for u, e in network.at_client] == [(VICTIM, error)]
    assert (VICTIM, Kind.REVEAL) not in network.seen


@pytest.mark.parametrize("signed", [False, True])
def test_client_refuses_survivors_that_never_shared(signed: bool) -> None:
    parameters = parameters_for(signed)
    gone = parameters.graph.neighbours(VICTIM)[0]

    class Silent(Network):
        def deliver(self, u: int, message: bytes, down: bool) -> list[tuple[int, bytes, bool]]:
            return [] if u == gone else super().deliver(u, message, down)

    network = Silent(parameters, Kind.SURVIVORS, survivors_with({gone: True})).run()
    assert [type(e) for _, e in network.at_client] == [errors.InconsistentSurvivors]


def test_clients_reveal_nothing_where_their_neighbours_signed_another_list() -> None:
    # A lying server: half of the clients are told that client 0 survived, half that it did not.
    class Liar(Network):
        def deliver(self, u: int, message: bytes, down: bool) -> list[tuple[int, bytes, bool]]:
            if down and u >= 4 and wire.open_envelope(message, 1 << 20).kind is Kind.SURVIVORS:
                message = survivors_with({0: False})(self, message)[0]
            return super().deliver(u, message, down)

        def hand_over(self, u: int, message: bytes, down: bool) -> list[tuple[int, bytes, bool]]:
            if not down and wire.open_envelope(message, 1 << 20).kind is Kind.SIGNATURE:
                # Whatever is signed is passed on, as a liar would.
                self.server._signatures[u] = wire.open_envelope(message, 1 << 20).body
                self.server._answered.add(u)
                closing = self.server.close_stage() if not self.server.waiting else []
                return [(v, m, True) for v, m in closing]
            return super().hand_over(u, message, down)

    parameters = session(CLIENTS, True, threshold=5, min_survivors=6)
    network = Liar(parameters)
    with pytest.raises(errors.TooFewShares):
        network.run()
    assert len(network.at_client) == CLIENTS
    # Those told that client 0 is gone also see a signature from it, which has no place there.
    assert {type(e) for _, e in network.at_client} <= {errors.BadSignature, errors.MalformedMessage}
    assert not any(kind is Kind.REVEAL for _, kind in network.seen)


@pytest.mark.parametrize(
    "threat",
    [ThreatModel(0.3, 0.1, security_bits=40), ThreatModel(0.05, 0.1, Adversary.MALICIOUS)],
)
@pytest.mark.parametrize("signed", [False, True])
def test_client_refuses_a_graph_too_weak_for_its_threat_model(
    threat: ThreatModel, signed: bool
) -> None:
    roster = [person.public for person in identities(100)] if signed else None
    changes = {"threshold": 12} if signed else {"threshold": 6}
    parameters = session(100, signed, neighbours=20, min_survivors=90, **changes)
    accepted = policy_for(parameters)
    fields = {name: getattr(accepted, name) for name in ClientPolicy.__slots__}
    alone = threat.adversary is Adversary.MALICIOUS and not signed
    with pytest.raises(errors.ParametersRefused, match="signatures" if alone else "bits"):
        ClientPolicy(**{**fields, "threat": threat}).check(parameters, roster)
    strong_threat = ThreatModel(adversary=Adversary.MALICIOUS if signed else Adversary.SEMI_HONEST)
    neighbours, threshold = choose(100, strong_threat)
    strong = session(100, signed, neighbours=neighbours, threshold=threshold, min_survivors=90)
    policy = {**fields, "min_neighbours": neighbours, "threat": strong_threat}
    ClientPolicy(**policy).check(strong, roster)
    # The graph was chosen for 33 dropouts; a malicious server chooses them anyway.
    fewer = {**policy, "min_survivors": 66}
    ClientPolicy(**fewer).check(replace(strong, min_survivors=67), roster)
    if signed:
        ClientPolicy(**fewer).check(replace(strong, min_survivors=66), roster)
    else:
        with pytest.raises(errors.ParametersRefused, match="survivors on a sparse graph"):
            ClientPolicy(**fewer).check(replace(strong, min_survivors=66), roster)


def test_client_refuses_a_signed_sparse_graph_of_the_servers_choice() -> None:
    parameters = parameters_for(True)
    accepted = policy_for(parameters)
    fields = {name: getattr(accepted, name) for name in ClientPolicy.__slots__}
    roster = [person.public for person in identities(CLIENTS)]
    accepted.check(parameters, roster)
    with pytest.raises(errors.ParametersRefused, match="own choice"):
        ClientPolicy(**{**fields, "graph_seed": None}).check(parameters, roster)
    # With any of the three to choose from, a server tries until it likes the graph.
    for free in ({"session": None}, {"min_neighbours": 5}):
        with pytest.raises(errors.ParametersRefused, match="own choice"):
            ClientPolicy(**{**fields, **free}).check(parameters, roster)
    larger = [*roster, roster[0]]
    asked = parameters_for(True, roster_digest=roster_digest(larger))
    with pytest.raises(errors.ParametersRefused, match="9 of the roster"):
        accepted.check(asked, larger)
    for other in (None, roster[::-1]):
        with pytest.raises(errors.ParametersRefused, match="roster"):
            accepted.check(parameters, other)


def test_client_refuses_public_keys_that_repeat_or_have_small_order() -> None:
    def with_keys(
        keys: Callable[[dict[int, bytes]], None],
    ) -> Callable[[Network, bytes], list[bytes]]:
        def fault(network: Network, message: bytes) -> list[bytes]:
            neighbours = network.parameters.graph.neighbours(VICTIM)
            body = wire.open_envelope(message, 1 << 20).body
            entries = wire.decode_list(body, KEYS_BYTES, neighbours)
            keys(entries)
            return [rewritten(message, body=wire.encode_list(entries))]

        return fault

    def repeat(entries: dict[int, bytes]) -> None:
        first, second, *_ = entries
        entries[first] = entries[second]

    def small(entries: dict[int, bytes]) -> None:
        first = next(iter(entries))
        entries[first] = bytes(32) + entries[first][32:]

    def repeat_half(entries: dict[int, bytes]) -> None:
        first, second, *_ = entries
        entries[first] = entries[first][:32] + entries[second][32:]

    def no_kem(entries: dict[int, bytes]) -> None:
        first = next(iter(entries))
        entries[first] = entries[first][:32] + b"\xff" * 1184 + entries[first][1216:]

    for change in (repeat, repeat_half, small, no_kem):
        network = Network(parameters_for(False), Kind.KEYS, with_keys(change)).run()
        assert [type(e) for _, e in network.at_client] == [errors.ProtocolViolation]


def test_server_drop_counts_what_was_sent_and_waits_no_longer() -> None:
    parameters = parameters_for(False)
    values = vectors(parameters)
    clients = [SecAggClient(u, values[u], policy_for(parameters)) for u in range(CLIENTS)]
    server = SecAggServer(parameters)
    queue = list(server.start())
    gone = False
    while queue:
        u, message = queue.pop(0)
        answer = clients[u].receive(message)
        if answer is not None:
            queue += server.receive(u, answer)
        if u == VICTIM and server.stage is Stage.MASKED and not gone:
            gone = True
            queue += server.drop(VICTIM)
    assert server.stage is Stage.DONE
    assert VICTIM in server.survivors
    assert np.array_equal(server.exact_result, exact_sum(values, server.survivors))


def test_farewell_ends_the_round_and_tells_everybody_why() -> None:
    parameters = parameters_for(False)
    values = vectors(parameters)
    clients = [SecAggClient(u, values[u], policy_for(parameters)) for u in range(CLIENTS)]
    server = SecAggServer(parameters)
    for u, message in server.start():
        clients[u].receive(message)
    for u, message in server.farewell("maintenance\x1b[2J"):
        with pytest.raises(errors.PeerAborted, match=r"maintenance\?\[2J"):
            clients[u].receive(message)
    assert server.over
    with pytest.raises(ValueError, match="no sum"):
        _ = server.result


def test_printing_a_client_or_a_key_shows_no_secret() -> None:
    network = Network(parameters_for(True), Kind.FINISHED, lambda _, m: []).run()
    text = repr(network.clients[0]) + repr(identities(1)[0])
    assert "awaits" in text
    assert len(text) < 120
    share = wire.Revealed(True, b"\xab" * 32)
    envelope = wire.open_envelope(network.seen[VICTIM, Kind.REVEAL], 1 << 20)
    for item in (share, envelope):
        assert "\\x" not in repr(item).replace(repr(envelope.session), "")


def test_client_forgets_its_own_secrets_with_the_masked_vector_and_shares_when_revealed() -> None:
    network = Network(parameters_for(True), Kind.SURVIVORS, lambda _, m: [])

    def kept(client: SecAggClient) -> list[object]:
        return [client._secrets, *client._public, *client._values.tolist(), *client._shares]  # type: ignore[union-attr]

    network.run()
    stopped, finished = network.clients[VICTIM], network.clients[OTHER]
    assert stopped.awaits is Awaits.SURVIVORS
    assert kept(stopped) == [None, *stopped._shares]
    assert len(stopped._shares) == 6
    assert kept(finished) == [None]


@pytest.mark.parametrize("passed_on", [0, 3, 4])
def test_client_reveals_only_after_a_threshold_of_signatures(passed_on: int) -> None:
    def withhold(network: Network, message: bytes) -> list[bytes]:
        witnesses = network.parameters.graph.witnesses
        entries = wire.decode_list(wire.open_envelope(message, 9999).body, 64, witnesses)
        kept = dict(list(entries.items())[:passed_on])
        return [rewritten(message, body=wire.encode_list(kept))]

    network = Network(parameters_for(True), Kind.SIGNATURES, withhold).run()
    revealed = (VICTIM, Kind.REVEAL) in network.seen
    assert revealed is (passed_on >= network.parameters.threshold)
    expected = [] if revealed else [errors.InconsistentSurvivors]
    assert [type(e) for _, e in network.at_client] == expected


def decoded_inbox(graph: Graph, client: int, body: bytes) -> wire.Boxes:
    neighbours = graph.neighbours(client)
    return wire.decode_inbox(body, neighbours, [v for v in neighbours if graph.first(v, client)])


def shortened(to: int) -> Callable[[Network, bytes], list[bytes]]:
    """A list of keys, or an inbox, with its first ``to`` entries only."""

    def fault(network: Network, message: bytes) -> list[bytes]:
        envelope = wire.open_envelope(message, 1 << 20)
        body = envelope.body
        if envelope.kind is Kind.INBOX:
            boxes = decoded_inbox(network.parameters.graph, VICTIM, body)
            kept = list(boxes.shares)[:to]
            fewer = wire.Boxes(
                {v: boxes.shares[v] for v in kept},
                {v: box for v, box in boxes.secrets.items() if v in kept},
            )
            return [rewritten(message, body=wire.encode_inbox(fewer))]
        size = (len(body) - 4) // int.from_bytes(body[:4], "big")
        return [rewritten(message, body=to.to_bytes(4, "big") + body[4 : 4 + to * size])]

    return fault


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("kind", "silent"), [(Kind.KEYS, Kind.SHARES), (Kind.INBOX, Kind.MASKED)])
@pytest.mark.parametrize("missing", [0, 1])
def test_client_goes_on_with_a_threshold_of_neighbours_only(
    signed: bool, kind: Kind, silent: Kind, missing: int
) -> None:
    parameters = parameters_for(signed)
    network = Network(parameters, kind, shortened(parameters.threshold - missing))
    # Masks that the server does not know of may leave no sum.
    with suppress(errors.RoundAborted):
        network.run()
    refused = [u for u, error in network.at_client if type(error) is errors.TooFewNeighbours]
    assert refused == [VICTIM] * missing
    assert ((VICTIM, silent) in network.seen) is not bool(missing)


@pytest.mark.parametrize("signed", [False, True])
def test_client_reveals_nothing_where_too_few_neighbours_survive(signed: bool) -> None:
    parameters = replace(parameters_for(signed), min_survivors=5)
    neighbours = parameters.graph.neighbours(VICTIM)
    changes = dict.fromkeys(neighbours[parameters.threshold - 1 :], False)
    assert CLIENTS - len(changes) >= parameters.min_survivors
    network = Network(parameters, Kind.SURVIVORS, survivors_with(changes)).run()
    assert [(u, type(e)) for u, e in network.at_client] == [(VICTIM, errors.TooFewNeighbours)]
    assert (VICTIM, Kind.REVEAL) not in network.seen


def test_client_takes_messages_of_the_server_to_itself_alone() -> None:
    network = Network(parameters_for(False), Kind.ANNOUNCE, lambda _, m: []).run()
    client, announce = network.clients[VICTIM], network.seen[VICTIM, Kind.ANNOUNCE]
    for change in ({"sender": OTHER}, {"recipient": OTHER}):
        with pytest.raises(errors.ForeignMessage):
            client.receive(rewritten(announce, **change))
        assert client.awaits is Awaits.ANNOUNCE
    assert client.receive(announce) is not None


@pytest.mark.parametrize("signed", [False, True])
def test_shares_are_gone_once_revealed_and_recovered_secrets_once_used(signed: bool) -> None:
    network = Network(parameters_for(signed), Kind.FINISHED, lambda _, m: []).run()
    client, server = network.clients[VICTIM], network.server
    assert client.awaits is Awaits.FINISHED
    assert (client._secrets, client._shares) == (None, {})
    assert server.stage is Stage.DONE
    assert (server._revealed, server._signatures, server._total.size) == ({}, {}, 0)
