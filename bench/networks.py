"""The networks of a benchmark: loopback, or a LAN or WAN between three hosts on one machine.

A ``Network`` has each party's addresses to listen on and to dial, and the prefix of its command. A shaped network
limits the outgoing traffic of a host to a rate and delays it by half the round trip. There are two means, and every
result names its own:

- ``netem``: a network namespace for each host, veth pairs to a bridge in a fourth namespace, and ``tc netem`` on each
  host's interface. Needs root, iproute2 and a kernel with ``sch_netem``.
- ``relay``: where netem is missing, a process between the parties that delays the bytes it forwards (``bench.relay``).
  Both ends still speak TCP and TLS over loopback, so the effects of a long way on TCP itself (slow start, windows, the
  packets' headers) are missing, and the relay's own work takes time of the same processors.

Source: tc-netem(8), ip-netns(8).
"""

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from parties.cli.runtime import deferred_signals
from parties.local.children import free_ports

Address = tuple[str, int]
# By party: the addresses of parties 0, 1, 2 as that party sees them; it listens on its own.
Views = list[list[Address]]

ROOT = Path(__file__).resolve().parent.parent
_FIRST_PORT = 20_000
# Number of packets that netem may hold.
_NETEM_LIMIT = 100_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A host's link: its outgoing bits per second, and their delay in seconds, half of a round trip."""

    rate_bits: int
    delay_s: float

    def __post_init__(self) -> None:
        if self.rate_bits <= 0 or self.delay_s < 0:
            raise ValueError(
                f"a link of {self.rate_bits} bit/s and {self.delay_s} s; expected a positive rate and no negative delay"
            )


LOOPBACK = "loopback"
NETWORKS: dict[str, Shape | None] = {
    LOOPBACK: None,
    "lan": Shape(10**9, 0.0005),
    "wan": Shape(10**8, 0.020),
}


@dataclass(slots=True)
class Network:
    """A network that is up; ``means`` is "none", "netem" or "relay"."""

    name: str
    means: str
    _hosts: list[str]
    _exits: contextlib.ExitStack
    _ports: Iterator[int] = field(default_factory=lambda: iter(range(_FIRST_PORT, 1 << 16)))

    def prefix(self, pid: int) -> list[str]:
        """Returns the prefix of party ``pid``'s command."""
        return ["ip", "netns", "exec", self._hosts[pid]] if self._hosts else []

    def views(self) -> Views:
        """Returns fresh addresses for one mesh."""
        if self._hosts:
            return [[(_host_address(pid), next(self._ports)) for pid in range(3)]] * 3
        ports = free_ports(3)
        shape = NETWORKS[self.name]
        if shape is None:
            return [[("127.0.0.1", port) for port in ports]] * 3
        return self._exits.enter_context(relayed(shape, ports))


@contextlib.contextmanager
def opened(name: str) -> Iterator[Network]:
    """Provides the network ``name`` while the block lasts. Raises ValueError for a name outside ``NETWORKS``."""
    if name not in NETWORKS:
        raise ValueError(f"no network {name!r}; expected one of {', '.join(NETWORKS)}")
    shape = NETWORKS[name]
    with contextlib.ExitStack() as exits:
        if shape is not None and has_netem():
            hosts = exits.enter_context(namespaces(netem(shape)))
            yield Network(name, "netem", hosts, exits)
        else:
            yield Network(name, "none" if shape is None else "relay", [], exits)


# Namespaces.


def netem(shape: Shape) -> list[str]:
    """Returns the queueing discipline of a host's interface, as arguments of tc."""
    delay, rate = f"{shape.delay_s * 1e6:.0f}us", f"{shape.rate_bits}bit"
    return ["netem", "delay", delay, "rate", rate, "limit", str(_NETEM_LIMIT)]


@functools.cache
def has_netem() -> bool:
    """Returns True if this machine can make network namespaces and delay their packets, by trying once."""
    if shutil.which("ip") is None or shutil.which("tc") is None or os.geteuid() != 0:
        return False
    try:
        with contextlib.ExitStack() as exits:
            probe = _namespace(f"syncret-{os.getpid()}-probe", exits)
            _run(
                "tc", "-n", probe, "qdisc", "add", "dev", "lo", "root", *netem(Shape(10**9, 0.001))
            )
    except RuntimeError:
        return False
    return True


@contextlib.contextmanager
def namespaces(discipline: Sequence[str]) -> Iterator[list[str]]:
    """Yields the names of three hosts on one bridge, each with the queueing discipline on its interface.

    Raises RuntimeError with the output of ``ip`` or ``tc``.
    """
    stem = f"syncret-{os.getpid()}"
    with contextlib.ExitStack() as exits:
        switch = _namespace(f"{stem}-switch", exits)
        _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "bridge", "up")
        hosts = [_namespace(f"{stem}-{pid}", exits) for pid in range(3)]
        for pid, host in enumerate(hosts):
            port = f"host{pid}"
            pair = ("net", "type", "veth", "peer", port, "netns", switch)
            _run("ip", "-n", host, "link", "add", *pair)
            _run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
            _run("ip", "-n", host, "address", "add", f"{_host_address(pid)}/24", "dev", "net")
            _run("ip", "-n", host, "link", "set", "net", "up")
            _run("tc", "-n", host, "qdisc", "add", "dev", "net", "root", *discipline)
        yield hosts


def _namespace(name: str, exits: contextlib.ExitStack) -> str:
    with deferred_signals():
        _run("ip", "netns", "add", name)
        exits.callback(_run, "ip", "netns", "del", name)
    _run("ip", "-n", name, "link", "set", "lo", "up")
    return name


def _host_address(pid: int) -> str:
    return f"10.77.0.{pid + 1}"


def _run(*command: str) -> None:
    """Runs a command. Raises RuntimeError with its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


# Relay.


@contextlib.contextmanager
def relayed(shape: Shape, ports: Sequence[int]) -> Iterator[Views]:
    """Yields views of three parties that listen on ``ports`` of loopback and reach one another through a relay process.

    Raises RuntimeError if the process does not start.
    """
    pairs = [(source, target) for source in range(3) for target in range(3) if source != target]
    entries = dict(zip(pairs, free_ports(len(pairs)), strict=True))
    orders = {
        "rate_bits": shape.rate_bits,
        "delay_s": shape.delay_s,
        "ways": [
            [source, target, port, ports[target]] for (source, target), port in entries.items()
        ],
    }
    with contextlib.ExitStack() as exits:
        with deferred_signals():
            process = exits.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "bench.relay", json.dumps(orders)],
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            exits.callback(process.kill)
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise RuntimeError("the relay of a shaped network did not start")
        yield [
            [
                ("127.0.0.1", ports[pid] if pid == source else entries[source, pid])
                for pid in range(3)
            ]
            for source in range(3)
        ]
