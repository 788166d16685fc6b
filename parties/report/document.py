"""Readers of report.json and of other documents that a run leaves, and of their values: tables, lists and numbers.

Readers of values raise ValueError if a report lacks a value that every report has.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from parties.foundation.errors import StoreError
from parties.foundation.untrusted_text import parse_json


def read_document(path: Path, what: str = "document of a run") -> dict[str, object] | None:
    """Returns the table in a JSON file, None without a file. Raises StoreError for a file that is no ``what``."""
    if not path.exists():
        return None
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(path, f"cannot be read: {error}; expected what a run left") from error
    if not isinstance(document, dict):
        raise StoreError(path, f"is no {what}; expected what a run left")
    return document


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
