"""Circumstances of a measurement: commit, date and machine.

No output names the host, its user or its paths.
"""

import datetime
import importlib.metadata
import os
import platform
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.networks import ROOT

_FLAGS = {"aes": "AES", "sha_ni": "SHA", "avx2": "AVX2", "avx512f": "AVX-512"}
_PACKAGES = ("numpy", "cryptography", "blake3", "mpyc")
_MEASURED = ("protocols", "parties", "bench/*.py", "bench/experiment")


def circumstances(measured: Sequence[str] = _MEASURED) -> dict[str, Any]:
    """Returns commit, date and machine, for a record."""
    return {"commit": commit(measured), "date": today(), "machine": machine()}


def today() -> str:
    """Returns the date."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def commit(measured: Sequence[str] = _MEASURED) -> str:
    """Returns the measured commit, with "+" where ``measured`` files differ from it; "unknown" outside a repository."""
    try:
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", *measured)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def machine() -> dict[str, object]:
    """Returns facts about the machine: cores, instruction sets, memory, versions."""
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": f"{platform.machine()} with {', '.join(_instruction_sets()) or 'no known extensions'}",
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)),
        "system": platform.system(),
        "python": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION.split(" ")[1],
        **packages,
    }


def _instruction_sets() -> list[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return []
    words = set(text.split())
    return [name for flag, name in _FLAGS.items() if flag in words]


def listed_machine(record: Mapping[str, Any]) -> str:
    """Returns the facts of a record's ``machine`` in one line."""
    return ", ".join(f"{key} {value}" for key, value in record["machine"].items())


def made_by(record: Mapping[str, Any]) -> str:
    """Returns the line above a record's figures: its ``command``, ``commit``, ``date`` and ``machine``."""
    source = f"`{record['command']}`, commit {record['commit']}, {record['date']}"
    return f"{source}; {listed_machine(record)}."
