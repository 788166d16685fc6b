"""Errors by T from the utility benchmark's results, and the T of the lowest.

Provides ``Errors``, ``errors_by_rounds``, ``Best``, ``best_rounds`` and ``UTILITY_COMMAND``, which makes the file that
is read. Public.
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METHODS = ("distaim", "private")
UTILITY_COMMAND = "make bench-utility"


PARTICIPATION = 0.1


@dataclass(frozen=True, slots=True)
class Errors:
    """Means over ``repeats`` runs of ``method`` at T = ``rounds``: 100 clients, clustering partition, epsilon 1."""

    dataset: str
    method: str
    participation: float
    rounds: int
    repeats: int
    workload_error: float
    nll: float


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


def errors_by_rounds(path: Path) -> list[Errors]:
    """By dataset, method, participation and T; none where there is no such file. Other settings are passed over."""
    runs: dict[tuple[str, str, float, int], list[Mapping[str, Any]]] = defaultdict(list)
    for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
        entry = json.loads(line)
        settings, result = entry["settings"], entry["result"]
        if _is_papers(settings):
            keys = ("dataset", "method", "participation", "rounds")
            dataset, method, participation, rounds = (settings[key] for key in keys)
            runs[dataset, method, participation, rounds].append(result)
    return [
        Errors(
            *key,
            len(results),
            statistics.fmean(result["workload_error"] for result in results),
            statistics.fmean(result["nll"] for result in results),
        )
        for key, results in sorted(runs.items())
    ]


def best_rounds(errors: Sequence[Errors]) -> list[Best]:
    """By dataset and method, where a tenth of the clients take part in a round."""
    by_method: dict[tuple[str, str], list[Errors]] = defaultdict(list)
    for one in errors:
        if one.participation == PARTICIPATION:
            by_method[one.dataset, one.method].append(one)
    found = []
    for (dataset, method), tried in sorted(by_method.items()):
        best = min(tried, key=lambda one: (one.workload_error, one.rounds))
        all_rounds = tuple(sorted(one.rounds for one in tried))
        found.append(
            Best(
                dataset,
                method,
                best.rounds,
                all_rounds,
                best.repeats,
                best.workload_error,
                best.nll,
            )
        )
    return found


def _is_papers(settings: Mapping[str, Any]) -> bool:
    wanted = {
        "partition": "clustering",
        "clients": 100,
        "epsilon": 1.0,
        "tau": None,
        "combine": None,
        "annealed": False,
    }
    named = settings["method"] in METHODS and settings.get("local_rounds", 1) == 1
    return named and all(settings.get(key) == value for key, value in wanted.items())
