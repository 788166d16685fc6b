"""Checks of a participant's connection to one server, step by step: address, way, certificate, this side's own files.

Each ``Finding`` has a sentence for the participant and, where something is wrong, one for the people of its network.
``check_connection`` sends nothing but handshakes. It looks at the certificate before it verifies it, so that a box that
opens connections to look inside is named by what it presents. Secret: nothing. Public: all findings.
"""

import asyncio
import contextlib
import datetime
import shutil
import socket
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cryptography import x509

from parties.config import Address, CertificateFiles, Config
from parties.config.proxy import Proxy
from parties.crypto.pinned_key import PinnedKey
from parties.foundation.errors import CertificateError, ConfigError, ProxyRefused
from parties.foundation.untrusted_text import certificate_from_der, printable
from parties.identity.tls import client_context, explain_tls_error, is_unknown_sni, load_identity
from parties.network.port_sharing import study_sni_name
from parties.network.proxy import open_stream
from parties.observability.heartbeat import network_reason
from protocols.mesh import key_hash

LIMIT_S = 10.0
"""Longest wait for one step, in seconds."""
_ALERT_S = 1.0
_SOON = datetime.timedelta(days=30)
_LEAST_FREE_BYTES = 200 << 20
_MOST_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Finding:
    """Outcome of one step: ``text`` says what was found, ``advice`` what helps where it is not ``ok``."""

    step: str
    ok: bool
    text: str
    advice: str = ""

    def to_dict(self) -> dict[str, object]:
        """JSON form."""
        return asdict(self)


def check_files(files: CertificateFiles) -> Finding:
    """Checks this side's certificate and key. Raises CertificateError."""
    identity = load_identity(files)
    left = identity.expires - datetime.datetime.now(datetime.UTC)
    soon = f": {left.days} days are left; ask for a new one" if left < _SOON else ""
    return Finding(
        "certificate", True, f"of {identity.name}, valid until {identity.expires:%Y-%m-%d}{soon}"
    )


def check_disk(folder: Path) -> Finding:
    """Checks the free space of a folder."""
    free = shutil.disk_usage(folder).free
    text = f"{free / 1e9:.1f} GB are free in {folder}"
    wanted = _LEAST_FREE_BYTES / 1e6
    return Finding(
        "disk", free > _LEAST_FREE_BYTES, text, f"Make room: {wanted:.0f} MB are wanted."
    )


async def check_connection(
    config: Config,
    address: Address,
    pinned: PinnedKey,
    *,
    files: CertificateFiles | None,
    limit_s: float = LIMIT_S,
) -> list[Finding]:
    """Returns the findings of all steps up to the first that fails.

    Without ``files`` the last step, the server's opinion of this side, is left out.
    """
    try:
        proxy = config.proxy_to(address.host)
    except ConfigError as error:
        return [Finding("proxy", False, str(error), "Correct it, or leave it out.")]
    way = _Way(config, address, proxy, limit_s)
    found = [] if proxy is not None else [await way.name()]
    if all(finding.ok for finding in found):
        found.append(await way.reach())
    if all(finding.ok for finding in found):
        found.append(await way.presented(pinned))
    if files is not None and all(finding.ok for finding in found):
        found += await way.admitted(pinned, files)
    return found


