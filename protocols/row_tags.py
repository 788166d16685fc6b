"""Tags of shared rows, which show that the rows were only moved, by any party.

A tag is a linear function of a row's bits, 64 of them: tag = K row over GF(2), K a uniform matrix. Each row has three
tags, one for each party. That of party c + 1 has a key which the two others know, the holders of component c, and it
does not. A party that adds something to rows or tags after they were made leaves, for the key that it does not know,
each tag right with probability 2^-64. Two parties that know a key make the tag of shared rows without a product of
secrets: each summand of it is known to one of them.

Secret: keys, tags, rows. Source: README section 8; a tag a row that goes through a shuffle is IPA's way (Case et al.,
2023), with one key, secret-shared, there; Carter and Wegman 1979 for the function.
"""

import hashlib
import hmac

import numpy as np
from numpy.typing import NDArray

from protocols.context import Context
from protocols.errors import CheckFailed
from protocols.ring import BITS
from protocols.shares import Share

TAGS = 3
"""Number of words that a row gets: of the key of component 0's holders, then 1's and 2's."""
_BYTE = 8


class TagKeys:
    """The two of three keys that this party knows, each as tables of the summands of every byte's 256 values."""

    __slots__ = ("_tables", "words")

    def __init__(self, ctx: Context, words: int) -> None:
        self.words = words
        self._tables = {c: _tables(_drawn(ctx, c, words)) for c in (ctx.pid, ctx.next_pid)}

    def __repr__(self) -> str:
        return f"TagKeys({self.words} words)"

    def of(self, component: int, rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Returns K rows, by the key of the holders of ``component``: (n, words) -> (n,). Local."""
        found = np.zeros(len(rows), np.uint64)
        octets = np.ascontiguousarray(rows).view(np.uint8)
        for byte, table in enumerate(self._tables[component]):
            found ^= table[octets[:, byte]]
        return found


def _drawn(ctx: Context, component: int, words: int) -> NDArray[np.uint64]:
    return ctx.common(component, BITS, (words * 64,))


def _tables(key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns, of a tag for each bit of a row (64 words,), the sums for the values of each byte: (8 words, 256)."""
    columns = key.reshape(-1, _BYTE)
    tables = np.zeros((len(columns), 1), np.uint64)
    for bit in range(_BYTE):
        tables = np.concatenate((tables, tables ^ columns[:, bit : bit + 1]), axis=1)
    return tables


async def tagged(ctx: Context, keys: TagKeys, rows_bsh: Share) -> Share:
    """Returns the rows with their tags: (n, words) -> (n, words + 3).

    The holders of component c, P_c and P_{c-1}, both have the key and x_c; P_c alone has x_{c+1} beside it, P_{c-1}
    alone x_{c-1}. Each masks the summand that it alone knows by the keystream that becomes the component, and sends it
    to the other.

    Shapes: as above.
    Leaks: none.
    Rounds: 1.
    Communication: 2 words of 8 bytes a row.
    Raises: ChannelError, ProtocolViolation.
    Source: own; README section 8.
    """
    mine, theirs, rows = ctx.pid, ctx.next_pid, len(rows_bsh.own)
    # Both holders of a component draw from its stream in the same order: for the tags, ascending, that are not its own.
    masks = {
        (tag, component): ctx.common(component, BITS, (rows,))
        for component in (mine, theirs)
        for tag in range(TAGS)
        if tag != component
    }
    # Tag ``mine``: K x_{i+1} to the party before; tag ``theirs``: K x_i to the next party; each under its mask.
    back = keys.of(mine, rows_bsh.next) ^ masks[mine, theirs]
    on = keys.of(theirs, rows_bsh.own) ^ masks[theirs, mine]
    size = rows * BITS.itemsize
    received = await ctx.round(
        {ctx.prev_pid: BITS.to_wire(back), ctx.next_pid: BITS.to_wire(on)},
        {ctx.next_pid: size, ctx.prev_pid: size},
    )
    from_next, from_prev = (
        BITS.from_wire(received[peer], (rows,)) for peer in (ctx.next_pid, ctx.prev_pid)
    )
    own, next_ = (np.empty((rows, TAGS), np.uint64) for _ in range(2))
    # Tag ``mine`` with the party before, tag ``theirs`` with the one after; of the third one only masks are known here.
    own[:, mine] = keys.of(mine, rows_bsh.own) ^ back ^ from_prev
    next_[:, mine] = masks[mine, theirs]
    own[:, theirs] = masks[theirs, mine]
    next_[:, theirs] = keys.of(theirs, rows_bsh.next) ^ on ^ from_next
    third = ctx.prev_pid
    own[:, third], next_[:, third] = masks[third, mine], masks[third, theirs]
    return Share(
        BITS,
        ctx.pid,
        np.concatenate((rows_bsh.own, own), axis=1),
        np.concatenate((rows_bsh.next, next_), axis=1),
    )


async def check_tags(ctx: Context, keys: TagKeys, tagged_bsh: Share) -> Share:
    """Returns the rows without their tags, if all tags are right: (n, words + 3) -> (n, words).

    K x - tag, a sum of three components, is zero where P_c's two add up to P_{c-1}'s third one. Both know the key, so
    that each computes its own part and they compare digests; the third party learns nothing.

    Leaks: none; to a party that knows that it changed rows, that it did.
    Rounds: 1.
    Communication: two digests of 32 bytes.
    Raises: CheckFailed where a tag is wrong; ChannelError, ProtocolViolation.
    Source: own; README section 8.
    """
    mine, theirs = ctx.pid, ctx.next_pid
    own, next_ = (
        {tag: _difference(keys, tag, part) for tag in (mine, theirs)}
        for part in (tagged_bsh.own, tagged_bsh.next)
    )
    back = _digest(own[mine] ^ next_[mine])
    on = _digest(own[theirs])
    received = await ctx.round(
        {ctx.prev_pid: back, ctx.next_pid: on},
        {ctx.next_pid: on.size, ctx.prev_pid: back.size},
    )
    third = {ctx.prev_pid: ctx.next_pid, ctx.next_pid: ctx.prev_pid}
    for peer, expected in ((ctx.prev_pid, back), (ctx.next_pid, on)):
        if not hmac.compare_digest(received[peer].tobytes(), expected.tobytes()):
            raise CheckFailed(
                f"rows that were moved in step {ctx.cost.step!r} are not those that came in, by the tags of party"
                f" {ctx.party(ctx.pid)} and party {ctx.party(peer)}: party {ctx.party(third[peer])} deviates, or the"
                " other of these two does"
            )
    return tagged_bsh[:, : keys.words]


def _difference(keys: TagKeys, tag: int, part: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return keys.of(tag, part[:, : keys.words]) ^ part[:, keys.words + tag]


def _digest(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return np.frombuffer(hashlib.sha256(BITS.to_wire(words).data).digest(), np.uint8)
