"""Flower's grid in one process: nodes answer in threads, each message as if in a process of its own."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from parties.config import CertificateFiles, Config
from parties.federation.flower_envelope import Envelope
from parties.federation.flower_members import FlowerClients
from parties.federation.messages import FederationMessage, is_secagg_message
from parties.federation.server import run_federated_server
from parties.methods.flaim.flower_node import FlowerNode
from parties.methods.flaim.server import flaim_plan
from parties.methods.flaim.transcript_schema import flaim_step_of
from tests.parties.flaim_support import NAMES, Events, codes_of

Answer = Callable[[Envelope], Envelope]


class Grid:
    """A `Post` over nodes; ``lost`` ones are not there, and do not answer any more."""

    def __init__(self, nodes: Mapping[int, Answer]) -> None:
        self.answers = dict(nodes)
        self.lost: set[int] = set()
        self.sent: list[tuple[int, Envelope]] = []
        self._back: dict[str, Envelope | str] = {}
        self._threads: list[threading.Thread] = []

    def nodes(self) -> Iterable[int]:
        return [node for node in self.answers if node not in self.lost]

    def push(
        self, letters: Sequence[tuple[int, Envelope]], *, ttl_s: float
    ) -> Sequence[str | None]:
        ids = []
        for node, envelope in letters:
            self.sent.append((node, envelope))
            ids.append(f"{len(self.sent)}")
            thread = threading.Thread(target=self._answer, args=(ids[-1], node, envelope))
            self._threads.append(thread)
            thread.start()
        return ids

    def pull(self, ids: Sequence[str]) -> Mapping[str, Envelope | str]:
        return {id: self._back.pop(id) for id in ids if id in self._back}

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _answer(self, id: str, node: int, envelope: Envelope) -> None:
        received = Envelope.of_record(envelope.to_record(), "the grid")
        try:
            answer = self.answers[node](received)
        except Exception as error:  # noqa: BLE001
            self._back[id] = f"{type(error).__name__}: {error}"
            return
        if node not in self.lost:
            self._back[id] = Envelope.of_record(answer.to_record(), "a node")


def node_of(
    config: Config, certificates: Mapping[str, CertificateFiles], folder: Path, number: int
) -> FlowerNode:
    name = NAMES[number]
    return FlowerNode(
        config,
        config.build_workload(),
        codes_of(number),
        certificates[name],
        folder / name,
        None,
    )


def nodes_of(
    config: Config, certificates: Mapping[str, CertificateFiles], folder: Path
) -> dict[int, Answer]:
    """All clients, as nodes with other numbers than theirs."""

    def answer(number: int) -> Answer:
        # A new one for each message: nothing is left of it but what is in its folder.
        return lambda envelope: node_of(config, certificates, folder, number).answer(envelope)

    return {1000 + 7 * number: answer(number) for number in range(len(NAMES))}


async def play_on(
    grid: Grid,
    config: Config,
    certificates: Mapping[str, CertificateFiles],
    folder: Path,
    *,
    register: Path | None = None,
) -> Events:
    """A run with its server in this loop. Raises what the server raises."""
    events, closed = Events(), asyncio.Event()
    (folder / "server").mkdir(exist_ok=True)

    def arrived(name: str, fields: Mapping[str, object]) -> None:
        if name == "clients" and fields["done"] == len(NAMES):
            closed.set()

    events.on_event = arrived
    try:
        await run_federated_server(
            config,
            folder / "server",
            progress=events,
            closed=closed,
            meet=partial(FlowerClients, transport=grid),
            plan=flaim_plan(config),
            register=register,
        )
    finally:
        await asyncio.to_thread(grid.join)
    return events


def kinds_of(envelope: Envelope) -> list[str]:
    """Steps of an envelope's frames."""
    return [flaim_step_of(frame) for frame in envelope.frames]


def round_of(envelope: Envelope) -> int | None:
    """The round of the last of FLAIM's own frames that has one."""
    rounds = [
        FederationMessage.unpack(f, "x").round for f in envelope.frames if not is_secagg_message(f)
    ]
    return rounds[-1] if rounds else None
