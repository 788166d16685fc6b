"""The command `mtl`: MR-MTL on one machine."""

from collections.abc import Mapping
from pathlib import Path

import click

from parties.commands.silos_trial import run_trial, silos_options
from parties.owner import Table
from parties.silos.trial import Split


@click.command(
    epilog="Example: syncret mtl examples/mtl/school.toml --data school.csv.gz --by school --out runs/school"
)
@silos_options
def mtl(
    config: Path,
    table: Table,
    split: Split,
    values: Mapping[str, object],
    processes: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Split one table among silos and run MR-MTL on this machine: a server and the silos as processes.

    Silos train models of their own, drawn to the mean of all, each with noise for its own epsilon. They meet over
    mutual TLS, and the server sees sums of models alone. The same command on the folder of an interrupted run goes on
    after its last sum. On hosts of their own: syncret silos-server and silos-client.
    """
    run_trial(config, table, split, values, processes=processes, out=out, as_json=as_json)
