"""Neighbours of MR-MTL on School: finetuning, Ditto and IFCA, each silo with a privacy budget of its own.

``FinetuneSilo`` and ``DittoSilo`` run with ``run_mtl`` and lambda = infinity, so that the server's mean is that of
FedAvg; ``IfcaSilo`` runs with ``run_ifca``. Secret and public are as in ``mechanisms.mtl_silo``.

What each pays, for T steps of FedAvg at sampling rate q and noise multiplier z:

    finetuning   T steps: the rounds are divided between FedAvg and local steps
    Ditto        2 T steps: each round trains the global model and the personal one
    IFCA         T steps and the choices of a cluster, each by an exponential mechanism

A choice is eta-bounded-range (Dong, Durfee, Rogers 2020), and so has Renyi divergence a eta^2 / 8 at every order a
(Cesar, Rogers 2021): the curve of Gaussian noise of deviation 2 / eta. Renyi curves of steps and choices add up.

Source: Liu, Hu, Wu, Smith 2022; their public code for the settings; Li et al. 2021 (Ditto); Ghosh et al. 2020 (IFCA).
Deviations: docs/decisions/0324. Limits: silos never drop out of a round.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import BudgetExceeded, RequestRefused
from mechanisms.fixed_point import decode, encode, pack_arrays, unpack_arrays
from mechanisms.mr_mtl import MtlSettings
from mechanisms.mtl_silo import MtlSilo, SiloRows
from mechanisms.noise_stream import is_below_exp
from mechanisms.rdp import epsilon_of, gaussian, least_multiplier, sampled_gaussian
from mechanisms.sampling import RandomBytes, public_generator, random_uint64, uniform_below
from mechanisms.silos import Request, Silos

CLUSTERS = "clusters"
# A row's loss is cut at LOSS_BOUND before a choice; units are 2^-LOSS_BITS of it.
LOSS_BOUND, LOSS_BITS = 0.1, 20
# Bound eta of a choice, as a share of the silo's epsilon.
CHOICE_SHARE = 0.03


class FinetuneSilo(MtlSilo):
    """A silo of FedAvg for the rounds up to ``together``; afterwards it trains on alone, from the last mean."""

    def __init__(
        self,
        settings: MtlSettings,
        rows: SiloRows,
        *,
        together: int,
        epsilon: float,
        delta: float,
        random_bytes: RandomBytes,
        multiplier: float | None = None,
    ) -> None:
        super().__init__(
            settings,
            rows,
            epsilon=epsilon,
            delta=delta,
            random_bytes=random_bytes,
            multiplier=multiplier,
        )
        self._together = together
        self._own: NDArray[np.float64] | None = None

    @property
    def model(self) -> NDArray[np.float64]:
        """Own model (d,); that of FedAvg until the first round alone."""
        return super().model if self._own is None else self._own

    def _descend(self, candidate: int, mean: NDArray[np.float64], steps: int) -> None:
        if self._round <= self._together:
            super()._descend(candidate, mean, steps)
            return
        start = mean if self._own is None else self._own
        self._own = self._models[candidate] = self._trained(start, mean, lambda_=0.0, steps=steps)


class DittoSilo(MtlSilo):
    """A silo of FedAvg with a personal model beside it, drawn to the mean that each round began with by ``pull``."""

    TRAININGS = 2

    def __init__(
        self,
        settings: MtlSettings,
        rows: SiloRows,
        *,
        pull: float,
        epsilon: float,
        delta: float,
        random_bytes: RandomBytes,
        multiplier: float | None = None,
    ) -> None:
        super().__init__(
            settings,
            rows,
            epsilon=epsilon,
            delta=delta,
            random_bytes=random_bytes,
            multiplier=multiplier,
        )
        self._pull = pull
        self._own = settings.start

    @property
    def model(self) -> NDArray[np.float64]:
        """Personal model (d,)."""
        return self._own

    def _descend(self, candidate: int, mean: NDArray[np.float64], steps: int) -> None:
        super()._descend(candidate, mean, steps)
        self._own = self._trained(self._own, mean, lambda_=self._pull, steps=steps)


def ifca_curve(q: float, z: float, *, steps: int, choices: int, eta: float) -> NDArray[np.float64]:
    """Returns the Renyi curve of ``steps`` noisy sums and ``choices`` of a cluster with bounded range ``eta``."""
    curve = steps * sampled_gaussian(q, z)
    return curve + choices * gaussian(2 / eta) if choices else curve


def ifca_multiplier(
    q: float, *, steps: int, choices: int, eta: float, epsilon: float, delta: float
) -> float:
    """Returns the least noise multiplier of the sums for (``epsilon``, ``delta``) over sums and choices together.

    Raises ``ValueError`` if the choices alone cost more.
    """
    return least_multiplier(
        lambda z: ifca_curve(q, z, steps=steps, choices=choices, eta=eta), epsilon, delta
    )


def choose(losses: NDArray[np.int64], eta: float, random_bytes: RandomBytes) -> int:
    """Returns i with probability proportional to exp(-eta ``losses``[i] / 2^LOSS_BITS), exactly.

    ``losses`` (k,) are sums over rows, of 0 to 2^LOSS_BITS units each. One row more adds to all of them, so that each
    log probability ratio moves within a range of eta: the choice is eta-bounded-range.
    """
    above = (losses - losses.min()).tolist()
    rate = Fraction(eta) / 2**LOSS_BITS
    while True:
        # A uniform candidate, kept with probability exp(-gamma): the least loss is always kept.
        i = int(uniform_below(random_bytes, len(above), 1)[0])
        if is_below_exp(random_uint64(random_bytes), rate * above[i], random_bytes):
            return i


class IfcaSilo(MtlSilo):
    """A silo of IFCA: in the first ``choosing`` rounds it chooses the model of ``clusters`` that it trains.

    A choice is private by ``choose`` with bound ``eta``. With one cluster nothing is chosen or paid, and it is a silo
    of FedAvg. Raises ``BudgetExceeded`` if the whole run does not fit its budget.
    """

    def __init__(
        self,
        settings: MtlSettings,
        rows: SiloRows,
        *,
        clusters: int,
        choosing: int,
        eta: float,
        epsilon: float,
        delta: float,
        random_bytes: RandomBytes,
        multiplier: float | None = None,
    ) -> None:
        size = len(rows.train[1])
        q, steps = settings.sampling_rate(size), settings.total_steps(size)
        self._clusters, self._eta = clusters, eta
        self._choosing = choosing if clusters > 1 else 0
        self._choices = self._cluster = 0
        self._delta = delta
        z = multiplier or ifca_multiplier(
            q, steps=steps, choices=self._choosing, eta=eta, epsilon=epsilon, delta=delta
        )
        super().__init__(
            settings,
            rows,
            epsilon=epsilon,
            delta=delta,
            random_bytes=random_bytes,
            multiplier=z,
        )
        whole = ifca_curve(q, z, steps=steps, choices=self._choosing, eta=eta)
        if epsilon_of(whole, delta) > epsilon:
            raise BudgetExceeded(
                f"{steps} steps and {self._choosing} choices cost {epsilon_of(whole, delta):.6g}; "
                f"the budget is {epsilon:.6g}"
            )
        self._last: NDArray[np.float64] | None = None

    @property
    def epsilon(self) -> float:
        """Epsilon of the noisy sums and choices so far, by their Renyi curves."""
        steps, z = self.steps, self._step.z
        if not steps and not self._choices:
            return 0.0
        curve = ifca_curve(self._q, z, steps=steps, choices=self._choices, eta=self._eta)
        return epsilon_of(curve, self._delta)

    @property
    def cluster(self) -> int:
        """Number of the cluster chosen last."""
        return self._cluster

    @property
    def model(self) -> NDArray[np.float64]:
        """Last mean (d,) of the silo's cluster; the start before."""
        return self._settings.start if self._last is None else self._last

    def answer(self, request: Request) -> NDArray[np.int64]:
        """See ``silos.Silo``."""
        settings, k = self._settings, self._clusters
        request.check(clusters_request(settings, 0, np.zeros((k, settings.size))))
        head, means = unpack_arrays(request.payload, (1,), (k, settings.size))
        number, means = int(head[0]), self._in_box(means)
        if number != self._round + 1 or number > settings.rounds:
            raise RequestRefused(f"round {number} after round {self._round}")
        self._round = number
        if number <= self._choosing:
            self._choices += 1
            self._cluster = choose(self._losses(means), self._eta, self._random_bytes)
        steps = settings.steps(self._size)
        self.training.charge(f"{CLUSTERS}, round {number}", self._step, steps)
        self._descend(0, means[self._cluster], steps)
        # Zeros for the other clusters: sums show the server each cluster's models and rows, and no silo's choice.
        answer = np.zeros((k, settings.size + 1), np.int64)
        model = encode(self._models[0], scale_bits=settings.model_bits, bound=settings.bound)
        answer[self._cluster] = np.append(self._size * model, self._size)
        return answer.ravel()

    def finish(self, payload: bytes) -> None:
        """Takes the last means. Raises ``RequestRefused`` for another payload."""
        (means,) = unpack_arrays(payload, (self._clusters, self._settings.size))
        self._last = self._in_box(means)[self._cluster]

    def _losses(self, means: NDArray[np.float64]) -> NDArray[np.int64]:
        """Returns the sums over the training rows of their losses under ``means`` (k, d), each cut and in units."""
        x, y = self._rows.train
        losses = np.stack([self._objective.losses(mean, x, y) for mean in means])
        cut = np.clip(losses / LOSS_BOUND, 0.0, 1.0)
        sums: NDArray[np.int64] = np.rint(np.ldexp(cut, LOSS_BITS)).astype(np.int64).sum(axis=1)
        return sums


