"""Constraints: formulas, relations, structural zeros against enumeration, drawn rows, and an owner's checks."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from mechanisms.constraints.checking import contradictions, repaired
from mechanisms.constraints.conjunction import read_tests
from mechanisms.constraints.formula import Sum, _full_years, _years_before, read_sum
from mechanisms.constraints.rows import settle
from mechanisms.descent import Target
from mechanisms.domain import Domain, Integer
from mechanisms.errors import DataError, DomainError
from mechanisms.inference import JunctionTree
from mechanisms.junction_tree import cells_with_each, model_cells
from mechanisms.model import Model
from mechanisms.moments import tick_of
from mechanisms.pgm import fit_targets, tilt
from mechanisms.sampling import PublicGenerator, public_generator
from mechanisms.synthetic import synthetic_parts
from mechanisms.table import as_modelled, decode, encode
from mechanisms.text_table import TextTable


def column(name: str, kind: str = "integer", **keys: object) -> dict[str, object]:
    return {"name": name, "kind": kind} | keys


def domain_of(columns: Sequence[Mapping[str, object]], *constraints: object) -> Domain:
    return Domain.from_dict({"column": list(columns), "constraint": list(constraints)})


def table(**columns: Sequence[str]) -> TextTable:
    rows = len(next(iter(columns.values())))
    return TextTable(columns, range(2, rows + 2))


def derived_texts(domain: Domain, **columns: Sequence[str]) -> list[str]:
    (derived,) = domain.derived
    modelled = {each.name: each for each in domain.columns}
    return list(derived.texts(modelled, columns, domain.missing_values))


NET = [
    column("net", low=0, high=99),
    column("vat", "real", low=0.0, high=9.0, decimals=2),
    column("gross", "real", low=0.0, high=110.0, decimals=2, format="#,##0.00"),
]
DAYS = [
    column("start", "date", low="2020-01-01", high="2024-12-31", format="%d.%m.%Y", missing=True),
    column("end", "date", low="2020-01-01", high="2024-12-31"),
    column("days", low=0, high=9),
]
AGE = [
    column("birth", "date", low="1930-01-01", high="2010-12-31"),
    column("visit", "date", low="2011-01-01", high="2024-12-31"),
    column("age", low=0, high=100),
]


@pytest.mark.parametrize(
    ("text", "terms", "constant"),
    [
        ("net + vat", ((1, "net"), (1, "vat")), "0"),
        ("-a-b", ((-1, "a"), (-1, "b")), "0"),
        ('100 - a - "b c"', ((-1, "a"), (-1, "b c")), "100"),
        ("a + 'x-y' - 0.5", ((1, "a"), (1, "x-y")), "-0.5"),
    ],
)
def test_read_sum_reads_signs_names_and_numbers(text: str, terms: Any, constant: str) -> None:
    found = read_sum("here", text)
    assert found == Sum(terms, Decimal(constant))
    assert read_sum("here", str(found)) == found


@pytest.mark.parametrize(
    "text", ["", "a +", "a b", "a + + b", "+ - a", "a * b", "3", "a + a", "a + ("]
)
def test_read_sum_refuses_what_is_no_sum(text: str) -> None:
    with pytest.raises(DomainError, match=r"^here: .*expected"):
        read_sum("here", text)


def test_sums_are_exact_and_in_the_columns_own_spelling() -> None:
    domain = domain_of(NET, {"column": "gross", "equals": "net + vat"})
    assert domain.names == ("net", "vat")
    assert domain.written_names == ("net", "vat", "gross")
    found = derived_texts(domain, net=["1", "99", "1,0"], vat=["0.1", "9.00", "1.00"])
    assert found == ["1.10", "108.00", ""]


@pytest.mark.parametrize(
    ("vat", "gross"), [("0.25", "0.2"), ("0.35", "0.4"), ("-0.25", "-0.2"), ("0.26", "0.3")]
)
def test_sums_with_more_decimals_are_rounded_to_even(vat: str, gross: str) -> None:
    columns = [
        column("net", low=0, high=9),
        column("vat", "real", low=-9.0, high=9.0, decimals=2),
        column("gross", "real", low=0.0, high=9.0, decimals=1),
    ]
    domain = domain_of(columns, {"column": "gross", "equals": "net + vat"})
    assert derived_texts(domain, net=["0"], vat=[vat]) == [gross]


def test_dates_less_dates_are_days_and_dates_with_days_are_dates() -> None:
    days = domain_of(DAYS, {"column": "days", "equals": "end - start"})
    given = {
        "start": ["28.02.2024", "", "01.01.2020"],
        "end": ["2024-03-01", "2024-01-01", "2019-12-31"],
    }
    assert derived_texts(days, **given) == ["2", "", "-1"]
    ends = domain_of(DAYS, {"column": "end", "equals": "start + days"})
    assert derived_texts(ends, start=["28.02.2024", ""], days=["2", "3"]) == ["2024-03-01", ""]


@pytest.mark.parametrize(
    ("birth", "visit", "age"),
    [
        ("2000-05-01", "2024-04-30", "23"),
        ("2000-05-01", "2024-05-01", "24"),
        ("2000-02-29", "2023-02-28", "22"),
        ("2000-02-29", "2023-03-01", "23"),
    ],
)
def test_years_are_those_of_birthdays(birth: str, visit: str, age: str) -> None:
    by_column = domain_of(AGE, {"column": "age", "years_since": "birth", "on": "visit"})
    assert derived_texts(by_column, birth=[birth], visit=[visit]) == [age]
    fixed = domain_of(AGE, {"column": "age", "years_since": "birth", "on": visit})
    assert derived_texts(fixed, birth=[birth], visit=["2011-01-01"]) == [age]
    assert Domain.from_dict(fixed.to_dict()) == fixed


@pytest.mark.parametrize("day", ["2024-02-29", "2000-02-29", "2024-02-28", "2024-03-01"])
@pytest.mark.parametrize("years", [0, 1, 4, 96, 100, 104, 124])
def test_the_last_day_of_birth_with_so_many_full_years_is_that(day: str, years: int) -> None:
    then = tick_of(datetime.fromisoformat(day), "day")
    last = _years_before(then, years)
    assert _full_years((last, then), ("day", "day")) == years
    assert _full_years((last + 1, then), ("day", "day")) == years - 1


@pytest.mark.parametrize(
    ("visit", "age", "first", "last"),
    [
        ("2024-05-01", "24", "1999-05-02", "2000-05-01"),
        ("2024-02-29", "3", "2020-03-01", "2021-02-28"),
        ("2024-02-28", "20", "2003-03-01", "2004-02-28"),
        ("2023-03-01", "0", "2022-03-02", "2023-03-01"),
    ],
)
def test_days_of_birth_are_all_that_give_the_age(
    visit: str, age: str, first: str, last: str
) -> None:
    domain = domain_of(AGE, {"column": "birth", "born": "age", "on": "visit"})
    rows = 3000
    found = derived_texts(domain, age=[age] * rows, visit=[visit] * rows)
    assert (min(found), max(found)) == (first, last)
    assert len(set(found)) in (365, 366)
    # A sequence as even as this has each day as often as any other, but for two.
    assert max(found.count(day) for day in set(found)) - rows // 365 <= 2
    ages = domain_of(AGE, {"column": "age", "years_since": "birth", "on": "visit"})
    assert set(derived_texts(ages, birth=found, visit=[visit] * rows)) == {age}
    text = table(birth=[first, last, "1990-01-01"], age=[age] * 3, visit=[visit] * 3)
    with pytest.raises(DataError, match=r"line 4, column 'birth' .* it gives 3[34] years"):
        encode(domain, text)
    assert Domain.from_dict(domain.to_dict()) == domain


FRUIT = [
    column("sex", "categorical", categories=["F", "M"], missing=True),
    column("age", low=0, high=99, bins=10, marks=["old"]),
    column("pay", "real", low=0.0, high=10.0, decimals=1, bins=4),
    column("from", "date", low="2020-01-01", high="2020-12-31", bins=4),
    column("to", "date", low="2020-01-01", high="2020-12-31", bins=3),
    column("total", low=0, high=9),
]
WRONG = [
    ({}, "no kind; expected one of"),
    ({"order": ["age", "pay"], "never": "age = 1"}, "never and order|order and never"),
    ({"order": ["age"]}, "expected two or more"),
    ({"order": ["age", "from"]}, "cannot be compared"),
    ({"order": ["age", "sex"]}, "'sex' has categories"),
    ({"order": ["age", "height"]}, "'height' is no modelled column; the columns are"),
    ({"order": ["age", "pay"], "violations": "drop"}, "expected 'refuse' or 'repair'"),
    ({"order": ["age", "pay"], "strict": True}, "unknown key 'strict'"),
    ({"never": "sex < M"}, "have no order; expected =, !=, in or not in"),
    ({"never": "sex = X"}, "'X' is no value of column 'sex'; expected one of 'F', 'M'"),
    ({"never": "age = young"}, "'young' is no value of column 'age'"),
    ({"never": "age > 99"}, "no value of column 'age' satisfies"),
    ({"never": "age > 1 or sex = M"}, "cannot be read from 'or sex = M' on; expected tests joined"),
    ({"never": "age"}, "cannot be read from 'age' on"),
    ({"never": "age >= 0 and sex in (M, F) and to > 2019-01-01", "violations": "x"}, "violations"),
    ({"never": "pay < 200"}, None),
    ({"when": "age < 18", "then": "age < 18"}, None),
    ({"when": "age < 18"}, "the key 'then' is missing"),
    ({"when": "age < 18", "then": "pay > 10"}, "no value of column 'pay' satisfies"),
    ({"column": "total", "equals": "age + from"}, "as many dates added as taken off"),
    ({"column": "total", "equals": "age + sex"}, "'sex' has categories"),
    ({"column": "sum", "equals": "age + pay"}, r"no \[\[column\]\] with a kind describes 'sum'"),
    ({"column": "to", "equals": "from + pay"}, "expected whole units"),
    ({"column": "to", "equals": "age - pay"}, "expected a date and numbers"),
    ({"column": "total", "equals": "total + age"}, "'total' is no modelled column"),
    ({"column": "total", "years_since": "from", "on": "soon"}, "no day and no column"),
    ({"column": "total", "years_since": "age", "on": "from"}, "'age' has no days"),
    ({"column": "from", "born": "pay", "on": "to"}, "'pay' has no whole numbers"),
    ({"column": "total", "born": "age", "on": "to"}, "'total' has no days"),
    ({"shares": ["age", "pay"], "total": 9}, "expected three or more"),
    ({"shares": ["age", "pay", "total"], "total": 0}, "expected a number above 0"),
    ({"one_hot": ["a", "b"], "column": "sex"}, 'with kind = "categorical" and categories'),
    ({"one_hot": ["F"], "column": "sex"}, "expected two to 200"),
    ({"follows": "sex", "column": "total", "values": {"F": 1}}, "no entry for 'M'"),
    ({"follows": "sex", "column": "height", "values": {"F": 1}}, "describes 'height'"),
]


@pytest.mark.parametrize(("constraint", "message"), WRONG, ids=[str(each) for each, _ in WRONG])
def test_domain_names_a_wrong_constraint_and_what_would_be_right(
    constraint: dict[str, object], message: str | None
) -> None:
    if message is None:
        # It leaves no cell, or forbids none.
        if "never" in constraint:
            message = "no values of its columns satisfy it"
        else:
            assert domain_of(FRUIT, constraint).scopes == ()
            return
    with pytest.raises(DomainError, match=message):
        domain_of(FRUIT, constraint)


def test_two_constraints_of_one_column_are_refused() -> None:
    with pytest.raises(DomainError, match="computed by two constraints"):
        domain_of(
            FRUIT,
            {"column": "total", "equals": "age + pay"},
            {"column": "total", "equals": "age - pay"},
        )


@pytest.mark.parametrize(
    ("text", "tests"),
    [
        ("a = 1", [("a", "=", ("1",))]),
        (
            '"a b" >= -1.5 AND c in (x, "y, z")',
            [("a b", ">=", ("-1.5",)), ("c", "in", ("x", "y, z"))],
        ),
        ("a not in (1,2) and b!=''", [("a", "not in", ("1", "2")), ("b", "!=", ("",))]),
        ("land = Sachsen-Anhalt", [("land", "=", ("Sachsen-Anhalt",))]),
    ],
)
def test_read_tests_reads_conjunctions(text: str, tests: object) -> None:
    found = [(test.column, test.operator, test.values) for test in read_tests("here", text)]
    assert found == tests


def cells_of(domain: Domain, name: str) -> list[list[str]]:
    """Every value of every code of a column, as text; a missing one is empty."""
    described = domain.columns[domain.index(name)]
    values: list[list[str]] = [[] for _ in range(described.size)]
    if isinstance(described, Integer):
        texts = [*map(str, range(described.low, described.high + 1)), *described.marks]
    else:
        texts = list(getattr(described, "values", ()))
    for text in texts:
        code = described.code_of(text)
        assert code is not None
        values[code].append(text)
    if described.missing:
        values[-1] = [""]
    return values


SMALL = [
    column("a", low=0, high=6, bins=3, missing=True),
    column("b", low=2, high=8, bins=2, atoms=[5]),
    column("c", low=-1, high=4, bins=4, marks=["none"]),
    column("d", "categorical", categories=["x1", "x2", "y"], prefix=1),
]
RELATIONS: list[dict[str, object]] = [
    {"order": ["a", "b"]},
    {"order": ["b", "a"]},
    {"order": ["c", "a", "b"]},
    {"order": ["b", "c", "a"]},
    {"never": "a > 3 and b <= 4"},
    {"never": "a in (0, 1, 2, 5) and d = x1"},
    {"never": "d in (x1, x2) and c = none"},
    {"never": "c != none and b = 5 and a not in (3, 4)"},
    {"when": "a >= 2 and a < 5", "then": "b > 4 and d = y"},
    {"when": "d != y", "then": "c in (1, 2, none)"},
    {"shares": ["a", "b", "c", "e"], "total": 7},
]


@pytest.mark.parametrize("constraint", RELATIONS, ids=str)
def test_zeros_are_the_cells_in_which_no_values_satisfy_the_constraint(
    constraint: dict[str, object],
) -> None:
    columns = [*SMALL, column("e", low=0, high=20)] if "shares" in constraint else SMALL
    domain = domain_of(columns, constraint)
    cells = {name: cells_of(domain, name) for name in domain.names}
    allowed = np.ones(domain.shape, np.bool_)
    for scope in domain.zeros:
        away = tuple(i for i, name in enumerate(domain.names) if name not in scope.columns)
        allowed &= np.expand_dims(scope.allowed, away)
    names = [n for n in domain.names if any(n in each.columns for each in domain.relations)]
    for cell in itertools.product(*(range(domain.columns[domain.index(n)].size) for n in names)):
        rows = list(
            itertools.product(*(cells[n][code] for n, code in zip(names, cell, strict=True)))
        )
        columns_of = {n: [row[i] for row in rows] for i, n in enumerate(names)}
        wrong = np.zeros(len(rows), np.bool_)
        for relation in domain.relations:
            modelled = {each.name: each for each in domain.columns}
            of = {name: columns_of[name] for name in relation.columns}
            wrong |= relation.violated(modelled, of, domain.missing_values)
        at = tuple(cell[names.index(n)] if n in names else 0 for n in domain.names)
        assert allowed[at] == (not wrong.all()), (cell, rows)


def random_potentials(domain: Domain, spread: float) -> dict[tuple[str, ...], Any]:
    generator = public_generator(3)
    cliques = [(name,) for name in domain.names] + [("a", "b"), ("b", "d")]
    return {q: generator.normal(0, spread, domain.sizes(q)) for q in cliques}


@pytest.mark.parametrize("constraint", RELATIONS[:-1], ids=str)
@pytest.mark.parametrize("spread", [1.0, 400.0])
def test_marginals_with_zeros_are_those_of_the_enumerated_distribution(
    constraint: dict[str, object], spread: float
) -> None:
    domain = domain_of(SMALL, constraint)
    potentials = random_potentials(domain, spread)
    tree = JunctionTree(domain, list(potentials))
    logs = np.zeros(domain.shape)
    for clique, potential in potentials.items():
        away = tuple(i for i, name in enumerate(domain.names) if name not in clique)
        logs = logs + np.expand_dims(potential, away)
    for scope in domain.zeros:
        away = tuple(i for i, name in enumerate(domain.names) if name not in scope.columns)
        logs = np.where(np.expand_dims(scope.allowed, away), logs, -math.inf)
    joint = np.exp(logs - logs.max())
    partition = math.log(joint.sum()) + logs.max()
    joint /= joint.sum()
    for clique, found in zip(tree.cliques, tree.marginals(potentials), strict=True):
        away = tuple(i for i, name in enumerate(domain.names) if name not in clique)
        wanted = joint.sum(axis=away)
        np.testing.assert_allclose(found, wanted, atol=1e-9)
        assert (found[wanted == 0] == 0).all()
    assert tree.log_partition(potentials) == pytest.approx(partition, rel=1e-6)


def test_trees_and_their_sizes_contain_the_scopes() -> None:
    domain = domain_of(SMALL, {"order": ["a", "b"]}, {"never": "c = 1 and d = y"})
    assert domain.scopes == (("a", "b"), ("c", "d"))
    tree = JunctionTree(domain, [("a",), ("b",)])
    assert tree.cliques == (("a", "b"), ("c", "d"))
    sizes = domain.size(("a", "b")) + domain.size(("c", "d"))
    assert model_cells(domain)([("a",)]) == sizes
    assert cells_with_each(domain, [("a",)], [("b",), ("a", "b")]).tolist() == [sizes, sizes]


def test_tilted_models_keep_the_zeros() -> None:
    domain = domain_of(SMALL, {"order": ["a", "b"]})
    model, _ = fit_targets(domain, {("a",): Target(np.full(4, 0.25), 1.0)}, iterations=3)
    target = Target(np.full(domain.sizes(("b", "c")), 1 / domain.size(("b", "c"))), 1.0)
    (scope,) = domain.zeros
    (answer,) = tilt(model, ("b", "c"), target, iterations=3).answers([("a", "b")])
    assert (answer[~scope.allowed] == 0).all()


WIDE = [
    column("city", "categorical", categories=["Bonn", "Köln", "Lyon"]),
    column("country", "categorical", categories=["DE", "FR"]),
    column("sex", "categorical", categories=["F", "M"], missing=True),
    column("pregnant", "categorical", categories=["no", "yes"]),
    column("age", low=0, high=99),
    column("birth", "date", low="1930-01-01", high="2020-12-31", bins=9),
    column("start", "date", low="2020-01-01", high="2022-12-31", bins=7, missing=True),
    column("review", "date", low="2019-01-01", high="2024-12-31", bins=5, atoms=["2099-12-31"]),
    column("end", "date", low="2020-01-01", high="2023-12-31", bins=11),
    column("days", low=0, high=2000),
    column("net", low=0, high=500, scale="symlog", bins=9, marks=["n/a"]),
    column("vat", "real", low=0.0, high=95.0, decimals=2, bins=6),
    column("gross", "real", low=0.0, high=600.0, decimals=2),
    column("rent", low=0, high=100, bins=6),
    column("food", "real", low=0.0, high=100.0, decimals=1, bins=5),
    column("rest", "real", low=0.0, high=100.0, decimals=1),
    column("colour", "categorical", categories=["red", "green", "blue", "other"]),
    column("grade", low=0, high=12, bins=4),
    column("born", "date", low="2000-01-01", high="2024-12-31"),
]
ALL_KINDS: list[dict[str, object]] = [
    {"follows": "city", "column": "country", "values": {"Bonn": "DE", "Köln": "DE", "Lyon": "FR"}},
    {"never": "pregnant = yes and sex = M"},
    {"when": "pregnant = yes", "then": "net < 400 and rent != 0"},
    {"when": "net = n/a", "then": "vat <= 0.5"},
    {"column": "age", "years_since": "birth", "on": "2024-12-31"},
    {"column": "born", "born": "grade", "on": "end"},
    {"order": ["start", "review", "end"]},
    {"column": "days", "equals": "end - start"},
    {"column": "gross", "equals": "net + vat"},
    {"shares": ["rent", "food", "rest"], "total": 100},
    {"one_hot": ["red", "green", "blue"], "column": "colour", "none": "other"},
]


def drawn_model(domain: Domain, generator: PublicGenerator) -> Model:
    """A model of random noisy marginals of all single columns and some pairs."""
    pairs = list(itertools.combinations(domain.names, 2))
    chosen = [pairs[i] for i in generator.choice(len(pairs), min(5, len(pairs)), replace=False)]
    targets = {
        q: Target(generator.random(domain.sizes(q)) ** 3, 1.0)
        for q in [*((name,) for name in domain.names), *chosen]
    }
    whole = {q: Target(t.mean / t.mean.sum(), t.weight) for q, t in targets.items()}
    return fit_targets(domain, whole, iterations=20)[0]


def violations_in(domain: Domain, text: TextTable) -> int:
    """Rows that contradict each constraint, in sum, by the owner's check."""
    read = as_modelled(domain, text, "here")
    return sum(int(wrong.rows.sum()) for wrong in contradictions(domain, read))


