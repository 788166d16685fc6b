"""Domains before and after their private bins and categories are measured: from fine cells to those of a model.

Domains and noisy histograms are public. Codes are secret. Source: `mechanisms.private_bins`,
`mechanisms.private_categories`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mechanisms.aim import Measurement
from mechanisms.columns import Categorical, Column, Moment, fine_cells, private_of
from mechanisms.discretising import cells_for
from mechanisms.domain import Domain
from mechanisms.private_bins import SEEN
from mechanisms.private_categories import threshold

_OCCUPIED, _HEAPS, _LEAST_USUAL = 16, 2, 2
"""A usual column of numbers: its occupied fine cells, its values that heap up, and its least number of cells."""


def unmeasured(domain: Domain) -> tuple[int, ...]:
    """Returns the positions of the columns whose private bins have not been measured."""
    return tuple(i for i, column in enumerate(domain.columns) if _is_unmeasured(column))


def stand_in(domain: Domain) -> Domain:
    """Returns the domain with uniform bins, as many as there may be, in place of unmeasured bins."""
    return replace(domain, columns=tuple(_standing_in(c, _most_cells(c)) for c in domain.columns))


def usual_stand_in(domain: Domain, *, rows: float, deviation: float) -> Domain:
    """Returns the domain with uniform bins, as many as ``rows`` rows usually leave, in place of unmeasured bins.

    ``deviation`` is that of a fine cell's noise. Numbers are taken to lie in ``_OCCUPIED`` fine cells and to heap up at
    two values, categories to have frequencies in proportion to the inverse of their ranks.
    """
    return replace(
        domain,
        columns=tuple(
            _standing_in(c, min(_most_cells(c), _usual_cells(c, rows, deviation)))
            for c in domain.columns
        ),
    )


def resolve(
    domain: Domain, histograms: Mapping[int, NDArray[np.float64]], deviation: float
) -> Domain:
    """Returns the domain with the noisy counts (codes,) of some columns by position, each with noise of ``deviation``.

    Raises ``ValueError`` for a column without private bins, ``DomainError`` for another number of counts.
    """
    columns = list(domain.columns)
    for i, noisy in histograms.items():
        column = columns[i]
        if isinstance(column, Categorical) and column.private is not None:
            chosen = column.private.having(noisy[: noisy.size - column.missing], deviation)
            columns[i] = replace(column, categories=chosen.categories, private=chosen)
        elif not isinstance(column, Categorical) and column.private is not None:
            fine = noisy[: noisy.size - column.missing - len(column.marks)]
            columns[i] = replace(column, private=column.private.having(fine, deviation))
        else:
            raise ValueError(f"column {column.name!r} has no private bins")
    return replace(domain, columns=tuple(columns))


def first_spread(domain: Domain) -> float:
    """Returns how much more noise round 0 leaves in the cells of a model than without private values: 1 without any.

    A sum over m fine cells has noise of sqrt(m) times the deviation; the result is the mean over the columns of the
    root of their fine cells over their largest number of cells. It is the same before and after measuring.
    """
    roots = [
        math.sqrt(max(1.0, fine / coarse)) for fine, coarse in map(_fine_and_coarse, domain.columns)
    ]
    return math.fsum(roots) / len(roots)


def _fine_and_coarse(column: Column) -> tuple[int, int]:
    """Returns the number of fine cells of a column with private values, and of cells at most; 1, 1 for others."""
    if column.private is None or not column.private.free:
        return 1, 1
    if isinstance(column, Categorical):
        return len(column.private.candidates) + 1, column.private.coarse
    return len(fine_cells(column).ranges), column.private.coarse


def coarse_codes(fine: Domain, resolved: Domain, codes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Converts codes (rows, columns) of ``fine`` to those of ``resolved``, the same domain after measuring."""
    moved = codes.copy()
    for i in unmeasured(fine):
        moved[:, i] = places(resolved.columns[i])[codes[:, i]]
    return moved


def places(column: Column) -> NDArray[np.int32]:
    """Returns the code of each fine code of a measured column: int32 (fine codes,)."""
    if isinstance(column, Categorical) and column.private is not None:
        return column.private.places(int(column.missing))
    if isinstance(column, Categorical) or column.private is None:
        raise ValueError(f"column {column.name!r} has no private bins")
    return column.private.places(fine_cells(column), len(column.marks) + column.missing)


def coarse_measurement(
    resolved: Domain, position: int, noisy: NDArray[np.float64], *, sigma: float, clients: int
) -> Measurement:
    """Returns a column's noisy fine counts as a measurement of its coarse counts in round 0, by post-processing sums.

    The noise of a sum over m cells has m times the variance. ``merged`` is m for each count of a column whose values
    are private, where many fine cells are empty, and otherwise the mean of m: the variance of the total is then exact,
    and that of the cells right on average.
    """
    column = resolved.columns[position]
    moved = places(column)
    counts = np.bincount(moved, noisy, minlength=column.size).astype(np.float64)
    private = private_of(column)
    if private is not None and private.free:
        each = np.bincount(moved, minlength=column.size).astype(np.float64)
        return Measurement(0, position, counts, sigma, clients, each)
    return Measurement(0, position, counts, sigma, clients, noisy.size / counts.size)


def _is_unmeasured(column: Column) -> bool:
    private = private_of(column)
    return private is not None and not private.measured


def _standing_in(column: Column, cells: int) -> Column:
    if column.private is None or column.private.measured:
        return column
    if isinstance(column, Categorical):
        return replace(column, categories=column.categories[: cells - 1], private=None)
    if isinstance(column, Moment):
        return replace(column, private=None, bins=cells)
    return replace(column, private=None, bins=cells, scale="linear")


def _most_cells(column: Column) -> int:
    private = private_of(column)
    return column.size if private is None else private.coarse


def _usual_cells(column: Column, rows: float, deviation: float) -> int:
    """Returns the number of cells that `private_bins.group` or the threshold of categories usually leaves."""
    if isinstance(column, Categorical) and column.private is not None:
        candidates = len(column.private.candidates)
        ranks = math.fsum(1 / rank for rank in range(1, candidates + 1))
        kept = int(rows / (ranks * threshold(candidates, deviation)))
        return max(_LEAST_USUAL, 1 + min(kept, candidates))
    # A cell of so many occupied fine ones is cut in two where its rows exceed the deviation of their sum.
    seen = (rows / (SEEN * deviation)) ** 2 / _OCCUPIED
    return max(_LEAST_USUAL, int(min(cells_for(int(rows)) + _HEAPS, seen)))
