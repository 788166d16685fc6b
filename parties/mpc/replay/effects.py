"""Where a server's code takes what its keys and messages do not decide: its store, the time, its own random nonce.

Provides ``Effects``, which hands out a server's store, transcript and transport and keeps nothing of what goes
through them, and ``SubmissionView``, what a store tells of the data owners. With ``record_replay``
`parties.mpc.replay.recorder` takes the place of ``Effects``, and in a replay what was kept then. Public: the
interface; what goes through it may be secret.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    """What a server holds of its data owners. What it tells depends on when it is asked. All as ``Store``."""

    @property
    def registry(self) -> ParticipantRegistry:
        """Who is held, counted and excluded, as this process counts."""

    def page(self, up_to_round: int, after: str, revoked: Collection[str]) -> Page:
        """What is here of the next clients behind ``after`` and not decided on."""

    def stored(self, client: str, upload: str) -> StoredSubmission:
        """The submission of ``client`` with this upload."""

    def submission_count(self) -> int:
        """How many submissions are here."""

    def read_submission(self, client: str, version: int) -> bytes:
        """The body of a version of ``client``."""

    def settle(self, client: str, version: int, withdrawal: SignedWithdrawal | None = None) -> None:
        """Delete what there is of ``client`` up to ``version``: it does not come back; durable on return."""

    def finalized(self) -> list[Finalized]:
        """Who is counted for good, as this server knows."""

    def finalized_among(self, clients: Iterable[str]) -> dict[str, str]:
        """Of ``clients``, those who are, with their uploads."""

    def unregistered_finalized(self, after: str, upto: str | None) -> dict[str, str]:
        """Of clients by name, from behind ``after`` to ``upto``, those who are and are not on the roll."""

    def save_finalized(self, finals: Sequence[Finalized]) -> None:
        """Who is, as all three have agreed; durable on return."""

    def retain_totals(self, rounds: Sequence[int]) -> None:
        """Keep the running totals of these rounds, and no others."""

    def total_rounds(self) -> list[int]:
        """The rounds whose running total is here."""

    def load_total(self, round: int, pid: int) -> RunningTotal:
        """The running total after ``round``, as server ``pid``'s share."""

    def save_total(self, total: RunningTotal) -> None:
        """Keep the running total after a round; durable on return."""

    def commitment_key(self) -> bytes:
        """This server's key for ``Total.commitment``, one for the whole run. Secret."""

    def records(self) -> list[ParticipantRecord]:
        """What had become of data owners, by client."""

    def save_records(self, records: Iterable[ParticipantRecord]) -> None:
        """Keep what has become of data owners; durable on return."""


class Effects:
    """What decides a server's messages besides its keys and what it receives; nothing of it is kept."""

    def keep(self, name: str, fn: Callable[[], bytes]) -> bytes:
        """What ``fn`` returns. In a replay: what it returned then."""
        return fn()

    def once_json(self, name: str, fn: Callable[[], Any]) -> Any:
        """As ``keep``, for a value that JSON has."""
        return json.loads(self.keep(name, lambda: json.dumps(fn()).encode()))

    def store(self, directory: Path, config_digest: str, *, rounds: int) -> Store:
        """The store in ``directory``, with the state that the run goes on from. Raises StoreError."""
        return Store(directory, config_digest)

    def submission_view(self, store: Store) -> SubmissionView:
        """What ``store`` holds of the data owners."""
        return store

    def transcript(
        self, path: Path, *, sign: Callable[[bytes], bytes], header: Mapping[str, Value]
    ) -> Transcript:
        """The transcript, begun or continued. Raises as ``Transcript``."""
        return Transcript(path, sign=sign, header=header)

    def transport(self, inner: Transport) -> Transport:
        """The mesh, once it is there: keys and messages go through it."""
        return inner
