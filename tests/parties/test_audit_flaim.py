"""The auditor on FLAIM servers: honest runs of every kind pass, and what a server cannot have done is found."""

import asyncio
import errno
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mechanisms.accounting import LedgerEntry, rho
from mechanisms.errors import MechanismError, RoundLost
from mechanisms.events import event_from_dict
from mechanisms.flaim import SumRequest
from mechanisms.flaim_messages import Brief
from parties.audit.html import render_audit
from parties.audit.runner import Audit, audit_folder
from parties.config import CertificateFiles, Config, agreed_digest
from parties.federation.transcript_schema import LEFT
from parties.foundation.errors import StoreError
from parties.identity.tls import make_certificates
from parties.methods.flaim.federation import NetworkFederation
from parties.methods.flaim.report import flaim_report
from parties.methods.flaim.transcript_schema import ROUND
from parties.report.from_result import read_result
from parties.session.study import Study
from parties.storage.database import Database
from parties.storage.privacy_ledger import LEDGER, DurableLedger
from parties.storage.requested_rounds import RequestedRounds
from protocols.fields import decode, encode
from protocols.transcript import Transcript, round_ended
from tests.parties.audit_runs import Lines
from tests.parties.flaim_support import (
    EVERY_STAGE,
    MALICIOUS,
    NAMES,
    SERVER,
    flaim_config,
    following,
    leaving,
    play,
)
from tests.parties.mesh import uniform_model
from tests.parties.support import make_config
from tests.parties.tampering import (
    doubling,
    dropping,
    edit_server,
    failed,
    find,
    flip,
    index,
    recount,
    setting,
)

Certificates = dict[str, CertificateFiles]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("flaim-certs"), [SERVER], [*NAMES, "stranger"])


def collect(config: Config, folder: Path, certificates: Certificates) -> Path:
    """Collects an auditor's folder."""
    run = folder / "run"
    (run / "transcripts").mkdir(parents=True)
    (run / "certificates").mkdir()
    shutil.copyfile(folder / "server" / "transcript.jsonl", run / "transcripts" / "server.jsonl")
    shutil.copyfile(certificates[SERVER].cert, run / "certificates" / f"{SERVER}.crt")
    shutil.copyfile(certificates[SERVER].ca, run / "certificates" / "ca.crt")
    (run / "config.toml").write_text(config.override({"tls": None}).resolved_toml())
    shutil.copyfile(folder / "server" / "synthetic.csv", run / "synthetic.csv")
    shutil.copytree(folder / "server" / "model", run / "model")
    result, workload = read_result(folder / "server"), config.build_workload()
    transcript = folder / "server" / "transcript.jsonl"
    report = flaim_report(
        Study(config, workload),
        result,
        dataset="test",
        wall_s={},
        trial=False,
        transcript=transcript,
    )
    (run / "report.json").write_text(json.dumps(report.to_dict()))
    return run


def assert_clean(run: Path) -> Audit:
    audit = audit_folder(run)
    assert failed(audit) == set(), [c for c in audit.checks if c.status == "fail"]
    assert audit.ok
    assert "opened to all" in render_audit(audit)
    return audit


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"flaim.noise": "distributed"},
        MALICIOUS,
        {"flaim.variant": "naive", "flaim.local_rounds": 2},
        {"flaim.variant": "random", "flaim.grouping": "query"},
        {"flaim.variant": "naivebayes", "flaim.sizes": "public"},
        {"flaim.grouping": "query", "clients.participation": 0.7, "flaim.sizes": "public"},
        {"run.schedule": "annealed", "run.rounds": None, "flaim.variant": "naive"},
        {"flaim.variant": "pairs", "flaim.noise": "distributed"},
        {"flaim.variant": "pairs", "clients.participation": 0.5},
        {"flaim.variant": "pairs", **MALICIOUS},
        {"flaim.variant": "pairs", "run.schedule": "annealed", "run.rounds": None},
        {"run.unit": "person", "run.rows_per_person": 3},
    ],
    ids=[
        "private",
        "distributed",
        "malicious",
        "naive",
        "random-by-query",
        "naivebayes",
        "by-query",
        "annealed",
        "pairs",
        "pairs-in-turns",
        "pairs-malicious",
        "pairs-in-as-many-rounds-as-hear-everybody",
        "persons",
    ],
)
async def test_audit_passes_an_honest_run(
    certificates: Certificates, tmp_path: Path, overrides: dict[str, object]
) -> None:
    config = flaim_config(certificates, overrides)
    await play(config, certificates, tmp_path)
    assert_clean(collect(config, tmp_path, certificates))


