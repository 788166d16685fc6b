"""A party's transcript: an append-only, hash-chained, signed record of its messages, openings and charges.

One JSON object a line. The chain is h_0 = 0^32, h_i = SHA-256(h_{i-1} || line_i), the line without its newline; it is
implicit, and ``seal`` records state it with a signature by the party's certificate key. A transcript's content is
public to the auditor: sizes, keyed digests, parameters, clients' names, opened values. Payloads, shares, keys and
clients' data never are (payloads are masked, and even so only their digests are written). After a crash a torn last
line is cut off and the chain goes on.

Records, each with ``t``, milliseconds since the ``time`` of the ``header`` or ``resumed`` record before it, by a clock
that never goes back: ``header`` and ``resumed`` (format, time, cut: bytes of a torn line, and the caller's fields),
``sent`` and ``received`` (peer, step, round, label, bytes, digest), ``opened`` (step, round, what, count, value),
``ledger`` (round, step, event, rho, spent), ``client`` (accepted or not, and why), ``step`` (a finished step's rounds,
bytes, messages and milliseconds), ``note`` (what, and more), ``seal`` (reason, head, signature). Binary values are
base64 without padding.

Known limits: records after the last seal are not vouched for, and a file cut off at a seal is whole by itself; only the
other parties' transcripts show that records are missing. One process at a time may write a file.
"""

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from protocols import fields as form
from protocols.durable import sync
from protocols.errors import CheckFailed
from protocols.fields import Fields, Schema, encode

Value: TypeAlias = str | int | float | bool | list["Value"] | dict[str, "Value"] | None
Record: TypeAlias = dict[str, Value]

FORMAT = 6
START = bytes(32)
_FIRST = b'{"kind":"header"'
# The bytes that a seal signs have not changed since format 3.
_SEAL = b"syncret transcript 3\n"
_ENCODER = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)

END = "end"
"""Reason of the last seal of a process that came to its end."""
_ROUND = "round "
_OPENING: Fields = {"format": form.natural, "time": form.number, "cut": form.natural}
_MESSAGE: Fields = {
    "peer": form.natural,
    "step": form.text,
    "round": form.optional_natural,
    "label": form.label,
    "bytes": form.natural,
    "digest": form.digest,
}
RECORDS: Mapping[str, Fields] = {
    "sent": _MESSAGE,
    "received": _MESSAGE,
    "opened": {
        "step": form.text,
        "round": form.natural,
        "what": form.text,
        "count": form.natural,
        "value": form.binary,
    },
    "ledger": {
        "round": form.natural,
        "step": form.text,
        "event": form.table,
        "rho": form.number,
        "spent": form.number,
    },
    "client": {
        "client": form.text,
        "digest": form.hex64,
        "round": form.natural,
        "accepted": form.flag,
        "reason": form.text,
    },
    "step": {
        "step": form.text,
        "round": form.optional_natural,
        "rounds": form.natural,
        "sent": form.natural,
        "received": form.natural,
        "messages": form.natural,
        "ms": form.natural,
    },
    "seal": {"reason": form.text, "head": form.hex64, "signature": form.text},
}
"""Fields of the records of ``Transcript``, but for ``header``, ``resumed`` and ``note``, which callers fill."""


def schema(
    header: Fields, notes: Mapping[str, Fields], records: Mapping[str, Fields] = RECORDS
) -> Schema:
    """Returns the schema of transcripts whose caller fills headers and notes with these fields."""
    opening = {**_OPENING, **header}
    return Schema({**records, "header": opening, "resumed": opening}, notes)


