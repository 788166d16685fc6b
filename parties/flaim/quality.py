"""How good the table is that a run of FLAIM has written, kept beside it until the report is made.

Provides ``keep_quality``. Public: everything.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.flaim import FlaimResult
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.workload import Workload
from parties.report.quality import flaim_quality, write_quality


def keep_quality(
    into: Path,
    workload: Workload,
    settings: FlaimSettings,
    result: FlaimResult,
    *,
    codes: NDArray[np.int32],
) -> None:
    """Write ``into`` a folder what the run says of the synthetic table ``codes`` (rows, columns). Raises StoreError."""
    rounds = settings.schedule(len(workload.one_way)).rounds
    write_quality(into, flaim_quality(workload, result, rounds=rounds, codes=codes))
