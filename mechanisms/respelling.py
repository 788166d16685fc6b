"""Notes on values that a synthetic table would have in another spelling than its table.

A column has one spelling. Where a table has several, a draft says how many rows have each, or how many come back
otherwise. The texts are secret, at their owner; a note has spellings and numbers of rows, and no value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from mechanisms.columns import Column
from mechanisms.moments import Form
from mechanisms.numbers import Integer, Real
from mechanisms.recognising import (
    AFFIXED,
    CODES_SHARE,
    SEPARATORS,
    NumberReading,
    core_regex,
    is_affix,
    without_sign,
)
from mechanisms.recognising_moments import MomentReading
from mechanisms.spelling import Numeral
from mechanisms.split_columns import SplitColumn
from mechanisms.text_table import and_list, named

MOST_STYLES = 4
"""Most spellings of numbers that a note names."""


def respelt_note(
    column: Column,
    reading: NumberReading | MomentReading,
    counts: Mapping[str, int],
    *,
    decimal: str,
) -> str:
    """Returns what a draft says of values that come back in another spelling; "" if there are none.

    ``decimal`` is the table's decimal sign.
    """
    if isinstance(reading, MomentReading):
        read: Collection[str] = reading.moments
        other = [text for text in read if not _is_written(reading, text)]
        form = str(reading.form)
    elif isinstance(column, Integer | Real):
        read = reading.plain
        shortest = not column.form and not any(re.search(r"\.\d*0$", text) for text in read)
        other = [
            text
            for text in read
            if not _comes_back(column, text, reading.plain[text], shortest=shortest)
        ]
        form = _form_of(column, decimal)
    else:
        return ""
    rows, of = (sum(counts[text] for text in texts) for texts in (other, read))
    if not rows and not any(map(_is_bare, reading.marks)):
        return ""
    mixed = mixed_numbers(counts) if isinstance(reading, NumberReading) else ""
    place = f"column {named(column.name)}:"
    if mixed:
        marks = "the rarest are marks" if not rows else f"all come back as {form}"
        return f"{place} has numbers in several spellings, {mixed}; {marks}"
    return (
        f"{place} {rows:,} of {of:,} values are written otherwise, and come back as {form}"
        if rows
        else ""
    )


def respelt_cells_note(
    split: SplitColumn, counts: Mapping[str, int], missing: Sequence[str]
) -> str:
    """Returns what a draft says of cells with several answers that come back otherwise; "" if there are none."""
    if split.pattern:
        return ""
    reasons = Counter[str]()
    for cell, rows in counts.items():
        if reason := _why_otherwise(split, cell, missing):
            reasons[reason] += rows
    if not reasons:
        return ""
    said = and_list(f"{rows:,} with {reason}" for reason, rows in reasons.items())
    return f"column {named(split.column)}: cells come back otherwise, {said}"


def mixed_numbers(counts: Mapping[str, int]) -> str:
    """Returns the spellings of texts that are nearly all numbers in several of them, with their rows; "" for others."""
    left, said, numbers = dict(counts), list[str](), 0
    parts = {text: found for text in counts if (found := AFFIXED.fullmatch(text))}
    while left and len(said) < MOST_STYLES:
        style, texts = _commonest(parts, left)
        if not texts:
            break
        rows = sum(left.pop(text) for text in texts)
        numbers += rows
        said.append(f"{_notation(style, parts, texts)} in {rows:,}")
    whole = sum(counts.values())
    return f"{and_list(said)} rows" if len(said) > 1 and numbers >= CODES_SHARE * whole else ""


_Style = tuple[str, str, str, str]


def _commonest(
    parts: Mapping[str, re.Match[str]], counts: Mapping[str, int]
) -> tuple[_Style, list[str]]:
    """Returns the prefix, suffix and signs of most of the rows, and the texts that have them."""
    styles = dict[_Style, list[str]]()
    for text in counts:
        found = parts.get(text)
        if found is None:
            continue
        around = without_sign(found[1], found[3])
        if not is_affix(*around):
            continue
        for thousands, decimal, pairs in SEPARATORS:
            if not pairs and core_regex(thousands, decimal, pairs).fullmatch(found[2]):
                styles.setdefault((*around, thousands, decimal), []).append(text)
    if not styles:
        return ("", "", "", "."), []
    style = max(styles, key=lambda each: sum(counts[text] for text in styles[each]))
    return style, styles[style]


def _is_bare(text: str) -> bool:
    """Returns whether a text is a number without words, in any spelling."""
    found = AFFIXED.fullmatch(text)
    return found is not None and not any(without_sign(found[1], found[3]))


def _notation(style: _Style, parts: Mapping[str, re.Match[str]], texts: Sequence[str]) -> str:
    """Returns the notation of a spelling, with thousands and decimals as its texts have them."""
    prefix, suffix, thousands, decimal = style
    cores = [parts[text][2] for text in texts]
    places = {len(core.partition(decimal)[2]) for core in cores}
    used = bool(thousands) and any(thousands in core for core in cores)
    fixed = len(places) == 1
    numeral = Numeral(prefix, suffix, thousands if used else "", decimal, least=min(places))
    return str(numeral if fixed else replace(numeral, more=1))


def _form_of(column: Integer | Real, decimal: str) -> str:
    """Returns the spelling of a column as a configuration has it, also that of plain numbers."""
    if column.form or isinstance(column, Integer):
        return column.form or "0"
    return f"0{decimal}{'0' * (column.decimals or 0)}".removesuffix(decimal)


def _comes_back(column: Integer | Real, text: str, plain: str, *, shortest: bool) -> bool:
    """Returns whether a number is written as it was; one that is rounded has no spelling to keep.

    In a column of ``shortest`` numbers (no decimal is 0 at an end) a 0 behind decimals is no other spelling.
    """
    if isinstance(column, Integer):
        return column.text_of(int(Decimal(plain))) == text.strip()
    if column.decimals is None:
        return True
    multiple = column.multiple(plain)
    if multiple is None or Decimal(column.plain_of(multiple)) != Decimal(plain):
        return True
    written = column.text_of(multiple)
    return text.strip() in (written, written.rstrip("0") if shortest and "." in text else written)


def _is_written(reading: MomentReading, text: str) -> bool:
    """Returns whether a moment is written as it was."""
    form, moment = reading.form, reading.moments[text]
    return form.writes(moment, text) if isinstance(form, Form) else form.write(moment) == text


def _why_otherwise(split: SplitColumn, cell: str, missing: Sequence[str]) -> str:
    """Returns why a cell of answers is written otherwise; "" if it comes back, or lacks answers that are not listed."""
    values = None if cell in missing else split.split(cell, missing)
    if values is None or split.join(values, missing) == cell:
        return ""
    given = split.given_in(cell)
    if "" in given:
        return "an answer that is empty, which is left out"
    if len(set(given)) < len(given):
        return "an answer twice, which stands once"
    if given != [answer for answer in split.answers if answer in given]:
        return "" if set(given) - set(split.answers) else "answers in another order"
    return "other blanks around answers"
