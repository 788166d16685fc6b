"""Private-PGM: fits against mbi's own estimator and what was measured, and the size limit."""

import asyncio
import inspect

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.accounting import Plan, fixed_rounds_plan
from mechanisms.aim import Measurement
from mechanisms.descent import Target, descent_to_noise, evaluate, mirror_descent
from mechanisms.errors import EstimationError
from mechanisms.inference import JunctionTree
from mechanisms.metrics import table_answers, workload_error
from mechanisms.model import Model
from mechanisms.pgm import FederatedEstimator, PgmEstimator, fit, misfit, tilt
from mechanisms.workload import Workload, draw_workload
from tests.mechanisms.tables import domain_of, random_codes

DOMAIN = domain_of(3, 4, 2, 5)
WORKLOAD = draw_workload(DOMAIN, 3, None)
CODES = random_codes(DOMAIN, 2000, 1)
REAL = table_answers(WORKLOAD, CODES)
PLAN = fixed_rounds_plan(1.0, 4, 4)


def candidate(*names: str) -> int:
    return WORKLOAD.candidates.index(names)


def measured(
    *names: str, sigma: float = 1.0, clients: int = 1, noise: NDArray[np.float64] | float = 0.0
) -> Measurement:
    """A measurement of the table, as if every client held a copy of it."""
    i = candidate(*names)
    return Measurement(1, i, clients * REAL[WORKLOAD.slice(i)] + noise, sigma, clients)


ONE_WAY = [measured(name) for name in DOMAIN.names]
CHAIN = [*ONE_WAY, measured("c0", "c1"), measured("c1", "c2"), measured("c2", "c3")]


def test_fit_meets_what_was_measured_when_there_is_no_noise() -> None:
    model, _ = fit(WORKLOAD, CHAIN, iterations=2000)
    for m in CHAIN:
        (answer,) = model.answers([WORKLOAD.candidates[m.candidate]])
        assert np.allclose(answer.reshape(-1), m.noisy / len(CODES), atol=1e-5)


def test_fit_is_no_worse_than_mbis_estimator_when_counts_are_noisy() -> None:
    import jax

    jax.config.update("jax_enable_compilation_cache", False)
    with jax.enable_x64(True):
        import mbi

        rng = np.random.default_rng(2)
        noisy = [
            Measurement(0, m.candidate, m.noisy + rng.normal(0, 5, m.noisy.size), 5.0, 1)
            for m in CHAIN
        ]
        total = len(CODES)
        linear = [
            mbi.LinearMeasurement(
                m.noisy / total, WORKLOAD.candidates[m.candidate], m.sigma / total
            )
            for m in noisy
        ]
        domain = mbi.Domain(DOMAIN.names, DOMAIN.shape)
        theirs = mbi.estimation.MirrorDescent().estimate(
            domain, linear, known_total=1.0, iters=5000
        )
        ours, _ = fit(WORKLOAD, noisy, iterations=1000)
        for clique in WORKLOAD.candidates:
            (answer,) = ours.answers([clique])
            # The optimum is unique in the marginals; contraction has to give what project gives.
            assert np.allclose(answer, theirs.project(clique).values, atol=2e-4)


def test_misfit_is_that_of_noise_for_the_real_table_less_for_a_fit_and_more_for_another_runs() -> (
    None
):
    """The misfit of the truth to 40 runs of 44 cells is within 6 deviations of 1, but for once in 10^9."""
    rng = np.random.default_rng(5)

    def run() -> list[Measurement]:
        return [
            Measurement(0, m.candidate, m.noisy + rng.normal(0, 8, m.noisy.size), 8.0, 1)
            for m in CHAIN
        ]

    truth, _ = fit(WORKLOAD, CHAIN, iterations=2000)
    runs = [run() for _ in range(40)]
    mean = float(np.mean([misfit(WORKLOAD, each, truth) for each in runs]))
    assert abs(mean - 1) < 6 * np.sqrt(2 / (44 * 40))
    mine, other = (fit(WORKLOAD, each, iterations=1000)[0] for each in runs[:2])
    assert misfit(WORKLOAD, runs[0], mine) < misfit(WORKLOAD, runs[0], truth)
    assert misfit(WORKLOAD, runs[0], other) > misfit(WORKLOAD, runs[0], mine) + 0.5


def test_fit_weights_measurements_by_their_noise() -> None:
    bias = np.array([100.0, -100.0, 0.0])
    pair = [measured("c0", sigma=1.0), measured("c0", sigma=3.0, noise=bias)]
    model, _ = fit(WORKLOAD, pair, iterations=500)
    (answer,) = model.answers([("c0",)])
    assert np.allclose(answer * len(CODES), ONE_WAY[0].noisy + bias / 10, atol=1e-2)


