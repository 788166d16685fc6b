"""A data owner in a study: its config, its table, its certificate, and the budget for a release of the table.

In a study with sources, an owner has a table of one source: its columns of the domain, and before them the hashed
linking keys of its rows. Secret: the table, its keys and hashes; the private key's file. Public: columns and sizes.
Source of the linking: `mechanisms.linking`.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mechanisms.constraints.checking import repaired
from mechanisms.linking import OF_PERSONS, LinkingKeys, hashed, linking_keys
from mechanisms.person_rows import sampled_rows
from mechanisms.reading import read_text
from mechanisms.source import TableSource
from mechanisms.summary import ColumnSummary, summarise
from mechanisms.table import as_modelled, encode
from mechanisms.text_table import TextTable
from parties.config import SAMPLE, CertificateFiles, Config
from parties.identity.tls import load_identity, own_certificate
from parties.session.source_rows import key_limbs, source_domain
from parties.session.study import Study
from parties.storage.owner_budget import BudgetAccount, BudgetQuote, OwnerBudget
from parties.storage.population_budget import Release
from parties.storage.populations import OwnersWord, TableIdentity
from parties.storage.table_sketch import KeyedSketch, SketchKey, make_sketch
from parties.storage.user_paths import budget_path


def read_keys(config: Config, number: int, table: TextTable, *, where: str) -> LinkingKeys:
    """Returns the linking keys of a source's table.

    Raises DataError for a row without a key, or a key in more rows than a person may have; the error names rows and no
    value.
    """
    source = config.sources[number]
    return linking_keys(
        table,
        source.key,
        source=where,
        missing=config.domain.missing_values,
        at_most=source.rows_per_person,
    )


def bounded_rows(config: Config, table: TextTable, *, where: str) -> TextTable:
    """Returns an owner's table with at most run.rows_per_person rows of each person, by run.person.

    With more_rows = "sample" rows of a person with more are left out; otherwise raises DataError, which names rows and
    no value. The choice depends on the modelled columns of that person's rows.
    """
    run = config.run
    if run.person is None:
        return table
    sampled = run.more_rows == SAMPLE
    keys = linking_keys(
        table,
        run.person,
        source=where,
        missing=config.domain.missing_values,
        at_most=None if sampled else run.rows_per_person,
        words=OF_PERSONS,
    )
    if not sampled:
        return table
    modelled = [name for name in config.domain.names if name in table.columns]
    salt, most = linking_salt(config), run.rows_per_person
    return sampled_rows(table, keys, at_most=most, columns=modelled, salt=salt)


def source_codes(
    config: Config, number: int, table: TextTable, *, where: str, ignore_extra: bool
) -> NDArray[np.int32]:
    """Returns an owner's rows for sharing, (rows, ``source_sizes``).

    Raises DataError as ``read_keys`` and ``encode``.
    """
    domain = source_domain(config, number)
    codes = encode(domain, table, source=where, ignore_extra=ignore_extra)
    if not key_limbs(config):
        return codes
    keys = read_keys(config, number, table, where=where)
    return np.concatenate([hashed(keys, linking_salt(config)), codes], axis=1)


def linking_salt(config: Config) -> bytes:
    """Salt of linking keys: the digest of the agreed configuration, including the run's id. Public."""
    return bytes.fromhex(config.digest())


def owner_files(
    config: Config, *, ca: Path | None, cert: Path | None, key: Path | None
) -> CertificateFiles:
    """Returns an owner's files; missing paths come from [tls]. Raises ConfigError, CertificateError."""
    own = CertificateFiles(ca, cert, key) if ca and cert and key else config.require_tls()
    return own_certificate(CertificateFiles(ca or own.ca, cert or own.cert, key or own.key))


@dataclass(frozen=True, slots=True)
class Table:
    """Location of a table; with ``ignore_extra`` columns outside the config are dropped.

    ``read`` is the table if it is in memory already: ``source`` is then only its name. ``say`` receives notes on
    skipped parts of a file.
    """

    source: TableSource
    ignore_extra: bool
    read: TextTable | None = None
    say: Callable[[str], None] | None = field(default=None, repr=False, compare=False)

    def held(self) -> Self:
        """Returns this table in memory, its notes said. Raises DataError if it cannot be read."""
        if self.read is not None:
            return self
        table = self.as_written()
        self._note(*table.notes)
        return replace(self, read=table)

    def as_written(self) -> TextTable:
        """Returns the rows with all columns, as they are written. Raises DataError if the table cannot be read."""
        return read_text(self.source) if self.read is None else self.read

    def text(self, config: Config) -> TextTable:
        """Returns the rows that take part in a run of ``config``, whatever its method.

        The cells that the domain splits are in columns of their own, rows that contradict a constraint to be repaired
        are left out, and nobody has more rows than run.person allows.
        Raises DataError if the table cannot be read, has cells that cannot be split, or is refused by ``bounded_rows``.
        """
        domain, table, shown = config.domain, self.as_written(), self.source.shown
        if self.read is None:
            self._note(*table.notes)
        text, repairs = repaired(domain, as_modelled(domain, table, shown))
        self._note(*repairs)
        bounded = bounded_rows(config, text, where=shown)
        if len(bounded) < len(text):
            # For the owner's own screen: the number depends on the table without noise.
            self._note(
                f"{len(text) - len(bounded):,} of {len(text):,} rows are left out, of persons with more than "
                f"{config.run.rows_per_person}; that number is yours alone"
            )
        return bounded

    def _note(self, *notes: str) -> None:
        if self.say is not None:
            for note in notes:
                self.say(f"{self.source.shown}: {note}")

    def kept(self, text: TextTable, config: Config) -> TextTable:
        """Returns ``text`` without the columns that ``ignore_extra`` drops; a person's key stays."""
        if not self.ignore_extra:
            return text
        names = {*config.domain.names, *(config.run.person or ())}
        columns = {name: values for name, values in text.columns.items() if name in names}
        return replace(text, columns=columns)

    def codes(self, config: Config) -> NDArray[np.int32]:
        """Returns the rows of ``text`` as codes. Raises DataError as ``text``, or if they do not fit the domain."""
        return self.codes_and_summaries(config)[0]

    def codes_and_summaries(
        self, config: Config
    ) -> tuple[NDArray[np.int32], tuple[ColumnSummary, ...]]:
        """Returns the rows as codes, and summaries of the columns for the owner alone. Raises as ``codes``."""
        domain, table = config.domain, self.text(config)
        codes = encode(domain, table, source=self.source.shown, ignore_extra=self.ignore_extra)
        return codes, summarise(domain, table.columns.__getitem__)


