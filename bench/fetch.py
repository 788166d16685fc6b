"""Published files of the benchmark tables: fetched once, checked, and kept in the platform's cache folder.

A file is used only if its SHA-256 is the pinned one. For a file whose digest no loader has ever published (`sha256`
None), the digest of the first download is written beside the file, and every later use is compared with it: that finds
a changed file, not a first one that was wrong already; the table's rows and columns are checked besides. All values
here are public.

Limits: HTTP and HTTPS only; no resumption of a partial download.
"""

import contextlib
import hashlib
import http.client
import os
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CACHE_VARIABLE = "SYNCRET_CACHE_DIR"
_TIMEOUT_S = 60.0
_BLOCK_BYTES = 1 << 20


class DatasetError(Exception):
    """A benchmark table is not available, or has unexpected content."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A published file: its URL, its SHA-256 in hex (None if nobody has published one), its largest size in bytes."""

    url: str
    sha256: str | None
    limit_bytes: int = 1 << 28

    def __post_init__(self) -> None:
        if not self.url.startswith(("https://", "http://")):
            raise ValueError(f"{self.url!r} is not an HTTP address")

    @property
    def name(self) -> str:
        """Name of the file in the cache: the last part of the URL, after a digest of the whole URL."""
        mark = hashlib.sha256(self.url.encode()).hexdigest()[:12]
        return f"{mark}-{self.url.rsplit('/', 1)[-1]}"


def cache_folder() -> Path:
    """Returns SYNCRET_CACHE_DIR, or `syncret` in the platform's cache folder. The folder need not exist."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return (Path(base) if base else Path.home() / "AppData" / "Local") / "syncret" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "syncret"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "syncret"


def fetch(file: RemoteFile, *, progress: Callable[[str], None] = lambda line: None) -> Path:
    """Returns the path of the checked file in the cache, and downloads the file if it is missing.

    Raises DatasetError if the file cannot be fetched whole, is larger than its limit, or has another SHA-256; nothing
    of a refused download stays.
    """
    path = cache_folder() / "published" / file.name
    if not path.exists():
        progress(f"fetching {file.url}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _download(file, path)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise DatasetError(f"{file.url}: cannot be fetched: {reason}") from error
    expected, found = file.sha256 or _first_digest(path), _digest(path)
    if found != expected:
        raise DatasetError(
            f"{path}: its SHA-256 is {found}, expected {expected}; remove it to fetch it again"
        )
    return path


def _download(file: RemoteFile, path: Path) -> None:
    request = urllib.request.Request(file.url, headers={"User-Agent": "syncret-bench"})
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".partial-")
    try:
        digest, size = hashlib.sha256(), 0
        # Only HTTP addresses get here, see RemoteFile.
        with (
            os.fdopen(handle, "wb") as target,
            urllib.request.urlopen(request, timeout=_TIMEOUT_S) as source,
        ):
            while block := source.read(_BLOCK_BYTES):
                size += len(block)
                if size > file.limit_bytes:
                    raise DatasetError(
                        f"{file.url}: sends more than {file.limit_bytes} bytes, which is not the published file"
                    )
                digest.update(block)
                target.write(block)
            # A lost connection looks like the end of the file.
            announced = source.headers.get("Content-Length")
            if announced is not None and announced != str(size):
                raise DatasetError(f"{file.url}: {announced} bytes announced, {size} received")
        if file.sha256 is not None and digest.hexdigest() != file.sha256:
            raise DatasetError(
                f"{file.url}: sent a file whose SHA-256 is {digest.hexdigest()}, expected {file.sha256}"
            )
        if file.sha256 is None:
            _note(path).write_text(digest.hexdigest() + "\n", encoding="ascii")
        Path(name).replace(path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _first_digest(path: Path) -> str:
    try:
        return _note(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(
            f"{_note(path)}: the digest of the first download is not there; remove {path} to fetch it again"
        ) from error


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
