"""Admin API of a service of studies, as an aiohttp application (`parties.service.run_api` has that of a single study).

    GET  /status                       this server, the two others, and all studies in short
    GET  /events                       the same after every change, as server-sent events ``status``
    GET  /metrics                      metrics of all running studies and of the service itself, for Prometheus
    GET  /healthz, /readyz             200 while its event loop runs; 200 while its ports are open
    GET  /studies                      {"studies": [...]}; ?state=running for the studies in one state
    POST /studies                      propose: {"config": TOML, "certificates": {name: PEM}}
    GET  /studies/ID                   one study with its configuration, history and differences from similar studies
    POST /studies/ID/approve           {"digest": the whole digest, or its twelve words}
    POST /studies/ID/cancel            {"reason": text}; the reason is optional
    GET  /studies/ID/requests          data owners' requests for admission to the study
    POST /studies/ID/admit             {"certificate": PEM}: keeps it for the owner that has asked with its key
    POST /studies/ID/refuse            {"key": hex}: refuses the request of this key
    POST /studies/ID/collect           collects the whole result of a finished study into one file; GET: how far it is
    POST /studies/ID/close, /finish    forwarded to the study's process
    POST /studies/ID/revoke            {"owner": NAME}; forwarded as well
    GET  /studies/ID/status, /events, /metrics, /healthz, /readyz    forwarded to the study's process
    POST /servers/NAME/confirm         {"words": text}: accepts the next key that the server NAME announces; with
                                       {"file": its new public file} that file's, and its former one no more
    DELETE /servers/NAME/confirm       forgets the next key of NAME that was confirmed here
    POST /cards                        {"kind": "distaim", "flaim", "silos"}: new cards of a study's servers; "own": own

ID is a digest, 8 of its digits or more, or the name of a run. Other modules add routes to ``service_application``. The
layer below authorizes the clients. No secret value is shown.
"""

import asyncio
import contextlib
import json
import pwd
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from parties.config.diff import differences
from parties.foundation.errors import CertificateError, ConfigError, PartyError
from parties.foundation.version import version_line
from parties.identity.join_documents import fingerprint_words
from parties.identity.tls import peer_name
from parties.identity.typed_words import WrongWords, read_words
from parties.observability.events import OnRejection, ignore_rejection
from parties.service.admin_listener import SOCKET_NAME, short_socket_path
from parties.service.admission import ApplicantState, UnknownApplicant
from parties.service.collection import CollectionRefused
from parties.service.key_changes import KeyRefused
from parties.service.known_studies import UnknownStudy
from parties.service.metrics import render
from parties.service.obstacles import ServerWait, troubles, waits, waits_text
from parties.service.process_info import folder_dict, process_dict
from parties.service.run_api import (
    error_response,
    event_stream,
    fingerprint_allowlist,
    json_errors,
    same_site_only,
    send_event,
)
from parties.service.service import Service, WrongStudyState
from parties.service.status_client import get_document
from parties.service.studies import ACTIVE, DISTAIM, ENDED, FLAIM, SILOS, StudyRecord, StudyState
from parties.service.study_intake import MAX_DOCUMENT_BYTES, ProposalRefused

