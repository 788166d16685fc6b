"""Collection of a finished study's whole result at one server: all transcripts, and one file of all.

A process of its own fetches what the other two servers have over their ingest ports, with this server's certificate of
the study, packs it and audits it (`syncret result`); a study of one server is there whole. All of it is public. One
collection of a study runs at a time.
"""

import asyncio
import contextlib
import sys
from dataclasses import dataclass, field
from pathlib import Path

from parties.foundation.errors import PartyError
from parties.foundation.untrusted_text import printable
from parties.local.processes import child_environment
from parties.service.events import EventName
from parties.service.known_studies import KnownStudies
from parties.service.retention import BUNDLE
from parties.service.studies import StudyEvent, utc_now
from parties.service.study_record import StudyRecord, StudyState

_LIMIT_S = 3600.0
_MAX_ERROR = 300
_PREFIX = "syncret: error: "


class CollectionRefused(PartyError):
    """A study's result cannot be collected in its state."""


@dataclass(slots=True)
class ResultCollection:
    """Collections of the finished studies among ``studies``."""

    studies: KnownStudies
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _problems: dict[str, str] = field(default_factory=dict)

    def start(self, study: StudyRecord, actor: str) -> None:
        """Starts a collection, unless one runs. Raises CollectionRefused."""
        if study.state is not StudyState.FINISHED:
            raise CollectionRefused(f"{study.run} is {study.state}; expected one that is finished")
        running = self._tasks.get(study.digest)
        if running is None or running.done():
            self._problems.pop(study.digest, None)
            self._tasks[study.digest] = asyncio.create_task(self._collect(study, actor))

    def state(self, study: StudyRecord) -> dict[str, object]:
        """Returns whether a collection runs, the path of the bundle if it is there, and the last problem."""
        path = self.bundle(study)
        return {
            "running": self._running(study),
            "bundle": path and str(path.absolute()),
            "problem": self._problems.get(study.digest, ""),
        }

    def bundle(self, study: StudyRecord) -> Path | None:
        """Returns the path of a study's bundle; None before it is whole."""
        path = self.studies.folder(study).work / BUNDLE
        return path if path.is_file() and not self._running(study) else None

    def _running(self, study: StudyRecord) -> bool:
        task = self._tasks.get(study.digest)
        return task is not None and not task.done()

    async def close(self) -> None:
        """Ends all collections."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _collect(self, study: StudyRecord, actor: str) -> None:
        problem = await self._run(study)
        what = EventName.RESULT_COLLECTED
        if problem:
            self._problems[study.digest] = problem
            what = EventName.RESULT_NOT_COLLECTED
        with contextlib.suppress(PartyError):
            await self.studies.note(StudyEvent(utc_now(), study.digest, actor, what, problem))

    async def _run(self, study: StudyRecord) -> str:
        """Runs the process, and returns its error; empty if it has succeeded."""
        folder = self.studies.folder(study)
        command = [sys.executable, "-m", "parties", "result", str(folder.config.absolute())]
        command += ["--own", str(folder.work.absolute())]
        command += ["--wait", "60", "--out", str((folder.work / BUNDLE).absolute())]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=child_environment(),
            )
        except OSError as error:
            return f"cannot be started: {error.strerror or error}"
        try:
            async with asyncio.timeout(_LIMIT_S):
                _, said = await process.communicate()
        except TimeoutError:
            return f"took more than {_LIMIT_S:g} s"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode == 0:
            return ""
        lines = said.decode(errors="replace").strip().splitlines() or ["ended without a word"]
        return printable(lines[-1].removeprefix(_PREFIX), _MAX_ERROR)
