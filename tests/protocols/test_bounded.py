"""Bounds on shares against integer arithmetic: what passes, what does not, and that nothing but a bit is opened."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import bounded
from protocols.bitslice import to_bits
from protocols.context import Context
from protocols.errors import CheckFailed, ProtocolViolation
from protocols.ring import BITS, R32
from protocols.shares import Share
from tests.protocols.local import Outcome, components, reconstruct, run_parties, share_of

BOUND = 1000
EDGES = [0, 1, BOUND - 1, BOUND, BOUND + 1, -1, -BOUND, 2**31 - 1, -(2**31), -(2**31) + BOUND]
ANY = st.one_of(st.sampled_from(EDGES), st.integers(-(2**31), 2**31 - 1), st.integers(0, BOUND))


def within(values: np.ndarray, bound: int = BOUND) -> np.ndarray:
    """The control, in plain integers modulo 2^32."""
    return (values.astype(np.int64) % 2**32) <= bound


def verdicts(outcome: Outcome) -> list[bool]:
    opened = reconstruct(outcome.results)
    assert opened.max(initial=0) <= 1
    return opened.astype(bool).tolist()


def bits(outcome: Outcome, count: int) -> list[bool]:
    return to_bits(reconstruct(outcome.results), count).astype(bool).tolist()


def totals_of(sums: np.ndarray, bound: int = BOUND, seed: int = 7) -> Outcome:
    parts = components(R32, sums, seed)
    return run_parties(lambda c: bounded.check_totals(c, share_of(c, parts, R32), bound))


def cells_of(counts: np.ndarray, bound: int = BOUND) -> Outcome:
    parts = components(R32, counts)
    return run_parties(lambda c: bounded.check_cells(c, share_of(c, parts, R32), bound))


@given(st.lists(ANY, max_size=130), st.integers(0, 2**31 - 1), st.integers(0, 99))
def test_in_range_equals_plain(values: list[int], bound: int, seed: int) -> None:
    x = np.array([*values, bound, bound + 1, -1], np.int64)
    parts = components(R32, x, seed)
    outcome = run_parties(lambda c: bounded.in_range(c, share_of(c, parts, R32), bound))
    assert bits(outcome, x.size) == within(x, bound).tolist()


@pytest.mark.parametrize("cells", [0, 1, 64, 65, 300])
def test_in_range_equals_plain_across_blocks(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "BLOCK_CELLS", 64)
    x = np.random.default_rng(cells).choice(EDGES, cells)
    parts = components(R32, x)
    outcome = run_parties(lambda c: bounded.in_range(c, share_of(c, parts, R32), BOUND))
    assert bits(outcome, cells) == within(x).tolist()


@given(st.integers(1, 6), st.integers(0, 70), st.integers(0, 999))
def test_check_totals_equals_plain(marginals: int, owners: int, seed: int) -> None:
    """Some owners' sums agree and are in range, some agree and are not, some differ in one bit or in many."""
    generator = np.random.default_rng(seed)
    sums = np.repeat(generator.choice(EDGES, (1, owners)), marginals, axis=0)
    for owner in np.flatnonzero(generator.integers(0, 2, owners)):
        sums[generator.integers(marginals), owner] += 1 << generator.integers(32)
    expected = within(sums[0]) & ((sums - sums[0]) % 2**32 == 0).all(axis=0)
    assert verdicts(totals_of(sums, seed=seed)) == expected.tolist()


@pytest.mark.parametrize("total", EDGES)
def test_check_totals_is_exact_at_the_edges(total: int) -> None:
    outcome = totals_of(np.full((3, 1), total))
    assert verdicts(outcome) == within(np.array([total])).tolist()


