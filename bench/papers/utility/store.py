"""The results of the utility benchmark in a JSON-lines file, to which more repeats can be added.

A line is one run: the digest of its settings, the number of the repeat, the settings themselves and the result. All
values here are public.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.experiment.lines import Lines
from bench.methods.settings import Settings
from bench.papers.utility.runs import Result


@dataclass(frozen=True, slots=True)
class Entry:
    """One finished run."""

    settings: Settings
    repeat: int
    result: Result

    def to_dict(self) -> dict[str, object]:
        """Returns the line of the file."""
        return {
            "key": self.settings.digest(),
            "repeat": self.repeat,
            "settings": self.settings.relevant(),
            "result": asdict(self.result),
        }

    def to_json(self) -> dict[str, object]:
        """Returns the object of `syncret bench utility --json`: settings and measures side by side."""
        return asdict(self.settings) | asdict(self.result) | {"repeat": self.repeat}


class Store:
    """The runs of one file, by digest and repeat. The file need not exist; its folder is created."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._runs: dict[tuple[str, int], dict[str, object]] = {}
        self._lines = Lines(path, "syncret bench utility")
        self._lines.read(self._take)

    @property
    def count(self) -> int:
        """Number of runs."""
        return len(self._runs)

    def find(self, settings: Settings, repeat: int) -> Entry | None:
        """Returns the run of these settings; settings without a bearing on the result may differ."""
        line = self._runs.get((settings.digest(), repeat))
        if line is None or not isinstance(result := line["result"], dict):
            return None
        return Entry(settings, repeat, Result.from_dict(result))

    def all_of(self, settings: Settings) -> list[Entry]:
        """Returns every repeat of these settings, in order."""
        digest = settings.digest()
        repeats = sorted(repeat for key, repeat in self._runs if key == digest)
        return [entry for repeat in repeats if (entry := self.find(settings, repeat))]

    def everything(self) -> Iterator[Entry]:
        """Yields every run, in the file's order. Raises DatasetError for settings that no longer exist."""
        for (_, repeat), line in self._runs.items():
            if isinstance(settings := line["settings"], dict) and isinstance(
                result := line["result"], dict
            ):
                yield Entry(Settings.of_relevant(settings), repeat, Result.from_dict(result))

    def add(self, entries: Iterable[Entry]) -> None:
        """Appends runs. Raises DatasetError if the file cannot be written."""
        lines = {(e.settings.digest(), e.repeat): e.to_dict() for e in entries}
        self._lines.append(lines.values())
        self._runs |= lines

    def _take(self, line: Any) -> None:
        key, repeat = str(line["key"]), int(line["repeat"])
        Result.from_dict(line["result"])
        self._runs[key, repeat] = line
