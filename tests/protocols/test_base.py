"""Input, reshare, multiply, open and the ways to components, against plain ring arithmetic."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import base
from protocols.context import Context
from protocols.errors import CheckFailed, ProtocolViolation
from protocols.ring import BITS, R16, R32, R64, R128, Ring
from tests.protocols.local import (
    LocalMesh,
    LocalParty,
    components,
    reconstruct,
    run_parties,
    share_of,
)

RINGS = [R32, R64, R128, BITS]
SHAPES = [(), (0,), (1,), (7,), (2, 3)]


def values(ring: Ring, shape: tuple[int, ...], seed: int) -> np.ndarray:
    raw = np.random.default_rng(seed).integers(
        0, 256, int(np.prod(shape)) * ring.itemsize, np.uint8
    )
    return ring.from_wire(raw, shape)


def split(ring: Ring, x: np.ndarray, seed: int) -> list[np.ndarray]:
    a, b = values(ring, x.shape, seed), values(ring, x.shape, seed + 1)
    return [a, b, ring.sub(ring.sub(x, a), b)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
@pytest.mark.parametrize("rotate", [0, 1])
def test_multiply_and_open_equal_plain_product(
    ring: Ring, shape: tuple[int, ...], rotate: int
) -> None:
    x, y = values(ring, shape, 1), values(ring, shape, 2)
    x_parts, y_parts = split(ring, x, 3), split(ring, y, 5)

    async def program(ctx: Context) -> tuple[object, np.ndarray]:
        z_sh = await base.multiply(ctx, share_of(ctx, x_parts, ring), share_of(ctx, y_parts, ring))
        return z_sh, await base.open_value(ctx, z_sh, "z")

    outcome = run_parties(program, rotate=rotate)
    expected = ring.mul(x, y)
    assert np.array_equal(reconstruct([share for share, _ in outcome.results]), expected)
    for _, opened in outcome.results:
        assert np.array_equal(opened, expected)


@pytest.mark.parametrize("dealer", [0, 1, 2])
@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
def test_share_input_reconstructs_for_each_dealer(ring: Ring, dealer: int) -> None:
    x = values(ring, (5,), 1)
    outcome = run_parties(
        lambda c: base.share_input(c, ring, dealer, x if c.pid == dealer else None, (5,))
    )
    assert np.array_equal(reconstruct(outcome.results), x)


@pytest.mark.parametrize("component", [0, 1, 2])
def test_known_shares_without_a_message(component: int) -> None:
    x = values(R64, (4,), 1)

    async def program(ctx: Context) -> object:
        holds = component in (ctx.pid, ctx.next_pid)
        return base.known(ctx, R64, component, x if holds else None, (4,))

    outcome = run_parties(program)
    assert outcome.sent_bytes == [0, 0, 0]
    assert np.array_equal(reconstruct(outcome.results), x)


@pytest.mark.parametrize("component", [0, 1, 2])
def test_reveal_component_tells_its_holders_only(component: int) -> None:
    x = values(R64, (4,), 1)
    parts = split(R64, x, 2)

    async def program(ctx: Context) -> object:
        return await base.reveal_component(ctx, share_of(ctx, parts, R64), component)

    outcome = run_parties(program)
    for pid, result in enumerate(outcome.results):
        if component in (pid, (pid + 1) % 3):
            assert np.array_equal(result, x)
        else:
            assert result is None
            assert outcome.received(pid) == []


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=40))
def test_inner_product_equals_plain_sum_for_one_element(x: list[int]) -> None:
    parts = components(R32, x)

    async def program(ctx: Context) -> object:
        x_sh = share_of(ctx, parts, R32)
        return await base.inner_product(ctx, x_sh, x_sh)

    outcome = run_parties(program)
    assert int(reconstruct(outcome.results)) == sum(v * v for v in x) % 2**32
    assert outcome.sent_bytes == [4, 4, 4]


def test_random_is_fresh_and_common() -> None:
    async def program(ctx: Context) -> object:
        return (
            base.random(ctx, R64, (3,)),
            base.random(ctx, R64, (3,)),
            base.random(ctx.child(), R64, (3,)),
        )

    outcome = run_parties(program)
    drawn = [reconstruct([result[i] for result in outcome.results]).tolist() for i in range(3)]
    assert len({value for values_ in drawn for value in values_}) == 9


def test_private_randomness_is_fresh_in_every_context() -> None:
    """A private mask that came back in another context would show the difference of what it masks."""

    async def program(ctx: Context) -> list[int]:
        places = [ctx, ctx, ctx.child(), ctx.child(rotate=1)]
        places += await ctx.gather(_itself, _itself)
        with ctx.step("step") as c:
            places.append(c)
        return [int(place.private(R64, ())) for place in places]

    drawn = [value for result in run_parties(program).results for value in result]
    assert len(set(drawn)) == 3 * 7


def test_gather_ends_what_waits_when_one_fails() -> None:
    """The other half of a protocol would wait for messages that do not come."""
    ended: list[bool] = []

    async def fails(_: Context) -> None:
        await asyncio.sleep(0)
        raise CheckFailed("half of it")

    async def waits(_: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def main() -> None:
        ctx = Context(LocalParty(LocalMesh(1), 0), b"test")
        async with asyncio.timeout(10):
            await ctx.gather(waits, fails, waits)

    with pytest.raises(CheckFailed, match="half of it"):
        asyncio.run(main())
    assert ended == [True, True]


async def _itself(ctx: Context) -> Context:
    return ctx


def test_share_input_rejects_missing_value_and_wrong_shape() -> None:
    async def program(ctx: Context) -> None:
        value = np.zeros(2, np.uint32) if ctx.pid == 0 else None
        with pytest.raises(ValueError, match="shape"):
            await base.share_input(ctx, R32, ctx.pid, value, (3,))

    run_parties(program)


def test_open_value_fails_when_a_component_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = split(R32, values(R32, (4,), 1), 2)
    fetch = LocalParty.fetch

    async def flipping(self: LocalParty, peer: int, *rest: object) -> np.ndarray:
        payload = await fetch(self, peer, *rest)  # type: ignore[arg-type]
        if self.pid == 1 and peer == 0:
            payload[0] ^= 1
        return payload

    monkeypatch.setattr(LocalParty, "fetch", flipping)
    with pytest.raises(CheckFailed, match=r"by party \d and party \d while opening total"):
        run_parties(lambda c: base.open_value(c, share_of(c, parts, R32), "total"))


def test_round_rejects_a_payload_of_another_size(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = LocalParty.fetch

    async def truncating(self: LocalParty, peer: int, *rest: object) -> np.ndarray:
        return (await fetch(self, peer, *rest))[:-1]  # type: ignore[arg-type]

    monkeypatch.setattr(LocalParty, "fetch", truncating)
    with pytest.raises(ProtocolViolation, match="sent 15 bytes in step 'setup' where 16 were due"):
        run_parties(
            lambda c: base.multiply(c, base.random(c, R32, (4,)), base.random(c, R32, (4,)))
        )


def test_open_value_is_recorded() -> None:
    outcome = run_parties(lambda c: base.open_value(c, base.random(c, R32, (4,)), "four"))
    for party in outcome.parties:
        assert [(o.what, o.count) for o in party.costs.openings] == [("four", 4)]


async def _public(ctx: Context) -> tuple[list[bytes], bytes, bytes | None]:
    mine = f"party {ctx.pid}".encode()
    everyone = await ctx.exchange(mine)
    said = await ctx.broadcast(1, mine if ctx.pid == 1 else None)
    handed = await ctx.transfer(1, 2, b"x2" if ctx.pid == 1 else None)
    return everyone, said, handed


@pytest.mark.parametrize("call", ["exchange", "broadcast", "transfer"])
def test_public_messages_are_limited_in_size(call: str) -> None:
    async def program(ctx: Context, limit: int) -> None:
        if call == "exchange":
            await ctx.exchange(bytes(100), max_bytes=limit)
        elif call == "broadcast":
            await ctx.broadcast(0, bytes(100) if ctx.pid == 0 else None, max_bytes=limit)
        else:
            await ctx.transfer(0, 1, bytes(100) if ctx.pid == 0 else None, max_bytes=limit)

    run_parties(lambda c: program(c, 100))
    with pytest.raises(ProtocolViolation, match=r"sent 100 bytes .* at most 99 are"):
        run_parties(lambda c: program(c, 99))


def test_public_messages_arrive_where_they_should() -> None:
    outcome = run_parties(_public)
    assert [r[0] for r in outcome.results] == [[b"party 0", b"party 1", b"party 2"]] * 3
    assert [r[1] for r in outcome.results] == [b"party 1"] * 3
    assert [r[2] for r in outcome.results] == [None, None, b"x2"]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (40_000,)])
@pytest.mark.parametrize("ring", [BITS, R16, R32, R64, R128], ids=lambda ring: ring.name)
def test_subtract_common_takes_in_place_what_common_gives(
    ring: Ring, shape: tuple[int, ...]
) -> None:
    """Twice, so that the stream goes on where it was; among them more bytes than are drawn at once."""

    async def program(ctx: Context) -> None:
        same = Context(ctx._transport, ctx._path)
        for _ in range(2):
            x = base.random(ctx.child(), ring, shape).own
            expected = ring.sub(x, same.common(ctx.pid, ring, shape))
            ctx.subtract_common(ctx.pid, ring, x)
            assert np.array_equal(x, expected)

    run_parties(program)


@pytest.mark.parametrize("ring", [BITS, R32, R128], ids=lambda ring: ring.name)
def test_subtract_common_refuses_what_it_would_mask_a_copy_of(ring: Ring) -> None:
    async def program(ctx: Context) -> None:
        x = ring.zeros((4, 6))
        for part in (x.T, x[:, ::2], np.broadcast_to(ring.zeros((1,)), (4,)), ring.blank((3,))):
            with pytest.raises(ValueError, match="in one piece"):
                ctx.subtract_common(ctx.pid, ring, part)
        with pytest.raises(ValueError, match="does not hold"):
            ctx.subtract_common(ctx.prev_pid, ring, x)

    run_parties(program)
