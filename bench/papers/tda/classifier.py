"""The Fed-TDA paper's classifier: four hidden layers with batch normalisation, ReLU and dropout, trained by Adam.

JAX computes, in 32-bit floats. All values here are public.

Source: Fed-TDA paper, its experimental settings (512-256-128-64, dropout 0.5, Adam 1e-3, weight decay 1e-5, batches of
64). The order linear, normalisation, ReLU, dropout, batch normalisation's momentum of 0.1 and Adam's state anew each
round are PyTorch's habits; the paper does not say. Fedmix: Yoon et al. (ICLR 2021), equation 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

HIDDEN: Final = (512, 256, 128, 64)
DROPOUT: Final = 0.5
RATE: Final = 1e-3
DECAY: Final = 1e-5
BATCH: Final = 64
_MOMENTUM: Final = 0.1
_BETA1, _BETA2, _TINY = 0.9, 0.999, 1e-8
_NORM_TINY = 1e-5
Weights = list[dict[str, Array]]
"""By layer: `w` (in, out) and `b` (out,); of hidden ones `scale` and `shift` (out,) of their normalisation."""


class Model(NamedTuple):
    """A silo's model as trained and sent: `weights`, and the running `means` and `variances` of each hidden layer."""

    weights: Weights
    means: list[Array]
    variances: list[Array]


_Moments = tuple[list[Array], list[Array]]
_State = tuple[Array, _Moments, Array, Array]
Batch = tuple[Array, Array, Array, Array, Array]
"""Inputs, targets, weight of each row, and inputs and targets to be mixed in."""


class Batches(NamedTuple):
    """Row numbers (steps, BATCH) of the inputs and weight of each, 0 for padding; mixed-in rows alike."""

    rows: Array
    counts: Array
    mixed: Array


@dataclass(frozen=True, slots=True)
class Objective:
    """Terms of the objective beside cross-entropy: FedProx's `mu` (0: none), Fedmix's `mix` lambda (0: none)."""

    mu: float = 0.0
    mix: float = 0.0


PLAIN: Final = Objective()


def initial(inputs: int, classes: int, seed: int) -> Model:
    """Returns a fresh network; weights uniform within 1/sqrt(inputs of the layer), as PyTorch's linear layers are."""
    rng = np.random.default_rng(seed)
    sizes = (inputs, *HIDDEN, classes)
    weights: Weights = []
    for fan, out in pairwise(sizes):
        bound = fan**-0.5
        layer = {
            "w": jnp.asarray(rng.uniform(-bound, bound, (fan, out)), jnp.float32),
            "b": jnp.asarray(rng.uniform(-bound, bound, out), jnp.float32),
        }
        if len(weights) < len(HIDDEN):
            layer |= {"scale": _ones(out), "shift": jnp.zeros_like(_ones(out))}
        weights.append(layer)
    return Model(weights, [jnp.zeros_like(_ones(n)) for n in HIDDEN], [_ones(n) for n in HIDDEN])


def _ones(size: int) -> Array:
    # Explicit type, since other users of JAX in a process may switch its floats to 64 bits.
    return jnp.ones(size, jnp.float32)


def parameters(inputs: int, classes: int) -> int:
    """Returns the number of values of a model on the wire, the normalisation's running ones included."""
    sizes = (inputs, *HIDDEN, classes)
    linear = sum((fan + 1) * out for fan, out in pairwise(sizes))
    return linear + 4 * sum(HIDDEN)


