"""Columns of a table that hold several values in a cell, each of which a domain models as a column of its own.

A ``SplitColumn`` is ``[[split]]`` in a configuration, of one of two kinds:

    column = "pressure"                     column = "symptoms"
    pattern = "{systolic}/{diastolic}"      separator = ", "
    marks = ["refused"]                     answers = ["cough", "fever", "rash"]
                                            before = "["
                                            behind = "]"

A pattern has the names of the domain's columns in braces, and text between them. A mark stands alone in a cell; it is a
mark of the first column, too, and the other columns are missing there. Answers are any number of the listed
ones, between what stands before and behind all of them, if anything does; the answer A of the column C is the domain's
column ``C: A`` with the categories "no" and "yes".

``split_cells`` makes the columns of a table that was read, ``join_cells`` writes such cells again. Public: the
description. Secret: the cells, at their owner; an error names up to ten of them, on the owner's machine.
Limits: answers are written in the listed order, each once. A cell without an answer and a missing one are the same. A
model may draw a cell of which a part is missing; it is written with nothing in that place ("120/"), or where only a
blank would be left at an end of the cell, with a spelling of a missing value ("EUR NA").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_parts import duplicates
from mechanisms.column_reading import check_keys, read_strings
from mechanisms.errors import DataError, DomainError
from mechanisms.table_keys import REQUIRED, TableKey, optional_of, required_of
from mechanisms.text_table import SHOWN_CELLS, TextTable, or_missing, shown, wrong_cells_message

_WHOLE = TableKey("text", "Column of the table that is split.", REQUIRED)
SPLIT_KEYS: Mapping[str, Mapping[str, TableKey]] = {
    "pattern": {
        "column": _WHOLE,
        "pattern": TableKey(
            "text",
            "Names of the parts in braces, two or more, and the text between them.",
            REQUIRED,
        ),
        "marks": TableKey("list of texts", "Cells beside the pattern."),
    },
    "answers": {
        "column": _WHOLE,
        "separator": TableKey("text", "Text between the answers of a cell.", REQUIRED),
        "answers": TableKey("list of texts", "Answers that a cell may have.", REQUIRED),
        "other": TableKey("text", "Answer that stands for all that are not listed.", '""'),
        "before": TableKey("text", "Text before all answers of a cell.", '""'),
        "behind": TableKey("text", "Text behind all answers of a cell.", '""'),
    },
}
"""Keys of the ``[[split]]`` tables of a configuration, by kind, which is told by the key of its name."""
NO, YES = "no", "yes"
"""Categories of an answer's column."""
MOST_PARTS = 200
"""Most columns that one column is split into."""
PLACE = re.compile(r"\{([^{}]+)\}")
"""A place of a pattern, with its column's name."""


