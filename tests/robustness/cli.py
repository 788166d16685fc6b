"""Commands of `python -m tests.robustness`: one for each kind of test, and one for all of them in full."""

from pathlib import Path
from typing import Any

import click

from bench.groups import TerminableGroup
from tests.robustness.attacks.cli import attacks
from tests.robustness.chaos.cli import chaos
from tests.robustness.fuzzing.cli import fuzz
from tests.robustness.kills.cli import kills

SEEDS = (301, 302, 303, 304)
"""Seeds of the damaged inputs."""
FRAMES, CASES = 250_000, 1_000
"""Damaged inputs of each seed; cases of runs, and as many of studies on services."""


class _Program(TerminableGroup):
    """A group with the name that a user types for it."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the command line under that name."""
        return super().main(*args, **{**kwargs, "prog_name": "python -m tests.robustness"})


@click.group(
    cls=_Program,
    epilog="Example: python -m tests.robustness full --finds build/finds --results build/kills.jsonl",
)
def robustness() -> None:
    """Attack Syncret, damage its inputs, kill its servers."""


for command in (attacks, fuzz, kills, chaos):
    robustness.add_command(command)


@robustness.command(epilog="Example: python -m tests.robustness full --output bench/results")
@click.option(
    "--finds",
    type=click.Path(file_okay=False, path_type=Path),
    help="As of fuzz: a folder for the inputs that came to another end than they should.",
)
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    help="As of kills: keeps each outcome; those of the same commit are not played again.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also put the results of fuzz and kills into robustness.json and robustness.md in this folder.",
)
@click.option("--jobs", type=click.IntRange(1, 16), default=2, show_default=True, help="Of kills.")
def full(finds: Path | None, results: Path | None, output: Path | None, jobs: int) -> None:
    """Run all of it in full, one after the other: many hours.

    All attacks and goals, a million damaged inputs, a thousand faults of runs and a thousand of services, twenty chaos
    studies. The exit status is 1 if one of them came out otherwise than it should; the others are run all the same.
    """
    commands = full_commands(finds=finds, results=results, output=output, jobs=jobs)
    failed = [" ".join(words) for words in commands if not _passes(words)]
    for words in failed:
        click.echo(f"not as it should be: {words}", err=True)
    if failed:
        raise click.exceptions.Exit(1)


def full_commands(
    *, finds: Path | None, results: Path | None, output: Path | None, jobs: int
) -> list[list[str]]:
    """Returns the commands of a full run, as words."""
    kept = [] if output is None else ["--output", str(output)]
    of_fuzz = [*([] if finds is None else ["--finds", str(finds)]), *kept]
    of_kills = [*([] if results is None else ["--results", str(results)]), *kept]
    faults = ["--cases", str(CASES), "--jobs", str(jobs), *of_kills]
    return [
        ["attacks"],
        *(["fuzz", "--frames", str(FRAMES), "--seed", str(seed), *of_fuzz] for seed in SEEDS),
        ["kills", *faults],
        ["kills", "--of", "services", *faults],
        ["chaos"],
    ]


def _passes(words: list[str]) -> bool:
    """Runs one command, and returns False if it says that something is not as it should be."""
    click.echo(f"python -m tests.robustness {' '.join(words)}", err=True)
    name, *arguments = words
    try:
        robustness.commands[name].main(args=arguments, prog_name=name, standalone_mode=False)
    except SystemExit as ended:
        return ended.code in (None, 0)
    return True
