"""The accounting of `report.html`, behind what people look at first: charges, openings, bytes, seconds, parameters.

Provides ``accounting``. Secret: nothing; see `parties.report.content`.
"""

from collections import Counter
from collections.abc import Mapping

from parties.report import page
from parties.report import pictures as draw
from parties.report.parts import fold, items, number, optional, pairs, picture, section, tables
from parties.report.pictures import format_bytes
from parties.texts import json_of

_TITLE = "<h2>Accounting</h2>"
_LEAD = '<p class="quiet">What an auditor looks at; report.json has all of it for programs.</p>'


def accounting(report: Mapping[str, object]) -> str:
    """The folded parts at the end of the page."""
    asked = {**section(report, "parameters"), **section(report, "workload")}
    asked.pop("sources", None)
    parts = [
        _budget(report),
        _opened(report),
        *_flaim(report),
        _bytes(report),
        fold("Time: seconds by phase", pairs(section(report, "time"))),
        fold("Parameters", pairs(asked)),
    ]
    return "\n".join([_TITLE, _LEAD, *(part for part in parts if part)])


def _budget(report: Mapping[str, object]) -> str:
    privacy = section(report, "privacy")
    ledger = tables(privacy["ledger"])
    spent, total = number(privacy["rho_spent"]), number(privacy["rho_total"])
    charges = [(int(number(e["round"])), str(e.get("step", "")), number(e["rho"])) for e in ledger]
    rows = [
        (*charge[:2], _event(e["event"]), charge[2])
        for charge, e in zip(charges, ledger, strict=True)
    ]
    extra = number(privacy["delta_implementation"])
    caption = f"rho {spent:.6g} of {total:.6g} spent; {extra:.3g} of delta is for what was sampled inexactly."
    figure = draw.draw_budget(charges, rho_total=total)
    return fold(
        f"Privacy budget: {len(rows)} charges",
        picture(draw.to_svg(figure), caption, alt="Budget charged per round and spent so far")
        + page.table(("round", "step", "event", "rho"), rows),
    )


def _event(value: object) -> str:
    """A ledger's event in words where it is a JSON table, as it is otherwise."""
    text = str(value)
    try:
        event = json_of(text)
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
    """Everything that anybody saw in the clear, by kind and then one by one."""
    opened = tables(report["opened"])
    times = Counter((str(item["step"]), str(item["what"])) for item in opened)
    shares = "Nothing else left the secret shares."
    nothing_else = shares if report.get("flaim") is None else "Choices, and sums with noise."
    detail = [(item["round"], item["step"], item["what"], item["count"]) for item in opened]
    return fold(
        f"What was opened: {len(opened)} openings",
        f"<p>{page.text(nothing_else)}</p>\n"
        + page.table(("step", "what", "times"), [(*kind, count) for kind, count in times.items()])
        + "<p>One by one, with how many values each had: cells of noisy counts, or choices.</p>\n"
        + page.table(("round", "step", "what", "values"), detail),
    )


def _bytes(report: Mapping[str, object]) -> str:
    communication = section(report, "communication")
    by_step = {
        str(step): [int(number(value)) for value in items(sent)]
        for step, sent in section(communication, "server_sent_bytes_by_step").items()
    }
    if not any(map(sum, by_step.values())):
        return ""
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
    return fold(
        "Bytes per step",
        picture(
            draw.to_svg(draw.draw_bytes(by_step)),
            caption,
            alt="Bytes sent by the servers in each step",
        )
        + page.table(heads, rows),
    )


def _flaim(report: Mapping[str, object]) -> list[str]:
    """What only FLAIM has, a part for each group of facts."""
    return [
        fold(f"FLAIM: {str(title).replace('_', ' ')}", pairs(group))
        for title, group in optional(report, "flaim").items()
        if isinstance(group, Mapping) and group
    ]
