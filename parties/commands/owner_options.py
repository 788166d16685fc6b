"""What every command of a data owner is given: the config, its table and its certificate.

Provides ``owner_options``; ``budget_option`` by itself. Secret: what the private key's file holds.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from parties.commands.table_options import table_options
from parties.config import load_config
from parties.dumps import no_core_dumps
from parties.owner import Owner, Table

_PATH = click.Path(path_type=Path)
budget_option = click.option(
    "--budget",
    type=_PATH,
    default=None,
    metavar="FILE",
    help="What your tables have spent, if not SYNCRET_BUDGET or its place in your home. Keep it.",
)


def owner_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add CONFIG, the options of a table, --dataset, --budget, --ca, --cert and --key, which make an ``owner``.

    The command raises ConfigError, CertificateError.
    """

    @click.argument("config", type=_PATH)
    @table_options()
    @click.option(
        "--dataset",
        default=None,
        metavar="NAME",
        help="Whose budget pays; by default that of the table at this place or with this content.",
    )
    @budget_option
    @click.option("--ca", type=_PATH, default=None, help="The run's authority, if not [tls] ca.")
    @click.option("--cert", type=_PATH, default=None, help="Your certificate, if not [tls] cert.")
    @click.option("--key", type=_PATH, default=None, help="Its private key, if not [tls] key.")
    @functools.wraps(command)
    def with_owner(
        config: Path,
        table: Table,
        dataset: str | None,
        budget: Path | None,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
        **others: Any,
    ) -> None:
        no_core_dumps()
        owner = Owner.of(
            load_config(config), table, dataset=dataset, budget=budget, ca=ca, cert=cert, key=key
        )
        command(owner=owner, **others)

    return with_owner
