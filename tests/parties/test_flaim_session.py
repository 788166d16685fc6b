"""One client against a server that asks for what it may not: nothing is sent, and nothing is charged for it."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mechanisms.errors import BudgetExceeded, FlaimError
from mechanisms.flaim_client import FlaimClient
from mechanisms.flaim_messages import Brief, Layout, decode_choices
from mechanisms.model import Model
from parties.config import Config
from parties.federation.messages import (
    FederationMessage,
    MessageKind,
    Refusal,
    RefusalMessage,
    open_answer,
    pack_plain,
    pack_sealed_request,
    pack_task,
    seal_answer,
    unpack_plain,
    unpack_reason,
    unpack_sealed_request,
)
from parties.foundation.errors import FederationProtocolError
from parties.foundation.exit_codes import FederationRefused
from parties.methods.flaim.client import FlaimClientSession
from parties.methods.flaim.settings import flaim_sum, settings_of
from parties.session.study import Study
from parties.storage.database import Database
from parties.storage.privacy_ledger import LEDGER, DurableLedger
from protocols.sealing import BoxKey
from secagg import Parameters, SecAggServer, wire
from secagg.errors import ParametersRefused
from secagg.keys import PUBLIC_BYTES, HybridKey
from tests.parties.flaim_support import codes_of
from tests.parties.support import make_config

SERVER = "flaim-server"


def config_of(**flaim: object) -> Config:
    table = {"variant": "private", **flaim}
    return make_config({"party": None, "clients.expected": 6, "flaim": table, "run.epsilon": 5.0})


KEY = BoxKey.generate()
"""The server's, for what does not go by SecAgg."""


class Client:
    """A session with its ledger in ``folder``."""

    def __init__(self, folder: Path, config: Config, index: int = 2) -> None:
        self.config, self.workload = config, config.build_workload()
        self.settings = settings_of(config)
        self.database = Database(folder, config.digest(), LEDGER)
        self.ledger = DurableLedger(self.database, self.settings.rho)
        inner = FlaimClient(
            codes_of(index), self.workload, self.settings, random_bytes=np.random.bytes
        )
        self.session = FlaimClientSession(
            config, self.workload, inner, self.ledger, server=SERVER, random_bytes=np.random.bytes
        )

    def layout(self, clients: int = 6, place: int | None = 0, round: int = 0) -> bytes:
        sigma = self.settings.schedule(3).sigma
        asked = Layout(round, 0, clients, sigma, True, ()).encode()
        body = pack_task(
            place, asked if place is not None else pack_sealed_request(KEY.public, asked)
        )
        return FederationMessage(MessageKind.LAYOUT, round, body).pack()

    def parameters(self, clients: int = 6) -> Parameters:
        layout = Layout(0, 0, clients, self.settings.schedule(3).sigma, True, ())
        noise = self.settings.sum_noise(layout.sigma)
        return flaim_sum(Study(self.config, self.workload), layout, noise).parameters(
            random_bytes=np.random.bytes
        )


def asking(number: int, brief: bytes) -> bytes:
    """A BRIEF of round ``number`` with this server's key."""
    return FederationMessage(
        MessageKind.BRIEF, number, pack_sealed_request(KEY.public, brief)
    ).pack()


