"""Cramér's V: 0 for columns that know nothing of one another, 1 for one that says the other, whatever their order."""

import math

import numpy as np
import pytest
from scipy.stats.contingency import association

from mechanisms.workload import Workload
from parties.report.comparison import MAX_PAIRED, MAX_ROWS, associate, compare_tables, cramers_v
from tests.mechanisms.tables import domain_of, random_codes


def test_cramers_v_is_one_where_one_column_says_the_other() -> None:
    assert cramers_v(np.diag([5, 7, 9])) == pytest.approx(1)
    assert cramers_v(np.array([[0, 5, 0], [7, 0, 0], [0, 0, 9], [0, 0, 0]])) == pytest.approx(1)


def test_cramers_v_is_about_zero_for_independent_columns() -> None:
    """Uncorrected, 1,000 rows in 30 times 30 cells have V of 0.17; over 50 tables the mean is below 0.03.

    Corrected, each is below 0.1: with a variance of 2 (r - 1)(c - 1), phi2 of 0.1 ** 2 * 29 would be 7 deviations.
    """
    rng = np.random.default_rng(1)
    found, bare = [], []
    for _ in range(50):
        flat = rng.integers(0, 900, 1000)
        counts = np.bincount(flat, minlength=900).reshape(30, 30)
        found.append(cramers_v(counts))
        bare.append(association(counts))
    assert np.mean(found) < 0.03
    assert max(found) < 0.1
    assert min(bare) > 0.15


def test_cramers_v_is_the_textbooks_where_there_are_many_rows() -> None:
    counts = np.array([[500_000, 100_000], [200_000, 300_000], [100_000, 100_000]])
    assert cramers_v(counts) == pytest.approx(association(counts), abs=1e-4)
    assert cramers_v(counts.T) == pytest.approx(cramers_v(counts))


@pytest.mark.parametrize(
    "counts", [[[0, 0], [0, 0]], [[4, 0], [0, 0]], [[1, 3], [0, 0]], [[1, 0], [0, 1]]]
)
def test_cramers_v_is_a_number_for_any_counts(counts: list[list[int]]) -> None:
    assert 0 <= cramers_v(np.array(counts)) <= 1
    assert math.isfinite(cramers_v(np.array(counts)))


def test_associate_is_that_of_each_pair_and_looks_at_a_part_of_many_rows() -> None:
    domain = domain_of(3, 3, 4)
    codes = random_codes(domain, 3 * MAX_ROWS, 1)
    matrix = associate(domain, codes)
    assert (matrix == matrix.T).all()
    assert np.diag(matrix).tolist() == [1, 1, 1]
    whole = np.zeros((3, 3), np.int64)
    np.add.at(whole, (codes[:, 0], codes[:, 1]), 1)
    assert matrix[0, 1] == pytest.approx(cramers_v(whole), abs=0.01)
    assert matrix[0, 1] > 0.85


def test_compare_tables_keeps_the_columns_that_go_together_most() -> None:
    domain = domain_of(*[2] * (MAX_PAIRED + 3))
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 2, (400, MAX_PAIRED + 3)).astype(np.int32)
    codes[:, 2] = codes[:, 7]
    shown = compare_tables(Workload(domain, (("c0", "c1"),)), codes).associations
    assert shown is not None
    assert (len(shown.columns), shown.left_out, shown.real) == (MAX_PAIRED, 3, None)
    assert shown.strongest(1) == [(("c2", "c7"), 1.0)]
    both = compare_tables(Workload(domain, (("c0", "c1"),)), codes, codes[::-1].copy()).associations
    assert both is not None
    assert both.farthest(1)[0][1:] == (1.0, 1.0) or both.farthest(1)[0][1] == both.farthest(1)[0][2]
