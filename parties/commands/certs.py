"""The command `certs`: makes certificates for trials."""

import json
import math
import sys
from pathlib import Path

import click

from parties.commands.running import common_options
from parties.tls import make_certificates

_MOST_DAYS = 36_500


def _a_number(ctx: click.Context, parameter: click.Parameter, value: float) -> float:
    """``value``, which is within its range; click lets NaN through."""
    if math.isnan(value):
        raise click.BadParameter(f"{value} is no number.", ctx, parameter)
    return value


@click.command(
    epilog="Example: syncret certs tls --party alpha --party beta --party gamma --client north"
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--party",
    "parties",
    multiple=True,
    help="A server's name; may be repeated. Default: party-0..2.",
)
@click.option("--client", "clients", multiple=True, help="A data owner's name; may be repeated.")
@click.option(
    "--days",
    type=click.FloatRange(min=0, max=_MOST_DAYS, min_open=True),
    callback=_a_number,
    default=365,
    show_default=True,
    help="How long they are valid.",
)
@common_options
def certs(
    directory: Path, parties: tuple[str, ...], clients: tuple[str, ...], days: float, as_json: bool
) -> None:
    """Make a development authority and one certificate per party and data owner, in DIRECTORY.

    Called again with new names, it adds to the authority that is there. All keys are then in one place: for trials,
    not for private data.
    """
    if not parties and not clients:
        parties = ("party-0", "party-1", "party-2")
    made = make_certificates(directory, parties, clients, valid_days=days)
    if as_json:
        paths = {n: {"cert": str(f.cert), "key": str(f.key)} for n, f in made.items()}
        click.echo(json.dumps(paths, indent=2))
        return
    for name, files in made.items():
        click.echo(f"{name}: {files.cert} {files.key}")
    click.echo(
        f"{directory / 'ca.crt'}: the authority (its key is beside it: keep it safe)",
        file=sys.stderr,
    )
