"""Service of many studies at one server: its ports, its parts, and its operator's commands.

``Service`` opens the ports and starts the active studies. Its `parties.service.reconciliation` reads the states of the
two others, fetches studies that another operator proposed, starts a study's process when all three have approved it and
it has its turn, and ends studies that ended elsewhere. Operators' commands change the server's own studies, and the
others read the result (`parties.service.peer_answers`).

Nothing here is secret; a study's secrets are in its folder and process.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from mechanisms.text_table import and_list
from parties.config import Address, load_config
from parties.foundation.errors import ConfigError, PartyError
from parties.network.port_sharing import study_sni_name
from parties.network.sni_router import SniRouter
from parties.observability.clocks import Clocks
from parties.observability.failure_causes import Obstacle
from parties.service.admission import AdmissionDesk, Applicant
from parties.service.closed_studies import ClosedStudies, server_files
from parties.service.collection import ResultCollection
from parties.service.events import EventName
from parties.service.expiry import CertificateWatch, service_certificates
from parties.service.four_eyes import FourEyes
from parties.service.identity import ServiceIdentity
from parties.service.key_changes import KeyChanges
from parties.service.known_studies import KnownStudies
from parties.service.peer_answers import PeerAnswers
from parties.service.peer_sync import SERVICE_SNI, Peer, PeerServer
from parties.service.reconciliation import Reconciliation
from parties.service.secret_deletion import SecretDeletion
from parties.service.studies import StudyEvent, StudyRepository, utc_now
from parties.service.study_fetcher import StudyFetcher
from parties.service.study_intake import check_proposal, remove_unfinished
from parties.service.study_record import ACTIVE, DISTAIM, StudyRecord, StudyState
from parties.service.workers import Worker

_TO_APPROVE_AGAIN = (StudyState.PROPOSED, StudyState.FAILED, StudyState.CANCELLED)
"""States in which an approval of before does not hold: of a failed study it is for another attempt."""


class WrongStudyState(PartyError):
    """A command does not fit the study's state."""


