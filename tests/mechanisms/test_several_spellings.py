"""Columns with several spellings of one thing: a draft says how many rows have each, or asks, and is never silent."""

import csv
import io
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from mechanisms.domain import Categorical, Domain, Integer, Real
from mechanisms.draft import Draft, draft_domain
from mechanisms.reading import read_drawn, read_text
from mechanisms.sampling import public_generator
from mechanisms.table import decode, encode
from mechanisms.writing import text_bytes

ROWS = 300
Rng = np.random.Generator


def swapped(text: str) -> str:
    """A number with its commas as points and its points as commas."""
    return text.translate(str.maketrans(",.", ".,"))


STYLES = {
    "English": lambda x: f"{x:,.2f}",
    "German": lambda x: swapped(f"{x:,.2f}"),
    "point": lambda x: f"{x:.2f}",
    "comma": lambda x: swapped(f"{x:.2f}"),
    "whole, English": lambda x: f"{x:,.0f}",
    "whole, German": lambda x: swapped(f"{x:,.0f}"),
    "whole": lambda x: f"{x:.0f}",
    "Swiss": lambda x: f"{x:,.2f}".replace(",", "'"),
    "French": lambda x: f"{x:,.2f}".replace(",", " ").replace(".", ","),
    "minutes": lambda x: f"{x:.0f}min",
    "euro": lambda x: swapped(f"{x:,.2f}") + " €",
}


def drafted(folder: Path, cells: list[str], *, delimiter: str = ",", name: str = "x") -> Draft:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow([name, "g"])
    writer.writerows([cell, "ab"[i % 2]] for i, cell in enumerate(cells))
    path = folder / "t.csv"
    path.write_text(out.getvalue())
    return draft_domain(path)


def written(folder: Path, domain: Domain) -> list[str]:
    """The column of a synthetic table with the codes of the drafted one; it reads back as the same codes."""
    codes = encode(domain, read_text(folder / "t.csv"))
    path = folder / "s.csv"
    path.write_bytes(text_bytes(decode(domain, codes, public_generator(3)), domain))
    assert encode(domain, read_drawn(path, domain)).tolist() == codes.tolist()
    rows = csv.reader(io.StringIO(path.read_text(), newline=""), delimiter=domain.format.delimiter)
    return [row[0] for row in rows][1:]


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize(("one", "other"), [*combinations(STYLES, 2)])
def test_a_draft_says_of_numbers_in_two_spellings(
    one: str, other: str, delimiter: str, tmp_path: Path
) -> None:
    drawn = np.random.default_rng(1).lognormal(6, 1.5, ROWS)
    cells = [STYLES[one if i % 2 else other](float(x)) for i, x in enumerate(drawn)]
    draft = drafted(tmp_path, cells, delimiter=delimiter)
    said = [*draft.left_out, *draft.skipped, *draft.questions]
    assert any(text.startswith(("x: ", "column x: ")) for text in said)
    if draft.left_out:
        assert "has numbers in several spellings, " in draft.left_out[0]
        assert "150 " in draft.left_out[0] or "rows" in draft.left_out[0]
        return
    # What a draft takes, a run does, too.
    assert len(written(tmp_path, draft.domain)) == ROWS


ALONE = {
    **STYLES,
    "shortest": lambda x: repr(round(x, 5)),
    "whole with decimals": lambda x: f"{x // 1:.0f}.0",
    "whole with decimals, but one": lambda x: f"{x if x > 20_000 else x // 1:.1f}",
    "whole, but few": lambda x: f"{x:.3f}" if 10 < x < 12 else f"{x:.0f}",
}


@pytest.mark.parametrize("style", ALONE)
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_draft_says_nothing_of_numbers_in_one_spelling(
    style: str, delimiter: str, tmp_path: Path
) -> None:
    drawn = np.random.default_rng(1).lognormal(6, 1.5, ROWS)
    cells = [ALONE[style](float(x)) for x in drawn]
    draft = drafted(tmp_path, cells, delimiter=delimiter)
    assert draft.left_out == ()
    if style != "whole, but few":
        assert draft.skipped == ()
    assert not any("1.234 may be" in q for q in draft.questions) or style == "whole, German"
    back = written(tmp_path, draft.domain)
    assert len(back) == ROWS
    if style.startswith("whole with decimals"):
        assert all(cell[-2] == "." for cell in back)


