"""Header of a table: the line with the names of the columns, and the parts of a file that are no columns.

``table_of`` makes a ``TextTable`` of a file's rows. Only names may become column names, since these are published: if
that is in doubt the table is refused, and the error names the option that decides.

- A title above the header is skipped, with a note, if the row below it has a name for every column and the rows below
  that have numbers or dates.
- Refused: a header with a cell that looks like a value, further header rows (questions, labels, units), a repeated
  header. With a line of the first values, what stands between is skipped.
- Left out, with a note: rows below the table with separators alone, or with words in the first column alone, and a last
  row of totals; an index column (without a name, with whole numbers that are all different); columns without a name and
  without a value, such as a trailing separator makes.

The rows are secret, at their owner; an error may quote one cell of the header.
Limits: rules of thumb, all in the constants below; ``Dialect.header_line`` and ``values_line`` override them.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter

from mechanisms.dialect import Row
from mechanisms.errors import DataError
from mechanisms.text_table import TextTable

OPTION, VALUES_OPTION = "--header-line", "--values-line"
_SAMPLE_ROWS = 500
_TITLE_ROWS, _FOOTER_ROWS = 50, 10
_SEVERAL_RAGGED = 10
_FEWEST_ROWS, _ROWS_OF_TEXT = 3, 10
"""Fewest rows below a header by which it is judged, and by which texts below it are."""
_FURTHER_HEADERS, _TEXTS = 3, 2 / 3
"""Most further rows of a header; share of its columns with words that are longer than all below them."""
_ALIKE, _TYPED = 0.95, 0.8
"""Share of a column's values with one shape that its header is compared with; share of numbers or dates."""
_MISSING = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "-", ".")
_PANDAS_INDEX = ("Unnamed: 0", "__index_level_0__")
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d([T ].*)?|\d{1,2}[./-]\d{1,2}[./-](\d{2}|\d{4})|\d{1,2}[ -]?[A-Za-z]{3}[ -]?\d{2,4}"
    r"|\d{1,2}:\d\d(:\d\d)?"
)
# Digits with the signs of numbers, dates, ranges, percent and money around them.
_NUMERIC = re.compile(
    r"[<>≤≥~$€£+\-(]{0,2}\s*\d[\d.,:/'’\s-]*(e[+-]?\d+)?\s*[)%€$£]?", re.IGNORECASE
)
_TOTALS = frozenset(
    {
        *("total", "totals", "grand total", "sum", "summe", "gesamt", "gesamtsumme", "insgesamt"),
        *("total général", "somme", "totale", "somma", "suma", "totaal", "soma"),
    }
)
_ROWS_OF_TOTAL = 10
"""Words for the sums in a last row, and most rows in which they are taken for values."""
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


def table_of(
    where: str,
    rows: Sequence[Row],
    *,
    header_line: int | None = None,
    values_line: int | None = None,
    as_is: bool = False,
    unit: str = "line",
    read: Callable[[Sequence[str], list[Row]], None] = lambda header, body: None,
) -> TextTable:
    """Returns the table of a file's rows; ``read`` may change the rows below the header, in place.

    Raises ``DataError`` as the module says, for a column without a name or with another's, and for a row of another
    length than the header.
    """
    if not any(any(cells) for _, cells in rows):
        raise DataError(f"{where}: is empty; a header row is needed")
    position, notes = _position(where, rows, header_line, unit)
    if header_line == 0:
        width = max(len(cells) for _, cells in rows)
        line, header = 0, [f"column_{i}" for i in range(1, width + 1)]
    else:
        line, header = rows[position][0], list(rows[position][1])
    body, between = _from_values(where, rows[position + 1 :], values_line, unit=unit)
    notes = (*notes, *between)
    place = f"{where}, {unit} {line}"
    if not as_is:
        body, ends = _without_end(header, body, unit)
        notes = (*notes, *ends)
    if header_line is None:
        _check_header(place, header, body, unit, further=values_line is None)
    header, cut = _cut(place, header, body, unit)
    read(header, body)
    return _table(place, header, body, unit, (*notes, *cut), as_is=as_is)


