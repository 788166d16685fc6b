"""Server of a method on rounds of exact sums: `mechanisms.silos.Silos` on secure sums over connected participants.

``silos_plan`` makes an algorithm's plan (`parties.federation.algorithm.AlgorithmPlan`) one that the server serves. In
``NetworkSilos`` each sum is over all connected participants. Sums of an earlier attempt are not taken again
(`parties.federation.journal`). Secret: with noise by the server the sums before their noise. Public: the returned sums.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from mechanisms.accounting import Ledger
from mechanisms.errors import RoundLost
from mechanisms.silos import MAX_PAYLOAD_BYTES, Request, Sum
from parties.config import Config
from parties.federation import sums_schema
from parties.federation.algorithm import AlgorithmPlan, Outcome, plan_digest
from parties.federation.journal import SUM_TABLE_SQL, SumJournal, SumTask, request_head
from parties.federation.messages import FederationMessage, MessageKind
from parties.federation.result import RESULT
from parties.federation.secure_sum import SecureSums
from parties.federation.server import ComputedRun, FederationPlan, ServerRun
from parties.federation.session import FederationSession
from parties.federation.sum_parameters import check_sums, silo_sum, silos_section
from parties.federation.sums_schema import FINISH, SILO_OPENED_SUM, SUM, silo_step_of
from parties.foundation.version import version
from parties.observability.heartbeat import Heartbeat
from parties.storage.files import write_atomic
from parties.storage.privacy_ledger import DurableLedger
from protocols.transcript import Value, round_ended
from secagg.errors import ParameterError, RoundAborted

_COUNTS = (
    "taken",
    "before",
    "given_up",
    "dropouts",
    "values",
    "least_survivors",
    "formula_sent",
    "formula_received",
    "reasons",
)
"""Counts of a run's sums in result.json."""


class NetworkSilos:
    """Secure sums of a run over all connected participants."""

    def __init__(
        self,
        sums: SecureSums,
        ledger: Ledger,
        history: SumJournal,
        *,
        request: Callable[[int, Sequence[int]], object] = lambda number, present: None,
        done: Callable[[int, Request], None] = lambda number, request: None,
    ) -> None:
        """Prepares the sums of an attempt at the run.

        Args:
            request: Called before the first request of a sum, with its number and participants.
            done: Called after a sum.
        """
        self._sums = sums
        self._ledger = ledger
        self._history = history
        self._request = request
        self._done = done
        self._number = 0
        self._before = history.asked

    @property
    def count(self) -> int:
        """See ``Silos``."""
        return len(self._sums.members.names)

    async def sum(self, request: Request) -> Sum:
        """See ``Silos``. Raises BudgetExceeded, TooFewClients and StoreError besides."""
        self._number = number = self._number + 1
        if number <= self._before:
            taken = self._history.taken(number, request)
            if taken is None:
                raise RoundLost(f"sum {number} was interrupted, or lost, before this attempt")
            self._sums.tally.before += 1
            return taken
        try:
            await self._sums.wait(number)
        except RoundLost:
            # The sum was never requested; later attempts have to treat it as lost as well.
            self._history.begin(number, request)
            raise
        # The journal entry comes before the charge: a charged sum is never requested and charged again.
        self._history.begin(number, request)
        if request.event is not None:
            self._ledger.charge(number, request.step, request.event)
        try:
            found = await self._take_sum(number, request)
        finally:
            self._sums.record.transcript.seal(round_ended(number))
        self._history.keep(number, found)
        self._done(number, request)
        return found

    async def _take_sum(self, number: int, request: Request) -> Sum:
        sums, record = self._sums, self._sums.record
        present = sorted(sums.members.present)
        self._request(number, present)
        record.transcript.note(
            sums_schema.ASKED,
            round=number,
            clients=len(present),
            head=request_head(request).decode(),
            payload_sha256=hashlib.sha256(request.payload).hexdigest(),
        )
        sums.begin_round(number, present)
        with record.step(SUM, number), sums.exchange(present) as exchange:
            body = SumTask(number, len(present), request).pack()
            try:
                spec = silo_sum(sums.config, request, len(present))
                server = await sums.take(exchange, spec, kind=MessageKind.REQUEST, body=body)
            except (RoundAborted, ParameterError) as error:
                sums.give_up(exchange, str(error))
                raise RoundLost(f"{request.step!r}, sum {number}: {error}") from error
            survivors = tuple(exchange.numbers[position] for position in sorted(server.survivors))
            # A sum without noise is either private by itself or not private at all; the transcript omits it.
            found, noisy = Sum(server.exact_result, survivors), request.noise is not None
            record.opening(number, SUM, SILO_OPENED_SUM, found.values, written=noisy)
        return found

    async def finish(self, payload: bytes) -> None:
        """See ``Silos``."""
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise ValueError(
                f"a result of {len(payload)} bytes; expected at most {MAX_PAYLOAD_BYTES}"
            )
        message = FederationMessage(MessageKind.RESULT, 0, payload).pack()
        members = self._sums.members
        with self._sums.record.step(FINISH, self._number):
            for member in list(members.present.values()):
                members.post(member, message)


