"""Recognition of columns with several values in a cell: numbers in a fixed text, and any number of answers.

A draft splits a column only if it could not be modelled whole. The cells are secret, at their owner; a description has
the texts around numbers, and answers of enough rows, which the owner confirms like all that a draft has read. Limits:
rules of thumb; numbers with leading zeros are codes, and a column with them is not split.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import combinations, islice
from statistics import median

from mechanisms.bands import are_bands
from mechanisms.draft_notes import MANY_CATEGORIES, OTHERS, RARE_ROWS
from mechanisms.errors import DomainError
from mechanisms.recognising import CURRENCIES, LEAST_VALUES, read_numbers
from mechanisms.recognising_moments import read_moments
from mechanisms.spelling import Clock
from mechanisms.split_columns import SplitColumn

SEPARATORS = ("||", ";", "|", ",", "/", "\n", "\t")
"""Separators of several answers in a cell."""
LOOSE_SEPARATORS = ("#", "+", "&", " and ", " und ", " et ", " y ", " ")
"""Signs and words between several answers that stand within other texts, too."""
MOST_LOOSE = 50
"""Most different answers with a loose separator between them."""
FIXED_SIGNS = (";", "|", ",", "/", "-")
"""Signs between a fixed number of values in a cell."""
IN_ORDER, ORDER_CELLS = 0.9, 1000
"""Share of cells whose answers stand in one order for the order to be theirs, and the cells that are looked at."""
RANGE_SIGNS = (
    *(
        " - ",
        " – ",
        " — ",
        " to ",
        " bis ",
        " until ",
        " through ",
        " al ",
        " au ",
        " a ",
        " ~ ",
        " / ",
        " .. ",
    ),
    *("–", "—", "〜", "～", "~", "..", "/", "-", ";", "|"),
)
"""Signs and words between the first and the last value of a range; signs that occur within dates come last."""
MOST_NUMBERS = 6
"""Most numbers in a cell."""
MOST_MARKS, MARKED = 5, 0.2
"""Most cells beside a pattern, and the largest share of rows that they have."""
FOLDED = 0.2
"""Largest share of all given answers that is merged into one."""
_NUMBER = re.compile(r"(?<![\d.])[+-]?\d+(?:\.\d+)?|(?<=\.)\d+")
_COMMA_NUMBER = re.compile(r"(?<![\d,])[+-]?\d+(?:,\d+)?")
MOST_WORDS = 20
"""Most currencies or units in one column."""
UNITS = frozenset(
    {
        *("kg", "g", "mg", "µg", "lb", "lbs", "oz", "t", "km", "m", "cm", "mm", "in", "ft", "ml"),
        *("l", "L", "h", "min", "s", "d", "y", "years", "months", "weeks", "days", "hours", "mmol"),
    }
)
"""Units behind whole numbers that are no codes."""
_WORD, _AMOUNT = r"(?P<word>[^\W\d_]{1,8}|[$€£¥₹%‰])", r"(?P<number>-?\d[\d.,]*)"
_BEFORE, _BEHIND = re.compile(f"{_WORD} {_AMOUNT}"), re.compile(f"{_AMOUNT} {_WORD}")
_BRACKETS = ("[]", "()", "{}")
_CODE = re.compile(r"[+-]?0\d")


def split_of(name: str, counts: Mapping[str, int], *, fold: bool) -> SplitColumn | None:
    """Returns the description by which all cells can be split; None if there is none.

    ``counts`` has the rows of each cell that is not missing. With ``fold`` answers of few rows are not listed.
    """
    if are_bands(counts):
        return None
    return (
        range_of(name, counts)
        or _numbers(name, counts)
        or _amounts(name, counts)
        or _answers(name, counts, fold=fold)
        or _fixed(name, counts)
    )


def separator_of(counts: Mapping[str, int]) -> str:
    """Returns the separator of several answers in a cell, with the blanks around it; "" if there is none.

    Where all cells have one number of values these are no answers: a set has more in one cell than in another.
    """
    before, behind = _around(counts)
    cells = [_within(cell, before, behind) for cell in counts]
    for sign in (*SEPARATORS, *LOOSE_SEPARATORS):
        several = [cell for cell in cells if sign in cell]
        if len(several) < len(cells) / 2:
            continue
        parts = [[a for part in cell.split(sign) if (a := part.strip())] for cell in cells]
        answers = {answer for cell in parts for answer in cell}
        if len(answers) >= len(cells) / 2 or len(set(map(len, parts))) == 1:
            continue
        if sign in LOOSE_SEPARATORS and (
            len(answers) > MOST_LOOSE or any(len(set(cell)) < len(cell) for cell in parts)
        ):
            continue
        return _written_separator(sign, several)
    return ""


def _written_separator(sign: str, cells: Sequence[str]) -> str:
    """Returns a separator with the blanks that it mostly has around it in cells."""
    if not sign.strip() or sign.strip().isalpha():
        return sign
    around = re.compile(f" ?{re.escape(sign)} ?")
    written = Counter(found[0] for cell in cells for found in around.finditer(cell))
    return written.most_common(1)[0][0]


def _around(counts: Mapping[str, int]) -> tuple[str, str]:
    """Returns what stands before and behind all answers: brackets, or a separator at the ends of all cells."""
    for both in _BRACKETS:
        if all(cell[:1] + cell[-1:] == both for cell in counts):
            return both[0], both[1]
    for sign in SEPARATORS[1:5]:
        if all(cell.endswith(sign) for cell in counts):
            return (sign if all(cell.startswith(sign) for cell in counts) else ""), sign
    return "", ""


def _within(cell: str, before: str, behind: str) -> str:
    """Returns a cell without what stands around all answers."""
    return cell[len(before) : len(cell) - len(behind)]


def range_of(name: str, counts: Mapping[str, int]) -> SplitColumn | None:
    """Returns the pattern of cells with a first and a last value: two dates, two times, or numbers in order.

    Whole numbers without a sign are a range if none is after the other, and the two overlap: numbers of cases do not.
    """
    if set(name) & set("{}"):
        return None
    for sign in RANGE_SIGNS:
        both = {cell: parts for cell in counts if len(parts := cell.split(sign)) == 2}
        marks = sorted(counts.keys() - both.keys())
        if not both or _too_many(marks, counts):
            continue
        ends = [Counter[str](), Counter[str]()]
        for cell, parts in both.items():
            for end, part in zip(ends, parts, strict=True):
                end[part.strip()] += counts[cell]
        # An end may be open.
        given = [Counter({value: n for value, n in end.items() if value}) for end in ends]
        if min(map(len, given)) <= LEAST_VALUES or not _are_ends(given, both.values()):
            continue
        with contextlib.suppress(DomainError):
            return SplitColumn(name, f"{{{name} 1}}{sign}{{{name} 2}}", marks=tuple(marks))
    return None


def _are_ends(ends: Sequence[Mapping[str, int]], cells: Iterable[Sequence[str]]) -> bool:
    """Returns whether texts are the first and last values of ranges, of one kind and one spelling."""
    dated = [read_moments(end) for end in ends]
    if all(dated):
        return len({str(found.form) for found in dated if found}) == 1
    first, last = (read_numbers(end) for end in ends)
    if first is None or last is None or first.marks or last.marks:
        return False
    if isinstance(first.spelling, Clock) or isinstance(last.spelling, Clock):
        return first.form == last.form
    numbers = [
        (Decimal(first.plain[a.strip()]), Decimal(last.plain[b.strip()]))
        for a, b in cells
        if a.strip() and b.strip()
    ]
    firsts, lasts = ([pair[side] for pair in numbers] for side in (0, 1))
    return all(a <= b for a, b in numbers) and min(lasts) < median(firsts)


def _numbers(name: str, counts: Mapping[str, int]) -> SplitColumn | None:
    """Returns the pattern of cells that are alike but for their numbers, with what stands beside it.

    A number of the pattern may be missing (``120/``). The few other cells are marks (``refused``), in however few rows,
    as those of a column of numbers are. Where most numbers have a comma within, it is the decimal sign.
    """
    given = [number for cell in counts for number in _COMMA_NUMBER.findall(cell)]
    commas = 2 * sum("," in number for number in given) > len(given)
    if commas and (found := _with_numbers(name, counts, _COMMA_NUMBER)):
        return found
    return _with_numbers(name, counts, _NUMBER)


def _with_numbers(
    name: str, counts: Mapping[str, int], number: re.Pattern[str]
) -> SplitColumn | None:
    alike = Counter[tuple[str, ...]]()
    for cell, rows in counts.items():
        alike[tuple(number.split(cell))] += rows
    (texts, _), *_ = alike.most_common(1)
    pattern = _pattern(name, texts)
    if pattern is None:
        return None
    marks = list[str]()
    for cell in counts:
        values = pattern.values_of(cell)
        if values is None:
            marks.append(cell)
        elif not all(number.fullmatch(v) or not v for v in values) or any(map(_CODE.match, values)):
            return None
    if _too_many(marks, counts):
        return None
    with contextlib.suppress(DomainError):
        return replace(pattern, marks=tuple(sorted(marks)))
    return None


def _pattern(name: str, texts: Sequence[str]) -> SplitColumn | None:
    """Returns the pattern with these texts before, between and after numbers; None where it tells too little."""
    numbers, between = len(texts) - 1, texts[1:-1]
    if not 2 <= numbers <= MOST_NUMBERS or not all(between) or set(name) & set("{}"):
        return None
    if any(text.strip(".") == "" or set(text) & set("{}") for text in [*between, "".join(texts)]):
        return None
    places = [f"{{{name} {number + 1}}}" for number in range(numbers)]
    pattern = "".join(text + place for text, place in zip(texts, [*places, ""], strict=True))
    return SplitColumn(name, pattern)


def _amounts(name: str, counts: Mapping[str, int]) -> SplitColumn | None:
    """Returns the pattern of numbers with one of several currencies or units, before or behind all of them."""
    if set(name) & set("{}"):
        return None
    for regex, pattern in ((_BEHIND, "{%s 1} {%s 2}"), (_BEFORE, "{%s 2} {%s 1}")):
        found = {cell: match for cell in counts if (match := regex.fullmatch(cell))}
        marks = sorted(counts.keys() - found.keys())
        if not found or _too_many(marks, counts):
            continue
        rows = Counter[str]()
        for cell, match in found.items():
            rows[match["word"]] += counts[cell]
        known = rows.keys() <= {*CURRENCIES, *UNITS}
        fractions = any("." in match["number"] for match in found.values())
        # Whole numbers with letters before them are identifiers, unless they are amounts.
        if 1 < len(rows) <= MOST_WORDS and min(rows.values()) >= RARE_ROWS and (known or fractions):
            with contextlib.suppress(DomainError):
                return SplitColumn(name, pattern % (name, name), marks=tuple(marks))
    return None


def _too_many(marks: Sequence[str], counts: Mapping[str, int]) -> bool:
    """Returns whether cells beside a pattern are too many, or have too many rows, to be marks."""
    beside = sum(counts[mark] for mark in marks)
    return len(marks) > MOST_MARKS or beside > MARKED * sum(counts.values())


def _fixed(name: str, counts: Mapping[str, int]) -> SplitColumn | None:
    """Returns the pattern of cells with a fixed number of values, each one of few: ``CW31/2022``."""
    if set(name) & set("{}"):
        return None
    for sign in FIXED_SIGNS:
        split = {cell: cell.split(sign) for cell in counts}
        usual = Counter(map(len, split.values())).most_common(1)[0][0]
        cells = {cell: parts for cell, parts in split.items() if len(parts) == usual}
        marks = sorted(counts.keys() - cells.keys())
        if not 2 <= usual <= MOST_NUMBERS or _too_many(marks, counts):
            continue
        rows = [Counter[str]() for _ in range(usual)]
        for cell, parts in cells.items():
            for part, value in zip(rows, parts, strict=True):
                part[value.strip()] += counts[cell]
        if any("" in part or not _few(part, len(cells)) for part in rows):
            continue
        between = _written_separator(sign, [*cells])
        pattern = between.join(f"{{{name} {number + 1}}}" for number in range(usual))
        with contextlib.suppress(DomainError):
            return SplitColumn(name, pattern, marks=tuple(marks))
    return None


def _few(rows: Mapping[str, int], cells: int) -> bool:
    """Returns whether values are far fewer than ``cells``, and few rows have a rare one."""
    rare = sum(n for n in rows.values() if n < RARE_ROWS)
    return len(rows) <= min(MANY_CATEGORIES, cells / 4) and rare <= FOLDED * sum(rows.values())


def _answers(name: str, counts: Mapping[str, int], *, fold: bool) -> SplitColumn | None:
    """Returns the listed answers of cells that have any number of them, in their order, or the most frequent first."""
    separator = separator_of(counts)
    if not separator:
        return None
    before, behind = _around(counts)
    whole = SplitColumn(name, separator=separator, answers=("x",), before=before, behind=behind)
    rows = Counter[str]()
    for cell, count in counts.items():
        rows.update(dict.fromkeys(whole.answers_of(cell), count))
    rare = [answer for answer in rows if rows[answer] < RARE_ROWS] if fold else []
    listed = _in_order(whole, [*(rows.keys() - set(rare))], counts, rows=rows)
    other = next((word for word in OTHERS if word not in rows), "") if rare else ""
    if not listed or len(listed) > MANY_CATEGORIES or (rare and not other):
        return None
    if sum(rows[answer] for answer in rare) > FOLDED * rows.total():
        # Numbers with a sign between them, say: "other" would be most of what is there.
        return None
    return replace(whole, answers=(*listed, *([other] if other else [])), other=other)


def _in_order(
    split: SplitColumn, answers: Sequence[str], cells: Iterable[str], *, rows: Mapping[str, int]
) -> list[str]:
    """Returns answers in the order in which most cells have them; the most frequent first if they have none."""
    known, first, sample = set(answers), Counter[tuple[str, str]](), list[list[str]]()
    for cell in islice(cells, ORDER_CELLS):
        inner = _within(cell, split.before, split.behind)
        given = [a for part in inner.split(split.sign) if (a := part.strip()) in known]
        sample.append(given)
        first.update(combinations(given, 2))
    after = {a: sum(first[b, a] > first[a, b] for b in answers) for a in answers}
    usual = sorted(answers, key=lambda answer: (-rows[answer], answer))
    ordered = sorted(usual, key=after.__getitem__)
    places = {answer: place for place, answer in enumerate(ordered)}
    alike = sum(given == sorted(given, key=places.__getitem__) for given in sample)
    return ordered if alike >= IN_ORDER * len(sample) else usual
