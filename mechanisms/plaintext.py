"""AIM's backend on counts in the clear: central AIM, and the reference for the backend on shares.

``measure_fine`` measures private bins; ``noise`` samples each kind of noise. The counts, scores and random bytes are
secret; only the results of ``select`` and ``measure`` are released.

Source: McKenna et al. 2022 (AIM). Limits: ``box-muller`` noise is not exact, see ``sampling.gaussian_noise``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import MEASURE, SELECT, Ledger, Schedule
from mechanisms.domain import Domain
from mechanisms.events import (
    GRID_SLACK,
    ExponentialEvent,
    NoiseKind,
    distributed_part,
    measurement_event,
)
from mechanisms.exact_noise import discrete_gaussian_noise
from mechanisms.resolving import unmeasured
from mechanisms.sampling import RandomBytes, gaussian_noise, random_uint64
from mechanisms.scores import ScoreSpec, plain_scores, select_index
from mechanisms.workload import Workload, count_marginals


class PlaintextBackend:
    """The counts of clients that arrive round by round.

    ``arrivals`` maps a round to the number of clients that arrive in it and the sum uint32 (maximal_cells,) of their
    count vectors. A selection takes 8 random bytes. Noise is of the plan's kind. ``ledger`` is charged before either
    computes anything. ``measured`` is the number of round 0's measurements that were charged before.
    """

    def __init__(
        self,
        workload: Workload,
        plan: Schedule,
        *,
        arrivals: Mapping[int, tuple[int, NDArray[np.uint32]]],
        ledger: Ledger,
        random_bytes: RandomBytes,
        measured: int = 0,
    ) -> None:
        self.ledger = ledger
        self._workload = workload
        self._plan = plan
        self._arrivals = dict(arrivals)
        self._random_bytes = random_bytes
        self._measured = measured
        self._round = 0
        self._clients = 0
        self._counts = np.zeros(workload.maximal_cells, np.uint32)
        self._expanded = workload.expand(self._counts)

    @classmethod
    def pooled(
        cls,
        workload: Workload,
        plan: Schedule,
        *,
        codes: NDArray[np.int32],
        ledger: Ledger,
        random_bytes: RandomBytes,
        measured: int = 0,
    ) -> PlaintextBackend:
        """Returns central AIM on a table of codes (rows, columns): one client, present from the start."""
        arrivals = {0: (1, count_marginals(codes, workload))}
        return cls(
            workload,
            plan,
            arrivals=arrivals,
            ledger=ledger,
            random_bytes=random_bytes,
            measured=measured,
        )

    async def begin_round(self, round: int) -> int:
        """Adds all clients that have arrived by ``round``; see ``Backend.begin_round``."""
        due = self._plan.events(round)
        self.ledger.require(due[self._measured :] if round == 0 else due)
        self._round = round
        for arrival in sorted(r for r in self._arrivals if r <= round):
            clients, counts = self._arrivals.pop(arrival)
            self._clients += clients
            self._counts += counts
        self._expanded = self._workload.expand(self._counts)
        return self._clients

    async def select(self, spec: ScoreSpec, scale: float) -> int:
        """Returns the choice of the reference mechanism, ``scores.select_index``; charged with the plan's slack.

        Raises ``ValueError`` for an epsilon that is not the plan's, or a charge without ``GRID_SLACK``.
        """
        if scale != self._plan.epsilon:
            raise ValueError(f"a selection with epsilon {scale} is not in the plan")
        charged = self._plan.selection
        if not isinstance(charged, ExponentialEvent) or charged.epsilon < scale + GRID_SLACK:
            raise ValueError("the plan does not charge a selection for the grid of its random bits")
        self.ledger.charge(self._round, SELECT, self._plan.selection)
        scores = plain_scores(self._workload.gather(self._expanded, spec.candidates), spec)
        return select_index(scores, random_uint64(self._random_bytes))

    async def measure(self, candidate: int, sigma: float) -> NDArray[np.float64]:
        """Returns the counts with ``noise`` of the plan's kind."""
        kind = self._plan.noise
        self.ledger.charge(self._round, MEASURE, measurement_event(kind, sigma))
        counts = self._expanded[self._workload.slice(candidate)]
        return counts + noise(self._random_bytes, kind, sigma, counts.size)


def measure_fine(
    domain: Domain,
    plan: Schedule,
    *,
    codes: NDArray[np.int32],
    ledger: Ledger,
    random_bytes: RandomBytes,
) -> dict[int, NDArray[np.float64]]:
    """Returns the noisy fine counts of every column with unmeasured private bins, by position: part of round 0.

    ``ledger`` is charged for each as for any column. Raises ``BudgetExceeded`` before it measures any.
    """
    ledger.require(plan.events(0))
    histograms = {}
    for i in unmeasured(domain):
        ledger.charge(0, MEASURE, plan.initial)
        counts = np.bincount(codes[:, i], minlength=domain.columns[i].size)
        histograms[i] = counts + noise(random_bytes, plan.noise, plan.initial_sigma, counts.size)
    return histograms


def noise(
    random_bytes: RandomBytes, kind: NoiseKind, sigma: float, count: int
) -> NDArray[np.float64]:
    """Returns independent noise (count,) in rows, as each kind adds it to a marginal.

    ``discrete-gaussian``: an exact one of deviation parameter ``sigma``. ``distributed``: the sum of three exact ones
    of sigma / sqrt(2), 1.5 times the variance, as three servers add it. ``box-muller``: see
    ``sampling.gaussian_noise``. Raises ``ValueError`` for another kind or a sigma out of range.
    """
    if kind == "box-muller":
        return gaussian_noise(random_bytes, sigma, count)
    if kind == "discrete-gaussian":
        return discrete_gaussian_noise(random_bytes, sigma, count).astype(np.float64)
    if kind == "distributed":
        parts = discrete_gaussian_noise(random_bytes, distributed_part(sigma), 3 * count)
        total: NDArray[np.int64] = parts.reshape(3, count).sum(axis=0)
        return total.astype(np.float64)
    raise ValueError(f"noise = {kind!r} is not a kind of noise")
