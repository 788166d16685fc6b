"""The model between the servers: the lead estimates it and broadcasts what the others need for the next selection.

Provides ``make_estimator``, and ``LeadEstimator`` and ``FollowingEstimator``, the two ends of one broadcast. While
the lead works it says so at short intervals, so that the others' receive deadline only means silence. Everything here
is public post-processing of released measurements. All three compare digests of it before they use it, so that the
lead cannot tell the followers different models. Known limits: they trust the lead's model, which decides how good the
choices are and never how private.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from mechanisms.accounting import Schedule
from mechanisms.aim import Estimate, Estimator, Measurement
from mechanisms.pgm import PgmEstimator
from mechanisms.workload import Workload
from parties.config import Config
from parties.distaim.circumstances import Circumstances
from parties.distaim.steps import ESTIMATE, WORKING
from protocols.context import MAX_PUBLIC_BYTES, Context
from protocols.echo import echo
from protocols.errors import ProtocolViolation

LEAD = 0
LONGEST_SILENCE_S = 2.0
"""A lead that works notices within this time that it lost a peer."""
_MODEL = b"e"


def make_estimator(config: Config, workload: Workload, plan: Schedule) -> PgmEstimator:
    """Private-PGM with the config's iterations and size limit."""
    return PgmEstimator(
        workload,
        plan,
        iterations=config.run.iterations,
        final_iterations=config.run.final_iterations,
        max_model_mb=config.run.max_model_mb,
    )


def silence_s(receive_s: float) -> float:
    """How long the lead may work without a word, for a receive deadline of ``receive_s``."""
    return min(receive_s / 4, LONGEST_SILENCE_S)


class LeadEstimator:
    """A ``mechanisms.aim.Estimator`` that lets ``inner`` work and broadcasts its result."""

    def __init__(
        self,
        ctx: Context,
        inner: Estimator,
        workload: Workload,
        *,
        receive_s: float,
        circumstances: Circumstances,
    ) -> None:
        self._ctx = ctx
        self._inner = inner
        self._workload = workload
        self._circumstances = circumstances
        self._silence_s = silence_s(receive_s)

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        """The model after ``measurements``; see ``Estimator.estimate``.

        Leaks: the estimate, which is public. Rounds: 2 and one for each tick. Communication: 4 bytes a cell, an
        eighth of a byte a candidate and 32 bytes to each follower. Raises EstimationError, ChannelError,
        ProtocolViolation.
        """
        task = asyncio.ensure_future(self._inner.estimate(measurements, round=round, final=final))
        try:
            with self._ctx.step(ESTIMATE.name, round=round) as c:
                await working(c, task, self._silence_s, self._circumstances)
                estimate = self._circumstances.keep(
                    ESTIMATE.name, lambda: encode_estimate(task.result())
                )
                message = _MODEL + estimate
                await c.broadcast(LEAD, message)
                await echo(c, {LEAD: message})
        finally:
            task.cancel()
        return decode_estimate(estimate, self._workload)


class FollowingEstimator:
    """A ``mechanisms.aim.Estimator`` that waits for the lead's result."""

    def __init__(self, ctx: Context, workload: Workload) -> None:
        self._ctx = ctx
        self._workload = workload

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        """The lead's model; see ``LeadEstimator.estimate``. Raises ChannelError, ProtocolViolation."""
        with self._ctx.step(ESTIMATE.name, round=round) as c:
            message = await patience(c, max_bytes=estimate_bytes(self._workload))
            await echo(c, {LEAD: message})
        return decode_estimate(memoryview(message)[len(_MODEL) :], self._workload)


async def working(
    ctx: Context, task: "asyncio.Future[Any]", silence_s: float, circumstances: Circumstances
) -> None:
    """Tell the followers at intervals that the lead still works, until ``task`` is done. The lead's side."""
    while True:
        await asyncio.wait((task,), timeout=silence_s)
        if circumstances.keep_json("done", task.done):
            return
        await ctx.broadcast(LEAD, WORKING)


async def patience(ctx: Context, *, max_bytes: int = MAX_PUBLIC_BYTES) -> bytes:
    """The lead's first message that is not a tick, of at most ``max_bytes``. The followers' side of ``working``."""
    while (message := await ctx.broadcast(LEAD, None, max_bytes=max_bytes)) == WORKING:
        pass
    return message


def encode_estimate(estimate: Estimate) -> bytes:
    """The estimate as bytes: the mask packed eight to a byte, then the answers, little-endian."""
    answers = estimate.answers_q32.astype("<u4", copy=False)
    return np.packbits(estimate.allowed).tobytes() + answers.tobytes()


def estimate_bytes(workload: Workload) -> int:
    """Bytes of the lead's message with an estimate."""
    return len(_MODEL) + (len(workload.candidates) + 7) // 8 + 4 * workload.cells


def decode_estimate(data: bytes | memoryview, workload: Workload) -> Estimate:
    """The inverse of ``encode_estimate``. Raises ProtocolViolation on another size."""
    count = len(workload.candidates)
    packed = (count + 7) // 8
    if len(data) != packed + 4 * workload.cells:
        raise ProtocolViolation(
            f"the lead sent an estimate of {len(data)} bytes, not {packed + 4 * workload.cells}",
            LEAD,
        )
    mask = np.unpackbits(np.frombuffer(data[:packed], np.uint8), count=count).astype(np.bool_)
    answers = np.frombuffer(data[packed:], "<u4").astype(np.uint32)
    return Estimate(mask, answers)
