"""A domain's Table Schema says what its synthetic tables have."""

import datetime
import json

import numpy as np
import pytest

from mechanisms.domain import Categorical, Domain, Implied, Integer, Moment, Real
from mechanisms.sampling import public_generator
from mechanisms.schema import table_schema
from mechanisms.table import decode
from tests.mechanisms.test_writing import DOMAIN


def field_of(column: object, name: str = "a") -> dict[str, object]:
    (field,) = table_schema(Domain((column,)))["fields"]  # type: ignore[arg-type, misc]
    assert field["name"] == name
    return dict(field)


def test_table_schema_lists_the_written_columns_with_types_and_bounds() -> None:
    schema = table_schema(DOMAIN)
    assert schema["missingValues"] == [""]
    assert schema["fields"] == [
        {
            "name": "ward",
            "type": "string",
            "constraints": {"enum": ["=1+1", "north, east", "07"]},
        },
        {
            "name": "level",
            "type": "string",
            "description": "follows from ward",
            "constraints": {"enum": ["7", "seven", "two"]},
        },
        {"name": "code", "type": "integer", "constraints": {"enum": [1, 2, 3]}},
        {
            "name": "smoker",
            "type": "boolean",
            "trueValues": ["True"],
            "falseValues": ["False"],
            "constraints": {"required": True, "enum": [True, False]},
        },
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99}},
        {
            "name": "weight of code",
            "type": "number",
            "description": "follows from code",
            "constraints": {"enum": [-3.0, 0.5, 1.25]},
        },
        {
            "name": "cost",
            "type": "number",
            "description": "2 decimals",
            "constraints": {"minimum": 0.0, "maximum": 9999.99},
        },
        {
            "name": "weight",
            "type": "number",
            "description": "3 decimals",
            "constraints": {"required": True, "minimum": -1.5, "maximum": 2.5},
        },
        {
            "name": "born",
            "type": "date",
            "format": "default",
            "description": "to the day",
            "constraints": {"minimum": "1890-01-01", "maximum": "2020-12-31"},
        },
        {
            "name": "month",
            "type": "yearmonth",
            "description": "to the month",
            "constraints": {"required": True, "minimum": "2020-01", "maximum": "2021-12"},
        },
        {
            "name": "seen",
            "type": "datetime",
            "format": "default",
            "description": "to the second",
            "constraints": {
                "required": True,
                "minimum": "2020-01-01T00:00:00",
                "maximum": "2020-12-31T23:59:59",
            },
        },
        {
            "name": "zoned",
            "type": "datetime",
            "format": "%Y-%m-%dT%H:%M%z",
            "description": "to the minute",
            "constraints": {
                "required": True,
                "minimum": "2020-01-01T00:00+01:00",
                "maximum": "2020-01-31T23:59+01:00",
            },
        },
    ]
    json.dumps(schema, allow_nan=False)


@pytest.mark.parametrize(
    "form", ["YYYYMMDD", "YYYY-MM-DD", "YYYYMMDD HH", "YYYY-MM-DDTHH:MM:SS.fff"]
)
def test_table_schema_has_formats_that_read_what_is_written(form: str) -> None:
    kind = "datetime" if "HH" in form else "date"
    unit = {"YYYYMMDD HH": "hour", "YYYY-MM-DDTHH:MM:SS.fff": "millisecond"}.get(form, "day")
    low, high = ("2020-01-01", "2020-12-31")
    column = Moment(
        "a", kind, *((f"{end}T00:00:00.000" if "fff" in form else end) for end in (low, high))
        if kind == "date" or "fff" in form else (f"{low}T00", f"{high}T23"), unit=unit, form=form,
    )  # fmt: skip
    pattern = str(field_of(column)["format"])
    (written,) = decode(Domain((column,)), np.array([[5]], np.int32), public_generator(1))["a"]
    if pattern == "default":
        assert datetime.date.fromisoformat(written)
    else:
        assert column.code_of(written) == 5
        assert datetime.datetime.strptime(written, pattern).year == 2020


def test_table_schema_bounds_are_those_of_values_outside_of_the_bins_too() -> None:
    numbers = Integer("a", 1, 9, atoms=(-1, 99), missing=True)
    assert field_of(numbers)["constraints"] == {"minimum": -1, "maximum": 99}
    rounded = Real("a", 0.004, 1.006, decimals=2)
    assert field_of(rounded)["constraints"] == {"required": True, "minimum": 0.0, "maximum": 1.01}


def test_table_schema_takes_a_category_for_what_it_is_though_it_looks_missing() -> None:
    domain = Domain(
        (Categorical("a", ("", "x")), Categorical("b", ("x",), missing=True)),
        implied=(Implied("c", "b", (("x", "1"),), 2),),
    )
    schema = table_schema(domain)
    assert schema["missingValues"] == [""]
    first, second, third = schema["fields"]  # type: ignore[misc]
    assert first["missingValues"] == []
    assert "missingValues" not in second
    assert "required" not in third["constraints"]
    assert table_schema(Domain((Integer("a", 0, 1),)))["missingValues"] == []


def test_table_schema_leaves_weeks_as_text() -> None:
    weeks = Moment("a", "date", "2020-W01", "2020-W20", "week", form="YYYY-Www")
    assert field_of(weeks)["type"] == "string"


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (
            Real("a", 0.0, 9.0, decimals=2, form="$#,##0.00"),
            {"type": "string", "description": "a number, as in $#,##0.00"},
        ),
        (
            Integer("a", 0, 9, form="0.0"),
            {"type": "number", "constraints": {"required": True, "minimum": 0.0, "maximum": 9.0}},
        ),
        (
            Integer("a", 0, 9, marks=("<5",)),
            {"type": "string", "description": "a whole number; or <5"},
        ),
        (
            Moment("a", "date", "2020-01-01", "2020-01-31", "day", form="%d.%m.%Y"),
            {"type": "date", "format": "%d.%m.%Y", "description": "to the day"},
        ),
        (
            Moment("a", "date", "2020-Q1", "2020-Q4", "quarter", form="%Y-Q%q"),
            {"type": "string", "description": "a date, as in %Y-Q%q"},
        ),
    ],
)
def test_table_schema_describes_what_has_a_spelling_of_its_own(
    column: object, expected: dict[str, object]
) -> None:
    assert expected.items() <= field_of(column).items()
