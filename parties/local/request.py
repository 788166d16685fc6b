"""Requests of trials on one machine, with their checks.

``TrialRequest`` holds the options of `syncret run` and `syncret run --method flaim`; ``load_trial`` returns a
``Trial``: config, coded table and partition, checked before anything is written. A public seed determines the owner of
every row, so that a restart makes the same owners. Secret: the table, which a trial has in one place.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_values import ColumnValues, as_measured, column_values
from mechanisms.domain import Domain
from mechanisms.errors import DataError
from mechanisms.resolving import coarse_codes
from mechanisms.table import encode
from mechanisms.text_table import TextTable
from mechanisms.value_pairs import ValuePairs
from mechanisms.workload import Workload
from parties.config import MAX_ROWS, Config
from parties.config.parsing import source_dict
from parties.foundation.errors import ConfigError
from parties.local.jobs import CONCURRENT_OWNERS
from parties.local.partition import Partition, numbered_names, partition_rows
from parties.local.sources import LinkedTables, LocatedTable, read_sources
from parties.mpc.planning.resources import server_memory
from parties.mpc.planning.validation import check_memory, owner_memory, validate_run
from parties.session.owner import bounded_rows
from parties.session.study import Study

if TYPE_CHECKING:
    import pandas as pd

METHODS = DISTAIM, AIM = "distaim", "aim"
"""Methods of `syncret run`; `syncret run --method flaim` has "flaim-VARIANT"."""
_WAIT_S = 86400.0


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """Options besides the config. ``clients`` None takes clients.expected; ``label`` is a column's name.

    ``capacity`` is each owner's declared number of rows; None: the default of `parties.local.participants`.
    """

    method: str
    dataset: str
    clients: int | None
    partition: str
    label: str | None
    seed: int
    capacity: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A checked request: its config, the coded table (rows, columns), each row's owner, and a digest of all of them.

    ``values`` are those of the table as written; without them the report omits their sections.
    """

    request: TrialRequest
    config: Config
    workload: Workload
    codes: NDArray[np.int32]
    partition: Partition
    fingerprint: str
    values: tuple[ColumnValues, ...] = ()
    pairs: ValuePairs | None = None
    """Pairs of the table's columns, as written; None without values or with a single column."""
    linked: LinkedTables | None = None
    """Tables of the sources; ``codes`` is their join, and ``partition`` covers all their rows. None without sources."""

    @property
    def study(self) -> Study:
        """The study of the trial."""
        return Study(self.config, self.workload)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the owners."""
        if self.linked is not None:
            return tuple(owner for source in self.config.sources for owner in source.owners)
        return numbered_names("owner", self.partition.clients)

    def on(self, domain: Domain) -> Self:
        """Returns the same trial on its domain with measured private bins."""
        config = self.config.resolved(domain)
        codes = coarse_codes(self.config.domain, domain, self.codes)
        return replace(
            self,
            config=config,
            workload=config.build_workload(),
            codes=codes,
            values=as_measured(domain, self.values),
        )

    def counted(self, owners: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Returns the rows of ``owners``, a mask by index; with sources, the join of their rows."""
        if self.linked is None:
            return self.codes[owners[self.partition.owners]]
        if owners.all():
            return self.codes
        codes = self.linked.codes(self.linked.joined_rows(owners))
        return coarse_codes(self.linked.config.domain, self.config.domain, codes)

    def shared(self, config: Config) -> NDArray[np.int32]:
        """Returns the owners' rows for sharing: codes; with sources, each source's codes and its rows' keys."""
        return self.codes if self.linked is None else self.linked.shared(config)


def load_trial(
    config: Config,
    frame: "TextTable | pd.DataFrame",
    request: TrialRequest,
    *,
    source: str,
    ignore_extra: bool = False,
) -> Trial:
    """Checks config, table and partition together; with ``ignore_extra`` the table may have unknown columns.

    Raises ConfigError (also for configurations that DistAIM cannot run), DataError (table against domain),
    WorkloadError. Writes nothing.
    """
    config, workload = _checked_request(config, request)
    if config.sources:
        names = " ".join(f"--source {source.name}=TABLE" for source in config.sources)
        raise ConfigError(
            config.source,
            "source",
            f"has tables of their own: expected {names} instead of one table",
        )
    if config.run.person is not None:
        frame = bounded_rows(config, TextTable.of(frame), where=source)
    codes = encode(config.domain, frame, source=source, ignore_extra=ignore_extra)
    clients = config.clients.expected
    if not len(codes):
        raise DataError(f"{source}: has a header but no rows; a trial needs some")
    label = None if request.label is None else _column(config, request.label)
    partition = partition_rows(
        request.partition,
        codes,
        config.domain.shape,
        clients=clients,
        seed=request.seed,
        label=label,
    )
    _check_capacity(config, request, int(partition.sizes.max()))
    digest = _fingerprint(config, request, label)
    digest.update(codes.tobytes())
    values, pairs = column_values(config.domain, frame), _pairs(config, frame)
    return Trial(request, config, workload, codes, partition, digest.hexdigest(), values, pairs)


