"""One compute server: durable, resumable, and silent about everything that is not public.

``run_mpc_server`` opens the store, takes submissions over HTTPS, meets the two others, and computes with them
(`parties.mpc.computation`). Server 0 leads: it estimates the model and writes the synthetic table.

When all three are done, the run's secrets are deleted (`parties.mpc.outputs`). A server that is started again after
that meets the others, agrees that nothing is left to do, and ends once more.

Every failure ends within its deadline as one exception that states problem and location. Finished work is in the store,
and the same command goes on from there. Secret: the store's shares and the certificate's key. Public: events,
transcript and outputs. Source: FLAIM paper, Alg. 3.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from mechanisms.aim import AimResult, Estimator
from mechanisms.errors import MechanismError
from mechanisms.workload import Workload
from parties.config import CertificateFiles, Config
from parties.crypto.hpke import SealKey
from parties.foundation.errors import StoreError
from parties.foundation.exit_codes import TooFewClients
from parties.foundation.version import version, version_line
from parties.identity.tls import authority_bytes, check_pinned_identity, check_seal, signer
from parties.mpc.agreement import RunIdentity, run_identity
from parties.mpc.computation import ComputeServer, LeadDuties, compute
from parties.mpc.estimation import LEAD, make_estimator
from parties.mpc.intake.http import OnStorageFailure
from parties.mpc.intake.listener import IngestServer, start_ingest
from parties.mpc.outputs import (
    STORE_FOLDER,
    CostsFile,
    check_open,
    discard_secrets,
    has_store,
    write_synthetic,
)
from parties.mpc.planning.budget import security_bits
from parties.mpc.planning.resources import server_memory
from parties.mpc.planning.validation import check_memory, validate_run
from parties.mpc.private_bins import released_config
from parties.mpc.progress_text import (
    activity_text,
    observe_admission,
    observe_mesh,
    observe_store,
    peer_wait_notice,
)
from parties.mpc.replay.effects import Effects
from parties.mpc.replay.log import REPLAY_FOLDER, WARNING, ReplayLog
from parties.mpc.replay.recorder import RecordedEffects
from parties.mpc.storage.store import RHO
from parties.mpc.transcript_schema import PROTOCOL
from parties.network.port_sharing import SharedPorts, study_sni_name
from parties.observability.events import OnRejection, Progress, Rejection
from parties.observability.heartbeat import Heartbeat
from parties.observability.status import RunInfo, RunStatus
from parties.session.operator_commands import OperatorCommands
from parties.session.result_digests import TABLE_FILE, ResultDigests, result_digests
from parties.session.study import Study
from parties.storage.files import disk_errors
from parties.storage.release_registry import RegisteredFolder, StudyRegistration
from parties.storage.user_paths import registry_path
from protocols.context import Context, Transport, root_path
from protocols.errors import ProtocolError, ProtocolViolation
from protocols.mesh import TlsFiles
from protocols.pairing import Seals
from protocols.runtime import PartyRuntime
from protocols.sealing import BoxKey
from protocols.transcript import Transcript, Value

CLOSE_S = 8.0
"""Maximum time for leaving the mesh after a failure, in seconds."""
_TABLE = "table"
"""Key in the lead's store: number of rows of the synthetic table, once it is written."""


