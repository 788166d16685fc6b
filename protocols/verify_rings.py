"""Proofs that products in a ring Z_2^k were computed correctly: all recorded products, in one inner product.

Party i sends z_i = sum of maps(x_i y_i + x_i y_{i+1} + x_{i+1} y_i) + r_i - r_{i+1} modulo 2^k. Over the integers the
two sides differ by a multiple of 2^k, so the equation is taken modulo 2^K, K = k + s: the prover sends q in Z_2^s, the
overflow, as shares to the two verifiers (left, right). Then

    S - 2^k q = 0 modulo 2^K,   S = maps(x_i y_i) + r_i - z_i  -  r_{i+1}  +  maps(x_i y_{i+1} + x_{i+1} y_i),

for each element, in sums of random coefficients c of Z_2^K: with c^ from the maps' adjoint, <c^ x_i, y_{i+1}> + <c^
y_i, x_{i+1}> plus F, known to left, and G, known to right, is a multiple of 2^K, say 2^K W. Both sides are numbers, not
residues. W, in bits that left and right share by XOR, sum of 2^t (l_t + r_t - 2 l_t r_t), is in range by itself. So the
equation holds over the integers if it holds modulo a prime above all of it: an inner product for ``inner_proof``.

Secret: everything but the coefficients. Leaks: none. Source: README section 7; a sum modulo 2^K that misses an error
modulo 2^k with 2^-(s+1) as in SPDZ2k (Cramer et al., CRYPTO 2018).
"""

import math
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
    blocks_of,
    prove_inner_products,
)
from protocols.keystream import Keystream
from protocols.mersenne import F127, F255, F383, Field, Integers, Vector, words_of
from protocols.records import Record, Side, Structure, shapes_of
from protocols.ring import R16, R32, R64, R128, Ring, RingArray, is_blank
from protocols.shares import Origin
from protocols.wide import (
    Planes,
    add,
    add_mapped,
    inner_product,
    multiply,
    planes_of,
    subtract,
    summed_to,
    taken_back,
    write,
)


