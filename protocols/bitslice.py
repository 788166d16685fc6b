"""Bit-slicing: cells to planes of 64 cells a word, and back. Local and value-independent; works on components alike.

Bit i of word w of a plane belongs to cell 64 w + i. Cells beyond the last are zero. Source for the 8 x 8 bit
transposition: Warren, Hacker's Delight, section 7-3.
"""

import numpy as np
from numpy.typing import NDArray

from protocols import cells as many_cells
from protocols.ring import R32, Ring, RingArray

_SWAPS = ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0))


def words_for(cells: int) -> int:
    """Returns the number of 64-bit words in a plane of ``cells`` cells."""
    return -(-cells // 64)


def transpose_8x8(x: NDArray[np.uint64]) -> None:
    """Transposes the 8 x 8 bit matrix in each word, in place."""
    for shift, mask in _SWAPS:
        swap = x >> np.uint64(shift)
        swap ^= x
        swap &= np.uint64(mask)
        x ^= swap
        swap <<= np.uint64(shift)
        x ^= swap


def to_planes(ring: Ring, cells: RingArray, bits: int, low: int = 0) -> NDArray[np.uint64]:
    """Returns bits ``low``, ..., ``bits`` - 1 of ``cells`` (n,) as planes (bits - low, words_for(n))."""
    count = cells.size
    words = words_for(count)
    planes = np.zeros((bits - low, words), dtype=np.uint64)
    if not ring.wide and (compiled := many_cells.kernels()) is not None:
        for start in range(low // 32 * 32, bits, 32):
            part = cells if ring is R32 else (cells >> ring.dtype.type(start)).astype(np.uint32)
            found = planes[max(start - low, 0) : start + 32 - low]
            compiled.slice_planes(np.ascontiguousarray(part), max(low - start, 0), found)
        return planes
    shape = count, ring.itemsize // 8
    words_of = ring.to_wire(cells).view("<u8").reshape(shape).T if ring.wide else [cells]
    filled = planes.view(np.uint8)[:, : -(-count // 8)]
    column = np.empty(count, np.uint8)
    # packbits takes any non-zero octet for a one, so that a bit of an octet need not be moved to its lowest place.
    for octet in range(low // 8, -(-bits // 8)):
        # A cast to octets is several times as fast as strided access to an array of octets.
        word, shift = words_of[octet // 8], 8 * (octet % 8)
        if shift:
            np.right_shift(word, shift, out=column, casting="unsafe")
        else:
            np.copyto(column, word, casting="unsafe")
        for bit in range(max(8 * octet, low), min(8 * octet + 8, bits)):
            filled[bit - low] = np.packbits(column & np.uint8(1 << bit % 8), bitorder="little")
    return planes


def from_planes(planes: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
    """Returns planes (bits <= 64, words) as unsigned integers (count,)."""
    bits, words = planes.shape
    cells = np.zeros((words * 64, 8), dtype=np.uint8)
    # The way back: 8 planes give each 8 cells their octet, with rows of zeros where there are fewer than 8.
    for octet in range(-(-bits // 8)):
        rows = planes[8 * octet : 8 * octet + 8]
        square = np.zeros((words * 8, 8), dtype=np.uint8)
        square[:, : rows.shape[0]] = np.ascontiguousarray(rows).view(np.uint8).T
        column = square.reshape(-1).view(np.uint64)
        transpose_8x8(column)
        cells[:, octet] = column.view(np.uint8)
    return cells.reshape(-1).view(np.uint64)[:count]


def to_bits(plane: NDArray[np.uint64], count: int) -> NDArray[np.uint8]:
    """Returns planes (..., words) as zeros and ones (..., count)."""
    octets = np.ascontiguousarray(plane).view(np.uint8)
    return np.unpackbits(octets, axis=-1, count=count, bitorder="little")


def from_bits(bits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Returns zeros and ones (..., n) as planes (..., words_for(n))."""
    count = bits.shape[-1]
    packed = np.zeros((*bits.shape[:-1], words_for(count) * 8), dtype=np.uint8)
    packed[..., : -(-count // 8)] = np.packbits(bits, axis=-1, bitorder="little")
    return packed.view(np.uint64)
