"""The candidates of a round's choice, and the public numbers that it goes by.

Provides ``choice_spec``, ``selectable``, ``worthwhile``, ``joining``, ``connected`` and ``tree_rounds``. Public:
everything. It depends on released measurements and models alone, so that servers and auditors that are told the same
come to the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Schedule
from mechanisms.errors import EstimationError
from mechanisms.remaining_error import remaining_errors
from mechanisms.scores import AIM, FRACTION_BITS, Rule, ScoreSpec, build_spec, scale_answers
from mechanisms.workload import Workload


def choice_spec(
    workload: Workload,
    plan: Schedule,
    answers_q32: NDArray[np.uint32],
    allowed: NDArray[np.bool_],
    *,
    measured: Sequence[int],
    round: int,
    total: int,
    max_rows: int,
    rule: Rule,
) -> ScoreSpec:
    """The specification of the choice of ``round``, after the candidates ``measured``.

    Shapes: answers_q32 (workload.cells,), the model's, in units of 2^-32, and ``total`` the rows they are scaled to;
    allowed (candidates,). Raises ``EstimationError`` where there is nothing to choose from, ``ValueError`` as
    ``build_spec``.
    """
    candidates = selectable(workload, allowed)
    left: Mapping[int, int] | None = None
    if rule != AIM:
        answers = scale_answers(workload.gather(answers_q32, candidates), total)
        sizes = [workload.offsets[i + 1] - workload.offsets[i] for i in candidates]
        errors = remaining_errors(answers, sizes, plan.noise_sigma, fraction_bits=FRACTION_BITS)
        rows = np.add.reduceat(answers.astype(np.uint64), np.cumsum([0, *sizes[:-1]])).tolist()
        left = dict(zip(candidates, errors, strict=True))
        candidates = worthwhile(left, rows)
    if round <= plan.tree_rounds:
        candidates = joining(workload, candidates, measured) or candidates
    return build_spec(
        workload,
        candidates,
        answers_q32,
        total=total,
        sigma=plan.noise_sigma,
        epsilon=plan.epsilon,
        max_rows=max_rows,
        left=left,
    )


def selectable(workload: Workload, allowed: NDArray[np.bool_]) -> list[int]:
    """The candidates to choose from: those ``allowed`` (candidates,) that a query contains.

    Raises ``EstimationError`` where there is none.
    """
    weighted = np.array(workload.weights) > 0
    candidates: list[int] = np.flatnonzero(allowed & weighted).tolist()
    if not candidates:
        raise EstimationError("the size limit of the model leaves no candidate; raise max_model_mb")
    return candidates


def joining(workload: Workload, candidates: Iterable[int], measured: Iterable[int]) -> list[int]:
    """Those of the ``candidates`` that are pairs of columns which nothing ``measured`` connects."""
    parts = connected(workload, measured)
    pairs = [(i, q) for i in candidates if len(q := workload.candidates[i]) == 2]
    return [i for i, (first, second) in pairs if parts[first] != parts[second]]


def connected(workload: Workload, candidates: Iterable[int]) -> dict[str, str]:
    """For each column a column that stands for its part: those of one candidate are in one part."""
    parts = {name: name for name in workload.domain.names}
    for i in candidates:
        first, *others = (parts[name] for name in workload.candidates[i])
        parts = {name: first if part in others else part for name, part in parts.items()}
    return parts


def tree_rounds(workload: Workload) -> int:
    """How many rounds it takes until pairs of the workload have joined all columns that they can."""
    pairs = [i for i, q in enumerate(workload.candidates) if len(q) == 2 and workload.weights[i]]
    return len(workload.domain.names) - len({*connected(workload, pairs).values()})


def worthwhile(left: Mapping[int, int], rows: Sequence[int]) -> list[int]:
    """The candidates of which noise leaves less than half of the error that two tables can have.

    ``left``: by candidate the error that noise leaves, ``rows`` those of its marginal, in the same units. All of them
    where there is none: what is chosen then is chance.
    """
    kept = [i for (i, error), most in zip(left.items(), rows, strict=True) if error < most]
    return kept or list(left)
