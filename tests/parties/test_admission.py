"""Requests for admission at a server: bounded, bound to a study and a key, and never an answer to anybody else."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from parties.cli import doctor
from parties.cli import study as commands
from parties.config import CertificateFiles, Config
from parties.crypto.pinned_key import PinnedKey
from parties.foundation.errors import CertificateError
from parties.foundation.exit_codes import NotAdmitted, NotYet
from parties.foundation.version import INGEST_VERSION
from parties.identity import join_documents
from parties.identity.join_documents import (
    AdmissionRequest,
    JoinRequest,
    ensure_join_request,
    make_admission_request,
    parse_admission_request,
)
from parties.identity.signing import Issuer
from parties.identity.study_setup import CERTIFICATES, create_study, issue_certificate
from parties.identity.tls import (
    Authority,
    anonymous_client_context,
    anonymous_server_context,
    pinned_key_in,
)
from parties.mpc.submission import admission, status
from parties.mpc.submission.admission import AdmissionAnswer, await_admission
from parties.network.port_sharing import admission_sni_name
from parties.network.sni_router import SniRouter
from parties.observability.events import Progress
from parties.service import admission as module
from parties.service import responders
from parties.service.admission import (
    EXPIRES_S,
    AdmissionDesk,
    Applicant,
    Applicants,
    ApplicantState,
    OtherName,
    TooManyApplicants,
    UnknownApplicant,
    network_of,
)
from parties.service.events import service_events
from parties.service.known_studies import StudyChanges
from parties.service.studies import utc_now
from parties.service.study_intake import StudyFolder
from parties.service.study_record import StudyRecord, StudyState
from parties.session.connection_check import Finding
from tests.parties.hosts import make_cards
from tests.parties.small import write_small

STUDY = "5a" * 32


def asked(folder: Path, name: str = "north", study: str = STUDY) -> tuple[AdmissionRequest, bytes]:
    return make_admission_request(name, study, keys=folder)


class Clock:
    now = 1e9

    def __call__(self) -> float:
        return self.now


def test_a_request_is_what_its_key_signed_for_one_study(tmp_path: Path) -> None:
    request, text = asked(tmp_path / "north")
    assert parse_admission_request(text) == request
    for changed in (
        text.replace(b"north", b"south"),
        text.replace(STUDY.encode(), b"00" * 32),
        text.replace(b"admission = 1", b"admission = 2"),
        text + b'more = "1"\n',
        b"",
        b"\xff",
        b"#" * (join_documents.MAX_BYTES + 1),
    ):
        with pytest.raises(CertificateError):
            parse_admission_request(changed)


@pytest.mark.parametrize("part", ["a.", "a . ", '"a.b".', "'='\t."])
@pytest.mark.parametrize("before", ["", "x = {", "[", 'x = """\n"""\n'])
def test_a_key_of_thousands_of_parts_is_refused_unread(
    part: str, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold the whole service for a second, for strangers who may ask ten times a second."""
    monkeypatch.setattr("tomllib.loads", pytest.fail)
    for many in (32, 2000):
        with pytest.raises(CertificateError, match="not valid TOML"):
            parse_admission_request(f"{before}{part * many}a = 1\n".encode())


def test_a_request_for_the_coordinator_is_none_for_a_server(tmp_path: Path) -> None:
    """A file that was sent by mail tells its reader nothing of a study: its signature is of another kind."""
    path = tmp_path / "north.request"
    ensure_join_request("north", keys=tmp_path / "tls", path=path)
    forged = path.read_text().replace("request = 1", f'admission = 1\nstudy = "{STUDY}"')
    with pytest.raises(CertificateError, match="altered"):
        parse_admission_request(forged.encode())


def test_an_applicant_waits_is_admitted_and_is_kept(tmp_path: Path) -> None:
    folder, clock = tmp_path / "admission", Clock()
    found = Applicants(folder, clock)
    request, text = asked(tmp_path / "north")
    assert found.apply(request, text, "192.0.2.1").state is ApplicantState.PENDING
    Authority.make(tmp_path / "authority", 10)
    pem = issue_certificate(request, authority=tmp_path / "authority", valid_days=9).decode()
    issuer = Issuer.load(tmp_path / "authority" / "ca.crt")
    found.admit(pem, issuer)
    for each in (found, Applicants(folder, clock)):
        known = each.apply(request, text, "198.51.100.7")
        assert known.state is ApplicantState.ADMITTED
        assert known.certificate == pem
        assert known.remote == "192.0.2.1"
    with pytest.raises(UnknownApplicant):
        found.refuse(request.key)


