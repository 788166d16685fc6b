"""Estimates between the servers: exact on the wire, ticks while the lead works, nothing else accepted."""

import asyncio
import hashlib
import importlib.util
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.aim import Estimate, Measurement
from mechanisms.errors import EstimationError
from parties.foundation.errors import ExtraMissing
from parties.mpc.estimation import (
    LEAD,
    FollowingEstimator,
    LeadEstimator,
    ModelCache,
    decode_estimate,
    encode_estimate,
    keepalive_interval_s,
    make_estimator,
    round_answers,
)
from parties.mpc.planning.budget import make_plan
from parties.mpc.replay.effects import Effects
from parties.mpc.storage.store import Store
from parties.session.study import Study
from protocols.context import Context
from protocols.errors import ProtocolViolation
from protocols.runtime import PartyRuntime
from tests.parties.support import make_config
from tests.parties.test_feasible import wide
from tests.protocols.local import run_parties
from tests.protocols.network import NAMES, Authority, all_ended, connected

WORKLOAD = make_config().build_workload()


def test_make_estimator_names_the_extra_that_a_package_is_missing_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = Study(make_config({"run.estimator": "mbi"}), WORKLOAD)
    assert make_estimator(study, make_plan(study)).model is None
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "mbi" else found(name)
    )
    with pytest.raises(ExtraMissing, match=r"run\.estimator = \"mbi\" needs mbi.*syncret\[mbi\]"):
        make_estimator(study, make_plan(study))


def make_estimate(seed: int) -> Estimate:
    generator = np.random.default_rng(seed)
    allowed = generator.integers(0, 2, len(WORKLOAD.candidates)).astype(np.bool_)
    return Estimate(allowed, generator.integers(0, 2**32, WORKLOAD.cells, np.uint32))


@given(st.integers(0, 2**32))
def test_decode_estimate_inverts_encode(seed: int) -> None:
    estimate = make_estimate(seed)
    for max_rows in (10, 70_000, 1 << 24):
        decoded = decode_estimate(encode_estimate(estimate, max_rows), WORKLOAD)
        assert np.array_equal(decoded.allowed, estimate.allowed)
        # In counts, an eighth of 2^-6; at a probability of 1 it is twice that.
        off = np.abs(decoded.answers_q32.astype(np.int64) - estimate.answers_q32.astype(np.int64))
        assert off.max() * max_rows <= 2 ** (32 - 6 - 2)
    assert np.array_equal(decoded.answers_q32, estimate.answers_q32)


@pytest.mark.parametrize("bits", [24, 27, 32])
def test_round_answers_rounds_to_the_nearest_and_stays_below_one(bits: int) -> None:
    answers = np.array([0, 1, (1 << 32) - 1, 1 << 31, 127, 128, 129], np.uint32)
    rounded = round_answers(answers, bits)
    assert not (rounded & np.uint32((1 << (32 - bits)) - 1)).any()
    off = np.abs(rounded.astype(np.int64) - answers.astype(np.int64))
    assert off.max() <= (1 << (32 - bits)) - 1
    assert off[[0, 1, 3, 4, 5, 6]].max() <= (1 << (32 - bits)) // 2


def test_answers_of_a_skewed_model_travel_in_a_byte_each_at_most() -> None:
    workload = wide({"a": 300, "b": 300}).build_workload()
    falling = np.exp(-np.arange(workload.cells) % 300 / 20.0)
    answers = (falling / falling.sum() * 2**32).astype(np.uint32)
    estimate = Estimate(np.ones(len(workload.candidates), np.bool_), answers)
    assert len(encode_estimate(estimate, 10_000)) < workload.cells


def test_decode_estimate_takes_no_more_than_is_due() -> None:
    data = encode_estimate(make_estimate(1), 10)
    packed = (len(WORKLOAD.candidates) + 7) // 8
    huge = data[:packed] + zlib.compress(bytes(1 << 26))
    with pytest.raises(ProtocolViolation, match="or more"):
        decode_estimate(huge, WORKLOAD)
    with pytest.raises(ProtocolViolation, match="cannot be read"):
        decode_estimate(data[:packed] + b"none", WORKLOAD)


@pytest.mark.parametrize("change", [b"", b"\0", b"\0\0\0\0"])
def test_decode_estimate_refuses_another_size(change: bytes) -> None:
    data = encode_estimate(make_estimate(1), 10)
    with pytest.raises(ProtocolViolation, match="the lead sent an estimate of"):
        decode_estimate(data[:-1] if not change else data + change, WORKLOAD)


