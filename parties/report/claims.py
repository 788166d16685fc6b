"""Claims on each column of a synthetic table, in the column's units: the part `columns` of `quality`.

Claims follow from the intervals of `quality`, the public domain and the synthetic table alone. All values here are
public except the additions of ``claims_with_truth``, which are computed from the real table without noise (trials
only).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_bounds import (
    QUANTILES,
    ColumnBounds,
    ValueCells,
    cell_counts,
    column_bounds,
    kolmogorov,
    prefix_error,
    value_cells,
    wasserstein,
)
from mechanisms.column_values import ColumnValues, number_of, number_text
from mechanisms.columns import Categorical, Column, Moment, Ordered, has_open_ends
from mechanisms.domain import Domain
from parties.report.columns import distance, mean_of, quantile_of, share_of, text_shares
from parties.report.shares import at_most_text, share_text

_LISTED = 6
"""Maximum number of single values listed per column, the commonest ones."""
_OFTEN = 0.005
"""Minimum synthetic share of a listed value that is no atom."""
_ROUNDING = 1e-9
"""Tolerance for the rounding of sums of doubles."""

MIDDLE = "98 %"
"""Part of a column's values, without the farthest at both ends, whose range distances are compared with."""
_MIDDLE_ENDS = (0.01, 0.99)

Claim = dict[str, Any]


def column_claims(
    quality: Mapping[str, Any],
    domain: Domain,
    codes: NDArray[np.int32],
    values: Sequence[ColumnValues],
) -> list[Claim]:
    """Returns one claim for each column of the domain; parties/README.md describes the keys.

    ``codes`` (rows, columns) and ``values`` are the synthetic table's.
    """
    highs = {tuple(m["columns"]): float(m["high"]) for m in quality["marginals"]}
    known = {of["column"]: of for of in quality.get("fine", ())}
    by_name = {of.column: of for of in values}
    claims = []
    for i, column in enumerate(domain.columns):
        shares = np.bincount(codes[:, i], minlength=column.size) / len(codes)
        off = highs.get((column.name,), 2.0) / 2
        if isinstance(column, Categorical):
            claims.append(_of_categories(column, shares, off))
        else:
            own = by_name[column.name]
            claim = _of_numbers(column, shares, off, own, known.get(column.name))
            claims.append(claim | _of_middle(claim, own))
    return claims


def _of_categories(column: Categorical, shares: NDArray[np.float64], off: float) -> Claim:
    of_labels = shares[: len(column.labels)]
    often = np.argsort(-of_labels, kind="stable")[:_LISTED]
    # Values that share a code come out equally often, whatever their real shares are.
    lost = float(of_labels[column.alike > 1].sum())
    return {
        "column": column.name,
        "kind": column.kind,
        "off": min(1.0, off + lost + (off if lost else 0.0)),
        "lost": lost,
        **_missing(column, shares, off),
        "values": [_value(column.labels[i], float(shares[i]), off) for i in often],
    }


def _of_numbers(
    column: Ordered,
    shares: NDArray[np.float64],
    off: float,
    values: ColumnValues,
    fine: Mapping[str, Any] | None,
) -> Claim:
    """Returns the claim on a column of numbers, by its own cells, or by its fine ones if these give a smaller bound."""
    # The cells of values come first; those of marks and of missing values follow.
    cells_of_values = column.size - column.missing - len(column.marks)
    of_cells = shares[:cells_of_values]
    present = float(of_cells.sum())
    if not present > 0:
        # A column without present values allows no claim on its values.
        return _document(column, value_cells(column), None, shares, off=1.0, single=min(1.0, off))
    by_cells = _bounds(value_cells(column), of_cells, off / present)
    if fine is None:
        return _document(column, *by_cells, shares, off=off / present, single=off)
    cells = value_cells(column, fine=True)
    exact = cell_counts(cells, values) / values.rows
    prefix = _prefix_error(column, exact, fine)
    # The error among the rows with a value: their share is itself a prefix, which doubles the error.
    of_values = prefix * (2 / present if column.missing or column.marks else 1)
    by_fine = _bounds(cells, exact, of_values)
    if by_fine[1].off >= by_cells[1].off:
        # The fine counts place the values within a cell, so the width of the fine cells is the one to state.
        claim = _document(column, *by_cells, shares, off=off / present, single=off)
        return claim | _widest(column, cells)
    # A single cell is the difference of two prefixes.
    exact = np.append(exact, shares[cells_of_values:])
    claim = _document(column, *by_fine, exact, off=of_values, single=2 * prefix)
    # Fine cells say nothing on the relation of these values to other columns.
    return claim | {"bin_lost": by_cells[1].lost}


def _bounds(
    cells: ValueCells, shares: NDArray[np.float64], off: float
) -> tuple[ValueCells, ColumnBounds]:
    return cells, column_bounds(cells, shares / shares.sum(), off)


