"""The benchmark tables of the FLAIM paper by name, coded as in the paper.

`load` returns a `Dataset`: integer codes, their domain, the target column, and the split into training rows and rows
held out. `published_table` returns the cells as published.

All values here are public, since these tables are published. Therefore, as in the paper, a domain's bounds and
categories are read from the table itself. A private table needs a public domain.

A table is read from NAME.csv.gz or NAME.csv in the folder SYNCRET_DATA_DIR if that is set and has one; else the
published original (`bench.published`) is checked and kept in the cache.

Source: FLAIM paper, section 5 and Appendix B, and its authors' loaders: numbers in 32 bins of equal width, subsamples
of the large tables, their seeds. Limits: a subsample is the authors' own only where the whole table is at hand.
"""

import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench import published
from bench.fetch import DatasetError
from bench.synthfs import SynthFs, generate
from mechanisms.domain import Categorical, Column, Domain, Integer, Real
from mechanisms.errors import DataError, DomainError
from mechanisms.table import encode

DATA_VARIABLE = "SYNCRET_DATA_DIR"
BINS = 32
TRAIN_SHARE = 0.9
SPLIT_SEED = 571
SUBSAMPLE_SEED = 1034
SYNTHFS = "synthfs"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Coding of a published table.

    `binned` columns hold numbers and get 32 bins of equal width; `whole` columns hold the codes 0 .. n-1 themselves;
    `dropped` columns are left out; the others are categories. `classes` maps the target's values to groups.
    `rows` is the largest number of rows; more are subsampled.
    """

    label: str
    binned: tuple[str, ...] = ()
    whole: Mapping[str, int] | None = None
    classes: Mapping[str, str] | None = None
    dropped: tuple[str, ...] = ()
    rows: int | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A coded table: `train` and `test` int32 (rows, columns); `label` is the target's column number or None.

    `owners` (train rows,) has the owner of each row where the table itself has owners, else None.
    """

    name: str
    domain: Domain
    train: NDArray[np.int32]
    test: NDArray[np.int32]
    label: int | None
    owners: NDArray[np.int32] | None = None


_CENSUS_NUMBERS = published.names("""
    age, detailed industry recode, detailed occupation recode, wage per hour, capital gains,
    capital losses, dividends from stocks, num persons worked for employer,
    own business or self employed, veterans benefits, weeks worked in year, year
""")
_INTRUSION_CATEGORIES = published.names("protocol_type, service, flag")

RECIPES: Mapping[str, Recipe] = {
    "adult": Recipe("income>50K", whole=published.ADULT_CODES, file="adult-coded"),
    "adult-uci": Recipe(
        "income",
        binned=("age", "fnlwgt", "capital-gain", "capital-loss", "hours-per-week"),
        file="adult",
    ),
    "magic": Recipe("class", binned=published.MAGIC_COLUMNS[:-1]),
    "census": Recipe("label", binned=_CENSUS_NUMBERS, rows=89_785),
    "covtype": Recipe(
        "cover_type",
        binned=published.names("""
            elevation, aspect, slope, horizontal_dist_to_hydro, vertical_dist_to_hydro,
            horizontal_dist_to_road, horizontal_dist_to_fire_points
        """),
        whole={"hillshade_9am": 256, "hillshade_noon": 256, "hillshade_3pm": 256}
        | dict.fromkeys(published.COVTYPE_COLUMNS[10:-1], 2),
        rows=116_202,
    ),
    "credit": Recipe("Class", binned=published.CREDIT_COLUMNS[1:-1], dropped=("Time",)),
    "intrusion": Recipe(
        "label",
        binned=tuple(
            name
            for name in published.INTRUSION_COLUMNS[:-1]
            if name not in (*_INTRUSION_CATEGORIES, "num_outbound_cmds")
        ),
        classes=published.ATTACKS,
        dropped=("num_outbound_cmds",),
        rows=197_608,
    ),
    "marketing": Recipe(
        "y",
        binned=published.names(
            "duration, pdays, emp.var.rate, cons.price.idx, cons.conf.idx, euribor3m, nr.employed"
        ),
        whole={"age": 99, "campaign": 57, "previous": 8},
    ),
}

NAMES = (*sorted(RECIPES), SYNTHFS)
"""Names that `load` accepts."""


