"""One table in many disguises: what is read is the table, or an error that names the line and the option."""

import bz2
import csv
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mechanisms.dialect import Dialect
from mechanisms.errors import DataError
from mechanisms.header import looks_like_value
from mechanisms.reading import read_recognised, read_text
from mechanisms.source import TableSource
from mechanisms.text_table import TextTable

HEADER = ["ward", "Alter", "cost", "day", "note"]
WARDS, NOTES = ("north", "süd", "east"), ("plain", 'a "b", c; d|e', "two\nlines", "")
ROWS = [
    [WARDS[i % 3], str(20 + i % 50), f"{i * 7.25:.2f}", f"2024-01-{i % 28 + 1:02d}", NOTES[i % 4]]
    for i in range(40)
]
TABLE = {name: [row[i] for row in ROWS] for i, name in enumerate(HEADER)}
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zip": lambda data: zipped({"t.csv": data, "__MACOSX/t.csv": b"x", ".hidden": b"x"}),
    "zip of gzip": lambda data: zipped({"folder/t.csv.gz": gzip.compress(data)}),
}


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class Disguise:
    """The form of the table."""

    delimiter: str = ","
    encoding: str = "utf-8"
    line_end: str = "\n"
    quoting: int = csv.QUOTE_MINIMAL
    title: tuple[str, ...] = ()
    padded: bool = False
    trailing: str = "none"
    index: str = "none"
    footer: bool = False
    blank_end: bool = False
    says_so: bool = False
    packing: str = "plain"
    name: str = "t.csv"

    @property
    def commas(self) -> bool:
        """Decimal commas, where they can be told."""
        return self.delimiter == ";"

    def data(self) -> bytes:
        out = io.StringIO(newline="")
        writer = csv.writer(
            out, delimiter=self.delimiter, lineterminator=self.line_end, quoting=self.quoting
        )  # type: ignore[call-overload]
        if self.says_so:
            out.write(f"sep={self.delimiter}{self.line_end}")
        width = len(self.row(HEADER, -1))
        for line in self.title:
            writer.writerow([line, *[""] * (width - 1)] if self.padded and line else [line])
        writer.writerow(self.row(HEADER, -1))
        for i, row in enumerate(ROWS):
            cells = [c.replace(".", ",") if self.commas and c == row[2] else c for c in row]
            writer.writerow(self.row(cells, i))
        if self.blank_end:
            writer.writerows([[""] * width] * 3)
        if self.footer:
            writer.writerow(["Source: the register of stays"])
        return PACKINGS[self.packing](out.getvalue().encode(self.encoding))

    def row(self, cells: list[str], number: int) -> list[str]:
        """The cells with an index before them, and what a trailing separator makes after them."""
        index = {"none": [], "pandas": [str(number)], "R": [str(number + 1)]}[self.index]
        if number < 0:
            index = [""] * (self.index == "pandas")
        ends = self.trailing == "all" or (self.trailing == "rows" and number >= 0)
        return [*index, *cells, *[""] * ends]

    def written(self, folder: Path) -> Path:
        path = folder / self.name
        path.write_bytes(self.data())
        return path


DISGUISES = st.builds(
    Disguise,
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    title=st.sampled_from([(), ("Stays, 2024",), ("Table 1", "Source: Office; 2024", "")]),
    padded=st.booleans(),
    trailing=st.sampled_from(["none", "all", "rows"]),
    index=st.sampled_from(["none", "pandas"]),
    footer=st.booleans(),
    blank_end=st.booleans(),
    packing=st.sampled_from(sorted(PACKINGS)),
    name=st.sampled_from(["t.csv", "t.txt", "t.dat", "t.gz", "t"]),
)


def columns_of(table: TextTable) -> dict[str, list[str]]:
    return {name: list(values) for name, values in table.columns.items()}


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(DISGUISES)
def test_read_text_sees_the_table_in_every_disguise(
    tmp_path_factory: pytest.TempPathFactory, disguise: Disguise
) -> None:
    path = disguise.written(tmp_path_factory.mktemp("disguise", numbered=True))
    table = read_text(path)
    assert columns_of(table) == TABLE
    assert bool(table.notes) == bool(
        any(disguise.title)
        or disguise.trailing != "none"
        or disguise.index != "none"
        or disguise.footer
        or disguise.blank_end
    )
    # The header's place as the note says it is where the option finds the same.
    if disguise.title:
        line = len(disguise.title) + 1
        told = TableSource(str(path), dialect=Dialect(header_line=line))
        assert columns_of(read_text(told)) == TABLE


