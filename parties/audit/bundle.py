"""Bundles: a run's public files in one zip file, written from a run folder and unpacked for an audit.

A bundle has the files that an audit reads: transcripts/, certificates/, model/, config.toml, report.json, report.html,
synthetic.csv; and the documents for readers of the table (`parties.audit.checks.documents`). An archive (.zip, .tar.gz,
.tar) may have further files, which are not unpacked but named, and may have all files in one folder. Archives are not
trusted: all members are plain files with plain names; only members in the places above are unpacked, no name comes
twice, and no more than MAX_BYTES bytes and MAX_FILES files, counted while unpacking. A zip file has its members one
behind the other and nothing between them, so that every program reads the same of it. All files in a bundle are public;
keys are never put into one. Results of a run between silos have no fixed names: they are the files at the top that
report.json lists, and an audit holds them against the digests that the server recorded. An archive of tables with keys
has study.toml, report, documents and the tables that it names at the top, and views/NAME/ with the files of a run for
each of these tables.
"""

import contextlib
import gzip
import io
import lzma
import struct
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO

from parties.config import START_FOLDER
from parties.foundation.errors import StoreError
from parties.foundation.untrusted_text import parse_json, parse_toml
from parties.local.keyed_run import STUDY_FILE, VIEWS
from parties.session.result_digests import MODEL_FOLDER, TABLE_FILE
from parties.storage.files import atomic_replacement, disk_errors

TRANSCRIPTS, CERTIFICATES = "transcripts", "certificates"
CONFIG_FILE, REPORT_FILE, PAGE_FILE = "config.toml", "report.json", "report.html"
SCHEMA, CARD, TERMS, PACKAGE = "schema.json", "model-card.md", "terms.txt", "datapackage.json"
DOCUMENTS = (SCHEMA, CARD, TERMS, PACKAGE)
"""Documents that a bundle has besides the files of the run."""
_FILES = (CONFIG_FILE, REPORT_FILE, PAGE_FILE, TABLE_FILE)
CERTIFICATE_SUFFIXES = (".crt", ".pem")
_FOLDERS = {
    TRANSCRIPTS: (".jsonl",),
    CERTIFICATES: CERTIFICATE_SUFFIXES,
    MODEL_FOLDER: (".json", ".npz"),
    START_FOLDER: (".json", ".npz"),
}
"""File suffixes in each folder of a run; other files, such as keys, never go into a bundle."""
_OWN_TRANSCRIPT, _MARK = "transcript.jsonl", "run.json"
"""A server's transcript in its own folder, and the mark of a trial."""
_SECRET = b"PRIVATE KEY-----"
"""Start of a private key in a file of any name."""
MAX_BYTES = 1 << 32
MAX_FILES = 4096
_CHUNK = _LONGEST = 1 << 20
"""Maximum number of bytes in memory at once; no header of an archive is longer."""
_ZIP_STARTS = (b"PK\3\4", b"PK\5\6")
_LOCAL_HEADER = struct.Struct("<4s22x2H")
"""Header before a member's data in a zip file, with the lengths of its name and of its extra field."""
_UTF_8 = 0x800
"""Flag of a member whose name is UTF-8."""
_EXTRA_HEADER = struct.Struct("<2H")
_PLAIN_FIELDS = {0x0001, 0x000A, 0x5455, 0x5855, 0x7855, 0x7875}
"""Extra fields with sizes beyond 32 bits, times and numbers of users: none changes a member's name or content."""
_DESCRIPTOR_BYTES = 24
"""Maximum length of a member's sizes behind its data."""
_FIRST_TIME = (1980, 1, 1, 0, 0, 0)
_DAMAGES = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    IndexError,
    OverflowError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
)
"""Exceptions from reading an archive that is damaged, encrypted or packed in an unknown way."""


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """Member of an archive: its name, a flag for plain files, and a function that opens it."""

    name: str
    plain: bool
    open: Callable[[], IO[bytes]]


@dataclass(frozen=True, slots=True)
class UnpackedRun:
    """A run's ``folder``, and the names of an archive's other files, which were ``left_out`` when it was unpacked."""

    folder: Path
    left_out: tuple[str, ...] = ()


