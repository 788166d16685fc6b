"""Draft of a domain for a table: kinds, bounds, categories, atoms, scales, and columns that are left out.

``draft_domain`` reads a table; ``draft_of`` takes one that was read. Everything in a draft was read from the table, and
its notes say so: it is for the eyes of the table's owner until the owner has replaced each value by public knowledge or
confirmed it. The draft and its notes contain no values of columns that look like identifiers or free text.

The table is secret. Limits: rules of thumb, all in the constants below; kinds are guessed from text.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TypeAlias

from mechanisms.bands import in_order
from mechanisms.constraints.proposing import Proposal, proposals
from mechanisms.date_patterns import Pattern
from mechanisms.digits import (
    MAX_DIGITS,
    MOST_DECIMALS,
    at_place,
    largest_place,
    place_of,
    place_of_text,
)
from mechanisms.discretising import SENTINELS, Shape, roundest, shape_of
from mechanisms.domain import (
    DEFAULT_MISSING_VALUES,
    Categorical,
    Column,
    Domain,
    Integer,
    Moment,
    Real,
    parse_number,
    parse_whole,
)
from mechanisms.draft_notes import (
    EXACT_WHOLE,
    MANY_CATEGORIES,
    OTHERS,
    RARE_ROWS,
    note_of,
    printable,
    split_note,
)
from mechanisms.endings import endings_of
from mechanisms.errors import DataError, DomainError
from mechanisms.header import looks_like_value
from mechanisms.moments import (
    DATE_MARKS,
    DEFAULT_FORMS,
    UNITS,
    Form,
    moment_of,
    roundest_tick,
    tick_of,
)
from mechanisms.numbers import MAX_DECIMALS
from mechanisms.person_rows import PersonKey, find_person_key
from mechanisms.private_columns import with_private_bins
from mechanisms.provenance import TABLE, WHOLE, Provenance
from mechanisms.reading import read_recognised
from mechanisms.recognising import (
    CODES_SHARE,
    MOST_MARKS,
    NumberReading,
    ambiguous_versions,
    code_shaped,
    read_numbers,
)
from mechanisms.recognising_moments import MomentReading, read_moments
from mechanisms.respelling import mixed_numbers, respelt_cells_note, respelt_note
from mechanisms.scale_free import form_of_bounds
from mechanisms.source import TableSource
from mechanisms.spelling import FRACTION, Clock, Numeral, spelling_of
from mechanisms.split_columns import NO, YES, SplitColumn
from mechanisms.split_draft import FIXED_SIGNS, range_of, separator_of, split_of
from mechanisms.table import as_modelled
from mechanisms.text_format import TextFormat
from mechanisms.text_table import TextTable, and_list, named
from mechanisms.written import EXACT, decimals_of, multiple_of

WRITTEN_GAP = "NA"
"""Spelling of a missing value in cells that would end in a blank without it."""
KNOWN_MISSING = ("", "?", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "null", "NULL", "None")
"""Usual spellings of a missing value."""
NEARLY_UNIQUE, ENOUGH_ROWS = 0.9, 10
"""Different values per row, and fewest rows, that make a column an identifier."""
MANY_TEXTS = ((20, 0.5), (MANY_CATEGORIES, 0.1))
"""Numbers of different texts, and their share of the rows, from which a column looks like an identifier too."""
FOLDED_FROM = 400
"""Rows from which a draft merges categories of fewer than ``RARE_ROWS`` rows, if they are a twentieth at most."""
MERGED = 0.2
"""Share of the rows in merged categories from which a draft says so, and looks for several answers in a cell first."""
_MERGED_NOTE = (
    "categories of fewer than 20 rows have {:.0%} of the rows together and are merged; list those that are public, or "
    "group them"
)
_MIXED_NOTE = "has numbers in several spellings, {}; each text is a category"
LONG_TEXT, LONGEST_TEXT, ANSWER_ROWS = 40, 200, 10
"""Rules for free text, in characters and rows.

Many texts of which half are longer than the first number are free text, and so are texts longer than the second, unless
they are answers that have so many rows on average.
"""
MOST_DIGITS = 17
"""Most digits of a column's largest number, as a whole multiple of its last decimal."""
RARE = 0.002
"""Share of the rows that may have more decimals than the column; they are rounded."""
FEWEST_APART = 20
"""Fewest numbers, or half of them, that have to stay different when rounded to multiples."""
MOST_APART, APART_ROWS = 50, 20
"""Most codes with a cell of their own, and the fewest rows of each; other codes are grouped by a prefix."""
MOST_SPELLINGS = 4
"""Most spellings of dates in one column that a reason names."""
DISTINCT_MOMENTS = 5
"""Fewest different moments that can show that all lie on the first of a month."""

