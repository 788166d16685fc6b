"""The commands that come before a run: `domain` drafts a config, `certs` makes certificates."""

import json
import math
import sys
from pathlib import Path

import click
import tomli_w

from mechanisms.table import draft_domain
from parties.errors import StoreError
from parties.running import common_options
from parties.tls import make_certificates

_PATH = click.Path(path_type=Path)
_MOST_DAYS = 36_500


@click.command(epilog="Example: syncret domain stays.csv > stays.toml")
@click.argument("table", type=_PATH)
@click.option("--out", type=_PATH, default=None, help="Write here instead of standard output.")
@common_options
def domain(table: Path, out: Path | None, as_json: bool) -> None:
    """Draft a config from a table: columns, kinds, categories, bounds.

    Everything that was read from the data is marked: a domain has to be public knowledge, so replace or confirm each
    of them before a run in earnest.
    """
    drafted, notes = draft_domain(table)
    if as_json:
        click.echo(json.dumps({"domain": drafted.to_dict(), "notes": notes}, indent=2))
        return
    text = _draft_text(table.name, tomli_w.dumps(drafted.to_dict()), notes)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise StoreError(out, "is there already; expected the name of a new file") from error
    except OSError as error:
        raise StoreError(
            out,
            f"cannot be written: {error.strerror or error}; expected a new file in a folder that can be written",
        ) from error


def _draft_text(name: str, columns: str, notes: list[str]) -> str:
    marks = "".join(f"#   {note}\n" for note in notes)
    return f"""\
# A draft from {json.dumps(name)}. WARNING: the following was READ FROM THE DATA, and a domain is published with the
# result. Replace or confirm each of these from public knowledge before a run in earnest:
{marks}
[run]
epsilon = 1.0
delta = 1e-5
rounds = 10

[workload]
degree = {2 if columns.count("[[column]]") < 3 else 3}
count = 64

[clients]
expected = 10            # how many data owners at most
rows_per_client = 100000 # public bound on the rows of one owner

{_marked(columns)}"""


def _marked(columns: str) -> str:
    """A warning beside every value that came out of the table."""
    read = ("categories =", "low =", "high =")
    return "".join(
        f"# READ FROM THE DATA: replace or confirm\n{line}\n"
        if line.startswith(read)
        else f"{line}\n"
        for line in columns.splitlines()
    )


def _a_number(ctx: click.Context, parameter: click.Parameter, value: float) -> float:
    """``value``, which is within its range; click lets NaN through."""
    if math.isnan(value):
        raise click.BadParameter(f"{value} is no number.", ctx, parameter)
    return value


@click.command(
    epilog="Example: syncret certs tls --party alpha --party beta --party gamma --client north"
)
@click.argument("directory", type=_PATH)
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
