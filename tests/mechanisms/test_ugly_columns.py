"""Every ugly column survives a draft, keeps its shape, and comes back in its spelling, marks and encoding.

Each spelling is tried with one kind of marks in turn; `tests/parties/test_ugly_runs.py` has noise.
"""

from collections import Counter
from pathlib import Path

import pytest

from mechanisms.dialect import Dialect
from mechanisms.domain import Categorical, Column, Integer, Moment, Real
from mechanisms.draft import draft_domain
from mechanisms.reading import read_drawn, read_text
from mechanisms.sampling import public_generator
from mechanisms.source import TableSource
from mechanisms.table import decode, encode
from mechanisms.writing import text_bytes
from tests.mechanisms.ugly_columns import (
    CATEGORY,
    MARKS,
    MOMENT,
    NUMBER,
    SPELLINGS,
    UglyTable,
    shape_of_text,
    table_of,
)

ROWS = 400
KINDS: dict[str, tuple[type[Column], ...]] = {
    NUMBER: (Integer, Real),
    MOMENT: (Moment,),
    CATEGORY: (Categorical,),
}
PAIRS = [(name, [*MARKS][place % len(MARKS)]) for place, name in enumerate(SPELLINGS)]


def cells_of(path: Path, of: UglyTable) -> list[str]:
    """The cells of x as they stand in a file, decimal commas left as they are."""
    dialect = Dialect(";", ".", of.encoding, header_line=1)
    return list(read_text(TableSource(str(path), dialect=dialect)).columns["x"])


def check_survival(path: Path, of: UglyTable) -> None:
    """Raises AssertionError unless the drafted column is of its kind and comes back as it was written."""
    path.write_bytes(of.content)
    draft = draft_domain(path)
    domain = draft.domain
    assert draft.left_out == ()
    columns = [column for column in domain.columns if column.name != "g"]
    for column in columns:
        assert isinstance(column, KINDS.get(of.spelling.kind, (Integer, Real, Moment))), column
    # Texts of signs that several encodings have may be named by another one.
    same = path.read_bytes().decode(domain.format.encoding) == of.content.decode(of.encoding)
    assert same, domain.format.encoding
    real = cells_of(path, of)
    codes = encode(domain, read_text(path))
    path.write_bytes(text_bytes(decode(domain, codes, public_generator(3)), domain))
    assert encode(domain, read_drawn(path, domain)).tolist() == codes.tolist()
    drawn = cells_of(path, of)
    for mark in of.marks:
        assert drawn.count(mark) == real.count(mark)
    shapes, found = (Counter(map(shape_of_text, cells)) for cells in (real, drawn))
    strange = {shape: rows for shape, rows in found.items() if shape not in shapes}
    assert sum(strange.values()) <= 0.02 * ROWS, (strange, drawn[:3], real[:3])
    assert max(map(len, drawn)) <= max(map(len, real)) + 1
    for shape, rows in shapes.items():
        assert abs(found[shape] - rows) < 0.08 * ROWS, (shape, found[shape], rows)


@pytest.mark.parametrize(("spelling", "marks"), PAIRS)
def test_ugly_columns_come_back_in_their_spelling(
    spelling: str, marks: str, tmp_path: Path
) -> None:
    check_survival(tmp_path / "t.csv", table_of(spelling, marks, rows=ROWS, seed=len(spelling)))


@pytest.mark.slow
@pytest.mark.parametrize("marks", MARKS)
def test_ugly_columns_come_back_with_any_marks(marks: str, tmp_path: Path) -> None:
    for seed, spelling in enumerate(SPELLINGS):
        check_survival(tmp_path / "t.csv", table_of(spelling, marks, rows=ROWS, seed=seed))
