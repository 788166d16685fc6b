"""Which data owners may take part, and when: who is turned away at the door, and why.

Provides ``Enrollment``, which a server asks of every owner that it does not have yet, ``check_enrolled``, which an
owner's own program asks before anything is charged or sent, ``enrollment_wait_s`` and ``close_enrollment``. An owner is
turned away that the configuration does not name, that this server's operator has revoked, before the configuration's
opening date, after its closing date, and once the operators have closed the run. Who is there already stays, unless
revoked.

The list and the dates are part of what everybody agrees on: an owner signs their digest with its data, and no server
can add an owner unseen. A revocation comes later, and is an order of the operators
(`parties.session.operator_commands`): each server turns a revoked owner away on its own operator's word, as it could
anyway, and what the owner has sent is taken out of the count where all three operators say so. Public: all of it.
"""

import datetime
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from parties.config import ClientsSection, Config
from parties.foundation.errors import NotEnrolled
from parties.session.operator_commands import OperatorCommands
from parties.storage.database import Database

_CLOSED = "enrolment_closed"
_LONGEST_S = 1e9
"""Later than anybody waits, and a date that there is."""
_AT = "%Y-%m-%d %H:%M:%S UTC"


class EnrollmentRefusalReason(enum.StrEnum):
    """Why; programs go by these words."""

    NOT_LISTED = "not-listed"
    REVOKED = "revoked"
    NOT_OPEN = "not-open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class EnrollmentRefusal:
    """That an owner is turned away: the ``reason``, in words what is wrong, and what would be right."""

    reason: EnrollmentRefusalReason
    what: str
    expected: str


def utc_now() -> datetime.datetime:
    """By this host's clock."""
    return datetime.datetime.now(datetime.UTC)


def seconds_until(time: datetime.datetime) -> float:
    """From now on, by this host's clock; 0 where it is over."""
    return max(0.0, (time - utc_now()).total_seconds())


def enrollment_wait_s(clients: ClientsSection) -> float:
    """How long owners are waited for at the most, from now on: until the closing, or for wait_s from the opening."""
    if clients.closing is not None:
        return seconds_until(clients.closing)
    return clients.wait_s + (0.0 if clients.opening is None else seconds_until(clients.opening))


def deadline_text(left_s: float) -> str:
    """When so many seconds are over, to the minute: the same words for as long as they pass."""
    ends = utc_now() + datetime.timedelta(seconds=min(left_s, _LONGEST_S))
    return f"{ends:%Y-%m-%d %H:%M} UTC"


def close_enrollment(database: Database) -> None:
    """Take no further owner, as the operators ask; durable on return. Raises StoreError."""
    if database.meta(_CLOSED) is None:
        database.set_meta(_CLOSED, utc_now().strftime(_AT))


@dataclass(frozen=True, slots=True)
class Enrollment:
    """Of one server's run: the list and the dates, what its operator asks, and whether the operators have closed it."""

    owners: frozenset[str]
    clients: ClientsSection
    orders: OperatorCommands = field(default_factory=OperatorCommands)
    database: Database | None = None
    clock: Callable[[], datetime.datetime] = utc_now

    @classmethod
    def of(cls, config: Config, commands: OperatorCommands, database: Database) -> Self:
        """A server's."""
        return cls(config.owners, config.clients, commands, database)

    def identity(self, owner: str) -> EnrollmentRefusal | None:
        """Why an owner of this name may not take part at any time; None where it may."""
        if self.owners and owner not in self.owners:
            what = f"{owner!r} is not among the {len(self.owners)} data owners that this run names"
            return EnrollmentRefusal(
                EnrollmentRefusalReason.NOT_LISTED,
                what,
                "one of clients.names, by the certificate's name",
            )
        if owner in self.orders.asked.revoked:
            what = f"{owner!r} was revoked by this server's operator"
            return EnrollmentRefusal(EnrollmentRefusalReason.REVOKED, what, "an owner that is not")
        return None

    def time(self) -> EnrollmentRefusal | None:
        """Why nobody may take part for the first time now; None where owners may."""
        opens, closes, time = self.clients.opening, self.clients.closing, self.clock()
        if opens is not None and time < opens:
            what = f"the run opens to data owners at {_time_text(opens)}; it is {_time_text(time)}"
            return EnrollmentRefusal(
                EnrollmentRefusalReason.NOT_OPEN, what, "an upload after that (clients.opens)"
            )
        if closes is not None and time >= closes:
            what = f"the run was closed to data owners at {_time_text(closes)}"
            return EnrollmentRefusal(
                EnrollmentRefusalReason.CLOSED, what, "an upload before that (clients.closes)"
            )
        closed = None if self.database is None else self.database.meta(_CLOSED)
        if closed is not None:
            what = f"the operators closed the run to data owners at {closed}"
            return EnrollmentRefusal(EnrollmentRefusalReason.CLOSED, what, "an upload before that")
        return None

    def refusal(self, owner: str) -> EnrollmentRefusal | None:
        """Why an owner that is not there yet may not come now; None where it may."""
        return self.identity(owner) or self.time()


def check_enrolled(config: Config, owner: str) -> None:
    """What an owner's own program knows before it asks anybody. Raises NotEnrolled."""
    if away := Enrollment(config.owners, config.clients).refusal(owner):
        raise NotEnrolled("", 0, f"{away.what}; expected {away.expected}; nothing was sent")


def _time_text(time: datetime.datetime) -> str:
    return time.astimezone(datetime.UTC).strftime(_AT)
