"""One compute server: durable, resumable, and silent about everything that is not public.

Provides ``run_party``: open the store, take submissions over HTTPS, meet the two others, and compute with them
(`parties.mpc.computation`). Party 0 leads: it estimates the model and writes the synthetic table.

When all three are done, what is secret of the run is deleted (`parties.mpc.outputs`). Started again after that, a
server meets the others, agrees that nothing is left to do, and ends once more.

Every failure ends within its deadline as one exception that says what and where; what was finished is in the store, and
the same command goes on from there. Secret: the store's shares and the certificate's key. Public: everything that
events, transcript and outputs say. Source: FLAIM paper, Alg. 3.
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
from parties.foundation.version import spoken, version
from parties.identity.tls import authority_bytes, check_holder, check_seal, signer
from parties.mpc.agreement import Identity, identity_of
from parties.mpc.computation import ComputeServer, LeadDuties, compute
from parties.mpc.estimation import LEAD, make_estimator
from parties.mpc.intake.http import OnLack
from parties.mpc.intake.listener import Ingest, start_ingest
from parties.mpc.outputs import STORE, CostsFile, check_open, discard, has_store, write_synthetic
from parties.mpc.planning.budget import security_bits
from parties.mpc.planning.resources import server_memory
from parties.mpc.planning.validation import check_feasible, check_memory
from parties.mpc.private_bins import released_config
from parties.mpc.progress_text import (
    doing,
    saying_who_is_missing,
    watch_arrivals,
    watch_mesh,
    watch_store,
)
from parties.mpc.replay.effects import Circumstances
from parties.mpc.replay.log import FOLDER, WARNING, Tape
from parties.mpc.replay.recorder import Recorded
from parties.mpc.storage.store import RHO
from parties.mpc.transcript_schema import PROTOCOL
from parties.network.port_sharing import Inlets, study_name
from parties.observability.events import Progress, Rejected, Rejection
from parties.observability.heartbeat import Pulse
from parties.observability.status import About, Board, Watched
from parties.session.operator_commands import Orders
from parties.session.result_digests import TABLE, Published, published
from parties.storage.files import disk_errors
from parties.storage.release_registry import Registered, Study
from parties.storage.user_paths import register_file
from protocols.context import Context, Transport, root_path
from protocols.errors import ProtocolError, ProtocolViolation
from protocols.mesh import TlsFiles
from protocols.pairing import Seals
from protocols.runtime import PartyRuntime
from protocols.sealing import BoxKey
from protocols.transcript import Transcript, Value

CLOSE_S = 8.0
"""How long leaving the mesh may take after a failure."""
_TABLE = "table"
"""The number of rows of the synthetic table, once it is written: in the lead's store."""


def own_files(config: Config, pid: int, directory: Path | None = None) -> CertificateFiles:
    """The certificate files of server ``pid``, checked. Raises ConfigError, CertificateError.

    The sealing key may be missing where ``directory`` holds a store: that of a run that has ended.
    """
    party, role = config.require_parties()[pid], f"party {pid}"
    files = check_holder(config.require_tls(pid), party.pinned, role)
    if files.seal.exists() or directory is None or not has_store(directory):
        check_seal(files, party.seal_to, role)
    return files


