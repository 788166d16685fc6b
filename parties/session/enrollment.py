"""Enrollment of data owners: the list, the dates, and the reasons for refusals.

A server asks ``Enrollment`` about every owner that it does not have yet; an owner's own program calls
``check_enrolled`` before anything is charged or sent. An owner is refused if the configuration does not name it, if
this server's operator has revoked it, before the configuration's opening date, after its closing date, or once the
operators have closed the run. An owner that has joined stays, unless revoked.

The list and the dates are part of the configuration that all sides agree on: an owner signs its digest with its data,
so that no server can add an owner unnoticed. A revocation comes later, as a command of the operators
(`parties.session.operator_commands`): each server refuses a revoked owner on its own operator's command, as it could
anyway; the owner's data leaves the count if all three operators command it. All values here are public.
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
"""Upper bound on waits in seconds: longer than any wait, and still a valid date."""
_AT = "%Y-%m-%d %H:%M:%S UTC"


class EnrollmentRefusalReason(enum.StrEnum):
    """Reasons of a refusal, as words for programs."""

    NOT_LISTED = "not-listed"
    REVOKED = "revoked"
    NOT_OPEN = "not-open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class EnrollmentRefusal:
    """A refusal of an owner: the ``reason``, the problem in words, and the expected state."""

    reason: EnrollmentRefusalReason
    what: str
    expected: str


def utc_now() -> datetime.datetime:
    """The time by this host's clock."""
    return datetime.datetime.now(datetime.UTC)


def seconds_until(time: datetime.datetime) -> float:
    """Seconds from now until ``time`` by this host's clock; 0 if it has passed."""
    return max(0.0, (time - utc_now()).total_seconds())


def enrollment_wait_s(clients: ClientsSection) -> float:
    """Maximum wait for owners from now on, in seconds: until the closing, or wait_s seconds from the opening."""
    if clients.closing is not None:
        return seconds_until(clients.closing)
    return clients.wait_s + (0.0 if clients.opening is None else seconds_until(clients.opening))


def deadline_text(left_s: float) -> str:
    """The time in ``left_s`` seconds, to the minute, so that the text stays the same during the wait."""
    ends = utc_now() + datetime.timedelta(seconds=min(left_s, _LONGEST_S))
    return f"{ends:%Y-%m-%d %H:%M} UTC"


def close_enrollment(database: Database) -> None:
    """Closes the run to further owners, on the operators' command; durable on return. Raises StoreError."""
    if database.meta(_CLOSED) is None:
        database.set_meta(_CLOSED, utc_now().strftime(_AT))


@dataclass(frozen=True, slots=True)
class Enrollment:
    """Enrollment at one server: the list and the dates, the operator's commands, and the closing by all operators."""

    owners: frozenset[str]
    clients: ClientsSection
    orders: OperatorCommands = field(default_factory=OperatorCommands)
    database: Database | None = None
    clock: Callable[[], datetime.datetime] = utc_now

    @classmethod
    def of(cls, config: Config, commands: OperatorCommands, database: Database) -> Self:
        """Returns the enrollment of a server."""
        return cls(config.owners, config.clients, commands, database)

    def identity(self, owner: str) -> EnrollmentRefusal | None:
        """Returns the reason for refusing an owner of this name at any time; None if there is none."""
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
        """Returns the reason for refusing all new owners now; None if there is none."""
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
        """Returns the reason for refusing a new owner now; None if there is none."""
        return self.identity(owner) or self.time()


def check_enrolled(config: Config, owner: str) -> None:
    """Checks the list and the dates in an owner's own program, before any request. Raises NotEnrolled."""
    if away := Enrollment(config.owners, config.clients).refusal(owner):
        raise NotEnrolled("", 0, f"{away.what}; expected {away.expected}; nothing was sent")


def _time_text(time: datetime.datetime) -> str:
    return time.astimezone(datetime.UTC).strftime(_AT)
