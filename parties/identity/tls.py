"""Mutual TLS 1.3 between servers and data owners, and the authority that admits them.

An owner's identity is the common name of a certificate signed by the run's own authority; host names and addresses
prove nothing. A server's identity is its name and its public key, whose hash is pinned (``PinnedKey``), so that a
holder of the authority cannot make another server. The check is part of the handshake: a context made for one server
fails the handshake with any other, so that nothing is sent to the wrong one. Data owners' certificates are for client
use only and cannot pass as a server's.

Secret: private keys; they are written with mode 0600 and never logged. Public: certificates and names. Source: RFC 8446
through OpenSSL (`ssl`), X.509 through `cryptography`. Known limits: no revocation lists; an authority keeps its key in
a file.
"""

import contextlib
import datetime
import os
import secrets
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, cast

from cryptography import x509
from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from parties.config import NAME_PATTERN, CertificateFiles
from parties.crypto.hpke import SealKey, SealTo, read_private
from parties.crypto.pinned_key import PinnedKey
from parties.crypto.pkcs11_key import TokenKey, uri_of
from parties.foundation.errors import (
    CertificateError,
    CertificateExpired,
    CertificateNotYetValid,
    OutsideKeyError,
    StoreError,
)
from parties.foundation.untrusted_text import certificate_from_der, certificate_from_pem
from parties.storage.files import disk_errors, write_atomic, write_new
from protocols.mesh import key_hash

CA_NAME = "Syncret authority"
AUTHORITY = "ca"
"""Name of an authority's files; no other certificate may have it."""
NAME_PLACEHOLDER = "{name}"
"""Placeholder of a name in the paths of [tls]."""
_BACKDATE = datetime.timedelta(minutes=5)
"""Time from a certificate's start of validity to its issue, since the hosts' clocks differ."""

_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name."""
_PINNED = _NO_CHECK_TIME | ssl.VERIFY_X509_PARTIAL_CHAIN
"""Flags for certificates that are in the file of trusted ones themselves, where two of one name may be."""


@dataclass(frozen=True, slots=True)
class LocalIdentity:
    """A usable certificate of this side: its common ``name`` and its expiry ``expires`` (UTC)."""

    name: str
    expires: datetime.datetime


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(
            f"{path}: {what} cannot be read: {error.strerror or error}; expected a PEM file"
        ) from error


def load_certificate(path: Path, what: str) -> x509.Certificate:
    """Returns the certificate in a PEM file; errors call it ``what``. Raises CertificateError."""
    try:
        return certificate_from_pem(_read(path, what))
    except ValueError as error:
        raise CertificateError(
            f"{path}: {what} is not an X.509 certificate; expected a PEM file"
        ) from error


def certificate_bytes(files: CertificateFiles) -> bytes:
    """Returns this side's certificate (DER). Raises CertificateError."""
    return load_certificate(files.cert, "certificate").public_bytes(serialization.Encoding.DER)


def authority_bytes(files: CertificateFiles) -> bytes:
    """Returns the certificate of the run's authority (DER). Raises CertificateError."""
    certificate = load_certificate(files.ca, "certificate authority")
    return certificate.public_bytes(serialization.Encoding.DER)


def load_key(path: Path) -> ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey:
    """Returns the private key in a PEM file.

    Raises CertificateError; OutsideKeyError where the path is a link to a file that another program keeps.
    """
    try:
        data = read_private(path, "private key", "a PEM file")
        return parse_key(data, path, in_token=not is_outside(path))
    except OutsideKeyError:
        raise
    except CertificateError as error:
        raise _of_outside(path, error) from error


def is_outside(path: Path) -> bool:
    """True if a private key's path is a link to a file that another program keeps (`parties.identity.held_key`)."""
    return path.is_symlink()


def link_target(path: Path) -> str:
    """Returns the absolute path of the file that a key's link leads to. Raises OSError."""
    return str(path.parent.absolute() / os.readlink(path))


def _of_outside(path: Path, error: CertificateError) -> CertificateError:
    """Returns the error, or for a key outside what its operator can cure."""
    if not is_outside(path):
        return error
    return OutsideKeyError(f"{error} ({path} is a link to {link_target(path)})")