def _prefix_error(column: Ordered, shares: NDArray[np.float64], fine: Mapping[str, Any]) -> float:
    histogram = () if column.private is None else column.private.histogram
    low, high = fine["rows"]
    error = prefix_error(
        shares, np.array(histogram, np.float64), noise=fine["noise"], rows=(low, high)
    )
    return error + float(fine["elsewhere"])


def _document(
    column: Ordered,
    cells: ValueCells,
    bounds: ColumnBounds | None,
    shares: NDArray[np.float64],
    *,
    off: float,
    single: float,
) -> Claim:
    """Returns a claim from the ``shares`` (cells, marks, missing) of all rows.

    ``off`` is the bound for sets of cells, ``single`` the bound for one cell.
    """
    document: Claim = {"column": column.name, "kind": column.kind}
    document |= {"open": ends} if (ends := open_ends(column)) else {}
    document |= {"off": 1.0, "lost": 0.0} if bounds is None else _off(column, cells, bounds, off)
    document |= _missing(column, shares, single)
    if bounds is not None:
        low, high = bounds.mean
        document["mean"] = _interval(column, low, high)
        document["quantiles"] = {
            f"{q:g}": _interval(column, *ends)
            for q, ends in zip(QUANTILES, bounds.quantiles, strict=True)
        }
    document["values"] = [
        {**_value(number_text(column, cells.ranges[i][0]), float(shares[i]), single), "atom": atom}
        for i, atom in _singled(cells, shares)
    ] + [
        {**_value(mark, float(shares[len(cells.ranges) + i]), single), "mark": True}
        for i, mark in enumerate(column.marks)
    ]
    return document


def _off(column: Ordered, cells: ValueCells, bounds: ColumnBounds, off: float) -> Claim:
    span = cells.span
    document: Claim = {
        "off": bounds.off,
        "cells_off": min(1.0, off),
        "lost": bounds.lost,
        "bin_lost": bounds.lost,
        "moved": bounds.moved,
        "moved_of_range": bounds.moved / span if span > 0 else 0.0,
    }
    if isinstance(column, Moment):
        document["unit"] = column.unit
    if bounds.heaviest is not None:
        document["heaviest"] = _interval(column, *cells.ranges[bounds.heaviest])
    return document | _widest(column, cells)


def _of_middle(claim: Claim, values: ColumnValues) -> Claim:
    """Returns how far values are moved in parts of the range of ``MIDDLE`` of them, None where they are one value.

    A column's whole range may be as long as its bounds are generous, and one value may be as far as it likes.
    """
    if "moved" not in claim or not len(values.counts):
        return {}
    first, last = (quantile_of(values, level) for level in _MIDDLE_ENDS)
    return {"moved_of_middle": claim["moved"] / (last - first) if last > first else None}


def moved_share(claim: Mapping[str, Any]) -> float | None:
    """Returns how far values are moved, in parts of the range of most of them; None if nothing is said of it.

    Claims of reports of earlier versions have the whole range alone.
    """
    found: float | None = claim.get("moved_of_middle", claim.get("moved_of_range"))
    return found


def _widest(column: Ordered, cells: ValueCells) -> Claim:
    if cells.widest is None:
        return {}
    cell, width = cells.widest
    return {"widest": {**_interval(column, *cells.ranges[cell]), "of_range": width}}


def _singled(cells: ValueCells, shares: NDArray[np.float64]) -> list[tuple[int, bool]]:
    """Returns the commonest cells of one value: atoms, and other cells with a share of at least _OFTEN."""
    found = [
        (i, atom)
        for i, atom in enumerate(cells.atoms)
        if atom or (not cells.wide[i] and shares[i] >= _OFTEN)
    ]
    return sorted(found, key=lambda item: (-shares[item[0]], item[0]))[:_LISTED]


def _missing(column: Column, shares: NDArray[np.float64], off: float) -> Claim:
    if not column.missing:
        return {}
    return {"missing": _share(float(shares[-1]), off)}


def _value(text: str, share: float, off: float) -> Claim:
    return {"value": text, **_share(share, off)}


def _share(share: float, off: float) -> Claim:
    return {"synthetic": share, "low": max(0.0, share - off), "high": min(1.0, share + off)}


def _interval(column: Ordered, low: float, high: float) -> Claim:
    return {
        "low": _json_value(column, low, down=True),
        "high": _json_value(column, high, down=False),
    }


def open_ends(column: Ordered) -> Claim:
    """Returns the ends of a public grid that stands for all numbers or dates, as claims have them; empty for others.

    A figure that is one of these ends bounds nothing.
    """
    if not has_open_ends(column):
        return {}
    cells = value_cells(column, fine=True)
    return _interval(column, cells.ranges[0][0], cells.ranges[-1][1])


def _json_value(column: Ordered, number: float, *, down: bool) -> float | str:
    """Returns a number for JSON; for a moment the text as it is written, rounded outwards."""
    if not isinstance(column, Moment):
        return number
    return number_text(column, np.floor(number) if down else np.ceil(number))