class Transcript:
    """Writer of one party's transcript; a ``runtime.Recorder``. Calls may come from several threads.

    ``sign`` signs bytes with the key of the party's certificate. ``header`` has the facts that an auditor needs first:
    run, party, configuration digest, versions. An existing file is continued. ``before_flush`` is called before
    anything is put on the disk, so that its own effects come first.

    Raises OSError where the file cannot be written, and again from then on; CheckFailed where an existing one is not a
    transcript or of another format, and is then left as it was.
    """

    def __init__(
        self,
        path: Path,
        *,
        sign: Callable[[bytes], bytes],
        header: Mapping[str, Value],
        before_flush: Callable[[], None] | None = None,
    ) -> None:
        self._sign = sign
        self._before_flush = before_flush
        self._lock = threading.Lock()
        self._failed: OSError | None = None
        before = read(path) if path.exists() else None
        if before and (other := before.format) not in (None, FORMAT):
            raise CheckFailed(
                f"{path} was begun in format {other}, and this version writes {FORMAT}: an audit reads one of them;"
                " end this run with the version that began it"
            )
        self._head = before.head if before else START
        self._file = path.open("ab")
        if before:
            self._file.truncate(before.size)
        last = before.ended if before else 0.0
        # A host's clock may have been set back meanwhile; the transcript's time never goes back.
        begun = max(round(time.time(), 3), last)
        self._begun = time.monotonic()
        kind = "resumed" if before and before.records else "header"
        cut = before.torn if before else 0
        self._write(kind, {"format": FORMAT, "time": begun, "cut": cut, **header})
        self.flush()
        sync(path.parent)

    @property
    def head(self) -> str:
        """The chain's last value, in hexadecimal."""
        return self._head.hex()

    def message(
        self,
        *,
        step: str,
        round: int | None,
        direction: str,
        peer: int,
        label: int,
        size: int,
        digest: bytes,
    ) -> None:
        """Records that a message was ``sent`` or ``received``; ``digest`` is ``digests.message_digest``."""
        self._write(
            direction,
            {
                "peer": peer,
                "step": step,
                "round": round,
                "label": f"{label & (1 << 64) - 1:016x}",
                "bytes": size,
                "digest": encode(digest),
            },
        )

    def opened(self, *, step: str, round: int | None, what: str, count: int, value: bytes) -> None:
        """Records that a value of ``count`` numbers was opened; ``value`` is public from now on."""
        self._write(
            "opened",
            {"step": step, "round": round, "what": what, "count": count, "value": encode(value)},
        )

    def ledger(
        self,
        *,
        round: int,
        step: str,
        event: Mapping[str, Value],
        rho: float,
        spent: float,
        opening: str = "",
    ) -> None:
        """Records a charge of privacy, before the opening it pays for; on the disk when this returns.

        ``opening`` is the name of that opening, where openings have names.
        """
        record: Record = {"round": round, "step": step, "event": dict(event)}
        record |= {"rho": rho, "spent": spent}
        self._write("ledger", record | ({"opening": opening} if opening else {}))
        self.flush()

    def client(
        self, *, client: str, digest: str, round: int, accepted: bool, reason: str = ""
    ) -> None:
        """Records that a client's submission was accepted or dropped."""
        self._write(
            "client",
            {
                "client": client,
                "digest": digest,
                "round": round,
                "accepted": accepted,
                "reason": reason,
            },
        )

    def step(
        self,
        *,
        step: str,
        round: int | None,
        rounds: int,
        sent: int,
        received: int,
        messages: int,
        seconds: float,
    ) -> None:
        """Records the cost of a finished step for this party: rounds, payload bytes, messages sent, seconds."""
        self._write(
            "step",
            {
                "step": step,
                "round": round,
                "rounds": rounds,
                "sent": sent,
                "received": received,
                "messages": messages,
                "ms": int(1000 * seconds),
            },
        )

    def note(self, what: str, **fields: Value) -> None:
        """Records any other fact for an auditor: the start of a round, the chosen candidate, an early end."""
        self._write("note", {"what": what, **fields})

    def seal(self, reason: str) -> None:
        """States and signs the chain so far; on the disk when this returns."""
        with self._lock:
            head, t = self._head, self._now()
            signature = self._sign(sealed(head, reason, t))
            self._append(
                "seal", {"reason": reason, "head": head.hex(), "signature": signature.hex()}, t
            )
        self.flush()

    def close(self, reason: str = END) -> None:
        """Seals with ``reason`` and closes."""
        try:
            self.seal(reason)
        finally:
            self._file.close()

    def _write(self, kind: str, fields: Mapping[str, Value]) -> None:
        with self._lock:
            self._append(kind, fields, self._now())

    def _now(self) -> int:
        return int(1000 * (time.monotonic() - self._begun))

    def _append(self, kind: str, fields: Mapping[str, Value], t: int) -> None:
        line = canonical({"kind": kind, "t": t, **fields})
        with self._all_or_nothing():
            self._file.write(line + b"\n")
        self._head = chain(self._head, line)

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Refuses to write after a failed write, which may have left half a record; a restart cuts that off."""
        if self._failed is not None:
            raise OSError(self._failed.errno, self._failed.strerror)
        try:
            yield
        except OSError as error:
            self._failed = error
            raise

    def flush(self) -> None:
        """Puts everything so far on the disk."""
        if self._before_flush is not None:
            self._before_flush()
        with self._lock, self._all_or_nothing():
            self._file.flush()
            os.fsync(self._file.fileno())


def canonical(record: Mapping[str, Value]) -> bytes:
    """Returns the one line of a record, without its newline."""
    return _ENCODER.encode(record).encode()


def chain(head: bytes, line: bytes) -> bytes:
    """Returns the chain's next value: SHA-256(head || line)."""
    return hashlib.sha256(head + line).digest()


