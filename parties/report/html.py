"""The page `report.html`: one file without outside resources, with the pictures inside.

First come the parts for readers: one number with its yardstick, tasks, privacy in words, quality, pictures. The
accounting
(`parties.report.html_sections`) follows. This module and that one collect the values; `templates/report.html` has the
markup, and `parties.report.render` escapes every value.

No value here is secret; `parties.report.model` lists the figures that are not private.
"""

import json
import math
from collections.abc import Mapping

from mechanisms.origins import counted_in_words
from parties.config import BY_ORDER
from parties.report import figures as draw
from parties.report.attacker import DRAWN, attacker_of, attackers_of, percent
from parties.report.document import items, number, optional, section, tables
from parties.report.glossary import Words
from parties.report.html_sections import Values, accounting, columns_values, quality_values
from parties.report.model import (
    NOT_PRIVATE,
    Accuracy,
    Associations,
    ExpectedError,
    ReportFigures,
    excluded_text,
)
from parties.report.privacy_text import CENTRAL, headline, is_private, privacy_text
from parties.report.render import HtmlPicture, HtmlTable, page_templates
from parties.report.shares import share_text

_WORST = 5
_PAGES = page_templates(__file__)


def render_html(report: Mapping[str, object], pictures: ReportFigures) -> str:
    """Returns the page for a report that `parties.report.model.check_report` accepts."""
    with_truth = "workload_error" in section(report, "utility")
    return _PAGES.get_template("report.html").render(
        title=report["dataset"],
        headline=headline(report),
        excluded=excluded_text(report),
        privacy=privacy_text(report),
        attacker=_attacker(report),
        accuracy=_accuracy(report, pictures.accuracy),
        words=Words(),
        replaced=optional(optional(report, "flaim"), "guarantee").get("replaced"),
        notes=items(report.get("notes")),
        tiles=_tiles(report),
        footnote=NOT_PRIVATE if with_truth else "",
        quality=quality_values(report, pictures.accuracy),
        associations=_pairs(pictures.associations),
        errors=_errors(report, pictures),
        shares=_columns(report, pictures),
        columns=columns_values(report),
        tables=[
            ("Sources", _sources(report)),
            ("What was measured", _measured(report)),
            ("The columns", _domain(report)),
        ],
        trust=items(report.get("trust")),
        **accounting(report),
    )


def _tiles(report: Mapping[str, object]) -> list[tuple[str, object]]:
    parameters, privacy = section(report, "parameters"), section(report, "privacy")
    utility = section(report, "utility")
    spent, total = number(privacy["rho_spent"]), number(privacy["rho_total"])
    epsilon = f"ε {number(parameters['epsilon']):g}, δ {number(parameters['delta']):g}"
    tiles: list[tuple[str, object]] = [
        ("privacy", epsilon if is_private(report) else "none"),
        ("budget spent", f"{100 * spent / total:.1f} %"),
        ("rounds", report.get("rounds_done", parameters["rounds"])),
    ]
    if report["method"] != CENTRAL:
        tiles.append(("data owners", f"{number(parameters['clients']):,.0f}"))
    if "synthetic_rows" in report:
        tiles.insert(0, ("synthetic rows", f"{number(report['synthetic_rows']):,.0f}"))
    if "workload_error" in utility:
        tiles.append(("workload error *", f"{number(utility['workload_error']):.3f}"))
    return tiles


def _attacker(report: Mapping[str, object]) -> HtmlPicture | None:
    """Returns the picture of the best attacker; None for a report without a guarantee."""
    if not is_private(report):
        return None
    bound = attacker_of(report)
    points = [(share, bound.found_at_most(share)) for share in DRAWN]
    caption = (
        "Up: the largest share of the present rows or persons that an attacker finds. Across: the share of the absent "
        "ones that it falsely suspects. The dashed line is guessing: a curve nearer to it is more private."
    )
    drawn = draw.to_svg(draw.draw_attacker(points))
    name = "What the best attacker finds"
    return HtmlPicture(drawn, caption, alt=name, name=name)


def _accuracy(report: Mapping[str, object], found: Accuracy | None) -> Values | None:
    """Returns the errors of pairs by epsilon, in a picture and a table; None where nothing was measured."""
    if found is None:
        return None
    name = "What another epsilon would do"
    caption = (
        "Error of the measured pairs of columns with another epsilon and all else the same, computed from the shares "
        "of this table as by syncret plan."
    )
    drawn = draw.to_svg(draw.draw_accuracy(found))
    # Where nothing is shown of pairs, shuffled columns are as good as anybody's.
    compared = found.run.independent > 0
    bounds = attackers_of(report, [one.epsilon for one in found.by_epsilon])
    rows = [
        (
            f"{one.epsilon:g}" + (" (this run)" if one.epsilon == found.run.epsilon else ""),
            *(percent(bound.found_at_most(share)) for share in (0.01, 0.1)),
            *map(share_text, (one.table, one.trusted) if compared else (one.table,)),
        )
        for one, bound in zip(found.by_epsilon, bounds, strict=True)
    ]
    heads = (
        "epsilon",
        "found at most, with 1 % falsely suspected",
        "with 10 %",
        "pairs off",
        *(["a trusted party's"] if compared else []),
    )
    return {
        "picture": HtmlPicture(drawn, caption, alt=name, name=name),
        "table": HtmlTable(heads, rows),
    }


