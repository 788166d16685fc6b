"""Ed25519 keys in a PKCS#11 token, such as a hardware security module, by their URI (RFC 7512).

The key's file is a PEM text of the URI, as OpenSSL's `pkcs11-provider` reads it, so that TLS handshakes use the key by
the same file. Other signatures are made here, by `python-pkcs11`: `cryptography` brings an OpenSSL of its own, which
loads no provider. The token's module is in the environment variable ``PKCS11_PROVIDER_MODULE``, which the provider
reads, too; the URI names a file with the PIN (``pin-source``).

Secret: the PIN; the key never leaves the token. Public: the URI. Source: RFC 7512; PKCS #11 3.0, section 2.3 (EdDSA);
the provider's form of PEM (https://github.com/latchset/pkcs11-provider). Known limit: the sealing keys of studies are
not in the token; they are made for a study and deleted at its end.
"""

import base64
import binascii
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from parties.crypto.hpke import read_private
from parties.foundation.errors import CertificateError, ExtraMissing, OutsideKeyError

MODULE_VARIABLE = "PKCS11_PROVIDER_MODULE"
_LABEL = "PKCS#11 PROVIDER URI"
_DESCRIPTION = b"PKCS#11 Provider URI v1.0"
_PEM = re.compile(
    rb"-----BEGIN PKCS#11 PROVIDER URI-----(.*)-----END PKCS#11 PROVIDER URI-----", re.S
)
_URI = re.compile(r"pkcs11:[!-~]{1,1000}")
_SEQUENCE, _VISIBLE, _UTF8, _OCTETS = 0x30, 0x1A, 0x0C, 0x04
_POINT_BYTES = 32
_lock = threading.Lock()
"""Held while a token is used: a session does one thing at a time."""
_sessions: dict[tuple[str, str], Any] = {}
"""Sessions by module and token."""


def uri_pem(uri: str) -> bytes:
    """Returns the PEM text of a key's URI. Raises ValueError for a text that is no URI of a key with a PIN's file."""
    _attributes(uri)
    content = _tlv(_VISIBLE, _DESCRIPTION) + _tlv(_UTF8, uri.encode())
    text = base64.encodebytes(_tlv(_SEQUENCE, content)).decode()
    return f"-----BEGIN {_LABEL}-----\n{text}-----END {_LABEL}-----\n".encode()


def uri_of(pem: bytes) -> str | None:
    """Returns the URI in a key's PEM text; None if it has none. Raises ValueError for a damaged one."""
    found = _PEM.search(pem)
    if found is None:
        return None
    try:
        content, rest = _read(base64.b64decode(found[1]), _SEQUENCE)
        _, after = _read(content, _VISIBLE)
        uri, end = _read(after, _UTF8)
    except (binascii.Error, IndexError) as error:
        raise ValueError("the PEM text of a URI is damaged") from error
    if rest or end:
        raise ValueError("the PEM text of a URI has more in it")
    return uri.decode()


def _tlv(tag: int, value: bytes) -> bytes:
    """Returns a value in DER, of at most 65,535 bytes."""
    size = len(value)
    length = bytes([size]) if size < 0x80 else bytes([0x82, size >> 8, size & 0xFF])
    return bytes([tag]) + length + value


