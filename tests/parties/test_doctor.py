"""The doctor: each fault between an owner and a server is found at its step, and named for the people of a network."""

import asyncio
import contextlib
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import tomli_w
import trustme
from click.testing import CliRunner

from parties.cli.doctor import HERE, examine, text
from parties.cli.main import cli
from parties.config import Address, CertificateFiles, Config
from parties.foundation.exit_codes import Status
from parties.identity.tls import make_certificates
from parties.mpc.submission import status
from parties.session import connection_check
from parties.session.connection_check import Finding
from parties.session.owner import owner_files
from tests.parties.flaim_support import NAMES, SERVER, flaim_config, play
from tests.parties.support import PARTIES, make_config, running_servers
from tests.parties.test_proxy import LOGIN, ConnectProxy, named, with_proxy

Certificates = dict[str, CertificateFiles]


@pytest.fixture(autouse=True)
def no_proxy_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


async def examined(
    config: Config, files: CertificateFiles | None, limit_s: float = 5.0
) -> dict[str, list[Finding]]:
    def find() -> CertificateFiles:
        return files or owner_files(config, ca=None, cert=None, key=None)

    return await examine(config, find, limit_s=limit_s)


def of(found: dict[str, list[Finding]], server: str) -> list[Finding]:
    (findings,) = (each for where, each in found.items() if where.startswith(f"{server} at "))
    return findings


def steps(findings: list[Finding]) -> list[tuple[str, bool]]:
    return [(finding.step, finding.ok) for finding in findings]


@contextlib.asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def moved(config: Config, server: str, host: str, port: int) -> Config:
    """The owner's configuration, with another address of one server."""
    parties = tuple(
        replace(party, ingest=Address(host, port)) if party.name == server else party
        for party in config.parties
    )
    return replace(config, parties=parties)


async def test_all_is_well_directly_and_through_a_proxy(
    tmp_path: Path, certificates: Certificates
) -> None:
    config, login = make_config(), tmp_path / "login"
    login.write_text(LOGIN)
    async with (
        running_servers(config, tmp_path, certificates),
        ConnectProxy(login=LOGIN).running() as proxy,
    ):
        direct = await examined(config, certificates["clinic-a"])
        behind = await examined(
            with_proxy(named(config), proxy.url, login), certificates["clinic-a"]
        )
    assert next(iter(direct)) == HERE
    assert steps(direct[HERE]) == [("certificate", True), ("disk", True)]
    seen = [("name", True), ("connection", True), ("TLS", True), ("study", True), ("clock", True)]
    for server in PARTIES:
        assert steps(of(direct, server)) == seen, text(direct)
        assert steps(of(behind, server)) == seen[1:], text(behind)
        assert f"through the proxy 127.0.0.1:{proxy.port}" in of(behind, server)[0].text
    assert LOGIN.partition(":")[2] not in text(behind)


async def test_each_fault_is_found_at_its_step(tmp_path: Path, certificates: Certificates) -> None:
    authority = trustme.CA(organization_name="Hospital inspection")
    box = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("alpha.example").configure_cert(box)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()

    config = make_config()
    async with (
        running_servers(config, tmp_path, certificates),
        listening(silent, box) as inspected,
        listening(silent) as mute,
        ConnectProxy(answer=b"HTTP/1.1 403 Forbidden\r\n\r\n").running() as proxy,
    ):
        closed = ConnectProxy()
        async with closed.running():
            pass
        first, second, third = config.parties
        turned = (replace(first, ingest=second.ingest), replace(second, ingest=first.ingest), third)
        cases = {
            "name": (
                moved(config, "party-0", "alpha.invalid", 443),
                "has no address",
                "HTTPS_PROXY",
            ),
            "connection": (
                moved(config, "party-0", "127.0.0.1", closed.port),
                "nothing listens there",
                f"let this machine connect to 127.0.0.1:{closed.port}",
            ),
            "connection ": (
                with_proxy(named(config), proxy.url),
                "403 Forbidden",
                "let the proxy CONNECT to party-0.example",
            ),
            "TLS": (
                moved(config, "party-0", "127.0.0.1", inspected),
                "O=Hospital inspection'",
                "exception from TLS inspection",
            ),
            "TLS ": (moved(config, "party-0", "127.0.0.1", mute), "no handshake", "inspection"),
            "TLS  ": (
                replace(config, parties=turned),
                "another key than party-0's answers, with a certificate for 'CN=party-1'",
                "nothing is sent to another",
            ),
        }
        for step, (own, said, advice) in cases.items():
            found = await examined(own, certificates["clinic-a"], limit_s=1.0)
            *before, last = of(found, "party-0")
            assert all(finding.ok for finding in before), text(found)
            assert (last.step, last.ok) == (step.strip(), False), text(found)
            assert said in last.text
            assert advice in last.advice


