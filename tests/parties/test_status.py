"""Servers that are looked at while they run, and folders in which nothing runs any more."""

import asyncio
import contextlib
import json
import shutil
import socket
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import parties.mpc.server
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import CertificateFiles
from parties.foundation.errors import StoreError
from parties.foundation.exit_codes import Status
from parties.mpc.server import run_mpc_server
from parties.observability.events import Progress
from parties.observability.status import (
    ParticipantState,
    ParticipantStatus,
    Phase,
    RunInfo,
    RunStatus,
)
from parties.service.admin_listener import SOCKET_NAME, AdminListener, admin_thread, listen_unix
from parties.service.exposed_run import command_handlers, with_admin_api
from parties.service.offline_status import offline_status
from parties.service.run_api import CommandHandlers, run_application
from parties.service.status_client import NotRunning, get_document, send_command, status_events
from parties.session.operator_commands import CommandSet
from parties.session.operator_commands import OperatorCommands as Asking
from tests.parties.mesh import EVERYONE, Cluster, Recording, make_uniform
from tests.parties.support import make_config


@pytest.fixture(autouse=True)
def _uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)


@pytest.fixture
def cluster(tmp_path: Path, certificates: dict[str, CertificateFiles]) -> Cluster:
    return Cluster(make_config(), tmp_path, certificates)


@pytest.fixture
def board() -> RunStatus:
    return RunStatus(RunInfo.of_server(make_config(), 0))


@contextlib.contextmanager
def at(folder: Path, board: RunStatus, orders: CommandHandlers | None = None) -> Iterator[None]:
    """The board's API at the socket of `folder`, without a server behind it."""
    listening = [AdminListener(listen_unix(folder / SOCKET_NAME))]
    with admin_thread(lambda: run_application(board, orders or CommandHandlers()), listening):
        yield


@contextlib.asynccontextmanager
async def servers(cluster: Cluster, closed: asyncio.Event) -> AsyncIterator[list[RunStatus]]:
    """Three servers that answer at the sockets in their folders, until they end or the block does."""
    configs = cluster.with_own_certificates()
    boards = [RunStatus(RunInfo.of_server(config, pid)) for pid, config in enumerate(configs)]

    async def serve(pid: int) -> None:
        folder = cluster.directory(pid)
        folder.mkdir(parents=True, exist_ok=True)
        orders = CommandHandlers(close=closed.set)
        async with with_admin_api(boards[pid], folder, orders):
            await run_mpc_server(
                configs[pid],
                pid,
                folder,
                progress=Recording(),
                closed=closed,
                register=cluster.register(pid),
                status=boards[pid],
            )

    tasks = [asyncio.create_task(serve(pid)) for pid in range(3)]
    try:
        async with asyncio.timeout(60):
            yield boards
            await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(folder: Path, phase: str) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(NotRunning):
                if (found := await asyncio.to_thread(get_document, folder))["phase"] == phase:
                    return found
            await asyncio.sleep(0.05)


def status(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["status", *map(str, arguments)])


async def test_a_run_is_seen_from_its_socket_and_afterwards_from_its_folder(
    cluster: Cluster,
) -> None:
    closed = asyncio.Event()
    async with servers(cluster, closed) as boards:
        waiting = await until(cluster.directory(0), "waiting")
        assert [peer["connected"] for peer in waiting["peers"]] == [True, True]
        assert all(0 <= peer["round_trip_s"] < 1 for peer in waiting["peers"])
        assert waiting["owners"]["short"] == 3
        assert waiting["process"]["memory_bytes"] > 1 << 20
        await cluster.submit(EVERYONE[:2])
        owners = boards[1].status()["owners"]
        assert owners["here"] == 2
        assert {owner["name"] for owner in owners["list"]} == set(EVERYONE[:2])
        await cluster.submit(EVERYONE[2:])
    for pid, board in enumerate(boards):
        last, kept = board.status(), offline_status(cluster.directory(pid))
        assert (last["phase"], kept["phase"]) == ("finished", "finished")
        assert not (cluster.directory(pid) / SOCKET_NAME).exists()
        assert (
            last["rounds"] == kept["rounds"] == {"done": 4, "now": None, "of": 4, "at_most": False}
        )
        assert last["owners"] == kept["owners"]
        assert last["budget"] == kept["budget"]
        assert last["owners"]["states"] == {"counted": 3}
        assert sum(step["sent_bytes"] for step in last["steps"].values()) > 10_000
        assert kept["errors"] == []
    shown_ = status(cluster.directory(0))
    assert shown_.exit_code == 0
    assert max(map(len, shown_.output.splitlines())) <= 80
    assert "clinic-b" in shown_.output
    assert "4 of 4 done" in shown_.output


