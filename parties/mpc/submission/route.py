"""A participant's way to a server over HTTPS: directly, or through a proxy, whose errors are told in words."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

import aiohttp

from parties.config import Config, StudyServer
from parties.config.proxy import Proxy
from parties.foundation.version import ingest_headers
from parties.identity.tls import explain_tls_error
from parties.network.http_connections import TlsConnector
from parties.observability.heartbeat import network_reason

_FINAL = (HTTPStatus.PROXY_AUTHENTICATION_REQUIRED, HTTPStatus.FORBIDDEN)
"""Answers of a proxy after which another try is of no use."""


class ProxyAnswer(aiohttp.ClientError):
    """A proxy's answer to CONNECT that is no tunnel: HTTP ``status`` and ``phrase``."""

    def __init__(self, status: int, phrase: str) -> None:
        super().__init__(f"{status} {phrase}")
        self.status, self.phrase = status, phrase


@contextlib.contextmanager
def without_login() -> Iterator[None]:
    """Raises ProxyAnswer for the library's error, whose repr has the request's headers and the login with them."""
    try:
        yield
    except aiohttp.ClientHttpProxyError as error:
        raise ProxyAnswer(error.status, error.message) from None


@dataclass(frozen=True, slots=True)
class Route:
    """The way to one server; ``proxy`` is None where it is direct."""

    proxy: Proxy | None

    @classmethod
    def to(cls, config: Config, server: StudyServer) -> Self:
        """Returns the way to ``server``. Raises ConfigError where a proxy is named in a way that cannot be used."""
        return cls(config.proxy_to(server.ingest.host))

    @property
    def url(self) -> str | None:
        """The argument ``proxy`` of a request."""
        return None if self.proxy is None else self.proxy.url

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The argument ``proxy_headers`` of a request. Secret."""
        return None if self.proxy is None else self.proxy.headers

    @contextlib.asynccontextmanager
    async def exchange(
        self,
        method: str,
        url: str,
        *,
        context: ssl.SSLContext,
        name: str,
        limits: aiohttp.ClientTimeout,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yields the response to one request, on a connection of its own, to the server of SNI ``name``.

        Redirects are answers like others. Raises aiohttp.ClientError without a proxy's login, TimeoutError, OSError.
        """
        connector = TlsConnector(context)
        with without_login():
            async with (
                aiohttp.ClientSession(connector=connector, timeout=limits) as session,
                session.request(
                    method,
                    url,
                    data=content,
                    headers=headers or ingest_headers(),
                    server_hostname=name,
                    allow_redirects=False,
                    proxy=self.url,
                    proxy_headers=self.headers,
                ) as response,
            ):
                yield response

    def reason(self, error: Exception, server: str) -> str:
        """Returns the meaning of an error of ``exchange`` with ``server``: its certificate's, or the network's."""
        below = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
        return explain_tls_error(below or error, server) or self.problem(error)

    def problem(self, error: Exception) -> str:
        """Returns what kept a connection from the server, without the library's decoration."""
        if self.proxy is None:
            return f"cannot be reached: {network_reason(error)}"
        if isinstance(error, ProxyAnswer):
            return f"cannot be reached: {self.proxy.refusal(error.status, error.phrase)}"
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return f"cannot be reached: {self.proxy.unreachable(network_reason(error))}"
        return f"cannot be reached through the proxy {self.proxy}: {network_reason(error)}"

    def is_final(self, error: Exception) -> bool:
        """True if another try would meet the same refusal of the proxy."""
        return isinstance(error, ProxyAnswer) and error.status in _FINAL
