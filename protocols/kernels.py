"""Compiled loops of proofs: each word is read once where NumPy passes over memory again.

Importing this module loads Numba's compiler, and compiles the loops that are not in its cache yet: so modules import it
only when they make a proof. Gates are (3, words): x, y, and left's or right's further bits (``verify_bits``).
Their arithmetic is modulo p = 2^61 - 1, in words, with products of 128 bits. Constants are here and not imported, since
Numba's cache goes by this file. Secret: all operands. Public: tables and weights. Known limit: look-ups are at secret
places, as NumPy's were. Source: README section 7; for the transposition Warren, Hacker's Delight, section 7-3.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

# First, since its error is clear where a compiler may not run.
from protocols.compiling import compiled  # isort: skip

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

Words = NDArray[np.uint64]

KINDS = QUARTERS = 4

_WORD, _BYTE = 64, 8
_EXPONENT = np.uint64(61)
_P = np.uint64((1 << 61) - 1)
# So many products of numbers below 2^61 + 8 are far below 2^128.
_COLUMNS = 32
# Numbers of a block at a time, such that those of all blocks stay in the cache.
_CACHED = 1 << 9
# Received numbers may only be read.
_READ_LINE = types.Array(types.uint64, 1, "A", readonly=True)
_MODULUS = types.UniTuple(types.int64, 2)
_READ = types.Array(types.uint64, 2, "C", readonly=True)


@intrinsic  # type: ignore[untyped-decorator]
def _multiply_add(typing: Any, low: Any, high: Any, x: Any, y: Any) -> Any:
    """Returns low + 2^64 high + x y modulo 2^128, in two words."""
    word, pair = types.uint64, types.UniTuple(types.uint64, 2)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide, shift = ir.IntType(128), ir.Constant(ir.IntType(128), 64)
        low, high, x, y = (builder.zext(value, wide) for value in arguments)
        total = builder.add(builder.or_(low, builder.shl(high, shift)), builder.mul(x, y))
        words = total, builder.lshr(total, shift)
        parts = [builder.trunc(part, ir.IntType(64)) for part in words]
        return context.make_tuple(builder, pair, parts)

    return pair(word, word, word, word), generate


@intrinsic  # type: ignore[untyped-decorator]
def _add_product(typing: Any, total: Any, factors: Any) -> Any:
    """Returns a total of three words, the lowest first, plus the product of two words, modulo 2^192."""
    three, two = types.UniTuple(types.uint64, 3), types.UniTuple(types.uint64, 2)

    def generate(context: Any, builder: Any, *of_call: Any) -> Any:
        _, arguments = of_call
        wide, pair = ir.IntType(192), ir.IntType(128)
        words = [builder.extract_value(arguments[0], place) for place in range(3)]
        whole = builder.zext(words[0], wide)
        for place, word in enumerate(words[1:], start=1):
            shift = ir.Constant(wide, _WORD * place)
            whole = builder.or_(whole, builder.shl(builder.zext(word, wide), shift))
        x, y = (builder.zext(builder.extract_value(arguments[1], i), pair) for i in range(2))
        whole = builder.add(whole, builder.zext(builder.mul(x, y), wide))
        parts = [builder.lshr(whole, ir.Constant(wide, _WORD * place)) for place in range(3)]
        return context.make_tuple(
            builder, three, [builder.trunc(part, ir.IntType(64)) for part in parts]
        )

    return three(three, two), generate


@intrinsic  # type: ignore[untyped-decorator]
def _ones(typing: Any, x: Any) -> Any:
    """Returns the number of set bits of a word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@compiled("uint64(uint64, uint64)")
def _reduced(low: np.uint64, high: np.uint64) -> np.uint64:
    """Returns low + 2^64 high modulo p, below p."""
    # 2^61 = 1 modulo p: bits 0 to 60, 61 to 121, and 122 to 127 are added up.
    middle = (low >> _EXPONENT) | (high << np.uint64(64 - 61))
    found = (low & _P) + (middle & _P) + (high >> np.uint64(2 * 61 - 64))
    found = (found & _P) + (found >> _EXPONENT)
    return found - _P if found >= _P else found


