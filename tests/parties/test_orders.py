"""Operators' commands to a run that goes on: carried out if all three give them, and not before."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from click.testing import CliRunner, Result

import parties.mpc.server
from mechanisms.workload import count_marginals
from parties.audit.replay import replay_folder
from parties.audit.runner import audit_folder
from parties.cli.main import cli
from parties.config import CertificateFiles
from parties.foundation.exit_codes import TooFewClients
from parties.mpc.participants.notices import OperatorNotices
from parties.mpc.participants.waiting_text import WaitStatus
from parties.mpc.records import RunningTotal
from parties.mpc.server import run_mpc_server
from parties.mpc.storage.totals import TotalStore
from parties.mpc.submission.resubmit import fetch_return
from parties.observability.status import RunInfo, RunStatus
from parties.service.admin_listener import SOCKET_NAME
from parties.service.exposed_run import command_handlers, with_admin_api
from parties.service.status_client import get_document
from parties.session.operator_commands import CommandSet, OperatorCommands
from parties.storage.database import Database
from tests.parties.audit_runs import collect
from tests.parties.mesh import EVERYONE, Cluster, Recording, make_uniform
from tests.parties.support import bodies_in, make_codes, make_config
from tests.parties.test_withdrawal import Who, counts_of
from tests.until import eventually

Certificates = dict[str, CertificateFiles]
A, B, C = EVERYONE


@pytest.fixture(autouse=True)
def _uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)


class Operated:
    """Three servers whose operators may ask something."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.orders = [OperatorCommands() for _ in range(3)]
        self.events = [Recording() for _ in range(3)]
        self.boards = [RunStatus(RunInfo.of_server(cluster.config, pid)) for pid in range(3)]
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> list[BaseException | None]:
        runs = []
        for pid, config in enumerate(self.cluster.with_own_certificates()):
            folder = self.cluster.directory(pid)
            folder.mkdir(exist_ok=True)
            runs.append(
                run_mpc_server(
                    config,
                    pid,
                    folder,
                    progress=self.events[pid],
                    closed=asyncio.Event(),
                    register=self.cluster.register(pid),
                    commands=self.orders[pid],
                    status=self.boards[pid],
                )
            )
        return await asyncio.gather(*runs, return_exceptions=True)

    async def at_sockets(self) -> AsyncIterator[None]:
        """Every server answers its operator."""
        async with contextlib.AsyncExitStack() as stack:
            for pid, orders in enumerate(self.orders):
                folder, board = self.cluster.directory(pid), self.boards[pid]
                folder.mkdir(exist_ok=True, mode=0o700)
                told = command_handlers(self.task.cancel, orders)
                await stack.enter_async_context(with_admin_api(board, folder, told))
            yield

    async def until(self, there: Callable[[], bool]) -> None:
        await eventually(there)

    async def said(self, words: str, pid: int = 0) -> None:
        await self.until(lambda: any(words in text for text in self.events[pid].texts))

    def result(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(
            (self.cluster.directory(0) / "result.json").read_text()
        )
        return found

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def operated(tmp_path: Path, certificates: Certificates) -> AsyncIterator[Operated]:
    """Three owners are expected, two are enough."""
    changes = {"run.rounds": 2, "clients.minimum": 2, "timeouts.connect_s": 9.0}
    config = make_config({**changes, "run.record_replay": True})
    running = Operated(Cluster(config, tmp_path, certificates))
    yield running
    await running.end()


def names(found: object) -> list[str]:
    assert isinstance(found, list)
    return [item["client"] for item in found]


async def test_run_is_closed_where_all_three_operators_ask_it(operated: Operated) -> None:
    """Enough are there, and the third is waited for until the last of the three operators closes the run."""
    await operated.cluster.submit([A])
    await operated.said("the run needs 2 (clients.minimum)")
    for pid in (0, 1):
        operated.orders[pid].ask(close=True)
    await operated.cluster.submit([A, B])
    await operated.said("party-0, party-1 asks to close the run to data owners, party-2 not yet")
    await operated.said("enough to begin (clients.minimum = 2)")
    assert not operated.task.done()
    assert not any(orders.agreed.close for orders in operated.orders)
    operated.orders[2].ask(close=True)
    assert await operated.task == [None] * 3
    assert names(operated.result()["counted"]) == [A, B]
    notes = [json.loads(line) for line in _transcript(operated, 1) if '"what":"closed"' in line]
    assert [note["round"] for note in notes] == [0]


async def test_run_below_its_minimum_is_not_closed(operated: Operated) -> None:
    for orders in operated.orders:
        orders.ask(close=True)
    await operated.cluster.submit([A])
    await operated.said("the run needs 2 (clients.minimum)")
    await asyncio.sleep(0.8)  # Sleeps: quiet.
    assert not operated.task.done()
    await operated.cluster.submit([A, B])
    assert await operated.task == [None] * 3


async def test_run_finishes_with_the_rounds_done_where_all_three_ask_it(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Two ask from the start, the third after round 2 of 6: no further round begins, and an audit holds."""
    config = make_config({"run.rounds": 6, "run.record_replay": True})
    operated = Operated(Cluster(config, tmp_path, certificates))

    def ask(name: str, fields: object) -> None:
        if name == "round-done" and isinstance(fields, dict) and fields["done"] == 2:
            operated.orders[2].ask(finish=True)

    operated.events[2].on_event = ask
    for pid in (0, 1):
        operated.orders[pid].ask(finish=True)
    await operated.cluster.submit(EVERYONE)
    assert await operated.task == [None] * 3
    result = operated.result()
    assert (result["rounds_done"], result["finished_early"]) == (2, True)
    assert any("as all three operators ask" in text for text in operated.events[1].texts)
    assert (operated.cluster.directory(0) / "synthetic.csv").exists()
    audit = audit_folder(collect(operated.cluster, tmp_path / "run"))
    assert audit.ok, [check for check in audit.checks if not check.ok]
    for pid in range(3):
        assert await asyncio.to_thread(replay_folder, operated.cluster.directory(pid))


@pytest.mark.parametrize("form", ["counts", "rows"])
async def test_revoked_owner_is_taken_out_where_all_three_ask_it(
    form: str, tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals: dict[tuple[str, int], RunningTotal] = {}
    real = TotalStore.save

    def saving(store: TotalStore, total: RunningTotal) -> None:
        totals[store.directory.parent.name, total.round] = total
        real(store, total)

    complete, waiting = Counter[int](), OperatorNotices.waiting

    def heard(notices: OperatorNotices, state: WaitStatus) -> None:
        complete[notices._pid] = state.complete
        waiting(notices, state)

    monkeypatch.setattr(TotalStore, "save", saving)
    monkeypatch.setattr(OperatorNotices, "waiting", heard)
    config = make_config({"run.rounds": 1, "clients.minimum": 1, "run.input": form})
    operated = Operated(Cluster(config, tmp_path, certificates))
    await operated.cluster.submit([A, B])
    # The servers agree that both are complete; whom they had never heard of would not stand in the result.
    await operated.until(lambda: [complete[pid] for pid in range(3)] == [2] * 3)
    for orders in operated.orders:
        orders.ask(revoke=[B])
    await operated.until(lambda: all(o.agreed.revoked == {B} for o in operated.orders))
    for pid in range(3):
        store = operated.cluster.directory(pid) / "store"
        await operated.until(lambda store=store: len(bodies_in(store, "submissions")) == 1)  # type: ignore[misc]
    for orders in operated.orders:
        orders.ask(close=True)
    assert await operated.task == [None] * 3
    result = operated.result()
    assert names(result["counted"]) == [A]
    (excluded,) = result["excluded"]  # type: ignore[misc]
    assert (excluded["client"], excluded["excluded"]) == (B, "revoked")
    expected = count_marginals(make_codes(20, 0), config.build_workload())
    np.testing.assert_array_equal(counts_of(totals, 0), expected)
    audit = audit_folder(collect(operated.cluster, tmp_path / "run"))
    assert audit.ok, [check for check in audit.checks if not check.ok]


async def test_charge_of_an_owner_that_is_revoked_before_a_round_is_returned(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The owner asks for its status alone: two servers have signed that nothing of it is counted."""
    config = make_config({"run.rounds": 1, "clients.minimum": 1})
    operated = Operated(Cluster(config, tmp_path, certificates))
    await operated.until(lambda: all(len(o.by_server) == 3 for o in operated.orders))
    owner = Who(B, operated.cluster)
    assert (await owner.submit(make_codes(20, 1))).complete
    assert owner.spent == (1, [None])

    async def fetch() -> bool:
        found = await fetch_return(
            config, owner.files, state=owner.state, give_back=owner.give_back
        )
        return found is not None and found.complete

    assert not await fetch()
    for orders in operated.orders[:2]:
        orders.ask(revoke=[B])
    await asyncio.sleep(0.8)  # Sleeps: quiet.
    assert not await fetch()
    assert owner.spent == (1, [None])
    operated.orders[2].ask(revoke=[B])
    async with asyncio.timeout(20):
        while not await fetch():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert owner.spent == (0, ["withdrawn"])
    await operated.cluster.submit([A])
    for orders in operated.orders:
        orders.ask(close=True)
    assert await operated.task == [None] * 3
    assert names(operated.result()["counted"]) == [A]


async def test_owner_that_one_server_revokes_is_seen_to_be_left_out(operated: Operated) -> None:
    """One server can keep an owner out, as it always could; all three say whose word it was."""
    operated.orders[1].ask(revoke=[C])
    await operated.cluster.submit(EVERYONE)
    await operated.said("server 1 (party-1) has nothing of clinic-c")
    for orders in operated.orders:
        orders.ask(close=True)
    assert await operated.task == [None] * 3
    result = operated.result()
    assert names(result["counted"]) == [A, B]
    (excluded,) = result["excluded"]  # type: ignore[misc]
    assert (excluded["client"], excluded["by"]) == (C, [1])


async def test_waiting_ends_after_the_grace_once_there_are_enough(
    tmp_path: Path, certificates: Certificates
) -> None:
    changes = {"run.rounds": 1, "clients.minimum": 2, "clients.grace_s": 0.5}
    operated = Operated(Cluster(make_config(changes), tmp_path, certificates))
    await operated.cluster.submit([A, B])
    assert await operated.task == [None] * 3
    assert names(operated.result()["counted"]) == [A, B]


async def test_waiting_ends_at_the_closing_date(tmp_path: Path, certificates: Certificates) -> None:
    """Any wait_s gives the same end; with too few owners the error says so."""
    changes = {"clients.closes": "2020-01-01T00:00:00Z", "clients.wait_s": 600.0}
    operated = Operated(Cluster(make_config(changes), tmp_path, certificates))
    ends = await operated.task
    few = [str(end) for end in ends if isinstance(end, TooFewClients)]
    assert "by 2020-01-01T00:00:00Z (clients.closes)" in few[0]


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


async def test_operators_ask_by_command_and_see_who_has_to_ask_too(operated: Operated) -> None:
    folders = [operated.cluster.directory(pid) for pid in range(3)]
    async with contextlib.asynccontextmanager(operated.at_sockets)():
        await operated.cluster.submit([A, B, C][:2])
        await operated.said("enough to begin")
        first = await asyncio.to_thread(command, "close", folders[0])
        assert first.output == (
            "close trial: asked by party-0; it takes effect when party-1 and party-2 ask it, too (syncret close, at "
            "each)\n"
        )
        status = await asyncio.to_thread(get_document, folders[1])
        assert [one["close"] for one in status["asked"]["told"]] == [True, False, False]
        named = await asyncio.to_thread(command, "revoke", folders[1], "clinic-d", "--json")
        assert json.loads(named.output)["here"]["revoked"] == ["clinic-d"]
        await asyncio.to_thread(command, "close", folders[1])
        last = await asyncio.to_thread(command, "close", folders[2])
        assert last.output == "close trial: agreed; no further data owners are taken\n"
        assert await operated.task == [None] * 3


@pytest.mark.parametrize("body", [b"", b"{}", b"[" * 9000, b'{"owner": "<b>"}', b'{"owner": 7}'])
async def test_revoke_refuses_what_names_nobody(operated: Operated, body: bytes) -> None:
    async with contextlib.asynccontextmanager(operated.at_sockets)():
        connector = aiohttp.UnixConnector(str(operated.cluster.directory(0) / SOCKET_NAME))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post("http://localhost/v1/revoke", data=body) as response,
        ):
            assert response.status == 422
            what = (await response.json())["error"]["what"]
            assert "the body: " in what or what == "no data owner's name"
    assert operated.orders[0].asked == CommandSet()


def test_orders_are_kept_in_the_runs_database(tmp_path: Path) -> None:
    orders = OperatorCommands()
    with Database(tmp_path / "store", "ab", []) as database:
        orders.keep_in(database)
        orders.ask(finish=True, revoke=[A])
    again = OperatorCommands()
    again.ask(close=True)
    with Database(tmp_path / "store", "ab", []) as database:
        again.keep_in(database)
    assert again.asked == CommandSet(True, True, frozenset({A}))


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"close": 1, "finish": False, "revoked": []},
        {"close": True, "finish": False, "revoked": ["<b>"]},
        {"close": True, "finish": False, "revoked": [7]},
    ],
)
def test_asked_refuses_what_no_operator_can_ask(value: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not what an operator can ask"):
        CommandSet.from_dict(value)


def _transcript(operated: Operated, pid: int) -> list[str]:
    text = (operated.cluster.directory(pid) / "transcript.jsonl").read_text()
    return text.splitlines()
