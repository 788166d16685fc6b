"""Input and output of a method of the utility benchmark.

`problem` loads and splits a table. Nothing here is secret; the tables are public.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from bench.datasets import SYNTHFS, Dataset, load
from bench.methods.settings import Settings
from bench.methods.splits import owners_of
from bench.synthfs import SynthFs
from mechanisms.descent import Tables
from mechanisms.model import Model
from mechanisms.workload import Workload, draw_workload
from parties.local.partition import Partition


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A coded table, its workload, and the owners of its training rows (None for central AIM)."""

    dataset: Dataset
    workload: Workload
    partition: Partition | None


def problem(settings: Settings, *, progress: Callable[[str], None] = lambda line: None) -> Problem:
    """Returns the problem of `settings`. Raises DatasetError, WorkloadError, ImportError without UMAP."""
    dataset, workload = _table(
        settings.dataset, settings.skew, settings.degree, settings.queries, settings.workload_seed
    )
    if settings.method == "aim":
        return Problem(dataset, workload, None)
    partition = owners_of(
        dataset,
        settings.partition,
        clients=settings.clients,
        beta=settings.beta,
        seed=settings.partition_seed,
        progress=progress,
    )
    return Problem(dataset, workload, partition)


@lru_cache(maxsize=2)
def _table(
    name: str, skew: float, degree: int, queries: int, seed: int
) -> tuple[Dataset, Workload]:
    dataset = load(name, synthfs=SynthFs(skew=skew) if name == SYNTHFS else None)
    return dataset, draw_workload(dataset.domain, degree, queries, seed=seed)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A model, its number of rows, and facts on the run; see `bench.papers.utility.runs.Result`.

    `judged`: the model whose likelihood is taken and its log potentials, None if they are not at hand.
    """

    model: Model
    total: int
    rounds_done: int
    judged: tuple[Model, Tables | None]
    single_choosers: int | None = None
