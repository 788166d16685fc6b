"""Replacement of a service's key or certificate: announced under the old key, confirmed by the others, then at work.

``announce`` makes the next certificate, and for a rotation the next key, beside those at work; ``Announcement`` is
public, signed with the key at work, and part of the server's state (`parties.service.peer_state`). Another server keeps
it as a confirmed successor (``confirm``): of a renewed certificate, whose key is the pinned one, at once; of a new key
once its operator has typed the words that the other operator read out. ``activate`` puts the next key to work when both
others have confirmed it, and ``promote`` retires the former one elsewhere when the server presents the next. A retired
key is never accepted again, so that neither a stolen key nor an old folder brings it back.

An announcement shows that somebody has the key at work, which may be a thief; words show whose it is. It names the key
that it replaces, so that an old announcement is void after a rotation. Studies keep the key that they began with: each
has a copy in its folder, or a link to its file outside. Secret: ``keys/next.key``, mode 0600, or the file that it leads
to. Public: everything else.
"""

import base64
import binascii
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from parties.foundation.errors import CertificateError, ConfigError, StoreError
from parties.foundation.times import iso_time
from parties.identity.tls import is_outside, load_key, private_pem, public_pem, self_signed
from parties.service.identity import (
    CARDS,
    KEYS,
    MAX_SERVER_FILE_BYTES,
    SERVERS,
    FormerKey,
    ServerFile,
    ServiceIdentity,
    former_keys,
    link_key,
    server_path,
    signing_key,
    successor_path,
    write_former,
    write_known,
)
from parties.storage.files import disk_errors, write_atomic, write_new
from protocols.durable import sync

VERSION = 1
MAX_ANNOUNCEMENT_BYTES = 2 * MAX_SERVER_FILE_BYTES
CERTIFICATE_DAYS = 3_650
_MAX_ROTATIONS = 1_000
_NEXT_KEY, _ANNOUNCED, _ACTIVATING = "next.key", "next.json", "activating.json"
_WITHDRAWN = "withdrawn.json"
_ROTATIONS = "rotations"
"""Subfolder of a service with the announcements of its own keys that were put to work, by the hash of the former."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """A server's next public file, ``server`` with its ``content``, in place of the key with the hash ``former``.

    ``text`` is the announcement with its signature.
    """

    server: ServerFile
    content: str
    former: str
    text: str

    @property
    def renews(self) -> bool:
        """True if the key stays, and only its certificate is new."""
        return self.server.key == self.former

    @classmethod
    def parse(cls, text: str, known: ServerFile) -> "Announcement":
        """Returns the announcement of the ``known`` server.

        Raises CertificateError: malformed, of another server, signed by another key, or of a key that is not the one
        at work.
        """
        made = cls.signed_by(text, known)
        found = made.server
        if (str(found.mesh), str(found.ingest)) != (str(known.mesh), str(known.ingest)):
            raise CertificateError(
                f"{known.name}'s announcement of a key has another address; expected the known ones"
            )
        return made

    @classmethod
    def signed_by(cls, text: str, known: ServerFile) -> "Announcement":
        """Returns the announcement of the ``known`` server, of any addresses. Raises CertificateError as ``parse``."""
        where = f"{known.name}'s announcement of a key"
        server, former, signature = _parsed(text, where)
        if former != known.key:
            raise CertificateError(
                f"{where} replaces the key {former[:16]}...; expected {known.key[:16]}..., the one at work"
            )
        public = known.certificate.public_key()
        try:
            if not isinstance(public, Ed25519PublicKey):
                raise CertificateError(f"{where} is of another kind of key; expected Ed25519")
            public.verify(signature, _message(former, server))
        except InvalidSignature as error:
            raise CertificateError(
                f"{where} is not signed with its key; expected the one at work"
            ) from error
        found = read_server_file(server, where)
        if found.name != known.name:
            raise CertificateError(f"{where} has another name; expected its own")
        return cls(found, server, former, text)


def read_server_file(content: str, where: str) -> ServerFile:
    """Reads a server's public file from a text of another server or a person. Raises CertificateError."""
    try:
        return ServerFile.parse(content.encode(), where)
    except UnicodeEncodeError as error:
        raise CertificateError(
            f"{where} is no text; expected what `syncret serve` makes"
        ) from error


def _parsed(text: str, where: str) -> tuple[str, str, bytes]:
    try:
        document = json.loads(text) if len(text) <= MAX_ANNOUNCEMENT_BYTES else None
        match document:
            case {
                "rotation": 1,
                "former": str() as former,
                "server": str() as server,
                "signature": str() as signature,
                **rest,
            } if not rest:
                # JSON has characters that no text may have, which ends here and not in a signature's message.
                _message(former, server)
                return server, former, base64.b64decode(signature, validate=True)
    except (ValueError, RecursionError, binascii.Error) as error:
        raise CertificateError(f"{where} cannot be read") from error
    raise CertificateError(f"{where} has an unknown form; expected version {VERSION}")


