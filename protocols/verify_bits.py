"""Proofs that ANDs were computed correctly: all recorded gates, 64 to a word, in one inner product.

Of z = x AND y, party i sends z_i = x_i y_i + x_i y_{i+1} + x_{i+1} y_i + r_i + r_{i+1} (XOR), with keystreams r. The
party before it (left) knows all with index i, the one after it (right) all with i + 1. A gate is right where the sign
of

    z_i + r_i + x_i y_i  +  r_{i+1}  +  x_i y_{i+1} + y_i x_{i+1}

is plus, and it is wrong where it is minus: so all m gates are right exactly where these signs add up to m, over the
integers. A sign of that form is half a sum of four products of a sign that left and one that right knows
(``sign_tables``). So the claim is an inner product of length 4 m whose entries are +-1. ``inner_proof`` proves it, once
the first two steps, on bits, have made it 1024 times shorter.

Secret: everything. Leaks: none. Source: README section 7; the four products are a bent function and its dual.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

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
from protocols.sign_tables import digit_tables, drawn_digits, sign_tables

try:
    from protocols import _gates
except ImportError:
    # No compiler was there when this was installed.
    VARIANTS: tuple[str, ...] = ()
else:
    VARIANTS = _gates.VARIANTS
"""Kinds of this processor for which the loops over many gates are compiled; without one they are ``kernels``' own."""

Words = NDArray[np.uint64]

_WORD = 64
# Words of a quarter at a time: their copies stay in the cache.
_CHUNK = 1 << 13
_SMALL_WORDS = 1 << 11
BLOCKS = 16, 64
"""Numbers of blocks of the first step: of few gates, and of many."""
_SECOND = blocks_of(F61)
_QUARTERS = _SECOND // 4


def blocks_for(words: int) -> int:
    """Returns the number of blocks into which the first step cuts so many words of gates."""
    return BLOCKS[words > _SMALL_WORDS]


