"""Spellings of numbers, recognised from a column's texts: signs, decimals, durations, marks among them.

Ambiguous texts are read in one way, and ``question`` states the other.

The texts are secret, at their owner; a question contains none of them except a mark. Limits: rules of thumb, all in the
constants.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from mechanisms.spelling import THOUSANDS, Clock, Numeral, Spelling
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
)
"""Signs before an amount; other letters before digits make a code."""

_CODE = re.compile(r"[A-Za-z]{1,3}\d{1,4}(?:[.-]?[0-9A-Za-z]{1,4})?", re.ASCII)
_AFFIXED = re.compile(rf"([^\d]*?)(\d(?:[\d{THOUSANDS}]*\d)?)([^\d]*)", re.ASCII)
_MINUS = "-\u2212"
_PLUS = "+"
_DURATION = re.compile(r"(\d+)( ?)([A-Za-z]+)([ ,]*)", re.ASCII)
_OF_TWELVE = re.compile(r"(\d{1,2}):\d{2}(:\d{2})?( ?)([AP]M|[ap]m)", re.ASCII)
_ISO_DURATION = re.compile(
    r"-?P(?:(?P<D>\d+)D)?(?P<T>T)?(?:(?P<H>\d+)H)?(?:(?P<M>\d+)M)?(?:(?P<S>\d+)S)?", re.ASCII
)
_CLOCK = re.compile(r"-?(?:(\d+)( ?d(?:ays?)?,? ))?(\d+):(\d\d)(:\d\d)?", re.ASCII)
_UNIT_WORDS = {
    "D": ("d", "day"),
    "H": ("h", "hr", "hour"),
    "M": ("m", "min", "minute"),
    "S": ("s", "sec", "second"),
}
_SEPARATORS = (
    ("", "."),
    (",", "."),
    (".", ","),
    ("", ","),
    *((sign, decimal) for sign in THOUSANDS[2:] for decimal in ".,"),
)


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
    counts: Mapping[str, int], *, dotted_thousands: bool = False
) -> NumberReading | None:
    """Returns the spelling of a column's numbers, None if its texts are none; ``counts`` are the rows of each.

    ``dotted_thousands`` decides, if nothing else does, that ``1.234`` is a whole number in the table.
    """
    found = _bare(counts, dotted_thousands=dotted_thousands)
    if found is None and len(counts) > LEAST_VALUES:
        found = _clock(counts) or _affixed(counts)
    if found is None or any(_has_leading_zero(plain) for plain in found.plain.values()):
        return None
    return found


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
    return all(map(str.isdecimal, counts)) and len(set(map(len, counts))) == 1


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
        if dotted_thousands:
            numeral = Numeral(thousands=".", decimal=",")
            plain = {text: text.replace(".", "") for text in plain}
            return NumberReading(plain, numeral, marks, question + "a whole number")
        question += 'a number with three decimals (format = "#.##0" for whole numbers)'
    return NumberReading(plain, _with_decimals(Numeral(), plain), marks, question)


def _may_be_thousands(plain: Mapping[str, str]) -> bool:
    """Returns whether every number is written like ``1.234``, as whole numbers in thousands are."""
    return all(re.fullmatch(r"[+-]?[1-9]\d{0,2}\.\d{3}", text) for text in plain)


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
        return replace(numeral, least=max(places)) if whole or not numeral.bare else numeral
    dropped = all(
        decimals_of(text) is not None and not text.endswith("0")
        for text in plain.values()
        if "." in text and len(text.partition(".")[2]) > min(places)
    )
    return (
        replace(numeral, least=min(places), more=True) if dropped and min(places) < 2 else numeral
    )


def _clock(counts: Mapping[str, int]) -> NumberReading | None:
    for pattern in (_colons(counts), _halves(counts), _iso_durations(counts), _unit_words(counts)):
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
    """Returns the pattern of texts such as ``03:56`` and ``0 days 03:56:00``; "" if there are none."""
    found = Counter[str]()
    unpadded = False
    for text, rows in counts.items():
        if match := _CLOCK.fullmatch(text):
            days = f"%-D{match[2]}" if match[1] else ""
            found[f"{days}%H:%M{':%S' if match[5] else ''}"] += rows
            unpadded = unpadded or len(match[3]) == 1
    commonest = found.most_common(1)[0][0] if found else ""
    return commonest.replace("%H", "%-H") if unpadded else commonest


def _halves(counts: Mapping[str, int]) -> str:
    """Returns the pattern of times of day such as ``9:05 PM``; "" if there are none."""
    found = Counter[str]()
    unpadded = False
    for text, rows in counts.items():
        if match := _OF_TWELVE.fullmatch(text):
            hour, seconds, gap, half = match.groups()
            found[f"%I:%M{':%S' if seconds else ''}{gap}{'%p' if half.isupper() else '%P'}"] += rows
            unpadded = unpadded or len(hour) == 1
    commonest = found.most_common(1)[0][0] if found else ""
    return commonest.replace("%I", "%-I") if unpadded else commonest


def _iso_durations(counts: Mapping[str, int]) -> str:
    """Returns the pattern of ISO 8601 durations such as ``PT2H5M``, optional units in brackets; "" if none."""
    matches = [found for text in counts if (found := _ISO_DURATION.fullmatch(text))]
    units = [unit for unit in "DHMS" if any(found[unit] for found in matches)]
    if not matches or not any(found["T"] for found in matches):
        return ""
    written = ""
    for unit in units:
        part = f"%-{unit}{unit}"
        part = part if all(found[unit] for found in matches) else f"[{part}]"
        written += part + ("T" if unit == "D" else "")
    return f"P{'' if 'D' in units else 'T'}{written}"


def _unit_words(counts: Mapping[str, int]) -> str:
    """Returns the pattern of texts such as ``2h 5m``, with optional units in brackets; "" if there is none."""
    parts: dict[str, Counter[tuple[str, str]]] = {}
    texts, gap = 0, Counter[str]()
    present = Counter[str]()
    for text in counts:
        pieces = _DURATION.findall(text)
        if not pieces or "".join(map("".join, pieces)) != text:
            continue
        texts += 1
        for _, blank, word, behind in pieces:
            unit = _unit_of(word)
            if not unit:
                return ""
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
        part = f"%-{unit}{blank}{word}" + (between if unit != order[-1] else "")
        written.append(f"[{part}]" if present[unit] < texts else part)
    return "".join(written)


def _unit_of(word: str) -> str:
    singular = word.lower()
    for unit, words in _UNIT_WORDS.items():
        if singular in words or (singular.endswith("s") and singular[:-1] in words[1:]):
            return unit
    return ""


def _affixed(counts: Mapping[str, int]) -> NumberReading | None:
    """Reads numbers with a currency, a unit, a per cent sign, thousands separators, parentheses for a minus."""
    split = {text: found.groups() for text in counts if (found := _AFFIXED.fullmatch(text))}
    around, below = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for text, (before, _, behind) in split.items():
        around[_without_sign(before, behind)] += counts[text]
    if not around:
        return None
    (prefix, suffix), _ = around.most_common(1)[0]
    if not _is_affix(prefix, suffix):
        return None
    cores = {}
    for text, (before, core, behind) in split.items():
        if _without_sign(before, behind) == (prefix, suffix):
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


def _separated(
    counts: Mapping[str, int], numeral: Numeral, cores: Mapping[str, str]
) -> NumberReading | None:
    """Returns the reading with the thousands and decimal separators that explain most of the cores."""
    fits = {
        pair: sum(
            counts[text] for text, core in cores.items() if _core_regex(*pair).fullmatch(core)
        )
        for pair in _SEPARATORS
    }
    (thousands, decimal), rows = max(fits.items(), key=lambda item: item[1])
    if not rows:
        return None
    used = thousands and any(thousands in core for core in cores.values())
    numeral = replace(numeral, thousands=thousands if used else "", decimal=decimal)
    read = {text: numeral.read(text) for text in cores}
    plain = {text: number for text, number in read.items() if number is not None}
    if any(_has_leading_zero(number) for number in plain.values()):
        return None
    numeral = _with_decimals(numeral, plain)
    if numeral.thousands == "." and not numeral.least and not numeral.more:
        numeral = replace(numeral, decimal=",")
    elif not numeral.least and not numeral.more and not numeral.thousands:
        numeral = replace(numeral, decimal=".")
    marks = marks_among(counts, set(plain))
    if marks is None:
        return None
    question = ""
    other = fits.get(("", thousands), 0) if thousands in (",", ".") and thousands else 0
    single = all(core.count(thousands) == 1 for core in cores.values()) if other else False
    if other == rows and single:
        question = f"1{thousands}234 may be a whole number or have three decimals; it is read as a whole number"
    return NumberReading(plain, numeral, marks, question)


def _core_regex(thousands: str, decimal: str) -> re.Pattern[str]:
    groups = rf"[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+|\d{{1,3}}" if thousands else r"\d+"
    return re.compile(rf"(?:{groups})(?:{re.escape(decimal)}\d+)?", re.ASCII)


def _without_sign(before: str, behind: str) -> tuple[str, str]:
    """Returns the texts before and behind a number, without its sign."""
    if before.endswith("(") and behind.startswith(")"):
        return before[:-1], behind[1:]
    if before.startswith("(") and behind.endswith(")"):
        return before[1:], behind[:-1]
    if before[:1] and before[0] in _MINUS + _PLUS:
        return before[1:], behind
    if before[-1:] and before[-1] in _MINUS:
        return before[:-1], behind
    if behind[-1:] and behind[-1] in _MINUS:
        return before, behind[:-1]
    return before, behind


def _is_affix(prefix: str, suffix: str) -> bool:
    """Returns whether there is a currency before, and a currency, a unit or a per cent sign behind."""
    if prefix.strip() and prefix.strip() not in CURRENCIES:
        return False
    unit = suffix.strip()
    if len(suffix) > MOST_SUFFIX or any(sign in suffix for sign in "#0;,[]()+-:"):
        return False
    return (
        not unit or unit in CURRENCIES or unit in ("%", "‰") or bool(re.match(r"[^\W_]|°|µ", unit))
    )


def _has_leading_zero(plain: str) -> bool:
    return bool(re.match(r"[+-]?0\d", plain))
