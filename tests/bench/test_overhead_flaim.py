"""FLAIM's bytes: the simulation's messages and our formula against a deployed run through relays."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from bench.overhead.client import Population, Subject, formula_results
from bench.overhead.flaim import CONNECTION_BYTES, measure_flaim, replayed, replayed_wire
from bench.overhead.formula import Payload, flaim_formula
from bench.overhead.replay import (
    Terms,
    answered_cells,
    mean_payload,
    payloads,
    private_settings,
    replay,
)
from bench.overhead.upload import Relay
from mechanisms.domain import Domain, Integer
from mechanisms.workload import Workload, draw_workload
from parties.config import CertificateFiles
from parties.federation.client import ParticipantReport
from parties.federation.server import run_federated_server
from parties.identity.tls import make_certificates
from parties.local.flaim_simulation import simulate
from parties.methods.flaim.server import flaim_plan
from parties.methods.flaim.settings import settings_of
from parties.observability.events import Event
from secagg import ThreatModel
from tests.parties.flaim_support import NAMES, SERVER, Events, codes_of, flaim_config, run_client

FEW = 100
"""Bytes by which a connection's handshake may differ from another's: signatures vary, certificates' dates do."""


class Started(Events):
    """Says when the server listens."""

    def __init__(self) -> None:
        super().__init__()
        self.listening = asyncio.Event()

    def take(self, event: Event) -> None:
        super().take(event)
        if event.name == "listening":
            self.listening.set()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CertificateFiles]:
    return make_certificates(tmp_path_factory.mktemp("overhead-certs"), [SERVER], [*NAMES])


@pytest.mark.parametrize("grouping", ["union", "query"])
async def test_a_deployed_run_has_the_simulations_bytes_and_the_formulas_transport(
    certificates: dict[str, CertificateFiles], tmp_path: Path, grouping: str
) -> None:
    # A single query to choose: every run has the same messages.
    config = flaim_config(
        certificates,
        {"workload": {"queries": [["sex", "ward"]]}, "flaim.grouping": grouping},
    )
    tables = [codes_of(index) for index in range(len(NAMES))]
    workload = config.build_workload()
    expected = await measure_flaim(workload, tables, settings_of(config), seed=1)
    address = config.require_flaim().address
    assert address is not None
    relays = [Relay(address.port) for _ in NAMES]
    for relay in relays:
        await relay.__aenter__()

    async def one(index: int) -> ParticipantReport:
        name = NAMES[index]
        dialled = config.override({"flaim.address": f"127.0.0.1:{relays[index].port}"})
        return await run_client(
            dialled, tables[index], certificates[name], tmp_path / name, progress=Events()
        )

    (tmp_path / "server").mkdir()
    started = Started()
    server = asyncio.create_task(
        run_federated_server(
            config,
            tmp_path / "server",
            progress=started,
            closed=asyncio.Event(),
            plan=flaim_plan(config),
        )
    )
    await started.listening.wait()
    reports = await asyncio.gather(*(one(index) for index in range(len(NAMES))))
    await server
    for relay in relays:
        await relay.settled()
        await relay.__aexit__(None, None, None)
    assert all(relay.counted.connections == 1 for relay in relays)
    wires = [relay.counted.total for relay in relays]
    assert max(wires) - min(wires) <= FEW
    # A record for every 16 KB is counted, and messages of so few members do not fill one: a part in 700 too many.
    assert abs(np.mean(wires) - expected.wire) <= FEW + expected.wire / 700
    # Frames are the simulation's messages, and what only a connection has.
    frames = np.mean([report.sent_bytes + report.received_bytes for report in reports])
    assert expected.sent + expected.received < frames < expected.wire


# Formula and replay


def workload() -> Workload:
    sizes = (6, 5, 8, 2, 3)
    return draw_workload(Domain(tuple(Integer(f"c{i}", 0, n - 1, n) for i, n in enumerate(sizes))))


def tables(clients: int, rows: int) -> list[np.ndarray]:
    generator = np.random.default_rng(5)
    shape = workload().domain.shape
    return [generator.integers(0, shape, (rows, 5)).astype(np.int32) for _ in range(clients)]


