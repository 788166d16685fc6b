"""Noise of a name: the same over meshes, whose masks are fresh; another one for any other name, key or party."""

import hashlib
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from protocols.base import noise, random
from protocols.context import Context, NoiseKeys, NoiseSource
from protocols.gumbel import gumbel
from protocols.measure import measure, noise_of
from protocols.noise_kinds import BOX_MULLER, DISCRETE, DISTRIBUTED
from protocols.ring import BITS, R32, RingArray
from protocols.shares import Share
from protocols.supply import GumbelSupply
from protocols.verify import ProductVerifier
from tests.protocols.local import Outcome, components, reconstruct, run_parties, share_of

NAME, OTHER = hashlib.sha256(b"one").digest(), hashlib.sha256(b"other").digest()
COMPONENTS = [hashlib.sha256(b"component %d" % c).digest()[:16] for c in range(3)]
PRIVATE = [hashlib.sha256(b"private %d" % c).digest()[:16] for c in range(3)]

Sampling = Callable[[Context], Awaitable[Share]]


def keys_of(pid: int, changed: int | None = None) -> NoiseKeys:
    """A party's noise keys; those of component ``changed``, and of the party of that number, are others."""
    keys = [bytes(16) if c == changed else key for c, key in enumerate(COMPONENTS)]
    private = bytes(16) if pid == changed else PRIVATE[pid]
    return NoiseKeys(keys[pid], keys[(pid + 1) % 3], private)


def samples_of(kind: str, count: int) -> Sampling:
    if kind == "gumbel":
        return lambda ctx: gumbel(ctx, count)
    return lambda ctx: noise_of(kind).samples(ctx, count, 21.5, 1000)


def drawn(
    sampling: Sampling,
    seed: int,
    *,
    name: bytes | None = NAME,
    changed: int | None = None,
    verified: bool = False,
) -> tuple[RingArray, Outcome]:
    """Sample drawn in a mesh whose own keys are those of ``seed``, and the mesh's messages."""

    async def program(ctx: Context) -> Share:
        if verified:
            ctx.verifier = ProductVerifier()
        source = None if name is None else NoiseSource(keys_of(ctx.pid, changed), name)
        with ctx.noise_of(source) as c:
            share = await sampling(c)
        if ctx.verifier is not None:
            await ctx.verifier.settle(ctx)
        return share

    outcome = run_parties(program, seed=seed)
    return reconstruct(outcome.results), outcome


CASES = [
    (DISCRETE, 70, False),
    (DISCRETE, 33_000, False),
    (DISCRETE, 70, True),
    (BOX_MULLER, 70, False),
    (BOX_MULLER, 70, True),
    (DISTRIBUTED, 70, False),
    ("gumbel", 70, False),
    ("gumbel", 70, True),
]


@pytest.mark.parametrize(("kind", "count", "verified"), CASES)
def test_noise_of_a_name_is_the_same_in_every_mesh(kind: str, count: int, verified: bool) -> None:
    """33,000 samples are two blocks, in which the parties' roles rotate."""
    sampling = samples_of(kind, count)
    first, _ = drawn(sampling, 1, verified=verified)
    again, _ = drawn(sampling, 2, verified=verified)
    assert np.array_equal(first, again)
    # The control: without a name noise is as fresh as the mesh.
    fresh = [drawn(sampling, seed, name=None, verified=verified)[0] for seed in (1, 2)]
    assert not np.array_equal(*fresh)
    # 70 samples of any two kinds of noise agree in few places by chance.
    others = [drawn(sampling, 1, name=OTHER, verified=verified)[0]]
    others += [drawn(sampling, 1, changed=c, verified=verified)[0] for c in range(3)]
    for other in others:
        assert np.mean(np.asarray(other == first)) < 0.2


