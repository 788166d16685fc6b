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
    *, argument: str | None = None, help: str = "The table"
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add --data (or the ``argument`` of that name), --sql, --delimiter, --decimal, --encoding and --ignore-extra.

    The command gets them as ``table``. --ignore-extra is only there beside a config, so not with an ``argument``.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_table(
            location: str,
            sql: str | None,
            delimiter: str | None,
            decimal: str | None,
            encoding: str | None,
            ignore_extra: bool = False,
            **others: Any,
        ) -> None:
            sign = None if delimiter is None else _DELIMITERS.get(delimiter, delimiter)
            source = TableSource(location, sql, Dialect(sign, decimal, encoding))
            command(table=Table(source, ignore_extra), **others)

        where = (
            click.argument("location", metavar=argument.upper())
            if argument
            else click.option("--data", "location", required=True, help=f"{help}: {_FILES}.")
        )
        options = [where, *_OPTIONS, *([] if argument else [_IGNORE_EXTRA])]
        for option in reversed(options):
            with_table = option(with_table)
        return with_table

    return add


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
