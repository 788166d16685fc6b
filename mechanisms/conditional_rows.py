"""Synthetic rows under a condition, balanced over a column, or like rows of which some columns are given.

``conditional_parts`` draws them from a released model given the condition: exactly, and without drawing rows that are
thrown away. ``read_given`` reads a table of which some columns, or some cells, are given.

All values here are public. Given rows are the caller's own; nothing of them goes into the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mechanisms.column_values import number_of, number_text
from mechanisms.columns import Categorical, Column
from mechanisms.conditioning import DRAWN, conditioned, fill
from mechanisms.conditions import Limit, column_named, evidence_of, limits_of
from mechanisms.constraints.rows import settle
from mechanisms.domain import Domain
from mechanisms.errors import ConditionError, DataError
from mechanisms.model import Model
from mechanisms.numbers import Real
from mechanisms.question import Where
from mechanisms.sampling import PublicGenerator, public_generator
from mechanisms.split_columns import SplitColumn
from mechanisms.synthetic import PART
from mechanisms.table import decode_column, encode_cells, written_frame
from mechanisms.text_table import TextTable


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """Rows with some given columns: ``codes`` (rows, columns of the domain), ``DRAWN`` where nothing is given.

    ``texts`` (rows,) has the given values of each column as they are written, None where there is none.
    """

    codes: NDArray[np.int32]
    texts: Mapping[str, NDArray[np.object_]]


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """Rows to draw: how many, that satisfy ``where``, with as many of each value of ``balance``, or with ``given``.

    ``rows`` is the number of given rows, if there are any. Raises ``ConditionError`` for parts that exclude each other.
    """

    rows: int
    where: Where = ()
    balance: str | None = None
    given: Given | None = None

    def __post_init__(self) -> None:
        if self.given is None:
            if self.rows < 1:
                raise ValueError(f"rows = {self.rows}; at least one is needed")
            return
        if self.balance is not None:
            raise ConditionError("rows with given columns are not balanced; expected one of both")
        if self.rows != len(self.given.codes):
            raise ConditionError(
                f"{len(self.given.codes)} rows are given, of which each is filled once; expected no other number"
            )


@dataclass(frozen=True, slots=True, eq=False)
class ConditionalRows:
    """Rows drawn under a condition: tables of text in ``parts``, of at most ``PART`` rows.

    ``probability`` is that of the condition in the model; ``shares`` are those that a balanced column's values have in
    the model under the condition, by label.
    """

    parts: Iterator[pd.DataFrame]
    probability: float
    shares: Mapping[str, float] = field(default_factory=dict)


def conditional_rows(model: Model, wanted: Wanted, *, seed: int) -> ConditionalRows:
    """Draws the ``wanted`` rows from ``model``; the same seed gives the same rows.

    Raises ``ConditionError`` for a condition that does not fit the columns or has probability 0.
    """
    limits = limits_of(model.domain, wanted.where)
    _check_given(wanted, limits)
    under = conditioned(model, evidence_of(limits))
    generator = public_generator(seed)
    shares: dict[str, float] = {}
    if wanted.given is not None:
        codes = fill(under.model, wanted.given.codes, generator)
    elif wanted.balance is not None:
        start, shares = _balanced(under.model, wanted.balance, wanted.rows, generator=generator)
        codes = fill(under.model, start, generator)
    else:
        codes = under.model.sample(wanted.rows, generator)
    parts = _written(model.domain, codes, limits, given=wanted.given, generator=generator)
    return ConditionalRows(parts, under.probability, shares)


def read_given(domain: Domain, table: TextTable, source: object) -> Given:
    """Returns the given columns of a table of text: columns of the domain, some or all; an empty cell is drawn.

    Raises ``DataError`` for other columns, none at all, no rows, or values that are not in the domain.
    """
    cells: dict[str, list[str]] = {}
    splits = {split.column: split for split in domain.splits}
    for name, values in table.columns.items():
        if name in splits:
            cells |= _split(splits[name], domain, list(values), source=source)
        elif name in domain.names:
            cells[name] = list(values)
        elif name not in domain.ignore:
            raise DataError(f"{source}: {_unknown(domain, name)}")
    if not cells or not len(table):
        raise DataError(
            f"{source}: has no row, or none of the columns {', '.join(domain.written_names)}; expected rows with "
            "some of them"
        )
    codes = np.full((len(table), len(domain.columns)), DRAWN, np.int32)
    texts: dict[str, NDArray[np.object_]] = {}
    for name, written in cells.items():
        given = np.array([value != "" for value in written], np.bool_)
        codes[given, domain.index(name)] = encode_cells(
            domain, name, table, values=written, rows=given, source=source
        )
        column = column_named(domain, name)
        as_written = {
            text: _as_written(domain, column, text) for text in dict.fromkeys(written) if text
        }
        texts[name] = np.array(list(map(as_written.get, written)), object)
    return Given(codes, texts)


def _as_written(domain: Domain, column: Column, value: str) -> str:
    """Returns a given value as synthetic tables have it: numbers and dates in the column's spelling."""
    if column.missing and value in domain.missing_values and column.code_of(value) is None:
        return domain.missing_values[0]
    if isinstance(column, Categorical):
        known = column.code_of(value) is not None
        return value if known else column.other
    if value in column.marks or (isinstance(column, Real) and column.decimals is None):
        return value
    return number_text(column, number_of(column, value))


