"""What the launcher tells the processes that play a trial's owners, and what they leave for it.

Provides ``OwnersJob``, which the launcher writes and the processes read, and ``read_receipts``. Nothing here is secret
but the tables, which the job names.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from parties.errors import StoreError
from parties.files import write_json

CONCURRENT = 8
"""How many owners of one process are at work at once."""


@dataclass(frozen=True, slots=True)
class OwnersJob:
    """Paths: the ``config``, ``codes`` int32 (rows, columns) and ``owners`` int32 (rows,) as .npy, and three folders.

    ``certificates`` holds NAME.crt and NAME.key, ``states`` the owners' submission states; ``receipts`` is appended to.
    ``budget`` is the file that they charge.
    ``names`` (clients,) are the owners' names, by the index that ``owners`` uses. ``capacity`` is what each declares;
    None: some more rows than it has (`parties.trial.owners`).
    """

    config: str
    codes: str
    owners: str
    certificates: str
    states: str
    receipts: str
    budget: str
    names: tuple[str, ...]
    capacity: int | None = None

    def write(self, path: Path) -> None:
        """Write the job for ``read``. Raises StoreError."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> "OwnersJob":
        """The job that ``write`` wrote. Raises StoreError where it is missing or damaged."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**fields, "names": tuple(fields["names"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StoreError(path, f"is not a job for data owners: {error}") from error


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
