"""Columns of offices are drafted as what a person would call them, keep their missing share, and come back as written.

`tests.mechanisms.office_columns` has them; `tests/mechanisms/test_ugly_columns.py` has those of before.
"""

import csv
import io
from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from mechanisms.domain import Categorical, Domain, Integer, Moment, Real
from mechanisms.draft import KNOWN_MISSING, Draft, draft_domain
from mechanisms.reading import read_drawn, read_text
from mechanisms.sampling import public_generator
from mechanisms.source import TableSource
from mechanisms.spelling import Numeral, Scale, spelling_of
from mechanisms.table import decode, encode
from mechanisms.text_table import TextTable
from mechanisms.writing import text_bytes
from tests.mechanisms.office_columns import LEFT_OUT, OFFICE
from tests.mechanisms.ugly_columns import (
    CATEGORY,
    MOMENT,
    NUMBER,
    SPLIT,
    Spelling,
    shape_of_text,
)

ROWS = 399
"""Below the rows from which a draft merges rare categories."""
KINDS = {
    NUMBER: (Integer, Real),
    MOMENT: (Moment,),
    CATEGORY: (Categorical,),
    SPLIT: (Integer, Real, Categorical),
}


def office_table(path: Path, of: Spelling, seed: int, rows: int = ROWS) -> TextTable:
    """Writes a table with a column of three values and one of the spelling; returns it as it is read."""
    rng = np.random.default_rng(seed)
    cells, gaps = of.write(rng, rows), rng.random(rows) < 0.1
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=";")
    writer.writerow(["group", "value"])
    writer.writerows(
        ["abc"[i % 3], "" if gap else cell]
        for i, (cell, gap) in enumerate(zip(cells, gaps, strict=True))
    )
    path.write_bytes(out.getvalue().encode(of.encoding))
    return read_text(TableSource(str(path)))


def missing(cells: list[str]) -> int:
    return sum(cell in KNOWN_MISSING for cell in cells)


def drawn_again(path: Path, domain: Domain, table: TextTable) -> list[str]:
    """Writes the cells anew and checks that they read as the same codes; returns those of the column."""
    codes = encode(domain, table)
    path.write_bytes(text_bytes(decode(domain, codes, public_generator(3)), domain))
    assert encode(domain, read_drawn(path, domain)).tolist() == codes.tolist()
    return list(read_text(TableSource(str(path))).columns["value"])


def check_kind(draft: Draft, of: Spelling) -> None:
    """Raises AssertionError unless the column is drafted as what it is."""
    columns = [column for column in draft.domain.columns if column.name != "group"]
    assert draft.left_out == ()
    assert bool(draft.domain.splits) == (of.kind == SPLIT), draft.domain.splits
    for column in columns:
        assert isinstance(column, KINDS[of.kind]), column
        marks = () if isinstance(column, Categorical) else column.marks
        assert set(marks) <= set(of.marks), marks


@pytest.mark.parametrize("name", OFFICE)
def test_office_columns_are_what_a_person_calls_them_and_come_back(
    name: str, tmp_path: Path
) -> None:
    of, path = OFFICE[name], tmp_path / "t.csv"
    table = office_table(path, of, seed=len(name))
    draft = draft_domain(path)
    if of.kind == LEFT_OUT:
        assert draft.domain.ignore == ("value",)
        text = " ".join((*draft.notes, *draft.left_out, str(draft.domain.to_dict())))
        assert not any(cell in text for cell in table.columns["value"] if len(cell) > 5)
        return
    check_kind(draft, of)
    real = list(table.columns["value"])
    drawn = drawn_again(path, draft.domain, table)
    assert missing(drawn) == missing(real)
    for mark in of.marks:
        assert drawn.count(mark) == real.count(mark)
    # All spellings of a missing value come back as the commonest.
    shapes, found = (
        Counter(shape_of_text(cell) for cell in cells if cell not in KNOWN_MISSING)
        for cells in (real, drawn)
    )
    strange = {shape: rows for shape, rows in found.items() if shape not in shapes}
    assert sum(strange.values()) <= 0.02 * ROWS, (strange, drawn[:3], real[:3])
    for shape, rows in shapes.items():
        assert abs(found[shape] - rows) < 0.08 * ROWS, (shape, found[shape], rows)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("words", ["|K|M|G", " B| KiB| MiB| GiB", " bytes| KB| MB| GB"])
