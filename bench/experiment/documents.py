"""A JSON file of records in a folder, and the page made of them beside it. All values here are public."""

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from bench.experiment.appendix import parted
from bench.experiment.circumstances import made_by
from bench.fetch import DatasetError
from parties.storage.files import disk_errors, write_atomic

T = TypeVar("T")
Row = Mapping[str, Any]
"""A record as JSON has it."""


def read_records(
    path: Path, command: str, parse: Callable[[Any], T], *, field: str | None = None
) -> list[T]:
    """Returns the records that ``command`` wrote to ``path``, in the list called ``field``; none without the file.

    Raises DatasetError for another file.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return [parse(row) for row in (document if field is None else document[field])]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f"{path}: cannot be used as a result of `{command}`: {error}; expected another folder"
        ) from error


def write_json(path: Path, document: object) -> None:
    """Writes a document whole; its folder is created if missing. Raises StoreError."""
    publish(path.parent, {path.name: json.dumps(document, indent=1) + "\n"})


def publish(folder: Path, texts: Mapping[str, str]) -> None:
    """Writes ``texts`` by the names of their files; the folder is created if missing. Raises StoreError."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomic(folder / name, text)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Locks the folder's records for this process, since commands may run side by side; it is created if missing."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def indented(field: str, rows: Sequence[Row]) -> str:
    """Returns a document of records with a value a line."""
    return json.dumps({field: rows}, indent=1) + "\n"


def record_a_line(field: str, rows: Sequence[Row]) -> str:
    """Returns a document of records with a record a line."""
    lines = ",\n".join(json.dumps(row, sort_keys=True) for row in rows)
    return f'{{"{field}": [\n{lines}\n]}}\n'


class Document(Generic[T]):
    """The records of ``command`` in the file ``data`` of a folder, by ``key``, and their ``page``.

    The page's name goes with the function that makes it of all records; ``front`` are the titles of its sections that
    are not for its appendix (`bench.experiment.appendix.parted`). ``order`` None leaves records in the order in
    which they came. ``field`` is the name of their list in the file.
    """

    def __init__(
        self,
        data: str,
        command: str,
        *,
        parse: Callable[[Any], T],
        to_row: Callable[[T], Row],
        key: Callable[[T], object],
        order: Callable[[T], Any] | None = None,
        page: tuple[str, Callable[[Sequence[T]], str]] | None = None,
        front: Sequence[str] = (),
        field: str = "records",
        form: Callable[[str, Sequence[Row]], str] = indented,
    ) -> None:
        self.data = data
        self._command, self._field = command, field
        self._page, self._front = page, front
        self._parse, self._to_row, self._form = parse, to_row, form
        self._key, self._order = key, order

    def read(self, folder: Path) -> list[T]:
        """Returns the records in ``folder``; none without the file. Raises DatasetError for another file."""
        return read_records(folder / self.data, self._command, self._parse, field=self._field)

    def add(self, folder: Path, records: Iterable[T]) -> None:
        """Writes the files with ``records`` in place of older ones of their keys; others stay.

        The folder is created if missing, and locked. Raises StoreError, and DatasetError for another file.
        """
        with alone(folder):
            kept = {self._key(record): record for record in (*self.read(folder), *records)}
            ordered = list(kept.values())
            if self._order is not None:
                ordered.sort(key=self._order)
            texts = {self.data: self._form(self._field, [self._to_row(one) for one in ordered])}
            publish(folder, texts | self.pages(ordered))

    def pages(self, records: Sequence[T]) -> dict[str, str]:
        """Returns the page of ``records`` and its appendix, by the names of their files."""
        if self._page is None:
            return {}
        name, markdown = self._page
        return parted(name, markdown(records), self._front)


def command_records(
    stem: str,
    command: str,
    markdown: Callable[[Sequence[Row]], str],
    *,
    order: Callable[[Row], Any],
    front: Sequence[str] = (),
    field: str = "records",
) -> Document[Row]:
    """Returns the document ``stem``.json of records with a ``command`` each, and their page: a command has one."""
    return Document(
        f"{stem}.json",
        command,
        parse=lambda row: row,
        to_row=lambda row: row,
        key=lambda row: row["command"],
        order=order,
        page=(f"{stem}.md", markdown),
        front=front,
        field=field,
    )


def by_kind(row: Row) -> tuple[str, str]:
    """Returns the order of records by kind and command."""
    return row["kind"], row["command"]


def sections(
    records: Sequence[Row], kinds: Mapping[str, tuple[str, Callable[[Row], str]]]
) -> Iterator[str]:
    """Yields a page's parts: of each kind its head, and the text of each record's ``result`` below its command."""
    for kind, (head, text) in kinds.items():
        if mine := [record for record in records if record["kind"] == kind]:
            yield head
            yield from (f"{made_by(record)}\n\n{text(record['result'])}\n" for record in mine)