def test_a_certificate_is_for_the_key_and_the_name_that_asked(tmp_path: Path) -> None:
    found = Applicants(tmp_path / "admission")
    request, text = asked(tmp_path / "north")
    found.apply(request, text, "192.0.2.1")
    Authority.make(tmp_path / "authority", 10)
    issuer = Issuer.load(tmp_path / "authority" / "ca.crt")
    other, _ = asked(tmp_path / "south", "south")
    renamed = JoinRequest("east", request.public)
    for wrong in (other, renamed):
        pem = issue_certificate(wrong, authority=tmp_path / "authority", valid_days=9).decode()
        with pytest.raises(UnknownApplicant):
            found.admit(pem, issuer)
    Authority.make(tmp_path / "false", 10)
    pem = issue_certificate(request, authority=tmp_path / "false", valid_days=9).decode()
    for nonsense in (pem, "", "nonsense"):
        with pytest.raises(CertificateError):
            found.admit(nonsense, issuer)
    assert [each.state for each in found.all()] == [ApplicantState.PENDING]


def test_a_name_is_never_replaced(tmp_path: Path) -> None:
    """Neither by the key's holder, between the words and the admission, nor by somebody else's key."""
    found = Applicants(tmp_path / "admission")
    request, text = asked(tmp_path / "north")
    found.apply(request, text, "192.0.2.1")
    again = asked(tmp_path / "north", "director")
    with pytest.raises(OtherName):
        found.apply(*again, "192.0.2.1")
    stranger = asked(tmp_path / "stranger", "north")
    found.apply(*stranger, "203.0.113.9")
    names = [(each.request.name, each.request.key) for each in found.all()]
    assert names == [("north", request.key), ("north", stranger[0].key)]


def flood(found: Applicants, folder: Path, number: int, remote: str) -> int:
    """The number of requests of new keys that get in."""
    taken = 0
    for each in range(number):
        key = folder / f"{remote.replace(':', '_')}-{each}"
        try:
            found.apply(*asked(key), remote)
            taken += 1
        except TooManyApplicants:
            continue
    return taken


def test_a_flood_is_bounded_by_address_and_pushes_itself_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 20)
    monkeypatch.setattr(module, "MAX_WAITING_AT_ADDRESS", 8)
    clock = Clock()
    found = Applicants(tmp_path / "admission", clock)
    north = asked(tmp_path / "north")
    found.apply(*north, "192.0.2.1")
    assert flood(found, tmp_path, 12, "203.0.113.1") == 8
    # One site's network of IPv6 is one address, whatever follows.
    for lower in range(12):
        flood(found, tmp_path, 1, f"2001:db8:0:{lower:x}::{lower + 1:x}")
    flood(found, tmp_path, 12, "203.0.113.2")
    assert len(found.all()) == 20
    # An owner whose house has not asked gets in, in the place of the flood's latest, and nobody else goes.
    clock.now += 1
    south = asked(tmp_path / "south", "south")
    found.apply(*south, "198.51.100.1")
    names = {each.request.name for each in found.all()}
    keys = {each.request.key for each in found.all()}
    assert len(keys) == 20
    assert {north[0].key, south[0].key} <= keys
    assert names == {"north", "south"}
    assert len(list((tmp_path / "admission").iterdir())) == 20
    assert {each.request.key for each in Applicants(tmp_path / "admission", clock).all()} == keys


def test_a_flood_does_not_push_out_who_is_admitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 4)
    found = Applicants(tmp_path / "admission")
    north = asked(tmp_path / "north")
    found.apply(*north, "192.0.2.1")
    Authority.make(tmp_path / "authority", 10)
    pem = issue_certificate(north[0], authority=tmp_path / "authority", valid_days=9).decode()
    found.admit(pem, Issuer.load(tmp_path / "authority" / "ca.crt"))
    for address in range(9):
        flood(found, tmp_path, 3, f"203.0.113.{address}")
    assert len(found.all()) == 5
    assert found.apply(*north, "192.0.2.1").certificate == pem


