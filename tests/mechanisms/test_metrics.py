"""Workload error and likelihood on tables small enough to work out."""

import math

import numpy as np
import pytest

from mechanisms.metrics import (
    UNIFORM_SHARE,
    nll,
    query_errors,
    raw_nll,
    table_answers,
    workload_error,
)
from mechanisms.model import Model
from mechanisms.workload import Workload
from tests.mechanisms.tables import domain_of

WORKLOAD = Workload(domain_of(2, 2), (("c0",), ("c0", "c1")))


def test_query_errors_are_l1_distances_of_normalised_marginals() -> None:
    real = table_answers(WORKLOAD, np.array([[0, 0], [1, 1]], np.int32))
    other = table_answers(WORKLOAD, np.array([[0, 0], [0, 0], [0, 1], [1, 1]], np.int32))
    assert query_errors(WORKLOAD, real, other).tolist() == [0.5, 0.5]
    assert workload_error(WORKLOAD, real, other * 7) == 0.5
    assert workload_error(WORKLOAD, real, real.astype(np.uint32)) == 0


def test_query_errors_reach_two_when_tables_have_nothing_in_common() -> None:
    real = table_answers(WORKLOAD, np.array([[0, 0]], np.int32))
    other = table_answers(WORKLOAD, np.array([[1, 0]], np.int32))
    assert query_errors(WORKLOAD, real, other).tolist() == [2, 2]


def test_query_errors_refuse_empty_tables() -> None:
    with pytest.raises(ValueError, match="normalised"):
        query_errors(WORKLOAD, np.zeros(WORKLOAD.cells), np.ones(WORKLOAD.cells))


def model_of(first: list[float], second: list[float]) -> Model:
    domain = WORKLOAD.domain
    return Model(domain, (("c0",), ("c1",)), (-1, -1), (np.array(first), np.array(second)))


def test_nll_is_the_mean_over_rows() -> None:
    model = model_of([0.25, 0.75], [0.5, 0.5])
    codes = np.array([[0, 0], [1, 1]], np.int32)
    assert nll(model, codes) == pytest.approx(-(math.log(1 / 8) + math.log(3 / 8)) / 2, abs=1e-5)


def test_nll_is_finite_when_a_row_is_impossible() -> None:
    model = model_of([0.0, 1.0], [0.5, 0.5])
    expected = -math.log(UNIFORM_SHARE / 4)
    assert nll(model, np.array([[0, 0]], np.int32)) == pytest.approx(expected)
    with pytest.raises(ValueError, match="no rows"):
        nll(model, np.zeros((0, 2), np.int32))


def test_raw_nll_is_that_of_the_potentials_wherever_a_row_lies() -> None:
    domain = domain_of(2, 3)
    # 2,000 nats below the others: a double's probability of it is 0.
    potentials = {("c0",): np.array([0.0, -2000.0]), ("c1",): np.zeros(3)}
    usual, never = (np.array([[code, 1]], np.int32) for code in (0, 1))
    assert raw_nll(domain, potentials, usual) == pytest.approx(math.log(3))
    assert raw_nll(domain, potentials, never) == pytest.approx(2000 + math.log(3))
    both = np.concatenate([usual, never])
    assert raw_nll(domain, potentials, both) == pytest.approx(1000 + math.log(3))
    with pytest.raises(ValueError, match="no rows"):
        raw_nll(domain, potentials, both[:0])
