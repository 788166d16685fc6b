"""Spellings of numbers, recognised from a column's texts: signs, decimals, durations, marks among them.

Ambiguous texts are read in one way, and ``question`` states the other.

The texts are secret, at their owner; a question contains none of them except a mark. Limits: rules of thumb, all in the
constants.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from mechanisms.spelling import (
    LEAST_PLAIN,
    THOUSANDS,
    Clock,
    Numeral,
    Scale,
    Spelling,
    ascii_digits,
    groups_regex,
)
from mechanisms.written import decimals_of, parse_number

MOST_MARKS, LONGEST_MARK = 8, 30
"""Most different texts, and their most characters, that are marks among numbers or dates."""
LEAST_VALUES = 20
"""Number of different texts up to which a column has categories: marks and signs would not make them numbers."""
MARKED_SHARE = 0.5
"""Least share of the rows with a number for the other texts to be marks."""
MOST_SUFFIX = 12
CODES_SHARE = 0.95
CURRENCIES = (
    "$",
    "€",
    "¤",
    "£",
    "¥",
    "₹",
    "US$",
    "EUR",
    "USD",
    "GBP",
    "CHF",
    "JPY",
    "SEK",
    "NOK",
    "DKK",
    "PLN",
    "CZK",
    *(
        "R$",
        "A$",
        "C$",
        "HK$",
        "NT$",
        "S$",
        "₽",
        "₺",
        "₴",
        "₩",
        "₪",
        "₫",
        "₱",
        "฿",
        "Rs.",
        "Rs",
        "RUB",
        "CNY",
        "INR",
    ),
    *("BRL", "TRY", "HUF", "RON", "kr", "kr.", "zł", "Kč", "Ft", "~", "≈", "ca."),
    *("￥", "￡", "Fr.", "SFr.", "fr."),
)
"""Signs before an amount; other letters before digits make a code. The euro of ISO 8859-15 is ¤ in other encodings."""

_OTHER_PREFIXES = ("%", "'")
"""Signs before numbers that are no currency: per cent in Turkish, and the sign of texts in spreadsheets."""
_CODE = re.compile(r"[A-Za-z]{1,3}\d{1,4}(?:[.-]?[0-9A-Za-z]{1,4})?", re.ASCII)
AFFIXED = re.compile(rf"([^\d]*?)(\d(?:[\d{THOUSANDS}]*\d)?)([^\d]*)", re.ASCII)
_POWER = re.compile(
    r"[+-]?\d(?:\.(?P<decimals>\d+))?(?P<letter>[Ee])(?P<sign>[+-]?)(?P<exponent>\d{1,3})"
)
_POINTED_THOUSAND = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}", re.ASCII)
FEWEST_POINTED, ENOUGH_POINTED = 10, 30
"""Fewest different numbers such as 1.234 that may be whole beside numbers without a point, and that are."""
_DOUBLE, _FEWEST_PLAIN = 16, 4
"""Exponent from which programs write a double with a power of ten, and the least one with which some do."""
_MINUS = "-\u2212"
_PLUS = "+"
_DURATION = re.compile(r"(\d+)((?:\.\d{1,9})?)( ?)([A-Za-z]+\.?)([ ,]*)", re.ASCII)
_OF_TWELVE = re.compile(r"(\d{1,2}):\d{2}(:\d{2})?( ?)([AP]M|[ap]m|[AP]\.M\.|[ap]\.m\.)", re.ASCII)
_ISO_DURATION = re.compile(
    r"-?P(?:(?P<D>\d+)D)?(?P<T>T)?(?:(?P<H>\d+)H)?(?:(?P<M>\d+)M)?(?:(?P<S>\d+)(?:(?P<point>[.,])(?P<F>\d{1,9}))?S)?",
    re.ASCII,
)
_CLOCK = re.compile(
    r"-?(?:(\d+)( ?d(?:ays?)?,? |:(?=\d\d:\d\d:\d\d)))?(\d+)(:| ?[hH] ?|時)"
    r"(\d\d)(:\d\d)?( ?(?:Uhr|[hH]|hrs?|Std\.?|分))?",
    re.ASCII,
)
_OF_SECONDS = re.compile(
    r"-?(?:(?P<D>\d+)(?P<days> ?d(?:ays?)?,? ))?(?:(?P<H>\d+):)?(?P<M>\d+)(?P<colon>[:'\u2032])(?P<S>\d\d)"
    r"(?:(?P<point>[.,\"\u2033])(?P<F>\d{1,9}))?",
    re.ASCII,
)
_PARENTHESES = "(5) may be minus 5, or 5 with a note; it is read as minus 5"
_NO_CENTS = tuple(
    f"{sign}{dash}"
    for sign in (".", ",", "/")
    for dash in ("-", "--", "\u2013", "\u2014", "\u2212")
)
"""Signs behind an amount without cents: ``Fr. 20.-``, ``20,--``, ``Rs. 20/-``."""
_PERIODS = frozenset({("P", "D"), ("P", "W"), ("P", "M"), ("P", "Y")})
"""Signs around durations of one unit of the calendar, of ISO 8601: ``P3W``."""
_DEGREES = re.compile(
    r"-?(?P<H>\d{1,3})(?P<degree>° ?)(?P<M>\d\d?)(?P<minute>['\u2032\u2019] ?)(?P<S>\d\d?)(?:\.(?P<F>\d{1,9}))?"
    r"(?P<second>(?:\"|''|\u2033|\u201d) ?[NSEOW]?)",
    re.ASCII,
)
_SIDES, _NEGATIVE = {"N": "S", "S": "N", "E": "W", "O": "W", "W": "EO"}, "SW"
"""Letters of the sides of the earth with their opposites, and of those whose coordinates are negative."""
_UNIT = re.compile("[^\\W_]|[°µ$€£¥₽₩₹]")
_HOURS_AND_MINUTES = re.compile(r"(?:[01]?\d|2[0-3])\.[0-5]\d", re.ASCII)
POINTED_TIMES = 60
"""Fewest different numbers such as 18.09, none with more than 59 hundredths, that are times of day."""
LIKELY_TIMES, LIKELY_HOURS, NAMED_TIMES, NAMED_HOURS = 20, 4, 5, 2
"""Fewest different numbers such as 517, and hours in them, that may be times; fewer in a column named after a time."""
MAYBE = "it may be "
"""Beginning of a question that follows from the numbers themselves, not from how they are written."""
FEWEST_SINCE, SURE_SINCE = 10, 0.98
"""Fewest different numbers that may be times since 1970, and the share of the rows that they have."""
LAST_HOUR_MINUTES, OTHER_TIMES = 45, 0.05
"""Least number of minutes that some times have; largest share of rows with numbers that are no times among them."""
_NAMED_TIME = re.compile("time|hour|hhmm|clock|uhr|zeit|heure|hora|tijd", re.IGNORECASE)
_OF_NUMBERS = {4: "%H%M", 6: "%H%M%S"}
_UNPADDED = (("%-H%M", 1), ("%-H%M%S", 100))
"""Spellings of times in digits alone, and the part of them that is less than a minute."""
_UNIT_WORDS = {
    "D": ("d", "day", "Tag", "Tg.", "jour"),
    "H": ("h", "hr", "hour", "Std", "Std.", "Stunde", "heure"),
    "M": ("m", "min", "minute", "Min", "Min.", "mn"),
    "S": ("s", "sec", "second", "Sek", "Sek.", "sek", "seconde"),
}
_SCALES: Mapping[str, int] = {
    **{"k": 3, "K": 3, "M": 6, "G": 9, "T": 12},
    **{
        "m": 6,
        "mm": 6,
        "MM": 6,
        "Mn": 6,
        "mn": 6,
        "b": 9,
        "B": 9,
        "bn": 9,
        "Bn": 9,
        "t": 12,
        "tn": 12,
        "Tn": 12,
    },
    **{
        "thousand": 3,
        "million": 6,
        "billion": 9,
        "trillion": 12,
        "mill": 6,
        "Mill": 6,
        "mln": 6,
        "bln": 9,
    },
    **{
        "Tsd": 3,
        "tsd": 3,
        "Mio": 6,
        "mio": 6,
        "Mrd": 9,
        "mrd": 9,
        "Bio": 12,
        "Tsd.": 3,
        "Mio.": 6,
        "Mrd.": 9,
    },
    **{
        "Md": 9,
        "Mds": 9,
        "mld": 9,
        "mil": 3,
        "mila": 3,
        "tys": 3,
        "tis": 3,
        "тыс": 3,
        "млн": 6,
        "млрд": 9,
    },
    **{
        "тыс.": 3,
        "millones": 6,
        "milhões": 6,
        "lakh": 5,
        "Lakh": 5,
        "lac": 5,
        "L": 5,
        "crore": 7,
        "Crore": 7,
        "Cr": 7,
    },
    **{"千": 3, "万": 4, "萬": 4, "億": 8, "亿": 8, "兆": 12, "천": 3, "만": 4, "억": 8},
}
"""Words that scale the number before them, and their powers of ten."""
_PLAIN = (("", "."), ("", ","), (",", "."), (".", ","))
"""Signs of thousands and decimals beside words that scale."""
MOST_SCALE = 5
"""Most texts behind numbers that scale them; rarer ones are marks."""
_PREFIXES = frozenset("kKMGT")
"""Words that scale a unit behind them, too: kW, MB."""
_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("", "B", "o", "byte", "bytes", "Byte", "Bytes", "octets"), 0),
    **{
        f"{prefix}{unit}": place
        for place, prefixes in enumerate(("kK", "M", "G", "T", "P"), start=1)
        for prefix in prefixes
        for unit in ("", "B", "o", "i", "iB", "io")
    },
}
"""Words for sizes of files, and how often 1,000 or 1,024 is multiplied for them."""
_BYTES_QUESTION = "1 KB may be 1,000 bytes or 1,024; it is read as 1,000"
SEPARATORS = (
    ("", ".", False),
    (",", ".", False),
    (".", ",", False),
    ("", ",", False),
    *((sign, decimal, False) for sign in THOUSANDS[2:] for decimal in ".,"),
    (",", ".", True),
)
"""Signs of thousands and decimals, and whether groups have two digits before the last three."""


@dataclass(frozen=True, slots=True)
class NumberReading:
    """Texts that are numbers in a ``spelling``: ``plain`` has each in digits alone; ``marks`` are the other texts.

    ``question`` states another possible meaning of the texts, or "".
    """

    plain: Mapping[str, str]
    spelling: Spelling
    marks: tuple[str, ...] = ()
    question: str = ""

    @property
    def form(self) -> str:
        """The spelling as a column has it; "" for digits alone."""
        return "" if self.spelling == Numeral() else str(self.spelling)


def read_numbers(
    counts: Mapping[str, int], *, dotted_thousands: bool = False, name: str = ""
) -> NumberReading | None:
    """Returns the spelling of a column's numbers, None if its texts are none; ``counts`` are the rows of each.

    ``dotted_thousands`` decides, if nothing else does, that ``1.234`` is a whole number in the table. The column's
    ``name`` may hint at times of day.
    """
    if zero := _other_zero(counts):
        return _of_script(counts, zero, dotted_thousands=dotted_thousands)
    found = (
        _pointed_times(counts)
        or _times_of_digits(counts)
        or _bare(counts, dotted_thousands=dotted_thousands)
    )
    if found is None and len(counts) > LEAST_VALUES:
        found = _clock(counts) or _scaled(counts) or _affixed(counts)
    if found is None or any(_has_leading_zero(plain) for plain in found.plain.values()):
        return None
    if not found.question and isinstance(found.spelling, Numeral):
        question = _maybe_times(found, counts, name) or _maybe_since_1970(found, counts)
        return replace(found, question=question)
    return found


def _other_zero(counts: Mapping[str, int]) -> str:
    """Returns the zero of the script that the texts have digits of; "" if that is ASCII."""
    signs = {sign for text in counts if not text.isascii() for sign in text}
    digit = next((s for s in sorted(signs) if not s.isascii() and s.isdecimal()), "")
    return chr(ord(digit) - unicodedata.decimal(digit)) if digit else ""


def _of_script(
    counts: Mapping[str, int], zero: str, *, dotted_thousands: bool
) -> NumberReading | None:
    """Reads numbers in the digits of a script; None if some are written in ASCII, too, beside marks such as ``<5``."""
    latin = {ascii_digits(text, zero): text for text in counts}
    others = [text for text in counts if re.search("[0-9]", text)]
    mixed = len(latin) < len(counts) or len(others) > MOST_MARKS
    mixed = mixed or any(parse_number(text) is not None for text in others)
    of_latin = {text: counts[written] for text, written in latin.items()}
    found = None if mixed else read_numbers(of_latin, dotted_thousands=dotted_thousands)
    if found is None or not isinstance(found.spelling, Numeral):
        return None
    plain = {latin[text]: number for text, number in found.plain.items()}
    marks = tuple(latin[mark] for mark in found.marks)
    return NumberReading(plain, replace(found.spelling, zero=zero), marks, found.question)


def marks_among(counts: Mapping[str, int], values: set[str]) -> tuple[str, ...] | None:
    """Returns the texts beside the ``values``, commonest first, if they can be marks; None if they are too many."""
    others = sorted(counts.keys() - values, key=lambda text: (-counts[text], text))
    if not others:
        return ()
    rows = sum(counts[text] for text in values)
    few = len(others) <= MOST_MARKS and all(len(text) <= LONGEST_MARK for text in others)
    if not few or len(values) <= LEAST_VALUES or rows < MARKED_SHARE * sum(counts.values()):
        return None
    return tuple(others)


def code_shaped(counts: Mapping[str, int]) -> bool:
    """Returns whether nearly all texts are codes.

    Codes are letters that differ and digits (``A00.0``), or digits of one length.
    """
    letters = [text[0] for text in counts if _CODE.fullmatch(text)]
    if len(letters) >= CODES_SHARE * len(counts):
        return len(set(letters)) > 1
    digits = [text for text in counts if text.isdecimal()]
    return len(digits) >= CODES_SHARE * len(counts) and len(set(map(len, digits))) == 1


def ambiguous_versions(reading: NumberReading) -> bool:
    """Returns whether two texts with a point are one number, as ``1.1`` and ``1.10``: no spelling explains both."""
    versions = [plain for plain in reading.plain.values() if re.fullmatch(r"\d+\.\d+", plain)]
    return len(set(map(Decimal, versions))) < len(versions)


def _bare(counts: Mapping[str, int], *, dotted_thousands: bool) -> NumberReading | None:
    plain = {text: text for text in counts if parse_number(text) is not None}
    marks = marks_among(counts, set(plain)) if plain else None
    if marks is None:
        return None
    question = ""
    if _may_be_thousands(plain):
        question = "1.234 may be a whole number or have three decimals; it is read as "
        # Beside whole numbers, decimals of three digits each would be those of no program.
        pointed = sum("." in text for text in plain)
        if dotted_thousands or ENOUGH_POINTED <= pointed < len(plain):
            numeral = Numeral(thousands=".", decimal=",")
            plain = {text: text.replace(".", "") for text in plain}
            return NumberReading(plain, numeral, marks, question + "a whole number")
        question += 'a number with three decimals (format = "#.##0" for whole numbers)'
    if power := _power(plain):
        return NumberReading(plain, power, marks)
    if all(text.strip().endswith(".") for text in plain):
        plain = {text: text.strip()[:-1] for text in plain}
        return NumberReading(plain, Numeral(suffix="."), marks)
    numeral = _unusual(plain)
    plain = {text: number.strip().removeprefix(_PLUS) for text, number in plain.items()}
    numeral = _with_decimals(numeral, plain)
    if numeral.open and not numeral.least:
        numeral = replace(numeral, least=1, more=True)
    return NumberReading(plain, numeral, marks, question)


def _power(plain: Mapping[str, str]) -> Numeral | None:
    """Returns the numeral with a power of ten if all numbers but zero are written with one, or as programs do."""
    texts = [text.strip() for text in plain if float(text)]
    powers = [match for text in texts if (match := _POWER.fullmatch(text))]
    if not powers or len({match["letter"] for match in powers}) > 1:
        return None
    sign = "+" if any(match["sign"] == "+" for match in powers) else "-"
    form = f"{powers[0]['letter']}{sign}{'0' * min(len(match['exponent']) for match in powers)}"
    if len(powers) < len(texts):
        others = [text for text in texts if not _POWER.fullmatch(text)]
        return _some_powers(form, [int(m["sign"] + m["exponent"]) for m in powers], others)
    decimals = {len(match["decimals"] or "") for match in powers}
    least = decimals.pop() if len(decimals) == 1 else 0
    return Numeral(least=least, more=True, power=form)


def _some_powers(form: str, exponents: Sequence[int], others: Sequence[str]) -> Numeral | None:
    """Returns the numeral of programs that write powers of ten only beside large and small numbers; None if not."""
    large = [exponent for exponent in exponents if exponent >= 0]
    plain = [Decimal(text).adjusted() for text in others]
    start = min([*large, _DOUBLE])
    small = max([exponent for exponent in exponents if exponent < 0], default=LEAST_PLAIN - 1)
    if (
        start < _FEWEST_PLAIN
        or max(plain) >= start
        or min(plain) < LEAST_PLAIN
        or small >= LEAST_PLAIN
    ):
        return None
    if not large:
        # Where no number is so large, whatever is written beside it.
        form = form.replace("-", "+")
    pointed = all("." in text for text in others)
    return Numeral(least=int(pointed), more=True, power=f"[{start}{form}]")


def _unusual(plain: Mapping[str, str]) -> Numeral:
    """Returns the numeral of numbers that all have a sign, or no zero before the decimal point."""
    texts = [text.strip() for text in plain]
    signed = any(text[0] == _PLUS for text in texts) and all(text[0] in "+-" for text in texts)
    below_one = [found[1] for text in texts if (found := re.fullmatch(r"[+-]?(0?)\.\d+", text))]
    return Numeral(
        prefix=_PLUS if signed else "",
        negative=("-", "") if signed else None,
        open=bool(below_one) and not any(below_one),
    )


def _may_be_thousands(plain: Mapping[str, str]) -> bool:
    """Returns whether all numbers but whole ones are written like ``1.234``, as thousands are."""
    pointed = [text for text in plain if not re.fullmatch(r"[+-]?\d+", text)]
    few = len(pointed) < FEWEST_POINTED and len(pointed) < len(plain)
    return bool(pointed) and not few and all(map(_POINTED_THOUSAND.fullmatch, pointed))


def _with_decimals(numeral: Numeral, plain: Mapping[str, str]) -> Numeral:
    """Returns the numeral with the decimals that the numbers always have, if they differ from the column's."""
    places = {
        len(text.partition(".")[2]) for text in plain.values() if decimals_of(text) is not None
    }
    if not places:
        return numeral
    fixed = len(places) == 1
    whole = all(not text.partition(".")[2].strip("0") for text in plain.values())
    if fixed:
        # A last digit that is always 0 is none of the column's decimals.
        spelt = whole or not numeral.bare or all(text.endswith("0") for text in plain.values())
        return replace(numeral, least=max(places)) if spelt else numeral
    dropped = all(
        decimals_of(text) is not None and not text.endswith("0")
        for text in plain.values()
        if "." in text and len(text.partition(".")[2]) > min(places)
    )
    return (
        replace(numeral, least=min(places), more=True) if dropped and min(places) < 2 else numeral
    )


