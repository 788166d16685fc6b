"""Settings shared by all tests: repeatable property tests, pictures without a display, interrupts that arrive.

The garbage collector leaves out what collecting the tests has made, and looks at new objects less often.

Nothing is written in this user's own places: budgets and registers go to a folder that is gone in the end.
"""

import atexit
import fcntl
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.drawn_once import draw_once

# Ten thousand tests are some millions of objects, over which each full collection would go: a tenth of the time.
gc.disable()

# Read when matplotlib and jax are first imported, which is after this file is loaded.
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Nobody here trusts this machine's authorities, whose certificates each process would read: a tenth of its start.
for _variable in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
    os.environ.setdefault(_variable, os.devnull)

# Servers sync each step to a disk, for which tests would wait a third of their time; memory has nothing to sync.
_MEMORY, _ROOM = Path("/dev/shm"), 4 << 30
if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
    os.environ.setdefault("TMPDIR", str(_MEMORY))
    tempfile.tempdir = None

_places = tempfile.TemporaryDirectory(prefix="syncret-places-")
atexit.register(_places.cleanup)
for _variable in ("SYNCRET_BUDGET", "SYNCRET_REGISTER"):
    os.environ[_variable] = str(Path(_places.name) / f"{_variable.lower()}.sqlite")

LONG = {"test_privacy.py", "test_attack.py", "test_serve.py", "test_taking_part.py"}
"""Files that take a worker minutes."""

# `repeatable` draws the same examples each time; HYPOTHESIS_PROFILE=explore draws new, more.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# A shell's background jobs are started with SIGINT ignored, and tests' processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Lets one worker collect first: the others read the bytecode of tests that it has written."""
    with (session.config.rootpath / "pyproject.toml").open() as shared:
        try:
            fcntl.flock(shared, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fcntl.flock(shared, fcntl.LOCK_SH)
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest files first, so that none keeps one worker alone at the end."""
    items.sort(key=lambda item: "robustness" not in item.path.parts and item.path.name not in LONG)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempts the objects of all modules and tests from collections, and begins to collect."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True)
def pictures() -> None:
    """Pages draw each picture once."""
    draw_once()
