"""Participants behind a proxy: what goes through it, which connections take it, and what its refusals say."""

import asyncio
import base64
import contextlib
import traceback
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.config import Address, CertificateFiles, Config
from parties.config.proxy import Proxy, proxy_for
from parties.foundation.errors import ConfigError, FrameConnectError, ProxyRefused, SubmitError
from parties.identity.tls import make_certificates
from parties.mpc.submission.status import ask_servers
from parties.mpc.submission.submit import submit
from parties.network.proxy import open_tunnel
from tests.parties.flaim_support import (
    NAMES,
    SERVER,
    Events,
    codes_of,
    flaim_config,
    play,
    run_client,
)
from tests.parties.support import make_codes, make_config, running_servers

Certificates = dict[str, CertificateFiles]
LOGIN = "north:s3cret word"
TLS_HANDSHAKE = 0x16


@dataclass
class ConnectProxy:
    """A proxy of a hospital: knows names that this host does not, and wants a login where one is given."""

    login: str = ""
    answer: bytes = b""
    """Instead of a tunnel."""
    targets: list[str] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    """The first byte that each participant sent through its tunnel."""
    port: int = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["ConnectProxy"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split("\r\n")[0].split(" ")
            assert method == "CONNECT"
            self.targets.append(target)
            wanted = "Basic " + base64.b64encode(self.login.encode()).decode()
            if self.login and f"Proxy-Authorization: {wanted}\r\n" not in head:
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                return
            if self.answer:
                writer.write(self.answer)
                return
            far = await asyncio.open_connection("127.0.0.1", int(target.rpartition(":")[2]))
            writer.write(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 box\r\n\r\n")
            with contextlib.closing(far[1]):
                await asyncio.wait(
                    [
                        asyncio.create_task(self._pass(reader, far[1], first=True)),
                        asyncio.create_task(self._pass(far[0], writer)),
                    ]
                )

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, first: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if first:
                    self.first.append(data[0])
                    first = False
                writer.write(data)
                await writer.drain()
            writer.close()


@pytest.fixture(autouse=True)
def no_proxy_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def named(config: Config) -> Config:
    """The configuration of an owner, with servers' names that only the proxy knows. Its digest is the same."""
    parties = tuple(
        replace(party, ingest=Address(f"{party.name}.example", party.ingest.port))
        for party in config.parties
    )
    there = replace(config, parties=parties)
    assert there.digest() == config.digest()
    return there


def with_proxy(config: Config, url: str, login: Path | None = None) -> Config:
    return config.override(
        {"network.proxy": url} | ({"network.proxy_login": str(login)} if login else {})
    )


# The way


def test_this_host_and_no_proxy_are_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "alpha.example,.inside.example")
    direct = ["127.0.0.1", "127.9.9.9", "::1", "localhost", "alpha.example", "beta.inside.example"]
    assert [proxy_for(host) for host in direct] == [None] * len(direct)
    found = proxy_for("gamma.example")
    assert (str(found), found and found.source) == ("proxy.example:3128", "HTTPS_PROXY")
    # A configuration's proxy goes before the environment's, and NO_PROXY holds for both.
    found = proxy_for("gamma.example", named="http://[2001:db8::1]:8080")
    assert (str(found), found and found.source) == ("[2001:db8::1]:8080", "network.proxy")
    assert proxy_for("alpha.example", named="http://box.example") is None


def test_a_password_is_in_no_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://north:s3cret%20word@proxy.example:3128")
    found = proxy_for("gamma.example")
    assert found is not None
    assert found.login == LOGIN
    texts = [repr(found), str(found), found.url, found.refusal(407, "no")]
    monkeypatch.setenv("HTTPS_PROXY", "ftp://north:s3cret@proxy.example")
    file = tmp_path / "login"
    file.write_text("s3cret\n")
    wrong = [
        lambda: proxy_for("gamma.example"),
        lambda: make_config({"network.proxy": "http://north:s3cret@box.example"}),
        lambda: make_config({"network.proxy": "http://box.example/s3cret"}),
        lambda: with_proxy(make_config(), "http://box.example", file).proxy_to("a.example"),
    ]
    for attempt in wrong:
        with pytest.raises(
            ConfigError, match=r"expected http://host:port|network\.proxy_login"
        ) as error:
            attempt()
        texts.append(str(error.value))
    assert not any("s3cret" in text for text in texts), texts


@given(
    st.one_of(
        st.text(max_size=40),
        st.builds(
            "{}://{}:{}@{}:{}{}".format,
            st.sampled_from(["http", "https", "socks5", ""]),
            st.text(max_size=8),
            st.just("s3cret"),
            st.text(max_size=70),
            st.one_of(st.integers(-1, 70_000), st.text(max_size=4)),
            st.sampled_from(["", "/", "/s3cret", "?s3cret", "#s3cret"]),
        ),
    )
)
def test_any_text_is_a_proxy_or_is_refused_without_being_shown(text: str) -> None:
    try:
        found = Proxy.parse(text, "HTTPS_PROXY")
    except ConfigError as error:
        shown = [str(error), repr(error), repr(error.__cause__)]
    else:
        assert 0 < found.port < 65_536
        found.host.encode("idna")
        # A host is shown, whatever it is called; a login is not.
        shown = [repr(found).replace(found.host, ""), found.refusal(407, "no").split("://")[0]]
    assert "s3cret" not in "".join(shown)


@pytest.mark.parametrize(
    "host", ["a.example\r\nX-Forwarded-For: b", "a b", "a\tb", "", "a" * 64, "a..b"]
)
async def test_a_servers_name_adds_nothing_to_what_a_proxy_is_asked(host: str) -> None:
    """The configuration comes from others: its names go into a request that has the owner's login."""
    async with ConnectProxy().running() as proxy:
        with pytest.raises(ProxyRefused, match="no name of a server"):
            await open_tunnel(Proxy("127.0.0.1", proxy.port, "HTTPS_PROXY", LOGIN), host, 443)
    assert proxy.targets == []


def test_a_login_of_any_bytes_is_sent_as_it_is() -> None:
    """An environment may have bytes that are no UTF-8."""
    login = b"north:caf\xe9".decode("utf-8", "surrogateescape")
    sent = Proxy("box.example", 80, "HTTPS_PROXY", login).headers["Proxy-Authorization"]
    assert base64.b64decode(sent.removeprefix("Basic ")) == b"north:caf\xe9"


@given(st.binary(max_size=60).filter(lambda data: not data.startswith(b"HTTP/1.1 2")))
def test_no_answer_but_a_tunnel_is_taken_for_one(answer: bytes) -> None:
    async def ask() -> None:
        async with ConnectProxy(answer=answer).running() as proxy:
            way = Proxy("127.0.0.1", proxy.port, "HTTPS_PROXY")
            async with asyncio.timeout(5):
                with pytest.raises(ProxyRefused):
                    await open_tunnel(way, "a.example", 443)

    if answer:
        asyncio.run(ask())


def test_a_proxy_is_each_ones_own(tmp_path: Path) -> None:
    config, login = make_config(), tmp_path / "login"
    login.write_text(LOGIN)
    own = with_proxy(config, "http://box.example", login)
    assert own.digest() == config.digest()
    assert "network" not in config.to_dict()
    assert own.to_dict()["network"] == {"proxy": "http://box.example", "proxy_login": str(login)}
    found = own.proxy_to("alpha.example")
    assert (found and found.login, found and found.port) == (LOGIN, 80)


# The tunnel


async def test_a_tunnel_carries_bytes_both_ways() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, ConnectProxy(login=LOGIN).running() as proxy:
        way = Proxy("127.0.0.1", proxy.port, "HTTPS_PROXY", LOGIN)
        for host, target in (("2001:db8::7", f"[2001:db8::7]:{port}"), ("a.b", f"a.b:{port}")):
            reader, writer = await asyncio.open_connection(sock=await open_tunnel(way, host, port))
            writer.write(b"hello")
            assert await reader.read() == b"hello"
            writer.close()
            assert proxy.targets[-1] == target


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "403 Forbidden: ask for the server's name and port"),
        (b"HTTP/1.0 502 no\x1b[2J\nsuch\r\n\r\n", "502 no?[2J such; expected a tunnel"),
        (b"SSH-2.0-box\r\n\r\n", "answers nothing that is HTTP"),
        (b"HTTP/1.1 2e2 OK\r\n\r\n", "answers nothing that is HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000, "answers nothing that is HTTP"),
        (b"HTTP/1.1 200 OK\r\n", "answers nothing that is HTTP"),
    ],
)
async def test_an_answer_that_is_no_tunnel_is_told(answer: bytes, text: str) -> None:
    async with ConnectProxy(answer=answer).running() as proxy:
        with pytest.raises(ProxyRefused) as error:
            await open_tunnel(Proxy("127.0.0.1", proxy.port, "HTTPS_PROXY"), "a.example", 443)
    assert text in str(error.value)
    assert f"the proxy 127.0.0.1:{proxy.port} (HTTPS_PROXY)" in str(error.value)


