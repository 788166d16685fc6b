"""The dialect of a text table, given or recognised: encoding, delimiter, quotes, decimal sign.

Every part of a ``Dialect`` that is None is recognised:

- Encoding: a byte order mark decides. Without one: UTF-8 if the bytes are valid; else the one that
  `mechanisms.encodings` recognises. Nothing is guessed: where several are likely, one has to be given.
- Delimiter: of comma, semicolon, tab and bar the one that splits the header and every row alike, into most columns; if
  there is none, the one that at least half of the rows agree with; else the one that nine tenths of the rows below the
  lines of a title agree with; else runs of blanks, if they make three columns or more of which one has numbers; else
  one of ``~``, ``^``, ``¦``, ``§`` and the unit separator that splits all rows alike, into three columns or more; else
  the comma. A first line ``sep=;``, as Excel writes it, decides.
- Quotes: double ones; single ones if all names in the header have them.
- Decimal comma: if the delimiter is another sign, and some column's numbers have commas that cannot separate thousands
  (``1,5`` or ``0,125``, not ``1,250``). Then ``1.234,5`` is read as 1234.5 in every column of which at least half are
  such numbers; if the comma was given, in all columns. A column with decimal points beside commas stays as it is.
- Header: see `mechanisms.header`.

The rules are public. The text is secret, at its owner.
Limits: a table that can be read in two ways is read in one of them; give the dialect where that matters.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from mechanisms.encodings import UnclearEncoding, recognise_encoding, utf16_of
from mechanisms.errors import DataError

COMMA, SEMICOLON, TAB, BAR, BLANK = ",", ";", "\t", "|", " "
_DELIMITERS = (COMMA, SEMICOLON, TAB, BAR)
_RARE_DELIMITERS = ("~", "^", "\x1f", "\xa6", "\xa7")
_NAMES = {COMMA: "comma", SEMICOLON: "semicolon", TAB: "tab", BAR: "bar", BLANK: "blanks"}
_SAMPLE_ROWS = 500
_SAMPLE_CHARACTERS = 1 << 20
_TITLE_LINES, _LEAST_ROWS, _AGREED = 50, 3, 0.9
"""Most lines of a title; fewest rows below it, header included; share of those rows with one width."""
_ENOUGH_SIGNS = 20
"""Fewest signs beyond ASCII that are UTF-8, for each byte that is not, in a text that is UTF-8 but for these bytes."""
_BROKEN, _PLAIN_SIGNS = re.compile("[\udc80-\udcff]"), re.compile("[\x00-\x7f]+")
_SAID = re.compile(r'"?sep=(.)"?(\r\n|\r|\n)', re.IGNORECASE)

_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
_WHOLE_IN_THOUSANDS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+")
# Numbers whose comma cannot separate thousands.
_SURELY_DECIMAL = re.compile(
    r"[+-]?(0,\d+|\d+,(\d{1,2}|\d{4,})|\d{4,},\d+|\d{1,3}(\.\d{3})+,\d+|\d+,\d+[eE][+-]?\d+)"
)
_BLANKS_BETWEEN = re.compile("[+-]?\\d{1,3}([ \u00a0\u202f'\u2019]\\d{3})+,\\d+")
"""Numbers with other separators of thousands beside a decimal comma: a column of them is left as it is written."""
_OTHER_MINUS = re.compile(r"\(\d[\d.]*(,\d+)?\)|\d[\d.]*(,\d+)?-")
"""Negative numbers in parentheses, or with the minus behind: a column of them is left as it is written, too."""
_DECIMAL_POINT = re.compile(r"[+-]?\d+\.\d+([eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?\d+")
_WITH_POINT = re.compile(r"[+-]?(\d{1,3}(,\d{3})+\.\d+|\d{1,3}(,\d{3}){2,}|\d+\.\d+)")
"""Numbers with a decimal point, or with commas between thousands."""
_LARGE = re.compile(r"[+-]?(\d{4}|\d{1,3}\.)")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")

Row = tuple[int, list[str]]
"""The line on which a row begins, and its values without surrounding blanks."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The dialect of a table; None parts are recognised.

    ``header_line`` is the line of the columns' names; 0 if there are none. ``values_line`` is the line of the first
    values, if others stand between. ``as_is`` marks a table written by this
    project, of which no row and no column is left out. Raises ``DataError`` for a delimiter of several characters and
    for invalid values.
    """

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    quote: str | None = None
    header_line: int | None = None
    values_line: int | None = None
    as_is: bool = False

    def __post_init__(self) -> None:
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise DataError(
                f"delimiter {self.delimiter!r}: one character is needed, such as ; or a tab"
            )
        if self.decimal not in (None, ".", ","):
            raise DataError(f"decimal sign {self.decimal!r}: it is a point or a comma")
        if self.header_line is not None and self.header_line < 0:
            raise DataError(f"header line {self.header_line}: it is 1 or more, or 0 for none")
        if self.values_line is not None and self.values_line < 1:
            raise DataError(f"values line {self.values_line}: it is 1 or more")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except (LookupError, ValueError):
                raise DataError(
                    f"encoding {self.encoding!r} is unknown; utf-8, utf-16, cp1252, cp1250, cp1251, cp932, gb18030, "
                    "big5 and cp949 are usual"
                ) from None

    def __str__(self) -> str:
        delimiter = self.delimiter or COMMA
        name = _NAMES.get(delimiter, repr(delimiter))
        sign = "comma" if self.decimal == COMMA else "point"
        quotes = "; single quotes" if self.quote == "'" else ""
        return f"{self.encoding}, {name} between values, decimal {sign}{quotes}"


PLAIN = Dialect(COMMA, ".", "utf-8", '"', header_line=1, as_is=True)
"""Default dialect of synthetic tables."""


def decode_text(content: bytes, encoding: str | None) -> tuple[str, str]:
    """Returns the text and its encoding.

    Raises ``UnicodeDecodeError`` if a given encoding is wrong, and ``UnclearEncoding`` if none is recognised.
    """
    if encoding is not None:
        return content.decode(encoding).removeprefix("\ufeff"), encoding
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if content.startswith(mark):
            return content.decode(name), name
    name = utf16_of(content)
    if name:
        return content.decode(name), name
    try:
        return content.decode("utf-8"), "utf-8"
    except UnicodeDecodeError as error:
        if line := _broken_line(content):
            raise UnclearEncoding(
                "a byte is not UTF-8, as the rest of the file is; mend it there, or give the file's --encoding",
                line,
            ) from error
    name = recognise_encoding(content)
    return content.decode(name), name


def _broken_line(content: bytes) -> int:
    """Returns the first line with a byte that is not UTF-8, if nearly all other signs are; 0 for other texts."""
    text = content.decode("utf-8", "surrogateescape")
    first = _BROKEN.search(text)
    signs = len(_PLAIN_SIGNS.sub("", text))
    broken = len(_BROKEN.findall(text))
    if first is None or signs - broken < _ENOUGH_SIGNS * broken:
        return 0
    return text.count("\n", 0, first.start()) + 1


@dataclass(slots=True)
class Blanks:
    """Blanks at the ends of values, which reading drops: how many values had some, by their place in a row.

    ``early`` has line and place of those in the first lines, among which the header is.
    """

    values: Counter[int] = field(default_factory=Counter)
    early: list[tuple[int, int]] = field(default_factory=list)

    def count(self, line: int, row: list[str], stripped: list[str]) -> None:
        """Counts a row's values that have blanks."""
        places = [i for i, value in enumerate(row) if len(value) != len(stripped[i])]
        self.values.update(places)
        if line <= _TITLE_LINES:
            self.early += [(line, place) for place in places]

    def below(self, line: int) -> Counter[int]:
        """Returns the number of such values by place, without those of rows above a line."""
        return self.values - Counter(place for at, place in self.early if at < line)


