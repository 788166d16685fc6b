"""Comparison of the table with columns drawn independently: the part `shuffling` of `quality`, and its sentence.

All values here are public except those of ``shuffling_with_truth`` and ``measured_text``, which are computed from the
real table without noise (trials only).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mechanisms.independence import PairGain
from mechanisms.text_table import TextTable
from mechanisms.value_pairs import ValuePairs
from parties.report.shares import distinct_shares, share_text

WOULD_HELP = "More rows, a larger epsilon, fewer columns or fewer cells in each would help."


def shuffling(gains: Sequence[PairGain], pairs: int) -> dict[str, Any]:
    """Returns the figures of ``pairs`` pairs of columns, of which ``gains`` were measured and are in the model.

    Errors are shares of the rows.
    """
    shown = [gain for gain in gains if gain.shown]
    expected, independent = (
        sum(errors) / max(1, len(gains)) / 2
        for errors in ([g.expected for g in gains], [g.independent for g in gains])
    )
    return {
        "pairs": pairs,
        "measured": len(gains),
        "shown": len(shown),
        "proven": sum(gain.proven for gain in gains),
        "expected": expected,
        "independent": independent,
        "better": bool(shown) and expected < independent,
        "each": [
            {
                "columns": list(gain.pair),
                "expected": gain.expected / 2,
                "independent": gain.independent / 2,
                "shown": gain.shown,
            }
            for gain in gains
        ],
    }


def with_released(found: Mapping[str, Any], pairs: int) -> dict[str, Any]:
    """Returns the figures with the number of pairs that were measured, if some of them are not in the model."""
    return {**found, **({"released": pairs} if pairs > found["measured"] else {})}


def is_chosen(found: Mapping[str, Any]) -> bool:
    """Returns whether the model has only some of the pairs that were measured."""
    return "released" in found


def shuffling_text(found: Mapping[str, Any]) -> str:
    """Returns the sentence that compares pairs with independent columns, by the released values; "" without pairs."""
    if not found["pairs"]:
        return ""
    measured, shown = found["measured"], found["shown"]
    those, which = "measured pairs", "that were measured"
    if is_chosen(found):
        those, which = "pairs in the model", f"in the model ({found['released']} were measured)"
    expected, independent = distinct_shares(found["expected"], found["independent"])
    errors = f"expected to be off by {expected} of the rows on average, independent columns by {independent}"
    if found["better"]:
        return (
            f"Pairs of columns beyond what columns drawn independently would show: {shown} of {measured} {which}. "
            f"The {those} are {errors}."
        )
    if not measured:
        why = "no measurement of a pair of columns says anything above the noise"
    elif not shown:
        why = f"noise alone could explain how the columns of the {measured} {those} go together"
    else:
        why = f"the {measured} {those} are {errors}"
    return (
        f"This run is not shown to be better than columns drawn independently: {why}. {WOULD_HELP}"
    )


def shuffling_with_truth(
    found: Mapping[str, Any], real: ValuePairs, synthetic: TextTable
) -> dict[str, Any]:
    """Returns the figures with mean distances of pairs to the real table, as shares of rows; not private.

    "synthetic" is the synthetic table's distance, "shuffled" its distance with each column shuffled, and
    "real_shuffled" that of the shuffled real columns, the least distance of columns without relations.
    """
    true = {
        "synthetic": real.distance(synthetic),
        "shuffled": real.shuffled_distance(synthetic),
        "real_shuffled": real.best_shuffled(),
    }
    return {**found, "true": true}


def measured_text(found: Mapping[str, Any]) -> str:
    """Returns the sentence on a trial's measurement; "" without one."""
    true = found.get("true")
    if true is None:
        return ""
    better = true["synthetic"] < true["shuffled"]
    made, shuffled = distinct_shares(true["synthetic"], true["shuffled"])
    said = (
        f"By the real table, pairs of columns are off by {made} of the rows on average. With each column shuffled, "
        f"this table would be off by {shuffled}, and the real one by {share_text(true['real_shuffled'])}."
    )
    if not better:
        said += " So it is no better than columns drawn independently."
    elif true["synthetic"] >= true["real_shuffled"]:
        said += " Columns without noise, drawn independently, would be better."
    if found["better"] and not better:
        said += " The sentence above on pairs beyond independent columns is wrong here."
    return said
