"""Means over repeats: values that runs have, groups of alike, and a table of them for a terminal."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from rich.table import Table

from bench.experiment.runs import Entry, R, S

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def known(results: Iterable[object], name: str) -> list[float]:
    """Returns a measure of each result that has it."""
    figures = (getattr(result, name) for result in results)
    return [float(value) for value in figures if value is not None]


def values_of(entries: Iterable[Entry[S, R]], name: str) -> list[float]:
    """Returns a measure of each run that has it."""
    return known((entry.result for entry in entries), name)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Returns the items by key, keys and items in the order in which they come."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def table_of_means(
    entries: Sequence[Entry[S, R]],
    heads: str,
    row: Callable[[Sequence[Entry[S, R]]], Iterable[str]],
) -> Table:
    """Returns a table with a row for all repeats of the same settings; ``heads`` have spaces between."""
    table = Table(*heads.split(), title="Means over repeats; ± is the deviation between repeats")
    for group in grouped(entries, lambda entry: entry.settings.key()).values():
        table.add_row(*row(group))
    return table
