"""FLAIM's client: bytes of private FLAIM with SecAgg, every message the real one, and processor time and memory.

All clients are in this process. Message bytes are those of `parties.local.flaim_simulation`: briefs, choices, layouts
and whole SecAgg sessions, packed and parsed as on a wire; choices are by the real exponential mechanism on the clients'
rows. The overhead of a deployed client's connection (greeting, headers, frames, TLS) is added by formula; a test
compares the sum with a relay's count of a deployed run. The rows are secret in a run, published or generated here.
Known limits: one connection for the whole run; nobody drops out.

Processor time and memory are those of a small run in a process of its own, ``python -m bench.overhead.flaim``: three
clients, all in every round, and their server share it, so that its figures are more than the clients' own. Processor
seconds are divided by the clients and rounds, memory is the whole process's growth.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.children import run_child
from bench.overhead.formula import FRAME_BYTES, RECORD_BYTES, RECORD_OVERHEAD_BYTES
from bench.overhead.replay import (
    LEAST,
    ReplayedRound,
    Terms,
    answered_cells,
    brief_bytes,
    payloads,
    private_settings,
)
from bench.processes import forget_peak, memory
from mechanisms.domain import Domain
from mechanisms.flaim import FlaimRound
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.workload import Workload
from parties.federation.messages import HEADER_BYTES
from parties.local.flaim_simulation import ClientRoundTraffic, simulate
from protocols.sealing import OVERHEAD_BYTES, PUBLIC_BYTES

GREETING_BYTES = 2 * (HEADER_BYTES + FRAME_BYTES + RECORD_OVERHEAD_BYTES) + 104 + 40
"""HELLO and WELCOME, framed and sealed."""
GOODBYE_BYTES = HEADER_BYTES + FRAME_BYTES + RECORD_OVERHEAD_BYTES
HANDSHAKE_BYTES = 2_620
"""A connection's TLS handshake and goodbye with our certificates, both directions; a few bytes vary with signatures."""
CONNECTION_BYTES = GREETING_BYTES + GOODBYE_BYTES + HANDSHAKE_BYTES
"""Fixed bytes of one connection. A client that reconnects for a round has them again."""
_SESSION_MESSAGES = 9
"""Messages of a client in an unsigned SecAgg session without dropouts, both directions."""
_PLACE_BYTES = 4
_CHOICE_BYTES, _LAYOUT_BYTES = 9 + OVERHEAD_BYTES, 24
MEMBER_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class FlaimRun:
    """Mean over the clients that took part at all: bytes of messages and of the connection, and numbers of cells.

    ``cells`` of marginals answered, ``model_cells`` of models received, ``rounds`` taken part in (the first, of single
    columns, among them). ``single_choosers`` and ``chosen_queries`` are as in the report of a run.
    """

    grouping: str
    rounds_planned: int
    participants: int
    sent: float
    received: float
    wire: float
    cells: float
    model_cells: float
    rounds: float
    single_choosers: int
    chosen_queries: int


async def measure_flaim(
    workload: Workload,
    tables: Sequence[NDArray[np.int32]],
    settings: FlaimSettings,
    *,
    seed: int | None = None,
) -> FlaimRun:
    """Runs FLAIM on one table of codes (rows, columns) for each client. Raises as ``simulate``."""
    outcome = await simulate(tables, workload, settings, secagg=True, seed=seed)
    sent: dict[int, int] = defaultdict(int)
    received: dict[int, int] = defaultdict(int)
    added: dict[int, int] = defaultdict(int)
    cells: dict[int, int] = defaultdict(int)
    rounds: dict[int, int] = defaultdict(int)
    done = {record.round: replayed(record, settings) for record in outcome.result.rounds}
    for moved in outcome.traffic:
        sent[moved.client] += moved.sent
        received[moved.client] += moved.received
        rounds[moved.client] += 1
        added[moved.client] += transport_bytes(
            done[moved.round], settings.grouping, moved.client, moved.sent + moved.received
        )
    models: dict[int, int] = defaultdict(int)
    for moved in outcome.traffic:
        models[moved.client] += _model_cells(workload, done[moved.round], settings.grouping, moved)
    for record in done.values():
        for client, count in answered_cells(workload, record).items():
            cells[client] += count
    return FlaimRun(
        settings.grouping,
        settings.rounds,
        len(sent),
        statistics.fmean(sent.values()),
        statistics.fmean(received.values()),
        statistics.fmean(sent[c] + received[c] + added[c] + CONNECTION_BYTES for c in sent),
        statistics.fmean(cells.values()),
        statistics.fmean(models.values()),
        statistics.fmean(rounds.values()),
        outcome.result.single_choosers,
        outcome.result.chosen_queries,
    )


