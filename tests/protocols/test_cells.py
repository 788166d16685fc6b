"""Compiled loops over cells give what NumPy's give, at every party and to the bit."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import absolute, cells, derived
from protocols.bitslice import from_planes, to_bits, to_planes, words_for
from protocols.ring import R16, R32, R64, Ring
from tests.protocols.local import components, run_parties, share_of


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Iterator[None]:
    cells.load_for(cells.MANY)
    yield
    cells._kernels = None


counts = st.one_of(st.integers(0, 200), st.sampled_from([511, 512, 513, 1600]))
seeds = st.integers(0, 1000)


@given(st.sampled_from([R16, R32, R64]), counts, st.data(), seeds)
def test_planes_have_the_bits(ring: Ring, count: int, data: st.DataObject, seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, 1 << ring.bits, count, ring.dtype)
    low = data.draw(st.integers(0, ring.bits - 1))
    bits = data.draw(st.integers(low + 1, ring.bits))
    # Read where others write, and from every second place: what arrives may be either.
    x.flags.writeable = False
    twice = np.repeat(x, 2)[::2]
    for of in (x, twice):
        planes = to_planes(ring, of, bits, low)
        assert planes.shape == (bits - low, words_for(count))
        expected = (x >> ring.dtype.type(low)).astype(np.uint64)
        expected &= np.uint64((1 << (bits - low)) - 1)
        assert np.array_equal(from_planes(planes, count), expected)
        assert not to_bits(planes, words_for(count) * 64)[:, count:].any()


def _both(
    x: np.ndarray, y: np.ndarray, sizes: np.ndarray, fraction: int, bits: int
) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Every party's share of the errors: by the compiled loops, and by NumPy's."""
    parts, found = components(R32, x, 1), []
    for compiled in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not compiled:
                patch.setattr(cells, "_kernels", None)
            outcome = run_parties(
                lambda c: absolute.grouped_absolute_error(
                    c, share_of(c, parts, R32), y, sizes, fraction_bits=fraction, bits=bits
                )
            )
            found.append([(share.own, share.next) for share in outcome.results])
    return found


@given(
    st.lists(st.integers(1, 150), min_size=1, max_size=8),
    st.integers(0, 9),
    st.integers(2, 22),
    seeds,
)
def test_errors_are_the_same_to_the_bit(
    sizes: list[int], fraction: int, more: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    x, y = generator.integers(0, 1 << 32, (2, sum(sizes)), np.uint32)
    y.flags.writeable = False
    compiled, plain = _both(x, y, np.array(sizes), fraction, fraction + more)
    assert np.array_equal(compiled, plain)


def test_errors_of_several_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absolute, "BLOCK_CELLS", 128)
    generator = np.random.default_rng(1)
    x, y = generator.integers(0, 1 << 16, (2, 3000), np.uint32)
    compiled, plain = _both(x, y, np.array([1, 1000, 1999]), 6, 23)
    assert np.array_equal(compiled, plain)
    # A control: errors of other answers are others.
    assert not np.array_equal(compiled, _both(x, y + 64, np.array([1, 1000, 1999]), 6, 23)[0])


def test_arrays_that_do_not_lie_in_one_piece_are_taken_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = np.random.default_rng(1)
    x, held = generator.integers(0, 1 << 32, 260, np.uint32)[::2], R32.blank((2, 130))
    plane = generator.integers(0, 1 << 62, 6, np.uint64)[::2]
    compiled = derived._sign_pairs(plane, x, R32), derived._sign_terms(plane, x, held, R32)
    monkeypatch.setattr(cells, "_kernels", None)
    plain = derived._sign_pairs(plane, x, R32), derived._sign_terms(plane, x, held, R32)
    assert np.array_equal(compiled[0], plain[0])
    assert np.array_equal(compiled[1], plain[1])
