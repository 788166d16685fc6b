"""Choice of a model's pairs of columns from released noisy counts of all of them.

``flaim_estimator`` returns the estimator of a run. ``PairsEstimator`` is that of FLAIM's variant ``pairs``: those pairs
enter the model whose released counts are farthest from its answers, beyond what their noise alone would leave.

All values here are public, as post-processing of released counts: the choice costs no privacy.

Representation: marginals normalised to the sum 1; a target's deviation is one over the root of its weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mechanisms.descent import Descent, Target, descent_to_noise, merge
from mechanisms.domain import Clique
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.model import Model
from mechanisms.pgm import FederatedEstimator
from mechanisms.remaining_error import remaining_errors
from mechanisms.workload import Workload

# Share of the largest model's size that pairs may make of it, as each of many steps fits the whole model.
_ROOM = 0.05

# Columns of a table for each pair that enters at once.
_COLUMNS_A_PAIR = 8


def flaim_estimator(
    workload: Workload, settings: FlaimSettings, *, descent: Descent = descent_to_noise
) -> FederatedEstimator:
    """Returns the estimator of a run with ``settings``; a new one for each run."""
    kind = PairsEstimator if settings.variant == "pairs" else FederatedEstimator
    return kind(
        workload,
        iterations=settings.round_iterations,
        final_iterations=settings.final_iterations,
        max_model_mb=settings.max_model_mb,
        descent=descent,
    )


class PairsEstimator(FederatedEstimator):
    """An estimator for counts of all columns and pairs; the model of an estimate that is not final has columns alone.

    The gain of a pair q is w_q (||z_q - mu_q||_1 - e_q): z_q are its released counts, brought back to be positive, mu_q
    the model's answer, and e_q the error that their noise leaves of it (`mechanisms.remaining_error`). The pair with
    the largest gain enters; in wide tables others without a common column and with half of its gain enter with it. The
    choice ends where no pair gains, or none leaves the model below a share of ``max_model_mb``.
    """

    def _estimate(
        self, targets: Sequence[tuple[int, Target]], spent: float, final: bool
    ) -> tuple[Model, NDArray[np.bool_]]:
        candidates = self._workload.candidates
        entered = [(i, target) for i, target in targets if len(candidates[i]) == 1]
        model, allowed = super()._estimate(entered, _ROOM if final else spent, False)
        if not final:
            return model, allowed
        number = {clique: i for i, clique in enumerate(candidates)}
        waiting = merge((candidates[i], target) for i, target in targets)
        waiting = {clique: target for clique, target in waiting.items() if len(clique) > 1}
        released = {clique: projected(target.mean) for clique, target in waiting.items()}
        while best := self._best(model, allowed, waiting=waiting, released=released):
            entered += [(number[clique], waiting.pop(clique)) for clique in best]
            model, allowed = super()._estimate(entered, _ROOM, False)
            # Each alone leaves room in the model, all together may not.
            entered = [(i, target) for i, target in entered if candidates[i] in self.potentials]
        return super()._estimate(entered, 1.0, True)

    def _best(
        self,
        model: Model,
        allowed: NDArray[np.bool_],
        *,
        waiting: Mapping[Clique, Target],
        released: Mapping[Clique, NDArray[np.float64]],
    ) -> list[Clique]:
        """Returns the pairs that enter next, the largest gain first; none if no pair gains."""
        weights = dict(zip(self._workload.candidates, self._workload.weights, strict=True))
        fitting = [q for q, may in zip(weights, allowed.tolist(), strict=True) if may]
        pairs = [clique for clique in fitting if clique in waiting]
        if not pairs:
            return []
        answers = model.answers(pairs)
        # Counts of one release have one variance, and so has their mean with others of the pair.
        errors = _errors_left(answers, [float(np.mean(waiting[clique].weight)) for clique in pairs])
        gains = {
            clique: weights[clique] * (float(np.abs(released[clique] - answer).sum()) - error)
            for clique, answer, error in zip(pairs, answers, errors, strict=True)
        }
        order = sorted(pairs, key=lambda clique: -gains[clique])
        least = max(gains[order[0]] / 2, math.ulp(0.0))
        best: list[Clique] = []
        for clique in order:
            if gains[clique] >= least and all(set(clique).isdisjoint(other) for other in best):
                best.append(clique)
        return best[: max(1, len(self._workload.one_way) // _COLUMNS_A_PAIR)]


def _errors_left(answers: Sequence[NDArray[np.float64]], weights: Sequence[float]) -> list[float]:
    """Returns the error that the noise of a target of each weight leaves of each marginal, normalised."""
    # Counts in deviations of their own noise: a marginal's total is then the root of its weight.
    totals = [math.sqrt(weight) for weight in weights]
    counts = np.concatenate(
        [answer.reshape(-1) * total for answer, total in zip(answers, totals, strict=True)]
    )
    # The finest units that 32 bits hold.
    bits = max(0, 30 - int(max(1.0, float(counts.max()))).bit_length())
    whole = np.rint(np.maximum(counts, 0.0) * (1 << bits)).astype(np.uint32)
    sizes = [answer.size for answer in answers]
    errors = remaining_errors(whole, sizes, 1.0, fraction_bits=bits)
    return [error / (1 << bits) / total for error, total in zip(errors, totals, strict=True)]


def projected(marginal: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the nearest vector to ``marginal`` with entries that are not negative and the sum 1, in its shape."""
    falling = np.sort(marginal, axis=None)[::-1]
    over = (np.cumsum(falling) - 1.0) / np.arange(1, falling.size + 1)
    # The nearest vector is max(z - t, 0), with the t of the longest prefix that stays positive.
    cut = over[np.flatnonzero(falling > over)[-1]]
    return np.maximum(marginal - float(cut), 0.0)
