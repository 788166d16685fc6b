"""Small parts of a report's page: values of report.json by their types, pictures, pairs, parts that fold.

Secret: nothing. Raises ValueError where a report lacks what every report has.
"""

import base64
from collections.abc import Mapping, Sequence

from parties.report import page


def section(report: Mapping[str, object], key: str) -> Mapping[str, object]:
    """A table of the report."""
    value = report[key]
    if not isinstance(value, Mapping):
        raise ValueError(f"the report's {key!r} is not a table")
    return value


def optional(report: Mapping[str, object], key: str) -> Mapping[str, object]:
    """A table of the report that older ones lack; then empty."""
    value = report.get(key)
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[object]:
    """A list of the report; empty for anything else."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def tables(value: object) -> list[Mapping[str, object]]:
    """The tables in a list of the report."""
    return [item for item in items(value) if isinstance(item, Mapping)]


def number(value: object) -> float:
    """A number of the report."""
    if not isinstance(value, int | float):
        raise ValueError(f"{value!r} in the report is not a number")
    return float(value)


def picture(svg: str, caption: str, *, alt: str) -> str:
    """A drawing with its caption; ``alt`` is for who cannot see it."""
    data = base64.b64encode(svg.encode("utf-8")).decode("ascii")
    source = f"data:image/svg+xml;base64,{data}"
    return (
        f'<figure><img alt="{page.text(alt)}" src="{source}">\n'
        f"<figcaption>{page.text(caption)}</figcaption></figure>"
    )


def pairs(values: Mapping[str, object]) -> str:
    """A table of names and values."""
    return page.table(("", ""), list(values.items()))


def fold(title: str, body: str) -> str:
    """A part of which the title is seen until somebody opens it."""
    return f"<details><summary>{page.text(title)}</summary>\n{body}\n</details>"
