"""SDMetrics' scores of tables with keys: runs in an environment of its own, and imports nothing of this project.

The command reads one JSON object from standard input: `parent`, `child` and `key`; `tables`, by name `real` and
`synthetic` (paths of CSV files); `numbers` and `dates`, names of columns, every other one is categorical; `measured`,
the numbers of the child's rows, which it has in order, person by person. It writes one JSON object to standard output:
scores, 0 to 1, 1 the best, null where SDMetrics has none, and `scorer`, its version.

Source: SDMetrics' QualityReport for several tables has `shapes`, `pairs` (as in `score.py`, mean over the tables),
`cardinality` (of the numbers of rows of a person, one less the Kolmogorov-Smirnov distance) and `intertable` (as
`pairs`, of a person's column and a row's). Of its measures of sequences, all one less a Kolmogorov-Smirnov distance,
`lengths` is SequenceLengthSimilarity, of persons with rows alone; `levels` and `spreads` are StatisticMSAS of the means
and standard deviations within persons, `changes` is InterRowMSAS of differences from row to row: means over `measured`.
"""

import contextlib
import importlib
import importlib.metadata
import json
import math
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import pandas as pd

Tables = dict[str, pd.DataFrame]


def read(request: Mapping[str, Any], which: str) -> Tables:
    """Reads the real or the synthetic tables; text that is no number or date is missing in such columns."""
    tables = {}
    for name, paths in request["tables"].items():
        frame = pd.read_csv(paths[which], dtype=str, keep_default_na=False)
        for column in frame.columns:
            if column in request["numbers"]:
                frame[column] = pd.to_numeric(frame[column], errors="coerce")
            elif column in request["dates"]:
                frame[column] = pd.to_datetime(frame[column], errors="coerce")
        tables[name] = frame
    return tables


def metadata(request: Mapping[str, Any], tables: Tables) -> dict[str, Any]:
    """Returns the description of the tables that SDMetrics expects."""
    parent, key = request["parent"], request["key"]
    described = {}
    for name, frame in tables.items():
        columns = {}
        for column in frame.columns:
            if column in request["dates"]:
                columns[column] = {"sdtype": "datetime", "datetime_format": "%Y-%m-%d"}
            elif column in request["numbers"]:
                columns[column] = {"sdtype": "numerical"}
            else:
                columns[column] = {"sdtype": "id" if column == key else "categorical"}
        described[name] = {"columns": columns} | ({"primary_key": key} if name == parent else {})
    relation = {
        "parent_table_name": parent,
        "parent_primary_key": key,
        "child_table_name": request["child"],
        "child_foreign_key": key,
    }
    return {"tables": described, "relationships": [relation]}


def score(request: Mapping[str, Any]) -> dict[str, object]:
    """Returns the answer to a request."""
    real, synthetic = read(request, "real"), read(request, "synthetic")
    report = importlib.import_module("sdmetrics.reports").QualityReport()
    report.generate(real, synthetic, metadata(request, real), verbose=False)
    scores = dict(report.get_properties()[["Property", "Score"]].values.tolist())
    return {
        "shapes": known(scores["Column Shapes"]),
        "pairs": known(scores["Column Pair Trends"]),
        "cardinality": known(scores["Cardinality"]),
        "intertable": known(scores["Intertable Trends"]),
        **sequences(request, real[request["child"]], synthetic[request["child"]]),
        "scorer": f"sdmetrics {importlib.metadata.version('sdmetrics')}",
    }


def sequences(
    request: Mapping[str, Any], real: pd.DataFrame, synthetic: pd.DataFrame
) -> dict[str, float | None]:
    """Returns the scores of the child's rows as sequences."""
    single = importlib.import_module("sdmetrics.single_column")
    statistical = importlib.import_module("sdmetrics.column_pairs.statistical")
    key, both = request["key"], (real, synthetic)
    pairs = [[(of[key], of[name]) for of in both] for name in request["measured"]]
    msas, rows = statistical.StatisticMSAS, statistical.InterRowMSAS
    return {
        "lengths": known(single.SequenceLengthSimilarity.compute(real[key], synthetic[key])),
        "levels": mean([msas.compute(*pair, statistic="mean") for pair in pairs]),
        "spreads": mean([msas.compute(*pair, statistic="std") for pair in pairs]),
        "changes": mean([rows.compute(*pair) for pair in pairs]),
    }


def mean(scores: list[float]) -> float | None:
    """Returns the mean of the scores that there are; None without any."""
    found = [score for score in map(known, scores) if score is not None]
    return sum(found) / len(found) if found else None


def known(score: float | None) -> float | None:
    """Returns a score, or None for SDMetrics' NaN."""
    return None if score is None or math.isnan(score) else float(score)


def main() -> None:
    """Answers one request."""
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        answer = score(json.load(sys.stdin))
    print(json.dumps(answer))  # noqa: T201  # the parent reads it


if __name__ == "__main__":
    main()
