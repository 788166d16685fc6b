"""The quality of a table at a glance: one number with its yardstick, tasks, and marks for all columns and pairs.

Everything follows from the section `quality` of a report and `parties.report.accuracy`, and is as public as they are;
what a trial adds is under "truth", and not private. A mark is a word, and a colour beside
it; so the page can be read in grey, and aloud.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, median_low
from typing import Any

from parties.report.claims import MIDDLE, moved_share
from parties.report.dependencies import (
    INDEPENDENT,
    MEASURED,
    TAKEN_OVER,
    THROUGH_OTHERS,
    taken_over,
)
from parties.report.model import NOT_PRIVATE, Accuracy, PairErrors
from parties.report.shares import at_most_text, distinct_shares, rows_text, share_text
from parties.report.shuffling import is_chosen
from parties.report.verdict import CLOSE, ROUGH, marks

MOST_COLUMNS = 60
"""Most columns of a matrix; with more its cells say nothing on any screen."""
_NAMED = 4
_LETTERS = {"close": "A", "rough": "B", "none": "C"}
_RELATIONS = {
    MEASURED: "\N{BLACK CIRCLE}",
    TAKEN_OVER: "\N{WHITE DIAMOND}",
    THROUGH_OTHERS: "\N{WHITE CIRCLE}",
    INDEPENDENT: "",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """Position of the measured pairs' expected error between that of shuffled columns and a trusted party's.

    ``score`` is 0 to 100, of ``pairs`` in words; ``ends`` are a word and an error for 0, the table, and 100. ``text``
    says what that is, and ``truth`` what it is by the real table, "" without one: not private.
    """

    score: int
    pairs: str
    ends: Sequence[tuple[str, str]]
    text: str
    truth: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """A use of the table: its ``mark`` (close, rough, none), the ``answer``, a reason, and ``truth``, not private."""

    name: str
    mark: str
    answer: str
    said: str
    truth: str = ""


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


def scale(quality: Mapping[str, Any], accuracy: Accuracy | None) -> Scale | None:
    """Returns the scale; None if no pair was measured or shuffled columns would have no error."""
    found = quality.get("shuffling")
    if accuracy is None or not found or not found["measured"] or not accuracy.run.independent:
        return None
    run = accuracy.run
    those = "are in the model" if is_chosen(found) else "were measured"
    pairs = f"for the {found['measured']} of {found['pairs']} pairs of columns that {those}"
    text = (
        "0 is a table with shuffled columns. 100 is a table that a trusted party with all rows could make with the "
        "same epsilon. All errors are estimated from the released values."
    )
    if found["measured"] < found["pairs"]:
        text += " The number says nothing about other pairs."
    if "earlier" in quality:
        text += " What the earlier model adds to this run is not counted."
    if not found["better"]:
        text = f"This table is not shown to be better than shuffled columns. {text}"
    ends = (
        ("columns shuffled", f"{share_text(run.independent)} of the rows off"),
        ("this table", f"{share_text(run.table)} off"),
        ("a trusted party", f"{share_text(run.trusted)} off"),
    )
    score = _score(run.table, run.independent, run.trusted)
    return Scale(score, pairs, ends, text, _true_scale(found, run))


def _score(table: float, independent: float, trusted: float) -> int:
    """Returns 0 for a table as far off as independent columns, or farther, 100 for one as near as a trusted party's."""
    room = independent - trusted
    if table >= independent or room <= 0:
        return 0
    return round(100 * min(1.0, (independent - table) / room))


def _true_scale(found: Mapping[str, Any], run: PairErrors) -> str:
    true = [pair["true"] for pair in found["each"] if "true" in pair]
    if not true:
        return ""
    off, shuffled = (fmean(pair[key] for pair in true) for key in ("off", "independent"))
    score = _score(off, shuffled, min(off, run.trusted))
    return (
        f"By the real table these pairs are off by {share_text(off)}, and by {share_text(shuffled)} with columns "
        f"shuffled: {score} of 100. {NOT_PRIVATE}"
    )


def tasks(quality: Mapping[str, Any]) -> list[Task]:
    """Returns what the table is good for, by task; none for reports of older versions, which lack columns' claims."""
    if "columns" not in quality:
        return []
    found, marginals = marks(quality), quality["marginals"]
    singles, pairs = (_of_size(found, size) for size in (1, 2))
    done = [
        _counting("Count rows by one column", singles, marginals, named=True),
        *([_counting("Count rows by two columns", pairs, marginals)] if pairs else []),
        *_numbers(quality["columns"]),
        *_relations(quality),
    ]
    noise = [m["noise"] for m in marginals if m["noise"] is not None]
    if noise:
        few = f"Look at groups of fewer than {rows_text(2 * min(noise))} rows"
        said = (
            f"the noise of a count has a standard deviation of {rows_text(min(noise))} rows or more"
        )
        done.append(Task(few, "none", "no", said))
    about = "rows are drawn from a model and stand for nobody"
    return [*done, Task("Look up a person or a row", "none", "no", about)]


def _of_size(
    found: Mapping[tuple[str, ...], float | None], size: int
) -> dict[tuple[str, ...], float | None]:
    return {columns: off for columns, off in found.items() if len(columns) == size}


