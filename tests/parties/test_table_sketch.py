"""Sketches of tables: tables of the same people are recognised, others are not, and the file tells nothing."""

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.text_table import TextTable
from parties.foundation.errors import StoreError
from parties.storage import table_sketch
from parties.storage.table_sketch import (
    Likeness,
    SketchKey,
    TableSketch,
    compare,
    make_sketch,
)

KEY = SketchKey(b"k" * 32)
SIZES = (2, 9, 90, 60, 40, 30, 12)
Rows = NDArray[np.str_]


def patients(rng: np.random.Generator, rows: int) -> Rows:
    """Rows of different patients: sex, ward, age, postal code, diagnosis, days, month; some values are frequent."""
    columns = [(size * rng.random(rows) ** 1.5).astype(int).astype(str) for size in SIZES]
    return np.stack([np.char.add(f"{number}-", column) for number, column in enumerate(columns)], 1)


def table(rows: Rows, names: str = "abcdefghijkl") -> TextTable:
    columns = dict(zip(names, rows.T.tolist(), strict=False))
    return TextTable(columns, range(len(rows)))


def sketch(rows: Rows, person: tuple[str, ...] = ()) -> TableSketch:
    return make_sketch(table(rows), KEY, person)


def noted(rows: Rows, rng: np.random.Generator, values: int = 9) -> Rows:
    """The rows with one more column."""
    return np.concatenate([rows, rng.integers(0, values, (len(rows), 1)).astype(str)], 1)


def one_is_another(rows: Rows, rng: np.random.Generator) -> Rows:
    """The rows with a column that changed in all of them."""
    changed = rows.copy()
    changed[:, 3] = rng.integers(0, 50, len(rows)).astype(str)
    return changed


