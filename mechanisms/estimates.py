"""Estimates from a released model: counts, shares, means, quantiles, differences, ratios, odds ratios and slopes.

``estimates`` answers a question of `mechanisms.question` with one ``Estimate`` for each value of the columns that it is
by: a value, an interval of stated confidence, the basis of the interval, or a refusal in words.

All values here are public; answering a question costs no privacy. The truth that an interval is about is the figure of
the real table, not of a population from which its rows might be drawn.

Every measure is computed from the model's joint distribution of its columns, with its influence: the change of the
figure by a change of each cell's share. The deviation follows from the influence (`mechanisms.estimate_errors`). It has
one more part, the doubt that comes from cells: a value's place in its cell is not known. The bound of that doubt takes
each cell's mean to be off by at most a sixth of its width, all in one direction (as of a density that falls in a
straight line to zero), and so does a condition that cuts a cell; of a quantile, the rows below it by at most a quarter
of its part's, and so does a condition that divides a cell's parts. The doubt may be anywhere within its bound, and its
variance is added to that of the noise. Ratios and odds ratios have intervals that are symmetric on the scale of
logarithms.

Where noisy counts chose a column's cells (private bins and values), values are drawn from fine cells whose noise no
measured marginal tells of. Doubts are then of the whole cell, quantiles have intervals that end where a cell does, and
what depends on values in a cell without an end is refused: their mean has no bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_values import number_text
from mechanisms.columns import Categorical, Column, Moment, endless_cells, is_chosen
from mechanisms.conditions import OF_A_PART, Limit, column_named, limits_of
from mechanisms.domain import Clique, Domain
from mechanisms.errors import ConditionError
from mechanisms.estimate import Estimate
from mechanisms.estimate_errors import (
    CONTRAST,
    LEVEL,
    QUANTILE,
    RECTANGULAR,
    STEEP,
    UNKNOWN,
    Calibration,
    Deviation,
    Knowledge,
    deviation_of,
)
from mechanisms.model import Model
from mechanisms.question import (
    COUNT,
    DIFFERENCE,
    MEAN,
    ODDS_RATIO,
    RATIO,
    SHARE,
    SLOPE,
    Measure,
    Question,
)
from mechanisms.question import QUANTILE as QUANTILES
from mechanisms.value_parts import ValueParts, means_of, values_at
from mechanisms.written import parse_number

Array = NDArray[np.float64]
MOST_CELLS = 1 << 22
MOST_GROUPS = 10_000
_LEAST_ROWS = 2.0
"""Deviations of its number of rows that a group needs: with fewer, a ratio's error is not linear in it."""
_LEAST_VARIATION = 1e-9
"""Least deviation of a column for which a slope is asked, in ranges of its cells."""
_ROUNDING = 1e-6
"""Part of a unit that rounding of doubles may add to a whole number of it."""


_ENDLESS = "a cell without an end, in which noisy counts do not tell where the rows lie, so that no bound is known"


class _Refused(Exception):
    """A figure that the model cannot give, in words."""


def estimates(model: Model, knowledge: Knowledge, question: Question) -> tuple[Estimate, ...]:
    """Returns the answers to a question, in the order of the values of the columns that it is by.

    Raises ``ConditionError`` for a column, a value or a measure that does not fit the columns.
    """
    table = _Table.of(model, knowledge, question)
    return tuple(table.estimate(group) for group in table.groups())