def server_files(config: Config, pid: int, directory: Path | None = None) -> CertificateFiles:
    """Certificate files of server ``pid``, verified. Raises ConfigError, CertificateError.

    The sealing key may be missing if ``directory`` holds a store: that of a run that has ended.
    """
    party, role = config.require_parties()[pid], f"party {pid}"
    files = check_pinned_identity(config.require_tls(pid), party.pinned, role)
    if files.seal.exists() or directory is None or not has_store(directory):
        check_seal(files, party.seal_to, role)
    return files


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
    study = Study.of(config)
    workload, plan = study.workload, validate_run(study)
    check_memory(config, server_memory(study, pid), "this server")
    bits = security_bits(study)
    identity = run_identity(config, workload.digest(), plan, bits)
    with (
        _make_effects(config, pid, directory, progress) as effects,
        effects.store(directory / STORE_FOLDER, config.digest(), rounds=plan.rounds) as store,
    ):
        check_open(store)
        commands = commands or OperatorCommands()
        commands.keep_in(store)
        folder = RegisteredFolder.of_server(config, pid, store.identity, directory)
        registration = StudyRegistration.begin(registry_path(register), folder)
        store.admit = registration.check_client
        store.set_meta(RHO, repr(plan.rho))
        before = store.ended
        if before:
            # A kill may have interrupted the deletion.
            discard_secrets(store, files, registration, progress=progress)
        else:
            server_files(config, pid)
        transcript = open_transcript(
            directory, files, identity, config=config, pid=pid, effects=effects
        )
        server = ComputeServer(
            config=config,
            pid=pid,
            directory=directory,
            workload=workload,
            plan=plan,
            security_bits=bits,
            store=store,
            transcript=transcript,
            progress=progress,
            closed=closed,
            effects=effects,
            orders=commands,
            authority=authority_bytes(files),
            on_resume=registration.resume,
            on_release=registration.release,
            on_admission=lambda arrivals: observe_admission(status, server, arrivals),
        )
        observe_store(status, server)
        try:
            with disk_errors(directory):
                await _serve(server, files, identity, ports=ports, status=status)
                transcript.close()
        except BaseException as error:
            with contextlib.suppress(OSError, ValueError):
                transcript.close(f"failed: {_goodbye_reason(error)}")
            raise
        finally:
            # The run has ended, even if a connection failed after that.
            if store.ended and not before:
                discard_secrets(store, files, registration, progress=progress)
            status.freeze()
    progress.event("finished", "finished")


@contextlib.contextmanager
def _make_effects(
    config: Config, pid: int, directory: Path, progress: Progress
) -> Iterator[Effects]:
    """The server's effects; with ``record_replay`` they are recorded in a replay log. Raises StoreError."""
    if not config.run.record_replay:
        yield Effects()
        return
    progress.event("recording", "WARNING: " + WARNING.format(folder=directory / REPLAY_FOLDER))
    with disk_errors(directory):
        log = ReplayLog(directory, pid)
    try:
        yield RecordedEffects(log)
    finally:
        with disk_errors(directory):
            log.close()


def open_transcript(
    directory: Path,
    files: CertificateFiles,
    identity: RunIdentity,
    *,
    config: Config,
    pid: int,
    effects: Effects,
) -> Transcript:
    """This server's transcript, begun or continued. Raises StoreError, CertificateError."""
    agreed: dict[str, Value] = json.loads(json.dumps(config.agreed()))
    header: dict[str, Value] = {
        "protocol": PROTOCOL,
        "run": identity.run,
        "party": pid,
        "name": config.require_parties()[pid].name,
        "config": agreed,
        "config_sha256": identity.config,
        "workload_sha256": identity.workload,
        "version": version(),
        "wire": identity.wire,
        "plan": identity.plan,
    }
    path = directory / "transcript.jsonl"
    with disk_errors(path):
        return effects.transcript(path, sign=signer(files), header=header)


class _MeshTranscript:
    """Transcript for the mesh's threads: a full disk ends the run instead of one thread."""

    def __init__(self, server: ComputeServer) -> None:
        self._transcript = server.transcript
        self._directory = server.directory
        self._loop = asyncio.get_running_loop()
        self.runtime: PartyRuntime | None = None

    def message(
        self,
        *,
        step: str,
        round: int | None,
        direction: str,
        peer: int,
        label: int,
        size: int,
        digest: bytes,
    ) -> None:
        """See ``protocols.runtime.Recorder``."""
        try:
            with disk_errors(self._directory):
                self._transcript.message(
                    step=step,
                    round=round,
                    direction=direction,
                    peer=peer,
                    label=label,
                    size=size,
                    digest=digest,
                )
        except StoreError as error:
            if self.runtime is not None:
                self._loop.call_soon_threadsafe(self.runtime.fail, error)

    def opened(self, *, step: str, round: int | None, what: str, count: int, value: bytes) -> None:
        """See ``protocols.runtime.Recorder``."""
        self._transcript.opened(step=step, round=round, what=what, count=count, value=value)


