"""Report of tables with keys: `report.json` and `report.html`, over the reports of the views.

Figures of the real tables, which a trial has beside the synthetic ones, are not private: the page says so, and
``without_real`` leaves them out. The page follows from the document alone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from mechanisms.keyed.figures import ChildFigures
from mechanisms.text_table import and_list
from parties.foundation.version import TEXT_EDITION
from parties.report.keyed_estimates import KeyedEstimate, not_measured
from parties.report.public import LEFT_OUT
from parties.report.render import HtmlTable, page_templates, pairs_table
from parties.report.shares import share_text
from parties.storage.files import write_atomic

Figures: TypeAlias = Mapping[str, Any]
"""Figures of one table, or of one column or question, as report.json has them."""
REAL = "figures.real"
"""Place in a report of the figures of the real tables."""
_NO_FIGURE = "–"


@dataclass(frozen=True, slots=True)
class Draw:
    """The draw of the tables from the models: of how many persons, by which seed, so that anyone can repeat it."""

    persons: int
    seed: int


@dataclass(frozen=True, slots=True)
class KeyedFigures:
    """Figures of the ``synthetic`` tables, of the ``real`` ones where there are some, and ``estimates``."""

    synthetic: Sequence[ChildFigures]
    real: Sequence[ChildFigures] | None
    estimates: Sequence[KeyedEstimate]


def keyed_document(
    *,
    run: str,
    method: str,
    privacy: Mapping[str, object],
    views: Sequence[Mapping[str, object]],
    tables: Mapping[str, int],
    drawn: Draw,
    figures: KeyedFigures,
) -> dict[str, object]:
    """Returns the content of report.json, but for its time."""
    real = figures.real
    return {
        "edition": TEXT_EDITION,
        "run": run,
        "method": method,
        "privacy": dict(privacy),
        "views": [dict(view) for view in views],
        "tables": dict(tables),
        "persons": drawn.persons,
        "seed": drawn.seed,
        "figures": {
            "synthetic": [each.to_dict() for each in figures.synthetic],
            "real": None if real is None else [each.to_dict() for each in real],
        },
        "estimates": [each.to_dict() for each in figures.estimates],
        "not_measured": {
            each.name: not_measured(figures.estimates, each.name) for each in figures.synthetic
        },
    }


def without_real(document: Mapping[str, object]) -> dict[str, object]:
    """Returns a report without the figures of the real tables; ``left_out`` says that there were some."""
    figures = document["figures"]
    found = {**document, "figures": {**figures, "real": None}}  # type: ignore[dict-item]
    if figures["real"] is not None:  # type: ignore[index]
        found[LEFT_OUT] = [REAL]
    return found


def keyed_page(document: Mapping[str, Any]) -> str:
    """Returns report.html of a report. Raises KeyError, TypeError, ValueError for a document that is none."""
    figures, estimates = document["figures"], document["estimates"]
    synthetic, real = figures["synthetic"], figures["real"]
    sections = [
        {
            "name": each["name"],
            "facts": _facts(each, other),
            "within": _within(each, other),
            "summaries": _summaries(each, other),
            "guesses": and_list(document["not_measured"][each["name"]]),
            "estimates": _estimates(estimates, each["name"]),
        }
        for each, other in zip(synthetic, real or [None] * len(synthetic), strict=True)
    ]
    page = page_templates(__file__).get_template("keyed.html")
    return page.render(
        title=document["run"],
        document=document,
        privacy=pairs_table(document["privacy"]),
        views=_views(document),
        sections=sections,
        real=real is not None,
    )


def report_text(document: Mapping[str, object]) -> str:
    """Returns report.json of a report."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def write_keyed_report(folder: Path, document: Mapping[str, object]) -> None:
    """Writes the two files into ``folder``. Raises StoreError."""
    write_atomic(folder / "report.json", report_text(document))
    write_atomic(folder / "report.html", keyed_page(document))


def _views(document: Mapping[str, Any]) -> HtmlTable:
    rows = [
        (view["name"], view["holds"], view["rows"], f"{view['epsilon']:.4g}", view["report"])
        for view in document["views"]
    ]
    heads = ("view", "a row is", "rows of a person", "epsilon by itself", "its report")
    return HtmlTable(heads, rows)


def _facts(one: Figures, other: Figures | None) -> HtmlTable:
    both = [each for each in (one, other) if each is not None]
    rows = [
        ("rows", *(_shown(each["rows"]) for each in both)),
        ("rows of a person", *map(_numbers, both)),
        (
            "persons with two values in a constant column",
            *(_shown(each["broken"]) for each in both),
        ),
        ("rows before the one that they follow", *(_shown(each["unordered"]) for each in both)),
        ("quartiles of the distance of two rows", *map(_gaps, both)),
    ]
    return HtmlTable(("", "synthetic", "real")[: 1 + len(both)], rows)


def _within(one: Figures, other: Figures | None) -> HtmlTable:
    known = {} if other is None else {each["column"]: each for each in other["columns"]}
    rows = []
    for each in one["columns"]:
        row: list[object] = [each["column"]]
        for of in ("stays", "spread", "correlation"):
            values = [each, *([known[each["column"]]] if other is not None else [])]
            row.append(" / ".join(_shown(value[of]) for value in values))
        rows.append(row)
    said = " (synthetic / real)" if other is not None else ""
    heads = (
        "column",
        f"same as before{said}",
        "spread within a person",
        "correlation with the row before",
    )
    return HtmlTable(heads, rows)


def _summaries(one: Figures, other: Figures | None) -> HtmlTable:
    known = {} if other is None else {each["summary"]: each for each in other["summaries"]}
    rows = list[tuple[str, ...]]()
    for each in one.get("summaries", ()):
        both, name = [each, *([known[each["summary"]]] if known else [])], each["summary"]
        if each["shares"] or each["mean"] is None:
            values = dict.fromkeys(value for of in both for value in of["shares"])
            rows += (
                (f"{name}: {value}", *(share_text(of["shares"].get(value, 0)) for of in both))
                for value in values
            )
            continue
        rows.append((f"{name}, mean", *(_shown(of["mean"]) for of in both)))
        rows.append((f"{name}, deviation", *(_shown(of["deviation"]) for of in both)))
    return HtmlTable(("", "synthetic", "real")[: 2 + (other is not None)], rows)


def estimate_rows(found: Sequence[Figures], table: str) -> list[tuple[str, str, str, str]]:
    """Returns the figures of a table in a report's `estimates` in words: figure, estimate, interval and basis."""
    return [
        (
            each["figure"],
            _shown(each.get("value")),
            f"{_shown(each['low'])} to {_shown(each['high'])}" if "value" in each else _NO_FIGURE,
            each.get("basis") or "not measured: a guess",
        )
        for each in found
        if each["table"] == table
    ]


def _estimates(found: Sequence[Figures], table: str) -> HtmlTable:
    return HtmlTable(("figure", "estimate", "95 % interval", "basis"), estimate_rows(found, table))


def _shown(value: object) -> str:
    if value is None:
        return _NO_FIGURE
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _numbers(figures: Figures) -> str:
    return ", ".join(
        f"{number}: {share_text(share)}" for number, share in figures["numbers"].items()
    )


def _gaps(figures: Figures) -> str:
    return ", ".join(f"{gap:g}" for gap in figures["gaps"]) or _NO_FIGURE