def of_constraints(generator: PublicGenerator) -> Iterator[dict[str, object]]:
    for constraint in ALL_KINDS:
        if generator.random() < 0.6:
            yield constraint
    names = ["net", "vat", "rent", "food"]
    if generator.random() < 0.5:
        yield {"order": [names[i] for i in generator.permutation(4)[: generator.integers(2, 4)]]}
    low, high = sorted(int(n) for n in generator.integers(0, 100, 2))
    yield {"never": f"rent >= {low} and rent <= {high} and city = Bonn"}
    yield {
        "when": f"rent < {high}",
        "then": f'review > "20{20 + low % 4}-03-05" or'.removesuffix(" or"),
    }


@pytest.mark.parametrize("seed", range(12))
def test_drawn_rows_satisfy_random_constraints_to_the_last(seed: int) -> None:
    generator = public_generator(seed)
    constraints = list(of_constraints(generator))
    computed = {each["column"] for each in constraints if "equals" in each}
    # An order of a computed column is one of another column.
    constraints = [c for c in constraints if not computed & set(c.get("order", ()))]  # type: ignore[call-overload]
    domain = domain_of(WIDE, *constraints)
    assert Domain.from_dict(domain.to_dict()) == domain
    model = drawn_model(domain, generator)
    codes = model.sample(3000, generator)
    drawn = codes.copy()
    text = TextTable.of(decode(domain, codes, generator))
    assert violations_in(domain, text) == 0
    assert (encode(domain, text) == codes).all()
    # Hardly a row's cells contradict several constraints at once.
    assert (codes != drawn).any(axis=1).mean() < 0.02