def test_requests_that_nobody_asks_about_expire(tmp_path: Path) -> None:
    clock = Clock()
    found = Applicants(tmp_path / "admission", clock)
    north, south = asked(tmp_path / "north"), asked(tmp_path / "south", "south")
    for each in (north, south):
        found.apply(*each, "192.0.2.1")
    clock.now += EXPIRES_S / 2
    found.apply(*north, "192.0.2.1")
    clock.now += EXPIRES_S * 0.75
    assert [each.request.name for each in found.all()] == ["north"]
    # Also where nobody looks: what is refused is forgotten, too.
    found.refuse(north[0].key)
    clock.now += EXPIRES_S * 1.1
    found.apply(*south, "192.0.2.1")
    assert [each.request.name for each in found.all()] == ["south"]


@pytest.mark.parametrize(
    ("remote", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/48"),
        ("fe80::1%eth0", "fe80::/48"),
        ("", ""),
        ("nonsense", ""),
    ],
)
def test_network_of_an_address(remote: str, network: str) -> None:
    assert network_of(remote) == network


def test_connections_of_an_address_are_counted_before_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS_A_MINUTE", 3)
    desk = AdmissionDesk({}, lambda study: None, lambda study: None)  # type: ignore[arg-type, return-value]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        said = []
        for _ in range(5):
            with socket.create_connection(listener.getsockname()) as ours:
                theirs, _ = listener.accept()
                with theirs:
                    said.append(desk._too_many(theirs))
                    assert ours.fileno() > 0
        assert said == [False, False, False, True, True]
        monkeypatch.setattr(module, "_WINDOW_S", -1.0)
        with socket.create_connection(listener.getsockname()):
            theirs, _ = listener.accept()
            with theirs:
                assert not desk._too_many(theirs)


async def test_an_owner_without_a_certificate_knows_the_server_by_its_key_alone(
    certificates: Mapping[str, CertificateFiles], tmp_path: Path
) -> None:
    served = certificates["party-0"]

    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(hello, "127.0.0.1", 0, ssl=anonymous_server_context(served))
    port = server.sockets[0].getsockname()[1]
    pinned = pinned_key_in(served.cert)
    other_key = pinned_key_in(certificates["party-1"].cert).key
    async with server:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=anonymous_client_context(pinned)
        )
        assert await reader.read() == b"hello"
        writer.close()
        for wrong in (PinnedKey(pinned.name, other_key), PinnedKey("party-1", pinned.key)):
            with pytest.raises(OSError, match=r"key|party"):
                await asyncio.open_connection(
                    "127.0.0.1", port, ssl=anonymous_client_context(wrong)
                )


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    first, _ = asked(tmp_path / "tls")
    again, _ = asked(tmp_path / "tls", study="00" * 32)
    assert first.key == again.key
    assert (tmp_path / "tls" / "own.key").stat().st_mode & 0o777 == 0o600


