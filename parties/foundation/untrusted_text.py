"""JSON and TOML that somebody else has written, and words that a terminal can take.

Provides ``parse_json`` and ``parse_toml``, which end with ValueError in all that a text can do to their parsers: too
deep, numbers too long, no UTF-8; and ``printable``. Public: all of it. Known limits: values are not looked at; JSON may
have NaN and infinities, and a key twice, of which the last one counts.

Certificates that somebody else has made, read whole: `cryptography` takes most parts apart when they are asked for.

Provides ``certificate_from_pem`` and ``certificate_from_der``, which end with ValueError in all that a certificate can
have wrong. Public.
"""

import json
import tomllib
from collections.abc import Callable
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

MAX_PRINTED = 4000
"""Characters that a message may have."""


def parse_json(text: str | bytes) -> Any:
    """What a JSON text says. Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def parse_toml(text: str) -> dict[str, Any]:
    """What a TOML text says. Raises ValueError."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def printable(text: str, longest: int = MAX_PRINTED) -> str:
    """``text`` without what moves a terminal's cursor or hides words, and not too long; lines stay."""
    shown = "".join(c if c.isprintable() or c == "\n" else "?" for c in text[: longest + 1])
    return shown if len(text) <= longest else f"{shown[:longest]}..."


_DAMAGES = (
    ValueError,
    TypeError,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
    UnsupportedAlgorithm,
)


def certificate_from_pem(data: bytes) -> x509.Certificate:
    """The first certificate in a PEM text. Raises ValueError."""
    return _load_whole(x509.load_pem_x509_certificate, data)


def certificate_from_der(data: bytes) -> x509.Certificate:
    """A certificate. Raises ValueError."""
    return _load_whole(x509.load_der_x509_certificate, data)


def _load_whole(load: Callable[[bytes], x509.Certificate], data: bytes) -> x509.Certificate:
    try:
        found = load(data)
        _ = found.subject, found.issuer, found.extensions, found.public_key()
        _ = found.not_valid_before_utc, found.not_valid_after_utc, found.signature_hash_algorithm
    except _DAMAGES as error:
        raise ValueError("not an X.509 certificate that can be read") from error
    return found
