"""The FLAIM server: takes its clients in, runs Algorithm 1 over them, leaves model, table, result and transcript.

Provides ``run_server``. The ledger is durable: a charge is on the disk before the clients are asked for what it pays
for; so are the finished rounds (`parties.flaim.history`). A server that is started again in the same folder goes on
after the last of them: the round that was interrupted is lost, as one is that loses its clients. Without the first
sums, or with an annealed schedule, it begins anew with what is left of the budget. Secret: with
``noise = "server"`` the sums before their noise, which are never written down. Public: everything in the folder but
``store``, which holds the ledger and the finished rounds. Source: FLAIM paper, Algorithm 1.

    transcript.jsonl   every message, opening and charge (`protocols.transcript`)
    result.json        rounds, choices, sums, ledger, bytes
    model/             the final model
    synthetic.csv      the synthetic table
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

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
from parties.board import About, Board, Phase, Watched
from parties.config import CertificateFiles, Config
from parties.database import Database
from parties.distaim.outputs import write_synthetic
from parties.enrolment import Enrolment
from parties.errors import ConfigError
from parties.files import disk_errors, write_json
from parties.flaim import notes
from parties.flaim.attendance import Attendance
from parties.flaim.connections import Connections
from parties.flaim.feasible import check_flaim
from parties.flaim.federation import NetworkFederation
from parties.flaim.history import History
from parties.flaim.members import Meeting, Members
from parties.flaim.quality import keep_quality
from parties.flaim.record import Record
from parties.flaim.refusals import refusal_of
from parties.flaim.result import RESULT, ServerFacts, flaim_document
from parties.flaim.steps import AGGREGATE, CHOOSE
from parties.flaim.watching import watch_members, watch_orders, watch_run
from parties.ledger import LEDGER, DurableLedger, adopt_charges
from parties.orders import Orders
from parties.places import register_file
from parties.progress import Progress
from parties.published import NOTE, Published
from parties.pulse import Pulse
from parties.register import Registered, Study
from parties.tls import check_holder
from parties.trial.processes import allow_files
from parties.version import version
from protocols.transcript import Value, round_ended

ORACLE = "oracle"
TRANSCRIPT = "transcript.jsonl"
_WORDS = {CHOOSE: "clients choose", AGGREGATE: "taking sums"}


def own_files(config: Config) -> CertificateFiles:
    """The server's certificate files, checked. Raises ConfigError, CertificateError."""
    section = config.require_flaim()
    return check_holder(config.require_tls(name=section.server), section.pinned, "flaim.server")


async def run_server(
    config: Config,
    directory: Path,
    *,
    progress: Progress,
    closed: asyncio.Event,
    register: Path | None = None,
    meet: Meeting = Connections,
    board: Board | None = None,
    orders: Orders | None = None,
) -> None:
    """Serve the run of ``config`` in ``directory`` until it is finished.

    ``closed`` is set by whoever knows that no more clients will come; ``register`` is the file of this server's
    studies, if it has not its usual place; ``meet`` makes its members: over TLS, or what else carries
    messages; ``board`` is told what goes on;
    ``orders`` is what its operator asks, now or later, and is done before the next round. Raises ConfigError,
    CertificateError, StoreError (with StudyReleased where another folder has released this configuration), CheckFailed
    (of a transcript that is none), TooFewClients, MechanismError (the budget is spent already, among others); the
    clients have been told by then.
    """
    board = board or Board(About.of_flaim(config))
    progress = Watched(progress, board)
    section = config.require_flaim()
    if section.variant == ORACLE:
        raise ConfigError(
            config.source,
            "flaim.variant",
            "is 'oracle', which needs the pooled table; expected another one, or a simulation (syncret flaim "
            "--simulate)",
        )
    files = own_files(config)
    workload = config.build_workload()
    settings = check_flaim(config, workload)
    allow_files()
    with Database(directory / "store", config.digest(), [LEDGER]) as database:
        study = Study(config.digest(), section.server, config.run.id, database.identity, directory)
        registered = Registered.begin(register_file(register), study)
        before = DurableLedger(database, settings.rho)
        with disk_errors(directory):
            adopt_charges(before, directory / TRANSCRIPT, config.digest())
        earlier = before.spent
        orders = orders or Orders()
        orders.keep_in(database)
        history = History(database.directory / "rounds", workload)
        if _is_over(before, workload, settings, history, ended=(directory / RESULT).exists()):
            progress.event("finished", "the run was finished before; nothing is left to do")
            return
        if settings.annealed:
            history.clear()
        elif history.rounds:
            history.give_up(entry.round for entry in before.entries)
        record = _open_record(config, directory, files, workload, settings, spent=earlier)

        def first(entry: LedgerEntry) -> None:
            registered.release(run.present, len(ledger.entries))
            record.charge(entry)

        registered.resume(len(before.entries))
        ledger = DurableLedger(database, settings.rho, first=first)
        run = _Run(
            config,
            directory,
            workload,
            settings,
            ledger,
            record,
            history,
            progress,
            closed,
            earlier,
            registered.check_client,
            meet,
            board,
            orders,
            Enrolment.of(config, orders, database),
        )
        watch_orders(board, orders, section.server)
        watch_run(board, ledger, record, settings.rho)
        try:
            with disk_errors(directory):
                await run.serve(files)
                record.transcript.close()
                # The last of all: where it is there, the run is over.
                write_json(directory / RESULT, run.document, durable=True)
        except BaseException as error:
            with contextlib.suppress(OSError, ValueError):
                record.transcript.close(f"failed: {refusal_of(error).words}")
            raise
        finally:
            board.freeze()
    progress.event("finished", "finished")