SERVICE: web.AppKey[Service] = web.AppKey("service", Service)
CLOSING: web.AppKey[asyncio.Event] = web.AppKey("service_closing", asyncio.Event)
_MAX_ALIKE = 20
"""Maximum number of studies of the same name in a comparison; each costs reading a configuration."""
_LEAST_DIGITS = 32
"""Minimum number of hex digits of an approved digest: 128 bits, as many as its words have."""
_WORKER_S = 10.0
_PAUSE_S = 0.25
_KEEP_ALIVE_S = 15.0
_PEER_CREDENTIALS = struct.Struct("3i")
_PROCESS_PATHS = ("status", "events", "metrics", "healthz", "readyz")
_PROCESS_COMMANDS = ("close", "finish")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def service_application(
    service: Service,
    clients: Collection[str] = (),
    rejected: OnRejection = ignore_rejection,
    *,
    readers: Collection[str] = (),
) -> web.Application:
    """Returns the API of ``service``. ``clients`` and ``readers`` have access over TLS; others are ``rejected``."""
    middlewares = [
        json_errors,
        fingerprint_allowlist(clients, rejected, readers),
        same_site_only,
        _refusal_errors,
    ]
    app = web.Application(middlewares=middlewares, client_max_size=MAX_DOCUMENT_BYTES)
    app[SERVICE] = service
    app[CLOSING] = asyncio.Event()
    app.on_shutdown.append(_close)
    app.add_routes(
        [
            web.get("/status", _status),
            web.get("/events", _events),
            web.get("/metrics", _metrics),
            web.get("/healthz", _healthz),
            web.get("/readyz", _readyz),
            web.get("/studies", _studies),
            web.post("/studies", _propose),
            web.get("/studies/{id}", _study),
            web.post("/studies/{id}/approve", _approve),
            web.post("/studies/{id}/cancel", _cancel),
            web.get("/studies/{id}/requests", _requests),
            web.post("/studies/{id}/admit", _admit),
            web.post("/studies/{id}/refuse", _refuse),
            web.post("/studies/{id}/collect", _collect),
            web.get("/studies/{id}/collect", _collected),
            web.post(f"/studies/{{id}}/{{order:{'|'.join(_PROCESS_COMMANDS)}}}", _send_command),
            web.post("/studies/{id}/revoke", _revoke),
            web.get(f"/studies/{{id}}/{{what:{'|'.join(_PROCESS_PATHS)}}}", _get_from_process),
            web.post("/servers/{name}/confirm", _confirm_key),
            web.delete("/servers/{name}/confirm", _forget_key),
            web.post("/cards", _cards),
        ]
    )
    return app


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
    except (UnknownStudy, UnknownApplicant) as error:
        return error_response(HTTPStatus.NOT_FOUND, str(error), "one of those that are listed")
    except (WrongStudyState, CollectionRefused, KeyRefused) as error:
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
        "waits": [wait.to_dict() for wait in waiting],
        "turn": study.turn,
        "proposer": study.proposer,
        "proposed_at": study.proposed_at.isoformat(timespec="seconds"),
        "changed_at": study.changed_at.isoformat(timespec="seconds"),
        "started_at": study.started_at and study.started_at.isoformat(timespec="seconds"),
        "ended_at": study.ended_at and study.ended_at.isoformat(timespec="seconds"),
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
    }


def _waits(service: Service, study: StudyRecord) -> list[ServerWait]:
    """Returns the conditions that the study's servers wait for, by their own statements."""
    if study.state not in ACTIVE:
        return []
    worker, servers = service.workers.get(study.digest), service.identity.servers
    found = {service.identity.pid: (worker and worker.obstacle) or service.obstacle}
    if study.kind == DISTAIM:
        for pid, peer in service.peers.items():
            if (said := peer.statement) is not None:
                snapshot = said.studies.get(study.digest)
                found[pid] = (snapshot and snapshot.obstacle) or said.obstacle
    return waits([server.name for server in servers], found, service.clocks)


