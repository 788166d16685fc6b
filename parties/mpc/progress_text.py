"""Progress texts and status sources of a compute server.

``activity_text`` describes the current step from its name and round, which all three servers have alike.
``peer_wait_notice`` reports servers that are missing from the mesh, their addresses, and the reasons;
``report_resume`` the point from which the three servers go on.
``observe_store``, ``observe_mesh`` and ``observe_admission`` feed the status of a running server: participants, spent
budget, costs of steps. ``participant_statuses`` and ``budget_use`` read the same tables of a store that is not in use
(`parties.service.offline_status`).

Public: names, addresses, times, reasons, charges.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from mechanisms.accounting import Schedule
from parties.config import Config
from parties.mpc.agreement import ResumePoint
from parties.mpc.exclusion import Exclusion
from parties.mpc.participants.admission import Admission
from parties.mpc.records import ParticipantRecord
from parties.mpc.steps import (
    AGREE,
    CLIENTS_CHECK,
    CLIENTS_COMPARE,
    CLIENTS_COUNT,
    COMMIT,
    ESTIMATE,
    FINISH,
    OF_PROOFS,
)
from parties.mpc.storage.participant_records import PARTICIPANT_RECORD_QUERY
from parties.observability.events import Progress, round_text
from parties.observability.heartbeat import Throttle, duration_text
from parties.observability.status import (
    BudgetUse,
    ParticipantState,
    ParticipantStatus,
    RunStatus,
    StepTotals,
)
from parties.storage.database import Database, Row
from protocols.context import Costs, StepCost
from protocols.steps import (
    COUNT_CELLS,
    COUNT_FACTORS,
    COUNT_ROWS,
    LINK_ALIGN,
    MEASURE,
    MEASURE_NOISE,
    MEASURE_OPEN,
    OF_COUNTING,
    OF_LINKING,
    OF_RECODING,
    SELECT,
    SELECT_BITS,
    SELECT_CHOOSE,
    SELECT_SCORES,
)

if TYPE_CHECKING:
    # Only servers have what it needs.
    from protocols.runtime import PartyRuntime

_TEXTS: Mapping[str, str] = {
    AGREE.name: "agreeing with the other servers on the state of the run",
    CLIENTS_COMPARE.name: "adding the data owners' counts",
    CLIENTS_CHECK.name: "checking the bounds of data owners' counts",
    **{
        step.name: "counting data owners' rows"
        for step in (CLIENTS_COUNT, *OF_RECODING, *OF_COUNTING)
    },
    COUNT_ROWS.name: "counting rows",
    COUNT_FACTORS.name: "counting rows",
    COUNT_CELLS.name: "counting rows",
    **{step.name: "linking the sources' rows" for step in (LINK_ALIGN, *OF_LINKING)},
    COMMIT.name: "recording the inputs of the round",
    ESTIMATE.name: "estimating the model",
    SELECT.name: "comparing the model with the counts",
    SELECT_BITS.name: "comparing the model with the counts",
    SELECT_SCORES.name: "comparing the model with the counts",
    SELECT_CHOOSE.name: "choosing a query",
    MEASURE.name: "measuring",
    MEASURE_NOISE.name: "sampling noise",
    MEASURE_OPEN.name: "measuring",
    FINISH.name: "writing model and table",
    **{step.name: "proving the computation" for step in OF_PROOFS},
}
_LEAD_STEPS = (ESTIMATE.name, FINISH.name)


def activity_text(costs: Costs, plan: Schedule, *, lead: bool) -> str | None:
    """Description of the current step; None while the servers wait for participants, which other events report."""
    if not costs.steps or costs.steps[-1].step not in _TEXTS:
        return None
    step = costs.steps[-1]
    words = _TEXTS[step.step]
    if step.step in _LEAD_STEPS and not lead:
        words = f"party 0 is at work: {words}"
    return words if step.round is None else f"{round_text(step.round, plan)}: {words}"


def report_resume(
    progress: Progress, plan: Schedule, resumed: ResumePoint, *, pid: int, names: Sequence[str]
) -> None:
    """Reports to the operator of server ``pid`` the point from which the three servers ``names`` go on."""
    found = resumed.conclusion
    for claimant, entries in enumerate(found.claimed):
        if entries and claimant != pid:
            text = (
                f"{names[claimant]} says that it has charged {len(entries)} openings that neither other server has: "
                "only that server counts them"
            )
            progress.event("claimed", text)
    if found.contradicted:
        text = (
            f"two servers have different records of the values opened in round "
            f"{', '.join(map(str, found.contradicted))}: one record is false; values that no two of the three servers "
            "record alike are lost"
        )
        progress.event("contradicted", text)
    if found.lost:
        text = (
            f"only this server recorded the values opened in round {', '.join(map(str, found.lost))}: they are lost, "
            "and their charge stays spent"
        )
        progress.event("lost", text)
    if resumed.last_round is not None:
        text = f"going on after {round_text(resumed.last_round, plan)}"
        progress.event("resumed", text, round=resumed.last_round)


_FIRST_NOTICE_S, _PEER_POLL_S = 2.0, 0.5
"""Delay of the first notice, and poll interval, in seconds; servers that start together meet before the notice."""


@contextlib.asynccontextmanager
async def peer_wait_notice(
    runtime: "PartyRuntime", config: Config, status: RunStatus, progress: Progress
) -> AsyncIterator[None]:
    """Reports missing servers at intervals, while the block waits for the mesh."""
    throttle, parties = Throttle(), config.require_parties()
    left_s = config.timeouts.connect_s

    async def look() -> None:
        nonlocal left_s
        await asyncio.sleep(_FIRST_NOTICE_S)
        left_s -= _FIRST_NOTICE_S
        while True:
            missing = runtime.missing()
            for pid in status.about.peers:
                status.peer(pid, connected=pid not in missing, problem=missing.get(pid, ""))
            who = "; ".join(
                f"server {pid} ({parties[pid].name}) at {parties[pid].mesh}: {problem}"
                for pid, problem in missing.items()
            )
            # The same servers with another reason are not reported again.
            if missing and throttle.due(repr(sorted(missing))):
                text = f"waiting for the other servers, for {duration_text(left_s)} more: {who}"
                progress.event("connecting", text)
            await asyncio.sleep(_PEER_POLL_S)
            left_s -= _PEER_POLL_S

    task = asyncio.create_task(look())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


Rows = Callable[[str], Sequence[Row]]
"""Query function that returns all rows."""
_NEWEST = "SELECT client, max(received_at) FROM submission GROUP BY client"
_REMOVED_STATES = {
    Exclusion.WITHDRAWN: ParticipantState.WITHDRAWN,
    Exclusion.REVOKED: ParticipantState.REVOKED,
}
_WAITING = "SELECT client, pid FROM outbox WHERE refused IS NULL ORDER BY pid"


def observe_store(
    status: RunStatus,
    store: Database,
    names: Sequence[str],
    *,
    rho: float,
    enrolled: Collection[str],
) -> None:
    """Makes ``status`` show the content of a server's store from now on; ``names`` are the three servers'."""
    status.sources.owners = lambda: participant_statuses(store.rows, names, enrolled=enrolled)
    status.sources.spent = lambda: budget_use(store.rows, rho)


def observe_mesh(status: RunStatus, runtime: "PartyRuntime", progress: Progress) -> None:
    """Makes ``status`` show costs of steps and round-trip times, and the bus follow the steps, from now on."""
    status.sources.steps = lambda: step_totals(list(runtime.costs.steps))
    status.sources.round_trip_s = runtime.round_trip_s
    runtime.costs.watch = lambda step: progress.step(step.step, step.round, lambda: _counted(step))


def observe_admission(
    status: RunStatus,
    store: Database,
    names: Sequence[str],
    admission: Admission,
    *,
    enrolled: Collection[str],
) -> None:
    """Makes ``status`` show the participants as the three servers have agreed on them by now.

    The store has only the agreement at the beginning of the latest round. ``Admission.records`` may be read beside the
    event loop: it reads the database, and one dictionary that is replaced, never changed.
    """
    status.sources.owners = lambda: participant_statuses(
        store.rows, names, admission.records, enrolled=enrolled
    )


def participant_statuses(
    rows: Rows,
    names: Sequence[str],
    records: Sequence[ParticipantRecord] | None = None,
    *,
    enrolled: Collection[str] = (),
) -> list[ParticipantStatus]:
    """Statuses by name of participants that are ``enrolled``, have a submission here, or were decided on.

    ``names`` are the three servers' names. ``records`` are the current records, if the store's are not the latest.
    """
    if records is None:
        records = [ParticipantRecord.from_row(*row) for row in rows(PARTICIPANT_RECORD_QUERY)]
    known = {record.client: record for record in records}
    received = {client: float(at) for client, at in rows(_NEWEST)}
    waiting: dict[str, tuple[str, ...]] = {}
    for client, pid in rows(_WAITING):
        waiting[client] = (*waiting.get(client, ()), names[pid])
    return [
        _participant_status(
            client, known.get(client), names, received.get(client), waiting.get(client, ())
        )
        for client in sorted(known.keys() | received.keys() | set(enrolled))
    ]


def _participant_status(
    client: str,
    record: ParticipantRecord | None,
    names: Sequence[str],
    since: float | None,
    waiting: tuple[str, ...],
) -> ParticipantStatus:
    if record is not None and record.excluded is Exclusion.WITHDRAWN and since is not None:
        # A withdrawn submission is deleted, so this is a later one.
        record = None
    if record is None and since is None:
        return ParticipantStatus(client, ParticipantState.ABSENT)
    if record is None:
        state = ParticipantState.INCOMPLETE if waiting else ParticipantState.HERE
        return ParticipantStatus(client, state, waiting, since=since)
    number, reason = record.round, record.excluded
    if reason is None:
        return ParticipantStatus(client, ParticipantState.COUNTED, round=number, since=since)
    if reason is Exclusion.INCOMPLETE:
        missing = tuple(names[pid] for pid in record.by)
        return ParticipantStatus(
            client, ParticipantState.INCOMPLETE, missing, round=number, since=since
        )
    if reason in _REMOVED_STATES:
        return ParticipantStatus(client, _REMOVED_STATES[reason], round=number, since=since)
    words = reason.sentence(record.by)
    return ParticipantStatus(
        client, ParticipantState.EXCLUDED, reason=words, round=number, since=since
    )


def budget_use(rows: Rows, rho: float) -> BudgetUse:
    """Budget ``rho`` and the charges of a database's ledger."""
    charges = [float(row[0]) for row in rows("SELECT rho FROM ledger")]
    return BudgetUse(rho, math.fsum(charges), len(charges))


def _counted(step: StepCost) -> Mapping[str, int]:
    """Cost of a finished step without its seconds."""
    return {
        "sent_bytes": step.sent_bytes,
        "received_bytes": step.received_bytes,
        "messages": step.messages,
    }


def step_totals(steps: Sequence[StepCost]) -> Mapping[str, StepTotals]:
    """Costs by step; a step under way has bytes, but no seconds yet."""
    found: dict[str, StepTotals] = {}
    for step in steps:
        total = found.setdefault(step.step, StepTotals())
        total.count += 1
        total.seconds += step.seconds
        total.sent_bytes += step.sent_bytes
        total.received_bytes += step.received_bytes
        total.messages += step.messages
    return found
