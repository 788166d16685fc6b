"""Synthesis of tables with keys: by Syncret, as the same table flattened, and by a third party.

All of ours are central AIM with epsilon and delta for a person with all rows. The flattened table has no persons: its
rows are dealt to persons at random, as many to each as real persons have, and put in order. That number costs the flat
table nothing here, which favours it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import tomli_w
from numpy.typing import NDArray

from bench.quality.environment import HMA, PAR, QUALITY, WITH_TORCH, Environment, ask
from bench.tables.data import Frames, Shape, made_tables
from bench.tables.measures import Histories, times
from bench.tables.scores import PERSONS, kinds
from mechanisms.keyed.drafting import draft_tables
from mechanisms.keyed.drawing import draw_persons, keyed_frames
from mechanisms.keyed.views import view_tables
from mechanisms.linked_draft import TableRead
from mechanisms.text_table import TextTable
from parties.api import run
from parties.api.config import draft
from parties.methods.keyed_study import load_keyed_study

HALVES, AGAIN = "halves", "again"
KEYED, KEYED_ROWS, FLAT = "keyed", "keyed-5", "flat"
SDV, SDV_PAR = "sdv-hma", "sdv-par"
METHODS: Mapping[str, str] = {
    HALVES: "one half of the real persons beside the other: a floor for tables of half the size",
    AGAIN: "as many other persons of the same make: the floor",
    KEYED: "tables with keys as drafted",
    KEYED_ROWS: "the same, with 5 rows of a person that count",
    FLAT: "rows with their person's columns as one table of persons with 5 rows",
    SDV: "SDV's HMA, not private",
    SDV_PAR: "SDV's PAR, not private",
}
OURS = (KEYED, KEYED_ROWS, FLAT)
THEIRS: Mapping[str, Environment] = {SDV: QUALITY, SDV_PAR: WITH_TORCH}
"""A third party's methods, and their environments."""
FIRST, GAP = "first time", "time since the row before"
"""Columns that PAR is given for the order."""
ROWS: Final = 5
"""Number of a person's rows that count, where it is not the draft's."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Privacy of our methods, and the processor time of a third party's."""

    epsilon: float = 1.0
    delta: float = 1e-5
    limit_s: float = 600.0


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Drawn histories, the seconds that they took, the number of a person's rows that counted, and who made them."""

    histories: Histories
    seconds: float
    counted: int | None = None
    maker: str | None = None


def synthesize(
    method: str, shape: Shape, real: Frames, *, budget: Budget, seed: int, folder: Path
) -> Drawn:
    """Draws tables as large as the real ones. Raises ThirdPartyError, and our methods' errors."""
    started = time.perf_counter()
    if method == AGAIN:
        persons = real[shape.parent or shape.child][shape.key].nunique()
        return Drawn(_sorted(shape, made_tables(shape.name, persons, seed % 2**32)), 0.0)
    if method in (KEYED, KEYED_ROWS):
        rows = ROWS if method == KEYED_ROWS else None
        histories, counted = keyed(shape, real, budget, rows=rows, seed=seed, folder=folder)
    elif method == FLAT:
        histories, counted = flat(shape, real, budget, seed=seed), ROWS
    elif method == SDV_PAR:
        return _par(shape, real, budget, seed=seed, folder=folder)
    else:
        return _hma(shape, real, budget, folder=folder)
    return Drawn(histories, time.perf_counter() - started, counted)


def keyed(
    shape: Shape, real: Frames, budget: Budget, *, rows: int | None, seed: int, folder: Path
) -> tuple[Histories, int]:
    """Draws persons and their rows from the models of the views; also returns how many rows of a person counted."""
    read = {name: TableRead(TextTable.of(frame), name, "made up") for name, frame in real.items()}
    tables = draft_tables(read).tables.to_dict()
    (child,) = (table for table in tables if table["name"] == shape.child)
    if rows is not None:
        child |= {"rows": rows, "most": max(rows, int(str(child["most"])))}
    config = folder / "study.toml"
    owners = {"expected": 10, "rows_per_client": 100_000}
    document = {"run": _settings(budget), "clients": owners, "table": tables}
    config.write_text(tomli_w.dumps(document), encoding="utf-8")
    study = load_keyed_study(config)
    views = view_tables(
        study.tables,
        {name: of.table for name, of in read.items()},
        where={name: of.where for name, of in read.items()},
    )
    models = {
        name: run.synthesize(views[name].frame(), config, method="aim", seed=seed)._model
        for name, config in study.configs.items()
    }
    persons = draw_persons(study.tables, models, _persons(shape, real), seed=seed % 2**32)
    drawn = {name: frame for name, _, frame in keyed_frames(study.tables, persons)}
    return Histories.of_frames(shape, drawn), int(str(child["rows"]))


def flat(shape: Shape, real: Frames, budget: Budget, *, seed: int) -> Histories:
    """Draws rows with their persons' columns from one table, and deals them to persons at random."""
    rows = real[shape.child]
    if shape.parent is not None:
        others = rows.drop(columns=list(shape.repeated))
        rows = others.merge(real[shape.parent], on=shape.key, how="left")
    person = {"unit": "person", "person": [shape.key], "rows_per_person": ROWS}
    changes = person | {"more_rows": "sample"} | _settings(budget)
    made = run.synthesize(
        rows,
        draft(rows),
        method="aim",
        seed=seed,
        changes={f"run.{name}": value for name, value in changes.items()},
    )
    rng = np.random.default_rng(seed)
    numbers = rng.permutation(_numbers(shape, real))
    drawn = made.sample(len(numbers) + int(numbers.sum()), seed=seed % 2**32).astype(str)
    # A row for each person's columns, and then the persons' rows, whose first one has them where there is one.
    own, rows = drawn[: len(numbers)].copy(), drawn[len(numbers) :].reset_index(drop=True)
    of = np.repeat(np.arange(len(numbers)), numbers)
    first = np.flatnonzero(np.diff(of, prepend=-1))
    own.iloc[of[first]] = rows.iloc[first].to_numpy()
    return Histories.of_rows(shape, own.reset_index(drop=True)[list(shape.own)], rows, of=of)


