"""Recorded effects: all that goes through store, transport and clock is written to a replay log.

A replay uses ``RecordedSubmissions`` and ``with_recorded_state`` as well. SECRET: the recorded values; see
`parties.mpc.replay.log`. Every item is in the file before it is used, and on the disk before the transcript's records
that result from it: after a kill, the log has at least as much as the transcript.
"""

import json
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from parties.mpc.agreement import release_state, restore_releases
from parties.mpc.participants.finalized import Finalized
from parties.mpc.participants.listing import Page
from parties.mpc.participants.registry import ParticipantRegistry
from parties.mpc.records import ParticipantRecord, RunningTotal, StoredSubmission
from parties.mpc.replay.effects import Effects, SubmissionView
from parties.mpc.replay.log import ReplayLog
from parties.mpc.storage.store import Store
from parties.mpc.submission.messages import Submission
from parties.mpc.submission.withdrawal import SignedWithdrawal
from protocols.context import Opening, Payload, StepCost, Transport
from protocols.ring import R32
from protocols.shares import Share
from protocols.transcript import Transcript, Value


class RecordedEffects(Effects):
    """``Effects`` that record everything in ``log``."""

    def __init__(self, log: ReplayLog) -> None:
        self._log = log

    def once(self, name: str, fn: Callable[[], bytes]) -> bytes:
        """See ``Effects.once``."""
        value = fn()
        self._log.input(name, value)
        return value

    def store(self, directory: Path, config_digest: str, *, rounds: int) -> Store:
        """See ``Effects.store``."""
        return with_recorded_state(
            super().store(directory, config_digest, rounds=rounds), self, rounds
        )

    def submission_view(self, store: Store) -> SubmissionView:
        """See ``Effects.submission_view``."""
        return RecordedSubmissions(store, self)

    def transcript(
        self, path: Path, *, sign: Callable[[bytes], bytes], header: Mapping[str, Value]
    ) -> Transcript:
        """See ``Effects.transcript``: the log is synced before each flush of the transcript."""
        return Transcript(path, sign=sign, header=header, before_flush=self._log.sync)

    def transport(self, inner: Transport) -> Transport:
        """See ``Effects.transport``: keys are recorded at once, messages as they arrive."""
        for component in (inner.pid, (inner.pid + 1) % 3):
            self._log.key(str(component), inner.component_key(component))
        self._log.key("private", inner.private_key())
        return _RecordedTransport(inner, self._log)


class _RecordedTransport:
    """``Transport`` that wraps ``inner`` and records arriving messages."""

    def __init__(self, inner: Transport, log: ReplayLog) -> None:
        self._inner = inner
        self._log = log
        self.pid = inner.pid
        self.costs = inner.costs

    def component_key(self, component: int) -> bytes:
        """See ``Transport``."""
        return self._inner.component_key(component)

    def private_key(self) -> bytes:
        """See ``Transport``."""
        return self._inner.private_key()

    def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
        """See ``Transport``."""
        self._inner.post(peer, label, payload, cost)

    async def fetch(self, peer: int, label: int, cost: StepCost, limit: int) -> Payload:
        """See ``Transport``."""
        payload = await self._inner.fetch(peer, label, cost, limit)
        self._log.received(peer, label, payload)
        return payload

    def opened(self, opening: Opening, value: bytes) -> None:
        """See ``Transport``."""
        self._inner.opened(opening, value)


def with_recorded_state(store: Store, effects: Effects, rounds: int) -> Store:
    """Records the initial state of ``store``, or restores the recorded one."""
    try:
        state = effects.once_json("state", lambda: release_state(store, rounds))
        restore_releases(store, state, rounds)
    except BaseException:
        store.close()
        raise
    return store


