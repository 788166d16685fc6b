"""Rows as features: what a column becomes, and that nothing but the domain decides it."""

import numpy as np
import pytest

from mechanisms.domain import Categorical, Domain, Integer
from mechanisms.errors import DataError, DomainError
from mechanisms.mtl_features import Features
from mechanisms.text_table import TextTable

DOMAIN = Domain(
    (
        Integer("age", 20, 60, bins=4),
        Categorical("sex", ("f", "m")),
        Integer("stay", 0, 10, bins=5, missing=True),
        Integer("score", 0, 50, bins=5),
    )
)


def table(**columns: list[str]) -> TextTable:
    full = {"age": ["20", "60"], "sex": ["m", "f"], "stay": ["", "5"], "score": ["0", "25"]}
    return TextTable(full | columns, (2, 3))


def test_rows_of_are_places_between_bounds_categories_and_an_intercept() -> None:
    features = Features(DOMAIN, "score", two_classes=False)
    assert features.names == ["age", "sex 0", "sex 1", "stay", "stay, missing", "1"]
    x, y = features.rows_of(table(), source="table")
    assert x.tolist() == [[-1, 0, 1, 0, 1, 1], [1, 1, 0, 0, 0, 1]]
    assert y.tolist() == [0.0, 0.5]


def test_rows_of_with_a_label_of_two_categories() -> None:
    features = Features(DOMAIN, "sex", two_classes=True)
    x, y = features.rows_of(table(), source="table")
    assert y.tolist() == [1.0, 0.0]
    assert x.shape == (2, len(features.names)) == (2, 5)


def test_rows_of_a_column_with_one_value_are_finite() -> None:
    domain = Domain((Integer("one", 3, 3, bins=1), *DOMAIN.columns))
    features = Features(domain, "score", two_classes=False)
    x, _ = features.rows_of(table(one=["3", "3"]), source="table")
    assert features.names[0] == "one 0"
    assert x[:, 0].tolist() == [1.0, 1.0]


def test_features_of_a_row_do_not_depend_on_the_others() -> None:
    features = Features(DOMAIN, "score", two_classes=False)
    first = features.rows_of(table(), source="table")[0][1]
    other = features.rows_of(table(age=["33", "60"], stay=["9", "5"]), source="table")[0][1]
    assert np.array_equal(first, other)


@pytest.mark.parametrize(
    ("label", "two_classes"), [("sex", False), ("age", True), ("stay", False), ("none", False)]
)
def test_features_reject_a_label_of_another_kind(label: str, two_classes: bool) -> None:
    with pytest.raises(DomainError, match=label):
        Features(DOMAIN, label, two_classes)


def test_rows_of_rejects_what_the_domain_does_not_have() -> None:
    with pytest.raises(DataError):
        Features(DOMAIN, "score", False).rows_of(table(sex=["x", "f"]), source="table")


def test_rows_of_a_column_of_one_value_are_a_category_and_divide_by_nothing() -> None:
    """By the bounds, or in a table whose rows are all alike; warnings are errors here."""
    domain = Domain((Integer("site", 5, 5), Integer("age", 20, 60), Integer("score", 0, 50)))
    features = Features(domain, "score", two_classes=False)
    assert features.names == ["site 0", "age", "1"]
    alike = TextTable({"site": ["5", "5"], "age": ["20", "20"], "score": ["7", "7"]}, (2, 3))
    x, y = features.rows_of(alike, source="table")
    assert x.tolist() == [[1, -1, 1]] * 2
    assert y == pytest.approx([0.14, 0.14])
    with pytest.raises(DomainError, match="label"):
        Features(domain, "site", two_classes=False)
