"""Relations are told from noise, by what was released; and measured in values where a real table is at hand."""

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from bench.quality.pairs import pair_distance
from mechanisms.domain import Categorical, Domain, Integer
from mechanisms.expected_errors import Expected
from mechanisms.independence import PairGain, pair_gains
from mechanisms.intervals import MEASURED, Interval
from mechanisms.remaining_error import remaining_error
from mechanisms.text_table import TextTable
from mechanisms.value_pairs import ValuePairs
from mechanisms.workload import Workload
from tests.mechanisms.tables import domain_of


def gain_of(real: NDArray[np.float64], sigma: float, seed: int) -> PairGain:
    """Of one pair, measured with noise, whose table has the noisy counts as far as they can be counts."""
    workload = Workload(domain_of(*real.shape), (("c0", "c1"),))
    noisy = real + np.random.default_rng(seed).normal(0, sigma, real.shape)
    made = np.maximum(noisy, 0)
    made *= real.sum() / made.sum()
    expected = [Expected(0.0, True)] * 2 + [
        Expected(remaining_error(made.reshape(-1), sigma), False)
    ]
    intervals = [Interval(0.0, 2.0, MEASURED)] * 3
    counts = np.concatenate([made.sum(axis=1), made.sum(axis=0), made.reshape(-1)])
    (gain,) = pair_gains(workload, counts, [("c0", "c1")], intervals, expected)
    return gain


@pytest.mark.parametrize("shape", [(2, 2), (5, 4), (12, 20)])
def test_pair_gains_take_noise_for_no_relation(shape: tuple[int, int]) -> None:
    """200 draws of a product: BY_CHANCE is 5 %, and more than 24 of 200 have a chance below 1e-4.

    The control is a pair of which each row's column is mostly its own: it is seen in nearly all draws, and the error
    that is expected of independent columns is what it is.
    """
    rows, sigma = 5000.0, 30.0
    product = np.full(shape, rows / (shape[0] * shape[1]))
    related = product * 0.4
    for i in range(shape[0]):
        related[i, i % shape[1]] += 0.6 * rows / shape[0]
    shown = sum(gain_of(product, sigma, seed).shown for seed in range(200))
    assert shown <= 24
    found = [gain_of(related, sigma, seed) for seed in range(50)]
    assert sum(gain.shown for gain in found) >= 48
    columns = np.outer(related.sum(axis=1), related.sum(axis=0)) / rows
    true = float(np.abs(related - columns).sum()) / rows
    assert np.mean([gain.independent for gain in found]) == pytest.approx(true, rel=0.3)


def test_pair_gains_leave_out_what_was_not_measured() -> None:
    workload = Workload(domain_of(2, 2), (("c0", "c1"),))
    expected, intervals = [Expected(0.1, True)] * 3, [Interval(0.0, 2.0, MEASURED)] * 3
    assert pair_gains(workload, np.ones(8), [("c0", "c1")], intervals, expected) == ()


DOMAIN = Domain(
    (
        Integer("number", 0, 9, missing=True),
        Categorical("word", tuple("abcdefghij")),
        Integer("n", 0, 9),
    )
)


def table(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 10, rows)
    texts = numbers.astype(str).astype(object)
    texts[rng.random(rows) < 0.1] = ""
    words = np.array(list("abcdefghij"))[numbers]
    return pd.DataFrame(
        {"number": texts, "word": words, "n": rng.integers(0, 10, rows).astype(str)}
    )


def test_value_pairs_measure_what_the_bench_measures() -> None:
    real, made = table(5000, 1), table(5000, 2)
    pairs = ValuePairs.of(DOMAIN, TextTable.of(real))
    assert pairs.distance(TextTable.of(real)) == 0
    found = pair_distance(real, made, frozenset({"number", "n"}))
    assert pairs.distance(TextTable.of(made)) == pytest.approx(found)
    # One of three pairs is related, nine tenths of which are elsewhere then; the others differ by chance.
    for lost in (pairs.best_shuffled(), pairs.shuffled_distance(TextTable.of(made))):
        assert lost == pytest.approx(0.9 * 0.9 / 3 + 0.05, abs=0.04)
