"""How good the table is that a run of AIM has written, kept beside it until the report is made.

Provides ``keep_quality``. Public: everything.
"""

from pathlib import Path

from mechanisms.aim import AimResult
from mechanisms.model import Model
from mechanisms.workload import Workload
from parties.config import Config
from parties.distaim.planning import noise_kind
from parties.report.quality import aim_quality, write_quality
from parties.report.result import read_synthetic


def keep_quality(
    table: Path,
    config: Config,
    workload: Workload,
    result: AimResult,
    *,
    model: Model,
    into: Path,
) -> None:
    """Write what the run says of the synthetic table in the folder ``table``, ``into`` another or the same.

    Raises StoreError, DataError.
    """
    codes = read_synthetic(config, table)
    noise = noise_kind(config)
    write_quality(
        into, aim_quality(config, workload, result, noise=noise, model=model, codes=codes)
    )
