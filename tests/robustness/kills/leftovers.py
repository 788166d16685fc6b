"""Leftovers of services after a study is over and they have ended: no secret file, process or listening port."""

import contextlib
import os
import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from bench.load.services import SERVICES, Trio
from parties.config import Config
from parties.crypto.hpke import SealKey
from parties.identity.join_documents import SEAL_FILE
from parties.local.children import LOOPBACK
from parties.mpc.outputs import STORE_FOLDER
from parties.service.study_intake import StudyFolder
from parties.storage.database import FILE

_FOLDERS = ("submissions", "incoming", "totals", "outbox")
"""Folders of a store that hold secrets."""
_LOOK_S = 0.1


def left_behind(trio: Trio, config: Config) -> str:
    """Describes unwanted leftovers of the study ``config``; "" without any."""
    found = [*_processes(trio.folder), *_ports(trio)]
    for pid, name in enumerate(SERVICES):
        found += _secrets(trio.folder / name, pid, config)
    return "; ".join(f"left behind: {one}" for one in found)


def until_ended(trio: Trio, within_s: float) -> None:
    """Waits up to ``within_s`` for a study's processes: those of a killed service end a moment after it."""
    deadline = time.monotonic() + within_s
    while any(_processes(trio.folder)) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def _processes(folder: Path) -> Iterator[str]:
    """Yields processes whose command line names a file of the ``folder``."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if f"{folder}/" in command and state != "Z":
                yield f"process {command}"


def _ports(trio: Trio) -> Iterator[str]:
    for port in trio.listening:
        try:
            socket.create_server((LOOPBACK, port)).close()
        except OSError as error:
            yield f"port {port}: {error}"


def _secrets(folder: Path, pid: int, config: Config) -> Iterator[str]:
    """Yields sealing keys, shares, and half-made files in a service's folder."""
    for hidden in [*folder.glob("cards/.*"), *folder.glob("studies/.*")]:
        yield f"{hidden}, half made"
    for path in folder.glob(f"studies/*/tls/{SEAL_FILE}"):
        yield f"{path}"
    seal = config.parties[pid].seal
    for path in folder.glob(f"cards/*/tls/{SEAL_FILE}"):
        if str(SealKey.load(path).public) == seal:
            yield f"{path}: the sealing key of a study"
    store = StudyFolder(folder, config.run.id, config.digest()).work / STORE_FOLDER
    if (store / FILE).exists():
        yield from _shares(store)


def _shares(directory: Path) -> Iterator[str]:
    """Yields shares, commitment keys and unscrubbed pages in a store; only the list of submitters may stay."""
    for path in (one for name in _FOLDERS for one in (directory / name).iterdir()):
        yield f"{path}"
    # A plain connection: a store would begin by deleting files that no row names.
    with contextlib.closing(sqlite3.connect(directory / FILE)) as database:
        for table in ("body", "total", "outbox"):
            if database.execute(f"SELECT 1 FROM {table}").fetchall():  # noqa: S608
                yield f"{directory}: shares, in {table}"
        if database.execute("SELECT 1 FROM meta WHERE key = 'commitment_key'").fetchall():
            yield f"{directory}: the commitments' key"
        if pages := database.execute("PRAGMA freelist_count").fetchone()[0]:
            yield f"{directory}: {pages} pages that are not scrubbed"