def is_table(rows: Sequence[Row]) -> bool:
    """Returns whether a header of several names is above other rows; other errors do not matter."""
    filled = [sum(map(bool, cells)) for _, cells in rows]
    return sum(count > 1 for count in filled) >= 2


def looks_like_value(text: str) -> bool:
    """Returns whether a text is a number, a date, a time, a range, an amount or an address.

    Such texts are values of a table and seldom names.
    """
    return any(form.fullmatch(text) for form in (_NUMERIC, _DATE, _ADDRESS))


def _position(
    where: str, rows: Sequence[Row], header_line: int | None, unit: str
) -> tuple[int, tuple[str, ...]]:
    """Returns the position of the header row, -1 for none, and a note on the rows above it."""
    if header_line == 0:
        return -1, (f"no {unit} has names: columns are called column_1, column_2 and so on",)
    if header_line is None:
        return _below_title(where, rows, unit)
    lines = [line for line, _ in itertools.takewhile(lambda row: row[0] <= header_line, rows)]
    if not lines or lines[-1] != header_line:
        raise DataError(
            f"{where}: no row begins at {unit} {header_line}; expected the {unit} of the columns' names ({OPTION})"
        )
    return len(lines) - 1, _skipped_note(rows, len(lines) - 1, unit)


def _from_values(
    where: str, rows: Sequence[Row], values_line: int | None, *, unit: str
) -> tuple[list[Row], tuple[str, ...]]:
    """Returns the rows from the first values on, and a note on those between them and the names."""
    if values_line is None:
        return list(rows), ()
    between = [line for line, _ in rows if line < values_line]
    body = [row for row in rows if row[0] >= values_line]
    if not body or body[0][0] != values_line:
        raise DataError(
            f"{where}: no row of values begins at {unit} {values_line}; expected the {unit} of the first values, below "
            f"the columns' names ({VALUES_OPTION})"
        )
    return body, (f"{_lines(unit, between)} below the header skipped",) if between else ()


def _below_title(where: str, rows: Sequence[Row], unit: str) -> tuple[int, tuple[str, ...]]:
    """Returns the first row that is as wide as most rows; narrow rows above it are a title."""
    sample = [cells for _, cells in rows[:_SAMPLE_ROWS]]
    widths = [_width(cells) for cells in sample]
    width = Counter(map(len, sample)).most_common(1)[0][0]
    # Rows of a sheet have one length: the number of filled cells tells more.
    counts = Counter(widths)
    common = max(max(counts, key=lambda found: (counts[found], found * (counts[found] > 1))), 1)
    filled = [sum(map(bool, cells)) for cells in sample]
    full = [
        number
        for number, cells in enumerate(sample[: _TITLE_ROWS + 1])
        if len(cells) >= min(width, common) - 1 and filled[number] * 2 > common
    ]
    first = full[0] if full else 0
    if not any(filled[:first]):
        return first, ()
    names, below = sample[first], sample[first + 1 :]
    if _is_above(names, below):
        return first, _skipped_note(rows, first, unit)
    raise DataError(
        f"{where}, {_range(rows, first, unit)}: narrower than the rows below, as a title is; give {OPTION} "
        f"{rows[first][0]} if the names of the columns stand there, or {OPTION} {rows[0][0]} if they stand first"
    )


def _is_above(names: list[str], below: list[list[str]]) -> bool:
    """Returns whether a row is full of names, above a column of numbers or dates."""
    named = [name for name in names if name]
    if len(set(named)) < len(named) or any(map(looks_like_value, named)):
        return False
    return any(map(_is_typed, _columns(below, len(names))))


def _skipped_note(rows: Sequence[Row], first: int, unit: str) -> tuple[str, ...]:
    if not any(any(cells) for _, cells in rows[:first]):
        return ()
    return (f"{_range(rows, first, unit)} above the header skipped",)


