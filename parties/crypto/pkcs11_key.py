"""Ed25519 keys in a PKCS#11 token, such as a hardware security module, by their URI (RFC 7512).

The key's file is a PEM text of the URI, as OpenSSL's `pkcs11-provider` reads it, so that TLS handshakes use the key by
the same file. Other signatures are made by the program `openssl` with the same provider: `cryptography` brings an
OpenSSL of its own, which loads no provider, and a second user of the token in one process disturbs the provider. The
file that ``OPENSSL_CONF`` names has the provider and the token's module; the URI names a file with the PIN.

Secret: the PIN; the key never leaves the token. Public: the URI. Source: RFC 7512; PKCS #11 3.0, section 2.3 (EdDSA);
the provider's form of PEM (https://github.com/latchset/pkcs11-provider). Known limits: a process for each signature,
some ten milliseconds; the sealing keys of studies are not in the token, but made for a study and deleted at its end.
"""

import base64
import binascii
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from parties.foundation.errors import OutsideKeyError

_LABEL = "PKCS#11 PROVIDER URI"
_DESCRIPTION = b"PKCS#11 Provider URI v1.0"
_PEM = re.compile(
    rb"-----BEGIN PKCS#11 PROVIDER URI-----(.*)-----END PKCS#11 PROVIDER URI-----", re.S
)
_URI = re.compile(r"pkcs11:[!-~]{1,1000}")
_PATH_NAMES = frozenset(
    {"token", "object", "id", "type", "serial", "model", "manufacturer", "slot-id"}
)
_QUERY_NAMES = frozenset({"pin-source"})
_EXPECTED = "expected pkcs11:token=NAME;object=NAME;type=private?pin-source=file:/PATH"
_SEQUENCE, _VISIBLE, _UTF8 = 0x30, 0x1A, 0x0C
_LIMIT_S = 60.0
"""Seconds that a token has for one signature."""
_MOST_SAID = 300


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
    """Returns the attributes of a URI.

    Raises ValueError unless it names a token, a key and a file with the PIN, all by known attributes, each once; errors
    have nothing of the URI, since a PIN may be in it.
    """
    if _URI.fullmatch(uri) is None:
        raise ValueError("it is no URI of a PKCS#11 key; expected pkcs11:token=...;object=...")
    path, _, query = uri.removeprefix("pkcs11:").partition("?")
    found: dict[str, str] = {}
    for text, mark, known in ((path, ";", _PATH_NAMES), (query, "&", _QUERY_NAMES)):
        for name, _, value in (part.partition("=") for part in text.split(mark) if part):
            if name not in known or name in found:
                names = ", ".join(sorted(_PATH_NAMES | _QUERY_NAMES))
                raise ValueError(
                    f"its URI has an attribute twice, or another than {names} (a PIN goes into a file); {_EXPECTED}"
                )
            found[name] = unquote(value)
    source = found.get("pin-source", "")
    if not {"token", "object"} <= found.keys() or not source.startswith("file:/"):
        raise ValueError(f"its URI lacks something; {_EXPECTED}")
    return found


class TokenKey(Ed25519PrivateKey):
    """A private key in a token: signs there, and is never here."""

    def __init__(self, uri: str, where: Path) -> None:
        """Finds the key; errors call it ``where``. Raises OutsideKeyError."""
        self._where = where
        try:
            self._pem = uri_pem(uri)
        except ValueError as error:
            raise OutsideKeyError(f"{where}: {error}") from error
        said = self._openssl("pkey", "-in", "{key}", "-pubout")
        try:
            public = load_pem_public_key(said)
        except ValueError as error:
            raise OutsideKeyError(f"{where}: the token gives no public key of it") from error
        if not isinstance(public, Ed25519PublicKey):
            raise OutsideKeyError(f"{where}: the token's key is of another kind; expected Ed25519")
        self._public = public

    def public_key(self) -> Ed25519PublicKey:
        """Public half of the key."""
        return self._public

    def sign(self, data: bytes) -> bytes:  # type: ignore[override]
        """Signs in the token. Raises OutsideKeyError if that is away."""
        return self._openssl(
            *("pkeyutl", "-sign", "-rawin", "-inkey", "{key}", "-in", "{data}"), data=data
        )

    def private_bytes(self, *_: object, **__: object) -> NoReturn:
        """Raises TypeError: the key is in the token alone."""
        raise TypeError("a key in a token cannot be written")

    private_bytes_raw = private_bytes

    def __copy__(self) -> "TokenKey":
        return self

    def __deepcopy__(self, memo: object) -> "TokenKey":
        return self

    def _openssl(self, *arguments: str, data: bytes = b"") -> bytes:
        """Runs `openssl` with the key's file and the data's, which are in memory. Raises OutsideKeyError."""
        files = {"{key}": _in_memory(self._pem), "{data}": _in_memory(data)}
        words = [f"/dev/fd/{files[word]}" if word in files else word for word in arguments]
        try:
            done = subprocess.run(
                ["openssl", *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LIMIT_S,
                pass_fds=tuple(files.values()),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self._error(str(error)) from error
        finally:
            for descriptor in files.values():
                os.close(descriptor)
        if done.returncode != 0 or not done.stdout:
            raise self._error(_last_line(done.stderr))
        return done.stdout

    def _error(self, what: str) -> OutsideKeyError:
        return OutsideKeyError(
            f"{self._where}: OpenSSL does not reach this key in its PKCS#11 token ({what}); expected the "
            "pkcs11-provider in the file that OPENSSL_CONF names, the token, and the PIN's file"
        )


def _in_memory(data: bytes) -> int:
    """Returns a descriptor of an anonymous file with this content."""
    descriptor = os.memfd_create("syncret")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _last_line(said: bytes) -> str:
    lines: Sequence[str] = said.decode(errors="replace").strip().splitlines() or ["no answer"]
    return "".join(c for c in lines[-1] if c.isprintable())[:_MOST_SAID]
