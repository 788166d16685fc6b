"""Linking keys: a few bits, the same for a person in every owner's table, that identify the person of a row.

``normalised`` treats one value, ``linking_keys`` a table, ``hashed`` makes the numbers for shares, ``kinds_of`` tells
dates, numbers and text. The rule is public and the same for every owner; `mechanisms/README.md` states it, and
`tests/vectors/linking_keys.json` has known answers.

A value is brought to Unicode's NFKC, folded to one case, its blanks reduced to single ones, and a date written in ISO
8601. Everything else stays as written, including leading zeros: 007 is not 7. A key is one such value or several, each
with its length before it, so that ("ab", "c") is not ("a", "bc"). The shared value is the first 96 bits of SHA-256 over
a salt of the run and the key. The salt is public: it makes keys of two runs incomparable but hides nothing, since
anyone with a hash can try names. So hashes are secret, too, and leave an owner as shares alone.

The table, keys and hashes are secret; errors name rows and never a value. Limits: two spellings of a name stay two
keys; an ambiguous date (01/02/2024) is an error.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import DataError
from mechanisms.text_table import TextTable

KEY_BITS = 96
"""Bits of a hash. Among 10^7 different keys two collide with a chance below 10^14 / 2^97 = 7 x 10^-16."""
LIMB_BITS = 24
LIMBS = KEY_BITS // LIMB_BITS
DATE, NUMBER, TEXT = "dates", "numbers", "text"
_LABEL = b"syncret linking key 1\n"
_SHOWN_ROWS = 10
_YEAR_FIRST = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[t ]00:00(?::00(?:\.0+)?)?)?")
_DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
_EITHER_FIRST = re.compile(r"(\d{1,2})[/-](\d{1,2})[/-](\d{4})")
_ISO = re.compile(r"\d{4}-\d\d-\d\d")

Key = tuple[str, ...]
"""The normalised values of a key's columns; secret."""


class _TwoDates(ValueError):
    """An ambiguous date, of two possible days."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LinkingKeys:
    """The ``keys`` of a table's rows, in their order; secret."""

    keys: tuple[Key, ...]

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return f"LinkingKeys({len(self)} rows)"

    @property
    def kinds(self) -> tuple[str | None, ...]:
        """Kind of each of a key's columns: dates, numbers or text; None without rows."""
        return tuple(kinds_of(column) for column in zip(*self.keys, strict=True))


