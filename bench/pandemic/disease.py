"""An epidemic among a state's persons: susceptible, infectious, removed, day by day.

Provides ``spread`` and the states S, I, R. Public: generated from a seed.

Model: who is infectious exposes each contact for its hours a day, which count a fifth outside of homes, where one
keeps further away. A susceptible person with h hours of exposure, weighted by age, falls ill that day with
probability 1 - exp(-beta_t h), and is infectious for 3 days and geometrically many more. The rate beta_t moves from
day to day, as behaviour and rules do, so that the expected number of new infections follows a given curve: who falls
ill is up to the contacts, how many is the same in a state of any size. Limits: that curve is an assumption, with the
proportions that the task states: under 5 % ever infected, some 0.3 % in the last week.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.pandemic.graph import Arcs, State, arcs_of

S, I, R = range(3)  # noqa: E741

# What an hour counts at each of PLACES.
_CLOSENESS = np.array([1.0, 0.2, 0.2, 0.2])
# Shares of all: infectious on day 0, newly infected in the last of DAYS_KNOWN days' weeks; growth from week to week.
_SEEDS = 0.002
_IN_THE_LAST_WEEK = 0.003
_GROWTH = 1.08
DAYS_KNOWN = 63


def spread(state: State, days: int, seed: int, arcs: Arcs | None = None) -> NDArray[np.uint8]:
    """The states (days, n) of all persons, each S, I or R. ``arcs`` are those of all contacts, if there already."""
    arcs = arcs or arcs_of(state.ends, state.persons)
    rng = np.random.default_rng(seed)
    persons = state.persons
    close = state.hours * _CLOSENESS[state.place]
    states = np.full((days, persons), S, np.uint8)
    # The day on which each one becomes infectious, and removed; never, to begin with.
    infected, removed = np.full((2, persons), days, dtype=np.int64)
    susceptibility = np.where(state.age < 18, 0.8, np.where(state.age < 60, 1.0, 1.5))
    new = np.flatnonzero(rng.random(persons) < _SEEDS)
    for day in range(days):
        infected[new] = day
        removed[new] = day + 3 + rng.geometric(0.3, len(new))
        states[day] = np.where(infected > day, S, np.where(removed > day, I, R))
        expected = persons * _IN_THE_LAST_WEEK / 7 * _GROWTH ** ((day - DAYS_KNOWN + 4) / 7)
        hours = _exposure(arcs, close, np.flatnonzero(states[day] == I))
        hours *= susceptibility * (states[day] == S)
        exposed = np.flatnonzero(hours)
        chance = -np.expm1(-_rate(hours[exposed], expected) * hours[exposed])
        new = exposed[rng.random(len(exposed)) < chance]
    return states


def _exposure(
    arcs: Arcs, hours: NDArray[np.float64], infectious: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Hours a day (n,), as they count, that each person is with infectious ones."""
    count = arcs.first[infectious + 1] - arcs.first[infectious]
    # The places of all their arcs: each one's first, and on from there.
    before = np.cumsum(count) - count
    places = np.arange(count.sum()) + np.repeat(arcs.first[infectious] - before, count)
    met, weights = arcs.other[places], hours[arcs.contact[places]]
    return np.asarray(np.bincount(met, weights, minlength=arcs.persons), np.float64)


def _rate(hours: NDArray[np.float64], expected: float) -> float:
    """The rate at which ``expected`` persons fall ill, by Newton's method; no more than half of those exposed do."""
    expected = min(expected, len(hours) / 2)
    rate = 0.0
    for _ in range(20):
        well = np.exp(-rate * hours)
        slope = float((hours * well).sum())
        if slope == 0:
            break
        rate += (expected - float((1 - well).sum())) / slope
    return rate