EXPORTS: dict[str, Callable[[Rows, Rows, np.random.Generator], Rows]] = {
    "another order": lambda rows, new, rng: rng.permutation(rows),
    "columns moved and renamed": lambda rows, new, rng: rows[:, rng.permutation(len(SIZES))],
    "a filter of 30 %": lambda rows, new, rng: rows[: int(0.3 * len(rows))],
    "30 % and new people": lambda rows, new, rng: np.concatenate(
        [rows[: int(0.3 * len(rows))], new[: int(0.7 * len(rows))]]
    ),
    "appended rows": lambda rows, new, rng: np.concatenate([rows, new]),
    "one more column": lambda rows, new, rng: noted(rows, rng),
    "one column less": lambda rows, new, rng: rows[:, 1:],
    "a column that changed": lambda rows, new, rng: one_is_another(rows, rng),
    "a filter and one more column": lambda rows, new, rng: noted(rows[: len(rows) // 3], rng),
}


@pytest.mark.parametrize("export", EXPORTS)
def test_compare_recognises_careless_exports(export: str) -> None:
    """20 tables of 1,000 rows; no miss: the chance of one is below 14 % (at 95 %). Measured: 0 in 200."""
    rng = np.random.default_rng(7)
    for _ in range(20):
        rows, new = patients(rng, 1000), patients(rng, 1000)
        assert compare(sketch(rows), sketch(EXPORTS[export](rows, new, rng))) is Likeness.SAME


def test_compare_tells_tables_of_other_people_apart() -> None:
    """The columns have the same distribution: two hospitals. 40 of 40 are told apart, with one more column as well."""
    rng = np.random.default_rng(8)
    for _ in range(40):
        one, other = sketch(patients(rng, 1000)), patients(rng, 1500)
        assert compare(one, sketch(other)) is Likeness.OTHER
        assert compare(one, sketch(noted(other, rng))) is not Likeness.SAME


def false_alarms(rng: np.random.Generator, shared: int = 0) -> int:
    """Tables taken for one among 300 pairs of 400 rows of other people, but for ``shared`` rows, in rows or pairs."""
    found = 0
    for _ in range(300):
        one, other = patients(rng, 400), patients(rng, 300)
        other[:shared] = one[:shared]
        found += compare(sketch(one[:, :4]), sketch(other[:, :4])) is Likeness.SAME
    return found


@pytest.mark.slow
def test_compare_has_the_false_alarms_that_it_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a false-alarm rate of 0.1 instead of 1e-6, and any excess enough.

    Statistic: tables taken for one among 300 pairs, of people with four columns, who share many rows by chance. The
    bound is 0.1 by pair; 49 are more than 30 expected at most by 3.5 deviations (false alarm of this test: 2e-4). It
    catches a rate of 0.22 with 99 %. Controls: rows of the same people, and a test that expects half of the rows that
    chance gives.
    """
    monkeypatch.setattr(table_sketch, "FALSE_ALARM", 0.1)
    monkeypatch.setattr(table_sketch, "_FOUND", 0.0)
    assert false_alarms(np.random.default_rng(9)) <= 49
    assert false_alarms(np.random.default_rng(9), shared=100) > 49
    usual = table_sketch._log_tail
    monkeypatch.setattr(
        table_sketch, "_log_tail", lambda found, rest, chance: usual(found, rest, chance / 2)
    )
    assert false_alarms(np.random.default_rng(9)) > 49


def test_log_tail_bounds_the_binomial_distribution_closely() -> None:
    for trials, chance in ((30, 0.5), (200, 0.3), (400, 0.05)):
        for successes in range(1, trials + 1):
            exact = sum(
                math.comb(trials, n) * chance**n * (1 - chance) ** (trials - n)
                for n in range(successes, trials + 1)
            )
            if exact < 1e-250:
                break
            bound = table_sketch._log_tail(successes, trials - successes, chance)
            assert bound >= math.log(exact) - 1e-6
            if successes > 1.5 * trials * chance:
                assert bound <= math.log(exact) + 1


@pytest.mark.parametrize("rows", [3, 20])
def test_compare_does_not_know_small_tables(rows: int) -> None:
    rng = np.random.default_rng(3)
    small = patients(rng, rows)
    assert compare(sketch(small), sketch(patients(rng, rows))) is Likeness.UNSURE
    assert compare(sketch(small), sketch(patients(rng, 2000))) is Likeness.UNSURE


def test_compare_does_not_know_tables_whose_rows_are_common() -> None:
    """Two columns of two and nine values: all hospitals have all 18 rows, and nobody can tell."""
    rng = np.random.default_rng(3)
    one, other = patients(rng, 3000)[:, :2], patients(rng, 3000)[:, :2]
    for again in (other, one, one[:900]):
        assert compare(sketch(one), sketch(again)) is Likeness.UNSURE


def test_compare_does_not_know_a_table_with_half_of_the_columns_unless_pairs_are_rare() -> None:
    rng = np.random.default_rng(3)
    rows = patients(rng, 2000)
    answers = Counter(
        compare(sketch(rows), sketch(rows[:, list(kept)])) for kept in ((0, 1, 6), (0, 2, 6))
    )
    assert answers[Likeness.OTHER] == 0
    rare = np.concatenate([rows, rng.integers(0, 10**6, (2000, 2)).astype(str)], 1)
    assert compare(sketch(rare), sketch(rare[:, 4:])) is Likeness.SAME


# Spellings


def test_make_sketch_has_one_spelling_of_a_value() -> None:
    rng = np.random.default_rng(4)
    numbers = rng.integers(0, 300, (400, 4))
    plain = np.char.add(numbers.astype(str), "")
    one = make_sketch(table(plain), KEY)
    for spell in ("{}.0", " {} ", "{},00", "+{}"):
        other = table(np.array([[spell.format(cell) for cell in row] for row in numbers]))
        assert one.equals(make_sketch(other, KEY))
    dates = [f"2024-{1 + n % 12:02}-{13 + n % 15:02}" for n in numbers[:, 0]]
    german = [f"{13 + n % 15:02}.{1 + n % 12:02}.2024" for n in numbers[:, 0]]
    ward = plain[:, 1].tolist()
    places = range(400)
    assert make_sketch(TextTable({"d": dates, "w": ward}, places), KEY).equals(
        make_sketch(TextTable({"w": ward, "d": german, "empty": ["NA"] * 400}, places), KEY)
    )


def test_make_sketch_leaves_numbers_of_rows_out() -> None:
    rng = np.random.default_rng(4)
    one, other = patients(rng, 800), patients(rng, 800)
    index = np.arange(800).astype(str)[:, None]
    assert sketch(np.concatenate([one, index], 1)).equals(sketch(one))
    both = [sketch(np.concatenate([index, rows], 1)) for rows in (one, other)]
    assert compare(*both) is Likeness.OTHER


# Persons


def visits(ids: list[str], static: Rows, rng: np.random.Generator) -> Rows:
    """Three visits of each person, with a value that is never the same."""
    rows = np.concatenate([np.array(ids)[:, None], static], 1)
    rows = np.repeat(rows, 3, axis=0)
    return np.concatenate([rows, rng.integers(0, 10**6, (len(rows), 1)).astype(str)], 1)


def test_compare_knows_persons_by_their_identifiers() -> None:
    rng = np.random.default_rng(5)
    ids = rng.integers(10**8, 10**9, 600).astype(str).tolist()
    static = patients(rng, 600)[:, :2]
    one = sketch(visits(ids, static, rng), ("a",))
    later = sketch(visits(ids[400:], static[400:], rng), ("a",))
    assert compare(one, later) is Likeness.SAME
    others = rng.integers(10**8, 10**9, 600).astype(str).tolist()
    assert compare(one, sketch(visits(others, static, rng), ("a",))) is not Likeness.SAME


def test_compare_does_not_take_the_same_numbers_for_the_same_persons() -> None:
    """Two hospitals both count 1, 2, 3; twenty pairs. Of one hospital, sex and ward of a number stay the same."""
    rng = np.random.default_rng(6)
    ids = [f"P{number:05}" for number in range(500)]
    for _ in range(20):
        static, elsewhere = patients(rng, 500)[:, :2], patients(rng, 500)[:, :2]
        one = sketch(visits(ids, static, rng), ("a",))
        assert compare(one, sketch(visits(ids, static, rng), ("a",))) is Likeness.SAME
        assert compare(one, sketch(visits(ids, elsewhere, rng), ("a",))) is not Likeness.SAME


# Secrecy


def test_a_sealed_sketch_tells_nothing_without_its_key() -> None:
    """Neither what is sealed nor tokens of another key have anything in common for the same table."""
    rows = patients(np.random.default_rng(1), 500)
    made = sketch(rows)
    sealed = [KEY.seal(made) for _ in range(2)]
    assert sealed[0] != sealed[1]
    again = KEY.unseal(sealed[0])
    assert again is not None
    assert again.equals(made)
    assert compare(again, made) is Likeness.SAME
    other = SketchKey(b"o" * 32)
    assert other.unseal(sealed[0]) is None
    assert KEY.unseal(sealed[0][:-1] + bytes([sealed[0][-1] ^ 1])) is None
    assert KEY.unseal(b"") is None
    elsewhere = make_sketch(table(rows), other)
    for mine, its in zip(made.families, elsewhere.families, strict=True):
        assert not np.intersect1d(mine.tokens, its.tokens).size
    assert "1000" not in repr(KEY) + repr(made)
    assert "kkk" not in repr(KEY)


def test_key_is_made_once_and_its_owners_alone(tmp_path: Path) -> None:
    budget = tmp_path / "deep" / "budget.sqlite"
    key = SketchKey.beside(budget)
    assert SketchKey.beside(budget) == key
    path = budget.with_name("budget.sqlite.key")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in path.parent.iterdir()] == [path.name]
    assert key.key.hex() not in repr(key)
    path.write_text("short")
    with pytest.raises(StoreError, match=r"budget\.sqlite\.key: is damaged"):
        SketchKey.beside(budget)


def questionnaire(rng: np.random.Generator, rows: int) -> Rows:
    """Answers to 20 questions, all yes or no: 4 kinds of rows in 100,000 without names, a million with them."""
    return np.array(["no", "yes"])[rng.integers(0, 2, (rows, 20))]


def test_compare_knows_rows_of_common_values_by_the_names_of_columns() -> None:
    """Every pair of cells is frequent. Rows without the column that is new are the evidence."""
    rng, names = np.random.default_rng(2), "abcdefghijklmnopqrstu"
    for _ in range(2):
        rows, new = questionnaire(rng, 600), questionnaire(rng, 600)
        one = make_sketch(table(noted(rows, rng, 10**6), names), KEY)
        again = make_sketch(table(noted(rng.permutation(rows[:300]), rng, 10**6), names), KEY)
        assert compare(one, again) is Likeness.SAME
        assert (
            compare(one, make_sketch(table(noted(new, rng, 10**6), names), KEY)) is Likeness.OTHER
        )
        # With other names nobody can tell, which is not to be another population.
        renamed = make_sketch(table(rows, "0123456789!$%&/()=?+"), KEY)
        assert compare(one, renamed) is Likeness.UNSURE


def test_compare_does_not_rely_on_a_column_that_may_have_changed() -> None:
    """Whole rows would tell people apart, but without one of the columns a third of them does not: nobody can tell."""
    rng = np.random.default_rng(2)

    def draw(column: int) -> NDArray[np.str_]:
        return np.char.add(f"{column}-", rng.integers(0, 6, 2000).astype(str))

    rows = np.stack([draw(column) for column in range(5)], 1)
    changed = rows.copy()
    changed[:, 4] = draw(4)
    assert compare(sketch(rows), sketch(changed[:700])) is Likeness.UNSURE
