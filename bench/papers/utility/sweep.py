"""Many runs of the utility benchmark: those missing in the store, on this machine or on a Dask cluster.

A job that fails does not stop the others; finished runs are stored at once.

Known limits: a worker loads each table for itself, so on a cluster every machine needs the tables (SYNCRET_DATA_DIR, or
a network to fetch them) and makes its own UMAP embedding; joblib and Dask move jobs as pickles between processes that
trust one another.
"""

from collections.abc import Callable, Iterator, Sequence

from bench.extra import need
from bench.fetch import DatasetError
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
    ImportError without the bench extra.
    """
    # Runs that differ only in settings without a bearing are one run.
    unique = {(s.digest(), r): (s, r) for s, r in reversed(jobs) if store.find(s, r) is None}
    todo = list(reversed(unique.values()))
    if todo:
        need("sklearn", "the classifier's AUC")
    if dask is not None:
        need("distributed", "a Dask cluster")
    elif n_jobs != 1:
        need("joblib", "more than one process")
    # Tables and embeddings first, once, in this process: workers then find them in the cache.
    for settings in {_problem_key(settings): settings for settings, _ in todo}.values():
        problem(settings, progress=progress)
    failures = []
    for job, result in _results(todo, n_jobs, dask):
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


def _results(
    jobs: Sequence[Job], n_jobs: int, dask: str | None
) -> Iterator[tuple[Job, Result | str]]:
    if not jobs:
        return
    if n_jobs == 1 and dask is None:
        for job in jobs:
            yield _try(job)
        return
    import joblib

    if dask is None:
        with joblib.parallel_config("loky", n_jobs=n_jobs):
            yield from joblib.Parallel(return_as="generator_unordered")(
                joblib.delayed(_try)(job) for job in jobs
            )
        return
    from dask.distributed import Client, as_completed

    try:
        client = Client(dask, timeout=10)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise DatasetError(
            f"no Dask scheduler at {dask}: {error}; expected an address such as tcp://host:8786"
        ) from error
    with client:
        # A run is never the same as another: Dask must not take one for the other by its arguments.
        job_of = {client.submit(_try, job, pure=False): job for job in jobs}
        done = as_completed(job_of, with_results=True, raise_errors=False)  # type: ignore[no-untyped-call]
        for future, result in done:
            if future.status == "error":
                # An error outside the job: its workers died of it, of memory for instance.
                yield job_of[future], _failed(job_of[future], result[1])
            else:
                yield result


def _try(job: Job) -> tuple[Job, Result | str]:
    """Runs one job; an error becomes a message, since one failure must not cost the others."""
    settings, repeat = job
    try:
        return job, measure(settings, repeat)
    except Exception as error:  # noqa: BLE001 (reported by the caller, who goes on)
        return job, _failed(job, error)


def _failed(job: Job, error: Exception) -> str:
    settings, repeat = job
    what = f"{settings.method} on {settings.dataset}, {settings.partition}, repeat {repeat}"
    return f"{what}: {type(error).__name__}: {error}"
