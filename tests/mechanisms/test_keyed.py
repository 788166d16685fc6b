"""Tables with keys: drafts, views with bounded rows of a person, and what drawn tables keep by construction."""

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.domain import Domain
from mechanisms.errors import ConditionError, DataError, DomainError
from mechanisms.keyed import conditions
from mechanisms.keyed.conditions import PersonsWanted, persons_where
from mechanisms.keyed.declared import KeyedTables
from mechanisms.keyed.drafting import KeyedDraft, draft_tables
from mechanisms.keyed.drawing import Persons, draw_persons, keyed_frames
from mechanisms.keyed.figures import keyed_figures
from mechanisms.keyed.views import KEY, coarse, view_tables, views_of
from mechanisms.linked_draft import TableRead
from mechanisms.model import Model
from mechanisms.table import encode
from mechanisms.text_table import TextTable

Columns = dict[str, list[str]]


def table(columns: Mapping[str, list[str]]) -> TextTable:
    rows = len(next(iter(columns.values())))
    return TextTable(dict(columns), range(2, rows + 2))


def office(persons: int = 60, *, seed: int = 1, most: int = 6) -> dict[str, Columns]:
    """Patients and stays, in any order: missing values, marks, dates, a column of both and a constant one."""
    chance = random.Random(seed)
    patients: Columns = {"pid": [], "sex": [], "born": []}
    stays: Columns = {
        n: [] for n in ("pid", "day", "sex", "blood", "weight", "ward", "crp", "note")
    }
    for number in range(persons):
        pid, sex, blood = f"P{number:03}", chance.choice("fm"), chance.choice(["0", "A", "B"])
        for name, value in (("pid", pid), ("sex", sex), ("born", str(chance.randint(1930, 2005)))):
            patients[name].append(value)
        day, weight = chance.randint(0, 400), chance.gauss(75, 12)
        for _ in range(chance.randint(0, most)):
            day += chance.randint(0, 60)
            weight += chance.gauss(0, 0.8)
            date = str(np.datetime64("2020-01-01") + day)
            crp = chance.choice(["", "<5", str(chance.randint(5, 90)), str(chance.randint(5, 90))])
            ward = chance.choice(["surgery", "internal", ""])
            row = (pid, date, sex, blood, f"{weight:.1f}", ward, crp, chance.choice(["x", "y"]))
            for name, value in zip(stays, row, strict=True):
                stays[name].append(value)
    order = list(range(len(stays["pid"])))
    chance.shuffle(order)
    return {"patients": patients, "stays": {n: [v[i] for i in order] for n, v in stays.items()}}


def drafted(tables: Mapping[str, Columns]) -> KeyedDraft:
    return draft_tables({name: TableRead(table(of), name, "comma") for name, of in tables.items()})


def independent(domain: Domain, codes: np.ndarray) -> Model:
    """A model that holds all columns independent: the worst that noise can leave."""
    cliques = tuple((name,) for name in domain.names)
    marginals = tuple(
        np.bincount(codes[:, i], minlength=column.size) / max(1, len(codes))
        if len(codes)
        else np.full(column.size, 1 / column.size)
        for i, column in enumerate(domain.columns)
    )
    return Model(domain, cliques, (-1,) * len(cliques), marginals)


def models_of(tables: KeyedTables, of: Mapping[str, Columns]) -> dict[str, Model]:
    rows = view_tables(
        tables,
        {name: table(columns) for name, columns in of.items()},
        where={name: name for name in of},
    )
    return {
        view.name: independent(view.domain, encode(view.domain, rows[view.name]))
        for view in views_of(tables)
    }


def test_a_draft_finds_key_parent_order_constants_copies_and_changes() -> None:
    draft = drafted(office())
    (child,) = draft.tables.children
    assert (draft.tables.parent.name, draft.tables.parent.key) == ("patients", "pid")
    assert (child.order, child.constant, child.copied) == ("day", ("blood",), ("sex",))
    assert [change.name for change in child.changes] == ["day", "weight"]
    assert child.modelled == ("ward", "crp", "note")
    assert KeyedTables.from_list(draft.tables.to_dict()) == draft.tables


def test_two_rows_of_each_person_are_enough_to_know_what_stays() -> None:
    (child,) = drafted(office(most=2)).tables.children
    assert (child.order, child.constant, child.copied) == ("day", ("blood",), ("sex",))


