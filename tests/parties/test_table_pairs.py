"""Pairs of tables as exports differ: the same people are never other people without a question."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.text_table import TextTable
from parties.storage.table_sketch import KeyedSketch, Likeness, SketchKey, make_sketch

KEY = SketchKey(b"k" * 32)
SIZES = {"sex": 2, "ward": 9, "age": 90, "region": 60, "diagnosis": 40, "job": 30, "hours": 12}
Columns = dict[str, NDArray[np.str_]]
ASKED = {Likeness.LATER, Likeness.UNSURE}


def people(rng: np.random.Generator, rows: int) -> Columns:
    """Persons with a number of 7 digits and columns of a few values, some of them frequent."""
    columns = {
        name: (size * rng.random(rows) ** 1.5).astype(int).astype(str)
        for name, size in SIZES.items()
    }
    return {"mrn": rng.choice(9 * 10**6, rows, replace=False).astype(str), **columns}


def labs(rng: np.random.Generator, rows: int, names: list[str]) -> Columns:
    """Measured values, other ones each time."""
    return {name: np.char.mod("%.2f", rng.normal(50, 10, rows)) for name in names}


def likeness(one: Columns, other: Columns, person: tuple[str, ...] = ()) -> Likeness:
    first, second = (
        KeyedSketch(
            KEY,
            make_sketch(
                TextTable({n: v.tolist() for n, v in columns.items()}, range(2, 2 + rows)),
                KEY,
                person,
            ),
        )
        for columns in (one, other)
        for rows in [len(next(iter(columns.values())))]
    )
    return second.likeness(first.seal())


def without(columns: Columns, *names: str) -> Columns:
    return {name: values for name, values in columns.items() if name not in names}


@dataclass(frozen=True)
class Pair:
    """Two exports; ``marked`` if both have the persons' numbers, which no study names."""

    one: Columns
    other: Columns
    marked: bool

    @property
    def shared(self) -> float:
        """Share of the smaller table's names that the other one has."""
        return len(self.one.keys() & self.other.keys()) / min(len(self.one), len(self.other))


def pair(rng: np.random.Generator, *, same: bool) -> Pair:
    """Two exports of 600 people, the ``same`` or others.

    Columns are dropped, added, renamed and reordered, values measured anew, rows filtered; or the rows are those of
    the next month, in which the same people have other values in half of their columns.
    """
    rows, marked = 600, bool(rng.random() < 0.5)
    before = people(rng, rows)
    after = before if same else people(rng, rows)
    one = {**before, **labs(rng, rows, [f"a{n}" for n in range(rng.choice([0, 1, 4, 12]))])}
    kept = [name for name in before if name == "mrn" or rng.random() < rng.choice([0.5, 1.0])]
    other = {name: after[name] for name in kept}
    if rng.random() < 0.4:  # The next month.
        for name in kept[1::2]:
            other[name] = rng.permutation(other[name])
    taken = "ab"[int(rng.random() < 0.6)]
    other |= labs(rng, rows, [f"{taken}{n}" for n in range(rng.choice([0, 1, 4, 12]))])
    renamed = rng.choice([0.0, 0.3, 1.0])
    form = rng.choice(["{}_2", "its {}"])
    other = {
        form.format(n) if n != "mrn" and rng.random() < renamed else n: v for n, v in other.items()
    }
    if not marked:
        one, other = without(one, "mrn"), without(other, "mrn")
    order = rng.permutation(list(other)).tolist()
    chosen = rng.permutation(rows)[: int(rows * rng.uniform(0.3, 1))]
    return Pair(one, {name: other[name][chosen] for name in order}, marked)


def drawn(count: int, *, same: bool, seed: int) -> Counter[tuple[bool, Likeness]]:
    """Answers for pairs of at least two columns, by whether the tables have columns in common that tell."""
    rng, found = np.random.default_rng(seed), Counter[tuple[bool, Likeness]]()
    while found.total() < count:
        made = pair(rng, same=same)
        if min(len(made.one), len(made.other)) > 1:
            alike = made.marked or made.shared >= 0.25
            found[alike, likeness(made.one, made.other)] += 1
    return found


