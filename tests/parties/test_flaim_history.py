"""A FLAIM server that is killed between rounds: what it keeps, and how it goes on."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mechanisms.flaim import FlaimMeasurement, FlaimRound, Participant
from parties.config import CertificateFiles, Config
from parties.federation.client import ParticipantReport
from parties.foundation.errors import StoreError
from parties.identity.tls import make_certificates
from parties.methods.flaim.history import RoundJournal
from parties.methods.flaim.settings import settings_of
from parties.storage.database import Database
from parties.storage.privacy_ledger import LEDGER, DurableLedger
from tests.parties.flaim_support import NAMES, SERVER, Events, codes_of, flaim_config, run_client
from tests.parties.test_audit_flaim import assert_clean, collect

ROUNDS = 8


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CertificateFiles]:
    return make_certificates(tmp_path_factory.mktemp("flaim-certs"), [SERVER], NAMES)


@pytest.fixture
def config(certificates: dict[str, CertificateFiles]) -> Config:
    return flaim_config(certificates, {"run.rounds": ROUNDS, "timeouts.connect_s": 60.0})


def round_of(config: Config, number: int, *candidates: int) -> FlaimRound:
    workload, rng = config.build_workload(), np.random.default_rng(number)
    measurements = []
    for place, candidate in enumerate(candidates):
        cells = workload.slice(candidate)
        noisy = rng.normal(size=cells.stop - cells.start)
        measurements.append(
            FlaimMeasurement(number, candidate, noisy, 0.1 + place, (0, 2), place == 0)
        )
    choosers = dict.fromkeys(candidates[1:], (0, 2))
    return FlaimRound(number, (0, 2, 5), choosers, tuple(measurements), lost=not candidates)


def assert_same(found: FlaimRound, expected: FlaimRound) -> None:
    for name in ("round", "participants", "choosers", "lost"):
        assert getattr(found, name) == getattr(expected, name)
    for ours, theirs in zip(found.measurements, expected.measurements, strict=True):
        assert (ours.noisy == theirs.noisy).all()
        for name in ("round", "candidate", "deviation", "contributors", "one_way"):
            assert getattr(ours, name) == getattr(theirs, name)


def test_history_gives_back_what_was_saved(config: Config, tmp_path: Path) -> None:
    workload, folder = config.build_workload(), tmp_path / "rounds"
    history = RoundJournal(folder, workload)
    assert (history.rounds, history.population) == ((), ())
    people = [Participant(0, 20), Participant(2, None), Participant(5, 0)]
    saved = [round_of(config, 0, 0, 1, 2), round_of(config, 1), round_of(config, 3, 2, 4)]
    for done in saved:
        history.save(done, people)
    # What a kill leaves beside the last round is not one.
    (folder / ".00003.round.0badc0de").write_bytes(b"{")
    again = RoundJournal(folder, workload)
    assert again.population == tuple(people)
    for found, expected in zip(again.rounds, saved, strict=True):
        assert_same(found, expected)
    again.mark_lost({0: (), 1: (), 3: (0,), 5: (0, 2), 4: ()})
    third = RoundJournal(folder, workload)
    assert [done.round for done in third.rounds] == [0, 1, 3, 4, 5]
    assert [done.round for done in third.rounds if done.lost] == [1, 4, 5]
    assert [done.participants for done in third.rounds[3:]] == [(), (0, 2)]
    assert third.population == tuple(people)
    third.clear()
    assert RoundJournal(folder, workload).rounds == ()


@pytest.mark.parametrize("place", [0, 40, -40, -1])
def test_history_refuses_a_damaged_round(config: Config, tmp_path: Path, place: int) -> None:
    workload = config.build_workload()
    RoundJournal(tmp_path, workload).save(round_of(config, 0, 0, 1), [])
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        RoundJournal(tmp_path, workload)


@contextlib.asynccontextmanager
async def server_process(config: Path, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """`syncret serve study`; whatever happens, it is not left running."""
    command = ["-m", "parties", "flaim-server", str(config), "--dir", str(folder), "--json"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def events_of(process: asyncio.subprocess.Process) -> AsyncIterator[dict]:
    assert process.stdout is not None
    async for line in process.stdout:
        yield json.loads(line)


@pytest.mark.parametrize("kill_after", [3, pytest.param(ROUNDS, marks=pytest.mark.slow)])
async def test_server_killed_between_rounds_goes_on_after_the_last_one(
    certificates: dict[str, CertificateFiles], config: Config, tmp_path: Path, kill_after: int
) -> None:
    path, folder = tmp_path / "flaim.toml", tmp_path / "server"
    path.write_text(config.resolved_toml())
    clients = [
        asyncio.create_task(
            run_client(config, codes_of(i), certificates[name], tmp_path / name, progress=Events())
        )
        for i, name in enumerate(NAMES)
    ]
    try:
        async with server_process(path, folder) as process:
            async for event in events_of(process):
                if event["event"] == "round-done" and event["done"] == kill_after:
                    break
            process.kill()
        first = RoundJournal(folder / "store" / "rounds", config.build_workload())
        with Database(folder / "store", config.digest(), LEDGER) as database:
            spent = DurableLedger(database).spent
        # The clients are still there, and come back by themselves.
        async with server_process(path, folder) as process:
            said = [event["text"] async for event in events_of(process)]
            assert await process.wait() == 0
        reports = await asyncio.gather(*clients)
    finally:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    last = first.rounds[-1].round
    found = json.loads((folder / "result.json").read_text())
    begun = last + 1 + len(found["lost_rounds"])
    assert any(f"going on with round {begun}, " in text for text in said)
    assert found["rounds_done"] == ROUNDS
    assert found["rho_earlier"] == pytest.approx(spent)
    # Only what was under way is lost; nothing that was released is asked for again.
    assert set(found["lost_rounds"]) <= {last + 1}
    assert [item["round"] for item in found["participants"]] == list(range(ROUNDS + 1))
    measured = [entry["round"] for entry in found["ledger"] if entry["step"] == "measure"]
    plan = settings_of(config).schedule(3)
    for number in range(2, last + 1):
        assert measured.count(number) == len(plan.events(number)) - 1
    costs = [Fraction(entry["rho"]) for entry in found["ledger"]]
    assert sum(costs) <= Fraction(found["rho_total"])
    # What was released before the kill is in the result.
    chosen = [
        [m.round, list(config.build_workload().candidates[m.candidate])]
        for done in first.rounds
        for m in done.measurements
        if not m.one_way
    ]
    assert len(chosen) >= 2
    assert [[s["round"], s["query"]] for s in found["selected"]][: len(chosen)] == chosen
    for report in reports:
        assert isinstance(report, ParticipantReport)
        assert report.finished
        assert report.connections == 2
        assert report.rho_spent <= report.rho_total
    run = collect(config, tmp_path, certificates)
    (run / "report.json").write_bytes((folder / "report.json").read_bytes())
    audit = assert_clean(run)
    assert audit.evidence is not None
    assert len(audit.evidence.transcripts[0].attempts) == 2
