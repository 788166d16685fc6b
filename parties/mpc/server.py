"""One compute server: durable, resumable, and silent about everything that is not public.

``run_mpc_server`` opens an attempt (`parties.mpc.session`), takes submissions over HTTPS, meets the two others
(`parties.mpc.mesh`), and computes with them (`parties.mpc.computation`). Server 0 leads: it estimates the model and
writes the synthetic table.

When all three are done, the run's secrets are deleted (`parties.mpc.outputs`). A server that is started again after
that meets the others, agrees that nothing is left to do, and ends once more.

Every failure ends within its deadline as one exception that states problem and location. Finished work is in the store,
and the same command goes on from there. Secret: the store's shares and the certificate's key. Public: events,
transcript and outputs. Source: FLAIM paper, Alg. 3.
"""

import asyncio
import contextlib
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from mechanisms.accounting import Schedule
from mechanisms.aim import AimResult, Estimator
from parties.config import CertificateFiles, Config, earlier_model
from parties.foundation.errors import StoreError
from parties.mpc.computation import compute
from parties.mpc.estimation import LEAD, make_estimator
from parties.mpc.finishing import LeadDuties
from parties.mpc.intake.http import OnStorageFailure
from parties.mpc.intake.listener import IngestServer, start_ingest
from parties.mpc.mesh import KeyGuardedTransport, KeylessPeers, make_runtime
from parties.mpc.outputs import CostsFile, write_synthetic
from parties.mpc.participants.control import AdmissionControl
from parties.mpc.private_bins import released_config
from parties.mpc.progress_text import activity_text, observe_mesh, peer_wait_notice
from parties.mpc.server_folder import ServerFolder
from parties.mpc.session import MpcSession, goodbye_reason, open_session, server_files
from parties.network.port_sharing import SharedPorts
from parties.observability.events import Progress
from parties.observability.heartbeat import Heartbeat
from parties.observability.status import RunInfo, RunStatus
from parties.session.operator_commands import OperatorCommands
from parties.session.result_digests import TABLE_FILE, ResultDigests, result_digests, write_earlier
from parties.session.study import Study
from parties.storage.user_paths import registry_path
from protocols.context import Context, root_path
from protocols.runtime import PartyRuntime

CLOSE_S = 8.0
"""Maximum time for leaving the mesh after a failure, in seconds."""
_TABLE = "table"
"""Key in the lead's store: number of rows of the synthetic table, once it is written."""


async def run_mpc_server(
    config: Config,
    pid: int,
    directory: Path,
    *,
    progress: Progress,
    closed: asyncio.Event,
    register: Path | None = None,
    ports: SharedPorts | None = None,
    status: RunStatus | None = None,
    commands: OperatorCommands | None = None,
) -> None:
    """Runs server ``pid`` in ``directory`` until the run is finished.

    ``closed`` is set once no more participants will come. ``register`` is the file of this server's studies, if it is
    not at its usual path. ``ports`` replace ports of the server's own. ``status`` receives the run's status.
    ``commands`` are the operator's commands, now or later.

    Raises ConfigError, CertificateError, StoreError (with StudyReleased if another folder has released this
    configuration), TooFewClients, ProtocolError, MechanismError.
    """
    status = status or RunStatus(RunInfo.of_server(config, pid))
    progress = progress.also(status)
    files = server_files(config, pid, directory)
    with open_session(
        config,
        pid,
        directory,
        files,
        register=registry_path(register),
        control=AdmissionControl(closed, commands or OperatorCommands()),
        progress=progress,
        status=status,
    ) as session:
        await _serve(session, files, ports)
    progress.event("finished", "finished")


class _HostMonitor:
    """Ends the attempt if this server's host has no room, since it would wait for participants in vain."""

    def __init__(self) -> None:
        self.runtime: PartyRuntime | None = None

    def on_storage_failure(self, error: StoreError) -> None:
        """See ``parties.mpc.intake.http.IngestApi``."""
        if self.runtime is not None:
            self.runtime.fail(error)


