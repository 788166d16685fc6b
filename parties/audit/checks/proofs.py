"""Check ``openings_proved``, for malicious mode: proofs precede every opening at every server, and have their form.

``problem_of`` and ``sizes_problem`` verify the messages of a step of proofs: their number at one server, and their
sizes at all three. ``counted_problem`` verifies that all counted rows were proved, ``gates_problem`` that the proofs
can cover as many ANDs as there were. All values here are public.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Never

from parties.audit.checks.privacy import RunTerms
from parties.audit.evidence import Evidence, TranscriptAttempt
from parties.audit.findings import require
from parties.config import MALICIOUS
from parties.mpc.steps import (
    CLIENTS_VERIFY,
    COUNT_VERIFY,
    LINK_VERIFY,
    MEASURE_VERIFY,
    OF_CHECKS,
    OF_PROOFS,
    PASSED,
    PREPARE_VERIFY,
    SELECT_VERIFY,
    MessageFacts,
)
from protocols.proof_sizes import FORMER_SIZES, SIZES, Tables, Told, most_gates, tables_of
from protocols.proof_sizes import problem_of as sizes_of_proofs
from protocols.steps import (
    CHOICE,
    COMPARISONS,
    LINK_ALIGN,
    OF_COUNTING,
    OF_LINKING,
    OF_MEASUREMENT,
    OF_RECODING,
    OF_SELECTION,
    Step,
)

_BY_NAME = {step.name: step for step in OF_PROOFS}
_LAST_WORD_BYTES = 1
_FIELDS_SINCE = 20
"""Version of messages since which proofs in Z_2^64 and Z_2^128 have the fields that they have now."""


_PROVED_IN: tuple[tuple[Sequence[Step[Never]], Sequence[Step[MessageFacts]]], ...] = (
    (
        (*OF_CHECKS, *OF_LINKING, LINK_ALIGN, *OF_RECODING, *OF_COUNTING),
        (CLIENTS_VERIFY, LINK_VERIFY, COUNT_VERIFY),
    ),
    (OF_SELECTION, (SELECT_VERIFY,)),
    (OF_MEASUREMENT, (MEASURE_VERIFY, PREPARE_VERIFY)),
)
"""Pairs of steps, and the steps with the proofs of their messages."""


def is_proof(step: str) -> bool:
    """True for a step of proofs."""
    return step in _BY_NAME


def problem_of(step: str, sizes: list[int], times: int) -> str | None:
    """Returns the problem of a server's messages to one peer in a step of proofs taken ``times`` times, or None."""
    judged = _BY_NAME[step].problem
    return judged(MessageFacts(sizes, times, 0, False, 0)) if judged is not None else None


def sizes_problem(attempts: Sequence[TranscriptAttempt], step: str, number: int) -> str | None:
    """Returns the problem of the sizes of all three servers' messages in a step of proofs in a round, or None."""
    if len(attempts) < 3:
        return None
    checks = [_checks(attempt, step, number) for attempt in attempts]
    if len({len(found) for found in checks}) > 1:
        return "the servers took part in different numbers of checks"
    sizes = sorted(zip(attempts, checks, strict=True), key=lambda item: item[0].pid)
    known = FORMER_SIZES if attempts[0].opening.number("wire") < _FIELDS_SINCE else SIZES
    each = zip(*(c for _, c in sizes), strict=True)
    return next(filter(None, (sizes_of_proofs(one, known) for one in each)), None)


def counted_problem(
    attempt: TranscriptAttempt, number: int, wanted: Sequence[Tables]
) -> str | None:
    """Returns the problem of a server's proofs of rows counted in a round with the tables ``wanted``, or None.

    The remainder of the last table is proved with the round's total, as are the openings of owners' checks.
    """
    found = [tables_of(counts) for counts in _checks(attempt, COUNT_VERIFY.name, number)]
    if found != list(wanted):
        return f"tables of {_tables_text(found)} were proved; the rows that were counted ask for {_tables_text(wanted)}"
    opened = sum(
        (entry.record["what"], entry.number("round")) == (PASSED.what, number)
        for entry in attempt.of("opened")
    )
    totals = len(_checks(attempt, CLIENTS_VERIFY.name, number)) - opened
    return "the round's total was not proved" if wanted and totals < 1 else None


def gates_problem(attempt: TranscriptAttempt, number: int, gates: Mapping[str, int]) -> str | None:
    """Returns the problem of a server's proofs of a round with the words of ``gates`` by step, or None."""
    for steps, proofs in _PROVED_IN:
        made = sum(gates.get(step.name, 0) for step in steps)
        checks = (counts for proof in proofs for counts in _checks(attempt, proof.name, number))
        if sum(map(most_gates, checks)) < made:
            names = ", ".join(proof.name for proof in proofs)
            return f"{made} words of ANDs were sent, and too few proved in {names}"
    return None


def _tables_text(tables: Sequence[Tables]) -> str:
    return ", ".join(f"{t.rows} x {t.entries}" for t in tables) or "no rows"


def _checks(attempt: TranscriptAttempt, step: str, number: int) -> list[Told]:
    """Returns the sizes of a server's messages in each check of a step, which ends with a word to both peers."""
    before, following = (attempt.pid - 1) % 3, (attempt.pid + 1) % 3
    sizes: dict[int, list[list[int]]] = {before: [[]], following: [[]]}
    for entry in attempt.of("sent"):
        if (entry.text("step"), entry.number("round")) == (step, number):
            to = sizes[entry.number("peer")]
            to[-1].append(entry.number("bytes"))
            if to[-1][-1] == _LAST_WORD_BYTES:
                to.append([])
    pairs = zip(sizes[before], sizes[following], strict=False)
    return [Told(*pair) for pair in pairs if any(pair)]


def openings_proved(evidence: Evidence, terms: RunTerms) -> str:
    """Verifies that both peers of a server had confirmed their checks before the server opened anything."""
    if terms.config.run.security != MALICIOUS:
        return f"run.security = {terms.config.run.security}: the servers are assumed to follow the protocol."
    count = sum(_opened(attempt) for session in evidence.sessions for attempt in session.present)
    return (
        f"Before each of {count} openings the two other servers had found right what it rests on."
    )


def _opened(attempt: TranscriptAttempt) -> int:
    """Returns the number of an attempt's openings, each after its proofs. Raises CheckFailure."""
    words: Counter[tuple[str, int, int]] = Counter()
    opened: Counter[tuple[str, int]] = Counter()
    for entry in attempt.of("received", "opened"):
        number = entry.number("round")
        if entry.kind == "received":
            if is_proof(entry.text("step")) and entry.number("bytes") == _LAST_WORD_BYTES:
                words[entry.text("step"), number, entry.number("peer")] += 1
            continue
        step = _proofs_before(str(entry.record["what"]), number)
        # The noise of all of round 0 is proved once.
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
    """Returns the step of the proofs that precede an opening."""
    if what == PASSED.what:
        return CLIENTS_VERIFY.name
    if what == COMPARISONS.what:
        return LINK_VERIFY.name
    if what == CHOICE.what:
        return SELECT_VERIFY.name
    return MEASURE_VERIFY.name if number > 0 else PREPARE_VERIFY.name
