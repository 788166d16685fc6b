"""Proofs that ANDs were computed as they should be: all that were recorded, 64 to a word, in one inner product.

Of z = x AND y, party i sends z_i = x_i y_i + x_i y_{i+1} + x_{i+1} y_i + r_i + r_{i+1} (XOR), with keystreams r. The
party before it (left) knows all with index i, the one after it (right) all with i + 1. A gate is right where the sign
of

    z_i + r_i + x_i y_i  +  r_{i+1}  +  x_i y_{i+1} + y_i x_{i+1}

is plus, and it is wrong where it is minus: so all m gates are right exactly where these signs add up to m, over the
integers. A sign of that form is half a sum of four products of a sign that left and one that right knows (below), so
what is to be proved is an inner product of length 4 m whose entries are +-1: ``inner_proof`` does, once the first step,
on bits, has made it 64 times shorter.

Secret: everything. Leaks: none. Source: README section 7; the four products are a bent function and its dual.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from protocols.bitslice import transpose_8x8
from protocols.context import Context
from protocols.inner_proof import (
    LEFT,
    PROVER,
    RIGHT,
    Conversation,
    fold_claim,
    prove_inner_products,
)
from protocols.mersenne import F61, Integers, Vector
from protocols.records import Record, Side, operands

Words = NDArray[np.uint64]
# The bits of four signs, of a component's x, y, terms and mask.
_Signs: TypeAlias = Callable[[Words, Words, Words, Words], Iterator[Words]]

_WORD = 64
_PRODUCTS = 4
# Words of a block at a time, such that what is computed with stays in the cache.
_CHUNK = 256
_FOLDED = 128
_SQUARES = 1 << 13
_P = np.uint64(F61.modulus)
_SMALL_WORDS = 1 << 11
BLOCKS = 16, 64
"""Of the first step: of few gates, and of many."""


def blocks_for(words: int) -> int:
    """Into how many blocks the first step cuts so many words of gates."""
    return BLOCKS[words > _SMALL_WORDS]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Component:
    """What the two holders of a component know of all gates: (blocks, words). Secret.

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
        self.blocks = blocks_for(self.words)
        self._columns = max(1, -(-self.words // self.blocks))
        self._components = {side: self._component(records, side) for side in Side}
        self._turned: dict[Side, _Component] = {}
        self._proved = False

    def __repr__(self) -> str:
        return f"Gates({self.words} words)"

    @property
    def count(self) -> int:
        """Gates, with those that pad."""
        return self.blocks * self._columns * _WORD

    @property
    def terms(self) -> int:
        """Entries of the vectors after the first step."""
        return _PRODUCTS * self._columns * _WORD

    def _component(self, records: Sequence[Record], side: Side) -> _Component:
        flat = np.zeros((4, self.blocks * self._columns), np.uint64)
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
        return _Component(*flat.reshape(4, self.blocks, self._columns))

    def gram(self) -> Integers:
        """The prover's inner products of left's blocks, of its own component, and right's, of the next: exact."""
        left, right = self._components[Side.OWN], self._components[Side.NEXT]
        blocks, columns = self.blocks, self._columns
        minus = np.zeros((blocks, blocks), np.int64)
        for start in range(0, columns, _CHUNK):
            cut = slice(start, start + _CHUNK)
            x, y, mask = (np.ascontiguousarray(a[:, cut]) for a in (right.x, right.y, right.mask))
            constant = left.terms[:, cut] ^ left.x[:, cut] & left.y[:, cut]
            sign, both = np.empty_like(x), np.empty_like(x)
            counts = np.empty(x.shape, np.uint8)
            for block in range(blocks):
                np.bitwise_and(left.x[block, cut], y, out=sign)
                np.bitwise_and(left.y[block, cut], x, out=both)
                sign ^= both
                sign ^= mask
                sign ^= constant[block]
                np.bitwise_count(sign, out=counts)
                minus[block] += counts.sum(axis=1, dtype=np.uint32)
        self._proved = True
        self._forget()
        return (2 * (columns * _WORD - 2 * minus)).astype(object)

    def _forget(self) -> None:
        """The planes as they came are for the party's own proof, and to be turned."""
        if self._proved and len(self._turned) == len(self._components):
            self._components = {}

    def fold_left(self, side: Side, factors: Integers) -> Vector:
        """Left's vector, each block times its factor, added up: (terms, limbs)."""
        return self._fold(self._octets(side), _left_signs, factors)

    def fold_right(self, side: Side, factors: Integers) -> Vector:
        """Right's vector, each block times its factor, added up: (terms, limbs)."""
        return self._fold(self._octets(side), _right_signs, factors)

    def _octets(self, side: Side) -> _Component:
        """The component with eight blocks side by side in a byte: (blocks / 8, columns, 8) words."""
        if side not in self._turned:
            part = self._components[side]
            fields = (part.x, part.y, part.terms, part.mask)
            self._turned[side] = _Component(*(_turned(field) for field in fields))
            self._forget()
        return self._turned[side]

    def _fold(self, part: _Component, signs: _Signs, factors: Integers) -> Vector:
        tables = [_table(factors[i : i + 8]) for i in range(0, self.blocks, 8)]
        folded = np.empty((_PRODUCTS, self._columns * _WORD), np.uint64)
        read = np.empty(_FOLDED * _WORD, np.uint64)
        for start in range(0, self._columns, _FOLDED):
            cut = slice(start, min(start + _FOLDED, self._columns))
            out = folded[:, cut.start * _WORD : cut.stop * _WORD]
            for group, table in enumerate(tables):
                fields = (part.x, part.y, part.terms, part.mask)
                for row, bits in zip(out, signs(*(f[group, cut] for f in fields)), strict=True):
                    # A byte is always in the table: "clip" only spares NumPy the check.
                    octets = bits.reshape(-1).view(np.uint8)
                    into = read[: octets.size] if group else row
                    np.take(table, octets, out=into, mode="clip")
                    if group:
                        row += into
            # At most eight numbers of 2^61 or less were added up.
            out[:] = _reduced(out)
        return folded.reshape(-1).view(np.uint16).reshape(-1, F61.limbs)


# With v = (x_i, y_i) of left and w = (y_{i+1}, x_{i+1}) of right, and q(a, b) = a b, which is bent and its own dual:
# the sum over the four k in {0, 1}^2 of (-1)^(k v) (-1)^q(k + w) is 2 (-1)^(v w + q(v)). The terms of left and right
# change signs of all four, and q(v) = x_i y_i is what party i sends besides.


def _left_signs(x: Words, y: Words, terms: Words, mask: Words) -> Iterator[Words]:
    yield terms
    yield terms ^ x
    yield terms ^ y
    yield terms ^ x ^ y


def _right_signs(x: Words, y: Words, terms: Words, mask: Words) -> Iterator[Words]:
    # q(k + w) for k = (0, 0), (1, 0), (0, 1), (1, 1).
    yield mask ^ (x & y)
    yield mask ^ (x & ~y)
    yield mask ^ (~x & y)
    yield mask ^ (~x & ~y)


def _table(factors: Integers) -> NDArray[np.uint64]:
    """For each byte the sum of eight factors, those where it has a one with a minus, modulo p (below 2^61)."""
    table = np.array([sum(int(factor) for factor in factors) % F61.modulus], np.uint64)
    for factor in factors:
        less = np.uint64(-2 * int(factor) % F61.modulus)
        table = np.concatenate((table, _reduced(table + less)))
    return table


def _reduced(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return (x & _P) + (x >> np.uint64(F61.exponent))


def _turned(bits: Words) -> Words:
    """Planes of blocks (blocks, words) as bytes that have one bit of each of eight blocks: (blocks / 8, words, 8)."""
    blocks, words = bits.shape
    octets = bits.view(np.uint8).reshape(blocks // 8, 8, words * 8)
    # Byte j of eight blocks is an 8 x 8 square.
    squares = np.ascontiguousarray(octets.transpose(0, 2, 1)).view(np.uint64)
    flat = squares.reshape(-1)
    for start in range(0, flat.size, _SQUARES):
        transpose_8x8(flat[start : start + _SQUARES])
    return flat.reshape(blocks // 8, words, 8)


async def prove_gates(ctx: Context, gates: Gates) -> None:
    """Role 0 proves its part of all gates to the two others.

    Leaks: none.
    Rounds: 2 and those of ``prove_inner_products``.
    Communication: ``costs.verify_gates``: some 50 KB by role 0, however many gates.
    Raises: CheckFailed where a gate is wrong; ChannelError, ProtocolViolation.
    Source: README section 7.
    """
    talk, blocks = Conversation(ctx), gates.blocks
    # Every gate counts twice, and all of it is left's part of the claim.
    claim = 2 * gates.count if ctx.pid == LEFT else 0
    gram = gates.gram() if ctx.pid == PROVER else None
    alpha, beta, claim = await fold_claim(talk, F61, gram, blocks, summed=blocks, claims=[claim])
    own = ctx.pid == PROVER
    left = None if ctx.pid == RIGHT else gates.fold_left(Side.OWN if own else Side.NEXT, alpha)
    right = None if ctx.pid == LEFT else gates.fold_right(Side.NEXT if own else Side.OWN, beta)
    await prove_inner_products(
        talk,
        F61,
        None if left is None else [left],
        None if right is None else [right],
        [claim],
        counts=[gates.terms],
    )
