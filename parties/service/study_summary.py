"""A study as its operator approves it: in sentences, and what differs from the last one. All values here are public."""

import re

from mechanisms.errors import MechanismError
from parties.config.diff import differences
from parties.foundation.errors import ConfigError
from parties.service.known_studies import KnownStudies
from parties.service.study_record import StudyRecord
from parties.session.study import Study
from parties.session.study_text import study_sentences

_NEW_IN_EVERY_STUDY = re.compile(r"run\.id|party\.[^.]+\.seal|party \(their order\)")
"""Keys of a configuration that say nothing of a change."""


async def summary_document(
    studies: KnownStudies, study: StudyRecord, server: str
) -> dict[str, object]:
    """Returns the sentences on a study, and its differences from the one that ``server`` approved before it.

    Where this version cannot read a configuration, there are no sentences, or no earlier study. Raises StoreError.
    """
    try:
        config = await studies.config(study.digest)
        sentences = study_sentences(Study.of(config))
    except (ConfigError, MechanismError):
        return {"sentences": [], "previous": None}
    earlier = previous_study(studies, study, server)
    if earlier is None:
        return {"sentences": sentences, "previous": None}
    try:
        before = await studies.config(earlier.digest)
    except (ConfigError, MechanismError):
        return {"sentences": sentences, "previous": None}
    found = [
        {"key": item.key, "here": item.ours, "there": item.theirs}
        for item in differences(config.agreed(), before.agreed())
        if _NEW_IN_EVERY_STUDY.fullmatch(item.key) is None
    ]
    return {
        "sentences": sentences,
        "previous": {
            "digest": earlier.digest,
            "run": earlier.run,
            "state": earlier.state.value,
            "proposed_at": earlier.proposed_at.isoformat(timespec="seconds"),
            "differences": found,
        },
    }


def previous_study(studies: KnownStudies, study: StudyRecord, server: str) -> StudyRecord | None:
    """Returns the study that ``server`` approved last before this one: of the same name, or else of the same kind."""
    earlier = [
        other
        for other in studies.values()
        if other.digest != study.digest
        and other.kind == study.kind
        and server in other.approvals
        and other.proposed_at <= study.proposed_at
    ]
    return max(
        earlier,
        key=lambda other: (other.run == study.run, other.proposed_at, other.digest),
        default=None,
    )
