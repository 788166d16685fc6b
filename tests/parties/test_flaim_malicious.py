"""Sums of FLAIM against a server that may do anything: it invents clients, shows two rosters or two lists, drops many.

Honest clients are `FlaimClientSession`s; the server is this file. Each attack has a control, the same against a
semi-honest configuration, in which it succeeds.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.flaim_client import FlaimClient
from mechanisms.flaim_messages import Layout
from parties.config import CertificateFiles, Config
from parties.federation.client import ParticipantReport
from parties.federation.key_directory import (
    ClientKeyDirectory,
    OwnClientKey,
    SignedClientKey,
    pack_client_keys,
    pack_members,
    session_id,
    unpack_client_keys,
)
from parties.federation.messages import FederationMessage, MessageKind, pack_task, unpack_reason
from parties.federation.sum_parameters import is_malicious
from parties.foundation.errors import ConfigError, FederationProtocolError
from parties.identity.signing import Issuer
from parties.identity.tls import make_certificates, pinned_key_in
from parties.methods.flaim.client import FlaimClientSession
from parties.methods.flaim.settings import flaim_sum, settings_of
from parties.session.study import Study
from parties.storage.database import Database
from parties.storage.privacy_ledger import LEDGER, DurableLedger
from secagg import Parameters, SecAggServer, wire
from secagg.boxes import open_revealed
from secagg.client import SecAggClient
from secagg.errors import ProtocolViolation
from secagg.keys import HybridKey, Identity
from secagg.wire import Envelope, Kind
from tests.parties.flaim_support import (
    MALICIOUS,
    NAMES,
    SERVER,
    codes_of,
    flaim_config,
    leaving,
    play,
)
from tests.protocols.transcripts import verified_records

Certificates = dict[str, CertificateFiles]
COUNT = len(NAMES)
STAGES = (
    "flaim.roster",
    "flaim.members",
    "secagg.keys",
    "secagg.inbox",
    "secagg.survivors",
    "secagg.signatures",
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("flaim-certs"), [SERVER], [*NAMES, "stranger"])


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Of the same names, by another authority: the lying server's own."""
    return make_certificates(tmp_path_factory.mktemp("other-certs"), [SERVER], NAMES)


class Clients:
    """Honest clients, by number, before the first sums; the test is their server."""

    def __init__(self, config: Config, certificates: Certificates, folder: Path) -> None:
        self.config, self.workload = config, config.build_workload()
        self.settings, self.stack = settings_of(config), ExitStack()
        self.own: dict[int, OwnClientKey] = {}
        self.sessions: dict[int, FlaimClientSession] = {}
        self.ledgers: dict[int, DurableLedger] = {}
        self.layout = Layout(0, 0, COUNT, self.settings.schedule(3).sigma, True, ())
        for number, name in enumerate(NAMES):
            database = self.stack.enter_context(Database(folder / name, config.digest(), LEDGER))
            self.ledgers[number] = DurableLedger(database, self.settings.rho)
            if is_malicious(config):
                self.own[number] = OwnClientKey.make(config, certificates[name])
            client = FlaimClient(
                codes_of(number), self.workload, self.settings, random_bytes=np.random.bytes
            )
            self.sessions[number] = FlaimClientSession(
                config,
                self.workload,
                client,
                self.ledgers[number],
                server=SERVER,
                random_bytes=np.random.bytes,
                own=self.own.get(number),
            )

    @property
    def cards(self) -> dict[int, SignedClientKey]:
        return {number: own.card for number, own in self.own.items()}

    def say(self, number: int, kind: MessageKind, body: bytes) -> bytes | None:
        return self.sessions[number].receive(FederationMessage(kind, 0, body).pack())

    def ask(
        self,
        number: int,
        cards: Mapping[int, SignedClientKey],
        *,
        members: Sequence[int] = range(COUNT),
    ) -> None:
        """Up to the layout of a sum over ``members``."""
        if self.own:
            others = {k: card for k, card in cards.items() if k != number}
            for body in pack_client_keys(others):
                self.say(number, MessageKind.ROSTER, body)
            self.say(number, MessageKind.MEMBERS, pack_members(members))
        self.say(number, MessageKind.LAYOUT, pack_task(number, self.layout.encode()))

    def parameters(
        self, cards: Mapping[int, SignedClientKey]
    ) -> tuple[Parameters, list[bytes] | None]:
        noise = self.settings.sum_noise(self.layout.sigma)
        roster = [cards[number].identity for number in range(COUNT)] if self.own else None
        named = session_id(self.config, self.layout.encode(), roster) if roster else None
        parameters = flaim_sum(Study(self.config, self.workload), self.layout, noise).parameters(
            random_bytes=np.random.bytes, session=named, roster=roster
        )
        return parameters, roster

    def masked(self) -> tuple[SecAggServer, Parameters]:
        """All have sent their masked vectors, to an honest server; who survived has not been shown yet."""
        parameters, roster = self.parameters(self.cards)
        for number in self.sessions:
            self.ask(number, self.cards)
        server = SecAggServer(parameters, roster=roster)
        queue = server.start()
        while queue:
            number, message = queue.pop(0)
            if wire.open_envelope(message, 1 << 24).kind is Kind.SURVIVORS:
                continue
            answer = self.sessions[number].receive(message)
            assert answer is not None
            queue += server.receive(number, answer)
        return server, parameters

    def show(self, parameters: Parameters, number: int, alive: Sequence[bool]) -> bytes | None:
        """Answer of a client to a list of survivors."""
        body = wire.encode_survivors(np.array(alive, np.bool_))
        tag = parameters.digest[:16]
        message = wire.pack_envelope(Envelope(Kind.SURVIVORS, wire.SERVER, number, tag, body))
        return self.sessions[number].receive(message)

    def sign(
        self, parameters: Parameters, number: int, signatures: Mapping[int, bytes]
    ) -> bytes | None:
        """Answer of a client to witnesses' signatures."""
        body, tag = wire.encode_list(dict(signatures)), parameters.digest[:16]
        message = wire.pack_envelope(Envelope(Kind.SIGNATURES, wire.SERVER, number, tag, body))
        return self.sessions[number].receive(message)