DECADES = 10_000
"""Ratio of large to small numbers from which numbers that a program wrote with powers of ten keep their digits."""
NOISY_DIGITS, NOISE = 15, 4e-15
"""Significant digits from which the last ones may be noise of binary fractions, and the noise's relative size."""

POINT_ROWS = 500
"""Rows in which decimal points are looked for."""
_DECIMAL_POINT = re.compile(r"[+-]?(0\.\d+|\d+\.(\d{1,2}|\d{4,})|\d{4,}\.\d+)", re.ASCII)
_IDENTIFIER = re.compile(
    r"(?i:(^|[^a-z])(id|ids|pid|patid|uuid|guid|key|ssn|mrn|iban)($|[^a-z]))|[a-z]I[dD]$"
)
_MOST_MULTIPLE = 2**60
_Reading: TypeAlias = MomentReading | NumberReading


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A column of which a draft may not show its values, with a template of the ``tables`` that would describe it.

    Each of the tables has its name, "column" or "split", and its keys.
    """

    column: str
    tables: tuple[tuple[str, Mapping[str, object]], ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafted ``domain``, with ``notes`` on the values read for each column.

    ``left_out`` has the columns that were left out and why. ``read_as`` is the dialect recognised, ``questions`` are
    about ambiguous readings, and ``skipped`` has what of the file is not in the table, or not by itself. A ``private``
    draft contains no value of the table, and leaves columns ``unlisted`` (`mechanisms.private_draft`). ``person`` is
    the column that identifies persons with several rows, left out as well. ``proposals`` are constraints that the table
    shows, with the number of exceptions.
    """

    domain: Domain
    notes: tuple[str, ...]
    left_out: tuple[str, ...]
    read_as: str
    questions: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    private: bool = False
    unlisted: tuple[Unlisted, ...] = ()
    person: PersonKey | None = None
    proposals: tuple[Proposal, ...] = ()

    @property
    def to_list(self) -> tuple[str, ...]:
        """Names of the columns whose values are left to be listed."""
        return tuple(each.column for each in self.unlisted)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Column:
    """Values of one column that are not missing, each with its row count; ``ascending`` if they grow."""

    name: str
    counts: Counter[str]
    missing: bool
    ascending: bool

    @property
    def rows(self) -> int:
        return self.counts.total()

    def having(self, counts: Counter[str]) -> _Column:
        """Returns the same column with its values in another spelling."""
        return replace(self, counts=counts)

    @property
    def values(self) -> list[str]:
        return list(self.counts)

    @property
    def nearly_unique(self) -> bool:
        return self.rows >= ENOUGH_ROWS and len(self.counts) >= NEARLY_UNIQUE * self.rows

    @property
    def many_of_their_own(self) -> bool:
        count = len(self.counts)
        return any(count > least and count >= share * self.rows for least, share in MANY_TEXTS)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Read:
    """Values of one column of the domain, as they were read; ``answer`` if each is yes or no."""

    values: _Column
    reading: _Reading | None = None
    answer: bool = False

    def draft(self) -> Column:
        if self.answer:
            return Categorical(self.values.name, (NO, YES))
        return _draft_column(self.values, self.reading)


def draft_domain(
    source: str | Path | TableSource, *, private_bins: bool = False, all_columns: bool = False
) -> Draft:
    """Returns a domain that fits a table, with notes on everything that was read from it; see ``draft_of``.

    Raises ``DataError`` as ``read_recognised`` and ``draft_of`` do.
    """
    where = source.shown if isinstance(source, TableSource) else str(source)
    table, read_as = read_recognised(source)
    return draft_of(table, where, read_as, private_bins=private_bins, all_columns=all_columns)


