"""Summaries of a person's rows: what they are, that drawn rows follow them, and what they cost."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.columns import Categorical
from mechanisms.domain import Domain
from mechanisms.errors import ConditionError, DomainError
from mechanisms.keyed import drawing
from mechanisms.keyed.conditions import PersonsWanted, persons_where
from mechanisms.keyed.declared import BY_TABLES, ChildTable, KeyedTables, ParentTable
from mechanisms.keyed.drawing import draw_persons, keyed_frames
from mechanisms.keyed.figures import keyed_figures
from mechanisms.keyed.summaries import Summary, summarised
from mechanisms.keyed.views import KEY, View, source_tables, view_tables, views_of
from mechanisms.numbers import Real
from mechanisms.private_categories import PrivateCategories
from mechanisms.table import encode
from mechanisms.text_table import TextTable
from tests.mechanisms.test_keyed import Columns, drafted, models_of, office, table

OPERATED = {"kind": "any", "name": "operated", "where": "ward = surgery and weight >= 70"}
SUMMARIES = [OPERATED, {"kind": "last", "column": "ward"}, {"kind": "mean", "column": "crp"}]


def with_summaries(of: dict[str, Columns], summaries: Sequence[object] = SUMMARIES) -> KeyedTables:
    parent, child = drafted(of).tables.to_dict()
    return KeyedTables.from_list([parent, child | {"summary": list(summaries)}])


def persons_view(tables: KeyedTables, of: dict[str, Columns]) -> TextTable:
    views = view_tables(tables, {n: table(c) for n, c in of.items()}, where={n: n for n in of})
    return views[tables.parent.name]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 6))
def test_a_person_has_the_summaries_of_all_its_rows(seed: int, most: int) -> None:
    """Also of rows beyond those that count from row to row."""
    of = office(80, seed=seed, most=most)
    tables = with_summaries(of)
    view = persons_view(tables, of).columns
    rows = defaultdict(list)
    for row in zip(*of["stays"].values(), strict=True):
        rows[row[0].lower()].append(dict(zip(of["stays"], row, strict=True)))
    mean = tables.children[0].column("crp")
    for place, pid in enumerate(view[KEY]):
        own = sorted(rows[pid], key=lambda row: row["day"])
        found = tuple(view[f"stays.{s.column}"][place] for s in tables.children[0].summaries)
        if not own:
            assert found == ("none",) * 3
            continue
        operated = any(row["ward"] == "surgery" and float(row["weight"]) >= 70 for row in own)
        days = [row["day"] for row in own]
        if days.count(days[-1]) == 1:
            assert found[1] == (own[-1]["ward"] or "missing")
        assert found[0] == ("yes" if operated else "no")
        numbers = [int(row["crp"]) for row in own if row["crp"].isdigit()]
        if not numbers:
            assert found[2] == "missing"
        elif not mean.atoms:
            assert abs(int(found[2]) - float(np.mean(numbers))) <= 0.5


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_without_a_person_all_other_rows_stay(seed: int) -> None:
    of = office(80, seed=seed)
    tables = with_summaries(of)
    gone = "P007"
    fewer = {
        name: {
            column: [v for v, pid in zip(values, columns["pid"], strict=True) if pid != gone]
            for column, values in columns.items()
        }
        for name, columns in of.items()
    }
    lines = [
        set(zip(*persons_view(tables, each).columns.values(), strict=True)) for each in (of, fewer)
    ]
    assert lines[1] < lines[0]
    assert len(lines[0] - lines[1]) == 1


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_zeros_of_the_view_hold_for_real_persons_and_some_bind(seed: int) -> None:
    of = office(80, seed=seed)
    tables = with_summaries(of)
    (persons, *_) = views_of(tables)
    encode(persons.domain, persons_view(tables, of))
    texts = [each.to_dict()["never"] for each in persons.domain.constraints]
    assert (
        '"stays.first.ward" = "surgery" and "stays.first.weight" >= "70" and "stays.any.operated" = "no"'
        in texts
    )
    assert (
        '"stays.number" = "1" and "stays.any.operated" = "yes" and "stays.first.ward" != "surgery"'
        in texts
    )
    broken = persons_view(tables, of)
    columns = {name: list(cells) for name, cells in broken.columns.items()}
    operated = columns["stays.any.operated"]
    if "yes" in operated:
        row = operated.index("yes")
        operated[row] = "no"
        columns["stays.first.ward"][row], columns["stays.first.weight"][row] = "surgery", "80.0"
        with pytest.raises(Exception, match="never"):
            encode(persons.domain, replace(broken, columns=columns))


def followed(of: dict[str, Columns], tables: KeyedTables, persons: int = 600) -> float:
    """Share of persons with several drawn rows whose summaries are those that were drawn for them."""
    models = models_of(tables, of)
    seen = list[float]()
    once = drawing._Drawing._rows

    def rows(self, child, codes, own, *, numbers):  # type: ignore[no-untyped-def]
        whose, texts = once(self, child, codes, own, numbers=numbers)
        agreed = self._agreements(child, codes, whose, texts=texts)
        seen.append(float((agreed[numbers > 1] == len(child.summaries)).mean()))
        return whose, texts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing._Drawing, "_rows", rows)
        draw_persons(tables, models, persons, seed=5)
    return seen[0]


def test_drawn_rows_follow_the_drawn_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without another try they do by chance alone (the control)."""
    of = office(150, seed=3)
    tables = with_summaries(of, SUMMARIES[1:2])
    assert followed(of, tables) > 0.9
    monkeypatch.setattr(drawing, "PERSON_TRIES", 0)
    assert followed(of, tables) < 0.5


