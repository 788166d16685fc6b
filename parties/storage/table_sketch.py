"""Keyed sketches of tables, by which an owner's budget recognises tables of the same people.

``make_sketch`` samples a table, and ``compare`` tells whether two sketched tables share people. A sketch has families
of tokens: whole rows and rows without one of their columns, with the columns' names and without, pairs of cells of one
row, cells of each nearly unique column, and persons by the key that a study names. No token depends on the order of
columns or rows, and all but those with names on values alone; numbers, dates and blanks have one spelling, and missing
values none. Of each family the ``SIZE`` smallest tokens are kept, with their number of occurrences (bottom-k sampling:
two tables keep the same ones of what they share).

Rows and pairs are evidence where more tokens occur once in each table than chance gives. By chance, the two occurrences
of a token that occurs twice in both tables together fall to the tables as a coin does that knows only their sizes: if
rows of different people are alike, then as often within a table as between tables. So the test is a binomial one of
known false-alarm rate (``FALSE_ALARM`` for a pair of tables), whatever the columns are. It is conservative where the
tables differ in distribution, or a person has several rows. ``Likeness.UNSURE`` is the answer where even a share of
``DETECTED`` of the smaller table's rows could have been missed: small tables, and tables whose rows are too common.

Identifiers are evidence by themselves, unless they number persons (1, 2, 3): two hospitals number alike. Then cells
that belong to the same number have to agree more often than cells of neighbouring numbers do.

Rows that differ are no evidence that people do: the next export of the same patients has other values. So a table is
other people's (``Likeness.OTHER`` of ``KeyedSketch.likeness``) only where the persons' key says so, or where it has
other columns: fewer than a quarter of the smaller table's names (with digits and signs or without), and no nearly
unique column with the same values.

Secret: tables, tokens, key. ``SketchKey.seal`` encrypts a sketch, so that a file of sealed sketches tells nothing but
their number and sizes to whoever lacks the key. Sources: Broder, On the resemblance and containment of documents, 1997;
Cohen and Kaplan, Summarizing data using bottom-k sketches, PODC 2007; Clarke et al., Incremental multiset hash
functions, ASIACRYPT 2003. Known limits: rows are taken for independent draws, so that a table of distinct rows of few
categories (SELECT DISTINCT) may resemble another one; two columns or more that change in all rows leave pairs alone;
so does a table of other columns, by name, whose identifier is not named and comes in several rows.
"""

import contextlib
import hashlib
import os
import re
import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from math import inf, lgamma, log, log1p
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from mechanisms.linking import normalised
from mechanisms.text_table import TextTable
from parties.foundation.errors import StoreError
from parties.storage.files import disk_errors, write_new
from protocols.durable import sync

SIZE = 1024
"""Tokens of a family."""
FALSE_ALARM = 1e-6
"""Probability at most that two tables of different people, with independent rows, are taken for the same people."""
DETECTED = 0.3
"""Share of the smaller table's rows in the other one that ``Likeness.OTHER`` rules out."""
_FOUND = 0.1
"""Share of the smaller table's tokens from which on tables are of the same people."""
_MARGIN = 2 / 3
"""Part of an expected overlap that is there for (nearly) every sample."""
_FEWEST_PERSONS = 8
_SAME_COLUMNS = 0.25
"""Share of the smaller table's column names from which on other rows may be of the same people at another time."""
_NEARLY_UNIQUE = 0.5
"""Different values for each row from which on a column may be an identifier that no study has named."""
_PAIRED_COLUMNS = 24
_PAIRED_ROWS = 100
"""Fewest rows with a family of pairs: in smaller tables many of the sampled pairs are of the same rows."""
_MOST_COUNTED = 3
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", ".", "-"})
_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)?")
_SIGNS = re.compile(r"[\W\d_]+")
_NUMBERED = re.compile(r"(\D*)(\d{1,18})")
_KEY_BYTES, _NONCE_BYTES = 32, 12
_FORM = b"syncret sketch 1"
_HEAD, _FAMILY = struct.Struct("<QHH"), struct.Struct("<BBH")

Tokens = NDArray[np.uint64]


class Likeness(StrEnum):
    """Answer of a comparison of two tables."""

    SAME = "same"
    OTHER = "other"
    UNSURE = "unsure"
    LATER = "later"
    """Other rows with columns of the same names, which may be of the same people at another time."""