@pytest.fixture
def malicious(certificates: Certificates, tmp_path: Path) -> Iterator[Clients]:
    clients = Clients(flaim_config(certificates, MALICIOUS), certificates, tmp_path)
    with clients.stack:
        yield clients


@pytest.fixture
def semi_honest(certificates: Certificates, tmp_path: Path) -> Iterator[Clients]:
    clients = Clients(flaim_config(certificates), certificates, tmp_path)
    with clients.stack:
        yield clients


def kind_of(answer: bytes | None) -> Kind | MessageKind | None:
    if answer is None:
        return None
    if answer[:4] == wire.MAGIC:
        return wire.open_envelope(answer, 1 << 24).kind
    return FederationMessage.unpack(answer, "x").kind


def body_of(answer: bytes | None) -> bytes:
    assert answer is not None
    return wire.open_envelope(answer, 1 << 24).body


def forged(
    clients: Clients, certificates: Certificates, foreign: Certificates, how: str
) -> SignedClientKey:
    """A card of client 1 that the server holds the private half of."""
    config, name = clients.config.digest(), NAMES[1]
    mine = Identity(bytes(range(32))).public
    match how:
        case "another authority's":
            return SignedClientKey.of(mine, foreign[name], config)
        case "a corrupt client's":
            return SignedClientKey.of(mine, certificates[NAMES[5]], config)
        case "a stranger's":
            return SignedClientKey.of(mine, certificates["stranger"], config)
        case "the server's":
            return SignedClientKey.of(mine, certificates[SERVER], config)
        case "its own with another key":
            own = clients.cards[1]
            return SignedClientKey(mine, own.signature, own.certificate)
        case _:
            return SignedClientKey.of(mine, certificates[name], "00" * 32)


@pytest.mark.parametrize(
    "how",
    [
        "another authority's",
        "a corrupt client's",
        "a stranger's",
        "the server's",
        "its own with another key",
        "of another run",
    ],
)
def test_client_takes_no_part_beside_a_client_that_the_server_invents(
    malicious: Clients, certificates: Certificates, foreign: Certificates, how: str
) -> None:
    cards = malicious.cards | {1: forged(malicious, certificates, foreign, how)}
    with pytest.raises(FederationProtocolError, match=f"not one of client '{NAMES[1]}'"):
        malicious.ask(0, cards)
    assert malicious.ledgers[0].spent == 0


def test_client_takes_no_part_beside_one_whose_card_it_was_not_shown(malicious: Clients) -> None:
    cards = {number: card for number, card in malicious.cards.items() if number != 3}
    with pytest.raises(FederationProtocolError, match=f"shown no card of '{NAMES[3]}'"):
        malicious.ask(0, cards)
    assert malicious.ledgers[0].spent == 0


@pytest.mark.parametrize("members", [(), (0, 1, 2, 3, 4), (1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5, 5)])
def test_client_takes_no_part_in_a_sum_over_others_than_it_was_told(
    malicious: Clients, members: tuple[int, ...]
) -> None:
    with pytest.raises(FederationProtocolError):
        malicious.ask(0, malicious.cards, members=members)
    assert malicious.ledgers[0].spent == 0


