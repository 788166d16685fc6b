"""The marginal queries that a synthetic table should answer well, and their counts.

``Workload`` has the queries, their downward closure and the layout of all counts.

The workload is public. Codes, counts, and shares of counts are secret; ``expand`` may be applied to shares.

Representation: a *count vector* holds the marginals of the maximal queries (those in no other), one after the other,
each in C order with the columns in the domain's order. The *expanded* vector holds the marginals of all candidates in
the same manner; it is a linear function of the count vector.

Source: McKenna et al. 2022 (AIM), section 4: candidates are the downward closure of the workload, with weights w_q =
sum over r in the workload of |r & q|. Limits: a marginal has fewer than 2^31 cells.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Clique, Domain
from mechanisms.errors import WorkloadError
from mechanisms.sampling import public_generator

MAX_CELLS = 2**31
MAX_CANDIDATES = 1 << 16
"""Most candidates: with more, the grid of a selection's 64 random bits would be too coarse for its charge."""
TARGET_WEIGHT = 4
"""Weight of a query with a target, in ordinary queries."""

_FEWER = (
    f"expected at most {MAX_CANDIDATES:,} sets of columns to choose from: "
    "fewer queries (workload.count), or of fewer columns (workload.degree)"
)

_Scalar = TypeVar("_Scalar", np.uint32, np.uint64, np.int64, np.float64)


