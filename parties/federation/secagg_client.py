"""A SecAgg client as a process: one connection to the server, over mutual TLS, for one round.

``run_secagg_client`` drives a `secagg.SecAggClient`. The handshake verifies the server's name and key before the client
sends anything; the server knows the client by the common name of its certificate. Secret: the vector and the keys,
which stay in the state machine. Known limits: a lost connection is a dropout, which the protocol survives; a client
cannot reconnect.
"""

import asyncio
import ssl

from parties.config import CertificateFiles
from parties.crypto.pinned_key import PinnedKey
from parties.foundation.errors import FrameConnectError
from parties.identity import tls
from parties.network.frames import close_writer, read_frame, write_frame
from secagg import wire
from secagg.client import Awaits, SecAggClient
from secagg.errors import SecAggError
from secagg.keys import PUBLIC_BYTES, SIGNATURE_BYTES


def frame_limit(max_clients: int) -> int:
    """Maximum size of the server's messages in a round of ``max_clients``, in bytes: all clients' keys, signed."""
    return wire.OVERHEAD_BYTES + 4 + max_clients * (4 + 2 * PUBLIC_BYTES + SIGNATURE_BYTES)


async def run_secagg_client(
    client: SecAggClient,
    host: str,
    port: int,
    *,
    server: PinnedKey,
    files: CertificateFiles,
    max_clients: int = 10_000,
    connect_s: float = 30.0,
    stage_s: float = 120.0,
) -> None:
    """Runs the whole round of ``client`` with ``server``; returns when the server has finished.

    ``stage_s`` bounds each wait for the server, which in turn waits for the slowest client. Raises FrameConnectError,
    another FrameTransportError, or the errors of the state machine; the connection is closed in any case.
    """
    reader, writer = await _connect(host, port, server, files, connect_s)
    limit = frame_limit(max_clients)
    try:
        while client.awaits is not Awaits.NOTHING:
            message = await read_frame(reader, server.name, limit=limit, timeout_s=stage_s)
            # Masks of long vectors take time; a thread computes them, so that the connection stays alive.
            answer = await asyncio.to_thread(client.receive, message)
            if answer is not None:
                await write_frame(writer, answer, server.name, timeout_s=stage_s)
    except SecAggError:
        writer.transport.abort()
        raise
    finally:
        await close_writer(writer)


async def _connect(
    host: str, port: int, server: PinnedKey, files: CertificateFiles, connect_s: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = tls.client_context(files, server)
    try:
        async with asyncio.timeout(connect_s):
            return await asyncio.open_connection(
                host,
                port,
                ssl=context,
                server_hostname=server.name,
                ssl_handshake_timeout=connect_s,
            )
    except TimeoutError as error:
        raise FrameConnectError(
            server.name, f"no connection to {host}:{port} within {connect_s:g} s"
        ) from error
    except (ssl.SSLError, OSError) as error:
        meaning = (
            tls.explain_tls_error(error, server.name) or f"{host}:{port} does not answer: {error}"
        )
        raise FrameConnectError(server.name, meaning) from error
