"""What an owner needs to send the same submission again, and the receipts it has for it: a file beside its table.

Provides ``State``. Secret: seeds, the common part's key, and the digest of what is shared; the file has mode 0600 and
belongs where the table is. Boxes are in it as they were sealed, since sealing the same twice makes two different boxes,
and an upload is what its digest says. Public: the receipts.
"""

import base64
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from parties.config import Config
from parties.distaim.inputs.own import OwnInput
from parties.distaim.receipts import Receipt
from parties.distaim.sealed import Upload
from parties.distaim.submission import MAX_VERSION, Submission
from parties.errors import StoreError, SubmitError
from parties.files import disk_errors, write_json
from parties.sealing import KEY_BYTES
from parties.texts import json_of
from protocols.upload import UploadSeeds


@dataclass(frozen=True, slots=True)
class State:
    """One submission of ``client``: its randomness, what was sealed with it, and its ``receipts``.

    ``boxes`` are base64, ``common`` is the hex SHA-256 of the encrypted common part; both are empty before sealing.
    ``rows`` are those of the table, which are told to nobody.
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
        own: OwnInput,
        client: str,
        first_round: int | None,
        version: int = 1,
    ) -> Self:
        """Fresh randomness for a first try of what begins in ``first_round`` (None: never)."""
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
        """From its file. Raises StoreError where it cannot be read, or is none."""
        try:
            with disk_errors(path, "read"):
                text = path.read_text(encoding="utf-8")
            known = json_of(text)
            state = cls(**known)
            state = replace(state, boxes=tuple(state.boxes), receipts=tuple(state.receipts))
            state.check()
        except (ValueError, TypeError) as error:
            raise StoreError(
                path, "is not the state of a submission; expected another file name"
            ) from error
        return state

    def check(self) -> None:
        """Raises ValueError or TypeError where it is none."""
        if len(bytes.fromhex(self.key)) != KEY_BYTES or len(self.boxes) not in (0, 3):
            raise ValueError("a key or boxes of other sizes")
        _ = self.seeds, self.sealed_boxes, self.known_receipts

    def write(self, path: Path) -> None:
        """Durable before anything is sent, and readable by nobody else from the start. Raises StoreError."""
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(self), durable=True, secret=True)

    @property
    def seeds(self) -> UploadSeeds:
        """The seeds of components 0 and 1."""
        return UploadSeeds(bytes.fromhex(self.s0), bytes.fromhex(self.s1))

    @property
    def sealed_boxes(self) -> tuple[bytes, ...]:
        """The three boxes; none before they are sealed."""
        return tuple(base64.b64decode(box, validate=True) for box in self.boxes)

    @property
    def known_receipts(self) -> list[Receipt]:
        """The receipts so far; they have still to be checked."""
        return [Receipt.from_dict(item) for item in self.receipts]

    def with_sealed(self, boxes: Sequence[bytes], common: bytes) -> Self:
        """Once all is sealed."""
        encoded = tuple(base64.b64encode(box).decode("ascii") for box in boxes)
        return replace(self, boxes=encoded, common=hashlib.sha256(common).hexdigest())

    def upload_of(self, submission: Submission) -> Upload:
        """What was sealed, as its owner signs it. Raises ValueError before that."""
        first, second, third = (hashlib.sha256(box).hexdigest() for box in self.sealed_boxes)
        return Upload(submission, (first, second, third), self.common)

    def with_receipts(self, receipts: Sequence[Receipt]) -> Self:
        """Once servers have said that they have it."""
        return replace(self, receipts=tuple(receipt.to_dict() for receipt in receipts))

    def fits(
        self,
        config: Config,
        own: OwnInput,
        client: str,
        first_round: int | None,
    ) -> bool:
        """Whether a new try is one of this submission: seeds may never serve two inputs."""
        mine = (self.config, self.client, self.counts, self.form, self.capacity)
        again = (config.digest(), client, values_digest(own.values), own.form.name, own.capacity)
        same = mine == again
        return same and first_round in (None, self.first_round)


def values_digest(values: NDArray[np.unsignedinteger]) -> str:
    """Hex SHA-256 of what is shared. Secret: guesses can be tried on it."""
    wire = values.dtype.newbyteorder("<")
    return hashlib.sha256(values.astype(wire, copy=False).tobytes()).hexdigest()
