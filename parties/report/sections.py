"""Sections of report.html that say how good the table is: by what was opened, and its columns as they are written.

Provides ``quality_section`` and ``columns_section``. Every text is escaped. Secret: nothing; figures of a real table
are marked.
"""

from collections.abc import Iterator, Mapping, Sequence

from mechanisms.intervals import MEASURED, NOTHING, SELECTION, WIDER
from parties.report import page
from parties.report.claimed import claims_section
from parties.report.content import NOT_PRIVATE
from parties.report.likely import likely_in_words
from parties.report.parts import fold, items, number, optional, tables
from parties.report.quality import AT_MOST
from parties.report.shuffling import measured_in_words

_SHOWN_QUANTILES = ("0.05", "0.5", "0.95")


def quality_section(report: Mapping[str, object]) -> str:
    """What the table is good for, and how far each marginal may be off; nothing where the report does not say."""
    quality = optional(report, "quality")
    if not quality:
        return ""
    confidence = number(quality["confidence"])
    told = (
        f"This follows from what was opened and is as private as the table. Off is the share of the rows that are in "
        f"a wrong cell of a marginal. With {confidence:.0%} confidence every marginal is off by no more than stands "
        'under "at most", all of them at once.'
    )
    if likely := likely_in_words(quality):
        told += f" {likely}"
    truth = optional(quality, "held")
    if truth:
        below = (
            f", and {truth['likely']} are off by what is likely or less"
            if "likely" in truth
            else ""
        )
        told += (
            f" In this trial {truth['held']} of {truth['intervals']} intervals hold{below}; true errors and this "
            f"sentence: {NOT_PRIVATE}"
        )
    marginals = sorted(tables(quality["marginals"]), key=lambda m: -number(m["high"]))
    queries = [m for m in marginals if m["query"]]
    others = [m for m in marginals if not m["query"]]
    return (
        f"<h2>How good the table is</h2>\n{_verdict(quality)}{_truth(quality)}"
        f'<p class="quiet">{page.text(told)}</p>\n'
        + claims_section(quality)
        + fold("Each query", _marginals(queries, truth=bool(truth)))
        + (fold("Each column and pair", _marginals(others, truth=bool(truth))) if others else "")
        + fold("What the model knows of pairs of columns", _dependencies(quality))
    )


_BASES = {
    MEASURED: "it was measured",
    SELECTION: "another one was chosen",
    WIDER: "a wider one's bound",
    NOTHING: "nothing is known",
}


def _verdict(quality: Mapping[str, object]) -> str:
    found = optional(quality, "verdict")
    parts = []
    for key, title in (("good_for", "Good for"), ("not_for", "Not for")):
        if sentences := items(found.get(key)):
            points = "".join(f"<li>{page.text(sentence)}</li>" for sentence in sentences)
            parts.append(f"<p><b>{title}</b></p>\n<ul>{points}</ul>\n")
    return "".join(parts)


def _truth(quality: Mapping[str, object]) -> str:
    """In a trial, which claims the real table contradicts."""
    sentences = [*items(quality.get("truth"))]
    sentences += filter(None, [measured_in_words(optional(quality, "shuffling"))])
    if not sentences:
        return ""
    said = " ".join(map(str, sentences))
    return f'<p class="warning">{page.text(said)} {page.text(NOT_PRIVATE)}</p>\n'


def _marginals(marginals: Sequence[Mapping[str, object]], *, truth: bool) -> str:
    likely = any("likely" in m for m in marginals)
    rows = [
        (
            " × ".join(map(str, items(m["columns"]))),
            m["cells"],
            _off(m["high"]),
            *((_off(m["likely"]) if "likely" in m else "",) if likely else ()),
            _off(m["low"]),
            ("up to " if m["expected_is"] == AT_MOST else "") + _off(m["expected"]),
            _BASES.get(str(m["basis"]), m["basis"]),
            *((_off(m["true_error"]) + ("" if m["held"] else ", outside"),) if truth else ()),
        )
        for m in marginals
    ]
    heads = ["marginal", "cells", "off at most", *(["likely"] if likely else [])]
    heads += ["at least", "expected", "because"]
    return page.table(heads + ["true (not private)"] * truth, rows)


def _off(distance: object) -> str:
    """An L1 distance as the share of the rows that are in a wrong cell."""
    return f"{50 * number(distance):.3g} %"


def _dependencies(quality: Mapping[str, object]) -> str:
    found = optional(quality, "dependencies")
    kinds = (
        ("measured", "measured together"),
        ("through_others", "only what follows through other columns"),
        ("independent", "independent in the model, whatever they are"),
    )
    rows = [
        (title, len(pairs), ", ".join(" × ".join(map(str, items(pair))) for pair in pairs))
        for key, title in kinds
        if (pairs := items(found.get(key)))
    ]
    return page.table(("", "pairs", "which"), rows)


def columns_section(report: Mapping[str, object]) -> str:
    """Columns at the resolution of the input, synthetic and, in trials, real ones; nothing where there are none."""
    columns = tables(report.get("columns"))
    if not columns:
        return ""
    with_real = any("distance" in column for column in columns)
    told = "Values as the table has them, not bins."
    if with_real:
        told += (
            " Behind each figure that of the real table, in brackets. Distance: of numbers the largest difference of "
            f"the distribution functions, of categories the share of rows in another one. Figures in brackets and "
            f"distances: {NOT_PRIVATE}"
        )
    heads = ["column", "mean", "5 %", "median", "95 %", "zeros", "atoms", "missing"]
    rows = [_column_row(column, with_real=with_real) for column in columns]
    values = [row for column in columns for row in _value_rows(column)]
    of_values = ["column", "value", "synthetic"] + ["real (not private)"] * with_real
    return (
        f'<h2>Columns as they are written</h2>\n<p class="quiet">{page.text(told)}</p>\n'
        + page.table(heads + ["distance"] * with_real, rows)
        + "<details><summary>Single values: atoms and frequent ones</summary>"
        + page.table(of_values, values)
        + "</details>"
    )


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
    """A figure of the synthetic table, and the real one's in brackets if there is one; "" for nothing."""
    if not isinstance(value, Mapping):
        return ""
    shown = [_percent(v) if percent else _plain(v) for v in value.values()]
    return shown[0] + (f" ({shown[1]})" if len(shown) > 1 else "")


def _plain(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _percent(value: object) -> str:
    return f"{100 * value:.3g} %" if isinstance(value, int | float) else str(value)