class RecordedSubmissions:
    """``SubmissionView`` whose answers go through ``effects``, except counts, which decide nothing by themselves."""

    def __init__(self, inner: SubmissionView, effects: Effects) -> None:
        self._inner = inner
        self._effects = effects
        self._key = effects.once("commitment key", inner.commitment_key)

    @property
    def registry(self) -> ParticipantRegistry:
        """See ``SubmissionView.registry``: it follows from everything else."""
        return self._inner.registry

    def page(self, up_to_round: int, after: str, revoked: Collection[str]) -> Page:
        """See ``SubmissionView.page``."""
        kept = self._effects.once_json(
            "page", lambda: _page_document(self._inner.page(up_to_round, after, revoked))
        )
        withdrawn = (SignedWithdrawal.from_dict(said, run, c) for run, c, said in kept["withdrawn"])
        return Page(tuple(map(_stored, kept["submissions"])), tuple(withdrawn), kept["upto"])

    def stored(self, client: str, upload: str) -> StoredSubmission:
        """See ``SubmissionView.stored``."""
        row = self._effects.once_json(
            f"submission of {client}", lambda: _row(self._inner.stored(client, upload))
        )
        return _stored(row)

    def submission_count(self) -> int:
        """See ``SubmissionView.submission_count``."""
        return self._inner.submission_count()

    def read_submission(self, client: str, version: int) -> bytes:
        """See ``SubmissionView.read_submission``."""
        return self._effects.once(
            f"body of {client} {version}", lambda: self._inner.read_submission(client, version)
        )

    def settle(self, client: str, version: int, withdrawal: SignedWithdrawal | None = None) -> None:
        """See ``SubmissionView.settle``."""
        self._inner.settle(client, version, withdrawal)

    def finalized(self) -> list[Finalized]:
        """See ``SubmissionView.finalized``."""
        found = self._effects.once_json(
            "finals", lambda: [astuple(item) for item in self._inner.finalized()]
        )
        return [Finalized(*item) for item in found]

    def finalized_among(self, clients: Iterable[str]) -> dict[str, str]:
        """See ``SubmissionView.finalized_among``: of those that were saved here."""
        return self._inner.finalized_among(clients)

    def unregistered_finalized(self, after: str, upto: str | None) -> dict[str, str]:
        """See ``SubmissionView.unregistered_finalized``: of those that were saved here."""
        return self._inner.unregistered_finalized(after, upto)

    def save_finalized(self, finals: Sequence[Finalized]) -> None:
        """See ``SubmissionView.save_finalized``."""
        self._inner.save_finalized(finals)

    def retain_totals(self, rounds: Sequence[int]) -> None:
        """See ``SubmissionView.retain_totals``."""
        self._inner.retain_totals(rounds)

    def total_rounds(self) -> list[int]:
        """See ``SubmissionView.total_rounds``."""
        rounds: list[int] = self._effects.once_json("rounds of totals", self._inner.total_rounds)
        return rounds

    def load_total(self, round: int, pid: int) -> RunningTotal:
        """See ``SubmissionView.load_total``."""
        data = self._effects.once(
            f"total of round {round}", lambda: _total_bytes(self._inner.load_total(round, pid))
        )
        return _total_from(data, round, pid)

    def save_total(self, total: RunningTotal) -> None:
        """See ``SubmissionView.save_total``."""
        self._inner.save_total(total)

    def commitment_key(self) -> bytes:
        """See ``SubmissionView.commitment_key``."""
        return self._key

    def records(self) -> list[ParticipantRecord]:
        """See ``SubmissionView.records``: no message depends on them."""
        return self._inner.records()

    def save_records(self, records: Iterable[ParticipantRecord]) -> None:
        """See ``SubmissionView.save_records``."""
        self._inner.save_records(records)


def _row(stored: StoredSubmission) -> list[object]:
    digests = (stored.upload, stored.body_digest, stored.own_digest, stored.next_digest)
    return [stored.submission.canonical(), *digests, stored.size, stored.received_at]


def _stored(row: Sequence[Any]) -> StoredSubmission:
    return StoredSubmission.of(Submission.from_canonical(row[0]), *row[1:])


def _page_document(page: Page) -> dict[str, object]:
    return {
        "submissions": [_row(stored) for stored in page.submissions],
        "withdrawn": [
            [signed.withdrawal.run, signed.withdrawal.config, signed.to_dict()]
            for signed in page.withdrawn
        ],
        "upto": page.upto,
    }


def _total_bytes(total: RunningTotal) -> bytes:
    clients = json.dumps(list(total.members)).encode()
    parts = (R32.to_wire(component).tobytes() for component in (total.share.own, total.share.next))
    return struct.pack("<Q", len(clients)) + clients + b"".join(parts)


def _total_from(data: bytes, round: int, pid: int) -> RunningTotal:
    (size,) = struct.unpack_from("<Q", data)
    members = [(client, upload) for client, upload in json.loads(data[8 : 8 + size])]
    own, next_ = np.frombuffer(data[8 + size :], "<u4").astype(np.uint32).reshape(2, -1)
    return RunningTotal(round, Share(R32, pid, own, next_), members)