@dataclass(frozen=True, slots=True)
class SplitColumn:
    """One column of a table, and how its cells are split: by ``pattern``, or by ``separator`` into ``answers``.

    ``marks`` are cells beside the pattern, by which the first column's mark is told, and no value of the others.
    ``other`` is the answer that stands for every answer that is not listed; "" if there is none. ``before`` and
    ``behind`` stand around all answers of a cell. Raises ``DomainError`` for a description by which cells could be read
    in two ways.
    """

    column: str
    pattern: str = ""
    separator: str = ""
    answers: tuple[str, ...] = ()
    other: str = ""
    marks: tuple[str, ...] = ()
    before: str = ""
    behind: str = ""

    def __post_init__(self) -> None:
        if not self.column:
            raise DomainError("[[split]] column: is empty; name the table's column")
        if bool(self.pattern) == bool(self.separator):
            raise DomainError(f"{self._where} needs either a pattern, or a separator with answers")
        if self.pattern:
            self._check_pattern()
        else:
            self._check_answers()
        if len(self.parts) > MOST_PARTS:
            raise DomainError(f"{self._where} has {len(self.parts)} parts; at most {MOST_PARTS}")

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the domain's columns that the cells are split into, in order."""
        if self.pattern:
            return tuple(PLACE.findall(self.pattern))
        return tuple(part_of(self.column, answer) for answer in self.answers)

    @property
    def allowed(self) -> str:
        """The cells that can be split, in words."""
        if self.pattern:
            return " or ".join([f"as in {self.pattern}", *map(repr, self.marks)])
        listed = ", ".join(repr(answer) for answer in self.answers[:SHOWN_CELLS])
        more = " ..." if len(self.answers) > SHOWN_CELLS else ""
        return f"answers with {self.separator!r} between them, of {listed}{more}"

    @property
    def literals(self) -> tuple[str, ...]:
        """Texts of the description that a written cell may contain."""
        if self.pattern:
            return (*PLACE.split(self.pattern)[::2], *self.marks)
        return (*self.answers, self.separator, self.before, self.behind)

    @property
    def sign(self) -> str:
        """The separator as cells are split by it: without blanks around a sign, with those around a word."""
        sign = self.separator.strip()
        return self.separator if sign.isalpha() else sign or self.separator[:1]

    def split(self, cell: str, missing: Sequence[str]) -> tuple[str, ...] | None:
        """Returns a cell's values in the order of ``parts``; None for a cell that the description does not allow.

        ``missing`` are the spellings of a missing value; the first one is the value of each part of a missing cell.
        """
        if self.pattern:
            if cell in missing:
                return (missing[0],) * len(self.parts)
            if cell in self.marks:
                return (cell, *[(*missing, "")[0]] * (len(self.parts) - 1))
            values = self.values_of(cell)
            return None if values is None else tuple(v or (*missing, "")[0] for v in values)
        given = set[str]() if cell in missing else self.answers_of(cell)
        if unknown := given.difference(self.answers):
            if not self.other:
                return None
            given = (given - unknown) | {self.other}
        return tuple(YES if answer in given else NO for answer in self.answers)

    def values_of(self, cell: str) -> tuple[str, ...] | None:
        """Returns the texts in the places of the pattern, each up to the next text of the pattern; None without them.

        The time is linear in the length of the cell.
        """
        first, *between, last = PLACE.split(self.pattern)[::2]
        if not cell.startswith(first):
            return None
        values, start = list[str](), len(first)
        for text in between:
            end = cell.find(text, start)
            if end < 0:
                return None
            values.append(cell[start:end].strip())
            start = end + len(text)
        end = len(cell) - len(last)
        if end < start or not cell.endswith(last):
            return None
        return (*values, cell[start:end].strip())

    def answers_of(self, cell: str) -> set[str]:
        """Returns the texts between separators, listed or not."""
        return set(self.given_in(cell)) - {""}

    def given_in(self, cell: str) -> list[str]:
        """Returns the texts between separators in their order, empty ones among them."""
        inner = cell
        if cell.startswith(self.before) and cell[len(self.before) :].endswith(self.behind):
            inner = cell[len(self.before) : len(cell) - len(self.behind)]
        return [answer.strip() for answer in inner.split(self.sign)]

    def join(self, values: Sequence[str], missing: Sequence[str]) -> str:
        """Returns the cell with these values, which are in the order of ``parts``."""
        absent = missing[0] if missing else ""
        if self.pattern:
            if missing and all(value == absent for value in values):
                return absent
            if values[0] in self.marks and all(value == absent for value in values[1:]):
                return values[0]
            spelt = [self.absent_at(place, missing) or "" for place in range(len(values))]
            written = iter(
                gap if missing and value == absent else value
                for value, gap in zip(values, spelt, strict=True)
            )
            return PLACE.sub(lambda _: next(written), self.pattern)
        given = [answer for answer, value in zip(self.answers, values, strict=True) if value == YES]
        if given or self.before:
            return f"{self.before}{self.separator.join(given)}{self.behind}"
        return "" if "" in missing else absent

    def absent_at(self, place: int, missing: Sequence[str]) -> str | None:
        """Returns what is written at a place of the pattern whose value is missing; None if no spelling would do.

        Blanks at the ends of a cell are lost, so that a gap beside one has to be written out.
        """
        first, *between, last = PLACE.split(self.pattern)[::2]
        at_start = place == 0 and not first and between[0][:1].isspace()
        at_end = place == len(between) and not last and between[-1][-1:].isspace()
        if not at_start and not at_end:
            return ""
        return next((m for m in missing if m.strip() and not any(t in m for t in between)), None)

    def to_dict(self) -> dict[str, object]:
        """Returns the ``[[split]]`` table of a configuration."""
        if self.pattern:
            table: dict[str, object] = {"column": self.column, "pattern": self.pattern}
            return table | ({"marks": list(self.marks)} if self.marks else {})
        table = {
            "column": self.column,
            "separator": self.separator,
            "answers": list(self.answers),
        }
        optional = {"other": self.other, "before": self.before, "behind": self.behind}
        return table | {key: text for key, text in optional.items() if text}

    @classmethod
    def from_dict(cls, position: int, table: object) -> SplitColumn:
        """Reads the ``[[split]]`` table at ``position`` from 0. Raises ``DomainError``."""
        where = f"split {position + 1}"
        if not isinstance(table, Mapping):
            raise DomainError(f"{where}: a table is needed, with column and pattern or answers")
        if isinstance(table.get("column"), str):
            where = f"[[split]] column = {table['column']!r}:"
        by_pattern = "pattern" in table
        keys = SPLIT_KEYS["pattern" if by_pattern else "answers"]
        check_keys(where, table, required=required_of(keys), optional=optional_of(keys))
        for key in set(table) - {"answers", "marks"}:
            if not isinstance(table[key], str):
                raise DomainError(f"{where} {key} = {table[key]!r}; a text is needed")
        if by_pattern:
            marks = read_strings(where, table, "marks") if "marks" in table else ()
            return cls(table["column"], table["pattern"], marks=marks)
        answers = read_strings(where, table, "answers")
        return cls(
            table["column"],
            separator=table["separator"],
            answers=answers,
            other=table.get("other", ""),
            before=table.get("before", ""),
            behind=table.get("behind", ""),
        )

    @property
    def _where(self) -> str:
        return f"[[split]] column = {self.column!r}:"

    def _check_pattern(self) -> None:
        if len(self.parts) < 2:
            raise DomainError(
                f'{self._where} pattern = {self.pattern!r}; two columns are needed, as in "{{low}}-{{high}}"'
            )
        if twice := duplicates(self.parts):
            raise DomainError(f"{self._where} pattern has {twice[0]!r} twice; each stands once")
        if not all(PLACE.split(self.pattern)[2:-1:2]):
            raise DomainError(
                f"{self._where} pattern = {self.pattern!r}; text is needed between two columns"
            )
        if self.answers or self.other:
            raise DomainError(f"{self._where} has a pattern and answers; choose one")
        if twice := duplicates(self.marks):
            raise DomainError(f"{self._where} marks has {twice[0]!r} twice; each stands once")
        for mark in self.marks:
            if not mark or mark != mark.strip() or self.values_of(mark) is not None:
                raise DomainError(
                    f"{self._where} the mark {mark!r} could not be told from {self.pattern}; a mark is not empty, "
                    "has no blanks around it, and is not of the pattern"
                )

    def _check_answers(self) -> None:
        if self.marks:
            raise DomainError(f"{self._where} marks are for a pattern; list them as answers")
        if not self.answers:
            raise DomainError(f"{self._where} answers is empty; list them")
        if twice := duplicates(self.answers):
            raise DomainError(f"{self._where} answers has {twice[0]!r} twice; each stands once")
        sign = self.sign
        for around in (self.before, self.behind):
            if around != around.strip():
                raise DomainError(
                    f"{self._where} {around!r} around all answers has a blank at an end"
                )
        for answer in self.answers:
            if not answer or answer != answer.strip() or sign in answer:
                raise DomainError(
                    f"{self._where} the answer {answer!r} could not be told from its neighbours; answers are not "
                    f"empty, without blanks around them and without {sign!r}"
                )
        if self.other and self.other not in self.answers:
            raise DomainError(f"{self._where} other = {self.other!r}; it is one of the answers")


