"""Models of the pandemic task: logistic regression, and a perceptron of three layers.

A ``RiskModel`` gives margins, the log-odds of being infected, and the sum of clipped gradients. Weights are one vector
(d,). Features, labels and gradients are secret; starts are public.

    linear       f(x) = w . x
    perceptron   f(x) = W3 (relu(W2 (relu(W1 x), 1)), 1)

The first feature is a constant. A layer's gradient of one example is the product of its input a and the margin's
derivative d by its outputs, of norm |a| |d|: gradients are clipped without being written out (Goodfellow 2015).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mechanisms.sampling import public_generator

Floats = NDArray[np.float64]


class RiskModel(Protocol):
    """A model of ``size`` weights, trained from ``start``."""

    @property
    def size(self) -> int:
        """Number d of weights."""

    @property
    def start(self) -> Floats:
        """Weights (d,) that training starts from."""

    def margins(self, w: Floats, x: NDArray[np.floating]) -> Floats:
        """Returns the margins (b,) of examples ``x`` (b, features)."""

    def clipped_sum(self, w: Floats, x: Floats, slopes: Floats, *, clip: float) -> Floats:
        """Returns the sum (d,) of gradients, each clipped; ``slopes`` (b,) are the loss' derivatives by the margin."""


class Linear:
    """Logistic regression, from zero."""

    def __init__(self, features: int) -> None:
        self.size = features
        self.start = np.zeros(features)

    def margins(self, w: Floats, x: NDArray[np.floating]) -> Floats:
        """See ``RiskModel``."""
        return np.asarray(x @ w.astype(x.dtype), np.float64)

    def clipped_sum(self, w: Floats, x: Floats, slopes: Floats, *, clip: float) -> Floats:
        """See ``RiskModel``."""
        return clipped_sum(x, slopes, clip)


class LayeredPerceptron:
    """Two hidden layers of ``hidden`` rectified units, from a public random start."""

    def __init__(self, features: int, hidden: int) -> None:
        self._shapes = ((features, hidden), (hidden + 1, hidden), (hidden + 1, 1))
        self.size = sum(inputs * outputs for inputs, outputs in self._shapes)
        draw = public_generator(hidden)
        # Uniform within 1 / sqrt(number of inputs).
        parts = [draw.uniform(-1, 1, shape).ravel() / shape[0] ** 0.5 for shape in self._shapes]
        self.start = np.concatenate(parts)

    def margins(self, w: Floats, x: NDArray[np.floating]) -> Floats:
        """See ``RiskModel``."""
        third = self._layers(w)[2]
        return np.asarray((self._inputs(w, x)[2] @ third)[:, 0], np.float64)

    def clipped_sum(self, w: Floats, x: Floats, slopes: Floats, *, clip: float) -> Floats:
        """See ``RiskModel``."""
        _, second, third = self._layers(w)
        inputs = self._inputs(w, x)
        outer = slopes[:, None]
        # Derivatives by the outputs of each layer, from the last one back; a unit at 0 passes nothing on.
        middle = (outer @ third[:-1].T) * (inputs[2][:, :-1] > 0)
        inner = (middle @ second[:-1].T) * (inputs[1][:, :-1] > 0)
        outputs = (inner, middle, outer)
        squares = sum(
            (a * a).sum(axis=1) * (d * d).sum(axis=1) for a, d in zip(inputs, outputs, strict=True)
        )
        shrink = np.minimum(1.0, clip / np.maximum(np.sqrt(squares), clip))[:, None]
        parts = [(a.T @ (d * shrink)).ravel() for a, d in zip(inputs, outputs, strict=True)]
        return np.concatenate(parts)

    def _layers(self, w: Floats) -> list[Floats]:
        """Returns the layers' weights (inputs, outputs)."""
        ends = np.cumsum([inputs * outputs for inputs, outputs in self._shapes])
        parts = np.split(w, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def _inputs(self, w: Floats, x: NDArray[np.floating]) -> list[Floats]:
        """Returns the inputs (b, inputs) of the three layers; a 1 is added to those of the last two."""
        first, second, _ = self._layers(w)
        one = np.ones((len(x), 1))
        middle = np.hstack([np.maximum(x @ first, 0.0), one])
        return [np.asarray(x), middle, np.hstack([np.maximum(middle @ second, 0.0), one])]


def model_of(features: int, hidden: int) -> RiskModel:
    """Returns the perceptron with ``hidden`` units a layer, or the linear model for 0."""
    return LayeredPerceptron(features, hidden) if hidden else Linear(features)


def clipped_sum(features: Floats, slopes: Floats, clip: float) -> Floats:
    """Sum (d,) of gradients slope_i x_i, each clipped to norm ``clip``; ``features`` (b, d), ``slopes`` (b,)."""
    norms = np.abs(slopes) * np.linalg.norm(features, axis=1)
    return np.asarray(features.T @ (slopes * np.minimum(1.0, clip / np.maximum(norms, clip))))
