"""The engine's timed tasks, on inputs that are made before the clock starts.

All data is generated and public; inputs are uniform shares or the same constants at all parties, and no protocol's work
depends on the values.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from bench.published import ADULT_CODES
from mechanisms.domain import Domain, Integer
from mechanisms.workload import Workload, draw_workload
from protocols import (
    absolute,
    base,
    count_bits,
    discrete,
    fixed,
    link,
    measure,
    noise_kinds,
    rows,
    select,
    select_spec,
    upload,
)
from protocols import box_muller as gaussian_noise
from protocols.bitslice import words_for
from protocols.context import Context
from protocols.products import NumpyProducts
from protocols.ring import BITS, R32, R64
from protocols.row_plan import CountPlan, plan_counting
from protocols.select_spec import SelectSpec, integer_bits
from protocols.shares import Share
from protocols.supply import AT_ONCE, GumbelSupply, lacking

GROUPS = 64
CANDIDATES = 250
SELECTIONS = AT_ONCE // CANDIDATES
# A 22-bit bound on differences: tables of 32,768 rows at 6 fractional bits.
DIFFERENCE_BITS = 23
MAX_ROWS = 1 << 15
TRUNCATED_BITS = 20
KEY_BITS, COLUMN_BITS = 96, 32
# For 14 columns, 10 rounds and epsilon = 1, delta = 1e-5.
SIGMA = 20.889
_BLOCK = 1 << 16
# The same at all parties; nothing here is secret.
_SEEDS = upload.UploadSeeds(bytes(16), bytes(range(16)))

Job = Callable[[Context], Awaitable[object]]
SEMI_HONEST, MALICIOUS = "semi-honest", "malicious"
SECURITIES = (SEMI_HONEST, MALICIOUS)


@dataclass(frozen=True, slots=True)
class Task:
    """One task of the benchmark.

    ``prepare(ctx, size)`` makes the input and returns the timed job. ``unit`` is the unit of ``size``. ``held_bytes``
    is a party's input for one unit, ``drawn_bytes`` the keystream of one unit beyond that of messages (``floor`` adds
    that of the messages). ``sizes`` are those of a sweep, ``default`` the one without. ``warm`` is the largest size of
    a first run that does not count. ``facts`` are figures that go to the results unchanged. ``times`` is the number of
    executions in one repetition: seconds, bytes, rounds and processor time are per execution. ``beside`` names a paired
    task that is timed too, in the same processes and in turns with this one, as often in a row, up to the default size
    and without proofs: two sets of processes differ by more than the ratio's limit. ``often`` multiplies the number of
    repetitions up to the default size, without proofs: a tenth of a second is short beside other load on a machine.
    ``provable`` is True if the task can be measured in malicious mode, too, and ``most_proved`` is the largest size of
    a sweep there.
    """

    prepare: Callable[[Context, int], Job]
    unit: str
    default: int
    sizes: tuple[int, ...]
    held_bytes: int
    drawn_bytes: int = 0
    facts: Callable[[], dict[str, float]] = dict
    warm: int = 1000
    times: int = 1
    beside: str = ""
    often: int = 1
    provable: bool = True
    most_proved: int = 10**7

    def compared(self, size: int, security: str) -> bool:
        """Returns True if the paired task ``beside`` is timed too."""
        return bool(self.beside) and size <= self.default and security == SEMI_HONEST

    def repetitions(self, repeat: int, size: int, security: str) -> int:
        """Returns the number of repetitions for ``repeat`` asked for: fewer for work with several executions each."""
        if size <= self.default and security == SEMI_HONEST:
            return repeat * self.often
        return max(1, repeat // self.times)

    def sizes_of(self, security: str) -> tuple[int, ...]:
        """Returns the sizes of a sweep in one mode; none if the task is not provable there."""
        if security == SEMI_HONEST:
            return self.sizes
        return tuple(size for size in self.sizes if self.provable and size <= self.most_proved)


def group_sizes(cells: int, groups: int) -> NDArray[np.int64]:
    """Returns the sizes of at most ``groups`` groups of nearly one size, ``cells`` cells in all."""
    ends = np.linspace(0, cells, min(groups, cells) + 1).astype(np.int64)
    return ends[1:] - ends[:-1]


def _answers(cells: int) -> NDArray[np.uint32]:
    # In blocks, so that making the input does not set the peak of memory.
    answers = np.empty(cells, dtype=np.uint32)
    for start in range(0, cells, _BLOCK):
        part = answers[start : start + _BLOCK]
        part[:] = np.arange(start, start + part.size) * 7919 % (MAX_ROWS << 6)
    return answers


def abs_error(ctx: Context, cells: int) -> Job:
    """Grouped absolute error of ``cells`` cells in 64 groups."""
    x_sh, answers = base.random(ctx, R32, (cells,)), _answers(cells)
    sizes = group_sizes(cells, GROUPS)
    return lambda c: absolute.grouped_absolute_error(
        c, x_sh, answers, sizes, fraction_bits=6, bits=DIFFERENCE_BITS
    )


def kept_bits(ctx: Context, cells: int) -> Job:
    """Computes the bits of ``cells`` counts that the sign of their errors needs, to be kept for later selections."""
    x_sh = base.random(ctx, R32, (cells,))
    return lambda c: count_bits.count_bits(c, x_sh, integer_bits(DIFFERENCE_BITS))


def kept_abs_error(ctx: Context, cells: int) -> Job:
    """As ``abs_error``, with kept bits of the counts."""
    x_sh, answers = base.random(ctx, R32, (cells,)), _answers(cells)
    sizes, bits = group_sizes(cells, GROUPS), integer_bits(DIFFERENCE_BITS)
    words = sum(words_for(int(size)) for size in sizes)
    kept = count_bits.CountBits(
        base.random(ctx, BITS, (bits, words)), base.random(ctx, BITS, ((bits - 1) // 2, words))
    )
    return lambda c: absolute.grouped_error_of_bits(
        c, x_sh, kept, answers, sizes, fraction_bits=6, bits=DIFFERENCE_BITS
    )


def selection(cells: int) -> SimpleNamespace:
    """Returns a selection among 250 candidates, with answers so small that no candidate's sum can wrap."""
    sizes = group_sizes(cells, CANDIDATES)
    return SimpleNamespace(
        sizes=sizes,
        answers=np.ones(cells, np.uint32),
        gains=(1 << 10,) * sizes.size,
        offsets=(0,) * sizes.size,
        max_rows=MAX_ROWS,
    )