def without(domain: Domain) -> Domain:
    """The domain with its computed columns modelled, and no constraint."""
    document = domain.to_dict()
    del document["constraint"]
    return Domain.from_dict(document)


def test_rows_without_constraints_violate_each_of_them() -> None:
    """Control: the check finds what constraints prevent."""
    constraints = [each for each in ALL_KINDS if "follows" not in each and "one_hot" not in each]
    domain, generator = domain_of(WIDE, *constraints), public_generator(5)
    free = without(domain)
    model = drawn_model(free, generator)
    text = TextTable.of(decode(free, model.sample(3000, generator), generator))
    found = {
        wrong.constraint: int(wrong.rows.sum())
        for wrong in contradictions(domain, text)
        if wrong.rows.any()
    }
    assert set(found) == set(domain.constraints)
    assert sum(found.values()) > 3000


def test_synthetic_parts_satisfy_the_constraints() -> None:
    domain = domain_of(WIDE, *ALL_KINDS)
    model = drawn_model(domain, public_generator(1))
    (frame,) = synthetic_parts(model, 2000, seed=9)
    assert violations_in(domain, TextTable.of(frame)) == 0
    assert list(frame.columns) == list(domain.written_names)
    assert frame[["red", "green", "blue"]].astype(int).sum(axis=1).max() == 1