def parse_rows(text: str, dialect: Dialect) -> tuple[list[Row], Dialect, Blanks]:
    """Returns the rows of a text, the dialect with delimiter and quote recognised if they were not given, and blanks.

    Empty lines are left out. Raises ``csv.Error`` for quotes that do not close.
    """
    said = _SAID.match(text)
    delimiter = dialect.delimiter or (said[1] if said else None)
    # The line stays, empty, so that all others keep their numbers.
    body = text[said.start(2) :] if said else text
    quote = dialect.quote or _recognise_quote(body, delimiter)
    delimiter = delimiter or _recognise_delimiter(body, quote)
    blanks = Blanks()
    rows = list(_rows(body, delimiter, quote, blanks=blanks))
    return rows, replace(dialect, delimiter=delimiter, quote=quote), blanks


def read_decimals(rows: list[Row], dialect: Dialect) -> tuple[str, dict[int, tuple[int, int]]]:
    """Returns the decimal sign of the ``rows`` below a header; turns decimal commas into points, in place.

    Beside a decimal comma the second part has, by a column's place, how many numbers had points between thousands, and
    how many might have had them.
    """
    decimal = dialect.decimal or _recognise_decimal(rows, dialect.delimiter or COMMA)
    if decimal != COMMA:
        return decimal, {}
    return decimal, dict(_read_commas(rows, everywhere=dialect.decimal == COMMA))


