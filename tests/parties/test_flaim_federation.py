"""Sums of a round that run at the same time, and the messages that a client may send meanwhile."""

import asyncio
import contextlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from mechanisms.flaim import SumRequest
from mechanisms.flaim_messages import Layout
from parties.federation.members import (
    ClientChannel,
    ClientExchange,
    ConnectedClient,
    ConnectedClients,
)
from parties.foundation.errors import FederationProtocolError
from parties.methods.flaim.federation import CONCURRENT_SUMS, take_concurrently


def requests_of(*members: Sequence[int]) -> list[SumRequest]:
    return [
        SumRequest(Layout(1, group, len(clients), 1.0, False, (group,)), tuple(clients))
        for group, clients in enumerate(members)
    ]


class Sums:
    """Sums that end when they are told to; ``running`` are the groups of those under way."""

    def __init__(self) -> None:
        self.running: dict[int, asyncio.Future[str]] = {}
        self.begun: list[int] = []

    async def take(self, request: SumRequest) -> str:
        group = request.layout.group
        self.begun.append(group)
        self.running[group] = asyncio.get_running_loop().create_future()
        try:
            return await self.running[group]
        finally:
            del self.running[group]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def collect(requests: Sequence[SumRequest], sums: Sums) -> list[tuple[int, str]]:
    async with contextlib.aclosing(take_concurrently(requests, sums.take)) as ending:
        return [item async for item in ending]


async def test_side_by_side_takes_what_has_no_client_in_common() -> None:
    sums = Sums()
    # 2 waits for 0, and 3 for 2, with which it shares client 4; 4 has nothing to do with them.
    requests = requests_of((0, 1), (2, 3), (1, 4), (4, 5), (6,))
    task = asyncio.create_task(collect(requests, sums))
    await settle()
    assert sorted(sums.running) == [0, 1, 4]
    sums.running[4].set_result("e")
    sums.running[1].set_result("b")
    await settle()
    assert sorted(sums.running) == [0]
    sums.running[0].set_result("a")
    await settle()
    assert sorted(sums.running) == [2]
    sums.running[2].set_result("c")
    await settle()
    sums.running[3].set_result("d")
    found = await task
    assert sorted(found) == [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e")]
    assert found[-2:] == [(2, "c"), (3, "d")]


async def test_side_by_side_takes_no_more_than_its_bound_at_a_time() -> None:
    sums = Sums()
    count = 2 * CONCURRENT_SUMS + 1
    task = asyncio.create_task(collect(requests_of(*[(client,) for client in range(count)]), sums))
    most = 0
    while not task.done():
        await settle()
        most = max(most, len(sums.running))
        for future in list(sums.running.values())[:1]:
            future.set_result("")
    assert most == CONCURRENT_SUMS
    assert sorted(number for number, _ in await task) == list(range(count))
    assert sums.begun == list(range(count))


async def test_side_by_side_leaves_nothing_running_where_one_fails() -> None:
    sums = Sums()
    task = asyncio.create_task(collect(requests_of((0,), (1,), (0, 1)), sums))
    await settle()
    sums.running[1].set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await task
    assert sums.running == {}
    assert sums.begun == [0, 1]


async def test_conversation_keeps_no_more_than_two_messages_that_nobody_has_read() -> None:
    # The link is not used: nothing is sent.
    member = ConnectedClient(4, "clinic-e", None, b"", cast("ClientChannel", None), b"")
    members = cast("ConnectedClients", SimpleNamespace(present={4: member}))
    talk = ClientExchange(members, [4], 1)
    talk.put(member, b"a")
    talk.put(member, b"b")
    with pytest.raises(FederationProtocolError, match="more than it was asked for"):
        talk.put(member, b"c")
    assert [await talk.receive() for _ in range(2)] == [(0, b"a"), (0, b"b")]