class Slow:
    """An estimator that takes `seconds`."""

    def __init__(self, seconds: float, *, fails: bool = False) -> None:
        self.seconds = seconds
        self.fails = fails

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        await asyncio.sleep(self.seconds)  # Sleeps: slow.
        if self.fails:
            raise EstimationError("nothing fits")
        return make_estimate(7)


class Unkept(ModelCache):
    """Of a run that keeps no models."""

    def __init__(self) -> None:
        pass

    def everywhere(self, round: int) -> bytes | None:
        return None

    def own(self, round: int) -> bytes | None:
        return None

    def save(self, round: int, estimate: bytes) -> None:
        pass

    def take(self, round: int, estimate: bytes, pid: int = LEAD) -> None:
        pass

    async def receive_missing(self, ctx: Context, round: int, max_bytes: int) -> bytes | None:
        return None


def test_lead_estimator_ticks_while_it_works_and_all_get_its_result() -> None:
    async def program(ctx: Context) -> Estimate:
        if ctx.pid == 0:
            return await LeadEstimator(
                ctx,
                Slow(0.5),
                WORKLOAD,
                max_rows=1 << 24,
                receive_s=0.4,
                effects=Effects(),
                models=Unkept(),
            ).estimate([], round=1, final=False)
        return await FollowingEstimator(ctx, WORKLOAD, Unkept()).estimate([], round=1, final=False)

    outcome = run_parties(program)
    for estimate in outcome.results:
        assert np.array_equal(estimate.answers_q32, make_estimate(7).answers_q32)
    ticks = [m for m in outcome.mesh.sent if m.receiver == 1 and m.payload == b"w"]
    assert 2 <= len(ticks) <= 5


async def test_lead_estimator_passes_on_the_failure_of_the_inner_one() -> None:
    def fails() -> None:
        async def program(ctx: Context) -> None:
            if ctx.pid == 0:
                lead = LeadEstimator(
                    ctx,
                    Slow(0.0, fails=True),
                    WORKLOAD,
                    max_rows=1 << 24,
                    receive_s=1.0,
                    effects=Effects(),
                    models=Unkept(),
                )
                await lead.estimate([], round=1, final=False)

        run_parties(program)

    with pytest.raises(EstimationError, match="nothing fits"):
        await asyncio.to_thread(fails)


def test_a_model_that_two_servers_have_stays_whatever_the_lead_sends(tmp_path: Path) -> None:
    """One server's word alone changes nothing that another holds: with another model the run could never end."""
    kept, other = (encode_estimate(make_estimate(seed), 100) for seed in (1, 2))
    with Store(tmp_path, "ab" * 32) as store:
        store.releases.save_estimate(1, kept)
        agreed = {1: hashlib.sha256(kept).hexdigest()}
        models = ModelCache(store.releases, agreed, {}, Effects())
        with pytest.raises(ProtocolViolation, match="another model of round 1") as caught:
            models.take(1, other)
        assert caught.value.pid == LEAD
        models.take(1, kept)
        models.take(2, other)
        assert (models.own(1), models.own(2), models.everywhere(1)) == (kept, None, None)
        store.releases.save_estimate(1, other)
        assert models.own(1) is None


@given(st.floats(0.1, 1e6))
def test_silence_is_well_below_the_receive_deadline(receive_s: float) -> None:
    assert 0 < keepalive_interval_s(receive_s) <= min(2.0, receive_s / 4)


@pytest.mark.slow
async def test_a_model_of_70_million_cells_reaches_the_followers(tmp_path: Path) -> None:
    """More than a message could once have: 280 MB. It takes 2.5 GB of memory."""
    authority = Authority(tmp_path)
    config = wide({"a": 8400, "b": 8400})
    workload = config.build_workload()
    answers = np.arange(workload.cells, dtype=np.uint32)
    allowed = np.ones(len(workload.candidates), np.bool_)

    class Known:
        async def estimate(self, *_: object, **__: object) -> Estimate:
            return Estimate(allowed, answers)

    async def work(party: PartyRuntime) -> None:
        estimator: LeadEstimator | FollowingEstimator
        if party.pid == LEAD:
            at = Effects()
            estimator = LeadEstimator(
                party.context(),
                Known(),
                workload,
                max_rows=1 << 24,
                receive_s=30.0,
                effects=at,
                models=Unkept(),
            )
        else:
            estimator = FollowingEstimator(party.context(), workload, Unkept())
        estimate = await estimator.estimate([], round=1, final=False)
        assert np.array_equal(estimate.answers_q32, answers)

    async with connected([authority.files(name) for name in NAMES], timeout_s=30.0) as parties:
        assert await all_ended(parties, work, 120) == [None] * 3
