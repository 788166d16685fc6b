"""SIGHUP: settings.toml is read again; what is wrong in it changes nothing and is said; commands write into it."""

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from parties.cli.main import cli
from parties.foundation.errors import CertificateError, ConfigError
from parties.local.children import free_ports
from parties.observability.status import RunInfo, RunStatus
from parties.service.admin_listener import OperatorFiles, renew_operator
from parties.service.database import database_url
from parties.service.events import service_events
from parties.service.exposed_run import with_admin_api
from parties.service.identity import ServiceIdentity
from parties.service.main import ServeOptions, serve_studies
from parties.service.reload import LiveSettings, reloading
from parties.service.run_api import CommandHandlers
from parties.service.settings import Settings, load_settings
from parties.service.status_client import get_document
from tests.parties.mesh import Recording
from tests.parties.serving import make_identities
from tests.parties.support import make_config
from tests.parties.test_admin_tls import client, get, operator, settings


@pytest.fixture(params=["a service", "the server of a study"])
async def folder(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Path]:
    """The folder of a server that runs; it has no settings, and keys of the operator anna."""
    if request.param == "a service":
        made = make_identities(tmp_path)[0]
        operator(made)
        listening = asyncio.Event()
        log = Recording(lambda name, fields: listening.set())
        options = ServeOptions(database_url(made), 1, tmp_path / "register.sqlite")
        task = asyncio.create_task(serve_studies(ServiceIdentity.load(made), options, log))
        try:
            await asyncio.wait_for(listening.wait(), 60)
            yield made
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return
    operator(tmp_path)
    board = RunStatus(RunInfo.of_server(make_config(), 0))
    async with with_admin_api(board, tmp_path, CommandHandlers()):
        yield tmp_path