def check_silos(config: Config, plan: AlgorithmPlan) -> None:
    """Raises ConfigError if some sum of the run would not protect a silo."""
    check_sums(config, silos_section(config), private_answers=plan.private_answers)


def silos_plan(config: Config, plan: AlgorithmPlan) -> FederationPlan:
    """Returns the run of an algorithm's ``plan``, as the server serves it. Raises ConfigError."""
    check_silos(config, plan)
    digest = plan_digest(plan)
    facts: dict[str, Value] = {
        "plan": cast("Value", dict(plan.document)),
        "plan_sha256": digest,
        "algorithm": "" if config.algorithm is None else config.algorithm[0],
        "version": version(),
        "rho_total": plan.rho,
    }
    return FederationPlan(
        rho=plan.rho,
        rounds=plan.sums,
        at_most=True,
        digest=digest,
        protocol=sums_schema.SILOS_PROTOCOL,
        facts=facts,
        step_of=silo_step_of,
        open=partial(_open, plan),
        tables=(SUM_TABLE_SQL,),
    )


def _open(plan: AlgorithmPlan, session: FederationSession) -> ServerRun | None:
    if (session.directory / RESULT).exists():
        return None
    history = SumJournal(session.database)
    asked = history.asked
    return ServerRun(
        compute=partial(_compute, plan, session, history),
        activity=lambda step, number: f"taking sum {number}",
        known=range(len(session.config.require_federation().clients)) if asked else (),
        before=history.survivors,
        resumed=f"going on after sum {asked} of an attempt before this one" if asked else "",
    )


async def _compute(
    plan: AlgorithmPlan,
    session: FederationSession,
    history: SumJournal,
    /,
    sums: SecureSums,
    ledger: DurableLedger,
    heartbeat: Heartbeat,
) -> ComputedRun:
    def done(number: int, request: Request) -> None:
        text = f"sum {number} of at most {plan.sums} done: {request.step}"
        heartbeat.progress.event("round-done", text, done=number)

    silos = NetworkSilos(sums, ledger, history, request=session.request_round, done=done)
    async with heartbeat.running():
        outcome = await plan.serve(
            silos, say=lambda text: heartbeat.progress.event("algorithm", text)
        )
    digests = await asyncio.to_thread(_write, session.directory, outcome)
    sums.record.transcript.note(sums_schema.FILES, sha256=digests)
    tally = sums.tally
    document = {
        "facts": dict(outcome.facts),
        "files": list(outcome.files),
        "tables": [[title, list(heads), list(rows)] for title, heads, rows in outcome.tables],
        "lines": [list(line) for line in outcome.lines],
        "guarantee": plan.guarantee,
        "private": plan.private,
        "sums": tally.counts(*_COUNTS),
    }
    note: dict[str, Value] = {
        "sums": tally.taken + tally.before,
        "clients": len(sums.members.present),
    }
    return ComputedRun(note, document)


def _write(directory: Path, outcome: Outcome) -> dict[str, Value]:
    """Writes the algorithm's files; returns their digests."""
    digests: dict[str, Value] = {}
    for name, content in outcome.files.items():
        write_atomic(directory / name, content)
        digests[name] = hashlib.sha256(content).hexdigest()
    return digests
