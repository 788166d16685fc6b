"""One server of DistMWEM: ``python -m bench.papers.mwem.party``, its orders as JSON on standard input.

The server runs as DistAIM's servers do: mutual TLS, seeded uploads of counts whose common components the servers
compare, choices by the secure exponential mechanism, a signed transcript in a file; noise is exact discrete Laplace.
The weights of the explicit domain are public post-processing by each server: before a choice the three compare digests
of its specification. The process prints one ``Report`` as JSON.

Secret: shares and noise. Public: the domain, the plan, opened values.
"""

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.papers.mwem.loop import MwemPlan, run_mwem
from bench.trial_servers import credentials
from mechanisms.accounting import MEASURE, SELECT, DiscreteLaplaceEvent, Ledger
from mechanisms.domain import Domain
from mechanisms.scores import ScoreSpec
from mechanisms.workload import Workload
from protocols.base import open_value
from protocols.context import Context
from protocols.errors import CheckFailed
from protocols.laplace import laplace_noise
from protocols.ring import R32
from protocols.runtime import PartyRuntime
from protocols.select import select
from protocols.shares import Share, concatenate
from protocols.steps import COUNTS
from protocols.transcript import Transcript
from protocols.upload import (
    SEEDED,
    StoredUpload,
    check_component,
    component_digests,
    components,
    parse_upload,
)

NAMES = ("party-0", "party-1", "party-2")
WEIGHTS = "weights.npy"
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Orders:
    """Orders of one server: ``view`` has the mesh's addresses, ``folder`` its certificates and uploads.

    ``plan`` and ``domain`` are those of ``MwemPlan`` and ``Domain.to_dict``.
    """

    pid: int
    view: list[tuple[str, int]]
    folder: str
    domain: dict[str, Any]
    queries: list[list[str]]
    plan: dict[str, Any]
    owners: int
    max_rows: int


@dataclass(frozen=True, slots=True)
class Report:
    """Results of a server. Bytes are payloads that it sent, by step. The weights are in its folder, ``WEIGHTS``."""

    seconds: float
    rounds: int
    sent_bytes: dict[str, int]
    spent: float
    total: int
    chosen: list[int]


class SharedMwem:
    """`bench.papers.mwem.loop.MwemBackend` on shares of all candidates' counts (cells,) in Z_2^32."""

    def __init__(
        self, ctx: Context, workload: Workload, plan: MwemPlan, counts: Share, *, max_rows: int
    ) -> None:
        self.ledger = Ledger(plan.rho)
        self._ctx, self._workload, self._plan, self._counts = ctx, workload, plan, counts
        self._max_rows = max_rows

    async def rows(self, scale: int) -> int:
        """Opens the noisy sum of a single column's counts."""
        counts = self._counts[self._workload.slice(self._workload.one_way[0])]
        return int((await self._open(counts.reshape(1, -1).sum(axis=1), scale))[0])

    async def select(self, spec: ScoreSpec, epsilon: float) -> int:
        """See ``protocols.select``. Raises CheckFailed if the servers would ask for different things."""
        if epsilon != self._plan.epsilon:
            raise ValueError(f"a choice with epsilon {epsilon} is not in the plan")
        digest = hashlib.sha256(repr((spec.candidates, spec.gains, spec.offsets)).encode())
        digest.update(spec.answers.tobytes())
        if len(set(await self._ctx.exchange(digest.digest(), max_bytes=_DIGEST_BYTES))) != 1:
            raise CheckFailed("the servers' weights differ, and so would their choices")
        self.ledger.charge(1, SELECT, self._plan.selection)
        counts = (self._counts[self._workload.slice(i)] for i in spec.candidates)
        return await select(self._ctx, concatenate(*counts), spec)

    async def measure(self, candidate: int, scale: int) -> NDArray[np.int64]:
        """Opens the counts of a candidate with noise that no server knows."""
        return await self._open(self._counts[self._workload.slice(candidate)], scale)

    async def _open(self, counts: Share, scale: int) -> NDArray[np.int64]:
        self.ledger.charge(1, MEASURE, DiscreteLaplaceEvent(float(scale)))
        with self._ctx.step("mwem.measure") as c:
            z_sh = await laplace_noise(c, counts.size, scale, self._max_rows)
            opened = await open_value(c, counts + z_sh, COUNTS.what)
        return R32.decode(opened).astype(np.int64)


async def summed_uploads(
    ctx: Context, uploads: Sequence[StoredUpload], workload: Workload
) -> Share:
    """Returns the sum of all owners' counts of all candidates, once both holders of each component agree on it.

    Rounds: 1. Communication: 32 bytes an owner. Raises CheckFailed for an owner that sent two servers two things.
    """
    mine = [component_digests(upload) for upload in uploads]
    told = np.frombuffer(b"".join(next_ for _, next_ in mine), np.uint8)
    with ctx.step("mwem.check") as c:
        heard = (await c.round({c.next_pid: told}, {c.prev_pid: told.size}))[c.prev_pid].tobytes()
    for number, (own_digest, _) in enumerate(mine):
        check_component(own_digest, heard[number * _DIGEST_BYTES :][:_DIGEST_BYTES])
    own_sum, next_sum = (np.zeros(workload.maximal_cells, np.uint32) for _ in range(2))
    for upload in uploads:
        own, next_ = components(upload)
        own_sum += own
        next_sum += next_
    return Share(R32, ctx.pid, workload.expand(own_sum), workload.expand(next_sum))


def main() -> None:
    """Reads the orders, works, and prints the report."""
    fields = json.load(sys.stdin)
    fields["view"] = [(host, port) for host, port in fields["view"]]
    report = asyncio.run(_work(Orders(**fields)))
    sys.stdout.write(json.dumps(asdict(report)) + "\n")


async def _work(orders: Orders) -> Report:
    folder, name = Path(orders.folder), NAMES[orders.pid]
    tls, seals, sign = credentials(folder, orders.pid, NAMES)
    workload = Workload(
        Domain.from_dict(orders.domain), tuple(tuple(query) for query in orders.queries)
    )
    plan = MwemPlan(**orders.plan)
    uploads = [
        parse_upload(
            orders.pid,
            SEEDED,
            (folder / name / f"owner-{number}").read_bytes(),
            workload.maximal_cells,
        )
        for number in range(orders.owners)
    ]
    header: dict[str, str | int] = {"run": "bench-mwem", "party": orders.pid}
    recorder = Transcript(folder / f"{name}.jsonl", sign=sign, header=header)
    runtime = PartyRuntime(
        orders.pid,
        orders.view,
        tls=tls,
        seals=seals,
        session="mwem",
        timeout_s=600.0,
        recorder=recorder,
    )
    async with runtime:
        started, ctx = time.perf_counter(), runtime.context()
        counts = await summed_uploads(ctx, uploads, workload)
        backend = SharedMwem(ctx, workload, plan, counts, max_rows=orders.max_rows)
        result = await run_mwem(workload, plan, backend, max_rows=orders.max_rows)
        seconds = time.perf_counter() - started
    recorder.close()
    np.save(folder / name / WEIGHTS, result.model.marginals[0], allow_pickle=False)
    sent: dict[str, int] = {}
    for step in (ctx.cost, *runtime.costs.steps):
        sent[step.step] = sent.get(step.step, 0) + step.sent_bytes
    return Report(
        seconds=seconds,
        rounds=ctx.depth,
        sent_bytes={step: size for step, size in sent.items() if size},
        spent=backend.ledger.spent,
        total=result.total,
        chosen=list(result.chosen),
    )


if __name__ == "__main__":
    main()