def test_a_key_is_known_by_its_name_where_other_columns_stand_in_all_tables() -> None:
    tables = office()
    stays = tables["stays"]
    lab = {"day": stays["day"][:40], "value": stays["crp"][:40], "pid": stays["pid"][:40]}
    assert len(set(stays["day"])) > len(set(stays["pid"]))
    draft = drafted({"stays": stays, "lab": lab})
    assert draft.tables.parent.key == "pid"


def test_a_copied_column_is_described_as_that_of_the_persons() -> None:
    """A value of persons without stays alone is in the stays' description: a synthetic one of it may have a stay."""
    tables = office()
    never = next(
        i for i, pid in enumerate(tables["patients"]["pid"]) if pid not in tables["stays"]["pid"]
    )
    tables["patients"]["sex"][never] = "x"
    keyed = drafted(tables).tables
    (child,) = keyed.children
    assert child.column("sex") == keyed.domain_of("patients").columns[0]
    assert "x" in child.column("sex").labels


def test_one_table_in_which_a_key_repeats_has_persons_of_its_own() -> None:
    tables = office(most=4)
    tables["stays"].pop("sex")
    draft = drafted({"stays": tables["stays"]})
    assert (draft.tables.parent.domain, draft.tables.names) == (None, ("stays",))
    persons, _ = views_of(draft.tables)
    assert persons.domain.columns[0].labels[0] == "1", "nobody is there without a row"
    assert not persons.domain.constraints


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": 9}, "expected 1 <= rows <= most"),
        ({"rows": 1}, "expected most = 1, or rows from 2"),
        ({"order": "ward"}, "expected a column of dates or whole numbers"),
        ({"order": "none"}, "no column 'none'"),
        ({"change": []}, "stands without its change"),
        ({"constant": ["day"]}, "two of constant, copied, changing and the order"),
        ({"copied": ["ward"]}, "which 'patients' lacks"),
        ({"parent": "wards"}, "there are two levels"),
        ({"key": "ward"}, "expected it without one"),
        ({"nonsense": 1}, "unknown key 'nonsense'"),
        ({"name": "stays.1"}, "expected a name of letters"),
        ({"name": "patients"}, "expected different names"),
    ],
)
def test_tables_that_do_not_fit_are_refused(change: dict[str, object], said: str) -> None:
    parent, child = drafted(office()).tables.to_dict()
    with pytest.raises(DomainError, match=said.replace("(", r"\(")):
        KeyedTables.from_list([parent, child | change])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"stays": {"pid": ["P777"]}},
            "stays, line 2: its 'pid' is in no row of the table of persons",
        ),
        (
            {"patients": {"pid": ["P001"]}},
            "lines 2 and 3: the same 'pid'; expected one row of each person",
        ),
        ({"stays": {"ward": ["attic"]}}, "stays, line 2, column 'ward'"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_line(change: dict[str, Columns], said: str) -> None:
    tables = office()
    draft = drafted(tables)
    for name, columns in change.items():
        for column, values in columns.items():
            tables[name][column][: len(values)] = values
    with pytest.raises(DataError, match=said):
        models_of(draft.tables, tables)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 7))
def test_a_person_is_in_as_many_rows_of_a_view_as_it_says(seed: int, most: int) -> None:
    """Without a person all other rows stay: one row of persons goes, and a row for each step of that person."""
    tables = office(24, seed=seed, most=most)
    if not any(count > 1 for count in Counter(tables["stays"]["pid"]).values()):
        return
    keyed = drafted(tables).tables
    gone = "P007"
    without = {
        name: {
            column: [v for v, pid in zip(values, of["pid"], strict=True) if pid != gone]
            for column, values in of.items()
        }
        for name, of in tables.items()
    }
    rows, fewer = (
        view_tables(keyed, {n: table(c) for n, c in of.items()}, where={n: n for n in of})
        for of in (tables, without)
    )
    steps = max(0, Counter(tables["stays"]["pid"])[gone] - 1)
    for view in views_of(keyed):
        own = rows[view.name].columns[KEY].count(gone.lower())
        assert own == (1 if view.name == "patients" else steps)
        kept = _lines(rows[view.name])
        kept.subtract(_lines(fewer[view.name]))
        assert sum(kept.values()) == own
        assert min(kept.values(), default=0) >= 0
        assert view.rows == (1 if view.name == "patients" else keyed.children[0].rows - 1)