async def test_a_server_that_was_killed_is_said_not_to_run(cluster: Cluster) -> None:
    """Its folder as a kill leaves it: the socket is there, nobody listens, the store has a round."""
    killed = cluster.folder / "killed"

    def keep(name: str, fields: object) -> None:
        if name == "selected" and not killed.exists():
            shutil.copytree(cluster.directory(0), killed)

    await cluster.run(owners=EVERYONE, records={0: Recording(keep)})
    listen_unix(killed / SOCKET_NAME).close()
    assert run_command_line(cli, ["status", str(killed)]) == Status.NOT_RUNNING
    found = status(killed, "--json")
    assert found.exit_code == Status.NOT_RUNNING
    document = json.loads(found.output)
    assert (document["phase"], document["running"]) == ("stopped", False)
    assert document["rounds"]["done"] == 0
    assert document["owners"]["counted"] == 3
    assert 0 < document["budget"]["spent"] < document["budget"]["rho"]


async def test_what_a_run_failed_for_is_shown_afterwards(cluster: Cluster) -> None:
    config = make_config({"timeouts.connect_s": 0.3})
    alone = Cluster(config, cluster.folder, cluster.certificates)
    await alone.run(pids=[1])
    found = offline_status(alone.directory(1))
    assert found["phase"] == "stopped"
    assert "the mesh was not complete" in str(found["errors"])


def test_the_socket_is_its_users_alone(tmp_path: Path, board: RunStatus) -> None:
    with at(tmp_path, board):
        assert stat.S_IMODE((tmp_path / SOCKET_NAME).stat().st_mode) == 0o600


def test_the_socket_may_lie_deep(tmp_path: Path, board: RunStatus) -> None:
    deep = tmp_path / ("a" * 100) / ("b" * 100)
    deep.mkdir(parents=True)
    with at(deep, board):
        assert get_document(deep)["phase"] == "starting"


def test_listen_takes_the_place_of_a_dead_socket_and_not_of_a_living_one(
    tmp_path: Path, board: RunStatus
) -> None:
    listen_unix(tmp_path / SOCKET_NAME).close()
    with at(tmp_path, board), pytest.raises(StoreError, match="in use by another process"):
        listen_unix(tmp_path / SOCKET_NAME)
    (tmp_path / SOCKET_NAME).unlink()
    (tmp_path / SOCKET_NAME).write_text("no socket")
    with pytest.raises(StoreError, match="in use"):
        listen_unix(tmp_path / SOCKET_NAME)


def test_healthz_and_readyz_say_whether_it_turns_and_takes_owners(
    tmp_path: Path, board: RunStatus
) -> None:
    with at(tmp_path, board):
        assert get_document(tmp_path, "/healthz")["healthy"]
        assert not get_document(tmp_path, "/readyz")["ready"]
        Progress(board).event("listening", "")
        assert get_document(tmp_path, "/readyz") == {"ready": True, "phase": "connecting"}
        board.enter(Phase.FINISHED)
        assert not get_document(tmp_path, "/readyz")["ready"]


def test_healthz_notices_a_computation_that_hangs(tmp_path: Path) -> None:
    now = 1000.0
    board = RunStatus(RunInfo.of_server(make_config(), 0), clock=lambda: now)
    with at(tmp_path, board):
        now += 119
        assert get_document(tmp_path, "/healthz")["healthy"]
        now += 2
        assert get_document(tmp_path, "/healthz") == {"healthy": False, "silent_s": 121.0}


