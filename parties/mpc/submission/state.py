"""State file of a submission, beside the table: all that sending it again needs, and its receipts.

``SubmissionState`` is an incomplete submission. Secret: seeds, the common part's key, and the digest of the shared
values; the file has mode 0600 and belongs beside the table. Boxes are stored as they were sealed, since sealing the
same content twice makes two different boxes, and the upload's digest covers them. Public: the receipts.

The file of a submission that all three servers have, or that was withdrawn, has no seeds, so that it cannot be sent
again (``mark_complete``, ``mark_withdrawn``). Servers that began anew would take the same submission for a second
release, with fresh noise, that no one has paid for; so a repeated command shows the receipt, and sends nothing. Secret:
the file, because of its digest of the shared values.
"""

import base64
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from parties.config import Config
from parties.crypto.hpke import KEY_BYTES
from parties.foundation.errors import StoreError, SubmitError
from parties.foundation.untrusted_text import parse_json
from parties.mpc.inputs.own import OwnerInput
from parties.mpc.submission.messages import MAX_VERSION, Submission
from parties.mpc.submission.sealed_upload import ServerReceipt, Upload
from parties.storage.files import disk_errors, write_json
from protocols.upload import UploadSeeds


@dataclass(frozen=True, slots=True)
class SubmissionState:
    """One submission of ``client``: its randomness, the boxes sealed with it, and its ``receipts``.

    ``boxes`` are base64, ``common`` is the hex SHA-256 of the encrypted common part; both are empty before sealing.
    ``rows`` is the table's number of rows, which is never sent.
    """

    config: str
    client: str
    counts: str = field(repr=False)
    form: str
    capacity: int
    first_round: int | None
    nonce: str
    s0: str = field(repr=False)
    s1: str = field(repr=False)
    key: str = field(repr=False)
    boxes: tuple[str, ...] = field(default=(), repr=False)
    common: str = field(default="", repr=False)
    receipts: tuple[dict[str, object], ...] = ()
    rows: int | None = field(default=None, repr=False)
    version: int = 1

    @classmethod
    def draw(
        cls,
        config: Config,
        own: OwnerInput,
        client: str,
        first_round: int | None,
        version: int = 1,
    ) -> Self:
        """Draws fresh randomness for a first try that begins in ``first_round`` (None: never)."""
        if first_round is not None and not 1 <= first_round <= config.run.rounds:
            raise SubmitError(
                f"round {first_round} does not exist; expected 1 to {config.run.rounds}"
            )
        if version > MAX_VERSION:
            raise SubmitError(
                f"{client} has submitted {MAX_VERSION} times in this run, which takes no more of it; what it sent last "
                "stands"
            )
        seeds = UploadSeeds.draw()
        return cls(
            config=config.digest(),
            client=client,
            counts=values_digest(own.values),
            form=own.form.name,
            capacity=own.capacity,
            first_round=first_round,
            nonce=secrets.token_hex(16),
            s0=seeds.s0.hex(),
            s1=seeds.s1.hex(),
            key=secrets.token_hex(KEY_BYTES),
            rows=own.rows,
            version=version,
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a state file. Raises StoreError if it cannot be read, or is none."""
        try:
            with disk_errors(path, "read"):
                text = path.read_text(encoding="utf-8")
            known = parse_json(text)
            state = cls(**known)
            state = replace(state, boxes=tuple(state.boxes), receipts=tuple(state.receipts))
            state.check()
        except (ValueError, TypeError) as error:
            raise StoreError(
                path, "is not the state of a submission; expected another file name"
            ) from error
        return state

    def check(self) -> None:
        """Raises ValueError or TypeError if the state is malformed."""
        if len(bytes.fromhex(self.key)) != KEY_BYTES or len(self.boxes) not in (0, 3):
            raise ValueError("a key or boxes of other sizes")
        _ = self.seeds, self.sealed_boxes, self.known_receipts

    def write(self, path: Path) -> None:
        """Writes the file, durably before anything is sent, and never readable by others. Raises StoreError."""
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(self), durable=True, secret=True)

    @property
    def seeds(self) -> UploadSeeds:
        """Seeds of components 0 and 1."""
        return UploadSeeds(bytes.fromhex(self.s0), bytes.fromhex(self.s1))

    @property
    def sealed_boxes(self) -> tuple[bytes, ...]:
        """The three boxes; none before sealing."""
        return tuple(base64.b64decode(box, validate=True) for box in self.boxes)

    @property
    def known_receipts(self) -> list[ServerReceipt]:
        """Receipts so far, not yet verified."""
        return [ServerReceipt.from_dict(item) for item in self.receipts]

    def with_sealed(self, boxes: Sequence[bytes], common: bytes) -> Self:
        """State with the sealed boxes."""
        encoded = tuple(base64.b64encode(box).decode("ascii") for box in boxes)
        return replace(self, boxes=encoded, common=hashlib.sha256(common).hexdigest())

    def upload_of(self, submission: Submission) -> Upload:
        """Sealed upload, for its participant's signature. Raises ValueError before sealing."""
        first, second, third = (hashlib.sha256(box).hexdigest() for box in self.sealed_boxes)
        return Upload(submission, (first, second, third), self.common)

    def with_receipts(self, receipts: Sequence[ServerReceipt]) -> Self:
        """State with the receipts of servers."""
        return replace(self, receipts=tuple(receipt.to_dict() for receipt in receipts))

    def fits(
        self,
        config: Config,
        own: OwnerInput,
        client: str,
        first_round: int | None,
    ) -> bool:
        """True if a new try is of this submission: seeds must never serve two inputs."""
        mine = (self.config, self.client, self.counts, self.form, self.capacity)
        again = (config.digest(), client, values_digest(own.values), own.form.name, own.capacity)
        same = mine == again
        return same and first_round in (None, self.first_round)


def values_digest(values: NDArray[np.unsignedinteger]) -> str:
    """Hex SHA-256 of the shared values. Secret: guesses can be tried on it."""
    wire = values.dtype.newbyteorder("<")
    return hashlib.sha256(values.astype(wire, copy=False).tobytes()).hexdigest()


_COMPLETE, _WITHDRAWN = "complete", "withdrawn"


@dataclass(frozen=True, slots=True)
class SubmissionKey:
    """Identity of a file's submission: the digests of ``config`` and of the shared values, and the ``client``."""

    config: str
    client: str
    counts: str = field(repr=False)


def mark_complete(path: Path, key: SubmissionKey, receipt: Mapping[str, object]) -> None:
    """Replaces the state by ``receipt``, without the means to send again; durable on return. Raises StoreError."""
    who = {"config": key.config, "client": key.client, "counts": key.counts}
    write_json(path, {_COMPLETE: receipt, **who}, durable=True, secret=True)


def completed_receipt(path: Path, key: SubmissionKey) -> Mapping[str, Any] | None:
    """Receipt of a complete submission, if ``path`` has one. Raises StoreError if it is of another submission."""
    document = _read_state(path, _COMPLETE)
    if document is None:
        return None
    if SubmissionKey(*(str(document.get(name)) for name in ("config", "client", "counts"))) != key:
        raise StoreError(
            path,
            "is of another submission, which all three servers have; expected the client, config and table it was "
            "made with, or --replace, to send this table in its place; or another file",
        )
    receipt: Mapping[str, Any] = document[_COMPLETE]
    return receipt


def completed_receipt_of(path: Path, config: str, client: str) -> Mapping[str, Any] | None:
    """As ``completed_receipt``, by the configuration's digest and the client, for any shared values."""
    document = _read_state(path, _COMPLETE)
    counts = "" if document is None else str(document.get("counts"))
    return completed_receipt(path, SubmissionKey(config, client, counts))


def counts_digest_in(path: Path) -> str:
    """Digest of the shared values of a complete submission; "" if the file has none."""
    document = _read_state(path, _COMPLETE)
    return "" if document is None else str(document.get("counts"))


@dataclass(frozen=True, slots=True)
class WithdrawnSubmissions:
    """Withdrawal of all of ``client`` up to ``version`` in the run of ``config``; ``submissions`` are their digests.

    ``proof`` has the servers' signatures (`parties.mpc.submission.withdrawal_client`).
    """

    config: str
    client: str
    version: int
    submissions: tuple[str, ...]
    proof: str


def mark_withdrawn(path: Path, withdrawn: WithdrawnSubmissions) -> None:
    """Replaces the state by the withdrawal; durable on return. Raises StoreError."""
    write_json(path, {_WITHDRAWN: asdict(withdrawn)}, durable=True, secret=True)


def load_withdrawn(path: Path, config: str, client: str) -> WithdrawnSubmissions | None:
    """Last withdrawal, if ``path`` has one. Raises StoreError if it is of another run or client."""
    document = _read_state(path, _WITHDRAWN)
    if document is None:
        return None
    match document[_WITHDRAWN]:
        case {
            "config": str() as its_config,
            "client": str() as its_client,
            "version": int() as version,
            "submissions": list() as submissions,
            "proof": str() as proof,
        }:
            found = WithdrawnSubmissions(its_config, its_client, version, tuple(submissions), proof)
        case _:
            raise StoreError(path, "is not the state of a submission; expected another file name")
    if (found.config, found.client) != (config, client):
        raise StoreError(path, "is of another run or client; expected another file")
    return found


def _read_state(path: Path, kind: str) -> Mapping[str, Any] | None:
    """Document of a complete, or withdrawn, submission; None for any other file."""
    if not path.exists():
        return None
    try:
        with disk_errors(path, "read"):
            document = parse_json(path.read_text(encoding="utf-8"))
    except ValueError:
        return None  # Reading it as an incomplete submission raises the error.
    whole = isinstance(document, dict) and isinstance(document.get(kind), dict)
    return document if whole else None
