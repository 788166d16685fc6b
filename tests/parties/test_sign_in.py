"""Sign-in of the console by OpenID Connect, at a real provider on loopback, and attacks on it."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from parties.foundation.errors import CertificateError, ConfigError
from parties.identity.join_documents import fingerprint_words
from parties.local.children import free_ports
from parties.service.console import oidc, sign_in
from parties.service.console.oidc import PendingLogin, Provider, SignInRefused
from parties.service.console.sign_in import LOGIN_COOKIE, SESSION_COOKIE, SignIn
from parties.service.events import EventName
from parties.service.main import _admin_listening
from parties.service.reload import LiveSettings
from parties.service.settings import load_settings
from parties.service.study_record import StudyState
from tests.browser import browser, needs_browser, playwright
from tests.parties.oidc_provider import CLIENT, SECRET, IdentityProvider, identity_provider
from tests.parties.test_admin_tls import operator
from tests.parties.test_service import Three, processes, three

__all__ = ["browser", "processes", "three"]
pytest.importorskip("joserfc", reason="joserfc is not installed")
ROLES = '{approvers = "approver", staff = "operator", guests = "viewer"}'


def write_settings(folder: Path, issuer: str, port: int, /, **more: str) -> None:
    lines = {
        "issuer": json.dumps(issuer),
        "client_id": json.dumps(CLIENT),
        "secret_file": '"admin/oidc.secret"',
        "url": json.dumps(f"https://localhost:{port}"),
        "roles": ROLES,
    } | more
    (folder / "admin").mkdir(exist_ok=True)
    secret = folder / "admin" / "oidc.secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    text = "\n".join(f"{name} = {value}" for name, value in lines.items())
    (folder / "settings.toml").write_text(
        f'[admin]\naddress = "127.0.0.1:{port}"\n[admin.oidc]\n{text}\n'
    )


@dataclass
class Surfer:
    """A browser without a certificate, whose cookies and redirects are the test's."""

    session: aiohttp.ClientSession
    tls: ssl.SSLContext
    url: str

    def __post_init__(self) -> None:
        self.cookies: dict[str, str] = {}

    async def ask(self, method: str, url: str, **options: Any) -> tuple[int, str, str]:
        """Send a request; status, where it leads, and page."""
        here = url.startswith("/")
        headers = {"Accept": "text/html"} | options.pop("headers", {})
        if here:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        async with self.session.request(
            method,
            self.url + url if here else url,
            ssl=self.tls if here else True,
            headers=headers,
            allow_redirects=False,
            **options,
        ) as answer:
            for name, cookie in answer.cookies.items():
                assert cookie["secure"]
                assert cookie["httponly"]
                assert (cookie["path"], cookie["domain"]) == ("/", "")
                self.cookies[name] = cookie.value
            return answer.status, answer.headers.get("Location", ""), await answer.text()

    async def callback(self) -> str:
        """Begin to sign in; the address to which the provider sends the browser back."""
        status, there, _ = await self.ask("GET", "/console/login")
        assert status == 303
        _, back, _ = await self.ask("GET", there)
        return back.removeprefix(self.url)

    async def sign_in(self) -> tuple[int, str]:
        status, _, page = await self.ask("GET", await self.callback())
        return status, page


@dataclass
class Desk:
    """Alpha's admin port, its identity provider, and browsers that come there."""

    three: Three
    provider: IdentityProvider
    folder: Path
    url: str
    http: aiohttp.ClientSession
    ahead_s: float = 0.0
    """Time by which the clock of sessions is ahead."""

    def surfer(self) -> Surfer:
        tls = ssl.create_default_context(cafile=str(self.folder / "admin" / "admin.crt"))
        return Surfer(self.http, tls, self.url)


