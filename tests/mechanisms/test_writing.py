"""Synthetic tables in every kind of file: their types, that they read back to the same codes, what is refused."""

import datetime
import gzip
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mechanisms.domain import Categorical, Domain, Implied, Integer, Moment, Real
from mechanisms.errors import DataError
from mechanisms.model import Model
from mechanisms.reading import read_table
from mechanisms.sampling import public_generator
from mechanisms.synthetic import PART, synthetic_parts
from mechanisms.table import decode, encode
from mechanisms.typed import (
    DAY,
    NUMBER,
    TEXT,
    TIME,
    TRUTH,
    WHOLE,
    ValueType,
    typed_table,
    value_types,
)
from mechanisms.writing import EXCEL_ROWS, form_of, write_rows

DOMAIN = Domain(
    (
        Categorical("ward", ("=1+1", "north, east", "07"), missing=True),
        Categorical("code", ("1", "2", "3"), missing=True),
        Categorical("smoker", ("True", "False")),
        Integer("age", 0, 99, missing=True, atoms=(40,)),
        Real("cost", 0.0, 9999.99, bins=20, decimals=2, atoms=(0.0, 6588.96), missing=True),
        Real("weight", -1.5, 2.5),
        Moment("born", "date", "1890-01-01", "2020-12-31", "day", bins=30, missing=True),
        Moment("month", "date", "2020-01-01", "2021-12-31", "month", form="YYYY-MM"),
        Moment("seen", "datetime", "2020-01-01T00:00:00", "2020-12-31T23:59:59", "second"),
        Moment(
            "zoned", "datetime", "2020-01-01T00:00+01:00", "2020-01-31T23:59+01:00", "minute",
            form="YYYY-MM-DDTHH:MM+01:00",
        ),
    ),
    implied=(
        Implied("level", "ward", (("07", "seven"), ("=1+1", "two"), ("north, east", "7")), 1),
        Implied("weight of code", "code", (("1", "0.5"), ("2", "1.25"), ("3", "-3.0")), 5),
    ),
)  # fmt: skip
ROWS = 400
ENDINGS = ("csv", "csv.gz", "tsv", "tsv.gz", "parquet", "pq", "xlsx")


@pytest.fixture(scope="module")
def codes() -> np.ndarray:
    sizes = DOMAIN.shape
    return np.random.default_rng(0).integers(0, sizes, (ROWS, len(sizes))).astype(np.int32)


@pytest.fixture(scope="module")
def frame(codes: np.ndarray) -> pd.DataFrame:
    return decode(DOMAIN, codes, public_generator(1))


def written(path: Path, frame: pd.DataFrame, domain: Domain = DOMAIN) -> Path:
    """In two parts."""
    half = len(frame) // 2
    write_rows(path, (frame[:half], frame[half:]), domain, form_of(path))
    return path


@pytest.mark.parametrize("ending", ENDINGS)
def test_write_rows_reads_back_to_the_same_codes(
    ending: str, codes: np.ndarray, frame: pd.DataFrame, tmp_path: Path
) -> None:
    if ending in ("parquet", "pq", "xlsx"):
        pytest.importorskip("pyarrow" if ending[0] == "p" else "openpyxl")
    table = read_table(written(tmp_path / f"more.{ending}", frame))
    assert tuple(table.columns) == DOMAIN.written_names
    assert encode(DOMAIN, table).tolist() == codes.tolist()


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv"])
def test_write_rows_leaves_text_as_it_is_and_repeats_itself(
    ending: str, frame: pd.DataFrame, tmp_path: Path
) -> None:
    path = written(tmp_path / f"a.{ending}", frame)
    data = gzip.decompress(path.read_bytes()) if ending.endswith("gz") else path.read_bytes()
    assert data.decode() == frame.to_csv(index=False, sep="\t" if ending == "tsv" else ",")
    assert written(tmp_path / f"b.{ending}", frame).read_bytes() == path.read_bytes()
    if ending.endswith("gz"):
        assert path.read_bytes()[4:8] == bytes(4), "the time of a packed file"


def test_value_types_are_those_of_the_columns() -> None:
    kinds = {name: kind.kind for name, kind in value_types(DOMAIN).items()}
    assert kinds == {
        "ward": TEXT, "level": TEXT, "code": WHOLE, "smoker": TRUTH, "age": WHOLE,
        "weight of code": NUMBER, "cost": NUMBER, "weight": NUMBER, "born": DAY, "month": TEXT,
        "seen": TIME, "zoned": TIME,
    }  # fmt: skip
    assert value_types(DOMAIN)["cost"].places == 2
    assert value_types(DOMAIN)["zoned"].zone == "+01:00"


@pytest.mark.parametrize(
    ("categories", "kind"),
    [
        (("0", "-1"), WHOLE),
        (("0", "01"), TEXT),
        (("+1",), TEXT),
        ((str(2**63),), TEXT),
        (("1.5", "2.0"), NUMBER),
        (("1.50", "2.0"), TEXT),
        (("1.5", "x"), TEXT),
        (("True",), TRUTH),
        (("true", "false"), TEXT),
    ],
)
def test_value_types_of_categories_lose_no_spelling(categories: tuple[str, ...], kind: str) -> None:
    domain = Domain((Categorical("a", categories),))
    assert value_types(domain)["a"].kind == kind
    frame = pd.DataFrame({"a": list(categories)}, dtype=object)
    if kind != TEXT:
        assert [str(value) for value in typed_table(domain, frame)["a"]] == list(categories)


