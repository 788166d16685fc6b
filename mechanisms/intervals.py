"""Bounds on the distance of a synthetic table's marginals from the real ones, from released values.

``Released`` and ``Choice`` are the released values of a run; ``marginal_intervals`` bounds the marginals of candidates,
``prefix_bounds`` those of columns whose fine cells were measured. The distance is the L1 distance of normalised
marginals, 0 to 2. All intervals hold at once with probability ``CONFIDENCE``, over the run's noise and choices;
README.md, Intervals, has the statements and proofs.

All values here are public, as post-processing of released values.

Source: McKenna et al. 2022 (AIM), section 6. Our additions: bounds that hold for discrete noise and for adaptively
chosen measurements, positive parts instead of absolute values, owners who arrive later.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Clique
from mechanisms.scores import EXPONENT_BITS, FLOOR_BITS, FRACTION_BITS, LOG2E_SCALED, ScoreSpec
from mechanisms.tails import linear_bound, log_subsets, positive_sum_bound
from mechanisms.workload import Workload

CONFIDENCE = 0.95
LARGEST = 2.0
"""Largest distance of two marginals, reported where nothing is known."""

# Division of the chance of an error, 1 - CONFIDENCE: numbers of rows; upper ends by one measurement, and by means of
# several; lower ends; the last choice, and the measurement of its candidate.
_ROWS, _SINGLE, _MEANS, _LOWER, _CHOSEN, _REMEASURED = 0.1, 0.3, 0.1, 0.1, 0.2, 0.2

# In bits: far above the relative error of a selection's probabilities, on shares and in the clear.
_INEXACT_BITS = 2.0**-15

MEASURED, SELECTION, WIDER, NOTHING = "measured", "selection", "wider", "nothing"
"""Grounds of an upper end.

Measurements of the marginal or of one that contains it; the last round's choice of another candidate; the upper end of
a marginal that contains it; nothing, for the largest possible distance.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Released:
    """A noisy marginal: ``noisy`` float64 (n_q,) counts of candidate ``candidate``, released in round ``round``.

    ``deviation`` is that of the noise of each count, ``rounding`` a further error of each. ``owners`` are the owners of
    the counted rows.
    """

    round: int
    candidate: int
    noisy: NDArray[np.float64]
    deviation: float
    owners: frozenset[int]
    rounding: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The last choice: ``spec`` and the chosen position, with ``released``, its measurement.

    ``share`` is this round's share of the chance of an error: 1 if the last round was fixed beforehand.
    """

    spec: ScoreSpec
    position: int
    released: Released
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Interval:
    """Interval ``low`` .. ``high`` of the distance of one candidate's marginal, with the ``basis`` of ``high``.

    ``deviation`` is that of each count in the best measurement over all owners' rows, None if there is none.
    """

    low: float
    high: float
    basis: str
    deviation: float | None = None


def marginal_intervals(
    workload: Workload,
    synthetic: NDArray[np.float64],
    released: Sequence[Released],
    *,
    owners: frozenset[int],
    rounds: int,
    choice: Choice | None = None,
    sizes: Mapping[int, int] | None = None,
    fine: Sequence[Released] = (),
) -> tuple[Interval, ...]:
    """Returns an interval for each candidate: the distance of ``synthetic`` from the table of all ``owners``.

    ``synthetic`` (workload.cells,) has the synthetic table's counts. ``rounds`` is the largest possible number of
    rounds after round 0. ``sizes`` has the rows of each owner, if they are public. ``prefix_bounds`` explains ``fine``.
    Raises ``ValueError`` without synthetic rows.
    """
    total = float(synthetic[workload.slice(0)].sum())
    if not total > 0:
        raise ValueError("a synthetic table without rows has no marginals")
    shares = synthetic / total
    bounds = _Bounds(workload, released, owners, rounds, sizes, fine)
    found = [bounds.measured(i, shares[workload.slice(i)]) for i in range(len(workload.candidates))]
    if choice is not None:
        for i, high in bounds.not_chosen(choice, shares):
            if high < found[i].high:
                found[i] = replace(found[i], high=high, basis=SELECTION)
    return _consistent(workload, found)


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Bounds on all sums of a candidate's first cells at once: no sum is off by more than ``noise`` rows.

    The table has between ``rows`` rows; ``elsewhere`` is a bound on the share of them that were not yet in it.
    """

    candidate: int
    noise: float
    rows: tuple[float, float]
    elsewhere: float


