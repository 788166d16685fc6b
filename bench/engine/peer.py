"""The peer of a measurement: MPyC's own secure types on the same task.

``python -m bench.engine.peer TASK SIZE REPEAT``, then MPyC's own options; prints {"seconds": [...]} at each party.
The programs are written as a user of MPyC would: secure arrays, and MPyC's own operations. MPyC shares Python integers
modulo a prime by Shamir's scheme, for any number of parties, and is exact and general where this engine is neither.
Operations that MPyC does not have on arrays (the exponential; the logarithm and root of Box-Muller) are built by the
same formulas as the engine's. Connections are plain TCP, MPyC's default. Benchmark data is generated and public.
"""

import itertools
import json
import math
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

GROUPS = 64
CANDIDATES = 250
FRACTION_BITS = 6
BOUND_BITS = 23
# Box-Muller: bits of the exponent's run, of mantissa and angle; degrees of the polynomials.
_RUN_BITS = 40
_UNIFORM_BITS = 22
_DEGREE = 6
_ANGLE_TERMS = 4
# Discrete Gaussian: its deviation, and bits of the number that is compared with the table.
SIGMA = 20.889
_COIN_BITS = 64

# MPyC is untyped: ``mpc`` is its runtime, arrays and results are its secure objects.
Input = Callable[[Any, int], Any]
Program = Callable[[Any, Any, int], Awaitable[object]]


def _none(mpc: Any, size: int) -> None:
    del mpc, size


def _integers(bits: int) -> Input:
    """Returns an input of ones that party 0 shares before the clock starts."""
    return lambda mpc, size: mpc.input(
        mpc.SecInt(bits).array(np.ones(size, dtype=object)), senders=0
    )


async def expand_input(mpc: Any, _: Any, size: int) -> object:
    """Shares a data owner's counts from party 0."""
    return await mpc.gather(_integers(32)(mpc, size))


async def multiply(mpc: Any, x: Any, _: int) -> object:
    """Multiplies element by element."""
    return await mpc.gather(x * x)


async def truncate(mpc: Any, x: Any, _: int) -> object:
    """Truncates by 20 bits."""
    return await mpc.gather(mpc.np_trunc(x, f=20))


async def abs_error(mpc: Any, x: Any, _: int) -> object:
    """Computes sums of |64 x - y| in 64 groups."""
    return await mpc.gather(_grouped(mpc, x, GROUPS))


async def select(mpc: Any, x: Any, _: int) -> object:
    """Runs the exponential mechanism over the errors of 250 groups, and opens the index."""
    secfxp = mpc.SecFxp(64, 24)
    errors = mpc.np_fromlist(mpc.convert(_grouped(mpc, x, CANDIDATES), secfxp))
    # e^-z as (1 - z/1024)^1024, with z at most 16.
    distance = (mpc.np_amax(errors) - errors) * 2**-FRACTION_BITS
    weights = 1 - mpc.np_minimum(distance, 16) * 2**-10
    for _ in range(10):
        weights = weights * weights
    sums = mpc.np_cumsum(weights)
    uniform = _uniform(mpc, secfxp, 1)
    return await mpc.output(mpc.np_sum(mpc.np_less(sums, sums[-1] * uniform)))