@dataclass(frozen=True, slots=True, eq=False)
class _Values:
    """The numbers of a column's cells: the ``mean`` of each, 0 where ``present`` is 0, and its ``doubt``, all (codes,).

    ``parts`` are those from which values are drawn, None for categories that are numbers.
    """

    column: Column
    mean: Array
    doubt: Array
    present: Array
    parts: ValueParts | None

    def endless(self, code: int) -> bool:
        """Returns whether the cell of a code has no end."""
        return not isinstance(self.column, Categorical) and code in endless_cells(self.column)

    @property
    def range(self) -> tuple[float, float]:
        """Least and largest number."""
        if self.parts is None:
            known = self.mean[self.present > 0]
            return float(known.min()), float(known.max())
        ends = np.array([self.parts.first.min(), self.parts.last.max()], np.float64)
        least, largest = (
            ends if isinstance(self.column, Categorical) else values_at(self.column, ends)
        )
        return float(least), float(largest)


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A measure of a question with its conditions as limits; see ``Measure``."""

    kind: str
    columns: tuple[str, ...]
    level: float
    of: Mapping[str, Limit]
    groups: tuple[Mapping[str, Limit], ...]
    inner: _Asked | None

    @classmethod
    def of_measure(cls, domain: Domain, measure: Measure) -> _Asked:
        """Resolves a measure. Raises ``ConditionError``."""
        return cls(
            measure.kind,
            measure.columns,
            measure.level,
            limits_of(domain, measure.of),
            tuple(limits_of(domain, group) for group in measure.groups),
            None if measure.inner is None else cls.of_measure(domain, measure.inner),
        )

    @property
    def tested(self) -> set[str]:
        """Names of all columns of the measure and its conditions."""
        names = {*self.columns, *self.of, *(name for group in self.groups for name in group)}
        return names if self.inner is None else names | self.inner.tested

    def limits(self) -> Iterator[Limit]:
        """Yields the limits of the measure's conditions."""
        for limits in (self.of, *self.groups):
            yield from limits.values()
        if self.inner is not None:
            yield from self.inner.limits()

    def raised(self) -> Iterator[_Asked]:
        """Yields the measure with the share of one cut cell raised by its doubt, for each of them."""
        for of in _raised(self.of):
            yield replace(self, of=of)
        for i, group in enumerate(self.groups):
            for changed in _raised(group):
                yield replace(self, groups=(*self.groups[:i], changed, *self.groups[i + 1 :]))
        if self.inner is not None:
            for inner in self.inner.raised():
                yield replace(self, inner=inner)


def _raised(limits: Mapping[str, Limit]) -> Iterator[dict[str, Limit]]:
    """Yields the limits with the share of one cut cell raised by its doubt."""
    for name, limit in limits.items():
        for code in np.flatnonzero(limit.doubts > 0):
            shares = limit.shares.copy()
            shares[code] += limit.doubts[code]
            yield {**limits, name: replace(limit, shares=shares)}


