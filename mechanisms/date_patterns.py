"""Dates and times of day in other spellings than ISO 8601, described as ``strftime`` does: ``%d.%m.%Y``.

``Pattern`` reads and writes as ``mechanisms.moments.Form`` does; ``form_of`` parses the notation of either. Directives:
``%Y`` ``%y`` ``%m`` ``%d`` ``%b`` ``%B`` ``%a`` ``%A`` ``%H`` ``%I`` ``%p`` ``%M`` ``%S`` ``%f``, ``%G`` ``%V`` ``%u``
(year, week and day of the week of ISO 8601), ``%q`` (quarter), ``%j`` (day of the year), ``%o`` (day of the month with
its English ending: 1st, 22nd); ``%y[1925]`` lies in 1925 to 2024; ``%-d`` has no leading zero, ``%^b`` is in capitals,
``%-b`` has no dot, ``%%`` is a per cent sign. Names of months and days are English; ``%B[de]`` has those of another
language (`mechanisms.calendar_names`).

The patterns are public. The values read by them are secret, at their owner.
Limits: no time zones; a year of two digits lies in 1969 to 2068, as in POSIX, unless the pattern says otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from mechanisms.calendar_names import ENGLISH, NAMES, names_of
from mechanisms.moments import Form

_DIRECTIVE = re.compile(
    r"%(?P<flag>[-^]?)(?P<letter>[A-Za-z%])"
    r"(?:(?<=[bBaA])\[(?P<language>[a-z]{2})\]|(?<=y)\[(?P<first>[12]\d{3})\])?"
)
_DIGITS = dict.fromkeys("ymdHIMSV", r"\d\d") | {
    "Y": r"\d{4}",
    "G": r"\d{4}",
    "q": "[1-4]",
    "u": "[1-7]",
    "f": r"\d{6}",
    "j": r"\d{3}",
    "o": r"\d{1,2}(?:st|nd|rd|th)",
}
_UNITS = (
    ("f", "microsecond"),
    ("S", "second"),
    ("M", "minute"),
    ("HI", "hour"),
    ("duoj", "day"),
    ("V", "week"),
    ("mbB", "month"),
    ("q", "quarter"),
    ("YyG", "year"),
)
_TIMES = "HIpMSf"
# Groups of directives of which one each has to stand beside a directive: a day has no meaning without its month.
_NEEDS = {
    "d": ("mbB",),
    "o": ("mbB",),
    "m": ("Yy",),
    "b": ("Yy",),
    "B": ("Yy",),
    "a": ("do",),
    "A": ("do",),
    "q": ("Yy",),
    "j": ("Yy",),
    "V": ("G",),
    "u": ("V",),
    "G": ("V",),
    "H": ("doj",),
    "I": ("doj", "p"),
    "p": ("I",),
    "M": ("HI",),
    "S": ("M",),
    "f": ("S",),
}
_NAMED = "bBaA"
_ALIKE = (
    "aA",
    "Yy",
    "YG",
    "yG",
    "mb",
    "mB",
    "bB",
    "HI",
    "qm",
    "qb",
    "qB",
    "Vm",
    "Vb",
    "VB",
    "Vq",
    "Vd",
    "do",
    *(f"j{letter}" for letter in "mbBdoqV"),
)
_CENTURY_BEGINS = 1969


@dataclass(frozen=True, slots=True)
class Pattern:
    """A spelling of moments: ``text`` with directives; ``letters`` are the letters of its directives."""

    text: str
    letters: str

    @classmethod
    @lru_cache(2048)
    def parse(cls, text: str) -> Pattern | None:
        """Parses a pattern; returns None unless it states every part of a moment exactly once."""
        found = [m["letter"] for m in _DIRECTIVE.finditer(text) if m["letter"] != "%"]
        letters = "".join(found)
        known = all(letter in _DIGITS or letter in f"{_NAMED}p" for letter in letters)
        known = known and set(_languages(text).values()) <= NAMES["B"].keys()
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
        """The pattern itself, as the counterpart of an ISO form's date."""
        return self.text

    @property
    def time(self) -> str:
        """Directives of the time of day, "" if there are none."""
        return "".join(letter for letter in self.letters if letter in _TIMES)

    @property
    def zone(self) -> str:
        """The empty string: patterns have no time zone."""
        return ""

    @property
    def unit(self) -> str:
        """Finest unit that the pattern states."""
        return next(unit for letters, unit in _UNITS if set(letters) & set(self.letters))

    @property
    def years_from(self) -> int | None:
        """First of the hundred years of which two digits are written; None if years have four."""
        return _years_from(self.text)

    def with_years_from(self, first: int) -> Pattern:
        """Returns the pattern whose years of two digits begin with ``first``."""
        return Pattern(re.sub(r"(%-?y)(\[\d+\])?", rf"\1[{first}]", self.text), self.letters)

    @property
    def is_strptime(self) -> bool:
        """True if Python's ``strptime`` can read the pattern."""
        if self.years_from not in (None, _CENTURY_BEGINS):
            return False
        return not set("qGVuo") & set(self.letters) and set(_languages(self.text).values()) <= {
            ENGLISH
        }

    @property
    def strptime(self) -> str:
        """The pattern for ``strptime``, without the flags for leading zeros and capitals, which it does not need."""
        return re.sub("%[-^]", "%", self.text)

    def matches(self, text: str) -> bool:
        """Returns whether the text has the shape of the pattern; it may still be no day of the calendar."""
        return _regex(self.text).fullmatch(text) is not None

    def read(self, text: str, unit: str) -> datetime | None:
        """Returns the moment that ``text`` states in this pattern or in ISO 8601 to the ``unit``; None if invalid."""
        found = _regex(self.text).fullmatch(text.strip())
        if found is None:
            return Form("YYYY-MM-DD", *(("T", "HH:MM:SS.ffffff") if self.time else ())).read(
                text, unit
            )
        try:
            return _moment(found.groupdict(), _languages(self.text), self.years_from)
        except ValueError:
            return None

    def write(self, moment: datetime) -> str:
        """Returns a moment in the pattern."""
        return _DIRECTIVE.sub(lambda found: _part(moment, found), self.text)


