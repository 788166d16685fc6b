"""Tables of a trial's sources: the owner of each row, and the plaintext join, the reference for the result.

Secret: the tables and their keys, which a trial has in one place. Known limits: tables and their join have to fit into
memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Domain
from mechanisms.errors import DataError
from mechanisms.linking import DATE, NUMBER, LinkingKeys, hashed, linking_keys
from mechanisms.table import encode
from mechanisms.text_table import TextTable
from parties.config import BY_KEY, Config
from parties.foundation.errors import ConfigError
from parties.local.partition import Partition, partition_rows
from parties.session.owner import linking_salt, read_keys
from parties.session.source_rows import key_limbs, source_domain

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class LocatedTable:
    """A table in memory, and ``where`` it came from, for error texts."""

    text: TextTable
    where: str


@dataclass(frozen=True, slots=True, eq=False)
class SourceTable:
    """One source's whole ``table`` with its ``codes`` (rows, columns of the source), ``keys``, and owner by row."""

    table: TextTable
    codes: NDArray[np.int32]
    keys: LinkingKeys | None
    partition: Partition


@dataclass(frozen=True, slots=True, eq=False)
class LinkedTables:
    """All sources of ``config``, in its order."""

    config: Config
    tables: tuple[SourceTable, ...]

    @property
    def owners(self) -> NDArray[np.int32]:
        """Owner of each row of all sources, one source after the other, as an index among all owners: (rows,)."""
        starts = np.cumsum([0, *(table.partition.clients for table in self.tables)])
        parts = [
            table.partition.owners + int(start)
            for table, start in zip(self.tables, starts[:-1], strict=True)
        ]
        return np.concatenate(parts).astype(np.int32)

    def shared(self, config: Config) -> NDArray[np.int32]:
        """Returns the owners' rows for sharing in ``config``, zero-padded to the widest source.

        Its digest salts the keys.
        """
        limbs = key_limbs(config)
        width = limbs + max(table.codes.shape[1] for table in self.tables)
        rows = np.zeros((sum(len(table.codes) for table in self.tables), width), np.int32)
        start = 0
        for table in self.tables:
            block = rows[start : start + len(table.codes)]
            if table.keys is not None:
                block[:, :limbs] = hashed(table.keys, linking_salt(config))
            block[:, limbs : limbs + table.codes.shape[1]] = table.codes
            start += len(table.codes)
        return rows

    def joined_rows(self, counted: NDArray[np.bool_] | None = None) -> list[NDArray[np.intp]]:
        """Returns the plaintext join as row numbers by source; of all owners, or of those in the mask ``counted``."""
        present = [np.arange(len(table.codes)) for table in self.tables]
        if counted is not None:
            ends = np.cumsum([len(rows) for rows in present])
            there = np.split(counted[self.owners], ends[:-1])
            present = [rows[here] for rows, here in zip(present, there, strict=True)]
        if self.config.run.link != BY_KEY:
            both = reduce(np.intersect1d, present)
            return [both] * len(self.tables)
        frames = [self._keyed_rows(number, rows) for number, rows in enumerate(present)]
        merged = reduce(lambda left, right: left.merge(right, on="key"), frames)
        return [merged[number].to_numpy(np.intp) for number in range(len(frames))]

    def _keyed_rows(self, number: int, rows: NDArray[np.intp]) -> "pd.DataFrame":
        """Returns the keys of a source's rows, without keys in more rows than a person may have."""
        import pandas as pd

        keys = self.tables[number].keys
        if keys is None:
            raise RuntimeError("rows that are linked by key have keys")
        frame = pd.DataFrame({"key": [keys.keys[row] for row in rows], number: rows})
        often = frame.groupby("key")[number].transform("size") if len(frame) else frame[number]
        return frame[often <= self.config.sources[number].rows_per_person]

    def codes(self, rows: Sequence[NDArray[np.intp]]) -> NDArray[np.int32]:
        """Returns the codes of joined rows in the domain's columns: (joined rows, columns)."""
        domain = self.config.domain
        made = np.empty((len(rows[0]), len(domain.columns)), np.int32)
        for source, table, chosen in zip(self.config.sources, self.tables, rows, strict=True):
            made[:, [domain.index(name) for name in source.columns]] = table.codes[chosen]
        return made

    def text(self, rows: Sequence[NDArray[np.intp]]) -> TextTable:
        """Returns joined rows as written, without keys."""
        columns = {
            name: [table.table.columns[name][row] for row in chosen]
            for number, (table, chosen) in enumerate(zip(self.tables, rows, strict=True))
            for name in _names(source_domain(self.config, number))
            if name in table.table.columns
        }
        return TextTable(columns, range(1, len(rows[0]) + 1), "row")


