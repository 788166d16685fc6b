"""Server of a federation: admits participants, runs the algorithm over them, leaves results and a transcript.

The ledger is durable: a charge is on disk before the request that it pays for. So are the sums
(`parties.federation.journal`). A server that restarts in the same folder continues after the last recorded sum; a sum
in progress is lost, like a sum whose participants are lost. Secret: with noise by the server the sums before their
noise, which are never written. Public: everything in the folder but ``store``, which holds ledger and sums.

    transcript.jsonl   every message, opening and charge (`protocols.transcript`)
    result.json        outcome, sums, ledger, bytes
    ...                the algorithm's own files
"""

import asyncio
import hashlib
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

from mechanisms.silos import Request
from parties.config import Config
from parties.federation import sums_schema
from parties.federation.algorithm import AlgorithmPlan, Outcome, plan_digest
from parties.federation.journal import SUM_TABLE_SQL, SumJournal
from parties.federation.members import ConnectedClients, ConnectedClientsFactory
from parties.federation.result import RESULT
from parties.federation.secure_sum import NetworkSilos
from parties.federation.session import ServerSession, open_session
from parties.federation.sum_parameters import check_silos
from parties.federation.sums_schema import silo_step_of
from parties.federation.tls_members import TlsClients
from parties.federation.transcript import FederationTranscript
from parties.foundation.version import version
from parties.observability.events import Progress
from parties.observability.heartbeat import Heartbeat
from parties.observability.status import RunInfo, RunStatus
from parties.session.operator_commands import OperatorCommands
from parties.storage.files import write_atomic
from parties.storage.privacy_ledger import DurableLedger
from protocols.transcript import Value


async def run_federated_server(
    config: Config,
    directory: Path,
    *,
    plan: AlgorithmPlan,
    progress: Progress,
    closed: asyncio.Event,
    register: Path | None = None,
    meet: ConnectedClientsFactory = TlsClients,
    board: RunStatus | None = None,
    orders: OperatorCommands | None = None,
) -> None:
    """Serves the run of ``config`` in ``directory`` until it is finished.

    Args:
        plan: The algorithm's plan.
        closed: Set when no more participants will come.
        register: File of this server's studies, if not at its usual path.
        board: Run status, updated on the way.
        orders: Commands of the operator.

    Raises ConfigError, CertificateError, StoreError, CheckFailed (for an invalid transcript), TooFewClients,
    MechanismError; the participants have been notified by then.
    """
    check_silos(config, plan)
    board = board or RunStatus(RunInfo.of_federation(config))
    # The run status counts sums as rounds.
    board.about = replace(board.about, rounds=plan.sums, at_most=True)
    progress = progress.also(board)
    with open_session(
        config,
        directory,
        plan.rho,
        tables=[SUM_TABLE_SQL],
        progress=progress,
        closed=closed,
        register=register,
        clients_factory=meet,
        board=board,
        orders=orders,
    ) as attempt:
        if (directory / RESULT).exists():
            progress.event("finished", "the run was finished before; nothing is left to do")
            return
        facts: dict[str, Value] = {
            "plan": cast("Value", dict(plan.document)),
            "plan_sha256": plan_digest(plan),
            "algorithm": "" if config.algorithm is None else config.algorithm[0],
            "version": version(),
            "rho_total": plan.rho,
        }
        record = attempt.open_transcript(sums_schema.SILOS_PROTOCOL, facts, naming=silo_step_of)
        attempt.registered.resume(len(attempt.before.entries))
        ledger = DurableLedger(attempt.database, plan.rho, first=record.charge)
        history = SumJournal(attempt.database)
        run = _SiloServerRun(config, directory, plan, ledger, record, history, attempt)
        known = range(len(config.require_federation().clients)) if history.asked else ()
        digest = plan_digest(plan)
        await attempt.serve(run.run_with_clients, record, ledger, digest=digest, known=known)
    progress.event("finished", "finished")


@dataclass(frozen=True, eq=False, slots=True)
class _SiloServerRun:
    """The algorithm's server in one attempt at a run."""

    config: Config
    directory: Path
    plan: AlgorithmPlan
    ledger: DurableLedger
    record: FederationTranscript
    history: SumJournal
    attempt: ServerSession

    async def run_with_clients(self, members: ConnectedClients) -> Mapping[str, object]:
        """Waits for participants, runs the algorithm, writes its files, says goodbye.

        Returns the content of result.json.
        """
        started, session = time.perf_counter(), self.attempt
        if self.history.asked:
            self.record.transcript.note(sums_schema.EARLIER, spent=self.ledger.spent)
            session.progress.event(
                "resumed", f"going on after sum {self.history.asked} of an attempt before this one"
            )
        least = self.config.require_federation().minimum
        attendance = session.attendance(members, least, self.history.survivors)
        await attendance.gather()
        session.begin_computing(started)
        heartbeat = Heartbeat(session.progress, rounds=self.plan.sums, activity=self._activity)
        session.progress = heartbeat.progress
        silos = NetworkSilos(
            self.config,
            members,
            self.record,
            self.ledger,
            self.history,
            wait=attendance.round,
            release=lambda: session.registered.release(session.present, len(self.ledger.entries)),
            done=self._sum_done,
        )
        async with heartbeat.running():
            outcome = await self.plan.serve(silos, say=self._say)
        await asyncio.to_thread(self._write, outcome)
        taken = silos.tally.taken + silos.tally.before
        self.record.transcript.note(sums_schema.FINISHED, sums=taken, clients=len(members.present))
        # The goodbye comes before the result, which counts its bytes too.
        members.say_goodbye("the run is finished")
        session.seconds["total"] = time.perf_counter() - started
        return self._document(members, silos, outcome)

    def _say(self, text: str) -> None:
        self.attempt.progress.event("algorithm", text)

    def _sum_done(self, number: int, request: Request) -> None:
        text = f"sum {number} of at most {self.plan.sums} done: {request.step}"
        self.attempt.progress.event("round-done", text, done=number)

    def _activity(self) -> str | None:
        return None if self.record.at is None else f"taking sum {self.record.at[1]}"

    def _write(self, outcome: Outcome) -> None:
        """Writes the algorithm's files, and their digests to the transcript."""
        digests: dict[str, Value] = {}
        for name, content in outcome.files.items():
            write_atomic(self.directory / name, content)
            digests[name] = hashlib.sha256(content).hexdigest()
        self.record.transcript.note(sums_schema.FILES, sha256=digests)

    def _document(
        self, members: ConnectedClients, silos: NetworkSilos, outcome: Outcome
    ) -> dict[str, object]:
        """Returns the content of result.json."""
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
            "silos_sent": _by_name(names, members.received),
            "silos_received": _by_name(names, members.sent),
            "by_kind": {way: dict(kinds) for way, kinds in self.record.by_kind.items()},
            "steps": {name: asdict(cost) for name, cost in self.record.by_step.items()},
            "lost": _by_name(names, members.lost),
            "seconds": dict(self.attempt.seconds),
        }


def _by_name(names: tuple[str, ...], by_number: Mapping[int, object]) -> dict[str, object]:
    return {names[number]: value for number, value in sorted(by_number.items())}