def _lines(rows: TextTable) -> Counter[tuple[str, ...]]:
    return Counter(zip(*rows.columns.values(), strict=True))


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 7), st.booleans())
def test_drawn_tables_keep_what_is_so_by_construction(seed: int, most: int, parent: bool) -> None:
    """Constants, copies, order, numbers of rows, keys, and values that the domains allow, with the worst models."""
    tables = office(24, seed=seed, most=most)
    if not parent:
        tables.pop("patients")
    if len(set(tables["stays"]["pid"])) in (0, len(tables["stays"]["pid"])):
        return
    try:
        keyed = drafted(tables).tables
    except DataError:  # A key of persons with too few of them, or with too many rows, is none.
        return
    (child,) = keyed.children
    persons = draw_persons(keyed, models_of(keyed, tables), 50, seed=seed)
    drawn = {name: frame for name, _, frame in keyed_frames(keyed, persons)}
    frame = drawn["stays"]
    numbers = Counter(frame["pid"])
    assert max(numbers.values(), default=0) <= child.most
    if parent:
        assert drawn["patients"]["pid"].tolist() == [str(n) for n in range(1, 51)]
        sex = dict(zip(drawn["patients"]["pid"], drawn["patients"]["sex"], strict=True))
        assert [sex[pid] for pid in frame["pid"]] == frame[
            "sex"
        ].tolist() or "sex" not in child.copied
    else:
        assert len(numbers) == 50
    texts = {name: table({c: f[c].tolist() for c in f}) for name, f in drawn.items()}
    for name, text in texts.items():
        encode(keyed.domain_of(name), text, source=name)
    (figures,) = keyed_figures(keyed, texts)
    assert (figures.broken, figures.unordered) == (0, 0)


def test_figures_see_what_is_broken() -> None:
    """The control of the figures above: rows of other persons under one key."""
    tables = office()
    keyed = drafted(tables).tables
    real = {name: table(columns) for name, columns in tables.items()}
    (right,) = keyed_figures(keyed, real)
    assert right.broken == 0
    assert right.unordered > 10, "the file has its rows in any order"
    mixed = tables["stays"] | {"pid": sorted(tables["stays"]["pid"])}
    (wrong,) = keyed_figures(keyed, real | {"stays": table(mixed)})
    assert wrong.broken > 10
    weight, mixed_weight = (
        next(c for c in each.columns if c.column == "weight") for each in (right, wrong)
    )
    assert weight.spread is not None
    assert mixed_weight.spread is not None
    assert mixed_weight.spread > 5 * weight.spread
    assert right.numbers == {
        n: c / 60
        for n, c in sorted(
            Counter(Counter(tables["stays"]["pid"])[p] for p in tables["patients"]["pid"]).items()
        )
    }


def test_changes_follow_the_row_before() -> None:
    tables = office(200)
    keyed = drafted(tables).tables
    persons = draw_persons(keyed, models_of(keyed, tables), 200, seed=3)
    _, (_, _, stays) = keyed_frames(keyed, persons)
    rows = defaultdict[str, list[float]](list)
    for pid, weight in zip(stays["pid"], stays["weight"], strict=True):
        rows[pid].append(float(weight))
    steps = [b - a for own in rows.values() for a, b in itertools.pairwise(own)]
    assert np.std(steps) < 1.5, "weights change by 0.8 kg, and differ by 12"


def test_dates_are_in_order_though_some_are_missing() -> None:
    """Rows without a date are the last ones of a person, as in the table, with the worst model as well."""
    tables = office(200)
    stays = tables["stays"]
    stays["day"] = ["" if row % 4 == 0 else day for row, day in enumerate(stays["day"])]
    keyed = drafted(tables).tables
    assert keyed.children[0].order == "day"
    persons = draw_persons(keyed, models_of(keyed, tables), 300, seed=3)
    whose, texts = persons.rows["stays"]
    days = defaultdict[int, list[str]](list)
    for person, day in zip(whose.tolist(), texts["day"], strict=True):
        days[person].append("9999" if day is None else day)
    assert all(own == sorted(own) for own in days.values())
    assert len({day for own in days.values() for day in own}) > 20