@dataclass(frozen=True, slots=True)
class Scheme:
    """Parameters of proofs of products in ``ring``: ``extra`` = s more bits, ``sums``, in ``field``."""

    ring: Ring
    quotients: Ring
    sums: int
    field: Field

    @property
    def extra(self) -> int:
        """s, the bits beyond the ring's."""
        return self.quotients.bits

    @property
    def bits(self) -> int:
        """K, the bits of the modulus of the sums."""
        return self.ring.bits + self.extra

    @property
    def words(self) -> int:
        """64-bit words of a number modulo 2^K, or of more bits where whole words wrap by themselves."""
        return -(-self.bits // R64.bits)

    def carry_bits(self, terms: int) -> int:
        """Returns the bits of W: an inner product of ``terms``, of K and k bits, and two numbers to 2^K, over 2^K."""
        return self.ring.bits + terms.bit_length() + 2


# A sum misses an error with 2^-33 at s = 32, hence two of them; with 2^-65 at s = 64. The fields are above all sums:
# K + k + log2(terms) + 2 bits.
SCHEMES = {
    scheme.ring: scheme
    for scheme in (
        Scheme(R16, R32, 2, F127),
        Scheme(R32, R32, 2, F127),
        Scheme(R64, R64, 1, F255),
        Scheme(R128, R64, 1, F383),
    )
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Term:
    """Two factors of a term of a product: left's x_i and right's y_{i+1}; y_i and x_{i+1} if ``crossed``. Secret."""

    origin: Origin
    crossed: bool

    def factors(self, left: Side, right: Side) -> tuple[RingArray, RingArray]:
        """Returns the two components: left's, and right's."""
        x_sh, y_sh = self.origin.left, self.origin.right
        if y_sh is None:
            raise ValueError("a linear origin has one factor")
        return (left.of(y_sh), right.of(x_sh)) if self.crossed else (left.of(x_sh), right.of(y_sh))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of right's factor; left's is brought into it."""
        y_sh = self.origin.right
        return self.origin.left.shape if self.crossed or y_sh is None else y_sh.shape

    @property
    def size(self) -> int:
        """Number of elements of right's factor."""
        return math.prod(self.shape)


class RingProducts:
    """Values of one ring that one party has to prove, in their order, as the party here holds them."""

    def __init__(self, ring: Ring, records: Sequence[Record], structure: Structure) -> None:
        self.scheme = SCHEMES[ring]
        active = [(r, z) for r, z in zip(records, structure.values, strict=True) if z.active]
        self._records = [record for record, _ in active]
        self._terms = [
            [
                _Term(origin, crossed)
                for origin, against in zip(record.origins, value.against, strict=True)
                for crossed in (False, True)
                if against[crossed]
            ]
            for record, value in active
        ]
        ends = np.cumsum([0, *(record.z_sh.size for record in self._records)]).tolist()
        self.elements = ends[-1]
        self.terms = padded_terms(ring, sum(term.size for term in self._all_terms()))
        self.carry_bits = self.scheme.carry_bits(self.terms)
        if self.scheme.bits + self.carry_bits >= self.scheme.field.exponent:
            raise ValueError(f"{self.terms} terms in {ring.name} are too many for one proof")

    def __repr__(self) -> str:
        return f"RingProducts({self.scheme.ring.name}, {self.elements} elements)"

    def _all_terms(self) -> Iterator[_Term]:
        return (term for terms in self._terms for term in terms)

    def _planes(self, x: RingArray) -> Planes:
        return planes_of(self.scheme.ring, x)

    def _product(self, x: RingArray, y: RingArray) -> Planes:
        return multiply(self._planes(x), self._planes(y), self.scheme.words)

    def _zeros(self, shape: tuple[int, ...]) -> Planes:
        return np.zeros((self.scheme.words, *shape), np.uint64)

    def _widened(self, x: RingArray) -> Planes:
        found = self._zeros(x.shape)
        narrow = self._planes(x)
        found[: len(narrow)] = narrow
        return found

    def left_parts(self, side: Side) -> Planes:
        """Returns maps(x_i y_i) + r_i - z_i of every element, known to left and the prover: (words, elements)."""
        parts = []
        for record in self._records:
            # r_i - z_i, then maps(x_i y_i) of each origin; a linear origin adds maps(x_i).
            total = self._widened(side.of(record.masks_sh))
            subtract(total, self._planes(side.of(record.z_sh)))
            for origin in record.origins:
                x, y_sh = side.of(origin.left), origin.right
                if is_blank(x) or (y_sh is not None and is_blank(side.of(y_sh))):
                    continue
                term = self._widened(x) if y_sh is None else self._product(x, side.of(y_sh))
                add_mapped(total, origin.maps, term)
            parts.append(total.reshape(len(total), -1))
        return _side_by_side(parts)

    def right_parts(self, side: Side) -> Planes:
        """Returns -r_{i+1} of every element, known to right and the prover: (words, elements)."""
        found, at = self._zeros((self.elements,)), 0
        for record in self._records:
            masks = self._planes(side.of(record.masks_sh))
            here = self._zeros(masks.shape[1:])
            subtract(here, masks)
            found[:, at : at + record.z_sh.size] = here.reshape(len(here), -1)
            at += record.z_sh.size
        return found

    def cross_parts(self) -> Planes:
        """Returns maps(x_i y_{i+1} + x_{i+1} y_i) of every element, known to the prover: (words, elements)."""
        parts = []
        for record, terms in zip(self._records, self._terms, strict=True):
            total = self._zeros(record.z_sh.shape)
            for term in terms:
                whole = self._product(*term.factors(Side.OWN, Side.NEXT))
                add_mapped(total, term.origin.maps, whole)
            parts.append(total.reshape(len(total), -1))
        return _side_by_side(parts)

    def left_vector(self, side: Side, coefficients: Sequence[Planes]) -> Vector:
        """Returns for each term c^ x_i or c^ y_i, modulo 2^K, of each sum: (sums terms, words)."""
        words = self.scheme.words
        found = np.zeros((len(coefficients), self.terms, words), np.uint64)
        start = at = 0
        for record, terms in zip(self._records, self._terms, strict=True):
            stop, shape = start + record.z_sh.size, record.z_sh.shape
            for term in terms:
                x = self._planes(term.factors(side, side)[0])
                here = slice(at, at + term.size)
                at = here.stop
                for row, c in zip(found, coefficients, strict=True):
                    # c^ = the coefficients, taken back through the maps by their adjoints; broadcast axes of right's
                    # factor are summed.
                    taken = _taken_back(term.origin, c[:, start:stop].reshape(words, *shape))
                    write(row[here], summed_to(multiply(taken, x, words), term.shape))
            start = stop
        if unused := R64.bits * words - self.scheme.bits:
            found[:, :, -1] &= ~np.uint64(0) >> np.uint64(unused)
        return found.reshape(-1, words)

    def right_vector(self, side: Side) -> Vector:
        """Returns y_{i+1} or x_{i+1} of each term: (terms, words)."""
        found = np.zeros((self.terms, -(-self.scheme.ring.bits // R64.bits)), np.uint64)
        at = 0
        for term in self._all_terms():
            write(found[at : at + term.size], self._planes(term.factors(side, side)[1]))
            at += term.size
        return found

    def coefficients(self, stream: Keystream) -> list[Planes]:
        """Draws the stream's next coefficients modulo 2^K of every element (words, elements), for each sum."""
        words = self.scheme.words
        return [
            stream.read(8 * words * self.elements).view(np.uint64).reshape(words, -1)
            for _ in range(self.scheme.sums)
        ]

    def known_sums(self, coefficients: Sequence[Planes], parts: Planes, q: RingArray) -> list[int]:
        """Returns the sums of c (part - 2^k q) modulo 2^K: F of left, and G of right."""
        # This verifier's share of q; the shares' sum is q modulo 2^s, so 2^k q is right modulo 2^K.
        shared = planes_of(self.scheme.quotients, q)
        return [
            (inner_product(c, parts) - (inner_product(c, shared) << self.scheme.ring.bits))
            % (1 << self.scheme.bits)
            for c in coefficients
        ]


def padded_terms(ring: Ring, terms: int) -> int:
    """Rounds so many terms up to whole blocks of a proof's first step; at least one block."""
    blocks = blocks_of(SCHEMES[ring].field)
    return -(-max(1, terms) // blocks) * blocks


def _side_by_side(parts: Sequence[Planes]) -> Planes:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _taken_back(origin: Origin, c: Planes) -> Planes:
    """Returns the coefficients of an origin's results as those of the arguments of its maps."""
    shape = origin.left.shape
    if origin.right is not None:
        shape = np.broadcast_shapes(shape, origin.right.shape)
    for step, before in reversed(shapes_of(origin)):
        c = taken_back(step, before, c)
    return np.broadcast_to(c, (len(c), *shape))


async def prove_ring_products(ctx: Context, products: RingProducts) -> None:
    """Runs a proof by role 0 of its part of all values of one ring, to the two others.

    Leaks: none.
    Rounds: 3 and those of ``prove_inner_products``.
    Communication: ``costs.verify_rings``: s bits an element by role 0, and some 5 to 30 KB.
    Raises: CheckFailed where a value or a part of its proof is wrong; ChannelError, ProtocolViolation.
    Source: README section 7.
    """
    talk, own = Conversation(ctx), ctx.pid == PROVER
    sides = Side.OWN if own else Side.NEXT, Side.NEXT if own else Side.OWN
    known = [
        None if ctx.pid == RIGHT else products.left_parts(sides[0]),
        None if ctx.pid == LEFT else products.right_parts(sides[1]),
    ]
    quotients = await _share_quotients(talk, products, known)
    coefficients = products.coefficients(await talk.challenge())
    sums = [0] * products.scheme.sums
    for parts, q in zip(known, quotients, strict=True):
        if parts is not None and q is not None:
            found = products.known_sums(coefficients, parts, q)
            sums = [a + b for a, b in zip(sums, found, strict=True)]
    del known, quotients
    left = None if ctx.pid == RIGHT else products.left_vector(sides[0], coefficients)
    right = None if ctx.pid == LEFT else products.right_vector(sides[1])
    del coefficients
    await _prove_sums(talk, products, left, right, sums)


async def _share_quotients(
    talk: Conversation, products: RingProducts, known: Sequence[Planes | None]
) -> list[RingArray | None]:
    """Returns left's and right's shares of q, where this party has them."""
    ring, count = products.scheme.quotients, products.elements
    size = count * ring.itemsize
    mask = None if talk.ctx.pid == RIGHT else talk.with_left(ring, (count,))
    left, right = known
    if mask is not None and left is not None and right is not None:
        # S of the module's description, modulo 2^K; q = S / 2^k, since S is 0 modulo 2^k.
        s = products.cross_parts()
        add(s, left)
        add(s, right)
        word, shift = divmod(products.scheme.ring.bits, R64.bits)
        q = (s[word] >> np.uint64(shift)).astype(ring.dtype)
        rest = ring.sub(q, mask)
        await talk.tell(ring.to_wire(rest), size)
        return [mask, rest]
    received = await talk.tell(None, size)
    return [mask, None if received is None else ring.from_wire(received, (count,))]


async def _share_carries(
    talk: Conversation, products: RingProducts, carries: list[int] | None
) -> list[list[int] | None]:
    """Returns left's and right's parts, by XOR, of the numbers W, where this party has them."""
    scheme = products.scheme
    bits = products.carry_bits
    words = -(-bits // 64)
    masks = None
    if talk.ctx.pid != RIGHT:
        drawn = talk.with_left(R64, (scheme.sums, words))
        masks = [int.from_bytes(row.tobytes(), "little") % (1 << bits) for row in drawn]
    size = 8 * words * scheme.sums
    if carries is not None and masks is not None:
        rest = [(carry ^ mask) % (1 << bits) for carry, mask in zip(carries, masks, strict=True)]
        raw = b"".join(part.to_bytes(8 * words, "little") for part in rest)
        await talk.tell(np.frombuffer(raw, np.uint8), size)
        return [masks, rest]
    received = await talk.tell(None, size)
    if received is None:
        return [masks, None]
    raw, step = received.tobytes(), 8 * words
    parts = [int.from_bytes(raw[i : i + step], "little") for i in range(0, size, step)]
    if any(part >> bits for part in parts):
        raise CheckFailed(f"a proof before step {talk.ctx.cost.step!r} has a number out of range")
    return [masks, parts]


async def _prove_sums(
    talk: Conversation,
    products: RingProducts,
    left: Vector | None,
    right: Vector | None,
    sums: Sequence[int],
) -> None:
    """Proves <left, right> + F + G - 2^K W = 0 for each sum, with W's product of bits as further terms."""
    scheme, field = products.scheme, products.scheme.field
    grams, carries = list[Integers](), None
    if left is not None and right is not None:
        blocks = blocks_of(field)
        grams = [field.gram(left, right, blocks)]
        # 2^K W = <left, right> + F + G: the trace of the blocks' matrix, and the prover's ``sums``.
        found = np.trace(grams[0].reshape(scheme.sums, blocks, blocks), axis1=1, axis2=2)
        carries = [(int(a) + b) >> scheme.bits for a, b in zip(found, sums, strict=True)]
    of_left, of_right = await _share_carries(talk, products, carries)
    mine = [*(of_left or ()), *(of_right or ())][: scheme.sums]
    bits = products.carry_bits
    # W = sum of 2^t (l_t + r_t - 2 l_t r_t). The linear part and F or G make the claim; 2^(K + t + 1) l_t r_t are
    # terms: <left, right> + sum of 2^(K + t + 1) l_t r_t = (2^K l - F) + (2^K r - G).
    claims = [
        ((part << scheme.bits) - known) % field.modulus
        for part, known in zip(mine, sums, strict=True)
    ]
    lefts = rights = None
    if left is not None:
        lefts = [left, _carry_terms(scheme, of_left or (), bits)]
    if right is not None:
        rights = [right, words_of(_bits_of(of_right or (), bits), 1)]
    counts = [products.terms, scheme.sums * bits]
    del left, right
    await prove_inner_products(talk, field, lefts, rights, claims, counts=counts, first_grams=grams)


def _bits_of(parts: Sequence[int], bits: int) -> list[int]:
    return [part >> t & 1 for part in parts for t in range(bits)]


def _carry_terms(scheme: Scheme, parts: Sequence[int], bits: int) -> Vector:
    """Returns 2^(K + t + 1) times bit t of left's part of each W, at its own places; zeros at the other sums' ones."""
    rows = []
    for number, part in enumerate(parts):
        weights = [(part >> t & 1) << scheme.bits + t + 1 for t in range(bits)]
        rows += [*[0] * (number * bits), *weights, *[0] * ((len(parts) - number - 1) * bits)]
    return scheme.field.from_ints(rows)
