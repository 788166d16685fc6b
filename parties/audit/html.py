"""The page `audit.html`: checks and their findings, limits of the audit, a sequence diagram, and bytes of every step.

The sequence diagram has one row for each step of each round, with the bytes that each pair of servers exchanged, and
bands for charges, openings and seals. All content comes from the transcripts and is escaped. No value here is secret.
Known limit: a run of many rounds makes a long diagram, which scrolls.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from parties.audit.checks import costs
from parties.audit.evidence import MeshSession, TranscriptAttempt, TranscriptEntry
from parties.audit.findings import CONTRADICTIONS, FAIL, CheckFailure
from parties.audit.runner import PAIRS, Audit
from parties.mpc.transcript_schema import ROUND, SELECTED
from parties.report import html_parts

_COLUMNS = (330, 560, 790)
_WIDTH, _ROW = 860, 18
_INK, _BLUE, _ORANGE, _GREEN, _GREY = "#2d3640", "#2b6cb0", "#b35c0e", "#2f7a58", "#c3cad3"


@dataclass(frozen=True, slots=True)
class EventBand:
    """An event at one server or at all three: a line of text in a colour."""

    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class ByteFlow:
    """Bytes of one step of a round, by sender and receiver."""

    label: str
    sent: Mapping[tuple[int, int], int]


def render_audit(audit: Audit) -> str:
    """Returns the page of an audit."""
    verdict = "Everything that can be checked holds." if audit.ok else "Not everything holds."
    failed = [check for check in audit.checks if check.status == FAIL]
    sections = [
        f"<h1>Audit of a run of {'three servers' if audit.servers > 1 else 'one server and its clients'}</h1>",
        f"<p><b>{html_parts.html_text(verdict)}</b></p>",
        *(
            f'<p class="warning"><b>{html_parts.html_text(check.name)}</b>: {html_parts.html_text(check.detail)}</p>'
            for check in failed
        ),
        "<h2>Checks</h2>",
        html_parts.html_table(
            ("check", "status", "what was found"),
            [(check.name, check.status, check.detail) for check in audit.checks],
            whole=True,
        ),
        "<h2>What no audit of transcripts can show</h2>",
        f"<ul>{''.join(f'<li>{html_parts.html_text(sentence)}</li>' for sentence in audit.limits)}</ul>",
        *_pictures(audit),
    ]
    return html_parts.html_document("Syncret: audit", "\n".join(sections))


def _pictures(audit: Audit) -> Iterator[str]:
    if audit.evidence is None:
        return
    if audit.servers == 1:
        transcript = audit.evidence.transcripts[0]
        yield "<h2>Who sent what</h2>"
        caption = "One row for each kind of message of a round, from above: bytes to and from all clients."
        yield f'<p class="quiet">{caption}</p>'
        for attempt in transcript.attempts:
            yield _diagram(
                list(_client_events(attempt)), [transcript.header.text("name"), "clients"]
            )
        return
    try:
        sessions, traffic = audit.evidence.sessions, _traffic(audit)
    except (CheckFailure, *CONTRADICTIONS) as error:
        yield f'<p class="quiet">The traffic cannot be shown: {html_parts.html_text(error)}</p>'
        return
    yield "<h2>Traffic by step</h2>"
    yield traffic
    for number, session in enumerate(sessions, start=1):
        title = "Who sent what" + (
            f", mesh {number} of {len(sessions)}" if len(sessions) > 1 else ""
        )
        yield f"<h2>{title}</h2>"
        yield (
            '<p class="quiet">One row for each step of a round, from above: payload bytes between each two servers, '
            "the ones sent to the right first.</p>"
        )
        names = [transcript.header.text("name") for transcript in audit.evidence.transcripts]
        yield _diagram(list(events(session)), names)


def _traffic(audit: Audit) -> str:
    if audit.evidence is None:
        return ""
    steps = costs.by_step(audit.evidence, audit.terms)
    rows = [
        (step, *sent, _by_formula(sent, wanted), rounds)
        for step, (sent, wanted, rounds) in steps.items()
    ]
    heads = ("step", *(f"bytes sent by {pid}" for pid in range(3)), "formula", "rounds")
    return html_parts.html_table(heads, rows)


def _by_formula(sent: Sequence[int], wanted: Sequence[int] | None) -> str:
    if wanted is None:
        return "no formula"
    return "the same" if wanted == sent else "another size"


def events(session: MeshSession) -> Iterator[EventBand | ByteFlow]:
    """Yields the events of a mesh, as recorded by the first server that was present."""
    sums = {attempt.pid: costs.tallies(attempt) for attempt in session.present}
    shown: set[costs.StepInRound] = set()
    for entry in session.present[0].entries:
        if entry.kind in ("sent", "received"):
            key = costs.step_in_round(entry)
            if key not in shown:
                shown.add(key)
                yield _flow(key, sums)
        elif (band := _band(entry, session.present[0])) is not None:
            yield band


def _client_events(attempt: TranscriptAttempt) -> Iterator[EventBand | ByteFlow]:
    """Yields the events between one server and its clients."""
    sums = costs.tallies(attempt)
    shown: set[costs.StepInRound] = set()
    for entry in attempt.entries:
        if entry.kind in ("sent", "received"):
            key = costs.step_in_round(entry)
            if key not in shown:
                shown.add(key)
                tally = sums[key]
                yield ByteFlow(_label_of(key), {(0, 1): tally.sent, (1, 0): tally.received})
        elif (band := _band(entry, attempt)) is not None:
            yield band


def _flow(
    key: costs.StepInRound, sums: Mapping[int, Mapping[costs.StepInRound, costs.MessageTally]]
) -> ByteFlow:
    sent = {
        (pid, peer): sum(sizes)
        for pid, tallies in sums.items()
        if key in tallies
        for peer, sizes in tallies[key].sizes.items()
    }
    return ByteFlow(_label_of(key), sent)


def _label_of(key: costs.StepInRound) -> str:
    return f"round {key.round}: {key.step}" if key.round >= 0 else key.step


def _band(entry: TranscriptEntry, attempt: TranscriptAttempt) -> EventBand | None:
    if entry.is_note(ROUND.what):
        owners = entry.number("clients")
        return EventBand(f"round {entry.number('round')}: {owners} data owners are counted", _INK)
    if entry.is_note(SELECTED.what) and "query" in entry.record:
        return EventBand(f"chosen: {entry.text('query')}", _GREEN)
    if entry.kind == "ledger":
        return EventBand(
            f"charged for {entry.text('step')}: rho = {entry.real('rho'):.4g}", _ORANGE
        )
    if entry.kind == "opened":
        count = entry.number("count")
        values = f", {count} values" if count > 1 else ""
        return EventBand(f"opened to all: {entry.text('what')}{values}", _GREEN)
    if entry.kind == "seal":
        return EventBand(f"server {attempt.pid} signs: {entry.text('reason')}", _GREY)
    return None


def _diagram(rows: Sequence[EventBand | ByteFlow], names: Sequence[str]) -> str:
    height = 40 + sum(_ROW * (1 if isinstance(row, EventBand) else 2) for row in rows)
    parts = [
        f'<div class="scroll" style="max-height: 48rem"><svg width="{_WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="11" role="img" '
        'aria-label="Messages between the three servers in the order of the protocol">'
    ]
    for pid, (x, name) in enumerate(zip(_COLUMNS, names, strict=False)):
        parts.append(_label(x, 14, f"{pid}: {name}", _INK, "middle"))
        parts.append(f'<line x1="{x}" y1="22" x2="{x}" y2="{height}" stroke="{_GREY}"/>')
    y = 40
    for row in rows:
        if isinstance(row, EventBand):
            parts.append(_label(8, y, row.text, row.colour, "start"))
            y += _ROW
        else:
            parts.extend(_arrows(row, y))
            y += 2 * _ROW
    return "".join([*parts, "</svg></div>"])


def _arrows(flow: ByteFlow, y: int) -> Iterator[str]:
    yield _label(24, y, flow.label, _INK, "start")
    for first, second in PAIRS:
        forth, back = flow.sent.get((first, second), 0), flow.sent.get((second, first), 0)
        if forth + back == 0:
            continue
        # The two outer servers' line lies below that of the neighbours.
        line = y + (_ROW - 2 if (first, second) == (0, 2) else 0)
        left, right = _COLUMNS[first] + 4, _COLUMNS[second] - 4
        yield f'<line x1="{left}" y1="{line}" x2="{right}" y2="{line}" stroke="{_BLUE}"/>'
        if forth:
            yield _head(right, line, -6)
        if back:
            yield _head(left, line, 6)
        middle = (left + right) // 2 + (60 if (first, second) == (0, 2) else 0)
        yield _label(middle, line - 3, f"{forth:,} / {back:,} B", _BLUE, "middle")


def _head(x: int, y: int, reach: int) -> str:
    points = f"{x},{y} {x + reach},{y - 3} {x + reach},{y + 3}"
    return f'<polygon points="{points}" fill="{_BLUE}"/>'


def _label(x: int, y: int, text: str, colour: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}">{html_parts.html_text(text)}</text>'