def test_values_in_a_cut_cell_are_uniform_among_those_that_satisfy_the_relation() -> None:
    """Chi-square of 10,000 rows of one cell: false alarm 1e-6, found is a bias of a tenth in one of 21 values."""
    columns = [column("a", low=0, high=5, bins=1), column("b", low=0, high=5, bins=1)]
    domain, generator = domain_of(columns, {"order": ["a", "b"]}), public_generator(2)
    rows = 10_000
    frame = decode(domain, np.zeros((rows, 2), np.int32), generator)
    counts = frame.groupby(["a", "b"]).size()
    assert len(counts) == 21
    assert float(((counts - rows / 21) ** 2 / (rows / 21)).sum()) < 70


@pytest.mark.parametrize(
    ("constraint", "cells"),
    [
        ({"order": ["a", "b"]}, ((0, 1000), (-999, 0))),
        ({"never": "a > 0 and b > -999"}, ((0, 1000), (-999, 0))),
        ({"shares": ["a", "b", "c"], "total": 1}, ((1, 1000), (0, 1000))),
    ],
    ids=str,
)
def test_values_of_which_hardly_any_satisfy_the_relation_are_constructed(
    constraint: dict[str, object], cells: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    columns = [
        column(name, low=low, high=high, bins=1)
        for name, (low, high) in zip("ab", cells, strict=True)
    ] + [column("c", low=0, high=1, bins=1)]
    domain, generator = domain_of(columns, constraint), public_generator(2)
    codes = np.zeros((50, len(domain.names)), np.int32)
    frame = decode(domain, codes, generator)
    assert violations_in(domain, TextTable.of(frame)) == 0


def test_a_row_whose_cells_contradict_two_constraints_becomes_a_copy() -> None:
    columns = [column(n, low=0, high=20, bins=2) for n in "abc"]
    domain = domain_of(
        columns,
        {"order": ["a", "b"]},
        {"never": "a > 3 and a <= 10 and b > 4"},
        {"never": "a <= 3"},
    )
    generator = public_generator(1)
    codes = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1]], np.int32)
    texts = {n: np.array(["0", "0", "0"], object) for n in "abc"}

    def draw(name: str, of: Any) -> Any:
        return domain.columns[domain.index(name)].write(of, generator)

    for name in "abc":
        texts[name] = draw(name, codes[:, domain.index(name)])
    settle(
        domain.relations,
        domain.columns,
        codes,
        texts=texts,
        draw=draw,
        missing=("",),
        generator=generator,
    )
    assert codes[1].tolist() in ([1, 1, 0], [1, 1, 1])
    assert (
        violations_in(domain, TextTable({n: v.tolist() for n, v in texts.items()}, range(3))) == 0
    )