async def test_a_proxy_that_is_away_is_named() -> None:
    async with ConnectProxy().running() as proxy:
        port = proxy.port
    with pytest.raises(
        OSError, match=f"the proxy 127.0.0.1:{port} .HTTPS_PROXY. cannot be reached"
    ):
        await open_tunnel(Proxy("127.0.0.1", port, "HTTPS_PROXY"), "a.example", 443)


# DistAIM


async def test_an_owner_behind_a_proxy_submits_and_asks(
    tmp_path: Path, certificates: Certificates
) -> None:
    config, login = make_config(), tmp_path / "login"
    login.write_text(f"{LOGIN}\n")
    async with (
        running_servers(config, tmp_path, certificates) as stores,
        ConnectProxy(login=LOGIN).running() as proxy,
    ):
        own = with_proxy(named(config), proxy.url, login)
        receipt = await submit(own, make_codes(50), certificates["clinic-a"])
        answers = await ask_servers(own, certificates["clinic-a"])
        stored = {stores[pid].submissions.upload_digest("clinic-a") for pid in range(3)}
    assert receipt.complete
    assert stored == {receipt.upload}
    assert [answer.problem for answer in answers] == [""] * 3
    ends = {f"{party.name}.example:{party.ingest.port}" for party in config.parties}
    assert set(proxy.targets) == ends
    # What a proxy passes on is TLS from the first byte.
    assert set(proxy.first) == {TLS_HANDSHAKE}
    assert len(proxy.first) == len(proxy.targets)


