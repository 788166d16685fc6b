"""What a run publishes, by its digests: the synthetic table and the model, and how many rows the table has.

Provides ``ResultDigests``, which servers write down (and on the wire tell one another), and ``result_digests``, that of
a folder. Public: everything.
"""

import hashlib
import struct
from dataclasses import asdict, dataclass
from pathlib import Path

from parties.storage.files import disk_errors
from protocols import fields
from protocols.fields import Fields

TABLE_FILE, MODEL_FOLDER = "synthetic.csv", "model"
"""The table's file and the model's folder, in the folder of whoever made them and in a run's."""
NOTE = "published"
FIELDS: Fields = {"table": fields.hex64, "model": fields.hex64, "rows": fields.natural}
"""What transcripts say of it: the note, and its fields, those of ``ResultDigests``."""
_LABEL = b"syncret model 1\n"
_ENCODING = struct.Struct("<32s32sQ")


@dataclass(frozen=True, slots=True)
class ResultDigests:
    """``table``: hex SHA-256 of synthetic.csv, which has ``rows`` rows; ``model``: ``model_digest``, hex."""

    table: str
    model: str
    rows: int

    def to_bytes(self) -> bytes:
        """For a peer: 72 bytes."""
        return _ENCODING.pack(bytes.fromhex(self.table), bytes.fromhex(self.model), self.rows)

    @classmethod
    def from_bytes(cls, data: bytes) -> "ResultDigests":
        """The inverse of ``to_bytes``. Raises ValueError for another size."""
        if len(data) != _ENCODING.size:
            raise ValueError(f"{len(data)} bytes say what is published, not {_ENCODING.size}")
        table, model, rows = _ENCODING.unpack(data)
        return cls(table.hex(), model.hex(), rows)

    def to_dict(self) -> dict[str, str | int]:
        """The fields of a note."""
        return asdict(self)


ENCODED_SIZE = _ENCODING.size


def result_digests(directory: Path, rows: int) -> ResultDigests:
    """What is in ``directory``. Raises StoreError."""
    return ResultDigests(
        table_digest(directory / TABLE_FILE), model_digest(directory / MODEL_FOLDER), rows
    )


def table_digest(path: Path) -> str:
    """Hex SHA-256 of a table's bytes. Raises StoreError."""
    with disk_errors(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_digest(folder: Path) -> str:
    """Hex SHA-256 over the names and digests of all files in a model's folder, by name. Raises StoreError."""
    with disk_errors(folder, "read"):
        names = sorted(
            path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
        )
    lines = (f"{table_digest(folder / name)}  {name}\n".encode() for name in names)
    return hashlib.sha256(_LABEL + b"".join(lines)).hexdigest()
