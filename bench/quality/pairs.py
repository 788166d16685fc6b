"""Distance of the pairs of columns of a synthetic table from the real ones, in the reader's values.

`permuted` is the baseline: the same table with each column shuffled. The distance and its cells are those of a trial's
report (`mechanisms.value_pairs`); here tables are as they come, without a domain.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mechanisms.value_pairs import (
    COMMON,
    commonest,
    decile_cells,
    decile_ends,
    mean_pair_distance,
)


def pair_distance(real: pd.DataFrame, synthetic: pd.DataFrame, numbers: frozenset[str]) -> float:
    """Returns the mean total variation over all pairs of columns; `numbers` are the columns of numbers.

    Raises ValueError if a table has no rows, or fewer than two columns.
    """
    if not (len(real) and len(synthetic)) or len(real.columns) < 2:
        raise ValueError("tables with rows and two columns have pairs")
    cells = [_cells(real[name], synthetic[name], number=name in numbers) for name in real.columns]
    of_real, of_drawn = (np.stack([of[i] for of in cells], axis=1) for i in (0, 1))
    return mean_pair_distance(of_real, of_drawn, [size for *_, size in cells])


def permuted(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Returns the table with each column shuffled by itself: its columns without what joins them."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {name: table[name].to_numpy()[rng.permutation(len(table))] for name in table.columns}
    )


def _cells(
    real: "pd.Series[str]", synthetic: "pd.Series[str]", *, number: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Returns the cell of each value of both columns, and the number of cells; text that is no number has its own."""
    if number:
        values, drawn = (
            pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
            for column in (real, synthetic)
        )
        ends = decile_ends(values[np.isfinite(values)])
        return decile_cells(ends, values), decile_cells(ends, drawn), len(ends) + 2
    common = commonest(real)
    places = [
        np.array([common.get(value, COMMON) for value in column], np.int64)
        for column in (real, synthetic)
    ]
    return places[0], places[1], COMMON + 1
