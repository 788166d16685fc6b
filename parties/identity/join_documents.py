"""Documents that people exchange before a run: server cards, join requests, and fingerprints in words.

``ensure_server_card`` and ``ensure_join_request`` make the documents together with their keys. Both are small TOML
files, signed with the key that they contain: a comparison of the key's fingerprint with its holder covers the whole
file.

Secret: the private keys, ``own.key`` and ``own.seal``, made here with mode 0600; they never leave their folder. Public:
everything else. Documents are untrusted input: sizes are bounded, and every value has one form. Known limit: the
signature shows that the key's holder wrote the file, not the holder's identity; people verify that by the fingerprint.
"""

import base64
import binascii
import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
)
from mnemonic import Mnemonic

from parties.config import Address
from parties.crypto.hpke import SealKey, SealTo
from parties.foundation.errors import CertificateError
from parties.foundation.untrusted_text import parse_toml
from parties.identity.tls import check_subject, load_key, private_pem
from parties.storage.files import disk_errors, write_atomic, write_new

CARD, REQUEST, ADMISSION = "card", "request", "admission"
"""Kinds of documents: the key of the version in it, and of files the ending of the name."""
SEAL_FILE = "own.seal"
VERSION = 1
MAX_BYTES = 16_384
_WORD_BYTES = 16
_ADDRESSES = ("mesh", "ingest", "address")
_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,253}")
_COMMENTS = {
    CARD: "# A server's public card. Nothing in it is secret, and no change to it goes unnoticed.\n",
    REQUEST: "# A data owner's request to be admitted. Nothing in it is secret.\n",
    ADMISSION: "# A data owner's request to be admitted to one study, for its servers.\n",
}


@functools.cache
def _word_list() -> Mnemonic:
    return Mnemonic("english")


@functools.cache
def word_list() -> frozenset[str]:
    """Returns the words of which fingerprints are made."""
    return frozenset(_word_list().wordlist)


def are_words(words: Sequence[str]) -> bool:
    """True if these are words of a fingerprint: the last one checks the others."""
    return bool(_word_list().check(" ".join(words)))


def fingerprint_words(digest: str) -> str:
    """Returns twelve English words (BIP 39) for the first 16 bytes of a hex digest; the last word checks the others.

    The words have 128 bits: other content with the words of a given one takes 2^128 tries (second preimage), so that
    nobody can replace a key or a configuration whose words were read out. An author of two contents can give both the
    same words in 2^64 tries; programs therefore compare all 32 bytes, as the servers do when they connect.
    """
    return _word_list().to_mnemonic(bytes.fromhex(digest)[:_WORD_BYTES])


def grouped_hex(digest: str) -> str:
    """Returns a hex digest in groups of four."""
    return " ".join(digest[i : i + 4] for i in range(0, len(digest), 4))


def fingerprint_lines(digest: str) -> list[str]:
    """Returns a digest as lines for people: in words, then in hex, each in two halves."""

    def halves(label: str, groups: Sequence[str]) -> list[str]:
        middle = len(groups) // 2
        return [f"    {label}  {' '.join(groups[:middle])}", f"{'':14}{' '.join(groups[middle:])}"]

    return halves("in words", fingerprint_words(digest).split()) + halves(
        "in hex  ", grouped_hex(digest).split()
    )


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A data owner's request for admission: its ``name`` and its ``public`` key (SubjectPublicKeyInfo, DER)."""

    name: str
    public: bytes

    def __post_init__(self) -> None:
        check_subject(self.name)
        public_key(self.public)

    @property
    def key(self) -> str:
        """Hex SHA-256 of the public key, equal to `protocols.mesh.key_hash` of a certificate of the key."""
        return hashlib.sha256(self.public).hexdigest()

    def fields(self) -> dict[str, str]:
        """Returns the signed fields of the file."""
        return {"name": self.name, "key": self.key, "public": _base64(self.public)}


@dataclass(frozen=True, slots=True)
class AdmissionRequest(JoinRequest):
    """A data owner's request for admission to one ``study``, a configuration's digest, as its servers receive it.

    Bound to the study, it tells nobody of another one whether its owner takes part there.
    """

    study: str

    def fields(self) -> dict[str, str]:
        """Returns the signed fields."""
        return {**JoinRequest.fields(self), "study": self.study}


def _check_addresses(ends: Mapping[str, Address]) -> None:
    if tuple(ends) not in (_ADDRESSES[:2], _ADDRESSES[2:]):
        raise CertificateError(
            f"there are the addresses {', '.join(ends) or 'none'}; expected mesh and ingest, or of FLAIM's server "
            "address"
        )
    for key, end in ends.items():
        if _HOST.fullmatch(end.host) is None:
            raise CertificateError(f"{key} is {str(end)!r}; expected host:port")
    if len({str(end) for end in ends.values()}) != len(ends):
        raise CertificateError("mesh and ingest are the same; expected two addresses")


_Signed = TypeVar("_Signed", bound=JoinRequest)