class Studies(dict[str, StudyRecord]):
    """The studies of a service, as a desk sees them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.changes = StudyChanges()
        self.events = service_events()
        self._folder = folder

    def folder(self, study: StudyRecord) -> StudyFolder:
        return StudyFolder(self._folder, study.run, study.digest)


@dataclass
class Alpha:
    """The desk of the server alpha at its port, for one study; the two others are away."""

    config: Config
    authority: Path
    studies: Studies
    desk: AdmissionDesk

    @property
    def record(self) -> StudyRecord:
        return self.studies[self.config.digest()]

    async def ask(self, request: tuple[AdmissionRequest, bytes], wait_s: float = 0) -> str:
        return await await_admission(self.config, *request, wait_s=wait_s, progress=Progress())

    def certificate(self, request: JoinRequest) -> str:
        return issue_certificate(request, authority=self.authority, valid_days=9).decode()


@pytest.fixture
async def alpha(tmp_path: Path) -> AsyncIterator[Alpha]:
    path, _ = write_small(tmp_path)
    Authority.make(tmp_path / "authority", 10)
    cards = make_cards(tmp_path)
    out = tmp_path / "out"
    config = create_study(path, cards, authority=tmp_path / "authority", out=out, valid_days=9)
    files = CertificateFiles(
        out / CERTIFICATES / "ca.crt",
        out / CERTIFICATES / "alpha.crt",
        tmp_path / "alpha" / "tls" / "own.key",
    )
    studies, digest, at = Studies(tmp_path / "service"), config.digest(), utc_now()
    studies[digest] = StudyRecord(
        digest, "distaim", config.run.id, "alpha", at, StudyState.PROPOSED, at
    )
    studies.folder(studies[digest]).path.mkdir(parents=True)
    desk = AdmissionDesk(studies, lambda study: files, lambda study: config)  # type: ignore[arg-type]
    ingest = config.parties[0].ingest
    router = SniRouter.open("ingest", ingest)
    router.fallback = desk.take
    yield Alpha(config, tmp_path / "authority", studies, desk)
    await router.close()
    await desk.close()


async def test_an_owner_is_admitted_by_the_one_server_that_is_there(
    alpha: Alpha, tmp_path: Path
) -> None:
    north = asked(tmp_path / "north", study=alpha.config.digest())
    with pytest.raises(NotYet, match="waits at alpha; beta cannot be reached"):
        await alpha.ask(north)
    (waiting,) = await alpha.desk.all(alpha.record)
    assert (waiting.request, waiting.remote) == (north[0], "127.0.0.1")
    pem = alpha.certificate(north[0])
    await alpha.desk.admit(alpha.record, pem)
    assert await alpha.ask(north) == pem
    # The key's holder alone hears of it, and by the one name.
    with pytest.raises(NotAdmitted, match="has asked by the name 'north'"):
        await alpha.ask(asked(tmp_path / "north", "east", alpha.config.digest()))
    with pytest.raises(NotYet, match="waits at alpha"):
        await alpha.ask(asked(tmp_path / "stranger", "north", alpha.config.digest()))


@pytest.mark.parametrize(("said", "ahead_s"), [(INGEST_VERSION, 0), (INGEST_VERSION + 1, 612)])
async def test_the_doctor_hears_version_and_clock_before_there_is_a_certificate(
    alpha: Alpha, monkeypatch: pytest.MonkeyPatch, said: int, ahead_s: int
) -> None:
    def nothing() -> CertificateFiles:
        raise CertificateError("there is no key yet")

    async def connects(*given: object, **more: object) -> list[Finding]:
        return []

    # What answers for a study itself is not here.
    monkeypatch.setattr(doctor, "check_connection", connects)
    # Of this side alone: the server is in this process.
    real = time.time
    for told in (admission, status):
        monkeypatch.setattr(told, "time", SimpleNamespace(time=lambda: real() - ahead_s))
    monkeypatch.setattr(doctor, "INGEST_VERSION", said)
    found = await doctor.examine(alpha.config, nothing, limit_s=5.0)
    (findings,) = (each for where, each in found.items() if where.startswith("alpha at "))
    well = not ahead_s
    assert [(each.step, each.ok) for each in findings] == [("version", well), ("clock", well)]
    assert f"version {INGEST_VERSION}" in findings[0].text
    assert well or "10 min 1" in findings[-1].text


async def test_what_a_server_puts_behind_a_certificate_is_left_out(
    alpha: Alpha, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL takes no file with a damaged block, and the owner would have one for good."""
    north = asked(tmp_path / "north", study=alpha.config.digest())
    pem = alpha.certificate(north[0])
    behind = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

    async def answered(*_: object) -> AdmissionAnswer:
        return AdmissionAnswer("alpha", 200, f"before\n{pem}{behind}")

    monkeypatch.setattr(admission, "_ask", answered)
    assert await alpha.ask(north) == pem


async def test_a_request_for_another_study_says_nothing_of_this_one(
    alpha: Alpha, tmp_path: Path
) -> None:
    north = asked(tmp_path / "north", study=alpha.config.digest())
    with pytest.raises(NotYet):
        await alpha.ask(north)
    await alpha.desk.admit(alpha.record, alpha.certificate(north[0]))
    with pytest.raises(NotYet, match="is for another study"):
        await alpha.ask(asked(tmp_path / "north", study="00" * 32))


