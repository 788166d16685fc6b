"""Kinds of a model's knowledge of a pair of columns, and sentences on what a refresh has from its earlier model.

`dependencies` of a report's `quality` has the pairs by kind, and `earlier`, of a refresh alone, the measured marginals
beside the earlier model's answers. All values here are public.
"""

from collections.abc import Mapping, Sequence
from typing import Any

MEASURED, TAKEN_OVER = "measured", "taken_over"
THROUGH_OTHERS, INDEPENDENT = "through_others", "independent"
_NAMED = 6


def taken_over(quality: Mapping[str, Any]) -> Sequence[Sequence[str]]:
    """Returns the pairs that were not measured, and that the earlier model has together; none without a refresh."""
    pairs: Sequence[Sequence[str]] = quality["dependencies"].get(TAKEN_OVER, ())
    return pairs


def compared_pairs(quality: Mapping[str, Any]) -> tuple[int, list[Sequence[str]]]:
    """Returns the number of measured marginals of several columns, and those that differ from the earlier model."""
    marginals = quality.get("earlier", {}).get("marginals", ())
    joint = [m for m in marginals if len(m["columns"]) > 1]
    return len(joint), [m["columns"] for m in joint if m["changed"]]


def taken_over_text(quality: Mapping[str, Any]) -> str:
    """Returns the sentences on the pairs that a refresh has taken over; "" if there are none."""
    pairs, every = taken_over(quality), sum(map(len, quality["dependencies"].values()))
    if not pairs:
        return ""
    names = [" and ".join(pair) for pair in pairs[:_NAMED]]
    more = f" and {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else ""
    return (
        f"Relations taken over from the earlier model, not measured now: {len(pairs)} of {every} pairs, "
        f"{', '.join(names)}{more}. They are those of the earlier table. How far this one is from it is known only "
        f"where it was measured: {_compared_text(quality)}."
    )


def _compared_text(quality: Mapping[str, Any]) -> str:
    compared, changed = compared_pairs(quality)
    if not compared:
        return "no pair was"
    if not changed:
        which = (
            "the one measured pair" if compared == 1 else f"none of the {compared} measured pairs"
        )
        differs = "does not differ" if compared == 1 else "differs"
        return f"{which} {differs} from the earlier model by more than noise explains"
    verb = "differs" if len(changed) == 1 else "differ"
    return f"{len(changed)} of {compared} measured pairs {verb} from the earlier model by more than noise explains"