def public_files(
    run: Path, *, certificates: Path | None = None, one_server: bool = False
) -> dict[str, Path]:
    """Returns the public files of the run in folder ``run`` by their names in a bundle.

    ``certificates`` is the folder of the certificates if they are elsewhere. A run with ``one_server``, of FLAIM, may
    be the server's own folder. Raises StoreError if a run with servers of its own has no transcripts, or if a private
    key is among the certificates.
    """
    found = {name: run / name for name in _FILES if (run / name).is_file()}
    folders = {name: run / name for name in _FOLDERS}
    if certificates is not None:
        folders[CERTIFICATES] = certificates
    for folder, path_in_bundle in folders.items():
        for path in sorted(path_in_bundle.glob("*")):
            if path.is_file() and path.suffix in _FOLDERS[folder]:
                if folder == CERTIFICATES and _SECRET in path.read_bytes():
                    raise StoreError(path, "holds a private key; expected certificates alone")
                found[f"{folder}/{path.name}"] = path
    if not folders[TRANSCRIPTS].is_dir() and one_server and (run / _OWN_TRANSCRIPT).is_file():
        found[f"{TRANSCRIPTS}/server.jsonl"] = run / _OWN_TRANSCRIPT
    if not any(name.startswith(f"{TRANSCRIPTS}/") for name in found) and not _in_one_process(run):
        raise StoreError(run, f"has no {TRANSCRIPTS}/; {_expected(run)}")
    return found


def check_bundle_path(out: Path, *, overwrite: bool) -> None:
    """Raises StoreError if ``write_bundle`` would not write to ``out``."""
    if out.suffix != ".zip":
        raise StoreError(out, "cannot be a bundle; expected a name that ends in .zip")
    if not overwrite and (out.exists() or out.is_symlink()):
        raise StoreError(out, "is there already; expected a new name, or --overwrite")


