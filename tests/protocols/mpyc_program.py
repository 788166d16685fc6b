"""An MPyC program of three parties that calls the bridge on MPyC's types, and prints results as JSON at each party.

Beside a result stands MPyC's own on the same secure numbers, where it has one. With the word ``leave`` on its command
line, party 2 ends early instead; with ``swap`` it makes its calls in another order than the others.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from mpyc.runtime import mpc

import syncret
from protocols import gumbel as gumbels
from protocols import select as selecting
from protocols.context import Context
from protocols.discrete import Sampler, discrete_gaussian
from protocols.errors import ProtocolError
from protocols.measure import measure, noise_of
from protocols.ring import R64
from protocols.shares import Share

COUNTS = [5, 0, 7, 90, 3, 12, 4, 4, 8, 15]
GUESSES = [[9.5, 3.0, 1.0], [70.25, 20.0], [10.0, 5.5, 0.0, 6.0, 15.0]]
SIGNED = [5, -7, 0, 1000, -1024, 1023]
MAX_ROWS = 200
REPEATS = 6
PRIME = (1 << 61) - 1

Bridge = Any
"""``syncret.mpyc.Bridge``."""


def numbers(x: Any) -> list[float]:
    """Plain numbers of an output of MPyC's."""
    plain = x.signed_() if hasattr(x, "signed_") else x
    found: list[float] = np.asarray(plain).astype(float).reshape(-1).tolist()
    return found


async def there_and_back(bridge: Bridge) -> dict[str, list[float]]:
    """Converts signed numbers of each type to shares and back, and opens them by MPyC."""
    found = {}
    for name, sectype, bits in (
        ("SecInt one round", mpc.SecInt(32), 12),
        ("SecInt exact", mpc.SecInt(32), None),
        ("SecInt(64)", mpc.SecInt(64), 24),
        ("SecFld small", mpc.SecFld(4099, signed=True), None),
        ("SecFld large", mpc.SecFld(PRIME, signed=True), None),
        ("SecFxp", mpc.SecFxp(48, 8), 20),
    ):
        secret = mpc.input(sectype.array(np.array(SIGNED, dtype=object)), senders=1)
        if name == "SecFxp":
            secret = secret * 0.25
        x_sh = await bridge.to_share(secret, bits=bits, ring=R64)
        fraction = getattr(sectype, "frac_length", 0)
        back = await bridge.to_secure(x_sh, sectype, bits=bits or 12, fraction_bits=fraction)
        found[name] = numbers(await mpc.output(back + 1))
    listed = [mpc.SecInt(32)(number) for number in SIGNED]
    listed = mpc.input(listed, senders=0)
    back = await bridge.to_secure(await bridge.to_share(listed, bits=12), mpc.SecInt(16), bits=12)
    found["list"] = numbers(await mpc.output(back))
    grid = mpc.input(mpc.SecInt(32).array(np.array(SIGNED).reshape(2, 3)), senders=2)
    back = await bridge.to_secure(await bridge.to_share(grid, bits=12), mpc.SecInt(32), bits=12)
    found["grid"] = [*back.shape, *numbers(await mpc.output(back))]
    return found


async def counts_of(sectype: Any) -> Any:
    """Counts that party 0 has."""
    return mpc.input(sectype.array(np.array(COUNTS)), senders=0)


def errors_by_mpyc(counts: Any) -> list[Any]:
    """Sums of |2^6 x - y| in MPyC's types."""
    sums, start = [], 0
    for guess in GUESSES:
        y = np.array([round(64 * value) for value in guess], dtype=object)
        distances = mpc.np_absolute(counts[start : start + len(guess)] * 64 - y)
        sums.append(mpc.np_sum(distances))
        start += len(guess)
    return sums


async def selections(bridge: Bridge) -> list[list[int]]:
    """Chooses by this engine and by MPyC, each time with one noise for both."""
    counts, secint = await counts_of(mpc.SecInt(64)), mpc.SecInt(64)
    spec = syncret.mpyc.ErrorSelection.of(GUESSES, epsilon=0.05, max_rows=MAX_ROWS)
    chosen = []
    for _ in range(REPEATS):
        noise_sh = await gumbels.gumbel(bridge.context.child(), len(GUESSES))

        async def noise(ctx: Context, count: int, noise_sh: Share = noise_sh) -> Share:
            return noise_sh

        x_sh = await bridge.to_share(counts, bits=9)
        ours = await selecting.select(bridge.context.child(), x_sh, spec, noise=noise)
        secret = await bridge.to_secure(noise_sh, secint, bits=40)
        scores = [
            error * gain + secret[i]
            for i, (error, gain) in enumerate(zip(errors_by_mpyc(counts), spec.gains, strict=True))
        ]
        index, _ = mpc.argmax(scores)
        chosen.append([ours, int(await mpc.output(index))])
    chosen.append([await bridge.select(counts, spec)] * 2)
    return chosen