@dataclass(frozen=True, slots=True)
class _Way:
    config: Config
    address: Address
    proxy: Proxy | None
    limit_s: float

    async def name(self) -> Finding:
        """The address's name has an IP address."""
        host, loop = self.address.host, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.limit_s):
                found = await loop.getaddrinfo(host, self.address.port, type=socket.SOCK_STREAM)
        except (TimeoutError, OSError, UnicodeError) as error:
            reason = "no answer" if isinstance(error, TimeoutError) else network_reason(error)
            advice = (
                f"Ask the people of your network why the name {host} has no address here. If programs go out through a "
                "proxy, name it in HTTPS_PROXY."
            )
            return Finding("name", False, f"{host} has no address: {reason}", advice)
        return Finding("name", True, ", ".join(dict.fromkeys(str(each[4][0]) for each in found)))

    async def reach(self) -> Finding:
        """A connection gets to the server, directly or through the proxy."""
        begun = time.monotonic()
        try:
            async with self._stream(None):
                took = 1000 * (time.monotonic() - begun)
        except ProxyRefused as error:
            return Finding("connection", False, str(error), self._wanted())
        except (TimeoutError, OSError) as error:
            silent = f"no answer within {self.limit_s:g} s: something on the way drops what is sent"
            reason = silent if isinstance(error, TimeoutError) else network_reason(error)
            return Finding("connection", False, f"{self.address}: {reason}", self._wanted())
        proxy = self.proxy
        way = "directly" if proxy is None else f"through the proxy {proxy} ({proxy.source})"
        return Finding("connection", True, f"{way}, in {took:.0f} ms")

    def _wanted(self) -> str:
        if self.proxy is not None:
            return f"Ask the people of your network to let the proxy CONNECT to {self.address}."
        return (
            f"Ask the people of your network to let this machine connect to {self.address} (TCP). If programs go out "
            "through a proxy, name it in HTTPS_PROXY. If others reach the server, nothing is wrong there."
        )

    async def presented(self, pinned: PinnedKey) -> Finding:
        """The certificate at the other end has the pinned key."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            certificate = await self._certificate(context)
        except (TimeoutError, OSError, ValueError) as error:
            if is_unknown_sni(error):
                return Finding("study", False, explain_tls_error(error, pinned.name) or "", _LATER)
            reason = self._tls_reason(error, pinned)
            return Finding("TLS", False, f"no handshake: {reason}", self._inspected())
        if key_hash(certificate) == pinned.key:
            return Finding("TLS", True, f"the pinned key of {pinned.name}")
        text = (
            f"another key than {pinned.name}'s answers, with a certificate for {_named(certificate.subject)}, issued "
            f"by {_named(certificate.issuer)}"
        )
        return Finding("TLS", False, text, self._inspected())

    def _tls_reason(self, error: Exception, pinned: PinnedKey) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self.limit_s:g} s"
        return explain_tls_error(error, pinned.name) or network_reason(error)

    def _inspected(self) -> str:
        return (
            f"Something between here and {self.address} opens connections to look inside, or another program answers "
            "there. Ask the people of your network for an exception from TLS inspection for this name and port; the "
            "server is known by its own key, and nothing is sent to another."
        )

    async def admitted(self, pinned: PinnedKey, files: CertificateFiles) -> list[Finding]:
        """The server does not turn this side's certificate away; nothing is found where it says nothing."""
        try:
            context = client_context(files, pinned)
        except CertificateError:
            # ``check_files`` says so.
            return []
        try:
            async with self._stream(context) as (reader, _):
                # A server of TLS 1.3 refuses a certificate after the handshake, and otherwise waits for a request.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ALERT_S):
                        await reader.read(1)
        except (TimeoutError, OSError) as error:
            if is_unknown_sni(error):
                return [
                    Finding("study", False, explain_tls_error(error, pinned.name) or "", _LATER)
                ]
            reason = self._tls_reason(error, pinned)
            return [
                Finding("TLS", False, reason, "Ask the coordinator which certificate is yours.")
            ]
        return []

    async def _certificate(self, context: ssl.SSLContext) -> x509.Certificate:
        async with self._stream(context) as (_, writer):
            found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return certificate_from_der(found or b"")

    @contextlib.asynccontextmanager
    async def _stream(
        self, context: ssl.SSLContext | None
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Opens a connection and closes it; with a ``context`` after the handshake for this study."""
        name = None if context is None else study_sni_name(self.config.digest())
        host, port = self.address.host, self.address.port
        async with asyncio.timeout(self.limit_s):
            reader, writer = await open_stream(self.proxy, host, port, context=context, name=name)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


_LATER = "Try again later, or compare the study's words with an operator."


def _named(name: x509.Name) -> str:
    return repr(printable(name.rfc4514_string() or "nobody", _MOST_SHOWN))
