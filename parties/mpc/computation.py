"""Joint computation of the three servers: agree on the run's state, run AIM on shares, write the outputs.

``compute`` is the same in a run and in its replay (`parties.audit.replay`). Secret: the store's shares. Public: events,
transcript and outputs. Source: FLAIM paper, Alg. 3.
"""

import asyncio
import json
import math
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mechanisms.accounting import Schedule
from mechanisms.aim import AimResult, Estimator, RoundRecord, estimated_total, run_aim
from mechanisms.events import event_to_dict
from mechanisms.workload import Workload
from parties.config import MALICIOUS, Config
from parties.foundation.untrusted_text import parse_json
from parties.identity.signing import Issuer
from parties.mpc.agreement import ResumePoint, RunIdentity, agree_on_resume, max_state_bytes
from parties.mpc.aim_backend import MpcBackend, server_ledger
from parties.mpc.estimation import (
    LEAD,
    FollowingEstimator,
    LeadEstimator,
    ModelCache,
    keepalive_interval_s,
    receive_after_keepalives,
    send_keepalives,
)
from parties.mpc.inputs import OnCountingProgress, SubmissionBatch, input_forms
from parties.mpc.inputs.linked import SourceLink
from parties.mpc.noise_keys import pack_keys, unpack_keys
from parties.mpc.outputs import CostsFile, result_document
from parties.mpc.participants.admission import Admission
from parties.mpc.participants.waiting_text import OverdueUploads, WaitStatus, waiting_text
from parties.mpc.planning.budget import released_costs, rule_of
from parties.mpc.planning.counting_cost import CountingCost, counting_cost_text
from parties.mpc.private_bins import (
    ReleasedMarginal,
    first_workload,
    measurements_of,
    resolved_workload,
)
from parties.mpc.records import Checkpoint, ParticipantRecord
from parties.mpc.replay.effects import Effects
from parties.mpc.steps import AGREE, DONE, FINISH
from parties.mpc.storage.outbox import Outbox
from parties.mpc.storage.store import Store
from parties.mpc.transcript_schema import AGREED, CLAIMED, FINISHED, PUBLISHED
from parties.observability.events import WORKING, Progress, round_text
from parties.observability.heartbeat import Throttle
from parties.session.enrollment import close_enrollment
from parties.session.operator_commands import OperatorCommands
from parties.session.result_digests import ResultDigests
from parties.session.study import Study
from parties.storage.files import write_json
from parties.storage.privacy_ledger import DurableLedger
from protocols import cells
from protocols.context import Context, NoiseKeys
from protocols.echo import echo
from protocols.errors import CheckFailed, ProtocolViolation
from protocols.measure import noise_of
from protocols.transcript import Transcript, round_ended
from protocols.verify import ProductVerifier, load_kernels

_NONCE_BYTES = 16
_COUNTING_NOTICE_S = 2.0
"""Minimum interval between progress messages while rows are counted, in seconds."""
_WAITING_NOTICE_S = 1.0
"""Minimum interval between 'waiting' messages, in seconds."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ComputeServer:
    """One server in one run: the context that all of its work needs."""

    config: Config
    pid: int
    directory: Path
    workload: Workload
    plan: Schedule
    security_bits: int
    store: Store
    transcript: Transcript
    progress: Progress
    closed: asyncio.Event
    effects: Effects
    orders: OperatorCommands = field(default_factory=OperatorCommands)
    authority: bytes = b""
    """Certificate (DER) of the authority that admits participants. In a replay: the recorded one."""
    on_resume: Callable[[int], object] = lambda charges: None
    """Called with the number of charges that any of the three servers has, before any other charge; may refuse."""
    on_release: Callable[[Collection[str], int], object] = lambda clients, charges: None
    """Called with the clients of every release, and the charges so far, before its opening; may refuse."""

    on_admission: Callable[[Admission], object] = lambda arrivals: None
    """Called with the admission, before any client is counted."""

    @property
    def study(self) -> Study:
        """The study, with the workload before private bins are measured."""
        return Study(self.config, self.workload)

    @property
    def names(self) -> list[str]:
        """Names of the three servers."""
        return [party.name for party in self.config.require_parties()]


@dataclass(frozen=True, slots=True)
class LeadDuties:
    """Additional duties of the lead: the estimator of a workload's model, and the writer of model and rows."""

    estimator: Callable[[Workload], Estimator]
    write: Callable[[AimResult, Workload], ResultDigests]