def prefix_bounds(
    workload: Workload,
    released: Sequence[Released],
    fine: Sequence[Released],
    *,
    owners: frozenset[int],
    rounds: int,
) -> tuple[Prefixes, ...]:
    """Returns bounds for each of ``fine`` with known rows: columns' counts by fine cells, which are no candidates.

    They hold together with the intervals that ``marginal_intervals`` makes of the same measurements. Sums of the first
    k cells are a martingale, so that the bound of the last sum holds for the largest one (Doob).
    """
    bounds = _Bounds(workload, released, owners, rounds, None, fine)
    return tuple(found for one in fine if (found := bounds.prefixes(one)) is not None)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Bounds on the rows of some owners, at least one, and on their share of all owners' rows."""

    low: float
    high: float
    share: float

    @property
    def scales(self) -> tuple[float, float]:
        """1 / rows at both ends: a function that is convex in it is largest at one of them."""
        return 1 / self.high, 1 / self.low

    @property
    def elsewhere(self) -> float:
        """Largest distance of the normalised marginal of these owners from that of all owners."""
        return 2 * (1 - self.share)


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """A candidate's own counts by measurements: ``noisy`` (n_r,), each with noise of ``deviation``.

    ``log_chance`` is the logarithm of the chance that the noise exceeds its bound; ``single`` measurements may be used
    for lower ends, too.
    """

    noisy: NDArray[np.float64]
    deviation: float
    rounding: float
    rows: _Rows
    log_chance: float
    single: bool

    def high(self, shares: NDArray[np.float64]) -> float:
        """Returns an upper bound on the distance of ``shares`` (n_r,) from the marginal.

        Both sum to 1, so that their distance is twice the sum of (s - p)+, to which only cells with synthetic rows
        contribute. With p = (y - noise) / N each term is at most (s - y / N)+ plus the noise's positive part over N.
        """
        present = shares > 0
        cells = int(np.count_nonzero(present))
        noise = self._noise_in(len(shares), cells) + cells * self.rounding
        s, y = shares[present], self.noisy[present]
        # elsewhere + 2 (sum (s - u y)+ + u noise), u = 1 / N at both ends of its interval.
        return self.rows.elsewhere + max(
            2 * (float(np.maximum(s - u * y, 0).sum()) + u * noise) for u in self.rows.scales
        )

    def low(self, shares: NDArray[np.float64]) -> float:
        """Returns a lower bound: twice the sum of s - p over any cells, less the noise that they may have."""
        cells = len(shares)
        u, v = self.rows.scales
        off = shares - (u + v) / 2 * self.noisy
        # The best sets are those with the largest s - y / N; sizes 1, 2, 4, ... are tried.
        order = np.argsort(-off)
        sums = np.cumsum(shares[order]), np.cumsum(self.noisy[order])
        found, chosen = 0.0, 1
        while chosen < cells and off[order[chosen - 1]] > 0:
            # A union bound over the sizes tried and over all subsets of that size.
            log_chance = self.log_chance + math.log(_LOWER / _SINGLE) - math.log(cells)
            log_chance -= log_subsets(cells, chosen)
            noise = linear_bound(chosen, self.deviation, log_chance=log_chance)
            noise += chosen * self.rounding
            s, y = (float(sum_[chosen - 1]) for sum_ in sums)
            found = max(found, min(2 * (s - w * y - w * noise) for w in (u, v)))
            chosen *= 2
        return found - self.rows.elsewhere

    def _noise_in(self, cells: int, present: int) -> float:
        """Returns a bound on the sum of the positive parts of the noise in the ``present`` cells with synthetic rows.

        These cells may depend on the noise. The bound is the smaller of the bounds for all cells and for all subsets of
        that size.
        """
        half = self.log_chance - math.log(2)
        everywhere = positive_sum_bound(cells, self.deviation, log_chance=half)
        if present == cells:
            return everywhere
        some = half - math.log(cells) - log_subsets(cells, present)
        return min(everywhere, positive_sum_bound(present, self.deviation, log_chance=some))