def test_same_people_are_never_silently_others_where_columns_or_identifiers_are_left() -> None:
    """60 pairs, of which at most 4.9 % could fail unseen (at 95 %). Measured: 0 of 324."""
    found = drawn(60, same=True, seed=1)
    assert found[True, Likeness.OTHER] == 0
    assert found[True, Likeness.SAME] > 0


def test_other_people_are_never_charged_and_asked_about_where_columns_are_shared() -> None:
    """40 pairs. SAME would be charged to them. Measured: of 400 none; 357 asked about."""
    found = drawn(40, same=False, seed=2)
    assert found[True, Likeness.SAME] + found[False, Likeness.SAME] == 0
    assert found[False, Likeness.OTHER] > 0


@pytest.mark.parametrize("count", [3, 4, 8, 16])
def test_same_people_with_other_laboratory_values_each_year_have_to_be_assigned(count: int) -> None:
    """Pairs of cells of measured values outnumber all others, and are of one table each."""
    rng = np.random.default_rng(3)
    static = without(people(rng, 2000), "mrn")
    years = [{**static, **labs(rng, 2000, [f"{y}{n}" for n in range(count)])} for y in "ab"]
    assert likeness(*years) in {Likeness.SAME, *ASKED}


def test_table_of_other_columns_altogether_is_other_peoples() -> None:
    rng = np.random.default_rng(7)
    one = people(rng, 2000)
    for table in (without(one, "mrn"), one):
        elsewhere = {f"x{n}": rng.integers(0, 10**6, 2000).astype(str) for n in range(8)}
        assert likeness(table, elsewhere) is Likeness.OTHER
        # The control: with the persons' numbers in it somebody has to say.
        assert likeness(one, {**elsewhere, "number": one["mrn"]}) is Likeness.UNSURE


@pytest.mark.parametrize("count", [16, 40])
def test_identifier_that_no_study_names_is_not_lost_among_many_columns(count: int) -> None:
    """With 40 columns a year only the identifier and seven more of 48 names are shared."""
    rng = np.random.default_rng(4)
    static = people(rng, 1000)

    def year(name: str, rows: Columns) -> Columns:
        return {**rows, **labs(rng, 1000, [f"{name}{n}" for n in range(count)])}

    one = year("a", static)
    assert likeness(one, year("b", static)) in {Likeness.SAME, *ASKED}
    # With other people's numbers, and the names of few columns, they are other people's.
    others = likeness(one, year("b", people(rng, 1000)))
    assert others is (Likeness.LATER if count == 16 else Likeness.OTHER)


def test_next_months_visits_with_some_columns_renamed_have_to_be_assigned() -> None:
    rng = np.random.default_rng(5)
    january, february = (without(people(rng, 1000), "mrn") for _ in range(2))
    for renamed in range(6):
        names = {name: f"its {name}" for name in list(february)[:renamed]}
        other = {names.get(name, name): values for name, values in february.items()}
        assert likeness(january, other) is Likeness.LATER
    assert likeness(january, {f"its {n}": v for n, v in february.items()}) is Likeness.OTHER


@pytest.mark.parametrize("form", ["{}_2", "{} 2026", "Q1-{}", "{}.q", "2026/02 {}"])
def test_columns_that_are_renamed_by_a_year_or_a_number_ask(form: str) -> None:
    """Signs, digits and blanks are no other name; a prefix or suffix of letters is one, but for the other columns."""
    rng = np.random.default_rng(8)
    january, february = (without(people(rng, 1000), "mrn") for _ in range(2))
    renamed = {form.format(name): values for name, values in february.items()}
    other = "q" in form.lower()
    assert likeness(january, renamed) is (Likeness.OTHER if other else Likeness.LATER)


def test_persons_key_tells_people_apart_whatever_the_columns_are() -> None:
    rng = np.random.default_rng(6)
    one, other = people(rng, 1000), people(rng, 1000)
    assert likeness(one, other, ("mrn",)) is Likeness.OTHER
    assert likeness(one, other) is Likeness.LATER