def _pairs(found: Associations | None) -> Values | None:
    """Returns the associations of columns, in a picture and by name."""
    if found is None or len(found.columns) < 2:
        return None
    caption = (
        "Strength of the relation of two columns: Cramér's V of the model's cells (bins and atoms), from 0 for "
        "independent columns to 1 where one column determines the other."
    )
    if found.left_out:
        caption += f" The {found.left_out} columns with the weakest relations are not drawn."
    if found.real is not None:
        caption += f" The real table: {NOT_PRIVATE}"
    drawn = [
        HtmlPicture(
            draw.to_svg(draw.draw_association(found.columns, matrix, title)),
            "",
            alt=f"Association of each two columns, {title}",
        )
        for title, matrix in ((draw.TRUE, found.real), ("synthetic", found.synthetic))
        if matrix is not None
    ]
    return {"pictures": drawn, "caption": caption, "table": _named_pairs(found)}


def _named_pairs(found: Associations) -> HtmlTable:
    if found.real is None:
        strongest = [(" × ".join(pair), f"{v:.2f}") for pair, v in found.strongest(_WORST)]
        return HtmlTable(("columns that go together most", "Cramér's V"), strongest)
    farthest = [
        (" × ".join(pair), f"{real:.2f}", f"{made:.2f}")
        for pair, made, real in found.farthest(_WORST)
    ]
    return HtmlTable(("pairs that differ most", "real", "synthetic"), farthest)


def _errors(report: Mapping[str, object], pictures: ReportFigures) -> HtmlPicture | None:
    """Returns the true errors of a trial; elsewhere the bounds on errors, which a trial has in a table only."""
    said = "L1 distance between the real and the synthetic shares of a query's cells, from 0 for equal ones to 2. "
    if pictures.query_errors:
        title, caption = "Largest errors", said + NOT_PRIVATE
        drawn = draw.draw_query_errors(pictures.query_errors)
    elif errors := _expected_errors(optional(report, "quality")):
        title = "Errors to expect"
        confidence = f"{number(section(report, 'quality')['confidence']):.0%}"
        caption = (
            f"{said}Dots: the expected distance, or what it would be if the last choice had been the best. Bars: the "
            f"range of the true distance; all ranges hold together with {confidence} confidence."
        )
        if share := optional(optional(report, "quality"), "likely").get("share"):
            caption += (
                f" Dark: {10 * number(share):.0f} of 10 true distances are expected to lie in it."
            )
        drawn = draw.draw_expected_errors(errors)
    else:
        return None
    return HtmlPicture(draw.to_svg(drawn), caption, alt=title)


def _expected_errors(quality: Mapping[str, object]) -> list[ExpectedError]:
    return [
        ExpectedError(
            tuple(map(str, items(m["columns"]))),
            number(m["expected"]),
            number(m["low"]),
            number(m["high"]),
            number(m["likely"]) if "likely" in m else None,
        )
        for m in tables(quality.get("marginals"))
        if m["query"]
    ]


def _columns(report: Mapping[str, object], pictures: ReportFigures) -> Values | None:
    """Returns a picture of each column."""
    columns = pictures.columns
    if not columns:
        return None
    real = any(item.real is not None for item in columns)
    left_out = len(columns) - draw.MAX_COLUMNS_DRAWN
    caption = (
        "Blue bars: share of the rows. Bins of numbers and dates are drawn equally wide; "
        "their values stand below."
    )
    if any(item.errors for item in columns):
        confidence = f"{number(optional(report, 'quality')['confidence']):.0%}"
        caption += (
            " Dark lines with ends: the range of the real figure; all ranges hold together with "
            f"{confidence} confidence. 10 %, median and 90 %: this share of the rows lies below. Blue dots: the "
            "synthetic table's figures."
        )
    if real:
        caption += f" Orange, the real table: {NOT_PRIVATE}"
    caption += f" {left_out} more columns are not drawn." if left_out > 0 else ""
    drawn = [
        HtmlPicture(
            draw.to_svg(draw.draw_column(item)),
            "",
            alt=f"Shares and intervals of {item.column}, which tables below have as numbers",
            name=item.column,
        )
        for item in columns[: draw.MAX_COLUMNS_DRAWN]
    ]
    title = "Real against synthetic columns" if real else "Synthetic columns"
    return {"title": title, "pictures": drawn, "caption": caption}