class _Bounds:
    """Bounds of one run; each event that they use has a fixed share of the chance of an error."""

    def __init__(
        self,
        workload: Workload,
        released: Sequence[Released],
        owners: frozenset[int],
        rounds: int,
        sizes: Mapping[int, int] | None,
        fine: Sequence[Released],
    ) -> None:
        self._workload = workload
        self._owners = owners
        self._rounds = rounds + 1
        self._sizes = sizes
        self._in_round = Counter(r.round for r in (*released, *fine))
        self._levels = sorted({r.deviation for r in released}, reverse=True)
        self._totals = [] if sizes is not None else list(self._totals_of([*released, *fine]))
        self._rows: dict[frozenset[int], _Rows | None] = {}
        self._numbers = {q: i for i, q in enumerate(workload.candidates)}
        # The number of candidates that contain each one, including itself, and the measurements of these.
        self._wider = Counter(i for q in workload.candidates for i in self._inside(q))
        self._of: dict[int, list[Released]] = {}
        for one in released:
            for i in self._inside(workload.candidates[one.candidate]):
                self._of.setdefault(i, []).append(one)

    def measured(self, candidate: int, shares: NDArray[np.float64]) -> Interval:
        """Returns a candidate's interval from the measurements that contain it (Theorem 3)."""
        single = list(self._single(candidate))
        views = [*single, *self._means(candidate, single)]
        high = min((view.high(shares) for view in views), default=LARGEST)
        low = max((view.low(shares) for view in single), default=0.0)
        whole = [view.deviation for view in views if view.rows.share == 1]
        basis = MEASURED if high < LARGEST else NOTHING
        return Interval(max(0.0, low), min(high, LARGEST), basis, min(whole, default=None))

    def prefixes(self, one: Released) -> Prefixes | None:
        """Returns bounds on the first cells of a measurement of fine cells, whose missing values come last."""
        rows = self._rows_of(one.owners)
        if rows is None:
            return None
        events = self._rounds * self._in_round[one.round]
        log_chance = self._log_share(_SINGLE / events) - math.log(2)
        cells = one.noisy.size
        noise = linear_bound(cells, one.deviation, log_chance=log_chance) + cells * one.rounding
        return Prefixes(one.candidate, noise, (rows.low, rows.high), rows.elsewhere / 2)

    def not_chosen(
        self, choice: Choice, shares: NDArray[np.float64]
    ) -> Iterator[tuple[int, float]]:
        """Yields upper ends, by candidate, that follow from the choice of another one (Theorem 5)."""
        spec, one = choice.spec, choice.released
        rows = self._rows_of(one.owners)
        # A weight is never below 2^-FLOOR_BITS of the best one's: nothing is known of rarer events.
        log_chance = self._log_share(_CHOSEN) + math.log(choice.share)
        bits = (math.log(len(spec.candidates)) - log_chance) / math.log(2) + _INEXACT_BITS
        if rows is None or bits > FLOOR_BITS:
            return
        parts = np.split(spec.answers / 2**FRACTION_BITS, np.cumsum(spec.sizes)[:-1])
        # The distance, in rows, between the model and the chosen marginal; the noise of the later measurement hides
        # little.
        cells = one.noisy.size
        log_chance = self._log_share(_REMEASURED) + math.log(choice.share)
        off = float(np.abs(one.noisy - parts[choice.position]).sum()) + cells * one.rounding
        off += linear_bound(cells, one.deviation, log_chance=log_chance)
        gain, offset = spec.gains[choice.position], spec.offsets[choice.position]
        # The best score exceeds that of the choice by at most this many bits.
        best = gain * off * 2**FRACTION_BITS - offset + bits * 2**EXPONENT_BITS / LOG2E_SCALED
        for q, answers, gain, offset in zip(
            spec.candidates, parts, spec.gains, spec.offsets, strict=True
        ):
            if gain > 0:
                at_most = max(0.0, best + offset) / gain / 2**FRACTION_BITS
                at_most = min(at_most, off) if q == one.candidate else at_most
                s = shares[self._workload.slice(q)]
                yield (
                    q,
                    rows.elsewhere
                    + max(float(np.abs(s - u * answers).sum()) + u * at_most for u in rows.scales),
                )

    def _single(self, candidate: int) -> Iterator[_View]:
        """Yields a candidate's counts by each measurement that contains it."""
        names = self._workload.candidates[candidate]
        for one in self._of.get(candidate, ()):
            rows = self._rows_of(one.owners)
            if rows is None:
                continue
            clique = self._workload.candidates[one.candidate]
            axes = tuple(i for i, name in enumerate(clique) if name not in names)
            table = one.noisy.reshape(self._workload.domain.sizes(clique)).sum(axis=axes)
            merged = one.noisy.size // table.size
            # The share of its round, divided among the round's measurements and, for each, all subsets that it
            # contains.
            events = self._rounds * self._in_round[one.round] * (2 ** len(clique) - 1)
            yield _View(
                table.reshape(-1),
                one.deviation * math.sqrt(merged),
                one.rounding * merged,
                rows,
                self._log_share(_SINGLE / events),
                True,
            )

    def _means(self, candidate: int, single: Sequence[_View]) -> Iterator[_View]:
        """Yields means, weighted by precision, of the two, three, ... best measurements of one kind.

        The choice of measurements may depend on their values, so each bound is for every set that could have been
        chosen.
        """
        kinds: dict[tuple[frozenset[int], float], list[_View]] = {}
        released = [o for o in self._of.get(candidate, ()) if self._rows_of(o.owners) is not None]
        for one, view in zip(released, single, strict=True):
            kinds.setdefault((one.owners, one.deviation), []).append(view)
        places = self._wider[candidate] * self._rounds
        for (_, deviation), views in kinds.items():
            level = self._levels.index(deviation)
            ordered = sorted(views, key=lambda view: view.deviation)
            for number in range(2, len(ordered) + 1):
                log_chance = self._log_share(_MEANS / len(self._workload.candidates))
                log_chance -= math.log(2) * (number + level) + log_subsets(places, number)
                yield _mean(ordered[:number], log_chance)

    def _rows_of(self, owners: frozenset[int]) -> _Rows | None:
        """Returns bounds on the rows of ``owners``; None if they may have none."""
        if owners not in self._rows:
            low, high = self._between(owners)
            least, most = self._between(self._owners)
            share = 1.0 if owners >= self._owners else low / most
            if self._sizes is not None and least:
                share = min(1.0, low / least)
            self._rows[owners] = _Rows(low, high, min(1.0, share)) if low >= 1 else None
        return self._rows[owners]

    def _between(self, owners: frozenset[int]) -> tuple[float, float]:
        """Returns the least and the largest possible number of rows of ``owners``."""
        if self._sizes is not None:
            rows = float(sum(self._sizes[owner] for owner in owners))
            return rows, rows
        return (
            max((low for of, low, _ in self._totals if of <= owners), default=0.0),
            min((high for of, _, high in self._totals if of >= owners), default=math.inf),
        )

    def _totals_of(
        self, released: Sequence[Released]
    ) -> Iterator[tuple[frozenset[int], float, float]]:
        """Yields owners with bounds on their rows, by round, from all sums that were released for them."""
        kinds: dict[tuple[int, frozenset[int]], list[Released]] = {}
        for one in released:
            kinds.setdefault((one.round, one.owners), []).append(one)
        in_round = Counter(round for round, _ in kinds)
        for (round, owners), sums in kinds.items():
            log_chance = self._log_share(_ROWS / (self._rounds * in_round[round])) - math.log(2)
            # The mean by inverse variance; the variance of a sum of n counts is n sigma^2.
            weights = [1 / (one.noisy.size * one.deviation**2) for one in sums]
            values = [math.fsum(one.noisy.tolist()) for one in sums]
            rows = sum(w * value for w, value in zip(weights, values, strict=True)) / sum(weights)
            off = linear_bound(1, sum(weights) ** -0.5, log_chance=log_chance)
            off += max(one.noisy.size * one.rounding for one in sums)
            yield owners, rows - off, rows + off

    def _inside(self, candidate: Clique) -> Iterator[int]:
        """Yields the numbers of all candidates that a candidate contains, including itself."""
        for size in range(1, len(candidate) + 1):
            for names in itertools.combinations(candidate, size):
                yield self._numbers[names]

    @staticmethod
    def _log_share(share: float) -> float:
        """Returns the logarithm of a share of the chance of an error."""
        return math.log((1 - CONFIDENCE) * share)


