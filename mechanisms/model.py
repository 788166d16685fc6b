"""A graphical model of a table, as the marginals of its junction tree.

``Model`` gives marginals of any columns, log-likelihoods and synthetic rows, and can be saved.

All values here are public: a model is made of released measurements only, and everything here is post-processing.

Representation: the cliques of a junction forest, each after its parent, with calibrated marginals that sum to 1. The
distribution is the product over cliques of P(clique | columns shared with the parent), so no potentials and no large
exponents are left.

Source: McKenna et al., ICML 2019 (Private-PGM). Limits: exact inference, so memory is the tree's.
"""

from __future__ import annotations

import heapq
import json
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from lzma import LZMAError
from operator import index
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import opt_einsum
from numpy.typing import NDArray

from mechanisms.domain import Clique, Domain
from mechanisms.errors import DomainError, EstimationError
from mechanisms.tree_pairs import TreePairs

LOG_FLOOR = 100.0
TREE_FILE, MARGINALS_FILE = "model.json", "marginals.npz"
"""Names of the two files of a saved model: domain and tree, and the cliques' marginals."""

# Exceptions of reading a file that is missing, encrypted, or not written by ``Model.save``.
_HEADER_BYTES = 4096
"""Maximum size of the header of an array."""
_DAMAGES = (
    OSError,
    AttributeError,
    IndexError,
    MemoryError,
    OverflowError,
    TokenError,
    struct.error,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    RuntimeError,
    BadZipFile,
    zlib.error,
    LZMAError,
    DomainError,
)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A junction forest over ``domain`` with calibrated marginals.

    ``cliques[i]`` has its columns in the domain's order and the array ``marginals[i]``, float64, of shape
    ``domain.sizes(cliques[i])`` and sum 1. ``parents[i]`` is the position of its parent, before i, or -1 for a root.

    Raises ``ValueError`` if the shapes do not fit, a parent does not come first, or a column of the domain is in no
    clique.
    """

    domain: Domain
    cliques: tuple[Clique, ...]
    parents: tuple[int, ...]
    marginals: tuple[NDArray[np.float64], ...]

    def __post_init__(self) -> None:
        if set().union(*self.cliques) != set(self.domain.names):
            raise ValueError("the cliques do not cover the columns of the domain")
        for i, (clique, parent, marginal) in enumerate(
            zip(self.cliques, self.parents, self.marginals, strict=True)
        ):
            if not -1 <= parent < i:
                raise ValueError(f"clique {i} does not come after its parent {parent}")
            if marginal.shape != self.domain.sizes(clique):
                raise ValueError(f"the marginal of clique {i} does not have its shape")

    @property
    def cells(self) -> int:
        """Number of cells of all cliques."""
        return sum(marginal.size for marginal in self.marginals)

    def answers(self, cliques: Iterable[Clique]) -> list[NDArray[np.float64]]:
        """Returns the marginals of some sets of columns, each of shape ``domain.sizes(clique)``, sum 1.

        A set inside a clique is summed out of it. A pair is computed by passing one of its columns along the tree
        (``tree_pairs``). Any other set is one contraction of conditionals over the part of the tree that connects it.
        """
        return list(self._answers(cliques))

    def answers_q32(self, cliques: Iterable[Clique]) -> NDArray[np.uint32]:
        """Returns the marginals of some sets of columns, one after the other in C order, in units of 2^-32.

        Every probability is rounded to the nearest unit; 1 becomes 2^32 - 1.
        """
        cliques = list(cliques)
        units = np.empty(sum(map(self.domain.size, cliques)), np.uint32)
        start = 0
        # One after the other: all of them in doubles take several times the memory of the result.
        for marginal in self._answers(cliques):
            answer = marginal.reshape(-1) * 2.0**32
            np.clip(np.rint(answer, out=answer), 0, 2.0**32 - 1, out=answer)
            units[start : start + answer.size] = answer
            start += answer.size
        return units

    def log_probabilities(self, codes: NDArray[np.int32]) -> NDArray[np.float64]:
        """Returns the natural logarithm of each row's probability, minus infinity where it is 0.

        Shapes: codes (rows, columns of the domain) -> (rows,).
        """
        total = np.zeros(len(codes))
        with np.errstate(divide="ignore"):
            for i, clique in enumerate(self.cliques):
                columns = [self.domain.index(name) for name in clique]
                total += np.log(self.conditional(i)[tuple(codes[:, columns].T)])
        return total

    def log_potentials(self) -> dict[Clique, NDArray[np.float64]]:
        """Returns tables of the cliques whose sum is the logarithm of the distribution.

        A probability of 0 is replaced by e^-LOG_FLOOR, so that all are finite.
        """
        smallest = math.exp(-LOG_FLOOR)
        return {
            clique: np.log(np.maximum(self.conditional(i), smallest))
            for i, clique in enumerate(self.cliques)
        }

    def sample(self, rows: int, generator: np.random.Generator) -> NDArray[np.int32]:  # noqa: TID251
        """Returns synthetic rows: codes (rows, columns of the domain), in random order.

        Cliques are drawn in turn given their parent's columns. Rows that agree on those are spread evenly over the
        conditional distribution instead of drawn independently, so that marginals within cliques are met up to
        rounding. Raises ``ValueError`` unless ``rows`` is positive.
        """
        if rows < 1:
            raise ValueError(f"rows = {rows}; at least one is needed")
        codes = np.zeros((rows, len(self.domain.columns)), np.int32)
        for i, clique in enumerate(self.cliques):
            shared = self.shared(i)
            new = tuple(name for name in clique if name not in shared)
            table = np.moveaxis(
                self.marginals[i],
                [clique.index(name) for name in shared],
                range(len(shared)),
            ).reshape(self.domain.size(shared), self.domain.size(new))
            given = _flat_index(codes, self.domain, shared)
            drawn = spread_rows(table, given, generator)
            columns = [self.domain.index(name) for name in new]
            codes[:, columns] = np.stack(np.unravel_index(drawn, self.domain.sizes(new)), axis=1)
        return codes

    def sampling_error(self, codes: NDArray[np.int32]) -> float:
        """Returns the largest difference, in rows, between the counts of a table and their expectation in ``sample``.

        The maximum is over the cells of all cliques, each given the parent's columns as they are in the table. It is
        below 2 for every output of ``sample``, since ``sample`` spreads rows evenly. Shapes: codes (rows, columns of
        the domain).
        """
        worst = 0.0
        for i, clique in enumerate(self.cliques):
            shared = self.shared(i)
            new = tuple(name for name in clique if name not in shared)
            axes = [clique.index(name) for name in shared]
            shape = (self.domain.size(shared), self.domain.size(new))
            table = np.moveaxis(self.conditional(i), axes, range(len(shared))).reshape(shape)
            place = _flat_index(codes, self.domain, (*shared, *new))
            counts = np.bincount(place, minlength=table.size).reshape(shape)
            expected = counts.sum(axis=1, keepdims=True) * table
            worst = max(worst, float(np.abs(counts - expected).max()))
        return worst

    def save(self, folder: str | Path) -> None:
        """Writes ``model.json`` (domain and tree) and ``marginals.npz`` into a folder, made if need be."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tree = {"domain": self.domain.to_dict(), "cliques": self.cliques, "parents": self.parents}
        (folder / TREE_FILE).write_text(json.dumps(tree, indent=1), encoding="utf-8")
        arrays = {f"clique_{i}": marginal for i, marginal in enumerate(self.marginals)}
        np.savez_compressed(folder / MARGINALS_FILE, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, folder: str | Path) -> Model:
        """Reads the model that ``save`` wrote. Raises ``EstimationError`` if it is missing or damaged."""
        folder = Path(folder)
        try:
            with (folder / MARGINALS_FILE).open("rb") as stream:
                return cls.read((folder / TREE_FILE).read_bytes(), stream, named=str(folder))
        except OSError as error:
            raise EstimationError(f"{folder}: is not a saved model: {error}") from error

    @classmethod
    def read(cls, text: bytes, stream: IO[bytes], *, named: str) -> Model:
        """Reads the two files that ``save`` wrote; ``named`` in errors. Raises ``EstimationError`` if damaged."""
        try:
            tree = json.loads(text)
            domain, cliques = _domain_and_cliques(tree)
            _check_sizes(stream, [domain.size(clique) for clique in cliques])
            with np.load(stream, allow_pickle=False) as arrays:
                marginals = tuple(arrays[f"clique_{i}"] for i in range(len(cliques)))
            if not all(np.isfinite(m).all() and (m >= 0).all() for m in marginals):
                raise ValueError("a probability is negative or not finite")
            return cls(domain, cliques, tuple(map(index, tree["parents"])), marginals)
        except _DAMAGES as error:
            raise EstimationError(f"{named}: is not a saved model: {error}") from error

    @staticmethod
    def cells_in(text: bytes) -> int:
        """Returns the number of cells of the model with the tree ``text``, without reading it. Raises as ``read``."""
        try:
            domain, cliques = _domain_and_cliques(json.loads(text))
            return sum(map(domain.size, cliques))
        except _DAMAGES as error:
            raise EstimationError(f"{TREE_FILE}: is not that of a saved model: {error}") from error

    def shared(self, i: int) -> Clique:
        """Returns the columns that clique i shares with its parent."""
        parent = () if self.parents[i] < 0 else self.cliques[self.parents[i]]
        return tuple(name for name in self.cliques[i] if name in parent)

    def conditional(self, i: int) -> NDArray[np.float64]:
        """Returns P(clique i | columns shared with its parent), 0 where those have probability 0."""
        marginal, shared = self.marginals[i], self.shared(i)
        axes = tuple(a for a, name in enumerate(self.cliques[i]) if name not in shared)
        given = np.asarray(marginal.sum(axis=axes, keepdims=True))
        return np.asarray(np.divide(marginal, given, out=np.zeros_like(marginal), where=given > 0))

    def _answers(self, cliques: Iterable[Clique]) -> Iterator[NDArray[np.float64]]:
        """Yields the answers. Pairs of different cliques are found for each column that has fewer cells at once."""
        cliques = list(cliques)
        sets = [set(clique) for clique in self.cliques]
        homes = [[i for i, other in enumerate(sets) if other.issuperset(q)] for q in cliques]
        apart: dict[str, set[str]] = {}
        for clique, holders in zip(cliques, homes, strict=True):
            if not holders and len(clique) == 2:
                fewer, more = sorted(clique, key=self._order)
                apart.setdefault(fewer, set()).add(more)
        pairs = TreePairs(self.domain, self.cliques, self.parents, self.marginals)
        found: dict[str, dict[str, NDArray[np.float64]]] = {}
        conditionals: list[NDArray[np.float64]] = []
        for clique, holders in zip(cliques, homes, strict=True):
            if holders:
                yield pairs.marginal(min(holders, key=lambda i: self.marginals[i].size), clique)
            elif len(clique) == 2:
                fewer, more = sorted(clique, key=self._order)
                if fewer not in found:
                    found[fewer] = pairs.of(fewer, apart[fewer])
                answer = found[fewer][more]
                yield answer if fewer == clique[0] else answer.T
            else:
                conditionals = conditionals or [
                    self.conditional(i) for i in range(len(self.cliques))
                ]
                yield self._contracted(clique, conditionals)

    def _order(self, name: str) -> tuple[int, int]:
        return self.domain.size((name,)), self.domain.index(name)

    def _contracted(
        self, clique: Clique, conditionals: Sequence[NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        symbols = {name: opt_einsum.get_symbol(i) for i, name in enumerate(self.domain.names)}
        part = self._connecting(clique)
        # The part's distribution is its roots' marginals times every other clique given its parent's columns; the
        # contraction sums all other columns out.
        roots = [i for i in part if self.parents[i] not in part]
        operands = [self.marginals[i] if i in roots else conditionals[i] for i in part]
        inputs = ("".join(symbols[name] for name in self.cliques[i]) for i in part)
        output = "".join(symbols[name] for name in clique)
        return np.asarray(opt_einsum.contract(",".join(inputs) + "->" + output, *operands))

    def _connecting(self, clique: Clique) -> list[int]:
        """Returns the cliques left after cutting off those that add none of ``clique``'s columns, lowest first."""
        links = self._links()
        left = set(range(len(self.cliques)))
        # Ascending numbers are a heap. Only a clique that loses a link can become loose, or cease to be.
        loose = [i for i in sorted(left) if self._is_loose(i, links[i], clique)]
        while loose:
            i = heapq.heappop(loose)
            if i not in left or not self._is_loose(i, links[i], clique):
                continue
            left.remove(i)
            for j in links[i]:
                links[j].remove(i)
                if self._is_loose(j, links[j], clique):
                    heapq.heappush(loose, j)
        return sorted(left)

    def _links(self) -> list[set[int]]:
        """Returns for each clique its parent and its children."""
        links: list[set[int]] = [set() for _ in self.cliques]
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                links[i].add(parent)
                links[parent].add(i)
        return links

    def _is_loose(self, i: int, links: set[int], clique: Clique) -> bool:
        """Returns whether clique i is linked to at most one other, in ``links``, and adds no column to it."""
        if len(links) > 1:
            return False
        wanted = set(clique) & set(self.cliques[i])
        return all(wanted <= set(self.cliques[j]) for j in links) if links else not wanted


def _domain_and_cliques(tree: Mapping[str, Any]) -> tuple[Domain, tuple[Clique, ...]]:
    return Domain.from_dict(tree["domain"]), tuple(tuple(clique) for clique in tree["cliques"])


def _check_sizes(stream: IO[bytes], cells: Sequence[int]) -> None:
    """Raises ValueError for an archive of other arrays than ``cells`` cells each, before anything is unpacked."""
    with ZipFile(stream) as archive:
        members = archive.infolist()
    sizes = {member.filename: member.file_size for member in members}
    most = {f"clique_{i}.npy": 8 * n + _HEADER_BYTES for i, n in enumerate(cells)}
    if len(members) != len(most) or sizes.keys() != most.keys():
        raise ValueError("it has other arrays than its tree")
    if any(sizes[name] > most[name] for name in most):
        raise ValueError("an array has more cells than its clique")
    stream.seek(0)


def _flat_index(codes: NDArray[np.int32], domain: Domain, clique: Clique) -> NDArray[np.int64]:
    """Returns the position of each row in the flattened marginal of ``clique``; all 0 for no columns."""
    flat = np.zeros(len(codes), np.int64)
    for name in clique:
        column = domain.index(name)
        flat = flat * domain.columns[column].size + codes[:, column]
    return flat


def spread_rows(
    table: NDArray[np.float64],
    given: NDArray[np.int64],
    generator: np.random.Generator,  # noqa: TID251
) -> NDArray[np.int64]:
    """Draws a column of ``table`` for each row, given its row of ``table``.

    The n rows with the same ``given`` take one point in each n-th of the cumulative distribution, in random order.
    Shapes: table (groups, values), given (rows,) -> (rows,).
    """
    rows = len(given)
    # Group by group, in random order within each; the r-th of a group's n rows gets a point in [r/n, (r + 1)/n).
    order = np.argsort(given + generator.random(rows), kind="stable")
    groups, first, counts = np.unique(given[order], return_index=True, return_counts=True)
    member = np.repeat(np.arange(len(groups)), counts)
    rank = np.arange(rows) - first[member]
    points = (rank + generator.random(rows)) / counts[member]

    cumulative = np.cumsum(table[groups], axis=1)
    totals = cumulative[:, -1:]
    flat = np.divide(cumulative, totals, out=np.ones_like(cumulative), where=totals > 0)
    drawn = np.empty(rows, np.int64)
    # Row m of the distribution is shifted to (m, m + 1], so that one sorted search serves all groups.
    shifted = (flat + np.arange(len(groups))[:, None]).reshape(-1)
    codes = np.searchsorted(shifted, points + member, side="right") - member * table.shape[1]
    # A sum rounded up to the next group's start stays with the last value of its own group that has a probability.
    last = np.minimum((flat < 1).sum(axis=1), table.shape[1] - 1)
    drawn[order] = np.clip(codes, 0, last[member])
    return drawn
