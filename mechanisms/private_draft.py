"""A draft without a value of the table that it was made from: names, kinds and spellings of columns alone.

Provides ``private_draft``. Numbers have bins that a run finds by noisy counts between bounds that any number keeps;
dates likewise, between the years 1 and 9999. Categories cannot be had so: such columns are left to be listed from a
code book.

Public: what comes out, but for names, kinds, decimals, units and formats of columns, and how the file is written, which
the table's header and form tell. Limits: those of `mechanisms.private_columns`; what stands among numbers and is none
(``marks``) has to be listed.
"""

from __future__ import annotations

from mechanisms.columns import Categorical, Column
from mechanisms.domain import Domain
from mechanisms.draft import KNOWN_MISSING, Draft
from mechanisms.errors import DataError
from mechanisms.private_columns import without_values
from mechanisms.provenance import WHOLE, Provenance

_BOUNDS = "public: bounds that any such value keeps"


def private_draft(draft: Draft) -> Draft:
    """The draft without what was read of values, in notes, reasons and questions, too.

    ``to_list`` names the columns that are left to be described.

    Raises ``DataError`` where no column of numbers or dates is left.
    """
    drafted, columns, to_list = draft.domain, list[Column](), list[str]()
    for column in drafted.columns:
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
        provenance=tuple(Provenance(column.name, ((WHOLE, _BOUNDS),)) for column in columns),
    )
    return Draft(domain, (), (), draft.read_as, private=True, to_list=tuple(to_list))
