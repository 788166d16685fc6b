"""Effects: every non-deterministic input of a server (store reads, time, nonce), so that a run can be replayed.

``Effects`` hands out a server's store, transcript and transport and records nothing; ``ParticipantView`` is a store's
view of its participants. With ``record_replay``, `parties.mpc.replay.recorder` replaces ``Effects``, and in a replay
the recorded values do. Public: the interface; values that go through it may be secret.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from parties.mpc.participants.finalized import Finalized
from parties.mpc.participants.listing import Page
from parties.mpc.participants.registry import ParticipantRegistry
from parties.mpc.records import ParticipantRecord, RunningTotal, StoredSubmission
from parties.mpc.storage.store import Store
from parties.mpc.submission.withdrawal import SignedWithdrawal
from protocols.context import Transport
from protocols.transcript import Transcript, Value


class SubmissionView(Protocol):
    """Submissions at a server; answers depend on the time of the call. All methods as in ``SubmissionStore``."""

    def page(self, up_to_round: int, after: str, revoked: Collection[str]) -> Page:
        """Undecided submissions and withdrawals of the next clients behind ``after``."""

    def stored(self, client: str, upload: str) -> StoredSubmission:
        """Submission of ``client`` with this upload."""

    def count(self) -> int:
        """Number of clients with a submission here."""

    def read(self, client: str, version: int) -> bytes:
        """Body of a version of ``client``."""

    def settle(self, client: str, version: int, withdrawal: SignedWithdrawal | None = None) -> None:
        """Deletes all versions of ``client`` up to ``version`` for good; durable on return."""


class FinalizedView(Protocol):
    """Clients counted for good, as far as a server knows. All methods as in ``FinalizedStore``."""

    def finalized(self) -> list[Finalized]:
        """All final uploads."""

    def finalized_among(self, clients: Iterable[str]) -> dict[str, str]:
        """Final uploads of those ``clients`` that are counted for good."""

    def unregistered(self, after: str, upto: str | None) -> dict[str, str]:
        """Final uploads of clients by name, from behind ``after`` to ``upto``, that are not in the registry."""

    def save_finalized(self, finals: Sequence[Finalized]) -> None:
        """Stores the clients counted for good, as all three servers have agreed; durable on return."""


class TotalView(Protocol):
    """Running totals of a server. All methods as in ``TotalStore``."""

    def retain(self, rounds: Sequence[int]) -> None:
        """Keeps the running totals of these rounds, and no others."""

    def rounds(self) -> list[int]:
        """Rounds whose running total is here."""

    def load(self, round: int, pid: int) -> RunningTotal:
        """Running total after ``round``, as server ``pid``'s share."""

    def save(self, total: RunningTotal) -> None:
        """Stores the running total after a round; durable on return."""

    def commitment_key(self) -> bytes:
        """This server's key for ``RunningTotal.commitment``, one for the whole run. Secret."""


class RecordView(Protocol):
    """Participants' records of a server. All methods as in ``RecordStore``."""

    def all(self) -> list[ParticipantRecord]:
        """Stored records, by client."""

    def save(self, records: Iterable[ParticipantRecord]) -> None:
        """Replaces the records; durable on return."""


@dataclass(frozen=True, slots=True)
class ParticipantView:
    """A server's view of its participants; ``registry`` has the held, counted and excluded ones of this process."""

    registry: ParticipantRegistry
    submissions: SubmissionView
    finalized: FinalizedView
    totals: TotalView
    records: RecordView


class Effects:
    """Source of all that decides a server's messages besides its keys and received messages; records nothing."""

    def once(self, name: str, fn: Callable[[], bytes]) -> bytes:
        """Result of ``fn``. In a replay: the recorded result."""
        return fn()

    def once_json(self, name: str, fn: Callable[[], Any]) -> Any:
        """As ``keep``, for a JSON value."""
        return json.loads(self.once(name, lambda: json.dumps(fn()).encode()))

    def store(self, directory: Path, config_digest: str, *, rounds: int) -> Store:
        """Store in ``directory``, with the state that the run goes on from. Raises StoreError."""
        return Store(directory, config_digest)

    def participants(self, store: Store) -> ParticipantView:
        """View of the participants in ``store``."""
        return ParticipantView(
            store.registry, store.submissions, store.finalized, store.totals, store.records
        )

    def transcript(
        self, path: Path, *, sign: Callable[[bytes], bytes], header: Mapping[str, Value]
    ) -> Transcript:
        """Transcript, begun or continued. Raises as ``Transcript``."""
        return Transcript(path, sign=sign, header=header)

    def transport(self, inner: Transport) -> Transport:
        """Transport of the connected mesh: keys and messages go through it."""
        return inner
