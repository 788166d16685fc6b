"""The format of the real table: recorded, agreed on, written, read back; and what says nothing changes no digest."""

import bz2
import csv
import gzip
import io
import lzma
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mechanisms.domain import Categorical, Domain, Integer, Real
from mechanisms.draft import draft_domain
from mechanisms.errors import DataError, DomainError
from mechanisms.reading import read_drawn, read_text
from mechanisms.sampling import public_generator
from mechanisms.schema import table_schema
from mechanisms.source import TableSource
from mechanisms.table import decode, encode
from mechanisms.text_format import PLAIN_FORMAT, TextFormat
from mechanisms.writing import form_of, text_bytes, write_rows

COLUMNS = (
    Categorical("ward", ("süd; alt", 'a "b"', "1,5 mg", "two\nlines", "cr\rhere"), missing=True),
    Integer("age", 0, 99),
    Real("cost", -10.0, 1000.0, decimals=2, missing=True),
    Categorical("dose", ("0.5", "1.25")),
)
FORMATS = [
    TextFormat(),
    TextFormat(";", ",", "cp1252", line_end="crlf"),
    TextFormat("\t", encoding="utf-16"),
    TextFormat("|", encoding="utf-8-sig", quoting="all"),
    TextFormat(";", ",", quote="'", quoting="all", line_end="cr"),
    TextFormat(" "),
    TextFormat(";", ",", thousands=("cost",)),
    TextFormat(";", ",", columns=("id", "ward", "age", "cost", "note", "dose")),
]


def domain_of(form: TextFormat) -> Domain:
    return Domain(COLUMNS, ignore=("id", "note"), format=form)


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_written_in_a_format_reads_back_to_the_same_codes(
    form: TextFormat, tmp_path: Path
) -> None:
    domain = domain_of(form)
    codes = np.random.default_rng(0).integers(0, domain.shape, (300, 4)).astype(np.int32)
    frame = decode(domain, codes, public_generator(1))
    path = tmp_path / "synthetic.csv"
    path.write_bytes(text_bytes(frame, domain))
    table = read_drawn(path, domain)
    assert list(table.columns) == ["ward", "age", "cost", "dose"]
    assert encode(domain, table).tolist() == codes.tolist()
    # In two parts the file is the same, byte for byte.
    write_rows(tmp_path / "b.csv", (frame[:100], frame[100:]), domain, form_of(tmp_path / "b.csv"))
    assert (tmp_path / "b.csv").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("form", FORMATS[:2])
