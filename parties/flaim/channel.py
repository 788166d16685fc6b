"""What SecAgg's server talks over while a sum is taken, for FLAIM and between silos.

Provides ``SumChannel``, a `secagg.server.Channel` on a conversation, and ``out_reason``. Public: all of it.
"""

import contextlib
from collections.abc import Callable

from parties.errors import FlaimProtocolError
from parties.flaim.members import Conversation
from parties.flaim.messages import Message, MessageKind, is_secagg, unpack_reason


class SumChannel:
    """A conversation as a `secagg.server.Channel`: a client may say that it gives up, and dropouts are noted."""

    def __init__(
        self, talk: Conversation, dropped: Callable[[Conversation, int, str], None]
    ) -> None:
        """``dropped`` is told, once, of each client (by its id) that has dropped out, and why."""
        self._dropped = dropped
        self._talk = talk
        self._out: set[int] = set()

    def name(self, client: int) -> str:
        """See ``Channel``."""
        return self._talk.name(client)

    def post(self, client: int, message: bytes) -> None:
        """See ``Channel``."""
        self._talk.post(client, message)

    async def receive(self) -> tuple[int, bytes | None]:
        """See ``Channel``."""
        client, data = await self._talk.receive()
        reason = "the connection was lost"
        if data is not None:
            reason = out_reason(data, self.name(client)) or ""
            if not reason:
                return client, data
        self._drop(client, reason)
        return client, None

    def expel(self, client: int, error: Exception) -> None:
        """See ``Channel``."""
        self._drop(client, str(error))
        self._talk.expel(client, error)

    def _drop(self, client: int, reason: str) -> None:
        if client not in self._out:
            self._out.add(client)
            self._dropped(self._talk, client, reason)


def out_reason(data: bytes, name: str) -> str | None:
    """Why a client gives up, if that is what its message says."""
    if is_secagg(data):
        return None
    with contextlib.suppress(FlaimProtocolError):
        message = Message.unpack(data, name)
        if message.kind is MessageKind.OUT:
            return unpack_reason(message.body) or "gave up"
    return None
