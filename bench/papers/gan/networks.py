"""DP-CTGAN's two networks and their gradients: one-hot rows, two hidden layers each, clipped gradients per example.

Real rows are secret; only `clipped_sum` sees any. JAX computes, in 32-bit floats.

A layer's gradient of one example is the outer product of its input a and its error d, of norm |a| |d|; so the norm of
all gradients of an example follows from activations and errors, and their clipped sum is one product of matrices: no
gradient is ever held for each example (Goodfellow 2015). A test holds it against vmap's.

Source: the settings of the FLAIM paper's baseline: one-hot columns, Gumbel-softmax of 0.2, hidden layers of 256,
cross-entropy, Adam with 0.5 and 0.9. Conditional vectors (`bench.papers.gan.conditions`) are optional.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

HIDDEN = (256, 256)
NOISE_INPUTS = 128
TEMPERATURE = 0.2
_SLOPE = 0.2
_BETA1, _BETA2, _TINY = 0.5, 0.9, 1e-8

Layer = tuple[Array, Array]
Weights = list[Layer]
"""Weights and biases by layer, (in, out) and (out,)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns' sizes; a row has a one-hot of each, one after the other."""

    sizes: tuple[int, ...]

    @property
    def width(self) -> int:
        """Width of a row of one-hots."""
        return sum(self.sizes)

    @property
    def starts(self) -> tuple[int, ...]:
        """Offsets of the columns' one-hots, and the end."""
        return (0, *accumulate(self.sizes))


def initial(widths: Sequence[int], key: Array) -> Weights:
    """Returns a fresh network, uniform within 1 / sqrt(inputs of the layer)."""
    layers = []
    for rows, columns in pairwise(widths):
        key, one, two = jax.random.split(key, 3)
        reach = 1 / np.sqrt(rows)
        layers.append(
            (
                jax.random.uniform(one, (rows, columns), minval=-reach, maxval=reach),
                jax.random.uniform(two, (columns,), minval=-reach, maxval=reach),
            )
        )
    return layers


def discriminator(layout: Layout, key: Array, conditions: int = 0) -> Weights:
    """Returns a network that gives each row and condition one number: how real the row looks, as a logit."""
    return initial((layout.width + conditions, *HIDDEN, 1), key)


def generator(layout: Layout, key: Array, conditions: int = 0) -> Weights:
    """Returns a network that gives logits of every column from noise and a condition of width ``conditions``."""
    return initial((NOISE_INPUTS + conditions, *HIDDEN, layout.width), key)


def parameters(layout: Layout) -> tuple[int, int]:
    """Returns the numbers of parameters of the discriminator and the generator, without conditions."""
    both = (layout.width, *HIDDEN, 1), (NOISE_INPUTS, *HIDDEN, layout.width)
    judge, maker = (sum((rows + 1) * columns for rows, columns in pairwise(w)) for w in both)
    return judge, maker


def one_hot(layout: Layout, codes: Array) -> Array:
    """Returns the one-hots (rows, width) of codes (rows, columns)."""
    columns = codes + jnp.array(layout.starts[:-1])
    rows = jnp.arange(len(codes))[:, None]
    return jnp.zeros((len(codes), layout.width)).at[rows, columns].set(1.0)


def _forward(
    weights: Weights, x: Array, shifts: Sequence[Array] | None
) -> tuple[Array, list[Array]]:
    """Returns the last layer's values, and every layer's input; ``shifts`` are added to each layer's values."""
    inputs = []
    for number, (w, b) in enumerate(weights):
        inputs.append(x)
        x = x @ w + b
        if shifts is not None:
            x = x + shifts[number]
        if number < len(weights) - 1:
            x = jnp.where(x > 0, x, _SLOPE * x)
    return x, inputs


def _real_losses(weights: Weights, rows: Array, shifts: Sequence[Array] | None = None) -> Array:
    """Returns the cross-entropy (rows,) of taking each row for real."""
    return jax.nn.softplus(-_forward(weights, rows, shifts)[0][:, 0])


def clipped_sum(weights: Weights, rows: Array, counts: Array, clip: float) -> Weights:
    """Returns the sum over rows (n, width) of each gradient, clipped to norm ``clip``, times its count (n,), 0 or 1."""
    shifts = [jnp.zeros((len(rows), len(b))) for _, b in weights]
    errors = jax.grad(lambda s: _real_losses(weights, rows, s).sum())(shifts)
    _, inputs = _forward(weights, rows, None)
    # The bias is the weight of a constant input of one.
    squares = [
        ((a**2).sum(axis=1) + 1) * (d**2).sum(axis=1) for a, d in zip(inputs, errors, strict=True)
    ]
    norms = jnp.sqrt(jnp.stack(squares).sum(axis=0))
    share = counts * jnp.minimum(1.0, clip / jnp.maximum(norms, 1e-12))
    clipped = [d * share[:, None] for d in errors]
    return [(a.T @ d, d.sum(axis=0)) for a, d in zip(inputs, clipped, strict=True)]


