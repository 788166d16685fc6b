"""Metrics of the distance between a synthetic table or a model and a real table.

The real table is secret, and the results are not private: they are for tests, trials and owners of the table.

Source: FLAIM paper, section 5 (average L1 error of the workload's normalised marginals, between 0 and 2; negative
log-likelihood).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Clique, Domain
from mechanisms.inference import JunctionTree
from mechanisms.model import Model
from mechanisms.workload import Workload, count_marginals

# Weight of the uniform distribution that a model is mixed with before its likelihood is computed.
UNIFORM_SHARE = 1e-6


def table_answers(workload: Workload, codes: NDArray[np.int32]) -> NDArray[np.float64]:
    """Returns the expanded counts (cells,) of a table of codes (rows, columns)."""
    return workload.expand(count_marginals(codes, workload)).astype(np.float64)


def query_errors(
    workload: Workload, real: NDArray[np.generic], synthetic: NDArray[np.generic]
) -> NDArray[np.float64]:
    """Returns the L1 distance, 0 to 2, between normalised marginals, for each query of the workload.

    Shapes: real, synthetic (workload.cells,), expanded counts or model answers of any scale -> (queries,). Raises
    ``ValueError`` on another shape, or a marginal without a positive sum.
    """
    number = {candidate: i for i, candidate in enumerate(workload.candidates)}
    errors = np.empty(len(workload.queries))
    for i, query in enumerate(workload.queries):
        cells = workload.slice(number[query])
        errors[i] = np.abs(_normalised(real[cells]) - _normalised(synthetic[cells])).sum()
    return errors


def workload_error(
    workload: Workload, real: NDArray[np.generic], synthetic: NDArray[np.generic]
) -> float:
    """Returns the average of ``query_errors``."""
    return float(query_errors(workload, real, synthetic).mean())


def nll(model: Model, codes: NDArray[np.int32]) -> float:
    """Returns the mean negative log-likelihood of a row, in nats, smoothed.

    The model is mixed with the uniform distribution over the domain, of weight ``UNIFORM_SHARE``, so that a row of
    probability 0 costs much but not infinity. Shapes: codes (rows, columns). Raises ``ValueError`` without rows.
    """
    if not len(codes):
        raise ValueError("the likelihood of no rows is not defined")
    uniform = -sum(math.log(size) for size in model.domain.shape)
    mixed = np.logaddexp(
        math.log1p(-UNIFORM_SHARE) + model.log_probabilities(codes),
        math.log(UNIFORM_SHARE) + uniform,
    )
    return float(-mixed.mean())


def raw_nll(
    domain: Domain, potentials: Mapping[Clique, NDArray[np.float64]], codes: NDArray[np.int32]
) -> float:
    """Returns the mean negative log-likelihood of a row, in nats, neither smoothed nor floored.

    The logarithm of the distribution is the sum of ``potentials``, up to a constant. It is nowhere 0, however small: a
    model may be thousands of nats from a row that it has never seen. Shapes: potentials as domain.sizes(clique); codes
    (rows, columns). Raises ``ValueError`` without rows.
    """
    if not len(codes):
        raise ValueError("the likelihood of no rows is not defined")
    total = np.zeros(len(codes))
    for clique, table in potentials.items():
        total += table[tuple(codes[:, [domain.index(name) for name in clique]].T)]
    # -mean(log p) = log Z - mean(sum of potentials).
    return JunctionTree(domain, list(potentials)).log_partition(potentials) - float(total.mean())


def _normalised(counts: NDArray[np.generic]) -> NDArray[np.float64]:
    values = counts.astype(np.float64)
    total = values.sum()
    if not total > 0:
        raise ValueError("a marginal has no positive sum and cannot be normalised")
    return np.asarray(values / total)