def _message(former: str, server: str) -> bytes:
    return f"syncret rotation {VERSION}\n{former}\n{server}".encode()


# At the server whose key or certificate is replaced.


def announced(identity: ServiceIdentity) -> Announcement | None:
    """Returns this server's own announcement; None if there is none. Raises CertificateError, StoreError."""
    path = identity.folder / KEYS / _ANNOUNCED
    try:
        with disk_errors(path, "read"):
            text = path.read_text(encoding="utf-8")
    except StoreError:
        if not path.exists():
            return None
        raise
    return Announcement.parse(text, identity.own)


def announce(
    identity: ServiceIdentity,
    *,
    new_key: bool,
    days: float = CERTIFICATE_DAYS,
    key_file: Path | None = None,
) -> Announcement:
    """Makes this server's next certificate, with a ``new_key`` or the same, and announces it.

    The new key is made here, or is that of a ``key_file`` outside. An announcement that is there stays. Raises
    ConfigError if that is of the other kind; CertificateError, StoreError.
    """
    keys, own = identity.folder / KEYS, identity.own
    before = announced(identity)
    if before is not None:
        if before.renews == new_key:
            what = "a renewed certificate" if before.renews else "a new key"
            raise ConfigError(
                "service",
                str(keys),
                f"{what} is announced already; expected its end, or --withdraw",
            )
        return before
    at_work = signing_key(keys / "own.key")
    _finish_withdrawal(keys)
    key = _next_key(keys / _NEXT_KEY, key_file) if new_key else at_work
    if new_key and key.public_key() == at_work.public_key():
        with disk_errors(keys, "deleted"):
            (keys / _NEXT_KEY).unlink()
        raise CertificateError(f"{key_file}: has the key at work; expected a new one")
    server = ServerFile(own.name, own.mesh, own.ingest, self_signed(own.name, key, days))
    text = server.signed(key)
    signature = base64.b64encode(at_work.sign(_message(own.key, text))).decode("ascii")
    document = {"rotation": VERSION, "former": own.key, "server": text, "signature": signature}
    write_atomic(keys / _ANNOUNCED, json.dumps(document) + "\n", durable=True)
    made = announced(identity)
    if made is None:
        raise StoreError(keys / _ANNOUNCED, "is gone; expected the announcement just made")
    return made


def withdraw(identity: ServiceIdentity) -> bool:
    """Takes this server's announcement back, with its next key; returns False if there is none. Raises StoreError."""
    keys = identity.folder / KEYS
    try:
        # Either this takes the announcement, or an activation in the running service does.
        with disk_errors(keys):
            os.replace(keys / _ANNOUNCED, keys / _WITHDRAWN)
    except StoreError:
        if (keys / _ANNOUNCED).exists():
            raise
        return False
    _finish_withdrawal(keys)
    return True


def _finish_withdrawal(keys: Path) -> None:
    """Deletes the key of an announcement that was taken back. Raises StoreError."""
    if (keys / _WITHDRAWN).exists():
        with disk_errors(keys, "deleted"):
            (keys / _NEXT_KEY).unlink(missing_ok=True)
            (keys / _WITHDRAWN).unlink()


def activate(identity: ServiceIdentity) -> None:
    """Puts the announced key or certificate to work. A kill at any moment leaves it to ``finish_activation``.

    Raises StoreError, CertificateError, ConfigError.
    """
    keys = identity.folder / KEYS
    with disk_errors(keys):
        os.replace(keys / _ANNOUNCED, keys / _ACTIVATING)
        sync(keys)
    finish_activation(identity.folder)
    identity.reload()


def finish_activation(folder: Path) -> None:
    """Goes on with an activation that was begun; does nothing without one. Raises StoreError, CertificateError."""
    keys = folder / KEYS
    if not (keys / _ACTIVATING).exists():
        return
    with disk_errors(keys, "read"):
        text = (keys / _ACTIVATING).read_text(encoding="utf-8")
    content, former, _ = _parsed(text, str(keys / _ACTIVATING))
    server = read_server_file(content, str(keys / _ACTIVATING))
    rotates = server.key != former
    waits = os.path.lexists(keys / _NEXT_KEY)
    if not waits and not _is_at_work(keys / "own.key", server):
        raise StoreError(keys / _NEXT_KEY, f"is gone; expected the key {server.key[:16]}...")
    with disk_errors(keys):
        if rotates and waits:
            os.replace(keys / _NEXT_KEY, keys / "own.key")
            sync(keys)
    write_atomic(keys / "own.crt", public_pem(server.certificate), durable=True)
    write_atomic(folder / f"{server.name}.server", content)
    known = _known(folder)
    pid = next(pid for pid, each in known.items() if each.name == server.name)
    _replace(folder, pid, server, content=content)
    if rotates:
        _keep_announcement(folder, former, text)
        # A card with the former key is for no study any more.
        shutil.rmtree(folder / CARDS, ignore_errors=True)
    with disk_errors(keys, "deleted"):
        (keys / _ACTIVATING).unlink()


