"""Table of steps: their names, their openings, their phase in a run, their cost formulas.

Protocols run and transcripts are written under these names, and an auditor holds both to the same table. The steps of
``select``, ``measure`` and ``count_rows`` are here; a module that runs other steps around them declares them beside
their writers, with the same type. A formula takes the public facts that it depends on: ``Selection``, ``Measurement``
or ``Counting`` here. All values here are public.

In malicious mode an opened value is proved before, in a step of its own (``proofs_of``), so that a step has one
formula.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

from protocols import costs, link_costs
from protocols.costs import Cost
from protocols.count_bits import whole_words
from protocols.link_plan import Linking
from protocols.row_layout import Recoding
from protocols.row_plan import CountPlan
from protocols.select_spec import integer_bits

Facts = TypeVar("Facts", contravariant=True)


class Phase(IntEnum):
    """Phase of records in a run: before all rounds, in a round, after them. Those of one phase alternate freely."""

    START = -1
    MODEL = 0
    ARRIVALS = 1
    BEGUN = 2
    SELECTION = 3
    CANDIDATES = 4
    BITS = 5
    ERRORS = 6
    CHOICE = 7
    CHOSEN = 8
    MEASUREMENT = 9
    END = 10


@dataclass(frozen=True, slots=True)
class MayOpen:
    """An opening: its name, the charge that pays for it, and the bytes of each opened number.

    ``charge`` is None where nothing is paid: the opened value is the same for all data of parties that follow the
    protocol.
    """

    what: str
    charge: str | None
    itemsize: int


@dataclass(frozen=True, slots=True)
class Step(Generic[Facts]):
    """A step. One that sends has ``cost`` or ``problem``; one that has neither contains others.

    ``first_round`` is the first round that has it; ``phase_in_first`` its phase in round 0 where that is another one.
    ``cost`` is the formula of its rounds and bytes; ``problem`` judges messages whose sizes no formula has, and returns
    a description of the error. ``opens`` is all that may be opened in it.
    """

    name: str
    phase: Phase
    phase_in_first: Phase | None = None
    first_round: int = 0
    cost: Callable[[Facts], Cost] | None = None
    problem: Callable[[Facts], str | None] | None = None
    opens: MayOpen | None = None

    def of(self, facts: Facts) -> Cost:
        """Returns its cost by formula; none where it has no formula."""
        return Cost() if self.cost is None else self.cost(facts)

    @property
    def contains(self) -> bool:
        """True if it sends nothing itself and contains other steps."""
        return self.cost is None and self.problem is None

    @property
    def in_round(self) -> bool:
        """True if it belongs to a round."""
        return self.phase not in (Phase.START, Phase.END)

    def phase_in(self, round: int) -> Phase:
        """Returns its phase in this round."""
        first = self.phase if self.phase_in_first is None else self.phase_in_first
        return first if round == 0 else self.phase


@dataclass(frozen=True, slots=True)
class Selection:
    """One selection: the candidates' numbers of cells, and the bits of ``select_spec.bounds``.

    ``kept``: the counts' own bits are there, those of groups of ``made`` cells having been made for it. ``samples`` of
    noise are made in it, for later ones too.
    """

    sizes: Sequence[int]
    error_bits: int
    score_bits: int
    samples: int
    kept: bool = False
    made: Sequence[int] = ()

    def bits_cost(self) -> Cost:
        """Returns the cost of the bits that are made for it."""
        if not self.made:
            return Cost()
        cells = sum(map(whole_words, self.made))
        return costs.bits_of_counts(cells, integer_bits(self.error_bits))

    def scores_cost(self) -> Cost:
        """Returns the cost of the scores and the noise."""
        return costs.select_scores(self.sizes, self.error_bits, self.samples, kept=self.kept)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement of so many cells, or noise for several; ``noise`` returns the cost of noise for so many cells."""

    cells: int
    noise: Callable[[int], Cost]


@dataclass(frozen=True, slots=True)
class Counting:
    """So many rows of a batch, absent ones included, to count by a plan, after ``recoding`` where there is one."""

    plan: CountPlan
    rows: int
    recoding: Recoding | None = None

    def by_segment(self, cost: Callable[[CountPlan, int], Cost]) -> Cost:
        """Returns the cost of one segment after the other."""
        return sum((cost(self.plan, len(s)) for s in self.plan.segments(self.rows)), Cost())