def draft_of(
    table: TextTable,
    where: str,
    read_as: str,
    *,
    private_bins: bool = False,
    all_columns: bool = False,
) -> Draft:
    """Returns a domain that fits a table, with notes on everything that was read from it.

    ``where`` (the table's place) and ``read_as`` (the dialect recognised) are for messages. With ``private_bins``
    numbers have no atoms and no log scale: a run chooses the bins by noisy counts. With ``all_columns`` the format
    lists the table's columns, so that written tables have those left out as well, empty.

    Whole numbers give an ``Integer`` column, other numbers a ``Real`` one, ISO dates a ``Moment``, the rest categories,
    including numbers that bins cannot tell apart and codes such as ``007``. Bounds and categories are those that occur;
    they have to be replaced by public knowledge before the domain is used.

    Raises ``DataError`` if there are no rows or no column is left, and with ``all_columns`` for a name of a left-out
    column that may be a value.
    """
    if not len(table):
        raise DataError(f"{where}: has a header but no rows; at least one row is needed")
    columns: list[Column] = []
    notes, left_out, reasons, questions, merged = [], [], [], [], list[str]()
    dotted = "semicolon" in read_as and not _has_points(table)
    spellings = Counter[str]()
    splits = list[SplitColumn]()
    person = find_person_key(table.columns, KNOWN_MISSING)
    for name, cells in table.columns.items():
        if person is not None and name == person.column:
            left_out.append(name)
            reasons.append(f"{named(name)}: looks like a person's key: {person.note}")
            continue
        values = _column(name, cells)
        reading = _reading(values, dotted_thousands=dotted)
        reason, parts = _why_left_out(values, reading), list[_Read]()
        rare = 0.0 if reading or reason else _merged_share(values)
        if reading is None and (reason or rare > MERGED or len(values.counts) > MANY_CATEGORIES):
            split, parts = _split(values, cells, dotted_thousands=dotted)
            if split and not table.columns.keys().isdisjoint(split.parts):
                split, parts = None, []
            if split and (copies := _copies(split, cells, table.columns)):
                reason, split, parts = f"has the values of {copies} again", None, []
            if split:
                splits.append(split)
                notes.append(split_note(split))
                merged.append(respelt_cells_note(split, values.counts, KNOWN_MISSING))
        if not parts and not reason:
            parts = [_Read(values, reading)]
            merged += [f"column {named(name)}: {_MERGED_NOTE.format(rare)}"] * (rare > MERGED)
        if not parts:
            left_out.append(name)
            reasons.append(f"{named(name)}: {reason}")
            continue
        for part in parts:
            column = part.draft()
            if part.reading and part.reading.question and not isinstance(column, Categorical):
                questions.append(f"{named(column.name)}: {part.reading.question}")
            if part.reading:
                counts, sign = part.values.counts, table.form.decimal
                merged.append(respelt_note(column, part.reading, counts, decimal=sign))
            elif mixed := mixed_numbers(part.values.counts):
                merged.append(f"column {named(name)}: {_MIXED_NOTE.format(mixed)}")
            if private_bins:
                column = with_private_bins(column)
            columns.append(column)
            if not part.answer:
                notes.append(note_of(column, part.values.counts))
        if values.missing:
            spellings.update(value for value in cells if value in KNOWN_MISSING)
    if not columns:
        more = "; if it is several columns, give --delimiter" if len(table.columns) == 1 else ""
        raise DataError(f"{where}: no column is left to model; {'; '.join(reasons)}{more}")
    missing = tuple(value for value, _ in spellings.most_common()) or DEFAULT_MISSING_VALUES
    absent = {column.name for column in columns if column.missing}
    gaps = [s for s in splits if s.pattern and absent.intersection(s.parts)]
    if any(s.absent_at(i, missing) is None for s in gaps for i in range(len(s.parts))):
        missing = (*missing, WRITTEN_GAP)
    domain = Domain(
        tuple(columns),
        missing,
        ignore=tuple(left_out),
        format=_form_of(table, columns),
        provenance=tuple(Provenance(column.name, ((WHOLE, TABLE),)) for column in columns),
        splits=tuple(splits),
    )
    if all_columns:
        _check_names(table, where, left_out)
        domain = domain.with_all_columns(tuple(table.columns))
    return Draft(
        domain,
        printable(notes),
        printable(reasons),
        read_as,
        printable(questions),
        printable((*table.notes, *filter(None, merged))),
        person=person,
        proposals=proposals(domain.columns, missing, as_modelled(domain, table, where)),
    )


