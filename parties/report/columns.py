"""Summaries of columns at the resolution of the input: of the synthetic table, and of the real one if at hand.

The section `columns` of report.json and its figures. Bins hide values, so shares of single values, of zeros and of
atoms, means and quantiles are taken from the tables as they are written. Secret: the real table's values, in trials
only. Values under "real", and distances to them, are computed without noise and not private.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_bounds import kolmogorov
from mechanisms.column_values import ColumnValues, number_text
from mechanisms.columns import Categorical, Column, Moment
from mechanisms.domain import Domain

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
FREQUENT = 0.01
"""Minimum share of rows for a number to be listed; atoms are always listed."""
_NUMBERS_LISTED, _TEXTS_LISTED = 5, 10


def column_summaries(
    domain: Domain,
    synthetic: Sequence[ColumnValues],
    real: Sequence[ColumnValues] | None = None,
) -> tuple[Mapping[str, object], ...]:
    """Returns one summary for each column of the synthetic table, in its order; parties/README.md describes the keys.

    Raises ValueError for a table without rows.
    """
    beside = {values.column: values for values in real or ()}
    known = {column.name: column for column in domain.columns}
    known |= {each.name: each.column for each in domain.derived}
    return tuple(
        _summary(known.get(values.column), values, beside.get(values.column))
        for values in synthetic
    )


def _summary(
    column: Column | None, synthetic: ColumnValues, real: ColumnValues | None
) -> Mapping[str, object]:
    tables = {"synthetic": synthetic} | ({} if real is None else {"real": real})
    if not all(values.rows for values in tables.values()):
        raise ValueError("a table without rows has no values to compare")
    document: dict[str, object] = {"column": synthetic.column, "kind": synthetic.kind}
    document["missing"] = {name: v.missing for name, v in tables.items()}
    if column is None or isinstance(column, Categorical):
        document["values"] = _listed_texts(tables)
    else:
        document |= _numbers(column, tables)
    if real is not None:
        document["distance"] = distance(synthetic, real)
    return document


def _numbers(column: Column, tables: Mapping[str, ColumnValues]) -> dict[str, object]:
    """Returns the figures that only numbers and moments have."""
    document: dict[str, object] = {}
    if not isinstance(column, Moment):
        document["zeros"] = {name: share_of(v, 0) for name, v in tables.items()}
    if atoms := _atoms(column):
        document["atoms"] = {
            name: sum(share_of(v, atom) for atom in atoms) for name, v in tables.items()
        }
    if all(len(v.counts) for v in tables.values()):
        document["mean"] = {
            name: _column_json_value(
                column, round(mean_of(v)) if isinstance(column, Moment) else mean_of(v)
            )
            for name, v in tables.items()
        }
        document["quantiles"] = {
            f"{q:g}": {
                name: _column_json_value(column, quantile_of(v, q)) for name, v in tables.items()
            }
            for q in QUANTILES
        }
    document["values"] = _listed_numbers(column, atoms, tables)
    return document


def _atoms(column: Column) -> tuple[float, ...]:
    if isinstance(column, Categorical):
        return ()
    if isinstance(column, Moment):
        return tuple(column.tick(atom) for atom in column.atoms)
    return column.atoms


def _column_json_value(column: Column, number: float) -> float | str:
    """Returns a number for JSON; for a moment the text as it is written."""
    if isinstance(column, Moment):
        return number_text(column, number)
    return number


def share_of(values: ColumnValues, number: float) -> float:
    """Returns the share of all rows that have ``number``."""
    return float(values.counts[_all_numbers(values) == number].sum() / values.rows)


def mean_of(values: ColumnValues) -> float:
    """Returns the mean of the numbers."""
    return float(np.average(_all_numbers(values).astype(np.float64), weights=values.counts))


def quantile_of(values: ColumnValues, share: float) -> float:
    """Returns the least number that at least ``share`` of the rows with a number do not exceed."""
    sums = np.cumsum(values.counts)
    # The sums are whole numbers of rows; the factor absorbs the rounding of a product of doubles.
    index = np.searchsorted(sums, share * sums[-1] * (1 - 1e-12))
    number: float = _all_numbers(values)[index].item()
    return number


def _all_numbers(values: ColumnValues) -> NDArray[np.int64] | NDArray[np.float64]:
    if values.numbers is None:
        raise ValueError(f"column {values.column!r} has no numbers")
    return values.numbers


def _listed_numbers(
    column: Column, atoms: Sequence[float], tables: Mapping[str, ColumnValues]
) -> list[dict[str, object]]:
    """Returns the shares of all atoms and of the most frequent other numbers.

    The real table, if given, decides which numbers are frequent, else the synthetic one.
    """
    of = tables.get("real", tables["synthetic"])
    shares = of.counts / of.rows
    numbers = _all_numbers(of)
    often = [numbers[i].item() for i in np.argsort(-shares, kind="stable") if shares[i] >= FREQUENT]
    others = [number for number in often if number not in atoms][:_NUMBERS_LISTED]
    return [
        {
            "value": number_text(column, number),
            "atom": number in atoms,
            **{name: share_of(v, number) for name, v in tables.items()},
        }
        for number in (*atoms, *others)
    ]


def _listed_texts(tables: Mapping[str, ColumnValues]) -> list[dict[str, object]]:
    of = tables.get("real", tables["synthetic"])
    order = np.argsort(-of.counts, kind="stable")[:_TEXTS_LISTED]
    shares = {name: text_shares(v) for name, v in tables.items()}
    return [
        {"value": of.texts[i], **{name: by.get(of.texts[i], 0.0) for name, by in shares.items()}}
        for i in order
    ]


def text_shares(values: ColumnValues) -> dict[str, float]:
    """Returns the share of all rows that have each text."""
    return {
        text: int(count) / values.rows
        for text, count in zip(values.texts, values.counts, strict=True)
    }


def distance(one: ColumnValues, other: ColumnValues) -> float:
    """Returns the distance between the values of two columns, 0 to 1.

    For numbers and moments: the largest difference of the two distribution functions (Kolmogorov and Smirnov), over
    rows with a value; 1 if only one table has any. For texts: the total variation, with missing values counted as one
    text.
    """
    if one.numbers is None or other.numbers is None:
        shares = [{**text_shares(v), None: v.absent / v.rows} for v in (one, other)]
        return _total_variation(shares[0], shares[1])
    return kolmogorov(one, other)


def _total_variation(one: Mapping[str | None, float], other: Mapping[str | None, float]) -> float:
    keys: Iterable[str | None] = one.keys() | other.keys()
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in keys) / 2
