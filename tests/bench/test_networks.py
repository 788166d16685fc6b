"""The networks of the benchmarks: what a shaped one delays, and that nothing of it stays."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from bench import networks
from bench.networks import Shape
from bench.relay import Link
from parties.local.children import free_ports

SLOW = Shape(rate_bits=8_000_000, delay_s=0.03)


class Clock:
    """The part of an event loop that a link needs."""

    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now


@contextlib.contextmanager
def echo(address: tuple[str, int]) -> Iterator[None]:
    """Sends back what the first connection sends, until it ends."""
    with socket.create_server(address) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


@pytest.mark.parametrize(("rate", "delay"), [(0, 0.1), (-1, 0.1), (1, -0.1)])
def test_shape_refuses_impossible_links(rate: int, delay: float) -> None:
    with pytest.raises(ValueError, match="a link of"):
        Shape(rate, delay)


def test_opened_refuses_an_unknown_name() -> None:
    with (
        pytest.raises(ValueError, match="expected one of loopback, lan, wan"),
        networks.opened("moon"),
    ):
        pass


def test_link_sends_one_after_the_other_at_its_rate() -> None:
    clock = Clock()
    link = Link(clock, rate_bits=8000, delay_s=2.0)  # type: ignore[arg-type]  # only its time is asked
    assert link.arrival(1000) == pytest.approx(103.0)
    assert link.arrival(500) == pytest.approx(103.5)
    clock.now = 110.0
    assert link.arrival(1000) == pytest.approx(113.0)


def test_relayed_delays_both_ways_and_limits_the_rate() -> None:
    ports = free_ports(3)
    with networks.relayed(SLOW, ports) as views:
        assert [view[pid] for pid, view in enumerate(views)] == [
            ("127.0.0.1", port) for port in ports
        ]
        with echo(views[1][1]), socket.create_connection(views[0][1], timeout=10) as dialled:
            started = time.perf_counter()
            dialled.sendall(b"x")
            assert dialled.recv(1) == b"x"
            round_trip = time.perf_counter() - started
            started = time.perf_counter()
            dialled.sendall(bytes(200_000))
            left = 200_000
            while left:
                left -= len(dialled.recv(1 << 16))
            # 0.2 s a way at 1 MB/s; the ways overlap.
            seconds = time.perf_counter() - started
    assert round_trip >= 2 * SLOW.delay_s
    assert seconds >= 0.2 + 2 * SLOW.delay_s - 0.01


def test_relayed_waits_for_a_party_that_listens_later() -> None:
    with (
        networks.relayed(SLOW, free_ports(3)) as views,
        socket.create_connection(views[2][0], timeout=10) as dialled,
    ):
        dialled.sendall(b"early")
        with echo(views[0][0]):
            assert dialled.recv(5) == b"early"
            dialled.shutdown(socket.SHUT_WR)
            assert dialled.recv(5) == b""


def test_opened_relays_where_netem_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "has_netem", lambda: False)
    with networks.opened("wan") as network:
        assert (network.name, network.means, network.prefix(0)) == ("wan", "relay", [])
        first, second = network.views(), network.views()
        assert not {a for view in first for a in view} & {a for view in second for a in view}


def test_opened_puts_each_party_in_its_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(networks, "has_netem", lambda: True)
    monkeypatch.setattr(networks, "_run", lambda *command: ran.append(command))
    with networks.opened("lan") as network:
        assert network.means == "netem"
        prefixes = [network.prefix(pid) for pid in range(3)]
        views = network.views()
    hosts = [prefix[-1] for prefix in prefixes]
    assert len(set(hosts)) == 3
    assert views[0] == views[1] == views[2]
    assert len({host for host, _ in views[0]}) == 3
    shaped = [command for command in ran if "netem" in command]
    assert [command[command.index("-n") + 1] for command in shaped] == hosts
    assert all("500us" in command and "1000000000bit" in command for command in shaped)
    added = {c[-1] for c in ran if c[:3] == ("ip", "netns", "add")}
    removed = {c[-1] for c in ran if c[:3] == ("ip", "netns", "del")}
    assert added == removed
    assert len(added) == 4


def test_has_netem_needs_its_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    networks.has_netem.cache_clear()
    monkeypatch.setattr(networks.shutil, "which", lambda _: None)
    assert not networks.has_netem()
    networks.has_netem.cache_clear()
