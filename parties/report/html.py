"""The page `report.html`: one file that needs nothing else, pictures inside.

Provides `render_html`. Every name and text from the report is escaped, pictures are images in data URIs, and the page's
own policy forbids scripts and every outside resource, so opening it sends nothing to anyone.

Secret: nothing; see `parties.report.content` for which figures are not private.
"""

import base64
import json
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from parties.report import page
from parties.report import pictures as draw
from parties.report.content import NOT_PRIVATE, ReportPictures, excluded_text
from parties.report.pictures import format_bytes
from parties.report.sections import columns_section


def render_html(report: Mapping[str, object], pictures: ReportPictures) -> str:
    """The page for a report that `parties.report.content.check_report` accepts."""
    parts = [
        f"<h1>{page.text(report['dataset'])}</h1>",
        f'<p class="quiet">Synthetic data by {page.text(report["method"])}, made by Syncret.</p>',
        _excluded(report),
        _tiles(report),
        *(f'<p class="warning">{page.text(note)}</p>' for note in _items(report.get("notes"))),
        _trust(report),
        _errors(pictures),
        _columns(pictures),
        columns_section(report),
        _budget(report),
        _opened(report),
        _selected(report),
        _flaim(report),
        _bytes(report),
        _pairs("Time", "Seconds by phase.", _section(report, "time")),
        _pairs(
            "Parameters", "", {**_section(report, "parameters"), **_section(report, "workload")}
        ),
    ]
    body = "\n".join(part for part in parts if part)
    return page.document(f"Syncret: {report['dataset']}", body)