def _has_points(table: TextTable) -> bool:
    """Returns whether numbers of a column surely have decimal points, so that 1.234 is no whole number elsewhere."""
    for cells in table.columns.values():
        sample = [cell for cell in cells[:POINT_ROWS] if cell]
        if sample and 2 * sum(map(bool, map(_DECIMAL_POINT.fullmatch, sample))) > len(sample):
            return True
    return False


def _check_names(table: TextTable, where: str, names: Sequence[str]) -> None:
    """Raises ``DataError`` if one of the columns has a name that may be a value; the error does not show it."""
    for number, (name, cells) in enumerate(table.columns.items(), start=1):
        if name in names and (looks_like_value(name) or name in cells):
            raise DataError(
                f"{where}: the name of column {number}, which is left out, may be a value, and would be published; "
                "name the column in the table, or draft without all columns"
            )


def _form_of(table: TextTable, columns: Sequence[Column]) -> TextFormat:
    """Returns the table's format, with points between thousands in columns that are numbers in the draft, too."""
    plain = {c.name for c in columns if isinstance(c, Integer | Real)}
    return replace(
        table.form, thousands=tuple(name for name in table.form.thousands if name in plain)
    )


def _split(
    column: _Column, cells: Sequence[str], *, dotted_thousands: bool
) -> tuple[SplitColumn | None, list[_Read]]:
    """Returns a description of cells with several values, and its parts; nothing if a part would be left out."""
    split = split_of(column.name, column.counts, fold=len(cells) >= FOLDED_FROM)
    if split is None or set(column.counts) & set(KNOWN_MISSING):
        return None, []
    if split.answers:
        answers = [_Read(_column(part, ()), answer=True) for part in split.parts]
        return (split, answers) if _is_readable(split, answers) else (None, [])
    rows = [split.split(cell, KNOWN_MISSING) for cell in cells]
    allowed = [row for row in rows if row is not None]
    texts, parts = "".join(replace(split, marks=()).literals), []
    for position, part in enumerate(split.parts):
        values = _column(part, [row[position] for row in allowed])
        unmarked = Counter({v: n for v, n in values.counts.items() if v not in split.marks})
        reading = _reading(values.having(unmarked), dotted_thousands=dotted_thousands)
        if reading is not None and position == 0:
            reading = replace(reading, marks=split.marks)
        # A currency or a unit is a category.
        word = reading is None and not texts.strip()
        if len(allowed) < len(rows) or _why_left_out(values, reading):
            return None, []
        if reading is None and not word and not _is_fixed(split, values):
            return None, []
        parts.append(_Read(values, reading))
    # Numbers of cases (2021-4711) are identifiers, unless they are ranges.
    drafted = [part.draft() for part in parts]
    # A sign of their own, such as that of per cent or a clock's, makes them no numbers of anything.
    whole = all(isinstance(each, Integer) and not each.form.strip("+-0#.,;' ") for each in drafted)
    if whole and not texts.strip("- ") and range_of(split.column, column.counts) != split:
        return None, []
    # So are numbers of telephones, (030) 555-1234.
    words = any(map(str.isalpha, texts)) or "°" in texts
    if whole and not words and len(parts) > 2 and column.nearly_unique:
        return None, []
    return (split, parts) if _is_readable(split, parts) else (None, [])


def _is_fixed(split: SplitColumn, part: _Column) -> bool:
    """Returns whether a part of cells with a fixed number of values, one sign between them, has categories."""
    signs = {text.strip() for text in replace(split, marks=()).literals[1:-1]}
    few = len(part.counts) <= MANY_CATEGORIES and _merged_share(part) <= MERGED
    return few and len(signs) == 1 and signs <= set(FIXED_SIGNS)


def _is_readable(split: SplitColumn, parts: Sequence[_Read]) -> bool:
    """Returns whether cells that are written so can be read back, whatever is the spelling of a missing value."""
    with contextlib.suppress(DomainError):
        return bool(Domain(tuple(p.draft() for p in parts), KNOWN_MISSING, splits=(split,)).splits)
    return False


def _copies(split: SplitColumn, cells: Sequence[str], columns: Mapping[str, Sequence[str]]) -> str:
    """Returns the names of the table's columns that the parts of a pattern repeat; "" if one of them is new."""
    if not split.pattern:
        return ""
    rows = [split.split(cell, KNOWN_MISSING) for cell in cells]
    parts = [[None if row is None else row[i] for row in rows] for i in range(len(split.parts))]
    found = [next((n for n, c in columns.items() if list(c) == part), None) for part in parts]
    return and_list(named(name) for name in found if name) if all(found) else ""


