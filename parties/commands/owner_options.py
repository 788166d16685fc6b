"""What every command of a data owner is given: the config, its table and its certificate.

Provides ``owner_options`` and ``Owner``; ``budget_option`` by itself. Secret: what the private key's file holds.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from parties.budget import Account, Budget, Quote, Release, Source
from parties.commands.table_options import Table, table_options
from parties.config import CertificateFiles, Config, load_config
from parties.dumps import no_core_dumps
from parties.places import budget_file
from parties.tls import load_identity, own_certificate

_PATH = click.Path(path_type=Path)
budget_option = click.option(
    "--budget",
    type=_PATH,
    default=None,
    metavar="FILE",
    help="What your tables have spent, if not SYNCRET_BUDGET or its place in your home. Keep it.",
)


@dataclass(frozen=True, slots=True)
class Owner:
    """The data owner called ``name`` in its certificate, with its ``table``."""

    config: Config
    table: Table
    files: CertificateFiles
    name: str
    dataset: str | None
    budget: Path

    def beside(self, ending: str) -> Path:
        """A hidden file or folder of this run beside the table."""
        return self.table.source.beside(f"{self.config.run.id}.{self.name}.{ending}")

    def account(self, release: Release) -> Account:
        """What pays for ``release`` of the table. Raises StoreError, ConfigError for a dataset's name that is none."""
        return Account(Budget(self.budget), self._source, release)

    @property
    def _source(self) -> Source:
        table = self.table.source
        if table.sql is None:
            return Source.of_file(Path(table.location), self.dataset)
        # All queries to a database are of one dataset, unless the owner names others.
        return Source(self.dataset, table.place)

    def quote(self, release: Release, submission: str | None = None) -> Quote:
        """What ``account`` would charge; a budget that is not there yet is not made. Raises as ``account``."""
        if self.budget.exists():
            return self.account(release).quote(submission)
        return Quote.of(None, self._source, release, submission)


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
        loaded = load_config(config)
        own = CertificateFiles(ca, cert, key) if ca and cert and key else loaded.require_tls()
        files = own_certificate(CertificateFiles(ca or own.ca, cert or own.cert, key or own.key))
        name = load_identity(files).name
        owner = Owner(loaded, table, files, name, dataset, budget_file(budget))
        command(owner=owner, **others)

    return with_owner