def test_a_table_of_constants_alone_needs_no_view_of_steps() -> None:
    tables = office()
    tables["stays"] = {name: tables["stays"][name] for name in ("pid", "sex", "blood")}
    keyed = drafted(tables).tables
    assert [view.name for view in views_of(keyed)] == ["patients"]
    persons = draw_persons(keyed, models_of(keyed, tables), 40, seed=2)
    whose, texts = persons.rows["stays"]
    assert max(Counter(whose.tolist()).values()) > 1
    pairs = set(zip(whose.tolist(), texts["sex"].tolist(), texts["blood"].tolist(), strict=True))
    assert len(pairs) == len(set(whose.tolist()))


def test_a_person_whose_row_contradicts_a_constraint_is_left_out_with_all_rows() -> None:
    tables = office()
    parent, child = drafted(tables).tables.to_dict()
    rule = {"never": "sex = m and born < 1960", "violations": "repair"}
    keyed = KeyedTables.from_list([parent | {"constraint": [rule]}, child])
    given = {name: table(columns) for name, columns in tables.items()}
    rows = view_tables(keyed, given, where={name: name for name in given})
    of = tables["patients"]
    gone = {p.lower() for p, s, b in zip(*of.values(), strict=True) if s == "m" and int(b) < 1960}
    kept = {pid.lower() for pid in of["pid"]} - gone
    assert gone & {pid.lower() for pid in tables["stays"]["pid"]}
    assert set(rows["patients"].columns[KEY]) == kept
    assert set(rows["stays"].columns[KEY]) <= kept


def test_columns_may_be_called_as_those_of_views_are() -> None:
    tables = office()
    stays = tables["stays"]
    renamed = {
        "ward": "number",
        "note": "before.number",
        "crp": "change.day",
        "weight": "first.blood",
    }
    tables["stays"] = {renamed.get(name, name): values for name, values in stays.items()}
    tables["patients"]["number"] = tables["patients"].pop("born")
    keyed = drafted(tables).tables
    where = "patients.number < 1970 and stays.number > 1 and stays.first.blood < 80"
    drawn = persons_where(keyed, models_of(keyed, tables), PersonsWanted(20, where))
    assert max(map(int, drawn.own["number"])) < 1970
    whose, texts = drawn.rows["stays"]
    assert set(texts["number"]) <= {"surgery", "internal", None}
    assert min(Counter(whose.tolist()).values()) > 1


def test_the_same_seed_draws_the_same_persons() -> None:
    tables = office()
    keyed = drafted(tables).tables
    models = models_of(keyed, tables)
    one, two, other = (
        [
            frame.to_csv()
            for *_, frame in keyed_frames(keyed, draw_persons(keyed, models, 30, seed=s))
        ]
        for s in (5, 5, 6)
    )
    assert one == two != other


