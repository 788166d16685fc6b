"""Settings shared by all tests: repeatable property tests, pictures without a display, interrupts that arrive."""

import os
import signal

from hypothesis import settings

# Read when matplotlib and jax are first imported, which is after this file is loaded.
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# `repeatable` draws the same examples each time; HYPOTHESIS_PROFILE=explore draws new, more.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# A shell's background jobs are started with SIGINT ignored, and tests' processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
