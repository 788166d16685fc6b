"""SDV's HMA for tables with keys, not private: runs in an environment of its own, and imports nothing of this project.

The command reads one JSON object from standard input and writes synthetic tables of as many persons as the real ones,
and to standard output `{"seconds": ..., "synthesizer": its version}`. The request: `parent`, `child` and `key`;
`tables`, by name `train` and `out` (paths of CSV files); `numbers` and `dates`, names of columns; every other one is
categorical. All its settings are the package's defaults. It protects nobody, spends no epsilon, and knows no order of
rows.
"""

import contextlib
import importlib
import importlib.metadata
import json
import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any

import pandas as pd


def synthesize(request: Mapping[str, Any]) -> dict[str, object]:
    """Writes the synthetic tables; returns the seconds taken and the version."""
    multi_table = importlib.import_module("sdv.multi_table")
    metadata_module = importlib.import_module("sdv.metadata")
    parent, key = request["parent"], request["key"]
    numbers, dates = set(request["numbers"]), set(request["dates"])
    frames, tables = {}, {}
    for name, paths in request["tables"].items():
        frame = pd.read_csv(paths["train"], dtype=str, keep_default_na=False)
        columns: dict[str, dict[str, str]] = {}
        for column in frame.columns:
            if column in numbers:
                frame[column] = pd.to_numeric(frame[column], errors="coerce")
                columns[column] = {"sdtype": "numerical"}
            elif column in dates:
                columns[column] = {"sdtype": "datetime", "datetime_format": "%Y-%m-%d"}
            else:
                columns[column] = {"sdtype": "id" if column == key else "categorical"}
        frames[name] = frame
        primary = {"primary_key": key} if name == parent else {}
        tables[name] = {"columns": columns, **primary}
    relation = {
        "parent_table_name": parent,
        "parent_primary_key": key,
        "child_table_name": request["child"],
        "child_foreign_key": key,
    }
    metadata = metadata_module.Metadata.load_from_dict(
        {"tables": tables, "relationships": [relation]}
    )
    started = time.perf_counter()
    synthesizer = multi_table.HMASynthesizer(metadata, verbose=False)
    synthesizer.fit(frames)
    drawn = synthesizer.sample(len(frames[parent]), main_table_name=parent)
    seconds = time.perf_counter() - started
    for name, paths in request["tables"].items():
        drawn[name].to_csv(paths["out"], index=False)
    return {"seconds": seconds, "synthesizer": f"sdv {importlib.metadata.version('sdv')}"}


def main() -> None:
    """Answers one request."""
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        answer = synthesize(json.load(sys.stdin))
    print(json.dumps(answer))  # noqa: T201  # the parent reads it


if __name__ == "__main__":
    main()
