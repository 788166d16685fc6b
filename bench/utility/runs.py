"""One run of one method on one benchmark table, and how good what came out is.

Provides `Settings` (everything that a result depends on, with its digest), `METHODS`, `Result` and `measure`.

Secret: nothing; the tables are public. A run's randomness is drawn from the digest and the number of the repeat, so
that a result can be repeated on the same machine; noise that protects somebody is never drawn so. With `mpc` the run
is the real one, on its own randomness.

Source: FLAIM paper, section 5. `workload_error` is the average L1 distance, 0 to 2, between normalised marginals of
synthetic and training rows over the workload's queries; `closure_error` the same over the queries and their subsets;
`nll` the mean negative log-likelihood of the held-out rows under the model, in nats, mixed with a uniform distribution
of weight 1e-6 (`mechanisms.metrics.nll`); `auc` that of `bench.metrics`. Limits: exact inference only.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Final

import numpy as np

from bench.datasets import NAMES, SYNTHFS, Dataset, load
from bench.fetch import DatasetError
from bench.metrics import auc_on_held_out, closure_error
from bench.splits import NATURAL, SPLITS, owners_of
from bench.synthfs import SynthFs
from mechanisms.metrics import nll, table_answers, workload_error
from mechanisms.workload import Workload, draw_workload
from parties.trial.partition import Partition

FORMAT: Final = 1
"""Raised when results of before are no longer to be mixed with new ones."""
_COUNTS = (
    "clients", "rounds", "local_rounds", "queries", "degree", "iterations", "final_iterations",
)  # fmt: skip
FLAIM_METHODS = ("naive", "oracle", "private", "random", "naivebayes")
METHODS = ("aim", "distaim", *FLAIM_METHODS)
"""Central AIM; DistAIM; FLAIM's variants (naive, oracle, private) and the baselines random and naivebayes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that a result depends on but the number of the repeat. The defaults are the paper's.

    `beta` is for the partition label-skew, `skew` for the table synthfs. `tau` and `combine` None are as the method has
    them; others make Figure 2's ablations. `rounds` is ignored when `annealed`. `mpc` is for distaim: with it the three
    servers and the owners run as processes; without, the same loop on counts in the clear.

    Raises DatasetError for an unknown method, dataset or partition; ValueError for a number out of range.
    """

    dataset: str
    method: str
    partition: str = "clustering"
    beta: float = 0.1
    skew: float = 3.0
    clients: int = 100
    participation: float = 0.1
    epsilon: float = 1.0
    delta: float = 1e-5
    rounds: int = 10
    annealed: bool = False
    local_rounds: int = 1
    measure_share: float = 0.9
    tau: str | None = None
    combine: bool | None = None
    mpc: bool = False
    queries: int = 64
    degree: int = 3
    workload_seed: int = 123
    partition_seed: int = 0
    iterations: int = 100
    final_iterations: int = 1000
    max_model_mb: float = 80.0

    def __post_init__(self) -> None:
        for what, value, known in (
            ("dataset", self.dataset, NAMES),
            ("method", self.method, METHODS),
            ("partition", self.partition, SPLITS),
        ):
            if value not in known:
                raise DatasetError(f"unknown {what} {value!r}; expected one of {', '.join(known)}")
        if (self.dataset == SYNTHFS) != (self.partition == NATURAL):
            raise DatasetError(
                f"partition {self.partition!r} does not go with {self.dataset}; {SYNTHFS} has owners itself and takes"
                f" {NATURAL!r}, every other table one of {', '.join(SPLITS[:-1])}"
            )
        if self.mpc and self.method != "distaim":
            raise DatasetError(f"mpc is for distaim; {self.method} has no servers that compute")
        if not self.flaim and (self.tau is not None or self.combine is not None):
            raise DatasetError(
                f"tau and combine are settings of FLAIM's variants, not of {self.method}"
            )
        if not self.flaim and self.local_rounds != 1:
            raise DatasetError(f"{self.method} has no local rounds; expected local_rounds = 1")
        for name in ("epsilon", "beta", "skew", "max_model_mb"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name} is {getattr(self, name)}; expected a positive number")
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least 1")
        if not 0 < self.participation <= 1:
            raise ValueError(f"participation is {self.participation}; expected above 0, at most 1")
        for name in ("delta", "measure_share"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected between 0 and 1")

    @property
    def flaim(self) -> bool:
        """Whether the method is one of FLAIM's variants or baselines."""
        return self.method in FLAIM_METHODS

    def relevant(self) -> dict[str, object]:
        """Name and value of every setting that the result depends on: central AIM has no clients, and so on."""
        ignored = set()
        if self.method == "aim":
            ignored |= {"partition", "beta", "clients", "participation", "partition_seed"}
        if self.partition != "label-skew":
            ignored.add("beta")
        if self.partition == NATURAL:
            ignored.add("partition_seed")
        if self.dataset != SYNTHFS:
            ignored.add("skew")
        if self.annealed:
            ignored.add("rounds")
        return {name: value for name, value in asdict(self).items() if name not in ignored}

    def digest(self) -> str:
        """Hex digest of what is relevant: results with the same one may be averaged."""
        text = json.dumps([FORMAT, self.relevant()], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Result:
    """What one run came to. `auc` is None for a table without a target; `seconds` is the method's wall time.

    `model_error` is the workload error of the model itself, without the sampling of rows; `rounds_done` the rounds that
    the budget paid for; `single_choosers` how many sums of FLAIM had a single client behind them.
    """

    workload_error: float
    closure_error: float
    model_error: float
    nll: float
    auc: float | None
    seconds: float
    rounds_done: int
    rows: int
    model_mb: float
    single_choosers: int | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> "Result":
        """The inverse of `asdict`; unknown names are ignored. Raises TypeError where one is missing."""
        names = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in names})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A coded table, its workload, and who owns which training row (None for central AIM)."""

    dataset: Dataset
    workload: Workload
    partition: Partition | None


def problem(settings: Settings, *, progress: Callable[[str], None] = lambda line: None) -> Problem:
    """What `settings` is run on. Raises DatasetError, WorkloadError, ImportError without UMAP."""
    dataset, workload = _table(
        settings.dataset, settings.skew, settings.degree, settings.queries, settings.workload_seed
    )
    if settings.method == "aim":
        return Problem(dataset, workload, None)
    partition = owners_of(
        dataset,
        settings.partition,
        clients=settings.clients,
        beta=settings.beta,
        seed=settings.partition_seed,
        progress=progress,
    )
    return Problem(dataset, workload, partition)


def measure(
    settings: Settings, repeat: int, *, progress: Callable[[str], None] = lambda line: None
) -> Result:
    """Run once and measure.

    Raises DatasetError, and whatever the method raises: MechanismError, or a parties' error with `mpc`.
    """
    from bench.utility.methods import run_method

    posed = problem(settings, progress=progress)
    seed = [int(settings.digest(), 16), repeat]
    rng = np.random.default_rng(seed)
    started = time.perf_counter()
    outcome = asyncio.run(run_method(settings, posed, rng))
    seconds = time.perf_counter() - started
    dataset, workload, model = posed.dataset, posed.workload, outcome.model
    synthetic = model.sample(outcome.total, np.random.default_rng([*seed, 1]))
    real, written = (table_answers(workload, codes) for codes in (dataset.train, synthetic))
    answers = model.answers_q32(workload.candidates).astype(np.float64)
    auc = None
    if dataset.label is not None:
        auc = auc_on_held_out(synthetic, dataset.test, dataset.label)
    return Result(
        workload_error=workload_error(workload, real, written),
        closure_error=closure_error(workload, real, written),
        model_error=workload_error(workload, real, answers),
        nll=nll(model, dataset.test),
        auc=auc,
        seconds=seconds,
        rounds_done=outcome.rounds_done,
        rows=outcome.total,
        model_mb=model.cells * 8 / 2**20,
        single_choosers=outcome.single_choosers,
    )


@lru_cache(maxsize=2)
def _table(
    name: str, skew: float, degree: int, queries: int, seed: int
) -> tuple[Dataset, Workload]:
    dataset = load(name, synthfs=SynthFs(skew=skew) if name == SYNTHFS else None)
    return dataset, draw_workload(dataset.domain, degree, queries, seed=seed)
