"""Checks on shares that an owner's data is within its public bound: one bit for each owner is opened, nothing else.

Secret: counts, their sums, differences, and the bits until they are opened. Public: bounds, sizes, an opened bit. An
honest owner's bit is 1 for any of its tables, so that it reveals nothing; README section 2 says what a 1 proves.

All is modulo 2^32: "within" means that the element of Z_2^32, taken as a number from 0 to 2^32 - 1, is at most the
bound, exactly, for any shares. Source: own, of signs and ANDs (README section 1).
"""

import asyncio
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from protocols.base import multiply, open_value
from protocols.bitslice import from_bits, to_bits
from protocols.boolean import and_all, msb
from protocols.context import Context
from protocols.derived import addends
from protocols.errors import CheckFailed
from protocols.ring import BITS, R32
from protocols.shares import Share, concatenate

BLOCK_CELLS = 1 << 17
CELLS_AT_ONCE = 1 << 21
_IN_FLIGHT = 2
_WORD = 64
LARGEST_BOUND = (1 << 31) - 1


async def check_totals(ctx: Context, sums_sh: Share, bound: int) -> Share:
    """Returns 1 for each owner whose sums are all the same number, which is at most ``bound``; 0 for the others.

    Shapes: sums (m, n) in Z_2^32, m sums of each of n owners; returns bits (n,), one in a word.
    Leaks: none.
    Rounds: 1 + the longer one of 3 + levels(31) and 6 + levels(m - 1).
    Communication: ``in_range`` for n cells; 32 planes of (m - 1) n cells by party 0 and 31 by all; m - 1 planes.
    Raises: ValueError for a bound or shape that does not fit; ChannelError, ProtocolViolation.
    Source: README section 2.
    """
    if sums_sh.ring is not R32 or len(sums_sh.shape) != 2 or sums_sh.shape[0] < 1:
        raise ValueError(f"sums are (m, n) in Z_2^32, m at least 1, not {sums_sh!r}")
    _require_bound(bound)
    owners, padded = sums_sh.shape[1], _whole_words(sums_sh)
    if sums_sh.shape[0] == 1:
        return _one_a_word(await in_range(ctx, padded[0], bound), owners)
    within, equal = await ctx.both(
        lambda c: in_range(c, padded[0], bound),
        lambda c: _all_zero(c, sums_sh[1:] - sums_sh[:1]),
    )
    return _one_a_word(await multiply(ctx, within, equal), owners)


async def check_cells(ctx: Context, x_sh: Share, bound: int) -> Share:
    """Returns 1 for each owner whose cells are all at most ``bound``; 0 for the others.

    Shapes: x (n, cells) in Z_2^32; returns bits (n,), one in a word.
    Leaks: none.
    Rounds: 9 + levels(31) + levels(words_for(cells)).
    Communication: ``in_range`` for the cells of all, each owner's rounded up to whole words, and a bit a cell: 24.4
        bytes a cell for the mean party.
    Raises: ValueError for a bound or shape that does not fit; ChannelError, ProtocolViolation.
    Source: README section 2.
    """
    if x_sh.ring is not R32 or len(x_sh.shape) != 2 or x_sh.shape[1] < 1:
        raise ValueError(f"counts are (n, cells) in Z_2^32, cells at least 1, not {x_sh!r}")
    owners = x_sh.shape[0]
    within = await in_range(ctx, _whole_words(x_sh).reshape(-1), bound)
    # An owner's words side by side as planes; then the 64 bits that are left of each owner.
    words = await and_all(ctx, within.reshape(owners, -1).transposed())
    bits = _as_planes(words, owners, _WORD, turned=True)
    return _one_a_word(await and_all(ctx, bits), owners)