def test_encode_names_line_and_column_of_each_violation() -> None:
    domain = domain_of(
        FRUIT,
        {"order": ["from", "to"]},
        {"never": "sex = M and age > 50"},
        {"column": "total", "equals": "age + pay"},
    )
    rows = table(
        sex=["F", "M", "M"],
        age=["60", "60", "20"],
        pay=["1.0", "1.0", "2.0"],
        total=["61", "61", "23"],
        **{"from": ["2020-02-01", "2020-01-01", "2020-01-01"], "to": ["2020-01-31"] * 3},
    )
    with pytest.raises(DataError) as caught:
        encode(domain, rows, source="t.csv")
    assert str(caught.value).splitlines() == [
        "t.csv: 3 values are not allowed; they are:",
        "  line 2, column 'to' (constraint): the value '2020-01-31' is below 'from' of the same row, which has "
        "'2020-02-01'",
        "  line 3, column 'sex' (constraint): the value 'M' is forbidden by never = 'sex = M and age > 50', beside "
        "'age' with '60' of the same row",
        "  line 4, column 'total' (constraint): the value '23' is not age + pay, which is 22",
    ]


@pytest.mark.parametrize(
    "bound", ["1.5", "1500", "1504.7", "1505", "99949", "99950.5", "-1505", "0"]
)
def test_bounds_of_columns_with_digits_are_compared_by_value(bound: str) -> None:
    """Such a column's numbers are places without gaps, which a bound among them has to become."""
    wide = column("wide", "real", low=-1e6, high=1e6, decimals=1, digits=3, bins=8)
    texts = ["1.5", "1.6", "1490", "1500", "1510", "99900", "100000", "1e6", "0", "-1500", "-1510"]
    for operator, holds in {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "=": "eq"}.items():
        expected = [getattr(float(text), f"__{holds}__")(float(bound)) for text in texts]
        if not any(expected):
            continue
        forbidden = {"never": f"wide {operator} {bound} and sex = M"}
        domain = domain_of([wide, column("sex", "categorical", categories=["F", "M"])], forbidden)
        (relation,) = domain.relations
        rows = {"wide": texts, "sex": ["M"] * len(texts)}
        assert relation.violated({}, rows, ()).tolist() == expected, operator


