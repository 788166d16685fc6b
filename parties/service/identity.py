"""Identity of a service and of the two others: keys and public descriptions, exchanged once for all studies.

``ServerFile`` is the public file NAME.server that an operator gives to the two others; ``create_identity`` and
``join_servers`` make and exchange them, and ``ServiceIdentity`` is read at the service's start. The file has the
server's addresses and its certificate, signed with its key, so that comparing the fingerprint with the operator
verifies all of it. Servers authenticate one another by these keys, without an authority; a study's authority certifies
owners only. Keys and certificates are replaced by `parties.service.rotation`; here are the places of what it leaves: a
server's confirmed successor (``servers/PID-NAME.next``) and the keys that nobody accepts any more (``former.json``).

Secret: ``keys/own.key``, made here with mode 0600, or a link to a file outside (`parties.identity.held_key`).
Public: the rest. Source: RFC 5280 through `cryptography`.
"""

import base64
import binascii
import json
import os
import shutil
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from parties.config import Address, CertificateFiles
from parties.crypto.pinned_key import PinnedKey
from parties.crypto.pkcs11_key import TokenKey, uri_pem
from parties.foundation.errors import CertificateError, ConfigError, StoreError
from parties.foundation.untrusted_text import certificate_from_der
from parties.identity.held_key import HeldKey
from parties.identity.join_documents import fingerprint_lines
from parties.identity.tls import (
    check_subject,
    common_name,
    is_outside,
    load_certificate,
    load_key,
    private_pem,
    public_pem,
    self_signed,
)
from parties.storage.files import disk_errors, write_atomic, write_new
from protocols.durable import sync
from protocols.mesh import key_hash

VERSION = 1
MAX_SERVER_FILE_BYTES = 16_384
KEYS, SERVERS = "keys", "servers"
CARDS = "cards"
"""Subfolder of a service with unused cards, whose keys are those of the time when they were made."""
_KNOWN, _FORMER = "known.pem", "former.json"
_VALID_DAYS = 3_650
_FIELDS = ("name", "mesh", "ingest", "certificate", "signature")
_COMMENT = "# A server of studies, for the operators of the two others. Nothing in it is secret.\n"


@dataclass(frozen=True, slots=True)
class ServerFile:
    """A server: its ``name``, addresses for servers (``mesh``) and owners (``ingest``), and its ``certificate``."""

    name: str
    mesh: Address
    ingest: Address
    certificate: x509.Certificate

    @property
    def key(self) -> str:
        """Hex SHA-256 of its public key."""
        return key_hash(self.certificate)

    @property
    def pinned(self) -> PinnedKey:
        """Pinned key of the server."""
        return PinnedKey(self.name, self.key)

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 of its certificate, which a renewal changes without a change of the key."""
        return self.certificate.fingerprint(hashes.SHA256()).hex()

    def lines(self) -> list[str]:
        """Description for people: name, addresses and fingerprint."""
        return [
            f"{self.name} (mesh {self.mesh}, ingest {self.ingest})",
            *fingerprint_lines(self.key),
        ]

    def fields(self) -> dict[str, str]:
        """Returns the signed fields of the file."""
        certificate = self.certificate.public_bytes(Encoding.DER)
        return {
            "name": self.name,
            "mesh": str(self.mesh),
            "ingest": str(self.ingest),
            "certificate": base64.b64encode(certificate).decode("ascii"),
        }

    def signed(self, key: Ed25519PrivateKey) -> str:
        """Returns the file's text."""
        signature = base64.b64encode(key.sign(_message(self.fields()))).decode("ascii")
        lines = {**self.fields(), "signature": signature}
        body = "".join(f'{name} = "{value}"\n' for name, value in lines.items())
        return f"{_COMMENT}server = {VERSION}\n{body}"

    @classmethod
    def load(cls, path: Path) -> "ServerFile":
        """Reads a file. Raises CertificateError, naming it: damaged, altered, or of another version."""
        with disk_errors(path, "read"), path.open("rb") as file:
            return cls.parse(file.read(MAX_SERVER_FILE_BYTES + 1), str(path))

    @classmethod
    def parse(cls, data: bytes, path: str) -> "ServerFile":
        """Parses a file's content; errors call it ``path``. Raises as ``load``."""
        values = _fields(data, path)
        try:
            certificate = certificate_from_der(_decoded(values["certificate"]))
            loaded = cls(
                values["name"],
                Address.parse(values["mesh"]),
                Address.parse(values["ingest"]),
                certificate,
            )
            check_subject(loaded.name)
        except (ValueError, CertificateError) as error:
            raise CertificateError(f"{path}: {error}; expected a server's file") from error
        if loaded.fields() != {key: values[key] for key in _FIELDS[:-1]}:
            raise CertificateError(f"{path}: an address is spelt otherwise than it would be")
        if common_name(certificate, path) != loaded.name:
            raise CertificateError(f"{path}: its certificate has another name; expected its own")
        _verify(path, certificate, values)
        return loaded