def _mean(views: Sequence[_View], log_chance: float) -> _View:
    """Returns the mean of views of the same owners, by inverse variance."""
    weights = [view.deviation**-2 for view in views]
    total = sum(weights)
    parts = [w / total for w in weights]
    return _View(
        np.asarray(sum(part * view.noisy for part, view in zip(parts, views, strict=True))),
        total**-0.5,
        sum(part * view.rounding for part, view in zip(parts, views, strict=True)),
        views[0].rows,
        log_chance,
        False,
    )


def _consistent(workload: Workload, found: Sequence[Interval]) -> tuple[Interval, ...]:
    """Returns the intervals made consistent: a marginal is no farther away than one that contains it."""
    numbers = {q: i for i, q in enumerate(workload.candidates)}
    intervals = list(found)
    for q in reversed(workload.candidates):
        high = intervals[numbers[q]].high
        for i in _one_less(q, numbers):
            if high < intervals[i].high:
                intervals[i] = replace(intervals[i], high=high, basis=WIDER)
    for q in workload.candidates:
        within = max((intervals[i].low for i in _one_less(q, numbers)), default=0.0)
        own = intervals[numbers[q]]
        # Both ends hold at once with the same probability; if they contradict each other, one of them does not hold.
        intervals[numbers[q]] = replace(own, low=min(max(own.low, within), own.high))
    return tuple(intervals)


def _one_less(clique: Clique, numbers: Mapping[Clique, int]) -> list[int]:
    """Returns the candidates that lack one of a candidate's columns."""
    return [numbers[names] for names in itertools.combinations(clique, len(clique) - 1) if names]