def claims_with_truth(
    claims: Sequence[Mapping[str, Any]],
    domain: Domain,
    synthetic: Sequence[ColumnValues],
    real: Sequence[ColumnValues],
) -> list[Claim]:
    """Returns the claims with the real table's figures under "true", and the claims that do not hold under "wrong"."""
    columns = {column.name: column for column in domain.columns}
    made, beside = ({of.column: of for of in table} for table in (synthetic, real))
    return [
        _with_truth(claim, columns[claim["column"]], made[claim["column"]], beside[claim["column"]])
        for claim in claims
    ]


def truth_text(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the wrong claims in sentences: one sentence if none is wrong, else one per column with a wrong claim."""
    wrong = [claim for claim in claims if claim["wrong"]]
    if not wrong:
        return [f"Compared with the real table, no claim on {_columns(len(claims))} is wrong."]
    return [
        f"Compared with the real table, claims on {claim['column']} are wrong: {', '.join(claim['wrong'])}. Off "
        f"is {share_text(claim['true']['off'])} where at most {at_most_text(claim['off'])} was claimed."
        for claim in wrong
    ]


def _columns(number: int) -> str:
    return "one column" if number == 1 else f"{number} columns"


def _with_truth(
    claim: Mapping[str, Any], column: Column, synthetic: ColumnValues, real: ColumnValues
) -> Claim:
    true: Claim = {}
    wrong: list[str] = []
    if isinstance(column, Categorical):
        true["off"] = distance(synthetic, real)
        shares = _label_shares(column, real)
        of_values = [shares.get(item["value"], 0.0) for item in claim["values"]]
    else:
        true["off"] = kolmogorov(synthetic, real)
        marks = dict(real.marks)
        of_values = [
            marks.get(item["value"], 0) / real.rows
            if item.get("mark")
            else share_of(real, number_of(column, item["value"]))
            for item in claim["values"]
        ]
        if len(synthetic.counts) and len(real.counts):
            true |= _moved(claim, synthetic, real)
            wrong += _wrong_numbers(claim, column, real, true)
    if true["off"] > claim["off"] + _ROUNDING:
        wrong.insert(0, "how far it is off")
    if "missing" in claim:
        true["missing"] = real.missing
        wrong += ["share of missing values"] * (not _inside(claim["missing"], true["missing"]))
    values = [
        {**item, "true": share} for item, share in zip(claim["values"], of_values, strict=True)
    ]
    wrong += [f"share of {item['value']}" for item in values if not _inside(item, item["true"])]
    return {**claim, "values": values, "true": true, "wrong": wrong}


def _label_shares(column: Categorical, real: ColumnValues) -> Mapping[str, float]:
    """Returns the share of the real rows for each label of a code."""
    shares: dict[str, float] = {}
    for text, share in text_shares(real).items():
        code = column.code_of(text)
        if code is not None:
            label = column.labels[code]
            shares[label] = shares.get(label, 0.0) + share
    return shares


def _moved(claim: Mapping[str, Any], synthetic: ColumnValues, real: ColumnValues) -> Claim:
    moved = wasserstein(synthetic, real)
    found: Claim = {"moved": moved}
    for key in ("moved_of_range", "moved_of_middle"):
        if key in claim:
            span = claim["moved"] / claim[key] if claim[key] else 0.0
            found[key] = moved / span if span else 0.0
    if claim.get("moved_of_middle", 0.0) is None:
        found["moved_of_middle"] = None
    return found


def _wrong_numbers(
    claim: Mapping[str, Any], column: Ordered, real: ColumnValues, true: Claim
) -> list[str]:
    """Returns the names of the column's figures that do not hold, and adds the true figures to ``true``."""
    if "mean" not in claim:
        return []
    wrong = ["how far values are moved"] * (
        true["moved"] > claim["moved"] * (1 + _ROUNDING) + _ROUNDING
    )
    mean, by = mean_of(real), {q: quantile_of(real, float(q)) for q in claim["quantiles"]}
    true["mean"] = _json_value(column, mean, down=True)
    true["quantiles"] = {q: _json_value(column, number, down=True) for q, number in by.items()}
    if not _holds(column, claim["mean"], mean):
        wrong.append("mean")
    return wrong + [
        f"{float(q):.0%} quantile"
        for q, number in by.items()
        if not _holds(column, claim["quantiles"][q], number)
    ]


def _holds(column: Ordered, interval: Mapping[str, Any], number: float) -> bool:
    low, high = (_number(column, interval[end]) for end in ("low", "high"))
    room = _ROUNDING * max(1.0, abs(low), abs(high))
    return low - room <= number <= high + room


def _inside(interval: Mapping[str, Any], share: float) -> bool:
    return bool(interval["low"] - _ROUNDING <= share <= interval["high"] + _ROUNDING)


def _number(column: Ordered, shown: float | str) -> float:
    """Returns a figure of a claim as a number."""
    return column.tick(str(shown)) if isinstance(column, Moment) else float(shown)