class Kind(StrEnum):
    """Kinds of a sketch's families.

    ``ROWS`` and ``NAMED`` have a family of whole rows, then one without each column; ``NAMES`` has the columns' names,
    and ``STEMS`` these without digits and signs, ``SHIFTED`` cells with the next person's number, and ``UNIQUE`` a
    family for each nearly unique column.
    """

    ROWS = "rows"
    NAMED = "named"
    NAMES = "names"
    PAIRS = "pairs"
    PERSONS = "persons"
    CELLS = "cells"
    SHIFTED = "shifted"
    UNIQUE = "unique"
    STEMS = "stems"


_KINDS = tuple(Kind)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Family:
    """The smallest ``tokens``, ascending, and how often each occurs, up to 3; ``whole``: there are no others."""

    kind: Kind
    tokens: Tokens
    counts: NDArray[np.uint8]
    whole: bool

    def below(self, limit: int) -> "Family":
        """Returns the part of tokens up to ``limit``."""
        end = int(np.searchsorted(self.tokens, np.uint64(limit), side="right"))
        return Family(self.kind, self.tokens[:end], self.counts[:end], self.whole)

    @property
    def limit(self) -> int:
        """Largest token up to which all tokens are known."""
        return 2**64 - 1 if self.whole or not len(self.tokens) else int(self.tokens[-1])

    @property
    def single(self) -> int:
        """Number of tokens that occur once."""
        return int(np.count_nonzero(self.counts == 1))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TableSketch:
    """Sketch of a table of ``rows`` rows and ``columns`` compared columns; secret."""

    rows: int
    columns: int
    families: tuple[Family, ...]
    numbered: bool = False
    """True if the persons' identifiers are numbers in a row."""

    def of(self, kind: Kind) -> list[Family]:
        """Returns the families of one kind."""
        return [family for family in self.families if family.kind is kind]

    def equals(self, other: "TableSketch") -> bool:
        """Returns true for sketches of the same rows."""
        return (
            (self.rows, self.columns, len(self.families))
            == (other.rows, other.columns, len(other.families))
        ) and all(
            np.array_equal(mine.tokens, its.tokens)
            for mine, its in zip(self.families, other.families, strict=True)
        )


