"""AIM's loop on counts in the clear, its ledger, arrivals and resumption."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.accounting import ExponentialEvent, GaussianEvent, Ledger, fixed_rounds_plan
from mechanisms.aim import (
    AimResult,
    Estimate,
    Measurement,
    RoundRecord,
    _settled,
    estimated_total,
    run_aim,
)
from mechanisms.annealing import AnnealedPlan
from mechanisms.choosing import connected
from mechanisms.errors import BudgetExceeded, EstimationError
from mechanisms.events import NOISE_KINDS, NoiseKind, measurement_event
from mechanisms.metrics import table_answers, workload_error
from mechanisms.pgm import PgmEstimator
from mechanisms.plaintext import PlaintextBackend
from mechanisms.remaining_error import remaining_error, remaining_errors
from mechanisms.sampling import public_generator
from mechanisms.scores import (
    AIM,
    REMAINING_ERROR,
    Rule,
    ScoreSpec,
    build_spec,
    plain_scores,
    score_offset,
    select_index,
)
from mechanisms.totals import NoisyTotal
from mechanisms.workload import Workload, count_marginals, draw_workload
from tests.mechanisms.tables import domain_of, random_codes, random_stream

DOMAIN = domain_of(3, 4, 2, 5)
WORKLOAD = draw_workload(DOMAIN, 2, 4, seed=3)
PAIRS = draw_workload(DOMAIN, 2, None)
CODES = random_codes(DOMAIN, 3000, 1)
PLAN = fixed_rounds_plan(0.5, 3, 4)
MAX_ROWS = 10_000


class UniformEstimator:
    """Estimates a uniform table whatever was measured; remembers what it was asked."""

    def __init__(self, workload: Workload = WORKLOAD) -> None:
        self.asked: list[tuple[int, int, bool]] = []
        sizes = [workload.domain.size(candidate) for candidate in workload.candidates]
        self.answers = np.concatenate([np.full(n, 2**32 // n - 1, np.uint32) for n in sizes])
        self.allowed = np.ones(len(sizes), bool)

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        self.asked.append((len(measurements), round, final))
        return Estimate(self.allowed, self.answers)


def backend(seed: int = 1, budget: float = PLAN.rho) -> PlaintextBackend:
    return PlaintextBackend.pooled(
        WORKLOAD, PLAN, codes=CODES, ledger=Ledger(budget), random_bytes=random_stream(seed)
    )


async def run(
    of: PlaintextBackend,
    history: Sequence[Measurement] = (),
    records: list[RoundRecord] | None = None,
) -> AimResult:
    records = [] if records is None else records
    return await run_aim(
        WORKLOAD,
        PLAN,
        of,
        UniformEstimator(),
        max_rows=MAX_ROWS,
        history=history,
        on_round=records.append,
    )


async def test_run_aim_measures_one_way_marginals_and_then_one_a_round() -> None:
    estimator, records = UniformEstimator(), list[RoundRecord]()
    of = backend()
    result = await run_aim(
        WORKLOAD, PLAN, of, estimator, max_rows=MAX_ROWS, on_round=records.append
    )
    assert [m.round for m in result.measurements] == [0, 0, 0, 0, 1, 2, 3]
    assert [m.candidate for m in result.measurements[:4]] == [0, 1, 2, 3]
    assert result.rounds_done == 3
    assert estimator.asked == [(4, 1, False), (5, 2, False), (6, 3, False), (7, 3, True)]
    assert [(r.round, len(r.measurements), r.clients) for r in records] == [
        (0, 4, 1),
        (1, 1, 1),
        (2, 1, 1),
        (3, 1, 1),
    ]
    assert abs(result.total - 3000) < 6 * PLAN.sigma
    real = table_answers(WORKLOAD, CODES)
    for m in result.measurements:
        error = m.noisy - real[WORKLOAD.slice(m.candidate)]
        assert np.abs(error).max() < 6 * PLAN.sigma
        assert np.abs(error).max() > 0


async def test_run_aim_spends_its_budget_and_no_more() -> None:
    of = backend()
    await run(of)
    assert of.ledger.spent == pytest.approx(PLAN.rho, rel=1e-12)
    steps = [(e.round, e.step, type(e.event)) for e in of.ledger.entries]
    assert steps == [(0, "measure", GaussianEvent)] * 4 + [
        step
        for round in (1, 2, 3)
        for step in ((round, "select", ExponentialEvent), (round, "measure", GaussianEvent))
    ]


async def test_run_aim_repeats_when_random_bytes_do() -> None:
    first, second, other = [await run(backend(seed)) for seed in (1, 1, 2)]
    for left, right in zip(first.measurements, second.measurements, strict=True):
        assert left.candidate == right.candidate
        assert (left.noisy == right.noisy).all()
    assert (first.measurements[0].noisy != other.measurements[0].noisy).any()


@pytest.mark.parametrize("kept", [2, 4, 5, 6, 7])
async def test_run_aim_goes_on_after_the_last_measurement_when_there_is_a_history(
    kept: int,
) -> None:
    whole = await run(backend())
    records = list[RoundRecord]()
    of = backend(seed=9)
    result = await run(of, whole.measurements[:kept], records)
    assert [m.round for m in result.measurements] == [0, 0, 0, 0, 1, 2, 3]
    assert result.measurements[:kept] == whole.measurements[:kept]
    first = 0 if kept < 4 else kept - 3
    assert [record.round for record in records] == list(range(first, 4))
    # Nothing of the history is paid for again.
    cost = sum(1 for m in result.measurements[kept:])
    assert len([e for e in of.ledger.entries if e.step == "measure"]) == cost


async def test_run_aim_stops_early_when_a_whole_round_cannot_be_paid() -> None:
    of = backend(budget=PLAN.spent_after(2) * 1.001)
    result = await run(of)
    assert result.rounds_done == 2
    assert of.ledger.spent == pytest.approx(PLAN.spent_after(2))


async def test_run_aim_measures_nothing_when_round_0_cannot_be_paid() -> None:
    of = backend(budget=PLAN.spent_after(0) * 0.99)
    with pytest.raises(BudgetExceeded):
        await run(of)
    assert of.ledger.entries == []


async def test_backend_refuses_a_release_that_the_ledger_cannot_pay() -> None:
    """Before it draws a single random byte for it."""
    drawn: list[int] = []
    stream = random_stream(1)

    def source(n: int) -> bytes:
        drawn.append(n)
        return stream(n)

    ledger = Ledger(PLAN.spent_after(0))
    of = PlaintextBackend.pooled(WORKLOAD, PLAN, codes=CODES, ledger=ledger, random_bytes=source)
    await of.begin_round(0)
    for i in range(4):
        await of.measure(i, PLAN.sigma)
    drawn.clear()
    answers = np.zeros(WORKLOAD.cells, np.uint32)
    spec = build_spec(
        WORKLOAD, [0, 1], answers, total=1, sigma=1.0, epsilon=PLAN.epsilon, max_rows=MAX_ROWS
    )
    with pytest.raises(BudgetExceeded):
        await of.select(spec, PLAN.epsilon)
    with pytest.raises(BudgetExceeded):
        await of.measure(0, PLAN.sigma)
    assert len(ledger.entries) == 4
    assert not drawn


@pytest.mark.parametrize("kind", NOISE_KINDS)
async def test_backend_adds_noise_of_the_deviation_that_was_charged(kind: NoiseKind) -> None:
    """Variance over 30,000 cells within 4.42 standard errors (a false-alarm rate of 1e-5): 4 % of it."""
    domain = domain_of(300, 100)
    workload = Workload(domain, (("c0", "c1"),))
    plan = fixed_rounds_plan(0.05, 3, 2, noise=kind)
    codes = random_codes(domain, 3000, 1)
    of = PlaintextBackend.pooled(
        workload, plan, codes=codes, ledger=Ledger(plan.rho), random_bytes=random_stream(7)
    )
    await of.begin_round(0)
    noisy = await of.measure(2, plan.sigma)
    error = noisy - table_answers(workload, codes)[workload.slice(2)]
    assert of.ledger.entries[0].event == measurement_event(kind, plan.sigma)
    assert abs(error.var() / plan.noise_sigma**2 - 1) < 4.42 * math.sqrt(2 / error.size)
    assert plan.noise_sigma >= plan.sigma


async def test_backend_refuses_a_selection_that_is_not_in_the_plan() -> None:
    of = backend()
    await of.begin_round(0)
    spec = build_spec(
        WORKLOAD,
        [0, 1],
        np.zeros(WORKLOAD.cells, np.uint32),
        total=1,
        sigma=1.0,
        epsilon=2 * PLAN.epsilon,
        max_rows=MAX_ROWS,
    )
    with pytest.raises(ValueError, match="not in the plan"):
        await of.select(spec, 2 * PLAN.epsilon)
    assert of.ledger.entries == []


async def test_run_aim_selects_only_what_is_allowed_and_asked_for() -> None:
    workload = Workload(DOMAIN, (("c0", "c1"),))
    estimator = UniformEstimator(workload)
    estimator.allowed[workload.candidates.index(("c0", "c1"))] = False
    counts = count_marginals(CODES, workload)

    async def chosen() -> set[tuple[str, ...]]:
        of = PlaintextBackend(
            workload,
            PLAN,
            arrivals={0: (1, counts)},
            ledger=Ledger(PLAN.rho),
            random_bytes=random_stream(1),
        )
        result = await run_aim(workload, PLAN, of, estimator, max_rows=MAX_ROWS)
        return {workload.candidates[m.candidate] for m in result.measurements if m.round}

    # c2 and c3 are in no query.
    assert await chosen() <= {("c0",), ("c1",)}
    estimator.allowed[:] = [candidate in {("c2",), ("c3",)} for candidate in workload.candidates]
    with pytest.raises(EstimationError, match="max_model_mb"):
        await chosen()


async def test_backend_selects_as_the_reference_does() -> None:
    selected = []

    class Spy(PlaintextBackend):
        async def select(self, spec, scale):  # type: ignore[no-untyped-def]
            chosen = await super().select(spec, scale)
            selected.append((spec, scale, chosen))
            return chosen

    of = Spy.pooled(
        WORKLOAD, PLAN, codes=CODES, ledger=Ledger(PLAN.rho), random_bytes=lambda n: b"\x7f" * n
    )
    await run(of)
    real = table_answers(WORKLOAD, CODES).astype(np.uint32)
    for spec, scale, chosen in selected:
        scores = plain_scores(WORKLOAD.gather(real, spec.candidates), spec)
        assert scale == PLAN.epsilon
        assert chosen == select_index(scores, int.from_bytes(b"\x7f" * 8, "big"))


class Asked(PlaintextBackend):
    """Keeps the specification that it was asked to select by last, and the totals of all."""

    spec: ScoreSpec
    totals: tuple[float, ...] = ()

    async def select(self, spec: ScoreSpec, scale: float) -> int:
        self.spec = spec
        self.totals += (float(spec.answers[: spec.sizes[0]].sum()) / 64,)
        return await super().select(spec, scale)


async def test_run_aim_scales_the_models_answers_to_the_clients_of_the_round() -> None:
    # A thousand rows come with ten clients in each of rounds 0, 2 and 3.
    parts = {
        round: (10, count_marginals(CODES[1000 * i : 1000 * (i + 1)], WORKLOAD))
        for i, round in enumerate((0, 2, 3))
    }
    of = Asked(
        WORKLOAD, PLAN, arrivals=parts, ledger=Ledger(PLAN.rho), random_bytes=random_stream(1)
    )
    await run(of)
    assert of.totals == pytest.approx((1000, 2000, 3000), rel=0.1)


@pytest.mark.parametrize("kind", NOISE_KINDS)
async def test_run_aim_expects_of_a_score_the_noise_that_is_added(kind: NoiseKind) -> None:
    """With distributed noise that is more than is charged for."""
    plan = fixed_rounds_plan(0.5, 1, 4, noise=kind)
    arrivals = {0: (1, count_marginals(CODES, WORKLOAD))}
    of = Asked(
        WORKLOAD, plan, arrivals=arrivals, ledger=Ledger(plan.rho), random_bytes=random_stream(1)
    )
    await run_aim(WORKLOAD, plan, of, UniformEstimator(), max_rows=MAX_ROWS)
    sizes = of.spec.sizes.tolist()
    assert of.spec.offsets == tuple(
        score_offset(gain, plan.noise_sigma, size)
        for gain, size in zip(of.spec.gains, sizes, strict=True)
    )


def test_settled_by_the_new_rule_is_moved_by_no_more_than_half_of_what_noise_leaves() -> None:
    """Of a marginal whose rows are all in one of 10,000 cells, noise leaves a hundredth of what raw noise has."""
    domain = domain_of(100, 100)
    workload = Workload(domain, ((domain.names[0], domain.names[1]),))
    plan = fixed_rounds_plan(0.5, 3, 2)
    cells, rows = workload.slice(2), 500.0
    last = Measurement(1, 2, np.full(10_000, rows / 10_000), plan.sigma, 10)
    before = np.zeros(workload.cells, np.uint32)
    before[cells.start] = 2**32 - 1
    raw = math.sqrt(2 / math.pi) * plan.sigma * 10_000

    def settled(moved: float, rule: Rule) -> bool:
        after = before.copy()
        after[cells.start] -= np.uint32(moved / rows * 2**32 / 2)
        after[cells.start + 1] += np.uint32(moved / rows * 2**32 / 2)
        every = np.ones(3, bool)
        estimates = Estimate(every, before), Estimate(every, after)
        return _settled(workload, plan, [last], *estimates, max_rows=MAX_ROWS, rule=rule)

    assert raw > 20 * rows
    assert settled(rows, AIM)
    counts = np.zeros(10_000)
    counts[0] = rows
    left = rows * remaining_error(counts, plan.sigma)
    assert left < raw / 300
    assert settled(0.49 * left, REMAINING_ERROR)
    assert not settled(0.51 * left, REMAINING_ERROR)


async def test_run_aim_by_the_new_rule_expects_of_a_score_what_the_noise_leaves() -> None:
    plan = fixed_rounds_plan(0.5, 1, 4, noise="distributed", initial_share=0.2)
    arrivals = {0: (1, count_marginals(CODES, WORKLOAD))}
    of = Asked(
        WORKLOAD, plan, arrivals=arrivals, ledger=Ledger(plan.rho), random_bytes=random_stream(1)
    )
    result = await run_aim(
        WORKLOAD, plan, of, UniformEstimator(), max_rows=MAX_ROWS, rule=REMAINING_ERROR
    )
    assert [m.sigma for m in result.measurements] == [plan.initial_sigma] * 4 + [plan.sigma]
    left = remaining_errors(
        of.spec.answers, of.spec.sizes.tolist(), plan.noise_sigma, fraction_bits=6
    )
    assert of.spec.offsets == tuple(
        gain * error for gain, error in zip(of.spec.gains, left, strict=True)
    )


async def test_run_aim_joins_all_columns_to_one_tree_first() -> None:
    plan = AnnealedPlan(0.5, 4, initial_share=0.2, tree_rounds=3, tree_share=0.5)
    of = PlaintextBackend.pooled(
        PAIRS, plan, codes=CODES, ledger=Ledger(plan.rho), random_bytes=random_stream(1)
    )
    estimator = UniformEstimator(PAIRS)
    result = await run_aim(PAIRS, plan, of, estimator, max_rows=MAX_ROWS, rule=REMAINING_ERROR)
    first = [m.candidate for m in result.measurements if 1 <= m.round <= 3]
    assert [len(PAIRS.candidates[i]) for i in first] == [2, 2, 2]
    assert len({*connected(PAIRS, first).values()}) == 1
    assert all(len({*connected(PAIRS, first[:k]).values()}) == 4 - k for k in range(4))
    assert result.rounds_done > 3
    # Gone on with after one round of the tree, the next ones join what that has left apart.
    history = [m for m in result.measurements if m.round <= 1]
    again = AnnealedPlan(0.5, 4, initial_share=0.2, tree_rounds=3, tree_share=0.5)
    other = PlaintextBackend.pooled(
        PAIRS, again, codes=CODES, ledger=Ledger(plan.rho), random_bytes=random_stream(2)
    )
    gone_on = await run_aim(
        PAIRS, again, other, estimator, max_rows=MAX_ROWS, rule=REMAINING_ERROR, history=history
    )
    first = [m.candidate for m in gone_on.measurements if 1 <= m.round <= 3]
    assert len({*connected(PAIRS, first).values()}) == 1


async def test_run_aim_measures_columns_alone_where_noise_drowns_pairs() -> None:
    """With few rows; a control: with all of them pairs are measured, and by the papers' rule they are, too."""

    async def pairs_of(rows: int, rule: Rule, shares: Mapping[str, object]) -> list[int]:
        plan = AnnealedPlan(0.05, 4, **shares)  # type: ignore[arg-type]
        ledger = Ledger(plan.rho)
        of = PlaintextBackend.pooled(
            PAIRS, plan, codes=CODES[:rows], ledger=ledger, random_bytes=random_stream(1)
        )
        estimator = PgmEstimator(PAIRS, plan, iterations=20, final_iterations=50)
        result = await run_aim(PAIRS, plan, of, estimator, max_rows=MAX_ROWS, rule=rule)
        assert ledger.spent == pytest.approx(plan.rho)
        return [len(PAIRS.candidates[m.candidate]) for m in result.measurements if m.round > 0]

    shares = {"initial_share": 0.2, "tree_rounds": 3, "tree_share": 0.25, "may_fall_back": True}
    assert await pairs_of(20, REMAINING_ERROR, shares) == [1] * 4
    assert 2 in await pairs_of(len(CODES), REMAINING_ERROR, shares)
    assert 2 in await pairs_of(20, AIM, {})
    assert 2 in await pairs_of(20, REMAINING_ERROR, shares | {"may_fall_back": False})


