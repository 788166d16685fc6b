"""The servers' clocks: how far each one is from this host's, and whose is off by the word of two of three.

Provides ``ClockReading``, one measurement, and ``Clocks``, what follows from the latest of both others. A server says
its time with its statement (`parties.service.peer_state`), which is asked for every second; half of the way there and
back is taken for the way back, so that a reading is right within that half. One server that says anything can make
itself look wrong and nobody else: the time that counts is the middle one of three. Public: everything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Self

OFF_S = 60.0
"""A clock that is farther than this from the middle one is off; certificates are made valid five minutes back."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Another clock is ``offset_s`` ahead of this host's (negative: behind), within ``within_s``."""

    offset_s: float
    within_s: float

    @classmethod
    def of(cls, said: float, *, asked_at: float, round_trip_s: float) -> Self:
        """``said`` came in answer to what was asked at ``asked_at`` by this host's clock."""
        half = round_trip_s / 2
        return cls(said - (asked_at + half), half)


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks that are ``off``, by server, in seconds ahead of the middle one; ``known`` is whether all are read.

    Where no two of three agree, no clock is off by this, and ``disagree`` says so.
    """

    own: int
    off: Mapping[int, float]
    known: bool
    disagree: bool = False

    @classmethod
    def of(cls, own: int, readings: Mapping[int, ClockReading | None]) -> Self:
        """From the latest readings of the others by server ``own``; None where there is no fresh one."""
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
        """How far this host's clock is off, if it is."""
        return self.off.get(self.own)


def offset_text(offset_s: float, within_s: float) -> str:
    """How far another server's clock is from this one's."""
    if abs(offset_s) <= max(1.0, within_s):
        return f"within {max(abs(offset_s), within_s):.1g} s of this one"
    return off_text(offset_s)


def off_text(seconds: float) -> str:
    """Such as "10 min 12 s behind"."""
    whole = round(abs(seconds))
    days, hours, minutes = whole // 86400, whole % 86400 // 3600, whole % 3600 // 60
    if days:
        text = f"{days} d {hours} h"
    elif hours:
        text = f"{hours} h {minutes} min"
    else:
        text = f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
    return f"{text} {'ahead' if seconds > 0 else 'behind'}"
