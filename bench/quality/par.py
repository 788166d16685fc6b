"""SDV's PAR for rows of persons, not private: runs in an environment of its own, and imports nothing of this project.

The command reads one JSON object from standard input and writes synthetic rows, and to standard output
`{"seconds": ..., "synthesizer": its versions}`. The request: `train` and `out` (paths of CSV files, the former with the
rows of a person one after the other), `key`, the name of the column with a row's person; `own`, columns that are
constant within a person; `numbers`, names of columns, every other one is categorical; `persons`, the number of
sequences to draw, and `seed`. All its settings are the package's defaults, without a sequence index: by that, SDV 2.0.0
sorts a person's rows by the time since the row before. It protects nobody, and knows no person without rows.
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

TABLE = "rows"


def synthesize(request: Mapping[str, Any]) -> dict[str, object]:
    """Writes the synthetic rows; returns the seconds taken and the versions."""
    sequential = importlib.import_module("sdv.sequential")
    metadata_module = importlib.import_module("sdv.metadata")
    frame = pd.read_csv(request["train"], dtype=str, keep_default_na=False)
    columns: dict[str, dict[str, str]] = {}
    for name in frame.columns:
        if name in request["numbers"]:
            frame[name] = pd.to_numeric(frame[name], errors="coerce")
            columns[name] = {"sdtype": "numerical"}
        else:
            columns[name] = {"sdtype": "id" if name == request["key"] else "categorical"}
    of_table = {"columns": columns, "sequence_key": request["key"]}
    metadata = metadata_module.Metadata.load_from_dict({"tables": {TABLE: of_table}})
    importlib.import_module("torch").manual_seed(request["seed"])
    started = time.perf_counter()
    synthesizer = sequential.PARSynthesizer(metadata, context_columns=list(request["own"]))
    synthesizer.fit({TABLE: frame})
    drawn = synthesizer.sample_sequences(request["persons"])[TABLE]
    seconds = time.perf_counter() - started
    drawn.to_csv(request["out"], index=False)
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("sdv", "deepecho")]
    return {"seconds": seconds, "synthesizer": " with ".join(versions)}


def main() -> None:
    """Answers one request."""
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        answer = synthesize(json.load(sys.stdin))
    print(json.dumps(answer))  # noqa: T201  # the parent reads it


if __name__ == "__main__":
    main()