@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress])
def test_a_drawn_table_is_text_and_nothing_of_it_is_unpacked(
    form: TextFormat,
    packed: Callable[[bytes], bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be of a server that lies: an audit reads no bomb, workbook or database from it."""
    domain = domain_of(form)
    codes = np.zeros((3, 4), np.int32)
    path = tmp_path / "synthetic.csv"
    path.write_bytes(packed(text_bytes(decode(domain, codes, public_generator(1)), domain)))
    monkeypatch.setattr("mechanisms.reading.unpacked", pytest.fail)
    with pytest.raises(DataError):
        encode(domain, read_drawn(path, domain))


@pytest.mark.parametrize("form", FORMATS)
def test_format_is_the_same_after_a_configuration(form: TextFormat) -> None:
    domain = domain_of(form)
    assert Domain.from_dict(domain.to_dict()) == domain
    assert Domain.from_dict(domain.to_dict()).digest() == domain.digest()


def test_format_that_says_nothing_leaves_no_key_and_no_digest() -> None:
    domain = Domain(COLUMNS)
    assert "format" not in domain.to_dict()
    told = Domain.from_dict({**domain.to_dict(), "format": {"delimiter": ",", "quoting": "needed"}})
    assert told.digest() == domain.digest()
    assert domain_of(FORMATS[1]).digest() != Domain(COLUMNS, ignore=("id", "note")).digest()


def test_written_text_is_in_the_format() -> None:
    domain = Domain(
        (Categorical("Straße", ("süd", "n;o")), Real("Größe", 0.0, 9.0, decimals=1)),
        ignore=("id",),
        format=TextFormat(";", ",", "cp1252", line_end="crlf", columns=("Straße", "id", "Größe")),
    )
    frame = decode(domain, np.array([[0, 0], [1, 31]], np.int32), public_generator(1))
    first, *rows = text_bytes(frame, domain).decode("cp1252").split("\r\n")
    assert first == "Straße;id;Größe"
    assert rows[0].startswith("süd;;0,")
    assert rows[1].startswith('"n;o";;')
    assert rows[2:] == [""]


def test_a_draft_has_the_format_of_its_table_and_writes_one_that_is_alike(tmp_path: Path) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=";", lineterminator="\r\n")
    writer.writerow(["Straße", "Gehalt"])
    writer.writerows([["süd" if i % 3 else "nord", f"{i},{i % 10}5"] for i in range(60)])
    path = tmp_path / "t.csv"
    path.write_bytes(out.getvalue().encode("cp1252"))
    domain = draft_domain(path).domain
    assert domain.format == TextFormat(";", ",", "cp1252", line_end="crlf")
    codes = np.zeros((5, 2), np.int32)
    path.write_bytes(text_bytes(decode(domain, codes, public_generator(1)), domain))
    assert draft_domain(path).domain.format == domain.format


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"delimiter": ";;"}, "one character is needed"),
        ({"encoding": "klingon"}, "is unknown"),
        ({"encoding": "zlib_codec"}, "none of text"),
        ({"encoding": "rot13"}, "none of text"),
        ({"encoding": "idna"}, "none of text"),
        ({"encoding": "ascii"}, r'"ascii" has no characters for'),
        ({"quote": "q"}, "it is"),
        ({"quoting": "some"}, '"needed" or "all"'),
        ({"line_end": "lfcr"}, "one of lf, crlf, cr"),
        ({"decimal": ","}, "the same sign"),
        ({"separator": ";"}, "'separator' is an unknown key; expected one of delimiter"),
        ({"delimiter": 1}, "text is needed"),
        ({"columns": "ward"}, "a list of names is needed"),
        ({"columns": ["ward", "ward"]}, "a name stands twice"),
        ({"columns": ["ward", "age", "cost"]}, "'dose' is not there; name all"),
        ({"columns": ["ward", "age", "cost", "dose", "x"]}, "'x' is neither described nor in"),
        (";", "a table is needed"),
    ],
)
def test_format_is_checked_when_read(table: object, says: str) -> None:
    with pytest.raises(DomainError, match=says):
        Domain.from_dict({**Domain(COLUMNS, ignore=("id",)).to_dict(), "format": table})


def test_schema_says_which_decimal_sign_a_column_has() -> None:
    fields = table_schema(domain_of(FORMATS[1]))["fields"]
    assert isinstance(fields, list)
    assert {f["name"]: f.get("decimalChar") for f in fields} == {
        "ward": None, "age": None, "cost": ",", "dose": ",",
    }  # fmt: skip
    plain = table_schema(domain_of(PLAIN_FORMAT))["fields"]
    assert isinstance(plain, list)
    assert not any("decimalChar" in f for f in plain)


def test_points_between_thousands_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    pay = [f"{x:,.2f}".translate(str.maketrans(",.", ".,")) for x in rng.normal(0, 5000, 200)]
    some = [f"{x:.2f}".replace(".", ",") for x in rng.normal(0, 5000, 200)]
    path = tmp_path / "pay.csv"
    lines = ["pay;some", *(f"{one};{other}" for one, other in zip(pay, some, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    domain = draft_domain(path).domain
    assert domain.format == TextFormat(";", ",", thousands=("pay",))
    assert Domain.from_dict(domain.to_dict()) == domain
    codes = encode(domain, read_text(TableSource(str(path))))
    written = text_bytes(decode(domain, codes, public_generator(1)), domain)
    cells = [line.split(";") for line in written.decode().splitlines()[1:]]
    assert all(re.fullmatch(r"-?\d{1,3}(\.\d{3})*,\d\d", pay) for pay, _ in cells)
    assert any("." in pay for pay, _ in cells)
    assert not any("." in some for _, some in cells)
    fields = {field["name"]: field for field in table_schema(domain)["fields"]}  # type: ignore[attr-defined]
    assert fields["pay"]["groupChar"] == "."
    assert "groupChar" not in fields["some"]


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"thousands": ["cost"]}, "stands beside a decimal point"),
        ({"decimal": ",", "delimiter": ";", "thousands": ["weight"]}, "no column 'weight'"),
        ({"decimal": ",", "delimiter": ";", "thousands": "cost"}, "a list of names is needed"),
    ],
)
def test_thousands_of_no_column_are_refused(form: dict[str, object], says: str) -> None:
    with pytest.raises(DomainError, match=says):
        domain_of(TextFormat.from_dict(form))
