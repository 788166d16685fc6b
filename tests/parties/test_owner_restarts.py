"""An owner's program that dies anywhere: its charge is never lower than what was opened, and comes back when it may."""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mechanisms.source import TableSource
from parties.cli.submit import show_status
from parties.config import CertificateFiles
from parties.federation.client import Participation, run_participant
from parties.federation.messages import MessageKind, Refusal, RefusalMessage
from parties.foundation.errors import NotEnrolled, StoreError
from parties.identity.tls import make_certificates
from parties.mpc.planning.budget import distaim_release
from parties.mpc.submission.participation import refunds_of, replace_rows, submit_rows
from parties.mpc.submission.resubmit import refund_withdrawn, withdraw
from parties.mpc.submission.state import load_withdrawn, mark_withdrawn
from parties.observability.events import Progress
from parties.session.owner import DataOwner, Table
from parties.storage.charge_state import ChargeState
from parties.storage.owner_budget import BudgetAccount, OwnerBudget
from parties.storage.population_budget import Release
from parties.storage.populations import TableIdentity
from secagg import wire
from tests.parties import silos_support
from tests.parties.owner_restarts import (
    LOST,
    SECAGG,
    STATEMENT,
    Machine,
    OneServer,
    Scripted,
    Servers,
    own,
    run,
)
from tests.parties.support import certificates as mpc_certificates
from tests.parties.support import make_codes, make_config

CHARGED, RELEASED, RETURNED = ChargeState.CHARGED, ChargeState.RELEASED, ChargeState.RETURNED
OWNER = "clinic-a"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: here the disk is never lost."""
    shared = Path("/dev/shm")
    folder = tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else tmp_path)
    yield Path(folder)
    shutil.rmtree(folder)


# DistAIM


class MpcOwner:
    """An owner of DistAIM with its disk and the servers that it finds."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.config = make_config({"timeouts.submit_s": 0.5, "clients.participation": 1.0})
        codes = make_codes(5)
        lines = [f"{'fm'[a]},{'xyz'[b]},{c}" for a, b, c in codes.tolist()]
        table = folder / "table.csv"
        table.write_text("\n".join(["sex,ward,age", *lines]) + "\n")
        self.machine = Machine(folder, folder / "budget.sqlite", self.config.digest())
        self.servers = Servers(self.machine, self.config, OWNER)
        self.state, self.codes = folder / "state", codes
        source = Table(TableSource(str(table)), ignore_extra=False)
        files = mpc_certificates()[OWNER]
        self.owner = DataOwner(self.config, source, files, OWNER, None, self.machine.budget)

    async def join(self) -> object:
        return await submit_rows(
            self.owner, self.codes, capacity=None, state=self.state, progress=Progress()
        )

    async def replace(self) -> object:
        self.machine.replacing = True
        codes = make_codes(4, 7)
        return await replace_rows(
            self.owner, codes, capacity=None, state=self.state, progress=Progress()
        )

    async def withdraw(self) -> object:
        refunds = refunds_of(self.owner)
        return await withdraw(self.config, self.owner.files, state=self.state, give_back=refunds)

    async def status(self) -> object:
        return await show_status(self.owner, self.state, as_json=False)

    def do(self, command: str) -> object:
        return run(self.machine, self.servers, getattr(self, command))

    @property
    def states(self) -> list[ChargeState]:
        """States of all charges."""
        return states_in(self.machine.budget)


def states_in(budget: Path) -> list[ChargeState]:
    if not budget.exists():
        return []
    found = OwnerBudget(budget)
    return [run.state for dataset in found.datasets() for run in dataset.runs]


def _reach(problem: str) -> Callable[[MpcOwner], None]:
    def change(owner: MpcOwner) -> None:
        owner.servers.reach = problem

    return change


def _set(**values: object) -> Callable[[MpcOwner], None]:
    def change(owner: MpcOwner) -> None:
        for name, value in values.items():
            setattr(owner.servers, name, value)

    return change


def _end(*void: int) -> Callable[[MpcOwner], None]:
    def change(owner: MpcOwner) -> None:
        owner.servers.settles = ()
        owner.servers.end(*void)

    return change


def _fail(owner: MpcOwner) -> None:
    owner.servers.over = "it has failed"


def _revoke(owner: MpcOwner) -> None:
    owner.servers.revoke()


def _put_back(owner: MpcOwner) -> None:
    owner.machine.put_back(None)