def test_both_counts_of_two_spellings_are_said(tmp_path: Path) -> None:
    cells = [f"1,{i:03d}.50" if i % 3 else f"{1000 + i}.50" for i in range(ROWS)]
    (said,) = drafted(tmp_path, cells).skipped
    assert "#,##0.00 in 200 and 0.00 in 100 rows; all come back as #,##0.00" in said
    cells = ["47,17" if i % 3 else "1,234.56" for i in range(ROWS)]
    draft = drafted(tmp_path, cells, delimiter=";")
    assert isinstance(draft.domain.columns[0], Categorical)
    assert draft.skipped == (
        "column x: has numbers in several spellings, 0,00 in 200 and #,##0.00 in 100 rows; each text is a category",
    )


def test_points_between_some_thousands_are_said(tmp_path: Path) -> None:
    cells = [f"{1000 + i},50" if i % 3 else f"1.{i:03d},50" for i in range(ROWS)]
    (said,) = drafted(tmp_path, cells, delimiter=";").skipped
    assert (
        "100 of 300 numbers above 999 have points between thousands, and come back without" in said
    )


def test_points_beside_whole_numbers_are_thousands_and_asked(tmp_path: Path) -> None:
    cells = [swapped(f"{7 * i * i % 90_000:,}") for i in range(ROWS)]
    draft = drafted(tmp_path, cells)
    column = draft.domain.columns[0]
    assert isinstance(column, Integer)
    assert column.form == "#.##0"
    assert "1.234 may be a whole number" in draft.questions[0]


def test_a_few_numbers_of_another_spelling_are_marks_and_said(tmp_path: Path) -> None:
    cells = [f"{i},25" if i % 50 else "1,234.56" for i in range(ROWS)]
    draft = drafted(tmp_path, cells, delimiter=";")
    column = draft.domain.columns[0]
    assert isinstance(column, Real)
    assert column.marks == ("1,234.56",)
    assert "0,00 in 294 and #,##0.00 in 6 rows; the rarest are marks" in draft.skipped[0]
    assert written(tmp_path, draft.domain).count("1,234.56") == 6


def test_words_beside_numbers_are_no_spelling_of_them(tmp_path: Path) -> None:
    cells = [f"{i % 60}" if i % 9 else "60 or more" for i in range(ROWS)]
    draft = drafted(tmp_path, cells)
    assert draft.domain.columns[0].to_dict()["marks"] == ["60 or more"]
    assert not draft.skipped


