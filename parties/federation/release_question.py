"""A participant's question to its server before it joins: which statements of its key the server has kept.

``ask_releases`` asks on an open connection, before the greeting, and ``ask_server_releases`` on a connection of its
own, for `syncret budget reconcile`. A Flower node asks in a message of its own (``releases_question``, ``told_in``),
and ``read_told`` reads what such a node has left for that command. None of it is part of the run: transcripts and
counts of bytes do not have it. Secret: nothing.
"""

import asyncio
from pathlib import Path

from parties.config import CertificateFiles, Config
from parties.federation.messages import (
    HEADER_BYTES,
    FederationMessage,
    MessageKind,
    refused_error,
)
from parties.federation.release_statements import (
    MAX_TOLD_BYTES,
    ReleaseStatement,
    missing_releases,
    statements_in,
)
from parties.foundation.errors import FederationProtocolError, FrameTransportError, ProxyRefused
from parties.identity import tls
from parties.identity.signing import signatory_of
from parties.network.frames import close_writer, read_frame, write_frame
from parties.network.port_sharing import study_sni_name
from parties.network.proxy import open_stream
from parties.storage.files import disk_errors
from parties.storage.told_releases import ToldReleases

TOLD_FILE = "told.json"
"""File in a Flower node's folder with what its server has told, where nobody could tell which population pays."""


async def ask_releases(
    config: Config,
    files: CertificateFiles,
    *,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    own: bytes = b"",
) -> list[ReleaseStatement]:
    """Returns the statements of the certificate's key that the server tells; ``own`` is the one of this run, signed.

    Raises CertificateError, FrameTransportError, FederationProtocolError, FederationRefused.
    """
    server, timeout_s = config.require_federation().server, config.timeouts.receive_s
    await write_frame(writer, releases_question(own), server, timeout_s=timeout_s)
    limit = HEADER_BYTES + MAX_TOLD_BYTES
    data = await read_frame(reader, server, limit=limit, timeout_s=timeout_s)
    return await asyncio.to_thread(told_in, data, files, server)


def releases_question(own: bytes) -> bytes:
    """Returns the question for earlier releases, with this participation's signed statement ``own``, b"" without."""
    return FederationMessage(MessageKind.RELEASES, 0, own).pack()


def told_in(data: bytes, files: CertificateFiles, server: str) -> list[ReleaseStatement]:
    """Returns the statements of the certificate's key in the server's answer. Raises as ``ask_releases``."""
    message = FederationMessage.unpack(data, server)
    if message.kind is MessageKind.REFUSED:
        raise refused_error(server, message.body)
    if message.kind is not MessageKind.RELEASES:
        raise FederationProtocolError(server, f"sent {message.kind.name}; expected RELEASES")
    return statements_in(message.body, signatory_of(tls.certificate_bytes(files)), server)


async def ask_server_releases(
    config: Config, files: CertificateFiles, budget: Path
) -> ToldReleases:
    """Returns the releases of the certificate's key that the server of ``config`` tells and the ``budget`` lacks.

    A server that cannot be reached is a problem in the answer. Raises CertificateError, ConfigError, StoreError,
    FederationProtocolError, FederationRefused.
    """
    section = config.require_federation()
    address, server = section.address, section.server
    if address is None:
        raise RuntimeError("the config was checked for an address")
    context = tls.client_context(files, section.pinned)
    try:
        async with asyncio.timeout(config.timeouts.connect_s):
            reader, writer = await open_stream(
                config.proxy_to(address.host),
                address.host,
                address.port,
                context=context,
                name=study_sni_name(config.digest()),
            )
    except (TimeoutError, OSError, ProxyRefused) as error:
        meaning = tls.explain_tls_error(error, server) or str(error) or "no answer in time"
        return ToldReleases((), (), {server: meaning})
    try:
        known = await ask_releases(config, files, reader=reader, writer=writer)
    except FrameTransportError as error:
        return ToldReleases((), (), {server: str(error)})
    finally:
        await close_writer(writer)
    missing = await asyncio.to_thread(missing_releases, budget, known, server)
    return ToldReleases(tuple(missing), (server,), {})


def read_told(config: Config, files: CertificateFiles, path: Path, *, budget: Path) -> ToldReleases:
    """Returns the releases in a node's file of what it was told, and that the ``budget`` lacks. Blocks.

    Raises CertificateError, StoreError, FederationProtocolError.
    """
    server = config.require_federation().server
    with disk_errors(path, "read"):
        body = path.read_bytes()
    known = statements_in(body, signatory_of(tls.certificate_bytes(files)), server)
    return ToldReleases(tuple(missing_releases(budget, known, server)), (server,), {})
