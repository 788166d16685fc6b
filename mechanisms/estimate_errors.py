"""Errors of estimates from a model: noise, columns that were not measured together, and the number of rows.

``Knowledge`` has what a run released about the errors of its marginals. ``deviation_of`` gives the standard deviation
of an estimate from its influence: the array ``a`` over the cells of its columns for which the estimate's error is, to
first order, the sum of ``a`` times the errors of the cells' shares.

All values here are public, as post-processing of released values.

- *measured*: all columns are in one measured marginal, whose counts have independent noise. The deviation is that of
  the noise times the norm of the influence, less its mean, since the shares sum to 1. A model that also fits other
  measurements, and has no negative counts, is nearer; the interval is so far conservative.
- *earlier*, *joined* and *guess*: the columns were not measured together, and a refresh has their relation from its
  earlier model, or the model joins them through others, or holds them independent. The influence is split: what single
  columns, and smaller sets of them, tell of it has their noise if they were measured. For the rest the likely error e
  (L1, `mechanisms.likely_errors`) of its marginal is taken as one spread over the cells in proportion to their shares,
  as unfavourably as possible: by Cauchy and Schwarz the estimate is off by at most e sqrt(pi/2) times the deviation of
  the rest over the model's rows. A set of columns that is no candidate of the run has the root of the sum of the
  squares of its pairs' likely errors.

``Calibration`` brings these, and the doubt about values within cells, to one standard deviation by kind of figure.

Limits: measured, not proven; README.md, Estimates, has the coverage. Errors of an estimate's second order are refused
rather than bounded (``mechanisms.estimates``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Clique
from mechanisms.estimate import CONFIDENCE
from mechanisms.likely_errors import parts_of

Array: TypeAlias = NDArray[np.float64]
QUANTILE = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
MEASURED, EARLIER, JOINED, GUESS = "measured", "earlier", "joined", "guess"
UNKNOWN = 1.0
"""Likely L1 error from which on nothing is known: half of the rows may be in a wrong cell."""
_SPREAD = math.sqrt(math.pi / 2)
"""Root mean square of normal errors, in mean absolute errors."""


@dataclass(frozen=True, slots=True)
class MarginalError:
    """Error of a marginal of ``cells`` counts: the deviation ``noise`` of each, None unless measured, and ``likely``.

    ``likely`` is the likely L1 distance of the normalised marginals.
    """

    noise: float | None
    likely: float
    cells: int


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """The estimated number of ``rows``, and the ``errors`` of the run's marginals by their columns, sorted by name.

    ``earlier`` are the pairs of columns, sorted by name, that a refresh has from its earlier model and did not measure.
    Raises ``ValueError`` without rows.
    """

    rows: float
    errors: Mapping[Clique, MarginalError]
    earlier: frozenset[Clique] = frozenset()

    def __post_init__(self) -> None:
        if not self.rows > 0:
            raise ValueError("a run without rows has no estimates")

    @property
    def rows_deviation(self) -> float:
        """Standard deviation of the number of rows, by the sums of the single columns' counts; 0 without any.

        A measured pair may count for both of its columns, so that the sum of the precisions is halved.
        """
        precisions = [
            1 / (error.cells * error.noise**2)
            for columns, error in self.errors.items()
            if len(columns) == 1 and error.noise
        ]
        return (sum(precisions) / 2) ** -0.5 if precisions else 0.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """Factors of the three parts of an error, for one kind of figure.

    ``noise`` is that of the noise of measured marginals, ``joined`` that of what was not measured: 95 of 100 errors of
    this kind, over their deviations, were below the normal quantile times this. ``doubt`` is the standard deviation of
    a doubt by its bound. The parts are independent, so that their squares add up.
    """

    noise: float
    joined: float
    doubt: float


RECTANGULAR, TRIANGULAR = 3**-0.5, 6**-0.5
"""Deviation, by its bound, of a doubt that is anywhere within it, and of the sum of two (GUM, 4.3.7, 4.3.9)."""
LEVEL = Calibration(0.8, 2.0, RECTANGULAR)
"""Of counts, shares, means and quantiles."""
CONTRAST = Calibration(0.8, 3.5, TRIANGULAR)
"""Of differences and ratios, whose two sides have doubts of their own."""
STEEP = Calibration(1.1, 3.5, TRIANGULAR)
"""Of odds ratios and slopes, which lean on few rows."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """The standard deviation of an estimate by its parts, and its ``basis``.

    ``noise`` is the part of measured marginals, ``joined`` that of what was not measured. ``apart`` are two columns of
    which nothing is known.
    """

    noise: float
    joined: float
    basis: str
    apart: tuple[str, str] | None = None

    @property
    def value(self) -> float:
        """The deviation before calibration."""
        return math.hypot(self.noise, self.joined)

    def calibrated(self, calibration: Calibration) -> float:
        """Returns the deviation of a figure of this kind."""
        return math.hypot(calibration.noise * self.noise, calibration.joined * self.joined)


def deviation_of(
    influence: Array,
    shares: Array,
    columns: Clique,
    *,
    knowledge: Knowledge,
    cliques: tuple[Clique, ...],
) -> Deviation:
    """Returns the deviation of an estimate with an ``influence`` over the cells of ``columns``.

    ``shares`` are the model's, of the same shape; ``cliques`` are those of the model.
    """
    table = _Influence.of(np.asarray(influence, np.float64), shares, columns)
    if not table.columns:
        return Deviation(0.0, 0.0, MEASURED)
    whole = knowledge.errors.get(tuple(sorted(table.columns)))
    if whole is not None and whole.noise is not None:
        return Deviation(whole.noise / knowledge.rows * _norm(table.values), 0.0, MEASURED)
    error, apart = _joined_error(table.columns, knowledge)
    if apart is not None and table.spread == 0:
        apart = None
    noise, joined, left = 0.0, 0.0, table
    # The parts that smaller marginals tell: single columns first, then what pairs add, and so on.
    for size in range(1, len(table.columns)):
        for part in combinations(table.columns, size):
            known = knowledge.errors.get(tuple(sorted(part)))
            if known is None:
                continue
            told, left = left.split(part)
            if known.noise is not None:
                noise += (known.noise / knowledge.rows * _norm(told)) ** 2
            else:
                spread = _spread(told, left.shares)
                joined += (known.likely * _SPREAD * spread / QUANTILE) ** 2
    joined += (error * _SPREAD * left.spread / QUANTILE) ** 2
    return Deviation(
        math.sqrt(noise), math.sqrt(joined), _basis(table.columns, knowledge, cliques), apart
    )


def _basis(columns: Clique, knowledge: Knowledge, cliques: tuple[Clique, ...]) -> str:
    """Returns the basis of columns that are in no measured marginal together."""
    pairs = {*combinations(sorted(columns), 2)}
    if pairs & knowledge.earlier and all(
        pair in knowledge.earlier or _is_measured(pair, knowledge) for pair in pairs
    ):
        return EARLIER
    parts = parts_of(_names(columns, cliques), cliques)
    return JOINED if len({parts[name] for name in columns}) == 1 else GUESS


def _is_measured(pair: Clique, knowledge: Knowledge) -> bool:
    found = knowledge.errors.get(pair)
    return found is not None and found.noise is not None


@dataclass(frozen=True, slots=True, eq=False)
class _Influence:
    """An influence's ``values`` over the cells of the ``columns`` on which it depends, with the cells' ``shares``."""

    columns: Clique
    values: Array
    shares: Array

    @classmethod
    def of(cls, values: Array, shares: Array, columns: Clique) -> _Influence:
        """Leaves out the columns on which the influence does not depend."""
        idle = tuple(axis for axis in range(len(columns)) if not np.ptp(values, axis=axis).any())
        first = tuple(0 if axis in idle else slice(None) for axis in range(len(columns)))
        kept = tuple(name for axis, name in enumerate(columns) if axis not in idle)
        return cls(kept, values[first], np.asarray(shares.sum(axis=idle)))

    @property
    def spread(self) -> float:
        """Standard deviation of the values over the model's rows."""
        return _spread(self.values, self.shares)

    def split(self, part: Clique) -> tuple[Array, _Influence]:
        """Returns the expected values given the columns ``part``, over their cells, and the influence without them."""
        axes = tuple(axis for axis, name in enumerate(self.columns) if name not in part)
        mass = np.asarray(self.shares.sum(axis=axes, keepdims=True))
        sums = np.asarray((self.shares * self.values).sum(axis=axes, keepdims=True))
        told = np.divide(sums, mass, out=np.zeros_like(sums), where=mass > 0)
        return told, _Influence(self.columns, self.values - told, self.shares)


