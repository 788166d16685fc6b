"""How the model of a run usually grows, for estimates before it begins: nothing is known yet of what will be chosen.

Provides ``Stage`` and ``usual_growth``. Public: everything; it depends on the domain, the workload and the plan alone.

Of the rounds that join columns each adds a pair of two parts, drawn at random. Of those that follow every fourth adds
a query that is new, since the others measure again what is in the model: of 19 on Census 9 were new, of 12 on Magic 3.
A query that would make the model larger than the round may have is not added. Without such rounds each adds one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mechanisms.accounting import Schedule
from mechanisms.choosing import joining
from mechanisms.junction_tree import model_cells
from mechanisms.pgm import CELLS_PER_MB
from mechanisms.sampling import public_generator
from mechanisms.workload import Workload

_NEW = 4
_STAGES = 12
"""Models whose size is computed; between two of them it grows evenly."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The model after a round: how many sets of columns are measured, and how many cells it has."""

    targets: int
    cells: float


def usual_growth(
    workload: Workload, plan: Schedule, rounds: int, *, limit_mb: float
) -> list[Stage]:
    """The models after rounds 0 to ``rounds`` with a size limit of ``limit_mb``, as they may well be."""
    draw = public_generator(0)
    sizes = model_cells(workload.domain)
    columns = len(workload.domain.names)
    several = [i for i, q in enumerate(workload.candidates) if len(q) > 1 and workload.weights[i]]
    order = [several[place] for place in draw.permutation(len(several))]
    measured = list(workload.one_way)
    cells = [float(sizes([workload.candidates[i] for i in measured]))]
    counts, looked = [columns], [0]
    every = max(1, rounds // _STAGES)
    for round in range(1, rounds + 1):
        finer = round - plan.tree_rounds
        again = plan.adaptive and finer > 0 and finer % _NEW
        new = [] if again else order if finer > 0 else joining(workload, order, measured)
        if new:
            measured.append(new[0])
            order.remove(new[0])
        if round % every == 0 or round == rounds:
            limit = limit_mb * CELLS_PER_MB * plan.spent_after(round) / plan.rho
            size = float(sizes([workload.candidates[i] for i in measured]))
            while size > limit and len(measured) > counts[-1]:
                measured.pop()
                size = float(sizes([workload.candidates[i] for i in measured]))
            cells.append(size)
            looked.append(round)
        counts.append(len(measured))
    return [Stage(count, _between(looked, cells, round)) for round, count in enumerate(counts)]


def _between(rounds: Sequence[int], cells: Sequence[float], round: int) -> float:
    place = next(i for i, looked in enumerate(rounds) if looked >= round)
    if rounds[place] == round:
        return cells[place]
    share = (round - rounds[place - 1]) / (rounds[place] - rounds[place - 1])
    return cells[place - 1] + share * (cells[place] - cells[place - 1])