def _is_at_work(path: Path, server: ServerFile) -> bool:
    """True if the key at ``path`` is the ``server``'s. One outside may be away, and its link was put there before."""
    return is_outside(path) or load_key(path).public_key() == server.certificate.public_key()


def _keep_announcement(folder: Path, former: str, text: str) -> None:
    with disk_errors(folder / _ROTATIONS, "made"):
        (folder / _ROTATIONS).mkdir(exist_ok=True)
    write_atomic(folder / _ROTATIONS / f"{former}.json", text, durable=True)


def announcements_since(identity: ServiceIdentity, key: str) -> list[str]:
    """Returns the announcements by which the key at work has replaced ``key``, in their order; empty if one is missing.

    Raises StoreError.
    """
    found: list[str] = []
    while key != identity.own.key:
        path = identity.folder / _ROTATIONS / f"{key}.json"
        if not path.exists() or len(found) == _MAX_ROTATIONS:
            return []
        with disk_errors(path, "read"):
            found.append(path.read_text(encoding="utf-8"))
        try:
            key = read_server_file(_parsed(found[-1], str(path))[0], str(path)).key
        except CertificateError:
            return []
    return found


def _next_key(path: Path, file: Path | None) -> Ed25519PrivateKey:
    """Returns the next key, which a kill may have left without an announcement.

    A link that was left so may be of a backup of somebody else: it is taken with its ``file`` alone.
    """
    if file is not None:
        with disk_errors(path, "deleted"):
            path.unlink(missing_ok=True)
        link_key(path, file)
    elif not os.path.lexists(path):
        write_new(path, private_pem(Ed25519PrivateKey.generate()), secret=True)
    elif is_outside(path):
        raise CertificateError(
            f"{path}: is a link to a key outside, which nobody has announced; expected that key's file (--key), or no "
            "link there"
        )
    return signing_key(path)


# At the other servers.


def confirm(identity: ServiceIdentity, pid: int, content: str, *, at_once: bool = False) -> None:
    """Accepts the server file ``content`` as the successor of server ``pid``, beside what it presents until then.

    With ``at_once`` its former key is retired now, as after a theft. Raises CertificateError, StoreError.
    """
    known = identity.servers[pid]
    server = read_server_file(content, f"{known.name}'s next file")
    if (server.name, str(server.mesh), str(server.ingest)) != (
        known.name,
        str(known.mesh),
        str(known.ingest),
    ):
        raise CertificateError(f"the file has another name or address; expected {known.name}'s own")
    if identity.former_key(server.key) is not None:
        raise CertificateError(f"this key of {server.name} was replaced before; expected a new one")
    path = successor_path(identity.folder, pid, server.name)
    write_atomic(path, content, durable=True)
    identity.successors = {**identity.successors, pid: server}
    if at_once:
        promote(identity, pid)
        return
    _write_accepted(identity)


def forget(identity: ServiceIdentity, pid: int) -> None:
    """Forgets the confirmed successor of server ``pid``. Raises StoreError."""
    with disk_errors(identity.folder, "deleted"):
        successor_path(identity.folder, pid, identity.servers[pid].name).unlink(missing_ok=True)
    identity.successors = {n: s for n, s in identity.successors.items() if n != pid}
    _write_accepted(identity)


def _write_accepted(identity: ServiceIdentity) -> None:
    """Stores what each server may present, and reads the identity again. Raises StoreError."""
    write_known(
        identity.folder,
        [each for number in range(len(identity.servers)) for each in identity.accepted(number)],
    )
    identity.reload()


def promote(identity: ServiceIdentity, pid: int) -> None:
    """Puts the confirmed successor of server ``pid`` in its place, and retires a former key. Raises StoreError."""
    server = identity.servers[pid]
    path = successor_path(identity.folder, pid, server.name)
    with disk_errors(path, "read"):
        content = path.read_text(encoding="utf-8")
    _replace(identity.folder, pid, identity.successors[pid], content=content)
    with disk_errors(path, "deleted"):
        path.unlink()
    identity.reload()


def _replace(folder: Path, pid: int, server: ServerFile, *, content: str) -> None:
    """Makes ``server`` the one known by the number ``pid``; its former key is retired first."""
    known = _known(folder)
    before = known[pid]
    former = former_keys(folder)
    if before.key != server.key and before.key not in {item.key for item in former}:
        write_former(folder, [*former, FormerKey(before.name, before.key, iso_time())])
    write_atomic(server_path(folder, pid, server.name), content, durable=True)
    accepted = {**known, pid: server}
    others = []
    for number, each in known.items():
        path = successor_path(folder, number, each.name)
        if number != pid and path.exists():
            others.append(ServerFile.load(path))
    write_known(folder, [*accepted.values(), *others])


def _known(folder: Path) -> dict[int, ServerFile]:
    return dict(
        enumerate(ServerFile.load(path) for path in sorted((folder / SERVERS).glob("*.server")))
    )