def test_typed_table_has_pandas_types(frame: pd.DataFrame) -> None:
    types = {name: str(dtype) for name, dtype in typed_table(DOMAIN, frame).dtypes.items()}
    assert types == {
        "ward": "str", "level": "str", "code": "Int64", "smoker": "bool", "age": "Int64",
        "weight of code": "float64", "cost": "float64", "weight": "float64", "month": "str",
        "born": types["born"], "seen": types["seen"], "zoned": types["zoned"],
    }  # fmt: skip
    assert all(types[name].startswith("datetime64[") for name in ("born", "seen", "zoned"))
    assert types["zoned"].endswith(", UTC+01:00]")
    missing = frame.isin(("",)).sum().to_dict()
    assert typed_table(DOMAIN, frame).isna().sum().to_dict() == missing
    assert missing["age"] > 0
    assert missing["level"] == missing["ward"] > 0


def test_typed_table_takes_a_category_for_one_that_looks_like_a_missing_value() -> None:
    domain = Domain((Categorical("a", ("", "x"), missing=True), Categorical("b", ("", "x"))))
    frame = pd.DataFrame({"a": ["", "x"], "b": ["", "x"]}, dtype=object)
    assert typed_table(domain, frame).to_dict("list") == {"a": ["", "x"], "b": ["", "x"]}


def test_write_rows_has_typed_columns_in_parquet(frame: pd.DataFrame, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra 'tables' is not installed")
    schema = parquet.read_schema(written(tmp_path / "a.parquet", frame))
    assert {field.name: str(field.type) for field in schema} == {
        "ward": "string", "level": "string", "code": "int64", "smoker": "bool", "age": "int64",
        "weight of code": "double", "cost": "double", "weight": "double", "born": "date32[day]",
        "month": "string", "seen": "timestamp[us]", "zoned": "timestamp[us, tz=+01:00]",
    }  # fmt: skip
    assert [field.name for field in schema if not field.nullable] == [
        "smoker", "weight", "month", "seen", "zoned",
    ]  # fmt: skip


def test_write_rows_shows_values_as_they_are_in_excel_and_makes_no_formula(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="the extra 'tables' is not installed")
    domain = Domain(
        (Categorical("=a", ("=1+1",)), Real("cost", 0.0, 9.0, decimals=2, missing=True),
         Moment("born", "date", "1890-01-01", "2020-12-31", "day"))
    )  # fmt: skip
    frame = pd.DataFrame(
        {"=a": ["=1+1"] * 2, "cost": ["6.50", ""], "born": ["2001-02-03", "1899-12-31"]},
        dtype=object,
    )
    sheet = openpyxl.load_workbook(written(tmp_path / "a.xlsx", frame, domain)).worksheets[0]
    rows = list(sheet.iter_rows())
    assert [[cell.value for cell in row] for row in rows] == [
        ["=a", "cost", "born"],
        ["=1+1", 6.5, datetime.datetime(2001, 2, 3)],
        ["=1+1", None, "1899-12-31"],
    ]
    assert [cell.data_type for cell in rows[1]] == ["s", "n", "d"]
    assert rows[1][1].number_format == "0.00"


def test_write_rows_refuses_a_character_that_excel_does_not_take(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl", reason="the extra 'tables' is not installed")
    domain = Domain((Categorical("a", ("x\x07",)),))
    with pytest.raises(DataError, match="has a character that Excel does not take"):
        written(tmp_path / "a.xlsx", pd.DataFrame({"a": ["x\x07"]}, dtype=object), domain)


@pytest.mark.parametrize("name", ["more", "more.txt", "more.gz", "more.xls", "more.parquet.gz"])
def test_form_of_refuses_other_endings(name: str) -> None:
    with pytest.raises(DataError, match=rf"{name}: tables are written as \.csv, .* and \.xlsx"):
        form_of(Path(name))


def test_form_of_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, ending in (("pyarrow", "parquet"), ("openpyxl", "xlsx")):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(DataError, match=rf'needs {name}.*pip install "syncret\[tables\]"'):
            form_of(Path(f"a.{ending}"))
    assert form_of(Path("a.b.CSV")).most is None


def test_form_of_excel_holds_a_sheet() -> None:
    pytest.importorskip("openpyxl", reason="the extra 'tables' is not installed")
    assert form_of(Path("a.xlsx")).most == EXCEL_ROWS == 2**20 - 1


def test_synthetic_parts_are_the_rows_of_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = Domain((Categorical("a", ("x", "y")),))
    model = Model(domain, (("a",),), (-1,), (np.array([0.25, 0.75]),))
    (whole,) = synthetic_parts(model, 100, seed=3)
    assert len(whole) == 100 < PART
    assert (whole["a"] == "x").sum() == pytest.approx(25, abs=1)
    monkeypatch.setattr("mechanisms.synthetic.PART", 30)
    parts = list(synthetic_parts(model, 100, seed=3))
    assert [len(part) for part in parts] == [30, 30, 30, 10]
    assert pd.concat(parts)["a"].tolist() == whole["a"].tolist()
    (other,) = synthetic_parts(model, 30, seed=4)
    assert other["a"].tolist() != parts[0]["a"].tolist()


def test_value_type_reads_what_is_written() -> None:
    assert ValueType(DAY).value("20200102") == datetime.date(2020, 1, 2)
    assert ValueType(TIME, zone="Z").value("2020-01-02T03Z").tzinfo == datetime.UTC  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="invalid literal"):
        ValueType(WHOLE).value("x")
