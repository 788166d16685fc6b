"""Linear models and the per-example gradients of their losses, for DP-SGD.

Features, labels, gradients and losses are secret. A model is (d,) weights; a constant among the features is its
intercept.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Objective(Protocol):
    """A loss of a model ``w`` (d,) on examples ``x`` (n, d) with labels ``y`` (n,)."""

    def losses(
        self, w: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Returns the loss of each example, (n,)."""

    def gradients(
        self, w: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Returns the gradient of each example's loss in ``w``, (n, d)."""

    def error(
        self, w: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
    ) -> float:
        """Returns the usual error measure of the model, averaged over the examples; less is better."""


class SquaredError:
    """Half the squared difference of the label and ``x @ w``; its error is the mean square."""

    def losses(
        self, w: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """See ``Objective``."""
        halves: NDArray[np.float64] = 0.5 * (x @ w - y) ** 2
        return halves

    def gradients(
        self, w: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """See ``Objective``."""
        rows: NDArray[np.float64] = (x @ w - y)[:, None] * x
        return rows

    def error(
        self, w: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
    ) -> float:
        """Returns the mean squared error."""
        return float(2 * self.losses(w, x, y).mean())


class LogisticLoss:
    """Negative log-likelihood of labels 0 and 1 with log-odds ``x @ w``; its error is the share of wrong labels."""

    def losses(
        self, w: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """See ``Objective``."""
        odds = x @ w
        # log(1 + e^odds) - y odds.
        losses: NDArray[np.float64] = np.logaddexp(0.0, odds) - y * odds
        return losses

    def gradients(
        self, w: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """See ``Objective``."""
        # sigmoid(t) = (1 + tanh(t / 2)) / 2.
        chance = 0.5 * (1 + np.tanh(0.5 * (x @ w)))
        rows: NDArray[np.float64] = (chance - y)[:, None] * x
        return rows

    def error(
        self, w: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
    ) -> float:
        """Returns the share of examples whose label has a predicted probability below one half."""
        return float(np.mean((x @ w > 0) != (y > 0.5)))


OBJECTIVES: dict[str, Objective] = {"linear": SquaredError(), "logistic": LogisticLoss()}
