"""A person's example: the person's own features and those of the neighbours, each with a window of states.

Layout and scales are public. Secret in a real silo: the content of an example, and its label.

Representation: own features (10): 1, age, sex, size of the household, ever at work, at school, shopping, hours out,
centrality (contacts before pruning), and 1 if susceptible throughout the window. For each of K neighbours (78):
the eight features of a person, 1 for presence, 21 days of susceptible, infectious, removed, one of three each,
start and hours of the contact, and its place, one of four. Missing values are 0. The label is 1 for a person that was
susceptible throughout the window and is infectious or removed at the end of the seven days after it. Scales are
public: no value depends on the values of others.

Examples are made for a batch at a time: all of a million persons with K = 20 would be 6 GB of single-precision
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.papers.pandemic.disease import DAYS_KNOWN, S
from bench.papers.pandemic.graph import PLACES, SHOPPING, WORK, State
from bench.papers.pandemic.neighbourhoods import Neighbourhoods, cut

WINDOW, AHEAD = 21, 7
_PERSON = 8
OWN = 1 + _PERSON + 1
# Width of a neighbour's features that all examples share, and width with those of the contact.
_ALIKE = _PERSON + 1 + 3 * WINDOW
NEIGHBOUR = _ALIKE + 2 + len(PLACES)
# Days that have to be known to train on the last window with its week, and to test on the one a week later.
DAYS = DAYS_KNOWN + AHEAD


@dataclass(frozen=True, slots=True)
class Silo:
    """A region's persons (n,) with their neighbourhoods: its examples for training and test.

    ``person`` (n, 8): features that do not change. ``states`` (n, DAYS). ``contact`` (m + 1, 6): start, hours and
    place of each contact, and a row of zeros.
    """

    neighbourhoods: Neighbourhoods
    person: NDArray[np.float32]
    states: NDArray[np.uint8]
    contact: NDArray[np.float32]

    @property
    def persons(self) -> int:
        """Number of examples, for training and again for the test."""
        return len(self.person)

    @property
    def neighbours(self) -> int:
        """K, the largest number of neighbours in an example."""
        return int(self.neighbourhoods.who.shape[1])

    @property
    def features(self) -> int:
        """Number of features of an example."""
        return OWN + self.neighbours * NEIGHBOUR

    def examples(self, end: int) -> Examples:
        """Makes the examples of windows that end before day ``end``."""
        window = self.states[:, end - WINDOW : end]
        well = (window == S).all(axis=1)
        one = np.ones((self.persons, 1), np.float32)
        days = np.eye(3, dtype=np.float32)[window].reshape(self.persons, 3 * WINDOW)
        own = np.concatenate([one, self.person, well[:, None]], axis=1, dtype=np.float32)
        # The row behind the last person stands for nobody: ABSENT points to it.
        alike = np.zeros((self.persons + 1, _ALIKE), np.float32)
        np.concatenate([self.person, one, days], axis=1, out=alike[:-1])
        ill = self.states[:, end + AHEAD - 1] != S
        return Examples(self.neighbourhoods, own, alike, self.contact, well & ill)


@dataclass(frozen=True, slots=True)
class Examples:
    """All examples of one window: their parts, and their ``labels`` (n,)."""

    neighbourhoods: Neighbourhoods
    own: NDArray[np.float32]
    alike: NDArray[np.float32]
    contact: NDArray[np.float32]
    labels: NDArray[np.bool_]

    def rows(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns the features (b, d) of the persons ``rows`` (b,)."""
        who, by = self.neighbourhoods.who[rows], self.neighbourhoods.by[rows]
        made = np.empty((len(rows), OWN + who.shape[1] * NEIGHBOUR), np.float32)
        made[:, :OWN] = self.own[rows]
        near = made[:, OWN:].reshape(*who.shape, NEIGHBOUR)
        near[:, :, :_ALIKE] = self.alike[who]
        near[:, :, _ALIKE:] = self.contact[by]
        return made

    def chunks(self, size: int = 2048) -> Iterator[NDArray[np.float32]]:
        """Yields the features of all persons, in order, ``size`` at a time."""
        for start in range(0, len(self.own), size):
            yield self.rows(np.arange(start, min(start + size, len(self.own))))


def silos_of(state: State, states: NDArray[np.uint8], regions: int, k: int) -> list[Silo]:
    """Makes one silo a region, with neighbourhoods of ``k``. ``states`` (DAYS, n). Raises ``ValueError`` as ``cut``."""
    return [silo_of(state, states, region, k) for region in range(regions)]


def silo_of(state: State, states: NDArray[np.uint8], region: int, k: int) -> Silo:
    """Makes the silo of one region. Raises ``ValueError`` as ``cut``."""
    near = cut(state, region, k)
    mine, contacts = near.persons, near.contacts
    person = [
        state.age[mine] / 100,
        state.female[mine],
        state.household[mine] / 6,
        state.goes[mine, WORK : SHOPPING + 1],
        state.hours_out[mine] / 16,
        np.minimum(near.degree / 100, 1),
    ]
    contact = np.zeros((len(contacts) + 1, NEIGHBOUR - _ALIKE), np.float32)
    contact[:-1, 0] = state.start[contacts] / 24
    contact[:-1, 1] = state.hours[contacts] / 12
    contact[np.arange(len(contacts)), 2 + state.place[contacts]] = 1
    known = np.ascontiguousarray(states[:, mine].T)
    return Silo(near, np.column_stack(person).astype(np.float32), known, contact)
