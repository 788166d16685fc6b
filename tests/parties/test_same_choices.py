"""DistAIM and central AIM, given the same noise and the same fixed-point scores, choose the same queries."""

import asyncio
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.accounting import Ledger, Schedule, fixed_rounds_plan, rho
from mechanisms.aim import AimResult, Estimate, Measurement, run_aim
from mechanisms.annealing import AnnealedPlan
from mechanisms.plaintext import PlaintextBackend
from mechanisms.scores import ScoreSpec, plain_scores
from mechanisms.workload import Workload
from parties.mpc import aim_backend as backend_module
from parties.mpc.planning.budget import make_plan
from parties.mpc.records import RunningTotal
from parties.session.study import Study
from parties.storage.privacy_ledger import DurableLedger
from protocols.context import Context
from protocols.ring import R32, R64
from protocols.select_spec import SELECTION_SLACK
from protocols.shares import Share
from protocols.supply import GumbelSupply
from tests.parties.one_total import backend_of
from tests.parties.support import make_config
from tests.protocols.local import components, reconstruct, run_parties

ROUNDS = 6
MAX_ROWS = 300


class SmoothedMarginals:
    """A public estimator: what was measured, otherwise uniform. Any function of the measurements would do here."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    async def estimate(
        self, measurements: list[Measurement], *, round: int, final: bool
    ) -> Estimate:
        answers = np.zeros(self.workload.cells)
        for index in range(len(self.workload.candidates)):
            cells = self.workload.slice(index)
            answers[cells] = 1 / (cells.stop - cells.start)
        for m in measurements:
            positive = np.maximum(m.noisy, 0.01)
            answers[self.workload.slice(m.candidate)] = positive / positive.sum()
        allowed = np.ones(len(self.workload.candidates), bool)
        return Estimate(allowed, np.minimum(answers * 2**32, 2**32 - 1).astype(np.uint32))


class ReplayedNoise(PlaintextBackend):
    """Central AIM on the noise that the run on shares drew, that of its measurements and that of its choices."""

    noisy: list[NDArray[np.float64]]
    of_choices: list[list[int]]

    async def select(self, spec: ScoreSpec, scale: float) -> int:
        await super().select(spec, scale)
        scores = plain_scores(self._workload.gather(self._expanded, spec.candidates), spec)
        sums = [t + g for t, g in zip(scores, self.of_choices.pop(0), strict=True)]
        return sums.index(max(sums))

    async def measure(self, candidate: int, sigma: float) -> NDArray[np.float64]:
        await super().measure(candidate, sigma)
        return self.noisy.pop(0)


def chosen(result: AimResult) -> list[int]:
    return [m.candidate for m in result.measurements if m.round > 0]


def fixed(rho: float) -> Schedule:
    return fixed_rounds_plan(rho, ROUNDS, 3)


def annealed(rho: float) -> Schedule:
    return AnnealedPlan(rho, 3, rounds_per_column=3)


@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("schedule", [fixed, annealed])
def test_distaim_chooses_what_central_aim_chooses(
    schedule: Callable[[float], Schedule],
    seed: int,
    epsilon: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every server decides on its own how fine the rounds of an annealed schedule are, and so does central AIM."""
    workload = make_config().build_workload()
    counts = np.random.default_rng(seed).integers(0, 5, workload.maximal_cells).astype(np.uint32)
    parts = components(R32, counts, seed)
    draws: tuple[list[Share], ...] = ([], [], [])

    class Recording(GumbelSupply):
        async def take(self, ctx: Context, count: int, lacking: int, **source: Any) -> Share:
            share = await super().take(ctx, count, lacking, **source)
            draws[ctx.pid].append(share)
            return share

    monkeypatch.setattr(backend_module, "GumbelSupply", Recording)

    async def party(ctx: Context) -> AimResult:
        folder, plan = tmp_path / str(ctx.pid), schedule(epsilon / 30)
        share = Share(R32, ctx.pid, parts[ctx.pid], parts[ctx.next_pid])
        total = RunningTotal(0, share, [(client, "") for client in "abc"])
        with backend_of(ctx, workload, plan, total=total, folder=folder, max_rows=MAX_ROWS) as (
            backend,
            store,
        ):
            result = await run_aim(
                workload, plan, backend, SmoothedMarginals(workload), max_rows=MAX_ROWS
            )
            assert sum(
                map(Fraction, (entry.rho for entry in DurableLedger(store).entries))
            ) <= Fraction(plan.rho)
            return result

    results = run_parties(party, seed=seed).results
    assert chosen(results[0]) == chosen(results[1]) == chosen(results[2])
    sigmas = [[m.sigma for m in result.measurements] for result in results]
    assert sigmas[0] == sigmas[1] == sigmas[2]
    rounds = ROUNDS if schedule is fixed else results[0].rounds_done
    assert len(draws[0]) == rounds > 2
    plan = schedule(epsilon / 30)
    central = ReplayedNoise(
        workload,
        plan,
        arrivals={0: (3, counts)},
        ledger=Ledger(plan.rho),
        random_bytes=lambda size: bytes(range(1, size + 1)),
    )
    central.of_choices = [
        [int(g) for g in R64.decode(reconstruct(shares))] for shares in zip(*draws, strict=True)
    ]
    central.noisy = [m.noisy for m in results[0].measurements]
    expected = asyncio.run(
        run_aim(workload, plan, central, SmoothedMarginals(workload), max_rows=MAX_ROWS)
    )
    assert chosen(results[0]) == chosen(expected)
    assert len(chosen(expected)) == rounds
    assert [m.sigma for m in expected.measurements] == sigmas[0]


def test_make_plan_charges_the_selections_relative_error() -> None:
    config = make_config()
    plan = make_plan(Study.of(config))
    assert plan.selection.epsilon - plan.epsilon == pytest.approx(SELECTION_SLACK)
    events = [event for round in range(plan.rounds + 1) for event in plan.events(round)]
    assert sum(map(rho, events)) <= plan.rho * (1 + 1e-9)