@pytest.fixture
async def desk(three: Three, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    class Gate(SignIn):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more, clock=lambda: time.time() + made.ahead_s)

    monkeypatch.setattr(sign_in, "SignIn", Gate)
    service, folder = three.services[0], three.identities[0].folder
    port = free_ports(1)[0]
    operator(folder)
    jar = aiohttp.DummyCookieJar()
    async with identity_provider() as provider, aiohttp.ClientSession(cookie_jar=jar) as http:
        write_settings(folder, provider.issuer, port)
        made = Desk(three, provider, folder, f"https://localhost:{port}", http)
        async with _admin_listening(service, folder, LiveSettings(folder, service.events)):
            yield made


@pytest.mark.parametrize("alg", ["RS256", "ES256"])
async def test_a_browser_signs_in_and_its_reader_approves(desk: Desk, alg: str) -> None:
    digest = await desk.three.propose("stays")
    desk.provider.alg = alg
    surfer, path = desk.surfer(), f"/console/studies/{digest}/approve"
    assert (await surfer.ask("GET", "/console/"))[:2] == (303, "/console/login")
    status, page = await surfer.sign_in()
    assert (status, 'content="0; url=/console/"' in page) == (200, True)
    _, _, page = await surfer.ask("GET", "/console/")
    assert "You are oidc:anna, an approver." in page
    _, _, page = await surfer.ask("GET", path)
    words = {"words": fingerprint_words(digest), "csrf": csrf(page)}
    form = [*words.items(), ("heard", "beta"), ("heard", "gamma")]
    assert (await surfer.ask("POST", path, data=form))[0] == 303
    entry = desk.three.services[0].studies.repository.entries(digest)[-1]
    assert (entry.what, entry.actor) == (EventName.STUDY_APPROVED, "operator oidc:anna")


def csrf(page: str) -> str:
    return page.split('name="csrf" value="')[1].split('"')[0]


async def test_without_a_session_there_is_nothing_but_the_way_in(desk: Desk) -> None:
    surfer = desk.surfer()
    for path in ("/status", "/studies", "/metrics", "/console/../status", "/console"):
        assert (await surfer.ask("GET", path))[0] in (403, 404), path
    assert (await surfer.ask("POST", "/studies", data="{}"))[0] == 403
    for path in ("/console/", "/console/studies/x", "/console/events"):
        status, _, page = await surfer.ask("GET", path, headers={"Accept": "*/*"})
        assert (status, "alpha" in page) == (401, False), path
    # A session is for the console: the API itself takes certificates alone.
    assert (await surfer.sign_in())[0] == 200
    assert (await surfer.ask("GET", "/status"))[0] == 403
    assert (await surfer.ask("GET", "/console/"))[0] == 200


Change = Callable[[dict[str, Any], dict[str, Any]], None]
FORGERIES: dict[str, Change] = {
    "issuer": lambda header, claims: claims.update(iss="https://evil.example"),
    "no-issuer": lambda header, claims: claims.pop("iss"),
    "audience": lambda header, claims: claims.update(aud="another"),
    "no-audience": lambda header, claims: claims.pop("aud"),
    "two-audiences": lambda header, claims: claims.update(aud=[CLIENT, "another"]),
    "party": lambda header, claims: claims.update(aud=[CLIENT, "another"], azp="another"),
    "nonce": lambda header, claims: claims.update(nonce="x"),
    "nonces": lambda header, claims: claims.update(nonce=[claims["nonce"], "x"]),
    "no-nonce": lambda header, claims: claims.pop("nonce"),
    "expired": lambda header, claims: claims.update(exp=int(time.time()) - 61),
    "no-end": lambda header, claims: claims.pop("exp"),
    "old": lambda header, claims: claims.update(iat=int(time.time()) - 700),
    "future": lambda header, claims: claims.update(iat=int(time.time()) + 700),
    "not-yet": lambda header, claims: claims.update(nbf=int(time.time()) + 700),
    "none": lambda header, claims: header.update(alg="none"),
    "none-without-kid": lambda header, claims: (header.update(alg="none"), header.pop("kid")),
    "public-key-as-secret": lambda header, claims: header.update(alg="HS256"),
    "published-secret": lambda header, claims: header.update(alg="HS256", kid="HS256"),
    "unknown-key": lambda header, claims: header.update(kid="another"),
    "other-keys-algorithm": lambda header, claims: header.update(alg="ES256"),
    "critical": lambda header, claims: header.update(crit=["x"], x=1),
    "no-subject": lambda header, claims: claims.pop("sub"),
    "long-subject": lambda header, claims: claims.update(sub="a" * 200),
    "hidden-subject": lambda header, claims: claims.update(sub="anna\u202e"),
    "no-role": lambda header, claims: claims.pop("groups"),
    "other-role": lambda header, claims: claims.update(groups=["approver", "Approvers", {}]),
}


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[tuple[IdentityProvider, Provider]]:
    """A provider, and the client of it."""
    async with identity_provider() as provider:
        write_settings(tmp_path, provider.issuer, 7444)
        section = load_settings(tmp_path).admin.oidc
        assert section is not None
        yield provider, Provider(section, tmp_path)


