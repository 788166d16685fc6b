"""Text for a server's operator while it waits: participants that are here, uploads that are missing, and the deadline.

All values here are public: names of participants and numbers of servers.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from parties.config import Config
from parties.mpc.participants.listing import IncompleteSubmission
from parties.session.enrollment import deadline_text
from parties.session.operator_commands import CommandSet

MAX_NAMES_SHOWN = 6
"""Maximum number of names in one sentence; of more, the text has their number."""
FORWARDING_GRACE_S = 4.0
"""Time in seconds that an upload may take to the other servers before it is reported as missing there."""


@dataclass(frozen=True, slots=True)
class WaitStatus:
    """Progress of waiting: ``stored`` participants have sent to this server, ``complete`` are counted or held.

    ``incomplete`` are submissions that some servers lack. ``left_s`` is the maximum remaining wait in seconds.
    ``commands`` are the commands of each server's operator, ``round`` the round that is to begin.
    """

    stored: int
    complete: int
    left_s: float
    incomplete: Mapping[str, IncompleteSubmission] = field(default_factory=dict)
    commands: Sequence[CommandSet] = ()
    round: int = 0


def waiting_text(config: Config, pid: int, state: WaitStatus, missing: Sequence[str]) -> str:
    """Description for server ``pid``'s operator; ``missing`` are the named participants without a submission here."""
    clients = config.clients
    clauses = [f"{state.stored} of {clients.expected} data owners are here"]
    if state.stored and missing:
        clauses.append(f"still to come: {_names(missing)}")
    clauses += _missing_clauses(config, pid, state)
    clauses += _pending_command_clauses(config, state.commands)
    if state.stored < clients.expected:
        clauses.append(_deadline_clause(config, state))
    return "; ".join(clauses)


def _deadline_clause(config: Config, state: WaitStatus) -> str:
    minimum = config.clients.minimum
    at = deadline_text(state.left_s)
    if state.complete < minimum:
        return f"the run needs {minimum} (clients.minimum) by {at}"
    return (
        f"enough to begin (clients.minimum = {minimum}), the others are waited for until {at}, or until all three "
        "operators close the run (syncret close)"
    )


def _missing_clauses(config: Config, pid: int, state: WaitStatus) -> list[str]:
    """Clauses about uploads that are not at all three servers, one for each server."""
    way_out = (
        "all three operators can end the run with the rounds done (syncret study finish)"
        if state.round
        else "the study can only be cancelled (syncret study cancel)"
    )
    names = [party.name for party in config.require_parties()]
    texts = []
    for server in range(3):
        lacking = [c for c, item in state.incomplete.items() if server in item.missing]
        again = [c for c in lacking if not state.incomplete[c].final]
        gone = [c for c in lacking if state.incomplete[c].final]
        who = "this server" if server == pid else f"server {server} ({names[server]})"
        if again:
            texts.append(
                f"{who} has nothing of {_names(again)}: if it has lost its folder, they have to send again "
                "(syncret join --replace)"
            )
        if gone:
            texts.append(
                f"{who} has lost the shares of {_names(gone)}, who are counted already and cannot be counted anew: "
                f"{way_out}"
            )
    return texts


def _pending_command_clauses(config: Config, commands: Sequence[CommandSet]) -> list[str]:
    """Clauses about commands that some operators give and others do not yet."""
    names = [party.name for party in config.require_parties()]
    texts = []
    for what, asks in (
        ("close the run to data owners", [one.close for one in commands]),
        ("end with the rounds done", [one.finish for one in commands]),
    ):
        if any(asks) and not all(asks):
            asking = ", ".join(n for n, yes in zip(names, asks, strict=True) if yes)
            silent = ", ".join(n for n, yes in zip(names, asks, strict=True) if not yes)
            texts.append(f"{asking} asks to {what}, {silent} not yet: all three have to")
    return texts


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_NAMES_SHOWN])
    return (
        shown
        if len(names) <= MAX_NAMES_SHOWN
        else f"{shown} and {len(names) - MAX_NAMES_SHOWN} more"
    )


class OverdueUploads:
    """Incomplete uploads that have been incomplete for longer than forwarding takes."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def settled(
        self, incomplete: Mapping[str, IncompleteSubmission]
    ) -> dict[str, IncompleteSubmission]:
        """Those of ``incomplete`` that have been incomplete for ``FORWARDING_GRACE_S`` seconds."""
        now = time.monotonic()
        self._since = {client: self._since.get(client, now) for client in incomplete}
        return {c: i for c, i in incomplete.items() if now - self._since[c] >= FORWARDING_GRACE_S}