def test_settled_is_moved_by_no_more_than_noise() -> None:
    """||after - before||_1 of the measured marginal, in rows, against sqrt(2/pi) sigma n_q."""
    plan = fixed_rounds_plan(0.5, 3, 4, noise="distributed")
    index = WORKLOAD.candidates.index(("c0", "c1"))
    cells = WORKLOAD.domain.size(("c0", "c1"))
    rows = 5000.0
    last = Measurement(1, index, np.full(cells, rows / cells), plan.sigma, 10)
    allowed = math.sqrt(2 / math.pi) * plan.noise_sigma * cells

    def settled(moved: float, *, elsewhere: bool = False) -> bool:
        before, after = (np.full(WORKLOAD.cells, 2**20, np.uint32) for _ in range(2))
        where = WORKLOAD.slice(index)
        after[where.stop if elsewhere else where.start] += np.uint32(moved / rows * 2**32 / 2)
        before[where.stop - 1] += np.uint32(moved / rows * 2**32 / 2)
        every = np.ones(len(WORKLOAD.candidates), bool)
        estimates = Estimate(every, before), Estimate(every, after)
        return _settled(WORKLOAD, plan, [last], *estimates, max_rows=MAX_ROWS, rule=AIM)

    assert settled(0.999 * allowed)
    assert not settled(1.001 * allowed)
    # What other marginals do has no part in it.
    assert settled(1.999 * allowed, elsewhere=True)


