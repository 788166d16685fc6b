"""Spellings of a column's numbers: signs around and between digits, durations and times of day.

A ``Spelling`` has ``read``, from the written form to a plain number such as ``-1234.5``, and ``write``, its inverse.
``spelling_of`` parses one of its two notations; ``plain_number`` and ``spelt_number`` serve columns:

- ``Numeral``, as in spreadsheets: ``$#,##0.00``, ``0.0%``, ``#.##0,00 €``, ``#,##0;(#,##0)``. ``#,##`` before the last
  digit is a separator of thousands, zeros behind the decimal sign are decimals that are always written, a ``#`` there
  means that further zeros at the end are dropped. The part behind the semicolon is the form of a negative number, if
  not with a minus in front. Signs do not scale: ``0.0%`` writes 12.3 as ``12.3%``.
- ``Clock``, as in ``strftime``: ``%H:%M``, ``%-Hh %-Mm``, ``%-D day(s) %H:%M:%S``. The number counts the finest of
  ``%D``, ``%H``, ``%M`` and ``%S``; the coarsest has no bound. ``(s)`` is left out if the number before it is 1, and a
  part in brackets if its number is 0: ``[%-Hh ][%-Mm]``, ``PT[%-HH][%-MM]``. ``%I`` is the hour from 1 to 12, with
  ``%p`` (AM, PM) or ``%P`` (am, pm) behind.

The notations are public. The values that are read are secret, at their owner.
Limits: groups of three digits; whole units of time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

THOUSANDS = ",.'\u2019 \u00a0\u202f"
"""Signs that separate thousands."""
_HALF_DAY = 12
SECONDS = {"D": 86_400, "H": 3_600, "M": 60, "S": 1}

_CORE = re.compile(
    rf"(?:#(?P<thousands>[{THOUSANDS}])##)?0(?:(?P<decimal>[.,])(?P<least>0*)(?P<more>#*))?"
)
_SPECIAL = re.compile("[#0;]")
_PLAIN = re.compile(r"(-?)(\d+)(?:\.(\d+))?", re.ASCII)
_DIRECTIVE = re.compile(r"%(?P<flag>-?)(?P<letter>[DHMSIpP])")
_HALVES = {"p": ("AM", "PM"), "P": ("am", "pm")}
_PIECE = re.compile(rf"{_DIRECTIVE.pattern}|\(s\)")


@dataclass(frozen=True, slots=True)
class Numeral:
    """Digits with signs: a ``prefix`` and a ``suffix``, and a ``negative`` pair of them for negative numbers.

    ``least`` decimals are always written; without ``more`` as many as the column has. ``thousands`` and ``decimal`` are
    single characters, the former may be "".
    """

    prefix: str = ""
    suffix: str = ""
    thousands: str = ""
    decimal: str = "."
    least: int = 0
    more: bool = False
    negative: tuple[str, str] | None = None

    @classmethod
    def parse(cls, text: str) -> Numeral | None:
        """Parses the notation of spreadsheets; returns None if it is invalid."""
        positive, semicolon, negative = text.partition(";")
        found = _CORE.search(positive)
        if found is None or (found["thousands"] and found["thousands"] == found["decimal"]):
            return None
        core, prefix, suffix = found[0], positive[: found.start()], positive[found.end() :]
        around = None
        if semicolon:
            if negative.count(core) != 1:
                return None
            before, _, behind = negative.partition(core)
            around = (before, behind)
        if any(map(_SPECIAL.search, (prefix, suffix, *(around or ())))):
            return None
        decimal = found["decimal"] or ("," if found["thousands"] == "." else ".")
        least, more = len(found["least"] or ""), bool(found["more"])
        return cls(prefix, suffix, found["thousands"] or "", decimal, least, more, around)

    def __str__(self) -> str:
        core = f"#{self.thousands}##0" if self.thousands else "0"
        if self.least or self.more:
            core += f"{self.decimal}{'0' * self.least}{'#' * self.more}"
        text = f"{self.prefix}{core}{self.suffix}"
        return text if self.negative is None else f"{text};{core.join(self.negative)}"

    @property
    def bare(self) -> bool:
        """True if numbers are written with nothing but digits, a minus and a decimal point."""
        return (
            not (self.prefix or self.suffix or self.thousands or self.negative)
            and self.decimal == "."
        )

    def read(self, text: str) -> str | None:
        """Returns the plain number, None for another spelling; thousands separators may be left out."""
        text = text.strip()
        if self.bare:
            return text
        found = _numeral_regex(self).fullmatch(text)
        if found is None:
            return None
        whole = found["whole"] or found["whole_below"]
        fraction = found["fraction"] or found["fraction_below"]
        digits = whole.replace(self.thousands, "") if self.thousands else whole
        sign = "-" if found["whole_below"] else ""
        return f"{sign}{digits}" + (f".{fraction}" if fraction else "")

    def write(self, plain: str) -> str:
        """Returns a plain number, with at most the decimals that it has, in this spelling."""
        found = _PLAIN.fullmatch(plain)
        if found is None:
            return plain
        whole, fraction = found[2], found[3] or ""
        if self.more:
            fraction = fraction.rstrip("0")
        fraction = fraction.ljust(self.least, "0")
        if self.thousands:
            whole = f"{int(whole):,}".replace(",", self.thousands)
        number = f"{whole}{self.decimal}{fraction}" if fraction else whole
        below = bool(found[1]) and any(digit in "123456789" for digit in whole + fraction)
        before, behind = _around(self) if below else (self.prefix, self.suffix)
        return f"{before}{number}{behind}"


@dataclass(frozen=True, slots=True)
class Clock:
    """A number of the finest unit of time of ``text``, written in all of its units."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Clock | None:
        """Parses the notation of directives; returns None unless each unit occurs once, from the coarsest on."""
        written = "".join(found["letter"] for found in _DIRECTIVE.finditer(text))
        twelve = written.startswith("I") and written[-1] in _HALVES
        # An hour of twelve is an hour with its half of the day.
        letters = list(written[:-1].replace("I", "H") if twelve else written)
        order = [letter for letter in SECONDS if letter in letters]
        without_gap = "".join(order) in "DHMS"
        left = _DIRECTIVE.sub("", text)
        if not letters or letters != order or not without_gap or "%" in left:
            return None
        parts = _parts(text)
        return cls(text) if parts and not any(set("[]") & set(part) for part, _ in parts) else None

    def __str__(self) -> str:
        return self.text

    @property
    def letters(self) -> str:
        """Letters of the units, from the coarsest to the finest."""
        written = "".join(found["letter"] for found in _DIRECTIVE.finditer(self.text))
        return written.rstrip("pP").replace("I", "H")

    @property
    def day(self) -> int | None:
        """Number of the finest units in a day; None if days are written."""
        return None if self.letters[0] != "H" else SECONDS["D"] // SECONDS[self.letters[-1]]

    @property
    def within_a_day(self) -> bool:
        """True if the spelling is of times of day alone."""
        return "%I" in self.text.replace("%-", "%")

    @property
    def bare(self) -> bool:
        """False: a clock never writes a plain number."""
        return False

    def read(self, text: str) -> str | None:
        """Returns the number of the finest units, as a plain number; None for another spelling."""
        found = _clock_regex(self.text).fullmatch(text.strip())
        if found is None or not any(found[letter] for letter in self.letters):
            return None
        bounds = dict(
            zip(self.letters[1:], map(_ratio, self.letters, self.letters[1:]), strict=False)
        )
        total, half = 0, found.groupdict().get("half")
        for letter in self.letters:
            number = int(found[letter] or 0)
            if half and letter == "H":
                if not 1 <= number <= _HALF_DAY:
                    return None
                number = number % _HALF_DAY + _HALF_DAY * (half.lower() == "pm")
            if number >= bounds.get(letter, number + 1):
                return None
            total = total * bounds.get(letter, 1) + number
        return f"-{total}" if found["sign"] and total else str(total)

    def write(self, plain: str) -> str:
        """Returns a plain whole number of the finest unit in this spelling."""
        left, numbers = abs(int(plain)), {}
        for before, letter in reversed([*zip(self.letters, self.letters[1:], strict=False)]):
            left, numbers[letter] = divmod(left, _ratio(before, letter))
        numbers[self.letters[0]] = left
        parts, chosen = _parts(self.text), list[str]()
        for part, optional in parts:
            letters = [found["letter"] for found in _DIRECTIVE.finditer(part)]
            if not optional or any(numbers[letter] for letter in letters):
                chosen.append(part)
        if not any(_DIRECTIVE.search(part) for part in chosen):
            chosen.append(parts[-1][0])
        written = [_written_part(part, numbers) for part in chosen]
        sign = "-" if plain.startswith("-") and int(plain) else ""
        return f"{sign}{''.join(written)}".strip()


