"""Finished runs in a JSON-lines file, to which more can be added at any time.

Lines are appended in one write when runs are done; a torn last line, as a kill leaves, is skipped, so that its run is
done again. All values here are public.
"""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from bench.fetch import DatasetError


class Lines:
    """The file at `path`, which need not exist, written by `command`; its folder is created."""

    def __init__(self, path: Path, command: str) -> None:
        self.path = path
        self._command = command

    def read(self, take: Callable[[Any], None]) -> None:
        """Passes every line to `take`. Raises DatasetError if the file cannot be read, or `take` cannot use a line."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise DatasetError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        for number, text in enumerate(data.split(b"\n"), start=1):
            if not text:
                continue
            try:
                line = json.loads(text)
            except ValueError:
                # A line cut off by a kill: no part of a line is JSON. That run is done again.
                continue
            try:
                take(line)
            except (DatasetError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise DatasetError(
                    f"{self.path}, line {number}: is not a result of `{self._command}`; name another file"
                ) from error

    def append(self, lines: Iterable[object]) -> None:
        """Appends lines durably. Raises DatasetError if the file cannot be written."""
        texts = [json.dumps(line, sort_keys=True, separators=(",", ":")) for line in lines]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as file:
                # A newline ends the torn last line that a kill left, so that it does not swallow the next one.
                torn = file.tell() > 0 and _last_byte(file) != b"\n"
                file.write(b"\n" * torn + "".join(f"{text}\n" for text in texts).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DatasetError(
                f"{self.path}: cannot be written: {error.strerror or error}"
            ) from error


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read(1)
