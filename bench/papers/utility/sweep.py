"""Many runs of the utility benchmark: those missing in the store, on this machine or on a Dask cluster.

A job that fails does not stop the others; finished runs are stored at once.

Known limits: a worker loads each table for itself, so on a cluster every machine needs the tables (SYNCRET_DATA_DIR, or
a network to fetch them) and makes its own UMAP embedding.
"""

from collections.abc import Callable, Sequence

from bench.experiment.workers import need_workers, results_of
from bench.extra import need
from bench.methods.problem import problem
from bench.methods.settings import Settings
from bench.papers.utility.runs import Result, measure
from bench.papers.utility.store import Entry, Store

Job = tuple[Settings, int]
Done = Callable[[Job, Result | str], None]


def run_all(
    jobs: Sequence[Job],
    store: Store,
    *,
    n_jobs: int = 1,
    dask: str | None = None,
    progress: Callable[[str], None] = lambda line: None,
    on_done: Done = lambda job, result: None,
) -> list[str]:
    """Runs the jobs that `store` lacks and adds them. Returns the messages of the jobs that failed.

    `n_jobs` processes on this machine (1: in this one), or the workers of the Dask scheduler at address `dask`.
    Raises, before anything is run, DatasetError if a table is not available or the scheduler not reachable, and
    ImportError without the extras.
    """
    # Runs that differ only in settings without a bearing are one run.
    unique = {(s.digest(), r): (s, r) for s, r in reversed(jobs) if store.find(s, r) is None}
    todo = list(reversed(unique.values()))
    if todo:
        need("sklearn", "the classifier's AUC")
    need_workers(n_jobs, dask)
    # Tables and embeddings first, once, in this process: workers then find them in the cache.
    for settings in {_problem_key(settings): settings for settings, _ in todo}.values():
        problem(settings, progress=progress)
    failures = []
    for job, result in results_of(todo, _try, _failed, n_jobs=n_jobs, dask=dask):
        if isinstance(result, str):
            failures.append(result)
        else:
            store.add([Entry(*job, result)])
        on_done(job, result)
    return failures


def _problem_key(settings: Settings) -> tuple[object, ...]:
    """Returns the key of a table and split."""
    s = settings
    if s.method == "aim":
        return (s.dataset, s.skew)
    return (s.dataset, s.skew, s.partition, s.beta, s.clients, s.partition_seed)


def _try(job: Job) -> Result | str:
    """Runs one job; an error becomes a message, since one failure must not cost the others."""
    try:
        return measure(*job)
    except Exception as error:  # noqa: BLE001 (reported by the caller, who goes on)
        return _failed(job, error)


def _failed(job: Job, error: BaseException) -> str:
    settings, repeat = job
    what = f"{settings.method} on {settings.dataset}, {settings.partition}, repeat {repeat}"
    return f"{what}: {type(error).__name__}: {error}"