Make = Callable[[Config], Client]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Clients on one ledger, each the only one that has it open."""
    made: list[Client] = []

    def one(config: Config) -> Client:
        for earlier in made:
            earlier.database.close()
        made.append(Client(tmp_path / "ledger", config))
        return made[-1]

    yield one
    for client in made:
        client.database.close()


@pytest.fixture
def client(make: Make) -> Client:
    return make(config_of())


def announce(parameters: Parameters) -> bytes:
    return SecAggServer(parameters).start()[0][1]


def test_client_takes_part_in_a_sum_that_its_config_allows(client: Client) -> None:
    assert client.session.receive(client.layout()) is None
    assert client.ledger.spent > 0
    assert client.session.busy
    assert client.session.receive(announce(client.parameters())) is not None
    assert client.session.tally.sums == 1


SPOILED: dict[str, tuple[Callable[[Client], bytes], type[Exception]]] = {
    "too few": (lambda c: c.layout(clients=2), FederationProtocolError),
    "too many": (lambda c: c.layout(clients=7), FederationProtocolError),
    "plain in a union": (lambda c: c.layout(clients=1, place=None), FederationProtocolError),
    "short": (lambda c: c.layout()[:-1], FlaimError),
    "long": (lambda c: c.layout() + b"x", FlaimError),
    "two rounds": (
        lambda c: c.layout()[:6] + bytes(3) + b"\x05" + c.layout()[10:],
        FederationProtocolError,
    ),
    "empty brief": (
        lambda c: FederationMessage(MessageKind.BRIEF, 1, b"").pack(),
        FederationProtocolError,
    ),
    "brief without a key": (
        lambda c: FederationMessage(MessageKind.BRIEF, 1, bytes(99)).pack(),
        FederationProtocolError,
    ),
    "brief of nothing": (lambda c: asking(1, b""), FlaimError),
    "welcome": (
        lambda c: FederationMessage(MessageKind.WELCOME, 1, b"").pack(),
        FederationProtocolError,
    ),
    "hello": (
        lambda c: FederationMessage(MessageKind.HELLO, 1, b"").pack(),
        FederationProtocolError,
    ),
    "secagg before a layout": (lambda c: announce(c.parameters()), FederationProtocolError),
    "refused": (
        lambda c: RefusalMessage(Refusal.STOPPED, "go away").message().pack(),
        FederationRefused,
    ),
    "refused with an unknown status": (
        lambda c: FederationMessage(MessageKind.REFUSED, 0, b"\x63go away").pack(),
        FederationProtocolError,
    ),
    "refused without a status": (
        lambda c: FederationMessage(MessageKind.REFUSED, 0, b"").pack(),
        FederationProtocolError,
    ),
}


@pytest.mark.parametrize(("spoil", "error"), SPOILED.values(), ids=SPOILED)
def test_client_refuses_and_is_charged_nothing(
    client: Client, spoil: Callable[[Client], bytes], error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.session.receive(spoil(client))
    assert client.ledger.spent == 0
    assert DurableLedger(client.database).entries == []


@pytest.mark.parametrize(
    "change", [{"min_survivors": 3}, {"high": 50}, {"length": 14}], ids=lambda c: next(iter(c))
)
def test_client_refuses_a_session_that_is_not_its_own_configs(
    make: Make, change: dict[str, int]
) -> None:
    client = make(config_of(minimum=4))
    client.session.receive(client.layout())
    with pytest.raises(ParametersRefused):
        client.session.receive(announce(replace(client.parameters(), **change)))


def test_client_refuses_another_request_while_a_sum_is_taken(client: Client) -> None:
    client.session.receive(client.layout())
    spent = client.ledger.spent
    with pytest.raises(FederationProtocolError, match="while a sum was being taken"):
        client.session.receive(client.layout())
    assert client.ledger.spent == spent


def test_client_gives_plain_counts_only_where_its_config_says_by_query(make: Make) -> None:
    client = make(config_of(grouping="query", variant="random", minimum=5))
    workload, spent = client.workload, client.ledger.spent
    allowed = np.ones(len(workload.candidates), np.bool_)
    brief = Brief(workload, 1, 0.0, 1.0, 1.0, 30, allowed, None, None).encode()
    choices = client.session.receive(asking(1, brief))
    assert choices is not None
    body = open_answer(KEY, FederationMessage.unpack(choices, "x"), "x")
    (chosen,) = decode_choices(body, workload, round=1, count=1)

    def layout(clients: int, place: int | None, *queries: int, one_way: bool = False) -> bytes:
        sigma = client.settings.schedule(3).sigma
        asked = Layout(1, 0, clients, sigma, one_way, queries).encode()
        task = pack_task(
            place, asked if place is not None else pack_sealed_request(KEY.public, asked)
        )
        return FederationMessage(MessageKind.LAYOUT, 1, task).pack()

    other = (chosen + 1) % len(workload.candidates)
    # One-way sums are over everybody: nobody is ever alone in one, and they are not mixed with what was chosen.
    for asked, error in (
        (layout(1, None, one_way=True), FederationProtocolError),
        (layout(4, 0, one_way=True), FederationProtocolError),
        (layout(3, None, chosen), FederationProtocolError),
        (layout(2, None, chosen, one_way=True), FederationProtocolError),
        (layout(2, None, *sorted((chosen, other))), FlaimError),
    ):
        with pytest.raises(error):
            client.session.receive(asked)
    assert client.ledger.spent == spent
    answer = client.session.receive(layout(1, None, chosen))
    assert answer is not None
    message = FederationMessage.unpack(answer, "x")
    assert message.kind is MessageKind.PLAIN
    cells = workload.slice(chosen)
    counts = unpack_plain(open_answer(KEY, message, "x"), cells.stop - cells.start, 100, "x")
    assert counts.sum() == len(codes_of(2))
    assert client.ledger.spent > spent


def test_client_charges_nothing_for_a_sum_that_no_session_can_take(make: Make) -> None:
    """Two of three clients of a query's sum may be corrupt: no threshold is above them."""
    client = make(config_of(grouping="query", variant="random", minimum=6, corrupt=0.5))
    workload, spent = client.workload, client.ledger.spent
    allowed = np.ones(len(workload.candidates), np.bool_)
    brief = Brief(workload, 1, 0.0, 1.0, 1.0, 30, allowed, None, None).encode()
    choices = client.session.receive(asking(1, brief))
    assert choices is not None
    body = open_answer(KEY, FederationMessage.unpack(choices, "x"), "x")
    (chosen,) = decode_choices(body, workload, round=1, count=1)
    sigma = client.settings.schedule(3).sigma
    for clients, error in ((3, "no session can take"), (6, None)):
        task = pack_task(0, Layout(1, 0, clients, sigma, False, (chosen,)).encode())
        asked = FederationMessage(MessageKind.LAYOUT, 1, task).pack()
        if error is None:
            assert client.session.receive(asked) is None
            continue
        with pytest.raises(FederationProtocolError, match=error):
            client.session.receive(asked)
        assert client.ledger.spent == spent
    assert client.ledger.spent > spent


