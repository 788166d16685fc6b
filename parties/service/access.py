"""Access to the admin API: the subject of a request, its role, and the role that the request needs.

A request comes over TLS with an operator's certificate that the settings list, or by the Unix socket of the folder,
whose users own all that lies there. The console sends its readers' requests by that socket, each with a ``Pass`` that
names the reader; only the server's own process can make one. Roles are checked here, for all of these alike, and not
in the console's pages.

A subject is the name in a certificate, ``oidc:`` with the subject of an identity provider, or the name of the system's
user. Secret: the key of passes, in this process alone.
"""

import base64
import contextlib
import hashlib
import hmac
import json
import pwd
import secrets
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Middleware

from parties.foundation.errors import CertificateError
from parties.identity.tls import peer_name, peer_subject
from parties.observability.events import OnRejection, Rejection

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PASS_HEADER = "Syncret-Pass"
ACTOR = "operator "
"""Start of an actor's name in the event log, before the subject."""
READ_METHODS = ("GET", "HEAD")
_PEER_CREDENTIALS = struct.Struct("3i")
_CONSOLE = "/console/"
_OPERATORS_COMMANDS = frozenset(
    ("studies", "admit", "refuse", "collect", "close", "finish", "revoke", "cards")
)
"""Last parts of the paths that an operator may post to; every other command needs an approver."""


class Role(StrEnum):
    """Role of a subject; each has the rights of those before it."""

    VIEWER = "viewer"
    """Reads all that the API shows."""
    OPERATOR = "operator"
    """Proposes and collects studies, admits owners, and closes, finishes or turns owners away."""
    APPROVER = "approver"
    """Approves studies, ends them for good, and confirms other servers' keys."""

    def covers(self, other: "Role") -> bool:
        """Returns true if this role has the rights of ``other``."""
        roles = list(Role)
        return roles.index(self) >= roles.index(other)


@dataclass(frozen=True, slots=True)
class Principal:
    """Subject of requests with its role; ``session`` tells the sessions of one subject apart.

    ``identity`` is how it was authenticated: the whole subject of its certificate, or the number of the system's user.
    """

    subject: str
    role: Role
    session: str = ""
    identity: str = ""

    @property
    def actor(self) -> str:
        """Name in the event log."""
        return f"{ACTOR}{self.subject}".rstrip()


PRINCIPAL: web.RequestKey[Principal] = web.RequestKey("principal", Principal)


def required_role(method: str, path: str) -> Role:
    """Returns the role that a request needs."""
    if method in READ_METHODS:
        return Role.VIEWER
    known = path.rstrip("/").rpartition("/")[2] in _OPERATORS_COMMANDS
    return Role.OPERATOR if known else Role.APPROVER


