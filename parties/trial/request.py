"""What a trial on one machine is asked for.

Provides ``Request`` (the options of `syncret run` and `syncret flaim`), ``Trial`` and ``load_trial``: config, coded
table and partition, checked before anything is written. Secret: the table, which a trial has in one place. Everything
that says which rows belong to whom is drawn from a public seed, so that a restart makes the same owners.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_values import ColumnValues, column_values
from mechanisms.domain import Domain
from mechanisms.errors import DataError
from mechanisms.resolving import coarse_codes
from mechanisms.table import encode
from mechanisms.text_table import TextTable
from mechanisms.workload import Workload
from parties.config import MAX_ROWS, Config
from parties.distaim.feasible import check_feasible, check_memory, owner_memory
from parties.distaim.needs import server_memory
from parties.errors import ConfigError
from parties.trial.jobs import CONCURRENT
from parties.trial.partition import Partition, partition_rows

if TYPE_CHECKING:
    import pandas as pd

METHODS = DISTAIM, AIM = "distaim", "aim"
"""Of `syncret run`; `syncret flaim` has "flaim-VARIANT"."""
_WAIT_S = 86400.0


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be run besides the config. ``clients`` None takes clients.expected; ``label`` is a column's name.

    ``capacity`` is what each owner declares of its rows; None: as `parties.trial.owners` has it.
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
    """A checked request: its config, the coded table (rows, columns), who owns which row, and a digest of it all.

    ``values`` are those of the table as it is written; where there are none the report does without.
    """

    request: Request
    config: Config
    workload: Workload
    codes: NDArray[np.int32]
    partition: Partition
    fingerprint: str
    values: tuple[ColumnValues, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The owners' names."""
        width = max(3, len(str(self.partition.clients - 1)))
        return tuple(f"owner-{index:0{width}d}" for index in range(self.partition.clients))

    def on(self, domain: Domain) -> Self:
        """The same trial on its domain after private bins were measured."""
        config = self.config.resolved(domain)
        codes = coarse_codes(self.config.domain, domain, self.codes)
        return replace(self, config=config, workload=config.build_workload(), codes=codes)


def load_trial(
    config: Config,
    frame: "TextTable | pd.DataFrame",
    request: Request,
    *,
    source: str,
    ignore_extra: bool = False,
) -> Trial:
    """Check config, table and partition together; with ``ignore_extra`` the table may have unknown columns.

    Raises ConfigError (also of what DistAIM cannot do), DataError (table against domain), WorkloadError. Nothing is
    written.
    """
    config = _for_one_machine(config, request)
    workload = config.build_workload()
    if request.method == DISTAIM:
        check_feasible(config, workload)
        check_memory(config, _memory(config, workload), "a trial on one machine")
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
    largest, bound = int(partition.sizes.max()), config.clients.rows_per_client
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
    digest = hashlib.sha256(config.digest().encode())
    digest.update(
        json.dumps(
            [request.method, request.partition, label, request.seed, request.capacity]
        ).encode()
    )
    digest.update(codes.tobytes())
    values = column_values(config.domain, frame)
    return Trial(request, config, workload, codes, partition, digest.hexdigest(), values)


def _memory(config: Config, workload: Workload) -> int:
    """What a run needs whose three servers and owners are on one machine."""
    at_once = min(CONCURRENT, config.clients.expected)
    servers = sum(server_memory(config, workload, pid) for pid in range(3))
    return servers + owner_memory(config, workload, at_once=at_once)


def _for_one_machine(config: Config, request: Request) -> Config:
    """The launcher says when all owners are through; a bound on rows that many owners would overflow is lowered."""
    values: dict[str, object] = {"clients.wait_s": _WAIT_S, "party": None, "tls": None}
    if request.clients is not None:
        bound = min(config.clients.rows_per_client, MAX_ROWS // max(1, request.clients))
        values |= {
            "clients.expected": request.clients,
            "clients.minimum": None,
            "clients.rows_per_client": max(1, bound),
        }
    return config.override(values)


def _column(config: Config, name: str) -> int:
    if name not in config.domain.names:
        raise ConfigError(
            config.source,
            "column",
            f"has no {name!r} for --label; expected one of {', '.join(config.domain.names)}",
        )
    return config.domain.index(name)