def test_summaries_of_drawn_persons_are_where_rows_are_and_are_figures() -> None:
    of = office(300, seed=2)
    tables = with_summaries(of)
    frames = keyed_frames(tables, draw_persons(tables, models_of(tables, of), 800, seed=1))
    drawn = {name: table({str(c): frame[c].tolist() for c in frame}) for name, _, frame in frames}
    (figures,) = keyed_figures(tables, drawn)
    (real,) = keyed_figures(tables, {name: table(columns) for name, columns in of.items()})
    shares = [each.summaries[0].shares for each in (figures, real)]
    assert abs(shares[0]["yes"] - shares[1]["yes"]) < 0.12
    assert [each.summary for each in figures.summaries] == ["any.operated", "last.ward", "mean.crp"]
    assert sum(figures.summaries[1].shares.values()) == pytest.approx(1)
    assert figures.summaries[2].mean == pytest.approx(real.summaries[2].mean or 0, abs=8)


@pytest.mark.parametrize(
    "where", ["stays.any.operated = yes", "stays.mean.crp >= 40", "stays.last.ward = internal"]
)
def test_persons_under_a_condition_on_summaries_satisfy_it(where: str) -> None:
    of = office(300, seed=2)
    tables = with_summaries(of)
    persons = persons_where(tables, models_of(tables, of), PersonsWanted(60, where, seed=4))
    whose, texts = persons.rows["stays"]
    _, values = drawing.summaries_of(tables.children[0], whose, texts)
    assert len(np.unique(whose)) == persons.count == 60
    column, sign, value = where.removeprefix("stays.").split()
    held = (
        (int(v) >= 40 for v in values[column])
        if sign == ">="
        else (v == value for v in values[column])
    )
    assert all(held)


def test_a_condition_on_a_summary_that_is_not_described_is_refused() -> None:
    of = office(60)
    tables = with_summaries(of)
    with pytest.raises(ConditionError, match=r"no column 'last\.crp' in stays"):
        persons_where(tables, models_of(tables, of), PersonsWanted(5, "stays.last.crp > 3", seed=4))


def test_an_owner_of_rows_alone_has_their_summaries() -> None:
    of = office(40)
    parent, child = with_summaries(of).to_dict()
    tables = KeyedTables.from_list([parent | {"linked": BY_TABLES}, child])
    own = source_tables(tables, {"stays": table(of["stays"])}, where={"stays": "stays"})
    rows = own["patients"]["stays"].columns
    assert {f"stays.{s.column}" for s in tables.children[0].summaries} < set(rows)
    assert set(rows["stays.any.operated"]) == {"yes", "no"}


def test_summaries_are_kept_in_a_configuration() -> None:
    tables = with_summaries(office())
    assert KeyedTables.from_list(tables.to_dict()) == tables
    assert tables.children[0].summaries[0] == Summary("any", "operated", OPERATED["where"])


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ({"kind": "most", "column": "ward"}, "kind = 'most'; expected one of last, mean, any"),
        ({"kind": "last"}, "column"),
        ({"kind": "last", "column": "blood"}, "last of 'blood', which never differs among"),
        ({"kind": "last", "column": "sex"}, "last of 'sex', which never differs among"),
        ({"kind": "mean", "column": "ward"}, "mean of 'ward', which has no numbers"),
        ({"kind": "mean", "column": "day"}, "mean of 'day', which has no numbers"),
        ({"kind": "any", "column": "ward"}, "name"),
        ({"kind": "any", "name": "x", "where": "ward ="}, "cannot be read"),
        ({"kind": "any", "name": "x", "where": "ward = theatre"}, "'theatre' is no value"),
        ({"kind": "any", "name": "x", "where": "none = 1"}, "no column 'none'"),
        ({"kind": "any", "name": "x", "where": "ward is missing"}, "cannot be read from"),
        ({"kind": "any", "name": "", "where": "ward = surgery"}, "name = ''; expected a text"),
        (OPERATED, "two summaries 'any.operated'"),
        ("last", "kind = 'last'"),
    ],
)
def test_summaries_that_do_not_fit_are_refused(summary: object, said: str) -> None:
    with pytest.raises(DomainError, match=f"table 'stays'.*{said}"):
        with_summaries(office(), [OPERATED, summary])


