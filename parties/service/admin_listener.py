"""Listeners of the admin API: its thread, the Unix socket in a server's folder, and the TLS port.

``admin_thread`` runs the API on a thread and an event loop of its own, so that it answers while the process computes,
and can report a computation that hangs.

``listen_unix`` and ``connect_unix`` are for the Unix socket (``SOCKET_NAME``). Every user with access to the folder may
send requests. The socket has mode 0600 before any connection is possible. A path of any length works: one that is too
long for a socket address is reached through the folder's descriptor, on systems with /proc. Source: unix(7).

``admin_listeners`` opens the HTTPS port of a server whose settings have [admin]: TLS 1.3, with an allowlist of
operators' certificates. ``make_operator`` makes their keys. The keys are ECDSA (P-256), which browsers accept, and are
separate from the keys of studies: access to the admin API gives no role in a study. Source: RFC 8446; RFC 5280 for the
certificates.

Secret: private keys. Everything else is public.
"""

import asyncio
import contextlib
import datetime
import errno
import ipaddress
import logging
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from parties.config import Address
from parties.foundation.errors import (
    CertificateError,
    CertificateExpired,
    ConfigError,
    StoreError,
)
from parties.identity.tls import (
    check_subject,
    handshake_text,
    load_certificate,
    load_key,
    with_failure_alerts,
)
from parties.network.remote_address import listen_at, remote_address
from parties.observability.events import OnRejection, Rejection
from parties.service.settings import FILE, AdminSection
from parties.storage.files import disk_errors, write_atomic, write_new

_START_S = 10.0
_END_S = 5.0
_LINGER_S = 1.0
"""Time that requests under way have to end, in seconds."""
_IDLE_S = 10.0
"""Time that a connection may be open without a request, in seconds."""
_MAX_CONNECTIONS = 200
"""Maximum number of connections at the HTTPS port: with sign-in, everybody gets through TLS."""
HANDSHAKE_S = 10.0
_REQUEST_LOGGER = logging.getLogger("syncret.admin.requests")
"""Logger of aiohttp, disabled: input that is not HTTP gets 400 without a traceback; the application logs defects."""
_REQUEST_LOGGER.disabled = True


@dataclass(frozen=True, slots=True)
class AdminListener:
    """A bound socket that accepts connections, over TLS if there is a ``context``."""

    socket: socket.socket
    context: ssl.SSLContext | None = None


@contextlib.contextmanager
def admin_thread(
    application: Callable[[], web.Application], listening: Sequence[AdminListener]
) -> Iterator[None]:
    """Answers at all sockets while the block runs, then closes them; ``application`` is called on the API's thread."""
    thread = _AdminThread(application, listening)
    thread.start()
    try:
        thread.ready()
        yield
    finally:
        thread.end()
        for one in listening:
            one.socket.close()


def admin_runner(application: web.Application) -> web.AppRunner:
    """Returns the runner of an admin API, which ends connections without a request; it is to be set up."""
    return web.AppRunner(
        application,
        access_log=None,
        logger=_REQUEST_LOGGER,
        shutdown_timeout=_LINGER_S,
        keepalive_timeout=_IDLE_S,
    )


async def start_server(runner: web.AppRunner, one: AdminListener) -> asyncio.Server:
    """Starts a server as aiohttp's SockSite does, with deadlines of its own for the begin and the end of TLS."""
    if runner.server is None:
        raise RuntimeError("the HTTP server was not set up")
    return await asyncio.get_running_loop().create_server(
        runner.server,
        sock=one.socket,
        ssl=one.context,
        ssl_handshake_timeout=None if one.context is None else HANDSHAKE_S,
        ssl_shutdown_timeout=None if one.context is None else _END_S,
    )


class _AdminThread(threading.Thread):
    def __init__(
        self, application: Callable[[], web.Application], listening: Sequence[AdminListener]
    ) -> None:
        super().__init__(name="admin", daemon=True)
        self._application = application
        self._listening = listening
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001  # Raised again by ``ready``.
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        runner = admin_runner(self._application())
        await runner.setup()
        servers: list[asyncio.Server] = []
        try:
            for one in self._listening:
                servers.append(await start_server(runner, one))
            self._ready.set()
            await self._over.wait()
            await self._stop_accepting()
        finally:
            for server in servers:
                server.close()
            await runner.cleanup()

    async def _stop_accepting(self) -> None:
        """Stops accepting before the sockets are closed: asyncio would lose a connection that it is just accepting."""
        loop = asyncio.get_running_loop()
        for one in self._listening:
            loop.remove_reader(one.socket.fileno())
        for _ in range(3):
            await asyncio.sleep(0)

    def ready(self) -> None:
        """Waits until the API answers. Raises the error that prevents the start; TimeoutError after ``_START_S``."""
        if not self._ready.wait(_START_S):
            raise TimeoutError(f"the admin API did not start within {_START_S:g} s")
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Closes all connections. Requests that do not end in time end with the process."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop has ended already.
                self._loop.call_soon_threadsafe(self._over.set)
        self.join(_END_S)


