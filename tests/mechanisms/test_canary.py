"""A row more or less: the exact privacy loss of whole runs, each computed beside the run from what it opened.

A run is made on one of two tables that differ in one row. What it opens, choices and noisy counts, decides all that
follows. So the loss, the logarithm of how much likelier that is on its own table than on the other, is a sum over
openings: of noisy counts by the discrete Gaussian's own probabilities, of choices by the softmax of both scores.
zCDP bounds its mean, its exponential moments and its tail; where a run is charged as one Gaussian, that one's curve
bounds the tail.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

import mechanisms.aim
from mechanisms.accounting import (
    ZCDP,
    Accountant,
    Ledger,
    Schedule,
    delta_from_rho,
    fixed_rounds_plan,
)
from mechanisms.aim import run_aim
from mechanisms.annealing import AnnealedPlan
from mechanisms.choosing import choice_spec, tree_rounds
from mechanisms.composition import delta_of
from mechanisms.events import GaussianEvent
from mechanisms.gaussian_privacy import GAUSSIAN, GaussianAccountant
from mechanisms.pgm import PgmEstimator
from mechanisms.plaintext import PlaintextBackend
from mechanisms.scores import (
    AIM,
    REMAINING_ERROR,
    SCORE_BITS,
    Rule,
    ScoreSpec,
    plain_scores,
)
from mechanisms.units import row_budget
from mechanisms.workload import Workload, count_marginals, draw_workload
from tests.mechanisms.tables import domain_of, random_stream

DOMAIN = domain_of(3, 4, 2)
WORKLOAD = draw_workload(DOMAIN, 2, None)
RHO, ROWS = 0.3, 40
# The row that is there or not is one of its own: nobody else has its values.
CANARY = np.array([[2, 3, 1]], np.int32)
FEW, MANY = 120, 2_500
# False alarms: five means within 5 standard errors of the bound or below, 3e-7 each.
DEVIATIONS = 5


def plan_of(kind: str, rows: int = 1) -> Schedule:
    """Of a unit of privacy of so many ``rows``."""
    accountant, rho = accountant_of(kind), row_budget(RHO, rows)
    if kind.startswith("fixed"):
        return fixed_rounds_plan(
            rho, 4, 3, noise="discrete-gaussian", initial_share=0.2, accountant=accountant
        )
    if kind == "papers":
        return fixed_rounds_plan(rho, 4, 3, noise="discrete-gaussian")
    return AnnealedPlan(
        rho,
        3,
        rounds_per_column=2,
        noise="discrete-gaussian",
        initial_share=0.2,
        tree_rounds=tree_rounds(WORKLOAD),
        tree_share=0.25,
        accountant=accountant,
    )


def accountant_of(kind: str) -> Accountant:
    """Of choices that cost a ninth of the noise behind each."""
    return GaussianAccountant(1 / 8) if kind.endswith(GAUSSIAN) else ZCDP


def rule_of(kind: str) -> Rule:
    return AIM if kind == "papers" else REMAINING_ERROR


@dataclass
class Beside:
    """A backend on one table that works out what the other would have made of the same openings."""

    own: PlaintextBackend
    ours: NDArray[np.uint32]
    theirs: NDArray[np.uint32]
    plan: Schedule
    # Of the deviation charged for, what noise really has.
    share: float = 1.0
    loss: float = 0.0
    ranges: list[float] = field(default_factory=list)
    workload: Workload = WORKLOAD

    async def begin_round(self, round: int) -> int:
        return await self.own.begin_round(round)

    async def select(self, spec: ScoreSpec, scale: float) -> int:
        position = await self.own.select(spec, scale)
        scores = [
            np.array(plain_scores(self.workload.gather(of, spec.candidates), spec)) / 2**SCORE_BITS
            for of in (self.ours, self.theirs)
        ]
        apart = scores[0] - scores[1]
        self.ranges.append(float(apart.max() - apart.min()) / scale)
        likely = [s[position] - np.logaddexp.reduce(s) for s in scores]
        self.loss += float(likely[0] - likely[1])
        return position

    async def measure(self, candidate: int, sigma: float) -> NDArray[np.float64]:
        noisy = await self.own.measure(candidate, sigma)
        cells = self.workload.slice(candidate)
        ours, theirs = (np.square(noisy - of[cells]).sum() for of in (self.ours, self.theirs))
        self.loss += float(theirs - ours) / (2 * (self.share * sigma) ** 2)
        return noisy


async def losses(
    kind: str, runs: int, *, seed: int, share: float = 1.0, rows: int = 1
) -> tuple[NDArray[np.float64], float]:
    """Of runs with the row and without it in turns (runs,), and the largest range of a choice's loss by its epsilon.

    A unit may be several ``rows``: the range is then by as many epsilons.
    """
    rng = np.random.default_rng(seed)
    without = np.column_stack([rng.integers(0, n - 1, ROWS) for n in DOMAIN.shape]).astype(np.int32)
    tables = [np.concatenate([without, *[CANARY] * rows]), without]
    expanded = [WORKLOAD.expand(count_marginals(table, WORKLOAD)) for table in tables]
    found, widest = [], 0.0
    for number in range(runs):
        one, plan = number % 2, plan_of(kind, rows)
        ledger = Ledger(row_budget(RHO, rows), accountant=plan.accountant)
        own = PlaintextBackend.pooled(
            WORKLOAD,
            plan,
            codes=tables[one],
            ledger=ledger,
            random_bytes=random_stream(seed * 100_000 + number),
        )
        beside = Beside(own, expanded[one], expanded[1 - one], plan, share)
        estimator = PgmEstimator(WORKLOAD, plan, iterations=5, final_iterations=1)
        await run_aim(WORKLOAD, plan, beside, estimator, max_rows=1_000, rule=rule_of(kind))
        assert ledger.spent <= row_budget(RHO, rows)
        found.append(beside.loss)
        widest = max(widest, *(each / rows for each in beside.ranges))
    return np.array(found), widest


def check(
    found: NDArray[np.float64], widest: float, *, gaussian: bool = False, least: float = RHO / 3
) -> None:
    """That losses are those of an RHO-zCDP mechanism, or of a Gaussian that costs RHO, as far as so many runs show.

    ``least`` is what the openings that the row changes cost at least: a Gaussian's loss has the variance 2 rho.
    """
    assert widest <= 1 + 1e-6, f"a choice's loss varies by {widest:.3f} times its epsilon"
    spread = DEVIATIONS / math.sqrt(len(found))
    assert found.mean() <= RHO + spread * found.std()
    for order in (2, 3):
        moments = np.exp((order - 1) * found)
        assert moments.mean() <= math.exp((order - 1) * order * RHO) + spread * moments.std()
    for epsilon in (0.5, 1.5):
        beyond = np.maximum(0, 1 - np.exp(epsilon - found))
        allowed = delta_from_rho(RHO, epsilon)
        if gaussian:
            allowed = delta_of([GaussianEvent(1.0, math.sqrt(2 * RHO))], epsilon)
        assert beyond.mean() <= allowed + spread * max(beyond.std(), math.sqrt(allowed / 10))
    # A mechanism that opened nothing of the row would pass all of that.
    assert found.var() > least


KINDS = ["papers", "fixed", "annealed", "fixed, gaussian", "annealed, gaussian"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_row_more_or_less_costs_no_more_than_is_charged(kind: str) -> None:
    check(*await losses(kind, FEW, seed=1), gaussian=kind.endswith(GAUSSIAN))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_a_row_more_or_less_costs_no_more_than_is_charged_in_many_runs(kind: str) -> None:
    check(*await losses(kind, 2 * MANY, seed=2), gaussian=kind.endswith(GAUSSIAN))


PERSON = 3
"""Rows of a unit of several."""


async def test_a_person_costs_no_more_than_is_charged() -> None:
    check(*await losses("fixed", FEW // 2, seed=5, rows=PERSON))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["papers", "fixed", "annealed"])
async def test_a_person_costs_no_more_than_is_charged_in_many_runs(kind: str) -> None:
    check(*await losses(kind, 2 * MANY, seed=6, rows=PERSON))


def from_the_table(spec: Callable[..., ScoreSpec]) -> Callable[..., ScoreSpec]:
    """A rule that looks at the real counts: gains that grow with a row."""

    def leaking(*arguments: object, **options: object) -> ScoreSpec:
        made = spec(*arguments, **options)
        return ScoreSpec(
            made.candidates,
            made.sizes,
            made.answers,
            tuple(2 * gain for gain in made.gains),
            made.offsets,
            made.max_rows,
        )

    return leaking


async def test_check_sees_a_choice_that_is_sharper_than_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A control: twice the gains, with the charge of before."""
    monkeypatch.setattr(mechanisms.aim, "choice_spec", from_the_table(choice_spec))
    found, widest = await losses("fixed", 10, seed=3)
    assert widest > 1.5
    with pytest.raises(AssertionError, match="varies by"):
        check(found, widest)


async def test_check_sees_noise_that_is_smaller_than_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A control: half the deviation, with the charge of before."""

    async def finer(self: PlaintextBackend, candidate: int, sigma: float) -> NDArray[np.float64]:
        counts = self._expanded[self._workload.slice(candidate)]
        rng = np.random.default_rng(int.from_bytes(self._random_bytes(7), "big"))
        noisy: NDArray[np.float64] = counts + rng.normal(0, sigma / 2, counts.size)
        return noisy

    monkeypatch.setattr(PlaintextBackend, "measure", finer)
    found, widest = await losses("fixed", FEW, seed=4, share=0.5)
    with pytest.raises(AssertionError):
        check(found, widest)