@dataclass(frozen=True, slots=True)
class ServerCard(JoinRequest):
    """A server's card: its addresses and the keys that the configuration pins.

    For a compute server ``ends`` are mesh and ingest, and ``seal`` is its public sealing key; for FLAIM's server
    ``ends`` is the address, and ``seal`` is None.
    """

    ends: Mapping[str, Address]
    seal: str | None = None

    def __post_init__(self) -> None:
        JoinRequest.__post_init__(self)
        _check_addresses(self.ends)
        if (self.seal is None) != self.of_flaim:
            raise CertificateError(
                f"the card of {self.name} has {'a' if self.seal else 'no'} sealing key; expected one of a compute "
                "server, and only of it"
            )

    @property
    def of_flaim(self) -> bool:
        """True for FLAIM's server."""
        return "address" in self.ends

    def fields(self) -> dict[str, str]:
        """Returns the signed fields of the file."""
        ends = {key: str(end) for key, end in self.ends.items()}
        seal = {} if self.seal is None else {"seal": self.seal}
        return {"name": self.name, **ends, "key": self.key, "public": _base64(self.public), **seal}

    def lines(self) -> list[str]:
        """Returns the card as lines for people."""
        ends = ", ".join(f"{key} {end}" for key, end in self.ends.items())
        return [f"{self.name} ({ends})", *fingerprint_lines(self.key)]


def ensure_server_card(
    name: str, ends: Mapping[str, Address] | None, *, keys: Path, path: Path
) -> tuple[ServerCard, bool]:
    """Returns this host's card at ``path``, and True if it was written now; its keys are in the folder ``keys``.

    Creates the missing files. An existing card stays, unless ``ends`` differ: then a card with the same keys and the
    new addresses replaces it. Raises CertificateError (also if there is neither a card nor ``ends``), StoreError.
    """
    known = load_server_card(path) if path.exists() else None
    if known is not None:
        _check_same_key(known.name, name, path)
    if ends is None and known is not None:
        ends = known.ends
    if ends is None:
        raise CertificateError(f"{path}: there is no card yet; expected the server's addresses")
    _check_addresses(ends)  # Before any key is made.
    key = _own_key(keys, make=known is None)
    seal = None
    if known is not None and known.seal is not None and not (keys / SEAL_FILE).exists():
        raise CertificateError(
            f"{keys / SEAL_FILE}: sealing key cannot be read: a server deletes it at the end of its run. Expected "
            f"it there, or no {path}, which is its card (move this one away: a new one brings a new key)"
        )
    if "address" not in ends:
        seal = str(_own_seal(keys, make=known is None).public)
    card = ServerCard(name, _der(key), dict(ends), seal)
    if known == card:
        return card, False
    if known is not None and known.of_flaim != card.of_flaim:
        raise CertificateError(
            f"{path}: is of a server with other addresses: {', '.join(known.ends)}"
        )
    if known is not None and (known.key, known.seal) != (card.key, card.seal):
        raise CertificateError(
            f"{path}: is of other keys than those in {keys}; expected the folder with its keys, or another place"
        )
    text = _signed(CARD, card.fields(), key)
    if known is None:
        write_new(path, text)
    else:
        write_atomic(path, text)
    return card, True


def ensure_join_request(name: str, *, keys: Path, path: Path) -> tuple[JoinRequest, bool]:
    """Returns this owner's request at ``path``, and True if it was written now; as ``ensure_server_card``.

    Raises as ``ensure_server_card``.
    """
    known = load_join_request(path) if path.exists() else None
    key = _own_key(keys, make=known is None)
    request = JoinRequest(name, _der(key))
    if known is None:
        write_new(path, _signed(REQUEST, request.fields(), key))
        return request, True
    _check_same_key(known.name, name, path)
    if known != request:
        raise CertificateError(f"{path}: is of another key than the one in {keys}")
    return request, False


def load_server_card(path: Path) -> ServerCard:
    """Returns the card in a file.

    Raises CertificateError, naming it, if it is damaged, altered or of another version.
    """
    values = _checked(_read(path, CARD), path, CARD, more=(*_ADDRESSES, "seal"))
    try:
        ends: dict[str, Address] = {
            key: Address.parse(values[key]) for key in _ADDRESSES if key in values
        }
        seal = str(SealTo.parse(values["seal"])) if "seal" in values else None
        card = ServerCard(values["name"], _from_base64(values["public"]), ends, seal)
    except (ValueError, CertificateError) as error:
        raise CertificateError(f"{path}: {error}") from error
    return _check_canonical(card, values, path)


def load_join_request(path: Path) -> JoinRequest:
    """Returns the request in a file. Raises as ``load_server_card``."""
    values = _checked(_read(path, REQUEST), path, REQUEST)
    try:
        request = JoinRequest(values["name"], _from_base64(values["public"]))
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from error
    return _check_canonical(request, values, path)


def make_admission_request(name: str, study: str, *, keys: Path) -> tuple[AdmissionRequest, bytes]:
    """Returns the owner's request for admission to a study, and its text; makes the owner's key if there is none.

    Raises CertificateError, StoreError.
    """
    check_subject(name)
    key = _own_key(keys, make=True)
    request = AdmissionRequest(name, _der(key), study)
    return request, _signed(ADMISSION, request.fields(), key)


