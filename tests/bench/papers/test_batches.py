"""Secret batches of a fixed size.

Chi-square over all 56 sets of 3 of 8, 20,000 batches, false-alarm rate 1e-4: a set that is 40 % too likely, or a member
that is 4 % too likely, is caught. The control takes each number by a coin and fills up from the front.
"""

import itertools

import numpy as np
import pytest
from scipy import stats

from bench.papers.pandemic.batches import fixed_size_batch
from tests.mechanisms.tables import random_stream

BATCHES = 20_000


def p_value(batches: list[tuple[int, ...]]) -> float:
    sets = {chosen: i for i, chosen in enumerate(itertools.combinations(range(8), 3))}
    seen = np.bincount([sets[batch] for batch in batches], minlength=len(sets))
    return float(stats.chisquare(seen).pvalue)


def test_fixed_size_batch_is_any_set_alike() -> None:
    source = random_stream(1)
    drawn = [tuple(fixed_size_batch(source, 8, 3).tolist()) for _ in range(BATCHES)]
    assert p_value(drawn) > 1e-4
    rng = np.random.default_rng(2)
    biased = [
        tuple(sorted({*np.flatnonzero(rng.random(8) < 0.3)[:3], 0, 1, 2})[-3:]) for _ in drawn
    ]
    assert p_value(biased) < 1e-4


@pytest.mark.parametrize(("population", "size"), [(8, 0), (8, 5), (8, 8), (1, 1), (100_000, 512)])
def test_fixed_size_batch_has_its_size_and_no_repeats(population: int, size: int) -> None:
    batch = fixed_size_batch(random_stream(3), population, size)
    assert batch.size == size == np.unique(batch).size
    assert np.all((batch >= 0) & (batch < population))
    assert np.all(np.diff(batch) > 0)


def test_fixed_size_batch_refuses_more_than_there_are() -> None:
    with pytest.raises(ValueError, match="a batch of 9 of 8; expected 0 to 8"):
        fixed_size_batch(random_stream(4), 8, 9)
