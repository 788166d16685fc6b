"""In malicious mode: what was opened was proved before, at every server; and what proofs send has their form.

Provides the check ``proved``, and ``problem_of``, which judges the messages of a step of proofs. Public: everything.
"""

from collections import Counter

from parties.audit.evidence import Attempt, Evidence
from parties.audit.findings import require
from parties.audit.privacy import Terms
from parties.config import MALICIOUS
from parties.distaim.steps import (
    CLIENTS_VERIFY,
    LINK_VERIFY,
    MEASURE_VERIFY,
    OF_PROOFS,
    PASSED,
    PREPARE_VERIFY,
    SELECT_VERIFY,
    Messages,
)
from protocols.steps import CHOICE, COMPARISONS

_BY_NAME = {step.name: step for step in OF_PROOFS}
_LAST_WORD_BYTES = 1


def is_proof(step: str) -> bool:
    """Whether a step is one of proofs."""
    return step in _BY_NAME


def problem_of(step: str, sizes: list[int], times: int) -> str | None:
    """What is wrong with the messages that a server sent to one peer in a step of proofs taken so many times."""
    judged = _BY_NAME[step].problem
    return judged(Messages(sizes, times, 0, False, 0)) if judged is not None else None


def proved(evidence: Evidence, terms: Terms) -> str:
    """Both peers of a server had said that they found all right, before it opened anything."""
    if terms.config.run.security != MALICIOUS:
        return f"run.security = {terms.config.run.security}: the servers are assumed to follow the protocol."
    count = sum(_opened(attempt) for session in evidence.sessions for attempt in session.present)
    return (
        f"Before each of {count} openings the two other servers had found right what it rests on."
    )


def _opened(attempt: Attempt) -> int:
    """How many openings an attempt has, each after its proofs. Raises Failed."""
    words: Counter[tuple[str, int, int]] = Counter()
    opened: Counter[tuple[str, int]] = Counter()
    for entry in attempt.of("received", "opened"):
        number = entry.number("round")
        if entry.kind == "received":
            if is_proof(entry.text("step")) and entry.number("bytes") == _LAST_WORD_BYTES:
                words[entry.text("step"), number, entry.number("peer")] += 1
            continue
        step = _proofs_before(str(entry.record["what"]), number)
        # Noise for all of round 0 is proved once.
        if step != PREPARE_VERIFY.name or not opened[step, number]:
            opened[step, number] += 1
        for peer in {0, 1, 2} - {attempt.pid}:
            require(
                words[step, number, peer] >= opened[step, number],
                f"server {attempt.pid}, line {entry.line}: it opened {entry.record['what']} of round {number} before"
                f" server {peer} had found right what it rests on",
            )
    return sum(1 for _ in attempt.of("opened"))


def _proofs_before(what: str, number: int) -> str:
    """The step of the proofs that come before an opening."""
    if what == PASSED.what:
        return CLIENTS_VERIFY.name
    if what == COMPARISONS.what:
        return LINK_VERIFY.name
    if what == CHOICE.what:
        return SELECT_VERIFY.name
    return MEASURE_VERIFY.name if number > 0 else PREPARE_VERIFY.name
