"""A whole run of FLAIM over real connections in one loop: clients that leave at every stage, lie, or are refused."""

import asyncio
import contextlib
import json
import socket
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mechanisms.accounting import LedgerEntry
from mechanisms.errors import BudgetExceeded, RoundLost
from mechanisms.events import GaussianEvent
from parties.config import CertificateFiles
from parties.federation.client import ParticipantReport
from parties.federation.members import ClientsSetup
from parties.federation.messages import FederationMessage, MessageKind, Refusal, RefusalMessage
from parties.federation.server import run_federated_server
from parties.federation.tls_members import TlsClients
from parties.foundation.errors import (
    CertificateError,
    ConfigError,
    FrameConnectError,
    FramePeerClosed,
)
from parties.foundation.exit_codes import FederationRefused, Status, TooFewClients
from parties.identity.tls import client_context, make_certificates
from parties.methods.flaim.server import flaim_plan
from parties.methods.flaim.settings import settings_of
from parties.network.frames import read_frame, write_frame
from parties.observability.events import Event
from parties.observability.status import RunInfo, RunStatus
from parties.service.offline_status import offline_status
from parties.storage.database import Database
from parties.storage.privacy_ledger import LEDGER, DurableLedger
from protocols.fields import decode
from tests.parties.flaim_support import (
    EVERY_STAGE,
    NAMES,
    SERVER,
    Events,
    codes_of,
    connect,
    flaim_config,
    greet,
    leaving,
    play,
    run_client,
)
from tests.parties.support import hangs_up_after_a_late_handshake
from tests.protocols.transcripts import verified_records
from tests.until import eventually


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CertificateFiles]:
    return make_certificates(tmp_path_factory.mktemp("flaim-certs"), [SERVER], [*NAMES, "stranger"])


def result(folder: Path) -> dict:
    return json.loads((folder / "server" / "result.json").read_text())


def transcript(folder: Path) -> list[dict]:
    return verified_records(folder / "server" / "transcript.jsonl", verify=lambda *_: None)


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"flaim.noise": "distributed"},
        {"flaim.variant": "naive", "flaim.local_rounds": 2},
        {"flaim.variant": "random", "flaim.grouping": "query"},
        {"flaim.variant": "naive", "flaim.grouping": "query", "flaim.local_rounds": 2},
        {"flaim.variant": "naivebayes", "flaim.sizes": "public"},
        {"flaim.grouping": "query", "clients.participation": 0.7, "flaim.sizes": "public"},
    ],
    ids=[
        "private",
        "distributed",
        "naive",
        "random-by-query",
        "naive-by-query",
        "naivebayes",
        "private-by-query",
    ],
)
async def test_run_finishes_with_model_result_and_transcript(
    certificates: dict[str, CertificateFiles], tmp_path: Path, overrides: dict[str, object]
) -> None:
    config = flaim_config(certificates, overrides)
    _, clients = await play(config, certificates, tmp_path)
    reports = [client for client in clients if isinstance(client, ParticipantReport)]
    assert len(reports) == 6
    assert all(report.finished and report.given_up == 0 for report in reports)
    found = result(tmp_path)
    assert found["rounds_done"] == 2
    assert found["sums"]["dropouts"] == found["sums"]["given_up"] == 0
    spent = sum(entry["rho"] for entry in found["ledger"])
    assert 0 < spent <= found["rho_total"]
    for report in reports:
        # A client pays for what it released, never for more than the server's own account has.
        assert 0 <= report.rho_spent <= spent * (1 + 1e-12)
        assert found["clients_sent"][report.client] == report.sent_bytes
        assert found["clients_received"][report.client] == report.received_bytes
    assert (tmp_path / "server" / "synthetic.csv").read_text().startswith("sex,ward,age\n")
    records = transcript(tmp_path)
    kinds = Counter(str(record["kind"]) for record in records)
    assert kinds["header"] == 1
    assert kinds["opened"] == len(found["opened"])
    assert kinds["ledger"] == len(found["ledger"])
    assert records[-1]["kind"] == "seal"
    sent = sum(int(r["bytes"]) for r in records if r["kind"] == "sent")
    received = sum(int(r["bytes"]) for r in records if r["kind"] == "received")
    frames = {name: kinds[name] * 4 for name in ("sent", "received")}
    assert sent + frames["sent"] == sum(found["clients_received"].values())
    assert received + frames["received"] == sum(found["clients_sent"].values())


