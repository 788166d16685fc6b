"""All settings that a result of the Fed-TDA evaluation depends on.

Source of the defaults: Fed-TDA paper, its experimental settings.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from bench.fetch import DatasetError
from bench.papers.tda.tables import NAMES

CENTRAL, IID = "central", "iid"
FEDAVG, FEDPROX, FEDMIX = "fedavg", "fedprox", "fedmix"
TDA, PAPER, DISTAIM, FLAIM = "tda", "tda-paper", "distaim", "flaim"
FED_GAN, DP_FED_GAN = "fed-gan", "dp-fed-gan"
SOURCES: Mapping[str, str] = {
    TDA: "Fed-TDA as here: private, or exact sums where there is no epsilon",
    PAPER: "Fed-TDA as its paper has it, exact sums: not private",
    DISTAIM: "DistAIM, every silo from the start",
    FLAIM: "private FLAIM, every silo in every round",
    FED_GAN: "a GAN whose networks are averaged as FedAvg does: not private",
    DP_FED_GAN: "federated DP-CTGAN, every silo in every round",
}
"""Sources of synthetic rows."""
NEED_EPSILON = (DISTAIM, FLAIM, DP_FED_GAN)
NEVER_PRIVATE = (PAPER, FED_GAN)
GAN_ROUNDS: Final = 100
GAN_EPOCHS: Final = 3
"""Local epochs in a round of `fed-gan`; `dp-fed-gan` has one batch of each silo."""
SYNTHETIC = tuple(
    f"{source}{training}" for source in SOURCES for training in ("", f"+{FEDAVG}", f"+{FEDPROX}")
)
METHODS = (CENTRAL, IID, FEDAVG, FEDPROX, FEDMIX, *SYNTHETIC)
"""`central`: all rows in one place; `iid`: FedAvg on an even split; a source alone: with synthetic rows only."""
PAPER_ROUNDS: Final = 100
PAPER_ROWS: Final = 1_000
DELTA: Final = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a result except the number of the repeat. The defaults are the paper's.

    `beta` None: not split by label. `epsilon` None: no privacy. `train_rows` None: all training rows of the table;
    `synthetic_rows` are each silo's, beside its own. Raises DatasetError for an unknown name, ValueError for a number
    out of range.
    """

    dataset: str
    method: str
    beta: float | None = 0.05
    epsilon: float | None = None
    clients: int = 5
    rounds: int = PAPER_ROUNDS
    epochs: int = 3
    train_rows: int | None = None
    synthetic_rows: int = PAPER_ROWS
    delta: float = DELTA

    def __post_init__(self) -> None:
        for what, value, known in (
            ("dataset", self.dataset, NAMES),
            ("method", self.method, METHODS),
        ):
            if value not in known:
                raise DatasetError(f"unknown {what} {value!r}; expected one of {', '.join(known)}")
        for name in ("beta", "epsilon"):
            number = getattr(self, name)
            if number is not None and not (math.isfinite(number) and number > 0):
                raise ValueError(f"{name} is {number}; expected a positive number")
        for name in ("clients", "rounds", "epochs", "train_rows", "synthetic_rows"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} is {number}; expected at least 1")
        if self.source in NEED_EPSILON and self.epsilon is None:
            raise ValueError(
                f"{self.method} without an epsilon; {self.source} is private: expected a positive number"
            )
        if not 0 < self.delta < 1:
            raise ValueError(f"delta is {self.delta}; expected between 0 and 1")

    @property
    def source(self) -> str | None:
        """Source of synthetic rows, if there are any."""
        return self.method.partition("+")[0] if self.method in SYNTHETIC else None

    @property
    def alone(self) -> bool:
        """True if training uses synthetic rows alone."""
        return self.method in SOURCES

    @property
    def training(self) -> str:
        """Training method of the silos: FedAvg unless the method names another."""
        name = self.method.partition("+")[2] or self.method
        return name if name in (FEDPROX, FEDMIX) else FEDAVG

    def relevant(self) -> "Settings":
        """Returns the settings with those that have no bearing on the result at one common value."""
        neutral: dict[str, Any] = {}
        if self.method in (CENTRAL, IID):
            neutral["beta"] = None
        if self.method == CENTRAL:
            neutral["clients"] = 1
        if self.source is None:
            neutral |= {"epsilon": None, "synthetic_rows": PAPER_ROWS}
        if self.source in NEVER_PRIVATE:
            neutral["epsilon"] = None
        if self.source in (None, *NEVER_PRIVATE) or self.epsilon is None:
            neutral["delta"] = DELTA
        return replace(self, **neutral)

    def key(self) -> "Settings":
        """Returns the relevant settings."""
        return self.relevant()

    def to_line(self) -> dict[str, object]:
        """Returns the relevant settings, for a line of a file."""
        return {"settings": asdict(self.relevant())}

    @staticmethod
    def key_in(line: Mapping[str, Any]) -> "Settings":
        """Returns the settings of a line, which has relevant ones alone."""
        return Settings.of_line(line)

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> "Settings":
        """Returns the settings of a line. Raises as the constructor does."""
        return cls(**line["settings"])