def _clock(counts: Mapping[str, int]) -> NumberReading | None:
    patterns = (_colons, _halves, _of_seconds, _degrees, _iso_durations, _unit_words)
    for pattern in (find(counts) for find in patterns):
        clock = Clock.parse(pattern) if pattern else None
        if clock is None:
            continue
        read = {text: clock.read(text) for text in counts}
        plain = {
            text: number
            for text, number in read.items()
            if number is not None and clock.write(number) == text
        }
        marks = marks_among(counts, set(plain)) if plain else None
        if marks is not None:
            return NumberReading(plain, clock, marks)
    return None


def _colons(counts: Mapping[str, int]) -> str:
    """Returns the pattern of texts such as ``03:56``, ``3h56`` and ``0 days 03:56:00``; "" if there are none."""
    found = Counter[str]()
    matches = [(match, n) for text, n in counts.items() if (match := _CLOCK.fullmatch(text))]
    # Seconds that are always 0 are no part of the number, and neither are minutes then.
    seconds = ":00" if all(match[6] in (None, ":00") for match, _ in matches) else ":%S"
    whole = seconds == ":00" and all(match[6] and match[5] == "00" for match, _ in matches)
    for match, rows in matches:
        days = f"%-D{match[2]}" if match[1] else ""
        time = f"%H{match[4]}{'00' if whole else '%M'}{seconds if match[6] else ''}"
        found[f"{days}{time}{match[7] or ''}"] += rows
    commonest = found.most_common(1)[0][0] if found else ""
    unpadded = any(len(match[3]) == 1 for match, _ in matches)
    return commonest.replace("%H", "%-H") if unpadded else commonest


