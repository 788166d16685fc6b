"""Rules for the verdict on a synthetic table, in sentences: its good and its bad uses.

The verdict uses only the section `quality` of a report and the public domain, so that everybody with these two gets the
same sentences. All values here are public: the true errors that a trial adds are not used.

Marks are for values and not for cells. The error of a marginal counts the effect of noise and model over its cells, and
for each of its columns of numbers or dates the loss within a cell, as in the claims of `quality.columns`: so fewer
cells never make a better mark. The reasons are in docs/decisions/0012.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mechanisms.columns import Categorical, private_of
from mechanisms.domain import Domain
from parties.report.claims import open_ends
from parties.report.dependencies import (
    INDEPENDENT,
    MEASURED,
    THROUGH_OTHERS,
    compared_pairs,
    taken_over_text,
)
from parties.report.shares import at_most_text, part_text
from parties.report.shuffling import is_chosen, shuffling_text

CLOSE, ROUGH = 0.05, 0.15
"""Limits, as shares of the rows that may be in another cell: up to CLOSE a marginal is close, up to ROUGH rough.

Beyond ROUGH the verdict promises nothing.
"""
MOST = 0.5
"""Share of a column's range, or of its rows, above which a cell of more than one value is most of the column."""
_NAMED = 6
"""Maximum number of columns, pairs or queries named; the rest is counted."""

Marginal = Mapping[str, Any]
Claim = Mapping[str, Any]


def verdict(quality: Mapping[str, Any], domain: Domain) -> dict[str, list[str]]:
    """Returns sentences under "good_for" and "not_for", and the confidence in them under "confidence"."""
    sure = f"Bounds hold with {quality['confidence']:.0%} confidence, all of them at once."
    good: list[str] = []
    bad: list[str] = []
    marginals: Sequence[Marginal] = quality["marginals"]
    columns = _ColumnClaims(domain, quality.get("columns", ()))
    for size, kind in ((1, "single columns"), (2, "pairs of columns")):
        _rate([m for m in marginals if len(m["columns"]) == size], kind, columns, good, bad)
    queries = [m for m in marginals if m["query"] and len(m["columns"]) > 2]
    _rate(queries, "queries of three columns or more", columns, good, bad)
    bad += columns.coarse()
    better = True
    if "shuffling" in quality and (said := shuffling_text(quality["shuffling"])):
        better = quality["shuffling"]["better"]
        if better:
            good.append(said)
        else:
            bad.insert(0, said)
    # Measured relations are listed as good only if noise does not explain them.
    _relations(quality, good if better else [], bad)
    if said := taken_over_text(quality):
        # Nothing measured speaks against the earlier model, or something does.
        compared, changed = compared_pairs(quality)
        (good if better and compared and not changed else bad).append(said)
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


def marks(quality: Mapping[str, Any]) -> dict[tuple[str, ...], float | None]:
    """Returns the share of the rows that each column and pair may be off by, as the verdict counts it.

    None stands for columns of which one cell is too much to promise anything, whatever the errors of cells are.
    """
    losses = _Losses(quality.get("columns", ()))
    some = [m for m in quality["marginals"] if len(m["columns"]) <= 2]
    return {tuple(m["columns"]): losses.off(m) if losses.trusted(m) else None for m in some}


class _Losses:
    """Claims on columns, as the additional error in values of a marginal beyond that of its cells.

    ``wide`` are columns with a cell of more than one value.
    """

    def __init__(self, claims: Sequence[Claim], wide: frozenset[str] = frozenset()) -> None:
        self._claims = {claim["column"]: claim for claim in claims}
        self._wide = wide

    def off(self, marginal: Marginal) -> float:
        """Returns the share of the rows that may be elsewhere: a column's claim, else cells plus losses of columns.

        For a number or a date, elsewhere means on the other side of some limit.
        """
        names, cells = marginal["columns"], float(marginal["high"]) / 2
        if len(names) == 1 and names[0] in self._claims:
            return float(self._claims[names[0]]["off"])
        return min(1.0, cells + sum(self._lost(name) for name in names))

    def trusted(self, marginal: Marginal) -> bool:
        """True if no column of the marginal is for the most part in one cell."""
        return not any(self._too_much(name, MOST) for name in marginal["columns"])

    def _lost(self, name: str) -> float:
        """Returns the loss of a marginal in one column's bins; 1 for wide bins without a claim."""
        claim = self._claims.get(name)
        return float(name in self._wide) if claim is None else float(claim.get("bin_lost", 0.0))

    def _too_much(self, name: str, rows: float) -> str:
        """Returns the claim's key of a cell with over ``rows`` of a column's rows or MOST of its range; "" if none."""
        claim = self._claims.get(name)
        if claim is None:
            return ""
        heaviest, widest = claim.get("heaviest"), claim.get("widest")
        if heaviest is not None and claim["lost"] > rows:
            return "heaviest"
        return "widest" if widest is not None and widest["of_range"] > MOST else ""