Spelling: TypeAlias = Numeral | Clock


def plain_number(form: str, value: str) -> str:
    """Returns a value in the spelling ``form`` ("" for digits alone) as a plain number; "" for another spelling."""
    spelling = spelling_of(form) if form else None
    return value if spelling is None else spelling.read(value) or ""


def spelt_number(form: str, plain: str) -> str:
    """Returns a plain number in the spelling ``form``."""
    spelling = spelling_of(form) if form else None
    return plain if spelling is None else spelling.write(plain)


@lru_cache(512)
def spelling_of(text: str) -> Spelling | None:
    """Parses the spelling described by ``text``; returns None if it is invalid."""
    return Clock.parse(text) if _DIRECTIVE.search(text) else Numeral.parse(text)


def _around(numeral: Numeral) -> tuple[str, str]:
    return numeral.negative or (f"-{numeral.prefix}", numeral.suffix)


@lru_cache(512)
def _numeral_regex(numeral: Numeral) -> re.Pattern[str]:
    """Matches positive and negative numbers; decimals are optional, thousands separators all present or none."""
    before, behind = map(re.escape, _around(numeral))
    above = _digits(numeral, "whole", "fraction")
    below = _digits(numeral, "whole_below", "fraction_below")
    prefix, suffix = re.escape(numeral.prefix), re.escape(numeral.suffix)
    return re.compile(f"(?:{prefix}{above}{suffix}|{before}{below}{behind})", re.ASCII)


