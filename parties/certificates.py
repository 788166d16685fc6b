"""Certificates that somebody else has made, read whole: `cryptography` takes most parts apart when they are asked for.

Provides ``from_pem`` and ``from_der``, which end with ValueError in all that a certificate can have wrong. Public.
"""

from collections.abc import Callable

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

_DAMAGES = (
    ValueError,
    TypeError,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
    UnsupportedAlgorithm,
)


def from_pem(data: bytes) -> x509.Certificate:
    """The first certificate in a PEM text. Raises ValueError."""
    return _whole(x509.load_pem_x509_certificate, data)


def from_der(data: bytes) -> x509.Certificate:
    """A certificate. Raises ValueError."""
    return _whole(x509.load_der_x509_certificate, data)


def _whole(load: Callable[[bytes], x509.Certificate], data: bytes) -> x509.Certificate:
    try:
        found = load(data)
        _ = found.subject, found.issuer, found.extensions, found.public_key()
        _ = found.not_valid_before_utc, found.not_valid_after_utc, found.signature_hash_algorithm
    except _DAMAGES as error:
        raise ValueError("not an X.509 certificate that can be read") from error
    return found
