"""Structural zeros: the cells that relations forbid, on cliques that a model's junction tree contains.

A relation forbids the cells in which no values satisfy it. Two relations with a column in common may forbid more
together: in a cell that both cut, the values that are left to one may all be taken by the other. ``structural_zeros``
joins such relations, as far as their columns have few cells.

All values here are public.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mechanisms.columns import Categorical, Column, private_of
from mechanisms.constraints.relations import Relation, Scope
from mechanisms.constraints.solving import Solver

_JOINED_CELLS = 2**16
"""Most cells of joined relations."""
_SOLVED_CELLS = 2**15
"""Most cells of joined relations in which values are looked for."""


class Related(Protocol):
    """A constraint, as far as it has relations."""

    def relations(self, columns: Mapping[str, Column]) -> tuple[Relation, ...]:
        """Returns the relations between modelled columns."""


@lru_cache(64)
def structural_zeros(
    constraints: tuple[Related, ...], columns: tuple[Column, ...]
) -> tuple[Scope, ...]:
    """Returns the allowed cells of some sets of columns, each in the order of ``columns``.

    Sets of which all cells are allowed are left out. Without measured bins there are no cells yet, and no zeros.
    """
    private = [p for p in map(private_of, columns) if p is not None]
    if not constraints or not all(each.measured for each in private):
        return ()
    known = {column.name: column for column in columns}
    relations = [relation for each in constraints for relation in each.relations(known)]
    order = list(known)
    found = [scope for relation in relations for scope in relation.scopes(known)]
    for group in _groups(relations, known):
        joined = _joined(group, known)
        found += _joined_stars(group, known) if joined is None else [joined]
    return tuple(_in_order(scope, order) for scope in found if not scope.allowed.all())


def allowed_in(clique: Sequence[str], scopes: Sequence[Scope]) -> NDArray[np.bool_] | None:
    """Returns the cells of a clique that all ``scopes`` within it allow, to be broadcast; None if those are all.

    The clique has its columns in the order of the scopes' ones.
    """
    inside = [scope for scope in scopes if set(scope.columns) <= set(clique)]
    if not inside:
        return None
    allowed = np.ones((1,) * len(clique), np.bool_)
    for scope in inside:
        away = tuple(axis for axis, name in enumerate(clique) if name not in scope.columns)
        allowed = allowed & np.expand_dims(scope.allowed, away)
    return allowed


def _in_order(scope: Scope, order: Sequence[str]) -> Scope:
    names = tuple(sorted(scope.columns, key=order.index))
    return Scope(names, scope.allowed.transpose([scope.columns.index(name) for name in names]))


def _groups(relations: Sequence[Relation], columns: Mapping[str, Column]) -> list[list[Relation]]:
    """Returns the relations that are linked by columns with numbers."""
    groups: list[list[Relation]] = []
    for relation in relations:
        linked = [g for g in groups if any(_share(relation, other, columns) for other in g)]
        groups = [g for g in groups if g not in linked]
        groups.append([relation, *itertools.chain.from_iterable(linked)])
    return [group for group in groups if len(group) > 1]


def _joined_stars(group: Sequence[Relation], columns: Mapping[str, Column]) -> list[Scope]:
    """Returns the cells that all relations of a column allow together, for all columns that several are of.

    Where those are too many, relations are joined in pairs.
    """
    found = list[Scope]()
    for name in dict.fromkeys(name for relation in group for name in relation.columns):
        star = [each for each in group if name in each.columns]
        if len(star) < 2 or not _may_be_cut(columns[name]):
            continue
        whole = _joined(star, columns)
        parts = itertools.combinations(star, 2) if whole is None else ()
        pairs = [_joined(pair, columns) for pair in parts]
        found += [scope for scope in (whole, *pairs) if scope is not None]
    return found


def _share(one: Relation, other: Relation, columns: Mapping[str, Column]) -> bool:
    """Returns whether two relations have a column in common of which cells may be cut."""
    return any(_may_be_cut(columns[name]) for name in set(one.columns) & set(other.columns))


def _may_be_cut(column: Column) -> bool:
    """Returns whether a cell of a column has several values."""
    return not isinstance(column, Categorical) or column.prefix > 0


def _cells(group: Sequence[Relation], columns: Mapping[str, Column]) -> int:
    return math.prod(columns[n].size for n in {n for each in group for n in each.columns})


def _joined(group: Sequence[Relation], columns: Mapping[str, Column]) -> Scope | None:
    """Returns the cells that relations allow together; None if those are too many."""
    if _cells(group, columns) > _JOINED_CELLS:
        return None
    solver = Solver(group, columns)
    names = solver.names
    allowed = np.ones([columns[name].size for name in names], np.bool_)
    cut = np.zeros(allowed.shape, np.int8)
    for relation in group:
        for scope in relation.scopes(columns):
            allowed &= _spread(scope, names)
        cut += ~_spread(relation.surely(columns), names)
    cells = np.argwhere(allowed & (cut > 1))
    if len(cells) > _SOLVED_CELLS:
        return None
    for cell in cells:
        codes = dict(zip(names, cell.tolist(), strict=True))
        allowed[tuple(cell)] = solver.feasible(codes)
    return Scope(names, allowed)


def _spread(scope: Scope, names: Sequence[str]) -> NDArray[np.bool_]:
    """Returns a scope's cells with an axis for each of ``names``, to be broadcast."""
    ordered = _in_order(scope, names)
    away = tuple(axis for axis, name in enumerate(names) if name not in scope.columns)
    return np.expand_dims(ordered.allowed, away)
