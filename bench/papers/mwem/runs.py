"""DistMWEM by three real servers, MWEM and AIM in the clear: on a few columns of Adult, at the same (epsilon, delta).

Nothing here is secret; the table is public. The explicit domain is the product of its columns' sizes, so there are few
columns.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.datasets import load
from bench.engine.measure import run_three
from bench.networks import opened
from bench.papers.mwem.loop import MwemPlan, PlainMwem, mwem_plan, run_mwem
from bench.papers.mwem.party import NAMES, WEIGHTS, Orders, Report
from mechanisms.accounting import Ledger, fixed_rounds_plan, rho_from_epsilon_delta
from mechanisms.aim import run_aim
from mechanisms.domain import Domain
from mechanisms.metrics import nll, table_answers, workload_error
from mechanisms.model import Model
from mechanisms.pgm import PgmEstimator
from mechanisms.plaintext import PlaintextBackend
from mechanisms.workload import Workload, count_marginals
from parties.identity.tls import make_certificates
from parties.local.partition import iid
from protocols.select_spec import SELECTION_SLACK
from protocols.upload import SEEDED, upload

COLUMNS = ("education-num", "marital-status", "relationship", "race", "sex", "income>50K")
DELTA = 1e-5
DEGREE = 3
MAX_ROWS = 1 << 20
AIM, MWEM, DISTMWEM = "aim", "mwem", "distmwem"
METHODS = (AIM, MWEM, DISTMWEM)


@dataclass(frozen=True, slots=True, eq=False)
class Small:
    """Training and held-out codes (rows, columns), and all queries of three columns."""

    train: NDArray[np.int32]
    test: NDArray[np.int32]
    workload: Workload


@dataclass(frozen=True, slots=True)
class Outcome:
    """Quality of a run's model, and its cost; bytes, rounds and seconds under MPC are the slowest server's.

    ``bytes_per_server`` is of the mean server, ``owner_bytes`` of one owner's upload.
    """

    method: str
    repeat: int
    workload_error: float
    nll: float
    seconds: float
    rounds: int | None = None
    bytes_per_server: float | None = None
    owner_bytes: int | None = None


def small_table(columns: Sequence[str] = COLUMNS) -> Small:
    """Returns some columns of the coded Adult. Raises DatasetError if unavailable, ValueError for unknown columns."""
    whole = load("adult")
    if unknown := [name for name in columns if name not in whole.domain.names]:
        raise ValueError(
            f"no column {unknown[0]!r} in adult; expected some of {', '.join(whole.domain.names)}"
        )
    if len(set(columns)) < DEGREE:
        raise ValueError(f"{len(set(columns))} columns; queries have {DEGREE} of them")
    kept = [i for i, name in enumerate(whole.domain.names) if name in columns]
    domain = Domain(tuple(whole.domain.columns[i] for i in kept))
    workload = Workload(domain, tuple(combinations(domain.names, DEGREE)))
    return Small(whole.train[:, kept], whole.test[:, kept], workload)


def run(
    method: str, small: Small, *, epsilon: float, rounds: int, owners: int, repeat: int
) -> Outcome:
    """Runs once; methods in the clear are seeded by the number of the repeat.

    Raises MechanismError; RuntimeError if a server fails.
    """
    budget = rho_from_epsilon_delta(epsilon, DELTA)
    rng = np.random.default_rng([repeat, METHODS.index(method)])
    started = time.perf_counter()
    if method == DISTMWEM:
        plan = mwem_plan(budget, rounds, slack=SELECTION_SLACK)
        model, reports, owner_bytes = _by_servers(small, plan, owners, repeat)
        seconds = max(report.seconds for report in reports)
        sent = [sum(report.sent_bytes.values()) for report in reports]
        costs = (max(report.rounds for report in reports), sum(sent) / len(sent), owner_bytes)
        return _judged(method, repeat, small, model, seconds, *costs)
    if method == MWEM:
        model = _mwem(small, mwem_plan(budget, rounds), rng)
        return _judged(method, repeat, small, model, time.perf_counter() - started)
    model = _aim(small, budget, rounds, rng)
    return _judged(method, repeat, small, model, time.perf_counter() - started)


def _judged(
    method: str,
    repeat: int,
    small: Small,
    model: Model,
    seconds: float,
    rounds: int | None = None,
    bytes_per_server: float | None = None,
    owner_bytes: int | None = None,
) -> Outcome:
    answers = model.answers_q32(small.workload.candidates).astype(np.float64)
    error = workload_error(small.workload, table_answers(small.workload, small.train), answers)
    likelihood = nll(model, small.test)
    costs = (rounds, bytes_per_server, owner_bytes)
    return Outcome(method, repeat, error, likelihood, seconds, *costs)


def _mwem(small: Small, plan: MwemPlan, rng: np.random.Generator) -> Model:
    backend = PlainMwem(
        small.workload,
        plan,
        codes=small.train,
        ledger=Ledger(plan.rho),
        random_bytes=rng.bytes,
    )
    return asyncio.run(run_mwem(small.workload, plan, backend, max_rows=MAX_ROWS)).model


def _aim(small: Small, budget: float, rounds: int, rng: np.random.Generator) -> Model:
    workload = small.workload
    plan = fixed_rounds_plan(budget, rounds, len(workload.one_way), measure_share=0.9)
    backend = PlaintextBackend.pooled(
        workload, plan, codes=small.train, ledger=Ledger(plan.rho), random_bytes=rng.bytes
    )
    estimator = PgmEstimator(
        workload, plan, iterations=100, final_iterations=1000, max_model_mb=80.0
    )
    asyncio.run(run_aim(workload, plan, backend, estimator, max_rows=MAX_ROWS))
    if estimator.model is None:
        raise RuntimeError("the final estimate made no model")
    return estimator.model


def _by_servers(
    small: Small, plan: MwemPlan, owners: int, repeat: int
) -> tuple[Model, list[Report], int]:
    """Runs the servers on the owners' shared counts: three processes that have to end with the same weights."""
    workload = small.workload
    whose = iid(len(small.train), clients=owners, seed=repeat).owners
    with (
        tempfile.TemporaryDirectory(prefix="syncret-mwem-") as place,
        opened("loopback") as network,
    ):
        folder = Path(place)
        make_certificates(folder, NAMES)
        for name in NAMES:
            (folder / name).mkdir()
        owner_bytes = 0
        for owner in range(owners):
            parts = upload(count_marginals(small.train[whose == owner], workload), SEEDED)
            owner_bytes = sum(map(len, parts.private)) + len(parts.common)
            for pid, name in enumerate(NAMES):
                (folder / name / f"owner-{owner}").write_bytes(parts.bodies[pid])
        view = network.views()
        orders = [
            Orders(
                pid,
                view[pid],
                place,
                workload.domain.to_dict(),
                [list(query) for query in workload.queries],
                asdict(plan),
                owners,
                MAX_ROWS,
            )
            for pid in range(3)
        ]
        outputs = run_three(
            network,
            [["bench.papers.mwem.party"]] * 3,
            [json.dumps(asdict(order)) for order in orders],
            "server",
        )
        weights = [np.load(folder / name / WEIGHTS, allow_pickle=False) for name in NAMES]
    if any((other != weights[0]).any() for other in weights):
        raise RuntimeError("the servers came to different weights")
    reports = [Report(**json.loads(output)) for output in outputs]
    return (
        Model(workload.domain, (workload.domain.names,), (-1,), (weights[0],)),
        reports,
        owner_bytes,
    )