def _column(name: str, values: Sequence[str]) -> _Column:
    counts = Counter(values)
    present = Counter({value: n for value, n in counts.items() if value not in KNOWN_MISSING})
    whole = {value: parse_whole(value) for value in present}
    numbers = [whole[value] for value in values if value in whole]
    ascending = all(
        before is not None and after is not None and before < after
        for before, after in pairwise(numbers)
    )
    return _Column(name, present or counts, bool(present) and len(present) < len(counts), ascending)


def _reading(column: _Column, *, dotted_thousands: bool) -> _Reading | None:
    """Returns the values read as dates or numbers; None for texts, codes among them."""
    if all(value in KNOWN_MISSING for value in column.counts):
        return None
    if moments := read_moments(column.counts):
        return moments
    numbers = read_numbers(column.counts, dotted_thousands=dotted_thousands, name=column.name)
    if numbers is None or _are_codes(column, numbers):
        return None
    return numbers


def _are_codes(column: _Column, reading: NumberReading) -> bool:
    """Returns whether numbers are names: versions (1.1 and 1.10), or whole numbers that a double does not hold."""
    if len(column.counts) <= MANY_CATEGORIES and ambiguous_versions(reading):
        return True
    whole = [parse_whole(plain) for plain in reading.plain.values()]
    return all(n is not None for n in whole) and any(
        abs(n) > EXACT_WHOLE for n in whole if n is not None
    )


def _why_left_out(column: _Column, reading: _Reading | None) -> str:
    """Returns why a column looks like an identifier or free text, without its values; "" if it does not."""
    values, alike = column.values, f"{len(column.counts)} different values in {column.rows} rows"
    if isinstance(reading, MomentReading):
        return ""
    if isinstance(reading, NumberReading) or all(
        parse_number(value) is not None for value in values
    ):
        plain = reading.plain.values() if reading else values
        whole = [n for value in plain if (n := parse_whole(value)) is not None]
        if not column.nearly_unique or len(whole) < len(plain):
            return ""
        codes = reading is None
        counted = column.ascending and max(whole) - min(whole) < 2 * column.rows
        named = _IDENTIFIER.search(column.name) is not None
        return f"looks like an identifier: {alike}" if codes or counted or named else ""
    return _why_text_left_out(column, alike)


def _why_text_left_out(column: _Column, alike: str) -> str:
    lengths = [len(value) for value in column.values]
    count = len(column.values)
    if (count > MANY_CATEGORIES and median(lengths) > LONG_TEXT) or (
        max(lengths) > LONGEST_TEXT and count * ANSWER_ROWS > column.rows
    ):
        return f"looks like free text, of up to {max(lengths)} characters"
    if not column.nearly_unique and not column.many_of_their_own:
        return ""
    if (
        code_shaped(column.counts)
        and not column.nearly_unique
        and not _IDENTIFIER.search(column.name)
    ):
        return ""
    if said := _nearly(column):
        return f"{said}: {alike}"
    if sign := separator_of(column.counts):
        said = f"looks like several answers in a cell, with {sign!r} between them: {alike}"
        return f"{said}; give each answer a column of its own"
    return f"looks like an identifier or free text: {alike}"


def _nearly(column: _Column) -> str:
    """Returns of what kind most texts are, where others beside them are too many for marks; "" if of none."""
    numbers = {value for value in column.counts if parse_number(value) is not None}
    rows, others = sum(column.counts[v] for v in numbers), len(column.counts) - len(numbers)
    if mixed := mixed_numbers(column.counts):
        return f"has numbers in several spellings, {mixed}; write them in one"
    if rows >= column.rows / 2 and others > MOST_MARKS:
        return (
            f"has numbers in {rows} of {column.rows} rows, and {others} other texts, which are too many for marks "
            "among numbers; write them in one way, or give what is beside the numbers a column of its own"
        )
    shapes = Counter[str]()
    for value, count in column.counts.items():
        shapes[_shape(value)] += count
    forms, dated = dict[str, None](), 0
    for shape, count in shapes.most_common(MOST_SPELLINGS):
        found = read_moments({v: n for v, n in column.counts.items() if _shape(v) == shape})
        if found is not None:
            forms[str(found.form)] = None
            dated += count
    if len(forms) < 2 or dated < column.rows * CODES_SHARE:
        return ""
    return f"has dates in {len(forms)} spellings ({', '.join(forms)}); write them in one"


