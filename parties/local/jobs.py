"""What the launcher tells the processes that play a trial's owners, and what they leave for it.

Provides ``OwnersJob`` and ``SilosJob``, which the launcher writes and the processes read; ``append_receipt`` and
``read_receipts``. Nothing here is secret but the tables, which the job names.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, Self

from parties.config import CertificateFiles
from parties.foundation.errors import StoreError
from parties.storage.files import write_json

CONCURRENT_OWNERS = 8
"""How many owners of one process are at work at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticipantsJob:
    """Paths: the ``config``, and folders of ``certificates`` (NAME.crt and NAME.key) and the owners' own ``states``.

    ``receipts`` is appended to, ``budget`` is the file that they charge, ``names`` (clients,) are the owners.
    """

    config: str
    certificates: str
    states: str
    receipts: str
    budget: str
    names: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Write the job for ``read``. Raises StoreError."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The job that ``write`` wrote. Raises StoreError where it is missing or damaged."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**fields, "names": tuple(fields["names"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StoreError(path, f"is not a job for data owners: {error}") from error

    def files_of(self, name: str) -> CertificateFiles:
        """The certificate files of the owner called ``name``."""
        folder = Path(self.certificates)
        return CertificateFiles(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersJob(ParticipantsJob):
    """``codes`` int32 (rows, columns) and ``owners`` int32 (rows,), an index into the names, are .npy files.

    ``capacity`` is what each declares; None: some more rows than it has (`parties.local.participants`).
    """

    codes: str
    owners: str
    capacity: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SilosJob(ParticipantsJob):
    """``tables`` is a folder of NAME.csv."""

    tables: str


class ReceiptDocument(Protocol):
    """What an owner is left with."""

    def to_dict(self) -> dict[str, object]:
        """For programs."""


def append_receipt(path: Path, receipt: ReceiptDocument) -> None:
    """One more line for ``read_receipts``."""
    with path.open("ab") as file:
        file.write(json.dumps(receipt.to_dict()).encode() + b"\n")


def read_receipts(path: Path) -> dict[str, dict[str, object]]:
    """Receipts by client; a torn last line, which a crash leaves, is not one."""
    receipts: dict[str, dict[str, object]] = {}
    if path.exists():
        for line in path.read_bytes().split(b"\n")[:-1]:
            try:
                receipt = json.loads(line)
            except ValueError:
                continue
            receipts[str(receipt["client"])] = receipt
    return receipts
