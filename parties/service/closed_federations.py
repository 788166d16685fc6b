"""Answers to participants of a study of one server that is over, and has no process any more.

``ClosedFederationResponder`` terminates TLS with the study's own certificate, so that a participant gets the answer
from the server that it pinned. To the question that a participant asks before it joins (RELEASES) it returns the
statements of the participant's key that the release registry has kept, of all studies of this service
(`parties.federation.release_statements`). Whatever else a participant sends is refused with the reason that the study
is over. Nothing is recorded, and no study goes on. All answers are public to the participant's own key.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from functools import partial

from parties.federation.messages import (
    SMALL_MESSAGE_BYTES,
    FederationMessage,
    MessageKind,
    Refusal,
    RefusalMessage,
    is_releases_question,
)
from parties.foundation.errors import CertificateError, FrameTransportError, StoreError
from parties.identity.tls import peer_name
from parties.network.frames import close_writer, read_frame, write_frame
from parties.network.port_sharing import PassedSocketQueue, PassedSocketServer
from parties.service.responders import HANDSHAKE_S, MAX_CONNECTIONS, MAX_HANDSHAKES
from parties.service.study_record import StudyRecord, StudyState

_LIMIT_S = 30.0
"""Maximum time of a connection, in seconds."""


class ClosedFederationResponder:
    """Endpoint of ``study``; ``statements_of`` returns those for a participant's certificate (DER), and blocks."""

    def __init__(
        self,
        study: Callable[[], StudyRecord | None],
        statements_of: Callable[[bytes], bytes],
        context: ssl.SSLContext,
    ) -> None:
        self.asked_at = 0.0
        self.answering = 0
        self._study = study
        self._statements_of = statements_of
        self._tasks: set[asyncio.Task[None]] = set()
        inlet = PassedSocketQueue()
        self.put = inlet.put
        self._handed = PassedSocketServer(inlet, self._stream, context, HANDSHAKE_S, MAX_HANDSHAKES)

    async def close(self) -> None:
        """Ends all connections."""
        self._handed.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._handed.wait_closed()

    def has_room(self) -> bool:
        """Returns true if a further connection may be taken."""
        return len(self._tasks) < MAX_CONNECTIONS

    def _stream(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._accept)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.answering += 1
        try:
            async with asyncio.timeout(_LIMIT_S):
                await self._converse(reader, writer)
        except (TimeoutError, CertificateError, FrameTransportError, OSError):
            writer.transport.abort()
        finally:
            self.answering -= 1
            with contextlib.suppress(OSError):
                await close_writer(writer)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("ssl_object")
        name, certificate = peer_name(connection), connection.getpeercert(binary_form=True)
        read = partial(read_frame, reader, name, limit=SMALL_MESSAGE_BYTES, timeout_s=_LIMIT_S)
        if is_releases_question(await read()):
            await write_frame(writer, await self._answer(certificate), name, timeout_s=_LIMIT_S)
            await read()
        study = self._study()
        if study is not None:
            await write_frame(writer, _refusal(study).pack(), name, timeout_s=_LIMIT_S)

    async def _answer(self, certificate: bytes) -> bytes:
        try:
            known = await asyncio.to_thread(self._statements_of, certificate)
        except StoreError as error:
            # Participants do not learn the server's paths.
            return RefusalMessage(Refusal.FAILED, error.message).message().pack()
        return FederationMessage(MessageKind.RELEASES, 0, known).pack()


def _refusal(study: StudyRecord) -> FederationMessage:
    how = {StudyState.FINISHED: "is finished", StudyState.CANCELLED: "was cancelled"}
    words = f"the study {study.run} {how.get(study.state, 'has failed')}: nobody joins it any more"
    # A failed study may be approved again.
    kind = Refusal.FAILED if study.state is StudyState.FAILED else Refusal.NOT_ENROLLED
    return RefusalMessage(kind, words).message()
