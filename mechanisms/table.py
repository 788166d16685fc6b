"""Tables of text and tables of codes: encoding and decoding.

Tables are read by `mechanisms.reading`, domains drafted by `mechanisms.draft`.

The table and its codes are secret, at their owner; ``encode`` puts up to ten offending values into its error, which is
raised on the owner's machine.

Representation: a table consists of strings, a ``TextTable`` or, with pandas, a DataFrame whose index holds each row's
line in the file (the header is line 1). Codes are int32 (rows, columns of the domain).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from mechanisms.constraints.checking import contradictions
from mechanisms.constraints.declared import REFUSE, OneHot
from mechanisms.constraints.one_hot import gather, scatter
from mechanisms.constraints.rows import settle
from mechanisms.domain import Categorical, Column, Domain, Implied, parse_number, parse_whole
from mechanisms.errors import DataError
from mechanisms.sampling import PublicGenerator
from mechanisms.split_columns import join_cells, split_cells
from mechanisms.text_table import SHOWN_CELLS, TextTable, or_missing, shown, wrong_cells_message

if TYPE_CHECKING:
    import pandas as pd

_Value = TypeVar("_Value", bound=Hashable)


def encode(
    domain: Domain,
    frame: TextTable | pd.DataFrame,
    *,
    source: str | Path = "table",
    ignore_extra: bool = False,
) -> NDArray[np.int32]:
    """Returns the codes (rows, columns of the domain) of a table of strings, its columns in any order.

    Columns that the domain ignores are left out, and with ``ignore_extra`` all unknown ones. An implied column is
    optional; if it is present, each of its values has to be the implied one. So is a derived one, whose values have to
    be right unless its constraint repairs them. Rows have to satisfy the domain's relations.

    Raises ``DataError`` if a column is missing or unknown, or values are not in the domain; the message names
    ``source``, the number of such values, and for the first ten the line, the column, the value (cut to 40 characters)
    and the allowed values.
    """
    table = as_modelled(domain, TextTable.of(frame), source)
    _check_columns(domain, table, source, ignore_extra=ignore_extra)
    codes = np.empty((len(table), len(domain.columns)), np.int32)
    bad: list[_BadCells] = []
    for i, column in enumerate(domain.columns):
        codes[:, i], wrong = _encode_column(domain, column, table.columns[column.name])
        bad.append(_BadCells(column.name, wrong, column.kind, _allowed(domain, column)))
    for implied in domain.implied:
        if implied.name in table.columns:
            source_bad = bad[domain.index(implied.source)].rows
            bad.append(_contradictions(domain, implied, table, ~source_bad))
    bad += _contradicting(domain, table)
    if any(cells.rows.any() for cells in bad):
        raise DataError(_bad_message(table, bad, source))
    return codes


def encode_cells(
    domain: Domain,
    name: str,
    table: TextTable,
    *,
    values: Sequence[str],
    rows: NDArray[np.bool_],
    source: object,
) -> NDArray[np.int32]:
    """Returns the codes of one column's ``values`` at ``rows`` of a table that may have no other column.

    Raises ``DataError`` as ``encode``.
    """
    column = domain.columns[domain.index(name)]
    places = np.flatnonzero(rows)
    codes, wrong = _encode_column(domain, column, [values[place] for place in places.tolist()])
    if wrong.any():
        bad = np.zeros(len(values), np.bool_)
        bad[places[wrong]] = True
        shown_table = TextTable({name: values}, table.places, table.unit)
        cells = _BadCells(name, bad, column.kind, _allowed(domain, column))
        raise DataError(_bad_message(shown_table, [cells], str(source)))
    return codes


def as_modelled(domain: Domain, table: TextTable, source: object) -> TextTable:
    """Returns the table with the columns that the domain models: parts of split columns, categories of one-hot groups.

    Raises ``DataError`` as ``split_cells`` and ``gather``.
    """
    split = split_cells(domain.splits, domain.missing_values, table, source)
    return gather(domain.one_hot, domain.missing_values, split, source=source)


def decode(domain: Domain, codes: NDArray[np.int32], generator: PublicGenerator) -> pd.DataFrame:
    """Returns a table in the user's columns, categories and units, from codes (rows, columns).

    A number is uniform among those of its cell, with the column's decimals; a date among the units of its cell; an atom
    is itself; a missing value is written as the first of the domain's spellings. Implied columns are looked up, derived
    ones computed, and all rows satisfy the domain's relations. ``encode`` gives the codes back, which change in place
    where no values of a row's cells satisfy all relations at once. All cells are strings, as in a table that was read.
    """
    columns = {
        column.name: decode_column(domain, column, codes[:, i], generator)
        for i, column in enumerate(domain.columns)
    }
    if relations := domain.relations:

        def draw(name: str, of: NDArray[np.int32]) -> NDArray[np.object_]:
            return decode_column(domain, domain.columns[domain.index(name)], of, generator)

        settle(
            relations,
            domain.columns,
            codes,
            texts=columns,
            draw=draw,
            missing=domain.missing_values,
            generator=generator,
        )
    return written_frame(domain, columns)


def decode_column(
    domain: Domain, column: Column, codes: NDArray[np.int32], generator: PublicGenerator
) -> NDArray[np.object_]:
    """Returns codes (rows,) of one column as text (rows,); see ``decode``."""
    present = column.size - column.missing
    written = column.write(np.minimum(codes, present - 1), generator)
    if column.missing:
        written[codes == present] = domain.missing_values[0]
    return written


def written_frame(domain: Domain, columns: dict[str, NDArray[np.object_]]) -> pd.DataFrame:
    """Returns a table in the domain's order of written columns, from columns as text.

    Implied columns are looked up, derived ones computed.
    """
    # Data owners, who only encode, do without pandas.
    import pandas as pd

    columns = dict(columns)
    modelled = {column.name: column for column in domain.columns}
    for derived in domain.derived:
        parts = {name: columns[name].tolist() for name in derived.parts}
        columns[derived.name] = derived.texts(modelled, parts, domain.missing_values)
    for implied in domain.implied:
        known = dict(implied.values)
        absent = next(iter(domain.missing_values), "")
        written = [known.get(value, absent) for value in columns[implied.source]]
        columns[implied.name] = np.array(written, object)
    columns = join_cells(domain.splits, domain.missing_values, columns)
    columns = scatter(domain.one_hot, domain.missing_values, columns)
    return pd.DataFrame({name: columns[name] for name in domain.written_names}, dtype=object)


@dataclass(frozen=True, slots=True, eq=False)
class _BadCells:
    """The wrong ``rows`` of a column, (rows,) bool, and its ``allowed`` values.

    For an implied column, ``follows`` has instead the contradiction of each wrong row's value. For a constraint,
    ``columns`` has the column of each of them, and both have the first wrong rows alone.
    """

    column: str
    rows: NDArray[np.bool_]
    kind: str
    allowed: str = ""
    follows: Mapping[int, str] | None = None
    columns: Mapping[int, str] | None = None

    def column_of(self, row: int) -> str:
        """Returns the column of a row's wrong value."""
        return self.column if self.columns is None else self.columns[row]

    def said_of(self, row: int, value: object) -> str:
        """Returns the wrong value of a row, for a message."""
        said = f"the value {shown(str(value))}"
        return said if self.follows is None else f"{said} {self.follows[row]}"