def load(
    name: str,
    *,
    synthfs: SynthFs | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Dataset:
    """Returns the table called `name`, coded and split 90/10. `synthfs` is for the table of that name only.

    Raises DatasetError for an unknown name, a table that is not available, or one that is not as published.
    """
    if name == SYNTHFS:
        return _load_synthfs(synthfs or SynthFs())
    if name not in RECIPES:
        raise DatasetError(f"unknown dataset {name!r}; expected one of {', '.join(NAMES)}")
    recipe = RECIPES[name]
    frame, source = published_table(recipe.file or name, progress=progress)
    absent = {recipe.label, *recipe.binned, *(recipe.whole or ())} - set(frame.columns)
    if absent:
        raise DatasetError(f"{source}: has no column {min(absent)!r}, which {name} has")
    frame = frame.drop(columns=[column for column in recipe.dropped if column in frame.columns])
    try:
        if recipe.classes is not None:
            frame[recipe.label] = _grouped(frame[recipe.label], recipe.classes)
        # The domain is that of all rows, as in the authors' code: a subsample may lack the greatest numbers.
        domain = _domain(frame, recipe)
        if recipe.rows is not None and len(frame) > recipe.rows:
            frame = frame.iloc[_drawn(len(frame), recipe.rows, SUBSAMPLE_SEED)]
        codes = encode(domain, frame, source=source)
    except (DataError, DomainError) as error:
        raise DatasetError(f"{name}: {error}") from error
    train = _train_rows(len(codes))
    return Dataset(name, domain, codes[train], codes[~train], domain.index(recipe.label))


def _grouped(labels: "pd.Series[str]", classes: Mapping[str, str]) -> "pd.Series[str]":
    """Maps the target's values to their groups. Raises DataError for a value without a group."""
    if unknown := sorted(set(labels) - set(classes)):
        raise DataError(
            f"column {labels.name!r} has {unknown[0]!r}; expected one of {', '.join(classes)}"
        )
    return labels.map(classes)


def _load_synthfs(settings: SynthFs) -> Dataset:
    domain, codes, owners = generate(settings)
    train = _train_rows(len(codes))
    return Dataset(SYNTHFS, domain, codes[train], codes[~train], None, owners[train])


def _train_rows(rows: int) -> NDArray[np.bool_]:
    """Mask of the training rows, (rows,)."""
    train = np.zeros(rows, bool)
    train[_drawn(rows, round(TRAIN_SHARE * rows), SPLIT_SEED)] = True
    return train


def published_table(
    file: str, *, progress: Callable[[str], None] = lambda line: None
) -> tuple[pd.DataFrame, str]:
    """Returns all cells of a table as strings, as published, and their source. Raises DatasetError."""
    if folder := os.environ.get(DATA_VARIABLE):
        for path in (Path(folder) / f"{file}.csv.gz", Path(folder) / f"{file}.csv"):
            if path.exists():
                return _read(path), str(path)
    advice = (
        f"put {file}.csv.gz (header row, values as published) into a folder and name that in"
        f" {DATA_VARIABLE}"
    )
    if file not in published.PUBLICATIONS:
        raise DatasetError(f"{file}: is not fetched from anywhere; {advice}")
    try:
        return published.fetch_table(file, progress=progress), f"published {file}"
    except DatasetError as error:
        raise DatasetError(f"{file}: {error}. Where there is no network, {advice}") from error


def _read(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path}: cannot be read as CSV: {error}") from error
    if frame.empty:
        raise DatasetError(f"{path}: has no rows")
    # pandas takes a surplus first value of all rows for their index, and pads rows that are too short; no
    # published table has an empty value in its last column.
    if not isinstance(frame.index, pd.RangeIndex):
        raise DatasetError(
            f"{path}: rows have more values than the header's {frame.shape[1]} columns"
        )
    if (short := (frame.iloc[:, -1] == "").to_numpy()).any():
        raise DatasetError(
            f"{path}, row {int(short.argmax()) + 1}: has no value for {frame.columns[-1]!r}, the last of"
            f" {frame.shape[1]} columns"
        )
    # The index is the line number in the file, for error messages.
    frame.index = pd.RangeIndex(2, len(frame) + 2)
    return frame


def _drawn(rows: int, count: int, seed: int) -> NDArray[np.int64]:
    """Returns the rows of pandas' DataFrame.sample(random_state=seed), to draw the same rows as the authors."""
    chosen = np.random.RandomState(seed).choice(rows, size=count, replace=False)
    return np.asarray(chosen, np.int64)


def _domain(frame: pd.DataFrame, recipe: Recipe) -> Domain:
    whole = recipe.whole or {}
    columns: list[Column] = []
    for name in map(str, frame.columns):
        if name in recipe.binned:
            try:
                numbers = frame[name].astype(np.float64)
            except ValueError as error:
                raise DatasetError(f"column {name!r} should hold numbers: {error}") from error
            low, high = float(numbers.min()), float(numbers.max())
            # A constant column still has its bins, as with pandas' cut.
            columns.append(Real(name, low, high if low < high else low + 1.0, BINS))
        elif name in whole:
            columns.append(Integer(name, 0, whole[name] - 1, whole[name]))
        else:
            columns.append(Categorical(name, tuple(sorted(frame[name].unique()))))
    # No spelling stands for a missing value: "?" is a category, as in the paper's coding.
    return Domain(tuple(columns))
