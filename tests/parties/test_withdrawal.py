"""An owner changes its mind: withdrawn or replaced until a round begins with its rows, and never after."""

import asyncio
import json
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import replace
from http import HTTPStatus
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import parties.mpc.inputs.rows
import parties.mpc.server
import parties.mpc.submission.withdrawal_client
from mechanisms.workload import count_marginals
from parties.audit.replay import replay_folder
from parties.audit.runner import audit_folder
from parties.cli.submit import withdrawn_text
from parties.config import CertificateFiles, Config, PartySection
from parties.foundation.errors import (
    CertificateError,
    StoreError,
    SubmissionConflict,
    SubmitError,
    WithdrawalTooLate,
)
from parties.foundation.exit_codes import Status, describe
from parties.identity.signing import Issuer
from parties.identity.tls import certificate_bytes, signer
from parties.mpc.exclusion import Exclusion
from parties.mpc.inputs.own import OwnerInput
from parties.mpc.participants.finalized import Finalized
from parties.mpc.participants.listing import (
    IncompleteSubmission,
    ListedUpload,
    Listing,
    Page,
    WithdrawalScope,
    agree_on_listings,
    agreed_finalized,
    find_lost,
)
from parties.mpc.planning.budget import distaim_release
from parties.mpc.records import ParticipantRecord, RunningTotal
from parties.mpc.server import run_mpc_server
from parties.mpc.storage.store import Store
from parties.mpc.storage.submissions import SubmissionStore
from parties.mpc.storage.totals import TotalStore
from parties.mpc.submission.messages import MAX_VERSION
from parties.mpc.submission.resubmit import (
    complete_replacement,
    replace_submission,
    saved_submission,
    withdraw,
)
from parties.mpc.submission.sealed_upload import (
    ReceiptSigner,
    ServerReceipt,
    Tombstone,
    void_answer,
)
from parties.mpc.submission.state import SubmissionState
from parties.mpc.submission.status import ServerAnswer, ask_submission_status
from parties.mpc.submission.submit import Submitted, submit
from parties.mpc.submission.withdrawal import SignedWithdrawal, Withdrawal
from parties.mpc.submission.withdrawal_client import (
    WithdrawalProgress,
    await_withdrawal,
    check_proof,
    known_versions,
    sign_withdrawal,
)
from parties.session.study import Study
from parties.storage.owner_budget import BudgetAccount, OwnerBudget
from parties.storage.populations import TableIdentity
from parties.storage.privacy_ledger import DurableLedger
from protocols.errors import ProtocolViolation
from protocols.ring import R32
from protocols.shares import Share
from tests.parties import support
from tests.parties.audit_runs import collect, copy_run, read_lines
from tests.parties.mesh import EVERYONE, Cluster, Recording, make_uniform
from tests.parties.support import (
    PARTIES,
    bodies_in,
    make_codes,
    make_config,
    make_submission,
    running_servers,
    sealed_upload,
)
from tests.parties.tampering import Forger, dropping, failed, setting
from tests.parties.test_relay import Asker, until_waiting_for_nobody, what
from tests.parties.test_store import put
from tests.until import eventually

Certificates = dict[str, CertificateFiles]
A, B, C = EVERYONE


@pytest.fixture(autouse=True)
def _uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)


@pytest.fixture
def totals(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], RunningTotal]:
    """Totals that each server saved, by its folder and the round."""
    found: dict[tuple[str, int], RunningTotal] = {}
    real = TotalStore.save

    def saving(store: TotalStore, total: RunningTotal) -> None:
        found[store.directory.parent.name, total.round] = total
        real(store, total)

    monkeypatch.setattr(TotalStore, "save", saving)
    return found


def counts_of(totals: dict[tuple[str, int], RunningTotal], round: int) -> NDArray[np.uint32]:
    parts = [totals[f"server-{pid}", round].share for pid in range(3)]
    return parts[0].own + parts[1].own + parts[2].own


