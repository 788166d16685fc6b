"""Interface of an input form: the participant's values, their sizes, and the conversion into shares of counts.

``SubmissionBatch`` holds the submissions of one form that are counted together. A participant's *capacity* is the
public number of rows that it may have, stated in its submission; nothing depends on the actual number. Secret: shared
values, bodies, and totals. Public: names, capacities, sizes, costs, and the refused submissions.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from parties.config import ComputeSection
from parties.mpc.records import StoredSubmission
from protocols.context import Context
from protocols.shares import Share
from protocols.upload import UploadParts, UploadSeeds

OnCountingProgress = Callable[[int, int], None]
"""Callback for progress: parts done, and parts in all."""


@dataclass(frozen=True, slots=True)
class RowLimit:
    """Limit of a participant's weight: at most ``rows`` rows, verified as ``check`` says (``run.check``)."""

    check: str
    rows: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AdditionResult:
    """A running ``total`` that includes a batch, except the clients in ``failed``, which exceed their limit."""

    total: Share
    failed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SubmissionBatch:
    """Submissions of one form that are counted together, in the same order at all three servers.

    ``body`` returns this server's body of a client (secret). ``progress`` receives the progress of the form's work, and
    ``compute`` configures the processes that do it.
    """

    round: int
    submissions: tuple[StoredSubmission, ...]
    body: Callable[[str], bytes]
    limit: RowLimit
    progress: OnCountingProgress | None = None
    compute: ComputeSection = field(default_factory=ComputeSection)

    @property
    def rows(self) -> int:
        """Sum of the capacities."""
        return sum(stored.submission.capacity for stored in self.submissions)

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of the clients, in the order of the submissions."""
        return tuple(stored.submission.client for stored in self.submissions)

    def without(self, clients: Collection[str]) -> "SubmissionBatch":
        """The batch without ``clients``."""
        left = (s for s in self.submissions if s.submission.client not in clients)
        return replace(self, submissions=tuple(left))


class InputForm(Protocol):
    """One form of a workload's inputs: first the participant's side, then the servers' side."""

    @property
    def name(self) -> str:
        """Name of the form in submissions."""

    @property
    def together(self) -> str:
        """Key of the forms that are counted in one batch: the form's own name, except for forms that are joined."""

    @property
    def by_capacity(self) -> bool:
        """True if a participant's own capacity bounds its weight for any input; servers' work grows with the capacity.

        If False, participants' submissions have the capacity clients.rows_per_client, which ``add`` may verify.
        """

    def values(self, codes: NDArray[np.int32], capacity: int) -> NDArray[np.unsignedinteger]:
        """Values that the participant of these coded rows, at most ``capacity`` of them, shares. Secret."""

    @property
    def holders(self) -> tuple[int, ...]:
        """Servers that get the common part; empty if there is no such part."""

    def share(self, values: NDArray[np.unsignedinteger], seeds: UploadSeeds) -> UploadParts:
        """Splits ``values`` into a private part for each server, and at most one common part."""

    def private_size(self, pid: int, capacity: int) -> int:
        """Exact size of server ``pid``'s private part from a participant of this capacity, in bytes."""

    def common_size(self, capacity: int) -> int:
        """Exact size of the common part in bytes, 0 without one."""

    def component_digests(self, pid: int, body: bytes, capacity: int) -> tuple[bytes, bytes]:
        """Digests of server ``pid``'s own and next component, for comparison with the neighbours that hold them, too.

        A body is the server's private part and, at a holder, the common part behind it. Raises CheckFailed for a body
        of another size.
        """

    def batches(self, due: Sequence[StoredSubmission]) -> list[tuple[StoredSubmission, ...]]:
        """Splits ``due`` into batches that are counted together: by public facts alone, alike at all three servers.

        All batches but the last are the same, whatever comes behind them.
        """

    def exceed_batch(self, owners: int, rows: int) -> bool:
        """True if ``batches`` makes more than one batch of ``owners`` participants with ``rows`` rows by capacity."""

    async def add(self, ctx: Context, total: Share, batch: SubmissionBatch) -> AdditionResult:
        """Adds the counts of every client of ``batch`` within its limit to ``total``; components were compared before.

        Shapes: ``total`` and the result's R32 (maximal cells,), whatever forms have gone into it. A form whose servers
        communicate takes its own steps of `parties.mpc.steps` below ``ctx``, in the batch's round, with nothing
        concurrent. Leaks: the clients that exceed their limit. Rounds and Communication: by the formulas of its steps.
        """
