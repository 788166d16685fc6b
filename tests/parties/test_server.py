"""Compute servers end to end: what they agree on, what they survive, and that a restart pays for nothing twice."""

import asyncio
import csv
import json
import math
import shutil
import socket
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import parties.crypto.hpke
import parties.mpc.computation
import parties.mpc.inputs.counts
import parties.mpc.server
import parties.mpc.session
import parties.mpc.submission.submit
import protocols.cells
import protocols.frames
from mechanisms.accounting import LedgerEntry, rho
from mechanisms.errors import BudgetExceeded
from mechanisms.events import ExponentialEvent, GaussianEvent
from mechanisms.gaussian_privacy import gaussian_budget
from mechanisms.workload import count_marginals
from parties.audit.checks.identity import completeness
from parties.audit.evidence import Evidence, MeshSession, TranscriptAttempt
from parties.audit.findings import CheckFailure
from parties.audit.runner import audit_folder
from parties.config import CHECKS, CertificateFiles, Config
from parties.foundation.errors import CertificateError, ConfigError, PartialSubmission, StoreError
from parties.foundation.exit_codes import TooFewClients
from parties.identity.tls import make_certificates
from parties.mpc.agreement import save_selection
from parties.mpc.computation import AimRounds
from parties.mpc.exclusion import Exclusion
from parties.mpc.planning.budget import make_plan
from parties.mpc.records import Checkpoint, RunningTotal, status_answer
from parties.mpc.server import run_mpc_server
from parties.mpc.steps import PASSED
from parties.mpc.storage.store import Store
from parties.mpc.submission.submit import submit
from parties.session.study import Study
from parties.storage.privacy_ledger import DurableLedger
from protocols.errors import (
    CheckFailed,
    ConfigurationError,
    ConnectTimeout,
    PeerClosed,
    ProtocolViolation,
    ReceiveTimeout,
)
from protocols.fields import decode
from protocols.upload import UploadParts
from tests.parties.audit_runs import collect
from tests.parties.mesh import EVERYONE, Cluster, Recording, make_uniform
from tests.parties.support import OWNERS, PARTIES, keys_of, make_codes, make_config


@pytest.fixture(autouse=True)
def _uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)


@pytest.fixture
def cluster(tmp_path: Path, certificates: dict[str, CertificateFiles]) -> Cluster:
    return Cluster(make_config(), tmp_path, certificates)


@pytest.fixture
def totals(monkeypatch: pytest.MonkeyPatch) -> dict[str, RunningTotal]:
    """Each server's last running total, by its folder's name, as it was before it was deleted."""
    kept: dict[str, RunningTotal] = {}

    def keep(store: Store, *args: Any, **kwargs: Any) -> None:
        pid = int(store.directory.parent.name[-1])
        if rounds := store.totals.rounds():
            kept[store.directory.parent.name] = store.totals.load(max(rounds), pid)
        real(store, *args, **kwargs)

    real = parties.mpc.session.discard_secrets
    monkeypatch.setattr(parties.mpc.session, "discard_secrets", keep)
    return kept


def ledgers(cluster: Cluster) -> list[Counter[LedgerEntry]]:
    found = []
    for pid in range(3):
        with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
            found.append(Counter(DurableLedger(store).entries))
    return found


def planned(config: Config) -> Counter[tuple[int, str]]:
    plan = make_plan(Study.of(config))
    return Counter(
        (number, "select" if isinstance(event, ExponentialEvent) else "measure")
        for number in range(plan.rounds + 1)
        for event in plan.events(number)
    )


def steps(ledger: Counter[LedgerEntry]) -> Counter[tuple[int, str]]:
    return Counter((entry.round, entry.step) for entry in ledger.elements())


def result(cluster: Cluster, pid: int = 0) -> dict[str, object]:
    document: dict[str, object] = json.loads((cluster.directory(pid) / "result.json").read_text())
    return document


