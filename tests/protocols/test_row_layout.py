"""Rows in bits: what is packed comes out again, owner after owner, and shares of it by XOR are shares of the rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.bitslice import to_bits, words_for
from protocols.row_layout import RowLayout

SIZES = (2, 1, 128, 1000, 5)


def table(rows: int, sizes: tuple[int, ...] = SIZES, seed: int = 1) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.integers(0, sizes, (rows, len(sizes))).astype(np.int32)


def test_layout_has_a_presence_bit_and_each_column_in_the_bits_it_needs() -> None:
    layout = RowLayout(SIZES)
    assert layout.widths == (1, 0, 7, 10, 3)
    assert layout.starts == (1, 2, 2, 9, 19)
    assert layout.bits == 22


def test_body_size_of_adult_is_that_of_its_packed_rows() -> None:
    layout = RowLayout((85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2))
    assert layout.bits == 65
    assert [layout.body_size(rows) for rows in (0, 1, 5, 439)] == [0, 9, 41, 3567]


@given(
    st.lists(st.sampled_from([1, 2, 3, 100, 128, 1000]), max_size=6),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_unpack_undoes_pack(sizes: list[int], rows: int, absent: int) -> None:
    layout, codes = RowLayout(tuple(sizes)), table(rows, tuple(sizes), seed=rows)
    body = layout.pack(codes, rows + absent)
    assert body.dtype == np.uint8
    assert body.size == layout.body_size(rows + absent)
    found, present = layout.unpack(body, rows + absent)
    assert present.tolist() == [True] * rows + [False] * absent
    assert np.array_equal(found[:rows], codes)
    assert not found[rows:].any()


def test_pack_has_known_bytes() -> None:
    """Row 1: present, code 2 of 3, code 5 of 8; row 2 is absent: 1 01 101, then six zeros, low bit first."""
    assert RowLayout((3, 8)).pack(np.array([[2, 5]], np.int32), 2).tolist() == [0b00101101, 0]


@given(st.lists(st.integers(0, 70), max_size=8), st.integers(0, 99))
def test_planes_have_the_rows_of_all_owners_one_after_the_other(
    capacities: list[int], seed: int
) -> None:
    layout = RowLayout(SIZES)
    tables = [table(capacity, seed=seed + i) for i, capacity in enumerate(capacities)]
    bodies = [(len(codes), layout.pack(codes, len(codes))) for codes in tables]
    planes, total = layout.planes(bodies), sum(capacities)
    assert planes.shape == (layout.bits, words_for(total))
    bits = to_bits(planes, words_for(total) * 64)
    assert not bits[:, total:].any()
    assert bits[0, :total].all()
    whole = np.concatenate([np.zeros((0, 5), int), *tables])
    assert np.array_equal(bits[9:19, :total].T @ (1 << np.arange(10)), whole[:, 3])


def test_planes_of_shares_are_shares_of_planes() -> None:
    """Also of the bits that fill up a last byte, which belong to nobody."""
    layout, codes = RowLayout(SIZES), table(7)
    body, mask = layout.pack(codes, 9), np.full(layout.body_size(9), 0xA5, np.uint8)
    both = [(9, body ^ mask), (2, body[:6])], [(9, mask), (2, np.zeros(6, np.uint8))]
    assert np.array_equal(
        layout.planes(both[0]) ^ layout.planes(both[1]), layout.planes([(9, body), (2, body[:6])])
    )


def test_planes_of_many_small_owners_are_those_of_one_large() -> None:
    layout, codes = RowLayout(SIZES), table(5000)
    many = [(5, layout.pack(codes[i : i + 5], 5)) for i in range(0, 5000, 5)]
    assert np.array_equal(layout.planes(many), layout.planes([(5000, layout.pack(codes, 5000))]))


@pytest.mark.parametrize(
    ("codes", "capacity", "said"),
    [
        (table(3), 2, "at most 2 rows"),
        (table(3)[:, :4], 3, "expected 5 columns"),
        (np.full((1, 5), -1, np.int32), 1, "outside its column"),
        (np.array([[0, 1, 0, 0, 0]], np.int32), 1, "outside its column"),
    ],
)
def test_pack_refuses_what_does_not_fit(codes: np.ndarray, capacity: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RowLayout(SIZES).pack(codes, capacity)


def test_planes_refuse_a_body_of_another_length() -> None:
    with pytest.raises(ValueError, match="3 rows have 9 bytes, not 8"):
        RowLayout(SIZES).planes([(3, np.zeros(8, np.uint8))])


@pytest.mark.parametrize("size", [0, -1, 2**31 + 1])
def test_layout_refuses_a_column_without_categories(size: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to"):
        RowLayout((2, size))