def load_linked_trial(
    config: Config,
    tables: Mapping[str, LocatedTable],
    request: TrialRequest,
    *,
    ignore_extra: bool = False,
) -> Trial:
    """Does the work of ``load_trial`` for the tables of all sources, by name.

    The request's ``clients`` is the number for each source. Raises as ``load_trial``, and DataError as
    `parties.local.sources.read_sources`, or if nothing joins.
    """
    config, workload = _checked_request(config, request)
    if request.label is not None:
        _column(config, request.label)
    linked = read_sources(
        config,
        tables,
        partition=request.partition,
        label=request.label,
        seed=request.seed,
        ignore_extra=ignore_extra,
    )
    rows = linked.joined_rows()
    if not len(rows[0]):
        raise DataError(
            "no row of one source has a partner in all others: are the keys (source.key) the same, written alike?"
        )
    clients = config.clients.expected
    partition = Partition(request.partition, clients, linked.owners, "of each source by itself")
    _check_capacity(config, request, int(partition.sizes.max()))
    digest, codes = _fingerprint(config, request, request.label), linked.codes(rows)
    # The fingerprint covers the keys as well, salted with the configuration without servers.
    digest.update(linked.shared(config).tobytes() + linked.owners.tobytes())
    text = linked.text(rows)
    values, pairs = column_values(config.domain, text), _pairs(config, text)
    return Trial(
        request, config, workload, codes, partition, digest.hexdigest(), values, pairs, linked
    )


def _pairs(config: Config, frame: "TextTable | pd.DataFrame") -> ValuePairs | None:
    if len(config.domain.columns) < 2:
        return None
    return ValuePairs.of(config.domain, TextTable.of(frame))


def _checked_request(config: Config, request: TrialRequest) -> tuple[Config, Workload]:
    """Returns the configuration for one machine, and its workload, after all checks. Raises ConfigError."""
    config = _local_config(config, request)
    workload = config.build_workload()
    if request.method == DISTAIM:
        validate_run(Study(config, workload))
        check_memory(config, _memory(Study(config, workload)), "a trial on one machine")
    return config, workload


def _check_capacity(config: Config, request: TrialRequest, largest: int) -> None:
    """Raises ConfigError if an owner's ``largest`` number of rows exceeds its bounds."""
    bound = config.clients.rows_per_client
    if largest > bound:
        raise ConfigError(
            config.source,
            "clients.rows_per_client",
            f"is {bound}; this partition gives one owner {largest} rows",
        )
    if request.capacity is not None and not largest <= request.capacity <= bound:
        raise ConfigError(
            config.source,
            "capacity",
            f"is {request.capacity}; expected {largest}, which this partition gives one owner, to {bound} "
            "(clients.rows_per_client)",
        )


def _fingerprint(config: Config, request: TrialRequest, label: int | str | None) -> "hashlib._Hash":
    digest = hashlib.sha256(config.digest().encode())
    asked = [request.method, request.partition, label, request.seed, request.capacity]
    digest.update(json.dumps(asked).encode())
    return digest


def _memory(study: Study) -> int:
    """Memory of a run with its three servers and owners on one machine, in bytes."""
    at_once = min(CONCURRENT_OWNERS, study.config.clients.expected)
    servers = sum(server_memory(study, pid) for pid in range(3))
    return servers + owner_memory(study, at_once=at_once)


def _local_config(config: Config, request: TrialRequest) -> Config:
    """Returns the configuration for one machine.

    The launcher ends the wait for owners, so wait_s is a day. A bound on rows that many owners would overflow is
    lowered.
    """
    values: dict[str, object] = {"clients.wait_s": _WAIT_S, "party": None, "tls": None}
    if config.sources:
        return config.override(values | _owners_of_sources(config, request.clients))
    if request.clients is not None:
        bound = min(config.clients.rows_per_client, MAX_ROWS // max(1, request.clients))
        values |= {
            "clients.expected": request.clients,
            "clients.minimum": None,
            "clients.rows_per_client": max(1, bound),
        }
    return config.override(values)


def _owners_of_sources(config: Config, clients: int | None) -> dict[str, object]:
    """Overrides for ``clients`` owners of each source, named after it.

    None: the owners that the sources name, or else an equal share of clients.expected.
    """
    sources = config.sources
    if clients is None:
        if all(source.owners for source in sources):
            return {}
        if config.clients.expected % len(sources):
            raise ConfigError(
                config.source,
                "clients.expected",
                f"is {config.clients.expected}; expected a multiple of {len(sources)}, as many as there are sources, "
                "or source.owners, or --clients",
            )
        clients = config.clients.expected // len(sources)
    named = [replace(source, owners=numbered_names(source.name, clients)) for source in sources]
    owners = clients * len(sources)
    return {
        "source": [source_dict(source) for source in named],
        "clients.expected": owners,
        "clients.minimum": None,
        "clients.names": None,
        "clients.rows_per_client": min(config.clients.rows_per_client, max(1, MAX_ROWS // owners)),
    }


def _column(config: Config, name: str) -> int:
    if name not in config.domain.names:
        raise ConfigError(
            config.source,
            "column",
            f"has no {name!r} for --label; expected one of {', '.join(config.domain.names)}",
        )
    return config.domain.index(name)
