"""Decisions on a study that wait for this server's operator. All values here are public."""

from collections.abc import Iterable
from enum import StrEnum

from mechanisms.text_table import and_list
from parties.identity.join_documents import fingerprint_words
from parties.service.admission import AdmissionDesk
from parties.service.study_record import DISTAIM, ENDED, StudyRecord, StudyState


class Decision(StrEnum):
    """Decision of an operator."""

    APPROVE = "approve"
    """The study is proposed, and not approved here."""
    RETRY = "retry"
    """The study has failed: another attempt is approved, or it is ended for good."""
    ADMIT = "admit"
    """Data owners ask to be admitted."""


async def pending_decisions(
    study: StudyRecord, server: str, admission: AdmissionDesk, *, first: str | None = None
) -> list[dict[str, object]]:
    """Returns the decisions on a study that wait for the operators of ``server``, each with a sentence.

    ``first`` is the one that has approved it, where two have to. Raises StoreError.
    """
    found: list[dict[str, object]] = []
    second = f" {first} has approved; a second approver is needed." if first else ""
    if study.state is StudyState.PROPOSED and server not in study.approvals:
        others = sorted(study.approvals)
        by = f", and approved by {and_list(others)}" if others else ""
        found.append(
            _entry(
                Decision.APPROVE, f"Proposed by {study.proposer}{by}: not approved here.{second}"
            )
        )
    if study.state is StudyState.FAILED:
        found.append(
            _entry(Decision.RETRY, f"It has failed: approve another attempt, or end it.{second}")
        )
    if study.kind == DISTAIM and study.state not in ENDED:
        number = await admission.waiting(study)
        if number:
            asks = "1 data owner asks" if number == 1 else f"{number} data owners ask"
            found.append(_entry(Decision.ADMIT, f"{asks} to be admitted."))
    return found


def _entry(decision: Decision, text: str) -> dict[str, object]:
    return {"decision": decision.value, "text": text}


def wrong_study_text(given: str, studies: Iterable[StudyRecord]) -> str:
    """Returns the error of typed words, or digits, that are not the study's, in the form of ``WrongWords``."""
    if " " not in given:
        return "these digits are not this study's digest; expected all 64 digits of it, or its twelve words"
    known = list(studies)
    for other in known:
        if fingerprint_words(other.digest) == given:
            return (
                f"THESE ARE THE WORDS OF ANOTHER STUDY, {other.run} ({other.digest[:12]}), which is {other.state}, and "
                "nothing was approved; expected the words of this one"
            )
    return (
        f"NO STUDY HERE HAS THESE WORDS, and nothing was approved: they are a study's words, and that study is none of "
        f"the {len(known)} known here. Other words mean another budget, other columns or other servers. Expected the "
        "words that all three operators read out: compare them again, and ask whether it was the other operator who "
        "read them to you"
    )
