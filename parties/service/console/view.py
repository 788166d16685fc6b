"""Rendering of status documents as HTML pages: templates with escaped values, texts of commands, and units."""

import datetime
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jinja2

from mechanisms.text_table import and_list
from parties.identity.join_documents import fingerprint_words
from parties.observability.clocks import offset_text
from parties.observability.status import ParticipantState, Phase
from parties.report.render import page_templates
from parties.service.console.upstream import DisplayedStudy
from parties.service.study_list import FILTERS, SORTS

_FOLDER = Path(__file__).resolve().parent
STATIC = _FOLDER / "static"
STUDIES_A_PAGE, OWNERS_A_PAGE = 25, 50
_FEW_OWNERS = 25
"""Number of owners up to which a page shows all, and beyond which it shows those that something is wrong with."""
ALL, MISSING = "all", "missing"
"""Filters of owners beside their states; missing are those of the states in ``_MISSING``."""
_FIRST = (
    ParticipantState.EXCLUDED,
    ParticipantState.INCOMPLETE,
    ParticipantState.GONE,
    ParticipantState.ABSENT,
    ParticipantState.HERE,
    ParticipantState.WITHDRAWN,
    ParticipantState.COUNTED,
)
_MISSING = _FIRST[:4]
_BAD = (
    Phase.FAILED,
    Phase.STOPPED,
    ParticipantState.EXCLUDED,
    ParticipantState.INCOMPLETE,
    ParticipantState.GONE,
    "cancelled",
)
_GOOD = (Phase.FINISHED, ParticipantState.COUNTED)
_WORDS = re.compile(r"[^-_./@:]*[-_./@:]+|[^-_./@:]+")
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
    asks_name: bool = False


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
            "It runs once the operators of all its servers have approved it. Read its twelve words to the others by "
            "telephone, and have theirs read to you: the same words mean the same budget, columns and servers.",
            "Approved here.",
            "good",
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
            asks_name=True,
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


@dataclass(frozen=True, slots=True)
class ListView:
    """Part of the list of studies that an address selects; its links keep what they do not change."""

    state: str = ""
    q: str = ""
    sort: str = "proposed"
    order: str = "desc"
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "ListView":
        """Returns the view of an address; what no list has is left out."""
        state, sort, order = (query.get(name, "") for name in ("state", "sort", "order"))
        return cls(
            state if state in FILTERS else "",
            query.get("q", "")[:64].strip(),
            sort if sort in SORTS else "proposed",
            order if order in ("asc", "desc") else "desc",
            page_number(query),
        )

    def query(self) -> dict[str, str]:
        """Returns the query of the admin API."""
        offset = (self.page - 1) * STUDIES_A_PAGE
        return {
            **({"state": self.state} if self.state else {}),
            **({"q": self.q} if self.q else {}),
            "sort": self.sort,
            "order": self.order,
            "limit": str(STUDIES_A_PAGE),
            "offset": str(offset),
        }

    def link(self, **changes: object) -> str:
        """Returns the address's query of this view with ``changes``; another order or filter begins at page 1."""
        view = replace(self, **({"page": 1} | changes))  # type: ignore[arg-type]
        default = ListView()
        parts = {
            item.name: getattr(view, item.name)
            for item in fields(view)
            if getattr(view, item.name) != getattr(default, item.name)
        }
        return f"?{urlencode(parts)}" if parts else "?"

    def sort_link(self, sort: str) -> str:
        """Returns the link of a column's head: sorted by it, the other way round if it is already."""
        up = self.sort == sort and self.order == "desc"
        return self.link(sort=sort, order="asc" if up else "desc")


@dataclass(frozen=True, slots=True)
class OwnersView:
    """Part of a study's owners that an address selects: ``state`` is a state, ALL, MISSING, or "" for what fits."""

    state: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "OwnersView":
        """Returns the view of an address."""
        state = query.get("owners", "")
        known = (ALL, MISSING, *(one.value for one in ParticipantState))
        return cls(state if state in known else "", page_number(query))

    def link(self, *, state: str | None = None, page: int = 1) -> str:
        """Returns the address's query of this view with another state or page."""
        parts = {"owners": self.state if state is None else state, "page": str(page)}
        kept = {name: value for name, value in parts.items() if value not in ("", "1")}
        return f"?{urlencode(kept)}" if kept else "?"

    def chosen(self, number: int) -> str:
        """Returns the state to show, of ``number`` owners."""
        return self.state or (ALL if number <= _FEW_OWNERS else MISSING)


