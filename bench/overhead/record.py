"""Results of `syncret bench overhead` with the command that made each, kept in one file.

Provides ``Record`` and ``Records``. Public. The file is written whole after every record, so that an interrupted sweep
can be taken up: what is there is not measured again.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.fetch import DatasetError
from parties.errors import StoreError
from parties.files import disk_errors, write_whole


@dataclass(frozen=True, slots=True)
class Record:
    """``document`` is what ``command`` prints with --json; the others are its circumstances."""

    command: str
    kind: str
    document: dict[str, object]
    commit: str
    date: str
    machine: dict[str, object]


class Records:
    """The records of ``path`` by command; a missing file has none. Raises DatasetError on a file of something else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: dict[str, Record] = {}
        if path.exists():
            try:
                items = json.loads(path.read_text(encoding="utf-8"))["records"]
                self._records = {item["command"]: Record(**item) for item in items}
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise DatasetError(
                    f"{path}: is not a result of `syncret bench overhead`: {error}; expected another folder"
                ) from error

    def __contains__(self, command: str) -> bool:
        return command in self._records

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def of(self, kind: str) -> list[Record]:
        """Those of one kind, in the order they were made."""
        return [record for record in self if record.kind == kind]

    def add(self, record: Record) -> None:
        """Keep a record in place of an older one of its command. Raises DatasetError where it cannot be written."""
        self._records[record.command] = record
        text = json.dumps({"records": [asdict(item) for item in self]}, indent=1) + "\n"
        try:
            with disk_errors(self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, text)
        except StoreError as error:
            raise DatasetError(str(error)) from error
