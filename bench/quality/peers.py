"""Tables in the form that other synthesizers take: numbers with bounds; and their rows in the original writing.

Other synthesizers get the knowledge that our methods have with equal bins. Of an ugly table (`bench.quality.ugly`) they
get what a careful person would make of it: plain numbers, and beside a column with marks a column of categories that
names the mark there, or that there is none. With `coded` they get the cells of our shaped columns as labels instead,
the best description that there is, and what they draw is written by our columns.
"""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from bench.quality.forms import FORMS, plain
from bench.quality.tables import UNIFORM, RealTable
from bench.quality.ugly import MARKS
from mechanisms.column_parts import DEFAULT_BINS
from mechanisms.domain import Domain, Integer, Real
from mechanisms.sampling import public_generator
from mechanisms.table import decode, encode

_LABELS = 32
"""Whole numbers of at most this many values are labels to others; more values have bins, as many as ours."""
_BESIDE = " (mark)"


def coded(table: RealTable, domain: Domain) -> pd.DataFrame:
    """Returns the rows to synthesise from as codes of ``domain``, a label for each cell."""
    codes = encode(domain, table.train, source=table.name, ignore_extra=True)
    return pd.DataFrame(codes, columns=list(domain.names)).astype(str)


def cells_of(domain: Domain) -> list[dict[str, object]]:
    """Describes columns of codes for others: name and number of cells."""
    return [
        {"name": name, "cells": cells}
        for name, cells in zip(domain.names, domain.shape, strict=True)
    ]


def decoded(domain: Domain, drawn: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Returns rows of codes that others drew as text, numbers drawn within their cells."""
    codes = drawn[list(domain.names)].to_numpy(np.int32)
    return decode(domain, codes, public_generator(seed))


def peer_columns(table: RealTable) -> list[dict[str, object]]:
    """Describes the columns for others: numbers have `low`, `high`, `bins` and `decimals`, others are labels."""
    if table.name in FORMS:
        return _ugly_columns(table)
    domain = table.domains[UNIFORM]
    described = {column.name: column for column in domain.columns}
    columns: list[dict[str, object]] = []
    for name in domain.written_names:
        column, entry = described.get(name), {"name": name}
        if isinstance(column, Real) or (isinstance(column, Integer) and column.values > _LABELS):
            decimals = column.places if isinstance(column, Real) else 0
            entry |= {"low": column.low, "high": column.high, "bins": column.bins}  # type: ignore[dict-item]
            entry |= {"decimals": decimals}  # type: ignore[dict-item]
        columns.append(dict(entry))
    return columns


def given(table: RealTable) -> pd.DataFrame:
    """Returns the rows to synthesise from in the form for others."""
    if table.name not in FORMS:
        return table.train
    frame = plain(table.name, table.train)
    for name, marks in MARKS[table.name].items():
        here = table.train[name].isin(marks)
        frame[name + _BESIDE] = table.train[name].where(here, "none")
        # Beside a mark stands another row's number, so that no number is missing if others draw no mark.
        known = frame[name][~here & (frame[name] != "")].to_numpy()
        rng = np.random.default_rng(len(frame))
        frame[name] = frame[name].mask(here, pd.Series(rng.choice(known, len(frame)), frame.index))
    return frame


def written_back(table: RealTable, drawn: pd.DataFrame) -> pd.DataFrame:
    """Returns rows that others drew in the table's original writing."""
    forms = FORMS.get(table.name, {})
    if not forms:
        return drawn
    columns = {}
    for name in table.train.columns:
        cells = drawn[name]
        if name in forms:
            cells = pd.Series([_cell(forms[name].write, cell) for cell in cells], dtype=str)
        if name in MARKS[table.name]:
            beside = drawn[name + _BESIDE].reset_index(drop=True)
            cells = cells.reset_index(drop=True).where(beside == "none", beside)
        columns[name] = cells.to_numpy()
    return pd.DataFrame(columns, dtype=str)


def _ugly_columns(table: RealTable) -> list[dict[str, object]]:
    frame, forms = given(table), FORMS[table.name]
    columns: list[dict[str, object]] = []
    for name in frame.columns:
        entry: dict[str, object] = {"name": name}
        if name in forms and frame[name].nunique() > _LABELS:
            known = pd.to_numeric(frame[name], errors="coerce").dropna()
            entry |= {"low": float(known.min()), "high": float(known.max()), "bins": DEFAULT_BINS}
            entry |= {"decimals": forms[name].decimals}
        columns.append(entry)
    return columns


def _cell(write: Callable[[float], str], cell: str) -> str:
    number = float(cell) if cell else math.nan
    return "" if math.isnan(number) else write(number)