@pytest.mark.parametrize(
    "constraint",
    [
        {"order": ["pay", "wide"]},
        {"column": "total", "equals": "wide + pay"},
        {"column": "wide", "equals": "total + pay"},
        {"shares": ["total", "pay", "wide"], "total": 9},
    ],
)
def test_columns_with_digits_are_neither_summed_nor_compared(constraint: dict[str, object]) -> None:
    wide = column("wide", "real", low=-1e6, high=1e6, decimals=1, digits=3, bins=8)
    with pytest.raises(
        DomainError, match="'wide' has digits, so that its large values are rounded"
    ):
        domain_of([*FRUIT, wide], constraint)


def test_encode_shows_ten_violations_and_counts_all() -> None:
    domain = domain_of(FRUIT, {"order": ["age", "total"]})
    columns = {"sex": ["F"] * 50, "age": ["9"] * 50, "pay": ["1.0"] * 50, "total": ["3"] * 50}
    rows = table(**columns, **{"from": ["2020-01-01"] * 50, "to": ["2020-01-01"] * 50})
    with pytest.raises(DataError, match="50 values are not allowed; the first 10") as caught:
        encode(domain, rows)
    assert len(re.findall("line ", str(caught.value))) == 10


def test_missing_values_and_marks_contradict_nothing() -> None:
    domain = domain_of(
        FRUIT,
        {"never": "sex = M and age > 50"},
        {"order": ["age", "pay"]},
        {"column": "total", "equals": "age + pay"},
    )
    rows = table(
        sex=["", "M"],
        age=["1", "old"],
        pay=["1.0", "1.0"],
        total=["", "9"],
        **{"from": ["2020-01-01"] * 2, "to": ["2020-01-01"] * 2},
    )
    assert len(encode(domain, rows)) == 2