def part_of(column: str, answer: str) -> str:
    """Returns the name of the domain's column for an answer."""
    return f"{column}: {answer}"


def split_cells(
    splits: Sequence[SplitColumn], missing: Sequence[str], table: TextTable, source: object
) -> TextTable:
    """Returns the table with the parts of ``splits`` in the places of their columns.

    Columns that are not there, or split already, stay as they are. Raises ``DataError`` for cells that the description
    does not allow; it names ``source``, their number, and the first ten.
    """
    present = {split.column: split for split in splits if split.column in table.columns}
    if not present:
        return table
    columns: dict[str, Sequence[str]] = {}
    for name, cells in table.columns.items():
        split = present.get(name)
        if split is None:
            columns[name] = cells
            continue
        if both := [part for part in split.parts if part in table.columns]:
            raise DataError(
                f"{source}: column {name!r} is split into {both[0]!r}, which is in the table too"
            )
        known = {cell: split.split(cell, missing) for cell in dict.fromkeys(cells)}
        rows = [known[cell] for cell in cells]
        if None in known.values():
            raise DataError(_wrong_cells(split, missing, table, source, rows))
        columns |= dict(zip(split.parts, _turned(rows, len(split.parts)), strict=True))
    return replace(table, columns=columns)


def join_cells(
    splits: Sequence[SplitColumn],
    missing: Sequence[str],
    columns: Mapping[str, NDArray[np.object_]],
) -> dict[str, NDArray[np.object_]]:
    """Returns columns of text with those of ``splits`` in addition; their parts stay."""
    joined = dict(columns)
    for split in splits:
        rows = zip(*(columns[part] for part in split.parts), strict=True)
        cells = np.empty(len(columns[split.parts[0]]), object)
        cells[:] = [split.join(values, missing) for values in rows]
        joined[split.column] = cells
    return joined


def _turned(rows: Sequence[tuple[str, ...] | None], parts: int) -> Iterator[list[str]]:
    """Yields the parts' columns of rows that are all allowed."""
    for part in range(parts):
        yield [row[part] for row in rows if row is not None]


def _wrong_cells(
    split: SplitColumn,
    missing: Sequence[str],
    table: TextTable,
    source: object,
    rows: Sequence[tuple[str, ...] | None],
) -> str:
    wrong = [number for number, row in enumerate(rows) if row is None]
    cells = table.columns[split.column]
    lines = [
        f"{table.unit} {table.places[row]}, column {split.column!r}: the value {shown(cells[row])}"
        for row in wrong[:SHOWN_CELLS]
    ]
    allowed = {split.column: or_missing(split.allowed, missing)}
    return wrong_cells_message(source, len(wrong), lines, allowed)
