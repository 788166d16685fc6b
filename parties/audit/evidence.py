"""Evidence of an audit: the parsed transcripts of a run, and the certificates of their writers.

A transcript consists of attempts, one for each process that wrote. An attempt belongs to a session, which is one mesh
of the three servers; an uninterrupted run has one session. All values here are public. This module verifies nothing but
the form of records; the checks do.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mechanisms.events import Event, event_from_dict
from parties.audit.findings import CheckFailure, require
from parties.federation import sums_schema as silos
from parties.federation import transcript as secagg
from parties.methods.flaim import transcript_schema as flaim
from parties.mpc import transcript_schema as distaim
from protocols.errors import CheckFailed
from protocols.fields import Schema, decode
from protocols.transcript import END, Reading, Record, Value, ended_round, read

_REMOVALS = frozenset(note.what for note in distaim.REMOVALS)
_MESSAGES = frozenset({"sent", "received"})
_SCHEMAS = {
    distaim.PROTOCOL: distaim.SCHEMA,
    flaim.FLAIM_PROTOCOL: flaim.FLAIM_SCHEMA,
    secagg.SECAGG_PROTOCOL: secagg.SECAGG_SCHEMA,
    silos.SILOS_PROTOCOL: silos.SILOS_SCHEMA,
}


def form_problem(record: Record, protocol: str) -> str | None:
    """Returns the problem of a record's fields, or None; ``protocol`` is that of the transcript's header."""
    return _SCHEMAS.get(protocol, Schema({}, {})).problem(record)


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """A record with its line (from 1) and its time, in seconds since the epoch by its writer's clock."""

    line: int
    kind: str
    record: Record
    time: float

    def text(self, name: str) -> str:
        """Returns a field as text."""
        return str(self.record[name])

    def number(self, name: str) -> int:
        """Returns a whole number; -1 for null."""
        value = self.record[name]
        return value if isinstance(value, int) else -1

    def real(self, name: str) -> float:
        """Returns a number; NaN if the field is none."""
        value = self.record[name]
        return float(value) if isinstance(value, int | float) else math.nan

    def bytes(self, name: str) -> bytes:
        """Returns a binary value."""
        return decode(self.record[name])

    def values(self, *names: str) -> tuple[Value, ...]:
        """Returns several fields, unchanged."""
        return tuple(self.record[name] for name in names)

    def items(self, name: str) -> list[Value]:
        """Returns a list; empty if the field is none."""
        value = self.record[name]
        return value if isinstance(value, list) else []

    def is_note(self, what: str) -> bool:
        """True if the entry is the note ``what``."""
        return self.kind == "note" and self.record["what"] == what

    @property
    def is_removal(self) -> bool:
        """True for a note that removes owners from the count."""
        return self.kind == "note" and self.record["what"] in _REMOVALS


@dataclass(frozen=True, eq=False)
class TranscriptAttempt:
    """Records of one process: the opening entry (``header`` or ``resumed``) and all that follow."""

    pid: int
    opening: TranscriptEntry
    entries: Sequence[TranscriptEntry]

    @cached_property
    def events(self) -> Sequence[TranscriptEntry]:
        """All entries but messages, which are most of a transcript."""
        return [entry for entry in self.entries if entry.kind not in _MESSAGES]

    def of(self, *kinds: str) -> Iterator[TranscriptEntry]:
        """Returns the entries of these kinds."""
        entries = self.events if _MESSAGES.isdisjoint(kinds) else self.entries
        return (entry for entry in entries if entry.kind in kinds)

    def notes(self, what: str) -> list[TranscriptEntry]:
        """Returns the notes ``what``."""
        return [entry for entry in self.events if entry.is_note(what)]

    def before(self, what: str) -> Sequence[TranscriptEntry]:
        """Returns the entries before the first note ``what``; all entries if there is none."""
        noted = (n for n, entry in enumerate(self.entries) if entry.is_note(what))
        return self.entries[: next(noted, len(self.entries))]

    @cached_property
    def session(self) -> str | None:
        """Name that the three servers of one mesh agreed on; None if they did not agree."""
        agreed = self.notes(distaim.AGREED.what)
        return agreed[0].text("session") if agreed else None

    @property
    def clean(self) -> bool:
        """True if the attempt ended like a finished run."""
        last = self.entries[-1] if self.entries else self.opening
        return last.kind == "seal" and last.record["reason"] == END

    @property
    def releases(self) -> bool:
        """True if the attempt charged or opened something."""
        return any(self.of("ledger", "opened"))

    @property
    def idle(self) -> bool:
        """True if the attempt met no peer, charged nothing and opened nothing."""
        done = ("sent", "received", "client", "step", "ledger", "opened")
        return not any(self.of("note", *done))

    @cached_property
    def sealed_round(self) -> int:
        """Number of the last round whose end the attempt sealed; -1 if there is none."""
        rounds = [ended_round(entry.text("reason")) for entry in self.of("seal")]
        return max((number for number in rounds if number is not None), default=-1)