async def measurements(bridge: Bridge) -> list[list[float]]:
    """Opens noisy counts by this engine and by MPyC, with one noise for both; then by the bridge's own."""
    secint = mpc.SecInt(32)
    counts = await counts_of(secint)
    noise_sh = await discrete_gaussian(bridge.context.child(), len(COUNTS), Sampler.of(3.0))
    x_sh = await bridge.to_share(counts, bits=9)
    ours = await measure(
        bridge.context.child(),
        x_sh,
        3.0,
        MAX_ROWS,
        noise_of("discrete-gaussian"),
        prepared=noise_sh,
    )
    noise = await bridge.to_secure(noise_sh, secint, bits=8)
    found = [ours.tolist(), numbers(await mpc.output(counts + noise))]
    for kind, sectype in (
        ("discrete-gaussian", secint),
        ("box-muller", mpc.SecFxp(40, 8)),
        ("distributed", mpc.SecFld(PRIME)),
    ):
        noisy = await bridge.measure(
            await counts_of(sectype), sigma=3.0, max_rows=MAX_ROWS, noise=kind
        )
        found.append(noisy.tolist())
    return found


async def errors(bridge: Bridge) -> list[list[float]]:
    """Computes absolute errors to whole numbers by this engine and by MPyC."""
    found = []
    for sectype in (mpc.SecInt(32), mpc.SecFxp(32, 4)):
        counts = await counts_of(sectype)
        answers = np.array([9, 3, 1, 70, 20, 10, 5, 0, 6, 15])
        sizes = np.array([3, 2, 5])
        ours = await bridge.absolute_error(
            counts, answers.astype(np.uint32), sizes, max_rows=MAX_ROWS
        )
        found.append(numbers(await mpc.output(ours)))
        distances = mpc.np_absolute(counts - answers)
        sums = [mpc.np_sum(distances[a:b]) for a, b in ((0, 3), (3, 5), (5, 10))]
        found.append(numbers(await mpc.output(sums)))
    return found


async def samples(bridge: Bridge) -> list[list[float]]:
    """Draws discrete and continuous Gaussian samples, and opens them by MPyC."""
    discrete = await bridge.discrete_gaussian(mpc.SecInt(32), 300, sigma=5.0)
    found = [numbers(await mpc.output(discrete))]
    for secfxp in (mpc.SecFxp(48, 16), mpc.SecFxp(64, 30)):
        found.append(numbers(await mpc.output(await bridge.box_muller(secfxp, 300))))
    return found


async def joined(bridge: Bridge) -> list[list[float]]:
    """Joins patients with their stays."""
    secint, secfld = mpc.SecInt(32), mpc.SecFld(PRIME)

    def of(sectype: Any, values: list[int]) -> Any:
        return mpc.input(sectype.array(np.array(values)), senders=0)

    patients = syncret.mpyc.SecureRows(of(secint, [11, 12, 13]), 16, [of(secfld, [1, 0, 1])], [1])
    stays = syncret.mpyc.SecureRows(
        of(secint, [12, 11, 99, 12, 60000]), 16, [of(secint, [300, 4, 5, 6, 7])], [9], per_key=2
    )
    present, columns = await bridge.join([patients, stays])
    return [numbers(await mpc.output(x)) for x in (present, columns[0][0], columns[1][0])]


async def scalars(bridge: Bridge) -> list[list[float]]:
    """Measures one number, with a bound of NumPy's."""
    return [
        numbers(await bridge.measure(one, sigma=0.5, max_rows=np.int64(9)))
        for one in (mpc.SecInt(32)(4), mpc.SecFxp(32, 8)(4))
    ]


async def side_by_side(bridge: Bridge) -> list[list[float]]:
    """Measures twice at once, between computations of MPyC's own."""
    counts = await counts_of(mpc.SecInt(32))
    both = await asyncio.gather(
        bridge.measure(counts * 2, sigma=0.5, max_rows=MAX_ROWS),
        bridge.measure(counts * counts, sigma=0.5, max_rows=10_000),
    )
    return [noisy.tolist() for noisy in both]


