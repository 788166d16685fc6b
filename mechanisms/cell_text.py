"""Cells of typed tables as text, and tables of such cells.

Numbers become shortest decimals, dates ISO 8601, truth values True and False, durations hours, minutes and seconds;
null values become "".

The cells are secret, at their owner; an error names a column and the type of a value, never the value.
"""

from __future__ import annotations

import contextlib
import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TypeGuard

import numpy as np

from mechanisms.errors import DataError
from mechanisms.text_table import TextTable, and_list, named

_NULLS = ("NAType", "NaTType")
"""Type names of pandas' missing values other than None and NaN."""
_MOST_NAMED = 5
"""Most columns that a note on blanks names."""
_INDEX = "__index_level_0__"
"""Arrow's name for an unnamed index of pandas."""


def named_table(
    where: str, names: Sequence[str], columns: Sequence[Sequence[object]], *, first: int = 1
) -> TextTable:
    """Returns a table of typed columns, its rows counted from ``first``.

    Raises ``DataError`` for a name that is empty or appears twice, and for a value that is no cell.
    """
    kept: dict[str, Sequence[str]] = {}
    notes, blanks = list[str](), dict[str, int]()
    for number, (given, values) in enumerate(zip(names, columns, strict=True), start=1):
        name = given.strip()
        if name == _INDEX:
            notes.append(f"the index, column {name!r}, left out")
            continue
        if not name:
            raise DataError(f"{where}: column {number} has no name; name it, or remove it")
        if name in kept:
            raise DataError(f"{where}: column {name!r} appears twice; rename one")
        kept[name] = column_texts(where, name, values)
        blanks[name] = sum(isinstance(v, str) and v != v.strip() for v in values)
    notes += blanks_note(blanks)
    rows = len(columns[0]) if columns else 0
    return TextTable(kept, range(first, first + rows), "row", tuple(notes))


def blanks_note(values: Mapping[str, int]) -> list[str]:
    """Returns a note on dropped blanks, by the number of values in each column that had some; none without any."""
    found = [f"{named(name)} ({n:,} values)" for name, n in values.items() if n]
    more = [f"{len(found) - _MOST_NAMED} more columns"] if len(found) > _MOST_NAMED else []
    said = and_list([*found[:_MOST_NAMED], *more])
    return (
        [f"blanks at the ends of values are dropped, and do not come back: {said}"] if said else []
    )


def column_texts(where: str, name: str, values: Sequence[object]) -> list[str]:
    """Returns ``texts`` of a column. Raises ``DataError`` with the column's name."""
    try:
        return texts(values)
    except TypeError as error:
        raise DataError(
            f"{where}: column {name!r} has {error}; expected text, numbers, dates or truth values: leave that column "
            "out, or make columns of it"
        ) from None


def texts(values: Sequence[object]) -> list[str]:
    """Returns a column of typed values as text; if all moments are midnight they are written as dates.

    Raises ``TypeError`` for a value that is no cell.
    """
    # The missing moment of pandas is a moment by its type.
    moments = [value for value in values if _is_moment(value)]
    days_only = all(
        moment.tzinfo is None and moment.time() == datetime.time() for moment in moments
    )
    if moments and days_only:
        return [text(value.date() if _is_moment(value) else value) for value in values]
    return [text(value) for value in values]


def _is_moment(value: object) -> TypeGuard[datetime.datetime]:
    return isinstance(value, datetime.datetime) and type(value).__name__ not in _NULLS


def text(value: object) -> str:
    """Returns a typed value as a text file would have it. Raises ``TypeError`` for a value that is no cell."""
    if (
        value is None
        or type(value).__name__ in _NULLS
        or (isinstance(value, float | np.floating) and math.isnan(value))
    ):
        return ""
    if isinstance(value, np.floating):
        # A 32-bit float has a shortest form in its own precision.
        return str(float(str(value)))
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool | int | float | Decimal):
        return str(value)
    if isinstance(value, datetime.timedelta):
        return _duration(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise TypeError(f"a value of type {type(value).__name__}")


def whole_floats(values: Sequence[object]) -> Sequence[object]:
    """Returns the values, with floats as whole numbers if all of them are whole.

    pandas turns whole numbers beside missing values into floats; this function turns them back.
    """
    floats = [float(x) for x in values if isinstance(x, float | np.floating) and not math.isnan(x)]
    if not all(x.is_integer() and abs(x) < 2**53 for x in floats):
        return values
    return [
        int(x) if isinstance(x, float | np.floating) and not math.isnan(x) else x for x in values
    ]


@contextlib.contextmanager
def failures(where: str, *, secrets: Sequence[str] = ()) -> Iterator[None]:
    """Turns every exception of a library into a ``DataError`` with its first line, without ``secrets``."""
    try:
        yield
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{where}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # noqa: BLE001  # Their trees of errors have nothing in common.
        first = str(error).strip().partition("\n")[0]
        for secret in secrets:
            first = first.replace(secret, "***")
        raise DataError(f"{where}: cannot be read: {type(error).__name__}: {first}") from None


def _duration(value: datetime.timedelta) -> str:
    """Returns a duration as hours, minutes and seconds, such as 66:00:00."""
    seconds = abs(value) // datetime.timedelta(seconds=1)
    sign = "-" if value < datetime.timedelta() else ""
    fraction = (
        f".{abs(value).microseconds:06d}".rstrip("0").rstrip(".") if value.microseconds else ""
    )
    return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