def test_dates_in_several_spellings_are_said(tmp_path: Path) -> None:
    cells = [f"2020-0{1 + i % 9}-1{i % 10}" + " 00:00:00" * (i % 4 == 0) for i in range(ROWS)]
    (said,) = drafted(tmp_path, cells).skipped
    assert "of 300 values are written otherwise, and come back as " in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda cell: cell.replace("b|", "b||"), "an answer that is empty, which is left out"),
        (lambda cell: f"{cell}|", "an answer that is empty, which is left out"),
        (lambda cell: "||", "an answer that is empty, which is left out"),
        (lambda cell: cell.replace("|", "| "), "other blanks around answers"),
        (lambda cell: f"{cell}|{cell}", "an answer twice, which stands once"),
        (lambda cell: "|".join(reversed(cell.split("|"))), "answers in another order"),
    ],
)
def test_cells_of_answers_that_come_back_otherwise_are_counted(
    change: object, said: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    cells = ["|".join(a for a in "abcdefgh" if rng.random() < 0.5) for _ in range(ROWS)]
    assert not drafted(tmp_path, cells).skipped
    assert callable(change)
    changed = [change(cell) if i % 20 == 0 and cell else cell for i, cell in enumerate(cells)]
    rows = sum(one != other for one, other in zip(cells, changed, strict=True))
    draft = drafted(tmp_path, changed)
    (note,) = draft.skipped
    assert note.startswith("column x: cells come back otherwise, ")
    assert said in note
    assert (
        sum(
            one != other
            for one, other in zip(changed, written(tmp_path, draft.domain), strict=True)
        )
        == rows
    )


def test_blanks_at_the_ends_of_values_are_counted(tmp_path: Path) -> None:
    cells = [" x" if i % 3 == 0 else "x" if i % 3 == 1 else "y " for i in range(ROWS)]
    draft = drafted(tmp_path, cells, name="code")
    assert draft.skipped == (
        "blanks at the ends of values are dropped, and do not come back: code (200 values)",
    )
    # A name of a column may have some, too: it is no value.
    assert not drafted(tmp_path, ["x", "y"] * 100, name=" code").skipped


def times(rng: Rng, hours: range, step: int = 1) -> list[int]:
    return [
        100 * int(h) + int(m)
        for h, m in zip(
            rng.integers(hours[0], hours[-1] + 1, ROWS),
            rng.integers(0, 60 // step, ROWS) * step,
            strict=True,
        )
    ]


@pytest.mark.parametrize(
    ("hours", "step", "name", "asked"),
    [
        (
            range(24),
            1,
            "x",
            "since none ends in more than 59, they are read as times of day, %-H%M",
        ),
        (
            range(8, 18),
            15,
            "x",
            'write format = "%-H%M", and low, high, edges and atoms in minutes',
        ),
        (range(8, 11), 30, "start_time", 'write format = "%-H%M"'),
        (range(8, 11), 30, "x", ""),
    ],
)
def test_times_in_digits_are_asked(
    hours: range, step: int, name: str, asked: str, tmp_path: Path
) -> None:
    values = times(np.random.default_rng(3), hours, step)
    draft = drafted(tmp_path, list(map(str, values)), name=name)
    assert asked in "".join(draft.questions)
    assert bool(draft.questions) == bool(asked)
    # Numbers of the same kind with a few of other ends are asked, too; they are no times then.
    draft = drafted(tmp_path, [*map(str, values[10:]), *map(str, range(970, 980))], name=name)
    assert bool(draft.questions) == bool(asked)
    assert draft.domain.columns[0].to_dict().get("format") is None


COUNTS = {
    "counts": lambda rng: rng.integers(0, 2400, ROWS),
    "counts of some": lambda rng: rng.lognormal(2, 1, ROWS),
    "ages": lambda rng: rng.integers(18, 60, ROWS),
    "multiples of 50": lambda rng: 50 * rng.integers(0, 48, ROWS),
    "multiples of 25": lambda rng: 25 * rng.integers(0, 96, ROWS),
    "hundreds": lambda rng: 100 * rng.integers(0, 24, ROWS),
    "pressure": lambda rng: rng.normal(1013, 8, ROWS),
    "years": lambda rng: rng.normal(1970, 20, ROWS),
    "rooms": lambda rng: 100 * rng.integers(1, 9, ROWS) + rng.integers(1, 29, ROWS),
    "month and day": lambda rng: 100 * rng.integers(1, 13, ROWS) + rng.integers(1, 29, ROWS),
}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("column", ["x", "time"])
def test_other_numbers_are_not_asked_whether_they_are_times(
    name: str, column: str, tmp_path: Path
) -> None:
    values = [str(int(x)) for x in COUNTS[name](np.random.default_rng(4))]
    assert not drafted(tmp_path, values, name=column).questions


def test_midnight_at_the_end_of_a_day_is_the_last_time(tmp_path: Path) -> None:
    values = [*map(str, times(np.random.default_rng(5), range(24))), *["2400"] * 5]
    column = drafted(tmp_path, values).domain.columns[0]
    assert isinstance(column, Integer)
    assert (column.form, column.high) == ("%-H%M", 1440)


def test_times_in_digits_can_be_given_by_hand(tmp_path: Path) -> None:
    values = [5, 59, 100, 517, 905, 1342, 2359, 0]
    drafted(tmp_path, [str(x) for x in values] * 20)
    domain = Domain((Integer("x", 0, 1439, 1440, form="%-H%M"), Categorical("g", ("a", "b"))))
    assert set(written(tmp_path, domain)) == {str(x) for x in values}
