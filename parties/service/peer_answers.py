"""Answers of a service to the two other servers: its state, its studies, new cards. Nothing here is secret."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict

from parties.config import EarlierModel, earlier_model, load_config
from parties.service.identity import ServiceIdentity
from parties.service.key_changes import KeyChanges
from parties.service.known_studies import KnownStudies
from parties.service.peer_state import MAX_STUDIES, PeerState, StudySnapshot
from parties.service.reconcile import ObservedState
from parties.service.reconciliation import Reconciliation
from parties.service.start_files import encoded_start
from parties.service.study_fetcher import StudyFetcher
from parties.service.study_intake import new_card
from parties.service.study_record import ACTIVE, DISTAIM, ENDED, StudyRecord

_MAX_ENDED_SHARED = 100
"""Number of ended studies in the state for other servers, besides those that another server has open."""


class PeerAnswers:
    """``parties.service.peer_sync.PeerRequestHandler`` of a service."""

    def __init__(
        self,
        identity: ServiceIdentity,
        studies: KnownStudies,
        reconciliation: Reconciliation,
        *,
        fetcher: StudyFetcher,
        key_changes: KeyChanges,
    ) -> None:
        self._identity = identity
        self._studies = studies
        self._reconciliation = reconciliation
        self._fetcher = fetcher
        self._key_changes = key_changes

    def statement(self) -> PeerState:
        """See `parties.service.peer_sync.PeerRequestHandler`."""
        view, changes = self._reconciliation.observe(), self._key_changes
        return PeerState(
            self._identity.own.name,
            view.limit,
            view.busy,
            {study.digest: self._snapshot(study) for study in self._shared(view)},
            self._fetcher.refused,
            view.order,
            obstacle=self._reconciliation.obstacle,
            announces=changes.own.text if changes.own is not None else "",
            heard=changes.heard,
            confirmed=changes.confirmed,
        )

    def _shared(self, view: ObservedState) -> list[StudyRecord]:
        """Returns the open DistAIM studies, the latest ended ones, and ended ones that another server has open."""
        shared = [study for study in self._studies.values() if study.kind == DISTAIM]
        over = [study for study in shared if study.state in ENDED]
        elsewhere = {
            digest
            for said in view.heard.values()
            for digest, snapshot in said.studies.items()
            if snapshot.state not in ENDED
        }
        missed = [study for study in over[:-_MAX_ENDED_SHARED] if study.digest in elsewhere]
        shared_studies = (
            [study for study in shared if study.state not in ENDED]
            + over[-_MAX_ENDED_SHARED:]
            + missed
        )
        return shared_studies[:MAX_STUDIES]

    def _snapshot(self, study: StudyRecord) -> StudySnapshot:
        worker = self._reconciliation.workers.get(study.digest)
        return StudySnapshot(
            study.state,
            study.turn,
            self._identity.own.name in study.approvals,
            worker is not None and worker.calling and study.state in ACTIVE,
            study.reason,
            worker.obstacle if worker is not None and study.state in ACTIVE else None,
        )

    async def proposal(self, digest: str) -> Mapping[str, object] | None:
        """See `parties.service.peer_sync.PeerRequestHandler`."""
        study = self._studies.get(digest)
        if study is None or study.kind != DISTAIM:
            return None
        start = await asyncio.to_thread(self._start_of, study)
        proposed = asdict(await self._studies.proposed(digest))
        return {**proposed, **encoded_start(start), "proposer": study.proposer}

    def _start_of(self, study: StudyRecord) -> EarlierModel | None:
        """Returns the earlier model of a study that starts from one. Raises ConfigError if it has gone."""
        return earlier_model(load_config(self._studies.folder(study).config))

    async def new_card(self, kind: str) -> str:
        """Returns a new card of this server for a study. Raises PartyError."""
        return await asyncio.to_thread(new_card, self._identity, kind)
