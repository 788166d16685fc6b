"""Sign-in of the console by OpenID Connect, beside certificates: sessions, their cookies, and their pages.

    GET  /console/login      sends the browser to the identity provider
    GET  /console/callback   its answer; begins a session
    POST /console/logout     ends the session

A sign-in is bound to the browser that began it by a cookie with the state, nonce and verifier, signed by this process,
so that a request before a session costs no memory. A session always has a new identifier, which the server alone makes,
and whose hash alone it keeps; its role is that of the sign-in until it ends. Source: OWASP's cheat sheet on session
management. Known limit: a role that the provider takes back holds until the session's end.

Secret: identifiers of sessions, and the key of the cookies.
"""

import base64
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from aiohttp import web

from parties.foundation.errors import CertificateError, PartyError
from parties.observability.events import OnRejection, Rejection
from parties.service.access import PRINCIPAL, Access, Passes, Principal
from parties.service.console.gate import Gate, plain_answer
from parties.service.console.oidc import PendingLogin, Provider, SignInRefused
from parties.service.console.view import render
from parties.service.settings import AdminSection

logger = logging.getLogger("syncret.service")

SESSION_COOKIE, LOGIN_COOKIE = "__Host-syncret-session", "__Host-syncret-login"
_LOGIN, _CALLBACK, _LOGOUT = "/login", "/callback", "/logout"
_OPEN = tuple(f"/console{path}" for path in (_LOGIN, _CALLBACK, "/static/"))
_LOGIN_S = 600
_MAX_SESSIONS, _MAX_OF_A_SUBJECT, _MAX_USED = 1000, 10, 10_000


@dataclass(frozen=True, slots=True)
class _Session:
    principal: Principal
    ends: float


def admin_gate(admin: AdminSection, folder: Path, access: Access, rejected: OnRejection) -> Gate:
    """Returns the gate of the console at the admin port. Raises ExtraMissing, CertificateError."""
    if admin.oidc is None:
        return Gate(access.passes)
    return SignIn(
        access.passes,
        Provider(admin.oidc, folder),
        rejected,
        session_s=3600 * admin.oidc.session_hours,
    )


