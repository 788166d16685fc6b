"""Three services in one process, over their real ports, with processes of studies that do what the test says."""

import asyncio
import contextlib
import datetime
import gc
import io
import json
import shutil
import sqlite3
import threading
import time
import weakref
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from aiohttp.test_utils import TestClient, TestServer
from rich.console import Console
from sqlalchemy.exc import OperationalError

from parties.config import load_config
from parties.foundation.errors import CertificateError, ConfigError, StoreError
from parties.identity.join_documents import load_server_card
from parties.identity.study_setup import CERTIFICATES, create_study
from parties.identity.tls import Authority
from parties.observability.failure_causes import Cause, Obstacle
from parties.observability.status_text import print_status
from parties.service import (
    known_studies,
    peer_answers,
    reconciliation,
    secret_deletion,
    study_fetcher,
)
from parties.service import main as serve_module
from parties.service import peer_state as statement_module
from parties.service import service as service_module
from parties.service.api import service_application
from parties.service.closed_studies import closed_study_answer
from parties.service.console.view import overview_values, render
from parties.service.database import database_errors, database_url, open_service_database
from parties.service.identity import ServerFile, ServiceIdentity, join_servers
from parties.service.known_studies import UnknownStudy
from parties.service.operators_log import OperatorsLog, check_log
from parties.service.peer_state import StudySnapshot
from parties.service.peer_sync import Peer
from parties.service.retention import BUNDLE
from parties.service.service import Service, WrongStudyState
from parties.service.studies import StudyRepository, utc_now
from parties.service.study_intake import (
    MAX_DOCUMENT_BYTES,
    MAX_PROPOSAL_BYTES,
    Proposal,
    ProposalRefused,
    StudyFolder,
    check_proposal,
    make_study_folder,
    new_card,
    remove_unfinished,
)
from parties.service.study_record import StudyState
from tests.parties.openapi import check_answer
from tests.parties.serving import SERVERS, make_identities
from tests.parties.small import write_small
from tests.postgres import postgresql
from tests.until import eventually


class Process:
    """In the place of a study's process; it is at work until a test says otherwise."""

    def __init__(
        self, study: Any, place: Any, *, on_change: Callable[[], None], **rest: object
    ) -> None:
        self.study = study
        self.state = StudyState.RUNNING
        self.outcome: tuple[StudyState, str] | None = None
        self.calling = False
        self.text = "at work"
        self.obstacle: Obstacle | None = None
        self.restarts = 0
        self.next_try_at: float | None = None
        self.process = 1
        self.stopped = False
        self._on_change = on_change

    def end(self, state: StudyState, reason: str = "") -> None:
        self.outcome = (state, reason)
        self._on_change()

    async def stop(self) -> None:
        self.stopped = True


