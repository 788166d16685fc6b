"""Admin API of a service of studies, as an aiohttp application (`parties.service.run_api` has that of a single study).

``_routes`` has them, below /v1 but for /metrics, /healthz and /readyz (`parties.service.routes`). Other modules add
routes to ``service_application``. The layer below authorizes the clients. No secret value is shown.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from parties.config.diff import differences
from parties.foundation.errors import CertificateError, ConfigError, PartyError
from parties.foundation.version import version_line
from parties.identity.join_documents import fingerprint_words
from parties.identity.typed_words import WrongWords, read_words
from parties.observability.events import OnRejection, ignore_rejection
from parties.observability.failure_causes import Cause, Obstacle
from parties.service import api_forms as forms
from parties.service.access import Access, authorization, principal_of
from parties.service.admin_listener import SOCKET_NAME, short_socket_path
from parties.service.admission import ApplicantState, UnknownApplicant
from parties.service.collection import CollectionRefused
from parties.service.events import Actor
from parties.service.four_eyes import ApprovalRefused
from parties.service.http_answers import error_response, event_stream, json_answer, send_event
from parties.service.key_changes import KeyRefused
from parties.service.known_studies import UnknownStudy
from parties.service.log_api import LOG_QUERY, log_page
from parties.service.metrics import render
from parties.service.obstacles import ServerWait, troubles, waits, waits_text
from parties.service.pending import pending_decisions, wrong_study_text
from parties.service.process_info import folder_dict, process_dict
from parties.service.routes import BODY, ApiRoute, Text, add_routes, openapi_document
from parties.service.run_api import (
    METRICS,
    RUN_EVENTS,
    json_errors,
    same_site_only,
)
from parties.service.service import Service, WrongStudyState
from parties.service.status_client import get_document, versioned
from parties.service.studies import utc_now
from parties.service.study_intake import MAX_DOCUMENT_BYTES, ProposalRefused
from parties.service.study_list import LIST_QUERY, StudyQuery, WrongQuery
from parties.service.study_record import ACTIVE, DISTAIM, ENDED, StudyRecord, StudyState
from parties.service.study_summary import summary_document

SERVICE: web.AppKey[Service] = web.AppKey("service", Service)
CLOSING: web.AppKey[asyncio.Event] = web.AppKey("service_closing", asyncio.Event)
_MAX_ALIKE = 20
"""Maximum number of studies of the same name in a comparison; each costs reading a configuration."""
_LEAST_DIGITS = 32
"""Minimum number of hex digits of an approved digest: 128 bits, as many as its words have."""
_WORKER_S = 10.0
_PAUSE_S = 0.25
_KEEP_ALIVE_S = 15.0
TITLE = "Syncret: a service of studies"
EVENTS = Text("text/event-stream", "Events `status`, each with a ServiceStatus")
BUNDLE_FILE = Text("application/zip", "The file that `syncret bundle` makes")
_PROCESS_PATHS: Mapping[str, type[Any] | Text] = {
    "status": forms.RunStatusDocument,
    "events": RUN_EVENTS,
    "metrics": METRICS,
    "healthz": forms.Health,
    "readyz": forms.Readiness,
}
_JSON = "application/json"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def service_application(
    service: Service,
    access: Access | None = None,
    rejected: OnRejection = ignore_rejection,
) -> web.Application:
    """Returns the API of ``service``. Those whom ``access`` does not have are ``rejected``."""
    middlewares = [
        json_errors,
        authorization(access or Access(), rejected),
        same_site_only,
        _refusal_errors,
    ]
    app = web.Application(middlewares=middlewares, client_max_size=MAX_DOCUMENT_BYTES)
    app[SERVICE] = service
    app[CLOSING] = asyncio.Event()
    app.on_shutdown.append(_close)
    add_routes(app, _routes(), title=TITLE)
    return app


def service_document() -> dict[str, object]:
    """Returns the OpenAPI document of the API."""
    return openapi_document(_routes(), title=TITLE)


def _routes() -> list[ApiRoute]:
    """Returns the routes. A study's ID is a digest, 8 of its digits or more, or the name of a run."""
    get, post = partial(ApiRoute, "GET"), partial(ApiRoute, "POST")
    command = partial(ApiRoute, "POST", answer=forms.CommandTaken, status=202)
    study, confirm = "/studies/{id}", "/servers/{name}/confirm"
    return [
        get("/status", _status, "This server, the two others, and recent studies.", forms.ServiceStatus),
        get("/events", _events, "The status after every change.", EVENTS),
        get("/metrics", _metrics, "Metrics of the service and its studies.", METRICS),
        get("/healthz", _healthz, "200 while its event loop runs.", forms.Health),
        get("/readyz", _readyz, "200 while its ports are open.", forms.Readiness),
        get("/studies", _studies, "The studies.", forms.Studies, query=LIST_QUERY),
        post("/studies", _propose, "Proposes a study.", forms.StudyFacts, forms.StudyProposal, 201),
        get(study, _study, "One study, with its history.", forms.StudyDetails),
        get(f"{study}/summary", _summary, "The study in sentences.", forms.StudySentences),
        post(f"{study}/approve", _approve, "Approves it, by digest or words.", forms.StudyFacts, forms.Approval),
        post(f"{study}/cancel", _cancel, "Ends it for good.", forms.StudyFacts, forms.Cancellation),
        get(f"{study}/requests", _requests, "Owners that ask to be admitted.", forms.ApplicantList),
        post(f"{study}/admit", _admit, "Keeps an owner's certificate.", forms.ApplicantFacts, forms.OwnerCertificate),
        post(f"{study}/refuse", _refuse, "Refuses a request.", forms.ApplicantFacts, forms.ApplicantKey),
        post(f"{study}/collect", _collect, "Collects the result.", forms.CollectionState, forms.Nothing, 202),
        get(f"{study}/collect", _collected, "How far the collection is.", forms.CollectionState),
        get(f"{study}/bundle", _bundle, "The whole result, once it was collected.", BUNDLE_FILE),
        command(f"{study}/close", partial(_send_command, order="close"), "Admits no more.", body=forms.Nothing),
        command(f"{study}/finish", partial(_send_command, order="finish"), "Ends early.", body=forms.Nothing),
        command(f"{study}/revoke", _revoke, "Turns an owner away.", body=forms.OwnerName),
        *(
            get(f"{study}/{what}", partial(_get_from_process, what=what), f"{what} of its process.", form)
            for what, form in _PROCESS_PATHS.items()
        ),
        post(confirm, _confirm_key, "Accepts a server's next key.", forms.Keys, forms.KeyConfirmation),
        ApiRoute("DELETE", confirm, _forget_key, "Forgets the key that was confirmed.", forms.Keys),
        get("/log", _log, "Lines of the operators' log.", forms.LogLines, query=LOG_QUERY),
        post("/cards", _cards, "Makes cards for a new study.", forms.Cards, forms.CardRequest),
    ]  # fmt: skip


