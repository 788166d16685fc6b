"""Table 3's columns from the utility benchmark's results: the T of lowest workload error, and the errors at it.

Provides ``Best``, ``best_rounds`` and ``UTILITY_COMMAND``, which makes the file that is read. Public.
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METHODS = ("distaim", "private")
UTILITY_COMMAND = "make bench-utility"


@dataclass(frozen=True, slots=True)
class Best:
    """Of the numbers of rounds ``tried``, ``rounds`` has the lowest mean workload error over ``repeats`` runs."""

    dataset: str
    method: str
    rounds: int
    tried: tuple[int, ...]
    repeats: int
    workload_error: float
    nll: float


def best_rounds(path: Path) -> list[Best]:
    """By dataset and method; none where there is no such file. Other settings than the paper's are passed over."""
    runs: dict[tuple[str, str], dict[int, list[Mapping[str, Any]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
        entry = json.loads(line)
        settings, result = entry["settings"], entry["result"]
        if _is_papers(settings):
            key = settings["dataset"], settings["method"]
            runs[key][settings["rounds"]].append(result)
    found = []
    for (dataset, method), by_rounds in sorted(runs.items()):
        errors = {
            rounds: statistics.fmean(r["workload_error"] for r in results)
            for rounds, results in by_rounds.items()
        }
        rounds = min(errors, key=lambda number: errors[number])
        nll = statistics.fmean(result["nll"] for result in by_rounds[rounds])
        repeats, tried = len(by_rounds[rounds]), tuple(sorted(errors))
        found.append(Best(dataset, method, rounds, tried, repeats, errors[rounds], nll))
    return found


def _is_papers(settings: Mapping[str, Any]) -> bool:
    wanted = {
        "partition": "clustering",
        "clients": 100,
        "participation": 0.1,
        "epsilon": 1.0,
        "tau": None,
        "combine": None,
        "annealed": False,
    }
    named = settings["method"] in METHODS and settings.get("local_rounds", 1) == 1
    return named and all(settings.get(key) == value for key, value in wanted.items())