@pytest.mark.parametrize("stage", EVERY_STAGE)
async def test_audit_passes_a_run_whose_clients_leave(
    certificates: Certificates, tmp_path: Path, stage: str
) -> None:
    config = flaim_config(certificates)
    faults = {
        index: leaving(config, certificates, tmp_path, index, at=stage, round=1) for index in (1, 4)
    }
    await play(config, certificates, tmp_path, faults)
    assert_clean(collect(config, tmp_path, certificates))


async def test_audit_passes_a_run_that_begins_anew(
    certificates: Certificates, tmp_path: Path
) -> None:
    """The second attempt has what is left of the budget."""
    config = flaim_config(certificates, {"run.rounds": 4, "timeouts.receive_s": 2.0})
    gone = {
        i: leaving(config, certificates, tmp_path, i, at="flaim.layout", round=0) for i in range(4)
    }
    with pytest.raises(MechanismError):
        await play(config, certificates, tmp_path, gone)
    await play(config, certificates, tmp_path)
    run = collect(config, tmp_path, certificates)
    audit = assert_clean(run)
    assert audit.evidence is not None
    assert len(audit.evidence.transcripts[0].attempts) == 2


async def test_audit_passes_a_run_whose_clients_leave_between_choice_and_sum(
    certificates: Certificates, tmp_path: Path
) -> None:
    """One has chosen and is gone while another still chooses: it has dropped out, and the audit counts it as that."""
    config, gone = flaim_config(certificates), asyncio.Event()

    async def leave(_: asyncio.StreamReader) -> bool:
        gone.set()
        return True

    async def dawdle(_: asyncio.StreamReader) -> bool:
        await gone.wait()
        await asyncio.sleep(0.5)  # Sleeps: slow.
        return False

    brief = "flaim.brief"
    faults = {
        1: following(config, certificates, tmp_path, 1, at=brief, after=leave),
        2: following(config, certificates, tmp_path, 2, at=brief, before=dawdle),
    }
    await play(config, certificates, tmp_path, faults)
    audit = assert_clean(collect(config, tmp_path, certificates))
    assert audit.evidence is not None
    left = [
        (entry.text("client"), entry.number("round"))
        for attempt in audit.evidence.transcripts[0].attempts
        for entry in attempt.of("client")
        if not entry.record["accepted"]
    ]
    assert left == [(NAMES[1], 1)]


