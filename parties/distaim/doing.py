"""What a server is at, in words, by the step that it has begun last: for whoever watches a slow run.

Provides ``doing``. Public: everything; a step's name and round, which all three servers have alike.
"""

from collections.abc import Mapping

from mechanisms.accounting import Schedule
from parties.distaim.steps import (
    AGREE,
    CLIENTS_CHECK,
    CLIENTS_COMPARE,
    CLIENTS_COUNT,
    COMMIT,
    ESTIMATE,
    FINISH,
    OF_PROOFS,
)
from parties.progress import round_text
from protocols.context import Costs
from protocols.steps import (
    COUNT_CELLS,
    COUNT_FACTORS,
    COUNT_ROWS,
    LINK_ALIGN,
    MEASURE,
    MEASURE_NOISE,
    MEASURE_OPEN,
    OF_COUNTING,
    OF_LINKING,
    OF_RECODING,
    SELECT,
    SELECT_BITS,
    SELECT_CHOOSE,
    SELECT_SCORES,
)

_WORDS: Mapping[str, str] = {
    AGREE.name: "settling with the other servers where the run stands",
    CLIENTS_COMPARE.name: "adding the data owners' counts",
    CLIENTS_CHECK.name: "checking what data owners weigh",
    **{
        step.name: "counting data owners' rows"
        for step in (CLIENTS_COUNT, *OF_RECODING, *OF_COUNTING)
    },
    COUNT_ROWS.name: "counting rows",
    COUNT_FACTORS.name: "counting rows",
    COUNT_CELLS.name: "counting rows",
    **{step.name: "linking the sources' rows" for step in (LINK_ALIGN, *OF_LINKING)},
    COMMIT.name: "recording what the round goes by",
    ESTIMATE.name: "estimating the model",
    SELECT.name: "comparing the model with the counts",
    SELECT_BITS.name: "comparing the model with the counts",
    SELECT_SCORES.name: "comparing the model with the counts",
    SELECT_CHOOSE.name: "choosing a query",
    MEASURE.name: "measuring",
    MEASURE_NOISE.name: "making noise",
    MEASURE_OPEN.name: "measuring",
    FINISH.name: "writing model and table",
    **{step.name: "proving what was computed" for step in OF_PROOFS},
}
_OF_THE_LEAD = (ESTIMATE.name, FINISH.name)


def doing(costs: Costs, plan: Schedule, *, lead: bool) -> str | None:
    """What goes on; None while data owners are waited for, of which other events tell."""
    if not costs.steps or costs.steps[-1].step not in _WORDS:
        return None
    step = costs.steps[-1]
    words = _WORDS[step.step]
    if step.step in _OF_THE_LEAD and not lead:
        words = f"party 0 is at work: {words}"
    return words if step.round is None else f"{round_text(step.round, plan)}: {words}"
