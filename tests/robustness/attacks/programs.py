"""Programs under attack: each protocol that ends in an opening, on a few numbers; and whole runs.

``TARGETS`` has each program with the steps whose messages are changed, ``PROGRAMS`` the small ones among them.
``choose`` and ``TABLE`` serve the structured attacks. All values here are public: the data is made up.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from parties.mpc.steps import (
    AGREE,
    CLIENTS_AGREE,
    CLIENTS_COMPARE,
    CLIENTS_RESUME,
    CLIENTS_VERIFY,
    COUNT_VERIFY,
    ESTIMATE,
    FINISH,
    PREPARE_VERIFY,
)
from protocols import (
    base,
    boolean,
    bounded,
    count_bits,
    measure,
    noise_kinds,
    random_bits,
    rows,
    select,
)
from protocols.context import Context
from protocols.derived import bits_to_ring
from protocols.pairing import SHARE_BYTES, Coin
from protocols.products import NumpyProducts
from protocols.recoding import recode
from protocols.ring import BITS, R32, Ring, RingArray
from protocols.row_layout import Recoding, RowLayout
from protocols.row_plan import plan_counting
from protocols.sealing import BoxKey
from protocols.select_spec import bounds, integer_bits
from protocols.shares import Share
from protocols.steps import COUNT_RECODE, MEASURE, MEASURE_OPEN, SELECT, SELECT_CHOOSE
from tests.robustness.attacks.mesh import Program
from tests.robustness.attacks.whole import BEFORE, WHOLE

TABLE = np.array([12, 9, 10, 13, 8], np.uint32)
SIZES = np.array([2, 3])
_SIGMA, _ROWS = 3.0, 1000
_ROWS_COUNTED = 64
_WORDS = np.array([0x0123456789ABCDEF, 0xFEDCBA9876543210, 0x0F1E2D3C4B5A6978], np.uint64)


def share(ctx: Context, ring: Ring, value: RingArray) -> Share:
    """Returns a sharing of public numbers, with components that look random."""
    drawn = np.random.default_rng(7).integers(0, 1 << 32, (2, *value.shape), np.uint64)
    first, second = (ring.encode(part.astype(ring.dtype)) for part in drawn)
    parts = (first, second, ring.sub(ring.sub(ring.encode(value), first), second))
    return Share(ring, ctx.pid, parts[ctx.pid], parts[ctx.next_pid])


async def choose(
    ctx: Context, table: RingArray = TABLE, *, kept: bool = False, gain: int = 1 << 20
) -> int:
    """Selects among two candidates of ``table``, of two and of three cells."""
    spec = SimpleNamespace(
        sizes=SIZES,
        answers=np.full(SIZES.sum(), 640, np.uint32),
        gains=(gain,) * 2,
        offsets=(0,) * 2,
        max_rows=_ROWS,
    )
    x_sh = share(ctx, R32, table)
    with ctx.step(SELECT.name, round=1) as c:
        if not kept:
            return await select.select(c, x_sh, spec)
        bits = integer_bits(bounds(spec)[0])
        made = await select.keep_bits(c, x_sh, SIZES.tolist(), bits)
        return await select.select(c, x_sh, spec, kept=count_bits.CountBits.joined(made))


async def _chosen_by_bits(ctx: Context) -> object:
    return await choose(ctx, kept=True)


async def _measured(ctx: Context) -> object:
    with ctx.step(MEASURE.name, round=1) as c:
        noise = measure.noise_of(noise_kinds.DISCRETE)
        return await measure.measure(c, share(ctx, R32, TABLE), _SIGMA, _ROWS, noise)


async def _measured_box_muller(ctx: Context) -> object:
    with ctx.step(MEASURE.name, round=1) as c:
        noise = measure.noise_of(noise_kinds.BOX_MULLER)
        return await measure.measure(c, share(ctx, R32, TABLE), _SIGMA, _ROWS, noise)


async def _checked(ctx: Context) -> object:
    sums = share(ctx, R32, np.array([[20, 30], [20, 30]], np.uint32))
    with ctx.step("clients.check", round=0) as c:
        verdicts = await bounded.check_totals(c, sums, 100)
        return await bounded.open_verdicts(c, verdicts, "clients.passed")


async def _counted(ctx: Context) -> object:
    """Counts rows into the cells of two queries."""
    plan = plan_counting((4, 3, 5), ((0, 1), (1, 2)))
    planes = np.array([[_WORDS[i % 3] >> np.uint64(i)] for i in range(plan.layout.bits)])
    counts = await rows.count_rows(
        ctx, share(ctx, BITS, planes), _ROWS_COUNTED, plan, products=NumpyProducts(1)
    )
    return await base.open_value(ctx, counts, "counts")


async def _recoded(ctx: Context) -> object:
    """Recodes rows from fine codes to codes of coarser cells."""
    fine, coarse = RowLayout((8, 3)), RowLayout((4, 3))
    recoding = Recoding(fine, coarse, {0: (0, 0, 0, 0, 1, 2, 2, 3)})
    planes = np.array([[_WORDS[i % 3] >> np.uint64(i)] for i in range(fine.bits)])
    with ctx.step(COUNT_RECODE.name) as c:
        recoded = await recode(c, share(ctx, BITS, planes), _ROWS_COUNTED, recoding)
    return await base.open_value(ctx, recoded, "rows")


async def _paired(ctx: Context) -> object:
    """Agrees on the keys of the pairs as the mesh does; each end's key is recorded as if it had been opened."""
    own = _box_key(ctx.pid)
    shares = {peer: bytes([1 + 3 * ctx.pid + peer]) * SHARE_BYTES for peer in range(3)}
    coins = {
        peer: Coin(ctx.pid, peer, b"session", b"attack", own, share=shares[peer])
        for peer in (ctx.next_pid, ctx.prev_pid)
    }
    with ctx.step("keys") as c:
        offers = await _swapped(c, {peer: coin.offer for peer, coin in coins.items()})
        boxes = await _swapped(c, {p: coin.sealed(offers[p]) for p, coin in coins.items()})
        for peer, coin in sorted(coins.items()):
            keys = coin.keys(offers[peer], boxes[peer])
            c.record_opening("key", np.frombuffer(keys.component, np.uint64), BITS)
            c.record_opening("frames", np.frombuffer(keys.frames, np.uint64), BITS)
    return None


