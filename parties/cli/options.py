"""Options that several commands share: of data owners, of services, and for tables.

``owner_options`` adds the config, table and certificate of a data owner, and ``budget_option`` the budget file.
``folder_option`` and ``service_answer`` are for commands that ask a running service. ``table_options`` adds the
location and format of a table to read, and ``plain_option`` (with ``PLAIN_FORMAT``) the format of a table to write.

Secret: the private key's file, and the password in a database's URL, which `mechanisms.source` keeps out of messages.
"""

import functools
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click

from mechanisms.dialect import Dialect
from mechanisms.source import TableSource
from parties.cli.invitations import open_study
from parties.cli.numbers import NumberRange
from parties.config import Address
from parties.foundation.errors import ConfigError
from parties.foundation.exit_codes import ServiceRefused, Status
from parties.foundation.process import disable_core_dumps
from parties.session.owner import DataOwner, Table
from parties.storage.populations import owners_word

_FILES = (
    "text with a header (.csv, .tsv), Parquet, Feather, JSON, Excel, OpenDocument, Stata, SPSS or SAS, also "
    "compressed; with --sql a database's URL"
)
_DELIMITERS = {
    "tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "blank": " ", "space": " ",
}  # fmt: skip


def table_options(
    *, argument: str | None = None, help: str = "The table", several: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds --data (or the ``argument`` of that name), --ignore-extra, and options for the table's format.

    The command gets them as ``table``. --ignore-extra needs a config, so it is missing with an ``argument``. With
    ``several`` there are also --source and --table, once for each of several tables; ``table`` is then a mapping by
    name, and with --table one of tables with keys.
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
            values_line: int | None,
            sheet: str | None,
            ignore_extra: bool = False,
            named: tuple[tuple[str, str], ...] = (),
            keyed: tuple[tuple[str, str], ...] = (),
            **others: Any,
        ) -> None:
            sign = None if delimiter is None else _DELIMITERS.get(delimiter, delimiter)

            def table(path: str) -> Table:
                dialect = Dialect(
                    sign, decimal, encoding, header_line=header_line, values_line=values_line
                )
                source = TableSource(path, sql, dialect, sheet)
                return Table(source, ignore_extra, say=functools.partial(click.echo, err=True))

            _check_one_of(argument, location, (*named, *keyed), sql)
            if named and keyed:
                raise click.UsageError(
                    "--source is for rows that are linked, --table for tables with keys; give one"
                )
            found = {name: table(path) for name, path in named}
            if keyed:
                found = TablesWithKeys({name: table(path) for name, path in keyed})
            command(table=found if location is None else table(location), **others)

        required = not several
        where = (
            click.argument("location", metavar=argument.upper(), required=required)
            if argument
            else click.option("--data", "location", required=required, help=f"{help}: {_FILES}.")
        )
        options = [where, *_OPTIONS, *([] if argument else [_IGNORE_EXTRA])]
        if several:
            options[1:1] = [_SOURCE, _TABLE]
        for option in reversed(options):
            with_table = option(with_table)
        return with_table

    return add


def _check_one_of(
    argument: str | None, location: str | None, named: tuple[tuple[str, str], ...], sql: str | None
) -> None:
    """Raises UsageError unless there is one table, or several with different names."""
    one = argument.upper() if argument else "--data"
    if (location is None) == (not named):
        raise click.UsageError(
            f"give {one}, or --source NAME=TABLE for each of several sources, or --table NAME=TABLE for each table "
            "with keys"
        )
    names = [name for name, _ in named]
    if len(set(names)) < len(names):
        raise click.UsageError("--source, --table: a name stands twice; give each one table")
    if named and sql is not None:
        raise click.UsageError("--sql goes with one table; give files to --source or --table")


class TablesWithKeys(dict[str, Table]):
    """Tables of --table, by name."""


class NamedPath(click.ParamType[tuple[str, str]]):
    """Parameter type for NAME=TABLE, or another ``kind``; ``example`` is one for errors."""

    def __init__(self, example: str, kind: str = "TABLE") -> None:
        self.name = f"name={kind.lower()}"
        self._said = f"NAME={kind}, such as {example}"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Returns the name and the path; see ``click.ParamType.convert``."""
        if isinstance(value, tuple):
            return value
        name, sign, path = str(value).partition("=")
        if not (name and sign and path):
            self.fail(f"{value!r} is not {self._said}", param, ctx)
        return name, path


_SOURCE = click.option(
    "--source",
    "named",
    type=NamedPath("registry=deaths.csv"),
    metavar="NAME=TABLE",
    multiple=True,
    help="Instead, the table of one [[source]]; once for each.",
)
_TABLE = click.option(
    "--table",
    "keyed",
    type=NamedPath("registry=deaths.csv"),
    metavar="NAME=TABLE",
    multiple=True,
    help="Instead, one of several tables with keys, such as persons and their stays; once for each.",
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
        "--encoding",
        default=None,
        help="utf-8, cp1252, cp1251, cp932, gb18030 ...; by default recognised, or asked for.",
    ),
    click.option(
        "--header-line",
        type=click.IntRange(0),
        metavar="N",
        default=None,
        help="The line with the columns' names, 0 if none has them; by default recognised.",
    ),
    click.option(
        "--values-line",
        type=click.IntRange(1),
        metavar="N",
        default=None,
        help="The line with the first values, where questions or units stand between the names and them.",
    ),
    click.option(
        "--sheet",
        metavar="NAME",
        default=None,
        help="The sheet of a workbook, or the file of an archive, that has the table.",
    ),
)
PLAIN_FORMAT: dict[str, object] = {"format": None}
"""Overrides of --plain in a configuration: no section on the table's format."""
plain_option = click.option(
    "--plain",
    is_flag=True,
    help="Write text in UTF-8 with commas and points, whatever [format] says.",
)
_IGNORE_EXTRA = click.option(
    "--ignore-extra", is_flag=True, help="Leave columns out that the config does not know."
)