def test_fit_normalises_each_measurement_to_its_clients() -> None:
    # Three times the clients under the same noise: nine times the weight once normalised.
    bias = np.array([100.0, -100.0, 0.0])
    pair = [measured("c0", clients=1, noise=bias), measured("c0", clients=3)]
    model, _ = fit(WORKLOAD, pair, iterations=500)
    (answer,) = model.answers([("c0",)])
    assert np.allclose(answer * len(CODES), ONE_WAY[0].noisy + bias / 10, atol=1e-2)


def test_fit_leaves_unmeasured_columns_uniform() -> None:
    model, _ = fit(WORKLOAD, [measured("c0")], iterations=50)
    (answer,) = model.answers([("c3",)])
    assert np.allclose(answer, 1 / 5)


def test_fit_goes_on_from_potentials_of_a_smaller_model() -> None:
    _, start = fit(WORKLOAD, CHAIN[:-1], iterations=1000)
    warm, _ = fit(WORKLOAD, CHAIN, iterations=5, start=start)
    cold, _ = fit(WORKLOAD, CHAIN, iterations=5)

    def distance(answers: list[NDArray[np.float64]]) -> float:
        exact = ONE_WAY[1].noisy / len(CODES)
        return float(np.abs(answers[0] - exact).sum())

    assert distance(warm.answers([("c1",)])) < distance(cold.answers([("c1",)])) / 2


def test_fit_refuses_nothing_measured_and_potentials_that_are_no_numbers() -> None:
    with pytest.raises(EstimationError, match="nothing was measured"):
        fit(WORKLOAD, [], iterations=1)
    with pytest.raises(EstimationError, match="not finite"):
        fit(WORKLOAD, ONE_WAY, iterations=1, start={("c0",): np.full(3, np.nan)})


def estimate_with(plan: Plan, limit_mb: float) -> NDArray[np.bool_]:
    estimator = PgmEstimator(WORKLOAD, plan, iterations=1, max_model_mb=limit_mb)
    return asyncio.run(estimator.estimate(CHAIN, round=1, final=False)).allowed


def test_estimate_allows_what_the_models_size_permits() -> None:
    inside = {("c0", "c1"), ("c1", "c2"), ("c2", "c3")} | {(name,) for name in DOMAIN.names}
    tiny = estimate_with(PLAN, 1e-6)
    assert {c for c, ok in zip(WORKLOAD.candidates, tiny, strict=True) if ok} == inside
    assert estimate_with(PLAN, 80.0).all()


def test_estimate_grows_its_limit_with_the_budget_spent() -> None:
    # (c0 c1 c3) makes cliques of 60 + 8 + 10 cells, 624 bytes; round 1 may use a part of the limit.
    limit = 1.2 * 8 * 78 / 2**20
    assert PLAN.spent_after(1) / PLAN.rho < 1 / 1.2
    estimator = PgmEstimator(WORKLOAD, PLAN, iterations=1, max_model_mb=limit)
    wanted = candidate("c0", "c1", "c3")

    def allowed(round: int) -> bool:
        measurements = [*ONE_WAY, measured("c0", "c1")]
        estimate = asyncio.run(estimator.estimate(measurements, round=round, final=False))
        return bool(estimate.allowed[wanted])

    assert [allowed(1), allowed(4)] == [False, True]


def test_estimate_answers_all_candidates_and_keeps_the_model() -> None:
    estimator = PgmEstimator(WORKLOAD, PLAN, iterations=100, final_iterations=500)
    assert estimator.model is None
    estimate = asyncio.run(estimator.estimate(CHAIN, round=4, final=True))
    assert estimator.model is not None
    assert estimate.answers_q32.shape == (WORKLOAD.cells,)
    assert (estimate.answers_q32 == estimator.model.answers_q32(WORKLOAD.candidates)).all()
    workload = Workload(DOMAIN, (("c0", "c1"), ("c2", "c3")))
    synthetic = np.concatenate(
        [a.reshape(-1) for a in estimator.model.answers(workload.candidates)]
    )
    assert workload_error(workload, table_answers(workload, CODES), synthetic) < 1e-3


def test_estimate_goes_on_from_the_one_before() -> None:
    estimator = PgmEstimator(WORKLOAD, PLAN, iterations=5)

    def distance() -> float:
        asyncio.run(estimator.estimate(CHAIN, round=1, final=False))
        assert estimator.model is not None
        answers = estimator.model.answers([WORKLOAD.candidates[m.candidate] for m in CHAIN])
        pairs = zip(CHAIN, answers, strict=True)
        return float(sum(np.abs(a.reshape(-1) - m.noisy / len(CODES)).sum() for m, a in pairs))

    first = distance()
    assert distance() < 0.7 * first


