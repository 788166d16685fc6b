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
_DECISION_S = 24 * 3600.0
"""Longest wait for the operators' decision where a server has lost shares of a round that has begun."""


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
        self._began = self._deadline = 0.0
        self._last_arrival = time.monotonic()
        """Monotonic time of the last arrival of a counted or held client, in seconds."""

    def begin(self, round: int) -> None:
        """Begins the wait for the clients of ``round``."""
        self._round = round
        self._began = time.monotonic()
        self._deadline = self._began + enrollment_wait_s(self._clients)

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

        A ``patient`` server has all expected submissions, or goes on with a round that has begun, and waits for parts
        that another server lacks, or for the operators to end the run.
        """
        stored, now = self._submissions.count(), time.monotonic()
        deadline = self._deadline_with(incomplete, patient=patient)
        commands = self._control.commands
        self._observer.waiting(
            WaitStatus(
                stored,
                self._n_complete,
                deadline - now,
                dict(incomplete),
                commands=commands.by_server,
                round=self._round,
            )
        )
        if self._control.closed.is_set() or self.finishing or now >= deadline:
            return True
        if patient and (_is_lost(incomplete) or not self.has_minimum):
            return False
        grace_s = self._clients.grace_s
        return (
            stored >= self._clients.expected
            or (self.has_minimum and commands.asked.close)
            or (self.has_minimum and grace_s is not None and now >= self._last_arrival + grace_s)
            # The first round is over, so the wait for participants is, too.
            or (self.has_minimum and self._round > 0)
        )

    def _deadline_with(
        self, incomplete: Mapping[str, IncompleteSubmission], *, patient: bool
    ) -> float:
        if patient and _is_lost(incomplete):
            return max(self._deadline, self._began + _DECISION_S)
        return self._deadline

    async def sleep(
        self,
        pause: float,
        incomplete: Mapping[str, IncompleteSubmission],
        *,
        patient: bool = False,
    ) -> None:
        """Sleeps for ``pause`` seconds, or until this server is ready."""
        until = time.monotonic() + pause
        while (left := until - time.monotonic()) > 0 and not self.ready(
            incomplete, patient=patient
        ):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._control.closed.wait(), min(left, _POLL_S))


def _is_lost(incomplete: Mapping[str, IncompleteSubmission]) -> bool:
    """True if a server has lost the shares of a client that is counted for good."""
    return any(item.final for item in incomplete.values())
