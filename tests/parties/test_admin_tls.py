"""The admin API over HTTPS: closed unless settings say so, and then to certificates that are listed, and no others."""

import asyncio
import contextlib
import json
import ssl
import stat
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.serialization import pkcs12

from parties.cli.main import cli
from parties.foundation.errors import CertificateError, ConfigError
from parties.local.children import free_ports
from parties.observability.status import RunInfo, RunStatus
from parties.service.access import Passes
from parties.service.admin_listener import AdminListener, OperatorFiles, make_operator
from parties.service.database import database_url
from parties.service.exposed_run import with_admin_api
from parties.service.four_eyes import FourEyes
from parties.service.identity import ServiceIdentity
from parties.service.main import ServeOptions, _ServiceNetwork, serve_studies
from parties.service.run_api import CommandHandlers
from parties.service.service import Service
from parties.service.settings import AdminSection, TracesSection, load_settings
from tests.parties.mesh import Recording
from tests.parties.serving import make_identities
from tests.parties.support import make_config


@pytest.fixture
def board() -> RunStatus:
    return RunStatus(RunInfo.of_server(make_config(), 0))


def operator(folder: Path, name: str = "anna", days: float = 1) -> OperatorFiles:
    hosts = ("localhost", "127.0.0.1")
    return make_operator(folder, name, hosts=hosts, days=days, password="a password")


def settings(folder: Path, *clients: OperatorFiles, port: int | None = None) -> int:
    """Open the server in `folder` to these; returns its port."""
    port = port or free_ports(1)[0]
    listed = [":".join(c.fingerprint.upper()[i : i + 2] for i in range(0, 64, 2)) for c in clients]
    text = f'[admin]\naddress = "127.0.0.1:{port}"\nclients = {json.dumps(listed)}\n'
    (folder / "settings.toml").write_text(text)
    return port


def client(folder: Path, who: OperatorFiles | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "admin" / "admin.crt"))
    if who is not None:
        context.load_cert_chain(who.cert, who.key)
    return context


def get(port: int, context: ssl.SSLContext, path: str = "/status") -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(
            f"https://127.0.0.1:{port}{path}", context=context, timeout=5
        ) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


async def ask(
    folder: Path, board: RunStatus, port: int, context: ssl.SSLContext, path: str = "/status"
) -> tuple[int, Any]:
    async with with_admin_api(board, folder, CommandHandlers()):
        return await asyncio.to_thread(get, port, context, path)


async def test_an_operator_that_is_listed_asks_over_the_network(
    tmp_path: Path, board: RunStatus
) -> None:
    anna, prometheus = operator(tmp_path), operator(tmp_path, "prometheus")
    port = settings(tmp_path, anna, prometheus)
    status, body = await ask(tmp_path, board, port, client(tmp_path, anna))
    assert (status, json.loads(body)["party"]["name"]) == (200, "party-0")
    status, body = await ask(tmp_path, board, port, client(tmp_path, prometheus), "/metrics")
    assert b"syncret_phase" in body
    assert board.status()["rejections"] == {}


async def test_the_console_is_there_for_those_who_may_ask(tmp_path: Path, board: RunStatus) -> None:
    anna, former = operator(tmp_path), operator(tmp_path, "former")
    port = settings(tmp_path, anna)
    status, body = await ask(tmp_path, board, port, client(tmp_path, anna), "/console/")
    assert status == 200
    assert b"script-src" not in body
    assert b"<h1>" in body
    for path in ("/console/", "/console/static/console.js"):
        status, body = await ask(tmp_path, board, port, client(tmp_path, former), path)
        assert status == 403, path
        assert former.fingerprint.encode() in body


async def test_a_service_and_its_console_are_there_for_those_who_may_ask(tmp_path: Path) -> None:
    folder = make_identities(tmp_path)[0]
    anna, former = operator(folder), operator(folder, "former")
    port, listening = settings(folder, anna), asyncio.Event()
    log = Recording(lambda name, fields: listening.set())
    options = ServeOptions(database_url(folder), 1, tmp_path / "register.sqlite")
    task = asyncio.create_task(serve_studies(ServiceIdentity.load(folder), options, log))
    try:
        await asyncio.wait_for(listening.wait(), 20)
        status, body = await asyncio.to_thread(get, port, client(folder, anna), "/console/")
        assert status == 200
        assert b"<h1>Studies at alpha</h1>" in body
        assert b"No study yet" in body
        status, body = await asyncio.to_thread(get, port, client(folder, former), "/console/")
        assert (status, b"alpha" in body) == (403, False)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_one_that_is_known_and_not_listed_is_refused_and_told_of(
    tmp_path: Path, board: RunStatus
) -> None:
    anna, former = operator(tmp_path), operator(tmp_path, "former")
    port = settings(tmp_path, anna)
    status, body = await ask(tmp_path, board, port, client(tmp_path, former))
    assert status == 403
    assert former.fingerprint in json.loads(body)["error"]["what"]
    assert board.status()["rejections"] == {"stranger": 1}


