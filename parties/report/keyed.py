"""Report of tables with keys: `report.json` and `report.html`, over the reports of the views.

Figures of the real tables, which a trial has beside the synthetic ones, are not private: the page says so.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mechanisms.keyed.figures import ChildFigures
from mechanisms.text_table import and_list
from parties.report.keyed_estimates import KeyedEstimate, not_measured
from parties.report.render import HtmlTable, page_templates, pairs_table
from parties.report.shares import share_text
from parties.storage.files import write_atomic

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
    seconds: float,
) -> dict[str, object]:
    """Returns the content of report.json."""
    real = figures.real
    return {
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
        "time": {"total_s": seconds},
    }


def write_keyed_report(
    folder: Path,
    document: Mapping[str, object],
    figures: KeyedFigures,
) -> None:
    """Writes the two files into ``folder``. Raises StoreError."""
    synthetic, real = figures.synthetic, figures.real
    others: Sequence[ChildFigures | None] = real or [None] * len(synthetic)
    sections = [
        {
            "name": each.name,
            "facts": _facts(each, other),
            "within": _within(each, other),
            "summaries": _summaries(each, other),
            "guesses": and_list(not_measured(figures.estimates, each.name)),
            "estimates": _estimates(figures.estimates, each.name),
        }
        for each, other in zip(synthetic, others, strict=True)
    ]
    page = page_templates(__file__).get_template("keyed.html")
    text = page.render(
        title=document["run"],
        document=document,
        privacy=_privacy(document),
        views=_views(document),
        sections=sections,
        real=real is not None,
    )
    write_atomic(folder / "report.json", json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    write_atomic(folder / "report.html", text)


def _privacy(document: Mapping[str, object]) -> HtmlTable:
    return pairs_table(document["privacy"])  # type: ignore[arg-type]


def _views(document: Mapping[str, object]) -> HtmlTable:
    rows = [
        (view["name"], view["holds"], view["rows"], f"{view['epsilon']:.4g}", view["report"])
        for view in document["views"]  # type: ignore[attr-defined]
    ]
    heads = ("view", "a row is", "rows of a person", "epsilon by itself", "its report")
    return HtmlTable(heads, rows)


def _facts(one: ChildFigures, other: ChildFigures | None) -> HtmlTable:
    def row(name: str, of: str) -> tuple[str, ...]:
        values = [getattr(each, of) for each in (one, other) if each is not None]
        return (name, *map(_shown, values))

    rows = [
        row("rows", "rows"),
        ("rows of a person", *(_numbers(each) for each in (one, other) if each is not None)),
        row("persons with two values in a constant column", "broken"),
        row("rows before the one that they follow", "unordered"),
        (
            "quartiles of the distance of two rows",
            *(_gaps(e) for e in (one, other) if e is not None),
        ),
    ]
    return HtmlTable(("", "synthetic", "real")[: 2 + (other is not None)], rows)


def _within(one: ChildFigures, other: ChildFigures | None) -> HtmlTable:
    known = {} if other is None else {each.column: each for each in other.columns}
    rows = []
    for each in one.columns:
        row: list[object] = [each.column]
        for of in ("stays", "spread", "correlation"):
            values = [each, *([known[each.column]] if other is not None else [])]
            row.append(" / ".join(_shown(getattr(value, of)) for value in values))
        rows.append(row)
    said = " (synthetic / real)" if other is not None else ""
    heads = (
        "column",
        f"same as before{said}",
        "spread within a person",
        "correlation with the row before",
    )
    return HtmlTable(heads, rows)


def _summaries(one: ChildFigures, other: ChildFigures | None) -> HtmlTable:
    known = {} if other is None else {each.summary: each for each in other.summaries}
    rows = list[tuple[str, ...]]()
    for each in one.summaries:
        both = [each, *([known[each.summary]] if other is not None else [])]
        if each.shares or each.mean is None:
            values = dict.fromkeys(value for of in both for value in of.shares)
            rows += (
                (f"{each.summary}: {value}", *(share_text(of.shares.get(value, 0)) for of in both))
                for value in values
            )
            continue
        rows.append((f"{each.summary}, mean", *(_shown(of.mean) for of in both)))
        rows.append((f"{each.summary}, deviation", *(_shown(of.deviation) for of in both)))
    return HtmlTable(("", "synthetic", "real")[: 2 + (other is not None)], rows)


def _estimates(found: Sequence[KeyedEstimate], table: str) -> HtmlTable:
    rows = []
    for each in found:
        if each.table != table:
            continue
        answer = each.estimate
        interval = f"{_shown(answer.low)} to {_shown(answer.high)}" if each.known else _NO_FIGURE
        basis = answer.basis or "not measured: a guess"
        rows.append((each.said, _shown(answer.value), interval, basis))
    return HtmlTable(("figure", "estimate", "95 % interval", "basis"), rows)


def _shown(value: object) -> str:
    if value is None:
        return _NO_FIGURE
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _numbers(figures: ChildFigures) -> str:
    return ", ".join(f"{number}: {share_text(share)}" for number, share in figures.numbers.items())


def _gaps(figures: ChildFigures) -> str:
    return ", ".join(f"{gap:g}" for gap in figures.gaps) or _NO_FIGURE
