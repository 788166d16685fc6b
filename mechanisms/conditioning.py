"""Conditional distributions of a model: junction trees with evidence, and rows with some columns given.

``conditioned`` multiplies a vector for each of some columns into the tree and calibrates it anew, in one pass up and
one down. ``fill`` draws the columns that are not given of rows with other given columns each. Both are exact; no row
is drawn and thrown away.

All values here are public, as post-processing of a released model.

Source: Shafer, Shenoy 1990; Koller, Friedman 2009, chapter 10. Limits: evidence is a product of vectors of single
columns; a condition on several columns at once ("a or b") is not one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Clique
from mechanisms.errors import ConditionError
from mechanisms.model import Model, spread_rows
from mechanisms.sampling import PublicGenerator

DRAWN = -1
"""Code of a value that is not given, in ``fill``."""
_AT_ONCE = 1 << 21
"""Cells of tables that are in memory at once."""
_DENSE = 8
"""Entries of a table of values, by row, up to which it is made."""


@dataclass(frozen=True, slots=True, eq=False)
class Conditioned:
    """A model given evidence, and the ``probability`` of the evidence in the model without it."""

    model: Model
    probability: float


def conditioned(model: Model, evidence: Mapping[str, NDArray[np.float64]]) -> Conditioned:
    """Returns the model given ``evidence``: by column the share (codes,) of each cell that satisfies a condition.

    The result is a model with the same tree: P(row) times the shares of the row's cells, normalised. Raises
    ``ConditionError`` for evidence of probability 0.
    """
    domain = model.domain
    factors = [
        model.conditional(i) * _product(model, i, evidence) for i in range(len(model.cliques))
    ]
    logarithm, totals = 0.0, list[NDArray[np.float64]]()
    # Up: each clique's total over its new columns goes to its parent.
    for i in reversed(range(len(model.cliques))):
        clique, shared = model.cliques[i], model.shared(i)
        axes = tuple(a for a, name in enumerate(clique) if name not in shared)
        total = np.asarray(factors[i].sum(axis=axes, keepdims=True))
        totals.append(total)
        largest = float(total.max())
        if largest <= 0:
            raise ConditionError(
                "no row of the model satisfies the condition: its probability is 0"
            )
        logarithm += math.log(largest)
        parent = model.parents[i]
        if parent >= 0:
            factors[parent] *= _spread_axes(
                total / largest, clique, shared=shared, parent=model.cliques[parent]
            )
    totals.reverse()
    # Down: P(clique | columns shared with the parent), times the parent's marginal of these.
    marginals: list[NDArray[np.float64]] = []
    for i, (factor, total) in enumerate(zip(factors, totals, strict=True)):
        found = np.divide(factor, total, out=np.zeros_like(factor), where=total > 0)
        parent = model.parents[i]
        if parent >= 0:
            found *= _shared_marginal(model, i, marginals[parent])
        marginals.append(found / found.sum())
    return Conditioned(
        replace(model, domain=domain, marginals=tuple(marginals)), min(1.0, math.exp(logarithm))
    )


def fill(model: Model, given: NDArray[np.int32], generator: PublicGenerator) -> NDArray[np.int32]:
    """Returns ``given`` (rows, columns of the domain) with codes drawn from the model where it has ``DRAWN``.

    Each row is drawn given its own columns. Rows that agree on all that a clique is drawn from are spread evenly, as in
    ``Model.sample``. Raises ``ConditionError`` that names the first rows whose given codes have probability 0.
    """
    codes, impossible = fill_possible(model, given, generator)
    if len(impossible):
        shown = ", ".join(str(row + 1) for row in impossible[:10].tolist())
        raise ConditionError(
            f"{len(impossible)} of {len(given)} rows have given values that occur together in no row of the model, so "
            f"that nothing can be drawn for them: number {shown}; expected other values, or fewer given columns"
        )
    return codes


def fill_possible(
    model: Model, given: NDArray[np.int32], generator: PublicGenerator
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Returns the rows as ``fill`` does, and the numbers of those of probability 0, which stay as they are given."""
    codes = given.copy()
    known = np.asarray(given != DRAWN)
    masks, of_row = np.unique(known, axis=0, return_inverse=True)
    impossible = list[NDArray[np.int64]]()
    for number, mask in enumerate(masks):
        rows = np.flatnonzero(of_row.reshape(-1) == number)
        part, bad = _filled(model, codes[rows], mask, generator=generator)
        if len(bad):
            impossible.append(rows[bad])
            rows = np.delete(rows, bad)
            if not len(rows):
                continue
            part, _ = _filled(model, codes[rows], mask, generator=generator)
        codes[rows] = part
    return codes, np.sort(np.concatenate(impossible)) if impossible else np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Up:
    """A clique's message of each pattern of given codes below it, and the pattern of each row (rows,).

    ``message`` is (patterns, *sizes of ``free``), where ``free`` are the columns shared with the parent that are not
    given. ``own`` (patterns,) is the flat index of the clique's given codes.
    """

    free: Clique
    message: NDArray[np.float64]
    of_row: NDArray[np.int64]
    first: NDArray[np.int64]