def test_estimate_repeats_when_measurements_do() -> None:
    first, second = (
        asyncio.run(PgmEstimator(WORKLOAD, PLAN).estimate(CHAIN, round=1, final=False))
        for _ in range(2)
    )
    assert (first.answers_q32 == second.answers_q32).all()


@pytest.mark.parametrize("clique", [("c0", "c1"), ("c0", "c3"), ("c0", "c2", "c3"), ("c1",)])
def test_tilt_changes_a_clique_and_nothing_given_it(clique: tuple[str, ...]) -> None:
    model, _ = fit(WORKLOAD, CHAIN, iterations=300)
    rng = np.random.default_rng(4)
    wanted = rng.dirichlet(np.ones(DOMAIN.size(clique))).reshape(DOMAIN.sizes(clique))
    tilted = tilt(model, clique, Target(wanted, 1e6), iterations=2000)

    def whole(of: Model) -> NDArray[np.float64]:
        rows = np.indices(DOMAIN.shape).reshape(len(DOMAIN.shape), -1).T
        return np.exp(of.log_probabilities(rows.astype(np.int32))).reshape(DOMAIN.shape)

    others = tuple(i for i, name in enumerate(DOMAIN.names) if name not in clique)
    before, after = whole(model), whole(tilted)
    assert np.allclose(after.sum(axis=others), wanted, atol=1e-3)
    given = [table / table.sum(axis=others, keepdims=True) for table in (before, after)]
    assert np.allclose(*given, atol=1e-6)


def test_federated_estimator_takes_what_fits_and_the_rest_when_the_limit_has_grown() -> None:
    def target(*names: str) -> tuple[int, Target]:
        i = candidate(*names)
        mean = REAL[WORKLOAD.slice(i)].reshape(DOMAIN.sizes(names)) / len(CODES)
        return i, Target(mean, 1e4)

    targets = [target(n) for n in DOMAIN.names]
    targets += [target("c0", "c1"), target("c1", "c3"), target("c0", "c3"), target("c2", "c3")]
    # Together c0, c1, c3 are one clique of 60 cells; without c0 c3 the tree has 12 + 20 + 10.
    estimator = FederatedEstimator(
        WORKLOAD, iterations=200, final_iterations=400, max_model_mb=8 * 75 / 2**20
    )

    def cliques(spent: float, final: bool = False) -> set[tuple[str, ...]]:
        model, allowed = asyncio.run(estimator.estimate(targets, spent=spent, final=final))
        assert allowed[candidate("c0", "c1")]
        return set(model.cliques)

    assert cliques(0.6) == {("c0", "c1"), ("c1", "c3"), ("c2", "c3")}
    assert cliques(0.6, final=True) == {("c0", "c1", "c3"), ("c2", "c3")}
    with pytest.raises(EstimationError, match="nothing was measured"):
        asyncio.run(estimator.estimate([], spent=1.0, final=True))


def test_descent_to_noise_ends_at_the_loss_that_noise_leaves_and_mirror_descent_goes_on() -> None:
    """Both begin alike; the control fits the noise: its loss falls far below half the number of cells."""
    rng, sigma = np.random.default_rng(5), 40.0
    targets = {
        q: Target(
            (REAL[WORKLOAD.slice(candidate(*q))] + rng.normal(0, sigma, DOMAIN.size(q))).reshape(
                DOMAIN.sizes(q)
            )
            / len(CODES),
            (len(CODES) / sigma) ** 2,
        )
        for q in (("c0", "c1"), ("c1", "c3"), ("c0", "c3"), ("c2", "c3"))
    }
    noise = sum(target.mean.size for target in targets.values()) / 2
    tree = JunctionTree(DOMAIN, list(targets))
    start = {q: np.zeros_like(target.mean) for q, target in targets.items()}
    done: list[int] = []
    found, marginals = descent_to_noise(
        tree, targets, start, iterations=500, on_iteration=lambda number, of: done.append(number)
    )
    loss = evaluate(tree, targets, found).loss
    assert 0.5 * noise < loss <= noise
    assert len(done) < 200
    assert done[-1] == 500
    further, _ = mirror_descent(
        tree, targets, start, iterations=500, on_iteration=lambda number, of: None
    )
    assert evaluate(tree, targets, further).loss < 0.7 * noise
    # A fit that begins there stays as it is.
    again, same = descent_to_noise(
        tree, targets, found, iterations=500, on_iteration=lambda number, of: None
    )
    assert all((again[q] == found[q]).all() for q in found)
    assert all((one == other).all() for one, other in zip(same, marginals, strict=True))


def test_flaims_estimator_stops_at_noise_and_aims_does_not() -> None:
    assert inspect.signature(FederatedEstimator).parameters["descent"].default is descent_to_noise
    assert inspect.signature(PgmEstimator).parameters["descent"].default is mirror_descent
