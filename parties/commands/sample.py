"""The command `sample`: more rows from a run's model."""

import json
import secrets
from pathlib import Path

import click

from parties.commands.running import common_options
from parties.commands.table_options import plain_option

_PATH = click.Path(path_type=Path)
_SEED_BITS = 64


@click.command(epilog="Example: syncret sample runs/stays -n 10000 --out more.csv")
@click.argument("run", type=_PATH)
@click.option("-n", "--rows", type=click.IntRange(1), required=True, help="How many rows to draw.")
@click.option(
    "--out",
    type=_PATH,
    required=True,
    help="The file to make: .csv, .tsv (either with .gz), .parquet or .xlsx.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=None,
    help="The same seed draws the same rows; by default another one each time, which is told.",
)
@click.option("--overwrite", is_flag=True, help="Replace the file that is there.")
@plain_option
@common_options
def sample(
    run: Path, rows: int, out: Path, seed: int | None, overwrite: bool, plain: bool, as_json: bool
) -> None:
    """Draw more rows from the model of the run RUN, in the columns, types and formats of its synthetic.csv.

    RUN is the folder of a run of DistAIM, central AIM or FLAIM, that of server 0 or of FLAIM's server, or a bundle.
    What is drawn follows from what was released already: it costs no further privacy, however many rows there are.
    """
    from parties.audit.bundle import unpacked
    from parties.fitted import load_model, plainly, write_drawn

    chosen = secrets.randbits(_SEED_BITS) if seed is None else seed
    with unpacked(run) as folder:
        model = load_model(folder, named=run)
    if plain:
        model = plainly(model)
    write_drawn(model, rows, out, seed=chosen, overwrite=overwrite)
    if as_json:
        click.echo(json.dumps({"out": str(out), "rows": rows, "seed": chosen}))
    else:
        click.echo(f"{rows} rows drawn from the model of {run} are in {out} (seed {chosen})")
