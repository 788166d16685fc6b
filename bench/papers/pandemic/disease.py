"""An epidemic among a state's persons: susceptible, infectious, removed, day by day.

All values here are public: generated from a seed.

Model: an infectious person exposes each contact for its hours a day, which count less outside of homes, where people
keep further away. A susceptible person with h hours of exposure, times exp(a + o + c) for age, hours out and size of
the household (the young, who go out and live with many, are infected most), falls ill that day with probability
1 - exp(-beta_t h), and is infectious for 3 days and geometrically many more. The rate beta_t moves from
day to day, as behaviour and rules do, so that the expected number of new infections follows a given curve: contacts
decide on the persons that fall ill, and the curve on their number, in a state of any size. Limits: that curve is an
assumption, with the proportions that the task states: under 5 % ever infected, some 0.3 % in the last week. So are
the weights, by which a linear model of 100,000 persons' examples reaches some ten times the precision of random scores
(docs/decisions/0325).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.papers.pandemic.graph import Arcs, State, arcs_of

S, I, R = range(3)  # noqa: E741

# Weight of an hour at each of PLACES.
_CLOSENESS = np.array([1.0, 0.6, 0.6, 0.6])
# Log of a person's susceptibility: for 100 years of age, 16 hours out, and six persons in the household.
_AGE, _OUT, _HOUSEHOLD = -6.0, 5.0, 5.0
# Shares of all: infectious on day 0, newly infected in the last of DAYS_KNOWN days' weeks; growth from week to week.
_SEEDS = 0.002
_IN_THE_LAST_WEEK = 0.003
_GROWTH = 1.08
DAYS_KNOWN = 63


def spread(state: State, days: int, seed: int, arcs: Arcs | None = None) -> NDArray[np.uint8]:
    """Returns the states (days, n) of all persons, each S, I or R. ``arcs`` are those of all contacts, if at hand."""
    arcs = arcs or arcs_of(state.ends, state.persons)
    rng = np.random.default_rng(seed)
    persons = state.persons
    close = state.hours * _CLOSENESS[state.place]
    states = np.full((days, persons), S, np.uint8)
    # Day on which each person becomes infectious, and removed; never, to begin with.
    infected, removed = np.full((2, persons), days, dtype=np.int64)
    susceptibility = np.exp(
        _AGE * state.age / 100 + _OUT * state.hours_out / 16 + _HOUSEHOLD * state.household / 6
    )
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
    """Returns the weighted hours a day (n,) that each person is with infectious ones."""
    count = arcs.first[infectious + 1] - arcs.first[infectious]
    # Indices of all their arcs: each person's first arc, and on from there.
    before = np.cumsum(count) - count
    places = np.arange(count.sum()) + np.repeat(arcs.first[infectious] - before, count)
    met, weights = arcs.other[places], hours[arcs.contact[places]]
    return np.asarray(np.bincount(met, weights, minlength=arcs.persons), np.float64)


def _rate(hours: NDArray[np.float64], expected: float) -> float:
    """Returns the rate at which ``expected`` persons fall ill, by Newton's method; at most half of the exposed do."""
    expected = min(expected, len(hours) / 2)
    rate = 0.0
    for _ in range(20):
        well = np.exp(-rate * hours)
        slope = float((hours * well).sum())
        if slope == 0:
            break
        rate += (expected - float((1 - well).sum())) / slope
    return rate