def _check_columns(
    domain: Domain, table: TextTable, source: str | Path, *, ignore_extra: bool
) -> None:
    if absent := [name for name in domain.names if name not in table.columns]:
        whole = {part: split.column for split in domain.splits for part in split.parts}
        whole |= {group.column: group.members[0] for group in domain.one_hot}
        name = whole.get(absent[0], absent[0])
        raise DataError(f"{source}: column {name!r} of the domain is not in the table")
    known = {*domain.described_names, *domain.ignore}
    unknown = [str(name) for name in table.columns if name not in known]
    if unknown and not ignore_extra:
        names = ", ".join(repr(name) for name in unknown[:SHOWN_CELLS])
        subject = f"column {names} is" if len(unknown) == 1 else f"columns {names} are"
        raise DataError(
            f"{source}: {subject} not in the domain; name such columns in the configuration's ignore, leave them"
            " out here alone with --ignore-extra, or describe them if they are to be used"
        )


def _bad_message(table: TextTable, bad: list[_BadCells], source: str | Path) -> str:
    count = sum(int(cells.rows.sum()) for cells in bad)
    first = list(_first_bad(bad))
    lines = [
        f"{table.unit} {table.places[row]}, column {cells.column_of(row)!r} ({cells.kind}): "
        + cells.said_of(row, table.columns[cells.column_of(row)][row])
        for row, cells in first
    ]
    allowed = {cells.column: cells.allowed for _, cells in first if cells.allowed}
    return wrong_cells_message(source, count, lines, allowed)