def _range(rows: Sequence[Row], first: int, unit: str) -> str:
    start, end = rows[0][0], rows[first - 1][0]
    return f"{unit} {start}" if start == end else f"{unit}s {start} to {end}"


def _without_end(
    header: list[str], body: list[Row], unit: str
) -> tuple[list[Row], tuple[str, ...]]:
    """Returns the rows without separators alone at the end, as spreadsheets write them, and without remarks."""
    end = len(body)
    while end and (not any(body[end - 1][1]) or _is_remark(header, body[end - 1][1])):
        end -= 1
    if end > _ROWS_OF_TOTAL and len(header) > 1 and _is_total(body[:end]):
        rows, others = _without_end(header, [*body[: end - 1], *body[end:]], unit)
        return rows, (f"{unit} {body[end - 1][0]} below the table, a total, left out", *others)
    tail = body[end:]
    if not end or not tail or len(header) < 2:
        return body, ()
    remarks = [line for line, cells in tail if any(cells)]
    # In a sheet all rows have one length; there an empty row separates a remark from the rows.
    apart = not any(tail[0][1]) or body[end - 1][0] + 1 < tail[0][0]
    short = any(len(cells) < len(header) for _, cells in tail)
    if remarks and (len(remarks) > _FOOTER_ROWS or not (apart or short)):
        return body, ()
    notes = []
    if blank := [line for line, cells in tail if not any(cells)]:
        notes.append(f"{_lines(unit, blank)} without values left out")
    if remarks:
        notes.append(f"{_lines(unit, remarks)} below the table, of a few words, left out")
    return body[:end], tuple(notes)


def _is_total(body: list[Row]) -> bool:
    """Returns whether the last row has a word for a total that stands in no other row of its column."""
    last = [cell.rstrip(":").lower() for cell in body[-1][1]]
    place = next((place for place, cell in enumerate(last) if cell in _TOTALS), None)
    if place is None or not any(map(looks_like_value, body[-1][1])):
        return False
    above = (cells[place] for _, cells in body[:-1] if place < len(cells))
    return all(cell.rstrip(":").lower() not in _TOTALS for cell in above)


def _is_remark(header: list[str], cells: list[str]) -> bool:
    """Returns whether a row has words in the first of several columns, and nothing else."""
    said = cells[0] if cells and not any(cells[1:]) else ""
    return len(header) > 1 and " " in said and not looks_like_value(said)


def _check_header(
    place: str, header: list[str], body: list[Row], unit: str, *, further: bool
) -> None:
    """Raises ``DataError`` if the header may be no header or, with ``further``, not all of it."""
    sample = [cells for _, cells in body[:_SAMPLE_ROWS]]
    if repeats := [line for line, cells in body if cells == header]:
        raise DataError(
            f"{place}: the header comes again in {_lines(unit, repeats)}; remove it there, or give {OPTION} "
            f"{_line_of(place)} if these are values"
        )
    if _is_counted(header):
        return
    if reason := _value_in(header, sample, body):
        raise DataError(
            f"{place}, {reason}: the first row of a table has the names of its columns, which are published; add such "
            f"a row, or give {OPTION} {_line_of(place)} if this is it, {OPTION} 0 if there is none"
        )
    count = _further_headers(header, sample) if further else 0
    if count:
        lines = [line for line, _ in body[: count + 1]]
        looks = "looks like a second header" if count == 1 else "look like further headers"
        raise DataError(
            f"{place}: {_lines(unit, lines[:count])} {looks}; give {VALUES_OPTION} {lines[count]} if the values begin "
            f"there, {OPTION} {lines[0]} if the names of the columns stand there, or {OPTION} {_line_of(place)} if "
            f"{unit} {lines[0]} has values"
        )


def _line_of(place: str) -> str:
    return place.rpartition(" ")[2]


def _is_counted(header: list[str]) -> bool:
    """Returns whether the names are those of pandas for unnamed columns: 0, 1, 2 and so on."""
    named = header if header[0] else header[1:]
    return len(named) > 2 and named == [str(i) for i in range(len(named))]


