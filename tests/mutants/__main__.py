"""Command ``python -m tests.mutants``: a seeded sample of mutants, each run against the tests of its module."""

import compileall
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import Queue

import click

from tests.mutants.choice import files_of_tests
from tests.mutants.faults import Fault, compiles, faults
from tests.test_imports import ROOT

PACKAGES = ("protocols", "secagg", "mechanisms", "parties/mpc", "parties/federation")
"""Folders that are mutated."""
PARTS = (*("protocols", "secagg", "mechanisms", "parties", "bench", "tests", "docs"), "examples")
FILES = ("syncret.py", "pyproject.toml", "README.md")
SURVIVED, NO_TESTS = 0, 5


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault of a file of the tree."""

    file: str
    fault: Fault

    def __str__(self) -> str:
        line = (ROOT / self.file).read_text(encoding="utf-8").splitlines()[self.fault.line - 1]
        return f"{self.file}:{self.fault.line} {self.fault.kind} -> {self.fault.text!r}: {line.strip()}"


@click.command()
@click.option("--count", default=500, show_default=True, help="Mutants in the sample.")
@click.option("--seed", default=1, show_default=True, help="Seed of the sample.")
@click.option("--package", "packages", multiple=True, default=PACKAGES, show_default=True)
@click.option("--jobs", default=2, show_default=True, help="Mutants side by side.")
@click.option("--limit", default=300, show_default=True, help="Seconds for the tests of a mutant.")
@click.option(
    "--results", type=click.Path(path_type=Path), default=Path("build/mutants.jsonl"),
    show_default=True, help="Lines of results; mutants that stand there are not run again.",
)  # fmt: skip
def main(
    *, count: int, seed: int, packages: tuple[str, ...], jobs: int, limit: int, results: Path
) -> None:
    """Puts small faults into the code, one at a time, in copies of the tree, and runs the tests of the module.

    A mutant that no test finds is printed: either a test is missing, or a line is not needed.

    Example: python -m tests.mutants --count 50 --package protocols
    """
    sample = drawn(packages, count, seed)
    done = {line["mutant"] for line in lines_of(results)}
    left = [mutant for mutant in sample if str(mutant) not in done]
    results.parent.mkdir(parents=True, exist_ok=True)
    with copies(jobs) as free, ThreadPoolExecutor(jobs) as pool, results.open("a") as out:
        for number, (mutant, outcome) in enumerate(
            pool.map(lambda m: (m, tried(m, free, limit)), left), start=1
        ):
            line = {"mutant": str(mutant), "file": mutant.file, **asdict(mutant.fault), **outcome}
            out.write(json.dumps(line) + "\n")
            out.flush()
            click.echo(f"{number} of {len(left)} {outcome['outcome']}: {mutant}", err=True)
    summarize([line for line in lines_of(results) if line["mutant"] in set(map(str, sample))])


def drawn(packages: tuple[str, ...], count: int, seed: int) -> list[Mutant]:
    """Returns the sample: each fault of the packages is as likely as any other."""
    every = [
        Mutant(str(path.relative_to(ROOT)), fault)
        for package in packages
        for path in sorted((ROOT / package).rglob("*.py"))
        for fault in faults(path.read_bytes())
    ]
    random.Random(seed).shuffle(every)
    compiled = (m for m in every if compiles(m.fault.apply((ROOT / m.file).read_bytes())))
    return list(islice(compiled, count))


def lines_of(path: Path) -> list[dict[str, str]]:
    """Returns the results that a file has."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@contextmanager
def copies(jobs: int) -> Iterator["Queue[Path]"]:
    """Yields as many copies of the tree, in a folder that is deleted at the end."""
    free: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for job in range(jobs):
            copy = Path(folder) / str(job)
            for part in PARTS:
                shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("*.pyc"))
            for file in FILES:
                shutil.copy(ROOT / file, copy / file)
            # Bytecode that goes by a source's hash: a fault often leaves the size, and comes within one second.
            compileall.compile_dir(
                copy, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH
            )
            free.put(copy)
        yield free


