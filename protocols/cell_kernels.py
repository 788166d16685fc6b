"""Compiled loops over cells, on which an absolute error spends its time beside messages (``derived``).

Each word is read once where NumPy passes over memory again and makes arrays in between. Importing this module compiles
the loops that are not in Numba's cache: see ``cells``. Cells are elements of Z_2^32; bit i of word w of a plane is of
cell 64 w + i. Secret: all arrays; no branch and no address depends on their values.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.compiling import compiled  # isort: skip

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

Cells = NDArray[np.uint32]
Words = NDArray[np.uint64]

_WORD, _OCTET = 64, 8
# Words of a plane that are one line of the processor's cache.
_LINE = 8


def _read(of: Any, axes: int) -> Any:
    """Returns the type of a read-only array, which read-only and writeable arrays both fit."""
    return types.Array(of, axes, "C", readonly=True)


_CELLS, _TABLE = _read(types.uint32, 1), _read(types.uint32, 2)
_WORDS, _PLANES = _read(types.uint64, 1), _read(types.uint64, 2)
_TO_CELLS, _TO_TABLE, _TO_PLANES = types.uint32[::1], types.uint32[:, ::1], types.uint64[:, ::1]


@intrinsic  # type: ignore[untyped-decorator]
def _bits_of(typing: Any, octets: Any, start: Any, bit: Any) -> Any:
    """Returns bit ``bit`` of the 64 octets from ``start`` on, as a word: one comparison of vectors."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, number = arguments
        octet, vector = ir.IntType(_OCTET), ir.VectorType(ir.IntType(_OCTET), _WORD)
        data = context.make_array(signature.args[0])(context, builder, array).data
        place = builder.bitcast(builder.gep(data, [at]), vector.as_pointer())
        mask = builder.shl(ir.Constant(octet, 1), builder.trunc(number, octet))
        anything, lanes = ir.Constant(vector, ir.Undefined), ir.VectorType(ir.IntType(32), _WORD)
        first = builder.insert_element(anything, mask, ir.Constant(ir.IntType(32), 0))
        masks = builder.shuffle_vector(first, anything, ir.Constant(lanes, None))
        ones = builder.and_(builder.load(place, align=1), masks)
        is_set = builder.icmp_unsigned("!=", ones, ir.Constant(vector, None))
        return builder.bitcast(is_set, ir.IntType(_WORD))

    return types.uint64(octets, types.int64, types.int64), generate


@compiled(types.void(_CELLS, types.int64, _TO_PLANES))
def slice_planes(x: Cells, low: int, planes: Words) -> None:
    """Writes bits ``low``... of x (n,) into planes (bits, words), whose words have zeros beyond the last cell."""
    bits = low + len(planes)
    octets = np.zeros(_LINE * _WORD, np.uint8)
    for start in range(0, x.size, octets.size):
        part, first = x[start : start + octets.size], start // _WORD
        octets[part.size :] = 0
        words = min(_LINE, planes.shape[1] - first)
        for shift in range(low // _OCTET * _OCTET, bits, _OCTET):
            for i in range(part.size):
                octets[i] = np.uint8(part[i] >> np.uint32(shift))
            for bit in range(max(shift, low), min(shift + _OCTET, bits)):
                for word in range(words):
                    planes[bit - low, first + word] = _bits_of(octets, _WORD * word, bit - shift)


@compiled(types.void(_CELLS, types.uint32, _CELLS, _TO_CELLS))
def scale_less(x: Cells, factor: np.uint32, less: Cells, found: Cells) -> None:
    """Writes factor x - less into ``found`` (n,); ``less`` (n,), or (0,) for nothing."""
    if less.size == 0:
        for i in range(found.size):
            found[i] = factor * x[i]
    else:
        for i in range(found.size):
            found[i] = factor * x[i] - less[i]


@compiled(types.void(_PLANES, _PLANES, types.boolean, types.int64, _TO_PLANES, _TO_PLANES))
def leaf_terms(
    a: Words, b: Words, mine: bool, start: int, generated: Words, propagated: Words
) -> None:
    """Writes the generate bits of groups of three planes, and the propagate bits from group ``start`` on.

    The arguments are a's products (7 groups, words), group by group for each subset, and b's planes (3 groups, words).
    The equations are those of ``derived.carry_leaves``.
    """
    groups, ones = len(generated), ~np.uint64(0) if mine else np.uint64(0)
    for g in range(groups):
        b_0, b_1, b_2 = b[3 * g], b[3 * g + 1], b[3 * g + 2]
        a_1, a_2, a_3, a_4 = a[g], a[groups + g], a[2 * groups + g], a[3 * groups + g]
        a_5, a_6, a_7 = a[4 * groups + g], a[5 * groups + g], a[6 * groups + g]
        found = generated[g]
        for w in range(found.size):
            x, y, z = b_0[w], b_1[w], b_2[w]
            # ``derived._generated`` for three planes, by Horner's rule: a_s with subset s of a's planes meets b's
            # subset 8 - s.
            low = (a_7[w] & x) ^ (y & (a_6[w] ^ (a_5[w] & x)))
            found[w] = low ^ (z & (a_4[w] ^ (a_3[w] & x) ^ (y & (a_2[w] ^ (a_1[w] & x)))))
        if g >= start:
            found = propagated[g - start]
            for w in range(found.size):
                x, y, z = b_0[w], b_1[w], b_2[w]
                # ``derived._propagated`` for three planes: a_s meets b's subset 7 - s; ``ones`` is a's empty product.
                low = a_7[w] ^ (a_6[w] & x) ^ (y & (a_5[w] ^ (a_4[w] & x)))
                found[w] = low ^ (z & (a_3[w] ^ (a_2[w] & x) ^ (y & (a_1[w] ^ (ones & x)))))


@compiled(types.void(_WORDS, types.int64, _TO_CELLS))
def _negative(plane: Words, word: int, found: Cells) -> None:
    """Writes 2^32 - 1 for each set bit of a word, else 0: this mask turns x into -x, as (x ^ mask) - mask."""
    bits = plane[word]
    for i in range(_WORD):
        found[i] = np.uint32(0) - np.uint32((bits >> np.uint64(i)) & np.uint64(1))


@compiled(types.void(_WORDS, _CELLS, _TO_TABLE))
def sign_pairs(plane: Words, x: Cells, found: Cells) -> None:
    """Writes s x and s into ``found`` (2, n), of the signs s = 1 - 2 v of bits v (words,)."""
    negative = np.empty(_WORD, np.uint32)
    for word in range(plane.size):
        _negative(plane, word, negative)
        start = _WORD * word
        for i in range(min(_WORD, x.size - start)):
            found[0, start + i] = (x[start + i] ^ negative[i]) - negative[i]
            found[1, start + i] = negative[i] | np.uint32(1)


@compiled(types.void(_WORDS, _CELLS, _TABLE, _TO_CELLS))
def sign_terms(plane: Words, x: Cells, held: Cells, found: Cells) -> None:
    """Writes s (h + t x) into ``found`` (n,), of the signs s of bits (words,), and of h and t, ``held`` (2, n)."""
    negative = np.empty(_WORD, np.uint32)
    for word in range(plane.size):
        _negative(plane, word, negative)
        start = _WORD * word
        for i in range(min(_WORD, x.size - start)):
            term = held[0, start + i] + held[1, start + i] * x[start + i]
            found[start + i] = (term ^ negative[i]) - negative[i]
