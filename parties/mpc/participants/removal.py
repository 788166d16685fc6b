"""Removal of participants that have withdrawn, are replaced or revoked: out of the total, and deleted for good.

All three servers remove at the same point (`parties.mpc.participants.listing`). Public: all names and reasons here.
"""

import asyncio
from collections.abc import Sequence

from parties.mpc.exclusion import Exclusion
from parties.mpc.participants.listing import Agreement
from parties.mpc.participants.registry import RegistryEntry
from parties.mpc.participants.running_count import RunningCount
from parties.mpc.records import ParticipantRecord
from parties.mpc.replay.effects import ParticipantView
from parties.mpc.submission.messages import MAX_VERSION
from parties.mpc.submission.withdrawal import SignedWithdrawal
from parties.mpc.transcript_schema import REPLACED, REVOKED, WITHDRAWN
from protocols.transcript import Transcript, Value


class ParticipantRemoval:
    """Removes ``participants`` from ``count``."""

    def __init__(
        self, participants: ParticipantView, count: RunningCount, transcript: Transcript
    ) -> None:
        self._submissions = participants.submissions
        self._registry = participants.registry
        self._count = count
        self._transcript = transcript

    async def revoke(self, clients: Sequence[str], round: int) -> None:
        """Removes uploads of ``clients`` and deletes them for good."""
        known = self._registry.find(clients)
        gone = {c: entry for c, entry in known.items() if not entry.gone}
        uploads: dict[str, Value] = {c: gone[c].upload if c in gone else "" for c in clients}
        self._transcript.note(REVOKED.what, round=round, clients=uploads)
        await self._count.subtract(list(gone.values()), round)
        for client in clients:
            self._registry.end(client, MAX_VERSION)
            await asyncio.to_thread(self._submissions.settle, client, MAX_VERSION)
            if client in gone:
                record = ParticipantRecord(client, gone[client].upload, round, Exclusion.REVOKED)
                self._registry.exclude([(record, MAX_VERSION)])

    async def remove_withdrawn(self, found: Agreement, round: int) -> None:
        """Removes uploads that are withdrawn, or replaced by a due one, from the total, and deletes them.

        Shares are deleted after they were subtracted; a server that is killed between the two hears of the withdrawal
        again, or lists an upload that no other server lists.
        """
        known = self._registry.find([*found.withdrawn, *found.due])
        gone = [
            entry for entry in known.values() if not entry.gone and _is_superseded(entry, found)
        ]
        replaced: dict[str, Value] = {
            entry.client: [entry.upload, found.due[entry.client].digest]
            for entry in gone
            if entry.client in found.due and not entry.held
        }
        if found.withdrawn:
            shown: dict[str, Value] = {c: _withdrawal_value(w) for c, w in found.withdrawn.items()}
            self._transcript.note(WITHDRAWN.what, round=round, clients=shown)
        if replaced:
            self._transcript.note(REPLACED.what, round=round, clients=replaced)
        await self._count.subtract(gone, round)
        for client, signed in found.withdrawn.items():
            said = signed.withdrawal
            self._registry.end(client, said.version)
            await asyncio.to_thread(self._submissions.settle, client, said.version, signed)
            entry = self._registry.find([client]).get(client)
            if entry is None or (entry.gone and entry.version < said.version):
                record = ParticipantRecord(client, said.digest(), round, Exclusion.WITHDRAWN)
                self._registry.exclude([(record, said.version)])
        for client, item in found.due.items():
            if item.version > 1:
                await asyncio.to_thread(self._submissions.settle, client, item.version - 1)


def _is_superseded(known: RegistryEntry, found: Agreement) -> bool:
    """True if the participant has withdrawn the entry's upload, or a later version is due instead."""
    signed = found.withdrawn.get(known.client)
    withdrawn = signed is not None and known.version <= signed.withdrawal.version
    return withdrawn or known.client in found.due


def _withdrawal_value(signed: SignedWithdrawal) -> dict[str, Value]:
    return {name: value for name, value in signed.to_dict().items() if name != "client"}
