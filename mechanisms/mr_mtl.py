"""Mean-regularised multi-task learning (MR-MTL): each silo trains its own model, drawn to the mean of all.

``MtlSettings`` has the agreed settings, ``run_mtl`` is the server; a silo is ``mtl_silo.MtlSilo``, with its own privacy
budget. All values here are public: everything that the server receives is private already.

    min over w_1 .. w_K of sum_k f_k(w_k) + (lambda / 2) |w_k - wbar|^2

Each round the server sends wbar, each silo continues from its own w_k by DP-SGD, and wbar becomes the mean of all
models weighted by the silos' declared rows n_k. lambda = 0 is local training. At lambda = infinity silos start each
round at wbar: FedAvg. With several candidates for lambda each is trained for ``tuning_rounds``, all in the same sums;
then the silos' held-out rows vote by noisy differences of losses, and the chosen one is trained on.

Rounds: one sum per round, one for the votes. Communication: a sum has ``candidates`` x d + 1 numbers in a tuning round,
d + 1 otherwise; votes have one number per candidate. The last number is n_k, so that the server learns the sum of n_k
over the survivors, and no single n_k. Representation: weights clipped to [-bound, bound], in units of 2^-model_bits,
times n_k.

Source: Liu, Hu, Wu, Smith 2022, "On privacy and personalization in cross-silo federated learning", Algorithm 1.
Deviations: rounding to the grid; the choice of lambda.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.events import check_positive
from mechanisms.fixed_point import decode, pack_arrays, units
from mechanisms.linear_models import OBJECTIVES, Objective
from mechanisms.perceptron import PERCEPTRONS, Perceptron, size, start
from mechanisms.silos import Request, Silos

MODELS, VOTES = "models", "votes"
# A model's units are 2^-model_bits; a vote's are 2^-VOTE_BITS of the largest contribution of a row.
VOTE_BITS = 10
# Votes of a silo are cut here, in rows: its own noise stays within this for every sensible epsilon.
VOTE_ROWS = 1 << 14
# Most hidden units of a perceptron; noise grows with the number of weights long before.
MAX_HIDDEN = 1 << 10

Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class MtlSettings:
    """Settings that the server and all silos agree on. Raises ``ValueError`` for numbers out of range.

    Attributes:
        max_rows: the most training rows n_k that a silo declares.
        batch: the mean size B of a batch; the sampling rate is min(1, B / n_k), and a round has max(1, round(epochs n_k
            / B)) steps of size ``rate``.
        clip: bound on the norm of an example's gradient, including the pull towards the mean.
        vote_norm: bound on the difference of one held-out row's losses, in Euclidean norm over the candidates after
            their mean is subtracted.
        hidden: the hidden units of a perceptron; linear models have none.
    """

    max_rows: int
    features: int
    lambdas: tuple[float, ...]
    objective: str = "linear"
    hidden: int = 0
    rounds: int = 200
    tuning_rounds: int = 0
    epochs: float = 1.0
    batch: int = 32
    rate: float = 0.01
    clip: float = 1.0
    bound: float = 4.0
    model_bits: int = 16
    gradient_bits: int = 10
    vote_norm: float = 0.02

    def __post_init__(self) -> None:
        for name in (
            "max_rows",
            "features",
            "rounds",
            "epochs",
            "batch",
            "rate",
            "clip",
            "vote_norm",
        ):
            check_positive(name, getattr(self, name))
        if self.objective not in {*OBJECTIVES, *PERCEPTRONS}:
            raise ValueError(
                f"objective = {self.objective!r}; it is one of {', '.join([*OBJECTIVES, *PERCEPTRONS])}"
            )
        low, high = (1, MAX_HIDDEN) if self.objective in PERCEPTRONS else (0, 0)
        if not low <= self.hidden <= high:
            raise ValueError(
                f"hidden = {self.hidden}; expected {low} to {high} with objective = {self.objective!r}"
            )
        if not self.lambdas or not all(value >= 0 for value in self.lambdas):
            raise ValueError(f"lambdas = {self.lambdas}; expected one or more, from 0 to inf")
        several = len(self.lambdas) > 1
        if not (0 < self.tuning_rounds < self.rounds if several else self.tuning_rounds == 0):
            raise ValueError(
                f"tuning_rounds = {self.tuning_rounds} of {self.rounds} rounds: with several lambdas it is above 0 "
                "and below the rounds, with one it is 0"
            )
        units(self.clip, self.gradient_bits)
        if self.limit > 1 << 40:
            raise ValueError(
                f"a model of {self.limit} units; expected at most 2^40: fewer model_bits"
            )

    @property
    def limit(self) -> int:
        """Largest absolute value of one number of a silo's answer."""
        return self.max_rows * units(self.bound, self.model_bits)

    @property
    def size(self) -> int:
        """Number d of weights of a model."""
        return size(self.features, self.hidden) if self.hidden else self.features

    @property
    def start(self) -> NDArray[np.float64]:
        """Start of every silo's model, (d,): public, the same for all."""
        return start(self.features, self.hidden) if self.hidden else np.zeros(self.features)

    def make_objective(self) -> Objective:
        """Returns the loss that silos train with. Raises ``DataError`` if a library that it needs is missing."""
        if self.hidden:
            return Perceptron(self.objective, self.hidden)
        return OBJECTIVES[self.objective]

    def sampling_rate(self, size: int) -> float:
        """Returns the sampling rate q of a silo of ``size`` declared training rows."""
        return min(1.0, self.batch / size)

    def steps(self, size: int) -> int:
        """Returns the steps per round of a silo of ``size`` rows."""
        return max(1, round(self.epochs * size / self.batch))

    def total_steps(self, size: int) -> int:
        """Returns the steps of a silo in the whole run, including those of all candidates."""
        extra = (len(self.lambdas) - 1) * self.tuning_rounds
        return (self.rounds + extra) * self.steps(size)

    def models_request(
        self, round: int, candidates: tuple[int, ...], means: NDArray[np.float64]
    ) -> Request:
        """Returns the request for the models of ``candidates`` (indices) after ``round``.

        The round begins with ``means`` (c, d).
        """
        head = np.array([round, *candidates], np.float64)
        payload = pack_arrays(head, means)
        return Request(MODELS, payload, means.size + 1, low=-self.limit, high=self.limit)

    def votes_request(self, means: NDArray[np.float64]) -> Request:
        """Returns the request for the votes on all candidates, whose last ``means`` are (c, d)."""
        limit = VOTE_ROWS << VOTE_BITS
        return Request(VOTES, pack_arrays(means), len(self.lambdas), low=-limit, high=limit)


