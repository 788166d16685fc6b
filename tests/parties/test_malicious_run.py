"""Runs with run.security = "malicious": three servers on real sockets, honest ones and one that deviates."""

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

import parties.audit.checks.costs
import parties.mpc.server
import parties.mpc.session
from parties.audit.replay import replay_folder
from parties.audit.runner import audit_folder
from parties.config import CertificateFiles
from parties.mpc.replay.effects import Effects
from parties.mpc.steps import CLIENTS_VERIFY, COUNT_VERIFY, SELECT_VERIFY
from parties.mpc.transcript_schema import COUNTING, RECOUNTING, TOTAL
from protocols.context import Payload, StepCost, Transport
from protocols.errors import CheckFailed, PeerClosed
from protocols.galois import DEGREE
from protocols.steps import COUNT_FACTORS, MEASURE_OPEN
from tests.parties.audit_runs import Lines, collect, copy_run
from tests.parties.mesh import EVERYONE, Cluster, Recording, make_uniform
from tests.parties.support import make_config
from tests.parties.tampering import Forger, failed, find
from tests.parties.test_private_bins_run import PRIVATE


@pytest.fixture(autouse=True)
def _uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)


@pytest.fixture
def cluster(tmp_path: Path, certificates: dict[str, CertificateFiles]) -> Cluster:
    config = make_config({"run.security": "malicious", "run.rounds": 2})
    return Cluster(config, tmp_path, certificates)


class DeviatingTransport:
    """A mesh's transport that changes the first bit of a party's message ``number`` of a step."""

    def __init__(self, inner: Transport, step: str, number: int, counts: dict[str, int]) -> None:
        self._inner, self._step, self._number = inner, step, number
        self._counts = counts
        self.pid, self.costs = inner.pid, inner.costs
        self.component_key, self.private_key = inner.component_key, inner.private_key
        self.fetch, self.opened = inner.fetch, inner.opened

    def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
        if cost.step == self._step:
            if self._counts.get(cost.step, 0) == self._number:
                # In place: what the deviating server keeps of it is changed, too.
                payload[0] ^= 1
            self._counts[cost.step] = self._counts.get(cost.step, 0) + 1
        self._inner.post(peer, label, payload, cost)


def deviate(monkeypatch: pytest.MonkeyPatch, pid: int, step: str, number: int = 0) -> None:
    """From now on server ``pid`` changes that message."""
    counts: dict[str, int] = {}

    class Deviating(Effects):
        def transport(self, inner: Transport) -> Transport:
            if inner.pid != pid:
                return inner
            return DeviatingTransport(inner, step, number, counts)

    monkeypatch.setattr(parties.mpc.session, "Effects", Deviating)


class GoneOn:
    """The servers that have gone on to the second opening of a step, having kept the first; ``both`` is set by two."""

    def __init__(self) -> None:
        self.both = asyncio.Event()
        self._labels: dict[int, set[int]] = {}

    def posted(self, pid: int, label: int) -> None:
        """Notes a message of that step."""
        self._labels.setdefault(pid, set()).add(label)
        if sum(len(labels) > 1 for labels in self._labels.values()) > 1:
            self.both.set()


class OrderedTransport:
    """A mesh's transport of a server that tells that it has gone on; a ``late`` one waits for the two others."""

    def __init__(self, inner: Transport, step: str, others: GoneOn, *, late: bool) -> None:
        self._inner, self._step, self._others, self._late = inner, step, others, late
        self.pid, self.costs, self.opened = inner.pid, inner.costs, inner.opened
        self.component_key, self.private_key = inner.component_key, inner.private_key

    def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
        if cost.step == self._step and not self._late:
            self._others.posted(self.pid, label)
        self._inner.post(peer, label, payload, cost)

    async def fetch(self, peer: int, label: int, cost: StepCost, limit: int) -> Payload:
        if cost.step == self._step and self._late:
            await asyncio.wait_for(self._others.both.wait(), 60)
        return await self._inner.fetch(peer, label, cost, limit)


