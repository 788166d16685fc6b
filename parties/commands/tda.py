"""The command `tda`: Fed-TDA on one machine."""

from collections.abc import Mapping
from pathlib import Path

import click

from parties.commands.silos_trial import run_trial, silos_options
from parties.owner import Table
from parties.silos.trial import Split


@click.command(
    epilog="Example: syncret tda examples/tda/stays.toml --data stays.csv --clients 5 --beta 0.05 --out runs/tda"
)
@silos_options
def tda(
    config: Path,
    table: Table,
    split: Split,
    values: Mapping[str, object],
    processes: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Split one table among silos and run Fed-TDA on this machine: a server and the silos as processes.

    They meet over mutual TLS, and every sum is taken by secure aggregation: mixtures of the continuous columns,
    frequencies, second moments; the server draws a synthetic table from what they say. The same command on the folder
    of an interrupted run goes on after its last sum. On hosts of their own: syncret silos-server and silos-client.
    """
    run_trial(
        config, table, split, values, processes=processes, out=out, as_json=as_json, algorithm="tda"
    )
