"""Vectors of prime fields are what their integers are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.mersenne import F61, F127, F255, F383, Field, ints_of, words_of

FIELDS = [F61, F127, F255, F383]


def is_prime(number: int) -> bool:
    """Miller and Rabin's test, wrong for a composite number at most once in 4^40."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for seed in range(40):
        raw = np.random.default_rng(seed).bytes(number.bit_length() // 8 + 8)
        power = pow(2 + int.from_bytes(raw, "little") % (number - 3), odd, number)
        seen = [power, *(power := power * power % number for _ in range(twos - 1))]
        if seen[0] != 1 and number - 1 not in seen:
            return False
    return True


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: f"2^{field.exponent}-{field.offset}")
def test_modulus_is_the_prime_that_it_is_said_to_be(field: Field) -> None:
    assert is_prime(field.modulus)
    assert not is_prime(field.modulus - 2)


def test_primality_is_that_of_known_numbers() -> None:
    # 561 fools Fermat's test, 3215031751 that of Miller and Rabin for the bases 2, 3, 5 and 7.
    known = {7: True, 561: False, 3_215_031_751: False, (1 << 89) - 1: True, (1 << 83) - 1: False}
    assert {number: is_prime(number) for number in known} == known


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_words_are_those_of_the_integers(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 9))
    values = data.draw(st.lists(st.integers(0, (1 << 64 * count) - 1)))
    words = words_of(values, count)
    assert words.tobytes() == b"".join(value.to_bytes(8 * count, "little") for value in values)
    assert ints_of(words).tolist() == values


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: f"2^{field.exponent}-{field.offset}")
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_elements_on_the_wire_and_in_vectors_are_their_residues(
    field: Field, data: st.DataObject
) -> None:
    top = field.modulus
    some = st.one_of(st.integers(0, top - 1), st.sampled_from([0, 1, top - 1, top >> 1]))
    values = np.array(data.draw(st.lists(some, min_size=1)), object)
    raw = field.to_wire(values)
    assert raw.size == 8 * field.words * len(values)
    assert np.array_equal(field.from_wire(raw), values)
    assert np.array_equal(field.to_ints(field.from_ints(values)), values)
    # The prime itself stands for 0.
    assert field.from_wire(field.to_wire(np.array([top], object))).tolist() == [0]


class Words:
    """A stream of these words, which says how many were read."""

    def __init__(self, words: np.ndarray) -> None:
        self._words = words
        self.read = 0

    def __call__(self, count: int) -> np.ndarray:
        assert self.read + count <= len(self._words)
        found = self._words[self.read : self.read + count]
        self.read += count
        return found


@pytest.mark.parametrize(
    "field", [Field(2), Field(3), Field(5), Field(7), Field(4, 3), Field(6, 5)]
)
def test_every_element_of_a_small_field_is_drawn_equally_often(field: Field) -> None:
    """All numbers of so many bits once each, in any order and under any bits above."""
    size, rng = 1 << field.exponent, np.random.default_rng(field.exponent)
    for _ in range(20):
        numbers = rng.permutation(size).astype(np.uint64)
        above = rng.integers(0, 1 << (64 - field.exponent), numbers.size, np.uint64)
        words = (numbers | above << np.uint64(field.exponent)).reshape(-1, 1)
        drawn = field.uniform(Words(words), field.modulus)
        assert sorted(drawn) == list(range(field.modulus))
        assert drawn.tolist() == [n for n in numbers.tolist() if n < field.modulus]
        # The control: reduced modulo the prime, the first numbers come twice.
        twice = [*range(field.offset), *range(field.modulus)]
        assert sorted(field.to_ints(numbers.reshape(-1, 1))) == sorted(twice)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: f"2^{field.exponent}-{field.offset}")
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_word_that_is_the_prime_is_left_out_by_all_who_read_it(
    field: Field, data: st.DataObject
) -> None:
    """Also in the place of one that was left out; nothing that follows is left out or read twice."""
    p, most = field.modulus, (1 << field.exponent) - 1
    numbers = data.draw(st.lists(st.sampled_from([p, most, 0, 1, p - 1, p >> 1]), max_size=30))
    count = sum(number < p for number in numbers)
    rest, spare = list(range(2, 12)), 64 * field.words - field.exponent
    # Bits beyond an element's are any.
    high = [i % (1 << min(spare, 3)) for i in range(len(numbers) + len(rest))]
    raw = [n | h << field.exponent for n, h in zip([*numbers, *rest], high, strict=True)]
    stream = Words(words_of(raw, field.words))
    assert field.uniform(stream, count + 1).tolist() == [*(n for n in numbers if n < p), 2]
    assert stream.read == len(numbers) + 1
    assert field.uniform(stream, 3).tolist() == [3, 4, 5]
    assert field.uniform(stream, 0).tolist() == []


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: f"2^{field.exponent}-{field.offset}")
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_inner_products_and_folds_are_those_of_integers(field: Field, data: st.DataObject) -> None:
    blocks, columns, words, other = (data.draw(st.integers(1, top)) for top in (4, 5, 9, 9))

    def vector(count: int, size: int) -> np.ndarray:
        # The largest numbers carry furthest.
        top = (1 << 64 * size) - 1
        some = st.one_of(st.sampled_from([0, 1, top, top - 1, top >> 1]), st.integers(0, top))
        return np.array(data.draw(st.lists(some, min_size=count, max_size=count)), object)

    left, right = vector(2 * blocks * columns, words), vector(blocks * columns, other)
    u, v = words_of(left, words), words_of(right, other)
    cut_left, cut_right = left.reshape(-1, columns), right.reshape(-1, columns)
    assert np.array_equal(field.gram(u, v, blocks), cut_left @ cut_right.T)

    top = data.draw(st.sampled_from([field.modulus - 1, min(field.modulus, 1 << 125) - 1]))
    some = st.one_of(st.sampled_from([0, 1, top]), st.integers(0, top))
    factors = np.array(data.draw(st.lists(some, min_size=blocks, max_size=blocks)), object)
    folded = field.fold(factors, v)
    assert folded.shape == (columns, field.words)
    assert max(ints_of(folded)) < 1 << field.exponent
    assert np.array_equal(field.to_ints(folded), factors @ cut_right % field.modulus)


EDGES = [0, 1, -1, 2, -2]


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: f"2^{field.exponent}-{field.offset}")
def test_numbers_about_multiples_of_the_prime_are_reduced(field: Field) -> None:
    """Times 1: what is left is the reduction alone, with the longest carries."""
    p, bits = field.modulus, 64 * 9
    about = [0, p, 2 * p, 1 << field.exponent, field.offset << field.exponent, 1 << bits, p * p]
    values = [(x + edge) % (1 << bits) for x in about for edge in EDGES]
    folded = field.fold(np.array([1], object), words_of(values, 9))
    assert max(ints_of(folded)) < 1 << field.exponent
    assert field.to_ints(folded).tolist() == [value % p for value in values]


def test_inner_products_of_more_than_is_done_at_a_time() -> None:
    columns = 1500
    values = np.array([(1 << 64) - 1 - i for i in range(4 * columns)], object)
    cut = values.reshape(-1, columns)
    assert np.array_equal(F61.gram(words_of(values, 1), words_of(values, 1), 4), cut @ cut.T)
