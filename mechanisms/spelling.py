"""Spellings of a column's numbers: signs around and between digits, durations and times of day.

A ``Spelling`` has ``read``, from the written form to a plain number such as ``-1234.5``, and ``write``, its inverse.
``spelling_of`` parses one of its two notations; ``plain_number`` and ``spelt_number`` serve columns:

- ``Numeral``, as in spreadsheets: ``$#,##0.00``, ``0.0%``, ``#.##0,00 €``, ``#,##0;(#,##0)``. ``#,##`` before the last
  digit is a separator of thousands, zeros behind the decimal sign are decimals that are always written, a ``#`` there
  means that further zeros at the end are dropped. ``#,##,##0`` groups by lakh and crore, as in India; ``#.00`` has no
  zero before the decimal sign; behind ``E+00`` stands a power of ten, with all digits of the number before it, and
  ``[16E+00]`` writes one only from 10^16 on, and below 0.0001, as programs do; ``{K=1e3,M=1e6}`` are words that scale,
  so that 1200 is ``1.2K``, and in ``{=1,K=1e3}`` smaller numbers have no word (``{=1.0,K=1e3}``: but the same
  decimals); ``{ B=1, KiB=2^10, MiB=2^20}`` are powers of 1,024; the zero of another script stands for its digits. The
  part behind the semicolon is the form of a negative number, if not with a minus in front. Signs do not scale:
  ``0.0%`` writes 12.3 as ``12.3%``.
- ``Clock``, as in ``strftime``: ``%H:%M``, ``%-Hh %-Mm``, ``%-D day(s) %H:%M:%S``. The number counts the finest of
  ``%D``, ``%H``, ``%M`` and ``%S``; the coarsest has no bound. ``(s)`` is left out if the number before it is 1, and a
  part in brackets if its number is 0: ``[%-Hh ][%-Mm]``, ``PT[%-HH][%-MM]``. ``%3f`` are three decimals of a second,
  which the number counts then (``%M:%S.%3f``), ``%-3f`` the same without zeros at the end. ``%I`` is the hour from 1 to
  12, with ``%p`` (AM, PM), ``%P`` (am, pm), ``%.p`` (A.M., P.M.) or ``%.P`` behind. Digits stand for themselves:
  ``%H:%M:00``. In ``%-H%M`` and ``%-H%M%S``, without a sign between, no zero stands before the first other digit:
  ``517`` and ``5``, five minutes after midnight.

The notations are public. The values that are read are secret, at their owner.
Limits: groups of three digits, or of two before the last three; at most nine decimals of a second.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import TypeAlias

from mechanisms.written import EXACT

THOUSANDS = ",.'\u2019 \u00a0\u202f\u2009\u2007\uff0c\u066c"
"""Signs that separate thousands."""
_HALF_DAY = 12
SECONDS = {"D": 86_400, "H": 3_600, "M": 60, "S": 1}

_CORE = re.compile(
    rf"(?:(?:#(?P<thousands>[{THOUSANDS}])(?P<pairs>##(?P=thousands))?##)?0|(?P<open>#)(?=[.,]0))"
    r"(?:(?P<decimal>[.,])(?=[0#])(?P<least>0*)(?P<more>#*))?(?P<power>[Ee][+-]0{1,3}|\[[1-9]\d?[Ee][+-]0{1,3}\])?"
    r"(?P<scale>\{[^{}]*\})?"
)
_WORD = re.compile(r"([^\d=,{}]*)=(?:1(?P<alike>\.0)?|1e(?P<ten>[1-9]|1[0-5])|2\^(?P<two>[1-6]0))")
MOST_WORDS = 8
"""Most words of a scale."""
_POWER = re.compile(r"\[?(?P<start>\d*)(?P<letter>[Ee])(?P<sign>[+-])(?P<zeros>0+)\]?")
LEAST_PLAIN = -4
"""Exponent of the smallest numbers that are written without a power where that stands in brackets."""
_PARTS_OF_NUMBER = ("whole", "fraction", "power")
_SPECIAL = re.compile("[#0;]")
_PLAIN = re.compile(r"(-?)(\d+)(?:\.(\d+))?", re.ASCII)
_DIRECTIVE = re.compile(r"%(?P<flag>-?)(?P<letter>[DHMSI]|[1-9]f|\.?[pP])")
FRACTION = "F"
"""Letter of the decimals of a second, of which directives have the number."""
_HALVES = {
    "p": ("AM", "PM"),
    "P": ("am", "pm"),
    ".p": ("A.M.", "P.M."),
    ".P": ("a.m.", "p.m."),
}
_PIECE = re.compile(rf"{_DIRECTIVE.pattern}|\(s\)")
_RUN = re.compile("%-H%M(?P<seconds>%S)?")
"""Hours, minutes and seconds that are written as one number."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Words behind numbers, each with the power of ten that it stands for, ascending: (("", 0), ("K", 3), ("M", 6)).

    A number has the word of the largest power that is not above it, else the first word. With ``alike`` numbers of the
    power 0 have as many decimals as all others, without as many as they need. Powers are those of two if ``binary``;
    numbers of the power 0 are then whole, unless all are ``alike``.
    """

    words: tuple[tuple[str, int], ...]
    alike: bool = False
    binary: bool = False

    @classmethod
    def parse(cls, text: str) -> Scale | None:
        """Parses the notation in braces; returns None if it is invalid."""
        found = [_WORD.fullmatch(entry) for entry in text[1:-1].split(",")]
        matches = [match for match in found if match]
        words = tuple((match[1], int(match["ten"] or match["two"] or 0)) for match in matches)
        powers = [power for _, power in words]
        apart = len(dict(words)) == len(words) and powers == sorted(set(powers))
        bases = {base for match in matches for base in ("ten", "two") if match[base]}
        if not 2 <= len(words) == len(found) <= MOST_WORDS or not apart or len(bases) > 1:
            return None
        return cls(words, any(match["alike"] for match in matches), bases == {"two"})

    def __str__(self) -> str:
        one, base = "1.0" if self.alike else "1", "2^" if self.binary else "1e"
        entries = (f"{word}={f'{base}{power}' if power else one}" for word, power in self.words)
        return f"{{{','.join(entries)}}}"

    def factor(self, power: int) -> Decimal:
        """Returns the number that a word of this power stands for."""
        return Decimal(2 if self.binary else 10) ** power

    def word_of(self, number: Decimal) -> tuple[str, int]:
        """Returns the word of a number, and its power."""
        fitting = [each for each in self.words if abs(number) >= self.factor(each[1])]
        return fitting[-1] if fitting else self.words[0]


@dataclass(frozen=True, slots=True)
class Numeral:
    """Digits with signs: a ``prefix`` and a ``suffix``, and a ``negative`` pair of them for negative numbers.

    ``least`` decimals are always written; without ``more`` as many as the column has. ``thousands`` and ``decimal`` are
    single characters, the former may be "". With ``pairs`` groups before the last three digits have two; with ``open``
    a zero before the decimal sign is left out. ``power`` is the form of a power of ten behind the digits, "" for none.
    ``zero`` is the zero of the digits' script. Before the words of a ``scale`` there are at most ``least`` and ``more``
    decimals.
    """

    prefix: str = ""
    suffix: str = ""
    thousands: str = ""
    decimal: str = "."
    least: int = 0
    more: int = 0
    negative: tuple[str, str] | None = None
    pairs: bool = False
    open: bool = False
    power: str = ""
    zero: str = "0"
    scale: Scale | None = None

    @classmethod
    def parse(cls, text: str) -> Numeral | None:
        """Parses the notation of spreadsheets; returns None if it is invalid."""
        zero = next(
            (sign for sign in text if sign != "0" and unicodedata.decimal(sign, 1) == 0), ""
        )
        if zero:
            numeral = cls.parse(text.replace(zero, "0"))
            return None if numeral is None or "0" in text else replace(numeral, zero=zero)
        positive, semicolon, negative = text.partition(";")
        found = _CORE.search(positive)
        if found is None or (found["thousands"] and found["thousands"] == found["decimal"]):
            return None
        scale = Scale.parse(found["scale"]) if found["scale"] else None
        if found["scale"] and (scale is None or found["power"]):
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
        return cls(
            prefix,
            suffix,
            found["thousands"] or "",
            decimal,
            len(found["least"] or ""),
            len(found["more"] or "") if scale else bool(found["more"]),
            around,
            bool(found["pairs"]),
            bool(found["open"]),
            found["power"] or "",
            scale=scale,
        )

    def __str__(self) -> str:
        core = "#" if self.open else "0"
        if self.thousands:
            core = f"#{self.thousands}{f'##{self.thousands}' * self.pairs}##0"
        if self.least or self.more:
            core += f"{self.decimal}{'0' * self.least}{'#' * self.more}"
        core = (core + self.power).replace("0", self.zero) + str(self.scale or "")
        text = f"{self.prefix}{core}{self.suffix}"
        return text if self.negative is None else f"{text};{core.join(self.negative)}"

    @property
    def bare(self) -> bool:
        """True if numbers are written with nothing but digits, a minus and a decimal point."""
        return (
            not (self.prefix or self.suffix or self.thousands or self.negative)
            and not (self.open or self.power or self.scale or self.zero != "0")
            and self.decimal == "."
        )

    def read(self, text: str) -> str | None:
        """Returns the plain number, None for another spelling; thousands separators may be left out."""
        text = text.strip()
        if self.bare:
            return text
        found = _numeral_regex(self).fullmatch(ascii_digits(text, self.zero))
        if found is None:
            return None
        below = found["whole"] is None
        whole, fraction, power = (
            found[f"{part}_below" if below else part] or "" for part in _PARTS_OF_NUMBER
        )
        digits = whole.replace(self.thousands, "") if self.thousands else whole
        if not digits and not fraction:
            return None
        plain = f"{'-' if below else ''}{digits or '0'}" + (f".{fraction}" if fraction else "")
        if self.scale:
            word = found["word_below" if below else "word"]
            exponent = dict(self.scale.words)[word]
            if not self.scale.binary:
                return _without_power(plain, exponent)
            number = EXACT.multiply(Decimal(plain), self.scale.factor(exponent))
            return f"{number.normalize(EXACT):f}"
        return _without_power(plain, int(power)) if power else plain

    def write(self, plain: str) -> str:
        """Returns a plain number, with at most the decimals that it has, in this spelling."""
        found = _PLAIN.fullmatch(plain)
        if found is None:
            return plain
        whole, fraction, power = found[2], found[3] or "", ""
        below = bool(found[1]) and any(digit in "123456789" for digit in whole + fraction)
        least, more = self.least, bool(self.more)
        if self.scale:
            power, exponent = self.scale.word_of(Decimal(plain))
            factor = self.scale.factor(exponent)
            number = f"{EXACT.divide(Decimal(f'{whole}.{fraction or 0}'), factor):f}"
            whole, _, fraction = number.partition(".")
            # What has more decimals than the spelling keeps them: no number becomes another one.
            fraction, more = fraction.rstrip("0"), True
            least = least if exponent or self.scale.alike else 0
        if self.power:
            whole, fraction, power = self._with_power(whole, fraction)
            # Programs that write some powers alone have no fixed decimals before them.
            least = 0 if power and self.power[0] == "[" else least
        if more:
            fraction = fraction.rstrip("0")
        fraction = fraction.ljust(least, "0")
        if self.thousands:
            whole = self._grouped(str(int(whole)))
        if self.open and fraction and not int(whole):
            whole = ""
        number = (f"{whole}{self.decimal}{fraction}" if fraction else whole) + power
        before, behind = _around(self) if below else (self.prefix, self.suffix)
        if self.zero != "0":
            number = number.translate({ord("0") + i: chr(ord(self.zero) + i) for i in range(10)})
        return f"{before}{number}{behind}"

    def step(self, number: Decimal) -> Decimal:
        """Returns the distance of the numbers near one that are written before its word; 0 without a scale."""
        if self.scale is None:
            return Decimal(0)
        _, power = self.scale.word_of(number)
        if not power and not self.scale.alike:
            return Decimal(self.scale.binary)
        return self.scale.factor(power).scaleb(-self.least - self.more)

    def _grouped(self, whole: str) -> str:
        """Returns digits with separators of thousands."""
        size, rest, groups = 2 if self.pairs else 3, whole[:-3], [whole[-3:]]
        while rest:
            groups.insert(0, rest[-size:])
            rest = rest[:-size]
        return self.thousands.join(groups)

    def _with_power(self, whole: str, fraction: str) -> tuple[str, str, str]:
        """Returns a number's first digit, its other ones as decimals, and the power of ten as it is written.

        A number whose power is not written stays as it is, without one.
        """
        form = _POWER.fullmatch(self.power)
        if form is None:
            raise ValueError(f"{self.power!r} is no power of ten")
        digits = (whole + fraction).lstrip("0")
        exponent = len(digits) - len(fraction) - 1 if digits else 0
        if form["start"] and LEAST_PLAIN <= exponent < int(form["start"]):
            return whole, fraction, ""
        sign = "-" if exponent < 0 else form["sign"].replace("-", "")
        power = f"{form['letter']}{sign}{abs(exponent):0{len(form['zeros'])}d}"
        return digits[:1] or "0", digits[1:].rstrip("0"), power


@dataclass(frozen=True, slots=True)
class Clock:
    """A number of the finest unit of time of ``text``, written in all of its units."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Clock | None:
        """Parses the notation of directives; returns None unless each unit occurs once, from the coarsest on."""
        letters = [_unit(found["letter"]) for found in _DIRECTIVE.finditer(text)]
        if letters[:1] == ["I"] and letters[-1] in _HALVES:
            # An hour of twelve is an hour with its half of the day.
            letters = ["H", *letters[1:-1]]
        order = [letter for letter in (*SECONDS, FRACTION) if letter in letters]
        without_gap = "".join(order) in "DHMS" + FRACTION
        left = _DIRECTIVE.sub("", text)
        if not letters or letters in ([FRACTION], []) or letters != order:
            return None
        if not without_gap or "%" in left:
            return None
        parts = _parts(text)
        return cls(text) if parts and not any(set("[]") & set(part) for part, _ in parts) else None

    def __str__(self) -> str:
        return self.text

    @property
    def letters(self) -> str:
        """Letters of the units, from the coarsest to the finest."""
        written = "".join(_unit(found["letter"]) for found in _DIRECTIVE.finditer(self.text))
        return written.rstrip("pP.").replace("I", "H")

    @property
    def decimals(self) -> int:
        """Number of decimals of a second."""
        return next(
            (int(f["letter"][0]) for f in _DIRECTIVE.finditer(self.text) if f["letter"][1:] == "f"),
            0,
        )

    @property
    def day(self) -> int | None:
        """Number of the finest units in a day; None if days are written."""
        finest = (10**self.decimals, 1) if self.decimals else (1, SECONDS[self.letters[-1]])
        return None if self.letters[0] != "H" else SECONDS["D"] * finest[0] // finest[1]

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
            zip(self.letters[1:], map(self._ratio, self.letters, self.letters[1:]), strict=False)
        )
        total, half = 0, found.groupdict().get("half")
        for letter in self.letters:
            digits = found[letter] or "0"
            number = int(digits.ljust(self.decimals, "0") if letter == FRACTION else digits)
            if half and letter == "H":
                if not 1 <= number <= _HALF_DAY:
                    return None
                number = number % _HALF_DAY + _HALF_DAY * (half[0] in "pP")
            if number >= bounds.get(letter, number + 1):
                return None
            total = total * bounds.get(letter, 1) + number
        return f"-{total}" if found["sign"] and total else str(total)

    def write(self, plain: str) -> str:
        """Returns a plain whole number of the finest unit in this spelling."""
        left, numbers = abs(int(plain)), {}
        for before, letter in reversed([*zip(self.letters, self.letters[1:], strict=False)]):
            left, numbers[letter] = divmod(left, self._ratio(before, letter))
        numbers[self.letters[0]] = left
        parts, chosen = _parts(self.text), list[str]()
        for part, optional in parts:
            letters = [_unit(found["letter"]) for found in _DIRECTIVE.finditer(part)]
            if not optional or any(numbers[letter] for letter in letters):
                chosen.append(part)
        if not any(_DIRECTIVE.search(part) for part in chosen):
            chosen.append(parts[-1][0])
        written = [_written_part(part, numbers) for part in chosen]
        sign = "-" if plain.startswith("-") and int(plain) else ""
        return f"{sign}{''.join(written)}".strip()

    def _ratio(self, coarse: str, fine: str) -> int:
        return 10**self.decimals if fine == FRACTION else int(SECONDS[coarse] // SECONDS[fine])


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
    above = _digits(numeral, _PARTS_OF_NUMBER)
    below = _digits(numeral, [f"{part}_below" for part in _PARTS_OF_NUMBER])
    prefix, suffix = re.escape(numeral.prefix), re.escape(numeral.suffix)
    return re.compile(f"(?:{prefix}{above}{suffix}|{before}{below}{behind})", re.ASCII)


def _digits(numeral: Numeral, names: Sequence[str]) -> str:
    groups = f"{groups_regex(numeral.thousands, pairs=numeral.pairs)}|" if numeral.thousands else ""
    whole, fraction, power = names
    digits = rf"(?P<{whole}>{groups}\d{'*' if numeral.open else '+'})"
    digits += rf"(?:{re.escape(numeral.decimal)}(?P<{fraction}>\d+))?"
    if numeral.scale:
        words = "|".join(re.escape(word) for word, _ in reversed(numeral.scale.words))
        digits += f"(?P<{whole.replace('whole', 'word')}>{words})"
    return digits + (
        rf"(?:[Ee](?P<{power}>[+-]?\d{{1,3}}))" + "?" if numeral.power else rf"(?P<{power}>(?!))?"
    )


def ascii_digits(text: str, zero: str) -> str:
    """Returns a text with the digits of the script of ``zero`` in those of ASCII."""
    if zero == "0":
        return text
    return text.translate({ord(zero) + i: str(i) for i in range(10)})


def groups_regex(thousands: str, *, pairs: bool) -> str:
    """Returns the pattern of whole numbers with separators of thousands; they have one at least."""
    sign = re.escape(thousands)
    if pairs:
        return rf"\d{{1,2}}(?:{sign}\d{{2}})*{sign}\d{{3}}"
    return rf"\d{{1,3}}(?:{sign}\d{{3}})+"


def _without_power(plain: str, power: int) -> str:
    """Returns a plain number times a power of ten."""
    return f"{Decimal(plain).scaleb(power, EXACT):f}"


def _unit(letter: str) -> str:
    """Returns the letter of a directive's unit: ``F`` for ``3f``."""
    return FRACTION if letter[1:] == "f" else letter


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
        if found["letter"][1:] == "f":
            decimals = f"{numbers[FRACTION]:0{found['letter'][0]}d}"
            return (decimals.rstrip("0") or "0") if found["flag"] else decimals
        twelve = found["letter"] == "I"
        last = (numbers["H"] - 1) % _HALF_DAY + 1 if twelve else numbers[found["letter"]]
        return str(last) if found["flag"] else f"{last:02d}"

    return _PIECE.sub(written, _RUN.sub(lambda run: _as_one_number(run, numbers), part))


def _as_one_number(run: re.Match[str], numbers: dict[str, int]) -> str:
    """Returns hours, minutes and seconds as the digits of one number, without leading zeros."""
    minutes = 100 * numbers["H"] + numbers["M"]
    return str(100 * minutes + numbers["S"] if run["seconds"] else minutes)


def _written_halves(letter: str) -> tuple[str, ...]:
    """Returns all texts of the halves of a day, in capitals or not."""
    return tuple(
        case(half) for half in _HALVES[letter] for case in (str.lower, str.upper, str.title)
    )


@lru_cache(512)
def _clock_regex(text: str) -> re.Pattern[str]:
    patterns, coarsest = [], _DIRECTIVE.search(text)
    for part, optional in _parts(text):
        pattern, end = "", 0
        if run := _RUN.search(part):
            # The last digits are the finest unit's.
            pattern = re.escape(part[: run.start()]) + "(?P<H>[0-9]*?)"
            pattern += (
                "(?P<M>[0-9]{0,2}?)(?P<S>[0-9]{1,2})" if run["seconds"] else "(?P<M>[0-9]{1,2})"
            )
            end = run.end()
        for found in _PIECE.finditer(part, end):
            pattern += re.escape(part[end : found.start()])
            letter, end = found["letter"], found.end()
            many = found["flag"] or (coarsest and letter == coarsest["letter"] != "I")
            digits = "[0-9]+" if many else "[0-9][0-9]"
            if letter and letter[1:] == "f":
                digits = f"[0-9]{{{'1,' if found['flag'] else ''}{letter[0]}}}"
            if letter in _HALVES:
                pattern += f"(?P<half>{'|'.join(map(re.escape, _written_halves(letter)))})"
            else:
                name = "H" if letter == "I" else _unit(letter or "")
                pattern += f"(?P<{name}>{digits})" if letter else "s?"
        rest = part[end:]
        # The blank at the end of a part in brackets is missing if nothing follows.
        pattern += (
            re.escape(rest.rstrip()) + " ?" if optional and rest[-1:] == " " else re.escape(rest)
        )
        patterns.append(f"(?:{pattern})?" if optional else pattern)
    return re.compile(f"(?P<sign>-?){''.join(patterns)}")