class Who:
    """A data owner with a folder of its own."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name, self.config, self.files = name, cluster.config, cluster.certificates[name]
        folder = cluster.folder / f"owner-{name}"
        folder.mkdir(exist_ok=True)
        self.state, self.budget = folder / "state", OwnerBudget(folder / "budget")

    def spend(self, digest: str, replaced: Sequence[str] = ()) -> None:
        release = distaim_release(Study.of(self.config))
        BudgetAccount(self.budget, TableIdentity(self.name), release).spend(digest, replaced)

    def give_back(self, digests: Sequence[str], proof: str) -> None:
        self.budget.give_back(self.config.digest(), digests, proof)

    async def submit(self, codes: NDArray[np.int32], first_round: int = 1) -> Submitted:
        return await submit(
            self.config,
            codes,
            self.files,
            state=self.state,
            spend=self.spend,
            first_round=None if self.state.exists() else first_round,
        )

    async def replace(self, codes: NDArray[np.int32]) -> WithdrawalProgress | None:
        replaced = await replace_submission(
            self.config,
            codes,
            self.files,
            state=self.state,
            spend=self.spend,
            give_back=self.give_back,
        )
        return replaced.former

    async def withdraw(self) -> WithdrawalProgress:
        return await withdraw(self.config, self.files, state=self.state, give_back=self.give_back)

    @property
    def spent(self) -> tuple[int, list[str | None]]:
        """Number of releases spent, and the state of all charges."""
        (dataset,) = self.budget.datasets()
        return len(dataset.spending), [run.returned for run in dataset.runs]


class Going:
    """A cluster that waits for its owners."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.closed = cluster, asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> list[BaseException | None]:
        cluster, runs = self.cluster, []
        for pid, config in enumerate(cluster.with_own_certificates()):
            folder, register = cluster.directory(pid), cluster.register(pid)
            folder.mkdir(exist_ok=True)
            progress = Recording()
            runs.append(
                run_mpc_server(
                    config, pid, folder, progress=progress, closed=self.closed, register=register
                )
            )
        return await asyncio.gather(*runs, return_exceptions=True)

    def who(self, name: str) -> Who:
        return Who(name, self.cluster)

    async def ended(self) -> None:
        """No more owners will come."""
        self.closed.set()
        assert await self.task == [None] * 3

    def result(self, pid: int = 0) -> dict[str, object]:
        text = (self.cluster.directory(pid) / "result.json").read_text()
        found: dict[str, object] = json.loads(text)
        return found


@pytest.fixture(params=["counts", "rows"])
async def going(
    request: pytest.FixtureRequest, tmp_path: Path, certificates: Certificates
) -> AsyncIterator[Going]:
    """A run by counts, summed locally, or by rows, counted by all servers: both are withdrawn on shares."""
    changes = {"run.input": request.param, "run.record_replay": True, "timeouts.connect_s": 9.0}
    config = make_config({"run.rounds": 1, "clients.minimum": 1, **changes})
    running = Going(Cluster(config, tmp_path, certificates))
    await asyncio.sleep(0.3)  # Sleeps: head start.
    yield running
    if not running.task.done():
        running.task.cancel()
        await asyncio.gather(running.task, return_exceptions=True)


def tables(*seeds: int) -> list[NDArray[np.int32]]:
    return [make_codes(20, seed) for seed in seeds]


def names(found: object) -> list[object]:
    assert isinstance(found, list)
    return [item["client"] for item in found]


async def test_withdrawn_and_replaced_rows_are_not_counted_and_the_audit_holds(
    going: Going, totals: dict[tuple[str, int], RunningTotal], tmp_path: Path
) -> None:
    """a replaces its table, b withdraws, c withdraws and submits again: counted are a's second and c's second table."""
    first, second, third, fourth, fifth = tables(1, 2, 3, 4, 5)
    a, b, c = map(going.who, EVERYONE)
    sent = await a.submit(first)
    await b.submit(second)
    former = await a.replace(third)
    assert former is not None
    assert (former.complete, former.version) == (True, 1)
    assert a.spent == (1, ["replaced", None])
    gone = await b.withdraw()
    assert gone.complete
    assert b.spent == (0, ["withdrawn"])
    # Two servers have signed. What was taken back goes from all three servers' disks, and does not come back.
    stores = [going.cluster.directory(pid) / "store" for pid in range(3)]
    await eventually(lambda: all(len(bodies_in(store, "submissions")) == 1 for store in stores))
    told = await ask_submission_status(b.config, b.files)
    assert {each.text for each in told} == {"withdrawn, deleted and not counted"}
    assert (await b.withdraw()).confirmed == gone.confirmed
    with pytest.raises(SubmitError, match="nothing to replace"):
        await b.replace(second)
    await c.submit(fourth)
    assert (await c.withdraw()).complete
    again = await c.submit(fifth)
    assert (again.version, c.spent) == (2, (1, ["withdrawn", None]))
    await going.ended()
    result = going.result()
    assert names(result["counted"]) == [A, C]
    (excluded,) = result["excluded"]  # type: ignore[misc]
    assert (excluded["client"], excluded["excluded"]) == (B, "withdrawn")
    workload = going.cluster.config.build_workload()
    expected = count_marginals(third, workload) + count_marginals(fifth, workload)
    np.testing.assert_array_equal(counts_of(totals, 0), expected)
    np.testing.assert_array_equal(counts_of(totals, 1), expected)
    assert sent.upload not in str(result)
    audit = audit_folder(collect(going.cluster, tmp_path / "run"))
    assert audit.ok, [check for check in audit.checks if not check.ok]
    (check,) = (check for check in audit.checks if check.name == "limits")
    assert "2 have withdrawn, as they have signed" in check.detail
    for pid in range(3):
        assert await asyncio.to_thread(replay_folder, going.cluster.directory(pid))