async def test_audit_passes_a_run_stopped_before_a_round_was_paid_for(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That round is in the transcript, and the next attempt ends before it."""
    random = {"run.rounds": 3, "flaim.variant": "random", "timeouts.receive_s": 3.0}
    config = flaim_config(certificates, random)

    async def choices(federation: NetworkFederation, brief: Brief) -> object:
        if brief.round == 2:
            raise OSError(errno.EIO, "stopped")
        return await original(federation, brief)

    async def nobody(_: NetworkFederation, round: int) -> object:
        raise RoundLost(f"round {round}: too few")

    original = NetworkFederation.choices
    with monkeypatch.context() as patch:
        patch.setattr(NetworkFederation, "choices", choices)
        with pytest.raises(StoreError, match="stopped"):
            await play(config, certificates, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(NetworkFederation, "begin_round", nobody)
        await play(config, certificates, tmp_path)
    assert_clean(collect(config, tmp_path, certificates))


@pytest.mark.parametrize("requested", [False, True])
async def test_audit_passes_turns_that_were_interrupted(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requested: bool
) -> None:
    """The next attempt goes on with the round that was not requested, and nobody is asked too often."""
    values = {"flaim.variant": "pairs", "run.rounds": 4, "clients.participation": 0.5}
    config = flaim_config(certificates, {**values, "timeouts.receive_s": 3.0})

    async def aggregate(federation: NetworkFederation, requests: Sequence[SumRequest]) -> object:
        if requests[0].layout.round == 3 and not requested:
            raise OSError(errno.EIO, "stopped")
        return await original(federation, requests)

    def enter(rounds: RequestedRounds, number: int, participants: Sequence[int]) -> None:
        entering(rounds, number, participants)
        if number == 3:
            raise OSError(errno.EIO, "stopped")

    original, entering = NetworkFederation.aggregate, RequestedRounds.enter
    with monkeypatch.context() as patch:
        patch.setattr(NetworkFederation, "aggregate", aggregate)
        patch.setattr(RequestedRounds, "enter", enter)
        with pytest.raises(StoreError, match="stopped"):
            await play(config, certificates, tmp_path)
    await play(config, certificates, tmp_path)
    run = collect(config, tmp_path, certificates)
    audit = assert_clean(run)
    assert audit.evidence is not None
    (first, second) = audit.evidence.transcripts[0].attempts
    charged = [{entry.number("round") for entry in each.of("ledger")} for each in (first, second)]
    assert charged == [{0, 2}, set()]
    begun = [[entry.number("round") for entry in each.notes(ROUND)] for each in (first, second)]
    assert begun == [[0, 2, 3], [4] if requested else [3, 4]]
    # Six clients, each in two of four sums of three: nobody was refused.
    assert not list(second.notes(LEFT))
    with Database(tmp_path / "server" / "store", config.digest(), LEDGER) as database:
        assert len(DurableLedger(database).entries) == 2 * 6
    if not requested:
        # The second attempt opens round 2 once more, in the place of round 3.
        edit_server(run, renumbered(3, 2), certificates[SERVER])
        assert "openings" in failed(audit_folder(run))


@pytest.mark.parametrize(
    ("charges", "overrides"),
    [
        (2, {}),
        (5, {"flaim.noise": "distributed"}),
        (6, {"flaim.variant": "naive", "flaim.local_rounds": 2}),
        (4, {"flaim.variant": "random", "flaim.grouping": "query"}),
    ],
)
async def test_audit_passes_a_run_killed_between_transcript_and_ledger(
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    charges: int,
    overrides: dict[str, object],
) -> None:
    config = flaim_config(certificates, {"run.rounds": 4, "timeouts.receive_s": 3.0, **overrides})
    made: list[LedgerEntry] = []

    def write(ledger: DurableLedger, entries: Sequence[LedgerEntry]) -> None:
        if ledger._database.directory.parent.name == "server":
            made.extend(entries)
            if len(made) == charges:
                raise StoreError(ledger._database.directory, "killed")
        original(ledger, entries)

    original = DurableLedger._write
    with monkeypatch.context() as patch:
        patch.setattr(DurableLedger, "_write", write)
        patch.setattr(Transcript, "close", lambda self, *_: self._file.close())
        with pytest.raises(StoreError, match="killed"):
            await play(config, certificates, tmp_path)
    with Database(tmp_path / "server" / "store", config.digest(), LEDGER) as database:
        assert DurableLedger(database).entries == made[:-1]
    await play(config, certificates, tmp_path)
    with Database(tmp_path / "server" / "store", config.digest(), LEDGER) as database:
        assert DurableLedger(database).entries[:charges] == made
    assert_clean(collect(config, tmp_path, certificates))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Path:
    folder = tmp_path_factory.mktemp("flaim")
    config = flaim_config(certificates)
    asyncio.run(play(config, certificates, folder))
    return collect(config, folder, certificates)


def without_a_charge(lines: Lines) -> None:
    dropping("ledger", round=1, step="measure")(lines)
    recount(lines)


def cheaper(lines: Lines) -> None:
    record = find(lines, "ledger", step="measure")
    record["event"]["sigma"] *= 2
    record["rho"] = rho(event_from_dict(record["event"]))
    recount(lines)


def opened_before_charged(lines: Lines) -> None:
    place = index(lines, "opened", what="flaim.sums", round=1)
    opened = lines.pop(place)
    first = index(lines, "ledger", step="measure", round=1)
    lines.insert(first, opened | {"t": lines[first]["t"]})


def another_choice(lines: Lines) -> None:
    """One client chose a query twice the usual number."""
    record = find(lines, "opened", what="flaim.choices")
    data = decode(record["value"])
    record["value"], record["count"] = encode(data + data[:8]), record["count"] + 1


def message_renumbered(lines: Lines) -> None:
    dropping("received", step="secagg.masked")(lines)
    number = 0
    for record in lines:
        if record["kind"] in ("sent", "received"):
            number += 1
            record["label"] = f"{number:016x}"


def lone_sum(lines: Lines) -> None:
    """All but two clients have dropped out before the sum."""
    place = index(lines, "opened", what="flaim.sums", round=1)
    for record in [r for r in lines if r["kind"] == "client" and r["round"] == 1][2:]:
        lines.insert(place, record | {"accepted": False, "reason": "gone", "t": lines[place]["t"]})


def other_config(lines: Lines) -> None:
    lines[0]["config"]["run"]["epsilon"] = 9.0
    lines[0]["config_sha256"] = agreed_digest(lines[0]["config"])


MANIPULATIONS: dict[str, tuple[Callable[[Lines], object], bool, str]] = {
    "bytes changed by a stranger": (setting("sent", "bytes", 1), False, "chains"),
    "charge dropped by a stranger": (dropping("ledger"), False, "chains"),
    "message hidden": (dropping("received", step="secagg.masked"), True, "messages"),
    "message hidden and renumbered": (message_renumbered, True, "traffic"),
    "message doubled": (doubling("sent"), True, "messages"),
    "message of an unknown kind": (setting("sent", "step", "flaim.raw"), True, "messages"),
    "message of a stranger": (setting("sent", "peer", 99), True, "messages"),
    "sum opened twice": (doubling("opened", what="flaim.sums"), True, "openings"),
    "choices opened twice": (doubling("opened", what="flaim.choices"), True, "openings"),
    "something else opened": (setting("opened", "what", "flaim.rows"), True, "openings"),
    "longer sum": (setting("opened", "count", lambda n: n + 1, what="flaim.sums"), True, "openings"),
    "choices of another length": (setting("opened", "value", flip, what="flaim.choices"), True, "openings"),
    "a client with more choices": (another_choice, True, "openings"),
    "charge left out": (without_a_charge, True, "charges"),
    "opened before it was charged": (opened_before_charged, True, "charges"),
    "charged for more noise": (cheaper, True, "ledger"),
    "charged too little": (setting("ledger", "rho", 1e-9), True, "ledger"),
    "charged as another step": (setting("ledger", "step", "select", step="measure"), True, "ledger"),
    "spent said to be less": (setting("ledger", "spent", 0.0, -1), True, "ledger"),
    "another budget in the header": (setting("header", "rho_total", 9.0), True, "ledger"),
    "another configuration": (other_config, True, "configuration"),
    "a stranger takes part": (setting("client", "client", "nobody"), True, "clients"),
    "another certificate": (setting("client", "digest", "0" * 64), True, "clients"),
    "a client counted twice": (doubling("client"), True, "clients"),
    "a sum of two": (lone_sum, True, "clients"),
    "a vector that never came": (
        setting("received", "step", "secagg.reveal", step="secagg.masked"), True, "clients",
    ),
    "fewer clients than listed": (setting("note", "clients", 1, what="round"), True, "clients"),
    "seal of a round left out": (dropping("seal", reason="round 1"), True, "completeness"),
    "more rounds in the end": (setting("note", "rounds", 7, what="finished"), True, "completeness"),
    "cut off": (lambda lines: lines.__delitem__(slice(-3, None)), False, "completeness"),
    "time goes back": (setting("opened", "t", 0), True, "clocks"),
    "note of an unknown kind": (setting("note", "what", "hint", what="round"), True, "form"),
}  # fmt: skip


@pytest.mark.parametrize("name", MANIPULATIONS)
def test_audit_catches(name: str, honest: Path, certificates: Certificates, tmp_path: Path) -> None:
    change, signed, expected = MANIPULATIONS[name]
    run = Path(shutil.copytree(honest, tmp_path / "copy"))
    edit_server(run, change, certificates[SERVER] if signed else None)
    audit = audit_folder(run)
    assert expected in failed(audit), [c for c in audit.checks if c.status == "fail"]
    assert not audit.ok
    render_audit(audit)


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Path:
    """Four rounds, of two of which each client is."""
    folder = tmp_path_factory.mktemp("turns")
    values = {"flaim.variant": "pairs", "run.rounds": 4, "clients.participation": 0.5}
    config = flaim_config(certificates, values)
    asyncio.run(play(config, certificates, folder))
    run = collect(config, folder, certificates)
    assert_clean(run)
    return run


def in_the_place_of_another(lines: Lines) -> None:
    """A client of round 3 takes the place of one in the last round, which has those that are not of round 3."""
    third, last = (
        {r["client"] for r in lines if r["kind"] == "client" and r["round"] == number}
        for number in (3, 4)
    )
    often, other = min(third), min(last)
    assert third.isdisjoint(last)
    digest = find(lines, "client", client=often)["digest"]
    for record in lines[index(lines, "note", what="round", round=4) :]:
        if record["kind"] == "client" and record["client"] == other:
            record |= {"client": often, "digest": digest}
        elif record["kind"] in ("sent", "received") and record["peer"] == NAMES.index(other):
            record["peer"] = NAMES.index(often)


def in_the_place_of_another_that_leaves(lines: Lines) -> None:
    """The same, but the client is said to leave, once the sum has its masked vector."""
    in_the_place_of_another(lines)
    start = index(lines, "note", what="round", round=4)
    there = {r["client"] for r in lines[:start] if r["kind"] == "client" and r["round"] == 3}
    at = next(n for n in range(start, len(lines)) if lines[n].get("client") in there)
    opened = index(lines, "opened", round=4)
    left = {**lines[at], "accepted": False, "reason": "the connection was lost"}
    lines.insert(opened + 1, left)


def one_turn_not_paid(lines: Lines) -> None:
    """The second round was lost, and nobody charged it; both turns were taken later."""
    lines[:] = [
        record
        for record in lines
        if not (record["kind"] in ("opened", "ledger") and record.get("round") == 2)
    ]
    recount(lines)


def renumbered(old: int, new: int) -> Callable[[Lines], object]:
    """A change that gives the round ``old`` the number ``new`` everywhere."""

    def change(lines: Lines) -> None:
        for record in lines:
            if record.get("round") == old:
                record["round"] = new
            if record.get("reason") == round_ended(old):
                record["reason"] = round_ended(new)

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (renumbered(4, 5), "openings"),
        (renumbered(2, 1), "openings"),
        (in_the_place_of_another, "clients"),
        (in_the_place_of_another_that_leaves, "clients"),
        (one_turn_not_paid, "charges"),
    ],
)
def test_audit_catches_a_turn_that_nobody_pays_for(
    change: Callable[[Lines], object],
    expected: str,
    turns: Path,
    certificates: Certificates,
    tmp_path: Path,
) -> None:
    run = Path(shutil.copytree(turns, tmp_path / "copy"))
    edit_server(run, change, certificates[SERVER])
    audit = audit_folder(run)
    assert expected in failed(audit), [c for c in audit.checks if c.status == "fail"]


async def test_audit_catches_a_sum_that_a_client_has_not_signed_for(
    certificates: Certificates, tmp_path: Path
) -> None:
    config = flaim_config(certificates, MALICIOUS)
    await play(config, certificates, tmp_path)
    run = collect(config, tmp_path, certificates)
    assert_clean(run)
    change = setting("received", "step", "secagg.reveal", step="secagg.signature")
    edit_server(run, change, certificates[SERVER])
    audit = audit_folder(run)
    assert "clients" in failed(audit)


def _cut(run: Path) -> None:
    lines = (run / "synthetic.csv").read_text().splitlines(keepends=True)
    (run / "synthetic.csv").write_text("".join(lines[: len(lines) // 2]))


def _reported(run: Path, section: str, **said: object) -> None:
    document = json.loads((run / "report.json").read_text())
    document[section] |= said
    (run / "report.json").write_text(json.dumps(document))


def _chosen(run: Path) -> None:
    document = json.loads((run / "report.json").read_text())
    document["selected"][0]["round"] += 1
    document["selected"][0]["query"] = ["sex"]
    (run / "report.json").write_text(json.dumps(document))


PUBLISHED: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "table cut": (_cut, {"published", "table"}),
    "another model": (
        lambda run: uniform_model(make_config().build_workload()).save(run / "model"),
        {"published"},
    ),
    "another epsilon": (lambda run: _reported(run, "parameters", epsilon=0.1), {"report"}),
    "another budget": (lambda run: _reported(run, "privacy", rho_total=0.1), {"report"}),
    "another choice": (_chosen, {"report"}),
    "another day": (lambda run: _reported(run, "about", ended="2020-01-01T00:00:00Z"), {"report"}),
    "another study": (lambda run: _reported(run, "about", configuration="0" * 64), {"report"}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_audit_catches_another_publication(name: str, honest: Path, tmp_path: Path) -> None:
    change, expected = PUBLISHED[name]
    run = Path(shutil.copytree(honest, tmp_path / "copy"))
    change(run)
    assert expected <= failed(audit_folder(run))


def test_forging_by_itself_is_not_what_is_caught(
    honest: Path, certificates: Certificates, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(honest, tmp_path / "copy"))
    edit_server(run, lambda lines: None, certificates[SERVER])
    audit = assert_clean(run)
    assert "One server wrote this transcript" in audit.limits[0]


def test_signature_of_a_client_is_not_the_servers(
    honest: Path, certificates: Certificates, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(honest, tmp_path / "copy"))
    edit_server(run, lambda lines: None, certificates[NAMES[0]])
    assert failed(audit_folder(run)) == {"signatures"}
