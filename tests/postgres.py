"""A PostgreSQL server for a test, where its programs are installed."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def tools() -> Path | None:
    """Folder of PostgreSQL's own programs, if it is installed here."""
    found = shutil.which("initdb") or shutil.which("pg_ctl")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """The URL of a server of one's own, with a password; skips the test where there is none."""
    programs = tools()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    (folder / "password").write_text("secret-word\n")
    # PostgreSQL refuses to run as root.
    user = "nobody" if os.geteuid() == 0 else None
    if user:
        for path in (folder, folder / "password"):
            shutil.chown(path, user)

    def run(program: str, *arguments: object) -> None:
        command = [programs / program, "-D", folder / "data", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=user, cwd=folder)

    try:
        run("initdb", "-U", "clerk", "-A", "scram-sha-256", "--pwfile", folder / "password")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        run("pg_ctl", "-w", "-t", "60", "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://clerk:secret-word@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
