"""A compute server's folder during one attempt: its store, its transcript, and the files beside them.

``ServerFolder`` keeps the transcript up to date with the ledger, ``StepAccounts`` with the costs of steps.
``open_transcript`` begins or continues the transcript. Secret: the store's shares. Public: transcript and result.
"""

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mechanisms.accounting import LedgerEntry
from mechanisms.events import event_to_dict
from parties.config import CertificateFiles, Config
from parties.foundation.errors import StoreIncompatible
from parties.foundation.version import version
from parties.identity.tls import signer
from parties.mpc.agreement import RunIdentity
from parties.mpc.outputs import CostsFile
from parties.mpc.replay.effects import Effects
from parties.mpc.storage.store import Store
from parties.mpc.transcript_schema import PROTOCOL
from parties.storage.files import disk_errors, write_json
from parties.storage.privacy_ledger import DurableLedger
from protocols.transcript import Transcript, Value

_TRANSCRIPT, _RESULT = "transcript.jsonl", "result.json"


@dataclass(frozen=True, slots=True, eq=False)
class ServerFolder:
    """Open folder ``directory`` of a compute server, with its ``store`` and its ``transcript``."""

    directory: Path
    store: Store
    transcript: Transcript

    @property
    def charges(self) -> list[LedgerEntry]:
        """Charges in this server's ledger. Raises StoreError."""
        return DurableLedger(self.store).entries

    def record_ledger(self) -> None:
        """Brings the transcript up to the ledger: a crash may have come between both, and charges were adopted."""
        records = list(_ledger_records(self.directory / _TRANSCRIPT))
        written, costs = {opening for opening, _ in records}, [cost for _, cost in records]
        for entry in self.charges:
            if entry.opening in written:
                continue
            costs.append(entry.rho)
            self.transcript.ledger(
                round=entry.round,
                step=entry.step,
                event=event_to_dict(entry.event),
                rho=entry.rho,
                spent=math.fsum(costs),
                opening=entry.opening,
            )

    def write_result(self, document: Mapping[str, object]) -> None:
        """Writes ``result.json``; durable on return. Raises OSError."""
        write_json(self.directory / _RESULT, document, durable=True)


def _ledger_records(path: Path) -> Iterator[tuple[str, float]]:
    """Opening and cost of each charge in a transcript."""
    with path.open("rb") as lines:
        for line in lines:
            if line.startswith(b'{"kind":"ledger"'):
                record = json.loads(line)
                yield record["opening"], record["rho"]


def _charged_wires(path: Path) -> set[int]:
    """Returns the versions of messages of the attempts that have charged something."""
    found, wire = set[int](), 0
    if path.exists():
        with path.open("rb") as lines:
            for line in lines:
                if line.startswith((b'{"kind":"header"', b'{"kind":"resumed"')):
                    # The last line may be half of one.
                    with contextlib.suppress(ValueError, KeyError):
                        wire = int(json.loads(line)["wire"])
                elif line.startswith(b'{"kind":"ledger"'):
                    found.add(wire)
    return found


class StepAccounts:
    """Costs of steps, written into the transcript as the steps end."""

    def __init__(self, transcript: Transcript, costs: CostsFile) -> None:
        self.costs = costs
        self._transcript = transcript
        self._written = 0

    def write(self) -> None:
        """Writes the steps that have ended since the last call; no step may be under way."""
        for step in self.costs.steps[self._written :]:
            self._transcript.step(
                step=step.step,
                round=step.round,
                rounds=step.rounds,
                sent=step.sent_bytes,
                received=step.received_bytes,
                messages=step.messages,
                seconds=step.seconds,
            )
        self._written = len(self.costs.steps)


def open_transcript(
    directory: Path,
    files: CertificateFiles,
    identity: RunIdentity,
    *,
    config: Config,
    pid: int,
    effects: Effects,
) -> Transcript:
    """This server's transcript, begun or continued. Raises StoreError, CertificateError.

    StoreIncompatible if charges of messages of another version are in it: an audit reads one version's.
    """
    agreed: dict[str, Value] = json.loads(json.dumps(config.agreed()))
    header: dict[str, Value] = {
        "protocol": PROTOCOL,
        "run": identity.run,
        "party": pid,
        "name": config.require_parties()[pid].name,
        "config": agreed,
        "config_sha256": identity.config,
        "workload_sha256": identity.workload,
        "version": version(),
        "wire": identity.wire,
        "plan": identity.plan,
    }
    path = directory / _TRANSCRIPT
    with disk_errors(path):
        charged = _charged_wires(path) - {identity.wire}
    if charged:
        raise StoreIncompatible(
            path,
            f"has charges of messages of version {max(charged)}, and this program has {identity.wire}; expected that "
            "version until the study's end: install it again, or cancel the study",
        )
    with disk_errors(path):
        return effects.transcript(path, sign=signer(files), header=header)