def noised(gradient: Weights, key: Array, deviation: float) -> Weights:
    """Adds independent Gaussian noise to every coordinate of the gradient."""
    leaves, tree = jax.tree.flatten(gradient)
    keys = jax.random.split(key, len(leaves))
    drawn = [
        leaf + deviation * jax.random.normal(one, leaf.shape)
        for leaf, one in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(tree, drawn)  # type: ignore[no-any-return]


@partial(jax.jit, static_argnums=0)
def generate(layout: Layout, weights: Weights, key: Array, conditions: Array) -> Array:
    """Returns relaxed one-hots (count, width) by Gumbel-softmax of each column, for conditions (count, width or 0)."""
    return _generated(layout, weights, key, conditions)[0]


def _generated(
    layout: Layout, weights: Weights, key: Array, conditions: Array
) -> tuple[Array, Array]:
    """Returns relaxed one-hots and their logits, both (count, width)."""
    one, two = jax.random.split(key)
    noise = jax.random.normal(one, (len(conditions), NOISE_INPUTS))
    logits, _ = _forward(weights, jnp.concatenate([noise, conditions], axis=1), None)
    noisy = (logits + jax.random.gumbel(two, logits.shape)) / TEMPERATURE
    columns = [jax.nn.softmax(noisy[:, a:b]) for a, b in pairwise(layout.starts)]
    return jnp.concatenate(columns, axis=1), logits


def codes_of(layout: Layout, fakes: Array) -> Array:
    """Returns the likeliest code of each column (rows, columns)."""
    columns = [jnp.argmax(fakes[:, a:b], axis=1) for a, b in pairwise(layout.starts)]
    return jnp.stack(columns, axis=1)


def fake_gradient(weights: Weights, fakes: Array) -> Weights:
    """Returns the mean gradient of taking fakes, with their conditions, for fakes; it depends on no row."""

    def loss(w: Weights) -> Array:
        return jax.nn.softplus(_forward(w, fakes, None)[0][:, 0]).mean()

    return jax.grad(loss)(weights)  # type: ignore[no-any-return]


def generator_gradient(
    layout: Layout, weights: Weights, judge: Weights, key: Array, conditions: Array
) -> Weights:
    """Returns the generator's gradient: its fakes are to be taken for real, and to obey their conditions."""

    def loss(w: Weights) -> Array:
        fakes, logits = _generated(layout, w, key, conditions)
        seen = jnp.concatenate([fakes, conditions], axis=1)
        return _real_losses(judge, seen).mean() + _disobedience(layout, logits, conditions)

    return jax.grad(loss)(weights)  # type: ignore[no-any-return]


def _disobedience(layout: Layout, logits: Array, conditions: Array) -> Array:
    """Returns the mean cross-entropy of the codes asked for; 0 without conditions."""
    if not conditions.shape[1]:
        return jnp.zeros(())
    columns = [jax.nn.log_softmax(logits[:, a:b]) for a, b in pairwise(layout.starts)]
    return -(jnp.concatenate(columns, axis=1) * conditions).sum(axis=1).mean()


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Adam:
    """State of Adam: the two moments and the number of steps done."""

    first: Weights
    second: Weights
    done: Array

    @classmethod
    def fresh(cls, weights: Weights) -> "Adam":
        """Returns the state before the first step."""
        zeros = jax.tree.map(jnp.zeros_like, weights)
        return cls(zeros, zeros, jnp.zeros(()))

    def step(self, weights: Weights, gradient: Weights, rate: float) -> tuple[Weights, "Adam"]:
        """Returns the weights after a step of ``rate``, and the new state."""
        done = self.done + 1
        first = jax.tree.map(lambda m, g: _BETA1 * m + (1 - _BETA1) * g, self.first, gradient)
        second = jax.tree.map(lambda v, g: _BETA2 * v + (1 - _BETA2) * g**2, self.second, gradient)
        moved = jax.tree.map(
            lambda w, m, v: (
                w - rate * (m / (1 - _BETA1**done)) / (jnp.sqrt(v / (1 - _BETA2**done)) + _TINY)
            ),
            weights,
            first,
            second,
        )
        return moved, Adam(first, second, done)
