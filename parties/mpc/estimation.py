"""Estimation of the model: the lead estimates it and broadcasts the facts that the next selection needs.

``LeadEstimator`` and ``FollowingEstimator`` are the two ends of one broadcast. While the lead works, it sends
keepalives, so that a follower's receive deadline only measures silence. Everything here is public post-processing of
released measurements. All three servers compare digests of the model before they use it, so that the lead cannot send
the followers different models. Known limits: followers trust the lead's model, which decides how good the choices are
and never how private.
"""

import asyncio
import hashlib
import importlib.util
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Schedule
from mechanisms.aim import Estimate, Estimator, Measurement
from mechanisms.descent import Descent, mirror_descent
from mechanisms.mbi_fit import MBI_PACKAGES, mbi_descent
from mechanisms.pgm import PgmEstimator
from mechanisms.refresh import Refresh
from mechanisms.scores import ANSWER_BITS, FRACTION_BITS
from mechanisms.workload import Workload
from parties.config import Config, earlier_model
from parties.config.schema import MBI
from parties.foundation.errors import ExtraMissing
from parties.mpc.replay.effects import Effects
from parties.mpc.steps import ESTIMATE, WORKING
from parties.mpc.storage.releases import ReleaseStore
from parties.session.study import Study
from protocols.context import MAX_PUBLIC_BYTES, Context
from protocols.echo import echo
from protocols.errors import ProtocolViolation

LEAD, MODEL_SENDER = 0, 1
"""Servers by role: the lead estimates the model; the sender shows the lead a model that only both followers have kept.
"""
MAX_KEEPALIVE_INTERVAL_S = 2.0
"""Longest keepalive interval, in seconds: a working lead notices a lost peer within this time."""
_MODEL = b"e"
_FEWEST_BITS = 24


def make_estimator(study: Study, plan: Schedule) -> PgmEstimator:
    """Private-PGM with the config's iterations and size limit; a refresh starts from the earlier model.

    Raises ConfigError if that model is not at hand, EstimationError if it is damaged, ExtraMissing if the estimator is
    a package that is not installed.
    """
    earlier = earlier_model(study.config)
    return PgmEstimator(
        study.workload,
        plan,
        iterations=study.config.run.iterations,
        final_iterations=study.config.run.final_iterations,
        max_model_mb=study.config.run.max_model_mb,
        descent=descent_of(study.config),
        refresh=None if earlier is None else Refresh(earlier.model()),
    )


def descent_of(config: Config) -> Descent:
    """Returns the optimiser of a run's models. Raises ExtraMissing if it is of a package that is not installed."""
    if config.run.estimator != MBI:
        return mirror_descent
    for name in MBI_PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise ExtraMissing(f'run.estimator = "{MBI}"', name, extra=MBI)
    return mbi_descent


def keepalive_interval_s(receive_s: float) -> float:
    """Interval of the lead's keepalives, in seconds, for a receive deadline of ``receive_s``."""
    return min(receive_s / 4, MAX_KEEPALIVE_INTERVAL_S)