async def test_board_shows_who_is_connected_and_the_folder_what_was_done(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates, {"clients.wait_s": 1.0})
    board = RunStatus(RunInfo.of_federation(config))
    seen: list[dict] = []
    board.listen(lambda: seen.append(board.status()))

    async def never() -> None:
        await asyncio.sleep(0)

    await play(config, certificates, tmp_path, {5: never}, board=board)
    waiting = next(one for one in seen if one["owners"]["here"] == 3)
    assert (waiting["phase"], waiting["owners"]["states"]["absent"]) == ("waiting", 3)
    computing = [one for one in seen if one["phase"] == "computing"]
    assert computing[-1]["owners"]["states"] == {"absent": 1, "here": 5}
    assert computing[-1]["rounds"]["done"] == 2
    last, kept = board.status(), offline_status(tmp_path / "server")
    assert last["phase"] == kept["phase"] == "finished"
    assert last["budget"] == kept["budget"]
    found = result(tmp_path)
    assert last["budget"]["rho"] == found["rho_total"]
    assert last["budget"]["spent"] == sum(entry["rho"] for entry in found["ledger"])
    assert kept["rounds"]["done"] == 2
    assert last["steps"]["aggregate"]["received_bytes"] > 1000
    assert last["peers"] == []


async def test_sums_are_those_of_the_tables_but_for_the_noise(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(
        certificates,
        {"flaim.variant": "naivebayes", "run.epsilon": 1e4, "flaim.noise": "distributed"},
    )
    await play(config, certificates, tmp_path)
    (opened, *_) = (r for r in transcript(tmp_path) if r["kind"] == "opened")
    scaled = np.frombuffer(decode(opened["value"]), "<i4")
    pooled = np.concatenate([codes_of(index) for index in range(6)])
    exact = np.concatenate(
        [np.bincount(pooled[:, i], minlength=size) for i, size in enumerate((2, 3, 10))]
    )
    scale = round(float(scaled.sum()) / (3 * len(pooled)))
    assert scale >= 1
    assert np.abs(scaled / scale - exact).max() < 3


@pytest.mark.parametrize("at", EVERY_STAGE)
async def test_run_survives_a_client_that_leaves_at(
    certificates: dict[str, CertificateFiles], tmp_path: Path, at: str
) -> None:
    config = flaim_config(certificates)
    faults = {2: leaving(config, certificates, tmp_path, 2, at=at)}
    events, clients = await play(config, certificates, tmp_path, faults)
    assert [type(client) for client in clients].count(ParticipantReport) == 5
    found = result(tmp_path)
    assert found["rounds_done"] == 2
    assert found["lost_rounds"] == []
    assert found["sums"]["dropouts"] == 1
    assert "clinic-c" in found["lost"]
    # It was not waited for again.
    assert "6 of 6 clients are connected" in events.texts("clients")
    left = [r for r in transcript(tmp_path) if r["kind"] == "client" and not r["accepted"]]
    assert [(r["client"], r["round"]) for r in left] == [("clinic-c", 1)]


@pytest.mark.parametrize("at", ["flaim.brief", "secagg.announce", "secagg.inbox"])
async def test_run_survives_a_client_that_falls_silent_at(
    certificates: dict[str, CertificateFiles], tmp_path: Path, at: str
) -> None:
    config = flaim_config(certificates, {"timeouts.receive_s": 1.5})
    faults = {2: leaving(config, certificates, tmp_path, 2, at=at, silent=True)}
    await play(config, certificates, tmp_path, faults)
    found = result(tmp_path)
    assert found["rounds_done"] == 2
    assert "within 1.5 s" in found["lost"]["clinic-c"]


async def test_run_begins_without_a_client_that_never_comes(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates, {"clients.wait_s": 3.0})

    async def absent() -> None:
        return

    await play(config, certificates, tmp_path, {2: absent})
    found = result(tmp_path)
    assert (found["clients"], found["rounds_done"]) == (5, 2)


async def test_client_that_lost_its_connection_comes_back_for_the_next_round(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates, {"run.rounds": 3})

    async def again() -> ParticipantReport:
        await leaving(config, certificates, tmp_path, 2, at="secagg.keys")()
        return await run_client(
            config, codes_of(2), certificates[NAMES[2]], tmp_path / NAMES[2], progress=Events()
        )

    _, clients = await play(config, certificates, tmp_path, {2: again})
    report = clients[2]
    assert isinstance(report, ParticipantReport)
    assert report.finished
    # Its ledger remembers what its first process released.
    with Database(tmp_path / NAMES[2], config.digest(), LEDGER) as database:
        ledger = DurableLedger(database)
        assert ledger.spent == pytest.approx(report.rho_spent)
        assert {entry.round for entry in ledger.entries} >= {0, 1}


async def test_round_is_lost_and_charged_where_too_few_stay(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates, {"flaim.minimum": 5, "run.rounds": 3})
    faults = {
        index: leaving(config, certificates, tmp_path, index, at="secagg.inbox", round=2)
        for index in (1, 4)
    }
    _, clients = await play(config, certificates, tmp_path, faults, waits=False)
    found = result(tmp_path)
    assert found["lost_rounds"] == [2]
    # Only four are left for round 3, and the agreed minimum is five: the run ends with what it has.
    assert not [item for item in found["opened"] if item["round"] == 2 and "sums" in item["what"]]
    assert [entry for entry in found["ledger"] if (entry["round"], entry["step"]) == (2, "measure")]
    assert found["sums"]["given_up"] == 1
    reports = [client for client in clients if isinstance(client, ParticipantReport)]
    assert [report.given_up for report in reports] == [1] * 4
    aborted = [r for r in transcript(tmp_path) if r.get("what") == "aborted"]
    assert [r["round"] for r in aborted] == [2]


async def test_run_ends_in_an_error_where_the_first_sum_is_lost(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates, {"flaim.minimum": 5})
    faults = {
        index: leaving(config, certificates, tmp_path, index, at="secagg.keys", round=0)
        for index in (1, 4)
    }
    with pytest.raises(RoundLost):
        await play(config, certificates, tmp_path, faults)
    with Database(tmp_path / "server" / "store", config.digest(), LEDGER) as database:
        assert DurableLedger(database).spent > 0
    assert not (tmp_path / "server" / "synthetic.csv").exists()


async def test_server_started_again_takes_the_rounds_that_are_left(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates, {"run.rounds": 4})
    faults = {
        index: leaving(config, certificates, tmp_path, index, at="flaim.brief", round=2)
        for index in range(5)
    }
    await play(config, certificates, tmp_path, faults, waits=False)
    first = result(tmp_path)
    # As if it had been killed in round 3, after a charge.
    settings = settings_of(config)
    with Database(tmp_path / "server" / "store", config.digest(), LEDGER) as database:
        ledger = DurableLedger(database, settings.rho)
        ledger.charge(3, "select", settings.schedule(3).selection)
        spent = ledger.spent
    again = tmp_path / "again"
    again.mkdir()
    (tmp_path / "server").rename(again / "server")
    await play(config, certificates, again)
    second = result(again)
    assert second["rho_earlier"] == pytest.approx(spent)
    assert sum(entry["rho"] for entry in second["ledger"]) <= second["rho_total"] * (1 + 1e-12)
    assert first["rounds_done"] == 2
    assert (second["rounds_done"], second["lost_rounds"]) == (4, [2, 3])
    assert [e["round"] for e in second["ledger"] if e["step"] == "select"] == [1, 2, 3, 4]
    assert second["participants"][:3] == first["participants"]
    assert [item for item in second["opened"] if item["round"] <= 2] == first["opened"]


async def test_server_killed_after_the_last_round_makes_the_model_without_clients(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates)
    await play(config, certificates, tmp_path)
    first, folder = result(tmp_path), tmp_path / "server"
    for name in ("result.json", "synthetic.csv"):
        (folder / name).unlink()
    events = Events()
    await run_federated_server(
        config, folder, progress=events, closed=asyncio.Event(), plan=flaim_plan(config)
    )
    second = result(tmp_path)
    # Who was there is who was there, whoever has come back to a server that only had the model left to make.
    assert second["clients"] == first["clients"] == 6
    for name in ("ledger", "opened", "selected", "participants", "rounds_done", "rows_estimated"):
        assert second[name] == first[name]
    assert (folder / "synthetic.csv").exists()


async def test_server_begins_anew_where_the_schedule_is_annealed(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    annealed = {"run.schedule": "annealed", "run.rounds": None, "flaim.variant": "naive"}
    config = flaim_config(certificates, annealed)
    faults = {
        index: leaving(config, certificates, tmp_path, index, at="flaim.brief", round=2)
        for index in range(5)
    }
    await play(config, certificates, tmp_path, faults, waits=False)
    first = result(tmp_path)
    await play(config, certificates, tmp_path)
    second = result(tmp_path)
    assert first["rounds_done"] == 2
    begun = [r["round"] for r in transcript(tmp_path) if r.get("what") == "round"]
    assert begun.count(0) == 2
    costs = [Fraction(entry["rho"]) for entry in second["ledger"]]
    assert sum(costs) <= Fraction(second["rho_total"])


async def test_server_started_again_after_its_end_changes_nothing(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates)
    await play(config, certificates, tmp_path)
    before = transcript(tmp_path)
    events = Events()
    await run_federated_server(
        config,
        tmp_path / "server",
        progress=events,
        closed=asyncio.Event(),
        plan=flaim_plan(config),
    )
    assert [name for name, _ in events.seen] == ["finished"]
    assert transcript(tmp_path) == before


async def test_server_refuses_to_begin_where_the_budget_is_spent(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config, folder = flaim_config(certificates), tmp_path / "server"
    folder.mkdir()
    settings, events = settings_of(config), Events()
    with Database(folder / "store", config.digest(), LEDGER) as database:
        ledger = DurableLedger(database, settings.rho)
        with contextlib.suppress(BudgetExceeded):
            while True:
                ledger.charge(0, "measure", settings.sum_noise(settings.schedule(3).sigma).event)
    with pytest.raises(BudgetExceeded):
        await run_federated_server(
            config, folder, progress=events, closed=asyncio.Event(), plan=flaim_plan(config)
        )
    assert events.seen == []
    assert not (folder / "transcript.jsonl").exists()


async def test_client_refuses_a_certificate_that_is_not_of_this_run(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates)
    with pytest.raises(ConfigError, match="does not have 'stranger'"):
        await run_client(config, codes_of(0), certificates["stranger"], tmp_path, progress=Events())


async def test_client_refuses_what_its_own_ledger_does_not_cover(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates)
    with Database(tmp_path / NAMES[2], config.digest(), LEDGER) as database:
        DurableLedger(database).adopt([LedgerEntry(1, "measure", GaussianEvent(1.0), 0.9 * 0.6)])
    _, clients = await play(config, certificates, tmp_path)
    assert isinstance(clients[2], BudgetExceeded)
    assert [type(client) for client in clients].count(ParticipantReport) == 5
    assert result(tmp_path)["rounds_done"] == 2


async def test_server_and_clients_of_different_domains_refuse_one_another(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates, {"clients.wait_s": 3.0})
    columns = [dict(column) for column in config.to_dict()["column"]]  # type: ignore[call-overload]
    columns[2]["high"] = 8
    other = config.override({"column": columns})

    async def different() -> ParticipantReport:
        codes = np.minimum(codes_of(2), 8)
        return await run_client(
            other, codes, certificates[NAMES[2]], tmp_path / NAMES[2], progress=Events()
        )

    _, clients = await play(config, certificates, tmp_path, {2: different})
    assert isinstance(clients[2], FederationRefused)
    assert "another configuration" in str(clients[2])
    assert "column.age.high: 8 here, 9 at flaim-server" in str(clients[2])
    assert result(tmp_path)["clients"] == 5
    with Database(tmp_path / NAMES[2], other.digest(), LEDGER) as database:
        assert DurableLedger(database).spent == 0


async def test_server_takes_in_nobody_it_does_not_expect(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates, {"flaim.sizes": "public"})
    foreign = make_certificates(tmp_path / "foreign", [SERVER], [NAMES[2]])[NAMES[2]]
    mixed = CertificateFiles(certificates[SERVER].ca, foreign.cert, foreign.key)
    seen: list[tuple[MessageKind, RefusalMessage]] = []
    board = RunStatus(RunInfo.of_federation(config))

    async def intruders() -> ParticipantReport:
        reader, writer = await connect(config, certificates["stranger"])
        answer = await greet(config, reader, writer, rows=10)
        seen.append((answer.kind, RefusalMessage.unpack(answer.body, SERVER)))
        writer.close()
        # A second connection of a client that is there.
        await eventually(lambda: board.status()["owners"]["here"] == len(NAMES) - 1)
        reader, writer = await connect(config, certificates[NAMES[0]])
        answer = await greet(config, reader, writer, rows=10)
        seen.append((answer.kind, RefusalMessage.unpack(answer.body, SERVER)))
        writer.close()
        # No number of rows, where the run's sizes are public.
        reader, writer = await connect(config, certificates[NAMES[2]])
        answer = await greet(config, reader, writer, rows=None)
        seen.append((answer.kind, RefusalMessage.unpack(answer.body, SERVER)))
        writer.close()
        # More rows than the public bound.
        reader, writer = await connect(config, certificates[NAMES[2]])
        answer = await greet(config, reader, writer, rows=101)
        seen.append((answer.kind, RefusalMessage.unpack(answer.body, SERVER)))
        writer.close()
        # A card, in a run that is not malicious.
        reader, writer = await connect(config, certificates[NAMES[2]])
        answer = await greet(config, reader, writer, rows=10, card=bytes(96))
        seen.append((answer.kind, RefusalMessage.unpack(answer.body, SERVER)))
        writer.close()
        with pytest.raises(CertificateError):
            await run_client(config, codes_of(2), mixed, tmp_path / "x", progress=Events())
        return await run_client(
            config, codes_of(2), certificates[NAMES[2]], tmp_path / NAMES[2], progress=Events()
        )

    await play(config, certificates, tmp_path, {2: intruders}, board=board)
    assert [kind for kind, _ in seen] == [MessageKind.REFUSED] * 5
    assert [refused.refusal for _, refused in seen] == [
        Refusal.NOT_ENROLLED,
        *[Refusal.MISMATCH] * 4,
    ]
    assert "'stranger' is not among the 6 data owners that this run names" in seen[0][1].words
    assert "connected already" in str(seen[1])
    assert "declares no number of rows, unlike flaim.sizes" in str(seen[2])
    assert "declares 101 rows; expected at most 100" in str(seen[3])
    assert "shows a card, which this run does not ask for" in str(seen[4])
    assert result(tmp_path)["clients"] == 6
    assert board.status()["rejections"] == {"stranger": 1, "misfit": 4}
    refused = [r for r in transcript(tmp_path) if r.get("what") == "refused"]
    assert [r["client"] for r in refused] == ["stranger", NAMES[0], *[NAMES[2]] * 3]


class Arrivals(Events):
    """Progress that says when a client is connected."""

    def __init__(self) -> None:
        super().__init__()
        self.came = asyncio.Event()

    def take(self, event: Event) -> None:
        super().take(event)
        if event.name == "clients":
            self.came.set()


async def test_client_of_a_server_that_is_stopped_ends_with_its_status(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates)
    (tmp_path / "server").mkdir()
    arrivals = Arrivals()
    running = asyncio.create_task(
        run_federated_server(
            config,
            tmp_path / "server",
            progress=arrivals,
            closed=asyncio.Event(),
            plan=flaim_plan(config),
        )
    )
    client = asyncio.create_task(
        run_client(config, codes_of(0), certificates[NAMES[0]], tmp_path / "c", progress=Events())
    )
    await arrivals.came.wait()
    running.cancel()
    with pytest.raises(FederationRefused, match="the server was stopped") as caught:
        await client
    assert caught.value.status == Status.NETWORK
    await asyncio.gather(running, return_exceptions=True)


async def test_client_tells_nothing_to_a_server_of_another_name(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates, {"flaim.server": "other", "timeouts.connect_s": 2.0})
    honest = config.override({"flaim.server": SERVER})
    serving = asyncio.create_task(
        run_federated_server(
            honest, tmp_path, progress=Events(), closed=asyncio.Event(), plan=flaim_plan(honest)
        )
    )
    try:
        with pytest.raises(FrameConnectError, match="expected 'other'"):
            await run_client(
                config, codes_of(0), certificates[NAMES[0]], tmp_path / "c", progress=Events()
            )
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def read_until_closed(reader: asyncio.StreamReader) -> None:
    while True:
        await read_frame(reader, SERVER, limit=1 << 20, timeout_s=10)


@pytest.mark.parametrize("handshake", ["before", "after"])
async def test_server_that_ends_hangs_up_on_clients_that_have_not_greeted(
    certificates: dict[str, CertificateFiles], tmp_path: Path, handshake: str
) -> None:
    config = flaim_config(certificates)
    address = config.require_flaim().address
    assert address is not None
    (tmp_path / "server").mkdir()
    running = asyncio.create_task(
        run_federated_server(
            config,
            tmp_path / "server",
            progress=Events(),
            closed=asyncio.Event(),
            plan=flaim_plan(config),
        )
    )

    async def end() -> None:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    reader, writer = await connect(config, certificates[NAMES[0]])
    if handshake == "before":
        # A client has finished its handshake before the server has: let that one come in.
        await asyncio.sleep(0.2)  # Sleeps: head start.
        await end()
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 2) == b""
    else:
        context = client_context(certificates[NAMES[1]], config.require_flaim().pinned)
        await hangs_up_after_a_late_handshake(address.port, context, SERVER, end)
    writer.transport.abort()


class Deaf:
    """A log that writes nothing down."""

    def message(
        self, *, sent: bool, client: int, round: int | None, data: bytes, key: bytes
    ) -> None: ...

    def connection(self, *, name: str, certificate: bytes, what: str, reason: str = "") -> None: ...


async def test_connections_that_close_while_a_client_comes_in_hang_up(
    certificates: dict[str, CertificateFiles],
) -> None:
    """The client's task is cancelled before its first step."""
    config, came = flaim_config(certificates), asyncio.Event()

    class Watched(TlsClients):
        async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.set()
            await super()._accept(reader, writer)

    digest = config.build_workload().digest()
    setup = ClientsSetup(
        config=config, files=certificates[SERVER], workload_digest=digest, log=Deaf()
    )
    async with Watched(setup):
        coming = asyncio.create_task(connect(config, certificates[NAMES[0]]))
        await came.wait()
    reader, writer = await coming
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 2) == b""
    writer.transport.abort()


@pytest.mark.parametrize(
    "data",
    [b"", b"x" * 300, FederationMessage(MessageKind.CHOICES, 1, b"").pack(), b"SAGG" + bytes(60)],
    ids=["empty", "garbage", "unasked", "secagg"],
)
async def test_server_hangs_up_on_a_client_that_talks_nonsense(
    certificates: dict[str, CertificateFiles], tmp_path: Path, data: bytes
) -> None:
    config = flaim_config(certificates, {"clients.wait_s": 2.0})

    async def nonsense() -> None:
        reader, writer = await connect(config, certificates[NAMES[2]])
        answer = await greet(config, reader, writer, rows=None)
        assert answer.kind is MessageKind.WELCOME
        await write_frame(writer, data, SERVER, timeout_s=10)
        with pytest.raises(FramePeerClosed):
            await read_until_closed(reader)
        writer.close()

    await play(config, certificates, tmp_path, {2: nonsense})
    found = result(tmp_path)
    assert found["rounds_done"] == 2
    # For what it said, and not for what it did not say when it was asked.
    assert "within" not in found["lost"]["clinic-c"]


async def test_server_says_what_is_wrong_before_it_listens(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    closed = asyncio.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    taken = f"127.0.0.1:{listener.getsockname()[1]}"
    for overrides, error, said in (
        ({"flaim.variant": "oracle"}, ConfigError, "pooled table"),
        (
            {"flaim.server": "someone"},
            CertificateError,
            "expected the certificate of flaim.server, 'someone'",
        ),
        ({"flaim.address": taken}, ConfigError, "cannot listen"),
        ({"flaim.noise": "distributed", "flaim.grouping": "query"}, ConfigError, "grouping"),
    ):
        config = flaim_config(certificates, overrides)
        with pytest.raises(error, match=said):
            await run_federated_server(
                config, tmp_path, progress=Events(), closed=closed, plan=flaim_plan(config)
            )
    listener.close()


async def test_server_gives_up_where_too_few_clients_come(
    certificates: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    config = flaim_config(certificates, {"clients.wait_s": 0.5})
    with pytest.raises(TooFewClients, match="0 of 6 clients came within"):
        await run_federated_server(
            config, tmp_path, progress=Events(), closed=asyncio.Event(), plan=flaim_plan(config)
        )
