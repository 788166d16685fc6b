"""HTTP proxies between a participant and its servers: which one a connection takes.

``network.proxy`` names one, or HTTPS_PROXY as for other programs; NO_PROXY holds for both. This host is never reached
through a proxy. Secret: a proxy's password, which is in no text here. Public: the rest. Limits: proxies that are spoken
to in plain HTTP, and basic authentication (RFC 7617). The tunnel is `parties.network.proxy`'s.
"""

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from parties.foundation.errors import ConfigError
from parties.foundation.untrusted_text import printable

VARIABLE = "HTTPS_PROXY"
"""The variable of the environment, or what stands for it among the settings of a desktop."""
EXPECTED = "expected http://host:port"
_MOST_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, and where it is named: ``source``. ``login`` is "user:password", or empty."""

    host: str
    port: int
    source: str
    login: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str, source: str, login: str = "") -> Self:
        """Returns the proxy of a URL; ``login`` goes before one in the URL. Raises ConfigError, without the text."""
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            host, port = parts.hostname, parts.port
            # Names that no resolver takes are a ValueError, too.
            (host or "").encode("idna")
        except ValueError:
            # The error has the text, and a password in it.
            raise ConfigError("", source, f"is no URL of a proxy; {EXPECTED}") from None
        extra = parts.path not in ("", "/") or parts.query or parts.fragment
        if parts.scheme != "http" or not host or not host.isprintable() or port == 0 or extra:
            raise ConfigError("", source, f"is no URL of a proxy; {EXPECTED}")
        if not login and parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return cls(host, port or 80, source, login)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The proxy's URL, without a password."""
        return f"http://{self}"

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of basic authentication. Secret."""
        if not self.login:
            return {}
        # Bytes of the environment that are no UTF-8 go as they came; an error would have the login in it.
        login = base64.b64encode(self.login.encode("utf-8", "surrogateescape")).decode("ascii")
        return {"Proxy-Authorization": f"Basic {login}"}

    def unreachable(self, reason: str) -> str:
        """Returns that the proxy cannot be reached, where it is named, and why."""
        return f"the proxy {self} ({self.source}) cannot be reached: {reason}"

    def refusal(self, status: int, phrase: str) -> str:
        """Returns what the proxy's answer to CONNECT means, and what would help."""
        said = f"the proxy {self} ({self.source}) answers {status} {_shown(phrase)}".rstrip()
        if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            wanted = "another user or password" if self.login else "a user and a password"
            return f"{said}: it wants {wanted} (network.proxy_login, or http://user:password@{self} in HTTPS_PROXY)"
        if status in (HTTPStatus.FORBIDDEN, HTTPStatus.METHOD_NOT_ALLOWED):
            return f"{said}: ask for the server's name and port to be allowed"
        return f"{said}; expected a tunnel to the server"


def proxy_for(host: str, *, named: str = "", login: str = "") -> Proxy | None:
    """Returns the proxy on the way to ``host``, or None.

    ``named`` is ``network.proxy`` of a configuration, or empty: then the environment's is taken. Raises ConfigError.
    """
    if _is_this_host(host) or proxy_bypass(host):
        return None
    if named:
        return Proxy.parse(named, "network.proxy", login)
    found = getproxies().get("https")
    return Proxy.parse(found, VARIABLE, login) if found else None


def read_login(path: Path, source: str) -> str:
    """Returns "user:password", the one line of a file. Raises ConfigError, without what the file has."""
    try:
        line = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError("", source, f"{path} cannot be read: {reason}") from None
    if ":" not in line.strip(":") or not line.isprintable():
        raise ConfigError("", source, f"{path} has no login; expected one line, user:password")
    return line


def _shown(phrase: str) -> str:
    return printable(" ".join(phrase.split()), _MOST_SHOWN)


def _is_this_host(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
