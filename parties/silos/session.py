"""One silo of a run, without I/O and without a clock: what it answers to each message of the server.

Provides ``SiloSession``. It asks a `mechanisms.silos.Silo` for the numbers of each request, which compares the request
with its own settings and charges its own ledger first, and drives one `secagg.SecAggClient` for each sum, with a policy
from its own configuration. What goes beyond either is refused, and nothing is sent.

    ROSTER    -> nothing        in malicious mode: cards of other silos, checked
    MEMBERS   -> nothing        the same: who is in the next sum
    REQUEST   -> nothing        the silo's numbers are made
    secagg    -> secagg         the session that takes the sum
    SKIPPED   -> nothing        the sum was given up
    RESULT    -> nothing        the run's public result

Secret: the silo's table, numbers and keys. Known limits: noise by the server is added by the server, and nobody but the
server can say that it was.
"""

from collections.abc import Callable

from mechanisms.silos import MAX_PAYLOAD_BYTES, Silo, checked_answer
from parties.config import Config
from parties.errors import FlaimProtocolError
from parties.flaim.messages import HEADER_BYTES, PLACE_BYTES, Message, MessageKind, unpack_task
from parties.flaim.participant import SumSession
from parties.flaim.roster import Own, session_id
from parties.silos.requests import MAX_TASK_BYTES, Task
from parties.silos.sums import policy, silos_section
from secagg.client import SecAggClient
from secagg.errors import ParameterError

LARGEST = HEADER_BYTES + PLACE_BYTES + max(MAX_TASK_BYTES, MAX_PAYLOAD_BYTES)
"""Of the messages of a server."""


class SiloSession(SumSession):
    """One silo's side of a run; ``over`` once the server has said goodbye, ``finished`` once it had a result."""

    def __init__(
        self,
        config: Config,
        silo: Silo,
        *,
        server: str,
        random_bytes: Callable[[int], bytes],
        own: Own | None = None,
    ) -> None:
        """``server`` is the server's name, for messages. ``own`` is what malicious mode needs. Raises ValueError."""
        super().__init__(config, server=server, random_bytes=random_bytes, largest=LARGEST, own=own)
        self.finished = False
        self._silo = silo
        self._last = 0

    def _asked_for(self, message: Message) -> bytes | None:
        match message.kind:
            case MessageKind.REQUEST:
                self._answer(message)
                return None
            case MessageKind.RESULT:
                self._idle("RESULT")
                if self.finished:
                    raise FlaimProtocolError(self._server, "sent a second result")
                self.finished = True
                self._silo.finish(message.body)
                return None
            case _:
                return super()._asked_for(message)

    def _answer(self, message: Message) -> None:
        """Make the numbers that a sum asks for, once its session is one that this silo's configuration allows."""
        self._idle("REQUEST")
        place, body = unpack_task(message.body, self._server)
        task = Task.unpack(body, self._server)
        least = silos_section(self._config).minimum
        if place is None or not place < task.silos or not least <= task.silos <= self._clients:
            raise FlaimProtocolError(
                self._server,
                f"asks silo {place} for a sum over {task.silos}; expected {least} to {self._clients} of them",
            )
        if task.number != message.round or task.number <= self._last:
            raise FlaimProtocolError(
                self._server,
                f"asks for sum {task.number} in {message.round}; expected one after {self._last}",
            )
        own, named = self._own, None
        # Before anything is charged or counted: who is in this sum, by their own certificates.
        roster = None if own is None else own.keys(task.silos, place, self._server)
        if own is not None and roster is not None:
            named = session_id(self._config, body, roster)
            own.once(named, self._server)
        try:
            demanded = policy(self._config, task.request, task.silos, session_id=named)
        except ParameterError as error:
            raise FlaimProtocolError(
                self._server, f"asks for a sum that no session can take: {error}"
            ) from error
        self._last = task.number
        numbers = checked_answer(self._silo, task.request)
        self.tally.sums += 1
        self._sum = SecAggClient(
            place,
            numbers,
            demanded,
            identity=None if own is None else own.identity,
            roster=roster,
            random_bytes=self._random_bytes,
        )
