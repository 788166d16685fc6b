"""Sums of signs with public factors, by tables: of four gates of three bits each in a look-up.

A gate has three bits: x, y and a last one. Left's vector and right's have four signs of a gate, functions of its bits
(``LEFT_SIGNS``, ``RIGHT_SIGNS``). A word has 64 gates, of which bit i belongs to block i, or to block i modulo 16; a
*column* is what has one gate of each block, a word or a lane of 16 bits. What is made of a column are sums over its
gates, each with the factor of its block.

Provides ``drawn_digits``, factors whose sums have no carries; ``ones_tables`` and ``column_ones``, sums of factors
where a sign is minus, one for each of the four signs, eight gates in a look-up; ``DigitProducts``, inner products of
such sums; ``sign_tables`` and ``add_signs``, all four signs of a column's gates in one sum modulo p = 2^61 - 1, four
gates in a look-up, of which three times four bits of a lane are the index. Secret: bits, indices and sums. Public:
factors and tables.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from protocols.keystream import Keystream
from protocols.mersenne import F61, Field, Integers

Words = NDArray[np.uint64]
Bits: TypeAlias = NDArray[np.unsignedinteger[Any]]
"""Of as many gates as an element has bits."""
Planes: TypeAlias = tuple[Words, Words, Words]
"""x, y and the last bit of 64 gates a word: (words,) each."""
Signs: TypeAlias = Callable[[Bits, Bits, Bits], Iterator[Bits]]
"""From x, y and the last bit those of four signs."""

PRODUCTS = 4
LANE = 16
DIGITS, DIGIT_BITS, APART = 3, 15, 21
"""Of a factor: of 64 digits of 15 bits the sum has 21."""

_GATES = 4
_NIBBLE = np.uint16(15)
_NIBBLES = LANE // _GATES
_WORD_BYTES = 8
# Columns at a time: sums of so many products of two numbers of 21 bits are below 2^53, where float64 is exact.
_MULTIPLIED = 1 << 10
_P = np.uint64(F61.modulus)
# So many numbers below 2^61, and one just above it, are below 2^64.
_ADDED = 6


# With v = (x_i, y_i) of left and w = (y_{i+1}, x_{i+1}) of right, and q(a, b) = a b, which is bent and its own dual:
# the sum over the four k in {0, 1}^2 of (-1)^(k v) (-1)^q(k + w) is 2 (-1)^(v w + q(v)). The last bits of left and
# right change signs of all four, and q(v) = x_i y_i is what party i sends besides.


def _left(x: Bits, y: Bits, last: Bits) -> Iterator[Bits]:
    """k v for k = (0, 0), (1, 0), (0, 1), (1, 1)."""
    yield last
    yield last ^ x
    yield last ^ y
    yield last ^ x ^ y


def _right(x: Bits, y: Bits, last: Bits) -> Iterator[Bits]:
    """q(k + w) for the same k."""
    yield last ^ (x & y)
    yield last ^ (x & ~y)
    yield last ^ (~x & y)
    yield last ^ (~x & ~y)


LEFT_SIGNS: Signs = _left
RIGHT_SIGNS: Signs = _right


def drawn_digits(stream: Keystream, field: Field, count: int) -> Integers:
    """The stream's next ``count`` factors of three uniform digits (count,): 2^45 of them, all different in F61."""
    words, factors = stream.read(8 * count).view(np.uint64), np.zeros(count, object)
    for place in range(0, DIGITS * APART, APART):
        digits = words >> np.uint64(place) & np.uint64((1 << DIGIT_BITS) - 1)
        factors += digits.astype(object) << place
    return factors


def ones_tables(factors: Integers) -> Words:
    """For each byte of a column and each of its values the sum of the factors where it has ones: (bytes, 256)."""
    return np.stack([_subsets(group) for group in factors.reshape(-1, 8)]).astype(np.uint64)


