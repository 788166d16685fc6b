"""Origins of a domain's values, counted: public, private, from a table, or unsaid.

Bins and values that a run chooses from noisy counts are ``private`` by themselves; all other origins are those stated
by `mechanisms.provenance`, or ``unsaid``. All values here are public.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mechanisms.column_parts import PRIVATE as PRIVATE_BINS
from mechanisms.columns import Column, Implied
from mechanisms.constraints.derived import Derived
from mechanisms.domain import Domain
from mechanisms.provenance import NAMING, PRIVATE, PUBLIC, TABLE, Provenance

UNSAID = "unsaid"
ORIGINS = (PUBLIC, PRIVATE, TABLE, UNSAID)
_MEASURED = frozenset({"histogram", "deviation"})
_VALUES = (
    "categories",
    "candidates",
    "low",
    "high",
    "edges",
    "within",
    "atoms",
    "marks",
    "endings",
    "values",
)
"""Keys whose values stand for values of a table; the other keys describe spelling or bins."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of ``count`` values under one ``key`` of a column: one of ``ORIGINS``, and ``words``."""

    column: str
    key: str
    count: int
    origin: str
    words: str


def origins(domain: Domain) -> tuple[Origin, ...]:
    """Returns the origin of every key of every column, in the domain's order."""
    columns = domain.described
    said = {each.column: each for each in domain.provenance}
    return tuple(
        origin
        for name in domain.described_names
        for origin in _origins(columns[name], said.get(name))
    )


def counted(domain: Domain) -> dict[str, int]:
    """Returns the number of values of each of ``ORIGINS``, without zeros."""
    counts = Counter[str]()
    for origin in origins(domain):
        counts[origin.origin] += origin.count
    return {origin: counts[origin] for origin in ORIGINS if counts[origin]}


def column_in_words(domain: Domain, column: str) -> str:
    """Returns the provenance of one column's values in a few words: ``public: code book; table (atoms)``."""
    texts: dict[str, list[str]] = {}
    for origin in origins(domain):
        if origin.column == column and origin.count:
            text = f"{origin.origin}: {origin.words}" if origin.words else origin.origin
            texts.setdefault(text, []).append(origin.key)
    if len(texts) == 1:
        return next(iter(texts))
    return "; ".join(f"{text} ({', '.join(keys)})" for text, keys in texts.items())


def counted_in_words(counts: Mapping[str, int]) -> str:
    """Returns a sentence on the origins of a domain's values, from the counts of ``counted``."""
    total = sum(counts.values())
    if counts.get(PUBLIC, 0) + counts.get(PRIVATE, 0) == total and counts.get(PUBLIC):
        bins = ", but for what noisy counts chose" if counts.get(PRIVATE) else ""
        return (
            f"The configuration's author states that its {total:,} values were public before any table was "
            f"read{bins}."
        )
    parts = []
    if table := counts.get(TABLE):
        parts.append(
            f"{table:,} of its {total:,} values {'was' if table == 1 else 'were'} read from a table, and no epsilon "
            f"covers what {'it tells' if table == 1 else 'they tell'}"
        )
    if unsaid := counts.get(UNSAID):
        parts.append(f"the configuration's author does not state the origin of {unsaid:,}")
    return f"{'; '.join(parts)}." if parts else "Noisy counts chose its values."


def _origins(column: Column | Implied | Derived, said: Provenance | None) -> list[Origin]:
    if isinstance(column, Derived):
        return _origins(column.column, said)
    found = []
    for key, value in column.to_dict().items():
        if key in NAMING | _MEASURED:
            continue
        if key in ("bins", "values") and value == PRIVATE_BINS:
            found.append(Origin(column.name, key, 1, PRIVATE, "noisy counts of the run"))
            continue
        origin, _, words = (said.of(key) if said else "").partition(":")
        size = _size(value) if key in _VALUES else 0
        found.append(Origin(column.name, key, size, origin.strip() or UNSAID, words.strip()))
    return found


def _size(value: object) -> int:
    return len(value) if isinstance(value, list | dict) else 1