@compiled("void(uint64[::1])")
def _transpose(rows: Words) -> None:
    """Transposes the 64 x 64 bit matrix of 64 words in place: bit j of row i comes to bit i of row j."""
    half, mask = _WORD // 2, np.uint64(0xFFFFFFFF)
    while half:
        shift = np.uint64(half)
        for start in range(0, _WORD, 2 * half):
            for i in range(start, start + half):
                # The upper row's high bits change places with the lower one's low bits.
                swap = ((rows[i] >> shift) ^ rows[i + half]) & mask
                rows[i + half] ^= swap
                rows[i] ^= swap << shift
        half //= 2
        mask ^= mask << np.uint64(half)


@compiled("int64[:, ::1](uint64[:, ::1], uint64[:, ::1], int64)")
def count_minus(left: Words, right: Words, blocks: int) -> NDArray[np.int64]:
    """Counts the minuses of each block of left's gates with each block of right's: (blocks, blocks).

    A minus is an odd terms + x y of left + masks of right + x of left y of right + y of left x of right. Bit i of a
    word is of block i modulo ``blocks``.
    """
    found = np.zeros((blocks, blocks), np.int64)
    planes = np.zeros((6, _WORD), np.uint64)
    for start in range(0, left.shape[1], _WORD):
        count = min(_WORD, left.shape[1] - start)
        planes[:, count:] = 0
        for i in range(count):
            x, y = left[0, start + i], left[1, start + i]
            planes[0, i], planes[1, i], planes[2, i] = x, y, left[2, start + i] ^ (x & y)
            for row in range(3):
                planes[3 + row, i] = right[row, start + i]
        for number in range(6):
            _transpose(planes[number])
        for i in range(_WORD):
            x, y, constant = planes[0, i], planes[1, i], planes[2, i]
            # Of few gates several columns lie in a word, each with all blocks.
            first = i // blocks * blocks
            for b in range(blocks):
                j = first + b
                # (-1)^sign is half the sum of the four products of signs; on the diagonal, sign is a gate's error e
                # (README section 7, ANDs).
                sign = (x & planes[4, j]) ^ (y & planes[3, j]) ^ planes[5, j] ^ constant
                found[i - first, b] += np.int64(_ones(sign))
    return found


