"""Outcomes of runs of DP-CTGAN in a JSON file, readable without the packages that run it.

`REFERENCES` names rows without training, against which likelihoods can be judged.
"""

from dataclasses import dataclass
from pathlib import Path

from bench.experiment.documents import read_records

RESULTS = "utility-gan.json"
CENTRAL, FEDERATED = "central", "federated"
REAL, SHUFFLED, UNIFORM = "real", "shuffled", "uniform"
REFERENCES = {
    REAL: "the training rows themselves",
    SHUFFLED: "the training rows, every column shuffled by itself",
    UNIFORM: "every code drawn uniformly",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one run; ``nll`` is of a kernel density, None if that is not defined.

    ``narrow`` counts the columns of the synthetic rows with less than half the deviation of the real ones; ``nll_wide``
    and ``real_wide`` are the density without these columns, by synthetic and by real rows. All are None where they are
    not defined, and in older records.
    """

    dataset: str
    method: str
    epsilon: float
    repeat: int
    workload_error: float
    nll: float | None
    auc: float | None
    seconds: float
    narrow: int | None = None
    nll_wide: float | None = None
    real_wide: float | None = None


def read_outcomes(folder: Path) -> list[Outcome]:
    """Reads the outcomes that `syncret bench gan` wrote; empty without a file. Raises DatasetError for another file."""
    return read_records(folder / RESULTS, "syncret bench gan", lambda row: Outcome(**row))
