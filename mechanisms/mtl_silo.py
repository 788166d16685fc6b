"""One silo of MR-MTL: its rows, its own epsilon and delta, its own model.

Rows, batches, noise, and the model until it is sent are secret. The silo emits the models after each round and the
votes, both private by its own noise; that aggregation also hides them from the server reduces no noise. ``error_of`` is
for the silo's own eyes: it is not charged.

The guarantee, regardless of the server and the other silos: for two tables that differ in the presence of one example,
everything this silo emits is (epsilon, delta)-indistinguishable. An example is in one part of the rows for good.
Training examples are in every noisy gradient; held-out ones in one vote; test ones in nothing emitted. So there are two
ledgers, each with the whole budget, and the silo's epsilon is the larger of the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mechanisms.dpsgd import noise_for, noisy_sum, poisson_batch
from mechanisms.errors import RequestRefused
from mechanisms.fixed_point import encode, encode_rows, unpack_arrays
from mechanisms.mr_mtl import MODELS, VOTE_BITS, VOTES, MtlSettings, is_fedavg
from mechanisms.noise_stream import DiscreteGaussianStream
from mechanisms.sampled_loss import (
    SampledGaussian,
    SampledLedger,
    least_multiplier,
    multiplier_on_lattice,
)
from mechanisms.sampling import RandomBytes
from mechanisms.silos import Request, Silo


@dataclass(frozen=True, slots=True, eq=False)
class SiloRows:
    """Features (n, d) and labels (n,) of a silo's examples, in three parts."""

    train: tuple[NDArray[np.float64], NDArray[np.float64]]
    held_out: tuple[NDArray[np.float64], NDArray[np.float64]]
    test: tuple[NDArray[np.float64], NDArray[np.float64]]

    def __repr__(self) -> str:
        return "SiloRows()"


@lru_cache(maxsize=1024)
def multiplier_of(q: float, steps: int, epsilon: float, delta: float) -> float:
    """Returns the noise multiplier that keeps (epsilon, delta) over ``steps`` noisy sums at sampling rate ``q``."""
    return least_multiplier(lambda z: {SampledGaussian(q, z): steps}, epsilon, delta)