def held(table: Table | Mapping[str, Table]) -> Table | Mapping[str, Table]:
    """Returns ``Table.held`` of a table, or of several tables by name."""
    if isinstance(table, Table):
        return table.held()
    return {name: each.held() for name, each in table.items()}


def table_name(table: Table | Mapping[str, Table]) -> str:
    """Joint name of a table, or of several tables by name."""
    if isinstance(table, Table):
        return table.source.name
    return " + ".join(each.source.name for each in table.values())


@dataclass(frozen=True)
class DataOwner:
    """The data owner called ``name`` in its certificate, with its ``table``.

    ``dataset`` is a name for the population of the table, and ``word`` says explicitly which one that is.
    """

    config: Config
    table: Table
    files: CertificateFiles
    name: str
    dataset: str | None
    budget: Path
    word: OwnersWord | None = None

    @functools.cached_property
    def study(self) -> Study:
        """The study that the owner takes part in. Raises ConfigError where its workload cannot be built."""
        return Study.of(self.config)

    @classmethod
    def of(
        cls,
        config: Config,
        table: Table,
        *,
        dataset: str | None = None,
        word: OwnersWord | None = None,
        budget: Path | None = None,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
    ) -> Self:
        """Returns the owner with the certificate ``cert``. Missing paths come from [tls] and SYNCRET_BUDGET, or are the
        usual ones.

        Raises ConfigError, CertificateError.
        """
        files = owner_files(config, ca=ca, cert=cert, key=key)
        name, path = load_identity(files).name, budget_path(budget)
        return cls(config, table, files, name, dataset, path, word)

    def beside(self, ending: str) -> Path:
        """Path of a hidden file or folder of this run beside the table."""
        return self.table.source.beside(f"{self.config.run.id}.{self.name}.{ending}")

    def codes(self) -> NDArray[np.int32]:
        """Returns the rows of ``codes_and_summaries``."""
        return self.codes_and_summaries()[0]

    def codes_and_summaries(self) -> tuple[NDArray[np.int32], tuple[ColumnSummary, ...]]:
        """Returns the table's rows for sharing, and summaries of its columns for the owner alone.

        With sources, these are the rows of the owner's source, with their linking keys. Raises DataError if the table
        cannot be read or does not fit, ConfigError if the owner is in no source.
        """
        config, table = self.config, self.table
        if not config.sources:
            return table.codes_and_summaries(config)
        number = config.source_of(self.name)
        text = table.text(config)
        codes = source_codes(
            config, number, text, where=table.source.shown, ignore_extra=table.ignore_extra
        )
        return codes, summarise(source_domain(config, number), text.columns.__getitem__)

    def account(self, release: Release) -> BudgetAccount:
        """Returns the account that pays for ``release`` of the table.

        Raises StoreError, ConfigError for an invalid name of a population, DataError if the table cannot be read.
        """
        return BudgetAccount(OwnerBudget(self.budget), self._sketched, release)

    @functools.cached_property
    def _sketched(self) -> TableIdentity:
        key = SketchKey.beside(self.budget)
        sketch = make_sketch(self.table.as_written(), key, self._person)
        return replace(self._source, sketch=KeyedSketch(key, sketch))

    @property
    def _person(self) -> tuple[str, ...]:
        """Columns that identify a person, by the configuration."""
        if self.config.sources:
            return tuple(self.config.sources[self.config.source_of(self.name)].key)
        return self.config.run.person or ()

    @property
    def _source(self) -> TableIdentity:
        table, word = self.table.source, self.word
        if self.table.read is not None:
            return TableIdentity(self.dataset or table.name, word=word)
        if table.sql is None:
            return TableIdentity.of_file(Path(table.location), self.dataset, word=word)
        # All queries to one database count as one population, unless the owner says otherwise.
        return TableIdentity(self.dataset, table.place, word=word)

    def quote(self, release: Release, submission: str | None = None) -> BudgetQuote:
        """Returns the charge that ``account`` would make, without creating a missing budget. Raises as ``account``."""
        if self.budget.exists():
            return self.account(release).quote(submission)
        return BudgetQuote.of((), self._source, release, submission)
