"""Echoes: a message that was told differently is not used, and the error names whom it can."""

import asyncio
from collections.abc import Mapping

import pytest

from protocols.context import Context
from protocols.echo import echo
from protocols.errors import ProtocolViolation
from tests.protocols.local import run_parties

TOLD = {0: b"list of 0", 1: b"", 2: b"list of 2"}


def echoing(heard: Mapping[int, Mapping[int, bytes]]) -> list[ProtocolViolation | None]:
    """Results of an echo of TOLD, if parties have `heard` other values of some authors."""

    async def party(ctx: Context) -> ProtocolViolation | None:
        try:
            await echo(ctx, TOLD | dict(heard.get(ctx.pid, {})))
        except ProtocolViolation as violation:
            return violation
        return None

    return run_parties(party).results


def test_echo_passes_where_all_heard_the_same() -> None:
    assert echoing({}) == [None] * 3


@pytest.mark.parametrize("author", range(3))
def test_echo_names_the_author_when_two_heard_different_things(author: int) -> None:
    deceived = (author + 1) % 3
    errors = echoing({deceived: {author: b"something else"}})
    third = errors[(author + 2) % 3]
    assert third is not None
    assert third.pid == author
    assert "different things" in str(third)
    assert errors[deceived] is not None
    assert errors[deceived].pid == author


def test_echo_names_who_says_to_have_heard_otherwise_of_this_party() -> None:
    error = echoing({1: {0: b"something else"}})[0]
    assert error is not None
    assert error.pid == 1


def test_echo_refuses_digests_of_another_number_of_messages() -> None:
    async def party(ctx: Context) -> None:
        if ctx.pid == 1:
            await ctx.exchange(bytes(31))
        else:
            await echo(ctx, {0: b"model"})

    async def all_three(ctx: Context) -> ProtocolViolation | None:
        try:
            await asyncio.wait_for(party(ctx), 5)
        except ProtocolViolation as violation:
            return violation
        return None

    zero, one, two = run_parties(all_three).results
    assert one is None
    assert zero is not None
    assert two is not None
    assert "echoed 31 bytes" in str(zero)