async def run_party(
    config: Config,
    pid: int,
    directory: Path,
    *,
    progress: Progress,
    closed: asyncio.Event,
    register: Path | None = None,
    inlets: Inlets | None = None,
    board: Board | None = None,
    orders: Orders | None = None,
) -> None:
    """Run server ``pid`` in ``directory`` until the run is finished.

    ``closed`` is set by whoever knows that no more data owners will come; ``register`` is the file of this server's
    studies, if it has not its usual place; ``inlets`` take the place of ports of its own; ``board`` is told what goes
    on; ``orders`` is what its operator asks, now or later. Raises ConfigError, CertificateError, StoreError (with
    StudyReleased where another folder has released this configuration), TooFewClients, ProtocolError, MechanismError.
    """
    board = board or Board(About.of_party(config, pid))
    progress = Watched(progress, board)
    files = own_files(config, pid, directory)
    workload = config.build_workload()
    plan = check_feasible(config, workload)
    check_memory(config, server_memory(config, workload, pid), "this server")
    bits = security_bits(config, workload)
    identity = identity_of(config, workload.digest(), plan, bits)
    with (
        _circumstances(config, pid, directory, progress) as circumstances,
        circumstances.store(directory / STORE, config.digest(), rounds=plan.rounds) as store,
    ):
        check_open(store)
        orders = orders or Orders()
        orders.keep_in(store)
        study = Study.of_server(config, pid, store.identity, directory)
        registered = Registered.begin(register_file(register), study)
        store.admit = registered.check_client
        store.set_meta(RHO, repr(plan.rho))
        before = store.ended
        if before:
            # A kill may have broken this off.
            discard(store, files, registered, progress=progress)
        else:
            own_files(config, pid)
        transcript = open_transcript(
            directory, files, identity, config=config, pid=pid, circumstances=circumstances
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
            circumstances=circumstances,
            orders=orders,
            authority=authority_bytes(files),
            on_resume=registered.resume,
            on_release=registered.release,
            on_arrivals=lambda arrivals: watch_arrivals(board, server, arrivals),
        )
        watch_store(board, server)
        try:
            with disk_errors(directory):
                await _serve(server, files, identity, inlets=inlets, board=board)
                transcript.close()
        except BaseException as error:
            with contextlib.suppress(OSError, ValueError):
                transcript.close(f"failed: {_farewell(error)}")
            raise
        finally:
            # The end is the end, whatever became of the connections after it.
            if store.ended and not before:
                discard(store, files, registered, progress=progress)
            board.freeze()
    progress.event("finished", "finished")


@contextlib.contextmanager
def _circumstances(
    config: Config, pid: int, directory: Path, progress: Progress
) -> Iterator[Circumstances]:
    """The server's circumstances; with record_replay they go to a tape. Raises StoreError."""
    if not config.run.record_replay:
        yield Circumstances()
        return
    progress.event("recording", "WARNING: " + WARNING.format(folder=directory / FOLDER))
    with disk_errors(directory):
        tape = Tape(directory, pid)
    try:
        yield Recorded(tape)
    finally:
        with disk_errors(directory):
            tape.close()


def open_transcript(
    directory: Path,
    files: CertificateFiles,
    identity: Identity,
    *,
    config: Config,
    pid: int,
    circumstances: Circumstances,
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
        return circumstances.transcript(path, sign=signer(files), header=header)


class _MeshTranscript:
    """The transcript as the mesh's threads see it: a disk that is full ends the run instead of one thread."""

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


class _Host:
    """What this server's host has no room for ends the attempt, and so is told: owners would be waited for in vain."""

    def __init__(self) -> None:
        self.runtime: PartyRuntime | None = None

    def lacks(self, error: StoreError) -> None:
        """See ``parties.mpc.intake.http.Api``."""
        if self.runtime is not None:
            self.runtime.fail(error)


async def _serve(
    server: ComputeServer,
    files: CertificateFiles,
    identity: Identity,
    *,
    inlets: Inlets | None,
    board: Board,
) -> None:
    """Take submissions and compute, until the run is finished or has failed."""
    config, host = server.config, _Host()
    ingest = await _ingest(server, files, inlets, board.rejected, on_lack=host.lacks)
    try:
        keyless = _Keyless()
        runtime = host.runtime = _runtime(
            server, files, inlets, rejected=board.rejected, keyless=keyless
        )
        try:
            started = time.perf_counter()
            async with saying_who_is_missing(runtime, config, board, server.progress):
                await runtime.connect()
            seconds = time.perf_counter() - started
            if ingest is not None:
                ingest.peers_are_there()
            watch_mesh(board, runtime)
            server.progress.event("connected", "connected to the two other servers")
            costs = CostsFile(server.directory / "costs.json", runtime.costs)
            costs.seconds["connect"] = seconds
            transport = _Guarded(server.circumstances.transport(runtime), keyless)
            context = Context(transport, root_path(config.run.id))
            await _compute(server, context, identity, costs)
            # The others wait for the last word: it is on its way before this server forgets what it knew.
            await runtime.flush()
            server.store.end()
        except BaseException as error:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(runtime.close(_farewell(error))), CLOSE_S)
            raise
        await runtime.close()
    finally:
        if ingest is not None:
            await ingest.close()


async def _compute(
    server: ComputeServer, context: Context, identity: Identity, costs: CostsFile
) -> None:
    """Compute, and say that it goes on where that is slow."""
    leads, plan = server.pid == LEAD, server.plan
    at = partial(doing, costs.costs, plan, lead=leads)
    pulse = Pulse(server.progress, rounds=plan.rounds, doing=at)
    server = replace(server, progress=pulse)
    lead = _lead(server, pulse) if leads else None
    async with pulse.beating():
        await compute(server, context, identity, costs=costs, lead=lead)


