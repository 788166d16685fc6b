"""Check ``charges``: charges and the openings that they pay for, and charges without an opening.

An opening has a name, which its charge carries. After a restart an opening of the same name has the same value; it is
noted as repeated and was paid for before. A charge without an opening is no violation: a server may have been killed
between the two, and the other servers do not enter a claim of one server alone. ``never_opened`` reports such charges
with the ends of the servers' records, earliest first, because a server with something to gain leaves at this point. All
values here are public.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from parties.audit.evidence import Evidence, MeshSession, TranscriptAttempt, TranscriptEntry
from parties.audit.findings import require
from parties.mpc.steps import OPENED_IN
from parties.mpc.transcript_schema import CLAIMED, REPEATED, ROUND
from protocols.select_spec import chosen_index
from protocols.steps import CHOICE


def charges(evidence: Evidence) -> str:
    """Verifies that every opening that needs a charge follows a charge of its own.

    An opening repeated after a restart, with the same inputs and noise, names the earlier charge that paid for it.
    """
    count = 0
    for transcript in evidence.transcripts:
        paid: set[tuple[str, ...]] = set()
        for attempt in transcript.attempts:
            count += _paid_openings(attempt, paid)
    _require_same(evidence)
    text = f"Each of the {count} openings in the three transcripts follows the charge that pays for it."
    return " ".join([text, *never_opened(evidence), *_claims(evidence)])


def _paid_openings(attempt: TranscriptAttempt, paid: set[tuple[str, ...]]) -> int:
    """Returns the number of openings of an attempt, each verified to follow its charge; adds to ``paid``."""
    due: TranscriptEntry | None = None
    count = 0
    for entry, is_due in _charged(attempt):
        where = f"line {entry.line} of server {attempt.pid}'s transcript"
        if entry.kind == "ledger":
            paid.add(_paid_opening(entry))
        if entry.kind == "opened":
            charge = OPENED_IN[what][1].charge if (what := entry.text("what")) in OPENED_IN else ""
            require(due is not None, f"{where}: an opening without a charge before it")
            position = (entry.record["round"], charge)
            fits = due is not None and (due.record["round"], due.record["step"]) == position
            require(fits, f"{where}: the charge before this opening is for something else")
            due, count = None, count + 1
        elif is_due:
            known = entry.kind == "ledger" or _paid_opening(entry) in paid
            require(known, f"{where}: an opening is repeated that nobody paid for")
            require(due is None, f"{where}: a charge before the one before it was used")
            due = entry
    require(
        due is None or not attempt.clean,
        f"server {attempt.pid} ended with a charge that nothing was opened for",
    )
    return count


def _charged(attempt: TranscriptAttempt) -> Iterator[tuple[TranscriptEntry, bool]]:
    """Yields charges, notes of repeated openings, and charged openings, with a flag if an opening is due afterwards.

    No opening is due after charges that the attempt took over before its first round.
    """
    begun = False
    for entry in attempt.events:
        begun = begun or entry.is_note(ROUND.what)
        if entry.kind == "ledger" or entry.is_note(REPEATED.what):
            yield entry, begun
        elif entry.kind == "opened":
            what = entry.text("what")
            if what not in OPENED_IN or OPENED_IN[what][1].charge is not None:
                yield entry, False


def _paid_opening(entry: TranscriptEntry) -> tuple[str, ...]:
    """Returns the identity of an opening in a charge or in a note of a repeated opening."""
    return tuple(str(entry.record[field]) for field in ("round", "step", "event", "opening"))


def openings_by_name(evidence: Evidence) -> dict[str, list[TranscriptEntry]]:
    """Returns the openings of all servers in all attempts, by name."""
    opened: dict[str, list[TranscriptEntry]] = {}
    for attempt in (a for transcript in evidence.transcripts for a in transcript.attempts):
        due = ""
        for entry, is_due in _charged(attempt):
            if is_due:
                due = entry.text("opening")
            elif entry.kind == "opened":
                opened.setdefault(due, []).append(entry)
    return opened


def opened_names(evidence: Evidence) -> set[str]:
    """Returns the names of all openings of any server."""
    return set(openings_by_name(evidence))


def _require_same(evidence: Evidence) -> None:
    """Raises CheckFailure if an opening has two values: the same inputs and noise give one."""
    for entries in openings_by_name(evidence).values():
        first = _value(entries[0])
        for entry in entries[1:]:
            require(
                _value(entry) == first,
                f"{entry.text('what')} of round {entry.number('round')} was opened again with the same inputs, and is "
                "another value: somebody drew other noise",
            )


def _value(entry: TranscriptEntry) -> object:
    """Returns the opened value; for a choice its index, since the other words are random."""
    data = entry.bytes("value")
    if entry.text("what") != CHOICE.what:
        return data
    words = np.frombuffer(data, "<u8")
    return chosen_index(words) if np.count_nonzero(words == 0) == 1 else data


@dataclass(slots=True)
class _UnopenedCharge:
    """A charge without an opening: its first record, and the servers that have it."""

    entry: TranscriptEntry
    servers: list[int]


def never_opened(evidence: Evidence) -> list[str]:
    """Returns a sentence for each charge without an opening at any server, with the ends of the records."""
    opened, found = opened_names(evidence), dict[str, _UnopenedCharge]()
    for transcript in evidence.transcripts:
        for entry in (e for a in transcript.attempts for e in a.of("ledger")):
            name = entry.text("opening")
            if name not in opened:
                found.setdefault(name, _UnopenedCharge(entry, [])).servers.append(transcript.pid)
    return [_sentence(evidence, charge) for charge in found.values()]


def _sentence(evidence: Evidence, charge: _UnopenedCharge) -> str:
    entry = charge.entry
    servers = ", ".join(map(str, charge.servers))
    text = (
        f"Nothing was opened for the charge for {entry.text('step')} of round {entry.number('round')}, which server"
        f"{'s' * (len(charge.servers) > 1)} {servers} entered"
    )
    ends = _ends(_session_of(evidence, entry))
    # A server that is left waiting leaves, too, and may be first: so each record says why it ended.
    return (
        f"{text}; their records end, by their own clocks: {'; '.join(ends)}."
        if ends
        else f"{text}."
    )


def _session_of(evidence: Evidence, entry: TranscriptEntry) -> MeshSession | None:
    for session in evidence.sessions:
        if any(entry is other for attempt in session.present for other in attempt.entries):
            return session
    return None


def _ends(session: MeshSession | None) -> list[str]:
    """Returns the ends of the servers' records of a session, earliest first; none if all ended like a finished run."""
    if session is None or all(attempt.clean for attempt in session.present):
        return []
    ends = sorted((a.entries[-1].time, a.pid, a.entries[-1]) for a in session.present if a.entries)
    return [f"server {pid}, {e.record.get('reason', 'without a reason')}" for _, pid, e in ends]


def _claims(evidence: Evidence) -> Sequence[str]:
    """Returns a sentence for each server that claimed charges that neither other server has."""
    claimed: dict[int, set[str]] = {}
    for attempt in (a for transcript in evidence.transcripts for a in transcript.attempts):
        for entry in attempt.notes(CLAIMED.what):
            names = {str(name) for name in entry.items("charges")}
            claimed.setdefault(entry.number("party"), set()).update(names)
    return [
        f"Server {pid} claimed {len(names)} charges at a restart that neither other server had; they were not entered."
        for pid, names in sorted(claimed.items())
    ]
