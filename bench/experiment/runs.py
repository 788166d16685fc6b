"""The runs of a sweep in a JSON-lines file, a run per line, to which more can be added.

A run has settings, the number of its repeat, and a result. All values here are public.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from bench.experiment.lines import Lines

T = TypeVar("T")


class RunSettings(Protocol):
    """All settings that a result depends on, and their form in a line of a file."""

    def key(self) -> Hashable:
        """Returns what is the same for settings of which one result holds."""

    def to_line(self) -> Mapping[str, object]:
        """Returns the part of a line that has the settings."""

    @staticmethod
    def key_in(line: Mapping[str, Any]) -> Hashable:
        """Returns the key of a line's settings."""

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Self:
        """Returns a line's settings. Raises DatasetError if there are no such settings any more."""


S = TypeVar("S", bound=RunSettings)
R = TypeVar("R")


@dataclass(frozen=True)  # Without slots: an alias with types calls it, and tries to note itself.
class Entry(Generic[S, R]):
    """One finished run."""

    settings: S
    repeat: int
    result: R

    def to_line(self) -> dict[str, object]:
        """Returns the line of the file."""
        result: Any = self.result
        return {**self.settings.to_line(), "repeat": self.repeat, "result": asdict(result)}

    def to_json(self) -> dict[str, object]:
        """Returns the object of --json: settings and measures side by side."""
        settings, result = asdict(self.settings), asdict(self.result)  # type: ignore[call-overload]
        return {**settings, **result, "repeat": self.repeat}


def known_fields(kind: type[T], values: Mapping[str, Any]) -> T:
    """Makes a dataclass of the result of `asdict`; unknown names are ignored. Raises TypeError if one is missing."""
    names = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in names})


class RunStore(Generic[S, R]):
    """The runs that ``command`` has put into a file, by key and repeat.

    The file need not exist; its folder is created. Raises DatasetError for another file.
    """

    def __init__(self, path: Path, command: str, settings: type[S], result: type[R]) -> None:
        self.path = path
        self._settings, self._result = settings, result
        self._runs: dict[tuple[Hashable, int], Mapping[str, Any]] = {}
        self._lines = Lines(path, command)
        self._lines.read(self._take)

    @property
    def count(self) -> int:
        """Number of runs."""
        return len(self._runs)

    def find(self, settings: S, repeat: int) -> Entry[S, R] | None:
        """Returns the run of these settings; settings without a bearing on the result may differ."""
        line = self._runs.get((settings.key(), repeat))
        return (
            None
            if line is None
            else Entry(settings, repeat, known_fields(self._result, line["result"]))
        )

    def all_of(self, settings: S) -> list[Entry[S, R]]:
        """Returns every repeat of these settings, in order."""
        key = settings.key()
        repeats = sorted(repeat for known, repeat in self._runs if known == key)
        return [entry for repeat in repeats if (entry := self.find(settings, repeat))]

    def everything(self) -> Iterator[Entry[S, R]]:
        """Yields every run, in the file's order. Raises DatasetError for settings that no longer exist."""
        for (_, repeat), line in self._runs.items():
            yield Entry(
                self._settings.of_line(line), repeat, known_fields(self._result, line["result"])
            )

    def add(self, entries: Iterable[Entry[S, R]]) -> None:
        """Appends runs. Raises DatasetError if the file cannot be written."""
        lines = {(e.settings.key(), e.repeat): e.to_line() for e in entries}
        self._lines.append(lines.values())
        self._runs |= lines

    def _take(self, line: Any) -> None:
        key, repeat = self._settings.key_in(line), int(line["repeat"])
        known_fields(self._result, line["result"])
        self._runs[key, repeat] = line
