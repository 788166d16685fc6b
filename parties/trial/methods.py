"""The methods of `syncret run`: DistAIM by real processes, and central AIM in this one.

Provides ``run_method``. Secret: the trial's table.
"""

import time

from parties.distaim.report import run_report
from parties.progress import Progress
from parties.report.content import RunReport
from parties.trial.assemble import collect
from parties.trial.central import run_central
from parties.trial.folder import Folder
from parties.trial.launcher import launch
from parties.trial.request import Trial


async def run_method(trial: Trial, folder: Folder, progress: Progress) -> RunReport:
    """Run ``trial`` in ``folder`` by the method that it asks for; returns the report without utility.

    Raises as `parties.trial.launcher.launch` and `parties.trial.central.run_central`.
    """
    if trial.request.method == "aim":
        return await run_central(trial, folder, progress=progress)
    started = time.perf_counter()
    launched = await launch(trial, folder, progress=progress)
    collect(folder)
    return run_report(
        launched.config,
        trial.workload,
        folder.party(0),
        dataset=trial.request.dataset,
        clients=trial.partition.clients,
        wall_s={"total": time.perf_counter() - started, "setup": launched.setup_s},
    )
