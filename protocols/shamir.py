"""Conversions between Shamir's sharings modulo a prime, of three parties and degree 1, and replicated shares of a ring.

``to_ring`` and ``from_ring`` are for bounded signed values: both ends hold the same integer. Party i has f(i + 1) of a
line f with f(0) = x. The roles of the context are the parties of the sharing, so that it must not be rotated.

Secret: points, components and all values derived from them. Public: primes, shapes and bounds. Representation: points
are Python integers in [0, prime), in object arrays. Leaks: none but a distance: where a mask is of limited size, the
distribution of what two parties see lies within 2^(bits - M) of one that depends on nothing, a value, with M at least
``security_bits`` above ``bits``. Source: Shamir (1979); Cramer, Damgård, Ishai (TCC 2005) for points of replicated
components; README section 9. Known limits: no verifier; a value beyond its bound becomes another, and is hidden less.
"""

from dataclasses import dataclass

import numpy as np

from protocols import costs
from protocols.base import random, reveal_component
from protocols.boolean import lift_magnitude, msb
from protocols.context import Context, Payload
from protocols.costs import Cost
from protocols.derived import bits_to_ring
from protocols.errors import ProtocolViolation
from protocols.ring import R32, R64, R128, Ring, RingArray
from protocols.shares import Share, concatenate

SECURITY_BITS = 40
"""Bits of a mask beyond those of the value that it hides."""
SMALLEST_SECURITY = 16
_WIDEST_MASK = 126
_LARGEST_EXACT = 1 << 126
"""Primes below it have three components whose sum fits Z_2^128, with a sign."""
# The line through the points of parties 0 and 2 (at 1 and 3) has 2 f(0) = 3 f(1) - f(3).
_FIRST, _SECOND = 0, 2


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Masks:
    """Components r_pid and r_{pid+1} (n,) of numbers r0 + r1 + r2, as Python integers. Secret."""

    own: RingArray
    next: RingArray