@pytest.mark.parametrize("decimals", [1, 2])
def test_sizes_are_read_by_the_power_that_they_were_written_with(
    words: str, decimals: int, binary: bool, tmp_path: Path
) -> None:
    """Also a reader's check of the numbers: each is within half of a last digit of the size that was written."""
    if not binary and "i" in words:
        return
    base, known = 1024 if binary else 1000, words.split("|")
    sizes = np.exp(np.random.default_rng(5).uniform(1, np.log(base) * 3.9, 600))
    texts = []
    for size in sizes:
        place = min(3, int(np.log(size) / np.log(base)))
        texts.append(f"{size / base**place:.{decimals if place else 0}f}{known[place]}")
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["size", *texts]))
    (column,) = draft_domain(path).domain.columns
    assert isinstance(column, Integer | Real)
    spelling = spelling_of(column.form)
    assert isinstance(spelling, Numeral)
    assert spelling.scale is not None
    assert spelling.scale.binary == binary
    for text, size in zip(texts, sizes, strict=True):
        if text in column.marks:
            continue
        plain = spelling.read(text)
        assert plain is not None
        place = min(3, int(np.log(size) / np.log(base)))
        unit = base**place / 10 ** (decimals if place else 0)
        assert abs(float(plain) - size) <= unit / 2 * 1.001
        assert spelling.write(plain) == text


def test_sizes_that_may_be_of_either_power_are_asked_about(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    units = rng.choice(["KB", "MB"], 300)
    texts = [f"{x:.1f} {u}" for x, u in zip(rng.uniform(1, 999, 300), units, strict=True)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["size", *texts]))
    draft = draft_domain(path)
    assert any("1,000 bytes or 1,024" in question for question in draft.questions)
    path.write_text("\n".join(["size", *(text.replace("B", "iB") for text in texts)]))
    assert draft_domain(path).questions == ()


@pytest.mark.parametrize(
    "text",
    ["{K=2^10,M=1e6}", "{K=2^11,M=2^20}", "{K=2^70,M=2^20}", "{K=2^20,M=2^10}", "{K=2^10}"],
)
def test_scales_of_no_powers_are_refused(text: str) -> None:
    assert Scale.parse(text) is None


def test_scale_of_1024_is_written_as_it_is_parsed() -> None:
    for text in ("{ B=1, KiB=2^10, MiB=2^20}", "{=1.0,K=2^10}", "{K=1e3,M=1e6}"):
        assert str(Scale.parse(text)) == text


def asked(path: Path, cells: list[str]) -> str:
    path.write_text("\n".join(["value", *cells]))
    return " ".join(draft_domain(path).questions)


def test_what_can_be_read_in_two_ways_is_asked(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(2), tmp_path / "t.csv"
    births = OFFICE["births"].write(rng, 500)
    assert "none is after 2040" in asked(path, births)
    days = [f"{month} {day:02d}" for month in ("Jan", "Mar", "May") for day in range(1, 32)]
    assert "they may be days of months" in asked(path, days)
    assert "minus 5" in asked(path, [f"({x})" if x < 9 else f"{x}" for x in range(100)])
    digits = [name for name in OFFICE if name.startswith("digits, ")]
    for name in ("digits, short year", *digits[digits.index("digits, time") :]):
        assert "are read as" in asked(path, OFFICE[name].write(rng, 500)), name


def test_dates_with_two_digits_for_the_year_stay_in_their_century(tmp_path: Path) -> None:
    days = (date(1969, 1, 1) + timedelta(days=at) for at in range(0, 36_500, 60))
    cells = [day.strftime("%d.%m.%y") for day in days]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["value", *cells]))
    (column,) = draft_domain(path).domain.columns
    assert isinstance(column, Moment)
    assert (column.low, column.high[:4]) == ("1969-01-01", "2068")


def test_points_of_one_column_tell_how_another_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{1 + k % 9}.{k:03d};{k / 100:.2f}" for k in range(100, 400)]
    path.write_text("\n".join(["one;two", *rows]))
    draft = draft_domain(path)
    assert isinstance(draft.domain.columns[0], Real)
    path.write_text("\n".join(["one;two", *(row.partition(";")[0] + ";x" for row in rows)]))
    assert isinstance(draft_domain(path).domain.columns[0], Integer)
