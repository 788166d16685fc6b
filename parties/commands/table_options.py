"""How commands are told where a table is and how it is written.

Provides ``table_options``, which every command that reads a table has. Secret: the
password that a database's URL may hold; `mechanisms.source` keeps it out of messages.
"""

import functools
from collections.abc import Callable
from typing import Any

import click

from mechanisms.dialect import Dialect
from mechanisms.source import TableSource
from parties.owner import Table

_FILES = "CSV with a header, .tsv, either with .gz, .parquet or .xlsx; with --sql a database's URL"
_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}


def table_options(
    *, argument: str | None = None, help: str = "The table", several: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add --data (or the ``argument`` of that name), --sql, --delimiter, --decimal, --encoding and --ignore-extra.

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
            ignore_extra: bool = False,
            named: tuple[tuple[str, str], ...] = (),
            **others: Any,
        ) -> None:
            sign = None if delimiter is None else _DELIMITERS.get(delimiter, delimiter)

            def table(place: str) -> Table:
                return Table(
                    TableSource(place, sql, Dialect(sign, decimal, encoding)), ignore_extra
                )

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
)
_IGNORE_EXTRA = click.option(
    "--ignore-extra", is_flag=True, help="Leave columns out that the config does not know."
)