def probabilities(model: Model, x: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns class probabilities (rows, classes) of inputs (rows, width), by the running means and variances."""
    return np.asarray(_probabilities(model, jnp.asarray(x)), np.float64)


@jax.jit
def _probabilities(model: Model, x: Array) -> Array:
    for layer, mean, variance in zip(model.weights[:-1], model.means, model.variances, strict=True):
        x = jax.nn.relu(_normalised(x @ layer["w"] + layer["b"], mean, variance, layer))
    last = model.weights[-1]
    return jax.nn.softmax(x @ last["w"] + last["b"])


def _normalised(x: Array, mean: Array, variance: Array, layer: Mapping[str, Array]) -> Array:
    return (x - mean) * jax.lax.rsqrt(variance + _NORM_TINY) * layer["scale"] + layer["shift"]


def _logits(weights: Weights, x: Array, counts: Array, key: Array) -> tuple[Array, _Moments]:
    """Returns logits (BATCH, classes) in training, and each hidden layer's mean and variance over the counted rows."""
    means, variances = [], []
    share = counts[:, None] / counts.sum()
    # One random byte per element decides on dropout: a quarter of the random bits of a uniform number.
    random = jax.random.bits(key, (len(x), sum(HIDDEN)), jnp.uint8) >= round(256 * DROPOUT)
    kept = jnp.split(random, list(accumulate(HIDDEN))[:-1], axis=1)
    for layer, stays in zip(weights[:-1], kept, strict=True):
        x = x @ layer["w"] + layer["b"]
        mean = (x * share).sum(axis=0)
        variance = ((x - mean) ** 2 * share).sum(axis=0)
        means.append(mean)
        variances.append(variance)
        x = jax.nn.relu(_normalised(x, mean, variance, layer))
        x = jnp.where(stays, x / (1 - DROPOUT), 0.0)
    return x @ weights[-1]["w"] + weights[-1]["b"], (means, variances)


def _cross_entropy(logits: Array, targets: Array, counts: Array) -> Array:
    losses = -(targets * jax.nn.log_softmax(logits)).sum(axis=1)
    return (losses * counts).sum() / counts.sum()


def _loss(weights: Weights, batch: Batch, key: Array, how: Objective) -> tuple[Array, _Moments]:
    """Returns cross-entropy, or Fedmix's; `train` adds FedProx's distance."""
    x, y, counts, mixed_x, mixed_y = batch

    def plain(inputs: Array) -> tuple[Array, tuple[Array, _Moments]]:
        logits, moments = _logits(weights, inputs, counts, key)
        return _cross_entropy(logits, y, counts), (logits, moments)

    if not how.mix:
        total, (_, moments) = plain(x)
        return total, moments
    # Taylor's expansion of mixup at (1 - lambda) x: mixed rows enter through the derivative by the inputs.
    loss, slope, (logits, moments) = jax.jvp(plain, ((1 - how.mix) * x,), (mixed_x,), has_aux=True)
    mixed = _cross_entropy(logits, mixed_y, counts)
    return (1 - how.mix) * loss + how.mix * (mixed + slope), moments


@partial(jax.jit, static_argnames="how")
def train(
    model: Model,
    data: tuple[Array, Array, Array, Array],
    batches: Batches,
    steps: int,
    key: Array,
    *,
    how: Objective,
) -> Model:
    """Returns `model` after the first `steps` of `batches`.

    `data`: inputs (rows, width), targets (rows, classes) as probabilities, and the same of rows to be mixed in.
    """
    # One vector of all weights: Adam is then a handful of operations in all, not for each array.
    anchor, shaped = ravel_pytree(model.weights)
    zeros = jnp.zeros_like(anchor)

    def loss(weights: Array, batch: Batch, key: Array) -> tuple[Array, _Moments]:
        total, moments = _loss(shaped(weights), batch, key, how)
        if how.mu:
            total += how.mu / 2 * ((weights - anchor) ** 2).sum()
        return total, moments

    def step(i: Array, state: _State) -> _State:
        weights, moments, first, second = state
        rows, mixed = batches.rows[i], batches.mixed[i]
        batch = (data[0][rows], data[1][rows], batches.counts[i], data[2][mixed], data[3][mixed])
        gradient, seen = jax.grad(loss, has_aux=True)(weights, batch, jax.random.fold_in(key, i))
        gradient += DECAY * weights
        first = _BETA1 * first + (1 - _BETA1) * gradient
        second = _BETA2 * second + (1 - _BETA2) * gradient**2
        count = (i + 1).astype(jnp.float32)
        unbiased = first / (1 - _BETA1**count), second / (1 - _BETA2**count)
        weights -= RATE * unbiased[0] / (jnp.sqrt(unbiased[1]) + _TINY)
        return weights, _followed(moments, seen), first, second

    start = anchor, (model.means, model.variances), zeros, zeros
    weights, moments, _, _ = jax.lax.fori_loop(0, steps, step, start)
    return Model(shaped(weights), *moments)


def _followed(running: _Moments, seen: _Moments) -> _Moments:
    follow = partial(jax.tree.map, lambda old, new: (1 - _MOMENTUM) * old + _MOMENTUM * new)
    return follow(running[0], seen[0]), follow(running[1], seen[1])