def _box_key(pid: int) -> BoxKey:
    """Returns a box key of party ``pid`` that is the same in each run of the attack."""
    mlkem = MLKEM768PrivateKey.from_seed_bytes(bytes([1 + pid]) * 64)
    return BoxKey(mlkem, X25519PrivateKey.from_private_bytes(bytes([1 + pid]) * 32))


async def _swapped(ctx: Context, said: Mapping[int, bytes]) -> dict[int, bytes]:
    heard = await ctx.round(
        {peer: np.frombuffer(word, np.uint8) for peer, word in said.items()},
        {peer: len(word) for peer, word in said.items()},
    )
    return {peer: word.tobytes() for peer, word in heard.items()}


async def _carried(ctx: Context) -> object:
    x_bsh = share(ctx, BITS, np.stack((_WORDS, _WORDS[::-1])))
    carry = await boolean.carry_out(ctx, x_bsh, ~x_bsh)
    return await base.open_value(ctx, carry, "carry")


async def _multiplied(ctx: Context) -> object:
    x_sh = share(ctx, R32, TABLE)
    return await base.open_value(ctx, await base.inner_product(ctx, x_sh, x_sh), "sum")


async def _drawn(ctx: Context) -> object:
    """Opens the difference of random bits in their two forms, which has to be zero."""
    planes, in_ring = await random_bits.random_bits(ctx, 64, R32)
    again = await bits_to_ring(ctx, planes, 64, R32)
    return await base.open_value(ctx, in_ring - again, "difference")


PROGRAMS: Mapping[str, Program] = {
    "carries": _carried,
    "inner-product": _multiplied,
    "random-bits": _drawn,
    "check": _checked,
    "recoding": _recoded,
    "count-rows": _counted,
    "keys": _paired,
    "select": choose,
    "select-by-bits": _chosen_by_bits,
    "measure": _measured,
    "measure-box-muller": _measured_box_muller,
}

_OF_WHOLE_RUNS: Mapping[str, frozenset[str]] = {
    # Steps that no program above has.
    "run": frozenset(
        step.name
        for step in (
            AGREE,
            CLIENTS_RESUME,
            CLIENTS_AGREE,
            CLIENTS_COMPARE,
            CLIENTS_VERIFY,
            PREPARE_VERIFY,
            ESTIMATE,
            FINISH,
        )
    ),
    "run-restarted": frozenset({AGREE.name, CLIENTS_RESUME.name, SELECT_CHOOSE.name}),
    # The model decides if rounds become finer; the opened values decide which bins there are.
    "run-annealed": frozenset({ESTIMATE.name, MEASURE_OPEN.name}),
    "run-private-bins": frozenset({COUNT_RECODE.name, COUNT_VERIFY.name, MEASURE_OPEN.name}),
}

SAME_IN_BOTH = frozenset({"keys", "run", "run-annealed"})
"""Programs that notice their deviations in both modes, since commitments and digests are always compared."""


@dataclass(frozen=True, slots=True)
class Target:
    """A program, and those of its ``steps`` whose messages are changed: all where ``steps`` is None.

    ``before`` prepares what the program needs; its argument is True in malicious mode.
    """

    program: Program
    steps: frozenset[str] | None = None
    before: Callable[[bool], object] | None = None

    @property
    def whole(self) -> bool:
        """True for a whole run, of which only some steps are attacked."""
        return self.steps is not None

    def has(self, step: str) -> bool:
        """Returns True if messages of this step are changed."""
        return self.steps is None or step in self.steps


TARGETS: Mapping[str, Target] = {
    **{name: Target(program) for name, program in PROGRAMS.items()},
    **{
        name: Target(program, _OF_WHOLE_RUNS[name], BEFORE.get(name))
        for name, program in WHOLE.items()
    },
}
