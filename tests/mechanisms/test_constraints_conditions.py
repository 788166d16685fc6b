"""Rows under a condition satisfy it and all constraints, to the last row."""

import numpy as np
import pytest

from mechanisms.conditional_rows import Wanted, conditional_rows, read_given
from mechanisms.domain import Domain
from mechanisms.errors import ConditionError
from mechanisms.model import Model
from mechanisms.question import parse_where
from mechanisms.sampling import public_generator
from mechanisms.table import as_modelled
from mechanisms.text_table import TextTable
from tests.mechanisms.test_constraints import column, domain_of, drawn_model, violations_in

COLUMNS = [
    column("start", low=0, high=99, bins=5),
    column("end", low=0, high=99, bins=5),
    column("days", low=-100, high=100),
    column("sex", "categorical", categories=["f", "m"]),
    column("pregnant", "categorical", categories=["no", "yes"]),
]
CONSTRAINTS = (
    {"order": ["start", "end"]},
    {"column": "days", "equals": "end - start"},
    {"never": "pregnant = yes and sex = m"},
)
DOMAIN = domain_of(COLUMNS, *CONSTRAINTS)


def model_of(domain: Domain = DOMAIN) -> Model:
    return drawn_model(domain, public_generator(3))


def text_of(frame: object) -> TextTable:
    columns = {name: [str(v) for v in frame[name]] for name in frame.columns}  # type: ignore[attr-defined,index]
    return TextTable(columns, range(2, len(frame) + 2))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "where", ["start >= 37", "end < 13", "start > 41 and sex = m", "pregnant = yes and end <= 90"]
)
def test_rows_under_a_condition_satisfy_the_constraints(where: str) -> None:
    wanted = Wanted(rows=2000, where=parse_where(where))
    (frame,) = conditional_rows(model_of(), wanted, seed=1).parts
    assert violations_in(DOMAIN, text_of(frame)) == 0
    start, end = frame["start"].astype(int), frame["end"].astype(int)
    assert (frame["days"].astype(int) == end - start).all()
    held = {
        "start >= 37": start >= 37,
        "end < 13": end < 13,
        "start > 41 and sex = m": (start > 41)
        & (frame["sex"] == "m")
        & (frame["pregnant"] == "no"),
        "pregnant = yes and end <= 90": (frame["sex"] == "f") & (end <= 90),
    }
    assert held[where].all()


def test_without_the_constraints_the_same_condition_violates_them() -> None:
    """A control: an order by cells alone is broken within a cell."""
    free = domain_of([c for c in COLUMNS if c["name"] != "days"])
    wanted = Wanted(rows=2000, where=parse_where("start >= 37"))
    (frame,) = conditional_rows(model_of(free), wanted, seed=1).parts
    assert (frame["start"].astype(int) > frame["end"].astype(int)).any()


def test_given_values_stay_and_the_others_satisfy_the_constraints() -> None:
    rows = public_generator(5).integers(0, 95, 500)
    given = TextTable({"start": [str(n) for n in rows.tolist()]}, range(2, 502))
    wanted = Wanted(rows=500, given=read_given(DOMAIN, given, "t.csv"))
    (frame,) = conditional_rows(model_of(), wanted, seed=2).parts
    assert frame["start"].tolist() == given.columns["start"]
    assert violations_in(DOMAIN, text_of(frame)) == 0


def test_given_values_that_contradict_one_another_name_their_row() -> None:
    given = TextTable({"start": ["3", "15"], "end": ["9", "12"]}, range(2, 4))
    wanted = Wanted(rows=2, given=read_given(DOMAIN, given, "t.csv"))
    with pytest.raises(ConditionError, match=r"row 2 of the given ones: .*all constraints"):
        list(conditional_rows(model_of(), wanted, seed=2).parts)


def test_a_computed_column_is_neither_given_nor_a_condition() -> None:
    with pytest.raises(ConditionError, match=r"is computed from .*; conditions and questions are"):
        conditional_rows(model_of(), Wanted(rows=5, where=parse_where("days = 3")), seed=1)


def test_codes_of_given_rows_are_of_the_modelled_columns() -> None:
    whole = TextTable(
        {"start": ["3"], "end": ["9"], "days": ["6"], "sex": ["f"], "pregnant": ["no"]}, [2]
    )
    assert as_modelled(DOMAIN, whole, "t.csv").columns.keys() == set(COLUMN_NAMES)
    assert np.array_equal(DOMAIN.names, [n for n in COLUMN_NAMES if n != "days"])


COLUMN_NAMES = tuple(str(each["name"]) for each in COLUMNS)


def test_given_values_are_written_as_tables_have_them() -> None:
    columns = [
        column("age", low=0, high=9, missing=True),
        column("sex", "categorical", categories=["f", "m"], missing=True),
    ]
    domain = Domain.from_dict({"column": columns, "missing": {"values": ["NA", "?"]}})
    table = TextTable({"age": ["?", "07", ""], "sex": ["m", "?", "NA"]}, range(2, 5))
    texts = read_given(domain, table, "t.csv").texts
    assert {name: values.tolist() for name, values in texts.items()} == {
        "age": ["NA", "7", None],
        "sex": ["m", "NA", "NA"],
    }
