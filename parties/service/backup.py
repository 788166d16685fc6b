"""Encrypted backup of a server's folder, and its restoration.

A backup has the folder at one moment (`snapshot`), the operator's release registry, and, on request, the keys; it is a
tar archive in a `parties.crypto.encrypted_file`. A restored server goes on as after a kill at that moment, by the same
rules for a folder that is behind its peers. A registry that still exists takes precedence: a run that has ended stays
without shares, and a run that was charged more since is restored only with ``behind``, for servers whose peers have the
rest.

Secret: everything in a backup; it holds this server's shares, and keeps them after the run has ended and deleted its
own. Public: its size and time. Known limit: without the registry, the information in it is lost.
"""

import contextlib
import io
import json
import os
import secrets
import shutil
import sqlite3
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Self

from parties.crypto.encrypted_file import DecryptingReader, EncryptingWriter, KeyWrapper
from parties.foundation.errors import SealError, StoreError
from parties.foundation.times import iso_time
from parties.foundation.untrusted_text import parse_json
from parties.foundation.version import version
from parties.identity.join_documents import SEAL_FILE
from parties.mpc.replay.log import REPLAY_FOLDER as TAPE
from parties.mpc.storage.bodies import holds_shares
from parties.mpc.storage.store import Store
from parties.service.database import FILE as DATABASE
from parties.service.process_info import LAST_BACKUP
from parties.service.snapshot import (
    KEY_LINKS,
    Snapshot,
    SnapshotOutdated,
    database_copy,
    snapshot,
)
from parties.storage.files import atomic_replacement, disk_errors, write_atomic
from parties.storage.release_registry import ReleaseRegistry
from parties.storage.requested_rounds import count_releases
from protocols.durable import sync

FORM = 1
_MANIFEST, _FOLDER, _KEYS, _REGISTER = "manifest.json", "folder", "keys", "register.sqlite"
_BACKUP_TRIES, _BACKUP_PAUSE_S = 5, 1.0
KEY_ENDINGS = (".key", ".seal", ".p12", ".backup-key", ".secret", ".password")
"""Endings of the names of files with private keys, and of those with the secrets of notifications."""
_SERVICE_KEY = "keys/own.key"
_MAX_MANIFEST = 1 << 24
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class BackedUpStore:
    """A run's store in a backup: path in the folder, configuration digest, identity, number of charges and requests."""

    path: str
    config: str
    store: str
    charges: int


