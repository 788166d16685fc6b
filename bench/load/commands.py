"""`syncret bench load owners`, `soak` and `long`; each measurement is described in its module.

A command works in a temporary folder of its own, and listens on this machine alone.
"""

import asyncio
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from bench.experiment.commands import failures, json_option, output_option
from bench.fetch import DatasetError
from bench.load import page
from bench.load.long import KINDS, measure_long
from bench.load.owners import measure_owners
from bench.load.soak import measure_soak

_SAY_S = 2.0


class Measured(Protocol):
    """Result of a measurement."""

    def to_json(self) -> dict[str, object]:
        """Returns the result for load.json."""


_M = TypeVar("_M", bound=Measured)


_into_page = output_option("Also put the result into load.json and load.md in this folder.")


@click.command(epilog="Example: syncret bench load owners --owners 1000 --garbage 0.1 --json")
@click.option(
    "--owners",
    type=click.IntRange(1, 100_000),
    default=10_000,
    show_default=True,
    help="Honest owners.",
)
@click.option(
    "--garbage",
    type=click.FloatRange(0, 0.9),
    default=0.1,
    show_default=True,
    help="Fraction of all connections that bring something else.",
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 10_000),
    default=48,
    show_default=True,
    help="Honest owners at work at a time.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="That play the owners.",
)
@_into_page
@json_option
def owners(
    owners: int,
    garbage: float,
    at_once: int,
    processes: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Many owners submit to three servers, and some send garbage: accepted a second, and what became of each.

    Ends with an error where an honest owner was not accepted, or not counted exactly once, or where garbage was
    answered otherwise than it should be.
    """
    arguments = ["owners", "--owners", owners, "--garbage", garbage, "--at-once", at_once]
    found = _measured(
        lambda folder, on_progress: measure_owners(
            folder,
            owners=owners,
            garbage=garbage,
            at_once=at_once,
            processes=processes,
            on_progress=on_progress,
        )
    )
    text = (
        f"{found.accepted:,} of {found.owners:,} owners accepted in {found.seconds:.1f} s, {found.per_second:.0f} a "
        f"second, beside {found.garbage:,} pieces of garbage; {found.counted:,} counted, {found.lost} lost, "
        f"{found.twice} twice. Processor ms an owner: {sum(found.server_cpu_ms):.1f} of the servers, "
        f"{found.owners_cpu_ms:.1f} of the owners"
    )
    _show(page.OWNERS, arguments, found, text=text, output=output, as_json=as_json)
    _end(found.problems)


@click.command(epilog="Example: syncret bench load soak --minutes 60")
@click.option(
    "--minutes",
    type=click.FloatRange(0, 10_000),
    default=60,
    show_default=True,
    help="How long studies are begun.",
)
@click.option("--studies", type=click.IntRange(1), help="At most so many.")
@_into_page
@json_option
def soak(minutes: float, studies: int | None, output: Path | None, as_json: bool) -> None:
    """Studies one after the other on three services: memory, files, threads, processes and ports.

    Ends with an error where something has grown that should not.
    """
    arguments: list[object] = ["soak", "--minutes", minutes]
    arguments += [] if studies is None else ["--studies", studies]
    found = _measured(
        lambda folder, on_progress: measure_soak(
            folder, minutes=minutes, studies=studies, on_progress=on_progress
        )
    )
    growth = ", ".join(f"{grown.kb_per_study:.0f}" for grown in found.services)
    text = (
        f"{found.studies} studies in {found.seconds / 60:.1f} minutes, {found.first_s:.1f} s each at first and "
        f"{found.last_s:.1f} s at last; services' memory grew by {growth} KB a study in the later half"
    )
    _show(page.SOAK, arguments, found, text=text, output=output, as_json=as_json)
    _end(found.problems)


@click.command(epilog="Example: syncret bench load long columns --size 200")
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.option(
    "--size",
    type=click.IntRange(3),
    help=f"How many; by default {', '.join(f'{kind.whole} {kind.size}' for kind in KINDS.values())}.",
)
@click.option("--minutes", type=click.FloatRange(0), default=60, show_default=True, help="At most.")
@_into_page
@json_option
def long(kind: str, size: int | None, minutes: float, output: Path | None, as_json: bool) -> None:
    """A run of many rounds, clients, rows or columns: seconds, and memory of all its processes."""
    wanted = size or KINDS[kind].whole
    found = _measured(
        lambda folder, on_progress: measure_long(
            kind, wanted, folder, limit_s=60 * minutes, on_progress=on_progress
        )
    )
    text = (
        f"{wanted:,} {KINDS[kind].size}: {found.seconds:.0f} s, {found.cpu_s:.0f} of processors; at most "
        f"{found.peak_mb:,.0f} MB in {found.processes} processes, {found.largest_mb:,.0f} MB in one"
    )
    arguments = ["long", kind, "--size", wanted]
    _show(page.LONG, arguments, found, text=text, output=output, as_json=as_json)


def _measured(measure: Callable[[Path, "_Progress"], Coroutine[Any, Any, _M]]) -> _M:
    """Returns the result of a measurement in a temporary folder. Raises ClickException if it fails."""
    with tempfile.TemporaryDirectory(prefix="syncret-load-") as folder:
        try:
            return asyncio.run(measure(Path(folder), _Progress()))
        except (RuntimeError, TimeoutError) as error:
            raise click.ClickException(str(error) or "it took too long") from error


class _Progress:
    """Prints progress on standard error: each change of activity, and numbers now and then."""

    def __init__(self) -> None:
        self._said: tuple[str, int] = ("", 0)
        self._at = 0.0

    def __call__(self, what: str, done: int) -> None:
        changed = what != self._said[0]
        if changed or ((what, done) != self._said and time.monotonic() >= self._at + _SAY_S):
            self._said, self._at = (what, done), time.monotonic()
            print(f"{what} {done or ''}".rstrip(), file=sys.stderr, flush=True)  # noqa: T201


def _show(
    kind: str,
    arguments: Sequence[object],
    found: Measured,
    *,
    text: str,
    output: Path | None,
    as_json: bool,
) -> None:
    result: Mapping[str, object] = found.to_json()
    if output is not None:
        command = shlex.join(["syncret", "bench", "load", *map(str, arguments)])
        with failures(DatasetError):
            page.add(output, kind, command, result)
    click.echo(json.dumps(result) if as_json else text)


def _end(problems: Sequence[str]) -> None:
    if problems:
        raise click.ClickException("; ".join(problems))