def _rows(text: str, delimiter: str, quote: str, *, blanks: Blanks | None = None) -> Iterator[Row]:
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quotechar=quote,
        strict=True,
        skipinitialspace=delimiter == BLANK,
    )
    line, last = 1, 0
    try:
        for row in reader:
            if row:
                last = line
                stripped = [value.strip() for value in row]
                if blanks and stripped != row:
                    blanks.count(line, row, stripped)
                yield line, stripped
            line = reader.line_num + 1
    except csv.Error as error:
        raise csv.Error(f"after line {last}: {error}") from error


def _recognise_quote(text: str, delimiter: str | None) -> str:
    """Returns the single quote if all names of the header stand in single quotes, else the double one."""
    header = text.lstrip("\r\n").partition("\n")[0].strip()
    for sign in (delimiter,) if delimiter else _DELIMITERS:
        names = [name.strip() for name in header.split(sign)]
        if all(len(name) > 2 and name[0] == name[-1] == "'" for name in names):
            return "'"
    return '"'


def _recognise_delimiter(text: str, quote: str) -> str:
    """Recognises the delimiter by splitting a sample; the module's docstring has the rules."""
    scored = []
    for preference, delimiter in enumerate(_DELIMITERS):
        widths = _widths(text, delimiter, quote)
        if len(widths) > 1 and widths[0] > 1:
            share = sum(width == widths[0] for width in widths[1:]) / (len(widths) - 1)
            scored.append((share == 1, share, widths[0], -preference, delimiter))
        elif widths and widths[0] > 1:
            scored.append((True, 1.0, widths[0], -preference, delimiter))
    alike, share, width, _, best = max(scored, default=(False, 0.0, 0, 0, COMMA))
    below = max(_below_title(text, quote), default=(0.0, 0, 0, COMMA))
    if alike or (share >= 0.5 and (share, width) >= below[:2]):
        return best
    if below[0]:
        return below[-1]
    return BLANK if _is_in_blanks(text, quote) else _rare_delimiter(text, quote)


def _rare_delimiter(text: str, quote: str) -> str:
    """Returns the rare sign that splits the header and every row alike, into three columns or more; else the comma."""
    for delimiter in _RARE_DELIMITERS:
        widths = _widths(text, delimiter, quote)
        if len(widths) >= _LEAST_ROWS and widths[0] > 2 and len(set(widths)) == 1:
            return delimiter
    return COMMA


def _below_title(text: str, quote: str) -> Iterator[tuple[float, int, int, str]]:
    """Yields share, width, preference and delimiter if nearly all rows from the first full one on agree."""
    for preference, delimiter in enumerate(_DELIMITERS):
        widths = _widths(text, delimiter, quote)
        width = Counter(widths).most_common(1)[0][0] if widths else 0
        first = widths.index(width) if width > 1 else len(widths)
        below = widths[first:]
        if first > _TITLE_LINES or len(below) < _LEAST_ROWS:
            continue
        share = below.count(width) / len(below)
        if share >= _AGREED:
            yield share, width, -preference, delimiter