def real_histories(shape: Shape, real: Frames) -> Histories:
    """Returns the real persons with their rows in order."""
    return _sorted(shape, real)


def _hma(shape: Shape, real: Frames, budget: Budget, *, folder: Path) -> Drawn:
    """Asks SDV's HMA, with a table of persons made of their constants where there is none, and keeps persons' rows."""
    parent = shape.parent or PERSONS
    tables = dict(real)
    if shape.parent is None:
        rows = real[shape.child]
        tables[parent] = rows[[shape.key, *shape.own]].drop_duplicates()
        tables[shape.child] = rows.drop(columns=list(shape.own))
    paths = dict[str, dict[str, str]]()
    for name, frame in tables.items():
        paths[name] = {"train": str(folder / f"{name}.csv"), "out": str(folder / f"{name}-out.csv")}
        frame.to_csv(paths[name]["train"], index=False)
    request = {
        "parent": parent,
        "child": shape.child,
        "key": shape.key,
        "tables": paths,
        **kinds(shape),
    }
    answer: Mapping[str, Any] = ask(HMA, request, limit_s=budget.limit_s)
    drawn = {
        name: pd.read_csv(of["out"], dtype=str, keep_default_na=False) for name, of in paths.items()
    }
    if shape.parent is None:
        drawn = {shape.child: drawn[shape.child].merge(drawn[parent], on=shape.key, how="left")}
    histories = Histories.of_frames(shape, drawn)
    return Drawn(histories, float(answer["seconds"]), maker=str(answer["synthesizer"]))


def _par(shape: Shape, real: Frames, budget: Budget, *, seed: int, folder: Path) -> Drawn:
    """Asks SDV's PAR for as many persons, and takes the rows from as many at random as have none.

    PAR has no person without rows; that number costs it nothing here, which favours it. Times go in as the first of a
    person and the gap before each row, which PAR would make of them, too, but with the rows out of order.
    """
    whole = _sorted(shape, real)
    times_of = pd.Series(whole.time).groupby(whole.of)
    gaps = times_of.diff()
    rows = whole.rows[[*shape.own, *shape.rows]].copy()
    rows[shape.key] = whole.of
    rows[FIRST] = times_of.transform("first").astype(int)
    rows[GAP] = gaps.groupby(whole.of).bfill().fillna(gaps.min()).astype(int)
    paths = {"train": str(folder / "train.csv"), "out": str(folder / "out.csv")}
    rows.to_csv(paths["train"], index=False)
    request = {
        **paths,
        "key": shape.key,
        "own": [*shape.own, FIRST],
        "numbers": sorted(shape.numbers | {FIRST, GAP}),
        "persons": len(whole.own),
        "seed": seed,
    }
    answer = ask(PAR, request, limit_s=budget.limit_s, environment=WITH_TORCH)
    drawn = pd.read_csv(paths["out"], dtype=str, keep_default_na=False)
    histories = _of_sequences(shape, drawn, int((whole.numbers == 0).sum()), seed=seed)
    return Drawn(histories, float(str(answer["seconds"])), maker=str(answer["synthesizer"]))


def _of_sequences(shape: Shape, rows: pd.DataFrame, without: int, *, seed: int) -> Histories:
    """Makes histories of PAR's rows, and takes those of as many persons as are to be ``without``."""
    of = pd.factorize(rows[shape.key])[0].astype(np.int64)
    gaps = rows[GAP].astype(float).groupby(of)
    time = rows[FIRST].astype(float) + gaps.cumsum() - gaps.transform("first")
    rows[shape.order] = _written(shape, np.rint(time.to_numpy()).astype(np.int64))
    own = rows.drop_duplicates(shape.key)[list(shape.own)].reset_index(drop=True)
    kept = (np.random.default_rng(seed).permutation(len(own)) >= without)[of]
    return Histories.of_rows(shape, own, rows[kept].reset_index(drop=True), of=of[kept])


def _written(shape: Shape, times: NDArray[np.int64]) -> NDArray[np.str_]:
    """Returns the text of times: dates of days, or numbers where the order is one."""
    if shape.dated:
        return np.datetime_as_string(times.astype("datetime64[D]"))
    return times.astype(np.str_)


def _settings(budget: Budget) -> dict[str, object]:
    """Returns the values of [run] beside those of a draft."""
    return {"epsilon": budget.epsilon, "delta": budget.delta, "fallback": "columns"}


def _sorted(shape: Shape, frames: Frames) -> Histories:
    ordered = frames[shape.child].sort_values(shape.order, key=times, kind="stable")
    return Histories.of_frames(shape, {**frames, shape.child: ordered})


def _numbers(shape: Shape, real: Frames) -> NDArray[np.int64]:
    """Returns the number of each person's rows."""
    keys = real[shape.child][shape.key].value_counts()
    if shape.parent is None:
        return keys.to_numpy().astype(np.int64)
    return keys.reindex(real[shape.parent][shape.key], fill_value=0).to_numpy().astype(np.int64)


def _persons(shape: Shape, real: Frames) -> int:
    return len(_numbers(shape, real))
