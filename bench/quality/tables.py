"""The benchmark tables in three descriptions: numbers in equal bins, in their shape, and measured.

These are published tables, so all values are public, and as in `bench.datasets` a domain is read from the table itself.
`UNIFORM` is a draft from before columns could have atoms, scales and edges; `SHAPED` is a draft by `syncret data
draft`. Adult has both by hand, in examples/. `PRIVATE` knows no more than `UNIFORM`: a run measures fine cells and
finds its bins (`mechanisms.private_bins`). The ugly tables are made up (`bench.quality.ugly`).

Limits: large tables are drawn from at random; the coded Adult is left out, since codes are bins already.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.datasets import published_table
from bench.networks import ROOT
from bench.quality import ugly
from bench.quality.forms import FORMS, plain
from mechanisms.column_parts import DEFAULT_BINS
from mechanisms.columns import Column
from mechanisms.domain import Domain, Integer, Real
from mechanisms.draft import draft_of
from mechanisms.private_bins import PrivateBins
from mechanisms.text_table import TextTable
from parties.config import load_config

UNIFORM, SHAPED, PRIVATE = "uniform", "shaped", "private"
TRAIN_SHARE, DRAW_SEED = 0.9, 571
MOST_CLASSES = 30
"""Largest number of classes of a target; with more values the classes are above its median, and not."""
TARGETS: Mapping[str, str] = {
    "adult": "income",
    "body_performance": "class",
    "census": "label",
    "covtype": "cover_type",
    "heart_failure": "DEATH_EVENT",
    "intrusion": "label",
    "magic": "class",
    "marketing": "y",
    "school": "score",
    **ugly.TARGETS,
}
NAMES = tuple(TARGETS)
_EXAMPLES = {"adult": ("adult.toml", "adult-shaped.toml")}


@dataclass(frozen=True, slots=True, eq=False)
class RealTable:
    """Rows to synthesise from (`train`) and held out (`test`), all cells text; three `domains` of the same columns."""

    name: str
    target: str
    train: pd.DataFrame
    test: pd.DataFrame
    domains: Mapping[str, Domain]

    @property
    def kinds(self) -> dict[str, str]:
        """Kinds of the columns for a scorer: `numerical` or `categorical`."""
        return {
            name: "numerical" if name in self.numbers else "categorical"
            for name in self.train.columns
        }

    @property
    def numbers(self) -> frozenset[str]:
        """Columns of numbers; of an ugly table those that are numbers, dates or times to people."""
        if self.name in FORMS:
            return frozenset(FORMS[self.name])
        columns = self.domains[UNIFORM].columns
        return frozenset(c.name for c in columns if isinstance(c, Integer | Real))

    def plain(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Returns a table of the same columns as scores read it: every written number as a plain one."""
        return plain(self.name, frame)

    @property
    def atoms(self) -> list[tuple[str, float]]:
        """Columns and values that the shaped domain gives cells of their own."""
        return [
            (column.name, float(atom))
            for column in self.domains[SHAPED].columns
            if isinstance(column, Integer | Real)
            for atom in column.atoms
        ]


@lru_cache(maxsize=1)
def load_table(name: str, rows: int) -> RealTable:
    """Loads at most `rows` rows of a table, nine tenths of them to synthesise from. Raises DatasetError, DataError."""
    frame = ugly.ugly_table(name, rows) if name in ugly.NAMES else published_table(name)[0]
    order = np.random.default_rng(DRAW_SEED).permutation(len(frame))[:rows]
    frame = frame.iloc[order]
    domains = _domains(name, frame)
    frame = frame[list(domains[UNIFORM].written_names)]
    held = round(TRAIN_SHARE * len(frame))
    return RealTable(name, TARGETS[name], frame[:held], frame[held:], domains)


def _domains(name: str, frame: pd.DataFrame) -> dict[str, Domain]:
    if name in _EXAMPLES:
        files = _EXAMPLES[name]
        equal, shaped = (load_config(ROOT / "examples" / file).domain for file in files)
    else:
        shaped = draft_of(TextTable.of(frame), name, "published").domain
        equal = uniform(shaped)
    return {UNIFORM: equal, SHAPED: shaped, PRIVATE: private(equal)}


def uniform(domain: Domain) -> Domain:
    """Returns the domain with bins of equal width from the least to the greatest number, atoms included."""
    return replace(domain, columns=tuple(_equal_bins(column) for column in domain.columns))


def private(domain: Domain) -> Domain:
    """Returns the domain with private bins as `data draft --private-bins` proposes: not for few whole numbers."""
    return replace(domain, columns=tuple(_private_bins(column) for column in domain.columns))


def _private_bins(column: Column) -> Column:
    if isinstance(column, Integer) and column.values > DEFAULT_BINS:
        return replace(column, private=PrivateBins())
    if isinstance(column, Real) and column.decimals is not None:
        return replace(column, private=PrivateBins())
    return column


def _equal_bins(column: Column) -> Column:
    if isinstance(column, Integer):
        low, high = min((*column.atoms, column.low)), max((*column.atoms, column.high))
        plain = replace(
            column, edges=(), within=(), atoms=(), scale="linear", bins=DEFAULT_BINS, endings=()
        )
        return replace(plain, low=low, high=high)
    if isinstance(column, Real):
        bounds = min((*column.atoms, column.low)), max((*column.atoms, column.high))
        real = replace(
            column, edges=(), within=(), atoms=(), scale="linear", bins=DEFAULT_BINS, endings=()
        )
        return replace(real, low=bounds[0], high=bounds[1])
    return column


def features(
    kinds: Mapping[str, str], target: str, tables: list[pd.DataFrame]
) -> tuple[list[NDArray[np.int32]], int]:
    """Returns all tables as ranks of their values, int32 (rows, columns), and the target's column.

    Trees use the order of values and nothing else, so a rank is as good as the number itself.
    """
    pooled = pd.concat(tables, ignore_index=True)
    ranks = np.empty(pooled.shape, np.int32)
    for i, name in enumerate(pooled.columns):
        values = pooled[name]
        if kinds[name] == "numerical":
            values = pd.to_numeric(values, errors="coerce")
        ranks[:, i] = pd.factorize(values, sort=True)[0]
    label = pooled.columns.get_loc(target)
    if not isinstance(label, int):
        raise TypeError(f"{target} is more than one column")
    if len(np.unique(ranks[: len(tables[0]), label])) > MOST_CLASSES:
        ranks[:, label] = ranks[:, label] > np.median(ranks[: len(tables[0]), label])
    ends = np.cumsum([len(table) for table in tables])[:-1]
    return np.split(ranks, ends), label