class SignIn(Gate):
    """Gate for readers with a certificate, and for those who have signed in at the ``provider``."""

    def __init__(
        self,
        passes: Passes,
        provider: Provider,
        rejected: OnRejection,
        *,
        session_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(passes)
        self._provider = provider
        self._rejected = rejected
        self._session_s = session_s
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._sessions: dict[str, _Session] = {}
        self._used: dict[str, None] = {}
        """States of the last sign-ins that are over."""

    def routes(self) -> list[web.RouteDef]:
        """See ``Gate``."""
        return [
            web.get(_LOGIN, self._login),
            web.get(_CALLBACK, self._callback),
            web.post(_LOGOUT, self._logout),
        ]

    def refuses(self, request: web.Request) -> web.StreamResponse | None:
        """See ``Gate``. A reader without a session is sent to sign in."""
        if request.get(PRINCIPAL) is not None:
            return None
        session = self._sessions.get(_hash(_cookie(request, SESSION_COOKIE)))
        if session is not None and self._clock() < session.ends:
            request[PRINCIPAL] = session.principal
            return None
        if request.path.startswith(_OPEN):
            return None
        if request.method == "GET" and "text/html" in request.headers.get("Accept", ""):
            return web.Response(status=303, headers={"Location": "/console/login"})
        return plain_answer(401, "sign in at /console/login")

    def holds(self, request: web.Request) -> bool:
        """See ``Gate``: until the session's end."""
        if not request[PRINCIPAL].session:
            return True
        session = self._sessions.get(_hash(_cookie(request, SESSION_COOKIE)))
        return session is not None and self._clock() < session.ends

    async def _login(self, request: web.Request) -> web.StreamResponse:
        try:
            address, pending = await self._provider.begin()
        except SignInRefused as error:
            return self._refusal(request, error)
        content = json.dumps(asdict(pending)).encode()
        value = base64.urlsafe_b64encode(self._tag(content) + content).decode()
        response = web.Response(status=303, headers={"Location": address})
        # Lax: the way back begins at the provider's site.
        _set_cookie(response, LOGIN_COOKIE, value, age=_LOGIN_S, site="Lax")
        return response

    async def _callback(self, request: web.Request) -> web.StreamResponse:
        try:
            pending = self._pending(request)
            principal = await self._provider.complete(pending, request.query)
        except (SignInRefused, CertificateError) as error:
            return self._refusal(request, error)
        session = secrets.token_urlsafe(32)
        name = _hash(session)
        principal = replace(principal, session=name[:16])
        self._make_room(principal.subject)
        self._sessions[name] = _Session(principal, self._clock() + self._session_s)
        logger.info("%s signed in as %s", principal.subject, principal.role)
        # A page of this site leads on: a strict cookie does not come along from the provider's.
        response = _page("signed_in.html", title="Signed in", to="/console/")
        _set_cookie(response, SESSION_COOKIE, session, age=int(self._session_s), site="Strict")
        _set_cookie(response, LOGIN_COOKIE, "", age=0, site="Lax")
        return response

    async def _logout(self, request: web.Request) -> web.StreamResponse:
        if not await self.accepts(request):
            raise web.HTTPForbidden(text="The form is not one of this console's.")
        self._sessions.pop(_hash(_cookie(request, SESSION_COOKIE)), None)
        response = _page("signed_in.html", title="Signed out", to="")
        _set_cookie(response, SESSION_COOKIE, "", age=0, site="Strict")
        return response

    def _pending(self, request: web.Request) -> PendingLogin:
        """Returns the sign-in that this browser has begun, once. Raises SignInRefused."""
        try:
            data = base64.urlsafe_b64decode(_cookie(request, LOGIN_COOKIE))
        except ValueError:
            data = b""
        tag, content = data[:32], data[32:]
        if not hmac.compare_digest(tag, self._tag(content)):
            raise SignInRefused("this browser has begun no sign-in here")
        pending = PendingLogin(**json.loads(content))
        if pending.state in self._used:
            raise SignInRefused("this answer was used already")
        # The oldest is forgotten instead of anybody refused: the provider takes a code once, too.
        while len(self._used) >= _MAX_USED:
            del self._used[next(iter(self._used))]
        self._used[pending.state] = None
        return pending

    def _make_room(self, subject: str) -> None:
        """Forgets sessions that are over, and the oldest of a subject that has many, or of all."""
        now = self._clock()
        self._sessions = {name: one for name, one in self._sessions.items() if one.ends > now}
        own = [name for name, one in self._sessions.items() if one.principal.subject == subject]
        for name in own[: max(0, len(own) - _MAX_OF_A_SUBJECT + 1)]:
            del self._sessions[name]
        while len(self._sessions) >= _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]

    def _refusal(self, request: web.Request, error: PartyError) -> web.StreamResponse:
        text = f"admin: a sign-in was refused: {error}"
        self._rejected(Rejection.FORBIDDEN, text, remote=request.remote, status=403)
        known = isinstance(error, SignInRefused)
        said = (
            f"You are not signed in: {error if known else 'this server cannot ask the provider'}."
        )
        return _page("problem.html", 403, title="Not signed in", text=said, again=False)

    def _tag(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, "sha256")


def _page(template: str, status: int = 200, /, **values: object) -> web.Response:
    return web.Response(status=status, text=render(template, **values), content_type="text/html")


def _hash(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()


def _cookie(request: web.Request, name: str) -> str:
    try:
        jar = SimpleCookie(request.headers.get("Cookie", ""))
    except CookieError:
        return ""
    return jar[name].value if name in jar else ""


def _set_cookie(response: web.Response, name: str, value: str, *, age: int, site: str) -> None:
    response.set_cookie(
        name, value, max_age=age, path="/", secure=True, httponly=True, samesite=site
    )
