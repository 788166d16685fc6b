"""Service of many studies at one server: their states, a reconciliation every second, and its operator's commands.

``Service`` reads the states of the two others (`parties.service.peer_sync`), computes the actions that follow
(`parties.service.reconcile`), and applies them: it fetches studies that another operator proposed, starts a study's
process (`parties.service.workers`) when all three have approved it and it has its turn, and ends studies that ended
elsewhere. Operators' commands change the server's own studies, and the others read the result. Every decision is in the
database before it is applied; a restarted service continues from there.

Nothing here is secret; a study's secrets are in its folder and process.
"""

import asyncio
import contextlib
import gc
import logging
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from parties.config import Address, CertificateFiles, Config, load_config
from parties.foundation.errors import ConfigError, PartyError, StoreError
from parties.mpc.outputs import forget_run, has_store
from parties.mpc.submission.sealed_upload import ReceiptSigner, void_answer
from parties.network.port_sharing import study_sni_name
from parties.network.sni_router import SniRouter
from parties.observability.clocks import Clocks
from parties.observability.events import Progress
from parties.observability.failure_causes import Obstacle, cause_of
from parties.service.closed_studies import ClosedStudyResponder
from parties.service.identity import ServiceIdentity
from parties.service.peer_state import MAX_STUDIES, PeerState, StudySnapshot
from parties.service.peer_sync import SERVICE_SNI, Peer, PeerServer, poll_peers
from parties.service.reconcile import (
    EndStudy,
    FetchStudy,
    ObservedState,
    QueueStudy,
    RecordApproval,
    RerunStudy,
    StartStudy,
    reconcile,
)
from parties.service.studies import (
    ACTIVE,
    DISTAIM,
    ENDED,
    StoredProposal,
    StudyEvent,
    StudyRecord,
    StudyRepository,
    StudyState,
    utc_now,
)
from parties.service.study_intake import (
    Proposal,
    ProposalRefused,
    StudyFolder,
    StudySummary,
    check_proposal,
    delete_sealing_key,
    make_study_folder,
    new_card,
    proposed_config,
    remove_unfinished,
)
from parties.service.workers import Worker
from parties.storage.release_registry import ReleaseRegistry
from parties.storage.user_paths import registry_path

logger = logging.getLogger("syncret.service")

POLL_S = 1.0
"""Interval between polls of the others, in seconds."""
_FETCH_AGAIN_S = 10.0
_MAX_REFUSED = 500
"""Maximum number of refused studies that are kept, the latest ones."""
_MAX_PROPOSED = 200
"""Maximum number of studies that wait for this operator; beyond it, none are accepted from other servers."""
_MAX_ENDED_SHARED = 100
"""Number of ended studies in the state for other servers, besides those that another server has open."""
_FORGET_AGAIN_S = 60.0
_MAX_ENDED_RECENT = 50
"""Number of ended studies among the recent ones; `GET /studies` returns all."""


class WrongStudyState(PartyError):
    """A command does not fit the study's state."""


class UnknownStudy(PartyError):
    """No study, or more than one, has this name."""