async def test_run_in_small_parts_is_the_same_run_to_owners_and_auditor(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message too large for one frame, or one segment of a sealed part, travels in several: here all messages.

    And what are few cells counts as many, whose loops are compiled.
    """
    monkeypatch.setattr(protocols.cells, "MANY", 1)
    monkeypatch.setattr(protocols.cells, "_kernels", None)
    monkeypatch.setattr(protocols.frames, "PART_BYTES", 16)
    monkeypatch.setattr(parties.crypto.hpke, "SEGMENT_BYTES", 50)
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    found = audit_folder(collect(cluster, cluster.folder / "run"))
    assert [check for check in found.checks if check.status == "fail"] == []
    assert protocols.cells.kernels() is not None


@pytest.mark.parametrize("form", ["seeded", "plain"])
async def test_run_party_counts_everyone_and_charges_the_plan(
    tmp_path: Path,
    certificates: dict[str, CertificateFiles],
    totals: dict[str, RunningTotal],
    form: str,
) -> None:
    cluster = Cluster(make_config({"run.upload": form}), tmp_path, certificates)
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    workload = cluster.config.build_workload()
    shares = []
    for pid in range(3):
        with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
            total = totals[cluster.directory(pid).name]
            # In the order in which they came.
            assert (total.round, sorted(total.clients)) == (4, list(EVERYONE))
            shares.append(total.share)
            assert steps(Counter(DurableLedger(store).entries)) == planned(cluster.config)
            assert store.state.closed_to_clients
    for pid in range(3):
        assert np.array_equal(shares[pid].next, shares[(pid + 1) % 3].own)
    counts = np.concatenate([make_codes(20, seed) for seed in range(3)])
    summed = shares[0].own + shares[1].own + shares[2].own
    assert np.array_equal(summed, count_marginals(counts, workload))
    with (cluster.directory(0) / "synthetic.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {*rows[0]} == {"sex", "ward", "age"}
    assert result(cluster)["rounds_done"] == 4


async def test_run_party_opens_nothing_but_choices_and_noisy_counts(cluster: Cluster) -> None:
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    openings = []
    for pid in range(3):
        lines = (cluster.directory(pid) / "transcript.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        openings.append([r for r in records if r["kind"] == "opened"])
        # Every opening comes after the charge that pays for it, but for owners' bits, which are all 1.
        balance = 0
        for record in records:
            if record.get("what") == PASSED.what:
                assert decode(record["value"]) == np.ones(record["count"], "<u8").tobytes()
                continue
            balance += (record["kind"] == "ledger") - (record["kind"] == "opened")
            assert balance >= 0
        assert balance == 0
    strip = [[(r["round"], r["what"], r["count"], r["value"]) for r in o] for o in openings]
    assert strip[0] == strip[1] == strip[2]
    bits = [item[2] for item in strip[0] if item[1] == PASSED.what]
    assert sum(bits) == 3
    released = Counter(item[1] for item in strip[0] if item[1] != PASSED.what)
    assert released == {"measure.counts": 3 + 4, "select.index": 4}


@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.parametrize(
    ("event", "number"),
    [("connected", None), ("waiting", None), ("round", 0), ("round", 2), ("selected", 2)],
)
async def test_run_party_continues_after_the_last_finished_round_when_one_was_killed(
    cluster: Cluster, victim: int, event: str, number: int | None
) -> None:
    ended = await cluster.run(owners=EVERYONE, kill=(victim, event, number))
    assert all(error is not None for error in ended)
    again = Recording()
    assert await cluster.run(records={0: again}, owners=EVERYONE) == [None] * 3
    done = ledgers(cluster)
    assert done[0] == done[1] == done[2]
    # Paid for twice is at most what only one server held and what was charged next, and nothing at all where the kill
    # came between two releases.
    extra = steps(done[0]) - planned(cluster.config)
    assert extra.total() <= 2
    if number == 2:
        assert "going on after round 1 of 4" in again.texts
    budget = gaussian_budget(1.0, 1e-5)
    assert sum(e.rho for e in done[0].elements()) <= budget * (1 + 1e-9)
    done_rounds = result(cluster)["rounds_done"]
    assert 4 - extra.total() <= done_rounds <= (3 if extra else 4)


async def test_run_party_started_again_after_its_end_changes_no_result_and_passes_the_audit(
    cluster: Cluster,
) -> None:
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    table, before = cluster.directory(0) / "synthetic.csv", ledgers(cluster)
    published = table.read_bytes()
    assert await cluster.run() == [None] * 3
    assert table.read_bytes() == published
    assert ledgers(cluster) == before
    found = audit_folder(collect(cluster, cluster.folder / "run"))
    assert [check for check in found.checks if check.status == "fail"] == []
    # A round in a mesh between the two, whether or not that ended well, would be one too many.
    assert found.evidence is not None
    run, again = found.evidence.sessions
    between = MeshSession("between", (run.attempts[0], None, None))
    evidence = SimpleNamespace(
        transcripts=found.evidence.transcripts, sessions=[run, between, again]
    )
    with pytest.raises(CheckFailure, match="a round was run after all three"):
        completeness(cast("Evidence", evidence))


async def test_run_party_started_alone_after_the_end_passes_the_audit(cluster: Cluster) -> None:
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    for pids in ((1,), (0, 2)):
        assert None not in await cluster.run(pids=pids)
    found = audit_folder(collect(cluster, cluster.folder / "run"))
    assert [check for check in found.checks if check.status == "fail"] == []
    # What met somebody, on the other hand, would be the end.
    assert found.evidence is not None
    book = found.evidence.transcripts[1]
    book.attempts.append(
        TranscriptAttempt(1, book.attempts[-1].opening, book.attempts[0].entries[:1])
    )
    with pytest.raises(CheckFailure, match="does not end with the closing seal"):
        completeness(found.evidence)


async def test_run_party_enters_no_charge_that_one_server_alone_has(cluster: Cluster) -> None:
    """The attack: what one server claimed, all three had spent for good."""
    assert all(await cluster.run(owners=EVERYONE, kill=(1, "round", 2)))
    plan = make_plan(Study.of(cluster.config))
    with Store(cluster.directory(2) / "store", cluster.config.digest()) as store:
        ledger = DurableLedger(store, plan.rho, accountant=plan.accountant)
        ledger.charge(3, "measure", ledger.entries[-1].event, opening="ab" * 32)
    recording = Recording()
    ended = await cluster.run(owners=EVERYONE, records={0: recording})
    # Its own ledger keeps it, and cannot pay for the last round any more.
    assert isinstance(ended[2], StoreError)
    assert "neither other server has" in str(ended[2])
    assert "claimed" in recording.events
    done = ledgers(cluster)
    assert done[0] == done[1]
    assert not any(entry.opening == "ab" * 32 for entry in done[0])
    with Store(cluster.directory(2) / "store", cluster.config.digest()) as store:
        store.enter(
            "DELETE FROM ledger WHERE entry IN (SELECT entry FROM paid WHERE opening = ?)",
            [("ab" * 32,)],
        )
        store.enter("DELETE FROM paid WHERE opening = ?", [("ab" * 32,)])
    # One that only claims it goes on, and nobody has lost anything.
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    done = ledgers(cluster)
    assert done[0] == done[1] == done[2]
    assert steps(done[0]) == planned(cluster.config)
    assert result(cluster)["rounds_done"] == 4


def forget_after(cluster: Cluster, round: int, *pids: int, charges: bool = True) -> None:
    """Releases after a round, and with ``charges`` what was charged for them, are not in these servers' stores."""
    for pid in pids:
        with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
            for checkpoint in store.releases.checkpoints():
                if checkpoint.round > round:
                    store.releases.drop_checkpoint(checkpoint.round, checkpoint.candidate)
            for number in range(round + 1, 5):
                store.drop_meta(f"selected/{number}")
            if not charges:
                continue
            store.enter("DELETE FROM ledger WHERE round > ?", [(round,)])
            store.enter("DELETE FROM paid WHERE entry NOT IN (SELECT entry FROM ledger)", [()])


def noisy(cluster: Cluster, pid: int) -> list[tuple[int, int, list[float]]]:
    """Releases that a server holds."""
    with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
        return [(c.round, c.candidate, c.noisy.tolist()) for c in store.releases.checkpoints()]


@pytest.mark.parametrize("forgetful", [0, 1, 2])
async def test_run_party_adopts_a_round_that_two_servers_finished(
    cluster: Cluster, forgetful: int
) -> None:
    assert None not in await cluster.run(owners=EVERYONE, kill=(0, "writing", None))
    before = noisy(cluster, 0)
    # One server loses everything after round 2: as if it had been killed before it could save it.
    forget_after(cluster, 2, forgetful)
    assert await cluster.run() == [None] * 3
    assert [noisy(cluster, pid) for pid in range(3)] == [before] * 3
    done = ledgers(cluster)
    assert done[0] == done[1] == done[2]
    assert steps(done[0]) == planned(cluster.config)


@pytest.mark.parametrize("round", [-1, 3])
async def test_run_party_opens_again_the_same_that_one_server_alone_holds(
    cluster: Cluster, round: int
) -> None:
    """Opened or invented values look alike: they are opened again, the same, and nothing is charged twice."""
    assert None not in await cluster.run(owners=EVERYONE, kill=(0, "writing", None))
    before = noisy(cluster, 1)
    forget_after(cluster, round, 0, 2, charges=False)
    recording = Recording()
    assert await cluster.run(records={1: recording}) == [None] * 3
    assert any("only this server recorded" in text and "4" in text for text in recording.texts)
    assert [noisy(cluster, pid) for pid in range(3)] == [before] * 3
    found = audit_folder(collect(cluster, cluster.folder / "run"))
    assert [check for check in found.checks if check.status == "fail"] == []
    done = ledgers(cluster)
    assert done[0] == done[1] == done[2]
    assert steps(done[0]) == planned(cluster.config)


@pytest.mark.parametrize("liar", [0, 1])
async def test_run_party_uses_no_measurement_that_a_server_has_planted(
    cluster: Cluster, liar: int
) -> None:
    """The attack: a release that nobody opened, in a round that was interrupted; all three computed with it."""
    await cluster.run(owners=EVERYONE, kill=(2, "round", 2))
    workload = cluster.config.build_workload()
    planted = np.full(workload.domain.size(workload.candidates[4]), 1e6)
    with Store(cluster.directory(liar) / "store", cluster.config.digest()) as store:
        save_selection(store, 2, 4)
        store.releases.save_checkpoint(Checkpoint(2, 4, 1.0, 4, planted))
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    for pid in range(3):
        with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
            assert all(c.sigma != 1.0 and c.noisy.max() < 1e5 for c in store.releases.checkpoints())
    assert result(cluster)["rounds_done"] >= 3  # The interruption may have cost a release.


async def test_run_party_goes_on_with_what_two_servers_hold_where_the_third_holds_another_release(
    cluster: Cluster,
) -> None:
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    with Store(cluster.directory(1) / "store", cluster.config.digest()) as store:
        last = store.releases.checkpoints()[-1]
        store.releases.drop_checkpoint(last.round, last.candidate)
        store.releases.save_checkpoint(replace(last, noisy=last.noisy + 1))
    recordings = {pid: Recording() for pid in range(3)}
    assert await cluster.run(records=recordings) == [None] * 3
    for recording in recordings.values():
        assert any("values opened in round 4" in text for text in recording.texts)
    with Store(cluster.directory(1) / "store", cluster.config.digest()) as store:
        assert np.array_equal(store.releases.checkpoints()[-1].noisy, last.noisy)


async def test_run_party_refuses_to_overspend(cluster: Cluster) -> None:
    plan = make_plan(Study.of(cluster.config))
    cluster.directory(1).mkdir()
    with Store(cluster.directory(1) / "store", cluster.config.digest()) as store:
        event = GaussianEvent(1 / math.sqrt(2 * 0.9 * plan.rho))
        DurableLedger(store).adopt([LedgerEntry(0, "measure", event, rho(event), "ab" * 32)])
    ended = await cluster.run(owners=EVERYONE)
    assert isinstance(ended[1], StoreError)
    assert isinstance(ended[1].__cause__, BudgetExceeded)
    assert None not in ended
    for pid in range(3):
        assert '"kind":"opened"' not in (cluster.directory(pid) / "transcript.jsonl").read_text()


async def test_run_party_names_the_missing_server_within_the_deadline(cluster: Cluster) -> None:
    ended = await cluster.run(pids=(0, 1))
    for error in ended:
        assert isinstance(error, ConnectTimeout)
        assert "party 2 (party-2)" in str(error)
        assert "nothing listens there" in str(error)


async def test_run_party_tells_peers_why_it_left(cluster: Cluster) -> None:
    ended = await cluster.run(owners=EVERYONE, kill=(2, "round", 1))
    for pid in (0, 1):
        assert isinstance(ended[pid], PeerClosed)
        assert "party 2 has left" in str(ended[pid])


async def test_run_party_refuses_another_configuration(cluster: Cluster) -> None:
    configs = cluster.with_own_certificates()
    configs[2] = configs[2].override({"run.rounds": 5})
    ended = await cluster.run(configs=configs)
    assert any(isinstance(error, CheckFailed) for error in ended)
    failed = next(error for error in ended if isinstance(error, CheckFailed))
    assert "another configuration" in str(failed)
    assert "the same config file" in str(failed)


async def test_run_party_refuses_another_run(cluster: Cluster) -> None:
    configs = cluster.with_own_certificates()
    configs[2] = configs[2].override({"run.id": "other"})
    ended = await cluster.run(configs=configs)
    assert all(isinstance(error, ProtocolViolation | ConnectTimeout) for error in ended)


async def test_run_party_refuses_a_certificate_of_another_name(cluster: Cluster) -> None:
    configs = cluster.with_own_certificates(("party-0", "party-1", "clinic-a"))
    with pytest.raises(CertificateError, match=r"is for 'clinic-a'; expected .* 'party-2'"):
        await run_mpc_server(configs[2], 2, cluster.folder, progress=Recording(), closed=_never())


async def test_run_party_names_its_certificate_when_it_has_expired(
    cluster: Cluster, tmp_path: Path
) -> None:
    expired = make_certificates(tmp_path / "old", PARTIES, valid_days=-1)
    stale = Cluster(cluster.config, tmp_path, expired)
    with pytest.raises(CertificateError, match=r"(party-0|ca)\.crt: expired on"):
        await run_mpc_server(
            stale.with_own_certificates()[0], 0, tmp_path, progress=Recording(), closed=_never()
        )


@pytest.mark.parametrize("authority", ["another", "the same"])
async def test_run_party_names_the_peer_whose_certificate_is_not_its_own(
    cluster: Cluster, tmp_path: Path, authority: str
) -> None:
    """Signed by another authority, or by the run's own, whose holder issues a second one with another key."""
    folder = tmp_path / "other"
    folder.mkdir()
    if authority == "the same":
        for name in ("ca.crt", "ca.key"):
            shutil.copy(cluster.certificates[PARTIES[1]].ca.with_name(name), folder / name)
    strangers = make_certificates(folder, PARTIES)
    configs = cluster.with_own_certificates()
    own = Cluster(cluster.config, tmp_path, strangers).with_own_certificates()[1]
    with pytest.raises(CertificateError, match="the configuration expects"):
        await run_mpc_server(own, 1, tmp_path, progress=Recording(), closed=_never())
    # Nothing keeps the impostor from writing itself a configuration with its own key.
    parties = own.to_dict()["party"]
    assert isinstance(parties, list)
    parties[1] |= keys_of(strangers[PARTIES[1]])
    configs[1] = own.override({"party": parties})
    ended = await cluster.run(configs=configs)
    for pid in (0, 2):
        assert isinstance(ended[pid], ConnectTimeout)
        assert "party 1 (party-1)" in str(ended[pid])
        assert "certificate" in str(ended[pid])
    for pid in range(3):
        assert '"kind":"received"' not in (cluster.directory(pid) / "transcript.jsonl").read_text()


@pytest.mark.parametrize("end", ["mesh", "ingest"])
async def test_run_party_names_the_port_when_it_is_in_use(
    tmp_path: Path, certificates: dict[str, CertificateFiles], end: str
) -> None:
    config = make_config()
    address = getattr(config.parties[1], end)
    cluster = Cluster(config, tmp_path, certificates)
    cluster.directory(1).mkdir()
    with (
        socket.create_server((address.host, address.port)),
        pytest.raises((ConfigError, ConfigurationError), match=str(address.port)) as failure,
    ):
        await run_mpc_server(
            cluster.with_own_certificates()[1],
            1,
            cluster.directory(1),
            progress=Recording(),
            closed=_never(),
        )
    assert "free port" in str(failure.value)


async def test_run_party_names_the_folder_when_it_cannot_be_used(cluster: Cluster) -> None:
    (cluster.folder / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        await run_mpc_server(
            cluster.with_own_certificates()[0],
            0,
            cluster.folder / "file",
            progress=Recording(),
            closed=_never(),
        )


async def test_run_party_ends_when_too_few_clients_come(
    tmp_path: Path, certificates: dict[str, CertificateFiles]
) -> None:
    cluster = Cluster(make_config({"clients.wait_s": 2.0}), tmp_path, certificates)
    ended = await cluster.run(owners=EVERYONE[:1])
    assert any(isinstance(error, TooFewClients) for error in ended)
    for error in ended:
        # A server whose clock is behind hears it from another.
        assert isinstance(error, (TooFewClients, PeerClosed))
        assert "1 data owners are complete at all three servers" in str(error)
        assert "clients.minimum = 3" in str(error)


async def test_run_party_leaves_out_a_client_that_reached_two_servers(
    tmp_path: Path,
    certificates: dict[str, CertificateFiles],
    totals: dict[str, RunningTotal],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = make_config({"clients.minimum": 2, "clients.wait_s": 2.0})
    cluster = Cluster(config, tmp_path, certificates)
    running = asyncio.create_task(cluster.run(owners=EVERYONE[:2]))
    await asyncio.sleep(0.8)  # Sleeps: head start.
    honest = parties.mpc.submission.submit.seal_boxes

    def cheat(*arguments: object, **named: object) -> tuple[bytes, bytes, bytes]:
        first, second, third = honest(*arguments, **named)  # type: ignore[arg-type]
        return first, second, bytes(len(third))

    monkeypatch.setattr(parties.mpc.submission.submit, "seal_boxes", cheat)
    with pytest.raises(PartialSubmission) as caught:
        await submit(config, make_codes(20), certificates[OWNERS[3]])
    assert sorted(caught.value.reached) == ["party-0", "party-1"]
    assert "does not open" in str(caught.value)
    assert await running == [None] * 3
    for pid in range(3):
        total = totals[cluster.directory(pid).name]
        # In the order in which they came.
        assert (total.round, sorted(total.clients)) == (4, list(EVERYONE[:2]))
        with Store(cluster.directory(pid) / "store", config.digest()) as store:
            assert (store.submissions.upload_digest(OWNERS[3]) is None) == (pid == 2)
            asked = status_answer(store.records.find(OWNERS[3]), closed=True)
            assert asked == {"counted": False, "round": 4, "excluded": "incomplete"}
    # Everybody sees that it was server 2 who had no part of it.
    (left_out,) = cast("list[dict[str, object]]", result(cluster)["excluded"])
    assert (left_out["client"], left_out["by"]) == (OWNERS[3], [2])
    run = collect(cluster, tmp_path / "run")
    assert json.loads((run / "report.json").read_text())["excluded"][0]["by"] == [2]
    assert audit_folder(run).ok


async def test_run_party_drops_a_client_whose_components_differ(
    tmp_path: Path,
    certificates: dict[str, CertificateFiles],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = parties.mpc.inputs.counts.upload

    def cheat(counts: np.ndarray, form: str, seeds: object) -> UploadParts:
        parts = honest(counts, form, seeds)  # type: ignore[arg-type]
        first, second, third = parts.private
        if cheating:
            second = second[:-1] + bytes([second[-1] ^ 1])
        return replace(parts, private=(first, second, third))

    monkeypatch.setattr(parties.mpc.inputs.counts, "upload", cheat)
    for form in ("seeded", "plain"):
        config = make_config({"run.upload": form, "clients.minimum": 2})
        cluster = Cluster(config, tmp_path / form, certificates)
        cheating = False
        running = asyncio.create_task(cluster.run())
        await asyncio.sleep(0.5)
        await cluster.submit(EVERYONE[:2])
        cheating = True
        cluster.folder.mkdir(exist_ok=True)
        await cluster.submit(EVERYONE[2:])
        assert await running == [None] * 3
        for pid in range(3):
            text = (cluster.directory(pid) / "transcript.jsonl").read_text()
            clients = [
                record
                for line in text.splitlines()
                if (record := json.loads(line))["kind"] == "client"
            ]
            accepted = {r["client"]: (r["accepted"], r["reason"]) for r in clients}
            differ = (False, Exclusion.COMPONENTS_DIFFER)
            counted = dict.fromkeys(EVERYONE[:2], (True, ""))
            assert accepted == counted | {EVERYONE[2]: differ}
        audit = audit_folder(collect(cluster, cluster.folder / "run"))
        assert audit.ok


async def test_run_party_counts_clients_from_their_first_round_on(
    tmp_path: Path, certificates: dict[str, CertificateFiles]
) -> None:
    config = make_config({"clients.participation": 0.5, "clients.minimum": 1, "run.rounds": 3})
    cluster = Cluster(config, tmp_path, certificates)
    records = {0: Recording()}
    running = asyncio.create_task(cluster.run(records=records))
    await asyncio.sleep(0.5)  # Sleeps: head start.
    for number, owner in enumerate(EVERYONE, start=1):
        await submit(config, make_codes(20, number), certificates[owner], first_round=number)
    assert await running == [None] * 3
    counted = [text for text in records[0].texts if "counted" in text]
    assert [text.split(": ")[1].split()[0] for text in counted] == ["1", "1", "2", "3"]


@pytest.mark.parametrize("check", CHECKS)
async def test_run_party_counts_owners_without_rows(
    tmp_path: Path, certificates: dict[str, CertificateFiles], check: str
) -> None:
    """That there is nobody in its table is an owner's secret as any other count is: its bit says nothing of it."""
    cluster = Cluster(make_config({"run.rounds": 1, "run.check": check}), tmp_path, certificates)
    assert await cluster.run(owners=EVERYONE, codes=0) == [None] * 3
    assert [item["client"] for item in result(cluster)["counted"]] == [*EVERYONE]  # type: ignore[attr-defined]
    assert result(cluster)["excluded"] == []
    assert audit_folder(collect(cluster, tmp_path / "run")).ok


async def test_run_party_notices_a_silent_peer(
    tmp_path: Path, certificates: dict[str, CertificateFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config({"timeouts.receive_s": 1.0})
    cluster = Cluster(config, tmp_path, certificates)
    real = AimRounds.run

    async def silent(rounds: AimRounds, *arguments: object) -> object:
        if rounds.session.pid == 1:
            await asyncio.sleep(3)  # Sleeps: slow.
        return await real(rounds, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(AimRounds, "run", silent)
    ended = await cluster.run(owners=EVERYONE)
    for pid in (0, 2):
        assert isinstance(ended[pid], ReceiveTimeout | PeerClosed)
        assert "from party 1 for 1 s" in str(ended[pid])


def _never() -> "object":
    return asyncio.Event()
