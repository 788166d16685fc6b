"""A silo's view of the contacts: those in its region, and at most K of them in and out of each example.

The rule is public. Secret in a real silo: everything else here.

A person's own states and features enter the examples of those who have the person among their neighbours. In each of
four rounds a person offers to as many contacts as still may have the person, the next ones in the order of a public
hash of the two numbers, and each takes as many of the offers as it has free positions. So nobody is in more than K
neighbourhoods besides the own, in any graph: the accountant's K + 1 needs this pruning
(``bench.papers.pandemic.node_accounting``). The choice depends on the contacts and on nothing else, so that replacing
all other data of a person changes those examples alone, and none by way of others' choices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.papers.pandemic.graph import Arcs, State, arcs_of, priority

ABSENT = -1
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Neighbourhoods:
    """Neighbourhoods of a region's ``persons`` (n,) and ``contacts`` (m,), numbered as in the state.

    ``who`` (n, K) and ``by`` (n, K) are positions in ``persons`` and in ``contacts``, ABSENT beyond the last of fewer
    than K; the longest contact is first. ``degree`` (n,): contacts within the region, before pruning.
    """

    persons: NDArray[np.int64]
    contacts: NDArray[np.int64]
    who: NDArray[np.int32]
    by: NDArray[np.int32]
    degree: NDArray[np.int64]


def cut(state: State, region: int, k: int) -> Neighbourhoods:
    """Returns the neighbourhoods of at most ``k`` in one region, without contacts to other regions.

    Raises ``ValueError`` for a region without persons or a negative ``k``.
    """
    persons = np.flatnonzero(state.region == region)
    if not len(persons) or k < 0:
        raise ValueError(
            f"region {region} has {len(persons)} persons, k = {k}; expected some, and 0 or more"
        )
    inside = np.flatnonzero((state.region[state.ends] == region).all(axis=1))
    # Persons are numbered by region, so that within one the order of numbers is kept.
    ends = np.searchsorted(persons, state.ends[inside]).astype(np.int32)
    arcs = arcs_of(ends, len(persons))
    who, by = take_offers(arcs, ends, k)
    # The order of contacts within an example concerns that example alone.
    hours = np.append(state.hours[inside], 0.0)
    order = np.argsort(np.where(who == ABSENT, 1.0, -hours[by]), axis=1, kind="stable")
    who, by = np.take_along_axis(who, order, axis=1), np.take_along_axis(by, order, axis=1)
    return Neighbourhoods(persons, inside, who, by, np.diff(arcs.first))


def take_offers(
    arcs: Arcs, ends: NDArray[np.int32], k: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Returns the neighbours that each person takes (n, k), ABSENT behind the last, and their contacts (n, k)."""
    giver = np.repeat(np.arange(arcs.persons, dtype=np.int32), np.diff(arcs.first))
    taker, contact = arcs.other, arcs.contact
    rank = priority(ends)
    who, by = np.full((2, arcs.persons, k), ABSENT, np.int32)
    given, taken = np.zeros((2, arcs.persons), np.int64)
    for _ in range(_ROUNDS):
        # Givers with positions left, and takers that have neither taken this giver nor refused it for good.
        open_ = (given[giver] < k) & (taken[taker] < k)
        giver, taker, contact = giver[open_], taker[open_], contact[open_]
        offered = _place_among_equals(giver) < k - given[giver]
        order = np.flatnonzero(offered)[np.lexsort((rank[contact[offered]], taker[offered]))]
        slot = taken[taker[order]] + _place_among_equals(taker[order])
        accepted, slot = order[slot < k], slot[slot < k]
        who[taker[accepted], slot] = giver[accepted]
        by[taker[accepted], slot] = contact[accepted]
        given += np.bincount(giver[accepted], minlength=arcs.persons)
        taken += np.bincount(taker[accepted], minlength=arcs.persons)
        # An offer is made once, accepted or not.
        giver, taker, contact = giver[~offered], taker[~offered], contact[~offered]
    return who, by


def _place_among_equals(values: NDArray[np.int32]) -> NDArray[np.int64]:
    """Counts, for each of the ascending ``values`` (n,), the equal ones before it."""
    return np.asarray(np.arange(len(values)) - np.searchsorted(values, values))