def _digits(numeral: Numeral, whole: str, fraction: str) -> str:
    groups = rf"\d{{1,3}}(?:{re.escape(numeral.thousands)}\d{{3}})+|" if numeral.thousands else ""
    return rf"(?P<{whole}>{groups}\d+)(?:{re.escape(numeral.decimal)}(?P<{fraction}>\d+))?"


def _ratio(coarse: str, fine: str) -> int:
    return SECONDS[coarse] // SECONDS[fine]


@lru_cache(512)
def _parts(text: str) -> tuple[tuple[str, bool], ...]:
    """Returns the text in parts, with a flag for those in brackets; () if brackets are without a directive."""
    parts = [
        (found[1] or found[2], found[1] is not None)
        for found in re.finditer(r"\[([^\[\]]*)\]|([^\[]+)", text)
    ]
    if any(optional and not _DIRECTIVE.search(part) for part, optional in parts):
        return ()
    return tuple(parts)


def _written_part(part: str, numbers: dict[str, int]) -> str:
    last = 1

    def written(found: re.Match[str]) -> str:
        nonlocal last
        if found["letter"] is None:
            return "" if last == 1 else "s"
        if found["letter"] in _HALVES:
            return _HALVES[found["letter"]][numbers["H"] % (2 * _HALF_DAY) >= _HALF_DAY]
        twelve = found["letter"] == "I"
        last = (numbers["H"] - 1) % _HALF_DAY + 1 if twelve else numbers[found["letter"]]
        return str(last) if found["flag"] else f"{last:02d}"

    return _PIECE.sub(written, part)


@lru_cache(512)
def _clock_regex(text: str) -> re.Pattern[str]:
    patterns, coarsest = [], _DIRECTIVE.search(text)
    for part, optional in _parts(text):
        pattern, end = "", 0
        for found in _PIECE.finditer(part):
            pattern += re.escape(part[end : found.start()])
            letter, end = found["letter"], found.end()
            many = found["flag"] or (coarsest and letter == coarsest["letter"] != "I")
            digits = "[0-9]+" if many else "[0-9][0-9]"
            if letter in _HALVES:
                pattern += "(?P<half>[AaPp][Mm])"
            else:
                name = "H" if letter == "I" else letter
                pattern += f"(?P<{name}>{digits})" if letter else "s?"
        rest = part[end:]
        # The blank at the end of a part in brackets is missing if nothing follows.
        pattern += (
            re.escape(rest.rstrip()) + " ?" if optional and rest[-1:] == " " else re.escape(rest)
        )
        patterns.append(f"(?:{pattern})?" if optional else pattern)
    return re.compile(f"(?P<sign>-?){''.join(patterns)}")
