"""Rendering of status documents as HTML pages: templates with escaped values, texts of commands, and units."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2

from mechanisms.text_table import and_list
from parties.identity.join_documents import fingerprint_words
from parties.observability.clocks import offset_text
from parties.observability.status import ParticipantState, Phase
from parties.report.render import page_templates
from parties.service.console.upstream import DisplayedStudy

_FOLDER = Path(__file__).resolve().parent
STATIC = _FOLDER / "static"
MAX_SHOWN_OWNERS = 500
"""Maximum number of owners on a page; those with problems come first."""
_FIRST = (
    ParticipantState.EXCLUDED,
    ParticipantState.INCOMPLETE,
    ParticipantState.GONE,
    ParticipantState.ABSENT,
    ParticipantState.HERE,
    ParticipantState.WITHDRAWN,
    ParticipantState.COUNTED,
)
_BAD = (
    Phase.FAILED,
    Phase.STOPPED,
    ParticipantState.EXCLUDED,
    ParticipantState.INCOMPLETE,
    ParticipantState.GONE,
    "cancelled",
)
_GOOD = (Phase.FINISHED, ParticipantState.COUNTED)
_UNITS = ("B", "KB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class CommandText:
    """Texts of a command: on the study's page and on the page that asks for confirmation."""

    name: str
    button: str
    short: str
    question: str
    long: str
    did: str
    tone: str = ""
    asks_reason: bool = False
    asks_owner: bool = False


COMMAND_TEXTS = {
    order.name: order
    for order in (
        CommandText(
            "close",
            "Take no more owners",
            "The rounds begin with those who are complete, once all operators ask for it.",
            "Take no more owners?",
            "Once the operators of all servers have asked for it, and enough owners are complete, the rounds begin; an "
            "owner that comes later is told. This cannot be taken back.",
            "This server asks to take no more owners.",
        ),
        CommandText(
            "finish",
            "End with the rounds done",
            "The table is made of what was measured so far, once all operators ask for it.",
            "End with the rounds that are done?",
            "Once the operators of all servers have asked for it, no further round begins, and what that would have "
            "cost is not charged. The table is made of what was measured so far. This cannot be taken back.",
            "This server asks to end with the rounds that are done.",
        ),
        CommandText(
            "revoke",
            "Turn an owner away",
            "This server takes nothing more of it; what it has sent is taken out once all operators ask for it.",
            "Turn a data owner away?",
            "This server takes nothing of it from now on. Once the operators of all servers have asked for it, what it "
            "has sent is taken out of the count and deleted, unless a round has used it. This cannot be taken back.",
            "This server turns the owner away, and asks to take out what it has sent.",
            "bad",
            asks_owner=True,
        ),
        CommandText(
            "cancel",
            "Stop this server",
            "It can be started again, and goes on after its last finished round.",
            "Stop this server?",
            "The other two end, too, since they lose a peer. What was charged stays charged; the folder stays, and the "
            "server goes on after its last finished round when it is started again.",
            "The server was told to stop.",
            "bad",
        ),
    )
}
SERVICE_COMMAND_TEXTS = {
    order.name: order
    for order in (
        CommandText(
            "approve",
            "Approve",
            "It runs once all three operators have approved it.",
            "Approve this study?",
            "Read its twelve words to the two other operators first: the same words mean the same budget, columns and "
            "servers. It runs once all three have approved it.",
            "Approved here.",
        ),
        CommandText(
            "collect",
            "Put the whole result into one file",
            "With the transcripts of the two other servers, and audited here.",
            "Put the whole result into one file?",
            "The two other servers give their transcripts. The file is for recipients and auditors: table, model, "
            "report and all that an audit reads. It is audited here; with many columns that takes minutes.",
            "The result is being collected; the file appears here.",
        ),
        COMMAND_TEXTS["close"],
        COMMAND_TEXTS["finish"],
        COMMAND_TEXTS["revoke"],
        CommandText(
            "cancel",
            "End this study for good",
            "For all three servers. Shares and sealing key are deleted; what was released stays so.",
            "End this study for good?",
            "It ends at all three servers, and cannot be taken up again. Shares and sealing key are deleted; what was "
            "charged stays charged, and what was released stays so.",
            "The study is ended at this server; the two others are told.",
            "bad",
            asks_reason=True,
        ),
    )
}


def render(template: str, **values: object) -> str:
    """Returns a page, or a part of one, as HTML."""
    return _environment().get_template(template).render(**values)


