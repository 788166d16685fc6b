"""A draft without any value of its table: names, kinds and spellings of columns alone.

Numbers and dates have values = "private": a run finds bounds and bins by noisy counts. Times of day have private bins
within a day. Categories cannot be drafted so: such columns are left to be listed from a code book.

The result is public, apart from names, kinds, decimals, units and formats of columns and the file's dialect, which the
table's header and form reveal. Limits: those of `mechanisms.scale_free`; texts among numbers (``marks``) have to
be listed.
"""

from __future__ import annotations

from dataclasses import replace

from mechanisms.columns import Categorical, Ordered
from mechanisms.domain import Domain
from mechanisms.draft import KNOWN_MISSING, Draft
from mechanisms.errors import DataError
from mechanisms.private_columns import without_values
from mechanisms.provenance import WHOLE, Provenance

_BOUNDS = "public: the hours of a day"


def private_draft(draft: Draft) -> Draft:
    """Returns the draft without the values that were read, also in notes, reasons and questions.

    ``to_list`` names the columns that are left to be described.

    Raises ``DataError`` if no column of numbers or dates is left.
    """
    drafted, columns, to_list = draft.domain, list[Ordered](), list[str]()
    # Answers are values of the table, and so are words around numbers.
    without = [replace(split, marks=()) for split in drafted.splits]
    shown = [s for s in without if s.pattern and not any(map(str.isalnum, "".join(s.literals)))]
    read = [split for split in without if split not in shown]
    to_list += [split.column for split in read]
    hidden = {part for split in read for part in split.parts}
    for column in drafted.columns:
        if column.name in hidden:
            continue
        if isinstance(column, Categorical):
            to_list.append(column.name)
        else:
            columns.append(without_values(column))
    if not columns:
        raise DataError(
            "no column of numbers or dates is there, and categories cannot be drafted without the table's values; "
            "list them from a code book (docs/configuration.md)"
        )
    domain = Domain(
        tuple(columns),
        KNOWN_MISSING,
        ignore=(*drafted.ignore, *to_list),
        format=drafted.format,
        provenance=tuple(
            Provenance(column.name, ((WHOLE, _BOUNDS),))
            for column in columns
            if column.private is not None and not column.private.free
        ),
        splits=tuple(shown),
    )
    person, listed = draft.person, tuple(to_list)
    return Draft(domain, (), (), draft.read_as, private=True, to_list=listed, person=person)
