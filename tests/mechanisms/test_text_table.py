"""Tables of text without pandas, and to and from DataFrames."""

import pytest

from mechanisms.text_table import TextTable, and_list


@pytest.mark.parametrize("unit", ["line", "row"])
def test_text_table_becomes_a_frame_and_again_itself(unit: str) -> None:
    table = TextTable({"a": ["1", "2"], "b": ["x", ""]}, [2, 4], unit)
    frame = table.frame()
    assert frame.to_dict("list") == {"a": ["1", "2"], "b": ["x", ""]}
    assert list(frame.index) == [2, 4]
    again = TextTable.of(frame)
    assert (again.columns, again.places, again.unit) == (table.columns, table.places, unit)


def test_text_table_without_rows_keeps_its_columns() -> None:
    frame = TextTable({"a": (), "b": ()}, []).frame()
    assert (list(frame.columns), len(frame)) == (["a", "b"], 0)


def test_text_table_refuses_columns_of_other_lengths() -> None:
    with pytest.raises(ValueError, match="one length"):
        TextTable({"a": ["1"]}, [2, 3])


def test_text_table_shows_no_value() -> None:
    shown = repr(TextTable({"diagnosis": ["secret"]}, [2]))
    assert shown == "TextTable(1 rows, 1 columns)"


def test_and_list_has_one_and() -> None:
    assert [and_list("abc"[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
