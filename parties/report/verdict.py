"""What a synthetic table is good for and what not, in sentences: the rules, all in this place.

Provides ``verdict``. It goes by the section `quality` of a report and the public domain alone, so that whoever has
these two gets the same sentences. Public: everything; true errors, which a trial adds, are not looked at.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mechanisms.columns import Categorical
from mechanisms.domain import Domain

CLOSE, ROUGH = 0.05, 0.15
"""Shares of the rows that may be in a wrong cell, half of the L1 distance: up to CLOSE a marginal is called close, up
to ROUGH rough; beyond that nothing is promised."""
_NAMED = 6
"""So many columns, pairs or queries are named; the rest is counted."""

Marginal = Mapping[str, Any]


def verdict(quality: Mapping[str, Any], domain: Domain) -> dict[str, list[str]]:
    """Sentences under "good_for" and "not_for", and under "confidence" how sure they are."""
    sure = f"Bounds hold with {quality['confidence']:.0%} confidence, all of them at once."
    good: list[str] = []
    bad: list[str] = []
    marginals: Sequence[Marginal] = quality["marginals"]
    for size, kind in ((1, "single columns"), (2, "pairs of columns")):
        _judge([m for m in marginals if len(m["columns"]) == size], kind, good, bad)
    queries = [m for m in marginals if m["query"] and len(m["columns"]) > 2]
    _judge(queries, "queries of three columns or more", good, bad)
    _relations(quality["dependencies"], good, bad)
    if groups := _groups(marginals):
        bad.append(groups)
    if binned := _binned(domain):
        bad.append(
            f"Differences within a bin of {_names(binned)}: values are spread evenly in each bin, but for atoms."
        )
    bad.append(
        "Single rows and rare combinations: rows are drawn from a model and stand for nobody; nor can they be linked "
        "with other tables."
    )
    return {"good_for": good, "not_for": bad, "confidence": [sure]}


def _judge(marginals: Sequence[Marginal], kind: str, good: list[str], bad: list[str]) -> None:
    """Which marginals of one kind are close, rough, or without a promise."""
    ordered = sorted(marginals, key=lambda m: m["high"])
    close = [m for m in ordered if m["high"] / 2 <= CLOSE]
    rough = [m for m in ordered if CLOSE < m["high"] / 2 <= ROUGH]
    rest = [m for m in reversed(ordered) if m["high"] / 2 > ROUGH]
    for some, shares in ((close, "Shares"), (rough, "Rough shares")):
        if some:
            worst, which = some[-1]["high"] / 2, _which(some, ordered)
            good.append(
                f"{shares} in {kind}: {which} {_are(some)} off by no more than {worst:.1%} of the rows."
            )
    if rest:
        noisy = sum(m["noise"] is not None for m in rest)
        hint = f" {noisy} of these {_were(noisy)} measured, with too much noise." if noisy else ""
        bad.append(
            f"Shares in {kind}: {_which(rest, ordered)} may be off by more than {ROUGH:.0%} of the rows.{hint}"
        )


def _relations(
    dependencies: Mapping[str, Sequence[Sequence[str]]], good: list[str], bad: list[str]
) -> None:
    measured, through, none = (
        dependencies[kind] for kind in ("measured", "through_others", "independent")
    )
    pairs = len(measured) + len(through) + len(none)
    if measured:
        good.append(
            f"Relations between columns that were measured together: {len(measured)} of {pairs} pairs, "
            f"{_names([' and '.join(pair) for pair in measured])}."
        )
    if through or none:
        parts = [
            *([f"{_pairs(through)} only what follows through other columns"] * bool(through)),
            *([f"{_pairs(none)} no relation at all here, whatever the real one is"] * bool(none)),
        ]
        bad.append(
            f"Other relations between columns: {'; '.join(parts)}. That two columns look unrelated here says nothing."
        )


def _groups(marginals: Sequence[Marginal]) -> str:
    noise = [m["noise"] for m in marginals if m["noise"] is not None]
    if not noise:
        return ""
    return (
        f"Groups of fewer than about {2 * min(noise):.0f} rows: the noise of a count has a deviation of "
        f"{min(noise):.3g} rows or more."
    )


def _binned(domain: Domain) -> list[str]:
    """The columns with a cell of more than one value."""
    return [
        column.name
        for column in domain.columns
        if not isinstance(column, Categorical)
        and any(first < last for first, last in column.cells.ranges)
    ]


def _which(some: Sequence[Marginal], ordered: Sequence[Marginal]) -> str:
    if len(some) == len(ordered):
        return f"all {len(some)}"
    names = _names([" × ".join(m["columns"]) for m in some])
    return f"{len(some)} of {len(ordered)} ({names})"


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _pairs(some: Sequence[object]) -> str:
    return f"{len(some)} " + ("pair has" if len(some) == 1 else "pairs have")


def _are(some: Sequence[object]) -> str:
    return "is" if len(some) == 1 else "are"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