def page_number(query: Mapping[str, str]) -> int:
    """Returns the page that an address asks for, 1 for what is no page."""
    text = query.get("page", "")
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 7 and int(text) else 1


def overview_values(
    overview: Mapping[str, Any], listing: Mapping[str, Any], view: ListView | None = None
) -> dict[str, object]:
    """Returns the template values of the list of studies: decisions that wait for the operator, and a page of all."""
    pages = max(1, -(-listing["total"] // STUDIES_A_PAGE))
    waiting = [study for study in overview.get("studies", []) if study["pending"]]
    waiting.sort(key=lambda study: study["changed_at"], reverse=True)
    keys = [
        key for key in overview["keys"] if not key["renews"] and key["waits_for"] and key["words"]
    ]
    return {
        "service": overview,
        "studies": listing["studies"],
        "total": listing["total"],
        "pages": pages,
        "view": view or ListView(),
        "waiting": waiting,
        "new_keys": keys,
        "filters": FILTERS,
    }


def page_values(shown: DisplayedStudy, view: OwnersView | None = None) -> dict[str, object]:
    """Returns the template values of the changing part of a study's page."""
    study, view = shown.study, view or OwnersView()
    digest = study["digest"] if study else (shown.status or {})["study"]["config"]
    values = {
        "study": study,
        "status": shown.status,
        "digest": digest,
        "words": fingerprint_words(digest),
        "available": shown.orders,
        "view": view,
        "lost": "",
    }
    if shown.status is None:
        said = study["state"] if study else ""
        return {**values, "said": said, **_owner_values([], view), "asked": []}
    owners = sorted(shown.status["owners"].get("list", []), key=_owner_rank)
    return {
        **values,
        "said": _summary_sentence(shown.status),
        **_owner_values(owners, view),
        "asked": list(_requested_commands(shown.status)),
    }


def _owner_values(owners: Sequence[Mapping[str, Any]], view: OwnersView) -> dict[str, object]:
    """Returns the page of the owners that the view selects; those with problems come first."""
    state = view.chosen(len(owners))
    states = {ALL: tuple(ParticipantState), MISSING: _MISSING}.get(state, (state,))
    chosen = [owner for owner in owners if owner["state"] in states]
    pages = max(1, -(-len(chosen) // OWNERS_A_PAGE))
    page = min(view.page, pages)
    begin = (page - 1) * OWNERS_A_PAGE
    return {
        "shown_owners": chosen[begin : begin + OWNERS_A_PAGE],
        "chosen_owners": len(chosen),
        "known_owners": len(owners),
        "missing_owners": sum(owner["state"] in _MISSING for owner in owners),
        "owners_state": state,
        "owners_page": page,
        "owners_pages": pages,
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
        "ago": ago,
        "duration": duration,
        "moment": moment,
        "quoted": lambda text: quote(str(text), safe=""),
        "tone": _tone,
        "word_parts": lambda text: _WORDS.findall(str(text)),
    }
    return environment


def _tone(state: str) -> str:
    if state in _BAD:
        return "bad"
    return "good" if state in _GOOD else "busy"


def moment(text: str) -> str:
    """Returns a time of ISO 8601 as pages show it without scripts: in UTC, to the minute."""
    try:
        when = _time(text)
    except ValueError:
        return text
    return f"{when:%Y-%m-%d %H:%M} UTC"


def ago(text: str) -> str:
    """Returns the age of a time of ISO 8601 in words, such as 5 min ago; "" for what is no time."""
    try:
        age = (datetime.datetime.now(datetime.UTC) - _time(text)).total_seconds()
    except ValueError:
        return ""
    for limit, unit, name in ((3600, 60, "min"), (86_400, 3600, "h"), (math.inf, 86_400, "d")):
        if abs(age) < limit:
            number = round(abs(age) // unit)
            if not number and unit == 60:
                return "just now"
            return f"{number} {name} ago" if age >= 0 else f"in {number} {name}"
    return ""


def _time(text: str) -> datetime.datetime:
    """Returns a time with its zone, UTC where the text has none. Raises ValueError."""
    found = datetime.datetime.fromisoformat(text)
    return found.astimezone(datetime.UTC) if found.tzinfo else found.replace(tzinfo=datetime.UTC)


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
