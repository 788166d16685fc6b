"""Studies of one server by an invitation: who may ask, what the server hands out, what ends a participant's command."""

import asyncio
import copy
import json
import os
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mechanisms.errors import MechanismError
from parties.cli.attend import FederationPart, until_over
from parties.cli.consent import federation_consent
from parties.cli.invitations import ensure_admitted
from parties.cli.result import _check_replaceable
from parties.config import Address, CertificateFiles, Config, load_config
from parties.federation.client import ParticipantReport
from parties.federation.members import ConnectedClients
from parties.federation.messages import ClientGreeting, FederationMessage
from parties.foundation.errors import (
    CertificateError,
    FederationProtocolError,
    FrameConnectError,
    FramePeerClosed,
    PartyError,
    ResultMissing,
    ServerAway,
    StoreError,
)
from parties.foundation.exit_codes import FederationRefused, NotAdmitted, NotYet, Status
from parties.identity.invitation import accept_invitation, make_invitation, parse_invitation
from parties.identity.join_documents import (
    ensure_server_card,
    fingerprint_words,
    make_admission_request,
)
from parties.identity.listed_owners import listed_owners, unlisted_problem
from parties.identity.study_setup import CERTIFICATES, create_study, issue_certificate
from parties.identity.tls import Authority, make_certificates
from parties.local.children import free_ports
from parties.mpc.submission.admission import await_admission
from parties.mpc.submission.http_api import REPORT_FILE, RESULT_FILES, is_result_name
from parties.mpc.submission.result import (
    MAX_FILE_BYTES,
    await_result,
    fetch_result,
    is_over,
    obtain_result,
)
from parties.mpc.submission.status import await_begin
from parties.network.sni_router import SniRouter
from parties.observability.events import Progress
from parties.service import closed_results
from parties.service.admission import AdmissionDesk
from parties.service.closed_studies import ClosedStudies
from parties.service.studies import utc_now
from parties.service.study_record import ENDED, NOT_STARTED, StudyRecord, StudyState
from parties.session.study import Study
from secagg.errors import SecAggError
from tests.parties.silos_support import NAMES, SERVER
from tests.parties.small import write_small
from tests.parties.test_admission import Studies
from tests.parties.test_charge_endings import METHODS, Certificates, Run

OWNERS = ("north", "south", "west")
SECTIONS = {
    "flaim": f"[flaim]\nclients = {list(OWNERS)}\n",
    "silos": f"[silos]\nclients = {list(OWNERS)}\n\n[tda]\ncomponents = 2\n",
}


def make_study(folder: Path, kind: str, more: str = "") -> Config:
    """A study of one server in the folder ``out``, with the server's key in ``hub``."""
    path, _ = write_small(folder)
    section = SECTIONS[kind].replace("\n", f"\n{more}\n", 1)
    path.write_text(path.read_text().replace("\n[[column]]", f"\n{section}\n[[column]]", 1))
    (folder / "hub").mkdir()
    card = folder / "hub" / "hub.card"
    ends = {"address": Address("127.0.0.1", free_ports(1)[0])}
    ensure_server_card("hub", ends, keys=folder / "hub" / "tls", path=card)
    Authority.make(folder / "authority", 10)
    return create_study(
        path, [card], authority=folder / "authority", out=folder / "out", valid_days=9
    )


@dataclass
class Hub:
    """The parts of a service that answer owners of one study of one server, at its port."""

    folder: Path
    config: Config
    studies: Studies
    desk: AdmissionDesk

    def enter(self, state: StudyState) -> None:
        self.studies[self.config.digest()] = replace(self.record, state=state)

    @property
    def record(self) -> StudyRecord:
        return self.studies[self.config.digest()]

    @property
    def work(self) -> Path:
        return self.studies.folder(self.record).work

    def owner(self, name: str) -> CertificateFiles:
        """An admitted owner's files."""
        keys, folder = self.folder / name, self.folder / "out" / CERTIFICATES
        request, _ = make_admission_request(name, self.config.digest(), keys=keys)
        certificate = folder / f"{name}.crt"
        certificate.write_bytes(
            issue_certificate(request, authority=self.folder / "authority", valid_days=9)
        )
        return CertificateFiles(folder / "ca.crt", certificate, keys / "own.key")

    async def ask(self, name: str, keys: str | None = None, wait_s: float = 0.0) -> str:
        request = make_admission_request(
            name, self.config.digest(), keys=self.folder / (keys or name)
        )
        return await await_admission(self.config, *request, wait_s=wait_s, progress=Progress())


