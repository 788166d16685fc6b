"""DistAIM's first measurements as in the FLAIM authors' code, for comparing: each of its own draw of clients.

Nothing here is secret; see `bench.papers.utility.runs`. A client drawn for one of the initial one-way marginals is
counted in that alone, and later only if it comes to a round; so the first model mixes marginals of different rows, and
less is known when the rounds begin than of owners who stay.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Ledger, Schedule
from mechanisms.plaintext import PlaintextBackend
from mechanisms.sampling import RandomBytes
from mechanisms.workload import Workload

Arrivals = Mapping[int, tuple[int, NDArray[np.uint32]]]


class FreshFirst(PlaintextBackend):
    """`PlaintextBackend` whose round 0 measures `draw()`, the counts (maximal_cells,) of clients drawn anew each time.

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
