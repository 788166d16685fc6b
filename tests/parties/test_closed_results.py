"""Files of a finished study, over HTTP: those with public names alone, of a study that is over, whole or not at all."""

import asyncio
import contextlib
import io
import json
import os
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from parties.cli import result as commands
from parties.cli.result import FetchedResult, fetched_result
from parties.config import CertificateFiles, Config
from parties.foundation.errors import ResultMissing, StoreError
from parties.foundation.exit_codes import AuditFailed, NotYet
from parties.mpc.submission import result as client
from parties.mpc.submission.http_api import RESULT_FILES, TRANSCRIPT_FILE, result_path
from parties.mpc.submission.status import ServerAnswer
from parties.observability.events import Progress
from parties.service import closed_results as module
from parties.service.closed_results import ClosedResults
from parties.service.studies import utc_now
from parties.service.study_record import StudyRecord, StudyState
from tests.parties.support import make_config

SECRETS = ("store/store.sqlite", "ledger.json", "../tls/own.key", "..%2ftls%2fown.key")


@dataclass
class Served:
    """A study's run folder, and the server that has it."""

    folder: Path
    results: ClosedResults
    study: StudyRecord
    url: str = ""

    async def get(self, path: str) -> tuple[int, bytes]:
        # The client would tidy the path up.
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self.url.split(":")[-1]))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split()[1]), body


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    at, folder = utc_now(), tmp_path / "run"
    study = StudyRecord("5a" * 32, "distaim", "stays", "alpha", at, StudyState.FINISHED, at)
    (folder / "model").mkdir(parents=True)
    for name in (TRANSCRIPT_FILE, *RESULT_FILES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    for name in ("store/store.sqlite", "ledger.json", "../tls/own.key"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("SECRET")
    made = Served(folder, ClosedResults("alpha", lambda study: folder), study)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        found = await made.results.answer(made.study, request)
        return found or web.Response(status=410)

    server = await asyncio.get_running_loop().create_server(web.Server(answer), "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()


async def test_a_finished_study_gives_its_public_files_and_no_other(served: Served) -> None:
    base = result_path("stays")
    status, body = await served.get(base)
    assert status == 200
    for name in (TRANSCRIPT_FILE, *RESULT_FILES):
        assert f'"{name}": {len(name)}'.encode() in body
        assert await served.get(f"{base}/{name}") == (200, name.encode())
    for name in (*SECRETS, "", "model", "result.json"):
        status, body = await served.get(f"{base}/{name}")
        assert status in (404, 410), name
        assert b"SECRET" not in body
    (served.folder / "report.json").unlink()
    (served.folder / "report.json").symlink_to(served.folder / "ledger.json")
    assert (await served.get(f"{base}/report.json"))[0] == 404


@pytest.mark.parametrize("state", [s for s in StudyState if s is not StudyState.FINISHED])
async def test_a_study_that_is_not_finished_gives_none(served: Served, state: StudyState) -> None:
    served.study = replace(served.study, state=state)
    for path in (result_path("stays"), f"{result_path('stays')}/{TRANSCRIPT_FILE}"):
        assert await served.get(path) == (410, b"")


async def test_transfers_are_bounded_and_each_chunk_in_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_TRANSFERS", 1)
    monkeypatch.setattr(module, "_CHUNK_S", 0.3)
    (served.folder / "synthetic.csv").write_bytes(bytes(1 << 26))
    url = f"{served.url}{result_path('stays')}/synthetic.csv"
    async with aiohttp.ClientSession() as session, session.get(url) as slow:
        assert slow.status == 200
        status, _ = await served.get(f"{result_path('stays')}/report.json")
        assert status == 503
        # Nothing is read: the server gives it up, and takes the next.
        async with asyncio.timeout(10):
            while served.results.transfers:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert (await served.get(f"{result_path('stays')}/report.json"))[0] == 200


def _listing(agreed: Config, **changes: object) -> ServerAnswer:
    says = {"config": agreed.digest(), "files": {TRANSCRIPT_FILE: 3}, "removed": {}}
    return ServerAnswer(agreed.parties[0], says | changes, status=200)


def test_a_listing_is_believed_in_nothing_that_leads_elsewhere() -> None:
    config = make_config()
    files = {TRANSCRIPT_FILE: 3, "../own.key": 1, "report.json": -1, "report.html": "x"}
    assert dict(client._require(config, _listing(config, files=files)).sizes) == {
        TRANSCRIPT_FILE: 3
    }
    for changes, said in (
        ({"config": "0" * 64}, "another configuration"),
        ({"files": {}}, "has no transcript"),
        ({"files": []}, "lists no files"),
        ({"files": {}, "removed": {"transcripts": "2026\x1b[2J"}}, r"at 2026\?\[2J"),
    ):
        with pytest.raises(ResultMissing, match=said):
            client._require(config, _listing(config, **changes))
    # That there is no result for good is believed of two servers.
    for status in (0, 410):
        with pytest.raises(NotYet):
            client._require(config, ServerAnswer(config.parties[0], None, "is away", status))


@pytest.mark.parametrize("size", [0, 1 << 20, 1 << 30])
async def test_a_file_that_drips_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    config, limits = make_config(), list[aiohttp.ClientTimeout]()

    def session(*, connector: object, timeout: aiohttp.ClientTimeout) -> None:
        limits.append(timeout)
        raise TimeoutError

    monkeypatch.setattr("aiohttp.ClientSession", session)
    monkeypatch.setattr(client, "client_context", lambda *given: False)
    files = CertificateFiles(tmp_path, tmp_path, tmp_path)
    listing = client._Listing(config.parties[0], {TRANSCRIPT_FILE: size}, {})
    with pytest.raises(NotYet, match="did not come whole"):
        await client._fetch(
            config, files, listing, name=TRANSCRIPT_FILE, target=tmp_path / "out" / "file"
        )
    # As long as a server takes for its chunks, and a begin.
    assert limits[0].total == 60 * (2 + size // (1 << 18))


def test_a_study_is_named_by_its_maker_and_replaces_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, out = make_config(), tmp_path / f"{make_config().run.id}.zip"
    files = CertificateFiles(tmp_path / "ca.crt", tmp_path / "own.crt", tmp_path / "own.key")
    monkeypatch.chdir(tmp_path)

    def id_of(config: Config) -> bytes:
        return json.dumps({"id": f"sha256:{config.digest()}"}).encode()

    contents = [b"my own thesis", b"PK\3\4 my own thesis"]
    for package in (b"[]", b"{", id_of(config.override({"run.epsilon": 0.5}))):
        with io.BytesIO() as made, zipfile.ZipFile(made, "w") as archive:
            archive.writestr("datapackage.json", package)
            archive.close()
            contents.append(made.getvalue())
    for content in contents:
        out.write_bytes(content)
        with pytest.raises(StoreError, match="is no result of this study"):
            fetched_result(tmp_path / "c.toml", config, files, out=None, wait_s=0)
        assert out.read_bytes() == content
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("datapackage.json", id_of(config))

    def reached(*given: object, **more: object) -> None:
        raise LookupError

    monkeypatch.setattr("parties.cli.result.run_supervised", reached)
    with pytest.raises(LookupError):
        fetched_result(tmp_path / "c.toml", config, files, out=None, wait_s=0)


@pytest.mark.parametrize("answer", [False, AuditFailed("no table")])
def test_what_an_audit_found_wrong_is_fetched_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    """A server that gave a damaged transcript, of the right size, may have mended it."""
    config, path, answers = make_config(), tmp_path / "study" / "c.toml", [True, answer]
    files = CertificateFiles(tmp_path / "ca.crt", tmp_path / "own.crt", tmp_path / "own.key")
    folder = tmp_path / "study" / commands.RESULT_FOLDER
    folder.mkdir(parents=True)

    def audited(path: Path, folder: Path, bundle: Path) -> FetchedResult:
        if isinstance(said := answers.pop(), AuditFailed):
            raise said
        return FetchedResult(bundle, bundle, SimpleNamespace(ok=said))  # type: ignore[arg-type]

    monkeypatch.setattr(commands, "run_supervised", lambda *given, **more: None)
    monkeypatch.setattr(commands, "_copy_certificates", lambda *given: None)
    monkeypatch.setattr(commands, "_audited", audited)
    with contextlib.suppress(AuditFailed):
        fetched_result(path, config, files, out=tmp_path / "a.zip", wait_s=0)
    assert not folder.exists()
    folder.mkdir()
    assert fetched_result(path, config, files, out=tmp_path / "a.zip", wait_s=0).audit.ok
    assert folder.exists()


@pytest.mark.parametrize("size", [2, 4])
async def test_a_file_of_another_size_is_not_kept(
    served: Served, tmp_path: Path, size: int
) -> None:
    (served.folder / TRANSCRIPT_FILE).write_text("abc")
    target = tmp_path / "file"
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{served.url}{result_path('stays')}/{TRANSCRIPT_FILE}") as response,
    ):
        with pytest.raises(NotYet, match="that were announced"):
            await client._write(response, target, size, what="it")
    assert not any("file" in name for name in os.listdir(tmp_path))


async def test_a_server_that_is_busy_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    async def ready(*given: object, **more: object) -> None: ...

    async def busy(*given: object, **more: object) -> list[str]:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise NotYet("busy")
        return []

    monkeypatch.setattr(client, "await_result", ready)
    monkeypatch.setattr(client, "fetch_result", busy)
    monkeypatch.setattr(client, "_FIRST_PAUSE_S", 0.01)
    given = (make_config(), None, Path())
    await client.obtain_result(*given, own=None, wait_s=10, progress=Progress())  # type: ignore[arg-type]
    assert tries == 3
    tries = 0
    with pytest.raises(NotYet, match="busy"):
        await client.obtain_result(*given, own=None, wait_s=0, progress=Progress())  # type: ignore[arg-type]
    assert tries == 1


async def test_a_list_that_comes_late_is_not_a_study_without_a_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A study that is over says so at once; its list of files may take longer than one question waits."""
    config = make_config()
    late = ServerAnswer(config.parties[0], None, "no answer within 5 s", 0)

    async def asked(config: Config, party: object, files: object, *, path: str) -> ServerAnswer:
        if path == result_path(config.run.id):
            return late
        return ServerAnswer(config.parties[0], None, "410: the study is finished", 410)

    monkeypatch.setattr(client, "ask_server", asked)
    nowhere: Any = None
    assert "no answer within 5 s" in await client._problem(config, nowhere, None)
    late = replace(late, problem="410: the study was cancelled", status=410)
    with pytest.raises(ResultMissing, match="was cancelled"):
        await client._problem(config, nowhere, None)
