"""The ingest API against hostile clients: each ends in a clear error, and nothing is stored."""

import asyncio
import contextlib
import gzip
import io
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np
import pytest

from parties.config import CertificateFiles, Config
from parties.foundation.errors import CertificateError, ConfigError
from parties.foundation.version import INGEST_HEADER, INGEST_VERSION, ingest_headers, version
from parties.identity.tls import client_context, pinned_key_in
from parties.mpc.exclusion import Exclusion
from parties.mpc.intake import http, listener
from parties.mpc.intake.http import IngestApi
from parties.mpc.intake.listener import start_ingest
from parties.mpc.records import ParticipantRecord
from parties.mpc.storage import incoming
from parties.mpc.storage.incoming import IncomingBody
from parties.mpc.storage.store import Store
from parties.mpc.submission.http_api import is_retryable
from parties.mpc.submission.messages import Submission
from parties.mpc.submission.sealed_upload import (
    PARTS_HEADER,
    SIGNATURE_HEADER,
    SealedUpload,
    SignedUpload,
    check_receipt,
    receipts_in,
)
from parties.network.http_connections import TlsConnector
from parties.session.study import Study
from protocols.upload import component_digests, parse_upload
from tests.parties.support import (
    Ready,
    bodies_in,
    file_size_limit,
    hangs_up_after_a_late_handshake,
    make_config,
    running_servers,
    sealed_upload,
    sign,
)
from tests.until import eventually

Certificates = dict[str, CertificateFiles]
PID = 1
CELLS = 56
SIZE = 3 * 1136 + 64 + 2 * 32 + 4 * CELLS + 16
"""Three boxes, 64 bytes of seeds, the common part's key for two, x2 and its tag."""


