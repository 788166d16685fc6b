"""Training the pandemic task's models: DP-SGD in each silo, drawn to one another by their mean.

Secret in a real silo: examples, batches, noise and everything but the result of ``train``. Protected: a node of each
silo's graph, as in ``bench.papers.pandemic.node_accounting``.

Source: MR-MTL (Liu et al., NeurIPS 2022): each silo minimises f_k(w) + lambda ||w - mean||^2 from its own model;
lambda 0 is training alone, and an infinite one FedAvg, where a silo starts from the mean. Deviations: a step's batch
is a new random set of a fixed size, not the next piece of a shuffled epoch, as the accountant assumes. The pull towards
the mean is the same for all examples and known to anyone who sees models, so that it is added after clipping and noise.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bench.papers.pandemic.batches import fixed_size_batch
from bench.papers.pandemic.disease import DAYS_KNOWN
from bench.papers.pandemic.features import AHEAD, Silo
from bench.papers.pandemic.focal import Loss, focal
from bench.papers.pandemic.models import RiskModel, model_of
from bench.papers.pandemic.node_accounting import NodeSampling, least_noise
from mechanisms.exact_noise import MAX_SIGMA
from mechanisms.noise_stream import DiscreteGaussianStream
from mechanisms.sampling import RandomBytes

# Windows end before these days: the last one whose following week is known, and the last one at all.
TRAINED, TESTED = DAYS_KNOWN - AHEAD, DAYS_KNOWN


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of training. ``lam``: 0 alone, infinite for FedAvg. ``epsilon`` of each silo: infinite for no noise.

    ``hidden``: units of each hidden layer of a perceptron; 0 for a linear model.

    Raises ``ValueError`` for a negative lambda, or an epsilon that is not positive.
    """

    lam: float = 0.0003
    epsilon: float = math.inf
    loss: Loss = focal
    batch: int = 512
    rate: float = 0.2
    rounds: int = 2
    clip: float = 15.0
    hidden: int = 0

    def __post_init__(self) -> None:
        if not (self.lam >= 0 and self.epsilon > 0):
            raise ValueError(
                f"lambda = {self.lam}, epsilon = {self.epsilon}; expected 0 or more, and above 0"
            )


def sampling_of(silo: Silo, settings: Settings) -> NodeSampling:
    """Returns the sampling of a person in a step: in the own example and in those of up to K others."""
    n = silo.persons
    return NodeSampling(n, min(settings.batch, n), min(silo.neighbours + 1, n))


def steps_of(silo: Silo, settings: Settings) -> int:
    """Returns the number of steps: an epoch's for each round."""
    return settings.rounds * math.ceil(silo.persons / settings.batch)


def noise_of(silo: Silo, settings: Settings) -> float:
    """Returns the noise multiplier for (epsilon, 1/n); 0 for an infinite epsilon. Raises as ``least_noise``."""
    if math.isinf(settings.epsilon):
        return 0.0
    return _least_noise(sampling_of(silo, settings), steps_of(silo, settings), settings.epsilon)


@lru_cache
def _least_noise(sampling: NodeSampling, steps: int, epsilon: float) -> float:
    return least_noise(sampling, steps=steps, epsilon=epsilon, delta=1 / sampling.nodes)


def train(
    silos: Sequence[Silo],
    settings: Settings,
    noise: Sequence[float],
    *,
    random_bytes: RandomBytes = secrets.token_bytes,
    progress: Callable[[str], None] = lambda line: None,
) -> NDArray[np.float64]:
    """Trains the models (s, d) of silos with the noise multipliers ``noise`` (s,), from the model's start.

    A mean is weighted by the silos' sizes, which are public; SecAgg would give the server the same.
    """
    weights = np.array([silo.persons for silo in silos], np.float64)
    weights /= weights.sum()
    kind = model_of(silos[0].features, settings.hidden)
    mean = kind.start
    models = np.tile(mean, (len(silos), 1))
    for number in range(settings.rounds):
        for k, silo in enumerate(silos):
            start = mean if math.isinf(settings.lam) else models[k]
            models[k] = _epoch(
                silo, start, mean, kind=kind, settings=settings, noise=noise[k], source=random_bytes
            )
            progress(f"round {number + 1} of {settings.rounds}, silo {k + 1} of {len(silos)}")
        mean = weights @ models
    return np.broadcast_to(mean, models.shape) if math.isinf(settings.lam) else models


def _epoch(
    silo: Silo,
    model: NDArray[np.float64],
    mean: NDArray[np.float64],
    *,
    kind: RiskModel,
    settings: Settings,
    noise: float,
    source: RandomBytes,
) -> NDArray[np.float64]:
    """Returns the model (d,) after an epoch's noisy steps."""
    examples = silo.examples(TRAINED)
    batch = min(settings.batch, silo.persons)
    noisy = _release(noise, settings.clip, kind.size, source)
    pull = 2 * settings.lam if math.isfinite(settings.lam) else 0.0
    for _ in range(math.ceil(silo.persons / settings.batch)):
        rows = fixed_size_batch(source, silo.persons, batch)
        features = examples.rows(rows).astype(np.float64)
        slopes = settings.loss(kind.margins(model, features), examples.labels[rows])
        total = noisy(kind.clipped_sum(model, features, slopes, clip=settings.clip))
        model = model - settings.rate * (total / batch + pull * (model - mean))
    return model


def _release(
    noise: float, clip: float, features: int, random_bytes: RandomBytes
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Returns a function that makes a sum (d,) public: rounded to a grid, plus an exact discrete Gaussian on it.

    Rounding two sums can add a unit in each coordinate to their difference, which is 2 clip for one node's example at
    least. Variance is 4 units^2 above a continuous Gaussian's, which then hides no more: see README.md.
    """
    if noise == 0:
        return lambda total: total
    unit = 2.0 ** -math.floor(math.log2(0.5 * MAX_SIGMA / (noise * clip)))
    # Doubles add up a batch with errors far below a millionth of a unit.
    widened = noise * (clip + (1 + 1e-6) * unit * math.sqrt(features) / 2)
    stream = DiscreteGaussianStream(math.hypot(widened / unit, 2) * (1 + 1e-12), random_bytes)

    def noisy(total: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((np.rint(total / unit) + stream.draw(features)) * unit)

    return noisy