def command_texts_of(shown: DisplayedStudy, *, in_service: bool) -> list[CommandText]:
    """Returns the texts of the commands available now."""
    words = SERVICE_COMMAND_TEXTS if in_service else COMMAND_TEXTS
    return [words[name] for name in shown.orders if name in words]


def overview_values(overview: Mapping[str, Any]) -> dict[str, object]:
    """Returns the template values of the list of studies: open ones first, then ended ones, each latest first."""
    studies = sorted(
        overview.get("studies", []), key=lambda study: study["proposed_at"], reverse=True
    )
    studies.sort(key=lambda study: study["ended_at"] is not None)
    return {"service": overview, "studies": studies}


def page_values(shown: DisplayedStudy) -> dict[str, object]:
    """Returns the template values of the changing part of a study's page."""
    study = shown.study
    digest = study["digest"] if study else (shown.status or {})["study"]["config"]
    values = {
        "study": study,
        "status": shown.status,
        "digest": digest,
        "words": fingerprint_words(digest),
    }
    said = study["state"] if study else ""
    if shown.status is None:
        return {
            **values,
            "said": said,
            "lost": "",
            "shown_owners": [],
            "more_owners": 0,
            "asked": [],
        }
    return {**values, **_status_values(shown.status), "lost": ""}


def _status_values(status: Mapping[str, Any]) -> dict[str, object]:
    owners = sorted(status["owners"].get("list", []), key=_owner_rank)
    return {
        "said": _summary_sentence(status),
        "shown_owners": owners[:MAX_SHOWN_OWNERS],
        "more_owners": max(0, len(owners) - MAX_SHOWN_OWNERS),
        "asked": list(_requested_commands(status)),
    }


def _requested_commands(status: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence for each command that operators have given: by which servers, and by which not yet."""
    asked, own = status.get("asked"), status["party"]["name"]
    if asked is None:
        return
    requested = {one["party"]: one for one in asked["told"]} | {own: asked["here"]}
    everybody = [own, *(peer["name"] for peer in status["peers"])]
    revoked = sorted({name for one in requested.values() for name in one["revoked"]})
    wanted: list[tuple[str, Callable[[Mapping[str, Any]], bool]]] = [
        ("take no more owners", lambda one: one["close"]),
        ("end with the rounds done", lambda one: one["finish"]),
        *((f"turn {name} away", partial(_revokes, name)) for name in revoked),
    ]
    for what, is_asked in wanted:
        asking = [name for name in everybody if name in requested and is_asked(requested[name])]
        silent = [name for name in everybody if name not in asking]
        if is_asked(asked["agreed"]) or (asking and not silent):
            yield f"Agreed by all: {what}."
        elif asking:
            yield f"Asked by {and_list(asking)}, not yet by {and_list(silent)}: {what}."


def _revokes(name: str, one: Mapping[str, Any]) -> bool:
    return name in one["revoked"]


def _owner_rank(owner: Mapping[str, Any]) -> tuple[int, str]:
    state = owner["state"]
    return (_FIRST.index(state) if state in _FIRST else len(_FIRST), owner["name"])


def _summary_sentence(status: Mapping[str, Any]) -> str:
    """Returns a one-sentence summary for screen readers, which stays the same until an important value changes."""
    rounds, owners = status["rounds"], status["owners"]
    text = f"{status['phase']}: {owners['here']} of {owners['expected']} owners"
    return text if not rounds["done"] else f"{text}, {rounds['done']} of {rounds['of']} rounds done"


@cache
def _environment() -> jinja2.Environment:
    environment = page_templates(__file__)
    environment.filters |= {
        "bytes": bytes_in_words,
        "clock": lambda clock: offset_text(clock["offset_s"], clock["within_s"]),
        "duration": duration,
        "quoted": lambda text: quote(str(text), safe=""),
        "tone": _tone,
    }
    return environment


def _tone(state: str) -> str:
    if state in _BAD:
        return "bad"
    return "good" if state in _GOOD else "busy"


def bytes_in_words(number: float) -> str:
    """Returns a size in words, such as 12.3 MB."""
    value, unit = float(number), 0
    while value >= 1000 and unit + 1 < len(_UNITS):
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_UNITS[unit]}"


def duration(seconds: float | None) -> str:
    """Returns a duration in words, such as 3 min 20 s."""
    if seconds is None:
        return ""
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole % 86400 // 3600, whole % 3600 // 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
