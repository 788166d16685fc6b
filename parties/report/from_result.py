"""Records of a report, read from the folder of a finished run.

Reports of all methods share these functions. All values here are public.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_values import ColumnValues, column_values
from mechanisms.reading import read_drawn
from mechanisms.table import encode
from mechanisms.text_table import TextTable
from mechanisms.workload import Workload
from parties.config import Config
from parties.foundation.errors import StoreError
from parties.foundation.untrusted_text import parse_json
from parties.report.model import Parameters, SelectedQuery, SourceSize, WorkloadSize


def read_result(directory: Path) -> dict[str, Any]:
    """Returns a server's result.json. Raises StoreError."""
    path = directory / "result.json"
    try:
        document: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(path, f"is not a result: {error}; expected a finished run") from error
    if not isinstance(document, dict):
        raise StoreError(path, "is not a result: it is no table; expected a finished run")
    return document


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticTable:
    """A synthetic table: its codes (rows, columns of the domain), the values of its columns, and its ``text``."""

    codes: NDArray[np.int32]
    values: tuple[ColumnValues, ...]
    text: TextTable


def read_table_of(config: Config, directory: Path) -> SyntheticTable:
    """Returns the run's ``synthetic.csv``. Raises DataError."""
    table, codes = _read(config, directory)
    return SyntheticTable(codes, column_values(config.domain, table), table)


def read_synthetic(config: Config, directory: Path) -> NDArray[np.int32]:
    """Returns the codes of ``synthetic.csv``. Raises DataError."""
    return _read(config, directory)[1]


def _read(config: Config, directory: Path) -> tuple[TextTable, NDArray[np.int32]]:
    path = directory / "synthetic.csv"
    table = read_drawn(path, config.domain)
    return table, encode(config.domain, table, source=path)


def run_parameters(config: Config, clients: int) -> Parameters:
    """Returns the parameters that the configuration asked for."""
    run = config.run
    return Parameters(
        run.epsilon,
        run.delta,
        run.rounds,
        clients,
        config.clients.participation,
        run.noise,
        run.upload,
        run.schedule,
        run.input,
        run.security,
        run.unit,
        config.rows_of_unit,
        run.link if config.sources else None,
    )


def workload_size(
    workload: Workload, rows_capacity: int = 0, sources: tuple[SourceSize, ...] = ()
) -> WorkloadSize:
    """Returns the size of the workload, and the maximum number of rows if servers counted or joined rows."""
    return WorkloadSize(
        len(workload.queries), len(workload.candidates), workload.cells, rows_capacity, sources
    )


def sources_of(config: Config, capacities: Mapping[str, int]) -> tuple[SourceSize, ...]:
    """Returns the sources of a run, with the ``capacities`` of the owners that were counted."""
    return tuple(
        SourceSize(
            source.name,
            source.columns,
            len(there := [capacities[name] for name in source.owners if name in capacities]),
            sum(there),
        )
        for source in config.sources
    )


def selected_queries(result: Mapping[str, Any]) -> tuple[SelectedQuery, ...]:
    """Returns the rounds of a result.json."""
    return tuple(
        SelectedQuery(
            item["round"],
            tuple(item["query"]),
            item["clients"],
            item["rows_estimated"],
            item["sigma"],
        )
        for item in result["selected"]
    )
