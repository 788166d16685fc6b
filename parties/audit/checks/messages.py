"""Checks ``messages``, ``steps``, ``order`` and ``clocks``, on the messages between the servers.

Digests are keyed with a key that the two ends of a link share, so that equal digests mean equal messages, and digests
of another mesh never fit. In an interrupted run, the last messages of the broken mesh may lack their counterpart: a
killed process had not yet recorded them, or a dead one never received them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from parties.audit.evidence import Evidence, MeshSession, TranscriptAttempt, TranscriptEntry
from parties.audit.findings import CheckFailure, require
from parties.mpc.steps import AGREE, ESTIMATE, FINISH, STEPS
from parties.mpc.transcript_schema import NOTES, ROUND
from protocols.steps import Phase
from protocols.transcript import ended_round

CLOCK_TOLERANCE_S = 60.0
"""Tolerance for times of messages, in seconds: a process may stop between sending a message and recording it."""
MAX_SKEW_S = 3600.0
"""Maximum difference of two hosts' clocks, in seconds."""


Messages: TypeAlias = list[tuple[TranscriptEntry, TranscriptAttempt]]
"""Records of messages, each with the attempt of its server."""


class MessageKey(NamedTuple):
    """Fields of a message that both ends of a link have to record equally."""

    label: str
    digest: str
    size: int
    step: str
    round: int


def _key(entry: TranscriptEntry) -> MessageKey:
    size, round = entry.number("bytes"), entry.number("round")
    return MessageKey(entry.text("label"), entry.text("digest"), size, entry.text("step"), round)


def _keys(entries: Messages) -> list[MessageKey]:
    return [_key(entry) for entry, _ in entries]


def _between(evidence: Evidence, sender: int, receiver: int) -> tuple[Messages, Messages]:
    """Returns the messages from one server to another, as recorded by each of the two."""

    def noted(pid: int, kind: str, peer: int) -> Messages:
        return [
            (entry, attempt)
            for attempt in evidence.transcripts[pid].attempts
            for entry in attempt.of(kind)
            if entry.record["peer"] == peer
        ]

    return noted(sender, "sent", receiver), noted(receiver, "received", sender)


def messages(evidence: Evidence, first: int, second: int) -> str:
    """Verifies that every message is in both transcripts, with the same digest, size, step, round and label."""
    sessions = {session.name: session for session in evidence.sessions}
    total = lost = size = 0
    for sender, receiver in ((first, second), (second, first)):
        sent, received = _between(evidence, sender, receiver)
        _same_at_both_ends(sent, received, sender=sender, receiver=receiver)
        received_keys = _keys(received)
        there = Counter(received_keys)
        for (entry, attempt), key in zip(sent, _keys(sent), strict=True):
            total, size = total + 1, size + key.size
            if there[key] > 0:
                there[key] -= 1
                continue
            lost += 1
            require(
                _may_be_lost(entry, attempt, sessions, pair=(first, second)),
                f"{_describe(entry, sender, receiver)} has no counterpart at server {receiver}: "
                f"it was not received, or not as it was sent (line {entry.line} of server {sender}'s transcript)",
            )
        for (entry, attempt), key in zip(received, received_keys, strict=True):
            if there[key] > 0:
                there[key] -= 1
                lost += 1
                require(
                    _may_be_lost(entry, attempt, sessions, pair=(first, second)),
                    f"{_describe(entry, sender, receiver)} has no counterpart at server {sender}: it was not sent, or "
                    f"not as it was received (line {entry.line} of server {receiver}'s transcript)",
                )
    require(total > 0, f"servers {first} and {second} exchanged no message")
    broken = f"; {lost} of an interrupted mesh have none" if lost else ""
    return f"All {total} messages, {size} bytes, were received as they were sent, digest by digest{broken}."


def _same_at_both_ends(sent: Messages, received: Messages, *, sender: int, receiver: int) -> None:
    """Verifies that no message of one mesh is in two transcripts with different contents.

    Such a message was not lost, even if the mesh broke down.
    """
    there: dict[tuple[str | None, str], TranscriptEntry] = {
        (attempt.session, entry.text("label")): entry
        for entry, attempt in received
        # Labels repeat in another mesh, and before its agreement a mesh has no name.
        if attempt.session is not None
    }
    for entry, attempt in sent:
        other = there.get((attempt.session, entry.text("label")))
        if other is not None and _key(other) != _key(entry):
            raise CheckFailure(
                f"{_describe(entry, sender, receiver)} was not received as it was sent (line {entry.line} of server "
                f"{sender}'s transcript, line {other.line} of server {receiver}'s)"
            )


def _describe(entry: TranscriptEntry, sender: int, receiver: int) -> str:
    number = entry.number("round")
    when = f" of round {number}" if number >= 0 else ""
    return f"a message from server {sender} to server {receiver} in step {entry.text('step')}{when}"


def _may_be_lost(
    entry: TranscriptEntry,
    attempt: TranscriptAttempt,
    sessions: Mapping[str, MeshSession],
    *,
    pair: tuple[int, int],
) -> bool:
    """True if the mesh broke down in the message's round, or before there was agreement, or one of the two lost it."""
    step = entry.text("step")
    if attempt.session is None:
        return step == AGREE.name and not attempt.clean
    session = sessions[attempt.session]
    if session.clean:
        return False
    return step == FINISH.name or entry.number("round") >= session.sealed_by(*pair)


