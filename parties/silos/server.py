"""The silos' server: takes the silos in, runs the algorithm's server over them, leaves what it made and a transcript.

Provides ``run_server``. The ledger is durable: a charge is on the disk before the silos are asked for what it pays for;
so are the sums (`parties.silos.history`). A server that is started again in the same folder goes on after the last of
them; one that was being taken is lost, as one is that loses its silos. Secret: with noise by the server the sums before
their noise, which are never written down. Public: everything in the folder but ``store``, which holds ledger and sums.

    transcript.jsonl   every message, opening and charge (`protocols.transcript`)
    result.json        what came out, sums, ledger, bytes
    ...                the algorithm's own files
"""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

from mechanisms.silos import Request
from parties.board import About, Board, Phase, Watched
from parties.config import CertificateFiles, Config
from parties.database import Database
from parties.enrolment import Enrolment
from parties.files import disk_errors, write_json, write_whole
from parties.flaim.attendance import Attendance
from parties.flaim.connections import Connections
from parties.flaim.members import Meeting, Members
from parties.flaim.record import Record
from parties.flaim.refusals import refusal_of
from parties.flaim.watching import watch_members, watch_orders, watch_run
from parties.ledger import LEDGER, DurableLedger, adopt_charges
from parties.orders import Orders
from parties.places import register_file
from parties.progress import Progress
from parties.pulse import Pulse
from parties.register import Registered, Study
from parties.silos import notes
from parties.silos.algorithm import Outcome, Plan, plan_digest
from parties.silos.algorithms import plan_of
from parties.silos.gathering import NetworkSilos
from parties.silos.history import SUMS, History
from parties.silos.steps import step_of
from parties.silos.sums import check_silos
from parties.tls import check_holder
from parties.trial.processes import allow_files
from parties.version import version
from protocols.transcript import Value

TRANSCRIPT = "transcript.jsonl"
RESULT = "result.json"


def own_files(config: Config) -> CertificateFiles:
    """The server's certificate files, checked. Raises ConfigError, CertificateError."""
    section = config.require_meeting()
    return check_holder(
        config.require_tls(name=section.server), section.pinned, f"{config.meeting}.server"
    )


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
    plan: Plan | None = None,
) -> None:
    """Serve the run of ``config`` in ``directory`` until it is finished.

    ``closed`` is set by whoever knows that no more silos will come; ``register`` is the file of this server's studies,
    if it has not its usual place; ``board`` is told what goes on; ``orders`` is what its operator asks; ``plan`` is the
    algorithm, if not the one whose table the config has. Raises ConfigError, CertificateError, StoreError, CheckFailed
    (of a transcript that is none), TooFewClients, MechanismError; the silos have been told by then.
    """
    board = board or Board(About.of_silos(config))
    progress = Watched(progress, board)
    section, files = config.require_meeting(), own_files(config)
    plan = plan or plan_of(config)
    check_silos(config, plan)
    allow_files()
    with Database(directory / "store", config.digest(), [LEDGER, SUMS]) as database:
        study = Study(config.digest(), section.server, config.run.id, database.identity, directory)
        registered = Registered.begin(register_file(register), study)
        if (directory / RESULT).exists():
            progress.event("finished", "the run was finished before; nothing is left to do")
            return
        before = DurableLedger(database, plan.rho)
        with disk_errors(directory):
            adopt_charges(before, directory / TRANSCRIPT, config.digest())
        orders = orders or Orders()
        orders.keep_in(database)
        record = _open_record(config, plan, directory, files, spent=before.spent)

        registered.resume(len(before.entries))
        ledger = DurableLedger(database, plan.rho, first=record.charge)
        run = _Run(
            config,
            directory,
            plan,
            ledger,
            record,
            History(database),
            progress,
            closed,
            registered,
            meet,
            board,
            orders,
            Enrolment.of(config, orders, database),
        )
        watch_orders(board, orders, section.server)
        watch_run(board, ledger, record, plan.rho)
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


def _open_record(
    config: Config, plan: Plan, directory: Path, files: CertificateFiles, *, spent: float
) -> Record:
    section = config.require_meeting()
    header: dict[str, Value] = {
        "protocol": notes.PROTOCOL,
        "run": config.run.id,
        "name": section.server,
        "config": cast("Value", config.agreed()),
        "config_sha256": config.digest(),
        "plan": cast("Value", dict(plan.document)),
        "plan_sha256": plan_digest(plan),
        "algorithm": "" if config.algorithm is None else config.algorithm[0],
        "version": version(),
        "rho_total": plan.rho,
    }
    path = directory / TRANSCRIPT
    return Record.open(path, files, section.clients, header=header, spent=spent, naming=step_of)


