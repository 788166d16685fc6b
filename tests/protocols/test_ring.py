"""Rings: wrap-around, signed conversion, wire format; bit-slicing there and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.bitslice import from_bits, from_planes, to_bits, to_planes, words_for
from protocols.ring import BITS, R32, R64, R128, Ring

RINGS = [R32, R64, R128]


@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
@given(data=st.data())
def test_ring_arithmetic_is_modular(ring: Ring, data: st.DataObject) -> None:
    integers = st.lists(st.integers(-(2**127), 2**127), min_size=3, max_size=3)
    a, b = (data.draw(integers) for _ in range(2))
    x, y = ring.encode(np.array(a, dtype=object)), ring.encode(np.array(b, dtype=object))
    modulus = 1 << ring.bits
    assert [int(v) for v in ring.add(x, y)] == [
        (p + q) % modulus for p, q in zip(a, b, strict=True)
    ]
    assert [int(v) for v in ring.sub(x, y)] == [
        (p - q) % modulus for p, q in zip(a, b, strict=True)
    ]
    assert [int(v) for v in ring.mul(x, y)] == [
        (p * q) % modulus for p, q in zip(a, b, strict=True)
    ]


@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
def test_decode_inverts_encode_at_the_edges(ring: Ring) -> None:
    half = 1 << (ring.bits - 1)
    values = [0, 1, -1, half - 1, -half]
    assert [int(v) for v in ring.decode(ring.encode(np.array(values, dtype=object)))] == values


@pytest.mark.parametrize("ring", [*RINGS, BITS], ids=lambda ring: ring.name)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)])
def test_wire_round_trips_any_shape(ring: Ring, shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(5)
    count = int(np.prod(shape))
    raw = generator.integers(0, 256, count * ring.itemsize, np.uint8)
    x = ring.from_wire(raw, shape)
    assert x.shape == shape
    assert np.array_equal(ring.to_wire(x), raw)


def test_ring_rejects_other_widths() -> None:
    with pytest.raises(ValueError, match="32, 64 and 128"):
        Ring("odd", 48)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=200), st.integers(1, 64))
def test_planes_hold_each_bit_of_each_cell(values: list[int], bits: int) -> None:
    cells = np.array(values, dtype=np.uint64)
    planes = to_planes(R64, cells, bits)
    assert planes.shape == (bits, words_for(len(values)))
    assert np.array_equal(from_planes(planes, len(values)), cells & np.uint64((1 << bits) - 1))
    for plane in range(bits):
        assert np.array_equal(
            to_bits(planes[plane], len(values)), (cells >> np.uint64(plane)) & np.uint64(1)
        )


def test_planes_of_the_wide_ring_hold_all_bits() -> None:
    values = [0, 1, (1 << 127) + 5, (1 << 128) - 1]
    planes = to_planes(R128, np.array(values, dtype=object), 128)
    for plane in range(128):
        assert to_bits(planes[plane], 4).tolist() == [v >> plane & 1 for v in values]


@given(st.lists(st.integers(0, 1), max_size=150))
def test_to_bits_inverts_from_bits(bits: list[int]) -> None:
    assert to_bits(from_bits(np.array(bits, dtype=np.uint8)), len(bits)).tolist() == bits
