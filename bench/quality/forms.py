"""Written numbers, dates and times of the ugly tables as plain numbers, and back, without our own reading of tables.

Scores read cells by these forms, and other synthesizers get their numbers by them: a careful person takes `$` and `%`
off and makes numbers of dates, too. Marks and cells that are no number are missing.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial

import pandas as pd

from bench.quality.ugly import CLINIC, MARKS, SHOP


@dataclass(frozen=True, slots=True)
class Form:
    """A written form of numbers: `read` raises ValueError for other text, `write` is its inverse.

    `decimals` is the number of decimals of the plain numbers.
    """

    read: Callable[[str], float]
    write: Callable[[float], str]
    decimals: int = 0


def _day(pattern: str, text: str) -> float:
    return float(datetime.strptime(text, pattern).toordinal())  # no zone is written


def _number(decimals: int) -> Form:
    return Form(float, lambda x: f"{x:.{decimals}f}", decimals)


def _stripped(signs: str, text: str) -> float:
    return float(re.sub(f"[{signs}]", "", text))


def _month(text: str) -> float:
    month = int(text[4:])
    if not (re.fullmatch(r"\d{6}", text) and 1 <= month <= 12):
        raise ValueError("no month")
    return 12.0 * int(text[:4]) + month - 1


def _clock(text: str) -> float:
    found = re.fullmatch(r"([01]\d|2[0-3]):([0-5]\d)", text)
    if not found:
        raise ValueError("no time of day")
    return 60.0 * int(found[1]) + int(found[2])


def _days(pattern: str) -> Form:
    return Form(partial(_day, pattern), lambda x: date.fromordinal(round(x)).strftime(pattern))


MONTH = Form(_month, lambda x: f"{round(x) // 12}{round(x) % 12 + 1:02d}")
CLOCK = Form(_clock, lambda x: f"{round(x) // 60:02d}:{round(x) % 60:02d}")
EXACT = Form(float, lambda x: repr(x) if x else "0", 13)
MONEY = Form(partial(_stripped, "$,"), lambda x: f"${x:,.2f}", 2)
PER_CENT = Form(partial(_stripped, "%"), lambda x: f"{x:+.1f}%", 1)

FORMS: Mapping[str, Mapping[str, Form]] = {
    CLINIC: {
        "admitted": _days("%d.%m.%Y"),
        "period": MONTH,
        "closed": _days("%Y-%m-%d 00:00:00"),
        "crp": _number(1),
        "pressure": _number(0),
        "weight": _number(1),
        "visits": _number(0),
        "arrived": CLOCK,
    },
    SHOP: {
        "cost": EXACT,
        "amount": _number(0),
        "income": _number(2),
        "price": _number(2),
        "bill": MONEY,
        "change": PER_CENT,
        "rating": _number(0),
    },
}
"""Forms by table and column; other columns are codes."""


def number_of(table: str, column: str, cell: str) -> float:
    """Returns the number that a cell stands for; NaN if it is missing, a mark, or of another form."""
    if cell in MARKS[table].get(column, ()):
        return math.nan
    try:
        number = FORMS[table][column].read(cell)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def plain(table: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Returns an ugly table with plain numbers, empty for missing ones and marks; other tables stay as they are."""
    columns = {}
    for name in frame.columns:
        cells = frame[name]
        if name in FORMS.get(table, {}):
            known = {cell: number_of(table, name, cell) for cell in cells.unique()}
            cells = cells.map({c: "" if math.isnan(x) else f"{x:.15g}" for c, x in known.items()})
        columns[name] = cells
    return pd.DataFrame(columns)