def _shape(value: str) -> str:
    """Returns a text with one sign for all digits, and one for each word."""
    return re.sub("[A-Za-z]+", "a", re.sub(r"\d", "0", value))


def _draft_column(column: _Column, reading: _Reading | None) -> Column:
    if isinstance(reading, MomentReading):
        return _draft_moment(column, reading)
    if isinstance(reading, NumberReading):
        with contextlib.suppress(DomainError):
            return _draft_numbers(column, reading)
    categories = in_order(column.counts)
    missing = column.missing and not all(value in KNOWN_MISSING for value in column.counts)
    if len(categories) > MANY_CATEGORIES and code_shaped(column.counts):
        return _draft_codes(column, categories)
    rare = {value for value, rows in column.counts.items() if rows < RARE_ROWS}
    known = tuple(value for value in categories if value not in rare)
    other = next((each for each in OTHERS if each not in categories), "")
    if rare and len(known) > 1 and other and column.rows >= FOLDED_FROM:
        return Categorical(column.name, known, missing, other=other)
    return Categorical(column.name, categories, missing)


def _merged_share(column: _Column) -> float:
    """Returns the share of the rows whose category a draft would merge with others."""
    if column.rows < FOLDED_FROM or len(column.counts) > MANY_CATEGORIES:
        return 0.0
    rare = sum(rows for rows in column.counts.values() if rows < RARE_ROWS)
    return rare / column.rows


def _draft_codes(column: _Column, categories: tuple[str, ...]) -> Categorical:
    """Groups many codes by a prefix, the frequent ones alone; if no prefix makes few groups, codes stay separate."""
    shares = sorted(column.counts.items(), key=lambda item: (-item[1], item[0]))
    apart = tuple(value for value, rows in shares[:MOST_APART] if rows >= APART_ROWS)
    rest = [value for value in categories if value not in apart]
    for prefix in range(max(map(len, rest), default=0) - 1, 0, -1):
        if 1 < len({value[:prefix] for value in rest}) <= MANY_CATEGORIES:
            return Categorical(column.name, categories, column.missing, prefix, apart)
    return Categorical(column.name, categories, column.missing)


def _draft_numbers(column: _Column, reading: NumberReading) -> Integer | Real:
    """Drafts a column of numbers. Raises ``DomainError`` if bins cannot tell the numbers apart."""
    counts = Counter[str]()
    for value, plain in reading.plain.items():
        counts[plain] += column.counts[value]
    numbers = column.having(counts)
    whole = {value: n for value in counts if (n := parse_whole(value)) is not None}
    drafted: Integer | Real
    if len(whole) == len(counts):
        drafted = _of_a_day(_draft_integer(numbers, whole), reading.form, max(whole.values()))
    else:
        reals = {value: x for value in counts if (x := parse_number(value)) is not None}
        drafted = _draft_real(numbers, reals, reading)
    spelling = spelling_of(reading.form) if reading.form else None
    if isinstance(spelling, Clock) and spelling.letters[-1] != FRACTION:
        # Minutes and seconds have endings of an hour's or a minute's, hours and days none.
        sixty = spelling.letters[-1] in "MS"
        apart = set(map(int, drafted.atoms))
        ends = endings_of(_rows_of(numbers, whole), apart, clock=True) if sixty else ()
        drafted = replace(drafted, endings=ends)
    if isinstance(spelling, Numeral) and spelling.scale:
        # The decimals before a word decide on the last digits.
        drafted = replace(drafted, endings=())
    form = reading.form or _padded(drafted, reading.plain)
    return replace(drafted, form=form, marks=reading.marks)


def _padded(column: Integer | Real, plain: Iterable[str]) -> str:
    """Returns the spelling of numbers that all have more decimals than nearly all of them need; "" for others."""
    places = {decimals_of(text) or 0 for text in plain}
    if isinstance(column, Integer) or column.decimals is None or len(places) > 1:
        return ""
    least = places.pop()
    return str(Numeral(least=least)) if least > column.decimals and column.digits is None else ""


