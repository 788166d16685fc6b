"""Values of sections of report.html: quality of the table, its columns as they are written, and the accounting.

The quality follows from the opened values. The accounting has charges, openings, bytes, seconds and parameters, and is
the last part of the page. Markup is in `templates/`: `_quality.html`, `_accounting.html` and `report.html`. No value
here is secret; figures of a real table are marked (see `parties.report.model`).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from mechanisms.intervals import MEASURED, NOTHING, SELECTION, WIDER
from parties.foundation.untrusted_text import parse_json
from parties.report import dependencies as pairs
from parties.report import figures as draw
from parties.report.claimed import claims_values
from parties.report.document import items, number, optional, section, tables
from parties.report.figures import format_bytes
from parties.report.glance import matrix, scale, tasks
from parties.report.likely import likely_error_text
from parties.report.model import NOT_PRIVATE, Accuracy
from parties.report.privacy_text import CENTRAL
from parties.report.quality import AT_MOST
from parties.report.render import HtmlPicture, HtmlTable, pairs_table
from parties.report.shuffling import is_chosen, measured_text

Values: TypeAlias = Mapping[str, object]
"""Values of a section by the names that its template uses."""
_SHOWN_QUANTILES = ("0.05", "0.5", "0.95")


def quality_values(report: Mapping[str, object], accuracy: Accuracy | None = None) -> Values | None:
    """Returns the verdict and the bound on each marginal's error, None if the report has no quality."""
    quality = optional(report, "quality")
    if not quality:
        return None
    confidence = number(quality["confidence"])
    rows = (
        "These figures follow from the opened values and are as private as the table. Off is the share of the rows "
        "that are in a wrong cell of a marginal. All upper limits below hold at once with "
        f"{confidence:.0%} confidence."
    )
    if likely := likely_error_text(quality):
        rows += f" {likely}"
    truth = optional(quality, "held")
    if truth:
        below = (
            f", and {truth['likely']} true errors are within the likely error"
            if "likely" in truth
            else ""
        )
        rows += (
            f" In this trial {truth['held']} of {truth['intervals']} intervals hold{below}. This sentence and true "
            f"errors: {NOT_PRIVATE}"
        )
    marginals = sorted(tables(quality["marginals"]), key=lambda m: -number(m["high"]))
    queries = [m for m in marginals if m["query"]]
    others = [m for m in marginals if not m["query"]]
    pairs_of = optional(quality, "dependencies").get(pairs.MEASURED)
    together = {frozenset(map(str, items(pair))) for pair in items(pairs_of)}
    table = partial(_marginals, together=together, truth=bool(truth))
    return {
        "scale": scale(quality, accuracy),
        "tasks": _tasks(quality),
        "matrix": matrix(quality),
        "verdict": _verdict(quality),
        "truth": _truth(quality),
        "text": rows,
        "claims": claims_values(quality),
        "queries": table(queries),
        "others": table(others) if others else None,
        "dependencies": _dependencies(quality),
        "earlier": _earlier(quality),
    }


_BASES = {
    MEASURED: "measured",
    SELECTION: "another query was chosen",
    WIDER: "bound of a wider marginal",
    NOTHING: "nothing is known",
}
_OF_MEASURED = {
    SELECTION: "measured; the last choice gives a tighter bound",
    WIDER: "measured; a wider marginal gives a tighter bound",
    NOTHING: "measured, with too much noise",
}
"""Bases of the bound on a measured marginal, where another bound is lower than the measurement's."""


_OF_SOME = "measured, at some owners only"


def _basis(marginal: Mapping[str, object], together: Collection[frozenset[str]]) -> str:
    """Returns the basis of a bound in words; ``together`` are the pairs that were measured and are in the model."""
    columns = frozenset(map(str, items(marginal["columns"])))
    if marginal["noise"] is not None:
        bases = _BASES | _OF_MEASURED
    else:
        bases = _BASES | ({NOTHING: _OF_SOME} if columns in together else {})
    return bases.get(str(marginal["basis"]), str(marginal["basis"]))


def _tasks(quality: Mapping[str, object]) -> Values | None:
    """Returns the tasks, and the mark of what a trial adds, "" without."""
    found = tasks(quality)
    return (
        {"rows": found, "truth": NOT_PRIVATE if any(t.truth for t in found) else ""}
        if found
        else None
    )


def _verdict(quality: Mapping[str, object]) -> list[tuple[str, Sequence[object]]]:
    found = optional(quality, "verdict")
    titles = (("good_for", "Good for"), ("not_for", "Not for"))
    return [(title, items(found[key])) for key, title in titles if items(found.get(key))]


def _truth(quality: Mapping[str, object]) -> str:
    """Returns the claims that the real table contradicts, in a trial; "" if there are none."""
    sentences = [*items(quality.get("truth"))]
    sentences += filter(None, [measured_text(optional(quality, "shuffling"))])
    if not sentences:
        return ""
    return " ".join([*map(str, sentences), NOT_PRIVATE])


