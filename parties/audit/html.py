"""The page `audit.html`: checks and their findings, limits of the audit, a sequence diagram, and bytes of every step.

The sequence diagram has one row for each step of each round, with the bytes that each pair of servers exchanged, and
bands for charges, openings and seals. All content comes from the transcripts. This module collects the values;
`templates/audit.html` has the sections, and `parties.report.render` escapes every value. No value here is secret. Known
limit: a run of many rounds makes a long diagram, which scrolls.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from parties.audit.checks import costs
from parties.audit.checks.privacy import RunTerms
from parties.audit.evidence import Evidence, MeshSession, TranscriptAttempt, TranscriptEntry
from parties.audit.findings import CONTRADICTIONS, FAIL, CheckFailure
from parties.audit.questions import Answer
from parties.audit.runner import PAIRS, Audit
from parties.mpc.transcript_schema import ROUND, SELECTED
from parties.report.render import HtmlTable, page_templates

_PAGES = page_templates(__file__)
_COLUMNS = (330, 560, 790)
_WIDTH, _ROW = 860, 18
_INK, _ORANGE, _GREEN, _GREY = "#2d3640", "#b35c0e", "#2f7a58", "#c3cad3"


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


Values: TypeAlias = Mapping[str, object]
"""Values of a part of the page by the names that its template uses."""


def render_audit(audit: Audit) -> str:
    """Returns the page of an audit."""
    return _PAGES.get_template("audit.html").render(
        title="audit",
        servers=audit.servers,
        headline=audit.headline,
        failed=[check for check in audit.checks if check.status == FAIL],
        questions=[_question(answer, audit) for answer in audit.answers],
        **_pictures(audit),
    )


def _question(answer: Answer, audit: Audit) -> Values:
    """Returns a question with its answer, and its checks to fold under it; without checks no table."""
    own = [check for check in audit.checks if check.name in answer.checks]
    rows = [(check.name, check.status, check.detail) for check in own]
    return {
        "question": answer.question,
        "sentences": answer.sentences,
        "title": f"{len(rows)} checks" + (", not all of them hold" * (answer.status == FAIL)),
        "checks": HtmlTable(("check", "status", "what was found"), rows, whole=True)
        if rows
        else None,
    }


def _pictures(audit: Audit) -> Values:
    """Returns the traffic by step and the diagrams of messages, or the problem that leaves none of them."""
    evidence = audit.evidence
    if evidence is None:
        return {"problem": None, "traffic": None, "messages": ()}
    if audit.servers == 1:
        return {"problem": None, "traffic": None, "messages": [_client_messages(evidence)]}
    try:
        sessions, traffic = evidence.sessions, _traffic(evidence, audit.terms)
    except (CheckFailure, *CONTRADICTIONS) as error:
        return {"problem": error, "traffic": None, "messages": ()}
    names = [transcript.header.text("name") for transcript in evidence.transcripts]
    caption = (
        "One row for each step of a round, from above: payload bytes between each two servers, the ones sent to the "
        "right first."
    )
    messages = [
        {
            "title": "Who sent what"
            + (f", mesh {number} of {len(sessions)}" if len(sessions) > 1 else ""),
            "caption": caption,
            "diagrams": [_diagram(list(events(session)), names)],
        }
        for number, session in enumerate(sessions, start=1)
    ]
    return {"problem": None, "traffic": traffic, "messages": messages}


def _client_messages(evidence: Evidence) -> Values:
    transcript = evidence.transcripts[0]
    names = [transcript.header.text("name"), "clients"]
    return {
        "title": "Who sent what",
        "caption": "One row for each kind of message of a round, from above: bytes to and from all clients.",
        "diagrams": [
            _diagram(list(_client_events(attempt)), names) for attempt in transcript.attempts
        ],
    }


def _traffic(evidence: Evidence, terms: RunTerms | None) -> HtmlTable:
    rows = [
        (step, *sent, _by_formula(sent, wanted), rounds)
        for step, (sent, wanted, rounds) in costs.by_step(evidence, terms).items()
    ]
    heads = ("step", *(f"bytes sent by {pid}" for pid in range(3)), "formula", "rounds")
    return HtmlTable(heads, rows)


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


def _diagram(rows: Sequence[EventBand | ByteFlow], names: Sequence[str]) -> Values:
    """Returns the places of a diagram's lanes, texts and arrows."""
    placed: list[Values] = []
    y = 40
    for row in rows:
        if isinstance(row, EventBand):
            placed.append({"x": 8, "y": y, "text": row.text, "colour": row.colour, "arrows": ()})
            y += _ROW
        else:
            arrows = list(_arrows(row, y))
            placed.append({"x": 24, "y": y, "text": row.label, "colour": _INK, "arrows": arrows})
            y += 2 * _ROW
    lanes = list(zip(_COLUMNS, names, strict=False))
    return {"width": _WIDTH, "height": y, "lanes": lanes, "rows": placed}


def _arrows(flow: ByteFlow, y: int) -> Iterator[Values]:
    for first, second in PAIRS:
        forth, back = flow.sent.get((first, second), 0), flow.sent.get((second, first), 0)
        if forth + back == 0:
            continue
        # The two outer servers' line lies below that of the neighbours.
        outer = (first, second) == (0, 2)
        left, right = _COLUMNS[first] + 4, _COLUMNS[second] - 4
        yield {
            "left": left,
            "right": right,
            "y": y + (_ROW - 2 if outer else 0),
            "forth": forth,
            "back": back,
            "middle": (left + right) // 2 + (60 if outer else 0),
        }