@dataclass(frozen=True, eq=False)
class ServerTranscript:
    """One server's transcript: the file as read, and its attempts (which need well-formed records)."""

    pid: int
    reading: Reading

    @cached_property
    def entries(self) -> list[TranscriptEntry]:
        """All records, with their times."""
        entries, begun = [], 0.0
        for line, record in enumerate(self.reading.records, start=1):
            if record is None:
                continue
            if record["kind"] in ("header", "resumed"):
                time = record["time"]
                begun = float(time) if isinstance(time, int | float) else 0.0
            t = record["t"]
            after = t / 1000 if isinstance(t, int | float) else 0.0
            entries.append(TranscriptEntry(line, str(record["kind"]), record, begun + after))
        return entries

    @cached_property
    def attempts(self) -> list[TranscriptAttempt]:
        """Attempts in order, one for each process that wrote."""
        starts = [n for n, e in enumerate(self.entries) if e.kind in ("header", "resumed")]
        ends = [*starts[1:], len(self.entries)]
        return [
            TranscriptAttempt(self.pid, self.entries[start], self.entries[start + 1 : end])
            for start, end in zip(starts, ends, strict=True)
        ]

    @property
    def last(self) -> TranscriptAttempt:
        """Last attempt that is not idle: a server that starts after its run may be alone."""
        return next((a for a in reversed(self.attempts) if not a.idle), self.attempts[-1])

    @property
    def header(self) -> TranscriptEntry:
        """First record."""
        return self.entries[0]

    @property
    def protocol(self) -> str:
        """Name of the protocol in the first record."""
        first = self.reading.records[0] if self.reading.records else None
        return str(first.get("protocol")) if first else ""


@dataclass(frozen=True, eq=False)
class MeshSession:
    """One mesh of the three servers: the attempt of each, None if a server's record of the mesh is lost.

    ``over`` is True if all three met again later.
    """

    name: str
    attempts: tuple[TranscriptAttempt | None, ...]
    over: bool = False

    @property
    def present(self) -> list[TranscriptAttempt]:
        """Attempts that are not lost."""
        return [attempt for attempt in self.attempts if attempt is not None]

    @property
    def clean(self) -> bool:
        """True if all three attempts ended like a finished run."""
        return len(self.present) == 3 and all(attempt.clean for attempt in self.present)

    @property
    def sealed_round(self) -> int:
        """Number of the last round that all three sealed, as ``sealed_by``.

        The records before the end of that round are in all three transcripts.
        """
        return self.sealed_by(0, 1, 2)

    def sealed_by(self, *pids: int) -> int:
        """Number of the last round that these servers sealed; -1 if there is none.

        It is -1 as well if all three met again and the record of one of these is lost, as after a restore.
        """
        attempts = [self.attempts[pid] for pid in pids]
        if self.over and None in attempts:
            return -1
        return min(
            (attempt.sealed_round for attempt in attempts if attempt is not None), default=-1
        )


@dataclass(eq=False)
class Evidence:
    """Transcripts of a run, and the material to verify them; ``agreed`` is the auditor's configuration, if given."""

    directory: Path
    transcripts: tuple[ServerTranscript, ...]
    certificates: Path
    agreed: Path | None = None

    @cached_property
    def counted(self) -> Sequence[TranscriptAttempt]:
        """Attempts that charged or opened something, of all servers; all attempts if there is none."""
        attempts = [attempt for one in self.transcripts for attempt in one.attempts]
        return [attempt for attempt in attempts if attempt.releases] or attempts

    @cached_property
    def version(self) -> str:
        """Version of the program that ran, by the attempts that count."""
        return self.counted[0].opening.text("version")

    @cached_property
    def sessions(self) -> list[MeshSession]:
        """Meshes, in an order that agrees with all servers' transcripts. Raises CheckFailure if there is none."""
        attempts: dict[tuple[str, int], TranscriptAttempt] = {}
        orders: list[list[str]] = []
        for transcript in self.transcripts:
            with_session = [
                attempt for attempt in transcript.attempts if attempt.session is not None
            ]
            orders.append([str(attempt.session) for attempt in with_session])
            for attempt in with_session:
                key = str(attempt.session), transcript.pid
                require(
                    key not in attempts, f"server {transcript.pid} was twice in mesh {key[0][:8]}"
                )
                attempts[key] = attempt
        found: list[MeshSession] = []
        over = False
        for name in reversed(_merged(orders)):
            met = tuple(attempts.get((name, transcript.pid)) for transcript in self.transcripts)
            found.append(MeshSession(name, met, over))
            over = over or None not in met
        return found[::-1]


def _merged(orders: Sequence[Sequence[str]]) -> list[str]:
    """Returns all names, in an order that agrees with each of ``orders``."""
    left = [list(order) for order in orders]
    merged: list[str] = []
    while any(left):
        heads = [order[0] for order in left if order]
        ready = [name for name in heads if not any(name in order[1:] for order in left)]
        require(bool(ready), "the servers were in the same meshes in different orders")
        merged.append(ready[0])
        left = [[name for name in order if name != ready[0]] for order in left]
    return merged


def record_table(value: object) -> Mapping[str, object]:
    """Returns a record's table; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def event_of(entry: TranscriptEntry) -> Event:
    """Returns the event of a charge. Raises CheckFailure if the charge has none."""
    event = entry.record["event"]
    try:
        return event_from_dict(event if isinstance(event, dict) else {})
    except ValueError as error:
        raise CheckFailure(f"the charge in line {entry.line} is for nothing: {error}") from error


def require_complete(transcript: ServerTranscript) -> None:
    """Raises CheckFailure if a transcript ends in half a record."""
    torn = transcript.reading.torn
    require(
        torn == 0,
        f"server {transcript.pid}'s transcript ends in {torn} bytes of a torn record; what stands before counts",
    )


def load_transcripts(paths: Sequence[Path]) -> tuple[ServerTranscript, ...]:
    """Returns one transcript for each file. Raises CheckFailure, with the reason, if a file is no transcript."""
    transcripts = []
    for pid, path in enumerate(paths):
        try:
            transcripts.append(ServerTranscript(pid, read(path)))
        except OSError as error:
            raise CheckFailure(f"{path.name} cannot be read: {error.strerror or error}") from error
        except CheckFailed as error:
            raise CheckFailure(f"{path.name} is not a transcript") from error
    return tuple(transcripts)
