"""Tables with the pandas types of another one."""

from datetime import date

import pandas as pd
import pytest

from mechanisms.typed import as_types


@pytest.mark.parametrize(
    ("values", "like", "kind"),
    [
        (pd.Series([1, 2]), pd.Series([1.5]), "float64"),
        (pd.Series([1, 2]), pd.Series([1], dtype="int8"), "int8"),
        (pd.Series([1, 300]), pd.Series([1], dtype="int8"), "int64"),
        (pd.Series([1.5, 2.0]), pd.Series([1]), "float64"),
        (pd.Series([1, None], dtype="Int64"), pd.Series([1.0]), "float64"),
        (pd.Series(["a", "b"], dtype="str"), pd.Series(pd.Categorical(["a", "b"])), "category"),
        (pd.Series(["a", "c"], dtype="str"), pd.Series(pd.Categorical(["a", "b"])), "str"),
        (pd.Series(["a", "b"], dtype="str"), pd.Series(["a"], dtype=object), "object"),
        (pd.Series(["no", ""], dtype="str"), pd.Series([True]), "str"),
        (
            pd.to_datetime(pd.Series(["2024-01-02"])),
            pd.Series([date(2024, 1, 2)]),
            "datetime64[us]",
        ),
    ],
)
def test_as_types_takes_a_type_that_holds_every_value(
    values: "pd.Series[object]", like: "pd.Series[object]", kind: str
) -> None:
    table = as_types(pd.DataFrame({"x": values, "y": values}), {"x": like.dtype})
    assert str(table["x"].dtype) == kind
    assert table["y"].dtype == values.dtype
    assert table["x"].astype(values.dtype).equals(values)