class ModelCache:
    """Models of rounds, kept over restarts: a round with recorded inputs is repeated with the same model.

    ``agreed`` are the digests of models that two servers have alike, by round, and ``everywhere`` the rounds whose
    model all three have. A model that two servers have stays, whatever the lead sends. In ``untaught`` rounds the lead
    lacks that model; the next server shows it to the lead.
    """

    def __init__(
        self,
        releases: ReleaseStore,
        agreed: Mapping[int, str],
        everywhere: Collection[int],
        effects: Effects,
        *,
        untaught: Collection[int] = (),
    ) -> None:
        self._releases = releases
        self._not_everywhere = untaught
        self._agreed = agreed
        self._everywhere = everywhere
        self._effects = effects

    def everywhere(self, round: int) -> bytes | None:
        """Model of ``round`` if all three servers have it, so that nothing has to be sent. Raises StoreError."""
        return self._load(round) if round in self._everywhere else None

    def own(self, round: int) -> bytes | None:
        """Model of ``round`` if this server is one of two that have it. Raises StoreError."""
        known = round in self._agreed and self._effects.once_json(
            f"has model of round {round}",
            lambda: self._releases.estimates().get(round) == self._agreed[round],
        )
        return self._load(round) if known else None

    async def receive_missing(self, ctx: Context, round: int, max_bytes: int) -> bytes | None:
        """Model of an untaught round, shown to all by a follower that has it; None of any other round."""
        if round not in self._not_everywhere:
            return None
        shown = self.own(round) if ctx.pid == MODEL_SENDER else None
        estimate = await ctx.broadcast(MODEL_SENDER, shown, max_bytes=max_bytes)
        await echo(ctx, {MODEL_SENDER: estimate})
        self.take(round, estimate, MODEL_SENDER)
        return estimate

    def take(self, round: int, estimate: bytes, pid: int = LEAD) -> None:
        """Keeps the model of ``round`` that ``pid`` sent. Raises ProtocolViolation if two servers have another one."""
        agreed = self._agreed.get(round)
        if agreed is not None and hashlib.sha256(estimate).hexdigest() != agreed:
            raise ProtocolViolation(
                f"party {pid} sent another model of round {round} than two servers have kept: with it, the round would "
                "go by other inputs than before the restart",
                pid,
            )
        self.save(round, estimate)

    def save(self, round: int, estimate: bytes) -> None:
        """Stores the model of ``round``; durable on return."""
        self._releases.save_estimate(round, estimate)

    def _load(self, round: int) -> bytes:
        return self._effects.once(f"model of round {round}", lambda: self._releases.estimate(round))


