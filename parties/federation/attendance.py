"""Whether enough clients are there: before the run and before each round FLAIM's server waits for them, and says so.

Provides ``Attendance``. Before the first round all that are expected are waited for; after a restart those who were
there before; before each round as many as the run needs at least. What the operator asks
(`parties.session.operator_commands`) is done here: to close, to end with the rounds done, to turn a client away.
Public: names of clients.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mechanisms.errors import FinishedEarly, RoundLost
from parties.config import Config
from parties.federation.members import ConnectedClients
from parties.foundation.errors import FederationProtocolError
from parties.foundation.exit_codes import TooFewClients
from parties.observability.events import Progress
from parties.observability.heartbeat import Throttle
from parties.session.enrollment import (
    Enrollment,
    close_enrollment,
    deadline_text,
    enrollment_wait_s,
)
from parties.session.operator_commands import OperatorCommands

_ATTENDANCE_POLL_S = 0.05
_MAX_NAMES_SHOWN = 6
"""Names of clients in one sentence, of more their number."""


@dataclass(slots=True, eq=False)
class Attendance:
    """Of one attempt at a run.

    ``least`` is how many clients a sum needs (flaim.minimum); ``before`` how many had been there by the last round of
    an earlier attempt. ``closed`` is set by whoever knows that no more will come: then nobody is waited for. ``who``
    they are, and what they are needed for in each ``turn``, in words.
    """

    config: Config
    members: ConnectedClients
    enrolment: Enrollment
    orders: OperatorCommands
    progress: Progress
    closed: asyncio.Event
    least: int
    before: int = 0
    who: str = "clients"
    turn: str = "round"
    reminder: Throttle = field(default_factory=Throttle)

    @property
    def here(self) -> int:
        """How many are connected."""
        return len(self.members.present)

    @property
    def needed(self) -> int:
        """How many have to be."""
        least = 0 if self.closed.is_set() else self.config.clients.minimum
        return max(least, self.least)

    async def gather(self) -> None:
        """Wait for the clients before the first round of this attempt. Raises TooFewClients."""
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
        least = max(clients.minimum, self.least)
        if self.here < least and not (self.before and self.orders.asked.finish):
            left = "before the rest had left"
            within = left if self.closed.is_set() else f"within {wait_s:g} s"
            raise TooFewClients(
                f"{self.here} of {clients.expected} {self.who} came {within}; expected at least {least} "
                f"(clients.minimum, {self.config.federation_section}.minimum){self._missing_names()}"
            )

    async def round(self, number: int) -> None:
        """Wait until there are enough for round ``number``.

        Raises FinishedEarly where the operator ends the run with the rounds before; TooFewClients where they do not
        come, and RoundLost where nobody is waited for any more.
        """
        self._expel_revoked()
        self._check_finish(number)
        if self.closed.is_set() and self.here < self.least:
            raise RoundLost(
                f"{self.turn} {number}: {self.here} {self.who} are connected; expected at least {self.least} "
                f"({self.config.federation_section}.minimum)"
            )
        wait_s = self.config.clients.wait_s

        def enough() -> bool:
            return self.here >= self.needed or bool(number and self.orders.asked.finish)

        await self._wait_until(enough, wait_s, lambda: f"{self.turn} {number}")
        self._check_finish(number)
        if self.here < self.needed:
            raise TooFewClients(
                f"{self.turn} {number}: {self.here} {self.who} are connected; expected at least {self.needed} "
                f"(clients.minimum, {self.config.federation_section}.minimum) within {wait_s:g} "
                f"s{self._missing_names()}; the same "
                f"command goes on with this {self.turn}"
            )

    def _check_finish(self, number: int) -> None:
        if number > 0 and self.orders.asked.finish:
            raise FinishedEarly(f"the operator has ended it before {self.turn} {number}")

    async def _wait_until(
        self, enough: Callable[[], bool], wait_s: float, what: Callable[[], str]
    ) -> None:
        """Until there are ``enough``, or the time is over; says what is waited for."""
        ends = time.monotonic() + wait_s
        at = deadline_text(wait_s)
        while not enough() and (left := ends - time.monotonic()) > 0:
            text = (
                f"{what()} waits: {self.here} of {self.config.clients.expected} {self.who} are connected, at least "
                f"{self.needed} are needed{self._missing_names()}; until {at}"
            )
            if self.reminder.due(text):
                self.progress.event("waiting", text, done=self.here)
            await self.members.change(min(left, _ATTENDANCE_POLL_S))
            self._expel_revoked()

    def _expel_revoked(self) -> None:
        """Hang up on clients that the operator has revoked meanwhile."""
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
