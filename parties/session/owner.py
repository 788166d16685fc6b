"""A data owner in a study: the config, its table, its certificate, and what pays for a release of the table.

Provides ``Table`` and ``DataOwner``, by command and by program. Secret: the table; what the private key's file holds.

A data owner's table of one source: its columns of the domain, and before them its rows' linking keys, hashed.

Provides ``source_domain``, ``key_limbs`` (how many numbers of a row are its key), ``read_keys`` and ``source_codes``.
Secret: the table, its keys and hashes. Public: columns and sizes. Source: `mechanisms.linking`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Domain
from mechanisms.linking import LIMB_BITS, LIMBS, LinkingKeys, hashed, linking_keys
from mechanisms.reading import read_text
from mechanisms.source import TableSource
from mechanisms.summary import ColumnSummary, summarise
from mechanisms.table import encode
from mechanisms.text_table import TextTable
from parties.config import BY_KEY, CertificateFiles, Config
from parties.identity.tls import load_identity, own_certificate
from parties.storage.owner_budget import (
    BudgetAccount,
    BudgetQuote,
    OwnerBudget,
    Release,
    TableIdentity,
)
from parties.storage.user_paths import budget_path


def key_limbs(config: Config) -> int:
    """How many numbers before a row's codes are its key: none where rows are linked by their order."""
    return LIMBS if config.run.link == BY_KEY else 0


def source_domain(config: Config, number: int) -> Domain:
    """The columns of a source, in its own order; its key is in the table and not in the domain."""
    source, domain = config.sources[number], config.domain
    return domain.only(source.columns, (*domain.ignore, *source.key))


def source_sizes(config: Config, number: int) -> tuple[int, ...]:
    """The sizes of what a row of a source has: the parts of its key, then its columns."""
    key = (1 << LIMB_BITS,) * key_limbs(config)
    return (*key, *source_domain(config, number).shape)


def read_keys(config: Config, number: int, table: TextTable, *, where: str) -> LinkingKeys:
    """The linking keys of a table of a source.

    Raises DataError, which names rows and no value: a row without a key, or a key in more rows than a person may have.
    """
    source = config.sources[number]
    return linking_keys(
        table,
        source.key,
        source=where,
        missing=config.domain.missing_values,
        at_most=source.rows_per_person,
    )


def source_codes(
    config: Config, number: int, table: TextTable, *, where: str, ignore_extra: bool
) -> NDArray[np.int32]:
    """What an owner shares of a table: (rows, ``source_sizes``). Raises DataError as ``read_keys`` and ``encode``."""
    domain = source_domain(config, number)
    codes = encode(domain, table, source=where, ignore_extra=ignore_extra)
    if not key_limbs(config):
        return codes
    keys = read_keys(config, number, table, where=where)
    return np.concatenate([hashed(keys, linking_salt(config)), codes], axis=1)


def linking_salt(config: Config) -> bytes:
    """The salt of linking keys: the digest of what all agree on, the run's id included. Public."""
    return bytes.fromhex(config.digest())


@dataclass(frozen=True, slots=True)
class Table:
    """Where a table is; with ``ignore_extra`` columns that the config does not know are left out.

    ``read`` is the table where it is in memory already: ``source`` is then a name for it, and no place. ``say`` is told
    what of a file was skipped.
    """

    source: TableSource
    ignore_extra: bool
    read: TextTable | None = None
    say: Callable[[str], None] | None = field(default=None, repr=False, compare=False)

    def text(self) -> TextTable:
        """Its rows. Raises DataError where it cannot be read."""
        if self.read is not None:
            return self.read
        table = read_text(self.source)
        if self.say is not None:
            for note in table.notes:
                self.say(f"{self.source.shown}: {note}")
        return table

    def kept(self, text: TextTable, domain: Domain) -> TextTable:
        """``text`` without the columns that ``ignore_extra`` leaves out."""
        if not self.ignore_extra:
            return text
        names = set(domain.names)
        columns = {name: values for name, values in text.columns.items() if name in names}
        return replace(text, columns=columns)

    def codes(self, domain: Domain) -> NDArray[np.int32]:
        """Its rows as codes. Raises DataError where the table cannot be read or does not fit the domain."""
        return self.codes_and_summaries(domain)[0]

    def codes_and_summaries(
        self, domain: Domain
    ) -> tuple[NDArray[np.int32], tuple[ColumnSummary, ...]]:
        """Its rows as codes, and what is in its columns, for its owner's eyes. Raises as ``codes``."""
        table, shown = self.text(), self.source.shown
        codes = encode(domain, table, source=shown, ignore_extra=self.ignore_extra)
        return codes, summarise(domain, table.columns.__getitem__)


def table_name(table: Table | Mapping[str, Table]) -> str:
    """What a table, or several by name, are called together."""
    if isinstance(table, Table):
        return table.source.name
    return " + ".join(each.source.name for each in table.values())


@dataclass(frozen=True, slots=True)
class DataOwner:
    """The data owner called ``name`` in its certificate, with its ``table``."""

    config: Config
    table: Table
    files: CertificateFiles
    name: str
    dataset: str | None
    budget: Path

    @classmethod
    def of(
        cls,
        config: Config,
        table: Table,
        *,
        dataset: str | None = None,
        budget: Path | None = None,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
    ) -> Self:
        """Whose certificate ``cert`` is; what is not given is where [tls] and SYNCRET_BUDGET say, or usual places.

        Raises ConfigError, CertificateError.
        """
        own = CertificateFiles(ca, cert, key) if ca and cert and key else config.require_tls()
        files = own_certificate(CertificateFiles(ca or own.ca, cert or own.cert, key or own.key))
        return cls(config, table, files, load_identity(files).name, dataset, budget_path(budget))

    def beside(self, ending: str) -> Path:
        """A hidden file or folder of this run beside the table."""
        return self.table.source.beside(f"{self.config.run.id}.{self.name}.{ending}")

    def codes(self) -> NDArray[np.int32]:
        """As ``codes_and_summaries``, the rows alone."""
        return self.codes_and_summaries()[0]

    def codes_and_summaries(self) -> tuple[NDArray[np.int32], tuple[ColumnSummary, ...]]:
        """What it shares of its table's rows, and what is in its columns, for its owner's eyes.

        With sources, the rows of its own one, with their linking keys. Raises DataError where the table
        cannot be read or does not fit, ConfigError where the owner is in no source.
        """
        config, table = self.config, self.table
        if not config.sources:
            return table.codes_and_summaries(config.domain)
        number, text = config.source_of(self.name), table.text()
        codes = source_codes(
            config, number, text, where=table.source.shown, ignore_extra=table.ignore_extra
        )
        return codes, summarise(source_domain(config, number), text.columns.__getitem__)

    def account(self, release: Release) -> BudgetAccount:
        """What pays for ``release`` of the table. Raises StoreError, ConfigError for a dataset's name that is none."""
        return BudgetAccount(OwnerBudget(self.budget), self._source, release)

    @property
    def _source(self) -> TableIdentity:
        table = self.table.source
        if self.table.read is not None:
            return TableIdentity(self.dataset or table.name)
        if table.sql is None:
            return TableIdentity.of_file(Path(table.location), self.dataset)
        # All queries to a database are of one dataset, unless the owner names others.
        return TableIdentity(self.dataset, table.place)

    def quote(self, release: Release, submission: str | None = None) -> BudgetQuote:
        """What ``account`` would charge; a budget that is not there yet is not made. Raises as ``account``."""
        if self.budget.exists():
            return self.account(release).quote(submission)
        return BudgetQuote.of(None, self._source, release, submission)
