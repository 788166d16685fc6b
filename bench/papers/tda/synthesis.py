"""Synthetic rows for silos: by Fed-TDA, and by DistAIM, FLAIM and federated GANs on the same split.

Nothing here is secret; the tables are public, and noise is drawn from the repeat's number.

Fed-TDA runs as in a deployment, with all silos in this process (`mechanisms.silos.InProcess`). DistAIM with every silo
from the start gives what central AIM gives: AIM's loop runs on the counts in the clear, as in `bench.papers.utility`.
FLAIM is its private variant, every silo in every round, with SecAgg's real messages. Both have numbers in equal bins
and choose among each column's pair with the label, since the rows serve a classifier; T is 10. GANs have the same bins
(`bench.papers.tda.gans`). Sources: the papers of all three.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.overhead.formula import distaim_formula, upload_payload
from bench.papers.tda.costs import MIB, sum_mb
from bench.papers.tda.gans import make
from bench.papers.tda.settings import DISTAIM, DP_FED_GAN, FED_GAN, FLAIM, PAPER, Settings
from bench.papers.tda.tables import Rows, Table
from mechanisms.accounting import Ledger, fixed_rounds_plan, rho_from_epsilon_delta
from mechanisms.aim import run_aim
from mechanisms.domain import Categorical, Domain, Real
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.pgm import PgmEstimator
from mechanisms.plaintext import PlaintextBackend
from mechanisms.sampling import public_generator
from mechanisms.silos import InProcess, Request, Sum
from mechanisms.table import decode
from mechanisms.tda.costs import paper_mib
from mechanisms.tda.layout import Layout
from mechanisms.tda.layout import Rows as SiloRows
from mechanisms.tda.server import run
from mechanisms.tda.settings import PAPER_ITERATIONS, TdaSettings
from mechanisms.tda.silo import TdaSilo
from mechanisms.workload import Workload, count_marginals
from parties.config import MAX_ROWS
from parties.local.flaim_simulation import simulate

ROUNDS = 10
_ITERATIONS, _FINAL_ITERATIONS, _MODEL_MB = 100, 1_000, 80.0
_FEW_ROWS, _FEW_BINS, _BINS = 1_000, 8, 16


@dataclass(frozen=True, slots=True, eq=False)
class Synthetic:
    """Synthetic `rows`, the silos' traffic for them, and the traffic by the paper's formula (None: it has none)."""

    rows: Rows
    sent_mb: float
    formula_mb: float | None


def synthesise(
    settings: Settings, table: Table, owned: Sequence[NDArray[np.generic]], seed: int
) -> Synthetic:
    """Makes rows by `settings.source`; silo i has the training rows `owned[i]`.

    Raises MechanismError; ValueError for a source that needs an epsilon and has none.
    """
    rng = np.random.default_rng([seed, 1])
    if settings.source in (FED_GAN, DP_FED_GAN):
        return _gan(settings, table, owned, rng)
    source = {DISTAIM: _distaim, FLAIM: _flaim}.get(settings.source or "", _tda)
    return asyncio.run(source(settings, table, owned, rng))


async def _tda(
    settings: Settings, table: Table, owned: Sequence[NDArray[np.generic]], rng: np.random.Generator
) -> Synthetic:
    how = tda_settings(settings)
    domain, varying = domain_of(table)
    layout = Layout.of(domain, how)
    x = table.scaled(table.train)[:, varying]
    codes = np.column_stack([table.train.codes, table.train.labels])
    silos = [
        TdaSilo(
            SiloRows(x[rows], np.full(x[rows].shape, -1, np.int32), codes[rows]),
            layout,
            how,
            random_bytes=rng.bytes,
        )
        for rows in owned
    ]
    counted = _Counted(silos, random_bytes=rng.bytes)
    result = await run(layout, how, counted)
    frame = result.model.sample(settings.synthetic_rows, public_generator(_seed(rng)))
    categories = [*table.sizes, len(table.classes)]
    formula = paper_mib(
        len(table.numbers),
        categories,
        silos=settings.clients,
        components=how.components,
        iterations=result.iterations,
    )
    return Synthetic(_rows(table, frame, varying), counted.mb, formula * MIB / 1e6)


class _Counted(InProcess):
    """Silos in this process that count the traffic of sessions of SecAgg."""

    mb = 0.0

    async def sum(self, request: Request) -> Sum:
        """See `Silos`."""
        self.mb += sum_mb(request.length, request.low, request.high, self.count)
        return await super().sum(request)


def tda_settings(settings: Settings) -> TdaSettings:
    """Returns settings as printed in the paper; with exact sums and our order and correlations; or private."""
    if settings.source == PAPER:
        return TdaSettings.paper()
    if settings.epsilon is None:
        return TdaSettings(privacy="none", iterations=PAPER_ITERATIONS)
    return TdaSettings.private(rho_from_epsilon_delta(settings.epsilon, settings.delta))


async def _distaim(
    settings: Settings, table: Table, owned: Sequence[NDArray[np.generic]], rng: np.random.Generator
) -> Synthetic:
    workload, codes, varying = _coded(table)
    plan = fixed_rounds_plan(_rho(settings), ROUNDS, len(workload.one_way))
    backend = PlaintextBackend(
        workload,
        plan,
        arrivals={0: (settings.clients, count_marginals(codes, workload))},
        ledger=Ledger(plan.rho),
        random_bytes=rng.bytes,
    )
    estimator = PgmEstimator(
        workload,
        plan,
        iterations=_ITERATIONS,
        final_iterations=_FINAL_ITERATIONS,
        max_model_mb=_MODEL_MB,
    )
    await run_aim(workload, plan, backend, estimator, max_rows=MAX_ROWS)
    if estimator.model is None:
        raise RuntimeError("the final estimate made no model")
    drawn = estimator.model.sample(settings.synthetic_rows, np.random.default_rng(_seed(rng)))
    frame = decode(workload.domain, drawn, public_generator(_seed(rng)))
    sent = sum(upload_payload(workload, "rows", len(rows)) for rows in owned)
    formula = settings.clients * distaim_formula(workload)
    return Synthetic(_rows(table, frame, varying), sent / 1e6, formula / 1e6)


async def _flaim(
    settings: Settings, table: Table, owned: Sequence[NDArray[np.generic]], rng: np.random.Generator
) -> Synthetic:
    workload, codes, varying = _coded(table)
    how = FlaimSettings.preset(
        "private",
        rho=_rho(settings),
        rounds=ROUNDS,
        participation=1.0,
        iterations=_ITERATIONS,
        final_iterations=_FINAL_ITERATIONS,
        max_model_mb=_MODEL_MB,
    )
    tables = [codes[rows] for rows in owned]
    outcome = await simulate(tables, workload, how, secagg=True, seed=_seed(rng))
    drawn = outcome.model.sample(settings.synthetic_rows, np.random.default_rng(_seed(rng)))
    frame = decode(workload.domain, drawn, public_generator(_seed(rng)))
    sent = sum(moved.sent for moved in outcome.traffic)
    return Synthetic(_rows(table, frame, varying), sent / 1e6, None)


def _gan(
    settings: Settings, table: Table, owned: Sequence[NDArray[np.generic]], rng: np.random.Generator
) -> Synthetic:
    workload, codes, varying = _coded(table)
    tables = [codes[rows] for rows in owned]
    made = make(settings, tables, workload.domain.shape, int(rng.integers(2**31)))
    frame = decode(workload.domain, made.codes, public_generator(_seed(rng)))
    return Synthetic(_rows(table, frame, varying), made.sent_mb, made.formula_mb)


def _rho(settings: Settings) -> float:
    if settings.epsilon is None:
        raise ValueError(f"{settings.source} needs an epsilon; it has no run without privacy")
    return rho_from_epsilon_delta(settings.epsilon, settings.delta)


def domain_of(table: Table) -> tuple[Domain, NDArray[np.bool_]]:
    """Returns numbers in bins, categories, the label last; and a mask (n_c,) of the numbers that vary at all."""
    bins = _FEW_BINS if len(table.train) < _FEW_ROWS else _BINS
    varying = table.high > table.low
    columns = [
        Real(name, float(low), float(high), bins)
        for name, low, high, has in zip(table.numbers, table.low, table.high, varying, strict=True)
        if has
    ]
    described = zip((*table.discrete, table.label), (*table.categories, table.classes), strict=True)
    return Domain((*columns, *(Categorical(name, known) for name, known in described))), varying


def _coded(table: Table) -> tuple[Workload, NDArray[np.int32], NDArray[np.bool_]]:
    """Returns the queries to choose from, the training rows as codes, and a mask of the numbers that vary."""
    domain, varying = domain_of(table)
    pairs = [(name, table.label) for name in domain.names if name != table.label]
    workload = Workload(domain, tuple(pairs))
    x = table.scaled(table.train)[:, varying]
    bins = np.array([domain.columns[i].size for i in range(x.shape[1])])
    binned = np.minimum((x * bins).astype(np.int32), bins - 1)
    codes = np.column_stack([binned, table.train.codes, table.train.labels])
    return workload, codes.astype(np.int32), varying


def _rows(table: Table, frame: pd.DataFrame, varying: NDArray[np.bool_]) -> Rows:
    """Converts synthetic rows of text to the table's form; constant numbers keep their value."""
    numbers = np.tile(table.low, (len(frame), 1))
    names = [name for name, has in zip(table.numbers, varying, strict=True) if has]
    numbers[:, varying] = frame[names].astype(np.float64).to_numpy()
    described = zip((*table.discrete, table.label), (*table.categories, table.classes), strict=True)
    codes = [pd.Index(known).get_indexer(pd.Index(frame[name])) for name, known in described]
    return Rows(numbers, np.stack(codes[:-1], axis=1).astype(np.int32), codes[-1].astype(np.int32))


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**62))