@pytest.fixture(params=["flaim", "silos"])
async def hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hub]:
    config = make_study(tmp_path, request.param)
    studies, digest, at = Studies(tmp_path / "service"), config.digest(), utc_now()
    studies[digest] = StudyRecord(
        digest, request.param, config.run.id, "hub", at, StudyState.PROPOSED, at
    )
    folder = studies.folder(studies[digest])
    folder.config.parent.parent.mkdir(parents=True)
    (tmp_path / "out").rename(folder.config.parent)
    (folder.config.parent / "small.toml").rename(folder.config)
    (tmp_path / "hub" / "tls").rename(folder.path / "tls")
    (tmp_path / "out").symlink_to(folder.config.parent)
    folder.work.mkdir()
    config = load_config(folder.config)
    identity = type("Identity", (), {"own": type("Own", (), {"name": "hub"}), "pid": 0})
    closed = ClosedStudies(identity, studies, tmp_path / "register")  # type: ignore[arg-type]
    desk = AdmissionDesk(studies, closed._files, lambda study: config)  # type: ignore[arg-type]
    address = config.require_federation().address
    assert address is not None
    router = SniRouter.open("ingest", address)
    router.fallback = lambda name, connection: any(
        take(name, connection) for take in (desk.take, closed.take)
    )
    yield Hub(tmp_path, config, studies, desk)
    await router.close()
    await desk.close()
    await closed.close()


async def test_an_owner_is_admitted_and_a_refusal_or_the_end_is_final(hub: Hub) -> None:
    with pytest.raises(NotYet, match="the request waits at hub"):
        await hub.ask("north")
    request, _ = make_admission_request("north", hub.config.digest(), keys=hub.folder / "north")
    pem = issue_certificate(request, authority=hub.folder / "authority", valid_days=9).decode()
    await hub.desk.admit(hub.record, pem)
    assert await hub.ask("north") == pem
    with pytest.raises(NotYet):
        await hub.ask("south")
    south, _ = make_admission_request("south", hub.config.digest(), keys=hub.folder / "south")
    await hub.desk.refuse(hub.record, south.key)
    with pytest.raises(NotAdmitted, match="was refused"):
        await hub.ask("south", wait_s=30)
    # The only server's word ends the wait; of three it takes two.
    for state in ENDED:
        hub.enter(state)
        with pytest.raises(NotAdmitted, match="hub answered 410"):
            await hub.ask("west", wait_s=30)


async def test_nobody_asks_that_the_study_does_not_list(hub: Hub) -> None:
    """A flood of names costs the server nothing that it keeps."""
    for number in range(20):
        with pytest.raises(NotAdmitted, match="does not list this name with this key"):
            await hub.ask(f"stranger-{number}", wait_s=30)
    assert await hub.desk.all(hub.record) == ()
    assert not (hub.studies.folder(hub.record).path / "admission").exists()


