"""Drafting domains from tables."""

import csv
import re
import tomllib
from datetime import UTC
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mechanisms.dialect import Dialect
from mechanisms.domain import Categorical, Integer, Moment, Real
from mechanisms.draft import KNOWN_MISSING, Draft, draft_domain
from mechanisms.errors import DataError
from mechanisms.private_bins import PrivateBins
from mechanisms.private_columns import FINE_CELLS
from mechanisms.reading import read_drawn, read_table
from mechanisms.sampling import public_generator
from mechanisms.source import TableSource
from mechanisms.table import decode, encode
from mechanisms.writing import text_bytes
from parties.config import config_from_dict
from parties.session.draft_config import draft_text


def write(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_draft_domain_fits_its_table(tmp_path: Path) -> None:
    text = "n,x,c,only,empty\n1,0.5,b,4.5,\n30,7,a,4.5,?\n,1e1,b,4.5,\n"
    path = write(tmp_path, text)
    draft = draft_domain(path)
    domain, notes = draft.domain, draft.notes
    assert domain.columns[:4] == (
        Integer("n", 1, 30, missing=True),
        Real("x", 0.5, 10.0, decimals=1, form="0.#"),
        Categorical("c", ("a", "b")),
        Real("only", 4.5, 5.5, decimals=1),
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
        (["0", "9007199254740993"], Categorical),
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
    domain = draft_domain(path).domain
    assert isinstance(domain.columns[0], kind)
    assert len(set(encode(domain, read_table(path))[:, 0].tolist())) == len(values)


def test_draft_domain_warns_of_identifiers(tmp_path: Path) -> None:
    rows = "".join(f"user-{i},{i % 7}\n" for i in range(101))
    draft = draft_domain(write(tmp_path, "id,n\n" + rows))
    assert draft.domain.names == ("n",)
    assert draft.domain.ignore == ("id",)
    (note,) = draft.left_out
    assert note == "id: looks like an identifier or free text: 101 different values in 101 rows"
    assert "user" not in str(draft)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["1", "nan", "inf"], "not a numeric column, since 'inf' is no number (the first such"),
        (["1.5", "1e400"], "since '1e400' is no number"),
        (["7", "07"], "since '07' begins with a zero, as codes do"),
        (["0", "1e-300"], "since bins cannot tell its numbers apart"),
        (["1", "x" * 50], f"since '{'x' * 37}...' is no number"),
    ],
)
def test_draft_domain_says_why_numbers_became_categories(
    tmp_path: Path, values: list[str], said: str
) -> None:
    (note,) = draft_domain(write(tmp_path, "\n".join(["x", *values]))).notes
    assert said in note


def test_draft_domain_does_not_wonder_at_words(tmp_path: Path) -> None:
    assert "numeric" not in draft_domain(write(tmp_path, "x\na\nb\n")).notes[0]


def test_decode_keeps_the_zeros_of_codes_in_a_drafted_domain(tmp_path: Path) -> None:
    path = write(tmp_path, "zip\n01010\n90210\n")
    domain = draft_domain(path).domain
    codes = encode(domain, read_table(path))
    assert decode(domain, codes, public_generator(1))["zip"].tolist() == ["01010", "90210"]


def drafted(folder: Path, **columns: list[str]) -> Draft:
    frame = pd.DataFrame(columns, dtype=object)
    path = folder / "drafted.csv"
    frame.to_csv(path, index=False)
    return draft_domain(path)