def normalised(value: str) -> str:
    """Returns a value of a key's column by the public rule. Raises ``ValueError`` for an ambiguous date."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", value).casefold())
    text = " ".join(folded.split())
    return _as_date(text) or text


def _as_date(text: str) -> str | None:
    """Returns the day that ``text`` states, as YYYY-MM-DD; None if it is no date."""
    if not text.isascii():
        return None
    if found := _YEAR_FIRST.fullmatch(text):
        return _day(found[1], found[2], found[3])
    if found := _DAY_FIRST.fullmatch(text):
        return _day(found[3], found[2], found[1])
    if found := _EITHER_FIRST.fullmatch(text):
        first, second = _day(found[3], found[2], found[1]), _day(found[3], found[1], found[2])
        if first and second and first != second:
            raise _TwoDates("a date that may be of two days")
        return first or second
    return None


def _day(year: str, month: str, day: str) -> str | None:
    try:
        return date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return None


def kinds_of(values: Sequence[str]) -> str | None:
    """Returns the kind of normalised values: dates, numbers, else text; None without values."""
    if not values:
        return None
    if all(_ISO.fullmatch(value) for value in values):
        return DATE
    # ASCII only: NFKC turns other digits into these, or they are no digits.
    return NUMBER if all(value.isascii() and value.isdigit() for value in values) else TEXT


@dataclass(frozen=True, slots=True)
class KeyWords:
    """Words of messages on keys: what a key is ``called``, what a row ``without`` one does, and its ``bound``."""

    called: str
    without: str
    bound: str


OF_LINKS = KeyWords("linking key", "joins nobody", "rows_per_person of the source")
OF_PERSONS = KeyWords(
    "person's key",
    "is of no known person",
    'run.rows_per_person; run.more_rows = "sample" leaves the others out',
)


def linking_keys(
    table: TextTable,
    columns: Sequence[str],
    *,
    source: str,
    missing: Collection[str] = (),
    at_most: int | None = 1,
    words: KeyWords = OF_LINKS,
) -> LinkingKeys:
    """Returns the keys of all rows by ``columns``; ``missing`` are spellings of a missing value.

    Raises ``DataError`` if the table lacks a column, a row has no key, a date is ambiguous, or one key occurs in more
    than ``at_most`` rows (None: unlimited). The message names ``source`` and rows, and no value.
    """
    for name in columns:
        if name not in table.columns:
            raise DataError(f"{source}: column {name!r} of the {words.called} is not in the table")
    known: dict[str, str] = {}
    values, lacking, unclear = list[list[str]](), set[int](), set[int]()
    for name in columns:
        column = []
        for row, value in enumerate(table.columns[name]):
            try:
                key = known[value] if value in known else known.setdefault(value, normalised(value))
            except _TwoDates:
                unclear.add(row)
                key = ""
            absent = not key or value in missing or value.strip() in missing
            if absent and row not in unclear:
                lacking.add(row)
            column.append(key)
        values.append(column)
    shown = ", ".join(map(repr, columns))
    if lacking:
        raise DataError(
            f"{source}: {_rows(table, sorted(lacking))} no {words.called} ({shown}); a row without one "
            f"{words.without}: leave such rows out, or fill the key in"
        )
    if unclear:
        raise DataError(
            f"{source}: {_rows(table, sorted(unclear))} a date in the {words.called} ({shown}) that may be of two "
            "days; write dates as YYYY-MM-DD"
        )
    keys = LinkingKeys(tuple(zip(*values, strict=True)))
    if at_most is not None:
        _check_repeats(table, keys, shown, source=source, at_most=at_most, words=words)
    return keys


def _check_repeats(
    table: TextTable,
    keys: LinkingKeys,
    shown: str,
    *,
    source: str,
    at_most: int,
    words: KeyWords,
) -> None:
    rows = defaultdict[Key, list[int]](list)
    for row, key in enumerate(keys.keys):
        rows[key].append(row)
    repeated = [same for same in rows.values() if len(same) > at_most]
    if not repeated:
        return
    more = f", and {len(repeated) - 1} more keys likewise" if len(repeated) > 1 else ""
    expected = "one row a key" if at_most == 1 else f"at most {at_most} rows a key"
    raise DataError(
        f"{source}: {_rows(table, repeated[0])} the same {words.called} ({shown}){more}; expected {expected} "
        f"({words.bound})"
    )


def _rows(table: TextTable, rows: Sequence[int]) -> str:
    """Returns rows as messages name them, with the verb that follows."""
    numbers = ", ".join(str(table.places[row]) for row in rows[:_SHOWN_ROWS])
    more = f" and {len(rows) - _SHOWN_ROWS} more" if len(rows) > _SHOWN_ROWS else ""
    one = len(rows) == 1
    return f"{table.unit}{'' if one else 's'} {numbers}{more} {'has' if one else 'have'}"


def hashed(keys: LinkingKeys, salt: bytes) -> NDArray[np.int32]:
    """Returns the hashes of keys, ``LIMBS`` numbers of ``LIMB_BITS`` bits, the most significant last: (rows, LIMBS).

    The hashes are secret. Each is the first 96 bits of SHA-256(label, length of the salt, salt, for each value its
    length and itself), read as one big-endian number; lengths are in 4 bytes, big-endian, text in UTF-8.
    """
    start = hashlib.sha256(_LABEL + _prefixed(salt))
    limbs = np.empty((len(keys), LIMBS), np.int32)
    for row, key in enumerate(keys.keys):
        sponge = start.copy()
        for value in key:
            sponge.update(_prefixed(value.encode()))
        number = int.from_bytes(sponge.digest()[: KEY_BITS // 8], "big")
        limbs[row] = [number >> LIMB_BITS * i & ((1 << LIMB_BITS) - 1) for i in range(LIMBS)]
    return limbs


def _prefixed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