async def _serve(session: MpcSession, files: CertificateFiles, ports: SharedPorts | None) -> None:
    """Takes submissions and computes, until the run is finished or has failed."""
    host, keyless = _HostMonitor(), KeylessPeers()
    ingest = await _ingest(session, files, ports, on_lack=host.on_storage_failure)
    try:
        runtime = host.runtime = make_runtime(
            session.study.config,
            session.pid,
            files,
            folder=session.folder,
            ports=ports,
            rejected=session.status.rejected,
            keyless=keyless,
        )
        try:
            costs = await _connect(session, runtime)
            if ingest is not None:
                ingest.retry_forwarding()
            observe_mesh(session.status, runtime, session.progress)
            session.progress.event("connected", "connected to the two other servers")
            transport = KeyGuardedTransport(session.effects.transport(runtime), keyless)
            await _compute(
                session, Context(transport, root_path(session.study.config.run.id)), costs
            )
            # The others wait for the last message, so this server sends it before it deletes its state.
            await runtime.flush()
            session.folder.store.state.end()
        except BaseException as error:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    asyncio.shield(runtime.close(goodbye_reason(error))), CLOSE_S
                )
            raise
        await runtime.close()
    finally:
        if ingest is not None:
            await ingest.close()


async def _connect(session: MpcSession, runtime: PartyRuntime) -> CostsFile:
    """Connects to the two other servers; the costs of the attempt begin with that. Raises ProtocolError."""
    started = time.perf_counter()
    async with peer_wait_notice(runtime, session.study.config, session.status, session.progress):
        await runtime.connect()
    costs = CostsFile(session.folder.directory / "costs.json", runtime.costs)
    costs.seconds["connect"] = time.perf_counter() - started
    return costs


async def _compute(session: MpcSession, ctx: Context, costs: CostsFile) -> None:
    """Computes, with a heartbeat while a step is slow."""
    leads, plan = session.pid == LEAD, session.plan
    at = partial(activity_text, costs.costs, plan, lead=leads)
    heartbeat = Heartbeat(session.progress, rounds=plan.rounds, activity=at)
    lead = _lead(session.study, plan, session.folder, heartbeat) if leads else None
    async with heartbeat.running():
        await compute(replace(session, progress=heartbeat.progress), ctx, costs=costs, lead=lead)


async def _ingest(
    session: MpcSession,
    files: CertificateFiles,
    ports: SharedPorts | None,
    *,
    on_lack: OnStorageFailure,
) -> IngestServer | None:
    """Starts to take submissions, unless the run has ended."""
    store = session.folder.store
    address = session.study.config.require_parties()[session.pid].ingest
    if store.state.ended:
        session.progress.event("listening", "the run has ended: no submissions are taken")
        return None
    ingest = await start_ingest(
        store,
        session.study,
        session.pid,
        files,
        commands=session.control.commands,
        ports=ports,
        rejected=session.status.rejected,
        on_lack=on_lack,
        registry=None if session.registration is None else session.registration.register,
    )
    session.progress.event("listening", f"taking submissions at {address}")
    return ingest


def _lead(study: Study, plan: Schedule, folder: ServerFolder, heartbeat: Heartbeat) -> LeadDuties:
    store, directory = folder.store, folder.directory
    estimator = make_estimator(study, plan)

    def estimator_for(study: Study) -> Estimator:
        nonlocal estimator
        estimator = make_estimator(study, plan)
        estimator.on_iteration = heartbeat.iteration
        return estimator

    def write(result: AimResult, study: Study) -> ResultDigests:
        # Imported here because only the lead needs it, at its end.
        from parties.mpc.quality import save_quality

        if estimator.model is None:
            raise RuntimeError("the final estimate made no model")
        # A restart after this point keeps the table, which may be published by now, as the only one.
        rows = store.meta(_TABLE)
        if rows and (directory / TABLE_FILE).exists():
            return result_digests(directory, int(rows))
        model, released = estimator.model, Study(released_config(study), study.workload)
        written = write_synthetic(directory, model, released.config, total=result.total)
        save_quality(directory, released, result, model=model, codes=written.codes)
        earlier = earlier_model(study.config)
        if earlier is not None:
            write_earlier(earlier, directory)
        store.set_meta(_TABLE, str(written.said.rows))
        return written.said

    return LeadDuties(estimator_for, write)
