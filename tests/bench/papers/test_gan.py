"""DP-CTGAN: its accountant, clipped gradients against vmap's, training on a small table, what it gives back."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

from bench.fetch import DatasetError
from bench.methods.problem import problem
from bench.methods.settings import Settings
from bench.papers.gan import conditions, networks, runs, training
from bench.papers.gan.accounting import ORDERS, _divergence, epsilon_of, least_noise
from bench.papers.gan.cli import gan
from bench.papers.gan.networks import Layout, Weights
from bench.papers.gan.outcomes import RESULTS, Outcome, read_outcomes
from bench.papers.gan.runs import kde_nll
from bench.papers.gan.training import Averaged, Central, Federated, train
from bench.papers.utility.beside_paper import Sources, beside_paper
from bench.papers.utility.store import open_store
from mechanisms.accounting import rho_from_epsilon_delta
from tests.bench.papers.test_utility import Dataset, small, small_table

__all__ = ["small"]
LAYOUT = Layout((4, 4, 3, 2))


def test_epsilon_of_whole_batches_is_that_of_gaussians() -> None:
    # Orders are whole numbers, so that it is a little above the bound for zCDP of rho = steps / 2 sigma^2.
    rho, delta = 20 / (2 * 8.0**2), 1e-5
    exact = min(
        a * rho + math.log1p(-1 / a) - math.log(delta * a) / (a - 1)
        for a in np.arange(1.01, 60, 0.01)
    )
    assert exact <= epsilon_of(8.0, 1.0, 20, delta) < 1.01 * exact


def test_epsilon_of_a_known_training() -> None:
    # 60,000 rows, batches of 256, noise 1.1, 60 epochs: 3.01 in tutorials of DP-SGD, by the older conversion.
    rate, delta = 256 / 60_000, 1e-5
    steps = round(60 / rate)
    older = min(
        steps * _divergence(1.1, rate, order) - math.log(delta) / (order - 1)
        for order in ORDERS.tolist()
    )
    assert older == pytest.approx(3.01, abs=0.005)
    assert 0.8 * older < epsilon_of(1.1, rate, steps, delta) < older
    # Smaller batches hide a row more than that they need more steps.
    assert epsilon_of(1.1, rate, 1000, 1e-5) < epsilon_of(1.1, 4 * rate, 250, 1e-5)


@pytest.mark.parametrize(("rate", "steps"), [(0.003, 6870), (0.3, 50), (1.0, 50)])
def test_least_noise_meets_its_epsilon_closely(rate: float, steps: int) -> None:
    noise = least_noise(5.0, rate, steps, 1e-5)
    assert epsilon_of(noise, rate, steps, 1e-5) <= 5.0 < epsilon_of(noise / 1.01, rate, steps, 1e-5)
    with pytest.raises(ValueError, match="rates up to 1"):
        epsilon_of(1.0, 1.5, 1, 1e-5)


@pytest.mark.slow
def test_clipped_sums_are_those_of_every_examples_own_gradient() -> None:
    weights = networks.discriminator(LAYOUT, jax.random.key(1))
    codes = jnp.asarray(small_table().train[:20])
    rows, counts = networks.one_hot(LAYOUT, codes), jnp.asarray([1.0] * 15 + [0.0] * 5)
    gradients = jax.vmap(
        jax.grad(lambda w, x: networks._real_losses(w, x[None])[0]), in_axes=(None, 0)
    )(weights, rows)
    squares = [(leaf**2).reshape(20, -1).sum(axis=1) for leaf in jax.tree.leaves(gradients)]
    norms = np.sqrt(np.sum(squares, axis=0))
    # Some are clipped and some are not.
    clip = float(np.median(norms))
    share = np.minimum(1, clip / norms) * np.asarray(counts)
    expected = jax.tree.map(lambda leaf: jnp.tensordot(share, leaf, axes=1), gradients)
    found = networks.clipped_sum(weights, rows, counts, clip)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-5)


def test_one_row_moves_the_clipped_sum_by_no_more_than_the_clip() -> None:
    weights = networks.discriminator(LAYOUT, jax.random.key(1))
    rows = networks.one_hot(LAYOUT, jnp.asarray(small_table().train[:9]))
    with_it = networks.clipped_sum(weights, rows, jnp.ones(9), 0.01)
    without = networks.clipped_sum(weights, rows, jnp.ones(9).at[4].set(0), 0.01)
    moved = jax.tree.map(lambda a, b: ((a - b) ** 2).sum(), with_it, without)
    assert math.sqrt(sum(map(float, jax.tree.leaves(moved)))) == pytest.approx(0.01, rel=1e-3)


def test_noise_has_the_deviation_asked_for() -> None:
    weights = networks.discriminator(LAYOUT, jax.random.key(1))
    drawn = networks.noised(jax.tree.map(jnp.zeros_like, weights), jax.random.key(2), 3.0)
    values = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(drawn)])
    # 70,000 values: their deviation is known to 0.3 %; five of these.
    assert values.std() == pytest.approx(3.0, rel=0.015)


def test_poisson_batches_have_their_rate_and_every_row_its_chance() -> None:
    rng = np.random.default_rng(0)
    seen = np.zeros(500)
    for _ in range(400):
        rows, counts = training._batch(rng, 500, 0.2)
        assert len(rows) == len(counts)
        seen[rows[counts > 0]] += 1
    # 80 times each, give or take 8; six deviations.
    assert abs(seen - 80).max() < 48
    assert seen.mean() == pytest.approx(80, rel=0.02)


def test_parameters_are_the_numbers_of_both_networks() -> None:
    key = jax.random.key(0)
    both = networks.discriminator(LAYOUT, key), networks.generator(LAYOUT, key)
    found = tuple(sum(leaf.size for leaf in jax.tree.leaves(weights)) for weights in both)
    assert networks.parameters(LAYOUT) == found


def test_frequencies_have_the_noise_of_their_budget_and_each_column_adds_up() -> None:
    """A row is in one cell of each of four columns: L2 sensitivity 2, sigma^2 = 4 / 2 rho for every cell.

    The largest cell of every column over 2,000 draws: its deviation is known to 1.6 %; four of these.
    """
    table, rho = small_table(4000).train, 0.02
    rows = len(table)
    counts = np.concatenate(
        [np.bincount(table[:, i], minlength=s) for i, s in enumerate(LAYOUT.sizes)]
    )
    rng = np.random.default_rng(0)
    drawn = np.array([conditions.noisy_shares(LAYOUT, [table], rho, rng) for _ in range(2000)])
    sums = np.add.reduceat(drawn, LAYOUT.starts[:-1], axis=1)
    np.testing.assert_allclose(sums, 1, rtol=1e-5)
    np.testing.assert_allclose(drawn.mean(axis=0), counts / rows, atol=2e-3)
    # Of two cells with counts a and b, the share's deviation is sigma sqrt(a^2 + b^2) / n^2.
    a, b = counts[-2:]
    expected = math.sqrt(4 / (2 * rho)) * math.hypot(a, b) / rows**2
    assert drawn[:, -1].std() == pytest.approx(expected, rel=0.064)
    # Whoever holds the rows, the sum is the same.
    one, two = (np.random.default_rng(1) for _ in range(2))
    halves = conditions.noisy_shares(LAYOUT, [table[:99], table[99:]], rho, two)
    np.testing.assert_array_equal(conditions.noisy_shares(LAYOUT, [table], rho, one), halves)


def test_a_rows_condition_is_its_own_and_depends_on_no_other() -> None:
    rows = networks.one_hot(LAYOUT, jnp.asarray(small_table().train[:200]))
    shares = jnp.full(LAYOUT.width, 0.25)
    key = jax.random.key(3)
    found = np.asarray(conditions.own(LAYOUT, rows, shares, key))
    assert (found.sum(axis=1) == 1).all()
    assert (found <= np.asarray(rows)).all()
    columns = np.repeat(np.arange(4), LAYOUT.sizes)
    asked = np.bincount(columns[found.argmax(axis=1)], minlength=4)
    # 50 each, give or take 6.1; five deviations.
    assert abs(asked - 50).max() < 31
    other = rows.at[7].set(rows[8])
    moved = np.asarray(conditions.own(LAYOUT, other, shares, key)) != found
    assert set(np.flatnonzero(moved.any(axis=1))) <= {7}
    assert conditions.own(LAYOUT, rows, None, key).shape == (200, 0)


def test_conditions_are_drawn_by_the_shares() -> None:
    shares = jnp.asarray([0.7, 0.3, 0.0, 0.0, 0.25, 0.25, 0.25, 0.25, 1.0, 0.0, 0.0, 0.5, 0.5])
    found = np.asarray(conditions.drawn(LAYOUT, shares, jax.random.key(0), 8000))
    assert (found.sum(axis=1) == 1).all()
    # A column is asked of a quarter of the rows; 2,000 give or take 39, five deviations.
    np.testing.assert_allclose(found.sum(axis=0), 2000 * np.asarray(shares), atol=195)
    assert conditions.drawn(LAYOUT, None, jax.random.key(0), 5).shape == (5, 0)


@pytest.mark.slow
def test_a_generator_is_taught_what_is_asked_of_it() -> None:
    key = jax.random.key(1)
    judge = networks.discriminator(LAYOUT, key, LAYOUT.width)
    maker = networks.generator(LAYOUT, key, LAYOUT.width)
    asked = jnp.zeros((64, LAYOUT.width)).at[:, 2].set(1.0)
    adam = networks.Adam.fresh(maker)

    @jax.jit
    def step(maker: Weights, adam: networks.Adam, one: jax.Array) -> tuple[Weights, networks.Adam]:
        gradient = networks.generator_gradient(LAYOUT, maker, judge, one, asked)
        return adam.step(maker, gradient, 1e-2)

    for one in jax.random.split(key, 60):
        maker, adam = step(maker, adam, one)
    codes = networks.codes_of(LAYOUT, networks.generate(LAYOUT, maker, key, asked))
    assert float((codes[:, 0] == 2).mean()) > 0.9


def test_frequencies_are_charged_beside_the_training() -> None:
    assert epsilon_of(2.0, 0.01, 100, 1e-5, rho=0.01) > epsilon_of(2.0, 0.01, 100, 1e-5)
    # With nothing else to pay for, rho-zCDP by the same conversion.
    alone = min(
        a * 0.05 + math.log1p(-1 / a) - math.log(1e-5 * a) / (a - 1) for a in ORDERS.tolist()
    )
    assert epsilon_of(1e9, 0.01, 1, 1e-5, rho=0.05) == pytest.approx(alone, rel=1e-6)
    spared = least_noise(5.0, 0.003, 6870, 1e-5)
    charged = least_noise(5.0, 0.003, 6870, 1e-5, rho=0.02)
    assert spared < charged
    assert epsilon_of(charged, 0.003, 6870, 1e-5, rho=0.02) <= 5.0
    with pytest.raises(ValueError, match="alone is more than epsilon = 1"):
        least_noise(1.0, 0.003, 10, 1e-5, rho=5.0)


@pytest.mark.slow
def test_training_with_conditions_charges_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[float, ...]] = []
    noisy = conditions.noisy_shares

    def shares(layout: Layout, tables: object, rho: float, rng: object) -> object:
        given.append((rho,))
        return noisy(layout, tables, rho, rng)  # type: ignore[arg-type]

    def least(*place: float, rho: float) -> float:
        given.append((rho, *place))
        return 50.0

    def central(how: object, layout: object, state: object, *rest: Any) -> object:
        # After the table and the shares comes the noise that is left to training.
        assert rest[2](0.5, 30) == 50.0
        return state

    monkeypatch.setattr(conditions, "noisy_shares", shares)
    monkeypatch.setattr(training, "least_noise", least)
    monkeypatch.setattr(training, "_central", central)
    how = Central(epochs=1, conditions=0.25)
    table = small_table().train
    codes = train(how, [table], (4, 4, 3, 2), epsilon=2.0, delta=1e-5, rows=50, seed=0)
    share = 0.25 * rho_from_epsilon_delta(2.0, 1e-5)
    assert given == [(share,), (share, 2.0, 0.5, 30, 1e-5)]
    assert codes.shape == (50, 4)
    assert (codes < np.array([4, 4, 3, 2])).all()


def test_narrow_columns_decide_a_kernel_density_and_are_told_apart(
    small: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = small_table(2000)
    posed = problem(Settings(dataset="magic", method="aim"))
    nearly = table.train[:500].copy()
    nearly[:, 1] = 2
    nearly[0, 1] = 1
    one = runs._outcome(posed, "central", nearly, epsilon=5.0, repeat=0, seconds=1.0)
    assert one.narrow == 1
    assert one.nll is not None
    assert one.nll_wide is not None
    assert one.real_wide is not None
    assert one.nll > one.nll_wide + 5
    assert one.nll_wide == pytest.approx(one.real_wide, abs=1.0)
    real = runs.reference("magic", "real", epsilon=5.0, repeat=0)
    assert (real.narrow, real.real_wide) == (0, None)
    assert real.nll == real.nll_wide
    assert real.workload_error == 0
    shuffled = runs.reference("magic", "shuffled", epsilon=5.0, repeat=0)
    uniform = runs.reference("magic", "uniform", epsilon=5.0, repeat=0)
    assert 0 < shuffled.workload_error < uniform.workload_error


def test_averaged_networks_count_by_rows() -> None:
    one, two = ([[(jnp.full((2, 3), v), jnp.full(3, v))]] for v in (1.0, 5.0))
    (((weights, bias),),) = training._mean(np.array([0.75, 0.25]), [one, two])
    np.testing.assert_allclose(weights, np.full((2, 3), 2.0))
    np.testing.assert_allclose(bias, np.full(3, 2.0))


@pytest.mark.slow
def test_averaged_training_learns_what_no_client_has_alone() -> None:
    """Two clients, each with rows of one code of the third column; none has the third code, which starts at a third."""
    table = small_table(600).train
    halves = [table[:300].copy(), table[300:].copy(), table[:0]]
    halves[0][:, 2], halves[1][:, 2] = 0, 1
    settings = Averaged(rounds=30, epochs=2, discriminator_rate=1e-3, generator_rate=1e-3)
    given = {"sizes": (4, 4, 3, 2), "delta": 1e-5, "rows": 1000, "seed": 0}
    found = train(settings, halves, epsilon=None, **given)  # type: ignore[arg-type]
    shares = np.bincount(found[:, 2], minlength=3) / 1000
    assert shares[2] < 0.1
    assert shares[:2].min() > 0.2
    again = train(settings, halves, epsilon=None, **given)  # type: ignore[arg-type]
    assert (found == again).all()


@pytest.mark.parametrize(("how", "epsilon"), [(Averaged(), 1.0), (Central(), None)])
def test_training_says_that_only_noise_has_an_epsilon(
    how: Averaged | Central, epsilon: float | None
) -> None:
    with pytest.raises(ValueError, match="expected a number for DP-CTGAN, none where nothing"):
        train(how, [small_table().train], (4, 4, 3, 2), epsilon=epsilon, delta=0.1, rows=1, seed=0)


@pytest.mark.slow
def test_training_learns_what_columns_look_like_and_can_be_repeated() -> None:
    table = small_table(1200)
    skewed = table.train.copy()
    skewed[:, 2] = np.where(skewed[:, 2] == 2, 0, skewed[:, 2])
    changed = Central(epochs=60, discriminator_rate=3e-3, generator_rate=3e-3)
    given = {"sizes": (4, 4, 3, 2), "epsilon": 50.0, "delta": 1e-5, "rows": 2000, "seed": 0}
    synthetic = train(changed, [skewed], **given)  # type: ignore[arg-type]
    assert synthetic.shape == (2000, 4)
    # No row has the third code; uniform rows have it in a third.
    assert (synthetic[:, 2] == 2).mean() < 0.15
    again = train(changed, [skewed], **given)  # type: ignore[arg-type]
    assert (synthetic == again).all()


@pytest.mark.slow
def test_federated_training_joins_every_client_once_an_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined: list[int] = []
    of_client = training._of_client

    def counted(layout: Layout, clip: float, *given: object) -> object:
        joined.append(int(np.asarray(given[3]).sum()))
        return of_client(layout, clip, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "_of_client", counted)
    table = small_table().train
    tables = [table[:40], table[40:41], table[41:300], table[:0]]
    settings = Federated(epochs=2, participation=0.5)
    found = train(settings, tables, (4, 4, 3, 2), epsilon=5.0, delta=1e-5, rows=100, seed=1)
    assert found.shape == (100, 4)
    # Three clients have rows; small ones give all of them at once.
    assert len(joined) == 6
    assert joined.count(40) == joined.count(1) == 2
    with pytest.raises(ValueError, match="without rows"):
        train(settings, [table[:0]], (4, 4, 3, 2), epsilon=5.0, delta=1e-5, rows=1, seed=0)


def test_the_density_is_low_where_rows_are_unlike() -> None:
    rows = small_table(2000).train
    near, far = kde_nll(rows, rows[:50]), kde_nll(rows, rows[:50] + 20)
    assert near is not None
    assert far is not None
    assert near < 5 < far
    constant = rows.copy()
    constant[:, 1] = 2
    assert kde_nll(constant, rows[:50]) is not None
    assert kde_nll(np.zeros((9, 2), np.int32), rows[:5, :2]) is None
    twice = np.repeat(rows[:, :1], 2, axis=1)
    assert kde_nll(twice, twice[:5]) is None


@pytest.mark.slow
def test_command_adds_to_its_file_and_runs_nothing_twice(
    small: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(runs.METHODS, "central", Central(epochs=2))
    options = f"--dataset magic --method central --partition iid --output {tmp_path} --json"
    done = CliRunner().invoke(gan, options.split())
    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)["results"]
    assert 0 < result["workload_error"] < 2
    monkeypatch.setattr(runs, "run", None)
    assert CliRunner().invoke(gan, options.split()).exit_code == 0
    assert len(read_outcomes(tmp_path)) == 1
    outcome = Outcome("adult", "central", 5.0, 0, 1.0, 27.9, 0.5, 9.0, 2, 25.5, 25.0)
    page = beside_paper(open_store(tmp_path / "none.jsonl"), Sources(gans=[outcome])).text
    assert (
        "| adult | central DP-CTGAN | 28.6 | 27.90 (1) | cannot be compared: narrow kernel |  |  |"
        in page
    )
    row = "| adult | central DP-CTGAN | 1.000 (1) | 27.90 (1) | 2.0 (1) | 25.50 (1) | 25.00 (1) |"
    assert row in page
    (tmp_path / RESULTS).write_text("[{}]", encoding="utf-8")
    with pytest.raises(DatasetError, match="cannot be used"):
        read_outcomes(tmp_path)
