"""Transcripts of a federation's server and of a SecAgg server, and costs by step.

``FederationTranscript``, a `parties.federation.members.ClientMessageLog`, is a transcript (`protocols.transcript`) of
every message to and from a participant, every opening, every charge before the request that it pays for, participation
by round, reasons for lost connections, and the cost of each step. Messages appear as digests under a key that both ends
of their link share. All values in it are public, except those keys.

``SecaggTranscript``, the log of a `parties.federation.secagg_server.RoundServer`, has every message of one session, the
opened sum, the survivors and the reason for an abort. Messages appear as digests under the session's own digest, which
both ends know: their contents are encrypted, masked or random. The transcript has a sum only if the session has noise;
otherwise it has the sum's length alone. All values in it are public.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import LedgerEntry
from mechanisms.events import event_to_dict
from parties.config import CertificateFiles
from parties.federation.secagg_steps import SECAGG_SESSION, SECAGG_SUM, secagg_step_of
from parties.foundation.version import version
from parties.identity.tls import load_identity, signer
from parties.observability.events import StepTracer, no_tracing
from parties.report.model import ReportedOpening
from parties.storage.files import disk_errors
from protocols import fields
from protocols.digests import message_digest
from protocols.errors import CheckFailed
from protocols.transcript import RECORDS, Transcript, Value, read, schema
from secagg import SecAggServer
from secagg.noise import NoiseKind


@dataclass(slots=True)
class StepCost:
    """Costs of one step so far: frames' bytes by direction, messages, seconds."""

    sent: int = 0
    received: int = 0
    messages: int = 0
    seconds: float = 0.0


@dataclass(eq=False, slots=True)
class FederationTranscript:
    """Transcript of a federation's server. ``by_kind`` counts bytes by direction and kind, ``by_step`` costs by step.

    ``at`` is the current step with its round.
    """

    transcript: Transcript
    names: tuple[str, ...]
    naming: Callable[[bytes], str] = field(repr=False)
    """Function from a message to its step's name."""
    opened: list[ReportedOpening] = field(default_factory=list)
    by_kind: dict[str, Counter[str]] = field(
        default_factory=lambda: {"sent": Counter(), "received": Counter()}
    )
    by_step: dict[str, StepCost] = field(default_factory=dict)
    at: tuple[str, int] | None = None
    tracing: StepTracer = field(default=no_tracing, repr=False)
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
        naming: Callable[[bytes], str],
    ) -> "FederationTranscript":
        """Opens a transcript at ``path``, new or continued; ``spent`` is the ledger's total so far. Raises StoreError.

        ``opened`` includes the openings of earlier attempts.
        """
        with disk_errors(path):
            before = read(path).records if path.exists() else ()
            transcript = Transcript(path, sign=signer(files), header=header)
        opened = [
            _opening_from_record(record)
            for record in before
            if record and record["kind"] == "opened"
        ]
        return cls(transcript, names, naming, opened, _spent=spent)

    def message(
        self, *, sent: bool, client: int, round: int | None, data: bytes, key: bytes
    ) -> None:
        """See ``ClientMessageLog``."""
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
        """See ``ClientMessageLog``."""
        digest = hashlib.sha256(certificate).hexdigest()
        self.transcript.note(what, client=name, certificate=digest, reason=reason)

    def participation(
        self, client: int, round: int, *, certificate: bytes, reason: str = ""
    ) -> None:
        """Records that ``client`` takes part in ``round``, or, with a ``reason``, has dropped out of it."""
        self.transcript.client(
            client=self.names[client],
            digest=hashlib.sha256(certificate).hexdigest(),
            round=round,
            accepted=not reason,
            reason=reason,
        )

    def opened_value(self, round: int, step: str, what: str, *, count: int, value: bytes) -> None:
        """Records the opening of ``count`` values, packed as ``value``."""
        self.transcript.opened(step=step, round=round, what=what, count=count, value=value)
        self.opened.append(ReportedOpening(round, step, what, count))

    def opening(
        self, round: int, step: str, what: str, scaled: NDArray[np.int64], *, written: bool = True
    ) -> None:
        """Records the opening of a sum in ``step`` of ``round``: its numbers if ``written``, otherwise their count."""
        narrow = bool((np.abs(scaled) < 1 << 31).all())
        value = scaled.astype("<i4" if narrow else "<i8").tobytes() if written else b""
        self.opened_value(round, step, what, count=scaled.size, value=value)

    def charge(self, entry: LedgerEntry) -> None:
        """Records a charge; it is on disk before the ledger has it."""
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
        """Counts the bytes and seconds within the block as those of step ``name``."""
        before, started = self._costs, time.perf_counter()
        own = self._costs = StepCost()
        self.at = name, round
        try:
            with self.tracing(name, round, lambda: _cost_attributes(own)):
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


