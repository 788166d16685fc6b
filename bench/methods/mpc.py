"""DistAIM as it is deployed, for the utility benchmark: three servers and all owners as processes, over mutual TLS.

Secret: shares and tables of a trial, in a temporary folder that is removed afterwards.
"""

import hashlib
import tempfile
from pathlib import Path

from bench.methods.problem import Outcome, Problem
from bench.methods.settings import Settings
from mechanisms.accounting import ZCDP
from mechanisms.gaussian_privacy import GAUSSIAN
from mechanisms.model import Model
from mechanisms.scores import AIM
from parties.config import ANNEALED, MAX_ROWS, config_from_dict
from parties.local.assemble import collect
from parties.local.folder import RunFolder
from parties.local.launcher import launch
from parties.local.request import Trial, TrialRequest
from parties.methods.distaim import run_report
from parties.observability.events import Progress
from parties.session.study import Study


async def run_distaim(settings: Settings, posed: Problem) -> Outcome:
    """Runs `settings` as `syncret run` would. Raises ConfigError, ChildFailed, StoreError, CertificateError."""
    trial = _trial(settings, posed)
    with tempfile.TemporaryDirectory(prefix="syncret-bench-") as place:
        folder = RunFolder(Path(place) / "run")
        folder.open(trial.fingerprint)
        launched = await launch(trial, folder, progress=Progress())
        collect(folder)
        report = run_report(
            Study(launched.config, posed.workload),
            folder.party(0),
            dataset=settings.dataset,
            clients=settings.clients,
            wall_s={"total": 0.0},
        )
        model = Model.load(folder.path / "model")
    if report.synthetic_rows is None:
        raise RuntimeError("the run wrote no synthetic table")
    # The servers keep no potentials.
    return Outcome(model, report.synthetic_rows, len(report.selected), (model, None))


def _trial(settings: Settings, posed: Problem) -> Trial:
    if posed.partition is None:
        raise ValueError("DistAIM needs a table that is split among owners")
    # The budget decides on the number of rounds of an annealed run.
    schedule = {"schedule": ANNEALED} if settings.annealed else {"rounds": settings.rounds}
    sections: dict[str, object] = {
        "run": {
            "id": f"bench-{settings.dataset}",
            "input": "counts",
            "epsilon": settings.epsilon,
            "delta": settings.delta,
            "rule": settings.rule,
            "accountant": ZCDP.name if settings.rule == AIM else GAUSSIAN,
            "measure_share": settings.measure_share,
            "iterations": settings.iterations,
            "final_iterations": settings.final_iterations,
            "max_model_mb": settings.max_model_mb,
            **schedule,
        },
        "workload": {
            "degree": settings.degree,
            "count": settings.queries,
            "seed": settings.workload_seed,
        },
        "clients": {
            "expected": settings.clients,
            "minimum": 1,
            "rows_per_client": min(len(posed.dataset.train), MAX_ROWS // settings.clients),
            "participation": settings.participation,
            "wait_s": 86400.0,
        },
    }
    document = sections | posed.dataset.domain.to_dict()
    config = config_from_dict(document, source="bench", base=Path.cwd())
    request = TrialRequest(
        "distaim",
        settings.dataset,
        settings.clients,
        settings.partition,
        None,
        settings.partition_seed,
    )
    fingerprint = hashlib.sha256(config.digest().encode()).hexdigest()
    return Trial(request, config, posed.workload, posed.dataset.train, posed.partition, fingerprint)
