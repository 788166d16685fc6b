"""Access to the console, and the browser policy of its pages.

On this host (``Loopback``), the address that `syncret console` prints gives access once. Its token is exchanged for a
cookie that scripts cannot read and that requests from other sites do not carry. The Host header check refuses a page of
another name that is made to point here (DNS rebinding). Behind the admin port, TLS authorizes the browser.

Every request with an effect carries ``Gate.csrf``, which only pages of this console contain, each session's its own.
Secret: tokens and the cookie. Source: OWASP's cheat sheets on CSRF and session management. Known limit: access to this
user's memory or browser profile is access to the console.
"""

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from parties.service.access import PRINCIPAL, Passes, Principal

_TOKEN_BYTES = 32
CSRF = "csrf"
"""Name of the form field with ``Gate.csrf``."""
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
"""Content security policy of a report: no scripts, no origin, nothing from elsewhere."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": PAGE_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Gate:
    """Admits every request that the layer below (TLS with client certificates) has given a principal.

    ``passes`` are those of the admin API in this process; without them the console has its own user's rights.
    """

    def __init__(self, passes: Passes | None = None) -> None:
        self._secret = secrets.token_bytes(_TOKEN_BYTES)
        self._passes = passes

    def principal(self, request: web.Request) -> Principal | None:
        """Returns the reader; None where the console is for one reader alone."""
        return request.get(PRINCIPAL)

    def csrf(self, request: web.Request) -> str:
        """Returns the token that forms of this reader carry, and of this session."""
        reader = self.principal(request)
        holder = "" if reader is None else f"{reader.session} {reader.subject}"
        return hmac.new(self._secret, holder.encode(), "sha256").hexdigest()

    def credential(self, request: web.Request) -> str:
        """Returns the pass by which the admin API knows the reader; "" for the console's own user.

        Raises HTTPForbidden where passes are needed and there is no reader.
        """
        if self._passes is None:
            return ""
        reader = self.principal(request)
        if reader is None:
            raise web.HTTPForbidden(text="nobody is known to ask for this")
        return self._passes.issue(reader)

    def routes(self) -> list[web.RouteDef]:
        """Returns the gate's own pages, below those of the console."""
        return []

    def refuses(self, request: web.Request) -> web.StreamResponse | None:
        """Returns a refusal if the request may not pass, otherwise None."""
        return None

    def holds(self, request: web.Request) -> bool:
        """Returns true as long as a request that has passed may go on."""
        return True

    async def accepts(self, request: web.Request) -> bool:
        """Returns true if the form comes from a page of this console, in this reader's session."""
        said = (await request.post()).get(CSRF)
        return isinstance(said, str) and _same(said, self.csrf(request))


class Loopback(Gate):
    """Admits the browser that has used the one-time ``token``; ``port`` is the console's port on this host."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.token: str | None = secrets.token_urlsafe(_TOKEN_BYTES)
        self._session = secrets.token_urlsafe(_TOKEN_BYTES)
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        # Cookies are not bound to a port: two consoles need cookies of different names.
        self._cookie = f"syncret-console-{port}"

    def refuses(self, request: web.Request) -> web.StreamResponse | None:
        """See ``Gate``."""
        if request.headers.get("Host") not in self._hosts:
            return plain_answer(
                421, f"this console is at http://{self._hosts[0]}/ and has no other name"
            )
        if request.path == ENTER or _same(self._sent(request), self._session):
            return None
        text = "open the address that `syncret console` printed, once; start it again for another"
        return plain_answer(403, text)

    def _sent(self, request: web.Request) -> str:
        try:
            jar = SimpleCookie(request.headers.get("Cookie", ""))
        except CookieError:
            return ""
        return jar[self._cookie].value if self._cookie in jar else ""

    async def enter(self, request: web.Request) -> web.StreamResponse:
        """Exchanges the token for the cookie; the token is then used up."""
        said = request.query.get("token", "")
        if self.token is None or not _same(said, self.token):
            text = "this address is used already, or is not the one; start `syncret console` again"
            return plain_answer(403, text)
        self.token = None
        response = web.Response(status=303, headers={**_HEADERS, "Location": "/console/"})
        response.set_cookie(self._cookie, self._session, httponly=True, samesite="Strict", path="/")
        return response


ENTER = "/enter"


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def plain_answer(status: int, text: str) -> web.Response:
    """Returns an answer in plain text."""
    return web.Response(status=status, text=f"{text}\n", headers=_HEADERS)


def guarded(gate: Gate) -> Middleware:
    """Returns the middleware that applies ``gate`` first and sets the browser policy in every answer."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if (refusal := gate.refuses(request)) is not None:
            return refusal
        try:
            response = await handler(request)
        except web.HTTPException as error:
            for name, value in _HEADERS.items():
                error.headers.setdefault(name, value)
            raise
        if not response.prepared:
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
        return response

    return guard