def _of_seconds(counts: Mapping[str, int]) -> str:
    """Returns the pattern of texts such as ``1:23.456`` and ``1 day, 0:01:23.5``; "" if none has such decimals."""
    matches = [found for text in counts if (found := _OF_SECONDS.fullmatch(text))]
    fraction = _fraction([found["F"] for found in matches])
    if not fraction:
        return ""
    point, colon = (
        Counter(found[part] for found in matches if found[part]).most_common(1)[0][0]
        for part in ("point", "colon")
    )
    first = "H" if any(found["H"] for found in matches) else "M"
    flag = "-" * any(len(found[first] or "00") == 1 for found in matches)
    words = {found["days"] for found in matches if found["D"]}
    days = f"%-D{max(words, key=len)}" if words else ""
    if len(words) == 2:
        days = days.replace("days", "day(s)")
    if days and not all(found["D"] for found in matches):
        days = f"[{days}]"
    hours = f"%{flag}H:%M" if first == "H" else f"%{flag}M"
    return f"{days}{hours}{colon}%S{fraction.replace('.', point, 1)}"


def _degrees(counts: Mapping[str, int]) -> str:
    """Returns the pattern of texts such as ``48°17'09"N``, which divide as hours do; "" if there are none."""
    matches = [found for text in counts if (found := _DEGREES.fullmatch(text))]
    if not matches:
        return ""
    signs = [
        Counter(found[part] for found in matches).most_common(1)[0][0]
        for part in ("degree", "minute", "second")
    ]
    flag = "-" * any(len(found[part]) == 1 for found in matches for part in "MS")
    fraction = _fraction([found["F"] for found in matches])
    return f"%-H{signs[0]}%{flag}M{signs[1]}%{flag}S{fraction}{signs[2]}"


