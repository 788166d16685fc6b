"""What a trial on one machine is asked for, and the run folder it works in.

Provides ``Request`` (the options of `syncret run`), ``load_trial`` (config, coded table and partition, checked before
anything is written) and ``Folder`` (the run folder: new, or one that an interrupted run of the same request left).
Secret: the table, which a trial has in one place. Everything that says which rows belong to whom is drawn from a public
seed, so that a restart makes the same owners.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mechanisms.table import encode
from mechanisms.workload import Workload
from parties.config import MAX_ROWS, Config
from parties.distaim.outputs import write_json
from parties.errors import ConfigError, StoreError
from parties.trial.partition import Partition, partition_rows

METHODS = ("distaim", "aim")
"""Of `syncret run`; `syncret flaim` has "flaim-VARIANT"."""
_WAIT_S = 86400.0
_MARK = "run.json"


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be run besides the config. ``clients`` None takes clients.expected; ``label`` is a column's name."""

    method: str
    dataset: str
    clients: int | None
    partition: str
    label: str | None
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A checked request: its config, the coded table (rows, columns), who owns which row, and a digest of it all."""

    request: Request
    config: Config
    workload: Workload
    codes: NDArray[np.int32]
    partition: Partition
    fingerprint: str

    @property
    def names(self) -> tuple[str, ...]:
        """The owners' names."""
        width = max(3, len(str(self.partition.clients - 1)))
        return tuple(f"owner-{index:0{width}d}" for index in range(self.partition.clients))


def load_trial(config: Config, frame: pd.DataFrame, request: Request, *, source: str) -> Trial:
    """Check config, table and partition together.

    Raises ConfigError, DataError (table against domain), WorkloadError. Nothing is written.
    """
    config = _for_one_machine(config, request)
    workload = config.build_workload()
    codes = encode(config.domain, frame, source=source)
    clients = config.clients.expected
    if len(codes) < clients:
        raise ConfigError(
            config.source, "clients.expected", f"is {clients}; the table has {len(codes)} rows"
        )
    label = None if request.label is None else _column(config, request.label)
    partition = partition_rows(
        request.partition,
        codes,
        config.domain.shape,
        clients=clients,
        seed=request.seed,
        label=label,
    )
    largest = int(partition.sizes.max())
    if largest > config.clients.rows_per_client:
        raise ConfigError(
            config.source,
            "clients.rows_per_client",
            f"is {config.clients.rows_per_client}; this partition gives one owner {largest} rows",
        )
    digest = hashlib.sha256(config.digest().encode())
    digest.update(json.dumps([request.method, request.partition, label, request.seed]).encode())
    digest.update(codes.tobytes())
    return Trial(request, config, workload, codes, partition, digest.hexdigest())


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


class Folder:
    """The run folder. While a run is unfinished it also holds what a restart needs; ``finish`` removes that.

    ``servers`` are the names of their folders below parties/.

    parties/PID/        one server's folder each, mode 0700: store, transcript, costs, log
    owners/             table, submission states and receipts, mode 0700
    certificates/       the trial's own authority
    run.json            which request this is, and whether it is finished
    """

    def __init__(self, path: Path, servers: Sequence[str] = ("0", "1", "2")) -> None:
        self.path = path
        self.servers = tuple(servers)
        self.resumed = False

    @property
    def config(self) -> Path:
        """The resolved config."""
        return self.path / "config.toml"

    @property
    def certificates(self) -> Path:
        """Certificates and keys of the trial."""
        return self.path / "certificates"

    @property
    def owners(self) -> Path:
        """What the owners' process needs."""
        return self.path / "owners"

    def party(self, pid: int) -> Path:
        """One server's folder."""
        return self.path / "parties" / self.servers[pid]

    @property
    def parties(self) -> tuple[Path, ...]:
        """The servers' folders."""
        return tuple(self.party(pid) for pid in range(len(self.servers)))

    @property
    def finished(self) -> bool:
        """Whether the folder holds a finished run. Raises StoreError where that cannot be told."""
        mark = self._read_mark()
        return mark is not None and mark.get("finished") is True

    def open(self, fingerprint: str) -> None:
        """Make the folder, or take up an interrupted run of the same request (then ``resumed`` is true).

        Raises StoreError, and changes nothing, where the folder holds anything else or cannot be written.
        """
        mark = self._read_mark()
        if mark is None and self.path.exists() and any(self._entries()):
            raise StoreError(
                self.path, "is not empty and not a run of this program; expected a new folder"
            )
        if self.finished:
            raise StoreError(self.path, "holds a finished run; expected a new folder for --out")
        if mark is not None and mark.get("fingerprint") != fingerprint:
            raise StoreError(
                self.path,
                "holds an unfinished run of another config, table or options; expected a new folder, or the same "
                "command again to go on with it",
            )
        self.resumed = mark is not None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if mark is None:
                # First of all: the same command takes up whatever comes after.
                self._write_mark(fingerprint, finished=False)
            for folder in (*self.parties, self.owners):
                folder.mkdir(parents=True, exist_ok=True)
            for folder in (self.path / "parties", self.owners, *self.parties):
                folder.chmod(0o700)
        except OSError as error:
            raise StoreError(
                self.path, f"cannot be made: {error.strerror or error}; expected a writable place"
            ) from error

    def finish(self, fingerprint: str) -> None:
        """Mark the run as finished. Raises StoreError."""
        self._write_mark(fingerprint, finished=True)

    def _entries(self) -> list[str]:
        try:
            return os.listdir(self.path)
        except OSError as error:
            raise StoreError(
                self.path, f"cannot be read: {error.strerror or error}; expected a folder"
            ) from error

    def _read_mark(self) -> Mapping[str, object] | None:
        try:
            mark = json.loads((self.path / _MARK).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise StoreError(self.path / _MARK, f"cannot be used: {error}") from error
        return mark if isinstance(mark, dict) else {}

    def _write_mark(self, fingerprint: str, *, finished: bool) -> None:
        write_json(self.path / _MARK, {"fingerprint": fingerprint, "finished": finished})
