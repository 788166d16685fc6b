"""Compressed files: recognised by content, of a bounded size."""

import bz2
import gzip
import io
import lzma
import zipfile
from pathlib import Path

import pytest

from mechanisms import unpacking
from mechanisms.errors import DataError
from mechanisms.reading import read_text
from mechanisms.source import TableSource
from mechanisms.unpacking import unpacked
from tests.mechanisms.test_disguises import zipped

CSV = b"age,sex\n41,M\n7,F\n"
BOMB = bytes(1 << 24)


def written(folder: Path, data: bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.gz", "t.zip", "t"])
@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress])
def test_unpacked_goes_by_content_and_not_by_name(tmp_path: Path, packed, name: str) -> None:  # type: ignore[no-untyped-def]
    for data in (CSV, packed(CSV), packed(gzip.compress(CSV)), zipped({"a/t.csv": packed(CSV)})):
        assert unpacked(written(tmp_path, data, name)).data == CSV


def test_unpacked_names_the_file_within(tmp_path: Path) -> None:
    content = unpacked(written(tmp_path, gzip.compress(zipped({"a/b.tsv": CSV})), "t.zip.gz"))
    assert content.name == "b.tsv"
    assert content.where.endswith("t.zip.gz, file 'a/b.tsv'")
    assert unpacked(written(tmp_path, gzip.compress(CSV), "t.tsv.gz")).name == "t.tsv"


def test_unpacked_asks_which_file_of_an_archive(tmp_path: Path) -> None:
    path = written(tmp_path, zipped({"a.csv": CSV, "b.csv": b"x\n1\n"}), "t.zip")
    with pytest.raises(DataError, match=r"archive of 2 files \('a.csv', 'b.csv'\).*--sheet"):
        read_text(path)
    assert list(read_text(TableSource(str(path), sheet="b.csv")).columns) == ["x"]
    with pytest.raises(DataError, match="archive of 2 files"):
        read_text(TableSource(str(path), sheet="c.csv"))
    with pytest.raises(DataError, match=r"archive of 0 files \(none\)"):
        read_text(written(tmp_path, zipped({"folder/": b""}), "t.zip"))


@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress])
def test_unpacked_stops_at_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(unpacking, "SMALL_BYTES", 1 << 20)
    monkeypatch.setattr(unpacking, "MAX_GROWTH", 100)
    path = written(tmp_path, packed(BOMB))
    with pytest.raises(DataError, match=r"unpacks to more than [\d,]+ bytes from [\d,]+"):
        unpacked(path)


def test_unpacked_stops_at_its_bound_of_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "MAX_BYTES", 1 << 20)
    path = written(tmp_path, zipped({"t.csv": BOMB}))
    with pytest.raises(DataError, match="unpacks to more than 1,048,576 bytes"):
        unpacked(path)
    office = zipped({"[Content_Types].xml": b"", "xl/workbook.xml": BOMB})
    with pytest.raises(DataError, match="unpacks to more than 1,048,576 bytes"):
        read_text(written(tmp_path, office, "t.xlsx"))


def test_unpacked_trusts_no_size_that_an_archive_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "MAX_BYTES", 1 << 20)
    data = bytearray(zipped({"t.csv": BOMB}))
    # The size of the file unpacked, in both headers.
    for start in (data.index(b"PK\x03\x04") + 22, data.index(b"PK\x01\x02") + 24):
        data[start : start + 4] = (100).to_bytes(4, "little")
    with pytest.raises(DataError):
        read_text(written(tmp_path, bytes(data)))


def test_unpacked_refuses_more_layers_than_any_table_has(tmp_path: Path) -> None:
    data = CSV
    for _ in range(6):
        data = gzip.compress(data)
    with pytest.raises(DataError, match="compressed more than 4 times"):
        unpacked(written(tmp_path, data))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x28\xb5\x2f\xfd1234", "Zstandard is not read here"),
        (b"PK\x03\x04 nothing more", "cannot be read"),
        (lzma.compress(CSV)[:-20], "cannot be read"),
        (bz2.compress(CSV)[:-5], "cannot be read"),
    ],
)
def test_unpacked_says_what_is_wrong(tmp_path: Path, data: bytes, says: str) -> None:
    with pytest.raises(DataError, match=says):
        unpacked(written(tmp_path, data))


def test_unpacked_refuses_an_encrypted_archive(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("t.csv", CSV)
    data = bytearray(buffer.getvalue())
    for start in (data.index(b"PK\x03\x04") + 6, data.index(b"PK\x01\x02") + 8):
        data[start] |= 1
    with pytest.raises(DataError, match="is encrypted; unpack it"):
        unpacked(written(tmp_path, bytes(data)))