def whole_select(ctx: Context, cells: int) -> Job:
    """Runs whole selections among 250 candidates of ``cells`` cells in all: as many as noise is made for at once."""
    spec, x_sh = selection(cells), base.random(ctx, R32, (cells,)).times(0)
    return lambda c: _selections(c, x_sh, spec)


async def _selections(
    ctx: Context, x_sh: Share, spec: SelectSpec, kept: count_bits.CountBits | None = None
) -> None:
    noise, count = GumbelSupply(), len(spec.sizes)
    for left in range(SELECTIONS, 0, -1):
        samples = lacking(noise.samples, count, count, left)
        await select.select(ctx, x_sh, spec, kept=kept, noise=partial(noise.take, lacking=samples))


def kept_select(ctx: Context, cells: int) -> Job:
    """As ``whole_select``, with kept bits of the counts."""
    spec, x_sh = selection(cells), base.random(ctx, R32, (cells,)).times(0)
    bits = integer_bits(select_spec.bounds(spec)[0])
    words = sum(words_for(int(size)) for size in spec.sizes)
    planes, pairs = (base.random(ctx, BITS, (n, words)).times(0) for n in (bits, (bits - 1) // 2))
    kept = count_bits.CountBits(planes, pairs)
    return lambda c: _selections(c, x_sh, spec, kept)


def box_muller(_: Context, samples: int) -> Job:
    """Draws standard Gaussian samples."""
    return lambda c: gaussian_noise.gaussian(c, samples)


def discrete_gaussian(_: Context, samples: int) -> Job:
    """Draws exact discrete Gaussian samples that no party knows."""
    sampler = discrete.Sampler.of(SIGMA)
    return lambda c: discrete.discrete_gaussian(c, samples, sampler)


def measure_marginal(ctx: Context, cells: int) -> Job:
    """Runs a whole noisy measurement of a marginal of ``cells`` cells, with exact noise that no party knows."""
    x_sh = base.random(ctx, R32, (cells,)).times(0)
    noise = measure.noise_of(noise_kinds.DISCRETE)
    return lambda c: measure.measure(c, x_sh, SIGMA, MAX_ROWS, noise)


def distributed_noise(ctx: Context, samples: int) -> Job:
    """Runs a noisy measurement: each party's own exact samples are drawn, shared and added, and the sum is opened."""
    x_sh = base.random(ctx, R32, (samples,)).times(0)
    noise = measure.noise_of(noise_kinds.DISTRIBUTED)
    return lambda c: measure.measure(c, x_sh, SIGMA, MAX_ROWS, noise)


def _discrete_facts() -> dict[str, float]:
    return {"sigma": SIGMA, "statistical_distance": discrete.Sampler.of(SIGMA).distance}


def _distributed_facts() -> dict[str, float]:
    # The two parts of the noise that one server does not know.
    part = discrete.Sampler.of(SIGMA / math.sqrt(2))
    return {"sigma": SIGMA, "statistical_distance": 2 * part.distance}


def truncate(ctx: Context, cells: int) -> Job:
    """Truncates in Z_2^64 by 20 bits."""
    x_sh = base.random(ctx, R64, (cells,))
    return lambda c: fixed.truncate(c, x_sh.additive(c), TRUNCATED_BITS)


def multiply(ctx: Context, cells: int) -> Job:
    """Multiplies in Z_2^64."""
    x_sh = base.random(ctx, R64, (cells,))
    return lambda c: base.multiply(c, x_sh, x_sh)


def expand_input(ctx: Context, cells: int) -> Job:
    """Expands a seeded upload into a party's two components; no messages."""
    bodies = upload.upload(np.zeros(cells, np.uint32), "seeded", _SEEDS).bodies
    mine = upload.parse_upload(ctx.pid, "seeded", bodies[ctx.pid], cells)

    async def expand(_: Context) -> object:
        return upload.components(mine)

    return expand


@lru_cache
def adult_queries() -> Workload:
    """Returns the 64 queries of Adult's published domain."""
    columns = (Integer(name, 0, size - 1, size) for name, size in ADULT_CODES.items())
    return draw_workload(Domain(tuple(columns)), 3, 64, seed=123)


def adult_plan() -> CountPlan:
    """Returns the plan for counting Adult's queries from rows."""
    workload = adult_queries()
    queries = (tuple(map(workload.domain.index, query)) for query in workload.maximal)
    return plan_counting(workload.domain.shape, tuple(queries))


def count_rows(ctx: Context, count: int) -> Job:
    """Counts ``count`` rows of Adult's published domain into the cells of its 64 queries."""
    plan, products = adult_plan(), NumpyProducts()
    rows_bsh = base.random(ctx, BITS, (plan.layout.bits, words_for(count)))
    return lambda c: rows.count_rows(c, rows_bsh, count, plan, products=products)


def join(ctx: Context, count: int) -> Job:
    """Joins two sources of ``count`` rows each by keys of 96 bits; a source has columns of 32 bits."""
    sources = [
        link.SourceRows(
            base.random(ctx, BITS, (1 + KEY_BITS + COLUMN_BITS, words_for(count))), count
        )
        for _ in range(2)
    ]
    return lambda c: link.join(c, sources, key_bits=KEY_BITS)


def _join_facts() -> dict[str, float]:
    return {"sources": 2, "key_bits": KEY_BITS, "column_bits": COLUMN_BITS}


def _counting_facts() -> dict[str, float]:
    plan = adult_plan()
    return {"cells": plan.cells, "row_entries": plan.row_entries, "row_cells": plan.row_cells}


_SWEEP = (10_000, 100_000, 1_000_000, 10_000_000)
# Adult with its published domain and 64 queries: the closure, and the largest query.
_ADULT_CLOSURE, _ADULT_LARGEST = 2_870_490, 841_500
_ADULT_ROWS = 48_842
_SAMPLES = (1 << 10, 1 << 15, 1 << 17, 1 << 20)

TASKS: dict[str, Task] = {
    "abs_error": Task(abs_error, "cells", 1_000_000, _SWEEP, held_bytes=12, often=5),
    # Counts and answers, and 25 bits a cell in two components.
    "abs_error_kept": Task(kept_abs_error, "cells", 1_000_000, _SWEEP, held_bytes=18, often=5),
    "count_bits": Task(kept_bits, "cells", 1_000_000, _SWEEP, held_bytes=8, often=5),
    "select": Task(
        whole_select,
        "cells",
        1_000_000,
        tuple(sorted((*_SWEEP, _ADULT_CLOSURE))),
        held_bytes=12,
        times=SELECTIONS,
        beside="abs_error",
    ),
    "select_kept": Task(
        kept_select,
        "cells",
        1_000_000,
        _SWEEP,
        held_bytes=18,
        times=SELECTIONS,
        beside="abs_error_kept",
    ),
    "measure": Task(
        measure_marginal,
        "cells",
        _ADULT_LARGEST,
        (10_000, _ADULT_LARGEST),
        held_bytes=8,
        facts=_discrete_facts,
    ),
    # Proofs in rings of 64 bits and more take 6 microseconds per element.
    "box_muller": Task(box_muller, "samples", 1 << 15, _SAMPLES, held_bytes=0, most_proved=1 << 15),
    "discrete_gaussian": Task(
        discrete_gaussian,
        "samples",
        1 << 15,
        _SAMPLES,
        held_bytes=0,
        facts=_discrete_facts,
        most_proved=1 << 17,
    ),
    # Each party's own samples: a bucket with a sign and two words of a coin, and its input's masks.
    "distributed_noise": Task(
        distributed_noise,
        "samples",
        1 << 15,
        _SAMPLES,
        held_bytes=8,
        drawn_bytes=24,
        facts=_distributed_facts,
        provable=False,
    ),
    "truncate": Task(truncate, "cells", 1_000_000, _SWEEP, held_bytes=8, most_proved=100_000),
    "multiply": Task(multiply, "cells", 1_000_000, _SWEEP, held_bytes=16, most_proved=1_000_000),
    # A row's bits in two components, and two components of every cell's count.
    "count_rows": Task(
        count_rows,
        "rows",
        _ADULT_ROWS,
        (1000, 10_000, _ADULT_ROWS, 100_000),
        held_bytes=17,
        facts=_counting_facts,
        # No smaller first run: with few rows there are still all the cells, whose memory is the task's own.
        warm=0,
        most_proved=_ADULT_ROWS,
    ),
    # Presence, key and columns of two rows in two components.
    "join": Task(
        join,
        "rows a source",
        50_000,
        (1000, 10_000, 50_000, 100_000),
        held_bytes=64,
        facts=_join_facts,
    ),
    "expand_input": Task(
        expand_input, "cells", 1_000_000, _SWEEP, held_bytes=0, drawn_bytes=8, provable=False
    ),
}
