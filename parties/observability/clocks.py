"""Clock offsets between the servers, and detection of a clock that is off by a majority of three.

``ClockReading`` is one measurement, and ``Clocks`` the conclusion from the latest of both others. A server's state has
its time (`parties.service.peer_state`) and is requested every second; the answer's delay is estimated as half of the
round trip, so that a reading is right within that half. A faulty server can make only itself look wrong: the reference
is the median of three. All values here are public.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Self

OFF_S = 60.0
"""Minimum offset from the median of a clock that is off, in seconds; certificates are backdated by five minutes."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Offset of another clock from this host's in seconds (positive: ahead), right within ``within_s``."""

    offset_s: float
    within_s: float

    @classmethod
    def of(cls, said: float, *, asked_at: float, round_trip_s: float) -> Self:
        """Returns the reading from a time ``said`` in answer to a request sent at ``asked_at`` by this host's clock."""
        half = round_trip_s / 2
        return cls(said - (asked_at + half), half)


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks that are ``off``, by server, in seconds ahead of the median; ``known`` is true if all are read.

    If no two of three agree, no clock counts as off, and ``disagree`` is true.
    """

    own: int
    off: Mapping[int, float]
    known: bool
    disagree: bool = False

    @classmethod
    def of(cls, own: int, readings: Mapping[int, ClockReading | None]) -> Self:
        """Returns the conclusion from the latest readings of the others at server ``own``; None for a missing one."""
        found = {pid: reading.offset_s for pid, reading in readings.items() if reading is not None}
        if len(found) < len(readings) or len(found) != 2:
            return cls(own, {}, known=False)
        times = {own: 0.0, **found}
        middle = median(times.values())
        off = {pid: at - middle for pid, at in times.items() if abs(at - middle) > OFF_S}
        if len(off) > 1:
            return cls(own, {}, known=False, disagree=True)
        return cls(own, off, known=True)

    @property
    def own_off_s(self) -> float | None:
        """Offset of this host's clock from the median in seconds, None if it is not off."""
        return self.off.get(self.own)


def offset_text(offset_s: float, within_s: float) -> str:
    """Returns the offset of another server's clock from this one's in words."""
    if abs(offset_s) <= max(1.0, within_s):
        return f"within {max(abs(offset_s), within_s):.1g} s of this one"
    return off_text(offset_s)


def off_text(seconds: float) -> str:
    """Returns an offset in words, such as "10 min 12 s behind"."""
    whole = round(abs(seconds))
    days, hours, minutes = whole // 86400, whole % 86400 // 3600, whole % 3600 // 60
    if days:
        text = f"{days} d {hours} h"
    elif hours:
        text = f"{hours} h {minutes} min"
    else:
        text = f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
    return f"{text} {'ahead' if seconds > 0 else 'behind'}"