def _first_bad(bad: list[_BadCells]) -> Iterator[tuple[int, _BadCells]]:
    """Yields the first wrong cells in the order of the table's rows, ten at most."""
    found = [
        (int(row), number)
        for number, cells in enumerate(bad)
        for row in np.flatnonzero(cells.rows)[:SHOWN_CELLS]
    ]
    for row, number in sorted(found)[:SHOWN_CELLS]:
        yield row, bad[number]


def _factorized(values: Sequence[_Value]) -> tuple[NDArray[np.intp], list[_Value]]:
    """Returns the position (rows,) of each value among the distinct ones, which are in order of appearance."""
    distinct = list(dict.fromkeys(values))
    position = {value: i for i, value in enumerate(distinct)}
    return np.fromiter(map(position.__getitem__, values), np.intp, len(values)), distinct


def _encode_column(
    domain: Domain, column: Column, values: Sequence[str]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Returns the codes of one column, and the rows without one; each distinct value is encoded once."""
    positions, distinct = _factorized(values)
    codes = [_code(domain, column, value) for value in distinct]
    table = np.array([-1 if code is None else code for code in codes], np.int32)
    encoded = table[positions]
    return encoded, encoded < 0


def _contradictions(
    domain: Domain, implied: Implied, table: TextTable, rows: NDArray[np.bool_]
) -> _BadCells:
    """Returns those of ``rows`` whose value is not the one that the source's value implies."""
    source = domain.columns[domain.index(implied.source)]
    known = dict(implied.values)
    pairs = list(zip(table.columns[implied.source], table.columns[implied.name], strict=True))
    positions, distinct = _factorized(pairs)
    expected = [_implied_value(domain, source, known, str(key)) for key, _ in distinct]
    wrong = [
        not _agree(domain, str(value), follows)
        for (_, value), follows in zip(distinct, expected, strict=True)
    ]
    bad = np.array(wrong, bool)[positions] & rows
    said = f"contradicts {implied.source!r} of the same row, from which follows"
    by_row = {
        int(row): f"{said} {shown(expected[positions[row]] or '')}" for row in np.flatnonzero(bad)
    }
    return _BadCells(implied.name, bad, "implied", follows=by_row)


def _contradicting(domain: Domain, table: TextTable) -> Iterator[_BadCells]:
    """Yields the rows that contradict the domain's constraints; derived values to be repaired contradict nothing."""
    for wrong in contradictions(domain, table, shown=SHOWN_CELLS):
        constraint = wrong.constraint
        # A row of a one-hot group that is no category has no code.
        if isinstance(constraint, OneHot) or (wrong.derived and constraint.violations != REFUSE):
            continue
        columns = {row: column for row, (column, _) in wrong.said.items()}
        follows = {row: text for row, (_, text) in wrong.said.items()}
        yield _BadCells("", wrong.rows, "constraint", follows=follows, columns=columns)


def _implied_value(
    domain: Domain, source: Column, known: Mapping[str, str], written: str
) -> str | None:
    """Returns the value implied by a value of the source; None if that is missing."""
    if not isinstance(source, Categorical):
        number = parse_whole(written)
        written = written if number is None else str(number)
    elif source.other and source.code_of(written) is None and written not in domain.missing_values:
        written = source.other
    return known.get(written)


def _agree(domain: Domain, value: str, expected: str | None) -> bool:
    if expected is None:
        return value in domain.missing_values
    if value == expected:
        return True
    numbers = parse_number(value), parse_number(expected)
    return None not in numbers and numbers[0] == numbers[1]


def _code(domain: Domain, column: Column, value: object) -> int | None:
    if not isinstance(value, str):
        return None
    code = column.code_of(value)
    if code is None and column.missing and value in domain.missing_values:
        return column.size - 1
    if code is None and isinstance(column, Categorical) and column.other:
        return None if value in domain.missing_values else column.code_of(column.other)
    return code


def _allowed(domain: Domain, column: Column) -> str:
    if column.missing:
        return or_missing(column.allowed, domain.missing_values)
    return f"{column.allowed}; missing values are not allowed in this column"
