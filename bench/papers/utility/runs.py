"""One run of one method on one benchmark table, and the quality of its result.

Nothing here is secret; the tables are public. A run's randomness is drawn from the settings' digest and the number of
the repeat, so that a result can be repeated on the same machine; noise that protects somebody is never drawn so. With
`mpc` the run is the real one, on its own randomness.

Source: FLAIM paper, section 5. `workload_error` is the average L1 distance, 0 to 2, between normalised marginals of
synthetic and training rows over the workload's queries; `closure_error` the same over the queries and their subsets;
`nll` the mean negative log-likelihood of the held-out rows under the model, in nats, mixed with a uniform distribution
of weight 1e-6 (`mechanisms.metrics.nll`), `nll_raw` without that mixture, as the paper has it; `auc` that of
`bench.metrics`. Limits: exact inference only.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.methods.problem import problem
from bench.methods.run import run_method
from bench.methods.settings import Settings
from bench.metrics import auc_on_held_out, closure_error
from mechanisms.metrics import nll, raw_nll, table_answers, workload_error


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one run. `auc` is None for a table without a target; `seconds` is the method's wall time.

    `model_error` is the workload error of the model itself, without the sampling of rows; `rounds_done` the rounds that
    the budget paid for; `single_choosers` the number of FLAIM's sums with a single client.
    """

    workload_error: float
    closure_error: float
    model_error: float
    nll: float
    auc: float | None
    seconds: float
    rounds_done: int
    rows: int
    model_mb: float
    single_choosers: int | None = None
    nll_raw: float | None = None


def measure(
    settings: Settings, repeat: int, *, progress: Callable[[str], None] = lambda line: None
) -> Result:
    """Runs once and measures.

    Raises DatasetError, and the errors of the method: MechanismError, or a parties' error with `mpc`.
    """
    posed = problem(settings, progress=progress)
    seed = [int(settings.digest(), 16), repeat]
    rng = np.random.default_rng(seed)
    started = time.perf_counter()
    outcome = asyncio.run(run_method(settings, posed, rng))
    seconds = time.perf_counter() - started
    dataset, workload, model = posed.dataset, posed.workload, outcome.model
    synthetic = model.sample(outcome.total, np.random.default_rng([*seed, 1]))
    real, written = (table_answers(workload, codes) for codes in (dataset.train, synthetic))
    answers = model.answers_q32(workload.candidates).astype(np.float64)
    judged, potentials = outcome.judged
    auc = raw = None
    if potentials is not None:
        raw = raw_nll(dataset.domain, potentials, dataset.test)
    if dataset.label is not None:
        auc = auc_on_held_out(synthetic, dataset.test, dataset.label)
    return Result(
        workload_error=workload_error(workload, real, written),
        closure_error=closure_error(workload, real, written),
        model_error=workload_error(workload, real, answers),
        nll=nll(judged, dataset.test),
        auc=auc,
        seconds=seconds,
        rounds_done=outcome.rounds_done,
        rows=outcome.total,
        model_mb=model.cells * 8 / 2**20,
        single_choosers=outcome.single_choosers,
        nll_raw=raw,
    )