def replayed_wire(
    workload: Workload, run: Sequence[ReplayedRound], grouping: str, terms: Terms
) -> float:
    """Returns the mean client's bytes of a replayed run on one connection: messages, frames, TLS, both directions."""
    wire: dict[int, int] = {}
    for done in run:
        # Members with equally many bytes have equally many messages.
        whole: dict[int, int] = {}
        for client, moved in payloads(workload, done, grouping, terms).items():
            payload = moved.sent + moved.received
            if payload not in whole:
                added = transport_bytes(done, grouping, client, payload)
                whole[payload] = payload + added - _own_heads(done, grouping, client)
            wire[client] = wire.get(client, CONNECTION_BYTES) + whole[payload]
    return statistics.fmean(wire.values())


def replayed(record: FlaimRound, settings: FlaimSettings) -> ReplayedRound:
    """Converts a real round to the form of the formulas; its model is not recorded."""
    one_way = record.round != 1 and settings.one_way_each_round
    return ReplayedRound(record.participants, record.choosers, 0, one_way)


def _model_cells(
    workload: Workload, done: ReplayedRound, grouping: str, moved: ClientRoundTraffic
) -> int:
    """Returns the cells of the model in one member's brief: bytes received beyond layouts and SecAgg, 4 bytes a cell.

    Exact to a few cells for each column, since the tree's cliques are not recorded.
    """
    if not done.choosers:
        return 0
    chosen = len(done.choosers) if grouping == "union" else 1
    sums = len(_sums(done, grouping, moved.client))
    plain = [
        workload.offsets[q + 1] - workload.offsets[q]
        for q, clients in done.choosers.items()
        if grouping == "query" and moved.client in clients and len(clients) < LEAST
    ]
    boxes = 4 * sum(plain) + OVERHEAD_BYTES * len(plain)
    secagg_received = moved.secagg - (moved.sent - _CHOICE_BYTES - boxes)
    others = sums * _LAYOUT_BYTES + PUBLIC_BYTES * len(plain)
    brief = moved.received - secagg_received - others - 2 * chosen
    return max(0, (brief - brief_bytes(workload, 0)) // 4)


def transport_bytes(done: ReplayedRound, grouping: str, client: int, payload: int) -> int:
    """Returns a deployed connection's overhead on ``payload`` message bytes of one member in one round.

    FLAIM's own messages have a header, a layout the client's position; every message a frame and at least one TLS
    record.
    """
    sums = _sums(done, grouping, client)
    messages = 2 * bool(done.choosers) + len(sums)
    messages += sum(_SESSION_MESSAGES if members >= LEAST else 1 for members in sums)
    records = messages + payload // RECORD_BYTES
    heads = _own_heads(done, grouping, client)
    return heads + messages * FRAME_BYTES + records * RECORD_OVERHEAD_BYTES


def _own_heads(done: ReplayedRound, grouping: str, client: int) -> int:
    """Returns the bytes of headers of FLAIM's own messages and of positions, which replayed payloads have already."""
    sums = _sums(done, grouping, client)
    own = 2 * bool(done.choosers) + sum(1 if members >= LEAST else 2 for members in sums)
    return own * HEADER_BYTES + len(sums) * _PLACE_BYTES


def _sums(done: ReplayedRound, grouping: str, client: int) -> list[int]:
    """Returns the number of members of each sum that includes ``client``."""
    if grouping == "union":
        return [len(done.members)]
    columns = [len(done.members)] if done.one_way else []
    return columns + [len(clients) for clients in done.choosers.values() if client in clients]


# Processor time and memory.


@dataclass(frozen=True, slots=True)
class Member:
    """Upper bounds for a client: processor seconds in one round, growth of memory in bytes."""

    cpu_s: float
    peak_bytes: int


async def measure_member(workload: Workload, codes: NDArray[np.int32], max_rows: int) -> Member:
    """Measures clients that have ``codes`` (rows, columns) each. Raises RuntimeError if the process fails."""
    with tempfile.TemporaryDirectory(prefix="syncret-overhead-") as folder:
        path = Path(folder) / "codes.npy"
        np.save(path, codes, allow_pickle=False)
        orders = {
            "domain": workload.domain.to_dict(),
            "queries": workload.queries,
            "codes": str(path),
            "max_rows": max_rows,
        }
        printed = await run_child(
            "bench.overhead.flaim", given=json.dumps(orders), what="the run of FLAIM's clients"
        )
    return Member(**json.loads(printed))


def main() -> None:
    """Runs the orders on standard input and prints a ``Member``."""
    orders = json.load(sys.stdin)
    queries = tuple(tuple(query) for query in orders["queries"])
    workload = Workload(Domain.from_dict(orders["domain"]), queries)
    codes = np.load(orders["codes"], allow_pickle=False)
    settings = private_settings(MEMBER_ROUNDS, participation=1.0, max_rows=orders["max_rows"])
    forget_peak()
    loaded, before = memory("VmRSS"), time.process_time()
    asyncio.run(simulate([codes] * LEAST, workload, settings, secagg=True, seed=1))
    # Round 0 measures the single columns.
    cpu = (time.process_time() - before) / (LEAST * (MEMBER_ROUNDS + 1))
    member = Member(cpu, max(0, memory("VmHWM") - loaded))
    print(json.dumps(asdict(member)))  # noqa: T201  # the parent reads it


if __name__ == "__main__":
    main()
