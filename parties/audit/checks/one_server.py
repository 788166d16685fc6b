"""Checks that the audits of all methods with one server share.

Known limit: one server writes the only transcript, and participants keep none.
"""

import math
from collections.abc import Collection, Sequence
from fractions import Fraction

from mechanisms.accounting import rho
from parties.audit.checks import identity
from parties.audit.evidence import Evidence, TranscriptEntry, event_of, require_complete
from parties.audit.findings import require
from parties.audit.rules import READABLE, Prerequisite, Rule
from parties.federation.transcript_schema import FINISHED


def finished_note(evidence: Evidence) -> TranscriptEntry:
    """Returns the note that ends a run, in a transcript that is whole and sealed. Raises CheckFailure."""
    transcript = evidence.transcripts[0]
    require_complete(transcript)
    last = transcript.attempts[-1]
    require(last.clean, "the transcript does not end with the closing seal of a finished run")
    finished = last.notes(FINISHED)
    require(len(finished) == 1, "the transcript does not say once that the run was finished")
    return finished[0]


def clocks(evidence: Evidence) -> str:
    """Verifies that the server's time never goes back."""
    before = 0.0
    for entry in evidence.transcripts[0].entries:
        require(
            entry.time >= before - 0.002,
            f"time goes back by {before - entry.time:.3f} s in line {entry.line}",
        )
        before = entry.time
    return "The server's time never goes back."


def messages(evidence: Evidence, kinds: Collection[str], clients: int) -> str:
    """Verifies that messages are of ``kinds``, with one of the ``clients`` of the run, and numbered without a gap."""
    total = size = 0
    for attempt in evidence.transcripts[0].attempts:
        for number, entry in enumerate(attempt.of("sent", "received"), start=1):
            where = f"line {entry.line}"
            require(
                entry.text("step") in kinds,
                f"{where}: the protocol has no message {entry.text('step')[:40]!r}",
            )
            require(entry.number("peer") < clients, f"{where}: the run has no such client")
            require(
                entry.text("label") == f"{number:016x}",
                f"{where}: message number {number} of the attempt is missing or out of its place",
            )
            total, size = total + 1, size + entry.number("bytes")
    require(total > 0, "there is no message")
    return (
        f"{total} messages, {size} bytes, are of the protocol's kinds and numbered without a gap."
    )


def costs_of(evidence: Evidence) -> list[float]:
    """Returns the costs of all charges, verified by their events and by the noted totals. Raises CheckFailure."""
    costs: list[float] = []
    for attempt in evidence.transcripts[0].attempts:
        for entry in attempt.of("ledger"):
            cost = rho(event_of(entry))
            require(
                entry.real("rho") == cost,
                f"line {entry.line}: the charge is {entry.real('rho')}, its event costs {cost}",
            )
            costs.append(cost)
            spent = math.fsum(costs)
            require(
                math.isclose(entry.real("spent"), spent, rel_tol=1e-12),
                f"line {entry.line}: {entry.real('spent')} is said to be spent; the charges add up to {spent}",
            )
    return costs


def require_within(evidence: Evidence, costs: Sequence[float], budget: float) -> None:
    """Raises CheckFailure unless ``budget`` is that of the header and covers the ``costs``."""
    said = evidence.transcripts[0].header.real("rho_total")
    require(budget == said, "the header has another budget")
    within = sum(map(Fraction, costs), Fraction(0)) <= Fraction(budget)
    require(within, f"{math.fsum(costs)} was spent of a budget of {budget}")


def same_certificate(
    entry: TranscriptEntry, field: str, certificates: dict[str, str], names: Collection[str]
) -> None:
    """Raises CheckFailure unless the client of ``entry`` is one of ``names``, with the same certificate as before."""
    name = entry.text("client")
    require(name in names, f"line {entry.line}: {name[:60]!r} is no client of the run")
    known = certificates.setdefault(name, entry.text(field))
    require(known == entry.text(field), f"line {entry.line}: {name!r} has another certificate")


SIGNED: tuple[Rule[object], ...] = (
    *READABLE,
    Rule("certificates", lambda case: identity.certificates(case.evidence), Prerequisite.FORM),
    Rule("signatures", lambda case: identity.signatures(case.evidence), Prerequisite.FORM),
    Rule("clocks", lambda case: clocks(case.evidence), Prerequisite.FORM),
)
"""First rules of every audit of one server."""
