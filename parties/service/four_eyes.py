"""Four eyes: two approvers of this server approve a study, and neither has proposed it. All values here are public.

A person may have several subjects, such as a certificate and a sign-in: the settings say which, and they count as one.

A first approval is an event of the log, and holds for a week, or until the study fails. The log decides; ``first``
repeats it for statuses, which need no database.
"""

import asyncio
import datetime

from parties.foundation.errors import PartyError
from parties.service.access import ACTOR
from parties.service.events import EventName
from parties.service.known_studies import KnownStudies
from parties.service.studies import StudyEvent, utc_now
from parties.service.study_record import StudyRecord, StudyState

_VALID = datetime.timedelta(days=7)
"""Time for which a first approval counts: its approver may have lost the right, or the key, since then."""
_NAMES = (EventName.STUDY_PROPOSED, EventName.STUDY_APPROVED_FIRST, EventName.STUDY_FAILED)


class ApprovalRefused(PartyError):
    """The subject may not approve the study."""


class FourEyes:
    """First approvals of ``studies``; nothing is ``required`` unless the settings say so.

    Attributes:
        people: Groups of subjects that are one person's each.
        first: Actors of first approvals that wait for a second one, by digest.
    """

    def __init__(self, studies: KnownStudies) -> None:
        self.required = False
        self.people: tuple[frozenset[str], ...] = ()
        self.first: dict[str, str] = {}
        self._studies = studies

    async def load(self) -> None:
        """Reads the first approvals of studies that wait for an approval. Raises StoreError."""
        for study in self._studies.values():
            if study.state in (StudyState.PROPOSED, StudyState.FAILED):
                _, firsts = await self._history(study)
                if firsts:
                    self.first[study.digest] = firsts[-1]

    async def is_second(self, study: StudyRecord, actor: str) -> bool:
        """Returns true if ``actor`` completes the approval; otherwise this is the first one, and it is recorded.

        Raises ApprovalRefused for the person that has proposed the study, and for the one of the first approval where
        it comes by another of its subjects; StoreError.
        """
        proposers, firsts = await self._history(study)
        if any(self._is_one_person(actor, proposer) for proposer in proposers):
            raise ApprovalRefused(
                f"{actor} has proposed this study; expected two other approvers, by admin.four_eyes of settings.toml"
            )
        if any(not self._is_one_person(actor, first) for first in firsts):
            return True
        if firsts and actor not in firsts:
            raise ApprovalRefused(
                f"{actor} is the person who has approved this study first, as {firsts[-1]}; expected another approver, "
                "by admin.people of settings.toml"
            )
        self.first[study.digest] = actor
        if not firsts:
            await self._studies.note(
                StudyEvent(utc_now(), study.digest, actor, EventName.STUDY_APPROVED_FIRST)
            )
        return False

    def _is_one_person(self, actor: str, other: str) -> bool:
        """Returns true for two actors of one person."""
        subjects = {each.removeprefix(ACTOR) for each in (actor, other)}
        return len(subjects) == 1 or any(subjects <= person for person in self.people)

    async def _history(self, study: StudyRecord) -> tuple[set[str], list[str]]:
        """Returns who has proposed the study here, and who has approved it first since it has failed."""
        # Events of an earlier version have names without the part before the dot.
        names = [*_NAMES, *(name.partition(".")[2] for name in _NAMES)]
        entries = await asyncio.to_thread(
            self._studies.repository.entries, study.digest, 1 << 20, names
        )
        recent = utc_now() - _VALID
        steps = [
            (what, entry.actor)
            for entry in entries
            for what in [entry.what.rpartition(".")[2]]
            if what != "approved-first" or entry.at > recent
        ]
        proposers = {actor for what, actor in steps if what == "proposed"}
        firsts: list[str] = []
        for what, actor in steps:
            if what == "approved-first":
                firsts.append(actor)
            elif what == "failed":
                firsts.clear()
        return proposers, firsts
