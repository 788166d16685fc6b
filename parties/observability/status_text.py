"""Status document as text for people: a table of at most 80 columns.

Names and reasons from others are plain text, without markup and control characters.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from parties.observability.clocks import offset_text
from parties.observability.heartbeat import duration_text

WIDTH = 80
_OWNERS_SHOWN = 30
_ERRORS_SHOWN = 5
_LONGEST = 300
_COLOURS = {"failed": "red", "stopped": "yellow", "finished": "green"}


def render(status: Mapping[str, Any]) -> RenderableType:
    """Returns the table of one server's status, or of a service of studies."""
    if "service" in status:
        return _service(status)
    parts: list[RenderableType] = [_summary(status)]
    owners = status["owners"].get("list") or []
    if owners:
        parts += [Text(), _owners(owners)]
    for title, said in (("errors", status["errors"]), ("not let in", status["rejected"])):
        if said:
            parts += [Text(), _messages_table(title, said)]
    return Group(*parts)


def print_status(console: Console, status: Mapping[str, Any]) -> None:
    """Prints the table."""
    console.print(render(status), width=min(WIDTH, console.width))


def _service(status: Mapping[str, Any]) -> RenderableType:
    table = _grid()
    number = "" if status["pid"] is None else f", server {status['pid']}"
    rows = [
        ("service", f"{status['service']}{number}"),
        ("version", status["program"]),
        ("time", f"runs for {duration_text(status['started_s'])}"),
        ("studies", f"{status['running']} of at most {status['limit']} running"),
        *[("peer" if not i else "", _service_peer(p)) for i, p in enumerate(status["peers"])],
        *[("trouble" if not i else "", text) for i, text in enumerate(status["troubles"])],
    ]
    for name, text in rows:
        table.add_row(name, Text(plain_text(text)))
    if not status["studies"]:
        return table
    older = sum(status["states"].values()) - len(status["studies"])
    more = [Text(f"older ones, not shown here: {older} (syncret study list)")] if older else []
    return Group(table, Text(), _studies(status["studies"]), *more)


def _service_peer(peer: Mapping[str, Any]) -> str:
    trip, clock = peer["round_trip_s"], peer["clock"]
    there = "there" if trip is None else f"there, {1000 * trip:.3g} ms there and back"
    if clock is not None:
        there = f"{there}, its clock {offset_text(clock['offset_s'], clock['within_s'])}"
    return f"{peer['name']}: {there if peer['there'] else peer['problem'] or 'not there'}"


