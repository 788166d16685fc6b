"""Digests of a run's published results (synthetic table, model, number of rows), and the files of an earlier model.

Servers record ``ResultDigests`` in their transcripts and exchange them. All values here are public.
"""

import hashlib
import struct
from dataclasses import asdict, dataclass
from pathlib import Path

from parties.config.refresh import START_FOLDER, EarlierModel, files_digest
from parties.storage.files import disk_errors, write_atomic
from protocols import fields
from protocols.fields import Fields

TABLE_FILE, MODEL_FOLDER = "synthetic.csv", "model"
"""Name of the table's file and of the model's folder, in the folder of their maker and in a run's folder."""
NOTE = "published"
FIELDS: Fields = {"table": fields.hex64, "model": fields.hex64, "rows": fields.natural}
"""Fields of the transcripts' note ``NOTE``, those of ``ResultDigests``."""
_ENCODING = struct.Struct("<32s32sQ")


@dataclass(frozen=True, slots=True)
class ResultDigests:
    """``table``: hex SHA-256 of synthetic.csv with ``rows`` rows; ``model``: ``model_digest``, hex."""

    table: str
    model: str
    rows: int

    def to_bytes(self) -> bytes:
        """Returns the encoding for a peer, 72 bytes."""
        return _ENCODING.pack(bytes.fromhex(self.table), bytes.fromhex(self.model), self.rows)

    @classmethod
    def from_bytes(cls, data: bytes) -> "ResultDigests":
        """Inverse of ``to_bytes``. Raises ValueError for another size."""
        if len(data) != _ENCODING.size:
            raise ValueError(f"{len(data)} bytes say what is published, not {_ENCODING.size}")
        table, model, rows = _ENCODING.unpack(data)
        return cls(table.hex(), model.hex(), rows)

    def to_dict(self) -> dict[str, str | int]:
        """Returns the fields of a note."""
        return asdict(self)


ENCODED_SIZE = _ENCODING.size


def result_digests(directory: Path, rows: int) -> ResultDigests:
    """Returns the digests of the results in ``directory``. Raises StoreError."""
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
    return files_digest({name: table_digest(folder / name) for name in names})


def write_earlier(earlier: EarlierModel, folder: Path) -> None:
    """Writes the model beside a configuration in ``folder``, where ``earlier_model`` finds it. Raises StoreError."""
    (folder / START_FOLDER).mkdir(exist_ok=True)
    for name, data in earlier.files.items():
        write_atomic(folder / START_FOLDER / name, data)
