"""Ports that are given to one process are given to no other one."""

import os
import socket
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path

import pytest

from parties.local import children
from parties.local.children import LOOPBACK, free_ports

_ASKS = (
    "from parties.local import children; children._LOWEST, children._HIGHEST = {}, {}; "
    "print(*children.free_ports({}))"
)


def test_ports_are_different_and_can_be_listened_on() -> None:
    given = [port for _ in range(20) for port in free_ports(5)]
    assert len(set(given)) == 100
    for port in given[-5:]:
        socket.create_server((LOOPBACK, port)).close()


def test_another_process_is_not_given_a_port_that_this_one_was_given_and_does_not_listen_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = free_ports(1)[0]
    low, high = first - 20, first + 20
    monkeypatch.setattr(children, "_LOWEST", low)
    monkeypatch.setattr(children, "_HIGHEST", high)
    given = {first, *free_ports(10)}
    asked = subprocess.run(
        [sys.executable, "-c", _ASKS.format(low, high, 10)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    others = {int(port) for port in asked.stdout.split()}
    assert len(others) == 10
    assert not others & given


def test_too_few_ports_are_an_error_and_old_ones_are_given_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = free_ports(1)[0]
    monkeypatch.setattr(children, "_LOWEST", first)
    monkeypatch.setattr(children, "_HIGHEST", first)
    with pytest.raises(OSError, match="1 free ports between"):
        free_ports(1)
    monkeypatch.setattr(children, "_MAX_RESERVED", 0)
    monkeypatch.setattr(children, "_reserved", deque())
    assert free_ports(1) == [first]


@pytest.mark.parametrize("what", ["a folder", "a link", "nothing can be made"])
def test_a_register_that_is_somebody_elses_keeps_nobody_from_ports(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / f"syncret-ports-{os.getuid()}"
    if what == "a folder":
        path.mkdir()
    elif what == "a link":
        path.symlink_to("/etc/passwd")
    monkeypatch.setattr(
        tempfile, "tempdir", str(tmp_path if what != "nothing can be made" else tmp_path / "none")
    )
    monkeypatch.setattr(children, "_reserved", deque())
    children._lock_file.cache_clear()
    try:
        assert len(set(free_ports(3))) == 3
        assert children._lock_file() is None
    finally:
        children._lock_file.cache_clear()
