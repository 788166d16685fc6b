"""Dates and times of day as tables write them (ISO 8601), and as whole numbers of a unit.

A ``Form`` is written as an example in letters: ``YYYY-MM-DD``, ``YYYY-MM``, ``YYYY-Www``,
``YYYY-MM-DDTHH:MM:SS+01:00``. Behind the sixth decimal of a second, of seven or nine, zeros are written.

Time zones: a form without one is local time of the table's origin, and accepts no value with a zone. A form that ends
in ``Z`` or an offset accepts values with any offset, and only such, and converts them to its own. A form that ends in a
name, ``YYYY-MM-DDTHH:MM:SS[Europe/Berlin]``, has the time of day of that place, and writes the offset of its clocks at
that time; the two passes of an hour that clocks show twice are one. Other spellings than ISO 8601 are in
`mechanisms.date_patterns`.

The functions are public. The values that they read are secret, at their owner. Limits: years 1 to 9999 of the Gregorian
calendar, no leap seconds, microseconds at most. Offsets come from the machine's time zone database, which changes for
the future now and then.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from mechanisms.cells import equal_starts

UNITS = (
    *("microsecond", "millisecond", "second", "minute", "hour"),
    *("day", "week", "month", "quarter", "year"),
)
"""Units, from the finest to the coarsest."""
DEFAULT_FORMS = {"date": "YYYY-MM-DD", "datetime": "YYYY-MM-DDTHH:MM:SS"}
DATE_MARKS = (
    *((1, 1, 1), (1753, 1, 1), (1800, 1, 1), (1899, 12, 30), (1899, 12, 31), (1900, 1, 1)),
    *((1970, 1, 1), (2099, 12, 31), (2100, 1, 1), (2999, 12, 31), (9999, 12, 31)),
)
"""Year, month and day of dates that mark a missing date."""
NEAR_YEARS = (1900, 2100)
"""Years between which fine cells are equal; before and after they are centuries."""

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_DATES = {"YYYY-MM-DD": "day", "YYYYMMDD": "day", "YYYY-Www": "week", "YYYY-MM": "month"}
_TIMES = {
    "HH": "hour",
    "HH:MM": "minute",
    "HH:MM:SS": "second",
    "HH:MM:SS.fff": "millisecond",
    "HH:MM:SS.ffffff": "microsecond",
    "HH:MM:SS.fffffff": "microsecond",
    "HH:MM:SS.fffffffff": "microsecond",
}
_FRACTION = re.compile(r"(\.\d{6})\d+")
_FORM = re.compile(
    r"(YYYY-MM-DD|YYYYMMDD|YYYY-Www|YYYY-MM)"
    r"(?:([T ])(HH(?::MM(?::SS(?:\.f{3}|\.f{6,7}|\.f{9})?)?)?)(Z|[+-]\d\d:?\d\d|\[[A-Za-z_/+-]+\])?)?"
)
_WHOLE_DAY = re.compile(r"\d{4}-?\d\d-?\d\d|\d{4}-?W\d\d-?\d")
_WITH_TIME = re.compile(
    rf"({_WHOLE_DAY.pattern})[Tt ](\d\d(?:[:\d.,]*\d)?)([Zz]|[+-]\d\d(?::?\d\d)?)?"
)
_FIRST = datetime(1, 1, 1)
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Form:
    """The form of moments: a date, and for times of day ``separator``, ``time`` and ``zone`` ("" for none)."""

    date: str
    separator: str = ""
    time: str = ""
    zone: str = ""

    @classmethod
    def parse(cls, text: str) -> Form | None:
        """Parses a form written in letters; returns None if it is unknown."""
        found = _FORM.fullmatch(text)
        if found is None or (found[3] and found[1] not in ("YYYY-MM-DD", "YYYYMMDD")):
            return None
        form = cls(*(part or "" for part in found.groups()))
        if form.zone.startswith("["):
            return form if named_zone(form.zone) else None
        hours, minutes = (int(n) for n in (form.zone[1:3] or 0, form.zone[-2:].strip("Z") or 0))
        return form if hours < 24 and minutes < 60 else None

    def __str__(self) -> str:
        return f"{self.date}{self.separator}{self.time}{self.zone}"

    @property
    def unit(self) -> str:
        """Finest unit that the form states."""
        return _TIMES[self.time] if self.time else _DATES[self.date]

    def read(self, text: str, unit: str) -> datetime | None:
        """Returns the moment that ``text`` states, in the form's zone; None if it is invalid or coarser than ``unit``.

        Any ISO 8601 spelling of at least ``unit`` is accepted; a date column takes a midnight for its day.
        """
        text = text.strip()
        try:
            return self._read(text, unit) if text.isascii() else None
        except (ValueError, OverflowError):
            return None

    def write(self, moment: datetime) -> str:
        """Returns a moment of the form's zone in the form."""
        iso = moment.isoformat(timespec="microseconds")
        day, time = iso.split("T")
        written = {
            "YYYY-MM-DD": day,
            "YYYYMMDD": day.replace("-", ""),
            "YYYY-MM": day[:7],
            "YYYY-Www": "{}-W{:02d}".format(*_week(moment)),
        }[self.date]
        time = time[: len(self.time)].ljust(len(self.time), "0")
        return f"{written}{self.separator}{time}{self._written_zone(moment)}"

    def writes(self, moment: datetime, text: str) -> bool:
        """Returns whether a moment is written as ``text``, but for decimals behind the sixth."""
        exact = _FRACTION.sub(lambda found: found[1].ljust(len(found[0]), "0"), text)
        return self.write(moment) == exact

    def _written_zone(self, moment: datetime) -> str:
        zone = named_zone(self.zone)
        if zone is None:
            return self.zone
        minutes = round((zone.utcoffset(moment) or timedelta()) / timedelta(minutes=1))
        return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"

    def _read(self, text: str, unit: str) -> datetime | None:
        if UNITS.index(unit) >= UNITS.index("month") and re.fullmatch(r"\d{4}-\d\d", text):
            text += "-01"
        if unit == "year" and re.fullmatch(r"\d{4}", text):
            text += "-01-01"
        if unit == "week" and re.fullmatch(r"\d{4}-?W\d\d", text):
            text += "-1" if "-" in text else "1"
        day_only = _WHOLE_DAY.fullmatch(text)
        if not day_only and not _WITH_TIME.fullmatch(text):
            return None
        moment = datetime.fromisoformat(text.upper())
        if not self.time:
            midnight = moment.tzinfo is None and moment == moment.replace(
                hour=0, minute=0, second=0, microsecond=0
            )
            return moment if midnight else None
        if day_only:
            return moment if not self.zone and UNITS.index(unit) >= UNITS.index("day") else None
        if (moment.tzinfo is None) != (not self.zone):
            return None
        if zone := named_zone(self.zone):
            # An hour that clocks leave out stays as written: every time of day comes back as it is.
            wall = moment.replace(tzinfo=None)
            if zone.utcoffset(wall) != moment.utcoffset():
                wall = moment.astimezone(zone).replace(tzinfo=None, fold=0)
            return wall
        return moment.astimezone(self._offset()).replace(tzinfo=None) if self.zone else moment

    def _offset(self) -> timezone:
        if self.zone == "Z":
            return UTC
        offset = timedelta(hours=int(self.zone[1:3]), minutes=int(self.zone[-2:]))
        return timezone(-offset if self.zone[0] == "-" else offset)


