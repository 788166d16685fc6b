"""The admin API on the network: a port of its own, TLS 1.3, and operators' certificates, which are listed one by one.

Provides ``listening``, for a server whose settings have [admin], and ``make_operator``, which makes the keys. They are
ECDSA (P-256), which browsers take, and have nothing to do with those of studies: whoever may look at a server is not
thereby anybody in a study. Secret: private keys. Source: RFC 8446; RFC 5280 for what certificates say.
"""

import contextlib
import datetime
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from parties.config import Address
from parties.errors import CertificateError, ConfigError
from parties.files import disk_errors, write_new, write_whole
from parties.operate.serving import Listening
from parties.operate.settings import FILE, AdminSection
from parties.rejections import Rejected, Rejection
from parties.tls import alerting, check_subject, handshake_text, load_key

_BACKDATE = datetime.timedelta(hours=1)


def listening(folder: Path, section: AdminSection, rejected: Rejected) -> list[Listening]:
    """The HTTPS socket that [admin] asks for, bound; none where it asks for none.

    Raises ConfigError where this host cannot listen there, CertificateError where the files cannot be used.
    """
    if section.address is None:
        return []
    address = Address.parse(section.address)

    def on_failure(error: ssl.SSLError) -> None:
        rejected(Rejection.TLS, f"admin: {handshake_text(error)}")

    context = _context(folder, section, on_failure)
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        raw = socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        source = str(folder / FILE)
        text = f"is {address}, where this host cannot listen: {error.strerror or error}; expected a free port"
        raise ConfigError(source, "admin.address", text) from error
    return [Listening(raw, context)]


def _context(
    folder: Path, section: AdminSection, on_failure: Callable[[ssl.SSLError], object]
) -> ssl.SSLContext:
    cert, key, ca = (folder / name for name in (section.cert, section.key, section.ca))
    # Refuses what others can read.
    load_key(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    # A certificate that is in the file itself needs no issuer there.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    with _usable(str(ca)):
        context.load_verify_locations(cafile=ca)
    with _usable(f"{cert} with {key}"):
        # The empty password makes an encrypted key an error instead of a question on the terminal.
        context.load_cert_chain(cert, key, password="")
    return alerting(context, on_failure)


@contextlib.contextmanager
def _usable(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ssl.SSLError) as error:
        hint = "expected what `syncret certs operator` makes"
        raise CertificateError(f"{what}: cannot be used: {error}; {hint}") from error


@dataclass(frozen=True, slots=True)
class Operator:
    """What was made for an operator: its fingerprint and its files, of which the bundle (PKCS #12) has a password."""

    fingerprint: str
    cert: Path
    key: Path
    bundle: Path


def make_operator(
    folder: Path, name: str, *, hosts: Sequence[str], days: float, password: str
) -> Operator:
    """Keys for operator ``name`` below ``folder``, and the server's own if there are none, for its ``hosts``.

    Raises CertificateError for a name that no certificate can have, StoreError where there is such an operator already.
    """
    check_subject(name)
    section, below = AdminSection(), folder / "admin"
    with disk_errors(below, "made"):
        below.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (folder / section.cert).exists():
        own = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate("syncret admin", own, days, hosts=hosts)
        write_new(folder / section.key, _private_pem(own), secret=True)
        write_whole(folder / section.cert, _pem(certificate))
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(name, key, days)
    made = Operator(
        certificate.fingerprint(hashes.SHA256()).hex(),
        *(below / f"{name}.{kind}" for kind in ("crt", "key", "p12")),
    )
    write_new(made.key, _private_pem(key), secret=True)
    write_new(made.bundle, _bundle(name, key, certificate, password), secret=True)
    write_new(made.cert, _pem(certificate))
    known, ca = b"", folder / section.ca
    with disk_errors(ca, "read"):
        known = ca.read_bytes() if ca.exists() else b""
    write_whole(ca, known + _pem(certificate), durable=True)
    return made


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, days: float, hosts: Sequence[str] = ()
) -> x509.Certificate:
    """Self-signed: the server's for its ``hosts``, or (none) an operator's."""
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
