"""Fed-TDA's runs and their results (`bench.experiment.runs`)."""

from dataclasses import dataclass
from pathlib import Path

from bench.experiment import runs
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

    @property
    def score(self) -> float:
        """The paper's measure."""
        return self.accuracy if self.auc is None else self.auc


Entry = runs.Entry[Settings, Result]
Store = runs.RunStore[Settings, Result]


def open_store(path: Path) -> Store:
    """Opens a file of runs. Raises DatasetError for another file."""
    return runs.RunStore(path, "syncret bench tda", Settings, Result)


def to_json(entry: Entry) -> dict[str, object]:
    """Returns the object of `syncret bench tda --json`, with the paper's one of `auc` and `accuracy`."""
    left_out = "auc" if entry.result.auc is None else "accuracy"
    return {name: value for name, value in entry.to_json().items() if name != left_out}