def _names(domain: Domain) -> tuple[str, ...]:
    """Returns the columns that a table may have as it was read, or with its cells split and its groups gathered."""
    return tuple(dict.fromkeys((*domain.described_names, *domain.written_names)))


def read_sources(
    config: Config,
    tables: Mapping[str, LocatedTable],
    *,
    partition: str,
    label: str | None,
    seed: int,
    ignore_extra: bool,
) -> LinkedTables:
    """Returns the tables by source, split among the owners in ``config``.

    Raises ConfigError if sources and tables differ; DataError if a table does not fit its source, if a key repeats in
    one owner's rows, or if keys of two sources cannot match.
    """
    known = [source.name for source in config.sources]
    if set(tables) != set(known):
        given = f"tables are given for {', '.join(tables) or 'none'}: expected"
        raise ConfigError(
            config.source,
            "source",
            f"has {', '.join(known)}; {given} one for each"
            if known
            else f"is missing; {given} [[source]] tables, or one table for --data",
        )
    read = [
        _read(
            config,
            number,
            tables[name],
            partition=partition,
            label=label,
            seed=seed,
            ignore_extra=ignore_extra,
        )
        for number, name in enumerate(known)
    ]
    linked = LinkedTables(config, tuple(read))
    if config.run.link == BY_KEY:
        _check_kinds(linked, [tables[name].where for name in known])
    else:
        _check_lengths(linked, [tables[name].where for name in known])
        # Rows linked by order: the owner of a row also has the row's columns in the other sources.
        first = read[0].partition
        read = [SourceTable(t.table, t.codes, t.keys, first) for t in read]
        linked = LinkedTables(config, tuple(read))
    return linked


def _read(
    config: Config,
    number: int,
    located: LocatedTable,
    *,
    partition: str,
    label: str | None,
    seed: int,
    ignore_extra: bool,
) -> SourceTable:
    source, domain = config.sources[number], source_domain(config, number)
    table, where = located.text, located.where
    codes = encode(domain, table, source=where, ignore_extra=ignore_extra)
    if not len(codes):
        raise DataError(f"{where}: has a header but no rows; a trial needs some")
    split = partition_rows(
        partition,
        codes,
        domain.shape,
        clients=len(source.owners),
        seed=seed,
        label=domain.index(label) if label in domain.names else None,
    )
    if not source.key:
        return SourceTable(table, codes, None, split)
    keys = linking_keys(
        table, source.key, source=where, missing=config.domain.missing_values, at_most=None
    )
    for client, owner in enumerate(source.owners):
        # The same check as in the owner's own program before an upload.
        rows = split.rows_of(client)
        owner_rows = TextTable(
            {name: [values[row] for row in rows] for name, values in table.columns.items()},
            [table.places[row] for row in rows],
            table.unit,
        )
        read_keys(config, number, owner_rows, where=f"{where} (rows of {owner})")
    return SourceTable(table, codes, keys, split)


def _check_kinds(linked: LinkedTables, sources_shown: Sequence[str]) -> None:
    """Raises DataError if a column of the key has dates in one source and numbers in another."""
    sources = linked.config.sources
    kinds = [table.keys.kinds for table in linked.tables if table.keys is not None]
    for position, found in enumerate(zip(*kinds, strict=True)):
        if {DATE, NUMBER} <= set(found):
            said = "; ".join(
                f"{source.key[position]!r} in {where} has {kind}"
                for source, where, kind in zip(sources, sources_shown, found, strict=True)
            )
            raise DataError(
                f"linking keys cannot match: {said}; expected the same in all sources (source.key)"
            )


def _check_lengths(linked: LinkedTables, sources_shown: Sequence[str]) -> None:
    """Raises DataError if tables with rows in one order have different numbers of rows."""
    rows = [len(table.codes) for table in linked.tables]
    if len(set(rows)) > 1:
        said = ", ".join(
            f"{where} {count}" for where, count in zip(sources_shown, rows, strict=True)
        )
        raise DataError(
            f"rows are linked by their order, and the tables have different numbers of them: {said}; expected the "
            'same number, or run.link = "key"'
        )