def test_a_mean_is_the_same_in_every_version_of_python() -> None:
    """`sum` would make 90.85000000000001 of these numbers in Python 3.11, and 90.85 in 3.12."""
    domain = Domain((Real("weight", 0.0, 200.0, decimals=1),), ("",))
    cells = {"weight": ["61.8", "102.5", "90.9", "108.2"]}
    assert summarised(domain, Summary("mean", "weight"), cells, persons=[range(4)]) == ["90.8"]


WARDS = ("a", "b", "c")


def wards(
    rows: dict[str, list[str]], ward: Categorical, summaries: tuple[Summary, ...], *, most: int = 3
) -> tuple[View, TextTable]:
    """The view of persons p and q, of whom q has no stays, and its rows."""
    persons = Domain((Categorical("sex", ("f", "m", "missing")),), ("",), ignore=("pid",))
    stays = Domain((ward, Categorical("note", ("x", "y"))), ("",), ignore=("pid",))
    child = ChildTable("stays", "pid", stays, min(2, most), most, summaries=summaries)
    tables = KeyedTables(ParentTable("persons", "pid", persons), (child,))
    of = {"persons": {"pid": ["p", "q"], "sex": ["f", "m"]}, "stays": rows}
    (view, *_) = views_of(tables)
    return view, persons_view(tables, of)


def stays(*cells: str) -> dict[str, list[str]]:
    return {"pid": ["p"] * len(cells), "ward": list(cells), "note": ["x"] * len(cells)}


def test_who_has_no_rows_has_no_value_of_private_categories() -> None:
    private = PrivateCategories(WARDS)
    ward = Categorical("ward", WARDS, other="rest", private=private)
    view, rows = wards(stays("a", "b"), ward, (Summary("last", "ward"),))
    codes = encode(view.domain, rows)
    for name in ("stays.first.ward", "stays.last.ward"):
        place = view.domain.index(name)
        column = view.domain.columns[place]
        assert column.missing
        assert codes[1, place] == column.size - 1
        assert codes[0, place] != column.size - 1


def test_one_row_that_counts_is_not_the_only_one() -> None:
    """Any of three rows satisfies the condition, and the first does not, where a synthetic person has one row."""
    ward = Categorical("ward", WARDS)
    view, rows = wards(stays("a", "b", "c"), ward, (Summary("any", "x", "ward = b"),), most=1)
    encode(view.domain, rows)
    assert rows.columns["stays.any.x"][0] == "yes"


@pytest.mark.parametrize("cell", ["none", "missing", "theatre"])
@pytest.mark.parametrize("missing", [False, True])
def test_values_that_are_not_listed_are_others_whatever_they_are_called(
    cell: str, missing: bool
) -> None:
    ward = Categorical("ward", WARDS, other="rest", missing=missing)
    summaries = (Summary("last", "ward"), Summary("any", "x", "ward = rest"))
    view, rows = wards(stays("a", cell), ward, summaries)
    assert rows.columns["stays.last.ward"] == ["rest", "none"]
    assert rows.columns["stays.any.x"] == ["yes", "none"]
    encode(view.domain, rows)


def test_a_missing_summary_is_one_of_the_rows() -> None:
    of = office(200, seed=2)
    tables = with_summaries(of)
    for where, absent in (("is missing", True), ("is not missing", False)):
        wanted = PersonsWanted(40, f"stays.last.ward {where}", seed=4)
        whose, texts = persons_where(tables, models_of(tables, of), wanted).rows["stays"]
        some, values = drawing.summaries_of(tables.children[0], whose, texts)
        assert len(some) == 40
        assert all((value is None) == absent for value in values["last.ward"])


def test_an_owner_of_rows_alone_has_the_words_of_the_whole_study() -> None:
    """ "missing" is a category of the persons, who are elsewhere."""
    of = office(60)
    of["patients"]["sex"][0] = "missing"
    parent, child = with_summaries(of).to_dict()
    tables = KeyedTables.from_list([parent | {"linked": BY_TABLES}, child])
    own = source_tables(tables, {"stays": table(of["stays"])}, where={"stays": "stays"})
    found = {*own["patients"]["stays"].columns["stays.last.ward"]}
    assert "missing 2" in found
    assert "missing" not in found
