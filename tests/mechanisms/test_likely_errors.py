"""Likely errors are estimates times a constant, one for each thing that they rest on, within the proven ends."""

import math

import numpy as np
import pytest

from mechanisms.expected_errors import Expected
from mechanisms.intervals import LARGEST, MEASURED, NOTHING, SELECTION, Choice, Interval, Released
from mechanisms.likely_errors import FACTOR, likely_errors, parts_of
from mechanisms.metrics import table_answers
from mechanisms.model import Model
from mechanisms.pgm import Target, fit_targets
from mechanisms.remaining_error import remaining_error
from mechanisms.sampling import public_generator
from mechanisms.scores import build_spec
from mechanisms.workload import Workload
from tests.mechanisms.tables import domain_of, random_codes

ROWS = 500
WORKLOAD = Workload(domain_of(3, 4, 2), (("c0", "c1"), ("c0", "c2"), ("c1", "c2")))


def model_of() -> Model:
    """The first two columns together, the third by itself."""
    counts = table_answers(WORKLOAD, random_codes(WORKLOAD.domain, ROWS, 2)) / ROWS
    targets = []
    for names in (("c0", "c1"), ("c2",)):
        cells = counts[WORKLOAD.slice(WORKLOAD.candidates.index(names))]
        targets.append((names, Target(cells.reshape(WORKLOAD.domain.sizes(names)), 1.0)))
    return fit_targets(WORKLOAD.domain, dict(targets), iterations=50)[0]


def choice_of(model: Model) -> Choice:
    everything = range(len(WORKLOAD.candidates))
    spec = build_spec(
        WORKLOAD,
        everything,
        model.answers_q32(WORKLOAD.candidates),
        total=ROWS,
        sigma=5.0,
        epsilon=0.1,
        max_rows=1000,
    )
    return Choice(spec, 0, Released(1, 0, np.zeros(3), 5.0, frozenset({0})))


def test_likely_errors_go_by_what_was_measured_and_what_the_model_joins() -> None:
    model = model_of()
    made = table_answers(WORKLOAD, model.sample(ROWS, public_generator(1)))
    intervals = {q: Interval(0.0, 1.0, SELECTION) for q in WORKLOAD.candidates}
    intervals["c1",] = Interval(0.0, 0.15, MEASURED, 5.0)
    intervals["c2",] = Interval(0.5, 1.0, MEASURED, 5.0)
    expected = {q: Expected(0.2, len(q) > 1) for q in WORKLOAD.candidates}
    found, without, early = (
        dict(
            zip(
                WORKLOAD.candidates,
                likely_errors(
                    WORKLOAD,
                    made,
                    [*intervals.values()],
                    [*expected.values()],
                    model=model,
                    rows=ROWS,
                    choice=choice,
                    settled=settled,
                ),
                strict=True,
            )
        )
        for choice, settled in ((choice_of(model), True), (None, True), (choice_of(model), False))
    )
    answers = {q: model.answers_q32([q]) / 2**32 for q in WORKLOAD.candidates}
    drawn = {
        q: np.abs(answers[q] - made[WORKLOAD.slice(i)] / ROWS).sum()
        for i, q in enumerate(WORKLOAD.candidates)
    }
    assert found["c0",] == pytest.approx(FACTOR * math.hypot(0.2, drawn["c0",]))
    # One nat of an exponential mechanism of epsilon 0.1, in rows: 2 Delta / (epsilon w).
    weights = dict(zip(WORKLOAD.candidates, WORKLOAD.weights, strict=True))
    chance = 2 * max(WORKLOAD.weights) / 0.1 / weights["c0", "c1"] / ROWS
    left = remaining_error(answers["c0", "c1"] * ROWS, 5.0)
    left = math.hypot(left, drawn["c0", "c1"], chance)
    assert found["c0", "c1"] == pytest.approx(FACTOR * math.sqrt((0.2 + chance) * left))
    # Nothing that joins them was looked at, the last choice was lost, or the model has not settled.
    assert found["c0", "c2"] == pytest.approx(0.2 + chance)
    assert early["c0", "c1"] == pytest.approx(0.2 + chance)
    assert without["c0", "c1"] == 0.2
    # Between the proven ends.
    assert found["c1",] == 0.15
    assert found["c2",] == 0.5


def test_likely_errors_are_the_upper_ends_where_nothing_is_expected() -> None:
    model = model_of()
    made = table_answers(WORKLOAD, model.sample(ROWS, public_generator(1)))
    intervals = [Interval(0.0, LARGEST, NOTHING) for _ in WORKLOAD.candidates]
    nothing = [Expected(LARGEST, True) for _ in WORKLOAD.candidates]
    found = likely_errors(WORKLOAD, made, intervals, nothing, model=model, rows=ROWS)
    assert found == (LARGEST,) * len(WORKLOAD.candidates)
    with pytest.raises(ValueError, match="without rows"):
        likely_errors(WORKLOAD, made, intervals, nothing, model=model, rows=0)


def test_parts_of_a_model_are_joined_through_other_columns() -> None:
    parts = parts_of(("a", "b", "c", "d"), [("a", "b"), ("b", "c")])
    assert parts["a"] == parts["b"] == parts["c"] != parts["d"]