async def code_for(client: Provider) -> tuple[PendingLogin, dict[str, str]]:
    """A sign-in that has begun, and the provider's answer to it."""
    there, pending = await client.begin()
    async with (
        aiohttp.ClientSession() as http,
        http.get(there, allow_redirects=False) as answer,
    ):
        query = parse_qs(urlsplit(answer.headers["Location"]).query)
        return pending, {name: values[0] for name, values in query.items()}


async def test_an_id_token_that_is_not_right_signs_nobody_in(
    bare: tuple[IdentityProvider, Provider],
) -> None:
    provider, client = bare
    passed = []
    for name, change in FORGERIES.items():
        provider.change = change
        try:
            await client.complete(*await code_for(client))
            passed.append(name)
        except SignInRefused as error:
            passed += [SECRET] if SECRET in str(error) else []
    assert passed == []
    provider.change = lambda header, claims: claims.update(aud=[CLIENT], groups="guests")
    assert (await client.complete(*await code_for(client))).role == "viewer"
    provider.change = lambda header, claims: claims.update(groups=["guests", "approvers", "staff"])
    assert (await client.complete(*await code_for(client))).role == "approver"
    # A token of another key, by the name of the right one.
    provider.change = None
    provider.signing_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with pytest.raises(SignInRefused, match="BadSignatureError"):
        await client.complete(*await code_for(client))
    # Tokens of unknown keys do not make it ask for keys without end.
    assert provider.asked.count("keys") == 1


async def test_a_secret_that_others_can_read_is_refused(
    bare: tuple[IdentityProvider, Provider], tmp_path: Path
) -> None:
    (tmp_path / "admin" / "oidc.secret").chmod(0o644)
    with pytest.raises(CertificateError, match="secret"):
        Provider(bare[1]._section, tmp_path)


async def test_an_answer_of_another_sign_in_or_provider_is_refused(
    bare: tuple[IdentityProvider, Provider],
) -> None:
    provider, client = bare
    pending, answer = await code_for(client)
    wrong = [
        (pending, answer | {"state": "x"}, "another sign-in"),
        (pending, {**answer, "iss": "https://evil.example"}, "another provider"),
        (replace(pending, begun=pending.begun - 601), answer, "too long"),
        (pending, {"state": pending.state, "error": "access_denied"}, "says access_denied$"),
        (pending, {"state": pending.state, "error": "Call 555!"}, "says that there is an error$"),
        (pending, {"state": pending.state}, "no code"),
        (replace(pending, verifier="x" * 43), answer, "takes no code"),
    ]
    for begun, given, said in wrong:
        with pytest.raises(SignInRefused, match=said):
            await client.complete(begun, given)
    # The last one has used the code up.
    with pytest.raises(SignInRefused, match="takes no code"):
        await client.complete(pending, answer)
    provider.metadata = {"authorization_response_iss_parameter_supported": True}
    client._metadata_at = -1e9
    pending, answer = await code_for(client)
    del answer["iss"]
    with pytest.raises(SignInRefused, match="another provider"):
        await client.complete(pending, answer)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"issuer": "https://evil.example"}, "another issuer"),
        ({"token_endpoint": "http://evil.example/token"}, "token_endpoint is no address over TLS"),
        ({"jwks_uri": None}, "jwks_uri is no address"),
    ],
)
async def test_metadata_that_leads_elsewhere_is_refused(
    bare: tuple[IdentityProvider, Provider], metadata: dict[str, Any], said: str
) -> None:
    bare[0].metadata = metadata
    with pytest.raises(SignInRefused, match=said):
        await bare[1].begin()