def _of_a_day(column: Integer, form: str, last: int) -> Integer:
    """Limits a column to times of day if all its values, up to ``last``, are some: 24:10 is none."""
    spelling = spelling_of(form) if form else None
    day = spelling.day if isinstance(spelling, Clock) else None
    if day is None or last > day:
        return column
    # Some write midnight as 24:00.
    limit = day if last == day else day - 1
    if column.high <= limit:
        return column
    edges = (*column.edges[:-1], limit) if column.edges else ()
    within = tuple(value for value in column.within if value < limit)
    return replace(column, high=limit, edges=edges, within=within)


def _draft_integer(column: _Column, whole: Mapping[str, int]) -> Integer:
    rows = _rows_of(column, whole)
    found = shape_of(rows)
    return Integer(
        column.name,
        found.low,
        found.high,
        found.bins,
        missing=column.missing,
        edges=found.edges,
        atoms=found.atoms,
        within=found.within,
        endings=endings_of(rows, found.atoms),
    )


def _draft_real(column: _Column, reals: Mapping[str, float], reading: NumberReading) -> Real:
    places, multiples = _multiples(column, reals, RARE)
    if not _tell_apart(reals, multiples):
        places, multiples = _multiples(column, reals, 0.0)
    largest = max(map(abs, multiples.values()))
    if largest >= _MOST_MULTIPLE or not _tell_apart(reals, multiples):
        # Numbers too large, or too small beside the largest of them, to be multiples of anything in 64 bits.
        if len(reals) >= FEWEST_APART:
            return _draft_floating(column, reals)
        low, high = min(reals.values()), max(reals.values())
        return Real(column.name, low, high if high > low else low + 1, missing=column.missing)
    numeral = reading.spelling
    power = numeral.power if isinstance(numeral, Numeral) else ""
    if power and (power[0] != "[" or _spreads(multiples.values())):
        return _draft_floating(column, reals)
    rows = _rows_of(column, multiples)
    found = shape_of(rows, marks={mark * 10**places for mark in SENTINELS})
    drafted = Real(column.name, 0, 1, decimals=places, missing=column.missing)
    return replace(_shaped(drafted, found), endings=endings_of(rows, found.atoms))


def _draft_floating(column: _Column, reals: Mapping[str, float]) -> Real:
    """Drafts numbers of so many significant digits, over more decades than one unit has."""
    places, digits = _significant(column, reals)
    multiples = {
        value: k for value in reals if (k := place_of_text(value, places, digits)) is not None
    }
    last = largest_place(places, digits)

    def rounder(low: int, high: int) -> int:
        least, most = (at_place(max(-last, min(end, last)), digits) for end in (low, high))
        return place_of(roundest(least, most), digits)

    marks = {place_of(mark * 10**places, digits) for mark in SENTINELS}
    found = shape_of(_rows_of(column, multiples), rounder=rounder, marks=marks)
    drafted = Real(column.name, 0, 1, decimals=places, missing=column.missing, digits=digits)
    return _shaped(drafted, found)


def _shaped(column: Real, found: Shape) -> Real:
    """Returns the column with a shape in its multiples."""
    number = column.value_of
    step = 10**column.places if column.digits is None else 1
    return replace(
        column,
        low=number(found.low),
        high=number(found.high if found.high > found.low else found.low + step),
        bins=found.bins,
        edges=tuple(map(number, found.edges)),
        atoms=tuple(map(number, found.atoms)),
        within=tuple(map(number, found.within)),
    )


def _significant(column: _Column, reals: Mapping[str, float]) -> tuple[int, int]:
    """Returns the decimals that the smallest number needs, and the significant digits of nearly all rows."""
    rows = Counter[int]()
    for value in reals:
        rows[min(max(1, _digits(value)), MAX_DIGITS)] += column.counts[value]
    digits = max(rows)
    while digits > 1 and sum(n for d, n in rows.items() if d >= digits) <= RARE * column.rows:
        digits -= 1
    needed = [
        min(-_exponent(value), digits - 1 - Decimal(value.strip()).adjusted())
        for value, number in reals.items()
        if number
    ]
    return max(0, min(max(needed, default=0), MOST_DECIMALS)), digits


def _spreads(multiples: Iterable[int]) -> bool:
    """Returns whether nine tenths of the different numbers other than zero are over many decades."""
    sizes = sorted({abs(multiple) for multiple in multiples} - {0})
    few = len(sizes) // 20
    return len(sizes) > 1 and sizes[-1 - few] >= DECADES * sizes[few]


