"""`syncret bench overhead`: traffic of data owners and servers, by the paper's formula and counted."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench.datasets import NAMES
from bench.experiment.circumstances import circumstances
from bench.experiment.commands import failures, json_option, output_option, whole_numbers
from bench.experiment.progress import progress_bar
from bench.fetch import DatasetError
from bench.overhead.client import PAPER_ROUNDS, Population
from bench.overhead.growth import AXES
from bench.overhead.jobs import (
    GROWTH,
    SERVERS,
    ClientJob,
    GrowthJob,
    Job,
    Record,
    Records,
    ServersJob,
    sweep,
)
from parties.foundation.errors import PartyError
from protocols.upload import SEEDED
from protocols.upload import WHOLE as UPLOADS

_EXAMPLE = "Example: syncret bench overhead --dataset adult --rounds 4,32,96 --json"


@click.command(epilog=_EXAMPLE)
@click.option("--dataset", type=click.Choice(NAMES), help="The table.")
@click.option(
    "--rounds", type=whole_numbers(10_000, "4,32,96"), default=PAPER_ROUNDS, help="T [4,32,96]."
)
@click.option(
    "--clients",
    type=click.IntRange(3, 100_000),
    default=Population().clients,
    show_default=True,
    help="Clients of the population (K).",
)
@click.option(
    "--participation",
    type=click.FloatRange(0, 1, min_open=True),
    default=Population().participation,
    show_default=True,
    help="Chance of a client to take part in a round.",
)
@click.option(
    "--formula-only", is_flag=True, help="No measurement; no table where the domain is published."
)
@click.option(
    "--generated",
    is_flag=True,
    help="Random rows of the published domain, for a table that is not at hand.",
)
@click.option(
    "--servers", is_flag=True, help="A whole DistAIM run: what its servers move and keep."
)
@click.option(
    "--upload",
    type=click.Choice(UPLOADS),
    help=f"Form of the uploads, for --servers [{SEEDED}]; without it, measure a single upload in this form alone.",
)
@click.option("--growth", type=click.Choice(AXES), help="A client's traffic along an axis.")
@click.option(
    "--sweep",
    "everything",
    is_flag=True,
    help="All that overhead.md shows; what --output has already is kept.",
)
@output_option("Folder for overhead.json, overhead.md and its pictures, for --sweep.")
@json_option
def overhead(
    dataset: str | None,
    rounds: tuple[int, ...],
    clients: int,
    participation: float,
    formula_only: bool,
    generated: bool,
    servers: bool,
    upload: str | None,
    growth: str | None,
    everything: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure what a data owner sends and receives: DistAIM and FLAIM, by the paper's formula and counted on the wire.

    DistAIM's owners upload to three ingest servers over mutual TLS on this machine; FLAIM's clients play real SecAgg
    sessions. MB are 10^6 bytes.
    """
    if [dataset is not None, growth is not None, everything].count(True) != 1:
        raise click.UsageError("expected one of --dataset, --growth and --sweep")
    if everything != (output is not None):
        raise click.UsageError("--sweep and --output go together")
    if servers and (dataset is None or formula_only):
        raise click.UsageError("--servers runs a table; expected --dataset and no --formula-only")
    if upload is not None and dataset is None:
        raise click.UsageError("--upload is of a table; expected --dataset")
    if upload is not None and formula_only:
        raise click.UsageError("--formula-only has every form; expected no --upload")
    if formula_only and generated:
        raise click.UsageError("--formula-only needs no rows; expected no --generated")
    with failures(DatasetError, PartyError, ValueError, RuntimeError):
        if output is not None:
            _sweep(output)
            return
        job: Job
        if growth is not None:
            job = GrowthJob(growth)
        elif servers:
            if len(rounds) != 1:
                raise click.UsageError("--servers runs once; expected one number for --rounds")
            job = ServersJob(str(dataset), rounds[0], clients, upload or SEEDED, generated)
        else:
            population = Population(clients, participation)
            job = ClientJob(str(dataset), rounds, population, formula_only, generated, upload)
        document = job.run()
    if as_json:
        click.echo(json.dumps(document))
    elif job.kind not in (SERVERS, GROWTH):
        Console().print(_table(document))
    else:
        click.echo(json.dumps(document, indent=1))


def _sweep(output: Path) -> None:
    """Runs every job without a record in the folder, then writes the page."""
    # Imported here, since drawing takes a second to import.
    from bench.overhead.page import write_page

    records = Records(output / "overhead.json")
    jobs = [job for job in sweep() if job.command not in records]
    with progress_bar(len(jobs)) as bar:
        for job in jobs:
            bar.say(job.command)
            records.add(Record(job.command, job.kind, job.run(), **circumstances()))
            bar.done()
    write_page(records, output)


_FIGURES = ("formula", "sent", "received", "wire", "predicted_wire")
_HEADS = ("method", "", "T", "formula", "sent", "received", "on the wire", "by our formula")


def _table(document: Mapping[str, Any]) -> Table:
    shown = Table(
        title=f"{document['dataset']}: {document['candidates']} candidates, {document['closure_cells']:,} cells, "
        f"{document['maximal_cells']:,} in the maximal queries; MB per participating client"
    )
    for column in _HEADS:
        shown.add_column(column, justify="left" if column in ("method", "") else "right")
    for result in document["results"]:
        figures = (result[f"{name}_mb"] for name in _FIGURES)
        shown.add_row(
            result["method"],
            result.get("upload", result.get("grouping")),
            str(result["rounds"]),
            *("" if value is None else f"{value:,.4g}" for value in figures),
        )
    return shown
