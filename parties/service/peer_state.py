"""State of a service and its studies, which the two others read every second, and its JSON form.

No server sends requests or promises: each publishes its own state, and decides from the states of the others
(`parties.service.reconcile`). A lost message therefore has no effect, and a server that was away catches up by reading.
All values here are public. A state comes from a server with a pinned key, which may still be faulty: sizes are
bounded, and words are from a list.
"""

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from parties.foundation.errors import PartyError
from parties.foundation.version import version_line
from parties.observability.failure_causes import Obstacle, obstacle_of
from parties.service.rotation import MAX_ANNOUNCEMENT_BYTES
from parties.service.study_record import StudyState

EXCHANGE_VERSION = 3
"""Version of the form of `PeerState`; raised with every change."""
MAX_PEER_STATE_BYTES = 1 << 22
MAX_STUDIES = 5_000
_DIGEST = re.compile(r"[0-9a-f]{64}")
_STATES = frozenset(state.value for state in StudyState)
_MAX_TURN = 1 << 31
_MAX_SERVERS = 3
_MAX_TIME = float(1 << 40)


class BadPeerState(PartyError):
    """Another server sent a state that no server of this version sends."""


class OtherPeerVersion(BadPeerState):
    """Another server has another version, as while the three are upgraded one by one."""


@dataclass(frozen=True, slots=True)
class StudySnapshot:
    """State of a study at one server. ``calls``: its process waits for the others' processes, finished ones included.

    ``obstacle`` is the last failure of its process, while it persists. It is for display only.
    """

    state: StudyState
    turn: int | None = None
    approved: bool = False
    calls: bool = False
    reason: str = ""
    obstacle: Obstacle | None = None

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        return {
            "state": self.state.value,
            "turn": self.turn,
            "approved": self.approved,
            "calls": self.calls,
            "reason": self.reason,
            "obstacle": _obstacle_dict(self.obstacle),
        }

    @classmethod
    def from_dict(cls, document: object) -> "StudySnapshot":
        """Parses the JSON form. Raises BadPeerState."""
        match document:
            case {
                "state": str() as state,
                "turn": int() | None as turn,
                "approved": bool() as approved,
                "calls": bool() as calls,
                "reason": str() as reason,
                "obstacle": dict() | None as obstacle,
            } if state in _STATES and not isinstance(turn, bool):
                if turn is None or 0 < turn < _MAX_TURN:
                    said = printable(reason)
                    return cls(StudyState(state), turn, approved, calls, said, _obstacle(obstacle))
        raise BadPeerState("where a study stands is told in an unknown form")


@dataclass(frozen=True, slots=True)
class PeerState:
    """State of a server: its ``limit`` of studies at once, running ones of one server (``busy``), all ``studies``.

    Attributes:
        refused: Reasons for not accepting studies that another server proposed, by digest.
        order: Turns of the starts that server 0 has decided on, by digest.
        time: Time of its clock, in seconds since the epoch.
        obstacle: Failure that blocks the service itself, such as its database's disk.
        announces: Announcement of its next key or certificate (`parties.service.rotation`), "" without one.
        heard: Fingerprints of the certificates that the others have announced to it, by name.
        confirmed: Fingerprints of those among them that it accepts.
    """

    name: str
    limit: int
    busy: int
    studies: Mapping[str, StudySnapshot] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    order: Mapping[str, int] = field(default_factory=dict)
    program: str = field(default_factory=version_line)
    time: float = field(default_factory=time.time)
    obstacle: Obstacle | None = None
    announces: str = ""
    heard: Mapping[str, str] = field(default_factory=dict)
    confirmed: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        return {
            "exchange": EXCHANGE_VERSION,
            "program": self.program,
            "name": self.name,
            "limit": self.limit,
            "busy": self.busy,
            "studies": {digest: item.to_dict() for digest, item in self.studies.items()},
            "refused": dict(self.refused),
            "order": dict(self.order),
            "time": self.time,
            "obstacle": _obstacle_dict(self.obstacle),
            "announces": self.announces,
            "heard": dict(self.heard),
            "confirmed": dict(self.confirmed),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, object]) -> "PeerState":
        """Parses the JSON form; checks the version first. Raises BadPeerState."""
        version, program = (
            document.get("exchange"),
            printable(document.get("program", "unknown"), 80),
        )
        if version != EXCHANGE_VERSION or program != version_line():
            raise OtherPeerVersion(
                f"runs version {program} (exchange {printable(version, 20)}); this server {version_line()} (exchange "
                f"{EXCHANGE_VERSION}); expected the same at all three"
            )
        match document:
            case {
                "name": str() as name,
                "limit": int() as limit,
                "busy": int() as busy,
                "studies": dict() as studies,
                "refused": dict() as refused,
                "order": dict() as order,
                "time": float() as moment,
                "obstacle": dict() | None as obstacle,
                "announces": str() as announces,
                "heard": dict() as heard,
                "confirmed": dict() as confirmed,
            } if (
                max(map(len, (studies, refused, order))) <= MAX_STUDIES
                and len(announces) <= MAX_ANNOUNCEMENT_BYTES
            ):
                return cls(
                    printable(name, 80),
                    limit,
                    busy,
                    {
                        _digest(key): StudySnapshot.from_dict(value)
                        for key, value in studies.items()
                    },
                    {_digest(key): printable(value) for key, value in refused.items()},
                    {_digest(key): _turn(value) for key, value in order.items()},
                    time=_moment(moment),
                    obstacle=_obstacle(obstacle),
                    announces=announces,
                    heard=_fingerprints(heard),
                    confirmed=_fingerprints(confirmed),
                )
        raise BadPeerState("its statement has an unknown form")


def printable(text: object, length: int = 400) -> str:
    """Returns text of another server for display: at most ``length`` characters, unprintable ones replaced."""
    shown = " ".join(str(text).split())[:length]
    return "".join(letter if letter.isprintable() else "?" for letter in shown)


def _digest(key: object) -> str:
    if not isinstance(key, str) or _DIGEST.fullmatch(key) is None:
        raise BadPeerState("a study has no digest for a name")
    return key


def _fingerprints(said: Mapping[object, object]) -> dict[str, str]:
    """Returns the fingerprints of certificates by servers' names, one for each server at most."""
    if len(said) > _MAX_SERVERS:
        raise BadPeerState("it names more servers than there are")
    found = {}
    for name, value in said.items():
        if not isinstance(value, str) or _DIGEST.fullmatch(value) is None:
            raise BadPeerState("a certificate has no fingerprint")
        found[printable(name, 80)] = value
    return found


def _obstacle_dict(obstacle: Obstacle | None) -> dict[str, object] | None:
    return None if obstacle is None else {"cause": obstacle.cause.value, "detail": obstacle.detail}


def _obstacle(document: Mapping[str, object] | None) -> Obstacle | None:
    """Returns the obstacle in another server's state: a code, which may be unknown to this version, and a number."""
    return None if document is None else obstacle_of(document.get("cause"), document.get("detail"))


def _moment(value: float) -> float:
    if not math.isfinite(value) or not 0 <= value < _MAX_TIME:
        raise BadPeerState("its time is none")
    return value


def _turn(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < _MAX_TURN:
        raise BadPeerState("a start has no number")
    return value
