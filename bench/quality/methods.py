"""Synthesis of a table from a real one, by our methods and by a third party's.

Our methods are those of the utility benchmark, with its shortcuts: DistAIM's loop on counts in the clear, FLAIM's
clients in this process, which make the same choices as the real ones (`bench/notes/quality.md`); `mpc` runs
DistAIM's three servers and all owners as processes. All values here are public.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bench.datasets import Dataset
from bench.methods.problem import Problem
from bench.methods.run import run_method
from bench.methods.settings import ESTIMATED, Settings
from bench.quality.environment import COPULA, PRIVATE_PGM, SMARTNOISE, ask, private_pgm
from bench.quality.pairs import permuted
from bench.quality.peers import cells_of, coded, decoded, given, peer_columns, written_back
from bench.quality.tables import UNIFORM, RealTable
from mechanisms.domain import Domain
from mechanisms.resolving import stand_in
from mechanisms.scores import AIM, REMAINING_ERROR
from mechanisms.synthetic import synthetic_parts
from mechanisms.table import encode
from mechanisms.workload import draw_workload
from parties.local.partition import iid

REAL, PERMUTED = "real", "permuted"
TARGETED, PAIRS = "standard-target", "flaim-pairs"
PGM_AIM = "private-pgm-aim"
BY_DRAFT = ("standard", TARGETED, "standard-distaim")
OURS: Mapping[str, str] = {
    "standard": "aim",
    TARGETED: "aim",
    "standard-distaim": "distaim",
    "aim": "aim",
    "distaim": "distaim",
    "flaim": "private",
    PAIRS: "pairs",
}
"""Methods, with the utility benchmark's names; FLAIM's are its variants private and pairs.

`standard` is what a draft asks for, all pairs, annealed, by our own rule, central or by servers; the others have the
papers' rule, rounds and workload. `standard-target` names the column that the table is made to predict.
"""
THEIRS: Mapping[str, tuple[str, str]] = {
    "smartnoise-aim": (SMARTNOISE, "aim"),
    "smartnoise-mst": (SMARTNOISE, "mst"),
    PGM_AIM: (PRIVATE_PGM, "aim"),
    "sdv-copula": (COPULA, "copula"),
}
"""Third parties' methods: a program of this folder and its name there."""
NOT_PRIVATE = ("sdv-copula",)
FEDERATED = ("standard-distaim", "distaim", "flaim", PAIRS)
METHODS = (REAL, PERMUTED, *OURS, *THEIRS)
"""`real` is the table itself, a perfect copy; `permuted` has its columns shuffled, without noise."""
ALL_PAIRS = 10**6
"""Larger than the number of pairs of any table."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Settings that all methods share; `clients` and `mpc` are for those with owners."""

    epsilon: float = 1.0
    delta: float = 1e-5
    clients: int = 20
    mpc: bool = False
    limit_s: float = 600.0


def synthesize(
    method: str, table: RealTable, columns: str, budget: Budget, *, seed: int, folder: Path
) -> tuple[pd.DataFrame, float]:
    """Returns a synthetic table, all cells text, and the seconds taken.

    Raises ThirdPartyError, MechanismError, and with `mpc` the errors of a launched run.
    """
    if method == REAL:
        return table.train, 0.0
    if method == PERMUTED:
        return permuted(table.train, seed), 0.0
    if method in THEIRS:
        domain = None if columns == UNIFORM else table.domains[columns]
        return _theirs(method, table, domain, budget, seed, folder)
    return _ours(method, table, table.domains[columns], budget, seed)


def _ours(
    name: str, table: RealTable, domain: Domain, budget: Budget, seed: int
) -> tuple[pd.DataFrame, float]:
    method, drafted = OURS[name], name in BY_DRAFT
    train, test = (
        encode(domain, frame, source=table.name, ignore_extra=True)
        for frame in (table.train, table.test)
    )
    settings = Settings(
        # The dataset of this name is not read: the problem is given.
        dataset="adult-uci",
        method=method,
        partition="iid",
        clients=budget.clients,
        participation=1.0,
        epsilon=budget.epsilon,
        delta=budget.delta,
        sizes=ESTIMATED,
        mpc=budget.mpc and method == "distaim",
        rule=REMAINING_ERROR if drafted else AIM,
        annealed=drafted,
        degree=2 if drafted or name == PAIRS else 3,
        queries=ALL_PAIRS if drafted or name == PAIRS else 64,
    )
    degree = min(settings.degree, len(domain.columns))
    targets = (table.target,) if name == TARGETED else ()
    workload = draw_workload(stand_in(domain), degree, settings.queries, targets=targets)
    owners = iid(len(train), clients=min(budget.clients, len(train)), seed=settings.partition_seed)
    posed = Problem(Dataset(table.name, domain, train, test, None), workload, owners)
    started = time.perf_counter()
    outcome = asyncio.run(run_method(settings, posed, np.random.default_rng(seed)))
    seconds = time.perf_counter() - started
    parts = list(synthetic_parts(outcome.model, outcome.total, seed=seed))
    return pd.concat(parts, ignore_index=True), seconds


def _theirs(
    method: str, table: RealTable, domain: Domain | None, budget: Budget, seed: int, folder: Path
) -> tuple[pd.DataFrame, float]:
    """Asks a third party's method, with codes of ``domain`` as labels, or without it in its own way."""
    train, out = folder / "train.csv", folder / "synthetic.csv"
    frame = given(table) if domain is None else coded(table, domain)
    frame.to_csv(train, index=False)
    program, name = THEIRS[method]
    request: dict[str, object] = {
        "method": name,
        "train": str(train),
        "out": str(out),
        "columns": peer_columns(table) if domain is None else cells_of(domain),
    }
    if method == PGM_AIM:
        request["source"] = private_pgm()
    if method not in NOT_PRIVATE:
        request |= {"epsilon": budget.epsilon, "delta": budget.delta}
    answer = ask(program, request, limit_s=budget.limit_s)
    drawn = pd.read_csv(out, dtype=str, keep_default_na=False)
    back = written_back(table, drawn) if domain is None else decoded(domain, drawn, seed)
    return back, float(str(answer["seconds"]))