def _is_in_blanks(text: str, quote: str) -> bool:
    """Returns whether the rows have one width of three columns or more, one with numbers below a name."""
    try:
        rows = [row for _, row in _rows(text[:_SAMPLE_CHARACTERS], BLANK, quote)][:_SAMPLE_ROWS]
    except csv.Error:
        return False
    if len(text) > _SAMPLE_CHARACTERS:
        rows = rows[:-1]
    width = len(rows[0]) if rows else 0
    if width < 3 or len(rows) < _LEAST_ROWS or any(len(row) != width for row in rows):
        return False
    names, *body = rows
    return any(
        not _NUMBER.fullmatch(name) and all(_NUMBER.fullmatch(row[place]) for row in body)
        for place, name in enumerate(names)
    )


def _widths(text: str, delimiter: str, quote: str) -> list[int]:
    """Returns the number of values in each of the first rows with this delimiter; a wrong quote ends the list."""
    widths = []
    try:
        for _, row in _rows(text[:_SAMPLE_CHARACTERS], delimiter, quote):
            widths.append(len(row))
            if len(widths) > _SAMPLE_ROWS:
                break
    except csv.Error:
        pass
    # The sample may end within a row.
    return widths if len(text) <= _SAMPLE_CHARACTERS else widths[:-1]


def _recognise_decimal(rows: list[Row], delimiter: str) -> str:
    if delimiter == COMMA:
        return "."
    width = max((len(row) for _, row in rows), default=0)
    sure = points = False
    for place in range(width):
        values = [row[place] for _, row in rows[:_SAMPLE_ROWS] if place < len(row)]
        numbers = [value for value in values if _DECIMAL_COMMA.fullmatch(value)]
        if numbers and _mostly_commas(values):
            sure = sure or any(_SURELY_DECIMAL.fullmatch(value) for value in numbers)
        elif values and sum(map(bool, map(_DECIMAL_POINT.fullmatch, values))) * 2 > len(values):
            points = points or not all(map(_WHOLE_IN_THOUSANDS.fullmatch, filter(None, values)))
    return COMMA if sure and not points else "."


def _mostly_commas(values: list[str]) -> bool:
    """Returns whether at least half of the present values are numbers, and one has a decimal comma."""
    numbers = [bool(_DECIMAL_COMMA.fullmatch(value)) for value in values]
    written = sum(1 for value in values if value)
    whole = sum(bool(_WHOLE.fullmatch(v) or _WHOLE_IN_THOUSANDS.fullmatch(v)) for v in values)
    return any(numbers) and (sum(numbers) + whole) * 2 >= written


def _has_both_signs(values: list[str]) -> bool:
    """Returns whether numbers have decimal commas, and others decimal points."""
    points = any(_WITH_POINT.fullmatch(v) and not _WHOLE_IN_THOUSANDS.fullmatch(v) for v in values)
    return points and any(map(_DECIMAL_COMMA.fullmatch, values))


def _read_commas(rows: list[Row], *, everywhere: bool) -> Iterator[tuple[int, tuple[int, int]]]:
    """Writes decimal commas as points, column by column, in place; yields the places with points between thousands.

    A column that has decimal points as well is left as it is written.
    """
    width = max((len(row) for _, row in rows), default=0)
    for place in range(width):
        values = [row[place] for _, row in rows if place < len(row)]
        if not everywhere and not _mostly_commas(values):
            continue
        if any(_BLANKS_BETWEEN.fullmatch(v) or _OTHER_MINUS.fullmatch(v) for v in values):
            continue
        if _has_both_signs(values):
            continue
        large = [v for v in values if _DECIMAL_COMMA.fullmatch(v) and _LARGE.match(v)]
        if pointed := sum("." in value for value in large):
            yield place, (pointed, len(large))
        for _, row in rows:
            if place < len(row) and (
                _DECIMAL_COMMA.fullmatch(row[place]) or _WHOLE_IN_THOUSANDS.fullmatch(row[place])
            ):
                row[place] = row[place].replace(".", "").replace(",", ".")