async def test_rows_that_were_counted_are_counted_again_to_take_them_back(
    tmp_path: Path,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    totals: dict[tuple[str, int], RunningTotal],
) -> None:
    """a's batch is full when b comes, and is in the total when a withdraws; costs are those of two countings."""
    monkeypatch.setattr(parties.mpc.inputs.rows, "SEGMENT_ROWS", 100)
    config = make_config({"run.input": "rows", "run.rounds": 1, "clients.minimum": 1})
    going = Going(Cluster(config, tmp_path, certificates))
    await asyncio.sleep(0.3)  # Sleeps: head start.
    a, b = going.who(A), going.who(B)
    await a.submit(make_codes(20, 1))
    await b.submit(make_codes(20, 2))
    transcript = going.cluster.directory(0) / "transcript.jsonl"
    await eventually(lambda: f'"client":"{A}"' in transcript.read_text())
    assert (await a.withdraw()).complete
    await going.ended()
    run = collect(going.cluster, tmp_path / "run")
    counting = [x["capacities"] for x in read_lines(run, 0) if x.get("what") == "counting"]
    assert [list(each) for each in counting] == [[A], [A], [B]]
    expected = count_marginals(make_codes(20, 2), config.build_workload())
    np.testing.assert_array_equal(counts_of(totals, 0), expected)
    audit = audit_folder(run)
    assert audit.ok, [check for check in audit.checks if not check.ok]


# Too late


@pytest.fixture
async def counted(tmp_path: Path, certificates: Certificates) -> AsyncIterator[Who]:
    """An owner whose rows are in what all three servers have saved for round 0."""
    cluster = Cluster(make_config(), tmp_path, certificates)
    async with running_servers(cluster.config, tmp_path, certificates) as stores:
        owner = Who(A, cluster)
        sent = await owner.submit(make_codes(20, 1))
        zeros = np.zeros(56, np.uint32)
        for pid, store in stores.items():
            total = RunningTotal(0, Share(R32, pid, zeros, zeros), [(A, str(sent.upload))])
            store.totals.save(total)
            store.records.save([ParticipantRecord(A, str(sent.upload), 0)])
        yield owner


async def test_nothing_is_taken_back_that_a_round_uses(counted: Who) -> None:
    before = counted.state.read_bytes()
    with pytest.raises(WithdrawalTooLate, match="its rows are counted from round 0 on") as raised:
        await counted.withdraw()
    assert describe(raised.value).status == Status.TOO_LATE
    assert counted.spent == (1, [None])
    with pytest.raises(WithdrawalTooLate, match="nothing was replaced"):
        await counted.replace(make_codes(20, 2))
    # The state file is again that of what is counted, and the one charge stands.
    assert counted.state.read_bytes() == before
    assert sorted(p.name for p in counted.state.parent.iterdir()) == ["budget", "state"]
    assert counted.spent[0] == 1


async def test_what_comes_too_late_is_not_told_to_be_counted(counted: Who, tmp_path: Path) -> None:
    """A replacement that all three took, of which a round began before they met: the former one stands."""
    told = await ask_submission_status(counted.config, counted.files)
    made = saved_submission(counted.config, A, counted.state)
    assert made is not None
    kept = counted.state.read_bytes()
    counted.state.rename(f"{counted.state}.former-1")
    own = OwnerInput.of(Study.of(counted.config), make_codes(20, 2), None)
    SubmissionState.draw(counted.config, own, A, 1, version=2).write(counted.state)
    gone = await complete_replacement(
        counted.config,
        counted.files,
        state=counted.state,
        statuses=told,
        give_back=counted.give_back,
    )
    assert gone is None
    assert counted.state.read_bytes() == kept
    assert not list(counted.state.parent.glob("*former*"))


# Replays