@pytest.mark.parametrize("grouping", ["union", "query"])
async def test_each_members_bytes_are_the_formulas(grouping: str) -> None:
    settings = private_settings(4, participation=0.5, max_rows=640, grouping=grouping)
    asked = workload()
    outcome = await simulate(tables(16, 40), asked, settings, secagg=True, seed=3)
    terms = Terms(640, ThreatModel(corrupt=0.05))
    moved = {(t.round, t.client): t for t in outcome.traffic}
    for record in outcome.result.rounds:
        found = payloads(asked, replayed(record, settings), grouping, terms)
        assert set(found) == set(record.participants)
        for client, payload in found.items():
            traffic = moved[record.round, client]
            # Headers of a deployed connection are in the formula; the ring's room for noise and the model are not. In
            # a sum with an odd number of neighbours half of the members make a pair secret more, and get one less.
            half = 2 * 570
            assert abs(payload.sent - traffic.sent) <= 40 + half + 0.02 * traffic.sent
            model = 4 * sum(asked.offsets[-1:])
            least, most = payload.received - 300 - half, payload.received + model + half
            assert least <= traffic.received <= most


def test_a_replay_obeys_the_rules_of_a_run() -> None:
    asked = workload()
    settings = private_settings(6, participation=0.3, max_rows=1000)
    run = replay(asked, settings, clients=20, rows=50)
    assert len(run) == 7
    assert [done.one_way for done in run] == [True, False, True, True, True, True, True]
    assert not run[0].choosers
    for done in run[1:]:
        chosen = [client for clients in done.choosers.values() for client in clients]
        assert sorted(chosen) == list(done.members)
        assert len(done.members) >= 3
        assert all(len(asked.candidates[q]) > 1 for q in done.choosers)
        assert done.model_cells >= sum(asked.domain.shape) / 2
        one_way = sum(asked.domain.shape) if done.one_way else 0
        assert min(answered_cells(asked, done).values()) > one_way


def test_a_replay_says_what_measured_clients_need() -> None:
    asked = workload()
    settings = private_settings(8, participation=0.3, max_rows=1200)
    measured = asyncio.run(measure_flaim(asked, tables(30, 40), settings, seed=2))
    run = replay(asked, settings, clients=30, rows=40)
    mean = mean_payload(asked, run, "union", Terms(1200, ThreatModel(corrupt=0.05)))
    assert mean.sent + mean.received == pytest.approx(measured.sent + measured.received, rel=0.25)
    assert mean.cells == pytest.approx(measured.cells, rel=0.25)


@pytest.mark.parametrize("grouping", ["union", "query"])
def test_a_replays_wire_has_what_a_deployed_connection_adds(grouping: str) -> None:
    asked, terms = workload(), Terms(1200, ThreatModel(corrupt=0.05))
    settings = private_settings(8, participation=0.3, max_rows=1200, grouping=grouping)
    measured = asyncio.run(measure_flaim(asked, tables(30, 40), settings, seed=2))
    run = replay(asked, settings, clients=30, rows=40)
    wire = replayed_wire(asked, run, grouping, terms)
    assert wire == pytest.approx(measured.wire, rel=0.2)
    # The measured messages are without headers and places; in both, a round's messages have some hundred bytes around.
    mean = mean_payload(asked, run, grouping, terms)
    each = (wire - CONNECTION_BYTES - mean.sent - mean.received) / mean.rounds
    known = measured.wire - CONNECTION_BYTES - measured.sent - measured.received
    assert each == pytest.approx(known / measured.rounds, abs=80)
    assert each > 100


def test_the_formula_of_a_run_to_come_is_near_that_of_a_run() -> None:
    rows = tables(30, 40)
    subject = Subject("made up", workload(), 30 * 40, np.concatenate(rows))
    settings = private_settings(8, participation=0.3, max_rows=1200)
    run = asyncio.run(measure_flaim(subject.workload, rows, settings, seed=4))
    measured = flaim_formula(run.cells, run.model_cells)
    for result in formula_results(subject, [8], Population(30, 0.3)):
        if result.method == "flaim":
            assert result.formula == pytest.approx(measured, rel=0.3)


def test_payloads_add_up() -> None:
    assert Payload(1, 2, 3, 4) + Payload(10, 20, 30, 40) == Payload(11, 22, 33, 44)
