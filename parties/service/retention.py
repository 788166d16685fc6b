"""Retention of ended runs: transcripts and results are deleted after a time that their server chooses.

The age of a run counts from its end; a run that has not ended loses nothing here. The ledger, the release registry and
result.json stay for good: they record what was released and spent. The file removed.json in the run's folder records
what was removed and when, with the SHA-256 of the removed transcript, which distinguishes a true copy of it from a
forged one. All values here are public, except recordings (`parties.mpc.replay.log`), which are deleted with the
transcripts.
"""

import asyncio
import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from parties.config import START_FOLDER
from parties.federation.result import RESULT
from parties.foundation.errors import StoreError
from parties.foundation.times import iso_time
from parties.foundation.untrusted_text import parse_json
from parties.mpc.outputs import STORE_FOLDER
from parties.mpc.replay.log import REPLAY_FOLDER as TAPE
from parties.mpc.storage.run_state import ENDED, FORGOTTEN
from parties.mpc.submission.http_api import is_result_name
from parties.observability.events import Progress
from parties.report.quality import QUALITY
from parties.service.events import EventName
from parties.service.reload import LiveSettings
from parties.service.settings import KeepSection
from parties.session.result_digests import MODEL_FOLDER, TABLE_FILE
from parties.storage.database import FILE
from parties.storage.files import disk_errors, write_json
from parties.storage.sqlite import connect_existing
from protocols.durable import sync

TRANSCRIPT = "transcript.jsonl"
NOTE = "removed.json"
TRANSCRIPTS, RESULTS = "transcripts", "results"
BUNDLE, BUNDLE_AUDIT, COLLECTED = "bundle.zip", "bundle.audit.html", "result"
"""The whole result in one file, its audit, and the folder that both are made of (`parties.service.collection`)."""
_BUNDLED = (BUNDLE, BUNDLE_AUDIT, COLLECTED)
_FILES = {
    TRANSCRIPTS: (TRANSCRIPT, TAPE, *_BUNDLED),
    RESULTS: (
        TABLE_FILE,
        MODEL_FOLDER,
        START_FOLDER,
        "report.html",
        "report.json",
        QUALITY,
        *_BUNDLED,
    ),
}
_DAY_S = 86_400.0
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class RemovedFiles:
    """Removed files or folders ``names`` of the run in ``folder``, which ended at ``ended`` (ISO 8601, UTC)."""

    folder: str
    ended: str
    what: str
    names: tuple[str, ...]


def sweep(
    folder: Path, keep: KeepSection, *, now: float | None = None, dry: bool = False
) -> tuple[RemovedFiles, ...]:
    """Removes the files older than ``keep`` allows, of the run in ``folder`` or of all runs below it.

    ``now`` is in seconds since the epoch; a ``dry`` sweep removes nothing. Raises StoreError.
    """
    moment = time.time() if now is None else now
    days = {TRANSCRIPTS: keep.transcripts_days, RESULTS: keep.results_days}
    found = []
    for run in sorted({path.parent.parent for path in folder.rglob(f"{STORE_FOLDER}/{FILE}")}):
        ended = _ended(run)
        for what, most in days.items():
            if ended is None or most is None or moment - ended < most * _DAY_S:
                continue
            listed = dict.fromkeys((*_FILES[what], *_files_of_silos(run, what)))
            if names := tuple(name for name in listed if (run / name).exists()):
                found.append(RemovedFiles(str(run), iso_time(ended), what, names))
                if not dry:
                    _remove(run, what, names, moment)
    return tuple(found)


@contextlib.asynccontextmanager
async def retention_task(
    folder: Path, settings: LiveSettings, events: Progress
) -> AsyncIterator[None]:
    """Sweeps once a day while the block runs, and after each reload, by the ``settings`` that are at work.

    Deletions are events of the bus ``events``.
    """

    async def sweep_daily() -> None:
        while True:
            settings.changed.clear()
            try:
                for item in await asyncio.to_thread(sweep, folder, settings.current.keep):
                    names = ", ".join(item.names)
                    text = f"{item.folder}, ended {item.ended}: deleted for their age: {names}"
                    events.event(EventName.FILES_DELETED, text, folder=item.folder, files=names)
            except StoreError as error:
                text = f"nothing is deleted for its age: {error}"
                events.event(EventName.FILES_KEPT, text, reason=str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DAY_S):
                    await settings.changed.wait()

    task = asyncio.create_task(sweep_daily())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def removed_at(run: Path, what: str) -> str | None:
    """Returns the time at which the transcripts or results of a run were removed, or None. Raises StoreError."""
    note = _note(run).get(what)
    return str(note["at"]) if isinstance(note, dict) else None


def _remove(run: Path, what: str, names: tuple[str, ...], moment: float) -> None:
    """Writes the note first, so that a sweep after a kill removes the rest."""
    said: dict[str, object] = {"at": iso_time(moment), "names": list(names)}
    if (run / TRANSCRIPT).exists() and what == TRANSCRIPTS:
        said["transcript_sha256"] = _sha256(run / TRANSCRIPT)
    write_json(run / NOTE, {**_note(run), what: said}, durable=True)
    with disk_errors(run, "deleted"):
        for name in names:
            path = run / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        sync(run)


def _note(run: Path) -> Mapping[str, object]:
    path = run / NOTE
    if not path.exists():
        return {}
    with disk_errors(path, "read"):
        text = path.read_text()
    with contextlib.suppress(ValueError):
        found = parse_json(text)
        return found if isinstance(found, dict) else {}
    return {}


def _ended(run: Path) -> float | None:
    """Returns the time at which a run ended or was given up, in seconds since the epoch; None for an open run."""
    with _meta(run / STORE_FOLDER / FILE) as meta:
        text = meta.get(ENDED) or meta.get(FORGOTTEN)
    if text is not None:
        return datetime.fromisoformat(text).timestamp()
    result = run / RESULT
    # A federation's server writes the result last. DistAIM's servers write it before the others have confirmed the end.
    alone = (run / STORE_FOLDER / "rounds").exists() or _result_files(run) is not None
    return result.stat().st_mtime if alone and result.exists() else None


def _files_of_silos(run: Path, what: str) -> tuple[str, ...]:
    """Returns the names of what a run between silos leaves besides; none for another run. Raises StoreError."""
    files = _result_files(run)
    if files is None:
        return ()
    if what == TRANSCRIPTS:
        return (TRANSCRIPTS,)
    return tuple(name for name in files if is_result_name(name, silos=True))


def _result_files(run: Path) -> list[str] | None:
    """Returns the names of the algorithm's files of a finished run between silos, None for another run.

    Raises StoreError.
    """
    if not (run / RESULT).is_file():
        return None
    with disk_errors(run / RESULT, "read"):
        text = (run / RESULT).read_text(encoding="utf-8", errors="replace")
    with contextlib.suppress(ValueError):
        found = parse_json(text)
        files = found.get("files") if isinstance(found, dict) else None
        if isinstance(files, list):
            return [str(name) for name in files]
    return None


@contextlib.contextmanager
def _meta(path: Path) -> Iterator[Mapping[str, str]]:
    with disk_errors(path, "read"), contextlib.closing(connect_existing(path)) as db:
        yield dict(db.execute("SELECT key, value FROM meta").fetchall())


def _sha256(path: Path) -> str:
    with disk_errors(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def to_json(removed: tuple[RemovedFiles, ...]) -> str:
    """Returns the JSON text."""
    return json.dumps({"removed": [asdict(item) for item in removed]}, indent=2)
