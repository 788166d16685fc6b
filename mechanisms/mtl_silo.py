"""One silo of MR-MTL: its rows, its own epsilon and delta, its own model.

Provides ``SiloRows``, ``multiplier_of`` and ``MtlSilo``. Secret: rows, batches, noise, the model until it is sent.
Emitted: the models after each round and the votes, both private by this silo's own noise; that aggregation hides them
from the server besides lowers no noise. ``error_of`` is for the silo's own eyes: it is not charged.

The guarantee, whatever the server and the other silos do: for two tables that differ in one example being there or
not, everything this silo emits is (epsilon, delta)-indistinguishable. An example is in one part of the rows for good.
Those that train are in every noisy gradient; those held out in one vote; those that test, in nothing emitted. So
two ledgers, each with the whole budget, and the silo's epsilon is the larger of the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

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
from mechanisms.silos import Request


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
    """The noise multiplier that keeps (epsilon, delta) over ``steps`` noisy sums at the sampling rate ``q``."""
    return least_multiplier(lambda z: {SampledGaussian(q, z): steps}, epsilon, delta)


class MtlSilo:
    """A silo with a budget of its own; a ``silos.Silo``.

    It declares as many rows as ``rows.train`` has. ``multiplier``: of the noise, if it was computed before. A request
    that comes again (a sum that was lost, a server that was started anew) is answered as it was, at no further cost.
    Raises ``ValueError`` where rows and settings do not fit, ``DataError`` where a library is missing.
    """

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
        steps = settings.total_steps(self._size)
        z = multiplier or multiplier_of(self._q, steps, epsilon, delta)
        self._step = SampledGaussian(self._q, z)
        if multiplier is None:
            # All at once: rounds that are part of this are not composed one by one.
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
        """What any example of this silo has been charged at most."""
        return max(self.training.spent, self.voting.spent)

    @property
    def lambda_(self) -> float:
        """The lambda that was chosen; the first, as long as none is."""
        return self._settings.lambdas[self._chosen or 0]

    @property
    def steps(self) -> int:
        """How many noisy sums were charged."""
        return sum(entry.steps for entry in self.training.entries)

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean of all models (d,) that the server sent last; the start before."""
        return self._settings.start if self._final is None else self._final

    @property
    def model(self) -> NDArray[np.float64]:
        """The silo's model (d,) as it is now; with FedAvg the mean that was sent last."""
        if self._final is not None and is_fedavg(self.lambda_):
            return self._final
        own: NDArray[np.float64] = self._models[self._chosen or 0]
        return own

    def answer(self, request: Request) -> NDArray[np.int64]:
        """See ``silos.Silo``."""
        return self._vote(request) if request.step == VOTES else self._train(request)

    def finish(self, payload: bytes) -> None:
        """Takes the last mean. Raises ``RequestRefused`` for something else."""
        chosen, mean = unpack_arrays(payload, (1,), (self._settings.size,))
        if self._chosen is None or int(chosen[0]) != self._chosen:
            raise RequestRefused("the result is for another lambda than the last rounds were")
        self._final = self._in_box(mean)

    def error_of(self, w: NDArray[np.float64]) -> float:
        """The error of model ``w`` on this silo's test rows; nan without any. For the silo alone: not private."""
        x, y = self._rows.test
        return self._objective.error(w, x, y) if len(y) else math.nan

    def state(self) -> dict[str, object]:
        """Where this silo is, for ``resume`` in another process: as secret as models are before they are sent."""
        return {
            "round": self._round,
            "steps": self.steps,
            "chosen": self._chosen,
            "models": self._models.tolist(),
            "votes": None if self._votes is None else self._votes.tolist(),
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on where a process before this one was, whose ``state`` that is; charges are entered again."""
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
        # Before the votes a sum has the models of all candidates, after them of the one chosen.
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
            # Charged before a row is looked at. A silo that missed rounds has made fewer steps, and is charged fewer.
            self.training.charge(f"{MODELS}, round {number}", self._step, steps * count)
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
        """Raises ``RequestRefused`` for a round that is not to come, or other candidates than it has."""
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
        """``steps`` steps of DP-SGD on one candidate's model, from its own place."""
        settings = self._settings
        x, y = self._rows.train
        lambda_ = settings.lambdas[candidate]
        pulled = not is_fedavg(lambda_)
        w = self._models[candidate] if pulled else mean
        for _ in range(steps):
            batch = poisson_batch(len(y), self._q, self._random_bytes)
            gradients = self._objective.gradients(w, x[batch], y[batch])
            if pulled:
                gradients += lambda_ * (w - mean)
            total = noisy_sum(
                gradients, self._noise.draw, clip=settings.clip, scale_bits=settings.gradient_bits
            )
            # By the mean size of a batch: its real size is as secret as who is in it.
            w = w - settings.rate * total / (self._q * self._size)
            w = np.clip(w, -settings.bound, settings.bound)
        self._models[candidate] = w

    def _vote_cost(self) -> SampledGaussian:
        return SampledGaussian(1, multiplier_of(1, 1, self.voting.epsilon, self.voting.delta))

    def _vote(self, request: Request) -> NDArray[np.int64]:
        """Sums over held-out rows of how the candidates' losses differ, with this silo's own noise."""
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
        # What a row says of all candidates alike does not choose between them.
        differences = (losses - losses.mean(axis=1, keepdims=True)) / settings.vote_norm
        votes = encode_rows(differences, scale_bits=VOTE_BITS, norm=1.0).sum(axis=0)
        sigma = multiplier_on_lattice(vote.z, 2.0**VOTE_BITS) * 2**VOTE_BITS
        noise = DiscreteGaussianStream(math.nextafter(sigma, math.inf), self._random_bytes)
        self._votes = np.clip(votes + noise.draw(len(votes)), expected.low, expected.high)
        return self._votes
