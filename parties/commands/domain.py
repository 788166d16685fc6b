"""The command `domain`: drafts a config from a table."""

import json
from pathlib import Path

import click
import tomli_w

from mechanisms.domain import Domain
from mechanisms.draft import Draft, draft_domain
from parties.commands.running import common_options
from parties.commands.table_options import Table, table_options
from parties.errors import StoreError

_MARK = "# READ FROM THE DATA: replace or confirm"
_READ = ("categories", "low", "high", "atoms", "scale", "decimals", "unit", "format")
"""Keys of a column whose values came out of the table."""
_DEGREE, _COUNT = 3, 64


@click.command(epilog="Example: syncret domain stays.csv > stays.toml")
@table_options(argument="table")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    help="Write here instead of standard output.",
)
@common_options
def domain(table: Table, out: Path | None, as_json: bool) -> None:
    """Draft a config from a table: columns, kinds, categories, bounds, values with a cell of their own.

    Everything that was read from the data is marked: a domain has to be public knowledge, so replace or confirm each
    of them before a run in earnest. Columns that look like identifiers or free text are left out, with a note.
    """
    draft = draft_domain(table.source)
    if as_json:
        document = {
            "domain": draft.domain.to_dict(),
            "notes": list(draft.notes),
            "left_out": list(draft.left_out),
            "read_as": draft.read_as,
        }
        click.echo(json.dumps(document, indent=2))
        return
    text = draft_text(table.source.name, draft)
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


def draft_text(name: str, draft: Draft) -> str:
    """A draft as a config in TOML, with marks beside what was read from the table called ``name``."""
    drafted = draft.domain
    ignored = tomli_w.dumps({"ignore": list(drafted.ignore)}) if drafted.ignore else ""
    return f"""\
# A draft from {json.dumps(name)}, read as {draft.read_as}.
# WARNING: the following was READ FROM THE DATA, and a domain is published with the result. Replace or confirm each of
# these from public knowledge before a run in earnest:
{_comments(draft.notes)}
{_left_out(draft)}{ignored}
[run]
epsilon = 1.0
delta = 1e-5
rounds = 10

[workload]
degree = {min(_DEGREE, len(drafted.columns))}
count = {_COUNT}

[clients]
expected = 10            # how many data owners at most
rows_per_client = 100000 # public bound on the rows of one owner

[missing]
{_MARK}
{tomli_w.dumps({"values": list(drafted.missing_values)})}
{_columns(drafted)}"""


def _comments(notes: tuple[str, ...]) -> str:
    return "".join(f"#   {note}\n" for note in notes)


def _left_out(draft: Draft) -> str:
    if not draft.left_out:
        return ""
    return (
        "# LEFT OUT, and ignored in every owner's table; none of their values is in this file:\n"
        f"{_comments(draft.left_out)}"
    )


def _columns(drafted: Domain) -> str:
    """One [[column]] after another, with a mark above what was read; `tomli_w` would write short ones on one line."""
    tables = []
    for column in drafted.columns:
        lines = [
            f"{_MARK}\n{line}" if key in _READ else line
            for key, value in column.to_dict().items()
            for line in [tomli_w.dumps({key: value}).rstrip("\n")]
        ]
        tables.append("\n".join(["[[column]]", *lines, ""]))
    return "\n".join(tables)