class Service:
    """Service of ``identity``. ``async with`` opens its ports and starts the active studies; ``run`` reconciles.

    Attributes:
        studies: Known studies, by digest.
        events: Bus of its events.
        fetcher: Studies that were not accepted from other servers.
        answers: Answers to the two other servers.
        admission: Requests of owners that have no certificate yet.
        key_changes: Replacements of keys and certificates, this server's and the others'.
        certificates: Ends of its certificates.
        deliveries: Source of the states of its notifications (`parties.service.notify`), as JSON values.
        four_eyes: First approvals, where two are required.
        traces: Endpoint for traces of the studies' processes, as [traces] has it; None: no traces.
        collection: Collections of finished studies' whole results.
    """

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
        self.studies = KnownStudies(identity, repository)
        self.events = self.studies.events
        self.peers = {pid: Peer(identity, pid, self.events) for pid in identity.peers}
        self.fetcher = StudyFetcher(identity, self.studies, self.peers)
        self.started_at = time.time()
        self._register = register
        self._listen = listen
        self.traces: str | None = None
        self._deletion = SecretDeletion(self.studies, identity.pid, register)
        self._reconciliation = Reconciliation(
            identity,
            self.studies,
            self.peers,
            limit=limit,
            make_worker=self._make_worker,
            fetcher=self.fetcher,
            deletion=self._deletion,
        )
        self.key_changes = KeyChanges(
            identity, self.peers, studies=self.studies, reconnect=self._reconnect
        )
        self._reconciliation.key_changes = self.key_changes
        self.deliveries: Callable[[], list[dict[str, object]]] = list
        self.certificates = CertificateWatch(lambda: service_certificates(identity), self.events)
        self.answers = PeerAnswers(
            identity,
            self.studies,
            self._reconciliation,
            fetcher=self.fetcher,
            key_changes=self.key_changes,
        )
        self._peer_server = PeerServer(identity, self.answers)
        self._closed_studies = ClosedStudies(identity, self.studies, register)
        self.collection = ResultCollection(self.studies)
        self.four_eyes = FourEyes(self.studies)
        self.admission = AdmissionDesk(
            self.studies,
            lambda study: server_files(self.studies, study, identity.pid),
            lambda study: load_config(self.studies.folder(study).config),
        )
        self._routers: tuple[SniRouter, SniRouter] | None = None

    @property
    def name(self) -> str:
        """Name of this server."""
        return self.identity.own.name

    @property
    def limit(self) -> int:
        """Maximum number of studies that run at a time."""
        return self._reconciliation.limit

    @property
    def workers(self) -> Mapping[str, Worker]:
        """Workers of running studies, by digest."""
        return self._reconciliation.workers

    @property
    def obstacle(self) -> Obstacle | None:
        """Failure that blocks the service itself, such as its database's disk."""
        return self._reconciliation.obstacle

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
        await self.studies.load()
        await self.four_eyes.load()
        await asyncio.to_thread(remove_unfinished, self.identity)
        self._deletion.resume()
        own = self.identity.own
        # Summaries for the status are in memory, so that they are available without the database.
        for study in self.recent():
            with contextlib.suppress(ConfigError):
                await self.studies.summary(study.digest)
        mesh = SniRouter.open("mesh", self._listen[0] or own.mesh)
        try:
            ingest = SniRouter.open("ingest", self._listen[1] or own.ingest)
        except BaseException:
            await mesh.close()
            raise
        for router in (mesh, ingest):
            router.on_refusal = self.refused_connection
        self._routers = (mesh, ingest)
        await self._peer_server.start()
        mesh.routes[SERVICE_SNI] = self._peer_server.take
        ingest.fallback = self._take
        for study in self.studies.values():
            if study.state in ACTIVE:
                self._reconciliation.start_worker(study)
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
        await self.admission.close()
        await self.collection.close()
        await asyncio.gather(*(peer.close() for peer in self.peers.values()))

    def _take(self, name: str, connection: socket.socket) -> bool:
        """Takes over a connection of an owner by the SNI ``name`` of no process; False if it names no study."""
        takers = (self.admission.take, self._closed_studies.take)
        return any(take(name, connection) for take in takers)

    def refused_connection(self, port: str, remote: str, reason: str) -> None:
        """Emits the event of a connection that was refused at this port before anything was asked."""
        text = f"{port}: refused a connection from {remote or 'an unknown address'}: {reason}"
        self.events.event(
            EventName.CONNECTION_REFUSED, text, port=port, remote=remote, reason=reason
        )

    async def _reconnect(self) -> None:
        """Renews the connections to the other servers after a change of identity. Raises CertificateError."""
        self.certificates.forget()
        await self._peer_server.restart()
        for peer in self.peers.values():
            await peer.renew()
        self.studies.changes.touch()

    async def run(self) -> None:
        """Reconciles every second until it is cancelled."""
        await self._reconciliation.run()

    def _make_worker(self, study: StudyRecord) -> Worker:
        return Worker(
            study,
            self.studies.folder(study),
            name=study_sni_name(study.digest),
            pid=self.identity.pid,
            register=self._register,
            routers=self.routers,
            clocks=lambda: self.clocks,
            on_change=self.studies.changes.touch,
            events=self.events,
            traces=self.traces,
        )

    def recent(self) -> list[StudyRecord]:
        """Returns the studies that are open or have a process, and the latest ended ones, in the order of proposal."""
        return self.studies.recent(self.workers.keys())

    async def cards(self, kind: str) -> list[str]:
        """Returns new cards of all servers of a study, in their order. Raises PartyError, PeerUnavailable."""
        if kind != DISTAIM:
            return [await self.answers.new_card(kind)]
        texts = [
            self.peers[pid].new_card() if pid in self.peers else self.answers.new_card(kind)
            for pid in range(len(self.identity.servers))
        ]
        return list(await asyncio.gather(*texts))

    # Commands of the operator.

    async def propose(self, document: Mapping[str, object], actor: str) -> StudyRecord:
        """Adds a study for all three operators to review. Raises ProposalRefused, StoreError."""
        proposal = await asyncio.to_thread(check_proposal, document, self.identity)
        async with self.studies.lock:
            digest = proposal.config.digest()
            if digest not in self.studies:
                await self.studies.add(proposal, self.name, actor)
            self.fetcher.refused.pop(digest, None)
            return self.studies[digest]

    async def approve(self, digest: str, actor: str, heard: Sequence[str] = ()) -> StudyRecord:
        """Approves a study at this server, or another attempt of one that has failed.

        ``heard`` are the servers whose operators read out the same words. A study that this server has approved, and
        that goes on or is finished, stays as it is; so does one that needs a second approver. Raises WrongStudyState,
        ApprovalRefused.
        """
        async with self.studies.lock:
            study = self.studies.require(digest)
            if self.name in study.approvals and study.state not in _TO_APPROVE_AGAIN:
                return study
            if study.state not in (StudyState.PROPOSED, StudyState.FAILED):
                raise WrongStudyState(
                    f"it is {study.state}; expected one that is proposed, or has failed"
                )
            approvals = study.approvals | {self.name}
            if study.state is StudyState.PROPOSED:
                await self._check_keys(study)
            if self.four_eyes.required and not await self.four_eyes.is_second(study, actor):
                return study
            self.four_eyes.first.pop(digest, None)
            study = replace(study, state=StudyState.APPROVED, reason="", approvals=approvals)
            said = f"here; the same words heard of {and_list(heard)}" if heard else "here"
            entry = StudyEvent(utc_now(), digest, actor, EventName.STUDY_APPROVED, said)
            return await self.studies.change(study, entry)

    async def _check_keys(self, study: StudyRecord) -> None:
        """Raises WrongStudyState for a study that has not begun, of a key that was replaced since its proposal."""
        if not self.identity.former:
            return
        config = await self.studies.config(study.digest)
        for pinned in [server.pinned for server in config.require_servers()]:
            if (former := self.identity.former_key(pinned.key)) is not None:
                raise WrongStudyState(
                    f"it names a key of {pinned.name} that was replaced on {former.until[:10]}; expected a new proposal"
                )

    async def cancel(self, digest: str, actor: str, reason: str = "") -> StudyRecord:
        """Ends a study for all three servers, for good, and deletes its secrets. Raises WrongStudyState, StoreError."""
        async with self.studies.lock:
            study = self.studies.require(digest)
            if study.state in (StudyState.FINISHED, StudyState.CANCELLED):
                raise WrongStudyState(f"it is {study.state}; expected one that is not over")
            said = f"cancelled by {self.name}" + (f": {reason}" if reason else "")
            return await self._reconciliation.end(study, StudyState.CANCELLED, said, actor)

    async def admit(self, digest: str, actor: str, certificate: str) -> Applicant:
        """Keeps a certificate for the owner that has asked for it. Raises as ``AdmissionDesk.admit``."""
        study = self.studies.require(digest)
        found = await self.admission.admit(study, certificate)
        await self._note_owner(EventName.OWNER_ADMITTED, digest, actor, found=found)
        return found

    async def refuse(self, digest: str, actor: str, key: str) -> Applicant:
        """Refuses an owner's request for admission. Raises as ``AdmissionDesk.refuse``."""
        found = await self.admission.refuse(self.studies.require(digest), key)
        await self._note_owner(EventName.OWNER_REFUSED, digest, actor, found=found)
        return found

    async def _note_owner(
        self, name: EventName, digest: str, actor: str, *, found: Applicant
    ) -> None:
        text = f"{found.request.name}, {found.request.key[:16]}"
        fields = {"owner": found.request.name, "remote": found.remote}
        await self.studies.note(StudyEvent(utc_now(), digest, actor, name, text, fields=fields))

    async def asked(self, digest: str, actor: str, order: str) -> None:
        """Records a command that was sent to the study's process. Raises StoreError."""
        name = EventName.STUDY_COMMANDED
        await self.studies.note(StudyEvent(utc_now(), digest, actor, name, order))
