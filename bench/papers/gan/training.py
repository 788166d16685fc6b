"""Training of DP-CTGAN: in one place by DP-SGD, or by clients whose noised discriminator gradients a server averages.

`Central` and `Federated` are the paper's settings; `Averaged` is not private. Nothing here is secret; tables are
public, and noise is seeded so that a run can be repeated: this training protects nobody.

A step: a Poisson batch of real rows, their gradients clipped, summed and noised, over the expected batch; fakes, whose
gradient needs no noise; Adam. Then the generator, by the discriminator alone. Federated: each epoch is 1 / p rounds in
which every client is drawn once; only the discriminator's gradient is made at clients, one batch a round; the noise is
each client's own, for its rate and the rounds that it joins, and the server steps by their mean. A client's number of
rows is public. Averaged: clients step both networks on their own rows, neither clipped nor noised, and the server takes
the means of the networks by rows, as FedAvg does (McMahan et al., AISTATS 2017); Adam's moments stay at their client.
With `conditions`, a share of the budget, both networks have CTGAN's conditional vectors
(`bench.papers.gan.conditions`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bench.papers.gan import conditions, networks
from bench.papers.gan.accounting import least_noise
from bench.papers.gan.networks import Adam, Layout, Weights
from mechanisms.accounting import rho_from_epsilon_delta

BATCH = 128
_REACH = 8.0
"""Deviations above the mean at which longer Poisson batches are cut: once in 10^13."""
State = tuple[Weights, Weights, Adam, Adam, Array]
Progress = Callable[[str], None]
_Tree = TypeVar("_Tree", Weights, list[Weights])


@dataclass(frozen=True, slots=True)
class Central:
    """DP-SGD on the whole table. ``conditions``: share of the budget for conditional vectors, 0 for none."""

    epochs: int = 20
    clip: float = 1.0
    discriminator_rate: float = 1e-3
    generator_rate: float = 1e-5
    conditions: float = 0.0


@dataclass(frozen=True, slots=True)
class Federated:
    """DP-FedSGD: ``epochs`` rounds of each client, a tenth of them at a time; the server's rate multiplies the steps'.

    ``conditions``: see ``Central``.
    """

    epochs: int = 50
    participation: float = 0.1
    clip: float = 0.5
    server_rate: float = 0.5
    discriminator_rate: float = 1e-4
    generator_rate: float = 1e-4
    conditions: float = 0.0


@dataclass(frozen=True, slots=True)
class Averaged:
    """FedAvg of both networks after `epochs` of every client's own rows in each of `rounds`. **Not private.**"""

    rounds: int = 100
    epochs: int = 3
    discriminator_rate: float = 2e-4
    generator_rate: float = 2e-4

    @property
    def clip(self) -> float:
        """Infinite: a bound that no gradient reaches."""
        return math.inf

    @property
    def conditions(self) -> float:
        """Zero: no conditional vectors."""
        return 0.0


def train(
    settings: Central | Federated | Averaged,
    tables: Sequence[NDArray[np.int32]],
    sizes: Sequence[int],
    *,
    epsilon: float | None,
    delta: float,
    rows: int,
    seed: int,
    progress: Progress = lambda line: None,
) -> NDArray[np.int32]:
    """Returns synthetic codes (rows, columns) after training on the clients' ``tables`` (one table if central).

    Raises ValueError without rows; without an epsilon where there is noise, and with one where there is none.
    """
    if isinstance(settings, Averaged) != (epsilon is None):
        raise ValueError(
            f"epsilon is {epsilon}; expected a number for DP-CTGAN, none where nothing is noised"
        )
    tables = [table for table in tables if len(table)]
    if not tables:
        raise ValueError("a table without rows trains nothing")
    layout, rng = Layout(tuple(sizes)), np.random.default_rng(seed)
    one, two, three = jax.random.split(jax.random.key(seed), 3)
    shares, rho = None, 0.0
    if epsilon is not None and settings.conditions:
        rho = settings.conditions * rho_from_epsilon_delta(epsilon, delta)
        shares = jnp.asarray(conditions.noisy_shares(layout, tables, rho, rng))
    asked = 0 if shares is None else layout.width
    judge = networks.discriminator(layout, one, asked)
    maker = networks.generator(layout, two, asked)
    state: State = (judge, maker, Adam.fresh(judge), Adam.fresh(maker), three)

    def least(rate: float, steps: int) -> float:
        return least_noise(cast(float, epsilon), rate, steps, delta, rho=rho)

    if isinstance(settings, Averaged):
        state = _averaged(settings, layout, state, tables, rng, progress)
    elif isinstance(settings, Central):
        state = _central(settings, layout, state, tables[0], shares, least, rng, progress)
    else:
        state = _federated(settings, layout, state, tables, shares, least, rng, progress)
    key = state[4]
    parts: list[NDArray[np.int32]] = []
    while sum(len(part) for part in parts) < rows:
        key, one = jax.random.split(key)
        wanted = conditions.drawn(layout, shares, jax.random.fold_in(one, 1), 4096)
        fakes = networks.generate(layout, state[1], one, wanted)
        parts.append(np.asarray(networks.codes_of(layout, fakes), np.int32))
    return np.concatenate(parts)[:rows]