class Passes:
    """Passes of this process, each for a principal."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def issue(self, principal: Principal) -> str:
        """Returns a pass, as text of a header."""
        content = json.dumps([principal.subject, principal.role.value, principal.identity]).encode()
        return base64.b64encode(self._tag(content) + content).decode()

    def read(self, text: str) -> Principal | None:
        """Returns the principal of a pass, or None if this process did not make it."""
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError:
            return None
        tag, content = data[:32], data[32:]
        if not hmac.compare_digest(tag, self._tag(content)):
            return None
        subject, role, identity = json.loads(content)
        return Principal(subject, Role(role), identity=identity)

    def _tag(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, "sha256")


@dataclass(frozen=True, slots=True)
class Access:
    """Rights of certificates: ``clients`` and ``readers`` are SHA-256 fingerprints (hex).

    Attributes:
        roles: Roles of ``clients`` by the name in the certificate. With None, all of them are approvers; otherwise
            one without a role is a viewer.
        sign_in: True if browsers without a certificate may come to the console, which asks them to sign in.
        passes: Passes of the server's own console.
    """

    clients: frozenset[str] = frozenset()
    readers: frozenset[str] = frozenset()
    roles: Mapping[str, Role] | None = None
    sign_in: bool = False
    passes: Passes = field(default_factory=Passes)

    def of_certificate(self, fingerprint: str, name: str) -> Principal | None:
        """Returns the principal of a certificate, or None if it is not listed."""
        if fingerprint in self.clients:
            role = Role.APPROVER if self.roles is None else self.roles.get(name, Role.VIEWER)
            return Principal(name, role)
        return Principal(name, Role.VIEWER) if fingerprint in self.readers else None


def authorization(access: Access, rejected: OnRejection) -> Middleware:
    """Returns the middleware that gives every request its principal, and refuses those whose role is too small."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            # Without a connection nothing tells its kind: TLS, or the folder's socket.
            return _refusal(HTTPStatus.FORBIDDEN, "the connection is gone", "an open one")
        tls = transport.get_extra_info("ssl_object")
        if tls is None:
            given = request.headers.get(PASS_HEADER)
            principal = _local_principal(request) if given is None else access.passes.read(given)
            if principal is None:
                return _refusal(
                    HTTPStatus.FORBIDDEN, "a pass that this server did not make", "none"
                )
        else:
            certificate = tls.getpeercert(binary_form=True)
            if not certificate and access.sign_in and request.path.startswith(_CONSOLE):
                return await handler(request)
            fingerprint = hashlib.sha256(certificate or b"").hexdigest()
            name = _certificate_name(tls, fingerprint)
            principal = access.of_certificate(fingerprint, name)
            if principal is None:
                text = f"admin: a certificate that is not listed: SHA-256 {fingerprint}"
                if not certificate:
                    text = "admin: no certificate"
                rejected(Rejection.UNKNOWN_PEER, text, remote=request.remote, status=403)
                return _refusal(HTTPStatus.FORBIDDEN, text, _LISTED)
            principal = replace(principal, identity=peer_subject(tls))
        request[PRINCIPAL] = principal
        # The console sends on what it gets, in the name of its reader, and nothing else.
        needed = required_role(request.method, request.path)
        if principal.role.covers(needed) or request.path.startswith(_CONSOLE):
            return await handler(request)
        kind = "a viewer" if principal.role is Role.VIEWER else "an operator, and no approver"
        text = (
            f"admin: {principal.subject} is {kind}: that may look, and order nothing of this kind"
        )
        rejected(Rejection.FORBIDDEN, text, remote=request.remote, status=403)
        expected = f"the role {needed}, by admin.roles or admin.oidc of settings.toml"
        return _refusal(HTTPStatus.FORBIDDEN, text, expected)

    return check


_LISTED = "one of admin.clients in the server's settings.toml"


def _refusal(status: int, what: str, expected: str) -> web.Response:
    document = {"error": {"what": what, "expected": expected}}
    response = web.json_response(document, status=status, headers={"Cache-Control": "no-store"})
    response.force_close()
    return response


def _certificate_name(tls: ssl.SSLObject, fingerprint: str) -> str:
    """Returns the name in a certificate; of one without a single name the begin of its fingerprint."""
    try:
        return peer_name(tls)
    except CertificateError:
        return fingerprint[:16]


def _local_principal(request: web.Request) -> Principal:
    """Returns the system's user at the socket's other end, who owns the folder: an approver."""
    transport = request.transport
    connection = transport.get_extra_info("socket") if transport is not None else None
    option = getattr(socket, "SO_PEERCRED", None)
    if connection is None or option is None or connection.family != socket.AF_UNIX:
        return Principal("", Role.APPROVER)
    data = connection.getsockopt(socket.SOL_SOCKET, option, _PEER_CREDENTIALS.size)
    _, uid, _ = _PEER_CREDENTIALS.unpack(data)
    with contextlib.suppress(KeyError):
        return Principal(pwd.getpwuid(uid).pw_name, Role.APPROVER, identity=f"unix uid {uid}")
    return Principal(str(uid), Role.APPROVER, identity=f"unix uid {uid}")


def principal_of(request: web.Request) -> Principal:
    """Returns the principal of a request that ``authorization`` has let pass."""
    return request[PRINCIPAL]
