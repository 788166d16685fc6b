"""`syncret bench engine`: tasks, sizes and networks to measure, and output of the results."""

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from bench.engine.measure import Peers, Result, measure
from bench.engine.report import document, table, write
from bench.engine.tasks import MALICIOUS, SECURITIES, SEMI_HONEST, TASKS
from bench.engine.whole import measure_run
from bench.experiment.commands import failures, json_option, output_option
from bench.experiment.progress import progress_bar
from bench.fetch import DatasetError
from bench.networks import LOOPBACK, NETWORKS, Network, opened
from parties.config import COUNTS_INPUT, ROWS_INPUT
from parties.foundation.errors import PartyError

# Width in which each row of the table stays on one line.
_WIDTH = 122
_EXAMPLE = "Example: syncret bench engine --task abs_error --size 1000000 --repeat 5 --json"


@click.command(epilog=_EXAMPLE)
@click.option(
    "--task", "tasks", multiple=True, type=click.Choice(list(TASKS)), help="What to measure [all]."
)
@click.option(
    "--size",
    "sizes",
    multiple=True,
    type=click.IntRange(1, 10**8),
    help="Cells or samples [by task].",
)
@click.option(
    "--security",
    "securities",
    multiple=True,
    type=click.Choice(SECURITIES),
    default=[SEMI_HONEST],
    show_default=True,
    help="malicious: with everything proved that was multiplied; of tasks that can be. Both: in turns.",
)
@click.option("--sweep", is_flag=True, help="On loopback, all sizes of each task.")
@click.option(
    "--repeat",
    default=5,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Repetitions, five times as many of absolute errors and their bits; the median counts.",
)
@click.option(
    "--network",
    "networks",
    multiple=True,
    type=click.Choice(list(NETWORKS)),
    default=[LOOPBACK],
    show_default=True,
    help="lan: 1 Gbit/s, 1 ms a round trip; wan: 100 Mbit/s, 40 ms.",
)
@click.option(
    "--peer/--no-peer", default=True, show_default=True, help="Measure MPyC's own types beside."
)
@click.option(
    "--whole",
    "forms",
    type=click.Choice((COUNTS_INPUT, ROWS_INPUT)),
    multiple=True,
    help="Also whole runs of DistAIM on Adult by counts or rows, on each network in each mode.",
)
@json_option
@output_option("Write engine.json, engine.md and engine.png to this folder.")
def engine(
    tasks: tuple[str, ...],
    sizes: tuple[int, ...],
    securities: tuple[str, ...],
    sweep: bool,
    repeat: int,
    networks: tuple[str, ...],
    peer: bool,
    forms: tuple[str, ...],
    as_json: bool,
    output: Path | None,
) -> None:
    """The engine: three party processes over mutual TLS, with transcripts, on one machine.

    Each result stands beside the floor (keystreams, memory, hashing, sockets for the same bytes) and a peer.
    """
    if sweep and sizes:
        raise click.UsageError("--sweep and --size exclude each other")
    refused = [task for task in tasks if MALICIOUS in securities and not TASKS[task].provable]
    if refused:
        raise click.UsageError(f"{refused[0]} cannot be proved; leave out --security {MALICIOUS}")
    jobs = [
        (network, task, size, security)
        for network in dict.fromkeys(networks)
        for task in dict.fromkeys(tasks or TASKS)
        # Modes alternate, so that other load on the machine affects both.
        for size in sizes or _sizes(task, sweep=sweep and network == LOOPBACK)
        for security in dict.fromkeys(securities)
        if _is_measured(task, size, security, asked=bool(sizes))
    ]
    with failures(RuntimeError, DatasetError, PartyError):
        results = _measured(jobs, repeat, peer=peer)
        runs = [
            measure_run(network, security, form)
            for form in dict.fromkeys(forms)
            for network in dict.fromkeys(networks)
            for security in dict.fromkeys(securities)
        ]
    record = document(results, repeat, runs)
    if output is not None:
        write(record, results, output, runs)
    if as_json:
        click.echo(json.dumps(record))
    else:
        Console(width=max(Console().width, _WIDTH)).print(table(results))


def _is_measured(task: str, size: int, security: str, *, asked: bool) -> bool:
    """Returns True if a size is measured in a mode: if asked for and provable, or if it takes at most a minute."""
    if security == SEMI_HONEST:
        return True
    most = 10**8 if asked else max(TASKS[task].sizes_of(security), default=0)
    return TASKS[task].provable and size <= most


def _sizes(task: str, *, sweep: bool) -> Sequence[int]:
    return TASKS[task].sizes if sweep else (TASKS[task].default,)


def _measured(jobs: list[tuple[str, str, int, str]], repeat: int, *, peer: bool) -> list[Result]:
    results = []
    with progress_bar(len(jobs), "measuring") as bar:
        for name in dict.fromkeys(network for network, *_ in jobs):
            with opened(name) as network:
                peers = Peers(network) if peer else None
                for job in jobs:
                    if job[0] == name:
                        bar.show(f"{job[1]} {job[2]:,} {name}")
                        results.append(_one(job, repeat, network, peers))
                        bar.done()
    return results


def _one(
    job: tuple[str, str, int, str], repeat: int, network: Network, peers: Peers | None
) -> Result:
    _, task, size, security = job
    # The peer's own types are semi-honest.
    peers = peers if security == SEMI_HONEST else None
    repeat = TASKS[task].repetitions(repeat, size, security)
    return measure(task, size, repeat=repeat, network=network, peers=peers, security=security)
