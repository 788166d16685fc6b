"""Child processes that take text on standard input and answer on standard output.

Children are commands (``python -m MODULE ...``) and not `multiprocessing`: nothing is pickled.
"""

import asyncio
import subprocess
import sys

from bench.networks import ROOT


async def start_child(
    module: str, *arguments: str, limit: int = 1 << 16
) -> asyncio.subprocess.Process:
    """Starts a process of ``module`` with pipes on its input, output and errors; lines have ``limit`` bytes at most."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        limit=limit,
    )


async def run_child(module: str, *arguments: str, given: str, what: str) -> str:
    """Returns the child's standard output for the input ``given``.

    Raises RuntimeError if the child fails, with ``what`` in words and the last line of the child's errors.
    """
    process = await start_child(module, *arguments)
    output, errors = await process.communicate(given.encode())
    if process.returncode != 0:
        raise RuntimeError(f"{what} failed: {last_word(errors.decode(errors='replace'))}")
    return output.decode()


def last_word(errors: str) -> str:
    """Returns the last line that a process wrote to its standard error."""
    return (errors.strip().splitlines() or ["it ended without a word"])[-1]