def test_client_takes_no_part_in_the_same_sum_twice(malicious: Clients) -> None:
    malicious.ask(0, malicious.cards)
    malicious.say(0, MessageKind.SKIPPED, b"")
    with pytest.raises(FederationProtocolError, match="the same sum"):
        malicious.ask(0, malicious.cards)


def test_client_signs_in_no_session_but_the_one_that_follows_from_the_sum(
    malicious: Clients,
) -> None:
    parameters, _ = malicious.parameters(malicious.cards)
    malicious.ask(0, malicious.cards)
    other = replace(parameters, session=bytes(32))
    body = wire.encode_announcement(other, HybridKey(bytes(32)).public)
    announce = Envelope(Kind.ANNOUNCE, wire.SERVER, 0, other.digest[:16], body)
    with pytest.raises(ProtocolViolation, match="session id"):
        malicious.sessions[0].receive(wire.pack_envelope(announce))


def test_server_that_invents_all_other_clients_opens_a_vector_in_the_control(
    semi_honest: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In semi-honest mode nothing tells a client whether the others are there."""
    parameters, _ = semi_honest.parameters({})
    noise = semi_honest.settings.sum_noise(semi_honest.layout.sigma)
    demanded = flaim_sum(
        Study(semi_honest.config, semi_honest.workload), semi_honest.layout, noise
    ).policy()
    nothing = np.zeros(parameters.length, np.int64)
    invented = {u: SecAggClient(u, nothing, demanded) for u in range(1, COUNT)}
    semi_honest.ask(0, {})
    # Its noise is the server's to leave out.
    monkeypatch.setattr(
        "secagg.server.discrete_gaussian", lambda _, size, random_bytes: np.zeros(size, np.int64)
    )
    server = SecAggServer(parameters)
    queue = server.start()
    while queue:
        u, message = queue.pop(0)
        answer = invented[u].receive(message) if u else semi_honest.sessions[0].receive(message)
        queue += [] if answer is None else server.receive(u, answer)
    assert np.array_equal(server.exact_result, true_counts(semi_honest, 0))


def true_counts(clients: Clients, number: int) -> NDArray[np.int64]:
    """The vector of a client that nobody else may see."""
    client = FlaimClient(
        codes_of(number), clients.workload, clients.settings, random_bytes=np.random.bytes
    )
    return client.count(clients.layout)


FEW = [number < COUNT - 2 for number in range(COUNT)]
HALVES = [number < COUNT // 2 for number in range(COUNT)]


def test_no_client_reveals_where_two_lists_of_survivors_are_shown(malicious: Clients) -> None:
    """Client 5 has survived, say those who are shown one list; it has not, say the others'."""
    _, parameters = malicious.masked()
    everybody, without = [True] * COUNT, [True] * (COUNT - 1) + [False]
    shown = {n: everybody if HALVES[n] else without for n in range(COUNT - 1)}
    signed = {}
    for number, alive in shown.items():
        answer = malicious.show(parameters, number, alive)
        assert kind_of(answer) is Kind.SIGNATURE
        signed[number] = body_of(answer)
    for number, alive in shown.items():
        same = {
            n: signed[n] for n in shown if shown[n] == alive and n in parameters.graph.witnesses
        }
        with pytest.raises(ProtocolViolation):
            malicious.sign(parameters, number, same)


def test_semi_honest_clients_reveal_both_secrets_in_the_control(semi_honest: Clients) -> None:
    server, parameters = semi_honest.masked()
    everybody, without = [True] * COUNT, [True] * (COUNT - 1) + [False]
    kinds = set()
    for number in range(COUNT - 1):
        answer = semi_honest.show(parameters, number, everybody if HALVES[number] else without)
        content = open_revealed(parameters, number, body_of(answer), server._own_key)
        revealed = wire.decode_revealed(content, parameters.graph.neighbours(number))
        if COUNT - 1 in revealed:
            kinds.add(revealed[COUNT - 1].key)
    assert kinds == {False, True}


def test_two_rosters_end_in_keys_that_nobody_takes(
    malicious: Clients, certificates: Certificates
) -> None:
    """Client 5 is corrupt and has two cards: one half of the clients is shown one of them, the other the other."""
    mine = Identity(bytes(range(32)))
    second = SignedClientKey.of(mine.public, certificates[NAMES[5]], malicious.config.digest())
    views = [malicious.cards, malicious.cards | {5: second}]
    keys, parameters = {}, []
    for view in views:
        parameters.append(malicious.parameters(view)[0])
    for number in range(COUNT - 1):
        half = int(HALVES[number])
        malicious.ask(number, views[half])
        tag = parameters[half]
        body = wire.encode_announcement(tag, HybridKey(bytes(32)).public)
        announce = wire.pack_envelope(
            Envelope(Kind.ANNOUNCE, wire.SERVER, number, tag.digest[:16], body)
        )
        keys[number] = body_of(malicious.sessions[number].receive(announce))
    for number in range(COUNT - 1):
        others = wire.encode_list({n: key for n, key in keys.items() if n != number})
        tag = parameters[int(HALVES[number])].digest[:16]
        answer = malicious.sessions[number].receive(
            wire.pack_envelope(Envelope(Kind.KEYS, wire.SERVER, number, tag, others))
        )
        assert kind_of(answer) is MessageKind.OUT
        assert "not signed by client" in unpack_reason(
            FederationMessage.unpack(answer or b"", "x").body
        )


def test_clients_reveal_nothing_where_the_server_drops_many(malicious: Clients) -> None:
    _, parameters = malicious.masked()
    for number in range(3):
        answer = malicious.show(parameters, number, FEW)
        assert kind_of(answer) is MessageKind.OUT


def test_semi_honest_clients_reveal_where_the_server_drops_many_in_the_control(
    semi_honest: Clients,
) -> None:
    _, parameters = semi_honest.masked()
    for number in range(3):
        assert kind_of(semi_honest.show(parameters, number, FEW)) is Kind.REVEAL


async def test_run_of_malicious_mode_finishes_with_signed_sums(
    certificates: Certificates, tmp_path: Path
) -> None:
    config = flaim_config(certificates, MALICIOUS)
    _, clients = await play(config, certificates, tmp_path)
    assert all(isinstance(client, ParticipantReport) and client.finished for client in clients), (
        clients
    )
    records = verified_records(tmp_path / "server" / "transcript.jsonl", verify=lambda *_: None)
    steps = [record["step"] for record in records if record["kind"] == "received"]
    sums = steps.count("secagg.masked")
    assert sums == steps.count("secagg.signature") == 3 * COUNT
    # Everybody is shown everybody's card once.
    assert sum(r["kind"] == "sent" and r["step"] == "flaim.roster" for r in records) == COUNT


@pytest.mark.parametrize("at", STAGES)
async def test_run_of_malicious_mode_survives_a_client_that_leaves(
    certificates: Certificates, tmp_path: Path, at: str
) -> None:
    config = flaim_config(certificates, MALICIOUS)
    round = 0 if at == "flaim.roster" else 1
    faults = {2: leaving(config, certificates, tmp_path, 2, at=at, round=round)}
    _, clients = await play(config, certificates, tmp_path, faults, waits=False)
    rest = [client for number, client in enumerate(clients) if number != 2]
    assert all(isinstance(client, ParticipantReport) and client.finished for client in rest), rest


async def test_client_without_a_card_of_its_own_is_not_let_in(
    certificates: Certificates, foreign: Certificates, tmp_path: Path
) -> None:
    """The server checks what the other clients would refuse, so that one client cannot stop every sum."""
    config = flaim_config(certificates, MALICIOUS)
    keys = [pinned_key_in(certificates[name].cert).key for name in NAMES]
    other = config.override({"flaim.client_keys": [*keys[:-1], "0" * 64]})
    with pytest.raises(FederationProtocolError, match="client_keys"):
        OwnClientKey.make(other, certificates[NAMES[-1]])
    assert OwnClientKey.make(config.override({"flaim.client_keys": keys}), certificates[NAMES[-1]])


@pytest.mark.parametrize("size", [1, 40, 100, -1])
def test_cards_come_back_or_are_refused(certificates: Certificates, size: int) -> None:
    config = flaim_config(certificates, MALICIOUS)
    cards = {n: OwnClientKey.make(config, certificates[name]).card for n, name in enumerate(NAMES)}
    (body,) = pack_client_keys(cards)
    assert unpack_client_keys(body, "x") == cards
    with pytest.raises(FederationProtocolError):
        unpack_client_keys(body[:size], "x")
    roster = ClientKeyDirectory(config, Issuer.load(certificates[SERVER].ca))
    with pytest.raises(FederationProtocolError, match="there is none"):
        roster.learn(COUNT, cards[0])


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"flaim.noise": "server"}, "flaim.noise"),
        ({"flaim.corrupt": 0.3}, "flaim.corrupt"),
        ({"flaim.client_keys": ["0" * 64]}, "flaim.client_keys"),
    ],
)
def test_config_that_malicious_mode_cannot_keep_is_refused(
    certificates: Certificates, changes: dict[str, object], key: str
) -> None:
    with pytest.raises(ConfigError, match=key):
        settings_of(flaim_config(certificates, MALICIOUS | changes))
