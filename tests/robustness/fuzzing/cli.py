"""`python -m tests.robustness fuzz`: damaged inputs for every reader of input from others."""

import asyncio
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from bench.experiment.commands import failures, json_object_option, output_option
from bench.experiment.markdown import markdown_table
from bench.fetch import DatasetError
from tests.robustness import page
from tests.robustness.fuzzing.corpus import Corpus
from tests.robustness.fuzzing.files import file_targets
from tests.robustness.fuzzing.loop import Sums, run_target
from tests.robustness.fuzzing.messages import message_targets
from tests.robustness.fuzzing.servers import SCENES, SHARE, play
from tests.robustness.fuzzing.target import Find, Target

_EXAMPLE = "Example: python -m tests.robustness fuzz --frames 1000000 --seed 1 --finds finds"
_MEMORY = Path("/dev/shm")  # folders of our own are made in it


def all_targets(corpus: Corpus) -> Sequence[tuple[str, Callable[[], Target]]]:
    """Returns the makers of all targets, by name."""
    return tuple(chain(message_targets(corpus), file_targets(corpus)))


def corpus_folder() -> "tempfile.TemporaryDirectory[str]":
    """Makes a temporary folder, in memory if possible: most targets read a file."""
    return tempfile.TemporaryDirectory(
        prefix="syncret-fuzz-", dir=_MEMORY if _MEMORY.is_dir() else None
    )


def fuzz_all(
    frames: int,
    seed: int,
    names: Sequence[str],
    *,
    begun: Callable[[str, int], Callable[[], object]],
) -> list[Sums]:
    """Runs ``frames`` inputs in all on the targets ``names``, by their shares.

    ``begun`` receives each target's name and number of inputs, and returns a callback for each input.
    """
    with corpus_folder() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of zip files that have a name twice, say.
        corpus = Corpus(Path(folder))
        targets = [make() for name, make in all_targets(corpus) if name in names]
        scenes = [name for name in SCENES if name in names]
        whole = sum(target.share for target in targets) + SHARE * len(scenes)
        found = []
        for target in targets:
            count = max(1, round(frames * target.share / whole))
            found.append(run_target(target, count, seed, on_input=begun(target.name, count)))
        for name in scenes:
            count = max(1, round(frames * SHARE / whole))
            playing = play(name, corpus, count, seed, on_input=begun(name, count))
            found.append(asyncio.run(playing))
        return found


def keep(finds: Sequence[Find], folder: Path) -> None:
    """Writes each find's input as a file FOLDER/TARGET/NAME, with a description beside it."""
    for find in finds:
        path = folder / find.target / find.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(find.data)
        path.with_suffix(".txt").write_text(f"{find.what}\n")


def _names() -> tuple[str, ...]:
    return (*(name for name, _ in all_targets(Corpus(Path()))), *SCENES)


@click.command(epilog=_EXAMPLE)
@click.option(
    "--frames",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Inputs in all; each target has its share of them, by how long it takes.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Draws the same inputs again.")
@click.option(
    "--target",
    "names",
    multiple=True,
    type=click.Choice(_names()),
    help="Only these; may be given several times.",
)
@click.option(
    "--finds",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for the inputs that came to another end than they should.",
)
@output_option(
    "Also put what became of them into robustness.json and robustness.md in this folder."
)
@json_object_option
def fuzz(
    frames: int,
    seed: int,
    names: tuple[str, ...],
    finds: Path | None,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    """Damage messages and files: none may end in a crash, a hang, growing memory, or words that nobody can read.

    Inputs are real messages and files of a run on this machine, damaged by bits, lengths, fields, types, truncation,
    nesting, repetition, huge numbers, odd text. A reader may take an input, or refuse it by an error of its own; a
    server has to go on serving honest peers. The exit status is 1 where anything came to another end.
    """
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bars:

        def begun(name: str, count: int) -> Callable[[], object]:
            task = bars.add_task(name, total=count)
            return lambda: bars.advance(task)

        sums = fuzz_all(frames, seed, names or _names(), begun=begun)
    found = [find for one in sums for find in one.finds]
    if finds is not None:
        keep(found, finds)
    document = {"ok": not found, "seed": seed, "targets": [_shown(one) for one in sums]}
    if output is not None:
        command = f"python -m tests.robustness fuzz --frames {frames} --seed {seed}"
        command += "".join(f" --target {name}" for name in names)
        with failures(DatasetError):
            page.add(output, page.FUZZ, command, document)
    if as_json:
        click.echo(json.dumps(document))
    else:
        click.echo(_table(sums))
        for find in found:
            click.echo(f"{find.target} {find.name}: {find.what}")
        inputs = sum(one.inputs for one in sums)
        click.echo(f"{inputs} inputs of seed {seed}, {len(found)} that came to another end")
    if found:
        sys.exit(1)


def _shown(sums: Sums) -> dict[str, object]:
    finds = [{"name": find.name, "what": find.what} for find in sums.finds]
    return {**asdict(sums), "finds": finds}


def _table(sums: Sequence[Sums]) -> str:
    rows = [
        (
            one.target,
            one.inputs,
            one.taken,
            f"{1e6 * one.seconds / max(1, one.inputs):.0f}",
            f"{one.slowest_s:.3f}",
            f"{one.grown_bytes / 2**20:.1f}",
            len(one.finds),
        )
        for one in sums
    ]
    head = "target | inputs | taken | us each | slowest s | grown MiB | finds"
    return markdown_table(head, rows)
