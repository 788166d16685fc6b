"""Format of a written text table: delimiter, encoding, decimal sign, quotes, line ends, empty columns.

A draft has the format of the table that it was drafted from, as a configuration's ``[format]``, so that a synthetic
table opens in its owner's program as the real one does.

All values here are public; a format contains nothing of a row.
Limits: a decimal comma is written in columns of numbers (`mechanisms.typed`), not in categories that are text.
"""

from __future__ import annotations

import codecs
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from mechanisms.dialect import COMMA, PLAIN, Dialect
from mechanisms.errors import DataError, DomainError
from mechanisms.table_keys import one_of

NEEDED, ALL = "needed", "all"
_LISTS = ("columns", "thousands")
_SAMPLE_LINES = 20
_LINE_END = re.compile(r"\r\n|\r|\n")
LINE_ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}


def _writes_text(encoding: str) -> bool:
    """Returns whether an encoding preserves the text of tables: no compression, no cipher, no host names."""
    table = f"{string.printable}\r\n"
    try:
        return table.encode(encoding).decode(encoding) == table
    except (LookupError, UnicodeError):
        return False


@dataclass(frozen=True, slots=True)
class TextFormat:
    """[format]: format of a text table. Raises ``DomainError`` for invalid values."""

    delimiter: str = COMMA
    """Sign between values: one character."""
    decimal: str = field(default=".", metadata=one_of((".", COMMA)))
    """Decimal sign in columns of numbers."""
    encoding: str = "utf-8"
    """Encoding of the text, as Python calls it."""
    quote: str = field(default='"', metadata=one_of(('"', "'")))
    """Sign around values in quotes."""
    quoting: str = field(default=NEEDED, metadata=one_of((NEEDED, ALL)))
    """Values in quotes: those that need it, or all."""
    line_end: str = field(default="lf", metadata=one_of(tuple(LINE_ENDS)))
    """Characters that end a line."""
    columns: tuple[str, ...] = ()
    """All columns of the table in order, if left-out columns are to be written, empty."""
    thousands: tuple[str, ...] = ()
    """Columns of numbers that are written with points between thousands, beside a decimal comma (``1.234,50``)."""

    def __post_init__(self) -> None:
        try:
            Dialect(self.delimiter, self.decimal, self.encoding)
        except DataError as error:
            raise DomainError(f"[format] {error}") from None
        if not _writes_text(self.encoding):
            raise DomainError(
                f"[format] encoding = {self.encoding!r}; it is none of text, as utf-8, cp1252 or utf-16 are"
            )
        if self.quote not in ('"', "'") or self.quote == self.delimiter:
            raise DomainError(f"[format] quote = {self.quote!r}; it is \" or '")
        if self.quoting not in (NEEDED, ALL):
            raise DomainError(f'[format] quoting = {self.quoting!r}; it is "needed" or "all"')
        if self.line_end not in LINE_ENDS:
            raise DomainError(
                f"[format] line_end = {self.line_end!r}; it is one of {', '.join(LINE_ENDS)}"
            )
        if self.decimal == self.delimiter:
            raise DomainError("[format] decimal and delimiter are the same sign; choose another")
        if len(set(self.columns)) < len(self.columns):
            raise DomainError("[format] columns: a name stands twice; names are unique")
        if self.thousands and self.decimal != COMMA:
            raise DomainError(
                '[format] thousands stands beside a decimal point; expected decimal = ",", or in each column a format '
                'such as "#,##0.00"'
            )

    @property
    def newline(self) -> str:
        """Characters that end a line."""
        return LINE_ENDS[self.line_end]

    @property
    def dialect(self) -> Dialect:
        """Dialect for reading a table in this format; decimal commas are left to the reader."""
        return replace(PLAIN, delimiter=self.delimiter, encoding=self.encoding, quote=self.quote)

    def cannot_write(self, texts: Sequence[str]) -> str | None:
        """Returns the first text that the encoding cannot represent; None if there is none."""
        encode = codecs.lookup(self.encoding).encode
        for text in texts:
            try:
                encode(text)
            except UnicodeError:
                return text
        return None

    def to_dict(self) -> dict[str, object]:
        """Returns the keys of ``[format]`` that differ from the default; none for a plain table."""
        said = {item.name: getattr(self, item.name) for item in fields(self)}
        plain = {item.name: item.default for item in fields(self)}
        different = {key: value for key, value in said.items() if value != plain[key]}
        return different | {key: list(different[key]) for key in _LISTS if key in different}

    @classmethod
    def from_dict(cls, table: object) -> TextFormat:
        """Reads a ``[format]`` table. Raises ``DomainError`` on an unknown key or a value of another type."""
        if not isinstance(table, Mapping):
            raise DomainError('format: a table is needed, such as [format] delimiter = ";"')
        known = [item.name for item in fields(cls)]
        if unknown := [key for key in table if key not in known]:
            raise DomainError(
                f"[format] {unknown[0]!r} is an unknown key; expected one of {', '.join(known)}"
            )
        values = dict(table)
        lists = {key: values.pop(key, ()) for key in _LISTS}
        for key, names in lists.items():
            listed = isinstance(names, Sequence) and not isinstance(names, str)
            if not listed or not all(isinstance(name, str) for name in names):
                raise DomainError(f"[format] {key}: a list of names is needed")
        if wrong := [key for key, value in values.items() if not isinstance(value, str)]:
            raise DomainError(f"[format] {wrong[0]} = {values[wrong[0]]!r}; text is needed")
        columns, thousands = (tuple(lists[key]) for key in _LISTS)
        return cls(**values, columns=columns, thousands=thousands)


PLAIN_FORMAT = TextFormat()
"""Default format: commas, points, UTF-8."""


def form_of_text(text: str, found: Dialect) -> TextFormat:
    """Returns the format of a text that was read with the dialect ``found``; plain parts where none can be written."""
    delimiter, quote = found.delimiter or COMMA, found.quote or '"'
    first = _LINE_END.search(text)
    ends = {characters: name for name, characters in LINE_ENDS.items()}
    # A decimal comma between commas stands in quotes; it is written with a point.
    decimal = found.decimal if found.decimal and found.decimal != delimiter else "."
    return TextFormat(
        delimiter,
        decimal,
        _encoding_name(found.encoding),
        quote,
        ALL if _quotes_all(text, delimiter, quote) else NEEDED,
        ends[first[0]] if first else "lf",
    )


def _encoding_name(encoding: str | None) -> str:
    """Returns one spelling of each encoding; UTF-8 for ASCII."""
    name = codecs.lookup(encoding or "utf-8").name
    return {"ascii": "utf-8", "iso8859-1": "latin-1"}.get(name, name)


def _quotes_all(text: str, delimiter: str, quote: str) -> bool:
    """Returns whether the first lines have every value in quotes."""
    lines = [line for line in _LINE_END.split(text[: 1 << 16])[:-1] if line][:_SAMPLE_LINES]
    value = f"{re.escape(quote)}[^{re.escape(quote)}]*{re.escape(quote)}"
    row = re.compile(f"{value}({re.escape(delimiter)}{value})*")
    return len(lines) > 1 and all(row.fullmatch(line) for line in lines)
