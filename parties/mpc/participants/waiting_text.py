"""What a server says while it waits for data owners: who is here, what is missing where, and how long it still waits.

Provides ``Waiting``, how far that is, and ``waiting_text``. Public: everything; names of owners and numbers of servers.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from parties.config import Config
from parties.mpc.participants.listing import Incomplete
from parties.session.enrollment import until_text
from parties.session.operator_commands import Asked

SHOWN = 6
"""Names of owners in one sentence, of more their number."""
ON_THEIR_WAY_S = 4.0
"""So long an upload may take from one server to the others before it is said to be missing there."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """``stored`` owners have sent to this server; ``complete`` are at all three, and counted or held to be.

    ``incomplete`` are those that some servers lack. ``left_s`` is how long the wait lasts at the most, ``told`` what
    each server's operator asks.
    """

    stored: int
    complete: int
    left_s: float
    incomplete: Mapping[str, Incomplete] = field(default_factory=dict)
    told: Sequence[Asked] = ()


def waiting_text(config: Config, pid: int, state: Waiting, missing: Sequence[str]) -> str:
    """In words, for server ``pid``'s operator; ``missing`` are the named owners of whom nothing is here."""
    clients = config.clients
    parts = [f"{state.stored} of {clients.expected} data owners are here"]
    if state.stored and missing:
        parts.append(f"still to come: {_names(missing)}")
    parts += _lacking(config, pid, state)
    parts += _asked_by_some(config, state.told)
    if state.stored < clients.expected:
        parts.append(_until(config, state))
    return "; ".join(parts)


def _until(config: Config, state: Waiting) -> str:
    minimum = config.clients.minimum
    at = until_text(state.left_s)
    if state.complete < minimum:
        return f"the run needs {minimum} (clients.minimum) by {at}"
    return (
        f"enough to begin (clients.minimum = {minimum}), the others are waited for until {at}, or until all three "
        "operators close the run (syncret close)"
    )


def _lacking(config: Config, pid: int, state: Waiting) -> list[str]:
    """Which owners' uploads are not at all three servers, server by server."""
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
                "(syncret submit --replace)"
            )
        if gone:
            texts.append(
                f"{who} has lost the shares of {_names(gone)}, who are counted already and cannot be counted anew"
            )
    return texts


def _asked_by_some(config: Config, told: Sequence[Asked]) -> list[str]:
    """What some operators ask and others do not yet."""
    names = [party.name for party in config.require_parties()]
    texts = []
    for what, asks in (
        ("close the run to data owners", [one.close for one in told]),
        ("end with the rounds done", [one.finish for one in told]),
    ):
        if any(asks) and not all(asks):
            asking = ", ".join(n for n, yes in zip(names, asks, strict=True) if yes)
            silent = ", ".join(n for n, yes in zip(names, asks, strict=True) if not yes)
            texts.append(f"{asking} asks to {what}, {silent} not yet: all three have to")
    return texts


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


class Lacking:
    """Which of the incomplete uploads have been so for longer than the way to another server takes."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def settled(self, incomplete: Mapping[str, Incomplete]) -> dict[str, Incomplete]:
        """Those of ``incomplete`` that were incomplete for a while."""
        now = time.monotonic()
        self._since = {client: self._since.get(client, now) for client in incomplete}
        return {c: i for c, i in incomplete.items() if now - self._since[c] >= ON_THEIR_WAY_S}
