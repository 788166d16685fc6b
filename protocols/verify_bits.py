"""Proofs that ANDs were computed as they should be: all that were recorded, 64 to a word, in one inner product.

Of z = x AND y, party i sends z_i = x_i y_i + x_i y_{i+1} + x_{i+1} y_i + r_i + r_{i+1} (XOR), with keystreams r. The
party before it (left) knows all with index i, the one after it (right) all with i + 1. A gate is right where the sign
of

    z_i + r_i + x_i y_i  +  r_{i+1}  +  x_i y_{i+1} + y_i x_{i+1}

is plus, and it is wrong where it is minus: so all m gates are right exactly where these signs add up to m, over the
integers. A sign of that form is half a sum of four products of a sign that left and one that right knows
(``sign_tables``). So what is to be proved is an inner product of length 4 m whose entries are +-1: ``inner_proof``
does, once the first two steps, on bits, have made it 1024 times shorter.

Secret: everything. Leaks: none. Source: README section 7; the four products are a bent function and its dual.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from protocols.bitslice import transpose_64x64
from protocols.context import Context
from protocols.inner_proof import (
    LEFT,
    PROVER,
    RIGHT,
    Conversation,
    blocks_of,
    fold_claim,
    prove_inner_products,
)
from protocols.mersenne import F61, Integers, Vector
from protocols.records import Record, Side, operands
from protocols.sign_tables import (
    LEFT_SIGNS,
    PRODUCTS,
    RIGHT_SIGNS,
    DigitProducts,
    Planes,
    Signs,
    add_signs,
    column_ones,
    drawn_digits,
    ones_tables,
    reduced,
    sign_tables,
)

Words = NDArray[np.uint64]

_WORD = 64
# Words of a block, and blocks, at a time, such that what is computed with stays in the cache.
_COUNTED, _ROWS = 256, 64
# Columns at a time, for which a table stays in the cache.
_FOLDED = 1 << 14
_SMALL_WORDS = 1 << 11
_FEW_WORDS = 1 << 17
BLOCKS = 16, 64
"""Of the first step: of few gates, and of many."""
_SECOND = blocks_of(F61)
_QUARTERS = _SECOND // PRODUCTS


def blocks_for(words: int) -> int:
    """Into how many blocks the first step cuts so many words of gates."""
    return BLOCKS[words > _SMALL_WORDS]


def columns_for(words: int) -> int:
    """Columns of so many words: of a vector's four parts each has an element a column after the first step."""
    # A quarter has whole words; and of many, squares of 64 are as many as there are.
    unit = _WORD if words > _SMALL_WORDS else _QUARTERS
    return max(1, -(-words // unit)) * unit * (_WORD // blocks_for(words))


def folded_terms(words: int) -> int:
    """Entries of the vectors after the second step, of so many words."""
    return columns_for(words) // _QUARTERS


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Component:
    """What the two holders of a component know of all gates: (words,). Secret.

    ``terms`` is z + r and what else was added; ``mask`` is r.
    """

    x: Words
    y: Words
    terms: Words
    mask: Words


class Gates:
    """The gates of the records, in their order, as this party holds them; padded with right ones, of zeros."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.words = sum(record.z_sh.size for record in records)
        self.blocks, self.columns = blocks_for(self.words), columns_for(self.words)
        self._components = {side: self._component(records, side) for side in Side}

    def __repr__(self) -> str:
        return f"Gates({self.words} words)"

    @property
    def count(self) -> int:
        """Gates, with those that pad."""
        return self.blocks * self.columns

    def _component(self, records: Sequence[Record], side: Side) -> _Component:
        flat = np.empty((4, self.count // _WORD), np.uint64)
        flat[:, self.words :] = 0
        start = 0
        for record in records:
            part = flat[:, start : start + record.z_sh.size]
            x, y, added = operands(record, side)
            part[0], part[1] = x.reshape(-1), y.reshape(-1)
            part[3] = side.of(record.masks_sh).reshape(-1)
            np.bitwise_xor(side.of(record.z_sh).reshape(-1), part[3], out=part[2])
            if added is not None:
                part[2] ^= added.reshape(-1)
            start += record.z_sh.size
        return _Component(*flat)

    def gram(self) -> Integers:
        """The prover's inner products of left's blocks, of its own component, and right's, of the next: exact."""
        left, right = self._components[Side.OWN], self._components[Side.NEXT]
        constant = left.terms ^ left.x & left.y
        whole = (left.x, left.y, constant, right.x, right.y, right.mask)
        # By how many blocks right's is further on, and left's block.
        minus = np.zeros((self.blocks, self.blocks), np.int64)
        for planes in zip(*(_planes(words, self.blocks) for words in whole), strict=True):
            minus += _minus(planes[:3], planes[3:])
        blocks = np.arange(self.blocks)
        gram = np.empty((self.blocks, self.blocks), object)
        gram[blocks, (blocks[:, None] + blocks) % self.blocks] = 2 * (self.columns - 2 * minus)
        return gram

    def second_gram(self, alpha: Integers, beta: Integers) -> Integers:
        """The prover's inner products of the second step: of the columns in quarters, each kind of signs, (16, 16).

        alpha and beta (blocks,) are the first step's factors, of digits.
        """
        ones_of_left = partial(self._ones, self._left(Side.OWN), LEFT_SIGNS, ones_tables(alpha))
        ones_of_right = partial(self._ones, self._right(Side.NEXT), RIGHT_SIGNS, ones_tables(beta))
        products = DigitProducts(_SECOND)
        for start in range(0, self._quarter, _FOLDED):
            stop = min(start + _FOLDED, self._quarter)
            products.add(ones_of_left(start, stop), ones_of_right(start, stop))
        # A sign is 1 less twice its bit.
        return products.of_differences(int(alpha.sum()), int(beta.sum()))

    def _ones(self, planes: Planes, signs: Signs, tables: Words, start: int, stop: int) -> Words:
        """Of some columns of each quarter ``sign_tables.column_ones``: (quarters x kinds, columns)."""
        parts = (self._cut(planes, quarter, start, stop) for quarter in range(_QUARTERS))
        return np.concatenate([column_ones(part, signs, tables) for part in parts])

    def _left(self, side: Side) -> Planes:
        part = self._components[side]
        return part.x, part.y, part.terms

    def _right(self, side: Side) -> Planes:
        part = self._components[side]
        return part.x, part.y, part.mask

    @property
    def _quarter(self) -> int:
        return self.columns // _QUARTERS

    def _cut(self, planes: Planes, quarter: int, start: int, stop: int) -> Planes:
        """The words of these columns of a quarter."""
        first, last = (
            (quarter * self._quarter + column) * self.blocks // _WORD for column in (start, stop)
        )
        x, y, other = planes
        return x[first:last], y[first:last], other[first:last]

    def fold_left(self, side: Side, alpha: Integers, second: Integers) -> Vector:
        """Left's vector after two steps, with the factors of both: (columns / 4, limbs)."""
        return self._fold(self._left(side), LEFT_SIGNS, alpha, second)

    def fold_right(self, side: Side, beta: Integers, second: Integers) -> Vector:
        """Right's vector after two steps, with the factors of both: (columns / 4, limbs)."""
        return self._fold(self._right(side), RIGHT_SIGNS, beta, second)

    def _fold(self, planes: Planes, signs: Signs, factors: Integers, second: Integers) -> Vector:
        by = self._fold_sums if self.words <= _FEW_WORDS else self._fold_signs
        return by(planes, signs, factors, second).view(np.uint16).reshape(-1, F61.limbs)

    def _fold_sums(
        self, planes: Planes, signs: Signs, factors: Integers, second: Integers
    ) -> Words:
        """Step after step, as the prover does it: for few gates, whose look-ups are done before tables are made."""
        ones = self._ones(planes, signs, ones_tables(factors), 0, self._quarter)
        vector = ones.view(np.uint16).reshape(-1, F61.limbs)
        folded = F61.fold(-2 * second % F61.modulus, vector).view(np.uint64).reshape(-1)
        constant = int(factors.sum()) * int(second.sum()) % F61.modulus
        return reduced(folded) + np.uint64(constant)

    def _fold_signs(
        self, planes: Planes, signs: Signs, factors: Integers, second: Integers
    ) -> Words:
        """Both steps in one look-up."""
        tables = [
            sign_tables(signs, factors, second[quarter * PRODUCTS :][:PRODUCTS])
            for quarter in range(_QUARTERS)
        ]
        folded = np.zeros(self._quarter, np.uint64)
        for start in range(0, folded.size, _FOLDED):
            some = folded[start : start + _FOLDED]
            for quarter, table in enumerate(tables):
                add_signs(some, self._cut(planes, quarter, start, start + some.size), table)
        return folded


def _planes(words: Words, blocks: int) -> Iterator[Words]:
    """Some of the words at a time as planes of each block: (blocks, words)."""
    more = -words.size % _WORD
    rows = (np.pad(words, (0, more)) if more else words).reshape(_WORD, -1)
    for start in range(0, rows.shape[1], _COUNTED):
        planes = rows[:, start : start + _COUNTED].copy()
        transpose_64x64(planes)
        if blocks < _WORD:
            lanes = planes.reshape(-1, blocks, planes.shape[1])
            planes = np.ascontiguousarray(lanes.transpose(1, 0, 2)).reshape(blocks, -1)
        yield planes


def _minus(left: Sequence[Words], right: Sequence[Words]) -> NDArray[np.int64]:
    """How often left's planes of x, y and constants and right's of x, y and masks make a minus: (blocks, blocks).

    Row d has left's blocks with those of right that are d further on: so operands lie side by side, which NumPy does
    twice as fast as one row with many.
    """
    blocks = len(left[0])
    found = np.empty((blocks, blocks), np.int64)
    further = [np.concatenate((planes, planes)) for planes in right]
    sign, both = (np.empty_like(left[0][:_ROWS]) for _ in range(2))
    counts = np.empty(sign.shape, np.uint8)
    for start in range(0, blocks, _ROWS):
        left_x, left_y, constant = (planes[start : start + _ROWS] for planes in left)
        for shift, row in enumerate(found[:, start : start + _ROWS], start=start):
            x, y, mask = (planes[shift : shift + len(sign)] for planes in further)
            np.bitwise_and(left_x, y, out=sign)
            np.bitwise_and(left_y, x, out=both)
            np.bitwise_xor(sign, both, out=sign)
            np.bitwise_xor(sign, mask, out=sign)
            np.bitwise_xor(sign, constant, out=sign)
            np.bitwise_count(sign, out=counts)
            row[:] = counts.sum(axis=1, dtype=np.uint32)
    return found


async def prove_gates(ctx: Context, gates: Gates) -> None:
    """Role 0 proves its part of all gates to the two others.

    Leaks: none.
    Rounds: 4 and those of ``prove_inner_products``.
    Communication: ``costs.verify_gates``: some 45 KB by role 0, however many gates.
    Raises: CheckFailed where a gate is wrong; ChannelError, ProtocolViolation.
    Source: README section 7.
    """
    talk, blocks, own = Conversation(ctx), gates.blocks, ctx.pid == PROVER
    # Every gate counts twice, and all of it is left's part of the claim.
    claim = 2 * gates.count if ctx.pid == LEFT else 0
    gram = gates.gram() if own else None
    alpha, beta, claim = await fold_claim(
        talk, F61, gram, blocks, summed=blocks, claims=[claim], drawn=drawn_digits
    )
    gram = gates.second_gram(alpha, beta) if own else None
    second, third, claim = await fold_claim(
        talk, F61, gram, _SECOND, summed=_SECOND, claims=[claim]
    )
    left = right = None
    if ctx.pid != RIGHT:
        left = [gates.fold_left(Side.OWN if own else Side.NEXT, alpha, second)]
    if ctx.pid != LEFT:
        right = [gates.fold_right(Side.NEXT if own else Side.OWN, beta, third)]
    count = folded_terms(gates.words)
    await prove_inner_products(talk, F61, left, right, [claim], counts=[count])