async def _log(request: web.Request) -> web.Response:
    return await log_page(request, request.app[SERVICE].studies)


async def _close(app: web.Application) -> None:
    app[CLOSING].set()


@web.middleware
async def _refusal_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers refusals of the service in the API's form."""
    try:
        return await handler(request)
    except WrongWords as error:
        what, _, expected = str(error).partition("; expected ")
        return error_response(HTTPStatus.CONFLICT, what, expected)
    except WrongQuery as error:
        what, _, expected = str(error).partition("; expected ")
        return error_response(HTTPStatus.BAD_REQUEST, what, expected)
    except (UnknownStudy, UnknownApplicant) as error:
        return error_response(HTTPStatus.NOT_FOUND, str(error), "one of those that are listed")
    except (WrongStudyState, ApprovalRefused, CollectionRefused, KeyRefused) as error:
        what, _, expected = str(error).partition("; expected ")
        return error_response(HTTPStatus.CONFLICT, what, expected)
    except ProposalRefused as error:
        return error_response(
            HTTPStatus.UNPROCESSABLE_ENTITY, str(error), "a study of these servers"
        )


# Queries.


async def service_status(service: Service) -> dict[str, object]:
    """Returns this server, the two others, the number of studies in each state, and the recent studies in short."""
    return {
        "service": service.name,
        "pid": service.identity.pid,
        "program": version_line(),
        "started_s": round(time.time() - service.started_at, 1),
        "process": process_dict(),
        "folder": folder_dict(service.identity.folder),
        "limit": service.limit,
        "four_eyes": service.four_eyes.required,
        "refused_connections": {front.what: front.refused for front in service.routers},
        "running": len(service.workers),
        "peers": [
            {
                "name": peer.server.name,
                "pid": peer.pid,
                "mesh": str(peer.server.mesh),
                "there": peer.statement is not None and not peer.problem,
                "problem": peer.problem,
                "round_trip_s": peer.round_trip_s,
                "clock": peer.clock
                and {
                    "offset_s": round(peer.clock.offset_s, 3),
                    "within_s": round(peer.clock.within_s, 3),
                },
                "refused": {} if peer.statement is None else dict(peer.statement.refused),
            }
            for peer in service.peers.values()
        ],
        "clock": {"off_s": service.clocks.own_off_s, "known": service.clocks.known},
        "troubles": _troubles(service),
        "certificates": [end.to_dict() for end in service.certificates.all()],
        "keys": service.key_changes.to_list(),
        "refused": dict(service.fetcher.refused),
        "notify": service.deliveries(),
        "event_counts": dict(service.studies.counts.counts),
        "states": Counter(study.state.value for study in service.studies.values()),
        "studies": [await _study_document(service, study) for study in service.recent()],
    }