@dataclass(frozen=True, slots=True, eq=False)
class _Figure:
    """A figure on its working scale, with its ``influence`` over the table's cells and the ``doubt`` from its cells."""

    value: float
    influence: Array
    doubt: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Quantile:
    """A quantile, as a ``figure`` and with its ``interval``, on the interval's ``basis``."""

    figure: _Figure
    interval: tuple[float, float]
    basis: str


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """The model's joint distribution ``shares`` of the ``columns`` of a question, with the limits of its conditions."""

    model: Model
    knowledge: Knowledge
    question: Question
    columns: Clique
    shares: Array
    where: Mapping[str, Limit]
    measure: _Asked

    @classmethod
    def of(cls, model: Model, knowledge: Knowledge, question: Question) -> _Table:
        """Computes the joint distribution. Raises ``ConditionError``."""
        domain = model.domain
        where, measure = (
            limits_of(domain, question.where),
            _Asked.of_measure(domain, question.measure),
        )
        names = {*where, *question.by, *measure.tested}
        for name in names:
            column_named(domain, name)
        columns = tuple(name for name in domain.names if name in names)
        if domain.size(columns) > MOST_CELLS:
            raise ConditionError(
                f"the question has {len(columns)} columns with {domain.size(columns)} cells together; expected at most "
                f"{MOST_CELLS}: ask about fewer columns at once"
            )
        shares = model.answers([columns])[0] if columns else np.ones(())
        return cls(model, knowledge, question, columns, shares, where, measure)

    def groups(self) -> Iterator[dict[str, int]]:
        """Yields codes of the columns that the question is by: all that are not missing and satisfy its condition."""
        domain, codes = self.model.domain, []
        for name in self.question.by:
            column = column_named(domain, name)
            present = np.arange(column.size - column.missing)
            limit = self.where.get(name)
            codes.append(present if limit is None else present[limit.shares[: len(present)] > 0])
        if math.prod(map(len, codes)) > MOST_GROUPS:
            raise ConditionError(
                f"the question has more than {MOST_GROUPS} groups; expected fewer columns after by"
            )
        for group in itertools.product(*(found.tolist() for found in codes)):
            yield dict(zip(self.question.by, group, strict=True))

    def estimate(self, group: Mapping[str, int]) -> Estimate:
        """Returns the answer for one group."""
        domain, measure = self.model.domain, self.measure
        labels = {name: column_named(domain, name).labels[code] for name, code in group.items()}
        rows = self._evidence(self.where)
        for name, code in group.items():
            rows = rows * self._on(name, np.eye(column_named(domain, name).size)[code])
        try:
            for limit in (*self.where.values(), *measure.limits()):
                if limit.loose:
                    raise _Refused(
                        f"the condition cuts a cell of {limit.column.name} that has no end, and how many of its rows "
                        f"satisfy it is not known; count by {limit.column.name} shows the cells"
                    )
            if measure.kind == QUANTILES:
                quantile = self._quantile(measure, rows)
                (low, high), basis = quantile.interval, quantile.basis
                value = quantile.figure.value
            else:
                value, low, high, basis = self._interval(measure, rows)
        except _Refused as refused:
            return Estimate(labels, refusal=str(refused))
        shown = [self._shown(measure, number) for number in (value, low, high)]
        return Estimate(labels, shown[0], shown[1], shown[2], basis)

    # Figures and their influences.

    def _interval(self, measure: _Asked, rows: Array) -> tuple[float, float, float, str]:
        figure, kind = self._figure(measure, rows), _calibration_of(measure)
        found = self._deviation(figure.influence)
        if measure.kind == COUNT:
            of_rows = figure.value * self.knowledge.rows_deviation / self.knowledge.rows
            found = replace(found, noise=math.hypot(found.noise, of_rows))
        half = QUANTILE * math.hypot(
            found.calibrated(kind),
            kind.doubt * figure.doubt,
            RECTANGULAR * self._cut_doubt(measure, rows, figure),
        )
        ends = (figure.value, figure.value - half, figure.value + half)
        value, low, high = ends
        if COUNT in (measure.kind, measure.inner and measure.inner.kind) and measure.kind != RATIO:
            value, low, high = (end * self.knowledge.rows for end in ends)
        elif measure.kind in (RATIO, ODDS_RATIO):
            value, low, high = (math.exp(min(700.0, end)) for end in ends)
        least, most = self._bounds(measure)
        return value, max(low, least), min(high, most), found.basis

    def _figure(self, measure: _Asked, rows: Array) -> _Figure:
        """Returns a measure of the ``rows``: the share of each cell that is asked about, over the table's cells."""
        if measure.kind == COUNT:
            share = float((self.shares * rows).sum())
            return _Figure(share, rows - share)
        if measure.kind == SHARE:
            return self._ratio(rows * self._evidence(measure.of), rows)
        if measure.kind == MEAN:
            return self._mean(measure.columns[0], rows)
        if measure.kind == SLOPE:
            return self._slope(measure.columns, rows)
        if measure.kind == QUANTILES:
            return self._quantile(measure, rows).figure
        one, other = (rows * self._evidence(group) for group in measure.groups)
        if measure.kind == ODDS_RATIO:
            of = replace(measure, kind=SHARE)
            return _difference(*(_logit(self._figure(of, part)) for part in (one, other)))
        inner = measure.inner or replace(measure, kind=COUNT)
        if measure.kind == DIFFERENCE:
            return _difference(self._figure(inner, one), self._figure(inner, other))
        return _difference(*(_logarithm(self._figure(inner, part)) for part in (one, other)))

    def _ratio(self, part: Array, rows: Array) -> _Figure:
        """Returns the sum of ``part`` over that of ``rows``."""
        whole = self._mass(rows)
        value = float((self.shares * part).sum()) / whole
        return _Figure(value, (part - value * rows) / whole)

    def _mass(self, rows: Array) -> float:
        """Returns the share of the ``rows``. Raises ``_Refused`` if they are none, or not to be told from none."""
        mass = float((self.shares * rows).sum())
        if mass <= 0:
            raise _Refused("no row of the model satisfies the condition")
        deviation = self._deviation(rows - mass).value
        if mass < _LEAST_ROWS * deviation:
            raise _Refused(
                f"about {mass * self.knowledge.rows:.0f} rows satisfy the condition, give or take "
                f"{QUANTILE * deviation * self.knowledge.rows:.0f}: too few to say more of them"
            )
        return mass

    def _mean(self, name: str, rows: Array) -> _Figure:
        values = _values_of(self.model.domain, name)
        present = rows * self._on(name, values.present)
        figure = self._ratio(present * self._on(name, values.mean), present)
        weights = self.shares * present
        self._refuse_endless(values, weights)
        doubt = float((weights * self._on(name, values.doubt)).sum() / weights.sum())
        return replace(figure, doubt=doubt)

    def _slope(self, names: Sequence[str], rows: Array) -> _Figure:
        """Returns the least-squares coefficient of the second column for the first, given the further ones."""
        values = [_values_of(self.model.domain, name) for name in names]
        for name, of in zip(names, values, strict=True):
            rows = rows * self._on(name, of.present)
        mass = self._mass(rows)
        means = [of.mean for of in values]
        for of in values:
            self._refuse_endless(of, self.shares * rows)
        slope, influence = self._fit(names, means, rows / mass)
        doubt = 0.0
        # The doubts of all columns' cells, each in its worse direction: columns' means may be off in any pattern.
        for i, of in enumerate(values):
            for code in np.flatnonzero((of.doubt > 0) & (of.present > 0)):
                moved = of.mean.copy()
                moved[code] += of.doubt[code]
                changed = [moved if j == i else mean for j, mean in enumerate(means)]
                doubt += abs(self._fit(names, changed, rows / mass)[0] - slope)
        return _Figure(slope, influence, doubt)

    def _refuse_endless(self, values: _Values, weights: Array) -> None:
        """Raises ``_Refused`` if rows of these ``weights`` lie in a cell without an end, whose mean has no bound."""
        name = values.column.name
        axes = tuple(a for a, other in enumerate(self.columns) if other != name)
        by_code = np.asarray(weights.sum(axis=axes))
        if any(values.endless(code) for code in np.flatnonzero(by_code > 0).tolist()):
            raise _Refused(
                f"rows lie in a cell of {name} that has no end, and how far out is not known: no bound holds for a "
                "mean or a slope; a median, a quantile or a share may have one"
            )

    def _fit(
        self, names: Sequence[str], means: Sequence[Array], rows: Array
    ) -> tuple[float, Array]:
        weights = self.shares * rows
        centred = []
        for name, mean in zip(names, means, strict=True):
            spread = self._on(name, mean)
            centred.append(np.broadcast_to(spread - float((weights * spread).sum()), weights.shape))
        outcome, others = centred[0], np.stack(centred[1:])
        flat = others.reshape(len(others), -1)
        gram = (flat * weights.reshape(-1)) @ flat.T
        scale = np.sqrt(np.diag(gram))
        # A model may leave the cells beside one a share of 1e-200 of the rows: far less than any row.
        ranges = [float(np.ptp(mean)) for mean in means[1:]]
        if (
            not (scale > _LEAST_VARIATION * np.array(ranges)).all()
            or np.linalg.cond(gram / np.outer(scale, scale)) > 1e9
        ):
            raise _Refused("a column does not vary under the condition, or follows from the others")
        inverse = np.linalg.inv(gram)
        coefficients = inverse @ (flat @ (weights * outcome).reshape(-1))
        residual = outcome - np.tensordot(coefficients, others, 1)
        direction = np.tensordot(inverse[0], others, 1)
        return float(coefficients[0]), np.asarray(rows * direction * residual)

    def _quantile(self, measure: _Asked, rows: Array) -> _Quantile:
        name, level = measure.columns[0], measure.level
        values = _values_of(self.model.domain, name)
        if values.parts is None or isinstance(values.column, Categorical):
            raise ConditionError(
                f"column {name!r} has categories, which have no quantiles; expected a column of numbers or dates"
            )
        present = rows * self._on(name, values.present)
        mass = self._mass(present)
        axes = tuple(a for a, other in enumerate(self.columns) if other != name)
        by_code = np.asarray((self.shares * present).sum(axis=axes)) / mass
        column, parts = values.column, values.parts
        order = np.argsort(parts.first, kind="stable")
        first, last, codes = parts.first[order], parts.last[order], parts.codes[order]
        weights = by_code[codes] * parts.shares[order]
        sums = np.cumsum(weights)

        def place(share: float) -> int:
            """Returns the first part up to which there is this share of the rows."""
            found = np.searchsorted(sums, share * (1 - 1e-12))
            return min(int(found), int(np.flatnonzero(weights > 0)[-1]))

        def number_at(share: float) -> float:
            """Returns the number of the column's cells up to which there is this share of the rows."""
            at = place(share)
            part = min(max(float((share - (sums[at] - weights[at])) / weights[at]), 0.0), 1.0)
            return float(first[at] + part * (last[at] - first[at]))

        def value_of(number: float) -> float:
            """Returns the value that a number of the column's cells has."""
            return float(values_at(column, np.array([number]))[0])

        i, number = place(level), number_at(level)
        inside = (level - (sums[i] - weights[i])) / weights[i]
        # The rows below: all of earlier cells, and the part of this one that is below the value.
        below = np.zeros(len(values.present))
        np.add.at(below, codes[:i], parts.shares[order][:i])
        below[codes[i]] += float(np.clip(inside, 0.0, 1.0)) * parts.shares[order][i]
        influence = present * (self._on(name, below) - level) / mass
        step = value_of(math.floor(number) + 1.0) - value_of(math.floor(number))
        width = max(float(last[i] - first[i]), 1.0) * step
        found = self._deviation(influence)
        doubt = RECTANGULAR * OF_A_PART * float(weights[i])
        half = QUANTILE * math.hypot(found.calibrated(LEVEL), doubt)
        ends = tuple(min(max(level + end, 0.0), 1.0) for end in (-half, half))
        low, high = (number_at(end) for end in ends)
        place_doubt = max(value_of(float(last[i])) - value_of(float(first[i])), step)
        if is_chosen(column):
            reached = [int(codes[place(end)]) for end in ends]
            if any(map(values.endless, reached)):
                raise _Refused(
                    f"it may lie in a cell of {name} that has no end, and how far out is not known; count by {name} "
                    "shows the cells"
                )
            ranges = column.cells.ranges
            place_doubt = value_of(ranges[codes[i]][1]) - value_of(ranges[codes[i]][0])
            low, high = ranges[reached[0]][0], ranges[reached[1]][1]
        return _Quantile(
            _Figure(value_of(number), -influence * width / float(weights[i]), place_doubt),
            # Values have whole numbers.
            (value_of(math.floor(low + _ROUNDING)), value_of(math.ceil(high - _ROUNDING))),
            found.basis,
        )

    # Errors.

    def _deviation(self, influence: Array) -> Deviation:
        found = deviation_of(
            np.broadcast_to(influence, self.shares.shape),
            self.shares,
            self.columns,
            knowledge=self.knowledge,
            cliques=self.model.cliques,
        )
        if found.apart is not None:
            one, other = found.apart
            pair = self.knowledge.errors.get((one, other))
            if pair is not None and pair.likely < UNKNOWN:
                raise _Refused(
                    f"the model knows too little of how {', '.join(self.columns)} depend on one another: the likely "
                    f"errors of their pairs, that of {one} and {other} above all, leave no bound for all at once"
                )
            raise _Refused(
                f"the model knows nothing of how {one} and {other} depend on one another: they were not measured "
                "together, and no bound on the error is known"
            )
        return found

    def _cut_doubt(self, measure: _Asked, rows: Array, figure: _Figure) -> float:
        """Returns the doubt from cells that conditions cut: the change of the figure by each cell's doubted share."""
        doubt = 0.0
        for name, limit in self.where.items():
            if name in self.question.by:
                continue
            for code in np.flatnonzero(limit.doubts > 0):
                factor = np.ones(len(limit.shares))
                factor[code] += limit.doubts[code] / limit.shares[code]
                changed = self._figure(measure, rows * self._on(name, factor))
                doubt += abs(changed.value - figure.value)
        for changed_measure in measure.raised():
            doubt += abs(self._figure(changed_measure, rows).value - figure.value)
        return doubt

    def _evidence(self, limits: Mapping[str, Limit]) -> Array:
        found = np.ones((1,) * len(self.columns))
        for name, limit in limits.items():
            found = found * self._on(name, limit.shares)
        return found

    def _on(self, name: str, values: Array) -> Array:
        """Returns values (codes,) of a column over the table's axes."""
        return values.reshape([-1 if other == name else 1 for other in self.columns])

    def _bounds(self, measure: _Asked) -> tuple[float, float]:
        """Returns the least and the largest possible figure."""
        if measure.kind == SHARE:
            return 0.0, 1.0
        if measure.kind == MEAN:
            return _values_of(self.model.domain, measure.columns[0]).range
        if measure.kind == DIFFERENCE and measure.inner is not None:
            least, most = self._bounds(measure.inner)
            return least - most, most - least
        return (0.0 if measure.kind in (COUNT, RATIO, ODDS_RATIO) else -math.inf), math.inf

    def _shown(self, measure: _Asked, number: float) -> float | str:
        if measure.kind in (MEAN, QUANTILES):
            column = column_named(self.model.domain, measure.columns[0])
            if isinstance(column, Moment):
                return number_text(column, round(number))
        return number


