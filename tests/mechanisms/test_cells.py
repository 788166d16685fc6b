"""Whole numbers in cells: every number has one, atoms their own, and drawing gives them back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.cells import Cells, equal_starts, log_starts, symlog_starts
from mechanisms.sampling import public_generator


@given(
    st.integers(-50, 50),
    st.integers(1, 60),
    st.integers(1, 20),
    st.sets(st.integers(-60, 120), max_size=8),
)
def test_cut_puts_every_number_into_one_cell_and_atoms_into_their_own(
    low: int, count: int, bins: int, atoms: set[int]
) -> None:
    last = low + count - 1
    cells = Cells.cut(equal_starts(low, count, bins), last, atoms)
    assert list(cells.ranges) == sorted(cells.ranges)
    members: dict[int, list[int]] = {code: [] for code in range(len(cells.ranges))}
    for number in {*range(low - 3, last + 4), *atoms}:
        code = cells.code_of(number)
        assert (code is None) == (number not in atoms and not low <= number <= last)
        if code is not None:
            members[code].append(number)
    for code, numbers in members.items():
        assert numbers
        assert (min(numbers), max(numbers)) == cells.ranges[code]
    assert all(members[cells.atoms[atom]] == [atom] for atom in atoms)
    assert len(cells.ranges) == len(cells.atoms) + len(cells.bins)


@given(
    st.integers(1, 60),
    st.integers(1, 20),
    st.sets(st.integers(-10, 70), max_size=8),
    st.integers(0, 2**32),
)
def test_draw_gives_every_number_of_a_cell_and_no_other(
    count: int, bins: int, atoms: set[int], seed: int
) -> None:
    cells = Cells.cut(equal_starts(0, count, bins), count - 1, atoms)
    codes = np.arange(len(cells.ranges), dtype=np.int32).repeat(300)
    drawn = cells.draw(codes, public_generator(seed))
    assert [cells.code_of(number) for number in drawn.tolist()] == codes.tolist()
    # One of at most 8 numbers is missed by 300 draws once in 10^17 cells.
    for code, (first, last) in enumerate(cells.ranges):
        if last - first < 8:
            assert drawn[codes == code].min() == first
            assert drawn[codes == code].max() == last


def test_draw_is_uniform_around_an_atom() -> None:
    cells = Cells.cut([0], 9, [0, 4])
    drawn = cells.draw(np.full(80_000, cells.bins[0], np.int32), public_generator(1))
    counts = np.bincount(drawn, minlength=10)
    assert counts[[0, 4]].tolist() == [0, 0]
    # Each of the other eight has 10,000 on average, deviation 94; 6 deviations are wrong once in 10^8 runs.
    assert abs(np.delete(counts, [0, 4]) - 10_000).max() < 564


def test_draw_reaches_the_ends_of_64_bits() -> None:
    cells = Cells.cut([-(2**63)], 2**63 - 1)
    drawn = cells.draw(np.zeros(1000, np.int32), public_generator(1))
    assert drawn.min() < -(2**62)
    assert drawn.max() > 2**62


@pytest.mark.parametrize(
    ("low", "high", "bins", "starts"),
    [
        (1, 100_000, 5, [1, 10, 100, 1000, 10_000]),
        (1, 10, 32, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (7, 7, 32, [7]),
        (1, 2**62, 2, [1, 2**31]),
    ],
)
def test_log_starts_are_alike_in_proportion(
    low: int, high: int, bins: int, starts: list[int]
) -> None:
    assert log_starts(low, high, bins) == starts


@given(st.integers(1, 10**6), st.integers(0, 10**15), st.integers(1, 100))
def test_log_starts_ascend_from_low_and_hold_a_number_each(low: int, span: int, bins: int) -> None:
    starts = log_starts(low, low + span, bins)
    assert starts[0] == low
    assert starts == sorted(set(starts))
    assert starts[-1] <= low + span
    assert len(starts) <= bins


@given(
    st.integers(-(10**15), 10**15),
    st.integers(0, 10**15),
    st.integers(3, 400),
)
def test_symlog_starts_are_alike_in_proportion_on_both_sides(
    low: int, width: int, bins: int
) -> None:
    high = low + width
    starts = symlog_starts(low, high, bins)
    assert starts[0] == low
    assert starts == sorted(set(starts))
    assert starts[-1] <= high
    assert len(starts) <= bins + 1
    if low <= 0 <= high:
        # Zero is by itself.
        assert 0 in starts
        assert high == 0 or 1 in starts
    ends = [*(start - 1 for start in starts[1:]), high]
    octaves = max(1, (-low).bit_length() if low < 0 else 0) + max(1, high.bit_length())
    for first, last in zip(starts, ends, strict=True):
        assert first <= last
        near, far = sorted((abs(first), abs(last)))
        # No bin is much wider than what its share of the octaves comes to.
        assert far - near <= near * (2 ** (2 * octaves / max(1, bins // 2 - 2)) - 1) + 1 or bins < 8