@dataclass(frozen=True, slots=True)
class SketchKey:
    """Secret key of an owner's sketches."""

    key: bytes = field(repr=False)

    @classmethod
    def of_existing(cls, budget: Path) -> "SketchKey | None":
        """Returns the key in the file beside a budget; None if it is missing. Raises StoreError."""
        return cls.beside(budget) if budget.with_name(f"{budget.name}.key").exists() else None

    @classmethod
    def beside(cls, budget: Path) -> "SketchKey":
        """Returns the key in the file beside a budget, which is made if it is missing. Raises StoreError."""
        path = budget.with_name(f"{budget.name}.key")
        if not path.exists():
            _make_key(path)
        with disk_errors(path, "read"):
            text = path.read_text(encoding="ascii", errors="replace").strip()
        if not re.fullmatch(rf"[0-9a-f]{{{2 * _KEY_BYTES}}}", text):
            raise StoreError(
                path, "is damaged; expected the key that syncret keeps there, or a copy of it"
            )
        return cls(bytes.fromhex(text))

    def _derived(self, use: bytes) -> bytes:
        return hashlib.blake2b(use, key=self.key, digest_size=32).digest()

    def values(self, texts: Sequence[str], use: bytes) -> Tokens:
        """Returns a keyed hash of each text, (texts, 2); missing values have 0."""
        key = self._derived(use)
        digests = b"".join(
            bytes(16)
            if text in _MISSING
            else hashlib.blake2b(
                text.encode("utf-8", "surrogatepass"), key=key, digest_size=16
            ).digest()
            for text in texts
        )
        return np.frombuffer(digests, np.uint64).reshape(-1, 2)

    def tokens(self, sums: Tokens) -> Tokens:
        """Returns the tokens of sums of hashes, (rows, 2): a pseudorandom function of each."""
        # Each sum is one block of AES: what repeats is to be recognised, and tokens leave only under ``seal``.
        cipher = Cipher(algorithms.AES(self._derived(b"tokens")), modes.ECB()).encryptor()
        blocks = cipher.update(np.ascontiguousarray(sums).tobytes()) + cipher.finalize()
        return np.frombuffer(blocks, np.uint64)[::2]

    def digest(self, use: bytes, data: bytes) -> bytes:
        """Returns a keyed digest of 32 bytes."""
        return hashlib.blake2b(data, key=self._derived(use), digest_size=32).digest()

    def encrypt_block(self, block: bytes) -> bytes:
        """Returns a block of 16 bytes, encrypted: a pseudorandom permutation of it."""
        cipher = Cipher(algorithms.AES(self._derived(b"block")), modes.ECB()).encryptor()
        return cipher.update(block) + cipher.finalize()

    def decrypt_block(self, block: bytes) -> bytes:
        """Inverse of ``encrypt_block``."""
        cipher = Cipher(algorithms.AES(self._derived(b"block")), modes.ECB()).decryptor()
        return cipher.update(block) + cipher.finalize()

    def seal(self, sketch: TableSketch) -> bytes:
        """Returns the encrypted sketch."""
        head = _HEAD.pack(sketch.rows, sketch.columns, sketch.numbered)
        parts = [head]
        for family in sketch.families:
            parts.append(_FAMILY.pack(_KINDS.index(family.kind), family.whole, len(family.tokens)))
            parts += [family.tokens.astype("<u8").tobytes(), family.counts.tobytes()]
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + AESGCM(self._derived(b"seal")).encrypt(nonce, b"".join(parts), _FORM)

    def unseal(self, sealed: bytes) -> TableSketch | None:
        """Returns the sketch; None if it was sealed with another key, or is damaged."""
        try:
            data = AESGCM(self._derived(b"seal")).decrypt(
                sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _FORM
            )
        except (InvalidTag, ValueError):
            return None
        rows, columns, numbered = _HEAD.unpack_from(data)
        families, at = [], _HEAD.size
        while at < len(data):
            kind, whole, length = _FAMILY.unpack_from(data, at)
            at += _FAMILY.size
            tokens = np.frombuffer(data, "<u8", length, at)
            counts = np.frombuffer(data, np.uint8, length, at + 8 * length)
            families.append(Family(_KINDS[kind], tokens, counts, bool(whole)))
            at += 9 * length
        return TableSketch(rows, columns, tuple(families), bool(numbered))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class KeyedSketch:
    """A table's sketch with the key of its owner's sketches."""

    key: SketchKey
    sketch: TableSketch
    _compared: dict[bytes, Likeness] = field(default_factory=dict)

    def seal(self) -> bytes:
        """Returns the encrypted sketch."""
        return self.key.seal(self.sketch)

    def likeness(self, sealed: bytes) -> Likeness:
        """Returns whether the table is like a sealed sketch's; unsure if that does not open.

        ``compare`` cannot see that rows of visits in another month are of the same people. So tables with columns of
        the same names and other rows are LATER, and tables of other columns with the values of an identifier are
        UNSURE, unless the persons' key tells their people apart.
        """
        if sealed not in self._compared:
            other = self.key.unseal(sealed)
            found = Likeness.UNSURE if other is None else compare(other, self.sketch)
            if other is not None and found is Likeness.OTHER:
                found = _other_rows(other, self.sketch)
            self._compared[sealed] = found
        return self._compared[sealed]

    def is_of(self, sealed: bytes) -> bool:
        """Returns true for a sealed sketch of the same rows."""
        other = self.key.unseal(sealed)
        return other is not None and other.equals(self.sketch)