def _value_in(header: list[str], sample: list[list[str]], body: list[Row]) -> str:
    """Returns the cell of a header that is a value, and why; "" if there is none."""
    named = [(number, name) for number, name in enumerate(header) if name]
    columns = _columns(sample, len(header))
    for number, name in named:
        said = f"column {number + 1}: {_shown(name)}"
        if looks_like_value(name):
            return f"{said} looks like a value"
        if len(sample) >= _FEWEST_ROWS and _is_code(name):
            alike = sum(_shape(value) == _shape(name) for value in columns[number])
            if alike >= _ALIKE * len(sample):
                return f"{said} is written like the values below it"
    rows = [cells for _, cells in body]
    again = [(number, name) for number, name in named if _has(rows, number, name)]
    # A word above numbers is a name; then a name that also occurs as a value is accepted.
    sure = any(
        name not in _MISSING and (number, name) not in again and _is_typed(columns[number])
        for number, name in named
    )
    if not again or (sure and len(again) * 2 < len(named)):
        return ""
    return f"column {again[0][0] + 1}: {_shown(again[0][1])} is a value of other rows, too"


def _has(rows: list[list[str]], number: int, value: str) -> bool:
    """Returns whether a row has the value in the column of that number."""
    try:
        return value in map(itemgetter(number), rows)
    except IndexError:
        return any(number < len(cells) and cells[number] == value for cells in rows)


def _is_code(text: str) -> bool:
    return len(text) > 3 and sum(map(str.isdigit, text)) > 1


def _shape(text: str) -> str:
    return re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "9", text))


def _further_headers(header: list[str], sample: list[list[str]]) -> int:
    """Returns the number of rows that say what columns are, as questions, labels and units do."""
    count = 0
    while count < _FURTHER_HEADERS and count + 1 < len(sample):
        rest = sample[count:]
        if not _is_second_header(header, rest) and not _is_row_of_texts(header, rest):
            break
        count += 1
    return count


def _is_row_of_texts(header: list[str], sample: list[list[str]]) -> bool:
    """Returns whether the first row has words, in most columns more than any value below, such as questions."""
    rest = sample[1:]
    if len(rest) < _ROWS_OF_TEXT:
        return False
    columns = [
        (text, [len(value) for value in column if value not in (*_MISSING, text)])
        for text, column in zip(
            sample[0], _columns(rest[_FURTHER_HEADERS:], len(header)), strict=False
        )
    ]
    given = [(text, lengths) for text, lengths in columns if lengths]
    texts = [
        text
        for text, lengths in given
        if (" " in text or text.startswith("{")) and len(text) > max(lengths)
    ]
    return len(texts) > 1 and len(texts) >= _TEXTS * len(given)


def _is_second_header(header: list[str], sample: list[list[str]]) -> bool:
    """Returns whether the first row has words in every column whose other values are numbers or dates."""
    second, rest = sample[0], sample[1:]
    if len(rest) < _FEWEST_ROWS:
        return False
    columns = _columns(rest, len(header))
    typed = [number for number, column in enumerate(columns) if _is_typed(column)]
    words = [second[number] for number in typed if number < len(second)]
    said = [word for word in words if word]
    if not said or len(said) * 2 <= len(typed):
        return False
    if any(word in _MISSING or looks_like_value(word) for word in said):
        return False
    # A cell that other rows have too is a value.
    return not any(cell and cell in column for cell, column in zip(second, columns, strict=False))


def _is_typed(column: Sequence[str]) -> bool:
    """Returns whether a column has numbers or dates, and few words."""
    values = [value for value in column if value not in _MISSING]
    return len(values) >= 2 and sum(map(looks_like_value, values)) >= _TYPED * len(values)