def column_ones(bits: Planes, signs: Signs, tables: Words) -> Words:
    """The sums of the factors where a sign is minus: (4, columns), whose three digits of 21 bits have no carries."""
    count = len(tables)
    found = np.empty((PRODUCTS, bits[0].size * _WORD_BYTES // count), np.uint64)
    read = np.empty_like(found[0])
    for row, ones in zip(found, signs(*bits), strict=True):
        octets = ones.view(np.uint8).reshape(-1, count)
        for number, table in enumerate(tables):
            # A byte is always in its table: "clip" only spares NumPy the check.
            np.take(table, octets[:, number], out=read if number else row, mode="clip")
            if number:
                row += read
    return found


class DigitProducts:
    """Inner products of left's rows and right's, as columns come, of numbers of three digits of 21 bits. Secret."""

    def __init__(self, rows: int) -> None:
        self._columns = 0
        self._products = np.zeros((DIGITS, rows, DIGITS, rows), object)
        self._sums = [np.zeros((DIGITS, rows), object) for _ in range(2)]

    def __repr__(self) -> str:
        return f"DigitProducts({self._columns} columns)"

    def add(self, left: Words, right: Words) -> None:
        """More columns: (rows, columns) of both, 2^20 at most."""
        shape = self._products.shape
        products, sums = np.zeros(shape, np.int64), np.zeros((2, *shape[:2]), np.int64)
        for start in range(0, left.shape[1], _MULTIPLIED):
            digits = [_digits(rows[:, start : start + _MULTIPLIED]) for rows in (left, right)]
            products += (digits[0] @ digits[1].T).astype(np.int64).reshape(shape)
            sums += [part.sum(axis=1).astype(np.int64).reshape(shape[:2]) for part in digits]
        self._columns += left.shape[1]
        self._products += products
        for total, some in zip(self._sums, sums, strict=True):
            total += some

    def of_differences(self, left: int, right: int) -> Integers:
        """The inner products of ``left`` less twice each number with ``right`` less twice each: (rows, rows)."""
        places = [1 << digit * APART for digit in range(DIGITS)]
        values = [np.tensordot(places, part, 1) for part in self._sums]
        products = np.tensordot(places, np.tensordot(self._products, places, (2, 0)), 1)
        crossed = right * values[0][:, None] + left * values[1]
        found: Integers = 4 * products - 2 * crossed + self._columns * left * right
        return found


def _digits(rows: Words) -> NDArray[np.float64]:
    """The digits of numbers (rows, columns), those of a digit below those of the one before: (3 rows, columns)."""
    digits = np.empty((DIGITS, *rows.shape))
    for place, part in enumerate(digits):
        found = rows >> np.uint64(place * APART)
        found &= np.uint64((1 << APART) - 1)
        part[...] = found.view(np.int64)
    return digits.reshape(-1, rows.shape[1])


def sign_tables(signs: Signs, factors: Integers, weights: Integers) -> Words:
    """For each index all signs of its gates, times the gates' factors and the four weights of the kinds of signs.

    Returns (lanes, nibbles, indices), below 2^61.
    """
    p, kinds, tables = F61.modulus, _nibbles(signs), []
    for group in factors.reshape(-1, _GATES):
        # A sign is 1 less twice its bit.
        values = (group.sum() - 2 * _subsets(group)) % p
        terms = [
            (values * int(w) % p).astype(np.uint64)[bits]
            for w, bits in zip(weights, kinds, strict=True)
        ]
        tables.append(reduced(reduced(terms[0] + terms[1] + terms[2] + terms[3])))
    return np.stack(tables).reshape(-1, _NIBBLES, kinds[0].size)


def add_signs(found: Words, bits: Planes, tables: Words) -> None:
    """Add to numbers (columns,) below 2^61 + 8 the sums of each column's signs, of ``sign_tables``, modulo p."""
    for number, entries in enumerate(_entries(bits, tables), start=1):
        found += entries
        if number % _ADDED == 0:
            found[...] = reduced(found)
    found[...] = reduced(found)


def _entries(bits: Planes, tables: Words) -> Iterator[Words]:
    """For each lane and each four gates of it what every column's index has in their table; gone with the next one."""
    lanes = len(tables)
    x, y, last = (plane.view(np.uint16).reshape(-1, lanes) for plane in bits)
    read = np.empty(len(x), np.uint64)
    for nibble in range(_NIBBLES):
        index = last >> np.uint16(_GATES * nibble) & _NIBBLE
        for place, plane in enumerate((x, y), start=1):
            up = _GATES * (place - nibble)
            moved = plane << np.uint16(up) if up >= 0 else plane >> np.uint16(-up)
            moved &= _NIBBLE << np.uint16(_GATES * place)
            index |= moved
        for lane in range(lanes):
            np.take(tables[lane, nibble], index[:, lane], out=read, mode="clip")
            yield read


def _nibbles(signs: Signs) -> list[NDArray[np.intp]]:
    """For each index the bits of its four gates' signs, one array for each of the four kinds."""
    index = np.arange(1 << 3 * _GATES, dtype=np.uint16)
    last, x, y = (index >> np.uint16(_GATES * place) & _NIBBLE for place in range(3))
    return [(bits & _NIBBLE).astype(np.intp) for bits in signs(x, y, last)]


def _subsets(numbers: Integers) -> Integers:
    """The sums of all subsets: (2^n,)."""
    sums = np.zeros(1, object)
    for number in numbers:
        sums = np.concatenate((sums, sums + number))
    return sums


def reduced(x: Words) -> Words:
    """The same modulo p, below 2^61 + 8."""
    return (x & _P) + (x >> np.uint64(F61.exponent))