Step = str | Callable[[MpcOwner], None]
DISTAIM: Mapping[str, tuple[list[Step], list[ChargeState]]] = {
    "a firewall that rejects": ([_reach("cannot be reached"), "join"], []),
    "a proxy that inspects": ([_reach("presents a certificate of another"), "join"], []),
    "a wrong pin": ([_reach("its key is another one"), "join"], []),
    "a study that no server knows": ([_reach("does not know this study"), "join"], []),
    "another configuration": ([_set(other=True), "join"], []),
    "an owner that is turned away": ([_set(takes=False), "join"], []),
    "a study that is over": ([_set(over="it is finished"), "join"], []),
    "a study that runs": (["join", "status"], [CHARGED]),
    "opened": ([_set(opens=True), "join", "withdraw", "status"], [CHARGED]),
    "finished": (
        [_set(opens=True), "join", _set(over="it is finished", settles=()), "status", "withdraw"],
        [CHARGED],
    ),
    "withdrawn": (["join", "withdraw"], [RETURNED]),
    "withdrawn at two": ([_set(settles=(0, 2)), "join", "withdraw", "status"], [RETURNED]),
    "withdrawn at one": ([_set(settles=(1,)), "join", "withdraw", "status"], [CHARGED]),
    "withdrawn, and sent again": (["join", "withdraw", "join"], [RETURNED, CHARGED]),
    "withdrawn, and nobody there": (
        ["join", "withdraw", _reach("cannot be reached"), "join"],
        [RETURNED],
    ),
    "replaced": (["join", "replace", "status"], [RETURNED, CHARGED]),
    "replaced, and withdrawn": (["join", "replace", "withdraw"], [RETURNED, RETURNED]),
    "replaced, and cancelled": (["join", "replace", _end(0, 1), "status"], [RETURNED, RETURNED]),
    "replaced too late": ([_set(opens=True), "join", "replace", "status"], [CHARGED, RETURNED]),
    "replaced too late, again": (
        [_set(opens=True), "join", "replace", "replace", "status", "status"],
        [CHARGED, RETURNED, RETURNED],
    ),
    "opened, an older budget": ([_set(opens=True), "join", _put_back, "status"], [CHARGED]),
    "opened, an older budget, one server lies": (
        [_set(opens=True), "join", _put_back, _set(alone=(1,)), "status"],
        [CHARGED],
    ),
    "finished, an older budget": (
        [
            *(_set(opens=True), "join", _put_back),
            *(_set(over="it is finished", settles=()), "status"),
        ],
        [CHARGED],
    ),
    "finished, joined again": (
        [_set(opens=True), "join", _set(over="it is finished", settles=()), "join"],
        [CHARGED],
    ),
    "failed, joined again": (["join", _fail, "join"], [CHARGED]),
    "one server says that it is over": (["join", _set(alone=(2,)), "status", "join"], [CHARGED]),
    "replaced, and nobody there": (
        ["join", _reach("cannot be reached"), "replace", _reach(""), "status"],
        [CHARGED],
    ),
    "cancelled, status": (["join", _end(0, 1), "status"], [RETURNED]),
    "cancelled, withdraw": (["join", _end(1, 2), "withdraw"], [RETURNED]),
    "cancelled, join": (["join", _end(0, 2), "join"], [RETURNED]),
    "cancelled, signed by one": (["join", _end(2), "status", "withdraw", "join"], [CHARGED]),
    "cancelled by all": (["join", _end(0, 1, 2), "withdraw"], [RETURNED]),
    "failed, status": (["join", _fail, "status"], [CHARGED]),
    "failed, withdraw": (["join", _fail, "withdraw"], [RETURNED]),
    "failed, signed by one": ([_set(settles=(1,)), "join", _fail, "withdraw"], [CHARGED]),
    "too few owners, withdraw": (
        ["join", _set(over="it ended for too few owners"), "withdraw"],
        [RETURNED],
    ),
    "finished without the owner": (["join", _end(0, 1), "status"], [RETURNED]),
    "revoked, status": (["join", _revoke, "status"], [RETURNED]),
    "revoked, withdraw": (["join", _revoke, "withdraw"], [RETURNED]),
}
"""Steps of an owner and its servers, by the ending; and the states of all charges then."""


def _is_command(step: Step) -> bool:
    return isinstance(step, str)


def _check_cut_off(owner: MpcOwner, command: str) -> None:
    """A command that reaches nobody spends nothing."""
    before, reach = owner.states.count(CHARGED), owner.servers.reach
    owner.servers.reach = reach or "cannot be reached"
    owner.do(command)
    owner.servers.reach = reach
    assert owner.states.count(CHARGED) <= before, "charged, and nobody takes it"