def _read(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """Returns the first value in DER, which has this tag, and the rest. Raises ValueError, IndexError."""
    if data[0] != tag:
        raise ValueError("the PEM text of a URI has another form")
    size, start = data[1], 2
    if size >= 0x80:
        start += size - 0x80
        size = int.from_bytes(data[2:start], "big")
    if len(data) < start + size:
        raise ValueError("the PEM text of a URI is cut off")
    return data[start : start + size], data[start + size :]


def _attributes(uri: str) -> dict[str, str]:
    """Returns the attributes of a URI. Raises ValueError unless it names a token, a key and a file with the PIN."""
    if _URI.fullmatch(uri) is None:
        raise ValueError("it is no URI of a PKCS#11 key; expected pkcs11:token=...;object=...")
    path, _, query = uri.removeprefix("pkcs11:").partition("?")
    pairs = [part.partition("=") for part in (*path.split(";"), *query.split("&")) if part]
    found = {name: unquote(value) for name, _, value in pairs}
    source = found.get("pin-source", "")
    if not {"token", "object"} <= found.keys() or not source.startswith("file:/"):
        raise ValueError(
            "its URI lacks something; expected pkcs11:token=NAME;object=NAME;type=private?pin-source=file:/PATH"
        )
    return found


class TokenKey(Ed25519PrivateKey):
    """A private key in a token: signs there, and is never here."""

    def __init__(self, uri: str, where: Path) -> None:
        """Finds the key; errors call it ``where``. Raises OutsideKeyError, ExtraMissing."""
        self._where = where
        try:
            self._attributes = _attributes(uri)
        except ValueError as error:
            raise OutsideKeyError(f"{where}: {error}") from error
        with _lock:
            self._session = _session(self._attributes, where)
            self._key, self._public = self._found()

    def _found(self) -> tuple[Any, Ed25519PublicKey]:
        """Returns the key's handle in the token, and the public key. Raises OutsideKeyError."""
        import pkcs11

        kinds = (pkcs11.ObjectClass.PRIVATE_KEY, pkcs11.ObjectClass.PUBLIC_KEY)
        try:
            private, public = (self._object(kind) for kind in kinds)
            point = bytes(public[pkcs11.Attribute.EC_POINT])
            # By the standard it is a DER octet string; some tokens have the bare bytes.
            if len(point) != _POINT_BYTES:
                point, _ = _read(point, _OCTETS)
            return private, Ed25519PublicKey.from_public_bytes(point)
        except (pkcs11.PKCS11Error, ValueError, IndexError) as error:
            raise self._error(error) from error

    def _object(self, kind: Any) -> Any:
        """Returns the key's one object of a kind in the token. Raises ValueError, PKCS11Error."""
        import pkcs11

        wanted = {
            pkcs11.Attribute.CLASS: kind,
            pkcs11.Attribute.LABEL: self._attributes["object"],
            # OpenSSL's provider keeps copies of its own beside the token's.
            pkcs11.Attribute.TOKEN: True,
        }
        found = list(self._session.get_objects(wanted))
        if len(found) != 1:
            raise ValueError(f"it has {len(found)} of them")
        return found[0]

    def _error(self, error: Exception) -> OutsideKeyError:
        what = str(error) or type(error).__name__
        return OutsideKeyError(
            f"{self._where}: the token {self._attributes['token']!r} does not give its Ed25519 key "
            f"{self._attributes['object']!r}: {what}; expected a private and a public key of that name"
        )

    def public_key(self) -> Ed25519PublicKey:
        """Public half of the key."""
        return self._public

    def sign(self, data: object) -> bytes:
        """Signs in the token. Raises OutsideKeyError if that is away."""
        import pkcs11

        try:
            with _lock:
                return bytes(self._key.sign(bytes(data), mechanism=pkcs11.Mechanism.EDDSA))  # type: ignore[call-overload]
        except pkcs11.PKCS11Error as error:
            raise self._error(error) from error

    def private_bytes(self, *_: object, **__: object) -> NoReturn:
        """Raises TypeError: the key is in the token alone."""
        raise TypeError("a key in a token cannot be written")

    private_bytes_raw = private_bytes

    def __copy__(self) -> "TokenKey":
        return self

    def __deepcopy__(self, memo: object) -> "TokenKey":
        return self


def _session(attributes: Mapping[str, str], where: Path) -> Any:
    """Returns the process's session with a token, opened at the first use. Raises OutsideKeyError, ExtraMissing."""
    try:
        import pkcs11
    except ModuleNotFoundError as error:
        what = f"{where}, a key in a PKCS#11 token,"
        raise ExtraMissing(what, "python-pkcs11", extra="pkcs11") from error
    token, module = attributes["token"], os.environ.get(MODULE_VARIABLE)
    if not module:
        raise OutsideKeyError(
            f"{where}: is a key in a PKCS#11 token, and {MODULE_VARIABLE} is not set; expected the token's module, "
            "such as /usr/lib/softhsm/libsofthsm2.so"
        )
    if (module, token) not in _sessions:
        pin = _pin(Path(attributes["pin-source"].removeprefix("file:")))
        try:
            found = pkcs11.lib(module).get_token(token_label=token)
            try:
                _sessions[module, token] = found.open(user_pin=pin)
            except pkcs11.UserAlreadyLoggedIn:
                # OpenSSL's provider was first in this process, whose sessions share a login.
                _sessions[module, token] = found.open()
        except (pkcs11.PKCS11Error, RuntimeError) as error:
            what = str(error) or type(error).__name__
            raise OutsideKeyError(
                f"{where}: the token {token!r} of {module} does not open: {what}; expected one with that name and PIN"
            ) from error
    return _sessions[module, token]


def _pin(file: Path) -> str:
    """Returns a token's PIN. Raises OutsideKeyError."""
    try:
        return read_private(file, "the PIN", "it alone in the file").decode().strip()
    except (CertificateError, UnicodeDecodeError) as error:
        raise OutsideKeyError(f"{file}: the PIN cannot be read: {error}") from error