async def _ingest(
    server: ComputeServer,
    files: CertificateFiles,
    inlets: Inlets | None,
    rejected: Rejected,
    *,
    on_lack: OnLack,
) -> Ingest | None:
    """Take submissions; not where the run has ended."""
    address = server.config.require_parties()[server.pid].ingest
    if server.store.ended:
        server.progress.event("listening", "the run has ended: no submissions are taken")
        return None
    ingest = await start_ingest(
        server.store,
        server.config,
        server.pid,
        files,
        orders=server.orders,
        inlets=inlets,
        rejected=rejected,
        on_lack=on_lack,
    )
    server.progress.event("listening", f"taking submissions at {address}")
    return ingest


def _lead(server: ComputeServer, pulse: Pulse) -> LeadDuties:
    estimator = make_estimator(server.config, server.workload, server.plan)

    def estimator_for(workload: Workload) -> Estimator:
        nonlocal estimator
        estimator = make_estimator(server.config, workload, server.plan)
        estimator.on_iteration = pulse.iteration
        return estimator

    def write(result: AimResult, workload: Workload) -> Published:
        # Wanted by one server, at its end.
        from parties.mpc.quality import keep_quality

        if estimator.model is None:
            raise RuntimeError("the final estimate made no model")
        # Started again after this: the table that may be published by now stays the only one.
        rows = server.store.meta(_TABLE)
        if rows and (server.directory / TABLE).exists():
            return published(server.directory, int(rows))
        model, config = estimator.model, released_config(server.config, workload)
        written = write_synthetic(server.directory, model, config, total=result.total)
        keep_quality(server.directory, config, workload, result, model=model, codes=written.codes)
        server.store.set_meta(_TABLE, str(written.said.rows))
        return written.said

    return LeadDuties(estimator_for, write)


def _farewell(error: BaseException) -> str:
    """What peers are told: messages made for them in full, of anything else its class alone."""
    for_peers = (ProtocolError, MechanismError, TooFewClients)
    if isinstance(error, asyncio.CancelledError):
        return "it was stopped"
    return str(error) if isinstance(error, for_peers) else f"it failed ({type(error).__name__})"


class _Keyless:
    """The peers whose sealing key is not the pinned one: a run that is over has deleted that, and may still be met."""

    def __init__(self) -> None:
        self._found: dict[int, ProtocolViolation] = {}

    def add(self, violation: ProtocolViolation) -> None:
        """Put up with one."""
        self._found[violation.pid] = violation

    def check(self) -> None:
        """Raises ProtocolViolation where there is one."""
        for violation in self._found.values():
            raise violation


class _Guarded:
    """A ``Transport`` that is ``inner``, without keys where a peer is keyless: nothing is computed on shares then."""

    def __init__(self, inner: Transport, keyless: _Keyless) -> None:
        self._inner, self._keyless = inner, keyless
        self.pid, self.costs = inner.pid, inner.costs
        self.private_key, self.opened = inner.private_key, inner.opened
        self.post, self.fetch = inner.post, inner.fetch

    def component_key(self, component: int) -> bytes:
        """See ``Transport``. Raises ProtocolViolation."""
        self._keyless.check()
        return self._inner.component_key(component)


def _seals(server: ComputeServer, files: CertificateFiles) -> Seals:
    """The keys for the mesh; a server whose run is over has a fresh one, which is good for saying so."""
    first, second, third = (party.seal_to for party in server.config.require_parties())
    kept = files.seal.exists() or not server.store.ended
    return Seals((first, second, third), SealKey.load(files.seal) if kept else BoxKey.generate())


def _runtime(
    server: ComputeServer,
    files: CertificateFiles,
    inlets: Inlets | None,
    *,
    rejected: Rejected,
    keyless: _Keyless,
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
        seals=_seals(server, files),
        session=server.config.run.id,
        timeout_s=server.config.timeouts.receive_s,
        connect_timeout_s=server.config.timeouts.connect_s,
        binding=server.config.digest(),
        version=spoken(),
        recorder=recorder,
        inlet=None if inlets is None else inlets.mesh,
        on_other_seal=keyless.add,
        on_stranger=lambda text: rejected(Rejection.STRANGER, f"mesh: {text}"),
        server_name=study_name(server.config.digest()),
    )
    return recorder.runtime