def test_draft_domain_proposes_atoms_and_edges(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    amounts = np.round(np.exp(generator.normal(4, 2, 400)), 2)
    draft = drafted(
        tmp_path,
        gain=["0"] * 600 + [str(int(10 * amount) + 1) for amount in amounts],
        hours=["40"] * 500 + [str(n) for n in generator.integers(1, 99, 500)],
        cost=[*["0.00"] * 20, *[f"{amount:.2f}" for amount in amounts], *["9.90"] * 580],
        small=[str(n) for n in generator.integers(0, 5, 1000)],
    )
    gain, hours, cost, small = draft.domain.columns
    assert isinstance(gain, Integer)
    assert gain.atoms == (0,)
    assert len(gain.edges) > 4
    assert isinstance(hours, Integer)
    assert (hours.atoms, hours.edges) == ((40,), ())
    assert isinstance(cost, Real)
    assert (cost.atoms, cost.decimals) == ((0.0, 9.9), 2)
    assert len(cost.edges) > 4
    assert small == Integer("small", 0, 4)
    assert "that many rows have 0 (atoms), too" in draft.notes[0]
    assert "the edges of its bins" in draft.notes[0]


def test_draft_domain_with_private_bins_says_nothing_of_values_within_the_bounds(
    tmp_path: Path,
) -> None:
    gains = ["0"] * 600 + [str(1000 + 37 * i) for i in range(300)] + ["99999"] * 100
    prices = [f"{i / 4:.2f}" for i in range(1000)]
    rows = "\n".join(
        f"{g},{p},{i % 4},m" for i, (g, p) in enumerate(zip(gains, prices, strict=True))
    )
    path = write(tmp_path, f"gain,price,ward,sex\n{rows}\n")
    draft = draft_domain(path, private_bins=True)
    gain, price, ward, sex = draft.domain.columns
    # Sign and size alone.
    fine = PrivateBins(FINE_CELLS)
    assert gain == Integer("gain", 0, 100_000, scale="symlog", private=fine)
    assert price == Real("price", 0.0, 1000.0, scale="symlog", decimals=2, private=fine)
    assert ward == Integer("ward", 0, 3)
    assert isinstance(sex, Categorical)
    assert "atoms" not in draft_text("table", draft)
    assert encode(draft.domain, read_table(path)).shape == (1000, 4)
    document = {**tomllib.loads(draft_text("table", draft))}
    document["run"] = {**document["run"], "id": "draft"}
    assert config_from_dict(document, source="draft", base=Path()).domain == draft.domain


def test_draft_domain_leaves_out_identifiers_and_free_text_without_their_values(
    tmp_path: Path,
) -> None:
    rows = 200
    draft = drafted(
        tmp_path,
        patient_id=[str(917 * i % 9973 + 100_000) for i in range(rows)],
        number=[str(i + 1) for i in range(rows)],
        zip=[f"0{i:04d}" for i in range(rows)],
        name=[f"Person {i // 2}" for i in range(rows)],
        note=[
            f"seen on ward {i} with a long story to tell about everything else" for i in range(rows)
        ],
        remark=["fine", *("ill" * (100 + i) for i in range(24))] * (rows // 25),
        fnlwgt=[str(917 * i % 9973) for i in range(rows)],
        cost=[f"{i * 0.37:.2f}" for i in range(rows)],
        born=[f"19{i // 12 + 10:02d}-{i % 12 + 1:02d}-03" for i in range(rows)],
        ward=["a", "b"] * (rows // 2),
    )
    assert draft.domain.names == ("fnlwgt", "cost", "born", "ward")
    assert draft.domain.ignore == ("patient_id", "number", "zip", "name", "note", "remark")
    assert len(draft.left_out) == 6
    text = draft_text("t", draft)
    for value in ("Person", "ward 1", "ill", "00001", "100917"):
        assert value not in text


def test_draft_domain_knows_the_spellings_of_missing_values(tmp_path: Path) -> None:
    spellings = ["NA", "N/A", "NaN", "null", "None", "?", "NA"]
    draft = drafted(tmp_path, n=[*spellings, "1", "2"], c=[*"abababa", "NA", "a"])
    assert draft.domain.columns == (
        Integer("n", 1, 2, missing=True),
        Categorical("c", ("a", "b"), missing=True),
    )
    assert draft.domain.missing_values[0] == "NA"
    assert set(draft.domain.missing_values) == set(spellings)


@pytest.mark.parametrize(
    ("values", "column"),
    [
        (["2024-03-05", "2023-01-31"], Moment("x", "date", "2023-01-31", "2024-03-05", "day")),
        (
            ["2024-03", "2023-01"],
            Moment("x", "date", "2023-01", "2024-03", "month", form="YYYY-MM"),
        ),
        (
            ["2024-W10", "2023-W52"],
            Moment("x", "date", "2023-W52", "2024-W10", "week", form="YYYY-Www"),
        ),
        (
            [f"202{i}-01-01" for i in range(6)],
            Moment("x", "date", "2020-01-01", "2025-01-01", "year"),
        ),
        (
            [f"200{i}0102" for i in range(10)],
            Moment("x", "date", "20000102", "20090102", "day", form="YYYYMMDD"),
        ),
        (["20240305", "20240306"], Integer("x", 20240305, 20240306)),
        (
            ["2024-03-05 10:30", "2024-03-06 11:00"],
            Moment(
                "x",
                "datetime",
                "2024-03-05 10:30",
                "2024-03-06 11:00",
                "minute",
                form="YYYY-MM-DD HH:MM",
            ),
        ),
        (
            [f"2024-03-0{i}T00:00:00Z" for i in range(1, 8)],
            Moment(
                "x",
                "datetime",
                "2024-03-01T00:00:00Z",
                "2024-03-07T00:00:00Z",
                "day",
                form="YYYY-MM-DDTHH:MM:SSZ",
            ),
        ),
        (
            ["2024-03-05T10:00:00+01:00", "2024-03-05T10:00:00+02:00"],
            Moment(
                "x",
                "datetime",
                "2024-03-05T08:00:00Z",
                "2024-03-05T09:00:00Z",
                "second",
                form="YYYY-MM-DDTHH:MM:SSZ",
            ),
        ),
        (["2024-03-05", "soon"], Categorical("x", ("2024-03-05", "soon"))),
        (["2024-02-30", "2024-02-28"], Categorical("x", ("2024-02-28", "2024-02-30"))),
        (
            ["9999-12-31"] * 20 + [f"2024-01-{i:02d}" for i in range(1, 31)],
            Moment("x", "date", "2024-01-01", "2024-01-30", "day", atoms=("9999-12-31",)),
        ),
    ],
)
def test_draft_domain_finds_dates_and_their_form(
    tmp_path: Path, values: list[str], column: Moment
) -> None:
    assert drafted(tmp_path, x=values).domain.columns == (column,)


def test_draft_domain_needs_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="at least one row is needed"):
        draft_domain(write(tmp_path, "weight,age,colour\n"))


def test_draft_domain_says_when_no_column_is_left(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column is left to model; x: looks like an identifier"):
        drafted(tmp_path, x=[f"user-{i}" for i in range(50)])


NAMES = st.text(min_size=1, max_size=6).map(str.strip).filter(lambda s: s and "\0" not in s)
CELLS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.integers(0, 40).map(str),
    st.floats(allow_nan=True).map(repr),
    st.decimals(-1000, 1000, places=2).map(str),
    st.dates().map(str),
    st.datetimes().map(str),
    st.sampled_from(
        [*KNOWN_MISSING, "007", "1,5", "1.234,5", "a;b", "x\ty", "'q'", '"', "2024-W10"]
    ),
    st.text(max_size=8).filter(lambda s: "\0" not in s),
    st.text(min_size=190, max_size=210).filter(lambda s: "\0" not in s),
)
COLUMNS = st.one_of(
    st.lists(CELLS, min_size=30, max_size=30),
    *(
        st.lists(st.one_of(st.just(""), kind), min_size=30, max_size=30)
        for kind in (
            st.integers(-(10**20), 10**20).map(str),
            st.integers(0, 10**6).map(str),
            st.floats(allow_nan=False).map(repr),
            st.decimals(0, 10**6, places=3).map(str),
            st.decimals(0, 10**6, places=2).map(lambda x: str(x).replace(".", ",")),
            st.dates().map(str),
            st.datetimes(timezones=st.sampled_from([None, UTC])).map(str),
            st.sampled_from(["0", "0", "0", "17", "123456"]),
        )
    ),
)


def test_notes_have_no_control_characters(tmp_path: Path) -> None:
    """TOML has none in its comments, and a terminal would obey them."""
    path = tmp_path / "t.csv"
    digits = [
        "1.947114800458649",
        "5.456843312898453",
        "-4.641255682042012",
        "1.0000161523136074",
        "1",
        "1",
    ]
    powers = ["4.4699731364231e-277", *(f"{number}e+16" for number in digits)]
    cells = [f"{cell}," for cell in [*([""] * 20), "0.0", *powers, "1.0000000000000002e+16", "inf"]]
    path.write_text("\n".join(["a\x7fb,c", *cells]) + "\n", encoding="utf-8")
    draft = draft_domain(TableSource(str(path), dialect=Dialect(header_line=1)))
    assert draft.notes
    assert all(
        note.isprintable()
        for note in (*draft.notes, *draft.left_out, *draft.questions, *draft.skipped)
    )
    tomllib.loads(draft_text("t.csv", draft))


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(NAMES, COLUMNS, min_size=1, max_size=4),
    st.integers(1, 30),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    st.integers(0, 2**32),
)
def test_drafts_always_load_and_fit_their_tables(
    tmp_path_factory: pytest.TempPathFactory,
    columns: dict[str, list[str]],
    rows: int,
    delimiter: str,
    encoding: str,
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("draft", numbered=True)
    path = folder / "t.csv"
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL)
        writer.writerow(columns)
        writer.writerows(list(zip(*columns.values(), strict=True))[:rows])
    # Names are any text here, numbers among them.
    source = TableSource(str(path), dialect=Dialect(header_line=1))
    try:
        frame = read_table(source)
        draft = draft_domain(source)
    except DataError as error:
        # Names that differ by blanks only, a table that looks written otherwise, and one of identifiers alone.
        refused = "appears twice|has no name|values; the header|no column is left"
        if re.search(refused, str(error)):
            return
        raise
    text = draft_text("t.csv", draft)
    config = config_from_dict(
        tomllib.loads(text) | {"run": {**tomllib.loads(text)["run"], "id": "t"}},
        source="t",
        base=folder,
    )
    assert config.domain == draft.domain
    assert config.build_workload().queries
    codes = encode(config.domain, frame)
    again = decode(config.domain, codes, public_generator(seed))
    assert (encode(config.domain, again) == codes).all()
    drawn = folder / "synthetic.csv"
    drawn.write_bytes(text_bytes(again, config.domain))
    assert (encode(config.domain, read_drawn(drawn, config.domain)) == codes).all()
