"""Numbers of several words are added, multiplied and mapped as Python's integers are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols import wide
from protocols.mersenne import ints_of, words_of
from protocols.records import adjoint
from protocols.ring import R16, R32, R64, R128, Ring
from protocols.shares import Grouped, LinearMap, Placed, Reshaped, Scaled, Summed

seeds = st.integers(0, 2**32 - 1)
some_words = st.integers(1, 3)


def numbers(words: int, shape: tuple[int, ...], generator: np.random.Generator) -> wide.Planes:
    """Random words, many of which carry far."""
    found = generator.integers(0, 1 << 64, (words, *shape), np.uint64)
    for edge in (0, 1, (1 << 64) - 1, 1 << 63, (1 << 32) - 1):
        found[generator.random(found.shape) < 0.15] = edge
    return found


def integers(x: wide.Planes) -> np.ndarray:
    return ints_of(np.ascontiguousarray(x.reshape(len(x), -1).T)).reshape(x.shape[1:])


def modulo(value: np.ndarray, words: int) -> np.ndarray:
    return np.asarray(value % (1 << 64 * words))


def same(x: wide.Planes, values: np.ndarray) -> bool:
    return x.shape[1:] == np.shape(values) and np.array_equal(integers(x), modulo(values, len(x)))


@pytest.mark.parametrize("ring", [R16, R32, R64, R128], ids=lambda ring: ring.name)
def test_ring_elements_are_the_same_numbers_in_planes(ring: Ring) -> None:
    values = np.array([[0, 1, 2], [-1, -2, 1 << (ring.bits - 1)]], object)
    x = ring.encode(values)
    planes = wide.planes_of(ring, x)
    assert planes.shape == (-(-ring.bits // 64), 2, 3)
    assert np.array_equal(integers(planes), values % (1 << ring.bits))
    vector = np.zeros((6, len(planes)), np.uint64)
    wide.write(vector, planes)
    assert np.array_equal(vector, words_of(values % (1 << ring.bits), len(planes)))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 4), st.sampled_from([(), (0,), (1,), (40,), (3, 5)]), seeds
)
def test_sums_and_differences_wrap_as_integers(
    words: int, other: int, shape: tuple[int, ...], seed: int
) -> None:
    generator = np.random.default_rng(seed)
    x, y = numbers(words, shape, generator), numbers(min(words, other), shape, generator)
    y.flags.writeable = False
    for operate, wanted in (
        (wide.add, integers(x) + integers(y)),
        (wide.subtract, integers(x) - integers(y)),
    ):
        total = x.copy()
        operate(total, y)
        assert same(total, wanted)


SHAPES = [((), ()), ((7,), ()), ((1,), (7,)), ((5, 1), (1, 4)), ((4,), (3, 4)), ((0,), (1,))]


@settings(max_examples=80, deadline=None)
@given(some_words, some_words, some_words, st.sampled_from(SHAPES), st.booleans(), seeds)
def test_products_wrap_as_integers(
    words: int,
    other: int,
    kept: int,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    swapped: bool,
    seed: int,
) -> None:
    generator = np.random.default_rng(seed)
    first, second = reversed(shapes) if swapped else shapes
    x, y = numbers(words, first, generator), numbers(other, second, generator)
    assert same(wide.multiply(x, y, kept), integers(x) * integers(y))


@settings(max_examples=30, deadline=None)
@given(some_words, some_words, st.integers(0, 50), seeds)
def test_inner_products_are_exact(words: int, other: int, count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, y = numbers(words, (count,), generator), numbers(other, (count,), generator)
    assert wide.inner_product(x, y) == sum(integers(x) * integers(y))


MAPS: list[LinearMap] = [
    Summed(0),
    Summed(-1),
    Grouped(np.array([0, 1, 4])),
    Placed(2, 9),
    Scaled(3),
    Scaled(-2),
    Reshaped((2, 3, 4)),
]


class _Integers:
    """A ring of all integers, for maps of object arrays."""

    boolean, dtype = False, np.dtype(object)

    def reduce(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x, object)

    def zeros(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros(shape, object)

    def encode(self, value: int) -> int:
        return value

    def mul(self, x: np.ndarray, y: int) -> np.ndarray:
        return self.reduce(x * y)


@pytest.mark.parametrize("words", [1, 2, 3])
@pytest.mark.parametrize("step", MAPS, ids=lambda step: type(step).__name__)
def test_maps_and_their_adjoints_are_those_of_integers(step: LinearMap, words: int) -> None:
    generator = np.random.default_rng(words)
    for _ in range(10):
        x = numbers(words, (4, 6), generator)
        found = wide.mapped(step, x)
        assert same(found, step(_Integers(), integers(x)))
        c = numbers(words, found.shape[1:], generator)
        back = wide.taken_back(step, (4, 6), c)
        assert same(back, np.asarray(adjoint(step, _Integers(), (4, 6), integers(c))))


@pytest.mark.parametrize("words", [1, 2])
def test_mapped_numbers_are_added_in_place(words: int) -> None:
    generator = np.random.default_rng(words)
    for steps in ([], [Scaled(3)], [Placed(1, 6)], [Reshaped((6, 4)), Placed(2, 9)]):
        x = expected = numbers(words, (4, 6), generator)
        for step in steps:
            expected = wide.mapped(step, expected)
        total = numbers(words, expected.shape[1:], generator)
        before = integers(total)
        wide.add_mapped(total, steps, x)
        assert same(total, before + integers(expected))


def test_sums_of_the_largest_numbers_carry_into_the_next_plane() -> None:
    x = np.full((3, 1000), np.iinfo(np.uint64).max)
    assert same(wide.mapped(Summed(0), x), integers(x).sum())


@pytest.mark.parametrize("shape", [(4, 6), (6,), (4, 1), (1, 6), (1,), ()])
def test_broadcast_axes_are_summed(shape: tuple[int, ...]) -> None:
    x = numbers(2, (4, 6), np.random.default_rng(5))
    ones = np.ones(shape, object)
    wanted = [
        integers(x)[np.broadcast_to(np.arange(ones.size).reshape(shape), (4, 6)) == place].sum()
        for place in range(ones.size)
    ]
    assert same(wide.summed_to(x, shape), np.array(wanted, object).reshape(shape))


def test_numbers_that_are_added_to_are_changed_in_place_or_refused() -> None:
    x = numbers(2, (4, 6), np.random.default_rng(6))
    with pytest.raises(ValueError, match="contiguous"):
        wide.add(x[:, :, ::2], x[:, :, 1::2])
