"""Bounds of a column's values are reached by the worst tables, and hold of any."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.column_bounds import (
    QUANTILES,
    column_bounds,
    kolmogorov,
    prefix_error,
    value_cells,
    wasserstein,
)
from mechanisms.column_values import ColumnValues
from mechanisms.columns import Moment
from mechanisms.domain import Integer, Real


def values(*numbers: float) -> ColumnValues:
    points, counts = np.unique(np.array(numbers, np.float64), return_counts=True)
    return ColumnValues("x", "real", points, (), counts.astype(np.int64), 0)


def test_value_cells_are_in_the_readers_units() -> None:
    assert value_cells(Integer("x", 0, 9, 2)).ranges == ((0, 4), (5, 9))
    atoms = value_cells(Integer("x", 0, 9, 2, atoms=(2, 99)))
    assert atoms.ranges == ((0, 4), (2, 2), (5, 9), (99, 99))
    assert atoms.atoms == (False, True, False, True)
    # The atom far away is no part of the bins' range.
    assert atoms.widest == (0, 4 / 9)
    assert value_cells(Real("x", 0.0, 1.0, 2, decimals=1)).ranges == ((0.0, 0.5), (0.6, 1.0))
    # Without decimals a bin takes every double up to the next edge.
    assert value_cells(Real("x", 0.0, 1.0, 2)).ranges == ((0.0, 0.5), (0.5, 1.0))
    assert value_cells(Real("x", 0.0, 1.0, 2, atoms=(7.0,))).ranges[-1] == (7.0, 7.0)
    days = value_cells(Moment("x", "date", "0001-01-01", "0001-01-10", "day", 10))
    assert not days.wide.any()
    assert days.widest is None


def test_column_bounds_are_reached_by_the_worst_table() -> None:
    """Cells 0 .. 4 and 5 .. 9 with half of the rows each, a tenth of which may be elsewhere."""
    cells = value_cells(Integer("x", 0, 9, 2))
    found = column_bounds(cells, np.array([0.5, 0.5]), 0.1)
    assert (found.off, found.lost, found.heaviest) == (0.6, 0.5, 0)
    assert found.quantiles == ((0, 4), (0, 9), (5, 9))
    assert found.mean == pytest.approx((0.6 * 0 + 0.4 * 5, 0.4 * 4 + 0.6 * 9))
    # Synthetic rows lie at one end of their cells, real ones at the other, and a tenth in the other cell.
    made, real = values(*[4] * 5, *[9] * 5), values(*[0] * 6, *[5] * 4)
    assert kolmogorov(made, real) == pytest.approx(found.off)
    assert wasserstein(made, real) <= found.moved == pytest.approx(0.1 * 9 + 4)


def test_column_bounds_of_single_values_lose_nothing() -> None:
    found = column_bounds(value_cells(Integer("x", 0, 2, 3)), np.array([0.2, 0.5, 0.3]), 0.05)
    assert (found.off, found.lost, found.heaviest) == (0.05, 0.0, None)
    assert found.quantiles == ((0, 0), (1, 1), (2, 2))


@given(st.data())
def test_column_bounds_hold_of_any_table_within_reach(data: st.DataObject) -> None:
    """A real table in the same cells, some of whose rows are in any other ones."""
    column = Integer("x", 0, 99, 5, atoms=(0, 30, 500))
    cells = value_cells(column)
    made = data.draw(st.lists(st.sampled_from([*range(100), 500]), min_size=1, max_size=12))
    real = [_in_cell(data, cells.ranges[column.cells.code_of(n)], column) for n in made]
    for i in data.draw(st.sets(st.integers(0, len(made) - 1))):
        real[i] = data.draw(st.sampled_from([*range(100), 500]))
    shares = [
        np.bincount([column.cells.code_of(n) for n in of], minlength=len(cells.ranges)) / len(of)
        for of in (made, real)
    ]
    found = column_bounds(cells, shares[0], float(np.abs(shares[0] - shares[1]).sum()) / 2)
    assert kolmogorov(values(*made), values(*real)) <= found.off + 1e-9
    assert wasserstein(values(*made), values(*real)) <= found.moved + 1e-9
    assert found.mean[0] - 1e-9 <= np.mean(real) <= found.mean[1] + 1e-9
    for q, (low, high) in zip(QUANTILES, found.quantiles, strict=True):
        assert low <= np.quantile(real, q, method="inverted_cdf") <= high


def _in_cell(data: st.DataObject, ends: tuple[float, float], column: Integer) -> int:
    inside = range(int(ends[0]), int(ends[1]) + 1)
    code = column.cells.code_of(inside[0])
    return data.draw(st.sampled_from([n for n in inside if column.cells.code_of(n) == code]))


def test_prefix_error_takes_the_worse_number_of_rows() -> None:
    found = prefix_error(
        np.array([0.5, 0.5]), np.array([40.0, 60.0]), noise=10.0, rows=(80.0, 125.0)
    )
    assert found == pytest.approx(max(abs(1 - 100 / 80) + 10 / 80, abs(0.5 - 40 / 125) + 10 / 125))