class MtlSilo(Silo):
    """A silo with a budget of its own; a ``silos.Silo``. ``TRAININGS`` is the models that a candidate's round trains.

    It declares as many rows as ``rows.train`` has. ``multiplier`` is that of the noise, if it was computed before. A
    repeated request (after a lost sum, or a restart of the server) has the same answer, at no further cost. Raises
    ``ValueError`` if rows and settings do not fit, ``DataError`` if a library is missing.
    """

    TRAININGS: ClassVar[int] = 1

    def __init__(
        self,
        settings: MtlSettings,
        rows: SiloRows,
        *,
        epsilon: float,
        delta: float,
        random_bytes: RandomBytes,
        multiplier: float | None = None,
    ) -> None:
        x, y = rows.train
        if x.shape != (len(y), settings.features) or not 1 <= len(y) <= settings.max_rows:
            raise ValueError(
                f"training rows of shape {x.shape}; expected 1 to {settings.max_rows} of {settings.features}"
            )
        for part in (rows.train, rows.held_out, rows.test):
            if not all(np.isfinite(numbers).all() for numbers in part):
                raise ValueError("a feature or a label is not finite")
        self._size = len(y)
        self.training = SampledLedger(epsilon, delta)
        self.voting = SampledLedger(epsilon, delta)
        self._settings = settings
        self._rows = rows
        self._random_bytes = random_bytes
        self._objective = settings.make_objective()
        self._q = settings.sampling_rate(self._size)
        steps = self.TRAININGS * settings.total_steps(self._size)
        z = multiplier or multiplier_of(self._q, steps, epsilon, delta)
        self._step = SampledGaussian(self._q, z)
        if multiplier is None:
            # All steps at once: rounds that are part of them are then not composed one by one.
            self.training.require(MODELS, self._step, steps)
        self._noise = noise_for(
            multiplier_on_lattice(z, math.ldexp(settings.clip, settings.gradient_bits)),
            random_bytes,
            clip=settings.clip,
            scale_bits=settings.gradient_bits,
        )
        self._models = np.tile(settings.start, (len(settings.lambdas), 1))
        self._chosen: int | None = None if settings.tuning_rounds else 0
        self._final: NDArray[np.float64] | None = None
        self._votes: NDArray[np.int64] | None = None
        self._round = 0

    def __repr__(self) -> str:
        return f"MtlSilo(epsilon={self.epsilon:.4g}, rounds={self._round})"

    @property
    def epsilon(self) -> float:
        """Largest epsilon charged for any example of this silo."""
        return max(self.training.spent, self.voting.spent)

    @property
    def own_charges(self) -> int:
        """See ``silos.Silo``: the last round, and one for the votes. A missed round has its number all the same."""
        return self._round + (self._votes is not None)

    @property
    def lambda_(self) -> float:
        """Chosen lambda; the first one until the choice."""
        return self._settings.lambdas[self._chosen or 0]

    @property
    def steps(self) -> int:
        """Number of noisy sums charged."""
        return sum(entry.steps for entry in self.training.entries)

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean of all models (d,) that the server sent last; the start before."""
        return self._settings.start if self._final is None else self._final

    @property
    def model(self) -> NDArray[np.float64]:
        """Current model (d,) of the silo; with FedAvg the mean that was sent last."""
        if self._final is not None and is_fedavg(self.lambda_):
            return self._final
        own: NDArray[np.float64] = self._models[self._chosen or 0]
        return own

    def answer(self, request: Request) -> NDArray[np.int64]:
        """See ``silos.Silo``."""
        return self._vote(request) if request.step == VOTES else self._train(request)

    def finish(self, payload: bytes) -> None:
        """Takes the last mean. Raises ``RequestRefused`` for another payload."""
        chosen, mean = unpack_arrays(payload, (1,), (self._settings.size,))
        if self._chosen is None or int(chosen[0]) != self._chosen:
            raise RequestRefused("the result is for another lambda than the last rounds were")
        self._final = self._in_box(mean)

    def error_of(self, w: NDArray[np.float64]) -> float:
        """Returns the error of model ``w`` on this silo's test rows; NaN without any.

        Not private: for the silo alone.
        """
        x, y = self._rows.test
        return self._objective.error(w, x, y) if len(y) else math.nan

    def state(self) -> dict[str, object]:
        """Returns the state for ``resume`` in another process; as secret as models are before they are sent."""
        return {
            "round": self._round,
            "steps": self.steps,
            "chosen": self._chosen,
            "models": self._models.tolist(),
            "votes": None if self._votes is None else self._votes.tolist(),
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continues from the ``state`` of an earlier process; charges are entered again."""
        if state["steps"]:
            self.training.charge(f"{MODELS}, before", self._step, state["steps"])
        if state["votes"] is not None:
            self.voting.charge(VOTES, self._vote_cost(), 1)
            self._votes = np.array(state["votes"], np.int64)
        self._round, self._chosen = state["round"], state["chosen"]
        self._models = np.array(state["models"], np.float64).reshape(self._models.shape)

    def _in_box(self, means: NDArray[np.float64]) -> NDArray[np.float64]:
        if float(np.abs(means).max(initial=0.0)) > self._settings.bound:
            raise RequestRefused(
                f"a mean beyond the bound of {self._settings.bound} that models are cut to"
            )
        return means

    def _train(self, request: Request) -> NDArray[np.int64]:
        settings = self._settings
        everything = len(settings.lambdas)
        # Before the votes a sum has the models of all candidates, after them that of the chosen one.
        tuning = settings.tuning_rounds > 0 and request.length == everything * settings.size + 1
        count = everything if tuning else 1
        request.check(settings.models_request(0, (), np.zeros((count, settings.size))))
        head, means = unpack_arrays(request.payload, (1 + count,), (count, settings.size))
        if (head != np.rint(head)).any():
            raise RequestRefused("the number of a round or of a candidate is no whole one")
        number, *candidates = (int(value) for value in head)
        self._check_place(number, candidates, tuning=tuning)
        means = self._in_box(means)
        if number > self._round:
            steps = settings.steps(self._size)
            # Charged before a row is used. A silo that missed rounds has made fewer steps, and is charged fewer.
            charged = self.TRAININGS * steps * count
            self.training.charge(f"{MODELS}, round {number}", self._step, charged)
            self._round = number
            if not tuning:
                self._chosen = candidates[0]
            for candidate, mean in zip(candidates, means, strict=True):
                self._descend(candidate, mean, steps)
        models = encode(
            self._models[candidates], scale_bits=settings.model_bits, bound=settings.bound
        )
        return np.append((self._size * models).ravel(), self._size)

    def _check_place(self, number: int, candidates: list[int], *, tuning: bool) -> None:
        """Raises ``RequestRefused`` for a round out of order, or with the wrong candidates."""
        settings = self._settings
        first = 1 if tuning else settings.tuning_rounds + 1
        last = settings.tuning_rounds if tuning else settings.rounds
        if not max(first, self._round) <= number <= last:
            raise RequestRefused(f"round {number} after round {self._round}; the last is {last}")
        everything = list(range(len(settings.lambdas)))
        open_choice = self._chosen is None and candidates[0] in everything
        if (
            candidates != everything
            if tuning
            else not open_choice and candidates[0] != self._chosen
        ):
            raise RequestRefused(f"round {number} is for the candidates {candidates}")

    def _descend(self, candidate: int, mean: NDArray[np.float64], steps: int) -> None:
        """Makes ``steps`` steps of DP-SGD on one candidate's model, from its present state."""
        lambda_ = self._settings.lambdas[candidate]
        if is_fedavg(lambda_):
            self._models[candidate] = self._trained(mean, mean, lambda_=0.0, steps=steps)
        else:
            self._models[candidate] = self._trained(
                self._models[candidate], mean, lambda_=lambda_, steps=steps
            )

    def _trained(
        self, w: NDArray[np.float64], mean: NDArray[np.float64], *, lambda_: float, steps: int
    ) -> NDArray[np.float64]:
        """Returns model ``w`` (d,) after ``steps`` steps of DP-SGD, drawn to ``mean``."""
        settings = self._settings
        x, y = self._rows.train
        for _ in range(steps):
            batch = poisson_batch(len(y), self._q, self._random_bytes)
            gradients = self._objective.gradients(w, x[batch], y[batch])
            if lambda_:
                # The gradient of (lambda / 2) |w - wbar|^2, clipped together with the example's own.
                gradients += lambda_ * (w - mean)
            total = noisy_sum(
                gradients, self._noise.draw, clip=settings.clip, scale_bits=settings.gradient_bits
            )
            # Divided by the mean size of a batch: its real size is as secret as its members.
            w = w - settings.rate * total / (self._q * self._size)
            w = np.clip(w, -settings.bound, settings.bound)
        return w

    def _vote_cost(self) -> SampledGaussian:
        return SampledGaussian(1, multiplier_of(1, 1, self.voting.epsilon, self.voting.delta))

    def _vote(self, request: Request) -> NDArray[np.int64]:
        """Returns sums over held-out rows of the differences of the candidates' losses, with this silo's own noise."""
        settings = self._settings
        expected = settings.votes_request(self._models)
        request.check(expected)
        if self._chosen is not None:
            raise RequestRefused(
                "votes are asked for after the rounds of tuning, and before others"
            )
        if self._votes is not None:
            return self._votes
        (means,) = unpack_arrays(request.payload, self._models.shape)
        x, y = self._rows.held_out
        vote = self._vote_cost()
        self.voting.charge(VOTES, vote, 1)
        judged = [
            self._in_box(mean) if is_fedavg(lambda_) else model
            for lambda_, mean, model in zip(settings.lambdas, means, self._models, strict=True)
        ]
        losses = np.stack([self._objective.losses(w, x, y) for w in judged], axis=1)
        # The part of a row's losses that all candidates share does not choose between them.
        differences = (losses - losses.mean(axis=1, keepdims=True)) / settings.vote_norm
        votes = encode_rows(differences, scale_bits=VOTE_BITS, norm=1.0).sum(axis=0)
        sigma = multiplier_on_lattice(vote.z, 2.0**VOTE_BITS) * 2**VOTE_BITS
        noise = DiscreteGaussianStream(math.nextafter(sigma, math.inf), self._random_bytes)
        self._votes = np.clip(votes + noise.draw(len(votes)), expected.low, expected.high)
        return self._votes
