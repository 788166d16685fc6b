"""The engine's speed: three party processes over mutually authenticated TLS, one task at a time.

Every (task, size) gets processes of its own, so that peak memory is the task's; they run as in production
(``engine.party``), on one of ``networks.NETWORKS``. Beside each result stand the floor (``engine.floor``), measured in
the same processes right after, and a peer (``engine.peer``), in the same run and on the same network. A repetition
lasts as long as at the slowest party; seconds are the median of the repetitions. Benchmark data is generated and
public.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.children import last_word
from bench.engine import floor as engine_floor
from bench.engine.party import NAMES, Orders, Report
from bench.engine.tasks import SEMI_HONEST, TASKS
from bench.networks import LOOPBACK, ROOT, Network
from parties.cli.runtime import deferred_signals
from parties.identity.tls import make_certificates

_PARTY = "bench.engine.party"
_DEADLINE_S = 900.0
# Sizes that MPyC computes in a few seconds with gmpy2; without gmpy2, a tenth of them.
_PEER_SIZES = {
    "abs_error": 10_000,
    "select": 1_000,
    "box_muller": 512,
    "discrete_gaussian": 8,
    "measure": 8,
    "distributed_noise": 100_000,
    "truncate": 10_000,
    "multiply": 100_000,
    "expand_input": 100_000,
}
_PEER_REPEAT = 2


@dataclass(frozen=True, slots=True)
class Peer:
    """Time of another engine for the same task, at a ``size`` that the engine can manage."""

    name: str
    seconds: float
    size: int
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement. ``seconds`` is a median of ``repeat``; bytes are those sent by the mean party in one repetition.

    ``bytes_per_party`` are the payloads that the per-step counters know (``bytes_by_party`` those of parties 0, 1, 2,
    since a slow link waits for the one that sends most), ``frame_bytes_per_party`` with the frames' headers,
    ``wire_bytes_per_party`` the kernel's count on the TCP connections, hence with TLS. ``peak_bytes_per_party`` is
    the largest party's growth of resident memory, its input included. ``cpu_seconds`` is the processor time of all
    three parties. ``floor`` is in seconds, by part and in all. ``facts`` are the task's own (``tasks``). ``beside`` is
    the median of seconds of the paired task, ``over_beside`` the median ratio of this task to it, in turns.
    """

    task: str
    size: int
    unit: str
    seconds: float
    fastest: float
    slowest: float
    repeat: int
    bytes_per_party: float
    bytes_by_party: tuple[float, ...]
    frame_bytes_per_party: float
    wire_bytes_per_party: float
    messages_per_party: float
    rounds: int
    peak_bytes_per_party: int
    cpu_seconds: float
    network: str
    shaping: str
    floor: dict[str, float]
    peer: Peer | None
    security: str = SEMI_HONEST
    tls: bool = True
    transcript: bool = True
    beside: float | None = None
    over_beside: float | None = None
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        """Cells or samples per second."""
        return self.size / self.seconds

    def to_json(self) -> dict[str, object]:
        """Returns the fields, with the size under the name of its unit and the facts under theirs."""
        fields = asdict(self)
        facts = fields.pop("facts")
        size, unit = fields.pop("size"), fields.pop("unit")
        for name in ("peer", "beside", "over_beside"):
            if fields[name] is None:
                del fields[name]
        return {
            "task": fields.pop("task"),
            unit: size,
            "per_second": self.per_second,
            **facts,
            **fields,
        }


@dataclass(slots=True)
class Peers:
    """The peer's figures of one run: each (task, size) is measured once on a network."""

    network: Network
    _known: dict[tuple[str, int], Peer] = field(default_factory=dict)

    def measure(self, task: str, size: int) -> Peer | None:
        """Measures the peer on ``task``, at most at the size that it can manage; returns None if it has no such task.

        Raises RuntimeError if the peer fails.
        """
        if task not in _PEER_SIZES:
            return None
        gmpy2 = importlib.util.find_spec("gmpy2") is not None
        borne = _PEER_SIZES[task] // (1 if gmpy2 else 10)
        key = task, min(size, borne)
        if key not in self._known:
            self._known[key] = _mpyc(self.network, *key, gmpy2=gmpy2)
        return self._known[key]


def _mpyc(network: Network, task: str, size: int, *, gmpy2: bool) -> Peer:
    commands = []
    for pid, view in enumerate(network.views()):
        places = [word for host, port in view for word in ("-P", f"{host}:{port}")]
        options = [*places, "-I", str(pid), "--no-log"]
        commands.append(["bench.engine.peer", task, str(size), str(_PEER_REPEAT), *options])
    outputs = run_three(network, commands, [""] * 3, "the peer's party")
    seconds = [json.loads(output)["seconds"] for output in outputs]
    version = importlib.metadata.version("mpyc")
    name = f"MPyC {version} {'with' if gmpy2 else 'without'} gmpy2"
    # The better repetition, at the slowest party.
    return Peer(name, min(max(times) for times in zip(*seconds, strict=True)), size)


