"""Verification of signatures by certificates' keys: of a data owner under the run's authority, or of a pinned server.

`parties.identity.tls.signer` makes the signatures: Ed25519, or ECDSA with SHA-256, by the kind of the key. All values
here are public.
"""

import datetime
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID

from parties.crypto.pinned_key import PinnedKey
from parties.foundation.errors import CertificateError
from parties.foundation.untrusted_text import certificate_from_der
from parties.identity.tls import common_name, load_certificate

PublicKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey


@dataclass(frozen=True, slots=True)
class Signatory:
    """A signer called ``name`` with a public ``key``."""

    name: str
    key: PublicKey = field(repr=False)

    def verify(self, signature: bytes, message: bytes) -> None:
        """Raises CertificateError unless ``signature`` is this signer's signature of ``message``."""
        try:
            if isinstance(self.key, ed25519.Ed25519PublicKey):
                self.key.verify(signature, message)
            else:
                self.key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature as error:
            raise CertificateError(f"a signature is not one of {self.name!r}") from error


@dataclass(frozen=True, slots=True)
class Issuer:
    """The run's authority, which certifies data owners."""

    certificate: x509.Certificate

    @classmethod
    def load(cls, path: Path) -> Self:
        """Returns the authority from its PEM file. Raises CertificateError."""
        return cls(load_certificate(path, "certificate authority"))

    @classmethod
    def of(cls, certificate: bytes) -> Self:
        """Returns the authority from its DER bytes. Raises CertificateError."""
        try:
            return cls(certificate_from_der(certificate))
        except ValueError as error:
            raise CertificateError("the authority's certificate cannot be read") from error

    def signatory(self, certificate: bytes) -> Signatory:
        """Returns the holder of a certificate (DER).

        Raises CertificateError if it is malformed, of another authority, not valid now, not for clients, or has another
        kind of key.
        """
        found, holder = self._admitted(certificate)
        now = datetime.datetime.now(datetime.UTC)
        if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
            raise CertificateError(f"the certificate of {holder.name!r} is not valid now")
        return holder

    def holder(self, certificate: bytes) -> Signatory:
        """Returns the holder as ``signatory``, without the dates: the same answer at every time and at every host."""
        return self._admitted(certificate)[1]

    def _admitted(self, certificate: bytes) -> tuple[x509.Certificate, Signatory]:
        try:
            found = certificate_from_der(certificate)
            found.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
            raise CertificateError("the certificate is none of the run's authority") from error
        name = common_name(found, "a data owner's certificate")
        if not _for_clients(found):
            raise CertificateError(f"the certificate of {name!r} is not for clients")
        key = found.public_key()
        if not isinstance(key, PublicKey):
            raise CertificateError(f"the certificate of {name!r} has a key of another kind")
        return found, Signatory(name, key)


def signatory_of(certificate: bytes) -> Signatory:
    """Returns the owner with this certificate (DER), verified before, as a signer whatever its name.

    Raises CertificateError.
    """
    try:
        key = certificate_from_der(certificate).public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateError("the certificate cannot be read") from error
    if not isinstance(key, PublicKey):
        raise CertificateError("the certificate has a key of another kind")
    return Signatory("this owner", key)


def pinned_signatory(pinned: PinnedKey, public_key: bytes) -> Signatory:
    """Returns the server with the ``public_key`` (SubjectPublicKeyInfo, DER).

    Raises CertificateError if the key is not the pinned one, or invalid.
    """
    if hashlib.sha256(public_key).hexdigest() != pinned.key:
        raise CertificateError(
            f"the key is not the one that the configuration has of {pinned.name!r}"
        )
    try:
        key = serialization.load_der_public_key(public_key)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"the key of {pinned.name!r} cannot be read") from error
    if not isinstance(key, PublicKey):
        raise CertificateError(f"the key of {pinned.name!r} is of another kind")
    return Signatory(pinned.name, key)


def public_key_of(certificate: x509.Certificate) -> bytes:
    """Returns the key in a certificate, as SubjectPublicKeyInfo (DER)."""
    return certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _for_clients(certificate: x509.Certificate) -> bool:
    """True if OpenSSL would accept the certificate for clients: without the extension it is for any use."""
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return ExtendedKeyUsageOID.CLIENT_AUTH in uses
