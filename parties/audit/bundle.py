"""A run's public files in one file: made of a run folder, and unpacked for an audit, whoever made it.

Provides ``public_files``, ``write_bundle`` and ``unpacked_run``. A bundle is a zip file of what an audit reads:
transcripts/, certificates/, model/, config.toml, report.json, report.html, synthetic.csv; and of what tells people of
the table (`parties.audit.checks.documents`). An archive (.zip, .tar.gz, .tar) may have more, which is left where it is,
and may have it all in one folder. Whoever sends one is not believed: all it has are plain files with plain names, of
which those in these places come out, none is written twice, and not more than LARGEST bytes and MOST files, counted as
they come. Public: everything in a bundle; keys are never put into one.
"""

import contextlib
import gzip
import io
import lzma
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from parties.foundation.errors import StoreError
from parties.session.result_digests import MODEL_FOLDER, TABLE_FILE
from parties.storage.files import atomic_replacement, disk_errors

TRANSCRIPTS, CERTIFICATES = "transcripts", "certificates"
_FILES = ("config.toml", "report.json", "report.html", TABLE_FILE)
_FOLDERS = {
    TRANSCRIPTS: (".jsonl",),
    CERTIFICATES: (".crt", ".pem"),
    MODEL_FOLDER: (".json", ".npz"),
}
"""What files there are in each folder of a run; nothing else goes into a bundle, such as keys."""
_OWN_TRANSCRIPT, _MARK = "transcript.jsonl", "run.json"
"""A server's transcript in its own folder; the mark of a trial."""
_SECRET = b"PRIVATE KEY-----"
"""How a private key begins, whatever its file is called."""
MAX_BYTES = 1 << 32
MAX_FILES = 4096
_CHUNK = _LONGEST = 1 << 20
"""Bytes that are in memory at once; no header of an archive is longer."""
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
"""What reading an archive raises that is damaged, encrypted or packed in a way that nobody has here."""


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """Something in an archive: its name, whether it is a plain file, and how to read it."""

    name: str
    plain: bool
    open: Callable[[], IO[bytes]]


def public_files(
    run: Path, *, certificates: Path | None = None, one_server: bool = False
) -> dict[str, Path]:
    """The public files of the run in folder ``run`` by their names in a bundle; ``certificates`` may lie elsewhere.

    Of a run with ``one_server``, FLAIM's, its own folder will do. Raises StoreError where there are no transcripts of a
    run that had servers of their own, or where a private key is among the certificates.
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


def write_bundle(
    files: Mapping[str, Path], out: Path, *, documents: Mapping[str, bytes] | None = None
) -> list[str]:
    """Put ``files`` and ``documents``, which come before them, into the zip file ``out``; returns all names.

    The same contents make the same bytes. Raises StoreError.
    """
    if out.suffix != ".zip":
        raise StoreError(out, "cannot be a bundle; expected a name that ends in .zip")
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
    """Whether it is a finished run that had no servers to write transcripts: central AIM, or FLAIM simulated."""
    there = (run / _MARK).is_file() and (run / TABLE_FILE).is_file()
    return there and not (run / CERTIFICATES).exists()


def _expected(run: Path) -> str:
    if (run / _OWN_TRANSCRIPT).is_file():
        return "expected all three servers' there, as party-0.jsonl to party-2.jsonl"
    return "expected the folder of a finished run"


@contextlib.contextmanager
def unpacked_run(path: Path) -> Iterator[Path]:
    """A run's folder: ``path`` if it is one, else what is in the archive ``path``, for as long as it is looked at.

    Raises StoreError where it is neither, or an archive that cannot be trusted.
    """
    if path.is_dir():
        yield path
        return
    if not path.is_file():
        raise StoreError(
            path, "is not there; expected a run's folder, a bundle or an archive of one"
        )
    with tempfile.TemporaryDirectory(prefix="syncret-audit-") as name:
        folder = Path(name)
        try:
            with _members(path) as members:
                _extract(path, members, folder)
        except _DAMAGES as error:
            raise StoreError(
                path, f"cannot be unpacked: {type(error).__name__}; expected a whole archive"
            ) from error
        yield folder


@contextlib.contextmanager
def _members(path: Path) -> Iterator[Iterator[ArchiveMember]]:
    """What is in an archive, by what it is and not by its name."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield (_in_zip(archive, entry) for entry in archive.infolist() if not entry.is_dir())
        return
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with (
        gzip.open(path) if packed else path.open("rb") as stream,
        _tar(path, _ChunkedReader(stream)) as archive,
    ):
        yield (_in_tar(archive, entry) for entry in archive if not entry.isdir())


def _tar(path: Path, stream: "_ChunkedReader") -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=stream, mode="r:")
    except tarfile.ReadError as error:
        expected = "expected a run's folder, a bundle, .zip or .tar.gz"
        raise StoreError(path, f"is no archive; {expected}") from error


class _ChunkedReader(io.BufferedIOBase):
    """A stream that gives no more than _LONGEST bytes at once: `tarfile` reads whatever length a header says."""

    def __init__(self, inner: io.BufferedIOBase) -> None:
        self._inner = inner

    def read(self, size: int | None = -1) -> bytes:
        """Raises ValueError for more."""
        if size is None or not 0 <= size <= _LONGEST:
            raise ValueError(f"a header of more than {_LONGEST} bytes")
        return self._inner.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        """As the stream does."""
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        """As the stream does."""
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


def _extract(path: Path, members: Iterator[ArchiveMember], folder: Path) -> None:
    left, written = MAX_BYTES, set[str]()
    root: PurePosixPath | None = None
    for number, member in enumerate(members):
        if number >= MAX_FILES:
            raise StoreError(
                path, f"has more than {MAX_FILES} files; expected an archive of one run"
            )
        parts = _safe_components(path, member)
        target_parts = _target_path(parts)
        if target_parts is None:
            continue
        above = PurePosixPath(*parts[: len(parts) - len(target_parts.parts)])
        if root not in (None, above):
            raise StoreError(path, "holds several runs; expected an archive of one")
        root = above
        # File systems differ in what they take for the same name.
        if str(target_parts).casefold() in written:
            raise StoreError(path, f"has {str(target_parts)[:60]!r} twice")
        written.add(str(target_parts).casefold())
        target = folder / target_parts
        with disk_errors(folder):
            target.parent.mkdir(exist_ok=True)
        left -= _copy(path, member, target, left)


def _safe_components(path: Path, member: ArchiveMember) -> tuple[str, ...]:
    """The parts of a name that leads nowhere else. Raises StoreError."""
    name = member.name.removeprefix("./")
    parts = tuple(name.split("/"))
    shown = repr(name[:60])
    if "\\" in name or "\0" in name or ":" in name or any(p in ("", ".", "..") for p in parts):
        raise StoreError(path, f"has a file {shown}, which leads out of it")
    if not member.plain:
        raise StoreError(path, f"has {shown}, a link or device; expected plain files alone")
    return parts


def _target_path(parts: tuple[str, ...]) -> PurePosixPath | None:
    """Where a file of an archive belongs in a run's folder; None where an audit does not read it."""
    if parts[-1] in _FILES and len(parts) <= 2:
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