async def _study_document(service: Service, study: StudyRecord) -> dict[str, object]:
    """Returns a study in short. Times are UTC, in ISO 8601."""
    worker = service.workers.get(study.digest)
    waiting = _waits(service, study)
    return {
        "digest": study.digest,
        "words": fingerprint_words(study.digest),
        "run": study.run,
        "kind": study.kind,
        "state": study.state.value,
        "reason": study.reason,
        "why": study.reason or waits_text(*waiting) or (worker.text if worker else ""),
        "pending": await pending_decisions(
            study,
            service.name,
            service.admission,
            first=service.four_eyes.first.get(study.digest),
        ),
        "approved_first": service.four_eyes.first.get(study.digest),
        "waits": [wait.to_dict() for wait in waiting],
        "turn": study.turn,
        "proposer": study.proposer,
        "proposed_at": study.proposed_at.isoformat(timespec="seconds"),
        "changed_at": study.changed_at.isoformat(timespec="seconds"),
        "started_at": study.started_at and study.started_at.isoformat(timespec="seconds"),
        "ended_at": study.ended_at and study.ended_at.isoformat(timespec="seconds"),
        "ended_s": study.ended_at and round((utc_now() - study.ended_at).total_seconds(), 1),
        **await _summary_fields(service, study),
        "servers": _server_states(service, study),
        "folder": service.studies.folder(study).text,
        "process": worker
        and {
            "id": worker.process,
            "text": worker.text,
            "restarts": worker.restarts,
            "next_try_s": worker.next_try_at and round(worker.next_try_at - time.time(), 1),
        },
        "orders": _orders(service, study),
    }


def _orders(service: Service, study: StudyRecord) -> list[str]:
    """Returns the service's own commands that a study takes in its state."""
    found = ["approve"] if study.state in (StudyState.PROPOSED, StudyState.FAILED) else []
    if study.state not in (StudyState.FINISHED, StudyState.CANCELLED):
        found.append("cancel")
    if study.state is StudyState.FINISHED:
        found.append("collect")
    return found


def _waits(service: Service, study: StudyRecord) -> list[ServerWait]:
    """Returns the conditions that the study's servers wait for, by their own statements."""
    if study.state not in ACTIVE:
        return []
    worker, servers = service.workers.get(study.digest), service.identity.servers
    found = {service.identity.pid: (worker and worker.obstacle) or service.obstacle}
    if study.kind == DISTAIM:
        for pid, peer in service.peers.items():
            if peer.other_version:
                found[pid] = Obstacle(Cause.VERSION)
            elif (said := peer.statement) is not None:
                snapshot = said.studies.get(study.digest)
                found[pid] = (snapshot and snapshot.obstacle) or said.obstacle
    return waits([server.name for server in servers], found, service.clocks)


