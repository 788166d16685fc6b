"""How commands are told where a table is and how it is written.

Provides ``table_options``, which every command that reads a table has, and ``plain_option`` (with
``PLAIN_FORMAT``) of those that write one. Secret: the
password that a database's URL may hold; `mechanisms.source` keeps it out of messages.
"""

import functools
from collections.abc import Callable
from typing import Any

import click

from mechanisms.dialect import Dialect
from mechanisms.source import TableSource
from parties.owner import Table

_FILES = (
    "text with a header (.csv, .tsv), Parquet, Feather, JSON, Excel, Stata, SPSS or SAS, also compressed; with --sql a "
    "database's URL"
)
_DELIMITERS = {
    "tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "blank": " ", "space": " ",
}  # fmt: skip


def table_options(
    *, argument: str | None = None, help: str = "The table", several: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add --data (or the ``argument`` of that name), --ignore-extra, and options on how the table is written.

    The command gets them as ``table``. --ignore-extra is only there beside a config, so not with an ``argument``.
    With ``several`` there is --source besides, once for each of several tables: ``table`` is these by name then.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_table(
            location: str | None,
            sql: str | None,
            delimiter: str | None,
            decimal: str | None,
            encoding: str | None,
            header_line: int | None,
            sheet: str | None,
            ignore_extra: bool = False,
            named: tuple[tuple[str, str], ...] = (),
            **others: Any,
        ) -> None:
            sign = None if delimiter is None else _DELIMITERS.get(delimiter, delimiter)

            def table(place: str) -> Table:
                dialect = Dialect(sign, decimal, encoding, header_line=header_line)
                source = TableSource(place, sql, dialect, sheet)
                return Table(source, ignore_extra, say=functools.partial(click.echo, err=True))

            _check_one_of(argument, location, named, sql)
            found = {name: table(place) for name, place in named}
            command(table=found if location is None else table(location), **others)

        required = not several
        where = (
            click.argument("location", metavar=argument.upper(), required=required)
            if argument
            else click.option("--data", "location", required=required, help=f"{help}: {_FILES}.")
        )
        options = [where, *_OPTIONS, *([] if argument else [_IGNORE_EXTRA])]
        if several:
            options.insert(1, _SOURCE)
        for option in reversed(options):
            with_table = option(with_table)
        return with_table

    return add


def _check_one_of(
    argument: str | None, location: str | None, named: tuple[tuple[str, str], ...], sql: str | None
) -> None:
    """Raises UsageError unless there is one table, or several by different names."""
    one = argument.upper() if argument else "--data"
    if (location is None) == (not named):
        raise click.UsageError(f"give {one}, or --source NAME=TABLE for each of several sources")
    names = [name for name, _ in named]
    if len(set(names)) < len(names):
        raise click.UsageError("--source: a name stands twice; give each source one table")
    if named and sql is not None:
        raise click.UsageError("--sql goes with one table; give files to --source")


class _Named(click.ParamType[tuple[str, str]]):
    """NAME=TABLE."""

    name = "name=table"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, sign, place = str(value).partition("=")
        if not (name and sign and place):
            self.fail(f"{value!r} is not NAME=TABLE, such as registry=deaths.csv", param, ctx)
        return name, place


_SOURCE = click.option(
    "--source",
    "named",
    type=_Named(),
    metavar="NAME=TABLE",
    multiple=True,
    help="Instead, the table of one [[source]]; once for each.",
)
_OPTIONS = (
    click.option(
        "--sql", metavar="QUERY", default=None, help="A query to the database whose URL is given."
    ),
    click.option(
        "--delimiter", default=None, help='Between values: ";", tab ...; by default recognised.'
    ),
    click.option(
        "--decimal",
        type=click.Choice([".", ","]),
        default=None,
        help="Decimal sign; by default recognised.",
    ),
    click.option(
        "--encoding", default=None, help="utf-8, latin-1, utf-16 ...; by default recognised."
    ),
    click.option(
        "--header-line",
        type=click.IntRange(0),
        metavar="N",
        default=None,
        help="The line with the columns' names, 0 if none has them; by default recognised.",
    ),
    click.option(
        "--sheet",
        metavar="NAME",
        default=None,
        help="The sheet of a workbook, or the file of an archive, that has the table.",
    ),
)
PLAIN_FORMAT = {"format": None}
"""What --plain changes in a configuration: no word on how the table is written."""
plain_option = click.option(
    "--plain",
    is_flag=True,
    help="Write text in UTF-8 with commas and points, whatever [format] says.",
)
_IGNORE_EXTRA = click.option(
    "--ignore-extra", is_flag=True, help="Leave columns out that the config does not know."
)