async def test_without_the_proxy_the_same_owner_reaches_nobody(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A control: the names are the proxy's alone."""
    config = make_config({"timeouts.submit_s": 2.0, "timeouts.connect_s": 1.0})
    async with running_servers(config, tmp_path, certificates):
        with pytest.raises(SubmitError, match="no server has confirmed"):
            await submit(named(config), make_codes(50), certificates["clinic-a"])


async def test_a_wrong_login_ends_at_once_and_says_what_is_missing(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config()
    async with (
        running_servers(config, tmp_path, certificates),
        ConnectProxy(login=LOGIN).running() as proxy,
    ):
        own = with_proxy(named(config), proxy.url)
        with pytest.raises(SubmitError, match="it wants a user and a password") as error:
            await submit(own, make_codes(50), certificates["clinic-a"])
        answers = await ask_servers(own, certificates["clinic-a"])
    assert "407 Proxy Authentication Required" in str(error.value)
    assert all("network.proxy_login" in answer.problem for answer in answers)


async def test_a_refused_login_is_in_no_error(tmp_path: Path, certificates: Certificates) -> None:
    """Nor in the repr of one, which asyncio logs where nobody has asked for it."""
    config, login = make_config(), tmp_path / "login"
    login.write_text("north:an0ther word")
    sent = base64.b64encode(b"north:an0ther word").decode()
    async with (
        running_servers(config, tmp_path, certificates),
        ConnectProxy(login=LOGIN).running() as proxy,
    ):
        own = with_proxy(named(config), proxy.url, login)
        with pytest.raises(SubmitError, match="another user or password") as refused:
            await submit(own, make_codes(50), certificates["clinic-a"])
    error: BaseException | None = refused.value
    shown = []
    while error is not None:
        shown += [repr(error), *traceback.format_exception(error)]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert not any(sent in text or "an0ther" in text for text in shown)


async def test_a_pin_holds_through_a_proxy(tmp_path: Path, certificates: Certificates) -> None:
    """A proxy that leads to another server than the named one, as an inspecting box does, gets nothing."""
    config = make_config({"timeouts.submit_s": 5.0})
    async with (
        running_servers(config, tmp_path, certificates) as stores,
        ConnectProxy().running() as proxy,
    ):
        ports = [party.ingest.port for party in config.parties]
        turned = tuple(
            replace(party, ingest=Address(f"{party.name}.example", ports[(n + 1) % 3]))
            for n, party in enumerate(config.parties)
        )
        own = with_proxy(replace(config, parties=turned), proxy.url)
        with pytest.raises(SubmitError, match="is not who it should be"):
            await submit(own, make_codes(50), certificates["clinic-a"])
        stored = [stores[pid].submissions.upload_digest("clinic-a") for pid in range(3)]
    assert stored == [None] * 3


# FLAIM


@pytest.fixture(scope="module")
def of_flaim(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("flaim-certs"), [SERVER], NAMES)


async def test_a_client_of_flaim_behind_a_proxy_takes_part(
    tmp_path: Path, of_flaim: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = flaim_config(of_flaim)
    section = config.require_federation()
    assert section.address is not None
    async with ConnectProxy(login=LOGIN).running() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://north:s3cret%20word@127.0.0.1:{proxy.port}")
        own = config.override({"flaim.address": f"flaim.example:{section.address.port}"})
        assert own.digest() == config.digest()

        async def behind() -> object:
            return await run_client(
                own, codes_of(0), of_flaim[NAMES[0]], tmp_path / NAMES[0], progress=Events()
            )

        _, clients = await play(config, of_flaim, tmp_path, {0: behind})
    failed = [client for client in clients if isinstance(client, BaseException)]
    assert failed == []
    assert proxy.targets == [f"flaim.example:{section.address.port}"]
    assert proxy.first == [TLS_HANDSHAKE]


async def test_a_client_of_flaim_hears_what_a_proxy_wants(
    tmp_path: Path, of_flaim: Certificates
) -> None:
    config = flaim_config(of_flaim, {"flaim.address": "flaim.example:443"})
    async with ConnectProxy(login=LOGIN).running() as proxy:
        own = with_proxy(config, proxy.url)
        with pytest.raises(FrameConnectError, match="it wants a user and a password"):
            await run_client(
                own, codes_of(0), of_flaim[NAMES[0]], tmp_path / "own", progress=Events()
            )


def test_a_bundle_has_no_proxy(tmp_path: Path) -> None:
    """The proxy and the login are the owner's own."""
    own = with_proxy(make_config(), "http://box.example:3128", tmp_path / "login")
    public = own.override({"tls": None, "compute": None, "network": None})
    assert "box.example" in own.resolved_toml()
    assert "box.example" not in public.resolved_toml()
