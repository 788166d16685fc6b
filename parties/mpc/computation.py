"""Joint computation of the three servers: agree on the run's state, run AIM on shares, write the outputs.

``compute`` is the same in a run and in its replay (`parties.audit.replay`). ``AimRounds`` runs the rounds of one
attempt. Secret: the store's shares. Public: events, transcript and outputs. Source: FLAIM paper, Alg. 3.
"""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mechanisms.aim import AimResult, Estimator, RoundRecord, estimated_total, run_aim
from mechanisms.workload import Workload
from parties.config import MALICIOUS
from parties.identity.signing import Issuer
from parties.mpc.agreement import ResumePoint, agree_on_resume, run_identity
from parties.mpc.aim_backend import MpcBackend, server_ledger
from parties.mpc.estimation import FollowingEstimator, LeadEstimator, ModelCache
from parties.mpc.finishing import LeadDuties, confirm_done, exchange_traffic, publish, written
from parties.mpc.noise_keys import pack_keys, unpack_keys
from parties.mpc.outputs import CostsFile, result_document
from parties.mpc.participants.admission import Admission
from parties.mpc.participants.notices import OperatorNotices
from parties.mpc.participants.running_count import CountedForms
from parties.mpc.planning.budget import released_costs, rule_of, security_bits
from parties.mpc.planning.counting_cost import counting_cost_text
from parties.mpc.private_bins import (
    ReleasedMarginal,
    first_workload,
    measurements_of,
    resolved_workload,
)
from parties.mpc.progress_text import observe_admission, report_resume
from parties.mpc.records import Checkpoint
from parties.mpc.replay.effects import Effects
from parties.mpc.server_folder import StepAccounts
from parties.mpc.session import MpcSession
from parties.mpc.steps import AGREE, FINISH
from parties.mpc.storage.run_state import RunState
from parties.mpc.transcript_schema import AGREED, CLAIMED, FINISHED, PUBLISHED
from parties.observability.events import round_text
from parties.session.study import Study
from protocols import cells
from protocols.context import Context, NoiseKeys
from protocols.errors import ProtocolViolation
from protocols.measure import noise_of
from protocols.transcript import Transcript, round_ended
from protocols.verify import ProductVerifier, load_kernels

_NONCE_BYTES = 16


async def compute(
    session: MpcSession, ctx: Context, *, costs: CostsFile, lead: LeadDuties | None
) -> None:
    """Agrees, runs AIM, writes the outputs, and returns only when all three servers are done.

    ``lead`` is None at the followers. Every message depends only on the keys, the received messages, and the session's
    store and effects. Raises as ``run_mpc_server``.
    """
    study, folder = session.study, session.folder
    if study.config.run.security == MALICIOUS:
        await asyncio.to_thread(load_kernels)
        ctx.verifier = ProductVerifier()
    await asyncio.to_thread(cells.load_for, study.workload.cells)
    resumed = await _agree(session, ctx)
    _note_agreement(folder.transcript, resumed)
    folder.record_ledger()
    # A peer's charge may already have led to a release.
    session.record_resume()
    _write_off(session, resumed)
    report_resume(session.progress, session.plan, resumed, pid=session.pid, names=session.names)
    accounts = StepAccounts(folder.transcript, costs)
    rounds = AimRounds(session, ctx, resumed, _admission(session, ctx, resumed), accounts)
    resolved, released = await rounds.resolve_bins()
    result = await rounds.run(resolved, released, lead)
    folder.store.state.close_to_clients()
    with ctx.step(FINISH.name) as c:
        await rounds.finish(c, resolved, result, lead)
    accounts.write()
    folder.transcript.note(FINISHED.what, rounds=result.rounds_done, clients=result.clients)
    costs.save()


