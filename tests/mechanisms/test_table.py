"""Reading, encoding and decoding tables, and drafting domains."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.domain import Categorical, Domain, Integer, Real
from mechanisms.errors import DataError
from mechanisms.sampling import public_generator
from mechanisms.table import decode, draft_domain, encode, read_table

DOMAIN = Domain(
    (
        Categorical("colour", ("red", "green", "NA"), missing=True),
        Integer("age", 0, 99, missing=True),
        Real("weight", -1.5, 2.5),
    )
)
CSV = "age,colour,weight\n7, red,0.5\n\n?,NA,-1.5\n99,,2.5\n"


def write(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_read_table_keeps_text_and_lines(tmp_path: Path) -> None:
    frame = read_table(write(tmp_path, CSV))
    assert list(frame.columns) == ["age", "colour", "weight"]
    assert frame.values.tolist() == [["7", "red", "0.5"], ["?", "NA", "-1.5"], ["99", "", "2.5"]]
    assert list(frame.index) == [2, 4, 5]


def test_read_table_counts_lines_inside_quotes(tmp_path: Path) -> None:
    frame = read_table(write(tmp_path, 'a,b\n"x\ny",1\nz,2\n'))
    assert list(frame.index) == [2, 4]


def test_read_table_reads_gzip_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(("\ufeff" + CSV).encode()))
    assert read_table(path).equals(read_table(write(tmp_path, CSV)))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"a,b\n1,2\n3\n", "line 3: 1 values; the header has 2"),
        (b"a,b\n1,2,3\n", "line 2: 3 values"),
        (b"a,a\n1,2\n", "column 'a' appears twice"),
        (b"a,\n1,2\n", "column 2 has no name"),
        (b"a,b\n\xff,2\n", "not UTF-8"),
        (b'a,b\n1,"2\n', "after line"),
    ],
)
def test_read_table_says_what_is_wrong_with_a_file(
    tmp_path: Path, content: bytes, says: str
) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read_table(path)
    assert str(path) in str(caught.value)


DAMAGED = bytearray(gzip.compress(CSV.encode() * 100))
DAMAGED[60] ^= 0xFF


@pytest.mark.parametrize(
    "content", [b"not gzip", gzip.compress(CSV.encode())[:-12], bytes(DAMAGED)]
)
def test_read_table_refuses_damaged_gzip(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        read_table(path)


def test_read_table_names_the_file_when_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.csv: cannot be read: No such file"):
        read_table(tmp_path / "absent.csv")


def test_encode_follows_domain_order(tmp_path: Path) -> None:
    codes = encode(DOMAIN, read_table(write(tmp_path, CSV)))
    assert codes.dtype == np.int32
    assert codes.tolist() == [[0, 2, 16], [2, 32, 0], [3, 31, 31]]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("7,blue,0", r"t\.csv, line 3, column 'colour' \(categorical\): the value 'blue'"),
        ("100,red,0", r"column 'age' \(integer\).*whole number from 0 to 99, or '' or '\?'"),
        ("7,red,?", r"column 'weight' \(real\).*from -1.5 to 2.5; missing values are not allowed"),
        ("7," + "x" * 1000 + ",0", r"the value 'x{37}\.\.\.' is not allowed"),
    ],
)
def test_encode_says_where_a_value_is_wrong(tmp_path: Path, row: str, says: str) -> None:
    frame = read_table(write(tmp_path, f"age,colour,weight\n1,red,0\n{row}\n"))
    with pytest.raises(DataError, match=says):
        encode(DOMAIN, frame, source="t.csv")


def test_encode_names_the_first_line_when_several_are_wrong() -> None:
    frame = pd.DataFrame({"age": ["1"] * 4, "colour": ["red", "x", "y", "x"], "weight": ["0"] * 4})
    with pytest.raises(DataError, match=r"line 1, column 'colour'.*'x'"):
        encode(DOMAIN, frame)


def test_encode_refuses_other_columns() -> None:
    frame = pd.DataFrame({"age": ["1"], "colour": ["red"], "weight": ["0"], "name": ["Eve"]})
    with pytest.raises(DataError, match="column 'name' is not in the domain"):
        encode(DOMAIN, frame)
    with pytest.raises(DataError, match="column 'age' of the domain is not in the table"):
        encode(DOMAIN, frame[["colour", "weight"]])


def test_a_header_alone_is_a_table_without_rows(tmp_path: Path) -> None:
    frame = read_table(write(tmp_path, "weight,age,colour\n"))
    codes = encode(DOMAIN, frame)
    assert (codes.shape, codes.dtype) == ((0, 3), np.int32)


def test_draft_domain_needs_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="at least one row is needed"):
        draft_domain(write(tmp_path, "weight,age,colour\n"))


def test_encode_refuses_numbers_that_are_not_text() -> None:
    frame = pd.DataFrame({"age": [1], "colour": ["red"], "weight": ["0"]})
    with pytest.raises(DataError, match="column 'age'"):
        encode(DOMAIN, frame)


@given(st.integers(0, 2**32), st.integers(1, 50))
def test_encode_gives_back_codes_when_decoded(seed: int, rows: int) -> None:
    generator = public_generator(seed)
    codes = generator.integers(0, DOMAIN.shape, (rows, 3)).astype(np.int32)
    frame = decode(DOMAIN, codes, generator)
    assert list(frame.columns) == list(DOMAIN.names)
    assert (encode(DOMAIN, frame) == codes).all()


def test_decode_spreads_values_over_the_bin() -> None:
    codes = np.tile(np.array([[0, 4, 7]], np.int32), (2000, 1))
    frame = decode(DOMAIN, codes, public_generator(1))
    assert set(frame["age"]) == {"13", "14", "15"}
    weights = frame["weight"].astype(float)
    assert weights.min() < -0.61
    assert weights.max() > -0.515
    assert weights.between(-0.625, -0.5, inclusive="left").all()


def test_decode_writes_missing_in_the_users_spelling() -> None:
    domain = Domain(DOMAIN.columns, missing_values=("-", ""))
    frame = decode(domain, np.array([[3, 32, 0]], np.int32), public_generator(1))
    assert frame.loc[0, ["colour", "age"]].tolist() == ["-", "-"]


def test_draft_domain_fits_its_table(tmp_path: Path) -> None:
    text = "n,x,c,only,empty\n1,0.5,b,4.5,\n30,7,a,4.5,?\n,1e1,b,4.5,\n"
    path = write(tmp_path, text)
    domain, notes = draft_domain(path)
    assert domain.columns[:3] == (
        Integer("n", 1, 30, missing=True),
        Real("x", 0.5, 10.0),
        Categorical("c", ("a", "b")),
    )
    assert encode(domain, read_table(path)).shape == (3, 5)
    assert len(notes) == 5
    assert "low = 1 and high = 30 were read from the data" in notes[0]
    assert all("read from the data" in note for note in notes)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1e3", "2"], Real),
        (["1_000", "2"], Categorical),
        (["0", "1e-300"], Categorical),
        (["0", "9007199254740993"], Integer),
        (["0", "1" + "0" * 20], Categorical),
        (["123456789.25"], Real),
        (["01010", "90210"], Categorical),
        (["1", "-007"], Categorical),
        (["1.5", "00.5"], Categorical),
        (["0", "0.5", "-0.25"], Real),
        (["0", "10"], Integer),
    ],
)
def test_draft_domain_fits_odd_numbers(tmp_path: Path, values: list[str], kind: type) -> None:
    path = write(tmp_path, "\n".join(["x", *values]))
    domain, _ = draft_domain(path)
    assert isinstance(domain.columns[0], kind)
    assert len(set(encode(domain, read_table(path))[:, 0].tolist())) == len(values)


def test_draft_domain_warns_of_identifiers(tmp_path: Path) -> None:
    rows = "".join(f"user-{i}\n" for i in range(101))
    _, notes = draft_domain(write(tmp_path, "id\n" + rows))
    assert "identifier" in notes[0]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["1", "nan", "inf"], "not a numeric column, since 'nan' is no number (the first such"),
        (["1.5", "1e400"], "since '1e400' is no number"),
        (["7", "07"], "since '07' begins with a zero, as codes do"),
        (["0", "1e-300"], "since bins cannot tell its numbers apart"),
        (["1", "x" * 50], f"since '{'x' * 37}...' is no number"),
    ],
)
def test_draft_domain_says_why_numbers_became_categories(
    tmp_path: Path, values: list[str], said: str
) -> None:
    (note,) = draft_domain(write(tmp_path, "\n".join(["x", *values])))[1]
    assert said in note


def test_draft_domain_does_not_wonder_at_words(tmp_path: Path) -> None:
    assert "numeric" not in draft_domain(write(tmp_path, "x\na\nb\n"))[1][0]


def test_decode_keeps_the_zeros_of_codes_in_a_drafted_domain(tmp_path: Path) -> None:
    path = write(tmp_path, "zip\n01010\n90210\n")
    domain, _ = draft_domain(path)
    codes = encode(domain, read_table(path))
    assert decode(domain, codes, public_generator(1))["zip"].tolist() == ["01010", "90210"]