def test_charges_are_on_the_disk_before_the_rows_are_looked_at(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make(config_of(variant="naive", local_rounds=2))
    stored: list[int] = []

    def looked(self: FlaimClient) -> object:
        with contextlib.closing(
            sqlite3.connect(client.database.directory / "store.sqlite")
        ) as disk:
            stored.append(disk.execute("SELECT count(*) FROM ledger").fetchone()[0])
        raise RuntimeError("the rows are looked at")

    monkeypatch.setattr(FlaimClient, "_counted", looked)
    workload = client.workload
    allowed = np.ones(len(workload.candidates), np.bool_)
    domain = workload.domain
    uniform = Model(
        domain,
        tuple((name,) for name in domain.names),
        (-1,) * len(domain.names),
        tuple(np.full(size, 1 / size) for size in domain.shape),
    )
    for sigma, error in ((2.0**20, FlaimError), (30.0, RuntimeError)):
        brief = Brief(workload, 1, 0.05, sigma, 1.0, 30, allowed, uniform, None).encode()
        with pytest.raises(error):
            client.session.receive(asking(1, brief))
        if error is FlaimError:
            assert client.ledger.spent == 0
    # Two choices and a local measurement; no failure takes them back.
    assert stored == [3]
    assert DurableLedger(client.database).entries == client.ledger.entries
    assert len(client.ledger.entries) == 3
    with pytest.raises(RuntimeError):
        client.session.receive(client.layout(round=1))
    assert stored == [3, 6]


def test_client_refuses_what_its_stored_ledger_does_not_cover(make: Make) -> None:
    config, released = config_of(variant="naivebayes"), 0

    def release_in_a_new_process() -> float:
        client = make(config)
        before = client.ledger.spent
        client.session.receive(client.layout(round=released))
        assert client.ledger.spent > before
        return client.ledger.spent

    spent = 0.0
    while released < config.run.rounds:
        spent = release_in_a_new_process()
        released += 1
    with pytest.raises(BudgetExceeded):
        release_in_a_new_process()
    assert make(config).ledger.spent == spent <= settings_of(config).rho


def test_client_gives_up_a_sum_whose_server_does(client: Client) -> None:
    client.session.receive(client.layout())
    parameters = client.parameters()
    server = SecAggServer(parameters)
    client.session.receive(server.start()[0][1])
    (abort, *_) = [m for u, m in server.farewell("too few") if u == 0]
    assert client.session.receive(abort) is None
    assert not client.session.busy
    assert client.session.tally.given_up == 1
    # Late words on that sum are ignored; the next layout begins another.
    assert client.session.receive(abort) is None
    assert client.session.receive(client.layout(round=1)) is None


def test_client_gives_up_a_sum_whose_keys_are_spoiled_and_stays(client: Client) -> None:
    client.session.receive(client.layout())
    server = SecAggServer(client.parameters())
    others = range(1, 6)
    answer = client.session.receive(server.start()[0][1])
    assert answer is not None
    outgoing = server.receive(0, answer)
    session = server.parameters.digest[:16]
    for u in others:
        cipher, mask = (HybridKey(bytes([u + i]) * 32).public for i in (0, 100))
        body = wire.encode_keys(wire.PublicKeys(cipher, mask, b""))
        message = wire.Envelope(wire.Kind.ADVERTISE, u, wire.SERVER, session, body)
        outgoing = server.receive(u, wire.pack_envelope(message))
    (keys,) = [message for u, message in outgoing if u == 0]
    first, second, *_ = neighbours = server.parameters.graph.neighbours(0)
    entries = wire.decode_list(wire.open_envelope(keys, 1 << 16).body, 2 * PUBLIC_BYTES, neighbours)
    # Two have the same keys: who answers to one of them is not known.
    body = wire.encode_list(entries | {second: entries[first]})
    message = wire.Envelope(wire.Kind.KEYS, wire.SERVER, 0, session, body)
    answer = client.session.receive(wire.pack_envelope(message))
    assert answer is not None
    message = FederationMessage.unpack(answer, SERVER)
    assert message.kind is MessageKind.OUT
    assert "came before" in unpack_reason(message.body)
    assert not client.session.busy
    assert client.session.tally.given_up == 1
    assert client.session.receive(client.layout(round=1)) is None


def test_client_answers_a_server_that_counts_from_the_start_on_a_new_connection_only(
    make: Make,
) -> None:
    client = make(config_of(variant="random"))
    allowed = np.ones(len(client.workload.candidates), np.bool_)

    def brief(number: int) -> bytes:
        body = Brief(client.workload, number, 0.0, 1.0, 1.0, 30, allowed, None, None).encode()
        return asking(number, body)

    with pytest.raises(FederationProtocolError, match="a brief of round 3"):
        client.session.receive(brief(3)[:9] + b"\x04" + brief(3)[10:])
    assert client.session.receive(brief(3)) is not None
    for number in (2, 3):
        with pytest.raises(FlaimError, match="after one for 3"):
            client.session.receive(brief(number))
    assert client.session.receive(client.layout(round=3)) is None
    spent = client.ledger.spent
    client.session.lost()
    assert client.session.receive(brief(1)) is not None
    # What it was charged before stays.
    assert client.session.receive(client.layout(round=3)) is None
    assert client.ledger.spent == pytest.approx(2 * spent)


def test_client_keeps_its_choices_over_a_new_connection_and_leaves_sums_that_have_none(
    make: Make,
) -> None:
    client = make(config_of(variant="random"))
    allowed = np.ones(len(client.workload.candidates), np.bool_)
    brief = Brief(client.workload, 3, 0.0, 1.0, 1.0, 30, allowed, None, None).encode()
    answer = client.session.receive(asking(3, brief))
    assert answer is not None
    body = open_answer(KEY, FederationMessage.unpack(answer, SERVER), SERVER)
    (mine,) = decode_choices(body, client.workload, round=3, count=1)
    other = (mine + 1) % len(allowed)

    def layout(round: int, chosen: int) -> bytes:
        sigma = client.settings.schedule(3).sigma
        body = Layout(round, 0, 6, sigma, False, (chosen,)).encode()
        return FederationMessage(MessageKind.LAYOUT, round, pack_task(0, body)).pack()

    for round, chosen in ((3, other), (4, mine)):
        answer = client.session.receive(layout(round, chosen))
        assert answer is not None
        assert FederationMessage.unpack(answer, SERVER).kind is MessageKind.OUT
    assert client.ledger.spent == 0
    # The session that the server had announced by then is ignored.
    assert client.session.receive(announce(client.parameters())) is None
    client.session.lost()
    assert client.session.receive(layout(3, mine)) is None
    assert client.ledger.spent > 0


def test_choices_and_plain_counts_are_in_boxes_for_their_kind_and_round() -> None:
    """Of who records TLS and opens it later: the counts are nowhere in the message, and ML-KEM's key opens it alone."""
    counts = pack_plain(np.arange(40))
    sealed = seal_answer(KEY.public, MessageKind.PLAIN, 3, counts)
    message = FederationMessage.unpack(sealed, "x")
    assert open_answer(KEY, message, "x") == counts
    assert counts not in sealed
    assert len(sealed) == len(seal_answer(KEY.public, MessageKind.PLAIN, 3, bytes(len(counts))))
    assert sealed != seal_answer(KEY.public, MessageKind.PLAIN, 3, counts)
    for key, other in (
        (BoxKey.generate(), message),
        (KEY, FederationMessage(MessageKind.CHOICES, 3, message.body)),
        (KEY, FederationMessage(MessageKind.PLAIN, 4, message.body)),
        (KEY, FederationMessage(MessageKind.PLAIN, 3, message.body[:-1])),
        (KEY, FederationMessage(MessageKind.PLAIN, 3, counts)),
    ):
        with pytest.raises(FederationProtocolError, match="sealed"):
            open_answer(key, other, "x")
    assert unpack_sealed_request(pack_sealed_request(KEY.public, b"brief"), "x") == (
        KEY.public,
        b"brief",
    )
    with pytest.raises(FederationProtocolError, match="sealed answer"):
        unpack_sealed_request(b"\xff" * 1216, "x")
