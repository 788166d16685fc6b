"""A nonlinear model: one hidden layer of tanh, its per-example gradients by JAX.

``Perceptron`` is an ``Objective``. ``size``, ``start`` and ``weight_names`` need no JAX, so that servers and auditors
do without it; JAX is imported with the first ``Perceptron``.

    f(x) = v . tanh(W x) + c,   w = (W by rows, v, c),   d = hidden (features + 1) + 1

Features, labels, gradients and losses are secret. The start of training is public. A constant among the features is the
bias of the hidden units. Numbers are float64. Rows are processed in blocks of ``BLOCK``, the last filled up with zeros
that are cut off again, so that one compilation serves batches of every size.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.extras import extra_module
from mechanisms.linear_models import LogisticLoss, Objective, SquaredError

BLOCK = 64
PERCEPTRONS: dict[str, Objective] = {
    "perceptron": SquaredError(),
    "logistic-perceptron": LogisticLoss(),
}
"""Loss of f(x), as that of a linear model with one feature f(x) and weight 1."""

Floats: TypeAlias = NDArray[np.float64]
Compiled: TypeAlias = Callable[[Floats, Floats, Floats], Any]
_ONE = np.ones(1)


def size(features: int, hidden: int) -> int:
    """Returns d, the number of weights."""
    return hidden * (features + 1) + 1


def start(features: int, hidden: int) -> Floats:
    """Returns the start of all training, (d,): not zero, where all hidden units would stay equal.

    Each weight is uniform within 1 / sqrt(n), n the number of inputs of its unit; c is 0. The same on every machine.
    """
    count = size(features, hidden)
    words = hashlib.shake_256(b"syncret perceptron 1 start").digest(8 * count)
    # 53 bits to -1 .. 1, without rounding.
    w: Floats = np.ldexp((np.frombuffer(words, "<u8") >> 11).astype(np.float64), -52) - 1
    w[: hidden * features] /= math.sqrt(features)
    w[hidden * features :] /= math.sqrt(hidden)
    w[-1] = 0.0
    return w


def weight_names(features: Sequence[str], hidden: int) -> list[str]:
    """Returns the names of the d weights: the two units that each connects."""
    units = [f"unit {unit}" for unit in range(1, hidden + 1)]
    into = [f"{feature} to {unit}" for unit in units for feature in features]
    return [*into, *(f"{unit} to output" for unit in units), "1 to output"]


class Perceptron:
    """The perceptron of ``hidden`` units with the loss ``PERCEPTRONS[name]``.

    Raises ``DataError`` with the package to install if there is no JAX.
    """

    def __init__(self, name: str, hidden: int) -> None:
        self._loss = PERCEPTRONS[name]
        self._jax = extra_module("jax", f"objective = {name!r}")
        self._outputs, self._gradients = _compiled(name, hidden)

    def losses(self, w: Floats, x: Floats, y: Floats) -> Floats:
        """See ``Objective``."""
        return self._loss.losses(_ONE, self._in_blocks(self._outputs, w, x, y)[:, None], y)

    def gradients(self, w: Floats, x: Floats, y: Floats) -> Floats:
        """See ``Objective``."""
        return self._in_blocks(self._gradients, w, x, y)

    def error(self, w: Floats, x: Floats, y: Floats) -> float:
        """Returns the error measure of the loss's linear model."""
        return self._loss.error(_ONE, self._in_blocks(self._outputs, w, x, y)[:, None], y)

    def _in_blocks(self, function: Compiled, w: Floats, x: Floats, y: Floats) -> Floats:
        """Returns ``function`` of each row, (n, ...), in an array of its own: JAX's arrays cannot be written to."""
        rows = len(x)
        blocks = max(1, -(-rows // BLOCK))
        padded_x = np.zeros((blocks * BLOCK, x.shape[1]))
        padded_y = np.zeros(blocks * BLOCK)
        padded_x[:rows], padded_y[:rows] = x, y
        with self._jax.enable_x64(True):
            parts = [
                np.asarray(function(w, block, labels))
                for block, labels in zip(
                    np.split(padded_x, blocks), np.split(padded_y, blocks), strict=True
                )
            ]
        return np.concatenate(parts)[:rows]


@functools.cache
def _compiled(name: str, hidden: int) -> tuple[Compiled, Compiled]:
    """Returns f (n,) and the losses' gradients (n, d) for n rows; both take y, which f does not use."""
    jax = extra_module("jax", name)
    numpy = extra_module("jax.numpy", name)
    logistic = isinstance(PERCEPTRONS[name], LogisticLoss)

    def output(w: Any, x: Any, y: Any) -> Any:
        inner, outer = w[: hidden * x.size].reshape(hidden, x.size), w[hidden * x.size :]
        # f(x) = v . tanh(W x) + c.
        return outer[:-1] @ numpy.tanh(inner @ x) + outer[-1]

    def loss(w: Any, x: Any, y: Any) -> Any:
        f = output(w, x, y)
        return numpy.logaddexp(0.0, f) - y * f if logistic else 0.5 * (f - y) ** 2

    each = (None, 0, 0)
    return jax.jit(jax.vmap(output, each)), jax.jit(jax.vmap(jax.grad(loss), each))