async def compute(
    server: ComputeServer,
    ctx: Context,
    identity: RunIdentity,
    *,
    costs: CostsFile,
    lead: LeadDuties | None,
) -> None:
    """Agrees, runs AIM, writes the outputs, and returns only when all three servers are done.

    ``lead`` is None at the followers. Every message depends only on the keys, the received messages, ``server.store``
    and ``server.effects``. Raises as ``run_mpc_server``.
    """
    if server.config.run.security == MALICIOUS:
        await asyncio.to_thread(load_kernels)
        ctx.verifier = ProductVerifier()
    await asyncio.to_thread(cells.load_for, server.workload.cells)
    nonce = server.effects.once("nonce", lambda: secrets.token_bytes(_NONCE_BYTES)).hex()
    keyless = _keyless_reason(server, ctx)
    with ctx.step(AGREE.name) as c:
        resumed = await agree_on_resume(
            c,
            identity,
            server.store,
            config=server.config,
            rounds=server.plan.rounds,
            initial=server.workload.one_way,
            budget=server.plan.rho,
            accountant=server.plan.accountant,
            nonce=nonce,
            keys=_noise_keys(server),
            fresh=None if keyless else ctx.fresh_noise_keys(),
            max_bytes=max_state_bytes(server.workload, server.plan.rounds, server.config.domain),
        )
    if keyless:
        resumed = replace(resumed, openings=replace(resumed.openings, problem=keyless))
    initial = sum(m.round == 0 for m in resumed.conclusion.history)
    sigmas = [m.sigma for m in resumed.conclusion.history if m.round > 0]
    server.transcript.note(
        AGREED.what,
        session=resumed.session,
        last_round=resumed.last_round,
        initial=initial,
        sigmas=list(sigmas),
        wasted=list(resumed.conclusion.wasted),
    )
    server.transcript.seal(AGREED.what)
    _record_ledger(server)
    # A peer's charge may already have led to a release.
    server.on_resume(len(DurableLedger(server.store).entries))
    server.plan.write_off(
        [*released_costs(server.plan, initial, sigmas), *resumed.conclusion.wasted],
        initial=initial,
        sigmas=sigmas,
    )
    _report_claims(server, resumed)
    if resumed.conclusion.contradicted:
        rounds = ", ".join(map(str, resumed.conclusion.contradicted))
        server.progress.event(
            "contradicted",
            f"two servers hold different releases of round {rounds}: one of them does not tell what was opened, "
            "and what no two of the three hold alike is lost",
        )
    if resumed.conclusion.lost:
        rounds = ", ".join(map(str, resumed.conclusion.lost))
        server.progress.event(
            "lost",
            f"only this server had what was opened in round {rounds}: it is lost, what was charged for it stays spent",
        )
    if resumed.last_round is not None:
        server.progress.event(
            "resumed",
            f"going on after {round_text(resumed.last_round, server.plan)}",
            round=resumed.last_round,
        )
    accounts = _Accounts(server.transcript, costs)
    admission = _admission(server, ctx, resumed)
    workload, released = await _bins(server, ctx, resumed, admission, accounts=accounts)
    server = replace(server, workload=workload)
    result = await _aim(server, ctx, resumed, admission, released, accounts=accounts, lead=lead)
    server.store.close_to_clients()
    with ctx.step(FINISH.name) as c:
        await _finish(server, c, result, admission.records, costs=costs, lead=lead)
    accounts.write()
    server.transcript.note(FINISHED.what, rounds=result.rounds_done, clients=result.clients)
    costs.save()


def _noise_keys(server: ComputeServer) -> NoiseKeys | None:
    kept = server.effects.once("noise keys", lambda: pack_keys(server.store.noise_keys()))
    return unpack_keys(kept)


def _keyless_reason(server: ComputeServer, ctx: Context) -> str:
    """Reason for a mesh without keys: the run is over at a server, or a server lacks its sealing key; else empty."""

    def why() -> str:
        try:
            ctx.fresh_noise_keys()
        except ProtocolViolation as violation:
            return str(violation)
        return ""

    text: str = server.effects.once_json("keyless", why)
    return text


