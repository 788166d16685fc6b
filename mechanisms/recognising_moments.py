"""Spellings of dates and times, recognised from a column's texts.

If days and months can be read in either order, one is chosen and ``question`` says so.

The texts are secret, at their owner; a question contains none of them. Limits: names of months in the languages of
`mechanisms.calendar_names`; patterns without zones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, product

from mechanisms.calendar_names import ENGLISH, NAMES, languages_of
from mechanisms.date_patterns import Pattern
from mechanisms.moments import Form, named_zone
from mechanisms.recognising import LONGEST_MARK, MOST_MARKS, marks_among

ENOUGH_ROWS = 10
"""Fewest rows in which digits alone are dates."""
PLAUSIBLE_YEARS = range(1900, 2101)
_SAMPLE = 500
"""Texts among which the usual shape of a column is looked for."""

_ZONES = (
    *("Europe/Berlin", "Europe/London", "Europe/Athens", "Europe/Lisbon"),
    *("America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles"),
    *("America/Halifax", "America/Anchorage", "Australia/Sydney", "Australia/Adelaide"),
    *("Pacific/Auckland", "America/Santiago", "Asia/Jerusalem", "Europe/Moscow"),
)
_ZONE_QUESTION = (
    "the offsets are those of {zone}, and of places that keep the same time; name yours in format"
)

_WORDS = re.compile(r"[^\W\d_]+\.?")
_NAMED = re.compile("%[bBaA]")
_RUNS = re.compile(r"[0-9]+|[^\W\d_]+")
_OFFSET = re.compile(r"[Zz]$|[+-]\d\d:?\d\d$")
_OFFSETS_NOTE = (
    "its times have several offsets from UTC, of no one place; they are read as moments in UTC, and so are times of "
    "day"
)

_TIME = re.compile(
    r"(.*?\d\D??)([T ,:]{1,2}|,? (?:at|um|kl\.|à|a las|às|alle|om|o|в) )(\d{1,2})(?::|(?P<sign>h))(\d\d)"
    r"(?::(\d\d)(\.\d{6})?)?( ?[AaPp][Mm])?( ?(?:GMT|UTC|Uhr|h|[+-]\d{4}))?",
    re.ASCII,
)
_SEPARATED = tuple(
    "".join((*parts[:1], sign, parts[1], sign, parts[2]))
    for sign in "./- "
    for parts in (
        ("%d", "%m", "%Y"),
        ("%m", "%d", "%Y"),
        ("%Y", "%m", "%d"),
        ("%d", "%m", "%y"),
        ("%m", "%d", "%y"),
        ("%d", "%b", "%Y"),
        ("%d", "%b", "%y"),
        ("%d", "%B", "%Y"),
        ("%b", "%d", "%Y"),
        ("%Y", "%b", "%d"),
    )
)
_DAYS = (
    *_SEPARATED,
    *("%y-%m-%d", "%d%b%Y", "%d%b%y", "%b %d, %Y", "%B %d, %Y", "%d. %B %Y", "%d. %b %Y"),
    *("%d. %b. %Y", "%d de %B de %Y", "%a %d %b %Y", "%a, %d %b %Y", "%a %b %d %Y", "%a %d %B %Y"),
    *("%A, %d %B %Y", "%A %d %B %Y", "%A, %B %d, %Y", "%A, %d. %B %Y", "%a, %d. %b %Y"),
    *(
        "%d. %m. %Y",
        "%d.%m.%Y.",
        "%Y. %m. %d.",
        "%Y.%m.%d.",
        "%d %B %Y г.",
        "%d.%m.%Y г.",
        "%G-W%V-%u",
        "%GW%V%u",
    ),
    *("%Y-%j", "%Y年%m月%d日(%a)", "%Y年%m月%d日（%a）", "%Y/%m/%d(%a)", "%m/%d/%Y(%a)"),
    *("%Y年%m月%d日", "%Y年 %m月 %d日", "%Y년 %m월 %d일", "%Y년%m월%d일"),
    *("%o %B %Y", "%o %b %Y", "%o of %B %Y", "%o of %B, %Y", "%B %o, %Y", "%b %o, %Y", "%B %o %Y"),
    *("%A, %B %o, %Y", "%A %o %B %Y", "%a %o %b %Y"),
    *(f"%a{sign} {date}" for sign in (",", "") for date in ("%d.%m.%Y", "%d/%m/%Y", "%Y-%m-%d")),
)
_STAMPS = (
    *("%Y%m%d_%H%M%S", "%Y%m%d-%H%M%S", "%Y%m%d_%H%M", "%Y-%m-%d_%H-%M-%S", "%Y-%m-%d %H.%M", "%d.%m.%Y %H.%M"),
    *("%Y年%m月%d日 %H時%M分", "%Y/%m/%d %H時%M分", "%H:%M %d.%m.%Y", "%H:%M:%S %d.%m.%Y", "%H:%M %d/%m/%Y"),
    *("%Y%m%dT%H%M%SZ", "%Y%m%dT%H%M%S", "%Y%m%dT%H%MZ", "%Y%m%dT%H%M"),
    *("%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S UTC %Y", "%a %b %d %H:%M:%S GMT %Y"),
    *("%d-%^b-%y %I.%M.%S.%f %p", "%d-%^b-%y %I.%M.%S %p", "%d-%b-%y %I.%M.%S %p"),
)  # fmt: skip
_PERIODS = (
    *("%Y年%m月", "%Y년 %m월"),
    *("%m/%Y", "%Y/%m", "%b %Y", "%b-%Y", "%b-%y", "%b %y", "%B %Y", "%b%Y", "%Y-%b", "%m-%Y"),
    *(
        "%Y-Q%q",
        "%YQ%q",
        "%Y Q%q",
        "Q%q %Y",
        "Q%q-%Y",
        "Q%q/%Y",
        "%q/%Y",
        "%GW%V",
        "%G W%V",
        "W%V %G",
    ),
    *("KW %V/%G", "KW%V/%G", "KW %V %G", "KW%V %G", "%G-KW%V", "%G KW%V", "%G/KW%V", "%V/%G"),
    *("CW%V/%G", "CW%V %G", "CW %V/%G", "W%V/%G", "%G/%V", "%Gw%V", "Week %V, %G", "Week %V %G"),
    *("%qQ%y", "%qQ%Y", "%q. Quartal %Y", "%q.Quartal %Y"),
    *("Q%q/%y", "Q%q %y", "T%q %Y", "T%q-%Y", "%Yq%q", "%YT%q", "%YM%m", "%Ym%m", "%Y-M%m"),
)
_DIGITS = {
    4: ("%y%m",),
    6: ("%Y%m", "%y%m%d", "%d%m%y", "%m%d%y", "%G%V"),
    7: ("%Y%j",),
    8: ("%d%m%Y", "%m%d%Y"),
    12: ("%Y%m%d%H%M",),
    14: ("%Y%m%d%H%M%S",),
}
ENOUGH_DIGITS = 20
"""Fewest different texts of digits that are dates with two digits for the year, or days of the year, or weeks."""
_WEEKS_OR_SEASONS = ("%G/%V", "%G/%-V")
LATEST_YEAR = 2040
"""Last year up to which dates with two digits for the year are read in the usual hundred years."""
_CENTURY_QUESTION = (
    "years of two digits are read so that none is after {latest}; the format has the first of the hundred years, and "
    "{usual} would be for 1969 to 2068"
)
_DAYS_OF_MONTHS = re.compile(r"%-?\^?[bB](?:\[[a-z]{2}\])?[ -]%y")


_OF_LETTERS = (
    *(("YYYY", "%Y"), ("MM-DD", "%m-%d"), ("MMDD", "%m%d"), ("-MM", "-%m"), ("HH", "%H")),
    *((":MM", ":%M"), ("SS", "%S"), ("ffffff", "%f")),
)
"""Letters of ISO 8601 with their directives."""


@dataclass(frozen=True, slots=True)
class MomentReading:
    """Texts that are moments in ``form``, and ``marks``. ``question`` states another possible meaning, or ""."""

    form: Form | Pattern
    moments: Mapping[str, datetime]
    marks: tuple[str, ...] = ()
    question: str = ""


def read_moments(counts: Mapping[str, int]) -> MomentReading | None:
    """Returns the spelling of a column's dates or times, None without one; ``counts`` has the rows of each text."""
    words = {text for text in counts if not re.search(r"[1-9]", text)}
    for others in _marks(counts, counts.keys() - words):
        values = {text: rows for text, rows in counts.items() if text not in others}
        found = _iso(values) or _patterned(values) or _common(values) or _wrapped(values)
        if found is not None:
            return MomentReading(found.form, found.moments, others, found.question)
    return None


