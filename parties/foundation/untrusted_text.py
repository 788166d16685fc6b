"""Parsers for untrusted JSON, TOML and certificates, and text that is safe for a terminal.

``parse_json`` and ``parse_toml`` raise ValueError for every text that their parsers cannot handle: nested too deeply,
numbers too long, no UTF-8. A TOML key of many parts (``a.a.a``) is refused before it is parsed, since `tomllib` takes
time with the cube of their number. Known limits: values are not checked; JSON may have NaN and infinities, and a
duplicate key, of which the last value counts.

``certificate_from_pem`` and ``certificate_from_der`` parse certificates completely, since `cryptography` parses most
parts only on access, and raise ValueError for every defect.
"""

import json
import re
import tomllib
from collections.abc import Callable
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

MAX_PRINTED = 4000
"""Maximum length of a message, in characters."""
_KEY_PARTS = 32
"""Number of parts joined by dots from which on a TOML text is refused, also within its strings and comments."""
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![A-Za-z0-9_-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{_KEY_PARTS - 1}}}")


def parse_json(text: str | bytes) -> Any:
    """Returns the value of a JSON text. Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def parse_toml(text: str) -> dict[str, Any]:
    """Returns the value of a TOML text. Raises ValueError."""
    if _LONG_KEY.search(text):
        raise ValueError(f"it has a key of {_KEY_PARTS} parts or more")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def printable(text: str, longest: int = MAX_PRINTED) -> str:
    """Returns ``text``, limited in length and without characters that control a terminal or hide words; lines stay."""
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
    """Returns the first certificate in a PEM text. Raises ValueError."""
    return _load_whole(x509.load_pem_x509_certificate, data)


def certificate_from_der(data: bytes) -> x509.Certificate:
    """Returns the certificate. Raises ValueError."""
    return _load_whole(x509.load_der_x509_certificate, data)


def _load_whole(load: Callable[[bytes], x509.Certificate], data: bytes) -> x509.Certificate:
    try:
        found = load(data)
        _ = found.subject, found.issuer, found.extensions, found.public_key()
        _ = found.not_valid_before_utc, found.not_valid_after_utc, found.signature_hash_algorithm
    except _DAMAGES as error:
        raise ValueError("not an X.509 certificate that can be read") from error
    return found