def steps(evidence: Evidence, rounds: int) -> str:
    """Verifies that messages belong to the protocol's steps and to existing rounds, with each label used once."""
    for transcript in evidence.transcripts:
        for attempt in transcript.attempts:
            used: set[tuple[str, int, str]] = set()
            for entry in attempt.of("sent", "received", "step"):
                _step_known(entry, transcript.pid, rounds)
                if entry.kind != "step":
                    label = entry.kind, entry.number("peer"), entry.text("label")
                    require(
                        label not in used,
                        f"line {entry.line} of server {transcript.pid}'s transcript uses a label again",
                    )
                    used.add(label)
    return f"Every message belongs to one of the protocol's {len(STEPS)} steps and to a round, and has its own label."


def _step_known(entry: TranscriptEntry, pid: int, rounds: int) -> None:
    name, number = entry.text("step"), entry.number("round")
    step = STEPS.get(name)
    if step is not None and (
        step.first_round <= number <= rounds if step.in_round else number == -1
    ):
        return
    where = f"line {entry.line} of server {pid}'s transcript"
    if step is None:
        raise CheckFailure(f"{where}: the protocol has no step {name[:40]!r}")
    raise CheckFailure(
        f"{where}: step {name} does not belong to round {number if number >= 0 else None}"
    )


def order(evidence: Evidence) -> str:
    """Verifies that receptions, charges, openings and seals of a server are in the protocol's order."""
    count = 0
    for transcript in evidence.transcripts:
        for attempt in transcript.attempts:
            reached = -1
            for entry, position in _positions(attempt):
                # The lead estimates the model before a round, and once more after the last round.
                if _is_estimate(entry) and entry.number("round") >= reached // _PHASES - 1:
                    position = max(position, reached)
                if position < reached:
                    raise CheckFailure(
                        f"line {entry.line} of server {transcript.pid}'s transcript ({_name(entry)}) comes too late"
                    )
                reached, count = position, count + 1
    return f"{count} records of messages received, charges, openings and seals are in the protocol's order."


def _is_estimate(entry: TranscriptEntry) -> bool:
    return entry.kind == "received" and entry.text("step") == ESTIMATE.name


def _name(entry: TranscriptEntry) -> str:
    for field in ("step", "what", "reason", "client"):
        if field in entry.record:
            return f"{entry.kind} {entry.text(field)[:40]}"
    return entry.kind


_PHASES = 10
_BEFORE_ALL, _AFTER_ALL = -1, 1 << 40


def _position(round: int, phase: Phase) -> int:
    """Returns the position of a phase of a round in the order of the whole run."""
    return {Phase.START: _BEFORE_ALL, Phase.END: _AFTER_ALL}.get(phase, _PHASES * round + phase)


def _positions(attempt: TranscriptAttempt) -> Iterator[tuple[TranscriptEntry, int]]:
    """Yields the entries that have a position in the order of the protocol, with that position."""
    begun = False
    for entry in attempt.entries:
        begun = begun or entry.is_note(ROUND.what)
        # Before the first round of an attempt, a server takes over charges from the other servers.
        if entry.kind == "ledger" and not begun:
            continue
        if entry.kind == "seal":
            ended = ended_round(entry.text("reason"))
            if ended is not None:
                yield entry, _position(ended, Phase.MEASUREMENT)
            continue
        phase = _phase_of(entry)
        if phase is not None:
            yield entry, _position(entry.number("round"), phase)


def _phase_of(entry: TranscriptEntry) -> Phase | None:
    """Returns the phase of a record other than a seal, None if it has no position."""
    if entry.kind == "note":
        return NOTES[entry.text("what")].phase
    if entry.kind == "client":
        return Phase.ARRIVALS
    if entry.kind not in ("received", "ledger", "opened"):
        return None
    step = STEPS.get(entry.text("step"))
    if step is None:
        return Phase.MODEL
    return step.phase_in(entry.number("round")) if entry.kind == "received" else step.phase


def clocks(evidence: Evidence) -> str:
    """Verifies that no server's time goes back, and no message arrives before it was sent, for any skew of clocks."""
    for transcript in evidence.transcripts:
        before = 0.0
        for entry in transcript.entries:
            if entry.time < before - 0.002:
                raise CheckFailure(
                    f"time goes back by {before - entry.time:.3f} s in line {entry.line} of server {transcript.pid}'s "
                    "transcript"
                )
            before = entry.time
    worst = 0.0
    for session in evidence.sessions:
        for first, second in ((0, 1), (0, 2), (1, 2)):
            there, back = _least_lag(session, first, second), _least_lag(session, second, first)
            if there is None or back is None:
                continue
            require(
                there + back >= -CLOCK_TOLERANCE_S,
                f"by servers {first}'s and {second}'s clocks messages arrived {-there - back:.0f} s before they left",
            )
            worst = max(worst, abs(there - back) / 2)
            require(
                worst <= MAX_SKEW_S,
                f"the clocks of servers {first} and {second} are {worst:.0f} s apart, more than {MAX_SKEW_S:.0f} s",
            )
    return f"No server's time goes back, and no message arrived before it was sent; clocks differed by {worst:.1f} s."


def _least_lag(session: MeshSession, sender: int, receiver: int) -> float | None:
    """Returns the least time from sending to receiving, by the two hosts' clocks, of messages that both recorded."""
    one, other = session.attempts[sender], session.attempts[receiver]
    if one is None or other is None:
        return None
    sent = {_key(e): e.time for e in one.of("sent") if e.record["peer"] == receiver}
    there = ((_key(e), e.time) for e in other.of("received") if e.record["peer"] == sender)
    lags = [time - sent[key] for key, time in there if key in sent]
    return min(lags, default=None)
