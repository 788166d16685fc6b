"""The allocator's switches: in a process of its own, freed memory stays and the next arrays cost no page faults."""

import platform
import subprocess
import sys

import pytest

_CHURN = """
import resource, sys
import numpy as np
from protocols.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def churn():
    for _ in range(50):
        arrays = [np.ones(1 << 20, np.uint8) for _ in range(8)]
        del arrays
churn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
churn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _page_faults(mode: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _CHURN, mode], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these switches")
def test_freed_memory_is_used_again() -> None:
    assert _page_faults("keep") * 10 < _page_faults("default")


_IN_TURNS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from protocols.memory import share_freed_memory
if sys.argv[1] == "share":
    assert share_freed_memory()
turns = [Barrier(2) for _ in range(8)]
def work(turn):
    turn.wait()
    kept = [bytes(1000) for _ in range(10000)]
    del kept
    turn.wait()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
with ThreadPoolExecutor(8) as pool:
    for turn in turns:
        pool.submit(work, turn)
    before = resident()
    for turn in turns:
        turn.wait()
        turn.wait()
    print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these switches")
def test_what_one_thread_frees_is_any_others() -> None:
    assert _grown(_IN_TURNS, "share") * 2 < _grown(_IN_TURNS, "default")


_TABLES = """
import sys
from protocols.memory import share_freed_memory
if sys.argv[1] == "share":
    assert share_freed_memory()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
before = resident()
kept = []
for table in range(1, 9):
    # Each somewhat smaller than the last one, which is freed when it is there, and something behind it.
    made = b"x" * ((8 << 20) - table * 1000)
    kept.append(b"x" * 100_000)
del made
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these switches")
def test_large_block_that_is_freed_is_given_back() -> None:
    assert _grown(_TABLES, "share") * 4 < _grown(_TABLES, "default")


def _grown(script: str, mode: str) -> int:
    command = [sys.executable, "-c", script, mode]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout)
