"""Annealed schedules: rounds become finer once the model has learnt all that the present noise can show.

``AnnealedPlan`` is a ``Schedule`` (``mechanisms.accounting``).

All values here are public. Decisions depend on released measurements and models alone, so that all servers with the
same models decide alike.

Source: McKenna et al. 2022 (AIM) and FLAIM paper, Algorithm 2, lines 17 to 20. Feldman, Zrnic 2021: adaptively chosen
costs add up like fixed ones as long as their sum never passes the budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from mechanisms.accounting import (
    ZCDP,
    Accountant,
    Plan,
    Variant,
    fixed_rounds_plan,
    largest_epsilon,
    least_sigma,
)
from mechanisms.events import (
    GRID_SLACK,
    Event,
    ExponentialEvent,
    NoiseKind,
    measurement_event,
    noise_deviation,
)

# Rounds per column that the budget would last for if nothing were ever annealed.
CENTRAL_ROUNDS = 16
FEDERATED_ROUNDS = 8

# Noise of one row hides a row and little else: finer noise teaches nothing more.
SMALLEST_SIGMA = 1.0

# Two rounds that fit up to rounding count as two rounds.
_ALMOST = 1 - Fraction(1, 10**9)


@dataclass(frozen=True, slots=True)
class _Step:
    """Parameters of one round."""

    sigma: float
    epsilon: float


class AnnealedPlan:
    """A ``Schedule`` that refines its rounds whenever the model has settled; the last round takes the rest.

    A refined round has half the sigma and twice the epsilon. The first round is that of Lemma 4.1 for T =
    ``rounds_per_column`` d. A round is the last one if less than twice its cost is left; it then uses all of the rest,
    in the same shares. Variants, local rounds and ``initial_share`` are those of ``Plan``.

    With ``tree_rounds`` these rounds come first, all alike: they have ``tree_share`` of the budget that round 0 leaves,
    and the other rounds share the rest; together there are at most T rounds.

    A plan that ``may_fall_back``, and whose first round is ``settled``, has rounds of single columns alone: the budget
    that round 0 leaves is divided evenly over one more measurement of each column.

    State: the rounds decided so far; ``rounds``, the last round if known, else T; the loss recorded by ``write_off``.
    Raises ``ValueError`` if a number is out of range or the variant selects nothing.
    """

    def __init__(
        self,
        budget: float,
        columns: int,
        *,
        rounds_per_column: int = CENTRAL_ROUNDS,
        measure_share: float = 0.9,
        selection_slack: float = GRID_SLACK,
        noise: NoiseKind = "box-muller",
        variant: Variant = "aim",
        local_rounds: int = 1,
        local_measurements: int = 0,
        initial_share: float | None = None,
        tree_rounds: int = 0,
        tree_share: float = 0.0,
        may_fall_back: bool = False,
        accountant: Accountant = ZCDP,
    ) -> None:
        if not 0 <= tree_share < 1:
            raise ValueError(f"tree_share = {tree_share}; it lies between 0 and 1")
        if not 0 <= tree_rounds < rounds_per_column * columns:
            raise ValueError(f"tree_rounds = {tree_rounds}; there are fewer than all")
        self._first: Plan = fixed_rounds_plan(
            budget,
            rounds_per_column * columns,
            columns,
            measure_share=measure_share,
            selection_slack=selection_slack,
            noise=noise,
            variant=variant,
            local_rounds=local_rounds,
            local_measurements=local_measurements,
            initial_share=initial_share,
            accountant=accountant,
        )
        if not self._first.selects:
            raise ValueError(f"variant = {variant!r} selects nothing, so that nothing can settle")
        self._share = Fraction(measure_share)
        self._lost = Fraction(0)
        self.tree_rounds: int = tree_rounds if tree_share else 0
        self.rounds: int = self._first.rounds
        self._steps: list[_Step] = []
        self._start = self._joining = _Step(self._first.sigma, self._first.epsilon)
        left = Fraction(self.rho) - self._initial()
        if self.tree_rounds:
            joining = Fraction(tree_share) * left
            self._joining = self._dividing(joining / self.tree_rounds)
            left -= joining
        if self.tree_rounds or initial_share is not None:
            self._start = self._dividing(left / (self._first.rounds - self.tree_rounds))
        self._alone = False
        self._even: _Step | None = None
        if may_fall_back:
            even = self._dividing((Fraction(self.rho) - self._initial()) / columns)
            self._even = even if self._possible(even) else None

    def __repr__(self) -> str:
        return f"AnnealedPlan(rho={self.rho}, decided={len(self._steps)}, sigma={self.sigma:.4g})"

    @property
    def rho(self) -> float:
        """See ``Schedule.rho``."""
        return self._first.rho

    @property
    def accountant(self) -> Accountant:
        """See ``Schedule.accountant``."""
        return self._first.accountant

    @property
    def noise(self) -> NoiseKind:
        """See ``Schedule.noise``."""
        return self._first.noise

    @property
    def _now(self) -> _Step:
        return self._steps[-1] if self._steps else self._following()[0]

    @property
    def sigma(self) -> float:
        """See ``Schedule.sigma``."""
        return self._now.sigma

    @property
    def initial_sigma(self) -> float:
        """See ``Schedule.initial_sigma``."""
        return self._first.initial_sigma

    @property
    def initial(self) -> Event:
        """See ``Schedule.initial``."""
        return self._first.initial

    @property
    def noise_sigma(self) -> float:
        """See ``Schedule.noise_sigma``."""
        return noise_deviation(self.noise, self.sigma)

    @property
    def epsilon(self) -> float:
        """See ``Schedule.epsilon``."""
        return self._now.epsilon

    @property
    def measurement(self) -> Event:
        """See ``Schedule.measurement``."""
        return measurement_event(self.noise, self.sigma)

    @property
    def selection(self) -> ExponentialEvent:
        """See ``Schedule.selection``."""
        return ExponentialEvent(self.epsilon + self._first.selection_slack)

    @property
    def adaptive(self) -> bool:
        """True."""
        return True

    @property
    def columns_alone(self) -> bool:
        """See ``Schedule.columns_alone``."""
        return self._alone

    @property
    def reach(self) -> tuple[float, float]:
        """See ``Schedule.reach``: the finest possible step, and a last round of half or twice a step's cost."""
        sigmas = [step.sigma for step in (*self._finest(), self._coarsest())]
        return min(*sigmas, self.initial_sigma), max(*sigmas, self.initial_sigma)

    @property
    def sharpest(self) -> float:
        """See ``Schedule.sharpest``."""
        return max(step.epsilon for step in self._finest())

    @property
    def cheapest(self) -> tuple[Event, ...]:
        """See ``Schedule.cheapest``."""
        selection = ExponentialEvent(self._coarsest().epsilon + self._first.selection_slack)
        return measurement_event(self.noise, self.reach[1]), selection

    def events(self, round: int) -> tuple[Event, ...]:
        """See ``Schedule.events``. Raises ``ValueError`` for a round that is not decided yet."""
        if round == 0:
            return self._first.events(0)
        if not 1 <= round <= len(self._steps):
            raise ValueError(f"round {round} is not decided yet; {len(self._steps)} rounds are")
        return self._events(self._steps[round - 1])

    def spent_after(self, round: int) -> float:
        """See ``Schedule.spent_after``; never above ``rho``."""
        decided = [self._cost(step) for step in self._steps[:round]]
        further = (round - len(decided)) * self._cost(self._now)
        return min(self.rho, float(self._initial() + sum(decided) + further))

    def resume(self, sigmas: Sequence[float]) -> None:
        """See ``Schedule.resume``. Raises ``ValueError`` for deviations that no such plan reaches."""
        if not sigmas:
            return
        self._steps, self.rounds = [], self._first.rounds
        self._alone = self._even is not None and sigmas[0] == self._even.sigma
        for round, sigma in enumerate(sigmas, start=1):
            last = self._now
            following = {step.sigma: step for step in self._following()}
            if sigma not in following and round < len(sigmas):
                raise ValueError(
                    f"round {round} was measured with sigma {sigma:g}, by another plan"
                )
            if sigma not in following:
                # The last round took all that was left; its exact parameters no longer matter.
                self.rounds = round
            self._steps.append(following.get(sigma, _Step(sigma, last.epsilon)))

    def write_off(self, charged: Sequence[float], *, initial: int, sigmas: Sequence[float]) -> None:
        """See ``Schedule.write_off``: the lost part is not divided again."""
        self.resume(sigmas)
        released = initial * Fraction(self.accountant.cost(self._first.initial))
        released += sum((self._cost(step) for step in self._steps), Fraction(0))
        self._lost = max(Fraction(0), sum(map(Fraction, charged), Fraction(0)) - released)

    def advance(self, round: int, *, settled: bool) -> None:
        """See ``Schedule.advance``. Raises ``ValueError`` for any round but the next."""
        if round > self.rounds:
            raise ValueError(f"round {round} does not take place; round {self.rounds} is the last")
        if round != len(self._steps) + 1:
            raise ValueError(f"round {round} cannot be decided; {len(self._steps)} rounds are")
        same, finer = self._following()
        step = finer if settled and self._possible(finer) else same
        # Also if so little is left that this round is the last, and its step another one.
        self._alone |= not self._steps and step is self._even
        self._decide(step)

    def _following(self) -> tuple[_Step, _Step]:
        """Returns the candidates for the next round: the present step, and the finer one once the model has settled.

        The budget that is left may decide otherwise.
        """
        if self._alone and self._steps:
            return self._steps[0], self._steps[0]
        usual = self._joining if len(self._steps) < self.tree_rounds else self._start
        if not self._steps:
            return usual, self._even or usual
        if len(self._steps) <= self.tree_rounds:
            return usual, usual
        return self._steps[-1], _finer(self._steps[-1])

    def _decide(self, step: _Step) -> None:
        """Makes ``step`` the next round, or the last one with all that is left, or ends the run before it."""
        left = Fraction(self.rho) - self._initial() - self._lost
        left -= sum((self._cost(decided) for decided in self._steps), Fraction(0))
        if left < self._cheapest_cost / 2:
            self.rounds = len(self._steps)
            return
        if left < 2 * self._cost(step) * _ALMOST:
            self.rounds = len(self._steps) + 1
            step = self._dividing(left)
        self._steps.append(step)

    @property
    def _cheapest_cost(self) -> Fraction:
        return min(self._cost(self._start), self._cost(self._joining))

    def _dividing(self, left: Fraction) -> _Step:
        """Returns the step of a round that costs all of ``left``."""
        events = self._events(self._start)
        selections = sum(isinstance(event, ExponentialEvent) for event in events)
        measuring = self._share * left / (len(events) - selections)
        choosing = (1 - self._share) * left / selections
        return _Step(
            least_sigma(measuring, self.noise, self.accountant),
            largest_epsilon(choosing, self._first.selection_slack, self.accountant),
        )

    def _finest(self) -> tuple[_Step, ...]:
        """Returns the finest possible steps: of each kind of round, and of a last round after it."""
        finest = self._start
        while self._possible(_finer(finest)):
            finest = _finer(finest)
        steps = [step for step in (finest, self._joining, self._even) if step is not None]
        return *steps, *(self._dividing(2 * self._cost(step)) for step in steps)

    def _possible(self, step: _Step) -> bool:
        """Returns whether a step's noise is coarse enough to be of use and to be charged."""
        if step.sigma < SMALLEST_SIGMA:
            return False
        return self.accountant.cost(measurement_event(self.noise, step.sigma)) < math.inf

    def _coarsest(self) -> _Step:
        """Returns the coarsest step, including a last round of half the cheapest cost.

        ``_decide`` makes no last round of less.
        """
        steps = self._dividing(self._cheapest_cost / 2), self._start, self._joining
        return _Step(max(step.sigma for step in steps), min(step.epsilon for step in steps))

    def _events(self, step: _Step) -> tuple[Event, ...]:
        return self._first.round_events(step.epsilon, measurement_event(self.noise, step.sigma))

    def _cost(self, step: _Step) -> Fraction:
        return self._sum(self._events(step))

    def _initial(self) -> Fraction:
        return self._sum(self._first.events(0))

    def _sum(self, events: Sequence[Event]) -> Fraction:
        return sum((Fraction(self.accountant.cost(event)) for event in events), Fraction(0))


def _finer(step: _Step) -> _Step:
    return _Step(step.sigma / 2, step.epsilon * 2)