def _marginals(
    marginals: Sequence[Mapping[str, object]],
    *,
    together: Collection[frozenset[str]],
    truth: bool,
) -> HtmlTable:
    likely = any("likely" in m for m in marginals)
    rows = [
        (
            " × ".join(map(str, items(m["columns"]))),
            m["cells"],
            _off(m["high"]),
            *((_off(m["likely"]) if "likely" in m else "",) if likely else ()),
            _off(m["low"]),
            ("up to " if m["expected_is"] == AT_MOST else "") + _off(m["expected"]),
            _basis(m, together),
            *((_off(m["true_error"]) + ("" if m["held"] else ", outside"),) if truth else ()),
        )
        for m in marginals
    ]
    heads = ["marginal", "cells", "off at most", *(["likely"] if likely else [])]
    heads += ["at least", "expected", "basis"]
    return HtmlTable(heads + ["true (not private)"] * truth, rows)


def _off(distance: object) -> str:
    """Returns an L1 distance as the share of the rows that are in a wrong cell."""
    return f"{50 * number(distance):.3g} %"


def _dependencies(quality: Mapping[str, object]) -> HtmlTable:
    found = optional(quality, "dependencies")
    chosen = is_chosen(optional(quality, "shuffling") or {})
    kinds = (
        (pairs.MEASURED, "together in the model" if chosen else "measured together"),
        (pairs.TAKEN_OVER, "taken over from the earlier model, not measured now"),
        (pairs.THROUGH_OTHERS, "only what follows through other columns"),
        (pairs.INDEPENDENT, "independent in the model, whatever they are"),
    )
    rows = [
        (title, len(some), ", ".join(" × ".join(map(str, items(pair))) for pair in some))
        for key, title in kinds
        if (some := items(found.get(key)))
    ]
    return HtmlTable(("", "pairs", "which"), rows)


def _earlier(quality: Mapping[str, object]) -> HtmlTable | None:
    """Returns the measured marginals of a refresh beside the earlier model's answers; None of any other run."""
    marginals = tables(optional(quality, "earlier").get("marginals"))
    rows = [
        (
            " × ".join(map(str, items(m["columns"]))),
            _percent(m["apart"]),
            _percent(m["noise"]),
            "more than noise explains" if m["changed"] else "no more than noise explains",
        )
        for m in marginals
    ]
    heads = ("marginal", "measured, from the earlier model", "by noise alone", "")
    return HtmlTable(heads, rows) if rows else None


def columns_values(report: Mapping[str, object]) -> Values | None:
    """Returns the columns at the resolution of the input, synthetic and, in trials, real ones; None without any."""
    columns = tables(report.get("columns"))
    if not columns:
        return None
    with_real = any("distance" in column for column in columns)
    summaries = "The values of the table, not its bins."
    if with_real:
        summaries += (
            " The figures of the real table stand in brackets. Distance: for numbers, the largest difference of the "
            "distribution functions; for categories, the share of the rows in another one. Brackets and distances: "
            f"{NOT_PRIVATE}"
        )
    heads = ["column", "mean", "5 %", "median", "95 %", "zeros", "atoms", "missing"]
    rows = [_column_row(column, with_real=with_real) for column in columns]
    values = [row for column in columns for row in _value_rows(column)]
    of_values = ["column", "value", "synthetic"] + ["real (not private)"] * with_real
    return {
        "text": summaries,
        "summaries": HtmlTable(heads + ["distance"] * with_real, rows),
        "shares": HtmlTable(of_values, values),
    }


def _column_row(column: Mapping[str, object], *, with_real: bool) -> list[object]:
    quantiles = column.get("quantiles")
    by = quantiles if isinstance(quantiles, Mapping) else {}
    cells: list[object] = [
        column["column"],
        _pair(column.get("mean")),
        *(_pair(by.get(q)) for q in _SHOWN_QUANTILES),
        *(_pair(column.get(key), percent=True) for key in ("zeros", "atoms", "missing")),
    ]
    distance = column.get("distance")
    return cells + [f"{distance:.3f}" if isinstance(distance, float) else ""] * with_real


def _value_rows(column: Mapping[str, object]) -> Iterator[list[object]]:
    for item in tables(column.get("values")):
        shares = [_percent(item[name]) for name in ("synthetic", "real") if name in item]
        name = f"{item['value']} (atom)" if item.get("atom") else item["value"]
        yield [column["column"], name, *shares]


def _pair(value: object, *, percent: bool = False) -> str:
    """Returns a figure of the synthetic table, with the real one's in brackets if there is one; "" for nothing."""
    if not isinstance(value, Mapping):
        return ""
    shown = [_percent(v) if percent else _plain(v) for v in value.values()]
    return shown[0] + (f" ({shown[1]})" if len(shown) > 1 else "")


