"""Tables of text and tables of codes: reading, encoding, decoding, and drafting a domain.

Provides ``read_table``, ``encode``, ``decode`` and ``draft_domain``.

Secret: the table and its codes, at its owner; ``encode`` puts one offending value into its error,
which is raised where the owner runs. A drafted domain has read the table: it is for its owner's
eyes until the owner decides that it is public.

Representation: a table is a DataFrame of strings, whose index holds each row's line in the file
(the header is line 1). Codes are int32 (rows, columns of the domain).

Limits: comma-separated UTF-8 with one header row, plain or gzip.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mechanisms.domain import (
    DEFAULT_MISSING_VALUES,
    Categorical,
    Column,
    Domain,
    Integer,
    Real,
    parse_number,
    parse_whole,
)
from mechanisms.errors import DataError, DomainError

# A drafted column of more categories than this is more likely an identifier.
MANY_CATEGORIES = 100


def read_table(path: str | Path) -> pd.DataFrame:
    """The rows of a ``.csv`` or ``.csv.gz`` file as strings, indexed by their lines in the file.

    Blanks around values and empty lines are dropped; every other value stays as written.

    Raises: ``DataError`` if the file cannot be read, is not UTF-8 or CSV, names a column twice, has
    or a row of another length than the header. A header alone is a table without rows.
    """
    path = Path(path)
    lines: list[int] = []
    rows: list[list[str]] = []
    try:
        for line, row in _csv_rows(path):
            lines.append(line)
            rows.append(row)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"{path}: cannot be read: {reason}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text; save the table as UTF-8 CSV") from error
    except csv.Error as error:
        raise DataError(f"{path}, after line {lines[-1] if lines else 0}: {error}") from error
    if not rows:
        raise DataError(f"{path}: is empty; a header row is needed")
    header = rows[0]
    _check_header(path, header)
    for line, row in zip(lines, rows, strict=True):
        if len(row) != len(header):
            raise DataError(
                f"{path}, line {line}: {len(row)} values; the header has {len(header)} columns"
            )
    return pd.DataFrame(rows[1:], columns=header, index=pd.Index(lines[1:]), dtype=object)


def encode(
    domain: Domain, frame: pd.DataFrame, *, source: str | Path = "table"
) -> NDArray[np.int32]:
    """The codes (rows, columns of the domain) of a table of strings, its columns in any order.

    Raises: ``DataError`` if a column is missing or unknown, or a value is not in the domain; the
    message names ``source``, the line, the column, the value (cut to 40 characters) and what is
    allowed.
    """
    if absent := [name for name in domain.names if name not in frame.columns]:
        raise DataError(f"{source}: column {absent[0]!r} of the domain is not in the table")
    if unknown := [str(name) for name in frame.columns if name not in domain.names]:
        raise DataError(
            f"{source}: column {unknown[0]!r} is not in the domain; remove it from the table, or"
            " describe it in the configuration if it is to be used"
        )
    codes = np.empty((len(frame), len(domain.columns)), np.int32)
    for i, column in enumerate(domain.columns):
        codes[:, i] = _encode_column(domain, column, frame[column.name], source)
    return codes


def decode(
    domain: Domain,
    codes: NDArray[np.int32],
    generator: np.random.Generator,  # noqa: TID251
) -> pd.DataFrame:
    """A table in the user's columns, categories and units, from codes (rows, columns).

    A whole number is uniform among those of its bin; a real one among the decimals in its bin, with
    ``Real.decimals`` places; a missing value is written as the first of the domain's spellings.
    ``encode`` gives the codes back. All cells are strings, as in ``read_table``.
    """
    columns = {
        column.name: _decode_column(domain, column, codes[:, i], generator)
        for i, column in enumerate(domain.columns)
    }
    return pd.DataFrame(columns, dtype=object)


def draft_domain(path: str | Path) -> tuple[Domain, list[str]]:
    """A domain that fits a table, and notes on everything that was read from the table for it.

    Whole numbers give an ``Integer`` column, other numbers a ``Real`` one, the rest categories, numbers that
    bins cannot tell apart and codes such as ``007`` among them; bounds and categories are those that occur.
    They have to be replaced by public knowledge before the domain is used.

    Raises: ``DataError`` as ``read_table`` does, and where there are no rows.
    """
    frame = read_table(path)
    if frame.empty:
        raise DataError(f"{path}: has a header but no rows; at least one row is needed")
    columns, notes = [], []
    for name in frame.columns:
        values = [str(value) for value in frame[name].unique()]
        column = _draft_column(str(name), values)
        columns.append(column)
        notes.append(_draft_note(column, values))
    return Domain(tuple(columns)), notes


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The file's rows with the line on which each begins."""
    with _open_text(path) as stream:
        reader = csv.reader(stream, strict=True)
        line = 1
        for row in reader:
            if row:
                yield line, [value.strip() for value in row]
            line = reader.line_num + 1


