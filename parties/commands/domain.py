"""The command `domain`: drafts a config from a table."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import click

from mechanisms.draft import Draft, draft_domain
from mechanisms.linked_draft import SourceDraft, TableRead, draft_sources
from mechanisms.private_draft import private_draft
from mechanisms.reading import read_recognised
from parties.commands.running import common_options
from parties.commands.table_options import table_options
from parties.distaim.drafts import text_with_offers
from parties.errors import StoreError
from parties.owner import Table, name_of


@click.command(epilog="Example: syncret domain stays.csv > stays.toml")
@table_options(argument="table", several=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    help="Write here instead of standard output.",
)
@click.option(
    "--private-bins",
    is_flag=True,
    help="Leave bins and values of their own to the run, which chooses them from noisy counts.",
)
@click.option(
    "--private",
    is_flag=True,
    help="Write no value of the table at all: the run finds bins and bounds of numbers and dates from noisy counts, "
    "and categories are left to be listed.",
)
@common_options
def domain(
    table: Table | Mapping[str, Table],
    out: Path | None,
    private_bins: bool,
    private: bool,
    as_json: bool,
) -> None:
    """Draft a config from a table: columns, kinds, categories, bounds, values with a cell of their own.

    Everything that was read from the data is marked: a domain has to be public knowledge, so replace or confirm each
    of them before a run in earnest. Columns that look like identifiers or free text are left out, with a note.

    With --source NAME=TABLE for each of several tables the draft has [[source]] tables: what all of them have is the
    key by which rows are linked, else what looks like an identifier.
    """
    sources: tuple[SourceDraft, ...] = ()
    if private and isinstance(table, Mapping):
        raise click.UsageError("--private is for one table; draft each source by itself")
    if isinstance(table, Mapping):
        draft, sources = draft_sources(_read(table), private_bins=private_bins)
    else:
        draft = draft_domain(table.source, private_bins=private_bins)
    # Reasons and questions tell of the table: its owner sees them, and a private draft has none.
    seen = draft
    draft = private_draft(draft) if private else draft
    text, offers = text_with_offers(name_of(table), draft, sources)
    if as_json:
        document = {
            "domain": draft.domain.to_dict(),
            "notes": list(draft.notes),
            "left_out": list(draft.left_out),
            "to_list": list(draft.to_list),
            "questions": list(draft.questions),
            "read_as": draft.read_as,
            "skipped": list(draft.skipped),
            "offers": [asdict(offer) for offer in offers],
            "sources": [asdict(source) for source in sources],
        }
        click.echo(json.dumps(document, indent=2))
        return
    _summarise(replace(seen, to_list=draft.to_list))
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


def _summarise(draft: Draft) -> None:
    """Say on standard error what is left out and what has to be asked; nothing of it is a value of the table."""
    for note in draft.skipped:
        click.echo(f"read: {note}", err=True)
    if draft.left_out:
        drafted = len(draft.domain.columns)
        columns = "column" if drafted == 1 else "columns"
        click.echo(f"{drafted} {columns} drafted, {len(draft.left_out)} left out:", err=True)
    for reason in draft.left_out:
        click.echo(f"  {reason}", err=True)
    if draft.to_list:
        click.echo("To be listed from a code book, and ignored until then:", err=True)
    for name in draft.to_list:
        click.echo(f"  {name}", err=True)
    if draft.questions:
        click.echo("To be asked, since it can be read in two ways:", err=True)
    for question in draft.questions:
        click.echo(f"  {question}", err=True)


def _read(tables: Mapping[str, Table]) -> dict[str, TableRead]:
    """The tables of several sources, by name. Raises DataError."""
    found = {}
    for name, table in tables.items():
        text, read_as = read_recognised(table.source)
        found[name] = TableRead(text, table.source.shown, read_as)
    return found
