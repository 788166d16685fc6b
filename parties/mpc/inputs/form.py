"""The interface of an input form: what an owner sends, how large it is, and how servers turn it into shares of counts.

Provides ``InputForm``, and ``SubmissionBatch``, the submissions of one form that are counted in together. An owner's
*capacity* is the public number of rows that it may have, which its submission says; nothing depends on how many it has.
Secret: what owners share, their bodies, and totals. Public: names, capacities, sizes, costs, and whose submission was
refused.
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
"""Told how many parts of a work are done, of how many."""


@dataclass(frozen=True, slots=True)
class RowLimit:
    """How much an owner may weigh: at most so many ``rows``, and what of it is checked (``run.check``)."""

    check: str
    rows: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AdditionResult:
    """A running ``total`` with a batch in it, but for the clients in ``failed``, who are not within their limit."""

    total: Share
    failed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SubmissionBatch:
    """Submissions of one form that are counted in together, in the same order at all three servers.

    ``body`` gives this server's body of a client (secret). ``progress`` hears of the work that the form has with it,
    and ``compute`` says where this server does it.
    """

    round: int
    submissions: tuple[StoredSubmission, ...]
    body: Callable[[str], bytes]
    limit: RowLimit
    progress: OnCountingProgress | None = None
    compute: ComputeSection = field(default_factory=ComputeSection)

    @property
    def rows(self) -> int:
        """The sum of the capacities."""
        return sum(stored.submission.capacity for stored in self.submissions)

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients' names, in the order of the submissions."""
        return tuple(stored.submission.client for stored in self.submissions)

    def without(self, clients: Collection[str]) -> "SubmissionBatch":
        """Those that are left when ``clients`` are dropped."""
        left = (s for s in self.submissions if s.submission.client not in clients)
        return replace(self, submissions=tuple(left))


class InputForm(Protocol):
    """One form of a workload's inputs. The owner's side first, then the servers'."""

    @property
    def name(self) -> str:
        """What submissions call it."""

    @property
    def together(self) -> str:
        """What forms have in common that are counted in one batch: its own name, but for those that are joined."""

    @property
    def by_capacity(self) -> bool:
        """Whether an owner weighs at most its own capacity, whatever it sends, and servers work for all of it.

        Where not, owners' submissions have the capacity clients.rows_per_client, which ``add`` may check.
        """

    def values(self, codes: NDArray[np.int32], capacity: int) -> NDArray[np.unsignedinteger]:
        """What the owner of these coded rows, of which there are at most ``capacity``, shares. Secret."""

    @property
    def holders(self) -> tuple[int, ...]:
        """The servers that get the common part; none where there is no such part."""

    def share(self, values: NDArray[np.unsignedinteger], seeds: UploadSeeds) -> UploadParts:
        """A private part for each server, and at most one common part."""

    def private_size(self, pid: int, capacity: int) -> int:
        """The exact number of bytes of server ``pid``'s private part from an owner of this capacity."""

    def common_size(self, capacity: int) -> int:
        """The exact number of bytes of the common part, 0 without one."""

    def component_digests(self, pid: int, body: bytes, capacity: int) -> tuple[bytes, bytes]:
        """Digests of what server ``pid`` holds of its own and its next component, for the neighbours that hold it, too.

        A body is the server's private part and, at a holder, the common part behind it. Raises CheckFailed for one of
        another size.
        """

    def batches(self, due: Sequence[StoredSubmission]) -> list[tuple[StoredSubmission, ...]]:
        """``due`` in the parts that are to be counted in together: by public facts alone, alike at all three.

        All but the last are the same whatever comes behind them.
        """

    def exceed_batch(self, owners: int, rows: int) -> bool:
        """Whether ``batches`` makes more than one of so many owners, with so many rows by their capacities."""

    async def add(self, ctx: Context, total: Share, batch: SubmissionBatch) -> AdditionResult:
        """``total`` and the counts of everyone in ``batch`` who is within its limit; all were found to be whole.

        Shapes: ``total`` and the result's R32 (maximal cells,), whatever forms have gone into it. A form whose servers
        have to talk takes its own steps of `parties.mpc.steps` below ``ctx``, in the batch's round; there is
        nothing beside it. Leaks: who is not within its limit. Rounds and Communication: by the formulas of its steps.
        """