def _open_text(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _check_header(path: Path, header: list[str]) -> None:
    for position, name in enumerate(header, start=1):
        if not name:
            raise DataError(f"{path}, line 1: column {position} has no name")
        if name in header[: position - 1]:
            raise DataError(f"{path}, line 1: column {name!r} appears twice")


def _encode_column(
    domain: Domain, column: Column, values: pd.Series[str], source: str | Path
) -> NDArray[np.int32]:
    """Codes of one column: each distinct value is looked at once."""
    positions, distinct = pd.factorize(values, use_na_sentinel=False)
    table = [_code(domain, column, value) for value in distinct]
    bad = [i for i, code in enumerate(table) if code is None]
    if bad:
        row = int(np.flatnonzero(np.isin(positions, bad))[0])
        raise DataError(
            f"{source}, line {values.index[row]}, column {column.name!r} ({_kind(column)}):"
            f" the value {_shown(str(values.iloc[row]))} is not allowed; it has to be {_allowed(domain, column)}"
        )
    return np.array(table, np.int32)[positions]


def _shown(value: str) -> str:
    return repr(value if len(value) <= 40 else value[:37] + "...")


def _code(domain: Domain, column: Column, value: object) -> int | None:
    if not isinstance(value, str):
        return None
    code = column.code_of(value)
    if code is None and column.missing and value in domain.missing_values:
        return column.size - 1
    return code


def _kind(column: Column) -> str:
    return type(column).__name__.lower()


def _allowed(domain: Domain, column: Column) -> str:
    if column.missing:
        spellings = " or ".join(repr(value) for value in domain.missing_values)
        return f"{column.allowed}, or {spellings} for a missing value"
    return f"{column.allowed}; missing values are not allowed in this column"


def _decode_column(
    domain: Domain,
    column: Column,
    codes: NDArray[np.int32],
    generator: np.random.Generator,  # noqa: TID251
) -> NDArray[np.object_]:
    present = column.size - column.missing
    bins = np.minimum(codes, present - 1)
    if isinstance(column, Categorical):
        written = np.array(column.categories, object)[bins]
    else:
        # Both kinds of number are whole multiples of a power of ten: draw the multiple.
        decimals = column.decimals if isinstance(column, Real) else 0
        multiples = column.bin_multiples if isinstance(column, Real) else column.bin_range
        ranges = np.array([multiples(code) for code in range(present)], np.int64)[bins]
        drawn = generator.integers(ranges[:, 0], ranges[:, 1], endpoint=True)
        written = np.array([_write_decimal(int(k), decimals) for k in drawn], object)
    if column.missing:
        written[codes == present] = domain.missing_values[0]
    return written


def _write_decimal(multiple: int, decimals: int) -> str:
    return f"{multiple / 10**decimals:.{decimals}f}" if decimals else str(multiple)


def _draft_column(name: str, values: list[str]) -> Column:
    missing = any(value in DEFAULT_MISSING_VALUES for value in values)
    present = _present(values)
    if not present:
        return Categorical(name, tuple(sorted(values)))
    if not any(_has_leading_zero(value) for value in present):
        with contextlib.suppress(DomainError):
            return _draft_numbers(name, present, missing=missing)
    return Categorical(name, tuple(sorted(present)), missing)


def _draft_numbers(name: str, present: list[str], *, missing: bool) -> Column:
    """Raises ``DomainError`` where a value is no number, or bins cannot tell the numbers apart."""
    whole = [n for value in present if (n := parse_whole(value)) is not None]
    if len(whole) == len(present):
        return Integer(name, min(whole), max(whole), missing=missing)
    numbers = [x for value in present if (x := parse_number(value)) is not None]
    if len(numbers) < len(present):
        raise DomainError(f"{name}: not all values are numbers")
    low, high = min(numbers), max(numbers)
    return Real(name, low, high if high > low else low + 1, missing=missing)


def _present(values: list[str]) -> list[str]:
    return [value for value in values if value not in DEFAULT_MISSING_VALUES]


def _has_leading_zero(value: str) -> bool:
    """Whether a number is written as codes are (``007``), which a number column would not give back."""
    return bool(re.match(r"[+-]?0\d", value)) and parse_number(value) is not None


def _draft_note(column: Column, values: list[str]) -> str:
    if isinstance(column, Categorical):
        note = f"{column.name}: its {len(column.categories)} categories were read from the data"
        if len(column.categories) > MANY_CATEGORIES:
            note += "; that many look like an identifier: group them or drop the column"
        note += _why_not_numbers(_present(values))
    else:
        note = f"{column.name}: low = {column.low} and high = {column.high} were read from the data"
    return note + ("; that values are missing, too" if column.missing else "")


def _why_not_numbers(present: list[str]) -> str:
    """What made categories of a column that has numbers; "" where it has none."""
    others = [value for value in present if parse_number(value) is None]
    if len(others) == len(present):
        return ""
    if others:
        return (
            f"; not a numeric column, since {_shown(others[0])} is no number (the first such value)"
        )
    if codes := [value for value in present if _has_leading_zero(value)]:
        return f"; not a numeric column, since {_shown(codes[0])} begins with a zero, as codes do"
    return "; not a numeric column, since bins cannot tell its numbers apart"
