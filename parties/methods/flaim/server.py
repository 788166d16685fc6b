"""The FLAIM server: Algorithm 1 over secure sums, in one attempt at a run.

``flaim_plan`` makes a run that `parties.federation.server` serves. The finished rounds are durable
(`parties.methods.flaim.history`). A server that restarts in the same folder continues after the last finished round;
the interrupted round is lost, like a round whose clients are lost. Without the first sums, or with an annealed
schedule, the run starts again with the rest of the budget. Secret: with ``noise = "server"`` the sums before their
noise, which are never written. Source: FLAIM paper, Algorithm 1.

    model/             the final model
    synthetic.csv      the synthetic table
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Ledger, Schedule
from mechanisms.descent import Target
from mechanisms.errors import BudgetExceeded
from mechanisms.events import Event
from mechanisms.flaim import (
    FlaimEstimator,
    FlaimMeasurement,
    FlaimResult,
    FlaimRound,
    Participant,
    last_round,
    next_round,
    round_events,
    run_flaim,
)
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.model import Model
from mechanisms.pair_choice import flaim_estimator
from mechanisms.workload import Workload
from parties.config import Config
from parties.federation.result import RESULT
from parties.federation.secure_sum import SecureSums, SumTally
from parties.federation.server import ComputedRun, FederationPlan, ServerRun
from parties.federation.session import FederationSession
from parties.foundation.errors import ConfigError
from parties.foundation.version import version
from parties.methods.flaim.federation import NetworkFederation
from parties.methods.flaim.history import RoundJournal
from parties.methods.flaim.report import write_flaim_quality
from parties.methods.flaim.settings import ORACLE, check_flaim
from parties.methods.flaim.transcript_schema import (
    AGGREGATE,
    CHOOSE,
    FLAIM_PROTOCOL,
    SELECTED,
    flaim_step_of,
)
from parties.mpc.outputs import write_synthetic
from parties.observability.heartbeat import Heartbeat
from parties.session.result_digests import NOTE, ResultDigests
from parties.session.study import Study
from parties.storage.privacy_ledger import DurableLedger
from protocols.transcript import Value, round_ended

_STEP_TEXTS = {CHOOSE: "clients choose", AGGREGATE: "taking sums"}


def flaim_plan(config: Config) -> FederationPlan:
    """Returns the run of ``config``, as the server serves it. Raises ConfigError."""
    if config.require_flaim().variant == ORACLE:
        raise ConfigError(
            config.source,
            "flaim.variant",
            "is 'oracle', which needs the pooled table; expected another one, or a simulation (syncret run "
            "--method flaim --simulate)",
        )
    study = Study.of(config)
    settings, digest = check_flaim(study), study.workload.digest()
    return FederationPlan(
        rho=settings.rho,
        rounds=last_round(settings, settings.schedule(len(settings.common(study.workload)))),
        at_most=settings.annealed,
        digest=digest,
        protocol=FLAIM_PROTOCOL,
        facts={
            "workload_sha256": digest,
            "version": version(),
            "variant": settings.variant,
            "noise": settings.noise,
            "rho_total": settings.rho,
        },
        step_of=flaim_step_of,
        open=partial(_open, study, settings),
    )


def _open(study: Study, settings: FlaimSettings, session: FederationSession) -> ServerRun | None:
    history = RoundJournal(session.database.directory / "rounds", study.workload)
    schedule = settings.schedule(len(settings.common(study.workload)))
    ended = (session.directory / RESULT).exists()
    if _is_over(study, settings, session.before, history=history, ended=ended):
        return None
    if settings.annealed:
        history.clear()
    elif history.rounds:
        charged = {entry.round: () for entry in session.before.entries}
        history.mark_lost({**charged, **dict(session.requested.entries)})
    number, resumed = next_round(settings, history.rounds), ""
    if session.earlier:
        then = f"going on with round {number}" if history.rounds else "beginning anew"
        resumed = (
            f"an attempt before this one has spent rho {session.earlier:.6g} of {settings.rho:.6g}; {then}, with the "
            "rest"
        )
    run = _FlaimRun(study, settings, schedule, session, history)
    return ServerRun(
        compute=run.compute,
        activity=run.activity,
        known=[one.client for one in history.population],
        before=len(history.population),
        resumed=resumed,
        # The server needs no clients if only the final model is left.
        needs_clients=not history.rounds or number <= last_round(settings, schedule),
    )


def _is_over(
    study: Study, settings: FlaimSettings, ledger: Ledger, *, history: RoundJournal, ended: bool
) -> bool:
    """True if a run that has ``ended``, with a result, has no further round within its schedule and budget.

    A run that was interrupted after its first sums still has its model to finish. Raises BudgetExceeded, before
    clients are invited, if there is no result and the budget does not cover the first sums.
    """
    workload = study.workload
    schedule = settings.schedule(len(settings.common(workload)))
    needed: Sequence[Event]
    if settings.annealed or not history.rounds:
        needed = (settings.sum_noise(schedule.sigma).event,) * len(settings.common(workload))
    elif not ended:
        return False
    else:
        number = next_round(settings, history.rounds)
        if number > last_round(settings, schedule):
            return True
        needed = round_events(workload, settings, schedule, number)
    try:
        ledger.require(needed)
    except BudgetExceeded:
        if ended:
            return True
        raise
    return False


@dataclass(frozen=True, eq=False, slots=True)
class _FlaimRun:
    """Algorithm 1 in one attempt at a run."""

    study: Study
    settings: FlaimSettings
    schedule: Schedule
    session: FederationSession
    history: RoundJournal

    def activity(self, step: str, number: int) -> str:
        """Returns a step of a round in words."""
        return f"{self.settings.round_text(number)}: {_STEP_TEXTS.get(step, step)}"

    async def compute(
        self, sums: SecureSums, ledger: DurableLedger, heartbeat: Heartbeat
    ) -> ComputedRun:
        """Runs the algorithm and writes its files."""
        workload, settings = self.study.workload, self.settings
        federation = NetworkFederation(
            sums,
            workload,
            settings,
            self.history.population,
            taken=chain.from_iterable(clients for _, clients in self.session.requested.entries),
            request=self.session.request_round,
        )
        inner = flaim_estimator(workload, settings)
        inner.on_iteration = heartbeat.iteration

        def on_round(done: FlaimRound) -> None:
            self._save(done, federation.population, sums, heartbeat)

        async with heartbeat.running():
            result = await run_flaim(
                workload,
                settings,
                self.schedule,
                federation,
                _TimedEstimator(inner, self.session.seconds, heartbeat),
                ledger,
                on_round=on_round,
                history=self.history.rounds,
            )
        written = await self._write(result, heartbeat)
        sums.record.transcript.note(NOTE, **written.to_dict())
        clients = len(federation.population)
        document = flaim_document(
            result,
            workload,
            settings,
            clients=clients,
            rows=written.rows,
            tally=sums.tally,
            earlier_rho=self.session.earlier,
        )
        return ComputedRun({"rounds": result.rounds_done, "clients": clients}, document)

    def _save(
        self,
        done: FlaimRound,
        population: Sequence[Participant],
        sums: SecureSums,
        heartbeat: Heartbeat,
    ) -> None:
        """Seals a finished round in the transcript and stores it."""
        if done.lost:
            text = f"round {self.settings.counted(done.round)} is lost: too few clients were left, nothing was opened"
        else:
            text = f"{self.settings.round_text(done.round)} done"
        chosen: list[Value] = [*sorted({m.candidate for m in done.measurements if not m.one_way})]
        transcript = sums.record.transcript
        transcript.note(SELECTED, round=done.round, candidates=chosen)
        transcript.seal(round_ended(done.round))
        # A round in the journal is in the sealed transcript.
        self.history.save(done, population)
        number = self.settings.counted(done.round)
        heartbeat.progress.event("round-done", text, done=number, lost=done.lost)

    async def _write(self, result: FlaimResult, heartbeat: Heartbeat) -> ResultDigests:
        started, directory = time.perf_counter(), self.session.directory
        heartbeat.progress.event("writing", "writing the synthetic table")
        written = await asyncio.to_thread(
            write_synthetic, directory, result.model, self.study.config, total=result.total
        )
        await asyncio.to_thread(
            write_flaim_quality,
            directory,
            self.study.workload,
            self.settings,
            result,
            codes=written.codes,
        )
        self.session.seconds["write"] = time.perf_counter() - started
        return written.said


def flaim_document(
    result: FlaimResult,
    workload: Workload,
    settings: FlaimSettings,
    *,
    clients: int,
    rows: int,
    tally: SumTally,
    earlier_rho: float = 0.0,
) -> dict[str, object]:
    """Returns FLAIM's part of result.json, of a deployed server or of a simulation.

    ``earlier_rho`` is the cost of earlier attempts.
    """
    chosen = [m for done in result.rounds for m in done.measurements if not m.one_way]
    deviations = [m.deviation for done in result.rounds for m in done.measurements]
    return {
        "variant": settings.variant,
        "rounds_done": result.rounds_done,
        "lost_rounds": list(result.lost_rounds),
        "stopped": result.stopped,
        "clients": clients,
        "rows_estimated": result.total,
        "synthetic_rows": rows,
        "rho_earlier": earlier_rho,
        "selected": [_selected(m, workload, result.total) for m in chosen],
        "participants": [
            {"round": done.round, "participants": len(done.participants), "lost": done.lost}
            for done in result.rounds
        ],
        "chosen_queries": result.chosen_queries,
        "single_choosers": result.single_choosers,
        "deviation": [min(deviations), max(deviations)] if deviations else [],
        "sums": {
            "secagg": tally.taken,
            **tally.counts(
                "plain",
                "plain_contributors",
                "given_up",
                "dropouts",
                "least_survivors",
                "reasons",
            ),
        },
    }


def _selected(measurement: FlaimMeasurement, workload: Workload, total: int) -> dict[str, object]:
    return {
        "round": measurement.round,
        "query": list(workload.candidates[measurement.candidate]),
        "clients": len(measurement.contributors),
        "rows_estimated": total,
        "sigma": measurement.deviation,
    }


class _TimedEstimator:
    """An estimator that counts its time."""

    def __init__(
        self, inner: FlaimEstimator, seconds: defaultdict[str, float], heartbeat: Heartbeat
    ) -> None:
        self._inner = inner
        self._seconds = seconds
        self._heartbeat = heartbeat

    async def estimate(
        self, targets: Sequence[tuple[int, Target]], *, spent: float, final: bool
    ) -> tuple[Model, NDArray[np.bool_]]:
        """See ``FlaimEstimator.estimate``."""
        started = time.perf_counter()
        try:
            with self._heartbeat.activity("estimating the model"):
                return await self._inner.estimate(targets, spent=spent, final=final)
        finally:
            self._seconds["estimate"] += time.perf_counter() - started