@pytest.mark.parametrize("kind", [DISCRETE, BOX_MULLER, "gumbel"])
def test_messages_of_the_same_noise_are_masked_anew(kind: str) -> None:
    """Of two meshes that draw the same noise no message of a share is the same; but for masked values of Box-Muller.

    These are a value and a mask of one party's own, both of the name: the two who see them see them again.
    """
    sampling = samples_of(kind, 640)
    pairs = zip(*(drawn(sampling, seed)[1].mesh.sent for seed in (1, 2)), strict=True)
    same = [one for one, other in pairs if one.payload == other.payload]
    assert all(kind == BOX_MULLER and one.sender == 2 for one in same)


def test_masks_are_never_of_a_name() -> None:
    """Masks drawn by ``random`` may differ: they are the mesh's own within a name, too."""

    async def program(ctx: Context) -> tuple[Share, Share]:
        with ctx.noise_of(NoiseSource(keys_of(ctx.pid), NAME)) as c:
            return random(c, BITS, (8,)), noise(c, BITS, (8,))

    masks, values = [], []
    for seed in (1, 2):
        results = run_parties(program, seed=seed).results
        masks.append(reconstruct([mask for mask, _ in results]))
        values.append(reconstruct([value for _, value in results]))
    assert not np.array_equal(*masks)
    assert np.array_equal(*values)


@pytest.mark.parametrize("kind", [DISCRETE, BOX_MULLER, DISTRIBUTED])
def test_measure_opens_the_same_of_the_same_counts_in_other_shares(kind: str) -> None:
    values = np.random.default_rng(3).integers(0, 500, 65).tolist()

    def opened(seed: int) -> RingArray:
        parts = components(R32, values, seed)

        async def program(ctx: Context) -> RingArray:
            source = NoiseSource(keys_of(ctx.pid), NAME)
            share = share_of(ctx, parts, R32)
            return await measure(ctx, share, 21.5, 1000, noise_of(kind), source=source)

        return np.asarray(run_parties(program, seed=seed).results[0])

    assert np.array_equal(opened(1), opened(2))


def test_a_supply_that_begins_again_goes_on_with_the_samples_that_are_left() -> None:
    async def whole(ctx: Context) -> list[Share]:
        supply, source = GumbelSupply(), NoiseSource(keys_of(ctx.pid), NAME)
        return [
            await supply.take(ctx, 10, 0 if n else 40, source=None if n else source)
            for n in range(4)
        ]

    async def restarted(ctx: Context) -> list[Share]:
        supply, source = GumbelSupply(), NoiseSource(keys_of(ctx.pid), NAME)
        return [
            await supply.take(ctx, 10, 40, source=source, skip=20),
            await supply.take(ctx, 10, 0),
        ]

    first = [
        reconstruct(list(shares))
        for shares in zip(*run_parties(whole, seed=1).results, strict=True)
    ]
    then = [
        reconstruct(list(shares))
        for shares in zip(*run_parties(restarted, seed=2).results, strict=True)
    ]
    assert [part.tolist() for part in then] == [part.tolist() for part in first[2:]]


def test_noise_of_fixed_keys_is_what_it_always_was() -> None:
    """Another stream would draw openings again that were charged: a change of it is a new version of messages."""
    found = {
        kind: hashlib.sha256(drawn(samples_of(kind, 64), 5)[0].astype("<u8").tobytes()).hexdigest()[
            :16
        ]
        for kind in (DISCRETE, BOX_MULLER, DISTRIBUTED, "gumbel")
    }
    assert found == KNOWN


KNOWN = {
    DISCRETE: "ec5f5d55dee54ae9",
    BOX_MULLER: "933c55a1cef80ed1",
    DISTRIBUTED: "4b9a0e170153c98e",
    "gumbel": "76a46c6818373fb2",
}


def test_keys_show_nothing_and_are_of_one_size() -> None:
    assert "component" not in repr(keys_of(0))
    assert repr(keys_of(0)) == "NoiseKeys(...)"
    with pytest.raises(ValueError, match="a noise key has 16 bytes"):
        NoiseKeys(b"", bytes(16), bytes(16))
