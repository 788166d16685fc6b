"""Records behind `report.json`, for machines, and `report.html`, for people.

No secret value may come in. All values in `report.json` are public by the protocol, or measured from the outside,
except `utility` and, in `columns`, values under "real" and distances to them: where the real table is at hand (a trial
on pooled data), they are computed from it without noise. Those figures and the pictures of real marginals are not
differentially private; `not_private` lists the keys, and the page says so next to each of them. Known limits: text in
English; sizes are decimal (1 MB = 10^6 bytes).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from mechanisms.accounting import LedgerEntry
from parties.report.attacker import AttackerBound
from parties.report.document import tables
from parties.report.privacy_text import ReportHeader

SERVERS = 3

_OF_ALL = (
    "Opened were the chosen query of each round, each noisy measurement and, where the run checks it, whether each "
    "data owner's counts are within their bound; nothing else that depends on a row. Who took part, and the sizes and "
    "times of messages, are visible too.",
    "No data owner has more rows than the agreed number: its own program refuses a larger table. The privacy guarantee "
    "holds whatever the other data owners submit; an owner that submits rows or counts which are not those of its "
    "table can bend the result.",
)
DISTAIM_TRUST = (
    "The three compute servers held secret shares. Any one of them alone learnt nothing about a row or an un-noised "
    "count, provided it followed the protocol (at most one corrupted server, semi-honest).",
    "Two servers acting together, or a server that deviates from the protocol, are outside this guarantee.",
    *_OF_ALL,
)
"""Guarantees of DistAIM under MPC and their limits, one or two sentences an item."""
MALICIOUS_TRUST = (
    "The three compute servers held secret shares, and proved to one another that they had computed as they should "
    "before anything was opened. Any one of them alone learnt nothing about a row or an un-noised count, whatever it "
    "did: a server that deviates ends the run before an opening, but with a chance of less than 1 in 10^12.",
    "Two servers acting together are outside this guarantee, and any one of them can end the run.",
    *_OF_ALL,
)
"""Guarantees and limits of a run with run.security = "malicious"."""
TRIAL_TRUST = (
    "This was a trial: one machine ran all three servers and all owners and held the whole table. It protects nobody; "
    "the sentences above are about servers on hosts of their own."
)
"""Sentence that a report of a trial adds to those."""


NOT_PRIVATE = "Computed from the real table without noise, for trials: not differentially private, do not publish."

REAL_UTILITY = ("utility",)
REAL_COLUMNS = ("columns[].*.real", "columns[].values[].real", "columns[].distance")
REAL_INTERVALS = ("quality.held", "quality.marginals[].true_error", "quality.marginals[].held")
REAL_CLAIMS = (
    "quality.truth",
    "quality.columns[].true",
    "quality.columns[].wrong",
    "quality.columns[].values[].true",
)
REAL_SHUFFLED = ("quality.shuffling.true",)
REAL_PAIRS = ("quality.shuffling.each[].true",)
REAL_FIGURES = (
    *REAL_UTILITY,
    *REAL_COLUMNS,
    *REAL_INTERVALS,
    *REAL_CLAIMS,
    *REAL_SHUFFLED,
    *REAL_PAIRS,
)
"""Places of all values in a report that are computed from a real table without noise: ``*`` is any key, ``[]`` each
item of a list. `not_private` of a report lists those that it has.
"""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters that the configuration asked for.

    `participation` is the probability that a client takes part in a round. `input` is the form of owners' data,
    `upload` the form of counts. With another `schedule` than "fixed", `rounds` is a maximum. `unit` is the unit of
    privacy, which is at most `rows_of_unit` rows of the whole table. `link` is the way that rows of several sources are
    joined, None without sources.
    """

    epsilon: float
    delta: float
    rounds: int
    clients: int
    participation: float
    noise: str
    upload: str
    schedule: str = "fixed"
    input: str = "counts"
    security: str = "semi-honest"
    unit: str = "row"
    rows_of_unit: int = 1
    link: str | None = None


@dataclass(frozen=True, slots=True)
class SourceSize:
    """One of several sources: its `columns`, the number of its counted `owners`, and their maximum number of rows."""

    name: str
    columns: tuple[str, ...]
    owners: int
    rows_capacity: int