def _troubles(service: Service) -> list[str]:
    """Returns the problems of the servers themselves."""
    found = {pid: peer.statement.obstacle for pid, peer in service.peers.items() if peer.statement}
    found[service.identity.pid] = service.obstacle
    names = [server.name for server in service.identity.servers]
    return [
        *troubles(names, found, service.clocks),
        *service.key_changes.troubles(),
        *service.certificates.sentences(),
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


def _answer(document: object, status: int = HTTPStatus.OK) -> web.Response:
    return web.json_response(document, status=status, headers={"Cache-Control": "no-store"})


async def _status(request: web.Request) -> web.Response:
    return _answer(await service_status(request.app[SERVICE]))


async def _healthz(request: web.Request) -> web.Response:
    return _answer({"healthy": True})


async def _readyz(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    away = [peer.problem for peer in service.peers.values() if peer.problem]
    return _answer({"ready": True, "peers": away})


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
    service, state = request.app[SERVICE], request.query.get("state")
    if state is not None and state not in [item.value for item in StudyState]:
        expected = ", ".join(item.value for item in StudyState)
        return error_response(
            HTTPStatus.BAD_REQUEST, f"no state is called {state[:40]!r}", expected
        )
    chosen = [study for study in _in_order(service) if state in (None, study.state.value)]
    return _answer({"studies": [await _study_document(service, study) for study in chosen]})


async def _study(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    study = service.studies.find(request.match_info["id"])
    entries = await asyncio.to_thread(service.studies.repository.entries, study.digest)
    proposed = await service.studies.proposed(study.digest)
    return _answer(
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


async def _body(request: web.Request) -> dict[str, object]:
    """Returns the JSON object in the body; an empty body is an empty object. Raises ProposalRefused."""
    data = await request.read()
    try:
        document = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ProposalRefused("the body is not a JSON object")
    return document


def actor(request: web.Request) -> str:
    """Returns the requester's name: from the client certificate, or the system's user at the socket's other end."""
    transport = request.transport
    certificate = transport.get_extra_info("ssl_object") if transport is not None else None
    if certificate is not None:
        return f"operator {peer_name(certificate)}"
    connection = transport.get_extra_info("socket") if transport is not None else None
    option = getattr(socket, "SO_PEERCRED", None)
    if connection is None or option is None or connection.family != socket.AF_UNIX:
        return "operator"
    data = connection.getsockopt(socket.SOL_SOCKET, option, _PEER_CREDENTIALS.size)
    _, uid, _ = _PEER_CREDENTIALS.unpack(data)
    with contextlib.suppress(KeyError):
        return f"operator {pwd.getpwuid(uid).pw_name}"
    return f"operator {uid}"


async def _propose(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    study = await service.propose(await _body(request), actor(request))
    return _answer(await _study_document(service, study), HTTPStatus.CREATED)


async def _approve(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    study, said = (
        service.studies.find(request.match_info["id"]),
        (await _body(request)).get("digest"),
    )
    given = read_words(str(said or ""))
    digits = len(given) >= _LEAST_DIGITS and study.digest.startswith(given)
    if not digits and given != fingerprint_words(study.digest):
        text = "the digest or the words that were given are not this study's"
        return error_response(HTTPStatus.CONFLICT, text, "all 64 digits of it, or its twelve words")
    study = await service.approve(study.digest, actor(request))
    return _answer(await _study_document(service, study))


async def _cancel(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    reason = (await _body(request)).get("reason", "")
    if not isinstance(reason, str) or len(reason) > 200 or not (reason + "x").isprintable():
        raise ProposalRefused("reason is not a text of at most 200 printable characters")
    study = service.studies.find(request.match_info["id"])
    study = await service.cancel(study.digest, actor(request), reason)
    return _answer(await _study_document(service, study))


async def _requests(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    study = service.studies.find(request.match_info["id"])
    return _answer({"requests": [each.to_dict() for each in await service.admission.all(study)]})


async def _admit(request: web.Request) -> web.Response:
    service, body = request.app[SERVICE], await _body(request)
    study = service.studies.find(request.match_info["id"])
    try:
        found = await service.admit(study.digest, actor(request), str(body.get("certificate", "")))
    except CertificateError as error:
        raise ProposalRefused(str(error)) from error
    return _answer(found.to_dict())


async def _refuse(request: web.Request) -> web.Response:
    service, body = request.app[SERVICE], await _body(request)
    study = service.studies.find(request.match_info["id"])
    return _answer(
        (await service.refuse(study.digest, actor(request), str(body.get("key", "")))).to_dict()
    )


async def _collect(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    study = service.studies.find(request.match_info["id"])
    service.collection.start(study, actor(request))
    return _answer(service.collection.state(study), HTTPStatus.ACCEPTED)


async def _collected(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    study = service.studies.find(request.match_info["id"])
    return _answer(service.collection.state(study))


async def _confirm_key(request: web.Request) -> web.Response:
    service, body = request.app[SERVICE], await _body(request)
    name, words, content = request.match_info["name"], body.get("words"), body.get("file")
    if not isinstance(words, str) or not (content is None or isinstance(content, str)):
        raise ProposalRefused("words is not a text, or file is none")
    try:
        await service.key_changes.confirm(name, words, actor(request), content=content)
    except CertificateError as error:
        raise ProposalRefused(str(error)) from error
    return _answer({"keys": service.key_changes.to_list()})


async def _forget_key(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    try:
        await service.key_changes.forget(request.match_info["name"], actor(request))
    except CertificateError as error:
        raise ProposalRefused(str(error)) from error
    return _answer({"keys": service.key_changes.to_list()})


async def _cards(request: web.Request) -> web.Response:
    service, body = request.app[SERVICE], await _body(request)
    kind = body.get("kind", DISTAIM)
    if kind not in (DISTAIM, FLAIM, SILOS):
        raise ProposalRefused(
            f"kind is {str(kind)[:40]!r}; expected {DISTAIM!r}, {FLAIM!r} or {SILOS!r}"
        )
    try:
        if body.get("own"):
            return _answer({"cards": [await service.answers.new_card(str(kind))]})
        return _answer({"cards": await service.cards(str(kind))})
    except PartyError as error:
        return error_response(HTTPStatus.BAD_GATEWAY, str(error), "all servers of the study")


# Requests to a study's own process.


def _running_study(service: Service, name: str) -> StudyRecord:
    """Returns a study that has a process. Raises UnknownStudy, WrongStudyState."""
    study = service.studies.find(name)
    if study.state not in ACTIVE:
        raise WrongStudyState(f"{study.run} is {study.state}; expected one that runs")
    return study


async def _send_command(request: web.Request) -> web.StreamResponse:
    service, order = request.app[SERVICE], request.match_info["order"]
    study = _running_study(service, request.match_info["id"])
    response = await _forward(request, service.studies.folder(study).work, f"/{order}")
    if response.status < HTTPStatus.MULTIPLE_CHOICES:
        await service.asked(study.digest, actor(request), order)
    return response


async def _revoke(request: web.Request) -> web.StreamResponse:
    service, body = request.app[SERVICE], await _body(request)
    study = _running_study(service, request.match_info["id"])
    response = await _forward(request, service.studies.folder(study).work, "/revoke", body)
    if response.status < HTTPStatus.MULTIPLE_CHOICES:
        await service.asked(study.digest, actor(request), f"revoke {body.get('owner')}")
    return response


async def _get_from_process(request: web.Request) -> web.StreamResponse:
    service = request.app[SERVICE]
    study = service.studies.find(request.match_info["id"])
    return await _forward(
        request, service.studies.folder(study).work, f"/{request.match_info['what']}"
    )


async def _forward(
    request: web.Request, folder: Path, path: str, body: Mapping[str, object] | None = None
) -> web.StreamResponse:
    """Streams the answer of the process in ``folder`` to the client."""
    limits = aiohttp.ClientTimeout(total=None, sock_connect=_WORKER_S, sock_read=60.0)
    try:
        with short_socket_path(folder / SOCKET_NAME) as name:
            connector = aiohttp.UnixConnector(name)
            async with (
                aiohttp.ClientSession(connector=connector, timeout=limits) as session,
                session.request(request.method, f"http://localhost{path}", json=body) as answer,
            ):
                return await _copy_response(request, answer)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        what = f"the study's process does not answer ({type(error).__name__})"
        return error_response(HTTPStatus.SERVICE_UNAVAILABLE, what, "a study that runs")


async def _copy_response(
    request: web.Request, answer: aiohttp.ClientResponse
) -> web.StreamResponse:
    headers = {name: answer.headers[name] for name in ("Content-Type",) if name in answer.headers}
    response = web.StreamResponse(
        status=answer.status, headers=headers | {"Cache-Control": "no-store"}
    )
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
