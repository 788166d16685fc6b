"""SDV's Gaussian copula, not private: runs in an environment of its own, and imports nothing of this project.

The command reads one JSON object from standard input and writes a synthetic table of as many rows as the real one,
and to standard output `{"seconds": ..., "synthesizer": its version}`. The request: `train` and `out` (paths of CSV
files) and `columns`: name, and for numbers `decimals`; every other column is categorical. All its settings are the
package's defaults. It protects nobody, spends no epsilon, and draws the same rows each time.
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


def synthesize(request: Mapping[str, Any]) -> dict[str, object]:
    """Writes the synthetic table; returns the seconds taken and the version."""
    single_table = importlib.import_module("sdv.single_table")
    metadata_module = importlib.import_module("sdv.metadata")
    columns: Columns = request["columns"]
    frame = pd.read_csv(request["train"], dtype=str, keep_default_na=False)
    kinds = {c["name"]: "numerical" if "decimals" in c else "categorical" for c in columns}
    for name, kind in kinds.items():
        if kind == "numerical":
            frame[name] = pd.to_numeric(frame[name], errors="coerce")
    metadata = metadata_module.Metadata.load_from_dict(
        {"tables": {"table": {"columns": {n: {"sdtype": kind} for n, kind in kinds.items()}}}}
    )
    started = time.perf_counter()
    synthesizer = single_table.GaussianCopulaSynthesizer(metadata)
    synthesizer.fit({"table": frame[list(kinds)]})
    drawn = synthesizer.sample(len(frame))
    drawn = drawn["table"] if isinstance(drawn, dict) else drawn
    seconds = time.perf_counter() - started
    for column in columns:
        if "decimals" in column:
            numbers = pd.to_numeric(drawn[column["name"]])
            drawn[column["name"]] = [
                "" if pd.isna(x) else f"{x:.{column['decimals']}f}" for x in numbers
            ]
    drawn.to_csv(request["out"], index=False)
    return {"seconds": seconds, "synthesizer": f"sdv {importlib.metadata.version('sdv')}"}


def main() -> None:
    """Answers one request."""
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        answer = synthesize(json.load(sys.stdin))
    print(json.dumps(answer))  # noqa: T201  # the parent reads it


if __name__ == "__main__":
    main()
