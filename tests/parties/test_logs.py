"""Logs as JSON lines: every line is one, says whom it concerns, and has nothing secret in it."""

import asyncio
import base64
import io
import json
import logging
import threading
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import parties.mpc.server
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import CertificateFiles
from parties.foundation.exit_codes import Status
from parties.identity.tls import client_context, pinned_key_in
from parties.mpc.server import run_mpc_server
from parties.network.http_connections import TlsConnector
from parties.observability.events import WORKING, Progress
from parties.observability.logs import JsonLog, logged_status
from parties.observability.status import RunInfo
from protocols.runtime import PartyRuntime
from tests.parties.mesh import EVERYONE, Cluster, make_uniform
from tests.parties.support import PARTIES, make_config, sealed_upload

CANARY = b"canary-bird-4711"


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_events_have_time_level_party_study_and_their_fields(stream: io.StringIO) -> None:
    log = JsonLog(stream)
    Progress(log).event("starting", "before anything is known")
    logged_status(RunInfo.of_server(make_config(), 2), log)
    Progress(log).event("round-done", "round 3 of 4 done", done=3)
    Progress(log).event("failed", "out of disk", status=7, time="never", text_="x")
    first, second, third = lines(stream)
    assert (first["party"], first["study"]) == (None, None)
    assert list(second) == ["time", "level", "party", "study", "event", "text", "done"]
    assert (second["party"], second["study"], second["done"]) == ("party-2", "trial", 3)
    assert (second["level"], third["level"]) == ("info", "error")
    assert third["time"].endswith("Z")
    assert len(third["time"]) == len("2026-11-22T13:14:05.123Z")


def test_text_of_others_stays_in_its_line(stream: io.StringIO) -> None:
    Progress(JsonLog(stream)).event("rejected", 'x"}\n{"event": "forged"\x1b[2J', client="a\nb")
    (line,) = lines(stream)
    assert line["event"] == "rejected"
    assert "\x1b" not in stream.getvalue()


def test_what_is_logged_comes_with_its_level_and_without_what_libraries_quote(
    stream: io.StringIO,
) -> None:
    log = JsonLog(stream)
    with log.installed():
        logging.getLogger("syncret.relay").info("%s: parts wait", "party-1")
        logging.getLogger("syncret.relay").debug("not this")
        logging.getLogger("somewhere").info("nor this")
        try:
            raise ValueError(CANARY)
        except ValueError as error:
            logging.getLogger("aiohttp.server").exception("Error handling %s", error)
    logging.getLogger("syncret.relay").error("not after the end")
    own, foreign = lines(stream)
    assert (own["level"], own["logger"], own["text"]) == (
        "info",
        "syncret.relay",
        "party-1: parts wait",
    )
    assert foreign["text"] == "Error handling %s"
    assert foreign["error"].startswith("ValueError: ")
    assert "test_logs.py" in foreign["error"]
    assert CANARY.decode() not in stream.getvalue()


def test_lines_of_many_threads_stay_whole(stream: io.StringIO) -> None:
    log = JsonLog(stream)

    def work(number: int) -> None:
        for i in range(100):
            Progress(log).event(WORKING, "x" * 200, number=number, i=i)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines(stream)) == 400


def test_a_command_that_fails_says_so_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing.toml")
    status = run_command_line(
        cli, ["serve", "study", missing, "--pid", "0", "--log-format", "json"]
    )
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert status == Status.CONFIG
    assert [(line["event"], line["level"]) for line in said] == [("failed", "error")]
    assert said[0]["status"] == Status.CONFIG
    assert logging.getLogger().handlers == [
        handler for handler in logging.getLogger().handlers if "syncret" not in repr(handler)
    ]


