"""Proofs that products in a ring Z_2^k were computed as they should be: all that were recorded, in one inner product.

Party i sends z_i = sum of maps(x_i y_i + x_i y_{i+1} + x_{i+1} y_i) + r_i - r_{i+1} modulo 2^k. Over the integers that
is off by a multiple of 2^k, so that it is looked at modulo 2^K, K = k + s: there the prover says which one, q in Z_2^s,
in shares of left and right. Then

    S - 2^k q = 0 modulo 2^K,   S = maps(x_i y_i) + r_i - z_i  -  r_{i+1}  +  maps(x_i y_{i+1} + x_{i+1} y_i),

for each element, in sums of random coefficients c of Z_2^K: with c^ from the maps' adjoint, <c^ x_i, y_{i+1}> +
<c^ y_i, x_{i+1}> plus what left knows, F, and what right knows, G, is a multiple of 2^K, say 2^K W. Both sides are
numbers, not residues: W, in bits that left and right share by XOR, sum of 2^t (l_t + r_t - 2 l_t r_t), is in range by
itself, and the equation holds over the integers where it holds modulo a prime above all of it: an inner product for
``inner_proof``.

Secret: everything but the coefficients. Leaks: none. Source: README section 7; a sum modulo 2^K that misses an error
modulo 2^k with 2^-(s+1) as in SPDZ2k (Cramer et al., CRYPTO 2018).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from protocols.context import Context
from protocols.errors import CheckFailed
from protocols.inner_proof import (
    LEFT,
    PROVER,
    RIGHT,
    Conversation,
    prove_inner_products,
)
from protocols.keystream import Keystream
from protocols.mersenne import F127, F521, Field, Vector, limbs_of
from protocols.records import Record, Side, adjoint, shapes_of
from protocols.ring import R16, R32, R64, R128, R192, Ring, RingArray
from protocols.shares import Origin


@dataclass(frozen=True, slots=True)
class Scheme:
    """How products in ``ring`` are proved: with ``extra`` = s bits more, in ``wide``, so many sums, in ``field``."""

    ring: Ring
    wide: Ring
    quotients: Ring
    sums: int
    field: Field

    @property
    def extra(self) -> int:
        """The bits that are looked at beyond the ring's."""
        return self.quotients.bits

    @property
    def bits(self) -> int:
        """K, the bits of the modulus of the sums."""
        return self.ring.bits + self.extra

    def carry_bits(self, terms: int) -> int:
        """Bits of W: the integers of an inner product of ``terms`` terms, and two of at most 2^K, over 2^K."""
        return self.ring.bits + terms.bit_length() + 2

    def low(self, x: RingArray) -> RingArray:
        """Modulo 2^K."""
        if self.bits == self.wide.bits:
            return self.wide.reduce(x)
        return x & np.uint64((1 << self.bits) - 1)


# A sum misses an error with 2^-33 at s = 32, hence two of them; with 2^-65 at s = 64. The fields are above all sums:
# K + k + log2(terms) + 2 bits.
SCHEMES = {
    scheme.ring: scheme
    for scheme in (
        Scheme(R16, R64, R32, 2, F127),
        Scheme(R32, R64, R32, 2, F127),
        Scheme(R64, R128, R64, 1, F521),
        Scheme(R128, R192, R64, 1, F521),
    )
}


