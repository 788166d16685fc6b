"""Expected errors are those of noisy counts brought back to counts, in closed form."""

import pytest

from mechanisms.expected_errors import Expected, expected_errors
from mechanisms.intervals import MEASURED, NOTHING, Interval
from mechanisms.metrics import table_answers
from mechanisms.workload import Workload
from tests.mechanisms.tables import domain_of, random_codes


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