@dataclass(frozen=True, slots=True)
class BackupContents:
    """Contents of a backup, by the files in it: their number and ``size`` in bytes.

    Attributes:
        private_keys: Paths of private keys, in the folder or in the keys' own.
        outside: Paths of private keys of which only the link to a file outside is in it.
        database: True if the service's own database is in it.
        register: True if the release registry is in it.
    """

    files: int
    size: int
    private_keys: tuple[str, ...]
    outside: tuple[str, ...]
    database: bool
    register: bool

    @classmethod
    def of(cls, entries: Sequence[tarfile.TarInfo]) -> Self:
        """Returns the contents of an archive with these entries."""
        folders, keys, outside = (f"{_FOLDER}/", f"{_KEYS}/"), list[str](), list[str]()
        sizes = {entry.name: entry.size for entry in entries if entry.name != _MANIFEST}
        links = {entry.name for entry in entries if entry.issym()}
        for name in sizes:
            if name.startswith(folders) and name.endswith(KEY_ENDINGS):
                (outside if name in links else keys).append(name.removeprefix(folders[0]))
        return cls(
            len(sizes),
            sum(sizes.values()),
            tuple(sorted(keys)),
            tuple(sorted(outside)),
            f"{_FOLDER}/{DATABASE}" in sizes,
            _REGISTER in sizes,
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """Statement in a backup: the ``folder``'s name, its time, the ``syncret`` version, the stores.

    ``keys``: a folder of keys is in it beside the server's own folder. ``contents`` are what was seen in the archive,
    and no part of it.
    """

    folder: str
    made_at: str
    syncret: str
    stores: tuple[BackedUpStore, ...]
    keys: bool
    form: int = FORM
    contents: BackupContents | None = field(default=None, compare=False)

    def stored(self) -> bytes:
        """Returns the manifest as it is in the archive."""
        document = asdict(self)
        del document["contents"]
        return json.dumps(document).encode()


def back_up(
    folder: Path,
    to: Path,
    opener: KeyWrapper,
    *,
    keys: Path | None = None,
    register: Path | None = None,
) -> Manifest:
    """Copies ``folder`` into the new file ``to``; its server may run meanwhile. Raises StoreError.

    ``keys`` and ``register`` are included if they are given and exist.
    """
    if not folder.is_dir():
        raise StoreError(folder, "is no folder; expected a server's (the --dir of its command)")
    if to.exists():
        raise StoreError(to, "is there already; expected a new file")
    if to.absolute().is_relative_to(folder.absolute()):
        raise StoreError(to, "is in the folder of which it is a backup; expected a place elsewhere")
    for _ in range(_BACKUP_TRIES):
        try:
            made = _write_backup(folder, to, opener, keys=keys, register=register)
            # The backup is there, also where the folder's disk is full.
            with contextlib.suppress(StoreError):
                write_atomic(folder / LAST_BACKUP, f"{made.made_at}\n")
            return made
        except SnapshotOutdated:
            time.sleep(_BACKUP_PAUSE_S)
    raise StoreError(
        folder, "went on faster than it could be copied; expected a pause between two rounds"
    )


def _write_backup(
    folder: Path, to: Path, opener: KeyWrapper, *, keys: Path | None, register: Path | None
) -> Manifest:
    parts = {_FOLDER: snapshot(folder)}
    if keys is not None:
        parts[_KEYS] = snapshot(keys)
    stores = tuple(_stores(parts[_FOLDER].databases))
    made_at = iso_time()
    manifest = Manifest(folder.name, made_at, version(), stores, keys is not None)
    with atomic_replacement(to, durable=True, secret=True) as beside, beside.open("wb") as file:
        sink = EncryptingWriter(file, opener)
        with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            _add(archive, _MANIFEST, manifest.stored())
            if register is not None and register.exists():
                _add(archive, _REGISTER, database_copy(register))
            for prefix, content in parts.items():
                _add_all(archive, prefix, content)
            entries = archive.getmembers()
        sink.finish()
    return replace(manifest, contents=BackupContents.of(entries))


def _add_all(archive: tarfile.TarFile, prefix: str, content: Snapshot) -> None:
    for name, data in content.databases.items():
        _add(archive, f"{prefix}/{name}", data)
    for name in content.files:
        with content.read(name) as (file, size):
            archive.addfile(_entry(f"{prefix}/{name}", size), file)
    for name, target in content.links.items():
        entry = _entry(f"{prefix}/{name}", 0)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        archive.addfile(entry)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    archive.addfile(_entry(name, len(data)), io.BytesIO(data))


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, 0o600, int(time.time())
    return entry


def _stores(databases: Mapping[str, bytes]) -> Iterator[BackedUpStore]:
    """Yields the databases that have a ledger."""
    for name, data in databases.items():
        with contextlib.closing(sqlite3.connect(":memory:")) as db:
            with disk_errors(Path(name), "read"):
                db.deserialize(data)
                tables = {row[0] for row in db.execute("SELECT name FROM sqlite_schema")}
                if not tables >= {"meta", "ledger"}:
                    continue
                meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
                charges = count_releases(db)
            yield BackedUpStore(
                name, meta.get("config_digest", ""), meta.get("identity", ""), charges
            )


# Restoring


def restore(
    file: Path,
    to: Path,
    opener: KeyWrapper,
    *,
    keys: Path | None = None,
    register: Path,
    behind: bool = False,
) -> Manifest:
    """Restores the folder ``to`` from a backup, and ``keys`` if it has some; either completely or not at all.

    The backup's registry is installed at ``register`` if no file is there. Runs that have ended since are restored
    without their secrets.

    Raises StoreError: a target exists, or the registry shows later charges; SealError if the file does not decrypt.
    """
    for path in (to, keys):
        if path is not None and path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise StoreError(path, "is there already; expected the name of a new folder")
    with _temporary_folder(to) as folder:
        manifest, links = _unpack(file, folder, opener)
        if keys is not None and not manifest.keys:
            raise StoreError(file, "has no keys in it; expected one that was made with --keys")
        for kept in _ended_runs(file, manifest, register, behind=behind):
            _scrub(folder / _FOLDER, kept)
        _make_links(folder, links)
        _install_registry(folder / _REGISTER, register)
        if keys is not None:
            _move(folder / _KEYS, keys)
        _move(folder / _FOLDER, to)
    return manifest


def manifest_of(file: Path, opener: KeyWrapper) -> Manifest:
    """Returns a backup's manifest after all of the backup was read and decrypted. Raises StoreError, SealError."""
    with _archive(file, opener) as (archive, entries):
        manifest = _manifest(file, archive, next(entries, None))
        found = list(entries)
    return replace(manifest, contents=BackupContents.of(found))


@contextlib.contextmanager
def _archive(
    file: Path, opener: KeyWrapper
) -> Iterator[tuple[tarfile.TarFile, Iterator[tarfile.TarInfo]]]:
    """Opens a backup's archive and verifies that it ends where its file ends. Raises StoreError, SealError."""
    with disk_errors(file, "read"), file.open("rb") as raw:
        try:
            source = io.BufferedReader(DecryptingReader(raw, opener), _CHUNK)
            with tarfile.open(fileobj=source, mode="r|") as archive:
                yield archive, iter(archive)
                # The rest of the file has to decrypt, too: the file may have been cut off.
                while source.read(_CHUNK):
                    pass
        except (tarfile.TarError, SealError) as error:
            raise SealError(f"{file}: {error}") from error


def _unpack(
    file: Path, folder: Path, opener: KeyWrapper
) -> tuple[Manifest, Mapping[tuple[str, ...], str]]:
    """Unpacks a backup's files, and returns its links' targets by path. Raises StoreError, SealError."""
    links: dict[tuple[str, ...], str] = {}
    with _archive(file, opener) as (archive, entries):
        manifest, found = _manifest(file, archive, next(entries, None)), []
        for entry in entries:
            found.append(entry)
            parts = _safe_parts(file, entry)
            if entry.issym():
                links[parts] = entry.linkname
                continue
            target = folder.joinpath(*parts)
            content = archive.extractfile(entry)
            if content is None:
                raise _unexpected_entry(file, entry)
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_replacement(target, secret=True) as beside, beside.open("wb") as out:
                shutil.copyfileobj(content, out, _CHUNK)
    for entry in found:
        parts = _safe_parts(file, entry)
        if any(parts[:end] in links for end in range(1, len(parts))):
            raise _unexpected_entry(file, entry)
    (folder / _FOLDER).mkdir(exist_ok=True)
    return replace(manifest, contents=BackupContents.of(found)), links


def _make_links(folder: Path, links: Mapping[tuple[str, ...], str]) -> None:
    """Makes the links to keys outside, and what was unpacked its owner's alone; durable on return.

    Last, and never in the place of something: nothing of an archive is written or deleted through a link.
    """
    for parts, linked in links.items():
        target = folder.joinpath(*parts)
        with disk_errors(target, "made"):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(linked)
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    # Once for all files, of which there may be thousands.
    os.sync()


def _safe_parts(file: Path, entry: tarfile.TarInfo) -> tuple[str, ...]:
    """Returns the path of an archive entry.

    Raises StoreError for links other than to keys outside, and for names that lead out of the backup.
    """
    parts = PurePosixPath(entry.name).parts
    below = len(parts) > 1 and parts[0] in (_FOLDER, _KEYS)
    known = below or parts == (_REGISTER,)
    key = entry.issym() and below and parts[-1] in KEY_LINKS and entry.linkname.startswith("/")
    if not (entry.isreg() or key) or not known or any(part in ("..", "/") for part in parts):
        raise _unexpected_entry(file, entry)
    return parts


def _unexpected_entry(file: Path, entry: tarfile.TarInfo) -> StoreError:
    return StoreError(file, f"has {entry.name[:80]!r} in it, which no copy has; expected a backup")


def _manifest(file: Path, archive: tarfile.TarFile, entry: tarfile.TarInfo | None) -> Manifest:
    """Parses the manifest. Raises StoreError for another format."""
    content = None
    if entry is not None and entry.name == _MANIFEST and entry.size <= _MAX_MANIFEST:
        content = archive.extractfile(entry)
    said = content.read() if content is not None else b"{}"
    try:
        document = parse_json(said)
        form = document.get("form")
        if form == FORM:
            stores = tuple(_store_from(kept) for kept in document.pop("stores"))
            if not any(_leads_out(kept.path) for kept in stores):
                return _manifest_from(document, stores)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # The public key is enough to write such a file.
        raise StoreError(file, "has a manifest that none of ours has; expected a backup") from error
    if form == FORM:
        raise StoreError(file, "says that a run is outside of its folder; expected a backup")
    raise StoreError(
        file, f"is of form {str(form)[:20]}; expected {FORM}, that of syncret {version()}"
    )


def _manifest_from(document: Mapping[str, object], stores: tuple[BackedUpStore, ...]) -> Manifest:
    """Returns the manifest. Raises ValueError for a document of another shape."""
    match document:
        case {
            "folder": str() as folder,
            "made_at": str() as made_at,
            "syncret": str() as made_by,
            "keys": bool() as keys,
        } if len(document) == 5:
            return Manifest(folder, made_at, made_by, stores, keys)
    raise ValueError("a copy's entry has another form")


def _store_from(said: Mapping[str, object]) -> BackedUpStore:
    """Returns a store's entry. Raises ValueError for a document of another shape."""
    match said:
        case {
            "path": str() as path,
            "config": str() as config,
            "store": str() as store,
            "charges": int() as charges,
        } if len(said) == 4:
            return BackedUpStore(path, config, store, charges)
    raise ValueError("a store's entry has another form")


def _leads_out(name: object) -> bool:
    return not isinstance(name, str) or bool({"..", "/"} & set(PurePosixPath(name).parts))


def _ended_runs(
    file: Path, manifest: Manifest, register: Path, *, behind: bool
) -> list[BackedUpStore]:
    """Returns the runs that have ended since the backup.

    Raises StoreError if all runs have ended, and nothing but runs is in it, and, unless ``behind``, if one
    was charged more since.
    """
    if not register.exists():
        return []
    known, over = ReleaseRegistry(register), []
    for kept in manifest.stores:
        record = known.record(kept.config, kept.store)
        if record is None:
            continue
        where = f"the run in {kept.path} of the backup of {manifest.made_at}"
        if record.ended:
            over.append(kept)
        elif record.charges > kept.charges and not behind:
            raise StoreError(
                file,
                f"{where} was charged {kept.charges} times by then, and {record.charges} times by now ({register}): "
                "restored, its ledger would know less than was released. Expected a newer backup; or, where the two "
                "other servers still have their folders, --behind: the ledger is brought up to theirs when they meet",
            )
    if over and len(over) == len(manifest.stores) and not _is_of_service(manifest):
        raise StoreError(
            file,
            f"all runs of the backup of {manifest.made_at} have ended since (by {register}): their shares were deleted "
            "and stay so. Transcripts and results are where the runs were; expected no restore of them",
        )
    return over


def _is_of_service(manifest: Manifest) -> bool:
    """True if a backup has a service's own key, or its link, and so more than the runs in it."""
    contents = manifest.contents
    return contents is not None and _SERVICE_KEY in (*contents.private_keys, *contents.outside)


def _scrub(folder: Path, kept: BackedUpStore) -> None:
    """Removes the shares, the recording and the sealing key of a run that has ended, as its end did."""
    store = (folder / kept.path).parent
    if holds_shares(store):
        with Store(store, kept.config) as opened:
            opened.state.end()
            opened.discard_shares()
    with disk_errors(store, "deleted"):
        shutil.rmtree(store.parent / TAPE, ignore_errors=True)
        (store.parent.parent / "tls" / SEAL_FILE).unlink(missing_ok=True)


def _install_registry(copy: Path, register: Path) -> None:
    if copy.exists() and not register.exists():
        with disk_errors(register, "made"):
            register.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _move(copy, register)


@contextlib.contextmanager
def _temporary_folder(path: Path) -> Iterator[Path]:
    """Yields a folder beside ``path``, and removes it afterwards. Raises StoreError."""
    folder = path.absolute().with_name(f".{path.name}.{secrets.token_hex(4)}")
    with disk_errors(folder, "made"):
        try:
            folder.mkdir(parents=True, mode=0o700)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _move(source: Path, target: Path) -> None:
    """Moves to a path that may be on another disk; durable on return."""
    with disk_errors(target):
        if target.is_dir():
            target.rmdir()
        shutil.move(source, target)
        sync(target.parent)
