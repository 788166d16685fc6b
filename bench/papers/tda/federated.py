"""FedAvg, FedProx and Fedmix among silos in one process, on their own rows and on rows that all of them have.

Plain means stand for SecAgg's results. All values here are public.

Source: Fed-TDA paper, its experimental settings; FedAvg: McMahan et al. (AISTATS 2017); FedProx: Li et al. (MLSys
2020); Fedmix: Yoon et al. (ICLR 2021). Deviation: an epoch's rows are divided evenly among its batches, so that none
is left with one row, whose normalisation would be zero. Limits: a silo with one row has such a batch nevertheless.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bench.papers.tda.classifier import BATCH, PLAIN, Batches, Model, Objective, initial, train

Silo = tuple[NDArray[np.float32], NDArray[np.int32]]
"""Inputs (rows, width) and labels (rows,)."""


@dataclass(frozen=True, slots=True)
class Training:
    """Length and objective: `rounds` of `epochs` at each silo; `mixed_rows` is Fedmix's M, used with `how.mix`."""

    rounds: int = 100
    epochs: int = 3
    how: Objective = PLAIN
    mixed_rows: int = 5


def _mean(weights: NDArray[np.float64], *values: Array) -> NDArray[np.float32]:
    total = sum(w * np.asarray(value) for w, value in zip(weights, values, strict=True))
    return np.asarray(total, np.float32)


class _Pool(NamedTuple):
    """All silos' rows in one array, the `starts` of each silo's, and as many `mixed` rows in another, padded."""

    data: tuple[Array, Array, Array, Array]
    starts: NDArray[np.int64]
    mixed: int


def train_federated(
    silos: Sequence[Silo],
    classes: int,
    training: Training,
    *,
    seed: int,
    on_round: Callable[[int], None] = lambda done: None,
) -> Model:
    """Returns the mean of the silos' models, weighted by rows, after the last round.

    Raises ValueError if no silo has a row.
    """
    silos = [silo for silo in silos if len(silo[1])]
    if not silos:
        raise ValueError("no silo has a row to train with")
    rng = np.random.default_rng(seed)
    pool = _pooled(silos, classes, training, rng)
    weights = np.array([len(labels) for _, labels in silos], np.float64)
    weights /= weights.sum()
    longest = _padded(max(_steps(len(labels)) for _, labels in silos) * training.epochs)
    model = initial(silos[0][0].shape[1], classes, seed)
    for round in range(training.rounds):
        trained = []
        for silo, (_, labels) in enumerate(silos):
            batches, steps = _batches(
                pool.starts[silo], len(labels), pool.mixed, training.epochs, longest, rng
            )
            key = jax.random.key(int(rng.integers(2**31)))
            trained.append(train(model, pool.data, batches, steps, key, how=training.how))
        model = jax.tree.map(partial(_mean, weights), *trained)
        on_round(round + 1)
    return model


def mashed(
    inputs: NDArray[np.float32],
    targets: NDArray[np.float32],
    size: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns means of `size` random rows each, of inputs and of targets; a silo of Fedmix shows them to all."""
    whole = len(inputs) // size
    groups = rng.permutation(len(inputs))[: whole * size].reshape(whole, size)
    return inputs[groups].mean(axis=1), targets[groups].mean(axis=1)


def _pooled(
    silos: Sequence[Silo], classes: int, training: Training, rng: np.random.Generator
) -> _Pool:
    one_hot = np.eye(classes, dtype=np.float32)
    targets = [one_hot[labels] for _, labels in silos]
    inputs = [inputs for inputs, _ in silos]
    mixed: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
    if training.how.mix:
        mixed = [
            mashed(x, y, training.mixed_rows, rng) for x, y in zip(inputs, targets, strict=True)
        ]
    if not sum(len(x) for x, _ in mixed):
        mixed = [(inputs[0][:1], targets[0][:1])]
    mixed_x, mixed_y = (np.concatenate([pair[i] for pair in mixed]) for i in range(2))
    count = len(mixed_x)
    room = ((0, _padded(count) - count), (0, 0))
    arrays = inputs, targets, [np.pad(mixed_x, room)], [np.pad(mixed_y, room)]
    starts = np.cumsum([0, *(len(labels) for _, labels in silos)])[:-1]
    x, y, known_x, known_y = (jnp.asarray(np.concatenate(parts)) for parts in arrays)
    return _Pool((x, y, known_x, known_y), starts, count)


def _padded(length: int) -> int:
    """Returns the next power of two, so that splits have few shapes to compile for."""
    return 1 << (length - 1).bit_length()


def _steps(rows: int) -> int:
    return -(-rows // BATCH)


def _batches(
    start: int, rows: int, mixed: int, epochs: int, longest: int, rng: np.random.Generator
) -> tuple[Batches, int]:
    """Returns batches of `epochs` over rows start .. start + rows - 1, padded to `longest`, and their number."""
    each = _steps(rows)
    numbers = np.full((longest, BATCH), start, np.int32)
    counts = np.zeros((longest, BATCH), np.float32)
    # Position p of an epoch's n rows goes to batch p mod (batches), so that sizes differ by one at most.
    position = np.arange(rows)
    for epoch in range(epochs):
        row, place = epoch * each + position % each, position // each
        numbers[row, place] = start + rng.permutation(rows)
        counts[row, place] = 1.0
    others = rng.integers(mixed, size=(longest, BATCH), dtype=np.int32)
    return Batches(jnp.asarray(numbers), jnp.asarray(counts), jnp.asarray(others)), each * epochs
