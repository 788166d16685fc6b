"""The FLAIM server: admits its clients, runs Algorithm 1 over them, leaves model, table, result and transcript.

The ledger is durable: a charge is on disk before the request that it pays for. So are the finished rounds
(`parties.methods.flaim.history`). A server that restarts in the same folder continues after the last finished round;
the interrupted round is lost, like a round whose clients are lost. Without the first sums, or with an annealed
schedule, the run starts again with the rest of the budget. Secret: with ``noise = "server"`` the sums before their
noise, which are never written. Public: everything in the folder but ``store``, which holds the ledger and the finished
rounds. Source: FLAIM paper, Algorithm 1.

    transcript.jsonl   every message, opening and charge (`protocols.transcript`)
    result.json        rounds, choices, sums, ledger, bytes
    model/             the final model
    synthetic.csv      the synthetic table
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Ledger, LedgerEntry
from mechanisms.descent import Target
from mechanisms.errors import BudgetExceeded
from mechanisms.events import Event
from mechanisms.flaim import (
    FlaimEstimator,
    FlaimResult,
    FlaimRound,
    Participant,
    next_round,
    round_events,
    run_flaim,
)
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.model import Model
from mechanisms.pgm import FederatedEstimator
from mechanisms.workload import Workload
from parties.config import Config
from parties.federation import transcript_schema
from parties.federation.attendance import Attendance
from parties.federation.members import ConnectedClients, ConnectedClientsFactory
from parties.federation.result import RESULT, ServerFacts, flaim_document
from parties.federation.session import ServerSession, open_session
from parties.federation.tls_members import TlsClients
from parties.federation.transcript import FederationTranscript
from parties.federation.transcript_schema import AGGREGATE, CHOOSE
from parties.foundation.errors import ConfigError
from parties.foundation.version import version
from parties.methods.flaim.federation import NetworkFederation
from parties.methods.flaim.history import RoundJournal
from parties.methods.flaim.report import write_flaim_quality
from parties.methods.flaim.settings import check_flaim
from parties.mpc.outputs import write_synthetic
from parties.observability.events import Progress
from parties.observability.heartbeat import Heartbeat
from parties.observability.status import Phase, RunInfo, RunStatus
from parties.session.operator_commands import OperatorCommands
from parties.session.result_digests import NOTE, ResultDigests
from parties.session.study import Study
from parties.storage.privacy_ledger import DurableLedger
from protocols.transcript import Value, round_ended

ORACLE = "oracle"
_STEP_TEXTS = {CHOOSE: "clients choose", AGGREGATE: "taking sums"}


async def run_flaim_server(
    config: Config,
    directory: Path,
    *,
    progress: Progress,
    closed: asyncio.Event,
    register: Path | None = None,
    meet: ConnectedClientsFactory = TlsClients,
    board: RunStatus | None = None,
    orders: OperatorCommands | None = None,
) -> None:
    """Serves the run of ``config`` in ``directory`` until it is finished.

    Args:
        closed: Set when no more clients will come.
        register: File of this server's studies, if not at its usual path.
        meet: Factory of the connected clients: over TLS, or over another transport.
        board: Run status, updated on the way.
        orders: Commands of the operator; they take effect before the next round.

    Raises ConfigError, CertificateError, StoreError (StudyReleased if another folder has released this configuration),
    CheckFailed (for an invalid transcript), TooFewClients, MechanismError (for example if the budget is spent already);
    the clients have been notified by then.
    """
    if config.require_flaim().variant == ORACLE:
        raise ConfigError(
            config.source,
            "flaim.variant",
            "is 'oracle', which needs the pooled table; expected another one, or a simulation (syncret run "
            "--method flaim --simulate)",
        )
    board = board or RunStatus(RunInfo.of_federation(config))
    progress = progress.also(board)
    workload = config.build_workload()
    settings = check_flaim(Study(config, workload))
    with open_session(
        config,
        directory,
        settings.rho,
        progress=progress,
        closed=closed,
        register=register,
        clients_factory=meet,
        board=board,
        orders=orders,
    ) as attempt:
        before, database, registered = attempt.before, attempt.database, attempt.registered
        history = RoundJournal(database.directory / "rounds", workload)
        if _is_over(before, workload, settings, history, ended=(directory / RESULT).exists()):
            progress.event("finished", "the run was finished before; nothing is left to do")
            return
        if settings.annealed:
            history.clear()
        elif history.rounds:
            history.mark_lost(entry.round for entry in before.entries)
        facts: dict[str, Value] = {
            "workload_sha256": workload.digest(),
            "version": version(),
            "variant": settings.variant,
            "noise": settings.noise,
            "rho_total": settings.rho,
        }
        record = attempt.open_transcript(transcript_schema.FLAIM_PROTOCOL, facts)

        def first(entry: LedgerEntry) -> None:
            registered.release(attempt.present, len(ledger.entries))
            record.charge(entry)

        registered.resume(len(before.entries))
        ledger = DurableLedger(database, settings.rho, first=first)
        run = _FlaimServerRun(
            config, directory, workload, settings, ledger, record, history, attempt
        )
        await attempt.serve(
            run.run_with_clients,
            record,
            ledger,
            digest=workload.digest(),
            known=[one.client for one in history.population],
        )
    progress.event("finished", "finished")


def _is_over(
    ledger: Ledger,
    workload: Workload,
    settings: FlaimSettings,
    history: RoundJournal,
    *,
    ended: bool,
) -> bool:
    """True if a run that has ``ended``, with a result, has no further round within its schedule and budget.

    A run that was interrupted after its first sums still has its model to finish. Raises BudgetExceeded, before clients
    are invited, if there is no result and the budget does not cover the first sums.
    """
    schedule = settings.schedule(len(workload.domain.columns))
    needed: Sequence[Event]
    if settings.annealed or not history.rounds:
        needed = (settings.sum_noise(schedule.sigma).event,) * len(workload.one_way)
    elif not ended:
        return False
    else:
        number = next_round(settings, history.rounds)
        if number > schedule.rounds:
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
class _FlaimServerRun:
    """Algorithm 1 in one attempt at a run."""

    config: Config
    directory: Path
    workload: Workload
    settings: FlaimSettings
    ledger: DurableLedger
    record: FederationTranscript
    history: RoundJournal
    attempt: ServerSession

    async def run_with_clients(self, members: ConnectedClients) -> Mapping[str, object]:
        """Waits for clients, runs the algorithm, writes its files, says goodbye; returns the content of result.json."""
        started = time.perf_counter()
        session, before = self.attempt, self.history.rounds
        if session.earlier:
            self.record.transcript.note(transcript_schema.EARLIER, spent=session.earlier)
            number = next_round(self.settings, before)
            then = f"going on with round {number}" if before else "beginning anew"
            session.progress.event(
                "resumed",
                f"an attempt before this one has spent rho {session.earlier:.6g} of {self.settings.rho:.6g}; "
                f"{then}, with the rest",
            )
        schedule = self.settings.schedule(len(self.workload.domain.columns))
        # The server needs no clients if only the final model is left.
        ready = bool(before) and next_round(self.settings, before) > schedule.rounds
        attendance = session.attendance(
            members, self.settings.min_participants, len(self.history.population)
        )
        if not ready:
            await attendance.gather()
        session.begin_computing(started)
        federation = NetworkFederation(
            self.config,
            self.workload,
            self.settings,
            members,
            self.record,
            wait=self._wait(attendance),
            known=self.history.population,
        )
        inner = FederatedEstimator(
            self.workload,
            iterations=self.settings.round_iterations,
            final_iterations=self.settings.final_iterations,
            max_model_mb=self.settings.max_model_mb,
        )
        heartbeat = Heartbeat(session.progress, rounds=schedule.rounds, activity=self._activity)
        session.progress, inner.on_iteration = heartbeat.progress, heartbeat.iteration
        async with heartbeat.running():
            result = await run_flaim(
                self.workload,
                self.settings,
                schedule,
                federation,
                _TimedEstimator(inner, session.seconds, heartbeat),
                self.ledger,
                on_round=lambda done: self._round_done(done, federation.population),
                history=before,
            )
        written = await self._write(result)
        self.record.transcript.note(NOTE, **written.to_dict())
        self.record.transcript.note(
            transcript_schema.FINISHED,
            rounds=result.rounds_done,
            clients=len(federation.population),
        )
        # The goodbye comes before the result, which counts its bytes too.
        members.say_goodbye("the run is finished")
        names = members.names
        session.seconds["total"] = time.perf_counter() - started
        facts = ServerFacts(
            clients=len(federation.population),
            clients_sent={names[i]: count for i, count in sorted(members.received.items())},
            clients_received={names[i]: count for i, count in sorted(members.sent.items())},
            by_kind=self.record.by_kind,
            steps={name: asdict(cost) for name, cost in self.record.by_step.items()},
            sums=asdict(federation.tally),
            lost={names[i]: reason for i, reason in sorted(members.lost.items())},
            earlier_rho=session.earlier,
            seconds=dict(session.seconds),
            opened=self.record.opened,
        )
        return flaim_document(
            result, self.workload, self.settings, ledger=self.ledger, rows=written.rows, facts=facts
        )

    def _activity(self) -> str | None:
        """The request to the clients in words, for progress output."""
        if self.record.at is None:
            return None
        step, number = self.record.at
        return f"round {number} of {self.settings.rounds}: {_STEP_TEXTS.get(step, step)}"

    def _wait(self, attendance: Attendance) -> Callable[[int], Awaitable[None]]:
        async def wait(number: int) -> None:
            await attendance.round(number)
            self.attempt.board.enter(Phase.COMPUTING)

        return wait

    def _round_done(self, done: FlaimRound, population: Sequence[Participant]) -> None:
        if done.lost:
            text = f"round {done.round} is lost: too few clients were left, nothing was opened"
        else:
            text = f"round {done.round} of {self.settings.rounds} done"
        chosen: list[Value] = [*sorted({m.candidate for m in done.measurements if not m.one_way})]
        self.record.transcript.note(transcript_schema.SELECTED, round=done.round, candidates=chosen)
        self.record.transcript.seal(round_ended(done.round))
        # A round in the journal is in the sealed transcript.
        self.history.save(done, population)
        self.attempt.progress.event("round-done", text, done=done.round, lost=done.lost)

    async def _write(self, result: FlaimResult) -> ResultDigests:
        started = time.perf_counter()
        self.attempt.progress.event("writing", "writing the synthetic table")
        written = await asyncio.to_thread(
            write_synthetic, self.directory, result.model, self.config, total=result.total
        )
        await asyncio.to_thread(
            write_flaim_quality,
            self.directory,
            self.workload,
            self.settings,
            result,
            codes=written.codes,
        )
        self.attempt.seconds["write"] = time.perf_counter() - started
        return written.said


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