_PATH = click.Path(path_type=Path)
_MAX_DAYS = 36_500
budget_option = click.option(
    "--budget",
    type=_PATH,
    default=None,
    metavar="FILE",
    help="What your tables have spent, if not SYNCRET_BUDGET or its path in your home. Keep it.",
)


by_option = click.option(
    "--by",
    default=None,
    metavar="NAME",
    help="Who says so, for the record; by default the name of this user.",
)


def population_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --population, --new-population, --by and --budget."""
    options = (
        click.option(
            "--population",
            default=None,
            metavar="NAME",
            help="Say that the budget of these people pays, whatever the rows are like. Recorded.",
        ),
        click.option(
            "--new-population",
            default=None,
            metavar="NAME",
            help="Say that nobody in the table is in one that was charged before: a budget of their own. Recorded.",
        ),
        by_option,
        budget_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def certificate_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --ca, --cert and --key of a data owner."""
    options = (
        click.option(
            "--ca", type=_PATH, default=None, help="The run's authority, if not [tls] ca."
        ),
        click.option(
            "--cert", type=_PATH, default=None, help="Your certificate, if not [tls] cert."
        ),
        click.option("--key", type=_PATH, default=None, help="Its private key, if not [tls] key."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def owner_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds CONFIG, the options of a table, of its population and its budget, --ca, --cert and --key.

    The command gets the ``study`` as it was given, and ``owner``, which returns the DataOwner, once the command has
    seen to the owner's certificate. It raises ConfigError, CertificateError.
    """

    @click.argument("config")
    @table_options()
    @click.option(
        "--called",
        default=None,
        metavar="NAME",
        help="A name for the people in the table, whose budget pays; by default they are recognised by their rows. "
        "Refused where the rows are those of other people.",
    )
    @click.option("--dataset", default=None, hidden=True, help="The former name of --called.")
    @population_options
    @certificate_options
    @functools.wraps(command)
    def with_owner(
        config: str,
        table: Table,
        called: str | None,
        dataset: str | None,
        population: str | None,
        new_population: str | None,
        by: str | None,
        **others: Any,
    ) -> None:
        disable_core_dumps()
        named = (called, dataset, population, new_population)
        if sum(name is not None for name in named) > 1:
            raise click.UsageError("give one of --called, --population and --new-population")
        word = owners_word(population, new_population, by)
        files = {name: others.pop(name) for name in ("budget", "ca", "cert", "key")}

        def owner() -> DataOwner:
            return DataOwner.of(
                open_study(config), table, dataset=called or dataset, word=word, **files
            )

        command(study=config, owner=owner, **others)

    return with_owner


DEFAULT = Path("/var/lib/syncret")
VARIABLE = "SYNCRET_DIR"
_STATUSES: dict[int, Status] = {
    HTTPStatus.UNPROCESSABLE_ENTITY: Status.CONFIG,
    HTTPStatus.BAD_GATEWAY: Status.NETWORK,
    HTTPStatus.SERVICE_UNAVAILABLE: Status.NETWORK,
}

authority_option = click.option(
    "--authority",
    type=_PATH,
    default=Path("authority"),
    show_default=True,
    help="The folder of `syncret certs authority`.",
)


def days_option(default: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds --days, the validity of the certificates that a command makes."""
    return click.option(
        "--days",
        type=NumberRange(min=0, max=_MAX_DAYS, min_open=True),
        default=default,
        show_default=True,
        help="How long what is made is valid.",
    )


folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=DEFAULT,
    envvar=VARIABLE,
    show_default=True,
    show_envvar=True,
    help="The service's folder. Keys and shares are in it: keep it to yourself.",
)


def an_address(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Address | None:
    """Parses HOST:PORT as an option's value."""
    try:
        return None if value is None else Address.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from error


def service_answer(
    folder: Path, method: str, target: str, document: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Returns the answer of the service in ``folder``. Raises ServiceRefused, StoreError."""
    # Local import: an owner's commands have these options, too, and ask no service.
    from parties.service.status_client import NotRunning, request_document

    try:
        status, answer = request_document(folder, method, target, document)
    except NotRunning as error:
        raise ServiceRefused(
            f"no service runs in {folder}; expected `syncret serve --dir {folder}`, or where it runs as --dir or "
            f"in {VARIABLE}",
            Status.NOT_RUNNING,
        ) from error
    if status >= HTTPStatus.BAD_REQUEST:
        said = answer.get("error")
        detail = said if isinstance(said, dict) else {}
        text = f"{detail.get('what', status)}; expected {detail.get('expected', 'another order')}"
        raise ServiceRefused(text, _STATUSES.get(status, Status.USAGE))
    return answer


only_option = click.option("--only", hidden=True, default=None)
"""The method that a former name of the command was for."""


def check_only(only: str | None, method: str, source: str) -> None:
    """Raises ConfigError where a former name of a command gets a configuration of another method."""
    if only not in (None, method):
        text = f"is missing; the command is for {only}, and the configuration is of {method}"
        raise ConfigError(source, {"distaim": "party"}.get(only, only), text)