def form_of(text: str) -> Form | Pattern | None:
    """Parses a form written in letters (``YYYY-MM``) or directives (``%m/%Y``); None if it is neither."""
    return Pattern.parse(text) if "%" in text else Form.parse(text)


@lru_cache(2048)
def _regex(pattern: str) -> re.Pattern[str]:
    parts, end = [], 0
    for found in _DIRECTIVE.finditer(pattern):
        parts += [
            re.escape(pattern[end : found.start()]),
            _part_regex(found),
        ]
        end = found.end()
    return re.compile("".join([*parts, re.escape(pattern[end:])]), re.ASCII | re.IGNORECASE)


@lru_cache(2048)
def _languages(pattern: str) -> dict[str, str]:
    """Returns the language of the names of each directive."""
    found = (m for m in _DIRECTIVE.finditer(pattern) if m["letter"] in _NAMED)
    return {match["letter"]: match["language"] or ENGLISH for match in found}


@lru_cache(2048)
def _years_from(pattern: str) -> int | None:
    """Returns the first of the hundred years of which a pattern has two digits; None if it has none of two."""
    found = next((f for f in _DIRECTIVE.finditer(pattern) if f["letter"] == "y"), None)
    return None if found is None else int(found["first"] or _CENTURY_BEGINS)


def _part_regex(found: re.Match[str]) -> str:
    letter, flag = found["letter"], found["flag"]
    if letter == "%":
        return "%"
    if letter in _NAMED:
        names = names_of(letter, found["language"] or ENGLISH, dots=flag != "-")
        # Without regard to capitals, which the pattern's flags leave to ASCII.
        spelt = dict.fromkeys(case(name) for name in names for case in (str, str.upper, str.lower))
        return f"(?P<{letter}>{'|'.join(map(re.escape, spelt))})"
    if letter == "p":
        return "(?P<p>am|pm)"
    return f"(?P<{letter}>{'[0-9]{1,2}' if flag == '-' else _DIGITS[letter]})"


def _moment(parts: dict[str, str], languages: dict[str, str], years_from: int | None) -> datetime:
    """Returns the moment of the parts of a match. Raises ``ValueError`` if there is no such day or time."""
    if "V" in parts:
        day = int(parts.get("u", 1))
        return datetime.fromisocalendar(int(parts["G"]), int(parts["V"]), day)
    parts = {letter: text[:-2] if letter == "o" else text for letter, text in parts.items()}
    numbers = {letter: int(text) for letter, text in parts.items() if letter not in f"{_NAMED}p"}
    year = numbers.get("Y", 0)
    if years_from is not None:
        year = years_from + (numbers["y"] - years_from) % 100
    # Places among the names of months and days, from 0.
    places = {
        letter: [known.lower().removesuffix(".") for known in NAMES[letter][language]].index(
            parts[letter].lower().removesuffix(".")
        )
        for letter, language in languages.items()
    }
    month = numbers.get("m", 3 * numbers.get("q", 1) - 2)
    month = next((1 + place for letter, place in places.items() if letter in "bB"), month)
    hour = numbers.get("H", 0)
    if "I" in numbers:
        if not 1 <= numbers["I"] <= 12:
            raise ValueError("no hour of twelve")
        hour = numbers["I"] % 12 + 12 * (parts["p"].lower() == "pm")
    moment = datetime(
        year,
        month,
        numbers.get("d", numbers.get("o", 1)),
        hour,
        numbers.get("M", 0),
        numbers.get("S", 0),
        numbers.get("f", 0),
    )
    if "j" in numbers:
        moment = moment.replace(month=1, day=1) + timedelta(numbers["j"] - 1)
        if moment.year != year:
            raise ValueError("no such day of the year")
    if any(place != moment.weekday() for letter, place in places.items() if letter in "aA"):
        raise ValueError("another day of the week")
    return moment


def _part(moment: datetime, found: re.Match[str]) -> str:
    letter, flag = found["letter"], found["flag"]
    if letter in _NAMED:
        place = moment.month - 1 if letter in "bB" else moment.weekday()
        name = names_of(letter, found["language"] or ENGLISH, dots=flag != "-")[place]
        return name.upper() if flag == "^" else name
    if letter in "%p":
        return "%" if letter == "%" else ("PM" if moment.hour >= 12 else "AM")
    if letter == "o":
        return f"{moment.day}{_ending(moment.day)}"
    number, width = {
        "Y": (moment.year, 4),
        "G": (moment.isocalendar().year, 4),
        "y": (moment.year % 100, 2),
        "m": (moment.month, 2),
        "d": (moment.day, 2),
        "q": ((moment.month + 2) // 3, 1),
        "j": (moment.timetuple().tm_yday, 3),
        "V": (moment.isocalendar().week, 2),
        "u": (moment.isoweekday(), 1),
        "H": (moment.hour, 2),
        "I": ((moment.hour - 1) % 12 + 1, 2),
        "M": (moment.minute, 2),
        "S": (moment.second, 2),
        "f": (moment.microsecond, 6),
    }[letter]
    return str(number) if flag == "-" else f"{number:0{width}d}"


def _ending(day: int) -> str:
    """Returns the English ending of a day's number: 11th, 21st."""
    return "th" if 10 < day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
