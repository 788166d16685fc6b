"""Synthetic tables from a released model.

All values here are public; drawing rows from a model costs no privacy.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from mechanisms.model import Model
from mechanisms.sampling import public_generator
from mechanisms.table import decode

PART = 1 << 20
"""Rows that are text in memory at once; as codes all rows are in memory, 4 bytes a value."""


def synthetic_parts(model: Model, rows: int, *, seed: int) -> Iterator[pd.DataFrame]:
    """Yields ``rows`` rows drawn from ``model``, as text, in parts of at most ``PART`` rows.

    The columns are those of the model's domain. The same seed gives the same rows. Raises ``ValueError`` unless
    ``rows`` is positive.
    """
    generator = public_generator(seed)
    codes = model.sample(rows, generator)
    for start in range(0, rows, PART):
        yield decode(model.domain, codes[start : start + PART], generator)