async def box_muller(mpc: Any, _: Any, size: int) -> object:
    """Draws Gaussian samples from random bits: a radius by polynomials that a one-hot picks, an angle by octants."""
    secfxp, pairs = mpc.SecFxp(48, 24), -(-size // 2)

    def bit() -> Any:
        return mpc.np_random_bits(secfxp, pairs)

    # One-hot of the position of the first one among the bits, on either side of 1/2.
    none_yet, one_hot = 1 - bit(), []
    one_hot.append(1 - none_yet)
    for _ in range(_RUN_BITS - 1):
        one_hot.append(none_yet * bit())
        none_yet = none_yet - one_hot[-1]
    side, rows = bit(), mpc.np_stack(one_hot)
    near_one = rows * side
    coefficients = _radius_table().T @ mpc.np_vstack((rows - near_one, near_one))
    mantissa = _powers(_uniform(mpc, secfxp, pairs) - 0.5, _DEGREE)
    radius = coefficients[0]
    for i in range(_DEGREE):
        radius = radius + coefficients[i + 1] * mantissa[i]
    angle = [1, *_powers(_uniform(mpc, secfxp, pairs), 2 * _ANGLE_TERMS - 1)]
    scaled = [x * ((math.pi / 4) ** i / math.factorial(i)) for i, x in enumerate(angle)]
    cosine = sum((-1) ** k * scaled[2 * k] for k in range(_ANGLE_TERMS))
    sine = sum((-1) ** k * scaled[2 * k + 1] for k in range(_ANGLE_TERMS))
    swap = bit() * (sine - cosine)
    first, second = (cosine + swap) * (1 - 2 * bit()), (sine - swap) * (1 - 2 * bit())
    return await mpc.gather([radius * first, radius * second])


async def discrete_gaussian(mpc: Any, _: Any, size: int) -> object:
    """Compares 64 random bits with each entry of the cumulative table of the magnitudes; the sign is a random bit."""
    return await mpc.gather(_discrete_samples(mpc, size))


async def measure(mpc: Any, x: Any, size: int) -> object:
    """Adds discrete Gaussian samples to counts and opens the sum."""
    return await mpc.output(x + _discrete_samples(mpc, size))


def _discrete_samples(mpc: Any, size: int) -> Any:
    secint = mpc.SecInt(_COIN_BITS + 2)
    coins = sum(mpc.np_random_bits(secint, size) * 2**i for i in range(_COIN_BITS))
    magnitude = sum(mpc.np_less(threshold - 1, coins) for threshold in _cumulative_table())
    return magnitude * mpc.np_random_bits(secint, size, signed=True)


async def distributed_noise(mpc: Any, x: Any, _: int) -> object:
    """Adds noise that each party shares to counts and opens the sum. The noise's values do not matter here."""
    noise = mpc.input(mpc.SecInt(32).array(np.ones(len(x), dtype=object)))
    return await mpc.output(x + noise[0] + noise[1] + noise[2])


def _cumulative_table() -> list[int]:
    """Returns cumulative probabilities of the magnitudes of a discrete Gaussian, in units of 2^-64, below one."""
    weights = [math.exp(-m * m / (2 * SIGMA**2)) * (2 if m else 1) for m in range(int(9.5 * SIGMA))]
    units = [
        math.floor(part / sum(weights) * 2**_COIN_BITS) for part in itertools.accumulate(weights)
    ]
    return [unit for unit in units if unit < 2**_COIN_BITS]


def _uniform(mpc: Any, secfxp: Any, count: int) -> Any:
    """Returns samples uniform on [0, 1), from bits."""
    total = mpc.np_random_bits(secfxp, count) * 0.5
    for i in range(2, _UNIFORM_BITS + 1):
        total = total + mpc.np_random_bits(secfxp, count) * 2.0**-i
    return total


def _powers(x: Any, degree: int) -> list[Any]:
    """Returns x, x^2, ..., x^degree, each from two of half its degree."""
    powers = [x]
    for i in range(2, degree + 1):
        powers.append(powers[i // 2 - 1] * powers[(i + 1) // 2 - 1])
    return powers


def _radius_table() -> Any:
    """Coefficients in m - 1.5 of sqrt(-2 ln u), u = m 2^-(e+1), then of the same for 1 - u; a row for each e."""
    rows = []
    for near_one in (False, True):
        for e in range(_RUN_BITS):

            def radius(t: Any, e: int = e, near_one: bool = near_one) -> Any:
                u = np.ldexp(1.5 + t, -(e + 1))
                return np.sqrt(-2 * (np.log1p(-u) if near_one else np.log(u)))

            series = np.polynomial.chebyshev.Chebyshev.interpolate(
                radius, _DEGREE, domain=[-0.5, 0.5]
            )
            rows.append(series.convert(kind=np.polynomial.Polynomial).coef)
    return np.array(rows)


def _grouped(mpc: Any, x: Any, groups: int) -> Any:
    size = len(x)
    distance = mpc.np_absolute(
        x * (1 << FRACTION_BITS) - np.arange(size) * 7919 % 1000, l=BOUND_BITS
    )
    ends = np.linspace(0, size, min(groups, size) + 1).astype(int)
    return [mpc.np_sum(distance[start:end]) for start, end in itertools.pairwise(ends)]


PROGRAMS: dict[str, tuple[Input, Program]] = {
    "abs_error": (_integers(32), abs_error),
    "select": (_integers(32), select),
    "box_muller": (_none, box_muller),
    "discrete_gaussian": (_none, discrete_gaussian),
    "measure": (_integers(_COIN_BITS + 2), measure),
    "distributed_noise": (_integers(32), distributed_noise),
    "truncate": (_integers(44), truncate),
    "multiply": (_integers(32), multiply),
    "expand_input": (_none, expand_input),
}


async def _measure(mpc: Any, task: str, size: int, repeat: int) -> list[float]:
    prepare, program = PROGRAMS[task]
    seconds = []
    async with mpc:
        x = prepare(mpc, size)
        if x is not None:
            await mpc.gather(x)
        for _ in range(repeat):
            await mpc.barrier()
            started = time.perf_counter()
            await program(mpc, x, size)
            seconds.append(time.perf_counter() - started)
    return seconds


def main() -> None:
    """Runs one task; the command line is task, size, repetitions, and MPyC's own options."""
    from mpyc.runtime import mpc  # Takes its options off the command line.

    task, size, repeat = sys.argv[1:4]
    seconds = mpc.run(_measure(mpc, task, int(size), int(repeat)))
    sys.stdout.write(json.dumps({"seconds": seconds}) + "\n")


if __name__ == "__main__":
    main()
