"""The results of the utility benchmark in a JSON-lines file, to which more repeats can be added.

Provides `Store` and `Entry`. Public: everything. A line is one run: the digest of its settings, the number of the
repeat, the settings themselves and the result. A line is appended in one write when a run is done; a torn last line, as
a kill leaves, is passed over, and its run is done again.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.fetch import DatasetError
from bench.utility.runs import Result
from bench.utility.settings import Settings


@dataclass(frozen=True, slots=True)
class Entry:
    """One finished run."""

    settings: Settings
    repeat: int
    result: Result

    def to_dict(self) -> dict[str, object]:
        """The line of the file."""
        return {
            "key": self.settings.digest(),
            "repeat": self.repeat,
            "settings": self.settings.relevant(),
            "result": asdict(self.result),
        }

    def to_json(self) -> dict[str, object]:
        """What `syncret bench utility --json` prints for it: settings and measures side by side."""
        return asdict(self.settings) | asdict(self.result) | {"repeat": self.repeat}


class Store:
    """The runs of one file, by digest and repeat. The file need not exist; its folder is made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._runs: dict[tuple[str, int], dict[str, object]] = {}
        self._torn = False
        self._read()

    @property
    def count(self) -> int:
        """How many runs there are."""
        return len(self._runs)

    def find(self, settings: Settings, repeat: int) -> Entry | None:
        """The run of these settings, whatever has no bearing on it being what it may."""
        line = self._runs.get((settings.digest(), repeat))
        if line is None or not isinstance(result := line["result"], dict):
            return None
        return Entry(settings, repeat, Result.from_dict(result))

    def all_of(self, settings: Settings) -> list[Entry]:
        """Every repeat of these settings, in order."""
        digest = settings.digest()
        repeats = sorted(repeat for key, repeat in self._runs if key == digest)
        return [entry for repeat in repeats if (entry := self.find(settings, repeat))]

    def add(self, entries: Iterable[Entry]) -> None:
        """Append runs. Raises DatasetError where the file cannot be written."""
        lines = {(e.settings.digest(), e.repeat): e.to_dict() for e in entries}
        texts = [json.dumps(line, sort_keys=True, separators=(",", ":")) for line in lines.values()]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                # What a kill left of the last line must not swallow the next one.
                file.write(b"\n" * self._torn + "".join(f"{text}\n" for text in texts).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DatasetError(
                f"{self.path}: cannot be written: {error.strerror or error}"
            ) from error
        self._torn = False
        self._runs |= lines

    def _read(self) -> None:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise DatasetError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        self._torn = bool(data) and not data.endswith(b"\n")
        for number, text in enumerate(data.split(b"\n"), start=1):
            if not text:
                continue
            try:
                line = json.loads(text)
            except ValueError:
                # Cut off by a kill: no part of a line is JSON. That run is done again.
                continue
            try:
                key, repeat = str(line["key"]), int(line["repeat"])
                Result.from_dict(line["result"])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DatasetError(
                    f"{self.path}, line {number}: is not a result of `syncret bench utility`; name another file"
                ) from error
            self._runs[(key, repeat)] = line
