"""Keys of a configuration's ``[[column]]`` tables, by kind: the reader accepts these, and the reference lists them.

All values here are public.
"""

from __future__ import annotations

from collections.abc import Mapping

from mechanisms.column_parts import DEFAULT_BINS, LINEAR, MOST_BINS, PRIVATE, SCALES
from mechanisms.digits import MAX_DIGITS, MOST_DECIMALS
from mechanisms.moments import DEFAULT_FORMS, UNITS
from mechanisms.numbers import MAX_DECIMALS
from mechanisms.private_bins import LEAST_COARSE, MAX_RESOLUTION
from mechanisms.private_categories import MOST_CANDIDATES
from mechanisms.table_keys import REQUIRED, Range, TableKey

IMPLIED = "implied"
"""Name of the kind of a column with ``implied_by``; it has no key ``kind``."""
DEFAULT_OTHER = "other"
"""Word for the values that private categories do not keep."""
DEFAULT_UNITS = {"date": "day", "datetime": "second"}
_NAME = TableKey("text", "Name of the column in the table's header.", REQUIRED)
_FROM = TableKey(
    "text or table",
    "Provenance of the column's values, of all or key by key: `public`, `private` or `table`, and a source in words.",
)
_HISTOGRAM = {
    "histogram": TableKey(
        "list of whole numbers",
        "Noisy counts of the fine cells, which a run measured. Programs write them.",
    ),
    "deviation": TableKey(
        "number",
        "Deviation of the histogram's noise, in rows. Programs write it.",
        "",
        Range(0, above=True),
    ),
}
_MARKS = TableKey(
    "list of texts", "Texts that stand among the values, each with a cell of its own."
)
_FORMAT = TableKey(
    "text", "Spelling of the values, in every owner's table and in the synthetic one."
)


def _common(kind: str) -> dict[str, TableKey]:
    """Returns the keys of modelled columns."""
    return {
        "name": _NAME,
        "kind": TableKey("text", "Kind of the column.", REQUIRED, (kind,)),
        "missing": TableKey("true or false", "True where values may be missing.", "false"),
        "from": _FROM,
    }


def _binned(kind: str, value: str) -> dict[str, TableKey]:
    """Returns the keys of columns with bins, whose values are of a type."""
    return {
        **_common(kind),
        "low": TableKey(value, "Least value. It is required without `edges` and `values`."),
        "high": TableKey(value, "Largest value. It is required without `edges` and `values`."),
        "bins": TableKey(
            f'whole number or "{PRIVATE}"',
            "Number of bins of equal width. A run chooses private ones from noisy counts.",
            str(DEFAULT_BINS),
            Range(1, MOST_BINS),
        ),
        "edges": TableKey(
            f"list of {value}s", "Ends of the bins, ascending, instead of `low`, `high` and `bins`."
        ),
        "within": TableKey(
            f"list of {value}s",
            "Values between `edges` that cut a cell into parts, each as likely as the others.",
        ),
        "atoms": TableKey(f"list of {value}s", "Values with a cell of their own."),
        "marks": _MARKS,
        "values": TableKey(
            "text",
            "Choice of bounds and bins by a run from noisy counts, instead of all keys of them.",
            "",
            (PRIVATE,),
        ),
        "resolution": TableKey(
            "whole number",
            "Largest number of fine cells of private bins.",
            str(MAX_RESOLUTION),
            Range(LEAST_COARSE, MAX_RESOLUTION),
        ),
        "coarse": TableKey(
            "whole number",
            "Largest number of cells of private bins.",
            str(DEFAULT_BINS),
            Range(LEAST_COARSE, high_key="resolution"),
        ),
        **_HISTOGRAM,
        "format": _FORMAT,
    }


def _numbers(kind: str, value: str) -> dict[str, TableKey]:
    """Returns the keys of columns of numbers of a type."""
    return {
        **_binned(kind, value),
        "scale": TableKey("text", "Widths of the bins.", f'"{LINEAR}"', SCALES),
        "endings": TableKey("table of numbers", "Last digits of the numbers, each with its share."),
    }


def _moments(kind: str, units: tuple[str, ...]) -> dict[str, TableKey]:
    """Returns the keys of columns of dates, or of dates with times."""
    unit = DEFAULT_UNITS[kind]
    return {
        **_binned(kind, kind),
        "unit": TableKey("text", "Resolution of the values.", f'"{unit}"', units),
        "format": TableKey(
            _FORMAT.type, f"{_FORMAT.said} Without the key it is `{DEFAULT_FORMS[kind]}`."
        ),
    }


COLUMN_KEYS: Mapping[str, Mapping[str, TableKey]] = {
    "categorical": {
        **_common("categorical"),
        "categories": TableKey(
            "list of texts", "Values as they are written. They are required without `values`."
        ),
        "prefix": TableKey(
            "whole number",
            "Number of first characters that categories of one cell share; 0 for a cell each.",
            "0",
            Range(0),
        ),
        "atoms": TableKey("list of texts", "Categories with a cell of their own, beside `prefix`."),
        "other": TableKey(
            "text",
            "Word for all values that are not listed. Without it they are refused, but "
            f"`{DEFAULT_OTHER}` is the word beside `values`.",
        ),
        "values": TableKey(
            "text",
            "Choice of the frequent ones of `candidates` by a run from noisy counts.",
            "",
            (PRIVATE,),
        ),
        "candidates": TableKey(
            "list of texts or text",
            f"Values that a run may keep, 1 to {MOST_CANDIDATES:,}, or the name of a file with one on each line.",
        ),
        "coarse": TableKey(
            "whole number",
            "Largest number of cells beside `values`.",
            str(DEFAULT_BINS),
            Range(LEAST_COARSE, MAX_RESOLUTION),
        ),
        **_HISTOGRAM,
    },
    "integer": _numbers("integer", "whole number"),
    "real": {
        **_numbers("real", "number"),
        "decimals": TableKey(
            "whole number",
            f"Number of written decimals; beside `digits` up to {MOST_DECIMALS}.",
            "",
            Range(0, MAX_DECIMALS),
        ),
        "digits": TableKey(
            "whole number",
            "Largest number of significant digits, beside `decimals`.",
            "",
            Range(1, MAX_DIGITS),
        ),
    },
    "date": _moments("date", UNITS[UNITS.index("day") :]),
    "datetime": _moments("datetime", UNITS),
    IMPLIED: {
        "name": _NAME,
        "implied_by": TableKey("text", "Column that this one follows from.", REQUIRED),
        "values": TableKey("table", "Value of this column for each value of that one.", REQUIRED),
        "from": _FROM,
    },
}
"""Keys of each kind. A column with ``implied_by`` has no key ``kind``."""