@pytest.mark.parametrize(
    "disguise",
    [
        Disguise(index="R"),
        Disguise(index="R", quoting=csv.QUOTE_ALL),
        Disguise(says_so=True, delimiter=";"),
        Disguise(says_so=True, delimiter="~"),
        Disguise(line_end="\r", quoting=csv.QUOTE_ALL),
        Disguise(line_end="\r", quoting=csv.QUOTE_ALL, title=("Stays",), encoding="utf-16"),
    ],
)
def test_read_text_sees_the_table_in_rarer_disguises(disguise: Disguise, tmp_path: Path) -> None:
    table = read_text(disguise.written(tmp_path))
    assert columns_of(table) == TABLE


def test_read_text_keeps_the_format_that_a_table_is_written_in(tmp_path: Path) -> None:
    disguise = Disguise(
        delimiter=";", encoding="cp1252", line_end="\r\n", quoting=csv.QUOTE_ALL, title=("Stays",)
    )
    form = read_text(disguise.written(tmp_path)).form
    assert form.to_dict() == {
        "delimiter": ";",
        "decimal": ",",
        "encoding": "cp1252",
        "line_end": "crlf",
    }
    assert read_text(Disguise().written(tmp_path)).form.to_dict() == {}


def lines(*rows: str) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


BODY = [f"{name},{age},{day}" for name, age, day in zip(
    ("Ann", "Bob", "Cid", "Dan", "Eve"), (41, 30, 55, 62, 19),
    ("2024-01-05", "2024-02-05", "2024-03-05", "2024-04-05", "2024-05-05"), strict=True,
)]  # fmt: skip
CODES = [f"P{i:05d},{'xyz'[i % 3]}" for i in range(12)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        # No header: the first person is no name of a column.
        (lines(*BODY), r"line 1, column 2: '41' looks like a value.*--header-line 1.*--header-line 0"),
        (lines("", *BODY), r"line 2, column 2: '41' looks like a value.*--header-line 2"),
        (lines("F,north,yes", "M,south,no", "F,south,no"), r"line 1, column 1: 'F' is a value of"),
        (lines(*CODES), r"line 1, column 1: 'P00000' is written like the values below it"),
        (lines("ann@x.org,a", "bob@x.org,b"), r"column 1: 'ann@x.org' looks like a value"),
        (lines("a,12%", "b,13%"), r"column 2: '12%' looks like a value"),
        (lines("a,01/02/2024", "b,03/02/2024"), r"column 2: '01/02/2024' looks like a value"),
        # Two headers.
        (lines("name,age,day", "text,years,iso", *BODY), r"line 1: line 2 looks like a second.*--header-line 2"),
        (lines("who,,when", "name,age,day", *BODY), r"line 1: line 2 looks like a second header"),
        (lines("name,age,day", *BODY, "name,age,day", *BODY), r"line 1: the header comes again in line 7"),
        # A title, and nothing that tells names from values.
        (lines("Our wards", "F,north", "M,south", "F,east"), r"line 1: narrower.*--header-line 2"),
        (lines("Names", "sex,ward", "M,south", "F,east"), r"line 1: narrower.*--header-line 2"),
        (lines("name,age,", "Ann,41,x", "Bob,42,"), r"line 1: column 3 has no name, and line 2 has a value"),
        (lines("name,,age", "Ann,x,41", "Bob,,42"), r"line 1: column 2 has no name; name it"),
        (lines("name,name", "Ann,41"), r"line 1: column 'name' appears twice, as column 1 and as column 2"),
        (lines("a,b", "1,2", "3,\x004"), r"line 3: character 3 is a NUL byte"),
        (lines('a,b', '"1\n\n2",2', "3,\x004"), r"line 5: character 3 is a NUL byte"),
        (lines("a,b", "1,2", "3", "4,5"), r"line 3: 1 values; the header has 2 columns"),
    ],
)  # fmt: skip
def test_read_text_refuses_what_may_be_no_header_and_names_line_and_option(
    tmp_path: Path, content: bytes, says: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read_text(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "line", "names", "rows"),
    [
        (lines(*BODY), 0, ["column_1", "column_2", "column_3"], 5),
        (lines(*BODY), 1, BODY[0].split(","), 4),
        (lines("text,years,iso", "name,age,day", *BODY), 2, ["name", "age", "day"], 5),
        (lines("Our wards", "sex,ward", "F,north", "M,south"), 2, ["sex", "ward"], 2),
        (lines("region,2019,2020", "a,1,2", "b,3,4"), 1, ["region", "2019", "2020"], 2),
    ],
)
def test_read_text_does_as_the_option_says(
    tmp_path: Path, content: bytes, line: int, names: list[str], rows: int
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    table = read_text(TableSource(str(path), dialect=Dialect(header_line=line)))
    assert (list(table.columns), len(table)) == (names, rows)
    with pytest.raises(DataError, match=r"no row begins at line 99.*--header-line"):
        read_text(TableSource(str(path), dialect=Dialect(header_line=99)))


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (lines("name,x,n", "Ann,x,1", "Bob,,2", "Cid,x,3"), ["name", "x", "n"]),
        (lines("0,1,2", "a,5,6", "b,7,8"), ["0", "1", "2"]),
        (lines("q1,Q2a,icd10", "1,2,A01", "3,4,B02"), ["q1", "Q2a", "icd10"]),
        (lines("grade", "A", "B"), ["grade"]),
        (lines("name,age", "Ann,refused", *["Bob,41"] * 8, "Dan,refused"), ["name", "age"]),
        (lines("name,age,n", "Ann,NA,NA", "Bob,41,1", "Cid,42,2", "Dan,43,3"), ["name", "age", "n"]),
    ],
)  # fmt: skip
def test_read_text_takes_names_for_names(tmp_path: Path, content: bytes, names: list[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    assert list(read_text(path).columns) == names


def test_read_text_keeps_rows_that_are_missing_altogether(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(lines("a,b", "1,2", ",", "3,4"))
    assert columns_of(read_text(path)) == {"a": ["1", "", "3"], "b": ["2", "", "4"]}


def test_read_text_reads_blanks_between_values(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    path.write_bytes(lines("age  sex ward", " 41 M   north", " 7  F   south", "12 F east"))
    table, said = read_recognised(path)
    assert columns_of(table) == {
        "age": ["41", "7", "12"],
        "sex": ["M", "F", "F"],
        "ward": ["north", "south", "east"],
    }
    assert "blanks between values" in said
    path.write_bytes(lines("full name here", "Ann Mary Smith", "Bob John Doe", "Cid Paul Lee"))
    assert list(read_text(path).columns) == ["full name here"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("41", True), ("-1.5", True), ("1.234,5", True), ("12.3%", True), ("$1,234.56", True),
        ("<5", True), ("18-25", True), ("2024-01-05", True), ("05.01.2024", True), ("7:30", True),
        ("01Jan2019", True), ("a@b.org", True), ("1e5", True),
        ("age", False), ("q1", False), ("Age (years)", False), ("=SUM(A1)", False), ("2nd", False),
        ("5 years", False), ("%", False), ("n", False), ("", False),
    ],
)  # fmt: skip
def test_looks_like_value_tells_values_from_names(text: str, value: bool) -> None:
    assert looks_like_value(text) == value


QUESTIONS = [
    "Q1,Q2,Q3",
    "How satisfied were you with the service?,Would you recommend us to others?,In your own words",
    '"{""ImportId"":""QID1""}","{""ImportId"":""QID2""}","{""ImportId"":""QID3""}"',
]
LIKERT = ("agree", "neutral", "disagree")
ANSWERS = {
    "words": [
        f"{LIKERT[i % 3]},{('yes', 'no')[i % 2]},{'it was good ' * (i % 9)}" for i in range(30)
    ],
    "codes": [f"{i % 5 + 1},{i % 2},{i % 3}" for i in range(30)],
}


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("count", [2, 3])
def test_rows_of_questions_are_refused_and_skipped_where_asked(
    kind: str, count: int, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(lines(*QUESTIONS[:count], *ANSWERS[kind]))
    looks = "line 2 looks like a second header" if count == 2 else "lines 2, 3 look like further"
    with pytest.raises(DataError, match=rf"{looks}.*--values-line {count + 1}.*--header-line 2"):
        read_text(path)
    table = read_text(TableSource(str(path), dialect=Dialect(values_line=count + 1)))
    assert list(table.columns) == ["Q1", "Q2", "Q3"]
    assert len(table) == len(ANSWERS[kind])
    assert "below the header skipped" in table.notes[0]
    with pytest.raises(DataError, match=r"no row of values begins at line 99.*--values-line"):
        read_text(TableSource(str(path), dialect=Dialect(values_line=99)))


@pytest.mark.parametrize("kind", ANSWERS)
def test_answers_below_the_names_are_no_questions(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(lines(QUESTIONS[0], *ANSWERS[kind]))
    assert len(read_text(path)) == len(ANSWERS[kind])