@compiled("void(uint64[:, ::1], boolean, int64, int64, uint64[:, ::1], uint64[:, ::1])")
def _column_sums(
    gates: Words, of_left: bool, start: int, count: int, tables: Words, found: Words
) -> None:
    """Sums all four kinds of signs of the columns of ``count`` words, each times its block's factor: (4, columns).

    Sums are below 2^61 + 8.
    """
    octets = len(tables)
    # Kind k of left is h + k v, that of right g + q(k + w), with h and g the last bits (``sign_tables``). So right's
    # kinds are those of left with x y more, and for k = (1, 1) with 1 more.
    right = np.uint64(0) if of_left else ~np.uint64(0)
    for i in range(count):
        x, y = gates[0, start + i], gates[1, start + i]
        ones = gates[2, start + i] ^ (x & y & right)
        ones_x, ones_y = ones ^ x, ones ^ y
        ones_xy = ones_x ^ y ^ right
        for column in range(i * (_BYTE // octets), (i + 1) * (_BYTE // octets)):
            total = total_x = total_y = total_xy = np.uint64(0)
            for number in range(octets):
                table = tables[number]
                total += table[ones & np.uint64(255)]
                total_x += table[ones_x & np.uint64(255)]
                total_y += table[ones_y & np.uint64(255)]
                total_xy += table[ones_xy & np.uint64(255)]
                ones >>= np.uint64(_BYTE)
                ones_x >>= np.uint64(_BYTE)
                ones_y >>= np.uint64(_BYTE)
                ones_xy >>= np.uint64(_BYTE)
            found[0, column] = (total & _P) + (total >> _EXPONENT)
            found[1, column] = (total_x & _P) + (total_x >> _EXPONENT)
            found[2, column] = (total_y & _P) + (total_y >> _EXPONENT)
            found[3, column] = (total_xy & _P) + (total_xy >> _EXPONENT)


@compiled("uint64[:, ::1](uint64[:, ::1], uint64[:, ::1], uint64[:, ::1], uint64[:, ::1])")
def sum_products(left: Words, right: Words, left_tables: Words, right_tables: Words) -> Words:
    """Sums the products modulo p of left's columns with right's, by quarter and kind of sign: (16, 16).

    ``left_tables`` and ``right_tables`` are of ``sign_tables``: (bytes of a column, 256).
    """
    rows, quarter = QUARTERS * KINDS, left.shape[1] // QUARTERS
    of_left = np.empty((QUARTERS, KINDS, _COLUMNS), np.uint64)
    of_right = np.empty_like(of_left)
    left_rows, right_rows = of_left.reshape(rows, _COLUMNS), of_right.reshape(rows, _COLUMNS)
    found = np.zeros((rows, rows), np.uint64)
    lanes = _BYTE // len(left_tables)
    for start in range(0, quarter, _COLUMNS // lanes):
        words = min(_COLUMNS // lanes, quarter - start)
        for number in range(QUARTERS):
            first = number * quarter + start
            _column_sums(left, True, first, words, left_tables, of_left[number])
            _column_sums(right, False, first, words, right_tables, of_right[number])
        for i in range(rows):
            for j in range(rows):
                low, high = found[i, j], np.uint64(0)
                for column in range(words * lanes):
                    low, high = _multiply_add(
                        low, high, left_rows[i, column], right_rows[j, column]
                    )
                found[i, j] = _reduced(low, high)
    return found


@compiled("uint64[::1](uint64[:, ::1], boolean, uint64[:, ::1], uint64[::1])")
def fold_sums(gates: Words, of_left: bool, tables: Words, weights: Words) -> Words:
    """Adds up the columns of four quarters and kinds, each times its weight, modulo p: (columns / 4,)."""
    quarter, lanes = gates.shape[1] // QUARTERS, _BYTE // len(tables)
    found = np.empty(quarter * lanes, np.uint64)
    columns = np.empty((QUARTERS, KINDS, _COLUMNS), np.uint64)
    rows = columns.reshape(QUARTERS * KINDS, _COLUMNS)
    for start in range(0, quarter, _COLUMNS // lanes):
        words = min(_COLUMNS // lanes, quarter - start)
        for number in range(QUARTERS):
            _column_sums(gates, of_left, number * quarter + start, words, tables, columns[number])
        for column in range(words * lanes):
            low = high = np.uint64(0)
            for row in range(QUARTERS * KINDS):
                low, high = _multiply_add(low, high, rows[row, column], weights[row])
            found[start * lanes + column] = _reduced(low, high)
    return found


@compiled(types.void(types.uint64[::1], types.int64, _READ_LINE, _READ_LINE))
def _add_products(total: Words, at: int, x: Words, y: Words) -> None:
    """Adds the inner product of words x and y, times 2^(64 ``at``), to the words of ``total``."""
    words = np.uint64(0), np.uint64(0), np.uint64(0)
    for i in range(x.size):
        words = _add_product(words, (x[i], y[i]))
    for word in words:
        total[at] += word
        carry, place = total[at] < word, at + 1
        while carry:
            total[place] += np.uint64(1)
            carry, place = total[place] == 0, place + 1
        at += 1


@compiled(types.void(types.uint64[::1], _MODULUS, types.uint64[::1]))
def _residue(total: Words, modulus: tuple[int, int], found: Words) -> None:
    """Reduces ``total`` modulo 2^exponent - offset into ``found``, which has that modulus' words; below 2^exponent."""
    exponent, offset = modulus[0], np.uint64(modulus[1])
    top, shift, size = exponent // _WORD, np.uint64(exponent % _WORD), total.size
    rest, mask = np.uint64(_WORD) - shift, (np.uint64(1) << shift) - np.uint64(1)
    while True:
        while size > top + 1 and not total[size - 1]:
            size -= 1
        if size == top + 1 and not total[top] >> shift:
            break
        # The bits above 2^exponent are added at the bottom times the offset: 2^exponent is the offset.
        low = high = np.uint64(0)
        for place in range(size):
            above = top + place
            bits = total[above] >> shift if above < size else np.uint64(0)
            if above + 1 < size:
                bits |= total[above + 1] << rest
            if place <= top:
                own = total[place] & mask if place == top else total[place]
                low, high = _multiply_add(low, high, own, np.uint64(1))
            low, high = _multiply_add(low, high, bits, offset)
            total[place] = low
            low, high = high, np.uint64(0)
    found[:] = total[: found.size]


@compiled("uint64[:, :, ::1](uint64[:, ::1], uint64[:, ::1], int64)")
def multiply_blocks(left: Words, right: Words, blocks: int) -> Words:
    """Returns all inner products of left's blocks with right's, exact: (left's blocks, blocks, words).

    Shapes: numbers (g n, words) and (n, words'), n a multiple of ``blocks``.
    """
    columns, size, other = len(right) // blocks, left.shape[1], right.shape[1]
    rows = len(left) // columns
    found = np.zeros((rows, blocks, size + other + 1), np.uint64)
    for start in range(0, columns, _CACHED):
        stop = min(start + _CACHED, columns)
        for row in range(rows):
            x = left[row * columns + start : row * columns + stop]
            for block in range(blocks):
                y = right[block * columns + start : block * columns + stop]
                for i in range(size):
                    for j in range(other):
                        _add_products(found[row, block], i + j, x[:, i], y[:, j])
    return found


@compiled(types.uint64[:, ::1](types.uint64[:, ::1], types.uint64[:, ::1], _MODULUS))
def fold_blocks(factors: Words, vector: Words, modulus: tuple[int, int]) -> Words:
    """Sums a vector's blocks, each times its factor, modulo 2^exponent - offset: (n / blocks, words).

    Shapes: numbers (blocks, words') and (n, words''); ``modulus`` is exponent and offset.
    """
    blocks, size = factors.shape
    other, columns = vector.shape[1], len(vector) // blocks
    words = modulus[0] // _WORD + 1
    found = np.empty((columns, words), np.uint64)
    total = np.zeros(max(size + other + 1, words), np.uint64)
    numbers = vector[: blocks * columns].reshape(blocks, columns, other)
    for column in range(columns):
        # All products that begin at one word are summed, then what is above it goes to the next word.
        sums = np.uint64(0), np.uint64(0), np.uint64(0)
        for place in range(size + other - 1):
            for i in range(max(0, place - other + 1), min(size, place + 1)):
                for block in range(blocks):
                    pair = factors[block, i], numbers[block, column, place - i]
                    sums = _add_product(sums, pair)
            total[place] = sums[0]
            sums = sums[1], sums[2], np.uint64(0)
        total[size + other - 1], total[size + other] = sums[0], sums[1]
        total[size + other + 1 :] = 0
        _residue(total, modulus, found[column])
    return found


@compiled(types.void(types.uint64[:, ::1], _READ, types.boolean))
def add_numbers(total: Words, x: Words, minus: bool) -> None:
    """Adds numbers to ``total``, or subtracts them, modulo 2^(64 words): (words, n) and (words' <= words, n)."""
    # -x is the complement of x, and 1.
    flip = ~np.uint64(0) if minus else np.uint64(0)
    for number in range(total.shape[1]):
        carry = np.uint64(minus)
        for place in range(len(total)):
            word = (x[place, number] if place < len(x) else np.uint64(0)) ^ flip
            word, own = word + carry, total[place, number]
            # Where adding the carry wraps, the word is 0 and adding it does not.
            carry = np.uint64(word < carry) | np.uint64(own + word < own)
            total[place, number] = own + word


@compiled(types.uint64[:, ::1](_READ, _READ, types.int64))
def multiply_numbers(x: Words, y: Words, words: int) -> Words:
    """Multiplies numbers modulo 2^(64 words): (a, n) and (b, n), each also of one number for all; (words, n)."""
    count = x.shape[1] if y.shape[1] == 1 else y.shape[1]
    x_step, y_step = np.int64(x.shape[1] == count), np.int64(y.shape[1] == count)
    found = np.empty((words, count), np.uint64)
    if words == 2 and len(y) == 1:
        # The same without inner loops, in a fifth of the time.
        for number in range(count):
            factor = y[0, number * y_step]
            low, high = _multiply_add(np.uint64(0), np.uint64(0), x[0, number * x_step], factor)
            if len(x) > 1:
                high += x[1, number * x_step] * factor
            found[0, number], found[1, number] = low, high
        return found
    for number in range(count):
        sums = np.uint64(0), np.uint64(0), np.uint64(0)
        for place in range(words):
            for i in range(max(0, place - len(y) + 1), min(len(x), place + 1)):
                factors = x[i, number * x_step], y[place - i, number * y_step]
                sums = _add_product(sums, factors)
            found[place, number] = sums[0]
            sums = sums[1], sums[2], np.uint64(0)
    return found


@compiled(types.uint64[::1](_READ, _READ))
def sum_numbers(x: Words, y: Words) -> Words:
    """Sums the products of numbers (a, n) and (b, n), exact: (a + b + 1,)."""
    found = np.zeros(len(x) + len(y) + 1, np.uint64)
    for i in range(len(x)):
        for j in range(len(y)):
            _add_products(found, i + j, x[i], y[j])
    return found
