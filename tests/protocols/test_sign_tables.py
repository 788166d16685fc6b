"""Tables of signs give what adding up gate by gate gives; a proof's first two steps fit one another."""

from itertools import pairwise

import numpy as np
import pytest

from protocols import sign_tables, verify_bits
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


def gates_of(count: int, *cuts: int) -> Gates:
    """Gates of one record, or of those that the cuts leave."""
    return Gates(records_of(count, *cuts))


def records_of(count: int, *cuts: int) -> list[Record]:
    shares = [Share(BITS, 0, words(count, seed=s), words(count, seed=s + 50)) for s in range(4)]
    ends = [0, *cuts, count]
    parts = ([share[a:b] for share in shares] for a, b in pairwise(ends))
    return [Record((Origin(x_bsh, y_bsh),), masks, z) for x_bsh, y_bsh, masks, z in parts]


def errors_of(record: Record) -> np.ndarray:
    """The gates of a record that are wrong, as party 0 made it: (64 words,)."""
    (origin,), masks, z = record.origins, record.masks_sh, record.z_sh
    x, y = origin.left, origin.right
    wrong = z.own ^ masks.own ^ masks.next ^ x.own & (y.own ^ y.next) ^ x.next & y.own
    return to_bits(wrong, 64 * wrong.size)


@pytest.mark.parametrize("chunk", [4, 8, 1 << 13])
@pytest.mark.parametrize("count", [1, 5, 300, 2048, 2049, 2113])
def test_every_gate_counts_once_wherever_it_is(
    count: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of records of any sizes, none among them, which lie across quarters and chunks: each error costs the trace 4."""
    monkeypatch.setattr(verify_bits, "_CHUNK", chunk)
    cuts = 0, count // 3, count // 3, count // 2, count
    gates, records = gates_of(count, *cuts), records_of(count, *cuts)
    wrong = sum(int(errors_of(record).sum()) for record in records)
    assert wrong > 20 * count
    assert int(np.trace(gates.gram())) == 2 * gates.count - 4 * wrong

    factors = sign_tables.drawn_digits(stream(), F61, gates.blocks)
    weights = uniform(stream(), F61, 16)
    for found, left in (
        (gates.fold_left(Side.OWN, factors, weights), True),
        (gates.fold_right(Side.NEXT, factors, weights), False),
    ):
        planes = [np.zeros(gates.count // 64, np.uint64) for _ in range(3)]
        for plane, part in zip(planes, known(records, left=left), strict=True):
            plane[:count] = part
        signs = 1 - 2 * kinds(planes, gates.blocks, left=left).astype(object)
        sums = (signs @ factors).reshape(4, 4, -1)
        expected = np.tensordot(weights.reshape(4, 4), sums, ((0, 1), (1, 0))) % P
        assert np.array_equal(F61.to_ints(found), expected)


def known(records: list[Record], *, left: bool) -> list[np.ndarray]:
    """x, y and what left, of party 0's component, or right has besides, of all records."""
    side, parts = Side.OWN if left else Side.NEXT, []
    for record in records:
        (origin,), mask = record.origins, side.of(record.masks_sh)
        last = side.of(record.z_sh) ^ mask if left else mask
        parts.append((side.of(origin.left), side.of(origin.right), last))
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


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
