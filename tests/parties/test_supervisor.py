"""Under a supervisor: what systemd hears, and that SIGTERM is an order that was carried out."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from parties.observability.events import Progress
from parties.observability.systemd import (
    SOCKET_VARIABLE,
    SUPERVISED_VARIABLE,
    SystemdSink,
    is_supervised,
    notify,
    watchdog,
)
from tests.parties.commands import ROOT, Run
from tests.parties.hosts import three_hosts
from tests.until import eventually

STUDY = ROOT / "examples" / "three-hosts" / "study.toml"


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket in systemd's place."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(20)
        monkeypatch.setenv(SOCKET_VARIABLE, str(tmp_path / "notify"))
        yield heard


def lines_until(heard: socket.socket, line: str) -> list[str]:
    said: list[str] = []
    while line not in said:
        said += heard.recv(4096).decode().split("\n")
    return said


def test_tell_reaches_sockets_with_a_path_and_abstract_ones(
    systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    notify("READY=1", "STATUS=here")
    assert systemd.recv(100) == b"READY=1\nSTATUS=here"
    name = f"syncret-{Path(systemd.getsockname()).parent.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as abstract:
        abstract.bind(f"\0{name}")
        monkeypatch.setenv(SOCKET_VARIABLE, f"@{name}")
        notify("WATCHDOG=1")
        assert abstract.recv(100) == b"WATCHDOG=1"


def test_tell_does_nothing_where_nobody_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    notify("READY=1")
    monkeypatch.setenv(SOCKET_VARIABLE, str(tmp_path / "nobody"))
    notify("READY=1")


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        (SUPERVISED_VARIABLE, "1", True),
        (SUPERVISED_VARIABLE, "0", False),
        (SUPERVISED_VARIABLE, "", False),
        (SOCKET_VARIABLE, "/x", True),
    ],
)
def test_supervised_goes_by_two_variables(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: bool
) -> None:
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    monkeypatch.delenv(SUPERVISED_VARIABLE, raising=False)
    monkeypatch.setenv(variable, value)
    assert is_supervised() is expected


def test_told_says_each_sentence_in_one_line_and_is_ready_once_it_listens(
    systemd: socket.socket,
) -> None:
    told = Progress(SystemdSink())
    told.event("waiting", "two lines\nREADY=1")
    told.event("listening", "taking submissions")
    assert systemd.recv(100) == b"STATUS=two lines READY=1"
    assert systemd.recv(100) == b"READY=1\nSTATUS=taking submissions"


async def test_beating_says_that_the_loop_turns_as_often_as_asked(
    systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "40000")
    systemd.setblocking(False)
    beats, started = 0, time.monotonic()

    def heard() -> bool:
        nonlocal beats
        with contextlib.suppress(BlockingIOError):
            while systemd.recv(100) == b"WATCHDOG=1":
                beats += 1
        return beats >= 8

    async with watchdog():
        await eventually(heard)
    # Twice in 40 ms, and no more often.
    assert beats <= 2 + (time.monotonic() - started) / 0.02
    monkeypatch.delenv("WATCHDOG_USEC")
    async with watchdog():
        await asyncio.sleep(0.05)  # Sleeps: quiet.
    with pytest.raises(BlockingIOError):
        systemd.recv(100)


def test_a_server_is_ready_when_it_listens_and_ends_with_0_by_sigterm(
    tmp_path: Path, systemd: socket.socket
) -> None:
    config = three_hosts(tmp_path, STUDY)["alpha"]
    run = Run("serve", "study", str(config), "--pid", "0", "--dir", str(tmp_path / "run"))
    try:
        lines_until(systemd, "READY=1")
        run.process.send_signal(signal.SIGTERM)
        lines_until(systemd, "STOPPING=1")
        status, _ = run.end()
    finally:
        run.process.kill()
    assert status == 0
    assert run.said[-1].startswith("syncret: stopped by SIGTERM; the same command goes on")