def test_orders_reach_the_server_and_are_refused_where_it_knows_none(
    tmp_path: Path, board: RunStatus
) -> None:
    called: list[str] = []
    with at(tmp_path, board, CommandHandlers(close=lambda: called.append("close"))):
        assert send_command(tmp_path, "close") == (True, {"order": "close"})
        taken, answer = send_command(tmp_path, "finish")
        assert not taken
        assert "cannot be told to finish" in answer["error"]["what"]
        board.enter(Phase.FAILED)
        taken, answer = send_command(tmp_path, "close")
        assert (taken, called) == (False, ["close"])
        assert "which is failed" in answer["error"]["what"]


def raw(folder: Path, text: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(str(folder / SOCKET_NAME))
        connection.sendall(text)
        found = b""
        with contextlib.suppress(ConnectionError):
            while data := connection.recv(65536):
                found += data
        return found


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET /shares HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        (b"DELETE /status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405),
        (b"GET /close HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405),
        (b"POST /../close HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        (b"POST /restart HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", 400),
        (b"POST /close HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\nConnection: close\r\n\r\n", 403),
        (b"POST /close HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: cross-site\r\nConnection: close\r\n\r\n", 403),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 400),
    ],
)  # fmt: skip
def test_requests_that_are_none_of_its_own_are_refused(
    tmp_path: Path, board: RunStatus, request_: bytes, code: int
) -> None:
    called: list[str] = []
    with at(tmp_path, board, CommandHandlers(close=lambda: called.append("close"))):
        assert raw(tmp_path, request_).split()[1] == b"%d" % code
        assert get_document(tmp_path)["phase"] == "starting"
    assert called == []


def test_a_page_of_its_own_may_order(tmp_path: Path, board: RunStatus) -> None:
    called: list[str] = []
    text = b"POST /close HTTP/1.1\r\nHost: x:1\r\nOrigin: https://x:1\r\nConnection: close\r\n\r\n"
    with at(tmp_path, board, CommandHandlers(close=lambda: called.append("close"))):
        assert raw(tmp_path, text).startswith(b"HTTP/1.1 202")
    assert called == ["close"]


def test_events_come_as_things_change_and_end_with_the_server(
    tmp_path: Path, board: RunStatus
) -> None:
    board.sources.owners = lambda: [ParticipantStatus("clinic-a", ParticipantState.HERE)]
    with at(tmp_path, board):
        stream = status_events(tmp_path)
        first = next(stream)
        assert first["phase"] == "starting"
        assert "list" not in first["owners"]
        Progress(board).event("listening", "")
        assert next(stream)["phase"] == "connecting"
        for number in range(50):
            Progress(board).event("round", "", round=number)
        board.enter(Phase.FINISHED)
        rest = list(stream)
        assert rest[-1]["phase"] == "finished"
        assert len(rest) < 10


def test_events_end_when_the_api_is_closed(tmp_path: Path, board: RunStatus) -> None:
    with at(tmp_path, board):
        stream = status_events(tmp_path)
        next(stream)
    assert len(list(stream)) <= 1


def test_listeners_are_limited(
    tmp_path: Path, board: RunStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parties.service.run_api._MAX_LISTENERS", 1)
    with at(tmp_path, board):
        stream = status_events(tmp_path)
        next(stream)
        assert "at most 1" in get_document(tmp_path, "/events")["error"]["expected"]


def test_no_thread_stays_behind(tmp_path: Path, board: RunStatus) -> None:
    with at(tmp_path, board):
        assert "admin" in {thread.name for thread in threading.enumerate()}
    assert "admin" not in {thread.name for thread in threading.enumerate()}


def test_status_prints_what_others_have_chosen_as_plain_text(
    tmp_path: Path, board: RunStatus
) -> None:
    name, reason = "clinic[red]\x1b[31m", "[/bold] \n out of bounds"
    board.sources.owners = lambda: [
        ParticipantStatus(name, ParticipantState.EXCLUDED, reason=reason)
    ]
    board.rejected("tls", "[link=http://evil.example]no")
    with at(tmp_path, board):
        found = status(tmp_path)
    assert found.exit_code == 0
    assert "\x1b" not in found.output
    assert "clinic[red]" in found.output
    assert "[/bold]" in found.output
    assert "[link=http://evil.example]no" in found.output


def test_status_says_who_asks_for_what(tmp_path: Path, board: RunStatus) -> None:
    orders = Asking()
    orders.ask(close=True, revoke=["clinic-c"])
    orders.tell(
        [CommandSet(close=True), CommandSet(close=True, finish=True), CommandSet(close=True)]
    )
    board.sources.asked = lambda: orders.shown(["party-0", "party-1", "party-2"])
    with at(tmp_path, board):
        found = " ".join(status(tmp_path).output.split())
    assert "close: by all" in found
    assert "finish: by party-1; not by all yet" in found
    assert "revoke clinic-c: not by all yet" in found


def test_revoke_of_a_name_that_the_run_does_not_have_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip of the pen would turn nobody away, and say that it had."""
    asked = Asking()
    board = RunStatus(RunInfo.of_server(make_config({"clients.names": list(EVERYONE)}), 0))
    board.sources.asked = lambda: asked.shown([])
    with at(tmp_path, board, command_handlers(lambda: None, asked)):
        assert run_command_line(cli, ["revoke", str(tmp_path), "clinic-x"]) == Status.STORAGE
        assert f"'clinic-x' is not among the {len(EVERYONE)} data owners" in capsys.readouterr().err
        assert asked.asked == CommandSet()
        assert send_command(tmp_path, "revoke", {"owner": EVERYONE[0]})[0]
    assert asked.asked.revoked == {EVERYONE[0]}


def test_status_of_a_folder_that_is_none_says_what_would_be(tmp_path: Path) -> None:
    found = status(tmp_path)
    assert isinstance(found.exception, StoreError)
    assert "expected the --dir of syncret serve study" in str(found.exception)


@pytest.mark.parametrize("text", ["", "[]", "{}", "no json", '{"time": 1, "config": 3}'])
def test_status_of_a_folder_with_another_transcript_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "transcript.jsonl").write_text(text)
    found = status(tmp_path)
    assert isinstance(found.exception, StoreError)
    assert "does not begin as a server's transcript" in str(found.exception)


def test_status_where_something_else_answers_says_so(tmp_path: Path) -> None:
    listening = listen_unix(tmp_path / SOCKET_NAME)

    def answer() -> None:
        connection, _ = listening.accept()
        connection.recv(1000)
        connection.sendall(b"SSH-2.0-OpenSSH\r\n\r\n")
        connection.close()

    thread = threading.Thread(target=answer)
    thread.start()
    found = status(tmp_path)
    thread.join()
    listening.close()
    assert isinstance(found.exception, StoreError)
    assert "does not answer as a server would" in str(found.exception)


def test_status_of_a_trial_shows_its_servers(tmp_path: Path, board: RunStatus) -> None:
    for name in ("0", "1"):
        (tmp_path / "parties" / name).mkdir(parents=True)
    with at(tmp_path / "parties" / "0", board), at(tmp_path / "parties" / "1", board):
        found = status(tmp_path, "--json")
        watched = status(tmp_path, "--watch")
    assert len(found.output.splitlines()) == 2
    assert watched.exit_code == Status.USAGE


def test_status_of_a_trial_that_is_over_says_so(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"fingerprint": "0", "finished": true}')
    found = status(tmp_path)
    assert (found.exit_code, "finished; its report is" in found.output) == (0, True)
    assert json.loads(status(tmp_path, "--json").output)["phase"] == "finished"


def test_status_watches_until_the_end(tmp_path: Path, board: RunStatus) -> None:
    with at(tmp_path, board):
        threading.Timer(0.3, Progress(board).event, ("finished", "finished")).start()
        found = status(tmp_path, "--watch", "--json")
    phases = [json.loads(line)["phase"] for line in found.output.splitlines()]
    assert (phases[0], phases[-1], found.exit_code) == ("starting", "finished", 0)
