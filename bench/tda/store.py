"""Finished runs of the Fed-TDA evaluation in a JSON-lines file, to which more can be added.

Provides `Store`, `Entry` and `Result`. Public: everything. A line is one run.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bench.lines import Lines
from bench.tda.settings import Settings


@dataclass(frozen=True, slots=True)
class Result:
    """What one run came to: `auc` (two classes) or `accuracy`; of synthetic rows `jsd`, `jsd_root`, `wasserstein`.

    `sent_mb` in sessions of SecAgg and `formula_mb` by the paper: of augmenting methods what they send beside
    `training_mb`, the classifier's own by SecAgg; of the others the classifier's and what they add.
    """

    auc: float | None
    accuracy: float
    sent_mb: float
    formula_mb: float | None
    training_mb: float
    seconds: float
    rows: int
    jsd: float | None = None
    jsd_root: float | None = None
    wasserstein: float | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> "Result":
        """The inverse of `asdict`; unknown names are ignored. Raises TypeError where one is missing."""
        names = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in names})  # type: ignore[arg-type]

    @property
    def score(self) -> float:
        """The paper's measure."""
        return self.accuracy if self.auc is None else self.auc


@dataclass(frozen=True, slots=True)
class Entry:
    """One finished run."""

    settings: Settings
    repeat: int
    result: Result

    def to_json(self) -> dict[str, object]:
        """What `syncret bench tda --json` prints for it; of `auc` and `accuracy` the paper's one."""
        values = self.settings.to_dict() | asdict(self.result) | {"repeat": self.repeat}
        return {
            k: v for k, v in values.items() if k != ("auc" if values["auc"] is None else "accuracy")
        }


class Store:
    """The runs of one file. It need not exist; its folder is made. Raises DatasetError for another file."""

    def __init__(self, path: Path) -> None:
        self._runs: dict[tuple[Settings, int], Result] = {}
        self._lines = Lines(path, "syncret bench tda")
        self._lines.read(self._take)

    def find(self, settings: Settings, repeat: int) -> Entry | None:
        """The run of these settings, whatever has no bearing on it being what it may."""
        result = self._runs.get((settings.relevant(), repeat))
        return None if result is None else Entry(settings, repeat, result)

    def all_of(self, settings: Settings) -> list[Entry]:
        """Every repeat of these settings, in order."""
        wanted = settings.relevant()
        repeats = sorted(repeat for known, repeat in self._runs if known == wanted)
        return [Entry(settings, repeat, self._runs[wanted, repeat]) for repeat in repeats]

    def entries(self) -> list[Entry]:
        """All runs."""
        return [Entry(settings, repeat, found) for (settings, repeat), found in self._runs.items()]

    def add(self, entry: Entry) -> None:
        """Append a run. Raises DatasetError where the file cannot be written."""
        settings = entry.settings.relevant()
        line = {
            "settings": settings.to_dict(),
            "repeat": entry.repeat,
            "result": asdict(entry.result),
        }
        self._lines.append([line])
        self._runs[settings, entry.repeat] = entry.result

    def _take(self, line: Any) -> None:
        settings, repeat = Settings(**line["settings"]), int(line["repeat"])
        self._runs[settings, repeat] = Result.from_dict(line["result"])
