"""For which studies without a process a service keeps a TLS context, and that no connection is left."""

import asyncio
import socket
from collections.abc import Mapping

import pytest

from parties.config import CertificateFiles
from parties.service import responders as module
from parties.service.closed_studies import ClosedStudyResponder
from parties.service.studies import utc_now
from parties.service.study_record import StudyRecord, StudyState


def study(digest: str) -> StudyRecord:
    at = utc_now()
    return StudyRecord(digest, "distaim", digest, "alpha", at, StudyState.FINISHED, at)


class Asked:
    """An afterword, how often each study's files were read, and the owners' ends of what it was given."""

    def __init__(self, files: CertificateFiles) -> None:
        self.read: list[str] = []
        self.owners: list[socket.socket] = []
        self._files = files
        self.afterword = ClosedStudyResponder(study, self._files_of)

    def _files_of(self, study: StudyRecord) -> CertificateFiles:
        self.read.append(study.digest)
        return self._files

    def ask(self, digest: str) -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.owners.append(ours)
        assert self.afterword.take(digest, theirs)

    async def close(self) -> None:
        await self.afterword.close()
        for owner in self.owners:
            owner.setblocking(False)
            assert owner.recv(1) == b""
            owner.close()


@pytest.mark.parametrize(("setting", "value"), [("_MAX_RESPONDERS", 2), ("_RESPONDER_IDLE_S", 0.2)])
async def test_a_study_that_was_asked_for_longest_ago_is_let_go(
    certificates: Mapping[str, CertificateFiles],
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    value: float,
) -> None:
    asked = Asked(certificates["party-0"])
    for digest in ("first", "second", "first"):
        asked.ask(digest)
    monkeypatch.setattr(module, setting, value)
    if setting == "_RESPONDER_IDLE_S":
        await asyncio.sleep(2 * value)  # Sleeps: lasts.
    asked.ask("third")
    # Whose it was goes; who asks again is heard all the same.
    asked.ask("second")
    assert asked.read == ["first", "second", "third", "second"]
    await asked.close()