SOCKET_NAME = "admin.sock"
_MAX_PATH_BYTES = 100
"""Maximum length of a socket's path, in bytes; the limit is 107 on Linux and 103 elsewhere."""
_BACKLOG = 16


@contextlib.contextmanager
def short_socket_path(path: Path) -> Iterator[str]:
    """Yields a name of ``path`` that fits a socket address while the block runs. Raises StoreError if there is none."""
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{folder}/{path.name}"
        if not Path(short).parent.exists():
            text = (
                f"is too long for a socket; expected at most {_MAX_PATH_BYTES} bytes on this system"
            )
            raise StoreError(path, text)
        yield short
    finally:
        os.close(folder)


def connect_unix(path: Path, timeout_s: float) -> socket.socket:
    """Returns a connection to the process that listens at ``path``. Raises OSError if none does."""
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        raw.settimeout(timeout_s)
        with short_socket_path(path) as name:
            raw.connect(name)
    except BaseException:
        raw.close()
        raise
    return raw


def listen_unix(path: Path) -> socket.socket:
    """Returns a listening socket at ``path``; replaces a socket file that a killed process left.

    Raises StoreError: another process listens there, or the folder is not writable.
    """
    with disk_errors(path):
        if path.is_socket():
            if _is_answered(path):
                text = "is in use by another process; expected a folder of its own"
                raise StoreError(path, text) from OSError(
                    errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)
                )
            path.unlink()
        raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_socket_path(path) as name:
                raw.bind(name)
            # No connection is possible before `listen`.
            path.chmod(0o600)
            raw.listen(_BACKLOG)
        except BaseException:
            raw.close()
            raise
    return raw


def _is_answered(path: Path) -> bool:
    try:
        connect_unix(path, 1.0).close()
    except OSError as error:
        return error.errno not in (errno.ECONNREFUSED, errno.ENOENT)
    return True


_BACKDATE = datetime.timedelta(hours=1)


def admin_listeners(
    folder: Path,
    section: AdminSection,
    rejected: OnRejection,
    *,
    bound: socket.socket | None = None,
) -> list[AdminListener]:
    """Binds the HTTPS socket that [admin] configures; returns an empty list if it configures none.

    ``bound`` is a socket that listens at that address already: it is shared. Raises ConfigError if this host cannot
    listen there, CertificateError if the files cannot be used.
    """
    if section.address is None:
        return []
    address = Address.parse(section.address)

    def on_failure(error: ssl.SSLError) -> None:
        remote = remote_address()
        rejected(Rejection.TLS, f"admin: {handshake_text(error, remote)}", remote=remote)

    context = _context(folder, section, on_failure)
    try:
        raw = listen_at(address, most=_MAX_CONNECTIONS) if bound is None else bound.dup()
    except OSError as error:
        source = str(folder / FILE)
        text = f"is {address}, where this host cannot listen: {error.strerror or error}; expected a free port"
        raise ConfigError(source, "admin.address", text) from error
    return [AdminListener(raw, context)]


