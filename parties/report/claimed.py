"""Claims on each column, as tables of a report's page and of a model card (text).

No value here is secret. Figures of a real table are in the page alone, and marked.
"""

import math
from collections.abc import Mapping, Sequence

from parties.report.claims import MIDDLE, moved_share
from parties.report.document import items, number, optional, tables
from parties.report.model import NOT_PRIVATE
from parties.report.render import HtmlTable

CLAIM_HEADS = ("column", "off at most", "of it within bins", "10 %", "median", "90 %", "mean")
CLAIMS_NOTE = (
    "Off: for numbers and dates, the largest difference in the share of the rows up to any limit; for categories, "
    "the share of the rows in a wrong category. The real figure lies between the two figures of a column. Both assume "
    "the worst place for a value within its bin, so wide bins make wide ranges."
)
_NO_BOUND = "no bound"
"""Figure of a mean, and of distances, of a column whose bins end nowhere: a few rows may be as far as they like."""
_QUANTILES = ("0.1", "0.5", "0.9")


def claims_values(quality: Mapping[str, object]) -> Mapping[str, object] | None:
    """Returns two tables, each column's figures and the shares of single values; None if there are no claims."""
    claims = tables(quality.get("columns"))
    if not claims:
        return None
    truth = any("true" in claim for claim in claims)
    said = f"{CLAIMS_NOTE} All of them hold together with {number(quality['confidence']):.0%} confidence."
    if truth:
        said += (
            " True figures stand in brackets. Moved: the mean distance by which numbers have to move to turn this "
            f"column into the real one, as a share of the range of {MIDDLE} of the values. True figures: {NOT_PRIVATE}"
        )
    heads = [*CLAIM_HEADS, "moved at most", *(["true off", "wrong"] if truth else [])]
    rows = [_row(claim, truth=truth) for claim in claims]
    values = [row for claim in claims for row in _values(claim)]
    of_values = [
        "column",
        "value",
        "synthetic",
        "at least",
        "at most",
        *(["true"] if truth else []),
    ]
    return {
        "text": said,
        "columns": HtmlTable(heads, rows),
        "shares": HtmlTable(of_values, values),
    }


def claim_rows(claims: Sequence[Mapping[str, object]]) -> list[tuple[str, ...]]:
    """Returns a row for each claim under CLAIM_HEADS, without the figures that only a trial has."""
    return [
        (
            str(claim["column"]),
            _at_most(claim["off"]),
            _at_most(claim["lost"]) if number(claim["lost"]) else "",
            *(
                _interval(optional(claim, "quantiles").get(q), _open_ends(claim))
                for q in _QUANTILES
            ),
            _NO_BOUND if _open_ends(claim) and "mean" in claim else _interval(claim.get("mean")),
        )
        for claim in claims
    ]


def _row(claim: Mapping[str, object], *, truth: bool) -> list[str]:
    (texts,) = claim_rows([claim])
    true = optional(claim, "true")
    of = optional(true, "quantiles")
    beside = [None, None, None, *(of.get(q) for q in _QUANTILES), true.get("mean")]
    cells = [
        text + (f" ({_plain(real)})" if real is not None else "")
        for text, real in zip(texts, beside, strict=True)
    ]
    share, true_share = moved_share(claim), moved_share(true)
    moved = "" if share is None else _at_most(share)
    if moved and _open_ends(claim):
        moved = _NO_BOUND
    elif moved and true_share is not None:
        moved += f" ({_percent(true_share)})"
    held = ", ".join(map(str, items(claim.get("wrong")))) or "nothing"
    return [*cells, moved, *([_percent(true["off"]), held] if truth else [])]


def _values(claim: Mapping[str, object]) -> list[list[object]]:
    named = [(str(item["value"]), item) for item in tables(claim.get("values"))]
    missing = optional(claim, "missing")
    if missing:
        named.append(("(missing)", {**missing, "true": optional(claim, "true").get("missing")}))
    return [
        [
            claim["column"],
            f"{name} (atom)" if item.get("atom") else name,
            *(_percent(item[key]) for key in ("synthetic", "low", "high")),
            *([_percent(item["true"])] if item.get("true") is not None else []),
        ]
        for name, item in named
    ]


def _open_ends(claim: Mapping[str, object]) -> Mapping[str, object]:
    """Returns the ends of a claim's bins that bound nothing; empty if all figures are bounds."""
    return optional(claim, "open")


def _bin_text(value: Mapping[str, object], ends: Mapping[str, object]) -> str:
    """Returns an interval in words; an end among the open ``ends`` is none."""
    low, high = _plain(value["low"]), _plain(value["high"])
    if low == high:
        return low
    below, above = value["low"] == ends.get("low"), value["high"] == ends.get("high")
    if below and above:
        return "any value"
    if below:
        return f"up to {high}"
    return f"from {low} on" if above else f"{low} to {high}"


def _interval(value: object, ends: Mapping[str, object] | None = None) -> str:
    return _bin_text(value, ends or {}) if isinstance(value, Mapping) else ""


def _plain(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _at_most(share: object) -> str:
    """Returns a share in percent, rounded up so that the claim is true as it is written."""
    if number(share) > 1:
        return "over 100 %"
    return f"{math.ceil(number(share) * 1000 - 1e-6) / 10:g} %"


def _percent(share: object) -> str:
    if number(share) > 1:
        return "over 100 %"
    return f"{100 * number(share):.3g} %"
