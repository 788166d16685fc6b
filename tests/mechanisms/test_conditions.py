"""Conditions on columns of every kind: shares of cut cells, and values that satisfy the condition exactly."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from mechanisms.conditional_rows import Wanted, conditional_rows, read_given
from mechanisms.conditions import limits_of
from mechanisms.domain import Categorical, Column, Domain, Implied, Integer, Moment, Real
from mechanisms.errors import ConditionError, DataError
from mechanisms.model import Model
from mechanisms.private_bins import PrivateBins
from mechanisms.question import parse_where
from mechanisms.sampling import public_generator
from mechanisms.split_columns import SplitColumn
from mechanisms.table import decode_column
from mechanisms.text_table import TextTable

AGE = Integer("age", 0, 99, 10)
COLUMNS: tuple[Column, ...] = (
    AGE,
    Integer("hours", 0, 99, 5, missing=True, atoms=(40, 65), marks=("refused",)),
    Integer("score", 0, 100, edges=(0, 50, 100), within=(10, 90)),
    Real("cost", 0.0, 10.0, 4, decimals=2, endings=(("99", 0.9), ("00", 0.1))),
    Real("height", 1.0, 2.0, 7),
    Moment("day", "date", "2024-01-01", "2024-12-31", "day", 12),
    Moment("month", "date", "2020-01", "2024-12", "month", 7, form="YYYY-MM"),
    Categorical("ward", ("A1", "A2", "B1", "C"), prefix=1, missing=True),
    Categorical("sex", ("F", "M"), other="X"),
)
DOMAIN = Domain(
    COLUMNS,
    ("NA",),
    implied=(Implied("floor", "ward", (("A1", "1"), ("A2", "1"), ("B1", "2"), ("C", "3")), 9),),
)


def independent(domain: Domain) -> Model:
    """A model in which all columns are independent, with all cells alike."""
    names = domain.names
    shares = tuple(np.full(size, 1 / size) for size in domain.shape)
    return Model(domain, tuple((name,) for name in names), (-1,) * len(names), shares)


def drawn(text: str, rows: int = 500, domain: Domain = DOMAIN) -> pd.DataFrame:
    wanted = Wanted(rows, parse_where(text))
    return pd.concat(conditional_rows(independent(domain), wanted, seed=1).parts)


def test_limits_have_the_share_of_a_cut_cell() -> None:
    limit = limits_of(DOMAIN, parse_where("age >= 65"))["age"]
    assert limit.shares.tolist() == [0] * 6 + [0.5, 1, 1, 1]
    assert limit.doubts.tolist() == [0] * 6 + [0.25, 0, 0, 0]
    assert limit.cuts
    assert not limits_of(DOMAIN, parse_where("age < 60"))["age"].cuts
    # An atom within a bin is a cell of its own: 60 to 79 without 65 has 19 numbers.
    hours = limits_of(DOMAIN, parse_where("hours >= 70"))["hours"]
    by_label = dict(zip(COLUMNS[1].labels, hours.shares, strict=False))
    assert by_label["60"] == pytest.approx(10 / 19)
    assert (by_label["= 65"], by_label["= refused"], hours.shares[-1]) == (0, 0, 0)


def test_limits_follow_the_parts_from_which_values_are_drawn() -> None:
    # Half of the first cell's values are drawn from 0 to 9.
    score = limits_of(DOMAIN, parse_where("score < 5"))["score"]
    assert score.shares.tolist() == [pytest.approx(0.25), 0]
    column = Integer("p", 0, 99, private=PrivateBins(resolution=1024, coarse=4))
    counts = np.zeros(100)
    counts[20:24] = [100, 300, 500, 100]
    private = Integer(
        "p", 0, 99, private=PrivateBins(resolution=1024, coarse=4).having(counts, 0.5)
    )
    assert column.size == 100
    limit = limits_of(Domain((private,)), parse_where("p <= 21"))["p"]
    rng = public_generator(1)
    for code in range(private.size):
        texts = decode_column(Domain((private,)), private, np.full(4000, code, np.int32), rng)
        share = sum(int(text) <= 21 for text in texts) / 4000
        assert limit.shares[code] == pytest.approx(share, abs=0.05)
    with pytest.raises(ConditionError, match="from 20 to 23, where noisy counts show rows"):
        limits_of(Domain((private,)), parse_where("p > 60"))


CONDITIONS = {
    "age >= 65": lambda row: int(row["age"]) >= 65,
    "age > 64.5 and age != 70": lambda row: int(row["age"]) > 64.5 and row["age"] != "70",
    "age in (3, 17, 90)": lambda row: row["age"] in ("3", "17", "90"),
    "age between 33 and 34": lambda row: row["age"] in ("33", "34"),
    "hours < 50": lambda row: row["hours"] not in ("NA", "refused") and int(row["hours"]) < 50,
    "hours = 40": lambda row: row["hours"] == "40",
    "hours = refused": lambda row: row["hours"] == "refused",
    "hours != 40": lambda row: row["hours"] not in ("40", "NA"),
    "hours is missing": lambda row: row["hours"] == "NA",
    "hours is not missing and hours not in (refused, 65)": lambda row: (
        row["hours"] not in ("NA", "refused", "65")
    ),
    "score between 8 and 60": lambda row: 8 <= int(row["score"]) <= 60,
    "cost > 3.333": lambda row: float(row["cost"]) > 3.333,
    "cost <= 0.05": lambda row: float(row["cost"]) <= 0.05,
    "height >= 1.2345": lambda row: float(row["height"]) >= 1.2345,
    "day >= 2024-02-17 and day < 2024-03-05": lambda row: "2024-02-17" <= row["day"] < "2024-03-05",
    "month = 2021-05": lambda row: row["month"] == "2021-05",
    "ward = A2": lambda row: row["ward"] == "A2",
    "ward != A2": lambda row: row["ward"] in ("A1", "B1", "C"),
    "ward is missing": lambda row: row["ward"] == "NA",
    "floor = 1": lambda row: row["ward"] in ("A1", "A2") and row["floor"] == "1",
    "floor != 1": lambda row: row["floor"] in ("2", "3"),
    "sex in (F, X)": lambda row: row["sex"] in ("F", "X"),
}


@pytest.mark.parametrize("text", CONDITIONS)
def test_rows_satisfy_the_condition_exactly(text: str) -> None:
    table = drawn(text)
    assert len(table) == 500
    holds = CONDITIONS[text]
    assert all(holds(row) for row in table.to_dict("records"))


def test_values_within_a_cut_cell_are_those_of_synthesis_that_satisfy() -> None:
    ages = Counter(drawn("age between 65 and 72", rows=8000)["age"])
    # Five numbers of a whole cell's half share, and three numbers of the next cell: 1/10 of a cell each.
    assert set(ages) == {str(age) for age in range(65, 73)}
    assert min(ages.values()) > 8000 / 8 * 0.8
    wards = Counter(drawn("ward in (A1, A2, C)", rows=3000)["ward"])
    assert wards["A1"] + wards["A2"] == pytest.approx(1500, abs=2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wages > 3", "no column 'wages'; the columns are age, hours"),
        ("ward = ''", "expected one of 'A1', 'A2', 'B1', 'C'; or ward is missing"),
        ("ward = D", "'D' is no value of column 'ward'; expected one of 'A1'"),
        ("ward > A1", "categories, which have no order"),
        ("age = old", "'old' is no number of column 'age'; expected a whole number from 0 to 99"),
        ("age > 200", "no value of column 'age' satisfies age > 200; expected a whole number"),
        ("age = 3.5", "no value of column 'age' satisfies"),
        ("age is missing", "no value of column 'age' satisfies age is missing"),
        ("age < 10 and age > 20", "no value of column 'age' satisfies age < 10 and age > 20"),
        ("day = 2024", "'2024' is no date to the day of column 'day'"),
        ("hours < refused", "'refused' is no number of column 'hours'"),
        ("floor > 1", "column 'floor' follows from 'ward'"),
        ("floor = 9", "'9' is no value of column 'floor'"),
    ],
)
def test_conditions_that_do_not_fit_say_what_would(text: str, said: str) -> None:
    with pytest.raises(ConditionError) as error:
        drawn(text)
    assert said in str(error.value)


def test_probability_is_that_of_the_condition() -> None:
    wanted = Wanted(1, parse_where("age >= 65 and sex = F"))
    found = conditional_rows(independent(DOMAIN), wanted, seed=1).probability
    assert found == pytest.approx(float(Fraction(7, 20) / 3))


def test_balanced_rows_have_equally_many_of_each_value() -> None:
    shares = np.array([[0.5, 0.498, 0.0], [0.0, 0.001, 0.001]])
    domain = Domain((Categorical("y", ("no", "yes")), Categorical("x", ("a", "b", "c"))))
    model = Model(domain, (("y", "x"),), (-1,), (shares,))
    found = conditional_rows(model, Wanted(1001, balance="y"), seed=1)
    table = pd.concat(found.parts)
    assert sorted(Counter(table["y"]).values()) == [500, 501]
    assert set(table[table["y"] == "yes"]["x"]) == {"b", "c"}
    assert found.shares == {"no": pytest.approx(0.998), "yes": pytest.approx(0.002)}
    # A value without probability under the condition is none of the balanced ones.
    under = conditional_rows(model, Wanted(10, parse_where("x = a"), balance="y"), seed=1)
    assert set(pd.concat(under.parts)["y"]) == {"no"}


def _given(domain: Domain, **columns: list[str]) -> TextTable:
    return TextTable(columns, range(2, 2 + len(next(iter(columns.values())))))


def test_given_cells_stay_and_the_others_are_drawn() -> None:
    table = _given(DOMAIN, age=["61", "7.0", ""], cost=["", "1.5", "2.50"], ward=["NA", "A2", ""])
    given = read_given(DOMAIN, table, "partial.csv")
    made = pd.concat(conditional_rows(independent(DOMAIN), Wanted(3, given=given), seed=1).parts)
    assert list(made.columns) == list(DOMAIN.written_names)
    assert made["age"].tolist()[:2] == ["61", "7"]
    assert made["cost"].tolist()[1:] == ["1.50", "2.50"]
    assert made["ward"].tolist()[:2] == ["NA", "A2"]
    assert made["floor"].tolist()[1] == "1"
    assert (made != "").all().all()


def test_given_rows_may_have_several_values_in_a_cell() -> None:
    domain = Domain(
        (Integer("low", 0, 99, missing=True), Integer("high", 0, 199, missing=True)),
        ("NA",),
        splits=(SplitColumn("pressure", "{low}/{high}"),),
    )
    given = read_given(domain, _given(domain, pressure=["70/120", "", "NA"]), "partial.csv")
    made = pd.concat(conditional_rows(independent(domain), Wanted(3, given=given), seed=1).parts)
    assert made["pressure"].tolist()[0] == "70/120"
    assert made["pressure"].tolist()[2] == "NA"
    with pytest.raises(DataError, match="'70'; expected as in"):
        read_given(domain, _given(domain, pressure=["70"]), "partial.csv")


def test_given_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match=r"partial.csv: column 'wages' is none of the model's"):
        read_given(DOMAIN, _given(DOMAIN, wages=["1"]), "partial.csv")
    with pytest.raises(DataError, match="column 'floor' follows from 'ward'"):
        read_given(DOMAIN, _given(DOMAIN, floor=["1"]), "partial.csv")
    with pytest.raises(DataError, match=r"line 3, column 'age' \(integer\): the value '100'"):
        read_given(DOMAIN, _given(DOMAIN, age=["1", "100"]), "partial.csv")
    given = read_given(DOMAIN, _given(DOMAIN, age=["1"]), "partial.csv")
    with pytest.raises(ConditionError, match="column 'age' is given, and a condition"):
        conditional_rows(
            independent(DOMAIN), Wanted(1, parse_where("age = 1"), given=given), seed=1
        )
    with pytest.raises(ConditionError, match="expected one of both"):
        Wanted(1, balance="sex", given=given)


def test_numbers_nearer_to_zero_than_any_double_are_zero() -> None:
    """Exactly, they have a thousand million digits."""
    cost = Real("cost", 0.0, 10.0, 5, decimals=1)
    domain = Domain((cost,), ())
    (found,) = limits_of(domain, parse_where("cost > 1e-999999999")).values()
    (zero,) = limits_of(domain, parse_where("cost > 0")).values()
    assert found.shares.tolist() == zero.shares.tolist()