def _is_over(
    ledger: Ledger, workload: Workload, settings: FlaimSettings, history: History, *, ended: bool
) -> bool:
    """Whether a run that has ``ended``, with a result, has no further round, or none that is covered.

    One that was interrupted after its first sums has its model to finish. Raises BudgetExceeded, before anybody is
    asked to come, where there is no result and the first sums are not covered.
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


def _open_record(
    config: Config,
    directory: Path,
    files: CertificateFiles,
    workload: Workload,
    settings: FlaimSettings,
    *,
    spent: float,
) -> Record:
    header: dict[str, Value] = {
        "protocol": notes.PROTOCOL,
        "run": config.run.id,
        "name": config.require_flaim().server,
        "config": cast("Value", config.agreed()),
        "config_sha256": config.digest(),
        "workload_sha256": workload.digest(),
        "version": version(),
        "variant": settings.variant,
        "noise": settings.noise,
        "rho_total": settings.rho,
    }
    return Record.open(
        directory / TRANSCRIPT,
        files,
        config.require_flaim().clients,
        header=header,
        spent=spent,
    )


@dataclass(eq=False, slots=True)
class _Run:
    """One attempt at a run."""

    config: Config
    directory: Path
    workload: Workload
    settings: FlaimSettings
    ledger: DurableLedger
    record: Record
    history: History
    progress: Progress
    closed: asyncio.Event
    earlier: float
    admit: Callable[[str], object]
    meet: Meeting
    board: Board
    orders: Orders
    enrolment: Enrolment
    members: Members | None = None
    document: dict[str, object] = field(default_factory=dict)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def present(self) -> list[str]:
        """The clients that are connected."""
        present = self.members.present.values() if self.members else ()
        return [member.name for member in present]

    async def serve(self, files: CertificateFiles) -> None:
        """Open the connections, wait, run, write, say goodbye."""
        members = self.meet(
            self.config,
            files,
            workload_digest=self.workload.digest(),
            log=self.record,
            on_change=lambda: self._arrived(members),
            admit=self.admit,
            rejected=self.board.rejected,
            enrolment=self.enrolment,
            known=[one.client for one in self.history.population],
        )
        self.members = members
        watch_members(self.board, members)
        async with members:
            address = self.config.require_flaim().address
            self.progress.event("listening", f"taking clients at {address}")
            try:
                await self._inside(members)
            except BaseException as error:
                members.dismiss(refusal_of(error))
                raise

    def _arrived(self, members: Members) -> None:
        here, expected = len(members.present), len(members.names)
        self.progress.event("clients", f"{here} of {expected} clients are connected", done=here)

    async def _inside(self, members: Members) -> None:
        started = time.perf_counter()
        before = self.history.rounds
        if self.earlier:
            self.record.transcript.note(notes.EARLIER, spent=self.earlier)
            number = next_round(self.settings, before)
            then = f"going on with round {number}" if before else "beginning anew"
            self.progress.event(
                "resumed",
                f"an attempt before this one has spent rho {self.earlier:.6g} of {self.settings.rho:.6g}; "
                f"{then}, with the rest",
            )
        schedule = self.settings.schedule(len(self.workload.domain.columns))
        # Nobody is waited for where only the model is left to be made.
        ready = bool(before) and next_round(self.settings, before) > schedule.rounds
        attendance = self._attendance(members)
        if not ready:
            await attendance.gather()
        self.seconds["join"] = time.perf_counter() - started
        self.board.enter(Phase.COMPUTING)
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
        pulse = Pulse(self.progress, rounds=schedule.rounds, doing=self._doing)
        self.progress, inner.on_iteration = pulse, pulse.iteration
        async with pulse.beating():
            result = await run_flaim(
                self.workload,
                self.settings,
                schedule,
                federation,
                _Timed(inner, self, pulse),
                self.ledger,
                on_round=lambda done: self._round_done(done, federation.population),
                history=before,
            )
        written = await self._write(result)
        self.record.transcript.note(NOTE, **written.to_dict())
        self.record.transcript.note(
            notes.FINISHED, rounds=result.rounds_done, clients=len(federation.population)
        )
        # Before the result, which counts the bytes of these messages too.
        members.farewell("the run is finished")
        names = members.names
        self.seconds["total"] = time.perf_counter() - started
        facts = ServerFacts(
            clients=len(federation.population),
            clients_sent={names[i]: count for i, count in sorted(members.received.items())},
            clients_received={names[i]: count for i, count in sorted(members.sent.items())},
            by_kind=self.record.by_kind,
            steps={name: asdict(cost) for name, cost in self.record.by_step.items()},
            sums=asdict(federation.tally),
            lost={names[i]: reason for i, reason in sorted(members.lost.items())},
            earlier_rho=self.earlier,
            seconds=dict(self.seconds),
            opened=self.record.opened,
        )
        self.document = flaim_document(
            result, self.workload, self.settings, ledger=self.ledger, rows=written.rows, facts=facts
        )

    def _doing(self) -> str | None:
        """What clients are asked for, in words."""
        if self.record.at is None:
            return None
        step, number = self.record.at
        return f"round {number} of {self.settings.rounds}: {_WORDS.get(step, step)}"

    def _attendance(self, members: Members) -> Attendance:
        return Attendance(
            self.config,
            members,
            self.enrolment,
            self.orders,
            self.progress,
            self.closed,
            self.settings.min_participants,
            before=len(self.history.population),
        )

    def _wait(self, attendance: Attendance) -> Callable[[int], Awaitable[None]]:
        async def wait(number: int) -> None:
            await attendance.round(number)
            self.board.enter(Phase.COMPUTING)

        return wait

    def _round_done(self, done: FlaimRound, population: Sequence[Participant]) -> None:
        if done.lost:
            text = f"round {done.round} is lost: too few clients were left, nothing was opened"
        else:
            text = f"round {done.round} of {self.settings.rounds} done"
        chosen: list[Value] = [*sorted({m.candidate for m in done.measurements if not m.one_way})]
        self.record.transcript.note(notes.SELECTED, round=done.round, candidates=chosen)
        self.record.transcript.seal(round_ended(done.round))
        # What is here is in the sealed transcript.
        self.history.save(done, population)
        self.progress.event("round-done", text, done=done.round, lost=done.lost)

    async def _write(self, result: FlaimResult) -> Published:
        started = time.perf_counter()
        self.progress.event("writing", "writing the synthetic table")
        written = await asyncio.to_thread(
            write_synthetic, self.directory, result.model, self.config, total=result.total
        )
        await asyncio.to_thread(
            keep_quality,
            self.directory,
            self.workload,
            self.settings,
            result,
            codes=written.codes,
        )
        self.seconds["write"] = time.perf_counter() - started
        return written.said


class _Timed:
    """An estimator whose time is noted."""

    def __init__(self, inner: FlaimEstimator, run: _Run, pulse: Pulse) -> None:
        self._inner = inner
        self._run = run
        self._pulse = pulse

    async def estimate(
        self, targets: Sequence[tuple[int, Target]], *, spent: float, final: bool
    ) -> tuple[Model, NDArray[np.bool_]]:
        """See ``FlaimEstimator.estimate``."""
        started = time.perf_counter()
        try:
            with self._pulse.during("estimating the model"):
                return await self._inner.estimate(targets, spent=spent, final=final)
        finally:
            self._run.seconds["estimate"] += time.perf_counter() - started
