"""All settings that a result of the utility benchmark depends on, and the digest that results are kept under.

Source of the defaults: FLAIM paper, section 5.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from bench.datasets import NAMES, SYNTHFS
from bench.fetch import DatasetError
from bench.methods.splits import NATURAL, SPLITS
from mechanisms.scores import AIM, RULES

FORMAT: Final = 1
"""Format of the results, increased when older results must no longer be mixed with new ones."""
_COUNTS = [
    "clients",
    "rounds",
    "local_rounds",
    "queries",
    "degree",
    "iterations",
    "final_iterations",
]
FLAIM_METHODS = ("naive", "oracle", "private", "random", "naivebayes")
PUBLIC, ESTIMATED = "public", "estimated"
SUM, ANY = "sum", "any"
CLIENTS, SERVER = "clients", "server"
KEPT, ONCE, FRESH = "kept", "once", "fresh"
OURS, AUTHORS, STOPPING = "ours", "authors", "stopping"
ESTIMATORS = (OURS, AUTHORS, STOPPING)
METHODS = ("aim", "distaim", *FLAIM_METHODS)
"""Central AIM; DistAIM; FLAIM's variants (naive, oracle, private) and the baselines random and naivebayes."""
PAIRS = "pairs"
"""FLAIM's default in this project, which no paper has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a result except the number of the repeat. The defaults are the paper's.

    `beta` is for the partition label-skew, `skew` for the table synthfs. `tau` and `combine` None are as the method has
    them; others make Figure 2's ablations. `sizes` is FLAIM's: public, as in the paper, or estimated, its default
    elsewhere. As in the authors' code: `settles` any (annealed FLAIM becomes finer once a single query has settled),
    `drawn` server (random: the server draws one query for all clients of a round), `first` fresh (FLAIM: each initial
    one-way marginal is of clients drawn for it alone; possible for distaim, too) and once (distaim: all are of one draw
    of clients, apart from that of round 1), `estimator` authors; stopping is ours until the loss is that of noise
    (`bench.methods.authors_fit`). `rule` is the error that AIM expects a measurement to leave; by another than the
    papers' the budget is a study's, and divided likewise (`parties.mpc.planning.budget`). `rounds` is ignored when
    `annealed`.
    `mpc` is for distaim: with it the three servers and the owners run as processes; without, the same loop on counts
    in the clear.

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
    rule: str = AIM
    local_rounds: int = 1
    measure_share: float = 0.9
    tau: str | None = None
    combine: bool | None = None
    sizes: str = PUBLIC
    settles: str = SUM
    drawn: str = CLIENTS
    first: str = KEPT
    estimator: str = OURS
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
            ("method", self.method, (*METHODS, PAIRS)),
            ("partition", self.partition, SPLITS),
            ("sizes", self.sizes, (PUBLIC, ESTIMATED)),
            ("estimator", self.estimator, ESTIMATORS),
            ("settles", self.settles, (SUM, ANY)),
            ("drawn", self.drawn, (CLIENTS, SERVER)),
            ("first", self.first, (KEPT, ONCE, FRESH)),
            ("rule", self.rule, RULES),
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
        if self.mpc and self.estimator != OURS:
            raise DatasetError("mpc is with our own estimator; expected estimator = 'ours'")
        if not self.flaim and (self.tau is not None or self.combine is not None):
            raise DatasetError(
                f"tau and combine are settings of FLAIM's variants, not of {self.method}"
            )
        if self.settles == ANY and not (self.flaim and self.annealed):
            raise DatasetError("settles = 'any' is for FLAIM's variants, annealed")
        if self.drawn == SERVER and (self.method != "random" or self.estimator != AUTHORS):
            raise DatasetError("drawn = 'server' is for random with estimator = 'authors'")
        if self.rule != AIM and (self.flaim or self.first != KEPT):
            raise DatasetError(f"rule {self.rule!r} is for aim and distaim, with first = 'kept'")
        of_flaim = self.first == FRESH and self.method in FLAIM_METHODS and not self.annealed
        if self.first != KEPT and not of_flaim and (self.method != "distaim" or self.mpc):
            raise DatasetError(
                f"first = {self.first!r} does not go with {self.method}; 'once' is for distaim without mpc, 'fresh' for"
                " FLAIM's variants with a fixed T, too"
            )
        if self.method == PAIRS and self.estimator == AUTHORS:
            raise DatasetError("estimator = 'authors' is for the papers' methods, not for pairs")
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
        """True if the method is one of FLAIM's variants or baselines."""
        return self.method in (*FLAIM_METHODS, PAIRS)

    def relevant(self) -> dict[str, object]:
        """Returns name and value of every setting that the result depends on: central AIM has no clients, and so on."""
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
        if not self.flaim or self.sizes == PUBLIC:
            ignored.add("sizes")
        if self.settles == SUM:
            ignored.add("settles")
        if self.drawn == CLIENTS:
            ignored.add("drawn")
        if self.rule == AIM:
            ignored.add("rule")
        if self.first == KEPT:
            ignored.add("first")
        if self.estimator == OURS:
            ignored.add("estimator")
        if self.estimator == AUTHORS:
            ignored |= {"iterations", "final_iterations"}
        return {name: value for name, value in asdict(self).items() if name not in ignored}

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> "Settings":
        """Makes settings of those that are relevant; the others are defaults. Raises as the constructor does."""
        values: dict[str, Any] = dict(line["settings"])
        usual = NATURAL if values.get("dataset") == SYNTHFS else "clustering"
        return cls(**({"partition": usual} | values))

    @staticmethod
    def key_in(line: Mapping[str, Any]) -> str:
        """Returns the digest that a line has."""
        return str(line["key"])

    def key(self) -> str:
        """Returns the digest."""
        return self.digest()

    def to_line(self) -> dict[str, object]:
        """Returns the digest and the relevant settings."""
        return {"key": self.digest(), "settings": self.relevant()}

    def digest(self) -> str:
        """Returns the hex digest of the relevant settings: results with the same one may be averaged."""
        text = json.dumps([FORMAT, self.relevant()], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:24]