def _fields(data: bytes, path: str) -> dict[str, str]:
    try:
        document = tomllib.loads(data.decode()) if len(data) <= MAX_SERVER_FILE_BYTES else {}
    except (ValueError, RecursionError):
        document = {}
    version = document.pop("server", None)
    if version is None:
        raise CertificateError(f"{path}: is no server's file; expected one of `syncret serve init`")
    if version != VERSION or isinstance(version, bool):
        raise CertificateError(
            f"{path}: is of version {str(version)[:20]!r}; expected {VERSION}, this version's server's file"
        )
    values = {key: value for key, value in document.items() if isinstance(value, str)}
    if sorted(values) != sorted(_FIELDS) or len(values) != len(document):
        raise CertificateError(f"{path}: has other values than a server's file has")
    return values


def _verify(path: str, certificate: x509.Certificate, values: Mapping[str, str]) -> None:
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise CertificateError(f"{path}: its key is of another kind; expected Ed25519")
    signature = _decoded(values["signature"])
    try:
        key.verify(signature, _message({name: values[name] for name in _FIELDS[:-1]}))
        certificate.verify_directly_issued_by(certificate)
    except (InvalidSignature, ValueError, TypeError) as error:
        raise CertificateError(
            f"{path}: was altered: its signature is not of this content; expected the file as its server made it"
        ) from error


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CertificateError("a value is not base64") from error


def _message(fields: Mapping[str, str]) -> bytes:
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"syncret server {VERSION}\n{text}".encode()


@dataclass(frozen=True, slots=True)
class FormerKey:
    """A key that the server ``name`` had until the time ``until``, in ISO 8601; nobody accepts it any more."""

    name: str
    key: str
    until: str


@dataclass(slots=True)
class ServiceIdentity:
    """Identity of the service in ``folder``: ``servers`` has the three in order of their numbers, ``pid`` is its own.

    A service for studies of one server has no peers: ``servers`` has only itself. ``reload`` changes it in place when
    a key or a certificate was replaced.

    Attributes:
        successors: Next keys or certificates of the others that were confirmed here, by number.
        former: Keys that were replaced, of all servers.
        held: This server's key, where it lies outside and a running service holds it.
    """

    folder: Path
    servers: tuple[ServerFile, ...]
    pid: int
    successors: Mapping[int, ServerFile] = field(default_factory=dict)
    former: tuple[FormerKey, ...] = ()
    held: HeldKey | None = None

    @property
    def own(self) -> ServerFile:
        """This server."""
        return self.servers[self.pid]

    @property
    def peers(self) -> tuple[int, ...]:
        """Numbers of the other servers."""
        return tuple(pid for pid in range(len(self.servers)) if pid != self.pid)

    @property
    def files(self) -> CertificateFiles:
        """Own certificate and key; the certificates of all servers stand in for an authority."""
        keys = self.folder / KEYS
        key = keys / "own.key" if self.held is None else self.held.path
        return CertificateFiles(self.folder / SERVERS / _KNOWN, keys / "own.crt", key)

    def hold_key(self) -> None:
        """Holds this server's key in memory from now on, where it lies outside. Raises OutsideKeyError."""
        before, path = self.held, self.folder / KEYS / "own.key"
        self.held = HeldKey(path, self.own.certificate.public_key()) if is_outside(path) else None
        if before is not None:
            before.close()

    @classmethod
    def load(cls, folder: Path) -> "ServiceIdentity":
        """Reads the identity that ``create_identity`` and ``join_servers`` made.

        Raises ConfigError, CertificateError, StoreError.
        """
        public = _own_public(folder)
        paths = sorted((folder / SERVERS).glob("*.server"))
        servers = tuple(ServerFile.load(path) for path in paths)
        own = [n for n, item in enumerate(servers) if item.certificate.public_key() == public]
        if not own:
            raise ConfigError(
                "service", str(folder), "knows no servers yet; expected `syncret serve join` before"
            )
        successors = {
            pid: ServerFile.load(path)
            for pid, server in enumerate(servers)
            if (path := successor_path(folder, pid, server.name)).exists()
        }
        return cls(folder, servers, own[0], successors, former_keys(folder))

    def reload(self) -> None:
        """Reads the identity again, after a key or a certificate was replaced. Raises as ``load``."""
        found, before = ServiceIdentity.load(self.folder), self.own.key
        self.servers, self.successors, self.former = found.servers, found.successors, found.former
        if self.held is not None and self.own.key != before:
            self.hold_key()

    def accepted(self, pid: int) -> tuple[ServerFile, ...]:
        """Returns what a server may present: what it has, and a confirmed successor."""
        successor = self.successors.get(pid)
        return (self.servers[pid],) if successor is None else (self.servers[pid], successor)

    def former_key(self, key: str) -> FormerKey | None:
        """Returns the replaced key with this hash; None if it is none."""
        return next((former for former in self.former if former.key == key), None)


