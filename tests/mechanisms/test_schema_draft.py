"""Drafts from Table Schemas: what a schema says, and nothing else; our own schemas come back."""

import tomllib
from pathlib import Path

import pytest

from mechanisms.domain import Categorical, Domain, Integer, Moment, Real
from mechanisms.errors import DataError
from mechanisms.schema import table_schema
from mechanisms.schema_draft import schema_draft
from parties.config import config_from_dict
from parties.mpc.planning.schema_drafts import schema_draft_text

SCHEMA = {
    "fields": [
        {"name": "id", "type": "integer", "constraints": {"unique": True}},
        {"name": "case", "type": "string"},
        {"name": "sex", "type": "string", "constraints": {"enum": ["f", "m"], "required": True}},
        {"name": "level", "type": "integer", "constraints": {"enum": [1, 2, 3]}},
        {"name": "alive", "type": "boolean", "trueValues": ["yes"], "falseValues": ["no"]},
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 120}},
        {"name": "cost", "type": "number", "constraints": {"minimum": 0, "maximum": 99.999}},
        {"name": "weight", "type": "number"},
        {"name": "born", "type": "date"},
        {
            "name": "seen",
            "type": "datetime",
            "constraints": {"minimum": "2024-01-01T00:00:00", "maximum": "2024-12-31T23:59:59"},
        },
        {
            "name": "month",
            "type": "yearmonth",
            "constraints": {"minimum": "2020-01", "maximum": "2024-12"},
        },
        {"name": "place", "type": "geopoint"},
    ],
    "missingValues": ["", "NA"],
    "primaryKey": "case",
}


def test_schema_draft_has_the_kinds_values_and_bounds_of_the_schema() -> None:
    draft = schema_draft(SCHEMA, "code book")
    columns = {column.name: column for column in draft.domain.columns}
    assert columns["sex"] == Categorical("sex", ("f", "m"))
    assert columns["level"] == Categorical("level", ("1", "2", "3"), missing=True)
    assert columns["alive"] == Categorical("alive", ("no", "yes"), missing=True)
    age, cost, seen = columns["age"], columns["cost"], columns["seen"]
    assert isinstance(age, Integer)
    assert (age.low, age.high, age.missing) == (0, 120, True)
    assert age.private is not None
    assert not age.private.free
    assert isinstance(cost, Real)
    assert (cost.decimals, cost.high) == (3, 99.999)
    assert isinstance(seen, Moment)
    assert (seen.unit, seen.low) == ("second", "2024-01-01T00:00:00")
    for free in ("weight", "born"):
        assert columns[free].private is not None
        assert columns[free].private.free  # type: ignore[union-attr]
    assert draft.domain.ignore == ("id", "case", "place")
    assert draft.left_out == (
        "id: it is a key",
        "case: it is a key",
        "place: of type 'geopoint', which is not modelled",
    )
    said = {each.column: each.of("") for each in draft.domain.provenance}
    assert said["sex"] == said["age"] == "public: code book"


def test_schema_draft_leaves_texts_without_values_to_be_listed() -> None:
    fields = [{"name": "city"}, {"name": "n", "type": "integer"}]
    draft = schema_draft({"fields": fields}, "s")
    assert draft.to_list == ("city",)
    text, _ = schema_draft_text({"schema": {"fields": fields}}, "s")
    assert "TO BE LISTED" in text
    assert "READ FROM THE DATA" not in text


@pytest.mark.parametrize("known", [(), ("minimum",), ("maximum",), ("minimum", "maximum")])
def test_schema_draft_bounds_dates_where_the_schema_has_both_bounds(
    known: tuple[str, ...],
) -> None:
    bounds = {"minimum": "2020-01-01", "maximum": "2021-01-01"}
    constraints = {key: bounds[key] for key in known}
    fields = [{"name": "seen", "type": "date", "constraints": constraints}]
    column = schema_draft({"fields": fields}, "s").domain.columns[0]
    assert isinstance(column, Moment)
    assert column.private is not None
    both = len(known) == 2
    assert column.private.free is not both
    assert ((column.low, column.high) == tuple(bounds.values())) is both


def test_schema_draft_is_a_configuration() -> None:
    text, draft = schema_draft_text(SCHEMA, "code book")
    document = tomllib.loads(text)
    document["run"]["id"] = "draft"
    assert config_from_dict(document, source="draft", base=Path()).domain == draft.domain


def test_our_own_schemas_come_back() -> None:
    domain = Domain(
        (
            Categorical("sex", ("f", "m"), missing=True),
            Categorical("alive", ("True", "False")),
            Integer("age", 18, 89, 8),
            Real("cost", 0.0, 99.95, 5, decimals=2, missing=True),
            Moment("day", "date", "2024-01-01", "2024-12-31", "day", 12),
        ),
        ("NA",),
    )
    found = schema_draft(table_schema(domain), "schema.json").domain
    for one, other in zip(found.columns, domain.columns, strict=True):
        assert (one.name, one.kind, one.missing) == (other.name, other.kind, other.missing)
        if isinstance(one, Categorical):
            assert one == other
        else:
            assert (one.low, one.high) == (other.low, other.high)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({}, "has no fields; expected a Table Schema"),
        ({"fields": [{}]}, "field 1 has no name"),
        ({"fields": [{"name": "a", "constraints": 3}]}, "the constraints of 'a'"),
        ({"fields": [{"name": "a"}]}, "no column that can be drafted"),
        (
            {
                "fields": [
                    {"name": "a", "type": "integer", "constraints": {"minimum": 5, "maximum": 1}}
                ]
            },
            "the field 'a' cannot be drafted",
        ),
        (
            {
                "fields": [
                    {"name": "a", "type": "integer", "constraints": {"minimum": "x", "maximum": 1}}
                ]
            },
            "the field 'a' cannot be drafted",
        ),
    ],
)
def test_documents_that_are_no_schema_are_refused(schema: dict[str, object], said: str) -> None:
    with pytest.raises(DataError, match="s: ") as error:
        schema_draft(schema, "s")
    assert said in str(error.value)
