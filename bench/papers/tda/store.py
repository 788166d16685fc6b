"""Finished runs of the Fed-TDA evaluation in a JSON-lines file, a run per line, to which more can be added.

All values here are public.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bench.experiment.lines import Lines
from bench.papers.tda.settings import Settings


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one run: `auc` (two classes) or `accuracy`; of synthetic rows `jsd`, `jsd_root`, `wasserstein`.

    `sent_mb` is by sessions of SecAgg and `formula_mb` by the paper: for augmenting methods the traffic beside
    `training_mb`, the classifier's own by SecAgg; for the others the classifier's and its additions.
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
        """Makes a result from the result of `asdict`; unknown names are ignored. Raises TypeError if one is missing."""
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
        """Returns the object of `syncret bench tda --json`, with the paper's one of `auc` and `accuracy`."""
        values = self.settings.to_dict() | asdict(self.result) | {"repeat": self.repeat}
        return {
            k: v for k, v in values.items() if k != ("auc" if values["auc"] is None else "accuracy")
        }


class Store:
    """The runs of one file, which need not exist; its folder is created. Raises DatasetError for another file."""

    def __init__(self, path: Path) -> None:
        self._runs: dict[tuple[Settings, int], Result] = {}
        self._lines = Lines(path, "syncret bench tda")
        self._lines.read(self._take)

    def find(self, settings: Settings, repeat: int) -> Entry | None:
        """Returns the run of these settings; settings without a bearing on the result may differ."""
        result = self._runs.get((settings.relevant(), repeat))
        return None if result is None else Entry(settings, repeat, result)

    def all_of(self, settings: Settings) -> list[Entry]:
        """Returns every repeat of these settings, in order."""
        wanted = settings.relevant()
        repeats = sorted(repeat for known, repeat in self._runs if known == wanted)
        return [Entry(settings, repeat, self._runs[wanted, repeat]) for repeat in repeats]

    def entries(self) -> list[Entry]:
        """Returns all runs."""
        return [Entry(settings, repeat, found) for (settings, repeat), found in self._runs.items()]

    def add(self, entry: Entry) -> None:
        """Appends a run. Raises DatasetError if the file cannot be written."""
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