def _central(
    settings: Central,
    layout: Layout,
    state: State,
    table: NDArray[np.int32],
    shares: Array | None,
    least: Callable[[float, int], float],
    rng: np.random.Generator,
    progress: Progress,
) -> State:
    rate = min(1.0, BATCH / len(table))
    steps = max(1, round(1 / rate))
    noise = least(rate, settings.epochs * steps)
    codes = jnp.asarray(table)
    for epoch in range(settings.epochs):
        batches, counts = zip(*(_batch(rng, len(table), rate) for _ in range(steps)), strict=True)
        state = _epoch(
            layout,
            settings,
            noise,
            rate * len(table),
            state,
            shares,
            codes,
            np.stack(batches),
            np.stack(counts),
        )
        state[4].block_until_ready()
        progress(f"epoch {epoch + 1} of {settings.epochs}, noise {noise:.3f}")
    return state


def _averaged(
    settings: Averaged,
    layout: Layout,
    state: State,
    tables: Sequence[NDArray[np.int32]],
    rng: np.random.Generator,
    progress: Progress,
) -> State:
    judge, maker, judge_adam, maker_adam, key = state
    counts = np.array([len(table) for table in tables])
    # All rows are in one array, so that clients with equally many batches share compiled code.
    starts, codes = np.cumsum(counts) - counts, jnp.asarray(np.concatenate(tables))
    adams = [(judge_adam, maker_adam)] * len(tables)
    for done in range(settings.rounds):
        trained = []
        for client, (start, rows) in enumerate(zip(starts, counts, strict=True)):
            rate = min(1.0, BATCH / rows)
            steps = settings.epochs * max(1, round(1 / rate))
            drawn, some = zip(*(_batch(rng, rows, rate) for _ in range(steps)), strict=True)
            own: State = (judge, maker, *adams[client], key)
            given = codes, start + np.stack(drawn), np.stack(some)
            *networks_of, first, second, key = _epoch(
                layout, settings, 0.0, rate * rows, own, None, *given
            )
            adams[client] = first, second
            trained.append(networks_of)
        judge, maker = _mean(counts / counts.sum(), trained)
        progress(f"round {done + 1} of {settings.rounds}")
    return judge, maker, judge_adam, maker_adam, key


@jax.jit
def _mean(shares: NDArray[np.float64], trained: Sequence[_Tree]) -> _Tree:
    """Returns the mean of the clients' trained weights, weighted by their shares (clients,)."""

    def mean(*leaves: Array) -> Array:
        return jnp.tensordot(jnp.asarray(shares, leaves[0].dtype), jnp.stack(leaves), axes=1)

    return jax.tree.map(mean, *trained)  # type: ignore[no-any-return]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _epoch(
    layout: Layout,
    settings: Central | Averaged,
    noise: float,
    expected: float,
    state: State,
    shares: Array | None,
    codes: Array,
    batches: Array,
    counts: Array,
) -> State:
    def step(state: State, batch: tuple[Array, Array]) -> tuple[State, None]:
        judge, maker, judge_adam, maker_adam, key = state
        key, one, two, three = jax.random.split(key, 4)
        total = _of_real(layout, settings.clip, judge, codes[batch[0]], batch[1], shares, one)
        if noise:
            total = networks.noised(total, one, noise * settings.clip)
        fakes = _of_fakes(layout, judge, maker, shares, two)
        gradient = jax.tree.map(lambda r, f: r / expected + f, total, fakes)
        judge, judge_adam = judge_adam.step(judge, gradient, settings.discriminator_rate)
        gradient = _of_maker(layout, maker, judge, shares, three)
        maker, maker_adam = maker_adam.step(maker, gradient, settings.generator_rate)
        return (judge, maker, judge_adam, maker_adam, key), None

    return jax.lax.scan(step, state, (batches, counts))[0]


