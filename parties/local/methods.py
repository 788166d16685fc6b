"""Methods of `syncret run`: DistAIM by real processes, and central AIM in this process.

Secret: the trial's table.
"""

import time
from collections.abc import Mapping
from pathlib import Path

from parties.config import Config
from parties.local.assemble import collect, open_run_folder
from parties.local.central import run_central
from parties.local.children import Children
from parties.local.folder import SERVER_FOLDERS, RunFolder
from parties.local.launcher import launch
from parties.local.request import Trial, TrialRequest, load_linked_trial, load_trial
from parties.local.sources import LocatedTable
from parties.methods.distaim import run_report
from parties.mpc.planning.budget import make_plan
from parties.observability.events import Progress
from parties.report.model import RunReport
from parties.session.owner import Table
from parties.session.study import Study


def trial_from_tables(
    table: Table | Mapping[str, Table], config: Config, request: TrialRequest
) -> Trial:
    """Returns the trial on one table, or on its sources' tables by name.

    Raises as ``load_trial`` and ``load_linked_trial``, and DataError if a table cannot be read.
    """
    if isinstance(table, Mapping):
        located = {name: LocatedTable(t.text(config), t.source.shown) for name, t in table.items()}
        extra = any(t.ignore_extra for t in table.values())
        return load_linked_trial(config, located, request, ignore_extra=extra)
    return load_trial(
        config,
        table.text(config),
        request,
        source=table.source.shown,
        ignore_extra=table.ignore_extra,
    )


def open_method_folder(trial: Trial, out: Path | None) -> RunFolder:
    """Opens the run folder, as ``open_run_folder``. Raises ConfigError if the run cannot work, StoreError."""
    # Servers refuse a noise that cannot be sampled as well; this check comes before the folder exists.
    make_plan(trial.study)
    return open_run_folder(trial.config.run.id, trial.fingerprint, out, servers=SERVER_FOLDERS)


async def run_method(
    trial: Trial, folder: RunFolder, progress: Progress, *, children: Children | None = None
) -> RunReport:
    """Runs ``trial`` in ``folder`` by the requested method; returns the report without utility.

    ``children`` are DistAIM's processes, if they are held already. Raises as `parties.local.launcher.launch` and
    `parties.local.central.run_central`.
    """
    if trial.request.method == "aim":
        return await run_central(trial, folder, progress=progress)
    started = time.perf_counter()
    launched = await launch(trial, folder, progress=progress, children=children)
    collect(folder)
    return run_report(
        Study(launched.config, trial.workload),
        folder.party(0),
        dataset=trial.request.dataset,
        clients=trial.partition.clients,
        wall_s={"total": time.perf_counter() - started, "setup": launched.setup_s},
    )
