"""`python -m tests.robustness chaos`: chaos studies by their seeds, one after the other."""

import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import click

from bench.experiment.commands import json_object_option
from bench.experiment.markdown import markdown_table
from bench.experiment.progress import progress_bar
from tests.robustness.chaos.play import ChaosOutcome, play

SEEDS = 20
HEADS = "seed | seconds | services started again | owners' commands | approvals again | not reached | wrong"


@click.command(epilog="Example: python -m tests.robustness chaos --seeds 20 --keep build/chaos")
@click.option("--seeds", type=click.IntRange(1), default=SEEDS, show_default=True)
@click.option("--first", type=int, default=1, show_default=True, help="The first seed.")
@click.option("--jobs", type=click.IntRange(1, 16), default=1, show_default=True)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Studies that come out wrong leave their folders here.",
)
@json_object_option
def chaos(seeds: int, first: int, jobs: int, keep: Path | None, *, as_json: bool) -> None:
    """Let a study of three services meet eight faults in a random order, and audit what comes out.

    Three SIGKILLs (a service, a study's process, an owner's command), a cut of some ten seconds, a clock ten minutes
    off, a full disk, a folder restored from a backup, a slow owner: each seed has another order, other victims and
    moments. Operators approve once, and again only at a server that was restored from before its approval. The exit
    status is 1 where a study is not finished with a passing audit.
    """
    outcomes = list[ChaosOutcome]()
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as place,
        progress_bar(seeds, "studies") as bar,
    ):
        for outcome in _played(range(first, first + seeds), keep or Path(place), jobs):
            outcomes.append(outcome)
            bar.done()
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    if as_json:
        document = {"ok": not wrong, "studies": [asdict(outcome) for outcome in outcomes]}
        click.echo(json.dumps(document))
    else:
        click.echo(markdown_table(HEADS, [row_of(outcome) for outcome in outcomes]))
        for outcome in wrong:
            click.echo("\n".join([f"seed {outcome.seed}: {outcome.wrong}", *outcome.log]))
        click.echo(
            f"{len(outcomes)} studies, {len(wrong)} that came out otherwise than they should"
        )
    if wrong:
        sys.exit(1)


def _played(seeds: range, folder: Path, jobs: int) -> Iterator[ChaosOutcome]:
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda seed: play(seed, folder / f"seed-{seed:04}"), seeds)


def row_of(outcome: ChaosOutcome) -> tuple[str | int, ...]:
    """Returns the row of a study in the table."""
    return (
        outcome.seed,
        round(outcome.seconds),
        outcome.restarts,
        outcome.tries,
        outcome.approvals,
        ", ".join(outcome.missed),
        outcome.wrong[:60],
    )