def _played(owner: MpcOwner, steps: list[Step], dies_at: int | None, *, again: bool = True) -> int:
    """Plays the steps; returns the number of events, of all commands.

    A command that dies is given ``again``, or the owner goes on with the next one, if there is one.
    """
    owner.machine.restart(dies_at)
    last = max(number for number, step in enumerate(steps) if isinstance(step, str))
    for number, step in enumerate(steps):
        if not isinstance(step, str):
            step(owner)
            continue
        owner.do(step)
        if owner.machine.dead:
            owner.machine.restart()
            if again or number == last:
                _check_cut_off(owner, step)
                owner.do(step)
        owner.machine.check()
    return owner.machine.events


EVERY = pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
"""Kills at every fifth event, of each ending at others; at all of them in the slow tests."""


def _kills(ending: str, events: int, every: int) -> range:
    return range(len(ending) % every, events, every)


@EVERY
@pytest.mark.parametrize("ending", DISTAIM)
def test_charge_of_distaim_follows_every_ending_wherever_the_owner_is_killed(
    ending: str, every: int, memory: Path
) -> None:
    steps, expected = DISTAIM[ending]
    events = _played(owner := MpcOwner(memory / "whole"), steps, None)
    assert owner.states == expected
    assert OwnerBudget(owner.machine.budget).intended() == []
    for number in _kills(ending, events, every):
        owner = MpcOwner(memory / f"killed-{number}")
        _played(owner, steps, number)
        states, wanted = owner.states, expected
        if "too late" in ending:
            # A replacement that is given again may have made another version, which came back like the first.
            states, wanted = ([s for s in each if s != RETURNED] for each in (states, wanted))
        assert states == wanted, f"killed at {number} of {events}"
        assert OwnerBudget(owner.machine.budget).intended() == []


@EVERY
@pytest.mark.parametrize(
    "ending", [one for one, (steps, _) in DISTAIM.items() if sum(map(_is_command, steps)) > 1]
)
def test_charge_of_distaim_comes_back_by_any_later_command(
    ending: str, every: int, memory: Path
) -> None:
    """A command that was killed is not given again: the next one fetches what servers have signed by then."""
    steps, _ = DISTAIM[ending]
    events = _played(MpcOwner(memory / "whole"), steps, None)
    for number in _kills(ending, events, every):
        owner = MpcOwner(memory / f"killed-{number}")
        _played(owner, steps, number, again=False)
        if not owner.servers.reach:
            spent = {one for one in owner.machine.gone if owner.machine.spent(one)}
            assert spent == set(), f"killed at {number} of {events}"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (_fail, "it has failed"),
        (_end(2), "it was cancelled"),
        (_set(over="it is finished", settles=()), "it is finished"),
    ],
    ids=["failed", "cancelled, signed by one", "finished"],
)
def test_a_repeated_join_to_a_study_that_is_over_says_so(
    step: Callable[[MpcOwner], None], said: str, memory: Path
) -> None:
    """It does not repeat what three receipts said before."""
    owner = MpcOwner(memory / "owner")
    owner.do("join")
    step(owner)
    with owner.servers.reached(), pytest.raises(NotEnrolled, match=said) as error:
        asyncio.run(owner.join())
    assert "the study is over" in str(error.value)
    assert owner.states == [CHARGED]


