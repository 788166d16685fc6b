"""Origins of the values of changes: kept with the tables, and known to the views and to who founds a study."""

from collections.abc import Mapping

import pytest

from mechanisms.errors import DomainError
from mechanisms.keyed.declared import KeyedTables
from mechanisms.keyed.views import views_of
from mechanisms.origins import origins
from mechanisms.provenance import TABLE
from tests.mechanisms.test_keyed import drafted, office


def confirmed(changes: Mapping[str, object] | str | None) -> list[dict[str, object]]:
    """Drafted tables whose columns are public, with ``changes`` as the origin of each change; None for none."""
    tables = drafted(office()).tables.to_dict()
    for table in tables:
        columns: list[dict[str, object]] = table["column"]  # type: ignore[assignment]
        for column in columns:
            column["from"] = "public: the code book"
        steps: list[dict[str, object]] = table.get("change", [])  # type: ignore[assignment]
        for change in steps:
            del change["from"]
            change |= {} if changes is None else {"from": changes}
    return tables


def from_a_table(tables: list[dict[str, object]]) -> set[str]:
    """Columns of the view of steps that have values of a table, as its configuration has them."""
    (steps,) = (view for view in views_of(KeyedTables.from_list(tables)) if view.target)
    return {o.column for o in origins(steps.domain) if o.origin == TABLE}


def test_a_draft_marks_its_changes_and_tables_keep_the_marks() -> None:
    tables = drafted(office()).tables
    (stays,) = (table for table in tables.to_dict() if table["name"] == "stays")
    steps: list[dict[str, object]] = stays["change"]  # type: ignore[assignment]
    assert [change["from"] for change in steps] == [TABLE] * 2
    assert KeyedTables.from_list(tables.to_dict()) == tables
    public = confirmed({"missing": TABLE})
    assert KeyedTables.from_list(public).to_dict() == public


CHANGES = {"stays.change.day", "stays.change.weight"}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (TABLE, CHANGES),
        ("table: last year's stays", CHANGES),
        ({"missing": "table: last year's stays"}, CHANGES),
        ("public: two weeks at most", set()),
        # A change without an origin has that of its column.
        (None, set()),
    ],
)
def test_values_of_a_change_are_named_like_those_of_columns(
    changes: Mapping[str, object] | str | None, found: set[str]
) -> None:
    assert from_a_table(confirmed(changes)) == found


def test_a_change_of_a_column_from_a_table_is_from_there_unless_it_says_otherwise() -> None:
    tables = confirmed(None)
    columns: list[dict[str, object]] = tables[1]["column"]  # type: ignore[assignment]
    (weight,) = (column for column in columns if column["name"] == "weight")
    weight["from"] = TABLE
    assert "stays.change.weight" in from_a_table(tables)
    steps: list[dict[str, object]] = tables[1]["change"]  # type: ignore[assignment]
    (change,) = (change for change in steps if change["name"] == "weight")
    change["from"] = "public"
    assert from_a_table(tables) == {"stays.before.weight", "stays.now.weight"}


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("guess", "from = 'guess'; expected \"public\""),
        ("private", "from = 'private'; private are bins and values that a run chooses"),
        ({"widths": "public"}, "from.widths; the column has no such key"),
    ],
)
def test_other_origins_of_a_change_are_refused(
    said: Mapping[str, object] | str, error: str
) -> None:
    with pytest.raises(DomainError, match=f"table 'stays': change, column '[a-z]+': {error}"):
        KeyedTables.from_list(confirmed(said))