async def _agree(session: MpcSession, ctx: Context) -> ResumePoint:
    """Point from which the three servers go on."""
    study, effects = session.study, session.effects
    nonce = effects.once("nonce", lambda: secrets.token_bytes(_NONCE_BYTES)).hex()
    keyless = _keyless_reason(effects, ctx)
    with ctx.step(AGREE.name) as c:
        resumed = await agree_on_resume(
            c,
            run_identity(study),
            session.folder.store,
            study=study,
            plan=session.plan,
            nonce=nonce,
            keys=known_noise_keys(session.folder.store.state, effects),
            fresh=None if keyless else ctx.fresh_noise_keys(),
        )
    if not keyless:
        return resumed
    return replace(resumed, openings=replace(resumed.openings, problem=keyless))


def known_noise_keys(state: RunState, effects: Effects) -> NoiseKeys | None:
    """Noise keys of an earlier attempt. Raises StoreError."""
    kept = effects.once("noise keys", lambda: pack_keys(state.noise_keys()))
    return unpack_keys(kept)


def _keyless_reason(effects: Effects, ctx: Context) -> str:
    """Reason for a mesh without keys: the run is over at a server, or a server lacks its sealing key; else empty."""

    def why() -> str:
        try:
            ctx.fresh_noise_keys()
        except ProtocolViolation as violation:
            return str(violation)
        return ""

    text: str = effects.once_json("keyless", why)
    return text


def _note_agreement(transcript: Transcript, resumed: ResumePoint) -> None:
    transcript.note(
        AGREED.what,
        session=resumed.session,
        last_round=resumed.last_round,
        initial=resumed.initial,
        sigmas=list(resumed.sigmas),
        wasted=list(resumed.conclusion.wasted),
    )
    transcript.seal(AGREED.what)


def _write_off(session: MpcSession, resumed: ResumePoint) -> None:
    """Records the charges of earlier attempts as spent, and notes those that one server alone claims."""
    plan, initial, sigmas = session.plan, resumed.initial, resumed.sigmas
    plan.write_off(
        [*released_costs(plan, initial, sigmas), *resumed.conclusion.wasted],
        initial=initial,
        sigmas=sigmas,
    )
    for pid, entries in enumerate(resumed.conclusion.claimed):
        if entries:
            session.folder.transcript.note(
                CLAIMED.what, party=pid, charges=[entry.opening for entry in entries]
            )


def _admission(session: MpcSession, ctx: Context, resumed: ResumePoint) -> Admission:
    """Admission of participants, which ``session`` reports and shows in its status."""
    study, store, config = session.study, session.folder.store, session.study.config
    if text := counting_cost_text(study):
        session.progress.event("inputs", f"counting: {text}")
    # With private bins, round 0 counts fine cells.
    counted = first_workload(config) or study.workload
    admission = Admission(
        ctx,
        config,
        session.effects.participants(store),
        forms=CountedForms.of(Study(config, counted)),
        transcript=session.folder.transcript,
        effects=session.effects,
        control=session.control,
        authority=Issuer.of(session.effects.once("authority", lambda: session.authority)),
        recorded=resumed.openings.recorded,
        observer=OperatorNotices(study, session.pid, store, session.progress),
    )
    observe_admission(session.status, store, session.names, admission, enrolled=config.owners)
    return admission


