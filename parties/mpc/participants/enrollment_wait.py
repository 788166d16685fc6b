"""Wait of one server for participants: until all expected ones are here, or no more are to come, or it is too late.

All values here are public.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Protocol

from parties.config import ClientsSection
from parties.mpc.participants.control import AdmissionControl
from parties.mpc.participants.listing import IncompleteSubmission
from parties.mpc.participants.waiting_text import WaitStatus
from parties.mpc.replay.effects import ParticipantView
from parties.session.enrollment import enrollment_wait_s

_POLL_S = 0.1


class WaitObserver(Protocol):
    """Observer of a wait for participants."""

    def waiting(self, state: WaitStatus) -> None:
        """Called several times a second while the server waits for participants."""


class EnrollmentWait:
    """Wait for ``participants`` as ``clients`` of the configuration says, unless ``control`` ends it.

    ``finishing`` is True once the operators end the run with the rounds done.
    """

    def __init__(
        self,
        clients: ClientsSection,
        participants: ParticipantView,
        control: AdmissionControl,
        observer: WaitObserver,
    ) -> None:
        self.finishing = False
        self._clients = clients
        self._submissions = participants.submissions
        self._registry = participants.registry
        self._control = control
        self._observer = observer
        self._round = 0
        self._deadline = 0.0
        self._last_arrival = time.monotonic()
        """Monotonic time of the last arrival of a counted or held client, in seconds."""

    def begin(self, round: int) -> None:
        """Begins the wait for the clients of ``round``."""
        self._round = round
        self._deadline = time.monotonic() + enrollment_wait_s(self._clients)

    def arrived(self) -> None:
        """Notes the arrival of a client."""
        self._last_arrival = time.monotonic()

    @property
    def text(self) -> str:
        """Limit of the wait, in words."""
        closes = self._clients.closes
        if closes is None:
            return f"within {self._clients.wait_s:g} s"
        return f"by {closes} (clients.closes)"

    @property
    def has_minimum(self) -> bool:
        """True if the counted and held clients are enough for the run."""
        return self._n_complete >= self._clients.minimum

    @property
    def _n_complete(self) -> int:
        return self._registry.counted + self._registry.held

    def ready(
        self, incomplete: Mapping[str, IncompleteSubmission], *, patient: bool = False
    ) -> bool:
        """True if this server waits for nobody any more; ``incomplete`` are shown to the observer.

        A ``patient`` server has all expected submissions, too few of them complete, and waits for their missing parts.
        """
        stored, now = self._submissions.count(), time.monotonic()
        commands = self._control.commands
        self._observer.waiting(
            WaitStatus(
                stored,
                self._n_complete,
                self._deadline - now,
                dict(incomplete),
                commands=commands.by_server,
            )
        )
        grace_s = self._clients.grace_s
        return (
            (stored >= self._clients.expected and (self.has_minimum or not patient))
            or self._control.closed.is_set()
            or self.finishing
            or now >= self._deadline
            or (self.has_minimum and commands.asked.close)
            or (self.has_minimum and grace_s is not None and now >= self._last_arrival + grace_s)
            # The first round is over, so the wait for participants is, too.
            or (self.has_minimum and self._round > 0)
        )

    async def sleep(
        self,
        pause: float,
        incomplete: Mapping[str, IncompleteSubmission],
        *,
        patient: bool = False,
    ) -> None:
        """Sleeps for ``pause`` seconds, or until this server is ready."""
        until = min(time.monotonic() + pause, self._deadline)
        while (left := until - time.monotonic()) > 0 and not self.ready(
            incomplete, patient=patient
        ):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._control.closed.wait(), min(left, _POLL_S))