@dataclass(frozen=True, slots=True)
class Privacy:
    """The budget, the charges against it in the run's currency, and the part of delta for inexact sampling.

    Raises ValueError if the ledger's sum is above the budget, beyond the rounding of its sum.
    """

    rho_total: float
    ledger: tuple[LedgerEntry, ...]
    delta_implementation: float = 0.0

    def __post_init__(self) -> None:
        if self.rho_spent > self.rho_total * (1 + 1e-9):
            raise ValueError(
                f"the ledger holds {self.rho_spent}, above the budget {self.rho_total}"
            )

    @property
    def rho_spent(self) -> float:
        """Sum of the ledger."""
        return math.fsum(entry.rho for entry in self.ledger)


@dataclass(frozen=True, slots=True)
class WorkloadSize:
    """Numbers of queries asked for, of candidates (their closure), and of cells of all candidates.

    ``rows_capacity`` is the maximum number of rows of all owners whose rows servers counted; it is public. ``sources``
    describes the sources if rows of several were joined.
    """

    queries: int
    candidates: int
    cells: int
    rows_capacity: int = 0
    sources: tuple[SourceSize, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Returns the `workload` section of report.json."""
        sources = [{**asdict(source), "columns": list(source.columns)} for source in self.sources]
        return {**asdict(self), "sources": sources}


@dataclass(frozen=True, slots=True)
class Utility:
    """Errors against a table at hand. `reference` names that table; the figures are not differentially private."""

    reference: str
    workload_error: float | None = None
    nll: float | None = None
    auc: float | None = None


@dataclass(frozen=True, slots=True)
class Communication:
    """Measured bytes, one figure per server and step, beside the paper's estimate `paper_formula_mb`.

    ``passed_on_bytes`` has, for each server, the bytes of owners' uploads that it forwarded to other servers, outside
    all steps; empty in FLAIM.

    Raises ValueError unless every step has a figure for each of `servers`, none of them negative.
    """

    client_sent_bytes_mean: float
    client_received_bytes_mean: float
    server_sent_bytes_by_step: Mapping[str, tuple[int, ...]]
    paper_formula_mb: float
    servers: int = SERVERS
    passed_on_bytes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for step, sent in self.server_sent_bytes_by_step.items():
            if len(sent) != self.servers or min(sent) < 0:
                raise ValueError(
                    f"step {step!r}: bytes sent are {sent}; expected one figure per server"
                )

    def to_dict(self) -> dict[str, object]:
        """Returns the `communication` section of report.json."""
        by_step = {step: list(sent) for step, sent in self.server_sent_bytes_by_step.items()}
        client_bytes = self.client_sent_bytes_mean + self.client_received_bytes_mean
        return {
            "client_sent_bytes_mean": self.client_sent_bytes_mean,
            "client_received_bytes_mean": self.client_received_bytes_mean,
            "client_throughput_mb_mean": client_bytes / 1e6,
            "server_sent_bytes": [
                sum(sent[pid] for sent in by_step.values()) for pid in range(self.servers)
            ],
            "server_sent_bytes_by_step": by_step,
            "server_passed_on_bytes": list(self.passed_on_bytes),
            "paper_formula_mb": self.paper_formula_mb,
        }


@dataclass(frozen=True, slots=True)
class ReportedOpening:
    """One opening: its `round` and `step`, `what` was opened, and the `count` of numbers."""

    round: int
    step: str
    what: str
    count: int


@dataclass(frozen=True, slots=True)
class SelectedQuery:
    """The query that a round chose, the number of counted clients, and the estimated number of their rows.

    `sigma` is the deviation, in rows, that the charge for its measurement is based on.
    """

    round: int
    query: tuple[str, ...]
    clients: int
    rows_estimated: int
    sigma: float


@dataclass(frozen=True, slots=True)
class ExcludedOwner:
    """A data owner whose submission was not counted: in `round`, for a `reason`, which `why` says in a sentence.

    `by` are the servers that excluded the owner or lack the submission.
    """

    client: str
    round: int
    reason: str
    by: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class RunReport:
    """The content of `report.json`.

    `time_s` holds seconds by phase, "total" among them. `notes` are sentences for the reader. `excluded` are the data
    owners that servers left out, None if the method leaves out nobody. `flaim` has the facts that only FLAIM has:
    guarantees, sums, choosers. `columns` are the tables of `parties.report.columns`, `quality` is the section of
    `parties.report.quality`, `about` names the study, the end of the run and the columns. `attacker` bounds what
    the best attacker finds, None without a guarantee.

    Raises ValueError if `time_s` has no total.
    """

    method: str
    dataset: str
    parameters: Parameters
    privacy: Privacy
    workload: WorkloadSize
    communication: Communication
    time_s: Mapping[str, float]
    opened: tuple[ReportedOpening, ...]
    selected: tuple[SelectedQuery, ...] = ()
    utility: Utility | None = None
    seed: int | None = None
    synthetic_rows: int | None = None
    rounds_done: int | None = None
    trust: tuple[str, ...] = DISTAIM_TRUST
    notes: tuple[str, ...] = ()
    flaim: Mapping[str, object] | None = None
    excluded: tuple[ExcludedOwner, ...] | None = None
    columns: tuple[Mapping[str, object], ...] = ()
    quality: Mapping[str, object] | None = None
    about: ReportHeader | None = None
    attacker: AttackerBound | None = None

    def __post_init__(self) -> None:
        if "total" not in self.time_s:
            raise ValueError(f"time_s has {', '.join(self.time_s)}; expected total among them")

    def to_dict(self) -> dict[str, object]:
        """Returns the content of `report.json`, without keys of unknown values."""
        utility = asdict(self.utility) if self.utility else {}
        document: dict[str, object] = {
            "method": self.method,
            "dataset": self.dataset,
            "excluded": None if self.excluded is None else [asdict(item) for item in self.excluded],
            "about": None if self.about is None else self.about.to_dict(),
            "seed": self.seed,
            "parameters": asdict(self.parameters),
            "privacy": {
                "rho_total": self.privacy.rho_total,
                "rho_spent": self.privacy.rho_spent,
                "ledger": [entry.to_dict() for entry in self.privacy.ledger],
                "delta_implementation": self.privacy.delta_implementation,
            },
            "workload": self.workload.to_dict(),
            "utility": {key: value for key, value in utility.items() if value is not None},
            "communication": self.communication.to_dict(),
            "time": {f"{phase}_s": seconds for phase, seconds in self.time_s.items()},
            "opened": [asdict(item) for item in self.opened],
            "selected": [{**asdict(item), "query": list(item.query)} for item in self.selected],
            "synthetic_rows": self.synthetic_rows,
            "rounds_done": self.rounds_done,
            "trust": list(self.trust),
            "notes": list(self.notes),
            "attacker": None if self.attacker is None else self.attacker.to_dict(),
            "flaim": self.flaim,
            "quality": self.quality,
            "columns": [dict(column) for column in self.columns] or None,
            "not_private": self._not_private() or None,
        }
        return {key: value for key, value in document.items() if value is not None}

    def _shuffling(self) -> Mapping[str, object]:
        found = (self.quality or {}).get("shuffling")
        return found if isinstance(found, Mapping) else {}

    def _not_private(self) -> list[str]:
        """Returns the keys of values computed from a real table without noise."""
        found = [*REAL_UTILITY] if self.utility else []
        if any("distance" in column for column in self.columns):
            found += REAL_COLUMNS
        if self.quality is not None and "held" in self.quality:
            found += REAL_INTERVALS
        if self.quality is not None and "truth" in self.quality:
            found += REAL_CLAIMS
        if "true" in self._shuffling():
            found += REAL_SHUFFLED
        if any("true" in pair for pair in tables(self._shuffling().get("each"))):
            found += REAL_PAIRS
        return found


def excluded_text(report: Mapping[str, object]) -> str | None:
    """Returns the owners that were not counted, in sentences; None if there are none."""
    items = report.get("excluded")
    if not isinstance(items, list) or not items:
        return None
    owners = "data owner was" if len(items) == 1 else "data owners were"
    names = "; ".join(f"{item['client']}: {item['why']}" for item in items)
    return f"{len(items)} {owners} not counted. {names}"


@dataclass(frozen=True, slots=True)
class QueryError:
    """L1 distance (0 to 2) between the real and the synthetic normalised marginal of `query`."""

    query: tuple[str, ...]
    error: float


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """The expected L1 distance (0 to 2) of a `query`, and its interval from `low` to `high` at some confidence.

    `likely` is the bound that most errors are below; None if it is not known.
    """

    query: tuple[str, ...]
    expected: float
    low: float
    high: float
    likely: float | None = None


@dataclass(frozen=True, slots=True)
class AxisTick:
    """A value below a column's bars: its ``position``, bar i from i - 1/2 to i + 1/2, and its ``text``."""

    position: float
    text: str


@dataclass(frozen=True, slots=True)
class ErrorBar:
    """The interval from ``low`` to ``high`` of a figure of a column: of a value's share, or a quantile's position.

    ``synthetic`` is the synthetic table's own figure. ``true`` is the real table's, in trials: not private.
    """

    name: str
    low: float
    high: float
    synthetic: float | None = None
    true: float | None = None


@dataclass(frozen=True, slots=True)
class ColumnShares:
    """One column's one-way marginal: a label and the synthetic share of each code, and the real one if at hand.

    ``ticks`` are the round values below the bars of numbers and dates, None for categories. ``errors`` are the
    intervals of its figures.

    Raises ValueError if the lengths differ.
    """

    column: str
    labels: tuple[str, ...]
    synthetic: tuple[float, ...]
    real: tuple[float, ...] | None = None
    ticks: tuple[AxisTick, ...] | None = None
    errors: tuple[ErrorBar, ...] = ()

    def __post_init__(self) -> None:
        lengths = {len(self.labels), len(self.synthetic), len(self.real or self.labels)}
        if len(lengths) != 1:
            raise ValueError(
                f"column {self.column!r}: labels and shares differ in number: {sorted(lengths)}"
            )


@dataclass(frozen=True, slots=True)
class PairErrors:
    """Mean expected errors of the measured pairs of columns, as shares of the rows.

    ``table`` is the synthetic table's, ``independent`` that of columns shuffled, ``trusted`` the least that a trusted
    party could do with the budget that `epsilon` gives.
    """

    epsilon: float
    table: float
    independent: float
    trusted: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Errors of the run, and of runs like it ``by_epsilon``, ascending, with that of the run among them."""

    run: PairErrors
    by_epsilon: tuple[PairErrors, ...]


@dataclass(frozen=True, slots=True)
class Associations:
    """Associations of each two of ``columns``, 0 to 1, in the synthetic table and, if at hand, in the real one.

    ``synthetic[i][j]`` is the association of columns i and j. ``left_out`` is the number of columns in neither matrix.

    Raises ValueError for a matrix that is not square.
    """

    columns: tuple[str, ...]
    synthetic: tuple[tuple[float, ...], ...]
    real: tuple[tuple[float, ...], ...] | None = None
    left_out: int = 0

    def __post_init__(self) -> None:
        for matrix in (self.synthetic, self.real or self.synthetic):
            if {len(matrix), *map(len, matrix)} != {len(self.columns)}:
                raise ValueError(f"associations of {len(self.columns)} columns are no square")

    def strongest(self, count: int) -> list[tuple[tuple[str, str], float]]:
        """Returns the ``count`` pairs with the strongest association in the synthetic table."""
        return sorted(self._pairs(self.synthetic), key=lambda pair: -pair[1])[:count]

    def farthest(self, count: int) -> list[tuple[tuple[str, str], float, float]]:
        """Returns the pairs whose associations differ most, with synthetic and real one; none without a real table."""
        if self.real is None:
            return []
        both = zip(self._pairs(self.synthetic), self._pairs(self.real), strict=True)
        found = [(names, made, real) for (names, made), (_, real) in both]
        return sorted(found, key=lambda pair: -abs(pair[1] - pair[2]))[:count]

    def _pairs(self, matrix: tuple[tuple[float, ...], ...]) -> list[tuple[tuple[str, str], float]]:
        names = itertools.combinations(enumerate(self.columns), 2)
        return [((one, other), matrix[i][j]) for (i, one), (j, other) in names]


@dataclass(frozen=True, slots=True)
class ReportFigures:
    """Data of the pictures that report.json lacks; without a real table no errors and no real shares."""

    query_errors: tuple[QueryError, ...] = ()
    columns: tuple[ColumnShares, ...] = ()
    associations: Associations | None = None
    accuracy: Accuracy | None = None


_REQUIRED: Mapping[str, Sequence[str]] = {
    "parameters": (
        "epsilon",
        "delta",
        "rounds",
        "clients",
        "participation",
        "noise",
        "upload",
        "input",
    ),
    "privacy": ("rho_total", "rho_spent", "ledger", "delta_implementation"),
    "workload": ("queries", "candidates", "cells", "rows_capacity"),
    "utility": (),
    "communication": (
        "client_sent_bytes_mean",
        "client_received_bytes_mean",
        "client_throughput_mb_mean",
        "server_sent_bytes",
        "server_sent_bytes_by_step",
        "paper_formula_mb",
    ),
    "time": ("total_s",),
}


def check_report(report: Mapping[str, object]) -> None:
    """Raises ValueError, naming the key, if a report lacks a key that every `report.json` has."""
    for key in ("method", "dataset", *_REQUIRED, "opened"):
        if key not in report:
            raise ValueError(f"the report has no {key!r}")
    for section, keys in _REQUIRED.items():
        table = report[section]
        if not isinstance(table, Mapping):
            raise ValueError(f"the report's {section!r} is not a table")
        for key in keys:
            if key not in table:
                raise ValueError(f"the report has no {section}.{key}")