def _section(report: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = report[key]
    if not isinstance(value, Mapping):
        raise ValueError(f"the report's {key!r} is not a table")
    return value


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _tables(value: object) -> list[Mapping[str, object]]:
    return [item for item in _items(value) if isinstance(item, Mapping)]


def _number(value: object) -> float:
    if not isinstance(value, int | float):
        raise ValueError(f"{value!r} in the report is not a number")
    return float(value)


def _picture(figure: Figure, caption: str, *, alt: str) -> str:
    data = base64.b64encode(draw.to_svg(figure).encode("utf-8")).decode("ascii")
    source = f"data:image/svg+xml;base64,{data}"
    return (
        f'<figure><img alt="{page.text(alt)}" src="{source}">\n'
        f"<figcaption>{page.text(caption)}</figcaption></figure>"
    )


def _tiles(report: Mapping[str, object]) -> str:
    parameters, privacy = _section(report, "parameters"), _section(report, "privacy")
    communication, utility = _section(report, "communication"), _section(report, "utility")
    spent, total = _number(privacy["rho_spent"]), _number(privacy["rho_total"])
    tiles = [
        ("privacy", f"ε {_number(parameters['epsilon']):g}, δ {_number(parameters['delta']):g}"),
        ("budget spent", f"{100 * spent / total:.1f} %"),
        ("data owners", parameters["clients"]),
        ("rounds", report.get("rounds_done", parameters["rounds"])),
        ("sent by an owner", format_bytes(_number(communication["client_sent_bytes_mean"]))),
        ("wall time", f"{_number(_section(report, 'time')['total_s']):.1f} s"),
    ]
    if "synthetic_rows" in report:
        tiles.append(("synthetic rows", report["synthetic_rows"]))
    if "workload_error" in utility:
        tiles.append(("workload error *", f"{_number(utility['workload_error']):.3f}"))
    inner = "".join(
        f"<div><b>{page.text(value)}</b><span>{name}</span></div>" for name, value in tiles
    )
    star = f'<p class="quiet">* {page.text(NOT_PRIVATE)}</p>' if "workload_error" in utility else ""
    return f'<div class="tiles">{inner}</div>{_neighbours(report)}{star}'


def _neighbours(report: Mapping[str, object]) -> str:
    """For which tables epsilon and delta are, where the report says so."""
    facts = report.get("flaim")
    guarantee = facts.get("guarantee") if isinstance(facts, Mapping) else None
    if not isinstance(guarantee, Mapping):
        return ""
    told = [f"for {guarantee['unit']}", *(guarantee[k] for k in ("replaced",) if k in guarantee)]
    return f'<p class="quiet">ε and δ: {page.text("; ".join(map(str, told)))}.</p>'


def _excluded(report: Mapping[str, object]) -> str:
    text = excluded_text(report)
    return f'<p class="warning">{page.text(text)}</p>' if text else ""


def _trust(report: Mapping[str, object]) -> str:
    sentences = "".join(f"<li>{page.text(item)}</li>" for item in _items(report.get("trust")))
    return f"<h2>Who had to be trusted</h2>\n<ul>{sentences}</ul>" if sentences else ""


def _errors(pictures: ReportPictures) -> str:
    errors = pictures.query_errors
    if not errors:
        return ""
    worst = sorted(errors, key=lambda item: -item.error)[:5]
    rows = [(" × ".join(item.query), item.error) for item in worst]
    caption = f"L1 distance of normalised marginals. {NOT_PRIVATE}"
    return (
        "<h2>Error per query</h2>\n"
        + _picture(draw.draw_query_errors(errors), caption, alt="Error of each query, worst first")
        + page.table(("worst queries", "error"), rows)
    )


def _columns(pictures: ReportPictures) -> str:
    columns = pictures.columns
    if not columns:
        return ""
    real = any(item.real is not None for item in columns)
    title = "Real against synthetic columns" if real else "Synthetic columns"
    left_out = len(columns) - draw.MAX_COLUMNS_DRAWN
    caption = "Share of rows; a bin is named by its lower end." + (
        f" The real shares: {NOT_PRIVATE}" if real else ""
    )
    caption += f" {left_out} more columns are not drawn." if left_out > 0 else ""
    return f"<h2>{title}</h2>\n" + _picture(draw.draw_columns(columns), caption, alt=title)


def _budget(report: Mapping[str, object]) -> str:
    privacy = _section(report, "privacy")
    ledger = _tables(privacy["ledger"])
    spent, total = _number(privacy["rho_spent"]), _number(privacy["rho_total"])
    charges = [
        (int(_number(e["round"])), str(e.get("step", "")), _number(e["rho"])) for e in ledger
    ]
    rows = [
        (number, step, _event(e["event"]), rho)
        for (number, step, rho), e in zip(charges, ledger, strict=True)
    ]
    extra = _number(privacy["delta_implementation"])
    caption = f"rho {spent:.6g} of {total:.6g} spent; {extra:.3g} of delta is for what was sampled inexactly."
    figure = draw.draw_budget(charges, rho_total=total)
    return (
        "<h2>Privacy budget</h2>\n"
        + _picture(figure, caption, alt="Budget charged per round and spent so far")
        + page.table(("round", "step", "event", "rho"), rows)
    )


def _event(value: object) -> str:
    """A ledger's event in words where it is a JSON table, as it is otherwise."""
    text = str(value)
    try:
        event = json.loads(text)
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


def _opened(report: Mapping[str, object]) -> str:
    opened = _tables(report["opened"])
    sums: dict[tuple[str, str], list[int]] = {}
    for item in opened:
        entry = sums.setdefault((str(item["step"]), str(item["what"])), [0, 0])
        entry[0] += 1
        entry[1] += int(_number(item["count"]))
    rows = [(step, what, times, numbers) for (step, what), (times, numbers) in sums.items()]
    detail = [(item["round"], item["step"], item["what"], item["count"]) for item in opened]
    shares = "Nothing else left the secret shares."
    nothing_else = shares if report.get("flaim") is None else "Choices, and sums with noise."
    return (
        f"<h2>What was opened</h2>\n<p>{page.text(nothing_else)}</p>\n"
        + page.table(("step", "what", "times", "numbers in all"), rows)
        + "<details><summary>Each opening</summary>"
        + page.table(("round", "step", "what", "numbers"), detail)
        + "</details>"
    )


def _selected(report: Mapping[str, object]) -> str:
    rows = [
        (
            item["round"],
            " × ".join(map(str, _items(item["query"]))),
            item["clients"],
            item["rows_estimated"],
            f"{_number(item['sigma']):.4g}",
        )
        for item in _tables(report.get("selected"))
    ]
    heads = ("round", "query", "owners counted", "rows estimated", "sigma")
    return "<h2>Queries chosen</h2>\n" + page.table(heads, rows) if rows else ""


def _bytes(report: Mapping[str, object]) -> str:
    communication = _section(report, "communication")
    by_step = {
        str(step): [int(_number(value)) for value in _items(sent)]
        for step, sent in _section(communication, "server_sent_bytes_by_step").items()
    }
    if not by_step:
        return ""
    mean = _number(communication["client_throughput_mb_mean"])
    formula = _number(communication["paper_formula_mb"])
    caption = f"A data owner sent and received {mean:.3g} MB on average; the paper's formula gives {formula:.3g} MB."
    passed_on = sum(map(_number, _items(communication.get("server_passed_on_bytes", []))))
    if passed_on:
        caption += f" Servers passed {format_bytes(passed_on)} of owners' sealed uploads on to one another."
    if len(next(iter(by_step.values()))) == 1:
        heads: tuple[str, ...] = ("step", "server")
        rows = [(step, *sent) for step, sent in by_step.items()]
    else:
        heads = ("step", "P0", "P1", "P2", "all")
        rows = [(step, *sent, sum(sent)) for step, sent in by_step.items()]
    return (
        "<h2>Bytes per step</h2>\n"
        + _picture(draw.draw_bytes(by_step), caption, alt="Bytes sent by the servers in each step")
        + page.table(heads, rows)
    )


def _flaim(report: Mapping[str, object]) -> str:
    """What only FLAIM has, a table for each group of facts."""
    facts = report.get("flaim")
    if not isinstance(facts, Mapping):
        return ""
    tables = [
        _pairs(str(title).replace("_", " ").capitalize(), "", group)
        for title, group in facts.items()
        if isinstance(group, Mapping)
    ]
    return "\n".join(tables)


def _pairs(title: str, caption: str, values: Mapping[str, object]) -> str:
    note = f'<p class="quiet">{page.text(caption)}</p>' if caption else ""
    return f"<h2>{title}</h2>\n{note}" + page.table(("", ""), list(values.items()))
