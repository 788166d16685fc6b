"""A batch is a Poisson sample, a clipped sum moves by no more than is charged, and gradients are gradients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mechanisms.dpsgd import noise_for, noisy_sum, poisson_batch
from mechanisms.linear_models import OBJECTIVES
from tests.mechanisms.tables import random_stream

ALARM = 1e-5


def no_noise(count: int) -> np.ndarray:
    return np.zeros(count, np.int64)


def batch_p_value(batches: list[np.ndarray], rows: int, q: float) -> float:
    """The least of two tests of whether rows are in on their own with chance ``q``: how often, and how many at once."""
    each = np.bincount(np.concatenate(batches), minlength=rows)
    often = stats.binomtest(int(each.sum()), rows * len(batches), q).pvalue
    sizes = np.array([len(batch) for batch in batches])
    spread = (len(sizes) - 1) * sizes.var(ddof=1) / (rows * q * (1 - q))
    two_sided = 2 * min(
        stats.chi2.cdf(spread, len(sizes) - 1), stats.chi2.sf(spread, len(sizes) - 1)
    )
    return min(often, two_sided)


def test_poisson_batch_takes_each_row_on_its_own() -> None:
    """4,000 batches of 100 rows, false-alarm rate 2e-5; sees a rate off by 1 % and sizes that vary by 15 % less."""
    source = random_stream(1)
    batches = [poisson_batch(100, 0.3, source) for _ in range(4000)]
    assert batch_p_value(batches, 100, 0.3) > ALARM
    # The controls: another rate, and sets of a fixed size, which the accountant does not cover.
    assert batch_p_value(batches, 100, 0.31) < ALARM
    draw = np.random.default_rng(1)
    fixed = [draw.permutation(100)[:30] for _ in range(4000)]
    assert batch_p_value(fixed, 100, 0.3) < ALARM


def test_poisson_batch_at_rate_one_is_everybody_and_rates_are_checked() -> None:
    assert poisson_batch(5, 1.0, random_stream(1)).tolist() == [0, 1, 2, 3, 4]
    assert poisson_batch(0, 0.5, random_stream(1)).size == 0
    with pytest.raises(ValueError, match="sampling rate"):
        poisson_batch(5, 0.0, random_stream(1))


@given(
    st.integers(1, 6),
    st.integers(1, 5),
    st.floats(1.0, 20.0),
    st.integers(0, 12),
    st.floats(1e-3, 1e200),
    st.integers(0, 2**32),
)
def test_noisy_sum_moves_by_the_clipping_norm_at_most_when_an_example_goes(
    n: int, d: int, clip: float, bits: int, size: float, seed: int
) -> None:
    """In whole units, after rounding, and so to the last bit; the control is a norm one unit smaller."""
    gradients = size * np.random.default_rng(seed).standard_normal((n, d))
    with_all, without = (
        noisy_sum(rows, no_noise, clip=clip, scale_bits=bits) for rows in (gradients, gradients[1:])
    )
    moved = np.rint((with_all - without) * 2.0**bits).astype(int)
    assert sum(int(value) ** 2 for value in moved) <= (clip * 2**bits) ** 2
    if size > 1e3 and d == 1 and clip * 2**bits > 2:
        assert abs(int(moved[0])) > clip * 2**bits - 2


def test_noisy_sum_of_nothing_is_noise_and_of_no_number_is_nothing() -> None:
    broken = np.array([[np.nan, 1.0], [np.inf, 1.0], [3.0, 4.0]])
    assert noisy_sum(broken, no_noise, clip=1.0, scale_bits=10) == pytest.approx(
        [0.6, 0.8], abs=1e-3
    )
    noise = noise_for(5.0, random_stream(1), clip=2.0, scale_bits=8)
    assert noise.sigma >= 5.0 * 2 * 256
    # Whole numbers of a row may have a norm between two whole ones.
    assert noise_for(1.0, random_stream(1), clip=1.7, scale_bits=0).sigma >= 1.7
    empty = [noisy_sum(np.zeros((0, 2)), noise.draw, clip=2.0, scale_bits=8) for _ in range(4000)]
    # 8,000 samples of deviation 10: its estimate is off by 4 % with a chance of 4e-7.
    assert np.std(empty) == pytest.approx(10.0, rel=0.04)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_are_the_slopes_of_the_losses(name: str) -> None:
    draw = np.random.default_rng(3)
    x, w = draw.standard_normal((7, 4)), draw.standard_normal(4)
    y = (draw.random(7) > 0.5).astype(float)
    found = OBJECTIVES[name].gradients(w, x, y)
    for column in range(4):
        step = 1e-6 * np.eye(4)[column]
        slope = (
            OBJECTIVES[name].losses(w + step, x, y) - OBJECTIVES[name].losses(w - step, x, y)
        ) / 2e-6
        assert found[:, column] == pytest.approx(slope, abs=1e-6)
    assert OBJECTIVES[name].error(w, x, y) >= 0
