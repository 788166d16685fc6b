"""Rows of a person: the key of persons that a draft finds, and a table with a bounded number of rows of each person.

``find_person_key`` looks for a column whose values stand for persons with several rows each. ``sampled_rows`` leaves a
person with too many rows as many as are allowed, by a fixed rule: those with the smallest HMAC-SHA-256 of the row under
a key. What is kept of a person depends on that person's rows alone, so that a neighbouring table differs in no other
person's rows; and not on their order, so that the same table always gives the same rows.

Table and result are secret, and so is the number of rows that were left out: it depends on the table without noise. The
key is public. Limits: a key is found by its column's name; rows of a person at another owner are not known here.
"""

from __future__ import annotations

import hmac
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from mechanisms.linking import Key, LinkingKeys
from mechanisms.text_table import TextTable

_NAME = re.compile(
    r"(?i:(^|[^a-z])(id|ids|uuid|guid|key|ssn|mrn|pid)($|[^a-z])"
    r"|^(person|patient|subject|participant|client|customer|member)[^a-z]?(no|nr|num|number|code)?$)|[a-z]I[dD]$"
)
_OF_PERSONS = re.compile(
    r"(?i:person|patient|subject|participant|client|customer|member|mrn|ssn|pid)"
)
FEWEST_PERSONS, MOST_ROWS = 10, 1000
"""Fewest different values of a key of persons, and the most rows of one."""
_MOST_ON_AVERAGE = 20


@dataclass(frozen=True, slots=True)
class PersonKey:
    """Column that identifies persons, with the largest and the smallest number of rows of one, both secret."""

    column: str
    most: int
    fewest: int

    @property
    def note(self) -> str:
        """Sentence on the finding."""
        rows = f"{self.most} rows" if self.most == self.fewest else f"up to {self.most} rows"
        return f"{rows} for each value of {self.column}"


def named_as_key(name: str) -> tuple[bool, bool]:
    """Returns whether a column is called as an identifier is, with a person in its name, and at all."""
    called = _NAME.search(name) is not None
    return called and _OF_PERSONS.search(name) is not None, called


def find_person_key(
    columns: Mapping[str, Sequence[str]], missing: Collection[str]
) -> PersonKey | None:
    """Returns the column that most likely identifies persons with several rows each; None if there is none.

    Its name is one of an identifier, all rows have a value, and values have several rows, but not many on average: a
    ward has. Of several columns one whose name has a person in it is taken, else that with the fewest values, which
    protects most rows together.
    """
    found: list[tuple[bool, int, PersonKey]] = []
    for name, cells in columns.items():
        if not _NAME.search(name):
            continue
        counts = Counter(cells)
        most = max(counts.values(), default=0)
        several = 1 < most <= MOST_ROWS and len(cells) <= _MOST_ON_AVERAGE * len(counts)
        if len(counts) >= FEWEST_PERSONS and several and not set(counts) & set(missing):
            other = _OF_PERSONS.search(name) is None
            found.append((other, len(counts), PersonKey(name, most, min(counts.values()))))
    return min(found, key=lambda item: item[:2])[2] if found else None


def sampled_rows(
    table: TextTable, keys: LinkingKeys, *, at_most: int, columns: Sequence[str], salt: bytes
) -> TextTable:
    """Returns the table with at most ``at_most`` rows of each of ``keys``, in their order.

    ``columns`` are those that the choice depends on; ``salt`` makes another choice for another study.
    """
    rows = defaultdict[Key, list[int]](list)
    for row, person in enumerate(keys.keys):
        rows[person].append(row)
    cells = [table.columns[name] for name in columns]
    kept = list[int]()
    for person, own in rows.items():
        if len(own) <= at_most:
            kept += own
            continue
        seen = Counter[tuple[str, ...]]()
        ranked = list[tuple[bytes, int]]()
        for row in own:
            values = tuple(column[row] for column in cells)
            seen[values] += 1
            text = _prefixed((*person, *values, str(seen[values])))
            ranked.append((hmac.digest(salt, text, "sha256"), row))
        kept += [row for _, row in sorted(ranked)[:at_most]]
    if len(kept) == len(table):
        return table
    kept.sort()
    return replace(
        table,
        columns={name: [column[row] for row in kept] for name, column in table.columns.items()},
        places=[table.places[row] for row in kept],
    )


def _prefixed(values: Sequence[str]) -> bytes:
    """Returns values with their lengths before them, so that different ones are different bytes."""
    parts = [value.encode("utf-8", "surrogatepass") for value in values]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
