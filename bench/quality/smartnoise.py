"""A synthesizer of smartnoise-synth: runs in an environment of its own, and imports nothing of this project.

The command reads one JSON object from standard input and writes a synthetic table of as many rows as the real one,
and to standard output `{"seconds": ..., "synthesizer": its version}`. The request: `method` (`aim`, `mst`), `epsilon`,
`delta`, `train` and `out` (paths of CSV files), and `columns`: name, and for numbers `low`, `high`, `bins`, `decimals`;
every other column is a label. Bounds and labels are public, as for our own methods, so that no budget goes into them:
the package's own BinTransformer and LabelTransformer get them.

Its other settings are the package's defaults. Its BinTransformer returns the middle of a bin for a number, rounded to
the column's decimals.
"""

import contextlib
import importlib
import importlib.metadata
import json
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

Columns = Sequence[Mapping[str, Any]]


def read(path: str, columns: Columns) -> pd.DataFrame:
    """Reads the table, with numbers in columns with bounds."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    for column in columns:
        name = str(column["name"])
        if "low" in column:
            frame[name] = pd.to_numeric(frame[name], errors="coerce")
    return frame[[column["name"] for column in columns]]


def written(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """Returns the table as text, numbers with their decimals, empty for missing ones."""
    for column in columns:
        name, places = str(column["name"]), column.get("decimals")
        if places is not None:
            numbers = pd.to_numeric(frame[name])
            frame[name] = ["" if pd.isna(x) else f"{x:.{places}f}" for x in numbers]
    return frame


def synthesize(request: Mapping[str, Any]) -> dict[str, object]:
    """Writes the synthetic table; returns the seconds taken and the version."""
    snsynth = importlib.import_module("snsynth")
    transform = importlib.import_module("snsynth.transform")
    columns: Columns = request["columns"]
    frame = read(request["train"], columns)
    steps = [
        transform.BinTransformer(
            bins=column["bins"],
            lower=column["low"],
            upper=column["high"],
            nullable=bool(frame[column["name"]].isna().any()),
        )
        if "low" in column
        else transform.LabelTransformer(nullable=False)
        for column in columns
    ]
    started = time.perf_counter()
    synthesizer = snsynth.Synthesizer.create(
        request["method"], epsilon=float(request["epsilon"]), delta=float(request["delta"])
    )
    synthesizer.fit(frame, transformer=snsynth.TableTransformer(steps), preprocessor_eps=0.0)
    drawn = synthesizer.sample(len(frame))
    seconds = time.perf_counter() - started
    written(drawn, columns).to_csv(request["out"], index=False)
    version = importlib.metadata.version("smartnoise-synth")
    return {"seconds": seconds, "synthesizer": f"smartnoise-synth {version}"}


def main() -> None:
    """Answers one request."""
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        answer = synthesize(json.load(sys.stdin))
    print(json.dumps(answer))  # noqa: T201  # the parent reads it


if __name__ == "__main__":
    main()
