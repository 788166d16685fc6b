"""The server's wait for enough participants, before the run and before each round.

Before the first round the server waits for all expected participants; after a restart, for as many as were present
before; before each later round, for the minimum that the run needs. The operator's commands
(`parties.session.operator_commands`) take effect here: close enrolment, end with the rounds done, revoke a participant.
All values here are public: names of participants.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mechanisms.errors import FinishedEarly, RoundLost
from parties.config import Config, FederationSection
from parties.federation.members import ConnectedClients
from parties.foundation.errors import FederationProtocolError
from parties.foundation.exit_codes import TooFewClients
from parties.observability.events import Progress
from parties.observability.heartbeat import LONGEST_GATHERING_S, Throttle
from parties.session.enrollment import (
    Enrollment,
    close_enrollment,
    deadline_text,
    enrollment_wait_s,
)
from parties.session.operator_commands import OperatorCommands

_ATTENDANCE_POLL_S = 0.05
_MAX_NAMES_SHOWN = 6
"""Maximum number of participants' names in one sentence; the sentence counts the rest."""


@dataclass(slots=True, eq=False)
class Attendance:
    """The wait of one attempt at a run.

    Attributes:
        closed: Set when no more participants will come; the wait then ends.
        before: Number of participants in the last round of an earlier attempt.
    """

    config: Config
    members: ConnectedClients
    enrolment: Enrollment
    orders: OperatorCommands
    progress: Progress
    closed: asyncio.Event
    before: int = 0
    reminder: Throttle = field(default_factory=lambda: Throttle(longest_s=LONGEST_GATHERING_S))

    @property
    def section(self) -> FederationSection:
        """The configuration's section of the run; a sum needs its ``minimum``."""
        return self.config.require_federation()

    @property
    def who(self) -> str:
        """Noun for the participants, in texts."""
        return self.section.WHO

    @property
    def turn(self) -> str:
        """Noun for one round or sum, in texts."""
        return self.section.TURN

    @property
    def here(self) -> int:
        """Number of connected participants."""
        return len(self.members.present)

    @property
    def needed(self) -> int:
        """Number of participants that have to be connected."""
        least = 0 if self.closed.is_set() else self.config.clients.minimum
        return max(least, self.section.minimum)

    async def gather(self) -> None:
        """Waits for the participants before the first round of this attempt. Raises TooFewClients."""
        clients, began = self.config.clients, time.monotonic()
        wait_s = enrollment_wait_s(clients)
        wanted = max(self.before, self.needed) if self.before else clients.expected
        grace_s = self.config.timeouts.connect_s if self.before else clients.grace_s

        def enough() -> bool:
            over = self.closed.is_set() or bool(self.before and self.orders.asked.finish)
            if self.here >= wanted or over:
                return True
            waited = time.monotonic() - began
            short = grace_s is not None and waited >= grace_s
            return self.here >= self.needed and (short or self.orders.asked.close)

        await self._wait_until(enough, wait_s, lambda: "the run")
        if self.orders.asked.close and self.enrolment.database is not None:
            close_enrollment(self.enrolment.database)
        least = max(clients.minimum, self.section.minimum)
        if self.here < least and not (self.before and self.orders.asked.finish):
            left = "before the rest had left"
            within = left if self.closed.is_set() else f"within {wait_s:g} s"
            raise TooFewClients(
                f"{self.here} of {clients.expected} {self.who} came {within}; expected at least {least} "
                f"(clients.minimum, {self.section.KEY}.minimum){self._missing_names()}"
            )

    async def round(self, number: int) -> None:
        """Waits until enough participants are connected for round ``number``.

        Raises FinishedEarly if the operator ends the run with the rounds before; TooFewClients if too few come in time;
        RoundLost if too few are connected and ``closed`` is set.
        """
        self._expel_revoked()
        self._check_finish(number)
        if self.closed.is_set() and self.here < self.section.minimum:
            raise RoundLost(
                f"{self.turn} {number}: {self.here} {self.who} are connected; expected at least {self.section.minimum} "
                f"({self.section.KEY}.minimum)"
            )
        wait_s = self.config.clients.wait_s

        def enough() -> bool:
            return self.here >= self.needed or bool(number and self.orders.asked.finish)

        await self._wait_until(enough, wait_s, lambda: f"{self.turn} {number}")
        self._check_finish(number)
        if self.here < self.needed:
            raise TooFewClients(
                f"{self.turn} {number}: {self.here} {self.who} are connected; expected at least {self.needed} "
                f"(clients.minimum, {self.section.KEY}.minimum) within {wait_s:g} "
                f"s{self._missing_names()}; the same command goes on with this {self.turn}"
            )

    def _check_finish(self, number: int) -> None:
        if number > 0 and self.orders.asked.finish:
            raise FinishedEarly(f"the operator has ended it before {self.turn} {number}")

    async def _wait_until(
        self, enough: Callable[[], bool], wait_s: float, what: Callable[[], str]
    ) -> None:
        """Waits until ``enough`` returns true or ``wait_s`` seconds have passed; reports ``what`` waits meanwhile."""
        ends = time.monotonic() + wait_s
        at = deadline_text(wait_s)
        while not enough() and (left := ends - time.monotonic()) > 0:
            text = (
                f"{what()} waits: {self.here} of {self.config.clients.expected} {self.who} are connected, at least "
                f"{self.needed} are needed{self._missing_names()}; until {at}"
            )
            if self.reminder.due(text):
                self.progress.event("waiting", text, done=self.here, closing_s=round(left, 1))
            await self.members.change(min(left, _ATTENDANCE_POLL_S))
            self._expel_revoked()

    def _expel_revoked(self) -> None:
        """Disconnects participants that the operator has revoked meanwhile."""
        for member in list(self.members.present.values()):
            if (away := self.enrolment.identity(member.name)) is not None:
                self.members.expel(member, FederationProtocolError(member.name, away.what))

    def _missing_names(self) -> str:
        names, present = self.members.names, self.members.present
        return _missing_text([name for number, name in enumerate(names) if number not in present])


def _missing_text(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _MAX_NAMES_SHOWN} more" if len(names) > _MAX_NAMES_SHOWN else ""
    return f"; missing: {', '.join(names[:_MAX_NAMES_SHOWN])}{more}"
