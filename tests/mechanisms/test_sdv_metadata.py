"""SDV's metadata: of a domain, and as a draft."""

import pytest

from mechanisms.domain import Categorical, Domain, Integer, Moment, Real
from mechanisms.errors import DataError
from mechanisms.schema_draft import schema_draft
from mechanisms.sdv_metadata import is_metadata, schema_of_metadata, sdv_metadata

DOMAIN = Domain(
    (
        Categorical("sex", ("f", "m"), missing=True),
        Categorical("alive", ("True", "False")),
        Integer("age", 18, 89, 8),
        Real("cost", 0.0, 99.95, 5, decimals=2, missing=True),
        Moment("day", "date", "2024-01-01", "2024-12-31", "day", 12),
        Moment("seen", "datetime", "2024-01-01T00:00:00", "2024-12-31T00:00:00", "hour", 12),
    ),
    ("NA",),
)


def test_metadata_has_the_kinds_of_a_domain() -> None:
    metadata = sdv_metadata(DOMAIN)
    assert is_metadata(metadata)
    assert metadata == {
        "METADATA_SPEC_VERSION": "SINGLE_TABLE_V1",
        "columns": {
            "sex": {"sdtype": "categorical"},
            "alive": {"sdtype": "boolean"},
            "age": {"sdtype": "numerical", "computer_representation": "Int64"},
            "cost": {"sdtype": "numerical", "computer_representation": "Float"},
            "day": {"sdtype": "datetime", "datetime_format": "%Y-%m-%d"},
            "seen": {"sdtype": "datetime", "datetime_format": "%Y-%m-%dT%H:%M:%S"},
        },
    }


def test_metadata_comes_back_as_a_draft_without_values() -> None:
    metadata = sdv_metadata(DOMAIN)
    columns = {
        **metadata["columns"],
        "id": {"sdtype": "id"},
        "mail": {"sdtype": "email", "pii": True},
    }  # type: ignore[dict-item]
    draft = schema_draft(
        schema_of_metadata({**metadata, "columns": columns, "primary_key": "id"}, "m"), "m"
    )
    kinds = {column.name: column.kind for column in draft.domain.columns}
    assert kinds == {
        "alive": "categorical",
        "age": "integer",
        "cost": "real",
        "day": "date",
        "seen": "datetime",
    }
    assert draft.to_list == ("sex",)
    assert draft.left_out == ("id: it is a key", "mail: it is a key")


def test_metadata_of_one_table_among_tables_is_read() -> None:
    inside = {"columns": {"n": {"sdtype": "numerical"}}}
    (field,) = schema_of_metadata({"tables": {"t": inside}}, "m")["fields"]  # type: ignore[misc]
    assert field == {"name": "n", "type": "number"}
    for document in ({"tables": {"a": inside, "b": inside}}, {"METADATA_SPEC_VERSION": "V1"}):
        with pytest.raises(DataError, match="m: has"):
            schema_of_metadata(document, "m")