def clusters_request(settings: MtlSettings, round: int, means: NDArray[np.float64]) -> Request:
    """Returns the request for models after ``round``, which begins with the clusters' ``means`` (k, d)."""
    payload = pack_arrays(np.array([float(round)]), means)
    length = means.size + len(means)
    return Request(CLUSTERS, payload, length, low=-settings.limit, high=settings.limit)


def clusters_start(
    settings: MtlSettings, clusters: int, seed: int, *, norm: float = 1.0
) -> NDArray[np.float64]:
    """Returns the clusters' first models (k, d): random ones, since equal ones stay equal; that of FedAvg for one.

    Weights are uniform, with variance ``norm``^2 / d.
    """
    if clusters == 1:
        return settings.start[None, :]
    width = norm * (3 / settings.size) ** 0.5
    return public_generator(seed).uniform(-width, width, (clusters, settings.size))


async def run_ifca(
    settings: MtlSettings, silos: Silos, means: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Runs the server from the clusters' first ``means`` (k, d) and returns the last ones.

    A cluster that no silo chose keeps its model.
    """
    for number in range(1, settings.rounds + 1):
        total = await silos.sum(clusters_request(settings, number, means))
        sums = total.values.reshape(len(means), settings.size + 1)
        weights = sums[:, -1:]
        models = decode(sums[:, :-1], scale_bits=settings.model_bits) / np.maximum(weights, 1)
        means = np.where(weights > 0, np.clip(models, -settings.bound, settings.bound), means)
    await silos.finish(pack_arrays(means))
    return means