async def test_before_there_is_a_certificate_the_way_is_looked_at(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config()
    async with running_servers(config, tmp_path, certificates):
        found = await examined(config, None)
    assert steps(found[HERE])[0] == ("certificate", False)
    assert "certs request" in found[HERE][0].advice
    assert steps(of(found, "party-2")) == [("name", True), ("connection", True), ("TLS", True)]


async def test_a_server_that_turns_a_certificate_away_is_told(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The right name of another authority: the server refuses it after the handshake."""
    others = make_certificates(tmp_path / "others", [SERVER], ["clinic-a"])["clinic-a"]
    mixed = replace(others, ca=certificates["clinic-a"].ca)
    config = make_config()
    async with running_servers(config, tmp_path, certificates):
        found = await examined(config, mixed)
        assert not found[HERE][0].ok
        assert "not issued by" in found[HERE][0].text
        with pytest.MonkeyPatch.context() as patch:
            # As if this side did not look at its own files.
            patch.setattr(
                connection_check, "check_files", lambda _: Finding("certificate", True, "")
            )
            patch.setattr("parties.identity.tls.load_identity", lambda files: None)
            way = connection_check.check_connection
            party = config.parties[0]
            seen = await way(config, party.ingest, party.pinned, files=mixed, limit_s=5.0)
    assert steps(seen)[-1] == ("TLS", False)
    assert "refused the connection" in seen[-1].text


async def test_a_clock_that_is_off_is_told(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, real = make_config(), time.time
    # Of this side alone: the servers are in this process.
    monkeypatch.setattr(status, "time", SimpleNamespace(time=lambda: real() - 612))
    async with running_servers(config, tmp_path, certificates):
        found = await examined(config, certificates["clinic-a"])
    clock = of(found, "party-1")[-1]
    assert (clock.step, clock.ok) == ("clock", False)
    assert "10 min 1" in clock.text
    assert "ahead" in clock.text


async def test_a_server_of_flaim_is_looked_at(tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "certs", [SERVER], NAMES)
    config = flaim_config(files)
    found: list[dict[str, list[Finding]]] = []

    async def looks() -> object:
        await asyncio.sleep(0)
        seen = await examined(config, files[NAMES[0]])
        while not of(seen, SERVER)[-1].ok:
            await asyncio.sleep(0.05)
            seen = await examined(config, files[NAMES[0]])
        found.append(seen)
        return None

    await play(config, files, tmp_path, {0: looks})
    assert steps(of(found[0], SERVER)) == [("name", True), ("connection", True), ("TLS", True)]


def test_the_command_says_what_is_wrong_and_ends_with_a_status(
    tmp_path: Path, certificates: Certificates
) -> None:
    """No server runs."""
    config, files = make_config(), certificates["clinic-a"]
    path = tmp_path / "own.toml"
    tls = {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)}
    path.write_text(tomli_w.dumps({**config.to_dict(), "tls": tls}))
    shown = CliRunner().invoke(cli, ["doctor", str(path)])
    assert shown.exit_code == int(Status.NETWORK), shown.output
    lines = shown.output.splitlines()
    assert lines[0] == HERE
    assert lines[1].startswith("  ok     certificate  of clinic-a, valid until 20")
    assert sum(line.startswith("  WRONG  connection ") for line in lines) == 3
    assert sum("let this machine connect to" in line for line in lines) == 3
    document = json.loads(CliRunner().invoke(cli, ["doctor", str(path), "--json"]).output)
    assert document["ok"] is False
    assert {found["where"].partition(" at ")[0] for found in document["findings"]} == {
        HERE,
        *PARTIES,
    }


def test_the_command_waits_as_long_as_it_is_told(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A server whose port takes a connection, and never answers."""
    files = certificates["clinic-a"]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = moved(make_config(), PARTIES[0], *silent.getsockname())
        tls = {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)}
        path = tmp_path / "own.toml"
        path.write_text(tomli_w.dumps({**config.to_dict(), "tls": tls}))
        shown = CliRunner().invoke(cli, ["doctor", str(path), "--wait", "0.1"])
    assert "no handshake: no answer within 0.1 s" in shown.output, shown.output