@dataclass(eq=False, slots=True)
class _Run:
    """One attempt at a run."""

    config: Config
    directory: Path
    plan: Plan
    ledger: DurableLedger
    record: Record
    history: History
    progress: Progress
    closed: asyncio.Event
    registered: Registered
    meet: Meeting
    board: Board
    orders: Orders
    enrolment: Enrolment
    members: Members | None = None
    document: dict[str, object] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def present(self) -> list[str]:
        """The silos that are connected."""
        present = self.members.present.values() if self.members else ()
        return [member.name for member in present]

    async def serve(self, files: CertificateFiles) -> None:
        """Open the connections, wait, run, write, say goodbye."""
        members = self.meet(
            self.config,
            files,
            workload_digest=plan_digest(self.plan),
            log=self.record,
            on_change=lambda: self._arrived(members),
            admit=self.registered.check_client,
            rejected=self.board.rejected,
            enrolment=self.enrolment,
            known=range(len(self.config.require_meeting().clients)) if self.history.asked else (),
        )
        self.members = members
        watch_members(self.board, members)
        async with members:
            address = self.config.require_meeting().address
            self.progress.event("listening", f"taking silos at {address}")
            try:
                await self._inside(members)
            except BaseException as error:
                members.dismiss(refusal_of(error))
                raise

    def _arrived(self, members: Members) -> None:
        here, expected = len(members.present), len(members.names)
        self.progress.event("clients", f"{here} of {expected} silos are connected", done=here)

    async def _inside(self, members: Members) -> None:
        started = time.perf_counter()
        if self.history.asked:
            self.record.transcript.note(notes.EARLIER, spent=self.ledger.spent)
            self.progress.event(
                "resumed", f"going on after sum {self.history.asked} of an attempt before this one"
            )
        attendance = self._attendance(members)
        await attendance.gather()
        self.seconds["join"] = time.perf_counter() - started
        self.board.enter(Phase.COMPUTING)
        pulse = Pulse(self.progress, rounds=self.plan.sums, doing=self._doing)
        self.progress = pulse
        silos = NetworkSilos(
            self.config,
            members,
            self.record,
            self.ledger,
            self.history,
            wait=attendance.round,
            release=lambda: self.registered.release(self.present, len(self.ledger.entries)),
            done=self._sum_done,
        )
        async with pulse.beating():
            outcome = await self.plan.serve(silos, say=self._say)
        await asyncio.to_thread(self._write, outcome)
        taken = silos.tally.taken + silos.tally.before
        self.record.transcript.note(notes.FINISHED, sums=taken, clients=len(members.present))
        # Before the result, which counts the bytes of these messages too.
        members.farewell("the run is finished")
        self.seconds["total"] = time.perf_counter() - started
        self.document = self._document(members, silos, outcome)

    def _say(self, text: str) -> None:
        self.progress.event("algorithm", text)

    def _sum_done(self, number: int, request: Request) -> None:
        text = f"sum {number} of at most {self.plan.sums} done: {request.step}"
        self.progress.event("round-done", text, done=number)

    def _doing(self) -> str | None:
        return None if self.record.at is None else f"taking sum {self.record.at[1]}"

    def _attendance(self, members: Members) -> Attendance:
        return Attendance(
            self.config,
            members,
            self.enrolment,
            self.orders,
            self.progress,
            self.closed,
            self.config.require_meeting().minimum,
            before=self.history.survivors,
        )

    def _write(self, outcome: Outcome) -> None:
        """The algorithm's files, and in the transcript their digests."""
        digests: dict[str, Value] = {}
        for name, content in outcome.files.items():
            write_whole(self.directory / name, content)
            digests[name] = hashlib.sha256(content).hexdigest()
        self.record.transcript.note(notes.FILES, sha256=digests)

    def _document(
        self, members: Members, silos: NetworkSilos, outcome: Outcome
    ) -> dict[str, object]:
        """The content of result.json."""
        names = members.names
        return {
            "facts": dict(outcome.facts),
            "files": list(outcome.files),
            "tables": [[title, list(heads), list(rows)] for title, heads, rows in outcome.tables],
            "lines": [list(line) for line in outcome.lines],
            "guarantee": self.plan.guarantee,
            "private": self.plan.private,
            "rho_total": self.plan.rho,
            "ledger": [entry.to_dict() for entry in self.ledger.entries],
            "opened": [asdict(item) for item in self.record.opened],
            "sums": asdict(silos.tally),
            "silos_sent": _named(names, members.received),
            "silos_received": _named(names, members.sent),
            "by_kind": {way: dict(kinds) for way, kinds in self.record.by_kind.items()},
            "steps": {name: asdict(cost) for name, cost in self.record.by_step.items()},
            "lost": _named(names, members.lost),
            "seconds": dict(self.seconds),
        }


def _named(names: tuple[str, ...], by_number: Mapping[int, object]) -> dict[str, object]:
    return {names[number]: value for number, value in sorted(by_number.items())}
