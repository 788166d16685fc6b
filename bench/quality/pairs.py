"""How far the pairs of columns of a synthetic table are from the real ones, in the reader's values.

Provides `pair_distance` and `permuted`, the baseline: the same table with each column shuffled. Public.

A number falls into the deciles of the real column, anything else into its twenty commonest values and one cell for the
others. The distance of two tables is the mean, over all pairs of columns, of the total variation between the shares of
rows in the cells of a pair, 0 to 1. It does not go by the cells of a run: a run with four cells would find itself good.
"""

import itertools

import numpy as np
import pandas as pd
from numpy.typing import NDArray

_COMMON = 20
_QUANTILES = np.linspace(0, 1, 11)[1:-1]


def pair_distance(real: pd.DataFrame, synthetic: pd.DataFrame, numbers: frozenset[str]) -> float:
    """The mean total variation over all pairs of columns; `numbers` are the columns of numbers.

    Raises ValueError where a table has no rows, or fewer than two columns.
    """
    if not (len(real) and len(synthetic)) or len(real.columns) < 2:
        raise ValueError("tables with rows and two columns have pairs")
    cells = [_cells(real[name], synthetic[name], number=name in numbers) for name in real.columns]
    distances = []
    for (of_real, of_drawn, size), (other_real, other_drawn, other) in itertools.combinations(
        cells, 2
    ):
        shares = [
            np.bincount(first * other + second, minlength=size * other) / len(first)
            for first, second in ((of_real, other_real), (of_drawn, other_drawn))
        ]
        distances.append(np.abs(shares[0] - shares[1]).sum() / 2)
    return float(np.mean(distances))


def permuted(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The table with each column in an order of its own: its columns without what joins them."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {name: table[name].to_numpy()[rng.permutation(len(table))] for name in table.columns}
    )


def _cells(
    real: "pd.Series[str]", synthetic: "pd.Series[str]", *, number: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """The cell of each value of both, and how many cells there are; what is no number has one of its own."""
    if number:
        values, drawn = (
            pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
            for column in (real, synthetic)
        )
        known = values[np.isfinite(values)]
        ends = np.unique(np.quantile(known, _QUANTILES)) if known.size else np.zeros(0)
        missing = len(ends) + 1
        found = [
            np.where(np.isfinite(of), np.searchsorted(ends, of, side="right"), missing)
            for of in (values, drawn)
        ]
        return found[0].astype(np.int64), found[1].astype(np.int64), missing + 1
    common = {value: i for i, value in enumerate(real.value_counts().index[:_COMMON])}
    places = [column.map(common).fillna(_COMMON).to_numpy(np.int64) for column in (real, synthetic)]
    return places[0], places[1], _COMMON + 1
