"""SDMetrics' score of a synthetic table: runs in an environment of its own, and imports nothing of this project.

The command reads one JSON object from standard input (`real` and `synthetic`, paths of CSV files with the same
columns, and `kinds`, by column `numerical` or `categorical`) and writes one to standard output: `shapes` and `pairs`,
the report's two properties, both 0 to 1, 1 the best, and `scorer`, its version.

Source: SDMetrics' QualityReport. Column shapes: 1 less the Kolmogorov-Smirnov distance of numbers, 1 less the total
variation distance of categories, mean over columns. Pair trends: half the difference of correlations, or the total
variation distance of contingency tables (numbers in ten bins), mean over the pairs that the report counts.
"""

import contextlib
import importlib
import importlib.metadata
import json
import sys
import warnings
from collections.abc import Mapping

import pandas as pd

NUMERICAL = "numerical"


def read(path: str, kinds: Mapping[str, str]) -> pd.DataFrame:
    """Reads a table, with numbers in numerical columns; text there that is no number is missing."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    for name, kind in kinds.items():
        if kind == NUMERICAL:
            frame[name] = pd.to_numeric(frame[name], errors="coerce")
    return frame


def score(request: Mapping[str, object]) -> dict[str, object]:
    """Returns the answer to a request."""
    kinds = request["kinds"]
    if not isinstance(kinds, Mapping):
        raise TypeError("kinds: expected an object of column names")
    real, synthetic = (read(str(request[name]), kinds) for name in ("real", "synthetic"))
    report = importlib.import_module("sdmetrics.reports.single_table").QualityReport()
    metadata = {"columns": {name: {"sdtype": kind} for name, kind in kinds.items()}}
    report.generate(real, synthetic, metadata, verbose=False)
    scores = dict(report.get_properties().values.tolist())
    return {
        "shapes": float(scores["Column Shapes"]),
        "pairs": float(scores["Column Pair Trends"]),
        "scorer": f"sdmetrics {importlib.metadata.version('sdmetrics')}",
    }


def main() -> None:
    """Answers one request."""
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        answer = score(json.load(sys.stdin))
    print(json.dumps(answer))  # noqa: T201  # the parent reads it


if __name__ == "__main__":
    main()
