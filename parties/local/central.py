"""Central AIM in this process, on the pooled table of a trial: the baseline of DistAIM.

Config, budget, rounds and estimator are the same as on shares; the noise is from the operating system's randomness.
Secret: the table, which this process holds. Source: FLAIM paper, Algorithm 2.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Ledger, Schedule
from mechanisms.aim import AimResult, Backend, Estimate, Estimator, Measurement, run_aim
from mechanisms.events import noise_deviation
from mechanisms.plaintext import PlaintextBackend, measure_fine
from mechanisms.resolving import coarse_measurement, resolve
from mechanisms.scores import ScoreSpec
from parties.local.folder import RunFolder
from parties.local.request import Trial
from parties.methods.distaim import attacker_on, report_notes
from parties.mpc.estimation import make_estimator
from parties.mpc.outputs import result_document, write_synthetic
from parties.mpc.planning.budget import make_plan, rule_of
from parties.mpc.quality import save_quality
from parties.mpc.steps import ESTIMATE
from parties.observability.events import Progress, round_text
from parties.observability.heartbeat import Heartbeat
from parties.report.from_result import run_parameters, selected_queries, sources_of, workload_size
from parties.report.model import Communication, Privacy, ReportedOpening, RunReport, SourceSize
from parties.report.privacy_text import report_header, unit_trust
from parties.session.study import Study
from protocols.steps import CHOICE, COUNTS, MEASURE, SELECT

AIM_TRUST = (
    "Central AIM: one process held the whole table. Nothing but the result protected anyone from whoever ran it.",
)


@dataclass(slots=True)
class _MeteredBackend:
    """A backend and an estimator that record seconds by phase and the openings."""

    backend: Backend
    estimator: Estimator
    plan: Schedule
    heartbeat: Heartbeat
    seconds: dict[str, float] = field(default_factory=dict)
    opened: list[ReportedOpening] = field(default_factory=list)
    round: int = 0

    async def begin_round(self, round: int) -> int:
        """See ``Backend.begin_round``."""
        self.round = round
        return await self.backend.begin_round(round)

    async def select(self, spec: ScoreSpec, scale: float) -> int:
        """See ``Backend.select``."""
        started = time.perf_counter()
        index = await self.backend.select(spec, scale)
        self._add_seconds(SELECT.name, started)
        self.opened.append(ReportedOpening(self.round, SELECT.name, CHOICE.what, 1))
        return index

    async def measure(self, candidate: int, sigma: float) -> NDArray[np.float64]:
        """See ``Backend.measure``."""
        started = time.perf_counter()
        noisy = await self.backend.measure(candidate, sigma)
        self._add_seconds(MEASURE.name, started)
        self.opened.append(ReportedOpening(self.round, MEASURE.name, COUNTS.what, noisy.size))
        return noisy

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        """See ``Estimator.estimate``."""
        started = time.perf_counter()
        with self.heartbeat.activity(f"{round_text(round, self.plan)}: estimating the model"):
            estimate = await self.estimator.estimate(measurements, round=round, final=final)
        self._add_seconds(ESTIMATE.name, started)
        return estimate

    def _add_seconds(self, phase: str, started: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - started


async def run_central(trial: Trial, folder: RunFolder, *, progress: Progress) -> RunReport:
    """Runs central AIM, writes model and table into ``folder``, and returns the report without utility.

    Raises StoreError, MechanismError.
    """
    started = time.perf_counter()
    folder.write_config(trial.config)
    plan = make_plan(trial.study)
    ledger = Ledger(plan.rho, accountant=plan.accountant)
    trial, history, opened = await asyncio.to_thread(_resolve_private_bins, trial, plan, ledger)
    config, workload = trial.config, trial.workload
    backend = PlaintextBackend.pooled(
        workload,
        plan,
        codes=trial.codes,
        ledger=ledger,
        random_bytes=secrets.token_bytes,
        measured=len(history),
    )
    estimator = make_estimator(Study(config, workload), plan)
    heartbeat = Heartbeat(progress, rounds=plan.rounds)
    estimator.on_iteration = heartbeat.iteration
    metered = _MeteredBackend(backend, estimator, plan, heartbeat, opened=opened)
    async with heartbeat.running():
        result = await run_aim(
            workload,
            plan,
            metered,
            metered,
            max_rows=config.max_rows,
            rule=rule_of(config),
            history=history,
            on_round=lambda record: heartbeat.progress.event(
                "rounds", f"{round_text(record.round, plan)} done", done=record.round
            ),
        )
    if estimator.model is None:
        raise RuntimeError("the final estimate made no model")
    writing = time.perf_counter()
    written = await asyncio.to_thread(
        write_synthetic, folder.path, estimator.model, config, total=result.total
    )
    save_quality(
        folder.party(0), Study(config, workload), result, model=estimator.model, codes=written.codes
    )
    seconds = {**metered.seconds, "write": time.perf_counter() - writing}
    return _report(
        trial,
        result,
        ledger,
        metered.opened,
        rows=written.said.rows,
        started=started,
        seconds=seconds,
    )


def _resolve_private_bins(
    trial: Trial, plan: Schedule, ledger: Ledger
) -> tuple[Trial, list[Measurement], list[ReportedOpening]]:
    """Returns the trial on its measured private bins, the measurements, and their openings."""
    fine = trial.config.domain
    histograms = measure_fine(
        fine, plan, codes=trial.codes, ledger=ledger, random_bytes=secrets.token_bytes
    )
    if not histograms:
        return trial, [], []
    domain = resolve(fine, histograms, noise_deviation(plan.noise, plan.initial_sigma))
    history = [
        coarse_measurement(domain, i, noisy, sigma=plan.initial_sigma, clients=1)
        for i, noisy in histograms.items()
    ]
    opened = [
        ReportedOpening(0, MEASURE.name, COUNTS.what, noisy.size) for noisy in histograms.values()
    ]
    return trial.on(domain), history, opened


def _sources(trial: Trial) -> tuple[SourceSize, ...]:
    """Sizes of the sources, with each owner's maximum number of rows, independent of the actual numbers."""
    most = trial.request.capacity or trial.config.clients.rows_per_client
    return sources_of(trial.config, dict.fromkeys(trial.names, most))


def _report(
    trial: Trial,
    result: AimResult,
    ledger: Ledger,
    opened: Sequence[ReportedOpening],
    *,
    rows: int,
    started: float,
    seconds: dict[str, float],
) -> RunReport:
    entries = tuple(ledger.entries)
    document = result_document(
        result,
        trial.workload,
        config=trial.config,
        rho_total=ledger.budget,
        ledger=entries,
    )
    total = time.perf_counter() - started
    return RunReport(
        method="aim",
        dataset=trial.request.dataset,
        parameters=run_parameters(trial.config, trial.partition.clients),
        privacy=Privacy(ledger.budget, entries),
        workload=workload_size(trial.workload, sources=_sources(trial)),
        communication=Communication(0.0, 0.0, {}, trial.workload.cells * 8 * 6 / 1e6),
        time_s={"total": total, **seconds, "other": max(0.0, total - sum(seconds.values()))},
        opened=tuple(opened),
        selected=selected_queries(document),
        seed=trial.config.run.seed,
        synthetic_rows=rows,
        rounds_done=result.rounds_done,
        trust=(
            *AIM_TRUST,
            *unit_trust(trial.config),
        ),
        notes=report_notes(document, trial.config),
        about=report_header(trial.config, ended=None),
        attacker=attacker_on(trial.study, ledger.budget),
    )
