"""The points of a service at which a fault can happen.

``watch`` passes points, as `tests.robustness.kills.points` does for a run's server: before and after every call by
which a service writes into its event log, makes or deletes a study's folder and keys, sends to or asks another
service, takes an operator's order, starts a study's process, hears of it, or ends it. Repeated work (sending its
state, hearing its studies' processes) has a point only when it is done with something new. Names of points are
public."""

from pathlib import Path
from typing import Any

import parties.identity.tls
import parties.service.database
import parties.service.known_studies
import parties.service.peer_answers
import parties.service.peer_sync
import parties.service.reconciliation
import parties.service.secret_deletion
import parties.service.service
import parties.service.study_fetcher
import parties.service.study_intake
import parties.service.workers
import parties.session.enrollment
from parties.service.closed_studies import ClosedStudyResponder
from parties.service.peer_answers import PeerAnswers
from parties.service.peer_sync import Peer, PeerServer
from parties.service.reconciliation import Reconciliation
from parties.service.service import Service
from parties.service.studies import StudyRepository
from parties.service.workers import Worker
from tests.robustness.kills.points import Point

_CLOCKS = (
    (parties.identity.tls, "_now"),
    (parties.session.enrollment, "utc_now"),
    (parties.service.service, "utc_now"),
    (parties.service.known_studies, "utc_now"),
    (parties.service.reconciliation, "utc_now"),
)


def watch(number: int, fault: str, hit: Path) -> Point:
    """Lets ``fault`` happen at point ``number`` of this process, at none if that is 0."""
    point = Point(number, fault, hit, _CLOCKS)
    _watch_files(point)
    _watch_others(point)
    _watch_studies(point)
    return point


def _watch_files(point: Point) -> None:
    """Watches the event log, folders and keys."""
    proposals = parties.service.study_intake
    point.watch(parties.service.database, "_migrate", lambda *_: "database's tables")
    point.watch(parties.service.database, "_check_owner", lambda *_, **__: "database's owner")
    point.watch(StudyRepository, "add", lambda _, study, *rest: f"book {study.run} added")
    point.watch(StudyRepository, "change", lambda _, study, entry: f"book {study.run} {entry.what}")
    point.watch(StudyRepository, "note", lambda _, entry: f"book {entry.what}")
    point.watch(parties.service.peer_answers, "new_card", lambda *_: "card")
    for module in (parties.service.service, parties.service.study_fetcher):
        point.watch(module, "check_proposal", lambda *_: "look at a proposal")
    point.watch(
        parties.service.known_studies,
        "make_study_folder",
        lambda _, proposal, *rest: f"keep {proposal.config.run.id}",
    )
    deletion = parties.service.secret_deletion
    point.watch(deletion, "delete_sealing_key", lambda place: f"drop the seal of {place.run}")
    point.watch(deletion, "forget_run", lambda config, *_, **__: f"forget {config.run.id}")
    point.watch(proposals, "_copy_key", lambda *_: "own key copied")
    point.watch(proposals, "ensure_server_card", lambda *_, **__: "card's keys")
    point.watch(proposals, "write_atomic", lambda path, _: f"file {path.suffix}")
    point.watch(Path, "rename", lambda path, to: f"rename into {_kind(Path(to))}")


def _kind(path: Path) -> str:
    """Returns a stable name for the target of a renaming: names of cards and studies have digests in them."""
    return path.name if path.name == "tls" else path.parent.name


def _watch_others(point: Point) -> None:
    """Watches calls to the two other services, the operator, and owners without a study."""
    point.watch(PeerServer, "start", lambda _: "exchange opened")
    point.watch(PeerAnswers, "statement", lambda answers: f"tell {_told(answers)}", once=True)
    point.watch(PeerAnswers, "proposal", lambda *_: "tell a proposal")
    point.watch(Peer, "study", lambda peer, _: f"ask {peer.server.name} for a study")
    point.watch(Peer, "new_card", lambda peer: f"ask {peer.server.name} for a card")
    point.watch(Service, "propose", lambda *_, **__: "order to propose")
    point.watch(Service, "approve", lambda *_, **__: "order to approve")
    point.watch(Service, "cancel", lambda *_, **__: "order to cancel")
    point.watch(
        Reconciliation,
        "_apply",
        lambda _, act: f"{type(act).__name__} {getattr(act, 'server', '')}",
    )
    point.watch(ClosedStudyResponder, "take", lambda *_: "answer an owner", once=True)


def _told(answers: PeerAnswers) -> str:
    """Describes the state of a service's studies."""
    name = answers._identity.own.name
    said = (
        f"{study.run} {study.state} {'with' if name in study.approvals else 'without'}"
        for study in answers._studies.values()
    )
    return ", ".join(said) or "nothing"


def _watch_studies(point: Point) -> None:
    """Watches studies' processes."""
    workers = parties.service.workers
    point.watch(Reconciliation, "start_worker", lambda _, study: f"process of {study.run}")
    point.watch(
        Reconciliation, "end", lambda _, study, state, *rest: f"end of {study.run}: {state}"
    )
    point.watch(Worker, "_arguments", lambda worker, _: f"arguments {worker.study.run}")
    point.watch(Worker, "_open_routes", lambda worker, _: f"ports for {worker.study.run}")
    point.watch(Worker, "_on_event", _heard, once=True)
    point.watch(Worker, "_on_exit", lambda worker, _, code: f"{worker.study.run} ended: {code}")
    point.watch(Worker, "_close_routes", lambda worker: f"no ports for {worker.study.run}")
    point.watch(Worker, "stop", lambda worker: f"stop {worker.study.run}")
    point.watch(workers, "pass_socket", lambda _, kind, *rest: f"hand over {kind!r}", once=True)


def _heard(worker: Worker, event: Any, _: int) -> str:
    return f"hear {worker.study.run}: {event.get('event')}"