async def test_a_lying_server_admits_nobody(
    alpha: Alpha, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with another authority's certificate, nor with one of another name, key or use."""
    north = asked(tmp_path / "north", study=alpha.config.digest())
    south = asked(tmp_path / "south", "south", alpha.config.digest())
    false = tmp_path / "false"
    Authority.make(false, 10)
    lies = [
        issue_certificate(north[0], authority=false, valid_days=9).decode(),
        alpha.certificate(south[0]),
        alpha.certificate(JoinRequest("east", north[0].public)),
        alpha.certificate(JoinRequest("north", south[0].public)),
        (alpha.config.base / CERTIFICATES / "alpha.crt").read_text(),
        "nonsense",
    ]
    for lie in lies:
        told = Applicant(north[0], "", "", 0, 0, ApplicantState.ADMITTED, lie)
        monkeypatch.setattr(Applicants, "apply", lambda *given, told=told: told)
        with pytest.raises(NotYet):
            await alpha.ask(north)


async def test_a_refusal_ends_the_wait_and_a_study_that_is_over_takes_none(
    alpha: Alpha, tmp_path: Path
) -> None:
    north = asked(tmp_path / "north", study=alpha.config.digest())
    with pytest.raises(NotYet):
        await alpha.ask(north)
    await alpha.desk.refuse(alpha.record, north[0].key)
    with pytest.raises(NotAdmitted, match="was refused"):
        await alpha.ask(north, 30)
    await alpha.desk.admit(alpha.record, alpha.certificate(north[0]))
    assert await alpha.ask(north)
    alpha.studies[alpha.config.digest()] = replace(alpha.record, state=StudyState.FINISHED)
    # One server's word alone ends nothing.
    with pytest.raises(NotYet, match="was finished"):
        await alpha.ask(north)
    assert alpha.desk.take("0" * 32 + ".admission.syncret.invalid", None) is False  # type: ignore[arg-type]


async def test_a_connection_that_dawdles_is_ended(
    alpha: Alpha, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REQUEST_S", 0.5)
    party, digest = alpha.config.parties[0], alpha.config.digest()
    for said in (b"", b"PUT /", b"PUT / HTTP/1.1\r\nContent-Length: 9\r\n\r\n"):
        reader, writer = await asyncio.open_connection(
            party.ingest.host,
            party.ingest.port,
            ssl=anonymous_client_context(party.pinned),
            server_hostname=admission_sni_name(digest),
        )
        writer.write(said)
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionError):
                await reader.read()
        writer.close()
    with pytest.raises(NotYet, match="waits at alpha"):
        await alpha.ask(asked(tmp_path / "north", study=digest))


async def test_connections_that_dawdle_keep_nobody_away(
    alpha: Alpha, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address may begin ten in a second, each for ten seconds: three of them would hold all that there is."""
    monkeypatch.setattr(responders, "MAX_CONNECTIONS", 3)
    party, writers = alpha.config.parties[0], list[asyncio.StreamWriter]()
    for _ in range(5):
        _, writer = await asyncio.open_connection(
            party.ingest.host,
            party.ingest.port,
            ssl=anonymous_client_context(party.pinned),
            server_hostname=admission_sni_name(alpha.config.digest()),
        )
        writers.append(writer)
    with pytest.raises(NotYet, match="waits at alpha"):
        await alpha.ask(asked(tmp_path / "north", study=alpha.config.digest()))
    for writer in writers:
        writer.close()


@pytest.mark.parametrize("change", ["name", "key", "request"])
def test_a_coordinators_own_server_puts_no_other_name_or_key_under_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The words of north were heard: nobody but north is certified, whatever the server shows."""
    north, south = asked(tmp_path / "north"), asked(tmp_path / "south", "south")
    shown = {
        each[0].name: Applicant(each[0], each[1].decode(), "", 0, 0).to_dict()
        for each in (north, south)
    }
    lie = {**shown["north"], change: shown["south"][change]}
    if change == "request":
        lie["request"] = str(shown["south"]["request"]).replace("south", "north")
    Authority.make(tmp_path / "authority", 10)
    posted: list[str] = []

    def answer(folder: Path, method: str, target: str, document: object = None) -> object:
        if method == "POST":
            posted.append(str(document))
            return {"name": "north"}
        return {"requests": [lie]}

    monkeypatch.setattr(commands, "service_answer", answer)
    words = str(shown["north"]["words"])
    arguments = ["admit", "stays", words, "--authority", str(tmp_path / "authority")]
    done = CliRunner().invoke(commands.study, arguments)
    issued = tmp_path / "authority" / "issued"
    names = sorted(path.stem for path in issued.glob("*")) if issued.exists() else []
    if change == "name":
        assert (done.exit_code, names) == (0, ["north"])
    else:
        assert done.exit_code != 0
        assert (names, posted) == ([], [])