def _columns(rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """Returns the columns of rows of any length."""
    return [[row[i] if i < len(row) else "" for row in rows] for i in range(width)]


def _cut(
    place: str, header: list[str], body: list[Row], unit: str
) -> tuple[list[str], tuple[str, ...]]:
    """Returns header and rows without the empty ends that trailing separators make; cuts rows in place."""
    names = header[: _width(header)]
    if not names:
        raise DataError(f"{place}: column 1 has no name")
    width = len(names)
    longer = [row for row in body if len(row[1]) > width]
    if longer and width == len(header) and names[0] and _has_row_names(body, width):
        return ["", *names], ()
    for line, cells in longer:
        end = _width(cells)
        if end > width:
            if width < len(header):
                raise DataError(
                    f"{place}: column {end} has no name, and {unit} {line} has a value there; name it"
                )
            continue
        del cells[width:]
    trailing = len(header) > width or any(len(cells) == width for _, cells in longer)
    return names, ("empty values after the last separator left out",) if trailing else ()


def _has_row_names(body: list[Row], width: int) -> bool:
    """Returns whether rows begin with R's row names: each row is one longer than the header and begins with a number.

    R writes row names without a name in the header.
    """
    rows = [cells for _, cells in body]
    whole = len(rows) >= _FEWEST_ROWS and all(len(cells) == width + 1 for cells in rows)
    return whole and any(cells[-1] for cells in rows) and _counts_up([cells[0] for cells in rows])


def _counts(values: Sequence[str]) -> bool:
    """Returns whether the values are whole numbers that are all different, as an index has them."""
    return all(map(str.isdecimal, values)) and len(set(values)) == len(values)


def _counts_up(values: Sequence[str]) -> bool:
    start = 1 if values and values[0] == "1" else 0
    return list(values) == [str(i) for i in range(start, start + len(values))]


def _table(
    place: str,
    header: list[str],
    body: list[Row],
    unit: str,
    notes: tuple[str, ...],
    *,
    as_is: bool,
) -> TextTable:
    """Returns the table without index and empty columns. Raises ``DataError`` for ragged rows and for names."""
    _check_lengths(place, header, body, unit)
    cells = (row for _, row in body)
    columns = list(zip(*cells, strict=True)) if body else [()] * len(header)
    kept: dict[str, Sequence[str]] = {}
    said = list(notes)
    for number, (name, values) in enumerate(zip(header, columns, strict=True), start=1):
        if not name and number == 1 and _counts(values):
            said.append("the index, a first column without a name, left out")
        elif number == 1 and not as_is and name in _PANDAS_INDEX and _counts_up(values):
            said.append(f"the index, column {name!r}, left out")
        elif not name and not any(values):
            said.append(f"column {number}, without name and values, left out")
        elif not name:
            raise DataError(f"{place}: column {number} has no name; name it, or remove it")
        elif name in kept:
            first = header.index(name) + 1
            raise DataError(
                f"{place}: column {name!r} appears twice, as column {first} and as column {number}; rename one"
            )
        else:
            kept[name] = values
    if not kept:
        raise DataError(f"{place}: has no column with a name")
    return TextTable(kept, [line for line, _ in body], unit, tuple(said))


def _check_lengths(place: str, header: list[str], body: list[Row], unit: str) -> None:
    where = place.rpartition(f", {unit} ")[0]
    ragged = [(line, len(row)) for line, row in body if len(row) != len(header)]
    if not ragged:
        return
    line, found = ragged[0]
    more = f" ({len(ragged)} such {unit}s: {_listed([line for line, _ in ragged])})"
    raise DataError(
        f"{where}, {unit} {line}: {found} values; the header has {len(header)} columns"
        + (more if len(ragged) > 1 else "")
    )


def _lines(unit: str, lines: Sequence[int]) -> str:
    return f"{unit} {lines[0]}" if len(lines) == 1 else f"{unit}s {_listed(lines)}"


def _listed(lines: Sequence[int]) -> str:
    return ", ".join(map(str, lines[:_SEVERAL_RAGGED])) + ", ..." * (len(lines) > _SEVERAL_RAGGED)


def _width(cells: Sequence[str]) -> int:
    """Returns the number of cells up to the last nonempty one."""
    return next((i for i in range(len(cells), 0, -1) if cells[i - 1]), 0)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
