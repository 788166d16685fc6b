"""The runs of a benchmark's sweeps by name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from bench.fetch import DatasetError

S = TypeVar("S")


def settings_of(sweeps: Mapping[str, Callable[[], Iterable[S]]], names: Sequence[str]) -> list[S]:
    """Returns the runs of these sweeps (`all`: of every one), each once. Raises DatasetError for an unknown name."""
    if unknown := [name for name in names if name not in sweeps and name != "all"]:
        raise DatasetError(
            f"unknown sweep {unknown[0]!r}; expected one of {', '.join(sweeps)}, all"
        )
    wanted = list(sweeps) if "all" in names else names
    return list(dict.fromkeys(settings for name in wanted for settings in sweeps[name]()))
