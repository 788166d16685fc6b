"""Reconciliation of a service: observes, computes the actions that follow, and applies them, every second.

The actions follow from this server's studies and the others' states (`parties.service.reconcile`). Every decision is in
the database before it is applied; a restarted service continues from there. Nothing here is secret; a study's secrets
are in its folder and process.
"""

import asyncio
import gc
from collections.abc import Callable, Mapping
from dataclasses import replace

from parties.foundation.errors import CertificateError, ConfigError, StoreError
from parties.observability.failure_causes import Obstacle, cause_of
from parties.observability.heartbeat import Throttle
from parties.service.events import EventName
from parties.service.identity import ServiceIdentity
from parties.service.key_changes import KeyChanges
from parties.service.known_studies import KnownStudies
from parties.service.peer_sync import Peer, poll_peers
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
from parties.service.secret_deletion import SecretDeletion
from parties.service.studies import StudyEvent, event_of, utc_now
from parties.service.study_fetcher import StudyFetcher
from parties.service.study_record import ACTIVE, StudyRecord, StudyState
from parties.service.workers import Worker

POLL_S = 1.0
"""Interval between polls of the others, in seconds."""


class Reconciliation:
    """Reconciliation of the service of ``identity``.

    Attributes:
        limit: Maximum number of studies that run at a time.
        workers: Workers of running studies, by digest.
        obstacle: Failure that blocks the service itself, such as its database's disk.
        key_changes: Replacements of keys, which each step goes on with.
    """

    def __init__(
        self,
        identity: ServiceIdentity,
        studies: KnownStudies,
        peers: Mapping[int, Peer],
        *,
        limit: int,
        make_worker: Callable[[StudyRecord], Worker],
        fetcher: StudyFetcher,
        deletion: SecretDeletion,
    ) -> None:
        self.limit = limit
        self.workers: dict[str, Worker] = {}
        self.obstacle: Obstacle | None = None
        self.key_changes: KeyChanges | None = None
        self._identity = identity
        self._studies = studies
        self._peers = peers
        self._make_worker = make_worker
        self._fetcher = fetcher
        self._deletion = deletion
        self._blocked = Throttle()

    async def run(self) -> None:
        """Reconciles every second until it is cancelled."""
        changes = self._studies.changes
        while True:
            changes.begin_step()
            await poll_peers(self._peers)
            try:
                await self._change_keys()
                async with self._studies.lock:
                    fetches = await self._step()
                # Without the lock: another server may be slow, and commands do not wait for it.
                await asyncio.gather(*(self._fetcher.fetch(act) for act in fetches))
                if self.obstacle is not None:
                    self.obstacle, self._blocked = None, Throttle()
            except StoreError as error:
                # The database or the disk failed; no action was applied that is not in the database.
                self.obstacle = cause_of(error)
                self._say_blocked(str(error), self.obstacle.cause.value)
            await changes.announce()
            await changes.wait(POLL_S)

    async def _change_keys(self) -> None:
        """Goes on with replacements of keys. Raises StoreError; other errors are logged, and keep no study waiting."""
        if self.key_changes is None:
            return
        try:
            await self.key_changes.step()
        except (CertificateError, ConfigError) as error:
            self._say_blocked(f"a key cannot be replaced: {error}", "key")

    def _say_blocked(self, text: str, reason: str) -> None:
        """Emits an event, at growing intervals for the same text until it is over."""
        if self._blocked.due(text):
            self._studies.events.event(EventName.SERVICE_BLOCKED, text, reason=reason)

    def observe(self) -> ObservedState:
        """Returns the state that this server observes now."""
        return ObservedState(
            self._identity.pid,
            [server.name for server in self._identity.servers],
            self.limit,
            self._studies,
            {pid: said for pid, peer in self._peers.items() if (said := peer.statement)},
            self._fetcher.not_now(),
            self.workers,
        )

    async def _step(self) -> list[FetchStudy]:
        """Applies all actions that follow now, and returns the studies to fetch. Raises StoreError."""
        await self._check_workers()
        fetches = []
        for act in reconcile(self.observe()):
            if isinstance(act, FetchStudy):
                fetches.append(act)
            else:
                await self._apply(act)
            self._studies.changes.touch()
        await self._deletion.retry()
        return fetches

    async def _apply(
        self, act: RecordApproval | QueueStudy | StartStudy | EndStudy | RerunStudy
    ) -> None:
        study, change = self._studies[act.digest], self._studies.change
        match act:
            case RecordApproval():
                study = replace(study, approvals=study.approvals | {act.server})
                await change(study, _approval(act))
            case QueueStudy():
                text = "approved by all; waits for its turn"
                own = self._identity.own.name
                entry = StudyEvent(utc_now(), act.digest, own, EventName.STUDY_QUEUED, text)
                await change(replace(study, state=StudyState.QUEUED), entry)
            case StartStudy():
                await self._start(study, act.turn)
            case EndStudy():
                # A statement of another server about a third one stays attributed to it.
                text = act.reason
                if not text.startswith(f"cancelled by {act.by}"):
                    text = f"{act.by}: {text or act.state}"
                await self.end(study, act.state, text, act.by)
            case RerunStudy():
                text = f"{study.run}: another server has to end it, too"
                fields = {"study": study.run, "digest": study.digest, "state": study.state.value}
                self._studies.events.event(EventName.STUDY_UNENDED, text, **fields)
                self.start_worker(study)

    async def _start(self, study: StudyRecord, turn: int) -> None:
        name = self._identity.own.name
        entry = StudyEvent(utc_now(), study.digest, name, EventName.STUDY_STARTED, f"start {turn}")
        study = replace(
            study,
            state=StudyState.WAITING,
            turn=turn,
            started_at=study.started_at or entry.at,
            ended_at=None,
            reason="",
        )
        self.start_worker(await self._studies.change(study, entry))

    def start_worker(self, study: StudyRecord) -> None:
        """Starts a worker for the study."""
        self.workers[study.digest] = self._make_worker(study)

    async def _check_workers(self) -> None:
        """Applies the changes of the workers' states since the last step. Raises StoreError."""
        name = self._identity.own.name
        for digest, worker in list(self.workers.items()):
            study = self._studies[digest]
            if worker.outcome is not None:
                if study.state in ACTIVE:
                    await self.end(study, *worker.outcome, name)
                self.workers.pop(digest, None)
            elif study.state in ACTIVE and worker.state is not study.state:
                study = replace(study, state=worker.state)
                # The next start does not depend on it: a full disk, which keeps it from the database, must not hide it.
                self._studies.show(study)
                entry = StudyEvent(utc_now(), digest, name, event_of(worker.state), worker.text)
                await self._studies.change(study, entry)

    async def end(
        self, study: StudyRecord, state: StudyState, reason: str, actor: str
    ) -> StudyRecord:
        """Ends a study here.

        Raises StoreError if the database cannot record the end, and the study goes on, or if the secrets could not be
        deleted.
        """
        entry = StudyEvent(utc_now(), study.digest, actor, event_of(state), reason)
        study = await self._studies.change(
            replace(study, state=state, reason=reason, ended_at=entry.at), entry
        )
        if state is StudyState.CANCELLED:
            self._deletion.begin(study)
        worker = self.workers.pop(study.digest, None)
        if worker is not None:
            await worker.stop()
        if state is StudyState.CANCELLED:
            await self._deletion.finish(study)
        del worker
        # Its reference cycles (connections, TLS contexts of 40 KB) are too few to trigger the collector, which would
        # otherwise run once in hundreds of studies.
        gc.collect()
        return study


def _approval(act: RecordApproval) -> StudyEvent:
    fields = {"peer": act.server}
    return StudyEvent(utc_now(), act.digest, act.server, EventName.STUDY_APPROVED, fields=fields)