async def send_canaries(
    cluster: Cluster, certificates: dict[str, CertificateFiles], pid: int
) -> None:
    """Uploads that are refused, each with something secret in it."""
    context = client_context(
        certificates["clinic-d"], pinned_key_in(certificates[PARTIES[pid]].cert)
    )
    ready = sealed_upload(cluster.config, "clinic-d")
    headers = ready.signed.headers()
    size = len(ready.sealed.content)
    body = (CANARY * size)[:size]
    url = f"https://{cluster.config.require_parties()[pid].ingest}/v1/runs/trial/submission"
    async with aiohttp.ClientSession(connector=TlsConnector(context)) as session:
        async with session.put(url, headers=headers, data=body) as answer:
            assert answer.status >= 400
        async with session.put(url, headers={}, data=CANARY) as answer:
            assert answer.status >= 400
    reader, writer = await asyncio.open_connection(
        cluster.config.require_parties()[pid].ingest.host,
        cluster.config.require_parties()[pid].ingest.port,
    )
    writer.write(CANARY * 10)
    writer.write_eof()
    await reader.read()
    writer.close()


def spellings(secret: bytes) -> list[str]:
    """Spellings by which a log could show a secret."""
    found = [secret.hex(), base64.b64encode(secret).decode().rstrip("="), repr(secret)[2:-1]]
    return [text for text in found if len(text) >= 12]


async def test_a_run_with_refused_uploads_logs_them_and_no_secret(
    tmp_path: Path,
    certificates: dict[str, CertificateFiles],
    monkeypatch: pytest.MonkeyPatch,
    stream: io.StringIO,
) -> None:
    """Of all levels of all loggers: no key of a server, of a pair of them or of a store, no body that was refused."""
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)
    secrets = {CANARY}
    keys_of_pairs = PartyRuntime.component_key

    def component_key(self: PartyRuntime, component: int) -> bytes:
        key = keys_of_pairs(self, component)
        secrets.add(key)
        return key

    monkeypatch.setattr(PartyRuntime, "component_key", component_key)
    cluster = Cluster(
        make_config({"clients.expected": 4, "clients.minimum": 3}), tmp_path, certificates
    )
    configs = cluster.with_own_certificates()
    for config in configs:
        files = config.require_tls(0)
        for path in (files.key, files.seal):
            secrets.update(
                line.encode() for line in path.read_text().splitlines() if "-" not in line
            )
    log, closed = JsonLog(stream), asyncio.Event()
    with log.installed():
        logging.getLogger("syncret").setLevel(logging.DEBUG)
        logging.getLogger().setLevel(logging.DEBUG)
        try:
            tasks = []
            for pid, config in enumerate(configs):
                cluster.directory(pid).mkdir()
                board = logged_status(RunInfo.of_server(config, pid), log)
                register = cluster.register(pid)
                tasks.append(
                    asyncio.create_task(
                        run_mpc_server(
                            config, pid, cluster.directory(pid), progress=Progress(log), closed=closed,
                            register=register, status=board,
                        )
                    )
                )  # fmt: skip
            async with asyncio.timeout(20):
                while stream.getvalue().count('"connected"') < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await send_canaries(cluster, certificates, 1)
            await cluster.submit(EVERYONE)
            closed.set()
            await asyncio.wait_for(asyncio.gather(*tasks), 60)
        finally:
            logging.getLogger().setLevel(logging.WARNING)
    said, text = lines(stream), stream.getvalue()
    rejected = [line for line in said if line["event"] == "rejected"]
    assert {line["reason"] for line in rejected} == {"malformed", "tls"}
    assert {line.get("client") for line in rejected} == {"clinic-d", None}
    assert {line["event"] for line in said} >= {"listening", "round-done", "finished"}
    assert len(secrets) > 6
    for secret in secrets:
        assert [shown for shown in spellings(secret) if shown in text] == []


def test_the_search_for_secrets_finds_one() -> None:
    for spelling in spellings(CANARY):
        assert spelling in json.dumps(
            [CANARY.hex(), base64.b64encode(CANARY).decode(), str(CANARY)]
        )
