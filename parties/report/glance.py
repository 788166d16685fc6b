"""The quality of a table at a glance: a scale for its pairs, and a matrix of marks for all columns and pairs.

Everything follows from the section `quality` of a report, and is as public as it. A mark is a word, and a colour beside
it; so the page can be read in grey, and aloud.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parties.report.shuffling import is_chosen
from parties.report.verdict import CLOSE, ROUGH, marks

MOST_COLUMNS = 60
"""Most columns of a matrix; with more its cells say nothing on any screen."""
_LETTERS = {"close": "A", "rough": "B", "none": "C"}
_RELATIONS = {
    "measured": "\N{BLACK CIRCLE}",
    "through_others": "\N{WHITE CIRCLE}",
    "independent": "",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """Position of the pairs' expected error between 0, the data themselves, and that of columns drawn independently."""

    expected: float
    independent: float
    text: str


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One cell: its ``mark`` (close, rough, none or empty), ``text`` in it, and ``title``, the same in words."""

    mark: str
    text: str
    title: str


@dataclass(frozen=True, slots=True)
class Matrix:
    """Marks of columns (on the diagonal) and of pairs (below it), a row for each of ``names``; and their legend."""

    names: Sequence[str]
    rows: Sequence[Sequence[MatrixCell]]
    legend: Sequence[tuple[str, str, str]]


def scale(quality: Mapping[str, Any]) -> Scale | None:
    """Returns the scale, None where no pair was measured or independent columns would have no error."""
    found = quality.get("shuffling")
    if not found or not found["measured"] or not found["independent"]:
        return None
    expected, independent = float(found["expected"]), float(found["independent"])
    those = "pairs of columns in the model" if is_chosen(found) else "measured pairs of columns"
    text = (
        f"The {found['measured']} {those} are expected to be off by {expected:.1%} of the rows on average. With "
        f"columns drawn independently of one another it would be {independent:.1%}"
    )
    share = expected / independent
    text += (
        f": what is left of that error is {share:.0%}." if share < 1 else ", so nothing is gained."
    )
    return Scale(expected, independent, text)


def matrix(quality: Mapping[str, Any]) -> Matrix | None:
    """Returns the matrix; None for a table with more than MOST_COLUMNS columns, or a single one.

    None for reports of older versions, too, which do not say what is lost within bins.
    """
    found = marks(quality) if "columns" in quality else {}
    names = list(dict.fromkeys(name for columns in found for name in columns))
    if not 1 < len(names) <= MOST_COLUMNS:
        return None
    off = {frozenset(columns): value for columns, value in found.items()}
    relation = {
        frozenset(pair): kind for kind in _RELATIONS for pair in quality["dependencies"][kind]
    }
    chosen = is_chosen(quality.get("shuffling", {}))
    words = {
        "measured": "together in the model" if chosen else "measured together",
        "through_others": "only through other columns",
        "independent": "no relation in the model",
    }

    def cell(first: str, second: str) -> MatrixCell:
        columns = frozenset((first, second))
        if columns not in off:
            return MatrixCell("", "", "")
        mark = _mark(off[columns])
        kind = relation.get(columns, "")
        name = first if first == second else f"{second} \N{MULTIPLICATION SIGN} {first}"
        said = f"{name}: {_promise(off[columns])}"
        if kind:
            said += f"; {words[kind]}"
        return MatrixCell(mark, f"{_LETTERS[mark]}{_RELATIONS.get(kind, '')}", said)

    rows = [[cell(first, second) for second in names[: n + 1]] for n, first in enumerate(names)]
    legend = [
        ("close", "A", f"off by no more than {CLOSE:.0%} of the rows"),
        ("rough", "B", f"by no more than {ROUGH:.0%}"),
        ("none", "C", "no promise: it may be off by more, or one bin has too much"),
        ("", _RELATIONS["measured"], words["measured"]),
        ("", _RELATIONS["through_others"], words["through_others"]),
    ]
    return Matrix(names, rows, legend)


def _mark(off: float | None) -> str:
    if off is None or off > ROUGH:
        return "none"
    return "close" if off <= CLOSE else "rough"


def _promise(off: float | None) -> str:
    if off is None:
        return "one bin has too much to promise anything"
    return f"off by no more than {off:.1%} of the rows"