async def refused(bridge: Bridge) -> list[str]:
    """Collects what is said about arguments that do not fit."""
    secint, secfxp, half = mpc.SecInt(32), mpc.SecFxp(32, 8), np.array([0.5])

    def errors_of(answers: list[float], sizes: list[int]) -> Awaitable[object]:
        x = secint.array(np.array([3, 4]))
        return bridge.absolute_error(x, np.array(answers), np.array(sizes, np.int64), max_rows=9)

    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: bridge.to_share(mpc.SecFld(2**8).array(np.array([1], dtype=object))),
        lambda: bridge.to_share(mpc.SecFld(2).array(np.array([1], dtype=object))),
        lambda: bridge.to_share(np.array([1])),
        lambda: bridge.measure(secfxp.array(half), sigma=1.0, max_rows=9),
        lambda: bridge.box_muller(secint, 3),
        lambda: bridge.discrete_gaussian(mpc.SecInt(4), 3, sigma=20.0),
        lambda: bridge.join([syncret.mpyc.SecureRows([secint(1)], 63)]),
        lambda: bridge.to_share([]),
        lambda: bridge.to_share([[secint(1)], [secint(2)]]),
        lambda: bridge.to_share([secint(1), secfxp(2)]),
        lambda: bridge.measure(secint(1), sigma=1.0, max_rows=-10),
        lambda: bridge.discrete_gaussian(secint, -1, sigma=2.0),
        lambda: errors_of([1, 1], [1, 2]),
        lambda: errors_of([1, 1], [1, 1, 0]),
        lambda: errors_of([], []),
        lambda: errors_of([1.5, 1], [1, 1]),
        lambda: errors_of([1000, -1000], [2]),
    ]
    found = []
    for call in calls:
        try:
            await call()
        except (TypeError, ValueError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


PARTS = {
    part.__name__: part
    for part in (
        there_and_back,
        selections,
        measurements,
        errors,
        samples,
        joined,
        scalars,
        side_by_side,
    )
}


async def leave() -> None:
    """Runs one party of a program that party 2 leaves without a word."""
    async with mpc:
        bridge = await syncret.mpyc.open_bridge(mpc)
        if mpc.pid == 2:
            os._exit(0)
        await bridge.measure(await counts_of(mpc.SecInt(32)), sigma=3.0, max_rows=MAX_ROWS)


async def swap() -> None:
    """Runs one party of a program in which party 2 makes both calls of each pair in the other order."""
    secint = mpc.SecInt(32)
    async with mpc:
        bridge = await syncret.mpyc.open_bridge(mpc, timeout_s=3.0)
        counts = await counts_of(secint)
        specs = [
            syncret.mpyc.ErrorSelection.of(guesses, epsilon=1.0, max_rows=MAX_ROWS)
            for guesses in (GUESSES, GUESSES[::-1])
        ]
        x_sh = await bridge.to_share(counts, bits=9)
        grid = mpc.np_reshape(counts, (2, 5))
        pairs: list[list[Callable[[], Awaitable[object]]]] = [
            [
                lambda rows=rows: bridge.measure(counts, sigma=3.0, max_rows=rows)
                for rows in (90, 900)
            ],
            [lambda spec=spec: bridge.select(counts, spec) for spec in specs],
            [lambda x=x: bridge.to_share(x, bits=9) for x in (counts, grid)],
            [lambda b=bits: bridge.to_secure(x_sh, secint, bits=b) for bits in (9, 10)],
            [lambda s=sigma: bridge.discrete_gaussian(secint, 3, sigma=s) for sigma in (3.0, 3.1)],
        ]
        calls = [call() for pair in pairs for call in (pair[::-1] if mpc.pid == 2 else pair)]
        ended = await asyncio.gather(*calls, return_exceptions=True)
        found = [f"{type(error).__name__}: {error}" for error in ended]
    sys.stdout.write(json.dumps(found) + "\n")


async def main() -> None:
    """Runs one party."""
    found: dict[str, Any] = {}
    try:
        await syncret.mpyc.open_bridge(mpc)
    except ProtocolError as error:
        found["not started"] = str(error)
    async with mpc:
        bridge = await syncret.mpyc.open_bridge(mpc)
        another = await syncret.mpyc.open_bridge(mpc)
        for name, part in PARTS.items():
            found[name] = await part(bridge if name != "errors" else another)
        found["refused"] = await refused(bridge)
        found["rounds"], found["sent_bytes"] = bridge.rounds, bridge.sent_bytes
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    program = leave if "leave" in sys.argv else swap if "swap" in sys.argv else main
    mpc.run(program())
