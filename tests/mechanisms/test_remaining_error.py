"""The error that noise leaves: that of noisy counts brought back to counts, the same integers everywhere."""

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mechanisms.remaining_error import remaining_error, remaining_errors


def projected(counts: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The nearest counts that are not negative and have the sum ``total``."""
    ordered = np.sort(counts)[::-1]
    lowered = (np.cumsum(ordered) - total) / np.arange(1, len(counts) + 1)
    level = lowered[np.flatnonzero(ordered > lowered)[-1]]
    return np.maximum(counts - level, 0)


def left_by_noise(counts: NDArray[np.float64], sigma: float, draws: int = 200) -> float:
    """The mean error of ``draws`` noisy marginals that were projected."""
    rng, total = np.random.default_rng(1), counts.sum()
    errors = [
        np.abs(projected(counts + rng.normal(0, sigma, counts.size), total) - counts).sum()
        for _ in range(draws)
    ]
    return float(np.mean(errors) / total)


@pytest.mark.parametrize(
    ("counts", "sigma"),
    [
        (np.full(20, 50.0), 20.0),
        (np.concatenate([np.full(5, 400.0), np.zeros(995)]), 20.0),
        (np.concatenate([np.arange(200.0), np.zeros(300)]), 20.0),
        # Counts far below the noise, and far above.
        (np.full(20_000, 0.05), 100.0),
        (np.full(50, 1e6), 3.0),
        (np.random.default_rng(2).pareto(1.0, 5_000) * 3, 30.0),
        (np.random.default_rng(3).pareto(1.0, 1_000) * 3, 0.3),
    ],
)
def test_remaining_error_is_that_of_projected_counts(
    counts: NDArray[np.float64], sigma: float
) -> None:
    """200 draws: their mean is within 2 % of the expectation's, which the plug-in level t is off by at most 5 %."""
    assert remaining_error(counts, sigma) == pytest.approx(left_by_noise(counts, sigma), rel=0.07)


def test_remaining_error_is_far_below_raw_noise_where_counts_are_few() -> None:
    """A control: AIM's penalty for the same marginal is twenty times the error that is left."""
    counts = np.concatenate([np.full(5, 400.0), np.zeros(9_995)])
    penalty = math.sqrt(2 / math.pi) * 20 * counts.size / counts.sum()
    assert penalty > 20 * left_by_noise(counts, 20.0)
    assert remaining_error(counts, 20.0) < penalty / 20


def test_remaining_error_is_raw_noise_where_counts_are_many() -> None:
    counts = np.full(1_000, 1e5)
    assert remaining_error(counts, 10.0) == pytest.approx(math.sqrt(2 / math.pi) * 1e-4, rel=1e-3)


@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    largest=st.integers(0, 2**31 - 1),
    sigma=st.floats(0.01, 1e6),
    seed=st.integers(0, 2**32 - 1),
)
def test_remaining_errors_lie_between_nothing_and_twice_the_rows_for_any_counts(
    sizes: list[int], largest: int, sigma: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    answers = rng.integers(0, largest, sum(sizes), dtype=np.uint32, endpoint=True)
    errors = remaining_errors(answers, sizes, sigma, fraction_bits=6)
    ends = np.cumsum(sizes)
    for error, size, end in zip(errors, sizes, ends, strict=True):
        part = answers[end - size : end]
        raw = math.sqrt(2 / math.pi) * sigma * 64 * size
        assert 0 <= error <= 2 * int(part.sum(dtype=np.uint64))
        # Rounded to steps of 1/128 deviation, and cut: never much above what raw noise has.
        assert error <= 1.01 * raw + 1
        assert remaining_errors(part, [size], sigma, fraction_bits=6) == [error]


@given(st.integers(1, 2**31 - 1), st.floats(0.01, 1e5))
def test_remaining_errors_grow_with_the_noise(largest: int, sigma: float) -> None:
    """But for what rounding counts to steps changes where nearly everything is lost."""
    answers = np.random.default_rng(largest).integers(0, largest, 200, dtype=np.uint32)
    finer, coarser = (
        remaining_errors(answers, [200], s, fraction_bits=6)[0] for s in (sigma, 2 * sigma)
    )
    assert finer <= 1.001 * coarser + 1


def test_remaining_errors_are_known_integers() -> None:
    """Every server and auditor has to come to these, on any processor."""
    rng = np.random.default_rng(7)
    sizes = [1, 10, 1_000, 300, 4]
    answers = rng.integers(0, 2**12, sum(sizes), dtype=np.uint32)
    answers[11:900] = 0
    answers[-4:] = 0
    errors = [
        remaining_errors(answers, sizes, sigma, fraction_bits=6) for sigma in (0.7, 20.889, 911.0)
    ]
    assert errors[1] == KNOWN
    assert hashlib.sha256(repr(errors).encode()).hexdigest() == DIGEST


KNOWN = [1066, 9628, 233402, 281203, 0]
DIGEST = "033c36f8057f04bfa2eba82a31c0fb8a79b05bb255c0a5af86e0728e90d43053"


def test_remaining_errors_refuse_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="are needed"):
        remaining_errors(np.zeros(3, np.uint32), [2], 1.0, fraction_bits=6)
    with pytest.raises(ValueError, match="sigma"):
        remaining_errors(np.zeros(3, np.uint32), [3], 0.0, fraction_bits=6)
    with pytest.raises(ValueError, match="without rows"):
        remaining_error(np.zeros(3), 1.0)


@given(seed=st.integers(0, 2**32), sigma=st.floats(2**-6, 2**10))
@settings(max_examples=30, deadline=None)
def test_remaining_errors_together_are_those_of_each_alone(seed: int, sigma: float) -> None:
    """Small marginals are looked at cell by cell, very large ones by how many counts are at each step."""
    draw = np.random.default_rng(seed)
    sizes = [1, 7, 300, 2049, 2050, 9000, 3]
    counts = draw.exponential(10 ** draw.uniform(0, 6), sum(sizes)) * (
        draw.random(sum(sizes)) < 0.6
    )
    answers = np.minimum(counts, 2**31).astype(np.uint32)
    together = remaining_errors(answers, sizes, sigma, fraction_bits=8)
    parts = np.split(answers, np.cumsum(sizes)[:-1])
    alone = [remaining_errors(p, [p.size], sigma, fraction_bits=8)[0] for p in parts]
    assert together == alone
    # The same counts four times are four times the error, but for rounding: by another path from 2049 cells on.
    four = np.tile(parts[3], 4)
    (error,) = remaining_errors(four, [four.size], sigma, fraction_bits=8)
    assert error == pytest.approx(4 * together[3], rel=1e-4, abs=8)
