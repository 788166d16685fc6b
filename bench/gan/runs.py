"""A run of DP-CTGAN on a published table, and how good its rows are.

Provides `METHODS`, `run` and `kde_nll`. Secret: nothing; the tables are public.

The likelihood is that of a Gaussian kernel density over synthetic rows of codes, as the authors take it: a density of
real numbers and no probability of rows, so that it says nothing beside other methods' likelihoods but what the paper's
own table does with it.
"""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gaussian_kde  # type: ignore[import-untyped]

from bench.gan.outcomes import CENTRAL, FEDERATED, Outcome
from bench.gan.training import Central, Federated, train
from bench.metrics import auc_on_held_out
from bench.utility.problem import problem
from bench.utility.settings import Settings
from mechanisms.metrics import table_answers, workload_error

METHODS: dict[str, Central | Federated] = {CENTRAL: Central(), FEDERATED: Federated()}
DELTA = 1e-5
_TIMES_TEST = 10


def run(
    dataset: str,
    method: str,
    *,
    epsilon: float,
    repeat: int,
    partition: str = "clustering",
    changed: Central | Federated | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """One run. Raises DatasetError; ImportError without UMAP where clients are clusters."""
    posed = problem(
        Settings(
            dataset=dataset,
            method="aim" if method == CENTRAL else "private",
            partition=partition,
        ),
        progress=progress,
    )
    table, workload, tables = posed.dataset, posed.workload, [posed.dataset.train]
    if posed.partition is not None:
        clients = range(posed.partition.clients)
        tables = [table.train[posed.partition.rows_of(client)] for client in clients]
    started = time.perf_counter()
    drawn = train(
        changed or METHODS[method],
        tables,
        table.domain.shape,
        epsilon=epsilon,
        delta=DELTA,
        rows=max(len(table.train), _TIMES_TEST * len(table.test)),
        seed=repeat,
        progress=progress,
    )
    seconds = time.perf_counter() - started
    synthetic = drawn[: len(table.train)]
    real, written = (table_answers(workload, codes) for codes in (table.train, synthetic))
    return Outcome(
        dataset=dataset,
        method=method,
        epsilon=epsilon,
        repeat=repeat,
        workload_error=workload_error(workload, real, written),
        nll=kde_nll(drawn[: _TIMES_TEST * len(table.test)], table.test),
        auc=None if table.label is None else auc_on_held_out(synthetic, table.test, table.label),
        seconds=seconds,
    )


def kde_nll(synthetic: NDArray[np.int32], test: NDArray[np.int32]) -> float | None:
    """The mean -log density of test rows (rows, columns) under a Gaussian kernel density of synthetic ones.

    Columns that are constant in the synthetic rows are left out; None where the rest depend on one another linearly.
    """
    varying = np.flatnonzero(np.ptp(synthetic, axis=0))
    kept = synthetic[:, varying].astype(float)
    if not varying.size or np.linalg.matrix_rank(kept - kept.mean(axis=0)) < varying.size:
        return None
    density = gaussian_kde(kept.T)
    return float(-density.logpdf(test[:, varying].T.astype(float)).mean())