@dataclass
class Three:
    """Three services that talk to one another, and a coordinator's authority."""

    folder: Path
    services: list[Service]
    identities: list[ServiceIdentity]
    processes: dict[tuple[str, str], Process] = field(default_factory=dict)

    async def until(self, holds: Callable[[], object]) -> None:
        await eventually(holds)

    async def until_states(self, digest: str, *states: str) -> None:
        def there() -> bool:
            found = [s.studies[digest].state for s in self.services if digest in s.studies]
            return [str(state) for state in found] == list(states * (3 // len(states)))

        try:
            await self.until(there)
        except TimeoutError:
            found = [s.studies.get(digest) for s in self.services]
            raise AssertionError([(s.state, s.reason) if s else None for s in found]) from None

    async def proposal(self, run: str) -> dict[str, Any]:
        cards = []
        for number, text in enumerate(await self.services[0].cards("distaim")):
            cards.append(self.folder / f"{run}-{number}.card")
            cards[-1].write_text(text)
        return document(self.folder, run, cards)

    async def propose(self, run: str) -> str:
        study = await self.services[0].propose(await self.proposal(run), "operator")
        await self.until_states(study.digest, "proposed")
        return study.digest

    async def approved(self, run: str) -> str:
        digest = await self.propose(run)
        for service in self.services:
            await service.approve(digest, "operator")
        return digest


def document(folder: Path, run: str, cards: Sequence[Path], **changes: str) -> dict[str, Any]:
    """Document that `syncret study propose` sends for a study with these cards."""
    path, _ = write_small(folder)
    text = path.read_text().replace('id = "small"', f'id = "{run}"')
    for old, new in changes.items():
        text = text.replace(f"\n{old} = ", f"\n{old} = {new} #")
    path = folder / f"{run}.toml"
    path.write_text(text)
    out = folder / f"study-{run}"
    create_study(path, cards, authority=folder / "authority", out=out, valid_days=9)
    certificates = {item.name: item.read_text() for item in (out / CERTIFICATES).iterdir()}
    return {"config": load_config(out / path.name).resolved_toml(), "certificates": certificates}


@contextlib.asynccontextmanager
async def three_services(
    folder: Path, *, limit: int = 2, alphas: str | None = None
) -> AsyncIterator[Three]:
    """``alphas`` is the URL of alpha's database, if that is no file."""
    Authority.make(folder / "authority", 10)
    identities = [ServiceIdentity.load(path) for path in make_identities(folder)]
    async with contextlib.AsyncExitStack() as stack:
        services = []
        for identity in identities:
            variable = alphas if identity.pid == 0 else None
            url = database_url(identity.folder, variable=variable)
            engine = stack.enter_context(open_service_database(url, identity.own.key))
            book = StudyRepository(engine, identity.folder, OperatorsLog(identity))
            services.append(Service(identity, book, limit=limit))
            await stack.enter_async_context(services[-1])
        running = [asyncio.create_task(service.run()) for service in services]
        three = Three(folder, services, identities)
        try:
            await three.until(
                lambda: all(
                    p.statement and not p.problem for s in services for p in s.peers.values()
                )
            )
            yield three
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


@pytest.fixture
async def three(tmp_path: Path, processes: dict[tuple[str, str], Process]) -> AsyncIterator[Three]:
    async with three_services(tmp_path) as services:
        services.processes = processes
        yield services


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Process]:
    """The stand-ins for studies' processes, by server and study."""
    made: dict[tuple[str, str], Process] = {}

    def process(study: Any, place: Any, **rest: Any) -> Process:
        owner = place.folder.name
        made[owner, study.digest] = Process(study, place, **rest)
        return made[owner, study.digest]

    monkeypatch.setattr(service_module, "Worker", process)
    monkeypatch.setattr(reconciliation, "POLL_S", 0.05)
    return made


async def test_a_study_runs_once_all_three_have_approved_it(three: Three) -> None:
    digest = await three.propose("stays")
    for service in three.services[:2]:
        await service.approve(digest, "operator")
    await asyncio.sleep(0.3)  # Sleeps: quiet.
    await three.until_states(digest, "approved", "approved", "proposed")
    assert three.processes == {}
    await three.services[2].approve(digest, "operator")
    await three.until_states(digest, "running")
    assert {service.studies[digest].turn for service in three.services} == {1}
    for process in three.processes.values():
        process.end(StudyState.FINISHED)
    await three.until_states(digest, "finished")
    kept = three.services[1].studies.repository.studies()
    assert [(study.digest, study.state) for study in kept] == [(digest, StudyState.FINISHED)]
    entries = three.services[1].studies.repository.entries(digest)
    what = [entry.to_dict()["what"] for entry in entries]
    assert what == ["proposed", *["approved"] * 3, "queued", "started", "running", "finished"]


async def test_a_service_with_postgresql_runs_studies_with_those_with_files(
    tmp_path: Path, processes: dict[tuple[str, str], Process]
) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with postgresql() as url:
        async with three_services(tmp_path, alphas=url) as three:
            digest = await three.approved("stays")
            await three.until_states(digest, "running")
            for process in processes.values():
                process.end(StudyState.FINISHED)
            await three.until_states(digest, "finished")
            kept = {study.digest: study for study in three.services[0].studies.repository.studies()}
            assert kept[digest].approvals == set(SERVERS)
            page = three.services[0].studies.repository.log_page(0, 1_000)
            log = check_log([*page.lines, str(page.seal)], server=three.identities[0].own)
            assert {"study.proposed", "study.finished"} < {each["event"] for each in log.entries}
            assert not (three.identities[0].folder / "service.sqlite").exists()


async def test_a_third_study_has_its_turn_when_one_is_over(three: Three) -> None:
    digests = [await three.approved(f"run-{number}") for number in range(3)]
    for digest in digests[:2]:
        await three.until_states(digest, "running")
    await three.until_states(digests[2], "queued")
    for name in SERVERS:
        three.processes[name, digests[0]].end(StudyState.FINISHED)
    await three.until_states(digests[2], "running")
    await three.until_states(digests[0], "finished")


async def test_a_failure_at_one_server_ends_it_at_all_and_three_approvals_try_again(
    three: Three,
) -> None:
    digest = await three.approved("stays")
    await three.until_states(digest, "running")
    three.processes["beta", digest].end(StudyState.FAILED, "the disk is full")
    await three.until_states(digest, "failed")
    assert three.services[0].studies[digest].reason.endswith("beta: the disk is full")
    assert three.processes["alpha", digest].stopped
    for service in three.services[:2]:
        await service.approve(digest, "operator")
    await asyncio.sleep(0.3)  # Sleeps: quiet.
    await three.until_states(digest, "queued", "queued", "failed")
    await three.services[2].approve(digest, "operator")
    await three.until_states(digest, "running")
    assert three.services[0].studies[digest].turn == 2


async def test_one_operator_cancels_for_all_and_the_sealing_keys_go(three: Three) -> None:
    digest = await three.approved("stays")
    await three.until_states(digest, "running")
    seals = [service.studies.folder(service.studies[digest]).seal for service in three.services]
    assert all(seal.exists() for seal in seals)
    await three.services[2].cancel(digest, "operator", "wrong columns")
    await three.until_states(digest, "cancelled")
    for service in three.services:
        # Heard from alpha or beta, it is said so.
        assert service.studies[digest].reason.endswith("cancelled by gamma: wrong columns")
    await three.until(lambda: not any(seal.exists() for seal in seals))
    with pytest.raises(WrongStudyState, match="it is cancelled"):
        await three.services[0].approve(digest, "operator")
    with pytest.raises(WrongStudyState):
        await three.services[0].cancel(digest, "operator")


async def test_a_server_that_has_ended_helps_one_that_has_not(three: Three) -> None:
    digest = await three.approved("stays")
    await three.until_states(digest, "running")
    for name in ("alpha", "beta"):
        three.processes[name, digest].end(StudyState.FINISHED)
    await three.until_states(digest, "finished", "finished", "running")
    before = dict(three.processes)
    three.processes["gamma", digest].calling = True
    three.services[2].studies.changes.touch()
    await three.until(lambda: three.processes["alpha", digest] is not before["alpha", digest])
    await three.until(lambda: three.processes["beta", digest] is not before["beta", digest])
    for process in three.processes.values():
        process.end(StudyState.FINISHED)
    await three.until_states(digest, "finished")


async def test_a_peer_of_another_version_is_named_and_nothing_starts(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = await three.propose("stays")
    statement = three.services[1].answers.statement

    def newer() -> Any:
        return replace(statement(), program="9.9.9, messages 99")

    monkeypatch.setattr(three.services[1].answers, "statement", newer)
    for service in three.services:
        await service.approve(digest, "operator")
    peer = three.services[0].peers[1]
    await three.until(lambda: "9.9.9, messages 99" in peer.problem)
    assert "expected the same at all three" in peer.problem
    await asyncio.sleep(0.3)  # Sleeps: quiet.
    assert three.processes == {}
    async with api(three.services[0]) as client:
        status = await (await client.get("/status")).json()
        assert [t[:44] for t in status["troubles"]] == [
            "beta: it and another server have different v"
        ]
        monkeypatch.setattr(three.services[1].answers, "statement", statement)
        await three.until_states(digest, "running")
        status = await (await client.get("/status")).json()
        assert status["troubles"] == []


async def test_a_study_that_does_not_fit_is_refused_with_words_at_every_door(three: Three) -> None:
    alpha, beta, _ = three.identities
    proposal = await three.proposal("stays")
    certificates = proposal["certificates"]
    config: str = proposal["config"]
    own_key = f'key = "{alpha.own.key}"'
    bad: list[tuple[dict[str, Any], str]] = [
        ({}, "a proposal has config"),
        ({"config": 1, "certificates": {}}, "a proposal has config"),
        (proposal | {"config": "= ="}, "is not valid TOML"),
        (proposal | {"config": "x" * (MAX_PROPOSAL_BYTES + 1)}, "more than"),
        (proposal | {"config": config.replace("[run]", "[ran]")}, "unknown section"),
        (proposal | {"config": config.replace(own_key, f'key = "{"0" * 64}"')}, "another key"),
        (proposal | {"config": config.replace('"alpha"', '"delta"')}, "'delta'"),
        (proposal | {"config": config.replace(str(beta.own.mesh), "10.0.0.1:7")}, "its server's"),
        (proposal | {"certificates": {}}, "is not among the certificates"),
        (proposal | {"certificates": certificates | {"beta.crt": "no"}}, "is not an X.509"),
        (
            proposal | {"certificates": certificates | {"beta.crt": certificates["gamma.crt"]}},
            "is for 'gamma'",
        ),
        (proposal | {"config": config.replace("epsilon = 2.0", "epsilon = -1")}, "run.epsilon"),
    ]
    for document_, says in bad:
        with pytest.raises(ProposalRefused, match=says):
            await three.services[0].propose(document_, "operator")
    assert three.services[0].studies == {}


async def test_a_card_is_for_one_study(three: Three) -> None:
    proposal = await three.proposal("stays")
    await three.services[0].propose(proposal, "operator")
    again = {**proposal, "config": proposal["config"].replace("rounds = 3", "rounds = 2")}
    with pytest.raises(ProposalRefused, match="no sealing key that waits"):
        await three.services[0].propose(again, "operator")
    # Proposed twice, the same is the same.
    await three.services[0].propose(proposal, "operator")
    assert len(three.services[0].studies) == 1


@pytest.mark.parametrize("renames", range(5))
@pytest.mark.parametrize("other", [False, True])
async def test_a_study_and_a_card_that_a_kill_left_half_made_are_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int, *, other: bool
) -> None:
    """After any last renaming, the study is accepted when it is proposed again, or another one in its place."""
    identity, proposal = one_proposal(tmp_path)
    rename, left = Path.rename, iter(range(renames))

    def killed(path: Path, to: Path) -> Path:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return rename(path, to)

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(Path, "rename", killed)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        make_study_folder(identity, proposal)
        new_card(identity, "distaim")
    remove_unfinished(identity)
    assert not list(identity.folder.glob("*/.*"))
    if other:
        proposal = replace(proposal, config=proposal.config.override({"run.rounds": 2}))
    place = make_study_folder(identity, proposal)
    seals = [path for path in identity.folder.rglob("own.seal") if "studies" in path.parts]
    assert seals == [place.seal]
    assert load_config(place.config).digest() == place.digest


def one_proposal(folder: Path) -> tuple[ServiceIdentity, Proposal]:
    """Of a study among three, as the first one sees it."""
    Authority.make(folder / "authority", 10)
    folders = make_identities(folder)
    cards = []
    for at in folders:
        cards.append(folder / f"{at.name}.card")
        cards[-1].write_text(new_card(ServiceIdentity.load(at), "distaim"))
    identity = ServiceIdentity.load(folders[0])
    return identity, check_proposal(document(folder, "stays", cards), identity)


def test_a_key_in_a_known_study_or_a_damaged_one_waits_for_no_other(tmp_path: Path) -> None:
    identity, proposal = one_proposal(tmp_path)
    place = make_study_folder(identity, proposal)
    other = replace(proposal, config=proposal.config.override({"run.rounds": 2}))
    with pytest.raises(ProposalRefused, match="no sealing key that waits"):
        make_study_folder(identity, other, {str(place.path)})
    place.work.mkdir()
    with pytest.raises(ProposalRefused, match="no sealing key that waits"):
        make_study_folder(identity, other)
    place.work.rmdir()
    place.seal.write_bytes(b"")
    remove_unfinished(identity)
    with pytest.raises(ProposalRefused, match="no sealing key that waits"):
        make_study_folder(identity, other)
    assert place.seal.exists()


def test_a_study_whose_digest_begins_as_anothers_is_refused(tmp_path: Path) -> None:
    identity, proposal = one_proposal(tmp_path)
    place = make_study_folder(identity, proposal)
    other = proposal.config.override({"run.epsilon": 9.0})
    place.config.write_text(replace(proposal, config=other).text)
    with pytest.raises(ProposalRefused, match="is of another study"):
        make_study_folder(identity, proposal)
    place.config.write_text("[run")
    with pytest.raises(ProposalRefused, match="cannot be read"):
        make_study_folder(identity, proposal)


async def test_a_start_with_another_database_costs_a_study_nothing(tmp_path: Path) -> None:
    """One that waits for its turn is there, with its key, when the right one is back."""
    identity, proposal = one_proposal(tmp_path)
    place = make_study_folder(identity, proposal)
    before = sorted(identity.folder.rglob("*"))
    with open_service_database(database_url(identity.folder), identity.own.key) as engine:
        book = StudyRepository(engine, identity.folder)
        async with Service(identity, book, limit=1, register=tmp_path / "register.sqlite"):
            pass
    assert [path for path in before if not path.exists()] == []
    assert place.seal.exists()


def test_what_an_operator_keeps_beside_studies_and_cards_stays(tmp_path: Path) -> None:
    folder, *_ = make_identities(tmp_path)
    identity, theirs = ServiceIdentity.load(folder), []
    for within in (folder / "studies", folder / "cards"):
        theirs += [within / name for name in (".snapshot", "copy of a study", "old")]
        for path in theirs[-3:]:
            path.mkdir(parents=True)
        theirs.append(within / ".notes")
        theirs[-1].write_text("mine")
    remove_unfinished(identity)
    assert all(path.exists() for path in theirs)


async def test_what_others_propose_decides_nothing_that_is_each_servers_own(three: Three) -> None:
    proposal = await three.proposal("stays")
    text = proposal["config"].replace("record_replay = false", "record_replay = true")
    text = text.replace('dask = ""', 'dask = "tcp://198.51.100.7:8786"')
    assert "198.51.100.7" in text
    study = await three.services[0].propose(proposal | {"config": text}, "operator")
    kept = load_config(three.services[0].studies.folder(study).config)
    assert kept.compute.dask == ""
    assert not kept.run.record_replay
    assert kept.digest() == study.digest


async def test_another_server_names_why_it_takes_a_study_not(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposal = await three.proposal("stays")
    # Beta's key for it is gone.
    for card in (three.identities[1].folder / "cards").iterdir():
        card.rename(card.with_name(f"gone-{card.name}"))
    study = await three.services[0].propose(proposal, "operator")
    peer = three.services[0].peers[1]
    await three.until(lambda: peer.statement and study.digest in peer.statement.refused)
    assert peer.statement is not None
    assert "no sealing key that waits" in peer.statement.refused[study.digest]


@pytest.mark.parametrize(
    ("evil", "says"),
    [
        ({"config": "x = " + "1" * 5000}, "not valid TOML"),
        ({"config": "x = '\ud800'"}, "not valid TOML"),
        ({"proposer": "\ud800"}, ""),
        ({"proposer": "alpha\x1b[2J\n"}, ""),
        ({"proposer": ["beta"]}, ""),
    ],
)
async def test_no_proposal_of_another_server_ends_this_one(
    three: Three, monkeypatch: pytest.MonkeyPatch, evil: dict[str, Any], says: str
) -> None:
    good = await three.proposal("stays")
    monkeypatch.setattr(three.services[2].answers, "proposal", AsyncMock(return_value=good | evil))
    digest = load_config(three.folder / "study-stays" / "stays.toml").digest()
    statement = three.services[2].answers.statement

    def announced() -> Any:
        return replace(statement(), studies={digest: StudySnapshot(StudyState.PROPOSED)})

    monkeypatch.setattr(three.services[2].answers, "statement", announced)
    for service in three.services[:2]:
        if says:
            await three.until(lambda s=service: says in s.fetcher.refused.get(digest, ""))
        else:
            await three.until(lambda s=service: digest in s.studies)
            assert service.studies[digest].proposer == "gamma"
    monkeypatch.undo()
    assert await three.services[0].cards("distaim")


async def test_a_server_cannot_fill_another_ones_book(
    three: Three, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(study_fetcher, "_MAX_PROPOSED", 1)
    first = await three.propose("first")
    second = await three.services[2].propose(await three.proposal("second"), "operator")
    await three.until(lambda: "1 wait for approval here" in caplog.text)
    assert second.digest not in three.services[0].studies
    monkeypatch.setattr(study_fetcher, "_FETCH_AGAIN_S", 0.1)
    for service in three.services[:2]:
        service.fetcher._fetch_after.clear()
        await service.approve(first, "operator")
    await three.until_states(second.digest, "proposed")


async def test_orders_do_not_wait_for_a_server_that_answers_slowly(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = await three.propose("first")
    asked = asyncio.Event()

    async def never(peer: Peer, digest: str) -> Any:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Peer, "study", never)
    await three.services[2].propose(await three.proposal("second"), "operator")
    async with asyncio.timeout(5):
        await asked.wait()
        for service in three.services:
            await service.approve(digest, "operator")


async def test_a_status_has_the_studies_that_go_on_and_the_last_that_are_over(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_studies, "_MAX_ENDED_RECENT", 1)
    digests = [await three.propose(run) for run in ("first", "second", "third")]
    for digest in (digests[1], digests[0]):
        await three.services[0].cancel(digest, "operator")
    await three.until_states(digests[0], "cancelled")
    app = service_application(three.services[0])
    async with TestClient(TestServer(app)) as client:
        status = await (await client.get("/status")).json()
        listed = await (await client.get("/studies")).json()
    assert [study["run"] for study in status["studies"]] == ["first", "third"]
    assert status["states"] == {"cancelled": 2, "proposed": 1}
    assert [study["digest"] for study in listed["studies"]] == digests
    shown = io.StringIO()
    print_status(Console(file=shown, width=100), status)
    assert "older ones, not shown here: 1 (syncret study list)" in shown.getvalue()
    page = render(
        "_studies.html",
        **overview_values(status, {"studies": status.get("studies", []), "total": 60}),
    )
    assert "Page 1 of 3" in page


async def test_a_status_needs_no_database_and_no_configuration_that_this_version_reads(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    await three.propose("stays")
    unread = (await three.propose("visits"))[:12]
    service = three.services[0]
    app = service_application(service)
    async with TestClient(TestServer(app)) as client:
        with monkeypatch.context() as patch:
            broken = Mock(side_effect=StoreError(three.folder, "the database does not answer"))
            patch.setattr(service.studies.repository, "proposed", broken)
            status = await (await client.get("/status")).json()
            assert [study["epsilon"] for study in status["studies"]] == [2.0, 2.0]
        other = ConfigError("run", "noise", "is of another version")
        monkeypatch.setattr(service.studies, "summary", AsyncMock(side_effect=other))
        status = await (await client.get("/status")).json()
        assert [study["epsilon"] for study in status["studies"]] == [None, None]
        assert unread in render(
            "_studies.html",
            **overview_values(status, {"studies": status.get("studies", []), "total": 0}),
        )


async def test_a_server_that_missed_many_ends_hears_of_each(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_answers, "_MAX_ENDED_SHARED", 1)
    digests = [await three.propose(run) for run in ("first", "second", "third")]
    alpha, beta, gamma = three.services
    with monkeypatch.context() as patch:
        patch.setattr(gamma._reconciliation, "_apply", AsyncMock())
        for digest in digests:
            await alpha.cancel(digest, "operator")
        await three.until(
            lambda: {beta.studies[digest].state for digest in digests} == {StudyState.CANCELLED}
        )
        assert {gamma.studies[digest].state for digest in digests} == {StudyState.PROPOSED}
    for digest in digests:
        await three.until_states(digest, "cancelled")
    # Nobody needs to hear of the older ones any more.
    await three.until(lambda: set(alpha.answers.statement().studies) == {digests[-1]})


async def test_what_is_told_last_is_what_changed_last_whatever_the_clock_says(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_answers, "_MAX_ENDED_SHARED", 1)
    digests = [await three.propose(run) for run in ("first", "second")]
    alpha = three.services[0]
    tomorrow = utc_now() + datetime.timedelta(days=1)
    with monkeypatch.context() as patch:
        patch.setattr(reconciliation, "utc_now", lambda: tomorrow)
        await alpha.cancel(digests[0], "operator")
    await three.until_states(digests[0], "cancelled")
    await alpha.cancel(digests[1], "operator")
    assert alpha.studies[digests[0]].changed_at > alpha.studies[digests[1]].changed_at
    await three.until_states(digests[1], "cancelled")
    assert digests[1] in alpha.answers.statement().studies


async def test_secrets_of_a_cancelled_study_that_could_not_be_deleted_go_later(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_deletion, "_AGAIN_S", 0.1)
    alpha = three.services[0]
    digest = await three.propose("stays")
    seal = alpha.studies.folder(alpha.studies[digest]).seal
    with monkeypatch.context() as patch:
        patch.setattr(
            secret_deletion,
            "delete_sealing_key",
            Mock(side_effect=StoreError(seal, "cannot be deleted")),
        )
        with pytest.raises(StoreError, match="cannot be deleted"):
            await alpha.cancel(digest, "operator")
        await three.until(lambda: alpha.studies[digest].state is StudyState.CANCELLED)
        assert seal.exists()
    await three.until(lambda: not seal.exists())


async def test_secrets_of_a_cancelled_study_go_at_the_next_start(
    tmp_path: Path, processes: dict[tuple[str, str], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            secret_deletion, "delete_sealing_key", Mock(side_effect=StoreError(tmp_path, "broken"))
        )
        async with three_services(tmp_path) as three:
            alpha = three.services[0]
            digest = await three.propose("stays")
            seal = alpha.studies.folder(alpha.studies[digest]).seal
            with pytest.raises(StoreError, match="broken"):
                await alpha.cancel(digest, "operator")
    assert seal.exists()
    with open_service_database(
        database_url(alpha.identity.folder), alpha.identity.own.key
    ) as engine:
        async with Service(alpha.identity, StudyRepository(engine, tmp_path), limit=2) as again:
            running = asyncio.create_task(again.run())
            await three.until(lambda: not seal.exists())
            running.cancel()


async def test_a_study_whose_end_cannot_be_written_down_ends_later(
    three: Three, processes: dict[tuple[str, str], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = await three.approved("stays")
    await three.until_states(digest, "running")
    alpha = three.services[0]
    with monkeypatch.context() as patch:
        failing = Mock(side_effect=StoreError(three.folder, "the database does not answer"))
        patch.setattr(alpha.studies.repository, "change", failing)
        processes["alpha", digest].outcome = (StudyState.FINISHED, "")
        await three.until(lambda: failing.called)
        assert alpha.studies[digest].state is StudyState.RUNNING
        assert digest in alpha.workers
    await three.until(lambda: alpha.studies[digest].state is StudyState.FINISHED)


async def test_what_a_study_leaves_is_collected_at_its_end(three: Three) -> None:
    digest = await three.propose("stays")
    cycle = Namespace()
    cycle.own, watched = cycle, weakref.ref(cycle)
    gc.disable()
    try:
        del cycle
        assert watched() is not None
        await three.services[0].cancel(digest, "operator")
        assert watched() is None
    finally:
        gc.enable()


async def test_what_a_server_says_of_a_third_one_stays_its_word(three: Three) -> None:
    digest = await three.approved("stays")
    await three.until_states(digest, "running")
    three.processes["gamma", digest].end(
        StudyState.FAILED, "cancelled by beta: it does not like alpha"
    )
    await three.until_states(digest, "failed")
    for service in three.services[:2]:
        assert "gamma: cancelled by beta" in service.studies[digest].reason


async def test_a_service_goes_on_with_what_its_database_has(three: Three, tmp_path: Path) -> None:
    digest = await three.approved("stays")
    await three.until_states(digest, "running")
    alpha = three.services[0]
    again = Service(three.identities[0], alpha.studies.repository, limit=2)
    studies = {study.digest: study for study in again.studies.repository.studies()}
    assert studies[digest].state is StudyState.RUNNING
    assert studies[digest].approvals == set(SERVERS)


async def test_a_database_that_does_not_answer_changes_nothing(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = await three.propose("stays")
    alpha = three.services[0]

    def refuse(*arguments: object) -> Any:
        raise StoreError(Path("database"), "the database does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(alpha.studies.repository, "change", refuse)
        with pytest.raises(StoreError):
            await alpha.approve(digest, "operator")
        assert alpha.studies[digest].state is StudyState.PROPOSED
        await three.services[1].approve(digest, "operator")
        await asyncio.sleep(0.3)  # Sleeps: quiet.
    await alpha.approve(digest, "operator")
    await three.services[2].approve(digest, "operator")
    await three.until_states(digest, "running")


# What keeps one of them back is told at all three.


async def test_what_a_server_waits_for_is_shown_at_all_three_and_changes_nothing(
    three: Three, processes: dict[tuple[str, str], Process]
) -> None:
    digest = await three.approved("stays")
    await three.until_states(digest, "running")
    beta, others = processes["beta", digest], [processes[n, digest] for n in ("alpha", "gamma")]
    beta.state, beta.obstacle = StudyState.WAITING, Obstacle(Cause.DISK_FULL)
    for process in others:
        process.state, process.obstacle = StudyState.WAITING, Obstacle(Cause.NETWORK, 1)
    await three.until_states(digest, "waiting")
    text = "beta: its disk is full"
    for service in three.services:
        async with api(service) as client:

            async def study() -> dict[str, Any]:
                answer = await client.get(f"/studies/{digest}")  # Of this client.
                return dict(await answer.json())

            async with asyncio.timeout(5):
                while (await study())["why"] != text:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            status = await (await client.get("/status")).json()
            metrics = await (await client.get("/metrics")).text()
        shown = io.StringIO()
        print_status(Console(file=shown, width=100), status)
        assert text in shown.getvalue()
        assert text in render(
            "_studies.html",
            **overview_values(status, {"studies": status.get("studies", []), "total": 0}),
        )
        labels = f'cause="disk-full",party="{service.name}",server="beta",study="stays"'
        assert f"syncret_study_waits{{{labels}}} 1.0" in metrics
        assert service.studies[digest].state is StudyState.WAITING
    beta.obstacle = None
    for process in [beta, *others]:
        process.state, process.obstacle = StudyState.RUNNING, None
    await three.until_states(digest, "running")


async def test_a_server_whose_database_is_away_says_so_to_the_others(
    three: Three, processes: dict[tuple[str, str], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = await three.approved("stays")
    await three.until_states(digest, "running")
    alpha, beta, _ = three.services
    full = sqlite3.OperationalError("whatever")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL

    def refuse(*arguments: object) -> Any:
        with database_errors(Path("database")):
            raise OperationalError("UPDATE", None, full)

    with monkeypatch.context() as broken:
        broken.setattr(beta.studies.repository, "change", refuse)
        processes["beta", digest].end(StudyState.FINISHED)
        async with api(alpha) as client:
            async with asyncio.timeout(5):
                while True:
                    status = await (await client.get("/status")).json()
                    if status["troubles"]:
                        break
                    await asyncio.sleep(0.02)
            assert status["troubles"] == ["beta: its disk is full"]
            (study,) = status["studies"]
            assert study["why"] == "beta: its disk is full"
        page = render(
            "_studies.html",
            **overview_values(status, {"studies": status.get("studies", []), "total": 0}),
        )
        assert '<p class="notice">beta: its disk is full</p>' in page
    await three.until(lambda: beta.obstacle is None)
    await three.until(lambda: beta.studies[digest].state is StudyState.FINISHED)


async def test_a_state_that_the_database_does_not_take_is_told_all_the_same(
    three: Three, processes: dict[tuple[str, str], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full keeps nobody from hearing that the study waits for it."""
    digest = await three.approved("stays")
    await three.until_states(digest, "running")
    alpha, beta, _ = three.services
    failing = Mock(side_effect=StoreError(three.folder, "the database does not answer"))
    monkeypatch.setattr(beta.studies.repository, "change", failing)
    processes["beta", digest].state = StudyState.WAITING
    peer = alpha.peers[1]
    await three.until(
        lambda: peer.statement and peer.statement.studies[digest].state is StudyState.WAITING
    )


async def test_a_clock_that_is_off_is_measured_and_named_at_all_three(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    beta = three.services[1]
    said = beta.answers.statement
    monkeypatch.setattr(beta.answers, "statement", lambda: replace(said(), time=time.time() - 612))
    alpha, _, gamma = three.services
    text = "beta: its clock is 10 min 12 s behind, by the two others'"
    for service in (alpha, gamma):
        await three.until(lambda: service.clocks.off)  # noqa: B023  # Of this one.
        assert service.clocks.off == {1: pytest.approx(-612, abs=1)}
        async with api(service) as client:
            status = await (await client.get("/status")).json()
            metrics = await (await client.get("/metrics")).text()
        assert status["troubles"] == [text]
        shown = io.StringIO()
        print_status(Console(file=shown, width=100), status)
        assert "its clock 10 min 12 s behind" in shown.getvalue()
        assert "its clock 10 min 12 s behind" in render(
            "_studies.html",
            **overview_values(status, {"studies": status.get("studies", []), "total": 0}),
        )
        offset = next(
            line
            for line in metrics.splitlines()
            if line.startswith("syncret_service_peer_clock_offset_seconds{")
            and 'peer="beta"' in line
        )
        assert float(offset.split()[-1]) == pytest.approx(-612, abs=1)


# The operator's API.


class CheckedClient(TestClient[Any, Any]):
    """A client that holds every answer in JSON against the OpenAPI document."""

    async def _request(self, method: str, path: Any, **options: Any) -> Any:
        response = await super()._request(method, path, **options)
        if response.content_type == "application/json":
            check_answer(method, str(path), response.status, json.loads(await response.read()))
        return response


@contextlib.asynccontextmanager
async def api(service: Service) -> AsyncIterator[TestClient[Any, Any]]:
    async with CheckedClient(TestServer(service_application(service))) as client:
        yield client


async def test_api_shows_studies_and_what_differs_from_others_of_the_name(three: Three) -> None:
    alpha = three.services[0]
    digest = await three.propose("stays")
    cards = []
    for number, text in enumerate(await alpha.cards("distaim")):
        cards.append(three.folder / f"second-{number}.card")
        cards[-1].write_text(text)
    (three.folder / "study-stays").rename(three.folder / "study-first")
    other = await alpha.propose(document(three.folder, "stays", cards, rounds="2"), "operator")
    async with api(alpha) as client:
        shown = await (await client.get(f"/studies/{digest[:12]}")).json()
        assert shown["owners"]["expected"] == 3
        assert [server["name"] for server in shown["servers"]] == list(SERVERS)
        (alike,) = shown["alike"]
        assert alike["digest"] == other.digest
        found = {item["key"]: (item["here"], item["there"]) for item in alike["differences"]}
        assert found["run.rounds"] == ("3", "2")
        assert {key.split(".")[-1] for key in found} == {"rounds", "seal"}
        listed = await (await client.get("/studies?state=proposed")).json()
        assert len(listed["studies"]) == 2
        metrics = await (await client.get("/metrics")).text()
        assert 'syncret_service_studies{party="alpha",state="proposed"} 2.0' in metrics
        assert (await client.get("/readyz")).status == 200


async def test_api_counts_how_often_a_studys_process_was_started_again(three: Three) -> None:
    alpha = three.services[0]
    digest = await three.approved("stays")
    await three.until_states(digest, "running")
    three.processes["alpha", digest].restarts = 2
    async with api(alpha) as client:
        metrics = await (await client.get("/metrics")).text()
    assert 'syncret_study_restarts_total{party="alpha",study="stays"} 2.0' in metrics


async def test_api_names_a_studys_folder_whole_where_the_services_own_is_relative(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha = three.services[0]
    digest = await three.propose("stays")
    monkeypatch.chdir(alpha.identity.folder.parent)
    alpha.identity = replace(alpha.identity, folder=Path(alpha.identity.folder.name))
    place = alpha.studies.folder(alpha.studies[digest])
    async with api(alpha) as client:
        (study,) = (await (await client.get("/status")).json())["studies"]
    folder = Path(study["folder"])
    assert folder == place.path.absolute()
    assert folder.is_absolute()
    assert (folder / "study" / "stays.toml").is_file()


async def test_status_makes_no_paths(three: Three, monkeypatch: pytest.MonkeyPatch) -> None:
    alpha = three.services[0]
    await three.propose("stays")
    made: list[Path] = []
    path = StudyFolder.path.fget
    monkeypatch.setattr(StudyFolder, "path", property(lambda of: made.append(path(of)) or made[-1]))
    async with api(alpha) as client:
        (study,) = (await (await client.get("/status")).json())["studies"]
    assert study["run"] == "stays"
    assert made == []


async def test_api_refuses_bad_input_with_words(three: Three) -> None:
    alpha = three.services[0]
    digest = await three.propose("stays")
    async with api(alpha) as client:
        for method, path, body, status in (
            ("GET", "/studies/" + "0" * 64, None, 404),
            ("GET", "/studies/..%2f..%2fetc", None, 404),
            ("GET", "/nothing", None, 404),
            ("DELETE", f"/studies/{digest}", None, 405),
            ("GET", "/studies?state=x%1b", None, 400),
            ("POST", "/studies", b"{", 422),
            ("POST", "/studies", b"[" * 100_000, 422),
            ("POST", "/studies", b"\xff", 422),
            ("POST", "/studies", b"[]", 422),
            ("POST", "/studies", io.BytesIO(b" " * (MAX_DOCUMENT_BYTES + 1)), 413),
            ("POST", f"/studies/{digest}/approve", b"{}", 422),
            ("POST", f"/studies/{digest}/approve", b'{"digest": 7}', 422),
            ("POST", f"/studies/{digest}/approve", b'{"digest": ""}', 409),
            (
                "POST",
                f"/v1/studies/{digest}/approve",
                json.dumps({"digest": digest, "run": 1}),
                422,
            ),
            ("POST", f"/studies/{digest}/approve", json.dumps({"digest": "0" * 64}), 409),
            ("POST", f"/studies/{digest}/approve", json.dumps({"digest": digest[:31]}), 409),
            ("POST", f"/studies/{digest}/cancel", b'{"reason": 7}', 422),
            ("POST", f"/studies/{digest}/cancel", json.dumps({"reason": "x" * 201}), 422),
            ("POST", f"/studies/{digest}/cancel", json.dumps({"reason": "a\x1b[2J"}), 422),
            ("POST", f"/studies/{digest}/close", b"{}", 409),
            ("POST", f"/studies/{digest}/explode", b"{}", 404),
            ("POST", "/cards", b'{"kind": "other"}', 422),
        ):
            response = await client.request(method, path, data=body)
            assert response.status == status, (method, path, await response.text())
            error = (await response.json())["error"]
            assert error["what"]
            assert error["expected"]
        foreign = {"Origin": "https://elsewhere.example"}
        response = await client.post(f"/studies/{digest}/cancel", headers=foreign)
        assert response.status == 403
    assert alpha.studies[digest].state is StudyState.PROPOSED


async def test_api_hands_out_the_bundle_of_a_study_once_it_is_there(three: Three) -> None:
    alpha = three.services[0]
    digest = await three.propose("stays")
    path = alpha.studies.folder(alpha.studies[digest]).work / BUNDLE
    async with api(alpha) as client:
        refused = await client.get(f"/v1/studies/{digest}/bundle")
        assert (refused.status, "was not collected" in await refused.text()) == (409, True)
        path.parent.mkdir()
        path.write_bytes(b"PK")
        found = await client.get(f"/v1/studies/{digest}/bundle")
        assert (found.content_type, await found.read()) == ("application/zip", b"PK")


async def test_api_tells_of_changes_as_they_happen(three: Three) -> None:
    alpha = three.services[0]
    async with api(alpha) as client, client.get("/events") as response:
        seen: list[str] = []

        async def listen() -> None:
            async for line in response.content:
                if line.startswith(b"data:"):
                    studies = json.loads(line.removeprefix(b"data:"))["studies"]
                    seen.extend(study["state"] for study in studies)
                    if "approved" in seen:
                        return

        listening = asyncio.create_task(listen())
        digest = await three.propose("stays")
        await three.until(lambda: "proposed" in seen)
        await alpha.approve(digest, "operator")
        await asyncio.wait_for(listening, 5)


# What other servers may ask, and others not.


async def test_a_stranger_gets_nothing_of_the_exchange(three: Three, tmp_path: Path) -> None:
    (tmp_path / "mallory").mkdir()
    (stranger,) = make_identities(tmp_path / "mallory", ("alpha",))
    fake = ServiceIdentity.load(stranger)
    known = replace(three.identities[0], folder=fake.folder)
    peer = service_module.Peer(replace(known, servers=three.identities[0].servers), 1)
    await peer.listen()
    assert peer.statement is None
    assert peer.problem
    await peer.close()


async def test_a_peer_that_talks_nonsense_is_away(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = three.services[0].peers[1]

    class Nonsense:
        def to_dict(self) -> object:
            return {
                "exchange": statement_module.EXCHANGE_VERSION,
                "program": statement_module.version_line(),
            }

    monkeypatch.setattr(three.services[1].answers, "statement", Nonsense)
    await three.until(lambda: "unknown form" in peer.problem)
    assert peer.statement is None


async def test_find_wants_one_study(three: Three) -> None:
    digest = await three.propose("stays")
    alpha = three.services[0]
    assert alpha.studies.find("stays").digest == alpha.studies.find(digest[:8]).digest == digest
    for name in ("", digest[:7], "nobody", "0" * 64):
        with pytest.raises(UnknownStudy):
            alpha.studies.find(name)


def test_owners_hear_what_became_of_a_study() -> None:
    from tests.parties.test_concluding import study

    status, error = closed_study_answer(study(1, StudyState.FINISHED, ended_at=utc_now()))
    assert (status, error["reason"]) == (410, "closed")
    assert "was finished on" in error["what"]
    assert closed_study_answer(study(1, StudyState.CANCELLED))[0] == 410
    status, error = closed_study_answer(study(1, StudyState.QUEUED))
    assert status == 503
    assert "has not begun" in error["what"]


# Servers' files.


def test_server_file_comes_back_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    folder, *_ = make_identities(tmp_path)
    path = folder / "alpha.server"
    text = path.read_text()
    assert ServerFile.load(path).lines() == ServiceIdentity.load(folder).own.lines()
    for old, new, says in (
        ("server = 1", "server = 2", "of version"),
        ("server = 1", "", "no server's file"),
        ("127.0.0.1", "127.0.0.2", "was altered"),
        ('name = "alpha"', 'name = "beta"', "another name"),
        ("certificate", "certificat", "other values"),
        ('"\n', '"\nmore = "x"\n', "other values"),
    ):
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(CertificateError, match=says):
            ServerFile.load(path)
    path.write_bytes(b"\xff" * 20_000)
    with pytest.raises(CertificateError, match="no server's file"):
        ServerFile.load(path)


def test_join_wants_three_different_servers_and_keeps_them(tmp_path: Path) -> None:
    folders = make_identities(tmp_path)
    files = [folder / f"{folder.name}.server" for folder in folders]
    alpha = folders[0]
    with pytest.raises(CertificateError, match="expected three"):
        join_servers(alpha, files[:2])
    with pytest.raises(CertificateError, match="same name"):
        join_servers(alpha, [files[0], files[0], files[1]])
    with pytest.raises(CertificateError, match="none of these"):
        join_servers(alpha, [files[1]])
    with pytest.raises(StoreError, match="same servers in the same order"):
        join_servers(alpha, [files[1], files[0], files[2]])
    assert join_servers(alpha, files).pid == 0
    with pytest.raises(ConfigError, match="has no server in it"):
        ServiceIdentity.load(tmp_path)
    assert (alpha / "keys" / "own.key").stat().st_mode & 0o777 == 0o600


def test_cards_that_nobody_uses_do_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parties.service import study_intake

    monkeypatch.setattr(study_intake, "_MAX_CARDS", 3)
    folder, *_ = make_identities(tmp_path)
    identity = ServiceIdentity.load(folder)
    for _ in range(6):
        path = tmp_path / "alpha.card"
        path.write_text(new_card(identity, "distaim"))
        assert load_server_card(path).key == identity.own.key
    assert len(list((folder / "cards").iterdir())) == 3
    for path in (folder / "cards").rglob("own.*"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_the_threads_beside_the_loop_are_there_before_there_is_work() -> None:
    before = threading.active_count()
    with serve_module._thread_pool() as pool:
        assert threading.active_count() == before + 6
        assert sorted(pool.map(abs, range(-3, 0))) == [1, 2, 3]
        assert threading.active_count() == before + 6


def test_a_system_without_more_threads_is_an_error_and_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, start = threading.active_count(), threading.Thread.start

    def third_fails(thread: threading.Thread) -> None:
        if threading.active_count() > before + 1:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", third_fails)
    with pytest.raises(RuntimeError, match="can't start"):
        serve_module._thread_pool()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() == before