def _cost_attributes(cost: StepCost) -> Mapping[str, int]:
    return {
        "sent_bytes": cost.sent,
        "received_bytes": cost.received,
        "messages": cost.messages,
    }


def _opening_from_record(record: Mapping[str, Value]) -> ReportedOpening:
    number, count = record["round"], record["count"]
    if not (isinstance(number, int) and isinstance(count, int)):
        raise CheckFailed("an opening in the transcript has no round or no count")
    return ReportedOpening(number, str(record["step"]), str(record["what"]), count)


SECAGG_PROTOCOL = "secagg"
LEFT, ABORTED = "left", "aborted"
SECAGG_SCHEMA = schema(
    {
        "protocol": fields.text,
        "name": fields.text,
        "version": fields.text,
        "session": fields.text,
        "parameters": fields.hex_bytes,
        "parameters_sha256": fields.hex64,
        "clients": fields.texts,
    },
    {LEFT: {"client": fields.text, "reason": fields.text}, ABORTED: {"reason": fields.text}},
    # A session has no rounds, and its clients sign no digest of what they submit.
    {
        **RECORDS,
        "opened": {**RECORDS["opened"], "round": fields.optional_natural},
        "client": {**RECORDS["client"], "digest": fields.text},
    },
)
"""Records of a session's transcript."""


class SecaggTranscript:
    """A transcript at ``path`` for the session of ``server`` among ``names``; ``close`` seals it. Raises StoreError."""

    def __init__(
        self, path: Path, files: CertificateFiles, server: SecAggServer, names: Sequence[str]
    ) -> None:
        parameters = server.parameters
        header: dict[str, Value] = {
            "protocol": SECAGG_PROTOCOL,
            "name": load_identity(files).name,
            "version": version(),
            "session": parameters.session.hex(),
            "parameters": parameters.to_bytes().hex(),
            "parameters_sha256": parameters.digest.hex(),
            "clients": list(names),
        }
        with disk_errors(path):
            self._transcript = Transcript(path, sign=signer(files), header=header)
        self._key = parameters.digest
        self._names = tuple(names)
        self._label = 0

    def message(self, *, sent: bool, client: int, data: bytes) -> None:
        """Records one message to or from ``client``."""
        self._label += 1
        self._transcript.message(
            step=secagg_step_of(data),
            round=None,
            direction="sent" if sent else "received",
            peer=client,
            label=self._label,
            size=len(data),
            digest=message_digest(self._key, np.frombuffer(data, np.uint8)),
        )

    def left(self, client: int, reason: str) -> None:
        """Records that a client's connection has ended."""
        self._transcript.note(LEFT, client=self._names[client], reason=reason)

    def finished(self, server: SecAggServer) -> None:
        """Records the survivors and the sum."""
        for client, name in enumerate(self._names):
            there = client in server.survivors
            self._transcript.client(
                client=name,
                digest="",
                round=0,
                accepted=there,
                reason="" if there else "dropped out",
            )
        scaled = server.scaled_result
        noisy = server.parameters.noise.kind is not NoiseKind.NONE
        value = scaled.astype("<i8").tobytes() if noisy else b""
        self._transcript.opened(
            step=SECAGG_SESSION, round=None, what=SECAGG_SUM, count=scaled.size, value=value
        )

    def aborted(self, reason: str) -> None:
        """Records that there is no sum."""
        self._transcript.note(ABORTED, reason=reason)

    def close(self) -> None:
        """Seals and closes the transcript."""
        self._transcript.close()