class RingProducts:
    """The recorded values of one ring, in their order, as this party holds them."""

    def __init__(self, ring: Ring, records: Sequence[Record]) -> None:
        self.scheme = SCHEMES[ring]
        self._records = records
        self.elements = sum(record.z_sh.size for record in records)
        # An origin's left factor stands against right's second one and the other way round.
        self.terms = sum(
            int(np.prod(factor.shape, dtype=np.int64))
            for origin in self._products()
            for factor in (origin.left, origin.right)
            if factor is not None
        )
        if self.scheme.bits + self.scheme.carry_bits(self.terms) >= self.scheme.field.exponent:
            raise ValueError(f"{self.terms} terms in {ring.name} are too many for one proof")

    def __repr__(self) -> str:
        return f"RingProducts({self.scheme.ring.name}, {self.elements} elements)"

    def _products(self) -> Iterator[Origin]:
        return (o for record in self._records for o in record.origins if o.right is not None)

    def _widened(self, x: RingArray) -> RingArray:
        return x.astype(self.scheme.wide.dtype)

    def left_parts(self, side: Side) -> RingArray:
        """maps(x_i y_i) + r_i - z_i of every element, as left and the prover know it: (elements,) modulo 2^K."""
        return self._flat(side, side)

    def right_parts(self, side: Side) -> RingArray:
        """-r_{i+1} of every element, as right and the prover know it: (elements,) modulo 2^K."""
        masks = [self._widened(side.of(r.masks_sh)).reshape(-1) for r in self._records]
        return self.scheme.low(-np.concatenate(masks))

    def quotients(self) -> RingArray:
        """q of every element of the prover's: (elements,) modulo 2^s."""
        s = self._flat(Side.OWN, Side.OWN) + self.right_parts(Side.NEXT)
        s = s + self._flat(Side.OWN, Side.NEXT) + self._flat(Side.NEXT, Side.OWN)
        q = self.scheme.low(s) >> self.scheme.ring.bits
        return q.astype(self.scheme.quotients.dtype)

    def _flat(self, first: Side, second: Side) -> RingArray:
        """maps(x y) of components of all elements; with the rest of what left knows, where both are the same."""
        parts = []
        wide, low = self.scheme.wide, self.scheme.low
        for record in self._records:
            total = wide.zeros(record.z_sh.shape)
            if first is second:
                mask, sent = first.of(record.masks_sh), first.of(record.z_sh)
                total = self._widened(mask) - self._widened(sent)
            for origin in record.origins:
                if origin.right is None and first is not second:
                    continue
                term = self._widened(first.of(origin.left))
                if origin.right is not None:
                    term = low(term * self._widened(second.of(origin.right)))
                for step in origin.maps:
                    term = step(wide, term)
                total = total + term
            parts.append(low(total).reshape(-1))
        return np.concatenate(parts)

    def left_vector(self, side: Side, coefficients: RingArray) -> Vector:
        """For each term c^ x_i or c^ y_i, modulo 2^K: (terms, limbs)."""
        start, parts = 0, []
        for record in self._records:
            stop = start + record.z_sh.size
            c = coefficients[start:stop].reshape(record.z_sh.shape)
            start = stop
            for origin in record.origins:
                if origin.right is not None:
                    parts += self._scaled_factors(origin, side, c)
        limbs = self.scheme.bits // 16
        if self.scheme.wide.wide:
            return limbs_of(np.concatenate(parts), limbs)
        words = np.ascontiguousarray(np.concatenate(parts)).view(np.uint16)
        return words.reshape(-1, words.size // self.terms)[:, :limbs]

    def _scaled_factors(self, origin: Origin, side: Side, c: RingArray) -> list[RingArray]:
        """c^ x_i in the shape of y, which it stands against, and c^ y_i in that of x."""
        if origin.right is None:
            raise ValueError("a linear origin has one factor")
        wide = self.scheme.wide
        for step, shape in reversed(shapes_of(origin)):
            c = adjoint(step, wide, shape, c)
        x, y = (self._widened(side.of(factor)) for factor in (origin.left, origin.right))
        c = np.broadcast_to(c, np.broadcast_shapes(x.shape, y.shape))
        low = self.scheme.low
        against_y = low(_summed_to(low(c * x), y.shape))
        against_x = low(_summed_to(low(c * y), x.shape))
        return [against_y.reshape(-1), against_x.reshape(-1)]

    def right_vector(self, side: Side) -> Vector:
        """y_{i+1} and x_{i+1} of each product: (terms, limbs)."""
        parts = []
        for origin in self._products():
            if origin.right is not None:
                parts += [
                    side.of(origin.right).reshape(-1),
                    side.of(origin.left).reshape(-1),
                ]
        ring = self.scheme.ring
        joined = np.concatenate(parts)
        if ring.wide:
            return limbs_of(joined, ring.bits // 16)
        return joined.view(np.uint16).reshape(self.terms, -1)

    def coefficients(self, stream: Keystream) -> RingArray:
        """The stream's next coefficients, one for each element, modulo 2^K: (elements,)."""
        size = self.scheme.wide.bits // 8
        raw = stream.read(size * self.elements)
        if not self.scheme.wide.wide:
            return self.scheme.low(raw.view(np.uint64))
        text = raw.tobytes()
        drawn = np.empty(self.elements, object)
        drawn[:] = [int.from_bytes(text[i : i + size], "little") for i in range(0, len(text), size)]
        return drawn

    def known_sum(self, coefficients: RingArray, parts: RingArray, q: RingArray) -> int:
        """The sum of c (part - 2^k q) modulo 2^K: F of left, and G of right."""
        low, wide = self.scheme.low, self.scheme.wide
        shifted = low(q.astype(wide.dtype) << self.scheme.ring.bits)
        return int(low(np.asarray(low(coefficients * low(parts - shifted)).sum(), wide.dtype)))


def _summed_to(term: RingArray, shape: tuple[int, ...]) -> RingArray:
    """Sums over the axes that broadcasting to ``term`` added or stretched."""
    extra = term.ndim - len(shape)
    axes = (*range(extra), *(extra + i for i, n in enumerate(shape) if n < term.shape[extra + i]))
    return term.sum(axis=axes).reshape(shape) if axes else term


async def prove_ring_products(ctx: Context, products: RingProducts) -> None:
    """Role 0 proves its part of all values of one ring to the two others.

    Leaks: none.
    Rounds: 3 and those of ``prove_inner_products``.
    Communication: ``costs.verify_rings``: s bits an element by role 0, and some 20 to 40 KB.
    Raises: CheckFailed where a value or what is said of it is wrong; ChannelError, ProtocolViolation.
    Source: README section 7.
    """
    talk, scheme = Conversation(ctx), products.scheme
    q = await _share_quotients(talk, products)
    stream = await talk.challenge()
    own = ctx.pid == PROVER
    coefficients = [products.coefficients(stream) for _ in range(scheme.sums)]
    left = right = None
    sums = [0] * scheme.sums
    if ctx.pid != RIGHT:
        side = Side.OWN if own else Side.NEXT
        parts = products.left_parts(side)
        sums = [products.known_sum(c, parts, q[0]) for c in coefficients]
        left = np.concatenate([products.left_vector(side, c) for c in coefficients])
    if ctx.pid != LEFT:
        side = Side.NEXT if own else Side.OWN
        parts = products.right_parts(side)
        found = [products.known_sum(c, parts, q[-1]) for c in coefficients]
        sums = [a + b for a, b in zip(sums, found, strict=True)]
        right = products.right_vector(side)
    carries = await _share_carries(talk, products, _carries(products, left, right, sums))
    await _prove_sums(talk, products, left, right, sums, carries)


async def _share_quotients(talk: Conversation, products: RingProducts) -> list[RingArray]:
    """Left's and right's parts of q at the prover, one's own at the others."""
    ring, count = products.scheme.quotients, products.elements
    size = count * ring.itemsize
    masks = []
    if talk.ctx.pid != RIGHT:
        masks = [talk.with_left(ring, (count,))]
    if talk.ctx.pid == PROVER:
        rest = ring.sub(products.quotients(), masks[0])
        await talk.tell(ring.to_wire(rest), size)
        return [masks[0], rest]
    received = await talk.tell(None, size)
    return masks if received is None else [ring.from_wire(received, (count,))]


def _carries(
    products: RingProducts, left: Vector | None, right: Vector | None, sums: Sequence[int]
) -> list[int] | None:
    """W of each sum, at the prover."""
    if left is None or right is None:
        return None
    scheme = products.scheme
    found = [
        int(scheme.field.gram(part, right, 1)[0, 0])
        for part in left.reshape(scheme.sums, -1, left.shape[1])
    ]
    return [(a + b) >> scheme.bits for a, b in zip(found, sums, strict=True)]


async def _share_carries(
    talk: Conversation, products: RingProducts, carries: list[int] | None
) -> list[list[int]]:
    """Left's and right's parts, by XOR, of the numbers W at the prover; one's own at the others."""
    scheme = products.scheme
    bits = scheme.carry_bits(products.terms)
    words = -(-bits // 64)
    masks = []
    if talk.ctx.pid != RIGHT:
        drawn = talk.with_left(R64, (scheme.sums, words))
        masks = [int.from_bytes(row.tobytes(), "little") % (1 << bits) for row in drawn]
    size = 8 * words * scheme.sums
    if carries is not None:
        rest = [(carry ^ mask) % (1 << bits) for carry, mask in zip(carries, masks, strict=True)]
        raw = b"".join(part.to_bytes(8 * words, "little") for part in rest)
        await talk.tell(np.frombuffer(raw, np.uint8), size)
        return [masks, rest]
    received = await talk.tell(None, size)
    if received is None:
        return [masks]
    raw, step = received.tobytes(), 8 * words
    parts = [int.from_bytes(raw[i : i + step], "little") for i in range(0, size, step)]
    if any(part >> bits for part in parts):
        raise CheckFailed(f"a proof before step {talk.ctx.cost.step!r} has a number out of range")
    return [parts]


async def _prove_sums(
    talk: Conversation,
    products: RingProducts,
    left: Vector | None,
    right: Vector | None,
    sums: Sequence[int],
    carries: list[list[int]],
) -> None:
    """<left, right> + F + G - 2^K W = 0 for each sum, with W's product of bits as further terms."""
    scheme, p = products.scheme, products.scheme.field.modulus
    bits, count = scheme.carry_bits(products.terms), scheme.sums
    mine, other = carries[0], carries[-1]
    claims = [((part << scheme.bits) - known) % p for part, known in zip(mine, sums, strict=True)]
    lefts = rights = None
    if left is not None:
        lefts = [left, _carry_terms(scheme, mine, bits)]
    if right is not None:
        flat = [part >> t & 1 for part in other for t in range(bits)]
        rights = [right, limbs_of(flat, 1)]
    await prove_inner_products(
        talk, scheme.field, lefts, rights, claims, counts=[products.terms, count * bits]
    )


def _carry_terms(scheme: Scheme, parts: Sequence[int], bits: int) -> Vector:
    """2^(K + t + 1) times bit t of left's part of each W, at its own places; zeros at the other sums' ones."""
    rows = []
    for number, part in enumerate(parts):
        weights = [(part >> t & 1) << scheme.bits + t + 1 for t in range(bits)]
        rows += [*[0] * (number * bits), *weights, *[0] * ((len(parts) - number - 1) * bits)]
    return scheme.field.from_ints(rows)
