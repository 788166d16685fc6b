"""Expected errors are those of noisy counts brought back to counts, in closed form."""

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.expected_errors import Expected, expected_errors, noise_error
from mechanisms.intervals import MEASURED, NOTHING, Interval
from mechanisms.metrics import table_answers
from mechanisms.workload import Workload
from tests.mechanisms.tables import domain_of, random_codes


def projected(counts: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The nearest counts that are not negative and have the sum ``total``."""
    ordered = np.sort(counts)[::-1]
    lowered = (np.cumsum(ordered) - total) / np.arange(1, len(counts) + 1)
    level = lowered[np.flatnonzero(ordered > lowered)[-1]]
    return np.maximum(counts - level, 0)


@pytest.mark.parametrize(
    "counts",
    [
        np.full(20, 50.0),
        np.concatenate([np.full(5, 400.0), np.zeros(995)]),
        np.concatenate([np.arange(200.0), np.zeros(300)]),
    ],
)
def test_noise_error_is_that_of_projected_counts(counts: NDArray[np.float64]) -> None:
    """200 draws: their mean is within 2 % of the expectation's, which the plug-in level t is off by at most 5 %."""
    rng = np.random.default_rng(1)
    total = counts.sum()
    errors = [
        np.abs(projected(counts + rng.normal(0, 20, counts.size), total) - counts).sum() / total
        for _ in range(200)
    ]
    assert noise_error(counts, 20.0) == pytest.approx(np.mean(errors), rel=0.07)


def test_noise_error_refuses_a_marginal_without_rows() -> None:
    with pytest.raises(ValueError, match="without rows"):
        noise_error(np.zeros(3), 1.0)


def test_expected_errors_say_which_are_estimates() -> None:
    workload = Workload(domain_of(3, 4, 2), (("c0", "c1"), ("c1", "c2")))
    synthetic = table_answers(workload, random_codes(workload.domain, 500, 2))
    intervals = [
        Interval(0.0, 1.0, MEASURED, 5.0 if q in (("c0",), ("c1", "c2")) else None)
        if q != ("c0", "c1")
        else Interval(0.0, 2.0, NOTHING)
        for q in workload.candidates
    ]
    found = dict(
        zip(
            workload.candidates,
            expected_errors(workload, synthetic, intervals, rows=500),
            strict=True,
        )
    )
    assert found["c0",].error == pytest.approx(0.8 * 5 * 3 / 500, rel=0.2)
    assert not found["c0",].at_most
    assert not found["c1", "c2"].at_most
    # Its columns are no farther away than a pair; of what nothing is known, nothing is expected.
    assert found["c1",] == Expected(found["c1", "c2"].error, True)
    assert found["c0", "c1"] == Expected(2.0, True)
    with pytest.raises(ValueError, match="without rows"):
        expected_errors(workload, synthetic, intervals, rows=0)
