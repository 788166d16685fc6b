"""SDMetrics' scores of drawn tables beside the real ones, asked in an environment of its own.

Both go there as a table of persons and one of their rows in order, with numbers as persons' keys, whatever the tables
were; without a table of persons their constants make one, so that a row has the constants of its person.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd

from bench.quality.environment import KEYED_SCORE, ask
from bench.tables.data import Shape
from bench.tables.measures import Histories

LIMIT_S: Final = 1_800
"""Processor time of SDMetrics."""
SCORER: Final = "scorer"
PERSONS: Final = "persons"
"""Name of the table of persons where there is none."""


def scores(
    shape: Shape, real: Histories, drawn: Histories, *, folder: Path
) -> dict[str, float | str | None]:
    """Returns `bench/quality/keyed_score.py`'s scores, rounded, and their version. Raises ThirdPartyError."""
    paths = dict[str, dict[str, str]]()
    for which, histories in (("real", real), ("synthetic", drawn)):
        for name, frame in _tables(shape, histories).items():
            path = folder / f"{name}-{which}.csv"
            frame.to_csv(path, index=False)
            paths.setdefault(name, {})[which] = str(path)
    request = {
        "parent": shape.parent or PERSONS,
        "child": shape.child,
        "key": shape.key,
        "tables": paths,
        "measured": [name for name in shape.rows if name in shape.numbers],
        **kinds(shape),
    }
    answer: Mapping[str, Any] = ask(KEYED_SCORE, request, limit_s=LIMIT_S)
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in answer.items()
    }


def kinds(shape: Shape) -> dict[str, list[str]]:
    """Returns the names of the columns of numbers and of dates, as third parties are told them."""
    numbers = shape.numbers | (set() if shape.dated else {shape.order})
    return {"numbers": sorted(numbers), "dates": [shape.order] if shape.dated else []}


def _tables(shape: Shape, histories: Histories) -> dict[str, pd.DataFrame]:
    own, rows = histories.own, histories.rows[[*shape.repeated, *shape.rows, shape.order]]
    return {
        shape.parent or PERSONS: own.assign(**{shape.key: range(len(own))}),
        shape.child: rows.assign(**{shape.key: histories.of}),
    }
