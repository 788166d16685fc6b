"""AIM by its authors (private-pgm): runs in an environment of its own, and imports nothing of this project.

The command reads one JSON object from standard input and writes a synthetic table of as many rows as the real one,
and to standard output `{"seconds": ..., "synthesizer": its version}`. The request: `source` (a copy of their
repository, of which `mechanisms/aim.py` is no part of a package), `epsilon`, `delta`, `train` and `out` (paths of CSV
files of codes), and `columns`: name and number of `cells`, which are public. The workload is all pairs with equal
weights; all other settings are theirs.
"""

import contextlib
import importlib
import importlib.metadata
import itertools
import json
import sys
import time
import types
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd


def synthesize(request: Mapping[str, Any]) -> dict[str, object]:
    """Writes the synthetic table; returns the seconds taken and the version."""
    # Their modules import pyplot for pictures that a run does not draw.
    for name in ("matplotlib", "matplotlib.pyplot"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.path.insert(0, str(Path(request["source"]) / "mechanisms"))
    mbi, aim = importlib.import_module("mbi"), importlib.import_module("aim")
    cells = {str(column["name"]): int(column["cells"]) for column in request["columns"]}
    frame = pd.read_csv(request["train"])[list(cells)]
    domain = mbi.Domain(list(cells), list(cells.values()))
    data = mbi.Dataset({name: frame[name].to_numpy() for name in cells}, domain)
    pairs = [(pair, 1.0) for pair in itertools.combinations(cells, 2)]
    started = time.perf_counter()
    _, drawn = aim.AIM(float(request["epsilon"]), float(request["delta"])).run(data, pairs)
    seconds = time.perf_counter() - started
    columns = drawn.to_dict()
    rows = pd.DataFrame({name: columns[name] for name in cells})
    rows.to_csv(request["out"], index=False)
    return {"seconds": seconds, "synthesizer": f"mbi {importlib.metadata.version('mbi')}"}


def main() -> None:
    """Answers one request."""
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        answer = synthesize(json.load(sys.stdin))
    print(json.dumps(answer))  # noqa: T201  # the parent reads it


if __name__ == "__main__":
    main()
