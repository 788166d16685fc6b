"""Synthetic tables from a released model.

All values here are public; drawing rows from a model costs no privacy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mechanisms.model import Model
from mechanisms.sampling import public_generator
from mechanisms.table import decode

PART = 1 << 20
"""Rows that are text in memory at once; as codes all rows are in memory, 4 bytes a value."""


def synthetic_parts(model: Model, rows: int, *, seed: int) -> Iterator[pd.DataFrame]:
    """Yields ``rows`` rows drawn from ``model``, as text, in parts of at most ``PART`` rows.

    The columns are those of the model's domain. The same seed gives the same rows. Raises ``ValueError`` unless
    ``rows`` is positive, ``EstimationError`` if none of them satisfies the domain's constraints.
    """
    drawn = SyntheticRows(model, rows, seed=seed)
    yield from drawn.parts()


class SyntheticRows:
    """Rows drawn from ``model``: ``codes`` (rows, columns of the domain), and their text in ``parts``.

    The codes are those of the text once that is written: constraints may change some.
    """

    def __init__(self, model: Model, rows: int, *, seed: int) -> None:
        self._domain = model.domain
        self._generator = public_generator(seed)
        self.codes: NDArray[np.int32] = model.sample(rows, self._generator)

    def __repr__(self) -> str:
        return f"SyntheticRows({len(self.codes)})"

    def parts(self) -> Iterator[pd.DataFrame]:
        """Yields the rows as text, in parts of at most ``PART`` rows; to be called once."""
        for start in range(0, len(self.codes), PART):
            yield decode(self._domain, self.codes[start : start + PART], self._generator)
