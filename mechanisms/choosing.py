"""The candidates of a round's selection, and the public numbers that the selection depends on.

All values here are public. They depend on released measurements and models alone, so that servers and auditors with the
same inputs compute the same specification.
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
    """Returns the specification of the selection of ``round``, after the candidates ``measured``.

    A plan of single columns alone has one candidate: the column that was measured least often.

    Shapes: answers_q32 (workload.cells,), the model's answers in units of 2^-32; allowed (candidates,). ``total`` is
    the number of rows that the answers are scaled to. Raises ``EstimationError`` if there is nothing to choose from,
    ``ValueError`` as ``build_spec``.
    """
    candidates = selectable(workload, allowed)
    if plan.columns_alone:
        candidates = [least_measured(workload, candidates, measured)]
    left: Mapping[int, int] | None = None
    if rule != AIM:
        left, rows = _left(workload, candidates, answers_q32, total=total, sigma=plan.noise_sigma)
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


def drowned(
    workload: Workload,
    answers_q32: NDArray[np.uint32],
    allowed: NDArray[np.bool_],
    *,
    total: int,
    sigma: float,
) -> bool:
    """Returns whether noise ``sigma`` would leave half or more of the largest error, on average over all pairs.

    Pairs are the candidates of two columns or more that can be chosen. Arguments are as for ``choice_spec``; without
    pairs the result is false.
    """
    pairs = [i for i in selectable(workload, allowed) if len(workload.candidates[i]) > 1]
    if not pairs:
        return False
    left, rows = _left(workload, pairs, answers_q32, total=total, sigma=sigma)
    return sum(left.values()) >= sum(rows)


def _left(
    workload: Workload,
    candidates: Sequence[int],
    answers_q32: NDArray[np.uint32],
    *,
    total: int,
    sigma: float,
) -> tuple[dict[int, int], list[int]]:
    """Returns the error that noise leaves of each candidate, and the rows of each marginal in the same units."""
    answers = scale_answers(workload.gather(answers_q32, candidates), total)
    sizes = [workload.offsets[i + 1] - workload.offsets[i] for i in candidates]
    errors = remaining_errors(answers, sizes, sigma, fraction_bits=FRACTION_BITS)
    rows = np.add.reduceat(answers.astype(np.uint64), np.cumsum([0, *sizes[:-1]])).tolist()
    return dict(zip(candidates, errors, strict=True)), rows


def least_measured(workload: Workload, candidates: Iterable[int], measured: Sequence[int]) -> int:
    """Returns the first of the single columns among ``candidates`` that are least often in ``measured``.

    Raises ``EstimationError`` without one.
    """
    columns = [i for i in candidates if len(workload.candidates[i]) == 1]
    if not columns:
        raise EstimationError("no single column can be measured; raise max_model_mb")
    return min(columns, key=measured.count)


def selectable(workload: Workload, allowed: NDArray[np.bool_]) -> list[int]:
    """Returns the candidates to choose from: those ``allowed`` (candidates,) that a query contains.

    Raises ``EstimationError`` if there is none.
    """
    weighted = np.array(workload.weights) > 0
    candidates: list[int] = np.flatnonzero(allowed & weighted).tolist()
    if not candidates:
        raise EstimationError("the size limit of the model leaves no candidate; raise max_model_mb")
    return candidates


def joining(workload: Workload, candidates: Iterable[int], measured: Iterable[int]) -> list[int]:
    """Returns those of the ``candidates`` that are pairs of columns which no candidate in ``measured`` connects."""
    parts = connected(workload, measured)
    pairs = [(i, q) for i in candidates if len(q := workload.candidates[i]) == 2]
    return [i for i, (first, second) in pairs if parts[first] != parts[second]]


def connected(workload: Workload, candidates: Iterable[int]) -> dict[str, str]:
    """Returns a representative column for each column; columns of one candidate have the same representative."""
    parts = {name: name for name in workload.domain.names}
    for i in candidates:
        first, *others = dict.fromkeys(parts[name] for name in workload.candidates[i])
        if others:
            parts = {name: first if part in others else part for name, part in parts.items()}
    return parts


def tree_rounds(workload: Workload) -> int:
    """Returns the number of rounds until pairs of the workload have joined all columns that they can."""
    pairs = [i for i, q in enumerate(workload.candidates) if len(q) == 2 and workload.weights[i]]
    return len(workload.domain.names) - len({*connected(workload, pairs).values()})


def worthwhile(left: Mapping[int, int], rows: Sequence[int]) -> list[int]:
    """Returns the candidates of which noise leaves less than half of the largest error between two tables.

    ``left`` maps each candidate to the error that noise leaves; ``rows`` has the rows of each marginal in the same
    units. If no candidate qualifies, all are returned: the choice is then random.
    """
    kept = [i for (i, error), most in zip(left.items(), rows, strict=True) if error < most]
    return kept or list(left)
