"""A JSON file of records in a folder, and the page made of them beside it."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.experiment.circumstances import made_by
from parties.storage.files import write_atomic

Row = Mapping[str, Any]
"""A record as JSON has it."""


def _command(record: Row) -> object:
    return record["command"]


def _kind_and_command(record: Row) -> object:
    return record["kind"], record["command"]


class Document:
    """The files ``data`` and ``page`` of a folder: records by ``key``, in the order of ``order``.

    The page is ``markdown`` of all records. ``field`` is the name of their list in the file.
    """

    def __init__(
        self,
        data: str,
        page: str,
        markdown: Callable[[Sequence[Row]], str],
        *,
        key: Callable[[Row], object] = _command,
        order: Callable[[Row], Any] = _kind_and_command,
        field: str = "records",
    ) -> None:
        self._data, self._page, self._field = data, page, field
        self._markdown, self._key, self._order = markdown, key, order

    def read(self, folder: Path) -> list[Row]:
        """Returns the records in ``folder``; none without the file."""
        path = folder / self._data
        if not path.exists():
            return []
        records: list[Row] = json.loads(path.read_text(encoding="utf-8"))[self._field]
        return records

    def add(self, folder: Path, records: Iterable[Row]) -> None:
        """Writes both files with ``records`` in place of older ones of their keys; others stay.

        The folder is created if missing. Raises StoreError.
        """
        kept = {self._key(record): record for record in (*self.read(folder), *records)}
        ordered = sorted(kept.values(), key=self._order)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / self._data, json.dumps({self._field: ordered}, indent=1) + "\n")
        write_atomic(folder / self._page, self._markdown(ordered))


def sections(
    records: Sequence[Row], kinds: Mapping[str, tuple[str, Callable[[Row], str]]]
) -> Iterator[str]:
    """Yields a page's parts: of each kind its head, and the text of each record's ``result`` below its command."""
    for kind, (head, text) in kinds.items():
        if mine := [record for record in records if record["kind"] == kind]:
            yield head
            yield from (f"{made_by(record)}\n\n{text(record['result'])}\n" for record in mine)