@lru_cache(512)
def named_zone(text: str) -> ZoneInfo | None:
    """Returns the zone named in brackets in ``text``; None for other texts and unknown names."""
    if not text.startswith("["):
        return None
    try:
        return ZoneInfo(text[1:-1])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def calendar_starts(unit: str, low: int, high: int, cells: int) -> list[int]:
    """Returns the starts of at most ``cells`` fine cells of the units low .. high.

    The cells are centuries, and equal ones within ``NEAR_YEARS``. Dates that mark a missing date (``DATE_MARKS``) have
    cells of their own. If that leaves no room, all cells are equal.
    """
    marks = {tick_of(datetime(*day), unit) for day in DATE_MARKS}
    apart = {start for mark in marks for start in (mark, mark + 1)}
    apart |= {tick_of(datetime(year, 1, 1), unit) for year in range(1, 9999, 100)}
    near = [tick_of(datetime(year, 1, 1), unit) for year in NEAR_YEARS]
    apart = {start for start in {*apart, *near, low, low + 1, high} if low <= start <= high}
    first, end = max(low, near[0]), min(high + 1, near[1])
    left = cells - len(apart)
    if left < 1 or end <= first:
        return equal_starts(low, high - low + 1, cells)
    return sorted({*apart, *equal_starts(first, end - first, left)})


def tick_of(moment: datetime, unit: str) -> int:
    """Returns the number, since the year 1, of the unit that the moment lies in; weeks begin on Mondays."""
    if unit in _MICROSECONDS:
        return (moment - _FIRST) // _TICK // _MICROSECONDS[unit]
    if unit == "day":
        return moment.toordinal()
    if unit == "week":
        return (moment.toordinal() - 1) // 7
    months = moment.year * 12 + moment.month - 1
    return months // _MONTHS[unit]


def moment_of(tick: int, unit: str) -> datetime:
    """Returns the beginning of a unit: the earliest moment for which ``tick_of`` gives this tick."""
    if unit in _MICROSECONDS:
        return _FIRST + tick * _MICROSECONDS[unit] * _TICK
    if unit == "day":
        return datetime.fromordinal(tick)
    if unit == "week":
        return datetime.fromordinal(tick * 7 + 1)
    year, month = divmod(tick * _MONTHS[unit], 12)
    return datetime(year, month + 1, 1)


def roundest_tick(unit: str, low: int, high: int) -> int:
    """Returns the first tick of ``unit`` from ``low`` to ``high`` that begins the coarsest larger unit."""
    least, most = tick_of(datetime.min, unit), tick_of(datetime.max, unit)
    low, high = max(low, least), min(high, most)
    for coarser in reversed(UNITS[UNITS.index(unit) + 1 :]):
        if coarser == "week":
            continue
        first = tick_of(moment_of(tick_of(moment_of(low, unit), coarser), coarser), unit)
        if first < low:
            with contextlib.suppress(ValueError, OverflowError):
                following = tick_of(moment_of(low, unit), coarser) + 1
                first = tick_of(moment_of(following, coarser), unit)
        if low <= first <= high:
            return first
    return low


def _week(moment: date) -> tuple[str, int]:
    calendar = moment.isocalendar()
    return f"{calendar.year:04d}", calendar.week