def _federated(
    settings: Federated,
    layout: Layout,
    state: State,
    tables: Sequence[NDArray[np.int32]],
    shares: Array | None,
    least: Callable[[float, int], float],
    rng: np.random.Generator,
    progress: Progress,
) -> State:
    judge, maker, judge_adam, maker_adam, key = state
    rates = [min(1.0, BATCH / len(table)) for table in tables]
    noises = [least(rate, settings.epochs) for rate in rates]
    width = max(1, round(settings.participation * len(tables)))
    for epoch in range(settings.epochs):
        order = rng.permutation(len(tables))
        for start in range(0, len(tables), width):
            sums = []
            for client in order[start : start + width]:
                key, one, two = jax.random.split(key, 3)
                table, rate = tables[client], rates[client]
                batch, counts = _batch(rng, len(table), rate)
                given = (jnp.asarray(table[batch]), jnp.asarray(counts))
                deviation, expected = noises[client] * settings.clip, rate * len(table)
                sums.append(
                    _of_client(
                        layout,
                        settings.clip,
                        judge,
                        maker,
                        *given,
                        one,
                        two,
                        deviation,
                        expected,
                        shares,
                    )
                )
            gradient = _mean(np.full(len(sums), 1 / len(sums)), sums)
            rate = settings.server_rate * settings.discriminator_rate
            judge, judge_adam = _stepped(judge_adam, judge, gradient, rate)
            key, drawn = jax.random.split(key)
            gradient = _of_maker(layout, maker, judge, shares, drawn)
            maker, maker_adam = _stepped(maker_adam, maker, gradient, settings.generator_rate)
        progress(f"epoch {epoch + 1} of {settings.epochs}")
    return judge, maker, judge_adam, maker_adam, key


@partial(jax.jit, static_argnums=(0, 1))
def _of_client(
    layout: Layout,
    clip: float,
    judge: Weights,
    maker: Weights,
    codes: Array,
    counts: Array,
    noise_key: Array,
    fake_key: Array,
    deviation: float,
    expected: float,
    shares: Array | None,
) -> Weights:
    total = _of_real(layout, clip, judge, codes, counts, shares, noise_key)
    total = networks.noised(total, noise_key, deviation)
    fakes = _of_fakes(layout, judge, maker, shares, fake_key)
    return jax.tree.map(lambda r, f: r / expected + f, total, fakes)  # type: ignore[no-any-return]


def _of_real(
    layout: Layout,
    clip: float,
    judge: Weights,
    codes: Array,
    counts: Array,
    shares: Array | None,
    key: Array,
) -> Weights:
    """Returns the sum of the clipped gradients of real rows of ``codes``, each with a condition of its own."""
    rows = networks.one_hot(layout, codes)
    asked = conditions.own(layout, rows, shares, jax.random.fold_in(key, 1))
    return networks.clipped_sum(judge, jnp.concatenate([rows, asked], axis=1), counts, clip)


def _of_fakes(
    layout: Layout, judge: Weights, maker: Weights, shares: Array | None, key: Array
) -> Weights:
    asked = conditions.drawn(layout, shares, jax.random.fold_in(key, 1), BATCH)
    fakes = networks.generate(layout, maker, key, asked)
    return networks.fake_gradient(judge, jnp.concatenate([fakes, asked], axis=1))


@jax.jit
def _stepped(adam: Adam, weights: Weights, gradient: Weights, rate: float) -> tuple[Weights, Adam]:
    return adam.step(weights, gradient, rate)


@partial(jax.jit, static_argnums=0)
def _of_maker(
    layout: Layout, maker: Weights, judge: Weights, shares: Array | None, key: Array
) -> Weights:
    asked = conditions.drawn(layout, shares, jax.random.fold_in(key, 1), BATCH)
    return networks.generator_gradient(layout, maker, judge, key, asked)


def _batch(
    rng: np.random.Generator, rows: int, rate: float
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Returns a Poisson batch, filled up to one length by rows that count 0."""
    length = math.ceil(BATCH + _REACH * math.sqrt(BATCH))
    drawn = np.flatnonzero(rng.random(rows) < rate)[:length]
    padded = np.zeros(length, np.int64)
    padded[: drawn.size] = drawn
    return padded, (np.arange(length) < drawn.size).astype(np.float32)