async def test_run_aim_counts_clients_as_they_arrive() -> None:
    parts = {
        round: (10, count_marginals(CODES[1000 * i : 1000 * (i + 1)], WORKLOAD))
        for i, round in enumerate((0, 1, 3))
    }
    of = PlaintextBackend(
        WORKLOAD, PLAN, arrivals=parts, ledger=Ledger(PLAN.rho), random_bytes=random_stream(1)
    )
    result = await run(of)
    assert [m.clients for m in result.measurements] == [10, 10, 10, 10, 20, 20, 30]
    assert result.clients == 30
    sums = [m.noisy.sum() / m.clients for m in result.measurements]
    assert np.abs(np.array(sums) - 100).max() < 6 * PLAN.sigma * math.sqrt(20) / 10


def measurement(
    total: float, *, cells: int = 4, sigma: float = 2.0, clients: int = 1
) -> Measurement:
    return Measurement(0, 0, np.full(cells, total / cells), sigma, clients)


def test_measurement_knows_its_total() -> None:
    assert measurement(10.0, clients=3).total == NoisyTotal(10.0, 4 * 2.0**2, 3)


def test_estimated_total_is_whole_and_bounded() -> None:
    measurements = [measurement(10.4, clients=2)]
    assert estimated_total(measurements, 2, 100) == 10
    assert estimated_total(measurements, 3, 100) == 16
    assert estimated_total(measurements, 50, 100) == 100
    assert estimated_total([measurement(-5)], 1, 100) == 1