def round_ended(number: int) -> str:
    """Returns the reason of a seal after a round."""
    return f"{_ROUND}{number}"


def ended_round(reason: str) -> int | None:
    """Returns the round of ``round_ended``; None for seals of another reason. Raises ValueError for a garbled one."""
    if not reason.startswith(_ROUND):
        return None
    number = reason.removeprefix(_ROUND)
    if not number.isdecimal():
        raise ValueError(f"a seal is said to be made for {reason[:40]!r}")
    return int(number)


def sealed(head: bytes, reason: str, t: int) -> bytes:
    """Returns the bytes that a seal's signature signs: all fields of the seal."""
    return _SEAL + head + b"%d " % t + reason.encode()


@dataclass(frozen=True, slots=True)
class Seal:
    """A seal in ``line`` (from 1): ``fits`` if it states the chain before it; ``signature`` should sign ``signed``."""

    line: int
    fits: bool
    signed: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Reading:
    """Content of a file: ``records`` by line, None for a line that is none, and the values that are to be checked.

    ``size`` bytes are whole lines, ``torn`` bytes follow; ``head`` is the chain's last value; ``ended`` the time (epoch
    seconds) of the last record, 0 where there is none.
    """

    path: Path
    records: tuple[Record | None, ...]
    seals: tuple[Seal, ...]
    head: bytes
    size: int
    torn: int
    ended: float

    @property
    def format(self) -> Value:
        """Format of the first header; None where there is none."""
        headers = (one for one in self.records if one is not None and one["kind"] == "header")
        return next((one.get("format") for one in headers), None)


def read(path: Path) -> Reading:
    """Reads everything in the file, and verifies nothing. Raises CheckFailed where it is not a transcript, OSError."""
    data = path.read_bytes()
    if not data.startswith(_FIRST) and not _FIRST.startswith(data):
        raise CheckFailed(f"{path} exists and is not a transcript")
    size = data.rfind(b"\n") + 1
    head, begun, ended = START, 0.0, 0.0
    records: list[Record | None] = []
    seals: list[Seal] = []
    for number, line in enumerate(data[:size].split(b"\n")[:-1], start=1):
        record = _record(line)
        records.append(record)
        if record is not None:
            if record["kind"] == "seal":
                t = record.get("t")
                signed = sealed(head, str(record.get("reason")), t if isinstance(t, int) else -1)
                fits = record.get("head") == head.hex()
                seals.append(Seal(number, fits, signed, _unhex(record.get("signature"))))
            if record["kind"] in ("header", "resumed"):
                begun = _seconds(record.get("time"))
            ended = begun + _seconds(record.get("t")) / 1000
        head = chain(head, line)
    return Reading(path, tuple(records), tuple(seals), head, size, len(data) - size, ended)


def _record(line: bytes) -> Record | None:
    """Returns the line's record, if the line is the record's canonical form."""
    try:
        record = json.loads(line)
        whole = isinstance(record, dict) and isinstance(record.get("kind"), str)
        return record if whole and canonical(record) == line else None
    except (ValueError, RecursionError):
        return None


_MOST = 1e15
"""A bound above all times in a transcript, in seconds or milliseconds."""


def _seconds(value: Value) -> float:
    # A foreign file may have numbers that are no times, and integers that no float can hold.
    return float(value) if isinstance(value, int | float) and abs(value) < _MOST else 0.0


def _unhex(text: Value) -> bytes:
    try:
        return bytes.fromhex(str(text))
    except ValueError:
        return b""  # No signature, hence a wrong one.
