"""Privacy cost of a release for a row that is replaced by another one, where all tables have one size.

All values here are public.

Events are for one row more or less, which moves one cell of a marginal by 1 and a choice's scores by half their
epsilon. A replaced row leaves one cell and enters another: README.md, FLAIM, has the derivation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from mechanisms.accounting import rho
from mechanisms.events import (
    DiscreteLaplaceEvent,
    Event,
    ExponentialEvent,
    SumOfDiscreteGaussiansEvent,
)

# Rounded up, as all charges are.
_ROOT_2 = math.nextafter(math.sqrt(2), 2.0)


def replaced(event: Event) -> Event:
    """Returns the event with the sensitivity of replacing a row.

    Noisy counts: two cells move, by the same amount, hence sqrt(2) times as far in Euclidean norm, and twice as far in
    L1, the norm of Laplace noise. A choice: every score moves by twice as much, hence twice the epsilon.
    """
    if isinstance(event, ExponentialEvent):
        return ExponentialEvent(2 * event.epsilon)
    if isinstance(event, DiscreteLaplaceEvent):
        return replace(event, sensitivity=2 * event.sensitivity)
    sensitivity = event.sensitivity * _ROOT_2
    if isinstance(event, SumOfDiscreteGaussiansEvent):
        return replace(event, sensitivity=sensitivity, cells=2 * event.cells)
    return replace(event, sensitivity=sensitivity)


def rho_of_replacing(events: Iterable[Event]) -> float:
    """Returns the cost of ``events`` for a replaced row: twice the rho of counts, four times that of choices."""
    return math.fsum(rho(replaced(event)) for event in events)