def server_path(folder: Path, pid: int, name: str) -> Path:
    """Returns the path of a known server's file in a service's folder."""
    return folder / SERVERS / f"{pid}-{name}.server"


def successor_path(folder: Path, pid: int, name: str) -> Path:
    """Returns the path of a known server's confirmed successor in a service's folder."""
    return folder / SERVERS / f"{pid}-{name}.next"


def former_keys(folder: Path) -> tuple[FormerKey, ...]:
    """Returns the replaced keys. Raises StoreError."""
    path = folder / SERVERS / _FORMER
    if not path.exists():
        return ()
    with disk_errors(path, "read"):
        text = path.read_bytes()
    try:
        return tuple(FormerKey(**item) for item in json.loads(text))
    except (ValueError, TypeError) as error:
        raise StoreError(path, "is damaged; expected a list of replaced keys") from error


def write_former(folder: Path, former: Iterable[FormerKey]) -> None:
    """Stores the replaced keys, durably. Raises StoreError."""
    text = json.dumps([{"name": f.name, "key": f.key, "until": f.until} for f in former])
    write_atomic(folder / SERVERS / _FORMER, f"{text}\n", durable=True)


def write_known(folder: Path, servers: Iterable[ServerFile]) -> None:
    """Stores the certificates that servers may present to this one. Raises StoreError."""
    pem = b"".join(public_pem(server.certificate) for server in servers)
    write_atomic(folder / SERVERS / _KNOWN, pem, durable=True)


def _own_public(folder: Path) -> object:
    """Returns the public key of the server in ``folder``. Raises ConfigError, CertificateError.

    Of a key outside the certificate has it: the file need not be there while nothing is signed.
    """
    path = folder / KEYS / "own.key"
    if is_outside(path):
        return load_certificate(folder / KEYS / "own.crt", "certificate").public_key()
    if not path.exists():
        raise ConfigError(
            "service",
            str(folder),
            "has no server in it; expected the folder of `syncret serve init`, which makes one",
        )
    return load_key(path).public_key()


def create_identity(
    folder: Path, name: str, mesh: Address, ingest: Address, *, key_file: Path | None = None
) -> ServerFile:
    """Makes this server's key and certificate in ``folder``, and its public description; existing files stay.

    With a ``key_file`` the key is that file's, outside, and the folder has a link to it. With other addresses, another
    call makes another description of the same key. Raises CertificateError, StoreError.
    """
    check_subject(name)
    if str(mesh) == str(ingest):
        raise CertificateError("mesh and ingest are the same; expected two addresses")
    keys, path = folder / KEYS, folder / f"{name}.server"
    with disk_errors(folder, "made"):
        keys.mkdir(parents=True, exist_ok=True, mode=0o700)
    if key_file is not None:
        link_key(keys / "own.key", key_file)
    if not os.path.lexists(keys / "own.key"):
        write_new(keys / "own.key", private_pem(Ed25519PrivateKey.generate()), secret=True)
    key = signing_key(keys / "own.key")
    if not (keys / "own.crt").exists():
        write_atomic(keys / "own.crt", public_pem(self_signed(name, key, _VALID_DAYS)))
    certificate = x509.load_pem_x509_certificate((keys / "own.crt").read_bytes())
    if (held := common_name(certificate, keys / "own.crt")) != name:
        raise CertificateError(f"{keys / 'own.crt'}: is of {held!r}; expected {name!r}")
    made = ServerFile(name, mesh, ingest, certificate)
    write_atomic(path, made.signed(key))
    return made