def _troubles(service: Service) -> list[str]:
    """Returns the problems of the servers themselves."""
    found = {pid: peer.statement.obstacle for pid, peer in service.peers.items() if peer.statement}
    found |= {
        pid: Obstacle(Cause.VERSION) for pid, peer in service.peers.items() if peer.other_version
    }
    found[service.identity.pid] = service.obstacle
    names = [server.name for server in service.identity.servers]
    return [
        *troubles(names, found, service.clocks),
        *service.key_changes.troubles(),
        *service.certificates.sentences(),
        *(
            f"{each['target']} takes no notifications: {each['problem']}"
            for each in service.deliveries()
            if each["problem"]
        ),
    ]


async def _summary_fields(service: Service, study: StudyRecord) -> dict[str, object]:
    """Returns the summary of a study's configuration; its values are None if the configuration is unreadable.

    Raises StoreError.
    """
    try:
        summary = await service.studies.summary(study.digest)
    except ConfigError:
        summary = None
    return {
        "epsilon": summary and summary.epsilon,
        "delta": summary and summary.delta,
        "rounds": summary and summary.rounds,
        "columns": summary and summary.columns,
        "owners": {
            "expected": summary and summary.expected,
            "minimum": summary and summary.minimum,
            "rows_per_client": summary and summary.rows_per_client,
            "named": list(summary.named) if summary else [],
        },
    }


def _server_states(service: Service, study: StudyRecord) -> list[dict[str, object]]:
    """Returns for each server its approval of the study, and the study's state there if it is known."""
    servers = service.identity.servers if study.kind == DISTAIM else (service.identity.own,)
    found: list[dict[str, object]] = []
    for server in servers:
        peer = next((p for p in service.peers.values() if p.server is server), None)
        said = peer.statement if peer else None
        snapshot = said.studies.get(study.digest) if said else None
        state = study.state.value if peer is None else snapshot and snapshot.state.value
        refused = said.refused.get(study.digest, "") if said else ""
        problem = refused or (peer.problem if peer else "")
        approved = server.name in study.approvals
        found.append(
            {"name": server.name, "approved": approved, "state": state, "problem": problem}
        )
    return found


async def _same_name_studies(service: Service, study: StudyRecord) -> list[dict[str, object]]:
    """Returns other open studies of the same name, which could be confused with this one, and their differences."""
    agreed = (await service.studies.config(study.digest)).agreed()
    alike: list[dict[str, object]] = []
    for other in _in_order(service):
        if other.run != study.run or other.digest == study.digest or other.state in ENDED:
            continue
        if len(alike) == _MAX_ALIKE:
            break
        theirs = (await service.studies.config(other.digest)).agreed()
        found = [
            {"key": item.key, "here": item.ours, "there": item.theirs}
            for item in differences(agreed, theirs)
        ]
        alike.append(
            {
                "digest": other.digest,
                "proposer": other.proposer,
                "state": other.state.value,
                "differences": found,
            }
        )
    return alike


def _in_order(service: Service) -> list[StudyRecord]:
    return sorted(service.studies.values(), key=lambda study: (study.proposed_at, study.digest))


async def _status(request: web.Request) -> web.Response:
    return json_answer(await service_status(request.app[SERVICE]))


async def _healthz(request: web.Request) -> web.Response:
    return json_answer({"healthy": True})


