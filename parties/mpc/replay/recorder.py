"""Recorded effects: all that goes through store, transport and clock is written to a replay log.

A replay uses the recorded views and ``with_recorded_state`` as well. SECRET: the recorded values; see
`parties.mpc.replay.log`. Every item is in the file before it is used, and on the disk before the transcript's records
that result from it: after a kill, the log has at least as much as the transcript.
"""

import json
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np

from parties.mpc.agreement import release_state, restore_releases
from parties.mpc.participants.finalized import Finalized
from parties.mpc.participants.listing import Page
from parties.mpc.records import RunningTotal, StoredSubmission
from parties.mpc.replay.effects import (
    Effects,
    FinalizedView,
    ParticipantView,
    SubmissionView,
    TotalView,
)
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

    def participants(self, store: Store) -> ParticipantView:
        """See ``Effects.participants``."""
        return replace(
            super().participants(store),
            submissions=RecordedSubmissions(store.submissions, self),
            finalized=RecordedFinalized(store.finalized, self),
            totals=RecordedTotals(store.totals, self),
        )

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
    """``SubmissionView`` whose answers go through ``effects``, except the count, which decides nothing by itself."""

    def __init__(self, inner: SubmissionView, effects: Effects) -> None:
        self._inner = inner
        self._effects = effects

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

    def count(self) -> int:
        """See ``SubmissionView.count``."""
        return self._inner.count()

    def read(self, client: str, version: int) -> bytes:
        """See ``SubmissionView.read``."""
        return self._effects.once(
            f"body of {client} {version}", lambda: self._inner.read(client, version)
        )

    def settle(self, client: str, version: int, withdrawal: SignedWithdrawal | None = None) -> None:
        """See ``SubmissionView.settle``."""
        self._inner.settle(client, version, withdrawal)


class RecordedFinalized:
    """``FinalizedView`` whose answer to ``finalized`` goes through ``effects``; others are of what was saved here."""

    def __init__(self, inner: FinalizedView, effects: Effects) -> None:
        self._effects = effects
        self._finalized = inner.finalized
        self.finalized_among = inner.finalized_among
        self.unregistered = inner.unregistered
        self.save_finalized = inner.save_finalized

    def finalized(self) -> list[Finalized]:
        """See ``FinalizedView.finalized``."""
        found = self._effects.once_json(
            "finals", lambda: [astuple(item) for item in self._finalized()]
        )
        return [Finalized(*item) for item in found]


class RecordedTotals:
    """``TotalView`` whose answers go through ``effects``."""

    def __init__(self, inner: TotalView, effects: Effects) -> None:
        self._inner = inner
        self._effects = effects
        self._key = effects.once("commitment key", inner.commitment_key)

    def retain(self, rounds: Sequence[int]) -> None:
        """See ``TotalView.retain``."""
        self._inner.retain(rounds)

    def rounds(self) -> list[int]:
        """See ``TotalView.rounds``."""
        rounds: list[int] = self._effects.once_json("rounds of totals", self._inner.rounds)
        return rounds

    def load(self, round: int, pid: int) -> RunningTotal:
        """See ``TotalView.load``."""
        data = self._effects.once(
            f"total of round {round}", lambda: _total_bytes(self._inner.load(round, pid))
        )
        return _total_from(data, round, pid)

    def save(self, total: RunningTotal) -> None:
        """See ``TotalView.save``."""
        self._inner.save(total)

    def commitment_key(self) -> bytes:
        """See ``TotalView.commitment_key``."""
        return self._key


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
