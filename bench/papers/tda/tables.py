"""The tables of the Fed-TDA paper: numbers, codes and labels of training and test rows, and a classifier's inputs.

All values here are public: these are published tables, so that bounds and categories are read from them. A private
table needs a public domain.

Source: Fed-TDA paper, its table of data sets: sizes, numbers of continuous and discrete columns, classes. The choice of
rows is ours: the paper does not say. Limits: `covtype` may be a part of the published table, if that is at hand.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench import published
from bench.datasets import published_table
from bench.fetch import DatasetError

SPLIT_SEED = 7


@dataclass(frozen=True, slots=True)
class Recipe:
    """Conversion of a published `file`: its `label`, `discrete` columns (the others are numbers) and rows.

    `train` and `test` rows are drawn; of a table with fewer, as many in this proportion. `classes`: the most frequent.
    """

    file: str
    label: str
    discrete: tuple[str, ...]
    train: int
    test: int
    classes: int


RECIPES: Mapping[str, Recipe] = {
    "clinical": Recipe(
        "heart_failure",
        "DEATH_EVENT",
        published.names("anaemia, diabetes, high_blood_pressure, sex, smoking"),
        209,
        90,
        2,
    ),
    "covtype": Recipe("covtype", "cover_type", published.COVTYPE_COLUMNS[10:-1], 46_480, 46_482, 7),
    "intrusion": Recipe(
        "intrusion", "label", published.names("protocol_type, service, flag"), 20_000, 9_991, 10
    ),
    "body": Recipe("body_performance", "class", ("gender",), 9_373, 4_020, 4),
}
NAMES = tuple(RECIPES)
"""Names that `load` accepts."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of a table: `numbers` float64 (rows, n_c) in its units, `codes` int32 (rows, n_d - 1), `labels` (rows,)."""

    numbers: NDArray[np.float64]
    codes: NDArray[np.int32]
    labels: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.labels)

    def joined(self, others: "Rows") -> "Rows":
        """Returns these rows and others after them."""
        parts = ((getattr(self, f), getattr(others, f)) for f in ("numbers", "codes", "labels"))
        return Rows(*map(np.concatenate, parts))

    def take(self, which: NDArray[np.generic]) -> "Rows":
        """Returns the rows with these numbers, or those of a mask."""
        return Rows(self.numbers[which], self.codes[which], self.labels[which])


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """`train` and `test` rows; `low` and `high` (n_c,) bound the numbers."""

    name: str
    numbers: tuple[str, ...]
    discrete: tuple[str, ...]
    label: str
    categories: tuple[tuple[str, ...], ...]
    classes: tuple[str, ...]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    train: Rows
    test: Rows

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of categories of each discrete column, without the label."""
        return tuple(map(len, self.categories))

    @property
    def width(self) -> int:
        """Number of a classifier's inputs: numbers and one-hot codes."""
        return len(self.numbers) + sum(self.sizes)

    @property
    def binary(self) -> bool:
        """True if there are two classes, so that the measure is the ROC curve's area and not accuracy."""
        return len(self.classes) == 2

    def scaled(self, rows: Rows) -> NDArray[np.float64]:
        """Returns numbers (rows, n_c) as shares of their public range; a column of one value is 0."""
        span = np.where(self.high > self.low, self.high - self.low, 1.0)
        return np.asarray((rows.numbers - self.low) / span)

    def inputs(self, rows: Rows) -> NDArray[np.float32]:
        """Returns a classifier's inputs, (rows, width): numbers scaled to [-1, 1], codes one-hot."""
        parts = [2 * self.scaled(rows) - 1]
        parts += [np.eye(size)[rows.codes[:, i]] for i, size in enumerate(self.sizes)]
        return np.hstack(parts).astype(np.float32)


def load(
    name: str, *, rows: int | None = None, progress: Callable[[str], None] = lambda line: None
) -> Table:
    """Returns the table called `name`, with at most `rows` training rows.

    Raises DatasetError for an unknown name, a table that is not available, or one that is not as published.
    """
    if name not in RECIPES:
        raise DatasetError(f"unknown dataset {name!r}; expected one of {', '.join(NAMES)}")
    recipe = RECIPES[name]
    frame, source = published_table(recipe.file, progress=progress)
    if absent := {recipe.label, *recipe.discrete} - set(frame.columns):
        raise DatasetError(f"{source}: has no column {min(absent)!r}, which {name} has")
    classes = tuple(sorted(frame[recipe.label].value_counts().index[: recipe.classes]))
    frame = frame[frame[recipe.label].isin(classes)]
    numbers = tuple(c for c in frame.columns if c not in (*recipe.discrete, recipe.label))
    categories = tuple(tuple(sorted(frame[c].unique())) for c in recipe.discrete)
    try:
        values = frame[list(numbers)].astype(np.float64).to_numpy()
    except ValueError as error:
        raise DatasetError(f"{source}: a column of {name} should hold numbers: {error}") from error
    codes = [_coded(frame[c], known) for c, known in zip(recipe.discrete, categories, strict=True)]
    whole = Rows(values, np.stack(codes, axis=1), _coded(frame[recipe.label], classes))
    train, test = _split(recipe, len(whole), rows)
    return Table(
        name,
        numbers,
        recipe.discrete,
        recipe.label,
        categories,
        classes,
        values.min(axis=0),
        values.max(axis=0),
        whole.take(train),
        whole.take(test),
    )


def _coded(column: "pd.Series[str]", known: tuple[str, ...]) -> NDArray[np.int32]:
    return np.asarray(pd.Index(known).get_indexer(pd.Index(column)), np.int32)


def _split(
    recipe: Recipe, found: int, most: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the rows for training and for testing; the latter are the same for any `most`."""
    order = np.random.default_rng(SPLIT_SEED).permutation(found)
    wanted = recipe.train + recipe.test
    test = min(recipe.test, found * recipe.test // wanted)
    train = min(recipe.train, found - test, found if most is None else most)
    return order[test : test + train], order[:test]