def signing_key(path: Path) -> Ed25519PrivateKey:
    """Returns a server's private key. Raises CertificateError."""
    key = load_key(path)
    if not isinstance(key, Ed25519PrivateKey):
        raise CertificateError(f"{path}: key of another kind; expected Ed25519")
    return key


def link_key(link: Path, file: Path) -> None:
    """Makes ``link`` lead to the key in a file outside; the same link may be there.

    Where ``file`` is the URI of a key in a PKCS#11 token, the URI is kept in its place. Raises CertificateError,
    StoreError.
    """
    if (uri := str(file)).startswith("pkcs11:"):
        try:
            pem = uri_pem(uri)
        except ValueError as error:
            # No part of it is printed: a PIN may be in it.
            raise CertificateError(f"--key pkcs11:...: {error}") from error
        if not link.exists() or link.read_bytes() != pem:
            TokenKey(uri, link)
            write_new(link, pem, secret=True)
        return
    if isinstance(signing_key(file), TokenKey):
        raise CertificateError(
            f"{file}: has the URI of a PKCS#11 key; expected that URI itself in the file's place, or a private key"
        )
    target = str(file.absolute())
    if os.path.lexists(link):
        if is_outside(link) and os.readlink(link) == target:
            return
        raise CertificateError(
            f"{link}: is there already; expected no key, or a link to {target} (a new key: `syncret serve rotate`)"
        )
    with disk_errors(link, "made"):
        link.symlink_to(target)
        sync(link.parent)


def join_servers(folder: Path, files: Sequence[Path]) -> ServiceIdentity:
    """Stores the files of the three servers in the order of their numbers; or its own alone.

    A repetition with other addresses of the same servers is allowed. Raises CertificateError, ConfigError, StoreError.
    """
    servers = [ServerFile.load(path) for path in files]
    if len(servers) not in (1, 3):
        raise CertificateError(
            f"these are {len(servers)} servers; expected three, or this one alone for FLAIM and silos"
        )
    for what in ("name", "key", "mesh", "ingest"):
        values = [str(getattr(server, what)) for server in servers]
        if len(set(values)) != len(values):
            raise CertificateError(f"two servers have the same {what}; expected different ones")
    former = {item.key for item in former_keys(folder)}
    for server in servers:
        if server.key in former:
            raise CertificateError(f"{server.name}: this key was replaced; expected its new file")
    public = _own_public(folder)
    if public not in [server.certificate.public_key() for server in servers]:
        raise CertificateError(
            f"{', '.join(server.name for server in servers)}: none of these is the server in {folder}; expected its "
            "own file among them"
        )
    before = sorted((folder / SERVERS).glob("*.server"))
    known = [ServerFile.load(path).pinned for path in before]
    if known and known != [server.pinned for server in servers]:
        raise StoreError(
            folder / SERVERS,
            f"has {', '.join(pin.name for pin in known)} in it, with their keys; expected the same servers in the "
            "same order, or a new folder: studies of others do not go on here",
        )
    beside = folder / f".{SERVERS}"
    with disk_errors(folder, "made"):
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(mode=0o700)
        accepted = list(servers)
        for pid, (server, path) in enumerate(zip(servers, files, strict=True)):
            (beside / server_path(folder, pid, server.name).name).write_bytes(path.read_bytes())
            confirmed = successor_path(folder, pid, server.name)
            if confirmed.exists() and ServerFile.load(confirmed) != server:
                accepted.append(ServerFile.load(confirmed))
                shutil.copy(confirmed, beside)
        known_pem = b"".join(public_pem(server.certificate) for server in accepted)
        (beside / _KNOWN).write_bytes(known_pem)
        if (folder / SERVERS / _FORMER).exists():
            shutil.copy(folder / SERVERS / _FORMER, beside)
    with disk_errors(folder, "made"):
        shutil.rmtree(folder / SERVERS, ignore_errors=True)
        beside.rename(folder / SERVERS)
    return ServiceIdentity.load(folder)