def test_persons_under_a_condition_satisfy_it() -> None:
    tables = office()
    keyed = drafted(tables).tables
    models = models_of(keyed, tables)
    where = (
        "patients.sex = f and patients.born >= 1961 and stays.number > 2 and stays.ward = surgery "
        "and stays.weight < 80"
    )
    persons = persons_where(keyed, models, PersonsWanted(20, where))
    (_, _, patients), (_, _, stays) = keyed_frames(keyed, persons)
    assert set(patients["sex"]) == {"f"}
    assert all(int(born) >= 1961 for born in patients["born"])
    assert min(Counter(stays["pid"]).values()) > 2
    held = {
        pid
        for pid, ward, kg in zip(stays["pid"], stays["ward"], stays["weight"], strict=True)
        if ward == "surgery" and float(kg) < 80
    }
    assert held == set(patients["pid"]) == {str(n) for n in range(1, 21)}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("sex = f", "expected it with its table"),
        ("stays.height = 3", "no column 'height' in stays"),
        ("stays.number > 99", "no person has so many rows"),
        ("patients.sex = x", "x"),
        ("stays.ward < surgery", "have categories|has categories"),
        ("stays.ward is missing", "tested by their values"),
    ],
)
def test_conditions_that_do_not_fit_are_refused(where: str, said: str) -> None:
    tables = office()
    keyed = drafted(tables).tables
    with pytest.raises(ConditionError, match=said):
        persons_where(keyed, models_of(keyed, tables), PersonsWanted(5, where))


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("stays.number = 0 and stays.ward = surgery", "no value of column 'stays.number'"),
        ("stays.ward = surgery and stays.ward = internal", "no value of column 'ward'"),
        ("stays.weight < 60 and stays.weight > 70", "no value of column 'weight'"),
        # The model of independent columns gives 0 rows no probability beside 6 of them, nor both sexes to a person.
        ("patients.sex = f and stays.sex = m", "no value of column 'patients.sex'"),
        ("stays.blood = 0 and stays.blood = A", "no value of column 'blood'"),
        ("patients.born = 1900", "no value of column 'patients.born'"),
    ],
)
def test_conditions_that_nobody_satisfies_are_refused_before_anybody_is_drawn(
    where: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed, models = _independent_office()

    def drawn(*_: object, **__: object) -> Persons:
        raise AssertionError("somebody was drawn")

    monkeypatch.setattr(conditions, "draw_persons", drawn)
    with pytest.raises(ConditionError, match=said):
        persons_where(keyed, models, PersonsWanted(5, where))


def test_conditions_without_probability_are_refused_before_anybody_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keyed, models = _independent_office()
    persons = models["patients"]
    place = persons.domain.index("patients.sex")
    marginals = list(persons.marginals)
    marginals[place] = np.array([1.0, 0.0])
    models["patients"] = replace(persons, marginals=tuple(marginals))
    monkeypatch.setattr(conditions, "draw_persons", lambda *_, **__: 1 / 0)
    for where in ("patients.sex = m", "stays.sex = m"):
        with pytest.raises(ConditionError, match=r"no person of the model satisfies '.*sex = m'"):
            persons_where(keyed, models, PersonsWanted(5, where))


def test_tests_of_what_all_rows_share_are_made_by_the_model() -> None:
    """Nobody is drawn in vain: of as many persons as are wanted all satisfy the condition."""
    keyed, models = _independent_office()
    calls = list[int]()

    def counted(*given: object, **named: object) -> Persons:
        calls.append(1)
        return draw_persons(*given, **named)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditions, "draw_persons", counted)
        persons = persons_where(
            keyed, models, PersonsWanted(200, "stays.blood = B and stays.sex = f")
        )
    assert len(calls) == 1
    assert persons.count == 200
    whose, texts = persons.rows["stays"]
    assert set(texts["blood"]) == {"B"}
    assert set(persons.own["sex"]) == {"f"}
    assert set(whose.tolist()) == set(range(200))


def _independent_office() -> tuple[KeyedTables, dict[str, Model]]:
    tables = office()
    keyed = drafted(tables).tables
    return keyed, dict(models_of(keyed, tables))


def test_coarse_columns_have_few_cells_and_all_values() -> None:
    keyed = drafted(office(300)).tables
    for column in keyed.children[0].domain.columns:
        few = coarse(column)
        assert few.size <= max(8 + 2, column.size if column.kind == "categorical" else 0)
        for text in office(300)["stays"][column.name]:
            assert text == "" or few.code_of(text) is not None


def test_a_persons_rows_end_with_the_last_value_of_the_order() -> None:
    """A panel by quarters 1 to 8, in which no quarter comes twice, however late a person begins."""
    chance = random.Random(4)
    rows: Columns = {"pid": [], "quarter": [], "work": []}
    for number in range(160):
        start = chance.randint(1, 6)
        for quarter in range(start, chance.randint(start, 8) + 1):
            rows["pid"].append(f"P{number:03}")
            rows["quarter"].append(str(quarter))
            rows["work"].append(chance.choice("yn"))
    keyed = drafted({"panel": rows}).tables
    (child,) = keyed.children
    assert (child.order, child.changes[0].low) == ("quarter", 1)
    persons = draw_persons(keyed, models_of(keyed, {"panel": rows}), 200, seed=1)
    ((_, _, panel),) = keyed_frames(keyed, persons)
    seen = Counter(zip(panel["pid"], panel["quarter"], strict=True))
    assert max(seen.values()) == 1
    assert max(map(int, panel["quarter"])) == 8
