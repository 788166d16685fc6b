"""Quality of the table that a run of AIM has written, kept beside it until the report is made.

All values here are public.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.aim import AimResult
from mechanisms.model import Model
from parties.config import earlier_model
from parties.mpc.planning.budget import noise_kind
from parties.report.quality import aim_quality, write_quality
from parties.session.study import Study


def save_quality(
    into: Path,
    study: Study,
    result: AimResult,
    *,
    model: Model,
    codes: NDArray[np.int32],
) -> None:
    """Writes the quality of the synthetic table ``codes`` (rows, columns) to the folder ``into``.

    Raises StoreError, and ConfigError if the model that a refresh starts from is not at hand.
    """
    earlier = earlier_model(study.config)
    write_quality(
        into,
        aim_quality(
            study.config.run,
            study.workload,
            result,
            noise=noise_kind(study.config),
            model=model,
            codes=codes,
            earlier=None if earlier is None else earlier.model(),
        ),
    )