def _calibration_of(measure: _Asked) -> Calibration:
    """Returns the calibration of a measure's kind."""
    if measure.kind in (ODDS_RATIO, SLOPE):
        return STEEP
    if measure.kind in (DIFFERENCE, RATIO):
        return CONTRAST
    return LEVEL


def _values_of(domain: Domain, name: str) -> _Values:
    """Returns the numbers of a column. Raises ``ConditionError`` for categories that are no numbers."""
    column = column_named(domain, name)
    absent = np.zeros(column.size)
    if isinstance(column, Categorical):
        numbers = [parse_number(value) for value in column.categories]
        if None in numbers or column.prefix or column.other:
            raise ConditionError(
                f"column {name!r} has categories that are no numbers; expected a column of numbers or dates, or "
                f"a share such as share({name} = {column.values[0]})"
            )
        mean, present = absent.copy(), absent.copy()
        mean[: len(numbers)] = [number or 0.0 for number in numbers]
        present[: len(numbers)] = 1.0
        return _Values(column, mean, absent, present, None)
    parts = ValueParts.of(column)
    first, last = (values_at(column, ends.astype(np.float64)) for ends in (parts.first, parts.last))
    middles, widths = means_of(column, parts), last - first
    mean, doubt, present = absent.copy(), absent.copy(), absent.copy()
    mean[: parts.size] = np.bincount(parts.codes, parts.shares * middles, minlength=parts.size)
    doubt[: parts.size] = np.bincount(parts.codes, parts.shares * widths, minlength=parts.size) / 6
    present[: parts.size] = 1.0
    if is_chosen(column):
        ends = np.array(column.cells.ranges, np.float64)
        doubt[: parts.size] = np.diff(values_at(column, ends), axis=1)[:, 0] / 6
    return _Values(column, mean, doubt, present, parts)


def _difference(one: _Figure, other: _Figure) -> _Figure:
    return _Figure(
        one.value - other.value, one.influence - other.influence, one.doubt + other.doubt
    )


def _logarithm(figure: _Figure) -> _Figure:
    """Returns the logarithm of a figure. Raises ``_Refused`` unless the figure is above 0, by more than its doubt."""
    if figure.value <= figure.doubt:
        raise _Refused(
            "a figure of the ratio is not above 0, or not more than its cells leave open"
        )
    return _Figure(
        math.log(figure.value),
        figure.influence / figure.value,
        -math.log1p(-figure.doubt / figure.value),
    )


def _logit(figure: _Figure) -> _Figure:
    """Returns the logarithm of a share's odds. Raises ``_Refused`` for a share of 0 or 1."""
    share = figure.value
    if not 0 < share < 1:
        raise _Refused(
            "of one of the groups all rows, or none, satisfy the condition: its odds are none"
        )
    return _Figure(math.log(share / (1 - share)), figure.influence / (share * (1 - share)))
