"""Charges of participants at real servers: what each ending of a run, of each method, leaves in an owner's budget."""

import asyncio
import hashlib
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mechanisms.errors import RoundLost
from parties.config import CertificateFiles, Config
from parties.federation.messages import FederationMessage, MessageKind
from parties.federation.participant_charge import ParticipantCharge
from parties.federation.server import run_federated_server
from parties.federation.silos import silos_plan
from parties.foundation.errors import CertificateError, FrameTransportError, StoreError
from parties.foundation.exit_codes import FederationRefused, TooFewClients
from parties.identity.tls import certificate_bytes, make_certificates
from parties.methods.flaim.server import flaim_plan
from parties.mpc.outputs import STORE_FOLDER
from parties.mpc.participants.finalized import Finalized
from parties.mpc.storage.store import Store
from parties.mpc.submission.messages import MAX_VERSION
from parties.mpc.submission.sealed_upload import Tombstone, check_tombstone, receipts_in
from parties.mpc.submission.withdrawal_client import sign_withdrawal
from parties.service.closed_returns import ClosedReturns, OwnerRequest
from parties.service.studies import utc_now
from parties.service.study_record import ACTIVE, NOT_STARTED, StudyRecord, StudyState
from parties.storage.charge_state import ChargeState
from parties.storage.owner_budget import BudgetAccount, OwnerBudget
from parties.storage.population_budget import Release
from parties.storage.populations import TableIdentity
from parties.storage.release_registry import RegisteredFolder, ReleaseRegistry
from tests.parties import flaim_support, silos_support, support
from tests.parties.flaim_support import Events, codes_of, flaim_config
from tests.parties.silos_support import NAMES, SERVER, Tails, leaving, silos_config
from tests.parties.test_store import put
from tests.until import listens

Certificates = dict[str, CertificateFiles]
CHARGED, RELEASED, RETURNED = ChargeState.CHARGED, ChargeState.RELEASED, ChargeState.RETURNED


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("endings"), [SERVER], [*NAMES, "stranger"])


@dataclass(frozen=True)
class Played:
    """A run's outcome: the server's error, the participants' errors, and the states of their charges, by name."""

    server: BaseException | None
    errors: Mapping[str, BaseException | None]
    states: Mapping[str, ChargeState | None]


class Run:
    """A run of a method with its real server and participants, each with a budget of its own."""

    def __init__(self, method: str, certificates: Certificates, folder: Path, **changes: object):
        self.method, self.certificates, self.folder = method, certificates, folder
        self.register = folder / "register"
        changes = {"clients.wait_s": 2.0, "timeouts.connect_s": 1.0} | changes
        make = flaim_config if method == "flaim" else silos_config
        self.config = make(certificates, changes)
        self.plan = Tails(self.config)

    def account(self, name: str) -> BudgetAccount:
        release = Release(self.config.digest(), "trial", self.method, 0.1, 1.0, 1e-5)
        return BudgetAccount(self.budget(name), TableIdentity(name), release)

    def budget(self, name: str) -> OwnerBudget:
        return OwnerBudget(self.folder / f"{name}.sqlite")

    def state(self, name: str) -> ChargeState | None:
        budget = self.budget(name)
        assert budget.intended() == []
        states = [run.state for dataset in budget.datasets() for run in dataset.runs]
        assert len(states) <= 1
        return states[0] if states else None

    @property
    def address(self) -> tuple[str, int]:
        """The server's."""
        section = self.config.federation
        assert section is not None
        assert section.address is not None
        return section.address.host, section.address.port

    @property
    def signed(self) -> int:
        """Number of statements that the server has sent, in all attempts."""
        return (self.folder / "server" / "transcript.jsonl").read_text().count(".unopened")

    async def join(self, name: str, config: Config | None = None) -> object:
        index, files = NAMES.index(name), self.certificates[name]
        options = {"progress": Events(), "account": self.account(name)}
        config = config or self.config
        # A folder belongs to one configuration.
        folder = self.folder / name if config is self.config else self.folder / config.digest()
        if self.method == "flaim":
            return await flaim_support.run_client(config, codes_of(index), files, folder, **options)
        plan = replace(self.plan, config=config)
        return await silos_support.run_silo(
            config, silos_support.TABLE, files, folder, plan=plan, **options
        )

    async def serve(self) -> None:
        plan = (
            flaim_plan(self.config)
            if self.method == "flaim"
            else silos_plan(self.config, self.plan)
        )
        (self.folder / "server").mkdir(exist_ok=True)
        await run_federated_server(
            self.config,
            self.folder / "server",
            plan=plan,
            progress=Events(),
            closed=asyncio.Event(),
            register=self.register,
        )

    def leave(self, name: str, at: str) -> Any:
        module = flaim_support if self.method == "flaim" else silos_support
        rest = () if self.method == "flaim" else (self.plan,)
        number = {"round": 0} if self.method == "flaim" else {"number": 1}
        return module.leaving(  # type: ignore[attr-defined]
            self.config, self.certificates, self.folder, *rest, NAMES.index(name), at=at, **number
        )()

    async def play(self, *present: str, leaving: Mapping[str, str] | None = None) -> Played:
        """The participants ``present`` join; those of ``leaving`` leave at a message."""
        gone = leaving or {}
        server, *errors = await asyncio.gather(
            self.serve(),
            *(self.join(name) for name in present),
            *(self.leave(name, at) for name, at in gone.items()),
            return_exceptions=True,
        )
        found = {
            name: error if isinstance(error, BaseException) else None
            for name, error in zip(present, errors, strict=False)
        }
        states = {name: self.state(name) for name in present}
        return Played(server if isinstance(server, BaseException) else None, found, states)


