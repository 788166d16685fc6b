"""Gumbel noise made for several selections: each sample is used once, and is as good as one made for itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.context import Context
from protocols.costs import Cost, gumbel
from protocols.ring import R64
from protocols.shares import Share
from protocols.supply import AT_ONCE, GumbelSupply, lacking
from tests.protocols.local import run_parties


@given(
    counts=st.lists(st.integers(1, 3 * AT_ONCE), min_size=1, max_size=40),
    more=st.integers(0, 2 * AT_ONCE),
)
def test_there_is_always_enough_and_no_more_than_a_batch(counts: list[int], more: int) -> None:
    """Neither are more made in all, nor more often, than where every selection is among the most: a plan says that."""
    most = max(counts) + more
    made = batches(counts, most)
    assert all(batch <= max(most, AT_ONCE) for batch in made)
    dearest = batches([most] * len(counts), most)
    assert len(made) <= len(dearest)
    assert all(batch <= planned for batch, planned in zip(made, dearest, strict=False))


def batches(counts: list[int], most: int) -> list[int]:
    """Numbers of samples made at each lack; those left of before are not used any more."""
    there, made = 0, list[int]()
    for place, count in enumerate(counts):
        lacks = lacking(there, count, most, len(counts) - place)
        assert (lacks == 0) == (there >= count)
        if lacks:
            made.append(lacks)
            there = lacks
        there -= count
        assert there >= 0
    return made


def test_selections_of_one_size_leave_nothing_over() -> None:
    there = 0
    for left in range(37, 0, -1):
        there += lacking(there, 250, 250, left) - 250
    assert there == 0


def test_each_sample_is_taken_once_and_messages_are_those_of_one_batch() -> None:
    async def program(ctx: Context) -> list[Share]:
        supply, taken = GumbelSupply(), []
        for left in (3, 2, 1):
            taken.append(await supply.take(ctx, 70, lacking(supply.samples, 70, 70, left)))
        assert supply.samples == 0
        assert repr(supply) == "GumbelSupply(samples=0)"
        return taken

    outcome = run_parties(program)
    assert Cost(outcome.rounds, tuple(outcome.sent_bytes)) == gumbel(210)
    zero, one, two = outcome.results
    samples = [
        R64.add(R64.add(a.own, b.own), c.own) for a, b, c in zip(zero, one, two, strict=True)
    ]
    assert [part.size for part in samples] == [70, 70, 70]
    assert np.unique(np.concatenate(samples)).size == 210


def test_more_than_there_is_is_refused() -> None:
    async def program(ctx: Context) -> None:
        with pytest.raises(ValueError, match="5 samples from 0 and 4"):
            await GumbelSupply().take(ctx, 5, 4)

    run_parties(program)