async def test_a_reader_looks_and_orders_nothing(tmp_path: Path, board: RunStatus) -> None:
    prometheus, called = operator(tmp_path, "prometheus"), list[str]()
    port = free_ports(1)[0]
    text = f'[admin]\naddress = "127.0.0.1:{port}"\nreaders = ["{prometheus.fingerprint}"]\n'
    (tmp_path / "settings.toml").write_text(text)
    context = client(tmp_path, prometheus)
    async with with_admin_api(
        board, tmp_path, CommandHandlers(cancel=lambda: called.append("cancel"))
    ):
        status, _ = await asyncio.to_thread(get, port, context, "/metrics")
        order = urllib.request.Request(f"https://127.0.0.1:{port}/cancel", method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            await asyncio.to_thread(urllib.request.urlopen, order, context=context, timeout=5)
        with refused.value as answer:
            assert "that may look, and order nothing" in json.load(answer)["error"]["what"]
    assert (status, refused.value.code, called) == (200, 403, [])
    assert board.status()["rejections"] == {"forbidden": 1}


@pytest.mark.parametrize("who", ["nobody", "stranger", "expired"])
async def test_others_do_not_get_through_tls(tmp_path: Path, board: RunStatus, who: str) -> None:
    # Certificates have whole seconds, and are dated back by an hour: this one ended a quarter of an hour ago.
    anna, expired = operator(tmp_path), operator(tmp_path, "expired", days=-0.01)
    port = settings(tmp_path, anna, expired)
    (tmp_path / "elsewhere").mkdir()
    certificate = {"nobody": None, "expired": expired}.get(who)
    if who == "stranger":
        certificate = operator(tmp_path / "elsewhere")
    with pytest.raises((urllib.error.URLError, ConnectionError, ssl.SSLError)):
        await ask(tmp_path, board, port, client(tmp_path, certificate))
    assert board.status()["rejections"] == {"tls": 1}


async def test_who_connects_and_is_silent_is_not_waited_for(
    tmp_path: Path, board: RunStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parties.service.admin_listener.HANDSHAKE_S", 0.2)
    port = settings(tmp_path, operator(tmp_path))
    async with with_admin_api(board, tmp_path, CommandHandlers()):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(), 3) == b""
        writer.close()


def service_network(folder: Path) -> _ServiceNetwork:
    service = Mock(spec=Service, four_eyes=FourEyes(Mock()))
    return _ServiceNetwork(service, folder, Passes())


async def test_a_service_ends_connections_without_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parties.service.admin_listener._IDLE_S", 0.1)
    anna = operator(tmp_path)
    port, network = settings(tmp_path, anna), service_network(tmp_path)
    await network.apply(load_settings(tmp_path).admin)
    try:
        tls = client(tmp_path, anna)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        assert await asyncio.wait_for(reader.read(), 3) == b""
        writer.close()
    finally:
        await network.close()


async def test_connections_beyond_the_maximum_are_closed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parties.service.admin_listener._MAX_CONNECTIONS", 2)
    anna = operator(tmp_path)
    port, network = settings(tmp_path, anna), service_network(tmp_path)
    # The socket of a reload, which is a copy, keeps the maximum.
    for _ in range(2):
        await network.apply(load_settings(tmp_path).admin)
    try:
        # Of those that say nothing two stay, and which these are is for the order in which they are accepted.
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        read = [asyncio.create_task(reader.read()) for reader, _ in silent]
        done, waiting = await asyncio.wait(read, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        assert [task.result() for task in done] == [b""]
        for task in waiting:
            task.cancel()
        for _, one in silent:
            one.close()
        tls = client(tmp_path, anna)
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(OSError):
                    if (await asyncio.to_thread(get, port, tls, "/healthz"))[0] == 200:
                        break
                await asyncio.sleep(0.05)
    finally:
        await network.close()


@pytest.mark.parametrize(("former", "new"), [(False, True), (True, False)])
async def test_four_eyes_are_never_weaker_while_settings_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, former: bool, new: bool
) -> None:
    settings(tmp_path, operator(tmp_path))
    network = service_network(tmp_path)
    eyes, admin = network._service.four_eyes, load_settings(tmp_path).admin
    before, after = frozenset({"anna", "oidc:1"}), frozenset({"berta", "oidc:2"})
    started, seen, full = network._started, list[bool](), True

    async def start(admin: AdminSection, listening: AdminListener) -> Any:
        seen.append(eyes.required and eyes.people == (before, after))
        if full:
            listening.socket.close()
            raise OSError("no descriptors are left")
        return await started(admin, listening)

    monkeypatch.setattr(network, "_started", start)
    eyes.required, eyes.people = former, (before,)
    changed = replace(admin, four_eyes=new, people=(("berta", ("berta", "oidc:2")),))
    with pytest.raises(OSError, match="descriptors"):
        await network.apply(changed)
    assert (eyes.required, eyes.people) == (former, (before,))
    full = False
    await network.apply(changed)
    await network.close()
    assert (seen, eyes.required, eyes.people) == ([True, True], new, (after,))


async def test_nothing_listens_where_no_settings_ask_for_it(
    tmp_path: Path, board: RunStatus
) -> None:
    operator(tmp_path)
    port = free_ports(1)[0]
    async with with_admin_api(board, tmp_path, CommandHandlers()):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_a_port_in_use_is_said_with_the_key_to_change(
    tmp_path: Path, board: RunStatus
) -> None:
    taken = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    async with taken:
        settings(tmp_path, operator(tmp_path), port=taken.sockets[0].getsockname()[1])
        with pytest.raises(ConfigError, match=r"settings.toml: admin.address: .*free port"):
            async with with_admin_api(board, tmp_path, CommandHandlers()):
                pass
    assert not (tmp_path / "admin.sock").exists()


async def test_files_that_cannot_be_used_are_named(tmp_path: Path, board: RunStatus) -> None:
    anna = operator(tmp_path)
    settings(tmp_path, anna)
    key = tmp_path / "admin" / "admin.key"
    key.chmod(0o644)
    with pytest.raises(CertificateError, match=r"admin\.key"):
        async with with_admin_api(board, tmp_path, CommandHandlers()):
            pass
    key.chmod(0o600)
    (tmp_path / "admin" / "operators.pem").write_text("no certificate")
    with pytest.raises(CertificateError, match=r"operators\.pem.*syncret certs operator"):
        async with with_admin_api(board, tmp_path, CommandHandlers()):
            pass


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[admin]\naddress = "0.0.0.0:7444"', "admin.clients: is empty"),
        ('[admin]\naddress = "7444"\nclients = ["' + "0" * 64 + '"]', "admin.address: is '7444'"),
        ('[admin]\nclients = ["abc"]', "admin.clients: has 'abc'"),
        ('[admin]\nclients = "abc"', "admin.clients: is 'abc'"),
        ('[admin]\nreaders = ["abc"]', "admin.readers: has 'abc'"),
        ("[admin]\naddress = 7444", "admin.address: is 7444"),
        ("[admin]\nport = 7444", "admin.port: is unknown"),
        ("admin = 3", "admin: is no table"),
        ('[traces]\nendpoint = "collector:4318"', "traces.endpoint: is 'collector:4318'"),
        ("[traces]\nendpoint = true", "traces.endpoint: is True"),
        ('[traces]\nendpoint = "http://a:b@[::1]"', "traces.endpoint: has a user in it"),
        ("[trace]", "trace: is unknown"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "settings.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"settings\.toml") as caught:
        load_settings(tmp_path)
    assert message in str(caught.value)


def test_settings_have_their_defaults(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('[traces]\nendpoint = "http://[::1]:4318/v1/traces"')
    found = load_settings(tmp_path)
    assert found.admin == AdminSection()
    assert found.admin.address is None
    assert found.traces == TracesSection("http://[::1]:4318/v1/traces")


def test_certs_operator_makes_keys_once_and_says_what_to_write(tmp_path: Path) -> None:
    arguments = ["certs", "operator", "anna", "--dir", str(tmp_path), "--json"]
    made = json.loads(CliRunner().invoke(cli, arguments).output)
    for name in ("anna.key", "anna.p12", "admin.key"):
        assert stat.S_IMODE((tmp_path / "admin" / name).stat().st_mode) == 0o600
    bundle = (tmp_path / "admin" / "anna.p12").read_bytes()
    key, certificate, _ = pkcs12.load_key_and_certificates(bundle, made["password"].encode())
    assert key is not None
    assert certificate is not None
    own = (tmp_path / "admin" / "admin.crt").read_bytes()
    again = CliRunner().invoke(cli, arguments)
    assert isinstance(again.exception, CertificateError)
    other = CliRunner().invoke(cli, ["certs", "operator", "ben", "--dir", str(tmp_path)])
    assert other.exit_code == 0
    assert (tmp_path / "admin" / "admin.crt").read_bytes() == own
    assert (tmp_path / "admin" / "operators.pem").read_text().count("BEGIN") == 2
    lines = [line for line in other.output.splitlines() if not line.startswith("These")]
    (tmp_path / "settings.toml").write_text("\n".join(lines[:3]))
    assert len(load_settings(tmp_path).admin.fingerprints) == 1


@pytest.mark.parametrize("name", ["../anna", "a b", "", "x" * 64])
def test_certs_operator_refuses_names_that_are_none(tmp_path: Path, name: str) -> None:
    found = CliRunner().invoke(cli, ["certs", "operator", name, "--dir", str(tmp_path)])
    assert isinstance(found.exception, CertificateError)
    assert not (tmp_path / "admin").exists()