METHODS = ("flaim", "tails")


@pytest.mark.parametrize("method", METHODS)
async def test_charge_is_released_once_a_sum_with_it_is_opened(
    method: str, tmp_path: Path, certificates: Certificates
) -> None:
    played = await Run(method, certificates, tmp_path).play(*NAMES)
    assert played.server is None
    assert played.states == dict.fromkeys(NAMES, RELEASED)


@pytest.mark.parametrize("method", METHODS)
async def test_study_of_too_few_costs_nothing(
    method: str, tmp_path: Path, certificates: Certificates
) -> None:
    played = await Run(method, certificates, tmp_path).play(*NAMES[:2])
    assert isinstance(played.server, TooFewClients)
    assert {type(error) for error in played.errors.values()} == {FederationRefused}
    assert played.states == dict.fromkeys(NAMES[:2], None)


@pytest.mark.parametrize("security", ["semi-honest", "malicious"])
async def test_charge_of_a_sum_that_is_given_up_is_returned_where_the_promise_rests_on_the_server(
    security: str, tmp_path: Path, certificates: Certificates
) -> None:
    """Two of six leave before their masked vectors: too few for a sum of five; the study ends, nothing was opened."""
    malicious = silos_support.MALICIOUS if security == "malicious" else {}
    run = Run("tails", certificates, tmp_path, **malicious, **{"silos.minimum": 5})
    leaving = dict.fromkeys(NAMES[4:], "secagg.inbox")
    played = await run.play(*NAMES[:4], leaving=leaving)
    assert isinstance(played.server, RoundLost)
    expected = RETURNED if security == "semi-honest" else CHARGED
    assert played.states == dict.fromkeys(NAMES[:4], expected)
    for name in NAMES[:4]:
        (dataset,) = run.budget(name).datasets()
        assert len(dataset.spending) == (0 if expected is RETURNED else 1)
    assert run.signed == (4 if expected is RETURNED else 0)
    # A later attempt does not know what an earlier one has seen, and signs nothing.
    again = await run.play(*NAMES)
    assert isinstance(again.server, RoundLost)
    assert again.states == {**dict.fromkeys(NAMES, None), **played.states}
    assert run.signed == (4 if expected is RETURNED else 0)


