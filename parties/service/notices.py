"""Conditions that an operator should hear of, and their beginning and end.

``notices`` lists those that hold at present; each is an event of the service when it begins. ``NoticeBoard`` remembers
since when each holds and who was notified of it, in ``notices.json`` of the service's folder, so that neither a restart
nor a condition that comes and goes notifies anybody twice. Texts are this server's own: they quote neither a reason
that another server gave, nor a data owner's name. All values here are public.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from parties.foundation.errors import StoreError
from parties.foundation.times import iso_time
from parties.foundation.untrusted_text import parse_json
from parties.observability.events import FieldValue
from parties.observability.failure_causes import CURES, Cure, Obstacle
from parties.service.events import EventName
from parties.service.expiry import SOON
from parties.service.obstacles import CAUSE_TEXTS
from parties.service.service import Service
from parties.service.studies import event_of
from parties.service.study_record import ACTIVE, ENDED, StudyRecord, StudyState
from parties.storage.files import disk_errors, write_atomic

FILE = "notices.json"
ENDED_S = 86_400.0
"""Time for which the end of a study is a notice, in seconds."""
PEER_AWAY_S = 600.0
LINGER_S = 600.0
"""Time for which a condition that has ended is remembered: one that comes back is the same."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A condition: its ``event``, a sentence, and fields. ``key`` is the same while it holds, and only then."""

    event: EventName
    key: str
    text: str
    fields: Mapping[str, FieldValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MissingOwners:
    """Data owners that are ``missing`` in a study, of ``expected``, which takes no more at ``closes`` (epoch)."""

    missing: int
    expected: int
    closes: float


def notices(service: Service, missing: Mapping[str, MissingOwners], *, now: float) -> list[Notice]:
    """Returns the conditions that hold; ``missing`` has the studies that close soon with too few owners, by digest."""
    found = [_blocked(service.obstacle)] if service.obstacle is not None else []
    for study in service.studies.values():
        found += _of_study(service, study, missing.get(study.digest), now=now)
    for peer in service.peers.values():
        name, since = peer.server.name, peer.away_since
        if since is not None and now - since >= PEER_AWAY_S:
            text = f"{service.name} does not reach {name} since {iso_time(since)}"
            found.append(Notice(EventName.PEER_AWAY, name, text, {"peer": name}))
    for end in service.certificates.all():
        if end.left < SOON:
            fields = {"kind": end.kind, "holder": end.name, "expires": end.expires.isoformat()}
            key = f"{end.kind} {end.name} {end.expires.isoformat()} {end.ended}"
            found.append(Notice(EventName.CERTIFICATE_ENDS, key, end.sentence(), fields))
    for announced in service.key_changes.announced():
        if announced.name != service.name and announced.waits_for and not announced.renews:
            text, fields = announced.sentence(own=False), {"peer": announced.name}
            # One notice however often the server announces another key: its words are asked for at any rate.
            found.append(Notice(EventName.KEY_WAITS_HERE, announced.name, text, fields))
    return found


def _blocked(obstacle: Obstacle) -> Notice:
    cause = obstacle.cause
    text = f"the service itself is blocked: {CAUSE_TEXTS[cause]}"
    return Notice(EventName.SERVICE_BLOCKED, cause.value, text, {"reason": cause.value})


def _of_study(
    service: Service, study: StudyRecord, missing: MissingOwners | None, *, now: float
) -> Iterator[Notice]:
    known: dict[str, FieldValue] = {
        "study": study.run,
        # The whole digest is what anybody needs to ask for admission.
        "digest": study.digest[:12],
        "state": study.state.value,
    }
    if study.state is StudyState.PROPOSED and service.name not in study.approvals:
        text = f"{study.run} waits for approval at {service.name}"
        fields = {**known, "reason": "approval"}
        key = f"{study.digest} approval {study.changed_at.isoformat()}"
        yield Notice(EventName.STUDY_WAITS_HERE, key, text, fields)
    worker = service.workers.get(study.digest)
    obstacle = worker.obstacle if worker is not None else None
    if obstacle is not None and CURES[obstacle.cause] in (Cure.OPERATOR, Cure.CLOCK):
        cause = obstacle.cause
        text = f"{study.run} waits for {service.name}: {CAUSE_TEXTS[cause]}"
        key = f"{study.digest} {cause.value}"
        yield Notice(EventName.STUDY_WAITS_HERE, key, text, {**known, "reason": cause.value})
    if missing is not None and study.state in ACTIVE:
        text = (
            f"{study.run}: {missing.missing} of {missing.expected} data owners are missing; it takes no more from "
            f"{iso_time(missing.closes)} on"
        )
        fields = {**known, "missing": missing.missing, "closes": iso_time(missing.closes)}
        yield Notice(EventName.OWNER_MISSING, f"{study.digest} owners", text, fields)
    ended = study.ended_at
    if study.state in ENDED and ended is not None and now - ended.timestamp() < ENDED_S:
        key = f"{study.digest} {ended.isoformat()}"
        yield Notice(event_of(study.state), key, f"{study.run} is {study.state.value}", known)


@dataclass(slots=True)
class HeldNotice:
    """A notice that holds ``since``, was last ``seen``, and was delivered to ``targets``; times since the epoch."""

    notice: Notice
    since: float
    seen: float
    targets: set[str] = field(default_factory=set)

    @property
    def id(self) -> str:
        """Identifier of its messages, by which a receiver recognises one that comes twice."""
        said = f"{self.notice.event} {self.notice.key} {self.since:.3f}"
        return f"msg_{hashlib.sha256(said.encode()).hexdigest()[:32]}"


class NoticeBoard:
    """Notices that hold, by event and key, in memory and in the ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._held: dict[str, HeldNotice] = {}
        self._former = self._read()
        self._written = "{}\n"

    def update(self, current: Iterable[Notice], now: float) -> list[Notice]:
        """Notes the notices that hold now, and returns those that have just begun."""
        begun = []
        for notice in current:
            name = f"{notice.event} {notice.key}"
            former = self._former.pop(name, None)
            held = self._held.get(name)
            if held is None:
                since, targets = (now, set[str]()) if former is None else former
                held = self._held[name] = HeldNotice(notice, since, now, targets)
                if former is None:
                    begun.append(notice)
            held.notice, held.seen = notice, now
        for name, held in list(self._held.items()):
            if now - held.seen > LINGER_S:
                del self._held[name]
        return begun

    def holding(self, now: float) -> list[HeldNotice]:
        """Returns the notices that were seen at the last update, the oldest first."""
        found = [held for held in self._held.values() if held.seen == now]
        return sorted(found, key=lambda held: held.since)

    def changed(self) -> str | None:
        """Returns the text to store if it is another one than before."""
        document = {
            name: {"since": held.since, "targets": sorted(held.targets)}
            for name, held in self._held.items()
        } | {
            name: {"since": since, "targets": sorted(targets)}
            for name, (since, targets) in self._former.items()
        }
        text = json.dumps(document, indent=1, sort_keys=True) + "\n"
        return None if text == self._written else text

    def write(self, text: str) -> None:
        """Stores who was notified of what. Blocks. A disk that refuses it is no failure."""
        with contextlib.suppress(StoreError):
            write_atomic(self._path, text)
            self._written = text

    def forget_former(self) -> None:
        """Forgets the notices of a former process that do not hold any more."""
        self._former = {}

    def _read(self) -> dict[str, tuple[float, set[str]]]:
        found: dict[str, tuple[float, set[str]]] = {}
        with contextlib.suppress(StoreError, ValueError, KeyError, TypeError, AttributeError):
            with disk_errors(self._path, "read"):
                text = self._path.read_text(encoding="utf-8")
            for name, said in parse_json(text).items():
                found[name] = (float(said["since"]), {str(each) for each in said["targets"]})
        return found