def test_repair_leaves_rows_out_and_computes_derived_values_anew() -> None:
    domain = domain_of(
        FRUIT,
        {"order": ["from", "to"], "violations": "repair"},
        {"column": "total", "equals": "age + pay", "violations": "repair"},
    )
    rows = table(
        sex=["F", "M", "M"],
        age=["60", "60", "20"],
        pay=["1.0", "1.0", "2.0"],
        total=["61", "60", "22"],
        **{"from": ["2020-02-01", "2020-01-01", "2020-01-01"], "to": ["2020-01-31"] * 3},
    )
    left, notes = repaired(domain, rows)
    assert list(left.places) == [3, 4]
    assert [note.split(" rows")[0] for note in notes] == ["1 of 3", "1 of 3"]
    assert "left out" in notes[0]
    assert "computed anew" in notes[1]
    assert len(encode(domain, left)) == 2


def test_one_hot_columns_are_gathered_and_a_row_of_two_is_refused() -> None:
    colour = column("colour", "categorical", categories=["red", "green"], missing=True)
    domain = domain_of(
        [colour, column("n", low=0, high=1)], {"one_hot": ["red", "green"], "column": "colour"}
    )
    assert domain.written_names == ("red", "green", "n")
    good = table(red=["1", "0.0", ""], green=["0", "1.0", ""], n=["0"] * 3)
    assert encode(domain, good)[:, 0].tolist() == [0, 1, 2]
    bad = table(red=["1", "1", "0"], green=["0", "1", "0"], n=["0"] * 3)
    with pytest.raises(DataError, match=r"2 values.*\n.*line 3, column 'colour'.*not exactly one"):
        encode(domain, bad)
    with pytest.raises(DataError, match="column 'green' of the group 'colour' is not in the table"):
        encode(domain, table(red=["1"], n=["0"]))


