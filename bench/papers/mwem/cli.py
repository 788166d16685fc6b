"""`syncret bench mwem`: DistMWEM by three servers beside MWEM and AIM in the clear."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

import click

from bench.experiment.commands import NAME_LIST, failures, json_option, output_option
from bench.experiment.documents import write_json
from bench.experiment.markdown import markdown_table, mb, spread
from bench.experiment.means import grouped, known
from bench.fetch import DatasetError
from bench.papers.mwem.runs import COLUMNS, DELTA, METHODS, Outcome, run, small_table
from mechanisms.errors import MechanismError
from parties.foundation.errors import StoreError

RESULTS = "utility-mwem.json"


@click.command(epilog="Example: syncret bench mwem --rounds 10 --repeats 3 --output report")
@click.option(
    "--columns",
    type=NAME_LIST,
    default=",".join(COLUMNS),
    show_default=True,
    help="Of the coded Adult; the product of their sizes is the domain that MWEM keeps.",
)
@click.option(
    "--method",
    "methods",
    type=NAME_LIST,
    default=",".join(METHODS),
    show_default=True,
    help="Of aim, mwem and distmwem, by commas.",
)
@click.option(
    "--epsilon",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Privacy budget of a run.",
)
@click.option("--rounds", type=click.IntRange(1), default=10, show_default=True, help="T.")
@click.option(
    "--owners",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Owners among whom the rows are split.",
)
@click.option(
    "--repeats", type=click.IntRange(1), default=3, show_default=True, help="Runs of each method."
)
@output_option(f"Folder for {RESULTS}, which `syncret bench utility --output` has on its page.")
@json_option
def mwem(
    columns: tuple[str, ...],
    methods: tuple[str, ...],
    epsilon: float,
    rounds: int,
    owners: int,
    repeats: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """DistMWEM: choices and Laplace noise on shares, multiplicative weights on a small domain's cells.

    Takes some ten seconds a repeat. All owners are there from the start, so that AIM here is what DistAIM with
    everybody does, too.
    """
    if unknown := [name for name in methods if name not in METHODS]:
        raise click.ClickException(f"no method {unknown[0]!r}; expected {', '.join(METHODS)}")
    with failures(DatasetError, MechanismError, RuntimeError, StoreError, OSError, ValueError):
        small = small_table(columns)
        outcomes = []
        for repeat in range(repeats):
            for name in methods:
                found = run(
                    name, small, epsilon=epsilon, rounds=rounds, owners=owners, repeat=repeat
                )
                outcomes.append(found)
                click.echo(
                    f"repeat {repeat + 1} of {repeats}, {name}: error {found.workload_error:.3f}",
                    err=True,
                )
        document = {
            "columns": list(small.workload.domain.names),
            "cells": math.prod(small.workload.domain.shape),
            "queries": len(small.workload.queries),
            "rows": len(small.train),
            "epsilon": epsilon,
            "delta": DELTA,
            "rounds": rounds,
            "owners": owners,
            "results": [asdict(outcome) for outcome in outcomes],
        }
        if output is not None:
            write_json(output / RESULTS, document)
    click.echo(json.dumps(document) if as_json else table_of(outcomes))


def table_of(outcomes: Sequence[Outcome]) -> str:
    """Returns means over repeats, by method."""
    rows = []
    for method, of in grouped(outcomes, lambda outcome: outcome.method).items():
        sent, rounds, owner = of[0].bytes_per_server, of[0].rounds, of[0].owner_bytes
        rows.append(
            (
                method,
                len(of),
                spread(known(of, "workload_error"), 3),
                spread(known(of, "nll"), 2),
                f"{fmean(known(of, 'seconds')):.1f}",
                "" if rounds is None else rounds,
                mb(None if sent is None else sent / 1e6),
                mb(None if owner is None else owner / 1e6),
            )
        )
    heads = "method | repeats | error | NLL | seconds | rounds of messages | MB sent by a server | MB by an owner"
    return markdown_table(heads, rows)


def mwem_section(folder: Path) -> str:
    """Returns the page's section on DistMWEM. Raises DatasetError for a damaged file."""
    title = "## DistMWEM on a small domain\n\n"
    try:
        document = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
        outcomes = [Outcome(**fields) for fields in document["results"]]
        where = (
            f"Adult's {len(document['columns'])} columns {', '.join(document['columns'])}: {document['cells']:,} cells,"
            f" {document['queries']} queries of three columns, {document['rows']:,} rows of {document['owners']}"
            f" owners; epsilon = {document['epsilon']:g}, T = {document['rounds']}."
        )
    except FileNotFoundError:
        return title + "Not run.\n"
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DatasetError(f"{folder / RESULTS}: cannot be used: {error}") from error
    return (
        f"{title}{where}\n\n{table_of(outcomes)}\n\n"
        "DistMWEM (Pereira et al.) is MWEM by three servers over mutual TLS: the exponential mechanism and exact\n"
        "discrete Laplace noise on shares, multiplicative weights on every cell of the domain, hence small domains\n"
        "alone: Adult's has 10^17 cells. AIM is central, and what DistAIM with everybody does; so is CaPS (AIM under\n"
        "MPC with all owners present). Errors are of the model, without sampling rows.\n"
    )