class LeadEstimator:
    """A ``mechanisms.aim.Estimator`` that runs ``inner`` and broadcasts its result."""

    def __init__(
        self,
        ctx: Context,
        inner: Estimator,
        workload: Workload,
        *,
        max_rows: int,
        receive_s: float,
        effects: Effects,
        models: ModelCache,
    ) -> None:
        self._models = models
        self._ctx = ctx
        self._inner = inner
        self._workload = workload
        self._max_rows = max_rows
        self._effects = effects
        self._keepalive_interval_s = keepalive_interval_s(receive_s)

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        """Model after ``measurements``; see ``Estimator.estimate``.

        Leaks: the estimate, which is public. Rounds: 2 and one for each keepalive. Communication: at most
        ``estimate_bytes`` and 32 bytes to each follower, mostly a tenth of it. Raises EstimationError, ChannelError,
        ProtocolViolation.
        """
        if not final and (kept := self._models.everywhere(round)) is not None:
            return decode_estimate(kept, self._workload)
        with self._ctx.step(ESTIMATE.name, round=round) as c:
            limit = estimate_bytes(self._workload)
            shown = None if final else await self._models.receive_missing(c, round, limit)
            if shown is not None:
                return decode_estimate(shown, self._workload)
            estimate = None if final else self._models.own(round)
            if estimate is None:
                estimate = await self._estimated(c, measurements, round=round, final=final)
            if not final:
                self._models.save(round, estimate)
            message = _MODEL + estimate
            await c.broadcast(LEAD, message)
            await echo(c, {LEAD: message})
        return decode_estimate(estimate, self._workload)

    async def _estimated(
        self, ctx: Context, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> bytes:
        task = asyncio.ensure_future(self._inner.estimate(measurements, round=round, final=final))
        try:
            await send_keepalives(ctx, task, self._keepalive_interval_s, self._effects)
            return self._effects.once(
                ESTIMATE.name, lambda: encode_estimate(task.result(), self._max_rows)
            )
        finally:
            task.cancel()


class FollowingEstimator:
    """A ``mechanisms.aim.Estimator`` that waits for the lead's result."""

    def __init__(self, ctx: Context, workload: Workload, models: ModelCache) -> None:
        self._ctx = ctx
        self._workload = workload
        self._models = models

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        """The lead's model; see ``LeadEstimator.estimate``. Raises ChannelError, ProtocolViolation."""
        if not final and (kept := self._models.everywhere(round)) is not None:
            return decode_estimate(kept, self._workload)
        with self._ctx.step(ESTIMATE.name, round=round) as c:
            limit = estimate_bytes(self._workload)
            shown = None if final else await self._models.receive_missing(c, round, limit)
            if shown is not None:
                return decode_estimate(shown, self._workload)
            message = await receive_after_keepalives(c, max_bytes=limit)
            await echo(c, {LEAD: message})
        if not final:
            self._models.take(round, message[len(_MODEL) :])
        return decode_estimate(memoryview(message)[len(_MODEL) :], self._workload)


async def send_keepalives(
    ctx: Context, task: "asyncio.Future[Any]", interval_s: float, effects: Effects
) -> None:
    """Sends the followers keepalives until ``task`` is done. The lead's side."""
    while True:
        await asyncio.wait((task,), timeout=interval_s)
        if effects.once_json("done", task.done):
            return
        await ctx.broadcast(LEAD, WORKING)


async def receive_after_keepalives(ctx: Context, *, max_bytes: int = MAX_PUBLIC_BYTES) -> bytes:
    """The lead's first message that is no keepalive, of at most ``max_bytes`` bytes.

    The followers' side of ``send_keepalives``.
    """
    while (message := await ctx.broadcast(LEAD, None, max_bytes=max_bytes)) == WORKING:
        pass
    return message


def encode_estimate(estimate: Estimate, max_rows: int) -> bytes:
    """Encodes an estimate: the mask packed eight to a byte, then the answers, rounded and compressed.

    Answers are rounded to an eighth of a selection's unit, which is 2^-6 of one of ``max_rows`` rows, with 24 bits at
    least: lower bits are as good as random, and do not compress. The bytes are sorted by weight, all lowest ones first,
    since most answers are small and their higher bytes zeros. Adult takes 0.28 bytes a cell, Magic 0.68.
    """
    bits = min(ANSWER_BITS, max(_FEWEST_BITS, max_rows.bit_length() + FRACTION_BITS + 2))
    rounded = round_answers(estimate.answers_q32, bits).astype("<u4", copy=False)
    by_weight = rounded.view(np.uint8).reshape(-1, 4).T.tobytes()
    return np.packbits(estimate.allowed).tobytes() + zlib.compress(by_weight, level=1)


def round_answers(answers: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    """Probabilities in units of 2^-32, rounded to multiples of 2^-bits below 1."""
    shift = ANSWER_BITS - bits
    if not shift:
        return answers
    units = (answers.astype(np.uint64) + np.uint64(1 << (shift - 1))) >> np.uint64(shift)
    below_one = np.minimum(units, np.uint64((1 << bits) - 1))
    rounded: NDArray[np.uint32] = (below_one << np.uint64(shift)).astype(np.uint32)
    return rounded


def estimate_bytes(workload: Workload) -> int:
    """Maximum size of the lead's message with an estimate, in bytes: its answers do not compress at all."""
    cells = 4 * workload.cells
    return len(_MODEL) + (len(workload.candidates) + 7) // 8 + cells + cells // 1000 + 64


def decode_estimate(data: bytes | memoryview, workload: Workload) -> Estimate:
    """Inverse of ``encode_estimate``. Raises ProtocolViolation for malformed data."""
    count, size = len(workload.candidates), 4 * workload.cells
    packed = (count + 7) // 8
    mask = np.unpackbits(np.frombuffer(data[:packed], np.uint8), count=count).astype(np.bool_)
    inflating = zlib.decompressobj()
    try:
        # The limit of size + 1 bytes stops a decompression bomb.
        by_weight = inflating.decompress(data[packed:], size + 1)
    except zlib.error as problem:
        raise ProtocolViolation("the lead sent an estimate that cannot be read", LEAD) from problem
    if len(by_weight) != size or not inflating.eof or inflating.unused_data:
        raise ProtocolViolation(
            f"the lead sent an estimate of {len(by_weight)} bytes or more, not {size}", LEAD
        )
    answers = np.frombuffer(by_weight, np.uint8).reshape(4, -1).T.copy().view("<u4")
    return Estimate(mask, answers.reshape(-1).astype(np.uint32))
