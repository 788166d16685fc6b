"""One-hot groups of a table as one column of categories, and back.

``gather`` makes the modelled column of a table that was read, ``scatter`` writes such columns again. Descriptions are
public; cells are secret, at their owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mechanisms.constraints.declared import OneHot
from mechanisms.errors import DataError
from mechanisms.text_table import TextTable

UNKNOWN = "(not exactly one)"
"""Value of rows that are no category."""


def gather(
    groups: Sequence[OneHot], missing: Sequence[str], table: TextTable, *, source: object
) -> TextTable:
    """Returns the table with the column of each of ``groups`` in the place of its first member.

    A row without exactly one ``yes`` has a value that no column allows. A group that is not there, or gathered already,
    stays as it is. Raises ``DataError`` for a table with some members of a group.
    """
    columns = dict(table.columns)
    for group in groups:
        there = [name for name in group.members if name in columns]
        if not there:
            continue
        if len(there) < len(group.members) or group.column in columns:
            wrong = next((n for n in group.members if n not in columns), group.column)
            said = "is in the table too" if wrong == group.column else "is not in the table"
            raise DataError(f"{source}: column {wrong!r} of the group {group.column!r} {said}")
        rows = zip(*(columns[name] for name in group.members), strict=True)
        known: dict[tuple[str, ...], str] = {}
        made = [
            known[row] if row in known else known.setdefault(row, _category(group, row, missing))
            for row in rows
        ]
        kept: dict[str, Sequence[str]] = {}
        for name, cells in columns.items():
            if name == group.members[0]:
                kept[group.column] = made
            elif name not in group.members:
                kept[name] = cells
        columns = kept
    return replace(table, columns=columns) if groups else table


def scatter(
    groups: Sequence[OneHot],
    missing: Sequence[str],
    columns: Mapping[str, NDArray[np.object_]],
) -> dict[str, NDArray[np.object_]]:
    """Returns columns of text with the members of ``groups`` in addition."""
    written = dict(columns)
    for group in groups:
        chosen = columns[group.column]
        known = {value: value in group.categories for value in dict.fromkeys(chosen.tolist())}
        absent = np.array([not known[value] for value in chosen.tolist()], np.bool_)
        for name in group.members:
            values = np.where(chosen == name, group.yes, group.no).astype(object)
            values[absent] = next(iter(missing), "")
            written[name] = values
    return written


def _category(group: OneHot, row: tuple[str, ...], missing: Sequence[str]) -> str:
    spelt = [_truth(value, group) for value in row]
    if None not in spelt:
        if sum(map(bool, spelt)) == 1:
            return group.members[spelt.index(True)]
        return group.none if group.none and not any(spelt) else UNKNOWN
    return row[0] if all(value in missing for value in row) else UNKNOWN


def _truth(value: str, group: OneHot) -> bool | None:
    """Returns True for yes, False for no; ``1.0`` is 1."""
    for text, truth in ((group.yes, True), (group.no, False)):
        if value == text or (value.endswith(".0") and value[:-2] == text):
            return truth
    return None
