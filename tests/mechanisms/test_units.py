"""Budgets of a unit and of a row: m rows cost m^2 times one row's, to the last bit never more."""

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.accounting import fixed_rounds_plan
from mechanisms.units import row_budget, row_guarantee, unit_cost


@given(st.floats(1e-9, 1e3), st.integers(1, 1000))
def test_row_budget_never_grants_a_group_more(rho: float, rows: int) -> None:
    budget = row_budget(rho, rows)
    assert Fraction(budget) * rows**2 <= Fraction(rho)
    assert budget * rows**2 == pytest.approx(rho, rel=1e-12)


@given(st.floats(1e-9, 1e3), st.integers(1, 1000))
def test_unit_cost_is_no_more_than_the_budget_that_was_divided(rho: float, rows: int) -> None:
    cost = unit_cost(row_budget(rho, rows), rows)
    assert row_budget(rho, rows) * rows**2 <= cost * (1 + 1e-12)
    assert cost <= rho


@given(st.floats(1e-3, 50), st.floats(1e-12, 0.1), st.integers(1, 50))
def test_row_guarantee_of_a_chain_of_rows_is_the_group_s(
    epsilon: float, delta: float, rows: int
) -> None:
    own, share = row_guarantee(epsilon, delta, rows)
    # Each neighbouring table of the chain is allowed exp(own) times what the one before is, and delta more.
    allowed = Decimal(0)
    with localcontext() as context:
        context.prec = 150
        for _ in range(rows):
            allowed = allowed * Decimal(own).exp() + Decimal(share)
    assert Fraction(own) * rows <= Fraction(epsilon)
    assert allowed <= Decimal(delta)
    assert float(allowed) == pytest.approx(delta, rel=1e-9)


def test_row_budget_of_one_row_is_the_whole() -> None:
    assert row_budget(0.1, 1) == 0.1


def test_row_budget_refuses_no_rows() -> None:
    with pytest.raises(ValueError, match="at least one"):
        row_budget(1.0, 0)


@pytest.mark.parametrize("rows", [2, 5])
def test_plan_of_a_group_has_noise_and_choices_of_that_sensitivity(rows: int) -> None:
    """Sigma is m times as large, epsilon the m-th part (the slack of a selection aside)."""
    one = fixed_rounds_plan(0.5, 10, 8, selection_slack=0.0)
    group = fixed_rounds_plan(row_budget(0.5, rows), 10, 8, selection_slack=0.0)
    assert group.sigma == pytest.approx(rows * one.sigma, rel=1e-9)
    assert group.epsilon == pytest.approx(one.epsilon / rows, rel=1e-9)