def write_bundle(
    files: Mapping[str, Path],
    out: Path,
    *,
    documents: Mapping[str, bytes] | None = None,
    overwrite: bool = False,
) -> list[str]:
    """Writes ``files`` and ``documents`` to the zip file ``out`` and returns all names.

    Documents replace files of the same name. The same contents make the same bytes. Raises StoreError, also for a file
    that is there already unless ``overwrite``.
    """
    check_bundle_path(out, overwrite=overwrite)
    texts = documents or {}
    names = sorted({*files, *texts})
    with (
        atomic_replacement(out) as beside,
        zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in names:
            entry = zipfile.ZipInfo(name, _FIRST_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            if name in texts:
                archive.writestr(entry, texts[name])
                continue
            with files[name].open("rb") as source, archive.open(entry, "w") as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
    return names


def _in_one_process(run: Path) -> bool:
    """True for a finished run without servers that write transcripts: central AIM, or FLAIM simulated."""
    there = (run / _MARK).is_file() and (run / TABLE_FILE).is_file()
    return there and not (run / CERTIFICATES).exists()


def _expected(run: Path) -> str:
    if (run / _OWN_TRANSCRIPT).is_file():
        return "expected all three servers' there, as party-0.jsonl to party-2.jsonl"
    return "expected the folder of a finished run"


@contextlib.contextmanager
def unpacked_run(path: Path) -> Iterator[UnpackedRun]:
    """Yields a run's folder: ``path`` if it is one, else a temporary folder with the content of the archive ``path``.

    Raises StoreError if it is neither, or an archive that cannot be trusted.
    """
    if path.is_dir():
        yield UnpackedRun(path)
        return
    if not path.is_file():
        raise StoreError(
            path, "is not there; expected a run's folder, a bundle or an archive of one"
        )
    with tempfile.TemporaryDirectory(prefix="syncret-audit-") as name:
        folder = Path(name)
        try:
            with _members(path) as members:
                root = _keyed_root(path, (each.name for each in islice(members, MAX_FILES)))
            layout = _Layout() if root is None else _KeyedLayout(root)
            with _members(path) as members:
                left_out = _extract(path, members, folder, layout=layout)
        except _DAMAGES as error:
            raise StoreError(
                path, f"cannot be unpacked: {type(error).__name__}; expected a whole archive"
            ) from error
        yield UnpackedRun(folder, left_out)


@contextlib.contextmanager
def _members(path: Path) -> Iterator[Iterator[ArchiveMember]]:
    """Yields the members of an archive, whose kind is recognised by its content and not by its name."""
    with path.open("rb") as file:
        start = file.read(4)
    # A tar with a model, which is a zip file, at its end would pass `zipfile.is_zipfile`.
    if start in _ZIP_STARTS:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            _require_one_reading(path, archive, file)
            yield (_in_zip(archive, entry) for entry in archive.infolist() if not entry.is_dir())
        return
    packed = start.startswith(b"\x1f\x8b")
    with (
        gzip.open(path) if packed else path.open("rb") as stream,
        _tar(path, _ChunkedReader(stream)) as archive,
    ):
        yield (_in_tar(archive, entry) for entry in archive if not entry.isdir())


def _require_one_reading(path: Path, archive: zipfile.ZipFile, file: IO[bytes]) -> None:
    """Raises StoreError for a zip file that other programs may read differently.

    Some programs go by the directory at the end, some by the headers before the members. Both see the same members if
    these follow one another from the first byte to the directory, under the same names. A name ends at a zero byte here
    and not elsewhere; an extra field may give a member another name, and a comment may look like a second directory.
    """
    if archive.comment:
        raise StoreError(path, "has a comment; expected a plain zip file")
    at = 0
    for entry in sorted(archive.infolist(), key=lambda entry: entry.header_offset):
        gap = entry.header_offset - at
        if not 0 <= gap <= (_DESCRIPTOR_BYTES if at else 0) or "\0" in entry.orig_filename:
            raise StoreError(path, "hides something between its files; expected a plain zip file")
        file.seek(entry.header_offset)
        mark, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        if mark != b"PK\3\4":
            raise zipfile.BadZipFile("no header before a member")
        said = file.read(name).decode("utf-8" if entry.flag_bits & _UTF_8 else "cp437")
        fields = {*_extra_fields(file.read(extra)), *_extra_fields(entry.extra)}
        if said != entry.orig_filename or not fields <= _PLAIN_FIELDS:
            raise StoreError(path, "names a file in two ways; expected a plain zip file")
        at = entry.header_offset + _LOCAL_HEADER.size + name + extra + entry.compress_size
    if not 0 <= archive.start_dir - at <= _DESCRIPTOR_BYTES:
        raise StoreError(path, "hides something between its files; expected a plain zip file")


def _extra_fields(extra: bytes) -> Iterator[int]:
    """Yields the identifiers of a member's extra fields. Raises BadZipFile for damaged ones."""
    while extra:
        if len(extra) < _EXTRA_HEADER.size:
            raise zipfile.BadZipFile("a damaged extra field")
        field, length = _EXTRA_HEADER.unpack_from(extra)
        yield field
        extra = extra[_EXTRA_HEADER.size + length :]


def _tar(path: Path, stream: "_ChunkedReader") -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=stream, mode="r:")
    except tarfile.ReadError as error:
        expected = "expected a run's folder, a bundle, .zip or .tar.gz"
        raise StoreError(path, f"is no archive; {expected}") from error


class _ChunkedReader(io.BufferedIOBase):
    """A stream that returns at most _LONGEST bytes at once, since `tarfile` reads any length that a header says."""

    def __init__(self, inner: io.BufferedIOBase) -> None:
        self._inner = inner

    def read(self, size: int | None = -1) -> bytes:
        """Returns ``size`` bytes of the stream. Raises ValueError for more than _LONGEST."""
        if size is None or not 0 <= size <= _LONGEST:
            raise ValueError(f"a header of more than {_LONGEST} bytes")
        return self._inner.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Moves the position of the stream."""
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        """Returns the position of the stream."""
        return self._inner.tell()


def _in_zip(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> ArchiveMember:
    kind = entry.external_attr >> 28
    return ArchiveMember(entry.filename, kind in (0, 0o10), lambda: archive.open(entry))


def _in_tar(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> ArchiveMember:
    def opened() -> IO[bytes]:
        file = archive.extractfile(entry)
        if file is None:
            raise ValueError("no plain file")
        return file

    return ArchiveMember(entry.name, entry.isreg() and not entry.issparse(), opened)


@dataclass(slots=True)
class _Layout:
    """Places in a run's folder for the files of an archive, which may have all of them in one folder, its ``root``.

    ``loose`` are files at the top in none of the known places.
    """

    root: tuple[str, ...] | None = None
    loose: list[str] = field(default_factory=list)

    def of(self, path: Path, parts: tuple[str, ...]) -> PurePosixPath | None:
        """Returns the place of a file, None for one that is not unpacked. Raises StoreError for a second run."""
        target = _target_path(parts)
        if target is None:
            if len(parts) > 1:
                return None
            self.loose.append(parts[0])
            return PurePosixPath(parts[0])
        above = parts[: len(parts) - len(target.parts)]
        if self.root not in (None, above):
            raise StoreError(path, "holds several runs; expected an archive of one")
        self.root = above
        return target

    def unread(self, path: Path, folder: Path) -> list[PurePosixPath]:
        """Returns the unpacked files that no audit reads after all. Raises StoreError."""
        kept = () if self.root else _listed_results(folder)
        return [PurePosixPath(name) for name in self.loose if name not in kept]


@dataclass(slots=True)
class _KeyedLayout(_Layout):
    """Places in the folder of a run of tables with keys, in the folder ``root`` of the archive.

    ``loose`` are files at the top, and ``within`` those of views; study.toml says which of them belong to the run.
    """

    within: list[PurePosixPath] = field(default_factory=list)

    def of(self, path: Path, parts: tuple[str, ...]) -> PurePosixPath | None:
        """Returns the place of a file, None for one that is not unpacked."""
        root = self.root or ()
        inner = parts[len(root) :]
        if parts[: len(root)] != root:
            return None
        if len(inner) == 1:
            self.loose.append(inner[0])
            return PurePosixPath(inner[0])
        rest = inner[2:]
        if inner[0] != VIEWS or not rest or _target_path(rest) != PurePosixPath(*rest):
            return None
        self.within.append(PurePosixPath(*inner))
        return self.within[-1]

    def unread(self, path: Path, folder: Path) -> list[PurePosixPath]:
        """Returns the unpacked files that are neither a table of the study nor in the run of one. Raises StoreError."""
        names = _tables_of(path, folder)
        usual = {STUDY_FILE, REPORT_FILE, PAGE_FILE, CARD, TERMS, PACKAGE}
        kept = usual | {f"{name}.csv" for name in names}
        found = [PurePosixPath(name) for name in self.loose if name not in kept]
        return found + [path for path in self.within if path.parts[1] not in names]


def _keyed_root(path: Path, names: Iterable[str]) -> tuple[str, ...] | None:
    """Returns the folder in an archive that has a run of tables with keys, None if there is none. Raises StoreError."""
    found = [tuple(name.removeprefix("./").split("/")) for name in names]
    studies = {parts[:-1] for parts in found if len(parts) <= 2 and parts[-1] == STUDY_FILE}
    views = {parts[:i] for parts in found for i in (0, 1) if parts[i:-1][:1] == (VIEWS,)}
    roots = sorted(studies & views)
    if len(roots) > 1:
        raise StoreError(path, "holds several runs; expected an archive of one")
    return roots[0] if roots else None


def _tables_of(path: Path, folder: Path) -> set[str]:
    """Returns the names of the tables in the study of an unpacked run. Raises StoreError."""
    try:
        tables = parse_toml((folder / STUDY_FILE).read_text(encoding="utf-8"))["table"]
        if isinstance(tables, list):
            return {str(table["name"]) for table in tables}
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    raise StoreError(
        path, f"has a {STUDY_FILE} that names no tables with keys; expected the run's configuration"
    )


def _extract(
    path: Path, members: Iterator[ArchiveMember], folder: Path, *, layout: _Layout
) -> tuple[str, ...]:
    """Writes the members that an audit reads into a folder, and returns the names of all others."""
    left, seen = MAX_BYTES, set[str]()
    others: list[tuple[str, ...]] = []
    for number, member in enumerate(members):
        if number >= MAX_FILES:
            raise StoreError(
                path, f"has more than {MAX_FILES} files; expected an archive of one run"
            )
        parts = _safe_components(path, member)
        # File systems differ in the names that they treat as equal.
        name = unicodedata.normalize("NFC", "/".join(parts)).casefold()
        if name in seen:
            raise StoreError(path, f"has {'/'.join(parts)[:60]!r} twice")
        seen.add(name)
        target = layout.of(path, parts)
        if target is None:
            others.append(parts)
            continue
        with disk_errors(folder):
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
        left -= _copy(path, member, folder / target, left)
    within = layout.root or ()
    unread = layout.unread(path, folder)
    for target in unread:
        (folder / target).unlink()
    outside = ("/".join(p[len(within) :] if p[: len(within)] == within else p) for p in others)
    return (*outside, *map(str, unread))


def _listed_results(folder: Path) -> Sequence[object]:
    """Returns the files that the report of a run between silos lists; nothing for another report."""
    try:
        report = parse_json((folder / REPORT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return ()
    listed = report.get("files") if isinstance(report, dict) else None
    return listed if isinstance(listed, list) else ()


def _safe_components(path: Path, member: ArchiveMember) -> tuple[str, ...]:
    """Returns the components of a name that stays within the folder. Raises StoreError for other names."""
    name = member.name.removeprefix("./")
    parts = tuple(name.split("/"))
    shown = repr(name[:60])
    if "\\" in name or "\0" in name or ":" in name or any(p in ("", ".", "..") for p in parts):
        raise StoreError(path, f"has a file {shown}, which leads out of it")
    if not member.plain:
        raise StoreError(path, f"has {shown}, a link or device; expected plain files alone")
    return parts


def _target_path(parts: tuple[str, ...]) -> PurePosixPath | None:
    """Returns the place of an archive's file in a run's folder; None if an audit does not read it."""
    if parts[-1] in (*_FILES, *DOCUMENTS) and len(parts) <= 2:
        return PurePosixPath(parts[-1])
    if len(parts) in (2, 3) and parts[-2] in _FOLDERS:
        return PurePosixPath(*parts[-2:])
    return None


def _copy(path: Path, member: ArchiveMember, target: Path, left: int) -> int:
    size = 0
    with member.open() as source:
        with disk_errors(target):
            target.touch()
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > left:
                raise StoreError(path, f"unpacks to more than {MAX_BYTES} bytes")
            with disk_errors(target), target.open("ab") as file:
                file.write(chunk)
    return size