def _multiples(
    column: _Column, reals: Mapping[str, float], rare: float
) -> tuple[int, dict[str, int]]:
    """Returns the number of decimals, and the numbers as multiples of the last of them."""
    places = _places(column, reals, rare)
    return places, {value: k for value in reals if (k := multiple_of(value, places)) is not None}


def _tell_apart(reals: Mapping[str, float], multiples: Mapping[str, int]) -> bool:
    """Returns whether enough of the numbers stay different when rounded to multiples."""
    return len(set(multiples.values())) >= min(FEWEST_APART, len(set(reals.values())) // 2 + 1)


def _places(column: _Column, reals: Mapping[str, float], rare: float) -> int:
    """Returns the decimals of all rows but a share ``rare``, at most as many as ``MOST_DIGITS`` leaves."""
    rows = Counter[int]()
    long = [value for value in reals if _digits(value) >= NOISY_DIGITS]
    for value in reals.keys() - set(long):
        rows[-_exponent(value)] += column.counts[value]
    short = max(rows, default=0)
    for value in long:
        # 148.74999999999997 is 148.75, where other numbers have two decimals.
        noisy = math.isclose(reals[value], round(reals[value], short), rel_tol=NOISE)
        rows[short if short and noisy else -_exponent(value)] += column.counts[value]
    needed = max(rows)
    while needed and sum(n for places, n in rows.items() if places >= needed) <= rare * column.rows:
        needed -= 1
    before = len(str(int(max(map(abs, reals.values())))))
    return max(0, min(needed, MOST_DIGITS - before, MAX_DECIMALS))


def _digits(value: str) -> int:
    """Returns the number of significant digits of a written number."""
    return len(Decimal(value.strip()).normalize(EXACT).as_tuple().digits)


def _exponent(value: str) -> int:
    """Returns the exponent of the last nonzero digit of a written number, 0 at most."""
    exponent = Decimal(value.strip()).normalize(EXACT).as_tuple().exponent
    return min(0, exponent) if isinstance(exponent, int) else 0


def _rows_of(column: _Column, numbers: Mapping[str, int]) -> Counter[int]:
    rows = Counter[int]()
    for value, number in numbers.items():
        rows[number] += column.counts[value]
    return rows


def _draft_moment(column: _Column, reading: MomentReading) -> Moment:
    """Drafts a column of dates, or of dates with times."""
    form, moments = reading.form, reading.moments
    unit = _coarsest_unit(form, set(moments.values()))
    rows = Counter[int]()
    for value, moment in moments.items():
        rows[tick_of(moment, unit)] += column.counts[value]
    marks = {tick_of(datetime(*day), unit) for day in DATE_MARKS}
    years = form.years_from if isinstance(form, Pattern) else None

    def rounder(low: int, high: int) -> int:
        # What is written with two digits for the year has to be read as the same one.
        if years is not None:
            ends = (tick_of(datetime(year, 1, 1), unit) for year in (years, years + 100))
            low, high = max(low, next(ends)), min(high, next(ends) - 1)
        return roundest_tick(unit, low, high)

    # Midnight is a bound as any other.
    found = shape_of(rows, rounder=rounder, marks=marks, zero=True)
    kind = "datetime" if form.time else "date"
    bounds = form_of_bounds(form, kind, unit)

    def written(ticks: Sequence[int]) -> tuple[str, ...]:
        return tuple(bounds.write(moment_of(tick, unit)) for tick in ticks)

    low, high = written((found.low, found.high))
    return Moment(
        column.name,
        kind,
        low,
        high,
        unit,
        found.bins,
        missing=column.missing,
        edges=written(found.edges),
        atoms=written(found.atoms),
        within=written(found.within),
        form="" if str(form) == DEFAULT_FORMS[kind] else str(form),
        marks=reading.marks,
    )


def _coarsest_unit(form: Form | Pattern, moments: set[datetime]) -> str:
    """Returns the coarsest unit on whose beginnings all moments lie; weeks only if they are written as weeks."""
    if len(moments) < DISTINCT_MOMENTS:
        return form.unit
    units = [
        unit for unit in UNITS[UNITS.index(form.unit) :] if unit != "week" or form.unit == "week"
    ]
    if form.unit == "week":
        return "week"
    return next(
        unit
        for unit in reversed(units)
        if all(moment_of(tick_of(moment, unit), unit) == moment for moment in moments)
    )
