"""Compressed files: recognised by their first bytes and unpacked up to a bound.

gzip, bzip2, xz and zip are known, also nested; a name's ending decides nothing. The content is secret, at its owner.
Limits: ``MAX_BYTES``, and ``MAX_GROWTH`` times the packed size from ``SMALL_BYTES`` on; an archive contains one table,
or the file's name is given.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mechanisms.errors import DataError

MAX_BYTES = 1 << 32
"""Most bytes that a file may unpack to."""
SMALL_BYTES, MAX_GROWTH = 1 << 26, 1000
"""Bytes that are always allowed, and largest growth beyond them. Tables rarely grow 100 times."""
_MOST_LAYERS = 4
_PART = 1 << 20
_ZIP = b"PK\x03\x04"
_OFFICE_FILE = "[Content_Types].xml"
_LONGEST_TYPE = 100
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_OPENERS: tuple[tuple[bytes, Callable[..., Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\x00", lzma.open),
)
_FAILURES = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


@dataclass(frozen=True, slots=True, repr=False)
class Content:
    """The bytes of a table, the ``name`` of their file, and its place ``where``, for messages."""

    data: bytes
    name: str
    where: str


def unpacked(path: Path, member: str | None = None, data: bytes | None = None) -> Content:
    """Returns the content of a file without its compression; ``member`` names the file of an archive.

    ``data`` are the file's bytes if they have been read.

    Raises ``DataError`` if the file cannot be read, unpacks to too much, or is an archive of several tables.
    """
    where = str(path)
    try:
        data = path.read_bytes() if data is None else data
    except OSError as error:
        raise DataError(f"{where}: cannot be read: {error.strerror or error}") from error
    content = Content(data, path.name, where)
    for _ in range(_MOST_LAYERS):
        inner = _without_layer(content, member)
        if inner is None:
            return content
        content = inner
    raise DataError(f"{where}: is compressed more than {_MOST_LAYERS} times; unpack it")


def is_office_file(data: bytes) -> bool:
    """Returns whether a zip archive is a workbook or the like, and not to be unpacked."""
    if not data.startswith(_ZIP):
        return False
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return bool({_OFFICE_FILE, "mimetype"} & set(archive.namelist()))
    except _FAILURES:
        return False


def open_document_type(data: bytes) -> str:
    """Returns the media type that an archive of OpenDocument names; "" for other files."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open("mimetype") as stream:
            return stream.read(_LONGEST_TYPE).decode("ascii", "replace").strip()
    except (*_FAILURES, KeyError):
        return ""


def check_archive(content: Content) -> None:
    """Raises ``DataError`` for an archive, such as a workbook, whose files unpack to too much."""
    try:
        with zipfile.ZipFile(io.BytesIO(content.data)) as archive:
            total = sum(item.file_size for item in archive.infolist())
    except _FAILURES as error:
        raise DataError(f"{content.where}: cannot be read: {_reason(error)}") from error
    _check_size(content, total)


def _without_layer(content: Content, member: str | None) -> Content | None:
    """Returns the content without one layer of compression; None if there is none."""
    data = content.data
    if data.startswith(_ZSTANDARD):
        raise DataError(f"{content.where}: Zstandard is not read here; unpack it, or use gzip")
    try:
        for magic, opened in _OPENERS:
            if data.startswith(magic):
                with opened(io.BytesIO(data)) as stream:
                    return Content(_read(stream, content), _inner_name(content), content.where)
        if data.startswith(_ZIP) and not is_office_file(data):
            return _member_of(content, member)
    except _FAILURES as error:
        raise DataError(f"{content.where}: cannot be read: {_reason(error)}") from error
    return None


def _member_of(content: Content, wanted: str | None) -> Content:
    with zipfile.ZipFile(io.BytesIO(content.data)) as archive:
        files = [item for item in archive.infolist() if _is_file(item)]
        # If there is only one file, ``wanted`` may be a sheet of it.
        chosen = [item for item in files if len(files) == 1 or item.filename == wanted]
        if len(chosen) != 1:
            names = ", ".join(repr(item.filename) for item in files[:10]) or "none"
            raise DataError(
                f"{content.where}: is an archive of {len(files)} files ({names}); expected one, or its name by --sheet"
            )
        item = chosen[0]
        _check_size(content, item.file_size)
        if item.flag_bits & 1:
            raise DataError(f"{content.where}: is encrypted; unpack it")
        try:
            stream = archive.open(item)
        except NotImplementedError as error:
            raise DataError(f"{content.where}: cannot be unpacked: {error}; unpack it") from error
        with stream:
            data = _read(stream, content)
    name = item.filename.rpartition("/")[2]
    return Content(data, name, f"{content.where}, file {item.filename!r}")


def _is_file(item: zipfile.ZipInfo) -> bool:
    """Returns whether an entry is a user's file and not one that a system adds."""
    name = item.filename.rpartition("/")[2]
    return bool(name) and not item.filename.startswith("__MACOSX/") and not name.startswith(".")


def _read(stream: IO[bytes], content: Content) -> bytes:
    parts, size = [], 0
    while part := stream.read(_PART):
        size += len(part)
        _check_size(content, size)
        parts.append(part)
    return b"".join(parts)


def _check_size(content: Content, size: int) -> None:
    most = min(MAX_BYTES, max(SMALL_BYTES, MAX_GROWTH * len(content.data)))
    if size > most:
        raise DataError(
            f"{content.where}: unpacks to more than {most:,} bytes from {len(content.data):,}, as no table does; "
            "unpack it yourself if it is one"
        )


def _inner_name(content: Content) -> str:
    """Returns the name without the ending of the compression."""
    stem, dot, ending = content.name.rpartition(".")
    packed = dot and ending.lower() in ("gz", "gzip", "bz2", "xz", "lzma", "zip")
    return stem if packed else content.name


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
