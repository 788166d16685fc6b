"""Drafts without any value of their table, or without its numbers and dates.

``private_draft`` has names, kinds and spellings of columns alone.

Numbers and dates have values = "private": a run finds bounds and bins by noisy counts. Times of day have private bins
within a day. Categories cannot be drafted so: such columns are left to be listed from a code book, with a template of
what would describe each, as are cells with several answers, with words around numbers, or with signs that numbers of
any size may have, too. ``draft_with_private_numbers`` keeps these as the table has them, marked ``from = "table"``.

The result of ``private_draft`` is public, apart from names, kinds, decimals, digits, units, formats and separators of
columns and the file's dialect, which the table's header and form reveal. Limits: those of `mechanisms.scale_free`;
texts among numbers (``marks``) have to be listed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mechanisms.column_parts import PRIVATE
from mechanisms.columns import Categorical, Column, Ordered
from mechanisms.domain import Domain
from mechanisms.draft import KNOWN_MISSING, Draft, Unlisted
from mechanisms.errors import DataError, DomainError
from mechanisms.private_columns import has_few_values, without_values
from mechanisms.provenance import TABLE, WHOLE, Provenance
from mechanisms.recognising import MAYBE
from mechanisms.split_columns import NO, YES, SplitColumn, part_of
from mechanisms.split_draft import separator_of
from mechanisms.text_table import and_list, named, shown

_BOUNDS = "public: the hours of a day"
_GAP = "..."
"""Place of a value in a template."""
_SAID: Mapping[str, object] = {"from": f"public: {_GAP}"}
_OF_ANY_SIZE = ("name", "kind", "missing", "decimals", "digits", "unit", "format")
"""Keys of a column that stand beside bounds, too."""


def private_draft(draft: Draft) -> Draft:
    """Returns the draft without the values that were read, also in notes, reasons and questions.

    ``unlisted`` has the columns that are left to be described.

    Raises ``DataError`` if no column of numbers or dates is left.
    """
    drafted, columns, unlisted = draft.domain, list[Ordered](), list[Unlisted]()
    by_name = {column.name: column for column in drafted.columns}
    splits, hidden = list[SplitColumn](), set[str]()
    # Answers are values of the table, and so are words around numbers.
    for split in (replace(split, marks=()) for split in drafted.splits):
        parts = [by_name[part] for part in split.parts]
        if split.answers:
            around = {"before": split.before, "behind": split.behind}
            unlisted.append(_with_answers(split.column, split.separator, around))
        elif any(map(str.isalnum, "".join(split.literals))):
            pattern = _GAP.join(f"{{{part}}}" for part in split.parts)
            unlisted.append(_with_pattern(split.column, pattern, list(map(_keys_of, parts))))
        elif not _is_readable(split, parts):
            tables = list(map(_bounded_keys_of, parts))
            unlisted.append(_with_pattern(split.column, split.pattern, tables))
        else:
            splits.append(split)
            continue
        hidden |= set(split.parts)
    for column in drafted.columns:
        if column.name in hidden:
            continue
        if not isinstance(column, Categorical):
            columns.append(without_values(column))
        elif separator := separator_of(dict.fromkeys(column.categories, 1)):
            unlisted.append(_with_answers(column.name, separator, {}))
        else:
            unlisted.append(Unlisted(column.name, (("column", _keys_of(column)),)))
    if not columns:
        raise DataError(
            "no column of numbers or dates is there, and categories cannot be drafted without the table's values; "
            "list them from a code book (docs/configuration.md)"
        )
    domain = Domain(
        tuple(columns),
        KNOWN_MISSING,
        ignore=(*drafted.ignore, *(each.column for each in unlisted)),
        format=drafted.format,
        provenance=tuple(
            Provenance(column.name, ((WHOLE, _BOUNDS),))
            for column in columns
            if column.private is not None and not column.private.free
        ),
        splits=tuple(splits),
    )
    return Draft(
        domain,
        (),
        (),
        draft.read_as,
        private=True,
        unlisted=tuple(unlisted),
        person=draft.person,
    )


def draft_with_private_numbers(draft: Draft) -> Draft:
    """Returns the draft without numbers and dates that were read; categories, and texts beside numbers, stay.

    Whole numbers of few values (0 and 1) are categories here: on the public grid they would take a thousand cells. The
    bounds of numbers in a cell with others stay where it could not be split without them.

    Raises ``DataError`` for dates in a form without known bounds.
    """
    drafted = draft.domain
    by_name = {column.name: column for column in drafted.columns}
    bounded = {
        part
        for split in drafted.splits
        if split.pattern and not _is_readable(split, [by_name[part] for part in split.parts])
        for part in split.parts
    }
    said = {each.column: each for each in drafted.provenance}
    columns, provenance, notes = list[Column](), list[Provenance](), list[str]()
    for column in drafted.columns:
        note = f"{named(column.name)}: "
        if isinstance(column, Categorical) or has_few_values(column) or column.name in bounded:
            columns.append(column)
            provenance.append(said[column.name])
            notes += [each for each in draft.notes if each.startswith(note)]
            continue
        free = without_values(column)
        origin: tuple[tuple[str, str], ...] = ()
        if free.private is not None and not free.private.free:
            origin = ((WHOLE, _BOUNDS),)
        if column.marks:
            free = replace(free, marks=column.marks)
            origin = (*((key, _BOUNDS) for key in ("low", "high") if origin), ("marks", TABLE))
            notes.append(
                f"{note}its marks {and_list(map(shown, column.marks))} were read from the data"
            )
        columns.append(free)
        provenance += [Provenance(column.name, origin)] if origin else []
    wholes = tuple(f"{named(split.column)}: " for split in drafted.splits)
    notes += [each for each in draft.notes if each.startswith(wholes) and each not in notes]
    return replace(
        draft,
        domain=replace(
            drafted,
            columns=tuple(columns),
            missing_values=KNOWN_MISSING,
            provenance=tuple(provenance),
        ),
        notes=tuple(dict.fromkeys(notes)),
        questions=tuple(each for each in draft.questions if f": {MAYBE}" not in each),
        proposals=(),
    )


def _with_answers(column: str, separator: str, around: Mapping[str, str]) -> Unlisted:
    """Returns the template of a column with several answers in a cell."""
    split: dict[str, object] = {"column": column, "separator": separator, "answers": [_GAP]}
    split |= {key: text for key, text in around.items() if text}
    answer = {"name": part_of(column, _GAP), "kind": "categorical", "categories": [NO, YES]}
    return Unlisted(column, (("split", split), ("column", {**answer, **_SAID})))


def _with_pattern(column: str, pattern: str, parts: Sequence[Mapping[str, object]]) -> Unlisted:
    """Returns the template of a column with several values in a cell."""
    split = {"column": column, "pattern": pattern}
    return Unlisted(column, (("split", split), *(("column", part) for part in parts)))


def _keys_of(column: Column) -> Mapping[str, object]:
    """Returns the template of a column that any value may be in."""
    if isinstance(column, Categorical):
        return {"name": column.name, "kind": column.kind, "categories": [_GAP], **_SAID}
    return without_values(column).to_dict()


def _bounded_keys_of(column: Column) -> Mapping[str, object]:
    """Returns the template of a column with bounds, so that no number has a sign that its pattern has."""
    if isinstance(column, Categorical):
        return _keys_of(column)
    keys = {k: v for k, v in without_values(column).to_dict().items() if k in _OF_ANY_SIZE}
    return {**keys, "low": _GAP, "high": _GAP, "bins": PRIVATE, **_SAID}


def _is_readable(split: SplitColumn, parts: Sequence[Column]) -> bool:
    """Returns whether cells can be split, of whatever size and sign their numbers are."""
    if any(isinstance(part, Categorical) for part in parts):
        return False
    columns = tuple(without_values(part) for part in parts if not isinstance(part, Categorical))
    with contextlib.suppress(DomainError):
        return bool(Domain(columns, KNOWN_MISSING, splits=(split,)).splits)
    return False
