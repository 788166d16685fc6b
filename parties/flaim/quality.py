"""How good the table is that a run of FLAIM has written, kept beside it until the report is made.

Provides ``keep_quality``. Public: everything.
"""

from pathlib import Path

from mechanisms.flaim import FlaimResult
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.workload import Workload
from parties.config import Config
from parties.report.quality import flaim_quality, write_quality
from parties.report.result import read_synthetic


def keep_quality(
    table: Path,
    config: Config,
    workload: Workload,
    settings: FlaimSettings,
    result: FlaimResult,
    *,
    into: Path,
) -> None:
    """Write what the run says of the synthetic table in the folder ``table``, ``into`` another or the same.

    Raises StoreError, DataError.
    """
    rounds = settings.schedule(len(workload.one_way)).rounds
    codes = read_synthetic(config, table)
    write_quality(into, flaim_quality(workload, result, rounds=rounds, codes=codes))