@pytest.mark.parametrize(
    ("noisy", "sigma", "clients"),
    [([1.0], 0.0, 1), ([1.0], 1.0, 0), ([math.nan], 1.0, 1), ([[1.0]], 1.0, 1)],
)
def test_measurement_is_checked_when_made(
    noisy: NDArray[np.float64], sigma: float, clients: int
) -> None:
    with pytest.raises(ValueError, match=r"noisy|sigma"):
        Measurement(0, 0, np.array(noisy), sigma, clients)


@pytest.mark.parametrize("sizes", [(1,), (1, 1), (1, 3, 1), (3, 4)])
@pytest.mark.parametrize("rows", [0, 1])
async def test_run_aim_makes_a_table_where_noise_is_all_there_is(
    sizes: tuple[int, ...], rows: int
) -> None:
    """Columns of one code, no row or one, and sums that are negative as often as not."""
    domain = domain_of(*sizes)
    workload = draw_workload(domain, len(sizes), None)
    plan = fixed_rounds_plan(1e-4, 2, len(sizes))
    totals = []
    for seed in range(6):
        estimator = PgmEstimator(workload, plan, iterations=20, final_iterations=50)
        of = PlaintextBackend.pooled(
            workload,
            plan,
            codes=random_codes(domain, rows, 1),
            ledger=Ledger(plan.rho),
            random_bytes=random_stream(seed),
        )
        result = await run_aim(workload, plan, of, estimator, max_rows=MAX_ROWS)
        assert result.rounds_done == 2
        assert estimator.model is not None
        for answer in estimator.model.answers(workload.candidates):
            assert answer.sum() == pytest.approx(1)
        synthetic = estimator.model.sample(result.total, public_generator(1))
        assert synthetic.shape == (result.total, len(sizes))
        assert (synthetic < sizes).all()
        totals.append(result.total)
    assert min(totals) == 1 < max(totals)


async def test_run_aim_finds_the_structure_of_a_table() -> None:
    # Columns follow one another nine times in ten; independent columns have an error of 0.9.
    domain = domain_of(4, 4, 4, 4)
    codes = random_codes(domain, 20_000, 2)
    workload = draw_workload(domain, 2, None)
    plan = fixed_rounds_plan(0.1, 3, 4)
    estimator = PgmEstimator(workload, plan)
    of = PlaintextBackend.pooled(
        workload, plan, codes=codes, ledger=Ledger(plan.rho), random_bytes=random_stream(5)
    )
    result = await run_aim(workload, plan, of, estimator, max_rows=50_000)
    real = table_answers(workload, codes)
    assert workload_error(workload, real, result.estimate.answers_q32) < 0.1
    assert estimator.model is not None
    synthetic = estimator.model.sample(result.total, public_generator(1))
    assert workload_error(workload, real, table_answers(workload, synthetic)) < 0.1
