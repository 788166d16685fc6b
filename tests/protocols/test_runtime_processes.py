"""Parties that really die: party 2 is a process, killed, stopped or interrupted while parties 0 and 1 look on."""

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest

from protocols import runtime as runtime_module
from protocols.errors import PeerClosed, ReceiveTimeout
from protocols.mesh import TlsFiles
from protocols.runtime import PartyRuntime
from tests.protocols.lone_party import exchange_for_ever
from tests.protocols.network import Address, all_ended, free_addresses, runtimes
from tests.until import until_stopped

pytestmark = pytest.mark.usefixtures("nothing_left")

ROOT = Path(__file__).resolve().parents[2]


class LoneParty:
    """A process that runs ``lone_party`` as party 2."""

    def __init__(self, tls: TlsFiles, addresses: list[Address]) -> None:
        self._arguments = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.protocols.lone_party",
            "2",
            *(str(port) for _, port in addresses),
            str(tls.ca),
            str(tls.cert),
            str(tls.key),
        ]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            *self._arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            await process.communicate()


@contextlib.asynccontextmanager
async def with_a_process(
    tls: list[TlsFiles], **options: float
) -> AsyncIterator[tuple[list[PartyRuntime], asyncio.subprocess.Process]]:
    """Parties 0 and 1 here, party 2 as a process, all connected."""
    addresses = free_addresses()
    parties = runtimes(tls, [addresses] * 3, connect_timeout_s=60.0, **options)[:2]
    async with LoneParty(tls[2], addresses).running() as process:
        await asyncio.gather(*(party.connect() for party in parties))
        assert process.stdout is not None
        assert await process.stdout.readline() == b"connected\n"
        try:
            yield parties, process
        finally:
            await asyncio.gather(*(party.close("the test is over") for party in parties))


async def while_exchanging(
    parties: list[PartyRuntime], strike: Callable[[], None], within_s: float
) -> list[BaseException | None]:
    """The errors of the parties when something strikes in the middle of their exchanges."""
    loop = asyncio.get_running_loop()
    loop.call_later(0.3, strike)
    return await all_ended(parties, exchange_for_ever, within_s)


async def test_exchange_names_the_peer_when_its_process_is_killed(tls: list[TlsFiles]) -> None:
    async with with_a_process(tls, timeout_s=30.0) as (parties, process):
        errors = await while_exchanging(parties, process.kill, 4)
    assert {type(error) for error in errors} == {PeerClosed}
    assert any("party 2 closed" in str(error) or "party 2 broke" in str(error) for error in errors)


async def test_exchange_names_the_peer_when_its_process_is_stopped(tls: list[TlsFiles]) -> None:
    """Connected and silent; closing is bounded although the stopped process reads nothing."""
    async with with_a_process(tls, timeout_s=0.7) as (parties, process):
        errors = await while_exchanging(parties, lambda: process.send_signal(signal.SIGSTOP), 6)
    assert ReceiveTimeout in {type(error) for error in errors}
    assert any("no message from party 2" in str(error) for error in errors)


async def test_close_is_bounded_when_a_stopped_process_is_written_to(
    tls: list[TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "_FAREWELL_S", 0.5)
    async with with_a_process(tls) as (parties, process):
        process.send_signal(signal.SIGSTOP)
        until_stopped(process.pid)
        await parties[0].context().round({2: np.zeros(50_000_000, np.uint8)}, {})
        started = time.monotonic()
        await parties[0].close("stop")
        assert time.monotonic() - started < 2


async def test_close_raises_when_a_peer_dies_before_its_farewell(tls: list[TlsFiles]) -> None:
    async with with_a_process(tls) as (parties, process):
        process.send_signal(signal.SIGSTOP)
        until_stopped(process.pid)
        closing = [asyncio.ensure_future(party.close()) for party in parties]
        await asyncio.sleep(0.05)  # Sleeps: head start.
        process.kill()
        results = await asyncio.wait_for(asyncio.gather(*closing, return_exceptions=True), 4)
    assert [type(result) for result in results] == [PeerClosed] * 2


async def test_interrupt_ends_a_process_and_tells_its_peers(tls: list[TlsFiles]) -> None:
    async with with_a_process(tls, timeout_s=30.0) as (parties, process):
        errors = await while_exchanging(parties, lambda: process.send_signal(signal.SIGINT), 5)
        output, _ = await asyncio.wait_for(process.communicate(), 5)
    assert output == b"interrupted\n"
    assert process.returncode == 0
    for error in errors:
        assert isinstance(error, PeerClosed)
        assert "CancelledError" in str(error)


async def test_connect_survives_the_death_of_a_process_while_it_waits(tls: list[TlsFiles]) -> None:
    """Party 2 is killed before party 1 has come, and started again."""
    addresses = free_addresses()
    party_0, party_1, _ = runtimes(tls, [addresses] * 3, connect_timeout_s=60.0)
    lone = LoneParty(tls[2], addresses)
    waiting = asyncio.ensure_future(party_0.connect())
    async with lone.running() as process:
        with socket.create_server(addresses[1]) as knocked:
            # Party 2 dials both peers at once: by now it has met party 0, or will within the next half second.
            knocked.setblocking(False)
            connection, _ = await asyncio.get_running_loop().sock_accept(knocked)
            await asyncio.sleep(0.5)  # Sleeps: head start.
            connection.close()
        process.kill()
    async with lone.running() as process:
        await asyncio.gather(waiting, party_1.connect())
        assert process.stdout is not None
        assert await process.stdout.readline() == b"connected\n"
        replies = await asyncio.gather(
            *(party.context().exchange(b"hello") for party in (party_0, party_1))
        )
        assert [len(reply[2]) for reply in replies] == [50_000] * 2
        await asyncio.gather(*(party.close("enough") for party in (party_0, party_1)))