def mask_bits(prime: int, bits: int) -> int:
    """Returns the largest M for which three masks of M bits and a value of ``bits`` bits stay below a prime."""
    return min(_WIDEST_MASK, max(0, (prime - (1 << bits)) // 3).bit_length() - 1)


def is_one_round(prime: int, bits: int, security_bits: int = SECURITY_BITS) -> bool:
    """Returns True where ``to_ring`` takes one round: the prime is large enough for a mask over the integers."""
    return mask_bits(prime, bits) - bits >= security_bits


async def to_ring(
    ctx: Context,
    x: RingArray,
    *,
    prime: int,
    bits: int,
    ring: Ring = R32,
    security_bits: int = SECURITY_BITS,
) -> Share:
    """Returns replicated shares of a ring of values of which every party has a point modulo ``prime``.

    Shapes: x any shape, points; returns that shape. Every value lies in [-2^(bits-1), 2^(bits-1)), and the result is
        that value modulo the ring's size.
    Leaks: none where the prime is too small for a mask (see ``is_one_round``), which is exact; else parties 0 and 2 see
        x + r0 + r1 + r2, within 2^-security_bits a value.
    Rounds: 1; exact ones 5 + levels(ceil((B - 1) / 3)) with B = log2(2 prime) + 2.
    Communication: n points by parties 0 and 2; exact ones also those of ``msb`` and ``bits_to_ring`` of 2 n values.
    Raises: ValueError for a bound that the prime has no room for, or a prime above 2^126 whose values leave no room for
        a mask, or less security than 16 bits; ChannelError, ProtocolViolation.
    Source: README section 9.
    """
    _require(ctx, ring, prime, bits=bits, security_bits=security_bits)
    shape, half = x.shape, 1 << (bits - 1)
    # y = x + 2^(bits - 1) is not negative.
    y = (x.reshape(-1).astype(object) + half) % prime
    if is_one_round(prime, bits, security_bits):
        # c = y + r0 + r1 + r2 does not reach the prime, so that its components are c - r0, -r1, -r2 in any ring.
        masks = _short_masks(ctx, mask_bits(prime, bits), y.size)
        c = await _show_masked(ctx, y, masks, prime=prime)
        own, next_ = _components(ctx.pid, c, masks)
        x_sh = Share(ring, ctx.pid, ring.encode(own), ring.encode(next_)) - half
    else:
        x_sh = await _to_ring_exactly(ctx, y, prime, ring=ring) - half
    return x_sh.reshape(*shape)


async def _to_ring_exactly(ctx: Context, y: RingArray, prime: int, *, ring: Ring) -> Share:
    """Returns y (n,) in [0, prime), with masks that are uniform modulo the prime, in a ring.

    The components in [0, p) add up to y + w p over the integers, w is 0, 1 or 2: it counts the signs of their sum less
    p and less 2 p, which are exact in a ring that holds both.
    """
    if prime >= _LARGEST_EXACT:
        raise ValueError(
            f"a prime of {prime.bit_length()} bits is too large to count its wraps; lower the bound of the values"
        )
    masks = _residues(ctx, prime, y.size)
    c = await _show_masked(ctx, y, masks, prime=prime)
    own, next_ = (part % prime for part in _components(ctx.pid, c, masks))
    whole = _ring_of_sums(prime, ring)
    sum_sh = Share(whole, ctx.pid, whole.encode(own), whole.encode(next_))
    # Both lie in [-2 p, 2 p).
    less = await msb(ctx, concatenate(sum_sh - prime, sum_sh - 2 * prime), _sign_bits(prime))
    wraps = (await bits_to_ring(ctx, ~less, 2 * y.size, ring)).reshape(2, y.size).sum(axis=0)
    return sum_sh.narrowed(ring) - wraps.times(prime)


async def from_ring(
    ctx: Context,
    x_sh: Share,
    *,
    prime: int,
    bits: int,
    security_bits: int = SECURITY_BITS,
) -> RingArray:
    """Returns points modulo ``prime`` of values in replicated shares of a ring: the inverse of ``to_ring``.

    Shapes: any; points, object. Every value lies in [-2^(bits-1), 2^(bits-1)).
    Leaks: parties 0 and 2 see x + r0 + r1 + r2, within 2^-security_bits a value.
    Rounds: 1 where the ring is security_bits + 2 bits wider than the values; else ``lift_magnitude`` to such a ring
        before.
    Communication: n elements of that ring by party 1 to each other, and ``lift_magnitude``.
    Raises: ValueError for a bound that the ring or the prime has no room for; ChannelError, ProtocolViolation.
    Source: README section 9.
    """
    _require(ctx, x_sh.ring, prime, bits=bits, security_bits=security_bits)
    shape, half = x_sh.shape, 1 << (bits - 1)
    y_sh = x_sh.reshape(x_sh.size) + half
    wide = _masking_ring(y_sh.ring, bits, security_bits)
    if wide is not y_sh.ring:
        # y < 2^bits is its own distance from 0 modulo 2^(bits + 1).
        y_sh = await lift_magnitude(ctx, y_sh, bits + 1, wide)
    # c = y + r0 + r1 + r2 does not reach the ring's size, so that it is the same number modulo the prime.
    masks = _short_masks(ctx, wide.bits - 2, y_sh.size)
    r_sh = Share(wide, ctx.pid, wide.encode(masks.own), wide.encode(masks.next))
    c = await reveal_component(ctx, y_sh + r_sh, 0)
    own, next_ = _components(ctx.pid, None if c is None else c.astype(object) - half, masks)
    return _points(ctx.pid, Masks(own, next_), prime).reshape(shape)


def to_ring_cost(
    size: int, prime: int, *, bits: int, ring: Ring = R32, security_bits: int = SECURITY_BITS
) -> Cost:
    """Cost of ``to_ring`` of so many values."""
    points = size * _point_bytes(prime)
    shown = Cost(1, (points, 0, points))
    if is_one_round(prime, bits, security_bits):
        return shown
    return (
        shown + costs.msb(2 * size, _sign_bits(prime)) + costs.bits_to_ring(2 * size, ring.itemsize)
    )


def from_ring_cost(size: int, ring: Ring, *, bits: int, security_bits: int = SECURITY_BITS) -> Cost:
    """Cost of ``from_ring`` of so many values of a ring."""
    wide = _masking_ring(ring, bits, security_bits)
    shown = Cost(1, (0, 2 * size * wide.itemsize, 0))
    return shown if wide is ring else costs.lift_magnitude(size, bits + 1, wide.itemsize) + shown


def _require(ctx: Context, ring: Ring, prime: int, *, bits: int, security_bits: int) -> None:
    if ctx.verifier is not None:
        raise ValueError("points that one party shows to another cannot be checked")
    if ring.boolean:
        raise ValueError(f"numbers are shared in a ring of integers, not in {ring.name}")
    if security_bits < SMALLEST_SECURITY:
        raise ValueError(f"security_bits = {security_bits}; expected {SMALLEST_SECURITY} or more")
    if bits < 1 or prime < 5 or 1 << bits > prime:
        raise ValueError(
            f"values of {bits} bits do not fit a prime of {prime.bit_length()} bits, or it is below 5"
        )


def _sign_bits(prime: int) -> int:
    return (2 * prime).bit_length() + 1


def _ring_of_sums(prime: int, ring: Ring) -> Ring:
    """Returns a ring with room for three components below a prime, with a sign, and no smaller than ``ring``."""
    return R64 if 3 * prime < 1 << 62 and ring.bits <= 64 else R128


def _masking_ring(ring: Ring, bits: int, security_bits: int) -> Ring:
    """Returns the ring that a value is shown in, under three masks of its bits less 2."""
    for wide in (ring, R64, R128):
        if wide.bits >= ring.bits and wide.bits - 2 - bits >= security_bits:
            break
    else:
        raise ValueError(
            f"values of {bits} bits leave no mask of {security_bits} bits more in {R128.name}"
        )
    if wide is not ring and bits + 1 > ring.bits:
        raise ValueError(f"values of {bits} bits have no room in {ring.name}; lower their bound")
    return wide


def _short_masks(ctx: Context, bits: int, size: int) -> Masks:
    """Returns components of masks (size,), each uniform below 2^bits. Free."""
    low = (1 << bits) - 1
    r_sh = random(ctx, R64 if bits <= 64 else R128, (size,))
    return Masks(r_sh.own.astype(object) & low, r_sh.next.astype(object) & low)


def _residues(ctx: Context, prime: int, size: int) -> Masks:
    """Returns components of masks (size,), each uniform modulo the prime: by rejection, in a context of their own."""
    bits, c = prime.bit_length(), ctx.child()
    ring = R64 if bits <= 64 else R128
    # Both holders of a component read the same stream, and leave out the same of it, however far each one reads.
    found: tuple[list[int], list[int]] = ([], [])
    while min(len(found[0]), len(found[1])) < size:
        drawn = random(c, ring, (2 * size + 16,))
        for part, taken in zip((drawn.own, drawn.next), found, strict=True):
            numbers = part.astype(object) & ((1 << bits) - 1)
            taken.extend(int(number) for number in numbers if number < prime)
    own, next_ = (_objects(taken[:size]) for taken in found)
    return Masks(own, next_)


async def _show_masked(ctx: Context, y: RingArray, masks: Masks, *, prime: int) -> RingArray | None:
    """Shows parties 0 and 2 the value y + r0 + r1 + r2 modulo the prime, of points y (n,); None at party 1.

    Each of both has one point of the sum's line, and is sent the other one: value and line are the same knowledge.
    Components r that a party lacks hide the value.
    """
    if ctx.pid not in (_FIRST, _SECOND):
        await ctx.round({}, {})
        return None
    mine = (y + _points(ctx.pid, masks, prime)) % prime
    peer, size = _FIRST + _SECOND - ctx.pid, _point_bytes(prime)
    received = await ctx.round({peer: _to_wire(mine, size)}, {peer: mine.size * size})
    other = _from_wire(received[peer], size)
    if any(point >= prime for point in other):
        raise ProtocolViolation(f"party {peer} sent a point that is none of the field", peer)
    at_1, at_3 = (mine, other) if ctx.pid == _FIRST else (other, mine)
    return (3 * at_1 - at_3) * ((prime + 1) // 2) % prime


def _components(pid: int, c: RingArray | None, masks: Masks) -> tuple[RingArray, RingArray]:
    """Returns this party's components of c - r0 - r1 - r2, where c is in component 0, whose holders know it."""
    parts = [-masks.own, -masks.next]
    if c is not None:
        parts[0 if pid == 0 else 1] = c + parts[0 if pid == 0 else 1]
    return parts[0], parts[1]


def _points(pid: int, parts: Masks, prime: int) -> RingArray:
    """Returns the party's points of the sum of three components, of which it has its two. Local.

    Component c is the value at 0 of a line that is 0 at the point of the party without it, party c + 1.
    """
    total = _objects([0] * parts.own.size)
    for component, part in ((pid, parts.own), ((pid + 1) % 3, parts.next)):
        lacking = (component + 1) % 3 + 1
        factor = (1 - (pid + 1) * pow(lacking, -1, prime)) % prime
        total = total + part * factor
    return total % prime


def _point_bytes(prime: int) -> int:
    return (prime.bit_length() + 7) // 8


def _to_wire(points: RingArray, size: int) -> Payload:
    raw = b"".join(int(point).to_bytes(size, "little") for point in points)
    return np.frombuffer(raw, np.uint8)


def _from_wire(raw: Payload, size: int) -> RingArray:
    octets = raw.tobytes()
    starts = range(0, len(octets), size)
    return _objects([int.from_bytes(octets[at : at + size], "little") for at in starts])


def _objects(values: list[int]) -> RingArray:
    """Returns Python integers in an array that keeps them as they are."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