def _report_claims(server: ComputeServer, resumed: ResumePoint) -> None:
    """Reports the charges that one server alone claims: no other server enters them."""
    for pid, entries in enumerate(resumed.conclusion.claimed):
        if not entries:
            continue
        server.transcript.note(CLAIMED.what, party=pid, charges=[e.opening for e in entries])
        if pid != server.pid:
            server.progress.event(
                "claimed",
                f"{server.names[pid]} says that it has charged {len(entries)} openings that neither other server has: "
                "they count for that server alone",
            )


async def _bins(
    server: ComputeServer,
    ctx: Context,
    resumed: ResumePoint,
    admission: Admission,
    *,
    accounts: "_Accounts",
) -> tuple[Workload, Sequence[ReleasedMarginal]]:
    """Workload of the rounds, and the releases so far; with private bins, round 0 is over then and has chosen them."""
    config, first = server.config, first_workload(server.config)
    if first is None:
        return server.workload, resumed.conclusion.history
    measured = {one.candidate for one in resumed.conclusion.history}
    missing = [i for i in first.one_way if i not in measured]
    backend = _backend(replace(server, workload=first), ctx, resumed, admission)
    clients, sigma = await backend.begin_round(0) if missing else 0, server.plan.initial_sigma
    released = [
        *resumed.conclusion.history,
        *[Checkpoint(0, i, sigma, clients, await backend.measure(i, sigma)) for i in missing],
    ]
    workload = resolved_workload(config, released)
    admission.recount_with(input_forms(Study(config, workload)), workload.maximal_cells)
    if missing:
        measurements = tuple(measurements_of(Study(config, workload), released))
        total = estimated_total(measurements, clients, config.max_rows)
        _on_round(server, admission, accounts, RoundRecord(0, measurements, clients, total))
    return workload, released


async def _aim(
    server: ComputeServer,
    ctx: Context,
    resumed: ResumePoint,
    admission: Admission,
    released: Sequence[ReleasedMarginal],
    *,
    accounts: "_Accounts",
    lead: LeadDuties | None,
) -> AimResult:
    """Loop of Algorithm 3, from the point that the three servers have agreed on."""
    found = resumed.conclusion
    models = ModelCache(
        server.store,
        found.models,
        found.everywhere,
        server.effects,
        untaught=found.untaught,
    )
    estimator: Estimator = FollowingEstimator(ctx, server.workload, models)
    if lead is not None:
        estimator = LeadEstimator(
            ctx,
            lead.estimator(server.workload),
            server.workload,
            max_rows=server.config.max_rows,
            receive_s=server.config.timeouts.receive_s,
            effects=server.effects,
            models=models,
        )

    result = await run_aim(
        server.workload,
        server.plan,
        _backend(server, ctx, resumed, admission),
        estimator,
        max_rows=server.config.max_rows,
        rule=rule_of(server.config),
        history=measurements_of(server.study, released),
        on_round=lambda record: _on_round(server, admission, accounts, record),
    )
    if was_finished_early(server, result):
        text = f"ending after {round_text(result.rounds_done, server.plan)}, as all three operators ask"
        server.progress.event("finishing", text, done=result.rounds_done)
    return result


def was_finished_early(server: ComputeServer, result: AimResult) -> bool:
    """True if the operators ended the run with fewer rounds than it could have had."""
    return server.orders.agreed.finish and result.rounds_done < server.plan.rounds


def _on_round(
    server: ComputeServer, admission: Admission, accounts: "_Accounts", record: RoundRecord
) -> None:
    """Writes all records of a finished round."""
    accounts.costs.seconds["share"] = admission.seconds
    accounts.write()
    server.transcript.seal(round_ended(record.round))
    accounts.costs.save()
    server.progress.event(
        "round-done",
        f"{round_text(record.round, server.plan)} done",
        done=record.round,
        rows_estimated=record.total,
    )


