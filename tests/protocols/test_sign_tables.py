"""Tables of signs give what adding up gate by gate gives; a proof's first two steps fit one another."""

import numpy as np
import pytest

from protocols import sign_tables
from protocols.bitslice import to_bits
from protocols.inner_proof import uniform
from protocols.keystream import Keystream
from protocols.mersenne import F61
from protocols.records import Record, Side
from protocols.ring import BITS
from protocols.shares import Origin, Share
from protocols.verify_bits import Gates, blocks_for, columns_for

P = F61.modulus


def stream() -> Keystream:
    return Keystream(bytes(16), b"sign tables")


def words(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, shape, np.uint64)


def columns_of(planes: list[np.ndarray], blocks: int) -> list[np.ndarray]:
    """Bits of x, y and the last: (columns, blocks) each."""
    return [to_bits(plane, plane.size * 64).reshape(-1, blocks) for plane in planes]


def kinds(planes: list[np.ndarray], blocks: int, *, left: bool) -> np.ndarray:
    """The bits of the four signs (4, columns, blocks), from their definition."""
    x, y, last = columns_of(planes, blocks)
    each = ((0, 0), (1, 0), (0, 1), (1, 1))
    if left:
        return np.array([last ^ x * a ^ y * b for a, b in each])
    return np.array([last ^ (y ^ a) & (x ^ b) for a, b in each])


def test_four_products_are_twice_the_sign_of_an_error() -> None:
    left, right = (tuple(words(64, seed=s + i) for i in range(3)) for s in (5, 8))
    of_left, of_right = (
        1 - 2 * kinds(planes, 64, left=side).astype(int)
        for planes, side in ((left, True), (right, False))
    )
    (x, y, h), (other_x, other_y, g) = (columns_of(planes, 64) for planes in (left, right))
    error = h ^ g ^ x & y ^ x & other_y ^ y & other_x
    assert np.array_equal((of_left * of_right).sum(axis=0), 2 - 4 * error.astype(int))


def test_drawn_digits_are_2_to_the_45_and_their_sums_have_no_carries() -> None:
    factors = sign_tables.drawn_digits(stream(), F61, 2000)
    digits = np.array([[f >> 21 * i & (1 << 21) - 1 for i in range(3)] for f in factors])
    assert np.array_equal(digits @ [1, 1 << 21, 1 << 42], factors)
    assert digits.max() < 1 << 15
    assert 64 * ((1 << 15) - 1) < 1 << 21
    # The largest factor is below the prime, so that they differ modulo it.
    assert sum(((1 << 15) - 1) << 21 * i for i in range(3)) < P
    # Each bit is a fair coin: 2,000 of them are off by 5.5 standard deviations with 4e-8.
    ones = (digits[:, :, None] >> np.arange(15) & 1).sum(axis=0)
    assert np.abs(ones - 1000).max() < 5.5 * np.sqrt(500)


def gates_of(count: int) -> Gates:
    shares = [Share(BITS, 0, words(count, seed=s), words(count, seed=s + 50)) for s in range(4)]
    x_bsh, y_bsh, masks, z = shares
    return Gates([Record((Origin(x_bsh, y_bsh),), masks, z)])


@pytest.mark.parametrize("count", [1, 5, 300, 2049, 2048 + 64 * 40])
def test_each_step_of_a_proof_begins_with_what_the_one_before_leaves(count: int) -> None:
    """alpha^T G beta is the trace of the second step's matrix, and with its factors the product of folded vectors."""
    gates, drawn = gates_of(count), stream()
    blocks = blocks_for(count)
    assert gates.count == blocks * columns_for(count) >= 64 * count
    alpha, beta = (sign_tables.drawn_digits(drawn, F61, blocks) for _ in range(2))
    first, second = gates.gram(), gates.second_gram(alpha, beta)
    assert int(alpha @ first @ beta) % P == int(np.trace(second)) % P

    s, t = (uniform(drawn, F61, 16) for _ in range(2))
    left, right = gates.fold_left(Side.OWN, alpha, s), gates.fold_right(Side.NEXT, beta, t)
    product = sum(F61.to_ints(left) * F61.to_ints(right)) % P
    assert product == int(s @ second @ t) % P