@dataclass(frozen=True, slots=True, eq=False)
class AimRounds:
    """Rounds of one attempt, from the point that the three servers have agreed on, and the end of the run."""

    session: MpcSession
    ctx: Context
    resumed: ResumePoint
    admission: Admission
    accounts: StepAccounts

    async def resolve_bins(self) -> tuple[Study, Sequence[ReleasedMarginal]]:
        """Study of the rounds, and the releases so far; with private bins, round 0 is over then and has chosen them."""
        study, history = self.session.study, self.resumed.conclusion.history
        config, first = study.config, first_workload(study.config)
        if first is None:
            return study, history
        measured = {one.candidate for one in history}
        missing = [i for i in first.one_way if i not in measured]
        backend, sigma = self._backend(first), self.session.plan.initial_sigma
        clients = await backend.begin_round(0) if missing else 0
        released = [
            *history,
            *[Checkpoint(0, i, sigma, clients, await backend.measure(i, sigma)) for i in missing],
        ]
        resolved = Study(config, resolved_workload(config, released))
        self.admission.recount_with(CountedForms.of(resolved))
        if missing:
            measurements = tuple(measurements_of(resolved, released))
            total = estimated_total(measurements, clients, config.max_rows)
            self._on_round(RoundRecord(0, measurements, clients, total))
        return resolved, released

    async def run(
        self, study: Study, released: Sequence[ReleasedMarginal], lead: LeadDuties | None
    ) -> AimResult:
        """Loop of Algorithm 3 on the cells of ``study``."""
        session, config = self.session, study.config
        result = await run_aim(
            study.workload,
            session.plan,
            self._backend(study.workload),
            self._estimator(study, lead),
            max_rows=config.max_rows,
            rule=rule_of(config),
            history=measurements_of(study, released),
            on_round=self._on_round,
        )
        if self.was_finished_early(result):
            text = f"ending after {round_text(result.rounds_done, session.plan)}, as all three operators ask"
            session.progress.event("finishing", text, done=result.rounds_done)
        return result

    def was_finished_early(self, result: AimResult) -> bool:
        """True if the operators ended the run with fewer rounds than it could have had."""
        agreed = self.session.control.commands.agreed
        return agreed.finish and result.rounds_done < self.session.plan.rounds

    async def finish(
        self, ctx: Context, study: Study, result: AimResult, lead: LeadDuties | None
    ) -> None:
        """Writes model and table at the lead, and the result everywhere; no server leaves before the lead is done."""
        session, folder, effects = self.session, self.session.folder, self.session.effects
        message = None
        if lead is not None:
            session.progress.event("writing", "writing the synthetic table")
            work = asyncio.to_thread(lead.write, result, study)
            message = await written(ctx, work, effects, study.config.timeouts.receive_s)
        document = result_document(
            result,
            study.workload,
            config=study.config,
            rho_total=session.plan.rho,
            ledger=folder.charges,
            records=self.admission.records,
            finished_early=self.was_finished_early(result),
        )
        digests = await publish(ctx, message)
        folder.transcript.note(PUBLISHED.what, **digests.to_dict())
        costs = self.accounts.costs
        document |= await exchange_traffic(ctx, folder.store, effects, costs.sent_by_step)
        folder.write_result(document)
        await confirm_done(ctx)

    def _estimator(self, study: Study, lead: LeadDuties | None) -> Estimator:
        found, effects = self.resumed.conclusion, self.session.effects
        models = ModelCache(
            self.session.folder.store.releases,
            found.models,
            found.everywhere,
            effects,
            untaught=found.untaught,
        )
        if lead is None:
            return FollowingEstimator(self.ctx, study.workload, models)
        return LeadEstimator(
            self.ctx,
            lead.estimator(study),
            study.workload,
            max_rows=study.config.max_rows,
            receive_s=study.config.timeouts.receive_s,
            effects=effects,
            models=models,
        )

    def _on_round(self, record: RoundRecord) -> None:
        """Writes all records of a finished round."""
        session, accounts = self.session, self.accounts
        accounts.costs.seconds["share"] = self.admission.seconds
        accounts.write()
        session.folder.transcript.seal(round_ended(record.round))
        accounts.costs.save()
        session.progress.event(
            "round-done",
            f"{round_text(record.round, session.plan)} done",
            done=record.round,
            rows_estimated=record.total,
        )

    def _backend(self, workload: Workload) -> MpcBackend:
        session, folder, found = self.session, self.session.folder, self.resumed.conclusion
        config, done = session.study.config, {m.round for m in found.history}

        def register() -> None:
            session.record_release(self.admission.clients)

        return MpcBackend(
            self.ctx,
            workload,
            session.plan,
            admission=self.admission,
            ledger=server_ledger(
                folder.store,
                folder.transcript,
                session.plan.rho,
                accountant=session.plan.accountant,
                first=lambda entry: register(),
            ),
            store=folder.store,
            transcript=folder.transcript,
            progress=session.progress,
            max_rows=config.max_rows,
            selections={r: c for r, c in found.selections.items() if r not in done},
            measured=sum(m.round == 0 for m in found.history),
            noise=noise_of(config.run.noise, security_bits(session.study)),
            openings=self.resumed.openings,
            alone=len(found.claimed[session.pid]),
            register=register,
        )