async def test_with_listed_keys_nobody_asks_with_another_one(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner cannot be crowded out, and the authority has no false one to admit; all refusals are the same."""
    north, _ = make_admission_request("north", hub.config.digest(), keys=hub.folder / "north")
    listed = {"north": north.key, "south": "5" * 64, "west": "7" * 64}
    monkeypatch.setattr("parties.service.admission.listed_owners", lambda config: listed)
    with pytest.raises(NotYet, match="the request waits at hub"):
        await hub.ask("north")
    said = set()
    for name, keys in (("north", "thief"), ("east", "thief"), ("east", "north")):
        with pytest.raises(NotAdmitted) as refused:
            await hub.ask(name, keys=keys, wait_s=30)
        said.add(str(refused.value))
    # No answer tells a stranger which owners there are, or anything of their keys.
    (answer,) = said
    assert "does not list this name with this key" in answer
    assert "north" not in answer
    (waiting,) = await hub.desk.all(hub.record)
    assert waiting.request == north


@pytest.mark.parametrize("kind", SECTIONS)
def test_keys_of_the_configuration_are_the_owners(tmp_path: Path, kind: str) -> None:
    keys = [f"{letter * 64}" for letter in "abc"]
    config = make_study(tmp_path, kind, f"client_keys = {keys}")
    listed = listed_owners(config)
    assert dict(listed) == dict(zip(OWNERS, keys, strict=True))
    assert unlisted_problem(listed, "north", keys[0]) == ""
    assert "another key" in unlisted_problem(listed, "north", keys[1])
    assert "no owner called 'east'" in unlisted_problem(listed, "east", keys[0])
    path = accept_invitation(
        make_invitation(tmp_path / "out" / "small.toml"), tmp_path / "owner-folder"
    )
    with pytest.raises(CertificateError, match="no owner called 'east'"):
        ensure_admitted(path, "east", wait_s=0)
    assert not (path.parent.parent / "tls").exists()
    with pytest.raises(CertificateError, match="name of a server"):
        ensure_admitted(path, "hub", wait_s=0)
    with pytest.raises(CertificateError, match="expected the key whose request you sent"):
        ensure_admitted(path, "north", wait_s=0)


@pytest.mark.parametrize("kind", SECTIONS)
def test_an_invitation_pins_the_one_server(tmp_path: Path, kind: str) -> None:
    config = make_study(tmp_path, kind)
    made = make_invitation(tmp_path / "out" / "small.toml", "north")
    found = parse_invitation(made.text().encode(), "the file")
    assert found.config.digest() == config.digest()
    (server,) = found.config.require_servers()
    assert (server.name, server.pinned) == ("hub", config.require_federation().pinned)
    other = tmp_path / "other"
    other.mkdir()
    foreign = make_invitation_text_of_another_server(other, kind, made.text())
    with pytest.raises(CertificateError, match=r"hub\.crt"):
        parse_invitation(foreign.encode(), "the file")


def make_invitation_text_of_another_server(folder: Path, kind: str, text: str) -> str:
    """The invitation with the certificates of another study's server of the same name."""
    make_study(folder, kind)
    theirs = make_invitation(folder / "out" / "small.toml", "north").text()
    return text.partition("[certificates]")[0] + "".join(theirs.partition("[certificates]")[1:])


def write_result(work: Path, kind: str) -> list[str]:
    """Public files of a finished run, and others that are nobody's."""
    names = list(RESULT_FILES)
    if kind == "silos":
        names = [REPORT_FILE, "report.html", "synthetic.csv", "model.json", "means-3.npz"]
    for name in ("transcript.jsonl", *names, "result.json", "store/store.sqlite", "silos.json"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(name)
    bad = ["store/store.sqlite", "../tls/own.key", "config.toml", "result.json", "linked.json"]
    (work / "linked.json").symlink_to(work.parent / "tls" / "own.key")
    report = {"files": [*names[2:], *bad, "not-there.json"]} if kind == "silos" else {}
    (work / REPORT_FILE).write_text(json.dumps(report))
    return names


async def test_a_finished_study_gives_its_files_to_its_owners_alone(
    hub: Hub, tmp_path: Path
) -> None:
    files, out = hub.owner("north"), tmp_path / "fetched"
    names = write_result(hub.work, hub.record.kind)
    for state in NOT_STARTED:
        hub.enter(state)
        with pytest.raises(NotYet, match=r"has not begun.*once its operator has approved it"):
            await await_result(hub.config, files, own=None, wait_s=0, progress=Progress())
        with pytest.raises(NotYet, match="has not begun"):
            await await_begin(hub.config, files, wait_s=0, progress=Progress())
    hub.enter(StudyState.RUNNING)
    assert await await_begin(hub.config, files, wait_s=0, progress=Progress())
    assert not await is_over(hub.config, files)
    with pytest.raises(NotYet, match="under way"):
        await await_result(hub.config, files, own=None, wait_s=0, progress=Progress())
    for state in (StudyState.FAILED, StudyState.CANCELLED):
        hub.enter(state)
        assert not await await_begin(hub.config, files, wait_s=30, progress=Progress())
        assert await is_over(hub.config, files)
        with pytest.raises(ResultMissing, match="has no result"):
            await obtain_result(hub.config, files, out, own=None, wait_s=30, progress=Progress())
    hub.enter(StudyState.FINISHED)
    assert await is_over(hub.config, files)
    await obtain_result(hub.config, files, out, own=None, wait_s=0, progress=Progress())
    there = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file())
    assert there == sorted(["transcripts/server.jsonl", *names])
    # A stranger with a certificate of another authority gets nothing.
    false = tmp_path / "false"
    Authority.make(false, 10)
    request, _ = make_admission_request("north", hub.config.digest(), keys=tmp_path / "thief")
    (tmp_path / "thief.crt").write_bytes(issue_certificate(request, authority=false, valid_days=9))
    thief = CertificateFiles(
        false / "ca.crt", tmp_path / "thief.crt", tmp_path / "thief" / "own.key"
    )
    with pytest.raises(NotYet, match="hub"):
        await fetch_result(hub.config, thief, tmp_path / "stolen")
    assert not (tmp_path / "stolen").exists()


async def test_a_server_decides_neither_how_much_nor_what_an_owner_keeps(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, out = hub.owner("north"), tmp_path / "fetched"
    names = write_result(hub.work, hub.record.kind)
    hub.enter(StudyState.FINISHED)
    (hub.work / "more.json").write_text("{}")
    more = [*names, "more.json"]
    monkeypatch.setattr(closed_results, "result_names", lambda *_, **__: more)
    await fetch_result(hub.config, files, out)
    assert (out / REPORT_FILE).exists()
    assert not (out / "more.json").exists()
    for name in names[:2]:
        os.truncate(hub.work / name, MAX_FILE_BYTES // 2)
    with pytest.raises(ResultMissing, match="together"):
        await fetch_result(hub.config, files, out)


def test_names_of_results_lead_nowhere_else() -> None:
    good = ("synthetic.csv", "model.json", "means-3.npz", "a.b.c")
    bad = ("../x", "a/b.json", ".hidden", "x", "", "config.toml", "result.json", "a\0.json", "a.b ")
    bad += ("datapackage.json", "schema.json", "model-card.md", "terms.txt")
    assert all(is_result_name(name, silos=True) for name in good)
    assert not any(is_result_name(name, silos=True) for name in bad)
    assert not is_result_name("model.json", silos=False)
    assert is_result_name("model/model.json", silos=False)


def test_a_result_replaces_that_of_its_own_study_alone(tmp_path: Path) -> None:
    config = make_study(tmp_path, "silos")
    bundle = tmp_path / "small.zip"
    for changed, fits in ((config, True), (config.override({"run.epsilon": 1.0}), False)):
        with zipfile.ZipFile(bundle, "w") as archive:
            archive.writestr("config.toml", changed.override({"tls": None}).resolved_toml())
        if fits:
            _check_replaceable(bundle, config)
        else:
            with pytest.raises(StoreError, match="no result of this study"):
                _check_replaceable(bundle, config)


class Attempts:
    """Attempts to take part, each with its end."""

    def __init__(self, *ends: PartyError | ParticipantReport, over: bool = False) -> None:
        self.left, self.is_over, self.asked = list(ends), over, 0

    async def __call__(self, progress: Progress) -> ParticipantReport:
        end = self.left.pop(0)
        if isinstance(end, PartyError):
            raise end
        return end

    async def over(self) -> bool:
        self.asked += 1
        return self.is_over

    def go(self, wait_s: float) -> Awaitable[ParticipantReport | None]:
        return until_over(self, self.over, wait_s=wait_s, progress=Progress())


FINAL: list[Callable[[], PartyError]] = [
    lambda: FederationRefused("another configuration", Status.PROTOCOL),
    lambda: FederationRefused("too few", Status.CLIENTS),
    lambda: FrameConnectError("hub", "is not who it should be"),
    lambda: FederationProtocolError("hub", "asks for more"),
    lambda: StoreError(Path("ledger"), "is an old copy"),
]
PASSING: list[Callable[[], PartyError]] = [
    lambda: FederationRefused("the server was stopped", Status.NETWORK),
    lambda: ServerAway("hub", "does not answer"),
    lambda: FramePeerClosed("hub", "closed the connection"),
]


@pytest.mark.parametrize("error", FINAL)
async def test_what_is_final_ends_the_command_at_once(error: Callable[[], PartyError]) -> None:
    made, attempts = error(), Attempts(error())
    with pytest.raises(type(made), match=str(made)):
        await attempts.go(1000)
    assert attempts.asked == 0


@pytest.mark.parametrize("error", PASSING)
async def test_a_server_that_is_away_is_waited_for_and_an_end_ends_it(
    error: Callable[[], PartyError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parties.cli.attend._FIRST_PAUSE_S", 0.01)
    report = ParticipantReport("north", finished=True)
    async with asyncio.timeout(20):
        assert await Attempts(error(), error(), report).go(1000) is report
        assert await Attempts(error(), over=True).go(1000) is None
        with pytest.raises(NotYet, match="the same command goes on"):
            await Attempts(*[error() for _ in range(50)]).go(0.05)


async def test_a_revoked_owner_ends_and_a_late_one_gets_the_result() -> None:
    refused = FederationRefused("was revoked", Status.NOT_ENROLLED)
    with pytest.raises(FederationRefused, match="was revoked"):
        await Attempts(refused).go(1000)
    assert await Attempts(refused, over=True).go(1000) is None


async def test_the_wait_begins_anew_with_each_welcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """A study of weeks may lose its server many times."""
    monkeypatch.setattr("parties.cli.attend._FIRST_PAUSE_S", 0.2)

    class Welcomed(Attempts):
        async def __call__(self, progress: Progress) -> ParticipantReport:
            progress.event("joined", "north has joined")
            return await super().__call__(progress)

    away = [ServerAway("hub", "does not answer") for _ in range(4)]
    report = ParticipantReport("north", finished=True)
    assert await Welcomed(*away, report).go(0.25) is report
    with pytest.raises(NotYet):
        await Attempts(*away, report).go(0.25)


def consent_of(config: Config) -> str:
    return " ".join(
        federation_consent(
            Study.of(config),
            "north",
            rows=1234,
            guarantee=[f"epsilon = {config.run.epsilon:g}, delta = {config.run.delta:g}"],
            private=True,
            cost=["takes rho 0.1", "nothing is left"],
        ).split()
    )


@pytest.fixture(scope="module", params=SECTIONS)
def config(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A study of one server, which no test changes."""
    return make_study(tmp_path_factory.mktemp(request.param), request.param)


def test_consent_names_columns_queries_budget_and_who(config: Config) -> None:
    kind = config.federation_section
    said, section = consent_of(config), config.require_federation()
    for name in (*config.domain.names, *OWNERS):
        assert name in said
    assert "1,234 rows" in said
    assert "takes rho 0.1 nothing is left" in said
    assert "The server is hub (127.0.0.1), alone" in said
    assert "you trust it with sums without noise" in said
    assert fingerprint_words(config.digest()).split()[0] in said
    queries = [" with ".join(query) for query in Study.of(config).workload.queries]
    assert all(query in said for query in queries) == (kind == "flaim")
    assert ("components = 2" in said) == (kind == "silos")
    noisy = config.override({f"{section.KEY}.noise": "distributed"})
    assert "not even the server sees a sum without noise" in consent_of(noisy)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("run.epsilon", 0.77),
        ("run.delta", 3e-9),
        ("run.rounds", 7),
        ("run.terms", "for research alone"),
        ("clients.closes", "2030-01-01T00:00:00Z"),
        ("clients.rows_per_client", 77),
        ("SECTION.noise", "distributed"),
        ("SECTION.minimum", 4),
        ("SECTION.clients", ["north", "south", "east"]),
        ("SECTION.address", "elsewhere.example:7443"),
    ],
)
def test_what_changes_the_study_changes_the_consent(
    config: Config, key: str, value: object
) -> None:
    """Not in the words alone."""
    kind = config.federation_section
    if key == "SECTION.minimum":
        config = config.override({"clients.expected": 4, f"{kind}.clients": [*OWNERS, "east"]})
    changed = config.override({key.replace("SECTION", kind): value})
    before, after = (consent_of(each).partition("These words")[0] for each in (config, changed))
    assert before != after


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("swapped"), [SERVER], [*NAMES])


@pytest.mark.parametrize("lies", [False, True], ids=["honest", "lying"])
@pytest.mark.parametrize("method", METHODS)
async def test_a_server_that_swaps_the_configuration_after_admission_gets_nothing(
    method: str, lies: bool, tmp_path: Path, certificates: Certificates, monkeypatch: Any
) -> None:
    """An honest one refuses its owners; one that says that it runs their study asks for what they refuse."""
    section = "flaim" if method == "flaim" else "silos"
    changes = {f"{section}.noise": "distributed", "clients.wait_s": 60.0}
    run = Run(method, certificates, tmp_path, **changes)
    owners = copy.copy(run)
    run.config = run.config.override({f"{section}.noise": "server", "run.epsilon": 50.0})
    run.plan = replace(run.plan, config=run.config)
    if lies:

        def welcome(own: object, message: FederationMessage, name: str, *rest: object) -> object:
            return ClientGreeting.unpack(message.body, name)

        monkeypatch.setattr(ConnectedClients, "_checked_greeting", welcome)
    server = asyncio.create_task(run.serve())

    async def take_part(name: str) -> object:
        async def attempt(progress: Progress) -> Any:
            return await owners.join(name)

        async def over() -> bool:
            return server.done()

        return await until_over(attempt, over, wait_s=1000, progress=Progress())

    async with asyncio.timeout(60):
        said = await asyncio.gather(*map(take_part, NAMES), return_exceptions=True)
    server.cancel()
    await asyncio.gather(server, return_exceptions=True)
    for error in said:
        assert isinstance(error, SecAggError | MechanismError | PartyError), error
        assert not isinstance(error, NotYet | StoreError)
        if not lies:
            assert isinstance(error, FederationRefused)
            assert error.status is Status.PROTOCOL
            assert "run.epsilon" in str(error)
    assert {owners.state(name) for name in NAMES} == {None}


def test_an_agreement_is_to_one_study_and_no_folder(config: Config, tmp_path: Path) -> None:
    folder, other = tmp_path / "own", config.override({"run.epsilon": 0.5})
    folder.mkdir(mode=0o700)
    (folder / "notes.txt").write_text("another file")

    def part_of(study: Config) -> FederationPart:
        owner = cast("Any", SimpleNamespace(config=study))
        return FederationPart(owner=owner, part=cast("Any", None), folder=folder, epsilon=None)

    assert not part_of(config).agreed
    part_of(config).keep_agreement()
    assert part_of(config).agreed
    assert not part_of(other).agreed