def _fraction(decimals: Sequence[str | None]) -> str:
    """Returns the directive of a second's decimals, with a point before it, by those of all texts; "" for none."""
    given = [each for each in decimals if each]
    if not given:
        return ""
    longest = max(map(len, given))
    dropped = len(set(map(len, given))) > 1 and not any(each[-1] == "0" for each in given)
    directive = f".%{'-' * dropped}{longest}f"
    return directive if len(given) == len(decimals) else f"[{directive}]"


def _halves(counts: Mapping[str, int]) -> str:
    """Returns the pattern of times of day such as ``9:05 PM``; "" if there are none."""
    found = Counter[str]()
    matches = [(match, n) for text, n in counts.items() if (match := _OF_TWELVE.fullmatch(text))]
    seconds = ":00" if all(match[2] == ":00" for match, _ in matches) else ":%S"
    for match, rows in matches:
        half = f"%{'.' if '.' in match[4] else ''}{'P' if match[4].islower() else 'p'}"
        found[f"%I:%M{seconds if match[2] else ''}{match[3]}{half}"] += rows
    commonest = found.most_common(1)[0][0] if found else ""
    unpadded = any(len(match[1]) == 1 for match, _ in matches)
    return commonest.replace("%I", "%-I") if unpadded else commonest


def _pointed_times(counts: Mapping[str, int]) -> NumberReading | None:
    """Reads times of day with a point (``18.09``), where no number has more than 59 hundredths; None if not."""
    if len(counts) < POINTED_TIMES or not all(map(_HOURS_AND_MINUTES.fullmatch, counts)):
        return None
    if len({text[-2:] for text in counts}) < POINTED_TIMES / 2:
        return None
    clock = Clock.parse("%-H.%M" if any(len(text) == 4 for text in counts) else "%H.%M")
    read = {text: clock.read(text) for text in counts} if clock else {}
    plain = {text: number for text, number in read.items() if number is not None}
    if clock is None or any(clock.write(plain.get(text, "0")) != text for text in counts):
        return None
    question = "18.09 may be a number; since none has more than 59 hundredths, they are read as times of day"
    return NumberReading(plain, clock, (), question)