async def test_server_that_has_opened_anything_signs_nothing(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The first sum is opened, the second is lost."""
    run = Run("tails", certificates, tmp_path, **{"silos.minimum": 5})
    faults = {
        index: leaving(
            run.config, certificates, tmp_path, run.plan, index, at="secagg.inbox", number=2
        )
        for index in (4, 5)
    }
    server, *_ = await asyncio.gather(
        run.serve(),
        *(run.join(name) for name in NAMES[:4]),
        *(fault() for fault in faults.values()),
        return_exceptions=True,
    )
    assert isinstance(server, RoundLost)
    assert {run.state(name) for name in NAMES[:4]} == {RELEASED}
    assert run.signed == 0


@pytest.mark.parametrize("method", METHODS)
async def test_server_that_is_not_the_pinned_one_or_does_not_answer_costs_nothing(
    method: str, tmp_path: Path, certificates: Certificates
) -> None:
    run = Run(method, certificates, tmp_path)
    section = "flaim" if method == "flaim" else "silos"
    with pytest.raises(FrameTransportError):
        await run.join(NAMES[0])
    assert run.state(NAMES[0]) is None
    # A port where somebody listens who says nothing.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        deaf = run.config.override({f"{section}.address": address, "timeouts.connect_s": 0.5})
        with pytest.raises(FrameTransportError):
            await run.join(NAMES[0], deaf)
    assert run.state(NAMES[0]) is None
    server = asyncio.create_task(run.serve())
    await listens(*run.address)
    wrong = run.config.override({f"{section}.key": hashlib.sha256(b"another").hexdigest()})
    other = run.config.override({"run.delta": 2e-5})
    for changed in (wrong, other):
        with pytest.raises((FrameTransportError, CertificateError, FederationRefused)):
            await run.join(NAMES[0], changed)
        assert run.state(NAMES[0]) is None
    server.cancel()
    await asyncio.gather(server, return_exceptions=True)


@pytest.mark.parametrize("method", METHODS)
async def test_study_that_is_cancelled_before_a_sum_costs_nothing(
    method: str, tmp_path: Path, certificates: Certificates
) -> None:
    run = Run(method, certificates, tmp_path, **{"clients.wait_s": 30.0})
    server = asyncio.create_task(run.serve())
    joining = [asyncio.create_task(run.join(name)) for name in NAMES[:2]]
    await asyncio.sleep(1.5)  # Sleeps: head start.
    server.cancel()
    ends = await asyncio.gather(*joining, return_exceptions=True)
    await asyncio.gather(server, return_exceptions=True)
    assert {type(end) for end in ends} == {FederationRefused}
    assert {run.state(name) for name in NAMES[:2]} == {None}


@pytest.mark.parametrize("method", METHODS)
async def test_old_copy_of_a_participants_folder_answers_nothing_for_what_is_charged(
    method: str, tmp_path: Path, certificates: Certificates
) -> None:
    """Its ledger would pay a second time, for a budget that was charged once."""
    run, folder = Run(method, certificates, tmp_path), tmp_path / NAMES[0]
    await run.play(*NAMES[:2])
    shutil.copytree(folder, tmp_path / "copy")
    played = await run.play(*NAMES)
    assert played.states == dict.fromkeys(NAMES, RELEASED)
    now = folder.rename(tmp_path / "now")
    shutil.copytree(tmp_path / "copy", folder)
    with pytest.raises(StoreError, match="its folder is an old copy"):
        await run.join(NAMES[0])
    # The control: the folder as it was left may come back.
    shutil.rmtree(folder)
    now.rename(folder)
    with pytest.raises(FrameTransportError):
        await run.join(NAMES[0])


PLAIN = FederationMessage(MessageKind.PLAIN, 0, b"answer").pack()


@pytest.mark.parametrize("answers", [1, 3])
def test_two_copies_of_a_participants_folder_do_not_both_answer(
    tmp_path: Path, answers: int
) -> None:
    """Both begin alike; the one that answers later is refused, and may go on after a start of its own alone."""
    release = Release("c1" * 32, "trial", "flaim", 0.1, 1.0, 1e-5)
    account = BudgetAccount(
        OwnerBudget(tmp_path / "budget.sqlite"), TableIdentity("stays"), release
    )
    ledgers = [0, 0]
    one, other = (
        ParticipantCharge(account, "ledger", lambda i=i: ledgers[i])  # type: ignore[misc]
        for i in range(2)
    )
    one.intend()
    other.intend()
    for _ in range(answers):
        ledgers[0] += 1
        one.before(PLAIN)
    ledgers[1] = 1
    with pytest.raises(StoreError, match="a copy of its folder takes part as well"):
        other.before(PLAIN)
    ledgers[0] += 1
    one.before(PLAIN)
    assert account.budget.answered(release.config, "ledger") == answers + 1
    # The control: a program of the same folder that begins after the other has ended goes on.
    again = ParticipantCharge(account, "ledger", lambda: ledgers[0])
    again.intend()
    ledgers[0] += 1
    again.before(PLAIN)
    assert account.budget.answered(release.config, "ledger") == answers + 2


def test_end_drops_what_another_process_of_the_participant_has_intended(tmp_path: Path) -> None:
    release = Release("c1" * 32, "trial", "flaim", 0.1, 1.0, 1e-5)
    account = BudgetAccount(
        OwnerBudget(tmp_path / "budget.sqlite"), TableIdentity("stays"), release
    )
    for killed in (True, False):
        charge = ParticipantCharge(account, "ledger")
        charge.intend()
        assert [each.config for each in account.budget.intended()] == [release.config]
        ending = ParticipantCharge(account, "ledger") if killed else charge
        assert ending.end(support.make_config(), OWNER, None) is None
        assert account.budget.intended() == []


# Studies of DistAIM without a process


OWNER = "clinic-a"


@dataclass
class Closed:
    """A study of DistAIM at a service, without its process, and its store."""

    folder: Path
    config: Config

    def __post_init__(self) -> None:
        own = support.certificates()[support.PARTIES[0]]
        self.seal, self.work, self.register = (
            self.folder / name for name in ("seal.key", "work", "register")
        )
        self.seal.touch()
        self.file = self.folder / "study.toml"
        tls = {"ca": str(own.ca), "cert": str(own.cert), "key": str(own.key)}
        self.file.write_text(self.config.override({"tls": tls}).resolved_toml())
        paths = SimpleNamespace(config=self.file, work=self.work, seal=self.seal)
        identity: Any = SimpleNamespace(pid=0, own=SimpleNamespace(name=support.PARTIES[0]))
        studies: Any = SimpleNamespace(folder=lambda study: paths)
        self.returns = ClosedReturns(identity, studies, self.register)

    def store(self) -> Store:
        return Store(self.work / STORE_FOLDER, self.config.digest())

    def ask(self, state: StudyState, *, version: int | None = None, client: str = OWNER) -> int:
        """Version up to which it signs for an owner that asks, or withdraws up to ``version``; 0 for nothing."""
        files, at = support.certificates()[client], utc_now()
        record = StudyRecord(self.config.digest(), "distaim", "trial", "alpha", at, state, at)
        headers = None
        if version is not None:
            headers = sign_withdrawal(self.config, files, version).headers()
        request = OwnerRequest(client, certificate_bytes(files), headers)
        found = self.returns.answer(record, request)
        if found is None:
            return 0
        (receipt,) = receipts_in(found)
        signed = found["settled"]
        assert isinstance(signed, int)
        check_tombstone(
            receipt, Tombstone("trial", self.config.digest(), client, signed), self.config
        )
        assert found.get("void", False) == (signed == MAX_VERSION)
        return signed

    def released(self, *clients: str) -> None:
        """A release of ``clients`` is in the registry."""
        registry = ReleaseRegistry(self.register)
        with self.store() as store:
            folder = RegisteredFolder.of_server(self.config, 0, store.identity, self.work)
        registry.begin(folder)
        registry.release(folder, clients, 1)


@pytest.fixture
def closed(tmp_path: Path) -> Closed:
    return Closed(tmp_path, support.make_config())


@pytest.mark.parametrize("state", [StudyState.FINISHED, StudyState.CANCELLED])
def test_study_that_is_over_signs_for_owners_that_no_release_has(
    closed: Closed, state: StudyState
) -> None:
    """Excluded, late or revoked before a round; nothing is signed while a secret is left."""
    assert closed.ask(state) == 0
    closed.seal.unlink()
    assert closed.ask(state) == MAX_VERSION
    closed.released("clinic-b")
    assert closed.ask(state) == MAX_VERSION
    assert closed.ask(state, client="clinic-b") == 0
    assert closed.ask(state, client="clinic-b", version=1) == 0


def test_study_whose_release_has_no_owners_on_record_signs_for_nobody(closed: Closed) -> None:
    closed.seal.unlink()
    closed.released()
    assert closed.ask(StudyState.CANCELLED) == 0


@pytest.mark.parametrize("state", [*ACTIVE, *NOT_STARTED])
def test_study_that_is_not_over_signs_nothing(closed: Closed, state: StudyState) -> None:
    closed.seal.unlink()
    assert closed.ask(state) == closed.ask(state, version=1) == 0


def test_failed_study_signs_what_an_owner_withdraws_and_deletes_its_shares(closed: Closed) -> None:
    """It may be approved again: what is not withdrawn stays, and what is withdrawn does not come back."""
    failed = StudyState.FAILED
    assert closed.ask(failed, version=1) == 0
    for client in (OWNER, "clinic-b"):
        with closed.store() as store:
            put(store, support.make_submission(client, config=closed.config.digest()), b"share")
    assert closed.ask(failed) == 0
    assert closed.ask(failed, version=1) == 1
    assert closed.ask(failed) == 1
    assert closed.ask(failed, client="clinic-b") == 0
    with closed.store() as store:
        assert store.submissions.upload_digest(OWNER) is None
        assert store.submissions.upload_digest("clinic-b") is not None
        assert store.finalized.version(OWNER) == 1
        assert store.finalized.withdrawal(OWNER) is not None
        store.finalized.add_finalized([Finalized("clinic-b", "ab" * 32, 0)])
    assert closed.ask(failed, client="clinic-b", version=1) == 0
    closed.released(OWNER)
    assert closed.ask(failed) == 0


def test_failed_study_takes_no_withdrawal_that_its_owner_has_not_signed(closed: Closed) -> None:
    with closed.store():
        pass
    files = support.certificates()
    headers = sign_withdrawal(closed.config, files["clinic-b"], 1).headers()
    request = OwnerRequest(OWNER, certificate_bytes(files[OWNER]), headers)
    at = utc_now()
    record = StudyRecord(closed.config.digest(), "distaim", "trial", "a", at, StudyState.FAILED, at)
    with pytest.raises(CertificateError):
        closed.returns.answer(record, request)
    with closed.store() as store:
        assert store.finalized.version(OWNER) == 0
