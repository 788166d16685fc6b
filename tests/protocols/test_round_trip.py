"""The time to a peer and back, as the system has measured it."""

import socket
import sys

import pytest

from protocols.round_trip import round_trip_s

LINUX = sys.platform.startswith("linux")


@pytest.mark.skipif(not LINUX, reason="the system does not say")
def test_round_trip_s_is_that_of_the_connection() -> None:
    """On this machine it is less than 100 ms and more than nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
        with near, far:
            near.sendall(b"x" * 1000)
            assert far.recv(2000)
            found = round_trip_s(near)
    assert found is not None
    assert 0 < found < 0.1


def test_round_trip_s_is_none_where_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = socket.socket()
    closed.close()
    assert round_trip_s(closed) is None
    with socket.socket(socket.AF_UNIX) as local:
        assert round_trip_s(local) is None
    monkeypatch.delattr(socket, "TCP_INFO", raising=False)
    with socket.socket() as other:
        assert round_trip_s(other) is None
