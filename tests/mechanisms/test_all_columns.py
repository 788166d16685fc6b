"""Columns that a draft leaves out are in the written table if asked for: there, in their place, and empty."""

import itertools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import syncret
from mechanisms.dialect import Dialect
from mechanisms.domain import Categorical, Domain, Integer
from mechanisms.draft import Draft, draft_domain
from mechanisms.errors import DataError, DomainError
from mechanisms.private_draft import draft_with_private_numbers, private_draft
from mechanisms.reading import read_drawn, read_table, read_text
from mechanisms.sampling import public_generator
from mechanisms.schema import table_schema
from mechanisms.sdv_metadata import sdv_metadata
from mechanisms.source import TableSource
from mechanisms.table import decode, encode
from mechanisms.text_format import TextFormat
from mechanisms.writing import form_of, write_rows

ROWS = 60
FILES = {"csv": ";", "tsv": "\t", "csv.gz": ",", "parquet": ",", "xlsx": ","}


def visits() -> dict[str, list[str]]:
    """Columns of every fate: persons, free text, an identifier, a pair in one cell, several answers, numbers."""
    draw = np.random.default_rng(4)
    drugs = ["statin", "heparin", "insulin"]
    return {
        "remark": [f"seen on ward {i} by nobody whom I know, and sent home again" for i in range(ROWS)],
        "age": [str(n) for n in draw.integers(18, 60, ROWS)],
        "case": [f"K-{n:05d}x" for n in draw.permutation(99_999)[:ROWS]],
        "pressure": [f"{a}/{b}" for a, b in draw.integers(60, 180, (ROWS, 2))],
        "person": [str(700 + i // 3) for i in range(ROWS)],
        "drugs": ["; ".join(d for d, hit in zip(drugs, draw.random(3) < 0.6, strict=True) if hit) or "none"
                  for _ in range(ROWS)],
        "cost": [f"{x:.2f}" for x in draw.gamma(2, 400, ROWS)],
    }  # fmt: skip


def written_by_owner(path: Path, columns: dict[str, list[str]], delimiter: str = ",") -> Path:
    pd.DataFrame(columns).to_csv(path, index=False, sep=delimiter)
    return path


def drawn(domain: Domain, codes: np.ndarray) -> pd.DataFrame:  # type: ignore[type-arg]
    return decode(domain, codes, public_generator(2))


@pytest.mark.parametrize("ending", FILES)
@pytest.mark.parametrize("draft", ["table", "numbers"])
def test_a_written_table_has_the_owners_header_in_its_order(
    ending: str, draft: str, tmp_path: Path
) -> None:
    if ending in ("parquet", "xlsx"):
        pytest.importorskip("pyarrow" if ending == "parquet" else "openpyxl")
    columns = visits()
    # Any order of the columns: the ones that are left out may be first, last, or side by side.
    for seed in range(3):
        order = [str(name) for name in np.random.default_rng(seed).permutation([*columns])]
        real = written_by_owner(
            tmp_path / f"{seed}.csv", {n: columns[n] for n in order}, FILES[ending]
        )
        found = draft_domain(real, all_columns=True)
        domain = (draft_with_private_numbers(found) if draft == "numbers" else found).domain
        assert len(domain.ignore) >= 3
        assert Domain.from_dict(domain.to_dict()) == domain
        codes = encode(domain, read_text(real))
        out = tmp_path / f"{seed}.{ending}"
        write_rows(out, [drawn(domain, codes)], domain, form_of(out))
        source = TableSource(str(out))
        table = read_table(source)
        assert list(table.columns) == order
        assert (table[list(domain.ignore)] == "").all(axis=None)
        assert encode(domain, table).tolist() == codes.tolist()
        if ending == "csv":
            assert encode(domain, read_drawn(out, domain)).tolist() == codes.tolist()
        fields = table_schema(domain)["fields"]
        assert isinstance(fields, list)
        assert [field["name"] for field in fields] == order
        said = sdv_metadata(domain)["columns"]
        assert isinstance(said, dict)
        assert not {*said} & {*domain.ignore}


def test_without_asking_no_draft_lists_the_columns(tmp_path: Path) -> None:
    real = written_by_owner(tmp_path / "t.csv", visits())
    assert draft_domain(real).domain.format.columns == ()
    plain = draft_domain(real).domain
    assert draft_domain(real, all_columns=True).domain.digest() != plain.digest()


def test_a_private_draft_lists_names_and_no_value(tmp_path: Path) -> None:
    columns = visits()
    real = written_by_owner(tmp_path / "t.csv", columns)
    domain = private_draft(draft_domain(real, all_columns=True)).domain
    assert domain.format.columns == tuple(columns)
    assert {"drugs", "remark", "case", "person"} <= {*domain.ignore}
    text = str(domain.to_dict())
    assert not any(cell in text for cell in (*columns["remark"], *columns["case"]))


@pytest.mark.parametrize(
    "name",
    ["1987-03-12", "079 412 33 18", "anna.meier@example.org", "4711", "12.5 %", visits()["remark"][7]],
)  # fmt: skip
def test_a_name_that_may_be_a_value_is_not_published_and_not_shown(
    name: str, tmp_path: Path
) -> None:
    """A table without a header, taken with one: its first person would be the names of the columns."""
    columns = visits()
    real = tmp_path / "t.csv"
    written_by_owner(real, {name: columns["remark"], "age": columns["age"]})
    source = TableSource(str(real), dialect=Dialect(header_line=1))
    with pytest.raises(DataError, match="the name of column 1, which is left out") as error:
        draft_domain(source, all_columns=True)
    assert name not in str(error.value)


def test_columns_that_no_list_orders_come_last() -> None:
    domain = Domain(
        (Integer("age", 0, 9), Categorical("ward", ("a", "b"))), ignore=("id", "note")
    ).with_all_columns()
    assert domain.header == ("age", "ward", "id", "note")
    listed = domain.with_all_columns(("id", "age", "note", "ward"))
    assert listed.with_all_columns().header == ("id", "age", "note", "ward")
    with pytest.raises(DomainError, match=r"column 'ward' is not there"):
        domain.with_all_columns(("id", "age"))


def test_a_left_out_name_has_to_be_in_the_encoding() -> None:
    with pytest.raises(DomainError, match=re.escape('encoding = "cp1252" has no characters for')):
        Domain(
            (Integer("age", 0, 9),),
            ignore=("имя",),
            format=TextFormat(encoding="cp1252", columns=("имя", "age")),
        )


def test_python_drafts_all_columns_of_a_frame() -> None:
    frame = pd.DataFrame(visits())
    document = syncret.draft(frame, all_columns=True).to_dict()
    assert document["format"]["columns"] == [*frame.columns]
    assert "format" not in syncret.draft(frame).to_dict()


def test_all_orders_of_few_columns_are_drafted_alike(tmp_path: Path) -> None:
    columns = {name: visits()[name] for name in ("case", "age", "cost")}
    for number, order in enumerate(itertools.permutations(columns)):
        real = written_by_owner(tmp_path / f"{number}.csv", {n: columns[n] for n in order})
        draft: Draft = draft_domain(real, all_columns=True)
        assert draft.domain.header == order
        assert {*draft.domain.written_names, *draft.domain.ignore} == {*order}