def parse_key(
    data: bytes, path: Path, *, in_token: bool = True
) -> ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey:
    """Returns the private key in a PEM text; errors call it ``path``.

    With ``in_token`` that may be the URI of a key in a PKCS#11 token. Raises CertificateError.
    """
    try:
        uri = uri_of(data)
    except ValueError as error:
        raise CertificateError(f"{path}: {error}; expected the URI of a PKCS#11 key") from error
    if uri is not None and not in_token:
        raise CertificateError(
            f"{path}: has the URI of a PKCS#11 key, which another program may not give; expected a private key"
        )
    if uri is not None:
        return TokenKey(uri, path)
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError) as error:
        raise CertificateError(
            f"{path}: not a private key without passphrase; expected a PEM file"
        ) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey):
        raise CertificateError(
            f"{path}: key of another kind; expected Ed25519 or an elliptic curve"
        )
    return key


def common_name(certificate: x509.Certificate, path: Path | str) -> str:
    """Returns the one common name of a certificate; errors call it ``path``. Raises CertificateError."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise CertificateError(
            f"{path}: the certificate has {len(names)} common names; expected exactly one"
        )
    return str(names[0].value)


def pinned_key_in(path: Path) -> PinnedKey:
    """Returns the name and key hash of the server in a PEM file's certificate. Raises CertificateError."""
    certificate = load_certificate(path, "certificate")
    return PinnedKey(common_name(certificate, path), key_hash(certificate))


def public_keys(certificate: Path, seal: Path) -> dict[str, str]:
    """Returns a server's ``key`` and ``seal`` as in [[party]], from its files. Raises CertificateError."""
    return {"key": pinned_key_in(certificate).key, "seal": str(SealKey.load(seal).public)}


def load_identity(files: CertificateFiles) -> LocalIdentity:
    """Verifies this side's own ``files`` before any connection.

    Raises CertificateError, naming the file, if it is missing or unreadable, not yet valid or expired, a key of another
    certificate, or a certificate of another authority.
    """
    authority = load_certificate(files.ca, "certificate authority")
    certificate = load_certificate(files.cert, "certificate")
    key = load_key(files.key)
    name = common_name(certificate, files.cert)
    for path, item in ((files.cert, certificate), (files.ca, authority)):
        if item.not_valid_after_utc < _now():
            raise CertificateExpired(
                f"{path}: expired on {item.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; expected a valid one (is this "
                "machine's clock right?)"
            )
        if item.not_valid_before_utc > _now():
            raise CertificateNotYetValid(
                f"{path}: valid only from {item.not_valid_before_utc:%Y-%m-%d %H:%M} UTC; "
                "expected a valid one (is this machine's clock right?)"
            )
    if key.public_key() != certificate.public_key():
        other = f"{files.key}: not the key of {files.cert}; expected its private key"
        raise _of_outside(files.key, CertificateError(other))
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise CertificateError(
            f"{files.cert}: not issued by {files.ca}; expected a certificate of the run's authority"
        ) from error
    return LocalIdentity(name, certificate.not_valid_after_utc)


def check_pinned_identity(
    files: CertificateFiles, pinned: PinnedKey, role: str
) -> CertificateFiles:
    """Returns ``files``, verified as in ``load_identity`` and against ``pinned``; ``role`` is for error texts.

    Raises CertificateError.
    """
    held = load_identity(files).name
    if held != pinned.name:
        raise CertificateError(
            f"{files.cert}: is for {held!r}; expected the certificate of {role}, {pinned.name!r}"
        )
    key = pinned_key_in(files.cert).key
    if key != pinned.key:
        raise CertificateError(
            f"{files.cert}: its key has the SHA-256 {key}; the configuration expects {pinned.key} of {role}"
        )
    return files


def signer(files: CertificateFiles) -> Callable[[bytes], bytes]:
    """Returns a function that signs with the certificate's key: Ed25519, or ECDSA with SHA-256 for an elliptic curve.

    Raises CertificateError if the key cannot be used.
    """
    key = load_key(files.key)
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign
    return lambda message: key.sign(message, ec.ECDSA(hashes.SHA256()))


def peer_name(connection: ssl.SSLObject | ssl.SSLSocket) -> str:
    """Returns the verified peer's common name.

    Raises CertificateError without a certificate or with another number of names.
    """
    certificate = connection.getpeercert()
    if not certificate:
        raise CertificateError(
            "the peer presented no certificate; expected one of the run's authority"
        )
    subject = cast("tuple[tuple[tuple[str, str], ...], ...]", certificate.get("subject", ()))
    names = [value for attribute in subject for key, value in attribute if key == "commonName"]
    if len(names) != 1:
        raise CertificateError(f"the peer has {len(names)} common names; expected exactly one")
    return str(names[0])