def _filled(
    model: Model, codes: NDArray[np.int32], mask: NDArray[np.bool_], *, generator: PublicGenerator
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Returns the filled rows of one pattern of given columns, and the rows of probability 0."""
    given = {name for name, is_given in zip(model.domain.names, mask, strict=True) if is_given}
    children: list[list[int]] = [[] for _ in model.cliques]
    for i, parent in enumerate(model.parents):
        if parent >= 0:
            children[parent].append(i)
    ups: dict[int, _Up] = {}
    bad = np.zeros(len(codes), np.bool_)
    for i in reversed(range(len(model.cliques))):
        ups[i] = _message(model, i, codes, given=given, below=[ups[c] for c in children[i]])
        if model.parents[i] < 0:
            bad |= (ups[i].message <= 0)[ups[i].of_row]
    impossible = np.flatnonzero(bad)
    if len(impossible):
        return codes, impossible
    for i in range(len(model.cliques)):
        _draw(
            model,
            i,
            codes,
            given=given,
            below=[ups[c] for c in children[i]],
            generator=generator,
        )
    return codes, impossible


def _message(
    model: Model, i: int, codes: NDArray[np.int32], *, given: set[str], below: Sequence[_Up]
) -> _Up:
    clique, shared = model.cliques[i], model.shared(i)
    own = tuple(name for name in clique if name in given)
    free = tuple(name for name in clique if name not in given)
    out = tuple(name for name in free if name in shared)
    place, _ = _patterns([_flat(model, codes, own), *(up.of_row for up in below)])
    of_row, first = _patterns([place])
    table = _given_first(model, i, known=own, others=free)
    sizes = model.domain.sizes(free)
    message = np.empty((len(first), *model.domain.sizes(out)))
    axes = tuple(1 + a for a, name in enumerate(free) if name not in shared)
    own_of = _flat(model, codes, own)[first]
    step = max(1, _AT_ONCE // max(1, math.prod(sizes)))
    for start in range(0, len(first), step):
        part = slice(start, start + step)
        found = table[own_of[part]].reshape(-1, *sizes)
        for up in below:
            shape = [dict(zip(free, sizes, strict=True))[n] if n in up.free else 1 for n in free]
            found = found * up.message[up.of_row[first[part]]].reshape(-1, *shape)
        message[part] = found.sum(axis=axes)
    largest = message.reshape(len(first), -1).max(axis=1).reshape(-1, *(1 for _ in out))
    message = np.divide(message, largest, out=np.zeros_like(message), where=largest > 0)
    return _Up(out, message, of_row, first)


def _draw(
    model: Model,
    i: int,
    codes: NDArray[np.int32],
    *,
    given: set[str],
    below: Sequence[_Up],
    generator: PublicGenerator,
) -> None:
    """Draws the clique's new columns of all rows in place, given its other columns and the messages from below."""
    clique, shared = model.cliques[i], model.shared(i)
    known = tuple(name for name in clique if name in given or name in shared)
    new = tuple(name for name in clique if name not in known)
    if not new:
        return
    sizes = model.domain.sizes(new)
    of_row, first = _patterns([_flat(model, codes, known), *(up.of_row for up in below)])
    table = _given_first(model, i, known=known, others=new)
    known_of = _flat(model, codes, known)[first]
    columns = [model.domain.index(name) for name in new]
    order = np.argsort(of_row, kind="stable")
    step = max(1, _AT_ONCE // math.prod(sizes))
    for start in range(0, len(first), step):
        part = first[start : start + step]
        found = table[known_of[start : start + step]].reshape(-1, *sizes)
        for up in below:
            found = found * _at(model, up, codes, rows=part, new=new)
        low, high = np.searchsorted(of_row[order], [start, start + len(part)])
        rows = order[low:high]
        drawn = spread_rows(found.reshape(len(part), -1), of_row[rows] - start, generator)
        codes[rows[:, None], columns] = np.stack(np.unravel_index(drawn, sizes), axis=1)


def _at(
    model: Model, up: _Up, codes: NDArray[np.int32], *, rows: NDArray[np.int64], new: Clique
) -> NDArray[np.float64]:
    """Returns a child's message at the known columns of ``rows``, with an axis for each new column."""
    later = tuple(name for name in up.free if name in new)
    known = tuple(name for name in up.free if name not in new)
    message = np.moveaxis(
        up.message, [1 + up.free.index(name) for name in known], range(1, 1 + len(known))
    )
    message = message.reshape(len(up.message), model.domain.size(known), -1)
    found = message[up.of_row[rows], _flat(model, codes[rows], known)]
    shape = [model.domain.sizes((name,))[0] if name in later else 1 for name in new]
    return np.asarray(found.reshape(len(rows), *shape))


def _patterns(
    parts: Sequence[NDArray[np.int64]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the number of each row's combination of values (rows,), and a row of each combination."""
    found = np.zeros(len(parts[0]), np.int64)
    first = np.zeros(1, np.int64)
    for part in parts:
        inverse, of_part = _numbered(part)
        found, first = _numbered(found * len(of_part) + inverse)
    return found, first


def _numbered(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns each row's value by its rank among those that occur (rows,), and the first row of each.

    ``values`` are not negative. Where they are small, a table of them takes the place of sorting.
    """
    most = int(values.max(initial=0))
    if most > _DENSE * max(1024, len(values)):
        _, first, found = np.unique(values, return_index=True, return_inverse=True)
        return found.reshape(-1).astype(np.int64), first.astype(np.int64)
    table = np.full(most + 1, len(values), np.int64)
    # Written from the last row to the first one, so that the first one stays.
    table[values[::-1]] = np.arange(len(values) - 1, -1, -1)
    present = table < len(values)
    first = table[present]
    return (np.cumsum(present) - 1)[values], first


def _flat(model: Model, codes: NDArray[np.int32], names: Clique) -> NDArray[np.int64]:
    flat = np.zeros(len(codes), np.int64)
    for name in names:
        column = model.domain.index(name)
        flat = flat * model.domain.columns[column].size + codes[:, column]
    return flat


def _given_first(model: Model, i: int, *, known: Clique, others: Clique) -> NDArray[np.float64]:
    """Returns P(clique i | columns shared with its parent) as a table (codes of ``known``, codes of ``others``)."""
    clique = model.cliques[i]
    axes = [clique.index(name) for name in (*known, *others)]
    table = np.transpose(model.conditional(i), axes)
    return np.ascontiguousarray(table).reshape(model.domain.size(known), -1)


def _product(
    model: Model, i: int, evidence: Mapping[str, NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Returns the product of the evidence on the columns that clique i adds, over its axes."""
    clique, shared = model.cliques[i], model.shared(i)
    product = np.ones((1,) * len(clique))
    for axis, name in enumerate(clique):
        if name in evidence and name not in shared:
            shape = [1] * len(clique)
            shape[axis] = -1
            product = product * evidence[name].reshape(shape)
    return np.asarray(product)


def _spread_axes(
    total: NDArray[np.float64], clique: Clique, *, shared: Clique, parent: Clique
) -> NDArray[np.float64]:
    """Returns a clique's total over its shared columns with the axes of its parent."""
    sizes = dict(zip(clique, total.shape, strict=True))
    table = total.reshape([sizes[name] for name in shared])
    # Columns of both are in the domain's order, in each clique.
    return table.reshape([sizes[name] if name in shared else 1 for name in parent])


def _shared_marginal(model: Model, i: int, parent: NDArray[np.float64]) -> NDArray[np.float64]:
    clique, shared = model.cliques[i], model.shared(i)
    above = model.cliques[model.parents[i]]
    axes = tuple(a for a, name in enumerate(above) if name not in shared)
    table = np.asarray(parent.sum(axis=axes))
    sizes = dict(zip(shared, table.shape, strict=True))
    return table.reshape([sizes.get(name, 1) for name in clique])
