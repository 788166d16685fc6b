"""Releases of a participant's key that a federation's server knows are charged, though its budget was put back."""

import asyncio
import dataclasses
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import parties.federation.server
from mechanisms.errors import BudgetExceeded, RoundLost
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import Config
from parties.federation.members import ClientExchange
from parties.federation.messages import FederationMessage, MessageKind
from parties.federation.release_question import ask_server_releases
from parties.federation.release_statements import (
    ReleaseStatement,
    signed_statements,
    statement_for,
    statements_in,
    told_statements,
)
from parties.federation.secure_sum import SecureSums
from parties.foundation.errors import FederationProtocolError
from parties.foundation.exit_codes import Status
from parties.identity.signing import signatory_of
from parties.identity.tls import certificate_bytes, make_certificates
from parties.storage.charge_state import ChargeState
from parties.storage.owner_budget import BudgetAccount, OwnerBudget
from parties.storage.release_registry import RegisteredFolder, ReleaseRegistry
from secagg import wire
from tests.parties.silos_support import NAMES, SERVER, leaving
from tests.parties.test_charge_endings import METHODS, Certificates, Run
from tests.until import listens

OWN, OTHER = NAMES[:2]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("told"), [SERVER], [*NAMES, "stranger"])


class Study(Run):
    """A run in a folder of its own, with the budgets and the registry of all runs in the same place."""

    def __init__(
        self, method: str, certificates: Certificates, place: Path, name: str, **changes: object
    ) -> None:
        (place / name).mkdir()
        super().__init__(method, certificates, place / name, **{"run.id": name}, **changes)
        self.place, self.register = place, place / "register"

    def budget(self, name: str) -> OwnerBudget:
        return OwnerBudget(self.place / f"{name}.sqlite")

    def account(self, name: str) -> BudgetAccount:
        account = super().account(name)
        release = dataclasses.replace(account.release, run=self.config.run.id)
        return dataclasses.replace(account, release=release)

    def state(self, name: str) -> ChargeState | None:
        """State of this run's charge."""
        runs = [run for dataset in self.budget(name).datasets() for run in dataset.runs]
        config = self.config.digest()
        return next((run.state for run in runs if run.release.config == config), None)

    def spent(self, name: str) -> list[str]:
        """Runs that the budget of a participant has paid for."""
        return [run.release.run for item in self.budget(name).datasets() for run in item.spending]

    def put_back(self, *names: str) -> None:
        """The budgets are as they were before any run: there are none."""
        for name in names:
            for path in self.place.glob(f"{name}.sqlite*"):
                path.unlink()

    async def serve_to(self, name: str) -> BaseException | None:
        """The server takes this participant alone; returns the participant's error."""
        server = asyncio.create_task(self.serve())
        (error,) = await asyncio.gather(self.join(name), return_exceptions=True)
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)
        return error if isinstance(error, BaseException) else None

    @contextmanager
    def serving(self) -> Iterator[None]:
        """The server runs in a thread of its own."""
        begun, ends = threading.Event(), threading.Event()

        async def serve() -> None:
            server = asyncio.create_task(self.serve())
            await listens(*self.address)
            begun.set()
            await asyncio.to_thread(ends.wait)
            server.cancel()
            await asyncio.gather(server, return_exceptions=True)

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        assert begun.wait(60)
        try:
            yield
        finally:
            ends.set()
            thread.join()


async def played(method: str, certificates: Certificates, place: Path) -> Study:
    """A run that is over, of all participants."""
    one = Study(method, certificates, place, "one")
    found = await one.play(*NAMES)
    assert found.states == dict.fromkeys(NAMES, ChargeState.RELEASED)
    return one


@pytest.mark.parametrize("method", METHODS)
async def test_join_charges_first_what_the_server_has_kept(
    method: str, tmp_path: Path, certificates: Certificates
) -> None:
    """The budget's limit, of the first run, covers one run: the second one is refused, and nothing is sent."""
    one = await played(method, certificates, tmp_path)
    one.put_back(OWN)
    two = Study(method, certificates, tmp_path, "two")
    assert isinstance(await two.serve_to(OWN), BudgetExceeded)
    assert two.spent(OWN) == ["one"]
    assert two.budget(OWN).intended() == []
    (release,) = (run.release for run in two.budget(OWN).datasets()[0].runs)
    assert release == one.account(OWN).release


