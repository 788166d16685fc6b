"""Readers of the values in report.json: tables, lists and numbers.

They raise ValueError if a report lacks a value that every report has.
"""

from collections.abc import Mapping, Sequence


def section(report: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Returns a table of the report. Raises ValueError if the value is none."""
    value = report[key]
    if not isinstance(value, Mapping):
        raise ValueError(f"the report's {key!r} is not a table")
    return value


def optional(report: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Returns a table of the report, or an empty one, as for reports of older versions."""
    value = report.get(key)
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[object]:
    """Returns a list of the report; empty for any other value."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def tables(value: object) -> list[Mapping[str, object]]:
    """Returns the tables in a list of the report."""
    return [item for item in items(value) if isinstance(item, Mapping)]


def number(value: object) -> float:
    """Returns a number of the report. Raises ValueError if the value is none."""
    if not isinstance(value, int | float):
        raise ValueError(f"{value!r} in the report is not a number")
    return float(value)
