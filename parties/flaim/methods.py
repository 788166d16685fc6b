"""FLAIM on one machine: by real processes, or simulated in this one.

Provides ``OF_THE_TRIAL``, ``flaim_request``, ``open_flaim_folder`` and ``run_flaim``. Secret: the trial's table.
"""

import time
from collections.abc import Mapping
from pathlib import Path

from parties.config import SILO_ALGORITHMS, Config
from parties.errors import ConfigError
from parties.flaim.feasible import check_flaim, check_whole_rows
from parties.flaim.launcher import SERVER, launch_flaim
from parties.flaim.report import flaim_report
from parties.flaim.server import ORACLE
from parties.flaim.sums import section_of
from parties.flaim.trial import run_simulation
from parties.progress import Progress
from parties.report.content import RunReport
from parties.report.result import read_result
from parties.trial.assemble import collect, open_run_folder
from parties.trial.folder import Folder
from parties.trial.request import Request, Trial

OF_THE_TRIAL: Mapping[str, object] = {
    "flaim.clients": None,
    "flaim.address": None,
    **dict.fromkeys(("silos", *SILO_ALGORITHMS)),
}
"""What a trial changes in a config: it makes names and an address of its own, and is of this method."""


def flaim_request(
    config: Config,
    dataset: str,
    clients: int | None,
    *,
    partition: str,
    label: str | None,
    seed: int,
    simulate: bool = False,
) -> Request:
    """The request for the variant that the config has. Raises ConfigError where its tables are not FLAIM's."""
    # Before a table is asked for in a way that FLAIM's commands have not.
    check_whole_rows(config)
    method = f"flaim-{section_of(config).variant}{'-simulated' if simulate else ''}"
    return Request(method, dataset, clients, partition, label, seed)


def open_flaim_folder(trial: Trial, out: Path | None, *, simulate: bool = False) -> Folder:
    """The run folder, as ``open_run_folder``. Raises ConfigError where processes cannot run it, StoreError."""
    if check_flaim(trial.config, trial.workload).variant == ORACLE and not simulate:
        raise ConfigError(
            trial.config.source,
            "flaim.variant",
            "is 'oracle', which needs the pooled table; expected another one, or --simulate",
        )
    return open_run_folder(trial, out, (SERVER,))


async def run_flaim(
    trial: Trial,
    folder: Folder,
    progress: Progress,
    *,
    simulate: bool = False,
    processes: int | None = None,
) -> RunReport:
    """Run ``trial`` in ``folder``; returns the report without utility.

    Raises as `parties.flaim.launcher.launch_flaim` and `parties.flaim.trial.run_simulation`.
    """
    started = time.perf_counter()
    if simulate:
        config, extra = trial.config, {}
        await run_simulation(trial, folder, progress=progress)
    else:
        launched = await launch_flaim(trial, folder, processes=processes, progress=progress)
        collect(folder)
        config, extra = launched.config, {"setup": launched.setup_s}
    return flaim_report(
        config,
        trial.workload,
        read_result(folder.party(0)),
        dataset=trial.request.dataset,
        wall_s={"total": time.perf_counter() - started, **extra},
        trial=True,
        transcript=None if simulate else folder.party(0) / "transcript.jsonl",
    )