def _make_key(path: Path) -> None:
    """Makes a key file, whole and durable, unless another process was faster."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with disk_errors(path, "made"):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_new(beside, secrets.token_hex(_KEY_BYTES).encode() + b"\n", secret=True)
        try:
            sync(beside)
            with contextlib.suppress(FileExistsError):
                os.link(beside, path)
            sync(path.parent)
        finally:
            beside.unlink()


# Making


def make_sketch(table: TextTable, key: SketchKey, person: Sequence[str] = ()) -> TableSketch:
    """Returns the sketch of a table, whose rows of one person have the same values in the columns ``person``."""
    known = person if person and all(name in table.columns for name in person) else ()
    texts = {n: _Column.of(values) for n, values in table.columns.items() if n not in known}
    telling = {_spelling(name): column for name, column in texts.items() if column.tells}
    columns = list(telling.values())
    hashes = [key.values(column.texts, b"cell")[column.index] for column in columns]
    families = list[Family]()
    if hashes:
        named = [
            key.values(column.texts, b"cell of " + name.encode("utf-8", "surrogatepass"))[
                column.index
            ]
            for name, column in telling.items()
        ]
        # A column that is renamed by a year or a number has its stem in common with the former one.
        stems = list(dict.fromkeys(map(_stem, telling)))
        families += _of_rows(Kind.ROWS, hashes, key) + _of_rows(Kind.NAMED, named, key)
        for kind, called in ((Kind.NAMES, list(telling)), (Kind.STEMS, stems)):
            names = _Smallest(kind)
            names.add(key.tokens(key.values(called, b"name")))
            families.append(names.family())
        for column, cells in zip(columns, hashes, strict=True):
            if len(column.texts) >= _NEARLY_UNIQUE * len(table):
                smallest = _Smallest(Kind.UNIQUE)
                smallest.add(key.tokens(cells[cells.any(axis=1)] * np.uint64(7)))
                families.append(smallest.family())
    if len(hashes) > 1 and len(table) >= _PAIRED_ROWS:
        widest = sorted(range(len(hashes)), key=lambda i: -len(columns[i].texts))
        families.append(_of_pairs([hashes[i] for i in widest[:_PAIRED_COLUMNS]], key))
    numbered = False
    if known and len(table):
        persons = _Column.of(list(zip(*(table.columns[name] for name in known), strict=True)))
        numbered = persons.numbers
        families += _of_persons(persons, hashes, key)
    return TableSketch(len(table), len(hashes), tuple(families), numbered)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _Column:
    """A column's different texts in one spelling, and the ``index`` of each row's."""

    texts: list[str]
    index: NDArray[np.int64]

    @classmethod
    def of(cls, values: Sequence[object]) -> "_Column":
        numbers_of: dict[object, int] = {}
        first = np.fromiter(
            (numbers_of.setdefault(v, len(numbers_of)) for v in values), np.int64, len(values)
        )
        spelt: dict[str, int] = {}
        merged = [spelt.setdefault(_spelling(value), len(spelt)) for value in numbers_of]
        return cls(list(spelt), np.array(merged, np.int64)[first] if merged else first)

    @property
    def numbers(self) -> bool:
        """True if the texts are numbers in a row, with hardly any gaps: they say nothing of a person."""
        found = [_NUMBERED.fullmatch(text) for text in self.texts if text not in _MISSING]
        if len(found) < 2 or not all(found) or len({match[1] for match in found if match}) > 1:
            return False
        numbers = [int(match[2]) for match in found if match]
        return max(numbers) - min(numbers) < 4 * len(numbers)

    @property
    def tells(self) -> bool:
        """True unless all values are the same, or the column numbers the rows."""
        rows, different = len(self.index), len(self.texts)
        return different > 1 and not (different >= 100 and rows <= 2 * different and self.numbers)


def _spelling(value: object) -> str:
    if isinstance(value, tuple):
        parts = [_spelling(part) for part in value]
        return parts[0] if len(parts) == 1 else "".join(f"{len(part)} {part}" for part in parts)
    text = str(value)
    try:
        text = normalised(text)
    except ValueError:
        text = " ".join(text.casefold().split())
    if not _NUMBER.fullmatch(text):
        return text
    try:
        number = Decimal(text.replace(",", ".")).normalize()
    except InvalidOperation:
        return text
    return f"{number + 0:f}"


def _stem(name: str) -> str:
    """Returns a column's name without digits, blanks and signs; a name of nothing else as it is."""
    return _SIGNS.sub("", name) or name


class _Smallest:
    """Collector of a family's smallest tokens."""

    def __init__(self, kind: Kind) -> None:
        self._kind, self._limit = kind, np.uint64(2**64 - 1)
        self._found: list[Tokens] = []
        self._number, self._whole = 0, True

    def add(self, tokens: Tokens) -> None:
        self._found.append(tokens[tokens <= self._limit])
        self._number += len(self._found[-1])
        if self._number > 64 * SIZE:
            self._cut()

    def _cut(self) -> tuple[Tokens, NDArray[np.int64]]:
        found = np.concatenate([np.empty(0, np.uint64), *self._found])
        tokens, counts = np.unique(found, return_counts=True)
        if len(tokens) > SIZE:
            self._whole, self._limit = False, tokens[SIZE - 1]
            tokens, counts = tokens[:SIZE], counts[:SIZE]
            found = found[found <= self._limit]
        self._found, self._number = [found], len(found)
        return tokens, counts

    def family(self) -> Family:
        tokens, counts = self._cut()
        return Family(
            self._kind, tokens, np.minimum(counts, _MOST_COUNTED).astype(np.uint8), self._whole
        )


