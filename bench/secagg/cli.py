"""`syncret bench secagg`: rounds to measure, with Flower's on request."""

import json
from collections.abc import Mapping
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bench.experiment.commands import failures, json_option, output_option
from bench.experiment.progress import progress_bar
from bench.fetch import DatasetError
from bench.secagg import report as secagg_report
from bench.secagg import rounds
from bench.secagg.security import SIGNED, bits_of, shown
from secagg.errors import ParameterError

_EXAMPLE = (
    "Example: syncret bench secagg --clients 100 --neighbours 21 --dropout 0.1 --with flower --json"
)


@click.command(epilog=_EXAMPLE)
@click.option(
    "--clients",
    multiple=True,
    type=click.IntRange(3, 10_000),
    help="Clients of a round [10, 50, 100].",
)
@click.option(
    "--neighbours",
    multiple=True,
    type=click.IntRange(2, 9_999),
    help="Neighbours of a client; as many as there are others, or more, is the complete graph [21 and complete].",
)
@click.option(
    "--length",
    "lengths",
    multiple=True,
    type=click.IntRange(1, 10**8),
    help="Counts in a vector [32768].",
)
@click.option(
    "--dropout",
    "dropouts",
    multiple=True,
    type=click.FloatRange(0, 0.5),
    help="Fraction of clients that drop out after sharing their keys [0 and 0.1].",
)
@click.option(
    "--threshold",
    type=click.IntRange(2),
    help="Shares that recover a secret [more than half of the neighbours].",
)
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Rounds of each kind, taken in turn; the one of median time stands.",
)
@click.option("--signed", is_flag=True, help="Identities: signed keys and survivor lists.")
@click.option(
    "--with",
    "beside",
    type=click.Choice(["flower"]),
    help="Another implementation in the same run; needs the extra of that name.",
)
@output_option("Also add the rounds to secagg.json and secagg.md in this folder.")
@json_option
def secagg(
    clients: tuple[int, ...],
    neighbours: tuple[int, ...],
    lengths: tuple[int, ...],
    dropouts: tuple[float, ...],
    threshold: int | None,
    repeats: int,
    signed: bool,
    beside: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Secure aggregation: whole rounds in one process, seconds and bytes of a client and of the server."""
    if beside and not rounds.flower_available():
        raise click.UsageError(
            "Flower is not installed; expected `make bench-secagg`, or in an environment of its own: "
            "pip install -c constraints-flower.txt -e '.[flower]'"
        )
    jobs = [
        (n, k, length, dropout)
        for n in clients or rounds.DEFAULT_CLIENTS
        for k in sorted({min(k, n - 1) for k in neighbours or (rounds.DEFAULT_NEIGHBOURS, n)})
        for length in lengths or (rounds.DEFAULT_LENGTH,)
        for dropout in dropouts or (0.0, 0.1)
    ]
    measured = _measured(jobs * repeats, threshold=threshold, signed=signed, beside=beside)
    kinds = len(measured) // repeats
    results = [_median(measured[kind::kinds]) for kind in range(kinds)]
    if output is not None:
        options = {"--threshold": threshold, "--repeats": repeats if repeats > 1 else None}
        arguments = _arguments(clients, neighbours, lengths, dropouts, options, signed, beside)
        with failures(DatasetError):
            secagg_report.write(output, arguments, [result.to_json() for result in results])
    if as_json:
        click.echo(json.dumps({"results": [result.to_json() for result in results]}))
    else:
        Console().print(_table(results))


def _measured(
    jobs: list[tuple[int, int, int, float]],
    *,
    threshold: int | None,
    signed: bool,
    beside: str | None,
) -> list[rounds.Result]:
    """Measures the rounds of ``jobs`` in their order, each with the other implementation's after it."""
    results = []
    with progress_bar(len(jobs), "measuring") as bar:
        for job in jobs:
            try:
                results.append(rounds.measure(*job, threshold=threshold, signed=signed))
            except ParameterError as error:
                raise click.UsageError(str(error)) from error
            if beside:
                from bench.secagg import flower as secagg_flower

                results.append(secagg_flower.measure(*job))
            bar.done()
    return results


def _median(repeats: list[rounds.Result]) -> rounds.Result:
    """Returns the round of median time among rounds of one kind; of an even number the slower middle one."""
    return sorted(repeats, key=lambda result: result.wall_seconds)[len(repeats) // 2]


def _arguments(
    clients: tuple[int, ...],
    neighbours: tuple[int, ...],
    lengths: tuple[int, ...],
    dropouts: tuple[float, ...],
    options: Mapping[str, int | None],
    signed: bool,
    beside: str | None,
) -> list[str]:
    """Returns the command's arguments without those for the output."""
    named = {
        "--clients": clients,
        "--neighbours": neighbours,
        "--length": lengths,
        "--dropout": dropouts,
        **{name: () if value is None else (value,) for name, value in options.items()},
        "--with": (beside,) if beside else (),
    }
    given = [text for name, values in named.items() for v in values for text in (name, f"{v}")]
    return [*given, *(["--signed"] if signed else [])]


def _table(results: list[rounds.Result]) -> Table:
    columns = (
        "",
        "n",
        "k",
        "t",
        "bits",
        "cells",
        "drop",
        "client",
        "server",
        "wall",
        "KB up",
        "KB down",
        "exact",
    )
    # Without lines it fits 80 columns.
    table = Table(
        title="SecAgg, one process, no network; seconds, and KB of a client",
        box=None,
        padding=(0, 1, 0, 0),
    )
    for column in columns:
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for r in results:
        table.add_row(
            r.implementation.removeprefix("syncret "),
            str(r.clients),
            str(r.neighbours),
            str(r.threshold),
            _bits(r),
            f"{r.length:,}",
            f"{r.dropout:.0%}",
            f"{r.client_seconds_mean:.4f}",
            f"{r.server_seconds:.3f}",
            f"{r.wall_seconds:.2f}",
            f"{r.client_sent_bytes_mean / 1e3:.1f}",
            f"{r.client_received_bytes_mean / 1e3:.1f}",
            "yes" if r.exact else "no",
        )
    return table


def _bits(result: rounds.Result) -> str:
    """Returns the security of the parameters, in bits, against the server that the round is meant for."""
    worth = bits_of(result.implementation, result.clients, result.neighbours, result.threshold)
    return shown(worth[f"{'malicious' if result.implementation == SIGNED else 'semi_honest'}_bits"])
