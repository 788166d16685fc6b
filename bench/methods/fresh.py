"""First one-way marginals of clients that are drawn for these alone, as in the FLAIM authors' code: for comparing.

`first_sums` is FLAIM's, `FreshFirst` DistAIM's. Nothing here is secret; see `bench.papers.utility.runs`. A client drawn
for one of the first marginals is counted in that alone, and later only if it comes to a round; so less is known when
the rounds begin than of owners who stay. Where each marginal has its own draw, the first model mixes different rows.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import MEASURE, Ledger, Schedule
from mechanisms.exact_noise import discrete_gaussian_noise
from mechanisms.flaim import FlaimMeasurement, FlaimRound
from mechanisms.flaim_participants import draw_participants
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.plaintext import PlaintextBackend
from mechanisms.sampling import RandomBytes
from mechanisms.workload import Workload

Arrivals = Mapping[int, tuple[int, NDArray[np.uint32]]]


class FreshFirst(PlaintextBackend):
    """`PlaintextBackend` whose round 0 measures `draw()` for each marginal: counts (maximal_cells,) of drawn clients.

    `expected`: mean number of clients of a draw, which round 0 reports as counted. `arrivals` are as of
    `arrival_counts`: clients of round 0 come in round 1.
    """

    def __init__(
        self,
        workload: Workload,
        plan: Schedule,
        *,
        arrivals: Arrivals,
        draw: Callable[[], NDArray[np.uint32]],
        expected: int,
        ledger: Ledger,
        random_bytes: RandomBytes,
    ) -> None:
        later = {max(1, round): counted for round, counted in arrivals.items()}
        super().__init__(workload, plan, arrivals=later, ledger=ledger, random_bytes=random_bytes)
        self._draw = draw
        self._expected = expected

    async def begin_round(self, round: int) -> int:
        """See `PlaintextBackend.begin_round`."""
        counted = await super().begin_round(round)
        return self._expected if round == 0 else counted

    async def measure(self, candidate: int, sigma: float) -> NDArray[np.float64]:
        """See `PlaintextBackend.measure`."""
        if self._round == 0:
            self._expanded = self._workload.expand(self._draw())
        return await super().measure(candidate, sigma)


def first_sums(
    schedule: Schedule,
    ledger: Ledger,
    *,
    tables: Sequence[NDArray[np.int32]],
    workload: Workload,
    how: FlaimSettings,
    random_bytes: RandomBytes,
) -> FlaimRound:
    """Returns FLAIM's round 0 with every one-way marginal of its own draw of clients, each charged to `ledger`.

    `tables` has the codes (rows, columns) of each client. The server makes the noise.
    """
    noise, measurements = how.sum_noise(schedule.sigma), []
    for candidate in workload.one_way:
        drawn = draw_participants(range(len(tables)), how, random_bytes)
        ledger.charge(0, MEASURE, noise.event)
        (name,) = workload.candidates[candidate]
        column = workload.domain.index(name)
        codes = np.concatenate([tables[client][:, column] for client in drawn])
        counts = np.bincount(codes, minlength=workload.domain.shape[column])
        noisy = counts + discrete_gaussian_noise(random_bytes, schedule.sigma, counts.size)
        measurements.append(
            FlaimMeasurement(
                0, candidate, noisy.astype(np.float64), noise.deviation(len(drawn)), drawn, True
            )
        )
    everybody = sorted({client for m in measurements for client in m.contributors})
    return FlaimRound(0, tuple(everybody), {}, tuple(measurements), lost=False)
