"""Rows as words: bit-sliced planes, turned so that a row's bits lie together and rows can be moved.

``to_words`` and ``to_planes_of`` are both local and inverse to one another: planes (bits, words_for(n)) with 64 rows to
a word become (n, words_for(bits)) with 64 bits of one row to a word, bit i at 2^(i % 64) of word i // 64. Bits beyond
the last are zeros in the sharing; a shuffle may leave any components there. Secret: components.
"""

import numpy as np
from numpy.typing import NDArray

from protocols.bitslice import from_planes, to_planes, words_for
from protocols.ring import R64
from protocols.shares import Share

WORD = 64


def to_words(planes_bsh: Share, rows: int) -> Share:
    """Returns planes (bits, words_for(rows)) as rows (rows, words_for(bits)). Local."""
    own, next_ = (_rows(part, rows) for part in (planes_bsh.own, planes_bsh.next))
    return Share(planes_bsh.ring, planes_bsh.pid, own, next_)


def to_planes_of(rows_bsh: Share, bits: int) -> Share:
    """Returns the first ``bits`` bits of rows (rows, words) as planes (bits, words_for(rows)), zeros beyond. Local."""
    own, next_ = (_planes(part, bits) for part in (rows_bsh.own, rows_bsh.next))
    return Share(rows_bsh.ring, rows_bsh.pid, own, next_)


def shifted(planes_bsh: Share, by: int) -> Share:
    """Shifts planes: row i gets that of row i - by, or i + |by| where ``by`` is negative; zeros come in. Local."""
    own, next_ = (_shifted(part, by) for part in (planes_bsh.own, planes_bsh.next))
    return Share(planes_bsh.ring, planes_bsh.pid, own, next_)


def _rows(planes: NDArray[np.uint64], rows: int) -> NDArray[np.uint64]:
    found = np.empty((rows, words_for(planes.shape[0])), np.uint64)
    for word in range(found.shape[1]):
        found[:, word] = from_planes(planes[WORD * word : WORD * (word + 1)], rows)
    return found


def _planes(rows: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    found = np.empty((bits, words_for(rows.shape[0])), np.uint64)
    for word in range(words_for(bits)):
        here = found[WORD * word : WORD * (word + 1)]
        here[:] = to_planes(R64, rows[:, word], here.shape[0])
    return found


def _shifted(planes: NDArray[np.uint64], by: int) -> NDArray[np.uint64]:
    words, bits = divmod(abs(by), WORD)
    moved = np.zeros_like(planes)
    count = planes.shape[-1] - words
    if count <= 0:
        return moved
    low, high = np.uint64(bits), np.uint64(WORD - bits)
    if by >= 0:
        moved[..., words:] = planes[..., :count] << low
        if bits:
            moved[..., words + 1 :] |= planes[..., : count - 1] >> high
    else:
        moved[..., :count] = planes[..., words:] >> low
        if bits:
            moved[..., : count - 1] |= planes[..., words + 1 :] << high
    return moved