def _of_rows(kind: Kind, hashes: list[Tokens], key: SketchKey) -> list[Family]:
    # A row's hash is the sum of its cells', so that a column is left out by a subtraction.
    total = np.zeros_like(hashes[0])
    for column in hashes:
        total += column
    families = []
    for rest in [total, *((total - column) for column in hashes)]:
        smallest = _Smallest(kind)
        smallest.add(key.tokens(rest))
        families.append(smallest.family())
    return families


def _of_pairs(hashes: list[Tokens], key: SketchKey) -> Family:
    smallest = _Smallest(Kind.PAIRS)
    for number, one in enumerate(hashes):
        for other in hashes[:number]:
            # Rows with a missing value have no pair here; the factor keeps pairs apart from rows of two columns.
            both = one.any(axis=1) & other.any(axis=1)
            smallest.add(key.tokens((one[both] + other[both]) * np.uint64(3)))
    return smallest.family()


def _of_persons(persons: _Column, hashes: list[Tokens], key: SketchKey) -> list[Family]:
    here = key.values(persons.texts, b"person")
    order = np.array(sorted(range(len(here)), key=lambda i: _number_of(persons.texts[i])), np.int64)
    following = np.empty_like(order)
    following[order] = np.roll(order, -1)
    found = [_Smallest(Kind.PERSONS), _Smallest(Kind.CELLS), _Smallest(Kind.SHIFTED)]
    found[0].add(key.tokens(here))
    for cells in hashes:
        given = cells.any(axis=1)
        for smallest, owner in ((found[1], here), (found[2], here[following])):
            sums = np.unique((owner[persons.index] * np.uint64(5) + cells)[given], axis=0)
            smallest.add(key.tokens(sums))
    return [smallest.family() for smallest in found]


def _number_of(text: str) -> tuple[int, str]:
    match = _NUMBERED.fullmatch(text)
    return (int(match[2]) if match else -1, text)


# Comparing


def compare(one: TableSketch, other: TableSketch) -> Likeness:
    """Returns whether two tables share people: at least a tenth of the smaller one's rows, by what was sampled."""
    if _persons_shared(one, other):
        return Likeness.SAME
    kinds = (Kind.ROWS, Kind.NAMED)
    rows = [(mine, its) for kind in kinds for mine in one.of(kind) for its in other.of(kind)]
    pairs = list(zip(one.of(Kind.PAIRS), other.of(Kind.PAIRS), strict=False))
    level = FALSE_ALARM / (len(rows) + len(pairs) + 2)
    share = one.rows / (one.rows + other.rows) if one.rows and other.rows else 0.5
    chance = 2 * share * (1 - share)
    if any(_Overlap.of(*both, chance).found(level) for both in [*rows, *pairs]):
        return Likeness.SAME
    compared = [pairs] + [_decisive(one, other, kind) for kind in kinds]
    for families in compared:
        powers = [_Overlap.of(*both, chance).would_find(level) for both in families]
        if powers and all(powers):
            return Likeness.OTHER
    return Likeness.UNSURE


def _decisive(one: TableSketch, other: TableSketch, kind: Kind) -> list[tuple[Family, Family]]:
    """Returns the families of rows that tell people apart if all have the power to, none if columns differ.

    Rows tell people apart where columns, or their names, are the same but for one, even without the column that tells
    most.
    """
    most = max(one.columns, other.columns)
    same = min(one.columns, other.columns)
    mine, its = one.of(Kind.NAMES), other.of(Kind.NAMES)
    if kind is Kind.NAMED and mine and its:
        same = len(np.intersect1d(mine[0].tokens, its[0].tokens, assume_unique=True))
    if same < most - 1 or not (one.of(kind) and other.of(kind)):
        return []
    plainest = (min(each.of(kind), key=lambda family: family.single) for each in (one, other))
    first, second = plainest
    return [(one.of(kind)[0], other.of(kind)[0]), (first, second)]


