"""Server of a federation: admits participants, runs a method over them, leaves results and a transcript.

``run_federated_server`` serves one attempt at a run of any method. A ``FederationPlan`` is the method's run, and its
``ServerRun`` the method in one attempt: it runs against secure sums (`parties.federation.secure_sum`), and writes files
of its own. The ledger is durable: a charge is on disk before the request that it pays for. So is what a method keeps of
its finished rounds or sums: a server that restarts in the same folder continues after the last one; the round in
progress is lost, like a round whose participants are lost. Secret: with noise by the server the sums before their
noise, which are never written. Public: everything in the folder but ``store``, which holds ledger and journal.

    transcript.jsonl   every message, opening and charge (`protocols.transcript`)
    result.json        outcome, sums, ledger, bytes
    ...                the method's own files
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from parties.config import Config
from parties.federation import transcript_schema
from parties.federation.attendance import Attendance
from parties.federation.members import ClientsSetup, ConnectedClients, ConnectedClientsFactory
from parties.federation.messages import refusal_of
from parties.federation.release_statements import told_statements
from parties.federation.result import RESULT, server_document
from parties.federation.secure_sum import SecureSums
from parties.federation.session import FederationSession, open_session
from parties.federation.shown_status import watch_members
from parties.federation.tls_members import TlsClients
from parties.federation.transcript import FederationTranscript
from parties.observability.events import Progress
from parties.observability.heartbeat import Heartbeat
from parties.observability.status import Phase, RunInfo, RunStatus
from parties.session.enrollment import Enrollment
from parties.session.operator_commands import OperatorCommands
from parties.storage.files import write_json
from parties.storage.privacy_ledger import DurableLedger
from protocols.transcript import Value


@dataclass(frozen=True, slots=True)
class ComputedRun:
    """A computed run: fields of the transcript's note ``finished``, and the method's part of result.json."""

    note: Mapping[str, Value]
    document: Mapping[str, object]


Compute: TypeAlias = Callable[[SecureSums, DurableLedger, Heartbeat], Awaitable[ComputedRun]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRun:
    """A method's server in one attempt at a run.

    Attributes:
        compute: Runs the method while the heartbeat reports its activity, and writes the method's files. Raises
            MechanismError, StoreError.
        activity: Returns a step of a round, by its number, in words, for progress output.
        known: Numbers of the participants of earlier attempts.
        before: Number of participants in the last round of an earlier attempt, 0 before the first.
        resumed: Sentence on what this attempt goes on with; empty for the first one.
        needs_clients: False if only the result of earlier attempts' rounds is left to make.
    """

    compute: Compute
    activity: Callable[[str, int], str]
    known: Sequence[int]
    before: int
    resumed: str
    needs_clients: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationPlan:
    """One run of a method, at its server.

    Attributes:
        rho: Budget of the ledger, in zCDP; 0 if nothing is charged.
        rounds: Maximum number of rounds, or of sums.
        at_most: True if there may be fewer.
        digest: Hex digest of the settings that all participants have to share, besides the configuration.
        protocol: Name of the protocol in the transcript's header.
        facts: The method's part of the header.
        step_of: Function from a message to its step's name in the transcript.
        open: Returns the method's server in an attempt; None if the run was finished before. Raises StoreError,
            BudgetExceeded.
        tables: SQL of the tables of the method's journal.
    """

    rho: float
    rounds: int
    at_most: bool
    digest: str
    protocol: str
    facts: Mapping[str, Value]
    step_of: Callable[[bytes], str]
    open: Callable[[FederationSession], ServerRun | None]
    tables: Sequence[str] = ()


async def run_federated_server(
    config: Config,
    directory: Path,
    *,
    plan: FederationPlan,
    progress: Progress,
    closed: asyncio.Event,
    register: Path | None = None,
    meet: ConnectedClientsFactory = TlsClients,
    board: RunStatus | None = None,
    orders: OperatorCommands | None = None,
) -> None:
    """Serves the run of ``config`` in ``directory`` until it is finished.

    Args:
        plan: The method's run.
        closed: Set when no more participants will come.
        register: File of this server's studies, if not at its usual path.
        meet: Factory of the connected participants: over TLS, or over another transport.
        board: Run status, updated on the way.
        orders: Commands of the operator; they take effect before the next round.

    Raises ConfigError, CertificateError, StoreError (StudyReleased if another folder has released this configuration),
    CheckFailed (for an invalid transcript), TooFewClients, MechanismError (for example if the budget is spent already);
    the participants have been notified by then.
    """
    board, orders = board or RunStatus(RunInfo.of_federation(config)), orders or OperatorCommands()
    board.about = replace(board.about, rounds=plan.rounds, at_most=plan.at_most)
    progress = progress.also(board)
    with open_session(
        config,
        directory,
        rho=plan.rho,
        tables=plan.tables,
        register=register,
        progress=progress,
        status=board,
        orders=orders,
    ) as session:
        run = plan.open(session)
        if run is None:
            progress.event("finished", "the run was finished before; nothing is left to do")
            return
        record, ledger = session.begin(plan.protocol, plan.facts, plan.step_of)
        attempt = _Attempt(plan, session, run, record, ledger, progress, closed)
        document = await attempt.run_with_clients(meet)
        session.close()
        # result.json comes last: its existence says that the run is over.
        write_json(directory / RESULT, document, durable=True)
    progress.event("finished", "finished")


@dataclass(eq=False, slots=True)
class _Attempt:
    """One attempt at a run, once its folder is open. ``progress`` reports activities as well while the method runs."""

    plan: FederationPlan
    session: FederationSession
    run: ServerRun
    record: FederationTranscript
    ledger: DurableLedger
    progress: Progress
    closed: asyncio.Event
    sums: SecureSums | None = None

    @property
    def nothing_opened(self) -> bool:
        """True if nothing was opened: no earlier attempt has asked for anything, and none was revealed in this one."""
        earlier = self.session.earlier > 0 or bool(self.run.known)
        return not earlier and (self.sums is None or not self.sums.opened)

    async def run_with_clients(self, meet: ConnectedClientsFactory) -> Mapping[str, object]:
        """Admits participants and runs the method with them; returns the content of result.json.

        Raises the errors of the method, after notifying the participants.
        """
        session, config = self.session, self.session.config
        section = config.require_federation()
        enrolment = Enrollment.of(config, session.orders, session.database)

        def arrived() -> None:
            here, expected = len(members.present), len(members.names)
            text = f"{here} of {expected} {section.WHO} are connected"
            self.progress.event("clients", text, done=here)

        setup = ClientsSetup(
            config=config,
            files=session.files,
            workload_digest=self.plan.digest,
            log=self.record,
            on_change=arrived,
            admit=session.registered.check_client,
            rejected=session.status.rejected,
            enrolment=enrolment,
            known=self.run.known,
            statements=partial(told_statements, session.registered.register),
        )
        members = session.members = meet(setup)
        watch_members(session.status, members)
        async with members:
            self.progress.event("listening", f"taking {section.WHO} at {section.address}")
            try:
                return await self._compute(members, enrolment)
            except BaseException as error:
                if self.nothing_opened:
                    members.send_unopened()
                members.send_refusal(refusal_of(error))
                raise

    async def _compute(
        self, members: ConnectedClients, enrolment: Enrollment
    ) -> Mapping[str, object]:
        """Waits for participants, runs the method, says goodbye."""
        started, session = time.perf_counter(), self.session
        record, status = self.record, session.status
        if self.run.resumed:
            record.transcript.note(transcript_schema.EARLIER, spent=session.earlier)
            self.progress.event("resumed", self.run.resumed)
        attendance = Attendance(
            session.config,
            members,
            enrolment,
            session.orders,
            self.progress,
            self.closed,
            self.run.before,
        )
        if self.run.needs_clients:
            await attendance.gather()
        session.seconds["join"] = time.perf_counter() - started
        status.enter(Phase.COMPUTING)
        heartbeat = Heartbeat(self.progress, rounds=self.plan.rounds, activity=self._activity)
        self.progress = heartbeat.progress

        async def wait(number: int) -> None:
            await attendance.round(number)
            status.enter(Phase.COMPUTING)

        self.sums = SecureSums(
            session.config, members, record, wait=wait, keep=session.keep_statements
        )
        computed = await self.run.compute(self.sums, self.ledger, heartbeat)
        record.transcript.note(transcript_schema.FINISHED, **computed.note)
        # The goodbye comes before the result, which counts its bytes too.
        members.say_goodbye("the run is finished")
        session.seconds["total"] = time.perf_counter() - started
        who = session.config.require_federation().WHO
        common = server_document(self.ledger, record, members, who=who)
        return {**computed.document, **common, "seconds": dict(session.seconds)}

    def _activity(self) -> str | None:
        return None if self.record.at is None else self.run.activity(*self.record.at)