class Service:
    """Service of ``identity``. ``async with`` opens its ports and starts the active studies; ``run`` reconciles."""

    def __init__(
        self,
        identity: ServiceIdentity,
        repository: StudyRepository,
        *,
        limit: int,
        register: Path | None = None,
        listen: tuple[Address | None, Address | None] = (None, None),
    ) -> None:
        """Creates a closed service.

        ``listen`` are addresses of this host for mesh and ingest, if they differ from the public ones. Raises
        CertificateError.
        """
        self.identity = identity
        self.repository = repository
        self.limit = limit
        self.studies: dict[str, StudyRecord] = {}
        """Studies in the order of their last changes, independent of clocks, which may be set back."""
        self.refused: dict[str, str] = {}
        self.workers: dict[str, Worker] = {}
        self.peers = {pid: Peer(identity, pid) for pid in identity.peers}
        self.obstacle: Obstacle | None = None
        """Failure that blocks the service itself, such as its database's disk."""
        self.started_at = time.time()
        self.revision = 0
        """Counter of changes, for event streams."""
        self._register = register
        self._listen = listen
        self._fetch_after: dict[str, float] = {}
        self._summaries: dict[str, StudySummary] = {}
        self._pending_deletions: dict[str, float] = {}
        """Cancelled studies whose secrets still exist, with the time of the next deletion attempt."""
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._changes = asyncio.Condition()
        self._peer_server = PeerServer(identity, self)
        self._closed_studies = ClosedStudyResponder(
            self.studies.get, self._files, self._void_answer
        )
        self._routers: tuple[SniRouter, SniRouter] | None = None

    @property
    def name(self) -> str:
        """Name of this server."""
        return self.identity.own.name

    @property
    def clocks(self) -> Clocks:
        """Offsets of the three servers' clocks."""
        return Clocks.of(self.identity.pid, {pid: peer.clock for pid, peer in self.peers.items()})

    @property
    def routers(self) -> tuple[SniRouter, SniRouter]:
        """Routers of its ports, mesh and ingest, while the service is open."""
        if self._routers is None:
            raise RuntimeError("the service is not open")
        return self._routers

    async def __aenter__(self) -> Self:
        """Opens the ports and starts the active studies. Raises ConfigError, CertificateError, StoreError."""
        studies = sorted(
            await asyncio.to_thread(self.repository.studies), key=lambda study: study.changed_at
        )
        self.studies.update({study.digest: study for study in studies})
        await asyncio.to_thread(remove_unfinished, self.identity)
        self._pending_deletions = {
            study.digest: 0.0
            for study in studies
            if study.state is StudyState.CANCELLED and self.study_folder(study).seal.exists()
        }
        own = self.identity.own
        # Summaries for the status are in memory, so that they are available without the database.
        for study in self.recent():
            with contextlib.suppress(ConfigError):
                await self.summary(study.digest)
        mesh = SniRouter.open("mesh", self._listen[0] or own.mesh)
        try:
            ingest = SniRouter.open("ingest", self._listen[1] or own.ingest)
        except BaseException:
            await mesh.close()
            raise
        self._routers = (mesh, ingest)
        await self._peer_server.start()
        mesh.routes[SERVICE_SNI] = self._peer_server.take
        ingest.fallback = self._answer_closed_study
        for study in self.studies.values():
            if study.state in ACTIVE:
                self._start_worker(study)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for front in self.routers:
            await front.close()
        await asyncio.gather(*(worker.stop() for worker in self.workers.values()))
        await self._peer_server.close()
        await self._closed_studies.close()
        await asyncio.gather(*(peer.close() for peer in self.peers.values()))

    def _answer_closed_study(self, name: str, connection: socket.socket) -> bool:
        """Passes a connection for a study without a process to the responder of closed studies."""
        for study in self.studies.values():
            if (
                study.kind == DISTAIM
                and study.state not in ACTIVE
                and study_sni_name(study.digest) == name
            ):
                return self._closed_studies.take(study.digest, connection)
        return False

    def _files(self, study: StudyRecord) -> CertificateFiles:
        """Returns a study's certificate files. Raises ConfigError."""
        return load_config(self.study_folder(study).config).require_tls(self.identity.pid)

    def _void_answer(self, study: StudyRecord, client: str) -> Mapping[str, object] | None:
        """Returns this server's signed statement that nothing of a cancelled study was opened, or will be.

        None for any other study: one that is not cancelled, has released anything, or whose secrets are still here.
        Raises ConfigError, CertificateError, StoreError. Blocks.
        """
        folder = self.study_folder(study)
        if study.state is not StudyState.CANCELLED or folder.seal.exists():
            return None
        config = load_config(folder.config)
        registry = ReleaseRegistry(registry_path(self._register))
        if registry.has_released(config.digest(), self.identity.own.name):
            return None
        files = config.require_tls(self.identity.pid)
        return void_answer(config, client, ReceiptSigner.load(self.identity.own.name, files))

    async def run(self) -> None:
        """Reconciles every second until it is cancelled."""
        while True:
            self._wake.clear()
            await poll_peers(self.peers)
            try:
                async with self._lock:
                    fetches = await self._step()
                # Without the lock: another server may be slow, and commands do not wait for it.
                await asyncio.gather(*(self._fetch(act) for act in fetches))
                self.obstacle = None
            except StoreError as error:
                # The database or the disk failed; no action was applied that is not in the database.
                self.obstacle = cause_of(error)
                logger.warning("%s", error)
            await self._changed()
            # Not wait_for, which may swallow a cancellation that coincides with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._wake.wait()

    async def changed_since(self, revision: int) -> int:
        """Waits until the revision differs from ``revision``, and returns the newest."""
        async with self._changes:
            await self._changes.wait_for(lambda: self.revision != revision)
        return self.revision

    async def _changed(self) -> None:
        async with self._changes:
            self._changes.notify_all()

    def _touch(self) -> None:
        """Counts a change and triggers a step at once."""
        self.revision += 1
        self._wake.set()

    # Read by the other servers.

    def statement(self) -> PeerState:
        """See `parties.service.peer_sync.PeerRequestHandler`."""
        view = self._observe()
        return PeerState(
            self.name,
            self.limit,
            view.busy,
            {study.digest: self._study_snapshot(study) for study in self._shared_studies()},
            self.refused,
            view.order,
            obstacle=self.obstacle,
        )

    def _shared_studies(self) -> list[StudyRecord]:
        """Returns the open DistAIM studies, the latest ended ones, and ended ones that another server has open."""
        shared = [study for study in self.studies.values() if study.kind == DISTAIM]
        over = [study for study in shared if study.state in ENDED]
        elsewhere = {
            digest
            for peer in self.peers.values()
            if peer.statement
            for digest, snapshot in peer.statement.studies.items()
            if snapshot.state not in ENDED
        }
        missed = [study for study in over[:-_MAX_ENDED_SHARED] if study.digest in elsewhere]
        shared_studies = (
            [study for study in shared if study.state not in ENDED]
            + over[-_MAX_ENDED_SHARED:]
            + missed
        )
        return shared_studies[:MAX_STUDIES]

    def _study_snapshot(self, study: StudyRecord) -> StudySnapshot:
        worker = self.workers.get(study.digest)
        return StudySnapshot(
            study.state,
            study.turn,
            self.name in study.approvals,
            worker is not None and worker.calling and study.state in ACTIVE,
            study.reason,
            worker.obstacle if worker is not None and study.state in ACTIVE else None,
        )

    async def proposal(self, digest: str) -> Mapping[str, object] | None:
        """See `parties.service.peer_sync.PeerRequestHandler`."""
        study = self.studies.get(digest)
        if study is None or study.kind != DISTAIM:
            return None
        return {**asdict(await self.proposed(digest)), "proposer": study.proposer}

    async def new_card(self, kind: str) -> str:
        """Returns a new card of this server for a study. Raises PartyError."""
        return await asyncio.to_thread(new_card, self.identity, kind)

    async def cards(self, kind: str) -> list[str]:
        """Returns new cards of all servers of a study, in their order. Raises PartyError, PeerUnavailable."""
        if kind != DISTAIM:
            return [await self.new_card(kind)]
        texts = [
            self.peers[pid].new_card() if pid in self.peers else self.new_card(kind)
            for pid in range(len(self.identity.servers))
        ]
        return list(await asyncio.gather(*texts))

    async def proposed(self, digest: str) -> StoredProposal:
        """Returns the proposal of a known study. Raises StoreError."""
        return await asyncio.to_thread(self.repository.proposed, digest)

    async def summary(self, digest: str) -> StudySummary:
        """Returns the summary of a known study. Raises ConfigError, StoreError."""
        if (found := self._summaries.get(digest)) is None:
            found = self._summaries[digest] = StudySummary.of(await self.config(digest))
        return found

    async def config(self, digest: str) -> Config:
        """Returns a study's configuration, which may be large. Raises ConfigError, StoreError."""
        return await asyncio.to_thread(proposed_config, await self.proposed(digest))

    def recent(self) -> list[StudyRecord]:
        """Returns the studies that are open or have a process, and the latest ended ones, in the order of proposal."""
        over = [study for study in self.studies.values() if study.state in ENDED]
        left_out = {study.digest for study in over[:-_MAX_ENDED_RECENT]} - self.workers.keys()
        found = [study for study in self.studies.values() if study.digest not in left_out]
        return sorted(found, key=lambda study: (study.proposed_at, study.digest))

    # Commands of the operator.

    def find(self, name: str) -> StudyRecord:
        """Returns a study by its digest, a prefix of it (8 digits or more), or its run's name. Raises UnknownStudy."""
        exact = self.studies.get(name)
        if exact is not None:
            return exact
        found = [
            study
            for study in self.studies.values()
            if (len(name) >= 8 and study.digest.startswith(name)) or study.run == name
        ]
        if len(found) != 1:
            what = "no study" if not found else f"{len(found)} studies"
            raise UnknownStudy(
                f"{what} here by the name {name[:64]!r} (a digest, 8 of its digits or more, or a run's name)"
            )
        return found[0]

    async def propose(self, document: Mapping[str, object], actor: str) -> StudyRecord:
        """Adds a study for all three operators to review. Raises ProposalRefused, StoreError."""
        proposal = await asyncio.to_thread(check_proposal, document, self.identity)
        async with self._lock:
            digest = proposal.config.digest()
            if digest not in self.studies:
                await self._add_study(proposal, self.name, actor)
            self.refused.pop(digest, None)
            return self.studies[digest]

    async def approve(self, digest: str, actor: str) -> StudyRecord:
        """Approves a study at this server, or another attempt of one that has failed. Raises WrongStudyState."""
        async with self._lock:
            study = self._require_study(digest)
            if study.state not in (StudyState.PROPOSED, StudyState.FAILED):
                raise WrongStudyState(
                    f"it is {study.state}; expected one that is proposed, or has failed"
                )
            approvals = study.approvals | {self.name}
            study = replace(study, state=StudyState.APPROVED, reason="", approvals=approvals)
            return await self._change(
                study, StudyEvent(utc_now(), digest, actor, "approved", "here")
            )

    async def cancel(self, digest: str, actor: str, reason: str = "") -> StudyRecord:
        """Ends a study for all three servers, for good, and deletes its secrets. Raises WrongStudyState, StoreError."""
        async with self._lock:
            study = self._require_study(digest)
            if study.state in (StudyState.FINISHED, StudyState.CANCELLED):
                raise WrongStudyState(f"it is {study.state}; expected one that is not over")
            said = f"cancelled by {self.name}" + (f": {reason}" if reason else "")
            return await self._end(study, StudyState.CANCELLED, said, actor)

    async def asked(self, digest: str, actor: str, order: str) -> None:
        """Records a command that was sent to the study's process. Raises StoreError."""
        await asyncio.to_thread(
            self.repository.note, StudyEvent(utc_now(), digest, actor, f"asked to {order}")
        )
        self._touch()

    def _require_study(self, digest: str) -> StudyRecord:
        study = self.studies.get(digest)
        if study is None:
            raise UnknownStudy(f"no study here has the digest {digest[:64]!r}; expected all of it")
        return study

    # Reconciliation.

    def _observe(self) -> ObservedState:
        heard = {pid: said for pid, peer in self.peers.items() if (said := peer.statement)}
        names = [server.name for server in self.identity.servers]
        self._fetch_after = {d: at for d, at in self._fetch_after.items() if time.monotonic() < at}
        later = dict.fromkeys(self._fetch_after, "")
        return ObservedState(
            self.identity.pid,
            names,
            self.limit,
            self.studies,
            heard,
            self.refused | later,
            self.workers,
        )

    async def _step(self) -> list[FetchStudy]:
        """Applies all actions that follow now, and returns the studies to fetch. Raises StoreError."""
        await self._check_workers()
        fetches = []
        for act in reconcile(self._observe()):
            if isinstance(act, FetchStudy):
                fetches.append(act)
            else:
                await self._apply(act)
            self._touch()
        await self._retry_forgetting()
        return fetches

    async def _apply(
        self, act: RecordApproval | QueueStudy | StartStudy | EndStudy | RerunStudy
    ) -> None:
        study = self.studies[act.digest]
        match act:
            case RecordApproval():
                study = replace(study, approvals=study.approvals | {act.server})
                await self._change(study, StudyEvent(utc_now(), act.digest, act.server, "approved"))
            case QueueStudy():
                text = "approved by all; waits for its turn"
                entry = StudyEvent(utc_now(), act.digest, self.name, "queued", text)
                await self._change(replace(study, state=StudyState.QUEUED), entry)
            case StartStudy():
                await self._start(study, act.turn)
            case EndStudy():
                # A statement of another server about a third one stays attributed to it.
                text = act.reason
                if not text.startswith(f"cancelled by {act.by}"):
                    text = f"{act.by}: {text or act.state}"
                await self._end(study, act.state, text, act.by)
            case RerunStudy():
                logger.info(
                    "%s: another server has to end it, too", study.run, extra=_log_fields(study)
                )
                self._start_worker(study)

    async def _fetch(self, act: FetchStudy) -> None:
        """Fetches and checks a study of another server. Raises StoreError."""
        peer = self.peers[act.pid]
        self._fetch_after[act.digest] = time.monotonic() + _FETCH_AGAIN_S
        try:
            self._check_room(peer)
            document = await peer.study(act.digest)
            proposal = await asyncio.to_thread(check_proposal, document, self.identity)
            if proposal.config.digest() != act.digest:
                raise ProposalRefused("what came is another configuration than was announced")
            async with self._lock:
                if act.digest not in self.studies:
                    proposer = self._proposer(document, peer)
                    await self._add_study(proposal, proposer, peer.server.name)
        except ProposalRefused as error:
            self.refused[act.digest] = str(error)
            if len(self.refused) > _MAX_REFUSED:
                del self.refused[next(iter(self.refused))]
            logger.warning("a study that %s proposed is not taken: %s", peer.server.name, error)
        except StoreError:
            raise
        except PartyError as error:
            logger.warning("%s", error)

    def _check_room(self, peer: Peer) -> None:
        """Raises PartyError if too many studies wait for this operator: a server could propose without end."""
        waiting = sum(study.state is StudyState.PROPOSED for study in self.studies.values())
        if waiting >= _MAX_PROPOSED:
            raise PartyError(
                f"a study that {peer.server.name} proposed is not looked at: {waiting} wait for approval here; "
                "expected that some of them are approved or cancelled first"
            )

    def _proposer(self, document: Mapping[str, object], peer: Peer) -> str:
        """Returns the proposer by the word of ``peer``; the history records it. Always one of the three servers."""
        said, names = document.get("proposer"), [server.name for server in self.identity.servers]
        return said if isinstance(said, str) and said in names else peer.server.name

    async def _add_study(self, proposal: Proposal, proposer: str, actor: str) -> None:
        known = {str(self.study_folder(study).path) for study in self.studies.values()}
        study_folder = await asyncio.to_thread(make_study_folder, self.identity, proposal, known)
        at, config = utc_now(), proposal.config
        study = StudyRecord(
            study_folder.digest,
            proposal.kind,
            config.run.id,
            proposer,
            at,
            StudyState.PROPOSED,
            at,
        )
        proposed = StoredProposal(proposal.text, proposal.certificates)
        entry = StudyEvent(at, study.digest, actor, "proposed")
        await asyncio.to_thread(self.repository.add, study, proposed, entry)
        self.studies[study.digest] = study
        self._summaries[study.digest] = StudySummary.of(config)
        self._touch()
        logger.info(
            "%s was proposed by %s: %s", study.run, proposer, study.digest, extra=_log_fields(study)
        )

    async def _start(self, study: StudyRecord, turn: int) -> None:
        entry = StudyEvent(utc_now(), study.digest, self.name, "started", f"start {turn}")
        started = study.started_at or entry.at
        study = await self._change(
            replace(
                study,
                state=StudyState.WAITING,
                turn=turn,
                started_at=started,
                ended_at=None,
                reason="",
            ),
            entry,
        )
        self._start_worker(study)

    def _start_worker(self, study: StudyRecord) -> None:
        """Starts a worker for the study."""
        self.workers[study.digest] = Worker(
            study,
            self.study_folder(study),
            name=study_sni_name(study.digest),
            pid=self.identity.pid,
            register=self._register,
            routers=self.routers,
            clocks=lambda: self.clocks,
            on_change=self._touch,
        )

    def study_folder(self, study: StudyRecord) -> StudyFolder:
        """Returns the study's folder."""
        return StudyFolder(self.identity.folder, study.run, study.digest)

    async def _check_workers(self) -> None:
        """Applies the changes of the workers' states since the last step. Raises StoreError."""
        for digest, worker in list(self.workers.items()):
            study = self.studies[digest]
            if worker.outcome is not None:
                if study.state in ACTIVE:
                    await self._end(study, *worker.outcome, self.name)
                self.workers.pop(digest, None)
            elif study.state in ACTIVE and worker.state is not study.state:
                # The next start does not depend on it: a full disk, which keeps it from the database, must not hide it.
                study = self.studies[digest] = replace(study, state=worker.state)
                entry = StudyEvent(utc_now(), digest, self.name, worker.state.value, worker.text)
                await self._change(study, entry)

    async def _end(
        self, study: StudyRecord, state: StudyState, reason: str, actor: str
    ) -> StudyRecord:
        """Ends a study here.

        Raises StoreError if the database cannot record the end, and the study goes on, or if the secrets could not be
        deleted.
        """
        entry = StudyEvent(utc_now(), study.digest, actor, state.value, reason)
        study = await self._change(
            replace(study, state=state, reason=reason, ended_at=entry.at), entry
        )
        if state is StudyState.CANCELLED:
            self._pending_deletions[study.digest] = time.monotonic() + _FORGET_AGAIN_S
        worker = self.workers.pop(study.digest, None)
        if worker is not None:
            await worker.stop()
        if state is StudyState.CANCELLED:
            await self._finish_forgetting(study)
        del worker
        # Its reference cycles (connections, TLS contexts of 40 KB) are too few to trigger the collector, which would
        # otherwise run once in hundreds of studies.
        gc.collect()
        return study

    async def _retry_forgetting(self) -> None:
        """Deletes secrets of cancelled studies that a failure, or the end of the process, left behind."""
        for digest, at in list(self._pending_deletions.items()):
            if time.monotonic() < at:
                continue
            study = self.studies[digest]
            try:
                await self._finish_forgetting(study)
            except StoreError as error:
                self._pending_deletions[digest] = time.monotonic() + _FORGET_AGAIN_S
                logger.warning(
                    "%s: what is secret is left: %s", study.run, error, extra=_log_fields(study)
                )

    async def _finish_forgetting(self, study: StudyRecord) -> None:
        await asyncio.to_thread(self._forget, study)
        self._pending_deletions.pop(study.digest, None)

    def _forget(self, study: StudyRecord) -> None:
        """Deletes the secrets of an ended study, its sealing key last. Raises StoreError. Blocks."""
        study_folder = self.study_folder(study)
        if study.kind == DISTAIM and has_store(study_folder.work):
            forget_run(
                load_config(study_folder.config),
                self.identity.pid,
                study_folder.work,
                progress=Progress(),
                register=self._register,
            )
        delete_sealing_key(study_folder)

    async def _change(self, study: StudyRecord, entry: StudyEvent) -> StudyRecord:
        study = await asyncio.to_thread(self.repository.change, study, entry)
        self.studies.pop(study.digest, None)
        self.studies[study.digest] = study
        self._touch()
        said = f" by {entry.actor}" if entry.what == "approved" else ""
        text = f": {entry.text}" if entry.text else ""
        logger.info("%s is %s%s%s", study.run, entry.what, said, text, extra=_log_fields(study))
        return study


def _log_fields(study: StudyRecord) -> dict[str, str]:
    """Returns the log fields that name the study."""
    return {"study": study.run}