async def test_join_of_the_same_study_charges_again_before_anything_is_sent(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The first sum was opened, the second lost; the next attempt asks for nothing."""
    run = Study("tails", certificates, tmp_path, "one", **{"silos.minimum": 5})
    faults = [
        leaving(run.config, certificates, run.folder, run.plan, index, at="secagg.inbox", number=2)
        for index in (4, 5)
    ]
    await asyncio.gather(
        run.serve(),
        *(run.join(name) for name in NAMES[:4]),
        *(fault() for fault in faults),
        return_exceptions=True,
    )
    assert run.state(OWN) is ChargeState.RELEASED
    (before,) = run.budget(OWN).datasets()[0].runs
    run.put_back(OWN)
    again = await run.play(*NAMES)
    assert isinstance(again.server, RoundLost)
    (after,) = run.budget(OWN).datasets()[0].runs
    assert (after.release, after.submission) == (before.release, before.submission)
    assert run.state(NAMES[4]) is None


async def test_statements_of_a_study_that_opened_nothing_are_not_kept(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Two of six leave before their masked vectors, and the sum is given up: the others' charges come back."""
    run = Study("tails", certificates, tmp_path, "one", **{"silos.minimum": 5})
    found = await run.play(*NAMES[:4], leaving=dict.fromkeys(NAMES[4:], "secagg.inbox"))
    assert found.states == dict.fromkeys(NAMES[:4], ChargeState.RETURNED)
    registry = ReleaseRegistry(run.register)
    for name in NAMES:
        assert told_statements(registry, certificate_bytes(certificates[name])) == b"[]"


def secure_sums(config: Config, kept: list[object]) -> SecureSums:
    """Sums without participants; ``kept`` gets all that is kept."""
    nothing: Any = SimpleNamespace(present={})
    return SecureSums(
        config, nothing, nothing, wait=nothing, keep=lambda said: kept.append(set(said))
    )


def test_statement_of_one_that_leaves_after_its_masked_vector_is_kept(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The sum has its numbers."""
    run = Study("tails", certificates, tmp_path, "one", **{"silos.minimum": 5})
    own = certificate_bytes(certificates[OWN])
    exchange = ClientExchange(SimpleNamespace(present={}), (), None)  # type: ignore[arg-type]
    exchange.numbers, gone = (0,), SimpleNamespace(certificate=own, statement="said")
    exchange._members = [gone]  # type: ignore[list-item]
    kept: list[object] = []
    sums = secure_sums(run.config, kept)
    masked, unmasking = (
        wire.MAGIC + bytes([0, kind]) for kind in (wire.Kind.MASKED, wire.Kind.REVEAL)
    )
    sums._received(exchange, 0, masked)
    assert kept == []
    sums._received(exchange, 0, unmasking)
    assert kept == [{(own, "said")}]


@pytest.mark.parametrize("method", METHODS)
async def test_server_that_invents_changes_no_budget(
    method: str, tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows another one's statement, an own one with another cost, and things that are no statements."""
    two = Study(method, certificates, tmp_path, "two")
    release = dataclasses.replace(two.account(OWN).release, config="c1" * 32, run="invented")
    said = ReleaseStatement(release, "ledger")
    others = json.loads(said.sign(certificates["stranger"]))
    changed = json.loads(said.sign(certificates[OWN]))
    changed["statement"] = changed["statement"].replace("invented", "inventor")
    told = json.dumps([others, changed, 1, None, {}, [others], {"statement": "{}"}]).encode()
    monkeypatch.setattr(
        parties.federation.server, "told_statements", lambda registry, certificate: told
    )
    found = await two.play(*NAMES)
    assert found.states == dict.fromkeys(NAMES, ChargeState.RELEASED)
    assert two.spent(OWN) == ["two"]
    own = signatory_of(certificate_bytes(certificates[OWN]))
    assert statements_in(told, own, SERVER) == []
    assert statements_in(
        json.dumps([json.loads(said.sign(certificates[OWN]))]).encode(), own, SERVER
    ) == [said]


async def test_server_that_withholds_lowers_what_it_alone_knows(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await played("tails", certificates, tmp_path)
    one.put_back(*NAMES)
    monkeypatch.setattr(
        parties.federation.server, "told_statements", lambda registry, certificate: b"[]"
    )
    two = Study("tails", certificates, tmp_path, "two")
    found = await two.play(*NAMES)
    assert found.states == dict.fromkeys(NAMES, ChargeState.RELEASED)
    assert two.spent(OWN) == ["two"]
    # A budget that was not put back does not need the server.
    three = Study("tails", certificates, tmp_path, "three")
    assert isinstance(await three.serve_to(OWN), BudgetExceeded)


def test_reconcile_asks_the_one_server(
    tmp_path: Path,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = asyncio.run(played("tails", certificates, tmp_path))
    one.put_back(OWN)
    two = Study("tails", certificates, tmp_path, "two", **{"clients.wait_s": 60.0})
    monkeypatch.setattr("parties.cli.budget.load_config", lambda path: two.config)
    own, path = certificates[OWN], tmp_path / f"{OWN}.sqlite"
    files = [f"--{name}={getattr(own, name)}" for name in ("ca", "cert", "key")]
    arguments = ["budget", "reconcile", "two.toml", "--budget", str(path), *files]
    assert run_command_line(cli, arguments) == Status.NETWORK
    assert not path.exists()
    capsys.readouterr()
    with two.serving():
        # Each key has its own statements told.
        for name in (OWN, OTHER):
            budget = tmp_path / "none.sqlite"
            told = asyncio.run(ask_server_releases(two.config, certificates[name], budget))
            (missing,) = told.missing
            assert missing.release == one.account(name).release
            assert missing.servers == told.answered == (SERVER,)
        question = ask_server_releases(two.config, certificates["stranger"], path)
        assert asyncio.run(question).missing == ()
        assert run_command_line(cli, arguments) == Status.USAGE
        assert run_command_line(cli, [*arguments, "--new-population", "people"]) == Status.DONE
        assert "is charged to people" in capsys.readouterr().out
        assert run_command_line(cli, arguments) == Status.DONE
        assert f"{SERVER} told nothing that this budget" in capsys.readouterr().out
    assert two.spent(OWN) == ["one"]


def test_statement_of_another_study_or_signer_is_not_kept(
    tmp_path: Path, certificates: Certificates
) -> None:
    run = Study("tails", certificates, tmp_path, "one")
    own = certificate_bytes(certificates[OWN])
    release = run.account(OWN).release
    signed = ReleaseStatement(release, "ledger").sign(certificates[OWN])
    kept = statement_for(run.config, own, signed)
    assert json.loads(kept) == json.loads(signed)
    other = dataclasses.replace(release, config="c1" * 32)
    for document in (
        ReleaseStatement(other, "ledger").sign(certificates[OWN]),
        ReleaseStatement(release, "ledger").sign(certificates[OTHER]),
        *(b"", b"{", b"[]", b"{}"),
    ):
        assert statement_for(run.config, own, document) == ""
    # The registry has other signed things of this key, which are not told.
    registry = ReleaseRegistry(run.register)
    folder = RegisteredFolder(run.config.digest(), SERVER, "one", "1" * 32, run.folder)
    registry.begin(folder)
    for text in ('{"upload": 1}', kept):
        registry.release(folder, [OWN], inputs=signed_statements(run.config, [(own, text)]))
    assert json.loads(told_statements(registry, own)) == [json.loads(signed)]
    assert told_statements(registry, certificate_bytes(certificates[OTHER])) == b"[]"


def test_release_without_a_guarantee_stays_one(certificates: Certificates, tmp_path: Path) -> None:
    release = dataclasses.replace(
        Study("tails", certificates, tmp_path, "one").account(OWN).release,
        rho=float("inf"),
        epsilon=float("inf"),
    )
    own = signatory_of(certificate_bytes(certificates[OWN]))
    signed = ReleaseStatement(release, "ledger").sign(certificates[OWN])
    assert ReleaseStatement.of(json.loads(signed), own) == ReleaseStatement(release, "ledger")


@pytest.mark.parametrize("body", [b"{", b"{}", b"7"])
def test_answer_that_is_no_list_is_refused(body: bytes, certificates: Certificates) -> None:
    own = signatory_of(certificate_bytes(certificates[OWN]))
    with pytest.raises(FederationProtocolError, match="tells releases that are no"):
        statements_in(body, own, SERVER)


async def test_statements_of_readable_answers_are_kept_before_they_are_used(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = Study("flaim", certificates, tmp_path, "one").config
    choices = FederationMessage(MessageKind.CHOICES, 1, b"sealed").pack()
    said = [(b"certificate", f"said by {client}") for client in range(3)]
    waiting: list[tuple[int, bytes | None]] = [(0, choices), (1, choices), (2, None)]

    async def receive() -> tuple[int, bytes | None]:
        return waiting.pop(0)

    exchange = SimpleNamespace(
        present=range(3), numbers=range(3), receive=receive, name=str, statement=said.__getitem__
    )
    kept: list[object] = []
    sums = secure_sums(config, kept)
    sums.dropped = lambda *rest: None  # type: ignore[method-assign]
    found = [position async for position, _ in sums.answers(exchange, "choices")]  # type: ignore[arg-type]
    assert found == [0, 1]
    assert kept == [set(said[:2])]