class _ColumnClaims(_Losses):
    """The same with the domain's columns, and sentences on cells that are too much of a column."""

    def __init__(self, domain: Domain, claims: Sequence[Claim]) -> None:
        super().__init__(claims, frozenset(_binned(domain)))
        self._open = {
            column.name: open_ends(column)
            for column in domain.columns
            if not isinstance(column, Categorical)
        }
        self._measured = frozenset(
            column.name for column in domain.columns if private_of(column) is not None
        )

    def coarse(self) -> list[str]:
        """Returns a sentence for each column of which one cell is most of the range, or has too many of the rows."""
        found = [said for name in self._claims if (said := self._in_one(name, ROUGH))]
        more = len(found) - _NAMED
        return found[:_NAMED] + (
            [f"{more} more columns of which one bin has too much."] if more > 0 else []
        )

    def _bin(self, name: str, ends: Claim) -> str:
        """Returns a bin in words; one that reaches to an end of a public grid has no bound there."""
        low, high, most = ends["low"], ends["high"], self._open[name]
        if most.get("low") == low:
            return "all values" if most.get("high") == high else f"all up to {high}"
        return f"all from {low} on" if most.get("high") == high else f"{low} to {high}"

    def _in_one(self, name: str, rows: float) -> str:
        """Returns a sentence on a column if one cell has over ``rows`` of its rows or MOST of its range; else ""."""
        which = self._too_much(name, rows)
        if not which:
            return ""
        claim = self._claims[name]
        what = self._bin(name, claim[which])
        if which == "heaviest":
            what += f", has {part_text(claim['lost'])} of the rows"
        else:
            what += f", is {part_text(claim['widest']['of_range'])} of the range"
        if name in self._measured:
            # The run chose these bins; more bins need more rows or more epsilon.
            remedy = "More rows or a larger epsilon would give its private bins more cells."
        else:
            remedy = (
                "Bounds nearer to the values, marks such as 9999 as atoms, a log scale, edges or private bins would "
                "help."
            )
        return f"Values of {name}: one bin, {what}, and where in it they lie is not known. {remedy}"


def _rate(
    marginals: Sequence[Marginal],
    kind: str,
    columns: _ColumnClaims,
    good: list[str],
    bad: list[str],
) -> None:
    """Adds the sentences on the marginals of one kind that are close, rough, or without a promise."""
    off = {tuple(m["columns"]): columns.off(m) for m in marginals}
    ordered = sorted(marginals, key=lambda m: off[tuple(m["columns"])])

    def between(low: float, high: float) -> list[Marginal]:
        return [m for m in ordered if low < off[tuple(m["columns"])] <= high and columns.trusted(m)]

    close, rough = between(-1.0, CLOSE), between(CLOSE, ROUGH)
    for some, shares in ((close, "Shares"), (rough, "Rough shares")):
        if some:
            worst, which = off[tuple(some[-1]["columns"])], _which(some, ordered)
            good.append(
                f"{shares} in {kind}: {which} {_are(some)} off by no more than {at_most_text(worst)} of the rows."
            )
    if rest := [m for m in reversed(ordered) if m not in close and m not in rough]:
        noisy = sum(m["noise"] is not None and m["high"] / 2 > ROUGH for m in rest)
        hint = f" {noisy} of these {_were(noisy)} measured, with too much noise." if noisy else ""
        within = sum(m["high"] / 2 <= ROUGH for m in rest)
        if within:
            hint += f" Of {within} the cells are closer, but bins are too wide to tell values in them apart."
        bad.append(
            f"Shares in {kind}: {_which(rest, ordered)} may be off by more than {ROUGH:.0%} of the rows.{hint}"
        )


def _relations(quality: Mapping[str, Any], good: list[str], bad: list[str]) -> None:
    measured, through, none = (
        quality["dependencies"][kind] for kind in (MEASURED, THROUGH_OTHERS, INDEPENDENT)
    )
    pairs = sum(map(len, quality["dependencies"].values()))
    chosen = is_chosen(quality.get("shuffling", {}))
    together = "are together in the model" if chosen else "were measured together"
    if measured:
        good.append(
            f"Relations between columns that {together}: {len(measured)} of {pairs} pairs, "
            f"{_names([' and '.join(pair) for pair in measured])}."
        )
    if through or none:
        sentences = [
            *([f"{_pairs(through)} only what follows through other columns"] * bool(through)),
            *([f"{_pairs(none)} no relation at all here, whatever the real one is"] * bool(none)),
        ]
        bad.append(
            f"Other relations between columns: {'; '.join(sentences)}. That two columns look "
            "unrelated here says nothing."
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
    """Returns the columns with a cell of more than one value."""
    return [
        column.name
        for column in domain.columns
        if not isinstance(column, Categorical)
        and any(first < last for first, last in column.cells.ranges)
    ]


def _which(some: Sequence[Marginal], ordered: Sequence[Marginal]) -> str:
    if len(some) == len(ordered):
        return "the only one" if len(some) == 1 else f"all {len(some)}"
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
