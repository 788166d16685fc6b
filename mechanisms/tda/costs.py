"""Communication of Fed-TDA: the formula of the paper's Table 5, and the number of values in our sums.

All values here are public. The bytes on a wire are those of these values in masked form, plus the keys and shares of
each session.
"""

from __future__ import annotations

from collections.abc import Sequence

from mechanisms.tda.layout import Layout
from mechanisms.tda.steps import Steps, triangle

_VALUE_BYTES = 4


def paper_values(
    continuous: int, categories: Sequence[int], *, silos: int, components: int, iterations: int
) -> int:
    """Returns the values that K silos upload: K (4 n_c^2 + n_d^2 + 4 n_c n_d + (3 t m + 2 m + 2) n_c + sum (p + 1)).

    ``categories`` p of each of the n_d discrete columns, including the label; t components, m iterations.
    """
    discrete = len(categories)
    covariance = 4 * continuous**2 + discrete**2 + 4 * continuous * discrete
    mixtures = (3 * components * iterations + 2 * iterations + 2) * continuous
    return silos * (covariance + mixtures + sum(p + 1 for p in categories))


def paper_mib(
    continuous: int,
    categories: Sequence[int],
    *,
    silos: int = 5,
    components: int = 10,
    iterations: int = 100,
) -> float:
    """Returns ``paper_values`` in MiB at 4 bytes a value; with the defaults, the paper's Table 5 (Fed-TDA, up)."""
    values = paper_values(
        continuous, categories, silos=silos, components=components, iterations=iterations
    )
    return values * _VALUE_BYTES / 2**20


def sent_values(layout: Layout, steps: Steps, *, iterations: int) -> int:
    """Returns the values of one silo's answers in a run of ``iterations``.

    They are 3 T n_c per iteration, all categories, and the triangle of the moments.
    """
    return iterations * steps.mixture.length + steps.frequencies.length + triangle(layout)