def test_one_hot_with_repair_leaves_rows_out() -> None:
    colour = column("colour", "categorical", categories=["red", "green"])
    group = {
        "one_hot": ["red", "green"],
        "column": "colour",
        "yes": "ja",
        "no": "nein",
        "violations": "repair",
    }
    domain = domain_of([colour, column("n", low=0, high=1)], group)
    rows = table(red=["ja", "ja"], green=["nein", "ja"], n=["0"] * 2)
    left, _ = repaired(domain, as_modelled(domain, rows, "t"))
    assert encode(domain, left).tolist() == [[0, 0]]


def test_follows_is_implied_by() -> None:
    columns = [
        column("city", "categorical", categories=["A", "B"]),
        column("country", "categorical", categories=["X"]),
    ]
    domain = domain_of(
        columns, {"follows": "city", "column": "country", "values": {"A": "X", "B": "X"}}
    )
    assert domain.to_dict()["column"] == [
        columns[0] | {"missing": False},
        {"name": "country", "implied_by": "city", "values": {"A": "X", "B": "X"}},
    ]


def test_domain_of_some_columns_keeps_their_constraints_and_ignores_what_it_cannot_compute() -> (
    None
):
    domain = domain_of(WIDE, *ALL_KINDS)
    own = domain.only([n for n in domain.names if n not in ("vat", "sex")])
    assert [each.name for each in own.derived] == ["age", "days", "rest", "born"]
    assert own.ignore == ("gross",)
    assert {"never", "when"} & {key for each in own.constraints for key in each.to_dict()} == {
        "when"
    }


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_fits_with_zeros_find_what_was_measured(noise: float) -> None:
    """A fit's answers are the measured ones, and what noise puts in zeros is taken out."""
    domain = domain_of(SMALL[:2], {"order": ["a", "b"]})
    generator = public_generator(4)
    (scope,) = domain.zeros
    truth = generator.random(scope.allowed.shape) * scope.allowed
    truth /= truth.sum()
    noisy = truth + noise * generator.normal(0, 0.1, truth.shape)
    model, _ = fit_targets(domain, {("a", "b"): Target(noisy, 1.0)}, iterations=500)
    (answer,) = model.answers([("a", "b")])
    assert (answer[~scope.allowed] == 0).all()
    if not noise:
        np.testing.assert_allclose(answer, truth, atol=1e-4)
    free = domain_of(SMALL[:2])
    (plain,) = fit_targets(free, {("a", "b"): Target(noisy, 1.0)}, iterations=500)[0].answers(
        [("a", "b")]
    )
    assert np.abs(answer - truth).sum() <= np.abs(plain - truth).sum() + 1e-3