def _plain(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _percent(value: object) -> str:
    return f"{100 * value:.3g} %" if isinstance(value, int | float) else str(value)


def accounting(report: Mapping[str, object]) -> Values:
    """Returns the values of the folded parts at the end of the page."""
    return {
        "budget": _budget(report),
        "opened": _opened(report),
        "flaim": _flaim(report),
        "traffic": _bytes(report),
        "time": pairs_table(section(report, "time")),
        "parameters": pairs_table(_parameters(report)),
    }


_OF_SERVERS = ("clients", "participation", "security", "input", "upload", "rows_capacity")
"""Parameters that mean nothing where one machine has the whole table."""


def _parameters(report: Mapping[str, object]) -> Values:
    """Returns the parameters that say something of this run, by name."""
    asked = {**section(report, "parameters"), **section(report, "workload")}
    left_out = ["sources", *(_OF_SERVERS if report["method"] == CENTRAL else ())]
    if asked.get("input") == "rows":
        # The form of counts, which nobody sent.
        left_out.append("upload")
    # A run may end before its last round.
    return {
        {"rounds": "rounds, at most"}.get(key, key.replace("_", " ")): value
        for key, value in asked.items()
        if key not in left_out
    }


def _budget(report: Mapping[str, object]) -> Values:
    privacy = section(report, "privacy")
    ledger = tables(privacy["ledger"])
    spent, total = number(privacy["rho_spent"]), number(privacy["rho_total"])
    charges = [(int(number(e["round"])), str(e.get("step", "")), number(e["rho"])) for e in ledger]
    rows = [
        (*charge[:2], _event(e["event"]), charge[2])
        for charge, e in zip(charges, ledger, strict=True)
    ]
    extra = number(privacy["delta_implementation"])
    caption = f"rho {spent:.6g} of {total:.6g} spent; {extra:.3g} of delta covers inexact sampling."
    figure = draw.draw_budget(charges, rho_total=total)
    alt = "Budget charged per round and spent so far"
    return {
        "picture": HtmlPicture(draw.to_svg(figure), caption, alt=alt),
        "table": HtmlTable(("round", "step", "event", "rho"), rows),
    }


def _event(value: object) -> str:
    """Returns a ledger's event in words if it is a JSON table, else unchanged."""
    text = str(value)
    try:
        event = parse_json(text)
    except ValueError:
        return text
    if not isinstance(event, dict):
        return text
    details = (
        f"{k} {v:.6g}" if isinstance(v, float) else f"{k} {v}"
        for k, v in event.items()
        if k != "kind"
    )
    return ", ".join((str(event.get("kind", "event")), *details))


def _opened(report: Mapping[str, object]) -> Values:
    """Returns the opened values, counted by kind and then one by one."""
    opened = tables(report["opened"])
    times = Counter((str(item["step"]), str(item["what"])) for item in opened)
    shares = "Nothing else left the secret shares."
    if report["method"] == CENTRAL:
        shares = "Choices, and counts with noise. One machine had the table."
    detail = [(item["round"], item["step"], item["what"], item["count"]) for item in opened]
    kinds = [(*kind, count) for kind, count in times.items()]
    return {
        "text": shares if report.get("flaim") is None else "Choices, and sums with noise.",
        "kinds": HtmlTable(("step", "what", "times"), kinds),
        "detail": HtmlTable(("round", "step", "what", "values"), detail),
    }


def _bytes(report: Mapping[str, object]) -> Values | None:
    communication = section(report, "communication")
    by_step = {
        str(step): [int(number(value)) for value in items(sent)]
        for step, sent in section(communication, "server_sent_bytes_by_step").items()
    }
    if not any(map(sum, by_step.values())):
        return None
    mean = number(communication["client_throughput_mb_mean"])
    formula = number(communication["paper_formula_mb"])
    caption = f"A data owner sent and received {mean:.3g} MB on average; the paper's formula gives {formula:.3g} MB."
    passed_on = sum(map(number, items(communication.get("server_passed_on_bytes", []))))
    if passed_on:
        caption += f" Servers passed {format_bytes(passed_on)} of owners' sealed uploads on to one another."
    if len(next(iter(by_step.values()))) == 1:
        heads: tuple[str, ...] = ("step", "server")
        rows = [(step, *sent) for step, sent in by_step.items()]
    else:
        heads = ("step", "P0", "P1", "P2", "all")
        rows = [(step, *sent, sum(sent)) for step, sent in by_step.items()]
    alt = "Bytes sent by the servers in each step"
    return {
        "picture": HtmlPicture(draw.to_svg(draw.draw_bytes(by_step)), caption, alt=alt),
        "table": HtmlTable(heads, rows),
    }


def _flaim(report: Mapping[str, object]) -> list[tuple[str, HtmlTable]]:
    """Returns the parts that only FLAIM has, one for each group of facts."""
    return [
        (str(title).replace("_", " "), pairs_table(group))
        for title, group in optional(report, "flaim").items()
        if isinstance(group, Mapping) and group
    ]