@dataclass(frozen=True, slots=True)
class Linked:
    """One join; ``levels`` are the numbers of words of 64 comparisons of the sort's openings, in their order."""

    link: Linking
    levels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Aligned:
    """Sources of so many rows each that are in one order already."""

    rows: int
    sources: int


CHOICE = MayOpen("select.index", charge="select", itemsize=8)
COMPARISONS = MayOpen("link.order", charge=None, itemsize=8)
COUNTS = MayOpen("measure.counts", charge="measure", itemsize=4)

SELECT: Step[Selection] = Step("select", Phase.SELECTION, first_round=1)
# Where bits of the counts are kept, and some candidates have none yet.
SELECT_BITS: Step[Selection] = Step(
    "select.bits", Phase.BITS, first_round=1, cost=lambda s: s.bits_cost()
)
SELECT_SCORES: Step[Selection] = Step(
    "select.scores", Phase.ERRORS, first_round=1, cost=lambda s: s.scores_cost()
)
SELECT_CHOOSE: Step[Selection] = Step(
    "select.choose",
    Phase.CHOICE,
    first_round=1,
    cost=lambda s: costs.select_choose(len(s.sizes), s.score_bits),
    opens=CHOICE,
)
MEASURE: Step[Measurement] = Step("measure", Phase.MEASUREMENT)
# Noise for round 0 may be made while data is awaited.
MEASURE_NOISE: Step[Measurement] = Step(
    "measure.noise",
    Phase.MEASUREMENT,
    phase_in_first=Phase.ARRIVALS,
    cost=lambda m: m.noise(m.cells),
)
MEASURE_OPEN: Step[Measurement] = Step(
    "measure.open",
    Phase.MEASUREMENT,
    cost=lambda m: costs.open_value(m.cells, COUNTS.itemsize),
    opens=COUNTS,
)

# Before it, rows may get other codes.
COUNT_RECODE: Step[Counting] = Step(
    "count.recode", Phase.ARRIVALS, cost=lambda c: costs.recode(c.recoding, c.rows)
)
# Counting takes each of these once for every segment of a batch's rows, and opens nothing.
COUNT_ROWS: Step[Counting] = Step(
    "count.rows", Phase.ARRIVALS, cost=lambda c: c.by_segment(costs.valid_bits)
)
COUNT_FACTORS: Step[Counting] = Step(
    "count.factors", Phase.ARRIVALS, cost=lambda c: c.by_segment(costs.doubled_counts)
)
COUNT_CELLS: Step[Counting] = Step(
    "count.cells",
    Phase.ARRIVALS,
    cost=lambda c: c.by_segment(lambda plan, _: costs.lift_counts(plan.cells)),
)

# Joining takes each of these once. The sort opens the order of shuffled rows, and no party knows the shuffle.
LINK_SHUFFLE: Step[Linked] = Step(
    "link.shuffle",
    Phase.ARRIVALS,
    cost=lambda k: link_costs.shuffle(k.link.total, k.link.row_words),
)
LINK_SORT: Step[Linked] = Step(
    "link.sort",
    Phase.ARRIVALS,
    cost=lambda k: link_costs.sort(k.link.sort_bits, k.levels),
    opens=COMPARISONS,
)
LINK_JOIN: Step[Linked] = Step("link.join", Phase.ARRIVALS, cost=lambda k: link_costs.runs(k.link))
LINK_RETURN: Step[Linked] = Step(
    "link.return",
    Phase.ARRIVALS,
    cost=lambda k: link_costs.shuffle(k.link.total, k.link.back_words),
)
# Instead, where sources are aligned.
LINK_ALIGN: Step[Aligned] = Step(
    "link.align", Phase.ARRIVALS, cost=lambda a: link_costs.align(a.rows, a.sources)
)

PROOFS = "verify"


def proofs_of(step: str) -> str:
    """Returns the step that proves the openings of ``step`` before, where a context has a verifier."""
    return f"{step.partition('.')[0]}.{PROOFS}"


OF_SELECTION = (SELECT, SELECT_BITS, SELECT_SCORES, SELECT_CHOOSE)
OF_MEASUREMENT = (MEASURE, MEASURE_NOISE, MEASURE_OPEN)
OF_LINKING = (LINK_SHUFFLE, LINK_SORT, LINK_JOIN, LINK_RETURN)
OF_RECODING = (COUNT_RECODE,)
OF_COUNTING = (COUNT_ROWS, COUNT_FACTORS, COUNT_CELLS)
