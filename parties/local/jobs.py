"""Jobs from the launcher to the processes of a trial's owners, and the owners' receipts.

The launcher writes ``OwnersJob`` or ``SilosJob``, and the processes read it. Nothing here is secret but the tables,
which a job names.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, Self

from parties.config import CertificateFiles
from parties.foundation.errors import StoreError
from parties.storage.files import write_json

CONCURRENT_OWNERS = 8
"""Maximum number of owners of one process at work at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticipantsJob:
    """Paths: the ``config``, and folders of ``certificates`` (NAME.crt and NAME.key) and the owners' own ``states``.

    ``receipts`` is a file to append to, ``budget`` the file that the owners charge, ``names`` (clients,) the owners.
    """

    config: str
    certificates: str
    states: str
    receipts: str
    budget: str
    names: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Writes the job for ``read``. Raises StoreError."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Returns the job of ``write``. Raises StoreError if it is missing or damaged."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**fields, "names": tuple(fields["names"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StoreError(path, f"is not a job for data owners: {error}") from error

    def files_of(self, name: str) -> CertificateFiles:
        """Returns the certificate files of the owner called ``name``."""
        folder = Path(self.certificates)
        return CertificateFiles(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersJob(ParticipantsJob):
    """``codes`` int32 (rows, columns) and ``owners`` int32 (rows,), an index into the names, are .npy files.

    ``capacity`` is each owner's declared number of rows; None: somewhat more than its rows
    (`parties.local.participants`).
    """

    codes: str
    owners: str
    capacity: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SilosJob(ParticipantsJob):
    """``tables`` is a folder of NAME.csv."""

    tables: str


class ReceiptDocument(Protocol):
    """An owner's receipt."""

    def to_dict(self) -> dict[str, object]:
        """Returns the receipt as a JSON object."""


def append_receipt(path: Path, receipt: ReceiptDocument) -> None:
    """Appends one line for ``read_receipts``."""
    with path.open("ab") as file:
        file.write(json.dumps(receipt.to_dict()).encode() + b"\n")


def read_receipts(path: Path) -> dict[str, dict[str, object]]:
    """Returns receipts by client; ignores a torn last line, which a crash leaves."""
    receipts: dict[str, dict[str, object]] = {}
    if path.exists():
        for line in path.read_bytes().split(b"\n")[:-1]:
            try:
                receipt = json.loads(line)
            except ValueError:
                continue
            receipts[str(receipt["client"])] = receipt
    return receipts