@dataclass(frozen=True, slots=True, eq=False)
class MtlResult:
    """Result at the server: the last mean (d,), the chosen lambda, the sums of votes (none with one lambda).

    ``survivors`` has the number of silos in each round's mean.
    """

    mean: NDArray[np.float64]
    lambda_: float
    votes: tuple[int, ...]
    survivors: tuple[int, ...]


async def run_mtl(
    settings: MtlSettings, silos: Silos, progress: Progress = lambda round, survivors: None
) -> MtlResult:
    """Runs the server of Algorithm 1. Raises ``RoundLost`` if too few silos are left in a round."""
    survivors: list[int] = []

    async def train(
        first: int, last: int, candidates: tuple[int, ...], means: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        for number in range(first, last + 1):
            # wbar = sum_k n_k w_k / sum_k n_k, from the two parts of one sum.
            total = await silos.sum(settings.models_request(number, candidates, means))
            weight = max(1, int(total.values[-1]))
            models = total.values[:-1].reshape(means.shape)
            means = decode(models, scale_bits=settings.model_bits)
            means = np.clip(means / weight, -settings.bound, settings.bound)
            survivors.append(len(total.survivors))
            progress(number, len(total.survivors))
        return means

    everything = tuple(range(len(settings.lambdas)))
    means = np.tile(settings.start, (len(everything), 1))
    chosen, votes = 0, tuple[int, ...]()
    if settings.tuning_rounds:
        means = await train(1, settings.tuning_rounds, everything, means)
        counted = await silos.sum(settings.votes_request(means))
        votes = tuple(counted.values.tolist())
        chosen = int(np.argmin(counted.values))
    means = await train(
        settings.tuning_rounds + 1, settings.rounds, (chosen,), means[chosen : chosen + 1]
    )
    await silos.finish(pack_arrays(np.array([float(chosen)]), means[0]))
    return MtlResult(means[0], settings.lambdas[chosen], votes, tuple(survivors))


def is_fedavg(lambda_: float) -> bool:
    """Returns whether silos start each round at the mean."""
    return math.isinf(lambda_)
