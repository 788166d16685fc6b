"""Deletion of the secrets of cancelled studies, repeated until it succeeds.

Secret: what is deleted (shares, sealing keys).
"""

import asyncio
import time
from pathlib import Path

from parties.config import load_config
from parties.foundation.errors import StoreError
from parties.mpc.outputs import forget_run, has_store
from parties.observability.events import Progress
from parties.service.events import EventName
from parties.service.known_studies import KnownStudies
from parties.service.study_intake import delete_sealing_key
from parties.service.study_record import DISTAIM, StudyRecord, StudyState

_AGAIN_S = 60.0


class SecretDeletion:
    """Deletes secrets at server ``pid``; ``register`` is the file of its release registry, None for the usual one."""

    def __init__(self, studies: KnownStudies, pid: int, register: Path | None) -> None:
        self._studies = studies
        self._pid = pid
        self._register = register
        self._pending: dict[str, float] = {}
        """Cancelled studies whose secrets still exist, with the time of the next attempt."""

    def resume(self) -> None:
        """Finds the cancelled studies whose secrets an earlier process left."""
        for study in self._studies.values():
            if study.state is StudyState.CANCELLED and self._studies.folder(study).seal.exists():
                self._pending[study.digest] = 0.0

    def begin(self, study: StudyRecord) -> None:
        """Marks the secrets of a study that is just cancelled, which its process may still use."""
        self._pending[study.digest] = time.monotonic() + _AGAIN_S

    async def finish(self, study: StudyRecord) -> None:
        """Deletes the secrets of a cancelled study without a process. Raises StoreError."""
        await asyncio.to_thread(self._delete, study)
        self._pending.pop(study.digest, None)

    async def retry(self) -> None:
        """Deletes secrets that a failure, or the end of the process, left behind."""
        for digest, at in list(self._pending.items()):
            if time.monotonic() < at:
                continue
            study = self._studies[digest]
            try:
                await self.finish(study)
            except StoreError as error:
                self._pending[digest] = time.monotonic() + _AGAIN_S
                text = f"{study.run}: what is secret is left: {error}"
                fields = {"study": study.run, "digest": study.digest, "state": study.state.value}
                self._studies.events.event(
                    EventName.SECRETS_LEFT, text, reason=str(error), **fields
                )

    def _delete(self, study: StudyRecord) -> None:
        """Deletes the secrets of an ended study, its sealing key last. Raises StoreError. Blocks."""
        folder = self._studies.folder(study)
        if study.kind == DISTAIM and has_store(folder.work):
            forget_run(
                load_config(folder.config),
                self._pid,
                folder.work,
                progress=Progress(),
                register=self._register,
            )
        delete_sealing_key(folder)