@dataclass(frozen=True, slots=True)
class _Step:
    """Fills a candidate: ``axes`` summed out of marginal ``source`` of counts or candidates."""

    candidate: int
    from_counts: bool
    source: int
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """Queries over a domain, their candidates, weights and layout.

    ``queries`` are sets of columns, in the domain's column order and sorted. ``candidates`` are all non-empty subsets
    of queries and every single column, by number of columns and then by position; ``weights[i]`` is that of
    ``candidates[i]`` and 0 for a column that no query contains. A query with one of the ``targets``, columns that the
    table is made to predict, counts ``TARGET_WEIGHT`` times. Candidate i takes ``offsets[i]:offsets[i + 1]`` of the
    expanded vector.

    Raises ``WorkloadError`` on an empty or repeated query, a column repeated in one, one that the domain does not have,
    too many candidates, or too many cells.
    """

    domain: Domain
    queries: tuple[Clique, ...]
    targets: tuple[str, ...] = ()
    candidates: tuple[Clique, ...] = field(init=False)
    weights: tuple[int, ...] = field(init=False)
    maximal: tuple[Clique, ...] = field(init=False)
    offsets: tuple[int, ...] = field(init=False)
    maximal_offsets: tuple[int, ...] = field(init=False)
    _steps: tuple[_Step, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        queries = _canonical_queries(self.domain, self.queries)
        position = {name: i for i, name in enumerate(self.domain.names)}
        closure = _closure(self.domain, queries)
        candidates = tuple(sorted(closure, key=lambda q: (len(q), [position[name] for name in q])))
        inside = {part for q in candidates for part in _proper_subsets(q)}
        maximal = tuple(q for q in candidates if q not in inside)
        fill = object.__setattr__
        fill(self, "queries", queries)
        fill(self, "candidates", candidates)
        # |r & q| is the number of q's columns in r; summed over r, that is the sum over q's columns of their queries.
        if unknown := [name for name in self.targets if name not in position]:
            raise WorkloadError(
                f"target {unknown[0]!r} is no column; the columns are {', '.join(self.domain.names)}"
            )
        having: Counter[str] = Counter()
        for q in queries:
            weight = TARGET_WEIGHT if {*self.targets} & {*q} else 1
            having.update(dict.fromkeys(q, weight))
        fill(self, "weights", tuple(sum(having[name] for name in q) for q in candidates))
        fill(self, "maximal", maximal)
        fill(self, "offsets", _offsets(self.domain, candidates))
        fill(self, "maximal_offsets", _offsets(self.domain, maximal))
        fill(self, "_steps", _plan(self.domain, candidates, maximal))

    @property
    def cells(self) -> int:
        """Number of cells of all candidates: the length of the expanded vector."""
        return self.offsets[-1]

    @property
    def maximal_cells(self) -> int:
        """Number of cells of the maximal queries: the length of the count vector."""
        return self.maximal_offsets[-1]

    @property
    def one_way(self) -> tuple[int, ...]:
        """Candidate indices of the single columns, in the domain's order."""
        return tuple(range(len(self.domain.columns)))

    def slice(self, candidate: int) -> slice:
        """Returns the slice of candidate number ``candidate`` in the expanded vector."""
        return slice(self.offsets[candidate], self.offsets[candidate + 1])

    def gather(self, expanded: NDArray[_Scalar], candidates: Sequence[int]) -> NDArray[_Scalar]:
        """Returns the marginals of some candidates, one after the other, from an expanded vector."""
        return np.concatenate([expanded[self.slice(i)] for i in candidates])

    def expand(self, vector: NDArray[_Scalar]) -> NDArray[_Scalar]:
        """Returns all candidates' marginals, from those of the maximal queries.

        Linear over the vector's own type, wrapping around in it: servers call it on shares.

        Shapes: (maximal_cells,) -> (cells,). Raises ``ValueError`` on another shape.
        """
        if vector.shape != (self.maximal_cells,):
            raise ValueError(
                f"a count vector of shape ({self.maximal_cells},) is needed, not {vector.shape}"
            )
        expanded = np.empty(self.cells, vector.dtype)
        for step in self._steps:
            source = step.source
            if step.from_counts:
                parent = vector[self.maximal_offsets[source] : self.maximal_offsets[source + 1]]
                shape = self.domain.sizes(self.maximal[source])
            else:
                parent, shape = (
                    expanded[self.slice(source)],
                    self.domain.sizes(self.candidates[source]),
                )
            summed = parent.reshape(shape).sum(axis=step.axes, dtype=vector.dtype)
            expanded[self.slice(step.candidate)] = summed.reshape(-1)
        return expanded

    def digest(self) -> str:
        """Returns the hex SHA-256 of the domain's digest and the queries, the same on every machine."""
        # A workload without targets keeps the digest of versions before targets existed.
        targets = [self.targets] if self.targets else []
        text = json.dumps(
            [self.domain.digest(), self.queries, *targets], separators=(",", ":"), ensure_ascii=True
        )
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def draw_workload(
    domain: Domain,
    degree: int = 3,
    count: int | None = 64,
    *,
    seed: int = 123,
    targets: tuple[str, ...] = (),
) -> Workload:
    """Returns all (``count`` None) or ``count`` random queries of ``degree`` columns.

    The draw is ``default_rng(seed).choice(n, count, replace=False)`` over the combinations of columns in order, as in
    the FLAIM authors' experiments. If there are no more than ``count`` combinations, all are taken. Raises
    ``WorkloadError`` if the domain has fewer columns than ``degree``, either number is below 1, or there are too many
    candidates.
    """
    if not 1 <= degree <= len(domain.columns):
        raise WorkloadError(
            f"degree = {degree}; the domain has {len(domain.columns)} columns, so 1 to that many"
        )
    if count is not None and count < 1:
        raise WorkloadError(f"count = {count}; at least one query is needed")
    total = math.comb(len(domain.columns), degree)
    if (queries := total if count is None else min(count, total)) > MAX_CANDIDATES:
        raise WorkloadError(
            f"has {queries:,} queries, each of {degree} of {len(domain.columns)} columns; {_FEWER}"
        )
    if total >= 2**63:
        raise WorkloadError(
            f"draws from {total:.0e} sets of {degree} of {len(domain.columns)} columns; expected fewer than 2^63: "
            "queries of fewer columns (workload.degree)"
        )
    if queries == total:
        return Workload(domain, tuple(itertools.combinations(domain.names, degree)), targets)
    chosen = public_generator(seed).choice(total, queries, replace=False)
    drawn = (_combination(domain.names, degree, int(number)) for number in chosen)
    return Workload(domain, tuple(drawn), targets)


def count_marginals(codes: NDArray[np.int32], workload: Workload) -> NDArray[np.uint32]:
    """Returns the count vector of a table: the number of its rows in each cell of each maximal query.

    Shapes: codes (rows, columns of the domain) -> (maximal_cells,). One row adds 1 to one cell of each query. Raises
    ``ValueError`` on another number of columns or a code outside the domain.
    """
    shape = np.array(workload.domain.shape)
    if codes.ndim != 2 or codes.shape[1] != len(shape):
        raise ValueError(f"codes of shape (rows, {len(shape)}) are needed, not {codes.shape}")
    if codes.size and (codes.min() < 0 or (codes.max(axis=0) >= shape).any()):
        raise ValueError("a code lies outside its column's 0 .. size-1")
    counts = np.empty(workload.maximal_cells, np.uint32)
    for query, start, end in zip(
        workload.maximal, workload.maximal_offsets, workload.maximal_offsets[1:], strict=False
    ):
        columns = [codes[:, workload.domain.index(name)] for name in query]
        cells = np.ravel_multi_index(columns, workload.domain.sizes(query))
        counts[start:end] = np.bincount(cells, minlength=end - start)
    return counts


def _canonical_queries(domain: Domain, queries: Iterable[Iterable[str]]) -> tuple[Clique, ...]:
    """Returns checked queries in the domain's column order, sorted by position."""
    position = {name: i for i, name in enumerate(domain.names)}
    canonical: list[list[int]] = []
    for number, query in enumerate(map(tuple, queries), start=1):
        if not query:
            raise WorkloadError(f"query {number} is empty; name at least one column")
        if unknown := [name for name in query if name not in position]:
            raise WorkloadError(
                f"query {number} names {unknown[0]!r}; the columns are {', '.join(domain.names)}"
            )
        if len(set(query)) < len(query):
            raise WorkloadError(f"query {number} names a column twice: {', '.join(query)}")
        canonical.append(sorted(position[name] for name in query))
    if not canonical:
        raise WorkloadError("the workload has no queries; give at least one")
    canonical.sort()
    for left, right in itertools.pairwise(canonical):
        if left == right:
            raise WorkloadError(f"query {', '.join(domain.names[i] for i in left)} is given twice")
    return tuple(tuple(domain.names[i] for i in query) for query in canonical)


def _combination(names: Sequence[str], degree: int, number: int) -> Clique:
    """Returns combination ``number`` in the order of ``itertools.combinations``, without the ones before it."""
    found: list[str] = []
    for position, name in enumerate(names):
        if len(found) == degree:
            break
        having = math.comb(len(names) - position - 1, degree - len(found) - 1)
        if number < having:
            found.append(name)
        else:
            number -= having
    return tuple(found)


def _closure(domain: Domain, queries: Iterable[Clique]) -> set[Clique]:
    """Returns all non-empty subsets of the queries, and every single column; stops where there are too many."""
    closure: set[Clique] = {(name,) for name in domain.names}
    for query in queries:
        for size in range(1, len(query) + 1):
            for part in itertools.combinations(query, size):
                closure.add(part)
                if len(closure) > MAX_CANDIDATES:
                    raise WorkloadError(f"has too many sets of columns to choose from; {_FEWER}")
    return closure


def _offsets(domain: Domain, cliques: Sequence[Clique]) -> tuple[int, ...]:
    for clique in cliques:
        if (cells := domain.size(clique)) >= MAX_CELLS:
            raise WorkloadError(
                f"query {', '.join(clique)} has {cells} cells; use fewer bins or columns (limit 2^31)"
            )
    return tuple(itertools.accumulate((domain.size(clique) for clique in cliques), initial=0))


def _proper_subsets(clique: Clique) -> Iterator[Clique]:
    """Returns the non-empty proper subsets of a clique's columns, in its order."""
    return itertools.chain.from_iterable(
        itertools.combinations(clique, size) for size in range(1, len(clique))
    )


def _plan(
    domain: Domain, candidates: Sequence[Clique], maximal: Sequence[Clique]
) -> tuple[_Step, ...]:
    """Plans to sum each candidate from the smallest one that contains it, larger ones first."""
    number = {clique: i for i, clique in enumerate(candidates)}
    counted = {clique: i for i, clique in enumerate(maximal)}
    # Every subset of a candidate is one, in the same order of columns; of equal sizes the first stays.
    smallest: dict[Clique, tuple[int, Clique]] = {}
    for other in candidates:
        size = domain.size(other)
        for part in _proper_subsets(other):
            if part not in smallest or size < smallest[part][0]:
                smallest[part] = size, other
    steps = []
    for clique in sorted(candidates, key=len, reverse=True):
        if clique in counted:
            steps.append(_Step(number[clique], True, counted[clique], ()))
            continue
        _, parent = smallest[clique]
        axes = tuple(i for i, name in enumerate(parent) if name not in clique)
        steps.append(_Step(number[clique], False, number[parent], axes))
    return tuple(steps)