async def test_an_answer_is_used_once_and_by_the_browser_that_asked(desk: Desk) -> None:
    attacker, victim = desk.surfer(), desk.surfer()
    back = await attacker.callback()
    # The attacker's answer in the victim's browser signs in nobody: with no sign-in there, or another one.
    assert (await victim.ask("GET", back))[0] == 403
    await victim.callback()
    assert (await victim.ask("GET", back))[0] == 403
    assert SESSION_COOKIE not in victim.cookies
    cookie = attacker.cookies[LOGIN_COOKIE]
    assert (await attacker.ask("GET", back))[0] == 200
    # A replay, by somebody who has seen both address and cookie.
    thief = desk.surfer()
    thief.cookies[LOGIN_COOKIE] = cookie
    asked = len(desk.provider.asked)
    status, _, page = await thief.ask("GET", back)
    assert (status, "used already" in page) == (403, True)
    assert len(desk.provider.asked) == asked
    for forged in ("", "x", "é", cookie[:-4] + "AAAA"):
        thief.cookies[LOGIN_COOKIE] = forged
        assert (await thief.ask("GET", back))[0] in (400, 403)


async def test_strangers_shut_nobody_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can begin a sign-in, and come back with nothing."""
    monkeypatch.setattr(sign_in, "_MAX_USED", 2)
    monkeypatch.setattr(oidc, "_MOST_EXCHANGES", 1)
    for _ in range(4):
        stranger = desk.surfer()
        back = (await stranger.callback()).partition("?")[0]
        assert (await stranger.ask("GET", f"{back}?error=x"))[0] == 403
    assert (await desk.surfer().sign_in())[0] == 200


async def test_a_provider_that_is_away_is_asked_once_in_a_while(
    bare: tuple[IdentityProvider, Provider], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = bare
    asked = 0

    async def away(*_: object, **__: object) -> None:
        nonlocal asked
        asked += 1
        raise SignInRefused("it is away")

    monkeypatch.setattr(client, "_ask", away)
    client._metadata_at = -1e9
    for _ in range(5):
        with pytest.raises(SignInRefused):
            await client.begin()
    assert asked == 1


def test_four_eyes_take_a_subject_that_its_holder_cannot_change(tmp_path: Path) -> None:
    write_settings(tmp_path, "https://login.example.org", 7444)
    admin = load_settings(tmp_path).admin
    assert admin.oidc is not None
    for claim, allowed in {"sub": True, "email": False}.items():
        section = replace(admin.oidc, subject_claim=claim)
        with nullcontext() if allowed else pytest.raises(ConfigError, match="can change"):
            replace(admin, four_eyes=True, oidc=section)


async def test_a_session_is_a_new_one_and_ends(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    attacker, victim = desk.surfer(), desk.surfer()
    await attacker.sign_in()
    fixed = victim.cookies[SESSION_COOKIE] = "a" * 43
    desk.provider.claims = {"sub": "vera", "groups": ["approvers"]}
    await victim.sign_in()
    # The identifier that somebody has put there is not the session's.
    assert victim.cookies[SESSION_COOKIE] != fixed
    thief = desk.surfer()
    thief.cookies[SESSION_COOKIE] = fixed
    assert (await thief.ask("GET", "/console/"))[0] == 303
    # A session that was there before does not become the new reader's.
    assert "oidc:anna" in (await attacker.ask("GET", "/console/"))[2]
    # Signing out ends it at the server, for copies of the cookie, too.
    thief.cookies[SESSION_COOKIE] = victim.cookies[SESSION_COOKIE]
    _, _, page = await victim.ask("GET", "/console/")
    assert (await victim.ask("POST", "/console/logout", data={"csrf": "x"}))[0] == 403
    assert (await victim.ask("POST", "/console/logout", data={"csrf": csrf(page)}))[0] == 200
    assert (await thief.ask("GET", "/console/"))[0] == 303
    desk.ahead_s = 7.9 * 3600
    assert (await attacker.ask("GET", "/console/"))[0] == 200
    desk.ahead_s = 8.1 * 3600
    assert (await attacker.ask("GET", "/console/"))[0] == 303


async def test_forms_of_other_sites_other_sessions_and_viewers_change_nothing(desk: Desk) -> None:
    digest = await desk.three.propose("stays")
    path, own = f"/console/studies/{digest}/approve", desk.three.services[0].studies
    anna, vera = desk.surfer(), desk.surfer()
    await anna.sign_in()
    desk.provider.claims = {"sub": "vera", "groups": ["guests"]}
    await vera.sign_in()
    page = (await vera.ask("GET", path))[2]
    heard = [("words", fingerprint_words(digest)), ("heard", "beta"), ("heard", "gamma")]
    # A viewer with a form of her own is refused by the API.
    status, _, said = await vera.ask("POST", path, data=[("csrf", csrf(page)), *heard])
    assert (status, "vera is a viewer" in said) == (403, True)
    # Her form is none of anna's, who could approve; neither is one without its token, or of another site.
    assert (await anna.ask("POST", path, data=[("csrf", csrf(page)), *heard]))[0] == 403
    assert (await anna.ask("POST", path, data=heard))[0] == 403
    page = (await anna.ask("GET", path))[2]
    foreign = [
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ]
    for headers in foreign:
        form = [("csrf", csrf(page)), *heard]
        assert (await anna.ask("POST", path, data=form, headers=headers))[0] == 403
    assert own[digest].state is StudyState.PROPOSED
    assert (await anna.ask("POST", path, data=[("csrf", csrf(page)), *heard]))[0] == 303
    assert own[digest].state is StudyState.APPROVED


@needs_browser
async def test_a_real_browser_comes_back_with_a_session(desk: Desk) -> None:
    """The provider is another site for the browser, and cookies that are strict or lax are kept so."""
    found: list[str] = []

    def look() -> None:
        with playwright.sync_playwright() as started:
            from tests.browser import PATH

            opened = started.chromium.launch(executable_path=PATH, args=["--no-sandbox"])
            page = opened.new_context(ignore_https_errors=True).new_page()
            page.goto(f"{desk.url}/console/", timeout=60_000)
            page.get_by_text("You are oidc:anna").wait_for(timeout=60_000)
            page.get_by_role("button", name="Sign out").click()
            page.get_by_role("heading", name="Signed out").wait_for(timeout=60_000)
            found.append(page.url)
            opened.close()

    await asyncio.to_thread(look)
    assert found == [f"{desk.url}/console/logout"]


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"issuer": '"http://login.example.org"'}, "issuer"),
        ({"issuer": '"https://user@login.example.org"'}, "issuer"),
        ({"issuer": "7"}, "issuer"),
        ({"url": '"https://alpha.example.org/there"'}, "url"),
        ({"roles": "{}"}, "roles"),
        ({"roles": '{staff = "boss"}'}, "roles.staff"),
        ({"scope": '"profile"'}, "scope"),
        ({"session_hours": "true"}, "session_hours"),
        ({"session_hours": "1000"}, "session_hours"),
        ({"secret": '"x"'}, "secret"),
        ({"client_id": '""'}, "client_id"),
    ],
)
def test_settings_of_a_provider_that_are_none_are_refused(
    tmp_path: Path, more: dict[str, str], key: str
) -> None:
    write_settings(tmp_path, "https://login.example.org", 7444, **more)
    with pytest.raises(ConfigError, match="expected") as refused:
        load_settings(tmp_path)
    assert refused.value.key == f"admin.oidc.{key}"