def _marks(counts: Mapping[str, int], moments: set[str]) -> Iterator[tuple[str, ...]]:
    """Yields the texts that may be marks: none, those without the digits of ``moments``, those that are no moment."""
    yield ()
    for others in (marks_among(counts, moments), _no_moments(counts)):
        if others:
            yield others


def _no_moments(counts: Mapping[str, int]) -> tuple[str, ...] | None:
    """Returns the few texts, ``99.99.9999`` say, that are no moment in the form of most others; None without such."""
    sample = [*islice(counts, _SAMPLE)]
    usual = Counter(_RUNS.sub("0", text) for text in sample).most_common(1)[0][0]
    alike = sorted(text for text in sample if _RUNS.sub("0", text) == usual)
    found = dict[tuple[str, ...], int]()
    for text in dict.fromkeys((alike[0], alike[len(alike) // 2])):
        forms: list[Form | Pattern] = [*_iso_forms(text), *_patterns(text)]
        for form in forms:
            if others := marks_among(counts, counts.keys() - _unread(form, counts)):
                found[others] = sum(counts[other] for other in others)
    return min(found, key=found.__getitem__, default=None)


def _unread(form: Form | Pattern, counts: Mapping[str, int]) -> set[str]:
    """Returns the texts that are no moment in a form, or one more of them than there may be marks."""
    unread = (text for text in counts if _exact(form, {text: 1}) is None)
    return {*islice(unread, MOST_MARKS + 1)}


def _read(form: Form | Pattern, values: Mapping[str, int]) -> dict[str, datetime] | None:
    """Returns the moments of all texts, None if one of them is none."""
    moments = {}
    for text in values:
        moment = form.read(text, form.unit)
        if moment is None:
            return None
        moments[text] = moment
    return moments


def _exact(form: Form | Pattern, values: Mapping[str, int]) -> dict[str, datetime] | None:
    """Returns ``_read`` if writing each moment gives its text back, else None."""
    moments = _read(form, values)
    same = (
        form.writes if isinstance(form, Form) else lambda moment, text: form.write(moment) == text
    )
    if moments is None or not all(same(moment, text) for text, moment in moments.items()):
        return None
    return moments


def _are_plausible(
    form: Form | Pattern, moments: Mapping[str, datetime], values: Mapping[str, int]
) -> bool:
    """Returns whether digits alone are dates: only in many rows, and within plausible years."""
    if not all(text.isdecimal() for text in values):
        # 2019/20 is a season as well.
        return str(form) not in _WEEKS_OR_SEASONS or len(values) >= ENOUGH_DIGITS
    years = {moment.year for moment in moments.values()}
    if sum(values.values()) < ENOUGH_ROWS or not years <= set(PLAUSIBLE_YEARS):
        return False
    letters = form.letters if isinstance(form, Pattern) else ""
    if letters == "ym":
        # Four digits are many things: all months of some years are dates.
        months = {moment.month for moment in moments.values()}
        return len(months) == 12 and len(years) > 1 and max(years) - min(years) < len(years)
    few = len(values) < ENOUGH_DIGITS and ("y" in letters or "j" in letters or "V" in letters)
    return not few


def _in_century(
    pattern: Pattern, values: Mapping[str, int], moments: dict[str, datetime]
) -> tuple[Pattern, Mapping[str, datetime], str]:
    """Returns a pattern whose years of two digits are not far in the future, with its moments and what to ask."""
    years = sorted({moment.year % 100 for moment in moments.values()})
    if pattern.years_from is None or max(m.year for m in moments.values()) <= LATEST_YEAR:
        return pattern, moments, ""
    # They begin behind the longest run of years that do not occur.
    gaps = [
        (after - before) % 100 or 100
        for before, after in zip([years[-1], *years[:-1]], years, strict=True)
    ]
    first = 1900 + years[gaps.index(max(gaps))]
    other = pattern.with_years_from(first)
    read = _exact(other, values) if max(gaps) > 1 else None
    if read is None or max(moment.year for moment in read.values()) > LATEST_YEAR:
        return pattern, moments, "years of two digits are read as 1969 to 2068"
    return other, read, _CENTURY_QUESTION.format(latest=LATEST_YEAR, usual=pattern)


def _iso(values: Mapping[str, int]) -> MomentReading | None:
    """Returns the ISO form in which all texts are written."""
    for form in _iso_forms(next(iter(values))):
        moments = _exact(form, values)
        if moments is not None:
            return MomentReading(form, moments) if _are_plausible(form, moments, values) else None
    if all(text.isdecimal() for text in values):
        return None
    for form in _zoned_forms(values):
        moments = _exact(form, values)
        if moments is not None:
            return MomentReading(form, moments, (), _ZONE_QUESTION.format(zone=form.zone[1:-1]))
    return None


def _common(values: Mapping[str, int]) -> MomentReading | None:
    """Returns the ISO form that can be read from all texts, though some are written in another one."""
    if all(text.isdecimal() for text in values):
        return None
    common = _common_form(list(values))
    moments = _read(common, values) if common else None
    if not common or not moments:
        return None
    # Offsets of a place that keeps none of the known times would be lost without a word.
    offsets = (
        {found[0] for text in values if (found := _OFFSET.search(text))} if common.zone else set()
    )
    return MomentReading(common, moments, (), _OFFSETS_NOTE if len(offsets) > 1 else "")


def _zoned_forms(values: Mapping[str, int]) -> list[Form]:
    """Returns forms with named zones, for moments with the offsets of summer and of winter."""
    offsets = {text[-6:] for text in values}
    first = _iso_forms(next(iter(values)))
    if len(offsets) != 2 or not first or not first[0].zone:
        return []
    return [replace(first[0], zone=f"[{name}]") for name in _ZONES if named_zone(f"[{name}]")]


def _iso_forms(value: str) -> list[Form]:
    """Returns the forms that a first value may have."""
    if len(value) < 11:
        dates = ("YYYY-MM-DD", "YYYYMMDD", "YYYY-MM", "YYYY-Www")
        return [Form(date) for date in dates if len(date) == len(value)]
    found = re.fullmatch(r"(\d{4}(-?)\d\d-?\d\d)([T ])([\d:.]+)(Z|[+-]\d\d:?\d\d)?", value)
    if found is None:
        return []
    date = "YYYY-MM-DD" if found[2] else "YYYYMMDD"
    times = ("HH", "HH:MM", "HH:MM:SS", *(f"HH:MM:SS.{'f' * n}" for n in (3, 6, 7, 9)))
    return [
        Form(date, found[3], time, found[5] or "") for time in times if len(time) == len(found[4])
    ]


def _common_form(values: Sequence[str]) -> Form | None:
    """Returns the usual form, for moments written in several ways: in UTC if they have zones."""
    for text in ("YYYY-MM-DD", "YYYY-MM-DDTHH:MM:SS.ffffff", "YYYY-MM-DDTHH:MM:SS.ffffffZ"):
        form = Form.parse(text)
        read = (
            [form.read(value, "microsecond" if form.time else "day") for value in values]
            if form
            else []
        )
        if form and all(read):
            fine = any(moment is not None and moment.microsecond for moment in read)
            return form if fine or not form.time else Form(form.date, "T", "HH:MM:SS", form.zone)
    return None


def _patterned(values: Mapping[str, int]) -> MomentReading | None:
    """Returns the pattern that all texts are written in; of two orders of day and month the first, with a question."""
    first = next(iter(values))
    found: list[MomentReading] = []
    for pattern in _patterns(first):
        if found and found[0].form.unit != pattern.unit:
            continue
        moments = _exact(pattern, values)
        if moments is None or not _are_plausible(pattern, moments, values):
            continue
        if not any(moments == other.moments for other in found):
            found.append(MomentReading(pattern, moments))
    if not found:
        return None
    chosen = found[0]
    if isinstance(chosen.form, Pattern):
        form, read, said = _in_century(chosen.form, values, dict(chosen.moments))
        if not said:
            said = _what_else(form, read)
        if said:
            return MomentReading(form, read, (), said)
    others = ", ".join(str(other.form) for other in found[1:])
    question = (
        f"days, months and years can be read in more than one order; they are read as {chosen.form}, and {others}"
        " would fit as well"
    )
    return MomentReading(chosen.form, chosen.moments, (), question if others else "")


def _what_else(form: Pattern, moments: Mapping[str, datetime]) -> str:
    """Returns what else texts may be that are read as dates; "" if they are nothing else."""
    years = {moment.year % 100 for moment in moments.values()}
    if _DAYS_OF_MONTHS.fullmatch(str(form)) and len(years) >= ENOUGH_DIGITS and max(years) <= 31:
        return f"they may be days of months; they are read as months of years, {form}"
    short = re.sub(r"%-?\w|\[\d+\]", "", str(form)) == "" and not {"Y"} & set(form.letters)
    if short:
        return f"they may be numbers; since each is a date, they are read as {form}"
    return ""


def _wrapped(values: Mapping[str, int]) -> MomentReading | None:
    """Returns the pattern of dates with the same text before, or behind, all of them."""
    texts = [*values]
    before, behind = (_apart(_common_start(each)) for each in (texts, [t[::-1] for t in texts]))
    inner = {text[len(before) : len(text) - len(behind)]: n for text, n in values.items()}
    if (
        not 0 < max(len(before), len(behind)) <= LONGEST_MARK
        or "" in inner
        or len(inner) < len(values)
    ):
        return None
    found = None if all(text.isdecimal() for text in inner) else _iso(inner) or _patterned(inner)
    if found is None or found.form.zone:
        return None
    plain = str(found.form)
    if isinstance(found.form, Form):
        for letters, directive in _OF_LETTERS:
            plain = plain.replace(letters, directive)
    around = (before.replace("%", "%%"), behind[::-1].replace("%", "%%"))
    pattern = Pattern.parse(plain.join(around))
    moments = _exact(pattern, values) if pattern else None
    return None if moments is None or not pattern else MomentReading(pattern, moments)


def _common_start(texts: Sequence[str]) -> str:
    """Returns what all texts begin with."""
    first, last = min(texts), max(texts)
    return next((first[:i] for i, sign in enumerate(first) if last[i : i + 1] != sign), first)


def _apart(start: str) -> str:
    """Returns the start of texts up to its first digit, without the beginning of a word that may differ."""
    found = re.match(r"\D*", start)
    words = found[0] if found else ""
    return words if words != start else re.sub(r"[^\W\d_]+$", "", words)


def _patterns(value: str) -> Iterator[Pattern]:
    """Yields the patterns that a value may be written in."""
    dates: Sequence[str] = (*_DAYS, *_PERIODS, *_STAMPS)
    times = [""]
    if value.isdecimal():
        dates = _DIGITS.get(len(value), ())
    elif found := _TIME.fullmatch(value):
        stamps = [stamp for stamp in _STAMPS if (p := Pattern.parse(stamp)) and p.matches(value)]
        yield from filter(None, map(Pattern.parse, stamps))
        value, dates = found[1], _DAYS
        times = list(_times(found))
    languages = tuple(
        dict.fromkeys(lang for word in _WORDS.findall(value) for lang in languages_of(word))
    )
    for date in dates:
        for flagged, time in product(_flagged(date, languages), times):
            pattern = Pattern.parse(flagged + time)
            plain = Pattern.parse(flagged)
            if pattern and plain and plain.matches(value):
                yield pattern


def _times(found: re.Match[str]) -> Iterator[str]:
    """Yields the patterns of the time behind a date, for hours with and without a leading zero."""
    _, between, _, sign, _, seconds, fraction, twelve, behind = found.groups()
    if twelve and twelve != twelve.upper():
        return
    letter = "I" if twelve else "H"
    rest = f"{sign or ':'}%M" + (":%S" if seconds else "") + (".%f" if fraction else "")
    rest += twelve[:-2] + "%p" if twelve else ""
    rest += behind or ""
    for flag in ("", "-"):
        yield f"{between}%{flag}{letter}{rest}"


def _flagged(date: str, languages: Sequence[str]) -> Iterator[str]:
    """Yields the pattern with and without leading zeros, in each language, and with names of months in capitals."""
    named = _NAMED.search(date) is not None
    for language in languages if named else (ENGLISH,):
        spoken = date if language == ENGLISH else _NAMED.sub(rf"\g<0>[{language}]", date)
        yield spoken
        if "%b" in date and any(name[-1] == "." for name in NAMES["b"][language]):
            yield spoken.replace("%b", "%-b")
        unpadded = re.sub("%([dmV])", r"%-\1", spoken)
        if unpadded != spoken:
            yield unpadded
        if "%b" in date:
            yield spoken.replace("%b", "%^b")
            if "%d" in date:
                yield unpadded.replace("%b", "%^b")
