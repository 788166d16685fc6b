"""Encoding and decoding tables."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.domain import Categorical, Domain, Implied, Integer, Moment, Real
from mechanisms.errors import DataError
from mechanisms.reading import read_table
from mechanisms.sampling import public_generator
from mechanisms.table import decode, encode

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


def test_encode_counts_all_wrong_cells_and_shows_the_first_ten() -> None:
    rows = 30
    frame = pd.DataFrame(
        {
            "age": ["1", *["x"] * (rows - 1)],
            "colour": ["blue", *["red"] * (rows - 1)],
            "weight": ["0"] * rows,
        },
        index=pd.RangeIndex(2, rows + 2),
    )
    with pytest.raises(DataError) as caught:
        encode(DOMAIN, frame, source="t.csv")
    first, *lines = str(caught.value).splitlines()
    assert first == "t.csv: 30 values are not allowed; the first 10:"
    assert lines[0] == "  line 2, column 'colour' (categorical): the value 'blue'"
    assert lines[1:10] == [
        f"  line {i}, column 'age' (integer): the value 'x'" for i in range(3, 12)
    ]
    assert lines[10].startswith("'colour' has to be one of 'red'")
    assert lines[11].startswith("'age' has to be a whole number from 0 to 99")
    with pytest.raises(DataError, match="2 values are not allowed; they are:"):
        encode(DOMAIN, frame.iloc[:2])


def test_encode_leaves_out_what_is_to_be_ignored() -> None:
    cells = {"age": ["1"], "colour": ["red"], "weight": ["0"]}
    plain = encode(DOMAIN, pd.DataFrame(cells)).tolist()
    frame = pd.DataFrame({"name": ["Eve"], **cells, "note": ["x"]})
    domain = Domain(DOMAIN.columns, ignore=("name", "note", "absent"))
    assert encode(domain, frame).tolist() == plain
    assert encode(DOMAIN, frame, ignore_extra=True).tolist() == plain
    with pytest.raises(DataError, match="columns 'name', 'note' are not in the domain"):
        encode(DOMAIN, frame)
    with pytest.raises(DataError, match="column 'colour' of the domain is not in the table"):
        encode(DOMAIN, frame[["name"]], ignore_extra=True)


LEVELS = Domain(
    (Categorical("level", ("low", "high"), missing=True), Integer("grade", 1, 2)),
    implied=(
        Implied("rank", "level", (("high", "2"), ("low", "1")), 1),
        Implied("word", "grade", (("1", "one"), ("2", "two")), 3),
    ),
)


def test_encode_refuses_rows_that_contradict_an_implied_column() -> None:
    good = {
        "level": ["low", "", "high"],
        "rank": ["1.0", "?", "2"],
        "grade": ["1", "2", "2.0"],
        "word": ["one", "two", "two"],
    }
    codes = encode(LEVELS, pd.DataFrame(good))
    assert codes.tolist() == [[0, 0], [2, 1], [1, 1]]
    without = pd.DataFrame(good).drop(columns=["rank", "word"])
    assert (encode(LEVELS, without) == codes).all()
    with pytest.raises(
        DataError,
        match=r"line 2, column 'rank' \(implied\): the value '1' contradicts 'level' of the"
        r" same row, from which follows '2'$",
    ):
        encode(LEVELS, pd.DataFrame(good | {"rank": ["1", "", "1"]}))
    with pytest.raises(DataError, match=r"2 values are not allowed; they are:\n  line 0.*'one'"):
        encode(LEVELS, pd.DataFrame(good | {"word": ["two", "two", "one"]}))
    # What is wrong with the source is said once.
    with pytest.raises(DataError, match=r"^table, line 0, column 'level' .*'mid' is not allowed"):
        encode(LEVELS, pd.DataFrame(good | {"level": ["mid", "", "high"]}))


def test_decode_fills_implied_columns_in_from_their_tables() -> None:
    codes = np.array([[0, 0], [1, 1], [2, 1]], np.int32)
    frame = decode(LEVELS, codes, public_generator(1))
    assert list(frame.columns) == ["level", "rank", "grade", "word"]
    assert frame.values.tolist() == [
        ["low", "1", "1", "one"],
        ["high", "2", "2", "two"],
        ["", "", "2", "two"],
    ]
    assert (encode(LEVELS, frame) == codes).all()


SHAPED = Domain(
    (
        Integer("gain", 1, 99_999, scale="log", atoms=(0,)),
        Integer("hours", 1, 99, atoms=(40,), missing=True),
        Real("cost", 0.0, 10_000.0, atoms=(0.0, 49.9), decimals=2),
        Real("dose", 0.0, 5.0, edges=(0.0, 0.5, 5.0)),
        Moment("day", "date", "2020-01-01", "2024-12-31", "day", atoms=("9999-12-31",)),
        Moment(
            "at",
            "datetime",
            "2024-01-01T00:00Z",
            "2024-12-31T23:00Z",
            "hour",
            form="YYYY-MM-DDTHH:MMZ",
            missing=True,
        ),
    )
)


@given(st.integers(0, 2**32), st.integers(1, 50))
def test_encode_gives_back_codes_when_decoded_for_all_shapes(seed: int, rows: int) -> None:
    generator = public_generator(seed)
    codes = generator.integers(0, SHAPED.shape, (rows, len(SHAPED.columns))).astype(np.int32)
    frame = decode(SHAPED, codes, generator)
    assert (encode(SHAPED, frame) == codes).all()


def test_decode_writes_atoms_exactly_and_values_as_the_input_has_them() -> None:
    row = {"gain": "0", "hours": "40", "cost": "49.9", "dose": "0.25", "day": "9999-12-31"}
    values = pd.DataFrame([{**row, "at": "2024-05-06T10:30+02:00"}] * 500)
    frame = decode(SHAPED, encode(SHAPED, values), public_generator(1))
    for name, value in (("gain", "0"), ("hours", "40"), ("cost", "49.90"), ("day", "9999-12-31")):
        assert set(frame[name]) == {value}
    other = values.assign(gain="7", hours="39", cost="6588.96", day="2022-02-22")
    frame = decode(SHAPED, encode(SHAPED, other), public_generator(1))
    assert "40" not in set(frame["hours"])
    assert frame["cost"].str.fullmatch(r"\d+\.\d\d").all()
    assert frame["cost"].astype(float).between(6562.5, 6875).all()
    assert frame["day"].str.fullmatch(r"202[12]-\d\d-\d\d").all()
    assert frame["at"].str.fullmatch(r"2024-\d\d-\d\dT\d\d:00Z").all()
