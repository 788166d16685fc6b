"""Refused peers are counted by reason and identity: at the owners' port, at FLAIM's and at the mesh."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from parties.config import CertificateFiles, Config
from parties.identity.tls import client_context, make_certificates, pinned_key_in
from parties.mpc.intake.listener import start_ingest
from parties.mpc.storage.store import Store
from parties.network.http_connections import TlsConnector
from parties.observability.events import FieldValue, Rejection, rejection_of_status
from parties.session.study import Study
from tests.parties.support import make_config, sealed_upload
from tests.until import eventually

Told = list[tuple[str, str, dict[str, FieldValue]]]
Certificates = dict[str, CertificateFiles]


@pytest.fixture
def config() -> Config:
    return make_config()


@contextlib.asynccontextmanager
async def listening(
    config: Config, certificates: Certificates, folder: Path
) -> AsyncIterator[Told]:
    """Server 1's ingest API; yields what it is told to have turned away."""
    told: Told = []

    def rejected(reason: str, text: str, **fields: FieldValue) -> None:
        told.append((reason, text, fields))

    with Store(folder / "store", config.digest()) as store:
        files = certificates["party-1"]
        ingest = await start_ingest(store, Study.of(config), 1, files, rejected=rejected)
        try:
            yield told
        finally:
            await ingest.close()


async def put(
    config: Config, files: CertificateFiles, server: CertificateFiles, **headers: str
) -> int:
    context = client_context(files, pinned_key_in(server.cert))
    ready = sealed_upload(config)
    port = config.require_parties()[1].ingest.port
    async with (
        aiohttp.ClientSession(connector=TlsConnector(context)) as session,
        session.put(
            f"https://127.0.0.1:{port}/v1/runs/trial/submission",
            headers={**ready.signed.headers(), **headers},
            data=ready.sealed.content,
        ) as answer,
    ):
        return answer.status


async def test_a_refused_upload_is_told_with_its_owner_and_where_it_came_from(
    config: Config, certificates: Certificates, tmp_path: Path
) -> None:
    async with listening(config, certificates, tmp_path) as told:
        files, server = certificates["clinic-a"], certificates["party-1"]
        assert await put(config, files, server, **{"Syncret-Cells": "57"}) == 403
        assert await put(config, files, server) == 202
    ((reason, text, fields),) = told
    assert reason == Rejection.FORBIDDEN
    assert text.startswith("clinic-a: refused with 403: ")
    assert fields == {"client": "clinic-a", "remote": "127.0.0.1", "status": 403}


async def test_a_stranger_is_told_as_one_whose_tls_failed(
    config: Config, certificates: Certificates, tmp_path: Path
) -> None:
    stranger = make_certificates(tmp_path / "other", [], ["clinic-a"])["clinic-a"]
    async with listening(config, certificates, tmp_path) as told:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(stranger.cert, stranger.key)
        port = config.require_parties()[1].ingest.port
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            await reader.read()
            writer.close()
    assert [reason for reason, _, _ in told] == [Rejection.TLS]
    assert "ingest: a TLS handshake with 127.0.0.1 failed: " in told[0][1]


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n", b"\x16\x03\x01\xff"]
)
async def test_garbage_at_the_door_is_told_once_or_not_at_all(
    config: Config, certificates: Certificates, tmp_path: Path, garbage: bytes
) -> None:
    """Bytes that are no TLS are reported; half a greeting of a peer that leaves is not."""
    whole = not garbage.startswith(b"\x16")
    async with listening(config, certificates, tmp_path) as told:
        port = config.require_parties()[1].ingest.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(garbage)
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        if whole:
            await eventually(lambda: told)
        await asyncio.sleep(0.05)  # Sleeps: quiet.
    assert [reason for reason, _, _ in told] == [Rejection.TLS] * whole


async def test_an_owner_that_speaks_no_http_is_told_as_malformed(
    config: Config, certificates: Certificates, tmp_path: Path
) -> None:
    files, server = certificates["clinic-a"], certificates["party-1"]
    async with listening(config, certificates, tmp_path) as told:
        port = config.require_parties()[1].ingest.port
        context = client_context(files, pinned_key_in(server.cert))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(b"SSH-2.0-x\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.")
    assert [(reason, text) for reason, text, _ in told] == [
        (Rejection.MALFORMED, "127.0.0.1: no HTTP")
    ]


def test_every_status_has_a_reason() -> None:
    assert rejection_of_status(422) is Rejection.MISMATCH
    assert rejection_of_status(507) is Rejection.STORAGE
    assert rejection_of_status(500) is Rejection.OTHER