async def test_a_former_upload_does_not_come_back_whoever_sends_it(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Withdrawn, and replaced: the old bytes are refused at every server, from the owner and from another server."""
    config = make_config({"timeouts.submit_s": 20.0})
    asker = Asker(config, certificates)
    async with running_servers(config, tmp_path, certificates) as stores:
        old, new = (sealed_upload(config, A, version=version) for version in (1, 2))
        assert (await asker.upload(0, old))[0] == 201
        assert (await asker.upload(0, new))[0] == 201
        for pid, store in stores.items():
            assert store.submissions.read(A, 1) == old.parts.bodies[pid]
            # A later version is here: an earlier one is not sent on, nor taken from anybody.
            assert (await asker.upload(pid, old))[0] == 409
            store.submissions.settle(A, 1)
            with pytest.raises(StoreError, match="holds no submission"):
                store.submissions.read(A, 1)
            assert store.submissions.read(A, 2) == new.parts.bodies[pid]
        for pid, store in stores.items():
            store.submissions.settle(A, 2, sign_withdrawal(config, certificates[A], 2))
            assert store.submissions.all() == []
            for ready in (old, new):
                status, answer = await asker.upload(pid, ready)
                assert (status, what(answer)[0]) == (409, "store")
                if pid:
                    part = ready.sealed.for_server(pid)
                    status, answer = await asker.pass_on(pid, ready.signed, part)
                    assert status == 409
        again = sealed_upload(config, A, version=3)
        assert (await asker.upload(1, again))[0] == 201


async def test_what_is_passed_on_is_the_newest_version(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The former version waits for a server that is away: when that is back it gets the later one, and nothing else."""
    config = make_config({"timeouts.submit_s": 2.0})
    asker = Asker(config, certificates)
    old, new = (sealed_upload(config, A, version=version) for version in (1, 2))
    async with running_servers(config, tmp_path, certificates, (0, 1)) as stores:
        assert (await asker.upload(0, old))[1]["kept_for"] == ["party-2"]
        assert (await asker.upload(0, new))[1]["kept_for"] == ["party-2"]
        async with running_servers(config, tmp_path, certificates, (2,)) as late:
            await until_waiting_for_nobody(stores[0])
            assert [s.submission.version for s in late[2].submissions.all()] == [2]
        for store in stores.values():
            assert [s.submission.version for s in store.submissions.all()] == [1, 2]


def test_a_store_keeps_few_versions_that_servers_have_not_met_over(tmp_path: Path) -> None:
    with Store(tmp_path / "s", "ef" * 32) as store:
        for version in range(1, 5):
            assert put(store, make_submission(A, version=version), b"x")
        with pytest.raises(SubmissionConflict, match="4 versions"):
            put(store, make_submission(A, version=5), b"x")
        assert store.submissions.count() == 1
        store.submissions.settle(A, 3)
        assert put(store, make_submission(A, version=5), b"x")
        assert [s.submission.version for s in store.submissions.all()] == [4, 5]


async def test_servers_take_withdrawals_of_the_owner_that_asks_alone(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config({"timeouts.submit_s": 2.0})
    asker = Asker(config, certificates)
    good = sign_withdrawal(config, certificates[A], 1)
    elsewhere = sign_withdrawal(make_config({"run.epsilon": 2.0}), certificates[A], 1)
    async with running_servers(config, tmp_path, certificates, (1,)) as stores:
        for headers, by, status in (
            (good.headers(), B, 403),
            (good.headers(), "party-0", 403),
            (elsewhere.headers(), A, 403),
            (good.headers() | {"Syncret-Version": "2"}, A, 403),
            (good.headers() | {"Syncret-Version": "0"}, A, 400),
            (good.headers() | {"Syncret-Version": "21"}, A, 400),
            (good.headers() | {"Syncret-Version": "one"}, A, 400),
            (good.headers() | {"Syncret-Signature": "?"}, A, 400),
            ({}, A, 400),
        ):
            assert (await asker.put(1, "withdrawal", headers, b"", by=by))[0] == status
        assert stores[1].submissions.page(1, "").withdrawn == ()
        for _ in range(2):
            status, answer = await asker.put(1, "withdrawal", good.headers(), b"", by=A)
            assert (status, answer["asked"], answer["settled"], answer["receipts"]) == (
                202,
                1,
                0,
                [],
            )
        assert stores[1].submissions.page(1, "").withdrawn == (good,)


def test_draw_ends_with_the_versions_that_servers_take() -> None:
    config = make_config()
    own = OwnerInput.of(Study.of(config), make_codes(20), None)
    assert SubmissionState.draw(config, own, A, 1, MAX_VERSION).version == MAX_VERSION
    with pytest.raises(SubmitError, match="has submitted 20 times"):
        SubmissionState.draw(config, own, A, 1, MAX_VERSION + 1)


# What three lists come to, with one server that lies

WHOSE = WithdrawalScope("trial", "ef" * 32, Issuer.load(support.certificates()[A].ca))
V1, V2 = ListedUpload(A, "11" * 32, 1, 1), ListedUpload(A, "22" * 32, 1, 2)


def signed(version: int, by: str = A, client: str = A, run: str = "trial") -> SignedWithdrawal:
    withdrawal = Withdrawal(run, "ef" * 32, client, version)
    files = support.certificates()[by]
    signature = signer(files)(withdrawal.message())
    return SignedWithdrawal(withdrawal, signature, certificate_bytes(files))


def listing(*uploads: ListedUpload, withdrawn: Sequence[SignedWithdrawal] = ()) -> Listing:
    return Listing(True, frozenset(uploads), tuple(withdrawn))


def test_concluded_counts_the_highest_version_that_all_three_have() -> None:
    both = listing(V1, V2)
    assert agree_on_listings([both] * 3, {}, 0).due == {A: V2}
    # One that pretends that the later one never came: the former one counts, at all three.
    found = agree_on_listings([both, both, listing(V1)], {}, 0)
    assert (found.due, found.incomplete) == ({A: V1}, {})
    assert agree_on_listings([both, both, listing()], {}, 0).incomplete == {
        A: IncompleteSubmission(V1.digest, 0, (2,))
    }


def test_concluded_withdraws_where_any_server_shows_it() -> None:
    """Two servers pretend that it never came, and still list the upload; an older one leaves a later upload alone."""
    shown = [listing(V1, V2), listing(V1, V2), listing(V1, V2, withdrawn=[signed(2)])]
    for lists in permutations(shown):
        found = agree_on_listings(lists, {}, 0)
        assert (found.due, found.incomplete) == ({}, {})
        assert found.withdrawn == {A: signed(2)}
    older = agree_on_listings([listing(V1, V2, withdrawn=[signed(1)]), *shown[:2]], {}, 0)
    assert older.due == {A: V2}
    # The one that reaches furthest is the one that holds.
    both = agree_on_listings([listing(withdrawn=[signed(1)]), shown[2], shown[0]], {}, 0)
    assert both.withdrawn == {A: signed(2)}


def test_concluded_leaves_alone_what_was_decided_on_before() -> None:
    """One server lists again what was withdrawn or excluded, and keeps back what came after it."""
    found = agree_on_listings([listing(V2), listing(V2), listing(V1)], {}, 0, {A: 1})
    assert (found.due, found.incomplete) == ({}, {A: IncompleteSubmission(V2.digest, 0, (2,))})
    assert agree_on_listings([listing(), listing(), listing(V1)], {}, 0, {A: 1}).incomplete == {}


def test_concluded_leaves_alone_what_is_counted_for_good() -> None:
    lists = [listing(V1, V2, withdrawn=[signed(2)])] * 3
    found = agree_on_listings(lists, {A: V1.digest}, 3)
    assert (found.due, found.withdrawn) == ({A: V1}, {})


@pytest.mark.parametrize(
    "made_up",
    [
        signed(1, by=B),
        replace(signed(1), signature=signed(2).signature),
        replace(signed(1), certificate=signed(1, by=B, client=B).certificate),
        signed(1, run="another"),
    ],
    ids=["another owner signed", "another version signed", "another's certificate", "another run"],
)
def test_listing_names_the_server_that_makes_up_a_withdrawal(made_up: SignedWithdrawal) -> None:
    honest = Listing.parse(listing(V1, withdrawn=[signed(1)]).to_bytes(), 1, WHOSE)
    assert honest.withdrawn == (signed(1),)
    with pytest.raises(ProtocolViolation, match="party 1 shows a withdrawal") as raised:
        Listing.parse(listing(V1, withdrawn=[made_up]).to_bytes(), 1, WHOSE)
    assert raised.value.pid == 1


@pytest.mark.parametrize(
    ("told", "agreed"),
    [((0, 0, 0), 0), ((1, 1, 0), 1), ((1, 0, 0), 0), ((0, 1, 1), 1), ((1, 1, 1), 1)],
)
def test_agreed_finals_believes_two_and_never_one(told: Sequence[int], agreed: int) -> None:
    """One alone was killed before anything was charged, or lies."""
    final = Finalized(A, V1.digest, 2)
    assert agreed_finalized([[final] * count for count in told]) == [final] * agreed


def test_lost_shows_who_does_not_list_what_is_counted_for_good() -> None:
    """An owner that a server finalizes with an upload that nobody has is left out, and reported."""
    found = find_lost([listing(V1), listing(), listing(V2)], {A: V1.digest}, 3)
    assert found == {A: IncompleteSubmission(V1.digest, 3, (1, 2), final=True)}


async def test_a_server_that_loses_what_comes_after_a_withdrawal_is_named(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Withdrawn, and another table sent, for which server 2 has signed: that it does not list it is in the report."""
    config = make_config({"run.rounds": 1, "clients.minimum": 1})
    going = Going(Cluster(config, tmp_path, certificates))
    await asyncio.sleep(0.3)  # Sleeps: head start.
    a, b = going.who(A), going.who(B)
    real = SubmissionStore.page

    def page(
        store: SubmissionStore, up_to_round: int, after: str, revoked: Collection[str]
    ) -> Page:
        lost = A if "server-2" in str(store.directory) else None
        found = real(store, up_to_round, after, revoked)
        left = tuple(s for s in found.submissions if s.submission.client != lost)
        return replace(found, submissions=left)

    monkeypatch.setattr(SubmissionStore, "page", page)
    await a.submit(make_codes(20, 1))
    assert (await a.withdraw()).complete
    again = await submit(
        config, make_codes(20, 2), a.files, state=a.state, spend=a.spend, first_round=1
    )
    assert (again.complete, again.version) == (True, 2)
    await b.submit(make_codes(20, 3))
    await going.ended()
    for pid in range(3):
        assert names(going.result(pid)["counted"]) == [B]
        left = going.result(pid)["excluded"]
        assert isinstance(left, list)
        assert [(x["client"], x["excluded"], x["by"]) for x in left] == [(A, "incomplete", [2])]
    assert audit_folder(collect(going.cluster, tmp_path / "run")).ok


async def test_nobody_else_can_read_a_former_state_file(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have seeds: it is private before the first byte is in it, whatever the umask."""
    a, modes = Who(A, Cluster(make_config(), tmp_path, certificates)), []
    own = OwnerInput.of(Study.of(a.config), make_codes(20, 1), None)
    SubmissionState.draw(a.config, own, A, 1).write(a.state)

    def copying(source: Path, target: Path) -> None:
        modes.append(target.stat().st_mode & 0o777)
        raise OSError("no space left")

    monkeypatch.setattr(shutil, "copyfile", copying)
    with pytest.raises(StoreError, match="no space left"):
        await a.replace(make_codes(20, 2))
    assert modes == [0o600]


# Kills


async def test_a_withdrawal_holds_at_all_three_where_one_was_killed_before_it_deleted_anything(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Server 1 dies after the lists were exchanged; two have deleted the shares and said so, it has not."""
    config = make_config({"run.rounds": 1, "clients.minimum": 1})
    going = Going(Cluster(config, tmp_path, certificates))
    await asyncio.sleep(0.3)  # Sleeps: head start.
    a, b = going.who(A), going.who(B)
    await a.submit(make_codes(20, 1))
    await b.submit(make_codes(20, 2))
    real, dying, heard = SubmissionStore.settle, [True], threading.Event()

    def settle(store: SubmissionStore, client: str, *rest: Any) -> None:
        if dying[0] and "server-1" in str(store.directory):
            # A death ends the other two, which would then be gone before the owner asks again.
            heard.wait(60.0)
            raise StoreError(store.directory, "killed")
        real(store, client, *rest)

    monkeypatch.setattr(SubmissionStore, "settle", settle)
    found = await b.withdraw()
    heard.set()
    # Who is not there signs nothing. Two have signed and deleted, so that no opening can use it any more.
    assert found.complete
    assert sorted(found.confirmed) == ["party-0", "party-2"]
    assert b.spent == (0, ["withdrawn"])
    assert None not in await going.task
    dying[0] = False
    again = Going(going.cluster)
    assert (await b.withdraw()).complete
    assert b.spent == (0, ["withdrawn"])
    await again.ended()
    results = [again.result(pid) for pid in range(3)]
    for result in results:
        assert names(result["counted"]) == [A]
        assert names(result["excluded"]) == [B]
    assert audit_folder(collect(going.cluster, tmp_path / "run")).ok


async def test_rows_that_one_server_alone_has_saved_may_still_be_withdrawn(
    tmp_path: Path,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    totals: dict[tuple[str, int], RunningTotal],
) -> None:
    """Servers 1 and 2 die while they save the first total: server 0 waits for them, and has charged nothing."""
    config = make_config({"run.rounds": 1, "clients.minimum": 1})
    going = Going(Cluster(config, tmp_path, certificates))
    await asyncio.sleep(0.3)  # Sleeps: head start.
    a, b = going.who(A), going.who(B)
    await a.submit(make_codes(20, 1))
    await b.submit(make_codes(20, 2))
    real, dying, saved = TotalStore.save, [True], threading.Event()

    def save(store: TotalStore, total: RunningTotal) -> None:
        first = "server-0" in str(store.directory)
        if dying[0] and not first:
            # A death ends server 0 as well, which would have saved nothing if it came first.
            saved.wait(60.0)
            raise StoreError(store.directory, "killed")
        real(store, total)
        saved.set()

    monkeypatch.setattr(TotalStore, "save", save)
    going.closed.set()
    assert None not in await going.task
    with Store(going.cluster.directory(0) / "store", config.digest()) as store:
        assert [final.client for final in store.finalized.finalized()] == [A, B]
        assert DurableLedger(store).entries == []
    dying[0] = False
    again = Going(going.cluster)
    await asyncio.sleep(0.3)  # Sleeps: head start.
    assert (await b.withdraw()).complete
    await again.ended()
    assert names(again.result()["counted"]) == [A]
    workload = config.build_workload()
    expected = count_marginals(make_codes(20, 1), workload)
    np.testing.assert_array_equal(counts_of(totals, 0), expected)


async def test_what_is_sent_after_a_withdrawal_is_waited_for(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The round that was without the owner has kept that it had withdrawn; what came since is due in the next."""
    owner = Who(A, Cluster(make_config(), tmp_path, certificates))
    zeros = np.zeros(56, np.uint32)
    async with running_servers(owner.config, tmp_path, certificates) as stores:
        signed_by_owner = sign_withdrawal(owner.config, owner.files, 1)
        for pid, store in stores.items():
            store.submissions.settle(A, 1, signed_by_owner)
            store.totals.save(RunningTotal(0, Share(R32, pid, zeros, zeros)))
            gone = signed_by_owner.withdrawal.digest()
            store.records.save([ParticipantRecord(A, gone, 0, Exclusion.WITHDRAWN)])
        told = await ask_submission_status(owner.config, owner.files)
        assert {each.text for each in told} == {"not counted, in round 0: withdrawn"}
        own = OwnerInput.of(Study.of(owner.config), make_codes(20), None)
        SubmissionState.draw(owner.config, own, A, 1, version=2).write(owner.state)
        sent = await submit(owner.config, make_codes(20), owner.files, state=owner.state)
        assert (sent.version, sent.counted_from) == (2, 1)
        told = await ask_submission_status(owner.config, owner.files)
        assert {each.text for each in told} == {"there, to be counted from round 1 on"}


# Where the upload is


async def test_a_withdrawal_waits_for_servers_that_are_away_and_gives_nothing_back_until_then(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The upload is at the one server that passes it on."""
    config = make_config({"timeouts.submit_s": 2.0, "timeouts.connect_s": 0.3})
    cluster = Cluster(config, tmp_path, certificates)
    owner = Who(A, cluster)
    async with running_servers(config, tmp_path, certificates, (0,)) as stores:
        sent = await owner.submit(make_codes(20, 1))
        assert sent.kept_for == ("party-1", "party-2")
        found = await owner.withdraw()
        assert (found.complete, found.waiting) == (False, {"party-0"})
        assert sorted(found.problems) == ["party-1", "party-2"]
        assert owner.spent == (1, [None])
        assert stores[0].finalized.withdrawal(A).withdrawal.version == 1
        text = withdrawn_text(found, "trial")
        assert "party-0 knows of it" in text
        # When the run ends without it, no round is left that could count it: the server's word holds.
        stores[0].state.close_to_clients()
        assert list((await owner.withdraw()).confirmed) == ["party-0"]
        assert bodies_in(stores[0].directory, "submissions") == []
        assert bodies_in(stores[0].directory, "outbox") == []


async def test_an_owner_without_its_state_file_withdraws_what_servers_have(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config({"timeouts.submit_s": 1.0})
    owner = Who(A, Cluster(config, tmp_path, certificates))
    async with running_servers(config, tmp_path, certificates) as stores:
        with pytest.raises(SubmitError, match="no submission of clinic-a is known"):
            await owner.withdraw()
        await owner.submit(make_codes(20, 1))
        owner.state.unlink()
        assert not (await owner.withdraw()).complete
        for store in stores.values():
            assert store.finalized.withdrawal(A).withdrawal.version == 1
            store.submissions.settle(A, 1)
        assert (await owner.withdraw()).complete
        # Which charge it was nobody knows any more.
        assert owner.spent == (1, [None])


@pytest.mark.parametrize("said", [10**6, MAX_VERSION + 1, -1, True, "9"])
async def test_no_server_alone_keeps_an_owner_without_its_state_file_from_withdrawing(
    said: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config()

    async def answer(
        _: object, party: PartySection, *rest: object, **named: object
    ) -> ServerAnswer:
        return ServerAnswer(party, {"stored": said if party.name == "party-1" else 2, "asked": 0})

    monkeypatch.setattr(parties.mpc.submission.withdrawal_client, "ask_server", answer)
    there = await known_versions(config, support.certificates()[A])
    assert there == {"party-0": 2, "party-1": 0, "party-2": 2}


def _void(config: Config, name: str) -> dict[str, Any]:
    return void_answer(config, A, ReceiptSigner.load(name, support.certificates()[name]))


_LIES_OF_VOID: dict[str, Callable[[Config], dict[str, Any]]] = {
    "no signature": lambda c: _void(c, "party-1") | {"receipts": []},
    "another server's": lambda c: (
        _void(c, "party-1") | {"receipts": _void(c, "party-0")["receipts"]}
    ),
    "another server's answer": lambda c: _void(c, "party-0"),
    "another owner's": lambda c: void_answer(
        c, B, ReceiptSigner.load("party-1", support.certificates()["party-1"])
    ),
    "another study's": lambda c: _void(c.override({"run.id": "another"}), "party-1"),
    "other settings": lambda c: _void(c.override({"run.epsilon": 9.0}), "party-1"),
    "a client's key": lambda c: void_answer(
        c, A, ReceiptSigner.load("party-1", support.certificates()[B])
    ),
    "a lower version": lambda c: _void(c, "party-1") | {"settled": 3},
    "a higher version": lambda c: _void(c, "party-1") | {"settled": MAX_VERSION + 1},
    "truth as a number": lambda c: _void(c, "party-1") | {"settled": True},
}


@pytest.mark.parametrize("lie", [None, *_LIES_OF_VOID])
async def test_a_study_is_void_by_two_servers_signatures_and_by_nothing_less(
    lie: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server says truly that it is void, the last that it is gone; without a lie the second is true, too."""
    config = make_config({"timeouts.submit_s": 0.5})

    async def answer(
        _: object, party: PartySection, *rest: object, **named: object
    ) -> ServerAnswer:
        if party.name == "party-2":
            return ServerAnswer(party, None, "it is over", HTTPStatus.GONE)
        if party.name == "party-1" and lie is not None:
            return ServerAnswer(party, _LIES_OF_VOID[lie](config), "", HTTPStatus.OK)
        return ServerAnswer(party, _void(config, party.name), "", HTTPStatus.OK)

    monkeypatch.setattr(parties.mpc.submission.withdrawal_client, "ask_server", answer)
    files = support.certificates()[A]
    found = await await_withdrawal(config, files, 1, signed=sign_withdrawal(config, files, 1))
    assert found.complete == (lie is None)
    kept = WithdrawalProgress.from_proof(found.proof, 1)
    assert kept.complete == (lie is None)
    assert kept.void == found.void == ({"party-0", "party-1"} if lie is None else {"party-0"})


async def test_no_server_alone_makes_an_owner_believe_that_it_has_withdrawn(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Two of the servers sign for another client; the third one alone is not enough: nothing is given back."""
    config = make_config({"timeouts.submit_s": 1.0})
    owner = Who(A, Cluster(config, tmp_path, certificates))
    async with running_servers(config, tmp_path, certificates) as stores:
        await owner.submit(make_codes(20, 1))
        for pid in (0, 1):
            stores[pid].submissions.settle(A, 1)
        real = ReceiptSigner.settle

        def lying(maker: ReceiptSigner, settled: Tombstone) -> ServerReceipt:
            return real(maker, settled if maker.party == "party-0" else replace(settled, client=B))

        with pytest.MonkeyPatch.context() as patch:
            stores[2].submissions.settle(A, 1)
            patch.setattr(ReceiptSigner, "settle", lying)
            found = await owner.withdraw()
        assert (found.complete, sorted(found.problems)) == (False, list(PARTIES[1:]))
        assert list(found.confirmed) == ["party-0"]
        assert "does not hold" in found.problems["party-2"]
        assert owner.spent == (1, [None])


def test_proof_of_a_withdrawal_has_two_servers_signatures_for_this_owner_and_version(
    certificates: Certificates,
) -> None:
    config = make_config()
    signers = {name: ReceiptSigner.load(name, certificates[name]) for name in PARTIES}

    def proof(client: str = A, version: int = 2, *, signs: int = 2, of: str = A) -> str:
        settled = Tombstone(config.run.id, config.digest(), of, version)
        signed = {name: (version, signers[name].settle(settled)) for name in PARTIES[:signs]}
        return WithdrawalProgress(client, version, confirmed=signed).proof

    for held in (proof(), proof(version=3), proof(signs=3)):
        check_proof(config, A, held, 2)
    two = json.loads(proof())
    first, second = PARTIES[:2]
    two["servers"][second] = two["servers"][first]
    for broken, said in (
        (proof(B, of=B), "is another owner's"),
        (proof(of=B), "a signature is not one of 'party-0'"),
        (proof(version=1), "is for something else"),
        (json.dumps(two), "is for something else"),
        (proof(signs=1), "has the signatures of 1 servers"),
    ):
        with pytest.raises((ValueError, CertificateError), match=said):
            check_proof(config, A, broken, 2)


# Audits


def test_audit_finds_a_withdrawal_that_its_owner_has_not_signed(
    tmp_path: Path, certificates: Certificates
) -> None:
    """All three write down one that they have made up, or one of somebody who was counted before."""
    config = make_config({"run.rounds": 1, "clients.minimum": 1})

    async def run() -> Cluster:
        going = Going(Cluster(config, tmp_path, certificates))
        await asyncio.sleep(0.3)  # Sleeps: head start.
        for seed, owner in enumerate((A, B)):
            await going.who(owner).submit(make_codes(20, seed))
        await going.who(B).withdraw()
        await going.ended()
        return going.cluster

    folder = collect(asyncio.run(run()), tmp_path / "run")
    assert audit_folder(folder).ok
    note = next(x for x in read_lines(folder, 0) if x.get("what") == "withdrawn")
    said = note["clients"][B]
    other = {B: said | {"version": 2}}
    for change, check in (
        (setting("note", "clients", other, what="withdrawn"), {"limits"}),
        (setting("note", "clients", {A: said}, what="withdrawn"), {"limits"}),
        (dropping("note", what="withdrawn"), {"clients", "report"}),
    ):
        copy = copy_run(folder, tmp_path)
        Forger(copy, copy, certificates).edit(change, 0, 1, 2)
        assert check & failed(audit_folder(copy))
        shutil.rmtree(copy)


def test_answer_of_a_study_that_does_not_run_says_that_nothing_is_stored_and_nothing_counted(
    certificates: Certificates,
) -> None:
    config, name = make_config(), PARTIES[0]
    answer = void_answer(config, A, ReceiptSigner.load(name, certificates[name]))
    receipts = answer.pop("receipts")
    assert isinstance(receipts, list)
    assert len(receipts) == 1
    assert answer == {
        "run": config.run.id,
        "party": name,
        "client": A,
        "stored": 0,
        "asked": 0,
        "settled": MAX_VERSION,
        "counted": None,
        "void": True,
    }
