"""The command `domain`: drafts a config from a table."""

import json
from pathlib import Path

import click
import tomli_w

from mechanisms.table import draft_domain
from parties.commands.running import common_options
from parties.errors import StoreError

_PATH = click.Path(path_type=Path)


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