async def _readyz(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    away = [peer.problem for peer in service.peers.values() if peer.problem]
    return json_answer({"ready": True, "peers": away})


async def _metrics(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    asked = [
        asyncio.to_thread(_status_of, service.studies.folder(service.studies[digest]).work)
        for digest in service.workers
    ]
    statuses = [status for status in await asyncio.gather(*asked) if status is not None]
    body, content_type = await asyncio.to_thread(
        render, statuses, request.headers.get("Accept", ""), own=await service_status(service)
    )
    return web.Response(body=body, headers={"Content-Type": content_type})


def _status_of(folder: Path) -> Mapping[str, Any] | None:
    """Returns the status document of a study's process, or None if the process does not answer. Blocks."""
    try:
        return get_document(folder)
    except PartyError:
        return None


async def _studies(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    chosen, total = StudyQuery.of(request.query).select(service.studies.values())
    listed = [await _study_document(service, study) for study in chosen]
    return json_answer({"studies": listed, "total": total})


async def _summary(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    study = service.studies.find(request.match_info["id"])
    return json_answer(await summary_document(service.studies, study, service.name))


async def _study(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    study = service.studies.find(request.match_info["id"])
    entries = await asyncio.to_thread(service.studies.repository.entries, study.digest)
    proposed = await service.studies.proposed(study.digest)
    return json_answer(
        await _study_document(service, study)
        | {
            "config": proposed.config,
            "requests": [
                each.to_dict()
                for each in await service.admission.all(study)
                if each.state is ApplicantState.PENDING and study.state not in ENDED
            ],
            "alike": await _same_name_studies(service, study),
            "history": [entry.to_dict() for entry in entries],
        }
    )


async def _events(request: web.Request) -> web.StreamResponse:
    service, closing = request.app[SERVICE], request.app[CLOSING]
    response, revision = await event_stream(request), -1
    with contextlib.suppress(ConnectionError):
        while not closing.is_set():
            if revision != service.studies.changes.revision:
                revision = service.studies.changes.revision
                await send_event(response, "status", await service_status(service))
            else:
                await response.write(b": at work\n\n")
            await _wait_for_change(closing, service.studies.changes.since(revision))
    return response


async def _wait_for_change(closing: asyncio.Event, changed: Awaitable[int]) -> None:
    """Waits for a change, for the end, or until a keep-alive is due; then pauses to limit the rate of events."""
    tasks = [asyncio.ensure_future(changed), asyncio.ensure_future(closing.wait())]
    try:
        await asyncio.wait(tasks, timeout=_KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PAUSE_S):
            await closing.wait()


# Commands.


def actor(request: web.Request) -> Actor:
    """Returns the requester, as in the event log."""
    principal = principal_of(request)
    return Actor(principal.actor, principal.identity or principal.subject)


async def _propose(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    body = request[BODY]
    study = await service.propose(body, actor(request))
    return json_answer(await _study_document(service, study), HTTPStatus.CREATED)


async def _approve(request: web.Request) -> web.Response:
    service, heard = request.app[SERVICE], request[BODY]["heard"]
    study = service.studies.find(request.match_info["id"])
    names = [server.name for server in service.identity.servers]
    if not all(name in names for name in heard):
        raise ProposalRefused("heard is not a list of servers' names")
    given = read_words(request[BODY]["digest"])
    digits = len(given) >= _LEAST_DIGITS and study.digest.startswith(given)
    if not digits and given != fingerprint_words(study.digest):
        raise WrongWords(wrong_study_text(given, service.studies.values()))
    study = await service.approve(study.digest, actor(request), heard=tuple(heard))
    return json_answer(await _study_document(service, study))


async def _cancel(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    reason = request[BODY]["reason"]
    if len(reason) > 200 or not (reason + "x").isprintable():
        raise ProposalRefused("reason is not a text of at most 200 printable characters")
    study = service.studies.find(request.match_info["id"])
    study = await service.cancel(study.digest, actor(request), reason)
    return json_answer(await _study_document(service, study))


async def _requests(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    study = service.studies.find(request.match_info["id"])
    return json_answer(
        {"requests": [each.to_dict() for each in await service.admission.all(study)]}
    )


async def _admit(request: web.Request) -> web.Response:
    service, body = request.app[SERVICE], request[BODY]
    study = service.studies.find(request.match_info["id"])
    try:
        found = await service.admit(study.digest, actor(request), body["certificate"])
    except CertificateError as error:
        raise ProposalRefused(str(error)) from error
    return json_answer(found.to_dict())


async def _refuse(request: web.Request) -> web.Response:
    service, body = request.app[SERVICE], request[BODY]
    study = service.studies.find(request.match_info["id"])
    return json_answer((await service.refuse(study.digest, actor(request), body["key"])).to_dict())


async def _collect(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    study = service.studies.find(request.match_info["id"])
    service.collection.start(study, actor(request))
    return json_answer(service.collection.state(study), HTTPStatus.ACCEPTED)


async def _collected(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    study = service.studies.find(request.match_info["id"])
    return json_answer(service.collection.state(study))


async def _bundle(request: web.Request) -> web.StreamResponse:
    service = request.app[SERVICE]
    study = service.studies.find(request.match_info["id"])
    path = service.collection.bundle(study)
    if path is None:
        what = f"the result of {study.run} was not collected here"
        return error_response(HTTPStatus.CONFLICT, what, "POST .../collect before, and its end")
    headers = {"Content-Type": BUNDLE_FILE.media, "Cache-Control": "no-store"}
    return web.FileResponse(path, headers=headers)


async def _confirm_key(request: web.Request) -> web.Response:
    service, body = request.app[SERVICE], request[BODY]
    name, content = request.match_info["name"], body["file"]
    try:
        await service.key_changes.confirm(name, body["words"], actor(request), content=content)
    except CertificateError as error:
        raise ProposalRefused(str(error)) from error
    return json_answer({"keys": service.key_changes.to_list()})


async def _forget_key(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    try:
        await service.key_changes.forget(request.match_info["name"], actor(request))
    except CertificateError as error:
        raise ProposalRefused(str(error)) from error
    return json_answer({"keys": service.key_changes.to_list()})


async def _cards(request: web.Request) -> web.Response:
    service, body = request.app[SERVICE], request[BODY]
    kind = body["kind"]
    try:
        if body["own"]:
            return json_answer({"cards": [await service.answers.new_card(kind)]})
        return json_answer({"cards": await service.cards(kind)})
    except PartyError as error:
        return error_response(HTTPStatus.BAD_GATEWAY, str(error), "all servers of the study")


# Requests to a study's own process.


def _running_study(service: Service, name: str) -> StudyRecord:
    """Returns a study that has a process. Raises UnknownStudy, WrongStudyState."""
    study = service.studies.find(name)
    if study.state not in ACTIVE:
        raise WrongStudyState(f"{study.run} is {study.state}; expected one that runs")
    return study


async def _send_command(request: web.Request, order: str) -> web.StreamResponse:
    service = request.app[SERVICE]
    study = _running_study(service, request.match_info["id"])
    response = await _forward(request, service.studies.folder(study).work, f"/{order}")
    if response.status < HTTPStatus.MULTIPLE_CHOICES:
        await service.asked(study.digest, actor(request), order)
    return response


async def _revoke(request: web.Request) -> web.StreamResponse:
    service, body = request.app[SERVICE], request[BODY]
    study = _running_study(service, request.match_info["id"])
    response = await _forward(request, service.studies.folder(study).work, "/revoke", body)
    if response.status < HTTPStatus.MULTIPLE_CHOICES:
        await service.asked(study.digest, actor(request), f"revoke {body['owner']}")
    return response


async def _get_from_process(request: web.Request, what: str) -> web.StreamResponse:
    service = request.app[SERVICE]
    study = service.studies.find(request.match_info["id"])
    form = _PROCESS_PATHS[what]
    media = form.media if isinstance(form, Text) else _JSON
    return await _forward(request, service.studies.folder(study).work, f"/{what}", media=media)


async def _forward(
    request: web.Request,
    folder: Path,
    path: str,
    body: Mapping[str, object] | None = None,
    *,
    media: str = _JSON,
) -> web.StreamResponse:
    """Streams the answer of the process in ``folder`` to the client, as ``media``: the process chooses no type."""
    limits = aiohttp.ClientTimeout(total=None, sock_connect=_WORKER_S, sock_read=60.0)
    try:
        with short_socket_path(folder / SOCKET_NAME) as name:
            connector = aiohttp.UnixConnector(name)
            async with (
                aiohttp.ClientSession(connector=connector, timeout=limits) as session,
                session.request(
                    request.method, f"http://localhost{versioned(path)}", json=body
                ) as answer,
            ):
                return await _copy_response(request, answer, media)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        what = f"the study's process does not answer ({type(error).__name__})"
        return error_response(HTTPStatus.SERVICE_UNAVAILABLE, what, "a study that runs")


async def _copy_response(
    request: web.Request, answer: aiohttp.ClientResponse, media: str
) -> web.StreamResponse:
    shown = media if answer.status < HTTPStatus.BAD_REQUEST else _JSON
    headers = {"Content-Type": f"{shown}; charset=utf-8", "Cache-Control": "no-store"}
    response = web.StreamResponse(status=answer.status, headers=headers)
    closing = asyncio.ensure_future(request.app[CLOSING].wait())
    try:
        await response.prepare(request)
        while not closing.done():
            chunk = asyncio.ensure_future(answer.content.readany())
            await asyncio.wait((chunk, closing), return_when=asyncio.FIRST_COMPLETED)
            if not chunk.done():
                chunk.cancel()
                break
            if not (data := chunk.result()):
                break
            await response.write(data)
    finally:
        closing.cancel()
    return response
