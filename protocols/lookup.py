"""Public tables at a secret index: the one-hot of shared bits, and table words as XORs of its planes.

Secret: the index, and the words read. Public: the table. Reading is linear in the one-hot and therefore free; the
one-hot costs about one AND an entry. Of a large table only the one-hots of both parts of the index are made: the one
reads a word for each entry of the other, and an inner product chooses among these words. Source: Keller et al. (ACISP
2017, "Faster secure multi-party computation of AES and DES using lookup tables") for the tables; the products that rows
and columns save are own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.base import multiply, reshare
from protocols.context import Context
from protocols.ring import BITS
from protocols.shares import Share, concatenate, product

# Largest number of entries whose sums are made beforehand, where planes have few words.
_TOGETHER = 8
_FEW_WORDS = 64


@dataclass(frozen=True, slots=True, eq=False)
class PublicTable:
    """Words of ``bits`` bits by entry and column: ``positions[bit][column]`` lists the entries with that bit set.

    ``sums[eight, bit * columns + column]`` is a number below 256: the set of those entries among eight neighbours.
    """

    bits: int
    columns: int
    positions: tuple[tuple[NDArray[np.intp], ...], ...]
    sums: NDArray[np.intp]

    @classmethod
    def of(cls, words: Sequence[Sequence[int]], bits: int) -> "PublicTable":
        """Returns the table with ``words[entry][column]``. Raises ValueError for a word outside [0, 2^bits)."""
        columns = len(words[0])
        if any(
            len(row) != columns or not all(0 <= word < 1 << bits for word in row) for row in words
        ):
            raise ValueError(f"a table has rows of one length and words of at most {bits} bits")
        positions = tuple(
            tuple(
                np.flatnonzero([row[column] >> bit & 1 for row in words])
                for column in range(columns)
            )
            for bit in range(bits)
        )
        sums = np.zeros((-(-len(words) // _TOGETHER), bits * columns), np.intp)
        for wanted, entries in enumerate(entries for row in positions for entries in row):
            np.add.at(sums[:, wanted], entries // _TOGETHER, 1 << entries % _TOGETHER)
        return cls(bits, columns, positions, sums)

    def read(self, one_hot: Share) -> Share:
        """Reads the words at the index whose one-hot (entries, words) is given: (bits, columns, words). Local."""
        return Share(BITS, one_hot.pid, self._planes(one_hot.own), self._planes(one_hot.next))

    def _planes(self, component: NDArray[np.uint64]) -> NDArray[np.uint64]:
        few = component.shape[-1] <= _FEW_WORDS
        return self._by_eights(component) if few else self._by_columns(component)

    def _by_eights(self, component: NDArray[np.uint64]) -> NDArray[np.uint64]:
        # The 256 sums of each eight entries are made once, for all bits of all columns: the sums of the entries below
        # one, without and with it. Source: the method of four Russians (Arlazarov, Dinic, Kronrod, Faradzhev 1970).
        (eights, wanted), words = self.sums.shape, component.shape[-1]
        sums = np.zeros((eights, 1 << _TOGETHER, words), np.uint64)
        for entry in range(_TOGETHER):
            ones = component[entry::_TOGETHER]
            below, place = sums[: len(ones), : 1 << entry], 1 << entry
            np.bitwise_xor(below, ones[:, None], out=sums[: len(ones), place : 2 * place])
        planes, some = np.zeros((2, wanted, words), np.uint64)
        for eight, chosen in zip(sums, self.sums, strict=True):
            planes ^= eight.take(chosen, axis=0, out=some, mode="clip")
        return planes.reshape(self.bits, self.columns, words)

    def _by_columns(self, component: NDArray[np.uint64]) -> NDArray[np.uint64]:
        planes = np.empty((self.bits, self.columns, component.shape[-1]), dtype=np.uint64)
        for bit, row in enumerate(self.positions):
            for column, entries in enumerate(row):
                np.bitwise_xor.reduce(component[entries], axis=0, out=planes[bit, column])
        return planes


async def look_up(ctx: Context, table: PublicTable, index_bsh: Share) -> Share:
    """Returns the words (bits, words) of a table at an index of b >= 2 bits (b, words).

    Entry l of the table and its column h are found at index l + 2^s h: the index has s = 2^(levels(b) - 1) bits for the
    entry, and the others for the column.

    Leaks: none.
    Rounds: levels(b).
    Communication: of ``one_hot`` for s and for b - s bits, and a plane for each bit of a word; with a verifier, which
        knows no sums of ANDs, for each bit and column.
    Raises: ChannelError, ProtocolViolation.
    Source: own; with the one-hot of all of the index it takes five times as much for 168 bits at 11.
    """
    low, high = await _one_hots(ctx, index_bsh, 2)
    read = table.read(low)
    found = product(ctx, read, high.reshape(1, *high.shape)[[0] * table.bits])
    if ctx.verifier is None:
        return await reshare(ctx, found.sum(axis=1))
    return (await reshare(ctx, found)).sum(axis=1)


async def one_hot(ctx: Context, index_bsh: Share) -> Share:
    """Returns the one-hot (2^b, words) of an index of b bits (b, words).

    Leaks: none.
    Rounds: levels(b).
    Communication: (2^s - 1)(2^t - 1) planes for each pair of halves of s and t bits; 247 planes for b = 8.
    Raises: ChannelError, ProtocolViolation.
    Source: own; the row and the column of a product table that belong to index 0 are sums of the others.
    """
    (whole,) = await _one_hots(ctx, index_bsh, 1)
    return whole


async def _one_hots(ctx: Context, index_bsh: Share, most: int) -> list[Share]:
    """Returns one-hots of parts of the index, the lowest bits' first, as soon as there are at most ``most``."""
    parts = [
        concatenate(~index_bsh[i : i + 1], index_bsh[i : i + 1]) for i in range(index_bsh.shape[0])
    ]
    # Two neighbouring one-hots become that of both indices, the lower one running faster. A level's products go
    # in one message, pair after pair: ``start`` finds each pair's.
    while len(parts) > most:
        pairs = [(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
        rest = parts[2 * len(pairs) :]
        factors = [_outer_factors(low, high) for low, high in pairs]
        products = await multiply(
            ctx,
            concatenate(*(low for low, _ in factors)),
            concatenate(*(high for _, high in factors)),
        )
        parts, start = [], 0
        for low, high in pairs:
            count = (low.shape[0] - 1) * (high.shape[0] - 1)
            parts.append(_complete(low, high, products[start : start + count]))
            start += count
        parts += rest
    return parts


def _outer_factors(low: Share, high: Share) -> tuple[Share, Share]:
    """Returns the factors of all products of entries above 0 of ``high`` and ``low``, ``low`` running faster."""
    # Product i of the list is low[1 + i % inner] * high[1 + i // inner].
    inner, outer = low.shape[0] - 1, high.shape[0] - 1
    return low[np.tile(np.arange(1, inner + 1), outer)], high[
        np.repeat(np.arange(1, outer + 1), inner)
    ]


def _complete(low: Share, high: Share, products: Share) -> Share:
    """Returns all 2^(s+t) entries from those above 0 in both halves: the entries of a row add up to ``high``'s."""
    inner, outer, words = low.shape[0] - 1, high.shape[0] - 1, low.shape[-1]
    # A one-hot's entries add up to one: sum over j of low[j] high[i] is high[i], so low[0] high[i] is high[i] plus the
    # products of its row; likewise high[0] low[j] is low[j] plus its column. Entry i 2^s + j stands in row i, column j.
    table = products.reshape(outer, inner, words)
    first_column = high[1:] ^ table.sum(axis=1)
    rows = concatenate(
        first_column.reshape(outer, 1, words).transposed(), table.transposed()
    ).transposed()
    first_row = low ^ rows.sum(axis=0)
    return concatenate(first_row, rows.reshape(outer * (inner + 1), words))