def tried(mutant: Mutant, free: "Queue[Path]", limit: int) -> dict[str, object]:
    """Returns the outcome of a mutant: killed, survived, slow (as good as killed) or without tests.

    A test that fails kills it if it fails once more with the fault, and passes without it.
    """
    copy, outcome, used = free.get(), "no tests", list[str]()
    try:
        for chosen in files_of_tests(Path(mutant.file)):
            if not chosen:
                continue
            used += map(str, chosen)
            outcome = _outcome(mutant, copy, tuple(map(str, chosen)), limit)
            if outcome not in ("survived", "no tests"):
                break
    finally:
        free.put(copy)
    return {"outcome": outcome, "tests": used}


def _outcome(mutant: Mutant, copy: Path, chosen: tuple[str, ...], limit: int) -> str:
    with _fault_in(copy / mutant.file, mutant.fault):
        ended = run_tests(copy, chosen, limit)
        failed = ended.failed or chosen
        again = run_tests(copy, failed, limit) if ended.is_failure else ended
    if ended.is_failure:
        alone = without_fault(failed, limit)
        if not again.is_failure or alone.status != SURVIVED:
            return "tests fail without it"
        return "killed"
    if ended.status is None:
        return "tests take too long" if without_fault(chosen, limit).status is None else "slow"
    return "survived" if ended.status == SURVIVED else "no tests"


@contextmanager
def _fault_in(path: Path, fault: Fault) -> Iterator[None]:
    """Puts a fault into a file of a copy for a while."""
    source, stat = path.read_bytes(), path.stat()
    try:
        path.write_bytes(fault.apply(source))
        yield
    finally:
        path.write_bytes(source)
        # Numba's cache of compiled loops goes by the time.
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a run of tests: pytest's exit status, None where the time was over, and the tests that failed."""

    status: int | None
    failed: tuple[str, ...] = ()

    @property
    def is_failure(self) -> bool:
        """True if a test failed, or could not be run."""
        return self.status not in (SURVIVED, NO_TESTS, None)


@cache
def without_fault(chosen: tuple[str, ...], limit: int) -> Ended:
    """Returns the end of tests as the tree is."""
    return run_tests(ROOT, chosen, limit)


def run_tests(copy: Path, chosen: Sequence[str], limit: int) -> Ended:
    """Runs tests, by file or by name, in a copy of the tree until the first failure."""
    with tempfile.TemporaryDirectory(prefix="mutants-cache-") as folder:
        asked = ["-x", "-q", "-o", f"cache_dir={folder}", "--timeout", "60", *chosen]
        with subprocess.Popen(
            [sys.executable, "-m", "pytest", *asked],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                status: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                # Servers that a test has started, too.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return Ended(status, _failed(Path(folder)))


def _failed(cache_folder: Path) -> tuple[str, ...]:
    """Returns the tests that failed, as pytest's own cache names them."""
    path = cache_folder / "v" / "cache" / "lastfailed"
    return tuple(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else ()


def summarize(lines: list[dict[str, str]]) -> None:
    """Prints the share that was killed by package, and every mutant that was not."""
    packages = Counter((line["file"].partition("/")[0], line["outcome"]) for line in lines)
    for package in sorted({name for name, _ in packages}):
        counts = {outcome: n for (name, outcome), n in packages.items() if name == package}
        killed, judged = (
            sum(counts.get(outcome, 0) for outcome in outcomes)
            for outcomes in (("killed", "slow"), ("killed", "slow", "survived", "no tests"))
        )
        share = f"{killed / judged:.0%}" if judged else "none"
        click.echo(f"{package}: {killed} of {judged} killed ({share}); {counts}")
    for line in lines:
        if line["outcome"] not in ("killed", "slow"):
            click.echo(f"  {line['outcome']}: {line['mutant']}")


if __name__ == "__main__":
    main()
