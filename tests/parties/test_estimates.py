"""Estimates' intervals have the coverage that they state, on generated tables by central AIM.

The statistical test: one question, drawn at random, of each of 20 runs (300 in the slow test) on tables that nothing
was calibrated on, half of them with triples as queries. With a coverage of 0.95 as few answers are right as the test
refuses with a chance of at most 1e-4. 300 runs find out a coverage of 0.88 with a chance of 0.9.
The control: intervals of a fifth of the width, which must be refused.
"""

import numpy as np
import pytest
from scipy import stats

from mechanisms.estimate import CONFIDENCE
from mechanisms.estimates import estimates
from mechanisms.question import parse_question
from tests.parties.estimate_tables import QUESTIONS, finished

ALARM = 1e-4


def answered(runs: range) -> list[tuple[float, float]]:
    """The error and the half width of one answer of each run that is no refusal."""
    found = []
    for seed in runs:
        run = finished(seed, triples=seed % 2 == 1)
        rng = np.random.default_rng([seed, 7])
        for text in rng.permutation(list(QUESTIONS)):
            (one,) = estimates(run.model, run.knowledge, parse_question(str(text)))
            if one.refusal is not None:
                continue
            value, low, high = (float(x) for x in (one.value, one.low, one.high))  # type: ignore[arg-type]
            error = float(QUESTIONS[text](run.table)) - value
            found.append((abs(error), high - value if error > 0 else value - low))
            break
    return found


def check_coverage(pairs: list[tuple[float, float]]) -> None:
    def refused(part: float) -> bool:
        held = sum(error <= part * half + 1e-9 for error, half in pairs)
        test = stats.binomtest(held, len(pairs), CONFIDENCE, alternative="less")
        return bool(test.pvalue < ALARM)

    assert not refused(1.0)
    assert refused(0.2)


def test_intervals_hold_as_often_as_they_say() -> None:
    pairs = answered(range(1000, 1020))
    assert len(pairs) == 20
    check_coverage(pairs)


@pytest.mark.slow
def test_intervals_hold_as_often_as_they_say_in_300_runs() -> None:
    check_coverage(answered(range(2000, 2300)))