def _studies(studies: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("study", overflow="fold", max_width=24)
    table.add_column("digest", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("why, or at what", overflow="fold")
    for study in studies:
        cells = (study["run"], study["digest"][:12], study["state"], study["why"])
        table.add_row(*(Text(plain_text(text)) for text in cells))
    return table


def _grid() -> Table:
    """Returns an empty table of names and values."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _summary(status: Mapping[str, Any]) -> Table:
    table = _grid()
    party, study, versions = status["party"], status["study"], status["versions"]
    rows = [
        ("server", f"{party['name']}, {status['kind']}" + _process_text(party["pid"])),
        ("study", f"{study['id']}, configuration {study['config'][:12]}"),
        ("phase", _phase(status)),
        ("rounds", _rounds(status["rounds"])),
        ("owners", _counts(status["owners"])),
        ("budget", _budget(status["budget"])),
        ("time", _time(status)),
        *[
            ("asked" if not i else "", text)
            for i, text in enumerate(_requests_text(status.get("asked")))
        ],
        *[("peer" if not i else "", _peer(peer)) for i, peer in enumerate(status["peers"])],
        *[("certificate", end["text"]) for end in status["certificates"] if end["text"]],
        ("version", f"syncret {versions['syncret']}, wire {versions['wire']}"),
    ]
    for name, text in rows:
        style = _COLOURS.get(status["phase"], "") if name == "phase" else ""
        table.add_row(name, Text(plain_text(text), style=style))
    return table


def plain_text(text: object) -> str:
    """Returns the text without control characters, limited in length."""
    found = "".join(c if c.isprintable() else "?" for c in str(text))
    return found if len(found) <= _LONGEST else found[:_LONGEST] + "..."


def _process_text(pid: int | None) -> str:
    return "" if pid is None else f" {pid}"


def _phase(status: Mapping[str, Any]) -> str:
    text = f"{status['phase']} since {_when(status['since'])}"
    return f"{text}: {status['doing']}" if status["doing"] and status["running"] else text


def _when(iso: object) -> str:
    return str(iso).replace("T", " ").replace("Z", " UTC")


def _rounds(rounds: Mapping[str, Any]) -> str:
    of = f"of {'at most ' if rounds['at_most'] else ''}{rounds['of']}"
    done = "none" if rounds["done"] is None else rounds["done"]
    now = "" if rounds["now"] is None else f"; round {rounds['now']} is under way"
    return f"{done} {of} done{now}"


def _counts(owners: Mapping[str, Any]) -> str:
    states = ", ".join(f"{count} {state}" for state, count in owners["states"].items())
    text = f"{owners['here']} of {owners['expected']} here, at least {owners['minimum']} needed"
    if owners["short"]:
        text += f" ({owners['short']} too few)"
    return f"{text}: {states}" if states else text


def _budget(budget: Mapping[str, Any]) -> str:
    text = f"epsilon {budget['epsilon']:g}, delta {budget['delta']:g}"
    if budget["spent"] is None:
        return text
    of = "" if budget["rho"] is None else f" of {budget['rho']:.4g}"
    return f"{text}; rho {budget['spent']:.4g}{of} spent, {budget['charges']} charges"


def _time(status: Mapping[str, Any]) -> str:
    time = status["time"]
    text = f"started {_when(time['started'])}, {duration_text(time['elapsed_s'])}"
    return (
        text if time["left_s"] is None else f"{text}; about {duration_text(time['left_s'])} to go"
    )


def _requests_text(asked: Mapping[str, Any] | None) -> list[str]:
    """Returns the commands that operators have given to the run, and their agreement."""
    if asked is None:
        return []
    who = {"this server": asked["here"], **{one["party"]: one for one in asked["told"]}}
    texts = []
    for order in ("close", "finish"):
        asking = [name for name, one in who.items() if one[order]]
        if asked["agreed"][order]:
            texts.append(f"{order}: by all")
        elif asking:
            texts.append(f"{order}: by {', '.join(asking)}; not by all yet")
    for name in sorted({name for one in who.values() for name in one["revoked"]}):
        done = "by all" if name in asked["agreed"]["revoked"] else "not by all yet"
        texts.append(f"revoke {name}: {done}")
    return texts


def _peer(peer: Mapping[str, Any]) -> str:
    trip = peer["round_trip_s"]
    if peer["connected"]:
        text = "connected" if trip is None else f"connected, {1000 * trip:.3g} ms there and back"
    else:
        text = peer["problem"] or "not connected"
    return f"{peer['name']}: {text}"


def _owners(owners: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("owner", overflow="fold", max_width=26)
    table.add_column("state", no_wrap=True)
    said = any(owner["missing"] or owner["reason"] for owner in owners)
    table.add_column("missing at, or why" if said else "", overflow="fold")
    # Owners with problems come first.
    ranked = sorted(owners, key=lambda owner: owner["state"] in ("counted", "here"))
    for owner in ranked[:_OWNERS_SHOWN]:
        state = owner["state"] + ("" if owner["round"] is None else f", round {owner['round']}")
        why = ", ".join(owner["missing"]) or owner["reason"]
        table.add_row(*(Text(plain_text(text)) for text in (owner["name"], state, why)))
    if len(ranked) > _OWNERS_SHOWN:
        table.add_row(f"and {len(ranked) - _OWNERS_SHOWN} more", "", "--json has them all")
    return table


def _messages_table(title: str, said: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in said[-_ERRORS_SHOWN:]:
        table.add_row(Text(_when(one["time"])), Text(plain_text(one["text"])))
    return table