def _admission(server: ComputeServer, ctx: Context, resumed: ResumePoint) -> Admission:
    throttle, lacking = Throttle(), OverdueUploads()
    spoken = -math.inf

    def on_waiting(state: WaitStatus) -> None:
        nonlocal spoken
        if time.monotonic() < spoken + _WAITING_NOTICE_S:
            return
        state = replace(state, incomplete=lacking.settled(state.incomplete))
        said = (state.stored, state.complete, tuple(state.incomplete), state.commands)
        if throttle.due(repr(said)):
            spoken = time.monotonic()
            missing = server.store.missing(server.config.owners)
            text = waiting_text(server.config, server.pid, state, missing)
            server.progress.event("waiting", text, done=state.stored)

    if text := counting_cost_text(server.study):
        server.progress.event("inputs", f"counting: {text}")
    # With private bins, round 0 counts fine cells.
    counted = first_workload(server.config) or server.workload
    admission = Admission(
        ctx,
        server.config,
        server.effects.submission_view(server.store),
        forms=input_forms(Study(server.config, counted)),
        cells=counted.maximal_cells,
        transcript=server.transcript,
        closed=server.closed,
        effects=server.effects,
        authority=Issuer.of(server.effects.once("authority", lambda: server.authority)),
        commands=server.orders,
        recorded=resumed.openings.recorded,
        on_close=lambda: _closed(server),
        on_waiting=on_waiting,
        on_counting=lambda batch: _counting_notifier(server, batch),
    )
    server.on_admission(admission)
    return admission


def _closed(server: ComputeServer) -> None:
    close_enrollment(server.store)
    server.progress.event("closed", "closed: who has not sent anything yet comes too late")


def _counting_notifier(server: ComputeServer, batch: SubmissionBatch) -> OnCountingProgress:
    """Reports the cost of counting a batch, and returns the callback that reports its progress."""
    owners, rows = len(batch.clients), batch.rows
    linking = ""
    if server.config.sources:
        declared = {s.submission.client: s.submission.capacity for s in batch.submissions}
        linking = f"linking {rows:,} rows, then "
        rows = SourceLink.of(server.config).candidates(declared)
    effort = CountingCost.of(server.workload, rows, server.config.run.security)
    server.progress.event(
        "counting", f"{linking}counting rows of {owners} data owners, at most {effort}"
    )
    notified_at = time.monotonic()

    def on_part(done: int, of: int) -> None:
        nonlocal notified_at
        if done == of or time.monotonic() - notified_at > _COUNTING_NOTICE_S:
            notified_at = time.monotonic()
            text = f"counting rows, {done} of {of} parts"
            server.progress.event(WORKING, text, done=done, of=of)

    return on_part


def _backend(
    server: ComputeServer, ctx: Context, resumed: ResumePoint, admission: Admission
) -> MpcBackend:
    done = {m.round for m in resumed.conclusion.history}
    return MpcBackend(
        ctx,
        server.workload,
        server.plan,
        admission=admission,
        ledger=server_ledger(
            server.store,
            server.transcript,
            server.plan.rho,
            accountant=server.plan.accountant,
            first=lambda entry: server.on_release(
                admission.clients, len(DurableLedger(server.store).entries)
            ),
        ),
        store=server.store,
        transcript=server.transcript,
        progress=server.progress,
        max_rows=server.config.max_rows,
        selections={r: c for r, c in resumed.conclusion.selections.items() if r not in done},
        measured=sum(m.round == 0 for m in resumed.conclusion.history),
        noise=noise_of(server.config.run.noise, server.security_bits),
        openings=resumed.openings,
        alone=len(resumed.conclusion.claimed[server.pid]),
    )


