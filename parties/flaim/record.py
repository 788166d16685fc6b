"""What the FLAIM server writes down: its transcript, and bytes and seconds by step.

Provides ``Record``, a `parties.flaim.members.MemberLog`. The transcript (`protocols.transcript`) has every
message to and from a client, every opening, every charge before what it pays for, who took part in which round and who
left why, and what each step cost. Messages stand in it by digests under a key that the two ends of their link share.
Public: all of it but those keys.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import LedgerEntry
from mechanisms.events import event_to_dict
from parties.board import Tracing, untraced
from parties.config import CertificateFiles
from parties.files import disk_errors
from parties.flaim.steps import AGGREGATE, CHOICES, CHOOSE, SUMS, step_of
from parties.report.content import Opened
from parties.tls import signer
from protocols.digests import message_digest
from protocols.errors import CheckFailed
from protocols.transcript import Transcript, Value, read


@dataclass(slots=True)
class StepCost:
    """What one step cost so far: frames' bytes by direction, messages, seconds."""

    sent: int = 0
    received: int = 0
    messages: int = 0
    seconds: float = 0.0


@dataclass(eq=False, slots=True)
class Record:
    """See the module. ``by_kind`` counts bytes by direction and kind of message, ``by_step`` costs by step.

    ``at`` is the step that is under way, and its round.
    """

    transcript: Transcript
    names: tuple[str, ...]
    opened: list[Opened] = field(default_factory=list)
    by_kind: dict[str, Counter[str]] = field(
        default_factory=lambda: {"sent": Counter(), "received": Counter()}
    )
    by_step: dict[str, StepCost] = field(default_factory=dict)
    at: tuple[str, int] | None = None
    tracing: Tracing = field(default=untraced, repr=False)
    naming: Callable[[bytes], str] = field(default=step_of, repr=False)
    """What a message is called."""
    _label: int = 0
    _costs: StepCost = field(default_factory=StepCost)
    _spent: float = 0.0

    @classmethod
    def open(
        cls,
        path: Path,
        files: CertificateFiles,
        names: tuple[str, ...],
        *,
        header: Mapping[str, Value],
        spent: float,
        naming: Callable[[bytes], str] = step_of,
    ) -> "Record":
        """A transcript at ``path``, begun or continued; ``spent`` is what the ledger has by then. Raises StoreError.

        ``opened`` has what earlier attempts opened, too.
        """
        with disk_errors(path):
            before = read(path).records if path.exists() else ()
            transcript = Transcript(path, sign=signer(files), header=header)
        opened = [_opened(record) for record in before if record and record["kind"] == "opened"]
        return cls(transcript, names, opened, naming=naming, _spent=spent)

    def message(
        self, *, sent: bool, client: int, round: int | None, data: bytes, key: bytes
    ) -> None:
        """See ``MemberLog``."""
        self._label += 1
        direction, step = "sent" if sent else "received", self.naming(data)
        self.transcript.message(
            step=step,
            round=round,
            direction=direction,
            peer=client,
            label=self._label,
            size=len(data),
            digest=message_digest(key, np.frombuffer(data, np.uint8)),
        )
        self.by_kind[direction][step] += len(data)
        if sent:
            self._costs.sent += len(data)
            self._costs.messages += 1
        else:
            self._costs.received += len(data)

    def connection(self, *, name: str, certificate: bytes, what: str, reason: str = "") -> None:
        """See ``MemberLog``."""
        digest = hashlib.sha256(certificate).hexdigest()
        self.transcript.note(what, client=name, certificate=digest, reason=reason)

    def took_part(self, client: int, round: int, *, certificate: bytes, reason: str = "") -> None:
        """``client`` takes part in ``round``, or (with a ``reason``) has dropped out of it."""
        self.transcript.client(
            client=self.names[client],
            digest=hashlib.sha256(certificate).hexdigest(),
            round=round,
            accepted=not reason,
            reason=reason,
        )

    def choices(self, round: int, count: int, value: bytes) -> None:
        """What the participants chose was opened: ``count`` candidates."""
        self.transcript.opened(step=CHOOSE, round=round, what=CHOICES, count=count, value=value)
        self.opened.append(Opened(round, CHOOSE, CHOICES, count))

    def sums(self, round: int, scaled: NDArray[np.int64]) -> None:
        """A noisy sum of FLAIM's was opened."""
        self.opening(round, AGGREGATE, SUMS, scaled)

    def opening(
        self, round: int, step: str, what: str, scaled: NDArray[np.int64], *, written: bool = True
    ) -> None:
        """A sum was opened in ``step`` of ``round``; its numbers are ``written`` down, or only how many there are."""
        narrow = bool((np.abs(scaled) < 1 << 31).all())
        self.transcript.opened(
            step=step,
            round=round,
            what=what,
            count=scaled.size,
            value=scaled.astype("<i4" if narrow else "<i8").tobytes() if written else b"",
        )
        self.opened.append(Opened(round, step, what, scaled.size))

    def charge(self, entry: LedgerEntry) -> None:
        """A charge, on the disk before the ledger has it."""
        self._spent += entry.rho
        self.transcript.ledger(
            round=entry.round,
            step=entry.step,
            event=event_to_dict(entry.event),
            rho=entry.rho,
            spent=self._spent,
        )

    @contextmanager
    def step(self, name: str, round: int) -> Iterator[None]:
        """The bytes and seconds within belong to step ``name``."""
        before, started = self._costs, time.perf_counter()
        own = self._costs = StepCost()
        self.at = name, round
        try:
            with self.tracing(name, round, lambda: _counted(own)):
                yield
        finally:
            self.at = None
            cost, self._costs = self._costs, before
            cost.seconds = time.perf_counter() - started
            self.transcript.step(
                step=name,
                round=round,
                rounds=0,
                sent=cost.sent,
                received=cost.received,
                messages=cost.messages,
                seconds=cost.seconds,
            )
            total = self.by_step.setdefault(name, StepCost())
            for item in ("sent", "received", "messages", "seconds"):
                setattr(total, item, getattr(total, item) + getattr(cost, item))


def _counted(cost: StepCost) -> Mapping[str, int]:
    return {
        "sent_bytes": cost.sent,
        "received_bytes": cost.received,
        "messages": cost.messages,
    }


def _opened(record: Mapping[str, Value]) -> Opened:
    number, count = record["round"], record["count"]
    if not (isinstance(number, int) and isinstance(count, int)):
        raise CheckFailed("an opening in the transcript has no round or no count")
    return Opened(number, str(record["step"]), str(record["what"]), count)
