"""Pictures' numbers come from the tables, query by query and column by column."""

import numpy as np
import pytest

from mechanisms.domain import Categorical, Domain, Integer, Real
from mechanisms.workload import Workload
from parties.report.comparison import code_labels, compare_tables

DOMAIN = Domain(
    (
        Categorical("ward", ("a", "b"), missing=True),
        Integer("age", 0, 9, bins=5),
        Real("bp", 0.0, 1.0, 2),
    )
)
REAL = np.array([[0, 0, 0], [1, 4, 1], [2, 4, 1], [1, 0, 0]], dtype=np.int32)
SYNTHETIC = np.array([[0, 0, 0], [0, 4, 0]], dtype=np.int32)


def workload() -> Workload:
    return Workload(DOMAIN, (("ward", "age"), ("bp",)))


def test_compare_tables_gives_each_columns_shares() -> None:
    ward, age, bp = compare_tables(workload(), SYNTHETIC, REAL).columns
    assert (ward.column, ward.synthetic, ward.real) == ("ward", (1.0, 0.0, 0.0), (0.25, 0.5, 0.25))
    assert age.synthetic == age.real == (0.5, 0.0, 0.0, 0.0, 0.5)
    assert (bp.synthetic, bp.real) == ((1.0, 0.0), (0.5, 0.5))


def test_compare_tables_gives_each_querys_error() -> None:
    errors = {
        item.query: item.error for item in compare_tables(workload(), SYNTHETIC, REAL).query_errors
    }
    # ward x age: shares of (0, 0) and (0, 4) are 1/2, 1/2 against 1/4, 0, and 3/4 lie elsewhere.
    assert errors == {("ward", "age"): pytest.approx(1.5), ("bp",): pytest.approx(1.0)}


def test_compare_tables_has_no_errors_when_no_real_table_is_given() -> None:
    pictures = compare_tables(workload(), SYNTHETIC)
    assert pictures.query_errors == ()
    assert all(item.real is None for item in pictures.columns)


def test_code_labels_name_categories_bins_and_missing() -> None:
    assert [code_labels(column) for column in DOMAIN.columns] == [
        ("a", "b", "(missing)"),
        ("0", "2", "4", "6", "8"),
        ("0", "0.5"),
    ]
    assert code_labels(Integer("n", 1, 3)) == ("1", "2", "3")


def test_compare_tables_refuses_a_table_without_rows() -> None:
    with pytest.raises(ValueError, match="without rows"):
        compare_tables(workload(), SYNTHETIC[:0])