def at_once(owners: int, cells: int) -> Iterator[range]:
    """Splits owners into the parts of one ``check_cells`` each: owners of 2^21 cells together, at least one owner."""
    size = max(1, CELLS_AT_ONCE // cells)
    return (range(start, min(start + size, owners)) for start in range(0, owners, size))


async def in_range(ctx: Context, x_sh: Share, bound: int) -> Share:
    """Returns [0 <= x <= bound]: two signs, of x and of bound - x, and the AND of their NOTs.

    With no sign bit x is below 2^31, so that bound - x does not wrap, and its sign bit is the comparison.

    Shapes: x (n,) in Z_2^32; returns (words,). Beyond n its bits are 1.
    Leaks: none.
    Rounds: 3 + levels(31), in blocks side by side.
    Communication: ``boolean.msb`` for 2 n cells and a plane. Roles rotate over the blocks.
    Raises: ValueError for a bound from 2^31; ChannelError, ProtocolViolation.
    Source: README section 2.
    """
    _require_bound(bound)
    slots = asyncio.Semaphore(_IN_FLIGHT)

    async def block(c: Context, start: int) -> Share:
        async with slots:
            role = c.child(rotate=start // BLOCK_CELLS % 3)
            part = _whole_words(x_sh[start : start + BLOCK_CELLS]).within(role.pid)
            signs = await msb(role, concatenate(part, -part + bound))
            within = await and_all(role, ~signs.reshape(2, part.size // _WORD))
            c.depth = role.depth
        return within.within(c.pid)

    starts = range(0, max(1, x_sh.size), BLOCK_CELLS)
    return concatenate(*await ctx.gather(*((lambda c, s=start: block(c, s)) for start in starts)))


async def _all_zero(ctx: Context, x_sh: Share) -> Share:
    """Returns, for each of the n columns, 1 if all of x (m, n) in it are 0: (words,).

    x is 0 where x - 1 = a + b is all ones, and the sum of two numbers is that where they differ in every bit.

    Rounds: 6 + levels(m). Communication: 32 planes of m n cells by party 0 and 31 by all; m - 1 planes of n cells.
    """
    # x - 1 = a + b is all ones exactly where every plane of a XOR b is one.
    operands = await addends(ctx, (x_sh - 1).reshape(-1), R32.bits)
    zero = await and_all(ctx, operands.propagate)
    # The cells lie row after row: each row becomes a plane of its own.
    return await and_all(ctx, _as_planes(zero, *x_sh.shape))


async def open_verdicts(ctx: Context, verdicts: Share, what: str) -> NDArray[np.bool_]:
    """Opens a bit for each owner.

    Shapes: verdicts (n,), one in a word; returns (n,).
    Leaks: the bits, recorded under ``what``: one number, 0 or 1, an owner.
    Rounds: 1.
    Communication: ``base.open_value`` of 8 bytes an owner.
    Raises: CheckFailed where holders of a component disagree, or an opened number is no bit; ChannelError,
        ProtocolViolation.
    Source: as ``select.select``.
    """
    opened = await open_value(ctx, verdicts, what)
    if opened.max(initial=0) > 1:
        raise CheckFailed(
            f"something else than bits was opened as {what} in step {ctx.cost.step!r}"
        )
    return opened.astype(np.bool_)


def _require_bound(bound: int) -> None:
    if not 0 <= bound <= LARGEST_BOUND:
        raise ValueError(f"a bound of {bound}; expected 0 to {LARGEST_BOUND}")


def _whole_words(x_sh: Share) -> Share:
    """Pads x (..., n) with zeros up to a multiple of 64 along its last axis. Local."""
    missing = -x_sh.shape[-1] % _WORD
    if not missing:
        return x_sh
    width = [(0, 0)] * (len(x_sh.shape) - 1) + [(0, missing)]
    return Share(x_sh.ring, x_sh.pid, np.pad(x_sh.own, width), np.pad(x_sh.next, width))


def _one_a_word(plane: Share, count: int) -> Share:
    """Returns the first bits of a plane (words,) as words (count,) of 0 or 1; its other bits are dropped. Local."""
    own, next_ = (to_bits(part, count).astype(np.uint64) for part in (plane.own, plane.next))
    return Share(BITS, plane.pid, own, next_)


def _as_planes(bits: Share, rows: int, columns: int, *, turned: bool = False) -> Share:
    """Returns the first rows x columns bits of a plane as planes (rows, words), one a row or, ``turned``, a column.

    Local.
    """

    def planes(component: NDArray[np.uint64]) -> NDArray[np.uint64]:
        square = to_bits(component, rows * columns).reshape(rows, columns)
        return from_bits(square.T if turned else square)

    return Share(BITS, bits.pid, planes(bits.own), planes(bits.next))
