"""Jobs of a sweep on this process, on others of this machine, or on a Dask cluster.

Known limits: joblib and Dask move jobs as pickles between processes that trust one another.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from bench.extra import need
from bench.fetch import DatasetError

J = TypeVar("J")
R = TypeVar("R")


def need_workers(n_jobs: int, dask: str | None) -> None:
    """Raises ImportError, with what to install, unless jobs can be run so."""
    if dask is not None:
        need("distributed", "a Dask cluster")
    elif n_jobs != 1:
        need("joblib", "more than one process")


def results_of(
    jobs: Sequence[J],
    run: Callable[[J], R],
    on_lost: Callable[[J, BaseException], R],
    *,
    n_jobs: int = 1,
    dask: str | None = None,
) -> Iterator[tuple[J, R]]:
    """Yields each job with its result, as they come.

    Runs ``n_jobs`` processes on this machine (1: in this one), or the workers of the Dask scheduler at address
    ``dask``; ``on_lost`` makes the result of a job that a worker died of. Raises DatasetError if the scheduler is not
    reachable, and the errors of ``run``.
    """
    if not jobs:
        return
    if n_jobs == 1 and dask is None:
        for job in jobs:
            yield job, run(job)
        return
    import joblib

    if dask is None:
        with joblib.parallel_config("loky", n_jobs=n_jobs):
            yield from joblib.Parallel(return_as="generator_unordered")(
                joblib.delayed(_with_job)(run, job) for job in jobs
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
        job_of = {client.submit(run, job, pure=False): job for job in jobs}
        done = as_completed(job_of, with_results=True, raise_errors=False)  # type: ignore[no-untyped-call]
        for future, result in done:
            job = job_of[future]
            # An error outside the job: its workers died of it, of memory for instance.
            yield job, on_lost(job, result[1]) if future.status == "error" else result


def _with_job(run: Callable[[J], R], job: J) -> tuple[J, R]:
    return job, run(job)