class _HostMonitor:
    """Ends the attempt if this server's host has no room, since it would wait for participants in vain."""

    def __init__(self) -> None:
        self.runtime: PartyRuntime | None = None

    def on_storage_failure(self, error: StoreError) -> None:
        """See ``parties.mpc.intake.http.IngestApi``."""
        if self.runtime is not None:
            self.runtime.fail(error)


async def _serve(
    server: ComputeServer,
    files: CertificateFiles,
    identity: RunIdentity,
    *,
    ports: SharedPorts | None,
    status: RunStatus,
) -> None:
    """Takes submissions and computes, until the run is finished or has failed."""
    config, host = server.config, _HostMonitor()
    ingest = await _ingest(server, files, ports, status.rejected, on_lack=host.on_storage_failure)
    try:
        keyless = _KeylessPeers()
        runtime = host.runtime = _runtime(
            server, files, ports, rejected=status.rejected, keyless=keyless
        )
        try:
            started = time.perf_counter()
            async with peer_wait_notice(runtime, config, status, server.progress):
                await runtime.connect()
            seconds = time.perf_counter() - started
            if ingest is not None:
                ingest.retry_forwarding()
            observe_mesh(status, runtime, server.progress)
            server.progress.event("connected", "connected to the two other servers")
            costs = CostsFile(server.directory / "costs.json", runtime.costs)
            costs.seconds["connect"] = seconds
            transport = _KeyGuardedTransport(server.effects.transport(runtime), keyless)
            context = Context(transport, root_path(config.run.id))
            await _compute(server, context, identity, costs)
            # The others wait for the last message, so this server sends it before it deletes its state.
            await runtime.flush()
            server.store.end()
        except BaseException as error:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    asyncio.shield(runtime.close(_goodbye_reason(error))), CLOSE_S
                )
            raise
        await runtime.close()
    finally:
        if ingest is not None:
            await ingest.close()


async def _compute(
    server: ComputeServer, context: Context, identity: RunIdentity, costs: CostsFile
) -> None:
    """Computes, with a heartbeat while a step is slow."""
    leads, plan = server.pid == LEAD, server.plan
    at = partial(activity_text, costs.costs, plan, lead=leads)
    heartbeat = Heartbeat(server.progress, rounds=plan.rounds, activity=at)
    server = replace(server, progress=heartbeat.progress)
    lead = _lead(server, heartbeat) if leads else None
    async with heartbeat.running():
        await compute(server, context, identity, costs=costs, lead=lead)


async def _ingest(
    server: ComputeServer,
    files: CertificateFiles,
    ports: SharedPorts | None,
    rejected: OnRejection,
    *,
    on_lack: OnStorageFailure,
) -> IngestServer | None:
    """Starts to take submissions, unless the run has ended."""
    address = server.config.require_parties()[server.pid].ingest
    if server.store.ended:
        server.progress.event("listening", "the run has ended: no submissions are taken")
        return None
    ingest = await start_ingest(
        server.store,
        server.config,
        server.pid,
        files,
        commands=server.orders,
        ports=ports,
        rejected=rejected,
        on_lack=on_lack,
    )
    server.progress.event("listening", f"taking submissions at {address}")
    return ingest