def _spread(values: Array, shares: Array) -> float:
    """Returns the standard deviation of values over the model's rows."""
    mean = float((shares * values).sum())
    return math.sqrt(max(0.0, float((shares * (values - mean) ** 2).sum())))


def _norm(values: Array) -> float:
    """Returns the norm of an influence less its mean: shares sum to 1, so that a constant has no error."""
    return float(np.sqrt(((values - values.mean()) ** 2).sum()))


def _names(columns: Clique, cliques: tuple[Clique, ...]) -> Clique:
    return tuple(dict.fromkeys((*columns, *(name for clique in cliques for name in clique))))


def _joined_error(columns: Clique, knowledge: Knowledge) -> tuple[float, tuple[str, str] | None]:
    """Returns the likely error of the joint marginal of ``columns``, and two of them of which nothing is known."""
    total, worst = 0.0, ("", "")
    largest = -1.0
    for pair in combinations(sorted(columns), 2):
        found = knowledge.errors.get(pair)
        error = math.inf if found is None else found.likely
        total += error * error
        if error > largest:
            largest, worst = error, (pair[0], pair[1])
    whole = knowledge.errors.get(tuple(sorted(columns)))
    error = math.sqrt(total) if whole is None else whole.likely
    if whole is not None and whole.likely < UNKNOWN:
        return error, None
    return error, worst if error >= UNKNOWN else None