def columns_for(words: int) -> int:
    """Returns the columns of so many words: each of a vector's four parts has an element a column after step one."""
    # A quarter has whole words; of many gates, all words together are whole squares of 64 words.
    unit = _WORD if words > _SMALL_WORDS else _QUARTERS
    return max(1, -(-words // unit)) * unit * (_WORD // blocks_for(words))


def folded_terms(words: int) -> int:
    """Returns the number of entries of the vectors after the second step, of so many words."""
    return columns_for(words) // _QUARTERS


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Part:
    """A record's gates as the two holders of a component know them: (words,) each, in one piece. Secret."""

    start: int
    x: Words
    y: Words
    z: Words
    added: Words | None
    mask: Words

    @classmethod
    def of(cls, start: int, record: Record, side: Side) -> "_Part":
        x, y, added = operands(record, side)
        z, mask = (side.of(x_sh) for x_sh in (record.z_sh, record.masks_sh))
        # Copies where an array has gaps, and nowhere else.
        more = None if added is None else np.ravel(added)
        return cls(start, np.ravel(x), np.ravel(y), np.ravel(z), more, np.ravel(mask))

    def arrays(self, left: bool) -> tuple[Words | None, ...]:
        """Returns what left or right knows, as ``_gates`` takes it."""
        known = self.x, self.y, self.mask
        return (*known, self.z, self.added) if left else known

    def copy(self, start: int, left: bool, gates: Words) -> None:
        """Copies its gates from ``start`` on, as left or right knows them: x, y, and terms or mask; (3, words)."""
        first, stop = max(start, self.start), min(start + gates.shape[1], self.start + self.x.size)
        here = slice(first - self.start, stop - self.start)
        x, y, last = gates[:, first - start : stop - start]
        x[:], y[:] = self.x[here], self.y[here]
        if not left:
            last[:] = self.mask[here]
            return
        # Left's last bit: z_i + r_i, and the terms that were added linearly; right's above is r_{i+1}.
        np.bitwise_xor(self.z[here], self.mask[here], out=last)
        if self.added is not None:
            last ^= self.added[here]


class Gates:
    """The gates of the records, in their order, as this party holds them; padded with correct gates, of zeros."""

    def __init__(self, records: Sequence[Record]) -> None:
        sizes = [record.z_sh.size for record in records]
        self.words = sum(sizes)
        self.blocks, self.columns = blocks_for(self.words), columns_for(self.words)
        self._starts = [0, *accumulate(sizes)][:-1]
        self._parts = {
            side: [_Part.of(*found, side) for found in zip(self._starts, records, strict=True)]
            for side in Side
        }

    def __repr__(self) -> str:
        return f"Gates({self.words} words)"

    @property
    def count(self) -> int:
        """Number of gates, padding included."""
        return self.blocks * self.columns

    def _chunks(self, side: Side, left: bool) -> Iterator[Words]:
        """Yields some words of each quarter at a time, side by side, as left or right knows them: (3, words).

        The rows are x, y, and the terms z + mask + added terms, or the mask.
        """
        quarter = self._quarter
        for start in range(0, quarter, _CHUNK):
            size = min(_CHUNK, quarter - start)
            gates = np.empty((3, _QUARTERS * size), np.uint64)
            for number in range(_QUARTERS):
                first = number * quarter + start
                here = gates[:, number * size : (number + 1) * size]
                here[:, max(self.words - first, 0) :] = 0
                for part in self._parts_of(side, first, first + size):
                    part.copy(first, left, here)
            yield gates

    def _parts_of(self, side: Side, start: int, stop: int) -> Sequence[_Part]:
        """Returns the parts that have words between ``start`` and ``stop``."""
        if start >= self.words:
            return ()
        first = bisect_right(self._starts, start) - 1
        return self._parts[side][first : bisect_left(self._starts, stop)]

    def _both(self) -> Iterator[tuple[Words, Words]]:
        """Yields the prover's ``_chunks`` of its own component, known to left, and of the next one, known to right."""
        return zip(self._chunks(Side.OWN, True), self._chunks(Side.NEXT, False), strict=True)

    @property
    def _compiled(self) -> bool:
        return bool(VARIANTS) and self.blocks == _WORD

    @property
    def _quarter(self) -> int:
        """Words of a quarter, padding included."""
        return self.count // _WORD // _QUARTERS

    def _arrays(self, side: Side, left: bool) -> list[tuple[Words | None, ...]]:
        return [part.arrays(left) for part in self._parts[side]]

    def gram(self) -> Integers:
        """Returns the prover's inner products of left's blocks, of its own component, and right's, of the next.

        They are exact.
        """
        minus = np.zeros((self.blocks, self.blocks), np.int64)
        if self._compiled:
            both = self._arrays(Side.OWN, True), self._arrays(Side.NEXT, False)
            _gates.count(*both, self.words, minus, VARIANTS[0])
        else:
            from protocols.kernels import count_minus

            for left, right in self._both():
                minus += count_minus(left, right, self.blocks)
        # A gate's four products add up to 2 s, s = +-1 its sign: an entry is 2 (columns - 2 minuses).
        gram: Integers = 2 * (self.columns - 2 * minus).astype(object)
        return gram

    def second_gram(self, alpha: Integers, beta: Integers) -> Integers:
        """Returns the prover's inner products of the second step: of columns in quarters, each kind of signs, (16, 16).

        alpha and beta (blocks,) are the first step's factors. Not reduced.
        """
        if self._compiled:
            found = np.zeros((_SECOND, _SECOND), np.uint64)
            both = self._arrays(Side.OWN, True), self._arrays(Side.NEXT, False)
            tables = digit_tables(alpha, F61), digit_tables(beta, F61)
            _gates.multiply(*both, self._quarter, *tables, found, VARIANTS[0])
            return found.astype(object)
        from protocols.kernels import sum_products

        signs = sign_tables(alpha, F61), sign_tables(beta, F61)
        gram = np.zeros((_SECOND, _SECOND), object)
        for left, right in self._both():
            gram += sum_products(left, right, *signs)
        return gram

    def fold_left(self, side: Side, alpha: Integers, second: Integers) -> Vector:
        """Returns left's vector after two steps, with the factors of both: (columns / 4, 1)."""
        return self._fold(side, True, alpha, second)

    def fold_right(self, side: Side, beta: Integers, second: Integers) -> Vector:
        """Returns right's vector after two steps, with the factors of both: (columns / 4, 1)."""
        return self._fold(side, False, beta, second)

    def _fold(self, side: Side, of_left: bool, factors: Integers, second: Integers) -> Vector:
        tables, weights = sign_tables(factors, F61), second.astype(np.uint64)
        if self._compiled:
            found = np.empty(self._quarter, np.uint64)
            arrays = self._arrays(side, of_left)
            _gates.fold(arrays, of_left, self._quarter, tables, weights, found)
            return found.reshape(-1, F61.words)
        from protocols.kernels import fold_sums

        folded = [
            fold_sums(gates, of_left, tables, weights) for gates in self._chunks(side, of_left)
        ]
        return np.concatenate(folded).reshape(-1, F61.words)


async def prove_gates(ctx: Context, gates: Gates) -> None:
    """Runs a proof by role 0 of its part of all gates, to the two others.

    Leaks: none.
    Rounds: 4 and those of ``prove_inner_products``.
    Communication: ``costs.verify_gates``: some 45 KB by role 0, however many gates.
    Raises: CheckFailed where a gate is wrong; ChannelError, ProtocolViolation.
    Source: README section 7.
    """
    talk, blocks, own = Conversation(ctx), gates.blocks, ctx.pid == PROVER
    # The claim is <u, v> = 2 m for m gates, padding included; all of it is left's part.
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