def _counting(
    name: str,
    off: Mapping[tuple[str, ...], float | None],
    marginals: Sequence[Mapping[str, Any]],
    *,
    named: bool = False,
) -> Task:
    by_mark: dict[str, list[str]] = {"close": [], "rough": [], "none": []}
    for columns, value in off.items():
        by_mark[_mark(value)].append(" \N{MULTIPLICATION SIGN} ".join(columns))
    said = _promised(by_mark, "of the rows", named=named)
    of = [m for m in marginals if tuple(m["columns"]) in off]
    known = [m["expected"] / 2 for m in of if m["expected_is"] == "noise"]
    if known:
        where = (
            ""
            if len(known) == len(of)
            else f" for the {len(known)} of {len(of)} that were measured"
        )
        said.append(f"expected: {share_text(median(known))} off{where}")
    # As the answer is that of the half of them, so is the truth.
    true = [m["true_error"] / 2 for m in of if "true_error" in m]
    close, rough, _ = (len(by_mark[mark]) for mark in by_mark)
    mark, answer = _verdict_of(close, rough, len(off))
    truth = f"off by {share_text(median_low(true))}" if true else ""
    return Task(name, mark, answer, "; ".join(said), truth)


def _promised(by_mark: Mapping[str, Sequence[str]], of: str, *, named: bool) -> list[str]:
    """Returns how many columns or pairs have each mark, in words, and the names of columns if ``named``."""
    words = (
        ("close", f"off by at most {CLOSE:.0%} {of}:"),
        ("rough", f"off by at most {ROUGH:.0%} {of}:"),
        ("none", f"no bound within {ROUGH:.0%}:"),
    )
    return [
        f"{word} {len(by_mark[mark])}" + (f" ({_names(by_mark[mark])})" if named else "")
        for mark, word in words
        if by_mark[mark]
    ]


def _verdict_of(close: int, rough: int, every: int) -> tuple[str, str]:
    """Returns a mark and an answer: that of the half of the columns or pairs, and "in part" for fewer."""
    if 2 * close >= every:
        return "close", "yes"
    if 2 * (close + rough) >= every:
        return "rough", "roughly"
    return ("rough", "in part") if close + rough else ("none", "no")


def _numbers(claims: Sequence[Mapping[str, Any]]) -> list[Task]:
    """Returns the task of means and medians, which are off by no more than values are moved on average."""
    numbers = [c for c in claims if "moved_of_range" in c]
    if not numbers:
        return []
    by_mark: dict[str, list[str]] = {"close": [], "rough": [], "none": []}
    for c in numbers:
        by_mark[_mark(None if c.get("open") else moved_share(c))].append(c["column"])
    moved = [moved_share(c.get("true", {})) for c in numbers]
    true = [share for share in moved if share is not None]
    # Reports of earlier versions have the whole range alone.
    known = all("moved_of_middle" in c for c in numbers)
    of = f"the range of {MIDDLE} of the values" if known else "the column's range"
    said = "; ".join(_promised(by_mark, f"of {of}", named=True))
    truth = f"off by {share_text(median_low(true))} of {of}" if true else ""
    mark, answer = _verdict_of(len(by_mark["close"]), len(by_mark["rough"]), len(numbers))
    return [Task("Means of numbers and dates", mark, answer, said, truth)]


def _relations(quality: Mapping[str, Any]) -> list[Task]:
    """Returns the task of relations between columns, and of models trained on them."""
    found: Mapping[str, Any] | None = quality.get("shuffling")
    if not found or not found["pairs"]:
        return []
    shown, pairs, true = found["shown"], found["pairs"], found.get("true")
    answer = ("close", "yes") if 2 * shown >= pairs else ("rough", "in part")
    mark, word = answer if found["better"] else ("none", "no")
    said = f"{shown} of {pairs} pairs are shown to go together; others may, too"
    if more := len(taken_over(quality)):
        said += f"; {more} are taken over from the earlier model, not measured now"
    made, shuffled = distinct_shares(true["synthetic"], true["shuffled"]) if true else ("", "")
    truth = f"pairs off by {made}, shuffled by {shuffled}" if true else ""
    return [Task("See which columns go together, train models", mark, word, said, truth)]


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


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
        frozenset(pair): kind
        for kind in _RELATIONS
        for pair in quality["dependencies"].get(kind, ())
    }
    chosen = is_chosen(quality.get("shuffling", {}))
    words = {
        MEASURED: "together in the model" if chosen else "measured together",
        TAKEN_OVER: "taken over from the earlier model, not measured now",
        THROUGH_OTHERS: "only through other columns",
        INDEPENDENT: "no relation in the model",
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
        ("none", "C", "no such bound: it may be off by more, or one bin has too many rows"),
        *(
            ("", _RELATIONS[kind], words[kind])
            for kind in (MEASURED, TAKEN_OVER, THROUGH_OTHERS)
            if kind != TAKEN_OVER or kind in quality["dependencies"]
        ),
    ]
    return Matrix(names, rows, legend)


def _mark(off: float | None) -> str:
    if off is None or off > ROUGH:
        return "none"
    return "close" if off <= CLOSE else "rough"


def _promise(off: float | None) -> str:
    if off is None:
        return "no bound, since one bin has too many rows"
    return f"off by no more than {at_most_text(off)} of the rows"