def _unknown(domain: Domain, name: str) -> str:
    for implied in domain.implied:
        if implied.name == name:
            return f"column {name!r} follows from {implied.source!r}; expected that column instead"
    for derived in domain.derived:
        if derived.name == name:
            parts = ", ".join(map(repr, derived.parts))
            return f"column {name!r} is computed from {parts}; expected those columns instead"
    for group in domain.one_hot:
        if name in group.members:
            return f"column {name!r} is one of a group; expected {group.column!r} with its name instead"
    return f"column {name!r} is none of the model's; expected some of {', '.join(domain.written_names)}"


def _split(
    split: SplitColumn, domain: Domain, cells: list[str], *, source: object
) -> dict[str, list[str]]:
    """Returns the parts of a column's cells, empty for an empty cell."""
    nothing = ("",) * len(split.parts)
    known = {
        cell: split.split(cell, domain.missing_values) if cell else nothing
        for cell in dict.fromkeys(cells)
    }
    if wrong := [cell for cell, values in known.items() if values is None]:
        raise DataError(
            f"{source}: column {split.column!r} has {wrong[0]!r}; expected {split.allowed}"
        )
    rows = [values for cell in cells if (values := known[cell]) is not None]
    return {part: [row[i] for row in rows] for i, part in enumerate(split.parts)}


def _check_given(wanted: Wanted, limits: Mapping[str, Limit]) -> None:
    """Refuses a condition on a given column: a given value stays as it is."""
    given = set() if wanted.given is None else set(wanted.given.texts)
    if both := sorted(given & limits.keys()):
        raise ConditionError(
            f"column {both[0]!r} is given, and a condition is on it, too; expected one of both"
        )


def _balanced(
    model: Model, name: str, rows: int, *, generator: PublicGenerator
) -> tuple[NDArray[np.int32], dict[str, float]]:
    """Returns rows with equally many of each value of a column that the model has, and these values' shares."""
    column = column_named(model.domain, name)
    (shares,) = model.answers([(name,)])
    present = shares[: column.size - column.missing]
    codes = np.flatnonzero(present > 0)
    if not len(codes):
        raise ConditionError(f"column {name!r} has no value under the condition: all are missing")
    given = np.full((rows, len(model.domain.columns)), DRAWN, np.int32)
    # Of rows that are left over, some values get one more each, at random.
    order = generator.permutation(codes)
    given[:, model.domain.index(name)] = generator.permutation(np.resize(order, rows))
    return given, {column.labels[code]: float(present[code]) for code in codes}


def _written(
    domain: Domain,
    codes: NDArray[np.int32],
    limits: Mapping[str, Limit],
    *,
    given: Given | None,
    generator: PublicGenerator,
) -> Iterator[pd.DataFrame]:
    """Yields the rows as text: given values as they were given, and limited columns' values within their limits.

    Raises ``ConditionError`` for given values that no others satisfy the domain's constraints with.
    """
    cut = {name: limit for name, limit in limits.items() if limit.cuts}

    def draw(name: str, of: NDArray[np.int32]) -> NDArray[np.object_]:
        column = domain.columns[domain.index(name)]
        if name not in cut:
            return decode_column(domain, column, of, generator)
        texts = cut[name].write(of, generator)
        if column.missing:
            texts[of == column.size - 1] = domain.missing_values[0]
        return texts

    for start in range(0, len(codes), PART):
        part = codes[start : start + PART]
        columns = {name: draw(name, part[:, i]) for i, name in enumerate(domain.names)}
        own = {} if given is None else {n: t[start : start + PART] for n, t in given.texts.items()}
        there = {
            name: np.array([text is not None for text in texts]) for name, texts in own.items()
        }
        for name, texts in own.items():
            columns[name] = np.where(there[name], texts, columns[name])
        if relations := domain.relations:
            settle(
                relations,
                domain.columns,
                part,
                texts=columns,
                draw=draw,
                missing=domain.missing_values,
                generator=generator,
                given=there,
                limited=cut,
            )
            for name, texts in own.items():
                lost = np.flatnonzero(there[name] & (columns[name] != texts))
                if len(lost):
                    raise ConditionError(
                        f"row {start + int(lost[0]) + 1} of the given ones: no values of the other columns satisfy all "
                        f"constraints together with {texts[lost[0]]!r} in column {name!r}"
                    )
        yield written_frame(domain, columns)
