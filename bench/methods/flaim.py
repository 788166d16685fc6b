"""FLAIM's variants for the utility benchmark: all clients in this process, with plain sums.

Nothing here is secret; see `bench.papers.utility.runs`. Sums are those that SecAgg would give
(tests/parties/test_flaim_simulation.py), so that a sweep need not run it; bytes are the overhead benchmark's matter.
"""

from functools import partial

import numpy as np

from bench.methods.authors_fit import flaim_estimator
from bench.methods.fresh import first_sums
from bench.methods.problem import Outcome, Problem
from bench.methods.settings import FRESH, Settings
from mechanisms.accounting import rho_from_epsilon_delta
from mechanisms.flaim_settings import FlaimSettings
from parties.local.flaim_simulation import simulate


def flaim_settings(settings: Settings) -> FlaimSettings:
    """Returns FLAIM's settings for `settings`. Raises ValueError if tau or combine do not go with the variant."""
    given = {"tau": settings.tau, "combine": settings.combine}
    return FlaimSettings.preset(
        settings.method,
        rho=rho_from_epsilon_delta(settings.epsilon, settings.delta),
        rounds=settings.rounds,
        annealed=settings.annealed,
        local_rounds=settings.local_rounds,
        participation=settings.participation,
        measure_share=settings.measure_share,
        iterations=settings.iterations,
        final_iterations=settings.final_iterations,
        max_model_mb=settings.max_model_mb,
        sizes=settings.sizes,
        settles=settings.settles,
        **{name: value for name, value in given.items() if value is not None},
    )


async def run_flaim(settings: Settings, posed: Problem, rng: np.random.Generator) -> Outcome:
    """Runs `settings`. Raises MechanismError."""
    if posed.partition is None:
        raise ValueError("FLAIM needs a table that is split among clients")
    codes, partition = posed.dataset.train, posed.partition
    tables = [codes[partition.rows_of(client)] for client in range(partition.clients)]
    how = flaim_settings(settings)
    estimator = flaim_estimator(settings, posed.workload, how, rows=len(codes), rng=rng)
    first = partial(
        first_sums, tables=tables, workload=posed.workload, how=how, random_bytes=rng.bytes
    )
    outcome = await simulate(
        tables,
        posed.workload,
        how,
        seed=int(rng.integers(2**62)),
        estimator=estimator,
        first=first if settings.first == FRESH else None,
    )
    result, judged = outcome.result, (outcome.model, estimator.potentials)
    return Outcome(outcome.model, outcome.total, result.rounds_done, judged, result.single_choosers)
