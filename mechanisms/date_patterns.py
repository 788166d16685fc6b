"""Dates and times of day in the spellings that are not ISO 8601, described as ``strftime`` does: ``%d.%m.%Y``.

Provides ``Pattern``, which reads and writes as ``mechanisms.moments.Form`` does, and ``form_of``, which takes either's
notation. Directives: ``%Y`` ``%y`` ``%m`` ``%d`` ``%b`` ``%B`` ``%H`` ``%I`` ``%p`` ``%M`` ``%S`` ``%f``, ``%G`` and
``%V`` (year and week of ISO 8601),
``%q`` (quarter); ``%-d`` is without a leading zero, ``%^b`` in capitals, ``%%`` a per cent sign. Names of months are
English.

Public: the patterns. Secret: at its owner, the values they read.
Limits: no time zones; a year of two digits is one of 1969 to 2068, as POSIX has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from mechanisms.moments import Form

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DIRECTIVE = re.compile(r"%(?P<flag>[-^]?)(?P<letter>[A-Za-z%])")
_DIGITS = dict.fromkeys("ymdHIMSV", r"\d\d") | {
    "Y": r"\d{4}",
    "G": r"\d{4}",
    "q": "[1-4]",
    "f": r"\d{6}",
}
_UNITS = (
    ("f", "microsecond"),
    ("S", "second"),
    ("M", "minute"),
    ("HI", "hour"),
    ("d", "day"),
    ("V", "week"),
    ("mbB", "month"),
    ("q", "quarter"),
    ("YyG", "year"),
)
_TIMES = "HIpMSf"
# What has to stand beside a directive, one of each group: a day has no meaning without its month.
_NEEDS = {
    "d": ("mbB",),
    "m": ("Yy",),
    "b": ("Yy",),
    "B": ("Yy",),
    "q": ("Yy",),
    "V": ("G",),
    "G": ("V",),
    "H": ("d",),
    "I": ("d", "p"),
    "p": ("I",),
    "M": ("HI",),
    "S": ("M",),
    "f": ("S",),
}
_ALIKE = ("Yy", "YG", "yG", "mb", "mB", "bB", "HI", "qm", "qb", "qB", "Vm", "Vb", "VB", "Vq", "Vd")
_CENTURY_BEGINS = 69


@dataclass(frozen=True, slots=True)
class Pattern:
    """A spelling of moments: ``text`` with directives; ``letters`` are those of its directives."""

    text: str
    letters: str

    @classmethod
    @lru_cache(2048)
    def parse(cls, text: str) -> Pattern | None:
        """The pattern, or None if it is none that tells a moment once and in full."""
        found = [m["letter"] for m in _DIRECTIVE.finditer(text) if m["letter"] != "%"]
        letters = "".join(found)
        known = all(letter in _DIGITS or letter in "bBp" for letter in letters)
        if not known or len(set(found)) < len(found) or not set(letters) & set("YyG"):
            return None
        if "%" in _DIRECTIVE.sub("", text):
            return None
        for letter in letters:
            if not all(set(group) & set(letters) for group in _NEEDS.get(letter, ())):
                return None
        if any(set(pair) <= set(letters) for pair in _ALIKE):
            return None
        return cls(text, letters)

    def __str__(self) -> str:
        return self.text

    @property
    def date(self) -> str:
        """The pattern, where an ISO form has its date."""
        return self.text

    @property
    def time(self) -> str:
        """The directives of the time of day, "" if there is none."""
        return "".join(letter for letter in self.letters if letter in _TIMES)

    @property
    def zone(self) -> str:
        """Patterns have no time zone."""
        return ""

    @property
    def unit(self) -> str:
        """The finest unit that the pattern can tell."""
        return next(unit for letters, unit in _UNITS if set(letters) & set(self.letters))

    @property
    def is_strptime(self) -> bool:
        """Python's ``strptime`` reads what is written."""
        return not set("qGV") & set(self.letters)

    @property
    def strptime(self) -> str:
        """The pattern for ``strptime``, which needs no word on leading zeros and capitals."""
        return re.sub("%[-^]", "%", self.text)

    def matches(self, text: str) -> bool:
        """The text has the shape of the pattern; it may still be no day of the calendar."""
        return _regex(self.text).fullmatch(text) is not None

    def read(self, text: str, unit: str) -> datetime | None:
        """The moment that ``text`` writes in this pattern, or in ISO 8601 to the ``unit``; None if it is none."""
        found = _regex(self.text).fullmatch(text.strip())
        if found is None:
            return Form("YYYY-MM-DD", *(("T", "HH:MM:SS.ffffff") if self.time else ())).read(
                text, unit
            )
        try:
            return _moment(found.groupdict())
        except ValueError:
            return None

    def write(self, moment: datetime) -> str:
        """A moment in the pattern."""
        return _DIRECTIVE.sub(lambda m: _part(moment, m["letter"], m["flag"]), self.text)