def _times_of_digits(counts: Mapping[str, int]) -> NumberReading | None:
    """Reads times of day in digits alone, ``0930`` or ``093000``: others end in more than 59, or begin above 23."""
    lengths = {len(text) for text in counts if text.isdecimal()}
    form = _OF_NUMBERS.get(lengths.pop(), "") if len(lengths) == 1 else ""
    clock = Clock.parse(form) if form else None
    if clock is None:
        return _unpadded_times(counts)
    read = {text: number for text in counts if (number := clock.read(text)) is not None}
    plain = {text: number for text, number in read.items() if "00" <= text[:2] <= "23"}
    marks = marks_among(counts, set(plain)) if plain else None
    # Days and months would be no later than 12 and 31.
    late = any(text[:2] > "12" for text in plain) and any(text[2:4] > "31" for text in plain)
    if marks is None or len(plain) < POINTED_TIMES or not late:
        return None
    if any(mark.isdecimal() and counts[mark] < sum(counts.values()) / 100 for mark in marks):
        return None
    return NumberReading(
        plain, clock, marks, f"0930 may be a code; they are read as times of day, {clock}"
    )


def _unpadded_times(counts: Mapping[str, int]) -> NumberReading | None:
    """Reads times of day in digits alone, without leading zeros: ``517``, ``1342``; None if they may be others."""
    end = ".0" if all(text.endswith(".0") for text in counts) else ""
    for form, minute in _UNPADDED:
        clock = Clock.parse(form + end)
        read = {text: clock.read(text) for text in counts} if clock else {}
        plain = {
            text: number
            for text, number in read.items()
            if clock and number is not None and clock.write(number) == text
        }
        numbers = {text: int(text.removesuffix(end)) for text in plain}
        plain = {text: plain[text] for text, n in numbers.items() if 0 <= n <= 2400 * minute}
        times = [numbers[text] // minute for text in plain if numbers[text] >= 100 * minute]
        marks = marks_among(counts, set(plain)) if len(times) >= POINTED_TIMES else None
        # Days and months would be no later than 12 and 31, and numbers of rooms begin anew long before 60.
        late = any(n // 100 > 12 for n in times) and any(
            n % 100 >= LAST_HOUR_MINUTES for n in times
        )
        few = sum(counts.values()) / 100
        if clock is None or marks is None or not late:
            continue
        if any(parse_number(mark) is not None and counts[mark] < few for mark in marks):
            continue
        question = (
            "517 may be a number; since none ends in more than 59, they are read as times of day"
        )
        return NumberReading(plain, clock, marks, f"{question}, {clock}")
    return None


def _maybe_times(reading: NumberReading, counts: Mapping[str, int], name: str) -> str:
    """Returns a question on whole numbers that are likely to be times of day in digits, such as ``517``; "" on others.

    Multiples of 50, say, end in no more than 59 whatever they are: such numbers are none.
    """
    rows = Counter[int]()
    for text, plain in reading.plain.items():
        if not re.fullmatch(r"-?\d+(\.0)?", plain):
            return ""
        rows[int(Decimal(plain))] += counts[text]
    times = {n for n in rows if 100 <= n <= 2400 and n % 100 < 60}
    others = sum(rows[n] for n in rows if not 0 <= n <= 2400 or n % 100 >= 60)
    hours, minutes = {n // 100 for n in times}, {n % 100 for n in times}
    named = _NAMED_TIME.search(name) is not None
    enough = (NAMED_TIMES, NAMED_HOURS) if named else (LIKELY_TIMES, LIKELY_HOURS)
    if len(times) < enough[0] or len(hours) < enough[1] or max(minutes) < 30:
        return ""
    if others > OTHER_TIMES * sum(rows[n] for n in rows if not 0 <= n < 60):
        return ""
    step = math.gcd(100, *minutes)
    if max(range(0, 100, step)) < 60:
        return ""
    if max(minutes) <= 31 and max(hours) <= 12 and not named:
        # Months and days, or rooms.
        return ""
    return (
        f"{MAYBE}times of day in digits, 517 for 5:17, since hardly any number ends in more than 59; it is read as "
        f'numbers. For times write format = "%-H%M{".0" * (reading.form == "0.0")}", and low, high, edges and atoms in '
        "minutes"
    )


def _maybe_since_1970(reading: NumberReading, counts: Mapping[str, int]) -> str:
    """Returns a question on whole numbers that are likely to be seconds or milliseconds since 1970; "" on others.

    They are whole minutes from 2001 to 2033, as dates and times of programs are; identifiers hardly are.
    """
    rows = Counter[int]()
    for text, plain in reading.plain.items():
        if not re.fullmatch(r"\d+(\.0)?", plain):
            return ""
        rows[int(Decimal(plain))] += counts[text]
    for unit, called in ((1, "seconds"), (1000, "milliseconds")):
        found = [n for n in rows if 10**9 <= n // unit < 2 * 10**9 and n % (60 * unit) == 0]
        if len(found) >= FEWEST_SINCE and sum(rows[n] for n in found) >= SURE_SINCE * rows.total():
            return (
                f"{MAYBE}dates or times in {called} since 1970, whole minutes all of them; it is read as numbers, "
                "and synthetic ones are no whole minutes. For dates write them as dates in the table, as in 2018-12-17"
            )
    return ""


def _iso_durations(counts: Mapping[str, int]) -> str:
    """Returns the pattern of ISO 8601 durations such as ``PT2H5M``, optional units in brackets; "" if none."""
    matches = [found for text in counts if (found := _ISO_DURATION.fullmatch(text))]
    units = [unit for unit in "DHMS" if any(found[unit] for found in matches)]
    if not matches or not any(found["T"] for found in matches):
        return ""
    written = ""
    for unit in units:
        part = f"%-{unit}{unit}"
        of_seconds = [found for found in matches if found["S"]] if unit == "S" else []
        if fraction := _fraction([found["F"] for found in of_seconds]):
            point = next(found["point"] for found in of_seconds if found["F"])
            part = f"%-S{fraction.replace('.', point, 1)}S"
        part = part if all(found[unit] for found in matches) else f"[{part}]"
        written += part + ("T" if unit == "D" else "")
    return f"P{'' if 'D' in units else 'T'}{written}"


def _unit_words(counts: Mapping[str, int]) -> str:
    """Returns the pattern of texts such as ``2h 5m``, with optional units in brackets; "" if there is none."""
    parts: dict[str, Counter[tuple[str, str]]] = {}
    texts, gap = 0, Counter[str]()
    present, decimals = Counter[str](), list[str]()
    for text in counts:
        pieces = _DURATION.findall(text)
        if not pieces or "".join(map("".join, pieces)) != text:
            continue
        texts += 1
        for _, fraction, blank, word, behind in pieces:
            unit = _unit_of(word)
            if not unit or (fraction and unit != "S"):
                return ""
            if unit == "S":
                decimals.append(fraction[1:])
            present[unit] += 1
            gap[behind] += bool(behind)
            parts.setdefault(unit, Counter())[(blank, word)] += 1
    order = [unit for unit in _UNIT_WORDS if unit in parts]
    plural = any(len({word for _, word in found}) > 1 for found in parts.values())
    if not texts or (len(order) < 2 and not plural):
        return ""
    between = gap.most_common(1)[0][0] if gap else ""
    written = []
    for unit in order:
        words = {word for _, word in parts[unit]}
        blank, word = parts[unit].most_common(1)[0][0]
        word = word.removesuffix("s") + "(s)" if len(words) == 2 else word
        fraction = _fraction(decimals) if unit == "S" else ""
        part = f"%-{unit}{fraction}{blank}{word}" + (between if unit != order[-1] else "")
        written.append(f"[{part}]" if present[unit] < texts else part)
    return "".join(written)


def _unit_of(word: str) -> str:
    for unit, words in _UNIT_WORDS.items():
        for known in (word, word.lower()):
            if known in words or (known.endswith("s") and known[:-1] in words[1:]):
                return unit
    return ""


def _scaled(counts: Mapping[str, int]) -> NumberReading | None:
    """Reads numbers of which some have a word that scales them: ``950``, ``1.2K``, ``3.4M``; ``350 W``, ``1.2 kW``."""
    split = {text: found.groups() for text in counts if (found := AFFIXED.fullmatch(text))}
    if len(split) < len(counts) - MOST_MARKS:
        return None
    prefixes = Counter(before.removeprefix("-") for before, *_ in split.values())
    behind = Counter[str]()
    prefix = prefixes.most_common(1)[0][0] if prefixes else ""
    for text, (before, core, after) in split.items():
        if before.removeprefix("-") == prefix and any(_is_core(core, *signs) for signs in _PLAIN):
            behind[after] += counts[text]
    common = [after for after, _ in behind.most_common(MOST_SCALE)]
    words, suffix = _scale_words(common)
    scales = [(scale, "") for scale in _sizes(common)]
    if not any("i" in word for scale, _ in scales for word, _ in scale.words):
        scales.insert(0, (Scale(tuple(words.items())), suffix))
    readings = list[NumberReading]()
    for scale, ending in scales:
        if scale.words and is_affix(prefix, ending.strip(" .")):
            readings += _scaled_by(counts, Numeral(prefix, ending, scale=scale), split)
    best = max(readings, key=lambda reading: len(reading.plain), default=None)
    sizes = {_is_binary(each) for each in readings if best and len(each.plain) == len(best.plain)}
    if best is None or len(sizes) < 2:
        return best
    return replace(best, question=_BYTES_QUESTION)


def _scaled_by(
    counts: Mapping[str, int], numeral: Numeral, split: Mapping[str, tuple[str, ...]]
) -> list[NumberReading]:
    """Returns the readings by the words of the numeral's scale, with any signs of thousands and decimals."""
    words, cores = dict(numeral.scale.words if numeral.scale else ()), {}
    for text, (before, core, after) in split.items():
        word = after.removesuffix(numeral.suffix) if after.endswith(numeral.suffix) else None
        if word in words and before.removeprefix("-") == numeral.prefix:
            cores[text] = (core, words[word])
    readings = [_with_scale(counts, numeral, cores=cores, signs=signs) for signs in _PLAIN]
    return [reading for reading in readings if reading is not None]


def _is_binary(reading: NumberReading) -> bool:
    """Returns whether words of a reading scale by powers of 1,024."""
    spelling = reading.spelling
    return isinstance(spelling, Numeral) and spelling.scale is not None and spelling.scale.binary


def _sizes(behind: Sequence[str]) -> list[Scale]:
    """Returns the scales of sizes of files, by powers of 1,000 and of 1,024, if the texts are their words."""
    places = [_BYTES.get(text.strip(), -1) for text in behind]
    if len(behind) < 2 or min(places) < 0 or len(set(places)) < len(places):
        return []
    words = sorted(zip(behind, places, strict=True), key=lambda each: each[1])
    # KiB is 1,024 bytes, and nothing else; Mio is a million where no other word is of bytes.
    binary = any("i" in text for text in behind)
    if binary and all(text.strip() in ("", *_SCALES) for text in behind):
        return []
    bases = ((10, True),) if binary else ((3, False), (10, True))
    return [
        Scale(tuple((word, power * place) for word, place in words), binary=binary)
        for power, binary in bases
    ]


def _scale_words(behind: Sequence[str]) -> tuple[dict[str, int], str]:
    """Returns the words among the texts behind numbers with their powers of ten, and what stands behind all of them."""
    common = behind[0] if behind else ""
    for text in behind:
        while not text.endswith(common):
            common = common[1:]
    for start in range(len(common) + 1):
        suffix = common[start:]
        words = {text.removesuffix(suffix): 0 for text in behind}
        unit = suffix[:1].isalpha()
        for word in words:
            known = not word.strip() or word.strip() in (_PREFIXES if unit else _SCALES)
            words[word] = _SCALES.get(word.strip(), 0) if known else -1
        powers = list(words.values())
        if len(words) > 1 and min(powers) >= 0 and len(set(powers)) == len(powers):
            # A word that scales is another one's relative: m alone is metres, and t tons.
            small = {word.strip() for word in words if words[word]}
            if small & {"m", "t", "b", "L"} and len(small) == 1:
                continue
            return words, suffix
    return {}, ""


def _with_scale(
    counts: Mapping[str, int],
    numeral: Numeral,
    *,
    cores: Mapping[str, tuple[str, int]],
    signs: tuple[str, str],
) -> NumberReading | None:
    """Returns the reading by one pair of thousands and decimal signs; None if texts would come back otherwise."""
    thousands, decimal = signs
    scale = numeral.scale or Scale(())
    places = {power: set[int]() for _, power in scale.words}
    for core, power in cores.values():
        if _is_core(core, thousands, decimal):
            places[power].add(len(core.partition(decimal)[2]))
    scaled = set[int]().union(*(found for power, found in places.items() if power))
    if not scaled:
        return None
    fixed = len(scaled) == 1
    scale = replace(
        scale,
        words=tuple(sorted(scale.words, key=lambda item: item[1])),
        alike=bool(max(scaled)) and fixed and places.get(0) == scaled,
    )
    used = thousands and any(thousands in core for core, _ in cores.values())
    numeral = replace(
        numeral,
        thousands=thousands if used else "",
        decimal=decimal if max(scaled) or used else ".",
        least=min(scaled),
        more=max(scaled) - min(scaled),
        scale=scale,
    )
    read = {text: numeral.read(text) for text in cores}
    plain = {
        text: number
        for text, number in read.items()
        if number is not None and numeral.write(number) == text
    }
    marks = marks_among(counts, set(plain)) if plain else None
    return None if marks is None else NumberReading(plain, numeral, marks)


def _affixed(counts: Mapping[str, int]) -> NumberReading | None:
    """Reads numbers with a currency, a unit, a per cent sign, thousands separators, parentheses for a minus."""
    split = {text: found.groups() for text in counts if (found := AFFIXED.fullmatch(text))}
    around, below = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for text, (before, _, behind) in split.items():
        around[without_sign(before, behind)] += counts[text]
    if not around:
        return None
    (prefix, suffix), _ = around.most_common(1)[0]
    if opposite := _opposite(prefix, suffix, around):
        above, under = sorted((suffix, opposite), key=lambda text: text[-1] in _NEGATIVE)
        cores = {text: core for text, (before, core, _) in split.items() if before == prefix}
        return _separated(counts, Numeral(prefix, above, negative=(prefix, under)), cores)
    if not is_affix(prefix, suffix):
        return None
    cores = {}
    for text, (before, core, behind) in split.items():
        if without_sign(before, behind) == (prefix, suffix):
            cores[text] = core
            if (before, behind) != (prefix, suffix):
                below[before, behind] += counts[text]
    plus = below.pop((_PLUS + prefix, suffix), 0)
    negative = below.most_common(1)[0][0] if below else None
    if plus and around[prefix, suffix] == plus + below.total():
        # Every number has a sign: the plus stands before each one that is not negative.
        numeral = Numeral(_PLUS + prefix, suffix, negative=negative or (f"-{prefix}", suffix))
        return _separated(counts, numeral, cores)
    numeral = Numeral(
        prefix, suffix, negative=None if negative == (f"-{prefix}", suffix) else negative
    )
    return _separated(counts, numeral, cores)


def _opposite(prefix: str, suffix: str, around: Mapping[tuple[str, str], int]) -> str:
    """Returns the ``suffix`` of the other side of the equator or of Greenwich; "" if it is none, or not there."""
    sides = _SIDES.get(suffix[-1:], "") if not suffix[:-1].strip(" °º") else ""
    return next(
        (suffix[:-1] + side for side in sides if (prefix, suffix[:-1] + side) in around), ""
    )


def _separated(
    counts: Mapping[str, int], numeral: Numeral, cores: Mapping[str, str]
) -> NumberReading | None:
    """Returns the reading with the thousands and decimal separators that explain most of the cores."""
    fits = {
        signs: sum(
            counts[text] for text, core in cores.items() if core_regex(*signs).fullmatch(core)
        )
        for signs in SEPARATORS
    }
    grouped = [
        sign for sign in ",." if fits["", sign, False] and _are_thousands(cores.values(), sign)
    ]
    for sign in grouped:
        # 1,234 beside 1234 has no decimals.
        fits.pop(("", sign, False))
    (thousands, decimal, pairs), rows = max(fits.items(), key=lambda item: item[1])
    if not rows:
        return None
    used = thousands and any(thousands in core for core in cores.values())
    numeral = replace(
        numeral, thousands=thousands if used else "", decimal=decimal, pairs=bool(used and pairs)
    )
    read = {text: numeral.read(text) for text in cores}
    # A numeral without signs takes any text.
    plain = {
        text: number
        for text, number in read.items()
        if number is not None and parse_number(number) is not None
    }
    if any(_has_leading_zero(number) for number in plain.values()):
        return None
    numeral = _with_decimals(numeral, plain)
    if numeral.thousands == "." and not numeral.least and not numeral.more:
        numeral = replace(numeral, decimal=",")
    elif not _has_point(plain) and not numeral.least and not numeral.thousands:
        numeral = replace(numeral, decimal=".")
    if numeral.decimal != "." and not numeral.least and not numeral.more and _has_point(plain):
        # The notation has no decimal sign without decimals.
        usual = _usual_decimals(plain, counts)
        numeral = replace(numeral, least=usual, more=not usual)
    marks = marks_among(counts, set(plain))
    if marks is None:
        return None
    question = _PARENTHESES if numeral.negative == ("(", ")") and not numeral.thousands else ""
    other = fits.get(("", thousands, False), 0) if thousands in (",", ".") and thousands else 0
    single = all(core.count(thousands) == 1 for core in cores.values()) if other else False
    if (other == rows and single) or thousands in grouped:
        question = f"1{thousands}234 may be a whole number or have three decimals; it is read as a whole number"
    return NumberReading(plain, numeral, marks, question)


def _has_point(plain: Mapping[str, str]) -> bool:
    """Returns whether a plain number has decimals."""
    return any("." in number for number in plain.values())


def _usual_decimals(plain: Mapping[str, str], counts: Mapping[str, int]) -> int:
    """Returns the decimals that most rows have."""
    rows = Counter[int]()
    for text, number in plain.items():
        rows[len(number.partition(".")[2])] += counts[text]
    return rows.most_common(1)[0][0]


def _are_thousands(cores: Collection[str], sign: str) -> bool:
    """Returns whether every ``sign`` is between thousands, beside numbers of four digits without it."""
    groups = re.compile(rf"(?!0){groups_regex(sign, pairs=False)}", re.ASCII)
    found = [core for core in cores if sign in core]
    large = any(core.isdecimal() and len(core) > 3 for core in cores)
    return bool(found) and large and all(map(groups.fullmatch, found))


def core_regex(thousands: str, decimal: str, pairs: bool) -> re.Pattern[str]:
    """Matches digits with these signs; with ``pairs`` groups before the last three digits have two."""
    groups = rf"(?!0){groups_regex(thousands, pairs=pairs)}|\d{{1,3}}" if thousands else r"\d+"
    return re.compile(rf"(?:{groups})(?:{re.escape(decimal)}\d+)?", re.ASCII)


def _is_core(core: str, thousands: str, decimal: str) -> bool:
    """Returns whether digits are a number with these signs."""
    return core_regex(thousands, decimal, pairs=False).fullmatch(core) is not None


def without_sign(before: str, behind: str) -> tuple[str, str]:
    """Returns the texts before and behind a number, without its sign."""
    if behind in _NO_CENTS:
        return before.removeprefix("-"), behind
    if before.endswith("(") and behind.startswith(")"):
        return before[:-1], behind[1:]
    if before.startswith("(") and behind.endswith(")"):
        return before[1:], behind[:-1]
    if before[:1] and before[0] in _MINUS + _PLUS:
        # A blank behind the sign is part of it.
        return before[1:].lstrip(), behind
    if before[-1:] and before[-1] in _MINUS:
        return before[:-1], behind
    if behind[-1:] and behind[-1] in _MINUS:
        return before, behind[:-1]
    return before, behind


def is_affix(prefix: str, suffix: str) -> bool:
    """Returns whether there is a currency before, and a currency, a unit or a per cent sign behind."""
    if (prefix, suffix) in _PERIODS:
        return True
    if prefix.strip() and prefix.strip() not in (*CURRENCIES, *_OTHER_PREFIXES):
        return False
    if suffix in _NO_CENTS:
        return True
    unit = suffix.strip()
    if len(suffix) > MOST_SUFFIX or any(sign in suffix for sign in "#0;,[]()+-:"):
        return False
    known = not unit or unit in CURRENCIES or unit[0] in "%‰"
    return known or bool(_UNIT.match(unit.removeprefix("/")))


def _has_leading_zero(plain: str) -> bool:
    return bool(re.match(r"[+-]?0\d", plain))
