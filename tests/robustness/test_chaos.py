"""Chaos studies: their scripts, and one of them in full."""

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from parties.local.children import free_ports
from tests.robustness.chaos import cli, script
from tests.robustness.chaos.play import ChaosOutcome, play
from tests.robustness.chaos.script import FAULTS, FIRST_ROUND, ROUNDS, TWO_OWNERS, drawn
from tests.robustness.cli import robustness
from tests.robustness.kills.network import Network

SEEDS = range(1, 200)


def test_a_seed_draws_each_fault_once_and_the_same_script_again() -> None:
    for seed in SEEDS:
        faults = drawn(seed)
        assert sorted(fault.kind for fault in faults) == sorted(FAULTS)
        assert drawn(seed) == faults
        stages = [fault.stage for fault in faults]
        assert stages == sorted(stages)
        assert stages[0] >= 0
        assert stages[-1] < FIRST_ROUND + ROUNDS
    assert len({tuple(fault.kind for fault in drawn(seed)) for seed in SEEDS}) > 0.9 * len(SEEDS)


def test_faults_come_where_they_can_happen_and_everywhere_there() -> None:
    faults = [fault for seed in SEEDS for fault in drawn(seed)]
    for kind in (script.KILL_OWNER, script.SLOW_OWNER):
        stages = {fault.stage for fault in faults if fault.kind == kind}
        assert stages == {script.RUNNING, script.ONE_OWNER, TWO_OWNERS}
    of = [fault for fault in faults if fault.kind == script.RESTORE]
    assert all(script.PROPOSED <= fault.backup <= fault.stage for fault in of)
    assert {fault.stage for fault in of} == set(range(FIRST_ROUND + ROUNDS - 1))
    assert {fault.victim for fault in faults if fault.kind == script.CUT} == {-1, 0, 1, 2}


def outcome(seed: int, wrong: str = "") -> ChaosOutcome:
    return ChaosOutcome(seed, wrong, 61.4, ("clock 1 at round 3",), 1, 2, 4, ("0.1 proposed",))


def test_command_says_what_came_out_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "play", lambda seed, folder: outcome(seed, "why" * (seed == 8)))
    said = CliRunner().invoke(robustness, ["chaos", "--seeds", "2", "--first", "7"])
    assert said.exit_code == 1
    assert "seed 8: why" in said.output
    assert "2 studies, 1 that came out otherwise" in said.output
    said = CliRunner().invoke(robustness, ["chaos", "--seeds", "1", "--first", "7", "--json"])
    document = json.loads(said.stdout)
    assert (said.exit_code, document["ok"]) == (0, True)
    assert document["studies"][0]["missed"] == ["clock 1 at round 3"]


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)


@pytest.fixture
def way() -> Iterator[tuple[Network, int]]:
    """A network with one way, at whose end is an echo."""
    (port,) = free_ports(1)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Network({port: server.server_address[1]}, 0) as network:
            yield network, port
        server.shutdown()


def test_a_way_that_is_down_passes_nothing_and_what_came_meanwhile_afterwards(
    way: tuple[Network, int],
) -> None:
    network, port = way
    with socket.create_connection(("127.0.0.1", port)) as before:
        before.sendall(b"one")
        assert before.recv(9) == b"one"
        network.down([port])
        before.sendall(b"two")
        with socket.create_connection(("127.0.0.1", port)) as new:
            new.sendall(b"three")
            for each in (before, new):
                each.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    each.recv(9)
            network.up([port])
            for each, said in ((before, b"two"), (new, b"three")):
                each.settimeout(None)
                assert each.recv(9) == said


def test_a_way_that_drips_passes_a_few_bytes_at_a_time(way: tuple[Network, int]) -> None:
    network, port = way
    network.drip([port], 4)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"twelve bytes")
        pieces = list[bytes]()
        while len(b"".join(pieces)) < 12:
            pieces.append(client.recv(99))
    assert b"".join(pieces) == b"twelve bytes"
    assert max(map(len, pieces)) <= 4


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_study_that_meets_eight_faults_ends_audited(tmp_path: Path) -> None:
    found = play(3, tmp_path / "study")
    assert found.wrong == "", "\n".join(found.log)