def parse_admission_request(data: bytes) -> AdmissionRequest:
    """Returns the request in a text from outside. Raises CertificateError as ``load_server_card``."""
    source = "the request"
    values = _checked(data, source, ADMISSION, more=("study",))
    try:
        request = AdmissionRequest(
            values["name"], _from_base64(values["public"]), values.get("study", "")
        )
    except CertificateError as error:
        raise CertificateError(f"{source}: {error}") from error
    return _check_canonical(request, values, source)


def public_key(der: bytes) -> Ed25519PublicKey:
    """Returns the key of a card or request. Raises CertificateError."""
    try:
        key = load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateError("public is no key; expected Ed25519") from error
    if not isinstance(key, Ed25519PublicKey) or _spki(key) != der:
        raise CertificateError("public is a key of another kind; expected Ed25519")
    return key


def _checked(
    data: bytes, path: Path | str, kind: str, *, more: Sequence[str] = ()
) -> dict[str, str]:
    """Returns the signed values in a text: name, key, public, and any of ``more``. Raises CertificateError."""
    document = _document(data, path, kind)
    version = document.pop(kind, None)
    if version is None:
        raise CertificateError(f"{path}: not a {kind}; expected the file of `syncret certs {kind}`")
    if version != VERSION or isinstance(version, bool):
        raise CertificateError(
            f"{path}: is of version {str(version)[:20]!r}; expected {VERSION}, this version's {kind}"
        )
    required = {"name", "key", "public", "signature"}
    known = required | set(more)
    unknown, missing = sorted(document.keys() - known), sorted(required - document.keys())
    if unknown or missing:
        wrong = f"has {unknown[0][:40]!r}" if unknown else f"has no {missing[0]!r}"
        raise CertificateError(f"{path}: {wrong}; expected the values of a {kind}")
    values = {key: value for key, value in document.items() if isinstance(value, str)}
    if len(values) != len(document):
        raise CertificateError(f"{path}: has a value that is no text; expected a {kind}")
    signature = values.pop("signature")
    try:
        key = public_key(_from_base64(values["public"]))
        key.verify(_from_base64(signature), _message(kind, values))
    except InvalidSignature as error:
        raise CertificateError(
            f"{path}: was altered: its signature is not of this content; expected the {kind} as its server or owner "
            "made it"
        ) from error
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from error
    return values


def _read(path: Path, kind: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CertificateError(f"{path}: cannot be read: {reason}; expected a {kind}") from error


def _document(data: bytes, path: Path | str, kind: str) -> dict[str, object]:
    if len(data) > MAX_BYTES:
        raise CertificateError(f"{path}: has more than {MAX_BYTES} bytes; expected a {kind}")
    try:
        return parse_toml(data.decode())
    except ValueError as error:
        raise CertificateError(f"{path}: is damaged, or no {kind}: not valid TOML") from error


def _check_canonical(item: _Signed, values: Mapping[str, str], path: Path | str) -> _Signed:
    """Returns ``item``. Raises CertificateError if its file spells an address or a key in another form."""
    for key, value in item.fields().items():
        said = values.get(key, "")
        if said != value:
            raise CertificateError(f"{path}: {key} is {said[:80]!r}; expected {value[:80]!r}")
    return item


def _check_same_key(known: str, name: str, path: Path) -> None:
    if known != name:
        raise CertificateError(f"{path}: is of {known!r}; expected {name!r}")


def _signed(kind: str, fields: Mapping[str, str], key: Ed25519PrivateKey) -> bytes:
    lines = {**fields, "signature": _base64(key.sign(_message(kind, fields)))}
    body = "".join(f'{name} = "{value}"\n' for name, value in lines.items())
    return f"{_COMMENTS[kind]}{kind} = {VERSION}\n{body}".encode()


def _message(kind: str, fields: Mapping[str, str]) -> bytes:
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"syncret {kind} {VERSION}\n{text}".encode()


def _own_key(directory: Path, *, make: bool) -> Ed25519PrivateKey:
    path = directory / "own.key"
    if make and not path.exists():
        _make_folder(directory)
        write_new(path, private_pem(Ed25519PrivateKey.generate()), secret=True)
    key = load_key(path)
    if not isinstance(key, Ed25519PrivateKey):
        raise CertificateError(f"{path}: key of another kind; expected Ed25519")
    return key


def _own_seal(directory: Path, *, make: bool) -> SealKey:
    path = directory / SEAL_FILE
    if make and not path.exists():
        _make_folder(directory)
        write_new(path, SealKey.generate().pem(), secret=True)
    return SealKey.load(path)


def _make_folder(directory: Path) -> None:
    with disk_errors(directory, "made"):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)


def _der(key: Ed25519PrivateKey) -> bytes:
    return _spki(key.public_key())


def _spki(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CertificateError("public or signature is not base64") from error
