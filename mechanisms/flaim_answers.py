"""A model's answers to the candidates, as a client scores against them, and their change after an update.

Columns that no clique of the model connects are independent: a candidate's answer is the product of those of its
connected parts, few of which are different. A model that was updated to a measurement answers as before for every
candidate without columns connected to that measurement.

All values here are public, as post-processing of the server's model and of a client's local measurement.

Representation: probabilities in units of 2^-32, rounded to the nearest, 1 as 2^32 - 1; the candidates one after the
other, as in ``Workload``. Equal to ``Model.answers_q32`` up to the last bits of the doubles that are rounded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Clique
from mechanisms.model import Model
from mechanisms.workload import Workload


def allowed_answers(
    workload: Workload, model: Model, allowed: NDArray[np.bool_]
) -> NDArray[np.uint32]:
    """Returns the model's answers (cells,) to the allowed candidates, 0 elsewhere."""
    answers = np.zeros(workload.cells, np.uint32)
    _fill(answers, workload, model, np.flatnonzero(allowed).tolist())
    return answers


def moved_answers(
    workload: Workload,
    before: tuple[NDArray[np.uint32], NDArray[np.int64]],
    model: Model,
    clique: Clique,
    allowed: NDArray[np.bool_],
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Returns the answers (cells,) of ``model`` and their totals (candidates,), from those of another model.

    ``before`` has the other model's answers and totals. ``model`` is that model times a function of ``clique``, which
    lies in one of its own cliques.
    """
    answers, totals = before[0].copy(), before[1].copy()
    parts = _parts(model)
    moved = parts[clique[0]]
    numbers = [
        i
        for i in np.flatnonzero(allowed).tolist()
        if any(parts[name] == moved for name in workload.candidates[i])
    ]
    _fill(answers, workload, model, numbers)
    for i in numbers:
        totals[i] = answers[workload.slice(i)].sum(dtype=np.int64)
    return answers, totals


def candidate_totals(workload: Workload, answers: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Returns the sums (candidates,) of every candidate's part of an expanded vector (cells,)."""
    return np.add.reduceat(answers, np.array(workload.offsets[:-1]), dtype=np.int64)


def _fill(
    answers: NDArray[np.uint32], workload: Workload, model: Model, numbers: Sequence[int]
) -> None:
    """Writes the answers to the candidates ``numbers`` to their places."""
    parts = _parts(model)
    split = {i: _split(workload.candidates[i], parts) for i in numbers}
    wanted = list(dict.fromkeys(part for cliques in split.values() for part in cliques))
    tables = dict(zip(wanted, model.answers(wanted), strict=True))
    for i, cliques in split.items():
        names = workload.candidates[i]
        # The product of the parts' marginals, times 2^32.
        table = np.full((1,) * len(names), 2.0**32)
        for clique in cliques:
            missing = tuple(axis for axis, name in enumerate(names) if name not in clique)
            table = table * np.expand_dims(tables[clique], missing)
        np.rint(table, out=table)
        np.clip(table, 0.0, 2.0**32 - 1, out=table)
        answers[workload.slice(i)] = table.reshape(-1)


def _split(names: Clique, parts: dict[str, int]) -> list[Clique]:
    """Returns the connected parts of a candidate, the smallest number of a part first."""
    return [
        tuple(name for name in names if parts[name] == part)
        for part in sorted({parts[name] for name in names})
    ]


def _parts(model: Model) -> dict[str, int]:
    """Returns for each column the number of its part: cliques that share a column are connected."""
    parts: dict[str, int] = {}
    for number, clique in enumerate(model.cliques):
        met = {parts[name] for name in clique if name in parts}
        parts |= {name: number for name, part in parts.items() if part in met}
        parts |= dict.fromkeys(clique, number)
    return parts
