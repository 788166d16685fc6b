"""A run on this machine, prepared by method: what is run, where, and how.

Provides ``prepare``. Secret: the trial's table.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from parties.config import Config
from parties.flaim.methods import OF_THE_TRIAL, flaim_request, open_flaim_folder, run_flaim
from parties.owner import Table, name_of
from parties.progress import Progress
from parties.report.content import RunReport
from parties.trial.folder import Folder
from parties.trial.methods import open_method_folder, run_method, trial_on
from parties.trial.partition import PARTITIONS
from parties.trial.request import METHODS, Request, Trial

FLAIM = "flaim"


def prepare(
    table: Table | Mapping[str, Table],
    config: Config,
    method: str,
    *,
    place: Path,
    clients: int | None,
    partition: str,
    label: str | None,
    seed: int,
) -> tuple[Trial, Folder, Callable[[Progress], Awaitable[RunReport]]]:
    """The trial, its folder ``place``, and what runs it there.

    Raises ConfigError, DataError, StoreError, WorkloadError; ValueError for an unknown method or partition.
    """
    if method not in (*METHODS, FLAIM):
        raise ValueError(f"method = {method!r}; expected one of {', '.join((*METHODS, FLAIM))}")
    if partition not in PARTITIONS:
        raise ValueError(f"partition = {partition!r}; expected one of {', '.join(PARTITIONS)}")
    dataset = name_of(table)
    if method == FLAIM:
        config = config.override(OF_THE_TRIAL)
        request = flaim_request(
            config, dataset, clients, partition=partition, label=label, seed=seed
        )
        trial = trial_on(table, config, request)
        folder = open_flaim_folder(trial, place)
        return trial, folder, partial(run_flaim, trial, folder)
    trial = trial_on(table, config, Request(method, dataset, clients, partition, label, seed))
    folder = open_method_folder(trial, place)
    return trial, folder, partial(run_method, trial, folder)
