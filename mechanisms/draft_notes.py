"""Notes of a draft: the values of each column that were read from the table, for its owner's eyes.

The notes are secret until the owner has confirmed the values that they name. No note contains a value that was merged
because a person may be known by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mechanisms.columns import Categorical, Column, Moment
from mechanisms.numbers import Integer, Real
from mechanisms.spelling import FRACTION, Clock, spelling_of
from mechanisms.split_columns import SplitColumn
from mechanisms.text_table import and_list, named, shown
from mechanisms.written import parse_number, parse_whole

MANY_CATEGORIES = 100
"""Number of categories above which a note mentions it."""
OTHERS = ("other", "(other)", "all others")
"""Words for merged categories and answers; a draft takes the first that is none of them."""
RARE_ROWS = 20
"""Rows below which categories are merged in a draft, since a person may be known by them."""
EXACT_WHOLE = 2**53
"""Largest whole number that is not a code."""


def _has_leading_zero(value: str) -> bool:
    """Returns whether a number is written as a code (``007``), which a number column would not reproduce."""
    return bool(re.match(r"[+-]?0\d", value)) and parse_number(value) is not None


def note_of(column: Column, counts: Mapping[str, int]) -> str:
    """Returns a draft's note on the values that were read of a column; ``counts`` has their rows."""
    name = named(column.name)
    if isinstance(column, Categorical):
        note = f"{name}: its {len(column.categories)} categories were read from the data"
        rare = sum(rows < RARE_ROWS for rows in counts.values())
        if column.other:
            note += f"; {rare} with fewer than {RARE_ROWS} rows are left out and written {column.other!r}: list those"
            note += " that are public"
        elif rare:
            note += f"; {rare} with fewer than {RARE_ROWS} rows, by which a person may be known"
        if column.prefix:
            note += f"; those with the same first {_count(column.prefix, 'character')} share a cell"
            note += f", but for {len(column.atoms)} frequent ones (atoms)" if column.atoms else ""
        elif len(column.categories) > MANY_CATEGORIES:
            note += "; that many look like an identifier: group them or drop the column"
        # A value that was merged because a person may be known by it is not shown either.
        listed = set(column.values)
        note += _why_not_numbers([value for value in counts if value in listed])
    else:
        note = f"{name}: low = {column.low} and high = {column.high} were read from the data"
        if column.atoms:
            atoms = ", ".join(str(atom) for atom in column.atoms)
            note += f"; that many rows have {atoms} (atoms), too"
        if column.edges:
            note += "; the edges of its bins, too"
        if isinstance(column, Real) and column.decimals is not None:
            note += "; the decimals, too" if column.digits is None else "; decimals and digits, too"
        if isinstance(column, Moment):
            note += "; the unit and the format, too"
        elif column.form:
            note += f"; the format {column.form}{_clock_words(column.form)}, too"
        if isinstance(column, Integer | Real) and column.endings:
            ends = ", ".join(digits for digits, _ in column.endings)
            note += f"; that numbers end in {ends}, too"
        if column.marks:
            marks = ", ".join(shown(mark) for mark in column.marks)
            note += f"; the marks {marks}, too, which are no numbers and have cells of their own"
    return note + ("; that values are missing, too" if column.missing else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("s" if number != 1 else "")


def _clock_words(form: str) -> str:
    """Returns the units of a clock's numbers, lest minutes and seconds are taken for hours and minutes."""
    spelling = spelling_of(form)
    if not isinstance(spelling, Clock):
        return ""
    words = {"D": "days", "H": "hours", "M": "minutes", "S": "seconds"}
    words[FRACTION] = f"10^-{spelling.decimals} seconds"
    units = and_list(words[letter] for letter in spelling.letters)
    return f" ({units}; numbers count {words[spelling.letters[-1]]})"


def split_note(split: SplitColumn) -> str:
    """Returns a draft's note on a column whose cells have several values."""
    name = named(split.column)
    if split.pattern:
        return f"{name}: its cells are split, {split.allowed}; call the parts what they are"
    listed = [answer for answer in split.answers if answer != split.other]
    note = f"{name}: its {len(listed)} answers were read from the data, with {split.separator!r} between them"
    if split.other:
        note += f"; those with fewer than {RARE_ROWS} rows are left out and written {split.other!r}"
    return note


def printable(notes: Iterable[str]) -> tuple[str, ...]:
    """Returns notes with escapes in place of control characters: a value or a format in them may have any."""
    return tuple("".join(c if c.isprintable() else repr(c)[1:-1] for c in note) for note in notes)


def _why_not_numbers(present: list[str]) -> str:
    """Returns the reason for categories in a column that has numbers; "" if it has none."""
    others = [value for value in present if parse_number(value) is None]
    if len(others) == len(present):
        return ""
    if others:
        return (
            f"; not a numeric column, since {shown(others[0])} is no number (the first such value)"
        )
    if codes := [value for value in present if _has_leading_zero(value)]:
        return f"; not a numeric column, since {shown(codes[0])} begins with a zero, as codes do"
    whole = [n for value in present if (n := parse_whole(value)) is not None]
    if any(abs(n) > EXACT_WHOLE for n in whole):
        return "; not a numeric column, since whole numbers of more than 15 digits are codes"
    if len(set(map(float, present))) < len(present):
        return "; not a numeric column, since some are the same number in two spellings, as versions are"
    return "; not a numeric column, since bins cannot tell its numbers apart"