def measure(
    task: str,
    size: int,
    *,
    repeat: int,
    network: Network,
    peers: Peers | None = None,
    security: str = SEMI_HONEST,
) -> Result:
    """Runs one task at one size in three processes of its own, and the peer's where ``peers`` is given.

    In malicious mode everything is proved at the end of each repetition, as before an opening.
    Raises RuntimeError if a party process fails or takes longer than 15 minutes.
    """
    with tempfile.TemporaryDirectory() as folder:
        make_certificates(Path(folder), NAMES)
        meshes, rings = network.views(), network.views()
        # On a slow network both tasks take as long as their bytes and rounds do.
        compare = network.name == LOOPBACK and TASKS[task].compared(size, security)
        orders = [
            json.dumps(
                asdict(
                    Orders(
                        pid,
                        mesh,
                        ring,
                        folder,
                        task,
                        size,
                        repeat,
                        security=security,
                        compare=compare,
                    )
                )
            )
            for pid, (mesh, ring) in enumerate(zip(meshes, rings, strict=True))
        ]
        outputs = run_three(network, [[_PARTY]] * 3, orders, "party")
    reports = [Report(**json.loads(output)) for output in outputs]
    peer = None if peers is None else peers.measure(task, size)
    return _result(task, size, network, reports, peer, security=security)


def _result(
    task: str,
    size: int,
    network: Network,
    reports: Sequence[Report],
    peer: Peer | None,
    *,
    security: str,
) -> Result:
    seconds = [max(times) for times in zip(*(r.seconds for r in reports), strict=True)]
    turns = [
        tuple(max(times) for times in zip(*turn, strict=True))
        for turn in zip(*(r.turns for r in reports), strict=True)
    ]
    floor = {part: max(r.floor[part] for r in reports) for part in engine_floor.PARTS}

    def mean(of: Callable[[Report], float]) -> float:
        return statistics.mean(of(report) for report in reports)

    return Result(
        task=task,
        size=size,
        unit=TASKS[task].unit,
        seconds=statistics.median(seconds),
        fastest=min(seconds),
        slowest=max(seconds),
        repeat=len(seconds),
        bytes_per_party=mean(lambda r: r.payload_bytes),
        bytes_by_party=tuple(r.payload_bytes for r in reports),
        frame_bytes_per_party=mean(lambda r: r.frame_bytes),
        wire_bytes_per_party=mean(lambda r: r.wire_bytes),
        messages_per_party=mean(lambda r: r.messages),
        rounds=max(r.rounds for r in reports),
        peak_bytes_per_party=max(r.peak_bytes for r in reports),
        cpu_seconds=sum(r.cpu_s for r in reports),
        network=network.name,
        shaping=network.means,
        floor={**floor, "seconds": sum(floor.values())},
        peer=peer,
        security=security,
        beside=statistics.median(other for _, other in turns) if turns else None,
        over_beside=statistics.median(own / other for own, other in turns) if turns else None,
        facts=TASKS[task].facts(),
    )


def run_three(
    network: Network, modules: Sequence[Sequence[str]], inputs: Sequence[str], who: str
) -> list[str]:
    """Runs a module with arguments for each party on its host, and returns each party's output.

    Raises RuntimeError with the last line of a process that fails, and ends the others.
    """
    with contextlib.ExitStack() as exits:
        processes = []
        for pid, module in enumerate(modules):
            errors = exits.enter_context(tempfile.TemporaryFile("w+"))
            command = [*network.prefix(pid), sys.executable, "-m", *module]
            with deferred_signals():
                process = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=_environment(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
                exits.enter_context(process)
                exits.callback(process.kill)
            processes.append((process, errors))
        for (process, _), given in zip(processes, inputs, strict=True):
            if process.stdin is not None:
                process.stdin.write(given)
                process.stdin.close()
        deadline = time.monotonic() + _DEADLINE_S
        while any(process.poll() is None for process, _ in processes):
            if any(process.poll() for process, _ in processes) or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        outputs = []
        for pid, (process, errors) in enumerate(processes):
            if process.poll() is None:
                continue  # Killed with the others' failure, or late.
            if process.returncode != 0:
                errors.seek(0)
                raise RuntimeError(f"{who} {pid} failed: {last_word(errors.read())}")
            outputs.append(process.stdout.read() if process.stdout is not None else "")
        if len(outputs) < len(processes):
            raise RuntimeError(f"{who} processes took longer than {_DEADLINE_S:g} s")
        return outputs


def _environment() -> dict[str, str]:
    """This process's environment, NumPy's threads off: a party has two connections and one kernel at a time."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