def _context(
    folder: Path, section: AdminSection, on_failure: Callable[[ssl.SSLError], object]
) -> ssl.SSLContext:
    cert, key, ca = (folder / name for name in (section.cert, section.key, section.ca))
    end = load_certificate(cert, "certificate").not_valid_after_utc
    if end < datetime.datetime.now(datetime.UTC):
        raise CertificateExpired(
            f"{cert}: ended on {end:%Y-%m-%d %H:%M} UTC; expected a valid one: syncret certs renew admin --dir "
            f"{folder} (is this machine's clock right?)"
        )
    # Refuses a key file that other users can read.
    load_key(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Where people may sign in, a browser needs no certificate: the application asks it for a session.
    context.verify_mode = ssl.CERT_REQUIRED if section.oidc is None else ssl.CERT_OPTIONAL
    # A certificate that is in the file itself needs no issuer there.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    with _certificate_errors(str(ca)):
        context.load_verify_locations(cafile=ca)
    with _certificate_errors(f"{cert} with {key}"):
        # The empty password makes an encrypted key an error instead of a question on the terminal.
        context.load_cert_chain(cert, key, password="")
    return with_failure_alerts(context, on_failure)


@contextlib.contextmanager
def _certificate_errors(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ssl.SSLError) as error:
        hint = "expected what `syncret certs operator` makes"
        raise CertificateError(f"{what}: cannot be used: {error}; {hint}") from error


@dataclass(frozen=True, slots=True)
class OperatorFiles:
    """Files of a new operator, and the certificate's fingerprint; the bundle (PKCS #12) has a password."""

    fingerprint: str
    cert: Path
    key: Path
    bundle: Path


def make_operator(
    folder: Path, name: str, *, hosts: Sequence[str], days: float, password: str
) -> OperatorFiles:
    """Makes the keys of operator ``name`` below ``folder``, and the server's own for its ``hosts`` if there are none.

    Raises CertificateError for a name that no certificate can have, or that has one already; StoreError.
    """
    _check_operator(name)
    section, below = AdminSection(), folder / "admin"
    with disk_errors(below, "made"):
        below.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (path := below / f"{name}.crt").exists():
        end = load_certificate(path, "certificate").not_valid_after_utc
        raise CertificateError(
            f"{name} has a certificate already: {path}, until {end:%Y-%m-%d}; expected another name, or "
            f"`syncret certs renew operator {name}`, which makes a new one"
        )
    if not (folder / section.cert).exists():
        own = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate("syncret admin", own, days, hosts=hosts)
        write_new(folder / section.key, _private_pem(own), secret=True)
        write_atomic(folder / section.cert, _pem(certificate))
    return _write_operator(folder, name, _listed(folder), days=days, password=password)


def renew_operator(folder: Path, name: str, *, days: float, password: str) -> OperatorFiles:
    """Makes a new key and certificate of operator ``name``; those before are let in no more after a reload.

    Their fingerprint in the settings is replaced, if it is there. Raises CertificateError if there is no such
    operator; StoreError.
    """
    _check_operator(name)
    before = folder / "admin" / f"{name}.crt"
    if not before.exists():
        raise CertificateError(
            f"{before}: {name} has no certificate yet; expected `syncret certs operator {name}`"
        )
    former = load_certificate(before, "certificate")
    kept = [certificate for certificate in _listed(folder) if certificate != former]
    made = _write_operator(folder, name, kept, days=days, password=password)
    _replace_fingerprint(folder, former.fingerprint(hashes.SHA256()).hex(), made.fingerprint)
    return made


def _check_operator(name: str) -> None:
    """Raises CertificateError for a name that no operator can have; the API's own files lie beside theirs."""
    check_subject(name)
    section = AdminSection()
    own = {f"admin/{name}.{kind}" for kind in ("crt", "key", "p12")}
    if own & {section.cert, section.key, section.ca}:
        raise CertificateError(f"{name} is the name of the API's own files; expected another one")


def _listed(folder: Path) -> list[x509.Certificate]:
    """Returns the operators' certificates that are listed. Raises CertificateError, StoreError."""
    path = folder / AdminSection().ca
    with disk_errors(path, "read"):
        data = path.read_bytes() if path.exists() else b""
    try:
        return x509.load_pem_x509_certificates(data) if data else []
    except ValueError as error:
        raise CertificateError(f"{path}: is not a file of certificates; expected PEM") from error


def _replace_fingerprint(folder: Path, former: str, fingerprint: str) -> None:
    """Replaces a fingerprint in the settings, however it is spelt there. Raises StoreError."""
    path = folder / FILE
    if not path.exists():
        return
    with disk_errors(path, "read"):
        text = path.read_text(encoding="utf-8")
    spelt = re.compile(
        ":?".join(former[i : i + 2] for i in range(0, len(former), 2)), re.IGNORECASE
    )
    if spelt.search(text):
        write_atomic(path, spelt.sub(fingerprint, text), durable=True)


def renew_admin(folder: Path, *, days: float) -> x509.Certificate:
    """Makes a new certificate of the admin API, of the same key and hosts. Raises CertificateError, StoreError."""
    section = AdminSection()
    former, key = (
        load_certificate(folder / section.cert, "certificate"),
        load_key(folder / section.key),
    )
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{folder / section.key}: not a key of `syncret certs operator`")
    try:
        names = former.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound as error:
        raise CertificateError(f"{folder / section.cert}: names no host; expected ours") from error
    hosts = [str(each.value) for each in names]
    certificate = _certificate("syncret admin", key, days, hosts=hosts)
    write_atomic(folder / section.cert, _pem(certificate), durable=True)
    return certificate


def _write_operator(
    folder: Path, name: str, others: Sequence[x509.Certificate], *, days: float, password: str
) -> OperatorFiles:
    """Writes new files of an operator, in place of those that are there, and lists its certificate after ``others``."""
    section, below = AdminSection(), folder / "admin"
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(name, key, days)
    made = OperatorFiles(
        certificate.fingerprint(hashes.SHA256()).hex(),
        *(below / f"{name}.{kind}" for kind in ("crt", "key", "p12")),
    )
    write_atomic(made.key, _private_pem(key), secret=True)
    write_atomic(made.bundle, _bundle(name, key, certificate, password), secret=True)
    write_atomic(made.cert, _pem(certificate))
    write_atomic(folder / section.ca, b"".join(map(_pem, [*others, certificate])), durable=True)
    return made


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, days: float, hosts: Sequence[str] = ()
) -> x509.Certificate:
    """Returns a self-signed certificate: the server's for its ``hosts``, or, without hosts, an operator's."""
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    use = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _BACKDATE)
    builder = builder.not_valid_after(now + datetime.timedelta(days=days))
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _bundle(
    name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, password: str
) -> bytes:
    encryption = serialization.BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, None, encryption)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