def test_a_status_shows_one_servers_word_beside_the_others(
    memory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = MpcOwner(memory / "owner")
    _set(opens=True)(owner)
    owner.do("join")
    # Before: one of the three, at random, is asked whether the study runs.
    _set(alone=(2,))(owner)
    capsys.readouterr()
    owner.do("status")
    lines = capsys.readouterr().out.splitlines()
    assert "run trial is over" not in "".join(lines)
    assert sum("says: counted" in line for line in lines) == 2
    assert lines[-1] == "party-2 alone answered 410: it is over"


def test_a_withdrawal_in_a_state_file_returns_nothing_without_its_signatures(memory: Path) -> None:
    """An owner who writes a proof by hand, takes another's, or that of an older version."""
    owner = MpcOwner(memory / "owner")
    owner.do("join")
    owner.do("withdraw")
    assert owner.states == [RETURNED]
    good = load_withdrawn(owner.state, owner.config.digest(), OWNER)
    assert good is not None
    signed = json.loads(good.proof)
    first, second = sorted(signed["servers"])[:2]
    forged = [
        {},
        {**signed, "servers": {first: signed["servers"][first]}},
        {**signed, "servers": {first: signed["servers"][first], second: signed["servers"][first]}},
        {**signed, "client": "clinic-b"},
        {**signed, "servers": {n: {**s, "version": 7} for n, s in signed["servers"].items()}},
    ]
    owner.machine.put_back(None)
    account = owner.owner.account(distaim_release(owner.owner.study))
    account.spend(good.submissions[0])
    for proof in forged:
        mark_withdrawn(owner.state, replace(good, proof=json.dumps(proof)))
        with pytest.raises(StoreError, match="without proof"):
            refund_withdrawn(owner.config, OWNER, owner.state, give_back=refunds_of(owner.owner))
        assert owner.states == [CHARGED]
    mark_withdrawn(owner.state, good)
    assert refund_withdrawn(owner.config, OWNER, owner.state, give_back=refunds_of(owner.owner))
    assert owner.states == [RETURNED]


# One server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CertificateFiles]:
    folder = tmp_path_factory.mktemp("certificates")
    return make_certificates(folder, [silos_support.SERVER], [*silos_support.NAMES, "stranger"])


SUM = [SECAGG[kind] for kind in (wire.Kind.ANNOUNCE, wire.Kind.KEYS, wire.Kind.INBOX)]
UNMASKED = [*SUM, SECAGG[wire.Kind.SURVIVORS], SECAGG[wire.Kind.FINISHED]]
SKIPPED, GOODBYE = own(MessageKind.SKIPPED), own(MessageKind.GOODBYE)
ENDS = [RefusalMessage(Refusal.TOO_FEW, "too few clients").message().pack()]


@dataclass(frozen=True)
class Ending:
    """A server's messages, and the states of a charge at the end, by the method."""

    script: list[bytes]
    masked: list[ChargeState]
    own_noise: list[ChargeState] | None = None
    malicious: list[ChargeState] | None = None
    server: Mapping[str, object] = ()  # type: ignore[assignment]


FEDERATION = {
    "no server": Ending([], [], server={"reach": "does not answer"}),
    "another configuration": Ending([], [], server={"refuses": True}),
    "cancelled before a sum": Ending([STATEMENT, *ENDS], []),
    "keys alone": Ending([*SUM[:2], SKIPPED, *ENDS], []),
    "lost before a sum": Ending([LOST], []),
    "given up, signed": Ending([*SUM, SKIPPED, STATEMENT, *ENDS], [RETURNED], [CHARGED], [CHARGED]),
    "given up, not signed": Ending([*SUM, SKIPPED, *ENDS], [CHARGED]),
    "given up, lost": Ending([*SUM, LOST], [CHARGED]),
    "signed for another": Ending(
        [*SUM, SKIPPED, STATEMENT, *ENDS], [CHARGED], server={"signs_for": "clinic-b"}
    ),
    "signed by another": Ending(
        [*SUM, SKIPPED, STATEMENT, *ENDS], [CHARGED], server={"signs_as": "stranger"}
    ),
    "unmasked, and signed": Ending([*UNMASKED, STATEMENT, *ENDS], [RELEASED]),
    "given up, then unmasked": Ending([*SUM, SKIPPED, *UNMASKED, STATEMENT, *ENDS], [RELEASED]),
    "finished": Ending([*UNMASKED, GOODBYE], [RELEASED]),
    "chosen, and signed": Ending([own(MessageKind.BRIEF), STATEMENT, *ENDS], [RELEASED]),
    "plain, and signed": Ending([own(MessageKind.LAYOUT), STATEMENT, *ENDS], [RELEASED]),
}
METHODS = ("masked", "own_noise", "malicious")


class FederationOwner:
    """A participant with its disk and the server that it finds."""

    def __init__(
        self, folder: Path, files: Mapping[str, CertificateFiles], method: str, ending: Ending
    ) -> None:
        folder.mkdir()
        overrides = silos_support.MALICIOUS if method == "malicious" else None
        self.config = silos_support.silos_config(files, overrides)
        self.machine = Machine(folder, folder / "budget.sqlite", self.config.digest())
        self.server = OneServer(
            self.machine, self.config, OWNER, files, ending.script, **dict(ending.server)
        )
        release = Release(self.config.digest(), "trial", "tda", 0.1, 1.0, 1e-5)
        self.files, self.folder = files[OWNER], folder
        self.release = release
        self.part = Participation(
            digest="00" * 32,
            release=release,
            session=self._session,
            facts=lambda tally, ledger: {},
            guarantee=lambda ledger: (),
            rho=release.rho,
            own_epsilon=method == "own_noise",
        )

    def _session(self, context: Any, ledger: Any, own: Any) -> Scripted:
        return Scripted(
            self.config, server=silos_support.SERVER, random_bytes=bytes, largest=1 << 16, own=own
        )

    async def join(self) -> object:
        account = BudgetAccount(
            OwnerBudget(self.machine.budget), TableIdentity("stays"), self.release
        )
        return await run_participant(
            self.config,
            self.part,
            self.files,
            self.folder / "ledger",
            progress=Progress(),
            account=account,
        )

    def do(self) -> object:
        return run(self.machine, self.server, self.join)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ending", FEDERATION)
def test_charge_of_a_federation_follows_every_ending_wherever_the_participant_is_killed(
    ending: str, method: str, memory: Path, certificates: dict[str, CertificateFiles]
) -> None:
    found = FEDERATION[ending]
    expected = getattr(found, method) or found.masked
    whole = FederationOwner(memory / "whole", certificates, method, found)
    outcome = whole.do()
    assert outcome is not None
    assert states_in(whole.machine.budget) == expected
    assert OwnerBudget(whole.machine.budget).intended() == []
    events = whole.machine.events
    for number in range(events):
        owner = FederationOwner(memory / f"killed-{number}", certificates, method, found)
        owner.machine.restart(number)
        owner.do()
        assert owner.machine.dead
        killed = states_in(owner.machine.budget)
        if not owner.machine.left:
            # Durable before the first byte leaves, or about to be.
            assert killed in ([], [CHARGED], [RELEASED])
        owner.machine.restart()
        owner.machine.check()
        owner.do()
        owner.machine.check()
        states = states_in(owner.machine.budget)
        # A server that is gone for good signs nothing: what left before stays charged.
        assert states in (expected, killed if owner.server.gone else expected), (
            f"killed at {number} of {events}"
        )
        assert OwnerBudget(owner.machine.budget).intended() == []


# The table of SECURITY.md


IN_SECURITY: Mapping[str, tuple[list[str], list[str]]] = {
    "a refused connection": (
        [
            *("a firewall that rejects", "a proxy that inspects", "a wrong pin"),
            *("a study that no server knows", "another configuration"),
            "an owner that is turned away",
        ],
        ["no server", "another configuration"],
    ),
    "the study ends, for any reason, before a share": (
        ["a study that is over"],
        ["cancelled before a sum", "keys alone", "lost before a sum"],
    ),
    "withdrawn or replaced before a round": (
        ["withdrawn", "withdrawn at two", "replaced, and withdrawn"],
        [],
    ),
    "revoked or excluded before a round": (["revoked, status", "revoked, withdraw"], []),
    "the study is cancelled, and nothing": (
        ["cancelled, status", "cancelled, withdraw", "cancelled, join", "cancelled by all"],
        ["given up, signed"],
    ),
    "it has failed, or ended for too few owners": (
        ["failed, withdraw", "too few owners, withdraw"],
        ["given up, signed"],
    ),
    "it is finished without the owner": (["finished without the owner"], []),
    "a masked vector was sent, its sum given up": ([], ["given up, not signed"]),
    "a choice or plain counts were sent": (
        [],
        ["chosen, and signed", "plain, and signed", "unmasked, and signed"],
    ),
    "an opening was made with its rows": (["opened", "finished"], ["finished"]),
    "fewer signatures than needed": (
        ["withdrawn at one", "cancelled, signed by one", "failed, signed by one"],
        ["given up, lost"],
    ),
}
"""Endings that are played for each row of the table: of DistAIM's owners, and of a federation's participants."""
_WORDS = {"not charged": None, "returned": RETURNED, "charged": CHARGED, "released": RELEASED}


def security_table() -> Mapping[str, list[str]]:
    """Rows of the table of an owner's charge in SECURITY.md, by the ending."""
    text = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
    lines = text.partition("| ending | DistAIM |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {ending: cells for ending, *cells in rows}


def test_the_table_in_security_is_what_is_played() -> None:
    """Each row has endings that are played, with the states that the row says; no row is left out."""
    table = security_table()
    for start, (distaim, federation) in IN_SECURITY.items():
        (row,) = (cells for ending, cells in table.items() if ending.startswith(start))
        said = [next((w for w in _WORDS if cell.startswith(w)), None) for cell in row]
        assert distaim or said[0] is None, start
        for ending in distaim:
            assert said[0] is not None, start
            wanted = _WORDS[said[0]]
            assert set(DISTAIM[ending][1]) == ({wanted} - {None}), (start, ending)
        for ending in federation:
            found = FEDERATION[ending]
            by_column = [[found.masked], [found.own_noise, found.malicious]]
            for word, columns in zip(said[1:], by_column, strict=True):
                assert word is not None, (start, ending)
                for states in columns:
                    assert set(states or found.masked) == {_WORDS[word]} - {None}, (start, ending)
    assert len(table) == len(IN_SECURITY)