def _lead(server: ComputeServer, heartbeat: Heartbeat) -> LeadDuties:
    estimator = make_estimator(server.study, server.plan)

    def estimator_for(workload: Workload) -> Estimator:
        nonlocal estimator
        estimator = make_estimator(Study(server.config, workload), server.plan)
        estimator.on_iteration = heartbeat.iteration
        return estimator

    def write(result: AimResult, workload: Workload) -> ResultDigests:
        # Imported here because only the lead needs it, at its end.
        from parties.mpc.quality import save_quality

        if estimator.model is None:
            raise RuntimeError("the final estimate made no model")
        # A restart after this point keeps the table, which may be published by now, as the only one.
        rows = server.store.meta(_TABLE)
        if rows and (server.directory / TABLE_FILE).exists():
            return result_digests(server.directory, int(rows))
        model, config = estimator.model, released_config(Study(server.config, workload))
        written = write_synthetic(server.directory, model, config, total=result.total)
        save_quality(
            server.directory, Study(config, workload), result, model=model, codes=written.codes
        )
        server.store.set_meta(_TABLE, str(written.said.rows))
        return written.said

    return LeadDuties(estimator_for, write)


def _goodbye_reason(error: BaseException) -> str:
    """Reason for peers: the full message of errors made for them, only the class of any other error."""
    for_peers = (ProtocolError, MechanismError, TooFewClients)
    if isinstance(error, asyncio.CancelledError):
        return "it was stopped"
    return str(error) if isinstance(error, for_peers) else f"it failed ({type(error).__name__})"


class _KeylessPeers:
    """Peers whose sealing key is not the pinned one: a finished run has deleted its key, and may still be met."""

    def __init__(self) -> None:
        self._found: dict[int, ProtocolViolation] = {}

    def add(self, violation: ProtocolViolation) -> None:
        """Registers a keyless peer."""
        self._found[violation.pid] = violation

    def check(self) -> None:
        """Raises ProtocolViolation if there is a keyless peer."""
        for violation in self._found.values():
            raise violation


class _KeyGuardedTransport:
    """``Transport`` that wraps ``inner`` and refuses keys if a peer is keyless, so that no shares are computed on."""

    def __init__(self, inner: Transport, keyless: _KeylessPeers) -> None:
        self._inner, self._keyless = inner, keyless
        self.pid, self.costs = inner.pid, inner.costs
        self.private_key, self.opened = inner.private_key, inner.opened
        self.post, self.fetch = inner.post, inner.fetch

    def component_key(self, component: int) -> bytes:
        """See ``Transport``. Raises ProtocolViolation."""
        self._keyless.check()
        return self._inner.component_key(component)


def _sealing_keys(server: ComputeServer, files: CertificateFiles) -> Seals:
    """Keys for the mesh; a server whose run is over gets a fresh key, enough to report the end of the run."""
    first, second, third = (party.seal_to for party in server.config.require_parties())
    kept = files.seal.exists() or not server.store.ended
    return Seals((first, second, third), SealKey.load(files.seal) if kept else BoxKey.generate())


def _runtime(
    server: ComputeServer,
    files: CertificateFiles,
    ports: SharedPorts | None,
    *,
    rejected: OnRejection,
    keyless: _KeylessPeers,
) -> PartyRuntime:
    parties = server.config.require_parties()
    first, second, third = (party.pinned for party in parties)
    recorder = _MeshTranscript(server)
    recorder.runtime = PartyRuntime(
        server.pid,
        [(party.mesh.host, party.mesh.port) for party in parties],
        tls=TlsFiles(
            files.ca,
            files.cert,
            files.key,
            (first.name, second.name, third.name),
            (first.key, second.key, third.key),
        ),
        seals=_sealing_keys(server, files),
        session=server.config.run.id,
        timeout_s=server.config.timeouts.receive_s,
        connect_timeout_s=server.config.timeouts.connect_s,
        binding=server.config.digest(),
        version=version_line(),
        recorder=recorder,
        inlet=None if ports is None else ports.mesh,
        on_other_seal=keyless.add,
        on_stranger=lambda text: rejected(Rejection.UNKNOWN_PEER, f"mesh: {text}"),
        server_name=study_sni_name(server.config.digest()),
    )
    return recorder.runtime
