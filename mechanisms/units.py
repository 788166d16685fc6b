"""Units of privacy of several rows: budgets of a unit, and of one row.

Mechanisms, plans and ledgers count in rows: a row moves one cell of each marginal by one. A unit that adds or removes
up to m rows is a group of m, and costs m^2 times as much in zCDP (Bun and Steinke 2016, Proposition 1.9). So a run with
rho for a unit has rho / m^2 for a row, and everything follows: the deviation of the noise is m times as large and the
epsilon of a selection the m-th part, as they would be for marginals of sensitivity m and scores of sensitivity m. All
values here are public. Source: README, "Units of privacy".
"""

import math
from fractions import Fraction

from mechanisms.accounting import round_up


def row_budget(rho: float, rows: int) -> float:
    """Returns the largest budget of a row for which a group of ``rows`` costs at most ``rho``, rounded down.

    Raises ``ValueError`` for fewer rows than one.
    """
    if rows < 1:
        raise ValueError(f"a unit of {rows} rows; expected at least one")
    # rho / m^2, checked exactly since the division may have rounded up.
    budget, square = rho / rows**2, rows**2
    return budget if Fraction(budget) * square <= Fraction(rho) else math.nextafter(budget, 0.0)


def unit_cost(rho: float, rows: int) -> float:
    """Returns what a unit of ``rows`` rows costs in zCDP where a row costs ``rho``, rounded up."""
    return round_up(Fraction(rho) * rows**2)


def row_guarantee(epsilon: float, delta: float, rows: int) -> tuple[float, float]:
    """Returns (epsilon, delta) of a row for which a group of ``rows`` has (``epsilon``, ``delta``) at most.

    A group of m rows of an (e, d)-private mechanism has (m e, d (exp(m e) - 1) / (exp(e) - 1)): the chain of m
    neighbouring tables, each step of which has the delta of the former steps times exp(e). Rounded down.
    """
    if rows == 1:
        return epsilon, delta
    own = math.nextafter(epsilon / rows, 0.0)
    # (exp(own) - 1) / (exp(epsilon) - 1), without large numbers.
    share = math.exp(own - epsilon) * math.expm1(-own) / math.expm1(-epsilon)
    # A few units in the last place cover the rounding of the exponentials, and of their arguments.
    return own, delta * share * (1 - (1 + epsilon) * 2.0**-50)