async def _finish(
    server: ComputeServer,
    ctx: Context,
    result: AimResult,
    records: Sequence[ParticipantRecord],
    *,
    costs: CostsFile,
    lead: LeadDuties | None,
) -> None:
    """Writes model and table at the lead, and the result everywhere; no server leaves before the lead is done."""
    message = b""
    if lead is not None:
        server.progress.event("writing", "writing the synthetic table")
        write = asyncio.ensure_future(asyncio.to_thread(lead.write, result, server.workload))
        await send_keepalives(
            ctx, write, keepalive_interval_s(server.config.timeouts.receive_s), server.effects
        )
        kept = server.effects.once(PUBLISHED.what, lambda: write.result().to_bytes())
        message = DONE + kept
    document = result_document(
        result,
        server.workload,
        config=server.config,
        rho_total=server.plan.rho,
        ledger=DurableLedger(server.store).entries,
        records=records,
        finished_early=was_finished_early(server, result),
    )
    if lead is not None:
        await ctx.broadcast(LEAD, message)
    else:
        message = await receive_after_keepalives(ctx)
    await echo(ctx, {LEAD: message})
    server.transcript.note(PUBLISHED.what, **_receive_digests(message).to_dict())
    document |= await _traffic(server, ctx, costs)
    write_json(server.directory / "result.json", document, durable=True)
    for pid, word in enumerate(await ctx.exchange(DONE)):
        if word != DONE:
            raise ProtocolViolation(f"party {pid} does not say that it is done", pid)


def _receive_digests(message: bytes) -> ResultDigests:
    """Digests of the lead's files, from its last message: every server seals them. Raises ProtocolViolation."""
    try:
        return ResultDigests.from_bytes(message.removeprefix(DONE))
    except ValueError as error:
        raise ProtocolViolation(f"the lead ended otherwise: {error}", LEAD) from error


async def _traffic(server: ComputeServer, ctx: Context, costs: CostsFile) -> dict[str, object]:
    """Traffic of all three servers: bytes sent by step, bytes forwarded, participants' bytes. All sizes are public."""
    mine = server.effects.once_json("traffic", lambda: _own_traffic(server.store, costs))
    return read_traffic(await ctx.exchange(json.dumps(mine).encode()))


def read_traffic(answers: Sequence[bytes]) -> dict[str, object]:
    """Combines the three servers' reports of their traffic. Raises CheckFailed for a malformed report."""
    try:
        replies = [parse_json(reply) for reply in answers]
        steps = {step: None for reply in replies for step in reply["sent"]}
        return {
            "sent_by_step": {
                step: [int(reply["sent"].get(step, 0)) for reply in replies] for step in steps
            },
            "client_bytes": {
                "clients": max(int(reply["clients"]) for reply in replies),
                "sent": sum(int(reply["from_clients"]) for reply in replies),
                "received": sum(int(reply["to_clients"]) for reply in replies),
            },
            "passed_on_bytes": [int(reply["passed_on"]) for reply in replies],
        }
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckFailed("a server told its traffic in a form that is not understood") from error


def _own_traffic(store: Store, costs: CostsFile) -> dict[str, object]:
    received, sent = store.traffic_bytes()
    return {
        "sent": costs.sent_by_step(),
        "passed_on": Outbox(store).passed_on()[0],
        "clients": store.submission_count(),
        "from_clients": received,
        "to_clients": sent,
    }


class _Accounts:
    """Costs of steps, written into the transcript as the steps end."""

    def __init__(self, transcript: Transcript, costs: CostsFile) -> None:
        self.costs = costs
        self._transcript = transcript
        self._written = 0

    def write(self) -> None:
        """Writes the steps that have ended since the last call; no step may be under way."""
        for step in self.costs.steps[self._written :]:
            self._transcript.step(
                step=step.step,
                round=step.round,
                rounds=step.rounds,
                sent=step.sent_bytes,
                received=step.received_bytes,
                messages=step.messages,
                seconds=step.seconds,
            )
        self._written = len(self.costs.steps)


def _record_ledger(server: ComputeServer) -> None:
    """Brings the transcript up to the ledger: a crash may have come between both, and peers' charges were adopted."""
    records = list(_ledger_records(server.directory / "transcript.jsonl"))
    written, costs = {opening for opening, _ in records}, [cost for _, cost in records]
    for entry in DurableLedger(server.store).entries:
        if entry.opening in written:
            continue
        costs.append(entry.rho)
        event = event_to_dict(entry.event)
        server.transcript.ledger(
            round=entry.round,
            step=entry.step,
            event=event,
            rho=entry.rho,
            spent=math.fsum(costs),
            opening=entry.opening,
        )


def _ledger_records(path: Path) -> Iterator[tuple[str, float]]:
    with path.open("rb") as lines:
        for line in lines:
            if line.startswith(b'{"kind":"ledger"'):
                record = json.loads(line)
                yield record["opening"], record["rho"]
