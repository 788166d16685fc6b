"""Settings shared by all tests: repeatable property tests, pictures without a display, interrupts that arrive.

Nothing is written in this user's own places: budgets and registers go to a folder that is gone in the end.
"""

import atexit
import os
import shutil
import signal
import tempfile
from pathlib import Path

from hypothesis import settings

# Read when matplotlib and jax are first imported, which is after this file is loaded.
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Servers sync each step to a disk, for which tests would wait a third of their time; memory has nothing to sync.
_MEMORY, _ROOM = Path("/dev/shm"), 4 << 30
if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
    os.environ.setdefault("TMPDIR", str(_MEMORY))
    tempfile.tempdir = None

_places = tempfile.TemporaryDirectory(prefix="syncret-places-")
atexit.register(_places.cleanup)
for _variable in ("SYNCRET_BUDGET", "SYNCRET_REGISTER"):
    os.environ[_variable] = str(Path(_places.name) / f"{_variable.lower()}.sqlite")

# `repeatable` draws the same examples each time; HYPOTHESIS_PROFILE=explore draws new, more.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# A shell's background jobs are started with SIGINT ignored, and tests' processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