class Log:
    """Log lines of the service."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "syncret.service")
        self._caplog = caplog

    async def after_reload(self, text: str) -> str:
        """The line with ``text`` that follows a SIGHUP."""
        self._caplog.clear()
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(60):
            while True:
                for line in self._caplog.messages:
                    if text in line:
                        return line
                await asyncio.sleep(0.02)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


def files(folder: Path, name: str = "anna") -> OperatorFiles:
    below = folder / "admin"
    made = [below / f"{name}.{kind}" for kind in ("crt", "key", "p12")]
    said = CliRunner().invoke(
        cli, ["certs", "renew", "operator", name, "--dir", str(folder), "--json"]
    )
    return OperatorFiles(json.loads(said.output)["fingerprint"], *made)


async def asked(port: int, folder: Path, who: OperatorFiles) -> int:
    status, _ = await asyncio.to_thread(get, port, client(folder, who), "/v1/status")
    return status


async def test_the_admin_port_opens_changes_and_closes_without_a_restart(
    folder: Path, log: Log
) -> None:
    anna = files(folder)
    first, second = free_ports(2)
    settings(folder, anna, port=first)
    await log.after_reload("read again, and at work")
    assert await asked(first, folder, anna) == 200
    # Another operator instead, at the same port: the one before is let in no more.
    ben = operator(folder, "ben")
    settings(folder, ben, port=first)
    await log.after_reload("at work")
    assert await asked(first, folder, ben) == 200
    assert await asked(first, folder, anna) == 403
    settings(folder, ben, port=second)
    await log.after_reload("at work")
    assert await asked(second, folder, ben) == 200
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", first), 5)
    (folder / "settings.toml").unlink()
    await log.after_reload("at work")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", second), 5)
    assert await asyncio.to_thread(get_document, folder)


Spoil = Callable[[Path, OperatorFiles], object]
SPOILT: dict[str, tuple[Spoil, str]] = {
    "no TOML": (lambda path, _: path.write_text("[admin"), "is not valid TOML"),
    "an unknown key": (
        lambda path, _: path.write_text("[admin]\nport = 1"),
        "admin.port: is unknown",
    ),
    "an address of no interface": (
        lambda path, _: path.write_text(path.read_text().replace("127.0.0.1", "192.0.2.1")),
        "where this host cannot listen",
    ),
    "no key": (lambda path, _: (path.parent / "admin" / "admin.key").unlink(), "admin.key"),
}


@pytest.mark.parametrize("name", SPOILT)
async def test_bad_settings_leave_the_former_ones_at_work(
    folder: Path, log: Log, name: str
) -> None:
    anna = files(folder)
    port = settings(folder, anna)
    await log.after_reload("at work")
    spoil, text = SPOILT[name]
    spoil(folder / "settings.toml", anna)
    line = await log.after_reload("the former settings stay at work")
    assert text in line
    assert await asked(port, folder, anna) == 200


async def test_a_renewed_certificate_is_taken_at_a_reload(folder: Path, log: Log) -> None:
    anna = files(folder)
    port = settings(folder, anna)
    await log.after_reload("at work")
    again = renew_operator(folder, "anna", days=1, password="another")
    await log.after_reload("at work")
    assert await asked(port, folder, again) == 200


async def test_what_takes_a_restart_is_named(folder: Path, log: Log) -> None:
    (folder / "settings.toml").write_text('[traces]\nendpoint = "http://127.0.0.1:1/v1/traces"\n')
    line = await log.after_reload("is read again")
    assert "[traces] takes a restart of the server" in line
    (folder / "settings.toml").write_text("[keep]\nresults_days = 1\n")
    assert "restart" not in await log.after_reload("is read again")


@pytest.mark.parametrize("there", [True, False])
async def test_a_hang_up_ends_a_server_whose_terminal_is_closed_and_no_other(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    answers, raised = iter([True, there]), list[int]()
    monkeypatch.setattr("parties.service.reload.os.isatty", lambda descriptor: next(answers))
    monkeypatch.setattr("parties.service.reload.signal.raise_signal", raised.append)

    async def apply(found: Settings) -> None:
        pass

    async with reloading(LiveSettings(tmp_path, service_events()), apply, ("admin",)):
        if there:
            await log.after_reload("at work")
        else:
            os.kill(os.getpid(), signal.SIGHUP)
            while not raised:  # noqa: ASYNC110  # What it waits for sets no event.
                await asyncio.sleep(0.01)
    assert raised == ([] if there else [signal.SIGTERM])


async def test_a_failure_of_the_system_ends_no_later_reload(tmp_path: Path, log: Log) -> None:
    failures = [OSError("no descriptors are left"), TimeoutError()]

    async def apply(found: Settings) -> None:
        if failures:
            raise failures.pop()

    async with reloading(LiveSettings(tmp_path, service_events()), apply, ("admin",)):
        for _ in range(2):
            await log.after_reload("the former settings stay at work")
        await log.after_reload("read again, and at work")


# Commands that write into it.


def certs_operator(folder: Path, *arguments: str) -> Any:
    return CliRunner().invoke(
        cli, ["certs", "operator", *arguments, "--dir", str(folder), "--write"]
    )


def test_certs_operator_writes_settings_and_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("# By hand.\n[keep]\nresults_days = 3 # a while\n")
    done = certs_operator(tmp_path, "anna", "--address", "127.0.0.1:7555")
    assert done.exit_code == 0
    assert "lists anna among the clients of the admin API at 127.0.0.1:7555" in done.output
    # The address that is there stays.
    done = certs_operator(tmp_path, "prometheus", "--reader")
    assert "lists prometheus among the readers of the admin API at 127.0.0.1:7555" in done.output
    certs_operator(tmp_path, "ben")
    found = load_settings(tmp_path)
    assert (found.keep.results_days, found.admin.address) == (3, "127.0.0.1:7555")
    assert (len(found.admin.clients), len(found.admin.readers)) == (2, 1)
    text = path.read_text()
    assert text.startswith("# By hand.\n[keep]\nresults_days = 3 # a while\n")
    assert "# ben" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[admin]\nport = 1", "admin.port: is unknown"),
        (f'admin.address = "h:1"\nadmin.readers = ["{"1" * 64}"]', "expected a table [admin]"),
    ],
)
def test_certs_operator_makes_nothing_where_it_cannot_write(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "settings.toml").write_text(text)
    done = certs_operator(tmp_path, "anna")
    assert isinstance(done.exception, ConfigError)
    assert message in str(done.exception)
    assert (tmp_path / "settings.toml").read_text() == text
    assert not (tmp_path / "admin").exists()


def test_certs_operator_writes_nothing_for_a_name_that_has_a_certificate(tmp_path: Path) -> None:
    certs_operator(tmp_path, "anna")
    before = (tmp_path / "settings.toml").read_text()
    assert isinstance(certs_operator(tmp_path, "anna").exception, CertificateError)
    assert (tmp_path / "settings.toml").read_text() == before