@pytest.mark.parametrize("bit", range(32))
@pytest.mark.parametrize("sign", [1, -1])
def test_check_totals_finds_a_difference_of_any_size(bit: int, sign: int) -> None:
    """2^31 times anything even vanishes modulo 2^32: a linear combination would miss what this does not."""
    sums = np.full((4, 2), 17)
    sums[2, 1] += sign * (1 << bit)
    assert verdicts(totals_of(sums)) == [True, False]


@given(st.integers(1, 5), st.integers(1, 200), st.integers(0, 999))
def test_check_cells_equals_plain(owners: int, cells: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, BOUND + 1, (owners, cells))
    for owner in np.flatnonzero(generator.integers(0, 2, owners)):
        counts[owner, generator.integers(cells)] = generator.choice(EDGES)
    expected = within(counts).all(axis=1)
    assert verdicts(cells_of(counts)) == expected.tolist()


@pytest.mark.parametrize("cell", [0, 63, 64, 199])
def test_check_cells_finds_the_one_that_is_out(cell: int) -> None:
    counts = np.full((3, 200), BOUND)
    counts[1, cell] = -1
    assert verdicts(cells_of(counts)) == [True, False, True]


def test_open_verdicts_opens_a_bit_an_owner_and_nothing_else() -> None:
    parts = components(R32, np.array([[5, BOUND + 1, 7], [5, BOUND + 1, 8]]))

    async def program(ctx: Context) -> list[bool]:
        sums = share_of(ctx, parts, R32)
        checked = await bounded.check_totals(ctx, sums, BOUND)
        return (await bounded.open_verdicts(ctx, checked, "passed")).tolist()

    outcome = run_parties(program)
    assert outcome.results == [[True, False, False]] * 3
    for party in outcome.parties:
        ((what, value),) = party.opened_values
        assert (what, np.frombuffer(value, "<u8").tolist()) == ("passed", [1, 0, 0])


def test_open_verdicts_refuses_what_is_no_bit() -> None:
    """A component of words where one of bits belongs, alike at both its holders."""
    parts = [np.array([7], np.uint64)] * 3
    with pytest.raises(CheckFailed, match="else than bits"):
        run_parties(lambda c: bounded.open_verdicts(c, share_of(c, parts, BITS), "passed"))


@pytest.mark.parametrize("pid", [0, 1, 2])
def test_open_verdicts_finds_a_component_that_two_hold_differently(pid: int) -> None:
    parts = components(R32, np.full((2, 5), 3))

    async def program(ctx: Context) -> object:
        checked = await bounded.check_totals(ctx, share_of(ctx, parts, R32), BOUND)
        if ctx.pid == pid:
            checked = Share(BITS, pid, checked.own ^ np.uint64(1), checked.next)
        return await bounded.open_verdicts(ctx, checked, "passed")

    with pytest.raises((CheckFailed, ProtocolViolation)):
        run_parties(program)


@pytest.mark.parametrize(
    ("owners", "cells", "sizes"),
    [(0, 5, []), (7, 1 << 20, [2, 2, 2, 1]), (3, 1 << 22, [1, 1, 1]), (9, 1, [9])],
)
def test_at_once_has_every_owner_once_in_order(owners: int, cells: int, sizes: list[int]) -> None:
    parts = list(bounded.at_once(owners, cells))
    assert [len(part) for part in parts] == sizes
    assert [owner for part in parts for owner in part] == list(range(owners))


@pytest.mark.parametrize("bound", [-1, 2**31])
def test_bounds_that_cannot_be_checked_are_refused(bound: int) -> None:
    with pytest.raises(ValueError, match="a bound of"):
        totals_of(np.zeros((2, 2), int), bound)


@pytest.mark.parametrize("check", [bounded.check_totals, bounded.check_cells])
def test_shapes_that_do_not_fit_are_refused(check: object) -> None:
    parts = components(R32, np.zeros(4, int))
    with pytest.raises(ValueError, match="in Z_2\\^32"):
        run_parties(lambda c: check(c, share_of(c, parts, R32), BOUND))  # type: ignore[operator]
