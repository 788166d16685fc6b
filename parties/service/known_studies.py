"""Known studies of a service: in memory as in the database, with their folders and summaries, and signals of changes.

Every change is in the database before it is in memory, and before it is an event of the service. Nothing here is
secret.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Mapping

from parties.config import Config
from parties.foundation.errors import PartyError
from parties.observability.events import FieldValue
from parties.service.events import EventCounts, EventName, event_words, service_events
from parties.service.identity import ServiceIdentity
from parties.service.studies import StudyEvent, StudyRepository, utc_now
from parties.service.study_intake import (
    Proposal,
    StudyFolder,
    StudySummary,
    make_study_folder,
    proposed_config,
)
from parties.service.study_record import ENDED, StoredProposal, StudyRecord, StudyState

_MAX_ENDED_RECENT = 50
"""Number of ended studies among the recent ones; `GET /studies` returns all."""


class UnknownStudy(PartyError):
    """No study, or more than one, has this name."""


class StudyChanges:
    """Signals of changes: ``revision`` counts them for event streams, and each triggers a step of the service."""

    def __init__(self) -> None:
        self.revision = 0
        self._wake = asyncio.Event()
        self._changes = asyncio.Condition()

    def touch(self) -> None:
        """Counts a change and triggers a step at once."""
        self.revision += 1
        self._wake.set()

    async def since(self, revision: int) -> int:
        """Waits until the revision differs from ``revision``, and returns the newest."""
        async with self._changes:
            await self._changes.wait_for(lambda: self.revision != revision)
        return self.revision

    async def announce(self) -> None:
        """Wakes those that wait with ``since``."""
        async with self._changes:
            self._changes.notify_all()

    def begin_step(self) -> None:
        """Begins a step, which sees all changes until now."""
        self._wake.clear()

    async def wait(self, limit_s: float) -> None:
        """Waits for a change since ``begin_step``, for at most ``limit_s`` seconds."""
        # Not wait_for, which may swallow a cancellation that coincides with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._wake.wait()


class KnownStudies(Mapping[str, StudyRecord]):
    """Studies by digest, in the order of their last changes, independent of clocks, which may be set back.

    ``lock`` is held while a study is added or changed. ``events`` is the service's bus, and ``counts`` a sink of it.
    """

    def __init__(self, identity: ServiceIdentity, repository: StudyRepository) -> None:
        self.repository = repository
        self.changes = StudyChanges()
        self.lock = asyncio.Lock()
        self.counts = EventCounts()
        self.events = service_events(self.counts)
        self._identity = identity
        self._studies: dict[str, StudyRecord] = {}
        self._summaries: dict[str, StudySummary] = {}

    def __getitem__(self, digest: str) -> StudyRecord:
        return self._studies[digest]

    def __iter__(self) -> Iterator[str]:
        return iter(self._studies)

    def __len__(self) -> int:
        return len(self._studies)

    async def load(self) -> None:
        """Loads the studies of the database. Raises StoreError."""
        studies = await asyncio.to_thread(self.repository.studies)
        for study in sorted(studies, key=lambda study: study.changed_at):
            self._studies[study.digest] = study

    def find(self, name: str) -> StudyRecord:
        """Returns a study by its digest, a prefix of it (8 digits or more), or its run's name. Raises UnknownStudy."""
        exact = self._studies.get(name)
        if exact is not None:
            return exact
        found = [
            study
            for study in self._studies.values()
            if (len(name) >= 8 and study.digest.startswith(name)) or study.run == name
        ]
        if len(found) != 1:
            what = "no study" if not found else f"{len(found)} studies"
            raise UnknownStudy(
                f"{what} here by the name {name[:64]!r} (a digest, 8 of its digits or more, or a run's name)"
            )
        return found[0]

    def require(self, digest: str) -> StudyRecord:
        """Returns a study by its whole digest. Raises UnknownStudy."""
        study = self._studies.get(digest)
        if study is None:
            raise UnknownStudy(f"no study here has the digest {digest[:64]!r}; expected all of it")
        return study

    def recent(self, running: Collection[str]) -> list[StudyRecord]:
        """Returns the studies that are open or ``running``, and the latest ended ones, in the order of proposal."""
        over = [study for study in self._studies.values() if study.state in ENDED]
        left_out = {study.digest for study in over[:-_MAX_ENDED_RECENT]} - set(running)
        found = [study for study in self._studies.values() if study.digest not in left_out]
        return sorted(found, key=lambda study: (study.proposed_at, study.digest))

    def folder(self, study: StudyRecord) -> StudyFolder:
        """Returns the study's folder."""
        return StudyFolder(self._identity.folder, study.run, study.digest)

    async def proposed(self, digest: str) -> StoredProposal:
        """Returns the proposal of a known study. Raises StoreError."""
        return await asyncio.to_thread(self.repository.proposed, digest)

    async def config(self, digest: str) -> Config:
        """Returns a study's configuration, which may be large. Raises ConfigError, StoreError."""
        return await asyncio.to_thread(proposed_config, await self.proposed(digest))

    async def summary(self, digest: str) -> StudySummary:
        """Returns the summary of a known study. Raises ConfigError, StoreError."""
        if (found := self._summaries.get(digest)) is None:
            found = self._summaries[digest] = StudySummary.of(await self.config(digest))
        return found

    async def add(self, proposal: Proposal, proposer: str, actor: str) -> None:
        """Adds a study, with a folder of its own. Raises ProposalRefused, StoreError."""
        known = {str(self.folder(study).path) for study in self._studies.values()}
        folder = await asyncio.to_thread(make_study_folder, self._identity, proposal, known)
        at, config = utc_now(), proposal.config
        study = StudyRecord(
            folder.digest, proposal.kind, config.run.id, proposer, at, StudyState.PROPOSED, at
        )
        proposed = StoredProposal(proposal.text, proposal.certificates)
        fields = {"proposer": proposer}
        entry = StudyEvent(at, study.digest, actor, EventName.STUDY_PROPOSED, fields=fields)
        await asyncio.to_thread(self.repository.add, study, proposed, entry)
        self._studies[study.digest] = study
        self._summaries[study.digest] = StudySummary.of(config)
        self.changes.touch()
        self._emit(entry, f"{study.run} was proposed by {proposer}: {study.digest}", study)

    async def change(self, study: StudyRecord, entry: StudyEvent) -> StudyRecord:
        """Changes a study, and records the event. Raises StoreError."""
        study = await asyncio.to_thread(self.repository.change, study, entry)
        self._studies.pop(study.digest, None)
        self._studies[study.digest] = study
        self.changes.touch()
        said = f" by {entry.actor}" if entry.what == EventName.STUDY_APPROVED else ""
        text = f": {entry.text}" if entry.text else ""
        self._emit(entry, f"{study.run} is {event_words(entry.what)}{said}{text}", study)
        return study

    def _emit(self, entry: StudyEvent, text: str, study: StudyRecord | None) -> None:
        run, state = (None, None) if study is None else (study.run, study.state.value)
        fields: Mapping[str, FieldValue] = entry.logged(run, state)
        self.events.event(entry.what, text, **fields)

    def show(self, study: StudyRecord) -> None:
        """Changes a known study in memory alone."""
        self._studies[study.digest] = study

    async def note(self, entry: StudyEvent) -> None:
        """Records an event without a change of a study. Raises StoreError."""
        study = None if entry.digest is None else self._studies.get(entry.digest)
        await asyncio.to_thread(self.repository.note, entry, study)
        self.changes.touch()
        where = "" if study is None else f"{study.run}: "
        text = f" {entry.text}" if entry.text else ""
        self._emit(entry, f"{where}{event_words(entry.what)}{text}", study)