def deviate_before(monkeypatch: pytest.MonkeyPatch, pid: int, step: str, late: int) -> None:
    """As ``deviate``, and server ``late`` does not see it before both others have gone on."""
    others, counts = GoneOn(), dict[str, int]()

    class Ordered(Effects):
        def transport(self, inner: Transport) -> Transport:
            if inner.pid == pid:
                inner = DeviatingTransport(inner, step, 0, counts)
            return OrderedTransport(inner, step, others, late=inner.pid == late)

    monkeypatch.setattr(parties.mpc.session, "Effects", Ordered)


def records(cluster: Cluster, pid: int) -> list[dict[str, object]]:
    lines = (cluster.directory(pid) / "transcript.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    "changes",
    [{"run.input": "counts"}, {"run.input": "rows", "run.rounds": 1}],
    ids=["counts", "rows"],
)
async def test_run_is_finished_and_passes_the_audit(
    tmp_path: Path, certificates: dict[str, CertificateFiles], changes: dict[str, object]
) -> None:
    fixed = {"run.security": "malicious", "run.rounds": 1, "run.record_replay": True}
    cluster = Cluster(make_config(fixed | changes), tmp_path, certificates)
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    # What was recorded is replayed, proofs included.
    assert "of 1 mesh" in await asyncio.to_thread(replay_folder, cluster.directory(1))
    found = audit_folder(collect(cluster, cluster.folder / "run"))
    assert [check for check in found.checks if check.status == "fail"] == []
    (proofs,) = (check for check in found.checks if check.name == "proofs")
    assert "Before each of" in proofs.detail
    assert any("proved to the two others" in sentence for sentence in found.limits)
    forger = Forger(cluster.folder / "run", cluster.folder / "run", certificates)
    forger.edit(larger_challenge)
    (told,) = (c for c in audit_folder(forger.run).checks if c.name == "costs")
    assert told.status == "fail"
    assert "server 1 sent 20 bytes as a verifier" in told.detail


