"""Runs of DP-CTGAN on a published table, reference rows to compare with, and measures of both.

Nothing here is secret; the tables are public.

The likelihood is that of a Gaussian kernel density over synthetic rows of codes, as the authors take it: a density of
real numbers and no probability of rows, so it can be compared only as the paper's own table does, and not with other
methods' likelihoods. Its kernel has the synthetic rows' covariance, by Scott's rule: a column that hardly varies among
them has a kernel hardly as wide, and decides everything. So the likelihood is taken without such columns, too.
"""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gaussian_kde  # type: ignore[import-untyped]

from bench.methods.problem import Problem, problem
from bench.methods.settings import Settings
from bench.metrics import auc_on_held_out
from bench.papers.gan.outcomes import CENTRAL, FEDERATED, REAL, SHUFFLED, Outcome
from bench.papers.gan.training import Central, Federated, train
from mechanisms.metrics import table_answers, workload_error

CONDITIONS = 0.01
"""Share of the budget for the frequencies that conditional vectors are drawn by."""
METHODS: dict[str, Central | Federated] = {
    CENTRAL: Central(conditions=CONDITIONS),
    FEDERATED: Federated(conditions=CONDITIONS),
}
DELTA = 1e-5
_TIMES_TEST = 10
_NARROW = 0.5
"""Largest ratio of a narrow column's deviation to the real rows' deviation."""


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
    """Trains and measures once. Raises DatasetError; ImportError without UMAP if clients are clusters."""
    posed = problem(
        Settings(
            dataset=dataset,
            method="aim" if method == CENTRAL else "private",
            partition=partition,
        ),
        progress=progress,
    )
    table, tables = posed.dataset, [posed.dataset.train]
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
    return _outcome(posed, method, drawn, epsilon=epsilon, repeat=repeat, seconds=seconds)


def reference(dataset: str, method: str, *, epsilon: float, repeat: int) -> Outcome:
    """Measures rows without training; see `REFERENCES`. Raises DatasetError."""
    posed = problem(Settings(dataset=dataset, method="aim"))
    train, rng = posed.dataset.train, np.random.default_rng(repeat)
    if method == REAL:
        rows = train
    elif method == SHUFFLED:
        rows = rng.permuted(train, axis=0)
    else:
        rows = rng.integers(0, posed.dataset.domain.shape, train.shape, dtype=np.int32)
    return _outcome(posed, method, rows, epsilon=epsilon, repeat=repeat, seconds=0.0)


def _outcome(
    posed: Problem,
    method: str,
    drawn: NDArray[np.int32],
    *,
    epsilon: float,
    repeat: int,
    seconds: float,
) -> Outcome:
    table, workload = posed.dataset, posed.workload
    synthetic, dense = drawn[: len(table.train)], drawn[: _TIMES_TEST * len(table.test)]
    real, written = (table_answers(workload, codes) for codes in (table.train, synthetic))
    wide = dense.std(axis=0) >= _NARROW * table.train.std(axis=0)
    same = bool(wide.all())
    nll = kde_nll(dense, table.test)
    return Outcome(
        dataset=table.name,
        method=method,
        epsilon=epsilon,
        repeat=repeat,
        workload_error=workload_error(workload, real, written),
        nll=nll,
        auc=None if table.label is None else auc_on_held_out(synthetic, table.test, table.label),
        seconds=seconds,
        narrow=int((~wide).sum()),
        nll_wide=nll if same else kde_nll(dense[:, wide], table.test[:, wide]),
        real_wide=None if same else kde_nll(table.train[:, wide], table.test[:, wide]),
    )


def kde_nll(synthetic: NDArray[np.int32], test: NDArray[np.int32]) -> float | None:
    """Returns the mean -log density of test rows (rows, columns) under a Gaussian kernel density of synthetic rows.

    Columns that are constant in the synthetic rows are left out; None if the rest depend on one another linearly.
    """
    varying = np.flatnonzero(np.ptp(synthetic, axis=0))
    kept = synthetic[:, varying].astype(float)
    if not varying.size or np.linalg.matrix_rank(kept - kept.mean(axis=0)) < varying.size:
        return None
    density = gaussian_kde(kept.T)
    return float(-density.logpdf(test[:, varying].T.astype(float)).mean())
