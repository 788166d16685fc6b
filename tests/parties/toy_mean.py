"""A method of one file: the differentially private mean of a column of numbers, by one secure sum.

The test of the registry installs it as a package of its own would be: an entry point of the group `syncret.methods`.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Ledger, rho, rho_from_epsilon_delta
from mechanisms.errors import DataError
from mechanisms.silos import Request, Silo, Silos, sum_noise
from mechanisms.text_table import TextTable
from parties.config import Config
from parties.config.parsing import section_of
from parties.federation.algorithm import AlgorithmPlan, FederatedMethod, Outcome, SiloContext
from parties.federation.sum_parameters import honest_survivors, silos_section

NAME, STEP = "mean", "mean"
UNITS = 100
"""Steps of a value's range; a row counts as many, so that sum and count have the same noise."""


@dataclass(frozen=True, slots=True)
class MeanSection:
    """Table [mean]: the column, and the public bounds of its values."""

    column: str
    low: float
    high: float


@dataclass(frozen=True)
class MeanPlan:
    """One run: a sum of values and the number of rows, both in units, with noise for the whole budget."""

    config: Config
    section: MeanSection
    sums = 1
    private = True
    private_answers = False

    @property
    def document(self) -> Mapping[str, object]:
        run = self.config.run
        noise = silos_section(self.config).noise
        return {**asdict(self.section), "epsilon": run.epsilon, "delta": run.delta, "noise": noise}

    @property
    def request(self) -> Request:
        run, sensitivity = self.config.run, math.hypot(UNITS, UNITS)
        sigma = sensitivity / math.sqrt(2 * rho_from_epsilon_delta(run.epsilon, run.delta))
        noise, event = sum_noise(
            silos_section(self.config).noise,  # type: ignore[arg-type]
            sigma * (1 + 1e-9),
            sensitivity=sensitivity,
            cells=2,
            honest=honest_survivors(self.config),
        )
        most = self.config.clients.rows_per_client * UNITS
        return Request(STEP, b"", 2, 0, most, noise, event)

    @property
    def kinds(self) -> list[tuple[Request, int]]:
        return [(self.request, 1)]

    @property
    def rho(self) -> float:
        event = self.request.event
        return 0.0 if event is None else rho(event) * (1 + 1e-12)

    @property
    def guarantee(self) -> str:
        run = self.config.run
        return f"epsilon = {run.epsilon:g}, delta = {run.delta:g} for a row."

    def check_table(self, table: TextTable, name: str) -> None:
        try:
            self.values_of(table)
        except (KeyError, ValueError) as error:
            raise DataError(f"{name}: column {self.section.column!r}: {error}") from error

    def values_of(self, table: TextTable) -> NDArray[np.float64]:
        return np.array(table.columns[self.section.column], dtype=np.float64)

    def silo(self, table: TextTable, context: SiloContext, ledger: Ledger) -> Silo:
        return MeanSilo(self, self.values_of(table), ledger)

    async def serve(self, silos: Silos, *, say: Callable[[str], None]) -> Outcome:
        total, rows = (await silos.sum(self.request)).values.tolist()
        say("the sum is there")
        width = self.section.high - self.section.low
        mean = self.section.low + width * min(max(total / max(rows, 1), 0.0), 1.0)
        facts = {"mean": mean, "rows": max(round(rows / UNITS), 0)}
        await silos.finish(json.dumps(facts).encode())
        return Outcome(
            facts, {"mean.json": json.dumps(facts).encode()}, (), [("mean", f"{mean:.4g}")]
        )

    def judge(self, folder: Path, table: TextTable) -> Mapping[str, float]:
        mean = json.loads((folder / "mean.json").read_text())["mean"]
        return {"error": abs(mean - float(self.values_of(table).mean()))}


@dataclass
class MeanSilo(Silo):
    """A silo of it: answers the one request of its plan, once."""

    plan: MeanPlan
    values: NDArray[np.float64]
    ledger: Ledger

    def answer(self, request: Request) -> NDArray[np.int64]:
        request.check(self.plan.request)
        if request.event is not None:
            self.ledger.charge(0, request.step, request.event)
        low, high = self.plan.section.low, self.plan.section.high
        steps = np.rint((np.clip(self.values, low, high) - low) / (high - low) * UNITS)
        return np.array([steps.sum(), UNITS * len(self.values)], dtype=np.int64)

    def finish(self, payload: bytes) -> None:
        json.loads(payload)


def plan(config: Config) -> AlgorithmPlan:
    """Returns the run of ``config``. Raises ConfigError."""
    table = {} if config.algorithm is None else config.algorithm[1]
    return MeanPlan(config, section_of(MeanSection, NAME, table))


METHOD = FederatedMethod(NAME, plan, "It cannot show that a silo's values are those of its table.")