def _sources(report: Mapping[str, object]) -> Values | None:
    """Returns the table of sources and their linkage, None if there are none."""
    sources = tables(section(report, "workload").get("sources"))
    if not sources:
        return None
    by = "their places" if section(report, "parameters").get("link") == BY_ORDER else "linking keys"
    said = (
        f"The rows of {len(sources)} sources were linked by {by}, on secret shares. The table stands for the rows in "
        "all sources."
    )
    if len(sources) == 1:
        said = f"Each row came with {by}, on secret shares: the rows of a person were limited, and nobody saw whose."
    rows = [
        (
            s["name"],
            ", ".join(map(str, items(s["columns"]))),
            s["owners"],
            f"{number(s['rows_capacity']):,.0f}",
        )
        for s in sources
    ]
    heads = ("source", "columns", "data owners", "rows that these may have")
    return {"text": said, "table": HtmlTable(heads, rows)}


def _measured(report: Mapping[str, object]) -> Values | None:
    """Returns the table of measured marginals with the noise of each."""
    sizes = {str(c["name"]): c["cells"] for c in tables(optional(report, "about").get("columns"))}
    chosen: dict[tuple[str, ...], list[Mapping[str, object]]] = {}
    for item in tables(report.get("selected")):
        chosen.setdefault(tuple(map(str, items(item["query"]))), []).append(item)
    rows = [_measurement(query, times, sizes) for query, times in chosen.items()]
    if not rows:
        return None
    times, rounds = (
        sum(map(len, chosen.values())),
        len({r["round"] for c in chosen.values() for r in c}),
    )
    first = _first_noise(report)
    said = (
        "Every column by itself was measured first"
        + (f", with noise of {first:.4g} rows in a cell" if first else "")
        + f". Then, in {rounds} {_plural('round', rounds)}, {len(chosen)} {_plural('query', len(chosen))} "
        f"{'was' if len(chosen) == 1 else 'were'} chosen and measured, {times} {_plural('time', times)} in all. All "
        f"else in the table comes from the model{_of_earlier(report)}."
    )
    heads: tuple[str, ...] = (
        "query",
        "cells",
        "chosen in round",
        "noise of a cell, in rows",
        "owners counted",
    )
    if report["method"] == CENTRAL:
        # Central AIM has one table and no owners to count.
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    return {"text": said, "table": HtmlTable(heads, rows)}


def _of_earlier(report: Mapping[str, object]) -> str:
    """Returns where a refresh's model has the rest from; "" of any other run."""
    return ", and that from the earlier one" if optional(report, "about").get("start") else ""


def _measurement(
    query: tuple[str, ...], times: list[Mapping[str, object]], sizes: Mapping[str, object]
) -> tuple[object, ...]:
    cells = 1
    for name in query:
        size = sizes.get(name)
        cells *= size if isinstance(size, int) else 0
    noise = _from_to([number(item["sigma"]) for item in times])
    owners = _from_to([number(item["clients"]) for item in times])
    rounds = ", ".join(dict.fromkeys(str(item["round"]) for item in times))
    return " × ".join(query), cells or "", rounds, noise, owners


def _plural(noun: str, count: int) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return noun if count == 1 else plural


def _from_to(values: list[float]) -> str:
    low, high = (f"{value:.4g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _first_noise(report: Mapping[str, object]) -> float | None:
    """Returns the deviation of round 0's noise, from the charge for it."""
    for entry in tables(section(report, "privacy")["ledger"]):
        try:
            event = json.loads(str(entry.get("event")))
        except ValueError:
            continue
        if entry.get("round") == 0 and isinstance(event, dict) and "sigma" in event:
            return number(event["sigma"]) * math.sqrt(number(event.get("parts", 1)))
    return None


def _domain(report: Mapping[str, object]) -> Values | None:
    """Returns the table of the columns, as the public configuration describes them."""
    facts = optional(report, "about")
    rows = [
        (
            item["name"],
            item["kind"],
            item["cells"] or "",
            item["values"],
            item.get("provenance", ""),
        )
        for item in tables(facts.get("columns"))
    ]
    if not rows:
        return None
    said = (
        f"The domain of the study {facts.get('study')}; the digest of its configuration is "
        f"{facts.get('configuration')}."
    )
    if counts := {name: int(number(n)) for name, n in optional(facts, "provenance").items()}:
        said += f" {counted_in_words(counts)}"
    heads = ("column", "kind", "cells", "values", "from")
    return {"text": said, "table": HtmlTable(heads, rows)}