@dataclass
class Server:
    """Server 1 of a run, listening, and how to reach it."""

    config: Config
    store: Store
    certificates: Certificates
    uploads: dict[tuple[object, ...], Ready] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.port = self.config.parties[PID].ingest.port
        self.path = "/v1/runs/trial/submission"

    def upload(self, client: str = "clinic-a", **changes: object) -> Ready:
        """The same for the same arguments, so that it can be sent again."""
        key = client, *sorted((name, str(value)) for name, value in changes.items())
        if key not in self.uploads:
            self.uploads[key] = sealed_upload(self.config, client, **changes)  # type: ignore[arg-type]
        return self.uploads[key]

    def headers(self, client: str = "clinic-a", **changes: object) -> dict[str, str]:
        headers = self.upload(client, **changes).signed.headers()
        return {**headers, "Content-Length": str(SIZE)}

    async def request(
        self,
        method: str,
        path: str,
        *,
        client: str = "clinic-a",
        headers: dict[str, str] | None = None,
        body: object = None,
    ) -> tuple[int, dict[str, object]]:
        context = client_context(
            self.certificates[client], pinned_key_in(self.certificates[f"party-{PID}"].cert)
        )
        async with (
            aiohttp.ClientSession(connector=TlsConnector(context)) as session,
            session.request(
                method, f"https://127.0.0.1:{self.port}{path}", headers=headers, data=body
            ) as response,
        ):
            return response.status, await response.json()

    async def put(
        self, content: bytes | None = None, *, client: str = "clinic-a", **changes: object
    ) -> tuple[int, dict[str, object]]:
        ready = self.upload(client, **changes)
        data = io.BytesIO(ready.sealed.content if content is None else content)
        headers = ready.signed.headers()
        return await self.request("PUT", self.path, client=client, headers=headers, body=data)

    @contextlib.asynccontextmanager
    async def connection(
        self, client: str = "clinic-a"
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A TLS connection to write anything to."""
        context = client_context(
            self.certificates[client], pinned_key_in(self.certificates[f"party-{PID}"].cert)
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    def stored(self) -> list[str]:
        """Clients in the store; nothing else may be left lying about."""
        assert list((self.store.directory / "incoming").iterdir()) == []
        clients = [item.submission.client for item in self.store.submissions.all()]
        for folder in ("submissions", "outbox"):
            assert len(bodies_in(self.store.directory, folder)) == len(clients)
        return clients


@pytest.fixture
async def server(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Server]:
    monkeypatch.setattr(listener, "IDLE_TIMEOUT_S", 0.5)
    monkeypatch.setattr(listener, "LINGER_S", 0.1)
    monkeypatch.setattr(listener, "HANDSHAKE_TIMEOUT_S", 0.5)
    config = make_config({"timeouts.submit_s": 0.5})
    async with running_servers(config, tmp_path, certificates, (PID,)) as stores:
        yield Server(config, stores[PID], certificates)


def error_of(answer: dict[str, object]) -> dict[str, str]:
    assert list(answer) == ["error"]
    error = answer["error"]
    assert isinstance(error, dict)
    assert list(error)[:3] == ["what", "where", "expected"]
    assert set(error) <= {"what", "where", "expected", "reason"}
    assert all(error.values())
    return error


async def raw_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, object]]:
    raw = await asyncio.wait_for(reader.read(), 5)
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"application/json" in head
    return int(head.split()[1]), json.loads(body)


def raw_request(server: Server, headers: dict[str, str]) -> bytes:
    lines = [f"PUT {server.path} HTTP/1.1", "Host: x", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


# What is right


async def test_put_stores_a_submission_once(server: Server) -> None:
    status, answer = await server.put()
    ready = server.upload()
    (receipt,) = receipts_in(answer)
    check_receipt(receipt, ready.signed.upload, server.config)
    digest = ready.signed.upload.digest()
    said = {
        "run": "trial",
        "party": "party-1",
        "client": "clinic-a",
        "upload": digest,
        "first_round": 1,
        "counted_from": 0,
        "status": "stored",
        "receipts": [receipt.to_dict()],
        "kept_for": ["party-0", "party-2"],
        "refused": {},
        "received_bytes": SIZE,
    }
    assert (status, answer) == (202, said)
    status, answer = await server.put()
    assert (status, answer["status"], answer["upload"]) == (202, "already stored", digest)
    assert server.stored() == ["clinic-a"]
    body = ready.parts.bodies[PID]
    assert server.store.submissions.read("clinic-a") == body
    (stored,) = server.store.submissions.all()
    own, next_ = component_digests(parse_upload(PID, "seeded", body, CELLS))
    assert (stored.own_digest, stored.next_digest) == (own.hex(), next_.hex())
    requests, received, sent = server.store.traffic.by_client()["clinic-a"]
    # The second time nothing is asked for, which a client that waits for 100 would have saved.
    assert (requests, received) == (2, SIZE)
    assert sent > 300


async def test_put_at_the_same_time_stores_a_submission_once(server: Server) -> None:
    answers = await asyncio.gather(*(server.put() for _ in range(5)))
    assert [status for status, _ in answers] == [202] * 5
    assert Counter(str(answer["status"]) for _, answer in answers) == {
        "stored": 1,
        "already stored": 4,
    }
    assert server.stored() == ["clinic-a"]


@pytest.mark.parametrize(("together", "at_once"), [(1, 1), (5000, 2)])
async def test_put_opens_no_more_at_once_than_there_is_memory_for(
    together: int,
    at_once: int,
    tmp_path: Path,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An upload of 130 MB takes 370 MB while it is opened; 1,000 owners may send theirs at once."""
    monkeypatch.setattr(http, "_TOGETHER_BYTES", together)
    real, inside, most = IngestApi._store_upload, 0, 0
    full = threading.Event()

    def slow(self: IngestApi, upload: SignedUpload, whole: IncomingBody) -> bool:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == at_once:
            full.set()
        full.wait(20.0)
        # One more than may be would come meanwhile.
        time.sleep(0.1)  # Sleeps: quiet.
        inside -= 1
        return real(self, upload, whole)

    monkeypatch.setattr(IngestApi, "_store_upload", slow)
    config = make_config()
    async with running_servers(config, tmp_path, certificates, (PID,)) as stores:
        server = Server(config, stores[PID], certificates)
        names = ["clinic-a", "clinic-b", "clinic-c"]
        answers = await asyncio.gather(*(server.put(client=name) for name in names))
        assert [status for status, _ in answers] == [202] * 3
    assert most == at_once


async def test_get_tells_the_public_parameters(server: Server) -> None:
    status, answer = await server.request("GET", "/v1/runs/trial")
    assert status == 200
    assert answer == {
        "run": "trial",
        "party": "party-1",
        "pid": 1,
        "config": server.config.digest(),
        "workload": server.config.build_workload().digest(),
        "cells": CELLS,
        "ring": 32,
        "forms": ["seeded"],
        "rows_per_client": 100,
        "rounds": 4,
        "participation": 1.0,
        "open": True,
        "turned_away": None,
        "upload": None,
        "counted_from": None,
        "settled": 0,
        "counted": False,
        "round": None,
        "excluded": None,
    }
    await server.put()
    server.store.state.close_to_clients()
    _, answer = await server.request("GET", "/v1/runs/trial")
    digest = server.upload().signed.upload.digest()
    assert (answer["open"], answer["upload"]) == (False, digest)
    _, answer = await server.request("GET", "/v1/runs/trial", client="clinic-b")
    assert answer["upload"] is None


async def test_get_submission_tells_its_owner_alone_who_has_it(server: Server) -> None:
    status, answer = await server.request("GET", server.path)
    assert (status, error_of(answer)["where"]) == (404, "store")
    await server.put()
    status, answer = await server.request("GET", server.path)
    assert (status, answer["kept_for"]) == (202, ["party-0", "party-2"])
    assert answer["upload"] == server.upload().signed.upload.digest()
    status, answer = await server.request("GET", server.path, client="clinic-b")
    assert status == 404


async def test_get_tells_a_client_what_became_of_its_own_submission(server: Server) -> None:
    standings = [
        ParticipantRecord("clinic-a", "ab" * 32, 2),
        ParticipantRecord("clinic-b", "cd" * 32, 0, Exclusion.OUT_OF_BOUNDS),
    ]
    server.store.records.save(standings)
    told = {}
    for client in ("clinic-a", "clinic-b", "clinic-c"):
        _, answer = await server.request("GET", "/v1/runs/trial", client=client)
        told[client] = [answer[name] for name in ("counted", "round", "excluded")]
    assert told == {
        "clinic-a": [True, 2, None],
        "clinic-b": [False, 0, "out of bounds"],
        "clinic-c": [False, None, None],
    }


# What is wrong with a submission


@pytest.mark.parametrize(
    ("changes", "status", "where", "expected"),
    [
        ({"workload": "00" * 32}, 422, "header Syncret-Workload", "by the config"),
        ({"cells": 57}, 422, "header Syncret-Cells", "56"),
        ({"form": "plain"}, 422, "header Syncret-Form", "seeded"),
        ({"form": "rows"}, 422, "header Syncret-Form", "seeded"),
        ({"capacity": 101}, 422, "header Syncret-Capacity", "100 (clients.rows_per_client)"),
        ({"capacity": 99}, 422, "header Syncret-Capacity", "100 (clients.rows_per_client)"),
        ({"first_round": 5}, 422, "header Syncret-Round", "1 to 4"),
        ({"config": "cd" * 32}, 422, "header Syncret-Config", "same config"),
    ],
)
async def test_put_refuses_what_does_not_fit_the_run(
    server: Server, changes: dict[str, object], status: int, where: str, expected: str
) -> None:
    got, answer = await server.put(**changes)  # type: ignore[arg-type]
    error = error_of(answer)
    assert (got, error["where"]) == (status, where)
    assert expected in error["expected"]
    assert server.stored() == []


@pytest.mark.parametrize(
    ("header", "value", "expected"),
    [
        ("Syncret-Workload", None, "the header to be there"),
        (PARTS_HEADER, None, "four times 64 hex digits"),
        (SIGNATURE_HEADER, None, "base64 of 1 to 256 bytes"),
        ("Syncret-Workload", "xyz", "64 hex digits"),
        ("Syncret-Cells", "-1", "a whole number"),
        ("Syncret-Cells", "0", "a positive number"),
        ("Syncret-Cells", "9" * 5000, "a whole number"),
        ("Syncret-Ring", "64", "32"),
        (
            "Syncret-Form",
            "zipped",
            "seeded or plain or rows or rows.0 or rows.1 or rows.2 or rows.3 or rows.4",
        ),
        ("Syncret-Capacity", None, "the header to be there"),
        ("Syncret-Capacity", "0", "a positive number"),
        ("Syncret-Round", "0", "a positive number"),
        ("Syncret-Nonce", "../../etc", "32 hex digits"),
        (PARTS_HEADER, "ab" * 32, "four times 64 hex digits"),
        (PARTS_HEADER, " ".join(["AB" * 32] * 4), "four times 64 hex digits"),
        (SIGNATURE_HEADER, "?", "base64 of 1 to 256 bytes"),
        (SIGNATURE_HEADER, "AA==" * 200, "base64 of 1 to 256 bytes"),
    ],
)
async def test_put_refuses_malformed_headers(
    server: Server, header: str, value: str | None, expected: str
) -> None:
    headers = server.headers()
    del headers[header]
    if value is not None:
        headers[header] = value
    body = server.upload().sealed.content
    status, answer = await server.request("PUT", server.path, headers=headers, body=body)
    assert (status, error_of(answer)["where"]) == (400, f"header {header}")
    assert error_of(answer)["expected"] == expected
    assert server.stored() == []


@pytest.mark.parametrize(("said", "words"), [(None, "an older one"), ("99", "'99'")])
async def test_put_refuses_another_version_before_anything_else(
    server: Server, said: str | None, words: str
) -> None:
    """Other headers are wrong, too: the version says why."""
    headers = server.headers() | {"Syncret-Workload": "xyz", INGEST_HEADER: said or ""}
    if said is None:
        del headers[INGEST_HEADER]
    status, answer = await server.request("PUT", server.path, headers=headers, body=bytes(SIZE))
    error = error_of(answer)
    assert (status, error["where"]) == (400, f"header {INGEST_HEADER}")
    assert words in error["what"]
    assert error["expected"].startswith(f"{INGEST_VERSION}, as of syncret {version()}, which party")
    assert server.stored() == []


async def test_a_server_of_another_version_is_told_to_try_again(server: Server) -> None:
    """It is being brought up to this one: what it refused for good would be lost."""
    headers = {**server.headers(), INGEST_HEADER: "99"}
    path = "/v1/runs/trial/part"
    status, answer = await server.request("PUT", path, client="party-0", headers=headers)
    assert (status, is_retryable(status)) == (503, True)
    assert "'99'" in error_of(answer)["what"]


async def test_a_question_may_leave_its_version_out_but_not_have_another_one(
    server: Server,
) -> None:
    path = "/v1/runs/trial"
    assert (await server.request("GET", path))[0] == 200
    assert (await server.request("GET", path, headers={INGEST_HEADER: "2"}))[0] == 200
    status, answer = await server.request("GET", path, headers={INGEST_HEADER: "3"})
    assert (status, error_of(answer)["what"]) == (400, "its messages are of another version: '3'")


@pytest.mark.parametrize(
    ("size", "status"), [(SIZE - 1, 400), (0, 400), (SIZE + 1, 413), (10_000_000, 413)]
)
async def test_put_refuses_bodies_of_another_size(server: Server, size: int, status: int) -> None:
    got, answer = await server.put(bytes(size))
    error = error_of(answer)
    assert (got, error["what"]) == (status, f"a body of {size} bytes")
    assert error["expected"] == f"exactly {SIZE} bytes"
    assert server.stored() == []


async def test_put_refuses_bodies_of_no_stated_size(server: Server) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield server.upload().sealed.content

    headers = server.upload().signed.headers()
    status, answer = await server.request("PUT", server.path, headers=headers, body=chunks())
    assert (status, error_of(answer)["where"]) == (411, "header Content-Length")
    assert server.stored() == []


async def test_put_takes_a_body_as_it_comes_and_unpacks_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 KB of the announced length would unpack to 2 MB: 11 MB to a full disk, and to memory after it."""
    written: list[int] = []
    real = IncomingBody.write

    def counting(self: IncomingBody, chunk: bytes) -> None:
        written.append(len(chunk))
        real(self, chunk)

    monkeypatch.setattr(IncomingBody, "write", counting)
    packed = gzip.compress(bytes(2_000_000))
    body = packed + bytes(SIZE - len(packed))
    headers = {**server.headers(), "Content-Encoding": "gzip"}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    async with server.connection() as (reader, writer):
        writer.write(f"PUT {server.path} HTTP/1.1\r\nHost: s\r\n{head}\r\n".encode() + body)
        answer = await reader.read(1 << 16)
    assert answer.startswith(b"HTTP/1.1 400")
    assert sum(written) == SIZE
    assert server.stored() == []


@pytest.mark.parametrize("place", [0, 1500, 3000, -1])
async def test_put_refuses_a_body_that_was_changed_anywhere(server: Server, place: int) -> None:
    """Also in the boxes that the server cannot open."""
    changed = bytearray(server.upload().sealed.content)
    changed[place] ^= 1
    status, answer = await server.put(bytes(changed))
    assert (status, error_of(answer)["where"]) == (400, "body")
    assert "SHA-256" in error_of(answer)["what"]
    assert server.stored() == []
    assert server.store.traffic.by_client()["clinic-a"][1] == SIZE


async def test_put_refuses_another_submission_of_a_client_that_is_stored(server: Server) -> None:
    await server.put()
    changes: list[dict[str, object]] = [
        {"counts": np.ones(CELLS, np.uint32)},
        {"nonce": "22" * 16},
        {"first_round": 2},
    ]
    for change in changes:
        status, answer = await server.put(None, **change)
        assert status == 409
        assert "clinic-a" in error_of(answer)["what"]
        assert "first one stands" in error_of(answer)["expected"]
    assert server.store.submissions.read("clinic-a") == server.upload().parts.bodies[PID]


async def test_put_refuses_when_the_run_is_full_or_over(server: Server) -> None:
    for client in ("clinic-a", "clinic-b", "clinic-c"):
        assert (await server.put(client=client))[0] == 202
    status, answer = await server.put(client="clinic-d")
    assert (status, "3 expected clients" in error_of(answer)["what"]) == (403, True)
    server.store.state.close_to_clients()
    status, answer = await server.put(client="clinic-d")
    assert (status, "no submissions any more" in error_of(answer)["what"]) == (410, True)
    assert server.stored() == ["clinic-a", "clinic-b", "clinic-c"]


async def test_put_says_so_when_the_disk_is_full_and_takes_it_later(server: Server) -> None:
    await server.put(client="clinic-b")
    server.upload()
    with file_size_limit(100):
        status, answer = await server.put()
    assert (status, error_of(answer)["where"]) == (507, "store")
    assert str(server.store.directory) not in json.dumps(answer)
    assert server.stored() == ["clinic-b"]
    assert (await server.put())[0] == 202


# Who may ask, and for what


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/runs/other", 404),
        ("PUT", "/v1/runs/other/submission", 404),
        ("PUT", "/v1/runs/other/part", 404),
        ("POST", "/v1/runs/trial/submission", 405),
        ("GET", "/v1/runs/trial/part", 405),
        ("DELETE", "/v1/runs/trial", 405),
        ("GET", "/", 404),
        ("GET", "/v1/runs/../../etc/passwd", 404),
    ],
)
async def test_api_refuses_other_paths_and_methods(
    server: Server, method: str, path: str, status: int
) -> None:
    got, answer = await server.request(method, path, headers=ingest_headers())
    # Who is no server is not told whether there is such a run.
    assert got == (403 if path.endswith("other/part") else status)
    if got != 403:
        assert "/v1/runs/trial" in error_of(answer)["expected"]


async def test_api_refuses_servers_as_clients(server: Server) -> None:
    headers = server.upload().signed.headers()
    for method, path in (("PUT", server.path), ("GET", "/v1/runs/trial")):
        status, answer = await server.request(method, path, client="party-0", headers=headers)
        assert (status, error_of(answer)["where"]) == (403, "client certificate")
        assert "compute server" in error_of(answer)["what"]


async def test_put_takes_the_client_from_the_certificate_alone(server: Server) -> None:
    """A submission made out to another client is signed by it: it cannot be passed off."""
    ready = server.upload("clinic-b")
    status, answer = await server.request(
        "PUT", server.path, headers=ready.signed.headers(), body=ready.sealed.content
    )
    assert (status, error_of(answer)["where"]) == (403, f"header {SIGNATURE_HEADER}")
    assert server.stored() == []


@pytest.mark.parametrize("other", ["another server's", "nobody's"])
async def test_put_refuses_a_box_that_does_not_open(server: Server, other: str) -> None:
    """Signed by its owner and whole, but sealed to another key."""
    ready = server.upload()
    first, second, third = ready.sealed.boxes
    wrong = third if other == "another server's" else bytes(len(second))
    sealed = SealedUpload((first, wrong, third), ready.sealed.common, (1, 2))
    signed = sign(sealed.describe(ready.signed.submission), "clinic-a")
    status, answer = await server.request(
        "PUT", server.path, headers=signed.headers(), body=sealed.content
    )
    assert (status, error_of(answer)["where"]) == (422, "body")
    assert "does not open" in error_of(answer)["what"]
    assert server.stored() == []


# What is no request, or never ends


@pytest.mark.parametrize("garbage", [b"\x00\x01\x02\x03\r\n\r\n", b"hello\r\n\r\n", b"PUT\r\n\r\n"])
async def test_api_answers_garbage_with_an_error(server: Server, garbage: bytes) -> None:
    async with server.connection() as (reader, writer):
        writer.write(garbage)
        status, answer = await raw_answer(reader)
    assert (status, error_of(answer)["where"]) == (400, "request")
    assert server.stored() == []


async def test_put_stores_nothing_when_the_connection_breaks_off(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "SMALL_BYTES", 0)
    headers, content = server.headers(), server.upload().sealed.content
    async with server.connection() as (_, writer):
        writer.write(raw_request(server, headers) + content[:100])
        await writer.drain()
        await eventually(lambda: any((server.store.directory / "incoming").iterdir()))
    await eventually(lambda: not any((server.store.directory / "incoming").iterdir()))
    assert server.stored() == []
    assert (await server.put())[0] == 202


async def test_put_times_out_when_the_body_comes_byte_by_byte(server: Server) -> None:
    headers, content = server.headers(), server.upload().sealed.content
    async with server.connection() as (reader, writer):
        writer.write(raw_request(server, headers))

        async def drip() -> None:
            for byte in content:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        status, answer = await raw_answer(reader)
        dripping.cancel()
    assert (status, error_of(answer)["where"]) == (408, "body")
    assert f"of {SIZE} bytes came in 0.5 s" in error_of(answer)["what"]
    assert server.stored() == []


@pytest.mark.parametrize(
    "start", [b"", b"PUT /v1/runs/trial/subm", b"PUT / HTTP/1.1\r\nHost: x\r\n"]
)
async def test_connections_end_when_no_whole_request_header_comes(
    server: Server, start: bytes
) -> None:
    async with server.connection() as (reader, writer):
        writer.write(start)
        assert await asyncio.wait_for(reader.read(), 5) == b""


async def test_connections_end_when_no_handshake_comes(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.transport.abort()


async def test_put_answers_a_refusal_before_the_body_is_sent(server: Server) -> None:
    """With Expect: 100-continue a client never sends what would be refused."""
    headers = {**server.headers(cells=57), "Expect": "100-continue"}
    async with server.connection() as (reader, writer):
        writer.write(raw_request(server, headers))
        status, answer = await raw_answer(reader)
    assert (status, error_of(answer)["where"]) == (422, "header Syncret-Cells")
    headers = {**server.headers(), "Expect": "100-continue"}
    async with server.connection() as (reader, writer):
        writer.write(raw_request(server, headers))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(server.upload().sealed.content)
        assert b"202 Accepted" in await reader.readuntil(b"\r\n\r\n")


# Starting and stopping


async def test_start_ingest_refuses_a_port_in_use_and_a_wrong_certificate(
    server: Server, tmp_path: Path, certificates: Certificates
) -> None:
    with Store(tmp_path / "second", server.config.digest()) as store:
        with pytest.raises(ConfigError, match=r"party\.ingest of party-1: .* the port is in use"):
            await start_ingest(store, Study.of(server.config), PID, certificates["party-1"])
        missing = CertificateFiles(tmp_path / "no.crt", tmp_path / "no.crt", tmp_path / "no.key")
        with pytest.raises(CertificateError, match=r"no\.crt"):
            await start_ingest(store, Study.of(server.config), PID, missing)


async def test_close_ends_open_connections(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "LINGER_S", 0.1)
    config = make_config()
    async with running_servers(config, tmp_path, certificates, (PID,)) as stores:
        server = Server(config, stores[PID], certificates)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            server.port,
            ssl=client_context(
                certificates["clinic-a"], pinned_key_in(certificates["party-1"].cert)
            ),
        )
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.transport.abort()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)


async def test_close_ends_connections_that_are_in_their_handshake(
    tmp_path: Path, certificates: Certificates
) -> None:
    config, context = (
        make_config(),
        client_context(certificates["clinic-a"], pinned_key_in(certificates["party-1"].cert)),
    )
    port = config.parties[PID].ingest.port
    with Store(tmp_path / "store", config.digest()) as store:
        listening = await start_ingest(store, Study.of(config), PID, certificates["party-1"])
        await hangs_up_after_a_late_handshake(port, context, "party-1", listening.close)


def test_submission_digest_binds_every_field() -> None:
    server = Submission("trial", "a", "ef" * 32, "ab" * 32, 5, 32, "seeded", 9, 1, "0f" * 16)
    digests = {server.digest()}
    for changes in (
        {"run": "other"},
        {"client": "b"},
        {"config": "cd" * 32},
        {"workload": "cd" * 32},
        {"cells": 6},
        {"form": "plain"},
        {"capacity": 8},
        {"first_round": 2},
        {"nonce": "1f" * 16},
    ):
        values = {**json.loads(server.canonical()), **changes}
        digests.add(Submission.from_canonical(json.dumps(values)).digest())
    assert len(digests) == 10