@dataclass(frozen=True, slots=True)
class _Overlap:
    """Numbers of tokens that occur once in each of two tables, or twice in one and never in the other.

    ``single`` is the number of those that occur once in the table that has fewer of them; ``chance`` is the probability
    that two occurrences of a token fall to different tables.
    """

    between: int
    within: int
    single: int
    chance: float

    @classmethod
    def of(cls, one: Family, other: Family, chance: float) -> "_Overlap":
        limit = min(one.limit, other.limit)
        one, other = one.below(limit), other.below(limit)
        _, mine, its = np.intersect1d(one.tokens, other.tokens, True, return_indices=True)
        between = int(np.count_nonzero((one.counts[mine] == 1) & (other.counts[its] == 1)))
        within = sum(
            int(np.count_nonzero(family.counts == 2) - np.count_nonzero(family.counts[shared] == 2))
            for family, shared in ((one, mine), (other, its))
        )
        return cls(between, within, min(one.single, other.single), chance)

    @property
    def _expected(self) -> float:
        """Expected number between tables of different people."""
        return self.within * self.chance / (1 - self.chance)

    def found(self, level: float) -> bool:
        """True if there are more than different people would have but for a probability of ``level``."""
        return self.between - self._expected >= _FOUND * self.single and (
            self.between > 0 and _log_tail(self.between, self.within, self.chance) <= log(level)
        )

    def would_find(self, level: float) -> bool:
        """True if a share of ``DETECTED`` of the smaller table's rows would have been found."""
        more = int(DETECTED * _MARGIN * self.single)
        return more > 0 and _log_tail(int(self._expected) + more, self.within, self.chance) <= log(
            level
        )


def _log_tail(successes: int, failures: int, chance: float) -> float:
    """Logarithm of the probability of at least so many successes in all these trials; an upper bound of it.

    From the mode on, terms of the binomial distribution fall at least as fast as their first ratio.
    """
    trials = successes + failures
    if successes <= trials * chance:
        return 0.0
    first = lgamma(trials + 1) - lgamma(successes + 1) - lgamma(failures + 1)
    first += successes * log(chance) + failures * log1p(-chance)
    ratio = failures / (successes + 1) * chance / (1 - chance)
    return first - log1p(-ratio) if ratio < 1 else inf


def _other_rows(one: TableSketch, other: TableSketch) -> Likeness:
    """Returns whose the rows are, of tables without rows in common: OTHER, or LATER or UNSURE if nobody can tell."""
    if one.of(Kind.PERSONS) and other.of(Kind.PERSONS) and not (one.numbered and other.numbered):
        return Likeness.OTHER
    shared = [
        len(np.intersect1d(mine[0].tokens, its[0].tokens, assume_unique=True))
        for kind in (Kind.NAMES, Kind.STEMS)
        if (mine := one.of(kind)) and (its := other.of(kind))
    ]
    if not shared:
        return Likeness.UNSURE
    if max(shared) >= _SAME_COLUMNS * min(one.columns, other.columns):
        return Likeness.LATER
    return Likeness.UNSURE if _cells_shared(one, other) else Likeness.OTHER


def _cells_shared(one: TableSketch, other: TableSketch) -> bool:
    """Returns true if nearly unique columns share more values than chance gives: one may identify people.

    Numbers that two sources give alike are shared as well, so that this is no evidence of the same people.
    """
    pairs = [(a, b) for a in one.of(Kind.UNIQUE) for b in other.of(Kind.UNIQUE)]
    share = one.rows / (one.rows + other.rows)
    chance = 2 * share * (1 - share)
    level = FALSE_ALARM / max(1, len(pairs))
    return any(_Overlap.of(*both, chance).found(level) for both in pairs)


def _persons_shared(one: TableSketch, other: TableSketch) -> bool:
    """Returns true if a tenth of the smaller table's persons have their identifiers in the other one."""
    mine, its = one.of(Kind.PERSONS), other.of(Kind.PERSONS)
    if not (mine and its):
        return False
    shared, fewer = _shared(mine[0], its[0])
    if shared < max(_FEWEST_PERSONS, _FOUND * fewer):
        return False
    if not (one.numbered and other.numbered):
        return True
    true, _ = _shared(one.of(Kind.CELLS)[0], other.of(Kind.CELLS)[0])
    shifted, _ = _shared(one.of(Kind.CELLS)[0], other.of(Kind.SHIFTED)[0])
    return _log_tail(true, shifted, 0.5) <= log(FALSE_ALARM / 4)


def _shared(one: Family, other: Family) -> tuple[int, int]:
    """Returns the number of shared tokens, and that of the table with fewer, up to where both are known."""
    limit = min(one.limit, other.limit)
    one, other = one.below(limit), other.below(limit)
    shared = np.intersect1d(one.tokens, other.tokens, assume_unique=True)
    return len(shared), min(len(one.tokens), len(other.tokens))
