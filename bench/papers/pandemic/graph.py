"""A made-up state: persons in households, and their contacts at home, at work, at school and in shops.

``Arcs`` has each contact from both of its ends, in a public order. All values here are public: they are generated from
a seed.

Representation: persons are numbered by region, household by household. Contacts are pairs of persons, each with the
place, the hour it starts and how long it lasts. Sizes of households, ages and places are drawn alike in all regions;
persons that work in another region make the edges between silos. Limits: one day's contacts recur every day; a pair
that meets in two places has two contacts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PLACES = ("home", "work", "school", "shopping")
HOME, WORK, SCHOOL, SHOPPING = range(len(PLACES))

# Households of 1 to 6 persons.
_HOUSEHOLDS = (0.28, 0.35, 0.15, 0.13, 0.06, 0.03)
_WORKS_ELSEWHERE = 0.15


@dataclass(frozen=True, slots=True)
class _Place:
    """Meetings at a place: in groups of ``group`` persons, each with the ``reach`` next ones on either side.

    Contacts begin in the hours ``start`` (the last one excluded) and take ``lasts`` hours.
    """

    group: int
    reach: int
    start: tuple[int, int]
    lasts: tuple[float, float]


_MEETINGS = {
    HOME: _Place(6, 5, (17, 20), (6.0, 12.0)),
    WORK: _Place(60, 30, (8, 12), (0.2, 4.0)),
    SCHOOL: _Place(40, 39, (8, 10), (0.5, 5.0)),
    SHOPPING: _Place(80, 17, (10, 20), (0.1, 0.6)),
}


@dataclass(frozen=True, slots=True)
class State:
    """Persons (n,) and their contacts (m,).

    ``household`` is its size; ``goes`` (n, 4): True if a person is ever at each of ``PLACES``. ``ends`` (m, 2): the two
    persons of a contact. ``start`` is an hour of the day.
    """

    region: NDArray[np.uint8]
    age: NDArray[np.uint8]
    female: NDArray[np.bool_]
    household: NDArray[np.uint8]
    hours_out: NDArray[np.uint8]
    goes: NDArray[np.bool_]
    ends: NDArray[np.int32]
    place: NDArray[np.uint8]
    start: NDArray[np.uint8]
    hours: NDArray[np.float32]

    @property
    def persons(self) -> int:
        """Number of persons."""
        return len(self.region)


@dataclass(frozen=True, slots=True)
class Arcs:
    """Contacts from each end: a person's are ``first[i]`` to ``first[i + 1]`` of ``other`` (persons) and ``contact``.

    Each person's are in the order of ``priority``, so that a prefix of them is a choice that anybody can repeat and
    that no data but the two numbers of the persons decide.
    """

    first: NDArray[np.int64]
    other: NDArray[np.int32]
    contact: NDArray[np.int32]

    @property
    def persons(self) -> int:
        """Number of persons."""
        return len(self.first) - 1


def make_state(persons: int, regions: int, seed: int) -> State:
    """Makes a state of ``persons`` in regions of different sizes; some 24 contacts a person, 48 ends.

    Raises ``ValueError`` for fewer than 100 persons a region, or more than 255 regions.
    """
    if not (1 <= regions <= 255 and persons >= 100 * regions):
        raise ValueError(
            f"{persons} persons in {regions} regions; expected 1 to 255 regions of 100 persons and more"
        )
    rng = np.random.default_rng(seed)
    sizes = rng.choice(np.arange(1, 7), size=persons, p=_HOUSEHOLDS)
    home = np.repeat(np.arange(persons), sizes)[:persons]
    household = np.bincount(home)[home].astype(np.uint8)
    place_in_home = np.arange(persons) - np.searchsorted(home, home)
    # Most of those beyond the first two of a household are children.
    child = (place_in_home >= 2) & (rng.random(persons) < 0.85)
    age = np.where(child, rng.integers(0, 18, persons), rng.integers(18, 91, persons)).astype(
        np.uint8
    )
    share = np.cumsum(rng.uniform(0.5, 1.5, regions))
    # A household lies in the region of its first member.
    starts = np.searchsorted(home, home) / persons * share[-1]
    region = np.searchsorted(share, starts, side="right").clip(max=regions - 1).astype(np.uint8)

    goes = np.zeros((persons, len(PLACES)), np.bool_)
    goes[:, HOME] = True
    chance = rng.random((persons, 3))
    goes[:, SCHOOL] = ((age >= 5) & (age < 18)) | ((age >= 18) & (age < 23) & (chance[:, 0] < 0.4))
    goes[:, WORK] = (age >= 18) & (age < 67) & ~goes[:, SCHOOL] & (chance[:, 1] < 0.85)
    goes[:, SHOPPING] = (age >= 14) & (chance[:, 2] < 0.8)
    hours_out = (6 * goes[:, SCHOOL] + 8 * goes[:, WORK] + goes[:, SHOPPING]).astype(np.uint8)
    hours_out += rng.integers(0, 3, persons).astype(np.uint8)

    contacts = [_meetings(home, HOME, np.arange(persons), rng)]
    for place in (WORK, SCHOOL, SHOPPING):
        there = np.flatnonzero(goes[:, place])
        where = region[there].astype(np.int64)
        if place == WORK:
            elsewhere = rng.random(len(there)) < _WORKS_ELSEWHERE
            where = np.where(elsewhere, rng.integers(0, regions, len(there)), where)
        # Everybody of a region in random order, cut into groups.
        order = np.lexsort((rng.random(len(there)), where))
        there, where = there[order], where[order]
        group = (np.arange(len(there)) - np.searchsorted(where, where)) // _MEETINGS[place].group
        contacts.append(_meetings(where * persons + group, place, there, rng))
    ends, of_place, start, hours = (np.concatenate(part) for part in zip(*contacts, strict=True))
    female = rng.random(persons) < 0.5
    return State(region, age, female, household, hours_out, goes, ends, of_place, start, hours)


def _meetings(
    group: NDArray[np.int64], place: int, who: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float32]]:
    """Returns the contacts of ``who``, whose groups are adjacent: each with the next few of its group."""
    kind = _MEETINGS[place]
    pairs = []
    for step in range(1, kind.reach + 1):
        together = np.flatnonzero(group[:-step] == group[step:])
        pairs.append(np.stack([who[together], who[together + step]], axis=1))
    ends = np.concatenate(pairs).astype(np.int32)
    count = len(ends)
    start = rng.integers(*kind.start, count).astype(np.uint8)
    hours = rng.uniform(*kind.lasts, count).astype(np.float32)
    return ends, np.full(count, place, np.uint8), start, hours


def arcs_of(ends: NDArray[np.int32], persons: int) -> Arcs:
    """Returns each of the contacts ``ends`` (m, 2) from both ends, each person's by priority."""
    contact = np.arange(len(ends), dtype=np.int32)
    source = np.concatenate([ends[:, 0], ends[:, 1]])
    other = np.concatenate([ends[:, 1], ends[:, 0]])
    order = np.argsort(_by_person(source, np.tile(priority(ends), 2)))
    first = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=persons))])
    return Arcs(first, other[order], np.tile(contact, 2)[order])


def priority(ends: NDArray[np.int32]) -> NDArray[np.uint32]:
    """Returns a public hash of each pair of persons (m, 2) (the mixing steps of SplitMix64), lowest first.

    The hash is the same from both ends, so that two persons who meet tend to choose each other.
    """
    low, high = ends.min(axis=1).astype(np.uint64), ends.max(axis=1).astype(np.uint64)
    x = low << np.uint64(32) | high
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(x >> np.uint64(32), np.uint32)


def _by_person(person: NDArray[np.int32], rank: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Returns one number to sort by: the person, then the rank."""
    return person.astype(np.uint64) << np.uint64(32) | rank.astype(np.uint64)