def peer_subject(connection: ssl.SSLObject | ssl.SSLSocket) -> str:
    """Returns the verified peer's whole subject as in RFC 4514. Raises CertificateError if there is none."""
    certificate = connection.getpeercert(binary_form=True)
    if not certificate:
        raise CertificateError("the peer presented no certificate")
    return certificate_from_der(certificate).subject.rfc4514_string()


def peer_key(connection: ssl.SSLObject | ssl.SSLSocket) -> str:
    """Returns the ``key_hash`` of the verified peer's certificate. Raises CertificateError if there is none."""
    certificate = connection.getpeercert(binary_form=True)
    if not certificate:
        raise CertificateError("the peer presented no certificate")
    return key_hash(certificate_from_der(certificate))


def _context(files: CertificateFiles, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        # Connections are never resumed, and two tickets are as large as the rest of a handshake.
        context.num_tickets = 0
    try:
        context.load_verify_locations(files.ca)
        context.load_cert_chain(files.cert, files.key)
    except (ssl.SSLError, OSError) as error:
        if uri_of(_read(files.key, "private key")) is not None:
            raise OutsideKeyError(
                f"{files.key}: OpenSSL does not reach the PKCS#11 token ({error}); expected its pkcs11-provider, which "
                "OPENSSL_CONF names"
            ) from error
        raise _of_outside(
            files.key, CertificateError(f"{files.cert}: OpenSSL does not take it: {error}")
        ) from error
    return context


class _AlertingObject(ssl.SSLObject):
    """A server's TLS object that sends its alert before it fails.

    asyncio drops OpenSSL's pending output when a handshake fails: the client would see a reset connection instead of
    the reason. The object delays the failure once, as a request for more input, which makes asyncio send the alert; the
    client's next bytes, its end, or the handshake timeout then close the connection.
    """

    _failure: ssl.SSLError | None = None

    def failed(self, error: ssl.SSLError) -> None:
        """Handles a failed handshake."""

    def do_handshake(self) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._failure = error
            self.failed(error)
            raise ssl.SSLWantReadError("the alert is on its way") from error


def server_context(
    files: CertificateFiles, on_failure: Callable[[ssl.SSLError], object] = lambda error: None
) -> ssl.SSLContext:
    """Context for the accepting side of asyncio: TLS 1.3 only, with a required client certificate of the authority.

    The caller verifies the peer's identity by ``peer_name``; ``on_failure`` receives the errors of failed handshakes.
    Raises CertificateError.
    """
    load_identity(files)
    return with_failure_alerts(_context(files, ssl.PROTOCOL_TLS_SERVER), on_failure)


def with_failure_alerts(
    context: ssl.SSLContext, on_failure: Callable[[ssl.SSLError], object]
) -> ssl.SSLContext:
    """Returns the accepting context with alerts sent on failure and ``on_failure`` called for failed handshakes."""

    class Watched(_AlertingObject):
        def failed(self, error: ssl.SSLError) -> None:
            on_failure(error)

    context.sslobject_class = Watched
    return context


def handshake_text(error: ssl.SSLError, remote: str = "") -> str:
    """Returns the cause of an unknown peer's failed handshake, in OpenSSL's words, with its address if it is known."""
    reason = getattr(error, "reason", None)
    words = getattr(error, "verify_message", None) or reason or type(error).__name__
    peer = f" with {remote}" if remote else ""
    return f"a TLS handshake{peer} failed: {str(words).replace('_', ' ').lower()}"


def pinned_server_context(files: CertificateFiles) -> ssl.SSLContext:
    """Context as ``server_context``, among peers whose own certificates are in ``files.ca``.

    A certificate is valid whatever this host's clock shows: the peers tell one another about clock errors. The caller
    verifies the peer by ``peer_key``. Raises CertificateError.
    """
    server = _context(files, ssl.PROTOCOL_TLS_SERVER)
    server.sslobject_class = _AlertingObject
    server.verify_flags |= _PINNED
    return server


def pinned_client_context(
    files: CertificateFiles,
    expected: Sequence[PinnedKey],
    on_peer: Callable[[bytes], object] = lambda certificate: None,
) -> ssl.SSLContext:
    """Context of the connecting side for ``pinned_server_context``; the peer has to be one of those ``expected``.

    ``on_peer`` receives the verified certificate (DER) of each handshake. Raises CertificateError.
    """
    context = _client_context(files, expected, on_peer)
    context.verify_flags |= _PINNED
    return context


def client_context(files: CertificateFiles, expected: PinnedKey) -> ssl.SSLContext:
    """Context for the connecting side: TLS 1.3 only; the handshake fails unless the peer is ``expected``.

    Works with asyncio and with blocking sockets. Raises CertificateError.
    """
    return client_contexts(files, [expected])[0]


def client_contexts(files: CertificateFiles, expected: Sequence[PinnedKey]) -> list[ssl.SSLContext]:
    """Contexts as ``client_context``, one for each server; ``files`` are verified once. Raises CertificateError."""
    load_identity(files)
    return [_client_context(files, [server]) for server in expected]


def _client_context(
    files: CertificateFiles,
    expected: Sequence[PinnedKey],
    on_peer: Callable[[bytes], object] = lambda certificate: None,
) -> ssl.SSLContext:
    def check(connection: ssl.SSLObject | ssl.SSLSocket) -> None:
        try:
            name, key = peer_name(connection), peer_key(connection)
        except CertificateError as error:
            raise ssl.SSLCertVerificationError(str(error)) from error
        others = [pinned.other_than(name, key) for pinned in expected]
        if None not in others:
            raise ssl.SSLCertVerificationError(others[0])
        on_peer(connection.getpeercert(binary_form=True) or b"")

    class CheckedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            check(self)

    class CheckedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            check(self)

    context = _context(files, ssl.PROTOCOL_TLS_CLIENT)
    context.sslobject_class = CheckedObject
    context.sslsocket_class = CheckedSocket
    return context


def anonymous_server_context(files: CertificateFiles) -> ssl.SSLContext:
    """Context for the accepting side of asyncio, for peers without a certificate: TLS 1.3 only.

    It authenticates this side alone. Raises CertificateError.
    """
    load_identity(files)
    context = _context(files, ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_NONE
    context.sslobject_class = _AlertingObject
    return context


def anonymous_client_context(expected: PinnedKey) -> ssl.SSLContext:
    """Context for the connecting side without a certificate: TLS 1.3 only; the peer has to have the pinned key.

    The handshake proves that the peer has the key of the certificate that it presents, and fails unless that is
    ``expected``; no authority vouches for it.
    """

    class CheckedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            presented = certificate_from_der(self.getpeercert(binary_form=True) or b"")
            try:
                name = common_name(presented, "the server's certificate")
            except CertificateError as error:
                raise ssl.SSLCertVerificationError(str(error)) from error
            other = expected.other_than(name, key_hash(presented))
            if other is not None:
                raise ssl.SSLCertVerificationError(other)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslobject_class = CheckedObject
    return context


def explain_tls_error(error: BaseException, peer: str) -> str | None:
    """Returns the meaning of a TLS failure with ``peer`` for the user; None if the error is no TLS failure."""
    # str() of an SSLError with a single argument shows a tuple.
    text = str(error.args[0] if len(error.args) == 1 else error)
    if isinstance(error, ssl.SSLCertVerificationError):
        # Only OpenSSL's own failures have the attribute; those of ``client_context`` have the reason in their text.
        reason = getattr(error, "verify_message", None)
        if reason:
            return f"{peer} presented a certificate that does not verify: {reason}"
        return f"{peer} is not who it should be: {text}"
    alerts = {
        "CERTIFICATE_EXPIRED": "our certificate has expired",
        "UNKNOWN_CA": "our certificate is of an authority it does not know",
        "CERTIFICATE_REQUIRED": "it wants a certificate of the run's authority",
        "DECRYPT_ERROR": "our certificate is of an authority it does not know",
        "BAD_CERTIFICATE": "our certificate is not valid there",
        "UNSUPPORTED_CERTIFICATE": "our certificate is not for this use",
        "PROTOCOL_VERSION": "it does not speak our version of TLS",
    }
    if is_unknown_sni(error):
        return f"{peer} does not run this study: it has not begun there yet, is over, or has another configuration"
    for alert, meaning in alerts.items():
        if f"ALERT_{alert}" in text.upper().replace(" ", "_"):
            return f"{peer} refused the connection: {meaning}"
    return f"TLS with {peer} failed: {text}" if isinstance(error, ssl.SSLError) else None


def is_unknown_sni(error: BaseException) -> bool:
    """True if the peer serves several studies by name (`parties.network.port_sharing`), and this one not at present."""
    return isinstance(error, ssl.SSLError) and "UNRECOGNIZED_NAME" in str(
        getattr(error, "reason", "")
    )


def own_certificate(files: CertificateFiles) -> CertificateFiles:
    """Returns ``files``, with the certificate of their private key if the certificate's path has "{name}".

    One configuration thus fits all data owners without naming them. Raises CertificateError if there is no such
    certificate.
    """
    if NAME_PLACEHOLDER not in files.cert.name:
        return files
    key = load_key(files.key).public_key()
    certificates = []
    for path in sorted(files.cert.parent.glob(files.cert.name.replace(NAME_PLACEHOLDER, "*"))):
        with contextlib.suppress(CertificateError):
            if load_certificate(path, "certificate").public_key() == key:
                certificates.append(path)
    if len(certificates) != 1:
        which = ", ".join(path.name for path in certificates) or "no certificate"
        raise CertificateError(
            f"{files.cert.parent}: has {which} for the key {files.key}; expected one, which the coordinator makes from "
            "the request (`syncret certs admit`), or --cert"
        )
    return CertificateFiles(files.ca, certificates[0], files.key)


def check_seal(files: CertificateFiles, expected: SealTo, role: str) -> None:
    """Raises CertificateError if the sealing key is not the one of ``role`` in the configuration."""
    if SealKey.load(files.seal).public != expected:
        raise CertificateError(
            f"{files.seal}: not the sealing key that the configuration has of {role}: owners seal to another"
        )


def check_subject(name: str) -> None:
    """Raises CertificateError for a name that no certificate of an authority can have."""
    if NAME_PATTERN.fullmatch(name) is None or name == AUTHORITY:
        raise CertificateError(
            f"{name[:80]!r} cannot be a name; expected 1 to 63 letters, digits, '.', '_' or '-', not 'ca'"
        )


class Authority:
    """A folder with ca.crt and ca.key, and the certificates that it issues. Its repr shows nothing secret."""

    __slots__ = ("_key", "certificate", "directory")

    def __init__(
        self, directory: Path, certificate: x509.Certificate, key: ed25519.Ed25519PrivateKey
    ) -> None:
        self.directory = directory
        self.certificate = certificate
        self._key = key

    def __repr__(self) -> str:
        return f"Authority({self.directory})"

    @staticmethod
    def is_in(directory: Path) -> bool:
        """True if ``directory`` has an authority, or part of one."""
        return any((directory / f"{AUTHORITY}.{kind}").exists() for kind in ("crt", "key"))

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Returns the authority in ``directory``. Raises CertificateError."""
        key_path, cert_path = directory / f"{AUTHORITY}.key", directory / f"{AUTHORITY}.crt"
        key = load_key(key_path)
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise CertificateError(f"{key_path}: not an authority of syncret; expected Ed25519")
        certificate = load_certificate(cert_path, "certificate authority")
        if certificate.public_key() != key.public_key():
            raise CertificateError(f"{key_path}: not the key of {cert_path}; expected its own")
        return cls(directory, certificate, key)

    @classmethod
    def make(cls, directory: Path, valid_days: float) -> Self:
        """Creates an authority in ``directory``; only the folder's owner can read its key. Raises StoreError."""
        with disk_errors(directory, "made"):
            directory.mkdir(parents=True, exist_ok=True)
        key = ed25519.Ed25519PrivateKey.generate()
        # Random names: two authorities of one name would differ in their signatures only, with a misleading alert.
        text = f"{CA_NAME} {secrets.token_hex(4)}"
        certificate = _authority_certificate(text, key, valid_days)
        key_path = directory / f"{AUTHORITY}.key"
        _write_new(directory / f"{AUTHORITY}.crt", certificate, {key_path: private_pem(key)})
        return cls(directory, certificate, key)

    def renew(self, valid_days: float) -> Self:
        """Makes the authority's certificate anew, of the same key and name. Raises CertificateError, StoreError."""
        text = common_name(self.certificate, self.directory)
        made = _authority_certificate(text, self._key, valid_days)
        write_atomic(self.directory / f"{AUTHORITY}.crt", public_pem(made), durable=True)
        return type(self)(self.directory, made, self._key)

    def renewed(
        self, certificate: x509.Certificate, path: Path, valid_days: float
    ) -> x509.Certificate:
        """Returns a data owner's ``certificate`` anew, for the same name and key; errors call it ``path``.

        Raises CertificateError if the authority has not issued it, or it is a server's.
        """
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise CertificateError(
                f"{path}: not issued by the authority in {self.directory}; expected one of its certificates"
            ) from error
        key = certificate.public_key()
        if is_for_servers(certificate) or not isinstance(key, ed25519.Ed25519PublicKey):
            raise CertificateError(
                f"{path}: not a data owner's certificate; expected NAME.crt of one"
            )
        name = common_name(certificate, path)
        return self.issue(name, key, server=False, valid_days=valid_days)

    def issue(
        self, name: str, public_key: ed25519.Ed25519PublicKey, *, server: bool, valid_days: float
    ) -> x509.Certificate:
        """Returns a certificate for ``name``, for client use, and for a ``server`` also for server use."""
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if server:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = _builder(name, self.certificate.subject, public_key, valid_days)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False
        )
        builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
        return builder.sign(self._key, None)


def _authority_certificate(
    text: str, key: ed25519.Ed25519PrivateKey, valid_days: float
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    builder = _builder(text, name, key.public_key(), valid_days)
    builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
    return builder.add_extension(_signs_certificates(), critical=True).sign(key, None)


def self_signed(name: str, key: ed25519.Ed25519PrivateKey, valid_days: float) -> x509.Certificate:
    """Returns a certificate for peers that know it by its key: of a service (`parties.service.identity`)."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(name, subject, key.public_key(), valid_days)
    return builder.add_extension(x509.BasicConstraints(False, None), critical=True).sign(key, None)


def authority_digest(certificate: x509.Certificate) -> str:
    """Hex SHA-256 of an authority's certificate, as in an audit."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def is_for_servers(certificate: x509.Certificate) -> bool:
    """True if a certificate is for server use."""
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return ExtendedKeyUsageOID.SERVER_AUTH in uses


def make_certificates(
    directory: Path,
    parties: Sequence[str],
    clients: Sequence[str] = (),
    *,
    valid_days: float = 365,
) -> dict[str, CertificateFiles]:
    """Creates an authority in ``directory`` (or uses the existing one) and all keys in one place, for trials.

    Writes ca.crt, ca.key and NAME.crt, NAME.key for ``parties`` (servers, which are clients of one another) and
    ``clients`` (data owners), and NAME.seal, a sealing key, for parties. Writes nothing if a name is unusable or has
    files already. Raises CertificateError, StoreError.
    """
    names = [*parties, *clients]
    ca = directory / f"{AUTHORITY}.crt"
    files = {
        name: CertificateFiles(ca, directory / f"{name}.crt", directory / f"{name}.key")
        for name in names
    }
    if len(files) != len(names):
        raise CertificateError(f"names repeat in {', '.join(names)}; expected different ones")
    for name, item in files.items():
        check_subject(name)
        for path in (item.cert, item.key, item.seal):
            if path.exists():
                raise CertificateError(f"{path}: exists already; expected a new name or folder")
    authority = _authority(directory, valid_days)
    for name, item in files.items():
        key, server = ed25519.Ed25519PrivateKey.generate(), name in parties
        certificate = authority.issue(name, key.public_key(), server=server, valid_days=valid_days)
        secrets_of = {item.key: private_pem(key)}
        if server:
            secrets_of[item.seal] = SealKey.generate().pem()
        _write_new(item.cert, certificate, secrets_of)
    return files


def _authority(directory: Path, valid_days: float) -> Authority:
    if Authority.is_in(directory):
        return Authority.load(directory)
    return Authority.make(directory, valid_days)


def _signs_certificates() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    name: str, issuer: x509.Name, public_key: ed25519.Ed25519PublicKey, valid_days: float
) -> x509.CertificateBuilder:
    now = _now()
    builder = x509.CertificateBuilder().serial_number(x509.random_serial_number())
    builder = builder.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
    builder = builder.issuer_name(issuer).public_key(public_key)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False
    )
    builder = builder.not_valid_before(
        min(now, now + datetime.timedelta(days=valid_days)) - _BACKDATE
    )
    return builder.not_valid_after(now + datetime.timedelta(days=valid_days))


def private_pem(key: ed25519.Ed25519PrivateKey) -> bytes:
    """Content of a private key's file."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def public_pem(certificate: x509.Certificate) -> bytes:
    """Content of a certificate's file."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_new(cert_path: Path, cert: x509.Certificate, keys: Mapping[Path, bytes]) -> None:
    """Writes certificate and keys, all or none. Raises StoreError."""
    made: list[Path] = []
    try:
        for path, pem in keys.items():
            write_new(path, pem, secret=True)
            made.append(path)
        write_new(cert_path, public_pem(cert))
    except StoreError:
        # Partial files would block the next attempt.
        with contextlib.suppress(OSError):
            for path in made:
                path.unlink()
        raise