def form_of(text: str) -> Form | Pattern | None:
    """The form that is written in letters (``YYYY-MM``) or in directives (``%m/%Y``), or None if it is neither."""
    return Pattern.parse(text) if "%" in text else Form.parse(text)


@lru_cache(2048)
def _regex(pattern: str) -> re.Pattern[str]:
    parts, end = [], 0
    for found in _DIRECTIVE.finditer(pattern):
        parts += [
            re.escape(pattern[end : found.start()]),
            _part_regex(found["letter"], found["flag"]),
        ]
        end = found.end()
    return re.compile("".join([*parts, re.escape(pattern[end:])]), re.ASCII | re.IGNORECASE)


def _part_regex(letter: str, flag: str) -> str:
    if letter == "%":
        return "%"
    if letter in "bB":
        names = [name if letter == "B" else name[:3] for name in MONTHS]
        return f"(?P<{letter}>{'|'.join(names)})"
    if letter == "p":
        return "(?P<p>am|pm)"
    return f"(?P<{letter}>{'[0-9]{1,2}' if flag == '-' else _DIGITS[letter]})"


def _moment(parts: dict[str, str]) -> datetime:
    """Raises ``ValueError`` where there is no such day or time."""
    if "V" in parts:
        return datetime.fromisocalendar(int(parts["G"]), int(parts["V"]), 1)
    numbers = {letter: int(text) for letter, text in parts.items() if letter not in "bBp"}
    year = numbers.get("Y", 0)
    if "y" in numbers:
        year = numbers["y"] + (1900 if numbers["y"] >= _CENTURY_BEGINS else 2000)
    name = parts.get("b") or parts.get("B")
    month = numbers.get("m", 3 * numbers.get("q", 1) - 2)
    if name:
        month = 1 + [known[:3].lower() for known in MONTHS].index(name[:3].lower())
    hour = numbers.get("H", 0)
    if "I" in numbers:
        if not 1 <= numbers["I"] <= 12:
            raise ValueError("no hour of twelve")
        hour = numbers["I"] % 12 + 12 * (parts["p"].lower() == "pm")
    return datetime(
        year,
        month,
        numbers.get("d", 1),
        hour,
        numbers.get("M", 0),
        numbers.get("S", 0),
        numbers.get("f", 0),
    )


def _part(moment: datetime, letter: str, flag: str) -> str:
    if letter in "bB":
        name = MONTHS[moment.month - 1]
        name = name if letter == "B" else name[:3]
        return name.upper() if flag == "^" else name
    if letter in "%p":
        return "%" if letter == "%" else ("PM" if moment.hour >= 12 else "AM")
    number, width = {
        "Y": (moment.year, 4),
        "G": (moment.isocalendar().year, 4),
        "y": (moment.year % 100, 2),
        "m": (moment.month, 2),
        "d": (moment.day, 2),
        "q": ((moment.month + 2) // 3, 1),
        "V": (moment.isocalendar().week, 2),
        "H": (moment.hour, 2),
        "I": ((moment.hour - 1) % 12 + 1, 2),
        "M": (moment.minute, 2),
        "S": (moment.second, 2),
        "f": (moment.microsecond, 6),
    }[letter]
    return str(number) if flag == "-" else f"{number:0{width}d}"