async def test_fewer_rows_proved_than_were_counted_fail_the_audit(
    tmp_path: Path, certificates: dict[str, CertificateFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three servers that say alike that they proved less: of fewer rows, of none, and not what the rest rests on."""
    changes = {"run.security": "malicious", "run.rounds": 1, "run.input": "rows"}
    cluster = Cluster(make_config(changes), tmp_path, certificates)
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    run = collect(cluster, cluster.folder / "run")
    (run / "report.json").unlink()
    assert failed(audit_folder(run)) == set()
    forgeries = {
        "tables of 290 x": fewer_rows,
        "tables of no rows were proved": partial(nothing_proved, step=COUNT_VERIFY.name),
        "the round's total was not proved": partial(nothing_proved, step=CLIENTS_VERIFY.name),
        "words of ANDs were sent, and too few proved in select.verify": words_alone,
    }
    for number, (words, change) in enumerate(forgeries.items()):
        copy = copy_run(run, tmp_path / str(number))
        Forger(copy, copy, certificates).edit(change)
        audit = audit_folder(copy)
        assert failed(audit) == {"costs"}, number
        (told,) = (check for check in audit.checks if check.name == "costs")
        assert words in told.detail
        # The control: nothing else tells it from a run.
        with monkeypatch.context() as patch:
            for check in ("counted_problem", "gates_problem"):
                patch.setattr(parties.audit.checks.costs, check, lambda *_: None)
            assert failed(audit_folder(copy)) == set(), number


def fewer_rows(lines: Lines) -> None:
    """Of the tables of 300 rows, 290 are proved: every message of that proof is as long as it would be then."""
    before, after = (halved(rows) for rows in (300, 290))
    assert len(before) == len(after)
    pid = lines[0]["party"]
    for kind, peer in (("sent", (pid + 1) % 3), ("received", (pid - 1) % 3)):
        said = [
            r for r in lines
            if (r["kind"], r.get("step"), r.get("peer")) == (kind, COUNT_VERIFY.name, peer)
        ]  # fmt: skip
        sizes = [r["bytes"] for r in said]
        starts = range(len(sizes) - len(before) + 1)
        (start,) = (n for n in starts if sizes[n : n + len(before)] == before)
        for record, size in zip(said[start:], after, strict=False):
            record["bytes"] = size
        account = find(lines, "step", step=COUNT_VERIFY.name)
        account[kind] -= sum(before) - sum(after)


def halved(rows: int) -> list[int]:
    """Bytes of what a prover of tables of so many rows sends: its parts of them, and of each two that become one."""
    sizes, left = [rows], 1 + rows
    while left > 1:
        sizes.append(left // 2)
        left -= left // 2
    return [2 * DEGREE * size for size in sizes]


def nothing_proved(lines: Lines, step: str) -> None:
    """Of one step no proofs."""
    lines[:] = [r for r in lines if r.get("step") != step]


def words_alone(lines: Lines) -> None:
    """Of the checks before a choice only the words at their beginnings and their ends, that all is right."""
    account, begun = find(lines, "step", step=SELECT_VERIFY.name), set[tuple[str, int]]()
    for record in list(lines):
        kind = record["kind"]
        if kind not in ("sent", "received") or record["step"] != SELECT_VERIFY.name:
            continue
        link = kind, record["peer"]
        if link in begun and record["bytes"] > 1:
            lines.remove(record)
            account[kind] -= record["bytes"]
            account["messages"] -= kind == "sent"
        begun = begun - {link} if record["bytes"] == 1 else begun | {link}


def larger_challenge(lines: Lines) -> None:
    """Both servers' records agree: server 1's first challenge to server 0 has four bytes more than a challenge has."""
    ends = {0: ("received", 1), 1: ("sent", 0)}
    pid = lines[0]["party"]
    if pid in ends:
        kind, peer = ends[pid]
        find(lines, kind, step=SELECT_VERIFY.name, peer=peer, bytes=16)["bytes"] += 4


async def test_private_bins_and_a_late_owner_are_proved_and_pass_the_audit(
    tmp_path: Path, certificates: dict[str, CertificateFiles]
) -> None:
    """Fine cells are measured, rows recoded and counted anew, and an owner comes in round 2."""
    changes = PRIVATE | {
        "run.security": "malicious",
        "run.noise": "discrete-gaussian",
        "run.record_replay": False,
        "clients.participation": 0.5,
        "clients.minimum": 1,
    }
    cluster = Cluster(make_config(changes), tmp_path, certificates)
    ended = await cluster.run(
        owners=EVERYONE, first_rounds={EVERYONE[2]: 2}, capacities=dict.fromkeys(EVERYONE, 40)
    )
    assert ended == [None] * 3
    found = audit_folder(collect(cluster, cluster.folder / "run"))
    assert [check for check in found.checks if check.status == "fail"] == []
    noted = [
        r["what"] for r in records(cluster, 0) if r.get("what") in (COUNTING.what, RECOUNTING.what)
    ]
    assert noted == [COUNTING.what, RECOUNTING.what, COUNTING.what]


@pytest.mark.slow
async def test_annealed_run_goes_on_after_a_kill_and_every_opening_is_proved(
    tmp_path: Path, certificates: dict[str, CertificateFiles]
) -> None:
    """After a restart the totals are those that were proved; the schedule has as many rounds as it takes."""
    annealed = {"run.schedule": "annealed", "run.rounds": None, "run.epsilon": 20.0}
    cluster = Cluster(
        make_config({"run.security": "malicious", **annealed}), tmp_path, certificates
    )
    ended = await cluster.run(owners=EVERYONE, kill=(1, "selected", 1))
    assert None not in ended
    assert await cluster.run() == [None] * 3
    found = audit_folder(collect(cluster, cluster.folder / "run"))
    assert [check for check in found.checks if check.status == "fail"] == []
    (proofs,) = (check for check in found.checks if check.name == "proofs")
    assert "Before each of" in proofs.detail


@pytest.mark.parametrize(
    ("pid", "step", "what"),
    [
        (0, "select.scores", "select.index"),
        (1, "select.choose", "select.index"),
        (2, "measure.noise", "measure.counts"),
        (1, "clients.check", "clients.passed"),
        (2, "select.verify", "select.index"),
    ],
)
async def test_a_server_that_deviates_ends_the_run_before_the_opening(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, pid: int, step: str, what: str
) -> None:
    with monkeypatch.context() as patch:
        deviate(patch, pid, step)
        ended = await cluster.run(owners=EVERYONE)
    honest = [other for other in range(3) if other != pid]
    assert any(isinstance(ended[other], CheckFailed) for other in honest)
    assert all(isinstance(error, CheckFailed | PeerClosed) for error in ended)
    for other in honest:
        written = records(cluster, other)
        assert not [r for r in written if r.get("what") == what and r["kind"] == "opened"]
        # The last record is why it ended, in words, with who deviates or may.
        said = json.dumps(written[-1])
        assert "failed: " in said
        assert f"party {pid}" in said
    charged = [len([r for r in records(cluster, o) if r["kind"] == "ledger"]) for o in honest]
    # The same command starts again; what was charged stays so.
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    assert audit_folder(collect(cluster, cluster.folder / "run")).ok
    spent = [r for r in records(cluster, honest[0]) if r["kind"] == "ledger"]
    assert len(spent) >= charged[0]


async def test_run_goes_on_after_a_server_opened_something_else(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps what it makes of it: with the one other server that has a value there are two different ones."""
    with monkeypatch.context() as patch:
        deviate_before(patch, 2, MEASURE_OPEN.name, late=0)
        ended = await cluster.run(owners=EVERYONE)
    assert isinstance(ended[0], CheckFailed)
    assert "by party 2 and party 1" in str(ended[0])
    assert all(isinstance(error, CheckFailed | PeerClosed) for error in ended)
    recordings = {other: Recording() for other in range(3)}
    assert await cluster.run(owners=EVERYONE, records=recordings) == [None] * 3
    assert all("contradicted" in recording.events for recording in recordings.values())
    found = audit_folder(collect(cluster, cluster.folder / "run"))
    (values,) = (check for check in found.checks if check.name == "values")
    assert values.status == "fail"
    assert "server 2 and another one differ in measure.counts" in values.detail


async def test_a_total_that_was_not_proved_is_not_kept(
    tmp_path: Path, certificates: dict[str, CertificateFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart nobody could prove it any more, and it would be measured."""
    fixed = {"run.security": "malicious", "run.input": "rows", "run.rounds": 1}
    cluster = Cluster(make_config(fixed), tmp_path, certificates)
    with monkeypatch.context() as patch:
        deviate(patch, 1, COUNT_FACTORS.name)
        ended = await cluster.run(owners=EVERYONE)
    assert any(isinstance(error, CheckFailed) for error in (ended[0], ended[2]))
    for honest in (0, 2):
        assert not [r for r in records(cluster, honest) if r.get("what") == TOTAL.what]


async def test_a_server_that_deviates_is_not_noticed_in_semi_honest_mode(
    tmp_path: Path, certificates: dict[str, CertificateFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a changed reshare ends nothing, and the audit passes."""
    cluster = Cluster(make_config({"run.rounds": 2}), tmp_path, certificates)
    deviate(monkeypatch, 2, "measure.noise")
    assert await cluster.run(owners=EVERYONE) == [None] * 3
    assert audit_folder(collect(cluster, cluster.folder / "run")).ok
